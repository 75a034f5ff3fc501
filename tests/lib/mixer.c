#include "lib/mixer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 8, HOLD = 3 };

typedef struct thing thing; /* whatever is under way */
struct thing {
  thing *next, **where;
  struct mixer *m;
  enum { CALL, STREAM, JOB, ANSWER } what;
  union {
    hv_call call;
    hv_job job;
    struct {
      hv_timer timer;
      hv_request *request;
    } answer;
    struct {
      hv_stream *stream;
      unsigned sent, got, ours, receipt;
      hv_payload *held[HOLD];
    } stream;
  } u;
};

typedef struct mixer {
  hv_env *env;
  mixer_seat *seat;
  hv_timer tick;
  thing *things;
  int stopping;
} mixer;

static thing *new_thing(mixer *m, int what) {
  thing *t = hv_mem_zalloc(m->env->mem, sizeof *t);
  if (!t)
    return NULL;
  t->m = m;
  t->what = what;
  t->next = m->things;
  t->where = &m->things;
  if (t->next)
    t->next->where = &t->next;
  m->things = t;
  return t;
}

static void free_thing(thing *t) {
  *t->where = t->next;
  if (t->next)
    t->next->where = t->where;
  if (t->what == STREAM)
    for (int i = 0; i < HOLD; i++)
      hv_payload_release(t->u.stream.held[i]);
  hv_mem_free(t);
}

static uint32_t pick(mixer *m, uint32_t below) {
  uint32_t r;
  m->env->random(m->env, &r, sizeof r);
  return (uint32_t)((uint64_t)r * below >> 32);
}

static const hv_target *somebody(mixer *m) {
  size_t i = pick(m, (uint32_t)m->seat->n_peers);
  return &m->seat->peers[i == m->seat->me ? (i + 1) % m->seat->n_peers : i];
}

/* ---- calls ---- */

static void call_done(hv_call *call, const hv_event *event) {
  thing *t = call->owner;
  mixer_seat *seat = t->m->seat;
  if (event->status == HV_OK)
    seat->seen.answered++;
  else if (event->status == HV_TIMEOUT)
    seat->seen.timeouts++;
  else
    seat->seen.failed++;
  if (event->status != HV_OK)
    seat->last_failure = event->status;
  free_thing(t);
}

static void ask(mixer *m) {
  thing *t = new_thing(m, CALL);
  if (!t)
    return;
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {hv_span_of("how are you, and is the weather fine?", 37)}};
  t->u.call = (hv_call){.done = call_done, .owner = t, .to = *somebody(m), .timeout_ms = m->seat->timeout_ms};
  if (m->env->call(m->env, &t->u.call, &msg) == HV_OK)
    m->seat->seen.asked++;
  else
    free_thing(t);
}

static void answer(hv_timer *timer, const hv_event *event) {
  thing *t = timer->owner;
  (void)event;
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {hv_span_of("sorry, I was busy", 17)}};
  t->m->env->reply(t->m->env, t->u.answer.request, &msg);
  free_thing(t);
}

static void asked(mixer *m, const hv_event *event) {
  m->seat->seen.requests++;
  thing *t = !m->seat->calls_only && pick(m, 4) == 0 ? new_thing(m, ANSWER) : NULL;
  if (!t) {
    m->env->reply(m->env, event->request, event->msg);
    return;
  }
  t->u.answer.request = event->request;
  t->u.answer.timer = (hv_timer){.fire = answer, .owner = t};
  m->env->timer_set(m->env, &t->u.answer.timer, pick(m, 100000));
}

/* ---- streams: eight pieces there, a receipt back ---- */

static void finish_sending(thing *t) {
  t->m->env->stream_end(t->m->env, t->u.stream.stream);
}

static void pour(thing *t) {
  mixer *m = t->m;
  while (t->u.stream.sent < PIECES) {
    uint32_t size = m->seat->piece;
    hv_payload *payload = NULL;
    void *bytes = hv_mem_zalloc(m->env->mem, size);
    if (bytes && (payload = hv_payload_borrow(m->env->mem, bytes, size, hv_mem_free, bytes)) == NULL)
      hv_mem_free(bytes);
    hv_msg header = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = size, .offset = t->u.stream.sent}};
    hv_status status = payload ? m->env->stream_send(m->env, t->u.stream.stream, &header, payload) : HV_NOMEM;
    hv_payload_release(payload);
    if (status == HV_BUSY)
      return;
    if (status != HV_OK) {
      m->env->stream_cancel(m->env, t->u.stream.stream);
      return;
    }
    t->u.stream.sent++;
  }
  finish_sending(t);
}

static void got_data(hv_stream *stream, const hv_event *event) {
  thing *t = stream->owner;
  mixer *m = t->m;
  const hv_msg_parcel *parcel = &event->msg->u.parcel;
  if (t->u.stream.ours) {
    t->u.stream.receipt = parcel->receipt;
    return;
  }
  if (parcel->offset != t->u.stream.got || !event->payload || event->payload->size != parcel->size)
    m->seat->wrong++;
  m->seat->seen.bytes += event->payload ? event->payload->size : 0;
  hv_payload **held = &t->u.stream.held[t->u.stream.got % HOLD];
  hv_payload_release(*held);
  *held = event->payload ? hv_payload_keep(event->payload) : NULL;
  if (++t->u.stream.got < PIECES)
    return;
  hv_msg receipt = {.kind = HV_MSG_PARCEL, .u.parcel = {.receipt = 1}};
  if (m->env->stream_send(m->env, stream, &receipt, NULL) == HV_OK)
    finish_sending(t);
  else
    m->env->stream_cancel(m->env, stream);
}

static void got_ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  pour(stream->owner);
}

static void got_closed(hv_stream *stream, const hv_event *event) {
  thing *t = stream->owner;
  if (t->u.stream.ours) {
    t->m->seat->seen.streams_whole += event->status == HV_OK && t->u.stream.receipt;
    t->m->seat->seen.streams_broken += event->status != HV_OK;
  }
  if (event->status == HV_OK && t->u.stream.ours && !t->u.stream.receipt)
    t->m->seat->wrong++;
  free_thing(t);
}

static const hv_stream_events stream_on = {got_data, got_ready, got_closed, .heavy = 0};

static void open_stream(mixer *m) {
  thing *t = new_thing(m, STREAM);
  if (!t)
    return;
  hv_msg first = {.kind = HV_MSG_PARCEL};
  t->u.stream.ours = 1;
  if (m->env->stream_open(m->env, somebody(m), &first, &stream_on, t, &t->u.stream.stream) != HV_OK) {
    free_thing(t);
    return;
  }
  m->seat->seen.streams++;
  pour(t);
}

static void take_stream(mixer *m, const hv_event *event) {
  thing *t = new_thing(m, STREAM);
  if (!t)
    return;
  t->u.stream.stream = event->stream;
  event->stream->on = &stream_on;
  event->stream->owner = t;
}

/* ---- jobs, ticks, steps ---- */

static void run_job(hv_job *job) {
  ((thing *)job->owner)->m->seat->seen.jobs++;
}

static void job_done(hv_job *job, const hv_event *event) {
  (void)event;
  free_thing(job->owner);
}

static void start_job(mixer *m) {
  thing *t = new_thing(m, JOB);
  if (!t)
    return;
  t->u.job = (hv_job){.run = run_job, .done = job_done, .owner = t};
  m->env->work(m->env, &t->u.job);
}

static void tick(hv_timer *timer, const hv_event *event) {
  mixer *m = timer->owner;
  (void)event;
  m->seat->seen.ticks++;
  m->env->timer_set(m->env, timer, (uint64_t)m->seat->every_ms * 1000);
  ask(m);
  if (m->seat->calls_only)
    return;
  if (pick(m, 3) == 0)
    open_stream(m);
  if (pick(m, 3) == 0)
    start_job(m);
}

static void step(void *self, const hv_event *event) {
  mixer *m = self;
  if (event->now_us < m->seat->last_now_us)
    m->seat->wrong++;
  m->seat->last_now_us = event->now_us;
  if (hv_event_dispatch(event))
    return;
  switch (event->kind) {
  case HV_EVENT_START:
    m->seat->seen.starts++;
    m->env->timer_set(m->env, &m->tick, pick(m, m->seat->every_ms * 1000));
    return;
  case HV_EVENT_REQUEST:
    asked(m, event);
    return;
  case HV_EVENT_STREAM_OPENED:
    take_stream(m, event);
    return;
  case HV_EVENT_PEER_DOWN:
    m->seat->seen.downs++;
    return;
  case HV_EVENT_COMMAND:
    event->command->run(event->command, m);
    return;
  case HV_EVENT_STOP:
    m->seat->seen.stops++;
    m->env->timer_clear(m->env, &m->tick);
    return;
  default:
    m->seat->wrong++;
  }
}

hv_status mixer_make(hv_env *env, void *arg, hv_core *out) {
  mixer *m = hv_mem_zalloc(env->mem, sizeof *m);
  if (!m)
    return HV_NOMEM;
  m->env = env;
  m->seat = arg;
  m->tick = (hv_timer){.fire = tick, .owner = m};
  *out = (hv_core){m, step};
  return HV_OK;
}

void mixer_free(void *self) {
  mixer *m = self;
  while (m->things)
    free_thing(m->things);
  hv_mem_free(m);
}

static void print_line(void *arg, const char *line) {
  fprintf(arg, "%s\n", line);
}

void mixer_narrate(hv_sim_config *config) {
  if (!getenv("HV_NARRATE"))
    return;
  config->say = print_line;
  config->say_arg = stdout;
  config->say_least = HV_LOG_DEBUG;
}

hv_status mixer_add_all(hv_sim *sim, mixer_seat *seats, hv_target *peers, size_t n) {
  for (size_t i = 0; i < n; i++)
    peers[i] = hv_sim_target(sim, i);
  for (size_t i = 0; i < n; i++) {
    seats[i].peers = peers;
    seats[i].n_peers = n;
    seats[i].me = i;
    hv_sim_node_config seat = {.make = mixer_make, .free = mixer_free, .arg = &seats[i]};
    hv_status status = hv_sim_add(sim, &seat, NULL);
    if (status != HV_OK)
      return status;
  }
  return HV_OK;
}
