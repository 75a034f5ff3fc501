// clang-format off
/* A libnvrtc.so for tests: it compiles in no time, to bytes that fake_driver.c takes for code. Environment variables say what
 * it is:
 *   FAKE_NVRTC_VERSION   as cuDriverGetVersion counts (12040)
 *   FAKE_NVRTC_ARCHS     "75 80 90", what it makes code for
 *   FAKE_NVRTC_FAIL      the code that compiling gives; its log is two lines then
 * What it was asked for lies in the code behind the kernels' names: options, one a line. */
// clang-format on
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fake_driver.h"

enum { ARCHS_MOST = 32, CODE_MOST = 4096, HEAD = 64 };
#define CALL __attribute__((visibility("default"))) int

typedef struct program {
  char code[CODE_MOST];
  size_t size;
} program;

static int archs(int *out) {
  const char *said = getenv("FAKE_NVRTC_ARCHS");
  char *at = (char *)(said ? said : "75 80 90");
  int n = 0;
  while (n < ARCHS_MOST && *at)
    out[n++] = (int)strtol(at, &at, 10);
  return n;
}

CALL nvrtcVersion(int *major, int *minor);
CALL nvrtcVersion(int *major, int *minor) {
  const char *said = getenv("FAKE_NVRTC_VERSION");
  int version = said ? atoi(said) : 12040;
  *major = version / 1000, *minor = version % 1000 / 10;
  return 0;
}
CALL nvrtcGetNumSupportedArchs(int *out);
CALL nvrtcGetNumSupportedArchs(int *out) {
  int all[ARCHS_MOST];
  *out = archs(all);
  return 0;
}
CALL nvrtcGetSupportedArchs(int *out);
CALL nvrtcGetSupportedArchs(int *out) {
  archs(out);
  return 0;
}
CALL nvrtcCreateProgram(program **out, const char *source, const char *name, int n, const char **headers, const char **names);
CALL nvrtcCreateProgram(program **out, const char *source, const char *name, int n, const char **headers, const char **names) {
  (void)name, (void)headers, (void)names;
  if (n || !strstr(source, "hv_##name") || strstr(source, "#include \""))
    return 1;
  *out = calloc(1, sizeof **out);
  return 0;
}
CALL nvrtcDestroyProgram(program **out);
CALL nvrtcDestroyProgram(program **out) {
  free(*out);
  return 0;
}

static void put(program *p, const char *before, const char *text, const char *after) {
  int n = snprintf(p->code + p->size, sizeof p->code - p->size, "%s%s%s", before, text, after);
  p->size += (size_t)n;
}
CALL nvrtcCompileProgram(program *p, int n, const char *const *options);
CALL nvrtcCompileProgram(program *p, int n, const char *const *options) {
  static const char *const kernels[] = FAKE_KERNELS;
  const char *fail = getenv("FAKE_NVRTC_FAIL");
  int ptx = n && strstr(options[0], "=compute_");
  if (fail)
    return atoi(fail);
  if (ptx)
    put(p, ".version 8.4\n.target ", "sm_00", "\n");
  else
    p->size = HEAD;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    put(p, ptx ? ".entry " : ".text.", kernels[i], ptx ? "(\n" : "\n");
  for (int i = 0; i < n; i++)
    put(p, "", options[i], "\n");
  if (!ptx) { /* the head of an ELF file of the machine CUDA, whose table of sections is empty and at the end */
    memcpy(p->code,
           "\x7f"
           "ELF\x02",
           5);
    p->code[18] = (char)190;
    memcpy(p->code + 40, &p->size, sizeof p->size);
  }
  return 0;
}

CALL nvrtcGetProgramLogSize(program *p, size_t *out);
CALL nvrtcGetProgramLogSize(program *p, size_t *out) {
  (void)p;
  *out = sizeof "kernels.cu(3): error: no\nmore";
  return 0;
}
CALL nvrtcGetProgramLog(program *p, char *out);
CALL nvrtcGetProgramLog(program *p, char *out) {
  (void)p;
  strcpy(out, "kernels.cu(3): error: no\nmore");
  return 0;
}
CALL nvrtcGetCUBINSize(program *p, size_t *out);
CALL nvrtcGetCUBINSize(program *p, size_t *out) {
  *out = p->size;
  return 0;
}
CALL nvrtcGetCUBIN(program *p, char *out);
CALL nvrtcGetCUBIN(program *p, char *out) {
  memcpy(out, p->code, p->size);
  return 0;
}
CALL nvrtcGetPTXSize(program *p, size_t *out);
CALL nvrtcGetPTXSize(program *p, size_t *out) {
  *out = p->size + 1;
  return 0;
}
CALL nvrtcGetPTX(program *p, char *out);
CALL nvrtcGetPTX(program *p, char *out) {
  memcpy(out, p->code, p->size + 1);
  return 0;
}
