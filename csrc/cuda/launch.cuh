/* How does a kernel's body get onto the device? Shared by the .cu files alone.
 *
 * Room: cuda (uses kernel). Each .cu file compiles the bodies of one family and has one function that launches them; runtime.cu
 * knows which kernel is in which.
 */
#ifndef HV_CUDA_LAUNCH_CUH
#define HV_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "cuda/block.h"

/* A kernel whose block works on shared memory of its own, or on none. */
#define CU_KERNEL(name, room)                                                                                                      \
  static __global__ void __launch_bounds__(CU_THREADS) name(const __grid_constant__ cu_args args) {                                \
    __shared__ room shared;                                                                                                        \
    cu_##name##_block(&shared, &args, blockIdx.x);                                                                                 \
  }
#define CU_KERNEL_BARE(name)                                                                                                       \
  static __global__ void __launch_bounds__(CU_THREADS) name(const __grid_constant__ cu_args args) {                                \
    cu_##name##_block(&args, blockIdx.x);                                                                                          \
  }
#define CU_LAUNCH(name) name<<<blocks, CU_THREADS, 0, stream>>>(*(const cu_args *)args)

void cu_launch_chunk(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream);
void cu_launch_decode(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream);
void cu_launch_encode(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream);
void cu_launch_quantile(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream);
/* Loads the kernel with the most parameters, and starts nothing. */
cudaError_t cu_probe_decode(void);

#endif
