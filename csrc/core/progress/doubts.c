#include "core/progress/doubts.h"

static const hv_doubt *doubt_of(const hv_doubts *doubts, const hv_peer_id *owner) {
  for (size_t i = 0; i < HV_DOUBTS_MAX; i++)
    if (doubts->each[i].until_us && hv_peer_equal(&doubts->each[i].owner, owner))
      return &doubts->each[i];
  return NULL;
}

static hv_doubt *first_to_end(hv_doubts *doubts) {
  hv_doubt *first = &doubts->each[0];
  for (size_t i = 1; i < HV_DOUBTS_MAX; i++)
    if (doubts->each[i].until_us < first->until_us)
      first = &doubts->each[i];
  return first;
}

void hv_doubts_add(hv_doubts *doubts, const hv_peer_id *owner, uint64_t epoch, uint64_t until_us) {
  const hv_doubt *known = doubt_of(doubts, owner);
  hv_doubt *slot = known ? &doubts->each[known - doubts->each] : first_to_end(doubts);
  *slot = (hv_doubt){.owner = *owner, .epoch = epoch, .until_us = until_us};
}

int hv_doubts_hold(const hv_doubts *doubts, const hv_claim *claim, uint64_t reached, uint64_t now_us) {
  const hv_doubt *doubt = doubt_of(doubts, &claim->owner);
  uint64_t epoch = claim->report.epoch;
  return doubt && now_us < doubt->until_us && (epoch >= doubt->epoch || epoch > reached);
}
