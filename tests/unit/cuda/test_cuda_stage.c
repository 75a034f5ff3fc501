#include "lib/cuda_stand_in.h"
#include "lib/seal.h"
#include "lib/values.h"

#include <stdio.h>
#include <string.h>

#if defined(HV_SANITIZED)
enum { SEEDS = 6 };
#else
enum { SEEDS = 60 };
#endif
enum { CHUNK = 3000, MOST = 7 * CHUNK + 500, CHUNKS = 8, ROOM = CHUNK * 4 + 2048 };

static float values[MOST], back[MOST], expected[MOST];
static uint8_t chunks[CHUNKS][ROOM];
static size_t sizes[CHUNKS];

static const hv_kern *reference(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}
static uint64_t chunks_of(uint64_t count) {
  return (count + CHUNK - 1) / CHUNK;
}

/* The chunks that the CPU makes of the first `count` values, and what they decode to. */
static void make_chunks(int codec, uint64_t count) {
  for (uint64_t i = 0; i < chunks_of(count); i++) {
    uint64_t n = count - i * CHUNK < CHUNK ? count - i * CHUNK : CHUNK, size = 0;
    assert_int_equal(
        hv_codec_encode(reference(), (hv_codec)codec, HV_DTYPE_FLOAT32, values + i * CHUNK, n, NULL, chunks[i], ROOM, &size),
        HV_OK);
    sizes[i] = (size_t)size;
    hv_span one = hv_span_of(chunks[i], sizes[i]);
    assert_int_equal(hv_codec_decode(reference(), &one, 1, HV_DTYPE_FLOAT32, expected + i * CHUNK, n), HV_OK);
  }
}

static hv_stage_shape shape_of(int codec, uint32_t slots) {
  return (hv_stage_shape){(hv_codec)codec, HV_DTYPE_FLOAT32, CHUNK, slots, 1 << 20};
}

typedef struct bench {
  stand_in gpu;
  hv_mem mem;
  hv_stage *stage;
  void *stream;
  uint64_t next;    /* chunk that must come now */
  uint64_t stop_at; /* the sink or well refuses this one */
} bench;

static void bench_init(bench *b, int codec, uint32_t slots, uint64_t seed) {
  stand_in_init(&b->gpu, 2);
  b->gpu.rng.state = seed;
  b->gpu.restless = seed != 0;
  b->gpu.backwards = seed % 2;
  hv_mem_init(&b->mem, NULL, HV_MEM_UNLIMITED);
  b->stream = stand_in_stream_new(&b->gpu);
  b->next = 0, b->stop_at = UINT64_MAX;
  hv_stage_shape shape = shape_of(codec, slots);
  assert_int_equal(hv_stage_new(&b->gpu.cuda, &b->mem, &shape, &b->stage, NULL), HV_OK);
}
static void bench_fini(bench *b) {
  hv_stage_free(b->stage);
  stand_in_stream_free(&b->gpu, b->stream);
  stand_in_fini(&b->gpu);
  assert_int_equal(b->mem.blocks, 0);
}

static hv_status look(void *arg, uint64_t index, hv_span bytes, hv_error *err) {
  bench *b = arg;
  assert_int_equal(index, b->next++);
  if (index == b->stop_at)
    return hv_fail(err, HV_CANCELLED, "enough");
  assert_int_equal(bytes.size, sizes[index]);
  assert_memory_equal(bytes.data, chunks[index], bytes.size);
  return HV_OK;
}
static hv_status pour(void *arg, uint64_t index, uint8_t *bytes, size_t room, size_t *size, hv_error *err) {
  bench *b = arg;
  assert_int_equal(index, b->next++);
  if (index == b->stop_at)
    return hv_fail(err, HV_CANCELLED, "enough");
  *size = sizes[index];
  if (*size <= room)
    memcpy(bytes, chunks[index], *size);
  return HV_OK;
}

static const uint64_t counts[] = {0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7, MOST};

static void sent_chunks_equal_the_cpus_in_any_order_of_streams(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    bench b;
    int codec = (int)(seed % HV_CODEC_COUNT);
    bench_init(&b, codec, 2 + seed / 3 % 3, seed);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      make_chunks(codec, counts[i]);
      b.next = 0;
      assert_int_equal(hv_stage_send(b.stage, b.stream, values, counts[i], look, &b, NULL), HV_OK);
      assert_int_equal(b.next, chunks_of(counts[i]));
    }
    bench_fini(&b);
  }
}

static void received_chunks_equal_the_cpus_in_any_order_of_streams(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    bench b;
    int codec = (int)(seed % HV_CODEC_COUNT);
    bench_init(&b, codec, 2 + seed / 3 % 3, seed);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      make_chunks(codec, counts[i]);
      b.next = 0;
      memset(back, 0x55, sizeof back);
      assert_int_equal(hv_stage_receive(b.stage, b.stream, back, counts[i], pour, &b, NULL), HV_OK);
      assert_memory_equal(back, expected, counts[i] * sizeof *back);
      if (counts[i] < MOST)
        assert_int_equal(((uint8_t *)&back[counts[i]])[0], 0x55);
    }
    bench_fini(&b);
  }
}

/* The chunk that is wrong is named, and its values stay. */
static void a_wrong_chunk_ends_the_receiving_and_leaves_its_values(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    bench b;
    hv_error err = {0};
    const uint64_t wrong = seed % CHUNKS;
    static const hv_status ends[] = {HV_CORRUPT, HV_MALFORMED, HV_NOT_FINITE, HV_INVALID, HV_TOO_LARGE, HV_MALFORMED};
    hv_status end = ends[seed / 8 % 6];
    int codec = end == HV_NOT_FINITE ? HV_CODEC_FLOAT16 : HV_CODEC_LINEAR8;
    bench_init(&b, codec, 3, seed);
    make_chunks(codec, MOST);
    if (seed / 8 % 6 == 0)
      chunks[wrong][sizes[wrong] - 1] ^= 1;
    else if (seed / 8 % 6 == 1)
      memset(chunks[wrong] + HV_CODEC_HEADER, 0xff, 8), seal_chunk(chunks[wrong], sizes[wrong]); /* scales that cannot be */
    else if (seed / 8 % 6 == 2)
      memset(chunks[wrong] + HV_CODEC_HEADER, 0xff, 8), seal_chunk(chunks[wrong], sizes[wrong]); /* a NaN */
    else if (seed / 8 % 6 == 3)
      memcpy(chunks[wrong], chunks[wrong == CHUNKS - 1 ? 0 : CHUNKS - 1],
             sizes[wrong] = sizes[wrong == CHUNKS - 1 ? 0 : CHUNKS - 1]);
    else if (seed / 8 % 6 == 4)
      sizes[wrong] = ROOM + 1;
    else
      sizes[wrong] = 7;
    if (seed / 8 % 6 == 3 && wrong == CHUNKS - 1)
      end = HV_INVALID;
    memset(back, 0x55, sizeof back);
    assert_int_equal(hv_stage_receive(b.stage, b.stream, back, MOST, pour, &b, &err), end);
    char name[16];
    snprintf(name, sizeof name, "chunk %d", (int)wrong);
    assert_non_null(strstr(err.text, name));
    for (uint64_t i = 0; i < wrong; i++)
      assert_memory_equal(back + i * CHUNK, expected + i * CHUNK, CHUNK * sizeof *back);
    for (uint64_t i = wrong * CHUNK; i < (wrong + 1) * CHUNK && i < MOST; i++)
      assert_int_equal(((uint8_t *)&back[i])[2], 0x55);
    make_chunks(codec, MOST); /* and the stage goes on as before */
    b.next = 0;
    assert_int_equal(hv_stage_receive(b.stage, b.stream, back, MOST, pour, &b, NULL), HV_OK);
    assert_memory_equal(back, expected, sizeof back);
    bench_fini(&b);
  }
}

static void callback_may_end_a_transfer_at_any_chunk(void **state) {
  (void)state;
  for (uint64_t stop = 0; stop < CHUNKS; stop++)
    for (int in = 0; in < 2; in++) {
      bench b;
      hv_error err = {0};
      bench_init(&b, HV_CODEC_UNIFORM8, 2, stop + 1);
      make_chunks(HV_CODEC_UNIFORM8, MOST);
      b.stop_at = stop;
      hv_status status = in ? hv_stage_receive(b.stage, b.stream, back, MOST, pour, &b, &err)
                            : hv_stage_send(b.stage, b.stream, values, MOST, look, &b, &err);
      assert_int_equal(status, HV_CANCELLED);
      assert_string_equal(err.text, "enough");
      assert_int_equal(b.next, stop + 1);
      b.stop_at = UINT64_MAX, b.next = 0;
      assert_int_equal(hv_stage_send(b.stage, b.stream, values, MOST, look, &b, NULL), HV_OK);
      bench_fini(&b);
    }
}

/* ---- errors of the device ---- */

static void stage_without_memory_keeps_nothing(void **state) {
  (void)state;
  for (int lost = 0; lost < 2; lost++) {
    hv_status status = HV_NOMEM;
    long call = 0;
    for (; status != HV_OK; call++) {
      stand_in gpu;
      hv_mem mem;
      hv_stage *stage = NULL;
      hv_error err = {0};
      hv_stage_shape shape = shape_of(HV_CODEC_QUANTILE8, 4);
      stand_in_init(&gpu, 2);
      hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
      gpu.fail_at = call, gpu.fail_with = lost ? HV_IO : HV_NOMEM;
      status = hv_stage_new(&gpu.cuda, &mem, &shape, &stage, &err);
      assert_true(status == HV_OK || (status == gpu.fail_with && err.text[0] && !stage));
      hv_stage_free(stage);
      stand_in_fini(&gpu);
      assert_int_equal(mem.blocks, 0);
    }
    assert_true(call > 8); /* memory of both kinds, a stream, two events for each slot */
  }
  stand_in gpu;
  hv_mem mem;
  hv_stage *stage = NULL;
  hv_stage_shape shape = shape_of(HV_CODEC_NONE, 2);
  stand_in_init(&gpu, 2);
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_mem_fail_in(&mem, 0);
  assert_int_equal(hv_stage_new(&gpu.cuda, &mem, &shape, &stage, NULL), HV_NOMEM);
  stand_in_fini(&gpu);
}

/* Each call fails in turn: for good, as when the device is lost, or once. */
static void device_that_fails_at_any_call_ends_the_stage_without_a_leak(void **state) {
  (void)state;
  for (int in = 0; in < 2; in++)
    for (int lost = 0; lost < 2; lost++) {
      hv_status status = HV_NOMEM;
      long call = 0;
      for (; status != HV_OK; call++) {
        bench b;
        bench_init(&b, HV_CODEC_BLOCKWISE8, 3, 1 + (uint64_t)call);
        make_chunks(HV_CODEC_BLOCKWISE8, MOST);
        b.gpu.fail_at = b.gpu.calls + call, b.gpu.fail_with = lost ? HV_IO : HV_NOMEM;
        status = in ? hv_stage_receive(b.stage, b.stream, back, MOST, pour, &b, NULL)
                    : hv_stage_send(b.stage, b.stream, values, MOST, look, &b, NULL);
        assert_true(status == HV_OK || status == b.gpu.fail_with);
        if (!lost) {
          b.gpu.fail_at = -1, b.next = 0;
          assert_int_equal(hv_stage_send(b.stage, b.stream, values, MOST, look, &b, NULL), HV_OK);
        }
        bench_fini(&b);
      }
      assert_true(call > 5 * CHUNKS);
    }
}

static void page_locked_memory_is_bounded_and_given_back(void **state) {
  (void)state;
  for (uint32_t slots = 2; slots <= HV_STAGE_SLOTS_MAX; slots += 7) {
    bench b;
    bench_init(&b, HV_CODEC_UNIFORM8, slots, 3);
    make_chunks(HV_CODEC_UNIFORM8, MOST);
    assert_int_equal(hv_stage_send(b.stage, b.stream, values, MOST, look, &b, NULL), HV_OK);
    b.next = 0;
    assert_int_equal(hv_stage_receive(b.stage, b.stream, back, MOST, pour, &b, NULL), HV_OK);
    assert_true(b.gpu.pinned_peak <= slots * (CHUNK + 1024));
    size_t peak = b.gpu.pinned_peak;
    bench_fini(&b);
    stand_in gpu;
    hv_mem mem;
    hv_stage *stage = NULL;
    hv_error err = {0};
    hv_stage_shape shape = shape_of(HV_CODEC_UNIFORM8, slots);
    shape.pinned_most = peak - 1;
    stand_in_init(&gpu, 2);
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    assert_int_equal(hv_stage_new(&gpu.cuda, &mem, &shape, &stage, &err), HV_BUDGET);
    assert_non_null(strstr(err.text, "page-locked"));
    assert_int_equal(gpu.pinned_peak, 0);
    assert_int_equal(mem.blocks, 0);
    shape.pinned_most = SIZE_MAX, shape.slots = 1;
    assert_int_equal(hv_stage_new(&gpu.cuda, &mem, &shape, &stage, NULL), HV_INVALID);
    shape.slots = HV_STAGE_SLOTS_MAX + 1;
    assert_int_equal(hv_stage_new(&gpu.cuda, &mem, &shape, &stage, NULL), HV_INVALID);
    shape.slots = 2, shape.chunk_values = 0;
    assert_int_equal(hv_stage_new(&gpu.cuda, &mem, &shape, &stage, NULL), HV_INVALID);
    shape.chunk_values = 1, shape.dtype = HV_DTYPE_FLOAT64;
    assert_int_equal(hv_stage_new(&gpu.cuda, &mem, &shape, &stage, NULL), HV_INVALID);
    stand_in_fini(&gpu);
  }
}

/* Two stages on one device, each with its own stream, taking turns. */
static void stages_do_not_share_state(void **state) {
  (void)state;
  bench a, b;
  bench_init(&a, HV_CODEC_LINEAR4, 2, 5);
  hv_stage_shape shape = shape_of(HV_CODEC_LINEAR4, 3);
  hv_stage *second = NULL;
  void *stream = stand_in_stream_new(&a.gpu);
  assert_int_equal(hv_stage_new(&a.gpu.cuda, &a.mem, &shape, &second, NULL), HV_OK);
  make_chunks(HV_CODEC_LINEAR4, MOST);
  for (int turn = 0; turn < 4; turn++) {
    b.next = a.next = 0, b.stop_at = UINT64_MAX;
    assert_int_equal(hv_stage_send(a.stage, a.stream, values, MOST, look, &a, NULL), HV_OK);
    assert_int_equal(hv_stage_receive(second, stream, back, MOST, pour, &b, NULL), HV_OK);
    assert_memory_equal(back, expected, sizeof back);
  }
  hv_stage_free(second);
  stand_in_stream_free(&a.gpu, stream);
  bench_fini(&a);
}

static int fill(void **state) {
  (void)state;
  values_fill(values, MOST, VALUES_HEAVY, 5);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sent_chunks_equal_the_cpus_in_any_order_of_streams),
      cmocka_unit_test(received_chunks_equal_the_cpus_in_any_order_of_streams),
      cmocka_unit_test(a_wrong_chunk_ends_the_receiving_and_leaves_its_values),
      cmocka_unit_test(callback_may_end_a_transfer_at_any_chunk),
      cmocka_unit_test(stage_without_memory_keeps_nothing),
      cmocka_unit_test(device_that_fails_at_any_call_ends_the_stage_without_a_leak),
      cmocka_unit_test(page_locked_memory_is_bounded_and_given_back),
      cmocka_unit_test(stages_do_not_share_state),
  };
  return cmocka_run_group_tests(tests, fill, NULL);
}
