/* One search for donors that give a state on demand, and their agreement on its number: the joiner's side.
 *
 * Room: core (uses env, dht, demand, spoken).
 * Owner: state.
 * Thread: the hive thread.
 * Limits: HV_WANTING_ASKED_MAX donors are asked, by lot if there are more, each at HV_WANTING_ADDRS addresses at most, in three
 * turns. Errors: those of hv_state_want.done. Rules: docs/design/state.md, "States on demand".
 */
#ifndef HV_CORE_WANT_H
#define HV_CORE_WANT_H

#include "core/state/state.h"

#define HV_WANTING_ASKED_MAX 64
#define HV_WANTING_ADDRS 3

typedef struct hv_wanting hv_wanting;

/* Starts to search and ask. `want` is the caller's. `over` is called once, after want->done, in a step of its own: then the caller
 * frees the search. Not HV_OK: not started, and err (may be NULL) says why. */
hv_status hv_wanting_new(hv_env *env, const hv_peer_id *me, hv_dht *dht, hv_state_want *want,
                         void (*over)(void *arg, hv_wanting *self), void *arg, hv_wanting **out, hv_error *err);
/* Calls want->done with HV_CANCELLED, unless it was called. */
void hv_wanting_cancel(hv_wanting *wanting);
/* Frees it after `over`, or after the world has ended; then want->done gets HV_CLOSED if it was not called before. */
void hv_wanting_free(hv_wanting *wanting);

#endif
