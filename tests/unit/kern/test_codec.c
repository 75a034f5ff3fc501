#include "lib/values.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 20000 };

static const hv_dtype dtypes[] = {HV_DTYPE_FLOAT32, HV_DTYPE_FLOAT16, HV_DTYPE_BFLOAT16, HV_DTYPE_FLOAT64};
static const size_t lengths[] = {0,    1,    2,    3,    7,    15,   16,   17,   31,    32,   33,   63,
                                 64,   65,   127,  128,  129,  255,  256,  257,  1000,  1023, 1024, 1025,
                                 2047, 2049, 4095, 4096, 4097, 4160, 8191, 8192, 12289, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static float pool[VALUES_KINDS][MOST]; /* filled once */
static const float *plain;
static float x[MOST], v[MOST], other[MOST], acc[MOST], acc2[MOST];
static double source[MOST]; /* of any dtype */
static uint8_t chunk[MOST * 8 + 4096], chunk2[MOST * 8 + 4096];

static const hv_kern *reference(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}

static hv_span encode(const hv_kern *kern, int codec, hv_dtype dtype, size_t n, float *residual, uint8_t *out) {
  uint64_t size = 0;
  assert_int_equal(hv_codec_encode(kern, (hv_codec)codec, dtype, source, n, residual, out, sizeof chunk - 64, &size), HV_OK);
  assert_true(size == hv_codec_bound(codec, (int)dtype, n));
  return hv_span_of(out, (size_t)size);
}

static float at(const hv_span *span, size_t offset) {
  float f;
  memcpy(&f, span->data + HV_CODEC_HEADER + offset, 4);
  return f;
}

static float linear_scale(const hv_span *span, size_t i) {
  uint32_t bits = (uint32_t)(span->data[HV_CODEC_HEADER + i / 64 * 2] | span->data[HV_CODEC_HEADER + i / 64 * 2 + 1] << 8) << 16;
  float d;
  memcpy(&d, &bits, 4);
  return fabsf(d);
}

/* The bound of docs/design/codecs.md for element i. */
static double bound(int codec, const hv_span *span, size_t n, size_t i, double largest) {
  double eps = largest * 0x1p-22 + 0x1p-118, size = fabs((double)x[i]);
  switch (codec) {
  case HV_CODEC_NONE:
    return 0;
  case HV_CODEC_FLOAT16:
    return size > 65504 ? size - 65504 : fmax(size * 0x1p-11, 0x1p-25);
  case HV_CODEC_SCALED_FLOAT16:
  case HV_CODEC_SCALED_ROWS: {
    size_t scale = codec == HV_CODEC_SCALED_ROWS ? 16 : 0;
    double away = fabs((double)x[i] - at(span, scale)), std = at(span, scale + 4);
    return away > 65504 * std ? away : fmax(away * 0x1p-11, std * 0x1p-25) + eps;
  }
  case HV_CODEC_BFLOAT16:
    return fmax(size * 0x1p-8, 0x1p-134);
  case HV_CODEC_UNIFORM8: {
    double away = fabs((double)x[i] - at(span, 0)), step = at(span, 4), most = 0;
    for (size_t j = 0; j < n; j++)
      most = fmax(most, fabs((double)x[j] - at(span, 0)));
    return away < 126.49 * step ? step / 2 + eps : most - 126.5 * step + step / 64 + eps;
  }
  case HV_CODEC_QUANTILE8: {
    double low = 0, high = 0;
    for (size_t j = 0; j < n; j++)
      low = fmin(low, x[j]), high = fmax(high, x[j]);
    return high - low;
  }
  case HV_CODEC_BLOCKWISE8: {
    double absmax = at(span, i / 4096 * 4), tight = absmax * 0.0072 + eps;
    return absmax > 0 && size >= absmax * 1e-5 ? fmin(tight, size * 0.5) : tight;
  }
  default: {
    double d = linear_scale(span, i), levels = codec == HV_CODEC_LINEAR8 ? 127.5 : 7.5;
    return (size <= levels * d ? d / 2 : d) * (1 + 0x1p-14) + (d > 0 ? 0 : 0x1p-113);
  }
  }
}

static void hold_bounds(int codec, hv_dtype dtype, values_kind kind, size_t n) {
  plain = pool[kind];
  values_as(dtype, plain, n, source, x);
  hv_span span = encode(reference(), codec, dtype, n, NULL, chunk);
  assert_int_equal(hv_codec_decode(reference(), &span, 1, HV_DTYPE_FLOAT32, v, n), HV_OK);
  double largest = 0;
  for (size_t i = 0; i < n; i++)
    largest = fmax(largest, fabs((double)x[i]));
  size_t stride = codec == HV_CODEC_UNIFORM8 || codec == HV_CODEC_QUANTILE8 ? n / 16 + 1 : 1;
  for (size_t i = 0; i < n; i += stride) {
    double miss = fabs((double)x[i] - v[i]), most = bound(codec, &span, n, i, largest);
    if (!(miss <= most))
      fail_msg("%s of %s, dtype %d, %zu elements: [%zu] %.9g became %.9g, off by %.3g, not %.3g", hv_codec_name(codec),
               values_name(kind), (int)dtype, n, i, (double)x[i], (double)v[i], miss, most);
  }
}

static void every_codec_holds_its_bound(void **state) {
  (void)state;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (size_t d = 0; d < 4; d++)
      for (int kind = 0; kind < VALUES_TAME; kind++)
        for (size_t l = 0; l < LENGTHS; l++)
          hold_bounds(codec, dtypes[d], (values_kind)kind, lengths[l]);
}

static double relative_error(int codec, values_kind kind, size_t n) {
  plain = pool[kind];
  values_as(HV_DTYPE_FLOAT32, plain, n, source, x);
  hv_span span = encode(hv_cpu_best(), codec, HV_DTYPE_FLOAT32, n, NULL, chunk);
  assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, v, n), HV_OK);
  double miss = 0, all = 0;
  for (size_t i = 0; i < n; i++)
    miss += ((double)x[i] - v[i]) * ((double)x[i] - v[i]), all += (double)x[i] * x[i];
  return sqrt(miss / all);
}

/* 256 buckets of a width of 6 / 256 deviations, each decoding to its mean. */
static double six_sigma_error(size_t n) {
  double mean = 0, square = 0, sum[256] = {0}, count[256] = {0}, miss = 0, all = 0;
  for (size_t i = 0; i < n; i++)
    mean += x[i] / (double)n;
  for (size_t i = 0; i < n; i++)
    square += (x[i] - mean) * (x[i] - mean);
  double step = 6 * sqrt(square / (double)(n - 1)) / 256;
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < n; i++) {
      int k = (int)fmin(255, fmax(0, nearbyint((x[i] - mean) / step) + 128));
      if (!pass)
        sum[k] += x[i], count[k]++;
      else
        miss += pow(x[i] - sum[k] / count[k], 2), all += (double)x[i] * x[i];
    }
  return sqrt(miss / all);
}

static int by_value(const void *a, const void *b) {
  float l = *(const float *)a, r = *(const float *)b;
  return (l > r) - (l < r);
}

/* 256 buckets of equal numbers, each decoding to its mean. */
static double equal_quantiles_error(size_t n) {
  double miss = 0, all = 0;
  memcpy(other, x, n * sizeof *x);
  qsort(other, n, sizeof *other, by_value);
  for (size_t k = 0; k < 256; k++) {
    size_t from = k * n / 256, to = (k + 1) * n / 256;
    double mean = 0;
    for (size_t i = from; i < to; i++)
      mean += other[i] / (double)(to - from);
    for (size_t i = from; i < to; i++)
      miss += pow(other[i] - mean, 2), all += (double)other[i] * other[i];
  }
  return sqrt(miss / all);
}

static void eight_bits_lose_less_than_plain_buckets_do(void **state) {
  (void)state;
  for (int kind = VALUES_NORMAL; kind <= VALUES_FEW; kind++) {
    double uniform = relative_error(HV_CODEC_UNIFORM8, (values_kind)kind, MOST), sigma = six_sigma_error(MOST);
    double quantile = relative_error(HV_CODEC_QUANTILE8, (values_kind)kind, MOST), equal = equal_quantiles_error(MOST);
    printf("%-7s uniform8 %.5f (buckets of 6 sigma / 256: %.5f) quantile8 %.5f (equal quantiles: %.5f) blockwise8 %.5f linear8 "
           "%.5f linear4 %.5f\n",
           values_name((values_kind)kind), uniform, sigma, quantile, equal,
           relative_error(HV_CODEC_BLOCKWISE8, (values_kind)kind, MOST), relative_error(HV_CODEC_LINEAR8, (values_kind)kind, MOST),
           relative_error(HV_CODEC_LINEAR4, (values_kind)kind, MOST));
    if (kind < VALUES_FEW)
      assert_true(uniform <= sigma);
    assert_true(quantile <= equal * 1.001 + 1e-7);
  }
}

static void zeros_and_repeated_values_come_back_exactly_from_quantile8(void **state) {
  (void)state;
  static const values_kind kinds[] = {VALUES_SPARSE, VALUES_FEW, VALUES_EQUAL, VALUES_ZERO};
  for (size_t k = 0; k < 4; k++) {
    relative_error(HV_CODEC_QUANTILE8, kinds[k], MOST);
    for (size_t i = 0; i < MOST; i++)
      if (x[i] == 0 || kinds[k] != VALUES_SPARSE)
        assert_true(v[i] == x[i]);
  }
}

static void every_set_of_kernels_gives_the_same_bytes_and_values(void **state) {
  (void)state;
  for (int level = 1; level < HV_CPU_LEVELS; level++) {
    const hv_kern *kern = hv_cpu_kern((hv_cpu_level)level);
    if (!kern)
      continue;
    for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
      for (size_t d = 0; d < 4; d++)
        for (int kind = 0; kind < VALUES_KINDS; kind++)
          for (size_t l = 0; l < LENGTHS; l++) {
            size_t n = lengths[l], off = l % 5; /* odd alignments of the chunk too */
            plain = pool[kind];
            values_as(dtypes[d], plain, n, source, NULL);
            hv_span a = encode(reference(), codec, dtypes[d], n, NULL, chunk),
                    b = encode(kern, codec, dtypes[d], n, NULL, chunk2 + off);
            if (!hv_span_equal(a, b))
              fail_msg("%s: %s of %s, dtype %d, %zu elements: other bytes", hv_cpu_name(kern), hv_codec_name(codec),
                       values_name((values_kind)kind), (int)dtypes[d], n);
            assert_int_equal(hv_codec_decode(reference(), &a, 1, HV_DTYPE_FLOAT32, v, n), HV_OK);
            assert_int_equal(hv_codec_decode(kern, &b, 1, HV_DTYPE_FLOAT32, other, n), HV_OK);
            assert_memory_equal(v, other, n * sizeof *v);
            memcpy(acc, pool[VALUES_NORMAL], n * sizeof *acc);
            memcpy(acc2, acc, n * sizeof *acc);
            hv_status status = hv_codec_accumulate(reference(), &a, 1, 0.3f, acc, n);
            assert_int_equal(hv_codec_accumulate(kern, &b, 1, 0.3f, acc2, n), status);
            assert_memory_equal(acc, acc2, n * sizeof *acc);
          }
  }
}

static void accumulating_adds_the_decoded_values_times_the_weight(void **state) {
  (void)state;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (size_t d = 0; d < 4; d++)
      for (size_t l = 0; l < LENGTHS; l++) {
        size_t n = lengths[l];
        plain = pool[VALUES_HEAVY];
        values_as(dtypes[d], plain, n, source, NULL);
        hv_span span = encode(hv_cpu_best(), codec, dtypes[d], n, NULL, chunk);
        assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, v, n), HV_OK);
        memcpy(acc, pool[VALUES_NORMAL], n * sizeof *acc);
        for (size_t i = 0; i < n; i++) {
          volatile float part = 2.7f * v[i];
          acc2[i] = acc[i] + part;
        }
        assert_int_equal(hv_codec_accumulate(hv_cpu_best(), &span, 1, 2.7f, acc, n), HV_OK);
        assert_memory_equal(acc, acc2, n * sizeof *acc);
      }
}

static void decoding_into_other_types_is_decoding_and_converting(void **state) {
  (void)state;
  static double got[MOST], want[MOST];
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (size_t d = 0; d < 4; d++)
      for (size_t to = 0; to < 4; to++) {
        size_t n = 5000;
        plain = pool[VALUES_HEAVY];
        values_as(dtypes[d], plain, n, source, NULL);
        hv_span span = encode(hv_cpu_best(), codec, dtypes[d], n, NULL, chunk);
        assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, dtypes[to], got, n), HV_OK);
        assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, v, n), HV_OK);
        if (codec == HV_CODEC_NONE && to == d)
          memcpy(want, source, sizeof want);
        else
          values_as(dtypes[to], v, n, want, NULL);
        assert_memory_equal(got, want, n * hv_dtype_size((int)dtypes[to]));
      }
}

static void float64_passes_through_none_to_the_last_bit(void **state) {
  (void)state;
  check_rng rng = {4};
  static double back[1000];
  for (size_t i = 0; i < 1000; i++)
    source[i] = check_normal(&rng);
  hv_span span = encode(hv_cpu_best(), HV_CODEC_NONE, HV_DTYPE_FLOAT64, 1000, NULL, chunk);
  assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT64, back, 1000), HV_OK);
  assert_memory_equal(back, source, sizeof back);
}

static void non_finite_values_become_those_of_the_page(void **state) {
  (void)state;
  const float odd[4] = {NAN, INFINITY, -INFINITY, 1};
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    hv_codec_info info;
    int finite = -1;
    memcpy(source, odd, sizeof odd);
    hv_span span = encode(hv_cpu_best(), codec, HV_DTYPE_FLOAT32, 4, NULL, chunk);
    assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, v, 4), HV_OK);
    assert_int_equal(hv_codec_check(hv_cpu_best(), &span, 1, &info, &finite), HV_OK);
    memset(acc, 0, 16);
    hv_status status = hv_codec_accumulate(hv_cpu_best(), &span, 1, 1, acc, 4);
    if (codec <= HV_CODEC_BFLOAT16 || codec == HV_CODEC_SCALED_ROWS) {
      assert_true(isnan(v[0]));
      assert_int_equal(finite, 0);
      assert_int_equal(status, HV_NOT_FINITE);
      assert_true(acc[0] == 0 && acc[3] == 0);
    } else {
      assert_true(isfinite(v[0]) && v[1] > 0x1p125f && v[2] < -0x1p125f);
      assert_int_equal(finite, 1);
      assert_int_equal(status, HV_OK);
    }
    if (codec == HV_CODEC_NONE || codec == HV_CODEC_BFLOAT16)
      assert_true(v[1] == INFINITY && v[2] == -INFINITY && v[3] == 1);
    if (codec == HV_CODEC_FLOAT16)
      assert_true(v[1] == 65504 && v[2] == -65504 && v[3] == 1);
  }
}

static void non_finite_source_is_reported_at_any_position(void **state) {
  (void)state;
  enum { N = 3 * 4096 + 5 };
  const size_t places[] = {0, 31, 4095, 4096, 12288, N - 1};
  const float odd[3] = {NAN, INFINITY, -INFINITY};
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (int d = 0; d < 4; d++) {
      uint64_t size = 0;
      for (size_t i = 0; i < N; i++)
        x[i] = plain[i % 1000];
      assert_int_equal(hv_reduce_convert(reference(), HV_DTYPE_FLOAT32, x, dtypes[d], source, N), HV_OK);
      hv_span same = encode(hv_cpu_best(), codec, dtypes[d], N, NULL, chunk);
      assert_int_equal(
          hv_codec_encode_finite(hv_cpu_best(), (hv_codec)codec, dtypes[d], source, N, (hv_rows){0}, chunk2, sizeof chunk2, &size),
          HV_OK);
      assert_true(size == same.size && !memcmp(chunk2, same.data, same.size));
      for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        x[places[p]] = odd[p % 3];
        assert_int_equal(hv_reduce_convert(reference(), HV_DTYPE_FLOAT32, x, dtypes[d], source, N), HV_OK);
        same = encode(reference(), codec, dtypes[d], N, NULL, chunk);
        int told = dtypes[d] != HV_DTYPE_FLOAT16 || p % 3 == 0; /* there, what is infinite is limited */
        assert_int_equal(hv_codec_encode_finite(hv_cpu_best(), (hv_codec)codec, dtypes[d], source, N, (hv_rows){0}, chunk2,
                                                sizeof chunk2, &size),
                         told ? HV_NOT_FINITE : HV_OK);
        assert_true(!memcmp(encode(hv_cpu_best(), codec, dtypes[d], N, NULL, chunk2).data, same.data, same.size));
        x[places[p]] = 1;
      }
    }
}

static void error_feedback_sends_residuals_later(void **state) {
  (void)state;
  enum { N = 10000, ROUNDS = 40 };
  static float residual[N];
  static double sent[N];
  for (int codec = 1; codec < HV_CODEC_COUNT; codec++) {
    memset(residual, 0, sizeof residual);
    memset(sent, 0, sizeof sent);
    plain = pool[VALUES_NORMAL];
    values_as(HV_DTYPE_FLOAT32, plain, N, source, x);
    double once = 0, feedback = 0, all = 0;
    for (int round = 0; round < ROUNDS; round++) {
      memcpy(other, residual, sizeof residual);
      hv_span span = encode(hv_cpu_best(), codec, HV_DTYPE_FLOAT32, N, residual, chunk);
      assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, v, N), HV_OK);
      for (size_t i = 0; i < N; i++) {
        float y = other[i] + x[i];
        assert_true(residual[i] == y - v[i]);
        sent[i] += v[i];
        once += round ? 0 : pow((double)x[i] - v[i], 2);
      }
    }
    for (size_t i = 0; i < N; i++)
      feedback += pow(x[i] - sent[i] / ROUNDS, 2), all += (double)x[i] * x[i];
    if (!(feedback <= once / 100 + all * 1e-13))
      fail_msg("%s: mean of %d rounds off by %.3g, one round by %.3g", hv_codec_name(codec), ROUNDS, sqrt(feedback / all),
               sqrt(once / all));
  }
}

/* It survives values of any size. */
static void error_feedback_is_the_same_on_every_set_of_kernels(void **state) {
  (void)state;
  static float a[MOST], b[MOST];
  for (int level = 1; level < HV_CPU_LEVELS; level++)
    for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
      for (size_t d = 0; d < 4; d++)
        for (int kind = 0; kind < VALUES_KINDS; kind++) {
          const hv_kern *kern = hv_cpu_kern((hv_cpu_level)level);
          size_t n = 4097 + 64 * (size_t)kind;
          if (!kern)
            continue;
          values_fill(a, n, VALUES_NORMAL, 1);
          memcpy(b, a, sizeof a);
          plain = pool[kind];
          values_as(dtypes[d], plain, n, source, NULL);
          hv_span one = encode(reference(), codec, dtypes[d], n, a, chunk), two = encode(kern, codec, dtypes[d], n, b, chunk2);
          assert_true(hv_span_equal(one, two));
          assert_memory_equal(a, b, n * sizeof *a);
          for (size_t i = 0; i < n; i++)
            assert_true(isfinite(a[i]));
        }
}

static void a_large_chunk_past_the_caches_is_the_same_chunk(void **state) {
  (void)state;
  enum { N = 9 << 20 };
  float *big = malloc(N * sizeof *big), *back = malloc(N * sizeof *back), *back2 = malloc(N * sizeof *back2);
  uint8_t *one = malloc(N * 4 + 4096), *two = malloc(N * 4 + 4096);
  assert_true(big && back && back2 && one && two);
  values_fill(big, N / 8, VALUES_NORMAL, 1);
  for (size_t i = N / 8; i < N; i++)
    big[i] = big[i - N / 8] * 1.01f;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    uint64_t size = 0;
    size_t n = N - 5;
    assert_int_equal(hv_codec_encode(reference(), (hv_codec)codec, HV_DTYPE_FLOAT32, big, n, NULL, one, N * 4 + 4096, &size),
                     HV_OK);
    assert_int_equal(hv_codec_encode(hv_cpu_best(), (hv_codec)codec, HV_DTYPE_FLOAT32, big, n, NULL, two + 7, N * 4 + 4000, &size),
                     HV_OK);
    assert_memory_equal(one, two + 7, (size_t)size);
    hv_span span = hv_span_of(two + 7, (size_t)size);
    assert_int_equal(hv_codec_decode(reference(), &span, 1, HV_DTYPE_FLOAT32, back, n), HV_OK);
    assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, back2, n), HV_OK);
    assert_memory_equal(back, back2, n * sizeof *back);
  }
  free(big), free(back), free(back2), free(one), free(two);
}

static void codec_names_are_found_again(void **state) {
  (void)state;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    assert_int_equal(hv_codec_find(hv_codec_name(codec)), codec);
  assert_int_equal(hv_codec_find("zip"), -1);
  assert_null(hv_codec_name(-1));
  assert_null(hv_codec_name(HV_CODEC_COUNT));
  assert_non_null(hv_cpu_name(hv_cpu_best()));
}

static int fill_pool(void **state) {
  (void)state;
  for (int kind = 0; kind < VALUES_KINDS; kind++)
    values_fill(pool[kind], MOST, (values_kind)kind, 1);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_codec_holds_its_bound),
      cmocka_unit_test(eight_bits_lose_less_than_plain_buckets_do),
      cmocka_unit_test(zeros_and_repeated_values_come_back_exactly_from_quantile8),
      cmocka_unit_test(every_set_of_kernels_gives_the_same_bytes_and_values),
      cmocka_unit_test(accumulating_adds_the_decoded_values_times_the_weight),
      cmocka_unit_test(decoding_into_other_types_is_decoding_and_converting),
      cmocka_unit_test(float64_passes_through_none_to_the_last_bit),
      cmocka_unit_test(non_finite_values_become_those_of_the_page),
      cmocka_unit_test(non_finite_source_is_reported_at_any_position),
      cmocka_unit_test(error_feedback_sends_residuals_later),
      cmocka_unit_test(error_feedback_is_the_same_on_every_set_of_kernels),
      cmocka_unit_test(a_large_chunk_past_the_caches_is_the_same_chunk),
      cmocka_unit_test(codec_names_are_found_again),
  };
  return cmocka_run_group_tests(tests, fill_pool, NULL);
}
