/* The turns of what a node sends in bulk, and the limit on it: one bucket for all streams.
 *
 * Room: net (uses ring, timers, core/util/turns).
 * Owner: hv_loop. A place is its stream's.
 * Thread: the hive thread.
 * Terms: a message that has its turn is paid for: the next one waits until that many bytes may have been sent.
 * Messages of rounds leave before those of loads, with a limit and without (core/util/turns.h).
 * Limits: messages of HV_BULK_SMALL bytes at most never wait for the limit; unary calls, such as heartbeats, are not counted at
 * all.
 */
#ifndef HV_NET_BULK_H
#define HV_NET_BULK_H

#include "core/util/turns.h"
#include "net/transport/ring.h"
#include "net/transport/timers.h"

enum {
  HV_BULK_SMALL = 4096,
  HV_BULK_AHEAD_US = 50000, /* what was not sent may be sent later, as much as in this time */
  HV_BULK_OVERHEAD = 20     /* one more byte for so many: TLS, TCP and IP */
};

/* A stream's place among those that wait. */
typedef struct hv_bulk_place {
  hv_ring ring;
  hv_turn of;
  size_t size;  /* of the message that waits */
  size_t ahead; /* bytes of a round that have not left, of the line's */
  /* It is its turn: it asks for one message again (hv_bulk_may_send), or has none. */
  void (*turn)(struct hv_bulk_place *place);
} hv_bulk_place;

typedef struct hv_bulk {
  hv_timers *timers; /* borrowed, as the first argument of hv_bulk_init */
  hv_timer again;
  uint64_t rate;  /* bytes per second; 0: no limit */
  double level;   /* bytes that may be sent; negative: paid for in advance */
  uint64_t at_us; /* of the level */
  hv_turns turns;
  hv_ring waiting;           /* of hv_bulk_place */
  const hv_bulk_place *next; /* the one whose turn it is */
} hv_bulk;

/* The timers fire outside of steps of core. */
void hv_bulk_init(hv_bulk *bulk, hv_timers *timers);
/* Sets the limit in bytes per second; 0: none. */
void hv_bulk_set_rate(hv_bulk *bulk, uint64_t rate, uint64_t now_us);

/* Lets those that wait send what the rate allows by now; called by its timer. */
void hv_bulk_take_turns(hv_bulk *bulk, uint64_t now_us);

void hv_bulk_place_init(hv_bulk_place *place, void (*turn)(hv_bulk_place *place));
/* Gives the place up. Nothing if it does not wait. */
void hv_bulk_leave(hv_bulk_place *place);
/* True if a message of this size may be sent now, and counts it. Else the place waits, behind those that wait already.
 * place->of is set before. */
int hv_bulk_may_send(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us);
/* A message is in a stream's queue. */
void hv_bulk_waits(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us);
/* A message has left, or was dropped: a load may have its turn, by the timer. */
void hv_bulk_left(hv_bulk *bulk, hv_bulk_place *place, size_t size, uint64_t now_us);

#endif
