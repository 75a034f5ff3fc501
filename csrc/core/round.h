/* What is one round? The facts that all its members share, and this member's buffers.
 *
 * Room: core (uses kern/codec, env's hv_target). Read by reducer, share and allreduce; made by whoever formed the group. Nothing in
 * it changes while a round runs. A run of n_values float32 is cut into chunks of chunk_values (the last may be shorter); a span is
 * a run of chunks.
 */
#ifndef HV_CORE_ROUND_H
#define HV_CORE_ROUND_H

#include "core/env.h"
#include "kern/codec.h"

#define HV_ROUND_MEMBERS_MAX 256
#define HV_ROUND_CHUNK_MAX (1u << 20) /* values: 4 MiB as they are, what one bulk message carries */

typedef struct hv_round_member {
  hv_target at;
  float weight;          /* samples behind its values; finite, 0 or more */
  uint8_t client;        /* cannot be dialled, owns nothing */
  uint8_t auxiliary;     /* owns a span, contributes nothing */
  uint32_t first, count; /* its span, in chunks */
} hv_round_member;

typedef struct hv_round {
  uint8_t id[HV_ROUND_ID_SIZE];
  const hv_round_member *members;
  size_t n_members, me;
  uint64_t n_values;
  uint32_t chunk_values;
  hv_codec codec;
  uint32_t stall_ms; /* a member that holds the others up for longer is left out */
  const hv_kern *kern;
  const float *in; /* this member's values (an auxiliary's: NULL) */
  float *out;      /* the averages (an auxiliary's: NULL); may be `in` */
} hv_round;

static inline uint32_t hv_round_chunks(const hv_round *round) {
  return (uint32_t)((round->n_values + round->chunk_values - 1) / round->chunk_values);
}

/* The first value of a chunk, and how many there are. */
static inline uint64_t hv_round_chunk_at(const hv_round *round, uint32_t chunk) {
  return (uint64_t)chunk * round->chunk_values;
}
static inline uint32_t hv_round_chunk_size(const hv_round *round, uint32_t chunk) {
  uint64_t left = round->n_values - hv_round_chunk_at(round, chunk);
  return left < round->chunk_values ? (uint32_t)left : round->chunk_values;
}
/* Encoded bytes of a chunk. */
static inline size_t hv_round_chunk_bytes(const hv_round *round, uint32_t chunk) {
  return (size_t)hv_codec_bound(round->codec, HV_DTYPE_FLOAT32, hv_round_chunk_size(round, chunk));
}

/* Holds a plan against all limits and itself: HV_INVALID with the reason in err. */
hv_status hv_round_check(const hv_round *round, hv_error *err);

#endif
