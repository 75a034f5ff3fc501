/* PowerSGD: the choice of tensors, the state of a round, and its arithmetic on the CPU.
 *
 * Room: kern (uses base). Used by torch/lowrank.cpp, which adds other devices and torch's threads.
 * Owner: all buffers are the caller's; at most 128 KiB of stack are used.
 * Thread: any; pure functions without state. Ranges of rows and columns may be worked on at the same time.
 * Paper: Vogels, Karimireddy, Jaggi, "PowerSGD" (arXiv 1905.13727); Yamamoto et al., "CholeskyQR2" (2015).
 */

// clang-format off
/* A gradient G (rows x cols) and what earlier rounds left over, E, make M = G + E, which is never stored. A round:
 *   encode  P = M Q'          Q: rank x cols, from a seed that all peers share; peers average P
 *   middle  P := its orthonormal basis, then Q = P' M; peers average Q
 *   decode  out = P Q, E := M - P Q
 * E changes in decode alone, so a round may be retried from any point, or given up, and counts once.
 * Bits: sketch, orthogonalise and P Q give the same bytes on every machine (IEEE arithmetic in a fixed order, P Q with
 * fused multiply-adds, the rest with none: a processor without them, x86 before 2013, decodes slowly), so peers that hold the
 * same averages end with the same gradients. P and Q themselves may differ in the last bit between
 * machines; they are averaged anyway.
 * NaN and Inf: a matrix that has one makes its P not finite, which hv_lowrank_finite finds at the price of P; E is untouched.
 */
// clang-format on
#ifndef HV_KERN_LOWRANK_H
#define HV_KERN_LOWRANK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* for torch/lowrank.cpp */
#endif

#include "base/status.h"

#define HV_LOWRANK_RANK_MAX 256

/* ---- which tensors ---- */

typedef struct hv_lowrank_size {
  int64_t rows, cols;
} hv_lowrank_size;

/* A tensor as a matrix: its dimensions cut in two where rows + cols is smallest. HV_INVALID: fewer than two dimensions, a
 * negative one, none of its elements, or more than 2^62 of them. */
hv_status hv_lowrank_view(const int64_t *shape, size_t n_dims, hv_lowrank_size *out);

/* True if P and Q together are smaller than the tensor by at least min_ratio: 1 - rank (rows + cols) / (rows cols) >= min_ratio.
 * Never when rank is 0, over the smaller side or over HV_LOWRANK_RANK_MAX. */
int hv_lowrank_takes_part(hv_lowrank_size size, int64_t rank, double min_ratio);

/* ---- where a round stands ---- */

typedef enum hv_lowrank_phase { HV_LOWRANK_IDLE, HV_LOWRANK_ENCODED, HV_LOWRANK_MIDDLE, HV_LOWRANK_PHASES } hv_lowrank_phase;
typedef enum hv_lowrank_step {
  HV_LOWRANK_ENCODE,
  HV_LOWRANK_AVERAGE_P,
  HV_LOWRANK_DECODE,
  HV_LOWRANK_ABORT,
  HV_LOWRANK_STEPS
} hv_lowrank_step;

/* Zero-initialise it. Plain numbers, so that it can be saved and restored. */
typedef struct hv_lowrank_round {
  int64_t phase;
  int64_t open;      /* the round under way, when phase is not IDLE */
  int64_t committed; /* how many rounds have been decoded */
  int64_t last;      /* the last of them, when there is one */
} hv_lowrank_round;

/* HV_OK if this step is allowed for round `id`. HV_STATE with a sentence: another round is open, a step is missing, or the round
 * has been decoded already. HV_INVALID: the struct is damaged. A new round may begin while another one is open: the open one is
 * then abandoned. */
hv_status hv_lowrank_may(const hv_lowrank_round *round, hv_lowrank_step step, int64_t id, hv_error *err);

/* Takes a step that hv_lowrank_may allowed. */
void hv_lowrank_take(hv_lowrank_round *round, hv_lowrank_step step, int64_t id);

/* ---- arithmetic ---- */

/* Fills out with n numbers of mean 0 and variance 1, nearly normal (eight uniform ones added), from seed, round and index alone. */
void hv_lowrank_sketch(uint64_t seed, int64_t round, int64_t index, float *out, size_t n);

/* True if all n numbers are finite. */
int hv_lowrank_finite(const float *x, size_t n);

/* One matrix: row-major, float32, all borrowed. grad and out may be the same memory. */
typedef struct hv_lowrank_matrix {
  const float *grad; /* rows x cols */
  float *error;      /* rows x cols */
  float *p;          /* rows x rank */
  float *q;          /* rank x cols */
  float *out;        /* rows x cols; decode only */
  size_t rows, cols, rank;
} hv_lowrank_matrix;

/* The passes, for rows [from, to) or columns [from, to). */
typedef struct hv_lowrank_kern {
  const char *name;
  void (*sketch)(uint64_t key, float *out, size_t n); /* hv_lowrank_sketch's numbers, from a key */
  void (*encode_rows)(const hv_lowrank_matrix *m, size_t from, size_t to);
  void (*middle_cols)(const hv_lowrank_matrix *m, size_t from, size_t to);
  void (*decode_rows)(const hv_lowrank_matrix *m, size_t from, size_t to);
  /* out (rank x rank, zeroed here) = A' A for A rows x rank; and A := A U for an upper triangular U. Same bytes from each. */
  void (*gram)(const double *a, size_t rows, size_t rank, double *out);
  void (*times_upper)(double *a, size_t rows, size_t rank, const double *u);
} hv_lowrank_kern;

/* The fastest that this processor runs; and number `level` (0: the plain one), NULL where this processor or build lacks it. */
const hv_lowrank_kern *hv_lowrank_kern_best(void);
const hv_lowrank_kern *hv_lowrank_kern_at(size_t level);
#define HV_LOWRANK_LEVELS 3

/* Turns p (rows x rank, rank <= rows) into an orthonormal basis of its columns' span, filled up with other directions where
 * the columns depend on each other, a zero matrix included. scratch (borrowed) has hv_lowrank_scratch(rows, rank) doubles.
 * HV_INVALID: not finite; p is as before then. */
hv_status hv_lowrank_orthogonalise(const hv_lowrank_kern *kern, float *p, size_t rows, size_t rank, double *scratch);
size_t hv_lowrank_scratch(size_t rows, size_t rank);

#ifdef __cplusplus
}
#endif

#endif
