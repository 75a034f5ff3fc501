/* How fast should connections send? The speed that a round measures, its use, and the rounds without pacing. */
#include "lib/check.h"

#include "core/util/flow.h"

#define MB 1000000ull

/* Eight hundred pieces, each eighth at a rate of its own (MB/s). */
static hv_flow flow_of(const unsigned rates[8]) {
  hv_flow flow = {.total = 800 * MB};
  uint64_t now = 5000000;
  for (int i = 0; i < 800; i++)
    hv_flow_saw(&flow, now += 1000000 / rates[i / 100], MB);
  return flow;
}

static void the_second_fastest_eighth_tells_the_speed(void **unused) {
  (void)unused;
  hv_flow even = flow_of((unsigned[]){2, 10, 10, 10, 10, 10, 10, 4});
  assert_int_equal(hv_flow_rate(&even), 10 * MB);
  hv_flow burst = flow_of((unsigned[]){2, 8, 10, 5, 5, 40, 10, 4}); /* what had been waiting came at once */
  assert_int_equal(hv_flow_rate(&burst), 10 * MB);
  hv_flow begin = flow_of((unsigned[]){100, 10, 8, 5, 5, 5, 5, 4}); /* what lay there before this member began */
  assert_int_equal(hv_flow_rate(&begin), 8 * MB);
}

static void half_a_round_or_one_at_a_stroke_tells_nothing(void **unused) {
  (void)unused;
  hv_flow flow = {.total = 8 * MB}, nothing = {0};
  assert_int_equal(hv_flow_rate(&nothing), 0);
  for (int i = 0; i < 3; i++)
    hv_flow_saw(&flow, 1000000 + (uint64_t)i * 100000, MB);
  assert_int_equal(hv_flow_rate(&flow), 0);
  hv_flow stroke = {.total = 8 * MB};
  for (int i = 0; i < 8; i++)
    hv_flow_saw(&stroke, 1000000, MB);
  assert_int_equal(hv_flow_rate(&stroke), 0);
}

/* Waiting for what was lost is most of the time that a few bytes take. */
static void a_small_round_tells_nothing(void **unused) {
  (void)unused;
  hv_flow small = {.total = HV_FLOW_LEAST - 1}, enough = {.total = HV_FLOW_LEAST};
  for (uint64_t i = 1; i <= 8; i++) {
    hv_flow_saw(&small, i * 250000, HV_FLOW_LEAST / 8);
    hv_flow_saw(&enough, i * 250000, HV_FLOW_LEAST / 8);
  }
  assert_int_equal(hv_flow_rate(&small), 0);
  assert_int_equal(hv_flow_rate(&enough), HV_FLOW_LEAST / 8 * 4);
}

/* A line of 12 that is as good as full when the pace is right, and loses a part of that when several find it by themselves. */
static uint64_t round_at(uint64_t speed) {
  uint64_t line = 12 * MB;
  return speed == 0 ? line * 9 / 10 : speed < line ? speed * 99 / 100 : line * 99 / 100;
}

static void a_rate_that_is_too_low_grows_and_one_that_is_right_stays(void **unused) {
  (void)unused;
  hv_flow_past past = {0};
  for (int i = 0; i < 30; i++) {
    hv_flow_learn(&past, round_at(past.speed));
    if (i > 4)
      assert_in_range(past.speed, 12 * MB, 15 * MB);
  }
  assert_in_range(past.speed, 12 * MB, 13 * MB);
  past.speed = past.before = 2 * MB; /* the line had been another's */
  int rounds = 0;
  for (; past.speed < 12 * MB; rounds++)
    hv_flow_learn(&past, round_at(past.speed));
  assert_in_range(rounds, 1, 9);
}

static void bad_round_changes_the_speed_little_and_two_broken_reset_it(void **unused) {
  (void)unused;
  hv_flow_past past = {0};
  hv_flow_learn(&past, 10 * MB);
  hv_flow_learn(&past, 10 * MB);
  hv_flow_learn(&past, 3 * MB);
  assert_in_range(past.speed, 10 * MB, 11 * MB);
  hv_flow_learn(&past, 0);
  hv_flow_learn(&past, 0);
  assert_int_equal(past.speed, 0);
  hv_flow_learn(&past, UINT64_MAX);
  assert_true(past.speed > HV_FLOW_MOST); /* not paced */
  hv_flow_learn(&past, UINT64_MAX);
  assert_true(past.speed > HV_FLOW_MOST);
}

static void only_long_rounds_over_slow_even_links_are_paced(void **unused) {
  (void)unused;
  assert_int_equal(hv_flow_each(12 * MB, 96 * MB, 16 * MB, 16 * MB, 6), 2 * MB);
  assert_int_equal(hv_flow_each(12 * MB, 96 * MB, 15 * MB, 17 * MB, 6), 2 * MB);
  assert_int_equal(hv_flow_each(0, 96 * MB, 16 * MB, 16 * MB, 6), 0);
  assert_int_equal(hv_flow_each(12 * MB, 96 * MB, 4 * MB, 18 * MB, 6), 0);
  assert_int_equal(hv_flow_each(12 * MB, 18 * MB, 3 * MB, 3 * MB, 6), 0);
  assert_int_equal(hv_flow_each(HV_FLOW_MOST + 1, 96000 * MB, 16000 * MB, 16000 * MB, 6), 0);
  assert_int_equal(hv_flow_each(12 * MB, 0, UINT64_MAX, 0, 0), 0);
  assert_int_equal(hv_flow_each(12 * MB, 96 * MB, 96 * MB, 96 * MB, 1), 0); /* a client's, over which its state goes, too */
  assert_int_equal(hv_flow_each(3, 96 * MB, 16 * MB, 16 * MB, 6), 1);       /* 0 would be as fast as it can */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_second_fastest_eighth_tells_the_speed),
      cmocka_unit_test(half_a_round_or_one_at_a_stroke_tells_nothing),
      cmocka_unit_test(a_small_round_tells_nothing),
      cmocka_unit_test(a_rate_that_is_too_low_grows_and_one_that_is_right_stays),
      cmocka_unit_test(bad_round_changes_the_speed_little_and_two_broken_reset_it),
      cmocka_unit_test(only_long_rounds_over_slow_even_links_are_paced),
  };
  return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
