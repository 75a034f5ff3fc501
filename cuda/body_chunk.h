/* The kernels of a chunk's checksum and header: BEGIN, SUM and SEAL make them, and JUDGE checks those of a chunk that arrived.
 *
 * Room: cuda (uses block). Included by kernels.cu and by the tests' stand-in for the host. block.h defines the macros HV_BLOCK (a
 * function of the device), HV_EACH (code that each thread t of the block runs), HV_REG and HV_R (a value of each thread), HV_SYNC
 * (a barrier), and cu_share (the items of a block). Its cu_piece_room, cu_pieces_begin, cu_piece, cu_pieces_join and cu_pieces_end
 * sum pieces, of which `waiting` counts those that are not joined yet.
 * Terms: kernel.h (job, item, piece, verdict); kern/codec.h (head, body, checksum).
 */
#ifndef HV_CUDA_BODY_CHUNK_H
#define HV_CUDA_BODY_CHUNK_H

#include "cuda/block.h"

/* BEGIN: zeroes the states of the jobs, and the last 16 bytes of each head that will be written, part of which may be padding.
 * Writes the rows of SCALED_ROWS. */
HV_BLOCK void cu_begin_block(const cu_args *a, uint32_t block) {
  HV_EACH(t) {
    uint32_t i = block * CU_THREADS + t;
    if (i < a->n_jobs) {
      const cu_job *job = &a->job[i];
      cu_state zero;
      memset(&zero, 0, sizeof zero);
      *job->state = zero;
      uint64_t head = cu_head_bytes(a->codec, job->count, job->rows);
      cu_16 nothing = {{0, 0, 0, 0}};
      if (job->src && head)
        cu_write16(job->chunk + CU_HEADER + head - 16, nothing);
      if (job->src && a->codec == CU_ROWS)
        *(cu_rows *)(void *)(job->chunk + CU_HEADER) = job->rows;
    }
  }
}

/* ---- invalid and not finite values in 16 bytes ---- */

/* 1 if one of the 16-bit words in the first n_bytes, without its sign bit, is above `most`; else 0. */
HV_BLOCK uint32_t cu_halves_over(cu_16 v, uint32_t most, uint32_t n_bytes) {
  uint32_t over = 0;
  for (uint32_t i = 0; i < 8; i++)
    over |= 2 * i < n_bytes && (v.w[i / 2] >> i % 2 * 16 & 0x7fff) > most;
  return over;
}
/* 1 if one of the 32-bit words in the first n_bytes, masked, is above `most`; else 0. */
HV_BLOCK uint32_t cu_words_over(cu_16 v, uint32_t mask, uint32_t most, uint32_t n_bytes) {
  uint32_t over = 0;
  for (uint32_t i = 0; i < 4; i++)
    over |= 4 * i < n_bytes && (v.w[i] & mask) > most;
  return over;
}
/* 1 if one of 16 bytes of a body codes a value that is not finite; else 0. The codecs of 8 bits and less have no such codes. */
HV_BLOCK uint32_t cu_not_finite(int codec, int dtype, cu_16 v) {
  if (codec == CU_NONE && dtype == CU_F32)
    return cu_words_over(v, 0x7fffffff, 0x7f7fffff, 16);
  if (codec == CU_BFLOAT16 || (codec == CU_NONE && dtype == CU_BF16))
    return cu_halves_over(v, 0x7f7f, 16);
  return codec <= CU_SCALED || codec == CU_ROWS ? cu_halves_over(v, 0x7bff, 16) : 0;
}
/* 1 if words i and i + 1, which are among the first n_bytes, are no mean and std of SCALED_ROWS; else 0. */
HV_BLOCK uint32_t cu_row_misfit(cu_16 v, uint32_t i, uint32_t n_bytes) {
  float mean = cu_float(v.w[i]), std = cu_float(v.w[i + 1]);
  return 4 * i < n_bytes && !(mean >= -CU_TAME && mean <= CU_TAME && std >= 0 && std <= CU_STD_MAX);
}
/* 1 if 16 bytes of a head hold a number that no encoder writes; else 0. Of these bytes the first n_bytes are scales; the rest is
 * padding, unless the head is QUANTILE8's book. */
HV_BLOCK uint32_t cu_misfit(int codec, cu_16 v, uint32_t n_bytes) {
  if (codec == CU_BLOCKWISE8)
    return cu_words_over(v, 0xffffffff, 0x7e800000, n_bytes);
  if (codec == CU_LINEAR8 || codec == CU_LINEAR4)
    return cu_halves_over(v, codec == CU_LINEAR8 ? 0x7b00 : 0x7d00, n_bytes);
  if (codec == CU_ROWS)
    return cu_row_misfit(v, 0, n_bytes) | cu_row_misfit(v, 2, n_bytes);
  return codec == CU_QUANTILE8 ? cu_words_over(v, 0x7fffffff, 0x7f7fffff, 16) : 0;
}

/* ---- SUM ---- */

/* Adds piece `index` of a job to the checksum, and notes invalid values in the job's state. The indices count the pieces of the
 * head first, then those of the body. */
HV_BLOCK void cu_sum_piece(cu_piece_room *s, uint32_t *waiting, const cu_job *job, uint64_t index) {
  uint64_t head = cu_head_bytes(job->codec, job->count, job->rows), in_head = (head + CU_PIECE - 1) / CU_PIECE;
  int of_head = index < in_head;
  uint64_t at = (of_head ? index : index - in_head) * CU_PIECE;
  uint64_t size = of_head ? head : cu_body_bytes(job->codec, job->dtype, job->count);
  const uint8_t *from = job->chunk + CU_HEADER + (of_head ? 0 : head) + at;
  uint32_t n = size - at < CU_PIECE ? (uint32_t)(size - at) : CU_PIECE;
  uint32_t params = job->codec == CU_ROWS ? 16 : 0; /* which JUDGE looks at */
  uint64_t scales = of_head && (params || !cu_param_bytes(job->codec))
                        ? params + cu_scale_bytes(job->codec, job->count, job->rows) - at
                        : CU_PIECE;
  HV_REG(cu_16, bytes);
  HV_EACH(t) {
    cu_16 v = HV_R(bytes) = cu_read_some(from + 16 * t, n > 16 * t ? n - 16 * t : 0);
    uint32_t n_scales = scales > 16 * t ? (scales - 16 * t < 16 ? (uint32_t)(scales - 16 * t) : 16) : 0;
    n_scales = at + 16 * t < params ? 0 : n_scales;
    uint32_t bad =
        of_head ? cu_misfit(job->codec, v, n_scales) * CU_BAD_FIT : cu_not_finite(job->codec, job->dtype, v) * CU_BAD_FINITE;
    if (bad)
      cu_or32(&job->state->bad, bad);
  }
  cu_piece(s, waiting, of_head ? CU_HEAD_INDEX + index : index - in_head, bytes);
}

/* SUM: the pieces of this block. */
HV_BLOCK void cu_sum_block(cu_piece_room *s, const cu_args *a, uint32_t block) {
  cu_range r = cu_share(a, block);
  uint32_t j = r.job, waiting = 0;
  cu_pieces_begin(s);
  for (uint64_t item = r.from; item < r.to; item += r.step) {
    uint32_t next = cu_job_of(a, j, item);
    if (next != j)
      cu_pieces_end(s, &waiting, a->job[j].state);
    j = next;
    cu_sum_piece(s, &waiting, &a->job[j], item - a->job[j].first);
  }
  if (r.from < r.to)
    cu_pieces_end(s, &waiting, a->job[j].state);
}

/* ---- the header ---- */

/* The first 24 bytes of a chunk, as three words. */
HV_BLOCK void cu_header(uint64_t w[3], int codec, int dtype, uint64_t count, cu_rows rows) {
  w[0] = 0x31635648u | (uint64_t)1 << 32 | (uint64_t)codec << 40 | (uint64_t)dtype << 48;
  w[1] = count;
  w[2] = CU_HEADER + cu_head_bytes(codec, count, rows);
}
/* The checksum, from the sum over all pieces and these three words. */
HV_BLOCK uint64_t cu_whole_sum(uint64_t sum, const uint64_t w[3]) {
  for (uint32_t i = 0; i < 3; i++)
    sum += cu_mix(w[i] + (i + 1) * CU_G);
  return cu_mix(sum);
}

/* UNIFORM8: the value of an end code under which n values have the sum `steps`, a signed number of 1/256 steps from the mean. If n
 * is 0, it is `usual` steps from the mean. */
HV_BLOCK float cu_uniform_end(const cu_state *state, uint64_t n, uint64_t steps, double usual) {
  double k = n ? (double)(int64_t)steps / (256 * (double)n) : usual;
  double far = k * (double)state->step;
  return (float)((double)state->mean + far);
}

/* SEAL: writes UNIFORM8's parameters, adds a head of at most one piece to the checksum (CU_K_SUM did longer ones), and writes the
 * header. Block `block` does job `block`. */
HV_BLOCK void cu_seal_block(cu_piece_room *s, const cu_args *a, uint32_t block) {
  const cu_job *job = &a->job[block];
  uint64_t head = cu_head_bytes(a->codec, job->count, job->rows);
  float *params = (float *)(void *)(job->chunk + CU_HEADER);
  HV_EACH(t) {
    if (t == 0 && a->codec == CU_UNIFORM8) {
      const cu_state *state = job->state;
      params[0] = state->mean;
      params[1] = state->step;
      params[2] = cu_uniform_end(state, state->n_low, state->low, -127);
      params[3] = cu_uniform_end(state, state->n_high, state->high, 127);
    }
  }
  cu_pieces_begin(s);
  HV_SYNC;
  if (head && head <= CU_PIECE) { /* longer ones were summed before */
    uint32_t waiting = 0;
    HV_REG(cu_16, bytes);
    HV_EACH(t) {
      HV_R(bytes) = cu_read_some(job->chunk + CU_HEADER + 16 * t, head > 16 * t ? (uint32_t)head - 16 * t : 0);
    }
    cu_piece(s, &waiting, CU_HEAD_INDEX, bytes);
    cu_pieces_join(s, &waiting);
  }
  HV_EACH(t) {
    if (t == 0) {
      uint64_t *out = (uint64_t *)(void *)job->chunk, w[3];
      cu_header(w, a->codec, a->named, job->count, job->rows);
      out[0] = w[0], out[1] = w[1], out[2] = w[2];
      out[3] = cu_whole_sum(job->state->sum + cu_pieces_sum(s), w);
    }
  }
}

/* ---- JUDGE ---- */

/* True if the parameters of SCALED_FLOAT16 or UNIFORM8 are ones that an encoder may write. */
HV_BLOCK int cu_params_fit(int codec, const uint8_t *head) {
  float a = cu_head_float(head, 0), b = cu_head_float(head, 1);
  if (codec == CU_SCALED)
    return a >= -CU_TAME && a <= CU_TAME && b >= 0 && b <= CU_STD_MAX;
  float c = cu_head_float(head, 2), d = cu_head_float(head, 3), most = 0x1.fffffep127f;
  return a >= -CU_TAME && a <= CU_TAME && b >= 0 && b <= 0x1p127f / 127 && c >= -most && c <= most && d >= -most && d <= most;
}

/* JUDGE: sets the verdict of each job, one thread for each. */
HV_BLOCK void cu_judge_block(const cu_args *a, uint32_t block) {
  HV_EACH(t) {
    uint32_t i = block * CU_THREADS + t;
    if (i < a->n_jobs) {
      const cu_job *job = &a->job[i];
      const uint64_t *in = (const uint64_t *)(const void *)job->chunk;
      uint64_t w[3];
      int fits = !(job->state->bad & CU_BAD_FIT), verdict = CU_FINE;
      cu_header(w, job->codec, job->dtype, job->count, job->rows);
      if (job->codec == CU_SCALED || job->codec == CU_UNIFORM8)
        fits = fits && cu_params_fit(job->codec, job->chunk + CU_HEADER);
      int same = in[0] == w[0] && in[1] == w[1] && in[2] == w[2];
      if (same && job->codec == CU_ROWS)
        same = in[4] == job->rows.width && in[5] == job->rows.first;
      if (!same)
        verdict = CU_MALFORMED;
      else if (cu_whole_sum(job->state->sum, w) != in[3])
        verdict = CU_CORRUPT;
      else if (!fits)
        verdict = CU_MALFORMED;
      else if (a->mode & CU_MODE_FINITE && job->state->bad & CU_BAD_FINITE)
        verdict = CU_NOT_FINITE;
      *job->verdict = verdict;
    }
  }
}

#endif
