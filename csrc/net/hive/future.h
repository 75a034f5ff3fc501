/* Results that a program's thread waits for: the maker's half.
 *
 * Room: net (uses base, core/peer, the loop's clock). The public half (wait, result, keep, ...) is in hivemind_c.h.
 * Owner: counted references; charged to an account that lives as long as its futures (hv_mem_new).
 * Thread: the hive thread, or the thread that stops the hive, finishes a future exactly once. Any thread waits.
 */
#ifndef HV_NET_FUTURE_H
#define HV_NET_FUTURE_H

#include "core/env.h"
#include "hivemind_c.h"

/* What a future asks its maker when the program cancels it: a command ready to be posted, and a reference, which the code that runs
 * the command releases. */
typedef struct hv_future_cancel_request {
  hv_command command;
  hv_future *future;
  void *maker;
} hv_future_cancel_request;

/* Two references: the caller's and the finisher's. `cancel` (may be NULL) is called at most once, on any thread, never after the
 * future is done, under the future's lock: it posts the request (or gives up its reference), and does not finish. NULL: no memory.
 */
hv_future *hv_future_new(hv_mem *mem, void (*cancel)(hv_future_cancel_request *request), void *maker);

/* Each finishes it and gives up the finisher's reference. Bytes are copied (hv_future_finish) or taken (block from the hive's
 * account). */
void hv_future_finish(hv_future *future, hv_span bytes, const hv_peer_id *peer);
void hv_future_finish_taken(hv_future *future, void *block, size_t size, const hv_peer_id *peer);
/* The same, unless it was cancelled: then returns 0 and does nothing. */
int hv_future_offer(hv_future *future, void *block, size_t size, const hv_peer_id *peer);
/* Takes the result of a future that is done and that nobody else looks at any more: its block, or NULL when there is none. */
void *hv_future_take(hv_future *future, size_t *size, hv_peer_id *peer);
/* cause: HV_CAUSE_OTHER is the status' own. */
void hv_future_fail(hv_future *future, hv_status status, hv_cause cause, const char *text);

#endif
