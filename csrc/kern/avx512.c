/* The loops for AVX-512 (F, BW, DQ, VL, VBMI). The rest at an end goes through masks, or through the reference. */
#include "kern/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define V __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,f16c")))
#define IN static inline V __attribute__((always_inline))
#define REST(loop) hv_kern_portable.loop

IN __mmask16 first(size_t n) {
  return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

IN __m512 tame(__m512 x) {
  __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
  x = _mm512_maskz_min_ps(number, x, _mm512_set1_ps(HV_TAME));
  return _mm512_max_ps(x, _mm512_set1_ps(-HV_TAME));
}

/* ---- bytes ---- */

V static void copy(uint8_t *out, const uint8_t *in, size_t size) {
  size_t head = -(uintptr_t)out % 64;
  head = head < size ? head : size;
  memcpy(out, in, head);
  out += head, in += head, size -= head;
  for (; size >= 256; out += 256, in += 256, size -= 256) {
    __m512i a = _mm512_loadu_si512(in), b = _mm512_loadu_si512(in + 64), c = _mm512_loadu_si512(in + 128),
            d = _mm512_loadu_si512(in + 192);
    _mm512_stream_si512((void *)out, a);
    _mm512_stream_si512((void *)(out + 64), b);
    _mm512_stream_si512((void *)(out + 128), c);
    _mm512_stream_si512((void *)(out + 192), d);
  }
  memcpy(out, in, size);
  _mm_sfence();
}

IN __m512i mix(__m512i z) {
  const __m512i m = _mm512_set1_epi64((long long)0xd6e8feb86659fd93u);
  z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 32)), m);
  z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 32)), m);
  return _mm512_xor_si512(z, _mm512_srli_epi64(z, 32));
}

IN __m512i digest_round(__m512i lane, const uint8_t *at, __m512i key) {
  __m512i w = _mm512_loadu_si512(at), t = _mm512_xor_si512(w, key);
  lane = _mm512_add_epi64(lane, _mm512_mul_epu32(t, _mm512_srli_epi64(t, 32)));
  return _mm512_add_epi64(lane, _mm512_shuffle_epi32(w, 0x4e));
}

V static uint64_t digest(const uint8_t *piece) {
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), g = _mm512_set1_epi64((long long)HV_SUM_G);
  const __m512i step = _mm512_slli_epi64(g, 2);
  __m512i key = _mm512_mullo_epi64(_mm512_add_epi64(lanes, _mm512_set1_epi64(1)), _mm512_set1_epi64((long long)HV_SUM_K));
  __m512i k1 = _mm512_add_epi64(key, g), k2 = _mm512_add_epi64(k1, g), k3 = _mm512_add_epi64(k2, g);
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (const uint8_t *end = piece + HV_PIECE; piece < end; piece += 256) {
    a = digest_round(a, piece, key), key = _mm512_add_epi64(key, step);
    b = digest_round(b, piece + 64, k1), k1 = _mm512_add_epi64(k1, step);
    c = digest_round(c, piece + 128, k2), k2 = _mm512_add_epi64(k2, step);
    d = digest_round(d, piece + 192, k3), k3 = _mm512_add_epi64(k3, step);
  }
  a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
  a = mix(_mm512_add_epi64(a, _mm512_mullo_epi64(lanes, g)));
  __m256i e = _mm256_add_epi64(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  __m128i f = _mm_add_epi64(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
  return (uint64_t)_mm_cvtsi128_si64(_mm_add_epi64(f, _mm_unpackhi_epi64(f, f)));
}

/* ---- plain numbers ---- */

IN __m256i f16_of(__m512 x) {
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-65504)), _mm512_set1_ps(65504));
  return _mm256_mask_mov_epi16(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), nan, _mm256_set1_epi16(0x7e00));
}

IN __m256i bf16_of(__m512 x) {
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  __m512i b = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
  b = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(b, odd), _mm512_set1_epi32(0x7fff)), 16);
  return _mm256_mask_mov_epi16(_mm512_cvtepi32_epi16(b), nan, _mm256_set1_epi16(0x7fc0));
}

IN __m512 bf16_to(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

V static void widen_f16(float *out, const uint8_t *in, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 m = first(n - i);
    _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, in + 2 * i)));
  }
}

V static void narrow_f16(uint8_t *out, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i a = f16_of(_mm512_loadu_ps(in + i)), b = f16_of(_mm512_loadu_ps(in + i + 16));
    _mm256_storeu_si256((void *)(out + 2 * i), a);
    _mm256_storeu_si256((void *)(out + 2 * i + 32), b);
  }
  for (; i < n; i += 16) {
    __mmask16 m = first(n - i);
    _mm256_mask_storeu_epi16(out + 2 * i, m, f16_of(_mm512_maskz_loadu_ps(m, in + i)));
  }
}

V static void widen_bf16(float *out, const uint8_t *in, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 m = first(n - i);
    _mm512_mask_storeu_ps(out + i, m, bf16_to(_mm256_maskz_loadu_epi16(m, in + 2 * i)));
  }
}

V static void narrow_bf16(uint8_t *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 m = first(n - i);
    _mm256_mask_storeu_epi16(out + 2 * i, m, bf16_of(_mm512_maskz_loadu_ps(m, in + i)));
  }
}

V static void narrow_f64(float *out, const uint8_t *in, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    __mmask8 m = (__mmask8)first(n - i);
    _mm256_mask_storeu_ps(out + i, m, _mm512_cvtpd_ps(_mm512_castsi512_pd(_mm512_maskz_loadu_epi64(m, in + 8 * i))));
  }
}

V static void widen_f64(uint8_t *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    __mmask8 m = (__mmask8)first(n - i);
    _mm512_mask_storeu_epi64(out + 8 * i, m, _mm512_castpd_si512(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(m, in + i))));
  }
}

V static void add(float *acc, const uint8_t *in, float weight, size_t n) {
  const __m512 w = _mm512_set1_ps(weight);
  size_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (size_t j = i; j < i + 64; j += 16)
      _mm512_storeu_ps(acc + j,
                       _mm512_add_ps(_mm512_loadu_ps(acc + j), _mm512_mul_ps(w, _mm512_loadu_ps((const void *)(in + 4 * j)))));
  REST(add)(acc + i, in + 4 * i, weight, n - i);
}

V static void scale(float *acc, float factor, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(acc + i, _mm512_mul_ps(_mm512_loadu_ps(acc + i), _mm512_set1_ps(factor)));
  REST(scale)(acc + i, factor, n - i);
}

V static int finite_f32(const uint8_t *in, uint32_t infinity, size_t n) {
  const __m512i size = _mm512_set1_epi32(0x7fffffff);
  __m512i a = _mm512_setzero_si512(), b = a;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a = _mm512_max_epu32(a, _mm512_and_si512(size, _mm512_loadu_si512(in + 4 * i)));
    b = _mm512_max_epu32(b, _mm512_and_si512(size, _mm512_loadu_si512(in + 4 * i + 64)));
  }
  return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b)) < infinity && REST(finite_f32)(in + 4 * i, infinity, n - i);
}

V static int finite_16(const uint8_t *in, uint16_t infinity, size_t n) {
  const __m512i size = _mm512_set1_epi16(0x7fff);
  __m512i a = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 32 <= n; i += 32)
    a = _mm512_max_epu16(a, _mm512_and_si512(size, _mm512_loadu_si512(in + 2 * i)));
  return !_mm512_cmpge_epu16_mask(a, _mm512_set1_epi16((short)infinity)) && REST(finite_16)(in + 2 * i, infinity, n - i);
}

V static int finite_f64(const uint8_t *in, size_t n) {
  const __m512i size = _mm512_set1_epi64(INT64_MAX);
  __m512i a = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    a = _mm512_max_epu64(a, _mm512_and_si512(size, _mm512_loadu_si512(in + 8 * i)));
  return _mm512_reduce_max_epu64(a) < 0x47effffff0000000 && REST(finite_f64)(in + 8 * i, n - i);
}

/* ---- error feedback, statistics ---- */

V static void feed(float *residual, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(residual + i, tame(_mm512_add_ps(_mm512_loadu_ps(residual + i), _mm512_loadu_ps(in + i))));
  REST(feed)(residual + i, in + i, n - i);
}

V static void lose(float *residual, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(residual + i, _mm512_sub_ps(_mm512_loadu_ps(residual + i), _mm512_loadu_ps(in + i)));
  REST(lose)(residual + i, in + i, n - i);
}

IN __m512d low_half(__m512 x) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
IN __m512d high_half(__m512 x) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}

/* Folds of 4, 2, 1 over eight lanes. */
IN double fold(__m512d x) {
  __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
  __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

/* The squares of float32 are exact in float64, so fusing them into the sum changes nothing. */
IN __m512 tame_if(int wild, __m512 x) {
  return wild ? tame(x) : x;
}

IN void measure_as(int wild, const float *in, size_t n, hv_measure *out) {
  __m512d s0 = _mm512_setzero_pd(), s1 = s0, s2 = s0, s3 = s0, q0 = s0, q1 = s0, q2 = s0, q3 = s0;
  __m512 low = tame_if(wild, _mm512_set1_ps(in[0])), high = low;
  for (size_t i = 0; i < n; i += 32) {
    __mmask16 ma = first(n - i), mb = n - i > 16 ? first(n - i - 16) : 0;
    __m512 a = tame_if(wild, _mm512_maskz_loadu_ps(ma, in + i)), b = tame_if(wild, _mm512_maskz_loadu_ps(mb, in + i + 16));
    __m512d a0 = low_half(a), a1 = high_half(a), b0 = low_half(b), b1 = high_half(b);
    s0 = _mm512_add_pd(s0, a0), s1 = _mm512_add_pd(s1, a1), s2 = _mm512_add_pd(s2, b0), s3 = _mm512_add_pd(s3, b1);
    q0 = _mm512_fmadd_pd(a0, a0, q0), q1 = _mm512_fmadd_pd(a1, a1, q1), q2 = _mm512_fmadd_pd(b0, b0, q2),
    q3 = _mm512_fmadd_pd(b1, b1, q3);
    low = _mm512_mask_min_ps(low, ma, low, a), high = _mm512_mask_max_ps(high, ma, high, a);
    low = _mm512_mask_min_ps(low, mb, low, b), high = _mm512_mask_max_ps(high, mb, high, b);
  }
  out->sum = fold(_mm512_add_pd(_mm512_add_pd(s0, s2), _mm512_add_pd(s1, s3)));
  out->square = fold(_mm512_add_pd(_mm512_add_pd(q0, q2), _mm512_add_pd(q1, q3)));
  out->low = _mm512_reduce_min_ps(low), out->high = _mm512_reduce_max_ps(high);
}

/* Mostly there is nothing to tame; what there is shows in the result: a NaN in the sum of squares, other values at the ends. */
V static void measure(const float *in, size_t n, hv_measure *out) {
  measure_as(0, in, n, out);
  if (!(out->low >= -HV_TAME && out->high <= HV_TAME && out->square >= 0))
    measure_as(1, in, n, out);
}

V static float absmax(const float *in, size_t n) {
  const __m512i size = _mm512_set1_epi32(0x7fffffff);
  __m512i a = _mm512_setzero_si512(), b = a;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a = _mm512_max_epu32(a, _mm512_and_si512(size, _mm512_loadu_si512(in + i)));
    b = _mm512_max_epu32(b, _mm512_and_si512(size, _mm512_loadu_si512(in + i + 16)));
  }
  float most = hv_float(_mm512_reduce_max_epu32(_mm512_max_epu32(a, b))), rest = REST(absmax)(in + i, n - i);
  if (!(most <= HV_TAME)) /* hardly ever: NaN must count as 0 */
    return REST(absmax)(in, n);
  return most > rest ? most : rest;
}

V static void range(const float *in, size_t n, float *low, float *high) {
  __m512 la = _mm512_set1_ps(*low), ha = _mm512_set1_ps(*high), lb = la, hb = ha;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m512 a = tame(_mm512_loadu_ps(in + i)), b = tame(_mm512_loadu_ps(in + i + 16));
    la = _mm512_min_ps(la, a), ha = _mm512_max_ps(ha, a), lb = _mm512_min_ps(lb, b), hb = _mm512_max_ps(hb, b);
  }
  *low = _mm512_reduce_min_ps(_mm512_min_ps(la, lb)), *high = _mm512_reduce_max_ps(_mm512_max_ps(ha, hb));
  REST(range)(in + i, n - i, low, high);
}

/* ---- the codecs ---- */

V static void encode_scaled(uint8_t *out, const float *in, float mean, float inverse, size_t n) {
  const __m512 shift = _mm512_set1_ps(mean), factor = _mm512_set1_ps(inverse);
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 m = first(n - i);
    __m512 y = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, in + i), shift), factor);
    _mm256_mask_storeu_epi16(out + 2 * i, m, f16_of(y));
  }
}

V static void decode_scaled(float *out, const uint8_t *in, float std, float mean, size_t n) {
  const __m512 factor = _mm512_set1_ps(std), shift = _mm512_set1_ps(mean);
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 m = first(n - i);
    __m512 y = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, in + 2 * i)), factor);
    _mm512_mask_storeu_ps(out + i, m, _mm512_add_ps(y, shift));
  }
}

IN __m512 within(__m512 t, float low, float high) {
  return _mm512_min_ps(_mm512_max_ps(t, _mm512_set1_ps(low)), _mm512_set1_ps(high));
}

/* The sum over the lanes in m of t in 256ths. */
IN int64_t tail(__mmask16 m, __m512 t) {
  __m512i steps = _mm512_maskz_cvtps_epi32(m, _mm512_mul_ps(within(t, -0x1p21f, 0x1p21f), _mm512_set1_ps(256)));
  __m512i wide = _mm512_add_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(steps)),
                                  _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(steps, 1)));
  return _mm512_reduce_add_epi64(wide);
}

V static void encode_uniform(uint8_t *out, const float *in, hv_uniform *u, size_t n) {
  const __m512 mean = _mm512_set1_ps(u->mean), inverse = _mm512_set1_ps(u->inverse);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 t = _mm512_mul_ps(_mm512_sub_ps(tame(_mm512_loadu_ps(in + i)), mean), inverse);
    __m512i k = _mm512_cvtps_epi32(within(t, -127, 127));
    __mmask16 high = _mm512_cmpeq_epi32_mask(k, _mm512_set1_epi32(127)), low = _mm512_cmpeq_epi32_mask(k, _mm512_set1_epi32(-127));
    if (__builtin_expect(high | low, 0)) {
      u->n_high += (unsigned)__builtin_popcount(high), u->n_low += (unsigned)__builtin_popcount(low);
      u->high += tail(high, t), u->low += tail(low, t);
    }
    _mm_storeu_si128((void *)(out + i), _mm_xor_si128(_mm512_cvtepi32_epi8(k), _mm_set1_epi8(-128)));
  }
  REST(encode_uniform)(out + i, in + i, u, n - i);
}

V static void decode_uniform(float *out, const uint8_t *in, const hv_even *e, size_t n) {
  const __m512 step = _mm512_set1_ps(e->step), mean = _mm512_set1_ps(e->mean), low = _mm512_set1_ps(e->low),
               high = _mm512_set1_ps(e->high);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i code = _mm_loadu_si128((const void *)(in + i));
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_xor_si128(code, _mm_set1_epi8(-128)))), step);
    v = _mm512_add_ps(v, mean);
    v = _mm512_mask_mov_ps(v, _mm_cmple_epu8_mask(code, _mm_set1_epi8(1)), low);
    v = _mm512_mask_mov_ps(v, _mm_cmpeq_epi8_mask(code, _mm_set1_epi8(-1)), high);
    _mm512_storeu_ps(out + i, v);
  }
  REST(decode_uniform)(out + i, in + i, e, n - i);
}

V static void cells(uint16_t *out, const float *in, int32_t base, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 m = first(n - i);
    __m512i b = _mm512_castps_si512(tame(_mm512_maskz_loadu_ps(m, in + i)));
    __m512i cell = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_slli_epi32(b, 1), 15), _mm512_set1_epi32(base));
    cell = _mm512_xor_si512(_mm512_max_epi32(cell, _mm512_setzero_si512()), _mm512_srai_epi32(b, 31));
    _mm256_mask_storeu_epi16(out + i, m, _mm512_cvtepi32_epi16(_mm512_add_epi32(cell, _mm512_set1_epi32(HV_CELLS / 2))));
  }
}

/* By octave of u, from 2^-31 on: the one threshold in it, if any, and how many lie below. */
#define NONE 4
static const float octave_threshold[32] = {NONE,
                                           NONE,
                                           NONE,
                                           NONE,
                                           NONE,
                                           NONE,
                                           NONE,
                                           NONE,
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e-6, 1.0),
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e-5, 2.0),
                                           NONE,
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e-4, 4.0),
                                           NONE,
                                           NONE,
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e-3, 8.0),
                                           NONE,
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e-2, 16.0),
                                           NONE,
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e-1, 32.0),
                                           NONE,
                                           NONE,
                                           HV_DYNAMIC_THRESHOLD(1e0, 64.0),
                                           NONE,
                                           NONE,
                                           NONE,
                                           NONE};
static const int32_t octave_decade[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3,
                                          3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 7};

/* Clamping u keeps its octave in the table and makes NaN and what is beyond tame come out as if it were. */
IN __m512i dynamic_codes(const float *in, __m512 inverse, __m512 *clamped) {
  const __m512 slopes = _mm512_castps256_ps512(_mm256_loadu_ps(hv_dynamic_map.slope));
  const __m512 offsets = _mm512_castps256_ps512(_mm256_loadu_ps(hv_dynamic_map.offset));
  const __m512 caps = _mm512_castps256_ps512(_mm256_loadu_ps(hv_dynamic_map.cap));
  __m512 u = _mm512_mul_ps(_mm512_abs_ps(_mm512_loadu_ps(in)), inverse);
  u = _mm512_min_ps(_mm512_max_ps(u, _mm512_set1_ps(0x1p-31f)), _mm512_set1_ps(1));
  __m512i octave = _mm512_srli_epi32(_mm512_castps_si512(u), 23);
  __m512 threshold = _mm512_permutex2var_ps(_mm512_loadu_ps(octave_threshold), octave, _mm512_loadu_ps(octave_threshold + 16));
  __m512i decade = _mm512_permutex2var_epi32(_mm512_loadu_si512(octave_decade), octave, _mm512_loadu_si512(octave_decade + 16));
  decade = _mm512_mask_add_epi32(decade, _mm512_cmp_ps_mask(u, threshold, _CMP_GE_OQ), decade, _mm512_set1_epi32(1));
  __m512 t = _mm512_add_ps(_mm512_mul_ps(u, _mm512_permutexvar_ps(decade, slopes)), _mm512_permutexvar_ps(decade, offsets));
  *clamped = u;
  return _mm512_cvtps_epi32(_mm512_min_ps(t, _mm512_permutexvar_ps(decade, caps)));
}

/* The lanes of four vectors with their sign bits set. */
IN __mmask64 signs(const float *in) {
  uint64_t a = _mm512_movepi32_mask(_mm512_loadu_si512(in)), b = _mm512_movepi32_mask(_mm512_loadu_si512(in + 16));
  uint64_t c = _mm512_movepi32_mask(_mm512_loadu_si512(in + 32)), d = _mm512_movepi32_mask(_mm512_loadu_si512(in + 48));
  return a | b << 16 | c << 32 | d << 48;
}

V static void encode_dynamic(uint8_t *out, const float *in, float inverse, size_t n) {
  const __m512i in_order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), sign = _mm512_set1_epi8(-128);
  const __m512 factor = _mm512_set1_ps(inverse), one = _mm512_set1_ps(HV_DYNAMIC_ONE);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    __m512 ua, ub, uc, ud;
    __m512i a = dynamic_codes(in + i, factor, &ua), b = dynamic_codes(in + i + 16, factor, &ub);
    __m512i c = dynamic_codes(in + i + 32, factor, &uc), d = dynamic_codes(in + i + 48, factor, &ud);
    __m512i m = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    m = _mm512_permutexvar_epi32(in_order, m);
    __mmask64 below = signs(in + i), top = 0;
    if (_mm512_cmp_ps_mask(_mm512_max_ps(_mm512_max_ps(ua, ub), _mm512_max_ps(uc, ud)), one, _CMP_GT_OQ)) {
      top = _mm512_cmp_ps_mask(ua, one, _CMP_GT_OQ) | (uint64_t)_mm512_cmp_ps_mask(ub, one, _CMP_GT_OQ) << 16;
      top |= (uint64_t)_mm512_cmp_ps_mask(uc, one, _CMP_GT_OQ) << 32 | (uint64_t)_mm512_cmp_ps_mask(ud, one, _CMP_GT_OQ) << 48;
    }
    m = _mm512_mask_mov_epi8(m, top & ~below, sign);
    m = _mm512_mask_add_epi8(m, _mm512_mask_test_epi8_mask(below, m, m), m, sign);
    _mm512_storeu_si512(out + i, m);
  }
  REST(encode_dynamic)(out + i, in + i, inverse, n - i);
}

/* The same byte of 64 book entries. plane: that byte of all 256, in order. */
IN __m512i entry_bytes(const __m512i plane[4], __m512i codes) {
  __m512i low = _mm512_permutex2var_epi8(plane[0], codes, plane[1]), high = _mm512_permutex2var_epi8(plane[2], codes, plane[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
}

/* The book is held in registers, byte by byte: memory is not asked for single entries. */
V static void decode_book(float *out, const uint8_t *in, const float *book, float factor, size_t n) {
  /* Groups of four codes, so placed that interleaving four bytes of each brings them into order. */
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512 scaled = _mm512_set1_ps(factor);
  __m512i plane[4][4];
  size_t i = 0;
  for (int q = 0; n >= 64 && q < 4; q++)
    for (int byte = 0; byte < 4; byte++) {
      __m128i part[4];
      for (int k = 0; k < 4; k++)
        part[k] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_loadu_si512(book + 64 * q + 16 * k), (unsigned)(8 * byte)));
      __m256i half = _mm256_set_m128i(part[1], part[0]);
      plane[byte][q] = _mm512_inserti64x4(_mm512_castsi256_si512(half), _mm256_set_m128i(part[3], part[2]), 1);
    }
  for (; i + 64 <= n; i += 64) {
    __m512i codes = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(in + i));
    __m512i a = entry_bytes(plane[0], codes), b = entry_bytes(plane[1], codes), c = entry_bytes(plane[2], codes),
            d = entry_bytes(plane[3], codes);
    __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    __m512i AB = _mm512_unpackhi_epi8(a, b), CD = _mm512_unpackhi_epi8(c, d);
    __m512i x[4] = {_mm512_unpacklo_epi16(ab, cd), _mm512_unpackhi_epi16(ab, cd), _mm512_unpacklo_epi16(AB, CD),
                    _mm512_unpackhi_epi16(AB, CD)};
    for (int k = 0; k < 4; k++)
      _mm512_storeu_ps(out + i + 16 * k, _mm512_mul_ps(_mm512_castsi512_ps(x[k]), scaled));
  }
  REST(decode_book)(out + i, in + i, book, factor, n - i);
}

/* The codes k of one full LINEAR block, as bytes; its scale to `scales`. */
IN __m512i linear_block(uint8_t *scales, const float *in, float levels) {
  __m512 a = tame(_mm512_loadu_ps(in)), b = tame(_mm512_loadu_ps(in + 16)), c = tame(_mm512_loadu_ps(in + 32)),
         d = tame(_mm512_loadu_ps(in + 48));
  float low = _mm512_reduce_min_ps(_mm512_min_ps(_mm512_min_ps(a, b), _mm512_min_ps(c, d)));
  float high = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
  uint16_t scaled = hv_linear_scale(low, high, levels);
  __m512 inverse = _mm512_set1_ps(scaled ? 1 / hv_bf16_to(scaled) : 0);
  hv_store16(scales, scaled);
  __m128i ka = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within(_mm512_mul_ps(a, inverse), -levels, levels - 1)));
  __m128i kb = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within(_mm512_mul_ps(b, inverse), -levels, levels - 1)));
  __m128i kc = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within(_mm512_mul_ps(c, inverse), -levels, levels - 1)));
  __m128i kd = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within(_mm512_mul_ps(d, inverse), -levels, levels - 1)));
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(kb, ka)), _mm256_set_m128i(kd, kc), 1);
}

V static void encode_linear8(uint8_t *out, uint8_t *scales, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2)
    _mm512_storeu_si512(out + i, _mm512_xor_si512(linear_block(scales, in + i, 128), _mm512_set1_epi8(-128)));
  REST(encode_linear8)(out + i, scales, in + i, n - i);
}

V static void encode_linear4(uint8_t *out, uint8_t *scales, const float *in, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m512i codes = _mm512_add_epi8(linear_block(scales, in + i, 8), _mm512_set1_epi8(8));
    __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001)); /* even + 16 * odd */
    _mm256_storeu_si256((void *)(out + i / 2), _mm512_cvtepi16_epi8(pairs));
  }
  REST(encode_linear4)(out + i / 2, scales, in + i, n - i);
}

V static void decode_linear8(float *out, const uint8_t *in, const uint8_t *scales, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m512 d = _mm512_set1_ps(hv_bf16_to(hv_load16(scales)));
    for (size_t j = i; j < i + 64; j += 16) {
      __m128i k = _mm_xor_si128(_mm_loadu_si128((const void *)(in + j)), _mm_set1_epi8(-128));
      _mm512_storeu_ps(out + j, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(k)), d));
    }
  }
  REST(decode_linear8)(out + i, in + i, scales, n - i);
}

V static void decode_linear4(float *out, const uint8_t *in, const uint8_t *scales, size_t n) {
  const __m512 levels = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
  size_t i = 0;
  for (; i + 64 <= n; i += 64, scales += 2) {
    __m512 values = _mm512_mul_ps(levels, _mm512_set1_ps(hv_bf16_to(hv_load16(scales))));
    __m512i pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)(in + i / 2)));
    __m512i codes = _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4)), _mm512_set1_epi16(0x0f0f));
    _mm512_storeu_ps(out + i, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(codes)), values));
    _mm512_storeu_ps(out + i + 16, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(codes, 1)), values));
    _mm512_storeu_ps(out + i + 32, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(codes, 2)), values));
    _mm512_storeu_ps(out + i + 48, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(codes, 3)), values));
  }
  REST(decode_linear4)(out + i, in + i / 2, scales, n - i);
}

const hv_kern hv_kern_avx512 = {
    .name = "avx512",
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
