/* A table of functions to reach values that are not in the host's memory, for example on a GPU.
 *
 * Room: kern (uses buf, codec, dtype). Filled by cuda/transfers.c and by tests; called by core/round/run.
 * Owner: the device that fills the table owns `self`; all other arguments are borrowed during the call.
 * Thread: the pool's threads and the hive thread; several calls may run at once. A call returns when the work is done.
 * Errors: HV_NOMEM, or HV_IO if the device fails. The output is then undefined.
 * encode and decode move encoded bytes only; read and write move plain values, where nothing else will do.
 */
#ifndef HV_KERN_DEVICE_H
#define HV_KERN_DEVICE_H

#include "base/buf.h"
#include "kern/codec.h"

/* A row of values on the device. */
typedef struct hv_stretch {
  void *data;
  hv_dtype dtype;
  uint64_t n; /* values */
} hv_stretch;

typedef struct hv_device {
  void *self;
  /* Encodes the values of all stretches, one after the other, as float32 into one chunk, as hv_codec_encode_rows does. `room`
   * suffices. HV_NOT_FINITE: a value is not finite; out is then undefined. */
  hv_status (*encode)(void *self, hv_codec codec, hv_rows rows, const hv_stretch *stretches, size_t n, uint8_t *out, size_t room,
                      size_t *size);
  /* Decodes a chunk as hv_codec_decode_finite does, then rounds to the dtype of each stretch. The spans may be hostile: on an error
   * of that function nothing was written. HV_UNSUPPORTED: the host must decode this chunk. */
  hv_status (*decode)(void *self, const hv_span *spans, size_t n_spans, const hv_stretch *stretches, size_t n);
  /* Gives out an accumulator of n zeros for the sum of a chunk. *sum is NULL if there is none: the host then adds up.
   * sum_give gives it back. */
  hv_status (*sum_take)(void *self, uint64_t n, void **sum);
  void (*sum_give)(void *self, void *sum);
  /* sum = sum + weight * value, for the values of a chunk or of stretches, with the checks of hv_codec_accumulate_within. On its
   * errors the sum is as before. HV_UNSUPPORTED: no chunk of float32 values. Calls for one sum never overlap. */
  hv_status (*sum_add)(void *self, void *sum, const hv_span *spans, size_t n_spans, float weight, float norm_max);
  hv_status (*sum_add_own)(void *self, void *sum, const hv_stretch *stretches, size_t n, float weight, float norm_max);
  /* sum = sum * factor; then encodes the sum as hv_codec_encode_rows does. */
  hv_status (*sum_encode)(void *self, void *sum, float factor, hv_codec codec, hv_rows rows, uint8_t *out, size_t room,
                          size_t *size);
  /* Copies plain values to and from the host's memory. */
  hv_status (*read)(void *self, const hv_stretch *from, void *to);
  hv_status (*write)(void *self, const void *from, const hv_stretch *to);
} hv_device;

#endif
