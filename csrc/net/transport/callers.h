/* Counts of each peer's incoming calls and streams, so that no peer takes all.
 *
 * Room: net (uses core/peer).
 * Owner: loop. An entry whose counts are 0 goes at the next sweep.
 * Thread: the hive thread.
 * Limits: those of loop.h.
 */
#ifndef HV_NET_CALLERS_H
#define HV_NET_CALLERS_H

#include "base/mem.h"
#include "core/peer.h"

enum { HV_CALLER_BUCKETS = 256 };

typedef struct hv_caller {
  struct hv_caller *next; /* of its bucket */
  hv_peer_id peer;
  size_t calls, streams; /* under way */
} hv_caller;

typedef struct hv_callers {
  hv_mem *mem;
  size_t calls, streams; /* of all together */
  hv_caller *buckets[HV_CALLER_BUCKETS];
} hv_callers;

void hv_callers_init(hv_callers *callers, hv_mem *mem);
void hv_callers_fini(hv_callers *callers);

/* Counts one more call (stream) of a peer. NULL: a limit of loop.h is reached, or there is no memory. */
hv_caller *hv_callers_call(hv_callers *callers, const hv_peer_id *peer);
hv_caller *hv_callers_stream(hv_callers *callers, const hv_peer_id *peer);
/* One call (stream) fewer. */
void hv_callers_call_left(hv_callers *callers, hv_caller *caller); /* NULL is fine */
void hv_callers_stream_left(hv_callers *callers, hv_caller *caller);

void hv_callers_sweep(hv_callers *callers);

#endif
