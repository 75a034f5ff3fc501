/* All codecs behind one interface: a tensor becomes a chunk of few bytes, and the chunk becomes a tensor again.
 *
 * Room: kern (uses base, dtype, cpu). Used by core (through the pool), bind and tests.
 * Owner: every buffer is the caller's. Nothing is allocated; at most 224 KiB of stack are used.
 * Thread: any; pure functions without globals, so many calls may run at once on different buffers.
 * The caller's floating-point mode (rounding, flush to zero) is saved and restored.
 * Format: docs/design/codecs.md has the bytes of a chunk, STATS and TAME, the arithmetic of each codec, and the bounds of its
 * error.
 */
#ifndef HV_KERN_CODEC_H
#define HV_KERN_CODEC_H

#include "base/buf.h"
#include "base/status.h"
#include "kern/cpu.h"
#include "kern/dtype.h"

#define HV_CODEC_VERSION 1
#define HV_CODEC_HEADER 32                     /* bytes */
#define HV_CODEC_COUNT_MAX ((uint64_t)1 << 36) /* elements in one chunk at most */
#define HV_CODEC_WEIGHT_MAX 0x1p64f            /* weights are finite, not negative, and at most this */

/* Stable: they stand in chunk headers. */
typedef enum hv_codec {
  HV_CODEC_NONE = 0,
  HV_CODEC_FLOAT16 = 1,
  HV_CODEC_SCALED_FLOAT16 = 2,
  HV_CODEC_BFLOAT16 = 3,
  HV_CODEC_UNIFORM8 = 4,
  HV_CODEC_QUANTILE8 = 5,
  HV_CODEC_BLOCKWISE8 = 6,
  HV_CODEC_LINEAR8 = 7,
  HV_CODEC_LINEAR4 = 8,
  HV_CODEC_SCALED_ROWS = 9,
  HV_CODEC_COUNT
} hv_codec;

/* "none", "float16", "scaled_float16", "bfloat16", "uniform8", "quantile8", "blockwise8", "linear8", "linear4", "scaled_rows"; NULL
 * off the list. */
const char *hv_codec_name(int codec);
/* The codec of a name, or -1. */
int hv_codec_find(const char *name);

/* How the elements of a chunk lie in rows; SCALED_ROWS alone uses it. {0, 0}: they are one row. */
typedef struct hv_rows {
  uint64_t width; /* elements of a row */
  uint64_t first; /* elements of the chunk's first row, which may have begun before the chunk: 1 .. width */
} hv_rows;

/* The header of a chunk, as read. */
typedef struct hv_codec_info {
  hv_codec codec;
  hv_dtype dtype;    /* of the source */
  uint64_t count;    /* elements */
  uint64_t body;     /* where the body starts */
  uint64_t size;     /* of the whole chunk */
  uint64_t checksum; /* as the header has it */
  hv_rows rows;      /* of SCALED_ROWS; {0, 0} otherwise */
} hv_codec_info;

/* The exact size of a chunk of count elements in one row; 0 when the codec or dtype is off the list or count over
 * HV_CODEC_COUNT_MAX. */
uint64_t hv_codec_bound(int codec, int dtype, uint64_t count);
/* The same for elements in rows; 0 also when there are no such rows. */
uint64_t hv_codec_bound_rows(int codec, int dtype, uint64_t count, hv_rows rows);

/* Encodes count elements of src into out. src is aligned as its elements are; out has `room` bytes and must not overlap src.
 * residual: NULL, or count floats of the caller for error feedback, read and updated; codec NONE ignores it.
 * *size: the bytes written, equal to hv_codec_bound. HV_INVALID: codec, dtype or count off the list; HV_TOO_LARGE: room is too
 * small. On an error nothing is written. */
hv_status hv_codec_encode(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, float *residual,
                          uint8_t *out, uint64_t room, uint64_t *size);
/* The same for elements in rows. HV_INVALID: also no such rows. */
hv_status hv_codec_encode_rows(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, hv_rows rows,
                               float *residual, uint8_t *out, uint64_t room, uint64_t *size);
/* The same without a residual. HV_NOT_FINITE: a value, as float32, is not finite; out is then undefined. */
hv_status hv_codec_encode_finite(const hv_kern *kern, hv_codec codec, hv_dtype dtype, const void *src, uint64_t count, hv_rows rows,
                                 uint8_t *out, uint64_t room, uint64_t *size);

/* In the functions below the chunk's bytes come in n_parts parts: borrowed, of any alignment, possibly empty. A contiguous chunk is
 * one part. The bytes may be hostile. */

/* Reads the header and holds it against the size; no codes are looked at. HV_MALFORMED: no chunk, or sizes that do not agree;
 * HV_VERSION: of another version; HV_UNSUPPORTED: a codec or dtype off the list. *info is set on HV_OK alone. */
hv_status hv_codec_peek(const hv_span *parts, size_t n_parts, hv_codec_info *info);

/* Reads all of it: hv_codec_peek, then the checksum (HV_CORRUPT), then the parameters (HV_MALFORMED: not finite, negative where
 * they cannot be, so large that values would overflow). *finite (may be NULL): 1 when every value decodes to a finite float32. */
hv_status hv_codec_check(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_codec_info *info, int *finite);

/* Checks, then decodes into out: `count` elements of `dtype`, aligned as those are. The chunk must hold exactly count elements
 * (HV_INVALID); its own dtype need not be the same: float16 out is limited to +-65504, bfloat16 out is nearest-even, float64 is
 * exact. On any error nothing was written. */
hv_status hv_codec_decode(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_dtype dtype, void *out, uint64_t count);
/* The same, and HV_NOT_FINITE when a value is not finite. */
hv_status hv_codec_decode_finite(const hv_kern *kern, const hv_span *parts, size_t n_parts, hv_dtype dtype, void *out,
                                 uint64_t count);

/* Checks, then acc[i] = acc[i] + weight * v[i] for all count elements. v is rounded to float32, the product before the sum.
 * A chunk counts whole or not at all. HV_NOT_FINITE: a value is not finite; HV_INVALID: count differs, or the weight is NaN,
 * negative or over HV_CODEC_WEIGHT_MAX. On any error acc is as before. */
hv_status hv_codec_accumulate(const hv_kern *kern, const hv_span *parts, size_t n_parts, float weight, float *acc, uint64_t count);
/* The same, for chunks of peers that may mean harm. HV_TOO_LARGE: the L2 norm of the values (by STATS of each 1,024 in turn) is
 * more than norm_max (0: any), or a value times the weight is beyond +-HV_CODEC_ADDEND_MAX: 256 of those cannot overflow a sum. */
#define HV_CODEC_ADDEND_MAX 0x1p119f
hv_status hv_codec_accumulate_within(const hv_kern *kern, const hv_span *parts, size_t n_parts, float weight, float norm_max,
                                     float *acc, uint64_t count);

#endif
