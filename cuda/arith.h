/* The codecs' arithmetic for one element, the same for the device and for the host's compiler.
 *
 * Room: cuda. Included by the kernels' bodies, which NVRTC (--fmad=false) compiles for the device, and the tests' stand-in for the
 * host; a twin of kern/portable.c, held to it by tests/unit/cuda/test_cuda_codec.c. docs/design/codecs.md defines the formats. C11
 * and C++17 at once. Pure functions.
 */
#ifndef HV_CUDA_ARITH_H
#define HV_CUDA_ARITH_H

#ifdef __CUDACC_RTC__ /* it has no headers; memcpy and sqrt are its own */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;
typedef uint64_t uintptr_t;
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#ifdef __CUDACC__
#define HV_HD static __host__ __device__ __forceinline__
#else
#define HV_HD static inline
#endif

#define CU_UNIT 4096 /* elements: of STATS, BLOCKWISE8, and of what a block of threads decodes at a time */
#define CU_PIECE 4096u
#define CU_HEADER 32
#define CU_LINEAR 64
#define CU_CELLS 32768
#define CU_TAME 0x1p126f
#define CU_TINY 0x1p-120f
#define CU_STD_MAX 0x1p110f
#define CU_SLICE 1024u        /* elements under one sum of squares, where values are held against limits */
#define CU_ADDEND_MAX 0x1p119 /* of a value times its weight */
#define CU_K 0x9e3779b185ebca87ull
#define CU_G 0xc2b2ae3d27d4eb4full
#define CU_HEAD_INDEX ((uint64_t)1 << 40)

/* As kern/codec.h and kern/dtype.h have them; codec.c holds them to that. */
enum { CU_NONE, CU_FLOAT16, CU_SCALED, CU_BFLOAT16, CU_UNIFORM8, CU_QUANTILE8, CU_BLOCKWISE8, CU_LINEAR8, CU_LINEAR4, CU_ROWS };
enum { CU_F32 = 1, CU_F16 = 2, CU_BF16 = 3 };

/* ---- bits ---- */

HV_HD uint32_t cu_bits(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
HV_HD float cu_float(uint32_t b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}

typedef struct __attribute__((aligned(16))) cu_16 {
  uint32_t w[4];
} cu_16;

/* 16 and 8 bytes in one access; p is aligned to as much. */
HV_HD cu_16 cu_read16(const void *p) {
  cu_16 v;
#ifdef __CUDA_ARCH__
  uint4 u = *(const uint4 *)p;
  v.w[0] = u.x, v.w[1] = u.y, v.w[2] = u.z, v.w[3] = u.w;
#else
  memcpy(&v, p, 16);
#endif
  return v;
}
HV_HD void cu_write16(void *p, cu_16 v) {
#ifdef __CUDA_ARCH__
  *(uint4 *)p = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
#else
  memcpy(p, &v, 16);
#endif
}
HV_HD uint64_t cu_read8(const void *p) {
#ifdef __CUDA_ARCH__
  uint2 u = *(const uint2 *)p;
  return u.x | (uint64_t)u.y << 32;
#else
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
#endif
}
HV_HD void cu_write8(void *p, uint64_t v) {
#ifdef __CUDA_ARCH__
  *(uint2 *)p = make_uint2((uint32_t)v, (uint32_t)(v >> 32));
#else
  memcpy(p, &v, 8);
#endif
}

/* The first n <= 16 bytes at p, which is aligned to `unit` bytes; zeros after them. */
HV_HD cu_16 cu_read_some(const uint8_t *p, uint32_t n) {
  if (n >= 16 && (uintptr_t)p % 16 == 0)
    return cu_read16(p);
  cu_16 v = {{0, 0, 0, 0}};
  for (uint32_t i = 0; i < 16; i++)
    if (i < n)
      v.w[i / 4] |= (uint32_t)p[i] << i % 4 * 8;
  return v;
}
HV_HD void cu_write_some(uint8_t *p, cu_16 v, uint32_t n) {
  if (n >= 16) {
    cu_write16(p, v);
    return;
  }
  for (uint32_t i = 0; i < 16; i++)
    if (i < n)
      p[i] = (uint8_t)(v.w[i / 4] >> i % 4 * 8);
}

HV_HD float cu_head_float(const uint8_t *head, uint32_t i) {
  return ((const float *)(const void *)head)[i];
}

/* ---- the checksum ---- */

HV_HD uint64_t cu_mix(uint64_t z) {
  z ^= z >> 32;
  z *= 0xd6e8feb86659fd93ull;
  z ^= z >> 32;
  z *= 0xd6e8feb86659fd93ull;
  return z ^ z >> 32;
}

/* The part that words 2t and 2t + 1 of a piece bring to lanes 2 (t % 4) and 2 (t % 4) + 1. */
HV_HD void cu_digest_part(cu_16 v, uint32_t t, uint64_t *even, uint64_t *odd) {
  uint64_t w0 = v.w[0] | (uint64_t)v.w[1] << 32, w1 = v.w[2] | (uint64_t)v.w[3] << 32;
  uint64_t j = 2 * (t % 4), row = (uint64_t)(t / 4) * CU_G;
  uint64_t t0 = w0 ^ (CU_K * (j + 1) + row), t1 = w1 ^ (CU_K * (j + 2) + row);
  *even = (t0 & 0xffffffff) * (t0 >> 32) + w1;
  *odd = (t1 & 0xffffffff) * (t1 >> 32) + w0;
}

/* ---- plain numbers ---- */

HV_HD float cu_tame(float x) {
  uint32_t b = cu_bits(x), size = b & 0x7fffffff, limited = size < 0x7e800000 ? size : 0x7e800000;
  return cu_float(size > 0x7f800000 ? 0 : (b & 0x80000000) | limited);
}
HV_HD float cu_within(float t, float low, float high) {
  return t < low ? low : t > high ? high : t;
}
HV_HD int32_t cu_nearest(float t) {
  return (int32_t)((t + 0x1.8p23f) - 0x1.8p23f);
}

HV_HD uint16_t cu_f16_of(float x) {
  uint32_t b = cu_bits(x), size = b & 0x7fffffff, sign = b >> 16 & 0x8000;
  if (size > 0x7f800000)
    return 0x7e00;
#ifdef __CUDA_ARCH__ /* the same in one instruction */
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(cu_float((b & 0x80000000) | (size < 0x477fe000 ? size : 0x477fe000))));
  return h;
#else
  if (size >= 0x477fe000)
    return (uint16_t)(sign | 0x7bff);
  if (size < 0x38800000)
    return (uint16_t)(sign | (cu_bits(cu_float(size) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13));
#endif
}
HV_HD float cu_f16_to(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, size = h & 0x7fff;
#ifdef __CUDA_ARCH__
  if (size <= 0x7c00) { /* a NaN's bits would be lost */
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
  }
#endif
  if (size < 0x400)
    return cu_float(sign | cu_bits((float)size * 0x1p-24f));
  if (size < 0x7c00)
    return cu_float(sign | ((size << 13) + 0x38000000));
  return cu_float(sign | 0x7f800000 | size << 13 | (size > 0x7c00 ? 0x400000 : 0));
}
HV_HD uint16_t cu_bf16_of(float x) {
  uint32_t b = cu_bits(x);
  return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}
HV_HD float cu_bf16_to(uint16_t h) {
  return cu_float((uint32_t)h << 16);
}

HV_HD uint32_t cu_size_of(int dtype) {
  return dtype == CU_F32 ? 4 : 2;
}
HV_HD float cu_half_to(int dtype, uint16_t h) {
  return dtype == CU_F16 ? cu_f16_to(h) : cu_bf16_to(h);
}
HV_HD float cu_load1(int dtype, const void *src, uint64_t at) {
  return dtype == CU_F32 ? ((const float *)src)[at] : cu_half_to(dtype, ((const uint16_t *)src)[at]);
}
HV_HD void cu_store1(int dtype, void *out, uint64_t at, float x) {
  if (dtype == CU_F32)
    ((float *)out)[at] = x;
  else
    ((uint16_t *)out)[at] = dtype == CU_F16 ? cu_f16_of(x) : cu_bf16_of(x);
}
/* Elements at .. at + 3 as float32, at a multiple of 4; zeros from count on. */
HV_HD void cu_load4(int dtype, const void *src, uint64_t at, uint64_t count, float x[4]) {
  uint32_t size = cu_size_of(dtype);
  if (at + 4 > count || (uintptr_t)src % (4 * size)) {
    for (uint32_t i = 0; i < 4; i++)
      x[i] = at + i < count ? cu_load1(dtype, src, at + i) : 0;
    return;
  }
  if (dtype == CU_F32) {
    cu_16 v = cu_read16((const float *)src + at);
    for (uint32_t i = 0; i < 4; i++)
      x[i] = cu_float(v.w[i]);
  } else {
    uint64_t v = cu_read8((const uint16_t *)src + at);
    for (uint32_t i = 0; i < 4; i++)
      x[i] = cu_half_to(dtype, (uint16_t)(v >> 16 * i));
  }
}
HV_HD void cu_store4(int dtype, void *out, uint64_t at, uint64_t count, const float x[4]) {
  uint32_t size = cu_size_of(dtype);
  if (at + 4 > count || (uintptr_t)out % (4 * size)) {
    for (uint32_t i = 0; i < 4; i++)
      if (at + i < count)
        cu_store1(dtype, out, at + i, x[i]);
    return;
  }
  if (dtype == CU_F32) {
    cu_16 v;
    for (uint32_t i = 0; i < 4; i++)
      v.w[i] = cu_bits(x[i]);
    cu_write16((float *)out + at, v);
  } else {
    uint64_t v = 0;
    for (uint32_t i = 0; i < 4; i++)
      v |= (uint64_t)(dtype == CU_F16 ? cu_f16_of(x[i]) : cu_bf16_of(x[i])) << 16 * i;
    cu_write8((uint16_t *)out + at, v);
  }
}

/* ---- the codecs, one element ---- */

HV_HD uint16_t cu_scaled_of(float x, float mean, float inverse) {
  float y = x - mean;
  y = y * inverse;
  return inverse > 0 ? cu_f16_of(y) : 0;
}
/* SCALED_ROWS: without deviation, what is not finite becomes NaN. */
HV_HD uint16_t cu_row_code_of(float x, float mean, float std) {
  float y = x - mean;
  y = y * (std > 0 ? 1 / std : 0);
  return cu_f16_of(y);
}
HV_HD float cu_scaled_to(uint16_t h, float std, float mean) {
  float y = cu_f16_to(h) * std;
  return y + mean;
}

HV_HD float cu_uniform_steps(float x, float mean, float inverse) {
  float t = cu_tame(x) - mean;
  return t * inverse;
}
HV_HD int64_t cu_in_256ths(float t) {
  double steps = (double)cu_within(t, -0x1p21f, 0x1p21f) * 256;
  return (int64_t)((steps + 0x1.8p52) - 0x1.8p52);
}
HV_HD float cu_uniform_to(uint8_t code, float mean, float step, float low, float high) {
  float v = (float)((int32_t)code - 128) * step;
  v = v + mean;
  return code <= 1 ? low : code == 255 ? high : v;
}

HV_HD uint32_t cu_cell(float x, int32_t base) {
  uint32_t b = cu_bits(cu_tame(x)), below = b >> 31 ? 0xffffffff : 0;
  int32_t cell = (int32_t)((b & 0x7fffffff) >> 14) - base;
  cell = cell < 0 ? 0 : cell;
  return (uint16_t)(CU_CELLS / 2 + ((uint32_t)cell ^ below));
}

/* Decade i of the dynamic map, as kern/portable.c's DECADE has it. */
#define CU_DECADE_AT(ten, steps) ((float)((ten) * (0.1 + 0.18 / (steps))))
HV_HD uint8_t cu_dynamic_of(float value, float inverse) {
  float x = cu_tame(value), u = cu_float(cu_bits(x) & 0x7fffffff) * inverse;
  float slope = 0, offset = 0, cap = 0;
#define CU_DECADE(ten, steps)                                                                                                      \
  if (CU_DECADE_AT(ten, steps) <= u)                                                                                               \
  slope = (float)((steps) / (0.9 * (ten))), offset = (float)((0.8 * (steps)-0.45) / 0.9), cap = (float)(2 * (steps)-1)
  CU_DECADE(1e-6, 1.0);
  CU_DECADE(1e-5, 2.0);
  CU_DECADE(1e-4, 4.0);
  CU_DECADE(1e-3, 8.0);
  CU_DECADE(1e-2, 16.0);
  CU_DECADE(1e-1, 32.0);
  CU_DECADE(1e0, 64.0);
#undef CU_DECADE
  float t = u * slope;
  t = t + offset;
  int32_t m = cu_nearest(t < cap ? t : cap), below = (int32_t)(cu_bits(x) >> 31), top = u > 0.99648437f;
  m |= below && m > 0 ? 0x80 : 0;
  return (uint8_t)(top && !below ? 0x80 : m);
}
/* Entry `code` of BLOCKWISE8's book. */
HV_HD float cu_dynamic_entry(uint32_t code) {
  uint32_t m = code & 0x7f;
  if (!m)
    return code ? 1.0f : 0.0f;
  double ten = 1e-6;
  int32_t steps = 1;
  for (; (int32_t)m >= 2 * steps; steps *= 2)
    ten = ten * 10;
  float value = (float)(ten * (0.1 + 0.9 * ((int32_t)m - steps + 0.5) / steps));
  return code & 0x80 ? -value : value;
}

HV_HD uint16_t cu_linear_scale(float low, float high, float levels) {
  float extreme = high >= -low ? high : low;
  uint32_t d = (cu_bits(extreme / -levels) + 0xffff) >> 16;
  return (uint16_t)((d & 0x7fff) < 0x0380 ? 0 : d);
}
HV_HD int32_t cu_linear_of(float x, float inverse, float levels) {
  return cu_nearest(cu_within(cu_tame(x) * inverse, -levels, levels - 1));
}

/* ---- sizes ---- */

HV_HD uint32_t cu_bits_of(int codec, int dtype) {
  int in_16 = codec == CU_FLOAT16 || codec == CU_SCALED || codec == CU_BFLOAT16 || codec == CU_ROWS;
  return codec == CU_NONE ? 8 * cu_size_of(dtype) : in_16 ? 16 : codec == CU_LINEAR4 ? 4 : 8;
}
HV_HD uint64_t cu_body_bytes(int codec, int dtype, uint64_t count) {
  return (count * cu_bits_of(codec, dtype) + 7) / 8;
}
HV_HD uint64_t cu_slices(uint64_t count) {
  return (count + CU_SLICE - 1) / CU_SLICE;
}
/* SCALED_ROWS: how elements lie in rows (hv_rows of kern/codec.h); other codecs have {0, 0}. */
typedef struct cu_rows {
  uint64_t width, first;
} cu_rows;
/* Index of the row that has element `at`; the number of rows in count elements. */
HV_HD uint64_t cu_rows_at(cu_rows rows, uint64_t at) {
  return at < rows.first ? 0 : 1 + (at - rows.first) / rows.width;
}
HV_HD uint64_t cu_rows_in(cu_rows rows, uint64_t count) {
  return count ? cu_rows_at(rows, count - 1) + 1 : 0;
}
/* Index of the first element of a row. */
HV_HD uint64_t cu_rows_begin(cu_rows rows, uint64_t row) {
  return row ? rows.first + (row - 1) * rows.width : 0;
}

/* Bytes of params, then of scales. */
HV_HD uint32_t cu_param_bytes(int codec) {
  return codec == CU_SCALED ? 8 : codec == CU_UNIFORM8 || codec == CU_ROWS ? 16 : codec == CU_QUANTILE8 ? 1024 : 0;
}
HV_HD uint64_t cu_scale_bytes(int codec, uint64_t count, cu_rows rows) {
  if (codec == CU_ROWS)
    return cu_rows_in(rows, count) * 8;
  return codec == CU_BLOCKWISE8                       ? (count + CU_UNIT - 1) / CU_UNIT * 4
         : codec == CU_LINEAR8 || codec == CU_LINEAR4 ? (count + CU_LINEAR - 1) / CU_LINEAR * 2
                                                      : 0;
}
HV_HD uint64_t cu_head_bytes(int codec, uint64_t count, cu_rows rows) {
  return (cu_param_bytes(codec) + cu_scale_bytes(codec, count, rows) + 15) / 16 * 16;
}

#endif
