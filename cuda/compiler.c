#include "cuda/compiler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define ARCHS_MOST 64

/* The functions of NVRTC that are called; all return 0 when it went well. */
typedef struct nvrtc {
  int (*version)(int *major, int *minor);
  int (*n_archs)(int *out);
  int (*archs)(int *out);
  int (*create)(void **program, const char *source, const char *name, int n_headers, const char *const *headers,
                const char *const *names);
  int (*destroy)(void **program);
  int (*compile)(void *program, int n, const char *const *options);
  int (*log_size)(void *program, size_t *out);
  int (*log)(void *program, char *out);
  int (*machine_size)(void *program, size_t *out);
  int (*machine)(void *program, char *out);
  int (*ptx_size)(void *program, size_t *out);
  int (*ptx)(void *program, char *out);
} nvrtc;

static int find_all(void *library, nvrtc *out) {
  static const struct {
    size_t at;
    const char *name;
  } names[] = {
      {offsetof(nvrtc, version), "nvrtcVersion"},
      {offsetof(nvrtc, n_archs), "nvrtcGetNumSupportedArchs"},
      {offsetof(nvrtc, archs), "nvrtcGetSupportedArchs"},
      {offsetof(nvrtc, create), "nvrtcCreateProgram"},
      {offsetof(nvrtc, destroy), "nvrtcDestroyProgram"},
      {offsetof(nvrtc, compile), "nvrtcCompileProgram"},
      {offsetof(nvrtc, log_size), "nvrtcGetProgramLogSize"},
      {offsetof(nvrtc, log), "nvrtcGetProgramLog"},
      {offsetof(nvrtc, machine_size), "nvrtcGetCUBINSize"},
      {offsetof(nvrtc, machine), "nvrtcGetCUBIN"},
      {offsetof(nvrtc, ptx_size), "nvrtcGetPTXSize"},
      {offsetof(nvrtc, ptx), "nvrtcGetPTX"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *found = dlsym(library, names[i].name);
    if (!found)
      return -1;
    memcpy((char *)out + names[i].at, &found, sizeof found);
  }
  return 0;
}

/* ---- for which GPU ---- */

typedef struct goal {
  int arch;
  int machine; /* 1: machine code; 0: PTX */
} goal;

/* The code that this NVRTC can make for a GPU: code for it; for an older one of its generation, which it runs too; PTX for an older
 * one. An arch of 0: nothing. */
static goal goal_of(const nvrtc *rtc, int arch) {
  int archs[ARCHS_MOST], n = 0;
  goal best = {0, 0};
  if (rtc->n_archs(&n) || n < 0 || n > ARCHS_MOST || rtc->archs(archs))
    return best;
  for (int i = 0; i < n; i++)
    if (archs[i] <= arch && archs[i] > best.arch)
      best = (goal){archs[i], archs[i] / 10 == arch / 10};
  return best;
}

/* ---- one compiler ---- */

static hv_status take(const nvrtc *rtc, void *program, int machine, hv_mem *mem, char **out, size_t *size, hv_error *err) {
  if ((machine ? rtc->machine_size : rtc->ptx_size)(program, size) || !*size)
    return hv_fail(err, HV_INTERNAL, "NVRTC made no code of the kernels");
  *out = hv_mem_alloc(mem, *size);
  if (!*out)
    return hv_fail(err, HV_NOMEM, "no memory for the kernels' code");
  if ((machine ? rtc->machine : rtc->ptx)(program, *out)) {
    hv_mem_free(*out);
    return hv_fail(err, HV_INTERNAL, "NVRTC gave no code of the kernels");
  }
  return HV_OK;
}

static void first_words(const nvrtc *rtc, void *program, hv_mem *mem, char *out, size_t room) {
  size_t size = 0;
  char *log = !rtc->log_size(program, &size) && size ? hv_mem_zalloc(mem, size + 1) : NULL;
  if (log && !rtc->log(program, log))
    snprintf(out, room, "%.*s", (int)strcspn(log, "\n"), log);
  hv_mem_free(log);
}

static hv_status compile(const nvrtc *rtc, goal to, hv_mem *mem, char **out, size_t *size, hv_error *err) {
  char arch[32], words[300] = "it says nothing";
  void *program = NULL;
  snprintf(arch, sizeof arch, "--gpu-architecture=%s_%d", to.machine ? "sm" : "compute", to.arch);
  const char *options[] = {arch, HV_CUDA_FLAGS};
  if (rtc->create(&program, hv_cuda_text, "kernels.cu", 0, NULL, NULL))
    return hv_fail(err, HV_INTERNAL, "NVRTC did not take the kernels' source");
  int code = rtc->compile(program, sizeof options / sizeof *options, options);
  hv_status status = HV_OK;
  if (code) {
    first_words(rtc, program, mem, words, sizeof words);
    status = hv_fail(err, HV_INTERNAL, "NVRTC could not compile the kernels (error %d): %s", code, words);
  } else {
    status = take(rtc, program, to.machine, mem, out, size, err);
  }
  rtc->destroy(&program);
  return status;
}

/* NVRTC looks for its other half by name. NVIDIA's packages for CUDA 13 do not say that it lies beside it, so it is loaded from
 * there; where it is not, the loader may find it elsewhere. */
static void load_builtins(const char *path, int major, int minor) {
  char beside[4096];
  const char *slash = strrchr(path, '/');
  int n = slash ? snprintf(beside, sizeof beside, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - path), path, major, minor) : -1;
  if (n > 0 && n < (int)sizeof beside)
    dlopen(beside, RTLD_NOW | RTLD_LOCAL);
}

static hv_status compile_by(const char *path, int arch, int driver_version, hv_mem *mem, char **out, size_t *size, hv_error *err) {
  int major = 0, minor = 0;
  nvrtc rtc;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return hv_fail(err, HV_NOT_FOUND, "%s", dlerror());
  if (find_all(library, &rtc) || rtc.version(&major, &minor) || 1000 * major + 10 * minor < HV_CUDA_OLDEST_COMPILER)
    return hv_fail(err, HV_NOT_FOUND, "%s is older than NVRTC 12.1", path);
  if (major > driver_version / 1000)
    return hv_fail(err, HV_NOT_FOUND, "%s is of CUDA %d and the driver of CUDA %d", path, major, driver_version / 1000);
  load_builtins(path, major, minor);
  goal to = goal_of(&rtc, arch);
  if (!to.arch)
    return hv_fail(err, HV_UNSUPPORTED, "%s makes no code for compute capability %d.%d", path, arch / 10, arch % 10);
  return compile(&rtc, to, mem, out, size, err);
}

/* ---- all of them ---- */

hv_status hv_cuda_compile(const hv_cuda_kit *kit, int arch, int driver_version, hv_mem *mem, char **out, size_t *size,
                          hv_error *err) {
  char told[700] = "none was found";
  size_t used = 0;
  hv_status worst = HV_NOT_FOUND;
  for (size_t i = 0; i < kit->n_compilers; i++) {
    hv_error why = {0};
    hv_status status = compile_by(kit->compilers[i], arch, driver_version, mem, out, size, &why);
    if (status != HV_NOT_FOUND && status != HV_UNSUPPORTED) {
      if (status != HV_OK)
        hv_fail(err, status, "%s", why.text);
      return status;
    }
    worst = status == HV_UNSUPPORTED ? status : worst;
    int n = snprintf(told + used, sizeof told - used, "%s%s", used ? "; " : "", why.text);
    used += n > 0 && used + (size_t)n < sizeof told ? (size_t)n : 0;
  }
  if (worst == HV_UNSUPPORTED)
    return hv_fail(err, worst, "the kernels cannot be compiled for this GPU: %s; install a torch that is built for it", told);
  return hv_fail(
      err, worst,
      "the kernels cannot be compiled: no NVRTC can be used (%s); run pip install nvidia-cuda-nvrtc-cu%s, as torch's CUDA "
      "builds do",
      told, driver_version >= 13000 ? "12, or nvidia-cuda-nvrtc for CUDA 13" : "12");
}
