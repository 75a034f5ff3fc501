/* The description of one state: its parts, its chunks, and their digests.
 *
 * Room: core (uses base, peer, kern/codec for sizes). Pure functions, apart from memory.
 * Owner: the caller of hv_manifest_make or hv_manifest_read; freed by hv_manifest_fini.
 * Thread: any.
 * Limits: the constants below, checked before memory is taken. Memory is proportional to the manifest's own bytes.
 * Errors: HV_INVALID for the caller's values; HV_MALFORMED, HV_TOO_LARGE, HV_UNSUPPORTED for a stranger's bytes; HV_NOMEM.
 * Terms: a part is a tensor or a blob. The image is the layout of all parts in memory. A chunk is requested and checked as a whole.
 * An own part holds bytes that differ among donors of one state: its chunks have no digests, and the joiner takes a donor's.
 * Rules: docs/design/state.md, "The manifest": image, chunks, digests, bytes.
 */
#ifndef HV_CORE_MANIFEST_H
#define HV_CORE_MANIFEST_H

#include "core/peer.h"
#include "kern/codec.h"

#define HV_MANIFEST_PARTS_MAX 16384
#define HV_MANIFEST_CHUNKS_MAX 65536
#define HV_MANIFEST_METADATA_MAX (1u << 20) /* bytes */
#define HV_MANIFEST_BYTES_MAX (4u << 20)
#define HV_MANIFEST_CHUNK_LEAST 1024u     /* bytes; chunk_bytes is a power of two between these two */
#define HV_MANIFEST_CHUNK_MOST (2u << 20) /* bytes */
#define HV_MANIFEST_IMAGE_MAX ((uint64_t)HV_MANIFEST_CHUNKS_MAX * HV_MANIFEST_CHUNK_MOST)
#define HV_MANIFEST_ALIGN 64 /* bytes */

/* A tensor or a blob. */
typedef struct hv_manifest_part {
  uint64_t size;  /* bytes in memory */
  uint8_t codec;  /* hv_codec; NONE: sent as it lies in memory */
  uint8_t dtype;  /* hv_dtype; may be 0 for a part that is not encoded */
  uint8_t own;    /* 1: each donor has its own bytes here; then the codec is NONE */
  uint64_t place; /* offset in the image in bytes; set by make and read */
} hv_manifest_part;

typedef struct hv_manifest_chunk {
  uint64_t place;  /* offset in the image in bytes */
  uint32_t size;   /* bytes in the image */
  uint32_t travel; /* bytes as sent, after encoding */
  uint32_t part;   /* index of its first part */
  uint8_t codec, dtype, own;
  hv_hash digest; /* of the bytes as sent; zeros if they are each donor's own */
} hv_manifest_chunk;

typedef struct hv_manifest {
  uint64_t epoch;
  hv_hash state_hash, whole; /* the program's own hash; the digest of all chunks' digests */
  uint32_t chunk_bytes;
  hv_manifest_part *parts;
  size_t n_parts;
  hv_manifest_chunk *chunks;
  size_t n_chunks;
  hv_span metadata;
  uint64_t image;  /* bytes of the image */
  uint64_t travel; /* bytes of all chunks as sent */
  void *block;     /* the memory behind parts, chunks and metadata */
} hv_manifest;

/* Lays out parts as chunks; sets no digests. Copies parts (without `place`) and metadata. chunk_bytes 0: chosen by size, from 256
 * KiB, more beyond 8 GiB. HV_INVALID, HV_TOO_LARGE: err (may be NULL) names the limit; HV_NOMEM. On failure there is nothing to
 * free. */
hv_status hv_manifest_make(hv_mem *mem, const hv_manifest_part *parts, size_t n_parts, uint32_t chunk_bytes, hv_span metadata,
                           hv_manifest *out, hv_error *err);
/* Reads a stranger's bytes; copies the metadata. Does not check `whole`: hash the bytes of hv_manifest_digests for that.
 * HV_MALFORMED, HV_TOO_LARGE, HV_UNSUPPORTED (codec, dtype, version), HV_NOMEM. */
hv_status hv_manifest_read(hv_mem *mem, hv_span bytes, hv_manifest *out);
/* Appends the manifest's bytes, at most HV_MANIFEST_BYTES_MAX, to out. HV_NOMEM, HV_TOO_LARGE. */
hv_status hv_manifest_write(const hv_manifest *manifest, hv_buf *out);
/* Appends the digests of all chunks, in order, to out; `whole` is their SHA-256. HV_NOMEM. */
hv_status hv_manifest_digests(const hv_manifest *manifest, hv_buf *out);
/* Frees the memory of a manifest that was made or read. */
void hv_manifest_fini(hv_manifest *manifest);

#endif
