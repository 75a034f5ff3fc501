/* An epoch that is held for those on their way into it (rule 22). */
#include "lib/epoch_scene.h"

/* The samples are there, and somebody loads the state of this epoch. */
static scene *at_the_end_of_an_epoch(uint64_t epoch_us) {
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  s->e.offers.epoch_us = epoch_us;
  epoch_is_over(s);
  s->f.n_coming = 1;
  return s;
}

static void short_epoch_goes_on_until_a_newcomer_is_there(void **unused) {
  (void)unused;
  scene *s = at_the_end_of_an_epoch(SECOND / 10);
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(hv_epoch_waits(&s->e), HV_EPOCH_WAITS_HELD);
  assert_null(has(s, HV_EPOCH_SEEK)); /* a group would form without it */
  s->f.n_coming = 0;
  s->f.ready = s->f.match = 0; /* fewer samples of one peer count beside newcomers */
  s->f.n_behind = 1;           /* another one, whose machine may be gone */
  s->f.n_peers = 3;
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  assert_int_equal(s->e.end.samples, 3 * BATCH); /* what was made meanwhile counts */
}

static void long_epoch_is_not_held_beside_others(void **unused) {
  (void)unused;
  scene *s = at_the_end_of_an_epoch(2 * SECOND);
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  s = at_the_end_of_an_epoch(2 * SECOND);
  s->f.n_peers = 1; /* alone it is */
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

/* Records of those who never come, or come and go, cost nothing. Two holds, then a tenth of the time. */
static void absent_newcomers_hold_a_tenth_of_the_time(void **unused) {
  (void)unused;
  for (int goes = 0; goes <= 1; goes++) {
    scene *s = at_the_end_of_an_epoch(SECOND / 10);
    uint64_t held_us = 0, began_us = s->now_us;
    for (int turn = 0; s->now_us < began_us + 200 * (uint64_t)SECOND; turn++) {
      epoch_is_over(s);
      s->f.n_coming = !goes || turn % 20 != 0;
      s->f.n_peers = 1;
      s->e.offers.epoch_us = SECOND / 10;
      s->now_us += SECOND / 10;
      if (hv_epoch_is_free(&s->e))
        batch(s);
      held_us += hv_epoch_waits(&s->e) == HV_EPOCH_WAITS_HELD ? SECOND / 10 : 0;
      for (int i = 0; i < 8 && s->e.end.acting[HV_EPOCH_NOW]; i++)
        on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[HV_EPOCH_NOW], .ok = 1});
    }
    assert_true(held_us >= 20 * (uint64_t)SECOND && held_us <= 32 * (uint64_t)SECOND);
    assert_true(s->e.told > 1000);
  }
}

/* It stepped by itself, and all others are behind it: they look for its state. */
static void peer_that_went_on_alone_waits_for_the_others(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 9}, HV_EPOCH_NOW);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  epoch_is_over(s);
  s->f.n_behind = 1;
  batch(s);
  assert_int_equal(hv_epoch_waits(&s->e), HV_EPOCH_WAITS_HELD);
  s->f.n_behind = 0;
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  averages_gradients(s, HV_EPOCH_NOW);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  epoch_is_over(s);
  s->f.n_behind = 1; /* as the record says that is older than that round */
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_epoch_goes_on_until_a_newcomer_is_there),
      cmocka_unit_test(long_epoch_is_not_held_beside_others),
      cmocka_unit_test(absent_newcomers_hold_a_tenth_of_the_time),
      cmocka_unit_test(peer_that_went_on_alone_waits_for_the_others),
  };
  return cmocka_run_group_tests_name("epoch: held", tests, NULL, NULL);
}
