/* The kernels by number, and the struct of arguments that each launch carries.
 *
 * Room: cuda (uses arith). Made by codec.c and reduce.c on the host, passed on by the world (world.h), read by the kernels' bodies.
 * It travels by value with the launch, so a launch needs no memory of its own and nothing has to be kept until it has run.
 */
#ifndef HV_CUDA_KERNEL_H
#define HV_CUDA_KERNEL_H

#include "cuda/arith.h"

#define CU_THREADS 256u
#define CU_WARPS (CU_THREADS / 32)
#define CU_JOBS 16      /* in one launch: its parameters are below 4 KB, which every driver takes, and takes sooner than more */
#define CU_PARTS 64     /* inputs of sums in one launch */
#define CU_TENSORS 1000 /* small tensors in one launch: 32,764 bytes of parameters are the most */
#define CU_FAN 256u     /* partial statistics that are joined to one */
#define CU_SAMPLE 16384

/* The room in which the number stands is the file that compiles it. */
typedef enum cu_kernel {
  CU_K_BEGIN,  /* an item: a job. Zeroes its state and the last bytes of its head. */
  CU_K_SUM,    /* a piece of head or body. The checksum's sum; what is not finite or cannot be. */
  CU_K_SEAL,   /* a job. Params that come last, the sum over a short head, the header. */
  CU_K_JUDGE,  /* a job. Whether the chunk is whole: its verdict. */
  CU_K_DECODE, /* a unit of 4,096 elements */
  CU_K_ADD,    /* a unit: weighted decode-and-accumulate of up to 16 chunks */

  CU_K_ENCODE_PLAIN,  /* a piece: NONE, FLOAT16, BFLOAT16 */
  CU_K_ENCODE_SCALED, /* a piece */

  CU_K_MEASURE, /* eight units: STATS of each */
  CU_K_JOIN,    /* CU_FAN partial statistics to one */
  CU_K_PREPARE, /* a job: its params */
  CU_K_ENCODE_UNIFORM,
  CU_K_ENCODE_BLOCKWISE,
  CU_K_ENCODE_LINEAR,

  CU_K_RANGE, /* a unit: smallest and largest */
  CU_K_BOOK,  /* a job */
  CU_K_ENCODE_QUANTILE,

  CU_K_FINITE, /* a unit */
  CU_K_FEED,   /* a unit: residual = tame(residual + x) */
  CU_K_GATHER, /* a unit of any of many small tensors: acc = acc + weight * x */
  CU_K_WEIGH,  /* a unit: the squares of each 1,024 values, and the largest */
  CU_K_LIMIT,  /* a job. Whether its values may count: its verdict. */
  CU_KERNELS
} cu_kernel;

/* STATS of some units, with the smallest and largest value. */
typedef struct cu_measure {
  double sum, square;
  float low, high;
} cu_measure;

/* What the device keeps of a job between its kernels; zero at first. */
typedef struct cu_state {
  uint64_t sum;
  uint64_t n_low, n_high, low, high; /* UNIFORM8's ends; low and high are signed */
  uint32_t most_low, most_high;      /* QUANTILE8: bits of -smallest and of largest, 0 counted in; WEIGH: of the largest */
  uint32_t bad;                      /* CU_BAD_ */
  float mean, std, step, inverse;
  int32_t base;
} cu_state;
enum { CU_BAD_FINITE = 1, CU_BAD_FIT = 2 };

/* Verdicts: HV_OK, HV_MALFORMED, HV_CORRUPT, HV_TOO_LARGE, HV_NOT_FINITE; codec.c holds the numbers to those. */
enum { CU_FINE = 0, CU_MALFORMED = 4, CU_CORRUPT = 5, CU_TOO_LARGE = 6, CU_NOT_FINITE = 24 };

/* QUANTILE8: the sample, then the table from cells to codes. */
#define CU_BOOK_BYTES (4 * CU_SAMPLE + CU_CELLS)

/* One chunk that is made, or read. */
typedef struct cu_job {
  uint64_t first;       /* of its items in this launch */
  uint64_t count;       /* elements */
  uint8_t *chunk;       /* aligned to 16 */
  const void *src;      /* encoding; WEIGH: float32 values in place of a chunk's */
  void *out;            /* decoding: of args.dtype */
  float *residual;      /* encoding: may be NULL */
  cu_state *state;      /* NULL: there is none */
  uint8_t *room;        /* partial statistics of all levels, or what QUANTILE8 needs; WEIGH: sums of squares */
  int32_t *verdict;     /* where it goes; when decoding it is looked at: anything but 0 stops. NULL: it was checked elsewhere */
  uint8_t codec, dtype; /* decoding: what the chunk says; encoding: the same for all */
  uint16_t n_inputs;    /* ADD: so many of args.part, from `input` on */
  uint32_t input;
} cu_job;

/* ADD: a chunk that is added. */
typedef struct cu_part {
  const uint8_t *chunk;
  const int32_t *verdict; /* as in cu_job */
  float weight;
  uint8_t codec, dtype;
} cu_part;

/* GATHER: a small tensor that is added to another, or copied. */
typedef struct cu_tensor {
  const void *src;
  void *acc;             /* float32, but of args.dtype under CU_GATHER_NARROW, whose src is float32 */
  uint64_t count, first; /* elements; of its items */
} cu_tensor;

typedef struct cu_args {
  uint64_t items;
  uint32_t blocks, n_jobs;
  int32_t codec, dtype;   /* encoding: of what is encoded; decoding: of what comes out */
  int32_t named;          /* encoding: the dtype that the header names */
  int32_t mode;           /* CU_MODE_ */
  uint32_t level;         /* JOIN: of what is read */
  uint32_t *flag;         /* FINITE: set to 1 when something is not */
  float weight, norm_max; /* LIMIT */
  cu_job job[CU_JOBS];
  cu_part part[CU_PARTS];
} cu_args;
enum {
  CU_MODE_NONE,
  CU_MODE_LOSE = 1,   /* DECODE: residual = residual - v in place of out = v */
  CU_MODE_FINITE = 2, /* JUDGE: values that are not finite spoil the chunk */
};

/* GATHER has a struct of its own. */
typedef struct cu_gather {
  uint64_t items;
  uint32_t blocks, n_tensors;
  int32_t dtype, mode;
  float weight;           /* ADD, SCALE */
  const int32_t *verdict; /* anything but 0 stops; NULL: nothing does */
  cu_tensor tensor[CU_TENSORS];
} cu_gather;
enum {
  CU_GATHER_ADD,
  CU_GATHER_WIDEN,
  CU_GATHER_NARROW,
  CU_GATHER_SCALE, /* acc = weight * src */
  CU_GATHER_CLEAR  /* acc = 0, whatever src has */
};

/* Partial statistics at a level: CU_FAN of one level make one of the next. */
HV_HD uint64_t cu_units(uint64_t count) {
  return (count + CU_UNIT - 1) / CU_UNIT;
}
HV_HD uint64_t cu_at_level(uint64_t count, uint32_t level) {
  uint64_t n = cu_units(count);
  for (; level; level--)
    n = (n + CU_FAN - 1) / CU_FAN;
  return n;
}
HV_HD cu_measure *cu_level(uint8_t *room, uint64_t count, uint32_t level) {
  cu_measure *m = (cu_measure *)(void *)room;
  for (uint32_t i = 0; i < level; i++)
    m += cu_at_level(count, i);
  return m;
}

#endif
