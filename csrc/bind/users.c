/* Threads that are in an object without the GIL (contract in bind.h). */
#include "bind.h"

int bind_users_init(bind_users *users) {
  users->idle = PyThread_allocate_lock();
  return users->idle ? 0 : -1;
}

void bind_users_fini(bind_users *users) {
  if (users->idle)
    PyThread_free_lock(users->idle);
  users->idle = NULL;
}

void bind_users_enter(bind_users *users) {
  if (users->n++ == 0)
    PyThread_acquire_lock(users->idle, NOWAIT_LOCK);
}

void bind_users_leave(bind_users *users) {
  if (--users->n == 0)
    PyThread_release_lock(users->idle);
}

void bind_users_wait(bind_users *users) {
  PyThread_acquire_lock(users->idle, WAIT_LOCK);
  PyThread_release_lock(users->idle);
}
