/* Seeds of the swarm room `dht-ground` (100 nodes) that once found something, by their numbers. */
#include "sim/swarm_dht_liars.c"

#include "sim/swarm_seed.h"

/* The five nearest stood as if by chance; what showed the crowd was how many stood behind them (14), and who stood in it himself
 * thought the whole swarm as dense (20). */
static void a_crowd_is_seen_by_its_breadth_and_by_those_who_stand_in_it(void **unused) {
  (void)unused;
  plays_well(swarm_dht_ground_play, 14, 100, 1);
  plays_well(swarm_dht_ground_play, 20, 100, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_crowd_is_seen_by_its_breadth_and_by_those_who_stand_in_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
