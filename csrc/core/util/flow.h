/* The rate at which a member sends on each of its connections in the next round, learned from earlier rounds.
 *
 * Room: core; depends on no other module. reducer and share report the bytes that arrive; allreduce chooses the rate.
 * Owner: a round has one hv_flow within its pace (core/round/pace.h); average has one hv_flow_past per group of tensors.
 * Thread: that of the owner; plain values.
 * Limits: only rounds of at least HV_FLOW_LEAST_US and HV_FLOW_LEAST bytes, slower than HV_FLOW_MOST, count.
 * Spans must be equal within a quarter. The first round is never paced.
 * Rules: docs/design/round.md, "The rate of a member's connections".
 */
#ifndef HV_CORE_FLOW_H
#define HV_CORE_FLOW_H

#include <stddef.h>
#include <stdint.h>

#define HV_FLOW_LEAST_US 2000000u /* shortest round that counts */
#define HV_FLOW_LEAST (1u << 20)  /* bytes of the smallest round that counts: less measures round trips, not the link */
#define HV_FLOW_MOST 62500000u    /* bytes per second; beyond that the machines limit a round, not the link */

typedef struct hv_flow {
  uint64_t total, came;   /* bytes that are to arrive in this round; bytes that have arrived */
  uint64_t mark_us, mark; /* time at which the last complete eighth had arrived; bytes that had arrived by then */
  uint64_t best[2];       /* bytes per second of the two fastest eighths */
  uint64_t each;          /* bytes per second at which each connection sends; 0: not limited */
} hv_flow;

/* Counts `bytes` that have just arrived. */
void hv_flow_saw(hv_flow *flow, uint64_t now_us, uint64_t bytes);
/* Bytes per second of the second fastest eighth. 0: too little has arrived, or all of it arrived at once. */
uint64_t hv_flow_rate(const hv_flow *flow);

/* The measurements of earlier rounds. */
typedef struct hv_flow_past {
  uint64_t before; /* bytes per second of the last round; 0: not known */
  uint64_t speed;  /* bytes per second at which the next round sends on all connections together; 0: not known */
} hv_flow_past;

/* Updates the past after a round that was paced by past->speed and reached `rate` (0: not known). */
void hv_flow_learn(hv_flow_past *past, uint64_t rate);

/* The rate of each connection of a member in bytes per second, or 0: not limited, as one that has nothing to share with. Together
 * the connections carry `total` bytes. `least` and `most` are the bytes of the round's smallest and largest span. */
uint64_t hv_flow_each(uint64_t speed, uint64_t total, uint64_t least, uint64_t most, size_t connections);

#endif
