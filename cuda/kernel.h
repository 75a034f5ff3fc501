/* The kernels by number, and the struct of arguments that each launch carries.
 *
 * Room: cuda (uses arith). codec.c on the host fills the arguments, hv_cuda_world.launch (world.h) passes them to the device, and
 * the kernels' bodies (body_*.h) read them. They are passed by value, so the host need not keep them until the kernel has run.
 * Terms: a job is one chunk that a launch makes or reads. Its items are the parts that are divided among blocks of threads; each
 * kernel below names its item. A unit is CU_UNIT elements, and a piece is CU_PIECE bytes of a chunk's head or body, which have one
 * digest. The book is the 256 values that the codes of QUANTILE8 stand for. A verdict is the result of a check: an hv_status in the
 * device's memory. STATS, tame and the checksum are defined in docs/design/codecs.md.
 */
#ifndef HV_CUDA_KERNEL_H
#define HV_CUDA_KERNEL_H

#include "cuda/arith.h"

#define CU_THREADS 256u
#define CU_WARPS (CU_THREADS / 32)
#define CU_JOBS 16  /* most jobs of a launch: every driver takes its parameters, below 4 KB, and launches them faster than more */
#define CU_PARTS 64 /* most chunks that one launch adds (CU_K_ADD) */
#define CU_TENSORS 1000 /* most small tensors of one launch (CU_K_GATHER), whose parameters may have 32,764 bytes */
#define CU_FAN 256u     /* partial statistics that CU_K_JOIN joins to one */
#define CU_SAMPLE 16384 /* most elements of the sample from which QUANTILE8 makes its book */

/* The kernels. Each comment begins with the item. runtime.c has the name of each, under which kernels.cu defines it. */
typedef enum cu_kernel {
  CU_K_BEGIN,  /* job: zeroes its state, and the last bytes of the head of a chunk that is made */
  CU_K_SUM,    /* piece of head or body: adds to the checksum; notes values that are not finite, and scales that no encoder makes */
  CU_K_SEAL,   /* job: writes parameters that are known last, adds a head of one piece to the checksum, and writes the header */
  CU_K_JUDGE,  /* job: compares header and checksum with the chunk, and sets the verdict */
  CU_K_DECODE, /* unit: decodes it */
  CU_K_ADD,    /* unit: decodes it in up to 16 chunks, and adds them by weight */

  CU_K_ENCODE_PLAIN,  /* piece of the body: encodes NONE, FLOAT16, BFLOAT16 */
  CU_K_ENCODE_SCALED, /* piece of the body: encodes SCALED_FLOAT16 */
  CU_K_SCALE_ROWS,    /* CU_WARPS rows: writes mean and std of each to the head of SCALED_ROWS */
  CU_K_ENCODE_ROWS,   /* piece of the body: encodes SCALED_ROWS */

  CU_K_MEASURE,          /* CU_WARPS units: computes STATS of each */
  CU_K_JOIN,             /* CU_FAN partial statistics: joins them to one */
  CU_K_PREPARE,          /* job: computes the codec's parameters from its statistics */
  CU_K_ENCODE_UNIFORM,   /* piece of the body */
  CU_K_ENCODE_BLOCKWISE, /* piece of the body */
  CU_K_ENCODE_LINEAR,    /* piece of the body */

  CU_K_RANGE,           /* unit: finds the smallest and the largest value */
  CU_K_BOOK,            /* job: makes the book of QUANTILE8 */
  CU_K_ENCODE_QUANTILE, /* piece of the body */

  CU_K_FINITE, /* unit: sets args.flag if a value is not finite */
  CU_K_FEED,   /* unit: residual = tame(residual + x) */
  CU_K_GATHER, /* unit of one of many small tensors: acc = acc + weight * x, or another mode of cu_gather */
  CU_K_WEIGH,  /* unit: sums the squares of each 1,024 values, and finds the largest */
  CU_K_LIMIT,  /* job: compares these with the limits of a contribution, and sets the verdict */
  CU_KERNELS
} cu_kernel;

/* STATS of one or more units, with their smallest and largest value. */
typedef struct cu_measure {
  double sum, square;
  float low, high;
} cu_measure;

/* The state of a job in the device's memory, from one of its kernels to the next; zeros at first. */
typedef struct cu_state {
  uint64_t sum;                      /* the checksum's sum over its pieces */
  uint64_t n_low, n_high, low, high; /* UNIFORM8: number of values under each end code, and their signed sum (kern/codec.h) */
  uint32_t most_low, most_high;   /* QUANTILE8: float bits of -smallest and largest, at least 0; WEIGH: of the largest magnitude */
  uint32_t bad;                   /* CU_BAD_ flags */
  float mean, std, step, inverse; /* parameters of the codec */
  int32_t base;                   /* QUANTILE8: float bits >> 14 of the largest magnitude that counts as zero */
} cu_state;
enum { CU_BAD_FINITE = 1, CU_BAD_FIT = 2 };

/* Verdicts: the numbers of HV_OK, HV_MALFORMED, HV_CORRUPT, HV_TOO_LARGE and HV_NOT_FINITE, which codec.c asserts. */
enum { CU_FINE = 0, CU_MALFORMED = 4, CU_CORRUPT = 5, CU_TOO_LARGE = 6, CU_NOT_FINITE = 24 };

/* Bytes of cu_job.room for QUANTILE8: the sample as float32, then the table with the code of each cell. */
#define CU_BOOK_BYTES (4 * CU_SAMPLE + CU_CELLS)

/* A job: one chunk that is made, or read. */
typedef struct cu_job {
  uint64_t first;       /* index of its first item in this launch */
  uint64_t count;       /* elements */
  uint8_t *chunk;       /* aligned to 16 */
  const void *src;      /* encoding; WEIGH: float32 values in place of a chunk's */
  void *out;            /* decoding: of args.dtype */
  float *residual;      /* encoding: may be NULL */
  cu_state *state;      /* NULL: there is none */
  uint8_t *room;        /* partial statistics of all levels, or what QUANTILE8 needs; WEIGH: sums of squares */
  int32_t *verdict;     /* JUDGE, LIMIT: set; DECODE: skips the job if it is not 0. NULL: the chunk was checked before */
  uint8_t codec, dtype; /* decoding: those in the chunk's header; encoding: equal for all jobs */
  uint16_t n_inputs;    /* ADD: number of its chunks in args.part */
  uint32_t input;       /* ADD: index of the first of them */
  cu_rows rows;         /* SCALED_ROWS, but for ADD and DECODE, which read them from a chunk that was checked */
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
  uint64_t count, first; /* elements; index of its first item */
} cu_tensor;

typedef struct cu_args {
  uint64_t items;  /* of all jobs together */
  uint32_t blocks; /* blocks of threads in this launch */
  uint32_t n_jobs;
  int32_t codec, dtype;   /* encoding: the codec, and the dtype of src; decoding: dtype of out */
  int32_t named;          /* encoding: the dtype in the header */
  int32_t mode;           /* CU_MODE_ flags */
  uint32_t level;         /* JOIN: level of the statistics that it reads (cu_level) */
  uint32_t *flag;         /* FINITE: set to 1 if a value is not finite */
  float weight, norm_max; /* LIMIT: weight of the chunk's values, and their largest L2 norm; 0: any */
  cu_job job[CU_JOBS];
  cu_part part[CU_PARTS];
} cu_args;
enum {
  CU_MODE_NONE,
  CU_MODE_LOSE = 1,   /* DECODE: residual = residual - v in place of out = v */
  CU_MODE_FINITE = 2, /* JUDGE: values that are not finite spoil the chunk */
};

/* The arguments of GATHER, in place of cu_args. */
typedef struct cu_gather {
  uint64_t items;             /* of all tensors together */
  uint32_t blocks, n_tensors; /* blocks of threads in this launch; tensors */
  int32_t dtype, mode;        /* mode: CU_GATHER_ */
  float weight;               /* ADD, SCALE */
  const int32_t *verdict;     /* if it is not 0, nothing is changed; NULL: there is no verdict */
  cu_tensor tensor[CU_TENSORS];
} cu_gather;
enum {
  CU_GATHER_ADD,
  CU_GATHER_WIDEN,
  CU_GATHER_NARROW,
  CU_GATHER_SCALE, /* acc = weight * src */
  CU_GATHER_CLEAR  /* acc = 0, whatever src has */
};

/* The number of units in `count` elements. */
HV_HD uint64_t cu_units(uint64_t count) {
  return (count + CU_UNIT - 1) / CU_UNIT;
}
/* The number of partial statistics at a level. Level 0 has one for each unit; CU_FAN of a level are joined to one of the next. */
HV_HD uint64_t cu_at_level(uint64_t count, uint32_t level) {
  uint64_t n = cu_units(count);
  for (; level; level--)
    n = (n + CU_FAN - 1) / CU_FAN;
  return n;
}
/* The place in cu_job.room where the statistics of a level begin. */
HV_HD cu_measure *cu_level(uint8_t *room, uint64_t count, uint32_t level) {
  cu_measure *m = (cu_measure *)(void *)room;
  for (uint32_t i = 0; i < level; i++)
    m += cu_at_level(count, i);
  return m;
}

#endif
