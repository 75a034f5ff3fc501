/* Batches beside the round of a difference (docs/design/local-steps.md, "Overlap"). */
#include "lib/epoch_scene.h"

static const hv_epoch_options overlapping = {.use_local_updates = 1, .outer = 1, .overlap = 50, .average_state_every = 1};

/* The difference of four batches travels. */
static void ends_epoch(scene *s) {
  for (int i = 0; i < 3; i++)
    steps_locally(s);
  epoch_is_over(s);
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  assert_int_equal(s->ledger.in_flight, 4 * BATCH);
}

static scene *travels(void) {
  scene *s = new_scene(&overlapping, HV_EPOCH_ALONE_TRAINS);
  s->fetched = 1;
  epoch_begins(s);
  ends_epoch(s);
  return s;
}

static void round_ends(scene *s, hv_epoch_outcome outcome, uint64_t took_us, double share) {
  hv_lineage_member two[] = {member(1, s->lineage.mark), member(2, s->lineage.mark)};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND,
                         .outcome = outcome,
                         .stamp = 77,
                         .share = share,
                         .took_us = took_us,
                         .members = two,
                         .n_members = outcome == HV_EPOCH_CONFIRMED ? 2 : 0});
}

static void steps_anchor(scene *s) {
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  if (s->e.end.acting[HV_EPOCH_NOW])
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

static void short_round_is_waited_for(void **unused) {
  (void)unused;
  scene *s = travels();
  assert_false(hv_epoch_is_free(&s->e));
  round_ends(s, HV_EPOCH_CONFIRMED, SECOND / 10, 1);
  steps_anchor(s);
  assert_int_equal(s->e.lasts_us, 0); /* and the next epoch is not longer for it */
}

static void batches_are_half_of_an_epoch_at_most(void **unused) {
  (void)unused;
  scene *s = travels();
  moment_passes(s);
  steps_locally(s);
  assert_true(hv_epoch_is_free(&s->e));
  steps_locally(s);
  assert_false(hv_epoch_is_free(&s->e));
  assert_int_equal(s->ledger.sums, 2 * BATCH);
  hv_progress_own report;
  hv_epoch_report(&s->e, 0, &report);
  assert_int_equal(report.epoch, 0);
  assert_int_equal(report.samples, 4 * BATCH); /* others hear of them in the next epoch */
  round_ends(s, HV_EPOCH_CONFIRMED, SECOND, 1);
  steps_anchor(s);
  hv_epoch_report(&s->e, 0, &report);
  assert_int_equal(report.epoch, 1);
  assert_int_equal(report.samples, 2 * BATCH);
  assert_int_equal(s->ledger.averaged, 4 * BATCH);
}

static void outcome_counts_at_once_and_its_step_waits_for_the_thread(void **unused) {
  (void)unused;
  for (int comes_with_batch = 0; comes_with_batch <= 1; comes_with_batch++) {
    scene *s = travels();
    moment_passes(s);
    steps_locally(s);
    hv_mark mark = s->lineage.mark;
    round_ends(s, HV_EPOCH_CONFIRMED, SECOND, 0.75);
    assert_int_equal(s->e.end.acting[HV_EPOCH_NOW], 0);
    assert_true(hv_epoch_is_free(&s->e) && hv_epoch_waits_for_thread(&s->e));
    assert_true(hv_mark_equal(&s->lineage.mark, &mark));
    assert_int_equal(s->ledger.averaged, 3 * BATCH);
    assert_int_equal(s->ledger.sums, 2 * BATCH); /* one has come late, and one is new */
    if (comes_with_batch)
      steps_locally(s);
    else
      on(s, (hv_epoch_event){.kind = HV_EPOCH_PAUSE});
    assert_false(hv_epoch_waits_for_thread(&s->e));
    steps_anchor(s);
    assert_int_equal(s->ledger.sums, (2 + (uint64_t)comes_with_batch) * BATCH);
  }
}

static void outcome_that_comes_during_a_step_follows_it(void **unused) {
  (void)unused;
  for (int breaks = 0; breaks <= 1; breaks++) {
    scene *s = travels();
    moment_passes(s);
    batch(s);
    round_ends(s, HV_EPOCH_CONFIRMED, SECOND, 1);
    if (!breaks)
      acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1);
    else { /* the program hears of it, and comes again */
      on(s, (hv_epoch_event){.kind = HV_EPOCH_BROKE, .number = s->e.end.acting[HV_EPOCH_NOW]});
      assert_true(hv_epoch_waits_for_thread(&s->e));
      steps_locally(s);
    }
    steps_anchor(s);
    assert_int_equal(s->ledger.lost, 0);
  }
}

static void failed_round_leaves_all_in_the_sums(void **unused) {
  (void)unused;
  static const hv_epoch_outcome outcomes[] = {HV_EPOCH_NOBODY, HV_EPOCH_PARTED, HV_EPOCH_FAILED};
  for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
    scene *s = travels();
    moment_passes(s);
    steps_locally(s);
    round_ends(s, outcomes[i], 0, 0);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    assert_false(hv_epoch_waits_for_thread(&s->e));
    assert_int_equal(s->ledger.sums, 5 * BATCH);
  }
}

/* It goes aside in the middle of a batch, so nothing is done before that is over. */
static void peer_that_is_left_out_does_nothing_without_its_thread(void **unused) {
  (void)unused;
  scene *s = travels();
  moment_passes(s);
  steps_locally(s);
  s->f = (hv_progress_figures){.epoch = 1, .n_peers = 2, .ready = 1, .standing = HV_PROGRESS_LATE};
  round_ends(s, HV_EPOCH_LEFT_OUT, 0, 0);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  assert_true(hv_epoch_is_free(&s->e));
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 1, .mark = mark_of('y'), .has_mark = 1});
  assert_int_equal(s->e.end.acting[HV_EPOCH_NOW], 0);
  assert_true(hv_epoch_waits_for_thread(&s->e));
  assert_int_equal(s->ledger.sums, 5 * BATCH);
}

/* Rounds of two seconds: the first two epochs are as short as before, as the wait for others may be a part of one of two. */
static void epoch_lasts_as_long_as_its_round(void **unused) {
  (void)unused;
  scene *s = travels();
  uint64_t took_us[] = {2 * SECOND, 3 * SECOND, 2 * SECOND}, least_us[] = {2 * SECOND, 2 * SECOND, 2 * SECOND};
  for (size_t i = 0; i < 3; i++) {
    s->now_us += took_us[i];
    on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
    round_ends(s, HV_EPOCH_CONFIRMED, took_us[i], 1);
    on(s, (hv_epoch_event){.kind = HV_EPOCH_PAUSE});
    uint64_t begun_us = s->now_us;
    steps_anchor(s);
    assert_int_equal(s->e.lasts_us, begun_us + least_us[i]);
    for (int more = 0; more < 3; more++)
      steps_locally(s);
    epoch_is_over(s);
    s->now_us = begun_us + least_us[i] - 1; /* its samples are there, and it forms a group */
    steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    assert_int_equal(s->e.seeking[HV_EPOCH_GRADIENTS], 1);
    s->now_us++;
    steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_ENDING);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    assert_true(hv_epoch_is_free(&s->e)); /* a round that is known to be long is not waited for */
  }
}

static void restored_checkpoint_voids_the_round(void **unused) {
  (void)unused;
  scene *s = travels();
  moment_passes(s);
  steps_locally(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_RESTORED, .epoch = 7});
  assert_non_null(has(s, HV_EPOCH_CANCEL));
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->ledger.lost_by[HV_EPOCH_LOSS_RESTORED], 5 * BATCH);
  round_ends(s, HV_EPOCH_CONFIRMED, SECOND, 1);
  assert_int_equal(s->e.told, 7);
  epoch_begins(s);
  steps_locally(s);
  assert_int_equal(s->ledger.sums, BATCH);
}

/* The next epoch, of 64 s, has its samples. 1: the round of its difference begins under narrow codecs. */
static int sends_narrow(scene *s) {
  on(s, (hv_epoch_event){.kind = HV_EPOCH_PAUSE});
  if (s->e.end.acting[HV_EPOCH_NOW])
    steps_anchor(s);
  s->now_us = s->e.lasts_us > s->e.again_us ? s->e.lasts_us : s->e.again_us;
  epoch_is_over(s);
  s->f.speed = 1;
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  return has(s, HV_EPOCH_TRIGGER)->ask;
}

/* Half of an epoch is 32 s. Eight bits take twice the time of four, and a half is left free before a peer returns to them. */
static void bits_follow_the_time_of_rounds(void **unused) {
  (void)unused;
  const struct {
    uint64_t took_us;
    int narrow;
  } rounds[] = {{32, 0}, {33, 0}, {33, 1}, /* of two rounds the shorter one counts */
                {17, 1}, {8, 1},  {9, 1},  {7, 0}, {14, 0}, {14, 0}, {40, 0}, {40, 1}};
  scene *s = travels();
  for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
    round_ends(s, HV_EPOCH_CONFIRMED, rounds[i].took_us * SECOND, 1);
    assert_int_equal(sends_narrow(s), rounds[i].narrow);
  }
}

/* The next round needs all the time that the failed one had, until one is averaged. */
static void round_that_ran_out_makes_the_next_one_narrow(void **unused) {
  (void)unused;
  scene *s = travels();
  round_ends(s, HV_EPOCH_CONFIRMED, 2 * SECOND, 1);
  assert_false(sends_narrow(s));
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND, .outcome = HV_EPOCH_FAILED, .ran_out = 1, .took_us = 50 * SECOND});
  assert_true(sends_narrow(s));
  round_ends(s, HV_EPOCH_CONFIRMED, 2 * SECOND, 1);
  assert_false(sends_narrow(s));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_round_is_waited_for),
      cmocka_unit_test(batches_are_half_of_an_epoch_at_most),
      cmocka_unit_test(outcome_counts_at_once_and_its_step_waits_for_the_thread),
      cmocka_unit_test(outcome_that_comes_during_a_step_follows_it),
      cmocka_unit_test(failed_round_leaves_all_in_the_sums),
      cmocka_unit_test(peer_that_is_left_out_does_nothing_without_its_thread),
      cmocka_unit_test(epoch_lasts_as_long_as_its_round),
      cmocka_unit_test(restored_checkpoint_voids_the_round),
      cmocka_unit_test(bits_follow_the_time_of_rounds),
      cmocka_unit_test(round_that_ran_out_makes_the_next_one_narrow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
