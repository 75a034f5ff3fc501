/* What is a state made of, and how is each piece of it known again? The manifest: parts, chunks, digests.
 *
 * Room: core (uses base, peer, kern/codec for sizes). Pure functions but for memory; any thread.
 *
 * A state is a list of parts (tensors, blobs) and some bytes of metadata. Its IMAGE is how it lies in memory: each part begins at
 * the next multiple of 64 bytes. A part travels as it is (codec NONE) or encoded (a float part, by kern/codec.h). CHUNKS follow
 * from the list of parts and chunk_bytes alone: a run of neighbouring plain parts is cut every chunk_bytes of the image (gaps
 * between parts are zeros); an encoded part is cut on its own, each piece one codec chunk.
 *
 * DIGESTS are SHA-256 of the bytes of a chunk AS THEY TRAVEL, after encoding. Why: who downloads can check them before a decoder
 * sees a stranger's bytes; a lossy codec's source could not be checked at all by who never gets it. Donors whose replicas are equal
 * to the bit still have equal manifests, whatever else they do: the codecs give the same bytes on every machine (kern/codec.h),
 * chunks do not depend on the donor, and a chunk is the same whether it was encoded once or on demand. What must agree is the run's
 * setting of codecs (load_state_compression), as it must for averaging. The whole's digest is SHA-256 of all chunks' digests in
 * order: each byte is under it, hashed once, on as many processors as there are. The MANIFEST'S digest is SHA-256 of its bytes: it
 * names the state with epoch and metadata. So nothing may stand in the metadata that differs from peer to peer (times, names,
 * speeds).
 *
 * BYTES, little endian: "HVs1"; u32 version 1; u64 epoch; 32 state hash (the program's own, opaque); 32 whole; u32 chunk_bytes;
 * u32 parts; u32 chunks; u32 metadata bytes; for each part: u64 size, u8 codec, u8 dtype (0: plain bytes of no dtype), 6 zeros; for
 * each chunk its 32 bytes; the metadata. Nothing behind. Limits: below; all checked before memory is taken, and what is taken is
 * proportional to the manifest's own bytes.
 */
#ifndef HV_CORE_MANIFEST_H
#define HV_CORE_MANIFEST_H

#include "core/peer.h"
#include "kern/codec.h"

#define HV_MANIFEST_PARTS_MAX 16384
#define HV_MANIFEST_CHUNKS_MAX 65536
#define HV_MANIFEST_METADATA_MAX (1u << 20)
#define HV_MANIFEST_BYTES_MAX (4u << 20)
#define HV_MANIFEST_CHUNK_LEAST 1024u     /* chunk_bytes is a power of two from here */
#define HV_MANIFEST_CHUNK_MOST (2u << 20) /* to here */
#define HV_MANIFEST_IMAGE_MAX ((uint64_t)HV_MANIFEST_CHUNKS_MAX * HV_MANIFEST_CHUNK_MOST)
#define HV_MANIFEST_ALIGN 64

typedef struct hv_manifest_part {
  uint64_t size;  /* bytes as they lie in memory */
  uint8_t codec;  /* hv_codec; NONE: travels as it is */
  uint8_t dtype;  /* hv_dtype; may be 0 for a plain part */
  uint64_t place; /* filled in: where it begins in the image */
} hv_manifest_part;

typedef struct hv_manifest_chunk {
  uint64_t place;  /* in the image */
  uint32_t size;   /* of it there */
  uint32_t travel; /* bytes as it travels; plain: size */
  uint32_t part;   /* the first one in it */
  uint8_t codec, dtype;
  hv_hash digest;
} hv_manifest_chunk;

typedef struct hv_manifest {
  uint64_t epoch;
  hv_hash state_hash, whole;
  uint32_t chunk_bytes;
  hv_manifest_part *parts;
  size_t n_parts;
  hv_manifest_chunk *chunks;
  size_t n_chunks;
  hv_span metadata;
  uint64_t image;  /* bytes of the image */
  uint64_t travel; /* bytes of all chunks as they travel */
  void *block;     /* manifest's own memory */
} hv_manifest;

/* Lays out parts (copied; `place` is ignored) as chunks without digests. chunk_bytes 0: chosen by size (256 KiB, more beyond 8
 * GiB). metadata is copied. HV_INVALID, HV_TOO_LARGE: err (may be NULL) names the limit; HV_NOMEM. Nothing to free then. */
hv_status hv_manifest_make(hv_mem *mem, const hv_manifest_part *parts, size_t n_parts, uint32_t chunk_bytes, hv_span metadata,
                           hv_manifest *out, hv_error *err);
/* Reads a stranger's bytes; metadata is copied. HV_MALFORMED, HV_TOO_LARGE, HV_UNSUPPORTED (codec, dtype, version), HV_NOMEM.
 * `whole` is not checked here: hv_manifest_digests gives what to hash. */
hv_status hv_manifest_read(hv_mem *mem, hv_span bytes, hv_manifest *out);
/* Its bytes, appended to out (limit HV_MANIFEST_BYTES_MAX). HV_NOMEM, HV_TOO_LARGE. */
hv_status hv_manifest_write(const hv_manifest *manifest, hv_buf *out);
/* All chunks' digests in order, appended to out: what `whole` is SHA-256 of. HV_NOMEM. */
hv_status hv_manifest_digests(const hv_manifest *manifest, hv_buf *out);
void hv_manifest_fini(hv_manifest *manifest);

#endif
