/* How fast is a line? The rate of the first chunks, the sum of the owners' rates, and the bounds on any claim. */
#include "lib/check.h"

#include "core/round/gauge.h"

#include <string.h>

#define MBIT 125000ull

static void the_first_chunks_tell_the_rate(void **unused) {
  (void)unused;
  hv_gauge gauge = {0};
  assert_int_equal(hv_gauge_rate(&gauge), 0);
  for (uint64_t i = 0; i < 8; i++) /* the first four come slowly: connections find their speed */
    hv_gauge_saw(&gauge, 1000000 + (i < 4 ? i * 300000 : 900000 + i * 10000 - 30000), 65536);
  assert_int_equal(hv_gauge_rate(&gauge), 6553600);
}

static void chunks_that_lay_ready_give_no_rate(void **unused) {
  (void)unused;
  hv_gauge gauge = {0};
  for (int i = 0; i < 5; i++) /* they came before this owner began */
    hv_gauge_saw(&gauge, 1000000, 1 << 20);
  assert_int_equal(hv_gauge_rate(&gauge), 0);
  hv_gauge_saw(&gauge, 2000000, 1 << 20);
  assert_int_equal(hv_gauge_rate(&gauge), 1 << 20);
}

static void too_few_bytes_give_no_rate(void **unused) {
  (void)unused;
  hv_gauge gauge = {0};
  for (uint64_t i = 0; i < 7; i++)
    hv_gauge_saw(&gauge, 1000000 + i * 50000, 32768);
  assert_int_equal(hv_gauge_rate(&gauge), 0);
  hv_gauge_saw(&gauge, 1350000, 32768);
  assert_in_range(hv_gauge_rate(&gauge), 1, MBIT * 10);
}

static void rates_of_owners_add_up_and_a_lie_adds_little(void **unused) {
  (void)unused;
  uint64_t honest[] = {0, 4 * MBIT, 4 * MBIT, 0, 4 * MBIT}, none[] = {0, 0};
  assert_int_equal(hv_gauge_link(honest, 5), 12 * MBIT);
  assert_int_equal(hv_gauge_link(none, 2), 0);
  uint64_t lied[] = {4 * MBIT, UINT64_MAX, 4 * MBIT};
  assert_int_equal(hv_gauge_link(lied, 3), 24 * MBIT);
  uint64_t half_lie[] = {UINT64_MAX, 4 * MBIT, 0, UINT64_MAX, 4 * MBIT}; /* of two in the middle it is the lower one */
  assert_int_equal(hv_gauge_link(half_lie, 5), 40 * MBIT);
  uint64_t all_lie[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  assert_int_equal(hv_gauge_link(all_lie, 3), HV_GAUGE_MOST);
}

static void arrivals_raise_the_rate_if_the_span_is_long_enough(void **unused) {
  (void)unused;
  assert_int_equal(hv_gauge_seen(3 * MBIT, 10 * MBIT, HV_GAUGE_SPAN), 10 * MBIT);
  assert_int_equal(hv_gauge_seen(3 * MBIT, 10 * MBIT, 0), 10 * MBIT); /* only averages came, in return for its values */
  assert_int_equal(hv_gauge_seen(3 * MBIT, 10 * MBIT, HV_GAUGE_SPAN - 1), 3 * MBIT);
  assert_int_equal(hv_gauge_seen(0, 10 * MBIT, 1), 0);
  assert_int_equal(hv_gauge_seen(10 * MBIT, 3 * MBIT, HV_GAUGE_SPAN), 10 * MBIT);
  assert_int_equal(hv_gauge_seen(0, 0, HV_GAUGE_SPAN), 0);
  assert_int_equal(hv_gauge_seen(3 * MBIT, UINT64_MAX, HV_GAUGE_SPAN), HV_GAUGE_MOST);
}

static void measured_rate_starts_from_the_stated_one(void **unused) {
  (void)unused;
  assert_int_equal(hv_gauge_blend(0, 100), 100);
  assert_int_equal(hv_gauge_blend(100, 0), 100);
  assert_int_equal(hv_gauge_blend(100, 200), 150);
  assert_int_equal(hv_gauge_blend(101, 101), 101);
  assert_int_equal(hv_gauge_blend(UINT64_MAX, HV_GAUGE_MOST), UINT64_MAX); /* faster than what limits a round: it may well be */
  uint64_t line = 100 * MBIT;
  for (int round = 0; round < 8; round++)
    line = hv_gauge_blend(line, 10 * MBIT);
  assert_in_range(line, 10 * MBIT, 11 * MBIT);
}

static void similar_rates_are_levelled_and_none_exceeds_four_times(void **unused) {
  (void)unused;
  uint64_t rates[] = {100, 85, 120, 10, 0, 100000, 100}, settled[] = {100, 100, 100, 10, 0, 400, 100};
  hv_gauge_settle(rates, 7);
  assert_memory_equal(rates, settled, sizeof rates);
  uint64_t one[] = {0, 5}, none[] = {0, 0};
  hv_gauge_settle(one, 2), hv_gauge_settle(none, 2), hv_gauge_settle(none, 0);
  assert_true(one[0] == 0 && one[1] == 5 && none[0] == 0);
  uint64_t huge[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX - 1};
  hv_gauge_settle(huge, 3);
  assert_true(huge[0] == huge[2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_first_chunks_tell_the_rate),
      cmocka_unit_test(chunks_that_lay_ready_give_no_rate),
      cmocka_unit_test(too_few_bytes_give_no_rate),
      cmocka_unit_test(rates_of_owners_add_up_and_a_lie_adds_little),
      cmocka_unit_test(arrivals_raise_the_rate_if_the_span_is_long_enough),
      cmocka_unit_test(measured_rate_starts_from_the_stated_one),
      cmocka_unit_test(similar_rates_are_levelled_and_none_exceeds_four_times),
  };
  return cmocka_run_group_tests_name("gauge", tests, NULL, NULL);
}
