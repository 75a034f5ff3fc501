// The rungs: versions of the hardest kernels, each with its share of the device copy in the same run. README.md says what each rung
// tries; the last rung of each set is what cuda has. Usage: ladder [MB]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#include "cuda/body_chunk.h"
#include "cuda/body_decode.h"
#include "cuda/body_encode.h"
#include "cuda/body_quantile.h"

#define MUST(call)                                                                                                                 \
  do {                                                                                                                             \
    cudaError_t code_ = (call);                                                                                                    \
    if (code_ != cudaSuccess)                                                                                                      \
      printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code_)), exit(2);                                               \
  } while (0)

static cudaStream_t stream;
static cudaEvent_t before, after;
static unsigned processors;
static float *a, *b;
static uint8_t *chunk[8];
static cu_state *state;
static uint8_t *room;
static uint64_t count;

// ---- set 1: UNIFORM8, from floats to codes ----

static __global__ void uniform_1(const float *x, uint8_t *out, uint64_t n, float mean, float inverse) { // a byte for each thread
  uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = (uint8_t)(cu_nearest(cu_within(cu_uniform_steps(x[i], mean, inverse), -127, 127)) + 128);
}
static __global__ void uniform_2(const float *x, uint8_t *out, uint64_t n, float mean, float inverse) { // sixteen, in one store
  uint64_t at = 16 * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x);
  if (at >= n)
    return;
  cu_16 v;
  for (uint32_t k = 0; k < 4; k++) {
    float y[4];
    cu_load4(CU_F32, x, at + 4 * k, n, y);
    v.w[k] = 0;
    for (uint32_t i = 0; i < 4; i++)
      v.w[k] |= (uint32_t)(uint8_t)(cu_nearest(cu_within(cu_uniform_steps(y[i], mean, inverse), -127, 127)) + 128) << 8 * i;
  }
  cu_write_some(out + at, v, n - at < 16 ? (uint32_t)(n - at) : 16);
}
static __global__ void __launch_bounds__(CU_THREADS) uniform_3(const __grid_constant__ cu_args args) { // cuda's, with its checksum
  __shared__ cu_encode_room shared;
  cu_encode_uniform_block(&shared, &args, blockIdx.x);
}

// ---- set 2: the sum of eight UNIFORM8 chunks ----

struct eight {
  const uint8_t *body[8];
  float mean, step, low, high, weight;
};
static __global__ void add_1(float *acc, const uint8_t *body, uint64_t n, eight e) { // a launch for each input
  uint64_t at = 4 * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x);
  if (at >= n)
    return;
  float v[4];
  uint8_t codes[4];
  cu_load4(CU_F32, acc, at, n, v);
  cu_codes8(body, at, n, codes);
  for (uint32_t i = 0; i < 4; i++) {
    float product = e.weight * cu_uniform_to(codes[i], e.mean, e.step, e.low, e.high);
    v[i] = v[i] + product;
  }
  cu_store4(CU_F32, acc, at, n, v);
}
static __global__ void add_2(float *acc, uint64_t n, eight e) { // one launch, made for one codec, all inputs loaded first
  uint64_t at = 4 * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x);
  if (at >= n)
    return;
  float v[4];
  uint8_t codes[8][4];
  cu_load4(CU_F32, acc, at, n, v);
#pragma unroll
  for (uint32_t k = 0; k < 8; k++)
    cu_codes8(e.body[k], at, n, codes[k]);
#pragma unroll
  for (uint32_t k = 0; k < 8; k++)
    for (uint32_t i = 0; i < 4; i++) {
      float product = e.weight * cu_uniform_to(codes[k][i], e.mean, e.step, e.low, e.high);
      v[i] = v[i] + product;
    }
  cu_store4(CU_F32, acc, at, n, v);
}
static __global__ void __launch_bounds__(CU_THREADS) add_3(const __grid_constant__ cu_args args) { // cuda's: any codecs at once
  __shared__ float books[CU_INPUTS * 256];
  cu_add_block(books, &args, blockIdx.x);
}

// ---- set 3: QUANTILE8, from floats to codes ----

static __global__ void quantile_1(const float *x, uint8_t *out, uint64_t n, int32_t base, const uint8_t *table) { // the table in the caches
  uint64_t at = 4 * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x);
  if (at >= n)
    return;
  float y[4];
  uint32_t four = 0;
  cu_load4(CU_F32, x, at, n, y);
  for (uint32_t i = 0; i < 4; i++)
    four |= (uint32_t)table[cu_cell(y[i], base)] << 8 * i;
  for (uint32_t i = 0; i < 4 && at + i < n; i++)
    out[at + i] = (uint8_t)(four >> 8 * i);
}
static __global__ void quantile_2(const float *x, uint8_t *out, uint64_t n, int32_t base, const int32_t *edges) { // a search over the edges
  __shared__ int32_t mine[257];
  for (uint32_t i = threadIdx.x; i < 257; i += blockDim.x)
    mine[i] = edges[i];
  __syncthreads();
  for (uint64_t at = 4 * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x); at < n; at += 4 * (uint64_t)gridDim.x * blockDim.x) {
    float y[4];
    cu_load4(CU_F32, x, at, n, y);
    for (uint32_t i = 0; i < 4 && at + i < n; i++)
      out[at + i] = (uint8_t)cu_code_of(mine, (int32_t)cu_cell(y[i], base));
  }
}
static __global__ void __launch_bounds__(CU_THREADS) quantile_3(const __grid_constant__ cu_args args) { // cuda's, with its checksum
  __shared__ cu_quantile_room shared;
  cu_encode_quantile_block(&shared, &args, blockIdx.x);
}

// ---- set 4: the checksum of what lies there ----

static __global__ void digest_1(const uint8_t *bytes, uint64_t pieces, uint64_t *sum) { // lanes by atomics in shared memory
  __shared__ unsigned long long lane[8];
  for (uint64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    if (threadIdx.x < 8)
      lane[threadIdx.x] = 0;
    __syncthreads();
    uint64_t even, odd;
    cu_digest_part(cu_read16(bytes + p * CU_PIECE + 16 * threadIdx.x), threadIdx.x, &even, &odd);
    atomicAdd(&lane[2 * (threadIdx.x % 4)], even);
    atomicAdd(&lane[2 * (threadIdx.x % 4) + 1], odd);
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t digest = 0;
      for (uint32_t j = 0; j < 8; j++)
        digest += cu_mix(lane[j] + j * CU_G);
      atomicAdd((unsigned long long *)sum, cu_mix(digest + p * CU_K));
    }
    __syncthreads();
  }
}
static __global__ void __launch_bounds__(CU_THREADS) digest_2(const __grid_constant__ cu_args args) { // cuda's: lanes by shuffles
  __shared__ cu_piece_room shared;
  cu_sum_block(&shared, &args, blockIdx.x);
}

// ---- the runner ----

template <typename F> static float once(F work) {
  float ms = 0;
  MUST(cudaEventRecord(before, stream));
  work();
  MUST(cudaEventRecord(after, stream));
  MUST(cudaGetLastError());
  MUST(cudaEventSynchronize(after));
  MUST(cudaEventElapsedTime(&ms, before, after));
  return ms;
}
template <typename F> static void rung(const char *set, const char *name, double moved, F work) {
  auto copy = [] { MUST(cudaMemcpyAsync(b + count, a, 4 * count, cudaMemcpyDeviceToDevice, stream)); };
  std::vector<double> share;
  for (int i = 0; i < 23; i++) {
    double mine = moved / once(work), theirs = 8.0 * count / once(copy);
    if (i >= 3)
      share.push_back(mine / theirs);
  }
  std::sort(share.begin(), share.end());
  printf("{\"set\": \"%s\", \"rung\": \"%s\", \"share\": %.3f, \"low\": %.3f, \"high\": %.3f}\n", set, name, share[10], share[2], share[17]);
  fflush(stdout);
}

static cu_args whole(int codec, uint64_t items) {
  cu_args args = {};
  args.items = items;
  args.blocks = (uint32_t)std::min<uint64_t>(items, 8 * processors);
  args.n_jobs = 1, args.codec = codec, args.dtype = args.named = CU_F32;
  args.job[0].count = count, args.job[0].chunk = chunk[0], args.job[0].src = a, args.job[0].out = b;
  args.job[0].state = state, args.job[0].room = room, args.job[0].codec = (uint8_t)codec, args.job[0].dtype = CU_F32;
  return args;
}
static unsigned blocks_of(uint64_t each) {
  return (unsigned)((count + each * 256 - 1) / (each * 256));
}

static void uniform_set() {
  cu_args args = whole(CU_UNIFORM8, (count + CU_PIECE - 1) / CU_PIECE);
  cu_state s = {};
  s.mean = 1e-4f, s.inverse = 127 / 6e-3f;
  MUST(cudaMemcpy(state, &s, sizeof s, cudaMemcpyHostToDevice));
  uint8_t *out = chunk[1] + 64;
  rung("uniform8", "1 a byte for each thread", 5.0 * count, [&] { uniform_1<<<blocks_of(1), 256, 0, stream>>>(a, out, count, s.mean, s.inverse); });
  rung("uniform8", "2 sixteen in a row", 5.0 * count, [&] { uniform_2<<<blocks_of(16), 256, 0, stream>>>(a, out, count, s.mean, s.inverse); });
  rung("uniform8", "3 sixteen in a row, summed there", 5.0 * count, [&] { uniform_3<<<args.blocks, CU_THREADS, 0, stream>>>(args); });
}

static void add_set() {
  cu_args args = whole(CU_UNIFORM8, (count + CU_UNIT - 1) / CU_UNIT);
  eight e = {{}, 1e-4f, 4e-5f, -6e-3f, 6e-3f, 0.125f};
  args.job[0].n_inputs = 8;
  for (int i = 0; i < 8; i++) {
    e.body[i] = chunk[i] + CU_HEADER + 16;
    args.part[i].chunk = chunk[i], args.part[i].weight = e.weight, args.part[i].codec = CU_UNIFORM8, args.part[i].dtype = CU_F32;
  }
  rung("add 8", "1 a launch for each input", 16.0 * count, [&] {
    for (int i = 0; i < 8; i++)
      add_1<<<blocks_of(4), 256, 0, stream>>>(b, e.body[i], count, e);
  });
  rung("add 8", "2 fused, for one codec", 16.0 * count, [&] { add_2<<<blocks_of(4), 256, 0, stream>>>(b, count, e); });
  rung("add 8", "3 fused, any codecs", 16.0 * count, [&] { add_3<<<args.blocks, CU_THREADS, 0, stream>>>(args); });
}

static void quantile_set() {
  cu_args args = whole(CU_QUANTILE8, (count + CU_PIECE - 1) / CU_PIECE);
  std::vector<uint8_t> table(CU_CELLS);
  std::vector<int32_t> edges(257);
  const int32_t base = 100;
  for (int i = 0; i < CU_CELLS; i++)
    table[i] = (uint8_t)(i / 128);
  for (int i = 0; i <= 256; i++)
    edges[i] = 128 * i;
  cu_state s = {};
  s.base = base;
  MUST(cudaMemcpy(state, &s, sizeof s, cudaMemcpyHostToDevice));
  MUST(cudaMemcpy(room + 4 * CU_SAMPLE, table.data(), CU_CELLS, cudaMemcpyHostToDevice));
  MUST(cudaMemcpy(room, edges.data(), 257 * 4, cudaMemcpyHostToDevice));
  const uint8_t *there = room + 4 * CU_SAMPLE;
  const int32_t *lines = (const int32_t *)room;
  uint8_t *out = chunk[1] + 64;
  rung("quantile8", "1 the table in the caches", 5.0 * count, [&] { quantile_1<<<blocks_of(4), 256, 0, stream>>>(a, out, count, base, there); });
  rung("quantile8", "2 a search over the edges", 5.0 * count, [&] { quantile_2<<<8 * processors, 256, 0, stream>>>(a, out, count, base, lines); });
  rung("quantile8", "3 the table in shared memory, sixteen in a row, summed there", 5.0 * count, [&] { quantile_3<<<args.blocks, CU_THREADS, 0, stream>>>(args); });
}

static void digest_set() {
  uint64_t pieces = count / CU_PIECE;
  cu_args args = whole(CU_UNIFORM8, pieces);
  rung("checksum", "1 lanes by atomics", 1.0 * count, [&] { digest_1<<<8 * processors, CU_THREADS, 0, stream>>>(chunk[0], pieces, &state->sum); });
  rung("checksum", "2 lanes by shuffles", 1.0 * count, [&] { digest_2<<<args.blocks, CU_THREADS, 0, stream>>>(args); });
}

int main(int argc, char **argv) {
  int n = 0;
  count = (argc > 1 ? (uint64_t)atoi(argv[1]) : 512) * 250000 / CU_PIECE * CU_PIECE;
  MUST(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
  processors = (unsigned)n;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaEventCreate(&before));
  MUST(cudaEventCreate(&after));
  MUST(cudaMalloc(&a, 4 * count));
  MUST(cudaMalloc(&b, 8 * count));
  MUST(cudaMalloc(&state, sizeof *state));
  MUST(cudaMalloc(&room, CU_BOOK_BYTES));
  for (auto &c : chunk)
    MUST(cudaMalloc(&c, count + 4096));
  std::vector<float> x(1 << 20);
  uint64_t seed = 1;
  for (auto &v : x) {
    seed = cu_mix(seed + CU_K);
    v = 1e-3f * ((float)(seed & 0xffff) + (float)(seed >> 16 & 0xffff) + (float)(seed >> 32 & 0xffff) - 98302.5f) / 32768;
  }
  for (uint64_t at = 0; at < count; at += x.size())
    MUST(cudaMemcpy(a + at, x.data(), 4 * std::min<uint64_t>(x.size(), count - at), cudaMemcpyHostToDevice));
  for (auto &c : chunk)
    MUST(cudaMemset(c, 0x81, count + 4096));
  uniform_set();
  add_set();
  quantile_set();
  digest_set();
  return 0;
}
