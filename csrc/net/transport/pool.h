/* A thread pool: a fixed number of threads that run jobs in the order of their submission.
 *
 * Room: net (uses core/env for hv_job).
 * Owner: hv_loop.
 * Thread: the hive thread calls these functions; `ran` is called on a pool thread.
 * Limits: HV_POOL_THREADS_MAX threads.
 */
#ifndef HV_NET_POOL_H
#define HV_NET_POOL_H

#include "core/env.h"

#define HV_POOL_THREADS_MAX 64

typedef struct hv_pool hv_pool;

/* Starts the threads (0: number of processors, at most 8). ran(arg, job) is called after each job. HV_NOMEM; HV_IO: no thread could
 * be started. */
hv_status hv_pool_new(hv_mem *mem, unsigned threads, void (*ran)(void *arg, hv_job *job), void *arg, hv_pool **out, hv_error *err);

/* Submits a job, which belongs to the pool until `ran` is called. */
void hv_pool_give(hv_pool *pool, hv_job *job);

/* Waits for running jobs, ends the threads, and returns the list of jobs that never ran. Call it once. */
hv_job *hv_pool_stop(hv_pool *pool);
void hv_pool_free(hv_pool *pool); /* after hv_pool_stop; NULL is fine */

#endif
