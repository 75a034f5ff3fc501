#include "cuda/hv_cuda.h"

#include "cuda/world.h"

_Static_assert(CU_NONE == (int)HV_CODEC_NONE && CU_FLOAT16 == (int)HV_CODEC_FLOAT16 && CU_SCALED == (int)HV_CODEC_SCALED_FLOAT16 &&
                   CU_BFLOAT16 == (int)HV_CODEC_BFLOAT16 && CU_UNIFORM8 == (int)HV_CODEC_UNIFORM8 &&
                   CU_QUANTILE8 == (int)HV_CODEC_QUANTILE8 && CU_BLOCKWISE8 == (int)HV_CODEC_BLOCKWISE8 &&
                   CU_LINEAR8 == (int)HV_CODEC_LINEAR8 && CU_LINEAR4 == (int)HV_CODEC_LINEAR4 &&
                   CU_ROWS == (int)HV_CODEC_SCALED_ROWS,
               "the kernels know the codecs by these numbers");
_Static_assert(CU_F32 == (int)HV_DTYPE_FLOAT32 && CU_F16 == (int)HV_DTYPE_FLOAT16 && CU_BF16 == (int)HV_DTYPE_BFLOAT16,
               "and dtypes");
_Static_assert(CU_FINE == (int)HV_OK && CU_MALFORMED == (int)HV_MALFORMED && CU_CORRUPT == (int)HV_CORRUPT &&
                   CU_TOO_LARGE == (int)HV_TOO_LARGE && CU_NOT_FINITE == (int)HV_NOT_FINITE,
               "and verdicts");
_Static_assert(CU_ADDEND_MAX == (double)HV_CODEC_ADDEND_MAX, "and the largest addend");
_Static_assert(sizeof(cu_args) <= 32764 && sizeof(cu_gather) <= 32764, "what a launch can carry");

#define ALIGN(x) (((x) + 255) / 256 * 256)

static int takes(int dtype) {
  return dtype == HV_DTYPE_FLOAT32 || dtype == HV_DTYPE_FLOAT16 || dtype == HV_DTYPE_BFLOAT16;
}
static int aligned(const void *p, size_t to) {
  return (uintptr_t)p % to == 0;
}
static uint64_t over(uint64_t n, uint64_t each) {
  return (n + each - 1) / each;
}

/* ---- launches ---- */

/* How many items a job has in a launch. */
typedef uint64_t (*items_of)(const cu_args *a, const cu_job *job);

static uint64_t units(const cu_args *a, const cu_job *job) {
  (void)a;
  return cu_units(job->count);
}
static uint64_t measures(const cu_args *a, const cu_job *job) {
  (void)a;
  return over(cu_units(job->count), CU_WARPS);
}
static uint64_t body_pieces(const cu_args *a, const cu_job *job) {
  return over(cu_body_bytes(a->codec, a->dtype, job->count), CU_PIECE);
}
static uint64_t long_head_pieces(const cu_args *a, const cu_job *job) {
  uint64_t head = cu_head_bytes(a->codec, job->count, job->rows);
  return head > CU_PIECE ? over(head, CU_PIECE) : 0;
}
static uint64_t all_pieces(const cu_args *a, const cu_job *job) {
  (void)a;
  uint64_t head = cu_head_bytes(job->codec, job->count, job->rows);
  return over(head, CU_PIECE) + over(cu_body_bytes(job->codec, job->dtype, job->count), CU_PIECE);
}
static uint64_t warps_of_rows(const cu_args *a, const cu_job *job) {
  (void)a;
  return over(cu_rows_in(job->rows, job->count), CU_WARPS);
}
static uint64_t joins(const cu_args *a, const cu_job *job) {
  return cu_at_level(job->count, a->level) > 1 ? cu_at_level(job->count, a->level + 1) : 0;
}

static hv_status start(const hv_cuda *cuda, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err) {
  return cuda->world.launch(cuda->world.self, stream, kernel, blocks, args, err);
}

/* As many blocks as run at a time, each with an equal share of the items: with more, the last of them would run alone. */
static uint32_t blocks_for(const hv_cuda *cuda, cu_kernel kernel, uint64_t items) {
  uint64_t most = cuda->world.holds[kernel];
  return (uint32_t)(items < most ? items : most);
}

static hv_status spread(const hv_cuda *cuda, void *stream, cu_kernel kernel, cu_args *a, items_of count, hv_error *err) {
  a->items = 0;
  for (uint32_t i = 0; i < a->n_jobs; i++) {
    a->job[i].first = a->items;
    a->items += count(a, &a->job[i]);
  }
  a->blocks = blocks_for(cuda, kernel, a->items);
  return a->items ? start(cuda, stream, kernel, a->blocks, a, err) : HV_OK;
}
/* One block for each job, or one thread for each. */
static hv_status by_job(const hv_cuda *cuda, void *stream, cu_kernel kernel, cu_args *a, hv_error *err) {
  return start(cuda, stream, kernel, a->n_jobs, a, err);
}
static hv_status by_thread(const hv_cuda *cuda, void *stream, cu_kernel kernel, cu_args *a, hv_error *err) {
  return start(cuda, stream, kernel, (a->n_jobs + CU_THREADS - 1) / CU_THREADS, a, err);
}

/* ---- encoding ---- */

static int measured(int codec) {
  return codec == HV_CODEC_SCALED_FLOAT16 || codec == HV_CODEC_UNIFORM8;
}

/* Scratch of one job, behind its state. */
static size_t job_room(int codec, uint64_t count) {
  size_t measure_bytes = 0;
  if (measured(codec) && count) {
    uint32_t level = 0;
    for (; cu_at_level(count, level) > 1; level++)
      measure_bytes += cu_at_level(count, level) * sizeof(cu_measure);
    measure_bytes += sizeof(cu_measure);
  }
  return ALIGN(codec == HV_CODEC_QUANTILE8 ? CU_BOOK_BYTES : measure_bytes);
}

static size_t states_room(size_t n) {
  return ALIGN((n < CU_JOBS ? n : CU_JOBS) * sizeof(cu_state));
}

/* Batches of CU_JOBS use the same scratch, one after the other on the stream. */
size_t hv_cuda_encode_room(hv_codec codec, const hv_cuda_source *sources, size_t n) {
  size_t most = 0;
  for (size_t at = 0; at < n; at += CU_JOBS) {
    size_t batch = 0;
    for (size_t i = at; i < n && i < at + CU_JOBS; i++)
      batch += job_room((int)codec, sources[i].count);
    most = batch > most ? batch : most;
  }
  return states_room(n) + most;
}

static hv_status measure_all(const hv_cuda *cuda, void *stream, cu_args *a, hv_error *err) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < a->n_jobs; i++)
    most = a->job[i].count > most ? a->job[i].count : most;
  hv_status status = spread(cuda, stream, CU_K_MEASURE, a, measures, err);
  for (a->level = 0; status == HV_OK && cu_at_level(most, a->level) > 1; a->level++)
    status = spread(cuda, stream, CU_K_JOIN, a, joins, err);
  return status == HV_OK ? by_thread(cuda, stream, CU_K_PREPARE, a, err) : status;
}

static cu_kernel encoder_of(int codec) {
  static const cu_kernel encoders[HV_CODEC_COUNT] = {
      [HV_CODEC_NONE] = CU_K_ENCODE_PLAIN,           [HV_CODEC_FLOAT16] = CU_K_ENCODE_PLAIN,
      [HV_CODEC_BFLOAT16] = CU_K_ENCODE_PLAIN,       [HV_CODEC_SCALED_FLOAT16] = CU_K_ENCODE_SCALED,
      [HV_CODEC_UNIFORM8] = CU_K_ENCODE_UNIFORM,     [HV_CODEC_QUANTILE8] = CU_K_ENCODE_QUANTILE,
      [HV_CODEC_BLOCKWISE8] = CU_K_ENCODE_BLOCKWISE, [HV_CODEC_LINEAR8] = CU_K_ENCODE_LINEAR,
      [HV_CODEC_LINEAR4] = CU_K_ENCODE_LINEAR,       [HV_CODEC_SCALED_ROWS] = CU_K_ENCODE_ROWS,
  };
  return encoders[codec];
}

/* From here on the residuals are what is encoded; the header still names the tensors' dtype. */
static hv_status feed(const hv_cuda *cuda, void *stream, cu_args *a, hv_error *err) {
  hv_status status = spread(cuda, stream, CU_K_FEED, a, units, err);
  for (uint32_t i = 0; i < a->n_jobs; i++)
    a->job[i].src = a->job[i].residual;
  a->dtype = HV_DTYPE_FLOAT32;
  return status;
}

static hv_status encode_batch(const hv_cuda *cuda, void *stream, cu_args *a, int feedback, hv_error *err) {
  hv_status status = by_thread(cuda, stream, CU_K_BEGIN, a, err);
  if (status == HV_OK && feedback)
    status = feed(cuda, stream, a, err);
  if (status == HV_OK && measured(a->codec))
    status = measure_all(cuda, stream, a, err);
  if (status == HV_OK && a->codec == HV_CODEC_SCALED_ROWS)
    status = spread(cuda, stream, CU_K_SCALE_ROWS, a, warps_of_rows, err);
  if (status == HV_OK && a->codec == HV_CODEC_QUANTILE8) {
    status = spread(cuda, stream, CU_K_RANGE, a, units, err);
    if (status == HV_OK)
      status = by_job(cuda, stream, CU_K_BOOK, a, err);
  }
  if (status == HV_OK)
    status = spread(cuda, stream, encoder_of(a->codec), a, body_pieces, err);
  if (status == HV_OK)
    status = spread(cuda, stream, CU_K_SUM, a, long_head_pieces, err);
  if (status == HV_OK)
    status = by_job(cuda, stream, CU_K_SEAL, a, err);
  a->mode = CU_MODE_LOSE;
  return status == HV_OK && feedback ? spread(cuda, stream, CU_K_DECODE, a, units, err) : status;
}

/* Rows as the kernels take them. */
static cu_rows rows_of(hv_codec codec, uint64_t count, hv_rows rows) {
  uint64_t one = count ? count : 1;
  if (codec != HV_CODEC_SCALED_ROWS)
    return (cu_rows){0, 0};
  return rows.width || rows.first ? (cu_rows){rows.width, rows.first} : (cu_rows){one, one};
}

static hv_status check_source(hv_codec codec, hv_dtype dtype, const hv_cuda_source *s, int feedback, hv_error *err) {
  if (!takes((int)dtype) || !hv_codec_bound_rows((int)codec, (int)dtype, s->count, s->rows))
    return hv_fail(err, HV_INVALID, "there is no chunk of this codec, dtype and count on a GPU");
  if (s->count && (!s->src || !aligned(s->src, hv_dtype_size((int)dtype))))
    return hv_fail(err, HV_INVALID, "a tensor must lie at a multiple of its element's size");
  if (!s->chunk || !aligned(s->chunk, 16))
    return hv_fail(err, HV_INVALID, "a chunk on a GPU must lie at a multiple of 16 bytes");
  if (feedback != (s->residual != NULL) || !aligned(s->residual, 4))
    return hv_fail(err, HV_INVALID, "all tensors of one call have a residual, or none has");
  return HV_OK;
}

hv_status hv_cuda_encode(const hv_cuda *cuda, void *stream, hv_codec codec, hv_dtype dtype, const hv_cuda_source *sources, size_t n,
                         void *scratch, size_t room, hv_error *err) {
  int feedback = n && sources[0].residual;
  for (size_t i = 0; i < n; i++) {
    hv_status status = check_source(codec, dtype, &sources[i], feedback, err);
    if (status != HV_OK)
      return status;
  }
  if (n && room < hv_cuda_encode_room(codec, sources, n))
    return hv_fail(err, HV_TOO_LARGE, "the scratch memory is too small");
  if (n && (!scratch || !aligned(scratch, 256)))
    return hv_fail(err, HV_INVALID, "scratch memory must lie at a multiple of 256 bytes");
  hv_status status = HV_OK;
  for (size_t at = 0; at < n && status == HV_OK; at += CU_JOBS) {
    cu_args a = {.codec = (int32_t)codec, .dtype = (int32_t)dtype, .named = (int32_t)dtype};
    uint8_t *more = (uint8_t *)scratch + states_room(n);
    for (size_t i = at; i < n && i < at + CU_JOBS; i++, a.n_jobs++) {
      a.job[a.n_jobs] =
          (cu_job){.count = sources[i].count,
                   .chunk = sources[i].chunk,
                   .src = sources[i].count ? sources[i].src : sources[i].chunk, /* something: it is an encoder's job */
                   .residual = sources[i].residual,
                   .state = (cu_state *)scratch + a.n_jobs,
                   .room = more,
                   .codec = (uint8_t)codec,
                   .dtype = (uint8_t)dtype,
                   .rows = rows_of(codec, sources[i].count, sources[i].rows)};
      more += job_room((int)codec, sources[i].count);
    }
    status = encode_batch(cuda, stream, &a, feedback && codec != HV_CODEC_NONE, err);
  }
  return status;
}

/* ---- reading ---- */

static hv_status check_chunk(const uint8_t *chunk, hv_codec codec, hv_dtype dtype, uint64_t count, hv_rows rows, hv_error *err) {
  if (dtype == HV_DTYPE_FLOAT64)
    return hv_fail(err, HV_UNSUPPORTED, "chunks of float64 tensors are not read on a GPU: decode them on the host");
  if (!takes((int)dtype) || !hv_codec_bound_rows((int)codec, (int)dtype, count, rows))
    return hv_fail(err, HV_INVALID, "there is no chunk of this codec, dtype and count on a GPU");
  if (!chunk || !aligned(chunk, 16))
    return hv_fail(err, HV_INVALID, "a chunk on a GPU must lie at a multiple of 16 bytes");
  return HV_OK;
}

static cu_job reading(const hv_cuda_target *t) {
  return (cu_job){.count = t->count,
                  .chunk = (uint8_t *)(uintptr_t)t->chunk,
                  .out = t->out,
                  .verdict = t->verdict,
                  .codec = (uint8_t)t->codec,
                  .dtype = (uint8_t)t->dtype,
                  .rows = rows_of(t->codec, t->count, t->rows)};
}

size_t hv_cuda_check_room(size_t n) {
  return states_room(n);
}

hv_status hv_cuda_check(const hv_cuda *cuda, void *stream, const hv_cuda_target *targets, size_t n, int finite, void *scratch,
                        size_t room, hv_error *err) {
  hv_status status = HV_OK;
  for (size_t i = 0; i < n && status == HV_OK; i++) {
    status = check_chunk(targets[i].chunk, targets[i].codec, targets[i].dtype, targets[i].count, targets[i].rows, err);
    if (status == HV_OK && (!targets[i].verdict || !aligned(targets[i].verdict, 4)))
      status = hv_fail(err, HV_INVALID, "a check needs room for its verdict");
  }
  if (status == HV_OK && n && room < hv_cuda_check_room(n))
    return hv_fail(err, HV_TOO_LARGE, "the scratch memory is too small");
  if (status == HV_OK && n && (!scratch || !aligned(scratch, 256)))
    return hv_fail(err, HV_INVALID, "scratch memory must lie at a multiple of 256 bytes");
  for (size_t at = 0; at < n && status == HV_OK; at += CU_JOBS) {
    cu_args a = {.mode = finite ? CU_MODE_FINITE : CU_MODE_NONE};
    for (size_t i = at; i < n && i < at + CU_JOBS; i++, a.n_jobs++) {
      a.job[a.n_jobs] = reading(&targets[i]);
      a.job[a.n_jobs].state = (cu_state *)scratch + a.n_jobs;
    }
    status = by_thread(cuda, stream, CU_K_BEGIN, &a, err);
    if (status == HV_OK)
      status = spread(cuda, stream, CU_K_SUM, &a, all_pieces, err);
    if (status == HV_OK)
      status = by_thread(cuda, stream, CU_K_JUDGE, &a, err);
  }
  return status;
}

hv_status hv_cuda_decode(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_target *targets, size_t n,
                         hv_error *err) {
  hv_status status = takes((int)dtype) ? HV_OK : hv_fail(err, HV_INVALID, "a GPU decodes to float32, float16 or bfloat16");
  for (size_t i = 0; i < n && status == HV_OK; i++) {
    status = check_chunk(targets[i].chunk, targets[i].codec, targets[i].dtype, targets[i].count, targets[i].rows, err);
    if (status == HV_OK && targets[i].count && (!targets[i].out || !aligned(targets[i].out, hv_dtype_size((int)dtype))))
      status = hv_fail(err, HV_INVALID, "a tensor must lie at a multiple of its element's size");
  }
  for (size_t at = 0; at < n && status == HV_OK; at += CU_JOBS) {
    cu_args a = {.dtype = (int32_t)dtype};
    for (size_t i = at; i < n && i < at + CU_JOBS; i++)
      a.job[a.n_jobs++] = reading(&targets[i]);
    status = spread(cuda, stream, CU_K_DECODE, &a, units, err);
  }
  return status;
}

/* ---- sums ---- */

static hv_status check_sum(const hv_cuda_sum *sum, hv_error *err) {
  if (!sum->n_inputs || sum->n_inputs > HV_CUDA_INPUTS_MAX)
    return hv_fail(err, HV_INVALID, "a sum has 1 to %d inputs", HV_CUDA_INPUTS_MAX);
  if (sum->count && (!sum->acc || !aligned(sum->acc, 4)))
    return hv_fail(err, HV_INVALID, "a tensor must lie at a multiple of its element's size");
  for (size_t i = 0; i < sum->n_inputs; i++) {
    const hv_cuda_input *in = &sum->inputs[i];
    hv_status status = check_chunk(in->chunk, in->codec, in->dtype, sum->count, (hv_rows){0}, err);
    if (status != HV_OK)
      return status;
    if (!(in->weight >= 0 && in->weight <= HV_CODEC_WEIGHT_MAX))
      return hv_fail(err, HV_INVALID, "a weight is in [0, 2^64]");
  }
  return HV_OK;
}

hv_status hv_cuda_add(const hv_cuda *cuda, void *stream, const hv_cuda_sum *sums, size_t n, hv_error *err) {
  hv_status status = HV_OK;
  for (size_t i = 0; i < n && status == HV_OK; i++)
    status = check_sum(&sums[i], err);
  for (size_t at = 0; at < n && status == HV_OK;) {
    cu_args a = {.dtype = HV_DTYPE_FLOAT32};
    uint32_t n_parts = 0;
    for (; at < n && a.n_jobs < CU_JOBS && n_parts + sums[at].n_inputs <= CU_PARTS; at++) {
      const hv_cuda_sum *sum = &sums[at];
      a.job[a.n_jobs++] = (cu_job){.count = sum->count, .out = sum->acc, .n_inputs = (uint16_t)sum->n_inputs, .input = n_parts};
      for (size_t i = 0; i < sum->n_inputs; i++)
        a.part[n_parts++] = (cu_part){.chunk = sum->inputs[i].chunk,
                                      .verdict = sum->inputs[i].verdict,
                                      .weight = sum->inputs[i].weight,
                                      .codec = (uint8_t)sum->inputs[i].codec,
                                      .dtype = (uint8_t)sum->inputs[i].dtype};
    }
    status = spread(cuda, stream, CU_K_ADD, &a, units, err);
  }
  return status;
}

/* ---- limits ---- */

static size_t squares_room(uint64_t count) {
  return ALIGN(cu_slices(count) * sizeof(double));
}

size_t hv_cuda_limit_room(uint64_t count) {
  return states_room(1) + squares_room(count);
}

hv_status hv_cuda_limit(const hv_cuda *cuda, void *stream, const hv_cuda_target *target, const float *row, float weight,
                        float norm_max, void *scratch, size_t room, hv_error *err) {
  hv_status status = row ? HV_OK : check_chunk(target->chunk, target->codec, target->dtype, target->count, target->rows, err);
  if (status == HV_OK && (!aligned(row, 4) || target->count > HV_CODEC_COUNT_MAX))
    status = hv_fail(err, HV_INVALID, "a tensor must lie at a multiple of its element's size");
  if (status == HV_OK && (!target->verdict || !aligned(target->verdict, 4)))
    status = hv_fail(err, HV_INVALID, "a check needs room for its verdict");
  if (status == HV_OK && room < hv_cuda_limit_room(target->count))
    status = hv_fail(err, HV_TOO_LARGE, "the scratch memory is too small");
  if (status == HV_OK && (!scratch || !aligned(scratch, 256)))
    status = hv_fail(err, HV_INVALID, "scratch memory must lie at a multiple of 256 bytes");
  if (status != HV_OK)
    return status;
  cu_args a = {.n_jobs = 1, .weight = weight, .norm_max = norm_max};
  a.job[0] = reading(target);
  a.job[0].state = scratch;
  a.job[0].room = (uint8_t *)scratch + states_room(1);
  status = by_thread(cuda, stream, CU_K_BEGIN, &a, err);
  a.job[0].src = row;
  if (status == HV_OK)
    status = spread(cuda, stream, CU_K_WEIGH, &a, units, err);
  return status == HV_OK ? by_job(cuda, stream, CU_K_LIMIT, &a, err) : status;
}

hv_status hv_cuda_finite(const hv_cuda *cuda, void *stream, hv_dtype dtype, const void *src, uint64_t count, uint32_t *flag,
                         hv_error *err) {
  if (!takes((int)dtype) || !flag || (count && (!src || !aligned(src, hv_dtype_size((int)dtype)))))
    return hv_fail(err, HV_INVALID, "a GPU looks through float32, float16 or bfloat16 tensors");
  cu_args a = {.dtype = (int32_t)dtype, .flag = flag, .n_jobs = 1};
  a.job[0] = (cu_job){.count = count, .src = src};
  return spread(cuda, stream, CU_K_FINITE, &a, units, err);
}

static hv_status check_pair(int mode, hv_dtype dtype, const hv_cuda_pair *pair, size_t index, hv_error *err) {
  size_t src = mode == CU_GATHER_NARROW ? 4 : hv_dtype_size((int)dtype),
         acc = mode == CU_GATHER_NARROW ? hv_dtype_size((int)dtype) : 4;
  if (pair->count > HV_CODEC_COUNT_MAX || (pair->count && (!pair->src || !pair->acc)) || !aligned(pair->src, src) ||
      !aligned(pair->acc, acc))
    return hv_fail(err, HV_INVALID, "tensor %zu is too large, or does not lie at a multiple of its element's size", index);
  return HV_OK;
}

static hv_status pair_up(const hv_cuda *cuda, void *stream, const cu_gather *how, const hv_cuda_pair *pairs, size_t n,
                         hv_error *err) {
  hv_dtype dtype = (hv_dtype)how->dtype;
  hv_status status = takes((int)dtype) ? HV_OK : hv_fail(err, HV_INVALID, "a GPU adds up float32, float16 or bfloat16 tensors");
  for (size_t i = 0; i < n && status == HV_OK; i++)
    status = check_pair(how->mode, dtype, &pairs[i], i, err);
  for (size_t at = 0; at < n && status == HV_OK;) {
    cu_gather g = {.dtype = how->dtype, .mode = how->mode, .weight = how->weight, .verdict = how->verdict};
    for (; at < n && g.n_tensors < CU_TENSORS; at++)
      if (pairs[at].count) {
        g.tensor[g.n_tensors++] = (cu_tensor){pairs[at].src, pairs[at].acc, pairs[at].count, g.items};
        g.items += cu_units(pairs[at].count);
      }
    g.blocks = blocks_for(cuda, CU_K_GATHER, g.items);
    if (g.items)
      status = start(cuda, stream, CU_K_GATHER, g.blocks, &g, err);
  }
  return status;
}

hv_status hv_cuda_accumulate(const hv_cuda *cuda, void *stream, hv_dtype dtype, float weight, const hv_cuda_pair *pairs, size_t n,
                             hv_error *err) {
  const cu_gather how = {.dtype = (int32_t)dtype, .mode = CU_GATHER_ADD, .weight = weight};
  return pair_up(cuda, stream, &how, pairs, n, err);
}

static hv_status one_row(const hv_cuda *cuda, void *stream, const cu_gather *how, const float *src, float *acc, uint64_t count,
                         hv_error *err) {
  const hv_cuda_pair pair = {src, acc, count};
  return pair_up(cuda, stream, how, &pair, 1, err);
}

hv_status hv_cuda_row_clear(const hv_cuda *cuda, void *stream, float *acc, uint64_t count, hv_error *err) {
  const cu_gather how = {.dtype = HV_DTYPE_FLOAT32, .mode = CU_GATHER_CLEAR};
  return one_row(cuda, stream, &how, acc, acc, count, err);
}

hv_status hv_cuda_row_scale(const hv_cuda *cuda, void *stream, float factor, float *acc, uint64_t count, hv_error *err) {
  const cu_gather how = {.dtype = HV_DTYPE_FLOAT32, .mode = CU_GATHER_SCALE, .weight = factor};
  return one_row(cuda, stream, &how, acc, acc, count, err);
}

hv_status hv_cuda_row_add(const hv_cuda *cuda, void *stream, float weight, const float *row, float *acc, uint64_t count,
                          const int32_t *verdict, hv_error *err) {
  const cu_gather how = {.dtype = HV_DTYPE_FLOAT32, .mode = CU_GATHER_ADD, .weight = weight, .verdict = verdict};
  return one_row(cuda, stream, &how, row, acc, count, err);
}

hv_status hv_cuda_widen(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_pair *pairs, size_t n, hv_error *err) {
  const cu_gather how = {.dtype = (int32_t)dtype, .mode = CU_GATHER_WIDEN};
  return pair_up(cuda, stream, &how, pairs, n, err);
}

hv_status hv_cuda_narrow(const hv_cuda *cuda, void *stream, hv_dtype dtype, const hv_cuda_pair *pairs, size_t n,
                         const int32_t *verdict, hv_error *err) {
  const cu_gather how = {.dtype = (int32_t)dtype, .mode = CU_GATHER_NARROW, .verdict = verdict};
  return pair_up(cuda, stream, &how, pairs, n, err);
}
