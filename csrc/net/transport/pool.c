#include "net/transport/pool.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct hv_pool {
  pthread_mutex_t lock;
  pthread_cond_t more;
  hv_job *first, **last;
  int stopping;
  void (*ran)(void *arg, hv_job *job);
  void *arg;
  unsigned n;
  pthread_t threads[HV_POOL_THREADS_MAX];
};

static void *work(void *arg) {
  hv_pool *pool = arg;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->first && !pool->stopping)
      pthread_cond_wait(&pool->more, &pool->lock);
    if (pool->stopping)
      break;
    hv_job *job = pool->first;
    pool->first = job->next;
    if (!pool->first)
      pool->last = &pool->first;
    job->next = NULL;
    pthread_mutex_unlock(&pool->lock);
    job->run(job);
    pool->ran(pool->arg, job);
    pthread_mutex_lock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static unsigned threads_wanted(unsigned asked) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (asked == 0)
    asked = processors < 1 ? 1 : processors > 8 ? 8 : (unsigned)processors;
  return asked < HV_POOL_THREADS_MAX ? asked : HV_POOL_THREADS_MAX;
}

hv_status hv_pool_new(hv_mem *mem, unsigned threads, void (*ran)(void *arg, hv_job *job), void *arg, hv_pool **out, hv_error *err) {
  hv_pool *pool = hv_mem_zalloc(mem, sizeof *pool);
  if (!pool)
    return hv_fail(err, HV_NOMEM, "cannot start the thread pool: no memory; raise the memory limit");
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->more, NULL);
  pool->last = &pool->first;
  pool->ran = ran;
  pool->arg = arg;
  for (unsigned wanted = threads_wanted(threads); pool->n < wanted; pool->n++) {
    int error = pthread_create(&pool->threads[pool->n], NULL, work, pool);
    if (error && pool->n == 0) { /* fewer than asked for will do, none will not */
      hv_pool_free(pool);
      return hv_fail(err, HV_IO, "cannot start a thread: %s; raise the limit on processes (ulimit -u)", strerror(error));
    }
    if (error)
      break;
  }
  *out = pool;
  return HV_OK;
}

void hv_pool_give(hv_pool *pool, hv_job *job) {
  job->next = NULL;
  pthread_mutex_lock(&pool->lock);
  *pool->last = job;
  pool->last = &job->next;
  pthread_cond_signal(&pool->more);
  pthread_mutex_unlock(&pool->lock);
}

hv_job *hv_pool_stop(hv_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->stopping = 1;
  hv_job *left = pool->first;
  pool->first = NULL;
  pool->last = &pool->first;
  pthread_cond_broadcast(&pool->more);
  pthread_mutex_unlock(&pool->lock);
  for (; pool->n; pool->n--)
    pthread_join(pool->threads[pool->n - 1], NULL);
  return left;
}

void hv_pool_free(hv_pool *pool) {
  if (!pool)
    return;
  pthread_cond_destroy(&pool->more);
  pthread_mutex_destroy(&pool->lock);
  hv_mem_free(pool);
}
