#include "net/transport/bulk.h"

#include "net/clock.h"

static void fill(hv_bulk *bulk, uint64_t now_us) {
  double most = (double)bulk->rate * HV_BULK_AHEAD_US * 1e-6;
  bulk->level += (double)(now_us - bulk->at_us) * 1e-6 * (double)bulk->rate;
  bulk->level = bulk->level < most ? bulk->level : most;
  bulk->at_us = now_us;
}

/* The time at which it has its turn among rounds. */
static uint64_t turn_us(const hv_bulk *bulk, const hv_bulk_place *place, uint64_t now_us) {
  return place->of == HV_TURN_LOAD ? hv_turns_due_us(&bulk->turns, place->size, now_us) : now_us;
}

/* The first of those that wait which does not wait for rounds; NULL: none. */
static hv_bulk_place *first_of(const hv_bulk *bulk, uint64_t now_us) {
  for (hv_ring *at = bulk->waiting.next; at != &bulk->waiting; at = at->next) {
    hv_bulk_place *place = HV_HOLDER(hv_bulk_place, ring, at);
    if (turn_us(bulk, place, now_us) <= now_us)
      return place;
  }
  return NULL;
}

/* Each that waits has its turn when the level is above 0, and not before its turn among rounds. */
static void waits(hv_bulk *bulk, uint64_t now_us) {
  uint64_t first_us = UINT64_MAX;
  double us = bulk->level < 0 ? -bulk->level * 1e6 / (double)bulk->rate : 0;
  for (hv_ring *at = bulk->waiting.next; at != &bulk->waiting; at = at->next) {
    const hv_bulk_place *place = HV_HOLDER(hv_bulk_place, ring, at);
    uint64_t due_us = turn_us(bulk, place, now_us);
    first_us = due_us < first_us ? due_us : first_us;
  }
  uint64_t level_us = now_us + (uint64_t)us;
  if (first_us != UINT64_MAX)
    hv_timers_set(bulk->timers, &bulk->again, (first_us > level_us ? first_us : level_us) + 1);
}

void hv_bulk_take_turns(hv_bulk *bulk, uint64_t now_us) {
  fill(bulk, now_us);
  for (hv_bulk_place *place; (!bulk->rate || bulk->level > 0) && (place = first_of(bulk, now_us)) != NULL;) {
    hv_ring_remove(&place->ring);
    bulk->next = place;
    place->turn(place);
    bulk->next = NULL;
  }
  waits(bulk, now_us);
}

static void again(hv_timer *timer, const hv_event *event) {
  (void)event;
  hv_bulk_take_turns(timer->owner, hv_clock_us());
}

void hv_bulk_init(hv_bulk *bulk, hv_timers *timers) {
  *bulk = (hv_bulk){.timers = timers};
  bulk->again = (hv_timer){.fire = again, .owner = bulk};
  hv_ring_init(&bulk->waiting);
}

void hv_bulk_set_rate(hv_bulk *bulk, uint64_t rate, uint64_t now_us) {
  fill(bulk, now_us);
  bulk->rate = rate;
  bulk->level = 0;
  hv_bulk_take_turns(bulk, now_us);
}

void hv_bulk_place_init(hv_bulk_place *place, void (*turn)(hv_bulk_place *place)) {
  hv_ring_init(&place->ring);
  place->turn = turn;
  place->of = HV_TURN_ANY;
  place->ahead = 0;
}

void hv_bulk_leave(hv_bulk_place *place) {
  hv_ring_remove(&place->ring);
}

int hv_bulk_may_send(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us) {
  fill(bulk, now_us);
  int is_free = !bulk->rate || size <= HV_BULK_SMALL || (bulk->level > 0 && (bulk->next == place || !first_of(bulk, now_us)));
  if (!is_free || (place->of == HV_TURN_LOAD && !hv_turns_load(&bulk->turns, size, now_us))) {
    place->size = size;
    if (hv_ring_empty(&place->ring))
      hv_ring_add(&bulk->waiting, &place->ring);
    waits(bulk, now_us);
    return 0;
  }
  if (bulk->rate)
    bulk->level -= (double)(size + size / HV_BULK_OVERHEAD);
  return 1;
}

void hv_bulk_waits(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us) {
  if (place->of != HV_TURN_ROUND)
    return;
  place->ahead += size;
  hv_turns_wait(&bulk->turns, size, now_us);
}

void hv_bulk_left(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us) {
  size = size < place->ahead ? size : place->ahead;
  if (!size)
    return;
  place->ahead -= size;
  hv_turns_left(&bulk->turns, size, now_us);
  if (!hv_ring_empty(&bulk->waiting))
    waits(bulk, now_us);
}
