/* Seeds of the swarm room `progress-cost` that once found something, by their numbers. */
#include "sim/swarm/swarm_progress.c"

#include "sim/swarm/swarm_seed.h"

/* Nodes stood so densely around the run's key that each record cost the search of a whole region, every 20 s: 3.9 KB/s each. */
static void records_near_a_crowded_key_cost_no_more_than_elsewhere(void **unused) {
  (void)unused;
  plays_well(swarm_progress_play, 8, 128, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(records_near_a_crowded_key_cost_no_more_than_elsewhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
