/* The thread pool: a few threads that run jobs, in the order in which they were given.
 *
 * Room: net (uses core/env for hv_job).
 * Owner: loop.
 * Thread: hv_pool_give on the hive thread; `ran` is called on a pool thread.
 */
#ifndef HV_NET_POOL_H
#define HV_NET_POOL_H

#include "core/env.h"

#define HV_POOL_THREADS_MAX 64

typedef struct hv_pool hv_pool;

/* Starts the threads (0: as many as there are processors, at most 8). ran(arg, job) follows each run. HV_NOMEM, HV_IO: no thread to
 * be had. */
hv_status hv_pool_new(hv_mem *mem, unsigned threads, void (*ran)(void *arg, hv_job *job), void *arg, hv_pool **out, hv_error *err);

/* Gives a job (the caller's struct until `ran`). */
void hv_pool_give(hv_pool *pool, hv_job *job);

/* Waits for the jobs that run now, ends the threads, and hands back those that never ran, as a list. Once. */
hv_job *hv_pool_stop(hv_pool *pool);
void hv_pool_free(hv_pool *pool); /* NULL is fine; stopped before */

#endif
