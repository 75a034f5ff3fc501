/* The receive window of a stream: bytes that core holds. The stream reads only while they are fewer than its window.
 *
 * Room: net (uses inbox).
 * Owner: made by streams; shared by a stream and the payloads that came over it; freed by the last of them.
 * Thread: a payload may be released on any thread. If that makes room, the inbox tells the stream.
 */
#ifndef HV_NET_WINDOW_H
#define HV_NET_WINDOW_H

#include "net/transport/inbox.h"

typedef struct hv_window {
  hv_note note; /* first; run with the stream still there (owner not NULL) or not */
  pthread_mutex_t lock;
  unsigned refs, told; /* told: the note is under way */
  size_t held, limit;
  int starved;     /* the stream stopped reading: a note is wanted when there is room */
  hv_inbox *inbox; /* NULL: the stream is gone */
  void *owner;     /* the stream; the hive thread's */
} hv_window;

/* notify(window->owner) is what a note does, on the hive thread. NULL: no memory. */
hv_window *hv_window_new(hv_mem *mem, size_t limit, hv_inbox *inbox, void *owner, void (*run)(hv_note *note));
void hv_window_leave(hv_window *window); /* the stream is gone. NULL is fine */

/* Counts a message that core gets to see (its bytes, and what it takes beside them, so that many small ones are not free);
 * hv_window_release (for hv_grpc_call_payload) counts it back. */
void hv_window_hold(hv_window *window, size_t size);
void hv_window_release(void *window, size_t size);

/* 1: there is room, read on. 0: full; a note comes when there is room again. */
int hv_window_open(hv_window *window);

/* At the end of a note's run; it may be put again at once. */
void hv_window_note_done(hv_window *window);

#endif
