/* The GPU part's entry points: the codecs of kern/codec.h as CUDA kernels.
 *
 * Room: cuda (uses kern, base). A shared object of its own, libhivemind_cuda.so, which is in every installation and which bind
 * loads where there is a GPU (its one exported symbol is hv_cuda_api_of); nothing links to it. docs/design/gpu.md tells what
 * hardware has shown and what not. The bytes are the CPU's: what is encoded here equals what hv_codec_encode makes of the same
 * values, to the bit, and values decoded here equal hv_codec_decode's (but for the payload of a NaN). Sources and results are
 * float32, float16 or bfloat16. All work is put on the caller's stream (a CUstream as void *), in order, and nothing waits for the
 * device: memory that is handed in is the caller's until that work is done. Pointers are the device's unless said otherwise.
 * Nothing is allocated. Threads: any; calls with different streams and different memory may run at once. Errors: HV_INVALID for
 * what cannot be, HV_NOMEM when the device has no more, HV_IO when it fails (lost, an illegal address), with the driver's own words
 * in err. After HV_IO the device is not to be used again by this process.
 */
#ifndef HV_CUDA_H
#define HV_CUDA_H

#include "kern/codec.h"
#include "kern/device.h"

#define HV_CUDA_VERSION 5u
#define HV_CUDA_INPUTS_MAX 16 /* that one sum adds at once */

typedef struct hv_cuda hv_cuda; /* one device */

/* One chunk that is made. */
typedef struct hv_cuda_source {
  const void *src; /* count elements, aligned as those are */
  float *residual; /* error feedback as in hv_codec_encode, or NULL: all of a call have one, or none */
  uint8_t *chunk;  /* hv_codec_bound_rows bytes, aligned to 16 */
  uint64_t count;
  hv_rows rows; /* as hv_codec_encode_rows takes them */
} hv_cuda_source;

/* Bytes of scratch that these need. */
size_t hv_cuda_encode_room(hv_codec codec, const hv_cuda_source *sources, size_t n);

/* Encodes n tensors under one codec. scratch: aligned to 256, hv_cuda_encode_room bytes (HV_TOO_LARGE: room is less), free again
 * when the stream has come so far. */
hv_status hv_cuda_encode(const hv_cuda *cuda, void *stream, hv_codec codec, hv_dtype dtype, const hv_cuda_source *sources, size_t n,
                         void *scratch, size_t room, hv_error *err);

/* One chunk that is read. Its kind was read by hv_codec_peek from the host's copy of its header; check holds the device's to it.
 */
typedef struct hv_cuda_target {
  const uint8_t *chunk; /* aligned to 16 */
  hv_codec codec;
  hv_dtype dtype; /* of its source: not float64 (HV_UNSUPPORTED) */
  uint64_t count;
  void *out;        /* decode alone */
  int32_t *verdict; /* an hv_status in the device's memory. NULL when decoding: the chunk was checked before, here or on the host */
  hv_rows rows;     /* as hv_codec_peek has them */
} hv_cuda_target;

/* Bytes of scratch that a check of n chunks needs. */
size_t hv_cuda_check_room(size_t n);

/* The same as hv_codec_check, for n chunks: each verdict becomes HV_OK, HV_CORRUPT, HV_MALFORMED, or, when finite is 1,
 * HV_NOT_FINITE. scratch as above. */
hv_status hv_cuda_check(const hv_cuda *cuda, void *stream, const hv_cuda_target *targets, size_t n, int finite, void *scratch,
                        size_t room, hv_error *err);

/* Decodes n chunks into outs of dtype; one whose verdict is not HV_OK by then is left out, and its out is as before. */
hv_status hv_cuda_decode(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_target *targets, size_t n, hv_error *err);

typedef struct hv_cuda_input {
  const uint8_t *chunk;
  hv_codec codec;
  hv_dtype dtype;
  float weight;           /* as hv_codec_accumulate takes it */
  const int32_t *verdict; /* as above: it counts whole or not at all */
} hv_cuda_input;
typedef struct hv_cuda_sum {
  float *acc; /* count elements */
  uint64_t count;
  const hv_cuda_input *inputs; /* the host's; chunks of count elements each */
  size_t n_inputs;             /* 1 .. HV_CUDA_INPUTS_MAX */
} hv_cuda_sum;

/* acc = acc + weight * value for each input in turn, product and sum rounded one after the other: in one pass over acc, for n sums.
 */
hv_status hv_cuda_add(const hv_cuda *cuda, void *stream, const hv_cuda_sum *sums, size_t n, hv_error *err);

/* Bytes of scratch that hv_cuda_limit needs. */
size_t hv_cuda_limit_room(uint64_t count);

/* The questions of hv_codec_accumulate_within beyond a check, of a chunk with a verdict (its out is not looked at), or of `row`,
 * count float32 values in its place, when that is not NULL: a verdict of HV_OK becomes HV_TOO_LARGE, or a row's HV_NOT_FINITE. */
hv_status hv_cuda_limit(const hv_cuda *cuda, void *stream, const hv_cuda_target *target, const float *row, float weight,
                        float norm_max, void *scratch, size_t room, hv_error *err);

/* Sets *flag (the device's) to 1 when an element is NaN or infinite, and leaves it alone otherwise. */
hv_status hv_cuda_finite(const hv_cuda *cuda, void *stream, hv_dtype dtype, const void *src, uint64_t count, uint32_t *flag,
                         hv_error *err);

typedef struct hv_cuda_pair {
  const void *src;
  void *acc; /* float32, but for narrow */
  uint64_t count;
} hv_cuda_pair;

/* acc = acc + weight * src for n tensors of one dtype, as hv_reduce_accumulate has it: one launch for each thousand. */
hv_status hv_cuda_accumulate(const hv_cuda *cuda, void *stream, hv_dtype dtype, float weight, const hv_cuda_pair *pairs, size_t n,
                             hv_error *err);

/* acc = src as float32, for n tensors of one dtype; and acc = src, which is float32, rounded to dtype as hv_reduce_convert has it,
 * unless there is a verdict that is not HV_OK by then. */
hv_status hv_cuda_widen(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_pair *pairs, size_t n, hv_error *err);
hv_status hv_cuda_narrow(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_pair *pairs, size_t n,
                         const int32_t *verdict, hv_error *err);

/* Of a row of float32 values: acc = 0; acc = acc * factor; and acc = acc + weight * row, unless there is a verdict that is not
 * HV_OK by then. */
hv_status hv_cuda_row_clear(const hv_cuda *cuda, void *stream, float *acc, uint64_t count, hv_error *err);
hv_status hv_cuda_row_scale(const hv_cuda *cuda, void *stream, float factor, float *acc, uint64_t count, hv_error *err);
hv_status hv_cuda_row_add(const hv_cuda *cuda, void *stream, float weight, const float *row, float *acc, uint64_t count,
                          const int32_t *verdict, hv_error *err);

/* ---- chunk by chunk between the device and page-locked memory (stage.c) ---- */

typedef struct hv_stage hv_stage;

/* The use of a stage; under SCALED_ROWS each chunk is one row: it holds slots * (a chunk's bytes) page-locked, and as much on
 * the device with a little scratch. */
typedef struct hv_stage_shape {
  hv_codec codec;
  hv_dtype dtype;        /* of the tensors on the device */
  uint32_t chunk_values; /* 1 .. 2^30 */
  uint32_t slots;        /* 2 .. HV_STAGE_SLOTS_MAX: so many chunks are under way at once */
  size_t pinned_most;    /* bytes of page-locked memory: HV_BUDGET when the slots need more */
} hv_stage_shape;
#define HV_STAGE_SLOTS_MAX 16

/* Takes the memory, a copy stream and the events; all of it goes with hv_stage_free, whatever state the device is in. The stage
 * borrows cuda and mem. One thread at a time uses a stage; one device may have many. */
hv_status hv_stage_new(const hv_cuda *cuda, hv_mem *mem, const hv_stage_shape *shape, hv_stage **out, hv_error *err);
void hv_stage_free(hv_stage *stage); /* NULL is fine */

/* Gets chunk `index`'s bytes, page-locked and good until it returns. Anything but HV_OK ends the sending with that. */
typedef hv_status (*hv_stage_sink)(void *arg, uint64_t index, hv_span bytes, hv_error *err);
/* Encodes count values at src chunk by chunk: while one is encoded on stream the one before is copied on a stream of its own, and
 * the one before that is with sink. The chunks come in order, on this thread, each once. */
hv_status hv_stage_send(hv_stage *stage, void *stream, const void *src, uint64_t count, hv_stage_sink sink, void *arg,
                        hv_error *err);

/* Puts chunk `index` as it came from elsewhere into bytes (page-locked, `room` of them), and says how many; it may take its time.
 */
typedef hv_status (*hv_stage_well)(void *arg, uint64_t index, uint8_t *bytes, size_t room, size_t *size, hv_error *err);
/* The other way, into count values at out. Each chunk is checked on the device before it is decoded there: HV_MALFORMED,
 * HV_CORRUPT, HV_NOT_FINITE of the first chunk that is wrong; its values are as before, those of the next `slots` may have been
 * written. When this returns, whatever it says, nothing of it is under way any more unless the device is lost. */
hv_status hv_stage_receive(hv_stage *stage, void *stream, void *out, uint64_t count, hv_stage_well well, void *arg, hv_error *err);

/* ---- the tensors of rounds (transfers.c) ---- */

typedef struct hv_transfers hv_transfers;

/* A transfers has slots, each with a stream of its own and, page-locked and on the device, the room of one chunk of chunk_values;
 * and on the device sums of as many values. */
typedef struct hv_transfers_shape {
  uint32_t chunk_values; /* 1 .. 2^20: of the largest chunk that will come */
  uint32_t slots;        /* 1 .. HV_TRANSFERS_SLOTS_MAX: so many chunks are under way at once; who comes then waits */
  uint32_t sums;         /* 0 .. HV_TRANSFERS_SUMS_MAX: so many chunks are added up on the device at once; more are the host's */
  size_t pinned_most;    /* bytes of page-locked memory: HV_BUDGET when the slots need more */
} hv_transfers_shape;
#define HV_TRANSFERS_SLOTS_MAX 16
#define HV_TRANSFERS_SUMS_MAX 64
#define HV_TRANSFERS_SUMS 8 /* that the owner of a round has open at once */

/* Takes all its memory, streams and events; nothing is taken later but tables of many small tensors. Borrows cuda and mem. */
hv_status hv_transfers_new(const hv_cuda *cuda, hv_mem *mem, const hv_transfers_shape *shape, hv_transfers **out, hv_error *err);
void hv_transfers_free(hv_transfers *transfers); /* when nobody is in it; whatever state the device is in. NULL is fine */
/* The table for core/round/run.h, as long as the transfers lives; float32, float16 and bfloat16. Any thread, several at once; each
 * call waits for its own work on the device alone. After an HV_IO every further call is HV_IO. */
const hv_device *hv_transfers_device(hv_transfers *transfers);
/* Work asked from now on is done after all that is on this stream now. */
hv_status hv_transfers_follow(hv_transfers *transfers, void *stream, hv_error *err);
/* HV_OK, or the first error of the device, with its words. */
hv_status hv_transfers_why(hv_transfers *transfers, hv_error *err);

/* ---- what the shared object gives ---- */

/* The tools of the kernels: NVRTC libraries (paths, or names that the loader knows) in the order in which they are tried, and
 * the folder where what they made is kept (NULL: nowhere). */
typedef struct hv_cuda_kit {
  const char *const *compilers;
  size_t n_compilers;
  const char *cache;
} hv_cuda_kit;

typedef struct hv_cuda_api {
  int device_type; /* of the tensors that it takes, as DLPack counts: 2 is CUDA; a test's stand-in takes the CPU's */
  /* Opens device `index` as CUDA counts: finds the kernels in the cache, or compiles them, which takes some ten seconds. note (may
   * be NULL): a sentence if they were compiled; its status is not HV_OK if they could not be kept, and they are used nevertheless.
   * HV_NOT_FOUND: no GPU, no driver or no compiler, and err says which; HV_UNSUPPORTED: an older one than the kernels need. */
  hv_status (*open)(int index, const hv_cuda_kit *kit, hv_cuda **out, hv_error *note, hv_error *err);
  void (*close)(hv_cuda *cuda);
  size_t (*encode_room)(hv_codec codec, const hv_cuda_source *sources, size_t n);
  hv_status (*encode)(const hv_cuda *cuda, void *stream, hv_codec codec, hv_dtype dtype, const hv_cuda_source *sources, size_t n,
                      void *scratch, size_t room, hv_error *err);
  size_t (*check_room)(size_t n);
  hv_status (*check)(const hv_cuda *cuda, void *stream, const hv_cuda_target *targets, size_t n, int finite, void *scratch,
                     size_t room, hv_error *err);
  hv_status (*decode)(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_target *targets, size_t n, hv_error *err);
  hv_status (*add)(const hv_cuda *cuda, void *stream, const hv_cuda_sum *sums, size_t n, hv_error *err);
  hv_status (*finite)(const hv_cuda *cuda, void *stream, hv_dtype dtype, const void *src, uint64_t count, uint32_t *flag,
                      hv_error *err);
  hv_status (*accumulate)(const hv_cuda *cuda, void *stream, hv_dtype dtype, float weight, const hv_cuda_pair *pairs, size_t n,
                          hv_error *err);
  hv_status (*stage_new)(const hv_cuda *cuda, hv_mem *mem, const hv_stage_shape *shape, hv_stage **out, hv_error *err);
  void (*stage_free)(hv_stage *stage);
  hv_status (*send)(hv_stage *stage, void *stream, const void *src, uint64_t count, hv_stage_sink sink, void *arg, hv_error *err);
  hv_status (*receive)(hv_stage *stage, void *stream, void *out, uint64_t count, hv_stage_well well, void *arg, hv_error *err);
  hv_status (*transfers_new)(const hv_cuda *cuda, hv_mem *mem, const hv_transfers_shape *shape, hv_transfers **out, hv_error *err);
  void (*transfers_free)(hv_transfers *transfers);
  const hv_device *(*transfers_device)(hv_transfers *transfers);
  hv_status (*transfers_follow)(hv_transfers *transfers, void *stream, hv_error *err);
  hv_status (*transfers_why)(hv_transfers *transfers, hv_error *err);
} hv_cuda_api;

/* The table of this version, or NULL when the library has another one. */
__attribute__((visibility("default"))) const hv_cuda_api *hv_cuda_api_of(uint32_t version);

#endif
