/* The plans of all options: the lists of the common ones, and properties that hold for each. */
#include "lib/check.h"

#include "core/epoch/plan.h"

#include <string.h>

enum { N_FLAGS = 7 };

/* The options of a number, a bit for each flag. False: they contradict each other. */
static int options_of(unsigned bits, uint64_t every, hv_epoch_options *out) {
  *out = (hv_epoch_options){.use_local_updates = bits & 1,
                            .delay_grad_averaging = bits >> 1 & 1,
                            .delay_optimizer_step = bits >> 2 & 1,
                            .delay_state_averaging = bits >> 3 & 1,
                            .offload = bits >> 4 & 1,
                            .auxiliary = bits >> 5 & 1,
                            .outer = bits >> 6 & 1,
                            .average_state_every = every};
  return hv_epoch_options_check(out, NULL) == HV_OK;
}

static void assert_list(const uint8_t *list, size_t n, const char *expected) {
  char text[256] = "";
  for (size_t i = 0; i < n; i++) {
    strcat(text, i ? " " : "");
    strcat(text, hv_epoch_action_name((hv_epoch_action)list[i]));
  }
  assert_string_equal(text, expected);
}

static void assert_plan(hv_epoch_plan plan, const char *now, const char *late) {
  assert_list(plan.now, plan.n_now, now);
  assert_list(plan.late, plan.n_late, late);
}

static void assert_end(hv_epoch_options options, const char *now, const char *late) {
  options.average_state_every = 2;
  assert_int_equal(hv_epoch_options_check(&options, NULL), HV_OK);
  hv_epoch_traits traits = hv_epoch_traits_of(&options);
  assert_plan(*hv_epoch_plan_end(&traits, 4, 0), now, late);
}

static void each_option_has_its_plan(void **unused) {
  (void)unused;
  assert_end((hv_epoch_options){0}, "AVERAGE_GRADIENTS STEP SCHEDULE COUNT AVERAGE_STATE APPLY", "");
  assert_end((hv_epoch_options){.delay_state_averaging = 1}, "AVERAGE_GRADIENTS STEP SCHEDULE COUNT", "AVERAGE_STATE APPLY");
  assert_end((hv_epoch_options){.delay_state_averaging = 1, .offload = 1}, "AVERAGE_GRADIENTS STEP SCHEDULE COUNT APPLY",
             "AVERAGE_STATE APPLY");
  assert_end((hv_epoch_options){.delay_optimizer_step = 1, .offload = 1}, "AVERAGE_GRADIENTS COUNT",
             "STEP SCHEDULE AVERAGE_STATE APPLY");
  assert_end((hv_epoch_options){.delay_grad_averaging = 1, .delay_optimizer_step = 1, .offload = 1}, "COUNT",
             "AVERAGE_GRADIENTS STEP SCHEDULE AVERAGE_STATE APPLY");
  assert_end((hv_epoch_options){.use_local_updates = 1}, "SCHEDULE COUNT AVERAGE_STATE APPLY", "");
  assert_end((hv_epoch_options){.use_local_updates = 1, .delay_state_averaging = 1}, "SCHEDULE COUNT", "AVERAGE_STATE APPLY");
  assert_end((hv_epoch_options){.use_local_updates = 1, .outer = 1}, "AVERAGE_GRADIENTS STEP SCHEDULE COUNT APPLY", "");
  assert_end((hv_epoch_options){.use_local_updates = 1, .outer = 1, .auxiliary = 1}, "AVERAGE_GRADIENTS COUNT", "");
  assert_end((hv_epoch_options){.auxiliary = 1, .delay_state_averaging = 1}, "AVERAGE_GRADIENTS COUNT AVERAGE_STATE", "");
}

static void batch_is_summed_or_stepped(void **unused) {
  (void)unused;
  hv_epoch_options o = {.average_state_every = 1};
  assert_plan(hv_epoch_traits_of(&o).batch, "SUM", "");
  o.auxiliary = 1;
  assert_plan(hv_epoch_traits_of(&o).batch, "", "");
  o = (hv_epoch_options){.average_state_every = 1, .use_local_updates = 1};
  assert_plan(hv_epoch_traits_of(&o).batch, "LOCAL_STEP", "");
  o.offload = 1;
  assert_plan(hv_epoch_traits_of(&o).batch, "LOCAL_STEP APPLY", "");
  o.delay_optimizer_step = 1;
  assert_plan(hv_epoch_traits_of(&o).batch, "", "LOCAL_STEP APPLY");
}

static void assert_refused(hv_epoch_options options, const char *word) {
  hv_error err = {0};
  assert_int_equal(hv_epoch_options_check(&options, &err), HV_INVALID);
  assert_non_null(strstr(err.text, word));
}

static void contradicting_options_are_refused(void **unused) {
  (void)unused;
  assert_refused((hv_epoch_options){.average_state_every = 1, .delay_grad_averaging = 1, .use_local_updates = 1},
                 "cannot be combined with use_local_updates");
  assert_refused((hv_epoch_options){.average_state_every = 1, .delay_grad_averaging = 1}, "needs delay_optimizer_step=True");
  assert_refused((hv_epoch_options){.average_state_every = 1, .delay_optimizer_step = 1}, "offload_optimizer=True");
  assert_refused((hv_epoch_options){.average_state_every = 1, .outer = 1}, "use_local_updates=True");
  assert_refused((hv_epoch_options){.average_state_every = 1, .outer = 1, .use_local_updates = 1, .offload = 1},
                 "outer_optimizer cannot be combined");
  assert_refused((hv_epoch_options){0}, "1 or more");
  hv_epoch_options follows = {.average_state_every = 1, .delay_grad_averaging = 1, .auxiliary = 1}; /* it has no step */
  assert_int_equal(hv_epoch_options_check(&follows, NULL), HV_OK);
  assert_int_equal(hv_epoch_traits_of(&follows).lead, 1);
}

/* The place of an action in the order in which an epoch's end does them. */
static size_t last_place(const uint8_t *list, size_t n, hv_epoch_action action) {
  for (size_t i = n; i > 0; i--)
    if (list[i - 1] == action)
      return i;
  return 0;
}

static void assert_sound(const hv_epoch_options *o, const hv_epoch_plan *plan, uint64_t next_epoch, int alone) {
  static const hv_epoch_action order[] = {HV_EPOCH_AVERAGE_GRADIENTS, HV_EPOCH_STEP, HV_EPOCH_SCHEDULE, HV_EPOCH_AVERAGE_STATE};
  size_t before = 0, counts[HV_EPOCH_ACTIONS] = {0};
  for (size_t i = 0; i < plan->n_now; i++)
    counts[plan->now[i]]++;
  for (size_t i = 0; i < plan->n_late; i++)
    counts[plan->late[i]]++;
  for (int i = 0; i < HV_EPOCH_APPLY; i++)
    assert_true(counts[i] <= 1);
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    size_t now = last_place(plan->now, plan->n_now, order[i]), late = last_place(plan->late, plan->n_late, order[i]);
    size_t place = now ? now : late ? HV_EPOCH_PLAN_MAX + late : 0;
    assert_true(!place || place > before);
    before = place ? place : before;
  }
  assert_true(last_place(plan->now, plan->n_now, HV_EPOCH_COUNT));
  assert_true(!plan->n_late || plan->late[plan->n_late - 1] == HV_EPOCH_APPLY);
  assert_true(!plan->n_late || o->delay_optimizer_step || o->delay_state_averaging);
  int sums = !o->use_local_updates || o->outer;
  assert_int_equal(counts[HV_EPOCH_STEP], !o->auxiliary && sums);
  assert_int_equal(counts[HV_EPOCH_AVERAGE_GRADIENTS], !alone && sums);
  assert_int_equal(counts[HV_EPOCH_AVERAGE_STATE], !alone && !o->outer && next_epoch % o->average_state_every == 0);
  assert_true(!o->offload || !counts[HV_EPOCH_STEP] || counts[HV_EPOCH_APPLY]);
  assert_int_equal(hv_epoch_plan_has(plan, HV_EPOCH_STEP), counts[HV_EPOCH_STEP]);
}

static void plans_of_all_options_are_sound(void **unused) {
  (void)unused;
  size_t n = 0;
  for (unsigned bits = 0; bits < 1u << N_FLAGS; bits++)
    for (uint64_t every = 1; every <= 5; every += 2) {
      hv_epoch_options o;
      if (!options_of(bits, every, &o))
        continue;
      n++;
      for (uint64_t epoch = 1; epoch <= 10; epoch++)
        for (int alone = 0; alone < 2; alone++) {
          hv_epoch_traits traits = hv_epoch_traits_of(&o);
          assert_sound(&o, hv_epoch_plan_end(&traits, epoch, alone), epoch, alone);
        }
    }
  assert_true(n > 30);
}

static void state_epoch_is_that_of_the_last_averaging(void **unused) {
  (void)unused;
  hv_epoch_options o = {.average_state_every = 5};
  hv_epoch_traits of_sums = hv_epoch_traits_of(&o);
  assert_int_equal(hv_epoch_state_epoch(&of_sums, 13), 13);
  o.use_local_updates = 1;
  hv_epoch_traits traits = hv_epoch_traits_of(&o);
  assert_int_equal(hv_epoch_state_epoch(&traits, 13), 10);
  assert_int_equal(hv_epoch_state_epoch(&traits, 15), 15);
  assert_true(hv_epoch_averages_state_at(&traits, 15) && !hv_epoch_averages_state_at(&traits, 14));
  assert_int_equal(hv_epoch_state_number(&traits, 14), 2);
  assert_int_equal(hv_epoch_state_number(&traits, 15), 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_option_has_its_plan),
      cmocka_unit_test(batch_is_summed_or_stepped),
      cmocka_unit_test(contradicting_options_are_refused),
      cmocka_unit_test(plans_of_all_options_are_sound),
      cmocka_unit_test(state_epoch_is_that_of_the_last_averaging),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
