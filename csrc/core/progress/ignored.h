/* The owners whose claims of an epoch are not believed for a while, because nobody had a state of that epoch.
 *
 * Room: core (uses tally). Pure functions on values that the caller owns.
 * Owner: a tracker.
 * Thread: any.
 * Limits: HV_IGNORED_MAX owners; one more takes the place of the one that ends first.
 * Errors: none.
 * Rules: docs/design/progress.md, "An epoch that nobody has".
 */
#ifndef HV_CORE_IGNORED_H
#define HV_CORE_IGNORED_H

#include "core/progress/tally.h"

#define HV_IGNORED_MAX 32
#define HV_IGNORED_MS_MAX 3600000 /* longest time */

typedef struct hv_ignored_owner {
  hv_peer_id owner;
  uint64_t epoch;    /* claims at or above it do not count */
  uint64_t until_us; /* 0: a free slot */
} hv_ignored_owner;

typedef struct hv_ignored {
  hv_ignored_owner each[HV_IGNORED_MAX];
} hv_ignored;

/* Claims of this owner at or above `epoch` do not count until until_us. A later call for the same owner takes the place of an
 * earlier one. */
void hv_ignored_add(hv_ignored *ignored, const hv_peer_id *owner, uint64_t epoch, uint64_t until_us);
/* True if a claim does not count at now_us: its owner is one of them, and it is at or above the ignored epoch or beyond `reached`,
 * the epoch of the contributor that counts (UINT64_MAX: it is in none). */
int hv_ignored_has(const hv_ignored *ignored, const hv_claim *claim, uint64_t reached, uint64_t now_us);

#endif
