#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/hv_cuda.h"
#include "cuda/world.h"

#define ALIGN(x) (((x) + 255) / 256 * 256)

/* One chunk under way, on a stream of its own. */
typedef struct slot {
  uint8_t *device, *pinned; /* the chunk */
  float *values;            /* on the device, when they have to be gathered there */
  uint8_t *scratch;
  uint32_t *flag, *flag_pinned, *zero; /* on the device; as it came back; a 0 to begin with */
  void *stream, *done;
  int busy;
} slot;

/* The buffer in which an owner adds up. */
typedef struct sum {
  float *values; /* on the device */
  uint64_t n;
  int taken, begun;
} sum;

struct hv_transfers {
  const hv_cuda *cuda;
  hv_mem *mem;
  hv_transfers_shape shape;
  hv_device table;
  size_t chunk_bytes, scratch_bytes;
  void *device, *pinned; /* all slots' memory */
  pthread_mutex_t lock;  /* for what follows, and the slots' busy */
  pthread_cond_t landed;
  void *given; /* an event: what is asked comes after it */
  int follows, broken;
  hv_error why;
  slot slots[HV_TRANSFERS_SLOTS_MAX];
  sum sums[HV_TRANSFERS_SUMS_MAX];
};

static const hv_cuda_world *world_of(const hv_transfers *f) {
  return &f->cuda->world;
}

/* ---- slots ---- */

/* Waits for a slot; its stream comes after what the program did. NULL: the device has failed before, or does now. */
static slot *board(hv_transfers *f, hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  slot *b = NULL;
  pthread_mutex_lock(&f->lock);
  while (!b && !f->broken) {
    for (uint32_t i = 0; i < f->shape.slots && !b; i++)
      if (!f->slots[i].busy)
        b = &f->slots[i];
    if (!b)
      pthread_cond_wait(&f->landed, &f->lock);
  }
  if (b && f->follows && w->follow(w->self, b->stream, f->given, err) != HV_OK) {
    f->broken = 1;
    f->why = f->why.status == HV_OK ? *err : f->why;
    b = NULL;
  }
  if (b)
    b->busy = 1;
  pthread_mutex_unlock(&f->lock);
  return b;
}

/* Gives the slot back; after an error when nothing is under way on it any more, as far as the device still tells. */
static hv_status land(hv_transfers *f, slot *b, hv_status status, const hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  if (status != HV_OK && w->record(w->self, b->done, b->stream, NULL) == HV_OK)
    w->wait(w->self, b->done, NULL);
  status = status == HV_OK || status == HV_NOMEM ? status : HV_IO;
  pthread_mutex_lock(&f->lock);
  if (status != HV_OK && f->why.status == HV_OK)
    f->why = *err;
  f->broken |= status == HV_IO;
  b->busy = 0;
  pthread_cond_broadcast(&f->landed);
  pthread_mutex_unlock(&f->lock);
  return status;
}

static hv_status wait_for(const hv_transfers *f, slot *b, hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  hv_status status = w->record(w->self, b->done, b->stream, err);
  return status == HV_OK ? w->wait(w->self, b->done, err) : status;
}

/* ---- gathering and scattering on the device ---- */

static uint64_t count_of(const hv_stretch *stretches, size_t n) {
  uint64_t count = 0;
  for (size_t i = 0; i < n; i++)
    count += stretches[i].n;
  return count;
}

static int in_one_row(const hv_stretch *stretches, size_t n) {
  return n == 1 && stretches[0].dtype == HV_DTYPE_FLOAT32;
}

/* Between the stretches and the slot's values, a launch for each dtype. */
static hv_status pair_up(const hv_transfers *f, slot *b, const hv_stretch *stretches, size_t n, int narrow, hv_error *err) {
  hv_cuda_pair *pairs = hv_mem_array(f->mem, n, sizeof *pairs);
  hv_status status = pairs ? HV_OK : hv_fail(err, HV_NOMEM, "no memory for a table of tensors");
  for (hv_dtype dtype = HV_DTYPE_FLOAT32; dtype <= HV_DTYPE_BFLOAT16 && status == HV_OK; dtype++) {
    size_t n_pairs = 0;
    float *at = b->values;
    for (size_t i = 0; i < n; at += stretches[i++].n)
      if (stretches[i].dtype == dtype && narrow)
        pairs[n_pairs++] = (hv_cuda_pair){at, stretches[i].data, stretches[i].n};
      else if (stretches[i].dtype == dtype)
        pairs[n_pairs++] = (hv_cuda_pair){stretches[i].data, at, stretches[i].n};
    if (n_pairs && narrow)
      status = hv_cuda_narrow(f->cuda, b->stream, dtype, pairs, n_pairs, (const int32_t *)b->flag, err);
    else if (n_pairs)
      status = hv_cuda_widen(f->cuda, b->stream, dtype, pairs, n_pairs, err);
  }
  hv_mem_free(pairs);
  return status;
}

static hv_status check_stretches(const hv_transfers *f, const hv_stretch *stretches, size_t n, hv_error *err) {
  for (size_t i = 0; i < n; i++)
    if (stretches[i].dtype == HV_DTYPE_FLOAT64)
      return hv_fail(err, HV_INVALID, "a float64 tensor is not encoded on a GPU");
  if (count_of(stretches, n) > f->shape.chunk_values)
    return hv_fail(err, HV_INVALID, "a chunk is larger than those that the transfer pool was made for");
  return HV_OK;
}

/* ---- a chunk out ---- */

static hv_status load(const hv_transfers *f, slot *b, hv_codec codec, hv_rows rows, const hv_stretch *stretches, size_t n,
                      size_t size, hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  hv_cuda_source source = {.src = b->values, .chunk = b->device, .count = count_of(stretches, n), .rows = rows};
  hv_status status = w->copy(w->self, b->stream, b->flag, b->zero, sizeof *b->flag, err);
  if (in_one_row(stretches, n))
    source.src = stretches[0].data;
  else if (status == HV_OK)
    status = pair_up(f, b, stretches, n, 0, err);
  if (status == HV_OK)
    status = hv_cuda_finite(f->cuda, b->stream, HV_DTYPE_FLOAT32, source.src, source.count, b->flag, err);
  if (status == HV_OK)
    status = hv_cuda_encode(f->cuda, b->stream, codec, HV_DTYPE_FLOAT32, &source, 1, b->scratch, f->scratch_bytes, err);
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->pinned, b->device, size, err);
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->flag_pinned, b->flag, sizeof *b->flag, err);
  return status == HV_OK ? wait_for(f, b, err) : status;
}

static hv_status encode(void *self, hv_codec codec, hv_rows rows, const hv_stretch *stretches, size_t n, uint8_t *out, size_t room,
                        size_t *size) {
  hv_transfers *f = self;
  hv_error err = {0};
  size_t bytes = (size_t)hv_codec_bound_rows((int)codec, HV_DTYPE_FLOAT32, count_of(stretches, n), rows);
  *size = 0;
  if (!bytes || bytes > room || bytes > f->chunk_bytes)
    return HV_TOO_LARGE;
  slot *b = board(f, &err);
  if (!b)
    return HV_IO;
  hv_status status = check_stretches(f, stretches, n, &err);
  if (status == HV_OK)
    status = load(f, b, codec, rows, stretches, n, bytes, &err);
  int finite = status == HV_OK && !*b->flag_pinned;
  if (finite)
    memcpy(out, b->pinned, bytes), *size = bytes;
  status = land(f, b, status, &err);
  return status == HV_OK && !finite ? HV_NOT_FINITE : status;
}

/* ---- a chunk in ---- */

static void put_together(uint8_t *at, const hv_span *spans, size_t n_spans) {
  for (size_t i = 0; i < n_spans; at += spans[i++].size)
    if (spans[i].size)
      memcpy(at, spans[i].data, spans[i].size);
}

static hv_status unload(const hv_transfers *f, slot *b, const hv_codec_info *info, const hv_stretch *stretches, size_t n,
                        hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  hv_dtype dtype = n == 1 ? stretches[0].dtype : HV_DTYPE_FLOAT32;
  hv_cuda_target target = {b->device,          info->codec, info->dtype, info->count, n == 1 ? stretches[0].data : b->values,
                           (int32_t *)b->flag, info->rows};
  hv_status status = w->copy(w->self, b->stream, b->device, b->pinned, (size_t)info->size, err);
  if (status == HV_OK)
    status = hv_cuda_check(f->cuda, b->stream, &target, 1, 1, b->scratch, f->scratch_bytes, err);
  if (status == HV_OK)
    status = hv_cuda_decode(f->cuda, b->stream, dtype, &target, 1, err);
  if (status == HV_OK && n > 1)
    status = pair_up(f, b, stretches, n, 1, err);
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->flag_pinned, b->flag, sizeof *b->flag, err);
  return status == HV_OK ? wait_for(f, b, err) : status;
}

static hv_status decode(void *self, const hv_span *spans, size_t n_spans, const hv_stretch *stretches, size_t n) {
  hv_transfers *f = self;
  hv_error err = {0};
  hv_codec_info info;
  hv_status verdict = hv_codec_peek(spans, n_spans, &info);
  if (verdict != HV_OK)
    return verdict;
  if (info.count != count_of(stretches, n))
    return HV_INVALID;
  if (info.dtype == HV_DTYPE_FLOAT64 || info.size > f->chunk_bytes) /* larger: in shorter rows than any of a round */
    return HV_UNSUPPORTED;
  slot *b = board(f, &err);
  if (!b)
    return HV_IO;
  hv_status status = check_stretches(f, stretches, n, &err);
  if (status == HV_OK) {
    put_together(b->pinned, spans, n_spans);
    status = unload(f, b, &info, stretches, n, &err);
  }
  verdict = status == HV_OK ? (hv_status)*b->flag_pinned : HV_OK;
  status = land(f, b, status, &err);
  return status == HV_OK ? verdict : status;
}

/* ---- sums ---- */

static hv_status sum_take(void *self, uint64_t n, void **out) {
  hv_transfers *f = self;
  sum *one = NULL;
  pthread_mutex_lock(&f->lock);
  for (uint32_t i = 0; n <= f->shape.chunk_values && i < f->shape.sums && !one; i++)
    if (!f->sums[i].taken)
      one = &f->sums[i];
  if (one)
    one->taken = 1, one->begun = 0, one->n = n;
  pthread_mutex_unlock(&f->lock);
  *out = one;
  return HV_OK;
}

static void sum_give(void *self, void *which) {
  hv_transfers *f = self;
  sum *one = which;
  pthread_mutex_lock(&f->lock);
  one->taken = 0;
  pthread_mutex_unlock(&f->lock);
}

static hv_status begin_sum(const hv_transfers *f, const slot *b, sum *one, hv_error *err) {
  hv_status status = one->begun ? HV_OK : hv_cuda_row_clear(f->cuda, b->stream, one->values, one->n, err);
  one->begun = 1; /* after an error nobody adds to it */
  return status;
}

/* The verdict on a contribution, when the slot has landed. */
static hv_status tell(hv_transfers *f, slot *b, hv_status status, const hv_error *err) {
  hv_status verdict = status == HV_OK ? (hv_status)*b->flag_pinned : HV_OK;
  status = land(f, b, status, err);
  return status == HV_OK ? verdict : HV_IO; /* the sum may be anything now, also when it was memory that was missing */
}

static hv_status take_in(const hv_transfers *f, slot *b, sum *one, const hv_codec_info *info, float weight, float norm_max,
                         hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  hv_cuda_target target = {b->device, info->codec, info->dtype, info->count, NULL, (int32_t *)b->flag, info->rows};
  hv_cuda_input input = {b->device, info->codec, info->dtype, weight, (const int32_t *)b->flag};
  hv_cuda_sum add = {one->values, one->n, &input, 1};
  hv_status status = w->copy(w->self, b->stream, b->device, b->pinned, (size_t)info->size, err);
  if (status == HV_OK)
    status = begin_sum(f, b, one, err);
  if (status == HV_OK)
    status = hv_cuda_check(f->cuda, b->stream, &target, 1, 1, b->scratch, f->scratch_bytes, err);
  if (status == HV_OK)
    status = hv_cuda_limit(f->cuda, b->stream, &target, NULL, weight, norm_max, b->scratch, f->scratch_bytes, err);
  if (status == HV_OK)
    status = hv_cuda_add(f->cuda, b->stream, &add, 1, err);
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->flag_pinned, b->flag, sizeof *b->flag, err);
  return status == HV_OK ? wait_for(f, b, err) : status;
}

static hv_status sum_add(void *self, void *which, const hv_span *spans, size_t n_spans, float weight, float norm_max) {
  hv_transfers *f = self;
  sum *one = which;
  hv_error err = {0};
  hv_codec_info info;
  if (!(weight >= 0 && weight <= HV_CODEC_WEIGHT_MAX))
    return HV_INVALID;
  hv_status status = hv_codec_peek(spans, n_spans, &info);
  if (status != HV_OK)
    return status;
  if (info.dtype != HV_DTYPE_FLOAT32 || info.size > f->chunk_bytes)
    return HV_UNSUPPORTED;
  if (info.count != one->n)
    return HV_INVALID;
  slot *b = board(f, &err);
  if (!b)
    return HV_IO;
  put_together(b->pinned, spans, n_spans);
  return tell(f, b, take_in(f, b, one, &info, weight, norm_max, &err), &err);
}

/* The values lie in one row, or are made one. */
static hv_status take_own(const hv_transfers *f, slot *b, sum *one, const hv_stretch *stretches, size_t n, float weight,
                          float norm_max, hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  const float *row = in_one_row(stretches, n) ? stretches[0].data : b->values;
  hv_cuda_target target = {.count = one->n, .verdict = (int32_t *)b->flag};
  hv_status status = row == b->values ? pair_up(f, b, stretches, n, 0, err) : HV_OK;
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->flag, b->zero, sizeof *b->flag, err);
  if (status == HV_OK)
    status = begin_sum(f, b, one, err);
  if (status == HV_OK)
    status = hv_cuda_limit(f->cuda, b->stream, &target, row, weight, norm_max, b->scratch, f->scratch_bytes, err);
  if (status == HV_OK)
    status = hv_cuda_row_add(f->cuda, b->stream, weight, row, one->values, one->n, target.verdict, err);
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->flag_pinned, b->flag, sizeof *b->flag, err);
  return status == HV_OK ? wait_for(f, b, err) : status;
}

static hv_status sum_add_own(void *self, void *which, const hv_stretch *stretches, size_t n, float weight, float norm_max) {
  hv_transfers *f = self;
  sum *one = which;
  hv_error err = {0};
  if (!(weight >= 0 && weight <= HV_CODEC_WEIGHT_MAX) || count_of(stretches, n) != one->n)
    return HV_INVALID;
  hv_status status = check_stretches(f, stretches, n, &err);
  if (status != HV_OK)
    return status;
  slot *b = board(f, &err);
  return b ? tell(f, b, take_own(f, b, one, stretches, n, weight, norm_max, &err), &err) : HV_IO;
}

static hv_status average(const hv_transfers *f, slot *b, sum *one, float factor, hv_codec codec, hv_rows rows, size_t size,
                         hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  hv_cuda_source source = {.src = one->values, .chunk = b->device, .count = one->n, .rows = rows};
  hv_status status = begin_sum(f, b, one, err);
  if (status == HV_OK)
    status = hv_cuda_row_scale(f->cuda, b->stream, factor, one->values, one->n, err);
  if (status == HV_OK)
    status = hv_cuda_encode(f->cuda, b->stream, codec, HV_DTYPE_FLOAT32, &source, 1, b->scratch, f->scratch_bytes, err);
  if (status == HV_OK)
    status = w->copy(w->self, b->stream, b->pinned, b->device, size, err);
  return status == HV_OK ? wait_for(f, b, err) : status;
}

static hv_status sum_encode(void *self, void *which, float factor, hv_codec codec, hv_rows rows, uint8_t *out, size_t room,
                            size_t *size) {
  hv_transfers *f = self;
  sum *one = which;
  hv_error err = {0};
  size_t bytes = (size_t)hv_codec_bound_rows((int)codec, HV_DTYPE_FLOAT32, one->n, rows);
  *size = 0;
  if (!bytes || bytes > room || bytes > f->chunk_bytes)
    return HV_TOO_LARGE;
  slot *b = board(f, &err);
  if (!b)
    return HV_IO;
  hv_status status = average(f, b, one, factor, codec, rows, bytes, &err);
  if (status == HV_OK)
    memcpy(out, b->pinned, bytes), *size = bytes;
  return land(f, b, status, &err);
}

/* ---- values as they are ---- */

/* Piece by piece through the slot's pinned memory. */
static hv_status carry(hv_transfers *f, const hv_stretch *there, uint8_t *here, int out) {
  const hv_cuda_world *w = world_of(f);
  size_t left = (size_t)there->n * hv_dtype_size((int)there->dtype);
  uint8_t *at = there->data;
  hv_status status = HV_OK;
  hv_error err = {0};
  slot *b = board(f, &err);
  if (!b)
    return HV_IO;
  while (left && status == HV_OK) {
    size_t size = left < f->chunk_bytes ? left : f->chunk_bytes;
    if (!out)
      memcpy(b->pinned, here, size);
    status = w->copy(w->self, b->stream, out ? (void *)b->pinned : at, out ? at : b->pinned, size, &err);
    if (status == HV_OK)
      status = wait_for(f, b, &err);
    if (status == HV_OK && out)
      memcpy(here, b->pinned, size);
    at += size, here += size, left -= size;
  }
  return land(f, b, status, &err);
}

static hv_status read_values(void *self, const hv_stretch *from, void *to) {
  return carry(self, from, to, 1);
}

static hv_status write_values(void *self, const void *from, const hv_stretch *to) {
  return carry(self, to, (uint8_t *)(uintptr_t)from, 0);
}

/* ---- what the program says ---- */

const hv_device *hv_transfers_device(hv_transfers *f) {
  return &f->table;
}

hv_status hv_transfers_follow(hv_transfers *f, void *stream, hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  hv_error said = {0};
  pthread_mutex_lock(&f->lock);
  hv_status status = w->record(w->self, f->given, stream, &said);
  f->follows |= status == HV_OK;
  f->broken |= status != HV_OK; /* a chunk might come before what the program did */
  if (f->why.status == HV_OK)
    f->why = said;
  pthread_mutex_unlock(&f->lock);
  if (err)
    *err = said;
  return status;
}

hv_status hv_transfers_why(hv_transfers *f, hv_error *err) {
  pthread_mutex_lock(&f->lock);
  *err = f->why;
  pthread_mutex_unlock(&f->lock);
  return err->status;
}

/* ---- life ---- */

/* The largest chunk of so many values, and the scratch that one takes, whatever its codec. */
static void measure(hv_transfers *f) {
  hv_cuda_source largest = {.count = f->shape.chunk_values};
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    size_t bytes = (size_t)hv_codec_bound(codec, HV_DTYPE_FLOAT32, largest.count);
    size_t scratch = hv_cuda_encode_room((hv_codec)codec, &largest, 1);
    f->chunk_bytes = bytes > f->chunk_bytes ? bytes : f->chunk_bytes;
    f->scratch_bytes = scratch > f->scratch_bytes ? scratch : f->scratch_bytes;
  }
  f->chunk_bytes = ALIGN(f->chunk_bytes);
  size_t others[] = {hv_cuda_check_room(1), hv_cuda_limit_room(largest.count)};
  for (size_t i = 0; i < 2; i++)
    f->scratch_bytes = others[i] > f->scratch_bytes ? others[i] : f->scratch_bytes;
  f->scratch_bytes = ALIGN(f->scratch_bytes);
}

static hv_status build(hv_transfers *f, hv_error *err) {
  const hv_cuda_world *w = world_of(f);
  size_t pinned = f->chunk_bytes + 256, values = ALIGN(f->shape.chunk_values * sizeof(float));
  size_t device = f->chunk_bytes + values + f->scratch_bytes + 256, n = f->shape.slots;
  if (n * pinned > f->shape.pinned_most)
    return hv_fail(err, HV_BUDGET,
                   "%zu chunks need %zu bytes of page-locked memory, and may have %zu: make part_size_bytes smaller", n, n * pinned,
                   f->shape.pinned_most);
  hv_status status = w->pinned_take(w->self, n * pinned, &f->pinned, err);
  if (status == HV_OK)
    status = w->device_take(w->self, n * device + f->shape.sums * values, &f->device, err);
  if (status == HV_OK)
    status = w->event_new(w->self, &f->given, err);
  for (size_t i = 0; i < n && status == HV_OK; i++) {
    slot *b = &f->slots[i];
    b->pinned = (uint8_t *)f->pinned + i * pinned;
    b->flag_pinned = (uint32_t *)(void *)(b->pinned + f->chunk_bytes);
    b->zero = b->flag_pinned + 1;
    *b->zero = 0;
    b->device = (uint8_t *)f->device + i * device;
    b->values = (float *)(void *)(b->device + f->chunk_bytes);
    b->scratch = b->device + f->chunk_bytes + values;
    b->flag = (uint32_t *)(void *)(b->scratch + f->scratch_bytes);
    status = w->stream_new(w->self, &b->stream, err);
    if (status == HV_OK)
      status = w->event_new(w->self, &b->done, err);
  }
  for (uint32_t i = 0; i < f->shape.sums; i++)
    f->sums[i].values = (float *)(void *)((uint8_t *)f->device + n * device + i * values);
  return status;
}

static hv_status check_shape(const hv_transfers_shape *shape, hv_error *err) {
  if (!shape->chunk_values || shape->chunk_values > 1u << 20)
    return hv_fail(err, HV_INVALID, "a ferried chunk has 1 to 2^20 values");
  if (!shape->slots || shape->slots > HV_TRANSFERS_SLOTS_MAX)
    return hv_fail(err, HV_INVALID, "a transfer pool has 1 to %d slots", HV_TRANSFERS_SLOTS_MAX);
  if (shape->sums > HV_TRANSFERS_SUMS_MAX)
    return hv_fail(err, HV_INVALID, "a transfer pool has %d sums at most", HV_TRANSFERS_SUMS_MAX);
  return HV_OK;
}

hv_status hv_transfers_new(const hv_cuda *cuda, hv_mem *mem, const hv_transfers_shape *shape, hv_transfers **out, hv_error *err) {
  hv_status status = check_shape(shape, err);
  if (status != HV_OK)
    return status;
  hv_transfers *f = hv_mem_zalloc(mem, sizeof *f);
  if (!f)
    return hv_fail(err, HV_NOMEM, "no memory for a transfer pool");
  f->cuda = cuda, f->mem = mem, f->shape = *shape;
  f->table = (hv_device){f, encode, decode, sum_take, sum_give, sum_add, sum_add_own, sum_encode, read_values, write_values};
  if (pthread_mutex_init(&f->lock, NULL) != 0) {
    hv_mem_free(f);
    return hv_fail(err, HV_NOMEM, "no memory for a transfer pool");
  }
  if (pthread_cond_init(&f->landed, NULL) != 0) {
    pthread_mutex_destroy(&f->lock);
    hv_mem_free(f);
    return hv_fail(err, HV_NOMEM, "no memory for a transfer pool");
  }
  measure(f);
  status = build(f, err);
  if (status == HV_OK)
    *out = f;
  else
    hv_transfers_free(f);
  return status;
}

void hv_transfers_free(hv_transfers *f) {
  if (!f)
    return;
  const hv_cuda_world *w = world_of(f);
  for (uint32_t i = 0; i < HV_TRANSFERS_SLOTS_MAX; i++) {
    w->event_free(w->self, f->slots[i].done);
    if (f->slots[i].stream)
      w->stream_free(w->self, f->slots[i].stream);
  }
  w->event_free(w->self, f->given);
  w->device_free(w->self, f->device);
  w->pinned_free(w->self, f->pinned);
  pthread_cond_destroy(&f->landed);
  pthread_mutex_destroy(&f->lock);
  hv_mem_free(f);
}
