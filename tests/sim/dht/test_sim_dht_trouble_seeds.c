/* Seeds of the swarm room `dht-trouble` (24 nodes, 3 minutes, all faults) that once found something, by their numbers. */
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_dht.c"

#include "sim/swarm/swarm_seed.h"

/* What was begun sooner (5), and what is still under way while it is said again (42). */
static void what_an_owner_says_again_outdoes_nothing_that_its_program_has_said_since(void **unused) {
  (void)unused;
  plays_well(swarm_dht_play, 5, 24, 3);
  plays_well(swarm_dht_play, 42, 24, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_an_owner_says_again_outdoes_nothing_that_its_program_has_said_since),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
