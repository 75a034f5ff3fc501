/* The hive thread's inbox: commands, finished jobs, and notes from other threads, in one locked box that wakes it.
 *
 * Room: net (uses core/env).
 * Owner: loop. Nothing is allocated: whatever is put in brings its own link.
 * Thread: any thread puts; the hive thread takes.
 */
#ifndef HV_NET_INBOX_H
#define HV_NET_INBOX_H

#include "core/env.h"

#include <pthread.h>

/* Something to be done on the hive thread. */
typedef struct hv_note hv_note;
struct hv_note {
  void (*run)(hv_note *self);
  hv_note *next;
};

/* Lists, each in the order of arrival. */
typedef struct hv_inbox_load {
  hv_command *commands, **last_command;
  hv_job *jobs, **last_job;
  hv_note *notes, **last_note;
} hv_inbox_load;

typedef struct hv_inbox {
  pthread_mutex_t lock;
  atomic_int filled;
  int closed;
  void (*ring)(void *arg); /* called under the lock, so never after close */
  void *arg;
  hv_inbox_load load;
} hv_inbox;

void hv_inbox_init(hv_inbox *inbox, void (*ring)(void *arg), void *arg);
void hv_inbox_fini(hv_inbox *inbox);

/* HV_CLOSED: the box is closed, nothing was taken. */
hv_status hv_inbox_put_command(hv_inbox *inbox, hv_command *command);
hv_status hv_inbox_put_job(hv_inbox *inbox, hv_job *job);
hv_status hv_inbox_put_note(hv_inbox *inbox, hv_note *note);

/* Rings without putting anything; nothing when closed. */
void hv_inbox_ring(hv_inbox *inbox);

/* Takes all there is; 0: nothing. close: for the last time, from now on nothing is accepted. */
int hv_inbox_take(hv_inbox *inbox, int close, hv_inbox_load *out);

#endif
