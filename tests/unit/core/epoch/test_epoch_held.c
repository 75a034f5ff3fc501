/* Those on their way into an epoch: it is held for them, its groups form late, and a state is offered (rules 5, 15 and 22). */
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

/* A load takes two thirds of an epoch of 30 s. In its second half the others formed their group, the newcomer was left out, loaded
 * again, and kept step with its own lateness. */
static void group_is_not_sought_early_while_a_newcomer_loads(void **unused) {
  (void)unused;
  for (size_t n_coming = 0; n_coming <= 1; n_coming++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
    gathers(s);
    s->f = (hv_progress_figures){.samples = TARGET * 3 / 4, .speed = 2, .n_peers = 2, .n_coming = n_coming, .match = 1};
    s->f.eta_us = 8 * SECOND;
    batch(s);
    assert_int_equal(has(s, HV_EPOCH_SEEK) != NULL, !n_coming);
    s->f.eta_us = SECOND / 2; /* its word costs nothing, so the end is not delayed for it */
    batch(s);
    assert_int_equal(has(s, HV_EPOCH_SEEK) != NULL, n_coming);
  }
}

/* Beside another, in an epoch whose state is not its own to offer by turn: a copy takes a second. */
static scene *in_an_epoch_that_is_not_offered(void) {
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  s->e.offers.cost_us = SECOND;
  s->e.offers.counted_us = s->now_us;
  return s;
}

/* 1: this batch was followed by a copy of the state, which took a second, for the next offer. */
static int offers_after_a_batch(scene *s) {
  batch(s);
  if (!s->e.end.acting[HV_EPOCH_NOW])
    return 0;
  s->now_us += SECOND;
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_SNAPSHOT);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[HV_EPOCH_NOW], .ok = 1, .took_us = SECOND});
  assert_non_null(has(s, HV_EPOCH_OFFER));
  return 1;
}

/* Offers came each eighth epoch, and the newcomer doubted trainers that had made none meanwhile. */
static void newcomer_is_offered_the_state_of_any_epoch(void **unused) {
  (void)unused;
  scene *s = in_an_epoch_that_is_not_offered();
  assert_int_equal(offers_after_a_batch(s), 0);
  s->f.n_coming = 1;
  assert_int_equal(offers_after_a_batch(s), 1);
  assert_int_equal(offers_after_a_batch(s), 0); /* it stands */
}

/* A liar comes for ever, in epochs of 5 s. Eight copies, then a fiftieth of the time. */
static void newcomers_that_never_arrive_get_few_copies(void **unused) {
  (void)unused;
  enum { EPOCHS = 200 };
  scene *s = in_an_epoch_that_is_not_offered();
  unsigned copies = 0;
  for (s->f.n_coming = 1; s->e.told < EPOCHS; s->e.made = ++s->e.told) {
    s->f.epoch = s->e.told;
    s->e.offers.counted_us = s->now_us;
    copies += (unsigned)offers_after_a_batch(s);
    s->now_us += 5 * SECOND;
  }
  assert_in_range(copies, HV_EPOCH_OFFER_BURST + EPOCHS * 5 / HV_EPOCH_OFFER_COST,
                  HV_EPOCH_OFFER_BURST + EPOCHS * 6 / HV_EPOCH_OFFER_COST + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_epoch_goes_on_until_a_newcomer_is_there),
      cmocka_unit_test(long_epoch_is_not_held_beside_others),
      cmocka_unit_test(absent_newcomers_hold_a_tenth_of_the_time),
      cmocka_unit_test(peer_that_went_on_alone_waits_for_the_others),
      cmocka_unit_test(group_is_not_sought_early_while_a_newcomer_loads),
      cmocka_unit_test(newcomer_is_offered_the_state_of_any_epoch),
      cmocka_unit_test(newcomers_that_never_arrive_get_few_copies),
  };
  return cmocka_run_group_tests_name("epoch: held", tests, NULL, NULL);
}
