#include "kern/cpu.h"

#include "kern/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
static int has_avx2(void) {
  unsigned a, b, c = 0, d;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
}
#endif

const hv_kern *hv_cpu_kern(hv_cpu_level level) {
  if (level == HV_CPU_PORTABLE)
    return &hv_kern_portable;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (level == HV_CPU_AVX2 && has_avx2())
    return &hv_kern_avx2;
  if (level == HV_CPU_AVX512 && has_avx512())
    return &hv_kern_avx512;
#endif
  return NULL;
}

const hv_kern *hv_cpu_best(void) {
  const hv_kern *best = NULL;
  for (int level = HV_CPU_LEVELS - 1; !best; level--)
    best = hv_cpu_kern((hv_cpu_level)level);
  return best;
}

const char *hv_cpu_name(const hv_kern *kern) {
  return kern->name;
}
