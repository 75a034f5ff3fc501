#include "core/state/snapshot.h"

#include <string.h>

enum { STEP_BYTES = 4 << 20, PAUSE_MAX_US = 50000 };

/* Chunks first, then all their digests, then the manifest's own bytes. */
typedef enum stage { CHUNKS, WHOLE, MANIFEST } stage;

typedef struct hv_snapshot_hashing {
  hv_snapshot *snapshot;
  hv_snapshot_hashed *done; /* NULL: nobody wants it any more */
  void *arg;
  stage stage;
  uint32_t next, until; /* chunks: from where, and up to where this step goes */
  uint8_t *room;        /* for chunks that do not lie in one piece, or are encoded */
  hv_buf text;          /* the bytes that are hashed after the chunks */
  hv_hash hash;
  hv_status status;
  hv_job job;
  hv_timer pause;
  uint64_t began_us;
  int working, quits; /* quits: it ends after this step */
} hashing;

/* ---- bytes of chunks ---- */

/* The chunk where it lies, if that is one piece. */
static const uint8_t *lies(const hv_snapshot *s, const hv_manifest_chunk *chunk) {
  const hv_manifest_part *part = &s->manifest.parts[chunk->part];
  if (chunk->place + chunk->size > part->place + part->size)
    return NULL;
  return s->bytes->parts[chunk->part].data + (chunk->place - part->place);
}

/* A plain chunk of several parts, with zeros between them. */
static void gather(const hv_snapshot *s, const hv_manifest_chunk *chunk, uint8_t *out) {
  uint64_t end = chunk->place + chunk->size;
  memset(out, 0, chunk->size);
  for (size_t i = chunk->part; i < s->manifest.n_parts && s->manifest.parts[i].place < end; i++) {
    const hv_manifest_part *part = &s->manifest.parts[i];
    uint64_t from = part->place > chunk->place ? part->place : chunk->place;
    uint64_t to = part->place + part->size < end ? part->place + part->size : end;
    if (from < to)
      memcpy(out + (from - chunk->place), s->bytes->parts[i].data + (from - part->place), (size_t)(to - from));
  }
}

hv_status hv_snapshot_code(const hv_snapshot *s, uint32_t index, uint8_t *out) {
  const hv_manifest_chunk *chunk = &s->manifest.chunks[index];
  uint64_t size;
  return hv_codec_encode(hv_cpu_best(), (hv_codec)chunk->codec, (hv_dtype)chunk->dtype, lies(s, chunk),
                         chunk->size / hv_dtype_size(chunk->dtype), NULL, out, chunk->travel, &size);
}

static void hashing_let_go(void *payload) {
  hv_payload_release(payload);
}

hv_payload *hv_snapshot_plain(hv_snapshot *s, uint32_t index) {
  const hv_manifest_chunk *chunk = &s->manifest.chunks[index];
  const uint8_t *at = lies(s, chunk);
  hv_payload *payload;
  if (at) {
    payload = hv_payload_borrow(s->env->mem, at, chunk->size, hashing_let_go, s->bytes);
    if (payload)
      hv_payload_keep(s->bytes);
    return payload;
  }
  uint8_t *copy = hv_mem_aligned(s->env->mem, chunk->size);
  payload = copy ? hv_payload_borrow(s->env->mem, copy, chunk->size, hv_mem_free, copy) : NULL;
  if (payload)
    gather(s, chunk, copy);
  else
    hv_mem_free(copy);
  return payload;
}

/* ---- life ---- */

hv_status hv_snapshot_new(hv_env *env, hv_payload *bytes, const hv_manifest_part *parts, uint32_t chunk_bytes, hv_span metadata,
                          hv_snapshot **out, hv_error *err) {
  hv_snapshot *s = hv_mem_zalloc(env->mem, sizeof *s);
  hv_manifest_part *sized = hv_mem_array(env->mem, bytes->n_parts, sizeof *sized);
  hv_status status =
      s && sized ? HV_OK : hv_fail(err, HV_NOMEM, "cannot offer the state: no memory for its manifest; raise the memory limit");
  for (size_t i = 0; i < bytes->n_parts && status == HV_OK; i++) {
    if (parts)
      sized[i] = parts[i];
    sized[i].size = bytes->parts[i].size;
    if (sized[i].codec != HV_CODEC_NONE && sized[i].size && hv_dtype_size(sized[i].dtype) &&
        (uintptr_t)bytes->parts[i].data % hv_dtype_size(sized[i].dtype))
      status = hv_fail(err, HV_INVALID, "part %zu of the state is not aligned to its dtype's size: copy it to aligned memory", i);
  }
  if (status == HV_OK)
    status = hv_manifest_make(env->mem, sized, bytes->n_parts, chunk_bytes, metadata, &s->manifest, err);
  hv_mem_free(sized);
  if (status != HV_OK) {
    hv_mem_free(s);
    return status;
  }
  s->env = env;
  s->refs = 1;
  s->bytes = hv_payload_keep(bytes);
  *out = s;
  return HV_OK;
}

hv_snapshot *hv_snapshot_keep(hv_snapshot *snapshot) {
  snapshot->refs++;
  return snapshot;
}

void hv_snapshot_release(hv_snapshot *s) {
  if (!s || --s->refs > 0)
    return;
  hv_payload_release(s->manifest_bytes);
  hv_payload_release(s->bytes);
  hv_manifest_fini(&s->manifest);
  hv_mem_free(s);
}

/* ---- digests ---- */

static void step(hashing *h);

static void hashing_end(hashing *h, hv_status status) {
  hv_snapshot *s = h->snapshot;
  hv_snapshot_hashed *done = h->done;
  void *arg = h->arg;
  s->env->timer_clear(s->env, &h->pause);
  s->hashing = NULL;
  hv_mem_free(h->room);
  hv_buf_fini(&h->text);
  hv_mem_free(h);
  if (done)
    done(arg, status);
  hv_snapshot_release(s);
}

static hv_status hash_chunk(hashing *h, uint32_t index) {
  hv_snapshot *s = h->snapshot;
  hv_manifest_chunk *chunk = &s->manifest.chunks[index];
  const uint8_t *at = h->room;
  if (chunk->own)
    return HV_OK; /* its digest is zeros */
  if (chunk->codec != HV_CODEC_NONE) {
    hv_status status = hv_snapshot_code(s, index, h->room);
    if (status != HV_OK)
      return status;
  } else if (!(at = lies(s, chunk))) {
    gather(s, chunk, h->room);
    at = h->room;
  }
  s->env->sha256(s->env, hv_span_of(at, chunk->travel), &chunk->digest);
  return HV_OK;
}

static void run(hv_job *job) {
  hashing *h = job->owner;
  if (h->stage != CHUNKS)
    h->snapshot->env->sha256(h->snapshot->env, hv_span_of(h->text.data ? h->text.data : (const uint8_t *)"", h->text.size),
                             &h->hash);
  for (; h->stage == CHUNKS && h->next < h->until && h->status == HV_OK; h->next++)
    h->status = hash_chunk(h, h->next);
}

static void free_said(void *bytes) {
  hv_mem_free(bytes);
}

/* The manifest's bytes have their digest: they are ready to be sent. */
static hv_status hashing_finish(hashing *h) {
  hv_snapshot *s = h->snapshot;
  s->digest = h->hash;
  s->manifest_bytes = hv_payload_borrow(s->env->mem, h->text.data, h->text.size, free_said, h->text.data);
  if (!s->manifest_bytes)
    return HV_NOMEM;
  h->text.data = NULL; /* the payload's now */
  h->text.size = h->text.room = 0;
  return HV_OK;
}

/* Uses the result of a step. HV_OK: there is one more step. */
static hv_status advance(hashing *h, int *over) {
  hv_manifest *m = &h->snapshot->manifest;
  switch (h->stage) {
  case CHUNKS:
    if (h->next < m->n_chunks)
      return HV_OK;
    h->stage = WHOLE;
    return hv_manifest_digests(m, &h->text);
  case WHOLE:
    m->whole = h->hash;
    h->stage = MANIFEST;
    h->text.size = 0;
    return hv_manifest_write(m, &h->text);
  default:
    *over = 1;
    return hashing_finish(h);
  }
}

static void worked(hv_job *job, const hv_event *event) {
  hashing *h = job->owner;
  hv_env *env = h->snapshot->env;
  int over = 0;
  h->working = 0;
  hv_status status = h->quits ? HV_CANCELLED : event->status != HV_OK ? event->status : h->status;
  if (status == HV_OK && h->done)
    status = advance(h, &over);
  if (status != HV_OK || over || !h->done) {
    hashing_end(h, status);
    return;
  }
  uint64_t took = event->now_us - h->began_us;
  env->timer_set(env, &h->pause, took < PAUSE_MAX_US ? took : PAUSE_MAX_US);
}

static void step(hashing *h) {
  hv_snapshot *s = h->snapshot;
  uint64_t bytes = 0;
  h->until = h->next;
  while (h->stage == CHUNKS && h->until < s->manifest.n_chunks && bytes < STEP_BYTES)
    bytes += s->manifest.chunks[h->until++].size;
  h->working = 1;
  h->began_us = s->env->now_us(s->env);
  h->job = (hv_job){.run = run, .done = worked, .owner = h};
  s->env->work(s->env, &h->job);
}

static void hashing_continue(hv_timer *timer, const hv_event *event) {
  (void)event;
  step(timer->owner);
}

hv_status hv_snapshot_hash(hv_snapshot *s, hv_snapshot_hashed *done, void *arg) {
  hashing *h = hv_mem_zalloc(s->env->mem, sizeof *h);
  size_t room = s->manifest.chunk_bytes;
  for (size_t i = 0; i < s->manifest.n_chunks; i++)
    room = s->manifest.chunks[i].travel > room ? s->manifest.chunks[i].travel : room;
  uint8_t *bytes = hv_mem_aligned(s->env->mem, room);
  if (!h || !bytes) {
    hv_mem_free(h);
    hv_mem_free(bytes);
    return HV_NOMEM;
  }
  *h = (hashing){.snapshot = hv_snapshot_keep(s), .done = done, .arg = arg, .room = bytes};
  h->pause = (hv_timer){.fire = hashing_continue, .owner = h};
  hv_buf_init(&h->text, s->env->mem, HV_MANIFEST_BYTES_MAX);
  s->hashing = h;
  step(h);
  return HV_OK;
}

void hv_snapshot_stop(hv_snapshot *s) {
  hashing *h = s->hashing;
  if (!h)
    return;
  h->done = NULL;
  if (!h->working)
    hashing_end(h, HV_CANCELLED);
}

void hv_snapshot_quit(hv_snapshot *s) {
  hashing *h = s->hashing;
  if (!h)
    return;
  h->quits = 1;
  if (!h->working)
    hashing_end(h, HV_CANCELLED);
}

void hv_snapshot_abandon(hv_snapshot *s) {
  hv_snapshot_stop(s);
  if (s->hashing)
    hashing_end(s->hashing, HV_CANCELLED);
}
