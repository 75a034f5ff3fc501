/* Tensors to try codecs on: ordinary ones and nasty ones, in every dtype. Seeded: the same on every machine. */
#ifndef HV_TESTS_VALUES_H
#define HV_TESTS_VALUES_H

#include "kern/codec.h"
#include "kern/reduce.h"
#include "lib/check.h"

typedef enum values_kind {
  VALUES_NORMAL, /* as gradients: normal, scale 1e-3, mean off zero */
  VALUES_HEAVY,  /* a normal over a uniform: tails as 1/x^2 */
  VALUES_SPARSE, /* nine of ten exactly zero */
  VALUES_FEW,    /* -1, 0, 2 */
  VALUES_EQUAL,  /* all 0.1 */
  VALUES_ZERO,
  VALUES_TINY,               /* denormal float32 */
  VALUES_HUGE,               /* up to 2^126 */
  VALUES_SPIKE,              /* one large among small */
  VALUES_TAME,               /* all above are finite and within 2^126 */
  VALUES_WILD = VALUES_TAME, /* any bits: NaN, infinities */
  VALUES_KINDS
} values_kind;

const char *values_name(values_kind kind);

/* Fills n float32, as float32 has them. */
void values_fill(float *out, size_t n, values_kind kind, uint64_t seed);

/* The same in dtype; and what they are in float32 again (back may be NULL). */
void values_as(hv_dtype dtype, const float *in, size_t n, void *out, float *back);

#endif
