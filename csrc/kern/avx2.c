/* The loops for AVX2, FMA and F16C. The rest at an end goes through the reference. */
#include "kern/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define V __attribute__((target("avx2,fma,f16c")))
#define IN static inline V __attribute__((always_inline))
#define REST(loop) hv_kern_portable.loop

IN __m256 tame(__m256 x) {
  x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
  return _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(HV_TAME)), _mm256_set1_ps(-HV_TAME));
}

IN __m256i load(const void *at) {
  return _mm256_loadu_si256((const __m256i *)at);
}
IN void store(void *at, __m256i x) {
  _mm256_storeu_si256((__m256i *)at, x);
}

/* Four times eight int32 that fit a byte, in order. */
IN __m256i bytes_of(__m256i a, __m256i b, __m256i c, __m256i d) {
  __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(words, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

IN float least(__m256 x) {
  __m128 a = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  a = _mm_min_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_min_ss(a, _mm_movehdup_ps(a)));
}

IN float most(__m256 x) {
  __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  a = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

/* ---- bytes ---- */

V static void copy(uint8_t *out, const uint8_t *in, size_t size) {
  size_t head = -(uintptr_t)out % 64;
  head = head < size ? head : size;
  memcpy(out, in, head);
  out += head, in += head, size -= head;
  for (; size >= 128; out += 128, in += 128, size -= 128) {
    __m256i a = load(in), b = load(in + 32), c = load(in + 64), d = load(in + 96);
    _mm256_stream_si256((void *)out, a);
    _mm256_stream_si256((void *)(out + 32), b);
    _mm256_stream_si256((void *)(out + 64), c);
    _mm256_stream_si256((void *)(out + 96), d);
  }
  memcpy(out, in, size);
  _mm_sfence();
}

IN __m256i digest_round(__m256i lane, const uint8_t *at, __m256i key) {
  __m256i w = load(at), t = _mm256_xor_si256(w, key);
  lane = _mm256_add_epi64(lane, _mm256_mul_epu32(t, _mm256_srli_epi64(t, 32)));
  return _mm256_add_epi64(lane, _mm256_shuffle_epi32(w, 0x4e));
}

V static uint64_t digest(const uint8_t *piece) {
  uint64_t lane[8], sum = 0;
  for (unsigned j = 0; j < 8; j++)
    lane[j] = HV_SUM_K * (j + 1);
  const __m256i g = _mm256_set1_epi64x((long long)HV_SUM_G), g2 = _mm256_add_epi64(g, g);
  __m256i k0 = load(lane), k1 = load(lane + 4), k2 = _mm256_add_epi64(k0, g), k3 = _mm256_add_epi64(k1, g);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (const uint8_t *end = piece + HV_PIECE; piece < end; piece += 128) {
    a = digest_round(a, piece, k0), k0 = _mm256_add_epi64(k0, g2);
    b = digest_round(b, piece + 32, k1), k1 = _mm256_add_epi64(k1, g2);
    c = digest_round(c, piece + 64, k2), k2 = _mm256_add_epi64(k2, g2);
    d = digest_round(d, piece + 96, k3), k3 = _mm256_add_epi64(k3, g2);
  }
  store(lane, _mm256_add_epi64(a, c)), store(lane + 4, _mm256_add_epi64(b, d));
  for (unsigned j = 0; j < 8; j++)
    sum += hv_mix(lane[j] + j * HV_SUM_G);
  return sum;
}

/* ---- plain numbers ---- */

IN __m128i f16_of(__m256 x) {
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-65504)), _mm256_set1_ps(65504));
  __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm_blendv_epi8(h, _mm_set1_epi16(0x7e00), _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1)));
}

IN __m256i bf16_of(__m256 x) { /* in the low halves */
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)), b = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
  b = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(b, odd), _mm256_set1_epi32(0x7fff)), 16);
  return _mm256_blendv_epi8(b, _mm256_set1_epi32(0x7fc0), nan);
}

IN __m256 f16_to(const uint8_t *in) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const void *)in));
}

V static void widen_f16(float *out, const uint8_t *in, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, f16_to(in + 2 * i));
  REST(widen_f16)(out + i, in + 2 * i, n - i);
}

V static void narrow_f16(uint8_t *out, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((void *)(out + 2 * i), f16_of(_mm256_loadu_ps(in + i)));
  REST(narrow_f16)(out + 2 * i, in + i, n - i);
}

V static void widen_bf16(float *out, const uint8_t *in, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(in + 2 * i)));
    store(out + i, _mm256_slli_epi32(h, 16));
  }
  REST(widen_bf16)(out + i, in + 2 * i, n - i);
}

V static void narrow_bf16(uint8_t *out, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256i both = _mm256_packus_epi32(bf16_of(_mm256_loadu_ps(in + i)), bf16_of(_mm256_loadu_ps(in + i + 8)));
    store(out + 2 * i, _mm256_permute4x64_epi64(both, 0xd8));
  }
  REST(narrow_bf16)(out + 2 * i, in + i, n - i);
}

V static void narrow_f64(float *out, const uint8_t *in, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    _mm_storeu_ps(out + i, _mm256_cvtpd_ps(_mm256_castsi256_pd(load(in + 8 * i))));
  REST(narrow_f64)(out + i, in + 8 * i, n - i);
}

V static void widen_f64(uint8_t *out, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    store(out + 8 * i, _mm256_castpd_si256(_mm256_cvtps_pd(_mm_loadu_ps(in + i))));
  REST(widen_f64)(out + 8 * i, in + i, n - i);
}

V static void add(float *acc, const uint8_t *in, float weight, size_t n) {
  const __m256 w = _mm256_set1_ps(weight);
  size_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (size_t j = i; j < i + 32; j += 8)
      _mm256_storeu_ps(acc + j, _mm256_add_ps(_mm256_loadu_ps(acc + j), _mm256_mul_ps(w, _mm256_castsi256_ps(load(in + 4 * j)))));
  REST(add)(acc + i, in + 4 * i, weight, n - i);
}

V static void scale(float *acc, float factor, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(acc + i, _mm256_mul_ps(_mm256_loadu_ps(acc + i), _mm256_set1_ps(factor)));
  REST(scale)(acc + i, factor, n - i);
}

V static int finite_f32(const uint8_t *in, uint32_t infinity, size_t n) {
  const __m256i size = _mm256_set1_epi32(INT32_MAX), last = _mm256_set1_epi32((int)infinity - 1);
  __m256i odd = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    odd = _mm256_or_si256(odd, _mm256_cmpgt_epi32(_mm256_and_si256(load(in + 4 * i), size), last));
  return _mm256_testz_si256(odd, odd) && REST(finite_f32)(in + 4 * i, infinity, n - i);
}

V static int finite_16(const uint8_t *in, uint16_t infinity, size_t n) {
  const __m256i exponent = _mm256_set1_epi16((short)infinity);
  __m256i odd = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    odd = _mm256_or_si256(odd, _mm256_cmpeq_epi16(_mm256_and_si256(load(in + 2 * i), exponent), exponent));
  return _mm256_testz_si256(odd, odd) && REST(finite_16)(in + 2 * i, infinity, n - i);
}

V static int finite_f64(const uint8_t *in, size_t n) {
  const __m256i size = _mm256_set1_epi64x(INT64_MAX), last = _mm256_set1_epi64x(0x47efffffefffffff);
  __m256i odd = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    odd = _mm256_or_si256(odd, _mm256_cmpgt_epi64(_mm256_and_si256(load(in + 8 * i), size), last));
  return _mm256_testz_si256(odd, odd) && REST(finite_f64)(in + 8 * i, n - i);
}

/* ---- error feedback, statistics ---- */

V static void feed(float *residual, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(residual + i, tame(_mm256_add_ps(_mm256_loadu_ps(residual + i), _mm256_loadu_ps(in + i))));
  REST(feed)(residual + i, in + i, n - i);
}

V static void lose(float *residual, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(residual + i, _mm256_sub_ps(_mm256_loadu_ps(residual + i), _mm256_loadu_ps(in + i)));
  REST(lose)(residual + i, in + i, n - i);
}

/* Every 32nd of 16 lanes: 4l .. 4l + 3 of them go to sum[l] and square[l]. All 32 at once would need more registers than there are.
 * The squares of float32 are exact in float64, so fusing them into the sum changes nothing. */
IN void measure_lanes(const float *in, size_t n, __m256d sum[4], __m256d square[4], __m256 *low, __m256 *high) {
  for (const float *end = in + n; in < end; in += 32) {
    for (int l = 0; l < 4; l++) {
      __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(in + 4 * l));
      sum[l] = _mm256_add_pd(sum[l], x), square[l] = _mm256_fmadd_pd(x, x, square[l]);
    }
    __m256 a = _mm256_loadu_ps(in), b = _mm256_loadu_ps(in + 8);
    *low = _mm256_min_ps(_mm256_min_ps(*low, a), b), *high = _mm256_max_ps(_mm256_max_ps(*high, a), b);
  }
}

IN double fold(const __m256d first[4], const __m256d second[4]) {
  __m256d a = _mm256_add_pd(_mm256_add_pd(first[0], second[0]), _mm256_add_pd(first[2], second[2]));
  __m256d c = _mm256_add_pd(_mm256_add_pd(first[1], second[1]), _mm256_add_pd(first[3], second[3]));
  a = _mm256_add_pd(a, c);
  __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

IN void measure_as_is(const float *in, size_t n, hv_measure *out) {
  __m256d sum[2][4], square[2][4];
  __m256 low = _mm256_set1_ps(in[0]), high = low;
  size_t whole = n - n % 32;
  float last[32] = {0};
  for (int l = 0; l < 8; l++)
    sum[l / 4][l % 4] = square[l / 4][l % 4] = _mm256_setzero_pd();
  memcpy(last, in + whole, (n - whole) * sizeof *last);
  for (int h = 0; h < 2; h++) {
    __m256 any_low = low, any_high = high; /* the zeros at the end count as addends only */
    measure_lanes(in + 16 * h, whole, sum[h], square[h], &low, &high);
    measure_lanes(last + 16 * h, 32, sum[h], square[h], &any_low, &any_high);
  }
  out->low = least(low), out->high = most(high);
  for (size_t i = whole; i < n; i++) { /* not range, which would tame them unseen */
    out->low = in[i] < out->low ? in[i] : out->low;
    out->high = in[i] > out->high ? in[i] : out->high;
  }
  out->sum = fold(sum[0], sum[1]), out->square = fold(square[0], square[1]);
}

/* Mostly there is nothing to tame; what there is shows in the result: a NaN in the sum of squares, other values at the ends. */
V static void measure(const float *in, size_t n, hv_measure *out) {
  float tamed[HV_UNIT];
  measure_as_is(in, n, out);
  if (out->low >= -HV_TAME && out->high <= HV_TAME && out->square >= 0)
    return;
  for (size_t i = 0; i < n; i++)
    tamed[i] = hv_tame(in[i]);
  measure_as_is(tamed, n, out);
}

V static float absmax(const float *in, size_t n) {
  const __m256i size = _mm256_set1_epi32(0x7fffffff);
  __m256i a = _mm256_setzero_si256();
  uint32_t lanes[8], worst = 0;
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    a = _mm256_max_epu32(a, _mm256_and_si256(size, load(in + i)));
  store(lanes, a);
  for (int l = 0; l < 8; l++)
    worst = lanes[l] > worst ? lanes[l] : worst;
  float top = hv_float(worst), rest = REST(absmax)(in + i, n - i);
  if (!(top <= HV_TAME)) /* hardly ever: NaN must count as 0 */
    return REST(absmax)(in, n);
  return top > rest ? top : rest;
}

V static void range(const float *in, size_t n, float *low, float *high) {
  __m256 la = _mm256_set1_ps(*low), ha = _mm256_set1_ps(*high), lb = la, hb = ha;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256 a = tame(_mm256_loadu_ps(in + i)), b = tame(_mm256_loadu_ps(in + i + 8));
    la = _mm256_min_ps(la, a), ha = _mm256_max_ps(ha, a), lb = _mm256_min_ps(lb, b), hb = _mm256_max_ps(hb, b);
  }
  *low = least(_mm256_min_ps(la, lb)), *high = most(_mm256_max_ps(ha, hb));
  REST(range)(in + i, n - i, low, high);
}

/* ---- the codecs ---- */

V static void encode_scaled(uint8_t *out, const float *in, float mean, float inverse, size_t n) {
  const __m256 shift = _mm256_set1_ps(mean), factor = _mm256_set1_ps(inverse);
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((void *)(out + 2 * i), f16_of(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(in + i), shift), factor)));
  REST(encode_scaled)(out + 2 * i, in + i, mean, inverse, n - i);
}

V static void decode_scaled(float *out, const uint8_t *in, float std, float mean, size_t n) {
  const __m256 factor = _mm256_set1_ps(std), shift = _mm256_set1_ps(mean);
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_mul_ps(f16_to(in + 2 * i), factor), shift));
  REST(decode_scaled)(out + i, in + 2 * i, std, mean, n - i);
}

IN __m256 within(__m256 t, float low, float high) {
  return _mm256_min_ps(_mm256_max_ps(t, _mm256_set1_ps(low)), _mm256_set1_ps(high));
}

/* The sum over the lanes set in `lanes` of t in 256ths. */
IN int64_t tail(__m256i lanes, __m256 t) {
  __m256i steps = _mm256_cvtps_epi32(_mm256_mul_ps(within(t, -0x1p21f, 0x1p21f), _mm256_set1_ps(256)));
  int32_t each[8];
  int64_t sum = 0;
  store(each, _mm256_and_si256(steps, lanes));
  for (int i = 0; i < 8; i++)
    sum += each[i];
  return sum;
}

IN __m256 uniform_steps(__m256 x, __m256 mean, __m256 inverse) {
  return _mm256_mul_ps(_mm256_sub_ps(x, mean), inverse);
}

IN __m256i uniform_codes(const float *in, __m256 mean, __m256 inverse) {
  return _mm256_cvtps_epi32(within(uniform_steps(_mm256_loadu_ps(in), mean, inverse), -127, 127));
}

/* Eight values some of which come out at an end: they are counted. An untame value is there, too: as it lies beyond the largest
 * value, or, if it is none, since `within` takes it for low. */
IN __m256i uniform_ends(const float *in, __m256 mean, __m256 inverse, hv_uniform *u) {
  __m256 t = uniform_steps(tame(_mm256_loadu_ps(in)), mean, inverse);
  __m256i k = _mm256_cvtps_epi32(within(t, -127, 127));
  __m256i high = _mm256_cmpeq_epi32(k, _mm256_set1_epi32(127)), low = _mm256_cmpeq_epi32(k, _mm256_set1_epi32(-127));
  u->n_high += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(high)));
  u->n_low += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(low)));
  u->high += tail(high, t), u->low += tail(low, t);
  return k;
}

V static void encode_uniform(uint8_t *out, const float *in, hv_uniform *u, size_t n) {
  const __m256 mean = _mm256_set1_ps(u->mean), inverse = _mm256_set1_ps(u->inverse);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i k = bytes_of(uniform_codes(in + i, mean, inverse), uniform_codes(in + i + 8, mean, inverse),
                         uniform_codes(in + i + 16, mean, inverse), uniform_codes(in + i + 24, mean, inverse));
    __m256i ends = _mm256_cmpeq_epi8(_mm256_abs_epi8(k), _mm256_set1_epi8(127));
    if (__builtin_expect(!_mm256_testz_si256(ends, ends), 0))
      k = bytes_of(uniform_ends(in + i, mean, inverse, u), uniform_ends(in + i + 8, mean, inverse, u),
                   uniform_ends(in + i + 16, mean, inverse, u), uniform_ends(in + i + 24, mean, inverse, u));
    store(out + i, _mm256_xor_si256(k, _mm256_set1_epi8(-128)));
  }
  REST(encode_uniform)(out + i, in + i, u, n - i);
}

V static void decode_uniform(float *out, const uint8_t *in, const hv_even *e, size_t n) {
  const __m256 step = _mm256_set1_ps(e->step), mean = _mm256_set1_ps(e->mean), low = _mm256_set1_ps(e->low),
               high = _mm256_set1_ps(e->high);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i codes = load(in + i);
    __m256i ends = _mm256_cmpeq_epi8(_mm256_min_epu8(codes, _mm256_set1_epi8(1)), codes);
    ends = _mm256_or_si256(ends, _mm256_cmpeq_epi8(codes, _mm256_set1_epi8(-1)));
    int none = _mm256_testz_si256(ends, ends);
    for (size_t j = i; j < i + 32; j += 8) {
      __m256i k = _mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(in + j))), _mm256_set1_epi32(128));
      __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(k), step), mean);
      if (__builtin_expect(!none, 0)) {
        v = _mm256_blendv_ps(v, low, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(-126), k)));
        v = _mm256_blendv_ps(v, high, _mm256_castsi256_ps(_mm256_cmpeq_epi32(k, _mm256_set1_epi32(127))));
      }
      _mm256_storeu_ps(out + j, v);
    }
  }
  REST(decode_uniform)(out + i, in + i, e, n - i);
}

V static void cells(uint16_t *out, const float *in, int32_t base, size_t n) {
  const __m256i bases = _mm256_set1_epi32(base), half = _mm256_set1_epi32(HV_CELLS / 2);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256i cell[2];
    for (int h = 0; h < 2; h++) {
      __m256i b = _mm256_castps_si256(tame(_mm256_loadu_ps(in + i + 8 * h)));
      __m256i size = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_slli_epi32(b, 1), 15), bases);
      size = _mm256_xor_si256(_mm256_max_epi32(size, _mm256_setzero_si256()), _mm256_srai_epi32(b, 31));
      cell[h] = _mm256_add_epi32(size, half);
    }
    store(out + i, _mm256_permute4x64_epi64(_mm256_packus_epi32(cell[0], cell[1]), 0xd8));
  }
  REST(cells)(out + i, in + i, base, n - i);
}

IN __m256i dynamic_codes(const float *in, __m256 inverse) {
  const hv_dynamic *map = &hv_dynamic_map;
  __m256 x = _mm256_loadu_ps(in), zero = _mm256_setzero_ps();
  __m256 u = _mm256_mul_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), inverse);
  u = _mm256_min_ps(_mm256_max_ps(u, zero), _mm256_set1_ps(1)); /* NaN, and what is beyond tame, come out as if it were */
  __m256i decade = _mm256_setzero_si256();
  for (int k = 1; k < 8; k++)
    decade = _mm256_sub_epi32(decade, _mm256_castps_si256(_mm256_cmp_ps(_mm256_set1_ps(map->threshold[k]), u, _CMP_LE_OQ)));
  __m256 t = _mm256_mul_ps(u, _mm256_permutevar8x32_ps(_mm256_loadu_ps(map->slope), decade));
  t = _mm256_add_ps(t, _mm256_permutevar8x32_ps(_mm256_loadu_ps(map->offset), decade));
  t = _mm256_min_ps(t, _mm256_permutevar8x32_ps(_mm256_loadu_ps(map->cap), decade));
  __m256i m = _mm256_cvtps_epi32(t), sign = _mm256_set1_epi32(-128); /* as a signed byte */
  __m256i below =
      _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(x, zero, _CMP_LT_OQ)), _mm256_cmpgt_epi32(m, _mm256_setzero_si256()));
  __m256 top = _mm256_and_ps(_mm256_cmp_ps(x, zero, _CMP_GT_OQ), _mm256_cmp_ps(u, _mm256_set1_ps(HV_DYNAMIC_ONE), _CMP_GT_OQ));
  m = _mm256_add_epi32(m, _mm256_and_si256(below, sign));
  return _mm256_blendv_epi8(m, sign, _mm256_castps_si256(top));
}

V static void encode_dynamic(uint8_t *out, const float *in, float inverse, size_t n) {
  const __m256 factor = _mm256_set1_ps(inverse);
  size_t i = 0;
  for (; i + 32 <= n; i += 32)
    store(out + i, bytes_of(dynamic_codes(in + i, factor), dynamic_codes(in + i + 8, factor), dynamic_codes(in + i + 16, factor),
                            dynamic_codes(in + i + 24, factor)));
  REST(encode_dynamic)(out + i, in + i, inverse, n - i);
}

V static void decode_book(float *out, const uint8_t *in, const float *book, float factor, size_t n) {
  const __m256 scaled = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(in + i)));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_i32gather_ps(book, code, 4), scaled));
  }
  REST(decode_book)(out + i, in + i, book, factor, n - i);
}

/* The codes k of one full LINEAR block, as bytes; its scale to `scales`. */
IN void linear_block(__m256i codes[2], uint8_t *scales, const float *in, float levels) {
  __m256 low = tame(_mm256_loadu_ps(in)), high = low;
  for (int i = 8; i < 64; i += 8) {
    __m256 x = tame(_mm256_loadu_ps(in + i));
    low = _mm256_min_ps(low, x), high = _mm256_max_ps(high, x);
  }
  uint16_t scaled = hv_linear_scale(least(low), most(high), levels);
  __m256 inverse = _mm256_set1_ps(scaled ? 1 / hv_bf16_to(scaled) : 0);
  __m256i k[8];
  hv_store16(scales, scaled);
  for (int i = 0; i < 8; i++)
    k[i] = _mm256_cvtps_epi32(within(_mm256_mul_ps(tame(_mm256_loadu_ps(in + 8 * i)), inverse), -levels, levels - 1));
  codes[0] = bytes_of(k[0], k[1], k[2], k[3]), codes[1] = bytes_of(k[4], k[5], k[6], k[7]);
}

V static void encode_linear8(uint8_t *out, uint8_t *scales, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m256i codes[2];
    linear_block(codes, scales, in + i, 128);
    store(out + i, _mm256_xor_si256(codes[0], _mm256_set1_epi8(-128)));
    store(out + i + 32, _mm256_xor_si256(codes[1], _mm256_set1_epi8(-128)));
  }
  REST(encode_linear8)(out + i, scales, in + i, n - i);
}

V static void encode_linear4(uint8_t *out, uint8_t *scales, const float *in, size_t n) {
  const __m256i eight = _mm256_set1_epi8(8), weights = _mm256_set1_epi16(0x1001); /* even + 16 * odd */
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m256i codes[2];
    linear_block(codes, scales, in + i, 8);
    __m256i a = _mm256_maddubs_epi16(_mm256_add_epi8(codes[0], eight), weights);
    __m256i b = _mm256_maddubs_epi16(_mm256_add_epi8(codes[1], eight), weights);
    store(out + i / 2, _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8));
  }
  REST(encode_linear4)(out + i / 2, scales, in + i, n - i);
}

V static void decode_linear8(float *out, const uint8_t *in, const uint8_t *scales, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m256 d = _mm256_set1_ps(hv_bf16_to(hv_load16(scales)));
    for (size_t j = i; j < i + 64; j += 8) {
      __m256i k = _mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(in + j))), _mm256_set1_epi32(128));
      _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_cvtepi32_ps(k), d));
    }
  }
  REST(decode_linear8)(out + i, in + i, scales, n - i);
}

V static void decode_linear4(float *out, const uint8_t *in, const uint8_t *scales, size_t n) {
  const __m128i half = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m256 d = _mm256_set1_ps(hv_bf16_to(hv_load16(scales)));
    for (size_t j = i; j < i + 64; j += 16) {
      __m128i pairs = _mm_loadl_epi64((const void *)(in + j / 2));
      __m128i codes = _mm_unpacklo_epi8(_mm_and_si128(pairs, half), _mm_and_si128(_mm_srli_epi16(pairs, 4), half));
      codes = _mm_sub_epi8(codes, eight);
      _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), d));
      _mm256_storeu_ps(out + j + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8))), d));
    }
  }
  REST(decode_linear4)(out + i, in + i / 2, scales, n - i);
}

const hv_kern hv_kern_avx2 = {
    .name = "avx2",
    .copy = copy,
    .digest = digest,
    .widen_f16 = widen_f16,
    .narrow_f16 = narrow_f16,
    .widen_bf16 = widen_bf16,
    .narrow_bf16 = narrow_bf16,
    .narrow_f64 = narrow_f64,
    .widen_f64 = widen_f64,
    .add = add,
    .scale = scale,
    .finite_f32 = finite_f32,
    .finite_16 = finite_16,
    .finite_f64 = finite_f64,
    .feed = feed,
    .lose = lose,
    .measure = measure,
    .absmax = absmax,
    .range = range,
    .encode_scaled = encode_scaled,
    .decode_scaled = decode_scaled,
    .encode_uniform = encode_uniform,
    .decode_uniform = decode_uniform,
    .cells = cells,
    .encode_dynamic = encode_dynamic,
    .decode_book = decode_book,
    .encode_linear8 = encode_linear8,
    .decode_linear8 = decode_linear8,
    .encode_linear4 = encode_linear4,
    .decode_linear4 = decode_linear4,
};
#endif
