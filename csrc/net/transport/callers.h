/* How much does each peer want of us at a time? Counts of incoming calls and streams, so that none takes all.
 *
 * Room: net (uses core/peer). Owned by loop; the hive thread only. An entry is as good as free while its counts are 0 and goes at
 * the next sweep.
 */
#ifndef HV_NET_CALLERS_H
#define HV_NET_CALLERS_H

#include "base/mem.h"
#include "core/peer.h"

enum { HV_CALLER_BUCKETS = 256 };

typedef struct hv_caller {
  struct hv_caller *next;
  hv_peer_id peer;
  size_t calls, streams;
} hv_caller;

typedef struct hv_callers {
  hv_mem *mem;
  size_t calls, streams; /* of all together */
  hv_caller *buckets[HV_CALLER_BUCKETS];
} hv_callers;

void hv_callers_init(hv_callers *callers, hv_mem *mem);
void hv_callers_fini(hv_callers *callers);

/* Lets one more call or stream of a peer in; 0: one of the limits of loop.h is reached, or there is no memory. */
hv_caller *hv_callers_call(hv_callers *callers, const hv_peer_id *peer);
hv_caller *hv_callers_stream(hv_callers *callers, const hv_peer_id *peer);
void hv_callers_call_left(hv_callers *callers, hv_caller *caller); /* NULL is fine */
void hv_callers_stream_left(hv_callers *callers, hv_caller *caller);

void hv_callers_sweep(hv_callers *callers);

#endif
