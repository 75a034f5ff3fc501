#include "cuda/launch.cuh"

#include "cuda/body_quantile.h"

CU_KERNEL_BARE(range)
CU_KERNEL(book, cu_book_room)
CU_KERNEL(encode_quantile, cu_quantile_room)

void cu_launch_quantile(cu_kernel kernel, unsigned blocks, const void *args, cudaStream_t stream) {
  if (kernel == CU_K_RANGE)
    CU_LAUNCH(range);
  else if (kernel == CU_K_BOOK)
    CU_LAUNCH(book);
  else
    CU_LAUNCH(encode_quantile);
}
