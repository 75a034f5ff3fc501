#include "kern/reduce.h"

#include "kern/coder.h"

static size_t reduce_next(uint64_t left) {
  return left < HV_UNIT ? (size_t)left : HV_UNIT;
}

hv_status hv_reduce_accumulate(const hv_kern *kern, hv_dtype dtype, const void *src, float weight, float *acc, uint64_t count) {
  float scratch[HV_UNIT];
  if (!hv_dtype_size((int)dtype))
    return HV_INVALID;
  unsigned mode = hv_mode_ours();
  for (uint64_t at = 0; at < count; at += HV_UNIT) {
    size_t n = reduce_next(count - at);
    kern->add(acc + at, (const uint8_t *)hv_coder_source(kern, dtype, src, at, n, scratch), weight, n);
  }
  hv_mode_theirs(mode);
  return HV_OK;
}

void hv_reduce_scale(const hv_kern *kern, float *acc, float factor, uint64_t count) {
  unsigned mode = hv_mode_ours();
  kern->scale(acc, factor, (size_t)count);
  hv_mode_theirs(mode);
}

hv_status hv_reduce_finite(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t count, int *finite) {
  const uint8_t *bytes = src;
  size_t size = hv_dtype_size((int)dtype);
  if (!size)
    return HV_INVALID;
  *finite = 1;
  for (uint64_t at = 0; at < count && *finite; at += HV_UNIT) {
    const uint8_t *in = bytes + at * size;
    size_t n = reduce_next(count - at);
    if (dtype == HV_DTYPE_FLOAT32)
      *finite = kern->finite_f32(in, HV_INFINITE, n);
    else if (dtype == HV_DTYPE_FLOAT64)
      *finite = kern->finite_f64(in, n);
    else
      *finite = kern->finite_16(in, dtype == HV_DTYPE_FLOAT16 ? 0x7c00 : 0x7f80, n);
  }
  return HV_OK;
}

hv_status hv_reduce_within(const hv_kern *kern, hv_dtype dtype, const void *src, float weight, uint64_t count, int *within) {
  if (!hv_dtype_size((int)dtype))
    return HV_INVALID;
  *within = 0;
  if (dtype == HV_DTYPE_FLOAT32)
    *within = kern->finite_f32(src, hv_codec_infinity(weight), (size_t)count);
  else if (dtype == HV_DTYPE_FLOAT16 && weight <= 0x1p100f)
    *within = kern->finite_16(src, 0x7c00, (size_t)count);
  return HV_OK;
}

hv_status hv_reduce_square_sum(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t count, double *sum) {
  if (!hv_dtype_size((int)dtype))
    return HV_INVALID;
  unsigned mode = hv_mode_ours();
  *sum = hv_coder_measure(kern, dtype, src, count).square;
  hv_mode_theirs(mode);
  return HV_OK;
}

static void convert(const hv_kern *kern, hv_dtype from, const void *src, hv_dtype to, uint8_t *out, uint64_t at, size_t n,
                    float *scratch) {
  const float *values = hv_coder_source(kern, from, src, at, n, scratch);
  uint8_t *here = out + at * hv_dtype_size((int)to);
  if (to == HV_DTYPE_FLOAT16)
    kern->narrow_f16(here, values, n);
  else if (to == HV_DTYPE_BFLOAT16)
    kern->narrow_bf16(here, values, n);
  else if (to == HV_DTYPE_FLOAT64)
    kern->widen_f64(here, values, n);
  else
    memmove(here, values, 4 * n);
}

hv_status hv_reduce_convert(const hv_kern *kern, hv_dtype from, const void *src, hv_dtype to, void *out, uint64_t count) {
  float scratch[HV_UNIT];
  if (!hv_dtype_size((int)from) || !hv_dtype_size((int)to))
    return HV_INVALID;
  if (from == to) {
    memmove(out, src, (size_t)count * hv_dtype_size((int)to));
    return HV_OK;
  }
  unsigned mode = hv_mode_ours();
  for (uint64_t at = 0; at < count; at += HV_UNIT)
    convert(kern, from, src, to, out, at, reduce_next(count - at), scratch);
  hv_mode_theirs(mode);
  return HV_OK;
}

static void blend_f32(float *out, const float *to, double alpha, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = (float)((double)out[i] + alpha * ((double)to[i] - (double)out[i]));
}

static void blend_f64(double *out, const float *to, double alpha, size_t n) {
  for (size_t i = 0; i < n; i++)
    out[i] = out[i] + alpha * ((double)to[i] - out[i]);
}

hv_status hv_reduce_blend(const hv_kern *kern, hv_dtype dtype, void *out, const float *to, double alpha, uint64_t count) {
  float scratch[HV_UNIT], values[HV_UNIT];
  if (!hv_dtype_size((int)dtype))
    return HV_INVALID;
  unsigned mode = hv_mode_ours();
  for (uint64_t at = 0; at < count; at += HV_UNIT) {
    size_t n = reduce_next(count - at);
    if (dtype == HV_DTYPE_FLOAT32) {
      blend_f32((float *)out + at, to + at, alpha, n);
    } else if (dtype == HV_DTYPE_FLOAT64) {
      blend_f64((double *)out + at, to + at, alpha, n);
    } else {
      memcpy(values, hv_coder_source(kern, dtype, out, at, n, scratch), n * sizeof *values);
      blend_f32(values, to + at, alpha, n);
      convert(kern, HV_DTYPE_FLOAT32, values, dtype, (uint8_t *)out + at * 2, 0, n, scratch);
    }
  }
  hv_mode_theirs(mode);
  return HV_OK;
}
