/* QUANTILE8 on the device: RANGE and BOOK make the book that kern/codec_quantile.c defines, and ENCODE_QUANTILE uses it.
 *
 * Room: cuda (uses block, body_encode). Included by kernels.cu and by the tests' stand-in for the host. Sums of floats have the
 * order of codec_quantile.c; sums of integers need no order. block.h explains HV_BLOCK, HV_EACH, HV_REG, HV_R, HV_SYNC and
 * HV_FOLD_WARP.
 * Terms: a cell is a range of floats that agree in sign, exponent and nine bits of mantissa; cells are numbered by value. `base`
 * is the float's bits >> 14 up to which a magnitude counts as zero. A bin is CU_BIN cells. Splits are the cells at which the range
 * of values is divided into CU_SPLITS parts of equal weight. Edges are the splits, with a code for zero alone: code c has the
 * cells edges[c] to edges[c + 1] - 1. The table gives the code of each cell, and the book the value of each code.
 */
#ifndef HV_CUDA_BODY_QUANTILE_H
#define HV_CUDA_BODY_QUANTILE_H

#include "cuda/body_encode.h"

#define CU_ZERO (CU_CELLS / 2) /* the cells CU_ZERO - 1 and CU_ZERO count as zero */
#define CU_BIN 32              /* cells of a bin */
#define CU_BINS (CU_CELLS / CU_BIN)
#define CU_SPLITS 254   /* parts; the two codes left are that of zero, and one more if zero divides a part */
#define CU_RUN 16       /* neighbours in a sample of a larger tensor */
#define CU_PSEUDO 0.125 /* added to the count of each bin, so that values outside the sample get codes, too */

typedef struct cu_book_room {
  uint32_t bins[CU_BINS];                       /* values of the sample in each bin */
  double weights[CU_BINS], before[CU_BINS + 1]; /* before[i]: the sum of the weights before bin i */
  int32_t split[CU_SPLITS + 1], edges[257];
  uint32_t counts[256]; /* values of the sample under each code */
  uint64_t sums[256];   /* their sums, signed fixed-point numbers (cu_fixed_point) */
} cu_book_room;

typedef struct cu_quantile_room {
  cu_piece_room piece;
  uint8_t table[CU_CELLS];
} cu_quantile_room;

/* ---- RANGE ---- */

/* RANGE: widens the range of a job's state by one unit. */
HV_BLOCK void cu_range_unit(const cu_args *a, const cu_job *job, uint64_t unit) {
  HV_REG(uint32_t, low);
  HV_REG(uint32_t, high);
  HV_EACH(t) {
    HV_R(low) = HV_R(high) = 0;
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      float x[4];
      cu_load4(a->dtype, job->src, unit * CU_UNIT + 4 * (t + CU_THREADS * k), job->count, x);
      for (uint32_t i = 0; i < 4; i++) {
        uint32_t b = cu_bits(cu_tame(x[i])), size = b & 0x7fffffff;
        if (b >> 31)
          HV_R(low) = HV_MOST(HV_R(low), size);
        else
          HV_R(high) = HV_MOST(HV_R(high), size);
      }
    }
  }
  HV_FOLD_WARP(uint32_t, low, HV_MOST);
  HV_FOLD_WARP(uint32_t, high, HV_MOST);
  HV_EACH(t) {
    if (t % 32 == 0 && HV_R(low))
      cu_max32(&job->state->most_low, HV_R(low));
    if (t % 32 == 0 && HV_R(high))
      cu_max32(&job->state->most_high, HV_R(high));
  }
}
HV_BLOCK void cu_range_block(const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    cu_range_unit(a, &a->job[j], item - a->job[j].first);
  }
}

/* ---- BOOK ---- */

/* The value at which a cell begins. */
HV_BLOCK double cu_edge_of(int32_t cell, int32_t base) {
  int32_t away = cell < CU_ZERO ? CU_ZERO - cell : cell - CU_ZERO;
  int64_t bits = away && base + away > 0 ? (int64_t)(base + away) << 14 : 0;
  double value = (double)cu_float((uint32_t)bits);
  return cell < CU_ZERO ? -value : value;
}
/* The cube root of x > 0, with the operations of codec_quantile.c. */
HV_BLOCK double cu_root3(double x) {
  uint64_t bits;
  double y;
  memcpy(&bits, &x, 8);
  bits = bits / 3 + 0x2a9f7893782da1ceull;
  memcpy(&y, &bits, 8);
  for (int step = 0; step < 3; step++) {
    double cube = y * y * y, miss = cube - x, slope = 3 * y * y;
    y = y - miss / slope;
  }
  return y;
}
/* The power of 2 by which values are multiplied, so that sums of the sample are exact integers. */
HV_BLOCK double cu_fixed_point(float most) {
  uint64_t bits = (uint64_t)(1023 + 43 + 127 - (cu_bits(most) >> 23)) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return scale;
}
/* The index in the tensor of element i of the sample. */
HV_BLOCK uint64_t cu_sample_at(uint64_t count, uint32_t i) {
  if (count <= CU_SAMPLE)
    return i;
  uint64_t stride = count / (CU_SAMPLE / CU_RUN), run = i / CU_RUN;
  return run * stride + cu_mix(run + CU_K) % (stride - CU_RUN + 1) + i % CU_RUN;
}
/* The code of a cell: the largest c with edges[c] <= cell. It is a binary search of exactly eight steps without branches, so the
 * threads of a warp stay together. */
HV_BLOCK uint32_t cu_code_of(const int32_t *edges, int32_t cell) {
  uint32_t code = 0;
  HV_UNROLL
  for (uint32_t half = 128; half; half /= 2)
    code += edges[code + half] <= cell ? half : 0;
  return code;
}

/* Makes edges of the splits, with one code for the cells that count as zero. One thread does it. */
HV_BLOCK void cu_place_edges(cu_book_room *s) {
  int32_t c = 0, k = 0;
  for (; k < CU_SPLITS && s->split[k] < CU_ZERO - 1; k++)
    s->edges[c++] = s->split[k];
  s->edges[c++] = CU_ZERO - 1;
  s->edges[c++] = CU_ZERO + 1;
  for (; k < CU_SPLITS; k++)
    if (s->split[k] > CU_ZERO + 1)
      s->edges[c++] = s->split[k];
  for (; c <= 256; c++)
    s->edges[c] = CU_CELLS;
}

/* Weighs the bins of the cells first to last, and divides them into CU_SPLITS parts of equal weight: sets s->split and s->edges.
 * The weight of a bin is the cube root of its count times its squared width. */
HV_BLOCK void cu_split_cells(cu_book_room *s, int32_t first, int32_t last, int32_t base, float most) {
  HV_EACH(t) {
    for (int32_t i = first / CU_BIN + (int32_t)t; i <= last / CU_BIN; i += CU_THREADS) {
      double left = cu_edge_of(i == first / CU_BIN ? first : i * CU_BIN, base);
      double right = cu_edge_of((i + 1) * CU_BIN <= last ? (i + 1) * CU_BIN : last + 1, base),
             width = (right - left) / (double)most;
      double weight = ((double)s->bins[i] + CU_PSEUDO) * (width * width);
      s->weights[i] = cu_root3(weight + 1e-300);
    }
    for (uint32_t k = t; k <= CU_SPLITS; k += CU_THREADS)
      s->split[k] = k ? CU_CELLS : 0;
  }
  HV_SYNC;
  HV_EACH(t) {
    if (t == 0) {
      double before = 0;
      for (int32_t i = first / CU_BIN; i <= last / CU_BIN; i++) {
        s->before[i] = before;
        before = before + s->weights[i];
      }
      s->before[last / CU_BIN + 1] = before;
    }
  }
  HV_SYNC;
  HV_EACH(t) {
    double total = s->before[last / CU_BIN + 1];
    for (int32_t i = first / CU_BIN + (int32_t)t; i <= last / CU_BIN; i += CU_THREADS) {
      int32_t from = i * CU_BIN > first ? i * CU_BIN : first, to = (i + 1) * CU_BIN <= last ? (i + 1) * CU_BIN : last + 1;
      double start = s->before[i] / total * CU_SPLITS, end = s->before[i + 1] / total * CU_SPLITS;
      for (int32_t k = (int32_t)start + 1; k < CU_SPLITS && (double)k <= end; k++)
        s->split[k] = from + (int32_t)(((double)k - start) / (end - start) * (double)(to - from) + 0.5);
    }
  }
  HV_SYNC;
  HV_EACH(t) {
    if (t == 0)
      cu_place_edges(s);
  }
  HV_SYNC;
}

/* Copies n values of the sample to `sample`, and counts them in s->bins. */
HV_BLOCK void cu_take_sample(cu_book_room *s, const cu_args *a, const cu_job *job, float *sample, uint32_t n, int32_t base) {
  HV_EACH(t) {
    for (uint32_t i = t; i < CU_BINS; i += CU_THREADS)
      s->bins[i] = 0;
    s->counts[t] = 0;
    s->sums[t] = 0;
  }
  HV_SYNC;
  HV_EACH(t) {
    for (uint32_t i = t; i < n; i += 8 * CU_THREADS) {
      float x[8];
      HV_UNROLL
      for (uint32_t k = 0; k < 8; k++) /* all are on their way before the first is used */
        if (i + k * CU_THREADS < n)
          x[k] = cu_load1(a->dtype, job->src, cu_sample_at(job->count, i + k * CU_THREADS));
      HV_UNROLL
      for (uint32_t k = 0; k < 8; k++)
        if (i + k * CU_THREADS < n) {
          x[k] = cu_tame(x[k]);
          sample[i + k * CU_THREADS] = x[k];
          cu_add32(&s->bins[cu_cell(x[k], base) / CU_BIN], 1);
        }
    }
  }
  HV_SYNC;
}

/* The book's value of a code: the mean of the sample's values under it, or the middle of its cells if there are none. */
HV_BLOCK float cu_entry(const cu_book_room *s, uint32_t code, int32_t base, float low, float high, double scale) {
  double value;
  if (s->counts[code])
    value = (double)(int64_t)s->sums[code] / (double)s->counts[code] / scale;
  else
    value = (cu_edge_of(s->edges[code], base) + cu_edge_of(s->edges[code + 1], base)) / 2;
  float x = (float)value;
  return x < low ? low : x > high ? high : x;
}

/* BOOK: writes the book to the head of the chunk, and the table to job->room behind the sample. Block `block` does job `block`. */
HV_BLOCK void cu_book_block(cu_book_room *s, const cu_args *a, uint32_t block) {
  const cu_job *job = &a->job[block];
  float *sample = (float *)(void *)job->room, *head = (float *)(void *)(job->chunk + CU_HEADER);
  uint8_t *table = job->room + 4 * CU_SAMPLE;
  float low = -cu_float(job->state->most_low) + 0, high = cu_float(job->state->most_high), most = high > -low ? high : -low;
  int32_t base = (int32_t)(cu_bits(most) >> 14) - (CU_ZERO - 1);
  uint32_t n = job->count < CU_SAMPLE ? (uint32_t)job->count : CU_SAMPLE;
  HV_EACH(t) {
    if (t == 0)
      job->state->base = base;
  }
  if (!(most > 0)) { /* the book of zeros */
    HV_EACH(t) {
      head[t] = 0;
      for (uint32_t i = t; i < CU_CELLS; i += CU_THREADS)
        table[i] = 0;
    }
    return;
  }
  cu_take_sample(s, a, job, sample, n, base);
  cu_split_cells(s, (int32_t)cu_cell(low, base), (int32_t)cu_cell(high, base), base, most);
  double scale = cu_fixed_point(most);
  HV_EACH(t) {
    for (uint32_t i = 16 * t; i < CU_CELLS; i += 16 * CU_THREADS) { /* sixteen searches at a time */
      cu_16 codes = {{0, 0, 0, 0}};
      HV_UNROLL
      for (uint32_t k = 0; k < 16; k++)
        codes.w[k / 4] |= cu_code_of(s->edges, (int32_t)(i + k)) << k % 4 * 8;
      cu_write16(table + i, codes);
    }
    for (uint32_t i = t; i < n; i += 8 * CU_THREADS) {
      float x[8];
      HV_UNROLL
      for (uint32_t k = 0; k < 8; k++)
        x[k] = sample[i + k * CU_THREADS < n ? i + k * CU_THREADS : i];
      HV_UNROLL
      for (uint32_t k = 0; k < 8; k++) {
        uint32_t code = cu_code_of(s->edges, (int32_t)cu_cell(x[k], base));
        double fixed = (double)x[k] * scale;
        if (i + k * CU_THREADS < n) {
          cu_add32(&s->counts[code], 1);
          cu_add64(&s->sums[code], (uint64_t)(int64_t)((fixed + 0x1.8p52) - 0x1.8p52));
        }
      }
    }
  }
  HV_SYNC;
  HV_EACH(t) head[t] = cu_entry(s, t, base, low, high, scale);
}

/* ---- the encoder ---- */

/* Copies a job's table to shared memory. */
HV_BLOCK void cu_take_table(cu_quantile_room *s, const cu_job *job) {
  HV_SYNC; /* the table before may still be read */
  HV_EACH(t) {
    for (uint32_t i = 16 * t; i < CU_CELLS; i += 16 * CU_THREADS)
      cu_write16(s->table + i, cu_read16(job->room + 4 * CU_SAMPLE + i));
  }
  HV_SYNC;
}

/* Encodes a piece: 16 codes by each thread. */
HV_BLOCK void cu_make_quantile(cu_quantile_room *s, const cu_args *a, const cu_job *job, uint64_t index, uint32_t turn,
                               HV_ARG(cu_16, bytes)) {
  int32_t base = job->state->base;
  (void)turn;
  HV_EACH(t) {
    float x[16];
    uint64_t at = index * CU_PIECE + 16 * t;
    cu_16 v = {{0, 0, 0, 0}};
    cu_load_row(a->dtype, job->src, at, job->count, 16, x);
    HV_UNROLL
    for (uint32_t i = 0; i < 16; i++)
      v.w[i / 4] |= at + i < job->count ? (uint32_t)s->table[cu_cell(x[i], base)] << i % 4 * 8 : 0;
    HV_R(bytes) = v;
  }
}

HV_BLOCK void cu_encode_quantile_block(cu_quantile_room *s, const cu_args *a, uint32_t block) {
  CU_PIECES(s, a, block, cu_take_table, cu_make_quantile);
}

#endif
