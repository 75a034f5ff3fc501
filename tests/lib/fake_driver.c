#include "lib/fake_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "lib/cuda_stand_in.h"

enum { INVALID_CONTEXT = 201, NOT_SUPPORTED = 801, DEPTH = 16, IMAGE_MOST = 1 << 26 };
/* Each function under the name and with the parameters that the library knows it by. */
#define DECLARED(field, name, parameters) __attribute__((visibility("default"))) int fake_##field parameters __asm__(name);
HV_CUDA_DRIVER(DECLARED)

/* ---- what was called, and what fails ---- */

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static struct {
  const char *name;
  long n;
} calls[64];

static long count(const char *name, long more) {
  long n = 0;
  pthread_mutex_lock(&door);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (!calls[i].name || !strcmp(calls[i].name, name)) {
      calls[i].name = more ? name : calls[i].name;
      n = calls[i].n += more;
      break;
    }
  pthread_mutex_unlock(&door);
  return n;
}
long fake_cuda_calls(const char *name) {
  return count(name, 0);
}

static int number(const char *name, int usual) {
  const char *said = getenv(name);
  return said ? atoi(said) : usual;
}

/* The code that this call gives before it does anything. */
static int called(const char *name) {
  char which[64];
  int code = 0;
  long from = 1, n = count(name, 1);
  const char *fail = getenv("FAKE_CUDA_FAIL");
  int fails = fail && sscanf(fail, "%63[^:]:%d:%ld", which, &code, &from) >= 2 && !strcmp(which, name) && n >= from;
  return fails ? code : HV_CU_OK;
}

/* ---- contexts: each device has one ---- */

static _Thread_local int stack[DEPTH], depth;
static int retained[8];

int fake_cuda_depth(void) {
  return depth;
}
/* Of a call that needs one. */
static int here(const char *name) {
  int code = called(name);
  return code != HV_CU_OK ? code : depth ? HV_CU_OK : INVALID_CONTEXT;
}

/* NVRTC looks for the driver's own cache of compiled kernels by this: there is none. */
__attribute__((visibility("default"))) int cuGetExportTable(const void **out, const void *id);
int cuGetExportTable(const void **out, const void *id) {
  (void)out, (void)id;
  return NOT_SUPPORTED;
}

int fake_init(unsigned flags) {
  (void)flags;
  return called("cuInit");
}
int fake_version(int *out) {
  *out = number("FAKE_CUDA_VERSION", 12040);
  return called("cuDriverGetVersion");
}
int fake_error_text(int code, const char **out) {
  *out = code == INVALID_CONTEXT ? "invalid device context" : code == HV_CU_NO_MEMORY ? "out of memory" : "as the test wanted it";
  return HV_CU_OK;
}
int fake_device_count(int *out) {
  *out = number("FAKE_CUDA_DEVICES", 1);
  return called("cuDeviceGetCount");
}
int fake_device(int *out, int index) {
  *out = index + 10; /* a device is no index */
  return called("cuDeviceGet");
}
int fake_attribute(int *out, int attribute, int device) {
  int capability = number("FAKE_CUDA_CAPABILITY", 90);
  *out = attribute == HV_CU_PROCESSORS ? 2
         : attribute == HV_CU_MAJOR    ? capability / 10
         : attribute == HV_CU_MINOR    ? capability % 10
                                       : -1;
  return device < 10 || *out < 0 ? HV_CU_INVALID : called("cuDeviceGetAttribute");
}
int fake_retain(void **out, int device) {
  int code = called("cuDevicePrimaryCtxRetain");
  if (code == HV_CU_OK)
    retained[device - 10]++, *out = &retained[device - 10];
  return code;
}
int fake_release(int device) {
  retained[device - 10]--;
  return called("cuDevicePrimaryCtxRelease_v2");
}
int fake_push(void *context) {
  int code = called("cuCtxPushCurrent_v2"), index = (int)((int *)context - retained);
  if (code == HV_CU_OK && (depth == DEPTH || index < 0 || index > 7 || !retained[index]))
    code = INVALID_CONTEXT;
  if (code == HV_CU_OK)
    stack[depth++] = index;
  return code;
}
int fake_pop(void **out) {
  if (!depth)
    return INVALID_CONTEXT;
  *out = &retained[stack[--depth]];
  return called("cuCtxPopCurrent_v2");
}

/* ---- modules: a kernel's handle is its number and one ---- */

static const char *const kernels[] = FAKE_KERNELS;
_Static_assert(sizeof kernels / sizeof *kernels == CU_KERNELS, "each kernel has its name");

/* The size of an ELF file of the machine CUDA, by its table of sections, or of PTX; 0: neither. */
static size_t size_of(const char *image) {
  uint64_t sections;
  uint16_t machine, size, n;
  if (strstr(image, ".version") && strstr(image, ".target sm_"))
    return strlen(image);
  memcpy(&machine, image + 18, 2), memcpy(&sections, image + 40, 8), memcpy(&size, image + 58, 2), memcpy(&n, image + 60, 2);
  return memcmp(image,
                "\x7f"
                "ELF\x02",
                5) ||
                 machine != 190
             ? 0
             : (size_t)sections + (size_t)size * n;
}

int fake_module_load(void **out, const void *image) {
  int code = here("cuModuleLoadData");
  size_t size = code == HV_CU_OK ? size_of(image) : 0;
  if (code != HV_CU_OK || !size || size > IMAGE_MOST)
    return code != HV_CU_OK ? code : HV_CU_BAD_IMAGE;
  size_t *module = malloc(sizeof size + size); /* the driver copies it */
  if (!module)
    return HV_CU_NO_MEMORY;
  *module = size;
  memcpy(module + 1, image, size);
  *out = module;
  return HV_CU_OK;
}
int fake_module_unload(void *module) {
  free(module);
  return here("cuModuleUnload");
}
int fake_function(void **out, void *module, const char *name) {
  int code = here("cuModuleGetFunction");
  char section[80];
  int n = snprintf(section, sizeof section, ".text.%s", name);
  const char *text = (const char *)((size_t *)module + 1);
  if (strncmp(text,
              "\x7f"
              "ELF",
              4))
    n = snprintf(section, sizeof section, ".entry %s(", name);
  if (code == HV_CU_OK && !memmem(text, *(size_t *)module, section, (size_t)n))
    code = HV_CU_NOT_FOUND;
  for (uintptr_t i = 0; code == HV_CU_OK && i < CU_KERNELS; i++)
    if (!strcmp(kernels[i], name)) {
      *out = (void *)(i + 1);
      return HV_CU_OK;
    }
  return code == HV_CU_OK ? HV_CU_NOT_FOUND : code;
}
int fake_holds(int *out, void *function, int threads, size_t shared) {
  int code = here("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *out = function && threads == CU_THREADS && !shared ? 8 : 0;
  return code;
}
int fake_launch(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y, unsigned threads_z,
                unsigned shared, void *stream, void **parameters, void **extra) {
  int code = here("cuLaunchKernel");
  uintptr_t kernel = (uintptr_t)function;
  if (code == HV_CU_OK && (!kernel || kernel > CU_KERNELS || !x || y != 1 || z != 1 || threads != CU_THREADS || threads_y != 1 ||
                           threads_z != 1 || shared || extra || (uintptr_t)stream == 77))
    code = HV_CU_INVALID;
  if (code == HV_CU_OK) {
    pthread_mutex_lock(&door);
    stand_in_kernel((cu_kernel)(kernel - 1), x, parameters[0], 0);
    pthread_mutex_unlock(&door);
  }
  return code;
}

/* ---- memory, streams, events: all is done at once ---- */

int fake_take(hv_cu_pointer *out, size_t bytes) {
  int code = here("cuMemAlloc_v2");
  if (code == HV_CU_OK)
    *out = (hv_cu_pointer)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return code;
}
int fake_give(hv_cu_pointer memory) {
  free((void *)(uintptr_t)memory);
  return here("cuMemFree_v2");
}
int fake_pinned_take(void **out, size_t bytes, unsigned flags) {
  int code = here("cuMemHostAlloc");
  if (code == HV_CU_OK)
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return flags ? HV_CU_INVALID : code;
}
int fake_pinned_give(void *memory) {
  free(memory);
  return here("cuMemFreeHost");
}
int fake_copy(hv_cu_pointer to, hv_cu_pointer from, size_t bytes, void *stream) {
  int code = here("cuMemcpyAsync");
  (void)stream;
  if (code == HV_CU_OK)
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
  return code;
}
static int made(const char *name, void **out, int fits) {
  int code = here(name);
  if (code == HV_CU_OK)
    *out = malloc(1);
  return fits ? code : HV_CU_INVALID;
}
static int unmade(const char *name, void *what) {
  free(what);
  return here(name);
}
int fake_stream_new(void **out, unsigned flags) {
  return made("cuStreamCreate", out, flags == HV_CU_NON_BLOCKING);
}
int fake_stream_free(void *stream) {
  return unmade("cuStreamDestroy_v2", stream);
}
int fake_follow(void *stream, void *event, unsigned flags) {
  (void)stream;
  return event && !flags ? here("cuStreamWaitEvent") : HV_CU_INVALID;
}
int fake_event_new(void **out, unsigned flags) {
  return made("cuEventCreate", out, flags == HV_CU_EVENT_FLAGS);
}
int fake_event_free(void *event) {
  return unmade("cuEventDestroy_v2", event);
}
int fake_record(void *event, void *stream) {
  (void)stream;
  return event ? here("cuEventRecord") : HV_CU_INVALID;
}
int fake_query(void *event) {
  static int asked;
  int code = event ? here("cuEventQuery") : HV_CU_INVALID;
  return code == HV_CU_OK && __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED) % 3 ? HV_CU_NOT_READY : code;
}
int fake_wait(void *event) {
  return event ? here("cuEventSynchronize") : HV_CU_INVALID;
}
