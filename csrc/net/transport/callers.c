#include "net/transport/callers.h"

#include "net/transport/loop.h"

#include <string.h>

void hv_callers_init(hv_callers *callers, hv_mem *mem) {
  memset(callers, 0, sizeof *callers);
  callers->mem = mem;
}

static void sweep(hv_callers *callers, int all) {
  for (size_t b = 0; b < HV_CALLER_BUCKETS; b++)
    for (hv_caller **at = &callers->buckets[b]; *at;) {
      hv_caller *caller = *at;
      if (!all && caller->calls + caller->streams) {
        at = &caller->next;
        continue;
      }
      *at = caller->next;
      hv_mem_free(caller);
    }
}

void hv_callers_fini(hv_callers *callers) {
  sweep(callers, 1);
}

void hv_callers_sweep(hv_callers *callers) {
  sweep(callers, 0);
}

static hv_caller *find(hv_callers *callers, const hv_peer_id *peer) {
  hv_caller **bucket = &callers->buckets[(peer->key[0] ^ peer->key[7] ^ peer->key[31]) % HV_CALLER_BUCKETS];
  for (hv_caller *caller = *bucket; caller; caller = caller->next)
    if (hv_peer_equal(&caller->peer, peer))
      return caller;
  hv_caller *caller = hv_mem_zalloc(callers->mem, sizeof *caller);
  if (caller) {
    caller->peer = *peer;
    caller->next = *bucket;
    *bucket = caller;
  }
  return caller;
}

hv_caller *hv_callers_call(hv_callers *callers, const hv_peer_id *peer) {
  hv_caller *caller = callers->calls < HV_LOOP_CALLS_MAX ? find(callers, peer) : NULL;
  if (!caller || caller->calls >= HV_LOOP_PEER_CALLS_MAX)
    return NULL;
  callers->calls++;
  caller->calls++;
  return caller;
}

hv_caller *hv_callers_stream(hv_callers *callers, const hv_peer_id *peer) {
  hv_caller *caller = callers->streams < HV_LOOP_STREAMS_MAX ? find(callers, peer) : NULL;
  if (!caller || caller->streams >= HV_LOOP_PEER_STREAMS_MAX)
    return NULL;
  callers->streams++;
  caller->streams++;
  return caller;
}

void hv_callers_call_left(hv_callers *callers, hv_caller *caller) {
  if (caller) {
    callers->calls--;
    caller->calls--;
  }
}

void hv_callers_stream_left(hv_callers *callers, hv_caller *caller) {
  if (caller) {
    callers->streams--;
    caller->streams--;
  }
}
