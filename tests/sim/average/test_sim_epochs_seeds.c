/* Seeds of the swarm rooms `epochs` (8 nodes, 6 minutes, all faults) and `chase` that once found something, by their numbers. */
#include "sim/swarm/swarm_epochs.c"
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_seed.h"

static void clients_that_fell_behind_together_catch_up(void **unused) {
  (void)unused;
  plays_well(swarm_epochs_play, 126, 8, 6);
}

static void a_silence_that_others_have_refuted_is_no_loss(void **unused) {
  (void)unused;
  plays_well(swarm_epochs_play, 181, 8, 6);
}

/* Where a state was offered only after it had been averaged with nobody, too, one of the two loaded what was old when it came, for
 * good: the other one, whom nobody waited for, had gone on. */
static void neither_of_two_peers_chases_the_other(void **unused) {
  (void)unused;
  plays_well(swarm_chase_play, 3, 2, 6);
  plays_well(swarm_chase_play, 7, 2, 6);
  plays_well(swarm_chase_play, 24, 3, 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clients_that_fell_behind_together_catch_up),
      cmocka_unit_test(a_silence_that_others_have_refuted_is_no_loss),
      cmocka_unit_test(neither_of_two_peers_chases_the_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
