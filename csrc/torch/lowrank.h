/* PowerSGD on torch's tensors: the maths of kern/lowrank.h on any device.
 *
 * Room: torch (uses kern, base). A shared object of its own, libhivemind_lowrank.so, loaded by
 * torch.ops.load_library; it calls torch's stable C functions (stable.h), as of torch 2.10, and it is built without torch; neither
 * _hivemind_c nor the C library links to it. Python uses it through hivemind_c/_lowrank.py. On the CPU the passes are kern's,
 * spread over torch's threads, for all matrices of a call at once; other devices use ATen's products, and CholeskyQR2 in
 * float64. P, Q and E are contiguous float32, on one device per matrix; the gradients may be of any floating dtype and any strides.
 * Threads: any, one call at a time for one round. No state of its own.
 */
#ifndef HV_TORCH_LOWRANK_H
#define HV_TORCH_LOWRANK_H

#include "kern/lowrank.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HV_LOWRANK_API __attribute__((visibility("default")))

struct AtenTensorOpaque; /* torch's own: a tensor */

/* The matrices of one call: n handles in each array, all borrowed. */
typedef struct hv_lowrank_call {
  size_t n;
  struct AtenTensorOpaque *const *grads, *const *errors, *const *ps, *const *qs;
  struct AtenTensorOpaque *const *outs; /* decode only; may be the grads */
  int portable;                         /* 1: ATen's products on the CPU too */
} hv_lowrank_call;

/* The three steps of a round; each checks hv_lowrank_may first and takes the step when all went well. Each may be repeated.
 * HV_STATE: wrong step. HV_INVALID: shapes, dtypes or devices do not fit, or a matrix is not finite; E and the outs are
 * untouched. HV_INTERNAL: what torch said. */
HV_LOWRANK_API hv_status hv_lowrank_encode(hv_lowrank_round *round, int64_t id, const hv_lowrank_call *call, hv_error *err);
HV_LOWRANK_API hv_status hv_lowrank_middle(hv_lowrank_round *round, int64_t id, const hv_lowrank_call *call, hv_error *err);
HV_LOWRANK_API hv_status hv_lowrank_decode(hv_lowrank_round *round, int64_t id, const hv_lowrank_call *call, hv_error *err);

#ifdef __cplusplus
}
#endif

#endif
