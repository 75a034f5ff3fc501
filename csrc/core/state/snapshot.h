/* A reference-counted state on offer: the program's memory, its manifest, and the digests in the making.
 *
 * Room: core (uses env, manifest).
 * Owner: state and upload, each with references of its own. Chunks under way hold a reference to the memory, not to the snapshot.
 * Thread: the hive thread; digests are made in jobs on the pool. hv_snapshot_code: any thread.
 * Errors: those of hv_manifest_make; HV_NOMEM.
 */
#ifndef HV_CORE_SNAPSHOT_H
#define HV_CORE_SNAPSHOT_H

#include "core/env.h"
#include "core/state/manifest.h"

typedef struct hv_snapshot {
  hv_env *env;
  unsigned refs;
  hv_payload *bytes; /* the parts' memory, one span for each */
  hv_manifest manifest;
  hv_hash digest;             /* of the manifest's bytes; valid once these are there */
  hv_payload *manifest_bytes; /* NULL: digests are still being made */
  uint64_t retired_us;        /* 1 + when it was withdrawn or replaced; 0: it is on offer */
  hv_hash prefix_hash;        /* of the prefix under which state offers it; valid longer than the prefix's entry */
  struct hv_snapshot_hashing *hashing;
} hv_snapshot;

/* Makes a snapshot with one reference, which is the caller's. Keeps a reference to `bytes`, one span for each part; the parts'
 * sizes are those of the spans. Errors: those of hv_manifest_make. */
hv_status hv_snapshot_new(hv_env *env, hv_payload *bytes, const hv_manifest_part *parts, uint32_t chunk_bytes, hv_span metadata,
                          hv_snapshot **out, hv_error *err);
/* Adds a reference; returns its argument. */
hv_snapshot *hv_snapshot_keep(hv_snapshot *snapshot);
/* Drops a reference. The last one frees the snapshot, after a hashing under way has ended (hv_snapshot_stop). NULL is fine. */
void hv_snapshot_release(hv_snapshot *snapshot);

/* Makes all digests on the pool, in steps. Calls `done` once, later. HV_NOMEM: not started. */
typedef void hv_snapshot_hashed(void *arg, hv_status status);
hv_status hv_snapshot_hash(hv_snapshot *snapshot, hv_snapshot_hashed *done, void *arg);
/* Stops the hashing: `done` is not called. A job under way ends by itself. */
void hv_snapshot_stop(hv_snapshot *snapshot);
/* Ends the hashing early: `done` gets HV_CANCELLED, within this call or when the job under way has ended. */
void hv_snapshot_quit(hv_snapshot *snapshot);
/* Frees the hashing after the world has ended, if its last job did not return. */
void hv_snapshot_abandon(hv_snapshot *snapshot);

/* The payload of a chunk that is sent without encoding; the caller owns it. It borrows the part's memory if the chunk lies there in
 * one piece. NULL: no memory. */
hv_payload *hv_snapshot_plain(hv_snapshot *snapshot, uint32_t chunk);
/* Encodes a chunk into out, which has room for its `travel` bytes. */
hv_status hv_snapshot_code(const hv_snapshot *snapshot, uint32_t chunk, uint8_t *out);

#endif
