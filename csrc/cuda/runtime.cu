#include "cuda/launch.cuh"

#include <cudaTypedefs.h>

extern "C" {
#include "cuda/world.h"
}

/* The world of world.h as the CUDA runtime has it, and the library's one exported symbol. hv_cuda.h, which is C, is known to
 * api.c; here is what C cannot say. */

static hv_status told(cudaError_t code, const char *what, hv_error *err) {
  if (code == cudaSuccess)
    return HV_OK;
  cudaGetLastError(); /* an error that does not stay is not to be met again */
  hv_status status = code == cudaErrorMemoryAllocation ? HV_NOMEM : code == cudaErrorInvalidValue ? HV_INVALID : HV_IO;
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

/* The device for the calling thread, for a while: its context on top of the thread's own. cudaSetDevice and back would open a
 * context on GPU 0, some hundred megabytes there, in every process whose threads have none yet. */
struct on_device {
  int on;
  explicit on_device(void *self) : on(known().push((CUcontext)self) == CUDA_SUCCESS) {}
  ~on_device() {
    CUcontext mine;
    if (on)
      known().pop(&mine);
  }
};

static hv_status launch(void *self, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err) {
  on_device here(self);
  if (kernel <= CU_K_JUDGE)
    cu_launch_chunk(kernel, blocks, args, (cudaStream_t)stream);
  else if (kernel == CU_K_DECODE || kernel == CU_K_ADD || kernel >= CU_K_FINITE)
    cu_launch_decode(kernel, blocks, args, (cudaStream_t)stream);
  else if (kernel <= CU_K_ENCODE_LINEAR)
    cu_launch_encode(kernel, blocks, args, (cudaStream_t)stream);
  else
    cu_launch_quantile(kernel, blocks, args, (cudaStream_t)stream);
  return told(cudaGetLastError(), "starting a kernel", err);
}

static hv_status device_take(void *self, size_t bytes, void **out, hv_error *err) {
  on_device here(self);
  return told(cudaMalloc(out, bytes), "taking memory", err);
}
static void device_free(void *self, void *memory) {
  on_device here(self);
  cudaFree(memory);
}
static hv_status pinned_take(void *self, size_t bytes, void **out, hv_error *err) {
  on_device here(self);
  return told(cudaHostAlloc(out, bytes, cudaHostAllocDefault), "taking page-locked memory", err);
}
static void pinned_free(void *self, void *memory) {
  on_device here(self);
  if (memory)
    cudaFreeHost(memory);
}
static hv_status copy(void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err) {
  on_device here(self);
  return told(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream), "copying", err);
}
static hv_status stream_new(void *self, void **out, hv_error *err) {
  on_device here(self);
  return told(cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking), "making a stream", err);
}
static void stream_free(void *self, void *stream) {
  on_device here(self);
  cudaStreamDestroy((cudaStream_t)stream);
}
static hv_status event_new(void *self, void **out, hv_error *err) {
  on_device here(self);
  return told(cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDisableTiming | cudaEventBlockingSync), "making an event", err);
}
static void event_free(void *self, void *event) {
  on_device here(self);
  if (event)
    cudaEventDestroy((cudaEvent_t)event);
}
static hv_status record(void *self, void *event, void *stream, hv_error *err) {
  on_device here(self);
  return told(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "recording an event", err);
}
static hv_status follow(void *self, void *stream, void *event, hv_error *err) {
  on_device here(self);
  return told(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0), "waiting in a stream", err);
}
static hv_status wait_for(void *self, void *event, hv_error *err) {
  on_device here(self);
  return told(cudaEventSynchronize((cudaEvent_t)event), "waiting", err);
}

extern "C" hv_status hv_cuda_world_open(int index, hv_cuda_world *out, hv_error *err) {
  int n = 0, processors = 0, major = 0, minor = 0;
  cudaError_t code = cudaGetDeviceCount(&n);
  cudaGetLastError();
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
  return HV_OK;
}
