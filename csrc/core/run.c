#include "core/run.h"

#include "kern/reduce.h"

#include <string.h>

typedef struct hv_run_place {
  hv_run_part part;
  uint64_t at;
} place;

typedef struct hv_run_section {
  uint64_t at, n_values;
  uint32_t first; /* its first chunk */
  hv_codec codec;
} section;

/* One chunk's values within one part. */
typedef struct stretch {
  uint8_t *data; /* in the part; NULL in a layout */
  hv_dtype dtype;
  uint64_t at; /* in the chunk */
  uint64_t n;
} stretch;

/* ---- the layout ---- */

static hv_status check_part(const hv_run_part *part, size_t index, uint32_t chunk_values, hv_error *err) {
  uint64_t bytes = hv_codec_bound((int)part->codec, HV_DTYPE_FLOAT32, chunk_values);
  if (!hv_dtype_size((int)part->dtype) || !bytes)
    return hv_fail(err, HV_INVALID, "tensor %zu has a type of numbers or a codec that is not on the list", index);
  return HV_OK;
}

static hv_status add_part(hv_run *run, const hv_run_part *part, size_t index, hv_error *err) {
  hv_status status = check_part(part, index, run->chunk_values, err);
  if (status != HV_OK || part->n_values == 0)
    return status;
  if (part->n_values > HV_RUN_VALUES_MAX - run->n_values)
    return hv_fail(err, HV_INVALID, "the tensors have too many values together: average them in several runs");
  if (run->n_places && run->has_values != (part->data != NULL))
    return hv_fail(err, HV_INVALID, "tensor %zu differs from those before it in having values or not", index);
  run->has_values = part->data != NULL;
  section *last = run->n_sections ? &run->sections[run->n_sections - 1] : NULL;
  if (!last || last->codec != part->codec) {
    last = &run->sections[run->n_sections++];
    *last = (section){.at = run->n_values, .codec = part->codec};
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
      return hv_fail(err, HV_INVALID, "the run has too many chunks: make them larger");
  }
  run->n_chunks = (uint32_t)chunks;
  return HV_OK;
}

hv_status hv_run_init(hv_run *run, hv_mem *mem, const hv_run_part *parts, size_t n_parts, uint32_t chunk_values, hv_error *err) {
  *run = (hv_run){.mem = mem, .chunk_values = chunk_values};
  if (chunk_values == 0 || chunk_values > HV_RUN_CHUNK_MAX)
    return hv_fail(err, HV_INVALID, "a chunk has 1 to %u values", HV_RUN_CHUNK_MAX);
  if (n_parts > HV_RUN_PARTS_MAX)
    return hv_fail(err, HV_INVALID, "there are too many tensors: average them in several runs");
  run->places = hv_mem_array(mem, n_parts, sizeof *run->places);
  run->sections = hv_mem_array(mem, n_parts, sizeof *run->sections);
  hv_status status = run->places && run->sections ? HV_OK : hv_fail(err, HV_NOMEM, "there is no memory for the table of tensors");
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

int hv_run_alike(const hv_run *a, const hv_run *b) {
  if (a->n_values != b->n_values || a->chunk_values != b->chunk_values || a->n_sections != b->n_sections)
    return 0;
  for (size_t i = 0; i < a->n_sections; i++)
    if (a->sections[i].at != b->sections[i].at || a->sections[i].codec != b->sections[i].codec)
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
  chunk.bytes = (size_t)hv_codec_bound((int)s->codec, HV_DTYPE_FLOAT32, chunk.size);
  return chunk;
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
  stretch s = {.dtype = p->part.dtype, .at = begin - chunk->at, .n = end - begin};
  s.data = (uint8_t *)p->part.data + (begin - p->at) * hv_dtype_size((int)s.dtype);
  return s;
}

typedef hv_status visit(const hv_kern *kern, const stretch *s, float *values, float weight);

static hv_status each_stretch(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, visit *fn, float *values,
                              float weight) {
  hv_status status = HV_OK;
  uint64_t end = chunk->at + chunk->size;
  for (size_t i = part_at(run, chunk->at); status == HV_OK && i < run->n_places && run->places[i].at < end; i++) {
    stretch s = stretch_in(run, chunk, i);
    status = fn(kern, &s, values ? values + s.at : NULL, weight);
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

static hv_status refuse_not_finite(const hv_kern *kern, const stretch *s, float *values, float weight) {
  (void)values, (void)weight;
  int finite;
  hv_status status = hv_reduce_finite(kern, s->dtype, s->data, s->n, &finite);
  return status == HV_OK && !finite ? HV_NOT_FINITE : status;
}

static hv_status add(const hv_kern *kern, const stretch *s, float *values, float weight) {
  return hv_reduce_accumulate(kern, s->dtype, s->data, weight, values, s->n);
}

hv_status hv_run_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_codec codec, uint8_t *out, size_t room,
                        size_t *size) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  stretch s = stretch_in(run, &chunk, part_at(run, chunk.at));
  float *scratch = NULL;
  const void *values = s.data;
  hv_status status = each_stretch(run, kern, &chunk, refuse_not_finite, NULL, 0);
  if (status == HV_OK && (s.n < chunk.size || s.dtype != HV_DTYPE_FLOAT32)) {
    values = scratch = hv_mem_aligned(run->mem, chunk.size * sizeof *scratch);
    status = scratch ? each_stretch(run, kern, &chunk, gather, scratch, 0) : HV_NOMEM;
  }
  uint64_t written = 0;
  if (status == HV_OK)
    status = hv_codec_encode(kern, codec, HV_DTYPE_FLOAT32, values, chunk.size, NULL, out, room, &written);
  *size = (size_t)written;
  hv_mem_free(scratch);
  return status;
}

hv_status hv_run_decode(const hv_run *run, const hv_kern *kern, uint32_t index, const hv_span *spans, size_t n_spans) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  stretch s = stretch_in(run, &chunk, part_at(run, chunk.at));
  if (s.n == chunk.size && s.dtype == HV_DTYPE_FLOAT32)
    return hv_codec_decode_finite(kern, spans, n_spans, s.dtype, s.data, chunk.size);
  float *scratch = hv_mem_aligned(run->mem, chunk.size * sizeof *scratch);
  if (!scratch)
    return HV_NOMEM;
  hv_status status = hv_codec_decode_finite(kern, spans, n_spans, HV_DTYPE_FLOAT32, scratch, chunk.size);
  if (status == HV_OK)
    status = each_stretch(run, kern, &chunk, scatter, scratch, 0);
  hv_mem_free(scratch);
  return status;
}

/* Holds a chunk's values against the limits. */
static hv_status check_values(const hv_run *run, const hv_kern *kern, const hv_run_chunk *chunk, float weight, float norm_max) {
  double square = 0, largest = (double)(HV_CODEC_ADDEND_MAX) / (weight > 1 ? (double)weight : 1);
  uint64_t end = chunk->at + chunk->size;
  hv_status status = HV_OK;
  for (size_t i = part_at(run, chunk->at); status == HV_OK && i < run->n_places && run->places[i].at < end; i++) {
    stretch s = stretch_in(run, chunk, i);
    double more = 0;
    int finite = 0, within = 0;
    if (!(norm_max > 0))
      status = hv_reduce_within(kern, s.dtype, s.data, weight, s.n, &within);
    if (within)
      continue;
    if (status == HV_OK)
      status = hv_reduce_finite(kern, s.dtype, s.data, s.n, &finite);
    if (status == HV_OK && !finite)
      status = HV_NOT_FINITE;
    if (status == HV_OK)
      status = hv_reduce_square_sum(kern, s.dtype, s.data, s.n, &more);
    square += more;
  }
  if (status == HV_OK && (square > largest * largest || (norm_max > 0 && square > (double)norm_max * (double)norm_max)))
    status = HV_TOO_LARGE;
  return status;
}

hv_status hv_run_accumulate(const hv_run *run, const hv_kern *kern, uint32_t index, float weight, float norm_max, float *acc) {
  if (!run->has_values)
    return HV_STATE;
  hv_run_chunk chunk = hv_run_chunk_of(run, index);
  hv_status status = check_values(run, kern, &chunk, weight, norm_max);
  return status == HV_OK ? each_stretch(run, kern, &chunk, add, acc, weight) : status;
}
