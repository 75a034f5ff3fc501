#include "cuda/launch.cuh"

#include "cuda/body_decode.h"

static __global__ void __launch_bounds__(CU_THREADS) decode(const __grid_constant__ cu_args args) {
  __shared__ float book[256];
  cu_decode_block(book, &args, blockIdx.x);
}
static __global__ void __launch_bounds__(CU_THREADS) add(const __grid_constant__ cu_args args) {
  __shared__ float books[CU_INPUTS * 256];
  cu_add_block(books, &args, blockIdx.x);
}
CU_KERNEL_BARE(finite)
CU_KERNEL_BARE(feed)
CU_KERNEL(weigh, cu_weigh_room)
CU_KERNEL(limit, cu_limit_room)
static __global__ void __launch_bounds__(CU_THREADS) gather(const __grid_constant__ cu_gather args) {
  cu_gather_block(&args, blockIdx.x);
}

void cu_launch_decode(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream) {
  if (kernel == CU_K_DECODE)
    CU_LAUNCH(decode);
  else if (kernel == CU_K_ADD)
    CU_LAUNCH(add);
  else if (kernel == CU_K_FINITE)
    CU_LAUNCH(finite);
  else if (kernel == CU_K_FEED)
    CU_LAUNCH(feed);
  else if (kernel == CU_K_WEIGH)
    CU_LAUNCH(weigh);
  else if (kernel == CU_K_LIMIT)
    CU_LAUNCH(limit);
  else
    gather<<<blocks, CU_THREADS, 0, stream>>>(*(const cu_gather *)args);
}

cudaError_t cu_probe_decode(void) {
  cudaFuncAttributes what;
  return cudaFuncGetAttributes(&what, gather);
}
