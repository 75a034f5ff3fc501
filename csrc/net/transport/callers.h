/* The number of calls and streams that each peer has under way at this node, with limits per peer and for all.
 *
 * Room: net (uses core/peer).
 * Owner: hv_loop. An entry whose counts are 0 is freed by the next hv_callers_sweep.
 * Thread: the hive thread.
 * Limits: HV_LOOP_CALLS_MAX, HV_LOOP_PEER_CALLS_MAX, HV_LOOP_STREAMS_MAX and HV_LOOP_PEER_STREAMS_MAX of loop.h.
 */
#ifndef HV_NET_CALLERS_H
#define HV_NET_CALLERS_H

#include "base/mem.h"
#include "core/peer.h"

enum { HV_CALLER_BUCKETS = 256 };

typedef struct hv_caller {
  struct hv_caller *next; /* in the same bucket */
  hv_peer_id peer;
  size_t calls, streams; /* incoming ones under way */
  uint64_t from;         /* number of the connection it called on last (guests.h); 0: none yet */
} hv_caller;

typedef struct hv_callers {
  hv_mem *mem;
  size_t calls, streams; /* of all peers */
  hv_caller *buckets[HV_CALLER_BUCKETS];
} hv_callers;

void hv_callers_init(hv_callers *callers, hv_mem *mem);
void hv_callers_fini(hv_callers *callers);

/* Adds a call (stream) of a peer. NULL: a limit is reached, or there is no memory. */
hv_caller *hv_callers_call(hv_callers *callers, const hv_peer_id *peer);
hv_caller *hv_callers_stream(hv_callers *callers, const hv_peer_id *peer);
/* Subtracts a call (stream). */
void hv_callers_call_left(hv_callers *callers, hv_caller *caller); /* NULL is fine */
void hv_callers_stream_left(hv_callers *callers, hv_caller *caller);

/* Frees the entries of peers that have nothing under way. */
void hv_callers_sweep(hv_callers *callers);

#endif
