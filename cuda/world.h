/* The few operations of a GPU that the CUDA part needs, as a table of functions.
 *
 * Room: cuda (uses base, kernel). runtime.c fills the table with the driver's functions, and tests/lib/cuda_stand_in.c with
 * functions that run on the host. codec.c, stage.c and transfers.c use only this table, so tests run them without a GPU, errors
 * included.
 * Owner: each memory, stream and event that a function makes is the caller's, which gives it back to the matching _free.
 * Thread: any. Each function but `wait` and those that allocate returns before the work is done; none synchronises the device.
 * Errors: HV_NOMEM, HV_INVALID or HV_IO, with the driver's text in err, which may be NULL.
 */
#ifndef HV_CUDA_WORLD_H
#define HV_CUDA_WORLD_H

#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"
#include "cuda/hv_cuda.h"
#include "cuda/kernel.h"

typedef struct hv_cuda_world {
  void *self;
  uint32_t holds[CU_KERNELS]; /* number of blocks of each kernel that the device runs at a time */
  /* Queues a kernel. args: a cu_gather for CU_K_GATHER, a cu_args for the others; copied before this returns. */
  hv_status (*launch)(void *self, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err);
  /* Allocate and free memory of the device (device_) and page-locked memory of the host (pinned_). The _free functions also work on
   * a device that has failed, and accept NULL. */
  hv_status (*device_take)(void *self, size_t bytes, void **out, hv_error *err);
  void (*device_free)(void *self, void *memory);
  hv_status (*pinned_take)(void *self, size_t bytes, void **out, hv_error *err);
  void (*pinned_free)(void *self, void *memory);
  /* Queues a copy between memory of the device and pinned memory, in either direction. */
  hv_status (*copy)(void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err);
  hv_status (*stream_new)(void *self, void **out, hv_error *err);
  void (*stream_free)(void *self, void *stream);
  hv_status (*event_new)(void *self, void **out, hv_error *err);
  void (*event_free)(void *self, void *event);
  hv_status (*record)(void *self, void *event, void *stream, hv_error *err);
  /* Makes the work queued on `stream` from now on wait until the device has reached the event's last record. */
  hv_status (*follow)(void *self, void *stream, void *event, hv_error *err);
  /* The calling thread waits until the device has reached the event's last record; returns at once if there is none. */
  hv_status (*wait)(void *self, void *event, hv_error *err);
  /* Frees self. The kernels stay loaded, because queued work may still need them. */
  void (*close)(void *self);
} hv_cuda_world;

/* The DLPack device type of the memory that the kernels use: 2 is CUDA. The stand-in for tests is compiled with 1, the CPU. */
#ifndef HV_CUDA_DEVICE_TYPE
#define HV_CUDA_DEVICE_TYPE 2
#endif

/* runtime.c: opens GPU number `index` and fills *out. kit: the compilers of the kernels, and the folder in which compiled kernels
 * are kept (hv_cuda.h). note, which may be NULL: gets a sentence if the kernels were compiled; its status is not HV_OK if they
 * could not be kept. The errors are those of `open` in hv_cuda_api. `close` frees the memory that this function takes from mem. */
hv_status hv_cuda_world_open(int index, const hv_cuda_kit *kit, hv_mem *mem, hv_cuda_world *out, hv_error *note, hv_error *err);

/* One device: the first argument of the functions in hv_cuda.h. */
struct hv_cuda {
  hv_cuda_world world;
};

#endif
