#include "net/transport/timers.h"

static hv_timer *timer_of(const hv_heap_node *node) {
  return HV_HOLDER(hv_timer, world.node, node);
}

static int sooner(const hv_heap_node *one, const hv_heap_node *other) {
  const hv_timer *a = timer_of(one), *b = timer_of(other);
  return a->world.due_us != b->world.due_us ? a->world.due_us < b->world.due_us : a->world.order < b->world.order;
}

void hv_timers_set(hv_timers *timers, hv_timer *timer, uint64_t due_us) {
  hv_timers_clear(timers, timer);
  timer->world.slot = 1;
  timer->world.due_us = due_us;
  timer->world.order = timers->order++;
  hv_heap_add(&timers->first, &timer->world.node, sooner);
}

void hv_timers_clear(hv_timers *timers, hv_timer *timer) {
  if (!timer->world.slot)
    return;
  hv_heap_remove(&timers->first, &timer->world.node, sooner);
  timer->world.due_us = timer->world.order = 0;
  timer->world.slot = 0;
}

uint64_t hv_timers_next(const hv_timers *timers) {
  return timers->first ? timer_of(timers->first)->world.due_us : UINT64_MAX;
}

hv_timer *hv_timers_take(hv_timers *timers, uint64_t now_us) {
  hv_timer *first = hv_timers_next(timers) <= now_us && timers->first ? timer_of(timers->first) : NULL;
  if (first)
    hv_timers_clear(timers, first);
  return first;
}
