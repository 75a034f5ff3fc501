#include "net/transport/timers.h"

void hv_timers_init(hv_timers *timers, hv_mem *mem) {
  *timers = (hv_timers){.mem = mem};
}

void hv_timers_fini(hv_timers *timers) {
  hv_mem_free(timers->heap);
  *timers = (hv_timers){.mem = timers->mem};
}

hv_status hv_timers_reserve(hv_timers *timers, size_t spare) {
  size_t room = timers->room ? timers->room : 64;
  while (room - timers->n < spare)
    room *= 2;
  if (room == timers->room)
    return HV_OK;
  hv_timer **heap =
      timers->heap ? hv_mem_resize(timers->mem, timers->heap, room * sizeof *heap) : hv_mem_array(timers->mem, room, sizeof *heap);
  if (!heap)
    return HV_NOMEM;
  timers->heap = heap;
  timers->room = room;
  return HV_OK;
}

static int sooner(const hv_timer *a, const hv_timer *b) {
  return a->world.due_us != b->world.due_us ? a->world.due_us < b->world.due_us : a->world.order < b->world.order;
}

static void put(hv_timers *timers, size_t at, hv_timer *timer) {
  timers->heap[at] = timer;
  timer->world.slot = at + 1;
}

static void settle(hv_timers *timers, size_t at, hv_timer *timer) {
  for (; at > 0 && sooner(timer, timers->heap[(at - 1) / 2]); at = (at - 1) / 2)
    put(timers, at, timers->heap[(at - 1) / 2]);
  for (size_t child; (child = 2 * at + 1) < timers->n; at = child) {
    if (child + 1 < timers->n && sooner(timers->heap[child + 1], timers->heap[child]))
      child++;
    if (!sooner(timers->heap[child], timer))
      break;
    put(timers, at, timers->heap[child]);
  }
  put(timers, at, timer);
}

hv_status hv_timers_set(hv_timers *timers, hv_timer *timer, uint64_t due_us) {
  if (!timer->world.slot && hv_timers_reserve(timers, 1) != HV_OK)
    return HV_NOMEM;
  size_t at = timer->world.slot ? timer->world.slot - 1 : timers->n++;
  timer->world.due_us = due_us;
  timer->world.order = timers->order++;
  settle(timers, at, timer);
  return HV_OK;
}

void hv_timers_clear(hv_timers *timers, hv_timer *timer) {
  size_t slot = timer->world.slot;
  if (!slot)
    return;
  hv_timer *last = timers->heap[--timers->n];
  if (last != timer)
    settle(timers, slot - 1, last);
  timer->world.due_us = timer->world.order = 0;
  timer->world.slot = 0;
}

uint64_t hv_timers_next(const hv_timers *timers) {
  return timers->n ? timers->heap[0]->world.due_us : UINT64_MAX;
}

hv_timer *hv_timers_take(hv_timers *timers, uint64_t now_us) {
  hv_timer *first = timers->n && timers->heap[0]->world.due_us <= now_us ? timers->heap[0] : NULL;
  if (first)
    hv_timers_clear(timers, first);
  return first;
}
