#include "net/transport/bulk.h"

#include "net/clock.h"

static void fill(hv_bulk *bulk, uint64_t now_us) {
  double most = (double)bulk->rate * HV_BULK_AHEAD_US * 1e-6;
  bulk->level += (double)(now_us - bulk->at_us) * 1e-6 * (double)bulk->rate;
  bulk->level = bulk->level < most ? bulk->level : most;
  bulk->at_us = now_us;
}

/* The first that waits has its turn when the level is above 0. */
static void waits(hv_bulk *bulk, uint64_t now_us) {
  double us = bulk->level < 0 ? -bulk->level * 1e6 / (double)bulk->rate : 0;
  hv_timers_set(bulk->timers, &bulk->again, now_us + (uint64_t)us + 1);
}

void hv_bulk_take_turns(hv_bulk *bulk, uint64_t now_us) {
  fill(bulk, now_us);
  while (!hv_ring_empty(&bulk->waiting) && (!bulk->rate || bulk->level > 0)) {
    hv_bulk_place *place = HV_HOLDER(hv_bulk_place, ring, bulk->waiting.next);
    hv_ring_remove(&place->ring);
    bulk->next = place;
    place->turn(place);
    bulk->next = NULL;
  }
  if (!hv_ring_empty(&bulk->waiting))
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
}

void hv_bulk_leave(hv_bulk_place *place) {
  hv_ring_remove(&place->ring);
}

int hv_bulk_may_send(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us) {
  if (!bulk->rate)
    return 1;
  fill(bulk, now_us);
  int is_turn = bulk->level > 0 && (hv_ring_empty(&bulk->waiting) || bulk->next == place);
  if (size > HV_BULK_SMALL && !is_turn) {
    if (hv_ring_empty(&place->ring))
      hv_ring_add(&bulk->waiting, &place->ring);
    waits(bulk, now_us);
    return 0;
  }
  bulk->level -= (double)(size + size / HV_BULK_OVERHEAD);
  return 1;
}
