#include "core/state/upload.h"

#include "core/state/state.h"

#include <string.h>

enum { RECENT_US = 20000000 };

static void serve(hv_upload *u);

void hv_upload_cancel(hv_upload *u) {
  u->cancelled = 1;
  if (u->stream)
    u->env->stream_cancel(u->env, u->stream);
}

static void moved(hv_upload *u) {
  u->moved_us = u->env->now_us(u->env);
}

static void upload_count(hv_upload *u, size_t bytes) {
  uint64_t now = u->env->now_us(u->env), span = now - u->since_us;
  for (; span > RECENT_US; span /= 2) /* at the same pace, of less weight */
    u->sent /= 2;
  u->since_us = now - span;
  u->sent += bytes;
}

uint64_t hv_upload_pace(const hv_upload *u) {
  return u->sent * 1000000 / (u->env->now_us(u->env) - u->since_us + 1);
}

/* ---- one chunk ---- */

/* The stream has taken what was ready, or there is none: 1. */
static int send_ready(hv_upload *u) {
  hv_msg header = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = u->asked[u->first]}};
  hv_status status = u->env->stream_send(u->env, u->stream, &header, u->ready);
  if (status == HV_BUSY)
    return 0;
  upload_count(u, u->ready->size);
  hv_payload_release(u->ready);
  u->ready = NULL;
  u->first = (u->first + 1) % HV_UPLOAD_ASKED_MAX;
  u->n--;
  moved(u);
  if (status == HV_OK)
    return 1;
  hv_upload_cancel(u);
  return 0;
}

static void run(hv_job *job) {
  hv_upload *u = job->owner;
  u->coded = hv_snapshot_code(u->snapshot, u->asked[u->first], u->codes);
}

static void end_if_over(hv_upload *u) {
  if (!u->stream && !u->working)
    u->over(u->arg, u);
}

static void coded(hv_job *job, const hv_event *event) {
  hv_upload *u = job->owner;
  u->working = 0;
  hv_status status = event->status != HV_OK ? event->status : u->coded;
  if (u->stream && status == HV_OK) {
    u->ready =
        hv_payload_borrow(u->env->mem, u->codes, u->snapshot->manifest.chunks[u->asked[u->first]].travel, hv_mem_free, u->codes);
    if (u->ready)
      u->codes = NULL;
  }
  hv_mem_free(u->codes);
  u->codes = NULL;
  if (u->stream && !u->ready)
    hv_upload_cancel(u);
  else if (u->stream)
    serve(u);
  end_if_over(u);
}

static void upload_encode(hv_upload *u, const hv_manifest_chunk *chunk) {
  u->codes = hv_mem_aligned(u->env->mem, chunk->travel);
  if (!u->codes) {
    hv_upload_cancel(u);
    return;
  }
  u->working = 1;
  u->job = (hv_job){.run = run, .done = coded, .owner = u};
  u->env->work(u->env, &u->job);
}

static void serve(hv_upload *u) {
  const hv_manifest *m = &u->snapshot->manifest;
  while (u->stream && u->n && !u->working) {
    uint32_t index = u->asked[u->first];
    if (!u->ready && index != HV_STATE_MANIFEST && m->chunks[index].codec != HV_CODEC_NONE) {
      upload_encode(u, &m->chunks[index]);
      return;
    }
    if (!u->ready)
      u->ready = index == HV_STATE_MANIFEST ? hv_payload_keep(u->snapshot->manifest_bytes) : hv_snapshot_plain(u->snapshot, index);
    if (!u->ready)
      hv_upload_cancel(u);
    if (!u->ready || !send_ready(u))
      return;
  }
}

/* ---- the stream ---- */

static void asked(hv_stream *stream, const hv_event *event) {
  hv_upload *u = stream->owner;
  uint32_t index = event->msg->u.chunk.index;
  if (!u->snapshot)
    return;
  if (event->msg->kind != HV_MSG_CHUNK || event->payload || u->n == HV_UPLOAD_ASKED_MAX ||
      (index != HV_STATE_MANIFEST && index >= u->snapshot->manifest.n_chunks)) {
    hv_upload_cancel(u);
    return;
  }
  u->asked[(u->first + u->n++) % HV_UPLOAD_ASKED_MAX] = index;
  moved(u);
  serve(u);
}

static void upload_ready(hv_stream *stream, const hv_event *event) {
  hv_upload *u = stream->owner;
  (void)event;
  moved(u);
  if (u->snapshot)
    serve(u);
}

static void upload_closed(hv_stream *stream, const hv_event *event) {
  hv_upload *u = stream->owner;
  (void)event;
  u->stream = NULL;
  hv_payload_release(u->ready);
  u->ready = NULL;
  end_if_over(u);
}

/* Rule 11: its snapshot was replaced long ago, and the joiner is slow, or all that are not have had their time. */
static int holds_memory(const hv_upload *u, uint64_t now_us) {
  uint64_t retired_us = u->snapshot ? u->snapshot->retired_us : 0; /* one more than when: it may be this very moment */
  uint64_t since_us = retired_us ? now_us + 1 - retired_us : 0;
  if (since_us < HV_UPLOAD_RETIRED_MS * UINT64_C(1000))
    return 0;
  return hv_upload_pace(u) < HV_UPLOAD_LEAST ||
         since_us / 1000000 > u->snapshot->manifest.image / HV_UPLOAD_LEAST + HV_UPLOAD_RETIRED_MS / 1000;
}

static void look_at_silence(hv_timer *timer, const hv_event *event) {
  hv_upload *u = timer->owner;
  uint64_t patience = HV_UPLOAD_SILENCE_MS * UINT64_C(1000), since = event->now_us - u->moved_us;
  if (since >= patience || holds_memory(u, event->now_us))
    hv_upload_cancel(u);
  else
    u->env->timer_set(u->env, timer, patience - since);
}

static void upload_refuse(hv_upload *u, hv_status why) {
  const char *text =
      why == HV_BUSY ? "this peer serves as many as it can: ask another, or later" : "this snapshot is not offered here any more";
  hv_msg no = {.kind = HV_MSG_REFUSAL, .u.refusal = {why, hv_span_of(text, strlen(text))}};
  if (u->env->stream_send(u->env, u->stream, &no, NULL) == HV_OK)
    u->env->stream_end(u->env, u->stream);
  else
    hv_upload_cancel(u);
}

hv_upload *hv_upload_new(hv_env *env, hv_stream *stream, hv_snapshot *snapshot, hv_status refusal,
                         void (*over)(void *arg, hv_upload *self), void *arg) {
  static const hv_stream_events on = {asked, upload_ready, upload_closed, .turn = HV_TURN_LOAD};
  hv_upload *u = hv_mem_zalloc(env->mem, sizeof *u);
  if (!u)
    return NULL;
  *u = (hv_upload){.env = env, .stream = stream, .peer = stream->peer, .over = over, .arg = arg, .began_us = env->now_us(env)};
  u->moved_us = u->since_us = u->began_us;
  u->silence = (hv_timer){.fire = look_at_silence, .owner = u};
  stream->on = &on;
  stream->owner = u;
  env->timer_set(env, &u->silence, HV_UPLOAD_SILENCE_MS * UINT64_C(1000));
  if (snapshot)
    u->snapshot = hv_snapshot_keep(snapshot);
  else
    upload_refuse(u, refusal);
  return u;
}

void hv_upload_free(hv_upload *u) {
  u->env->timer_clear(u->env, &u->silence);
  hv_payload_release(u->ready);
  hv_mem_free(u->codes);
  hv_snapshot_release(u->snapshot);
  hv_mem_free(u);
}
