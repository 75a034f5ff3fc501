/* One block of threads: phases between two barriers, on the device and on the host alike.
 *
 * Room: cuda (uses arith, kernel). Included by the kernels' bodies. A body is written once: on the device HV_EACH runs its phase
 * for the present thread; on the host it is a loop over all threads, and a value that a thread keeps from phase to phase (HV_REG)
 * is an array with an element for each. The host's loop goes in the order that HV_TURN says, so that a test detects a race.
 * Nothing but HV_EACH, HV_SYNC and HV_FOLD may depend on the thread; loops and conditions around phases must be the same for all
 * threads of the block.
 */
#ifndef HV_CUDA_BLOCK_H
#define HV_CUDA_BLOCK_H

#include "cuda/kernel.h"

#ifdef __CUDACC__
#define HV_BLOCK static __device__ __forceinline__
#define HV_EACH(t) for (uint32_t t = threadIdx.x, here_ = 1; here_; here_ = 0)
#define HV_SYNC __syncthreads()
#define HV_REG(type, name) type name
#define HV_REGS(type, name, n) type name[n]
#define HV_R(name) name
#define HV_FOLD(type, name, away, JOIN)                                                                                            \
  do {                                                                                                                             \
    type other_ = __shfl_xor_sync(0xffffffffu, name, away);                                                                        \
    name = JOIN(name, other_);                                                                                                     \
  } while (0)
#define HV_FOLD_AT(type, name, k, away, JOIN) HV_FOLD(type, name[k], away, JOIN)
#define HV_UNROLL _Pragma("unroll")
#else
#ifndef HV_TURN
#define HV_TURN(i) (i)
#endif
#define HV_BLOCK static inline
#define HV_EACH(t) for (uint32_t turn_ = 0, t = HV_TURN(0u); turn_ < CU_THREADS; turn_++, t = HV_TURN(turn_))
#define HV_SYNC (void)0
#define HV_REG(type, name) type name[CU_THREADS]
#define HV_REGS(type, name, n) type name[CU_THREADS][n]
#define HV_R(name) name[t]
/* Each thread's value joined with that of the thread whose number differs in the bit `away` < 32. */
#define HV_FOLD(type, name, away, JOIN)                                                                                            \
  do {                                                                                                                             \
    type were_[CU_THREADS];                                                                                                        \
    memcpy(were_, name, sizeof were_);                                                                                             \
    for (uint32_t i_ = 0; i_ < CU_THREADS; i_++)                                                                                   \
      name[i_] = JOIN(were_[i_], were_[i_ ^ (away)]);                                                                              \
  } while (0)
#define HV_FOLD_AT(type, name, k, away, JOIN)                                                                                      \
  do {                                                                                                                             \
    type were_[CU_THREADS];                                                                                                        \
    for (uint32_t i_ = 0; i_ < CU_THREADS; i_++)                                                                                   \
      were_[i_] = name[i_][k];                                                                                                     \
    for (uint32_t i_ = 0; i_ < CU_THREADS; i_++)                                                                                   \
      name[i_][k] = JOIN(were_[i_], were_[i_ ^ (away)]);                                                                           \
  } while (0)
#define HV_UNROLL
#endif

#define HV_SUM(a, b) ((a) + (b))
#define HV_MOST(a, b) ((a) > (b) ? (a) : (b))
#define HV_LEAST(a, b) ((a) < (b) ? (a) : (b))
#define HV_FOLD_WARP(type, name, JOIN)                                                                                             \
  do {                                                                                                                             \
    HV_FOLD(type, name, 16, JOIN);                                                                                                 \
    HV_FOLD(type, name, 8, JOIN);                                                                                                  \
    HV_FOLD(type, name, 4, JOIN);                                                                                                  \
    HV_FOLD(type, name, 2, JOIN);                                                                                                  \
    HV_FOLD(type, name, 1, JOIN);                                                                                                  \
  } while (0)

/* ---- what threads of several blocks, or of one, add to ---- */

HV_BLOCK void cu_add64(uint64_t *p, uint64_t x) {
#ifdef __CUDA_ARCH__
  atomicAdd((unsigned long long *)p, (unsigned long long)x);
#else
  *p += x;
#endif
}
HV_BLOCK void cu_add32(uint32_t *p, uint32_t x) {
#ifdef __CUDA_ARCH__
  atomicAdd(p, x);
#else
  *p += x;
#endif
}
HV_BLOCK void cu_max32(uint32_t *p, uint32_t x) {
#ifdef __CUDA_ARCH__
  atomicMax(p, x);
#else
  *p = *p > x ? *p : x;
#endif
}
HV_BLOCK void cu_or32(uint32_t *p, uint32_t x) {
#ifdef __CUDA_ARCH__
  atomicOr(p, x);
#else
  *p |= x;
#endif
}

/* ---- which items are this block's ---- */

typedef struct cu_range {
  uint64_t from, to;
  uint32_t job; /* of `from` */
} cu_range;

/* Items from .. to - 1 of all, an equal part for each block. */
HV_BLOCK cu_range cu_share(const cu_args *a, uint32_t block) {
  uint64_t each = (a->items + a->blocks - 1) / a->blocks;
  cu_range r;
  r.from = each * block < a->items ? each * block : a->items;
  r.to = r.from + each < a->items ? r.from + each : a->items;
  uint32_t low = 0, high = a->n_jobs;
  while (low + 1 < high) {
    uint32_t middle = (low + high) / 2;
    if (a->job[middle].first <= r.from)
      low = middle;
    else
      high = middle;
  }
  r.job = low;
  return r;
}
/* The job of an item, at or after the one it was. Jobs without items have the first of the next one. */
HV_BLOCK uint32_t cu_job_of(const cu_args *a, uint32_t job, uint64_t item) {
  while (job + 1 < a->n_jobs && item >= a->job[job + 1].first)
    job++;
  return job;
}

/* ---- one piece of a chunk ---- */

/* What a block holds of the piece that it works on. */
typedef struct cu_piece_room {
  cu_16 bytes[CU_THREADS]; /* 4,096 */
  uint64_t lane[CU_WARPS][8];
  uint64_t sum; /* the first thread's alone: over the pieces since it was last taken */
} cu_piece_room;

HV_BLOCK void cu_piece_begin(cu_piece_room *s) {
  HV_EACH(t) {
    if (t == 0)
      s->sum = 0;
  }
}
/* Adds what was summed to the job's sum. */
HV_BLOCK void cu_piece_end(cu_piece_room *s, cu_state *state) {
  HV_EACH(t) {
    if (t == 0) {
      cu_add64(&state->sum, s->sum);
      s->sum = 0;
    }
  }
}
/* Sums the piece in s->bytes and writes the n bytes of it to out, unless NULL. There must be a barrier between two of these: the
 * lanes of the one before may still be read. */
HV_BLOCK void cu_piece(cu_piece_room *s, uint64_t index, uint8_t *out, uint32_t n) {
  HV_REG(uint64_t, even);
  HV_REG(uint64_t, odd);
  HV_EACH(t) {
    cu_16 v = s->bytes[t];
    cu_digest_part(v, t, &HV_R(even), &HV_R(odd));
    if (out && 16 * t < n)
      cu_write_some(out + 16 * t, v, n - 16 * t);
  }
  HV_FOLD(uint64_t, even, 4, HV_SUM);
  HV_FOLD(uint64_t, odd, 4, HV_SUM);
  HV_FOLD(uint64_t, even, 8, HV_SUM);
  HV_FOLD(uint64_t, odd, 8, HV_SUM);
  HV_FOLD(uint64_t, even, 16, HV_SUM);
  HV_FOLD(uint64_t, odd, 16, HV_SUM);
  HV_EACH(t) {
    if (t % 32 < 4) {
      s->lane[t / 32][2 * (t % 4)] = HV_R(even);
      s->lane[t / 32][2 * (t % 4) + 1] = HV_R(odd);
    }
  }
  HV_SYNC;
  HV_EACH(t) {
    uint64_t lane = 0;
    for (uint32_t w = 0; w < CU_WARPS; w++)
      lane += s->lane[w][t % 8];
    HV_R(even) = cu_mix(lane + t % 8 * CU_G);
  }
  HV_FOLD(uint64_t, even, 1, HV_SUM);
  HV_FOLD(uint64_t, even, 2, HV_SUM);
  HV_FOLD(uint64_t, even, 4, HV_SUM);
  HV_EACH(t) {
    if (t == 0)
      s->sum += cu_mix(HV_R(even) + index * CU_K);
  }
}

#endif
