/* What is one round? The facts that all its members share, and this member's buffers.
 *
 * Room: core (uses run, env's hv_target). Read by reducer, share and allreduce; made by whoever formed the group. Nothing in it
 * changes while a round runs. The run (core/round/run.h) is cut into chunks, and a span is a row of chunks.
 *
 * What an owner checks before a contribution counts: its weight is finite, not negative (0, or HV_ROUND_WEIGHT_MIN at least) and at
 * most weight_max (told when its stream opens); its values are finite, and the norm of a chunk's is at most norm_max. What is
 * refused does not count, and neither does what would have followed from that member; what counted before stays. Nothing is limited
 * in silence: a chunk counts as it is, or not at all.
 */
#ifndef HV_CORE_ROUND_H
#define HV_CORE_ROUND_H

#include "core/env.h"
#include "core/round/run.h"

#define HV_ROUND_MEMBERS_MAX 256
#define HV_ROUND_CHUNKS_MAX (1u << 18) /* so that what a member holds fits into one message */
#define HV_ROUND_STALLS 100
#define HV_ROUND_WEIGHT_MIN 0x1p-64f /* of weights that are not 0: a sum of them has an inverse */

typedef struct hv_round_member {
  hv_target at;
  float weight;          /* as it was told when the group formed; what counts is told with the stream */
  uint8_t client;        /* cannot be dialled, owns nothing */
  uint8_t auxiliary;     /* owns a span, contributes nothing */
  uint32_t first, count; /* its span, in chunks */
} hv_round_member;

typedef struct hv_round {
  uint8_t id[HV_ROUND_ID_SIZE];
  const hv_round_member *members;
  size_t n_members, me;
  size_t leader;       /* who coordinates when members are lost; after it those who follow in order */
  const hv_run *in;    /* this member's values; of an auxiliary the layout is enough */
  const hv_run *out;   /* where averages go: alike to `in`, and may be it; NULL for an auxiliary */
  float weight;        /* samples behind `in`; told to the owners. An auxiliary's is not used */
  float weight_max;    /* of others' contributions; 0: HV_CODEC_WEIGHT_MAX */
  float norm_max;      /* likewise, the L2 norm of one chunk; 0: any */
  uint32_t stall_ms;   /* a member that holds the others up for longer is left out; 1 or more */
  uint32_t timeout_ms; /* by then the round is over here, however far it is; 0: HV_ROUND_STALLS times stall_ms */
  uint64_t formed_us;  /* when the group was formed, as far as this member knows; 0: just now */
  uint64_t speed;      /* bytes per second at which to send, on all connections together (core/util/flow); 0: as fast as they can */
  const hv_kern *kern;
  void (*released)(void *arg); /* nothing reads the runs any more, not even their layout; NULL: nobody asks */
  void *released_arg;
} hv_round;

/* 1 when a weight may count: finite, not negative, within the round's limit. */
int hv_round_takes_weight(const hv_round *round, float weight);

/* Holds a plan against all limits and itself: HV_INVALID with the reason in err. */
hv_status hv_round_check(const hv_round *round, hv_error *err);

#endif
