#include "kern/coder.h"

const float *hv_coder_source(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t at, size_t n, float *scratch) {
  const uint8_t *bytes = src;
  if (dtype == HV_DTYPE_FLOAT32)
    return (const float *)src + at;
  if (dtype == HV_DTYPE_FLOAT16)
    kern->widen_f16(scratch, bytes + 2 * at, n);
  else if (dtype == HV_DTYPE_BFLOAT16)
    kern->widen_bf16(scratch, bytes + 2 * at, n);
  else
    kern->narrow_f64(scratch, bytes + 8 * at, n);
  return scratch;
}

/* A binary counter of subtrees: units join pairwise, whatever their number. */
hv_measure hv_coder_measure(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t count) {
  hv_measure tree[64], all = {0};
  float scratch[HV_UNIT];
  unsigned depth = 0;
  for (uint64_t at = 0, unit = 1; at < count; at += HV_UNIT, unit++) {
    size_t n = count - at < HV_UNIT ? (size_t)(count - at) : HV_UNIT;
    kern->measure(hv_coder_source(kern, dtype, src, at, n, scratch), n, &tree[depth]);
    all.low = at && all.low < tree[depth].low ? all.low : tree[depth].low;
    all.high = at && all.high > tree[depth].high ? all.high : tree[depth].high;
    for (uint64_t ones = unit; ones % 2 == 0; ones /= 2, depth--)
      tree[depth - 1].sum += tree[depth].sum, tree[depth - 1].square += tree[depth].square;
    depth++;
  }
  for (; depth > 1; depth--)
    tree[depth - 2].sum += tree[depth - 1].sum, tree[depth - 2].square += tree[depth - 1].square;
  if (depth)
    all.sum = tree[0].sum, all.square = tree[0].square;
  return all;
}
