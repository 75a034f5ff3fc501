/* A peer without a replica, such as a hub: a small machine beside the trainer's. It goes where the others are, and to their rounds.
 *
 * Private to core/epoch, as epoch_inner.h. It shares with a trainer how it first looks for the swarm, what ends a run, and the
 * orders; it has no samples, no late lane and no state to offer.
 * Moves: LOOKING -> GATHERING, where it follows -> ENDING, in its rounds -> GATHERING.
 * Rules: 5 to 7, 15 and 19 in docs/design/epoch.md, where they name a peer without a replica.
 */
#ifndef HV_CORE_EPOCH_EPOCH_FOLLOWER_H
#define HV_CORE_EPOCH_EPOCH_FOLLOWER_H

#include "core/epoch/epoch_inner.h"

/* Time for a look at the run: whether it follows, seeks, or goes to its rounds. */
void follower_looks_around(hv_epoch *self, const epoch_event *e);
/* The hands have prepared the rounds. */
void follower_is_prepared(hv_epoch *self, const epoch_event *e);
void follower_round_is_over(hv_epoch *self, const epoch_event *e);
/* After each event: rounds that the others are past, and groups to which nobody comes. */
void follower_leaves_rounds(hv_epoch *self, const epoch_event *e);

#endif
