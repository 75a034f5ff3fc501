/* One download of a state: the joiner's search, vote, transfer from several donors, and check.
 *
 * Room: core (uses env, dht, ballot, manifest).
 * Owner: state.
 * Thread: the hive thread; each arrived chunk is checked and decoded in a job on the pool.
 * Limits: the constants below. Memory: the manifest, one byte for each chunk, and at most HV_LOADER_AHEAD_BYTES for each donor.
 * Errors: those of hv_state_load.done.
 * Rules: docs/design/state.md, "The download".
 */
#ifndef HV_CORE_LOAD_H
#define HV_CORE_LOAD_H

#include "core/state/state.h"

#define HV_LOADER_KNOWN_MAX 64           /* donors of one manifest that are remembered: half by priority, half at random */
#define HV_LOADER_SILENT_MAX 32          /* announcers without an answer that are remembered */
#define HV_LOADER_DONORS_MAX 16          /* donors that send at the same time */
#define HV_LOADER_AHEAD_BYTES (8u << 20) /* bytes requested from one donor and not there yet, beyond the first two chunks */

typedef struct hv_loader hv_loader;

/* A peer that announced a state and did not answer: the next load does not wait for it. Or one that sent nothing of a state for a
 * while: the next loads ask it last. */
typedef struct hv_loader_silent {
  hv_peer_id id;
  hv_hash digest; /* of the manifest that it announced; zeros: it sent nothing */
  uint64_t at_us; /* when it did not answer; 0: a free slot */
} hv_loader_silent;

typedef struct hv_loader_memory {
  hv_loader_silent silent[HV_LOADER_SILENT_MAX];
  size_t n;
} hv_loader_memory;

/* Starts a download. `load` and `memory` are the caller's and outlive it; `memory` is zeroed before its first use. `over` is called
 * once, after load->done: then the caller may free the loader. HV_NOMEM, HV_CLOSED: not started. */
hv_status hv_loader_new(hv_env *env, const hv_state_config *config, hv_dht *dht, hv_state_load *load, hv_loader_memory *memory,
                        void (*over)(void *arg, hv_loader *self), void *arg, hv_loader **out, hv_error *err);
/* True if it downloads a state of this prefix. */
int hv_loader_is_of(const hv_loader *loader, hv_span prefix);
void hv_loader_look(const hv_loader *loader, hv_state_loading *out);
/* Ends a download with HV_CANCELLED. load->done is called from within, or when the last pool job has ended. Does nothing if the
 * download is over. */
void hv_loader_cancel(hv_loader *loader);
/* As hv_state_load_progress. */
void hv_loader_progress(const hv_loader *loader, uint64_t *come, uint64_t *all);
/* Frees a loader after `over`, or after its world has ended; then load->done gets HV_CLOSED if it was not called before. */
void hv_loader_free(hv_loader *loader);

#endif
