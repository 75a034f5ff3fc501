/* Seeds of the swarm room `round` (8 nodes, all faults) that once found something, by their numbers. */
#include "sim/swarm/swarm_round.c"

#include "sim/swarm/swarm_seed.h"

static void members_that_died_after_their_report_are_not_unreachable(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 78, 8, 1.5);
  plays_well(swarm_round_play, 242, 8, 1.5);
  plays_well(swarm_round_play, 361, 8, 1.5);
}

static void member_that_stopped_for_a_new_view_is_not_doubted(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 1164, 8, 1.5);
  plays_well(swarm_round_play, 2249, 8, 1.5);
  plays_well(swarm_round_play, 2607, 8, 1.5);
  plays_well(swarm_round_play, 3609, 8, 1.5);
}

static void new_coordinator_learns_the_promises_made_to_the_last_one(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 1131, 8, 1.5);
  plays_well(swarm_round_play, 1420, 8, 1.5);
  plays_well(swarm_round_play, 1668, 8, 1.5);
}

static void member_with_refused_values_may_forward_an_average(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 1054, 8, 1.5);
  plays_well(swarm_round_play, 1606, 8, 1.5);
}

static void member_that_never_began_the_round_is_waited_for_less(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 10999, 8, 1.5);
}

static void late_member_has_its_time_at_a_new_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 40059, 8, 1.5);
  plays_well(swarm_round_play, 88214, 8, 1.5);
}

static void member_that_stopped_for_a_dead_coordinator_is_not_doubted(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 56870, 8, 1.5);
}

static void owner_that_never_reported_is_missed_sooner(void **unused) {
  (void)unused;
  plays_well(swarm_round_play, 58168, 8, 1.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_that_died_after_their_report_are_not_unreachable),
      cmocka_unit_test(member_that_stopped_for_a_new_view_is_not_doubted),
      cmocka_unit_test(new_coordinator_learns_the_promises_made_to_the_last_one),
      cmocka_unit_test(member_that_never_began_the_round_is_waited_for_less),
      cmocka_unit_test(member_with_refused_values_may_forward_an_average),
      cmocka_unit_test(late_member_has_its_time_at_a_new_coordinator),
      cmocka_unit_test(member_that_stopped_for_a_dead_coordinator_is_not_doubted),
      cmocka_unit_test(owner_that_never_reported_is_missed_sooner),
  };
  return cmocka_run_group_tests_name("seeds of rounds", tests, NULL, NULL);
}
