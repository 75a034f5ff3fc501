#include "net/transport/inbox.h"

static void load_init(hv_inbox_load *load) {
  *load = (hv_inbox_load){.last_command = &load->commands, .last_job = &load->jobs, .last_note = &load->notes};
}

void hv_inbox_init(hv_inbox *inbox, void (*ring)(void *arg), void *arg) {
  pthread_mutex_init(&inbox->lock, NULL);
  atomic_init(&inbox->filled, 0);
  inbox->closed = 0;
  inbox->ring = ring;
  inbox->arg = arg;
  load_init(&inbox->load);
}

void hv_inbox_fini(hv_inbox *inbox) {
  pthread_mutex_destroy(&inbox->lock);
}

/* One body for three lists: links `item` at the end, rings when the box was empty. */
#define PUT(inbox, item, last)                                                                                                     \
  pthread_mutex_lock(&(inbox)->lock);                                                                                              \
  int closed = (inbox)->closed;                                                                                                    \
  if (!closed) {                                                                                                                   \
    (item)->next = NULL;                                                                                                           \
    *(inbox)->load.last = (item);                                                                                                  \
    (inbox)->load.last = &(item)->next;                                                                                            \
    if (!atomic_exchange(&(inbox)->filled, 1))                                                                                     \
      (inbox)->ring((inbox)->arg);                                                                                                 \
  }                                                                                                                                \
  pthread_mutex_unlock(&(inbox)->lock);                                                                                            \
  return closed ? HV_CLOSED : HV_OK

hv_status hv_inbox_put_command(hv_inbox *inbox, hv_command *command) {
  PUT(inbox, command, last_command);
}

hv_status hv_inbox_put_job(hv_inbox *inbox, hv_job *job) {
  PUT(inbox, job, last_job);
}

hv_status hv_inbox_put_note(hv_inbox *inbox, hv_note *note) {
  PUT(inbox, note, last_note);
}

void hv_inbox_ring(hv_inbox *inbox) {
  pthread_mutex_lock(&inbox->lock);
  if (!inbox->closed)
    inbox->ring(inbox->arg);
  pthread_mutex_unlock(&inbox->lock);
}

int hv_inbox_take(hv_inbox *inbox, int close, hv_inbox_load *out) {
  if (!close && !atomic_load_explicit(&inbox->filled, memory_order_acquire))
    return 0;
  pthread_mutex_lock(&inbox->lock);
  *out = inbox->load;
  load_init(&inbox->load);
  atomic_store(&inbox->filled, 0);
  inbox->closed = inbox->closed || close;
  pthread_mutex_unlock(&inbox->lock);
  return out->commands || out->jobs || out->notes;
}
