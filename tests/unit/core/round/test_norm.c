/* How large may a chunk be? The multiple of the median norm that members state, and the norm that a member states itself. */
#include "lib/away.h"
#include "lib/check.h"

#include "core/round/norm.h"

#include <float.h>
#include <math.h>

static void limit_is_a_multiple_of_the_upper_median(void **unused) {
  (void)unused;
  float odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};
  assert_true(hv_norm_most(10, odd, 3) == 30);
  assert_true(hv_norm_most(10, even, 4) == 30);
}

/* Less than half of the members cannot move it beyond what an honest one states. */
static void minority_of_liars_keeps_the_limit_honest(void **unused) {
  (void)unused;
  const float lies[] = {0, 1e-30f, 1e6f, FLT_MAX};
  for (size_t n = 3; n <= 9; n++)
    for (size_t lie = 0; lie < 4; lie++) {
      float norms[9];
      for (size_t i = 0; i < n; i++)
        norms[i] = i < (n - 1) / 2 ? lies[lie] : 1 + (float)i / 10;
      float most = hv_norm_most(10, norms, n);
      assert_true(most >= 10 && most <= 20);
    }
}

static void few_members_or_no_ratio_mean_no_limit(void **unused) {
  (void)unused;
  float norms[] = {1, 1, 1, 1}, zeros[] = {0, 0, 0, 7};
  assert_true(hv_norm_most(0, norms, 4) == 0);
  assert_true(hv_norm_most(10, norms, HV_NORM_STATED - 1) == 0);
  assert_true(hv_norm_most(10, norms, 0) == 0);
  assert_true(hv_norm_most(10, zeros, 4) == 0);
}

static void limit_is_finite_for_any_statement(void **unused) {
  (void)unused;
  float norms[] = {FLT_MAX, FLT_MAX, FLT_MAX};
  assert_true(hv_norm_most(1e9f, norms, 3) == FLT_MAX);
  assert_true(hv_norm_is_valid(0) && hv_norm_is_valid(FLT_MAX));
  assert_false(hv_norm_is_valid(NAN) || hv_norm_is_valid(INFINITY) || hv_norm_is_valid(-1));
}

enum { VALUES = 1000, CHUNK = 100 };

static float measured(float *values, const hv_device *device) {
  hv_mem mem;
  hv_run run;
  float norm = -1;
  hv_run_part parts[] = {{values, HV_DTYPE_FLOAT32, VALUES - 30, HV_CODEC_NONE, device, 0, 0, 0},
                         {values + VALUES - 30, HV_DTYPE_FLOAT32, 30, HV_CODEC_NONE, device, 0, 0, 0}};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_run_init(&run, &mem, parts, 2, CHUNK, NULL), HV_OK);
  assert_int_equal(hv_norm_measure(&run, hv_cpu_best(), &norm), HV_OK);
  hv_run_fini(&run);
  assert_int_equal(mem.blocks, 0);
  return norm;
}

/* Also where values lie on a device. A chunk that is not sent has no say. */
static void largest_chunk_is_measured_here_and_on_a_device(void **unused) {
  (void)unused;
  for (int away = 0; away < 2; away++) {
    float values[VALUES] = {0};
    away_device device;
    away_init(&device);
    for (size_t i = 0; i < VALUES; i++)
      values[i] = i / CHUNK == 3 ? 2 : 1;
    values[7 * CHUNK + 5] = NAN;
    if (away)
      away_turn(values, sizeof values);
    assert_true(measured(values, away ? &device.table : NULL) == 20); /* the root of 100 times 4 */
    away_fini(&device);
  }
  float largest[VALUES];
  for (size_t i = 0; i < VALUES; i++)
    largest[i] = FLT_MAX;
  assert_true(measured(largest, NULL) == FLT_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limit_is_a_multiple_of_the_upper_median),        cmocka_unit_test(minority_of_liars_keeps_the_limit_honest),
      cmocka_unit_test(few_members_or_no_ratio_mean_no_limit),          cmocka_unit_test(limit_is_finite_for_any_statement),
      cmocka_unit_test(largest_chunk_is_measured_here_and_on_a_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
