/* The loops of PowerSGD over a matrix (lowrank.h), written once for vectors of any width.
 *
 * Room: kern. lowrank.c includes it once for each kind of vector instructions. Each time it defines these macros before, which the
 * end of this file undefines: LANES (floats per vector), KB (columns of P, or rows of Q, per block), NAME(x) (x with a prefix),
 * TARGET (function attribute), FMA(a, b, c) (a * b + c, rounded once or twice), FUSED(a, b, c) (the same, rounded once), LEVEL
 * (name as a string). lowrank.c also has, once for all: PANEL_MAX (floats of a panel), WIDTH_MAX (most columns of a panel), PAD
 * (floats between rows), panel_width, smaller, four_floats, and mix, four and GOLDEN for random numbers.
 * Thread: any; pure functions. A tile, which is a block of M = G + E, and a panel, which is a block of Q, are on the stack.
 * Errors: none. Columns that do not fill a vector are processed by scalar loops.
 * The order of additions in decode, gram and times_upper is the same for every width, so that the bytes are the same.
 */

typedef float NAME(vec) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef double NAME(dvec) __attribute__((vector_size(LANES * 4), aligned(8), may_alias));

#define VEC NAME(vec)
#define DVEC NAME(dvec)
#define AT(p) (*(const VEC *)(p)) /* loads a vector of floats */
#define TO(p) (*(VEC *)(p))       /* stores one */
#define DAT(p) (*(const DVEC *)(p))
#define DTO(p) (*(DVEC *)(p))
#define DLANES (LANES / 2)
#define ROWS 4      /* rows of M per block in encode and decode */
#define MID_ROWS 16 /* rows of M per block in middle */
#define JB 4        /* vectors of a row per block */

/* Some rows and columns of M. PAD floats keep the rows off the same sets of the cache. */
typedef float NAME(tile)[MID_ROWS][WIDTH_MAX + PAD];

/* The sum of the elements of a vector. */
TARGET static inline float NAME(sum)(VEC v) {
  float t[LANES];
  TO(t) = v;
  four_floats s = *(const four_floats *)t;
#pragma GCC unroll 4
  for (int i = 4; i < LANES; i += 4)
    s += *(const four_floats *)(t + i);
  return (s[0] + s[2]) + (s[1] + s[3]);
}

/* to = a + b, n elements. */
TARGET static void NAME(add)(float *to, const float *a, const float *b, size_t n) {
  size_t j = 0;
  for (; j + LANES <= n; j += LANES)
    TO(to + j) = AT(a + j) + AT(b + j);
  for (; j < n; j++)
    to[j] = a[j] + b[j];
}

/* Random numbers, almost normal. Element i is the sum of the 16-bit parts of words 2i and 2i + 1 of a random stream that begins at
 * key. */
TARGET static void NAME(sketch)(uint64_t key, float *out, size_t n) {
  for (size_t i = 0; i < n; i++) {
    int32_t sum = four(mix(key + (2 * i + 1) * GOLDEN)) + four(mix(key + (2 * i + 2) * GOLDEN));
    out[i] = (float)(2 * sum - 8 * 65535) * 0x1.3988e2p-17f; /* 1 / sqrt(8 (65536^2 - 1) / 3); the sum is exact */
  }
}

/* Fills a tile with n_rows rows and n columns of M, from row i and column j. */
TARGET static void NAME(load)(const hv_lowrank_matrix *m, size_t i, size_t j, size_t n_rows, size_t n, NAME(tile) tile) {
  for (size_t r = 0; r < n_rows; r++)
    NAME(add)(tile[r], m->grad + (i + r) * m->cols + j, m->error + (i + r) * m->cols + j, n);
}

/* Multiplies ROWS rows of a tile by KB rows of a panel q (its rows are `stride` apart) and adds the products to p. Only the first
 * n_rows and n_k are stored. Prefetches n floats at each of n_next addresses, which belong to the next tile. */
TARGET static void NAME(dots)(const NAME(tile) tile, const float *q, size_t stride, size_t n, float *p, size_t rank, size_t n_rows,
                              size_t n_k, const float *const *next, size_t n_next) {
  const float *row[KB];
  VEC acc[ROWS][KB];
  for (size_t k = 0; k < KB; k++)
    row[k] = q + (k < n_k ? k : n_k - 1) * stride;
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < KB; k++)
      acc[i][k] = (VEC){0};
  size_t j = 0;
  for (; j + LANES <= n; j += LANES) {
    VEC m[ROWS];
    for (int i = 0; i < ROWS; i++)
      m[i] = AT(tile[i] + j);
    for (size_t s = 0; s < n_next; s++)
      __builtin_prefetch(next[s] + j, 0, 2);
    for (int k = 0; k < KB; k++) {
      VEC x = AT(row[k] + j);
      for (int i = 0; i < ROWS; i++)
        acc[i][k] = FMA(m[i], x, acc[i][k]);
    }
  }
  for (size_t i = 0; i < ROWS; i++)
    for (size_t k = 0; k < KB; k++) {
      float s = NAME(sum)(acc[i][k]);
      if (i >= n_rows || k >= n_k)
        continue;
      for (size_t t = j; t < n; t++)
        s += tile[i][t] * row[k][t];
      p[i * rank + k] += s;
    }
}

/* Copies n columns of Q from column j into a panel. */
TARGET static void NAME(pack)(const hv_lowrank_matrix *m, size_t j, size_t n, float *panel, size_t stride) {
  for (size_t k = 0; k < m->rank; k++)
    memcpy(panel + k * stride, m->q + k * m->cols + j, n * sizeof *panel);
}

/* P = M Q' for rows [from, to). */
TARGET static void NAME(encode_rows)(const hv_lowrank_matrix *m, size_t from, size_t to) {
  _Alignas(64) NAME(tile) tile;
  _Alignas(64) float panel[PANEL_MAX];
  size_t width = panel_width(m->rank), stride = width + PAD;
  memset(m->p + from * m->rank, 0, (to - from) * m->rank * sizeof *m->p);
  memset(tile, 0, ROWS * sizeof tile[0]);
  for (size_t j = 0; j < m->cols; j += width) {
    size_t n = smaller(width, m->cols - j);
    NAME(pack)(m, j, n, panel, stride);
    for (size_t i = from; i < to; i += ROWS) {
      size_t n_rows = smaller(ROWS, to - i), n_next = to - i >= 2 * ROWS ? 2 * ROWS : 0, turns = (m->rank + KB - 1) / KB,
             share = (n_next + turns - 1) / turns;
      const float *next[2 * ROWS];
      for (size_t r = 0; r < n_next; r++)
        next[r] = (r % 2 ? m->grad : m->error) + (i + ROWS + r / 2) * m->cols + j;
      NAME(load)(m, i, j, n_rows, n, tile);
      for (size_t k = 0, at = 0; k < m->rank; k += KB, at += share) {
        const float(*rows)[WIDTH_MAX + PAD] = (const float(*)[WIDTH_MAX + PAD]) tile;
        size_t ahead = at < n_next ? smaller(share, n_next - at) : 0;
        NAME(dots)
        (rows, panel + k * stride, stride, n, m->p + i * m->rank + k, m->rank, n_rows, smaller(KB, m->rank - k), next + at, ahead);
      }
    }
  }
}

/* Adds p' times n_rows rows of a tile to KB rows of a panel q, for whole groups of JB vectors. Returns the number of columns done.
 * Prefetches one vector per group from rows of `cols` floats at `next`, which belong to the next tile. */
TARGET static size_t NAME(outer)(const NAME(tile) tile, const float *p, size_t rank, size_t n_rows, size_t n, float *q,
                                 size_t stride, const float *next, size_t cols) {
  size_t j = 0;
  for (; j + JB * LANES <= n; j += JB * LANES) {
    VEC acc[KB][JB];
    for (int k = 0; k < KB; k++)
      for (int v = 0; v < JB; v++)
        acc[k][v] = AT(q + (size_t)k * stride + j + v * LANES);
    for (size_t i = 0; i < n_rows; i++) {
      VEC m[JB];
      __builtin_prefetch(next + i * cols + j, 0, 2);
      for (int v = 0; v < JB; v++)
        m[v] = AT(tile[i] + j + v * LANES);
      for (int k = 0; k < KB; k++)
        for (int v = 0; v < JB; v++)
          acc[k][v] = FMA(m[v], (VEC){0} + p[i * rank + (size_t)k], acc[k][v]);
    }
    for (int k = 0; k < KB; k++)
      for (int v = 0; v < JB; v++)
        TO(q + (size_t)k * stride + j + v * LANES) = acc[k][v];
  }
  return j;
}

/* The same for columns [from, n) and n_k rows of the panel, without vectors. */
TARGET static void NAME(outer_rest)(const NAME(tile) tile, const float *p, size_t rank, size_t n_rows, size_t from, size_t n,
                                    float *q, size_t stride, size_t n_k) {
  for (size_t k = 0; k < n_k; k++)
    for (size_t i = 0; i < n_rows; i++) {
      float x = p[i * rank + k];
      for (size_t j = from; j < n; j++)
        q[k * stride + j] += tile[i][j] * x;
    }
}

/* Q = P' M for columns [from, to). */
TARGET static void NAME(middle_cols)(const hv_lowrank_matrix *m, size_t from, size_t to) {
  _Alignas(64) NAME(tile) tile;
  _Alignas(64) float panel[PANEL_MAX];
  size_t width = panel_width(m->rank), stride = width + PAD;
  for (size_t j = from; j < to; j += width) {
    size_t n = smaller(width, to - j);
    memset(panel, 0, m->rank * stride * sizeof *panel);
    for (size_t i = 0; i < m->rows; i += MID_ROWS) {
      const float(*rows)[WIDTH_MAX + PAD] = (const float(*)[WIDTH_MAX + PAD]) tile;
      size_t n_rows = smaller(MID_ROWS, m->rows - i), k = 0, after = m->rows - i >= 2 * MID_ROWS ? i + MID_ROWS : i;
      NAME(load)(m, i, j, n_rows, n, tile);
      for (const float *p = m->p + i * m->rank; k + KB <= m->rank; k += KB) {
        size_t turn = k / KB % (2 * JB);
        const float *next = (turn % 2 ? m->grad : m->error) + after * m->cols + j + turn / 2 * LANES;
        size_t done = NAME(outer)(rows, p + k, m->rank, n_rows, n, panel + k * stride, stride, next, m->cols);
        NAME(outer_rest)(rows, p + k, m->rank, n_rows, done, n, panel + k * stride, stride, KB);
      }
      NAME(outer_rest)(rows, m->p + i * m->rank + k, m->rank, n_rows, 0, n, panel + k * stride, stride, m->rank - k);
    }
    for (size_t k = 0; k < m->rank; k++)
      memcpy(m->q + k * m->cols + j, panel + k * stride, n * sizeof *panel);
  }
}

/* Decodes ROWS rows and JB vectors from row i and column j: out = P Q, error = grad + error - out. q: these columns in a panel. */
TARGET static void NAME(decode_group)(const hv_lowrank_matrix *m, size_t i, size_t j, const float *q, size_t stride) {
  VEC acc[ROWS][JB];
  const float *p = m->p + i * m->rank;
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < JB; v++) { /* used after the products, which take longer than the loads */
      __builtin_prefetch(m->grad + (i + (size_t)r) * m->cols + j + v * LANES);
      __builtin_prefetch(m->error + (i + (size_t)r) * m->cols + j + v * LANES, 1);
    }
  for (int v = 0; v < JB; v++)
    for (int r = 0; r < ROWS; r++)
      acc[r][v] = AT(q + v * LANES) * p[(size_t)r * m->rank];
  for (size_t k = 1; k < m->rank; k++) {
    q += stride;
    for (int v = 0; v < JB; v++) {
      VEC x = AT(q + v * LANES);
      for (int r = 0; r < ROWS; r++)
        acc[r][v] = FUSED(x, (VEC){0} + p[(size_t)r * m->rank + k], acc[r][v]);
    }
  }
  for (size_t r = 0; r < ROWS; r++)
    for (size_t v = 0; v < JB; v++) {
      size_t at = (i + r) * m->cols + j + v * LANES;
      TO(m->error + at) = AT(m->grad + at) + AT(m->error + at) - acc[r][v];
      TO(m->out + at) = acc[r][v];
    }
}

/* The same for one element. */
TARGET static void NAME(decode_one)(const hv_lowrank_matrix *m, size_t i, size_t j) {
  size_t at = i * m->cols + j;
  float x = m->q[j] * m->p[i * m->rank];
  for (size_t k = 1; k < m->rank; k++)
    x = __builtin_fmaf(m->q[k * m->cols + j], m->p[i * m->rank + k], x);
  m->error[at] = m->grad[at] + m->error[at] - x;
  m->out[at] = x;
}

/* out = P Q and error = grad + error - out for rows [from, to). */
TARGET static void NAME(decode_rows)(const hv_lowrank_matrix *m, size_t from, size_t to) {
  _Alignas(64) float panel[PANEL_MAX];
  size_t width = panel_width(m->rank), stride = width + PAD, whole = from + (to - from) / ROWS * ROWS;
  for (size_t j = 0; j < m->cols; j += width) {
    size_t n = smaller(width, m->cols - j), groups = n / (JB * LANES) * (JB * LANES);
    NAME(pack)(m, j, n, panel, stride);
    for (size_t i = from; i < whole; i += ROWS)
      for (size_t g = 0; g < groups; g += JB * LANES)
        NAME(decode_group)(m, i, j + g, panel + g, stride);
    for (size_t i = from; i < to; i++)
      for (size_t c = i < whole ? groups : 0; c < n; c++)
        NAME(decode_one)(m, i, j + c);
  }
}

/* out = A' A. Rows are added in their order, so that the sums do not depend on the block size. Only the upper triangle is computed,
 * and some elements beside it where a vector crosses the diagonal; then the lower triangle is copied from it. */
TARGET static void NAME(gram)(const double *a, size_t rows, size_t rank, double *out) {
  memset(out, 0, rank * rank * sizeof *out);
  size_t whole = rank - rank % DLANES, fours = rank - rank % 4;
  for (size_t i = 0; i < rows; i += 64) {
    size_t end = smaller(rows, i + 64);
    for (size_t x = 0; x < fours; x += 4)
      for (size_t y = x / DLANES * DLANES; y < whole; y += DLANES) {
        DVEC s0 = DAT(out + x * rank + y), s1 = DAT(out + (x + 1) * rank + y), s2 = DAT(out + (x + 2) * rank + y),
             s3 = DAT(out + (x + 3) * rank + y);
        for (size_t r = i; r < end; r++) {
          const double *row = a + r * rank;
          DVEC v = DAT(row + y);
          s0 += v * row[x];
          s1 += v * row[x + 1];
          s2 += v * row[x + 2];
          s3 += v * row[x + 3];
        }
        DTO(out + x * rank + y) = s0;
        DTO(out + (x + 1) * rank + y) = s1;
        DTO(out + (x + 2) * rank + y) = s2;
        DTO(out + (x + 3) * rank + y) = s3;
      }
    for (size_t x = 0; x < rank; x++)
      for (size_t y = x < fours ? smaller(rank, whole > x ? whole : x) : x; y < rank; y++) {
        double s = out[x * rank + y];
        for (size_t r = i; r < end; r++)
          s += a[r * rank + y] * a[r * rank + x];
        out[x * rank + y] = s;
      }
  }
  for (size_t x = 0; x < rank; x++)
    for (size_t y = 0; y < x; y++)
      out[x * rank + y] = out[y * rank + x];
}

/* A := A U, for an upper triangular U. Columns are computed from the right, because column b needs columns 0 to b only, so A can be
 * overwritten in place. Sums begin at +0, so that the zeros of U have no effect whatever the width of a vector is. */
TARGET static void NAME(times_upper)(double *a, size_t rows, size_t rank, const double *u) {
  size_t whole = rank - rank % DLANES, i = 0;
  for (size_t r = 0; r < rows; r++)
    for (size_t b = rank; b-- > whole;) {
      double s = 0;
      for (size_t k = 0; k <= b; k++)
        s += a[r * rank + k] * u[k * rank + b];
      a[r * rank + b] = s;
    }
  for (; i + 4 <= rows; i += 4) /* four rows, so that the processor can overlap their additions */
    for (size_t b = whole; b > 0; b -= DLANES) {
      double *row = a + i * rank;
      DVEC s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
      for (size_t k = 0; k < b; k++) {
        DVEC x = DAT(u + k * rank + b - DLANES);
        s0 += x * row[k];
        s1 += x * row[rank + k];
        s2 += x * row[2 * rank + k];
        s3 += x * row[3 * rank + k];
      }
      DTO(row + b - DLANES) = s0;
      DTO(row + rank + b - DLANES) = s1;
      DTO(row + 2 * rank + b - DLANES) = s2;
      DTO(row + 3 * rank + b - DLANES) = s3;
    }
  for (; i < rows; i++)
    for (size_t b = whole; b > 0; b -= DLANES) {
      DVEC s = {0};
      for (size_t k = 0; k < b; k++)
        s += DAT(u + k * rank + b - DLANES) * a[i * rank + k];
      DTO(a + i * rank + b - DLANES) = s;
    }
}

static const hv_lowrank_kern NAME(kern) = {
    .name = LEVEL,
    .sketch = NAME(sketch),
    .encode_rows = NAME(encode_rows),
    .middle_cols = NAME(middle_cols),
    .decode_rows = NAME(decode_rows),
    .gram = NAME(gram),
    .times_upper = NAME(times_upper),
};

#undef VEC
#undef DVEC
#undef AT
#undef TO
#undef DAT
#undef DTO
#undef DLANES
#undef ROWS
#undef MID_ROWS
#undef JB
#undef LANES
#undef KB
#undef NAME
#undef TARGET
#undef FMA
#undef FUSED
#undef LEVEL
