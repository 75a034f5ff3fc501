#include "cuda/launch.cuh"

#include "cuda/body_chunk.h"

CU_KERNEL_BARE(begin)
CU_KERNEL(sum, cu_piece_room)
CU_KERNEL(seal, cu_piece_room)
CU_KERNEL_BARE(judge)

void cu_launch_chunk(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream) {
  if (kernel == CU_K_BEGIN)
    CU_LAUNCH(begin);
  else if (kernel == CU_K_SUM)
    CU_LAUNCH(sum);
  else if (kernel == CU_K_SEAL)
    CU_LAUNCH(seal);
  else
    CU_LAUNCH(judge);
}
