#include "core/agree/council_inner.h"

#include <string.h>

enum {
  STRIDE_MAX = 1 << 16, /* so much further may a member say that numbers are, or as far as those before this one may have gone, */
  RAISES_MAX = 4        /* and so often: it was asked elsewhere meanwhile, and who asks here asks all again for it */
};

/* A member of the present view, and not out for what it said. */
static int is_of_the_view(const hv_council *c, size_t i) {
  return hv_members_has(&c->members, i) && !hv_members_has(&c->doubts.barred, i);
}

/* 1: another coordinator has asked before, and told no plan. Who was asked has stopped and broken off its streams: that is no
 * reason to doubt it. */
static int some_stopped(const hv_council *c) {
  return c->highest > c->installed;
}

/* Its line is open, and something came from it within a suspect's time, and not only because this one stood still: it lives,
 * whatever others say. */
static int was_just_heard(const hv_council *c, const seat *s) {
  uint64_t us = hv_pace_sign_us(c->pace, s->member, s->said_us);
  return s->stream && us > c->listens_us && council_now(c) < us + council_patience_us(c) / 4;
}

/* A member says whom it cannot reach. If it is believed, those have less time to answer; not who broke off itself, and so lives,
 * nor whom this one has just heard. */
static void note_unseen(hv_council *c, size_t who, const hv_members *suspects) {
  int own = who == c->round->me, believed = own || hv_doubts_believes(&c->doubts, who);
  hv_doubts_unseen(&c->doubts, who, suspects);
  for (size_t i = 0; i < c->round->n_members && believed; i++)
    c->seats[i].suspected |=
        hv_members_has(suspects, i) && !(own ? hv_members_has(&c->broke_off, i) : was_just_heard(c, &c->seats[i]));
}

/* Only now it shows that another coordinator has asked: whose streams broke may have stopped for that one. Whom this member found
 * silent, or has given up, is a suspect as before. */
static void excuse_the_stopped(hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++)
    if (!hv_members_has(&c->silent, i) && !hv_members_has(&c->given_up, i))
      c->seats[i].suspected = 0;
}

/* From now on it is at another one, and may come back. */
static void is_away_now(seat *s) {
  s->away = 1;
  s->away_us = council_now(s->council);
}

/* One that coordinated before comes here, and so do those who had gone back to it. */
static void expect_the_others(hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].came && c->seats[i].gone)
      is_away_now(&c->seats[i]);
}

static void start_ask(hv_council *c) {
  size_t n = c->round->n_members;
  if (c->asking || c->over || c->finished)
    return;
  if (council_now(c) < c->listens_us) {
    c->owes_ask = 1;
    return;
  }
  c->owes_ask = 0;
  uint64_t following = (c->highest / n + 1) * n + c->round->me;
  if (following > COUNCIL_VIEW_MAX) {
    council_go_out(c, HV_CLOSED, "a member asked for a view with a number that is too high");
    return;
  }
  uint32_t number = (uint32_t)following;
  c->asking = number;
  c->cut_off = 0;
  c->again_us = 0;
  uint64_t patience = council_patience_us(c);
  c->asked_us = council_now(c);
  c->grace_us = council_now(c) + patience / 4;
  c->deadline_us = council_now(c) + (patience * 2 < council_stall_us(c) ? patience * 2 : council_stall_us(c));
  for (size_t i = 0; i < n; i++) {
    c->seats[i].answered = 0;
    if (c->seats[i].stream)
      council_tell(c, c->seats[i].stream, HV_NEWS_ASK, number, NULL, NULL);
  }
  council_look_again(c);
  council_promise(c, number);
}

void council_ask_if_owed(hv_council *c) {
  if (c->owes_ask && c->chair == c->round->me)
    start_ask(c);
  else
    c->owes_ask = 0;
}

void council_own_trouble(hv_council *c, const hv_members *suspects, const hv_members *liars) {
  note_unseen(c, c->round->me, suspects);
  hv_doubts_false(&c->doubts, c->round->me, liars);
  start_ask(c);
}

void council_take_over(hv_council *c) {
  council_own_trouble(c, some_stopped(c) ? &c->silent : &c->suspects, &c->liars); /* nobody has heard them yet */
}

/* A coordinator is lost, and this one has not come yet: it may have to miss that one first. Nothing has come from it in this view,
 * so its plan may be lost; or it was there and broke off itself, as who is asked does, be it by a coordinator that nobody else has
 * heard.
 */
static int may_miss_another(const hv_council *c, const seat *s) {
  int lacks_plan = c->installed && c->pace->heard_us[s->member] < c->view_us;
  int was_asked = hv_members_has(&c->broke_off, s->member) && !hv_members_has(&c->given_up, s->member);
  return !s->came && hv_members_count(&c->given_up) && (lacks_plan || was_asked);
}

/* Fewer than half of those who may be there have answered: rather this member was cut off, or stood still, than that all others are
 * gone. */
static int few_answered(const hv_council *c) {
  size_t answered = 0, there = 0;
  for (size_t i = 0; i < c->round->n_members; i++) {
    const seat *s = &c->seats[i];
    int may_be = is_of_the_view(c, i) && !s->gone;
    there += (size_t)may_be;
    answered += (size_t)(may_be && s->answered);
  }
  return 2 * answered < there;
}

/* Until when it may answer. Who comes to this coordinator only now, because the one before was silent, has its time from then on;
 * it comes for the first time only once. Who has not come may take longer to miss that one than this member did; not who was that
 * one, and is itself missed. */
static uint64_t answers_by_us(const hv_council *c, const seat *s) {
  int suspected = s->lost || (s->suspected && !may_miss_another(c, s));
  uint64_t us = suspected ? c->grace_us : c->deadline_us;
  int may_miss = !s->came && hv_members_count(&c->given_up) && !hv_members_has(&c->given_up, s->member);
  if ((may_miss && !suspected) || c->cut_off)
    us = c->asked_us + 2 * council_patience_us(c);
  uint64_t own_us = s->came && s->came_us > c->asked_us ? s->came_us + (c->deadline_us - c->asked_us) : 0;
  return own_us > us ? own_us : us;
}

/* Who goes to another one while this one asks, or has since this one stood still, has as long as a suspect to hear that this one is
 * there; also who was asked by that one meanwhile, and has ended its line for that. */
static int may_come_back(const hv_council *c, const seat *s) {
  uint64_t since = s->away_us > c->asked_us ? s->away_us : c->woke_us;
  return s->away && since && council_now(c) < since + council_patience_us(c) / 4;
}

/* It was only silent, says something, and was told at once that it may come here: it has as long as a suspect to do so. */
static int was_invited(const hv_council *c, const seat *s) {
  return s->former && s->spoke && council_now(c) < s->spoke_us + council_patience_us(c) / 4;
}

/* 1 when it may still answer. */
static int is_awaited(const hv_council *c, size_t i) {
  const seat *s = &c->seats[i];
  if (!is_of_the_view(c, i) || (s->answered && !s->gone) || s->ended)
    return 0; /* the answer of who has gone does not count */
  if (i == c->round->me)
    return 1; /* jobs end soon */
  if (!may_come_back(c, s) && (s->gone || (s->away && !c->cut_off)))
    return 0;
  return council_now(c) < answers_by_us(c, s) || was_invited(c, s);
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
  reports[c->round->me].promises = &c->promises;
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
      council_tell_plan(c, s->stream, view, bytes);
    else
      council_tell(c, s->stream, HV_NEWS_OUT, view->number, NULL, NULL);
    s->told = view->number;
  }
}

static int is_alone(const hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i != c->round->me && c->seats[i].came && !c->seats[i].gone)
      return 0;
  return 1;
}

hv_members council_company(const hv_council *c) {
  hv_members with = {{0}};
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i == c->round->me || (c->seats[i].came && !c->seats[i].gone && !c->seats[i].away))
      hv_members_put(&with, i);
  return with;
}

int council_was_left(const hv_council *c) {
  size_t here = 0, left = 0;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i != c->round->me && c->seats[i].came) {
      int is_gone = c->seats[i].gone || c->seats[i].away;
      left += (size_t)is_gone;
      here += (size_t)!is_gone;
    }
  return here == 0 || left > here;
}

static int may_try(const hv_council *c, size_t i) {
  return !hv_members_has(&c->recalled, i) && !hv_members_has(&c->tried, i) && !c->seats[i].ended;
}

/* How likely is one whom this member has given up there after all? It has spoken since; its line here is still open; neither. */
static int liveliness(const hv_council *c, size_t i) {
  return c->seats[i].former ? 1 + (c->seats[i].spoke != 0) : 0;
}

/* Nobody came to this coordinator, or nobody is left of those: the first two whom it has given up may live after all, and the
 * others be with them, of the liveliest. Once for each. If one of those has spoken since, it is enough that most have left. */
static int goes_back(hv_council *c) {
  int n = 0, most = 0;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (may_try(c, i) && liveliness(c, i) > most)
      most = liveliness(c, i);
  if (!is_alone(c) && !(most == 2 && council_was_left(c)))
    return 0;
  for (size_t k = 0; k < c->round->n_members && n < 2; k++) {
    size_t i = (c->round->leader + k) % c->round->n_members;
    if (!hv_members_has(&c->given_up, i) || !may_try(c, i) || liveliness(c, i) < most)
      continue;
    hv_members_put(&c->tried, i);
    hv_members_drop(&c->given_up, i);
    n++;
  }
  c->asking = n ? 0 : c->asking;
  if (n)
    council_attend_next(c);
  return n > 0;
}

/* Not a client: one that says that it does lies. */
static int may_coordinate(const hv_council *c, size_t i) {
  return is_of_the_view(c, i) && !c->round->members[i].client && !hv_members_has(&c->given_up, i);
}

/* The first in order who says that it coordinates others. */
static size_t who_leads_others(const hv_council *c) {
  for (size_t k = 0; k < c->round->n_members; k++) {
    size_t i = (c->round->leader + k) % c->round->n_members;
    const seat *s = &c->seats[i];
    if (s->leads && !s->gone && may_coordinate(c, i))
      return i;
  }
  return NOBODY;
}

/* Half of the members have left. Where this one stood still, those may have come and gone whom it never saw: the other one names
 * them. */
static int half_have_left(const hv_council *c, const hv_members *with_other) {
  size_t there = 0, left = 0;
  for (size_t i = 0; i < c->round->n_members; i++) {
    const seat *s = &c->seats[i];
    int counts = is_of_the_view(c, i);
    int unseen = c->woke_us && !s->came && i != c->round->me && hv_members_has(with_other, i);
    there += (size_t)counts;
    left += (size_t)(counts && (s->gone || s->leads || unseen));
  }
  return 2 * left >= there;
}

/* So many may be gone for good that those who have left cannot be half of all. Who has answered says nothing more by itself, so all
 * are asked again: those count who say anything within a suspect's time. */
static int hears_who_is_here(hv_council *c) {
  if (!c->again_us) {
    c->again_us = council_now(c);
    for (size_t i = 0; i < c->round->n_members; i++)
      if (c->seats[i].stream)
        council_tell(c, c->seats[i].stream, HV_NEWS_ASK, c->asking, NULL, NULL);
  }
  return council_now(c) < c->again_us + council_patience_us(c) / 4;
}

/* Half of those who were heard again, and of this one; not at the word of one alone. */
static int half_of_those_here_have_left(const hv_council *c) {
  size_t there = 1, left = 0;
  for (size_t i = 0; i < c->round->n_members; i++) {
    const seat *s = &c->seats[i];
    int counts = is_of_the_view(c, i);
    int has_left = counts && (s->leads || (s->gone && s->away));
    left += (size_t)has_left;
    there += (size_t)(has_left || (counts && !s->gone && s->said_us >= c->again_us));
  }
  return left > 1 && 2 * left >= there;
}

/* It was this one that was cut off: half of the members were not heard then, and now end their lines without a word, or their words
 * are still under way. They have gone to whoever comes after this one: NOBODY, or that one. */
static size_t who_follows_if_half_have_slipped_away(const hv_council *c) {
  size_t there = 0, slipped = 0, n = c->round->n_members;
  for (size_t i = 0; i < n; i++) {
    int counts = is_of_the_view(c, i);
    there += (size_t)counts;
    slipped += (size_t)(counts && c->seats[i].slipped);
  }
  for (size_t i = (c->round->me + 1) % n; 2 * slipped >= there && i != c->round->leader; i = (i + 1) % n)
    if (may_coordinate(c, i))
      return i;
  return NOBODY;
}

/* Half of the members have left this coordinator, and one of them says that it coordinates the others, or follows where nobody says
 * anything: that one is attended from now on, once, and who is here is sent away: it goes there, too. That one's own line stays: if
 * it ended, this one had died for it. 1: this one coordinates no more; or not yet, as it hears first who is here.
 */
static int goes_along(hv_council *c) {
  size_t me = c->round->me, other = who_leads_others(c), said = other;
  if (other == NOBODY)
    other = who_follows_if_half_have_slipped_away(c);
  if (other == NOBODY || hv_members_has(&c->recalled, me))
    return 0;
  if (said != NOBODY && !half_have_left(c, &c->seats[other].with)) {
    if (hears_who_is_here(c))
      return 1;
    if (!half_of_those_here_have_left(c))
      return 0;
  }
  for (size_t i = c->round->leader; i != other; i = (i + 1) % c->round->n_members)
    hv_members_put(&c->given_up, i);
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream && i != other)
      c->env->stream_cancel(c->env, c->seats[i].stream);
  c->asking = 0;
  council_attend_next(c);
  return 1;
}

static int any_is_awaited(const hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++)
    if (is_awaited(c, i))
      return 1;
  return 0;
}

/* It has stood still since it asked: those who have answered may have gone to another one since, and the ends of their lines be
 * under way. */
static int may_have_been_left(const hv_council *c) {
  return c->woke_us > c->asked_us && council_now(c) < c->woke_us + council_patience_us(c) / 4;
}

void council_try_plan(hv_council *c) {
  if (!c->asking || c->over || goes_along(c) || any_is_awaited(c))
    return;
  c->cut_off |= few_answered(c);
  if (any_is_awaited(c) || may_have_been_left(c))
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
    council_install(c, view);
    return;
  }
  hv_view_free(view);
  if ((status == HV_CLOSED || status == HV_STATE) && goes_back(c))
    return;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream && status == HV_STATE)
      council_tell(c, c->seats[i].stream, HV_NEWS_OUT, c->promised, NULL, NULL);
  council_go_out(c, status == HV_OK || status == HV_NOMEM ? HV_NOMEM : HV_CLOSED, "too few members are left to average");
}

void council_own_report(hv_council *c) {
  seat *own = &c->seats[c->round->me];
  memcpy(own->held, c->hold->held, hv_hold_bytes(c->hold->n_chunks));
  own->report = (hv_view_report){.members = c->members, .installed = c->installed, .held = own->held};
  own->answered = 1;
  council_try_plan(c);
}

/* 1 when this member's word is waited for no more. Who never came to a coordinator that took over has died with the one before, or
 * heard from that one that all is done; who lacks something may miss that one later, and its way here be long. Who went to another
 * one since this one was silent may come back, and lack what it owns. */
static int is_settled(const hv_council *c, size_t i) {
  const seat *s = &c->seats[i];
  if (s->ended || s->mute)
    return 1;
  if (s->away && !s->done && council_now(c) < s->away_us + council_patience_us(c))
    return 0;
  return s->done || s->gone || s->away || (!s->came && council_now(c) >= c->chair_us + council_patience_us(c) / 4 * 5);
}

void council_see_if_finished(hv_council *c) {
  if ((c->chair != c->round->me && !c->told_finished) || !c->done || c->asking || c->finished || c->over)
    return; /* who asks has heard that somebody lacks something */
  for (size_t i = 0; i < c->round->n_members && !c->told_finished; i++)
    if (i != c->round->me && hv_members_has(&c->members, i) && !is_settled(c, i))
      return;
  c->finished = 1;
  c->waits = 0;
  if (c->line)
    c->env->stream_end(c->env, c->line);
  council_cancel_formers(c);
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream) {
      council_tell(c, c->seats[i].stream, HV_NEWS_FINISHED, c->installed, NULL, NULL);
      c->env->stream_end(c->env, c->seats[i].stream);
    }
}

static void take_report(hv_council *c, seat *s, const hv_msg_news *news, const hv_payload *payload) {
  size_t bytes = hv_hold_bytes(c->hold->n_chunks);
  if (!c->asking || news->view != c->asking || s->answered)
    return;
  if (!council_names(c, news->members, &s->report.members) || !hv_members_has(&s->report.members, s->member) ||
      news->installed >= c->asking || (payload ? payload->size : 0) != bytes) {
    c->env->stream_cancel(c->env, s->stream);
    return;
  }
  if (payload)
    hv_payload_read(payload, 0, s->held, bytes);
  s->report.installed = news->installed;
  s->report.held = s->held;
  s->answered = 1;
  council_try_plan(c);
}

static void take_trouble(hv_council *c, seat *s, const hv_msg_news *news) {
  hv_members suspects;
  if (!council_names(c, news->members, &suspects) || news->view < s->told)
    return; /* it has a plan since */
  for (size_t i = 0; i < c->round->n_members && c->asking; i++)
    if (i == c->round->me || c->seats[i].answered)
      hv_members_drop(&suspects, i); /* it broke off because this one asks */
  hv_doubts_trouble(&c->doubts, s->member, c->installed, &suspects);
  if (c->asking)
    return; /* who stops breaks off its streams: that is no reason to doubt it */
  if (c->chair == c->round->me) {
    if (!some_stopped(c))
      note_unseen(c, s->member, &suspects);
    start_ask(c);
  } else if (!c->trouble)
    hv_council_trouble(c, &(hv_members){{0}}, &(hv_members){{0}}, &(hv_members){{0}},
                       &(hv_members){{0}}); /* another one coordinates, as far as is known here: it will show */
}

static void take_charge(hv_council *c, const seat *s, const hv_msg_news *news) {
  hv_members liars;
  if (!council_names(c, news->members, &liars) || news->view < s->told)
    return;
  hv_doubts_false(&c->doubts, s->member, &liars);
  hv_members missed = hv_doubts_missed(&c->doubts);
  for (size_t i = 0; i < c->round->n_members; i++)
    c->seats[i].suspected &= hv_members_has(&missed, i); /* whom only those could not reach may have broken off for that */
}

/* Those who coordinate some themselves hear who is here now: they may come, if that is more. */
static void say_who_is_here(hv_council *c) {
  if (c->chair != c->round->me || council_now(c) < c->listens_us)
    return;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].stream && c->seats[i].leads)
      council_say_here(c, &c->seats[i]);
}

/* A member says something. */
static void member_said(hv_stream *stream, const hv_event *event) {
  seat *s = stream->owner;
  hv_council *c = s->council;
  const hv_msg_news *news = &event->msg->u.news;
  if (stream != s->stream || c->over || c->finished)
    return;
  council_notice_time(c);
  s->said_us = council_now(c);
  int is_away = event->msg->kind == HV_MSG_NEWS && news->what == HV_NEWS_HERE && news->members.size;
  s->away_us = is_away && !s->away ? event->now_us : s->away_us;
  s->away = is_away;
  int led = s->leads;
  hv_members with = s->with;
  s->leads =
      is_away && council_names(c, news->members, &s->with) && hv_members_has(&s->with, s->member) && hv_members_count(&s->with) > 1;
  if (s->leads && !(led && memcmp(&with, &s->with, sizeof with) == 0))
    say_who_is_here(c);
  if (c->asking)
    s->suspected = 0; /* it lives, and so does its line: it has as long to answer as the others */
  if (event->msg->kind != HV_MSG_NEWS || !is_of_the_view(c, s->member))
    c->env->stream_cancel(c->env, stream);
  else if (news->what == HV_NEWS_TROUBLE)
    take_trouble(c, s, news);
  else if (news->what == HV_NEWS_FALSE)
    take_charge(c, s, news);
  else if (news->what == HV_NEWS_REPORT)
    take_report(c, s, news, event->payload);
  else if (news->what == HV_NEWS_DONE) {
    s->done = 1;
    council_see_if_finished(c);
  } else if (s->leads && c->chair == c->round->me && half_have_left(c, &s->with)) {
    start_ask(c); /* its view comes to nothing: it need not wait until that shows */
  }
}

static void member_left(hv_stream *stream, const hv_event *event) {
  seat *s = stream->owner;
  hv_council *c = s->council;
  (void)event;
  council_notice_time(c);
  c->streams--;
  if (stream == s->stream) {
    s->stream = NULL;
    s->gone = 1;
    s->slipped =
        c->asking && !s->done && hv_pace_sign_us(c->pace, s->member, s->said_us) + council_patience_us(c) / 8 * 3 < c->asked_us;
    if (!s->away && c->woke_us && council_now(c) < c->woke_us + council_patience_us(c) / 4)
      is_away_now(s); /* it went while this one stood still */
    council_try_plan(c);
    council_see_if_finished(c);
    if (c->chair == c->round->me && !c->over && !c->finished)
      goes_back(c); /* who came has gone: where it was before, as it seems */
  }
  c->acts->changed(c->arg);
}

static int hears_nobody(const hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i != c->round->me && is_of_the_view(c, i) && !c->seats[i].mute && !c->seats[i].ended)
      return 0;
  return 1;
}

void hv_council_mute(hv_council *c, size_t member) {
  if (c->over || c->finished || c->seats[member].mute)
    return;
  council_notice_time(c);
  c->seats[member].mute = 1;
  if (hears_nobody(c) && c->chair != NOBODY && c->seats[c->chair].mute)
    council_give_up_chair(c);
  if (c->over)
    return;
  if (c->asking && hears_nobody(c))
    council_go_out(c, HV_CLOSED, "no other member answers any more");
  else
    council_see_if_finished(c);
}

int hv_council_gave_up(const hv_council *c, size_t member) {
  return hv_members_has(&c->given_up, member);
}

void hv_council_gone(hv_council *c, size_t member) {
  if (c->over || c->finished || member == c->round->me)
    return;
  council_notice_time(c);
  c->seats[member].ended = 1;
  if (member == c->chair && !c->line) /* else what it said before is on its way, the end of the line behind it */
    council_give_up_chair(c);
  if (c->over)
    return;
  council_try_plan(c);
  council_see_if_finished(c);
}

/* Of who is here its line tells more. Who has not come has no line whose end could tell that it is dead. */
void hv_council_cut(hv_council *c, size_t member) {
  if (c->over || c->finished || member == c->round->me || c->seats[member].stream)
    return;
  council_notice_time(c);
  c->seats[member].lost = 1;
  council_look_again(c);
}

void hv_council_seen(hv_council *c, size_t member) {
  c->seats[member].mute = 0;
  if (c->asking)
    c->seats[member].suspected = c->seats[member].lost = 0;
}

void hv_council_opened(hv_council *c, const hv_msg_attend *attend, hv_stream *stream) {
  static const hv_stream_events on = {member_said, council_room_again, member_left, .heavy = 0};
  if (c->over || !is_of_the_view(c, attend->member) || hv_members_has(&c->given_up, c->round->me))
    return;
  council_notice_time(c);
  seat *s = &c->seats[attend->member];
  s->mute = 0;
  int is_near = attend->view <= COUNCIL_VIEW_MAX && attend->view - c->highest <= STRIDE_MAX;
  int raises = attend->view > c->highest && (is_near || council_may_be(c, attend->view, council_place(c, c->round->me)));
  if (raises && s->raised++ >= RAISES_MAX)
    return;
  if (s->stream)
    c->env->stream_cancel(c->env, s->stream);
  s->stream = stream;
  s->came_us = s->came ? s->came_us : council_now(c);
  s->came = 1;
  s->said_us = council_now(c);
  s->gone = s->away = s->leads = s->lost = s->slipped = 0;
  s->told = 0;
  if (!c->asking || attend->view != c->asking)
    s->promised = attend->view; /* else it comes back, and has promised just that */
  stream->on = &on;
  stream->owner = s;
  c->streams++;
  if (council_now(c) >= c->listens_us)
    council_say_here(c, s);
  say_who_is_here(c);
  if (c->finished) {
    council_tell(c, stream, HV_NEWS_FINISHED, c->installed, NULL, NULL);
    c->env->stream_end(c->env, stream);
  } else if (c->asking && attend->view <= c->asking) {
    council_tell(c, stream, HV_NEWS_ASK, c->asking, NULL, NULL);
  }
  if (hv_members_has(&c->given_up, attend->member))
    expect_the_others(c);
  if (c->asking && attend->view > c->installed && attend->view % c->round->n_members != c->round->me)
    excuse_the_stopped(c);
  if (!raises)
    return;
  c->highest = attend->view; /* it would not answer to a lower number */
  if (c->asking || c->owes_ask)
    c->woke_us = council_now(c); /* who is away may have been asked there, too, and come back likewise */
  if (c->asking) {
    c->asking = 0;
    start_ask(c);
  }
}
