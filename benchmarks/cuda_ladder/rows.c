/* The rows of issue "On the GPU" that need no training: bytes moved per second as a share of a device copy in the same run. One
 * JSON object a line.
 *
 * Usage: rows [MB ...], 512 and 25 by default. */
#include "gpu.h"

#include <pthread.h>
#include <time.h>

static hv_error err;
static hv_cuda *cuda;
static const hv_cuda_api *api;
static cudaStream_t stream;
static cudaEvent_t from, to;

typedef struct job {
  hv_codec codec;
  uint64_t count;
  uint8_t *a, *b, *chunk[8], *scratch;
  size_t room;
  hv_cuda_pair *pairs;
  size_t n_pairs;
  int times; /* in a row, so that small tensors keep the device as busy as large ones */
} job;

/* The goal, as a share of the copy. */
#define GOAL_ADD 0.8
#define GOAL_GATHER 0.8
#define GOAL_PINNED 0.9
static double goal_of(int codec) {
  return codec == HV_CODEC_QUANTILE8 || codec == HV_CODEC_LINEAR4 ? 0.6 : 0.85;
}
/* How often a tensor is read to be encoded: statistics of all of it come first. */
static int passes_of(int codec) {
  return codec == HV_CODEC_SCALED_FLOAT16 || codec == HV_CODEC_SCALED_ROWS || codec == HV_CODEC_UNIFORM8 ||
                 codec == HV_CODEC_QUANTILE8
             ? 2
             : 1;
}

static void copy(job *j) {
  MUST(cudaMemcpyAsync(j->b, j->a, 4 * j->count, cudaMemcpyDeviceToDevice, stream));
}
static void encode(job *j) {
  hv_cuda_source s = {j->a, NULL, j->chunk[0], j->count, {0}};
  FINE(api->encode(cuda, stream, j->codec, HV_DTYPE_FLOAT32, &s, 1, j->scratch, j->room, &err));
}
static void decode(job *j) {
  hv_cuda_target t = {j->chunk[0], j->codec, HV_DTYPE_FLOAT32, j->count, j->b, NULL, {0}};
  FINE(api->decode(cuda, stream, HV_DTYPE_FLOAT32, &t, 1, &err));
}
static void add8(job *j) {
  hv_cuda_input in[8];
  hv_cuda_sum sum = {(float *)j->b, j->count, in, 8};
  for (int i = 0; i < 8; i++)
    in[i] = (hv_cuda_input){j->chunk[i], j->codec, HV_DTYPE_FLOAT32, 0.125f, NULL};
  FINE(api->add(cuda, stream, &sum, 1, &err));
}
static void gather(job *j) {
  FINE(api->accumulate(cuda, stream, HV_DTYPE_FLOAT32, 0.5f, j->pairs, j->n_pairs, &err));
}

static int by_size(const void *a, const void *b) {
  float l = *(const float *)a, r = *(const float *)b;
  return (l > r) - (l < r);
}
static float once(void (*work)(job *), job *j) {
  float ms = 0;
  MUST(cudaEventRecord(from, stream));
  for (int i = 0; i < j->times; i++)
    work(j);
  MUST(cudaEventRecord(to, stream));
  MUST(cudaEventSynchronize(to));
  MUST(cudaEventElapsedTime(&ms, from, to));
  return ms / (float)j->times;
}

/* Work and copy in turn, A-B-B-A; the median of the paired ratios. moved: bytes read and written, every pass of them. */
static void row(const char *name, const char *codec, void (*work)(job *), job *j, double moved, double goal) {
  enum { TURNS = 30 };
  float share[2 * TURNS], ms[2 * TURNS];
  for (int i = 0; i < 3; i++)
    once(work, j), once(copy, j);
  for (int i = 0; i < TURNS; i++) {
    float a = once(work, j), b = once(copy, j), c = once(copy, j), d = once(work, j);
    double rate = 8.0 * (double)j->count;
    share[2 * i] = (float)((moved / a) / (rate / b)), share[2 * i + 1] = (float)((moved / d) / (rate / c));
    ms[2 * i] = a, ms[2 * i + 1] = d;
  }
  qsort(share, 2 * TURNS, sizeof *share, by_size);
  qsort(ms, 2 * TURNS, sizeof *ms, by_size);
  printf("{\"row\": \"%s\", \"codec\": \"%s\", \"MB\": %.0f, \"share\": %.3f, \"low\": %.3f, \"high\": %.3f, \"goal\": "
         "\">= %.2f\", \"ms\": %.4f, \"GB/s\": %.0f}\n",
         name, codec, 4e-6 * (double)j->count, (double)share[TURNS], (double)share[TURNS / 5], (double)share[2 * TURNS - TURNS / 5],
         goal, (double)ms[TURNS], moved / (double)ms[TURNS] / 1e6);
  fflush(stdout);
}

static hv_status drop(void *arg, uint64_t index, hv_span bytes, hv_error *e) {
  (void)index, (void)e;
  *(uint64_t *)arg += bytes.size;
  return HV_OK;
}

/* From the gradient to encoded bytes in pinned memory, against a plain copy of as many bytes; wall time, between synchronised ends.
 */
static void stage_row(job *j, uint32_t chunk) {
  hv_mem mem;
  hv_stage *stage = NULL;
  hv_stage_shape shape = {j->codec, HV_DTYPE_FLOAT32, chunk, 4, (size_t)1 << 30};
  uint8_t *pinned;
  float staged[9], bare[9];
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  FINE(api->stage_new(cuda, &mem, &shape, &stage, &err));
  size_t bytes = hv_codec_bound((int)j->codec, HV_DTYPE_FLOAT32, j->count);
  MUST(cudaHostAlloc((void **)&pinned, bytes, cudaHostAllocDefault));
  for (int i = -1; i < 9; i++) {
    uint64_t sent = 0;
    float a = 0, b = 0;
    MUST(cudaEventRecord(from, stream));
    FINE(api->send(stage, stream, j->a, j->count, drop, &sent, &err));
    MUST(cudaEventRecord(to, stream));
    MUST(cudaEventSynchronize(to));
    MUST(cudaEventElapsedTime(&a, from, to));
    MUST(cudaEventRecord(from, stream));
    MUST(cudaMemcpyAsync(pinned, j->chunk[0], bytes, cudaMemcpyDeviceToHost, stream));
    MUST(cudaEventRecord(to, stream));
    MUST(cudaEventSynchronize(to));
    MUST(cudaEventElapsedTime(&b, from, to));
    if (i >= 0)
      staged[i] = a, bare[i] = b;
  }
  qsort(staged, 9, sizeof *staged, by_size), qsort(bare, 9, sizeof *bare, by_size);
  printf("{\"row\": \"to pinned memory\", \"codec\": \"%s\", \"MB\": %.0f, \"chunk values\": %u, \"share\": %.3f, \"goal\": "
         "\">= %.2f\", \"ms\": %.3f, \"plain copy ms\": %.3f}\n",
         hv_codec_name((int)j->codec), 4e-6 * (double)j->count, chunk, (double)(bare[4] / staged[4]), GOAL_PINNED,
         (double)staged[4], (double)bare[4]);
  fflush(stdout);
  api->stage_free(stage);
  MUST(cudaFreeHost(pinned));
}

/* ---- the transfers: chunks of a round, as pool threads ask for them; wall time ---- */

typedef struct shift {
  const hv_device *table;
  const job *j;
  uint64_t chunk;
  unsigned first, step;
  int back;
} shift;

static void *carry(void *arg) {
  const shift *s = arg;
  size_t room = (size_t)hv_codec_bound((int)s->j->codec, HV_DTYPE_FLOAT32, s->chunk), size = 0;
  uint8_t *codes = malloc(room);
  hv_stretch first = {s->j->a, HV_DTYPE_FLOAT32, s->chunk};
  if (s->table->encode(s->table->self, s->j->codec, (hv_rows){0}, &first, 1, codes, room, &size) != HV_OK)
    printf("a chunk could not be ferried\n"), exit(2);
  hv_span span = hv_span_of(codes, size);
  for (uint64_t i = s->first; (i + 1) * s->chunk <= s->j->count; i += s->step) {
    hv_stretch one = {(s->back ? s->j->b : s->j->a) + 4 * i * s->chunk, HV_DTYPE_FLOAT32, s->chunk};
    hv_status status = s->back ? s->table->decode(s->table->self, &span, 1, &one, 1)
                               : s->table->encode(s->table->self, s->j->codec, (hv_rows){0}, &one, 1, codes, room, &size);
    if (status != HV_OK)
      printf("a chunk could not be ferried\n"), exit(2);
  }
  free(codes);
  return NULL;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void transfers_rows(job *j) {
  enum { CHUNK = 1 << 17, THREADS_MOST = 4 };
  hv_mem mem;
  hv_transfers *transfers = NULL;
  hv_transfers_shape shape = {CHUNK, THREADS_MOST, HV_TRANSFERS_SUMS, 1 << 28};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  FINE(api->transfers_new(cuda, &mem, &shape, &transfers, &err));
  for (int back = 0; back < 2; back++)
    for (unsigned n = 1; n <= THREADS_MOST; n *= 4) {
      pthread_t threads[THREADS_MOST];
      shift shifts[THREADS_MOST];
      double from_s = seconds();
      for (unsigned i = 0; i < n; i++) {
        shifts[i] = (shift){api->transfers_device(transfers), j, CHUNK, i, n, back};
        pthread_create(&threads[i], NULL, carry, &shifts[i]);
      }
      for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
      double took = seconds() - from_s, bytes = 4.0 * (double)(j->count / CHUNK * CHUNK);
      printf(
          "{\"row\": \"transfers %s\", \"codec\": \"%s\", \"MB\": %.0f, \"threads\": %u, \"ms\": %.3f, \"GB/s of values\": %.2f}\n",
          back ? "in" : "out", hv_codec_name((int)j->codec), bytes / 1e6, n, 1e3 * took, bytes / took / 1e9);
      fflush(stdout);
    }
  api->transfers_free(transfers);
}

static void rows(uint64_t count) {
  job j = {.count = count, .times = count < 512 * 250000 ? (int)(512ull * 250000 / count) : 1};
  float *host = malloc(4 * (1 << 20));
  MUST(cudaMalloc((void **)&j.a, 4 * count));
  MUST(cudaMalloc((void **)&j.b, 4 * count));
  for (int i = 0; i < 8; i++)
    MUST(cudaMalloc((void **)&j.chunk[i], hv_codec_bound(0, 1, count) + 4096));
  gpu_fill(host, 1 << 20, 0, 1);
  for (uint64_t at = 0; at < count; at += 1 << 20)
    MUST(cudaMemcpyAsync(j.a + 4 * at, host, 4 * (count - at < 1 << 20 ? count - at : 1 << 20), cudaMemcpyHostToDevice, stream));
  MUST(cudaMemsetAsync(j.b, 0, 4 * count, stream));
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    hv_cuda_source s = {j.a, NULL, j.chunk[0], count, {0}};
    j.codec = (hv_codec)codec;
    j.room = api->encode_room(j.codec, &s, 1);
    MUST(cudaMalloc((void **)&j.scratch, j.room));
    double bytes = (double)hv_codec_bound(codec, HV_DTYPE_FLOAT32, count);
    row("encode", hv_codec_name(codec), encode, &j, 4.0 * passes_of(codec) * (double)count + bytes, goal_of(codec));
    for (int i = 1; i < 8; i++)
      MUST(cudaMemcpyAsync(j.chunk[i], j.chunk[0], (size_t)bytes, cudaMemcpyDeviceToDevice, stream));
    row("decode", hv_codec_name(codec), decode, &j, 4.0 * (double)count + bytes, goal_of(codec));
    row("accumulate 8", hv_codec_name(codec), add8, &j, 8.0 * (double)count + 8 * bytes, GOAL_ADD);
    stage_row(&j, 1 << 20), stage_row(&j, 1 << 22);
    transfers_rows(&j);
    MUST(cudaFree(j.scratch));
  }
  enum { TENSORS = 500 };
  hv_cuda_pair pairs[TENSORS];
  uint64_t at = 0;
  for (int i = 0; i < TENSORS; i++) { /* as a model's: every fifth is large, the rest are biases and norms */
    uint64_t n = i % 5 ? 1024 : (count - TENSORS * 1024) / (TENSORS / 5) / 4 * 4;
    pairs[i] = (hv_cuda_pair){j.a + 4 * at, (float *)j.b + at, n};
    at += n;
  }
  j.pairs = pairs, j.n_pairs = TENSORS;
  row("accumulation of 500 tensors", "none", gather, &j, 12.0 * (double)at, GOAL_GATHER);
  MUST(cudaFree(j.a));
  MUST(cudaFree(j.b));
  for (int i = 0; i < 8; i++)
    MUST(cudaFree(j.chunk[i]));
  free(host);
}

int main(int argc, char **argv) {
  struct cudaDeviceProp what;
  api = hv_cuda_api_of(HV_CUDA_VERSION);
  FINE(api->open(0, &gpu_kit, &cuda, NULL, &err));
  MUST(cudaGetDeviceProperties(&what, 0));
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaEventCreate(&from));
  MUST(cudaEventCreate(&to));
  printf("{\"device\": \"%s\", \"compute\": \"%d.%d\"}\n", what.name, what.major, what.minor);
  for (int i = 1; i < argc; i++)
    rows((uint64_t)atoi(argv[i]) * 250000);
  if (argc == 1)
    rows(512ull * 250000), rows(25ull * 250000);
  api->close(cuda);
  return 0;
}
