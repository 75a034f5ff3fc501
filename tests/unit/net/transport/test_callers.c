/* The accounts of calls and streams: limits by peer, by network and for all, the parts that are kept for peers of higher tiers, and
 * the calls that have to make way. */
#include "lib/check.h"

#include "net/transport/callers.h"
#include "net/transport/loop.h"

#include <string.h>

enum { SLIPS = 4096 };

typedef struct desk {
  hv_mem mem;
  hv_callers callers;
  hv_slip slips[SLIPS];
  size_t n;
} desk;

static desk *desk_open(void) {
  static desk d;
  memset(&d, 0, sizeof d);
  hv_mem_init(&d.mem, NULL, HV_MEM_UNLIMITED);
  hv_callers_init(&d.callers, &d.mem);
  return &d;
}

static void desk_close(desk *d) {
  for (size_t i = 0; i < d->n; i++)
    hv_callers_leave(&d->callers, &d->slips[i]);
  for (int kind = 0; kind < HV_CALLER_KINDS; kind++)
    assert_int_equal(d->callers.held[kind] + d->callers.of_tier[HV_TIER_STRANGER][kind] + d->callers.of_tier[HV_TIER_MET][kind], 0);
  assert_true(hv_ring_empty(&d->callers.yielding));
  hv_callers_sweep(&d->callers, UINT64_MAX);
  assert_int_equal(atomic_load(&d->mem.blocks), 0);
}

static hv_slip *admit(desk *d, uint8_t peer, uint8_t network, hv_tier tier) {
  hv_peer_id id = {.key = {1, peer}};
  hv_addr from = {.kind = HV_ADDR_IP4, .port = 9, .host.ip = {198, 18, network, 1}};
  hv_slip *slip = &d->slips[d->n++];
  assert_true(d->n <= SLIPS);
  hv_slip_init(slip, NULL);
  assert_true(hv_callers_admit(&d->callers, slip, &id, &from, tier));
  return slip;
}

typedef struct result {
  hv_slip *slip, *goes;
  int taken;
} result;

static result take(desk *d, hv_caller_kind kind, size_t n, uint8_t peer, uint8_t network, hv_tier tier) {
  result r = {.slip = admit(d, peer, network, tier)};
  r.taken = hv_callers_take(&d->callers, r.slip, kind, n, &r.goes);
  if (!r.taken)
    hv_callers_leave(&d->callers, r.slip);
  return r;
}

/* How many one after the other can have, if nobody makes way. */
static size_t fill(desk *d, hv_caller_kind kind, size_t n, uint8_t peer, uint8_t network, hv_tier tier) {
  size_t taken = 0;
  while (take(d, kind, n, peer, network, tier).taken)
    taken++;
  return taken;
}

/* Opens all streams that these peers of one tier get, each in a network of its own; returns their number. */
static size_t fill_peers(desk *d, uint8_t first, uint8_t end, hv_tier tier) {
  size_t taken = 0;
  for (uint8_t peer = first; peer < end; peer++)
    taken += fill(d, HV_CALLER_STREAMS, 1, peer, peer, tier);
  return taken;
}

static void a_peer_has_its_limit_of_each_kind(void **state) {
  (void)state;
  desk *d = desk_open();
  assert_int_equal(fill(d, HV_CALLER_CALLS, 1, 1, 1, HV_TIER_STRANGER), HV_LOOP_PEER_CALLS_MAX);
  assert_int_equal(fill(d, HV_CALLER_STREAMS, 1, 1, 1, HV_TIER_TRUSTED), HV_LOOP_PEER_STREAMS_MAX);
  assert_int_equal(fill(d, HV_CALLER_BYTES, 1 << 20, 1, 1, HV_TIER_STRANGER), HV_LOOP_PEER_BYTES_MAX >> 20);
  desk_close(d);
}

static size_t calls_of(desk *d, hv_tier tier, uint8_t peer, uint8_t network, uint64_t now_us, hv_callers_answer *end) {
  size_t calls = 0;
  hv_slip *slip = admit(d, peer, network, tier);
  while ((*end = hv_callers_count(slip, 1, now_us)) == HV_CALLERS_TAKEN)
    calls++;
  return calls;
}

static size_t calls_until(desk *d, uint8_t peer, uint8_t network, uint64_t now_us, hv_callers_answer *end) {
  return calls_of(d, HV_TIER_STRANGER, peer, network, now_us, end);
}

static void strangers_that_call_too_often_are_cut_off(void **state) {
  (void)state;
  desk *d = desk_open();
  const uint64_t now = 5000000;
  hv_callers_answer end;
  assert_int_equal(calls_until(d, 1, 1, now, &end), HV_LOOP_PEER_CALLS_AHEAD);
  assert_int_equal(end, HV_CALLERS_CUT_OFF);
  hv_callers_sweep(&d->callers, now); /* the account stays */
  assert_int_equal(calls_until(d, 1, 1, now, &end), 0);
  assert_int_equal(calls_until(d, 1, 1, now + 1000000, &end), HV_LOOP_PEER_CALLS_S);
  hv_slip *known = admit(d, 9, 1, HV_TIER_TRUSTED);
  for (int i = 0; i < 100000; i++)
    assert_int_equal(hv_callers_count(known, 1, now), HV_CALLERS_TAKEN);
  desk_close(d);
}

static void network_that_calls_too_often_loses_its_loudest(void **state) {
  (void)state;
  desk *d = desk_open();
  const uint64_t now = 5000000;
  hv_callers_answer end;
  assert_int_equal(calls_until(d, 1, 1, now, &end) + calls_until(d, 2, 1, now, &end), HV_LOOP_NETWORK_CALLS_AHEAD);
  assert_int_equal(calls_until(d, 3, 1, now, &end), 0);
  assert_int_equal(end, HV_CALLERS_REFUSED); /* it has hardly called */
  assert_int_equal(calls_until(d, 2, 1, now + 1000, &end), 0);
  assert_int_equal(end, HV_CALLERS_CUT_OFF);
  assert_int_equal(calls_until(d, 4, 2, now, &end), HV_LOOP_PEER_CALLS_AHEAD); /* another network */
  hv_slip *private = admit(d, 5, 1, HV_TIER_STRANGER);
  assert_int_equal(hv_callers_count(private, 0, now), HV_CALLERS_TAKEN);
  desk_close(d);
}

static void keys_of_one_network_share_its_limit(void **state) {
  (void)state;
  desk *d = desk_open();
  size_t streams = 0, bytes = 0;
  for (uint8_t peer = 0; peer < 20; peer++) {
    streams += fill(d, HV_CALLER_STREAMS, 1, peer, 1, HV_TIER_STRANGER);
    bytes += fill(d, HV_CALLER_BYTES, 1 << 20, peer, 1, HV_TIER_STRANGER);
  }
  assert_int_equal(streams, HV_LOOP_NETWORK_STREAMS_MAX);
  assert_int_equal(bytes, HV_LOOP_NETWORK_BYTES_MAX >> 20);
  assert_true(take(d, HV_CALLER_STREAMS, 1, 21, 2, HV_TIER_STRANGER).taken); /* another network, and one that core trusts */
  assert_true(take(d, HV_CALLER_STREAMS, 1, 22, 1, HV_TIER_TRUSTED).taken);
  desk_close(d);
}

/* A key that listens is met, and costs no more than one that does not. */
static void met_peers_that_call_too_often_are_cut_off(void **state) {
  (void)state;
  desk *d = desk_open();
  const uint64_t now = 5000000;
  const size_t ahead = HV_LOOP_PEER_CALLS_AHEAD * HV_LOOP_MET_TIMES;
  hv_callers_answer end;
  assert_int_equal(calls_of(d, HV_TIER_MET, 1, 1, now, &end), ahead);
  assert_int_equal(end, HV_CALLERS_CUT_OFF);
  assert_in_range(calls_of(d, HV_TIER_MET, 1, 1, now + 1000000, &end), HV_LOOP_PEER_CALLS_S * HV_LOOP_MET_TIMES,
                  HV_LOOP_PEER_CALLS_S * HV_LOOP_MET_TIMES * 11 / 10);
  size_t others = calls_of(d, HV_TIER_MET, 2, 1, now, &end) + calls_of(d, HV_TIER_MET, 3, 1, now, &end);
  assert_in_range(ahead + others, ahead, HV_LOOP_NETWORK_CALLS_AHEAD * HV_LOOP_MET_TIMES);
  assert_int_equal(calls_until(d, 4, 1, now, &end), HV_LOOP_PEER_CALLS_AHEAD); /* strangers there have an account of their own */
  desk_close(d);
}

static void met_keys_of_one_network_share_its_limit(void **state) {
  (void)state;
  desk *d = desk_open();
  size_t streams = 0;
  for (uint8_t peer = 0; peer < 20; peer++)
    streams += fill(d, HV_CALLER_STREAMS, 1, peer, 1, HV_TIER_MET);
  assert_int_equal(streams, HV_LOOP_NETWORK_STREAMS_MAX);
  assert_true(take(d, HV_CALLER_STREAMS, 1, 21, 1, HV_TIER_STRANGER).taken);
  desk_close(d);
}

static void an_eighth_is_kept_for_trusted_peers(void **state) {
  (void)state;
  desk *d = desk_open();
  size_t strange = fill_peers(d, 0, 20, HV_TIER_STRANGER);
  size_t met = fill_peers(d, 20, 40, HV_TIER_MET);
  size_t trusted = fill_peers(d, 40, 50, HV_TIER_TRUSTED);
  assert_int_equal(strange, HV_LOOP_STREAMS_MAX - HV_LOOP_STREAMS_MAX / 4);
  assert_int_equal(met, HV_LOOP_STREAMS_MAX / 8);
  assert_int_equal(trusted, HV_LOOP_STREAMS_MAX / 8);
  desk_close(d);
}

/* Fills all that untrusted peers may have with streams that greet; the result is a stream of that tier that wants a place. */
static result ask_in_a_crowd(desk *d, hv_tier crowd, hv_tier tier) {
  for (uint8_t peer = 0; peer < 20; peer++)
    for (result r = {.taken = 1}; r.taken;)
      if ((r = take(d, HV_CALLER_STREAMS, 1, peer, peer, crowd)).taken)
        hv_callers_set(&d->callers, r.slip, HV_SLIP_GREETS);
  return take(d, HV_CALLER_STREAMS, 1, 200, 200, tier);
}

static void slips_make_way_for_no_lower_tier(void **state) {
  (void)state;
  static const struct {
    hv_tier crowd, tier;
    int taken, goes;
  } cases[] = {
      {HV_TIER_STRANGER, HV_TIER_STRANGER, 0, 1}, {HV_TIER_STRANGER, HV_TIER_MET, 1, 0}, {HV_TIER_MET, HV_TIER_STRANGER, 0, 0},
      {HV_TIER_MET, HV_TIER_MET, 0, 1},           {HV_TIER_MET, HV_TIER_TRUSTED, 1, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    desk *d = desk_open();
    result r = ask_in_a_crowd(d, cases[i].crowd, cases[i].tier);
    assert_int_equal(r.taken, cases[i].taken);
    assert_int_equal(r.goes != NULL, cases[i].goes);
    assert_true(!r.goes || r.goes->tier == cases[i].crowd);
    desk_close(d);
  }
}

static void a_quarter_is_kept_from_strangers(void **state) {
  (void)state;
  desk *d = desk_open();
  size_t strange = fill_peers(d, 0, 20, HV_TIER_STRANGER);
  size_t known = fill_peers(d, 20, 30, HV_TIER_TRUSTED);
  assert_int_equal(strange, HV_LOOP_STREAMS_MAX - HV_LOOP_STREAMS_MAX / 4);
  assert_int_equal(known, HV_LOOP_STREAMS_MAX / 4);
  desk_close(d);
}

/* Fills all that strangers of four networks may have; in the third most of it is greeting, and there most is of peer 42. */
static void fill_with_greeting(desk *d) {
  for (uint8_t network = 0; network < 4; network++)
    for (int i = 0; i < 96; i++) {
      result r = take(d, HV_CALLER_STREAMS, 1, (uint8_t)(10 * network + (i < 50 ? 2 : 3)), network, HV_TIER_STRANGER);
      assert_true(r.taken);
      if (network == 1 ? i < 20 : network == 2)
        hv_callers_set(&d->callers, r.slip, HV_SLIP_GREETS);
    }
}

static void the_oldest_of_the_largest_crowd_makes_way(void **state) {
  (void)state;
  desk *d = desk_open();
  fill_with_greeting(d);
  hv_slip *first = &d->slips[2 * 96];
  for (int i = 0; i < 3; i++) {
    result r = take(d, HV_CALLER_STREAMS, 1, 200, 9, HV_TIER_STRANGER);
    assert_false(r.taken);
    assert_ptr_equal(r.goes, first + i);
    hv_callers_leave(&d->callers, r.goes);
    assert_true(take(d, HV_CALLER_STREAMS, 1, 200, 9, HV_TIER_STRANGER).taken);
  }
  desk_close(d);
}

static void newcomer_is_refused_where_nobody_greets(void **state) {
  (void)state;
  desk *d = desk_open();
  fill_peers(d, 0, 20, HV_TIER_STRANGER);
  result r = take(d, HV_CALLER_STREAMS, 1, 200, 200, HV_TIER_STRANGER);
  assert_true(!r.taken && !r.goes);
  desk_close(d);
}

/* An answer under way makes way for another network's, never for its own: else nobody there would get any. */
static void answers_make_way_for_other_networks_alone(void **state) {
  (void)state;
  desk *d = desk_open();
  for (uint8_t network = 0; network < 3; network++)
    for (uint8_t peer = 0; peer < 2; peer++)
      for (int i = 0; i < 8; i++) {
        result r = take(d, HV_CALLER_BYTES, 1 << 20, (uint8_t)(2 * network + peer), network, HV_TIER_STRANGER);
        assert_true(r.taken);
        hv_callers_set(&d->callers, r.slip, HV_SLIP_ANSWERS);
      }
  result own = take(d, HV_CALLER_BYTES, 1 << 20, 100, 0, HV_TIER_STRANGER),
         other = take(d, HV_CALLER_BYTES, 1 << 20, 100, 50, HV_TIER_STRANGER);
  assert_true(!own.taken && !own.goes);
  assert_true(!other.taken && other.goes);
  desk_close(d);
}

/* Among trusted peers one that has more makes way, and none does for one that has more itself. */
static void trusted_peers_make_way_for_those_with_less(void **state) {
  (void)state;
  desk *d = desk_open();
  for (uint8_t peer = 0; peer < 8; peer++)
    for (int i = 0; i < HV_LOOP_PEER_STREAMS_MAX; i++) {
      result r = take(d, HV_CALLER_STREAMS, 1, peer, 1, HV_TIER_TRUSTED);
      assert_true(r.taken);
      if (peer == 5 && i < 4)
        hv_callers_set(&d->callers, r.slip, HV_SLIP_GREETS);
    }
  for (int i = 0; i < 3; i++) {
    result r = take(d, HV_CALLER_STREAMS, 1, 100, 2, HV_TIER_TRUSTED);
    assert_true(!r.taken && (r.goes != NULL) == (i < 2));
    if (r.goes)
      hv_callers_leave(&d->callers, r.goes);
    if (r.goes)
      assert_true(take(d, HV_CALLER_STREAMS, 1, 100, 2, HV_TIER_TRUSTED).taken);
  }
  desk_close(d);
}

static void check_sums(const desk *d) {
  size_t held[HV_CALLER_KINDS] = {0}, yields[HV_CALLER_KINDS] = {0}, of_peers[2][HV_CALLER_KINDS] = {{0}};
  for (size_t i = 0; i < d->n; i++)
    for (int kind = 0; kind < HV_CALLER_KINDS; kind++) {
      held[kind] += d->slips[i].held[kind];
      yields[kind] += d->slips[i].state == HV_SLIP_STAYS ? 0 : d->slips[i].held[kind];
    }
  for (size_t b = 0; b < HV_CALLER_BUCKETS; b++)
    for (const hv_caller *account = d->callers.buckets[b]; account; account = account->next)
      for (int kind = 0; kind < HV_CALLER_KINDS && !account->network; kind++) {
        of_peers[0][kind] += account->held[kind];
        of_peers[1][kind] += account->yields[kind];
      }
  for (int kind = 0; kind < HV_CALLER_KINDS; kind++) {
    assert_int_equal(held[kind], d->callers.held[kind]);
    assert_int_equal(held[kind], of_peers[0][kind]);
    assert_int_equal(yields[kind], of_peers[1][kind]);
  }
}

static void sums_stay_right_under_random_calls(void **state) {
  (void)state;
  desk *d = desk_open();
  check_rng rng = {7};
  for (int round = 0; round < 20000; round++) {
    uint64_t r = check_random(&rng);
    hv_slip *slip = d->n ? &d->slips[(r >> 8) % d->n] : NULL, *goes;
    if (d->n < SLIPS && (r & 7) < 3) {
      slip = admit(d, (uint8_t)(r >> 16 & 15), (uint8_t)(r >> 20 & 7), (hv_tier)(r >> 24) % HV_TIERS);
      if (!hv_callers_take(&d->callers, slip, r >> 25 & 1, 1, &goes))
        hv_callers_leave(&d->callers, slip);
    } else if (slip && slip->peer && (r & 7) == 3) {
      hv_callers_set(&d->callers, slip, (hv_slip_state)(r >> 40) % 3);
    } else if (slip && slip->peer && (r & 7) == 4) {
      hv_callers_take(&d->callers, slip, HV_CALLER_BYTES, r >> 44, &goes);
      assert_true(!goes || (goes != slip && goes->held[HV_CALLER_BYTES]));
    } else if ((r & 7) == 5 && slip) {
      hv_callers_give(&d->callers, slip, HV_CALLER_BYTES);
    } else if (slip) {
      hv_callers_leave(&d->callers, slip);
    }
    if (round % 100 == 0) {
      hv_callers_sweep(&d->callers, UINT64_MAX);
      check_sums(d);
    }
  }
  desk_close(d);
}

static hv_status run_without_memory(hv_mem *mem, void *arg) {
  hv_callers callers;
  hv_slip slip;
  (void)arg;
  hv_callers_init(&callers, mem);
  hv_slip_init(&slip, NULL);
  int admitted = hv_callers_admit(&callers, &slip, &(hv_peer_id){.key = {1}}, &(hv_addr){.kind = HV_ADDR_NONE}, HV_TIER_STRANGER);
  hv_callers_leave(&callers, &slip);
  hv_callers_fini(&callers);
  return admitted ? HV_OK : HV_NOMEM;
}

static void caller_is_refused_without_memory(void **state) {
  (void)state;
  assert_true(check_out_of_memory(run_without_memory, NULL) >= 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_peer_has_its_limit_of_each_kind),
      cmocka_unit_test(strangers_that_call_too_often_are_cut_off),
      cmocka_unit_test(network_that_calls_too_often_loses_its_loudest),
      cmocka_unit_test(keys_of_one_network_share_its_limit),
      cmocka_unit_test(met_peers_that_call_too_often_are_cut_off),
      cmocka_unit_test(met_keys_of_one_network_share_its_limit),
      cmocka_unit_test(an_eighth_is_kept_for_trusted_peers),
      cmocka_unit_test(slips_make_way_for_no_lower_tier),
      cmocka_unit_test(a_quarter_is_kept_from_strangers),
      cmocka_unit_test(the_oldest_of_the_largest_crowd_makes_way),
      cmocka_unit_test(newcomer_is_refused_where_nobody_greets),
      cmocka_unit_test(answers_make_way_for_other_networks_alone),
      cmocka_unit_test(trusted_peers_make_way_for_those_with_less),
      cmocka_unit_test(sums_stay_right_under_random_calls),
      cmocka_unit_test(caller_is_refused_without_memory),
  };
  return cmocka_run_group_tests_name("callers", tests, NULL, NULL);
}
