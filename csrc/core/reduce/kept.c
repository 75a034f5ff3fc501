#include "core/reduce/kept.h"

struct hv_kept {
  hv_payload payload; /* its owner is this struct */
  uint32_t n_chunks, n;
  int closed;
  hv_span *spans;        /* of the averages */
  hv_payload **averages; /* one for each chunk; NULL: it lacks */
};

static void kept_over(hv_payload *payload) {
  hv_kept *kept = payload->owner;
  for (uint32_t i = 0; kept->averages && i < kept->n_chunks; i++)
    hv_payload_release(kept->averages[i]);
  hv_mem_free(kept->averages);
  hv_mem_free(kept->spans);
  hv_mem_free(kept);
}

hv_status hv_kept_new(hv_mem *mem, uint32_t n_chunks, hv_kept **out) {
  hv_kept *kept = hv_mem_zalloc(mem, sizeof *kept);
  if (!kept)
    return HV_NOMEM;
  kept->n_chunks = n_chunks;
  kept->spans = hv_mem_array(mem, n_chunks, sizeof *kept->spans);
  kept->averages = hv_mem_array(mem, n_chunks, sizeof *kept->averages);
  hv_payload_init(&kept->payload, kept->spans, n_chunks, kept_over, kept);
  if (!kept->spans || !kept->averages) {
    hv_kept_free(kept);
    return HV_NOMEM;
  }
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

void hv_kept_put(hv_kept *kept, uint32_t chunk, hv_payload *average) {
  if (!hv_kept_is_open(kept))
    return;
  hv_payload **place = &kept->averages[chunk];
  kept->n += average != NULL;
  kept->n -= *place != NULL;
  kept->payload.size += average ? average->size : 0;
  kept->payload.size -= kept->spans[chunk].size;
  hv_payload_release(*place);
  *place = average ? hv_payload_keep(average) : NULL;
  kept->spans[chunk] = average ? average->parts[0] : hv_span_of(NULL, 0);
}

hv_payload *hv_kept_take(hv_kept *kept) {
  if (!kept)
    return NULL;
  kept->closed = 1;
  return kept->n == kept->n_chunks ? hv_payload_keep(&kept->payload) : NULL;
}
