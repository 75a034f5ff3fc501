#include "cuda/launch.cuh"

#include <cudaTypedefs.h>

extern "C" {
#include "cuda/world.h"
}

/* The world of world.h as the CUDA runtime has it, and the library's one exported symbol. hv_cuda.h, which is C, is known to
 * api.c; here is what C cannot say. */

#if CUDART_VERSION < 12040
#error "the kernels need the CUDA toolkit 12.4 or later: a launch carries more than 4 KB of parameters"
#endif
#define OLDEST_DRIVER 12010 /* that takes such launches */

static hv_status told(cudaError_t code, const char *what, hv_error *err) {
  if (code == cudaSuccess)
    return HV_OK;
  cudaGetLastError(); /* an error that does not stay is not to be met again, by the next launch */
  int in_capture = code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
  hv_status status = code == cudaErrorMemoryAllocation             ? HV_NOMEM
                     : code == cudaErrorInvalidValue || in_capture ? HV_INVALID
                                                                   : HV_IO;
  return hv_fail(err, status, "%s on the GPU failed: %s", what, cudaGetErrorString(code));
}

/* What only the driver has. It is asked for by name, so that the library can be loaded, and say why not, where there is none. */
template <typename F> static F driver(const char *name) {
  void *found = NULL;
  cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
#else
  cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
  cudaGetLastError();
  return code == cudaSuccess && how == cudaDriverEntryPointSuccess ? (F)found : NULL;
}
struct contexts {
  PFN_cuDeviceGet_v2000 device;
  PFN_cuDevicePrimaryCtxRetain_v7000 retain;
  PFN_cuCtxPushCurrent_v4000 push;
  PFN_cuCtxPopCurrent_v4000 pop;
};
static const contexts &known(void) {
  static const contexts all = {driver<PFN_cuDeviceGet_v2000>("cuDeviceGet"),
                               driver<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain"),
                               driver<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent"),
                               driver<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent")};
  return all;
}

/* Does something with the device's context on top of the thread's own. cudaSetDevice and back would open a context on GPU 0, some
 * hundred megabytes there, in every process whose threads have none yet. Without the context nothing is done: it would happen on
 * another GPU. */
template <typename F> static hv_status within(void *self, const char *what, hv_error *err, F work) {
  CUcontext mine;
  if (known().push((CUcontext)self) != CUDA_SUCCESS)
    return hv_fail(err, HV_IO, "%s on the GPU failed: its context is gone", what);
  hv_status status = told(work(), what, err);
  known().pop(&mine);
  return status;
}

static hv_status launch(void *self, void *on, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err) {
  cudaStream_t stream = (cudaStream_t)on;
  return within(self, "starting a kernel", err, [=] {
    if (kernel <= CU_K_JUDGE)
      cu_launch_chunk(kernel, blocks, args, stream);
    else if (kernel == CU_K_DECODE || kernel == CU_K_ADD || kernel >= CU_K_FINITE)
      cu_launch_decode(kernel, blocks, args, stream);
    else if (kernel <= CU_K_ENCODE_LINEAR)
      cu_launch_encode(kernel, blocks, args, stream);
    else
      cu_launch_quantile(kernel, blocks, args, stream);
    return cudaGetLastError();
  });
}

static hv_status device_take(void *self, size_t bytes, void **out, hv_error *err) {
  return within(self, "taking memory", err, [=] { return cudaMalloc(out, bytes); });
}
static void device_free(void *self, void *memory) {
  if (memory)
    within(self, "freeing", NULL, [=] { return cudaFree(memory); });
}
static hv_status pinned_take(void *self, size_t bytes, void **out, hv_error *err) {
  return within(self, "taking page-locked memory", err, [=] { return cudaHostAlloc(out, bytes, cudaHostAllocDefault); });
}
static void pinned_free(void *self, void *memory) {
  if (memory)
    within(self, "freeing", NULL, [=] { return cudaFreeHost(memory); });
}
static hv_status copy(void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err) {
  return within(self, "copying", err, [=] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream); });
}
static hv_status stream_new(void *self, void **out, hv_error *err) {
  return within(self, "making a stream", err, [=] { return cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking); });
}
static void stream_free(void *self, void *stream) {
  within(self, "freeing", NULL, [=] { return cudaStreamDestroy((cudaStream_t)stream); });
}
static hv_status event_new(void *self, void **out, hv_error *err) {
  const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
  return within(self, "making an event", err, [=] { return cudaEventCreateWithFlags((cudaEvent_t *)out, flags); });
}
static void event_free(void *self, void *event) {
  if (event)
    within(self, "freeing", NULL, [=] { return cudaEventDestroy((cudaEvent_t)event); });
}
static hv_status record(void *self, void *event, void *stream, hv_error *err) {
  return within(self, "recording an event", err, [=] { return cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream); });
}
static hv_status follow(void *self, void *stream, void *event, hv_error *err) {
  return within(self, "waiting in a stream", err, [=] { return cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0); });
}
static hv_status wait_for(void *self, void *event, hv_error *err) {
  return within(self, "waiting", err, [=] { return cudaEventSynchronize((cudaEvent_t)event); });
}

/* Whether a kernel with the most parameters can be had: machine code for this GPU, or PTX that the driver makes some of. Asked
 * here, so that a GPU which cannot is known by its reason, and not by the first launch that fails. */
static hv_status try_kernels(void *context, int index, hv_error *err) {
  cudaError_t code = cudaSuccess;
  hv_status status = within(context, "loading the kernels", err, [&] { return code = cu_probe_decode(); });
  if (status == HV_OK || status == HV_NOMEM)
    return status;
  return hv_fail(err, HV_UNSUPPORTED, "GPU number %d cannot run the kernels of this library: %s", index,
                 code == cudaSuccess ? "its context is gone" : cudaGetErrorString(code));
}

extern "C" hv_status hv_cuda_world_open(int index, hv_cuda_world *out, hv_error *err) {
  int n = 0, processors = 0, major = 0, minor = 0, driver_for = 0;
  cudaDriverGetVersion(&driver_for); /* 0: there is none */
  cudaError_t code = cudaGetDeviceCount(&n);
  cudaGetLastError();
  if (!driver_for)
    return hv_fail(err, HV_NOT_FOUND, "no GPU can be used: there is no driver for NVIDIA's GPUs here");
  if (code == cudaErrorInsufficientDriver || driver_for < OLDEST_DRIVER)
    return hv_fail(err, HV_UNSUPPORTED,
                   "no GPU can be used: the driver is for CUDA %d.%d, and the kernels were built with CUDA %d.%d: install a newer driver, "
                   "or build them with an older toolkit, 12.4 or later",
                   driver_for / 1000, driver_for % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (code != cudaSuccess)
    return hv_fail(err, HV_NOT_FOUND, "no GPU can be used: %s", cudaGetErrorString(code));
  if (index < 0 || index >= n)
    return hv_fail(err, HV_NOT_FOUND, "there is no GPU number %d: this process sees %d", index, n);
  code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, index);
  if (code == cudaSuccess)
    code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  if (code == cudaSuccess)
    code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
  if (code != cudaSuccess)
    return told(code, "asking what it is", err);
  if (10 * major + minor < CU_OLDEST)
    return hv_fail(err, HV_UNSUPPORTED, "GPU number %d has compute capability %d.%d: the kernels were built for %d.%d and later", index,
                   major, minor, CU_OLDEST / 10, CU_OLDEST % 10);
  CUdevice device;
  CUcontext context; /* torch's own too; it is let go when the process ends */
  const contexts &c = known();
  if (!c.device || !c.retain || !c.push || !c.pop)
    return hv_fail(err, HV_UNSUPPORTED, "the driver of GPU number %d is too old for the kernels: install a newer one", index);
  if (c.device(&device, index) != CUDA_SUCCESS || c.retain(&context, device) != CUDA_SUCCESS)
    return hv_fail(err, HV_IO, "GPU number %d cannot be opened: it may have no memory left, or be in use by one process alone", index);
  *out = hv_cuda_world{(void *)context, (uint32_t)processors, launch, device_take, device_free, pinned_take, pinned_free, copy,
                       stream_new, stream_free, event_new, event_free, record, follow, wait_for};
  return try_kernels(context, index, err);
}
