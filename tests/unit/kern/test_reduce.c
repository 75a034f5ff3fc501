#include "kern/kernels.h"
#include "lib/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 9001 };

static const hv_dtype dtypes[] = {HV_DTYPE_FLOAT32, HV_DTYPE_FLOAT16, HV_DTYPE_BFLOAT16, HV_DTYPE_FLOAT64};
static float plain[N], x[N], acc[N], want[N];
static double source[N];

static const hv_kern *set(int level) {
  const hv_kern *kern = hv_cpu_kern((hv_cpu_level)level);
  return kern ? kern : hv_cpu_kern(HV_CPU_PORTABLE);
}

/* float16 by its definition. */
static double f16_value(unsigned h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return h & 0x8000 ? -size : size;
}

static void every_float16_widens_to_its_value(void **state) {
  (void)state;
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (unsigned h = 0; h < 65536; h += 16) {
      uint8_t in[32];
      float out[16], bf[16];
      for (unsigned i = 0; i < 16; i++)
        hv_store16(in + 2 * i, (uint16_t)(h + i));
      set(level)->widen_f16(out, in, 16);
      set(level)->widen_bf16(bf, in, 16);
      for (unsigned i = 0; i < 16; i++) {
        unsigned e = (h + i) >> 10 & 31;
        if (e < 31)
          assert_true((double)out[i] == f16_value(h + i) && hv_bits(out[i]) >> 31 == (h + i) >> 15);
        else if ((h + i) & 1023)
          assert_true(isnan(out[i]) && hv_bits(out[i]) & 0x400000);
        else
          assert_true(isinf(out[i]) && hv_bits(out[i]) >> 31 == (h + i) >> 15);
        assert_true(hv_bits(bf[i]) == (h + i) << 16);
      }
    }
}

/* The nearest of h and its neighbours, even on a tie. */
static int is_nearest_f16(float value, uint16_t h) {
  double v = fmin(fmax(value, -65504), 65504), miss = fabs(v - f16_value(h));
  for (int side = -1; side <= 1; side += 2) {
    unsigned other = (unsigned)(h + side);
    if ((h & 0x7fff) == 0 && side < 0)
      other = (h ^ 0x8000u) | 1;
    if ((other & 0x7c00) == 0x7c00)
      continue;
    double theirs = fabs(v - f16_value(other & 0xffff));
    if (theirs < miss || (theirs == miss && h % 2))
      return 0;
  }
  return 1;
}

static void float32_becomes_the_nearest_float16_and_bfloat16(void **state) {
  (void)state;
  check_rng rng = {1};
  for (int run = 0; run < 300000; run += 16) {
    float in[16];
    for (int i = 0; i < 16; i++) {
      uint32_t bits = (uint32_t)check_random(&rng);
      if (run % 3 == 0) /* near the steps of float16 and halfway between */
        bits = hv_bits((float)(f16_value(bits >> 16 & 0xffff & ~0x4000u) * (1 + (bits & 1) * 0x1p-11))) + (bits >> 1 & 3) - 1;
      if (run % 3 == 1) /* halfway between two bfloat16, more or less */
        bits = (bits & 0xffff0000) + 0x7fff + (bits & 3);
      in[i] = hv_float(bits);
    }
    for (int level = 0; level < HV_CPU_LEVELS; level++) {
      uint8_t half[32], brain[32];
      set(level)->narrow_f16(half, in, 16);
      set(level)->narrow_bf16(brain, in, 16);
      for (int i = 0; i < 16; i++) {
        uint16_t h = hv_load16(half + 2 * i), b = hv_load16(brain + 2 * i);
        if (isnan(in[i])) {
          assert_true(h == 0x7e00 && b == 0x7fc0);
          continue;
        }
        assert_true(is_nearest_f16(in[i], h) && (h >> 15) == (hv_bits(in[i]) >> 31));
        uint32_t down = hv_bits(in[i]) >> 16, rest = hv_bits(in[i]) & 0xffff;
        assert_true(b == (uint16_t)(rest > 0x8000 || (rest == 0x8000 && down % 2) ? down + 1 : down));
      }
    }
  }
}

static void accumulating_rounds_the_product_and_then_the_sum(void **state) {
  (void)state;
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t d = 0; d < 4; d++)
      for (size_t n = 0; n < 200; n++) {
        size_t off = n % 7;
        values_fill(plain, n, VALUES_HEAVY, n);
        values_as(dtypes[d], plain, n, source, x);
        values_fill(acc, N, VALUES_NORMAL, 2);
        memcpy(want, acc, sizeof acc);
        for (size_t i = 0; i < n; i++) {
          volatile float part = 0.7f * x[i];
          want[off + i] = want[off + i] + part;
        }
        assert_int_equal(hv_reduce_accumulate(set(level), dtypes[d], source, 0.7f, acc + off, n), HV_OK);
        assert_memory_equal(acc, want, sizeof acc);
      }
}

static void one_value_that_is_not_finite_is_found_anywhere(void **state) {
  (void)state;
  static const float odd[] = {NAN, INFINITY, -INFINITY};
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t d = 0; d < 4; d++)
      for (size_t n = 1; n < 140; n++) {
        int finite = -1;
        values_fill(plain, n, VALUES_NORMAL, n);
        plain[n / 2] = 3e38f;
        values_as(dtypes[d], plain, n, source, NULL);
        assert_int_equal(hv_reduce_finite(set(level), dtypes[d], source, n, &finite), HV_OK);
        assert_int_equal(finite, 1);
        for (size_t at = 0; at < n; at += 1 + n / 17) {
          values_fill(plain, n, VALUES_NORMAL, n);
          uint8_t *bytes = (uint8_t *)source;
          values_as(dtypes[d], plain, n, source, NULL);
          double wide = odd[at % 3];
          if (dtypes[d] == HV_DTYPE_FLOAT64)
            memcpy(bytes + 8 * at, &wide, 8);
          else if (dtypes[d] == HV_DTYPE_FLOAT32)
            memcpy(bytes + 4 * at, &odd[at % 3], 4);
          else
            hv_store16(bytes + 2 * at, dtypes[d] == HV_DTYPE_FLOAT16 ? 0xfc00 : 0x7f80);
          assert_int_equal(hv_reduce_finite(set(level), dtypes[d], source, n, &finite), HV_OK);
          assert_int_equal(finite, 0);
        }
      }
}

/* The check never says "within" in error. It says so of ordinary values, or the quick way would never be used. */
static void values_within_the_limit_stay_within_it(void **state) {
  (void)state;
  static const float weights[] = {0, 0x1p-40f, 0x1p-8f, 0.7f, 1, 1000, 0x1p64f};
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t d = 0; d < 2; d++)
      for (size_t w = 0; w < sizeof weights / sizeof *weights; w++)
        for (size_t n = 1; n < 140; n += 1 + n / 9) {
          int within = -1;
          values_fill(plain, n, VALUES_NORMAL, n);
          values_as(dtypes[d], plain, n, source, NULL);
          assert_int_equal(hv_reduce_within(set(level), dtypes[d], source, weights[w], n, &within), HV_OK);
          assert_int_equal(within, 1);
          values_fill(plain, n, VALUES_HUGE, n);
          plain[n / 2] = weights[w] > 0 ? (float)(1.001 * (double)HV_CODEC_ADDEND_MAX / (double)weights[w]) : INFINITY;
          values_as(dtypes[d], plain, n, source, x);
          double most = 0;
          for (size_t i = 0; i < n; i++)
            most = fmax(most, fabs((double)x[i]) * (double)weights[w]);
          assert_int_equal(hv_reduce_within(set(level), dtypes[d], source, weights[w], n, &within), HV_OK);
          assert_true(!within || most <= (double)HV_CODEC_ADDEND_MAX);
          assert_true(!within || isfinite(x[n / 2]));
        }
}

static void float64_counts_as_finite_when_its_float32_is(void **state) {
  (void)state;
  static const struct {
    double value;
    int finite;
  } cases[] = {
      {3.4028234663852886e38, 1}, {0x1.fffffefffffffp127, 1}, {0x1.ffffffp127, 0}, {-0x1.ffffffp127, 0}, {1e300, 0}, {1e-300, 1}};
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      int finite = -1;
      for (size_t at = 0; at < 9; at++)
        source[at] = at == i ? cases[i].value : 1;
      assert_int_equal(hv_reduce_finite(set(level), HV_DTYPE_FLOAT64, source, 9, &finite), HV_OK);
      assert_int_equal(finite, cases[i].finite);
      assert_int_equal(isfinite((float)cases[i].value) != 0, cases[i].finite);
    }
}

/* STATS by its words in docs/design/codecs.md, in a plain recursive form. */
static double unit_sum(const float *v, size_t n) {
  double lane[32] = {0};
  for (size_t i = 0; i < n; i++)
    lane[i % 32] += (double)v[i] * v[i];
  for (size_t fold = 16; fold; fold /= 2)
    for (size_t j = 0; j < fold; j++)
      lane[j] += lane[j + fold];
  return lane[0];
}

static double tree_sum(const float *v, size_t n, size_t units) {
  if (units == 1)
    return unit_sum(v, n);
  size_t left = units / 2 * 4096;
  return n <= left ? tree_sum(v, n, units / 2) : tree_sum(v, left, units / 2) + tree_sum(v + left, n - left, units / 2);
}

static void square_sums_have_the_shape_that_the_header_gives(void **state) {
  (void)state;
  enum { LONG = 4096 * 11 + 77 };
  float *v = malloc(LONG * sizeof *v);
  assert_non_null(v);
  values_fill(v, LONG, VALUES_HEAVY, 3);
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t n = 0; n <= LONG; n = n < 100 ? n + 1 : n + 3331) {
      double sum = -1;
      assert_int_equal(hv_reduce_square_sum(set(level), HV_DTYPE_FLOAT32, v, n, &sum), HV_OK);
      assert_true(sum == tree_sum(v, n, 16));
    }
  free(v);
}

static void scaling_multiplies_each_value(void **state) {
  (void)state;
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t n = 0; n < 100; n++) {
      values_fill(acc, 120, VALUES_NORMAL, n);
      memcpy(want, acc, sizeof acc);
      for (size_t i = 0; i < n; i++)
        want[i] *= 0.3f;
      hv_reduce_scale(set(level), acc, 0.3f, n);
      assert_memory_equal(acc, want, sizeof acc);
    }
}

static void conversions_are_the_same_on_every_set_and_write_no_further(void **state) {
  (void)state;
  static double one[N], two[N];
  for (int level = 1; level < HV_CPU_LEVELS; level++)
    for (size_t from = 0; from < 4; from++)
      for (size_t to = 0; to < 4; to++)
        for (size_t n = 0; n < 5000; n = n < 80 ? n + 1 : n + 1234) {
          values_fill(plain, n, VALUES_WILD, n);
          values_as(dtypes[from], plain, n, source, NULL);
          memset(one, 5, sizeof one), memset(two, 5, sizeof two);
          assert_int_equal(hv_reduce_convert(set(0), dtypes[from], source, dtypes[to], one, n), HV_OK);
          assert_int_equal(hv_reduce_convert(set(level), dtypes[from], source, dtypes[to], two, n), HV_OK);
          assert_memory_equal(one, two, sizeof one);
          assert_int_equal(((uint8_t *)two)[n * hv_dtype_size((int)dtypes[to])], 5);
        }
}

static void the_callers_rounding_and_flushing_change_nothing(void **state) {
  (void)state;
  double sum, sum2;
  values_fill(plain, N, VALUES_TINY, 1);
  memset(acc, 0, sizeof acc);
  assert_int_equal(hv_reduce_accumulate(hv_cpu_best(), HV_DTYPE_FLOAT32, plain, 0.5f, acc, N), HV_OK);
  assert_int_equal(hv_reduce_square_sum(hv_cpu_best(), HV_DTYPE_FLOAT32, plain, N, &sum), HV_OK);
  memset(want, 0, sizeof want);
#if defined(__SSE__)
  unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040 | 0x6000); /* flush to zero, denormals are zero, round towards zero */
#endif
  hv_status status = hv_reduce_accumulate(hv_cpu_best(), HV_DTYPE_FLOAT32, plain, 0.5f, want, N);
  hv_reduce_square_sum(hv_cpu_best(), HV_DTYPE_FLOAT32, plain, N, &sum2);
#if defined(__SSE__)
  unsigned after = _mm_getcsr();
  _mm_setcsr(mode);
  assert_int_equal(after & 0xe040, 0xe040);
#endif
  assert_int_equal(status, HV_OK);
  assert_memory_equal(acc, want, sizeof acc);
  assert_true(sum == sum2);
}

static void a_dtype_off_the_list_is_invalid(void **state) {
  (void)state;
  int finite;
  double sum;
  assert_int_equal(hv_reduce_accumulate(set(0), (hv_dtype)0, plain, 1, acc, 1), HV_INVALID);
  assert_int_equal(hv_reduce_finite(set(0), (hv_dtype)5, plain, 1, &finite), HV_INVALID);
  assert_int_equal(hv_reduce_square_sum(set(0), (hv_dtype)-1, plain, 1, &sum), HV_INVALID);
  assert_int_equal(hv_reduce_convert(set(0), HV_DTYPE_FLOAT32, plain, (hv_dtype)77, acc, 1), HV_INVALID);
}

/* Against float64, element by element; and alpha 1 gives the values themselves. */
static void blend_lies_between_local_and_averaged_values(void **state) {
  (void)state;
  check_rng rng = {77};
  for (int level = 0; level < HV_CPU_LEVELS; level++)
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
      static double local[N], mixed[N], whole[N];
      size_t size = hv_dtype_size((int)dtypes[d]);
      for (size_t i = 0; i < N; i++) {
        plain[i] = (float)check_normal(&rng);
        x[i] = (float)check_normal(&rng);
      }
      assert_int_equal(hv_reduce_convert(set(level), HV_DTYPE_FLOAT32, plain, dtypes[d], local, N), HV_OK);
      memcpy(mixed, local, N * size);
      memcpy(whole, local, N * size);
      assert_int_equal(hv_reduce_blend(set(level), dtypes[d], mixed, x, 0.25, N), HV_OK);
      assert_int_equal(hv_reduce_blend(set(level), dtypes[d], whole, x, 1, N), HV_OK);
      static double before[N], after[N], all[N];
      hv_reduce_convert(set(level), dtypes[d], local, HV_DTYPE_FLOAT64, before, N);
      hv_reduce_convert(set(level), dtypes[d], mixed, HV_DTYPE_FLOAT64, after, N);
      hv_reduce_convert(set(level), dtypes[d], whole, HV_DTYPE_FLOAT64, all, N);
      double close = size == 2 ? 0x1p-7 : 0x1p-22;
      for (size_t i = 0; i < N; i++) {
        double ideal = before[i] + 0.25 * ((double)x[i] - before[i]);
        assert_true(fabs(after[i] - ideal) <= close * (1 + fabs(ideal)));
        assert_true(fabs(all[i] - (double)x[i]) <= close * (1 + fabs((double)x[i])));
      }
    }
  assert_int_equal(hv_reduce_blend(set(0), (hv_dtype)9, acc, x, 0.5, 1), HV_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_float16_widens_to_its_value),
      cmocka_unit_test(blend_lies_between_local_and_averaged_values),
      cmocka_unit_test(float32_becomes_the_nearest_float16_and_bfloat16),
      cmocka_unit_test(accumulating_rounds_the_product_and_then_the_sum),
      cmocka_unit_test(one_value_that_is_not_finite_is_found_anywhere),
      cmocka_unit_test(values_within_the_limit_stay_within_it),
      cmocka_unit_test(float64_counts_as_finite_when_its_float32_is),
      cmocka_unit_test(square_sums_have_the_shape_that_the_header_gives),
      cmocka_unit_test(scaling_multiplies_each_value),
      cmocka_unit_test(conversions_are_the_same_on_every_set_and_write_no_further),
      cmocka_unit_test(the_callers_rounding_and_flushing_change_nothing),
      cmocka_unit_test(a_dtype_off_the_list_is_invalid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
