/* Chunks from hostile peers. Byte 0 chooses: bit 0 decode or accumulate, bit 1 make the checksum right, bit 2 build the header from
 * bytes 1 (codec), 2 (dtype), 3..4 (count) and, under SCALED_ROWS, 5 (rows), and take the rest as head and body, bit 3 hand the
 * chunk over in parts, bits 4..5 the set of kernels, bits 6..7 the dtype to decode into. With FUZZ_CODEC=0..9 in the environment
 * every execution gives that codec's decoder a header and a checksum that agree. Nothing may be written beyond the output, nothing
 * on an error, and the quantised codecs give finite numbers. Accumulated values are also held against the limits, by a weight and a
 * norm from the last byte, and against what the decoder says the values are. */
#include "kern/codec.h"
#include "kern/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COUNT = 1500, ROOM = 1 << 16 };

/* This code is no news to the fuzzer: its paths are not counted, which leaves twice the time for the decoders'. */
#ifdef __clang__
#define UNCOUNTED __attribute__((no_sanitize("coverage")))
#else
#define UNCOUNTED
#endif

UNCOUNTED static void demand(int truth) {
  if (!truth)
    abort();
}

/* The set of a level, or the best where there is none; asked once, for in a virtual machine asking is slow. */
UNCOUNTED static const hv_kern *set(hv_cpu_level level) {
  static const hv_kern *sets[HV_CPU_LEVELS + 1];
  if (!sets[HV_CPU_LEVELS])
    for (int i = 0; i <= HV_CPU_LEVELS; i++)
      sets[i] = hv_cpu_kern((hv_cpu_level)i) ? hv_cpu_kern((hv_cpu_level)i) : hv_cpu_best();
  return sets[level];
}

/* The codec that all executions are for; -1: any. */
static int pinned(void) {
  static int codec = -2;
  if (codec == -2) {
    const char *name = getenv("FUZZ_CODEC");
    codec = name ? atoi(name) % HV_CODEC_COUNT : -1;
  }
  return codec;
}

UNCOUNTED static void put(uint8_t *at, uint64_t value) {
  for (int i = 0; i < 8; i++)
    at[i] = (uint8_t)(value >> 8 * i);
}

/* A header whose sizes agree, so that what follows is reached. */
UNCOUNTED static size_t build(uint8_t *chunk, const uint8_t *data, size_t size) {
  static const uint8_t bits[HV_CODEC_COUNT] = {0, 16, 16, 16, 8, 8, 8, 8, 4, 16};
  int codec = pinned() >= 0 ? pinned() : data[0] % HV_CODEC_COUNT, dtype = 1 + data[1] % 4;
  uint64_t count = (unsigned)(data[2] | (data[3] & 1 ? data[3] << 8 : 0)) % COUNT, width = 1 + (uint64_t)data[4] * data[4] / 16;
  hv_rows rows = {width, 1 + data[4] % width};
  uint64_t whole = hv_codec_bound_rows(codec, dtype, count, rows);
  uint64_t body = (count * (bits[codec] ? bits[codec] : 8 * hv_dtype_size(dtype)) + 7) / 8;
  hv_codec_info info;
  memset(chunk, 0, whole);
  memcpy(chunk, "HVc1\1", 5);
  chunk[5] = (uint8_t)codec, chunk[6] = (uint8_t)dtype;
  put(chunk + 8, count), put(chunk + 16, whole - body);
  size_t fixed = HV_CODEC_HEADER;
  if (codec == HV_CODEC_SCALED_ROWS) {
    put(chunk + 32, rows.width), put(chunk + 40, rows.first);
    fixed += sizeof rows;
  }
  hv_span span = hv_span_of(chunk, (size_t)whole);
  demand(hv_codec_peek(&span, 1, &info) == HV_OK);
  size_t read = codec == HV_CODEC_SCALED_ROWS ? 5 : 4;
  data += read, size -= read;
  for (size_t at = fixed; size && at < whole; at += size)
    memcpy(chunk + at, data, size < whole - at ? size : (size_t)whole - at);
  return (size_t)whole;
}

UNCOUNTED static uint64_t region(const uint8_t *bytes, size_t size, uint64_t index) {
  uint64_t sum = 0;
  for (size_t at = 0; at < size; at += HV_PIECE, index++) {
    uint8_t piece[HV_PIECE] = {0};
    memcpy(piece, bytes + at, size - at < HV_PIECE ? size - at : HV_PIECE);
    sum += hv_mix(set(HV_CPU_LEVELS)->digest(piece) + index * HV_SUM_K);
  }
  return sum;
}

/* Makes the checksum right, by the kernels' own digest: this is about what lies behind it. */
UNCOUNTED static void seal(uint8_t *chunk, size_t size) {
  uint64_t body = size < HV_CODEC_HEADER ? 0 : hv_load64(chunk + 16), sum = 0;
  if (body < HV_CODEC_HEADER || body > size)
    return;
  sum = region(chunk + HV_CODEC_HEADER, (size_t)body - HV_CODEC_HEADER, (uint64_t)1 << 40) +
        region(chunk + body, size - (size_t)body, 0);
  for (uint64_t i = 0; i < 3; i++)
    sum += hv_mix(hv_load64(chunk + 8 * i) + (i + 1) * HV_SUM_G);
  put(chunk + 24, hv_mix(sum));
}

UNCOUNTED static size_t cut(const uint8_t *chunk, size_t size, unsigned how, hv_span parts[64]) {
  size_t n = 0, at = 0;
  for (unsigned seed = how; n < 63 && at < size; n++) {
    seed = seed * 1103515245 + 12345;
    size_t some = (seed >> 16) % 200;
    some = some < size - at ? some : size - at;
    parts[n] = hv_span_of(chunk + at, some);
    at += some;
  }
  parts[n++] = hv_span_of(chunk + at, size - at);
  return n;
}

/* Adding up under limits says what the values say, where rounding cannot decide; and adds, or leaves alone, all of them. */
UNCOUNTED static void hold(const hv_kern *kern, const hv_span *parts, size_t n_parts, const float *values, uint64_t count,
                           uint8_t limit) {
  float weight = limit & 1 ? ldexpf(1, (limit >> 1 & 7) * 18 - 62) : 0.5f,
        norm_max = limit & 16 ? ldexpf(1, (limit >> 5) * 8 - 20) : 0;
  double largest = 0, square = 0;
  for (uint64_t i = 0; i < count; i++) {
    largest = fmax(largest, fabs((double)values[i]));
    square += (double)values[i] * (double)values[i];
  }
  float *acc = calloc(count ? (size_t)count : 1, sizeof *acc);
  demand(acc != NULL);
  hv_status status = hv_codec_accumulate_within(kern, parts, n_parts, weight, norm_max, acc, count);
  double part = largest * (double)weight / (double)HV_CODEC_ADDEND_MAX;
  double norm = norm_max > 0 ? sqrt(square) / (double)norm_max : 0;
  demand(status == HV_OK || status == HV_TOO_LARGE);
  demand(status == HV_OK || part > 0.999 || norm > 0.999);
  demand(status == HV_TOO_LARGE || (part < 1.001 && norm < 1.001));
  for (uint64_t i = 0; i < count; i++)
    demand(acc[i] == (status == HV_OK ? weight * values[i] : 0));
  free(acc);
}

UNCOUNTED static void use(uint8_t how, const hv_span *parts, size_t n_parts, uint8_t limit) {
  const hv_kern *kern = set((hv_cpu_level)(how >> 4 & 3));
  hv_dtype dtype = (hv_dtype)(1 + (how >> 6));
  hv_codec_info info;
  int finite = 0;
  if (hv_codec_peek(parts, n_parts, &info) != HV_OK || info.count > ROOM)
    return;
  size_t bytes = (size_t)info.count * (how & 1 ? 4 : hv_dtype_size((int)dtype));
  uint8_t *out = malloc(bytes ? bytes : 1);
  demand(out != NULL);
  memset(out, 0, bytes);
  hv_status checked = hv_codec_check(set(HV_CPU_LEVELS), parts, n_parts, &info, &finite);
  hv_status status = how & 1 ? hv_codec_accumulate(kern, parts, n_parts, 0.5f, (float *)(void *)out, info.count)
                             : hv_codec_decode(kern, parts, n_parts, dtype, out, info.count);
  demand(status == (checked == HV_OK && how & 1 && !finite ? HV_NOT_FINITE : checked));
  demand(checked != HV_OK || finite || info.codec <= HV_CODEC_BFLOAT16 || info.codec == HV_CODEC_SCALED_ROWS);
  for (size_t i = 0; i < bytes; i++)
    demand(status == HV_OK || !out[i]);
  if (status == HV_OK && finite && (how & 1 || dtype == HV_DTYPE_FLOAT32))
    for (uint64_t i = 0; i < info.count; i++)
      demand(isfinite(((float *)(void *)out)[i]));
  if (how & 1 && status == HV_OK && hv_codec_decode(kern, parts, n_parts, HV_DTYPE_FLOAT32, out, info.count) == HV_OK)
    hold(kern, parts, n_parts, (const float *)(void *)out, info.count, limit);
  free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t chunk[ROOM];
  hv_span parts[64];
  if (size < 6 || size > ROOM)
    return 0;
  uint8_t how = data[0] | (pinned() >= 0 ? 6 : 0);
  size_t whole = size - 1, n_parts = 1;
  if (how & 4)
    whole = build(chunk, data + 1, size - 1);
  else
    memcpy(chunk, data + 1, whole);
  if (how & 2)
    seal(chunk, whole);
  uint8_t *exact = malloc(whole); /* so that a step beyond is seen */
  demand(exact != NULL);
  memcpy(exact, chunk, whole);
  parts[0] = hv_span_of(exact, whole);
  if (how & 8)
    n_parts = cut(exact, whole, how, parts);
  use(how, parts, n_parts, data[size - 1]);
  free(exact);
  return 0;
}
