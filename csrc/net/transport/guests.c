#include "net/transport/guests.h"

#include "net/transport/loop.h"

#include <string.h>

void hv_guests_init(hv_guests *guests, hv_mem *mem) {
  memset(guests, 0, sizeof *guests);
  guests->mem = mem;
}

static void sweep(hv_guests *guests, int all) {
  for (size_t b = 0; b < HV_GUEST_BUCKETS; b++)
    for (hv_guest **at = &guests->buckets[b]; *at;) {
      hv_guest *guest = *at;
      if (!all && guest->calls + guest->streams) {
        at = &guest->next;
        continue;
      }
      *at = guest->next;
      hv_mem_free(guest);
    }
}

void hv_guests_fini(hv_guests *guests) {
  sweep(guests, 1);
}

void hv_guests_sweep(hv_guests *guests) {
  sweep(guests, 0);
}

static hv_guest *find(hv_guests *guests, const hv_peer_id *peer) {
  hv_guest **bucket = &guests->buckets[(peer->key[0] ^ peer->key[7] ^ peer->key[31]) % HV_GUEST_BUCKETS];
  for (hv_guest *guest = *bucket; guest; guest = guest->next)
    if (hv_peer_equal(&guest->peer, peer))
      return guest;
  hv_guest *guest = hv_mem_zalloc(guests->mem, sizeof *guest);
  if (guest) {
    guest->peer = *peer;
    guest->next = *bucket;
    *bucket = guest;
  }
  return guest;
}

hv_guest *hv_guests_call(hv_guests *guests, const hv_peer_id *peer) {
  hv_guest *guest = guests->calls < HV_LOOP_CALLS_MAX ? find(guests, peer) : NULL;
  if (!guest || guest->calls >= HV_LOOP_PEER_CALLS_MAX)
    return NULL;
  guests->calls++;
  guest->calls++;
  return guest;
}

hv_guest *hv_guests_stream(hv_guests *guests, const hv_peer_id *peer) {
  hv_guest *guest = guests->streams < HV_LOOP_STREAMS_MAX ? find(guests, peer) : NULL;
  if (!guest || guest->streams >= HV_LOOP_PEER_STREAMS_MAX)
    return NULL;
  guests->streams++;
  guest->streams++;
  return guest;
}

void hv_guests_call_left(hv_guests *guests, hv_guest *guest) {
  if (guest) {
    guests->calls--;
    guest->calls--;
  }
}

void hv_guests_stream_left(hv_guests *guests, hv_guest *guest) {
  if (guest) {
    guests->streams--;
    guest->streams--;
  }
}
