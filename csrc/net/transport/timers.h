/* The heap of timers: which is due next. Equal times fire in the order in which they were set.
 *
 * Room: net (uses core/env).
 * Owner: loop. It borrows the timers and owns the array. Room is made ahead (hv_timers_reserve, outside of core's steps), because
 * arming a timer may not fail.
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
void hv_timers_fini(hv_timers *timers); /* the timers themselves are not looked at */

/* Makes sure that `spare` more timers find room. HV_NOMEM. */
hv_status hv_timers_reserve(hv_timers *timers, size_t spare);

/* Arms or re-arms. HV_NOMEM: no room had been made, and there is none. */
hv_status hv_timers_set(hv_timers *timers, hv_timer *timer, uint64_t due_us);
void hv_timers_clear(hv_timers *timers, hv_timer *timer);

uint64_t hv_timers_next(const hv_timers *timers); /* UINT64_MAX: none is armed */
/* Takes the first timer that is due at now_us out; NULL: none is. */
hv_timer *hv_timers_take(hv_timers *timers, uint64_t now_us);

#endif
