/* PowerSGD, which compresses a gradient matrix into two thin matrices: choice of tensors, state of a round, arithmetic on the CPU.
 *
 * Room: kern (uses base). Used by torch/lowrank.cpp, which adds other devices and torch's threads.
 * Owner: all buffers are the caller's; at most 128 KiB of stack are used.
 * Thread: any; pure functions without state. Several threads may work on different rows or columns of one matrix.
 * Errors: NaN or Inf in a matrix makes its P not finite, which hv_lowrank_finite finds; the error matrix is not changed then.
 * Paper: Vogels, Karimireddy, Jaggi, "PowerSGD" (arXiv 1905.13727); Yamamoto et al., "CholeskyQR2" (2015).
 */
#ifndef HV_KERN_LOWRANK_H
#define HV_KERN_LOWRANK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* for torch/lowrank.cpp */
#endif

#include "base/status.h"

// clang-format off
/* A round for a gradient G (rows x cols). E is the error matrix: the part of earlier gradients that was not sent.
 * M = G + E is computed block by block and never stored.
 *   encode  P = M Q'            Q (rank x cols) is random, from a seed that all peers share. Peers average P.
 *   middle  P := an orthonormal basis of P's columns; Q = P' M. Peers average Q.
 *   decode  out = P Q; E := M - P Q
 * Only decode changes E, so a round may be repeated from any step, or abandoned.
 * The random numbers, the basis and P Q have the same bytes on every machine, so peers with the same averages get the same
 * gradients: IEEE arithmetic in a fixed order, with fused multiply-adds in P Q alone. x86 processors from before 2013 emulate those
 * instructions, slowly. P = M Q' and Q = P' M may differ in the last bit between machines, because they are averaged anyway.
 */
// clang-format on

#define HV_LOWRANK_RANK_MAX 256

/* ---- which tensors ---- */

typedef struct hv_lowrank_size {
  int64_t rows, cols;
} hv_lowrank_size;

/* The shape of a tensor as a matrix: the first dimensions become the rows, the others the columns, so that rows + cols is smallest.
 * HV_INVALID: fewer than two dimensions, a negative one, no elements, or more than 2^62. */
hv_status hv_lowrank_view(const int64_t *shape, size_t n_dims, hv_lowrank_size *out);

/* True if a tensor is worth compressing: 1 - rank (rows + cols) / (rows cols) >= min_ratio, the share of bytes saved. False if rank
 * is 0, greater than rows or cols, or greater than HV_LOWRANK_RANK_MAX. */
int hv_lowrank_takes_part(hv_lowrank_size size, int64_t rank, double min_ratio);

/* ---- the state of a round ---- */

typedef enum hv_lowrank_phase { HV_LOWRANK_IDLE, HV_LOWRANK_ENCODED, HV_LOWRANK_MIDDLE, HV_LOWRANK_PHASES } hv_lowrank_phase;
typedef enum hv_lowrank_step {
  HV_LOWRANK_ENCODE,
  HV_LOWRANK_AVERAGE_P,
  HV_LOWRANK_DECODE,
  HV_LOWRANK_ABORT,
  HV_LOWRANK_STEPS
} hv_lowrank_step;

/* Zero-initialise it. It has no pointers, so it can be saved and restored. */
typedef struct hv_lowrank_round {
  int64_t phase;     /* hv_lowrank_phase */
  int64_t open;      /* id of the open round; undefined in phase IDLE */
  int64_t committed; /* number of rounds that were decoded */
  int64_t last;      /* id of the last decoded round, if committed > 0 */
} hv_lowrank_round;

/* HV_OK if this step is allowed for the round with this id. HV_STATE with a text: another round is open, a step is missing, or the
 * round was decoded already. HV_INVALID: the struct is damaged. HV_LOWRANK_ENCODE of a new round abandons an open one. */
hv_status hv_lowrank_may(const hv_lowrank_round *round, hv_lowrank_step step, int64_t id, hv_error *err);

/* Records a step that hv_lowrank_may allowed. */
void hv_lowrank_take(hv_lowrank_round *round, hv_lowrank_step step, int64_t id);

/* ---- arithmetic ---- */

/* Fills out with n random numbers of mean 0 and variance 1 and almost normal distribution (sums of eight uniform numbers). They
 * follow from seed, round and index (of the matrix) alone. */
void hv_lowrank_sketch(uint64_t seed, int64_t round, int64_t index, float *out, size_t n);

/* True if all n numbers are finite. */
int hv_lowrank_finite(const float *x, size_t n);

/* The matrices of a round for one gradient: row-major, borrowed. grad and out may be the same memory. */
typedef struct hv_lowrank_matrix {
  const float *grad; /* rows x cols */
  float *error;      /* rows x cols: E */
  float *p;          /* rows x rank */
  float *q;          /* rank x cols */
  float *out;        /* rows x cols; set by decode */
  size_t rows, cols, rank;
} hv_lowrank_matrix;

/* The steps of a round for one kind of vector instructions, each for rows or columns [from, to). */
typedef struct hv_lowrank_kern {
  const char *name;
  void (*sketch)(uint64_t key, float *out, size_t n); /* as hv_lowrank_sketch, from a hash of its arguments */
  void (*encode_rows)(const hv_lowrank_matrix *m, size_t from, size_t to);
  void (*middle_cols)(const hv_lowrank_matrix *m, size_t from, size_t to);
  void (*decode_rows)(const hv_lowrank_matrix *m, size_t from, size_t to);
  /* gram: out (rank x rank) = A' A, for A of rows x rank. times_upper: A := A U, for an upper triangular U. All kernels give the
   * same bytes. */
  void (*gram)(const double *a, size_t rows, size_t rank, double *out);
  void (*times_upper)(double *a, size_t rows, size_t rank, const double *u);
} hv_lowrank_kern;

/* The fastest kernels that this processor supports; and those of a level, from 0 (no vector instructions). NULL: this processor or
 * build does not have them. */
const hv_lowrank_kern *hv_lowrank_kern_best(void);
const hv_lowrank_kern *hv_lowrank_kern_at(size_t level);
#define HV_LOWRANK_LEVELS 3

/* Replaces p (rows x rank, rank <= rows) by an orthonormal basis of the space that its columns span. If they are linearly
 * dependent, or all zero, other directions complete the basis. scratch has hv_lowrank_scratch(rows, rank) doubles. HV_INVALID: p is
 * not finite, and is not changed. */
hv_status hv_lowrank_orthogonalise(const hv_lowrank_kern *kern, float *p, size_t rows, size_t rank, double *scratch);
size_t hv_lowrank_scratch(size_t rows, size_t rank);

#ifdef __cplusplus
}
#endif

#endif
