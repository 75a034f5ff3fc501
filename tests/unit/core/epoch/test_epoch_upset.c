/* Events that upset a program: errors of its actions, overflows, loads between a gradient and its step (rules 20 and 21). None of
 * them ends another wait. */
#include "lib/epoch_scene.h"

static const hv_epoch_options PLAIN = {.average_state_every = 100};
static const hv_epoch_options COPIES = {.offload = 1, .average_state_every = 100};
static const hv_epoch_options LATE = {
    .delay_grad_averaging = 1, .delay_optimizer_step = 1, .offload = 1, .average_state_every = 100};

static void breaks(scene *s, hv_epoch_lane lane, unsigned action) {
  assert_int_equal(s->e.end.action[lane], action);
  assert_int_not_equal(s->e.end.acting[lane], 0);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BROKE, .number = s->e.end.acting[lane]});
}

/* Beside another, with the average of the gradients. */
static scene *steps(const hv_epoch_options *options, hv_epoch_lane lane) {
  scene *s = waits_for_a_group(*options, lane);
  averages_gradients(s, lane);
  assert_int_equal(s->e.end.action[lane], HV_EPOCH_STEP);
  return s;
}

/* The program may have summed on in them: the machine says that they are of no use. */
static void broken_step_drops_the_sums(void **unused) {
  (void)unused;
  scene *s = steps(&PLAIN, HV_EPOCH_NOW);
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_STEP);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 0);
  assert_false(hv_epoch_is_free(&s->e));
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_true(hv_epoch_is_free(&s->e));
}

static void batch_before_that_drop_is_lost(void **unused) {
  (void)unused;
  scene *s = steps(&PLAIN, HV_EPOCH_NOW);
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_STEP);
  batch(s);
  assert_int_equal(s->e.ledger->sums, 0);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_BEHIND], BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
}

/* Those of the next epoch, which gather meanwhile. */
static void broken_late_step_keeps_the_sums(void **unused) {
  (void)unused;
  scene *s = steps(&LATE, HV_EPOCH_LATE);
  epoch_begins(s);
  batch(s);
  breaks(s, HV_EPOCH_LATE, HV_EPOCH_STEP);
  assert_null(has(s, HV_EPOCH_ACT));
  assert_int_equal(s->e.ledger->sums, BATCH);
  assert_int_equal(s->e.told, 0);
  assert_int_equal(s->e.late, HV_EPOCH_LATE_IDLE);
}

static void broken_copy_at_an_end_keeps_the_sums(void **unused) {
  (void)unused;
  scene *s = steps(&LATE, HV_EPOCH_LATE);
  epoch_is_over(s);
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING); /* which waits for the late lane */
  acted(s, HV_EPOCH_LATE, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_PREPARE);
  assert_int_equal(s->e.end.samples, BATCH);
}

/* The step is in the replica, so its epoch counts, and the model gets it. */
static void step_before_a_broken_action_reaches_the_model(void **unused) {
  (void)unused;
  scene *s = steps(&COPIES, HV_EPOCH_NOW);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE);
  assert_int_equal(s->e.told, 1);
  assert_non_null(has(s, HV_EPOCH_REACHED));
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  epoch_begins(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.made, 1);
}

static void broken_apply_is_done_again(void **unused) {
  (void)unused;
  scene *s = steps(&LATE, HV_EPOCH_LATE);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_SCHEDULE, 1);
  epoch_begins(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_PAUSE});
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_APPLY);
  assert_null(has(s, HV_EPOCH_ACT));
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.late, HV_EPOCH_LATE_IDLE);
}

/* The late lane had stepped when the program asked for the swarm's state; nobody had one. */
static void late_step_reaches_the_model_after_a_failed_load(void **unused) {
  (void)unused;
  scene *s = steps(&LATE, HV_EPOCH_LATE);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_STEP, 1);
  hv_mark mark = s->e.lineage->mark;
  epoch_begins(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ASKED, .epoch = 1});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_SCHEDULE, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED});
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_true(hv_mark_equal(&mark, &s->e.lineage->mark));
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
}

/* The optimizer was at it when the lane became void: the mark says what the copies hold. */
static void step_of_a_void_lane_moves_the_mark(void **unused) {
  (void)unused;
  scene *s = steps(&LATE, HV_EPOCH_LATE);
  hv_mark mark = s->e.lineage->mark;
  epoch_begins(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ASKED, .epoch = 1});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_STEP, 1);
  assert_false(hv_mark_equal(&mark, &s->e.lineage->mark));
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED});
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
}

static void first_batch_is_lost_if_the_program_may_not_train(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  hv_epoch_event event = {.kind = HV_EPOCH_BATCH, .samples = BATCH, .now_us = s->now_us, .figures = &s->f, .fetched = 1};
  hv_epoch_order order;
  hv_epoch_on(&s->e, &event); /* on() would let it train */
  while (hv_epoch_next(&s->e, &order))
    ;
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_MEET);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_BROKEN], BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOOKING);
  assert_true(hv_epoch_is_free(&s->e));
}

/* The scale was too large for a batch that lies where the sums do, while the epoch began to end. */
static void overflow_during_prepare_takes_samples_in_flight(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_OVERFLOW, .samples = BATCH, .number = 2 * BATCH});
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_OVERFLOW], 3 * BATCH);
  assert_int_equal(s->e.end.samples, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(has(s, HV_EPOCH_TRIGGER)->samples, 0);
}

/* It may end the epoch, as any other batch. */
static void batch_behind_a_load_counts_nowhere(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BEHIND, .samples = BATCH});
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_BEHIND], BATCH);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_PREPARE);
  assert_int_equal(s->e.end.samples, BATCH);
}

/* The others are in this epoch, whose end is so near that the next one's state is loaded. */
static void is_late_near_the_end(scene *s, uint64_t epoch) {
  s->f = (hv_progress_figures){.epoch = epoch,
                               .samples = TARGET - 8,
                               .speed = 100,
                               .n_peers = 2,
                               .match = 1,
                               .standing = HV_PROGRESS_LATE,
                               .eta_us = SECOND / 2};
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
}

/* Of other processes, say: no epoch ends between two batches. */
static void samples_between_batches_count_and_end_no_epoch(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  hv_progress_own own;
  gathers(s);
  epoch_is_over(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_SUMMED, .samples = BATCH, .number = 2});
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_non_null(has(s, HV_EPOCH_WAKE));
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.samples, 2 * BATCH);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_BEHIND], 2);
}

/* It waits for the next epoch, until its own deadline; nothing else that happens meanwhile ends or delays that. */
static void no_other_event_moves_the_deadline_to_come(void **unused) {
  (void)unused;
  hv_epoch_event others[] = {{.kind = HV_EPOCH_LOOKED},
                             {.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 9},
                             {.kind = HV_EPOCH_LOADED},
                             {.kind = HV_EPOCH_OFFERED, .epoch = 1},
                             {.kind = HV_EPOCH_WANTED, .epoch = 1},
                             {.kind = HV_EPOCH_OVERFLOW, .samples = BATCH},
                             {.kind = HV_EPOCH_PAUSE},
                             {.kind = HV_EPOCH_ASKED, .epoch = 2},
                             {.kind = HV_EPOCH_TIME},
                             {.kind = HV_EPOCH_BATCH}};
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  is_late_near_the_end(s, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  s->now_us += 10000;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .epoch = 1, .ok = 1});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  is_late_near_the_end(s, 2);
  uint64_t due_us = s->now_us + SECOND / 2;
  assert_int_equal(hv_epoch_due_us(&s->e), due_us);
  breaks(s, HV_EPOCH_NOW, HV_EPOCH_DROP);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    s->now_us += 1000;
    on(s, others[i]);
    assert_int_equal(s->e.state, HV_EPOCH_COMING);
    assert_int_equal(s->e.own.coming.until_us, due_us);
  }
  s->now_us = due_us;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(broken_step_drops_the_sums),
      cmocka_unit_test(batch_before_that_drop_is_lost),
      cmocka_unit_test(broken_late_step_keeps_the_sums),
      cmocka_unit_test(broken_copy_at_an_end_keeps_the_sums),
      cmocka_unit_test(step_before_a_broken_action_reaches_the_model),
      cmocka_unit_test(broken_apply_is_done_again),
      cmocka_unit_test(late_step_reaches_the_model_after_a_failed_load),
      cmocka_unit_test(step_of_a_void_lane_moves_the_mark),
      cmocka_unit_test(first_batch_is_lost_if_the_program_may_not_train),
      cmocka_unit_test(overflow_during_prepare_takes_samples_in_flight),
      cmocka_unit_test(batch_behind_a_load_counts_nowhere),
      cmocka_unit_test(samples_between_batches_count_and_end_no_epoch),
      cmocka_unit_test(no_other_event_moves_the_deadline_to_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
