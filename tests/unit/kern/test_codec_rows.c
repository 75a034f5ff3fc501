/* SCALED_ROWS (kern/codec.h): each row has a scale of its own, wherever chunks and slices cut. */
#include "lib/seal.h"
#include "lib/values.h"

#include <math.h>
#include <string.h>

enum { MOST = 9000, ROOM = MOST * 12 + 4096 };

static const hv_dtype dtypes[] = {HV_DTYPE_FLOAT32, HV_DTYPE_FLOAT16, HV_DTYPE_BFLOAT16, HV_DTYPE_FLOAT64};
static const struct {
  size_t n;
  hv_rows rows;
} table[] = {
    {0, {1, 1}},          {1, {1, 1}},          {1, {7, 3}},
    {5, {1, 1}},          {9, {3, 3}},          {9, {4, 1}},
    {100, {17, 17}},      {1023, {64, 64}},     {1025, {1, 1}},
    {1025, {1024, 1024}}, {2048, {1024, 1}},    {4097, {4096, 4096}},
    {5000, {16, 16}},     {5000, {4999, 1}},    {8192, {512, 9}},
    {MOST, {3, 2}},       {MOST, {4100, 4099}}, {MOST, {(uint64_t)1 << 36, MOST - 1}},
};
enum { TABLE = sizeof table / sizeof *table };

static float plain[MOST], x[MOST], v[MOST], alone[MOST], acc[MOST];
static double source[MOST]; /* of any dtype */
static uint8_t chunk[ROOM], other[ROOM];

static const hv_kern *reference(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}

static hv_span encode(const hv_kern *kern, hv_dtype dtype, size_t n, hv_rows rows, uint8_t *out) {
  uint64_t size = 0;
  assert_int_equal(hv_codec_encode_rows(kern, HV_CODEC_SCALED_ROWS, dtype, source, n, rows, NULL, out, ROOM, &size), HV_OK);
  assert_true(size == hv_codec_bound_rows(HV_CODEC_SCALED_ROWS, (int)dtype, n, rows));
  return hv_span_of(out, (size_t)size);
}

/* Magnitudes from 1e-9 to 1e9, row by row. */
static void fill(size_t i, values_kind kind, hv_dtype dtype) {
  values_fill(plain, table[i].n, kind, i + 1);
  for (size_t k = 0; k < table[i].n && kind < VALUES_TINY && dtype != HV_DTYPE_FLOAT16; k++) {
    uint64_t row = k < table[i].rows.first ? 0 : 1 + (k - table[i].rows.first) / table[i].rows.width;
    plain[k] *= powf(10, (float)(row % 19) - 9);
  }
  values_as(dtype, plain, table[i].n, source, x);
}

/* The end of the row that has element `at`. */
static size_t end_of(size_t i, size_t at) {
  size_t end = table[i].rows.first;
  while (end <= at)
    end += table[i].rows.width;
  return end < table[i].n ? end : table[i].n;
}

static void each_row_decodes_as_a_tensor_of_that_row_alone(void **state) {
  (void)state;
  for (size_t i = 0; i < TABLE; i++)
    for (int kind = 0; kind < VALUES_TAME; kind++)
      for (size_t d = 0; d < 4; d++) {
        size_t width = hv_dtype_size((int)dtypes[d]);
        fill(i, (values_kind)kind, dtypes[d]);
        hv_span span = encode(reference(), dtypes[d], table[i].n, table[i].rows, chunk);
        assert_int_equal(hv_codec_decode(reference(), &span, 1, HV_DTYPE_FLOAT32, v, table[i].n), HV_OK);
        for (size_t at = 0, end; at < table[i].n; at = end) {
          uint64_t size = 0;
          end = end_of(i, at);
          assert_int_equal(hv_codec_encode(reference(), HV_CODEC_SCALED_FLOAT16, dtypes[d], (uint8_t *)source + at * width,
                                           end - at, NULL, other, ROOM, &size),
                           HV_OK);
          hv_span one = hv_span_of(other, (size_t)size);
          assert_int_equal(hv_codec_decode(reference(), &one, 1, HV_DTYPE_FLOAT32, alone, end - at), HV_OK);
          for (size_t k = at; k < end; k++)
            assert_true(v[k] == alone[k - at]);
        }
      }
}

static void every_set_of_kernels_makes_the_same_rows(void **state) {
  (void)state;
  for (int level = 1; level < HV_CPU_LEVELS; level++)
    for (size_t i = 0; i < TABLE; i++)
      for (int kind = 0; kind < VALUES_KINDS; kind++) {
        const hv_kern *kern = hv_cpu_kern((hv_cpu_level)level);
        if (!kern)
          continue;
        fill(i, (values_kind)kind, dtypes[kind % 4]);
        hv_span one = encode(reference(), dtypes[kind % 4], table[i].n, table[i].rows, chunk);
        assert_true(hv_span_equal(one, encode(kern, dtypes[kind % 4], table[i].n, table[i].rows, other)));
        assert_int_equal(hv_codec_decode(reference(), &one, 1, HV_DTYPE_FLOAT32, v, table[i].n), HV_OK);
        assert_int_equal(hv_codec_decode(kern, &one, 1, HV_DTYPE_FLOAT32, alone, table[i].n), HV_OK);
        if (kind < VALUES_TAME)
          assert_memory_equal(v, alone, table[i].n * sizeof *v);
      }
}

/* Rows of one value, of equal values and of subnormals; NaN and Inf show, in their own row alone. */
static void odd_rows_come_back_as_the_contract_says(void **state) {
  (void)state;
  static const float in[] = {3.5f, 3.5f, 3.5f, 3.5f, 1e-42f, -1e-42f, 2e-42f, 0,        NAN,  NAN, NAN,  NAN,
                             1,    2,    NAN,  4,    1,      2,       3,      INFINITY, -0.f, 0,   -0.f, 0};
  memcpy(source, in, sizeof in);
  hv_span span = encode(reference(), HV_DTYPE_FLOAT32, 24, (hv_rows){4, 4}, chunk);
  int finite = 1;
  hv_codec_info info;
  assert_int_equal(hv_codec_check(reference(), &span, 1, &info, &finite), HV_OK);
  assert_false(finite);
  assert_int_equal(hv_codec_decode(reference(), &span, 1, HV_DTYPE_FLOAT32, v, 24), HV_OK);
  for (size_t i = 0; i < 4; i++) {
    assert_true(v[i] == 3.5f);
    assert_true(fabsf(v[4 + i] - in[4 + i]) <= 2e-42f);
    assert_true(isnan(v[8 + i]));
    assert_true(isnan(v[12 + i]) == (i == 2));
    assert_true(isfinite(v[16 + i]));
    assert_true(v[20 + i] == 0);
  }
  for (size_t i = 0; i < 24; i++) /* rows of one value: that value */
    x[i] = isfinite(in[i]) ? in[i] : 1e30f;
  memcpy(source, x, sizeof in);
  span = encode(reference(), HV_DTYPE_FLOAT32, 24, (hv_rows){1, 1}, chunk);
  assert_int_equal(hv_codec_decode_finite(reference(), &span, 1, HV_DTYPE_FLOAT32, v, 24), HV_OK);
  for (size_t i = 0; i < 24; i++)
    assert_true(v[i] == x[i]);
  ((float *)source)[7] = INFINITY; /* alone in its row: no deviation, so NaN */
  span = encode(reference(), HV_DTYPE_FLOAT32, 24, (hv_rows){1, 1}, chunk);
  assert_int_equal(hv_codec_decode_finite(reference(), &span, 1, HV_DTYPE_FLOAT32, v, 24), HV_NOT_FINITE);
}

static void rows_may_come_in_any_parts_and_add_up(void **state) {
  (void)state;
  check_rng rng = {3};
  static hv_span parts[ROOM];
  for (int run = 0; run < 20 * TABLE; run++) {
    size_t i = (size_t)run % TABLE, n_parts = 0;
    fill(i, VALUES_NORMAL, HV_DTYPE_FLOAT32);
    hv_span whole = encode(reference(), HV_DTYPE_FLOAT32, table[i].n, table[i].rows, chunk);
    for (size_t at = 0, some; at < whole.size; at += some, n_parts++) {
      some = check_random(&rng) % (1 + check_random(&rng) % 3000);
      some = some < whole.size - at ? some : whole.size - at;
      parts[n_parts] = hv_span_of(whole.data + at, some);
    }
    assert_int_equal(hv_codec_decode(hv_cpu_best(), &whole, 1, HV_DTYPE_FLOAT32, v, table[i].n), HV_OK);
    assert_int_equal(hv_codec_decode(hv_cpu_best(), parts, n_parts, HV_DTYPE_FLOAT32, alone, table[i].n), HV_OK);
    assert_memory_equal(v, alone, table[i].n * sizeof *v);
    for (size_t k = 0; k < table[i].n; k++)
      acc[k] = 1;
    assert_int_equal(hv_codec_accumulate_within(hv_cpu_best(), parts, n_parts, 0.5f, 0, acc, table[i].n), HV_OK);
    for (size_t k = 0; k < table[i].n; k++) {
      float half = 0.5f * v[k];
      assert_true(acc[k] == 1 + half);
    }
  }
}

static hv_status lie(hv_span span, size_t at, const void *bytes, size_t size, size_t n) {
  memcpy(other, span.data, span.size);
  memcpy(other + at, bytes, size);
  seal_chunk(other, span.size);
  hv_span changed = hv_span_of(other, span.size);
  return hv_codec_decode(hv_cpu_best(), &changed, 1, HV_DTYPE_FLOAT32, v, n);
}

static void rows_that_cannot_be_are_refused(void **state) {
  (void)state;
  static const hv_rows odd[] = {{0, 1}, {1, 0}, {5, 6}, {((uint64_t)1 << 36) + 1, 1}, {UINT64_MAX, UINT64_MAX}};
  static const float wild[] = {NAN, INFINITY, -INFINITY, 3e38f};
  const float minus = -1;
  uint64_t size;
  fill(7, VALUES_NORMAL, HV_DTYPE_FLOAT32);
  hv_span span = encode(reference(), HV_DTYPE_FLOAT32, 1023, table[7].rows, chunk);
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    assert_int_equal(hv_codec_bound_rows(HV_CODEC_SCALED_ROWS, HV_DTYPE_FLOAT32, 1023, odd[i]), 0);
    assert_int_equal(
        hv_codec_encode_rows(reference(), HV_CODEC_SCALED_ROWS, HV_DTYPE_FLOAT32, source, 1023, odd[i], NULL, other, ROOM, &size),
        HV_INVALID);
    assert_int_equal(lie(span, 32, &odd[i], sizeof odd[i], 1023), HV_MALFORMED);
  }
  hv_rows fewer = {128, 128}; /* rows that may be, of a chunk of another size */
  assert_int_equal(lie(span, 32, &fewer, sizeof fewer, 1023), HV_MALFORMED);
  for (size_t k = 0; k < 4; k++)
    for (size_t row = 0; row < 16; row++) {
      assert_int_equal(lie(span, 48 + 8 * row, &wild[k], 4, 1023), HV_MALFORMED);
      assert_int_equal(lie(span, 48 + 8 * row + 4, &wild[k], 4, 1023), HV_MALFORMED);
    }
  assert_int_equal(lie(span, 48 + 4, &minus, 4, 1023), HV_MALFORMED);
  assert_int_equal(lie(span, 48, &minus, 4, 1023), HV_OK);
  for (size_t cut = 0; cut < span.size; cut++) {
    hv_span shorter = hv_span_of(span.data, cut);
    assert_int_equal(hv_codec_decode(reference(), &shorter, 1, HV_DTYPE_FLOAT32, v, 1023), HV_MALFORMED);
  }
}

static void error_feedback_keeps_the_loss_of_each_row(void **state) {
  (void)state;
  static float residual[MOST];
  for (size_t i = 0; i < TABLE; i++) {
    uint64_t size = 0;
    fill(i, VALUES_NORMAL, HV_DTYPE_FLOAT32);
    memset(residual, 0, sizeof residual);
    assert_int_equal(hv_codec_encode_rows(hv_cpu_best(), HV_CODEC_SCALED_ROWS, HV_DTYPE_FLOAT32, source, table[i].n, table[i].rows,
                                          residual, chunk, ROOM, &size),
                     HV_OK);
    hv_span span = hv_span_of(chunk, (size_t)size);
    assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, v, table[i].n), HV_OK);
    for (size_t k = 0; k < table[i].n; k++)
      assert_true(residual[k] == x[k] - v[k]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_row_decodes_as_a_tensor_of_that_row_alone),
      cmocka_unit_test(every_set_of_kernels_makes_the_same_rows),
      cmocka_unit_test(odd_rows_come_back_as_the_contract_says),
      cmocka_unit_test(rows_may_come_in_any_parts_and_add_up),
      cmocka_unit_test(rows_that_cannot_be_are_refused),
      cmocka_unit_test(error_feedback_keeps_the_loss_of_each_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
