#include "cuda/compiler.h"
#include "cuda/driver.h"
#include "cuda/keep.h"
#include "cuda/world.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The world of world.h as the driver has it. */

typedef struct gpu {
  hv_cuda_driver call;
  void *context; /* the device's primary one, which is torch's own too */
  uint32_t processors;
  void *kernels[CU_KERNELS];
  uint32_t holds[CU_KERNELS];
} gpu;

/* As kernels.cu names them. */
static const char *const names[CU_KERNELS] = {
    [CU_K_BEGIN] = "hv_begin",
    [CU_K_SUM] = "hv_sum",
    [CU_K_SEAL] = "hv_seal",
    [CU_K_JUDGE] = "hv_judge",
    [CU_K_DECODE] = "hv_decode",
    [CU_K_ADD] = "hv_add",
    [CU_K_ENCODE_PLAIN] = "hv_encode_plain",
    [CU_K_ENCODE_SCALED] = "hv_encode_scaled",
    [CU_K_SCALE_ROWS] = "hv_scale_rows",
    [CU_K_ENCODE_ROWS] = "hv_encode_rows",
    [CU_K_MEASURE] = "hv_measure",
    [CU_K_JOIN] = "hv_join",
    [CU_K_PREPARE] = "hv_prepare",
    [CU_K_ENCODE_UNIFORM] = "hv_encode_uniform",
    [CU_K_ENCODE_BLOCKWISE] = "hv_encode_blockwise",
    [CU_K_ENCODE_LINEAR] = "hv_encode_linear",
    [CU_K_RANGE] = "hv_range",
    [CU_K_BOOK] = "hv_book",
    [CU_K_ENCODE_QUANTILE] = "hv_encode_quantile",
    [CU_K_FINITE] = "hv_finite",
    [CU_K_FEED] = "hv_feed",
    [CU_K_GATHER] = "hv_gather",
    [CU_K_WEIGH] = "hv_weigh",
    [CU_K_LIMIT] = "hv_limit",
};

static hv_status told(const gpu *g, int code, const char *what, hv_error *err) {
  if (code == HV_CU_OK)
    return HV_OK;
  int in_capture = code >= HV_CU_CAPTURE_FIRST && code <= HV_CU_CAPTURE_LAST;
  hv_status status = code == HV_CU_NO_MEMORY ? HV_NOMEM : code == HV_CU_INVALID || in_capture ? HV_INVALID : HV_IO;
  return hv_fail(err, status, "%s on the GPU failed: %s", what, hv_cuda_driver_words(&g->call, code));
}

/* Puts the device's context on top of the thread's own, and takes it off again. Without it nothing is done: it would happen on
 * another GPU. */
static hv_status enter(const gpu *g, const char *what, hv_error *err) {
  if (g->call.push(g->context) == HV_CU_OK)
    return HV_OK;
  return hv_fail(err, HV_IO, "%s on the GPU failed: its context is gone", what);
}
static void leave(const gpu *g) {
  void *mine;
  g->call.pop(&mine);
}
/* Does `call` there; gives what it said. */
#define WITHIN(g, what, err, call)                                                                                                 \
  do {                                                                                                                             \
    hv_status status_ = enter(g, what, err);                                                                                       \
    if (status_ == HV_OK) {                                                                                                        \
      status_ = told(g, call, what, err);                                                                                          \
      leave(g);                                                                                                                    \
    }                                                                                                                              \
    return status_;                                                                                                                \
  } while (0)

static hv_cu_pointer pointer(const void *memory) {
  return (hv_cu_pointer)(uintptr_t)memory;
}

static hv_status launch(void *self, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err) {
  const gpu *g = self;
  void *parameters[] = {(void *)(uintptr_t)args};
  WITHIN(g, "starting a kernel", err,
         g->call.launch(g->kernels[kernel], blocks, 1, 1, CU_THREADS, 1, 1, 0, stream, parameters, NULL));
}
static hv_status device_take_at(const gpu *g, size_t bytes, hv_cu_pointer *out, hv_error *err) {
  WITHIN(g, "taking memory", err, g->call.take(out, bytes));
}
static hv_status device_take(void *self, size_t bytes, void **out, hv_error *err) {
  hv_cu_pointer at = 0;
  hv_status status = device_take_at(self, bytes, &at, err);
  *out = (void *)(uintptr_t)at;
  return status;
}
static hv_status pinned_take(void *self, size_t bytes, void **out, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "taking page-locked memory", err, g->call.pinned_take(out, bytes, 0));
}
static hv_status copy(void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "copying", err, g->call.copy(pointer(to), pointer(from), bytes, stream));
}
static hv_status stream_new(void *self, void **out, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "making a stream", err, g->call.stream_new(out, HV_CU_NON_BLOCKING));
}
static hv_status event_new(void *self, void **out, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "making an event", err, g->call.event_new(out, HV_CU_EVENT_FLAGS));
}
static hv_status record(void *self, void *event, void *stream, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "recording an event", err, g->call.record(event, stream));
}
static hv_status follow(void *self, void *stream, void *event, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "waiting in a stream", err, g->call.follow(stream, event, 0));
}
/* A chunk's work takes tens of microseconds, and waking from sleep as many more: the thread asks for a while, letting others run,
 * before it sleeps. */
static int ask_and_sleep(const gpu *g, void *event) {
  enum { ASKS = 64 }; /* of about a microsecond */
  for (int i = 0; i < ASKS; i++) {
    int code = g->call.query(event);
    if (code != HV_CU_NOT_READY)
      return code;
    sched_yield();
  }
  return g->call.wait(event);
}
static hv_status wait_for(void *self, void *event, hv_error *err) {
  const gpu *g = self;
  WITHIN(g, "waiting", err, ask_and_sleep(g, event));
}

static void freed(const gpu *g, int (*how)(void *), void *what) {
  if (what && enter(g, "freeing", NULL) == HV_OK) {
    how(what);
    leave(g);
  }
}
static void device_free(void *self, void *memory) {
  const gpu *g = self;
  if (memory && enter(g, "freeing", NULL) == HV_OK) {
    g->call.give(pointer(memory));
    leave(g);
  }
}
static void pinned_free(void *self, void *memory) {
  const gpu *g = self;
  freed(g, g->call.pinned_give, memory);
}
static void stream_free(void *self, void *stream) {
  const gpu *g = self;
  freed(g, g->call.stream_free, stream);
}
static void event_free(void *self, void *event) {
  const gpu *g = self;
  freed(g, g->call.event_free, event);
}

/* ---- the kernels ---- */

/* Finds a kernel, and how many of its blocks one processor runs at a time. */
static int find(gpu *g, void *module, int kernel) {
  int holds = 0, code = g->call.function(&g->kernels[kernel], module, names[kernel]);
  if (code == HV_CU_OK)
    code = g->call.holds(&holds, g->kernels[kernel], CU_THREADS, 0);
  g->holds[kernel] = g->processors * (uint32_t)(holds > 0 ? holds : 1);
  return code;
}

/* Loads the code and finds each kernel in it; what the driver says. */
static int load(gpu *g, const char *image) {
  void *module = NULL;
  int code = g->call.push(g->context);
  if (code != HV_CU_OK)
    return code;
  code = g->call.module_load(&module, image);
  for (int i = 0; code == HV_CU_OK && i < CU_KERNELS; i++)
    code = find(g, module, i);
  if (code != HV_CU_OK && module)
    g->call.module_unload(module);
  leave(g);
  return code;
}

/* The name of the kept file: of these sources, flags and kind of GPU. */
static void name_of(int arch, char *out, size_t room) {
  static const char *const flags[] = {HV_CUDA_FLAGS};
  uint64_t key = hv_keep_hash(0, hv_cuda_text, hv_cuda_text_size);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    key = hv_keep_hash(key, flags[i], strlen(flags[i]) + 1);
  snprintf(out, room, "sm_%d-%016llx.bin", arch, (unsigned long long)key);
}

/* Code that was kept, unless this driver does not take it: it may have been made for another one. */
static int load_kept(gpu *g, const hv_cuda_kit *kit, const char *name, hv_mem *mem) {
  char *image = NULL;
  size_t size;
  if (!kit->cache || hv_keep_read(kit->cache, name, mem, &image, &size) != HV_OK)
    return 0;
  int code = load(g, image);
  hv_mem_free(image);
  return code == HV_CU_OK;
}

/* It is the code that the driver does not take. */
static int refused(int code) {
  return code == HV_CU_BAD_IMAGE || code == HV_CU_NO_IMAGE || code == HV_CU_BAD_PTX || code == HV_CU_NEWER_PTX ||
         code == HV_CU_NOT_FOUND;
}

/* Keeps what was compiled; the note says how that went. */
static void keep(const hv_cuda_kit *kit, const char *name, const char *image, size_t size, int index, hv_error *note) {
  if (!kit->cache)
    hv_fail(note, HV_OK,
            "the kernels of GPU number %d were compiled, and will be again: set HIVEMIND_CACHE to a folder to keep them", index);
  else if (hv_keep_write(kit->cache, name, image, size, note) == HV_OK)
    hv_fail(note, HV_OK, "the kernels of GPU number %d were compiled, and are kept in '%.600s'", index, kit->cache);
}

static hv_status load_kernels(gpu *g, const hv_cuda_kit *kit, int index, int arch, hv_mem *mem, hv_error *note, hv_error *err) {
  char name[64], *image = NULL;
  size_t size = 0;
  int version = 0;
  name_of(arch, name, sizeof name);
  if (load_kept(g, kit, name, mem))
    return HV_OK;
  int code = g->call.version(&version);
  hv_status status =
      code == HV_CU_OK ? hv_cuda_compile(kit, arch, version, mem, &image, &size, err) : told(g, code, "asking its version", err);
  if (status != HV_OK)
    return status;
  code = load(g, image);
  if (code == HV_CU_OK)
    keep(kit, name, image, size, index, note);
  hv_mem_free(image);
  if (!refused(code))
    return told(g, code, "loading the kernels", err);
  return hv_fail(err, HV_UNSUPPORTED, "GPU number %d does not take the kernels: its driver says \"%s\"; install a newer driver",
                 index, hv_cuda_driver_words(&g->call, code));
}

/* ---- opening ---- */

static void close_world(void *self) {
  hv_mem_free(self);
}

static hv_status look(gpu *g, int index, int *device, int *processors, int *arch, hv_error *err) {
  int n = 0, major = 0, minor = 0, code = g->call.device_count(&n);
  if (code == HV_CU_NO_DEVICE)
    n = 0;
  else if (code != HV_CU_OK)
    return told(g, code, "counting", err);
  if (index < 0 || index >= n)
    return hv_fail(err, HV_NOT_FOUND, "there is no GPU number %d: this process sees %d", index, n);
  code = g->call.device(device, index);
  if (code == HV_CU_OK)
    code = g->call.attribute(processors, HV_CU_PROCESSORS, *device);
  if (code == HV_CU_OK)
    code = g->call.attribute(&major, HV_CU_MAJOR, *device);
  if (code == HV_CU_OK)
    code = g->call.attribute(&minor, HV_CU_MINOR, *device);
  *arch = 10 * major + minor;
  if (code == HV_CU_OK && major < 7)
    return hv_fail(err, HV_UNSUPPORTED, "GPU number %d has compute capability %d.%d, and the kernels need 7.0 or later", index,
                   major, minor);
  return told(g, code, "asking what it is", err);
}

hv_status hv_cuda_world_open(int index, const hv_cuda_kit *kit, hv_mem *mem, hv_cuda_world *out, hv_error *note, hv_error *err) {
  int device = 0, processors = 0, arch = 0;
  gpu *g = hv_mem_zalloc(mem, sizeof *g);
  if (!g)
    return hv_fail(err, HV_NOMEM, "no memory for a GPU's table");
  hv_status status = hv_cuda_driver_load(&g->call, err);
  if (status == HV_OK)
    status = look(g, index, &device, &processors, &arch, err);
  if (status == HV_OK && g->call.retain(&g->context, device) != HV_CU_OK) {
    g->context = NULL;
    status = hv_fail(err, HV_IO,
                     "GPU number %d cannot be opened: it may have no memory left, or be in use by one process alone; look "
                     "at nvidia-smi",
                     index);
  }
  g->processors = (uint32_t)processors;
  if (status == HV_OK)
    status = load_kernels(g, kit, index, arch, mem, note, err);
  if (status != HV_OK) {
    if (g->context)
      g->call.release(device);
    hv_mem_free(g);
    return status;
  }
  *out = (hv_cuda_world){g,          {0},         launch,    device_take, device_free, pinned_take, pinned_free, copy,
                         stream_new, stream_free, event_new, event_free,  record,      follow,      wait_for,    close_world};
  memcpy(out->holds, g->holds, sizeof out->holds);
  return HV_OK;
}
