/* The owners whose claims of an epoch are not believed for a while, because nobody had a state of that epoch.
 *
 * Room: core (uses tally). Pure functions on values that the caller owns.
 * Owner: a tracker.
 * Thread: any.
 * Limits: HV_DOUBTS_MAX owners; one more takes the place of the doubt that ends first.
 * Errors: none.
 * Rules: docs/design/progress.md, "An epoch that nobody has".
 */
#ifndef HV_CORE_DOUBTS_H
#define HV_CORE_DOUBTS_H

#include "core/progress/tally.h"

#define HV_DOUBTS_MAX 32
#define HV_DOUBTS_MS_MAX 3600000 /* longest doubt */

typedef struct hv_doubt {
  hv_peer_id owner;
  uint64_t epoch;    /* claims at or above it do not count */
  uint64_t until_us; /* 0: a free slot */
} hv_doubt;

typedef struct hv_doubts {
  hv_doubt each[HV_DOUBTS_MAX];
} hv_doubts;

/* Claims of this owner at or above `epoch` do not count until until_us. A later call for the same owner takes the place of an
 * earlier one. */
void hv_doubts_add(hv_doubts *doubts, const hv_peer_id *owner, uint64_t epoch, uint64_t until_us);
/* True if a claim does not count at now_us: its owner is doubted, and it is at or above the doubted epoch or beyond `reached`, the
 * epoch of the contributor that counts (UINT64_MAX: it is in none). */
int hv_doubts_hold(const hv_doubts *doubts, const hv_claim *claim, uint64_t reached, uint64_t now_us);

#endif
