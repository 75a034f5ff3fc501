/* The outer step against arithmetic in double, rounded after each operation: equal to the bit. */
#include "lib/check.h"
#include "lib/random.h"

#include "core/outer/outer.h"

#include <math.h>
#include <string.h>

enum { N = 1003 }; /* no multiple of any vector */

/* A product or sum of two floats in double, rounded once more, is the float that one operation makes: double has more than twice
 * the bits. */
static float product(float a, float b) {
  volatile double exact = (double)a * (double)b;
  return (float)exact;
}

static float sum(float a, float b) {
  volatile double exact = (double)a + (double)b;
  return (float)exact;
}

static void reference(const hv_outer_rule *r, int begins, float *anchor, float *momentum, float difference) {
  float step = difference;
  if (r->momentum != 0) {
    *momentum = begins ? difference : sum(product(*momentum, r->momentum), difference);
    step = r->nesterov ? sum(difference, product(*momentum, r->momentum)) : *momentum;
  }
  *anchor = sum(*anchor, -product(r->rate, step));
}

static float some(check_rng *rng) {
  return (float)((check_uniform(rng) - 0.5) * ldexp(1, (int)(check_random(rng) % 40) - 20));
}

static void assert_same(const float *a, const float *b, size_t n) {
  assert_memory_equal(a, b, n * sizeof *a);
}

static void steps_equal_the_reference_to_the_bit(void **unused) {
  (void)unused;
  static const hv_outer_rule rules[] = {{1, 0, 0}, {0.7f, 0, 0}, {0.7f, 0.5f, 0}, {0.7f, 0.5f, 1}, {0.7f, 0.9f, 1}, {-0.1f, 1, 1}};
  static float anchor[N + 1], momentum[N + 1], difference[N + 1], expected[N], remembered[N];
  check_rng rng = {73};
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
    for (size_t skew = 0; skew < 2; skew++) { /* also where no vector is aligned */
      float *a = anchor + skew, *m = momentum + skew, *d = difference + skew;
      assert_int_equal(hv_outer_check(&rules[k], NULL), HV_OK);
      for (size_t i = 0; i < N; i++) {
        a[i] = expected[i] = some(&rng);
        m[i] = NAN; /* counts for nothing at first */
      }
      for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < N; i++) {
          d[i] = i % 17 ? some(&rng) : step % 2 ? 0.0f : -0.0f;
          reference(&rules[k], !step, &expected[i], &remembered[i], d[i]);
        }
        hv_outer_tensor t = {a, rules[k].momentum != 0 ? m : NULL, d, N, !step};
        assert_int_equal(hv_outer_step(&rules[k], &t, 1, NULL), HV_OK);
        assert_same(a, expected, N);
        if (rules[k].momentum != 0)
          assert_same(m, remembered, N);
      }
    }
}

/* With rate 1 and no momentum the anchor becomes the mean of the locals, within rounding. */
static void rate_one_takes_the_average_over(void **unused) {
  (void)unused;
  float anchor[3] = {1, -2, 0.5f}, local[3] = {0.9f, -2.5f, 0.75f}, difference[3];
  for (size_t i = 0; i < 3; i++)
    difference[i] = anchor[i] - local[i];
  hv_outer_tensor t = {anchor, NULL, difference, 3, 0};
  assert_int_equal(hv_outer_step(&(hv_outer_rule){1, 0, 0}, &t, 1, NULL), HV_OK);
  for (size_t i = 0; i < 3; i++)
    assert_float_equal(anchor[i], local[i], 1e-6);
}

/* Also where only the second tensor's last value is wrong. */
static void step_that_is_not_finite_changes_nothing(void **unused) {
  (void)unused;
  static const float wrong[] = {NAN, INFINITY, -INFINITY, 3e38f};
  static const hv_outer_rule rules[] = {{2, 0, 0}, {2, 0.5f, 0}, {2, 0.5f, 1}};
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
      float anchor[2][9] = {{1, 2}, {3}}, momentum[2][9] = {{4}, {5}}, difference[2][9] = {{0.5f}, {0.25f}}, before[4][9];
      difference[1][8] = wrong[w];
      memcpy(before, anchor, sizeof anchor);
      memcpy(before + 2, momentum, sizeof momentum);
      hv_outer_tensor tensors[] = {{anchor[0], momentum[0], difference[0], 9, 0}, {anchor[1], momentum[1], difference[1], 9, 0}};
      hv_error err = {0};
      assert_int_equal(hv_outer_step(&rules[k], tensors, 2, &err), HV_NOT_FINITE);
      assert_non_null(strstr(err.text, "parameter 1"));
      assert_memory_equal(before, anchor, sizeof anchor);
      assert_memory_equal(before + 2, momentum, sizeof momentum);
    }
}

static void tensor_without_values_is_stepped(void **unused) {
  (void)unused;
  hv_outer_tensor t = {0};
  assert_int_equal(hv_outer_step(&(hv_outer_rule){0.7f, 0.5f, 1}, &t, 1, NULL), HV_OK);
  assert_int_equal(hv_outer_step(&(hv_outer_rule){0.7f, 0.5f, 1}, NULL, 0, NULL), HV_OK);
}

static void rules_out_of_range_are_refused(void **unused) {
  (void)unused;
  static const hv_outer_rule wrong[] = {{NAN, 0, 0}, {INFINITY, 0, 0}, {1, NAN, 0}, {1, INFINITY, 0}, {1, -0.5f, 0}, {1, 0, 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    hv_error err = {0};
    assert_int_equal(hv_outer_check(&wrong[i], &err), HV_INVALID);
    assert_true(err.text[0]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_equal_the_reference_to_the_bit),    cmocka_unit_test(rate_one_takes_the_average_over),
      cmocka_unit_test(step_that_is_not_finite_changes_nothing), cmocka_unit_test(tensor_without_values_is_stepped),
      cmocka_unit_test(rules_out_of_range_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
