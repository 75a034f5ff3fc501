/* The inner loops that run at memory speed: one table of functions for each kind of processor.
 *
 * Room: kern alone. codec*.c and reduce.c call them; portable.c, avx2.c and avx512.c fill them in; cpu.c chooses.
 * Owner: all buffers are the caller's. Chunk bytes (uint8_t) have any alignment, values have their natural alignment.
 * Thread: any; pure. n counts elements and may be 0.
 * Every set gives the same bits as portable.c, the reference. docs/design/codecs.md defines each codec; this header defines each
 * loop.
 */
#ifndef HV_KERN_KERNELS_H
#define HV_KERN_KERNELS_H

#include "kern/cpu.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* gcc: -ffp-contract=off */
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#define HV_UNIT 4096  /* elements that an encoder handles at once; also the unit of STATS and the block of BLOCKWISE8 */
#define HV_SLICE 1024 /* elements that a decoder handles at once; they fit into the first-level cache */
#define HV_PIECE 4096 /* bytes under one digest */
#define HV_LINEAR_BLOCK 64
#define HV_TAME 0x1p126f
#define HV_TINY 0x1p-120f /* scales below this count as 0, so that their inverses are finite */

#define HV_SUM_K 0x9e3779b185ebca87u
#define HV_SUM_G 0xc2b2ae3d27d4eb4fu

/* STATS of one unit, with the smallest and largest value. */
typedef struct hv_measure {
  double sum, square;
  float low, high;
} hv_measure;

/* UNIFORM8, encoding: the parameters, and the loop's sums over the end codes, in 1/256 of a step from the mean. */
typedef struct hv_uniform {
  float mean, inverse;
  uint64_t n_low, n_high;
  int64_t low, high;
} hv_uniform;

/* UNIFORM8, decoding: the parameters. */
typedef struct hv_even {
  float mean, step, low, high;
} hv_even;

/* BLOCKWISE8: tables of the dynamic map. For u = |x| / absmax, i is the number of elements of threshold[1..7] that are <= u: the
 * index of u's decade. The code of |x| is nearest-even(u * slope[i] + offset[i]), at most cap[i]. If x is positive and u is above
 * HV_DYNAMIC_ONE, the code is 0x80. */
typedef struct hv_dynamic {
  float threshold[8], slope[8], offset[8], cap[8];
} hv_dynamic;
extern const hv_dynamic hv_dynamic_map;
#define HV_DYNAMIC_ONE 0.99648437f
/* The smallest u of the decade that ends at u = `ten` and has `steps` codes: midway between its first code and the one below. */
#define HV_DYNAMIC_THRESHOLD(ten, steps) ((float)((ten) * (0.1 + 0.18 / (steps))))

/* QUANTILE8: positions are cells of floats that share sign, exponent and nine bits of mantissa, in order of value:
 * i = max((bits(|x|) >> 14) - base, 0), position = 16384 + i, or 16383 - i below zero. */
#define HV_CELLS 32768

#define HV_INFINITE 0x7f800000u /* the bits of an infinite float32 */

struct hv_kern {
  const char *name;

  /* bytes */
  void (*copy)(uint8_t *out, const uint8_t *in, size_t size); /* bypasses the caches if the processor can */
  uint64_t (*digest)(const uint8_t *piece);                   /* of HV_PIECE bytes: docs/design/codecs.md, "Checksum" */

  /* plain numbers */
  void (*widen_f16)(float *out, const uint8_t *in, size_t n);  /* exact; NaN is made quiet */
  void (*narrow_f16)(uint8_t *out, const float *in, size_t n); /* FLOAT16 */
  void (*widen_bf16)(float *out, const uint8_t *in, size_t n);
  void (*narrow_bf16)(uint8_t *out, const float *in, size_t n); /* BFLOAT16 */
  void (*narrow_f64)(float *out, const uint8_t *in, size_t n);
  void (*widen_f64)(uint8_t *out, const float *in, size_t n);
  void (*add)(float *acc, const uint8_t *in, float weight, size_t n); /* acc + (weight * in), rounded twice; in: floats */
  void (*scale)(float *acc, float factor, size_t n);
  int (*finite_f32)(const uint8_t *in, uint32_t infinity,
                    size_t n); /* true if all magnitudes are below `infinity` (bits, at most HV_INFINITE) */
  int (*finite_16)(const uint8_t *in, uint16_t infinity, size_t n); /* the same for float16 (0x7c00) and bfloat16 (0x7f80) */
  int (*finite_f64)(const uint8_t *in, size_t n);                   /* true if all are finite when rounded to float32 */

  /* error feedback */
  void (*feed)(float *residual, const float *in, size_t n); /* residual = tame(residual + in) */
  void (*lose)(float *residual, const float *in, size_t n); /* residual = residual - in */

  /* statistics of the tame values of at most HV_UNIT elements */
  void (*measure)(const float *in, size_t n, hv_measure *out); /* n > 0 */
  float (*absmax)(const float *in, size_t n);
  void (*range)(const float *in, size_t n, float *low, float *high); /* widens [*low, *high] */

  /* the codecs, at most HV_UNIT elements */
  void (*encode_scaled)(uint8_t *out, const float *in, float mean, float inverse, size_t n);
  void (*decode_scaled)(float *out, const uint8_t *in, float std, float mean, size_t n);
  void (*encode_uniform)(uint8_t *out, const float *in, hv_uniform *u, size_t n);
  void (*decode_uniform)(float *out, const uint8_t *in, const hv_even *e, size_t n);
  void (*cells)(uint16_t *out, const float *in, int32_t base, size_t n);                         /* the positions of tame values */
  void (*encode_dynamic)(uint8_t *out, const float *in, float inverse, size_t n);                /* inverse: 1 / absmax */
  void (*decode_book)(float *out, const uint8_t *in, const float *book, float factor, size_t n); /* book[code] * factor */
  void (*encode_linear8)(uint8_t *out, uint8_t *scales, const float *in, size_t n);
  void (*decode_linear8)(float *out, const uint8_t *in, const uint8_t *scales, size_t n);
  void (*encode_linear4)(uint8_t *out, uint8_t *scales, const float *in, size_t n);
  void (*decode_linear4)(float *out, const uint8_t *in, const uint8_t *scales, size_t n);
};

extern const hv_kern hv_kern_portable;
#if defined(__x86_64__)
extern const hv_kern hv_kern_avx2, hv_kern_avx512;
#endif

/* ---- what all sets share ---- */

/* The caller's floating-point mode, put aside: round to nearest, denormals count, no traps. */
static inline unsigned hv_mode_ours(void) {
#if defined(__SSE__)
  unsigned theirs = _mm_getcsr();
  _mm_setcsr(0x1f80);
  return theirs;
#else
  return 0;
#endif
}
static inline void hv_mode_theirs(unsigned theirs) {
#if defined(__SSE__)
  _mm_setcsr(theirs);
#else
  (void)theirs;
#endif
}

static inline uint32_t hv_bits(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
static inline float hv_float(uint32_t b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}
/* Little-endian numbers at any alignment; compilers make one move of each. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HV_LITTLE(x, bits) (x)
#else
#define HV_LITTLE(x, bits) __builtin_bswap##bits(x)
#endif
#define HV_LOAD_STORE(bits)                                                                                                        \
  static inline uint##bits##_t hv_load##bits(const uint8_t *p) {                                                                   \
    uint##bits##_t v;                                                                                                              \
    memcpy(&v, p, bits / 8);                                                                                                       \
    return HV_LITTLE(v, bits);                                                                                                     \
  }                                                                                                                                \
  static inline void hv_store##bits(uint8_t *p, uint##bits##_t v) {                                                                \
    v = HV_LITTLE(v, bits);                                                                                                        \
    memcpy(p, &v, bits / 8);                                                                                                       \
  }
HV_LOAD_STORE(16)
HV_LOAD_STORE(32)
HV_LOAD_STORE(64)

static inline uint64_t hv_mix(uint64_t z) {
  z ^= z >> 32;
  z *= 0xd6e8feb86659fd93u;
  z ^= z >> 32;
  z *= 0xd6e8feb86659fd93u;
  return z ^ z >> 32;
}

static inline float hv_tame(float x) {
  uint32_t b = hv_bits(x), size = b & 0x7fffffff, limited = size < 0x7e800000 ? size : 0x7e800000;
  return hv_float(size > 0x7f800000 ? 0 : (b & 0x80000000) | limited);
}

/* Nearest-even integer of |t| < 2^21, without libm. */
static inline int32_t hv_nearest(float t) {
  return (int32_t)((t + 0x1.8p23f) - 0x1.8p23f);
}

static inline uint16_t hv_bf16_of(float x) {
  uint32_t b = hv_bits(x);
  return (b & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
static inline float hv_bf16_to(uint16_t h) {
  return hv_float((uint32_t)h << 16);
}

/* The scale of a LINEAR block from its smallest and largest tame value: extreme / -levels in bfloat16, away from zero. */
static inline uint16_t hv_linear_scale(float low, float high, float levels) {
  float extreme = high >= -low ? high : low;
  uint32_t d = (hv_bits(extreme / -levels) + 0xffff) >> 16;
  return (d & 0x7fff) < 0x0380 ? 0 : (uint16_t)d; /* HV_TINY */
}

#endif
