#include "kern/coder.h"

#include <float.h>
#include <math.h>

/* ---- UNIFORM8 ---- */

#define SIGMAS 6
#define SPREAD_MAX 0x1p127f /* of two tame values */

static void uniform_prepare(hv_encoder *e) {
  hv_measure all = hv_coder_measure(e->kern, e->dtype, e->src, e->count);
  double n = e->count ? (double)e->count : 1, exact = all.sum / n, variance = (all.square - all.sum * exact) / n;
  float mean = (float)exact, above = all.high - mean, below = mean - all.low;
  double reach = above > below ? above : below, spread = SIGMAS * sqrt(variance > 0 ? variance : 0);
  reach = spread < reach ? spread : reach;
  e->u.uniform.loop = (hv_uniform){.mean = mean};
  e->u.uniform.step = 0;
  if (reach >= 127 * (double)HV_TINY) {
    e->u.uniform.step = (float)(reach / 127);
    e->u.uniform.loop.inverse = (float)(127 / reach);
  }
}

static void uniform_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  (void)at;
  e->kern->encode_uniform(out, x, &e->u.uniform.loop, n);
}

static float uniform_end(const hv_encoder *e, uint64_t n, int64_t steps, int usual) {
  double k = n ? (double)steps / (256 * (double)n) : usual;
  return (float)((double)e->u.uniform.loop.mean + k * (double)e->u.uniform.step);
}

static void uniform_finish(hv_encoder *e) {
  const hv_uniform *u = &e->u.uniform.loop;
  hv_store_float(e->head, u->mean);
  hv_store_float(e->head + 4, e->u.uniform.step);
  hv_store_float(e->head + 8, uniform_end(e, u->n_low, u->low, -127));
  hv_store_float(e->head + 12, uniform_end(e, u->n_high, u->high, 127));
}

static int uniform_load(hv_decoder *d, const uint8_t *params) {
  hv_even *e = &d->u.even;
  *e = (hv_even){hv_load_float(params), hv_load_float(params + 4), hv_load_float(params + 8), hv_load_float(params + 12)};
  return hv_within(e->mean, HV_TAME) && e->step >= 0 && e->step <= SPREAD_MAX / 127 && hv_within(e->low, FLT_MAX) &&
         hv_within(e->high, FLT_MAX);
}

static void uniform_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_uniform(out, body, &d->u.even, n);
}

static double uniform_most(const hv_decoder *d) {
  const hv_even *e = &d->u.even;
  double ends = fmax(fabs((double)e->low), fabs((double)e->high));
  return fmax(ends, fabs((double)e->mean) + 129 * (double)e->step);
}

const hv_coder hv_coder_uniform8 = {.name = "uniform8",
                                    .bits = 8,
                                    .params = 16,
                                    .prepare = uniform_prepare,
                                    .encode = uniform_encode,
                                    .finish = uniform_finish,
                                    .load = uniform_load,
                                    .decode = uniform_decode,
                                    .most = uniform_most};

/* ---- BLOCKWISE8 ---- */

static void dynamic_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  float absmax = e->kern->absmax(x, n);
  absmax = absmax < HV_TINY ? 0 : absmax;
  hv_store_float(e->head + at / HV_UNIT * 4, absmax);
  if (absmax > 0)
    e->kern->encode_dynamic(out, x, 1 / absmax, n);
  else
    memset(out, 0, n);
}

static int dynamic_load(hv_decoder *d, const uint8_t *params) {
  (void)params;
  double ten = 1e-6;
  d->u.book[0] = 0;
  for (int steps = 1, m = 1; m < 128; steps *= 2, ten *= 10)
    for (; m < 2 * steps; m++) {
      float value = (float)(ten * (0.1 + 0.9 * (m - steps + 0.5) / steps));
      d->u.book[m] = value, d->u.book[m | 0x80] = -value;
    }
  d->u.book[0x80] = 1;
  return 1;
}

static int dynamic_scales_fit(const uint8_t *scales, size_t size) {
  for (size_t at = 0; at < size; at += 4)
    if (hv_load32(scales + at) > 0x7e800000) /* 2^126; with a sign or as NaN it is above that too */
      return 0;
  return 1;
}

static void dynamic_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_book(out, body, d->u.book, hv_load_float(d->scales), n);
}

const hv_coder hv_coder_blockwise8 = {.name = "blockwise8",
                                      .bits = 8,
                                      .block = HV_UNIT,
                                      .scale = 4,
                                      .encode = dynamic_encode,
                                      .load = dynamic_load,
                                      .scales_fit = dynamic_scales_fit,
                                      .decode = dynamic_decode};

/* ---- LINEAR8, LINEAR4 ---- */

static int linear_scales_fit(const uint8_t *scales, size_t size, uint16_t most) {
  for (size_t at = 0; at < size; at += 2)
    if ((hv_load16(scales + at) & 0x7fff) > most)
      return 0;
  return 1;
}

static void linear8_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  e->kern->encode_linear8(out, e->head + at / HV_LINEAR_BLOCK * 2, x, n);
}

static int linear8_scales_fit(const uint8_t *scales, size_t size) {
  return linear_scales_fit(scales, size, 0x7b00); /* 2^119 = 2^126 / 128 */
}

static void linear8_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_linear8(out, body, d->scales, n);
}

const hv_coder hv_coder_linear8 = {.name = "linear8",
                                   .bits = 8,
                                   .block = HV_LINEAR_BLOCK,
                                   .scale = 2,
                                   .encode = linear8_encode,
                                   .scales_fit = linear8_scales_fit,
                                   .decode = linear8_decode};

static void linear4_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  e->kern->encode_linear4(out, e->head + at / HV_LINEAR_BLOCK * 2, x, n);
}

static int linear4_scales_fit(const uint8_t *scales, size_t size) {
  return linear_scales_fit(scales, size, 0x7d00); /* 2^123 = 2^126 / 8 */
}

static void linear4_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_linear4(out, body, d->scales, n);
}

const hv_coder hv_coder_linear4 = {.name = "linear4",
                                   .bits = 4,
                                   .block = HV_LINEAR_BLOCK,
                                   .scale = 2,
                                   .encode = linear4_encode,
                                   .scales_fit = linear4_scales_fit,
                                   .decode = linear4_decode};
