/* The figures between two counts: the program reports, or ceases to, while the view stands. */
#include "lib/check.h"

#include "core/progress/progress.h"

static const hv_progress_terms TERMS = {.target = 32, .max_refresh_ms = 10000};

static hv_progress_figures now(size_t n, int mine, const hv_progress_own *own) {
  hv_progress_view view = {.tally = {.any = n > 0, .epoch = 2, .n = n, .others_samples = 1000, .most_samples = 1e6}, .mine = mine};
  hv_progress_figures out;
  hv_progress_now(&view, own, &TERMS, 0, &out);
  return out;
}

static void own_report_counts_before_the_next_count(void **unused) {
  (void)unused;
  hv_progress_own own = {.any = 1, .epoch = 2, .samples = 5};
  hv_progress_figures f = now(1, 0, &own); /* it has just loaded the state, and knows one that trains */
  assert_int_equal(f.n_peers, 2);
  assert_true(f.samples == 1005 && f.ready);
  assert_int_equal(now(2, 1, &own).n_peers, 2);
}

static void withdrawn_report_does_not_count(void **unused) {
  (void)unused;
  hv_progress_own none = {0};
  assert_int_equal(now(2, 1, &none).n_peers, 1);
  assert_int_equal(now(1, 1, &none).n_peers, 0);
  assert_int_equal(now(1, 0, &none).n_peers, 1);
}

static void alone_only_own_samples_count(void **unused) {
  (void)unused;
  hv_progress_own own = {.any = 1, .epoch = 7, .samples = 5};
  for (int mine = 0; mine <= 1; mine++) {
    hv_progress_figures f = now((size_t)mine, mine, &own);
    assert_int_equal(f.n_peers, 1);
    assert_true(f.epoch == 7 && f.samples == 5 && !f.ready);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_report_counts_before_the_next_count),
      cmocka_unit_test(withdrawn_report_does_not_count),
      cmocka_unit_test(alone_only_own_samples_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
