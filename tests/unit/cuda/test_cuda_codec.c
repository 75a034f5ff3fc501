#include "lib/cuda_stand_in.h"
#include "lib/seal.h"
#include "lib/values.h"

#include <stdlib.h>
#include <string.h>

#if defined(HV_SANITIZED)
#define STEP 5 /* every fifth case */
#else
#define STEP 1
#endif

enum { MOST = 20000, ROOM = MOST * 4 + 4096, N_DTYPES = 3 };

static const hv_dtype dtypes[] = {HV_DTYPE_FLOAT32, HV_DTYPE_FLOAT16, HV_DTYPE_BFLOAT16};
static const size_t lengths[] = {0,    1,    2,    3,    4,    5,    7,     15,    16,    17,    63,
                                 64,   65,   127,  255,  256,  1023, 1024,  1025,  2047,  2048,  2049,
                                 4095, 4096, 4097, 8191, 8192, 8193, 12289, 16383, 16384, 16385, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static float pool[VALUES_KINDS][MOST];
static uint8_t sources[LENGTHS][ROOM] __attribute__((aligned(64)));
static uint8_t chunks[LENGTHS][ROOM] __attribute__((aligned(64))), want[ROOM] __attribute__((aligned(64)));
static uint8_t scratch[1 << 24] __attribute__((aligned(256)));
static float residuals[LENGTHS][MOST], residual[MOST], sums[LENGTHS][MOST + 4], sum[MOST];
static hv_cuda_source jobs[LENGTHS];
static hv_cuda_target targets[LENGTHS];
static int32_t verdicts[LENGTHS];

static const hv_kern *reference(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}
static int fill_pool(void **state) {
  (void)state;
  for (int kind = 0; kind < VALUES_KINDS; kind++)
    values_fill(pool[kind], MOST, (values_kind)kind, 7);
  return 0;
}

/* Tensors of all lengths: at an aligned place, or one element behind it. */
static void lay_out(int dtype, int kind, int off) {
  for (size_t l = 0; l < LENGTHS; l++) {
    uint8_t *at = sources[l] + (off ? hv_dtype_size(dtype) : 0);
    values_as((hv_dtype)dtype, pool[kind], lengths[l], at, NULL);
    jobs[l] = (hv_cuda_source){at, NULL, chunks[l], lengths[l], {0}};
    memset(chunks[l], 0xee, ROOM);
  }
}

static hv_span reference_chunk(int codec, int dtype, size_t l, float *rest) {
  uint64_t size = 0;
  assert_int_equal(
      hv_codec_encode(reference(), (hv_codec)codec, (hv_dtype)dtype, jobs[l].src, jobs[l].count, rest, want, ROOM, &size), HV_OK);
  return hv_span_of(want, (size_t)size);
}

static void encode_all(stand_in *gpu, void *stream, int codec, int dtype) {
  hv_error err = {0};
  size_t room = hv_cuda_encode_room((hv_codec)codec, jobs, LENGTHS);
  assert_true(room <= sizeof scratch);
  hv_status status = hv_cuda_encode(&gpu->cuda, stream, (hv_codec)codec, (hv_dtype)dtype, jobs, LENGTHS, scratch, room, &err);
  if (status != HV_OK)
    fail_msg("%s", err.text);
  stand_in_run(gpu, stream);
}

static void chunks_made_by_the_kernels_are_the_cpus_to_the_bit(void **state) {
  (void)state;
  stand_in gpu;
  stand_in_init(&gpu, 3);
  void *stream = stand_in_stream_new(&gpu);
  unsigned turn = 0;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (size_t d = 0; d < N_DTYPES; d++)
      for (int kind = 0; kind < VALUES_KINDS; kind++) {
        if (turn++ % STEP)
          continue;
        gpu.backwards = turn / 2 % 2;
        stand_in_holds(&gpu, 1 + turn % 3 * 7);
        lay_out((int)dtypes[d], kind, turn / 4 % 2);
        encode_all(&gpu, stream, codec, (int)dtypes[d]);
        for (size_t l = 0; l < LENGTHS; l++) {
          hv_span cpu = reference_chunk(codec, (int)dtypes[d], l, NULL);
          if (memcmp(cpu.data, chunks[l], cpu.size))
            fail_msg("%s of %s, dtype %d, %zu elements: other bytes", hv_codec_name(codec), values_name((values_kind)kind),
                     (int)dtypes[d], lengths[l]);
          assert_int_equal(chunks[l][cpu.size], 0xee); /* not one byte too many */
        }
      }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

/* More units than one join takes, more sample than there are values of, heads of more than a piece. */
static void long_tensor_is_encoded_as_on_the_cpu(void **state) {
  (void)state;
  enum { LONG = 3 * 1024 * 1024 + 77 };
  stand_in gpu;
  stand_in_init(&gpu, 4);
  void *stream = stand_in_stream_new(&gpu);
  float *x = malloc(LONG * sizeof *x);
  uint8_t *a = malloc(4 * LONG + 4096), *b = aligned_alloc(64, 4 * LONG + 4096 + (64 - (4 * LONG + 4096) % 64));
  assert_true(x && a && b);
  values_fill(x, LONG, VALUES_HEAVY, 3);
  for (int codec = 0; codec < HV_CODEC_COUNT; codec += STEP) {
    hv_cuda_source one = {x, NULL, b, LONG, {0}};
    uint64_t size = 0;
    size_t room = hv_cuda_encode_room((hv_codec)codec, &one, 1);
    assert_true(room <= sizeof scratch);
    assert_int_equal(hv_codec_encode(reference(), (hv_codec)codec, HV_DTYPE_FLOAT32, x, LONG, NULL, a, 4 * LONG + 4096, &size),
                     HV_OK);
    assert_int_equal(hv_cuda_encode(&gpu.cuda, stream, (hv_codec)codec, HV_DTYPE_FLOAT32, &one, 1, scratch, room, NULL), HV_OK);
    stand_in_run(&gpu, stream);
    assert_memory_equal(a, b, (size_t)size);
    hv_cuda_target target = {b, (hv_codec)codec, HV_DTYPE_FLOAT32, LONG, NULL, verdicts, {0}};
    verdicts[0] = -1;
    assert_int_equal(hv_cuda_check(&gpu.cuda, stream, &target, 1, 1, scratch, hv_cuda_check_room(1), NULL), HV_OK);
    stand_in_run(&gpu, stream);
    assert_int_equal(verdicts[0], HV_OK);
  }
  free(x), free(a), free(b);
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

/* Tables of rows: cut at both ends, of one value, longer than the chunk, of several units; heads of more than a piece. */
static const hv_rows row_table[] = {{1, 1},    {3, 2},       {16, 16},     {17, 5},     {64, 64},
                                    {1000, 1}, {4097, 4096}, {9000, 9000}, {1 << 20, 7}};

static void rows_travel_through_the_kernels_as_on_the_cpu(void **state) {
  (void)state;
  enum { N_ROWS = sizeof row_table / sizeof *row_table, N = 193 * 64 };
  static uint8_t there[N_ROWS][12 * N] __attribute__((aligned(64))), here[12 * N];
  static float lost[N_ROWS][N], lost_here[N];
  stand_in gpu;
  stand_in_init(&gpu, 3);
  void *stream = stand_in_stream_new(&gpu);
  for (int kind = 0; kind < VALUES_KINDS; kind++)
    for (size_t d = 0; d < N_DTYPES; d++) {
      hv_dtype dtype = dtypes[d];
      int feedback = (kind + (int)d) % 2;
      hv_cuda_source from[N_ROWS];
      gpu.backwards = kind % 2;
      values_as(dtype, pool[kind], N, sources[0], NULL);
      for (size_t i = 0; i < N_ROWS; i++) {
        memset(lost[i], 0, sizeof lost[i]);
        from[i] = (hv_cuda_source){sources[0], feedback ? lost[i] : NULL, there[i], N - i, row_table[i]};
      }
      assert_int_equal(hv_cuda_encode(&gpu.cuda, stream, HV_CODEC_SCALED_ROWS, dtype, from, N_ROWS, scratch, sizeof scratch, NULL),
                       HV_OK);
      stand_in_run(&gpu, stream);
      for (size_t i = 0; i < N_ROWS; i++) {
        uint64_t size = 0;
        hv_codec_info info;
        memset(lost_here, 0, sizeof lost_here);
        assert_int_equal(hv_codec_encode_rows(reference(), HV_CODEC_SCALED_ROWS, dtype, sources[0], N - i, row_table[i],
                                              feedback ? lost_here : NULL, here, sizeof here, &size),
                         HV_OK);
        assert_memory_equal(here, there[i], (size_t)size);
        assert_memory_equal(lost_here, lost[i], sizeof lost_here);
        hv_span one = hv_span_of(here, (size_t)size);
        assert_int_equal(hv_codec_peek(&one, 1, &info), HV_OK);
        hv_status cpu = hv_codec_decode_finite(reference(), &one, 1, HV_DTYPE_FLOAT32, sum, N - i);
        hv_cuda_target target = {there[i], info.codec, info.dtype, info.count, sums[0], verdicts, info.rows};
        assert_int_equal(hv_cuda_check(&gpu.cuda, stream, &target, 1, 1, scratch, hv_cuda_check_room(1), NULL), HV_OK);
        assert_int_equal(hv_cuda_decode(&gpu.cuda, stream, HV_DTYPE_FLOAT32, &target, 1, NULL), HV_OK);
        stand_in_run(&gpu, stream);
        assert_int_equal(verdicts[0], cpu);
        if (cpu == HV_OK)
          assert_memory_equal(sum, sums[0], (N - i) * sizeof *sum);
        target.rows.width++; /* the device's copy says other rows than the host's */
        assert_int_equal(hv_cuda_check(&gpu.cuda, stream, &target, 1, 1, scratch, hv_cuda_check_room(1), NULL), HV_OK);
        stand_in_run(&gpu, stream);
        assert_int_equal(verdicts[0], HV_MALFORMED);
      }
    }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

static void residuals_become_the_cpus_to_the_bit(void **state) {
  (void)state;
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  for (int codec = 1; codec < HV_CODEC_COUNT; codec++)
    for (int kind = 0; kind < VALUES_KINDS; kind += STEP) {
      int dtype = (int)dtypes[(codec + kind) % N_DTYPES];
      gpu.backwards = kind % 2;
      lay_out(dtype, kind, kind % 2);
      for (size_t l = 0; l < LENGTHS; l++) {
        values_fill(residuals[l], lengths[l], VALUES_NORMAL, l);
        jobs[l].residual = residuals[l];
      }
      encode_all(&gpu, stream, codec, dtype);
      for (size_t l = 0; l < LENGTHS; l++) {
        values_fill(residual, lengths[l], VALUES_NORMAL, l);
        hv_span cpu = reference_chunk(codec, dtype, l, residual);
        assert_memory_equal(cpu.data, chunks[l], cpu.size);
        assert_memory_equal(residual, residuals[l], lengths[l] * sizeof *residual);
      }
    }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

static void aim(int codec, int dtype, size_t l, int checked) {
  targets[l] = (hv_cuda_target){
      chunks[l], (hv_codec)codec, (hv_dtype)dtype, lengths[l], (uint8_t *)sums[l] + (l % 2) * 4, checked ? &verdicts[l] : NULL,
      {0}};
}

static void kernels_decode_the_same_values_as_the_cpu(void **state) {
  (void)state;
  static uint8_t plain[ROOM];
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  unsigned turn = 0;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (size_t d = 0; d < N_DTYPES; d++)
      for (size_t to = 0; to < N_DTYPES; to++)
        for (int kind = 0; kind < VALUES_KINDS; kind++) {
          if (turn++ % (2 * STEP))
            continue;
          gpu.backwards = turn / 4 % 2;
          lay_out((int)dtypes[d], kind, 0);
          encode_all(&gpu, stream, codec, (int)dtypes[d]);
          for (size_t l = 0; l < LENGTHS; l++)
            aim(codec, (int)dtypes[d], l, turn / 8 % 2);
          assert_int_equal(
              hv_cuda_check(&gpu.cuda, stream, targets, turn / 8 % 2 ? LENGTHS : 0, 0, scratch, hv_cuda_check_room(LENGTHS), NULL),
              HV_OK);
          assert_int_equal(hv_cuda_decode(&gpu.cuda, stream, dtypes[to], targets, LENGTHS, NULL), HV_OK);
          stand_in_run(&gpu, stream);
          for (size_t l = 0; l < LENGTHS; l++) {
            hv_span one = hv_span_of(chunks[l], (size_t)hv_codec_bound(codec, (int)dtypes[d], lengths[l]));
            assert_int_equal(hv_codec_decode(reference(), &one, 1, dtypes[to], plain, lengths[l]), HV_OK);
            if (memcmp(plain, targets[l].out, lengths[l] * hv_dtype_size((int)dtypes[to])))
              fail_msg("%s of %s, dtype %d to %d, %zu elements: other values", hv_codec_name(codec), values_name((values_kind)kind),
                       (int)dtypes[d], (int)dtypes[to], lengths[l]);
          }
        }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

/* The sums equal the CPU's, made one after the other. Sixteen inputs of all codecs and dtypes, of which some are spoiled, into sums
 * of all lengths at once. */
static void fused_sums_equal_the_cpus_and_skip_spoiled_inputs(void **state) {
  (void)state;
  static uint8_t inputs[LENGTHS][HV_CUDA_INPUTS_MAX][ROOM] __attribute__((aligned(64)));
  static hv_cuda_input in[LENGTHS][HV_CUDA_INPUTS_MAX];
  static hv_cuda_sum wanted[LENGTHS];
  const int32_t bad = HV_CORRUPT, good = HV_OK;
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  for (int pass = 0; pass < 2; pass++) {
    gpu.backwards = pass;
    for (size_t l = 0; l < LENGTHS; l++) {
      size_t n_inputs = pass ? 1 + l % HV_CUDA_INPUTS_MAX : HV_CUDA_INPUTS_MAX;
      for (size_t i = 0; i < n_inputs; i++) {
        int codec = (int)(i + l) % HV_CODEC_COUNT, dtype = (int)dtypes[i % N_DTYPES];
        uint64_t size = 0;
        values_as((hv_dtype)dtype, pool[i % VALUES_SPIKE], lengths[l], sources[0], NULL);
        assert_int_equal(
            hv_codec_encode(reference(), (hv_codec)codec, (hv_dtype)dtype, sources[0], lengths[l], NULL, inputs[l][i], ROOM, &size),
            HV_OK);
        in[l][i] = (hv_cuda_input){inputs[l][i], (hv_codec)codec, (hv_dtype)dtype, 0.1f * (float)(i + 1),
                                   i % 5 == 4 ? &bad
                                   : i % 2    ? &good
                                              : NULL};
      }
      wanted[l] = (hv_cuda_sum){sums[l] + l % 2, lengths[l], in[l], n_inputs};
      memcpy(sums[l] + l % 2, pool[VALUES_NORMAL], lengths[l] * sizeof(float));
    }
    assert_int_equal(hv_cuda_add(&gpu.cuda, stream, wanted, LENGTHS, NULL), HV_OK);
    stand_in_run(&gpu, stream);
    for (size_t l = 0; l < LENGTHS; l++) {
      memcpy(sum, pool[VALUES_NORMAL], lengths[l] * sizeof(float));
      for (size_t i = 0; i < wanted[l].n_inputs; i++) {
        hv_span one = hv_span_of(inputs[l][i], (size_t)hv_codec_bound((int)in[l][i].codec, (int)in[l][i].dtype, lengths[l]));
        if (i % 5 != 4)
          assert_int_equal(hv_codec_accumulate(reference(), &one, 1, in[l][i].weight, sum, lengths[l]), HV_OK);
      }
      assert_memory_equal(sum, wanted[l].acc, lengths[l] * sizeof(float));
    }
  }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

/* ---- hostile chunks ---- */

/* The device's verdict on chunks[0], and whether a decode left its out alone. */
static int32_t judged(stand_in *gpu, void *stream, int codec, int dtype, size_t n, hv_rows rows, int finite, int *untouched) {
  hv_cuda_target target = {chunks[0], (hv_codec)codec, (hv_dtype)dtype, n, sums[0], verdicts, rows};
  memset(sums[0], 0x77, (n + 1) * 4);
  assert_int_equal(hv_cuda_check(&gpu->cuda, stream, &target, 1, finite, scratch, hv_cuda_check_room(1), NULL), HV_OK);
  assert_int_equal(hv_cuda_decode(&gpu->cuda, stream, HV_DTYPE_FLOAT32, &target, 1, NULL), HV_OK);
  stand_in_run(gpu, stream);
  *untouched = 1;
  for (size_t i = 0; i < 4 * n; i++)
    *untouched &= ((uint8_t *)sums[0])[i] == 0x77;
  return verdicts[0];
}

static void a_changed_chunk_is_judged_as_the_cpu_judges_it(void **state) {
  (void)state;
  enum { N = 5000 };
  static float out[N];
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  check_rng rng = {11};
  unsigned refused = 0, spoiled = 0, unfit = 0, fine = 0;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (int change = 0; change < 240; change += STEP) {
      hv_dtype dtype = dtypes[change % N_DTYPES];
      uint64_t size = 0;
      values_as(dtype, pool[VALUES_HEAVY], N, sources[0], NULL);
      assert_int_equal(hv_codec_encode(reference(), (hv_codec)codec, dtype, sources[0], N, NULL, chunks[0], ROOM, &size), HV_OK);
      size_t reach = change % 3 == 0 ? (size_t)size - HV_CODEC_HEADER : 64; /* anywhere, or where the params are */
      for (int i = 0; i < 1 + change % 4 * 2; i++)
        chunks[0][HV_CODEC_HEADER + check_random(&rng) % reach] = change % 5 ? (uint8_t)check_random(&rng) : 0xff;
      if (change % 8)
        seal_chunk(chunks[0], (size_t)size);
      hv_span one = hv_span_of(chunks[0], (size_t)size);
      hv_status cpu = change % 2 ? hv_codec_decode_finite(reference(), &one, 1, HV_DTYPE_FLOAT32, out, N)
                                 : hv_codec_decode(reference(), &one, 1, HV_DTYPE_FLOAT32, out, N);
      int untouched;
      hv_codec_info info;
      if (hv_codec_peek(&one, 1, &info) != HV_OK) { /* other rows: the host takes no such chunk to the device */
        assert_int_equal(cpu, HV_MALFORMED);
        continue;
      }
      int32_t verdict = judged(&gpu, stream, codec, (int)dtype, N, info.rows, change % 2, &untouched);
      if (verdict != (int32_t)cpu)
        fail_msg("%s, change %d: %s here, %s on the CPU", hv_codec_name(codec), change, hv_status_name((hv_status)verdict),
                 hv_status_name(cpu));
      if (cpu != HV_OK)
        assert_true(untouched);
      else
        assert_memory_equal(out, sums[0], sizeof out);
      refused += cpu == HV_CORRUPT, spoiled += cpu == HV_NOT_FINITE, unfit += cpu == HV_MALFORMED, fine += cpu == HV_OK;
    }
  assert_true(refused && spoiled && unfit && fine); /* all four were met */
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

static void header_that_differs_from_the_hosts_is_malformed(void **state) {
  (void)state;
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  for (size_t at = 0; at < 24; at++) {
    uint64_t size = 0;
    int untouched;
    assert_int_equal(hv_codec_encode(reference(), HV_CODEC_LINEAR8, HV_DTYPE_FLOAT32, pool[0], 1000, NULL, chunks[0], ROOM, &size),
                     HV_OK);
    assert_int_equal(judged(&gpu, stream, HV_CODEC_LINEAR8, HV_DTYPE_FLOAT32, 1000, (hv_rows){0}, 0, &untouched), HV_OK);
    chunks[0][at] ^= 0x10;
    assert_int_equal(judged(&gpu, stream, HV_CODEC_LINEAR8, HV_DTYPE_FLOAT32, 1000, (hv_rows){0}, 0, &untouched), HV_MALFORMED);
    assert_true(untouched);
  }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

/* ---- plain tensors ---- */

static void one_value_that_is_not_finite_is_found_anywhere(void **state) {
  (void)state;
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  const float odd[] = {1, (float)INFINITY, -(float)INFINITY, (float)NAN};
  for (size_t d = 0; d < N_DTYPES; d++)
    for (size_t l = 1; l < LENGTHS; l++)
      for (int k = 0; k < 4; k++) {
        size_t at = k % 2 ? lengths[l] - 1 : lengths[l] / 3, size = hv_dtype_size((int)dtypes[d]);
        uint32_t flag = 0;
        int finite;
        memset(sources[0], 0, ROOM);
        if (size == 4)
          memcpy(sources[0] + 4 * at, &odd[k], 4);
        else
          memcpy(sources[0] + 2 * at, &(uint16_t){dtypes[d] == HV_DTYPE_FLOAT16 ? (uint16_t)(0x7bff + k) : (uint16_t)(0x7f7f + k)},
                 2);
        assert_int_equal(hv_cuda_finite(&gpu.cuda, stream, dtypes[d], sources[0], lengths[l], &flag, NULL), HV_OK);
        stand_in_run(&gpu, stream);
        assert_int_equal(hv_reduce_finite(reference(), dtypes[d], sources[0], lengths[l], &finite), HV_OK);
        assert_int_equal(flag, !finite);
        assert_int_equal(finite, k == 0);
      }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

static void five_hundred_tensors_are_one_launch_and_1001_are_two(void **state) {
  (void)state;
  enum { MANY = 1001 };
  static hv_cuda_pair pairs[MANY];
  static uint8_t src[MANY * 128] __attribute__((aligned(64)));
  static float acc[MANY * 30], expected[MANY * 30];
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  for (size_t d = 0; d < N_DTYPES; d++)
    for (size_t n = 500; n <= MANY; n += 501) {
      size_t size = hv_dtype_size((int)dtypes[d]);
      for (size_t i = 0; i < n; i++) {
        uint64_t count = 1 + i % 30;
        values_as(dtypes[d], pool[VALUES_HEAVY] + i, count, src + 128 * i + i % 2 * size, NULL);
        pairs[i] = (hv_cuda_pair){src + 128 * i + i % 2 * size, acc + 30 * i, count};
        memcpy(acc + 30 * i, pool[VALUES_NORMAL] + i, 30 * sizeof *acc);
        memcpy(expected + 30 * i, acc + 30 * i, 30 * sizeof *acc);
        assert_int_equal(hv_reduce_accumulate(reference(), dtypes[d], pairs[i].src, 0.7f, expected + 30 * i, count), HV_OK);
      }
      uint64_t before = gpu.launches;
      gpu.backwards = n == MANY;
      assert_int_equal(hv_cuda_accumulate(&gpu.cuda, stream, dtypes[d], 0.7f, pairs, n, NULL), HV_OK);
      assert_int_equal(gpu.launches - before, n == MANY ? 2 : 1);
      stand_in_run(&gpu, stream);
      assert_memory_equal(acc, expected, n * 30 * sizeof *acc);
    }
  pairs[1] = (hv_cuda_pair){src, acc, 0}; /* empty ones, and large ones between small ones */
  pairs[0] = (hv_cuda_pair){pool[0], sums[0], MOST};
  pairs[2] = (hv_cuda_pair){pool[1], sums[1], 4097};
  memset(sums[0], 0, MOST * 4), memset(sums[1], 0, MOST * 4), memset(sum, 0, sizeof sum);
  assert_int_equal(hv_cuda_accumulate(&gpu.cuda, stream, HV_DTYPE_FLOAT32, 2, pairs, 3, NULL), HV_OK);
  stand_in_run(&gpu, stream);
  assert_int_equal(hv_reduce_accumulate(reference(), HV_DTYPE_FLOAT32, pool[0], 2, sum, MOST), HV_OK);
  assert_memory_equal(sum, sums[0], sizeof sum);
  assert_true(sums[1][4096] == 2 * pool[1][4096] && sums[1][4097] == 0);
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

/* ---- what is refused ---- */

static void invalid_arguments_are_refused_before_any_launch(void **state) {
  (void)state;
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  hv_cuda_source one = {pool[0], NULL, chunks[0], 100, {0}}, two[2] = {one, one};
  hv_cuda_target target = {chunks[0], HV_CODEC_NONE, HV_DTYPE_FLOAT32, 100, sums[0], NULL, {0}};
  hv_cuda_input input = {chunks[0], HV_CODEC_NONE, HV_DTYPE_FLOAT32, -1, NULL};
  hv_cuda_sum a_sum = {sums[0], 100, &input, 1};
  size_t room = hv_cuda_encode_room(HV_CODEC_UNIFORM8, &one, 1);
  const hv_cuda *c = &gpu.cuda;
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_COUNT, HV_DTYPE_FLOAT32, &one, 1, scratch, room, NULL), HV_INVALID);
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_UNIFORM8, HV_DTYPE_FLOAT64, &one, 1, scratch, room, NULL), HV_INVALID);
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_UNIFORM8, HV_DTYPE_FLOAT32, &one, 1, scratch, room - 1, NULL), HV_TOO_LARGE);
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_UNIFORM8, HV_DTYPE_FLOAT32, &one, 1, scratch + 16, room, NULL), HV_INVALID);
  two[1].residual = residual;
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_NONE, HV_DTYPE_FLOAT32, two, 2, scratch, sizeof scratch, NULL), HV_INVALID);
  one.chunk++;
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_NONE, HV_DTYPE_FLOAT32, &one, 1, scratch, room, NULL), HV_INVALID);
  one.chunk--, one.src = (const uint8_t *)one.src + 1;
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_NONE, HV_DTYPE_FLOAT32, &one, 1, scratch, room, NULL), HV_INVALID);
  target.dtype = HV_DTYPE_FLOAT64;
  assert_int_equal(hv_cuda_decode(c, stream, HV_DTYPE_FLOAT32, &target, 1, NULL), HV_UNSUPPORTED);
  target.dtype = HV_DTYPE_FLOAT32, target.count = HV_CODEC_COUNT_MAX + 1;
  assert_int_equal(hv_cuda_decode(c, stream, HV_DTYPE_FLOAT32, &target, 1, NULL), HV_INVALID);
  target.count = 100;
  assert_int_equal(hv_cuda_decode(c, stream, HV_DTYPE_FLOAT64, &target, 1, NULL), HV_INVALID);
  assert_int_equal(hv_cuda_check(c, stream, &target, 1, 0, scratch, sizeof scratch, NULL),
                   HV_INVALID); /* no room for the verdict */
  assert_int_equal(hv_cuda_add(c, stream, &a_sum, 1, NULL), HV_INVALID);
  input.weight = 1, a_sum.n_inputs = HV_CUDA_INPUTS_MAX + 1;
  assert_int_equal(hv_cuda_add(c, stream, &a_sum, 1, NULL), HV_INVALID);
  target.verdict = verdicts, room = hv_cuda_limit_room(100);
  assert_int_equal(hv_cuda_limit(c, stream, &target, NULL, 1, 0, scratch, room - 1, NULL), HV_TOO_LARGE);
  assert_int_equal(hv_cuda_limit(c, stream, &target, NULL, 1, 0, scratch + 16, room, NULL), HV_INVALID);
  assert_int_equal(hv_cuda_limit(c, stream, &target, (float *)(void *)(scratch + 1), 1, 0, scratch, room, NULL), HV_INVALID);
  target.verdict = NULL;
  assert_int_equal(hv_cuda_limit(c, stream, &target, NULL, 1, 0, scratch, room, NULL), HV_INVALID);
  target.chunk = NULL;
  assert_int_equal(hv_cuda_limit(c, stream, &target, NULL, 1, 0, scratch, room, NULL), HV_INVALID);
  assert_int_equal(hv_cuda_finite(c, stream, HV_DTYPE_FLOAT64, pool[0], 1, (uint32_t *)verdicts, NULL), HV_INVALID);
  assert_int_equal(hv_cuda_accumulate(c, stream, HV_DTYPE_FLOAT32, 1, &(hv_cuda_pair){NULL, sum, 3}, 1, NULL), HV_INVALID);
  assert_int_equal(gpu.launches, 0);
  assert_int_equal(hv_cuda_encode(c, stream, HV_CODEC_NONE, HV_DTYPE_FLOAT32, NULL, 0, NULL, 0, NULL), HV_OK);
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

static void failed_launch_is_reported_to_the_caller(void **state) {
  (void)state;
  stand_in gpu;
  stand_in_init(&gpu, 2);
  void *stream = stand_in_stream_new(&gpu);
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    hv_cuda_source one = {pool[0], codec ? residual : NULL, chunks[0], MOST, {0}};
    hv_status status = HV_IO;
    long tried = 0;
    for (; status != HV_OK; tried++) {
      gpu.fail_at = gpu.calls + tried;
      gpu.fail_with = HV_NOMEM;
      status = hv_cuda_encode(&gpu.cuda, stream, (hv_codec)codec, HV_DTYPE_FLOAT32, &one, 1, scratch, sizeof scratch, NULL);
      assert_true(status == HV_OK || status == HV_NOMEM);
      assert_true(tried < 20);
    }
    assert_true(tried > 3);
    gpu.fail_at = -1;
    stand_in_run(&gpu, stream);
  }
  stand_in_stream_free(&gpu, stream);
  stand_in_fini(&gpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_made_by_the_kernels_are_the_cpus_to_the_bit),
      cmocka_unit_test(long_tensor_is_encoded_as_on_the_cpu),
      cmocka_unit_test(rows_travel_through_the_kernels_as_on_the_cpu),
      cmocka_unit_test(residuals_become_the_cpus_to_the_bit),
      cmocka_unit_test(kernels_decode_the_same_values_as_the_cpu),
      cmocka_unit_test(fused_sums_equal_the_cpus_and_skip_spoiled_inputs),
      cmocka_unit_test(a_changed_chunk_is_judged_as_the_cpu_judges_it),
      cmocka_unit_test(header_that_differs_from_the_hosts_is_malformed),
      cmocka_unit_test(one_value_that_is_not_finite_is_found_anywhere),
      cmocka_unit_test(five_hundred_tensors_are_one_launch_and_1001_are_two),
      cmocka_unit_test(invalid_arguments_are_refused_before_any_launch),
      cmocka_unit_test(failed_launch_is_reported_to_the_caller),
  };
  return cmocka_run_group_tests(tests, fill_pool, NULL);
}
