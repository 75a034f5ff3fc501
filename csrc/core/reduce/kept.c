#include "core/reduce/kept.h"

#include <string.h>

struct hv_kept {
  hv_payload payload; /* its owner is this struct */
  uint32_t n_chunks, n;
  int closed;
  hv_span *spans; /* a place for each chunk */
  uint8_t *has;   /* a byte for each chunk: 1: its copy counts */
  uint8_t *bytes;
};

uint64_t hv_kept_size(const hv_run *run) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < run->n_chunks; i++)
    size += hv_run_chunk_of(run, i).bytes;
  return size;
}

static void kept_over(hv_payload *payload) {
  hv_kept *kept = payload->owner;
  hv_mem_free(kept->spans);
  hv_mem_free(kept->has);
  hv_mem_free(kept->bytes);
  hv_mem_free(kept);
}

hv_status hv_kept_new(hv_mem *mem, const hv_run *run, hv_kept **out) {
  hv_kept *kept = hv_mem_zalloc(mem, sizeof *kept);
  if (!kept)
    return HV_NOMEM;
  kept->n_chunks = run->n_chunks;
  kept->spans = hv_mem_array(mem, run->n_chunks, sizeof *kept->spans);
  kept->has = hv_mem_zalloc(mem, run->n_chunks);
  kept->bytes = hv_mem_aligned(mem, (size_t)hv_kept_size(run));
  if (!kept->spans || !kept->has || !kept->bytes) {
    kept->payload.owner = kept;
    kept_over(&kept->payload);
    return HV_NOMEM;
  }
  uint8_t *at = kept->bytes;
  for (uint32_t i = 0; i < run->n_chunks; i++) {
    kept->spans[i] = hv_span_of(at, hv_run_chunk_of(run, i).bytes);
    at += kept->spans[i].size;
  }
  hv_payload_init(&kept->payload, kept->spans, run->n_chunks, kept_over, kept);
  *out = kept;
  return HV_OK;
}

void hv_kept_free(hv_kept *kept) {
  if (kept)
    hv_payload_release(&kept->payload);
}

int hv_kept_is_open(const hv_kept *kept) {
  return kept && !kept->closed;
}

void hv_kept_copy(hv_kept *kept, uint32_t chunk, const hv_span *spans, size_t n_spans) {
  hv_span place = kept->spans[chunk];
  size_t at = 0;
  for (size_t i = 0; i < n_spans && spans[i].size <= place.size - at; at += spans[i++].size)
    if (spans[i].size)
      memcpy(kept->bytes + (place.data - kept->bytes) + at, spans[i].data, spans[i].size);
}

static void set(hv_kept *kept, uint32_t chunk, uint8_t has) {
  if (!hv_kept_is_open(kept))
    return;
  kept->n += has;
  kept->n -= kept->has[chunk];
  kept->has[chunk] = has;
}

void hv_kept_put(hv_kept *kept, uint32_t chunk) {
  set(kept, chunk, 1);
}

void hv_kept_drop(hv_kept *kept, uint32_t chunk) {
  set(kept, chunk, 0);
}

hv_payload *hv_kept_take(hv_kept *kept) {
  if (!kept)
    return NULL;
  kept->closed = 1;
  return kept->n == kept->n_chunks ? hv_payload_keep(&kept->payload) : NULL;
}
