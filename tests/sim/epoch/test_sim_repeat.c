/* Scenes of the room `home` in which a peer repeats the steps of others (rules 11 to 20 of docs/design/log.md). */
#include "sim/swarm/swarm_home.c"
#include "sim/swarm/swarm_liar.c"
#include "sim/swarm/swarm_run.c"
#include "sim/swarm/swarm_run_checks.c"
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_seed.h"

enum { NO_FAULTS = 0, SEEDS = 4 };

static home_scene scene;

static void plays_scene(swarm_run *run) {
  swarm_home_plays(run, &scene);
}

static void plays_seeds(const home_scene *s, uint64_t first) {
  scene = *s;
  for (uint64_t seed = first; seed < first + SEEDS; seed++)
    plays_well_under(NO_FAULTS, plays_scene, seed, 12, 1);
}

static home_scene usual(size_t trainers, uint64_t epoch_us, uint64_t load_us, hv_codec codec) {
  return (home_scene){.trainers = trainers,
                      .epoch_us = epoch_us,
                      .load_us = load_us,
                      .codec = codec,
                      .averaging_us = 2 * load_us + AVERAGING_US,
                      .options = {.average_state_every = 5, .delay_state_averaging = 1}};
}

/* The group of the epoch that it loaded has formed as it comes. It loaded again, and kept step with its own lateness. */
static void joiner_with_a_load_of_two_epochs_comes_in(void **unused) {
  (void)unused;
  home_scene s = usual(3, 6000000, 12000000, HV_CODEC_FLOAT16);
  s.joiners = 1;
  s.goals = HOME_MEETS | HOME_LOSES_NOTHING;
  plays_seeds(&s, 1);
}

static void joiner_with_a_load_of_four_epochs_comes_in(void **unused) {
  (void)unused;
  home_scene s = usual(3, 6000000, 24000000, HV_CODEC_UNIFORM8);
  s.joiners = 1;
  s.goals = HOME_MEETS;
  plays_seeds(&s, 1);
}

/* The others count an epoch before its gradients are averaged. The joiner looked five seconds for an average that was being made,
 * gave it up as lost, and loaded state after state. */
static void joiner_waits_for_an_average_that_is_being_made(void **unused) {
  (void)unused;
  home_scene s = usual(3, 20000000, 48000000, HV_CODEC_UNIFORM8);
  s.options.delay_grad_averaging = s.options.delay_optimizer_step = s.options.offload = 1;
  s.joiners = 1;
  s.goals = HOME_MEETS;
  plays_seeds(&s, 1);
}

/* It makes no step by itself, as it waits and did not begin the run: its replica is what the others' was. */
static home_scene one_is_away_for_five_epochs(void) {
  home_scene s = usual(4, 4000000, 2000000, HV_CODEC_UNIFORM8);
  s.hubs = 1;
  s.company = HV_EPOCH_ALONE_WAITS;
  s.log_memory = 1 << 20;
  s.for_us = 60000000;
  s.goals = HOME_BACK | HOME_REPEATS;
  return s;
}

static void peer_that_was_cut_off_repeats_five_steps(void **unused) {
  (void)unused;
  home_scene s = one_is_away_for_five_epochs();
  s.apart_us = 20000000;
  plays_seeds(&s, 1);
}

static void peer_that_stood_still_repeats_five_steps(void **unused) {
  (void)unused;
  home_scene s = one_is_away_for_five_epochs();
  s.stands_us = 20000000;
  plays_seeds(&s, 1);
}

/* Local steps: the outer steps that it missed are made again, and what its own batches did stays and counts. */
static void late_anchor_is_repeated_and_no_sample_is_lost(void **unused) {
  (void)unused;
  home_scene s = one_is_away_for_five_epochs();
  s.options = (hv_epoch_options){.use_local_updates = 1, .outer = 1, .average_state_every = 1};
  s.goals |= HOME_KEEPS_OWN | HOME_LOSES_NOTHING;
  s.stands_us = 20000000;
  plays_seeds(&s, 1);
  s.apart_us = 20000000;
  s.stands_us = 0;
  plays_seeds(&s, 1);
}

/* Two of five make anchors of their own. They load those of the others, and what they did since their last one stays and counts. */
static void smaller_part_of_a_swarm_keeps_its_last_progress(void **unused) {
  (void)unused;
  home_scene s = usual(5, 4000000, 500000, HV_CODEC_NONE);
  s.options = (hv_epoch_options){.use_local_updates = 1, .outer = 1, .average_state_every = 1};
  s.parted = 1;
  s.apart_us = 60000000;
  s.for_us = 60000000;
  s.goals = HOME_BACK | HOME_KEEPS_OWN | HOME_LOSES_NOTHING;
  plays_seeds(&s, 1);
}

static void joiner_repeats_the_outer_steps_since_its_load(void **unused) {
  (void)unused;
  home_scene s = usual(3, 6000000, 24000000, HV_CODEC_UNIFORM8);
  s.options = (hv_epoch_options){.use_local_updates = 1, .outer = 1, .average_state_every = 1};
  s.joiners = 1;
  s.goals = HOME_MEETS | HOME_LOSES_NOTHING;
  plays_seeds(&s, 1);
}

/* Twenty averages are more bytes than a state, which it loads in their place. */
static void peer_that_was_away_for_long_loads_the_state(void **unused) {
  (void)unused;
  home_scene s = one_is_away_for_five_epochs();
  s.stands_us = 80000000;
  s.goals = HOME_BACK;
  plays_seeds(&s, 1);
}

/* The log has one average, and four are missing. */
static void peer_loads_the_state_where_the_log_does_not_reach(void **unused) {
  (void)unused;
  home_scene s = one_is_away_for_five_epochs();
  s.log_memory = 40000;
  s.stands_us = 20000000;
  s.goals = HOME_BACK;
  plays_seeds(&s, 1);
}

/* The average of the state that it missed has changed the others' replicas, so the steps before and after it are no chain. */
static void state_that_a_liar_has_changed_is_loaded(void **unused) {
  (void)unused;
  home_scene s = one_is_away_for_five_epochs();
  s.liar = HOME_AVERAGES;
  s.stands_us = 20000000;
  s.goals = HOME_BACK;
  plays_seeds(&s, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joiner_with_a_load_of_two_epochs_comes_in),
      cmocka_unit_test(joiner_with_a_load_of_four_epochs_comes_in),
      cmocka_unit_test(joiner_waits_for_an_average_that_is_being_made),
      cmocka_unit_test(peer_that_was_cut_off_repeats_five_steps),
      cmocka_unit_test(peer_that_stood_still_repeats_five_steps),
      cmocka_unit_test(late_anchor_is_repeated_and_no_sample_is_lost),
      cmocka_unit_test(smaller_part_of_a_swarm_keeps_its_last_progress),
      cmocka_unit_test(joiner_repeats_the_outer_steps_since_its_load),
      cmocka_unit_test(peer_that_was_away_for_long_loads_the_state),
      cmocka_unit_test(peer_loads_the_state_where_the_log_does_not_reach),
      cmocka_unit_test(state_that_a_liar_has_changed_is_loaded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
