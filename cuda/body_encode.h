/* The kernels that encode a tensor as a chunk, for all codecs but QUANTILE8.
 *
 * Room: cuda (uses block). Included by kernels.cu and by the tests' stand-in for the host. A block makes whole pieces of 4,096
 * bytes, so that it can sum them while they are in shared memory; what is past the last element counts as zeros there.
 */
#ifndef HV_CUDA_BODY_ENCODE_H
#define HV_CUDA_BODY_ENCODE_H

#include "cuda/block.h"

/* What all encoders share: the piece, and what threads tell each other of it. */
typedef struct cu_encode_room {
  cu_piece_room piece;
  uint32_t most[CU_WARPS];
} cu_encode_room;

HV_BLOCK uint8_t *cu_body_of(const cu_args *a, const cu_job *job) {
  return job->chunk + CU_HEADER + cu_head_bytes(a->codec, job->count);
}
/* Sums and writes the piece in the room. */
HV_BLOCK void cu_piece_out(cu_piece_room *s, const cu_args *a, const cu_job *job, uint64_t index) {
  uint64_t left = cu_body_bytes(a->codec, a->named, job->count) - index * CU_PIECE;
  cu_piece(s, index, cu_body_of(a, job) + index * CU_PIECE, left < CU_PIECE ? (uint32_t)left : CU_PIECE);
}

/* Walks over this block's pieces: `make` fills the room with one. */
#define CU_PIECES(s, a, block, make)                                                                                               \
  do {                                                                                                                             \
    cu_range r_ = cu_share(a, block);                                                                                              \
    uint32_t j_ = r_.job;                                                                                                          \
    cu_piece_begin(&(s)->piece);                                                                                                   \
    for (uint64_t item_ = r_.from; item_ < r_.to; item_++) {                                                                       \
      uint32_t next_ = cu_job_of(a, j_, item_);                                                                                    \
      if (next_ != j_)                                                                                                             \
        cu_piece_end(&(s)->piece, (a)->job[j_].state);                                                                             \
      j_ = next_;                                                                                                                  \
      make(s, a, &(a)->job[j_], item_ - (a)->job[j_].first);                                                                       \
      cu_piece_out(&(s)->piece, a, &(a)->job[j_], item_ - (a)->job[j_].first);                                                     \
    }                                                                                                                              \
    if (r_.from < r_.to)                                                                                                           \
      cu_piece_end(&(s)->piece, (a)->job[j_].state);                                                                               \
  } while (0)

/* ---- 16 bits ---- */

HV_BLOCK uint16_t cu_code16(int codec, float x, float mean, float inverse) {
  return codec == CU_FLOAT16 ? cu_f16_of(x) : codec == CU_BFLOAT16 ? cu_bf16_of(x) : cu_scaled_of(x, mean, inverse);
}

HV_BLOCK void cu_make_16(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index) {
  uint8_t *bytes = (uint8_t *)s->piece.bytes;
  HV_EACH(t) {
    float x[2][4], mean = a->codec == CU_SCALED ? job->state->mean : 0, inverse = a->codec == CU_SCALED ? job->state->inverse : 0;
    uint64_t at = index * (CU_PIECE / 2) + 4 * t;
    HV_UNROLL
    for (uint32_t k = 0; k < 2; k++)
      cu_load4(a->dtype, job->src, at + 4 * CU_THREADS * k, job->count, x[k]);
    HV_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
      uint64_t four = 0;
      for (uint32_t i = 0; i < 4; i++)
        if (at + 4 * CU_THREADS * k + i < job->count)
          four |= (uint64_t)cu_code16(a->codec, x[k][i], mean, inverse) << 16 * i;
      cu_write8(bytes + 8 * (t + CU_THREADS * k), four);
    }
  }
  HV_SYNC;
}

HV_BLOCK void cu_make_plain(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index) {
  if (a->codec != CU_NONE) {
    cu_make_16(s, a, job, index);
    return;
  }
  uint64_t left = cu_body_bytes(CU_NONE, a->dtype, job->count) - index * CU_PIECE;
  const uint8_t *from = (const uint8_t *)job->src + index * CU_PIECE;
  HV_EACH(t) {
    s->piece.bytes[t] = cu_read_some(from + 16 * t, left > 16 * t ? (left - 16 * t < 16 ? (uint32_t)(left - 16 * t) : 16) : 0);
  }
  HV_SYNC;
}
HV_BLOCK void cu_encode_plain_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, cu_make_plain);
}
HV_BLOCK void cu_encode_scaled_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, cu_make_16);
}

/* ---- statistics ---- */

/* An item is CU_WARPS units: a warp sums one, its lanes as STATS says. */
HV_BLOCK void cu_measure_units(const cu_args *a, const cu_job *job, uint64_t item) {
  HV_REG(double, sum);
  HV_REG(double, square);
  HV_REG(float, low);
  HV_REG(float, high);
  HV_EACH(t) {
    uint64_t at = (item * CU_WARPS + t / 32) * CU_UNIT;
    uint32_t n = at >= job->count ? 0 : job->count - at < CU_UNIT ? (uint32_t)(job->count - at) : CU_UNIT;
    HV_R(sum) = HV_R(square) = 0;
    HV_R(low) = HV_R(high) = n ? cu_tame(cu_load1(a->dtype, job->src, at)) : 0;
    for (uint32_t i = t % 32; i < n; i += 256) {
      float x[8];
      HV_UNROLL
      for (uint32_t k = 0; k < 8; k++)
        x[k] = i + 32 * k < n ? cu_load1(a->dtype, job->src, at + i + 32 * k) : 0;
      HV_UNROLL
      for (uint32_t k = 0; k < 8; k++)
        if (i + 32 * k < n) {
          float tame = cu_tame(x[k]);
          double y = (double)tame, product = y * y;
          HV_R(sum) = HV_R(sum) + y;
          HV_R(square) = HV_R(square) + product;
          HV_R(low) = tame < HV_R(low) ? tame : HV_R(low);
          HV_R(high) = tame > HV_R(high) ? tame : HV_R(high);
        }
    }
  }
  HV_FOLD_WARP(double, sum, HV_SUM);
  HV_FOLD_WARP(double, square, HV_SUM);
  HV_FOLD_WARP(float, low, HV_LEAST);
  HV_FOLD_WARP(float, high, HV_MOST);
  HV_EACH(t) {
    uint64_t unit = item * CU_WARPS + t / 32;
    if (t % 32 == 0 && unit < cu_units(job->count)) {
      cu_measure *m = cu_level(job->room, job->count, 0) + unit;
      m->sum = HV_R(sum), m->square = HV_R(square), m->low = HV_R(low), m->high = HV_R(high);
    }
  }
}

HV_BLOCK void cu_measure_block(const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job;
  for (uint64_t item = r.from; item < r.to; item++) {
    j = cu_job_of(a, j, item);
    cu_measure_units(a, &a->job[j], item - a->job[j].first);
  }
}

typedef struct cu_join_room {
  cu_measure warp[CU_WARPS];
} cu_join_room;

/* Joins CU_FAN measures of a level, as a tree over their index, to one of the next. */
HV_BLOCK void cu_join_group(cu_join_room *s, const cu_args *a, const cu_job *job, uint64_t group) {
  const cu_measure *from = cu_level(job->room, job->count, a->level) + group * CU_FAN;
  uint64_t n = cu_at_level(job->count, a->level) - group * CU_FAN;
  HV_REG(double, sum);
  HV_REG(double, square);
  HV_REG(float, low);
  HV_REG(float, high);
  HV_EACH(t) {
    HV_R(sum) = t < n ? from[t].sum : 0;
    HV_R(square) = t < n ? from[t].square : 0;
    HV_R(low) = from[t < n ? t : 0].low;
    HV_R(high) = from[t < n ? t : 0].high;
  }
  HV_FOLD(double, sum, 1, HV_SUM);
  HV_FOLD(double, sum, 2, HV_SUM);
  HV_FOLD(double, sum, 4, HV_SUM);
  HV_FOLD(double, sum, 8, HV_SUM);
  HV_FOLD(double, sum, 16, HV_SUM);
  HV_FOLD(double, square, 1, HV_SUM);
  HV_FOLD(double, square, 2, HV_SUM);
  HV_FOLD(double, square, 4, HV_SUM);
  HV_FOLD(double, square, 8, HV_SUM);
  HV_FOLD(double, square, 16, HV_SUM);
  HV_FOLD_WARP(float, low, HV_LEAST);
  HV_FOLD_WARP(float, high, HV_MOST);
  HV_SYNC; /* the group before may still be read */
  HV_EACH(t) {
    if (t % 32 == 0) {
      cu_measure *m = &s->warp[t / 32];
      m->sum = HV_R(sum), m->square = HV_R(square), m->low = HV_R(low), m->high = HV_R(high);
    }
  }
  HV_SYNC;
  HV_EACH(t) {
    if (t == 0) {
      const cu_measure *w = s->warp;
      cu_measure all;
      all.sum = ((w[0].sum + w[1].sum) + (w[2].sum + w[3].sum)) + ((w[4].sum + w[5].sum) + (w[6].sum + w[7].sum));
      all.square =
          ((w[0].square + w[1].square) + (w[2].square + w[3].square)) + ((w[4].square + w[5].square) + (w[6].square + w[7].square));
      all.low = w[0].low, all.high = w[0].high;
      for (uint32_t i = 1; i < CU_WARPS; i++)
        all.low = HV_LEAST(all.low, w[i].low), all.high = HV_MOST(all.high, w[i].high);
      cu_level(job->room, job->count, a->level + 1)[group] = all;
    }
  }
}

HV_BLOCK void cu_join_block(cu_join_room *s, const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job;
  for (uint64_t item = r.from; item < r.to; item++) {
    j = cu_job_of(a, j, item);
    cu_join_group(s, a, &a->job[j], item - a->job[j].first);
  }
}

/* The params of SCALED_FLOAT16 and UNIFORM8, from the measure of everything. */
HV_BLOCK void cu_prepare_job(const cu_args *a, const cu_job *job) {
  cu_state *s = job->state;
  cu_measure all;
  memset(&all, 0, sizeof all);
  uint32_t level = 0;
  while (cu_at_level(job->count, level) > 1)
    level++;
  if (job->count)
    all = *cu_level(job->room, job->count, level);
  double n = job->count ? (double)job->count : 1, mean = all.sum / n, drift = all.sum * mean;
  double variance = (all.square - drift) / n, deviation = sqrt(variance > 0 ? variance : 0);
  s->mean = (float)mean;
  s->inverse = s->step = 0;
  if (a->codec == CU_SCALED) {
    float std = (float)deviation, *params = (float *)(void *)(job->chunk + CU_HEADER);
    std = std < CU_TINY ? 0 : std > CU_STD_MAX ? CU_STD_MAX : std;
    s->inverse = std > 0 ? 1 / std : 0;
    params[0] = s->mean, params[1] = std;
    return;
  }
  float above = all.high - s->mean, below = s->mean - all.low;
  double reach = above > below ? above : below, spread = 6 * deviation;
  reach = spread < reach ? spread : reach;
  if (reach >= 127 * (double)CU_TINY) {
    s->step = (float)(reach / 127);
    s->inverse = (float)(127 / reach);
  }
}
HV_BLOCK void cu_prepare_block(const cu_args *a, uint32_t block) {
  HV_EACH(t) {
    if (block * CU_THREADS + t < a->n_jobs)
      cu_prepare_job(a, &a->job[block * CU_THREADS + t]);
  }
}

/* ---- UNIFORM8 ---- */

HV_BLOCK void cu_make_uniform(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index) {
  uint32_t *bytes = (uint32_t *)(void *)s->piece.bytes;
  HV_EACH(t) {
    float x[4][4], mean = job->state->mean, inverse = job->state->inverse;
    uint64_t at = index * CU_PIECE + 4 * t, n_low = 0, n_high = 0;
    int64_t low = 0, high = 0;
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++)
      cu_load4(a->dtype, job->src, at + 4 * CU_THREADS * k, job->count, x[k]);
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      uint32_t four = 0;
      for (uint32_t i = 0; i < 4; i++) {
        float steps = cu_uniform_steps(x[k][i], mean, inverse);
        int32_t code = cu_nearest(cu_within(steps, -127, 127));
        int there = at + 4 * CU_THREADS * k + i < job->count;
        if (there && code == 127)
          n_high++, high += cu_in_256ths(steps);
        if (there && code == -127)
          n_low++, low += cu_in_256ths(steps);
        four |= there ? (uint32_t)(uint8_t)(code + 128) << 8 * i : 0;
      }
      bytes[t + CU_THREADS * k] = four;
    }
    if (n_high) {
      cu_add64(&job->state->n_high, n_high);
      cu_add64(&job->state->high, (uint64_t)high);
    }
    if (n_low) {
      cu_add64(&job->state->n_low, n_low);
      cu_add64(&job->state->low, (uint64_t)low);
    }
  }
  HV_SYNC;
}
HV_BLOCK void cu_encode_uniform_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, cu_make_uniform);
}

/* ---- BLOCKWISE8: a piece is a block ---- */

HV_BLOCK void cu_make_blockwise(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index) {
  uint32_t *bytes = (uint32_t *)(void *)s->piece.bytes;
  HV_REGS(float, x, 16);
  HV_REG(uint32_t, most);
  HV_EACH(t) {
    HV_R(most) = 0;
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++)
      cu_load4(a->dtype, job->src, index * CU_PIECE + 4 * (t + CU_THREADS * k), job->count, &HV_R(x)[4 * k]);
    HV_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
      uint32_t size = cu_bits(cu_tame(HV_R(x)[i])) & 0x7fffffff;
      HV_R(most) = HV_MOST(HV_R(most), size);
    }
  }
  HV_FOLD_WARP(uint32_t, most, HV_MOST);
  HV_EACH(t) {
    if (t % 32 == 0)
      s->most[t / 32] = HV_R(most);
  }
  HV_SYNC;
  HV_EACH(t) {
    uint32_t largest = 0;
    for (uint32_t w = 0; w < CU_WARPS; w++)
      largest = HV_MOST(largest, s->most[w]);
    float absmax = cu_float(largest);
    absmax = absmax < CU_TINY ? 0 : absmax;
    float inverse = absmax > 0 ? 1 / absmax : 0;
    if (t == 0)
      ((float *)(void *)(job->chunk + CU_HEADER))[index] = absmax;
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      uint32_t four = 0;
      for (uint32_t i = 0; i < 4; i++)
        four |= (uint32_t)cu_dynamic_of(HV_R(x)[4 * k + i], inverse) << 8 * i;
      bytes[t + CU_THREADS * k] = absmax > 0 ? four : 0;
    }
  }
  HV_SYNC;
}
HV_BLOCK void cu_encode_blockwise_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, cu_make_blockwise);
}

/* ---- LINEAR8, LINEAR4: sixteen threads hold a block of 64 ---- */

/* `each` groups of four elements for each thread, from element `start` on; a group's codes to bytes. */
HV_BLOCK void cu_make_groups(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t start, uint32_t first) {
  uint8_t *bytes = (uint8_t *)s->piece.bytes;
  float levels = a->codec == CU_LINEAR8 ? 128.0f : 8.0f;
  HV_REGS(float, x, 16);
  HV_REGS(float, low, 4);
  HV_REGS(float, high, 4);
  HV_EACH(t) {
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++)
      cu_load4(a->dtype, job->src, start + 4 * (t + CU_THREADS * (first + k)), job->count, &HV_R(x)[4 * k]);
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      HV_R(low)[k] = HV_R(high)[k] = 0;
      for (uint32_t i = 0; i < 4; i++) {
        float tame = cu_tame(HV_R(x)[4 * k + i]);
        HV_R(low)[k] = HV_LEAST(HV_R(low)[k], tame);
        HV_R(high)[k] = HV_MOST(HV_R(high)[k], tame);
      }
    }
  }
  HV_UNROLL
  for (uint32_t k = 0; k < 4; k++) {
    HV_FOLD_AT(float, low, k, 1, HV_LEAST);
    HV_FOLD_AT(float, low, k, 2, HV_LEAST);
    HV_FOLD_AT(float, low, k, 4, HV_LEAST);
    HV_FOLD_AT(float, low, k, 8, HV_LEAST);
    HV_FOLD_AT(float, high, k, 1, HV_MOST);
    HV_FOLD_AT(float, high, k, 2, HV_MOST);
    HV_FOLD_AT(float, high, k, 4, HV_MOST);
    HV_FOLD_AT(float, high, k, 8, HV_MOST);
  }
  HV_EACH(t) {
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      uint32_t group = t + CU_THREADS * (first + k), four = 0;
      uint64_t at = start + 4 * (uint64_t)group;
      uint16_t d = cu_linear_scale(HV_R(low)[k], HV_R(high)[k], levels);
      float inverse = d ? 1 / cu_bf16_to(d) : 0;
      uint32_t width = a->codec == CU_LINEAR8 ? 8 : 4, zero = a->codec == CU_LINEAR8 ? 128 : 8;
      for (uint32_t i = 0; i < 4; i++) {
        uint32_t code = (uint32_t)(cu_linear_of(HV_R(x)[4 * k + i], inverse, levels) + (int32_t)zero);
        four |= at + i < job->count ? code << width * i : 0;
      }
      if (a->codec == CU_LINEAR8)
        ((uint32_t *)(void *)bytes)[group] = four;
      else
        ((uint16_t *)(void *)bytes)[group] = (uint16_t)four;
      if (t % 16 == 0 && at < job->count)
        ((uint16_t *)(void *)(job->chunk + CU_HEADER))[at / CU_LINEAR] = d;
    }
  }
}
HV_BLOCK void cu_make_linear(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index) {
  uint64_t start = index * (a->codec == CU_LINEAR8 ? CU_PIECE : 2 * CU_PIECE);
  cu_make_groups(s, a, job, start, 0);
  if (a->codec == CU_LINEAR4)
    cu_make_groups(s, a, job, start, 4);
  HV_SYNC;
}
HV_BLOCK void cu_encode_linear_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, cu_make_linear);
}

#endif
