/* The outcomes of rounds (contract in result.h). */
#include "core/epoch/result.h"

hv_epoch_outcome hv_epoch_outcome_of(hv_status status, const hv_average_outcome *outcome, size_t n_trainers) {
  if (status == HV_OK && n_trainers < 2)
    return HV_EPOCH_NOBODY;
  if (status == HV_OK)
    return outcome->stamp ? HV_EPOCH_CONFIRMED : HV_EPOCH_PARTED;
  if (status == HV_EXISTS)
    return HV_EPOCH_LEFT_OUT;
  return status == HV_TIMEOUT && !outcome->n_members ? HV_EPOCH_NOBODY : HV_EPOCH_FAILED;
}
