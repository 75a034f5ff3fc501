/* Seeds of the swarm room `dht-trouble` (24 nodes, 3 minutes, all faults) that once found something, by their numbers. */
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_dht.c"

#include "sim/swarm/swarm_seed.h"

/* The later store began sooner (seed 5), or is still under way while the record is republished (seed 42). */
static void republished_record_replaces_no_later_record_of_its_owner(void **unused) {
  (void)unused;
  plays_well(swarm_dht_play, 5, 24, 3);
  plays_well(swarm_dht_play, 42, 24, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(republished_record_replaces_no_later_record_of_its_owner),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
