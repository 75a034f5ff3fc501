/* The reference: every loop in plain C. The other sets must give the same bits. */
#include "kern/kernels.h"

/* Decade i of the map holds the codes 2^(i-1) .. 2^i - 1 with values slope' * m + offset'; here the inverse of that. */
#define DECADE(i, ten, steps)                                                                                                      \
  .threshold[i] = HV_DYNAMIC_THRESHOLD(ten, steps), .slope[i] = (float)((steps) / (0.9 * (ten))),                                  \
  .offset[i] = (float)((0.8 * (steps)-0.45) / 0.9), .cap[i] = (float)(2 * (steps)-1)
const hv_dynamic hv_dynamic_map = {DECADE(1, 1e-6, 1.0),  DECADE(2, 1e-5, 2.0),  DECADE(3, 1e-4, 4.0), DECADE(4, 1e-3, 8.0),
                                   DECADE(5, 1e-2, 16.0), DECADE(6, 1e-1, 32.0), DECADE(7, 1e0, 64.0)};

static void copy(uint8_t *out, const uint8_t *in, size_t size) {
  memcpy(out, in, size);
}

static uint64_t digest(const uint8_t *piece) {
  uint64_t lane[8] = {0}, sum = 0;
  for (unsigned r = 0; r < 64; r++)
    for (unsigned j = 0; j < 8; j++) {
      uint64_t w = hv_load64(piece + 64 * r + 8 * j), t = w ^ (HV_SUM_K * (j + 1) + r * HV_SUM_G);
      lane[j] += (t & 0xffffffff) * (t >> 32);
      lane[j ^ 1] += w;
    }
  for (unsigned j = 0; j < 8; j++)
    sum += hv_mix(lane[j] + j * HV_SUM_G);
  return sum;
}

/* ---- plain numbers ---- */

static uint16_t f16_of(float x) {
  uint32_t b = hv_bits(x), size = b & 0x7fffffff, sign = b >> 16 & 0x8000;
  if (size > 0x7f800000)
    return 0x7e00;
  if (size >= 0x477fe000) /* 65504 */
    return (uint16_t)(sign | 0x7bff);
  if (size < 0x38800000) /* 2^-14: the steps of float16 there are those of float32 from 0.5 on */
    return (uint16_t)(sign | (hv_bits(hv_float(size) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13));
}

static float f16_to(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, size = h & 0x7fff;
  if (size < 0x400)
    return hv_float(sign | hv_bits((float)size * 0x1p-24f));
  if (size < 0x7c00)
    return hv_float(sign | ((size << 13) + 0x38000000));
  return hv_float(sign | 0x7f800000 | size << 13 | (size > 0x7c00 ? 0x400000 : 0));
}

static void widen_f16(float *out, const uint8_t *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = f16_to(hv_load16(in + 2 * i));
}

static void narrow_f16(uint8_t *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    hv_store16(out + 2 * i, f16_of(in[i]));
}

static void widen_bf16(float *out, const uint8_t *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = hv_bf16_to(hv_load16(in + 2 * i));
}

static void narrow_bf16(uint8_t *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    hv_store16(out + 2 * i, hv_bf16_of(in[i]));
}

static double load_f64(const uint8_t *in) {
  double x;
  memcpy(&x, in, 8);
  return x;
}

static float load_f32(const uint8_t *in) {
  float x;
  memcpy(&x, in, 4);
  return x;
}

static void narrow_f64(float *out, const uint8_t *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = (float)load_f64(in + 8 * i);
}

static void widen_f64(uint8_t *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double x = in[i];
    memcpy(out + 8 * i, &x, 8);
  }
}

static void add(float *acc, const uint8_t *in, float weight, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float part = weight * load_f32(in + 4 * i);
    acc[i] = acc[i] + part;
  }
}

static void scale(float *acc, float factor, size_t n) {
  for (size_t i = 0; i < n; i++)
    acc[i] = acc[i] * factor;
}

static int finite_f32(const uint8_t *in, uint32_t infinity, size_t n) {
  uint32_t worst = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t size = hv_load32(in + 4 * i) & 0x7fffffff;
    worst = size > worst ? size : worst;
  }
  return worst < infinity;
}

static int finite_16(const uint8_t *in, uint16_t infinity, size_t n) {
  uint16_t worst = 0;
  for (size_t i = 0; i < n; i++) {
    uint16_t size = hv_load16(in + 2 * i) & 0x7fff;
    worst = size > worst ? size : worst;
  }
  return worst < infinity;
}

static int finite_f64(const uint8_t *in, size_t n) {
  uint64_t worst = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t size = hv_load64(in + 8 * i) & INT64_MAX;
    worst = size > worst ? size : worst;
  }
  return worst < 0x47effffff0000000; /* 2^128 - 2^103: from here on it rounds to infinity */
}

/* ---- error feedback, statistics ---- */

static void feed(float *residual, const float *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    residual[i] = hv_tame(residual[i] + in[i]);
}

static void lose(float *residual, const float *in, size_t n) {
  for (size_t i = 0; i < n; i++)
    residual[i] = residual[i] - in[i];
}

static void measure(const float *in, size_t n, hv_measure *out) {
  double sum[32] = {0}, square[32] = {0};
  out->low = out->high = hv_tame(in[0]);
  for (size_t i = 0; i < n; i++) {
    float x = hv_tame(in[i]);
    sum[i % 32] += (double)x;
    square[i % 32] += (double)x * (double)x; /* the product is exact */
    out->low = x < out->low ? x : out->low;
    out->high = x > out->high ? x : out->high;
  }
  for (size_t fold = 16; fold; fold /= 2)
    for (size_t j = 0; j < fold; j++)
      sum[j] += sum[j + fold], square[j] += square[j + fold];
  out->sum = sum[0], out->square = square[0];
}

static float absmax(const float *in, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t size = hv_bits(hv_tame(in[i])) & 0x7fffffff;
    most = size > most ? size : most;
  }
  return hv_float(most);
}

static void range(const float *in, size_t n, float *low, float *high) {
  for (size_t i = 0; i < n; i++) {
    float x = hv_tame(in[i]);
    *low = x < *low ? x : *low;
    *high = x > *high ? x : *high;
  }
}

/* ---- the codecs ---- */

static void encode_scaled(uint8_t *out, const float *in, float mean, float inverse, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float y = (in[i] - mean) * inverse;
    hv_store16(out + 2 * i, f16_of(y));
  }
}

static void decode_scaled(float *out, const uint8_t *in, float std, float mean, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float y = f16_to(hv_load16(in + 2 * i)) * std;
    out[i] = y + mean;
  }
}

static float within(float t, float low, float high) {
  return t < low ? low : t > high ? high : t;
}

static int64_t in_256ths(float t) {
  double steps = (double)within(t, -0x1p21f, 0x1p21f) * 256;
  return (int64_t)((steps + 0x1.8p52) - 0x1.8p52);
}

static void encode_uniform(uint8_t *out, const float *in, hv_uniform *u, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float t = (hv_tame(in[i]) - u->mean) * u->inverse;
    int32_t k = hv_nearest(within(t, -127, 127));
    if (k == 127)
      u->n_high++, u->high += in_256ths(t);
    if (k == -127)
      u->n_low++, u->low += in_256ths(t);
    out[i] = (uint8_t)(k + 128);
  }
}

static void decode_uniform(float *out, const uint8_t *in, const hv_even *e, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float v = (float)(in[i] - 128) * e->step;
    v = v + e->mean;
    out[i] = in[i] <= 1 ? e->low : in[i] == 255 ? e->high : v;
  }
}

static void cells(uint16_t *out, const float *in, int32_t base, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t b = hv_bits(hv_tame(in[i])), below = b >> 31 ? 0xffffffff : 0;
    int32_t cell = (int32_t)((b & 0x7fffffff) >> 14) - base;
    cell = cell < 0 ? 0 : cell;
    out[i] = (uint16_t)(HV_CELLS / 2 + ((uint32_t)cell ^ below));
  }
}

static uint8_t dynamic_code(float x, float u, int32_t decade) {
  const hv_dynamic *map = &hv_dynamic_map;
  float t = u * map->slope[decade];
  t = t + map->offset[decade];
  int32_t m = hv_nearest(t < map->cap[decade] ? t : map->cap[decade]), below = hv_bits(x) >> 31, top = u > HV_DYNAMIC_ONE;
  m |= -(below & (m > 0)) & 0x80; /* no branches: signs cannot be foreseen */
  return (uint8_t)((top & !below) ? 0x80 : m);
}

static void encode_dynamic(uint8_t *out, const float *in, float inverse, size_t n) {
  enum { SOME = 64 }; /* at a time, in loops that compilers make vectors of */
  for (size_t at = 0; at < n; at += SOME) {
    float x[SOME], u[SOME];
    int32_t decade[SOME] = {0};
    size_t some = n - at < SOME ? n - at : SOME;
    for (size_t i = 0; i < some; i++) {
      x[i] = hv_tame(in[at + i]);
      u[i] = hv_float(hv_bits(x[i]) & 0x7fffffff) * inverse;
    }
    for (unsigned k = 1; k < 8; k++)
      for (size_t i = 0; i < some; i++)
        decade[i] += hv_dynamic_map.threshold[k] <= u[i];
    for (size_t i = 0; i < some; i++)
      out[at + i] = dynamic_code(x[i], u[i], decade[i]);
  }
}

static void decode_book(float *out, const uint8_t *in, const float *book, float factor, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = book[in[i]] * factor;
}

/* One LINEAR block: its scale to `scales`, its codes k to `codes`. */
static void linear_block(int8_t *codes, uint8_t *scales, const float *in, float levels, size_t n) {
  float low = 0, high = 0;
  range(in, n, &low, &high);
  uint16_t d = hv_linear_scale(low, high, levels);
  float inverse = d ? 1 / hv_bf16_to(d) : 0;
  hv_store16(scales, d);
  for (size_t i = 0; i < n; i++)
    codes[i] = (int8_t)hv_nearest(within(hv_tame(in[i]) * inverse, -levels, levels - 1));
}

static void encode_linear8(uint8_t *out, uint8_t *scales, const float *in, size_t n) {
  for (size_t at = 0; at < n; at += HV_LINEAR_BLOCK) {
    int8_t codes[HV_LINEAR_BLOCK];
    size_t block = n - at < HV_LINEAR_BLOCK ? n - at : HV_LINEAR_BLOCK;
    linear_block(codes, scales + at / HV_LINEAR_BLOCK * 2, in + at, 128, block);
    for (size_t i = 0; i < block; i++)
      out[at + i] = (uint8_t)(codes[i] + 128);
  }
}

static void decode_linear8(float *out, const uint8_t *in, const uint8_t *scales, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = (float)(in[i] - 128) * hv_bf16_to(hv_load16(scales + i / HV_LINEAR_BLOCK * 2));
}

static void encode_linear4(uint8_t *out, uint8_t *scales, const float *in, size_t n) {
  for (size_t at = 0; at < n; at += HV_LINEAR_BLOCK) {
    int8_t codes[HV_LINEAR_BLOCK + 1];
    size_t block = n - at < HV_LINEAR_BLOCK ? n - at : HV_LINEAR_BLOCK;
    linear_block(codes, scales + at / HV_LINEAR_BLOCK * 2, in + at, 8, block);
    codes[block] = -8; /* the half after the last one is 0 */
    for (size_t i = 0; i < block; i += 2)
      out[(at + i) / 2] = (uint8_t)((codes[i] + 8) | (codes[i + 1] + 8) << 4);
  }
}

static void decode_linear4(float *out, const uint8_t *in, const uint8_t *scales, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = (float)((in[i / 2] >> i % 2 * 4 & 15) - 8) * hv_bf16_to(hv_load16(scales + i / HV_LINEAR_BLOCK * 2));
}

const hv_kern hv_kern_portable = {
    .name = "portable",
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
