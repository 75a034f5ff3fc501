/* Averages that other peers kept, written into the tensors of this one; and a step of its own that others can repeat (contract in
 * average.h).
 */
#include "core/average/average_inner.h"
#include "core/reduce/kept.h"

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

/* ---- a step of its own ---- */

/* Encodes a chunk into a payload of its own: narrow, as a newcomer that cannot keep up waits for it. */
static hv_status encode(const hv_average *self, uint32_t index, hv_payload **out) {
  hv_mem *mem = self->all->env->mem;
  hv_run_chunk chunk = hv_run_chunk_as(&self->run, index, 1);
  size_t size = 0;
  uint8_t *bytes = hv_mem_alloc(mem, chunk.bytes);
  hv_status status =
      bytes ? hv_run_encode(&self->run, self->kern, index, (hv_codec)chunk.codec, bytes, chunk.bytes, &size) : HV_NOMEM;
  if (status == HV_OK) {
    *out = hv_payload_borrow(mem, bytes, size, hv_mem_free, bytes);
    status = *out ? HV_OK : HV_NOMEM;
  }
  if (status != HV_OK)
    hv_mem_free(bytes);
  return status;
}

/* Bytes that differ have different stamps. */
static hv_status stamp_of(const hv_average *self, const hv_payload *chunks, uint64_t *out) {
  hv_env *env = self->all->env;
  hv_hash all, *each = hv_mem_array(env->mem, chunks->n_parts, sizeof *each);
  if (!each)
    return HV_NOMEM;
  for (size_t i = 0; i < chunks->n_parts; i++)
    env->sha256(env, chunks->parts[i], &each[i]);
  env->sha256(env, hv_span_of(each, chunks->n_parts * sizeof *each), &all);
  hv_mem_free(each);
  *out = hv_le_get(all.bytes, 8) | 1; /* 0 is an average that nobody else has */
  return HV_OK;
}

hv_status hv_average_keep(const hv_average *self, hv_payload **chunks, uint64_t *stamp, hv_error *err) {
  hv_kept *kept = NULL;
  if (self->config.auxiliary || self->config.alpha != 1)
    return hv_fail(err, HV_UNSUPPORTED, "cannot keep a step: the averager is auxiliary, or its averaging_alpha is not 1");
  hv_status status = hv_kept_new(self->all->env->mem, self->run.n_chunks, &kept);
  for (uint32_t i = 0; i < self->run.n_chunks && status == HV_OK; i++) {
    hv_payload *one = NULL;
    if ((status = encode(self, i, &one)) == HV_OK)
      hv_kept_put(kept, i, one);
    hv_payload_release(one);
  }
  hv_payload *all = status == HV_OK ? hv_kept_take(kept) : NULL;
  hv_kept_free(kept);
  if (all)
    status = stamp_of(self, all, stamp);
  for (uint32_t i = 0; all && i < self->run.n_chunks && status == HV_OK; i++)
    status = hv_run_decode(&self->run, self->kern, i, &all->parts[i], 1);
  if (status == HV_OK) {
    *chunks = all;
    return HV_OK;
  }
  hv_payload_release(all);
  return hv_fail(err, status, "cannot keep a step for others: %s", hv_status_text(status));
}
