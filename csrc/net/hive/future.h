/* Futures: results for which a program's thread waits. This is the part for the code that finishes them.
 *
 * Room: net (uses base, core/peer, clock). The public functions (wait, result, keep, cancel, ...) are in hivemind_c.h.
 * Owner: reference-counted, and charged to an account that lives as long as its futures (hv_mem_new).
 * Thread: the hive thread, or the thread that stops the hive, finishes a future exactly once. Any thread waits.
 */
#ifndef HV_NET_FUTURE_H
#define HV_NET_FUTURE_H

#include "core/env.h"
#include "hivemind_c.h"

/* A request of the program to cancel a future: a command to post to the hive thread. It holds a reference, which the command's
 * function releases. */
typedef struct hv_future_cancel_request {
  hv_command command;
  hv_future *future;
  void *maker;
} hv_future_cancel_request;

/* A future with two references: one for the caller, one for the code that finishes it. cancel (may be NULL) is called at most once,
 * on any thread, with the future's lock held, and never after the future is done. It posts the request or releases its reference,
 * and must not finish the future. NULL: no memory. */
hv_future *hv_future_new(hv_mem *mem, void (*cancel)(hv_future_cancel_request *request), void *maker);

/* Each finishes the future and releases the finisher's reference. hv_future_finish copies the bytes; hv_future_finish_taken takes
 * the block, which is from the hive's account. */
void hv_future_finish(hv_future *future, hv_span bytes, const hv_peer_id *peer);
void hv_future_finish_taken(hv_future *future, void *block, size_t size, const hv_peer_id *peer);
/* As hv_future_finish_taken. False if the future was cancelled: then nothing is taken. */
int hv_future_offer(hv_future *future, void *block, size_t size, const hv_peer_id *peer);
/* Removes the block from a finished future that no other thread uses, and returns it; NULL: there is none. */
void *hv_future_take(hv_future *future, size_t *size, hv_peer_id *peer);
/* Finishes it with an error. cause: HV_CAUSE_OTHER stands for the cause that follows from the status. */
void hv_future_fail(hv_future *future, hv_status status, hv_cause cause, const char *text);

#endif
