/* Rule 7 in docs/design/epoch.md: an epoch lasts if its samples are gone after a round to which nobody came. */
#include "lib/epoch_scene.h"

/* Two of three leave at the epoch's end, after their samples made this peer end it. Nobody comes to its round, and the third one
 * has 8 samples: the epoch lasts until the two that are left have its samples. */
static void epoch_that_lacks_samples_after_a_round_of_nobody_lasts(void **unused) {
  (void)unused;
  for (hv_epoch_company company = HV_EPOCH_ALONE_TRAINS; company <= HV_EPOCH_ALONE_STOPS; company++)
    for (int copies = 0; copies <= 1; copies++) {
      scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, company);
      hv_mark before = s->e.lineage->mark;
      gathers(s);
      epoch_is_over(s);
      s->f.n_peers = 3;
      batch(s);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
      s->now_us += 2 * SECOND;
      s->f = (hv_progress_figures){.samples = 2 * BATCH + 8, .speed = 100, .n_peers = 2, .eta_us = SECOND};
      if (copies) /* a joiner needs the state meanwhile */
        s->e.offers.wanted = s->e.offers.counted_us = 0;
      on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
      assert_int_equal(s->e.end.acting[HV_EPOCH_NOW] != 0, copies);
      round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
      if (copies)
        acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_RETURN, 1);
      assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
      assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_REPLICA_STATE));
      assert_int_equal(s->e.told, 0);
      assert_true(hv_mark_equal(&before, &s->e.lineage->mark) && hv_epoch_is_free(&s->e));
      assert_int_equal(s->ledger.sums, 2 * BATCH);
      batch(s);
      assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
      epoch_is_over(s);
      batch(s);
      assert_non_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS));
      assert_int_equal(s->e.end.samples, 4 * BATCH);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
      averages_gradients(s, HV_EPOCH_NOW);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
      assert_int_equal(s->ledger.averaged, 4 * BATCH);
    }
}

/* All samples are there, the epoch was held, the others have made the step, or nobody else is counted. */
static void round_of_nobody_is_stepped_alone_if_the_epoch_is_over(void **unused) {
  (void)unused;
  enum { READY, HELD, PAST, ALONE, CASES };
  for (int i = READY; i < CASES; i++) {
    scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 3}, HV_EPOCH_NOW);
    s->f.ready = i == READY;
    s->e.hold.is_due = i == HELD;
    s->f.epoch = i == PAST;
    s->f.n_peers = i == ALONE ? 1 : 2;
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
    assert_int_equal(s->ledger.kept, 2 * BATCH);
  }
}

/* Rule 20: the sums could not be given back. */
static void samples_that_could_not_return_are_lost(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 3}, HV_EPOCH_NOW);
  epoch_begins(s);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_RETURN);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BROKE, .number = s->e.end.acting[HV_EPOCH_NOW]});
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->ledger.lost_by[HV_EPOCH_LOSS_BROKEN], 2 * BATCH);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epoch_that_lacks_samples_after_a_round_of_nobody_lasts),
      cmocka_unit_test(round_of_nobody_is_stepped_alone_if_the_epoch_is_over),
      cmocka_unit_test(samples_that_could_not_return_are_lost),
  };
  return cmocka_run_group_tests_name("epoch: returns", tests, NULL, NULL);
}
