/* How a status of `average` becomes one of the five outcomes of a round. No other place of core/epoch reads such a status.
 *
 * Room: core (uses average). Thread: any.
 */
#ifndef HV_CORE_EPOCH_RESULT_H
#define HV_CORE_EPOCH_RESULT_H

#include "core/average/average.h"
#include "core/epoch/ledger.h"

/* n_trainers: members with a replica, this peer among them. A hub is no company: what it gives back is this peer's own. */
hv_epoch_outcome hv_epoch_outcome_of(hv_status status, const hv_average_outcome *outcome, size_t n_trainers);

#endif
