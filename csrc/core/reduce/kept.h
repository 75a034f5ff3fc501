/* The averages of a round, encoded as their owners sent them.
 *
 * Room: core (uses base).
 * Owner: allreduce, which makes it if its round asks for it; reducer and share put averages into it.
 * Thread: the hive thread.
 * Limits: one payload for each chunk of the run. A member copies what it receives, on the pool, because a received message that is
 * kept would keep its sender waiting; an owner keeps what it has encoded.
 * Errors: HV_NOMEM.
 * Rules: docs/design/log.md
 */
#ifndef HV_CORE_KEPT_H
#define HV_CORE_KEPT_H

#include "base/buf.h"

typedef struct hv_kept hv_kept;

/* For the averages of so many chunks. HV_NOMEM. */
hv_status hv_kept_new(hv_mem *mem, uint32_t n_chunks, hv_kept **out);
/* NULL is fine, also in the functions below. */
void hv_kept_free(hv_kept *kept);

/* True if averages may still be put into it. */
int hv_kept_is_open(const hv_kept *kept);
/* The average of a chunk, in one part; keeps a reference. NULL: there is none now, because it is averaged anew, or no memory. */
void hv_kept_put(hv_kept *kept, uint32_t chunk, hv_payload *average);
/* Closes it. All averages, one span for each chunk, which the caller releases; NULL if one lacks. */
hv_payload *hv_kept_take(hv_kept *kept);

#endif
