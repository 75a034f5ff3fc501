/* The kernels by name, one for each cu_kernel of kernel.h: what NVRTC compiles for the GPU that is there, after the bodies.
 *
 * Room: cuda (uses kernel). The text of this file, behind those of the headers it includes, lies in the library; no other
 * compiler reads it. runtime.c finds the kernels in what was compiled by the names in its table.
 */
#include "cuda/body_chunk.h"
#include "cuda/body_decode.h"
#include "cuda/body_encode.h"
#include "cuda/body_quantile.h"

#define CU_GLOBAL extern "C" __global__ void __launch_bounds__(CU_THREADS)
/* A kernel whose block works on shared memory of its own, or on none. */
#define CU_KERNEL(name, room)                                                                                                      \
  CU_GLOBAL hv_##name(const __grid_constant__ cu_args args) {                                                                           \
    __shared__ room shared;                                                                                                        \
    cu_##name##_block(&shared, &args, blockIdx.x);                                                                                 \
  }
#define CU_KERNEL_BARE(name)                                                                                                       \
  CU_GLOBAL hv_##name(const __grid_constant__ cu_args args) {                                                                           \
    cu_##name##_block(&args, blockIdx.x);                                                                                          \
  }

CU_KERNEL_BARE(begin)
CU_KERNEL(sum, cu_piece_room)
CU_KERNEL(seal, cu_piece_room)
CU_KERNEL_BARE(judge)
CU_GLOBAL hv_decode(const __grid_constant__ cu_args args) {
  __shared__ float book[256];
  cu_decode_block(book, &args, blockIdx.x);
}
CU_GLOBAL hv_add(const __grid_constant__ cu_args args) {
  __shared__ float books[CU_INPUTS * 256];
  cu_add_block(books, &args, blockIdx.x);
}
CU_KERNEL(encode_plain, cu_encode_room)
CU_KERNEL(encode_scaled, cu_encode_room)
CU_KERNEL_BARE(scale_rows)
CU_KERNEL(encode_rows, cu_encode_room)
CU_KERNEL_BARE(measure)
CU_KERNEL(join, cu_join_room)
CU_KERNEL_BARE(prepare)
CU_KERNEL(encode_uniform, cu_encode_room)
CU_KERNEL(encode_blockwise, cu_encode_room)
CU_KERNEL(encode_linear, cu_encode_room)
CU_KERNEL_BARE(range)
CU_KERNEL(book, cu_book_room)
CU_KERNEL(encode_quantile, cu_quantile_room)
CU_KERNEL_BARE(finite)
CU_KERNEL_BARE(feed)
CU_GLOBAL hv_gather(const __grid_constant__ cu_gather args) {
  cu_gather_block(&args, blockIdx.x);
}
CU_KERNEL(weigh, cu_weigh_room)
CU_KERNEL(limit, cu_limit_room)
