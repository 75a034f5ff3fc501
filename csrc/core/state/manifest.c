#include "core/state/manifest.h"

#include "core/msg.h"

#include <string.h>

enum { HEAD = 96, PART = 16, USUAL_CHUNK = 256 << 10, CHUNKS_AIM = HV_MANIFEST_CHUNKS_MAX / 2 };
static const uint8_t magic[4] = {'H', 'V', 's', '1'};

/* ---- the layout: chunks that follow from parts ---- */

static hv_status check_part(const hv_manifest_part *part, hv_error *err) {
  size_t element = hv_dtype_size(part->dtype);
  if (part->codec >= HV_CODEC_COUNT || (part->dtype && !element))
    return hv_fail(err, HV_UNSUPPORTED, "a part of the state has an unknown codec (%d) or dtype (%d): use those of this version",
                   part->codec, part->dtype);
  if (part->own > 1 || (part->own && part->codec != HV_CODEC_NONE))
    return hv_fail(err, HV_INVALID, "a part of the state is each donor's own and has a codec: give it no codec");
  if (part->codec != HV_CODEC_NONE && !element)
    return hv_fail(err, HV_INVALID, "a part of the state has a codec but holds no floats: give it no codec");
  if (part->codec != HV_CODEC_NONE && part->size % element)
    return hv_fail(err, HV_INVALID, "a part of the state has a size that is not a multiple of its dtype's: check the dtype");
  return HV_OK;
}

/* Gives each part its place in the image. */
static hv_status place_parts(hv_manifest *m, hv_error *err) {
  uint64_t end = 0;
  for (size_t i = 0; i < m->n_parts; i++) {
    hv_manifest_part *part = &m->parts[i];
    hv_status status = check_part(part, err);
    if (status != HV_OK)
      return status;
    part->place = (end + HV_MANIFEST_ALIGN - 1) / HV_MANIFEST_ALIGN * HV_MANIFEST_ALIGN;
    if (part->size > HV_MANIFEST_IMAGE_MAX || part->place + part->size > HV_MANIFEST_IMAGE_MAX)
      return hv_fail(err, HV_TOO_LARGE, "the state is too large: the limit is %llu GiB",
                     (unsigned long long)(HV_MANIFEST_IMAGE_MAX >> 30));
    end = part->place + part->size;
  }
  m->image = end;
  return HV_OK;
}

/* The part behind the run that begins with `first`: plain neighbours are one run, if all or none of them are own. */
static size_t run_end(const hv_manifest *m, size_t first) {
  size_t end = first + 1;
  while (m->parts[first].codec == HV_CODEC_NONE && end < m->n_parts && m->parts[end].codec == HV_CODEC_NONE &&
         m->parts[end].own == m->parts[first].own)
    end++;
  return end;
}

static uint64_t run_size(const hv_manifest *m, size_t first, size_t end) {
  return m->parts[end - 1].place + m->parts[end - 1].size - m->parts[first].place;
}

static size_t count_chunks(const hv_manifest *m) {
  size_t n = 0;
  for (size_t i = 0, end; i < m->n_parts; i = end) {
    end = run_end(m, i);
    n += (size_t)((run_size(m, i, end) + m->chunk_bytes - 1) / m->chunk_bytes);
  }
  return n;
}

static void cut_run(hv_manifest *m, size_t first, size_t end, size_t *next) {
  const hv_manifest_part *parts = m->parts;
  uint64_t at = parts[first].place, stop = at + run_size(m, first, end);
  for (size_t part = first; at < stop; at += m->chunk_bytes) {
    hv_manifest_chunk *chunk = &m->chunks[(*next)++];
    uint32_t size = stop - at < m->chunk_bytes ? (uint32_t)(stop - at) : m->chunk_bytes;
    while (part + 1 < end && parts[part + 1].place <= at)
      part++;
    *chunk = (hv_manifest_chunk){.place = at,
                                 .size = size,
                                 .travel = size,
                                 .part = (uint32_t)part,
                                 .codec = parts[part].codec,
                                 .dtype = parts[part].dtype,
                                 .own = parts[part].own};
    if (chunk->codec != HV_CODEC_NONE)
      chunk->travel = (uint32_t)hv_codec_bound(chunk->codec, chunk->dtype, size / hv_dtype_size(chunk->dtype));
    m->travel += chunk->travel;
  }
}

/* Takes memory for parts, chunks and metadata in one block; parts are copied, chunks laid out. On failure the block is gone. */
static hv_status lay_out(hv_mem *mem, const hv_manifest_part *parts, hv_span metadata, size_t n_chunks, hv_manifest *m) {
  size_t parts_size = m->n_parts * sizeof *m->parts, chunks_size = n_chunks * sizeof *m->chunks;
  uint8_t *block = hv_mem_zalloc(mem, chunks_size + parts_size + metadata.size + 1);
  if (!block)
    return HV_NOMEM;
  m->block = block;
  m->chunks = (hv_manifest_chunk *)block;
  m->n_chunks = n_chunks;
  if (parts_size)
    memcpy(block + chunks_size, parts, parts_size);
  m->parts = (hv_manifest_part *)(block + chunks_size);
  if (metadata.size)
    memcpy(block + chunks_size + parts_size, metadata.data, metadata.size);
  m->metadata = hv_span_of(block + chunks_size + parts_size, metadata.size);
  size_t next = 0;
  for (size_t i = 0, end; i < m->n_parts; i = end) {
    end = run_end(m, i);
    cut_run(m, i, end, &next);
  }
  return HV_OK;
}

static int chunk_bytes_fit(uint32_t n) {
  return n >= HV_MANIFEST_CHUNK_LEAST && n <= HV_MANIFEST_CHUNK_MOST && (n & (n - 1)) == 0;
}

/* ---- made from a program's parts ---- */

hv_status hv_manifest_make(hv_mem *mem, const hv_manifest_part *parts, size_t n_parts, uint32_t chunk_bytes, hv_span metadata,
                           hv_manifest *out, hv_error *err) {
  memset(out, 0, sizeof *out);
  if (n_parts > HV_MANIFEST_PARTS_MAX)
    return hv_fail(err, HV_TOO_LARGE, "the state has %zu parts, and the limit is %d: join small ones", n_parts,
                   HV_MANIFEST_PARTS_MAX);
  if (metadata.size > HV_MANIFEST_METADATA_MAX)
    return hv_fail(err, HV_TOO_LARGE, "the state's metadata has %zu bytes, and the limit is %u: give it as a part", metadata.size,
                   HV_MANIFEST_METADATA_MAX);
  if (chunk_bytes && !chunk_bytes_fit(chunk_bytes))
    return hv_fail(err, HV_INVALID, "the size of a chunk must be a power of two from %u to %u bytes", HV_MANIFEST_CHUNK_LEAST,
                   HV_MANIFEST_CHUNK_MOST);
  hv_manifest_part *copy = hv_mem_array(mem, n_parts, sizeof *copy);
  if (!copy)
    return hv_fail(err, HV_NOMEM, "cannot offer the state: no memory for its manifest; raise the memory limit");
  if (n_parts)
    memcpy(copy, parts, n_parts * sizeof *copy);
  out->parts = copy;
  out->n_parts = n_parts;
  hv_status status = place_parts(out, err);
  out->chunk_bytes = chunk_bytes ? chunk_bytes : USUAL_CHUNK;
  while (!chunk_bytes && out->chunk_bytes < HV_MANIFEST_CHUNK_MOST && out->image / out->chunk_bytes > CHUNKS_AIM)
    out->chunk_bytes *= 2;
  size_t n_chunks = status == HV_OK ? count_chunks(out) : 0;
  if (n_chunks > HV_MANIFEST_CHUNKS_MAX)
    status =
        hv_fail(err, HV_TOO_LARGE, "the state would have %zu chunks, and the limit is %d: make it smaller, or give fewer parts",
                n_chunks, HV_MANIFEST_CHUNKS_MAX);
  if (status == HV_OK && (status = lay_out(mem, copy, metadata, n_chunks, out)) != HV_OK)
    hv_fail(err, status, "cannot offer the state: no memory for its manifest; raise the memory limit");
  hv_mem_free(copy);
  if (status != HV_OK)
    memset(out, 0, sizeof *out);
  return status;
}

/* ---- bytes ---- */

static hv_status append_digests(const hv_manifest *m, hv_buf *out) {
  uint8_t *at;
  hv_status status = hv_buf_reserve(out, m->n_chunks * sizeof(hv_hash), &at);
  if (status != HV_OK)
    return status;
  for (size_t i = 0; i < m->n_chunks; i++)
    memcpy(at + i * sizeof(hv_hash), m->chunks[i].digest.bytes, sizeof(hv_hash));
  out->size += m->n_chunks * sizeof(hv_hash);
  return HV_OK;
}

hv_status hv_manifest_digests(const hv_manifest *manifest, hv_buf *out) {
  return append_digests(manifest, out);
}

hv_status hv_manifest_write(const hv_manifest *m, hv_buf *out) {
  uint8_t head[HEAD];
  memcpy(head, magic, 4);
  hv_le_put(head + 4, 1, 4);
  hv_le_put(head + 8, m->epoch, 8);
  memcpy(head + 16, m->state_hash.bytes, 32);
  memcpy(head + 48, m->whole.bytes, 32);
  hv_le_put(head + 80, m->chunk_bytes, 4);
  hv_le_put(head + 84, m->n_parts, 4);
  hv_le_put(head + 88, m->n_chunks, 4);
  hv_le_put(head + 92, m->metadata.size, 4);
  hv_status status = hv_buf_append(out, head, sizeof head);
  for (size_t i = 0; i < m->n_parts && status == HV_OK; i++) {
    uint8_t part[PART] = {0};
    hv_le_put(part, m->parts[i].size, 8);
    part[8] = m->parts[i].codec;
    part[9] = m->parts[i].dtype;
    part[10] = m->parts[i].own;
    status = hv_buf_append(out, part, sizeof part);
  }
  if (status == HV_OK)
    status = append_digests(m, out);
  return status == HV_OK ? hv_buf_append(out, m->metadata.data, m->metadata.size) : status;
}

static hv_status read_part(const uint8_t *from, hv_manifest_part *out) {
  static const uint8_t zeros[5] = {0};
  *out = (hv_manifest_part){.size = hv_le_get(from, 8), .codec = from[8], .dtype = from[9], .own = from[10]};
  return memcmp(from + 11, zeros, sizeof zeros) == 0 ? HV_OK : HV_MALFORMED;
}

/* The head: counts that fit the limits and the size of it all. */
static hv_status read_head(hv_span bytes, hv_manifest *m, size_t *n_chunks, size_t *metadata) {
  const uint8_t *at = bytes.data;
  if (bytes.size > HV_MANIFEST_BYTES_MAX)
    return HV_TOO_LARGE;
  if (bytes.size < HEAD || memcmp(at, magic, sizeof magic) != 0)
    return HV_MALFORMED;
  if (hv_le_get(at + 4, 4) != 1)
    return HV_UNSUPPORTED;
  m->epoch = hv_le_get(at + 8, 8);
  memcpy(m->state_hash.bytes, at + 16, 32);
  memcpy(m->whole.bytes, at + 48, 32);
  m->chunk_bytes = (uint32_t)hv_le_get(at + 80, 4);
  m->n_parts = (size_t)hv_le_get(at + 84, 4);
  *n_chunks = (size_t)hv_le_get(at + 88, 4);
  *metadata = (size_t)hv_le_get(at + 92, 4);
  if (m->n_parts > HV_MANIFEST_PARTS_MAX || *n_chunks > HV_MANIFEST_CHUNKS_MAX || *metadata > HV_MANIFEST_METADATA_MAX)
    return HV_TOO_LARGE;
  return chunk_bytes_fit(m->chunk_bytes) && bytes.size == HEAD + m->n_parts * PART + *n_chunks * sizeof(hv_hash) + *metadata
             ? HV_OK
             : HV_MALFORMED;
}

hv_status hv_manifest_read(hv_mem *mem, hv_span bytes, hv_manifest *out) {
  size_t n_chunks, metadata;
  memset(out, 0, sizeof *out);
  hv_status status = read_head(bytes, out, &n_chunks, &metadata);
  hv_manifest_part *parts = status == HV_OK ? hv_mem_array(mem, out->n_parts, sizeof *parts) : NULL;
  if (status == HV_OK && !parts)
    status = HV_NOMEM;
  for (size_t i = 0; status == HV_OK && i < out->n_parts; i++)
    status = read_part(bytes.data + HEAD + i * PART, &parts[i]);
  out->parts = parts;
  if (status == HV_OK)
    status = place_parts(out, NULL);
  if (status == HV_OK && count_chunks(out) != n_chunks)
    status = HV_MALFORMED;
  const uint8_t *digests = bytes.data + HEAD + out->n_parts * PART;
  if (status == HV_OK)
    status = lay_out(mem, parts, hv_span_of(digests + n_chunks * sizeof(hv_hash), metadata), n_chunks, out);
  hv_mem_free(parts);
  if (status != HV_OK) {
    memset(out, 0, sizeof *out);
    return status == HV_INVALID ? HV_MALFORMED : status;
  }
  for (size_t i = 0; i < n_chunks; i++) {
    static const hv_hash none = {{0}};
    hv_hash *digest = &out->chunks[i].digest;
    memcpy(digest->bytes, digests + i * sizeof(hv_hash), sizeof(hv_hash));
    if (out->chunks[i].own && memcmp(digest, &none, sizeof none) != 0) {
      hv_manifest_fini(out);
      return HV_MALFORMED;
    }
  }
  return HV_OK;
}

void hv_manifest_fini(hv_manifest *manifest) {
  hv_mem_free(manifest->block);
  memset(manifest, 0, sizeof *manifest);
}
