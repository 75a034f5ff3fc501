#include "lib/cuda_stand_in.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local uint32_t turn_flip; /* 0, or 255: threads backwards */
#define HV_TURN(i) ((i) ^ turn_flip)
#include "cuda/body_chunk.h"
#include "cuda/body_decode.h"
#include "cuda/body_encode.h"
#include "cuda/body_quantile.h"

/* ---- kernels ---- */

static void run_block(cu_kernel kernel, const void *args, uint32_t block) {
  union {
    cu_piece_room piece;
    cu_encode_room encode;
    cu_join_room join;
    cu_book_room book;
    cu_quantile_room quantile;
    cu_weigh_room weigh;
    cu_limit_room limit;
    float books[CU_INPUTS * 256];
  } shared;
  const cu_args *a = args;
  memset(&shared, 0xa5, sizeof shared); /* shared memory holds anything at first */
  switch (kernel) {
  case CU_K_BEGIN:
    cu_begin_block(a, block);
    break;
  case CU_K_SUM:
    cu_sum_block(&shared.piece, a, block);
    break;
  case CU_K_SEAL:
    cu_seal_block(&shared.piece, a, block);
    break;
  case CU_K_JUDGE:
    cu_judge_block(a, block);
    break;
  case CU_K_DECODE:
    cu_decode_block(shared.books, a, block);
    break;
  case CU_K_ADD:
    cu_add_block(shared.books, a, block);
    break;
  case CU_K_ENCODE_PLAIN:
    cu_encode_plain_block(&shared.encode, a, block);
    break;
  case CU_K_ENCODE_SCALED:
    cu_encode_scaled_block(&shared.encode, a, block);
    break;
  case CU_K_SCALE_ROWS:
    cu_scale_rows_block(a, block);
    break;
  case CU_K_ENCODE_ROWS:
    cu_encode_rows_block(&shared.encode, a, block);
    break;
  case CU_K_MEASURE:
    cu_measure_block(a, block);
    break;
  case CU_K_JOIN:
    cu_join_block(&shared.join, a, block);
    break;
  case CU_K_PREPARE:
    cu_prepare_block(a, block);
    break;
  case CU_K_ENCODE_UNIFORM:
    cu_encode_uniform_block(&shared.encode, a, block);
    break;
  case CU_K_ENCODE_BLOCKWISE:
    cu_encode_blockwise_block(&shared.encode, a, block);
    break;
  case CU_K_ENCODE_LINEAR:
    cu_encode_linear_block(&shared.encode, a, block);
    break;
  case CU_K_RANGE:
    cu_range_block(a, block);
    break;
  case CU_K_BOOK:
    cu_book_block(&shared.book, a, block);
    break;
  case CU_K_ENCODE_QUANTILE:
    cu_encode_quantile_block(&shared.quantile, a, block);
    break;
  case CU_K_FINITE:
    cu_finite_block(a, block);
    break;
  case CU_K_FEED:
    cu_feed_block(a, block);
    break;
  case CU_K_GATHER:
    cu_gather_block(args, block);
    break;
  case CU_K_WEIGH:
    cu_weigh_block(&shared.weigh, a, block);
    break;
  case CU_K_LIMIT:
    cu_limit_block(&shared.limit, a, block);
    break;
  default:
    fail_msg("there is no kernel %d", (int)kernel);
  }
}

void stand_in_kernel(cu_kernel kernel, uint32_t blocks, const void *args, int backwards) {
  turn_flip = backwards ? CU_THREADS - 1 : 0;
  for (uint32_t b = 0; b < blocks; b++)
    run_block(kernel, args, backwards ? blocks - 1 - b : b);
}

/* ---- streams ---- */

typedef struct event {
  uint64_t recorded, passed; /* how often */
  struct stand_in_stream *on;
} event;

typedef enum op_kind { OP_LAUNCH, OP_COPY, OP_RECORD, OP_FOLLOW } op_kind;
typedef struct op {
  op_kind kind;
  struct op *next;
  cu_kernel kernel;
  uint32_t blocks;
  void *to;
  const void *from;
  size_t size;
  event *event;
  uint64_t turn; /* of the event */
  unsigned char args[];
} op;

typedef struct stand_in_stream {
  struct stand_in_stream *next;
  op *first, *last;
  int running;
} stand_in_stream;

static void forget_one(stand_in_stream *stream) {
  op *o = stream->first;
  stream->first = o->next;
  if (!stream->first)
    stream->last = NULL;
  hv_mem_free(o);
}

static void run_one(stand_in *s, stand_in_stream *stream);

static void pass(stand_in *s, event *e, uint64_t turn) {
  while (e->passed < turn) {
    if (!e->on->first || e->on->running) {
      s->reordered = 1;
      return;
    }
    run_one(s, e->on);
  }
}

static void run_one(stand_in *s, stand_in_stream *stream) {
  op *o = stream->first;
  stream->running = 1;
  if (o->kind == OP_FOLLOW)
    pass(s, o->event, o->turn);
  else if (o->kind == OP_RECORD)
    o->event->passed = o->event->passed > o->turn ? o->event->passed : o->turn;
  else if (o->kind == OP_COPY)
    memcpy(o->to, o->from, o->size);
  else
    stand_in_kernel(o->kernel, o->blocks, o->args, s->backwards);
  stream->running = 0;
  forget_one(stream);
}

void stand_in_run(stand_in *s, void *which) {
  stand_in_stream *stream = which;
  while (stream->first)
    run_one(s, stream);
}

/* Each request gives chance a turn. */
static void stir(stand_in *s) {
  for (stand_in_stream *one = s->streams; one && s->restless; one = one->next)
    for (uint64_t n = check_random(&s->rng) % 4; n && one->first && !one->running; n--)
      run_one(s, one);
}

static hv_status asked(stand_in *s, hv_error *err) {
  long call = s->calls++;
  stir(s);
  if (s->lost || call == s->fail_at) {
    hv_status status = s->lost ? HV_IO : s->fail_with;
    s->lost |= status == HV_IO;
    return hv_fail(err, status, "the stand-in was told to fail");
  }
  return HV_OK;
}

static op *op_new(stand_in *s, void *which, op_kind kind, size_t more) {
  stand_in_stream *stream = which ? which : s->streams;
  op *o = hv_mem_zalloc(&s->mem, sizeof *o + more);
  assert_non_null(o);
  o->kind = kind;
  if (stream->last)
    stream->last->next = o;
  else
    stream->first = o;
  stream->last = o;
  return o;
}

/* The work that was just put on the stream stands. */
static hv_status asked_for(stand_in *s, void *which) {
  if (s->eager)
    stand_in_run(s, which ? which : s->streams);
  return HV_OK;
}

/* ---- the table ---- */

static hv_status launch(void *self, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err) {
  stand_in *s = self;
  hv_status status = asked(s, err);
  if (status != HV_OK)
    return status;
  size_t size = kernel == CU_K_GATHER ? sizeof(cu_gather) : sizeof(cu_args);
  assert_true(blocks > 0);
  op *o = op_new(s, stream, OP_LAUNCH, size);
  o->kernel = kernel, o->blocks = blocks;
  memcpy(o->args, args, size);
  s->launches++;
  return asked_for(s, stream);
}
static hv_status take(stand_in *s, size_t bytes, void **out, hv_error *err) {
  hv_status status = asked(s, err);
  if (status != HV_OK)
    return status;
  uint8_t *block = hv_mem_aligned(&s->mem, bytes + 256 + 64);
  assert_non_null(block);
  uint8_t *at = block + 64 + (256 - (uintptr_t)(block + 64) % 256) % 256;
  memcpy(at - sizeof block, &block, sizeof block);
  memset(at, 0xcd, bytes);
  *out = at;
  return HV_OK;
}
static void give(void *memory) {
  void *block;
  if (!memory)
    return;
  memcpy(&block, (uint8_t *)memory - sizeof block, sizeof block);
  hv_mem_free(block);
}
static hv_status device_take(void *self, size_t bytes, void **out, hv_error *err) {
  return take(self, bytes, out, err);
}
static void device_free(void *self, void *memory) {
  (void)self;
  give(memory);
}
static hv_status pinned_take(void *self, size_t bytes, void **out, hv_error *err) {
  stand_in *s = self;
  uint8_t *block;
  hv_status status = take(s, bytes + 256, (void **)&block, err);
  if (status != HV_OK)
    return status;
  memcpy(block, &bytes, sizeof bytes);
  s->pinned += bytes;
  s->pinned_peak = s->pinned > s->pinned_peak ? s->pinned : s->pinned_peak;
  *out = block + 256;
  return HV_OK;
}
static void pinned_free(void *self, void *memory) {
  stand_in *s = self;
  size_t bytes;
  if (!memory)
    return;
  memcpy(&bytes, (uint8_t *)memory - 256, sizeof bytes);
  s->pinned -= bytes;
  give((uint8_t *)memory - 256);
}
static hv_status copy(void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err) {
  hv_status status = asked(self, err);
  if (status != HV_OK)
    return status;
  op *o = op_new(self, stream, OP_COPY, 0);
  o->to = to, o->from = from, o->size = bytes;
  return asked_for(self, stream);
}
static hv_status stream_new(void *self, void **out, hv_error *err) {
  hv_status status = asked(self, err);
  if (status == HV_OK)
    *out = stand_in_stream_new(self);
  return status;
}
static void stream_free(void *self, void *stream) {
  stand_in_stream_free(self, stream);
}
static hv_status event_new(void *self, void **out, hv_error *err) {
  stand_in *s = self;
  hv_status status = asked(s, err);
  if (status == HV_OK)
    *out = hv_mem_zalloc(&s->mem, sizeof(event));
  return status;
}
static int mentions(const stand_in_stream *stream, const event *e) {
  for (const op *o = stream->first; o; o = o->next)
    if (o->event == e)
      return 1;
  return 0;
}
/* A GPU lets an event go once nothing waits for it any more: here that is made true first. A lost one does nothing any more. */
static void event_free(void *self, void *e) {
  stand_in *s = self;
  for (stand_in_stream *stream = s->streams; e && stream; stream = stream->next)
    while (mentions(stream, e))
      s->lost ? forget_one(stream) : run_one(s, stream);
  hv_mem_free(e);
}
static hv_status record(void *self, void *which, void *stream, hv_error *err) {
  event *e = which;
  hv_status status = asked(self, err);
  if (status != HV_OK)
    return status;
  op *o = op_new(self, stream, OP_RECORD, 0);
  o->event = e, o->turn = ++e->recorded;
  e->on = stream ? stream : ((stand_in *)self)->streams;
  return asked_for(self, stream);
}
static hv_status follow(void *self, void *stream, void *which, hv_error *err) {
  event *e = which;
  hv_status status = asked(self, err);
  if (status != HV_OK)
    return status;
  op *o = op_new(self, stream, OP_FOLLOW, 0);
  o->event = e, o->turn = e->recorded;
  return asked_for(self, stream);
}
static hv_status wait_for(void *self, void *which, hv_error *err) {
  event *e = which;
  hv_status status = asked(self, err);
  if (status == HV_OK)
    pass(self, e, e->recorded);
  return status;
}

static void close_world(void *self) {
  (void)self;
}

/* ---- as a library, for tests in Python: what is asked is done at once, and one thread after the other ---- */

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
#define ONE_BY_ONE(name, parameters, ...)                                                                                          \
  static hv_status one_##name parameters {                                                                                         \
    pthread_mutex_lock(&door);                                                                                                     \
    hv_status status = name(__VA_ARGS__);                                                                                          \
    pthread_mutex_unlock(&door);                                                                                                   \
    return status;                                                                                                                 \
  }
#define ONE_BY_ONE_VOID(name)                                                                                                      \
  static void one_##name(void *self, void *what) {                                                                                 \
    pthread_mutex_lock(&door);                                                                                                     \
    name(self, what);                                                                                                              \
    pthread_mutex_unlock(&door);                                                                                                   \
  }
ONE_BY_ONE(launch, (void *self, void *stream, cu_kernel kernel, uint32_t blocks, const void *args, hv_error *err), self, stream,
           kernel, blocks, args, err)
ONE_BY_ONE(device_take, (void *self, size_t bytes, void **out, hv_error *err), self, bytes, out, err)
ONE_BY_ONE(pinned_take, (void *self, size_t bytes, void **out, hv_error *err), self, bytes, out, err)
ONE_BY_ONE(copy, (void *self, void *stream, void *to, const void *from, size_t bytes, hv_error *err), self, stream, to, from, bytes,
           err)
ONE_BY_ONE(stream_new, (void *self, void **out, hv_error *err), self, out, err)
ONE_BY_ONE(event_new, (void *self, void **out, hv_error *err), self, out, err)
ONE_BY_ONE(record, (void *self, void *what, void *stream, hv_error *err), self, what, stream, err)
ONE_BY_ONE(follow, (void *self, void *stream, void *what, hv_error *err), self, stream, what, err)
ONE_BY_ONE(wait_for, (void *self, void *what, hv_error *err), self, what, err)
ONE_BY_ONE_VOID(device_free)
ONE_BY_ONE_VOID(pinned_free)
ONE_BY_ONE_VOID(stream_free)
ONE_BY_ONE_VOID(event_free)

hv_status hv_cuda_world_open(int index, const hv_cuda_kit *kit, hv_mem *mem, hv_cuda_world *out, hv_error *note, hv_error *err) {
  (void)kit, (void)mem, (void)note;
  static stand_in whole; /* one for the process */
  if (index && index < STAND_IN_FAILS)
    return hv_fail(err, HV_NOT_FOUND, "there is no GPU number %d: this process sees 1", index);
  if (!whole.eager)
    stand_in_init(&whole, 2);
  whole.eager = 1;
  whole.calls = whole.lost = 0;
  whole.fail_at = index ? index - STAND_IN_FAILS : -1;
  whole.fail_with = HV_IO;
  if (!whole.streams)
    stand_in_stream_new(&whole);
  *out = (hv_cuda_world){&whole,          {0},        one_launch,     one_device_take, one_device_free, one_pinned_take,
                         one_pinned_free, one_copy,   one_stream_new, one_stream_free, one_event_new,   one_event_free,
                         one_record,      one_follow, one_wait_for,   close_world};
  memcpy(out->holds, whole.cuda.world.holds, sizeof out->holds);
  return HV_OK;
}

/* ---- life ---- */

void *stand_in_stream_new(stand_in *s) {
  stand_in_stream *stream = hv_mem_zalloc(&s->mem, sizeof *stream);
  assert_non_null(stream);
  stream->next = s->streams;
  s->streams = stream;
  return stream;
}

/* As CUDA has it: what is on the stream still happens; on a lost device nothing does. */
void stand_in_stream_free(stand_in *s, void *which) {
  stand_in_stream *stream = which, **at = &s->streams;
  while (!s->lost && stream->first)
    run_one(s, stream);
  while (stream->first)
    forget_one(stream);
  while (*at != stream)
    at = &(*at)->next;
  *at = stream->next;
  hv_mem_free(stream);
}

void stand_in_holds(stand_in *s, uint32_t blocks) {
  for (int i = 0; i < CU_KERNELS; i++)
    s->cuda.world.holds[i] = blocks;
}

void stand_in_init(stand_in *s, uint32_t processors) {
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  s->fail_at = -1;
  s->rng.state = 1;
  s->cuda.world =
      (hv_cuda_world){s,          {0},         launch,    device_take, device_free, pinned_take, pinned_free, copy,
                      stream_new, stream_free, event_new, event_free,  record,      follow,      wait_for,    close_world};
  stand_in_holds(s, 8 * processors);
}

void stand_in_fini(stand_in *s) {
  assert_int_equal(s->reordered, 0);
  assert_null(s->streams);
  assert_int_equal(s->mem.blocks, 0);
  assert_int_equal(s->pinned, 0);
}
