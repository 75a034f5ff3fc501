#include "core/progress/ignored.h"

static const hv_ignored_owner *known_owner(const hv_ignored *ignored, const hv_peer_id *owner) {
  for (size_t i = 0; i < HV_IGNORED_MAX; i++)
    if (ignored->each[i].until_us && hv_peer_equal(&ignored->each[i].owner, owner))
      return &ignored->each[i];
  return NULL;
}

static hv_ignored_owner *first_to_end(hv_ignored *ignored) {
  hv_ignored_owner *first = &ignored->each[0];
  for (size_t i = 1; i < HV_IGNORED_MAX; i++)
    if (ignored->each[i].until_us < first->until_us)
      first = &ignored->each[i];
  return first;
}

void hv_ignored_add(hv_ignored *ignored, const hv_peer_id *owner, uint64_t epoch, uint64_t until_us) {
  const hv_ignored_owner *known = known_owner(ignored, owner);
  hv_ignored_owner *slot = known ? &ignored->each[known - ignored->each] : first_to_end(ignored);
  *slot = (hv_ignored_owner){.owner = *owner, .epoch = epoch, .until_us = until_us};
}

int hv_ignored_has(const hv_ignored *ignored, const hv_claim *claim, uint64_t reached, uint64_t now_us) {
  const hv_ignored_owner *known = known_owner(ignored, &claim->owner);
  uint64_t epoch = claim->report.epoch;
  return known && now_us < known->until_us && (epoch >= known->epoch || epoch > reached);
}
