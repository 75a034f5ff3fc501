#include "kern/codec.h"

#include "kern/coder.h"

#include <math.h>

#define MAGIC 0x31635648 /* "HVc1" */
#define HEAD_INDEX ((uint64_t)1 << 40)
#define FAR ((uint64_t)8 << 20) /* results from this size on are written past the caches */
#define ALIGN16(x) (((x) + 15) / 16 * 16)

static const hv_coder *const coders[HV_CODEC_COUNT] = {
    [HV_CODEC_NONE] = &hv_coder_none,
    [HV_CODEC_FLOAT16] = &hv_coder_float16,
    [HV_CODEC_SCALED_FLOAT16] = &hv_coder_scaled_float16,
    [HV_CODEC_BFLOAT16] = &hv_coder_bfloat16,
    [HV_CODEC_UNIFORM8] = &hv_coder_uniform8,
    [HV_CODEC_QUANTILE8] = &hv_coder_quantile8,
    [HV_CODEC_BLOCKWISE8] = &hv_coder_blockwise8,
    [HV_CODEC_LINEAR8] = &hv_coder_linear8,
    [HV_CODEC_LINEAR4] = &hv_coder_linear4,
    [HV_CODEC_SCALED_ROWS] = &hv_coder_scaled_rows,
};

/* ---- sizes and names ---- */

static const hv_coder *coder_of(int codec) {
  return codec >= 0 && codec < HV_CODEC_COUNT ? coders[codec] : NULL;
}

const char *hv_codec_name(int codec) {
  const hv_coder *coder = coder_of(codec);
  return coder ? coder->name : NULL;
}

int hv_codec_find(const char *name) {
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    if (!strcmp(name, coders[codec]->name))
      return codec;
  return -1;
}

static uint64_t body_bytes(const hv_coder *coder, int dtype, uint64_t count) {
  unsigned bits = coder->bits ? coder->bits : 8 * (unsigned)hv_dtype_size(dtype);
  return (count * bits + 7) / 8;
}

static uint64_t scale_bytes(const hv_coder *coder, uint64_t count, hv_rows rows) {
  if (coder->by_row)
    return hv_rows_in(rows, count) * coder->scale;
  return coder->block ? (count + coder->block - 1) / coder->block * coder->scale : 0;
}

/* Where the scales of element `at` are among all scales. */
static uint64_t scales_before(const hv_coder *coder, hv_rows rows, uint64_t at) {
  uint64_t blocks = coder->by_row ? hv_rows_at(rows, at) : coder->block ? at / coder->block : 0;
  return blocks * coder->scale;
}

static uint64_t head_bytes(const hv_coder *coder, uint64_t count, hv_rows rows) {
  return ALIGN16(coder->params + scale_bytes(coder, count, rows));
}

static hv_rows rows_of(uint64_t count, hv_rows rows) {
  uint64_t one = count ? count : 1;
  return rows.width || rows.first ? rows : (hv_rows){one, one};
}

uint64_t hv_codec_bound_rows(int codec, int dtype, uint64_t count, hv_rows rows) {
  const hv_coder *coder = coder_of(codec);
  rows = rows_of(count, rows);
  if (!coder || !hv_dtype_size(dtype) || count > HV_CODEC_COUNT_MAX || (coder->by_row && !hv_rows_fit(rows)))
    return 0;
  return HV_CODEC_HEADER + head_bytes(coder, count, rows) + body_bytes(coder, dtype, count);
}

uint64_t hv_codec_bound(int codec, int dtype, uint64_t count) {
  return hv_codec_bound_rows(codec, dtype, count, (hv_rows){0});
}

/* ---- the checksum ---- */

static uint64_t piece_sum(const hv_kern *kern, const uint8_t *piece, uint64_t index) {
  return hv_mix(kern->digest(piece) + index * HV_SUM_K);
}

/* Of `size` bytes that begin a piece; what is missing of the last piece counts as zeros. */
static uint64_t region_sum(const hv_kern *kern, const uint8_t *bytes, uint64_t size, uint64_t index) {
  uint64_t sum = 0;
  for (; size >= HV_PIECE; bytes += HV_PIECE, size -= HV_PIECE)
    sum += piece_sum(kern, bytes, index++);
  if (size) {
    uint8_t last[HV_PIECE] = {0};
    memcpy(last, bytes, (size_t)size);
    sum += piece_sum(kern, last, index);
  }
  return sum;
}

static uint64_t whole_sum(uint64_t sum, const uint8_t *header) {
  for (unsigned i = 0; i < 3; i++)
    sum += hv_mix(hv_load64(header + 8 * i) + (i + 1) * HV_SUM_G);
  return hv_mix(sum);
}

/* ---- encoding ---- */

/* The next unit, slice, piece ... of what is left. */
static size_t codec_next(uint64_t left, size_t most) {
  return left < most ? (size_t)left : most;
}

/* One chunk on its way out: where the next bytes of the body go, and their sum so far. */
typedef struct writer {
  const hv_kern *kern;
  uint8_t *out; /* where `stage` belongs */
  uint8_t *stage;
  size_t fill;
  int far;
  uint64_t index, sum;
} writer;

/* Ends what is staged: sums it while it is in the first cache and sends it on its way. */
static void flush(writer *w) {
  w->sum += region_sum(w->kern, w->stage, w->fill, w->index);
  w->index += w->fill / HV_PIECE;
  if (w->far)
    w->kern->copy(w->out, w->stage, w->fill);
  else
    w->stage += w->fill;
  w->out += w->fill;
  w->fill = 0;
}

static void decode_back(const hv_encoder *e, const hv_coder *coder, hv_decoder *d, uint64_t at, const uint8_t *body, size_t n,
                        float *residual) {
  float values[HV_SLICE];
  for (size_t done = 0; done < n; done += HV_SLICE) {
    size_t some = codec_next(n - done, HV_SLICE);
    d->at = at + done;
    d->scales = e->head + coder->params + scales_before(coder, e->rows, at + done);
    coder->decode(d, body + done * coder->bits / 8, some, values);
    e->kern->lose(residual + at + done, values, some);
  }
}

static void feed_all(const hv_encoder *e, float *residual) {
  float scratch[HV_UNIT];
  for (uint64_t at = 0; at < e->count; at += HV_UNIT) {
    size_t n = codec_next(e->count - at, HV_UNIT);
    e->kern->feed(residual + at, hv_coder_source(e->kern, e->dtype, e->src, at, n, scratch), n);
  }
}

/* Fills head and body; returns the sum over the body's pieces. Codecs that look at everything first see the source with the
 * residual in it, and lose what was sent at the end; the others do both unit by unit, in the first cache. There each unit is also
 * held against *finite (may be NULL): in a pass of its own that would cost as much as encoding does. */
static uint64_t encode_body(hv_encoder *e, const hv_coder *coder, float *residual, uint8_t *body, int far, int *finite) {
  uint8_t stage[HV_PIECE + 2 * HV_UNIT];
  float scratch[HV_UNIT];
  hv_decoder back = {.kern = e->kern, .dtype = e->dtype, .infinity = HV_INFINITE};
  writer w = {.kern = e->kern, .out = body, .stage = far ? stage : body, .far = far};
  int at_once = residual && !coder->prepare;
  if (residual && coder->prepare) {
    feed_all(e, residual);
    e->src = residual, e->dtype = HV_DTYPE_FLOAT32;
  }
  if (coder->prepare)
    coder->prepare(e);
  if (at_once && coder->load)
    coder->load(&back, e->head);
  for (uint64_t at = 0; at < e->count; at += HV_UNIT) {
    size_t n = codec_next(e->count - at, HV_UNIT);
    const float *x = hv_coder_source(e->kern, e->dtype, e->src, at, n, scratch);
    if (finite)
      *finite &= e->kern->finite_f32((const uint8_t *)x, HV_INFINITE, n);
    if (at_once) {
      e->kern->feed(residual + at, x, n);
      x = residual + at;
    }
    uint8_t *to = w.stage + w.fill;
    coder->encode(e, at, x, n, to);
    if (at_once)
      decode_back(e, coder, &back, at, to, n, residual);
    w.fill += (n * coder->bits + 7) / 8;
    if (w.fill >= HV_PIECE || at + n == e->count)
      flush(&w);
  }
  if (coder->finish)
    coder->finish(e);
  if (residual && coder->prepare && coder->load(&back, e->head))
    for (uint64_t at = 0; at < e->count; at += HV_UNIT)
      decode_back(e, coder, &back, at, body + at * coder->bits / 8, codec_next(e->count - at, HV_UNIT), residual);
  return w.sum;
}

static uint64_t copy_body(const hv_coder *coder, const hv_decoder *d, const uint8_t *src, uint64_t size, uint8_t *body, int far,
                          int *finite) {
  const hv_kern *kern = d->kern;
  uint64_t sum = 0, index = 0;
  for (uint64_t at = 0; at < size; at += HV_PIECE, index++) {
    size_t n = codec_next(size - at, HV_PIECE);
    if (finite)
      *finite &= coder->finite(d, src + at, n);
    sum += region_sum(kern, src + at, n, index);
    if (far)
      kern->copy(body + at, src + at, n);
    else
      memcpy(body + at, src + at, n);
  }
  return sum;
}

static hv_status codec_encode(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, hv_rows rows,
                              float *residual, uint8_t *out, uint64_t room, uint64_t *size, int *finite) {
  const hv_coder *coder = coder_of((int)codec);
  uint64_t whole = hv_codec_bound_rows((int)codec, (int)dtype, count, rows);
  rows = rows_of(count, rows);
  if (!whole)
    return HV_INVALID;
  if (room < whole)
    return HV_TOO_LARGE;
  unsigned mode = hv_mode_ours();
  uint64_t head = head_bytes(coder, count, rows), size_body = body_bytes(coder, (int)dtype, count);
  uint8_t *body = out + HV_CODEC_HEADER + head;
  memset(out, 0, HV_CODEC_HEADER + (size_t)head);
  hv_store32(out, MAGIC);
  out[4] = HV_CODEC_VERSION, out[5] = (uint8_t)codec, out[6] = (uint8_t)dtype;
  hv_store64(out + 8, count);
  hv_store64(out + 16, HV_CODEC_HEADER + head);
  uint64_t sum;
  if (coder->bits) {
    hv_encoder e = {.kern = kern, .src = src, .dtype = dtype, .count = count, .rows = rows, .head = out + HV_CODEC_HEADER};
    sum = encode_body(&e, coder, residual, body, size_body >= FAR, finite);
  } else {
    hv_decoder as_is = {.kern = kern, .dtype = dtype, .infinity = HV_INFINITE};
    sum = copy_body(coder, &as_is, src, size_body, body, size_body >= FAR, finite);
  }
  sum += region_sum(kern, out + HV_CODEC_HEADER, head, HEAD_INDEX);
  hv_store64(out + 24, whole_sum(sum, out));
  *size = whole;
  hv_mode_theirs(mode);
  return HV_OK;
}

hv_status hv_codec_encode(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, float *residual,
                          uint8_t *out, uint64_t room, uint64_t *size) {
  return codec_encode(kern, codec, dtype, src, count, (hv_rows){0}, residual, out, room, size, NULL);
}

hv_status hv_codec_encode_rows(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, hv_rows rows,
                               float *residual, uint8_t *out, uint64_t room, uint64_t *size) {
  return codec_encode(kern, codec, dtype, src, count, rows, residual, out, room, size, NULL);
}

hv_status hv_codec_encode_finite(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, hv_rows rows,
                                 uint8_t *out, uint64_t room, uint64_t *size) {
  int finite = 1;
  hv_status status = codec_encode(kern, codec, dtype, src, count, rows, NULL, out, room, size, &finite);
  return status == HV_OK && !finite ? HV_NOT_FINITE : status;
}

/* ---- reading a chunk that comes in parts ---- */

typedef struct cursor {
  const hv_span *part, *end;
  size_t at; /* in *part */
} cursor;

static uint64_t skip(cursor *c, uint64_t size) {
  while (c->part < c->end) {
    size_t here = c->part->size - c->at;
    if (here > size) {
      c->at += (size_t)size;
      return 0;
    }
    size -= here, c->part++, c->at = 0;
  }
  return size;
}

static cursor cursor_at(const hv_span *parts, size_t n_parts, uint64_t offset) {
  cursor c = {parts, parts + n_parts, 0};
  skip(&c, offset);
  return c;
}

/* The next `size` bytes, which must be there: in place when one part has them all, else gathered in scratch. */
static const uint8_t *take(cursor *c, size_t size, uint8_t *scratch) {
  if (c->part < c->end && c->part->size - c->at >= size) {
    const uint8_t *in_place = c->part->data + c->at;
    skip(c, size);
    return in_place;
  }
  for (size_t have = 0; have < size;) {
    size_t some = codec_next(size - have, c->part->size - c->at);
    if (some)
      memcpy(scratch + have, c->part->data + c->at, some);
    skip(c, some);
    have += some;
  }
  return scratch;
}

hv_status hv_codec_peek(const hv_span *parts, size_t n_parts, hv_codec_info *info) {
  uint8_t scratch[HV_CODEC_HEADER];
  uint64_t size = 0;
  for (size_t i = 0; i < n_parts; i++)
    size += parts[i].size;
  if (size < HV_CODEC_HEADER)
    return HV_MALFORMED;
  cursor c = cursor_at(parts, n_parts, 0);
  const uint8_t *header = take(&c, HV_CODEC_HEADER, scratch);
  if (hv_load32(header) != MAGIC)
    return HV_MALFORMED;
  if (header[4] != HV_CODEC_VERSION)
    return HV_VERSION;
  const hv_coder *coder = coder_of(header[5]);
  if (!coder || !hv_dtype_size(header[6]))
    return HV_UNSUPPORTED;
  uint64_t count = hv_load64(header + 8), body = hv_load64(header + 16);
  hv_rows rows = {0};
  if (coder->by_row) {
    uint8_t params[sizeof rows];
    if (size < HV_CODEC_HEADER + sizeof rows)
      return HV_MALFORMED;
    rows = hv_rows_load(take(&c, sizeof rows, params));
    if (!hv_rows_fit(rows))
      return HV_MALFORMED;
  }
  if (header[7] || count > HV_CODEC_COUNT_MAX || hv_codec_bound_rows(header[5], header[6], count, rows) != size ||
      body != HV_CODEC_HEADER + head_bytes(coder, count, rows))
    return HV_MALFORMED;
  *info = (hv_codec_info){(hv_codec)header[5], (hv_dtype)header[6], count, body, size, hv_load64(header + 24), rows};
  return HV_OK;
}

/* The next piece, filled up with zeros; n bytes of it are the chunk's. */
static const uint8_t *take_piece(cursor *c, size_t n, uint8_t *scratch) {
  const uint8_t *piece = take(c, n, scratch);
  if (n == HV_PIECE)
    return piece;
  if (piece != scratch)
    memcpy(scratch, piece, n);
  memset(scratch + n, 0, HV_PIECE - n);
  return scratch;
}

/* Sums the head; takes up the params, and looks at the scales. 0: they cannot be. */
static int read_head(const hv_coder *coder, const hv_codec_info *info, cursor *c, hv_decoder *d, uint64_t *sum) {
  uint8_t scratch[HV_PIECE];
  uint64_t size = info->body - HV_CODEC_HEADER, scales = coder->params + scale_bytes(coder, info->count, info->rows);
  int fits = size || !coder->load || coder->load(d, NULL);
  for (uint64_t at = 0, index = HEAD_INDEX; at < size; at += HV_PIECE, index++) {
    size_t n = codec_next(size - at, HV_PIECE);
    const uint8_t *piece = take_piece(c, n, scratch);
    *sum += piece_sum(d->kern, piece, index);
    if (at == 0 && coder->load)
      fits &= coder->load(d, piece);
    size_t params = at ? 0 : coder->params;
    if (coder->scales_fit && at < scales)
      fits &= coder->scales_fit(piece + params, codec_next(scales - at, HV_PIECE) - params);
  }
  return fits;
}

static int read_body(const hv_coder *coder, const hv_codec_info *info, cursor *c, const hv_decoder *d, uint64_t *sum) {
  uint8_t scratch[HV_PIECE];
  uint64_t size = info->size - info->body;
  int finite = 1;
  for (uint64_t at = 0, index = 0; at < size; at += HV_PIECE, index++) {
    const uint8_t *piece = take_piece(c, codec_next(size - at, HV_PIECE), scratch);
    *sum += piece_sum(d->kern, piece, index);
    if (coder->finite)
      finite &= coder->finite(d, piece, HV_PIECE); /* the zeros at the end are finite */
  }
  return finite;
}

static hv_status codec_check(const hv_span *parts, size_t n_parts, hv_codec_info *info, hv_decoder *d, int *finite) {
  uint8_t scratch[HV_CODEC_HEADER];
  uint64_t sum = 0;
  hv_status status = hv_codec_peek(parts, n_parts, info);
  if (status != HV_OK)
    return status;
  const hv_coder *coder = coders[info->codec];
  d->dtype = info->dtype;
  cursor c = cursor_at(parts, n_parts, 0);
  const uint8_t *header = take(&c, HV_CODEC_HEADER, scratch);
  int fits = read_head(coder, info, &c, d, &sum);
  *finite = read_body(coder, info, &c, d, &sum);
  if (whole_sum(sum, header) != info->checksum)
    return HV_CORRUPT;
  return fits ? HV_OK : HV_MALFORMED;
}

hv_status hv_codec_check(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_codec_info *info, int *finite) {
  hv_decoder d = {.kern = kern, .infinity = HV_INFINITE};
  hv_codec_info found;
  int is_finite = 0;
  unsigned mode = hv_mode_ours();
  hv_status status = codec_check(parts, n_parts, &found, &d, &is_finite);
  hv_mode_theirs(mode);
  if (status != HV_OK)
    return status;
  *info = found;
  if (finite)
    *finite = is_finite;
  return HV_OK;
}

/* ---- decoding ---- */

/* Walks over the slices of a chunk that was checked. */
typedef struct reader {
  const hv_coder *coder;
  hv_decoder *d;
  uint64_t count, at, scaled; /* elements; done; how many have their scales taken */
  unsigned bits;
  cursor scales, body;
  uint8_t scale_scratch[(HV_SLICE + 1) * 8], scratch[HV_SLICE * 8];
} reader;

static void reader_init(reader *r, const hv_span *parts, size_t n_parts, const hv_codec_info *info, hv_decoder *d) {
  r->coder = coders[info->codec];
  r->d = d;
  r->count = info->count, r->at = r->scaled = 0;
  r->bits = r->coder->bits ? r->coder->bits : 8 * (unsigned)hv_dtype_size((int)info->dtype);
  r->scales = cursor_at(parts, n_parts, HV_CODEC_HEADER + r->coder->params);
  r->body = cursor_at(parts, n_parts, info->body);
}

/* The scales of the rows in the next n > 0 elements. If the last row continues in the next slice, that
 * slice takes its scales again. */
static const uint8_t *take_row_scales(reader *r, size_t n) {
  uint64_t row = hv_rows_at(r->d->rows, r->at), size = (hv_rows_at(r->d->rows, r->at + n - 1) + 1 - row) * r->coder->scale;
  cursor ahead = r->scales;
  skip(&r->scales, (hv_rows_at(r->d->rows, r->at + n) - row) * r->coder->scale);
  return take(&ahead, (size_t)size, r->scale_scratch);
}

/* The body of the next slice, with its scales in r->d; *n is 0 at the end. */
static const uint8_t *reader_next(reader *r, size_t *n) {
  *n = codec_next(r->count - r->at, HV_SLICE);
  if (r->coder->by_row && *n)
    r->d->scales = take_row_scales(r, *n);
  if (r->coder->block && r->at == r->scaled && *n) {
    size_t covers = r->coder->block > HV_SLICE ? r->coder->block : HV_SLICE;
    covers = codec_next(r->count - r->at, covers);
    r->d->scales = take(&r->scales, (size_t)scale_bytes(r->coder, covers, (hv_rows){0}), r->scale_scratch);
    r->scaled += covers;
  }
  r->d->at = r->at;
  r->at += *n;
  return take(&r->body, (*n * r->bits + 7) / 8, r->scratch);
}

/* One slice of float32 in another dtype; out is where the slice goes. */
static void codec_put(const hv_kern *kern, hv_dtype dtype, const float *values, size_t n, uint8_t *out, int far) {
  if (dtype == HV_DTYPE_FLOAT16)
    kern->narrow_f16(out, values, n);
  else if (dtype == HV_DTYPE_BFLOAT16)
    kern->narrow_bf16(out, values, n);
  else if (dtype == HV_DTYPE_FLOAT64)
    kern->widen_f64(out, values, n);
  else if (far)
    kern->copy(out, (const uint8_t *)values, 4 * n);
}

static hv_status codec_decode(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_dtype dtype, void *out, uint64_t count,
                              int must_be_finite) {
  hv_decoder d = {.kern = kern, .infinity = HV_INFINITE};
  hv_codec_info info;
  int finite;
  if (!hv_dtype_size((int)dtype))
    return HV_INVALID;
  unsigned mode = hv_mode_ours();
  hv_status status = codec_check(parts, n_parts, &info, &d, &finite);
  if (status == HV_OK && info.count != count)
    status = HV_INVALID;
  if (status == HV_OK && must_be_finite && !finite)
    status = HV_NOT_FINITE;
  if (status == HV_OK) {
    reader r;
    reader_init(&r, parts, n_parts, &info, &d);
    float values[HV_SLICE];
    uint8_t *to = out;
    size_t n, size = hv_dtype_size((int)dtype);
    int as_is = info.codec == HV_CODEC_NONE && info.dtype == dtype, far = count * size >= FAR;
    for (const uint8_t *body = reader_next(&r, &n); n; to += n * size, body = reader_next(&r, &n)) {
      float *direct = dtype == HV_DTYPE_FLOAT32 && !far ? (float *)(void *)to : values;
      if (as_is && far)
        kern->copy(to, body, n * size);
      else if (as_is)
        memcpy(to, body, n * size);
      else {
        r.coder->decode(&d, body, n, direct);
        codec_put(kern, dtype, values, n, to, far);
      }
    }
  }
  hv_mode_theirs(mode);
  return status;
}

hv_status hv_codec_decode(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_dtype dtype, void *out, uint64_t count) {
  return codec_decode(kern, parts, n_parts, dtype, out, count, 0);
}

hv_status hv_codec_decode_finite(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_dtype dtype, void *out,
                                 uint64_t count) {
  return codec_decode(kern, parts, n_parts, dtype, out, count, 1);
}

/* The next slice as float32: where it lies, or in `values`. */
static const uint8_t *next_values(reader *r, int as_is, float *values, size_t *n) {
  const uint8_t *body = reader_next(r, n);
  if (as_is || !*n)
    return body;
  r->coder->decode(r->d, body, *n, values);
  return (const uint8_t *)values;
}

/* The largest magnitude of values measured as *m; the measure takes what is beyond HV_TAME for that. */
static double largest_of(const float *in, size_t n, const hv_measure *m) {
  float most = m->high > -m->low ? m->high : -m->low;
  if (most >= HV_TAME)
    for (size_t i = 0; i < n; i++)
      most = fabsf(in[i]) > most ? fabsf(in[i]) : most;
  return (double)most;
}

/* Norm (when there is a limit) and largest value, before anything counts. */
static hv_status hold_within(const hv_kern *kern, reader *r, int as_is, float weight, float norm_max) {
  float values[HV_SLICE], aligned[HV_SLICE];
  double square = 0;
  size_t n;
  for (const uint8_t *slice = next_values(r, as_is, values, &n); n; slice = next_values(r, as_is, values, &n)) {
    hv_measure m;
    const float *in = (const float *)(const void *)slice;
    if ((uintptr_t)slice % sizeof *in)
      in = memcpy(aligned, slice, n * sizeof *aligned);
    kern->measure(in, n, &m);
    square += m.square;
    if (largest_of(in, n, &m) * (double)weight > (double)HV_CODEC_ADDEND_MAX)
      return HV_TOO_LARGE;
  }
  return norm_max > 0 && square > (double)norm_max * (double)norm_max ? HV_TOO_LARGE : HV_OK;
}

uint32_t hv_codec_infinity(float weight) {
  double most = (double)HV_CODEC_ADDEND_MAX / (weight > 0x1p-8f ? (double)weight : 0x1p-8);
  return hv_bits((float)(most * (1 - 0x1p-20))); /* whatever the rounding: below it a value times the weight is within */
}

/* Values that may count: *d and *info are the chunk's. Most chunks are seen to be within all limits while they are checked, or by
 * their params; others are looked at again. */
static hv_status check_within(const hv_span *parts, size_t n_parts, hv_codec_info *info, hv_decoder *d, uint64_t count,
                              float weight, const float *norm_max) {
  int finite, by_norm = norm_max && *norm_max > 0;
  d->infinity = norm_max && !by_norm ? hv_codec_infinity(weight) : HV_INFINITE;
  hv_status status = codec_check(parts, n_parts, info, d, &finite);
  int plain = status == HV_OK && info->codec == HV_CODEC_NONE && info->dtype == HV_DTYPE_FLOAT32, small = plain && finite;
  if (plain && !finite && d->infinity < HV_INFINITE) { /* too large, or infinite? */
    d->infinity = HV_INFINITE;
    status = codec_check(parts, n_parts, info, d, &finite);
  }
  if (status == HV_OK && info->count != count)
    return HV_INVALID;
  if (status == HV_OK && !finite)
    return HV_NOT_FINITE;
  if (status != HV_OK || !norm_max)
    return status;
  double (*most)(const hv_decoder *) = coders[info->codec]->most;
  if (!by_norm && (small || (most && most(d) * (double)weight <= (double)HV_CODEC_ADDEND_MAX)))
    return HV_OK;
  reader r;
  reader_init(&r, parts, n_parts, info, d);
  return hold_within(d->kern, &r, plain, weight, *norm_max);
}

static hv_status accumulate(const hv_kern *kern, const hv_span *parts, size_t n_parts, float weight, const float *norm_max,
                            float *acc, uint64_t count) {
  hv_decoder d = {.kern = kern};
  hv_codec_info info;
  if (!(weight >= 0 && weight <= HV_CODEC_WEIGHT_MAX))
    return HV_INVALID;
  hv_status status = check_within(parts, n_parts, &info, &d, count, weight, norm_max);
  if (status != HV_OK)
    return status;
  reader r;
  float values[HV_SLICE];
  int as_is = info.codec == HV_CODEC_NONE && info.dtype == HV_DTYPE_FLOAT32;
  reader_init(&r, parts, n_parts, &info, &d);
  size_t n = 1;
  for (; n; acc += n) {
    const uint8_t *slice = next_values(&r, as_is, values, &n);
    kern->add(acc, slice, weight, n);
  }
  return HV_OK;
}

hv_status hv_codec_accumulate(const hv_kern *kern, const hv_span *parts, size_t n_parts, float weight, float *acc, uint64_t count) {
  unsigned mode = hv_mode_ours();
  hv_status status = accumulate(kern, parts, n_parts, weight, NULL, acc, count);
  hv_mode_theirs(mode);
  return status;
}

hv_status hv_codec_accumulate_within(const hv_kern *kern, const hv_span *parts, size_t n_parts, float weight, float norm_max,
                                     float *acc, uint64_t count) {
  unsigned mode = hv_mode_ours();
  hv_status status = accumulate(kern, parts, n_parts, weight, &norm_max, acc, count);
  hv_mode_theirs(mode);
  return status;
}
