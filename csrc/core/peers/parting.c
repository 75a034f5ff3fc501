#include "core/peers/parting.h"

enum { PATIENCE_MS = 5000 };

typedef struct hv_parting_stream {
  struct hv_parting_stream *next, **link;
  hv_stream *stream;
  hv_parting *parting;
  uint64_t since_us;
} parted;

static void nothing_heard(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void parting_closed(hv_stream *stream, const hv_event *event) {
  parted *p = stream->owner;
  (void)event;
  if (!p)
    return; /* there was no memory to remember it */
  *p->link = p->next;
  if (p->next)
    p->next->link = p->link;
  hv_mem_free(p);
}

static void sweep(hv_timer *timer, const hv_event *event) {
  hv_parting *parting = timer->owner;
  for (parted *p = parting->first; p; p = p->next)
    if (event->now_us - p->since_us >= PATIENCE_MS * 1000ull)
      parting->env->stream_cancel(parting->env, p->stream);
  if (parting->first)
    parting->env->timer_set(parting->env, &parting->sweep, PATIENCE_MS * 1000ull);
}

void hv_parting_init(hv_parting *parting, hv_env *env) {
  *parting = (hv_parting){.env = env};
  parting->sweep = (hv_timer){.fire = sweep, .owner = parting};
}

void hv_parting_fini(hv_parting *parting) {
  parting->env->timer_clear(parting->env, &parting->sweep);
  for (parted *p; (p = parting->first); hv_mem_free(p))
    parting->first = p->next;
}

/* 0: it cannot be remembered, and is broken off at once. */
static int parting_take(hv_parting *parting, hv_stream *stream) {
  static const hv_stream_events on = {nothing_heard, nothing_heard, parting_closed, .heavy = 0};
  hv_env *env = parting->env;
  parted *p = hv_mem_zalloc(env->mem, sizeof *p);
  stream->on = &on;
  stream->owner = p;
  if (!p) {
    env->stream_cancel(env, stream);
    return 0;
  }
  *p =
      (parted){.next = parting->first, .link = &parting->first, .stream = stream, .parting = parting, .since_us = env->now_us(env)};
  if (p->next)
    p->next->link = &p->next;
  else
    env->timer_set(env, &parting->sweep, PATIENCE_MS * 1000ull);
  parting->first = p;
  return 1;
}

void hv_parting_say(hv_parting *parting, hv_stream *stream, const hv_msg *last, hv_payload *payload) {
  hv_env *env = parting->env;
  if (!parting_take(parting, stream))
    return;
  if (last && env->stream_send(env, stream, last, payload) != HV_OK)
    env->stream_cancel(env, stream);
  else
    env->stream_end(env, stream);
}

void hv_parting_cut(hv_parting *parting, hv_stream *stream) {
  if (parting_take(parting, stream))
    parting->env->stream_cancel(parting->env, stream);
}
