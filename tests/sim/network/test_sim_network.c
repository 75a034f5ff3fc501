/* What does the simulated network do to messages? Each setting, measured against what it promises. */
#include "lib/check.h"

#include "core/node.h"
#include "lib/mixer.h"

#include <string.h>

enum { NODES_MAX = 8 };

typedef struct run {
  hv_mem mem;
  hv_sim *sim;
  mixer_seat seats[NODES_MAX];
  hv_target peers[NODES_MAX];
  size_t n;
} run;

/* n mixers that only call, every 100 ms, on a network without jitter. */
static run *open_run(size_t n, hv_sim_link link, int calls_only) {
  run *r = test_calloc(1, sizeof *r);
  hv_sim_config config = hv_sim_defaults(5);
  config.link = link;
  mixer_narrate(&config);
  hv_mem_init(&r->mem, NULL, HV_MEM_UNLIMITED);
  r->n = n;
  for (size_t i = 0; i < n; i++)
    r->seats[i] = (mixer_seat){.every_ms = 100, .timeout_ms = 1000, .piece = 100000, .calls_only = calls_only};
  r->sim = hv_sim_new(&r->mem, &config);
  assert_int_equal(mixer_add_all(r->sim, r->seats, r->peers, n), HV_OK);
  return r;
}

static void close_run(run *r) {
  for (size_t i = 0; i < r->n; i++)
    assert_int_equal(r->seats[i].wrong, 0);
  assert_int_equal(hv_sim_free(r->sim), 0);
  assert_int_equal(atomic_load(&r->mem.blocks), 0);
  test_free(r);
}

static uint64_t until(run *r, double seconds) {
  hv_sim_run_until(r->sim, (uint64_t)(seconds * 1e6));
  return hv_sim_count(r->sim).events;
}

/* ---- one call, timed exactly ---- */

typedef struct timed {
  hv_command command;
  hv_call call;
  hv_env *env;
  uint64_t start_us, end_us;
  hv_status status;
  uint8_t *bytes;
  size_t size;
} timed;

static void timed_done(hv_call *call, const hv_event *event) {
  timed *t = call->owner;
  t->end_us = event->now_us;
  t->status = event->status;
}

static void timed_start(hv_command *command, void *core) {
  timed *t = (timed *)command;
  t->env = *(hv_env **)core; /* a mixer begins with its env */
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {hv_span_of(t->bytes, t->size)}};
  t->start_us = t->env->now_us(t->env);
  t->call.done = timed_done;
  t->call.owner = t;
  if (t->env->call(t->env, &t->call, &msg) != HV_OK)
    t->status = HV_INTERNAL;
}

/* How long a call takes, microseconds. */
static uint64_t time_a_call(run *r, size_t from, size_t to, size_t size, hv_status expected) {
  timed t = {.command = {.run = timed_start}, .call = {.to = r->peers[to], .timeout_ms = 30000}, .size = size};
  t.bytes = test_calloc(1, size + 1);
  assert_int_equal(hv_sim_command(r->sim, from, &t.command), HV_OK);
  while (!t.end_us && hv_sim_step(r->sim)) {
  }
  assert_int_equal(t.status, expected);
  test_free(t.bytes);
  return t.end_us - t.start_us;
}

static run *quiet_run(size_t n, hv_sim_link link) {
  run *r = open_run(n, link, 1);
  hv_sim_run_until(r->sim, 1);
  for (size_t i = 0; i < n; i++)
    r->seats[i].every_ms = 3600000;
  hv_sim_run_until(r->sim, 2000000);
  return r;
}

static void a_call_takes_its_delays_and_at_first_a_handshake(void **state) {
  (void)state;
  run *r = quiet_run(3, (hv_sim_link){.delay_us = 10000});
  hv_sim_link slow = {.delay_us = 30000};
  /* 0 and 2 have not necessarily met; 0 -> 1 takes 10 ms, 1 -> 0 takes 30 ms */
  assert_int_equal(hv_sim_set_link(r->sim, 1, 0, &slow), HV_OK);
  hv_sim_kill(r->sim, 1);
  assert_int_equal(hv_sim_restart(r->sim, 1), HV_OK);
  r->seats[1].every_ms = 3600000;
  hv_sim_run_until(r->sim, 2500000);
  assert_int_equal(time_a_call(r, 0, 1, 10, HV_OK), 80000);
  assert_int_equal(time_a_call(r, 0, 1, 10, HV_OK), 40000);
  close_run(r);
}

static void bytes_take_time_at_the_rate_of_the_link_and_of_both_ends(void **state) {
  (void)state;
  run *r = quiet_run(2, (hv_sim_link){.delay_us = 1000, .rate = 1000000});
  time_a_call(r, 0, 1, 10, HV_OK);
  uint64_t us = time_a_call(r, 0, 1, 500000, HV_OK); /* half a second each way */
  assert_in_range(us, 1000000, 1010000);
  close_run(r);
}

/* A parcel of 5 MB over a link of 1 MB/s, there and nothing but a receipt back. */
typedef struct transfer {
  hv_command command;
  hv_parcel_send send;
  hv_target to;
  uint64_t start_us, end_us;
  hv_status status;
} transfer;

static void transfer_over(hv_parcel_send *send, hv_status status, const char *text) {
  transfer *t = send->owner;
  (void)text;
  t->status = status;
  t->end_us = send->env->now_us(send->env);
}

static void transfer_start(hv_command *command, void *core) {
  transfer *t = (transfer *)command;
  hv_env *env = hv_node_env(core);
  t->start_us = env->now_us(env);
  t->status = hv_parcel_send_start(&t->send, env, &t->to);
}

static hv_status make_node(hv_env *env, void *arg, hv_core *out) {
  hv_node *node = NULL;
  hv_status status = hv_node_new(env, &(hv_node_config){.me = *(hv_peer_id *)arg, .hello_every_ms = 3600000}, &node);
  *out = (hv_core){node, hv_node_step};
  return status;
}

static void free_node(void *node) {
  hv_node_free(node);
}

static uint64_t time_a_transfer(hv_sim_link link, size_t window, size_t size) {
  hv_mem mem;
  hv_peer_id ids[2];
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(3);
  config.link = link;
  config.window = window;
  mixer_narrate(&config);
  hv_sim *sim = hv_sim_new(&mem, &config);
  for (size_t i = 0; i < 2; i++) {
    ids[i] = hv_sim_target(sim, i).id;
    assert_int_equal(hv_sim_add(sim, &(hv_sim_node_config){.make = make_node, .free = free_node, .arg = &ids[i]}, NULL), HV_OK);
  }
  uint8_t *bytes = test_calloc(1, size);
  transfer t = {.command = {.run = transfer_start}, .to = hv_sim_target(sim, 1), .status = HV_INTERNAL};
  t.send = (hv_parcel_send){.done = transfer_over, .owner = &t, .timeout_ms = 600000};
  t.send.payload = hv_payload_borrow(&mem, bytes, size, NULL, NULL);
  assert_int_equal(hv_sim_command(sim, 0, &t.command), HV_OK);
  hv_sim_run_until(sim, 600000000);
  assert_int_equal(t.status, HV_OK);
  assert_int_equal(hv_sim_free(sim), 0);
  hv_payload_release(t.send.payload);
  assert_int_equal(atomic_load(&mem.blocks), 0);
  test_free(bytes);
  return t.end_us - t.start_us;
}

static void a_transfer_takes_its_bytes_over_the_rate(void **state) {
  (void)state;
  assert_in_range(time_a_transfer((hv_sim_link){.delay_us = 10000, .rate = 1000000}, 8 << 20, 5000000), 5000000, 5100000);
  assert_in_range(time_a_transfer((hv_sim_link){.delay_us = 10000, .rate = 10000000}, 8 << 20, 5000000), 500000, 600000);
}

static void a_small_window_over_a_long_way_holds_a_transfer_back(void **state) {
  (void)state;
  /* 16 pieces of 1 MiB, one at a time on the way, each there and its credit back: 400 ms */
  uint64_t us = time_a_transfer((hv_sim_link){.delay_us = 200000}, 1 << 20, 16 << 20);
  assert_in_range(us, 16 * 400000, 16 * 400000 + 1400000);
  assert_true(time_a_transfer((hv_sim_link){.delay_us = 200000}, 32 << 20, 16 << 20) < 1700000);
}

/* Many to one: the way into the one is shared. */
static void narrow_downlink_is_shared_by_all_senders(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(1);
  hv_sim *sim = hv_sim_new(&mem, &config);
  mixer_seat seats[5];
  hv_target peers[5];
  for (size_t i = 0; i < 5; i++) {
    peers[i] = hv_sim_target(sim, i);
    seats[i] = (mixer_seat){.peers = peers, .n_peers = 1, .me = i, .every_ms = 3600000, .timeout_ms = 1000, .calls_only = 1};
    hv_sim_node_config seat = {.make = mixer_make, .free = mixer_free, .arg = &seats[i], .down_rate = i ? 0 : 1000000};
    assert_int_equal(hv_sim_add(sim, &seat, NULL), HV_OK);
  }
  timed t[4];
  hv_sim_run_until(sim, 1000);
  for (size_t i = 0; i < 4; i++) {
    t[i] = (timed){.command = {.run = timed_start}, .call = {.to = peers[0], .timeout_ms = 30000}, .size = 250000};
    t[i].bytes = test_calloc(1, t[i].size);
    assert_int_equal(hv_sim_command(sim, i + 1, &t[i].command), HV_OK);
  }
  hv_sim_run_until(sim, 20000000);
  uint64_t last = 0;
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(t[i].status, HV_OK);
    if (t[i].end_us - t[i].start_us > last)
      last = t[i].end_us - t[i].start_us;
    test_free(t[i].bytes);
  }
  assert_in_range(last, 1000000, 1150000);
  assert_int_equal(hv_sim_free(sim), 0);
}

/* ---- faults of messages ---- */

static double share(uint64_t part, uint64_t whole) {
  return (double)part / (double)whole;
}

static void lost_messages_are_timeouts(void **state) {
  (void)state;
  run *r = open_run(4, (hv_sim_link){.delay_us = 5000, .loss = 0.1}, 1);
  until(r, 200);
  double lost = share(r->seats[0].seen.timeouts, r->seats[0].seen.answered + r->seats[0].seen.timeouts);
  assert_true(lost > 0.15 && lost < 0.23); /* 1 - 0.9^2 = 0.19 */
  assert_int_equal(r->seats[0].seen.failed, 0);
  close_run(r);
}

static void doubled_messages_reach_the_core_twice_and_answer_once(void **state) {
  (void)state;
  run *r = open_run(2, (hv_sim_link){.delay_us = 5000, .duplicate = 0.2}, 1);
  until(r, 200);
  double requests = share(r->seats[1].seen.requests, r->seats[0].seen.asked);
  assert_true(requests > 1.15 && requests < 1.25);
  assert_int_equal(r->seats[0].seen.asked - r->seats[0].seen.answered <= 1, 1);
  close_run(r);
}

typedef struct overtaking {
  uint64_t arrivals, swaps;
  uint32_t last;
} overtaking;

static void note_arrival(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size) {
  overtaking *o = arg;
  (void)from, (void)to, (void)bytes;
  o->swaps += size < o->last;
  o->last = (uint32_t)size;
  o->arrivals++;
}

typedef struct volley {
  hv_command command;
  hv_call calls[20];
  hv_target to;
} volley;
static void nothing(hv_call *call, const hv_event *event) {
  (void)call, (void)event;
}
static void fire_volley(hv_command *command, void *core) {
  volley *v = (volley *)command;
  hv_env *env = *(hv_env **)core;
  static const uint8_t zeros[20];
  for (size_t i = 0; i < 20; i++) { /* longer and longer */
    v->calls[i] = (hv_call){.done = nothing, .to = v->to, .timeout_ms = 5000};
    hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {hv_span_of(zeros, i + 1)}};
    env->call(env, &v->calls[i], &msg);
  }
}

static uint64_t swaps_with(double reorder) {
  run *r = quiet_run(2, (hv_sim_link){.delay_us = 5000, .reorder = reorder});
  overtaking o = {0};
  volley v = {.command = {.run = fire_volley}, .to = r->peers[1]};
  hv_sim_set_link(r->sim, 1, 0, &(hv_sim_link){.loss = 1}); /* only the way there is looked at */
  hv_sim_set_tap(r->sim, note_arrival, &o);
  assert_int_equal(hv_sim_command(r->sim, 0, &v.command), HV_OK);
  hv_sim_run_until(r->sim, 10000000);
  assert_int_equal(o.arrivals, 20);
  close_run(r);
  return o.swaps;
}

static void calls_overtake_each_other_only_when_told_to(void **state) {
  (void)state;
  assert_int_equal(swaps_with(0), 0);
  assert_true(swaps_with(0.3) > 2);
}

static void streams_survive_faults_that_end_calls(void **state) {
  (void)state;
  run *r = open_run(4, (hv_sim_link){.delay_us = 20000, .jitter_us = 40000, .loss = 0.1, .duplicate = 0.1, .reorder = 0.2}, 0);
  until(r, 60);
  uint64_t whole = 0, all = 0;
  for (size_t i = 0; i < 4; i++) {
    whole += r->seats[i].seen.streams_whole;
    all += r->seats[i].seen.streams;
    assert_int_equal(r->seats[i].seen.streams_broken, 0);
  }
  assert_true(all > 300);
  assert_true(whole + 4 * 40 > all); /* but those still under way */
  close_run(r);
}

/* ---- partitions ---- */

static void cut_link_is_silent_until_it_is_restored(void **state) {
  (void)state;
  run *r = open_run(2, (hv_sim_link){.delay_us = 5000}, 1);
  until(r, 5);
  assert_int_equal(r->seats[0].seen.timeouts, 0);
  hv_sim_cut(r->sim, 0, 1, 1); /* one way is enough: answers are cut from the other's questions too */
  until(r, 10);
  uint64_t asked = r->seats[1].seen.requests;
  assert_true(r->seats[0].seen.timeouts > 30);
  assert_true(r->seats[1].seen.timeouts > 30);
  assert_true(r->seats[0].seen.requests > 80); /* 1's questions still arrive */
  until(r, 12);
  assert_int_equal(r->seats[1].seen.requests, asked);
  hv_sim_heal(r->sim);
  uint64_t timeouts = r->seats[0].seen.timeouts;
  until(r, 20);
  assert_true(r->seats[0].seen.timeouts - timeouts < 12);
  assert_int_equal(r->seats[0].seen.failed + r->seats[1].seen.failed + r->seats[0].seen.downs + r->seats[1].seen.downs, 0);
  close_run(r);
}

static void groups_are_apart_until_healed(void **state) {
  (void)state;
  run *r = open_run(6, (hv_sim_link){.delay_us = 5000}, 1);
  for (size_t i = 0; i < 3; i++)
    hv_sim_group(r->sim, i, 1);
  until(r, 60);
  uint64_t answered = r->seats[0].seen.answered, timeouts = r->seats[0].seen.timeouts;
  double reached = share(answered, answered + timeouts);
  assert_true(reached > 0.45 && reached < 0.65); /* three of six, and itself counts as its neighbour */
  hv_sim_heal(r->sim);
  until(r, 62);
  timeouts = r->seats[0].seen.timeouts;
  until(r, 80);
  assert_int_equal(r->seats[0].seen.timeouts, timeouts);
  close_run(r);
}

static void a_stream_waits_out_a_short_cut_and_breaks_in_a_long_one(void **state) {
  (void)state;
  run *r = open_run(2, (hv_sim_link){.delay_us = 5000, .rate = 2 << 20}, 0);
  until(r, 3);
  hv_sim_group(r->sim, 1, 1);
  until(r, 8);
  assert_int_equal(r->seats[0].seen.streams_broken + r->seats[1].seen.streams_broken, 0);
  hv_sim_heal(r->sim);
  until(r, 15);
  assert_int_equal(r->seats[0].seen.streams_broken + r->seats[1].seen.streams_broken, 0);
  assert_true(r->seats[0].seen.streams_whole > 5);
  hv_sim_group(r->sim, 1, 1);
  until(r, 60);
  assert_true(r->seats[0].seen.streams_broken > 0);
  assert_true(r->seats[1].seen.streams_broken > 0);
  assert_int_equal(r->seats[0].seen.downs, 0);
  close_run(r);
}

/* ---- peers that lie ---- */

static void spoil(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size) {
  check_rng *rng = arg;
  (void)from, (void)to;
  if (size && check_random(rng) % 3 == 0)
    for (uint64_t n = 1 + check_random(rng) % 4; n--;)
      bytes[check_random(rng) % size] ^= (uint8_t)(1 << check_random(rng) % 8);
}

static void spoiled_bytes_end_calls_and_nothing_else(void **state) {
  (void)state;
  run *r = open_run(3, (hv_sim_link){.delay_us = 5000}, 1);
  check_rng rng = {3};
  hv_sim_set_tap(r->sim, spoil, &rng);
  until(r, 60);
  assert_true(r->seats[0].seen.failed > 50);
  hv_sim_set_tap(r->sim, NULL, NULL);
  until(r, 62);
  uint64_t failed = r->seats[0].seen.failed;
  until(r, 70);
  assert_int_equal(r->seats[0].seen.failed, failed);
  close_run(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_takes_its_delays_and_at_first_a_handshake),
      cmocka_unit_test(bytes_take_time_at_the_rate_of_the_link_and_of_both_ends),
      cmocka_unit_test(a_transfer_takes_its_bytes_over_the_rate),
      cmocka_unit_test(a_small_window_over_a_long_way_holds_a_transfer_back),
      cmocka_unit_test(narrow_downlink_is_shared_by_all_senders),
      cmocka_unit_test(lost_messages_are_timeouts),
      cmocka_unit_test(doubled_messages_reach_the_core_twice_and_answer_once),
      cmocka_unit_test(calls_overtake_each_other_only_when_told_to),
      cmocka_unit_test(streams_survive_faults_that_end_calls),
      cmocka_unit_test(cut_link_is_silent_until_it_is_restored),
      cmocka_unit_test(groups_are_apart_until_healed),
      cmocka_unit_test(a_stream_waits_out_a_short_cut_and_breaks_in_a_long_one),
      cmocka_unit_test(spoiled_bytes_end_calls_and_nothing_else),
  };
  return cmocka_run_group_tests_name("sim: the network", tests, NULL, NULL);
}
