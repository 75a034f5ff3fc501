/* Seeds of the swarm room `dht-ground` that once found something, by their numbers. */
#include "sim/swarm/swarm_dht_liars.c"

#include "sim/swarm/swarm_seed.h"

/* The five nearest stood as if by chance. The number of nodes behind them showed the crowd (seed 14). A node inside the crowd
 * estimated the whole swarm as dense as the crowd (seed 20). */
static void crowd_is_seen_by_its_breadth_and_from_inside(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 14, 100, 1);
  plays_well(swarm_dht_ground_play, 20, 100, 1);
}

/* The storing node stood beside the crowd, and had looked at the other parts of the space when the swarm had only begun: all that
 * told how many nodes there are was the crowd, seen twice. */
static void crowd_counts_as_one_sample_of_the_whole_space(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 123, 100, 1);
}

/* The crowd filled the buckets of the nodes around it. They then knew different honest nodes beside it: store and get searched the
 * same region, and had no node in common. */
static void crowd_does_not_hide_the_nodes_beside_it(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 22, 100, 1);
  plays_well(swarm_dht_ground_play, 59, 100, 1);
  plays_well(swarm_dht_ground_play, 16, 200, 1);
  plays_well(swarm_dht_ground_play, 17, 200, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(crowd_is_seen_by_its_breadth_and_from_inside),
      cmocka_unit_test(crowd_counts_as_one_sample_of_the_whole_space),
      cmocka_unit_test(crowd_does_not_hide_the_nodes_beside_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
