#include "lib/values.h"

#include <math.h>
#include <string.h>

const char *values_name(values_kind kind) {
  static const char *const names[] = {"normal", "heavy", "sparse", "few", "equal", "zero", "tiny", "huge", "spike", "wild"};
  return names[kind];
}

static float one(values_kind kind, size_t i, check_rng *rng) {
  double z = check_normal(rng), u = check_uniform(rng);
  uint32_t bits = (uint32_t)check_random(rng);
  float wild;
  memcpy(&wild, &bits, 4);
  switch (kind) {
  case VALUES_NORMAL:
    return (float)(1e-3 * (z + 0.1));
  case VALUES_HEAVY:
    return (float)(z / (u + 1e-4));
  case VALUES_SPARSE:
    return u < 0.9 ? 0 : (float)z;
  case VALUES_FEW:
    return u < 0.3 ? -1 : u < 0.6 ? 0 : 2;
  case VALUES_EQUAL:
    return 0.1f;
  case VALUES_ZERO:
    return bits & 1 ? 0.0f : -0.0f;
  case VALUES_TINY:
    return (float)(z * 1e-40);
  case VALUES_HUGE:
    return bits & 1 ? 0x1p126f : (float)(0x1p126 * (2 * u - 1));
  case VALUES_SPIKE:
    return i == 1 ? 1e6f : (float)z;
  default:
    return bits % 7 == 0 ? NAN : bits % 7 == 1 ? INFINITY : bits % 7 == 2 ? -INFINITY : wild;
  }
}

void values_fill(float *out, size_t n, values_kind kind, uint64_t seed) {
  check_rng rng = {seed * 1000 + (uint64_t)kind};
  for (size_t i = 0; i < n; i++)
    out[i] = one(kind, i, &rng);
}

void values_as(hv_dtype dtype, const float *in, size_t n, void *out, float *back) {
  const hv_kern *kern = hv_cpu_kern(HV_CPU_PORTABLE);
  assert_int_equal(hv_reduce_convert(kern, HV_DTYPE_FLOAT32, in, dtype, out, n), HV_OK);
  if (back)
    assert_int_equal(hv_reduce_convert(kern, dtype, out, HV_DTYPE_FLOAT32, back, n), HV_OK);
}
