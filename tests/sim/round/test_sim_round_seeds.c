/* Seeds of the swarm room `round` (8 nodes, all faults) that once found something, by their numbers. */
#include "sim/swarm/swarm_round.c"

#include "sim/swarm/swarm_seed.h"

static void members_who_died_after_their_report_are_not_taken_for_unreachable(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 78, 8, 1.5);
  plays_well(swarm_round_play, 242, 8, 1.5);
  plays_well(swarm_round_play, 361, 8, 1.5);
}

static void who_stopped_for_a_new_view_is_not_doubted(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 1164, 8, 1.5);
  plays_well(swarm_round_play, 2249, 8, 1.5);
  plays_well(swarm_round_play, 2607, 8, 1.5);
  plays_well(swarm_round_play, 3609, 8, 1.5);
}

static void a_new_coordinator_learns_what_was_promised_to_the_last_one(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 1131, 8, 1.5);
  plays_well(swarm_round_play, 1420, 8, 1.5);
  plays_well(swarm_round_play, 1668, 8, 1.5);
}

static void whose_values_are_refused_may_still_forward_an_average(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 1054, 8, 1.5);
  plays_well(swarm_round_play, 1606, 8, 1.5);
}

static void who_knows_nothing_of_the_round_is_not_waited_for_as_long(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 10999, 8, 1.5);
}

static void who_comes_late_to_a_new_coordinator_has_its_time(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 40059, 8, 1.5);
  plays_well(swarm_round_play, 88214, 8, 1.5);
}

static void who_stopped_for_a_coordinator_that_died_is_not_doubted_by_the_next(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 56870, 8, 1.5);
}

static void an_owner_that_never_said_that_it_is_there_is_missed_sooner(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 58168, 8, 1.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_who_died_after_their_report_are_not_taken_for_unreachable),
      cmocka_unit_test(who_stopped_for_a_new_view_is_not_doubted),
      cmocka_unit_test(a_new_coordinator_learns_what_was_promised_to_the_last_one),
      cmocka_unit_test(who_knows_nothing_of_the_round_is_not_waited_for_as_long),
      cmocka_unit_test(whose_values_are_refused_may_still_forward_an_average),
      cmocka_unit_test(who_comes_late_to_a_new_coordinator_has_its_time),
      cmocka_unit_test(who_stopped_for_a_coordinator_that_died_is_not_doubted_by_the_next),
      cmocka_unit_test(an_owner_that_never_said_that_it_is_there_is_missed_sooner),
  };
  return cmocka_run_group_tests_name("seeds of rounds", tests, NULL, NULL);
}
