/* The receive window of a stream: it reads from gRPC only while core holds fewer bytes of its payloads than the window.
 *
 * Room: net (uses inbox).
 * Owner: created by streams; reference-counted by the stream and by the payloads received on it.
 * Thread: a payload may be released on any thread; if that makes room, a note in the inbox wakes the stream.
 */
#ifndef HV_NET_WINDOW_H
#define HV_NET_WINDOW_H

#include "net/transport/inbox.h"

typedef struct hv_window {
  hv_note note; /* first; it may run after the stream was freed: then owner is NULL */
  pthread_mutex_t lock;
  unsigned refs, told; /* told: True while the note is in the inbox */
  size_t held, limit;  /* bytes that core holds; the window */
  int starved;         /* True if the stream stopped reading and waits for the note */
  hv_inbox *inbox;     /* NULL: the stream was freed */
  void *owner;         /* the stream; used on the hive thread only */
} hv_window;

/* run is the function of the note: called on the hive thread when there is room again. NULL: no memory. */
hv_window *hv_window_new(hv_mem *mem, size_t limit, hv_inbox *inbox, void *owner, void (*run)(hv_note *note));
void hv_window_leave(hv_window *window); /* the stream is being freed; NULL is fine */

/* Adds a message that core gets: its bytes, and a constant so that many small messages count, too. hv_window_release subtracts it;
 * it is the callback for hv_grpc_call_payload. */
void hv_window_hold(hv_window *window, size_t size);
void hv_window_release(void *window, size_t size);

/* Sets the window of a stream that may read now if it has more room than before: hv_window_open says so. */
void hv_window_resize(hv_window *window, size_t limit);

/* True if the stream may read. If not, a note runs when there is room again. */
int hv_window_open(hv_window *window);

/* Called at the end of the note's function: the note may be put into the inbox again. */
void hv_window_note_done(hv_window *window);

#endif
