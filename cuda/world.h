/* The few calls of CUDA as a table, filled twice: by runtime.c over the driver, and by a stand-in on the host.
 *
 * Room: cuda (uses base, kernel). codec.c and stage.c are plain C over this table, and are tested on it without a GPU, errors
 * included (tests/lib/cuda_stand_in.c). Every call is asynchronous but `wait` and those that allocate; none synchronises the
 * device. Errors are HV_NOMEM, HV_INVALID or HV_IO with the driver's words in err (may be NULL).
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
  uint32_t holds[CU_KERNELS]; /* blocks of each kernel that the device runs at a time */
  /* args: a cu_gather for CU_K_GATHER, a cu_args for the others; copied before this returns. */
  hv_status (*launch)(void *self, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err);
  /* Memory of the device, and page-locked memory of the host; freed whatever state the device is in. NULL is fine to free. */
  hv_status (*device_take)(void *self, size_t bytes, void **out, hv_error *err);
  void (*device_free)(void *self, void *memory);
  hv_status (*pinned_take)(void *self, size_t bytes, void **out, hv_error *err);
  void (*pinned_free)(void *self, void *memory);
  /* One side is the device's, the other pinned. */
  hv_status (*copy)(void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err);
  hv_status (*stream_new)(void *self, void **out, hv_error *err);
  void (*stream_free)(void *self, void *stream);
  hv_status (*event_new)(void *self, void **out, hv_error *err);
  void (*event_free)(void *self, void *event);
  hv_status (*record)(void *self, void *event, void *stream, hv_error *err);
  hv_status (*follow)(void *self, void *stream, void *event,
                      hv_error *err);                        /* what comes on stream waits for the event's last record */
  hv_status (*wait)(void *self, void *event, hv_error *err); /* this thread waits for it; never recorded: at once */
  void (*close)(void *self);                                 /* the kernels stay loaded: work that is queued may still want them */
} hv_cuda_world;

/* DLPack's number for the memory that this world's kernels reach; a stand-in's library is compiled with 1, the CPU's. */
#ifndef HV_CUDA_DEVICE_TYPE
#define HV_CUDA_DEVICE_TYPE 2
#endif

/* runtime.c: the world of GPU number `index`; as `open` in hv_cuda_api has it. What it takes from mem goes with close. */
hv_status hv_cuda_world_open(int index, const hv_cuda_kit *kit, hv_mem *mem, hv_cuda_world *out, hv_error *note, hv_error *err);

/* One device, as hv_cuda.h's functions get it. */
struct hv_cuda {
  hv_cuda_world world;
};

#endif
