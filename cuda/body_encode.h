/* The kernels that encode a tensor as a chunk, for all codecs but QUANTILE8.
 *
 * Room: cuda (uses block). Included by kernels.cu and by the tests' stand-in for the host. A block makes whole pieces of 4,096
 * bytes, so that it can sum them while its threads still have them; what is past the last element counts as zeros there.
 */
#ifndef HV_CUDA_BODY_ENCODE_H
#define HV_CUDA_BODY_ENCODE_H

#include "cuda/block.h"

/* Parts that all encoders share: sums of pieces, and what threads tell each other of one piece (in turn with the next). */
typedef struct cu_encode_room {
  cu_piece_room piece;
  uint32_t most[2][CU_WARPS];
} cu_encode_room;

HV_BLOCK uint8_t *cu_body_of(const cu_args *a, const cu_job *job) {
  return job->chunk + CU_HEADER + cu_head_bytes(a->codec, job->count, job->rows);
}
/* Writes a piece, and takes it into the sum. */
HV_BLOCK void cu_piece_out(cu_piece_room *s, uint32_t *waiting, const cu_args *a, const cu_job *job, uint64_t index,
                           HV_ARG(cu_16, bytes)) {
  uint64_t left = cu_body_bytes(a->codec, a->named, job->count) - index * CU_PIECE;
  uint32_t n = left < CU_PIECE ? (uint32_t)left : CU_PIECE;
  uint8_t *out = cu_body_of(a, job) + index * CU_PIECE;
  HV_EACH(t) {
    if (16 * t < n)
      cu_write_some(out + 16 * t, HV_R(bytes), n - 16 * t);
  }
  cu_piece(s, waiting, index, bytes);
}

/* Walks over this block's pieces: `make` has each thread make 16 bytes of one. `before` is done where a job begins. */
#define CU_PIECES(s, a, block, before, make)                                                                                       \
  do {                                                                                                                             \
    cu_range r_ = cu_share(a, block);                                                                                              \
    uint32_t j_ = r_.job, waiting_ = 0, begun_ = CU_JOBS;                                                                          \
    HV_REG(cu_16, bytes_);                                                                                                         \
    cu_pieces_begin(&(s)->piece);                                                                                                  \
    for (uint64_t item_ = r_.from; item_ < r_.to; item_ += r_.step) {                                                              \
      uint32_t next_ = cu_job_of(a, j_, item_);                                                                                    \
      if (next_ != j_)                                                                                                             \
        cu_pieces_end(&(s)->piece, &waiting_, (a)->job[j_].state);                                                                 \
      if (next_ != begun_)                                                                                                         \
        before(s, &(a)->job[next_]);                                                                                               \
      j_ = begun_ = next_;                                                                                                         \
      make(s, a, &(a)->job[j_], item_ - (a)->job[j_].first, waiting_ % 2, bytes_);                                                 \
      cu_piece_out(&(s)->piece, &waiting_, a, &(a)->job[j_], item_ - (a)->job[j_].first, bytes_);                                  \
    }                                                                                                                              \
    if (r_.from < r_.to)                                                                                                           \
      cu_pieces_end(&(s)->piece, &waiting_, (a)->job[j_].state);                                                                   \
  } while (0)
#define CU_NOTHING(s, job) (void)0

/* ---- 16 bits ---- */

HV_BLOCK uint16_t cu_code16(int codec, float x, float mean, float inverse) {
  return codec == CU_FLOAT16 ? cu_f16_of(x) : codec == CU_BFLOAT16 ? cu_bf16_of(x) : cu_scaled_of(x, mean, inverse);
}

HV_BLOCK void cu_make_16(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                         HV_ARG(cu_16, bytes)) {
  (void)s, (void)turn;
  HV_EACH(t) {
    float x[8], mean = a->codec == CU_SCALED ? job->state->mean : 0, inverse = a->codec == CU_SCALED ? job->state->inverse : 0;
    uint64_t at = index * (CU_PIECE / 2) + 8 * t;
    cu_16 v = {{0, 0, 0, 0}};
    cu_load_row(a->dtype, job->src, at, job->count, 8, x);
    HV_UNROLL
    for (uint32_t i = 0; i < 8; i++)
      v.w[i / 2] |= at + i < job->count ? (uint32_t)cu_code16(a->codec, x[i], mean, inverse) << i % 2 * 16 : 0;
    HV_R(bytes) = v;
  }
}

HV_BLOCK void cu_make_plain(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                            HV_ARG(cu_16, bytes)) {
  if (a->codec != CU_NONE) {
    cu_make_16(s, a, job, index, turn, bytes);
    return;
  }
  uint64_t left = cu_body_bytes(CU_NONE, a->dtype, job->count) - index * CU_PIECE;
  const uint8_t *from = (const uint8_t *)job->src + index * CU_PIECE;
  HV_EACH(t) {
    HV_R(bytes) = cu_read_some(from + 16 * t, left > 16 * t ? (left - 16 * t < 16 ? (uint32_t)(left - 16 * t) : 16) : 0);
  }
}
HV_BLOCK void cu_encode_plain_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, CU_NOTHING, cu_make_plain);
}
HV_BLOCK void cu_encode_scaled_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, CU_NOTHING, cu_make_16);
}

/* ---- statistics ---- */

/* The sum of one of 32 lanes over a unit's n elements from `at` on, as STATS says. */
HV_BLOCK void cu_measure_lane(int dtype, const void *src, uint64_t at, uint32_t n, uint32_t lane, cu_measure *m) {
  m->sum = m->square = 0;
  m->low = m->high = n ? cu_tame(cu_load1(dtype, src, at)) : 0;
  for (uint32_t i = lane; i < n; i += 256) {
    float x[8];
    HV_UNROLL
    for (uint32_t k = 0; k < 8; k++)
      x[k] = i + 32 * k < n ? cu_load1(dtype, src, at + i + 32 * k) : 0;
    HV_UNROLL
    for (uint32_t k = 0; k < 8; k++)
      if (i + 32 * k < n) {
        float tame = cu_tame(x[k]);
        double y = (double)tame, product = y * y;
        m->sum = m->sum + y;
        m->square = m->square + product;
        m->low = tame < m->low ? tame : m->low;
        m->high = tame > m->high ? tame : m->high;
      }
  }
}

/* Mean and std of n elements, as STATS and SCALED_FLOAT16 have them. The std is not limited yet. */
HV_BLOCK void cu_mean_std(double sum, double square, uint64_t count, float *mean, double *std) {
  double n = count ? (double)count : 1, middle = sum / n, drift = sum * middle;
  double variance = (square - drift) / n;
  *mean = (float)middle;
  *std = sqrt(variance > 0 ? variance : 0);
}
HV_BLOCK float cu_std_within(double deviation) {
  float std = (float)deviation;
  return std < CU_TINY ? 0 : std > CU_STD_MAX ? CU_STD_MAX : std;
}

/* An item is CU_WARPS units: a warp sums one, its lanes as STATS says. */
HV_BLOCK void cu_measure_units(const cu_args *a, const cu_job *job, uint64_t item) {
  HV_REG(double, sum);
  HV_REG(double, square);
  HV_REG(float, low);
  HV_REG(float, high);
  HV_EACH(t) {
    uint64_t at = (item * CU_WARPS + t / 32) * CU_UNIT;
    uint32_t n = at >= job->count ? 0 : job->count - at < CU_UNIT ? (uint32_t)(job->count - at) : CU_UNIT;
    cu_measure m;
    cu_measure_lane(a->dtype, job->src, at, n, t % 32, &m);
    HV_R(sum) = m.sum, HV_R(square) = m.square, HV_R(low) = m.low, HV_R(high) = m.high;
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
  for (uint64_t item = r.from; item < r.to; item += r.step) {
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
  for (uint64_t item = r.from; item < r.to; item += r.step) {
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
  double deviation;
  cu_mean_std(all.sum, all.square, job->count, &s->mean, &deviation);
  s->inverse = s->step = 0;
  if (a->codec == CU_SCALED) {
    float std = cu_std_within(deviation), *params = (float *)(void *)(job->chunk + CU_HEADER);
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

/* ---- SCALED_ROWS: a warp for each row ---- */

#define CU_TREE 26 /* levels over the units of the longest row, and one */

/* Elements of a row, which may be cut short. 0: there is no such row. */
HV_BLOCK uint64_t cu_row_size(const cu_job *job, uint64_t row) {
  uint64_t begin = cu_rows_begin(job->rows, row), size = row ? job->rows.width : job->rows.first;
  return row >= cu_rows_in(job->rows, job->count) ? 0 : job->count - begin < size ? job->count - begin : size;
}

/* Joins the statistics of a thread's next unit, whose number is `unit`, to those of the units before: a binary counter of subtrees.
 * Returns the number of subtrees. */
HV_BLOCK uint32_t cu_tree_join(double *sums, double *squares, uint32_t depth, uint64_t unit, double sum, double square) {
  sums[depth] = sum, squares[depth] = square;
  for (uint64_t ones = unit + 1; ones % 2 == 0; ones /= 2, depth--) {
    sums[depth - 1] = sums[depth - 1] + sums[depth];
    squares[depth - 1] = squares[depth - 1] + squares[depth];
  }
  return depth + 1;
}

HV_BLOCK void cu_scale_rows(const cu_args *a, const cu_job *job, uint64_t item) {
  HV_REG(double, sum);
  HV_REG(double, square);
  HV_REG(uint32_t, depth);
  HV_REGS(double, sums, CU_TREE);
  HV_REGS(double, squares, CU_TREE);
  uint64_t longest = job->rows.width < job->count ? job->rows.width : job->count;
  HV_EACH(t) HV_R(depth) = 0;
  for (uint64_t unit = 0; unit < cu_units(longest); unit++) {
    HV_EACH(t) {
      uint64_t row = item * CU_WARPS + t / 32, size = cu_row_size(job, row), at = unit * CU_UNIT;
      uint32_t n = at >= size ? 0 : size - at < CU_UNIT ? (uint32_t)(size - at) : CU_UNIT;
      cu_measure m;
      cu_measure_lane(a->dtype, job->src, cu_rows_begin(job->rows, row) + at, n, t % 32, &m);
      HV_R(sum) = m.sum, HV_R(square) = m.square;
    }
    HV_FOLD_WARP(double, sum, HV_SUM);
    HV_FOLD_WARP(double, square, HV_SUM);
    HV_EACH(t) {
      uint64_t row = item * CU_WARPS + t / 32;
      if (t % 32 == 0 && unit * CU_UNIT < cu_row_size(job, row))
        HV_R(depth) = cu_tree_join(HV_R(sums), HV_R(squares), HV_R(depth), unit, HV_R(sum), HV_R(square));
    }
  }
  HV_EACH(t) {
    uint64_t row = item * CU_WARPS + t / 32, size = cu_row_size(job, row);
    if (t % 32 == 0 && size) {
      float *scale = (float *)(void *)(job->chunk + CU_HEADER + sizeof(cu_rows) + 8 * row), mean;
      double deviation;
      for (uint32_t i = HV_R(depth) - 1; i > 0; i--) {
        HV_R(sums)[i - 1] = HV_R(sums)[i - 1] + HV_R(sums)[i];
        HV_R(squares)[i - 1] = HV_R(squares)[i - 1] + HV_R(squares)[i];
      }
      cu_mean_std(HV_R(sums)[0], HV_R(squares)[0], size, &mean, &deviation);
      scale[0] = mean, scale[1] = cu_std_within(deviation);
    }
  }
}

HV_BLOCK void cu_scale_rows_block(const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    cu_scale_rows(a, &a->job[j], item - a->job[j].first);
  }
}

HV_BLOCK void cu_make_rows(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                           HV_ARG(cu_16, bytes)) {
  (void)s, (void)turn;
  const uint8_t *scales = job->chunk + CU_HEADER + sizeof(cu_rows);
  HV_EACH(t) {
    float x[8];
    uint64_t at = index * (CU_PIECE / 2) + 8 * t;
    cu_16 v = {{0, 0, 0, 0}};
    cu_load_row(a->dtype, job->src, at, job->count, 8, x);
    HV_UNROLL
    for (uint32_t i = 0; i < 8; i++)
      if (at + i < job->count) {
        const uint8_t *scale = scales + 8 * cu_rows_at(job->rows, at + i);
        v.w[i / 2] |= (uint32_t)cu_row_code_of(x[i], cu_head_float(scale, 0), cu_head_float(scale, 1)) << i % 2 * 16;
      }
    HV_R(bytes) = v;
  }
}
HV_BLOCK void cu_encode_rows_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, CU_NOTHING, cu_make_rows);
}

/* ---- UNIFORM8 ---- */

HV_BLOCK void cu_make_uniform(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                              HV_ARG(cu_16, bytes)) {
  (void)s, (void)turn;
  HV_EACH(t) {
    float x[16], mean = job->state->mean, inverse = job->state->inverse;
    uint64_t at = index * CU_PIECE + 16 * t, n_low = 0, n_high = 0;
    int64_t low = 0, high = 0;
    cu_16 v = {{0, 0, 0, 0}};
    cu_load_row(a->dtype, job->src, at, job->count, 16, x);
    HV_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
      float steps = cu_uniform_steps(x[i], mean, inverse);
      int32_t code = cu_nearest(cu_within(steps, -127, 127));
      int there = at + i < job->count;
      if (there && code == 127)
        n_high++, high += cu_in_256ths(steps);
      if (there && code == -127)
        n_low++, low += cu_in_256ths(steps);
      v.w[i / 4] |= there ? (uint32_t)(uint8_t)(code + 128) << i % 4 * 8 : 0;
    }
    HV_R(bytes) = v;
    if (n_high) {
      cu_add64(&job->state->n_high, n_high);
      cu_add64(&job->state->high, (uint64_t)high);
    }
    if (n_low) {
      cu_add64(&job->state->n_low, n_low);
      cu_add64(&job->state->low, (uint64_t)low);
    }
  }
}
HV_BLOCK void cu_encode_uniform_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, CU_NOTHING, cu_make_uniform);
}

/* ---- BLOCKWISE8: a piece is a block ---- */

HV_BLOCK void cu_make_blockwise(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                                HV_ARG(cu_16, bytes)) {
  HV_REGS(float, x, 16);
  HV_REG(uint32_t, most);
  HV_EACH(t) {
    HV_R(most) = 0;
    cu_load_row(a->dtype, job->src, index * CU_PIECE + 16 * t, job->count, 16, HV_R(x));
    HV_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
      uint32_t size = cu_bits(cu_tame(HV_R(x)[i])) & 0x7fffffff;
      HV_R(most) = HV_MOST(HV_R(most), size);
    }
  }
  HV_FOLD_WARP(uint32_t, most, HV_MOST);
  HV_EACH(t) {
    if (t % 32 == 0)
      s->most[turn][t / 32] = HV_R(most);
  }
  HV_SYNC;
  HV_EACH(t) {
    uint32_t largest = 0;
    HV_UNROLL
    for (uint32_t w = 0; w < CU_WARPS; w++)
      largest = HV_MOST(largest, s->most[turn][w]);
    float absmax = cu_float(largest);
    absmax = absmax < CU_TINY ? 0 : absmax;
    float inverse = absmax > 0 ? 1 / absmax : 0;
    if (t == 0)
      ((float *)(void *)(job->chunk + CU_HEADER))[index] = absmax;
    cu_16 v = {{0, 0, 0, 0}};
    HV_UNROLL
    for (uint32_t i = 0; i < 16; i++)
      v.w[i / 4] |= absmax > 0 ? (uint32_t)cu_dynamic_of(HV_R(x)[i], inverse) << i % 4 * 8 : 0;
    HV_R(bytes) = v;
  }
}
HV_BLOCK void cu_encode_blockwise_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, CU_NOTHING, cu_make_blockwise);
}

/* ---- LINEAR8, LINEAR4: four threads, or two, hold a block of 64 ---- */

/* n elements for each thread: 16 or 32, a constant. */
HV_BLOCK void cu_make_linear_row(const cu_args *a, const cu_job *job, uint64_t start, uint32_t n, HV_ARG(cu_16, bytes)) {
  uint32_t width = 128 / n, zero = 1u << (width - 1);
  float levels = (float)zero;
  HV_REGS(float, x, 32);
  HV_REG(float, low);
  HV_REG(float, high);
  HV_EACH(t) {
    cu_load_row(a->dtype, job->src, start + n * t, job->count, n, HV_R(x));
    HV_R(low) = HV_R(high) = 0;
    HV_UNROLL
    for (uint32_t i = 0; i < n; i++) {
      float tame = cu_tame(HV_R(x)[i]);
      HV_R(low) = HV_LEAST(HV_R(low), tame);
      HV_R(high) = HV_MOST(HV_R(high), tame);
    }
  }
  HV_FOLD(float, low, 1, HV_LEAST);
  HV_FOLD(float, high, 1, HV_MOST);
  if (n == 16) {
    HV_FOLD(float, low, 2, HV_LEAST);
    HV_FOLD(float, high, 2, HV_MOST);
  }
  HV_EACH(t) {
    uint64_t at = start + n * t;
    uint16_t d = cu_linear_scale(HV_R(low), HV_R(high), levels);
    float inverse = d ? 1 / cu_bf16_to(d) : 0;
    cu_16 v = {{0, 0, 0, 0}};
    HV_UNROLL
    for (uint32_t i = 0; i < n; i++) {
      uint32_t code = (uint32_t)(cu_linear_of(HV_R(x)[i], inverse, levels) + (int32_t)zero);
      v.w[i * width / 32] |= at + i < job->count ? code << i * width % 32 : 0;
    }
    HV_R(bytes) = v;
    if (t % (CU_LINEAR / n) == 0 && at < job->count)
      ((uint16_t *)(void *)(job->chunk + CU_HEADER))[at / CU_LINEAR] = d;
  }
}
HV_BLOCK void cu_make_linear(cu_encode_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                             HV_ARG(cu_16, bytes)) {
  (void)s, (void)turn;
  if (a->codec == CU_LINEAR8)
    cu_make_linear_row(a, job, index * CU_PIECE, 16, bytes);
  else
    cu_make_linear_row(a, job, 2 * index * CU_PIECE, 32, bytes);
}
HV_BLOCK void cu_encode_linear_block(cu_encode_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, CU_NOTHING, cu_make_linear);
}

#endif
