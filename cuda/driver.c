#include "cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

static hv_status find_all(void *library, hv_cuda_driver *out, hv_error *err) {
  static const struct {
    size_t at;
    const char *name;
  } names[] = {
#define NAMED(field, name, parameters) {offsetof(hv_cuda_driver, field), name},
      HV_CUDA_DRIVER(NAMED)
#undef NAMED
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *found = dlsym(library, names[i].name);
    if (!found)
      return hv_fail(err, HV_UNSUPPORTED,
                     "no GPU can be used: NVIDIA's driver has no %s; install driver " HV_CUDA_OLDEST_NAME " or later",
                     names[i].name);
    memcpy((char *)out + names[i].at, &found, sizeof found);
  }
  return HV_OK;
}

const char *hv_cuda_driver_words(const hv_cuda_driver *driver, int code) {
  const char *words = NULL;
  return driver->error_text(code, &words) == HV_CU_OK && words ? words : "unknown error";
}

hv_status hv_cuda_driver_load(hv_cuda_driver *out, hv_error *err) {
  int version = 0;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return hv_fail(err, HV_NOT_FOUND,
                   "no GPU can be used: there is no driver for NVIDIA's GPUs here (%s); install driver " HV_CUDA_OLDEST_NAME
                   " or later",
                   dlerror());
  hv_status status = find_all(library, out, err);
  if (status != HV_OK)
    return status;
  int code = out->init(0);
  if (code == HV_CU_OK)
    code = out->version(&version);
  if (code != HV_CU_OK)
    return hv_fail(err, HV_NOT_FOUND, "no GPU can be used: NVIDIA's driver says \"%s\"; look at nvidia-smi",
                   hv_cuda_driver_words(out, code));
  if (version < HV_CUDA_OLDEST_DRIVER)
    return hv_fail(err, HV_UNSUPPORTED,
                   "no GPU can be used: the driver is for CUDA %d.%d and takes no kernel with so many parameters; install "
                   "driver " HV_CUDA_OLDEST_NAME " or later",
                   version / 1000, version % 1000 / 10);
  return HV_OK;
}
