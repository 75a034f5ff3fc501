/* The table that each codec fills in.
 *
 * Room: kern alone. codec.c walks over chunks (headers, parts, checksums, error feedback) and calls the table of the codec.
 * codec_float.c, codec_quant.c and codec_quantile.c fill the tables in, with the helpers of coder.c.
 * Thread: any; the tables are constant.
 */
#ifndef HV_KERN_CODER_H
#define HV_KERN_CODER_H

#include "base/status.h"
#include "kern/codec.h"
#include "kern/kernels.h"

#define HV_BOOK 256 /* entries of a code book */

typedef struct hv_encoder {
  const hv_kern *kern;
  const void *src; /* count elements of dtype */
  hv_dtype dtype;
  uint64_t count;
  hv_rows rows;
  uint8_t *head; /* in the chunk, zeroed */
  union {
    struct {
      float mean, inverse;
    } scaled;
    struct {
      hv_uniform loop;
      float step;
    } uniform;
    struct {
      int32_t base;
      uint8_t table[HV_CELLS];
    } quantile;
  } u;
} hv_encoder;

typedef struct hv_decoder {
  const hv_kern *kern;
  hv_dtype dtype;    /* of the source: the body of NONE */
  uint32_t infinity; /* float32 bodies of NONE: bits of the smallest magnitude that is refused; HV_INFINITE: only infinity is */
  hv_rows rows;
  uint64_t at;           /* index of the present slice's first element */
  const uint8_t *scales; /* of the present slice, from the block or row in which the slice starts */
  union {
    struct {
      float mean, std;
    } scaled;
    hv_even even;
    float book[HV_BOOK];
  } u;
} hv_decoder;

typedef struct hv_coder {
  const char *name;
  unsigned bits;         /* of one element in the body; 0: as the dtype has */
  unsigned params;       /* bytes at the start of the head that are always there */
  unsigned block, scale; /* after them `scale` bytes for each block of `block` elements */
  int by_row;            /* 1: for each row instead; the params begin with the rows (hv_rows_load) */

  /* Reads the whole source before the first unit. NULL: not needed. */
  void (*prepare)(hv_encoder *e);
  /* Encodes the n elements x of the unit that starts at element `at` into out. */
  void (*encode)(hv_encoder *e, uint64_t at, const float *x, size_t n, uint8_t *out);
  /* Completes the head after the last unit. NULL: not needed. */
  void (*finish)(hv_encoder *e);

  /* Loads the parameters. False if no encoder could have written them. NULL: there are none. */
  int (*load)(hv_decoder *d, const uint8_t *params);
  /* True if an encoder could have written these `size` bytes of scales. NULL: there are none. */
  int (*scales_fit)(const uint8_t *scales, size_t size);
  /* True if `size` bytes of the body decode to finite numbers. NULL: they always do. */
  int (*finite)(const hv_decoder *d, const uint8_t *body, size_t size);
  /* Decodes the n <= HV_SLICE elements of a slice. */
  void (*decode)(const hv_decoder *d, const uint8_t *body, size_t n, float *out);
  /* Upper bound of the magnitude of all finite values, whatever the body. NULL: the parameters give none. */
  double (*most)(const hv_decoder *d);
} hv_coder;

extern const hv_coder hv_coder_none, hv_coder_float16, hv_coder_scaled_float16, hv_coder_bfloat16; /* codec_float.c */
extern const hv_coder hv_coder_scaled_rows;                                                        /* codec_float.c */
extern const hv_coder hv_coder_uniform8, hv_coder_blockwise8, hv_coder_linear8, hv_coder_linear4;  /* codec_quant.c */
extern const hv_coder hv_coder_quantile8;                                                          /* codec_quantile.c */

/* Index of the row that has element `at`; the number of rows in count elements. */
static inline uint64_t hv_rows_at(hv_rows rows, uint64_t at) {
  return at < rows.first ? 0 : 1 + (at - rows.first) / rows.width;
}
static inline uint64_t hv_rows_in(hv_rows rows, uint64_t count) {
  return count ? hv_rows_at(rows, count - 1) + 1 : 0;
}
/* Elements from `at` to the end of its row. */
static inline uint64_t hv_rows_left(hv_rows rows, uint64_t at) {
  return at < rows.first ? rows.first - at : rows.width - (at - rows.first) % rows.width;
}
static inline int hv_rows_fit(hv_rows rows) {
  return rows.first >= 1 && rows.first <= rows.width && rows.width <= HV_CODEC_COUNT_MAX;
}
/* As the head of SCALED_ROWS begins. */
static inline hv_rows hv_rows_load(const uint8_t *params) {
  return (hv_rows){hv_load64(params), hv_load64(params + 8)};
}

/* Magnitudes of float32 whose bits are below this, times the weight, are well within HV_CODEC_ADDEND_MAX. */
uint32_t hv_codec_infinity(float weight);

/* n elements of src from `at` on as float32: in place, or converted into scratch. */
const float *hv_coder_source(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t at, size_t n, float *scratch);

/* STATS over the whole source, with the smallest and largest value; all zeros for an empty one. */
hv_measure hv_coder_measure(const hv_kern *kern, hv_dtype dtype, const void *src, uint64_t count);

static inline void hv_store_float(uint8_t *p, float x) {
  hv_store32(p, hv_bits(x));
}
static inline float hv_load_float(const uint8_t *p) {
  return hv_float(hv_load32(p));
}
/* True if |x| <= limit; false for NaN. */
static inline int hv_within(float x, float limit) {
  return x >= -limit && x <= limit;
}

#endif
