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
#define SPLITS 254   /* codes but for zero's own and the one that it may split */
#define SAMPLE 16384 /* so many elements are all taken; of more, runs of RUN */
#define RUN 16
#define PSEUDO 0.125 /* what an empty bin counts: the tails beyond the sample get codes too */

typedef struct book {
  int32_t base;    /* of cells, as hv_kern.cells has it */
  float low, high; /* of all values */
  size_t sampled;
  float sample[SAMPLE];
  uint16_t cells[SAMPLE]; /* of the sample */
  uint32_t bins[BINS];
  uint32_t counts[HV_BOOK];
  int64_t sums[HV_BOOK];
  int edges[HV_BOOK + 1]; /* code c holds the cells edges[c] .. edges[c + 1] - 1 */
} book;

static int cell_of(const book *b, float x) {
  uint16_t cell;
  hv_kern_portable.cells(&cell, &x, b->base, 1);
  return cell;
}

/* Where a cell begins on the line of values. */
static double edge_of(int cell, int32_t base) {
  int away = cell < ZERO ? ZERO - cell : cell - ZERO;
  int64_t bits = away && base + away > 0 ? (int64_t)(base + away) << 14 : 0;
  double value = hv_float((uint32_t)bits);
  return cell < ZERO ? -value : value;
}

/* The cube roots of n numbers > 0 by operations that are the same everywhere. */
static void root3(double *x, int n) {
  for (int i = 0; i < n; i++) {
    uint64_t bits;
    double y;
    memcpy(&bits, &x[i], 8);
    bits = bits / 3 + 0x2a9f7893782da1ce;
    memcpy(&y, &bits, 8);
    for (int step = 0; step < 3; step++)
      y = y - (y * y * y - x[i]) / (3 * y * y);
    x[i] = y;
  }
}

/* Takes the sample: the same elements for the same count. */
static void take_sample(book *b, const hv_encoder *e) {
  float scratch[HV_UNIT];
  uint64_t stride = e->count / (SAMPLE / RUN);
  size_t each = e->count <= SAMPLE ? HV_UNIT : RUN;
  for (uint64_t r = 0, at = 0; b->sampled < SAMPLE && b->sampled < e->count; r++) {
    size_t n = e->count - at < each ? (size_t)(e->count - at) : each;
    if (each == RUN) /* scattered within its stride, so that no rhythm of the data is followed */
      at = r * stride + hv_mix(r + HV_SUM_K) % (stride - RUN + 1);
    memcpy(b->sample + b->sampled, hv_coder_source(e->kern, e->dtype, e->src, at, n, scratch), n * sizeof(float));
    b->sampled += n, at += n;
  }
  for (size_t i = 0; i < b->sampled; i++)
    b->sample[i] = hv_tame(b->sample[i]);
  e->kern->cells(b->cells, b->sample, b->base, b->sampled);
  for (size_t i = 0; i < b->sampled; i++)
    b->bins[b->cells[i] / BIN]++;
}

/* 2^(43 - exponent of the largest value): sums of a sample are exact integers below 2^62 then. */
static double fixed_point(const book *b) {
  float most = b->high > -b->low ? b->high : -b->low;
  uint64_t bits = (uint64_t)(1023 + 43 + 127 - (hv_bits(most) >> 23)) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return scale;
}

static void count_codes(book *b, const uint8_t *table) {
  double scale = fixed_point(b);
  for (size_t i = 0; i < b->sampled; i++) {
    uint8_t code = table[b->cells[i]];
    b->counts[code]++;
    b->sums[code] += (int64_t)((b->sample[i] * scale + 0x1.8p52) - 0x1.8p52);
  }
}

/* Splits the bins between the extremes into SPLITS parts of equal weight; split[k] is the first cell of part k. */
static void split_cells(const book *b, int split[SPLITS + 1]) {
  int first = cell_of(b, b->low), last = cell_of(b, b->high);
  float most = b->high > -b->low ? b->high : -b->low;
  double weights[BINS], total = 0, before = 0, left = edge_of(first, b->base);
  for (int i = first / BIN; i <= last / BIN; i++) {
    double right = edge_of((i + 1) * BIN <= last ? (i + 1) * BIN : last + 1, b->base), width = (right - left) / most;
    weights[i] = (b->bins[i] + PSEUDO) * (width * width) + 1e-300;
    left = right;
  }
  root3(weights + first / BIN, last / BIN - first / BIN + 1);
  for (int i = first / BIN; i <= last / BIN; i++)
    total += weights[i];
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
  book b;
  float scratch[HV_UNIT];
  memset(&b.bins, 0, sizeof b.bins);
  memset(&b.counts, 0, sizeof b.counts);
  memset(&b.sums, 0, sizeof b.sums);
  b.low = b.high = 0, b.sampled = 0;
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
  take_sample(&b, e);
  split_cells(&b, split);
  place_edges(&b, split);
  for (int c = 0; c < HV_BOOK; c++)
    memset(e->u.quantile.table + b.edges[c], c, (size_t)(b.edges[c + 1] - b.edges[c]));
  count_codes(&b, e->u.quantile.table);
  for (int c = 0; c < HV_BOOK; c++)
    hv_store_float(e->head + 4 * c, entry(&b, c));
}

static void quantile_encode(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out) {
  const uint8_t *table = e->u.quantile.table;
  uint16_t cells[HV_SLICE];
  (void)at;
  for (; n; x += HV_SLICE) {
    size_t some = n < HV_SLICE ? n : HV_SLICE;
    e->kern->cells(cells, x, e->u.quantile.base, some);
    size_t i = 0;
    for (; i + 8 <= some; i += 8) { /* eight codes make one store, which bounds this loop */
      uint64_t codes = 0;
      for (int k = 0; k < 8; k++)
        codes |= (uint64_t)table[cells[i + k]] << 8 * k;
      hv_store64(out + i, codes);
    }
    for (; i < some; i++)
      out[i] = table[cells[i]];
    out += some;
    n -= some;
  }
}

static int load(hv_decoder *d, const uint8_t *params) {
  for (size_t c = 0; c < HV_BOOK; c++)
    d->u.book[c] = hv_load_float(params + 4 * c);
  return d->kern->finite_f32(params, HV_INFINITE, HV_BOOK);
}

static void quantile_decode(const hv_decoder *d, const uint8_t *body, size_t n, float *out) {
  d->kern->decode_book(out, body, d->u.book, 1, n);
}

const hv_coder hv_coder_quantile8 = {.name = "quantile8",
                                     .bits = 8,
                                     .params = 4 * HV_BOOK,
                                     .prepare = prepare,
                                     .encode = quantile_encode,
                                     .load = load,
                                     .decode = quantile_decode};
