#include "lib/gift_desk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int held, const char *what) {
  if (held)
    return;
  fprintf(stderr, "the scenario itself failed: %s\n", what);
  abort();
}

static gift_desk *of(hv_env *env) {
  return (gift_desk *)env;
}

static gift_stream *stream_of(hv_stream *stream) {
  return (gift_stream *)((char *)stream - offsetof(gift_stream, stream));
}

/* ---- the env ---- */

static void timer_clear(hv_env *env, hv_timer *timer) {
  for (size_t i = 0; i < GIFT_TIMERS; i++)
    if (of(env)->timers[i].timer == timer)
      of(env)->timers[i].timer = NULL;
}

static void timer_set(hv_env *env, hv_timer *timer, uint64_t us) {
  size_t i = 0;
  timer_clear(env, timer);
  while (i < GIFT_TIMERS && of(env)->timers[i].timer)
    i++;
  must(i < GIFT_TIMERS, "too many timers");
  of(env)->timers[i].timer = timer;
  of(env)->timers[i].due_us = of(env)->fake.now_us + us;
}

static hv_status stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  gift_stream *s = stream_of(stream);
  (void)env;
  must(s->open && !s->is_over && !payload, "sent on a stream that is over");
  if (header->kind == HV_MSG_REFUSAL)
    s->refused = header->u.refusal.status;
  else if (header->kind == HV_MSG_GIFT_TAKEN && header->u.gift_taken.whole)
    s->whole = 1;
  else if (header->kind == HV_MSG_GIFT_TAKEN)
    s->accepted = 1;
  else
    must(0, "another message");
  return HV_OK;
}

static void stream_over(hv_env *env, hv_stream *stream) {
  (void)env;
  stream_of(stream)->is_over = 1;
}

static void work(hv_env *env, hv_job *job) {
  job->next = of(env)->jobs;
  of(env)->jobs = job;
}

/* ---- the program ---- */

static uint8_t *room(hv_state_load *load, const hv_manifest *manifest) {
  gift_desk *d = load->owner;
  hv_mem_free(d->image);
  d->image = NULL;
  d->image_size = 0;
  if (!manifest)
    return NULL;
  d->image = hv_mem_aligned(&d->fake.mem, (size_t)manifest->image + 1);
  d->image_size = (size_t)manifest->image;
  d->image_peak = d->image_size > d->image_peak ? d->image_size : d->image_peak;
  return d->image;
}

/* The bytes that came are those of the digests, chunk by chunk. (The hub looks at the digest of them all.) */
static void look_at_bytes(gift_desk *d, const hv_manifest *m) {
  for (size_t i = 0; i < m->n_chunks; i++) {
    const hv_manifest_chunk *chunk = &m->chunks[i];
    hv_hash digest;
    if (chunk->own || chunk->codec != HV_CODEC_NONE)
      continue;
    d->fake.env.sha256(&d->fake.env, hv_span_of(d->image + chunk->place, chunk->size), &digest);
    must(memcmp(&digest, &chunk->digest, sizeof digest) == 0, "bytes were taken that were not announced");
  }
}

static void done(hv_state_load *load, hv_status status, const char *text) {
  gift_desk *d = load->owner;
  (void)text;
  must(!d->taken, "a take was done twice");
  d->taken = 1;
  d->status = status;
  if (status != HV_OK)
    return;
  look_at_bytes(d, load->manifest);
  d->epoch = load->manifest->epoch;
  d->n_taken++;
}

void gift_desk_take(gift_desk *d) {
  hv_mem_free(d->image);
  d->image = NULL;
  d->taken = 0;
  d->take.load.done = done;
  d->take.load.room = room;
  d->take.load.owner = d;
  d->take.load.prefix = hv_span_of("run", 3);
  must(hv_takers_take(&d->takers, &d->take, NULL) == HV_OK, "a take did not begin");
}

void gift_desk_ask(gift_desk *d, uint64_t peer, uint64_t least) {
  hv_gift_trainer trainer = {fake_peer(peer), 1, least ? least : 1};
  hv_gift_figures figures = {.trainers = &trainer, .n_trainers = peer != 0, .least = least, .has_room = 1};
  must(hv_takers_follow(&d->takers, hv_span_of("run", 3), &figures, 1, d->take.load.size_max, NULL) == HV_OK, "it did not follow");
}

const uint8_t *gift_desk_ticket(const gift_desk *d) {
  const hv_gift_request *request = hv_takers_request(&d->takers, hv_span_of("run", 3));
  must(request != NULL, "nobody is asked");
  return request->ticket;
}

/* ---- life ---- */

void gift_desk_init(gift_desk *d, uint64_t size_max) {
  memset(d, 0, sizeof *d);
  fake_env_init(&d->fake, 1);
  d->fake.env.timer_set = timer_set;
  d->fake.env.timer_clear = timer_clear;
  d->fake.env.stream_send = stream_send;
  d->fake.env.stream_end = stream_over;
  d->fake.env.stream_cancel = stream_over;
  d->fake.env.work = work;
  hv_takers_init(&d->takers, &d->fake.env, NULL, &d->fake.me);
  d->take.load.size_max = size_max;
}

void gift_desk_fini(gift_desk *d) {
  hv_takers_stop(&d->takers);
  gift_desk_work(d);
  for (size_t i = 0; i < GIFT_STREAMS; i++)
    if (d->streams[i].open)
      gift_desk_close(d, &d->streams[i]);
  hv_takers_fini(&d->takers);
  hv_mem_free(d->image);
  must(d->fake.mem.blocks == 0, "memory was not given back");
}

/* ---- what happens ---- */

gift_stream *gift_desk_open(gift_desk *d, uint64_t peer, uint64_t network, const hv_msg_gift *gift) {
  size_t i = 0;
  while (i < GIFT_STREAMS && d->streams[i].open)
    i++;
  if (i == GIFT_STREAMS)
    return NULL;
  gift_stream *s = &d->streams[i];
  *s = (gift_stream){.stream = {.peer = fake_peer(peer), .network = network}, .open = 1};
  hv_msg msg = {.kind = HV_MSG_GIFT, .u.gift = *gift};
  msg.u.gift.prefix = hv_span_of("run", 3);
  hv_event event = {.kind = HV_EVENT_STREAM_OPENED, .now_us = d->fake.now_us, .stream = &s->stream, .msg = &msg};
  hv_takers_opened(&d->takers, &event);
  s->open = s->stream.on != NULL;
  return s;
}

void gift_desk_piece(gift_desk *d, gift_stream *s, int manifest, uint64_t offset, hv_span bytes) {
  hv_msg msg = {.kind = HV_MSG_GIFT_PIECE, .u.gift_piece = {(uint8_t)manifest, offset}};
  hv_payload *payload = bytes.size ? hv_payload_copy(&d->fake.mem, bytes.data, bytes.size) : NULL;
  hv_event event = {
      .kind = HV_EVENT_STREAM_DATA, .now_us = d->fake.now_us, .stream = &s->stream, .msg = &msg, .payload = payload, .text = ""};
  if (s->open)
    s->stream.on->data(&s->stream, &event);
  hv_payload_release(payload);
}

void gift_desk_close(gift_desk *d, gift_stream *s) {
  hv_event event = {.kind = HV_EVENT_STREAM_CLOSED, .now_us = d->fake.now_us, .stream = &s->stream, .text = ""};
  if (!s->open)
    return;
  s->stream.on->closed(&s->stream, &event);
  s->open = 0;
}

void gift_desk_work(gift_desk *d) {
  for (hv_job *job; (job = d->jobs);) {
    hv_event event = {.kind = HV_EVENT_WORK_DONE, .now_us = d->fake.now_us, .job = job};
    d->jobs = job->next;
    job->run(job);
    job->done(job, &event);
    gift_desk_pass(d, 0);
  }
}

void gift_desk_pass(gift_desk *d, uint64_t us) {
  uint64_t now = d->fake.now_us + us;
  d->fake.now_us = now;
  for (size_t i = 0; i < GIFT_TIMERS; i++) {
    hv_timer *timer = d->timers[i].timer;
    if (!timer || d->timers[i].due_us > now || (d->takers.first && timer->owner == d->takers.first))
      continue; /* there is no DHT to store requests in */
    d->timers[i].timer = NULL;
    hv_event event = {.kind = HV_EVENT_TIMER, .now_us = now, .timer = timer};
    timer->fire(timer, &event);
  }
}
