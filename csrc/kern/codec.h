/* All codecs behind one interface: a tensor becomes a chunk of few bytes, and the chunk becomes a tensor again.
 *
 * Room: kern (uses base, dtype, cpu). Used by core (through the pool), bind and tests.
 * Owner: every buffer is the caller's. Nothing is allocated; at most 224 KiB of stack are used.
 * Thread: any; pure functions without globals, so many calls may run at once on different buffers.
 * The caller's floating-point mode (rounding, flush to zero) is saved and restored.
 */

// clang-format off
/* THE FORMAT.
 *
 * A CHUNK is self-describing and independent of its neighbours. Little-endian:
 *     0  u32  magic "HVc1" (bytes 48 56 63 31)
 *     4  u8   version (HV_CODEC_VERSION)
 *     5  u8   codec (hv_codec)
 *     6  u8   dtype of the source (hv_dtype)
 *     7  u8   0
 *     8  u64  count: elements
 *    16  u64  body: where the body starts, from the start of the chunk; a multiple of 16
 *    24  u64  checksum (below)
 *    32  head: the codec's parameters and scales, zeros up to the next multiple of 16
 *  body  the codes, in the order of the elements; the chunk ends with the last one
 * (codec, dtype, count) fix the sizes of head and body, for SCALED_ROWS with the rows. So a chunk's size is known before it is
 * made, and a chunk of any other size is malformed.
 *
 * ONE MEANING ON EVERY MACHINE. The same input gives the same chunk, and the same chunk the same values, bit for bit, on every
 * set of kernels (cpu.h), and on a GPU (cuda/). Therefore: sources other than float32 are first rounded to float32 (a float64
 * beyond its range becomes infinite); arithmetic is IEEE float32, nearest-even, no fused multiply-add, unless float64 is named;
 * reductions are exact in any order (minimum, maximum, integer sums) or have the fixed shape named STATS; only + - * / sqrt occur.
 * Only the payload bits of a NaN may differ.
 *
 * STATS: sum and sum of squares in float64. A unit is 4,096 elements; in a unit lane j of 32 adds elements j, j+32, ... in order;
 * lanes fold by 16, 8, 4, 2, 1 (lane j += lane j+fold); units join as a binary tree over their index, padded with zeros on the
 * right. From them, in float64: mean = sum / count, variance = (square - sum * mean) / count, at least 0; std = sqrt(variance).
 *
 * TAME: before anything else NaN becomes 0 and values beyond +-2^126 (infinities too) become +-2^126. So UNIFORM8 and all after it
 * never decode to anything but finite numbers, whatever the chunk. Check gradients with hv_reduce_finite first: a NaN is the
 * sender's to report, not the codec's.
 *
 * THE CODECS, with x the source in float32 and v what it decodes to. Bounds hold for finite |x| <= 2^126; "eps" is 2^-22 times
 * the largest |x| in the chunk (the float32 arithmetic's own rounding). Scales and steps below 2^-120 count as 0, so that their
 * inverses are finite: everything below them decodes to the mean, or to 0.
 *
 *   NONE            The elements as they are; v = x exactly, and float64 decodes to float64 exactly. NaN, Inf: kept to the bit.
 *   FLOAT16         16 bits. x limited to +-65504, then nearest-even float16.
 *                   |x - v| <= max(|x| * 2^-11, 2^-25) for |x| <= 65504. NaN becomes 0x7e00 and stays NaN, Inf becomes +-65504.
 *   SCALED_FLOAT16  16 bits. Head: f32 mean, f32 std (at most 2^110) by STATS of the tame values.
 *                   Body: FLOAT16 of (x - mean) * (1 / std). v = h * std + mean.
 *                   |x - v| <= max(|x - mean| * 2^-11, std * 2^-25) + eps for |x - mean| <= 65504 std.
 *                   NaN stays NaN, Inf becomes +-65504 std.
 *   BFLOAT16        16 bits. Nearest-even; beyond 3.39e38 infinite, as IEEE says.
 *                   |x - v| <= |x| * 2^-8 (2^-134 below the normal range). NaN becomes 0x7fc0, Inf stays.
 *   UNIFORM8        8 bits, tame. Head: f32 mean, step, low, high. In float64 R = min(6 std, largest |x - mean|), then
 *                   step = float32(R / 127), inverse = float32(127 / R); both 0 if R < 127 * 2^-120.
 *                   code = k + 128, k = nearest-even((x - mean) * inverse) limited to +-127. v = k * step + mean, but code 1
 *                   decodes to `low` and code 255 to `high`: about the mean of the x that have this code. With n their number,
 *                       t = min(|(x - mean) * inverse|, 2^21), with the sign of x - mean,
 *                       low or high = mean + step * (sum over these x of nearest-even(256 * t)) / (256 * n).
 *                   The sum is an integer. If n is 0, low = mean - 127 * step and high = mean + 127 * step.
 *                   Code 0 is not used and decodes as 1 does.
 *                   |x - v| <= step / 2 + eps where |x - mean| < 126.5 step; beyond, at most the largest |x - mean| - 126.5 step
 *                   + step / 64 + eps.
 *   QUANTILE8       8 bits, tame. Head: 256 x f32, a code book that follows the data: the density of codes is the cube root of the
 *                   density of values, which is the least squared error. It is estimated from a fixed sample: codec_quantile.c is
 *                   its definition. Zero stays exactly zero.
 *                   |x - v| <= largest - smallest x (0 counted in); mean square below that of 256 equal quantiles in tests.
 *   BLOCKWISE8      8 bits + 32/4096, tame. Blocks of 4,096; head: one f32 absmax each. Dettmers' signed dynamic map: seven decades
 *                   with 2^i entries each way in decade i, and 0, and +1. code = sign << 7 | m for the entry nearest to
 *                   |x| * (1 / absmax), m counted from 0 up; 0x80 is +1. v = entry * absmax.
 *                   |x - v| <= absmax * 0.0072 + eps; where |x| >= absmax * 1e-5 also |x - v| <= |x| / 2.
 *   LINEAR8         8 bits + 16/64, tame. Blocks of 64; head: one bfloat16 d each: the extreme of the block (the largest magnitude,
 *                   with its sign; positive of two equal ones) / -128, rounded away from zero.
 *                   code = k + 128, k = nearest-even of x * (1 / d) limited to -128 .. 127. v = k * d.
 *                   |x - v| <= |d| / 2 where |x| <= 127.5 |d|, and never above |d| (both but for one part in 2^14).
 *   LINEAR4         4 bits + 16/64, tame. The same with extreme / -8 and k in -8 .. 7; code = k + 8, the even element in the low
 *                   half of a byte; a half without an element is 0.
 *                   |x - v| <= |d| / 2 where |x| <= 7.5 |d|, and never above |d| (both but for one part in 2^14).
 *   SCALED_ROWS     16 bits + 64 for each row. Head: u64 width, u64 first, with 1 <= first <= width <= HV_CODEC_COUNT_MAX; then
 *                   for each row f32 mean, f32 std, as SCALED_FLOAT16 has them for a tensor of that row alone. The first `first`
 *                   elements are a row, or the end of one; rows of `width` follow; the last one may be cut short.
 *                   Body: FLOAT16 of (x - mean) * inverse, with inverse = 1 / std, or 0 if std is 0. v = h * std + mean.
 *                   The bounds are those of SCALED_FLOAT16, row by row. NaN stays NaN; Inf becomes +-65504 std, or NaN if std is
 *                   0. A row of one value or of equal values decodes to its mean, which is that value up to eps.
 *
 * ERROR FEEDBACK. Every codec but NONE takes a residual: count float32, zeros at first, the caller's. Then y = tame(residual + x)
 * is encoded and residual becomes y - v, so that what one round loses a later one sends.
 *
 * CHECKSUM: against faults, not against malice (transport is authenticated). With 64-bit little-endian words, wrapping arithmetic,
 *     mix(z) = { z ^= z >> 32; z *= 0xd6e8feb86659fd93; z ^= z >> 32; z *= 0xd6e8feb86659fd93; z ^= z >> 32 },
 *     K = 0x9e3779b185ebca87, G = 0xc2b2ae3d27d4eb4f:
 * head and body are each cut in pieces of 4,096 bytes, the last one filled up with zeros. In a piece of words w[0 .. 511]
 *     lane[j] = sum over r = 0 .. 63 of low32(t) * high32(t) + w[8r + (j ^ 1)],  t = w[8r + j] ^ (K * (j + 1) + r * G),
 *     digest  = sum over j = 0 .. 7 of mix(lane[j] + j * G),
 *     checksum = mix(sum over pieces of mix(digest + p * K) + mix(w0 + G) + mix(w1 + 2 * G) + mix(w2 + 3 * G)),
 * where p is the piece's index (from 0 in the body, from 2^40 in the head) and w0, w1, w2 are the first 24 bytes of the chunk.
 * All sums are over independent pieces: a GPU computes them in any order.
 */
// clang-format on
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
