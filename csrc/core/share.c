#include "core/share.h"

#include <string.h>

enum { LANES = 2 };

/* One average being decoded. */
typedef struct lane {
  hv_share *share;
  hv_payload *payload; /* NULL: free */
  uint32_t chunk;
  hv_status status;
  hv_job job;
} lane;

/* An average that waits for a lane. */
typedef struct waiting {
  struct waiting *next;
  hv_payload *payload;
} waiting;

struct hv_share {
  hv_env *env;
  const hv_round *round;
  size_t owner;
  void (*changed)(void *arg);
  void *arg;
  uint32_t first, count;
  uint32_t encoded, received, started, decoded; /* chunks that are past that */
  hv_stream *stream;
  int encoding;
  uint8_t *codes; /* being encoded */
  size_t codes_size;
  hv_payload *ready; /* encoded, not taken by the stream yet */
  hv_status encode_status;
  hv_job job;
  lane lanes[LANES];
  uint32_t refused[LANES]; /* chunks whose averages could not be decoded */
  size_t n_refused;
  waiting *first_waiting, **last_waiting;
  size_t jobs;
  hv_status status;
  uint64_t moved_us; /* when something of it last went on */
  hv_timer patience;
};

static void drop_waiting(hv_share *s) {
  for (waiting *w; (w = s->first_waiting); hv_mem_free(w)) {
    s->first_waiting = w->next;
    hv_payload_release(w->payload);
  }
  s->last_waiting = &s->first_waiting;
}

static void fail(hv_share *s, hv_status status) {
  if (s->status == HV_OK)
    s->status = status;
  drop_waiting(s);
  if (s->stream)
    s->env->stream_cancel(s->env, s->stream);
  s->changed(s->arg);
}

/* ---- out: contributions ---- */

static void encode_next(hv_share *s);

static void free_codes(void *codes) {
  hv_mem_free(codes);
}

static void send_ready(hv_share *s) {
  hv_msg header = {.kind = HV_MSG_CHUNK, .u.chunk = {s->first + s->encoded}};
  hv_status status = s->env->stream_send(s->env, s->stream, &header, s->ready);
  if (status == HV_BUSY)
    return;
  hv_payload_release(s->ready);
  s->ready = NULL;
  if (status != HV_OK) {
    fail(s, status);
    return;
  }
  s->encoded++;
  s->moved_us = s->env->now_us(s->env);
  encode_next(s);
}

static void run_encode(hv_job *job) {
  hv_share *s = job->owner;
  const hv_round *round = s->round;
  uint32_t chunk = s->first + s->encoded;
  size_t size;
  s->encode_status =
      hv_run_encode(round->in, round->kern, chunk, hv_run_chunk_of(round->in, chunk).codec, s->codes, s->codes_size, &size);
}

static void encode_done(hv_job *job, const hv_event *event) {
  hv_share *s = job->owner;
  s->encoding = 0;
  s->jobs--;
  hv_status status = event->status != HV_OK ? event->status : s->encode_status;
  if (s->status == HV_OK && s->stream && status == HV_OK) {
    s->ready = hv_payload_borrow(s->env->mem, s->codes, s->codes_size, free_codes, s->codes);
    if (s->ready)
      s->codes = NULL;
    else
      status = HV_NOMEM;
  }
  hv_mem_free(s->codes);
  s->codes = NULL;
  if (s->status != HV_OK || !s->stream)
    s->changed(s->arg);
  else if (status != HV_OK)
    fail(s, status);
  else
    send_ready(s);
}

static void encode_next(hv_share *s) {
  if (s->encoded == s->count) {
    s->env->stream_end(s->env, s->stream);
    return;
  }
  s->codes_size = hv_run_chunk_of(s->round->in, s->first + s->encoded).bytes;
  s->codes = hv_mem_aligned(s->env->mem, s->codes_size);
  if (!s->codes) {
    fail(s, HV_NOMEM);
    return;
  }
  s->encoding = 1;
  s->jobs++;
  s->job = (hv_job){.run = run_encode, .done = encode_done, .owner = s};
  s->env->work(s->env, &s->job);
}

/* ---- in: averages ---- */

static void run_decode(hv_job *job) {
  lane *l = job->owner;
  const hv_round *round = l->share->round;
  l->status = hv_run_decode(round->out, round->kern, l->chunk, l->payload->parts, l->payload->n_parts);
}

static void decode_some(hv_share *s);

static void decode_done(hv_job *job, const hv_event *event) {
  lane *l = job->owner;
  hv_share *s = l->share;
  s->jobs--;
  hv_payload_release(l->payload);
  l->payload = NULL;
  hv_status status = event->status != HV_OK ? event->status : l->status;
  if (status != HV_OK) {
    s->refused[s->n_refused++] = l->chunk - s->first; /* no lane begins anew after this */
    fail(s, status);
    return;
  }
  s->decoded++;
  decode_some(s);
  s->changed(s->arg);
}

static void decode_some(hv_share *s) {
  for (int i = 0; i < LANES && s->first_waiting && s->status == HV_OK; i++) {
    lane *l = &s->lanes[i];
    if (l->payload)
      continue;
    waiting *w = s->first_waiting;
    if (!(s->first_waiting = w->next))
      s->last_waiting = &s->first_waiting;
    *l = (lane){.share = s, .payload = w->payload, .chunk = s->first + s->started++};
    hv_mem_free(w);
    s->jobs++;
    l->job = (hv_job){.run = run_decode, .done = decode_done, .owner = l};
    s->env->work(s->env, &l->job);
  }
}

/* ---- the stream ---- */

static void average_came(hv_stream *stream, const hv_event *event) {
  hv_share *s = stream->owner;
  if (s->status != HV_OK)
    return;
  /* An average can only come for a chunk that was sent: what is being encoded is never overwritten. */
  if (event->msg->kind != HV_MSG_CHUNK || s->received >= s->encoded || event->msg->u.chunk.index != s->first + s->received ||
      !event->payload || event->payload->size != hv_run_chunk_of(s->round->in, s->first + s->received).bytes) {
    fail(s, HV_MALFORMED);
    return;
  }
  waiting *w = hv_mem_zalloc(s->env->mem, sizeof *w);
  if (!w) {
    fail(s, HV_NOMEM);
    return;
  }
  w->payload = hv_payload_keep(event->payload);
  *s->last_waiting = w;
  s->last_waiting = &w->next;
  s->received++;
  s->moved_us = event->now_us;
  decode_some(s);
}

static void room_again(hv_stream *stream, const hv_event *event) {
  hv_share *s = stream->owner;
  (void)event;
  if (s->ready && s->status == HV_OK)
    send_ready(s);
}

static void stream_over(hv_stream *stream, const hv_event *event) {
  hv_share *s = stream->owner;
  s->stream = NULL;
  hv_payload_release(s->ready);
  s->ready = NULL;
  if (s->received < s->count && s->status == HV_OK)
    fail(s, event->status == HV_OK ? HV_CLOSED : event->status);
  else
    s->changed(s->arg);
}

/* An owner may wait for somebody else for stall_ms; one that is silent for twice that stands still itself. */
static void look_for_stall(hv_timer *timer, const hv_event *event) {
  hv_share *s = timer->owner;
  uint64_t patience = (uint64_t)s->round->stall_ms * 2000;
  if (hv_share_done(s))
    return;
  if (s->received < s->count && event->now_us - s->moved_us >= patience)
    fail(s, HV_TIMEOUT);
  else
    s->env->timer_set(s->env, timer, patience / 8 + 1);
}

/* ---- life ---- */

hv_status hv_share_new(hv_env *env, const hv_round *round, size_t owner, void (*changed)(void *arg), void *arg, hv_share **out) {
  hv_share *s = hv_mem_zalloc(env->mem, sizeof *s);
  if (!s)
    return HV_NOMEM;
  *s = (hv_share){.env = env, .round = round, .owner = owner, .changed = changed, .arg = arg};
  s->first = round->members[owner].first;
  s->count = round->members[owner].count;
  s->last_waiting = &s->first_waiting;
  *out = s;
  return HV_OK;
}

void hv_share_start(hv_share *s) {
  static const hv_stream_events on = {average_came, room_again, stream_over};
  s->moved_us = s->env->now_us(s->env);
  s->patience = (hv_timer){.fire = look_for_stall, .owner = s};
  s->env->timer_set(s->env, &s->patience, (uint64_t)s->round->stall_ms * 1000 / 4 + 1);
  hv_msg hello = {.kind = HV_MSG_SHARE, .u.share = {.member = (uint32_t)s->round->me, .weight = s->round->weight}};
  memcpy(hello.u.share.round, s->round->id, HV_ROUND_ID_SIZE);
  hv_status status = s->env->stream_open(s->env, &s->round->members[s->owner].at, &hello, &on, s, &s->stream);
  if (status != HV_OK)
    fail(s, status);
  else
    encode_next(s);
}

void hv_share_cancel(hv_share *s) {
  fail(s, HV_CANCELLED);
}

int hv_share_done(const hv_share *s) {
  return s->jobs == 0 && (s->status != HV_OK || s->decoded == s->count);
}

int hv_share_over(const hv_share *s) {
  return hv_share_done(s) && !s->stream;
}

hv_status hv_share_status(const hv_share *s) {
  return s->status;
}

int hv_share_averaged(const hv_share *s, uint32_t chunk) {
  for (size_t i = 0; i < s->n_refused; i++)
    if (s->refused[i] == chunk)
      return 0;
  return chunk < s->started;
}

void hv_share_free(hv_share *s) {
  if (!s)
    return;
  s->env->timer_clear(s->env, &s->patience);
  drop_waiting(s);
  hv_payload_release(s->ready);
  hv_mem_free(s->codes);
  for (int i = 0; i < LANES; i++)
    hv_payload_release(s->lanes[i].payload);
  hv_mem_free(s);
}
