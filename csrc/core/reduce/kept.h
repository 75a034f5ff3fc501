/* The averages of a round, encoded as their owners sent them, in one block of memory.
 *
 * Room: core (uses run).
 * Owner: allreduce, which makes it if its round asks for it; reducer and share fill it in.
 * Thread: the hive thread; hv_kept_copy: any, for several chunks at the same time.
 * Limits: the bytes of all chunks of the run when encoded. Each average is copied on the pool, because a received message that is
 * kept would keep its sender waiting.
 * Errors: HV_NOMEM.
 * Rules: docs/design/log.md
 */
#ifndef HV_CORE_KEPT_H
#define HV_CORE_KEPT_H

#include "core/round/run.h"

typedef struct hv_kept hv_kept;

/* Bytes of all chunks of a run when encoded. */
uint64_t hv_kept_size(const hv_run *run);

/* For the averages of a run, of which the layout is read now. HV_NOMEM. */
hv_status hv_kept_new(hv_mem *mem, const hv_run *run, hv_kept **out);
/* NULL is fine, also in the functions below. */
void hv_kept_free(hv_kept *kept);

/* True if averages may still be copied. */
int hv_kept_is_open(const hv_kept *kept);
/* Copies an encoded average into its place. While it is open, and until the hive thread has heard that the copy is over. */
void hv_kept_copy(hv_kept *kept, uint32_t chunk, const hv_span *spans, size_t n_spans);
/* The copy of this chunk is whole and counts. */
void hv_kept_put(hv_kept *kept, uint32_t chunk);
/* This chunk is averaged anew: its copy does not count. */
void hv_kept_drop(hv_kept *kept, uint32_t chunk);
/* Closes it: nothing is copied from now on. All averages, one span for each chunk, which the caller releases; NULL if one lacks. */
hv_payload *hv_kept_take(hv_kept *kept);

#endif
