/* Arithmetic on plain tensors: weighted sums, the finite check, norms, conversion, blending.
 *
 * Room: kern (uses dtype, cpu). Used by core (through the pool) and bind.
 * Owner: all buffers are the caller's and aligned as their elements are; two buffers are the same or do not overlap.
 * Thread: any; pure, nothing is allocated. Every set of kernels gives the same bits.
 * Errors: HV_INVALID for a dtype off the list.
 */
#ifndef HV_KERN_REDUCE_H
#define HV_KERN_REDUCE_H

#include "base/status.h"
#include "kern/cpu.h"
#include "kern/dtype.h"

/* acc[i] = acc[i] + weight * (float)src[i]: product and sum are rounded one after the other; float64 is rounded to float32 first.
 */
hv_status hv_reduce_accumulate(const hv_kern *kern, hv_dtype dtype, const void *src, float weight, float *acc, uint64_t count);

/* acc[i] = acc[i] * factor. */
void hv_reduce_scale(const hv_kern *kern, float *acc, float factor, uint64_t count);

/* *finite: 1 if no element is NaN or infinite. */
hv_status hv_reduce_finite(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t count, int *finite);

/* *within: 1 if every element is finite and, times the weight (0 or more), well within HV_CODEC_ADDEND_MAX (codec.h). It takes one
 * pass for float32 and float16. For other dtypes, and for values near the limit, 0 may be wrong; 1 never is. */
hv_status hv_reduce_within(const hv_kern *kern, hv_dtype dtype, const void *src, float weight, uint64_t count, int *within);

/* *sum: the sum of squares of (float)src[i], clamped to the finite range (TAME), in float64 with the fixed shape STATS of
 * docs/design/codecs.md.
 */
hv_status hv_reduce_square_sum(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t count, double *sum);

/* out[i] = src[i] in another dtype, through float32 unless both are float64: nearest-even; to float16 limited to +-65504, NaN kept
 * as NaN. */
hv_status hv_reduce_convert(const hv_kern *kern, hv_dtype from, const void *src, hv_dtype to, void *out, uint64_t count);

/* out[i] = out[i] + alpha * (to[i] - out[i]) in float64, rounded to out's dtype: nearest-even, to float16 limited to +-65504,
 * float16 and bfloat16 are rounded to float32 first. */
hv_status hv_reduce_blend(const hv_kern *kern, hv_dtype dtype, void *out, const float *to, double alpha, uint64_t count);

#endif
