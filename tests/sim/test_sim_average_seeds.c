/* Seeds of the swarm room `average` (12 nodes, 6 epochs, all faults) that once found something, by their numbers. */
#include "sim/swarm_trouble.c"

#include "sim/swarm_average.c"
#include "sim/swarm_liar.c"

#include "sim/swarm_seed.h"

static const double six_epochs = 6 * (double)SWARM_EPOCH_US / 60e6;

static void a_silent_coordinator_is_missed_by_those_who_are_done_and_they_stay_while_others_need_them(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 6, 12, six_epochs);
  plays_well(swarm_average_play, 30, 12, six_epochs);
  plays_well(swarm_average_play, 49, 12, six_epochs);
}

static void who_was_silent_may_yet_coordinate(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1057, 12, six_epochs);
}

static void no_try_is_begun_with_less_time_than_its_round_takes(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 10013, 12, six_epochs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_coordinator_is_missed_by_those_who_are_done_and_they_stay_while_others_need_them),
      cmocka_unit_test(who_was_silent_may_yet_coordinate),
      cmocka_unit_test(no_try_is_begun_with_less_time_than_its_round_takes),
  };
  return cmocka_run_group_tests_name("seeds of averaging", tests, NULL, NULL);
}
