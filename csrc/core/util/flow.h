/* How fast should this member send on each of its connections? What rounds have seen of their own speed.
 *
 * Room: core (knows nothing). A round has a flow, within its pace: reducer and share tell it what comes; allreduce chooses by it,
 * and by what earlier rounds have shown (average keeps that), at which rate each connection of the next round sends. Pure values.
 * Several connections that share one line find their parts of it badly: for seconds one has too little and another too much, and
 * whoever has too little is waited for. If each is held to its even part all lines are busy from the begin to the end. In a round
 * as much leaves a member as comes to it, so what comes while all goes well tells what leaves while all goes well: of the eighths
 * of a round the second fastest (the fastest may be one that had been waiting somewhere). The next round is paced a sixteenth above
 * the better of the last two. But where all came that the pace let through, the line carries that at least: the next one is paced a
 * quarter above it. So a rate that is too low does not stay; one that is too high is as none, and costs less.
 * Limits: only rounds of HV_FLOW_LEAST_US and more, slower than HV_FLOW_MOST (beyond that it is the machines that bound a round),
 * of members whose spans, and so lines, are alike within a quarter, and not the first one. A round of less than HV_FLOW_LEAST bytes
 * tells nothing: one lost packet is most of the time that an eighth of it takes.
 */
#ifndef HV_CORE_FLOW_H
#define HV_CORE_FLOW_H

#include <stddef.h>
#include <stdint.h>

#define HV_FLOW_LEAST_US 2000000u
#define HV_FLOW_LEAST (1u << 20) /* bytes of a round: less tells of round trips, not of a line */
#define HV_FLOW_MOST 62500000u   /* bytes per second */

typedef struct hv_flow {
  uint64_t total, came;   /* bytes of all that is to come in this round, and has */
  uint64_t mark_us, mark; /* when the last eighth of it was there; of how many bytes in all */
  uint64_t best[2];       /* bytes per second of the fastest eighths */
  uint64_t each;          /* bytes per second at which each connection sends; 0: as fast as it can */
} hv_flow;

/* So many bytes came. */
void hv_flow_saw(hv_flow *flow, uint64_t now_us, uint64_t bytes);
/* Bytes per second of the second fastest eighth; 0: it did not come so far, all came at once, or it was too little. */
uint64_t hv_flow_rate(const hv_flow *flow);

/* What earlier rounds have shown. */
typedef struct hv_flow_past {
  uint64_t before; /* the last round's rate */
  uint64_t speed;  /* at which the next round is to send on all its connections together; 0: not known */
} hv_flow_past;

/* A round that was told past->speed is over, and this came of it; 0: nothing. */
void hv_flow_learn(hv_flow_past *past, uint64_t rate);

/* What each of a member's connections sends at, in bytes per second, or 0: as fast as it can. They carry total bytes together; the
 * spans of the round are of least to most bytes. */
uint64_t hv_flow_each(uint64_t speed, uint64_t total, uint64_t least, uint64_t most, size_t connections);

#endif
