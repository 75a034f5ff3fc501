#include "core/council.h"

#include "core/doubts.h"

#include <string.h>

enum {
  NOBODY = HV_ROUND_MEMBERS_MAX,
  STRIDE_MAX = 1 << 16, /* so much further may a member say that the numbers of views are */
};

/* A member, as the coordinator knows it. */
typedef struct seat {
  hv_council *council;
  size_t member;
  hv_stream *stream;
  int came, gone, done, suspected, answered;
  uint64_t came_us;  /* when it first came */
  uint32_t told;     /* the last view whose plan was sent to it */
  uint32_t promised; /* the last one that it had promised before it was asked */
  hv_view_report report;
  uint8_t *held; /* the report's */
} seat;

struct hv_council {
  hv_env *env;
  const hv_round *round;
  const hv_hold *hold;
  const hv_pace *pace;
  const hv_council_acts *acts;
  void *arg;
  hv_members members; /* of the present view */
  uint32_t installed, promised;
  uint32_t highest;   /* that anyone here has promised */
  int stopped, quiet; /* for the view that was promised: told to stop; all has stopped */
  int trouble, done, finished, over;
  int left_out;                       /* a coordinator has said so: whether the others are with that one only the next one knows */
  hv_members suspects, silent, liars; /* silent, liars: those of the suspects who said nothing, or what is false */
  hv_members given_up;
  hv_members recalled; /* given up, and attended again at others' word: once each */

  size_t chair;      /* who coordinates, as far as this member knows; NOBODY */
  uint64_t chair_us; /* since when that has been this member */
  hv_stream *line;   /* to it */
  int heard;         /* something from it, on this line */
  int waits;         /* for the coordinator, until then */
  uint64_t until_us;
  uint64_t sign_us;  /* when it gave a sign of life last, */
  uint64_t pulse_us; /* and when this one did */

  seat *seats; /* what this member needs to coordinate */
  uint32_t asking;
  uint64_t asked_us, grace_us, deadline_us;
  hv_doubts doubts;

  size_t streams;
  uint64_t looked_us;
  hv_timer look;
};

static const char not_in[] = "the round goes on without this member";

static void attend_next(hv_council *c);
static void note_unseen(hv_council *c, size_t who, const hv_members *suspects);
static int some_stopped(const hv_council *c);
static void start_ask(hv_council *c);
static void try_plan(hv_council *c);

static uint64_t stall_us(const hv_council *c) {
  return (uint64_t)c->round->stall_ms * 1000;
}

static uint64_t now(const hv_council *c) {
  return c->env->now_us(c->env);
}

/* ---- what is said ---- */

static void tell(hv_council *c, hv_stream *stream, hv_news what, uint32_t view, const hv_members *members, hv_payload *payload) {
  hv_msg msg = {.kind = HV_MSG_NEWS, .u.news = {.what = (uint8_t)what, .view = view, .installed = c->installed}};
  if (members)
    msg.u.news.members = hv_span_of(members, sizeof *members);
  if (c->env->stream_send(c->env, stream, &msg, payload) != HV_OK)
    c->env->stream_cancel(c->env, stream); /* it takes not even so little */
}

static void wait_for_chair(hv_council *c, uint64_t us) {
  c->waits = 1;
  c->until_us = now(c) + us;
}

/* Who says nothing at all may not even know of this round: that shows sooner, and what more there is to say to it does not make it
 * later. */
static void say_trouble(hv_council *c) {
  if (hv_members_count(&c->liars))
    tell(c, c->line, HV_NEWS_FALSE, c->installed, &c->liars, NULL);
  tell(c, c->line, HV_NEWS_TROUBLE, c->installed, &c->suspects, NULL);
  if (c->heard || !c->waits)
    wait_for_chair(c, c->heard ? 2 * stall_us(c) : stall_us(c) / 2);
}

static uint64_t patience_us(const hv_council *c) {
  return hv_pace_patience_us(c->pace, stall_us(c));
}

/* That this one is there; and if another one coordinates who has given a sign of life since that member came here, who it is. */
static void say_here(hv_council *c, const seat *s) {
  hv_members chair = {{0}};
  int other = c->line && c->heard && c->sign_us > s->came_us;
  if (other)
    hv_members_put(&chair, c->chair);
  tell(c, s->stream, HV_NEWS_HERE, c->installed, other ? &chair : NULL, NULL);
}

static void say_here_to_all(hv_council *c) {
  c->pulse_us = now(c);
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream)
      say_here(c, &c->seats[i]);
}

/* Everybody who attends here is told that now and then, once a round takes long. */
static void give_sign(hv_council *c) {
  if (!c->over && !c->finished && (c->chair == c->round->me || c->trouble) && now(c) >= c->pulse_us + patience_us(c) / 4)
    say_here_to_all(c);
}

/* 1: it answers too late, or has been silent for as long as anybody may be; or it never even said that it is there: it may have
 * been cut off, or started anew, and know of no round. Members who wait for nothing see that as soon as others do, and so come to
 * the next one together with them. */
static int chair_is_silent(const hv_council *c) {
  if (c->waits && now(c) >= c->until_us)
    return 1;
  if (!c->line || c->finished)
    return 0;
  return now(c) >= (c->heard ? c->sign_us + patience_us(c) : c->chair_us + stall_us(c));
}

/* This member's part in the round is over; nothing of it is heard any more. */
static void leave(hv_council *c) {
  c->over = 1;
  c->waits = 0;
  c->asking = 0;
  c->env->timer_clear(c->env, &c->look);
  if (c->line)
    c->env->stream_cancel(c->env, c->line);
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream)
      c->env->stream_cancel(c->env, c->seats[i].stream);
}

static void go_out(hv_council *c, hv_status status, const char *text) {
  if (c->over)
    return;
  leave(c);
  c->acts->out(c->arg, status, text);
}

/* Who attends a member that does not coordinate, and is not in the view, need not wait there. */
static void send_away_others(hv_council *c) {
  for (size_t i = 0; i < c->round->n_members && c->chair != c->round->me; i++)
    if (c->seats[i].stream && !hv_members_has(&c->members, i))
      c->env->stream_cancel(c->env, c->seats[i].stream);
}

static void install(hv_council *c, hv_view *view) {
  c->members = view->members;
  send_away_others(c);
  c->installed = view->number;
  c->stopped = c->quiet = c->trouble = c->waits = c->left_out = 0;
  c->suspects = c->silent = c->liars = (hv_members){{0}};
  c->acts->go_on(c->arg, view);
}

/* ---- a member's side ---- */

static void hear(hv_stream *stream, const hv_event *event);

static void room_again(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

/* The first in order who can be dialled, is in the view and was not given up. */
static size_t next_chair(const hv_council *c) {
  for (size_t k = 0; k < c->round->n_members; k++) {
    size_t i = (c->round->leader + k) % c->round->n_members;
    if (!c->round->members[i].client && hv_members_has(&c->members, i) && !hv_members_has(&c->given_up, i))
      return i;
  }
  return NOBODY;
}

static void give_up_chair(hv_council *c) {
  char who[HV_PEER_SHORT_MAX];
  hv_env_log(c->env, HV_LOG_WARN, "council", "given_up", "member %s coordinates no more: it is lost or silent",
             hv_peer_short(&c->round->members[c->chair].at.id, who));
  hv_members_put(&c->given_up, c->chair);
  if (c->left_out)
    go_out(c, HV_CLOSED, not_in);
  else
    attend_next(c);
}

/* The others may have given up the coordinator that says so, as one that was cut off, and be with the next one: that one is asked.
 */
static void is_left_out(hv_council *c) {
  int again = c->left_out++;
  hv_members_put(&c->given_up, c->chair);
  size_t next = next_chair(c);
  if (again || next == NOBODY || next == c->round->me)
    go_out(c, HV_CLOSED, not_in);
  else
    attend_next(c);
}

static void line_closed(hv_stream *stream, const hv_event *event) {
  hv_council *c = stream->owner;
  (void)event;
  c->streams--;
  if (stream == c->line) {
    c->line = NULL;
    if (!c->over && !c->finished)
      give_up_chair(c);
  }
  c->acts->changed(c->arg);
}

static void open_line(hv_council *c) {
  static const hv_stream_events on = {hear, room_again, line_closed};
  hv_msg hello = {.kind = HV_MSG_ATTEND, .u.attend = {.member = (uint32_t)c->round->me, .view = c->promised}};
  memcpy(hello.u.attend.round, c->round->id, HV_ROUND_ID_SIZE);
  if (c->env->stream_open(c->env, &c->round->members[c->chair].at, &hello, &on, c, &c->line) != HV_OK)
    c->line = NULL;
  else
    c->streams++;
}

static void attend_next(hv_council *c) {
  if (c->line)
    c->env->stream_cancel(c->env, c->line);
  c->line = NULL;
  c->waits = c->heard = 0;
  c->chair_us = c->pulse_us = now(c);
  for (c->chair = next_chair(c); c->chair != NOBODY && c->chair != c->round->me; c->chair = next_chair(c)) {
    open_line(c);
    if (c->line)
      break;
    hv_members_put(&c->given_up, c->chair);
  }
  if (c->line && c->trouble)
    say_trouble(c);
  if (c->line && c->done)
    tell(c, c->line, HV_NEWS_DONE, c->installed, NULL, NULL);
  if (!c->line && c->trouble && c->chair == c->round->me) {
    note_unseen(c, c->round->me, some_stopped(c) ? &c->silent : &c->suspects); /* nobody has heard them yet */
    hv_doubts_false(&c->doubts, c->round->me, &c->liars);
    start_ask(c);
  }
  if (!c->line && c->trouble && c->chair == NOBODY)
    go_out(c, HV_UNREACHABLE, "no member is left who could coordinate");
}

static void send_report(hv_council *c) {
  size_t bytes = hv_hold_bytes(c->hold->n_chunks);
  if (c->chair == c->round->me) {
    seat *own = &c->seats[c->round->me];
    memcpy(own->held, c->hold->held, bytes);
    own->report = (hv_view_report){.members = c->members, .installed = c->installed, .held = own->held};
    own->answered = 1;
    try_plan(c);
    return;
  }
  if (!c->line)
    return;
  hv_payload *held = hv_payload_copy(c->env->mem, c->hold->held, bytes);
  if (!held) {
    go_out(c, HV_NOMEM, "there is no memory for a report");
    return;
  }
  tell(c, c->line, HV_NEWS_REPORT, c->promised, &c->members, held);
  hv_payload_release(held);
  wait_for_chair(c, 4 * stall_us(c));
}

/* Nothing of earlier views is done any more, from here on. */
static void promise(hv_council *c, uint32_t view) {
  c->promised = view;
  c->highest = view > c->highest ? view : c->highest;
  c->trouble = 1;
  if (c->stopped) {
    if (c->quiet)
      send_report(c);
    return;
  }
  c->stopped = 1;
  c->acts->stop(c->arg);
}

static int names(const hv_council *c, hv_span bytes, hv_members *out) {
  if (bytes.size != sizeof *out)
    return 0;
  memcpy(out, bytes.data, sizeof *out);
  for (size_t i = c->round->n_members; i < HV_ROUND_MEMBERS_MAX; i++)
    if (hv_members_has(out, i))
      return 0;
  return 1;
}

static int is_within(const hv_members *part, const hv_members *whole) {
  for (size_t i = 0; i < sizeof part->bits; i++)
    if (part->bits[i] & ~whole->bits[i])
      return 0;
  return 1;
}

static void hear_plan(hv_council *c, const hv_msg_news *news, const hv_payload *payload) {
  hv_members members;
  hv_view *view;
  if (news->view != c->promised || !c->stopped || !c->quiet)
    return; /* late: this member has promised another one since */
  hv_status status = names(c, news->members, &members) && is_within(&members, &c->members) ? HV_OK : HV_MALFORMED;
  if (status == HV_OK)
    status = hv_view_read(c->env->mem, c->round, c->hold, news->view, &members, payload, &view);
  if (status == HV_OK)
    install(c, view);
  else if (status == HV_NOMEM)
    go_out(c, HV_NOMEM, "there is no memory for a plan");
  else
    give_up_chair(c);
}

/* Whom this member attends attends another one, who is there: one that this member has given up too soon is attended again, once.
 */
static void hear_who_coordinates(hv_council *c, hv_span told) {
  hv_members chair;
  char who[HV_PEER_SHORT_MAX];
  for (size_t i = 0; names(c, told, &chair) && i < c->round->n_members; i++) {
    if (!hv_members_has(&chair, i) || !hv_members_has(&c->given_up, i) || hv_members_has(&c->recalled, i))
      continue;
    hv_env_log(c->env, HV_LOG_INFO, "council", "recalled", "member %s coordinates after all: others attend it",
               hv_peer_short(&c->round->members[i].at.id, who));
    hv_members_put(&c->recalled, i);
    hv_members_drop(&c->given_up, i);
    attend_next(c);
    return;
  }
}

/* The coordinator says something. */
static void hear(hv_stream *stream, const hv_event *event) {
  hv_council *c = stream->owner;
  const hv_msg_news *news = &event->msg->u.news;
  if (stream != c->line || c->over || c->finished)
    return;
  if (!c->heard && c->waits)
    wait_for_chair(c, 2 * stall_us(c));
  c->heard = 1;
  c->sign_us = event->now_us;
  if (event->msg->kind != HV_MSG_NEWS) {
    give_up_chair(c);
  } else if (news->what == HV_NEWS_ASK) {
    if (news->view <= c->promised || news->view % c->round->n_members != c->chair)
      return;
    wait_for_chair(c, 4 * stall_us(c));
    say_here_to_all(c); /* who waits for it here is asked there */
    promise(c, news->view);
  } else if (news->what == HV_NEWS_PLAN) {
    hear_plan(c, news, event->payload);
  } else if (news->what == HV_NEWS_FINISHED) {
    c->finished = 1;
    c->waits = 0;
    c->env->stream_end(c->env, stream);
  } else if (news->what == HV_NEWS_OUT) {
    is_left_out(c);
  } else if (news->what == HV_NEWS_HERE) {
    hear_who_coordinates(c, news->members);
  }
}

/* ---- the coordinator's side ---- */

/* 1: another coordinator has asked before, and told no plan. Who was asked has stopped and broken off its streams: that is no
 * reason to doubt it. */
static int some_stopped(const hv_council *c) {
  return c->highest > c->installed;
}

/* A member says whom it cannot reach. If it is believed, those have less time to answer. */
static void note_unseen(hv_council *c, size_t who, const hv_members *suspects) {
  int believed = who == c->round->me || hv_doubts_believes(&c->doubts, who);
  hv_doubts_unseen(&c->doubts, who, suspects);
  for (size_t i = 0; i < c->round->n_members && believed; i++)
    c->seats[i].suspected |= hv_members_has(suspects, i);
}

/* Only now it shows that another coordinator has asked: whose streams broke may have stopped for that one. Whom this member found
 * silent, or has given up, is a suspect as before. */
static void excuse_the_stopped(hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++)
    if (!hv_members_has(&c->silent, i) && !hv_members_has(&c->given_up, i))
      c->seats[i].suspected = 0;
}

static void look_again(hv_council *c) {
  uint64_t us = hv_pace_tick_us(stall_us(c));
  uint64_t until = c->grace_us > now(c) ? c->grace_us : c->deadline_us; /* others are seen at the next tick */
  if (c->asking && until > now(c) && until - now(c) < us)
    us = until - now(c);
  c->env->timer_set(c->env, &c->look, us);
}

static void start_ask(hv_council *c) {
  size_t n = c->round->n_members;
  if (c->asking || c->over || c->finished)
    return;
  uint32_t number = (uint32_t)((c->highest / n + 1) * n + c->round->me);
  c->asking = number;
  uint64_t patience = patience_us(c);
  c->asked_us = now(c);
  c->grace_us = now(c) + patience / 4;
  c->deadline_us = now(c) + (patience * 2 < stall_us(c) ? patience * 2 : stall_us(c));
  for (size_t i = 0; i < n; i++) {
    c->seats[i].answered = 0;
    if (c->seats[i].stream)
      tell(c, c->seats[i].stream, HV_NEWS_ASK, number, NULL, NULL);
  }
  look_again(c);
  c->seats[c->round->me].promised = c->promised;
  promise(c, number);
}

/* Until when it may answer. Who comes to this coordinator only now, because the one before was silent, has its time from then on;
 * it comes for the first time only once. Who has not come may take longer to miss that one than this member did. */
static uint64_t answers_by_us(const hv_council *c, const seat *s) {
  uint64_t us = s->suspected ? c->grace_us : c->deadline_us;
  if (!s->came && !s->suspected && hv_members_count(&c->given_up))
    us = c->asked_us + 2 * patience_us(c);
  uint64_t own_us = s->came && s->came_us > c->asked_us ? s->came_us + (c->deadline_us - c->asked_us) : 0;
  return own_us > us ? own_us : us;
}

/* 1 when it may still answer. */
static int is_awaited(const hv_council *c, size_t i) {
  const seat *s = &c->seats[i];
  if (!hv_members_has(&c->members, i) || s->answered || hv_members_has(&c->doubts.barred, i))
    return 0;
  if (i == c->round->me)
    return 1; /* jobs end soon */
  return !s->gone && now(c) < answers_by_us(c, s);
}

/* Those who have answered, are still here and not barred. */
static hv_members those_here(hv_council *c) {
  hv_members here = {{0}};
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].answered && !c->seats[i].gone)
      hv_members_put(&here, i);
  hv_doubts_weigh(&c->doubts, &here);
  hv_members_take_out(&here, &c->doubts.barred);
  return here;
}

static hv_status make_plan(hv_council *c, hv_view **view) {
  size_t n = c->round->n_members;
  hv_members here = those_here(c), may_own = {{0}};
  hv_view_report *reports = hv_mem_array(c->env->mem, n, sizeof *reports);
  if (!reports)
    return HV_NOMEM;
  for (size_t i = 0; i < n; i++) {
    reports[i] = c->seats[i].report;
    reports[i].promised = c->seats[i].promised;
    if (!hv_members_has(&c->doubts.no_owner, i))
      hv_members_put(&may_own, i);
  }
  hv_status status = HV_CLOSED;
  hv_members left = hv_view_left(c->round, reports, &here);
  if (hv_members_has(&left, c->round->me)) /* it may be itself that all others must do without */
    status = hv_view_plan(c->env->mem, c->round, c->asking, reports, &here, &may_own, view);
  hv_mem_free(reports);
  return status;
}

static void tell_plan(hv_council *c, const hv_view *view, hv_payload *bytes) {
  for (size_t i = 0; i < c->round->n_members; i++) {
    seat *s = &c->seats[i];
    s->suspected = 0;
    if (!s->stream)
      continue;
    if (hv_members_has(&view->members, i))
      tell(c, s->stream, HV_NEWS_PLAN, view->number, &view->members, bytes);
    else
      tell(c, s->stream, HV_NEWS_OUT, view->number, NULL, NULL);
    s->told = view->number;
  }
}

/* Nobody came to this coordinator, or nobody is left of those: the first two whom it has given up may live after all, and the
 * others be with them. Once for each. */
static int goes_back(hv_council *c) {
  int n = 0;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i != c->round->me && c->seats[i].came && !c->seats[i].gone)
      return 0;
  for (size_t k = 0; k < c->round->n_members && n < 2; k++) {
    size_t i = (c->round->leader + k) % c->round->n_members;
    if (!hv_members_has(&c->given_up, i) || hv_members_has(&c->recalled, i))
      continue;
    hv_members_put(&c->recalled, i);
    hv_members_drop(&c->given_up, i);
    n++;
  }
  if (n)
    attend_next(c);
  return n > 0;
}

static void try_plan(hv_council *c) {
  if (!c->asking || c->over)
    return;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (is_awaited(c, i))
      return;
  hv_view *view = NULL;
  hv_status status = make_plan(c, &view);
  hv_payload *bytes = status == HV_OK ? hv_view_write(c->env->mem, c->round, view) : NULL;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].answered)
      c->seats[i].promised = c->asking;
  c->asking = 0;
  if (bytes) {
    hv_env_log(c->env, HV_LOG_INFO, "council", "view", "view %u of a round: %zu members, %u chunks to come", view->number,
               hv_members_count(&view->members), view->n_work);
    tell_plan(c, view, bytes);
    hv_payload_release(bytes);
    install(c, view);
    return;
  }
  hv_view_free(view);
  if ((status == HV_CLOSED || status == HV_STATE) && goes_back(c))
    return;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream && status == HV_STATE)
      tell(c, c->seats[i].stream, HV_NEWS_OUT, c->promised, NULL, NULL);
  go_out(c, status == HV_OK || status == HV_NOMEM ? HV_NOMEM : HV_CLOSED, "too few members are left to average with");
}

/* 1 when this member's word is waited for no more. Who never came to a coordinator that took over has died with the one before, or
 * heard from that one that all is done. */
static int is_settled(const hv_council *c, size_t i) {
  const seat *s = &c->seats[i];
  return s->done || s->gone || (!s->came && now(c) >= c->chair_us + patience_us(c));
}

static void see_if_finished(hv_council *c) {
  if (c->chair != c->round->me || !c->done || c->finished || c->over)
    return;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i != c->round->me && hv_members_has(&c->members, i) && !is_settled(c, i))
      return;
  c->finished = 1;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream) {
      tell(c, c->seats[i].stream, HV_NEWS_FINISHED, c->installed, NULL, NULL);
      c->env->stream_end(c->env, c->seats[i].stream);
    }
}

static void take_report(hv_council *c, seat *s, const hv_msg_news *news, const hv_payload *payload) {
  size_t bytes = hv_hold_bytes(c->hold->n_chunks);
  if (!c->asking || news->view != c->asking || s->answered)
    return;
  if (!names(c, news->members, &s->report.members) || !hv_members_has(&s->report.members, s->member) ||
      news->installed >= c->asking || (payload ? payload->size : 0) != bytes) {
    c->env->stream_cancel(c->env, s->stream);
    return;
  }
  if (payload)
    hv_payload_read(payload, 0, s->held, bytes);
  s->report.installed = news->installed;
  s->report.held = s->held;
  s->answered = 1;
  try_plan(c);
}

static void take_trouble(hv_council *c, seat *s, const hv_msg_news *news) {
  hv_members suspects;
  if (!names(c, news->members, &suspects) || news->view < s->told)
    return; /* it has a plan since */
  if (c->asking)
    hv_members_drop(&suspects, c->round->me); /* it broke off because it asks */
  hv_doubts_trouble(&c->doubts, s->member, c->installed, &suspects);
  if (c->asking)
    return; /* who stops breaks off its streams: that is no reason to doubt it */
  if (c->chair == c->round->me) {
    if (!some_stopped(c))
      note_unseen(c, s->member, &suspects);
    start_ask(c);
  } else if (!c->trouble)
    hv_council_trouble(c, &(hv_members){{0}}, &(hv_members){{0}},
                       &(hv_members){{0}}); /* another one coordinates, as far as is known here: it will show */
}

static void take_charge(hv_council *c, const seat *s, const hv_msg_news *news) {
  hv_members liars;
  if (names(c, news->members, &liars) && news->view >= s->told)
    hv_doubts_false(&c->doubts, s->member, &liars);
}

/* A member says something. */
static void member_said(hv_stream *stream, const hv_event *event) {
  seat *s = stream->owner;
  hv_council *c = s->council;
  const hv_msg_news *news = &event->msg->u.news;
  if (stream != s->stream || c->over || c->finished)
    return;
  if (c->asking)
    s->suspected = 0; /* it lives, and so does its line: it has as long to answer as the others */
  if (event->msg->kind != HV_MSG_NEWS || hv_members_has(&c->doubts.barred, s->member) || !hv_members_has(&c->members, s->member))
    c->env->stream_cancel(c->env, stream);
  else if (news->what == HV_NEWS_TROUBLE)
    take_trouble(c, s, news);
  else if (news->what == HV_NEWS_FALSE)
    take_charge(c, s, news);
  else if (news->what == HV_NEWS_REPORT)
    take_report(c, s, news, event->payload);
  else if (news->what == HV_NEWS_DONE) {
    s->done = 1;
    see_if_finished(c);
  }
}

static void member_left(hv_stream *stream, const hv_event *event) {
  seat *s = stream->owner;
  hv_council *c = s->council;
  (void)event;
  c->streams--;
  if (stream == s->stream) {
    s->stream = NULL;
    s->gone = 1;
    try_plan(c);
    see_if_finished(c);
  }
  c->acts->changed(c->arg);
}

void hv_council_opened(hv_council *c, const hv_msg_attend *attend, hv_stream *stream) {
  static const hv_stream_events on = {member_said, room_again, member_left};
  if (c->over || !hv_members_has(&c->members, attend->member) || hv_members_has(&c->doubts.barred, attend->member))
    return;
  seat *s = &c->seats[attend->member];
  if (s->stream)
    c->env->stream_cancel(c->env, s->stream);
  s->stream = stream;
  s->came_us = s->came ? s->came_us : now(c);
  s->came = 1;
  s->gone = 0;
  s->told = 0;
  s->promised = attend->view;
  stream->on = &on;
  stream->owner = s;
  c->streams++;
  say_here(c, s);
  if (c->finished)
    tell(c, stream, HV_NEWS_FINISHED, c->installed, NULL, NULL);
  else if (c->asking && attend->view <= c->asking)
    tell(c, stream, HV_NEWS_ASK, c->asking, NULL, NULL);
  if (c->asking && attend->view > c->installed && attend->view % c->round->n_members != c->round->me)
    excuse_the_stopped(c);
  if (attend->view <= c->highest || attend->view - c->highest > STRIDE_MAX)
    return;
  c->highest = attend->view; /* it would not answer to a lower number */
  if (c->asking) {
    c->asking = 0;
    start_ask(c);
  }
}

/* ---- time ---- */

/* If this timer is late it was this node that stood still: the others get their time anew. */
static void look(hv_timer *timer, const hv_event *event) {
  hv_council *c = timer->owner;
  uint64_t every = hv_pace_tick_us(stall_us(c)), since = event->now_us - c->looked_us;
  c->looked_us = event->now_us;
  if (since > 2 * every) {
    c->until_us += since;
    c->sign_us += since;
    c->asked_us += since;
    c->grace_us += since;
    c->deadline_us += since;
    for (size_t i = 0; i < c->round->n_members; i++)
      c->seats[i].came_us += since;
    c->chair_us += since;
  }
  look_again(c);
  give_sign(c);
  if (chair_is_silent(c))
    give_up_chair(c);
  try_plan(c);
  see_if_finished(c);
}

/* ---- life ---- */

hv_status hv_council_new(hv_env *env, const hv_round *round, const hv_hold *hold, const hv_pace *pace, const hv_view *first,
                         const hv_council_acts *acts, void *arg, hv_council **out) {
  hv_council *c = hv_mem_zalloc(env->mem, sizeof *c);
  if (!c)
    return HV_NOMEM;
  *c = (hv_council){
      .env = env, .round = round, .hold = hold, .pace = pace, .acts = acts, .arg = arg, .members = first->members, .chair = NOBODY};
  c->look = (hv_timer){.fire = look, .owner = c};
  c->seats = hv_mem_array(env->mem, round->n_members, sizeof *c->seats);
  int whole = c->seats && hv_doubts_init(&c->doubts, env->mem, round->n_members, round->me) == HV_OK;
  for (size_t i = 0; c->seats && i < round->n_members; i++) {
    c->seats[i] = (seat){.council = c, .member = i, .held = hv_mem_alloc(env->mem, hv_hold_bytes(hold->n_chunks))};
    whole = c->seats[i].held && whole;
  }
  if (!whole) {
    hv_council_free(c);
    return HV_NOMEM;
  }
  *out = c;
  return HV_OK;
}

void hv_council_start(hv_council *c) {
  c->looked_us = now(c);
  look_again(c);
  attend_next(c);
}

void hv_council_leave(hv_council *c) {
  if (!c->over)
    leave(c);
}

int hv_council_over(const hv_council *c) {
  return (c->over || c->finished) && c->streams == 0;
}

void hv_council_free(hv_council *c) {
  if (!c)
    return;
  c->env->timer_clear(c->env, &c->look);
  for (size_t i = 0; c->seats && i < c->round->n_members; i++)
    hv_mem_free(c->seats[i].held);
  hv_mem_free(c->seats);
  hv_doubts_fini(&c->doubts);
  hv_mem_free(c);
}

void hv_council_trouble(hv_council *c, const hv_members *suspects, const hv_members *silent, const hv_members *liars) {
  if (c->over || c->finished || c->stopped)
    return;
  c->trouble = 1;
  hv_members_join(&c->suspects, suspects);
  hv_members_join(&c->silent, silent);
  hv_members_join(&c->liars, liars);
  if (c->chair == c->round->me) {
    note_unseen(c, c->round->me, suspects);
    hv_doubts_false(&c->doubts, c->round->me, liars);
    start_ask(c);
  } else if (c->chair != NOBODY && hv_members_has(silent, c->chair) && now(c) >= c->chair_us + patience_us(c) / 2) {
    give_up_chair(c); /* who is attended only now may be silent for want of the coordinator before it: it is asked first */
  } else if (c->line) {
    say_trouble(c);
  } else {
    attend_next(c);
  }
}

void hv_council_report(hv_council *c) {
  if (c->over)
    return;
  c->quiet = 1;
  send_report(c);
}

void hv_council_done(hv_council *c) {
  if (c->over)
    return;
  c->done = 1;
  if (c->line)
    tell(c, c->line, HV_NEWS_DONE, c->installed, NULL, NULL);
  see_if_finished(c);
}

int hv_council_finished(const hv_council *c) {
  return c->finished;
}

int hv_council_troubled(const hv_council *c) {
  return c->trouble && !c->over && !c->finished;
}

size_t hv_council_chair(const hv_council *c) {
  return c->chair;
}
