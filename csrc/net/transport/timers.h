/* A heap of timers, ordered by due time. Timers of equal time fire in the order in which they were set.
 *
 * Room: net (uses core/env).
 * Owner: hv_loop. The timers are borrowed; the array is owned. hv_timers_reserve allocates outside core's steps, so that setting a
 * timer does not fail.
 * Thread: the hive thread.
 */
#ifndef HV_NET_TIMERS_H
#define HV_NET_TIMERS_H

#include "core/env.h"

typedef struct hv_timers {
  hv_mem *mem;
  hv_timer **heap;
  size_t n, room;
  uint64_t order;
} hv_timers;

void hv_timers_init(hv_timers *timers, hv_mem *mem);
void hv_timers_fini(hv_timers *timers); /* does not access the timers */

/* Allocates room for `spare` more timers. HV_NOMEM. */
hv_status hv_timers_reserve(hv_timers *timers, size_t spare);

/* Sets a timer, or moves it. HV_NOMEM: more timers than reserved, and no memory. */
hv_status hv_timers_set(hv_timers *timers, hv_timer *timer, uint64_t due_us);
void hv_timers_clear(hv_timers *timers, hv_timer *timer);

uint64_t hv_timers_next(const hv_timers *timers); /* due time of the first; UINT64_MAX: none */
/* Removes and returns the first timer that is due at now_us; NULL: none. */
hv_timer *hv_timers_take(hv_timers *timers, uint64_t now_us);

#endif
