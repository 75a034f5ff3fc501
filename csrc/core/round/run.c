#include "core/round/run.h"

#include "kern/reduce.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

typedef struct hv_run_place {
  hv_run_part part;
  uint64_t at;
} place;

typedef struct hv_run_section {
  uint64_t at, n_values;
  uint32_t first; /* its first chunk */
  hv_codec codec, narrow;
  uint64_t row; /* of SCALED_ROWS; 0 otherwise */
} section;

/* One chunk's values within one part. */
typedef struct stretch {
  uint8_t *data; /* in the part; NULL in a layout */
  hv_dtype dtype;
  const hv_device *device;
  uint64_t at; /* in the chunk */
  uint64_t n;
} stretch;

/* ---- the layout ---- */

uint64_t hv_run_row(const int64_t *shape, size_t n_dims) {
  uint64_t row = 1;
  for (size_t i = n_dims; i > 0 && row < HV_RUN_ROW_LEAST; i--)
    row *= (uint64_t)shape[i - 1];
  return row;
}

/* The codecs and the row width in which a part's values travel. */
static section travels(const hv_run_part *part) {
  section s = {.codec = part->codec, .narrow = part->narrow};
  if (s.codec == HV_CODEC_SCALED_ROWS && part->n_values < HV_RUN_ROW_LEAST)
    s.codec = HV_CODEC_NONE;
  if (s.codec == HV_CODEC_SCALED_ROWS)
    s.row = part->row ? part->row : part->n_values;
  return s;
}

static hv_status check_part(const hv_run_part *part, size_t index, uint32_t chunk_values, hv_error *err) {
  uint64_t bytes = hv_codec_bound((int)part->codec, HV_DTYPE_FLOAT32, chunk_values);
  uint64_t narrow_bytes = hv_codec_bound((int)part->narrow, HV_DTYPE_FLOAT32, chunk_values);
  if (!hv_dtype_size((int)part->dtype) || !bytes || !narrow_bytes)
    return hv_fail(
        err, HV_INVALID,
        "tensor %zu has an unknown dtype or codec: use float32, float16, bfloat16 or float64, and a codec of this version", index);
  if (part->narrow != HV_CODEC_NONE &&
      (narrow_bytes >= bytes || part->codec == HV_CODEC_SCALED_ROWS || part->narrow == HV_CODEC_SCALED_ROWS))
    return hv_fail(err, HV_INVALID, "tensor %zu may travel under %s or %s: give a second codec with fewer bits, without rows",
                   index, hv_codec_name((int)part->codec), hv_codec_name((int)part->narrow));
  uint64_t row = travels(part).row;
  if (row && (row < HV_RUN_ROW_LEAST || row > HV_CODEC_COUNT_MAX || part->n_values % row))
    return hv_fail(err, HV_INVALID, "tensor %zu has rows of %" PRIu64 " values: give %d or more, a divisor of its size", index, row,
                   HV_RUN_ROW_LEAST);
  return HV_OK;
}

static hv_status add_part(hv_run *run, const hv_run_part *part, size_t index, hv_error *err) {
  hv_status status = check_part(part, index, run->chunk_values, err);
  if (status != HV_OK || part->n_values == 0)
    return status;
  if (part->n_values > HV_RUN_VALUES_MAX - run->n_values)
    return hv_fail(err, HV_INVALID, "the tensors have too many values together: use several averagers");
  if (run->n_places && run->has_values != (part->data != NULL))
    return hv_fail(err, HV_INVALID, "tensor %zu is inconsistent with the others: either all tensors have values, or none", index);
  run->has_values = part->data != NULL;
  section *last = run->n_sections ? &run->sections[run->n_sections - 1] : NULL, next = travels(part);
  if (!last || last->codec != next.codec || last->narrow != next.narrow || last->row != next.row || part->apart) {
    last = &run->sections[run->n_sections++];
    *last = next;
    last->at = run->n_values;
  }
  last->n_values += part->n_values;
  run->places[run->n_places++] = (place){*part, run->n_values};
  run->n_values += part->n_values;
  return HV_OK;
}

/* Every section begins a chunk. */
static hv_status count_chunks(hv_run *run, hv_error *err) {
  uint64_t chunks = 0;
  for (size_t i = 0; i < run->n_sections; i++) {
    run->sections[i].first = (uint32_t)chunks;
    chunks += (run->sections[i].n_values + run->chunk_values - 1) / run->chunk_values;
    if (chunks >= UINT32_MAX)
      return hv_fail(err, HV_INVALID, "the run has too many chunks: make part_size_bytes larger");
  }
  run->n_chunks = (uint32_t)chunks;
  return HV_OK;
}

hv_status hv_run_init(hv_run *run, hv_mem *mem, const hv_run_part *parts, size_t n_parts, uint32_t chunk_values, hv_error *err) {
  *run = (hv_run){.mem = mem, .chunk_values = chunk_values};
  if (chunk_values == 0 || chunk_values > HV_RUN_CHUNK_MAX)
    return hv_fail(err, HV_INVALID, "a chunk must have 1 to %u values: change part_size_bytes", HV_RUN_CHUNK_MAX);
  if (n_parts > HV_RUN_PARTS_MAX)
    return hv_fail(err, HV_INVALID, "there are too many tensors: use several averagers");
  run->places = hv_mem_array(mem, n_parts, sizeof *run->places);
  run->sections = hv_mem_array(mem, n_parts, sizeof *run->sections);
  hv_status status =
      run->places && run->sections
          ? HV_OK
          : hv_fail(err, HV_NOMEM, "cannot make an averager: no memory for the table of tensors; raise the memory limit");
  for (size_t i = 0; i < n_parts && status == HV_OK; i++)
    status = add_part(run, &parts[i], i, err);
  if (status == HV_OK)
    status = count_chunks(run, err);
  if (run->n_places == 0)
    run->has_values = 1; /* all of its none */
  if (status != HV_OK)
    hv_run_fini(run);
  return status;
}

void hv_run_fini(hv_run *run) {
  hv_mem_free(run->places);
  hv_mem_free(run->sections);
  *run = (hv_run){0};
}

uint32_t hv_run_fit(uint64_t n_values, uint32_t most) {
  enum { CHUNKS = 256, LEAST = 1 << 15 };
  uint32_t fit = LEAST;
  while (fit < most && n_values / fit >= CHUNKS)
    fit *= 2;
  return fit < most ? fit : most;
}

int hv_run_alike(const hv_run *a, const hv_run *b) {
  if (a->n_values != b->n_values || a->chunk_values != b->chunk_values || a->n_sections != b->n_sections)
    return 0;
  for (size_t i = 0; i < a->n_sections; i++)
    if (a->sections[i].at != b->sections[i].at || a->sections[i].codec != b->sections[i].codec ||
        a->sections[i].narrow != b->sections[i].narrow || a->sections[i].row != b->sections[i].row)
      return 0;
  return 1;
}

hv_run_chunk hv_run_chunk_of(const hv_run *run, uint32_t index) {
  size_t low = 0, high = run->n_sections; /* the last section that begins at or before it */
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (run->sections[middle].first <= index)
      low = middle;
    else
      high = middle;
  }
  const section *s = &run->sections[low];
  uint64_t within = (uint64_t)(index - s->first) * run->chunk_values, left = s->n_values - within;
  hv_run_chunk chunk = {.at = s->at + within, .codec = s->codec};
  chunk.size = left < run->chunk_values ? (uint32_t)left : run->chunk_values;
  if (s->row)
    chunk.rows = (hv_rows){s->row, s->row - within % s->row};
  chunk.bytes = chunk.narrow_bytes = (size_t)hv_codec_bound_rows((int)s->codec, HV_DTYPE_FLOAT32, chunk.size, chunk.rows);
  size_t narrow_bytes = (size_t)hv_codec_bound((int)s->narrow, HV_DTYPE_FLOAT32, chunk.size);
  if (s->narrow != HV_CODEC_NONE && narrow_bytes < chunk.bytes) {
    chunk.narrow = s->narrow;
    chunk.narrow_bytes = narrow_bytes;
  }
  return chunk;
}

hv_run_chunk hv_run_chunk_as(const hv_run *run, uint32_t index, int narrow) {
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  if (narrow && chunk.narrow != HV_CODEC_NONE) {
    chunk.codec = chunk.narrow;
    chunk.bytes = chunk.narrow_bytes;
  }
  return chunk;
}

static int is_chunk(const hv_run_chunk *chunk, const hv_codec_info *info, uint64_t size) {
  return info->codec == chunk->codec && size == chunk->bytes && info->dtype == HV_DTYPE_FLOAT32 && info->count == chunk->size &&
         info->rows.width == chunk->rows.width && info->rows.first == chunk->rows.first;
}

hv_status hv_run_width(const hv_run *run, uint32_t index, const hv_span *spans, size_t n_spans, int *narrow) {
  hv_run_chunk wide = hv_run_chunk_of(run, index), thin = hv_run_chunk_as(run, index, 1);
  hv_codec_info info;
  uint64_t size = 0;
  for (size_t i = 0; i < n_spans; i++)
    size += spans[i].size;
  if (hv_codec_peek(spans, n_spans, &info) != HV_OK)
    return HV_MALFORMED;
  *narrow = !is_chunk(&wide, &info, size);
  return *narrow && !is_chunk(&thin, &info, size) ? HV_MALFORMED : HV_OK;
}

uint32_t hv_run_chunk_most(const hv_run *run) {
  uint64_t most = 0;
  for (size_t i = 0; i < run->n_sections; i++)
    if (run->sections[i].n_values > most)
      most = run->sections[i].n_values;
  return most < run->chunk_values ? (uint32_t)most : run->chunk_values;
}

/* ---- values ---- */

static size_t part_at(const hv_run *run, uint64_t at) {
  size_t low = 0, high = run->n_places;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (run->places[middle].at <= at)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* The stretch of a chunk that lies in one part. */
static stretch stretch_in(const hv_run *run, const hv_run_chunk *chunk, size_t part) {
  const place *p = &run->places[part];
  uint64_t begin = p->at > chunk->at ? p->at : chunk->at, end = p->at + p->part.n_values;
  if (end > chunk->at + chunk->size)
    end = chunk->at + chunk->size;
  stretch s = {.dtype = p->part.dtype, .device = p->part.device, .at = begin - chunk->at, .n = end - begin};
  s.data = (uint8_t *)p->part.data + (begin - p->at) * hv_dtype_size((int)s.dtype);
  return s;
}

typedef hv_status visit(const hv_kern *kern, const stretch *s, float *values, float weight);

/* The same with values that are brought here from their device, or are to go there. */
static hv_status visit_here(const hv_run *run, const hv_kern *kern, const stretch *s, visit *fn, int writes, float *values) {
  hv_stretch there = {s->data, s->dtype, s->n};
  stretch here = *s;
  here.data = hv_mem_aligned(run->mem, s->n * hv_dtype_size((int)s->dtype));
  if (!here.data)
    return HV_NOMEM;
  hv_status status = writes ? HV_OK : s->device->read(s->device->self, &there, here.data);
  if (status == HV_OK)
    status = fn(kern, &here, values, 0);
  if (status == HV_OK && writes)
    status = s->device->write(s->device->self, here.data, &there);
  hv_mem_free(here.data);
  return status;
}

static hv_status scatter(const hv_kern *kern, const stretch *s, float *values, float weight);

static hv_status each_stretch(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, visit *fn, float *values,
                              float weight) {
  hv_status status = HV_OK;
  uint64_t end = chunk->at + chunk->size;
  for (size_t i = part_at(run, chunk->at); status == HV_OK && i < run->n_places && run->places[i].at < end; i++) {
    stretch s = stretch_in(run, chunk, i);
    float *at = values + s.at;
    status = s.device ? visit_here(run, kern, &s, fn, fn == scatter, at) : fn(kern, &s, at, weight);
  }
  return status;
}

static hv_status gather(const hv_kern *kern, const stretch *s, float *values, float weight) {
  (void)weight;
  return hv_reduce_convert(kern, s->dtype, s->data, HV_DTYPE_FLOAT32, values, s->n);
}

static hv_status scatter(const hv_kern *kern, const stretch *s, float *values, float weight) {
  (void)weight;
  return hv_reduce_convert(kern, HV_DTYPE_FLOAT32, values, s->dtype, s->data, s->n);
}

static hv_status run_add(const hv_kern *kern, const stretch *s, float *values, float weight) {
  return hv_reduce_accumulate(kern, s->dtype, s->data, weight, values, s->n);
}

/* ---- chunks whose values are on a device ---- */

enum { SOME = 16 }; /* stretches that need no memory of their own */

/* A chunk's values as a device is told of them: neighbours of one dtype are one stretch. */
typedef struct away {
  const hv_device *device; /* all of them are on it; NULL: they are not */
  int any;                 /* some are on a device */
  size_t n;
  hv_stretch *stretches, some[SOME];
} away;

static void look_where(const hv_run *run, const hv_run_chunk *chunk, away *w) {
  uint64_t end = chunk->at + chunk->size;
  size_t first = part_at(run, chunk->at);
  *w = (away){.device = run->places[first].part.device, .stretches = w->some};
  for (size_t i = first; i < run->n_places && run->places[i].at < end; i++) {
    w->any |= run->places[i].part.device != NULL;
    if (run->places[i].part.device != w->device)
      w->device = NULL;
  }
}

static int follows(const hv_stretch *last, const stretch *next) {
  return last->dtype == next->dtype && (uint8_t *)last->data + last->n * hv_dtype_size((int)last->dtype) == next->data;
}

/* HV_NOMEM. */
static hv_status list_stretches(const hv_run *run, const hv_run_chunk *chunk, away *w) {
  uint64_t end = chunk->at + chunk->size;
  size_t first = part_at(run, chunk->at), last = first, n = 0;
  while (last < run->n_places && run->places[last].at < end)
    last++;
  if (last - first > SOME && !(w->stretches = hv_mem_array(run->mem, last - first, sizeof *w->stretches)))
    return HV_NOMEM;
  for (size_t i = first; i < last; i++) {
    stretch s = stretch_in(run, chunk, i);
    if (n && follows(&w->stretches[n - 1], &s))
      w->stretches[n - 1].n += s.n;
    else
      w->stretches[n++] = (hv_stretch){s.data, s.dtype, s.n};
  }
  w->n = n;
  return HV_OK;
}

static void drop_stretches(away *w) {
  if (w->stretches != w->some)
    hv_mem_free(w->stretches);
}

static hv_status encode_away(const hv_run *run, const hv_run_chunk *chunk, away *w, hv_codec codec, uint8_t *out, size_t room,
                             size_t *size) {
  hv_status status = list_stretches(run, chunk, w);
  if (status == HV_OK && room < hv_codec_bound_rows((int)codec, HV_DTYPE_FLOAT32, chunk->size, chunk->rows))
    status = HV_TOO_LARGE;
  if (status == HV_OK)
    status = w->device->encode(w->device->self, codec, chunk->rows, w->stretches, w->n, out, room, size);
  drop_stretches(w);
  return status;
}

static hv_status decode_away(const hv_run *run, const hv_run_chunk *chunk, away *w, const hv_span *spans, size_t n_spans) {
  hv_status status = list_stretches(run, chunk, w);
  if (status == HV_OK)
    status = w->device->decode(w->device->self, spans, n_spans, w->stretches, w->n);
  drop_stretches(w);
  return status;
}

/* All of a chunk's values, here, as float32. *out is the caller's to free. */
static hv_status bring(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, float **out) {
  float *values = *out = hv_mem_aligned(run->mem, chunk->size * sizeof *values);
  return values ? each_stretch(run, kern, chunk, gather, values, 0) : HV_NOMEM;
}

/* ---- the doors ---- */

hv_status hv_run_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_codec codec, uint8_t *out, size_t room,
                        size_t *size) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  away where;
  *size = 0;
  look_where(run, &chunk, &where);
  if (where.device)
    return encode_away(run, &chunk, &where, codec, out, room, size);
  stretch s = stretch_in(run, &chunk, part_at(run, chunk.at));
  float *scratch = NULL;
  const void *values = s.data;
  hv_status status = HV_OK;
  if (where.any || s.n < chunk.size || s.dtype != HV_DTYPE_FLOAT32) {
    status = bring(run, kern, &chunk, &scratch);
    values = scratch;
  }
  uint64_t written = 0;
  if (status == HV_OK)
    status = hv_codec_encode_finite(kern, codec, HV_DTYPE_FLOAT32, values, chunk.size, chunk.rows, out, room, &written);
  *size = status == HV_OK ? (size_t)written : 0;
  hv_mem_free(scratch);
  return status;
}

hv_status hv_run_decode(const hv_run *run, const hv_kern *kern, uint32_t index, const hv_span *spans, size_t n_spans) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  away where;
  look_where(run, &chunk, &where);
  hv_status status = where.device ? decode_away(run, &chunk, &where, spans, n_spans) : HV_UNSUPPORTED;
  if (status != HV_UNSUPPORTED)
    return status;
  stretch s = stretch_in(run, &chunk, part_at(run, chunk.at));
  if (!where.any && s.n == chunk.size && s.dtype == HV_DTYPE_FLOAT32)
    return hv_codec_decode_finite(kern, spans, n_spans, s.dtype, s.data, chunk.size);
  float *scratch = hv_mem_aligned(run->mem, chunk.size * sizeof *scratch);
  if (!scratch)
    return HV_NOMEM;
  status = hv_codec_decode_finite(kern, spans, n_spans, HV_DTYPE_FLOAT32, scratch, chunk.size);
  if (status == HV_OK)
    status = each_stretch(run, kern, &chunk, scatter, scratch, 0);
  hv_mem_free(scratch);
  return status;
}

/* HV_EXISTS: these values differ from the stretch's by more than roundings. */
static hv_status compare_stretch(const hv_kern *kern, const stretch *s, float *values, float weight) {
  float own[256];
  double change = 0, square = 0;
  hv_status status = HV_OK;
  (void)weight;
  for (uint64_t at = 0, n; at < s->n && status == HV_OK; at += n) {
    n = s->n - at < sizeof own / sizeof *own ? s->n - at : sizeof own / sizeof *own;
    status = hv_reduce_convert(kern, s->dtype, s->data + at * hv_dtype_size((int)s->dtype), HV_DTYPE_FLOAT32, own, n);
    if (status != HV_OK || memcmp(own, values + at, n * sizeof *own) == 0)
      continue;
    for (uint64_t i = 0; i < n; i++)
      change += ((double)values[at + i] - (double)own[i]) * ((double)values[at + i] - (double)own[i]);
  }
  if (status != HV_OK || change == 0)
    return status;
  status = hv_reduce_square_sum(kern, HV_DTYPE_FLOAT32, values, s->n, &square);
  int is_rounding = change <= HV_RUN_ROUNDING * HV_RUN_ROUNDING * square; /* a NaN is none */
  return status == HV_OK && !is_rounding ? HV_EXISTS : status;
}

hv_status hv_run_compare(const hv_run *run, const hv_kern *kern, uint32_t index, uint64_t compared, const hv_span *spans,
                         size_t n_spans, int *changes) {
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  *changes = 0;
  if (!run->has_values)
    return HV_STATE;
  if (chunk.at >= compared)
    return HV_OK;
  float *values = hv_mem_aligned(run->mem, chunk.size * sizeof *values);
  hv_status status = values ? hv_codec_decode_finite(kern, spans, n_spans, HV_DTYPE_FLOAT32, values, chunk.size) : HV_NOMEM;
  if (chunk.size > compared - chunk.at)
    chunk.size = (uint32_t)(compared - chunk.at);
  if (status == HV_OK)
    status = each_stretch(run, kern, &chunk, compare_stretch, values, 0);
  hv_mem_free(values);
  *changes = status == HV_EXISTS;
  return *changes ? HV_OK : status;
}

/* Holds values, the chunk's or those of one row that stand for it, against the limits. */
static hv_status check_stretch(const hv_kern *kern, const stretch *s, float weight, float norm_max, double *square) {
  double more = 0;
  int finite = 0, within = 0;
  hv_status status = HV_OK;
  if (!(norm_max > 0))
    status = hv_reduce_within(kern, s->dtype, s->data, weight, s->n, &within);
  if (within)
    return status;
  if (status == HV_OK)
    status = hv_reduce_finite(kern, s->dtype, s->data, s->n, &finite);
  if (status == HV_OK && !finite)
    status = HV_NOT_FINITE;
  if (status == HV_OK)
    status = hv_reduce_square_sum(kern, s->dtype, s->data, s->n, &more);
  *square += more;
  return status;
}

static hv_status within_limits(double square, float weight, float norm_max) {
  double largest = (double)(HV_CODEC_ADDEND_MAX) / (weight > 1 ? (double)weight : 1);
  int over = square > largest * largest || (norm_max > 0 && square > (double)norm_max * (double)norm_max);
  return over ? HV_TOO_LARGE : HV_OK;
}

static hv_status check_values(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, float weight, float norm_max) {
  double square = 0;
  uint64_t end = chunk->at + chunk->size;
  hv_status status = HV_OK;
  for (size_t i = part_at(run, chunk->at); status == HV_OK && i < run->n_places && run->places[i].at < end; i++) {
    stretch s = stretch_in(run, chunk, i);
    status = check_stretch(kern, &s, weight, norm_max, &square);
  }
  return status == HV_OK ? within_limits(square, weight, norm_max) : status;
}

static hv_status square_away(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, double *square) {
  stretch row = {.dtype = HV_DTYPE_FLOAT32, .n = chunk->size};
  float *values;
  hv_status status = bring(run, kern, chunk, &values);
  row.data = (uint8_t *)values;
  if (status == HV_OK)
    status = check_stretch(kern, &row, 1, FLT_MAX, square);
  hv_mem_free(values);
  return status;
}

hv_status hv_run_square(const hv_run *run, const hv_kern *kern, uint32_t index, double *square) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  away where;
  hv_status status = HV_OK;
  uint64_t end = chunk.at + chunk.size;
  *square = 0;
  look_where(run, &chunk, &where);
  if (where.any)
    return square_away(run, kern, &chunk, square);
  for (size_t i = part_at(run, chunk.at); status == HV_OK && i < run->n_places && run->places[i].at < end; i++) {
    stretch s = stretch_in(run, &chunk, i);
    status = check_stretch(kern, &s, 1, FLT_MAX, square);
  }
  return status;
}

/* Where no device adds them up, values cross over as they are. */
static hv_status accumulate_away(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, float weight, float norm_max,
                                 float *acc) {
  stretch row = {.dtype = HV_DTYPE_FLOAT32, .n = chunk->size};
  float *values;
  double square = 0;
  hv_status status = bring(run, kern, chunk, &values);
  row.data = (uint8_t *)values;
  if (status == HV_OK)
    status = check_stretch(kern, &row, weight, norm_max, &square);
  if (status == HV_OK)
    status = within_limits(square, weight, norm_max);
  if (status == HV_OK)
    status = run_add(kern, &row, acc, weight);
  hv_mem_free(values);
  return status;
}

hv_status hv_run_accumulate(const hv_run *run, const hv_kern *kern, uint32_t index, float weight, float norm_max, float *acc) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  away where;
  look_where(run, &chunk, &where);
  if (where.any)
    return accumulate_away(run, kern, &chunk, weight, norm_max, acc);
  hv_status status = check_values(run, kern, &chunk, weight, norm_max);
  return status == HV_OK ? each_stretch(run, kern, &chunk, run_add, acc, weight) : status;
}

/* ---- sums ---- */

hv_status hv_run_sum_begin(const hv_run *run, uint32_t index, hv_run_sum *sum) {
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  away where;
  look_where(run, &chunk, &where);
  sum->seen = 0;
  sum->unlike = 0;
  sum->n_kept = 0;
  sum->own = 0;
  sum->narrow = 0;
  sum->device = run->has_values ? where.device : NULL;
  sum->there = NULL;
  hv_status status = sum->device ? sum->device->sum_take(sum->device->self, chunk.size, &sum->there) : HV_OK;
  if (!sum->there) {
    sum->device = NULL;
    memset(sum->here, 0, chunk.size * sizeof *sum->here);
  }
  return status;
}

void hv_run_sum_end(hv_run_sum *sum) {
  if (sum->device)
    sum->device->sum_give(sum->device->self, sum->there);
  sum->device = NULL;
}

static void keep(hv_run_sum *sum, const hv_span *spans, size_t n_spans) {
  size_t size = 0;
  for (size_t i = 0; i < n_spans; i++)
    size += spans[i].size;
  if (!sum->kept || size > sum->room)
    return;
  for (size_t i = 0; i < n_spans; sum->n_kept += spans[i++].size)
    memcpy(sum->kept + sum->n_kept, spans[i].data, spans[i].size);
}

/* Is this chunk, which counts, like those before it? */
static void compare(hv_run_sum *sum, const hv_span *spans, size_t n_spans) {
  uint8_t begins[HV_RUN_SUM_SEEN];
  size_t size = 0;
  for (size_t i = 0; i < n_spans && size < sizeof begins; i++) {
    size_t n = (size_t)(spans[i].size < sizeof begins - size ? spans[i].size : sizeof begins - size);
    memcpy(begins + size, spans[i].data, n);
    size += n;
  }
  if (sum->seen)
    sum->unlike |= size != sum->seen || memcmp(begins, sum->first, size) != 0;
  else {
    memcpy(sum->first, begins, size);
    keep(sum, spans, n_spans);
  }
  sum->seen = size;
}

hv_status hv_run_sum_add(const hv_kern *kern, hv_run_sum *sum, uint32_t size, const hv_span *spans, size_t n_spans, float weight,
                         float norm_max) {
  hv_status status = sum->device ? sum->device->sum_add(sum->device->self, sum->there, spans, n_spans, weight, norm_max)
                                 : hv_codec_accumulate_within(kern, spans, n_spans, weight, norm_max, sum->here, size);
  if (status == HV_OK && weight > 0 && !sum->unlike)
    compare(sum, spans, n_spans);
  return status;
}

hv_status hv_run_sum_add_own(const hv_run *run, const hv_kern *kern, uint32_t index, hv_run_sum *sum, float weight,
                             float norm_max) {
  sum->own |= weight > 0;
  if (!sum->device)
    return hv_run_accumulate(run, kern, index, weight, norm_max, sum->here);
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  away where;
  look_where(run, &chunk, &where);
  hv_status status = list_stretches(run, &chunk, &where);
  if (status == HV_OK)
    status = sum->device->sum_add_own(sum->device->self, sum->there, where.stretches, where.n, weight, norm_max);
  drop_stretches(&where);
  return status;
}

/* The first values of a chunk, *n of them at most, as float32; *n is how many there are in its first stretch. */
static hv_status first_values(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, float *values, size_t *n) {
  stretch s = stretch_in(run, chunk, part_at(run, chunk->at));
  uint8_t codes[HV_RUN_SUM_SEEN];
  size_t size;
  if (*n > s.n)
    *n = (size_t)s.n;
  if (!s.device)
    return hv_reduce_convert(kern, s.dtype, s.data, HV_DTYPE_FLOAT32, values, *n);
  hv_stretch there = {s.data, s.dtype, *n};
  hv_status status = s.device->encode(s.device->self, HV_CODEC_NONE, (hv_rows){0}, &there, 1, codes, sizeof codes, &size);
  if (status == HV_OK)
    memcpy(values, codes + HV_CODEC_HEADER, *n * sizeof *values);
  return status;
}

/* *own: all that has been added is what this run has, and that is now encoded in `out`. A look at the first values comes first:
 * mostly they differ. */
static hv_status encode_own(const hv_run *run, const hv_kern *kern, uint32_t index, const hv_run_sum *sum, uint8_t *out,
                            size_t room, size_t *written, int *own) {
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  float values[(HV_RUN_SUM_SEEN - HV_CODEC_HEADER) / sizeof(float)];
  *own = 0;
  if (!run->has_values || chunk.codec != HV_CODEC_NONE || sum->unlike || sum->seen <= HV_CODEC_HEADER)
    return HV_OK;
  size_t n = (sum->seen - HV_CODEC_HEADER) / sizeof *values;
  hv_status status = first_values(run, kern, &chunk, values, &n);
  if (status != HV_OK || memcmp(values, sum->first + HV_CODEC_HEADER, n * sizeof *values) != 0)
    return status == HV_NOT_FINITE ? HV_OK : status;
  status = hv_run_encode(run, kern, index, HV_CODEC_NONE, out, room, written);
  *own = status == HV_OK && *written >= sum->seen && memcmp(out, sum->first, sum->seen) == 0;
  return status == HV_NOT_FINITE ? HV_OK : status; /* its own are not what came, then, and do not count */
}

hv_status hv_run_sum_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_run_sum *sum, float factor, uint8_t *out,
                            size_t room, size_t *written) {
  hv_run_chunk chunk = hv_run_chunk_as(run, index, sum->narrow);
  uint64_t size = 0;
  int own;
  *written = 0;
  hv_status status = encode_own(run, kern, index, sum, out, room, written, &own);
  if (status != HV_OK || own)
    return status;
  *written = 0;
  if (chunk.codec == HV_CODEC_NONE && sum->n_kept > 0 && !sum->unlike && !sum->own && sum->n_kept <= room) {
    memcpy(out, sum->kept, sum->n_kept);
    *written = sum->n_kept;
    return HV_OK;
  }
  if (sum->device)
    return sum->device->sum_encode(sum->device->self, sum->there, factor, chunk.codec, chunk.rows, out, room, written);
  hv_reduce_scale(kern, sum->here, factor, chunk.size);
  status = hv_codec_encode_rows(kern, chunk.codec, HV_DTYPE_FLOAT32, sum->here, chunk.size, chunk.rows, NULL, out, room, &size);
  *written = (size_t)size;
  return status;
}
