#include "core/agree/council_inner.h"

#include <string.h>

/* ---- what is said ---- */

static void tell(hv_council *c, hv_stream *stream, const hv_msg_news *news, hv_payload *payload) {
  hv_msg msg = {.kind = HV_MSG_NEWS, .u.news = *news};
  if (c->env->stream_send(c->env, stream, &msg, payload) != HV_OK)
    c->env->stream_cancel(c->env, stream); /* it takes not even so little */
}

void council_tell(hv_council *c, hv_stream *stream, hv_news what, uint32_t view, const hv_members *members, hv_payload *payload) {
  hv_msg_news news = {.what = (uint8_t)what, .view = view, .installed = c->installed};
  if (members)
    news.members = hv_span_of(members, sizeof *members);
  tell(c, stream, &news, payload);
}

void council_tell_plan(hv_council *c, hv_stream *stream, const hv_view *view, hv_payload *bytes) {
  hv_msg_news news = {.what = HV_NEWS_PLAN, .view = view->number, .installed = view->latest};
  news.members = hv_span_of(&view->members, sizeof view->members);
  tell(c, stream, &news, bytes);
}

void council_say_here(hv_council *c, const seat *s) {
  hv_members names = {{0}};
  if (c->line && c->heard && c->sign_us > s->came_us)
    hv_members_put(&names, c->chair);
  else if (c->chair == c->round->me && s->leads)
    names = council_company(c);
  council_tell(c, s->stream, HV_NEWS_HERE, c->installed, hv_members_count(&names) ? &names : NULL, NULL);
}

void council_say_here_to_all(hv_council *c) {
  c->pulse_us = council_now(c);
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream)
      council_say_here(c, &c->seats[i]);
}

/* Everybody who attends here is told that now and then, once a round takes long. */
static void give_sign(hv_council *c) {
  if (!c->over && !c->finished && (c->chair == c->round->me || c->trouble) &&
      council_now(c) >= c->pulse_us + council_patience_us(c) / 4)
    council_say_here_to_all(c);
}

void council_room_again(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

int council_names(const hv_council *c, hv_span bytes, hv_members *out) {
  if (bytes.size != sizeof *out)
    return 0;
  memcpy(out, bytes.data, sizeof *out);
  for (size_t i = c->round->n_members; i < HV_ROUND_MEMBERS_MAX; i++)
    if (hv_members_has(out, i))
      return 0;
  return 1;
}

/* ---- views ---- */

/* This member's part in the round is over; nothing of it is heard any more. */
static void leave(hv_council *c) {
  c->over = 1;
  c->waits = 0;
  c->asking = 0;
  c->env->timer_clear(c->env, &c->look);
  if (c->line)
    c->env->stream_cancel(c->env, c->line);
  council_cancel_formers(c);
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream)
      c->env->stream_cancel(c->env, c->seats[i].stream);
}

void council_go_out(hv_council *c, hv_status status, const char *text) {
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

void council_install(hv_council *c, hv_view *view) {
  c->other_members = c->members;
  c->other = c->installed;
  c->held_then = c->hold->n_held;
  c->members = view->members;
  send_away_others(c);
  council_cancel_formers(c);
  c->installed = view->number;
  c->view_us = council_now(c);
  c->stopped = c->quiet = c->trouble = c->waits = c->asked_me = c->told_finished = c->left_out = 0;
  hv_members_join(&c->owed, &c->silent);
  c->suspects = c->silent = c->liars = c->broke_off = (hv_members){{0}};
  c->acts->go_on(c->arg, view);
}

/* ---- time ---- */

void council_look_again(hv_council *c) {
  uint64_t us = hv_pace_tick_us(council_stall_us(c));
  uint64_t until = c->grace_us > council_now(c) ? c->grace_us : c->deadline_us; /* others are seen at the next tick */
  if (c->asking && until > council_now(c) && until - council_now(c) < us)
    us = until - council_now(c);
  c->env->timer_set(c->env, &c->look, us);
}

void council_notice_time(hv_council *c) {
  uint64_t every = hv_pace_tick_us(council_stall_us(c)), now = council_now(c), since = now - c->looked_us;
  c->looked_us = now;
  if (since <= 2 * every)
    return;
  if (since > council_patience_us(c) / 2) {
    c->woke_us = now;
    c->listens_us = now + every;
  }
  c->until_us += since;
  c->asked_me_us += since;
  c->sign_us += since;
  c->asked_us += since;
  c->grace_us += since;
  c->deadline_us += since;
  c->again_us = 0; /* what they said meanwhile came in one moment */
  for (size_t i = 0; i < c->round->n_members; i++)
    c->seats[i].came_us += since;
  c->chair_us += since;
}

static void look(hv_timer *timer, const hv_event *event) {
  hv_council *c = timer->owner;
  (void)event;
  council_notice_time(c);
  council_look_again(c);
  if (!c->owes_ask)
    give_sign(c);
  council_ask_if_owed(c);
  if (council_chair_is_silent(c))
    council_miss_chair(c);
  council_try_plan(c);
  council_see_if_finished(c);
}

/* ---- life ---- */

hv_status hv_council_new(hv_env *env, const hv_round *round, const hv_hold *hold, const hv_pace *pace, const hv_view *first,
                         const hv_council_acts *acts, void *arg, hv_council **out) {
  hv_council *c = hv_mem_zalloc(env->mem, sizeof *c);
  if (!c)
    return HV_NOMEM;
  *c = (hv_council){
      .env = env, .round = round, .hold = hold, .pace = pace, .acts = acts, .arg = arg, .members = first->members, .chair = NOBODY};
  c->looked_us = council_now(c);
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

void hv_council_start(hv_council *c, uint64_t waited_us) {
  if (waited_us > council_patience_us(c) / 2) /* they may have come, and gone for its silence, as if it had stood still */
    c->woke_us = council_now(c);
  council_look_again(c);
  council_attend_next(c);
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

/* The averages of the coordinator do not come. Who is attended only now may be silent for want of the one before it; and who says
 * on the line that it is there may wait for others itself: it is asked first, in one view. */
static int is_chair_missed(const hv_council *c) {
  uint64_t us = c->heard && !hv_members_has(&c->owed, c->chair) ? c->sign_us : c->chair_us;
  return council_now(c) >= us + council_patience_us(c) / 2;
}

void hv_council_trouble(hv_council *c, const hv_members *suspects, const hv_members *silent, const hv_members *liars,
                        const hv_members *stopped) {
  if (c->over || c->finished || c->stopped)
    return;
  council_notice_time(c);
  c->trouble = 1;
  hv_members_join(&c->suspects, suspects);
  hv_members_join(&c->silent, silent);
  hv_members_join(&c->liars, liars);
  hv_members_join(&c->broke_off, stopped);
  if (c->chair == c->round->me) {
    council_own_trouble(c, suspects, liars);
  } else if (c->chair != NOBODY && hv_members_has(silent, c->chair) && is_chair_missed(c)) {
    council_miss_chair(c);
  } else if (c->line) {
    council_say_trouble(c);
  } else {
    council_attend_next(c);
  }
}

void hv_council_report(hv_council *c) {
  if (c->over)
    return;
  council_notice_time(c);
  c->quiet = 1;
  council_send_report(c);
}

void hv_council_done(hv_council *c) {
  if (c->over)
    return;
  c->done = 1;
  if (c->line)
    council_tell(c, c->line, HV_NEWS_DONE, c->installed, NULL, NULL);
  council_see_if_finished(c);
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
