#include "net/transport/window.h"

/* Bytes that each message counts in addition to its own, for the memory of gRPC and of the payload. */
enum { MESSAGE_COST = 512 };

hv_window *hv_window_new(hv_mem *mem, size_t limit, hv_inbox *inbox, void *owner, void (*run)(hv_note *note)) {
  hv_window *window = hv_mem_zalloc(mem, sizeof *window);
  if (!window)
    return NULL;
  pthread_mutex_init(&window->lock, NULL);
  window->note.run = run;
  window->refs = 1;
  window->limit = limit;
  window->inbox = inbox;
  window->owner = owner;
  return window;
}

static void unlock_and_let_go(hv_window *window) {
  unsigned left = --window->refs;
  pthread_mutex_unlock(&window->lock);
  if (left)
    return;
  pthread_mutex_destroy(&window->lock);
  hv_mem_free(window);
}

void hv_window_leave(hv_window *window) {
  if (!window)
    return;
  pthread_mutex_lock(&window->lock);
  window->inbox = NULL;
  window->owner = NULL;
  unlock_and_let_go(window);
}

void hv_window_hold(hv_window *window, size_t size) {
  pthread_mutex_lock(&window->lock);
  window->refs++;
  window->held += size + MESSAGE_COST;
  pthread_mutex_unlock(&window->lock);
}

/* Under the lock: there is room, if somebody waits for it. There is one note: while it is under way it cannot be put again. */
static void tell(hv_window *window) {
  if (!window->starved || window->told || !window->inbox || window->held >= window->limit)
    return;
  window->starved = 0;
  window->told = hv_inbox_put_note(window->inbox, &window->note) == HV_OK;
  window->refs += window->told; /* the note's */
}

void hv_window_release(void *arg, size_t size) {
  hv_window *window = arg;
  pthread_mutex_lock(&window->lock);
  window->held -= size + MESSAGE_COST;
  tell(window);
  unlock_and_let_go(window);
}

void hv_window_resize(hv_window *window, size_t limit) {
  pthread_mutex_lock(&window->lock);
  window->limit = limit;
  pthread_mutex_unlock(&window->lock);
}

int hv_window_open(hv_window *window) {
  pthread_mutex_lock(&window->lock);
  int open = window->held < window->limit;
  window->starved = !open;
  pthread_mutex_unlock(&window->lock);
  return open;
}

void hv_window_note_done(hv_window *window) {
  pthread_mutex_lock(&window->lock);
  window->told = 0;
  tell(window); /* it was full once more, and has room again since */
  unlock_and_let_go(window);
}
