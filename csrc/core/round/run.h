/* How are many tensors one flat run of values? Parts of mixed dtypes, cut into chunks.
 *
 * Room: core (uses base, kern). Made by whoever has the tensors; read by round, reducer and share, also from the pool.
 * Parts follow each other in the order given. Consecutive parts of one codec are a section; chunks are cut within sections,
 * chunk_values values each, the last of a section shorter. So a chunk has one codec and may lie in many parts. Values travel as
 * float32, whatever their dtype: a member gets the bits of that float32 rounded to each part's dtype, the same on all members whose
 * parts have the same dtypes. A chunk inside one float32 part is encoded and decoded where it lies; others go through memory that
 * is taken for that call alone, chunk_values * 4 bytes of the run's account. A part may lie on a device (kern/device.h): a chunk
 * that is all on one is encoded and decoded there, of others the values are brought here. Owns its tables; borrows the tensors.
 * Threads: nothing in it changes between init and fini; calls on different chunks may run at once.
 */
#ifndef HV_CORE_RUN_H
#define HV_CORE_RUN_H

#include "base/buf.h"
#include "kern/codec.h"
#include "kern/device.h"

/* Values: 4 MiB as they are with their header, what one bulk message carries. */
#define HV_RUN_CHUNK_MAX ((1u << 20) - HV_CODEC_HEADER / 4)
#define HV_RUN_VALUES_MAX ((uint64_t)1 << 48) /* in one run */
#define HV_RUN_PARTS_MAX ((size_t)1 << 24)

typedef struct hv_run_part {
  void *data; /* aligned as its elements are; NULL: layout alone (all parts, or none that has values) */
  hv_dtype dtype;
  uint64_t n_values;       /* may be 0 */
  hv_codec codec;          /* how these values travel */
  const hv_device *device; /* where data is; NULL: plain memory. Borrowed as data is */
} hv_run_part;

typedef struct hv_run {
  hv_mem *mem;
  struct hv_run_place *places; /* parts, and where they begin */
  struct hv_run_section *sections;
  size_t n_places, n_sections;
  uint64_t n_values;
  uint32_t n_chunks, chunk_values;
  int has_values; /* 0: layout alone */
} hv_run;

typedef struct hv_run_chunk {
  uint64_t at;   /* first value, in the whole run */
  uint32_t size; /* values */
  hv_codec codec;
  size_t bytes; /* encoded */
} hv_run_chunk;

/* parts are copied, their data is borrowed until fini. HV_INVALID (err says why), HV_NOMEM: run needs no fini. No parts, or no
 * values: no chunks. */
hv_status hv_run_init(hv_run *run, hv_mem *mem, const hv_run_part *parts, size_t n_parts, uint32_t chunk_values, hv_error *err);
void hv_run_fini(hv_run *run);

/* How many values a chunk of a run of so many has best, `most` at most: a few hundred chunks, so that everybody owns some and the
 * first and the last ones on their way are a small part of the whole, but not so small that each costs more than its bytes. */
uint32_t hv_run_fit(uint64_t n_values, uint32_t most);

/* 1 when both have the same chunks: places, sizes and codecs (their parts and dtypes may differ). */
int hv_run_alike(const hv_run *a, const hv_run *b);

/* index < n_chunks. */
hv_run_chunk hv_run_chunk_of(const hv_run *run, uint32_t index);
/* Of the largest chunk that there is; 0 when there is none. */
uint32_t hv_run_chunk_most(const hv_run *run);

/* The functions below need a run that has values (HV_STATE else), and index < n_chunks. HV_IO: a device failed, and what was to be
 * written there is anything. */

/* Encodes a chunk's values under a codec (the chunk's own, or HV_CODEC_NONE: as they are) into out; *size is what was written.
 * HV_NOT_FINITE: a value is not finite (some codecs would hide it); HV_TOO_LARGE: room is too small; HV_NOMEM. */
hv_status hv_run_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_codec codec, uint8_t *out, size_t room,
                        size_t *size);

/* Checks an encoded chunk (any codec) and puts its values in their places. On any error of
 * hv_codec_decode_finite nothing was written; of a chunk that lies partly on a device, a part may have been on HV_IO or HV_NOMEM.
 */
hv_status hv_run_decode(const hv_run *run, const hv_kern *kern, uint32_t index, const hv_span *spans, size_t n_spans);

/* acc[i] += weight * value, for the chunk's values, under the rules of hv_codec_accumulate_within: HV_NOT_FINITE, HV_TOO_LARGE; acc
 * is as before then. */
hv_status hv_run_accumulate(const hv_run *run, const hv_kern *kern, uint32_t index, float weight, float norm_max, float *acc);

/* ---- the weighted sum of one chunk, as its owner makes it ---- */

#define HV_RUN_SUM_SEEN 64 /* an encoded chunk's checksum, and its first values */

/* The mean of values that are all alike is those values, to the bit, where they travel as they are (HV_CODEC_NONE) and the owner
 * has them, too: adding up and dividing would round. What is alike is judged by the checksums of chunks: who
 * forges one is left out of that mean. */
typedef struct hv_run_sum {
  float *here; /* room for the chunk's values; the caller's */
  size_t seen; /* bytes of `first`; 0: no chunk has come yet */
  int unlike;  /* 1: another one came */
  uint8_t first[HV_RUN_SUM_SEEN];
  const hv_device *device; /* on which it is made: where all of the chunk's own values are; NULL: it is made here */
  void *there;
} hv_run_sum;

/* Zeros. What begun is ended, however it went in between; a sum that was not begun (here alone is set) may be ended too. HV_IO. */
hv_status hv_run_sum_begin(const hv_run *run, uint32_t index, hv_run_sum *sum);
void hv_run_sum_end(hv_run_sum *sum);
/* sum += weight * value under the rules of hv_codec_accumulate_within: of a chunk that came, and of this run's own values. On its
 * errors the sum is as before, but after HV_IO it is anything. */
hv_status hv_run_sum_add(const hv_kern *kern, hv_run_sum *sum, uint32_t size, const hv_span *spans, size_t n_spans, float weight,
                         float norm_max);
hv_status hv_run_sum_add_own(const hv_run *run, const hv_kern *kern, uint32_t index, hv_run_sum *sum, float weight, float norm_max);
/* The chunk of sum * factor, which the sum becomes. *written is what was written. */
hv_status hv_run_sum_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_run_sum *sum, float factor, uint8_t *out,
                            size_t room, size_t *written);

#endif
