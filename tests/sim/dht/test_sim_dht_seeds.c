/* Seeds of the swarm room `dht-ground` that once found something, by their numbers. */
#include "sim/swarm/swarm_dht_liars.c"

#include "sim/swarm/swarm_seed.h"

/* The five nearest stood as if by chance; what showed the crowd was how many stood behind them (14), and who stood in it himself
 * thought the whole swarm as dense (20). */
static void a_crowd_is_seen_by_its_breadth_and_by_those_who_stand_in_it(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 14, 100, 1);
  plays_well(swarm_dht_ground_play, 20, 100, 1);
}

/* Who stored stood beside the crowd, and had looked at the other parts of the space when the swarm had only begun: all that told
 * how many nodes there are was the crowd, seen twice. */
static void a_crowd_is_one_word_among_those_of_the_whole_space(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 123, 100, 1);
}

/* The crowd filled the buckets of those around it, who then knew different honest nodes beside it: who stored and who got searched
 * the same region and met nobody in common. */
static void a_crowd_does_not_hide_those_who_stand_beside_it(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 22, 100, 1);
  plays_well(swarm_dht_ground_play, 59, 100, 1);
  plays_well(swarm_dht_ground_play, 16, 200, 1);
  plays_well(swarm_dht_ground_play, 17, 200, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_crowd_is_seen_by_its_breadth_and_by_those_who_stand_in_it),
      cmocka_unit_test(a_crowd_is_one_word_among_those_of_the_whole_space),
      cmocka_unit_test(a_crowd_does_not_hide_those_who_stand_beside_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
