/* The largest L2 norm that a chunk of a contribution may have in one round.
 *
 * Room: core (uses run). Used by average, which measures, and by reducer, which judges.
 * Thread: any.
 * Limits: HV_NORM_*. A smaller group has no limit, because one liar could set its median.
 * Rules: docs/design/round.md, "Large norms".
 */
#ifndef HV_CORE_NORM_H
#define HV_CORE_NORM_H

#include "core/round/run.h"

#define HV_NORM_MEMBERS 4 /* fewest contributors of a group that has a limit */
#define HV_NORM_STATED 3  /* fewest of them that must be there */

/* True if a member may state this norm: finite and not negative. */
int hv_norm_is_valid(float norm);

/* ratio times the upper median of the norms that n contributors state; their order changes. 0: no limit, because ratio or the
 * median is 0, or n is below HV_NORM_STATED. */
float hv_norm_most(float ratio, float *norms, size_t n);

/* *norm: the largest L2 norm of a chunk of the run, as a contributor states it; 0 for a layout alone. A chunk with values that are
 * not finite does not count, because it is not sent. HV_IO, HV_NOMEM. */
hv_status hv_norm_measure(const hv_run *run, const hv_kern *kern, float *norm);

#endif
