/* The queue of work for the hive thread: commands, finished jobs, and notes from other threads.
 *
 * Room: net (uses core/env).
 * Owner: hv_loop. It allocates nothing: each item has its own `next` field.
 * Thread: any thread puts items and wakes the hive thread, which takes them.
 */
#ifndef HV_NET_INBOX_H
#define HV_NET_INBOX_H

#include "core/env.h"

#include <pthread.h>

/* A function to run on the hive thread, embedded in the struct of the sender. */
typedef struct hv_note hv_note;
struct hv_note {
  void (*run)(hv_note *self);
  hv_note *next;
};

/* Lists of items, each in the order of arrival. */
typedef struct hv_inbox_load {
  hv_command *commands, **last_command;
  hv_job *jobs, **last_job;
  hv_note *notes, **last_note;
} hv_inbox_load;

typedef struct hv_inbox {
  pthread_mutex_t lock;
  atomic_int filled; /* True if there may be items */
  int closed;
  void (*ring)(void *arg); /* wakes the hive thread; called with the lock held, never after close */
  void *arg;
  hv_inbox_load load;
} hv_inbox;

void hv_inbox_init(hv_inbox *inbox, void (*ring)(void *arg), void *arg);
void hv_inbox_fini(hv_inbox *inbox);

/* HV_CLOSED: the inbox is closed; the item still belongs to the caller. */
hv_status hv_inbox_put_command(hv_inbox *inbox, hv_command *command);
hv_status hv_inbox_put_job(hv_inbox *inbox, hv_job *job);
hv_status hv_inbox_put_note(hv_inbox *inbox, hv_note *note);

/* Wakes the hive thread without an item, unless the inbox is closed. */
void hv_inbox_ring(hv_inbox *inbox);

/* Takes all items. False if there are none. close: also closes the inbox. */
int hv_inbox_take(hv_inbox *inbox, int close, hv_inbox_load *out);

#endif
