#include "net/hive/future.h"

#include "net/clock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct hv_future {
  hv_mem *mem;
  atomic_uint refs;
  pthread_mutex_t lock;
  pthread_cond_t finished;
  int done, cancelled;
  void (*cancel)(hv_future_cancel_request *request);
  hv_future_cancel_request request;
  hv_error error;
  hv_span bytes;
  void *block;
  hv_peer_id peer;
};

hv_future *hv_future_new(hv_mem *mem, void (*cancel)(hv_future_cancel_request *request), void *maker) {
  hv_future *future = hv_mem_zalloc(mem, sizeof *future);
  if (!future)
    return NULL;
  pthread_condattr_t steady;
  if (pthread_condattr_init(&steady) != 0)
    goto no_future;
  int failed = pthread_condattr_setclock(&steady, CLOCK_MONOTONIC) != 0 || pthread_cond_init(&future->finished, &steady) != 0;
  pthread_condattr_destroy(&steady);
  if (failed)
    goto no_future;
  if (pthread_mutex_init(&future->lock, NULL) != 0) {
    pthread_cond_destroy(&future->finished);
    goto no_future;
  }
  atomic_init(&future->refs, 2);
  future->mem = mem;
  future->cancel = cancel;
  future->request.future = future;
  future->request.maker = maker;
  return future;
no_future:
  hv_mem_free(future);
  return NULL;
}

hv_future *hv_future_keep(hv_future *future) {
  atomic_fetch_add_explicit(&future->refs, 1, memory_order_relaxed);
  return future;
}

void hv_future_release(hv_future *future) {
  if (!future || atomic_fetch_sub_explicit(&future->refs, 1, memory_order_acq_rel) != 1)
    return;
  pthread_mutex_destroy(&future->lock);
  pthread_cond_destroy(&future->finished);
  hv_mem_free(future->block);
  hv_mem_free(future);
}

static void finish(hv_future *future) {
  pthread_mutex_lock(&future->lock);
  future->done = 1;
  pthread_cond_broadcast(&future->finished);
  pthread_mutex_unlock(&future->lock);
  hv_future_release(future);
}

void hv_future_finish_taken(hv_future *future, void *block, size_t size, const hv_peer_id *peer) {
  future->block = block;
  future->bytes = hv_span_of(block, size);
  if (peer)
    future->peer = *peer;
  finish(future);
}

int hv_future_offer(hv_future *future, void *block, size_t size, const hv_peer_id *peer) {
  pthread_mutex_lock(&future->lock);
  int wanted = !future->cancelled;
  if (wanted) {
    future->block = block;
    future->bytes = hv_span_of(block, size);
    future->peer = *peer;
    future->done = 1;
    pthread_cond_broadcast(&future->finished);
  }
  pthread_mutex_unlock(&future->lock);
  if (wanted)
    hv_future_release(future);
  return wanted;
}

void *hv_future_take(hv_future *future, size_t *size, hv_peer_id *peer) {
  if (!hv_future_done(future) || future->error.status != HV_OK)
    return NULL;
  void *block = future->block;
  *size = future->bytes.size;
  *peer = future->peer;
  future->block = NULL;
  future->bytes = hv_span_of(NULL, 0);
  return block;
}

void hv_future_finish(hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  void *copy = NULL;
  if (bytes.size) {
    copy = hv_mem_alloc(future->mem, bytes.size);
    if (!copy) {
      hv_future_fail(future, HV_NOMEM, HV_CAUSE_MEMORY, "cannot hand over the result: no memory; raise the memory limit");
      return;
    }
    memcpy(copy, bytes.data, bytes.size);
  }
  hv_future_finish_taken(future, copy, bytes.size, peer);
}

void hv_future_fail(hv_future *future, hv_status status, hv_cause cause, const char *text) {
  hv_fail_by(&future->error, status, cause, "%s", text && *text ? text : hv_status_text(status));
  finish(future);
}

int hv_future_done(hv_future *future) {
  pthread_mutex_lock(&future->lock);
  int done = future->done;
  pthread_mutex_unlock(&future->lock);
  return done;
}

int hv_future_wait(hv_future *future, uint32_t timeout_ms) {
  uint64_t until = hv_clock_us() + (uint64_t)timeout_ms * 1000;
  struct timespec at = {.tv_sec = (time_t)(until / 1000000), .tv_nsec = (long)(until % 1000000) * 1000};
  pthread_mutex_lock(&future->lock);
  int rc = 0;
  while (!future->done && rc == 0)
    rc = timeout_ms == UINT32_MAX ? pthread_cond_wait(&future->finished, &future->lock)
                                  : pthread_cond_timedwait(&future->finished, &future->lock, &at);
  int done = future->done;
  pthread_mutex_unlock(&future->lock);
  return done;
}

int hv_future_cancel(hv_future *future) {
  pthread_mutex_lock(&future->lock);
  int pending = !future->done;
  if (!future->done && !future->cancelled && future->cancel) {
    future->cancelled = 1;
    hv_future_keep(future);
    future->cancel(&future->request);
  }
  pthread_mutex_unlock(&future->lock);
  return pending;
}

hv_status hv_future_result(hv_future *future, hv_span *bytes, hv_peer_id *peer, hv_error *err) {
  if (!hv_future_done(future))
    return hv_fail(err, HV_BUSY, "the result is not there yet: the call is still running; wait for it");
  if (future->error.status != HV_OK) {
    if (err)
      *err = future->error;
    return future->error.status;
  }
  if (bytes)
    *bytes = future->bytes;
  if (peer)
    *peer = future->peer;
  return HV_OK;
}
