/* How is one state downloaded? A joiner's side of state.h: look, count, fetch from several at once, check, hand over.
 *
 * Room: core (uses env, dht, ballot, manifest). Owned by state; the hive thread, with one job for each chunk that has come on the
 * pool. Phases: LOOKING (announcements are asked for) -> PAUSE (nothing to choose: again, later) or FETCHING (manifest, then
 * chunks) -> ENDING (the pool lets go of the image, done is told, streams close). Memory: the manifest, a byte for each chunk, and
 * what is asked of all donors together at a time (HV_LOADER_AHEAD_BYTES each).
 */
#ifndef HV_CORE_LOAD_H
#define HV_CORE_LOAD_H

#include "core/state/state.h"

#define HV_LOADER_KNOWN_MAX 64           /* donors of one manifest that are remembered: half by priority, half by lot */
#define HV_LOADER_SILENT_MAX 32          /* announcers that gave no answer, remembered for a while */
#define HV_LOADER_DONORS_MAX 16          /* asked at once */
#define HV_LOADER_AHEAD_BYTES (4u << 20) /* asked of one donor and not there yet, beyond the first two chunks */

typedef struct hv_loader hv_loader;

/* Peers that announced a state and did not answer when asked whether they are there: the next load does not wait for them. */
typedef struct hv_loader_silent {
  hv_peer_id id;
  hv_hash digest;
  uint64_t at_us; /* 0: nobody */
} hv_loader_silent;

typedef struct hv_loader_memory {
  hv_loader_silent silent[HV_LOADER_SILENT_MAX];
  size_t n;
} hv_loader_memory;

/* Begins. `memory` (the caller's, zeros at first) outlives it. `over` is called once, when it may be freed: after done. HV_NOMEM,
 * HV_CLOSED: not begun. */
hv_status hv_loader_new(hv_env *env, const hv_state_config *config, hv_dht *dht, hv_state_load *load, hv_loader_memory *memory,
                        void (*over)(void *arg, hv_loader *self), void *arg, hv_loader **out, hv_error *err);
/* Ends it: done comes from within, unless the pool still holds the image (then as soon as that is over). Fine when it has ended. */
void hv_loader_cancel(hv_loader *loader);
/* When it is over, or its world is dead (done is then told HV_CLOSED, if it was not told before). */
void hv_loader_free(hv_loader *loader);

#endif
