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
#define HV_ARG(type, name) type &name
#define HV_FOLD(type, name, away, JOIN)                                                                                            \
  do {                                                                                                                             \
    type other_ = __shfl_xor_sync(0xffffffffu, name, away);                                                                        \
    name = JOIN(name, other_);                                                                                                     \
  } while (0)
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
#define HV_ARG(type, name) type *name /* a HV_REG as a parameter */
/* Each thread's value joined with that of the thread whose number differs in the bit `away` < 32. */
#define HV_FOLD(type, name, away, JOIN)                                                                                            \
  do {                                                                                                                             \
    type were_[CU_THREADS];                                                                                                        \
    memcpy(were_, name, sizeof were_);                                                                                             \
    for (uint32_t i_ = 0; i_ < CU_THREADS; i_++)                                                                                   \
      name[i_] = JOIN(were_[i_], were_[i_ ^ (away)]);                                                                              \
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

/* Every `step`-th item from `from` on, below `to`: blocks that run at a time read what lies together. */
typedef struct cu_range {
  uint64_t from, to, step;
  uint32_t job; /* of `from` */
} cu_range;

HV_BLOCK cu_range cu_share(const cu_args *a, uint32_t block) {
  cu_range r;
  r.from = block, r.to = a->items, r.step = a->blocks;
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

/* ---- elements ---- */

/* The n elements from `at` on as float32, zeros from count on; n is a constant, and a multiple of 8 that divides `at`. Whole rows
 * that are aligned are fetched before the first is used. */
HV_BLOCK void cu_load_row(int dtype, const void *src, uint64_t at, uint64_t count, uint32_t n, float *x) {
  if (at + n > count || (uintptr_t)src % 16) {
    HV_UNROLL
    for (uint32_t k = 0; k < n; k += 4)
      cu_load4(dtype, src, at + k, count, x + k);
  } else if (dtype == CU_F32) {
    HV_UNROLL
    for (uint32_t k = 0; k < n; k += 4) {
      cu_16 v = cu_read16((const float *)src + at + k);
      HV_UNROLL
      for (uint32_t i = 0; i < 4; i++)
        x[k + i] = cu_float(v.w[i]);
    }
  } else {
    HV_UNROLL
    for (uint32_t k = 0; k < n; k += 8) {
      cu_16 v = cu_read16((const uint16_t *)src + at + k);
      HV_UNROLL
      for (uint32_t i = 0; i < 8; i++)
        x[k + i] = cu_half_to(dtype, (uint16_t)(v.w[i / 2] >> i % 2 * 16));
    }
  }
}

/* ---- the checksum of pieces ---- */

/* The lanes of up to CU_WARPS pieces wait here, until each warp joins those of one. */
typedef struct cu_piece_room {
  uint64_t lane[CU_WARPS][CU_WARPS][8]; /* by piece, by warp that summed them */
  uint64_t index[CU_WARPS];
  uint64_t sum[CU_WARPS]; /* over the pieces that each warp has joined */
} cu_piece_room;

HV_BLOCK void cu_pieces_begin(cu_piece_room *s) {
  HV_EACH(t) {
    if (t < CU_WARPS)
      s->sum[t] = 0;
  }
}
/* Joins the lanes that wait. */
HV_BLOCK void cu_pieces_join(cu_piece_room *s, uint32_t *waiting) {
  HV_REG(uint64_t, joined);
  HV_SYNC;
  HV_EACH(t) {
    uint64_t lane = 0;
    HV_UNROLL
    for (uint32_t w = 0; w < CU_WARPS; w++)
      lane += s->lane[t / 32][w][t % 8];
    HV_R(joined) = cu_mix(lane + t % 8 * CU_G);
  }
  HV_FOLD(uint64_t, joined, 1, HV_SUM);
  HV_FOLD(uint64_t, joined, 2, HV_SUM);
  HV_FOLD(uint64_t, joined, 4, HV_SUM);
  HV_EACH(t) {
    if (t % 32 == 0 && t / 32 < *waiting)
      s->sum[t / 32] += cu_mix(HV_R(joined) + s->index[t / 32] * CU_K);
  }
  *waiting = 0;
  HV_SYNC; /* the next pieces' lanes take their place */
}
/* The sum since the beginning: for one thread, after cu_pieces_join. */
HV_BLOCK uint64_t cu_pieces_sum(const cu_piece_room *s) {
  uint64_t sum = 0;
  for (uint32_t w = 0; w < CU_WARPS; w++)
    sum += s->sum[w];
  return sum;
}
/* Adds what was summed to the job's sum, and begins again. */
HV_BLOCK void cu_pieces_end(cu_piece_room *s, uint32_t *waiting, cu_state *state) {
  cu_pieces_join(s, waiting);
  HV_EACH(t) {
    if (t == 0)
      cu_add64(&state->sum, cu_pieces_sum(s));
  }
  HV_SYNC;
  cu_pieces_begin(s);
}
/* Takes in a piece, of which thread t has the bytes from 16 t on. */
HV_BLOCK void cu_piece(cu_piece_room *s, uint32_t *waiting, uint64_t index, HV_ARG(cu_16, bytes)) {
  HV_REG(uint64_t, even);
  HV_REG(uint64_t, odd);
  HV_EACH(t) {
    cu_digest_part(HV_R(bytes), t, &HV_R(even), &HV_R(odd));
  }
  HV_FOLD(uint64_t, even, 4, HV_SUM);
  HV_FOLD(uint64_t, odd, 4, HV_SUM);
  HV_FOLD(uint64_t, even, 8, HV_SUM);
  HV_FOLD(uint64_t, odd, 8, HV_SUM);
  HV_FOLD(uint64_t, even, 16, HV_SUM);
  HV_FOLD(uint64_t, odd, 16, HV_SUM);
  HV_EACH(t) {
    if (t % 32 < 4) {
      s->lane[*waiting][t / 32][2 * (t % 4)] = HV_R(even);
      s->lane[*waiting][t / 32][2 * (t % 4) + 1] = HV_R(odd);
    }
    if (t == 0)
      s->index[*waiting] = index;
  }
  if (++*waiting == CU_WARPS)
    cu_pieces_join(s, waiting);
}

#endif
