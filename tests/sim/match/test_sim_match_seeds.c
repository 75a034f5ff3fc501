/* Seeds of the swarm room `match` (16 nodes, 6 minutes, all faults) that once found something, by their numbers. */
#include "sim/swarm/swarm_match.c"
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_seed.h"

static void lost_peer_that_reports_again_is_expected_by_seeds(void **unused) {
  (void)unused;
  plays_well(swarm_match_play, 5105, 16, 6);
  plays_well(swarm_match_play, 5206, 16, 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lost_peer_that_reports_again_is_expected_by_seeds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
