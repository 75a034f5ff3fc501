/* How much does each peer want of us at a time? Counts of incoming calls and streams, so that none takes all.
 *
 * Room: net (uses core/peer). Owned by loop; the hive thread only. An entry is as good as free while its counts are 0 and goes at
 * the next sweep.
 */
#ifndef HV_NET_GUESTS_H
#define HV_NET_GUESTS_H

#include "base/mem.h"
#include "core/peer.h"

enum { HV_GUEST_BUCKETS = 256 };

typedef struct hv_guest {
  struct hv_guest *next;
  hv_peer_id peer;
  size_t calls, streams;
} hv_guest;

typedef struct hv_guests {
  hv_mem *mem;
  size_t calls, streams; /* of all together */
  hv_guest *buckets[HV_GUEST_BUCKETS];
} hv_guests;

void hv_guests_init(hv_guests *guests, hv_mem *mem);
void hv_guests_fini(hv_guests *guests);

/* Lets one more call or stream of a peer in; 0: one of the limits of loop.h is reached, or there is no memory. */
hv_guest *hv_guests_call(hv_guests *guests, const hv_peer_id *peer);
hv_guest *hv_guests_stream(hv_guests *guests, const hv_peer_id *peer);
void hv_guests_call_left(hv_guests *guests, hv_guest *guest); /* NULL is fine */
void hv_guests_stream_left(hv_guests *guests, hv_guest *guest);

void hv_guests_sweep(hv_guests *guests);

#endif
