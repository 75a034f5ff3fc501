/* The outer optimizer of local steps: SGD, with momentum or Nesterov's, on an anchor in float32.
 *
 * Room: core (uses base). Pure.
 * Owner: the caller, of all buffers; no two of them overlap.
 * Thread: any, which has not been told to flush subnormal numbers to zero.
 * Errors: below. A step that is refused has changed nothing.
 * Rules: docs/design/local-steps.md, "The outer step". Each value is stepped by itself, and each operation is rounded by itself:
 * all processors make the same bits.
 */
#ifndef HV_CORE_OUTER_H
#define HV_CORE_OUTER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct hv_outer_rule {
  float rate;     /* finite */
  float momentum; /* finite, 0 or more */
  int nesterov;   /* 1: with momentum above 0 */
} hv_outer_rule;

typedef struct hv_outer_tensor {
  float *anchor, *momentum; /* momentum: NULL where that of the rule is 0 */
  const float *difference;  /* the average of anchor minus local */
  uint64_t n;
  int begins; /* 1: it has no momentum yet, and what the memory holds counts for nothing */
} hv_outer_tensor;

/* HV_INVALID: err names what is wrong. */
hv_status hv_outer_check(const hv_outer_rule *rule, hv_error *err);
/* Steps all tensors by a checked rule. HV_NOT_FINITE: a value would not be finite (err says of which tensor). */
hv_status hv_outer_step(const hv_outer_rule *rule, const hv_outer_tensor *tensors, size_t n, hv_error *err);

#endif
