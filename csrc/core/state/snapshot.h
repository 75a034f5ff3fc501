/* What exactly is offered? Borrowed parts, their manifest, and how its digests come about.
 *
 * Room: core (uses env, manifest). Shared by state and upload; counted, on the hive thread alone. The parts' payload is counted on
 * its own: chunks that are still on their way keep it, whatever became of the snapshot.
 */
#ifndef HV_CORE_SNAPSHOT_H
#define HV_CORE_SNAPSHOT_H

#include "core/env.h"
#include "core/state/manifest.h"

typedef struct hv_snapshot {
  hv_env *env;
  unsigned refs;
  hv_payload *bytes; /* of the parts */
  hv_manifest manifest;
  hv_hash digest;      /* of the manifest's bytes; known when `said` is there */
  hv_payload *said;    /* the manifest's bytes; NULL: not all is hashed */
  uint64_t retired_us; /* when it was no longer offered, plus 1; 0: it is */
  hv_hash place;       /* state's: what the prefix under which it was offered hashes to; outlives the prefix's own entry */
  struct hv_snapshot_hashing *hashing;
} hv_snapshot;

/* Lays out a snapshot of bytes (kept) with one reference; parts' sizes are the spans'. As hv_manifest_make. */
hv_status hv_snapshot_new(hv_env *env, hv_payload *bytes, const hv_manifest_part *parts, uint32_t chunk_bytes, hv_span metadata,
                          hv_snapshot **out, hv_error *err);
hv_snapshot *hv_snapshot_keep(hv_snapshot *snapshot);
/* While it is being hashed it goes away only after that has ended; see hv_snapshot_stop. NULL is fine. */
void hv_snapshot_release(hv_snapshot *snapshot);

/* Makes all digests, on the pool, in steps. done comes once, later. HV_NOMEM: not begun. */
typedef void hv_snapshot_hashed(void *arg, hv_status status);
hv_status hv_snapshot_hash(hv_snapshot *snapshot, hv_snapshot_hashed *done, void *arg);
/* Not wanted any more: done does not come; what the pool is at is waited for quietly. */
void hv_snapshot_stop(hv_snapshot *snapshot);
/* Its world is dead: frees what a job that will not come back would have freed. */
void hv_snapshot_abandon(hv_snapshot *snapshot);

/* A chunk's bytes as they travel. hv_snapshot_plain: at once, as a payload that borrows the part's memory where it lies in one
 * piece. NULL: no memory. hv_snapshot_code: encodes into out (of the chunk's `travel` bytes); on any thread. */
hv_payload *hv_snapshot_plain(hv_snapshot *snapshot, uint32_t chunk);
hv_status hv_snapshot_code(const hv_snapshot *snapshot, uint32_t chunk, uint8_t *out);

#endif
