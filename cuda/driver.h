/* The functions of NVIDIA's driver that are called, as declarations of our own, found when a GPU is opened.
 *
 * Room: cuda (uses base). The driver's C interface has not changed for these names since CUDA 11, so neither its headers nor its
 * library is needed to build. HV_CUDA_DRIVER lists the 28 functions of libcuda.so.1; each is looked up by its name in that list.
 * Limits: the oldest driver is 530, that of CUDA 12.1. An older one accepts at most 4 KB of parameters for a launch, and launches
 * here have up to 32 KB.
 * Owner: the library, once loaded, stays loaded until the process ends.
 * Thread: any.
 */
#ifndef HV_CUDA_DRIVER_H
#define HV_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define HV_CUDA_OLDEST_DRIVER 12010 /* as cuDriverGetVersion counts: CUDA 12.1 */
#define HV_CUDA_OLDEST_NAME "530"   /* the number that nvidia-smi shows for it */

/* Results of the functions. */
enum {
  HV_CU_OK = 0,
  HV_CU_INVALID = 1,
  HV_CU_NO_MEMORY = 2,
  HV_CU_NO_DEVICE = 100,
  HV_CU_BAD_IMAGE = 200,     /* the loaded bytes are no code */
  HV_CU_NO_IMAGE = 209,      /* the code is for another kind of GPU */
  HV_CU_BAD_PTX = 218,       /* the PTX does not compile */
  HV_CU_NEWER_PTX = 222,     /* the PTX is newer than the driver */
  HV_CU_NOT_FOUND = 500,     /* the loaded code has no kernel of that name */
  HV_CU_NOT_READY = 600,     /* an event: the work queued before it is not done yet */
  HV_CU_CAPTURE_FIRST = 900, /* 900 to 908: the stream refuses the call because a graph is being captured */
  HV_CU_CAPTURE_LAST = 908,
};
/* Attributes of a device. */
enum { HV_CU_PROCESSORS = 16, HV_CU_MAJOR = 75, HV_CU_MINOR = 76 };
/* Flags. NON_BLOCKING: a stream that does not synchronise with the legacy default stream. EVENT_FLAGS: a thread that waits for the
 * event sleeps and does not spin (1), and the event records no time (2). */
enum { HV_CU_NON_BLOCKING = 1, HV_CU_EVENT_FLAGS = 1 | 2 };

typedef uint64_t hv_cu_pointer; /* into the device's memory; with unified addresses, into the host's too */

/* X(field, name in the library, parameters) */
#define HV_CUDA_DRIVER(X)                                                                                                          \
  X(init, "cuInit", (unsigned flags))                                                                                              \
  X(version, "cuDriverGetVersion", (int *out))                                                                                     \
  X(error_text, "cuGetErrorString", (int code, const char **out))                                                                  \
  X(device_count, "cuDeviceGetCount", (int *out))                                                                                  \
  X(device, "cuDeviceGet", (int *out, int index))                                                                                  \
  X(attribute, "cuDeviceGetAttribute", (int *out, int attribute, int device))                                                      \
  X(retain, "cuDevicePrimaryCtxRetain", (void **out, int device))                                                                  \
  X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                                         \
  X(push, "cuCtxPushCurrent_v2", (void *context))                                                                                  \
  X(pop, "cuCtxPopCurrent_v2", (void **out))                                                                                       \
  X(module_load, "cuModuleLoadData", (void **out, const void *image))                                                              \
  X(module_unload, "cuModuleUnload", (void *module))                                                                               \
  X(function, "cuModuleGetFunction", (void **out, void *module, const char *name))                                                 \
  X(holds, "cuOccupancyMaxActiveBlocksPerMultiprocessor", (int *out, void *function, int threads, size_t shared))                  \
  X(launch, "cuLaunchKernel",                                                                                                      \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,      \
     unsigned shared, void *stream, void **parameters, void **extra))                                                              \
  X(take, "cuMemAlloc_v2", (hv_cu_pointer * out, size_t bytes))                                                                    \
  X(give, "cuMemFree_v2", (hv_cu_pointer memory))                                                                                  \
  X(pinned_take, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))                                                     \
  X(pinned_give, "cuMemFreeHost", (void *memory))                                                                                  \
  X(copy, "cuMemcpyAsync", (hv_cu_pointer to, hv_cu_pointer from, size_t bytes, void *stream))                                     \
  X(stream_new, "cuStreamCreate", (void **out, unsigned flags))                                                                    \
  X(stream_free, "cuStreamDestroy_v2", (void *stream))                                                                             \
  X(follow, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))                                                      \
  X(event_new, "cuEventCreate", (void **out, unsigned flags))                                                                      \
  X(event_free, "cuEventDestroy_v2", (void *event))                                                                                \
  X(record, "cuEventRecord", (void *event, void *stream))                                                                          \
  X(query, "cuEventQuery", (void *event))                                                                                          \
  X(wait, "cuEventSynchronize", (void *event))

typedef struct hv_cuda_driver {
#define HV_CUDA_FIELD(field, name, parameters) int(*field) parameters;
  HV_CUDA_DRIVER(HV_CUDA_FIELD)
#undef HV_CUDA_FIELD
} hv_cuda_driver;

/* Loads the driver and starts it. HV_NOT_FOUND: there is none, or no GPU; HV_UNSUPPORTED: it is older than the lowest. */
hv_status hv_cuda_driver_load(hv_cuda_driver *out, hv_error *err);

/* The driver's own words for a code. Never NULL. */
const char *hv_cuda_driver_words(const hv_cuda_driver *driver, int code);

#endif
