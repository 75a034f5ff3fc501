#include "kern/lowrank.h"

#include <math.h>
#include <string.h>

/* Bits must not depend on whether a compiler may fuse a multiplication and an addition. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

/* ---- which tensors ---- */

#define ELEMENTS_MAX ((int64_t)1 << 62)

hv_status hv_lowrank_view(const int64_t *shape, size_t n_dims, hv_lowrank_size *out) {
  int64_t all = 1;
  if (n_dims < 2)
    return HV_INVALID;
  for (size_t i = 0; i < n_dims; i++) {
    if (shape[i] <= 0 || shape[i] > ELEMENTS_MAX / all)
      return HV_INVALID;
    all *= shape[i];
  }
  int64_t rows = 1;
  *out = (hv_lowrank_size){shape[0], all / shape[0]};
  for (size_t i = 0; i + 1 < n_dims; i++) {
    rows *= shape[i];
    if (rows + all / rows < out->rows + out->cols)
      *out = (hv_lowrank_size){rows, all / rows};
  }
  return HV_OK;
}

int hv_lowrank_takes_part(hv_lowrank_size size, int64_t rank, double min_ratio) {
  if (rank < 1 || rank > HV_LOWRANK_RANK_MAX || rank > size.rows || rank > size.cols)
    return 0;
  double rows = (double)size.rows, cols = (double)size.cols;
  return 1.0 - (double)rank * (rows + cols) / (rows * cols) >= min_ratio;
}

/* ---- where a round stands ---- */

/* moves[phase][step]: the phase after it, or NO. */
#define NO (-1)
static const int moves[HV_LOWRANK_PHASES][HV_LOWRANK_STEPS] = {
    [HV_LOWRANK_IDLE] = {HV_LOWRANK_ENCODED, NO, NO, HV_LOWRANK_IDLE},
    [HV_LOWRANK_ENCODED] = {HV_LOWRANK_ENCODED, HV_LOWRANK_MIDDLE, NO, HV_LOWRANK_IDLE},
    [HV_LOWRANK_MIDDLE] = {HV_LOWRANK_ENCODED, HV_LOWRANK_MIDDLE, HV_LOWRANK_IDLE, HV_LOWRANK_IDLE},
};

static const char *const step_names[HV_LOWRANK_STEPS] = {"encode", "middle", "decode", "abort"};

hv_status hv_lowrank_may(const hv_lowrank_round *round, hv_lowrank_step step, int64_t id, hv_error *err) {
  if (round->phase < 0 || round->phase >= HV_LOWRANK_PHASES || round->committed < 0)
    return hv_fail(err, HV_INVALID, "this is not the state of a low-rank round: make a new one");
  const char *name = step_names[step];
  int open = round->phase != HV_LOWRANK_IDLE && round->open == id;
  if (!open && round->committed > 0 && round->last == id && step != HV_LOWRANK_ABORT)
    return hv_fail(err, HV_STATE, "round %lld has been decoded and its residual counted: %s needs a new round", (long long)id,
                   name);
  if (step == HV_LOWRANK_ENCODE || step == HV_LOWRANK_ABORT)
    return HV_OK;
  if (!open)
    return hv_fail(err, HV_STATE, "round %lld is not open: call encode for it before %s", (long long)id, name);
  if (moves[round->phase][step] == NO)
    return hv_fail(err, HV_STATE, "round %lld has had no middle yet: call it with the averaged P before %s", (long long)id, name);
  return HV_OK;
}

void hv_lowrank_take(hv_lowrank_round *round, hv_lowrank_step step, int64_t id) {
  if (step == HV_LOWRANK_ABORT && round->open != id)
    return;
  round->phase = moves[round->phase][step];
  round->open = id;
  if (step == HV_LOWRANK_DECODE) {
    round->committed++;
    round->last = id;
  }
}

/* ---- the random matrices ---- */

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
#define GOLDEN ((uint64_t)0x9e3779b97f4a7c15u)

static inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static inline int32_t four(uint64_t x) {
  return (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
}

int hv_lowrank_finite(const float *x, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bad |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return !bad;
}

/* ---- the passes, for three widths ---- */

/* Columns are worked on in panels: Q's part of one lies packed on the stack, so that its rows do not fall on the same lines of
 * the cache. A pad keeps rows apart where the width is a power of two. */
#define PAD 16
#define PANEL_MAX ((size_t)HV_LOWRANK_RANK_MAX * (64 + PAD))
#define WIDTH_MAX 1024

static size_t panel_width(size_t rank) {
  size_t width = (PANEL_MAX / rank - PAD) / 64 * 64;
  return width < WIDTH_MAX ? width : WIDTH_MAX;
}

typedef float four_floats __attribute__((vector_size(16), aligned(4), may_alias));

static inline four_floats fused_four(four_floats a, four_floats b, four_floats c) {
  for (int i = 0; i < 4; i++)
    c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)

#define LEVEL "plain"
#define LANES 4
#define KB 2
#define TARGET
#define FMA(a, b, c) ((a) * (b) + (c))
#define FUSED(a, b, c) fused_four(a, b, c)
#define NAME(x) PASTE(plain, x)
#include "kern/lowrank_body.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <immintrin.h>

#define LEVEL "avx2"
#define LANES 8
#define KB 2
#define TARGET __attribute__((target("avx2,fma")))
#define FMA(a, b, c) ((VEC)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define FUSED FMA
#define NAME(x) PASTE(avx2, x)
#include "kern/lowrank_body.h"

#define LEVEL "avx512"
#define LANES 16
#define KB 4
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw")))
#define FMA(a, b, c) ((VEC)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FUSED FMA
#define NAME(x) PASTE(avx512, x)
#include "kern/lowrank_body.h"
#endif

const hv_lowrank_kern *hv_lowrank_kern_at(size_t level) {
  if (level == 0)
    return &plain_kern;
#ifdef X86
  if (level == 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return &avx2_kern;
  if (level == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw"))
    return &avx512_kern;
#endif
  return NULL;
}

const hv_lowrank_kern *hv_lowrank_kern_best(void) {
  for (size_t level = HV_LOWRANK_LEVELS; level-- > 0;)
    if (hv_lowrank_kern_at(level))
      return hv_lowrank_kern_at(level);
  return NULL;
}

void hv_lowrank_sketch(uint64_t seed, int64_t round, int64_t index, float *out, size_t n) {
  uint64_t key = mix(mix(mix(seed + GOLDEN) + (uint64_t)round + GOLDEN) + (uint64_t)index + GOLDEN);
  hv_lowrank_kern_best()->sketch(key, out, n);
}

/* ---- an orthonormal basis ---- */

size_t hv_lowrank_scratch(size_t rows, size_t rank) {
  return 2 * rows * rank + 2 * rank * rank;
}

/* A pivot this small (of columns scaled to length 1) leaves too few digits for Cholesky. */
#define PIVOT_LEAST 1e-11

/* inverse := the inverse of R, where R'R = gram scaled to a unit diagonal, the scales put in. 0: the columns depend on each
 * other (nearly). Both are rank x rank; gram is used up. */
static int inverse_factor(double *gram, size_t rank, double *inverse) {
  for (size_t i = 0; i < rank; i++)
    inverse[i] = gram[i * rank + i] > 0 ? 1.0 / sqrt(gram[i * rank + i]) : 0; /* scales, in its first row for a while */
  for (size_t i = 0; i < rank; i++)
    for (size_t j = 0; j < rank; j++)
      gram[i * rank + j] *= inverse[i] * inverse[j];
  for (size_t k = 0; k < rank; k++) {
    double pivot = gram[k * rank + k];
    for (size_t i = 0; i < k; i++)
      pivot -= gram[i * rank + k] * gram[i * rank + k];
    if (!(pivot > PIVOT_LEAST))
      return 0;
    pivot = sqrt(pivot);
    for (size_t j = k; j < rank; j++) {
      double s = gram[k * rank + j];
      if (j > k)
        for (size_t i = 0; i < k; i++)
          s -= gram[i * rank + k] * gram[i * rank + j];
      gram[k * rank + j] = j > k ? s / pivot : pivot;
    }
  }
  for (size_t i = 0; i < rank; i++) /* R of the columns as they were: column i times its length */
    for (size_t j = 0; j <= i; j++)
      gram[j * rank + i] /= inverse[i];
  memset(inverse, 0, rank * rank * sizeof *inverse);
  for (size_t j = 0; j < rank; j++) {
    inverse[j * rank + j] = 1.0 / gram[j * rank + j];
    for (size_t i = j; i-- > 0;) {
      double s = 0;
      for (size_t k = i + 1; k <= j; k++)
        s -= gram[i * rank + k] * inverse[k * rank + j];
      inverse[i * rank + j] = s / gram[i * rank + i];
    }
  }
  return 1;
}

/* Cholesky-QR twice: the second time mends what the first lost. 0: not for this matrix. */
static int cholesky_qr2(const hv_lowrank_kern *kern, double *a, size_t rows, size_t rank, double *gram, double *inverse) {
  for (int turn = 0; turn < 2; turn++) {
    kern->gram(a, rows, rank, gram);
    if (!inverse_factor(gram, rank, inverse))
      return 0;
    kern->times_upper(a, rows, rank, inverse);
  }
  return 1;
}

/* Takes from columns [from, rank) of x what points along v (rows [top, rows), length 1) twice over: a Householder reflection. */
static void reflect(double *x, size_t rows, size_t rank, size_t top, size_t from, const double *v, double *dots) {
  memset(dots + from, 0, (rank - from) * sizeof *dots);
  for (size_t i = top; i < rows; i++)
    for (size_t j = from; j < rank; j++)
      dots[j] += v[i * rank] * x[i * rank + j];
  for (size_t i = top; i < rows; i++)
    for (size_t j = from; j < rank; j++)
      x[i * rank + j] -= 2 * v[i * rank] * dots[j];
}

/* Householder QR: for any matrix, of any rank. a becomes the vectors of the reflections, q the basis. */
static void householder(double *a, size_t rows, size_t rank, double *q, double *dots) {
  for (size_t k = 0; k < rank; k++) {
    double length = 0, scale = 0;
    for (size_t i = k; i < rows; i++)
      length += a[i * rank + k] * a[i * rank + k];
    length = sqrt(length);
    a[k * rank + k] += a[k * rank + k] < 0 ? -length : length;
    for (size_t i = k; i < rows; i++)
      scale += a[i * rank + k] * a[i * rank + k];
    scale = scale > 0 ? 1.0 / sqrt(scale) : 0; /* nothing below: no reflection */
    for (size_t i = k; i < rows; i++)
      a[i * rank + k] *= scale;
    reflect(a, rows, rank, k, k + 1, a + k, dots);
  }
  memset(q, 0, rows * rank * sizeof *q);
  for (size_t k = 0; k < rank; k++)
    q[k * rank + k] = 1;
  for (size_t k = rank; k-- > 0;)
    reflect(q, rows, rank, k, k, a + k, dots);
}

hv_status hv_lowrank_orthogonalise(const hv_lowrank_kern *kern, float *p, size_t rows, size_t rank, double *scratch) {
  size_t n = rows * rank;
  double *a = scratch, *q = a + n, *gram = q + n, *inverse = gram + rank * rank;
  if (!hv_lowrank_finite(p, n))
    return HV_INVALID;
  for (size_t i = 0; i < n; i++)
    a[i] = p[i];
  const double *basis = a;
  if (!cholesky_qr2(kern, a, rows, rank, gram, inverse)) {
    for (size_t i = 0; i < n; i++)
      a[i] = p[i];
    householder(a, rows, rank, q, gram);
    basis = q;
  }
  for (size_t i = 0; i < n; i++)
    p[i] = (float)basis[i];
  return HV_OK;
}
