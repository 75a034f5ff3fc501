/* Scenes of the room `home` that once failed, each with the rule that it needs. */
#include "sim/swarm/swarm_home.c"
#include "sim/swarm/swarm_liar.c"
#include "sim/swarm/swarm_run.c"
#include "sim/swarm/swarm_run_checks.c"
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_seed.h"

enum { NO_FAULTS = 0, SEEDS = 12 };

static home_scene scene;

static void plays_scene(swarm_run *run) {
  swarm_home_plays(run, &scene);
}

static void plays_seeds(const home_scene *s, uint64_t first) {
  scene = *s;
  for (uint64_t seed = first; seed < first + SEEDS; seed++)
    plays_well_under(NO_FAULTS, plays_scene, seed, 12, 1);
}

static home_scene usual(size_t trainers, uint64_t epoch_us, uint64_t load_us) {
  return (home_scene){.trainers = trainers,
                      .epoch_us = epoch_us,
                      .load_us = load_us,
                      .options = {.average_state_every = 1, .delay_state_averaging = 1}};
}

/* A founder ended an epoch as two newcomers had loaded its beginning. They ended it, too, and outvoted the founder: all that it had
 * made by itself was lost. */
static void two_newcomers_do_not_outvote_the_founder(void **unused) {
  (void)unused;
  home_scene s = usual(1, 3000000, 100000);
  s.joiners = 2;
  s.goals = HOME_LOSES_NOTHING;
  plays_seeds(&s, 4);
  s.gap_us = 100000;
  plays_seeds(&s, 4);
  s.epoch_us = 500000;
  plays_seeds(&s, 19);
}

/* The search of one that waits for others ended with nobody, and it stepped by itself. */
static void peer_that_waits_for_others_makes_no_step_alone(void **unused) {
  (void)unused;
  home_scene s = usual(2, 2000000, 0);
  s.company = HV_EPOCH_ALONE_WAITS;
  s.cut = 1;
  s.for_us = 120000000;
  s.goals = HOME_NEVER_ALONE;
  plays_seeds(&s, 1);
}

/* A batch lasted for six times matchmaking_time: the others' search was over before the batch was. */
static void peers_with_long_batches_do_not_step_alone(void **unused) {
  (void)unused;
  home_scene s = usual(2, 96000000, 0);
  s.for_us = 1300000000;
  s.goals = HOME_NEVER_ALONE;
  plays_seeds(&s, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_newcomers_do_not_outvote_the_founder),
      cmocka_unit_test(peers_with_long_batches_do_not_step_alone),
      cmocka_unit_test(peer_that_waits_for_others_makes_no_step_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
