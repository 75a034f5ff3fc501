#include "lib/seal.h"
#include "lib/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 9000, ROOM = N * 8 + 2048 };

static float plain[N], out[N + 16], want[N];
static double source[N];
static uint8_t chunk[ROOM], changed[ROOM];

static hv_span encode(int codec, hv_dtype dtype, size_t n) {
  uint64_t size;
  values_fill(plain, n, VALUES_NORMAL, 1);
  values_as(dtype, plain, n, source, NULL);
  assert_int_equal(hv_codec_encode(hv_cpu_best(), (hv_codec)codec, dtype, source, n, NULL, chunk, ROOM, &size), HV_OK);
  return hv_span_of(chunk, (size_t)size);
}

static hv_status decode(hv_span span, size_t n) {
  return hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, out, n);
}

static void the_checksum_is_the_one_in_the_header(void **state) {
  (void)state;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (size_t n = 0; n <= N; n = n * 3 + 1) {
      hv_span span = encode(codec, HV_DTYPE_FLOAT32, n);
      memcpy(changed, chunk, span.size);
      seal_chunk(changed, span.size);
      assert_memory_equal(changed, chunk, span.size);
    }
}

static void a_chunk_cut_or_grown_is_malformed(void **state) {
  (void)state;
  hv_codec_info info;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    hv_span span = encode(codec, HV_DTYPE_FLOAT32, 100);
    for (size_t size = 0; size < span.size; size++) {
      uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a step beyond */
      assert_non_null(exact);
      memcpy(exact, chunk, size);
      hv_span cut = hv_span_of(exact, size);
      assert_int_equal(hv_codec_peek(&cut, 1, &info), HV_MALFORMED);
      assert_int_equal(decode(cut, 100), HV_MALFORMED);
      free(exact);
    }
    chunk[span.size] = 0;
    assert_int_equal(decode(hv_span_of(chunk, span.size + 1), 100), HV_MALFORMED);
  }
  assert_int_equal(hv_codec_peek(NULL, 0, &info), HV_MALFORMED);
}

static void every_flipped_bit_is_noticed(void **state) {
  (void)state;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    hv_span span = encode(codec, HV_DTYPE_FLOAT32, 333);
    for (size_t bit = 0; bit < span.size * 8; bit++) {
      chunk[bit / 8] ^= (uint8_t)(1 << bit % 8);
      memset(out, 1, sizeof out);
      if (decode(span, 333) == HV_OK)
        fail_msg("%s: bit %zu of byte %zu flipped unnoticed", hv_codec_name(codec), bit % 8, bit / 8);
      assert_int_equal(hv_codec_accumulate(hv_cpu_best(), &span, 1, 1, out, 333) == HV_OK, 0);
      uint32_t untouched;
      memcpy(&untouched, out, 4);
      assert_int_equal(untouched, 0x01010101);
      chunk[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
  }
}

static void swapped_pieces_are_noticed(void **state) {
  (void)state;
  hv_span span = encode(HV_CODEC_NONE, HV_DTYPE_FLOAT32, 4096);
  memcpy(changed, chunk, span.size);
  memcpy(changed + 32, chunk + 32 + 4096, 4096);
  memcpy(changed + 32 + 4096, chunk + 32, 4096);
  assert_int_equal(decode(hv_span_of(changed, span.size), 4096), HV_CORRUPT);
  memcpy(changed, chunk, span.size);
  memcpy(changed + 40, chunk + 48, 8);
  memcpy(changed + 48, chunk + 40, 8);
  assert_int_equal(decode(hv_span_of(changed, span.size), 4096), HV_CORRUPT);
}

/* Sets bytes at an offset, with a right checksum, and says how decoding goes. */
static hv_status lie(hv_span span, size_t at, const void *bytes, size_t n_bytes, size_t n) {
  memcpy(changed, span.data, span.size);
  memcpy(changed + at, bytes, n_bytes);
  seal_chunk(changed, span.size);
  return decode(hv_span_of(changed, span.size), n);
}

static void a_header_that_lies_is_refused(void **state) {
  (void)state;
  hv_span span = encode(HV_CODEC_UNIFORM8, HV_DTYPE_FLOAT32, 100);
  const uint64_t counts[] = {0, 99, 101, UINT64_MAX, (uint64_t)1 << 36, (uint64_t)1 << 63, (uint64_t)1 << 61};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    assert_int_equal(lie(span, 8, &counts[i], 8, 100), HV_MALFORMED);
  const uint64_t bodies[] = {0, 32, 47, 49, UINT64_MAX};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
    assert_int_equal(lie(span, 16, &bodies[i], 8, 100), HV_MALFORMED);
  assert_int_equal(lie(span, 0, "XX", 2, 100), HV_MALFORMED);
  assert_int_equal(lie(span, 4, "\2", 1, 100), HV_VERSION);
  assert_int_equal(lie(span, 4, "\0", 1, 100), HV_VERSION);
  assert_int_equal(lie(span, 5, "\12", 1, 100), HV_UNSUPPORTED);
  assert_int_equal(lie(span, 5, "\377", 1, 100), HV_UNSUPPORTED);
  assert_int_equal(lie(span, 6, "\0", 1, 100), HV_UNSUPPORTED);
  assert_int_equal(lie(span, 6, "\5", 1, 100), HV_UNSUPPORTED);
  assert_int_equal(lie(span, 7, "\1", 1, 100), HV_MALFORMED);
  assert_int_equal(lie(span, 5, "\6", 1, 100), HV_MALFORMED); /* as blockwise8 it would be shorter */
  assert_int_equal(lie(span, 6, "\2", 1, 100), HV_OK);        /* another source: the same bytes, the same meaning */
}

static void another_count_than_expected_is_invalid(void **state) {
  (void)state;
  hv_span span = encode(HV_CODEC_FLOAT16, HV_DTYPE_FLOAT32, 100);
  memset(out, 1, sizeof out);
  assert_int_equal(decode(span, 99), HV_INVALID);
  assert_int_equal(decode(span, 101), HV_INVALID);
  assert_int_equal(hv_codec_accumulate(hv_cpu_best(), &span, 1, 1, out, 101), HV_INVALID);
  assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, (hv_dtype)9, out, 100), HV_INVALID);
  assert_memory_equal(out, out + 1, sizeof out - sizeof *out);
}

static void parameters_that_cannot_be_are_malformed(void **state) {
  (void)state;
  static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f};
  static const struct {
    int codec;
    size_t at; /* in the head */
    int negative_too;
  } places[] = {{HV_CODEC_SCALED_FLOAT16, 0, 0}, {HV_CODEC_SCALED_FLOAT16, 4, 1}, {HV_CODEC_UNIFORM8, 0, 0},
                {HV_CODEC_UNIFORM8, 4, 1},       {HV_CODEC_BLOCKWISE8, 0, 1},     {HV_CODEC_BLOCKWISE8, 8, 1}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    hv_span span = encode(places[i].codec, HV_DTYPE_FLOAT32, N);
    for (size_t k = 0; k < 4; k++)
      assert_int_equal(lie(span, 32 + places[i].at, &odd[k], 4, N), HV_MALFORMED);
    float minus = -1;
    assert_int_equal(lie(span, 32 + places[i].at, &minus, 4, N), places[i].negative_too ? HV_MALFORMED : HV_OK);
  }
  for (size_t k = 0; k < 3; k++) {
    hv_span span = encode(HV_CODEC_UNIFORM8, HV_DTYPE_FLOAT32, 50);
    assert_int_equal(lie(span, 40, &odd[k], 4, 50), HV_MALFORMED);
    assert_int_equal(lie(span, 44, &odd[k], 4, 50), HV_MALFORMED);
    span = encode(HV_CODEC_QUANTILE8, HV_DTYPE_FLOAT32, 50);
    for (size_t entry = 0; entry < 256; entry++)
      assert_int_equal(lie(span, 32 + 4 * entry, &odd[k], 4, 50), HV_MALFORMED);
  }
  for (int codec = HV_CODEC_LINEAR8; codec <= HV_CODEC_LINEAR4; codec++) {
    hv_span span = encode(codec, HV_DTYPE_FLOAT32, N);
    assert_int_equal(lie(span, 32 + 2 * (N / 64), "\xc0\x7f", 2, N), HV_MALFORMED); /* NaN in the last scale */
    assert_int_equal(lie(span, 32, "\x80\xff", 2, N), HV_MALFORMED);                /* -Inf in the first */
    assert_int_equal(lie(span, 32 + 2, "\x01\x7e", 2, N), HV_MALFORMED);            /* finite, but its multiples are not */
  }
}

static void a_code_book_of_zeros_decodes_to_zeros(void **state) {
  (void)state;
  static const uint8_t zeros[1024];
  hv_span span = encode(HV_CODEC_QUANTILE8, HV_DTYPE_FLOAT32, 50);
  assert_int_equal(lie(span, 32, zeros, sizeof zeros, 50), HV_OK);
  for (size_t i = 0; i < 50; i++)
    assert_true(out[i] == 0);
}

static void quantised_codecs_decode_any_sealed_bytes_to_finite_values(void **state) {
  (void)state;
  check_rng rng = {5};
  hv_codec_info info;
  for (int run = 0; run < 3000; run++)
    for (int codec = HV_CODEC_UNIFORM8; codec <= HV_CODEC_LINEAR4; codec++) {
      size_t n = 1 + check_random(&rng) % 300;
      hv_span span = encode(codec, HV_DTYPE_FLOAT32, n);
      for (int i = 0; i < 6; i++)
        chunk[32 + check_random(&rng) % (span.size - 32)] = (uint8_t)check_random(&rng);
      if (codec == HV_CODEC_UNIFORM8 && run % 2)
        memcpy(chunk + 32, "\x00\x00\x80\x7e\x00\x00\x00\x7b", 8); /* as large as can be */
      seal_chunk(chunk, span.size);
      int finite = 0;
      hv_status status = hv_codec_check(hv_cpu_best(), &span, 1, &info, &finite);
      if (status == HV_OK) {
        assert_int_equal(finite, 1);
        assert_int_equal(decode(span, n), HV_OK);
        for (size_t i = 0; i < n; i++)
          assert_true(isfinite(out[i]));
      } else {
        assert_int_equal(status, HV_MALFORMED);
      }
    }
}

static void a_chunk_may_come_in_any_parts(void **state) {
  (void)state;
  check_rng rng = {6};
  hv_span parts[ROOM];
  for (int run = 0; run < 400; run++) {
    int codec = run % HV_CODEC_COUNT;
    hv_dtype dtype = (hv_dtype)(1 + check_random(&rng) % 4);
    size_t n = check_random(&rng) % (N + 1), n_parts = 0, most = 1 + check_random(&rng) % 5000;
    hv_span span = encode(codec, dtype, n);
    assert_int_equal(decode(span, n), HV_OK);
    memcpy(want, out, n * sizeof *want);
    for (size_t at = 0; at < span.size;) {
      size_t size = check_random(&rng) % most;
      size = size < span.size - at ? size : span.size - at;
      parts[n_parts++] = hv_span_of(size ? span.data + at : NULL, size);
      at += size;
    }
    parts[n_parts++] = hv_span_of(NULL, 0);
    memset(out, 0, sizeof out);
    assert_int_equal(hv_codec_decode(hv_cpu_best(), parts, n_parts, HV_DTYPE_FLOAT32, out, n), HV_OK);
    assert_memory_equal(out, want, n * sizeof *want);
  }
}

static void weights_that_make_no_sense_are_invalid(void **state) {
  (void)state;
  static const float weights[] = {NAN, INFINITY, -1, -INFINITY, 0x1.8p64f};
  hv_span span = encode(HV_CODEC_NONE, HV_DTYPE_FLOAT32, 10);
  memset(out, 0, sizeof out);
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
    assert_int_equal(hv_codec_accumulate(hv_cpu_best(), &span, 1, weights[i], out, 10), HV_INVALID);
  assert_true(out[0] == 0);
  assert_int_equal(hv_codec_accumulate(hv_cpu_best(), &span, 1, 0, out, 10), HV_OK);
}

/* The values of a chunk into want, their L2 norm and the largest magnitude. */
static double look_at(hv_span span, size_t n, double *largest) {
  double square = 0;
  *largest = 0;
  assert_int_equal(hv_codec_decode(hv_cpu_best(), &span, 1, HV_DTYPE_FLOAT32, want, n), HV_OK);
  for (size_t i = 0; i < n; i++) {
    square += (double)want[i] * (double)want[i];
    *largest = fmax(*largest, fabs((double)want[i]));
  }
  return sqrt(square);
}

static void hold_within(hv_span span, size_t n, float weight, double norm_max, hv_status expected) {
  memset(out, 0, sizeof out);
  assert_int_equal(hv_codec_accumulate_within(hv_cpu_best(), &span, 1, weight, (float)norm_max, out, n), expected);
  for (size_t i = 0; i < n; i++)
    assert_true(out[i] == (expected == HV_OK ? weight * want[i] : 0));
}

/* A norm, or an addend, a little over its limit: the chunk is refused whole; a little under: it counts. */
static void a_chunk_beyond_the_limits_does_not_count_at_all(void **state) {
  (void)state;
  double largest;
  uint64_t size;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    hv_span span = encode(codec, HV_DTYPE_FLOAT32, 300);
    double norm = look_at(span, 300, &largest);
    hold_within(span, 300, 1, norm * 0.999, HV_TOO_LARGE);
    hold_within(span, 300, 1, norm * 1.001, HV_OK);
    for (size_t i = 0; i < 300; i++)
      plain[i] *= 0x1p100f;
    assert_int_equal(hv_codec_encode(hv_cpu_best(), (hv_codec)codec, HV_DTYPE_FLOAT32, plain, 300, NULL, chunk, ROOM, &size),
                     HV_OK);
    look_at(hv_span_of(chunk, (size_t)size), 300, &largest);
    double weight = (double)HV_CODEC_ADDEND_MAX / largest;
    hold_within(hv_span_of(chunk, (size_t)size), 300, (float)fmin(weight * 0.999, HV_CODEC_WEIGHT_MAX), 0, HV_OK);
    if (codec == HV_CODEC_FLOAT16) /* limited to 65504: no weight makes too much of that */
      assert_true(weight > HV_CODEC_WEIGHT_MAX);
    else
      hold_within(hv_span_of(chunk, (size_t)size), 300, (float)(weight * 1.001), 0, HV_TOO_LARGE);
  }
}

/* The measure of a slice takes values beyond 2^126 for that: what is held against the limit must be the value. */
static void the_largest_float_is_held_against_the_limit_as_it_is(void **state) {
  (void)state;
  uint64_t size;
  for (int codec = 0; codec < 2; codec++)
    for (int sign = -1; sign <= 1; sign += 2) {
      plain[0] = (float)sign * 0x1.fffffep127f, plain[1] = 1;
      values_as(codec ? HV_DTYPE_BFLOAT16 : HV_DTYPE_FLOAT32, plain, 2, source, NULL);
      if (codec)
        memcpy(source, sign > 0 ? "\x7f\x7f" : "\x7f\xff", 2); /* the largest finite one */
      assert_int_equal(hv_codec_encode(hv_cpu_best(), HV_CODEC_NONE, codec ? HV_DTYPE_BFLOAT16 : HV_DTYPE_FLOAT32, source, 2, NULL,
                                       chunk, ROOM, &size),
                       HV_OK);
      look_at(hv_span_of(chunk, (size_t)size), 2, &(double){0});
      hold_within(hv_span_of(chunk, (size_t)size), 2, 0x1p-8f, 0, HV_TOO_LARGE);
      hold_within(hv_span_of(chunk, (size_t)size), 2, 0x1p-9f, 0, HV_OK);
    }
}

static void an_encoder_without_room_writes_nothing(void **state) {
  (void)state;
  uint64_t size = 77;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    uint64_t whole = hv_codec_bound(codec, HV_DTYPE_FLOAT32, 100);
    size = 77;
    memset(chunk, 9, sizeof chunk);
    assert_int_equal(hv_codec_encode(hv_cpu_best(), (hv_codec)codec, HV_DTYPE_FLOAT32, plain, 100, NULL, chunk, whole - 1, &size),
                     HV_TOO_LARGE);
    assert_true(chunk[0] == 9 && size == 77);
    assert_int_equal(hv_codec_encode(hv_cpu_best(), (hv_codec)codec, HV_DTYPE_FLOAT32, plain, 100, NULL, chunk, whole, &size),
                     HV_OK);
    assert_true(chunk[whole] == 9);
  }
  assert_int_equal(hv_codec_encode(hv_cpu_best(), (hv_codec)99, HV_DTYPE_FLOAT32, plain, 1, NULL, chunk, ROOM, &size), HV_INVALID);
  assert_int_equal(hv_codec_encode(hv_cpu_best(), HV_CODEC_NONE, (hv_dtype)0, plain, 1, NULL, chunk, ROOM, &size), HV_INVALID);
  assert_int_equal(hv_codec_bound(HV_CODEC_NONE, HV_DTYPE_FLOAT32, HV_CODEC_COUNT_MAX + 1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_checksum_is_the_one_in_the_header),
      cmocka_unit_test(a_chunk_cut_or_grown_is_malformed),
      cmocka_unit_test(every_flipped_bit_is_noticed),
      cmocka_unit_test(swapped_pieces_are_noticed),
      cmocka_unit_test(a_header_that_lies_is_refused),
      cmocka_unit_test(another_count_than_expected_is_invalid),
      cmocka_unit_test(parameters_that_cannot_be_are_malformed),
      cmocka_unit_test(a_code_book_of_zeros_decodes_to_zeros),
      cmocka_unit_test(quantised_codecs_decode_any_sealed_bytes_to_finite_values),
      cmocka_unit_test(a_chunk_may_come_in_any_parts),
      cmocka_unit_test(weights_that_make_no_sense_are_invalid),
      cmocka_unit_test(a_chunk_beyond_the_limits_does_not_count_at_all),
      cmocka_unit_test(the_largest_float_is_held_against_the_limit_as_it_is),
      cmocka_unit_test(an_encoder_without_room_writes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
