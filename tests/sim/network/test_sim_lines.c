/* How long does a round take over lines of a given rate and delay? The cost of the protocol itself, without TCP's part. */
#include "lib/scene.h"

#include "core/util/flow.h"

#include <stdio.h>
#include <string.h>

enum { DELAY_US = 25000, MBIT = 125000 /* bytes per second */ };
#define RTT_S (2e-6 * DELAY_US)

/* No jitter, hardly any time for jobs: what is left is the line's, and round trips. */
static scene_setup lines_of(size_t n, uint64_t values, uint64_t rate) {
  return (scene_setup){.n = n,
                       .n_values = values,
                       .chunk_values = hv_run_fit(values, 1 << 17),
                       .seed = 1,
                       .in_place = 1,
                       .quiet = 1,
                       .stall_ms = 10000,
                       .window = 4 << 20, /* as net/transport/streams has it */
                       .job_us = 200,
                       .link = {.delay_us = DELAY_US},
                       .line = rate};
}

/* From the moment when all begin to the last one's end. */
static double round_s(scene *s) {
  uint64_t began = hv_sim_now(s->sim), last = began;
  for (size_t i = 0; i < s->n; i++)
    scene_begin(s, i);
  scene_run(s, 100);
  for (size_t i = 0; i < s->n; i++) {
    assert_int_equal(s->members[i].done, 1);
    assert_int_equal(s->members[i].status, HV_OK);
    last = s->members[i].done_us > last ? s->members[i].done_us : last;
  }
  return (double)(last - began) / 1e6;
}

/* The same once more, over the connections that stand. */
static double next_round_s(scene *s) {
  for (size_t i = 0; i < s->n; i++) {
    scene_member *m = &s->members[i];
    hv_allreduce_free(m->allreduce);
    m->round.id[2]++;
    m->done = 0;
  }
  return round_s(s);
}

/* The bytes on a link each way, when everybody owns as much. */
static double transfer_s(const scene_setup *how) {
  return (double)how->n_values * 4 * 2 * (double)(how->n - 1) / (double)how->n / (double)how->line;
}

static void lines_are_busy_both_ways_from_the_first_byte_to_the_last(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = lines_of(4, 4000000, 100 * MBIT);
  scene_open(&s, &how);
  round_s(&s);
  double took = next_round_s(&s);
  printf("4 x 16 MB, 100 Mbit/s, 50 ms: %.3f s, of them %.3f on the line\n", took, transfer_s(&how));
  assert_true(took < transfer_s(&how) + 2 * RTT_S);
  assert_true(transfer_s(&how) / took > 0.95);
  scene_close(&s);
}

/* The next round is given the speed that this one saw. */
static void paced_rounds_find_the_line_and_cost_next_to_nothing(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = lines_of(4, 8000000, 100 * MBIT);
  hv_flow_past past[4] = {{0}};
  scene_open(&s, &how);
  round_s(&s);
  double took = 0;
  for (int round = 0; round < 6; round++) {
    for (size_t i = 0; i < how.n; i++) {
      hv_flow_learn(&past[i], hv_allreduce_speed(s.members[i].allreduce));
      s.members[i].round.speed = round ? past[i].speed : (past[i].speed = how.line / 2); /* far too low at first */
    }
    took = next_round_s(&s);
    printf("4 x 32 MB, paced to %.2f MB/s: %.3f s, of them %.3f on the line\n", (double)past[0].speed / 1e6, took,
           transfer_s(&how));
    if (round == 0) /* it is held to that */
      assert_true(took > 1.9 * transfer_s(&how));
  }
  assert_in_range(past[0].speed, how.line * 0.97, how.line * 1.3);
  assert_true(took < 1.1 * transfer_s(&how));
  scene_close(&s);
}

/* Two members, of whose first small round a fifth of all packets is lost, and nothing after that. The next round's time. */
static double after_losses_s(uint64_t seed) {
  scene s;
  scene_setup how = lines_of(2, 512, 0);
  hv_sim_link clean = how.link;
  how.seed = seed;
  how.chunk_values = 64;
  how.link = (hv_sim_link){.delay_us = 3 * DELAY_US, .jitter_us = 20000, .loss = 0.2};
  scene_open(&s, &how);
  round_s(&s);
  for (size_t i = 0; i < how.n; i++) {
    hv_flow_past past = {0};
    hv_flow_learn(&past, hv_allreduce_speed(s.members[i].allreduce));
    s.members[i].round.speed = past.speed;
    hv_sim_set_link(s.sim, i, !i, &clean);
  }
  double took = next_round_s(&s);
  scene_close(&s);
  return took;
}

/* One lost packet is most of what a small round takes. That says nothing of lines: the next one is not held to such a speed. */
static void small_round_with_packet_loss_does_not_delay_the_next(void **unused) {
  (void)unused;
  double most = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    double took = after_losses_s(seed);
    most = took > most ? took : most;
  }
  printf("2 x 2 KB, 50 ms, after a round that lost packets: %.3f s\n", most);
  assert_true(most < 3 * RTT_S);
}

/* An owner's messages lie in its queues for longer than anybody is waited for: its streams stay until it is there. */
static void slow_links_deliver_the_last_averages_in_the_first_view(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = lines_of(4, 2000000, 4 * MBIT);
  scene_open(&s, &how);
  double took = round_s(&s);
  printf("4 x 8 MB, 4 Mbit/s, 50 ms: %.1f s, of them %.1f on the line\n", took, transfer_s(&how));
  assert_true(took < 1.1 * transfer_s(&how));
  for (size_t i = 0; i < how.n; i++)
    assert_int_equal(hv_allreduce_view(s.members[i].allreduce), 0);
  scene_close(&s);
}

static void a_small_run_costs_one_round_trip_and_its_bytes(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = lines_of(8, 250000, 1000 * MBIT);
  scene_open(&s, &how);
  double cold = round_s(&s), warm = next_round_s(&s);
  printf("8 x 1 MB, 1 Gbit/s, 50 ms: %.2f round trips beyond the transfer, %.2f while connecting\n",
         (warm - transfer_s(&how)) / RTT_S, (cold - transfer_s(&how)) / RTT_S);
  assert_true(warm < transfer_s(&how) + 1.25 * RTT_S);
  assert_true(cold < transfer_s(&how) + 2.25 * RTT_S); /* one more for the connections */
  scene_close(&s);
}

static void slow_member_without_spans_costs_its_own_bytes_alone(void **unused) {
  (void)unused;
  double took[2];
  scene_setup how = lines_of(8, 500000, 100 * MBIT);
  how.slow = how.line / 10;
  how.chunk_values = 8192;
  for (int told = 0; told < 2; told++) {
    scene s;
    for (size_t i = 0; i < how.n && told; i++)
      how.told[i] = i == how.n - 1 ? how.slow : how.line;
    scene_open(&s, &how);
    took[told] = round_s(&s);
    scene_close(&s);
  }
  double alone = 2e6 / (double)how.slow;
  printf("one of 8 has a tenth: %.2f s with even spans, %.2f s with spans by rate, %.2f for its own values\n", took[0], took[1],
         alone);
  assert_true(took[0] > 1.6 * alone); /* 1.75: its values, and seven eighths of the averages */
  assert_true(took[1] < 1.2 * alone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_are_busy_both_ways_from_the_first_byte_to_the_last),
      cmocka_unit_test(paced_rounds_find_the_line_and_cost_next_to_nothing),
      cmocka_unit_test(small_round_with_packet_loss_does_not_delay_the_next),
      cmocka_unit_test(slow_links_deliver_the_last_averages_in_the_first_view),
      cmocka_unit_test(a_small_run_costs_one_round_trip_and_its_bytes),
      cmocka_unit_test(slow_member_without_spans_costs_its_own_bytes_alone),
  };
  return cmocka_run_group_tests_name("rounds over lines in the sim", tests, NULL, NULL);
}
