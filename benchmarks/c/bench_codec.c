/* How fast are the codecs on one core, against memcpy and against a plain float32 add?
 *
 *   bench_codec WHAT [CODEC] [--mb 512] [--chunk-kb 512] [--rounds 9] [--level avx512] [--data normal|heavy] [--dtype float32]
 *   WHAT: encode | feedback | decode | accumulate (these want a CODEC), finite | squares
 *
 * The buffer is cut in chunks of --chunk-kb of input (0: one chunk). Each round runs A-B-B-A, A being memcpy of the whole input
 * (for accumulate: a[i] += b[i] over as many float32), B what is asked for. One JSON line: GB/s of input (float32 bytes for decode
 * and accumulate), the ratio B over A as the median of the paired rounds with its quartiles. */
#include "kern/codec.h"
#include "kern/reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef struct bench {
  const char *what, *data;
  const hv_kern *kern;
  int codec;
  hv_dtype dtype;
  size_t count, chunk; /* elements */
  size_t bytes;        /* of the input */
  void *src;
  float *acc, *acc2, *residual;
  uint8_t *encoded;
  size_t bound; /* of one full chunk */
  double check;
} bench;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *room(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "no room for %zu MB: ask for fewer by --mb\n", size >> 20);
    exit(1);
  }
  madvise(p, size, MADV_HUGEPAGE);
  memset(p, 1, size);
  return p;
}

static double normal(uint64_t *state) {
  double u[2];
  for (int i = 0; i < 2; i++) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    u[i] = ((double)(*state >> 11) + 0.5) * 0x1p-53;
  }
  return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

/* A million different values, over and over with other factors: random enough and quickly made. */
static void fill(bench *b) {
  enum { SEED = 1 << 20 };
  float *seed = room(SEED * sizeof *seed), *whole = b->dtype == HV_DTYPE_FLOAT32 ? b->src : room(b->count * sizeof *whole);
  uint64_t state = 1;
  for (size_t i = 0; i < SEED; i++) {
    double z = normal(&state);
    seed[i] = (float)(1e-3 * (!strcmp(b->data, "heavy") ? z / (fabs(normal(&state)) + 1e-3) : z));
  }
  for (size_t i = 0; i < b->count; i++)
    whole[i] = seed[i % SEED] * (1 + 0.001f * (float)(i / SEED % 64));
  if (whole != b->src)
    hv_reduce_convert(b->kern, HV_DTYPE_FLOAT32, whole, b->dtype, b->src, b->count);
}

static void encode_all(bench *b, float *residual) {
  size_t size = hv_dtype_size((int)b->dtype), to = 0;
  for (size_t at = 0; at < b->count; at += b->chunk, to += b->bound) {
    size_t n = b->count - at < b->chunk ? b->count - at : b->chunk;
    uint64_t written;
    if (hv_codec_encode(b->kern, (hv_codec)b->codec, b->dtype, (uint8_t *)b->src + at * size, n, residual ? residual + at : NULL,
                        b->encoded + to, b->bound, &written) != HV_OK)
      exit(3);
  }
}

static void decode_all(bench *b, int add) {
  size_t to = 0;
  for (size_t at = 0; at < b->count; at += b->chunk, to += b->bound) {
    size_t n = b->count - at < b->chunk ? b->count - at : b->chunk;
    hv_span span = hv_span_of(b->encoded + to, (size_t)hv_codec_bound(b->codec, (int)b->dtype, n));
    hv_status status = add ? hv_codec_accumulate(b->kern, &span, 1, 0.5f, b->acc + at, n)
                           : hv_codec_decode(b->kern, &span, 1, HV_DTYPE_FLOAT32, b->acc + at, n);
    if (status != HV_OK)
      exit(3);
  }
}

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
plain_add(float *restrict a, const float *restrict c, size_t n) {
  for (size_t i = 0; i < n; i++)
    a[i] += c[i];
}

static void theirs(bench *b) {
  if (!strcmp(b->what, "accumulate"))
    plain_add(b->acc2, b->src, b->count);
  else if (!strcmp(b->what, "decode"))
    memcpy(b->acc2, b->src, b->count * sizeof(float));
  else
    memcpy(b->acc2, b->src, b->bytes);
}

static void ours(bench *b) {
  int finite;
  double sum;
  if (!strcmp(b->what, "encode"))
    encode_all(b, NULL);
  else if (!strcmp(b->what, "feedback"))
    encode_all(b, b->residual);
  else if (!strcmp(b->what, "decode"))
    decode_all(b, 0);
  else if (!strcmp(b->what, "accumulate"))
    decode_all(b, 1);
  else if (!strcmp(b->what, "finite")) {
    hv_reduce_finite(b->kern, b->dtype, b->src, b->count, &finite);
    b->check += finite;
  } else if (!strcmp(b->what, "squares")) {
    hv_reduce_square_sum(b->kern, b->dtype, b->src, b->count, &sum);
    b->check += sum;
  } else {
    fprintf(stderr, "no such work: %s\n", b->what);
    exit(2);
  }
}

static double timed(bench *b, void (*run)(bench *)) {
  double start = now_s();
  run(b);
  return now_s() - start;
}

static int by_size(const void *a, const void *b) {
  double l = *(const double *)a, r = *(const double *)b;
  return (l > r) - (l < r);
}

static double part(double *sorted, int n, double q) {
  double at = q * (n - 1);
  int low = (int)at;
  return low + 1 < n ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

static double relative_error(bench *b) {
  float *back = b->acc, *x = b->acc2;
  double miss = 0, all = 0;
  encode_all(b, NULL);
  decode_all(b, 0);
  hv_reduce_convert(b->kern, b->dtype, b->src, HV_DTYPE_FLOAT32, x, b->count);
  for (size_t i = 0; i < b->count; i++)
    miss += ((double)x[i] - back[i]) * ((double)x[i] - back[i]), all += (double)x[i] * x[i];
  return sqrt(miss / all);
}

static void measure(bench *b, int rounds) {
  enum { MOST = 101 };
  double ratios[MOST], our_s[MOST], their_s[MOST];
  double error = b->codec >= 0 ? relative_error(b) : 0;
  memset(b->acc, 0, b->count * sizeof(float));
  rounds = rounds < 1 ? 1 : rounds > MOST ? MOST : rounds;
  theirs(b), ours(b);
  for (int r = 0; r < rounds; r++) {
    double a = timed(b, theirs), o = timed(b, ours);
    o += timed(b, ours), a += timed(b, theirs);
    our_s[r] = o / 2, their_s[r] = a / 2, ratios[r] = a / o;
  }
  qsort(ratios, (size_t)rounds, sizeof *ratios, by_size);
  qsort(our_s, (size_t)rounds, sizeof *our_s, by_size);
  qsort(their_s, (size_t)rounds, sizeof *their_s, by_size);
  double bytes = !strcmp(b->what, "decode") || !strcmp(b->what, "accumulate") ? 4.0 * (double)b->count : (double)b->bytes;
  printf("{\"what\": \"%s\", \"codec\": \"%s\", \"kernels\": \"%s\", \"mb\": %zu, \"chunk_elements\": %zu, \"rounds\": %d, "
         "\"gb_per_s\": %.3f, \"seconds\": %.6f, \"against\": \"%s\", \"against_gb_per_s\": %.3f, \"ratio\": %.4f, \"ratio_q1\": "
         "%.4f, "
         "\"ratio_q3\": %.4f, \"relative_error\": %.6g, \"bits\": %.4f}\n",
         b->what, b->codec >= 0 ? hv_codec_name(b->codec) : "", hv_cpu_name(b->kern), b->bytes >> 20, b->chunk, rounds,
         bytes * 1e-9 / part(our_s, rounds, .5), part(our_s, rounds, .5), !strcmp(b->what, "accumulate") ? "add" : "memcpy",
         bytes * 1e-9 / part(their_s, rounds, .5), part(ratios, rounds, .5), part(ratios, rounds, .25), part(ratios, rounds, .75),
         error, b->codec >= 0 ? 8.0 * (double)b->bound / (double)b->chunk : 0);
}

static hv_dtype dtype_of(const char *name) {
  return !strcmp(name, "float16")    ? HV_DTYPE_FLOAT16
         : !strcmp(name, "bfloat16") ? HV_DTYPE_BFLOAT16
         : !strcmp(name, "float64")  ? HV_DTYPE_FLOAT64
                                     : HV_DTYPE_FLOAT32;
}

int main(int argc, char **argv) {
  bench b = {.what = argc > 1 ? argv[1] : "", .data = "normal", .kern = hv_cpu_best(), .codec = -1, .dtype = HV_DTYPE_FLOAT32};
  size_t mb = 512, chunk_kb = 512;
  int rounds = 9, i = 2;
  if (i < argc && argv[i][0] != '-')
    b.codec = hv_codec_find(argv[i++]);
  for (; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--mb"))
      mb = strtoull(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--chunk-kb"))
      chunk_kb = strtoull(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--rounds"))
      rounds = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--data"))
      b.data = argv[i + 1];
    else if (!strcmp(argv[i], "--dtype"))
      b.dtype = dtype_of(argv[i + 1]);
    else if (!strcmp(argv[i], "--level"))
      for (int level = 0; level < HV_CPU_LEVELS; level++)
        if (hv_cpu_kern((hv_cpu_level)level) && !strcmp(hv_cpu_name(hv_cpu_kern((hv_cpu_level)level)), argv[i + 1]))
          b.kern = hv_cpu_kern((hv_cpu_level)level);
  }
  int wants_codec =
      !strcmp(b.what, "encode") || !strcmp(b.what, "feedback") || !strcmp(b.what, "decode") || !strcmp(b.what, "accumulate");
  if (!*b.what || i != argc || (wants_codec && b.codec < 0) || !mb) {
    fprintf(stderr, "usage: bench_codec encode|feedback|decode|accumulate CODEC | finite | squares  [--mb N] [--chunk-kb N] "
                    "[--rounds N] [--level L] "
                    "[--data normal|heavy] [--dtype D]\n");
    return 2;
  }
  b.bytes = mb << 20;
  b.count = b.bytes / hv_dtype_size((int)b.dtype);
  b.chunk = chunk_kb ? (chunk_kb << 10) / hv_dtype_size((int)b.dtype) : b.count;
  b.chunk = b.chunk < b.count ? b.chunk : b.count;
  b.src = room(b.bytes);
  b.acc = room(b.count * 4 > b.bytes ? b.count * 4 : b.bytes), b.acc2 = room(b.count * 4 > b.bytes ? b.count * 4 : b.bytes);
  if (!strcmp(b.what, "feedback")) {
    b.residual = room(b.count * 4);
    memset(b.residual, 0, b.count * 4);
  }
  if (b.codec >= 0) {
    b.bound = (size_t)hv_codec_bound(b.codec, (int)b.dtype, b.chunk);
    b.encoded = room((b.count / b.chunk + 1) * b.bound);
  }
  fill(&b);
  measure(&b, rounds);
  return 0;
}
