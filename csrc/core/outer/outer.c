#include "core/outer/outer.h"

#include <math.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "rounding is part of the contract"
#endif

enum { BLOCK = 512 }; /* values that are stepped at once, in the cache */

/* Values of a tensor after the step. */
typedef struct block {
  float anchor[BLOCK], momentum[BLOCK];
} block;

static void compute(const hv_outer_rule *rule, const hv_outer_tensor *t, uint64_t at, size_t n, block *out) {
  const float rate = rule->rate, mu = rule->momentum, *difference = t->difference + at, *anchor = t->anchor + at;
  if (mu == 0 || t->begins)
    memcpy(out->momentum, difference, n * sizeof *difference);
  else
    for (size_t i = 0; i < n; i++)
      out->momentum[i] = t->momentum[at + i] * mu + difference[i];
  if (rule->nesterov)
    for (size_t i = 0; i < n; i++)
      out->anchor[i] = anchor[i] - rate * (difference[i] + out->momentum[i] * mu);
  else
    for (size_t i = 0; i < n; i++)
      out->anchor[i] = anchor[i] - rate * out->momentum[i];
}

/* 1: a NaN or an infinity. By its bits, so that a loop of it becomes one of vectors. */
static inline uint32_t is_odd(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & 0x7f800000u) == 0x7f800000u;
}

static int is_finite(const block *b, size_t n) {
  uint32_t odd = 0;
  for (size_t i = 0; i < n; i++)
    odd |= is_odd(b->anchor[i]) | is_odd(b->momentum[i]);
  return !odd;
}

static size_t block_at(const hv_outer_tensor *t, uint64_t at) {
  return t->n - at < BLOCK ? (size_t)(t->n - at) : BLOCK;
}

static int can_step(const hv_outer_rule *rule, const hv_outer_tensor *t) {
  block b;
  for (uint64_t at = 0; at < t->n; at += BLOCK) {
    compute(rule, t, at, block_at(t, at), &b);
    if (!is_finite(&b, block_at(t, at)))
      return 0;
  }
  return 1;
}

static void steps(const hv_outer_rule *rule, const hv_outer_tensor *t) {
  block b;
  for (uint64_t at = 0; at < t->n; at += BLOCK) {
    size_t n = block_at(t, at);
    compute(rule, t, at, n, &b);
    memcpy(t->anchor + at, b.anchor, n * sizeof *b.anchor);
    if (rule->momentum != 0)
      memcpy(t->momentum + at, b.momentum, n * sizeof *b.momentum);
  }
}

hv_status hv_outer_check(const hv_outer_rule *rule, hv_error *err) {
  if (!isfinite(rule->rate))
    return hv_fail(err, HV_INVALID, "the outer rate must be finite, not %g", (double)rule->rate);
  if (!isfinite(rule->momentum) || rule->momentum < 0)
    return hv_fail(err, HV_INVALID, "the outer momentum must be finite and 0 or more, not %g", (double)rule->momentum);
  if (rule->nesterov && rule->momentum == 0)
    return hv_fail(err, HV_INVALID, "nesterov needs an outer momentum above 0");
  return HV_OK;
}

hv_status hv_outer_step(const hv_outer_rule *rule, const hv_outer_tensor *tensors, size_t n, hv_error *err) {
  for (size_t i = 0; i < n; i++)
    if (!can_step(rule, &tensors[i]))
      return hv_fail(err, HV_NOT_FINITE,
                     "the outer step is refused: values of parameter %zu would not be finite; lower the outer rate, or load a "
                     "checkpoint",
                     i);
  for (size_t i = 0; i < n; i++)
    steps(rule, &tensors[i]);
  return HV_OK;
}
