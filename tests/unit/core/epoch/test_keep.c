/* Which states a hub keeps: each rule of docs/design/hub.md, "The state", that the core decides, as one scene. */
#include "lib/check.h"

#include "core/epoch/keep.h"

#include <string.h>

#define SETUP "target_batch_size: 64"
#define OTHER "target_batch_size: 32"

static hv_span text(const char *setup) {
  return hv_span_of(setup, strlen(setup));
}

static const hv_keep_trainers nobody;

static hv_keep_trainers trainers(uint64_t epoch, const char *setup) {
  return (hv_keep_trainers){1, epoch, text(setup)};
}

static void hold(hv_keep *k, uint64_t epoch, const char *setup) {
  hv_keep_state state = {epoch, text(setup)};
  hv_keep_hold(k, &state);
}

static hv_keep holding(uint64_t every, uint64_t epoch, const char *setup) {
  hv_keep k;
  hv_keep_init(&k, every);
  hold(&k, epoch, setup);
  return k;
}

static void assert_verdict(const hv_keep *k, uint64_t epoch, const char *setup, hv_keep_trainers now, hv_keep_verdict verdict,
                           hv_keep_fault fault) {
  hv_keep_state state = {epoch, text(setup)};
  hv_keep_fault found;
  assert_string_equal(hv_keep_verdict_name(hv_keep_judge(k, &state, &now, &found)), hv_keep_verdict_name(verdict));
  assert_string_equal(hv_keep_fault_name(found), hv_keep_fault_name(fault));
}

static void assert_least(const hv_keep *k, hv_keep_trainers now, uint64_t least) {
  assert_int_equal(hv_keep_least(k, &now), least);
}

/* A look at a moment, whose question is answered with a state of this epoch; without a LOOK nothing is asked. */
static hv_keep_step look(hv_keep *k, hv_keep_trainers now, uint64_t on_offer) {
  hv_keep_step step = hv_keep_look(k, &now, k->holds);
  return step == HV_KEEP_STEP_LOOK ? hv_keep_found(k, on_offer) : HV_KEEP_STEP_REST;
}

/* ---- rule 1 ---- */

static void hub_without_a_state_takes_any(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 5);
  assert_least(&k, trainers(7, SETUP), 0);
  assert_int_equal(look(&k, trainers(0, SETUP), 0), HV_KEEP_STEP_LOAD);
  assert_verdict(&k, 0, SETUP, trainers(0, SETUP), HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE);
}

static void next_state_is_newer_by_every_epochs(void **unused) {
  (void)unused;
  hv_keep k = holding(3, 4, SETUP);
  hv_keep_trainers now = trainers(10, SETUP);
  assert_least(&k, now, 7);
  assert_int_equal(look(&k, now, 6), HV_KEEP_STEP_REST);
  assert_int_equal(look(&k, now, 7), HV_KEEP_STEP_LOAD);
  assert_verdict(&k, 6, SETUP, now, HV_KEEP_VERDICT_OLD, HV_KEEP_FAULT_NONE);
  assert_verdict(&k, 7, SETUP, now, HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE);
}

/* States of epoch 0 are states: a hub that holds one asks for a later one. */
static void state_of_epoch_0_is_held(void **unused) {
  (void)unused;
  hv_keep k = holding(1, 0, SETUP);
  assert_least(&k, trainers(0, SETUP), 1);
  assert_verdict(&k, 0, SETUP, trainers(0, SETUP), HV_KEEP_VERDICT_OLD, HV_KEEP_FAULT_NONE);
}

static void looks_become_rare_while_nothing_comes(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 1);
  assert_int_equal(k.pause_us, 1000000);
  for (int i = 0; i < 10; i++) {
    uint64_t before = k.pause_us;
    hv_keep_looked(&k, 0, 30000000);
    assert_in_range(k.pause_us, before, HV_KEEP_MOST_US);
  }
  assert_int_equal(k.pause_us, 5000000);
  hv_keep_looked(&k, 1, 1000);
  assert_int_equal(k.pause_us, 1000000);
}

/* ---- rule 5 ---- */

static void hub_waits_as_long_as_a_download_took(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 1);
  hv_keep_looked(&k, 1, 90000000);
  assert_int_equal(k.pause_us, 90000000);
  hv_keep_looked(&k, 0, 1000);
  assert_int_equal(k.pause_us, 5000000);
  hv_keep_looked(&k, 1, UINT64_MAX);
  hv_keep_looked(&k, 0, UINT64_MAX);
  assert_int_equal(k.pause_us, 5000000);
}

/* ---- rule 6 ---- */

static void state_two_epochs_beyond_the_count_is_within_reach(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 1);
  hv_keep_trainers now = trainers(5, SETUP);
  assert_int_equal(look(&k, now, 7), HV_KEEP_STEP_LOAD);
  assert_int_equal(look(&k, now, 8), HV_KEEP_STEP_REST);
  assert_verdict(&k, 7, SETUP, now, HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE);
  assert_verdict(&k, 8, SETUP, now, HV_KEEP_VERDICT_REFUSE, HV_KEEP_FAULT_AHEAD);
  assert_verdict(&k, UINT64_MAX, SETUP, now, HV_KEEP_VERDICT_REFUSE, HV_KEEP_FAULT_AHEAD);
}

static void state_of_another_setup_is_refused(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 1);
  assert_verdict(&k, 5, OTHER, trainers(5, SETUP), HV_KEEP_VERDICT_REFUSE, HV_KEEP_FAULT_SETUP);
  assert_verdict(&k, 5, "", trainers(5, SETUP), HV_KEEP_VERDICT_REFUSE, HV_KEEP_FAULT_SETUP);
  assert_verdict(&k, 5, OTHER, trainers(5, ""), HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE); /* theirs is not known yet */
}

static void held_state_stays_while_nobody_is_counted(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 1);
  assert_int_equal(look(&k, nobody, 5), HV_KEEP_STEP_LOAD); /* trainers that have gone left it */
  hold(&k, 5, SETUP);
  assert_int_equal(hv_keep_look(&k, &nobody, 0), HV_KEEP_STEP_REST);
  assert_least(&k, nobody, 6);
}

static void no_state_is_of_an_epoch_that_no_run_reaches(void **unused) {
  (void)unused;
  hv_keep k;
  hv_keep_init(&k, 1);
  assert_int_equal(look(&k, nobody, HV_GIFT_EPOCH_MAX), HV_KEEP_STEP_LOAD);
  assert_int_equal(look(&k, nobody, HV_GIFT_EPOCH_MAX + 1), HV_KEEP_STEP_REST);
  assert_verdict(&k, HV_GIFT_EPOCH_MAX, "", nobody, HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE);
  assert_verdict(&k, HV_GIFT_EPOCH_MAX + 1, "", nobody, HV_KEEP_VERDICT_REFUSE, HV_KEEP_FAULT_UNREACHED);
}

static void trainers_are_counted_once_the_swarm_was_heard(void **unused) {
  (void)unused;
  assert_false(hv_keep_are_counted(0, 3));
  assert_false(hv_keep_are_counted(1, 0));
  assert_true(hv_keep_are_counted(1, 1));
}

/* ---- rule 7 ---- */

static void counted_trainers_let_a_smaller_majority_decide(void **unused) {
  (void)unused;
  hv_keep k = holding(1, 4, SETUP);
  hv_keep_trainers now = trainers(5, SETUP);
  assert_int_equal(hv_keep_look(&k, &now, 1), HV_KEEP_STEP_LOOK);
  assert_int_equal(k.known, 5);
  assert_int_equal(hv_keep_found(&k, 7), HV_KEEP_STEP_LOAD);
  assert_int_equal(k.known, 5);
}

static void usual_majority_decides_beyond_the_trainers(void **unused) {
  (void)unused;
  hv_keep k = holding(1, 4, SETUP);
  hv_keep_trainers now = trainers(5, SETUP), before = trainers(4, SETUP), far = trainers(3, SETUP);
  assert_int_equal(hv_keep_look(&k, &now, 1), HV_KEEP_STEP_LOOK);
  assert_int_equal(hv_keep_found(&k, 8), HV_KEEP_STEP_LOOK); /* of a liar */
  assert_int_equal(k.known, 0);
  assert_int_equal(hv_keep_found(&k, 8), HV_KEEP_STEP_REST); /* of many: it is asked once more only */
  hv_keep_look(&k, &now, 1);
  hv_keep_found(&k, 8);
  assert_int_equal(hv_keep_found(&k, 5), HV_KEEP_STEP_LOAD);
  assert_int_equal(hv_keep_look(&k, &before, 1), HV_KEEP_STEP_LOOK); /* nobody is counted at 5 yet */
  assert_int_equal(k.known, 0);
  assert_int_equal(hv_keep_look(&k, &far, 1), HV_KEEP_STEP_LOOK); /* the next state may be 2 epochs beyond them */
}

static void hub_does_not_look_beyond_the_reach_of_trainers(void **unused) {
  (void)unused;
  hv_keep k = holding(10, 4, SETUP);
  hv_keep_trainers before = trainers(11, SETUP), now = trainers(12, SETUP);
  assert_int_equal(hv_keep_look(&k, &before, 1), HV_KEEP_STEP_REST);
  assert_int_equal(hv_keep_look(&k, &now, 1), HV_KEEP_STEP_LOOK);
}

/* ---- rule 8 ---- */

static void held_far_state_gives_way_to_the_first_of_the_trainers(void **unused) {
  (void)unused;
  hv_keep k = holding(1, UINT64_C(1) << 40, SETUP);
  assert_least(&k, trainers(0, SETUP), 1);
  assert_verdict(&k, 0, SETUP, trainers(0, SETUP), HV_KEEP_VERDICT_OLD, HV_KEEP_FAULT_NONE); /* they may still load it */
  assert_int_equal(look(&k, trainers(0, SETUP), 0), HV_KEEP_STEP_REST);
  assert_int_equal(look(&k, trainers(1, SETUP), 1), HV_KEEP_STEP_LOAD);
  assert_verdict(&k, 1, SETUP, trainers(1, SETUP), HV_KEEP_VERDICT_REPLACE, HV_KEEP_FAULT_AHEAD);
  hold(&k, 1, SETUP);
  assert_verdict(&k, 2, SETUP, trainers(2, SETUP), HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE);
}

static void held_state_of_another_setup_gives_way(void **unused) {
  (void)unused;
  hv_keep k = holding(1, 48, OTHER);
  assert_verdict(&k, 2, SETUP, trainers(47, SETUP), HV_KEEP_VERDICT_REPLACE, HV_KEEP_FAULT_SETUP);
  assert_verdict(&k, 49, SETUP, trainers(49, SETUP), HV_KEEP_VERDICT_KEEP, HV_KEEP_FAULT_NONE); /* it is newer in any case */
  assert_verdict(&k, 2, SETUP, trainers(48, OTHER), HV_KEEP_VERDICT_REFUSE, HV_KEEP_FAULT_SETUP);
}

/* ---- bounds ---- */

/* A joiner on a slow line holds one for long, and the hub still takes the next. */
static void slow_joiner_leaves_room_for_the_next_state(void **unused) {
  (void)unused;
  hv_keep k = holding(1, 4, SETUP);
  hv_keep_trainers now = trainers(5, SETUP);
  assert_true(hv_keep_has_room(2));
  assert_false(hv_keep_has_room(3));
  assert_int_equal(hv_keep_look(&k, &now, 3), HV_KEEP_STEP_REST);
  assert_int_equal(hv_keep_look(&k, &now, 2), HV_KEEP_STEP_LOOK);
}

static void largest_numbers_do_not_wrap(void **unused) {
  (void)unused;
  hv_keep k = holding(UINT64_MAX, 4, SETUP);
  assert_least(&k, trainers(5, SETUP), UINT64_MAX);
  assert_int_equal(look(&k, trainers(5, SETUP), 7), HV_KEEP_STEP_REST);
  assert_verdict(&k, 7, SETUP, trainers(UINT64_MAX, SETUP), HV_KEEP_VERDICT_OLD, HV_KEEP_FAULT_NONE);
}

/* At any numbers the hub keeps a state that it loads, and asks twice at most.
 */
static void loaded_state_is_kept_at_any_numbers(void **unused) {
  (void)unused;
  check_rng rng = {1};
  unsigned n_loads = 0, n_replaced = 0;
  for (int i = 0; i < 100000; i++) {
    hv_keep k;
    hv_keep_init(&k, 1 + check_random(&rng) % 3);
    if (check_random(&rng) % 4)
      hold(&k, check_random(&rng) % 12, check_random(&rng) % 2 ? SETUP : OTHER);
    hv_keep_trainers now = check_random(&rng) % 4 ? trainers(check_random(&rng) % 12, SETUP) : nobody;
    hv_keep_step step = hv_keep_look(&k, &now, 0);
    uint64_t epoch = check_random(&rng) % 16;
    int n_looks = 0;
    for (; step == HV_KEEP_STEP_LOOK && n_looks < 3; n_looks++)
      step = hv_keep_found(&k, epoch);
    assert_in_range(n_looks, 0, 2);
    if (step != HV_KEEP_STEP_LOAD)
      continue;
    hv_keep_state state = {epoch, text(SETUP)};
    hv_keep_fault fault;
    hv_keep_verdict verdict = hv_keep_judge(&k, &state, &now, &fault);
    n_loads++;
    n_replaced += verdict == HV_KEEP_VERDICT_REPLACE;
    assert_true(verdict == HV_KEEP_VERDICT_KEEP || (verdict == HV_KEEP_VERDICT_REPLACE && fault != HV_KEEP_FAULT_NONE));
    assert_true(epoch >= hv_keep_least(&k, &now) && (!now.any || epoch <= now.epoch + HV_KEEP_AHEAD));
    assert_true(!k.known || (k.known <= epoch && k.known <= now.epoch));
  }
  assert_true(n_loads > 1000 && n_replaced > 100);
}

static void names_are_known_and_others_are_not(void **unused) {
  (void)unused;
  assert_string_equal(hv_keep_step_name(HV_KEEP_STEP_LOAD), "LOAD");
  assert_string_equal(hv_keep_step_name(HV_KEEP_STEPS), "?");
  assert_string_equal(hv_keep_verdict_name(HV_KEEP_VERDICTS), "?");
  assert_string_equal(hv_keep_fault_name(HV_KEEP_FAULTS), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hub_without_a_state_takes_any),
      cmocka_unit_test(next_state_is_newer_by_every_epochs),
      cmocka_unit_test(state_of_epoch_0_is_held),
      cmocka_unit_test(looks_become_rare_while_nothing_comes),
      cmocka_unit_test(hub_waits_as_long_as_a_download_took),
      cmocka_unit_test(state_two_epochs_beyond_the_count_is_within_reach),
      cmocka_unit_test(state_of_another_setup_is_refused),
      cmocka_unit_test(held_state_stays_while_nobody_is_counted),
      cmocka_unit_test(no_state_is_of_an_epoch_that_no_run_reaches),
      cmocka_unit_test(trainers_are_counted_once_the_swarm_was_heard),
      cmocka_unit_test(counted_trainers_let_a_smaller_majority_decide),
      cmocka_unit_test(usual_majority_decides_beyond_the_trainers),
      cmocka_unit_test(hub_does_not_look_beyond_the_reach_of_trainers),
      cmocka_unit_test(held_far_state_gives_way_to_the_first_of_the_trainers),
      cmocka_unit_test(held_state_of_another_setup_gives_way),
      cmocka_unit_test(slow_joiner_leaves_room_for_the_next_state),
      cmocka_unit_test(largest_numbers_do_not_wrap),
      cmocka_unit_test(loaded_state_is_kept_at_any_numbers),
      cmocka_unit_test(names_are_known_and_others_are_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
