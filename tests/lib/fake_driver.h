// clang-format off
/* A libcuda.so.1 for tests: NVIDIA's driver as cuda/driver.h declares it, with the host's memory for the GPU's.
 *
 * Shared by fake_driver.c, fake_nvrtc.c and the tests that read the driver's output. A module must be code for a GPU (an ELF file
 * of the machine CUDA, or PTX) that has each kernel in it; a launch then runs the kernel's body on the host (cuda_stand_in.c), at
 * once. Calls that need a context on top of the thread's stack fail without it. Environment variables say what this machine is:
 *   FAKE_CUDA_VERSION      as cuDriverGetVersion counts (12040)
 *   FAKE_CUDA_CAPABILITY   90 for 9.0
 *   FAKE_CUDA_DEVICES      how many GPUs there are (1)
 *   FAKE_CUDA_FAIL         cuMemAlloc_v2:2:3 is code 2 from the 3rd call on
 */
// clang-format on
#ifndef HV_TESTS_FAKE_DRIVER_H
#define HV_TESTS_FAKE_DRIVER_H

/* The kernels' names in the order of cu_kernel; what fake_nvrtc.c makes has them all. */
#define FAKE_KERNELS                                                                                                               \
  {                                                                                                                                \
    "hv_begin", "hv_sum", "hv_seal", "hv_judge", "hv_decode", "hv_add", "hv_encode_plain", "hv_encode_scaled", "hv_scale_rows",    \
        "hv_encode_rows", "hv_measure", "hv_join", "hv_prepare", "hv_encode_uniform", "hv_encode_blockwise", "hv_encode_linear",   \
        "hv_range", "hv_book", "hv_encode_quantile", "hv_finite", "hv_feed", "hv_gather", "hv_weigh", "hv_limit"                   \
  }

/* How often a function of the driver was called; and how many contexts lie on this thread's stack. */
__attribute__((visibility("default"))) long fake_cuda_calls(const char *name);
__attribute__((visibility("default"))) int fake_cuda_depth(void);

#endif
