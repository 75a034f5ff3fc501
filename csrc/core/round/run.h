/* A run: many tensors of mixed dtypes as one flat row of values, cut into chunks.
 *
 * Room: core (uses base, kern). Made by the code that has the tensors; read by round, reducer and share, also on the pool.
 * Owner: its maker. A run owns its tables and borrows the tensors.
 * Thread: any. A run does not change between init and fini; calls on different chunks may run at the same time.
 * Limits: HV_RUN_*. Encoding or decoding may take chunk_values * 4 bytes of the run's account during the call.
 * A part is one tensor. Consecutive parts of one codec, or one pair of them (and, under SCALED_ROWS, of one row width), are a
 * section, which also ends before a part that is apart. Chunks are cut within sections, chunk_values values each. So a chunk has
 * one codec and may lie in many parts, and a row in two chunks. Rules: docs/design/round.md, "A run and its chunks".
 */
#ifndef HV_CORE_RUN_H
#define HV_CORE_RUN_H

#include "base/buf.h"
#include "kern/codec.h"
#include "kern/device.h"

/* Most values of a chunk: uncompressed and with their header they fill one bulk message of 4 MiB. */
#define HV_RUN_CHUNK_MAX ((1u << 20) - HV_CODEC_HEADER / 4)
#define HV_RUN_VALUES_MAX ((uint64_t)1 << 48) /* in one run */
#define HV_RUN_PARTS_MAX ((size_t)1 << 24)    /* in one run */

/* One tensor of a run. */
typedef struct hv_run_part {
  void *data; /* aligned as its elements are; NULL: layout alone, then of all parts that have values */
  hv_dtype dtype;
  uint64_t n_values;       /* may be 0 */
  hv_codec codec;          /* codec in which these values travel */
  const hv_device *device; /* device that holds data; NULL: the host's memory. Borrowed as data is */
  uint64_t row;            /* SCALED_ROWS: values of a row, as hv_run_row has them; 0: all values are one row */
  int apart;               /* 1: begins a section: no chunk holds values of this part and of the part before */
  hv_codec narrow;         /* codec with fewer bits under which a member may send them instead; NONE: there is none */
} hv_run_part;

/* SCALED_ROWS: least values of a row in a round. A part with fewer values travels under NONE. */
#define HV_RUN_ROW_LEAST 16
/* The row of a tensor of this shape: the fewest last dimensions that have HV_RUN_ROW_LEAST values together, or all of them. */
uint64_t hv_run_row(const int64_t *shape, size_t n_dims);

typedef struct hv_run {
  hv_mem *mem;
  struct hv_run_place *places; /* parts, with their first values */
  struct hv_run_section *sections;
  size_t n_places, n_sections;
  uint64_t n_values;
  uint32_t n_chunks, chunk_values;
  int has_values; /* 0: layout alone */
} hv_run;

/* One chunk of a run. */
typedef struct hv_run_chunk {
  uint64_t at;   /* index of its first value in the run */
  uint32_t size; /* values */
  hv_codec codec;
  hv_rows rows;        /* of SCALED_ROWS */
  size_t bytes;        /* when encoded */
  hv_codec narrow;     /* NONE: it has none, or so few values that they would be no fewer bytes */
  size_t narrow_bytes; /* when encoded under narrow; without one: bytes */
} hv_run_chunk;

/* The parts are copied, their data is borrowed until fini. A run without values has no chunks. HV_INVALID (err has the reason) or
 * HV_NOMEM: nothing to fini. */
hv_status hv_run_init(hv_run *run, hv_mem *mem, const hv_run_part *parts, size_t n_parts, uint32_t chunk_values, hv_error *err);
void hv_run_fini(hv_run *run);

/* The best chunk_values for a run of n_values, at most `most`. It gives a few hundred chunks: enough for each member to own some,
 * and few enough that the cost per chunk stays small. */
uint32_t hv_run_fit(uint64_t n_values, uint32_t most);

/* True if both have the same chunks: places, sizes, codecs and rows. Parts and dtypes may differ. */
int hv_run_alike(const hv_run *a, const hv_run *b);

/* The chunk of this index, which is below n_chunks. */
hv_run_chunk hv_run_chunk_of(const hv_run *run, uint32_t index);
/* The same as it travels. narrow: its codec and bytes are those of its narrow codec, if it has one. */
hv_run_chunk hv_run_chunk_as(const hv_run *run, uint32_t index, int narrow);
/* *narrow: 1: these bytes are this chunk under its narrow codec; 0: under the other one. HV_MALFORMED: neither, by their size,
 * codec, dtype, number of values or rows. Their values and checksum are not looked at. */
hv_status hv_run_width(const hv_run *run, uint32_t index, const hv_span *spans, size_t n_spans, int *narrow);
/* Values of the largest chunk; 0 if there is none. */
uint32_t hv_run_chunk_most(const hv_run *run);

/* The functions below need a run with values (else HV_STATE) and an index below n_chunks. HV_IO: a device failed, and its output is
 * undefined. */

/* Encodes a chunk's values into out, with the chunk's own codec or HV_CODEC_NONE. *size: bytes written. HV_NOT_FINITE: a value is
 * not finite, which some codecs would hide; HV_TOO_LARGE: room is too small; HV_NOMEM. */
hv_status hv_run_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_codec codec, uint8_t *out, size_t room,
                        size_t *size);

/* Checks an encoded chunk (any codec) and writes its values into the parts. On an error of hv_codec_decode_finite nothing was
 * written. On HV_IO or HV_NOMEM a chunk that lies partly on a device may be written in part. */
hv_status hv_run_decode(const hv_run *run, const hv_kern *kern, uint32_t index, const hv_span *spans, size_t n_spans);

/* The largest L2 norm of a change that is a rounding, as a part of the norm of the new values: an ulp of bfloat16 in each. Hardware
 * that differs makes roundings. */
#define HV_RUN_ROUNDING 0x1p-7

/* *changes: 1 if this encoded chunk (any codec), once it is written, changes the run's values by more than roundings: those of one
 * part at least, of the first `compared` values of the run. Errors as of hv_run_decode; nothing is written. */
hv_status hv_run_compare(const hv_run *run, const hv_kern *kern, uint32_t index, uint64_t compared, const hv_span *spans,
                         size_t n_spans, int *changes);

/* acc[i] += weight * value for the chunk's values, with the checks of hv_codec_accumulate_within. HV_NOT_FINITE, HV_TOO_LARGE: acc
 * is unchanged. */
hv_status hv_run_accumulate(const hv_run *run, const hv_kern *kern, uint32_t index, float weight, float norm_max, float *acc);

/* *square: the sum of the squares of the chunk's values, where they lie, in float64. HV_NOT_FINITE: a value is not finite. */
hv_status hv_run_square(const hv_run *run, const hv_kern *kern, uint32_t index, double *square);

/* ---- the weighted sum of one chunk, made by its owner ---- */

#define HV_RUN_SUM_SEEN 64 /* bytes kept of an encoded chunk: its checksum and its first values */

/* If all contributions that weigh something are equal and travel uncompressed (HV_CODEC_NONE), the mean is those very values, to
 * the bit: adding up and dividing would round. Equality is judged by the chunks' checksums. They are the owner's own values, or the
 * first chunk, which an owner keeps whose own values count for nothing. */
typedef struct hv_run_sum {
  float *here;         /* accumulator in the host's memory; the caller's */
  size_t seen;         /* bytes of `first`; 0: no chunk has arrived yet */
  int unlike;          /* 1: two chunks differed */
  int own;             /* 1: own values that weigh something are in it */
  int narrow;          /* 1: the average travels narrow, because something in it did; the caller sets it after begin */
  uint8_t *kept;       /* memory for the first chunk, the caller's; NULL: none is kept */
  size_t room, n_kept; /* bytes of it; bytes of the chunk in it */
  uint8_t first[HV_RUN_SUM_SEEN];
  const hv_device *device; /* device that adds up, because it holds all of the chunk's own values; NULL: the host adds up */
  void *there;             /* accumulator on the device */
} hv_run_sum;

/* Begins a sum with zeros; the caller has set `here`, `kept` and `room`. Every sum that was begun is ended, even after errors; a
 * sum that was not begun may be ended, too. HV_IO. */
hv_status hv_run_sum_begin(const hv_run *run, uint32_t index, hv_run_sum *sum);
void hv_run_sum_end(hv_run_sum *sum);
/* sum += weight * value with the checks of hv_codec_accumulate_within, for a received chunk and for this run's own values. On its
 * errors the sum is unchanged; after HV_IO it is undefined. */
hv_status hv_run_sum_add(const hv_kern *kern, hv_run_sum *sum, uint32_t size, const hv_span *spans, size_t n_spans, float weight,
                         float norm_max);
hv_status hv_run_sum_add_own(const hv_run *run, const hv_kern *kern, uint32_t index, hv_run_sum *sum, float weight, float norm_max);
/* Multiplies the sum by factor and encodes it into out, narrow if it is to be. *written: bytes written. */
hv_status hv_run_sum_encode(const hv_run *run, const hv_kern *kern, uint32_t index, hv_run_sum *sum, float factor, uint8_t *out,
                            size_t room, size_t *written);

#endif
