/* What do many contributors together say? Their count in a few numbers, which travel, are added up, and are judged by tally.h's
 * rule.
 *
 * Room: core (uses tally, msg). Pure values; any thread. How it travels: words.h.
 * A sum has a part for each epoch that its contributors are in; of more than HV_PARTS_MAX the ones with fewest owners are left out
 * and count in the totals only: nobody makes honest ones disappear by naming many epochs. All numbers are as of when it is said.
 */
#ifndef HV_CORE_SUM_H
#define HV_CORE_SUM_H

#include "core/msg.h"
#include "core/progress/tally.h"

#define HV_PARTS_MAX 6 /* of one sum */
#define HV_SUM_OWNERS_MAX (1 << 28)

/* Those contributors that are in one epoch. */
typedef struct hv_part {
  uint64_t epoch;
  uint32_t owners;
  uint32_t age_ms;      /* of what is in it, on average over owners */
  uint64_t samples;     /* in this epoch */
  uint64_t before;      /* in the one before it, when it was left */
  uint64_t speed_milli; /* thousandths of a sample per second */
} hv_part;

typedef struct hv_sum {
  hv_part parts[HV_PARTS_MAX];
  size_t n_parts;
  uint32_t owners, contributors, clients; /* of all, those that are in no part too */
} hv_sum;

/* Adds a part, or a sum. What does not fit is left out as above. */
void hv_sum_add_part(hv_sum *sum, const hv_part *part);
void hv_sum_add(hv_sum *sum, const hv_sum *other);
/* As it will be later, if all go on at their speed. */
void hv_sum_forward(hv_sum *sum, uint64_t us);
/* Not so many owners: each part shrinks alike. Not so many samples, or so much speed, for each owner. */
void hv_sum_limit_owners(hv_sum *sum, uint32_t most);
void hv_sum_limit_each(hv_sum *sum, double samples, double speed);

/* The age of what is in it, on average over owners. */
uint32_t hv_sum_age_ms(const hv_sum *sum);
/* What counts of an epoch: those in it, and those one further with what they had before. */
double hv_sum_samples(const hv_sum *sum, uint64_t epoch);
double hv_sum_speed(const hv_sum *sum, uint64_t epoch);

/* How far it is on one scale, for comparing sums of the same contributors: samples from the beginning of `epoch` on, an epoch more
 * counting as `share` for each owner. */
double hv_sum_place(const hv_sum *sum, uint64_t epoch, double share);

/* How long those in this epoch have been in it: their samples by their speed, 10^18 us at most; 0: not known. */
uint64_t hv_sum_since_us(const hv_sum *sum, uint64_t epoch);
/* An epoch began so long ago. What is older than that of those who were in the one before says nothing of whether they have begun
 * it, too: they are taken to have done so with all others, at their own speed. What is newer stays as it is. */
void hv_sum_carry(hv_sum *sum, uint64_t epoch, uint64_t since_us);

#endif
