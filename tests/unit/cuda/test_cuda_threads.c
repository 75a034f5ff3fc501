/* Many threads with one GPU of plain C: ferries, sums, stages and tables of tensors at once. TSan checks it. */
#include "lib/cuda_stand_in.h"
#include "lib/values.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 6, TURNS = 12, VALUES = 3000, ROOM = VALUES * 4 + 4096, TENSORS = 40 };

typedef struct worker {
  pthread_t thread;
  const hv_cuda *cuda;
  hv_mem *mem;
  hv_transfers *transfers;
  uint64_t seed;
  int failing;       /* the device is lost at some call */
  const char *first; /* what went wrong first; NULL: nothing */
  int lost;          /* calls that answered HV_IO */
  float values[VALUES], back[VALUES], here[VALUES], sums[TENSORS], adds[TENSORS];
  uint8_t codes[ROOM], want[ROOM];
} worker;

static const hv_kern *kern(void) {
  return hv_cpu_kern(HV_CPU_PORTABLE);
}

/* 1 when the caller goes on: it went well. Nothing but a lost device may come between. */
static int fine(worker *w, hv_status status, const char *what) {
  int lost = w->failing && status == HV_IO;
  w->lost += lost;
  if (status != HV_OK && !lost && !w->first)
    w->first = what;
  return status == HV_OK;
}

static void same(worker *w, const void *a, const void *b, size_t size, const char *what) {
  if (memcmp(a, b, size) != 0 && !w->first)
    w->first = what;
}

static void chunks(worker *w, hv_codec codec) {
  const hv_device *d = hv_transfers_device(w->transfers);
  hv_stretch stretch = {w->values, HV_DTYPE_FLOAT32, VALUES}, back = {w->back, HV_DTYPE_FLOAT32, VALUES};
  size_t size = 0;
  uint64_t written = 0;
  if (!fine(w, d->encode(d->self, codec, (hv_rows){0}, &stretch, 1, w->codes, ROOM, &size), "a chunk out"))
    return;
  hv_codec_encode(kern(), codec, HV_DTYPE_FLOAT32, w->values, VALUES, NULL, w->want, ROOM, &written);
  same(w, w->codes, w->want, size, "the chunk's bytes");
  hv_span span = hv_span_of(w->codes, size);
  if (fine(w, d->decode(d->self, &span, 1, &back, 1), "a chunk in")) {
    hv_codec_decode(kern(), &span, 1, HV_DTYPE_FLOAT32, w->here, VALUES);
    same(w, w->back, w->here, sizeof w->here, "its values");
  }
}

static void sums(worker *w, hv_codec codec) {
  const hv_device *d = hv_transfers_device(w->transfers);
  hv_stretch stretch = {w->values, HV_DTYPE_FLOAT32, VALUES};
  hv_span span = hv_span_of(w->want, (size_t)hv_codec_bound((int)codec, HV_DTYPE_FLOAT32, VALUES));
  void *sum = NULL;
  size_t size;
  uint64_t written;
  hv_codec_encode(kern(), codec, HV_DTYPE_FLOAT32, w->values, VALUES, NULL, w->want, ROOM, &written);
  if (!fine(w, d->sum_take(d->self, VALUES, &sum), "a sum") || !sum)
    return;
  int whole = fine(w, d->sum_add(d->self, sum, &span, 1, 2, 0), "a contribution") &&
              fine(w, d->sum_add_own(d->self, sum, &stretch, 1, 1, 0), "its own") &&
              fine(w, d->sum_encode(d->self, sum, 0.5f, codec, (hv_rows){0}, w->codes, ROOM, &size), "an average");
  d->sum_give(d->self, sum);
  if (!whole)
    return;
  memset(w->here, 0, sizeof w->here);
  hv_codec_accumulate(kern(), &span, 1, 2, w->here, VALUES);
  for (int i = 0; i < VALUES; i++)
    w->here[i] = (w->here[i] + w->values[i]) * 0.5f;
  hv_codec_encode(kern(), codec, HV_DTYPE_FLOAT32, w->here, VALUES, NULL, w->want, ROOM, &written);
  same(w, w->codes, w->want, size, "the average's bytes");
}

static hv_status take(void *arg, uint64_t index, hv_span bytes, hv_error *err) {
  worker *w = arg;
  uint64_t n = index < 2 ? 1000 : VALUES - 2000, written = 0;
  (void)err;
  hv_codec_encode(kern(), HV_CODEC_LINEAR8, HV_DTYPE_FLOAT32, w->values + 1000 * index, n, NULL, w->want, ROOM, &written);
  if (written != bytes.size)
    return HV_INTERNAL;
  same(w, bytes.data, w->want, bytes.size, "what the ring gives");
  return HV_OK;
}

/* A ring and a table of tensors on a stream of this thread's own. */
static void rings(worker *w) {
  const hv_cuda_world *world = &w->cuda->world;
  hv_stage_shape shape = {HV_CODEC_LINEAR8, HV_DTYPE_FLOAT32, 1000, 2, 1 << 20};
  hv_stage *stage = NULL;
  void *stream = NULL;
  hv_cuda_pair pairs[TENSORS];
  if (!fine(w, world->stream_new(world->self, &stream, NULL), "a stream"))
    return;
  for (int i = 0; i < TENSORS; i++)
    pairs[i] = (hv_cuda_pair){w->adds + i, w->sums + i, 1}, w->sums[i] = (float)i, w->adds[i] = 1;
  if (fine(w, hv_cuda_accumulate(w->cuda, stream, HV_DTYPE_FLOAT32, 0.5f, pairs, TENSORS, NULL), "a table"))
    for (int i = 0; i < TENSORS; i++)
      if (w->sums[i] != (float)i + 0.5f && !w->first)
        w->first = "sums of a table";
  if (fine(w, hv_stage_new(w->cuda, w->mem, &shape, &stage, NULL), "a ring"))
    fine(w, hv_stage_send(stage, stream, w->values, VALUES, take, w, NULL), "what a ring sends");
  hv_stage_free(stage);
  world->stream_free(world->self, stream);
}

static void *work(void *arg) {
  worker *w = arg;
  for (uint64_t turn = 0; turn < TURNS; turn++) {
    hv_codec codec = (hv_codec)((turn + w->seed) % HV_CODEC_COUNT);
    values_fill(w->values, VALUES, VALUES_NORMAL, w->seed * 100 + turn);
    fine(w, hv_transfers_follow(w->transfers, NULL, NULL), "to follow");
    chunks(w, codec);
    sums(w, codec);
    rings(w);
  }
  return NULL;
}

static int all_at_once(int device) {
  static worker workers[THREADS];
  hv_cuda cuda;
  hv_mem mem;
  hv_transfers *transfers = NULL;
  hv_error err = {0};
  hv_transfers_shape shape = {VALUES, 3, 4, 1 << 22};
  int lost = 0;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_cuda_world_open(device, &(hv_cuda_kit){0}, NULL, &cuda.world, NULL, &err), HV_OK);
  assert_int_equal(hv_transfers_new(&cuda, &mem, &shape, &transfers, &err), HV_OK);
  for (uint64_t i = 0; i < THREADS; i++) {
    workers[i] = (worker){.cuda = &cuda, .mem = &mem, .transfers = transfers, .seed = i, .failing = device != 0};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
    if (workers[i].first)
      fail_msg("thread %d: %s", i, workers[i].first);
    lost += workers[i].lost;
  }
  assert_int_equal(hv_transfers_why(transfers, &err) != HV_OK, lost > 0);
  hv_transfers_free(transfers);
  assert_int_equal(atomic_load(&mem.blocks), 0);
  return lost;
}

static void threads_share_a_gpu_and_each_gets_the_cpus_bytes(void **state) {
  (void)state;
  assert_int_equal(all_at_once(0), 0);
}

/* Nobody hangs, nothing is kept, and what was answered with OK is right. */
static void a_gpu_that_is_lost_under_many_threads_is_lost_for_all(void **state) {
  (void)state;
  for (int calls = 40; calls < 1500; calls = calls * 2 + 7)
    assert_true(all_at_once(STAND_IN_FAILS + calls) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_share_a_gpu_and_each_gets_the_cpus_bytes),
      cmocka_unit_test(a_gpu_that_is_lost_under_many_threads_is_lost_for_all),
  };
  return cmocka_run_group_tests_name("a GPU and many threads", tests, NULL, NULL);
}
