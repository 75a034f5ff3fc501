/* How are values reached that do not lie in the host's memory? A table, filled by whoever knows the device that they lie on.
 *
 * Room: kern (uses buf, codec, dtype). Filled by cuda/transfer.c, and by tests; called by core/round/run, on the pool's threads and
 * the hive thread: several calls may come at once. A call returns when the work is done. Of one chunk of a round only encoded bytes
 * pass, by encode and decode; read and write bring values as they are, where nothing else will do. Errors: HV_NOMEM, or HV_IO when
 * the device fails; what was to be written is then anything.
 */
#ifndef HV_KERN_DEVICE_H
#define HV_KERN_DEVICE_H

#include "base/buf.h"
#include "kern/codec.h"

/* Some values in a row, on the device. */
typedef struct hv_stretch {
  void *data;
  hv_dtype dtype;
  uint64_t n;
} hv_stretch;

typedef struct hv_device {
  void *self;
  /* The chunk of all stretches' values, one after the other, as float32: what hv_codec_encode makes of those. room: enough.
   * HV_NOT_FINITE: one of them is not; out is then anything. */
  hv_status (*encode)(void *self, hv_codec codec, const hv_stretch *stretches, size_t n, uint8_t *out, size_t room, size_t *size);
  /* What hv_codec_decode_finite does, into float32 that is then rounded to each stretch's dtype. The spans may be hostile: on its
   * errors nothing was written. HV_UNSUPPORTED: this chunk has to be decoded elsewhere. */
  hv_status (*decode)(void *self, const hv_span *spans, size_t n_spans, const hv_stretch *stretches, size_t n);
  /* The sum of an owner's chunk. Takes one of n zeros; *sum is NULL when there is none to be had: add up elsewhere. */
  hv_status (*sum_take)(void *self, uint64_t n, void **sum);
  void (*sum_give)(void *self, void *sum);
  /* sum = sum + weight * value, for a chunk's values as hv_codec_accumulate_within has it, and for stretches' under its rules: on
   * its errors the sum is as before. HV_UNSUPPORTED: no chunk of float32 values. The calls for one sum come one after the other. */
  hv_status (*sum_add)(void *self, void *sum, const hv_span *spans, size_t n_spans, float weight, float norm_max);
  hv_status (*sum_add_own)(void *self, void *sum, const hv_stretch *stretches, size_t n, float weight, float norm_max);
  /* sum = sum * factor; then the chunk of it, as hv_codec_encode makes it. */
  hv_status (*sum_encode)(void *self, void *sum, float factor, hv_codec codec, uint8_t *out, size_t room, size_t *size);
  /* The values as they are, to and from the host's memory. */
  hv_status (*read)(void *self, const hv_stretch *from, void *to);
  hv_status (*write)(void *self, const void *from, const hv_stretch *to);
} hv_device;

#endif
