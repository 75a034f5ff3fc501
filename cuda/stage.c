#include "base/mem.h"
#include "cuda/hv_cuda.h"
#include "cuda/world.h"

#define ALIGN(x) (((x) + 255) / 256 * 256)

/* Device and host side of one chunk under way. */
typedef struct slot {
  uint8_t *device, *pinned;
  int32_t *verdict, *verdict_pinned;
  void *made, *done; /* events: the device's bytes stand; nothing of this chunk is under way any more */
  uint64_t index;
  size_t size;
} slot;

struct hv_stage {
  const hv_cuda *cuda;
  hv_stage_shape shape;
  size_t slot_bytes, scratch_bytes;
  void *device, *pinned, *copier; /* all slots' memory; the copy stream */
  uint8_t *scratch;
  slot slots[HV_STAGE_SLOTS_MAX];
};

static const hv_cuda_world *world_of(const hv_stage *s) {
  return &s->cuda->world;
}

/* ---- life ---- */

void hv_stage_free(hv_stage *s) {
  if (!s)
    return;
  const hv_cuda_world *w = world_of(s);
  for (uint32_t i = 0; i < HV_STAGE_SLOTS_MAX; i++) {
    w->event_free(w->self, s->slots[i].made);
    w->event_free(w->self, s->slots[i].done);
  }
  if (s->copier)
    w->stream_free(w->self, s->copier);
  w->device_free(w->self, s->device);
  w->pinned_free(w->self, s->pinned);
  hv_mem_free(s);
}

static hv_status check_shape(const hv_stage_shape *shape, hv_error *err) {
  if (shape->dtype == HV_DTYPE_FLOAT64 || !hv_codec_bound((int)shape->codec, (int)shape->dtype, 1))
    return hv_fail(err, HV_INVALID, "there is no such codec or dtype on a GPU");
  if (!shape->chunk_values || shape->chunk_values > 1u << 30)
    return hv_fail(err, HV_INVALID, "a staged chunk has 1 to 2^30 values");
  if (shape->slots < 2 || shape->slots > HV_STAGE_SLOTS_MAX)
    return hv_fail(err, HV_INVALID, "a stage has 2 to %d slots", HV_STAGE_SLOTS_MAX);
  return HV_OK;
}

/* Places the slots in the memory, each with its verdict behind the chunk. */
static hv_status cut_slots(hv_stage *s, hv_error *err) {
  const hv_cuda_world *w = world_of(s);
  hv_status status = HV_OK;
  for (uint32_t i = 0; i < s->shape.slots && status == HV_OK; i++) {
    slot *one = &s->slots[i];
    one->device = (uint8_t *)s->device + i * s->slot_bytes;
    one->pinned = (uint8_t *)s->pinned + i * s->slot_bytes;
    one->verdict = (int32_t *)(void *)(one->device + s->slot_bytes - 256);
    one->verdict_pinned = (int32_t *)(void *)(one->pinned + s->slot_bytes - 256);
    status = w->event_new(w->self, &one->made, err);
    if (status == HV_OK)
      status = w->event_new(w->self, &one->done, err);
  }
  s->scratch = (uint8_t *)s->device + s->shape.slots * s->slot_bytes;
  return status;
}

hv_status hv_stage_new(const hv_cuda *cuda, hv_mem *mem, const hv_stage_shape *shape, hv_stage **out, hv_error *err) {
  hv_status status = check_shape(shape, err);
  if (status != HV_OK)
    return status;
  hv_stage *s = hv_mem_zalloc(mem, sizeof *s);
  if (!s)
    return hv_fail(err, HV_NOMEM, "no memory for a stage");
  const hv_cuda_world *w = &cuda->world;
  hv_cuda_source largest = {.count = shape->chunk_values};
  size_t to_encode = hv_cuda_encode_room(shape->codec, &largest, 1), to_check = hv_cuda_check_room(1);
  s->cuda = cuda;
  s->shape = *shape;
  s->slot_bytes = ALIGN((size_t)hv_codec_bound((int)shape->codec, (int)shape->dtype, shape->chunk_values)) + 256;
  s->scratch_bytes = to_encode > to_check ? to_encode : to_check;
  size_t all = shape->slots * s->slot_bytes;
  if (all > shape->pinned_most)
    status = hv_fail(err, HV_BUDGET,
                     "a stage of %u slots needs %zu bytes of page-locked memory, and may have %zu: make the chunks smaller",
                     (unsigned)shape->slots, all, shape->pinned_most);
  if (status == HV_OK)
    status = w->pinned_take(w->self, all, &s->pinned, err);
  if (status == HV_OK)
    status = w->device_take(w->self, all + s->scratch_bytes, &s->device, err);
  if (status == HV_OK)
    status = w->stream_new(w->self, &s->copier, err);
  if (status == HV_OK)
    status = cut_slots(s, err);
  if (status == HV_OK)
    *out = s;
  else
    hv_stage_free(s);
  return status;
}

/* ---- what both ways share ---- */

static uint64_t chunks_of(const hv_stage *s, uint64_t count) {
  return (count + s->shape.chunk_values - 1) / s->shape.chunk_values;
}
static uint64_t values_of(const hv_stage *s, uint64_t count, uint64_t index) {
  uint64_t left = count - index * s->shape.chunk_values;
  return left < s->shape.chunk_values ? left : s->shape.chunk_values;
}
static size_t offset_of(const hv_stage *s, uint64_t index) {
  return (size_t)(index * s->shape.chunk_values * hv_dtype_size((int)s->shape.dtype));
}
static slot *slot_of(hv_stage *s, uint64_t index) {
  return &s->slots[index % s->shape.slots];
}

/* After an error, whose words stay: waits until nothing is under way on either stream, whether or not its event was recorded. */
static void settle(hv_stage *s, void *stream) {
  const hv_cuda_world *w = world_of(s);
  void *end = s->slots[0].done;
  if (w->record(w->self, end, s->copier, NULL) == HV_OK)
    w->wait(w->self, end, NULL);
  if (w->record(w->self, end, stream, NULL) == HV_OK)
    w->wait(w->self, end, NULL);
}

/* ---- out ---- */

static hv_status send_one(hv_stage *s, void *stream, const void *src, uint64_t count, uint64_t index, hv_error *err) {
  const hv_cuda_world *w = world_of(s);
  slot *one = slot_of(s, index);
  hv_cuda_source source = {
      .src = (const uint8_t *)src + offset_of(s, index), .chunk = one->device, .count = values_of(s, count, index)};
  one->index = index;
  one->size = (size_t)hv_codec_bound((int)s->shape.codec, (int)s->shape.dtype, source.count);
  hv_status status = hv_cuda_encode(s->cuda, stream, s->shape.codec, s->shape.dtype, &source, 1, s->scratch, s->scratch_bytes, err);
  if (status == HV_OK)
    status = w->record(w->self, one->made, stream, err);
  if (status == HV_OK)
    status = w->follow(w->self, s->copier, one->made, err);
  if (status == HV_OK)
    status = w->copy(w->self, s->copier, one->pinned, one->device, one->size, err);
  return status == HV_OK ? w->record(w->self, one->done, s->copier, err) : status;
}

static hv_status give_one(hv_stage *s, uint64_t index, hv_stage_sink sink, void *arg, hv_error *err) {
  const hv_cuda_world *w = world_of(s);
  slot *one = slot_of(s, index);
  hv_status status = w->wait(w->self, one->done, err);
  return status == HV_OK ? sink(arg, one->index, hv_span_of(one->pinned, one->size), err) : status;
}

hv_status hv_stage_send(hv_stage *s, void *stream, const void *src, uint64_t count, hv_stage_sink sink, void *arg, hv_error *err) {
  uint64_t n = chunks_of(s, count), slots = s->shape.slots, given = 0;
  hv_status status = HV_OK;
  for (uint64_t index = 0; index < n && status == HV_OK; index++) {
    if (index >= slots)
      status = give_one(s, given++, sink, arg, err);
    if (status == HV_OK)
      status = send_one(s, stream, src, count, index, err);
  }
  for (; given < n && status == HV_OK; given++)
    status = give_one(s, given, sink, arg, err);
  if (status != HV_OK)
    settle(s, stream);
  return status;
}

/* ---- in ---- */

/* Waits for the chunk that is in the slot, and tells how it was. */
static hv_status take_one(hv_stage *s, slot *one, hv_error *err) {
  const hv_cuda_world *w = world_of(s);
  hv_status status = w->wait(w->self, one->done, err);
  if (status != HV_OK)
    return status;
  status = (hv_status)*one->verdict_pinned;
  return status == HV_OK ? status : hv_fail(err, status, "chunk %llu: %s", (unsigned long long)one->index, hv_status_text(status));
}

/* The chunk in the slot's pinned memory: to the device, checked, decoded, the verdict back. */
static hv_status place_one(hv_stage *s, void *stream, slot *one, const hv_codec_info *info, void *out, hv_error *err) {
  const hv_cuda_world *w = world_of(s);
  hv_cuda_target target = {one->device,  info->codec, info->dtype, info->count, (uint8_t *)out + offset_of(s, one->index),
                           one->verdict, info->rows};
  hv_status status = w->copy(w->self, s->copier, one->device, one->pinned, one->size, err);
  if (status == HV_OK)
    status = w->record(w->self, one->made, s->copier, err);
  if (status == HV_OK)
    status = w->follow(w->self, stream, one->made, err);
  if (status == HV_OK)
    status = hv_cuda_check(s->cuda, stream, &target, 1, 1, s->scratch, s->scratch_bytes, err);
  if (status == HV_OK)
    status = hv_cuda_decode(s->cuda, stream, s->shape.dtype, &target, 1, err);
  if (status == HV_OK)
    status = w->copy(w->self, stream, one->verdict_pinned, one->verdict, sizeof *one->verdict, err);
  return status == HV_OK ? w->record(w->self, one->done, stream, err) : status;
}

/* Fetches chunk `index` into its slot, and looks at its header before anything goes to the device. */
static hv_status fetch_one(hv_stage *s, uint64_t count, uint64_t index, hv_codec_info *info, hv_stage_well well, void *arg,
                           hv_error *err) {
  slot *one = slot_of(s, index);
  size_t room = s->slot_bytes - 256;
  one->index = index;
  hv_status status = well(arg, index, one->pinned, room, &one->size, err);
  if (status != HV_OK)
    return status;
  if (one->size > room)
    return hv_fail(err, HV_TOO_LARGE, "chunk %llu has %zu bytes, not %zu", (unsigned long long)index, one->size, room);
  hv_span bytes = hv_span_of(one->pinned, one->size);
  status = hv_codec_peek(&bytes, 1, info);
  if (status != HV_OK)
    return hv_fail(err, status, "chunk %llu: %s", (unsigned long long)index, hv_status_text(status));
  if (info->count != values_of(s, count, index))
    return hv_fail(err, HV_INVALID, "chunk %llu holds another number of values than its place", (unsigned long long)index);
  return HV_OK;
}

hv_status hv_stage_receive(hv_stage *s, void *stream, void *out, uint64_t count, hv_stage_well well, void *arg, hv_error *err) {
  uint64_t n = chunks_of(s, count), slots = s->shape.slots, taken = 0;
  hv_codec_info info;
  hv_status status = HV_OK;
  for (uint64_t index = 0; index < n && status == HV_OK; index++) {
    if (index >= slots)
      status = take_one(s, slot_of(s, taken++), err);
    if (status == HV_OK)
      status = fetch_one(s, count, index, &info, well, arg, err);
    if (status == HV_OK)
      status = place_one(s, stream, slot_of(s, index), &info, out, err);
  }
  for (; taken < n && status == HV_OK; taken++)
    status = take_one(s, slot_of(s, taken), err);
  if (status != HV_OK)
    settle(s, stream);
  return status;
}
