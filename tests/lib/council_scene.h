/* One council of a round, and what the others say to it, at the moments at which they say it. For the tests of council alone. */
#ifndef HV_TESTS_COUNCIL_SCENE_H
#define HV_TESTS_COUNCIL_SCENE_H

#include "lib/fake_env.h"

#include "core/agree/council.h"

#include <string.h>

enum { MEMBERS = 5, CHUNKS = 4, VALUES = 16, STALL_MS = 1000, LINES = 4 };

typedef struct world {
  fake_env fake;                            /* first */
  hv_stream streams[MEMBERS], lines[LINES]; /* to coordinators, one after the other */
  size_t n_lines;
  hv_members told[MEMBERS]; /* of the last plan that each was told */
  int plans[MEMBERS];
  int troubles;           /* how often the coordinator was told of trouble */
  int finished;           /* how often anybody was told that all have finished */
  uint32_t asked;         /* the view that was asked for last */
  uint32_t reported_view; /* in which this one was, as it reported last, */
  hv_members reported;    /* and with whom */
  hv_timer *timer;
  uint64_t due_us;
  hv_council *council;
  hv_view *view; /* the present one, once there was a plan */
} world;

static inline hv_status stream_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                                    hv_stream **out) {
  world *w = (world *)env;
  (void)to, (void)first;
  assert_true(w->n_lines < LINES);
  *out = &w->lines[w->n_lines++];
  **out = (hv_stream){.on = on, .owner = owner};
  return HV_OK;
}

static inline hv_status stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  world *w = (world *)env;
  const hv_msg_news *news = &header->u.news;
  (void)payload;
  if (stream >= w->lines && stream < w->lines + LINES) {
    w->troubles += news->what == HV_NEWS_TROUBLE;
    if (news->what == HV_NEWS_REPORT) {
      w->reported_view = news->installed;
      memcpy(&w->reported, news->members.data, sizeof w->reported);
    }
    return HV_OK;
  }
  size_t member = (size_t)(stream - w->streams);
  if (news->what == HV_NEWS_ASK)
    w->asked = news->view;
  w->finished += news->what == HV_NEWS_FINISHED;
  if (news->what == HV_NEWS_PLAN) {
    memcpy(&w->told[member], news->members.data, sizeof w->told[member]);
    w->plans[member]++;
  }
  return HV_OK;
}

static inline void stream_end(hv_env *env, hv_stream *stream) {
  (void)env, (void)stream;
}

static inline void timer_set(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  world *w = (world *)env;
  w->timer = timer;
  w->due_us = w->fake.now_us + delay_us;
}

static inline void timer_clear(hv_env *env, hv_timer *timer) {
  (void)timer;
  ((world *)env)->timer = NULL;
}

static inline void stop(void *arg) {
  (void)arg;
}

static inline void go_on(void *arg, hv_view *view) {
  world *w = arg;
  hv_view_free(w->view);
  w->view = view;
}

static inline void out(void *arg, hv_status status, const char *text) {
  (void)arg, (void)status;
  fail_msg("out: %s", text);
}

static inline void changed(void *arg) {
  (void)arg;
}

typedef struct scene {
  world w;
  float values[CHUNKS * VALUES];
  hv_run run;
  hv_round_member members[MEMBERS];
  hv_round round;
  hv_hold hold;
  hv_pace pace;
} scene;

/* Five members, of whom the first in order coordinates; this one is `me`. */
static inline void set_scene(scene *s, size_t me) {
  static const hv_council_acts acts = {stop, go_on, out, changed};
  *s = (scene){0};
  world *w = &s->w;
  fake_env_init(&w->fake, 1);
  w->fake.env.stream_open = stream_open;
  w->fake.env.stream_send = stream_send;
  w->fake.env.stream_end = w->fake.env.stream_cancel = stream_end;
  w->fake.env.timer_set = timer_set;
  w->fake.env.timer_clear = timer_clear;
  hv_run_part part = {s->values, HV_DTYPE_FLOAT32, CHUNKS * VALUES, HV_CODEC_NONE, NULL, 0, 0, 0};
  assert_int_equal(hv_run_init(&s->run, &w->fake.mem, &part, 1, VALUES, NULL), HV_OK);
  for (size_t i = 0; i < MEMBERS; i++)
    s->members[i].count = i < CHUNKS;
  s->round = (hv_round){
      .members = s->members, .n_members = MEMBERS, .me = me, .weight = 1, .stall_ms = STALL_MS, .in = &s->run, .out = &s->run};
  assert_int_equal(hv_view_first(&w->fake.mem, &s->round, &w->view), HV_OK);
  assert_int_equal(hv_hold_init(&s->hold, &w->fake.mem, CHUNKS), HV_OK);
  assert_int_equal(hv_council_new(&w->fake.env, &s->round, &s->hold, &s->pace, w->view, &acts, w, &w->council), HV_OK);
  hv_council_start(w->council, 0);
}

static inline void strike_scene(scene *s) {
  hv_council_free(s->w.council);
  hv_view_free(s->w.view);
  hv_hold_fini(&s->hold);
  hv_run_fini(&s->run);
  assert_int_equal(atomic_load(&s->w.fake.mem.blocks), 0);
}

static inline void comes(scene *s, size_t member) {
  hv_msg_attend attend = {.member = (uint32_t)member};
  hv_council_opened(s->w.council, &attend, &s->w.streams[member]);
}

static inline hv_members set_of(unsigned bits) {
  return (hv_members){{(uint8_t)bits}};
}

/* The sender is in view `installed`. */
static inline void says_from(scene *s, hv_stream *stream, hv_news what, uint32_t installed, uint32_t view, unsigned named,
                             hv_payload *payload) {
  hv_members members = set_of(named);
  hv_msg msg = {
      .kind = HV_MSG_NEWS,
      .u.news = {.what = (uint8_t)what, .view = view, .installed = installed, .members = hv_span_of(&members, sizeof members)}};
  stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .now_us = s->w.fake.now_us, .msg = &msg, .payload = payload});
}

static inline void says_on(scene *s, hv_stream *stream, hv_news what, uint32_t view, unsigned named, hv_payload *payload) {
  says_from(s, stream, what, s->w.view->number, view, named, payload);
}

static inline void says(scene *s, size_t member, hv_news what, uint32_t view, unsigned named, hv_payload *payload) {
  says_on(s, &s->w.streams[member], what, view, named, payload);
}

static inline void answers_from(scene *s, size_t member, uint32_t installed, unsigned members, uint8_t holds) {
  hv_payload *held = hv_payload_copy(&s->w.fake.mem, &holds, sizeof holds);
  says_from(s, &s->w.streams[member], HV_NEWS_REPORT, installed, s->w.asked, members, held);
  hv_payload_release(held);
}

/* It holds nothing. */
static inline void answers(scene *s, size_t member) {
  answers_from(s, member, s->w.view->number, s->w.view->members.bits[0], 0);
}

static inline void wait_us(scene *s, uint64_t us) {
  world *w = &s->w;
  uint64_t until = w->fake.now_us + us;
  while (w->timer && w->due_us <= until) {
    w->fake.now_us = w->due_us;
    w->timer->fire(w->timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = w->fake.now_us, .timer = w->timer});
  }
  w->fake.now_us = until;
}

static inline void is_lost(scene *s, size_t line) {
  hv_stream *stream = &s->w.lines[line];
  stream->on->closed(stream, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CLOSED, .text = ""});
}

#endif
