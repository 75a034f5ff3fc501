/* The kernels that decode chunks and add up values: DECODE, ADD, FINITE, FEED, GATHER, WEIGH, LIMIT.
 *
 * Room: cuda (uses block). Included by kernels.cu and by the tests' stand-in for the host.  A unit is 4,096 elements: four times
 * four for each thread, so that a warp reads and writes what lies together.
 */
#ifndef HV_CUDA_BODY_DECODE_H
#define HV_CUDA_BODY_DECODE_H

#include "cuda/block.h"

#define CU_INPUTS 16

/* ---- four values of a chunk ---- */

HV_BLOCK void cu_codes8(const uint8_t *body, uint64_t at, uint64_t count, uint8_t codes[4]) {
  uint32_t v = 0;
  if (at + 4 <= count)
    v = *(const uint32_t *)(const void *)(body + at);
  else
    for (uint32_t i = 0; i < 4; i++)
      v |= at + i < count ? (uint32_t)body[at + i] << 8 * i : 0;
  for (uint32_t i = 0; i < 4; i++)
    codes[i] = (uint8_t)(v >> 8 * i);
}

HV_BLOCK void cu_linear4(const uint8_t *chunk, const uint8_t *body, int codec, uint64_t at, uint64_t count, float v[4]) {
  float scale = cu_bf16_to(((const uint16_t *)(const void *)(chunk + CU_HEADER))[at / CU_LINEAR]);
  uint8_t codes[4];
  if (codec == CU_LINEAR8) {
    cu_codes8(body, at, count, codes);
  } else {
    uint32_t both = at + 4 <= count ? *(const uint16_t *)(const void *)(body + at / 2)
                                    : body[at / 2] | (at + 2 < count ? (uint32_t)body[at / 2 + 1] << 8 : 0);
    for (uint32_t i = 0; i < 4; i++)
      codes[i] = (uint8_t)(both >> 4 * i & 15);
  }
  for (uint32_t i = 0; i < 4; i++)
    v[i] = (float)((int32_t)codes[i] - (codec == CU_LINEAR8 ? 128 : 8)) * scale;
}

/* Elements at .. at + 3 < count + 3 of a chunk as float32; book: 256 entries, of the codecs that have them. */
HV_BLOCK void cu_decode4(const uint8_t *chunk, int codec, int dtype, const float *book, uint64_t at, uint64_t count, float v[4]) {
  const uint8_t *head = chunk + CU_HEADER;
  cu_rows rows = {0, 0};
  if (codec == CU_ROWS)
    rows = *(const cu_rows *)(const void *)head;
  const uint8_t *body = head + cu_head_bytes(codec, count, rows);
  if (codec == CU_NONE || codec == CU_FLOAT16 || codec == CU_BFLOAT16) {
    cu_load4(codec == CU_NONE ? dtype : codec == CU_FLOAT16 ? CU_F16 : CU_BF16, body, at, count, v);
  } else if (codec == CU_SCALED || codec == CU_ROWS) {
    uint64_t four = 0;
    for (uint32_t i = 0; i < 4 && at + 4 > count; i++)
      four |= at + i < count ? (uint64_t)((const uint16_t *)(const void *)body)[at + i] << 16 * i : 0;
    four = at + 4 > count ? four : cu_read8((const uint16_t *)(const void *)body + at);
    const uint8_t *scale = codec == CU_ROWS ? head + sizeof rows : head;
    for (uint32_t i = 0; i < 4; i++) {
      const uint8_t *of = codec == CU_ROWS ? scale + 8 * cu_rows_at(rows, at + i < count ? at + i : at) : scale;
      v[i] = cu_scaled_to((uint16_t)(four >> 16 * i), cu_head_float(of, 1), cu_head_float(of, 0));
    }
  } else if (codec == CU_LINEAR8 || codec == CU_LINEAR4) {
    cu_linear4(chunk, body, codec, at, count, v);
  } else {
    uint8_t codes[4];
    cu_codes8(body, at, count, codes);
    if (codec == CU_UNIFORM8) {
      float mean = cu_head_float(head, 0), step = cu_head_float(head, 1), low = cu_head_float(head, 2),
            high = cu_head_float(head, 3);
      for (uint32_t i = 0; i < 4; i++)
        v[i] = cu_uniform_to(codes[i], mean, step, low, high);
    } else {
      float factor = codec == CU_BLOCKWISE8 ? cu_head_float(head, (uint32_t)(at / CU_UNIT)) : 1;
      for (uint32_t i = 0; i < 4; i++)
        v[i] = book[codes[i]] * factor;
    }
  }
}

HV_BLOCK void cu_book(float *book, const uint8_t *chunk, int codec) {
  HV_EACH(t) {
    if (codec == CU_QUANTILE8)
      book[t] = cu_head_float(chunk + CU_HEADER, t);
    else if (codec == CU_BLOCKWISE8)
      book[t] = cu_dynamic_entry(t);
  }
}

/* ---- DECODE ---- */

/* The code below is compiled for each codec by itself: `codec` is a constant where it is called. */
#define CU_BY_CODEC(codec, call)                                                                                                   \
  switch (codec) {                                                                                                                 \
  case CU_NONE:                                                                                                                    \
    call(CU_NONE);                                                                                                                 \
    break;                                                                                                                         \
  case CU_FLOAT16:                                                                                                                 \
    call(CU_FLOAT16);                                                                                                              \
    break;                                                                                                                         \
  case CU_SCALED:                                                                                                                  \
    call(CU_SCALED);                                                                                                               \
    break;                                                                                                                         \
  case CU_BFLOAT16:                                                                                                                \
    call(CU_BFLOAT16);                                                                                                             \
    break;                                                                                                                         \
  case CU_UNIFORM8:                                                                                                                \
    call(CU_UNIFORM8);                                                                                                             \
    break;                                                                                                                         \
  case CU_QUANTILE8:                                                                                                               \
    call(CU_QUANTILE8);                                                                                                            \
    break;                                                                                                                         \
  case CU_BLOCKWISE8:                                                                                                              \
    call(CU_BLOCKWISE8);                                                                                                           \
    break;                                                                                                                         \
  case CU_LINEAR8:                                                                                                                 \
    call(CU_LINEAR8);                                                                                                              \
    break;                                                                                                                         \
  case CU_ROWS:                                                                                                                    \
    call(CU_ROWS);                                                                                                                 \
    break;                                                                                                                         \
  default:                                                                                                                         \
    call(CU_LINEAR4);                                                                                                              \
    break;                                                                                                                         \
  }

/* Where group k of this thread lies in a unit; behind the last element: where the first group does, which is there. */
HV_BLOCK uint64_t cu_group(uint64_t unit, uint32_t t, uint32_t k, uint64_t count) {
  uint64_t at = unit * CU_UNIT + 4 * (t + CU_THREADS * k);
  return at < count ? at : unit * CU_UNIT;
}

/* The four groups of a thread. */
HV_BLOCK void cu_decode_groups(float v[4][4], const float *book, const cu_job *job, uint64_t unit, uint32_t t, int codec) {
  HV_UNROLL
  for (uint32_t k = 0; k < 4; k++)
    cu_decode4(job->chunk, codec, job->dtype, book, cu_group(unit, t, k, job->count), job->count, v[k]);
}

/* All four groups are fetched before the first is written. The writing is there once for all codecs: it is most of the code. */
#define CU_DECODE_IT(codec) cu_decode_groups(v, book, job, unit, t, codec)
HV_BLOCK void cu_decode_unit(const float *book, const cu_args *a, const cu_job *job, uint64_t unit) {
  HV_EACH(t) {
    float v[4][4];
    CU_BY_CODEC(job->codec, CU_DECODE_IT)
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      uint64_t at = unit * CU_UNIT + 4 * (t + CU_THREADS * k);
      if (a->mode & CU_MODE_LOSE && at < job->count) {
        float was[4];
        cu_load4(CU_F32, job->residual, at, job->count, was);
        for (uint32_t i = 0; i < 4; i++)
          was[i] = was[i] - v[k][i];
        cu_store4(CU_F32, job->residual, at, job->count, was);
      } else if (at < job->count) {
        cu_store4(a->dtype, job->out, at, job->count, v[k]);
      }
    }
  }
}

/* NONE into its own dtype keeps every bit, of a NaN too. */
HV_BLOCK void cu_copy_unit(const cu_job *job, uint64_t unit) {
  uint32_t size = cu_size_of(job->dtype), each = CU_UNIT * size / 16 / CU_THREADS;
  const uint8_t *from = job->chunk + CU_HEADER;
  uint8_t *to = (uint8_t *)job->out;
  uint64_t end = job->count * size;
  HV_EACH(t) {
    for (uint32_t k = 0; k < each; k++) {
      uint64_t at = unit * CU_UNIT * size + 16 * (uint64_t)(t + CU_THREADS * k);
      if (at < end) {
        uint32_t n = end - at < 16 ? (uint32_t)(end - at) : 16;
        cu_16 v = cu_read_some(from + at, n);
        if (n == 16 && (uintptr_t)to % 16 == 0)
          cu_write16(to + at, v);
        else
          for (uint32_t i = 0; i < 16; i++)
            if (i < n)
              to[at + i] = (uint8_t)(v.w[i / 4] >> i % 4 * 8);
      }
    }
  }
}

HV_BLOCK void cu_decode_block(float *book, const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job, booked = CU_JOBS;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    const cu_job *job = &a->job[j];
    if (job->verdict && *job->verdict)
      continue;
    if (booked != j && (job->codec == CU_QUANTILE8 || job->codec == CU_BLOCKWISE8)) {
      HV_SYNC; /* the book before may still be read */
      cu_book(book, job->chunk, job->codec);
      HV_SYNC;
    }
    booked = j;
    if (job->codec == CU_NONE && job->dtype == a->dtype && !(a->mode & CU_MODE_LOSE))
      cu_copy_unit(job, item - job->first);
    else
      cu_decode_unit(book, a, job, item - job->first);
  }
}

/* ---- ADD ---- */

/* One input onto the sums that a thread holds. */
HV_BLOCK void cu_add_part(float acc[4][4], const cu_part *part, const float *book, uint64_t unit, uint32_t t, uint64_t count,
                          int codec) {
  float v[4][4];
  HV_UNROLL
  for (uint32_t k = 0; k < 4; k++)
    cu_decode4(part->chunk, codec, part->dtype, book, cu_group(unit, t, k, count), count, v[k]);
  HV_UNROLL
  for (uint32_t k = 0; k < 4; k++)
    for (uint32_t i = 0; i < 4; i++) {
      float product = part->weight * v[k][i];
      acc[k][i] = acc[k][i] + product;
    }
}

#define CU_ADD_IT(codec) cu_add_part(acc, &part[p], books + 256 * p, unit, t, job->count, codec)
HV_BLOCK void cu_add_unit(const float *books, const cu_args *a, const cu_job *job, uint64_t unit) {
  const cu_part *part = &a->part[job->input];
  HV_EACH(t) {
    float acc[4][4];
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++)
      cu_load4(CU_F32, job->out, cu_group(unit, t, k, job->count), job->count, acc[k]);
    for (uint32_t p = 0; p < job->n_inputs; p++) {
      if (part[p].verdict && *part[p].verdict)
        continue;
      CU_BY_CODEC(part[p].codec, CU_ADD_IT)
    }
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++)
      if (unit * CU_UNIT + 4 * (t + CU_THREADS * k) < job->count)
        cu_store4(CU_F32, job->out, unit * CU_UNIT + 4 * (t + CU_THREADS * k), job->count, acc[k]);
  }
}

HV_BLOCK void cu_add_block(float *books, const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job, booked = CU_JOBS;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    const cu_job *job = &a->job[j];
    if (booked != j) {
      HV_SYNC;
      for (uint32_t p = 0; p < job->n_inputs; p++)
        cu_book(books + 256 * p, a->part[job->input + p].chunk, a->part[job->input + p].codec);
      HV_SYNC;
      booked = j;
    }
    cu_add_unit(books, a, job, item - job->first);
  }
}

/* ---- WEIGH and LIMIT: may a chunk's values, or those of a row, count? ---- */

typedef struct cu_weigh_room {
  cu_16 values[CU_UNIT / 4];
  float book[256];
} cu_weigh_room;

/* The values of this thread, zeros behind the last one. */
HV_BLOCK uint32_t cu_weigh4(cu_weigh_room *s, const cu_job *job, uint64_t unit, uint32_t group) {
  uint64_t at = unit * CU_UNIT + 4 * (uint64_t)group;
  float v[4] = {0, 0, 0, 0};
  uint32_t most = 0;
  cu_16 bits;
#define CU_WEIGH_IT(codec) cu_decode4(job->chunk, codec, job->dtype, s->book, at, job->count, v)
  if (job->src)
    cu_load4(CU_F32, job->src, at, job->count, v);
  else if (at < job->count)
    CU_BY_CODEC(job->codec, CU_WEIGH_IT)
  for (uint32_t i = 0; i < 4; i++) {
    bits.w[i] = at + i < job->count ? cu_bits(v[i]) : 0;
    most = HV_MOST(most, bits.w[i] & 0x7fffffff);
  }
  s->values[group] = bits;
  return most;
}

/* Squares by STATS of each 1,024: a warp for each. */
HV_BLOCK void cu_weigh_unit(cu_weigh_room *s, const cu_job *job, uint64_t unit) {
  HV_REG(uint32_t, most);
  HV_REG(double, square);
  HV_EACH(t) {
    HV_R(most) = 0;
    for (uint32_t k = 0; k < 4; k++) {
      uint32_t size = cu_weigh4(s, job, unit, t + CU_THREADS * k);
      HV_R(most) = HV_MOST(HV_R(most), size);
    }
  }
  HV_FOLD_WARP(uint32_t, most, HV_MOST);
  HV_SYNC;
  HV_EACH(t) {
    HV_R(square) = 0;
    for (uint32_t i = 0; t < 4 * 32 && i < CU_SLICE / 32; i++) {
      uint32_t at = t / 32 * CU_SLICE + t % 32 + 32 * i;
      double y = (double)cu_tame(cu_float(s->values[at / 4].w[at % 4])), product = y * y;
      HV_R(square) = HV_R(square) + product;
    }
  }
  HV_FOLD_WARP(double, square, HV_SUM);
  HV_EACH(t) {
    uint64_t slice = 4 * unit + t / 32;
    if (t % 32 == 0 && t < 4 * 32 && slice < cu_slices(job->count))
      ((double *)(void *)job->room)[slice] = HV_R(square);
    if (t % 32 == 0 && HV_R(most))
      cu_max32(&job->state->most_high, HV_R(most));
  }
  HV_SYNC; /* the next unit's values take this one's place */
}

HV_BLOCK void cu_weigh_block(cu_weigh_room *s, const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job, booked = CU_JOBS;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    const cu_job *job = &a->job[j];
    if (*job->verdict)
      continue;
    if (booked != j && !job->src) {
      cu_book(s->book, job->chunk, job->codec);
      HV_SYNC;
    }
    booked = j;
    cu_weigh_unit(s, job, item - job->first);
  }
}

typedef struct cu_limit_room {
  double square[CU_SLICE];
} cu_limit_room;

/* Block `block` is job `block`. The sums are added up in order, by one thread. */
HV_BLOCK void cu_limit_block(cu_limit_room *s, const cu_args *a, uint32_t block) {
  const cu_job *job = &a->job[block];
  const double *from = (const double *)(const void *)job->room;
  uint64_t n = cu_slices(job->count);
  HV_REG(double, square);
  if (*job->verdict)
    return;
  HV_EACH(t) HV_R(square) = 0;
  for (uint64_t start = 0; start < n; start += CU_SLICE) {
    uint32_t some = n - start < CU_SLICE ? (uint32_t)(n - start) : CU_SLICE;
    HV_EACH(t) {
      for (uint32_t i = t; i < some; i += CU_THREADS)
        s->square[i] = from[start + i];
    }
    HV_SYNC;
    HV_EACH(t) {
      for (uint32_t i = 0; t == 0 && i < some; i++)
        HV_R(square) = HV_R(square) + s->square[i];
    }
    HV_SYNC;
  }
  HV_EACH(t) {
    if (t == 0) {
      double largest = (double)cu_float(job->state->most_high) * (double)a->weight, norm = (double)a->norm_max;
      if (job->state->most_high > 0x7f7fffff)
        *job->verdict = CU_NOT_FINITE;
      else if (largest > CU_ADDEND_MAX || (norm > 0 && HV_R(square) > norm * norm))
        *job->verdict = CU_TOO_LARGE;
    }
  }
}

/* ---- plain tensors ---- */

/* 1 when one of the four is not finite. */
HV_BLOCK uint32_t cu_wild4(const float x[4]) {
  uint32_t wild = 0;
  for (uint32_t i = 0; i < 4; i++)
    wild |= (cu_bits(x[i]) & 0x7fffffff) > 0x7f7fffff;
  return wild;
}

HV_BLOCK void cu_finite_block(const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job;
  HV_REG(uint32_t, wild);
  HV_EACH(t) HV_R(wild) = 0;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    const cu_job *job = &a->job[j];
    HV_EACH(t) {
      HV_UNROLL
      for (uint32_t k = 0; k < 4; k++) {
        float x[4];
        cu_load4(a->dtype, job->src, (item - job->first) * CU_UNIT + 4 * (t + CU_THREADS * k), job->count, x);
        HV_R(wild) |= cu_wild4(x);
      }
    }
  }
  HV_EACH(t) {
    if (HV_R(wild))
      cu_or32(a->flag, 1);
  }
}

HV_BLOCK void cu_feed_block(const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job;
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    j = cu_job_of(a, j, item);
    const cu_job *job = &a->job[j];
    HV_EACH(t) {
      for (uint32_t k = 0; k < 4; k++) {
        uint64_t at = (item - job->first) * CU_UNIT + 4 * (t + CU_THREADS * k);
        float x[4], rest[4];
        if (at < job->count) {
          cu_load4(a->dtype, job->src, at, job->count, x);
          cu_load4(CU_F32, job->residual, at, job->count, rest);
          for (uint32_t i = 0; i < 4; i++)
            rest[i] = cu_tame(rest[i] + x[i]);
          cu_store4(CU_F32, job->residual, at, job->count, rest);
        }
      }
    }
  }
}

HV_BLOCK void cu_gather_unit(const cu_gather *g, const cu_tensor *tensor, uint64_t unit) {
  HV_EACH(t) {
    HV_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
      uint64_t at = unit * CU_UNIT + 4 * (t + CU_THREADS * k);
      if (at < tensor->count) {
        float x[4] = {0, 0, 0, 0}, acc[4];
        if (g->mode != CU_GATHER_CLEAR) /* nobody has written there yet */
          cu_load4(g->mode == CU_GATHER_NARROW ? CU_F32 : g->dtype, tensor->src, at, tensor->count, x);
        if (g->mode == CU_GATHER_ADD) {
          cu_load4(CU_F32, tensor->acc, at, tensor->count, acc);
          for (uint32_t i = 0; i < 4; i++) {
            float product = g->weight * x[i];
            x[i] = acc[i] + product;
          }
        }
        for (uint32_t i = 0; i < 4; i++)
          x[i] = g->mode == CU_GATHER_SCALE ? g->weight * x[i] : x[i];
        cu_store4(g->mode == CU_GATHER_NARROW ? g->dtype : CU_F32, tensor->acc, at, tensor->count, x);
      }
    }
  }
}

HV_BLOCK void cu_gather_block(const cu_gather *g, uint32_t block) {
  uint64_t each = (g->items + g->blocks - 1) / g->blocks, from = each * block, to = from + each < g->items ? from + each : g->items;
  uint32_t low = 0, high = g->n_tensors;
  if (g->verdict && *g->verdict)
    return;
  while (low + 1 < high) {
    uint32_t middle = (low + high) / 2;
    if (g->tensor[middle].first <= from)
      low = middle;
    else
      high = middle;
  }
  for (uint64_t item = from; item < to; item++) {
    while (low + 1 < g->n_tensors && item >= g->tensor[low + 1].first)
      low++;
    cu_gather_unit(g, &g->tensor[low], item - g->tensor[low].first);
  }
}

#endif
