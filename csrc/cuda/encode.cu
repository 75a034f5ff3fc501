#include "cuda/launch.cuh"

#include "cuda/body_encode.h"

CU_KERNEL(encode_plain, cu_encode_room)
CU_KERNEL(encode_scaled, cu_encode_room)
CU_KERNEL_BARE(measure)
CU_KERNEL(join, cu_join_room)
CU_KERNEL_BARE(prepare)
CU_KERNEL(encode_uniform, cu_encode_room)
CU_KERNEL(encode_blockwise, cu_encode_room)
CU_KERNEL(encode_linear, cu_encode_room)

void cu_launch_encode(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream) {
  switch (kernel) {
  case CU_K_ENCODE_PLAIN:
    CU_LAUNCH(encode_plain);
    break;
  case CU_K_ENCODE_SCALED:
    CU_LAUNCH(encode_scaled);
    break;
  case CU_K_MEASURE:
    CU_LAUNCH(measure);
    break;
  case CU_K_JOIN:
    CU_LAUNCH(join);
    break;
  case CU_K_PREPARE:
    CU_LAUNCH(prepare);
    break;
  case CU_K_ENCODE_UNIFORM:
    CU_LAUNCH(encode_uniform);
    break;
  case CU_K_ENCODE_BLOCKWISE:
    CU_LAUNCH(encode_blockwise);
    break;
  default:
    CU_LAUNCH(encode_linear);
    break;
  }
}
