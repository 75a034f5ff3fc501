/* Averages that other peers kept, written into the tensors of this one (contract in average.h). */
#include "core/average/average_inner.h"

uint64_t hv_average_kept_size(const hv_average *self) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < self->run.n_chunks; i++)
    size += hv_run_chunk_of(&self->run, i).bytes;
  return size;
}

/* A round takes only what its own members encode: this is as strict. */
static hv_status check_chunk(const hv_average *self, uint32_t index, const hv_span *bytes, hv_error *err) {
  hv_run_chunk chunk = hv_run_chunk_of(&self->run, index);
  hv_codec_info info;
  int finite = 0, narrow, is_chunk = hv_run_width(&self->run, index, bytes, 1, &narrow) == HV_OK;
  hv_status status = is_chunk ? hv_codec_check(self->kern, bytes, 1, &info, &finite) : hv_codec_peek(bytes, 1, &info);
  if (status != HV_OK)
    return hv_fail(err, HV_MALFORMED, "cannot repeat a step: chunk %u of its average is damaged (%s); load a state", index,
                   hv_status_text(status));
  if (!is_chunk)
    return hv_fail(err, HV_MALFORMED,
                   "cannot repeat a step: chunk %u of its average has %llu values under %s, and here it has %u under %s; the peers "
                   "differ in their compression, or in their tensors",
                   index, (unsigned long long)info.count, hv_codec_name((int)info.codec), chunk.size,
                   hv_codec_name((int)chunk.codec));
  if (!finite)
    return hv_fail(err, HV_MALFORMED, "cannot repeat a step: chunk %u of its average has values that are not finite; load a state",
                   index);
  return HV_OK;
}

hv_status hv_average_repeat(const hv_average *self, const hv_span *chunks, size_t n, hv_error *err) {
  if (self->config.auxiliary || self->config.alpha != 1)
    return hv_fail(err, HV_UNSUPPORTED, "cannot repeat a step: the averager is auxiliary, or its averaging_alpha is not 1");
  if (n != self->run.n_chunks)
    return hv_fail(err, HV_MALFORMED,
                   "cannot repeat a step: its average has %zu chunks, and here it has %u; the peers differ in part_size_bytes, or "
                   "in their tensors",
                   n, self->run.n_chunks);
  hv_status status = HV_OK;
  for (uint32_t i = 0; i < n && status == HV_OK; i++)
    status = check_chunk(self, i, &chunks[i], err);
  for (uint32_t i = 0; i < n && status == HV_OK; i++)
    if ((status = hv_run_decode(&self->run, self->kern, i, &chunks[i], 1)) != HV_OK)
      hv_fail(err, status, "cannot repeat a step: chunk %u of its average could not be written into the tensors (%s)", i,
              hv_status_text(status));
  return status;
}
