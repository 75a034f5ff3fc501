/* Sums as bytes, and what a sum makes of time: what is packed is read again, nothing else is, and an epoch's end is carried over.
 */
#include "core/progress/zone_msg.h"

#include "lib/check.h"

#include <string.h>

static uint64_t below(check_rng *rng, uint64_t n) {
  return n ? check_random(rng) % n : 0;
}

static hv_sum random_sum(check_rng *rng, uint64_t base) {
  hv_sum sum = {0};
  size_t n = below(rng, HV_PARTS_MAX + 1);
  for (size_t i = 0; i < n; i++) {
    hv_part part = {.epoch =
                        base + below(rng, 2) * below(rng, 1000) - (below(rng, 2) ? below(rng, base < 100 ? base + 1 : 100) : 0)};
    part.owners = (uint32_t)below(rng, UINT64_C(1) << below(rng, 20));
    part.age_ms = (uint32_t)below(rng, 20000) / 10 * 10;
    part.samples = below(rng, UINT64_C(1) << below(rng, 48));
    part.before = below(rng, UINT64_C(1) << below(rng, 48));
    part.speed_milli = below(rng, UINT64_C(1) << below(rng, 48));
    if (part.epoch > HV_REPORT_EPOCH_MAX)
      part.epoch = base;
    hv_sum_add_part(&sum, &part);
    sum.owners += part.owners;
  }
  sum.owners += (uint32_t)below(rng, 3);
  sum.contributors = sum.owners + (uint32_t)below(rng, 2) * (uint32_t)below(rng, 300);
  sum.clients = below(rng, 2) ? (uint32_t)below(rng, sum.contributors + 1) : 0;
  return sum;
}

static void assert_near(uint64_t value, uint64_t as, double by) {
  double off = value > as ? (double)(value - as) : (double)(as - value);
  if (off > (double)as * by)
    fail_msg("%llu is not %llu", (unsigned long long)value, (unsigned long long)as);
}

static void packed_sums_are_read_back_to_a_thousandth(void **unused) {
  (void)unused;
  check_rng rng = {.state = 1};
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  for (int turn = 0; turn < 5000; turn++) {
    hv_zone_msg words = {.in_one = (int)below(&rng, 4), .n = below(&rng, 5)}, back;
    words.in_one = words.in_one > 0;
    words.epoch = words.in_one ? below(&rng, UINT64_C(1) << below(&rng, 48)) : 0;
    for (size_t i = 0; i < words.n; i++)
      words.sums[i] = (hv_zone_sum){.level = (unsigned)below(&rng, 32), .sum = random_sum(&rng, words.epoch)};
    assert_int_equal(hv_zone_msg_unpack(hv_span_of(bytes, hv_zone_msg_pack(&words, bytes)), &back), HV_OK);
    assert_true(back.in_one == words.in_one && back.epoch == words.epoch && back.n <= words.n);
    for (size_t i = 0; i < back.n; i++) {
      const hv_sum *a = &words.sums[i].sum, *b = &back.sums[i].sum;
      assert_true(back.sums[i].level == words.sums[i].level && a->n_parts == b->n_parts);
      assert_true(a->owners == b->owners && a->contributors == b->contributors && a->clients == b->clients);
      for (size_t j = 0; j < a->n_parts; j++) {
        const hv_part *x = &a->parts[j], *y = &b->parts[j];
        assert_true(x->epoch == y->epoch && x->owners == y->owners && x->age_ms / 20 * 20 == y->age_ms);
        assert_near(y->samples, x->samples, 1.0 / (1 << 10));
        assert_near(y->before, x->before, 1.0 / (1 << 10));
        assert_near(y->speed_milli, x->speed_milli, 1.0 / (1 << 10));
      }
    }
  }
}

/* A sum that is told from one to the next keeps what it says: roundings lean to no side. */
static void many_roundings_lean_to_no_side(void **unused) {
  (void)unused;
  check_rng rng = {.state = 2};
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  double told = 0, heard = 0;
  for (int turn = 0; turn < 20000; turn++) {
    hv_part part = {.epoch = 5, .owners = 1, .samples = 1000000 + below(&rng, 1000000), .speed_milli = 5000 + below(&rng, 100000)};
    hv_zone_msg words = {.in_one = 1,
                         .epoch = 5,
                         .n = 1,
                         .sums[0].sum = {.parts = {part}, .n_parts = 1, .owners = 1, .contributors = 1}},
                back;
    assert_int_equal(hv_zone_msg_unpack(hv_span_of(bytes, hv_zone_msg_pack(&words, bytes)), &back), HV_OK);
    told += (double)part.speed_milli;
    heard += (double)back.sums[0].sum.parts[0].speed_milli;
  }
  assert_true(heard > told * 0.99998 && heard < told * 1.00002);
}

/* The usual word of a zone is short: so many are passed on. */
static void a_usual_sum_takes_few_bytes(void **unused) {
  (void)unused;
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  hv_part part = {.epoch = 12, .owners = 2048, .age_ms = 1900, .samples = 1300000, .before = 1400000, .speed_milli = 69000000};
  hv_zone_msg words = {
      .in_one = 1, .epoch = 12, .n = 1, .sums[0].sum = {.parts = {part}, .n_parts = 1, .owners = 2048, .contributors = 2048}};
  assert_int_equal(hv_zone_msg_pack(&words, bytes), 11);
}

static void truncated_or_excessive_sums_are_refused(void **unused) {
  (void)unused;
  check_rng rng = {.state = 3};
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  hv_zone_msg words = {.in_one = 1, .epoch = 7, .n = 1}, back;
  words.sums[0].sum = (hv_sum){.parts = {{.epoch = 7, .owners = 3, .samples = 300}}, .n_parts = 1, .owners = 3, .contributors = 5};
  size_t size = hv_zone_msg_pack(&words, bytes);
  for (size_t cut = 2; cut < size; cut++)
    assert_int_equal(hv_zone_msg_unpack(hv_span_of(bytes, cut), &back), HV_MALFORMED);
  assert_int_equal(hv_zone_msg_unpack(hv_span_of(NULL, 0), &back), HV_MALFORMED);
  static const uint8_t hostile[][16] = {
      {2, 1, 0, 5, 1, 0, 0, 0, 0, 0, 0, 0},                               /* an epoch below 0 */
      {1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}, /* a number without an end */
      {1, 0, 0xfe, 0xff, 0xff, 0xff, 0x7f},                               /* more owners than there may be */
      {1, 0, 1, 0, 9},                                                    /* more clients than contributors */
      {1, 7, 1, 0xff, 0xff, 0, 0, 0, 0, 0},                               /* samples beyond 2^48 */
  };
  static const size_t sizes[] = {12, 12, 7, 5, 10};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    assert_int_equal(hv_zone_msg_unpack(hv_span_of(hostile[i], sizes[i]), &back), HV_MALFORMED);
  for (int turn = 0; turn < 200000; turn++) { /* anything: it is read within its end, or refused */
    size_t n = below(&rng, 64);
    for (size_t i = 0; i < n; i++)
      bytes[i] = (uint8_t)check_random(&rng);
    if (hv_zone_msg_unpack(hv_span_of(bytes, n), &back) == HV_OK)
      assert_true(back.n <= HV_ZONE_SUMS_MAX);
  }
}

/* ---- what a sum makes of time ---- */

static hv_sum of_parts(hv_part a, hv_part b) {
  hv_sum sum = {0};
  hv_sum_add_part(&sum, &a);
  if (b.owners)
    hv_sum_add_part(&sum, &b);
  sum.owners = sum.contributors = a.owners + b.owners;
  return sum;
}

static void ages_are_those_of_owners_on_average(void **unused) {
  (void)unused;
  hv_sum sum = of_parts((hv_part){.epoch = 3, .owners = 1, .age_ms = 4000}, (hv_part){.epoch = 4, .owners = 3});
  assert_int_equal(hv_sum_age_ms(&sum), 1000);
  hv_sum other = of_parts((hv_part){.epoch = 4, .owners = 4, .age_ms = 700}, (hv_part){0});
  hv_sum_add(&sum, &other);
  assert_int_equal(hv_sum_age_ms(&sum), (4000 + 4 * 700) / 8);
  hv_sum_forward(&sum, 250000);
  assert_int_equal(hv_sum_age_ms(&sum), 850 + 250);
}

static void owners_heard_before_an_epoch_are_counted_in_it(void **unused) {
  (void)unused;
  hv_part old = {.epoch = 4, .owners = 10, .age_ms = 3500, .samples = 9000, .speed_milli = 100000};
  hv_sum sum =
      of_parts(old, (hv_part){.epoch = 5, .owners = 30, .age_ms = 500, .samples = 900, .before = 30000, .speed_milli = 300000});
  assert_int_equal(hv_sum_since_us(&sum, 5), 3000000);
  hv_sum carried = sum;
  hv_sum_carry(&carried, 5, 3000000);
  assert_int_equal(carried.n_parts, 1);
  assert_true(hv_sum_samples(&carried, 5) == 900 + 300 && hv_sum_samples(&carried, 4) == 30000 + 8700);
  assert_int_equal(carried.parts[0].owners, 40);
  assert_int_equal(hv_sum_age_ms(&carried), (10 * 3500 + 30 * 500) / 40);
}

/* Epochs may be shorter than the time between two answers. */
static void owners_heard_some_epochs_before_are_counted_in_it(void **unused) {
  (void)unused;
  hv_part older = {.epoch = 2, .owners = 4, .age_ms = 9000, .samples = 700, .speed_milli = 40000};
  hv_part old = {.epoch = 4, .owners = 10, .age_ms = 3500, .samples = 9000, .speed_milli = 100000};
  hv_sum sum = of_parts(older, old);
  hv_sum_carry(&sum, 5, 3000000);
  assert_int_equal(sum.n_parts, 1);
  assert_int_equal(sum.parts[0].owners, 14);
  assert_true(hv_sum_samples(&sum, 5) == 120 + 300 && hv_sum_samples(&sum, 4) == 8700);
}

/* A peer may say that it has the most samples that can be said, at the least speed: no clock has run for so long. */
static void impossibly_old_epoch_is_clamped(void **unused) {
  (void)unused;
  hv_part part = {.epoch = 5, .owners = 1, .samples = HV_REPORT_SAMPLES_MAX, .speed_milli = 1};
  hv_sum sum = of_parts(part, (hv_part){0});
  assert_true(hv_sum_since_us(&sum, 5) == UINT64_C(1000000000000000000));
  hv_sum_forward(&sum, hv_sum_since_us(&sum, 5));
  hv_sum_carry(&sum, 6, UINT64_C(1000000000000000000));
  assert_true(sum.parts[0].samples <= HV_REPORT_SAMPLES_MAX);
}

static void owners_heard_after_an_epoch_began_keep_their_own(void **unused) {
  (void)unused;
  hv_part late = {.epoch = 4, .owners = 10, .age_ms = 2500, .samples = 9000, .speed_milli = 100000};
  hv_sum sum = of_parts(late, (hv_part){.epoch = 5, .owners = 30, .age_ms = 500, .samples = 900, .speed_milli = 300000}),
         carried = sum;
  hv_sum_carry(&carried, 5, 3000000);
  assert_memory_equal(&carried, &sum, sizeof sum);
  late.epoch = 3;
  sum = carried = of_parts(late, (hv_part){0});
  hv_sum_carry(&carried, 5, 3000000);
  assert_memory_equal(&carried, &sum, sizeof sum);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packed_sums_are_read_back_to_a_thousandth),
      cmocka_unit_test(many_roundings_lean_to_no_side),
      cmocka_unit_test(a_usual_sum_takes_few_bytes),
      cmocka_unit_test(truncated_or_excessive_sums_are_refused),
      cmocka_unit_test(ages_are_those_of_owners_on_average),
      cmocka_unit_test(owners_heard_before_an_epoch_are_counted_in_it),
      cmocka_unit_test(owners_heard_some_epochs_before_are_counted_in_it),
      cmocka_unit_test(impossibly_old_epoch_is_clamped),
      cmocka_unit_test(owners_heard_after_an_epoch_began_keep_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
