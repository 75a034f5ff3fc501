#include "kern/coder.h"

#include <math.h>

static void no_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  (void)x;
  size_t size = hv_dtype_size(e->dtype);
  memcpy(out, (const uint8_t *)e->src + at * size, n * size);
}

static void no_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  if (d->dtype == HV_DTYPE_FLOAT32)
    memcpy(out, body, 4 * n);
  else if (d->dtype == HV_DTYPE_FLOAT16)
    d->kern->widen_f16(out, body, n);
  else if (d->dtype == HV_DTYPE_BFLOAT16)
    d->kern->widen_bf16(out, body, n);
  else
    d->kern->narrow_f64(out, body, n);
}

static int no_finite(const hv_decoder *d, const uint8_t *body, size_t size) {
  if (d->dtype == HV_DTYPE_FLOAT32)
    return d->kern->finite_f32(body, d->infinity, size / 4);
  if (d->dtype == HV_DTYPE_FLOAT64)
    return d->kern->finite_f64(body, size / 8);
  return d->kern->finite_16(body, d->dtype == HV_DTYPE_FLOAT16 ? 0x7c00 : 0x7f80, size / 2);
}

const hv_coder hv_coder_none = {.name = "none", .encode = no_encode, .finite = no_finite, .decode = no_decode};

static void f16_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  (void)at;
  e->kern->narrow_f16(out, x, n);
}

static void f16_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->widen_f16(out, body, n);
}

static int f16_finite(const hv_decoder *d, const uint8_t *body, size_t size) {
  return d->kern->finite_16(body, 0x7c00, size / 2);
}

static double f16_most(const hv_decoder *d) {
  (void)d;
  return 65504;
}

const hv_coder hv_coder_float16 = {
    .name = "float16", .bits = 16, .encode = f16_encode, .finite = f16_finite, .decode = f16_decode, .most = f16_most};

static void bf16_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  (void)at;
  e->kern->narrow_bf16(out, x, n);
}

static void bf16_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->widen_bf16(out, body, n);
}

static int bf16_finite(const hv_decoder *d, const uint8_t *body, size_t size) {
  return d->kern->finite_16(body, 0x7f80, size / 2);
}

const hv_coder hv_coder_bfloat16 = {
    .name = "bfloat16", .bits = 16, .encode = bf16_encode, .finite = bf16_finite, .decode = bf16_decode};

#define STD_MAX 0x1p110f /* 65504 of these and a mean are still far from the largest float */

/* Writes mean and std of n elements from `at` on. */
static void mean_and_std(const hv_encoder *e, uint64_t at, uint64_t n_elements, uint8_t *out) {
  const uint8_t *from = (const uint8_t *)e->src + at * hv_dtype_size((int)e->dtype);
  hv_measure all = hv_coder_measure(e->kern, e->dtype, from, n_elements);
  double n = n_elements ? (double)n_elements : 1, mean = all.sum / n, variance = (all.square - all.sum * mean) / n;
  float std = (float)sqrt(variance > 0 ? variance : 0);
  std = std < HV_TINY ? 0 : std > STD_MAX ? STD_MAX : std;
  hv_store_float(out, (float)mean);
  hv_store_float(out + 4, std);
}

static float inverse_of(float std) {
  return std > 0 ? 1 / std : 0;
}

/* True if an encoder could have written this mean and std. */
static int scale_fits(const uint8_t *scale) {
  float std = hv_load_float(scale + 4);
  return hv_within(hv_load_float(scale), HV_TAME) && std >= 0 && std <= STD_MAX;
}

static void scaled_prepare(hv_encoder *e) {
  mean_and_std(e, 0, e->count, e->head);
  e->u.scaled.mean = hv_load_float(e->head);
  e->u.scaled.inverse = inverse_of(hv_load_float(e->head + 4));
}

static void scaled_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  (void)at;
  if (e->u.scaled.inverse > 0)
    e->kern->encode_scaled(out, x, e->u.scaled.mean, e->u.scaled.inverse, n);
  else
    memset(out, 0, 2 * n);
}

static int scaled_load(hv_decoder *d, const uint8_t *params) {
  d->u.scaled.mean = hv_load_float(params);
  d->u.scaled.std = hv_load_float(params + 4);
  return scale_fits(params);
}

static void scaled_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_scaled(out, body, d->u.scaled.std, d->u.scaled.mean, n);
}

static double scaled_most(const hv_decoder *d) {
  return fabs((double)d->u.scaled.mean) + 65505 * (double)d->u.scaled.std;
}

const hv_coder hv_coder_scaled_float16 = {.name = "scaled_float16",
                                          .bits = 16,
                                          .params = 8,
                                          .prepare = scaled_prepare,
                                          .encode = scaled_encode,
                                          .load = scaled_load,
                                          .finite = f16_finite,
                                          .decode = scaled_decode,
                                          .most = scaled_most};

/* ---- SCALED_ROWS ---- */

enum { ROW_PARAMS = 16, ROW_SCALE = 8 };

static void rows_prepare(hv_encoder *e) {
  uint8_t *scale = e->head + ROW_PARAMS;
  hv_store64(e->head, e->rows.width);
  hv_store64(e->head + 8, e->rows.first);
  for (uint64_t at = 0; at < e->count; scale += ROW_SCALE) {
    uint64_t left = hv_rows_left(e->rows, at), n = left < e->count - at ? left : e->count - at;
    mean_and_std(e, at, n, scale);
    at += n;
  }
}

static void rows_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  const uint8_t *scale = e->head + ROW_PARAMS + ROW_SCALE * hv_rows_at(e->rows, at);
  for (size_t done = 0; done < n; scale += ROW_SCALE) {
    uint64_t left = hv_rows_left(e->rows, at + done);
    size_t some = left < n - done ? (size_t)left : n - done;
    e->kern->encode_scaled(out + 2 * done, x + done, hv_load_float(scale), inverse_of(hv_load_float(scale + 4)), some);
    done += some;
  }
}

static int rows_load(hv_decoder *d, const uint8_t *params) {
  d->rows = hv_rows_load(params);
  return hv_rows_fit(d->rows);
}

static int rows_scales_fit(const uint8_t *scales, size_t size) {
  int fit = 1;
  for (size_t i = 0; i < size; i += ROW_SCALE)
    fit &= scale_fits(scales + i);
  return fit;
}

static void rows_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  const uint8_t *scale = d->scales;
  for (size_t done = 0; done < n; scale += ROW_SCALE) {
    uint64_t left = hv_rows_left(d->rows, d->at + done);
    size_t some = left < n - done ? (size_t)left : n - done;
    d->kern->decode_scaled(out + done, body + 2 * done, hv_load_float(scale + 4), hv_load_float(scale), some);
    done += some;
  }
}

const hv_coder hv_coder_scaled_rows = {.name = "scaled_rows",
                                       .bits = 16,
                                       .params = ROW_PARAMS,
                                       .scale = ROW_SCALE,
                                       .by_row = 1,
                                       .prepare = rows_prepare,
                                       .encode = rows_encode,
                                       .load = rows_load,
                                       .scales_fit = rows_scales_fit,
                                       .finite = f16_finite,
                                       .decode = rows_decode};
