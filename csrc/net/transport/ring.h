/* A circular doubly linked list, in the order of insertion. An hv_ring without an item around it is the head.
 *
 * Room: net. Used by the files of net/transport.
 * Owner: an item belongs to the struct that contains it. Thread: that of its struct.
 */
#ifndef HV_NET_RING_H
#define HV_NET_RING_H

#include "base/mem.h"

typedef struct hv_ring {
  struct hv_ring *next, *prev;
} hv_ring;

static inline void hv_ring_init(hv_ring *ring) {
  ring->next = ring->prev = ring;
}
static inline int hv_ring_empty(const hv_ring *ring) {
  return ring->next == ring;
}
static inline void hv_ring_add(hv_ring *ring, hv_ring *item) { /* at the end */
  item->prev = ring->prev;
  item->next = ring;
  ring->prev->next = item;
  ring->prev = item;
}
static inline void hv_ring_remove(hv_ring *item) {
  item->prev->next = item->next;
  item->next->prev = item->prev;
  hv_ring_init(item);
}

#endif
