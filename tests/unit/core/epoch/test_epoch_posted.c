/* A training thread that posts its batches: it may make another one before it hears that its epoch ends (rule 2). */
#include "lib/epoch_scene.h"

static const hv_epoch_options PLAIN = {.average_state_every = 100};

static void batch_during_prepare_counts_in_the_epoch_that_ends(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  hv_progress_own own;
  gathers(s);
  epoch_is_over(s);
  batch(s);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_PREPARE);
  hv_epoch_report(&s->e, BATCH, &own);
  assert_int_equal(own.samples, 3 * BATCH); /* with the one whose event follows */
  batch(s);
  assert_null(has(s, HV_EPOCH_ACT));
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.samples, 3 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(has(s, HV_EPOCH_TRIGGER)->samples, 3 * BATCH);
  averages_gradients(s, HV_EPOCH_NOW);
  assert_int_equal(s->e.ledger->averaged, 3 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.before, 3 * BATCH);
  assert_int_equal(own.samples, 0);
}

static void batch_during_prepare_is_lost_with_a_bad_gradient(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, -1);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_NOT_FINITE], 3 * BATCH);
}

static void batch_during_prepare_is_lost_if_it_breaks(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  batch(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BROKE, .number = s->e.end.acting[HV_EPOCH_NOW]});
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_BROKEN], 3 * BATCH);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

/* The end waits for the round before it; PREPARE comes later, and takes all sums. */
static void batch_while_the_late_lane_works_counts_in_the_next_end(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group(
      (hv_epoch_options){.delay_grad_averaging = 1, .delay_optimizer_step = 1, .offload = 1, .average_state_every = 100},
      HV_EPOCH_LATE);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  epoch_is_over(s);
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  batch(s);
  assert_int_equal(s->e.ledger->sums, 2 * BATCH);
  averages_gradients(s, HV_EPOCH_LATE);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_SCHEDULE, 1);
  batch(s);
  assert_null(has(s, HV_EPOCH_ACT)); /* APPLY is under way */
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.end.samples, 3 * BATCH);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_PREPARE);
}

/* One action of a lane at a time: the batch is looked at when the copy is made. */
static void batch_during_a_copy_ends_its_epoch_after_it(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  steps_together(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  epoch_begins(s);
  s->now_us += SECOND;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_WANTED, .epoch = 1});
  on(s, (hv_epoch_event){.kind = HV_EPOCH_OFFERED, .epoch = 1});
  s->now_us += SECOND;
  batch(s);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_SNAPSHOT);
  uint64_t number = s->e.end.acting[HV_EPOCH_NOW];
  epoch_is_over(s);
  batch(s);
  assert_int_equal(s->e.end.acting[HV_EPOCH_NOW], number);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_PREPARE);
  assert_int_equal(s->e.end.samples, 2 * BATCH);
}

static void batch_during_a_pause_is_looked_at_after_it(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group(
      (hv_epoch_options){.delay_grad_averaging = 1, .delay_optimizer_step = 1, .offload = 1, .average_state_every = 100},
      HV_EPOCH_LATE);
  averages_gradients(s, HV_EPOCH_LATE);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_LATE, HV_EPOCH_SCHEDULE, 1);
  epoch_begins(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_PAUSE});
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_PREPARE);
}

/* The others have made the step without this peer, which has not dropped its sums yet. */
static void batch_before_drop_is_lost(void **unused) {
  (void)unused;
  scene *s = new_scene(&PLAIN, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  s->f = (hv_progress_figures){.epoch = 1, .speed = 100, .n_peers = 2, .standing = HV_PROGRESS_LATE, .eta_us = SECOND};
  batch(s);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_DROP);
  batch(s);
  assert_int_equal(s->e.ledger->produced, 3 * BATCH);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_REPLACED], 2 * BATCH);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_BEHIND], BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_non_null(has(s, HV_EPOCH_LOAD));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batch_during_prepare_counts_in_the_epoch_that_ends),
      cmocka_unit_test(batch_during_prepare_is_lost_with_a_bad_gradient),
      cmocka_unit_test(batch_during_prepare_is_lost_if_it_breaks),
      cmocka_unit_test(batch_while_the_late_lane_works_counts_in_the_next_end),
      cmocka_unit_test(batch_during_a_copy_ends_its_epoch_after_it),
      cmocka_unit_test(batch_during_a_pause_is_looked_at_after_it),
      cmocka_unit_test(batch_before_drop_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
