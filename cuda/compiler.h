/* The kernels' machine code for one kind of GPU, made by the NVRTC that comes with torch.
 *
 * Room: cuda (uses base). NVRTC is NVIDIA's compiler as a library, libnvrtc.so.12 or .13; it is loaded when code is wanted and
 * stays loaded. It needs no GPU, no headers and no network. It makes machine code, so a driver of the same CUDA version
 * (12, 13) or a later one takes it, however old; for a GPU that is newer than NVRTC it makes PTX, which the driver turns into
 * machine code. Flags: as everywhere, a product is rounded before it is added (codec.h). Threads: any. It takes some ten seconds of
 * a processor.
 */
#ifndef HV_CUDA_COMPILER_H
#define HV_CUDA_COMPILER_H

#include "base/mem.h"
#include "base/status.h"
#include "cuda/hv_cuda.h"

/* The kernels' source: kernels.cu behind the headers that it includes, made one text when the library is built. */
extern const char hv_cuda_text[];
extern const size_t hv_cuda_text_size;

#define HV_CUDA_FLAGS "--std=c++17", "--fmad=false", "--diag-suppress=177"
#define HV_CUDA_OLDEST_COMPILER 12010 /* 12.1: the first that takes more than 4 KB of parameters */

/* Compiles for compute capability `arch` (90 is 9.0), and a driver of this version as cuDriverGetVersion counts. *out is the
 * caller's, to be freed by hv_mem_free. HV_NOT_FOUND: no NVRTC can be used, with the reason for each; HV_UNSUPPORTED: none is for
 * so old a GPU; HV_INTERNAL: the kernels do not compile, with the compiler's first words. */
hv_status hv_cuda_compile(const hv_cuda_kit *kit, int arch, int driver_version, hv_mem *mem, char **out, size_t *size,
                          hv_error *err);

#endif
