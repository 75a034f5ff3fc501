/* Every kernel on the GPU against the C reference: small enough for compute-sanitizer, which is what it is for. Prints what differs
 * and ends with 1, or "all equal, 0 of N differ" and 0.
 *
 * Usage: check [quick] */
#include "gpu.h"

#include "core/round/run.h"

enum { MOST = 40000, ROOM = MOST * 4 + 4096 };
static const size_t lengths[] = {0,    1,    3,    4,    5,    15,   16,   17,   63,   64,   65,    255,   256, 1023,
                                 1024, 1025, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 16384, 16385, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static hv_error err;
static hv_cuda *cuda;
static const hv_cuda_api *api;
static cudaStream_t stream;
static uint8_t *on_gpu[LENGTHS], *chunk_gpu[LENGTHS], *out_gpu[LENGTHS], *scratch;
static float *rest_gpu[LENGTHS];
static int32_t *verdicts;
static float values[MOST], rest[MOST], rest2[MOST];
static uint8_t tensor[ROOM], want[ROOM], got[ROOM], plain[ROOM];
static unsigned wrong, compared;

static void equal(const void *a, const void *b, size_t n, const char *what, int codec, int dtype, size_t count) {
  compared++;
  if (n && memcmp(a, b, n) && wrong++ < 30)
    printf("%s: %s, dtype %d, %zu elements: other bytes\n", what, hv_codec_name(codec), dtype, count);
}

static const hv_kern *reference(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}

/* Encodes all lengths in one call, with residuals or not, and holds chunks and residuals against the CPU's. */
static void encode(int codec, hv_dtype dtype, int kind, int off, int feedback) {
  hv_cuda_source s[LENGTHS];
  size_t size = hv_dtype_size((int)dtype);
  for (size_t l = 0; l < LENGTHS; l++) {
    gpu_fill(values, lengths[l], kind, l);
    hv_reduce_convert(reference(), HV_DTYPE_FLOAT32, values, dtype, tensor, lengths[l]);
    s[l] = (hv_cuda_source){on_gpu[l] + (off ? size : 0), feedback ? rest_gpu[l] : NULL, chunk_gpu[l], lengths[l], {0}};
    MUST(cudaMemcpyAsync(on_gpu[l] + (off ? size : 0), tensor, size * lengths[l], cudaMemcpyHostToDevice, stream));
    gpu_fill(rest, lengths[l], 0, 99);
    MUST(cudaMemcpyAsync(rest_gpu[l], rest, 4 * lengths[l], cudaMemcpyHostToDevice, stream));
    MUST(cudaStreamSynchronize(stream));
  }
  FINE(api->encode(cuda, stream, (hv_codec)codec, dtype, s, LENGTHS, scratch, 64 << 20, &err));
  for (size_t l = 0; l < LENGTHS; l++) {
    uint64_t bytes = 0;
    gpu_fill(values, lengths[l], kind, l);
    hv_reduce_convert(reference(), HV_DTYPE_FLOAT32, values, dtype, tensor, lengths[l]);
    gpu_fill(rest, lengths[l], 0, 99);
    FINE(hv_codec_encode(reference(), (hv_codec)codec, dtype, tensor, lengths[l], feedback ? rest : NULL, want, ROOM, &bytes));
    MUST(cudaMemcpyAsync(got, chunk_gpu[l], bytes, cudaMemcpyDeviceToHost, stream));
    MUST(cudaMemcpyAsync(rest2, rest_gpu[l], 4 * lengths[l], cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    equal(got, want, bytes, "encode", codec, (int)dtype, lengths[l]);
    equal(rest2, rest, 4 * lengths[l], "residual", codec, (int)dtype, lengths[l]);
  }
}

/* Of the chunks that encode left. */
static void decode(int codec, hv_dtype dtype, hv_dtype into) {
  hv_cuda_target t[LENGTHS];
  for (size_t l = 0; l < LENGTHS; l++)
    t[l] = (hv_cuda_target){chunk_gpu[l], (hv_codec)codec, dtype, lengths[l], out_gpu[l], verdicts + l, {0}};
  FINE(api->check(cuda, stream, t, LENGTHS, 0, scratch, 64 << 20, &err));
  FINE(api->decode(cuda, stream, into, t, LENGTHS, &err));
  for (size_t l = 0; l < LENGTHS; l++) {
    uint64_t bytes = hv_codec_bound(codec, (int)dtype, lengths[l]);
    int32_t verdict = -1;
    MUST(cudaMemcpyAsync(want, chunk_gpu[l], bytes, cudaMemcpyDeviceToHost, stream));
    MUST(cudaMemcpyAsync(got, out_gpu[l], hv_dtype_size((int)into) * lengths[l], cudaMemcpyDeviceToHost, stream));
    MUST(cudaMemcpyAsync(&verdict, verdicts + l, 4, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    hv_span one = hv_span_of(want, (size_t)bytes);
    FINE(hv_codec_decode(reference(), &one, 1, into, plain, lengths[l]));
    equal(&verdict, &(int32_t){HV_OK}, 4, "verdict", codec, (int)dtype, lengths[l]);
    equal(got, plain, hv_dtype_size((int)into) * lengths[l], "decode", codec, (int)dtype, lengths[l]);
  }
}

/* The chunks of the longest tensor that lie there, sixteen times over, onto a sum; then one that is spoiled. */
static void add(int codec, hv_dtype dtype) {
  size_t l = LENGTHS - 1;
  hv_cuda_input in[HV_CUDA_INPUTS_MAX];
  hv_cuda_sum sum = {rest_gpu[l], MOST, in, HV_CUDA_INPUTS_MAX};
  uint64_t bytes = hv_codec_bound(codec, (int)dtype, MOST);
  gpu_fill(rest, MOST, 0, 5);
  MUST(cudaMemcpyAsync(rest_gpu[l], rest, sizeof rest, cudaMemcpyHostToDevice, stream));
  MUST(cudaMemcpyAsync(want, chunk_gpu[l], bytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  hv_span one = hv_span_of(want, (size_t)bytes);
  for (int i = 0; i < HV_CUDA_INPUTS_MAX; i++) {
    in[i] = (hv_cuda_input){chunk_gpu[l], (hv_codec)codec, dtype, 0.3f * (float)i, verdicts + l};
    FINE(hv_codec_accumulate(reference(), &one, 1, 0.3f * (float)i, rest, MOST));
  }
  FINE(api->add(cuda, stream, &sum, 1, &err));
  hv_cuda_target spoiled = {chunk_gpu[l], (hv_codec)codec, dtype, MOST, out_gpu[l], verdicts + l, {0}};
  int32_t verdict = -1;
  MUST(cudaMemsetAsync(chunk_gpu[l] + bytes - 3, 0x5b, 1, stream));
  MUST(cudaMemsetAsync(chunk_gpu[l] + bytes - 9, want[bytes - 9] ^ 4, 1, stream));
  FINE(api->check(cuda, stream, &spoiled, 1, 0, scratch, 64 << 20, &err));
  FINE(api->add(cuda, stream, &sum, 1, &err));
  MUST(cudaMemcpyAsync(&verdict, verdicts + l, 4, cudaMemcpyDeviceToHost, stream));
  MUST(cudaMemcpyAsync(rest2, rest_gpu[l], sizeof rest2, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  equal(rest2, rest, sizeof rest, "add", codec, (int)dtype, MOST);
  equal(&verdict, &(int32_t){HV_CORRUPT}, 4, "verdict of a spoiled chunk", codec, (int)dtype, MOST);
}

static void gather_and_finite(hv_dtype dtype) {
  enum { MANY = 1200 };
  static hv_cuda_pair pairs[MANY];
  size_t size = hv_dtype_size((int)dtype), at = 0, l = LENGTHS - 1;
  uint32_t flag = 1;
  gpu_fill(values, MOST, 1, 2), gpu_fill(rest, MOST, 0, 3);
  hv_reduce_convert(reference(), HV_DTYPE_FLOAT32, values, dtype, tensor, MOST);
  MUST(cudaMemcpyAsync(on_gpu[l], tensor, size * MOST, cudaMemcpyHostToDevice, stream));
  MUST(cudaMemcpyAsync(rest_gpu[l], rest, sizeof rest, cudaMemcpyHostToDevice, stream));
  MUST(cudaMemsetAsync(verdicts, 0, 4, stream));
  for (size_t i = 0; i < MANY; at += pairs[i++].count)
    pairs[i] = (hv_cuda_pair){on_gpu[l] + size * at, rest_gpu[l] + at, i == 700 ? 9000 : i % 50};
  FINE(api->accumulate(cuda, stream, dtype, 0.7f, pairs, MANY, &err));
  FINE(api->finite(cuda, stream, dtype, on_gpu[l], MOST, (uint32_t *)verdicts, &err));
  MUST(cudaMemcpyAsync(rest2, rest_gpu[l], sizeof rest2, cudaMemcpyDeviceToHost, stream));
  MUST(cudaMemcpyAsync(&flag, verdicts, 4, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  FINE(hv_reduce_accumulate(reference(), dtype, tensor, 0.7f, rest, at));
  equal(rest2, rest, sizeof rest, "accumulate", 0, (int)dtype, at);
  equal(&flag, &(uint32_t){0}, 4, "finite", 0, (int)dtype, MOST);
}

/* ---- the transfers: a member on the GPU and one in the host's memory, chunk by chunk as owners and members do ---- */

enum { TENSORS = 40, LARGEST = 3000, CHUNK = 5000 };

typedef struct side {
  hv_run_part parts[TENSORS];
  hv_run run;
  uint8_t *bytes; /* on the GPU or here */
} side;

static const hv_device *transfers_table;
static const side *gpus_side;

/* Tensors of all kinds, in one piece of memory with gaps. */
static size_t lay_out(side *s, hv_codec codec, const hv_device *where) {
  uint64_t seed = 5;
  size_t at = 0;
  for (int i = 0; i < TENSORS; i++) {
    uint64_t n = i % 4 ? gpu_random(&seed) % 50 : gpu_random(&seed) % LARGEST;
    at = (at + 3) / 4 * 4 + 4 * (size_t)(i % 2);
    s->parts[i] = (hv_run_part){s->bytes + at, i % 5 < 3 ? HV_DTYPE_FLOAT32 : gpu_dtypes[i % 3], n, codec, where, 0, 0};
    at += n * hv_dtype_size((int)s->parts[i].dtype);
  }
  return at;
}

static void fill_here(side *s, uint64_t seed) {
  for (int i = 0; i < TENSORS; i++) {
    gpu_fill(values, s->parts[i].n_values, 0, seed + (uint64_t)i);
    hv_reduce_convert(reference(), HV_DTYPE_FLOAT32, values, s->parts[i].dtype, s->parts[i].data, s->parts[i].n_values);
  }
}

/* The owner of this chunk takes both contributions, and gives the average to both; on the GPU where that is the owner's. */
static void average_chunk(side *owner, side *other, uint32_t index, hv_codec codec) {
  static uint8_t codes[ROOM];
  static float acc[CHUNK];
  size_t size = 0;
  hv_run_sum sum = {.here = acc};
  FINE(hv_run_encode(&other->run, reference(), index, codec, codes, ROOM, &size));
  hv_span given = hv_span_of(codes, size);
  FINE(hv_run_sum_begin(&owner->run, index, &sum));
  FINE(hv_run_sum_add(reference(), &sum, hv_run_chunk_of(&owner->run, index).size, &given, 1, 2, 1e6f));
  FINE(hv_run_sum_add_own(&owner->run, reference(), index, &sum, 1, 0));
  if (owner == gpus_side && !sum.device)
    printf("an owner's sum is not on the GPU\n"), exit(1);
  FINE(hv_run_sum_encode(&owner->run, reference(), index, &sum, 1 / 3.0f, codes, ROOM, &size));
  hv_run_sum_end(&sum);
  hv_span average = hv_span_of(codes, size);
  FINE(hv_run_decode(&owner->run, reference(), index, &average, 1));
  FINE(hv_run_decode(&other->run, reference(), index, &average, 1));
}

static void ferried(hv_codec codec, hv_mem *mem) {
  static uint8_t bytes[TENSORS * LARGEST * 4 + 4096], image[sizeof bytes];
  static side here, there;
  gpus_side = &there;
  here.bytes = bytes;
  MUST(cudaMalloc((void **)&there.bytes, sizeof bytes));
  size_t used = lay_out(&here, codec, NULL);
  lay_out(&there, codec, transfers_table);
  memset(bytes, 0, sizeof bytes);
  fill_here(&here, 100); /* the GPU's member's values first, by way of this memory */
  MUST(cudaMemcpyAsync(there.bytes, bytes, sizeof bytes, cudaMemcpyHostToDevice, stream));
  MUST(cudaStreamSynchronize(stream));
  fill_here(&here, 900);
  FINE(hv_run_init(&here.run, mem, here.parts, TENSORS, CHUNK, &err));
  FINE(hv_run_init(&there.run, mem, there.parts, TENSORS, CHUNK, &err));
  for (uint32_t i = 0; i < here.run.n_chunks; i++)
    average_chunk(i % 2 ? &here : &there, i % 2 ? &there : &here, i, codec);
  MUST(cudaMemcpyAsync(image, there.bytes, sizeof bytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  equal(image, bytes, used, "a round of two", (int)codec, 0, here.run.n_values);
  hv_run_fini(&here.run), hv_run_fini(&there.run);
  MUST(cudaFree(there.bytes));
}

static void transfers_all(void) {
  hv_mem mem;
  hv_transfers *transfers = NULL;
  hv_transfers_shape shape = {CHUNK, 3, 3, 1 << 24};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  FINE(api->transfers_new(cuda, &mem, &shape, &transfers, &err));
  transfers_table = api->transfers_device(transfers);
  FINE(api->transfers_follow(transfers, stream, &err));
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    ferried((hv_codec)codec, &mem);
  api->transfers_free(transfers);
}

int main(int argc, char **argv) {
  int quick = argc > 1 && !strcmp(argv[1], "quick");
  api = hv_cuda_api_of(HV_CUDA_VERSION);
  FINE(api->open(0, &gpu_kit, &cuda, NULL, &err));
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaMalloc((void **)&scratch, 64 << 20));
  MUST(cudaMalloc((void **)&verdicts, LENGTHS * 4));
  for (size_t l = 0; l < LENGTHS; l++) { /* each in an allocation of its own, of its own size: memcheck sees a step too far */
    MUST(cudaMalloc((void **)&on_gpu[l], 4 * lengths[l] + 4));
    MUST(cudaMalloc((void **)&chunk_gpu[l], hv_codec_bound(0, 1, lengths[l]) + 1024 + lengths[l] / 2));
    MUST(cudaMalloc((void **)&out_gpu[l], 4 * lengths[l] + 4));
    MUST(cudaMalloc((void **)&rest_gpu[l], 4 * lengths[l] + 4));
  }
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (int d = 0; d < 3; d++)
      for (int kind = 0; kind < (quick ? 1 : 5); kind++) {
        if (quick && (codec + d) % 3)
          continue;
        encode(codec, gpu_dtypes[d], kind, kind % 2, codec && kind % 3 == 1);
        decode(codec, gpu_dtypes[d], gpu_dtypes[(d + kind) % 3]);
        if (kind == 0)
          add(codec, gpu_dtypes[d]);
      }
  for (int d = 0; d < 3; d++)
    gather_and_finite(gpu_dtypes[d]);
  transfers_all();
  api->close(cuda);
  MUST(cudaDeviceSynchronize());
  printf(wrong ? "%u of %u comparisons differ\n" : "all equal, %u of %u differ\n", wrong, compared);
  return wrong != 0;
}
