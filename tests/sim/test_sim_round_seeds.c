/* Seeds of the swarm room `round` (8 nodes, all faults) that once found something, by their numbers. */
#include "sim/swarm_round.c"

#include <stdio.h>

enum { EVERYTHING = 255 };

void swarm_fail(swarm_run *run, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!run->failure[0])
    vsnprintf(run->failure, sizeof run->failure, format, args);
  va_end(args);
}

void swarm_figure(swarm_run *run, const char *name, double value) {
  (void)run, (void)name, (void)value;
}

void swarm_over(swarm_run *run) {
  size_t left = hv_sim_free(run->sim);
  run->sim = NULL;
  if (left)
    swarm_fail(run, "%zu blocks were left on the accounts of nodes", left);
}

static void plays_well(uint64_t seed, size_t nodes) {
  swarm_options options = {.first_seed = seed, .last_seed = seed, .nodes = nodes, .minutes = 1.5, .faults = EVERYTHING};
  hv_sim_config config = hv_sim_defaults(seed);
  config.link = (hv_sim_link){.delay_us = 25000, .jitter_us = 20000, .loss = 0.02, .duplicate = 0.02, .reorder = 0.05};
  swarm_run run = {.options = &options, .seed = seed, .rng = {seed ^ 0x5eed}, .end_us = 90000000, .calm_us = 60000000};
  hv_mem_init(&run.mem, NULL, HV_MEM_UNLIMITED);
  run.sim = hv_sim_new(&run.mem, &config);
  assert_non_null(run.sim);
  swarm_round_play(&run);
  if (run.failure[0])
    fail_msg("seed %llu of %zu nodes: %s", (unsigned long long)seed, nodes, run.failure);
  assert_int_equal(atomic_load(&run.mem.blocks), 0);
}

static void members_who_died_after_their_report_are_not_taken_for_unreachable(void **unused) {
  (void)unused;
  plays_well(78, 8);
  plays_well(242, 8);
  plays_well(361, 8);
}

static void who_stopped_for_a_new_view_is_not_doubted(void **unused) {
  (void)unused;
  plays_well(1164, 8);
  plays_well(2249, 8);
  plays_well(2607, 8);
  plays_well(3609, 8);
}

static void a_new_coordinator_learns_what_was_promised_to_the_last_one(void **unused) {
  (void)unused;
  plays_well(1131, 8);
  plays_well(1420, 8);
  plays_well(1668, 8);
}

static void whose_values_are_refused_may_still_forward_an_average(void **unused) {
  (void)unused;
  plays_well(1054, 8);
  plays_well(1606, 8);
}

static void who_knows_nothing_of_the_round_is_not_waited_for_as_long(void **unused) {
  (void)unused;
  plays_well(10999, 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_who_died_after_their_report_are_not_taken_for_unreachable),
      cmocka_unit_test(who_stopped_for_a_new_view_is_not_doubted),
      cmocka_unit_test(a_new_coordinator_learns_what_was_promised_to_the_last_one),
      cmocka_unit_test(who_knows_nothing_of_the_round_is_not_waited_for_as_long),
      cmocka_unit_test(whose_values_are_refused_may_still_forward_an_average),
  };
  return cmocka_run_group_tests_name("seeds of rounds", tests, NULL, NULL);
}
