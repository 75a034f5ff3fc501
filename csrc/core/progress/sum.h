/* The progress of many contributors in a few numbers: how many are in which epoch, with how many samples and at what speed.
 *
 * Room: core (uses tally, msg). Pure functions on values that the caller owns.
 * Thread: any.
 * Limits: HV_PARTS_MAX parts, one for each epoch. Beyond it the parts with the fewest owners count in the totals only, so honest
 * contributors do not disappear when a liar names many epochs.
 * Terms: a contributor is a program that trains. Its owner is the peer that signs its claims; one owner may have several (tally.h).
 * Rules: docs/design/progress.md, "Zones"; the bytes of a sum: zone_msg.h.
 */
#ifndef HV_CORE_SUM_H
#define HV_CORE_SUM_H

#include "core/msg.h"
#include "core/progress/tally.h"

#define HV_PARTS_MAX 6 /* of one sum */
#define HV_SUM_OWNERS_MAX (1 << 28)

/* The owners that are in one epoch, and the numbers of their contributors together. */
typedef struct hv_part {
  uint64_t epoch;
  uint32_t owners;
  uint32_t age_ms;      /* of these numbers, on average over owners */
  uint64_t samples;     /* in this epoch */
  uint64_t before;      /* samples with which they left the epoch before */
  uint64_t speed_milli; /* thousandths of a sample per second */
} hv_part;

/* All numbers are as of one moment; hv_sum_forward moves them to a later one. */
typedef struct hv_sum {
  hv_part parts[HV_PARTS_MAX];
  size_t n_parts;
  uint32_t owners, contributors, clients; /* totals, with those that are in no part */
} hv_sum;

/* Adds a part to the parts of a sum; the caller adds to the totals. If there is no room for its epoch, the part with the fewest
 * owners is dropped. */
void hv_sum_add_part(hv_sum *sum, const hv_part *part);
/* Adds a sum to a sum, in the same way. */
void hv_sum_add(hv_sum *sum, const hv_sum *other);
/* Extrapolates a sum by `us` at its speed. */
void hv_sum_forward(hv_sum *sum, uint64_t us);
/* Scales all parts down alike, to at most so many owners. */
void hv_sum_limit_owners(hv_sum *sum, uint32_t most);
/* Limits the samples and the speed of each part to these values times its owners. */
void hv_sum_limit_each(hv_sum *sum, double samples, double speed);

/* The age in ms of a sum's numbers, on average over owners. */
uint32_t hv_sum_age_ms(const hv_sum *sum);
/* The samples that count for an epoch: those of the owners that are in it, and those with which the owners that are one epoch
 * further left it. */
double hv_sum_samples(const hv_sum *sum, uint64_t epoch);
/* The samples per second of the owners in an epoch. */
double hv_sum_speed(const hv_sum *sum, uint64_t epoch);

/* A sum's progress on one scale, to compare sums of the same contributors: samples since the beginning of `epoch`, where each
 * further epoch of an owner counts as `share` samples. */
double hv_sum_place(const hv_sum *sum, uint64_t epoch, double share);

/* How long the owners in this epoch have been in it, in us: their samples divided by their speed, at most 10^18; 0: not known. */
uint64_t hv_sum_since_us(const hv_sum *sum, uint64_t epoch);
/* `epoch` began since_us ago. Parts of epochs before it whose numbers are older than that (age_ms) do not show that their owners
 * have begun `epoch`: this function assumes that they have. It moves these owners to `epoch`, with the samples that they make at
 * their speed in since_us. A part with newer numbers stays as it is. */
void hv_sum_carry(hv_sum *sum, uint64_t epoch, uint64_t since_us);

#endif
