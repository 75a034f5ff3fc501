/* Shared by both programs for a GPU: tensors, errors that end the program, time between events. */
#ifndef HV_LADDER_GPU_H
#define HV_LADDER_GPU_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/hv_cuda.h"
#include "kern/reduce.h"

#define MUST(call)                                                                                                                 \
  do {                                                                                                                             \
    cudaError_t code_ = (call);                                                                                                    \
    if (code_ != cudaSuccess)                                                                                                      \
      printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code_)), exit(2);                                               \
  } while (0)
#define FINE(call)                                                                                                                 \
  do {                                                                                                                             \
    err.text[0] = 0;                                                                                                               \
    hv_status status_ = (call);                                                                                                    \
    if (status_ != HV_OK)                                                                                                          \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, hv_status_name(status_), err.text), exit(2);                                   \
  } while (0)

/* NVRTC is where the loader finds it; nothing is kept. */
static const char *const gpu_compilers[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
static const hv_cuda_kit gpu_kit = {gpu_compilers, 2, NULL};

static const hv_dtype gpu_dtypes[] = {HV_DTYPE_FLOAT32, HV_DTYPE_FLOAT16, HV_DTYPE_BFLOAT16};

static inline uint64_t gpu_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9, z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

/* Numbers as gradients have them (kind 0), with long tails (1), mostly zeros (2), tiny (3), any bits (4). */
static inline void gpu_fill(float *x, size_t n, int kind, uint64_t seed) {
  for (size_t i = 0; i < n; i++) {
    double sum = -6, u = (double)(gpu_random(&seed) >> 11) * 0x1p-53;
    for (int k = 0; k < 3; k++) {
      uint64_t r = gpu_random(&seed);
      sum += (double)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) * 0x1p-16;
    }
    uint32_t bits = (uint32_t)gpu_random(&seed);
    x[i] = (float)(kind == 0 ? sum * 1e-3 : kind == 1 ? sum / (u + 1e-4) : kind == 2 ? (u < 0.9 ? 0 : sum) : sum * 1e-40);
    if (kind == 4)
      memcpy(&x[i], &bits, 4);
  }
}

#endif
