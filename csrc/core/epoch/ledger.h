/* The places of all samples that a peer produces.
 *
 * Room: core (uses base). Pure.
 * Owner: the caller. Thread: one at a time.
 * Each sample is in one place: in the sums of the epoch that runs; in flight, in the round or step that ends an epoch; averaged, in
 * a step of the swarm; kept, in a step that this peer made by itself; or lost, by a cause. At any moment
 * produced = averaged + kept + sums + in_flight + lost.
 * A sample moves from the sums into flight, and from there on; a kept one moves again, when it is known whose replica the swarm's
 * is, and one in flight moves back into the sums if the epoch lasts, or if it is of a difference that no average has.
 */
#ifndef HV_CORE_EPOCH_LEDGER_H
#define HV_CORE_EPOCH_LEDGER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* How a round ended for this peer. */
// clang-format off
#define HV_EPOCH_OUTCOME_MAP(X)                                                                                                    \
  X(CONFIRMED) /* the group has one average, and this peer's samples are in it */                                                  \
  X(LEFT_OUT)  /* the others have an average without this peer */                                                                  \
  X(NOBODY)    /* no other peer came */                                                                                            \
  X(PARTED)    /* the group parted: others may have another average */                                                             \
  X(FAILED)    /* there is no average */

#define HV_EPOCH_LOSS_MAP(X)                                                                                                       \
  X(BEHIND, "this peer loads the swarm's state")                                                                                   \
  X(OVERFLOW, "a gradient overflowed")                                                                                             \
  X(NOT_FINITE, "the gradient of this peer is not finite")                                                                         \
  X(CUT, "a peer counts with target_batch_size at most")                                                                           \
  X(LATE, "a part of this peer's values did not reach the average")                                                                \
  X(LEFT_OUT, "the others made this step without this peer")                                                                       \
  X(REPLACED, "they belong to a state that is not the swarm's")                                                                    \
  X(RESTORED, "a checkpoint took the place of their state")                                                                        \
  X(GIVEN_UP, "another replica is the swarm's")                                                                                    \
  X(DROPPED, "a state was loaded before the round with them was over")                                                             \
  X(BROKEN, "the step with them failed")
// clang-format on

typedef enum hv_epoch_outcome {
#define HV_EPOCH_OUTCOME_ENUM(name) HV_EPOCH_##name,
  HV_EPOCH_OUTCOME_MAP(HV_EPOCH_OUTCOME_ENUM)
#undef HV_EPOCH_OUTCOME_ENUM
      HV_EPOCH_OUTCOMES
} hv_epoch_outcome;

/* Why samples count for nothing. */
typedef enum hv_epoch_loss {
#define HV_EPOCH_LOSS_ENUM(name, text) HV_EPOCH_LOSS_##name,
  HV_EPOCH_LOSS_MAP(HV_EPOCH_LOSS_ENUM)
#undef HV_EPOCH_LOSS_ENUM
      HV_EPOCH_LOSSES
} hv_epoch_loss;

/* "CONFIRMED"; "LATE". */
const char *hv_epoch_outcome_name(hv_epoch_outcome outcome);
const char *hv_epoch_loss_name(hv_epoch_loss loss);
/* The end of a sentence: "16 samples lost: ...". */
const char *hv_epoch_loss_text(hv_epoch_loss loss);

/* Numbers of samples. Zeros: a new one. */
typedef struct hv_epoch_ledger {
  uint64_t produced;
  uint64_t averaged, kept, sums, in_flight, lost;
  uint64_t lost_by[HV_EPOCH_LOSSES];
} hv_epoch_ledger;

/* True if each sample is in one place, and each lost one has a cause. Each function below leaves it so. */
int hv_epoch_ledger_holds(const hv_epoch_ledger *ledger);
/* Samples that are not lost: averaged, kept, in the sums, or in flight. */
uint64_t hv_epoch_ledger_held(const hv_epoch_ledger *ledger);

/* ---- batches: each returns the number of samples that it lost ---- */

/* A batch is in the sums. */
void hv_epoch_ledger_counted(hv_epoch_ledger *ledger, uint64_t samples);
/* A batch counts for nothing, because this peer is about to load a state. */
uint64_t hv_epoch_ledger_behind(hv_epoch_ledger *ledger, uint64_t samples);
/* A gradient overflowed: the batch counts for nothing. summed: samples of the sums that are lost with it, because it was added to
 * them. More than there are: all. */
uint64_t hv_epoch_ledger_overflow(hv_epoch_ledger *ledger, uint64_t samples, uint64_t summed);
/* Another state takes the place of the one that the sums belong to. */
uint64_t hv_epoch_ledger_replaced(hv_epoch_ledger *ledger);
/* The program has restored a checkpoint: the sums are of the state before. */
uint64_t hv_epoch_ledger_restored(hv_epoch_ledger *ledger);

/* ---- an epoch's end: each but the first returns the number of samples that it lost ---- */

/* The epoch ends: the sums are in flight, with whatever an end that was broken off left there. Returns how many are. */
uint64_t hv_epoch_ledger_taken(hv_epoch_ledger *ledger);
/* The gradient in flight is not finite, so nobody gets it. */
uint64_t hv_epoch_ledger_not_finite(hv_epoch_ledger *ledger);
/* A peer counts with `most` samples at most. */
uint64_t hv_epoch_ledger_cut(hv_epoch_ledger *ledger, uint64_t most);
/* The round is over. share: the part of this peer's values that is in a CONFIRMED average, from 0 to 1. After NOBODY, PARTED and
 * FAILED the samples stay in flight, for a step of this peer's own. */
uint64_t hv_epoch_ledger_over(hv_epoch_ledger *ledger, hv_epoch_outcome outcome, double share);
/* For differences, which have what no anchor has (docs/design/local-steps.md). The round is CONFIRMED: the part that is not in the
 * average is in the sums again. */
void hv_epoch_ledger_shared(hv_epoch_ledger *ledger, double share);
/* The epoch lasts, after a round without an average: all in flight is in the sums again. */
void hv_epoch_ledger_returned(hv_epoch_ledger *ledger);
/* A load dropped what was in flight. After a round that is over and was stepped with nothing is in flight, and this does nothing.
 */
uint64_t hv_epoch_ledger_dropped(hv_epoch_ledger *ledger);
/* The work with what was in flight ended with an error. */
uint64_t hv_epoch_ledger_broken(hv_epoch_ledger *ledger);

/* ---- steps that this peer makes by itself ---- */

/* It has stepped with what is in flight: alone, or after a round without an average. Its replica's mark says so (lineage.h).
 * Returns the number of samples. */
uint64_t hv_epoch_ledger_stepped(hv_epoch_ledger *ledger);
/* The replica with these steps is the swarm's. */
void hv_epoch_ledger_kept_settled(hv_epoch_ledger *ledger);
/* Another replica is the swarm's, and takes the place of the one with these steps. Returns the number of samples lost. */
uint64_t hv_epoch_ledger_kept_given_up(hv_epoch_ledger *ledger);

#endif
