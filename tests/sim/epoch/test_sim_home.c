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

/* A client waited again and again for an open peer whose batch outlasts the search: in 205 of 310 s it made no batch. */
static void client_waits_once_for_an_open_peer_with_long_batches(void **unused) {
  (void)unused;
  home_scene s = usual(2, 4000000, 0);
  s.clients = s.hubs = 1;
  s.first_batch_us = 30000000;
  s.for_us = 310000000;
  s.goals = HOME_TRAINS;
  plays_seeds(&s, 1);
}

/* One makes a batch in five epochs; then one validates for as long, now and then. */
static void two_step_together_while_a_third_one_is_busy(void **unused) {
  (void)unused;
  home_scene s = usual(3, 4000000, 300000);
  s.for_us = 300000000;
  s.goals = HOME_NEVER_ALONE | HOME_TRAINS;
  s.first_batch_us = 20000000;
  plays_seeds(&s, 1);
  s.first_batch_us = 0;
  s.validates_us = 20000000;
  s.goals |= HOME_TOGETHER;
  plays_seeds(&s, 1);
}

/* The steps of one that was alone are in no log: a newcomer has to load its state within an epoch. */
static void founder_that_was_alone_loses_no_sample(void **unused) {
  (void)unused;
  home_scene s = usual(1, 10000000, 5000000);
  s.joiners = 1;
  s.goals = HOME_MEETS | HOME_LOSES_NOTHING | HOME_NOBODY_DOUBTS;
  plays_seeds(&s, 1);
  s.load_us = 15000000;
  s.for_us = 150000000;
  plays_seeds(&s, 1);
  s.joiners = 2;
  plays_seeds(&s, 1);
  s.joiners = 1;
  s.load_us = 60000000; /* of which an average of 8 bits is 5 */
  s.codec = HV_CODEC_UNIFORM8;
  plays_seeds(&s, 1);
}

/* Hubs had no steps of a client that trained by itself. With a load of half an epoch a newcomer was with it in 2 of 12 seeds, and
 * in none with a longer one. */
static void client_that_was_alone_is_joined_through_a_hub(void **unused) {
  (void)unused;
  home_scene s = usual(1, 10000000, 2000000);
  s.clients = s.joiners = s.client_joiners = s.hubs = 1;
  s.codec = HV_CODEC_UNIFORM8;
  s.for_us = 150000000;
  s.goals = HOME_MEETS | HOME_LOSES_NOTHING;
  plays_seeds(&s, 1);
  for (s.load_us = 5000000; s.load_us <= 20000000; s.load_us += 5000000)
    plays_seeds(&s, 1);
}

/* The fastest of four was cut off for ten minutes and went on alone. Its epoch was far beyond the others' then, and it never came
 * back: it made samples that nobody averaged. */
static void fast_peer_comes_back_from_far_ahead(void **unused) {
  (void)unused;
  home_scene s = usual(4, 8000000, 300000);
  s.first_speed = 8;
  s.apart_us = 600000000;
  s.for_us = 60000000;
  s.goals = HOME_BACK;
  plays_seeds(&s, 1);
}

/* A copy of the state takes a fifth of an epoch, so offers are rare. A newcomer that finds none doubts nobody who answers. */
static void newcomer_doubts_no_peer_with_slow_copies(void **unused) {
  (void)unused;
  home_scene s = usual(2, 5000000, 4000000);
  s.copy_us = 1000000;
  s.joiners = 1;
  s.for_us = 120000000;
  s.goals = HOME_NOBODY_DOUBTS;
  plays_seeds(&s, 1);
}

/* One of four makes a batch in twenty times the time of the others. */
static void slow_machine_costs_the_others_no_epochs(void **unused) {
  (void)unused;
  home_scene s = usual(3, 4000000, 300000);
  s.joiners = 1;
  s.joiner_speed = 0.05;
  s.warm_us = s.for_us = 400000000;
  s.goals = HOME_KEEPS_PACE;
  plays_seeds(&s, 1);
}

/* A laptop is closed: its clock stands still with it, and its connections are gone as it opens. */
static void laptop_that_slept_for_ten_minutes_is_back_at_once(void **unused) {
  (void)unused;
  home_scene s = usual(4, 6000000, 300000);
  s.stands_us = 600000000;
  s.sleeps = 1;
  s.for_us = 60000000;
  s.goals = HOME_BACK | HOME_LOSES_NOTHING;
  plays_seeds(&s, 1);
}

/* A stranger offers another state under the mark of theirs. The other kinds are in the room liars-home. */
static void liar_that_offers_another_state_costs_nobody_an_epoch(void **unused) {
  (void)unused;
  home_scene s = usual(3, 6000000, 600000);
  s.liar = HOME_VOTES;
  s.warm_us = s.for_us = 120000000;
  s.goals = HOME_LOSES_NOTHING | HOME_NEVER_ALONE | HOME_TOGETHER | HOME_KEEPS_PACE;
  plays_seeds(&s, 1);
}

/* Rounds need three times averaging_timeout on these lines: none ended well, and nobody made an outer step. */
static void local_steps_get_rounds_as_long_as_the_line_needs(void **unused) {
  (void)unused;
  home_scene s = usual(3, 60000000, 60000000);
  s.options = (hv_epoch_options){.use_local_updates = 1, .outer = 1, .average_state_every = 1};
  s.averaging_us = 20000000;
  s.joiners = 1;
  s.for_us = 900000000;
  s.goals = HOME_TOGETHER | HOME_NEVER_ALONE;
  plays_seeds(&s, 1);
}

/* Peers in epochs of half a second kept no averages, and each state was old when it had come: newcomers loaded one after another.
 */
static void newcomers_enter_epochs_of_half_a_second(void **unused) {
  (void)unused;
  home_scene s = usual(5, 500000, 400000);
  s.joiners = 3;
  s.goals = HOME_TOGETHER | HOME_NOBODY_DOUBTS | HOME_NEVER_ALONE;
  plays_seeds(&s, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_newcomers_do_not_outvote_the_founder),
      cmocka_unit_test(peers_with_long_batches_do_not_step_alone),
      cmocka_unit_test(peer_that_waits_for_others_makes_no_step_alone),
      cmocka_unit_test(client_waits_once_for_an_open_peer_with_long_batches),
      cmocka_unit_test(two_step_together_while_a_third_one_is_busy),
      cmocka_unit_test(founder_that_was_alone_loses_no_sample),
      cmocka_unit_test(client_that_was_alone_is_joined_through_a_hub),
      cmocka_unit_test(fast_peer_comes_back_from_far_ahead),
      cmocka_unit_test(newcomer_doubts_no_peer_with_slow_copies),
      cmocka_unit_test(slow_machine_costs_the_others_no_epochs),
      cmocka_unit_test(laptop_that_slept_for_ten_minutes_is_back_at_once),
      cmocka_unit_test(liar_that_offers_another_state_costs_nobody_an_epoch),
      cmocka_unit_test(local_steps_get_rounds_as_long_as_the_line_needs),
      cmocka_unit_test(newcomers_enter_epochs_of_half_a_second),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
