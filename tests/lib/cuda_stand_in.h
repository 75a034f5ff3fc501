/* A GPU of plain C: the world of cuda/world.h with memory of the host and streams that run when they must, or when chance
 * says.
 *
 * Kernels are the very bodies that a GPU runs, run block by block and thread by thread between barriers. Work on a stream stays
 * undone until an event that stands behind it is waited for, or until `restless` picks that stream: code that forgets to wait for
 * something sees old bytes. With `backwards` the threads of a phase run in the opposite order: what two of them race for shows.
 */
#ifndef HV_TESTS_CUDA_STAND_IN_H
#define HV_TESTS_CUDA_STAND_IN_H

#include "cuda/hv_cuda.h"
#include "cuda/world.h"
#include "lib/check.h"

typedef struct stand_in {
  hv_cuda cuda;
  hv_mem mem;    /* every block, stream and event of the "device" and every pinned block */
  size_t pinned; /* bytes of pinned memory held now */
  size_t pinned_peak;
  int backwards;
  int eager;    /* 1: nothing waits on a stream */
  int restless; /* 1: streams go on at random whenever something is asked */
  long calls;   /* made so far */
  long fail_at; /* the call with this number fails with fail_with; -1: none */
  hv_status fail_with;
  int lost;          /* after HV_IO everything fails, as on a lost device */
  uint64_t launches; /* done or queued */
  int reordered;     /* a wait that nothing recorded could ever end: broken test or broken code */
  check_rng rng;
  struct stand_in_stream *streams;
} stand_in;

void stand_in_init(stand_in *s, uint32_t processors);
/* It runs so many blocks of each kernel at a time. */
void stand_in_holds(stand_in *s, uint32_t blocks);
/* Everything must have been given back: fails the test otherwise. */
void stand_in_fini(stand_in *s);

/* As a library for tests in Python (hv_cuda_world_open is in it): a GPU with this number or a higher one is lost at the call that
 * is as many further. */
#define STAND_IN_FAILS 1000

/* Runs a kernel at once. */
void stand_in_kernel(cu_kernel kernel, uint32_t blocks, const void *args, int backwards);

/* A stream of the test's own, and the end of all that is on it. */
void *stand_in_stream_new(stand_in *s);
void stand_in_run(stand_in *s, void *stream);
void stand_in_stream_free(stand_in *s, void *stream);

#endif
