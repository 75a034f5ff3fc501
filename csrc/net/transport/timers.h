/* Timers in the order in which they fall due. Timers of equal time fire in the order in which they were set.
 *
 * Room: net (uses core/env). Allocates nothing, so setting a timer cannot fail.
 * Owner: hv_loop. The timers are borrowed.
 * Thread: the hive thread.
 */
#ifndef HV_NET_TIMERS_H
#define HV_NET_TIMERS_H

#include "core/env.h"

typedef struct hv_timers {
  hv_heap_node *first; /* a heap; NULL: no timer is set */
  uint64_t order;
} hv_timers;

/* Sets a timer, or moves it. hv_timers of zeros holds none. */
void hv_timers_set(hv_timers *timers, hv_timer *timer, uint64_t due_us);
void hv_timers_clear(hv_timers *timers, hv_timer *timer);

uint64_t hv_timers_next(const hv_timers *timers); /* due time of the first; UINT64_MAX: none */
/* Removes and returns the first timer that is due at now_us; NULL: none. */
hv_timer *hv_timers_take(hv_timers *timers, uint64_t now_us);

#endif
