/* The tensors of rounds on a GPU, over a GPU of plain C: the same bytes and bits as in plain memory, whatever the streams do. */
#include "lib/cuda_stand_in.h"
#include "lib/values.h"

#include "core/round/run.h"
#include "kern/reduce.h"

#include <math.h>
#include <string.h>

#if defined(HV_SANITIZED)
enum { SEEDS = 20 };
#else
enum { SEEDS = 200 };
#endif
enum { PARTS = 24, VALUES = 1500, ROOM = PARTS * VALUES * 4 + 4096 };

/* Tensors of a model: small ones between large ones, some of which lie next to each other. */
typedef struct model {
  hv_run_part parts[PARTS];
  size_t n;
  _Alignas(64) uint8_t bytes[PARTS * VALUES * 4];
} model;

typedef struct bench {
  stand_in gpu;
  hv_mem mem;
  hv_transfers *transfers;
  void *stream; /* the program's */
  hv_run here, there;
} bench;

static model host, device;

static const hv_kern *kern(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}

static void make_model(model *m, int codec, check_rng *rng) {
  float values[VALUES];
  size_t at = 0;
  int one_kind = check_random(rng) % 3 == 0;
  m->n = 1 + check_random(rng) % PARTS;
  for (size_t i = 0; i < m->n; i++) {
    hv_dtype dtype = one_kind ? HV_DTYPE_FLOAT32 : (hv_dtype)(1 + check_random(rng) % 3);
    uint64_t n = check_random(rng) % 3 ? check_random(rng) % 40 : check_random(rng) % VALUES;
    at = (at + 3) / 4 * 4 + (check_random(rng) % 2 ? 4 : 0);
    m->parts[i] = (hv_run_part){m->bytes + at, dtype, n, (hv_codec)codec, NULL, n % 32 ? 0 : 16, 0, 0};
    values_fill(values, n, VALUES_NORMAL, check_random(rng));
    hv_reduce_convert(kern(), HV_DTYPE_FLOAT32, values, dtype, m->parts[i].data, n);
    at += n * hv_dtype_size((int)dtype);
  }
}

static void copy_model(model *to, const model *from, const hv_device *where) {
  memcpy(to, from, sizeof *to);
  for (size_t i = 0; i < to->n; i++) {
    to->parts[i].data = to->bytes + ((uint8_t *)from->parts[i].data - from->bytes);
    to->parts[i].device = where;
  }
}

static void open_transfers(bench *b, uint64_t seed, uint32_t slots) {
  stand_in_init(&b->gpu, 2);
  b->gpu.rng.state = seed;
  b->gpu.restless = seed % 3 != 0;
  b->gpu.backwards = seed % 2;
  hv_mem_init(&b->mem, NULL, HV_MEM_UNLIMITED);
  b->stream = stand_in_stream_new(&b->gpu);
  hv_transfers_shape shape = {4000, slots, 2, 1 << 20};
  assert_int_equal(hv_transfers_new(&b->gpu.cuda, &b->mem, &shape, &b->transfers, NULL), HV_OK);
}

static void open_runs(bench *b, uint32_t chunk_values) {
  copy_model(&device, &host, hv_transfers_device(b->transfers));
  assert_int_equal(hv_run_init(&b->here, &b->mem, host.parts, host.n, chunk_values, NULL), HV_OK);
  assert_int_equal(hv_run_init(&b->there, &b->mem, device.parts, device.n, chunk_values, NULL), HV_OK);
}

/* A model, a ring of one to three slots, and chunks of any size. */
static void open_both(bench *b, uint64_t seed, check_rng *rng) {
  make_model(&host, (int)(seed % HV_CODEC_COUNT), rng);
  open_transfers(b, seed, 1 + seed % 3);
  open_runs(b, 1 + (uint32_t)(check_random(rng) % 4000));
}

static void close_all(bench *b) {
  hv_run_fini(&b->here), hv_run_fini(&b->there);
  hv_transfers_free(b->transfers);
  stand_in_stream_free(&b->gpu, b->stream);
  stand_in_fini(&b->gpu);
  assert_int_equal(atomic_load(&b->mem.blocks), 0);
}

static void transferred_chunk_and_its_values_equal_the_cpus(void **state) {
  (void)state;
  static uint8_t ours[ROOM], theirs[ROOM];
  static float sum[4000], other[4000];
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    check_rng rng = {seed};
    bench b = {0};
    open_both(&b, seed, &rng);
    for (uint32_t i = 0; i < b.here.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&b.here, i);
      size_t size, size_there;
      assert_int_equal(hv_run_encode(&b.here, kern(), i, chunk.codec, ours, ROOM, &size), HV_OK);
      assert_int_equal(hv_run_encode(&b.there, kern(), i, chunk.codec, theirs, ROOM, &size_there), HV_OK);
      assert_int_equal(size, size_there);
      assert_memory_equal(ours, theirs, size);
      memset(sum, 0, sizeof sum), memset(other, 0, sizeof other);
      assert_int_equal(hv_run_accumulate(&b.here, kern(), i, 3, 0, sum), HV_OK);
      assert_int_equal(hv_run_accumulate(&b.there, kern(), i, 3, 0, other), HV_OK);
      assert_memory_equal(sum, other, sizeof sum);
      for (uint32_t v = 0; v < chunk.size; v++) /* an average: other values than those that are there */
        sum[v] = sum[v] * 0.6f + 1;
      uint64_t written;
      assert_int_equal(hv_codec_encode(kern(), chunk.codec, HV_DTYPE_FLOAT32, sum, chunk.size, NULL, ours, ROOM, &written), HV_OK);
      size_t cut = (size_t)(check_random(&rng) % written);
      hv_span spans[] = {hv_span_of(ours, cut), hv_span_of(ours + cut, (size_t)written - cut)};
      assert_int_equal(hv_run_decode(&b.here, kern(), i, spans, 2), HV_OK);
      assert_int_equal(hv_run_decode(&b.there, kern(), i, spans, 2), HV_OK);
    }
    assert_memory_equal(host.bytes, device.bytes, sizeof host.bytes);
    close_all(&b);
  }
}

/* Values of all sizes, near the limits too; the chunk of them, and a limit for their norm that they are just within or just beyond.
 */
static size_t contribution(check_rng *rng, uint32_t n, uint8_t *codes, float *weight, float *norm_max) {
  static const float scales[] = {1, 1, 1, 0x1p100f, 0x1p118f, 0x1p120f, 0x1p127f}, weights[] = {0, 1, 0.3f, 0x1p-9f, 0x1p20f};
  static float values[4000], back[4000];
  uint64_t size;
  double square = 0, more;
  hv_codec codec = (hv_codec)(check_random(rng) % HV_CODEC_COUNT);
  float scale = scales[check_random(rng) % 7];
  values_fill(values, n, VALUES_NORMAL, check_random(rng));
  for (uint32_t i = 0; i < n; i++)
    values[i] = fabsf(values[i]) > 1.9f ? scale : values[i] * 0.5f * scale;
  if (check_random(rng) % 8 == 0)
    values[check_random(rng) % n] = check_random(rng) % 2 ? NAN : -INFINITY;
  assert_int_equal(hv_codec_encode(kern(), codec, HV_DTYPE_FLOAT32, values, n, NULL, codes, ROOM, &size), HV_OK);
  hv_span span = hv_span_of(codes, (size_t)size);
  assert_int_equal(hv_codec_decode(kern(), &span, 1, HV_DTYPE_FLOAT32, back, n), HV_OK);
  for (uint32_t at = 0; at < n; at += 1024, square += more)
    hv_reduce_square_sum(kern(), HV_DTYPE_FLOAT32, back + at, n - at < 1024 ? n - at : 1024, &more);
  float norm = (float)sqrt(square);
  *weight = weights[check_random(rng) % 5];
  *norm_max = check_random(rng) % 2 ? 0 : check_random(rng) % 2 ? norm : nextafterf(norm, check_random(rng) % 2 ? 0 : INFINITY);
  if (check_random(rng) % 9 == 0)
    codes[check_random(rng) % size] ^= 1;
  return (size_t)size;
}

static void device_sums_and_refusals_equal_the_hosts_bit_for_bit(void **state) {
  (void)state;
  static uint8_t codes[ROOM], ours[ROOM], theirs[ROOM];
  static float acc[2][4000];
  int refused = 0, taken = 0, own_refused = 0, on_host = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    check_rng rng = {seed};
    bench b = {0};
    open_both(&b, seed, &rng);
    for (uint32_t i = 0; i < b.here.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&b.here, i);
      hv_run_sum here = {.here = acc[0]}, there = {.here = acc[1]}, others[2] = {here, here};
      int full = check_random(&rng) % 8 == 0; /* no sum is left: the host's does it */
      for (int k = 0; k < 2 && full; k++)
        assert_int_equal(hv_run_sum_begin(&b.there, i, &others[k]), HV_OK);
      assert_int_equal(hv_run_sum_begin(&b.here, i, &here), HV_OK);
      assert_int_equal(hv_run_sum_begin(&b.there, i, &there), HV_OK);
      assert_null(here.device);
      assert_int_equal(there.device == NULL, full);
      on_host += full;
      int n = (int)(check_random(&rng) % 6), own = (int)(check_random(&rng) % 3);
      for (int k = 0; k < n; k++) {
        float weight, norm_max;
        size_t size = contribution(&rng, chunk.size, codes, &weight, &norm_max), cut = (size_t)(check_random(&rng) % size);
        hv_span spans[] = {hv_span_of(codes, cut), hv_span_of(codes + cut, size - cut)};
        hv_status one = hv_run_sum_add(kern(), &here, chunk.size, spans, 2, weight, norm_max);
        assert_int_equal(hv_run_sum_add(kern(), &there, chunk.size, spans, 2, weight, norm_max), one);
        refused += one != HV_OK, taken += one == HV_OK;
      }
      if (own) {
        float norm_max = own == 1 ? 0 : check_random(&rng) % 2 ? 1e-6f : 1e6f;
        hv_status one = hv_run_sum_add_own(&b.here, kern(), i, &here, 0.7f, norm_max);
        assert_int_equal(hv_run_sum_add_own(&b.there, kern(), i, &there, 0.7f, norm_max), one);
        own_refused += one == HV_TOO_LARGE;
      }
      size_t size, size_there;
      assert_int_equal(hv_run_sum_encode(&b.here, kern(), i, &here, 1 / 3.0f, ours, ROOM, &size), HV_OK);
      assert_int_equal(hv_run_sum_encode(&b.there, kern(), i, &there, 1 / 3.0f, theirs, ROOM, &size_there), HV_OK);
      assert_int_equal(size, size_there);
      assert_memory_equal(ours, theirs, size);
      hv_run_sum_end(&here), hv_run_sum_end(&there);
      for (int k = 0; k < 2; k++)
        hv_run_sum_end(&others[k]);
    }
    close_all(&b);
  }
  assert_true(refused > SEEDS && taken > SEEDS && own_refused > 0 && on_host > 0);
}

/* 1024 * 1024 is just within; squares that are each less than half of its last bit count or not by the order in which all are
 * summed, which is the host's. */
static void norms_are_summed_in_the_hosts_order(void **state) {
  (void)state;
  static float values[4096], acc[4096];
  static uint8_t codes[ROOM];
  int counted[2] = {0, 0};
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    check_rng rng = {seed};
    bench b = {0};
    uint32_t n = 64 + (uint32_t)(check_random(&rng) % 3900), large = (uint32_t)(check_random(&rng) % n);
    uint64_t size;
    memset(values, 0, sizeof values);
    for (uint64_t k = 0; k < 2 + seed % 9; k++) {
      uint32_t at = (uint32_t)(check_random(&rng) % n);
      values[seed % 4 ? at / 32 * 32 + large % 32 : at] = 0x1p-17f;
    }
    values[large] = -1024;
    open_transfers(&b, seed, 1);
    const hv_device *d = hv_transfers_device(b.transfers);
    void *sum;
    assert_int_equal(hv_codec_encode(kern(), HV_CODEC_NONE, HV_DTYPE_FLOAT32, values, n, NULL, codes, ROOM, &size), HV_OK);
    hv_span span = hv_span_of(codes, (size_t)size);
    memset(acc, 0, sizeof acc);
    assert_int_equal(d->sum_take(d->self, n, &sum), HV_OK);
    hv_status status = hv_codec_accumulate_within(kern(), &span, 1, 1, 1024, acc, n);
    assert_int_equal(d->sum_add(d->self, sum, &span, 1, 1, 1024), status);
    counted[status == HV_OK]++;
    d->sum_give(d->self, sum);
    close_all(&b);
  }
  assert_in_range(counted[0], 1, SEEDS - 1);
}

/* Chunks that are all on one device stay there, whichever it is; of others the values come to the host. */
static void tensors_on_two_gpus_and_in_memory_are_one_run(void **state) {
  (void)state;
  static uint8_t given[ROOM], averages[2][ROOM];
  static float acc[4000];
  int on[3] = {0, 0, 0};
  for (uint64_t seed = 1; seed <= SEEDS / 2; seed++) {
    check_rng rng = {seed};
    bench b = {0}, other = {0};
    make_model(&host, (int)(seed % HV_CODEC_COUNT), &rng);
    open_transfers(&b, seed, 2), open_transfers(&other, seed + 1, 1);
    copy_model(&device, &host, NULL);
    for (size_t i = 0; i < device.n; i++)
      device.parts[i].device = i % 3 == 2 ? NULL : hv_transfers_device(i % 3 ? b.transfers : other.transfers);
    uint32_t chunk_values = 1 + (uint32_t)(check_random(&rng) % 900);
    assert_int_equal(hv_run_init(&b.here, &b.mem, host.parts, host.n, chunk_values, NULL), HV_OK);
    assert_int_equal(hv_run_init(&b.there, &b.mem, device.parts, device.n, chunk_values, NULL), HV_OK);
    for (uint32_t i = 0; i < b.here.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&b.here, i);
      size_t size, size_there;
      assert_int_equal(hv_run_encode(&b.here, kern(), i, chunk.codec, given, ROOM, &size), HV_OK);
      assert_int_equal(hv_run_encode(&b.there, kern(), i, chunk.codec, averages[1], ROOM, &size_there), HV_OK);
      assert_int_equal(size, size_there);
      assert_memory_equal(given, averages[1], size);
      for (int side = 0; side < 2; side++) {
        const hv_run *run = side ? &b.there : &b.here;
        hv_run_sum sum = {.here = acc};
        hv_span span = hv_span_of(given, size);
        assert_int_equal(hv_run_sum_begin(run, i, &sum), HV_OK);
        assert_int_equal(hv_run_sum_add_own(run, kern(), i, &sum, 2, 0), HV_OK);
        assert_int_equal(hv_run_sum_add(kern(), &sum, chunk.size, &span, 1, 1, 0), HV_OK);
        assert_int_equal(hv_run_sum_encode(run, kern(), i, &sum, 0.25f, averages[side], ROOM, &size_there), HV_OK);
        span = hv_span_of(averages[side], size_there);
        on[sum.device ? sum.device == hv_transfers_device(b.transfers) : 2]++;
        hv_run_sum_end(&sum);
        assert_int_equal(hv_run_decode(run, kern(), i, &span, 1), HV_OK);
      }
      assert_memory_equal(averages[0], averages[1], size);
    }
    assert_memory_equal(host.bytes, device.bytes, sizeof host.bytes);
    close_all(&b), close_all(&other);
  }
  assert_true(on[0] > 0 && on[1] > 0 && on[2] > 0);
}

static void invalid_contribution_is_refused_before_any_device_call(void **state) {
  (void)state;
  static double wide[40];
  static float values[40];
  uint8_t codes[1024];
  uint64_t size;
  void *sum, *more;
  bench b = {0};
  open_transfers(&b, 3, 1);
  const hv_device *d = hv_transfers_device(b.transfers);
  assert_int_equal(d->sum_take(d->self, 4001, &sum), HV_OK);
  assert_null(sum); /* larger than a chunk */
  assert_int_equal(d->sum_take(d->self, 40, &sum), HV_OK);
  assert_non_null(sum);
  long calls = b.gpu.calls;
  hv_span none = hv_span_of(codes, 10);
  assert_int_equal(d->sum_add(d->self, sum, &none, 1, 1, 0), HV_MALFORMED);
  assert_int_equal(hv_codec_encode(kern(), HV_CODEC_FLOAT16, HV_DTYPE_FLOAT64, wide, 40, NULL, codes, sizeof codes, &size), HV_OK);
  hv_span span = hv_span_of(codes, (size_t)size);
  assert_int_equal(d->sum_add(d->self, sum, &span, 1, 1, 0), HV_UNSUPPORTED);
  assert_int_equal(hv_codec_encode(kern(), HV_CODEC_FLOAT16, HV_DTYPE_FLOAT32, values, 39, NULL, codes, sizeof codes, &size),
                   HV_OK);
  span = hv_span_of(codes, (size_t)size);
  assert_int_equal(d->sum_add(d->self, sum, &span, 1, 1, 0), HV_INVALID);
  assert_int_equal(d->sum_add(d->self, sum, &span, 1, NAN, 0), HV_INVALID);
  assert_int_equal(d->sum_add(d->self, sum, &span, 1, -1, 0), HV_INVALID);
  hv_stretch stretch = {values, HV_DTYPE_FLOAT32, 39};
  assert_int_equal(d->sum_add_own(d->self, sum, &stretch, 1, 1, 0), HV_INVALID);
  size_t written;
  assert_int_equal(d->sum_encode(d->self, sum, 1, HV_CODEC_NONE, (hv_rows){0}, codes, 100, &written), HV_TOO_LARGE);
  assert_int_equal(b.gpu.calls, calls);
  assert_int_equal(d->sum_encode(d->self, sum, 1, HV_CODEC_NONE, (hv_rows){0}, codes, sizeof codes, &written),
                   HV_OK); /* nobody's: zeros */
  span = hv_span_of(codes, written);
  memset(values, 1, sizeof values);
  assert_int_equal(hv_codec_decode(kern(), &span, 1, HV_DTYPE_FLOAT32, values, 40), HV_OK);
  for (int i = 0; i < 40; i++)
    assert_true(values[i] == 0);
  assert_int_equal(d->sum_take(d->self, 40, &more), HV_OK);
  assert_non_null(more);
  d->sum_give(d->self, more);
  d->sum_give(d->self, sum);
  b.here = (hv_run){0}, b.there = (hv_run){0};
  close_all(&b);
}

/* Work on the program's stream that the device has not done yet comes before the chunk. */
static void earlier_work_on_the_programs_stream_comes_first(void **state) {
  (void)state;
  float values[100], later[100];
  uint8_t codes[1024], want[1024];
  size_t size;
  uint64_t written;
  for (uint64_t seed = 1; seed <= 30; seed++) {
    bench b = {0};
    open_transfers(&b, 3 * seed, 2);
    for (int i = 0; i < 100; i++)
      values[i] = (float)i, later[i] = (float)(i * i);
    hv_stretch all = {values, HV_DTYPE_FLOAT32, 100};
    const hv_device *table = hv_transfers_device(b.transfers);
    hv_cuda_world *w = &b.gpu.cuda.world;
    assert_int_equal(w->copy(w->self, b.stream, values, later, sizeof later, NULL), HV_OK);
    assert_int_equal(hv_transfers_follow(b.transfers, b.stream, NULL), HV_OK);
    assert_int_equal(table->encode(table->self, HV_CODEC_UNIFORM8, (hv_rows){0}, &all, 1, codes, sizeof codes, &size), HV_OK);
    assert_int_equal(hv_codec_encode(kern(), HV_CODEC_UNIFORM8, HV_DTYPE_FLOAT32, later, 100, NULL, want, sizeof want, &written),
                     HV_OK);
    assert_memory_equal(codes, want, size);
    close_all(&b);
  }
}

static void hostile_chunks_write_nothing_and_give_the_cpus_errors(void **state) {
  (void)state;
  static uint8_t codes[ROOM];
  for (uint64_t seed = 1; seed <= SEEDS / 2; seed++) {
    check_rng rng = {seed};
    bench b = {0};
    size_t size;
    make_model(&host, (int)(seed % HV_CODEC_COUNT), &rng);
    open_transfers(&b, seed, 2);
    open_runs(&b, 4000);
    for (int turn = 0; turn < 20 && b.here.n_chunks; turn++) {
      uint32_t i = (uint32_t)(check_random(&rng) % b.here.n_chunks);
      static model before;
      before = device;
      assert_int_equal(hv_run_encode(&b.here, kern(), i, hv_run_chunk_of(&b.here, i).codec, codes, ROOM, &size), HV_OK);
      size_t at = (size_t)(check_random(&rng) % (turn % 2 ? size : 32));
      codes[at] ^= (uint8_t)(1u << check_random(&rng) % 8);
      hv_span span = hv_span_of(codes, turn % 5 ? size : size / 2);
      hv_status here = hv_run_decode(&b.here, kern(), i, &span, 1), there = hv_run_decode(&b.there, kern(), i, &span, 1);
      assert_int_equal(here, there);
      assert_int_not_equal(here, HV_OK);
      assert_memory_equal(before.bytes, device.bytes, sizeof before.bytes);
    }
    close_all(&b);
  }
}

static void values_that_are_not_finite_are_not_sent(void **state) {
  (void)state;
  float values[3000] = {0};
  uint16_t halves[10] = {0};
  uint8_t codes[3000 * 4 + 4096];
  size_t size;
  bench b = {0};
  open_transfers(&b, 3, 2);
  const hv_device *table = hv_transfers_device(b.transfers);
  hv_stretch some[] = {{values, HV_DTYPE_FLOAT32, 3000}, {halves, HV_DTYPE_BFLOAT16, 10}};
  assert_int_equal(table->encode(table->self, HV_CODEC_UNIFORM8, (hv_rows){0}, some, 2, codes, sizeof codes, &size), HV_OK);
  halves[9] = 0x7fc0;
  assert_int_equal(table->encode(table->self, HV_CODEC_UNIFORM8, (hv_rows){0}, some, 2, codes, sizeof codes, &size), HV_NOT_FINITE);
  assert_int_equal(table->encode(table->self, HV_CODEC_UNIFORM8, (hv_rows){0}, some, 1, codes, sizeof codes, &size), HV_OK);
  values[2999] = -INFINITY;
  assert_int_equal(table->encode(table->self, HV_CODEC_UNIFORM8, (hv_rows){0}, some, 1, codes, sizeof codes, &size), HV_NOT_FINITE);
  values[2999] = 0;
  assert_int_equal(table->encode(table->self, HV_CODEC_UNIFORM8, (hv_rows){0}, some, 1, codes, sizeof codes, &size), HV_OK);
  close_all(&b);
}

/* An error at each call in turn: it is told, with the device's words; memory is given back; a chunk on the host is whole or not
 * there. */
static void error_at_any_call_is_reported_and_nothing_leaks(void **state) {
  (void)state;
  static uint8_t codes[ROOM];
  for (int lost = 0; lost < 2; lost++)
    for (long n = 0, over = 0; !over; n++) {
      check_rng rng = {5};
      bench b = {0};
      hv_error err = {0};
      size_t size;
      stand_in_init(&b.gpu, 2);
      hv_mem_init(&b.mem, NULL, HV_MEM_UNLIMITED);
      b.stream = stand_in_stream_new(&b.gpu);
      b.gpu.fail_at = n, b.gpu.fail_with = lost ? HV_IO : HV_NOMEM;
      hv_transfers_shape shape = {4000, 2, 2, 1 << 20};
      hv_status status = hv_transfers_new(&b.gpu.cuda, &b.mem, &shape, &b.transfers, &err);
      if (status != HV_OK) {
        assert_int_equal(status, b.gpu.fail_with);
        b.transfers = NULL;
        close_all(&b);
        continue;
      }
      make_model(&host, HV_CODEC_LINEAR8, &rng);
      open_runs(&b, 4000);
      status = hv_transfers_follow(b.transfers, b.stream, &err);
      for (uint32_t i = 0; i < b.there.n_chunks && status == HV_OK; i++) {
        status = hv_run_encode(&b.there, kern(), i, HV_CODEC_LINEAR8, codes, ROOM, &size);
        hv_span span = hv_span_of(codes, size);
        if (status == HV_OK)
          status = hv_run_decode(&b.there, kern(), i, &span, 1);
        static float acc[4000];
        hv_run_sum sum = {.here = acc};
        if (status == HV_OK)
          status = hv_run_accumulate(&b.there, kern(), i, 1, 0, acc);
        if (status == HV_OK)
          status = hv_run_sum_begin(&b.there, i, &sum);
        if (status == HV_OK)
          status = hv_run_sum_add_own(&b.there, kern(), i, &sum, 1, 0);
        if (status == HV_OK)
          status = hv_run_sum_add(kern(), &sum, hv_run_chunk_of(&b.there, i).size, &span, 1, 1, 0);
        if (status == HV_OK)
          status = hv_run_sum_encode(&b.there, kern(), i, &sum, 0.5f, codes, ROOM, &size);
        hv_run_sum_end(&sum);
      }
      over = status == HV_OK;
      if (!over && n >= 0 && hv_transfers_why(b.transfers, &err) != HV_OK) {
        assert_string_equal(err.text, "the stand-in was told to fail");
        if (lost)
          assert_int_equal(hv_run_encode(&b.there, kern(), 0, HV_CODEC_NONE, codes, ROOM, &size), HV_IO);
        else
          assert_int_equal(status, err.status == HV_NOMEM && status == HV_NOMEM ? HV_NOMEM : HV_IO);
      }
      assert_true(n < 1000);
      close_all(&b);
    }
}

static void page_locked_memory_has_its_limit(void **state) {
  (void)state;
  stand_in gpu;
  hv_mem mem;
  hv_error err = {0};
  hv_transfers *transfers;
  stand_in_init(&gpu, 2);
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_transfers_shape shape = {1 << 17, 4, 8, 1 << 20};
  assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, &err), HV_BUDGET);
  assert_non_null(strstr(err.text, "part_size_bytes"));
  shape.pinned_most = 4 << 20;
  assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, &err), HV_OK);
  assert_in_range(gpu.pinned_peak, 4 * 4 << 17, 4 << 20);
  hv_transfers_free(transfers);
  shape.slots = 0;
  assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, &err), HV_INVALID);
  shape = (hv_transfers_shape){1 << 10, 4, HV_TRANSFERS_SUMS_MAX + 1, SIZE_MAX};
  assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, &err), HV_INVALID);
  shape = (hv_transfers_shape){(1 << 20) + 1, 4, 8, SIZE_MAX};
  assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, &err), HV_INVALID);
  hv_transfers_free(NULL);
  stand_in_fini(&gpu);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transferred_chunk_and_its_values_equal_the_cpus),
      cmocka_unit_test(device_sums_and_refusals_equal_the_hosts_bit_for_bit),
      cmocka_unit_test(norms_are_summed_in_the_hosts_order),
      cmocka_unit_test(tensors_on_two_gpus_and_in_memory_are_one_run),
      cmocka_unit_test(invalid_contribution_is_refused_before_any_device_call),
      cmocka_unit_test(earlier_work_on_the_programs_stream_comes_first),
      cmocka_unit_test(hostile_chunks_write_nothing_and_give_the_cpus_errors),
      cmocka_unit_test(values_that_are_not_finite_are_not_sent),
      cmocka_unit_test(error_at_any_call_is_reported_and_nothing_leaks),
      cmocka_unit_test(page_locked_memory_has_its_limit),
  };
  return cmocka_run_group_tests_name("the tensors of rounds on a GPU", tests, NULL, NULL);
}
