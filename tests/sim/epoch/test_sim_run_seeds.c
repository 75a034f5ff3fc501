/* Seeds of the swarm room `run` that once found something, by their numbers. */
#include "sim/swarm/swarm_run.c"
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_seed.h"

enum { NO_FAULTS = 0 };

/* Once the sums of an epoch's end did not count in the report any more, the others waited for them again. */
static void samples_of_an_epoch_that_ends_still_count(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 4, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_play, 5, 4, 1);
}

/* A peer that was left out of an epoch waited for the state of the one after the next, where the next one leaves time enough. */
static void peer_left_out_loads_the_next_epoch(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 73, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_play, 92, 4, 1);
}

static void under_all_faults_nobody_is_lost_for_good(void **unused) {
  (void)unused;
  plays_well(swarm_run_play, 1, 6, 4);
  plays_well(swarm_run_play, 3, 6, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_of_an_epoch_that_ends_still_count),
      cmocka_unit_test(peer_left_out_loads_the_next_epoch),
      cmocka_unit_test(under_all_faults_nobody_is_lost_for_good),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
