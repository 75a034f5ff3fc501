#include "lib/away.h"

#include "kern/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

void away_turn(void *data, size_t bytes) {
  uint8_t *at = data;
  for (size_t i = 0; i < bytes; i++)
    at[i] = (uint8_t)~at[i];
}

static size_t bytes_of(const hv_stretch *s) {
  return (size_t)s->n * hv_dtype_size((int)s->dtype);
}

static hv_status asked(away_device *d) {
  return d->fail_at >= 0 && d->calls++ >= d->fail_at ? HV_IO : HV_OK;
}

static hv_status read_values(void *self, const hv_stretch *from, void *to) {
  away_device *d = self;
  d->raw += from->n;
  memcpy(to, from->data, bytes_of(from));
  away_turn(to, bytes_of(from));
  return asked(d);
}

static hv_status write_values(void *self, const void *from, const hv_stretch *to) {
  away_device *d = self;
  d->raw += to->n;
  memcpy(to->data, from, bytes_of(to));
  away_turn(to->data, bytes_of(to));
  return asked(d);
}

static hv_status encode(void *self, hv_codec codec, hv_rows rows, const hv_stretch *stretches, size_t n, uint8_t *out, size_t room,
                        size_t *size) {
  static float values[MOST];
  away_device *d = self;
  uint64_t at = 0, written = 0;
  int finite = 1;
  d->encoded++;
  for (size_t i = 0; i < n; at += stretches[i++].n) {
    away_turn(stretches[i].data, bytes_of(&stretches[i]));
    hv_reduce_convert(hv_cpu_best(), stretches[i].dtype, stretches[i].data, HV_DTYPE_FLOAT32, values + at, stretches[i].n);
    away_turn(stretches[i].data, bytes_of(&stretches[i]));
  }
  hv_reduce_finite(hv_cpu_best(), HV_DTYPE_FLOAT32, values, at, &finite);
  hv_status status = finite ? asked(d) : HV_NOT_FINITE;
  if (status == HV_OK)
    status = hv_codec_encode_rows(hv_cpu_best(), codec, HV_DTYPE_FLOAT32, values, at, rows, NULL, out, room, &written);
  *size = (size_t)written;
  return status;
}

static hv_status decode(void *self, const hv_span *spans, size_t n_spans, const hv_stretch *stretches, size_t n) {
  static float values[MOST];
  away_device *d = self;
  uint64_t count = 0, at = 0;
  if (d->plain)
    return HV_UNSUPPORTED;
  d->decoded++;
  for (size_t i = 0; i < n; i++)
    count += stretches[i].n;
  hv_status status = hv_codec_decode_finite(hv_cpu_best(), spans, n_spans, HV_DTYPE_FLOAT32, values, count);
  if (status == HV_OK)
    status = asked(d);
  for (size_t i = 0; status == HV_OK && i < n; at += stretches[i++].n) {
    hv_reduce_convert(hv_cpu_best(), HV_DTYPE_FLOAT32, values + at, stretches[i].dtype, stretches[i].data, stretches[i].n);
    away_turn(stretches[i].data, bytes_of(&stretches[i]));
  }
  return status;
}

/* ---- sums: their values are in the host's memory, as nobody else sees them ---- */

typedef struct sum {
  int place;
  uint64_t n;
  float values[];
} sum;

static hv_status sum_take(void *self, uint64_t n, void **out) {
  away_device *d = self;
  *out = NULL;
  for (int i = 0; i < d->n_sums && !*out && !d->plain; i++)
    if (!d->sums[i]) {
      sum *one = calloc(1, sizeof *one + n * sizeof(float));
      one->place = i, one->n = n;
      *out = d->sums[i] = one;
    }
  return asked(d);
}

static void sum_give(void *self, void *which) {
  away_device *d = self;
  sum *one = which;
  d->sums[one->place] = NULL;
  free(one);
}

void away_fini(away_device *d) {
  for (int i = 0; i < AWAY_SUMS; i++)
    free(d->sums[i]);
}

static hv_status sum_add(void *self, void *which, const hv_span *spans, size_t n_spans, float weight, float norm_max) {
  away_device *d = self;
  sum *one = which;
  d->added++;
  hv_status status = hv_codec_accumulate_within(hv_cpu_best(), spans, n_spans, weight, norm_max, one->values, one->n);
  return asked(d) == HV_OK ? status : HV_IO;
}

static hv_status sum_add_own(void *self, void *which, const hv_stretch *stretches, size_t n, float weight, float norm_max) {
  static float values[MOST];
  static uint8_t chunk[MOST * 4 + 64];
  away_device *d = self;
  sum *one = which;
  uint64_t at = 0, size;
  d->added++;
  for (size_t i = 0; i < n; at += stretches[i++].n) {
    away_turn(stretches[i].data, bytes_of(&stretches[i]));
    hv_reduce_convert(hv_cpu_best(), stretches[i].dtype, stretches[i].data, HV_DTYPE_FLOAT32, values + at, stretches[i].n);
    away_turn(stretches[i].data, bytes_of(&stretches[i]));
  }
  hv_codec_encode(hv_cpu_best(), HV_CODEC_NONE, HV_DTYPE_FLOAT32, values, at, NULL, chunk, sizeof chunk, &size);
  hv_span span = hv_span_of(chunk, (size_t)size);
  hv_status status = hv_codec_accumulate_within(hv_cpu_best(), &span, 1, weight, norm_max, one->values, one->n);
  return asked(d) == HV_OK ? status : HV_IO;
}

static hv_status sum_encode(void *self, void *which, float factor, hv_codec codec, hv_rows rows, uint8_t *out, size_t room,
                            size_t *size) {
  away_device *d = self;
  sum *one = which;
  uint64_t written = 0;
  d->averaged++;
  hv_reduce_scale(hv_cpu_best(), one->values, factor, one->n);
  hv_status status =
      hv_codec_encode_rows(hv_cpu_best(), codec, HV_DTYPE_FLOAT32, one->values, one->n, rows, NULL, out, room, &written);
  *size = (size_t)written;
  return asked(d) == HV_OK ? status : HV_IO;
}

void away_init(away_device *d) {
  *d = (away_device){.table = {d, encode, decode, sum_take, sum_give, sum_add, sum_add_own, sum_encode, read_values, write_values},
                     .fail_at = -1,
                     .n_sums = AWAY_SUMS};
}
