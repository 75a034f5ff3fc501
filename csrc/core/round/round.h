/* The facts of one round that all its members share, and this member's buffers.
 *
 * Room: core (uses run, env's hv_target). Made by the code that formed the group; read by reducer, share and allreduce.
 * Owner: its maker; the members and runs are borrowed. Nothing in it changes during a round.
 * Thread: any thread may read it.
 * Limits: members and chunks (HV_ROUND_*); weights and norms as in the fields below.
 * A weight above weight_max is cut to it; contributions beyond another limit are refused as a whole.
 * Rules: docs/design/round.md, \"Who is left out\".
 */
#ifndef HV_CORE_ROUND_H
#define HV_CORE_ROUND_H

#include "core/env.h"
#include "core/round/run.h"

#include <stdatomic.h>

#define HV_ROUND_MEMBERS_MAX 256
#define HV_ROUND_CHUNKS_MAX (1u << 18) /* a bit for each fits into one message */
#define HV_ROUND_STALLS 100            /* default of timeout_ms, as a multiple of stall_ms */
#define HV_ROUND_WEIGHT_MIN 0x1p-64f   /* smallest weight other than 0: a sum of weights has an inverse */

typedef struct hv_round_member {
  hv_target at;
  float weight;          /* as of when the group formed; the weight that counts comes with the stream */
  uint8_t client;        /* 1: cannot be dialled, owns no span */
  uint8_t auxiliary;     /* 1: owns a span, contributes nothing */
  uint32_t first, count; /* its span, in chunks */
} hv_round_member;

typedef struct hv_round {
  uint8_t id[HV_ROUND_ID_SIZE];
  const hv_round_member *members;
  size_t n_members, me; /* me: this member's index */
  size_t leader;        /* index of the first coordinator; if it is lost, the next member in order follows */
  const hv_run *in;     /* this member's values; for an auxiliary, or one that listens, the layout alone */
  const hv_run *out;    /* destination of the averages: of the same layout as `in`, or `in` itself; NULL for an auxiliary */
  float weight;         /* samples behind `in`, sent to the owners; not used for an auxiliary */
  float weight_max;     /* a member counts with at most this weight, this member too; 0: HV_CODEC_WEIGHT_MAX */
  float norm_ratio;     /* largest norm of a chunk, as a multiple of the members' median (core/round/norm.h); 0: any */
  float norm;           /* largest norm of a chunk of `in`, sent to the owners; 0: not measured */
  int listens;          /* 1: it gives no values and receives the averages; its weight is 0 */
  int keep;             /* 1: the encoded averages are kept (hv_allreduce_kept) */
  int narrow;        /* 1: this member sends its values, and the averages that it makes, under narrow codecs, where there are any */
  uint32_t stall_ms; /* longest time that one member may hold the others up; 1 or more */
  uint32_t timeout_ms; /* longest time of the round; 0: HV_ROUND_STALLS times stall_ms */
  uint64_t formed_us;  /* time at which the group formed, as far as this member knows; 0: now */
  uint64_t speed;      /* bytes per second at which to send on all connections together (core/util/flow); 0: no limit */
  uint64_t compared;   /* values of `in`, from the first on, of which `changed` says whether averages change them; 0: none */
  atomic_int *changed; /* set to 1 then (hv_run_compare), before the average is written */
  const hv_kern *kern;
  void (*released)(void *arg); /* called when nothing reads the runs any more, not even their layout; may be NULL */
  /* A member stated a weight above weight_max; called before `released`. May be NULL. */
  void (*overstated)(void *arg, const hv_peer_id *member, float stated);
  void *arg; /* of both */
} hv_round;

/* True if a weight may count: finite, not negative, within the limits of a sum. */
int hv_round_takes_weight(float weight);
/* The weight that counts for a member that states this valid one: at most weight_max. */
float hv_round_weight(const hv_round *round, float stated);

/* Writes a chunk's encoded average into `out`, with the errors of hv_run_decode. Each average of a round comes through here. */
hv_status hv_round_take(const hv_round *round, uint32_t index, const hv_span *spans, size_t n_spans);

/* Checks a round against all limits. HV_INVALID with the reason in err. */
hv_status hv_round_check(const hv_round *round, hv_error *err);

#endif
