#include "net/transport/callers.h"

#include "net/transport/guests.h"
#include "net/transport/loop.h"

#include <string.h>

static const struct {
  size_t peer, network, all;
} limits[HV_CALLER_KINDS] = {
    [HV_CALLER_CALLS] = {HV_LOOP_PEER_CALLS_MAX, HV_LOOP_NETWORK_CALLS_MAX, HV_LOOP_CALLS_MAX},
    [HV_CALLER_STREAMS] = {HV_LOOP_PEER_STREAMS_MAX, HV_LOOP_NETWORK_STREAMS_MAX, HV_LOOP_STREAMS_MAX},
    [HV_CALLER_BYTES] = {HV_LOOP_PEER_BYTES_MAX, HV_LOOP_NETWORK_BYTES_MAX, HV_LOOP_BYTES_MAX},
};

void hv_callers_init(hv_callers *callers, hv_mem *mem) {
  memset(callers, 0, sizeof *callers);
  callers->mem = mem;
  hv_ring_init(&callers->yielding);
}

/* ---- accounts ---- */

static int holds_nothing(const hv_caller *account) {
  for (int kind = 0; kind < HV_CALLER_KINDS; kind++)
    if (account->held[kind])
      return 0;
  return 1;
}

static void sweep(hv_callers *callers, int all, uint64_t now_us) {
  for (size_t b = 0; b < HV_CALLER_BUCKETS; b++)
    for (hv_caller **at = &callers->buckets[b]; *at;) {
      hv_caller *account = *at;
      if (!all && (!holds_nothing(account) || account->called_us > now_us)) {
        at = &account->next;
        continue;
      }
      *at = account->next;
      hv_mem_free(account);
    }
}

void hv_callers_fini(hv_callers *callers) {
  sweep(callers, 1, 0);
}

void hv_callers_sweep(hv_callers *callers, uint64_t now_us) {
  sweep(callers, 0, now_us);
}

static hv_caller *find(hv_callers *callers, const hv_peer_id *peer, uint64_t network, hv_tier tier) {
  size_t at = peer->key[0] ^ peer->key[7] ^ peer->key[31] ^ (network ^ network >> 8 ^ network >> 16);
  hv_caller **bucket = &callers->buckets[at % HV_CALLER_BUCKETS];
  for (hv_caller *account = *bucket; account; account = account->next)
    if (account->network == network && account->tier == tier && hv_peer_equal(&account->peer, peer))
      return account;
  hv_caller *account = hv_mem_zalloc(callers->mem, sizeof *account);
  if (account) {
    account->peer = *peer;
    account->network = network;
    account->tier = tier;
    account->next = *bucket;
    *bucket = account;
  }
  return account;
}

/* The network whose peers of that tier yield most of one kind; NULL: none yields anything. */
static hv_caller *crowd_of(hv_callers *callers, hv_tier tier, hv_caller_kind kind) {
  hv_caller *most = NULL;
  for (size_t b = 0; b < HV_CALLER_BUCKETS; b++)
    for (hv_caller *account = callers->buckets[b]; account; account = account->next)
      if (account->network && account->tier == tier && account->yields[kind] > (most ? most->yields[kind] : 0))
        most = account;
  return most;
}

/* ---- slips ---- */

void hv_slip_init(hv_slip *slip, void (*make_way)(hv_slip *slip)) {
  *slip = (hv_slip){.make_way = make_way};
  hv_ring_init(&slip->ring);
}

int hv_callers_admit(hv_callers *callers, hv_slip *slip, const hv_peer_id *peer, const hv_addr *from, hv_tier tier) {
  static const hv_peer_id nobody;
  int is_ip = from->kind == HV_ADDR_IP4 || from->kind == HV_ADDR_IP6;
  int is_trusted = tier == HV_TIER_TRUSTED;
  hv_caller *own = find(callers, peer, 0, HV_TIER_STRANGER);
  hv_caller *network = own && !is_trusted ? find(callers, &nobody, is_ip ? hv_guest_network(from) : 1, tier) : NULL;
  if (!own || (!is_trusted && !network))
    return 0;
  slip->tier = tier;
  slip->peer = own;
  slip->network = network;
  return 1;
}

/* Each call uses up a part of a second, and `ahead` of them may be used up before their time. */
static int pace(hv_caller *account, uint64_t one, unsigned ahead, uint64_t now_us) {
  uint64_t from = account->called_us > now_us ? account->called_us : now_us;
  if (from + one > now_us + ahead * one)
    return 0;
  account->called_us = from + one;
  return 1;
}

hv_callers_answer hv_callers_count(hv_slip *slip, int is_public, uint64_t now_us) {
  if (!slip->network)
    return HV_CALLERS_TAKEN;
  unsigned times = slip->tier == HV_TIER_MET ? HV_LOOP_MET_TIMES : 1;
  uint64_t one = 1000000 / (HV_LOOP_PEER_CALLS_S * times), ones_network = 1000000 / (HV_LOOP_NETWORK_CALLS_S * times);
  if (!pace(slip->peer, one, HV_LOOP_PEER_CALLS_AHEAD * times, now_us))
    return HV_CALLERS_CUT_OFF;
  if (!is_public || pace(slip->network, ones_network, HV_LOOP_NETWORK_CALLS_AHEAD * times, now_us))
    return HV_CALLERS_TAKEN;
  uint64_t good_part = HV_LOOP_PEER_CALLS_AHEAD * times / 4 * one;
  return slip->peer->called_us > now_us + good_part ? HV_CALLERS_CUT_OFF : HV_CALLERS_REFUSED;
}

/* Of a network, or of the trusted peers (NULL): of the peer that yields most the oldest slip. */
static hv_slip *pick(const hv_callers *callers, const hv_caller *network, const hv_slip *for_whom, hv_caller_kind kind,
                     int answers_too) {
  hv_slip *found = NULL;
  for (hv_ring *at = callers->yielding.next; at != &callers->yielding; at = at->next) {
    hv_slip *slip = HV_HOLDER(hv_slip, ring, at);
    if (slip->network == network && slip != for_whom && slip->held[kind] && (answers_too || slip->state == HV_SLIP_GREETS) &&
        (!found || slip->peer->yields[kind] > found->peer->yields[kind]))
      found = slip;
  }
  return found;
}

/* Where there is no room in all, the network with most gives, of the lowest tier that can; trusted peers give to each other only.
 */
static hv_slip *pick_of_all(hv_callers *callers, const hv_slip *for_whom, hv_caller_kind kind) {
  for (hv_tier tier = HV_TIER_STRANGER; tier <= for_whom->tier && tier < HV_TIER_TRUSTED; tier++) {
    hv_caller *crowd = crowd_of(callers, tier, kind);
    hv_slip *found = crowd ? pick(callers, crowd, for_whom, kind, crowd != for_whom->network) : NULL;
    if (found)
      return found;
  }
  if (for_whom->network)
    return NULL;
  hv_slip *found = pick(callers, NULL, for_whom, kind, 1);
  return found && found->peer->yields[kind] > for_whom->peer->held[kind] ? found : NULL;
}

static void change(hv_callers *callers, hv_slip *slip, hv_caller_kind kind, size_t by) { /* by may be a negative number's */
  hv_caller *accounts[] = {slip->peer, slip->network};
  slip->held[kind] += by;
  callers->held[kind] += by;
  callers->of_tier[slip->tier][kind] += by;
  for (int i = 0; i < 2 && accounts[i]; i++) {
    accounts[i]->held[kind] += by;
    if (slip->state != HV_SLIP_STAYS)
      accounts[i]->yields[kind] += by;
  }
}

/* True if peers of this tier, with those of lower ones, leave to others what is kept for them. */
static int leaves_room(const hv_callers *callers, hv_tier tier, hv_caller_kind kind, size_t n) {
  size_t all = limits[kind].all, strange = callers->of_tier[HV_TIER_STRANGER][kind], met = callers->of_tier[HV_TIER_MET][kind];
  if (tier == HV_TIER_STRANGER && strange + n > all - all / 4)
    return 0;
  return callers->held[kind] + n <= all && (tier == HV_TIER_TRUSTED || strange + met + n <= all - all / 8);
}

int hv_callers_take(hv_callers *callers, hv_slip *slip, hv_caller_kind kind, size_t n, hv_slip **goes) {
  *goes = NULL;
  if (slip->peer->held[kind] + n > limits[kind].peer)
    return 0;
  if (slip->network && slip->network->held[kind] + n > limits[kind].network) {
    *goes = pick(callers, slip->network, slip, kind, 0);
    return 0;
  }
  if (!leaves_room(callers, slip->tier, kind, n)) {
    *goes = pick_of_all(callers, slip, kind);
    return 0;
  }
  change(callers, slip, kind, n);
  return 1;
}

int hv_callers_take_place(hv_callers *callers, hv_slip *slip, hv_caller_kind kind, size_t n) {
  for (hv_slip *goes; !hv_callers_take(callers, slip, kind, n, &goes);) {
    if (!goes)
      return 0;
    hv_callers_leave(callers, goes);
    goes->make_way(goes);
  }
  return 1;
}

void hv_callers_set(hv_callers *callers, hv_slip *slip, hv_slip_state state) {
  size_t held[HV_CALLER_KINDS];
  if (!slip->peer)
    return;
  memcpy(held, slip->held, sizeof held);
  for (hv_caller_kind kind = 0; kind < HV_CALLER_KINDS; kind++)
    change(callers, slip, kind, 0 - held[kind]);
  hv_ring_remove(&slip->ring);
  slip->state = state;
  if (state != HV_SLIP_STAYS)
    hv_ring_add(&callers->yielding, &slip->ring);
  for (hv_caller_kind kind = 0; kind < HV_CALLER_KINDS; kind++)
    change(callers, slip, kind, held[kind]);
}

void hv_callers_give(hv_callers *callers, hv_slip *slip, hv_caller_kind kind) {
  if (slip->peer)
    change(callers, slip, kind, 0 - slip->held[kind]);
}

void hv_callers_leave(hv_callers *callers, hv_slip *slip) {
  if (!slip->peer)
    return;
  for (hv_caller_kind kind = 0; kind < HV_CALLER_KINDS; kind++)
    change(callers, slip, kind, 0 - slip->held[kind]);
  hv_ring_remove(&slip->ring);
  hv_slip_init(slip, slip->make_way);
}
