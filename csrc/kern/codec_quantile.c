/* QUANTILE8: a code book that follows the data.
 *
 * Least squared error wants the density of codes to go as the cube root of the density of values (P. Panter, W. Dite: Quantization
 * distortion in pulse-count modulation with nonuniform spacing of levels, 1951). The density comes from a sample counted in bins
 * of a sixteenth of an octave; each code then stands for the mean of the sampled values that fall to it. Everything counted is an
 * integer and everything summed has one order, so that all machines make the same book.
 */
#include "kern/coder.h"

#define ZERO (HV_CELLS / 2) /* the cells ZERO - 1 and ZERO hold what is as good as zero */
#define BIN 32              /* cells */
#define BINS (HV_CELLS / BIN)
#define SPLITS 254       /* codes but for zero's own and the one that it may split */
#define SAMPLE_ALL 16384 /* so many elements are all taken; of more, runs of RUN: a 64th, bounded */
#define RUN 16
#define RUNS_MIN 1024
#define RUNS_MAX 16384
#define PSEUDO 0.125 /* what an empty bin counts: the tails beyond the sample get codes too */

typedef struct book {
  int32_t base;    /* of cells, as hv_kern.encode_quantile has it */
  float low, high; /* of all values */
  uint32_t bins[BINS];
  uint32_t counts[HV_BOOK];
  int64_t sums[HV_BOOK];
  int edges[HV_BOOK + 1]; /* code c holds the cells edges[c] .. edges[c + 1] - 1 */
} book;

static int cell_of(float x, int32_t base) {
  uint32_t b = hv_bits(x);
  int32_t cell = (int32_t)((b & 0x7fffffff) >> 14) - base;
  cell = cell < 0 ? 0 : cell;
  return b >> 31 ? ZERO - 1 - cell : ZERO + cell;
}

/* Where a cell begins on the line of values. */
static double edge_of(int cell, int32_t base) {
  int away = cell < ZERO ? ZERO - cell : cell - ZERO;
  int64_t bits = away && base + away > 0 ? (int64_t)(base + away) << 14 : 0;
  double value = hv_float((uint32_t)bits);
  return cell < ZERO ? -value : value;
}

/* The cube root of x >= 0 by operations that are the same everywhere. */
static double root3(double x) {
  uint64_t bits;
  double y;
  if (!(x > 1e-300))
    return 0;
  memcpy(&bits, &x, 8);
  bits = bits / 3 + 0x2a9f7893782da1ce;
  memcpy(&y, &bits, 8);
  for (int i = 0; i < 3; i++)
    y = y - (y * y * y - x) / (3 * y * y);
  return y;
}

/* Calls `take` with the sampled runs, in order: the same ones for the same count. */
static void sample(const hv_encoder *e, void (*take)(book *b, const hv_encoder *e, const float *x, size_t n), book *b) {
  float scratch[HV_UNIT];
  if (e->count <= SAMPLE_ALL) {
    for (uint64_t at = 0; at < e->count; at += HV_UNIT) {
      size_t n = e->count - at < HV_UNIT ? (size_t)(e->count - at) : HV_UNIT;
      take(b, e, hv_coder_source(e->kern, e->dtype, e->src, at, n, scratch), n);
    }
    return;
  }
  uint64_t runs = e->count / 64 / RUN;
  runs = runs < RUNS_MIN ? RUNS_MIN : runs > RUNS_MAX ? RUNS_MAX : runs;
  uint64_t stride = e->count / runs;
  for (uint64_t r = 0; r < runs; r++) { /* scattered within its stride, so that no rhythm of the data is followed */
    uint64_t spare = stride - RUN, at = r * stride + (spare ? hv_mix(r + HV_SUM_K) % (spare + 1) : 0);
    take(b, e, hv_coder_source(e->kern, e->dtype, e->src, at, RUN, scratch), RUN);
  }
}

static void count_bins(book *b, const hv_encoder *e, const float *x, size_t n) {
  (void)e;
  for (size_t i = 0; i < n; i++)
    b->bins[cell_of(hv_tame(x[i]), b->base) / BIN]++;
}

/* 2^(43 - exponent of the largest value): sums of a sample are exact integers below 2^62 then. */
static double fixed_point(const book *b) {
  float most = b->high > -b->low ? b->high : -b->low;
  uint64_t bits = (uint64_t)(1023 + 43 + 127 - (hv_bits(most) >> 23)) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return scale;
}

static void count_codes(book *b, const hv_encoder *e, const float *x, size_t n) {
  double scale = fixed_point(b);
  for (size_t i = 0; i < n; i++) {
    float tame = hv_tame(x[i]);
    uint8_t code = e->u.quantile.table[cell_of(tame, b->base)];
    b->counts[code]++;
    b->sums[code] += (int64_t)((tame * scale + 0x1.8p52) - 0x1.8p52);
  }
}

/* Splits the bins between the extremes into SPLITS parts of equal weight; split[k] is the first cell of part k. */
static void split_cells(const book *b, int split[SPLITS + 1]) {
  int first = cell_of(b->low, b->base), last = cell_of(b->high, b->base);
  float most = b->high > -b->low ? b->high : -b->low;
  double weights[BINS], total = 0, before = 0;
  for (int i = first / BIN; i <= last / BIN; i++) {
    int from = i * BIN > first ? i * BIN : first, to = (i + 1) * BIN <= last ? (i + 1) * BIN : last + 1;
    double width = (edge_of(to, b->base) - edge_of(from, b->base)) / most;
    weights[i] = root3((b->bins[i] + PSEUDO) * (width * width));
    total += weights[i];
  }
  int k = 1;
  split[0] = 0;
  for (int i = first / BIN; i <= last / BIN; i++) {
    int from = i * BIN > first ? i * BIN : first, to = (i + 1) * BIN <= last ? (i + 1) * BIN : last + 1;
    double start = before / total * SPLITS, end = (before += weights[i]) / total * SPLITS;
    for (; k < SPLITS && k <= end; k++)
      split[k] = from + (int)((k - start) / (end - start) * (to - from) + 0.5);
  }
  for (; k <= SPLITS; k++)
    split[k] = HV_CELLS;
}

/* The parts in order, with a code of its own for zero. */
static void place_edges(book *b, const int split[SPLITS + 1]) {
  int c = 0, k = 0;
  for (; k < SPLITS && split[k] < ZERO - 1; k++)
    b->edges[c++] = split[k];
  b->edges[c++] = ZERO - 1;
  b->edges[c++] = ZERO + 1;
  for (; k < SPLITS; k++)
    if (split[k] > ZERO + 1)
      b->edges[c++] = split[k];
  for (; c <= HV_BOOK; c++)
    b->edges[c] = HV_CELLS;
}

static float entry(const book *b, int code) {
  double value;
  if (b->counts[code])
    value = (double)b->sums[code] / b->counts[code] / fixed_point(b);
  else
    value = (edge_of(b->edges[code], b->base) + edge_of(b->edges[code + 1], b->base)) / 2;
  float x = (float)value;
  return x < b->low ? b->low : x > b->high ? b->high : x;
}

static void prepare(hv_encoder *e) {
  book b = {.low = 0, .high = 0};
  float scratch[HV_UNIT];
  for (uint64_t at = 0; at < e->count; at += HV_UNIT) {
    size_t n = e->count - at < HV_UNIT ? (size_t)(e->count - at) : HV_UNIT;
    e->kern->range(hv_coder_source(e->kern, e->dtype, e->src, at, n, scratch), n, &b.low, &b.high);
  }
  memset(e->u.quantile.table, 0, sizeof e->u.quantile.table);
  float most = b.high > -b.low ? b.high : -b.low;
  b.base = e->u.quantile.base = (int32_t)(hv_bits(most) >> 14) - (ZERO - 1);
  if (!(most > 0))
    return;                               /* the book of zeros */
  b.low = b.low + 0, b.high = b.high + 0; /* never -0 */
  int split[SPLITS + 1];
  sample(e, count_bins, &b);
  split_cells(&b, split);
  place_edges(&b, split);
  for (int c = 0; c < HV_BOOK; c++)
    memset(e->u.quantile.table + b.edges[c], c, (size_t)(b.edges[c + 1] - b.edges[c]));
  sample(e, count_codes, &b);
  for (int c = 0; c < HV_BOOK; c++)
    hv_store_float(e->head + 4 * c, entry(&b, c));
}

static void encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  (void)at;
  e->kern->encode_quantile(out, x, e->u.quantile.base, e->u.quantile.table, n);
}

static int load(hv_decoder *d, const uint8_t *params) {
  for (size_t c = 0; c < HV_BOOK; c++)
    d->u.book[c] = hv_load_float(params + 4 * c);
  return d->kern->finite_f32(params, HV_BOOK);
}

static void decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_book(out, body, d->u.book, 1, n);
}

const hv_coder hv_coder_quantile8 = {
    .name = "quantile8", .bits = 8, .params = 4 * HV_BOOK, .prepare = prepare, .encode = encode, .load = load, .decode = decode};
