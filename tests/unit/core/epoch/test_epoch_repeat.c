/* The machine of a peer by itself, as it repeats the steps of others (rules 11 to 24 of docs/design/log.md). */
#include "lib/epoch_scene.h"

enum { ENTRY = 1000, STATE = 6 * ENTRY };

static const hv_epoch_options usual = {.average_state_every = 1};

/* In epoch 1, which it has begun with another one: its replica is that of both. */
static scene *in_epoch_one(void) {
  scene *s = new_scene(&usual, HV_EPOCH_ALONE_TRAINS);
  s->e.config.entry_bytes = ENTRY;
  s->e.config.state_bytes = STATE;
  gathers(s);
  steps_together(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_TAKE, 1);
  round_over(s, HV_EPOCH_REPLICA_STATE, HV_EPOCH_CONFIRMED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  if (s->e.end.acting[HV_EPOCH_NOW])
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 1);
  return s;
}

/* The others are in that epoch, which lasts for minutes. */
static void swarm_is_in(scene *s, uint64_t epoch) {
  uint64_t mine = s->e.told;
  s->f = (hv_progress_figures){.epoch = epoch,
                               .speed = 0.5,
                               .n_peers = 3,
                               .eta_us = 60 * (uint64_t)SECOND,
                               .ready = epoch > mine,
                               .match = epoch > mine,
                               .standing = epoch == mine       ? HV_PROGRESS_IN_STEP
                                           : epoch == mine + 1 ? HV_PROGRESS_LATE
                                                               : HV_PROGRESS_BEHIND};
}

static void entry_comes(scene *s, uint64_t epoch, hv_mark before) {
  static const uint64_t stamps[] = {5};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY,
                         .epoch = epoch,
                         .ok = 1,
                         .has_mark = 1,
                         .mark = before,
                         .step = {.stamps = stamps, .n_stamps = 1}});
}

static void entry_is_lost(scene *s, uint64_t epoch) {
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY, .epoch = epoch});
}

static void makes_the_step(scene *s) {
  acted(s, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
}

static void wants(const scene *s, uint64_t first, uint64_t until) {
  assert_non_null(has(s, HV_EPOCH_WANT));
  assert_int_equal(has(s, HV_EPOCH_WANT)->epoch, first);
  assert_int_equal(has(s, HV_EPOCH_WANT)->number, until);
}

/* The others have ended epoch 1 without it. */
static scene *late_by_one(void) {
  scene *s = in_epoch_one();
  swarm_is_in(s, 2);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 1, 2);
  return s;
}

static void late_peer_repeats_the_step_and_loads_nothing(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  hv_lineage theirs = s->lineage;
  hv_lineage_stepped(&theirs, &s->env.env, (const uint64_t[]){5}, 1, NULL, 0, TARGET);
  assert_int_equal(hv_epoch_is_free(&s->e), 0);
  assert_int_equal(hv_epoch_waits(&s->e), HV_EPOCH_WAITS_ENTRY);
  entry_comes(s, 1, s->lineage.mark);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 2);
  assert_true(hv_mark_equal(&s->lineage.mark, &theirs.mark));
  assert_null(has(s, HV_EPOCH_LOAD));
  assert_int_equal(s->e.ledger->averaged, 2 * BATCH); /* of epoch 0 alone */
}

static void late_peer_repeats_until_it_is_in_the_swarms_epoch(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  entry_comes(s, 1, s->lineage.mark);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 1);
  swarm_is_in(s, 3); /* meanwhile */
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 2, 3);
  entry_comes(s, 2, s->lineage.mark);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 3);
}

/* Rule 15. */
static void entry_of_another_replica_is_refused(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  hv_mark before = s->lineage.mark;
  entry_comes(s, 1, mark_of('x'));
  assert_int_equal(has(s, HV_EPOCH_REFUSE)->epoch, 1);
  assert_int_equal(s->e.end.acting[HV_EPOCH_NOW], 0);
  entry_comes(s, 1, before);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 0); /* its values do not fit */
  assert_int_equal(has(s, HV_EPOCH_REFUSE)->epoch, 1);
  assert_true(hv_mark_equal(&s->lineage.mark, &before));
  entry_is_lost(s, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING); /* as before there was a log */
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 2);
}

/* Rule 12: six entries are as many bytes as the state. */
static void peer_that_is_far_behind_loads_the_state(void **unused) {
  (void)unused;
  static const struct {
    uint64_t swarm;
    hv_epoch_state is;
  } rows[] = {{7, HV_EPOCH_REPEATING}, {8, HV_EPOCH_LOADING}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scene *s = in_epoch_one();
    swarm_is_in(s, rows[i].swarm);
    batch(s);
    on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = rows[i].swarm});
    batch(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
    assert_int_equal(s->e.state, rows[i].is);
  }
}

static void short_epochs_have_a_log_too(void **unused) {
  (void)unused;
  scene *s = in_epoch_one();
  swarm_is_in(s, 2);
  s->f.speed = 2 * TARGET; /* an epoch lasts half a second */
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 1, 2);
}

/* The others make the step that it was to be in: it waits until they have, and repeats it. */
static void left_out_peer_repeats_the_step_that_it_missed(void **unused) {
  (void)unused;
  scene *s = in_epoch_one();
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  swarm_is_in(s, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  assert_null(has(s, HV_EPOCH_WANT)); /* they have not ended it */
  assert_int_equal(s->lineage.is_wrong, 1);
  swarm_is_in(s, 2);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  wants(s, 1, 2);
  entry_comes(s, 1, s->lineage.mark);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->lineage.is_wrong, 0);
}

static void left_out_peer_waits_no_longer_than_a_round_lasts(void **unused) {
  (void)unused;
  scene *s = in_epoch_one();
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  swarm_is_in(s, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(hv_epoch_due_us(&s->e), s->now_us + HV_EPOCH_AGAIN_US);
  s->now_us += 15 * (uint64_t)SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
}

/* Its own step is in its replica, and in nobody else's. */
static scene *stepped_alone(void) {
  scene *s = in_epoch_one();
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_TAKE, 1);
  round_over(s, HV_EPOCH_REPLICA_STATE, HV_EPOCH_FAILED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  return s;
}

static void peer_that_stepped_by_itself_loads_the_state(void **unused) {
  (void)unused;
  scene *s = stepped_alone();
  swarm_is_in(s, 3);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
}

/* Rule 24: the founder makes the epoch's step by itself. Returns 1 if the log is to have it. */
static int founder_steps(scene *s, const uint64_t *stamps, size_t n_stamps) {
  epoch_is_over(s);
  s->f.n_peers = 1;
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  const hv_epoch_order *step = has(s, HV_EPOCH_ACT);
  assert_int_equal(step->action, HV_EPOCH_STEP);
  int keeps = step->ask;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE,
                         .number = s->e.end.acting[HV_EPOCH_NOW],
                         .ok = 1,
                         .step = {.stamps = stamps, .n_stamps = n_stamps}});
  return keeps;
}

static void founder_keeps_its_steps_for_a_newcomer(void **unused) {
  (void)unused;
  static const uint64_t stamp = 7;
  scene *s = in_epoch_one();
  epoch_begins(s);
  s->f.n_coming = 1;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  hv_lineage others = s->lineage;
  hv_lineage_repeated(&others, &s->env.env, &stamp, 1, NULL, 0, TARGET);
  assert_int_equal(founder_steps(s, &stamp, 1), 1);
  assert_true(hv_mark_equal(&s->lineage.mark, &others.mark));
}

static void founder_that_nobody_joins_keeps_no_step(void **unused) {
  (void)unused;
  assert_int_equal(founder_steps(in_epoch_one(), NULL, 0), 0);
  scene *s = in_epoch_one();
  s->e.came_us = s->now_us;
  s->now_us += HV_EPOCH_KEEPS_OWN_US;
  assert_int_equal(founder_steps(s, NULL, 0), 0);
  s = in_epoch_one();
  s->e.traits.lead = 1; /* the state that is offered is an epoch older */
  assert_int_equal(founder_steps(s, NULL, 0), 1);
}

/* The others are in epoch 20, and it loads the state that is on offer. */
static scene *loads(uint8_t lead, uint64_t offered) {
  scene *s = in_epoch_one();
  s->e.traits.lead = lead;
  swarm_is_in(s, 20);
  batch(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = offered});
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  return s;
}

/* Rule 18: the steps that others make while a state comes are there when it is. */
static void entries_come_beside_the_state(void **unused) {
  (void)unused;
  scene *s = loads(0, 20);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADS, .epoch = 20});
  assert_null(has(s, HV_EPOCH_WANT));
  swarm_is_in(s, 22);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  wants(s, 20, 22);
  assert_int_equal(has(s, HV_EPOCH_WANT)->samples, STATE);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_null(has(s, HV_EPOCH_WANT));
  s->now_us += SECOND;
  swarm_is_in(s, 30); /* the rest of them is more than the state, and most is there */
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 20, .mark = mark_of('y'), .has_mark = 1});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 20, 30);
  entry_comes(s, 20, mark_of('y'));
  makes_the_step(s);
  assert_int_equal(s->e.told, 21);
  assert_int_equal(s->lineage.is_made, 0);
}

/* The others count an epoch while they average the gradients of the one before: the latest average is waited for, as long as a
 * round may last. */
static void average_that_is_perhaps_under_way_is_waited_for(void **unused) {
  (void)unused;
  scene *s = loads(1, 20);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADS, .epoch = 20});
  swarm_is_in(s, 22);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  wants(s, 20, 22);
  assert_int_equal(has(s, HV_EPOCH_WANT)->ask, 1); /* that of 21 */
  s->now_us += SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 20, .mark = mark_of('y'), .has_mark = 1});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  entry_comes(s, 20, mark_of('y'));
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  s->now_us += s->e.config.averaging_us - SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  s->now_us += SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 21);
}

/* The state of the swarm's epoch is made once the gradients of the one before are averaged. */
static void state_of_the_epoch_before_is_loaded_if_all_is_late(void **unused) {
  (void)unused;
  for (uint8_t lead = 0; lead <= 1; lead++) {
    scene *s = loads(lead, 19);
    assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 20 - lead);
  }
}

/* Rule 7 of the epoch: it came as the others ended its epoch, and finds nobody. */
static void peer_that_has_caught_up_makes_no_step_by_itself(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  entry_comes(s, 1, s->lineage.mark);
  makes_the_step(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  swarm_is_in(s, 3);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 2, 3);
}

/* A peer that repeats costs the others nothing; for its last step they form groups as for one that loads. */
static void others_hear_of_the_last_step_alone(void **unused) {
  (void)unused;
  scene *s = in_epoch_one();
  hv_progress_own own;
  swarm_is_in(s, 3);
  batch(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 3});
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.any, 0);
  assert_int_equal(own.comes, 0);
  entry_comes(s, 1, s->lineage.mark);
  makes_the_step(s);
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.any, 0);
  assert_int_equal(own.comes, 1 + 3);
}

/* A step that the hands broke off may be in the model in part. */
static void step_that_broke_is_not_repeated_again(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  entry_comes(s, 1, s->lineage.mark);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BROKE, .number = s->e.end.acting[HV_EPOCH_NOW]});
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
}

/* A program that starts again has the replica of its checkpoint. */
static void restored_peer_repeats_from_its_checkpoint(void **unused) {
  (void)unused;
  scene *s = new_scene(&usual, HV_EPOCH_ALONE_TRAINS);
  hv_mark saved = mark_of('c');
  s->e.config.entry_bytes = ENTRY;
  s->e.config.state_bytes = STATE;
  s->fetched = 1;
  hv_lineage_restart(&s->lineage, &saved);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_RESTORED, .epoch = 7});
  swarm_is_in(s, 9);
  batch(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 9});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 7, 9);
  entry_comes(s, 7, saved);
  makes_the_step(s);
  assert_int_equal(s->e.told, 8);
}

/* The checkpoint's replica has none of the steps that this peer has made by itself since. */
static void restored_peer_repeats_after_steps_by_itself(void **unused) {
  (void)unused;
  scene *s = stepped_alone();
  hv_mark saved = mark_of('c');
  hv_lineage_restart(&s->lineage, &saved);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_RESTORED, .epoch = 1});
  swarm_is_in(s, 3);
  batch(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 3});
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 1, 3);
}

/* Rule 21: it lacks the average of epoch 1, and the others' group of epoch 2 forms. */
static scene *listens(void) {
  scene *s = late_by_one();
  assert_null(has(s, HV_EPOCH_SEEK)); /* that group is not near */
  s->now_us += SECOND;
  s->f.eta_us = SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_int_equal(has(s, HV_EPOCH_SEEK)->epoch, 2);
  assert_int_equal(has(s, HV_EPOCH_SEEK)->ask, 1);
  assert_null(has(s, HV_EPOCH_TRIGGER));
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_null(has(s, HV_EPOCH_SEEK)); /* once in an epoch */
  return s;
}

static void peer_that_lacks_the_last_average_listens(void **unused) {
  (void)unused;
  scene *s = listens();
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, NULL, 0);
  assert_non_null(has(s, HV_EPOCH_ASIDE));
  entry_comes(s, 1, s->lineage.mark);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  wants(s, 2, 3); /* though the others are still counted in epoch 2 */
  entry_comes(s, 2, s->lineage.mark);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 3);
}

static void peer_is_in_its_epoch_after_a_round_that_failed(void **unused) {
  (void)unused;
  scene *s = listens();
  entry_comes(s, 1, s->lineage.mark);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING); /* it may be in the group */
  assert_non_null(has(s, HV_EPOCH_GIVE_UP));
  s->now_us += SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_null(has(s, HV_EPOCH_GIVE_UP));
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 2);
}

static void listener_that_lost_an_average_cancels_its_round(void **unused) {
  (void)unused;
  scene *s = listens();
  entry_is_lost(s, 1);
  assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS));
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(late_peer_repeats_the_step_and_loads_nothing),
      cmocka_unit_test(late_peer_repeats_until_it_is_in_the_swarms_epoch),
      cmocka_unit_test(entry_of_another_replica_is_refused),
      cmocka_unit_test(peer_that_is_far_behind_loads_the_state),
      cmocka_unit_test(short_epochs_have_a_log_too),
      cmocka_unit_test(left_out_peer_repeats_the_step_that_it_missed),
      cmocka_unit_test(left_out_peer_waits_no_longer_than_a_round_lasts),
      cmocka_unit_test(peer_that_stepped_by_itself_loads_the_state),
      cmocka_unit_test(founder_keeps_its_steps_for_a_newcomer),
      cmocka_unit_test(founder_that_nobody_joins_keeps_no_step),
      cmocka_unit_test(entries_come_beside_the_state),
      cmocka_unit_test(average_that_is_perhaps_under_way_is_waited_for),
      cmocka_unit_test(state_of_the_epoch_before_is_loaded_if_all_is_late),
      cmocka_unit_test(peer_that_has_caught_up_makes_no_step_by_itself),
      cmocka_unit_test(others_hear_of_the_last_step_alone),
      cmocka_unit_test(step_that_broke_is_not_repeated_again),
      cmocka_unit_test(restored_peer_repeats_from_its_checkpoint),
      cmocka_unit_test(restored_peer_repeats_after_steps_by_itself),
      cmocka_unit_test(peer_that_lacks_the_last_average_listens),
      cmocka_unit_test(peer_is_in_its_epoch_after_a_round_that_failed),
      cmocka_unit_test(listener_that_lost_an_average_cancels_its_round),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
