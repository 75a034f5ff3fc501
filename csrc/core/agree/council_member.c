#include "core/agree/council_inner.h"

#include <string.h>

static const char not_in[] = "the other members continue the round without this member";

static void hear(hv_stream *stream, const hv_event *event);

static void wait_for_chair(hv_council *c, uint64_t us) {
  c->waits = 1;
  c->until_us = council_now(c) + us;
}

/* It has asked: for its plan. It may have to ask anew, but not for ever. */
static void wait_for_plan(hv_council *c) {
  if (!c->asked_me)
    c->asked_me_us = council_now(c);
  c->asked_me = 1;
  wait_for_chair(c, 4 * council_stall_us(c));
  if (c->until_us > c->asked_me_us + 8 * council_stall_us(c))
    c->until_us = c->asked_me_us + 8 * council_stall_us(c);
}

/* Who has asked this one, and has its report, may have to wait for others. */
static uint64_t patience_once_heard_us(const hv_council *c) {
  int reported = c->stopped && c->quiet && c->promised % c->round->n_members == c->chair;
  return (reported ? 4 : 2) * council_stall_us(c);
}

/* Who says nothing at all may not even know of this round: that shows sooner, and what more there is to say to it does not make it
 * later. */
void council_say_trouble(hv_council *c) {
  if (hv_members_count(&c->liars))
    council_tell(c, c->line, HV_NEWS_FALSE, c->installed, &c->liars, NULL);
  council_tell(c, c->line, HV_NEWS_TROUBLE, c->installed, &c->suspects, NULL);
  if (c->heard || !c->waits)
    wait_for_chair(c, c->heard ? patience_once_heard_us(c) : council_stall_us(c) / 2);
}

int council_chair_is_silent(const hv_council *c) {
  if (c->waits && council_now(c) >= c->until_us)
    return 1;
  if (!c->line || c->finished)
    return 0;
  return council_now(c) >= (c->heard ? c->sign_us + council_patience_us(c) : c->chair_us + council_stall_us(c));
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

static int comes_before(const hv_council *c, size_t a, size_t b) {
  return council_place(c, a) < council_place(c, b);
}

void council_give_up_chair(hv_council *c) {
  char who[HV_PEER_SHORT_MAX];
  hv_env_log(c->env, HV_LOG_WARN, "council", "given_up", "replacing coordinator %s: it is lost, silent, or contradicted itself",
             hv_peer_short(&c->round->members[c->chair].at.id, who));
  hv_members_put(&c->given_up, c->chair);
  if (c->left_out)
    council_go_out(c, HV_CLOSED, not_in);
  else
    council_attend_next(c);
}

void council_miss_chair(hv_council *c) {
  seat *missed = &c->seats[c->chair];
  hv_members next = {{0}};
  hv_members_put(&c->given_up, c->chair);
  if (c->line && !missed->former && next_chair(c) != NOBODY) {
    missed->former = c->line;
    c->line = NULL;
    hv_members_put(&next, next_chair(c));
    council_tell(c, missed->former, HV_NEWS_HERE, c->installed, &next, NULL); /* so it does not wait for this one */
  }
  council_give_up_chair(c);
}

void council_cancel_formers(hv_council *c) {
  for (size_t i = 0; i < c->round->n_members; i++) {
    if (c->seats[i].former)
      c->env->stream_cancel(c->env, c->seats[i].former);
    c->seats[i].former = NULL;
  }
}

/* The others may have given up the coordinator that says so, as one that was cut off, and be with the next one: that one is asked.
 * In a later view it may be this one: those who were in it, too, are told the same.
 */
static void is_left_out(hv_council *c) {
  int again = c->left_out++;
  hv_members_put(&c->given_up, c->chair);
  size_t next = next_chair(c);
  if (again || next == NOBODY || (next == c->round->me && !c->installed))
    council_go_out(c, HV_CLOSED, not_in);
  else
    council_attend_next(c);
}

static void line_closed(hv_stream *stream, const hv_event *event) {
  hv_council *c = stream->owner;
  (void)event;
  council_notice_time(c);
  c->streams--;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (c->seats[i].former == stream) {
      c->seats[i].former = NULL;
      c->seats[i].lost = 1;
    }
  if (stream == c->line) {
    c->line = NULL;
    c->seats[c->chair].lost = 1;
    if (!c->over && !c->finished)
      council_give_up_chair(c);
  }
  c->acts->changed(c->arg);
}

static void open_line(hv_council *c) {
  static const hv_stream_events on = {hear, council_room_again, line_closed, .heavy = 0};
  hv_msg hello = {.kind = HV_MSG_ATTEND, .u.attend = {.member = (uint32_t)c->round->me, .view = c->promised}};
  memcpy(hello.u.attend.round, c->round->id, HV_ROUND_ID_SIZE);
  c->seats[c->chair].lost = 0;
  if (c->env->stream_open(c->env, &c->round->members[c->chair].at, &hello, &on, c, &c->line) != HV_OK)
    c->line = NULL;
  else
    c->streams++;
}

static void greet(hv_council *c) {
  if (c->trouble)
    council_say_trouble(c);
  if (c->done)
    council_tell(c, c->line, HV_NEWS_DONE, c->installed, NULL, NULL);
}

/* Another one is attended from now on, of whom nothing has been heard. */
static void leave_line(hv_council *c) {
  if (c->line)
    c->env->stream_cancel(c->env, c->line);
  c->line = NULL;
  c->waits = c->heard = c->asked_me = 0;
  c->chair_us = c->pulse_us = council_now(c);
}

void council_attend_next(hv_council *c) {
  leave_line(c);
  for (c->chair = next_chair(c); c->chair != NOBODY && c->chair != c->round->me; c->chair = next_chair(c)) {
    open_line(c);
    if (c->line)
      break;
    hv_members_put(&c->given_up, c->chair);
  }
  if (c->line)
    greet(c);
  if (!c->line && c->trouble && c->chair == c->round->me)
    council_take_over(c);
  if (!c->line && c->trouble && c->chair == NOBODY)
    council_go_out(c, HV_UNREACHABLE, "no member is left that can coordinate");
}

static void exchange_views(hv_council *c) {
  hv_members members = c->members;
  uint32_t number = c->installed;
  c->members = c->other_members;
  c->installed = c->other;
  c->other_members = members;
  c->other = number;
}

/* This member made the present view, and nobody has shown that the plan came there: to the others it never was. */
static int is_alone_in_its_view(const hv_council *c) {
  if (c->other >= c->installed || c->installed % c->round->n_members != c->round->me || c->hold->n_held != c->held_then)
    return 0;
  for (size_t i = 0; i < c->round->n_members; i++)
    if (i != c->round->me && c->pace->heard_us[i] >= c->view_us)
      return 0;
  return 1;
}

void council_send_report(hv_council *c) {
  if (c->other > c->installed ? c->hold->n_held != c->held_then : is_alone_in_its_view(c))
    exchange_views(c); /* something has come in that view until all had stopped: it counts after all; or nothing ever did */
  size_t bytes = hv_hold_bytes(c->hold->n_chunks);
  if (c->chair == c->round->me) {
    council_own_report(c);
    return;
  }
  if (!c->line)
    return;
  hv_payload *held = hv_payload_copy(c->env->mem, c->hold->held, bytes);
  if (!held) {
    council_go_out(c, HV_NOMEM, "there is no memory for a report");
    return;
  }
  council_tell(c, c->line, HV_NEWS_REPORT, c->promised, &c->members, held);
  hv_payload_release(held);
  wait_for_plan(c);
}

void council_promise(hv_council *c, uint32_t view) {
  c->promised = view;
  hv_promises_put(&c->promises, view);
  c->highest = view > c->highest ? view : c->highest;
  c->trouble = 1;
  if (c->stopped) {
    if (c->quiet)
      council_send_report(c);
    return;
  }
  c->stopped = 1;
  c->acts->stop(c->arg);
}

/* What everybody in the next view holds agrees with what is held here: they were in the present one, too, or the plan says so of
 * them: they hold nothing that may differ, or were in a later one that this member promised, but never had. If it never promised
 * that one it was not in it, whatever the others were told: they went on without what is held here, unless the plan says that this
 * fits, too. */
static int agrees_with_all_in(const hv_council *c, const hv_view *view) {
  hv_members strangers = view->members;
  hv_members_take_out(&strangers, &c->members);
  hv_members_take_out(&strangers, &view->fits);
  int was_stopped_for_it = view->latest <= c->installed || hv_promises_has(&c->promises, view->latest);
  int fits = was_stopped_for_it || hv_members_has(&view->fits, c->round->me);
  return c->hold->n_held == 0 || (fits && hv_members_count(&strangers) == 0);
}

static void hear_plan(hv_council *c, const hv_msg_news *news, const hv_payload *payload) {
  hv_members members;
  hv_view *view;
  if (news->view != c->promised || !c->stopped || !c->quiet)
    return; /* late: this member has promised another one since */
  hv_status status = council_names(c, news->members, &members) ? HV_OK : HV_MALFORMED;
  if (status == HV_OK)
    status = hv_view_read(c->env->mem, c->round, c->hold, news->view, &members, payload, &view);
  if (status == HV_OK) {
    view->latest = news->installed;
    if (!agrees_with_all_in(c, view)) {
      hv_view_free(view);
      status = HV_MALFORMED;
    }
  }
  if (status == HV_OK)
    council_install(c, view);
  else if (status == HV_NOMEM)
    council_go_out(c, HV_NOMEM, "there is no memory for a plan");
  else
    council_give_up_chair(c);
}

/* One that this member has given up too soon is attended again, once. */
static void called_back(hv_council *c, size_t i) {
  char who[HV_PEER_SHORT_MAX];
  hv_env_log(c->env, HV_LOG_INFO, "council", "recalled", "member %s coordinates after all: it or who attends it says so",
             hv_peer_short(&c->round->members[i].at.id, who));
  hv_members_put(&c->recalled, i);
  hv_members_drop(&c->given_up, i);
  c->asking = 0;
}

static void recall(hv_council *c, size_t i) {
  called_back(c, i);
  council_attend_next(c);
}

/* Whom this member attends was to be in the present view, too, and attends one that is not in it: so it never had that view's plan,
 * whose coordinator is lost. Where nothing was averaged here in that view, this member is as one that never had it, either: it goes
 * back to the view before, and there. Not where it would pass over others of that view, and not if it keeps no averages.
 */
static int goes_back_to_the_view_before(hv_council *c, size_t i) {
  if (c->other >= c->installed || c->hold->n_held != c->held_then || c->round->members[c->round->me].auxiliary)
    return 0;
  if (hv_members_has(&c->members, i) || !hv_members_has(&c->other_members, i) || c->round->members[i].client ||
      comes_before(c, c->chair, i))
    return 0;
  hv_members left_out = c->other_members;
  hv_members_take_out(&left_out, &c->members);
  hv_members_join(&c->given_up, &left_out);
  exchange_views(c);
  c->suspects = c->silent = c->broke_off = (hv_members){{0}}; /* they lacked the plan */
  recall(c, i);
  return 1;
}

/* Whom this member attends attends another one, who is there; or says who is with it, as it was told that this one coordinates. */
static void hear_who_coordinates(hv_council *c, hv_span told) {
  hv_members chair;
  if (!council_names(c, told, &chair) || hv_members_has(&chair, c->chair))
    return;
  for (size_t i = 0; i < c->round->n_members; i++) {
    if (hv_members_has(&chair, i) && goes_back_to_the_view_before(c, i))
      return;
    if (!hv_members_has(&chair, i) || !hv_members_has(&c->given_up, i) || hv_members_has(&c->recalled, i))
      continue;
    recall(c, i);
    return;
  }
}

/* One that was silent and goes on coordinates more than attend this member, besides those. Here no plan is made yet; and a liar who
 * says so is believed but once. */
static int has_more(const hv_council *c, size_t i, const hv_msg *msg) {
  hv_members others, own = council_company(c);
  if (!c->asking || hv_members_has(&c->recalled, i) || msg->kind != HV_MSG_NEWS || msg->u.news.what != HV_NEWS_HERE ||
      !council_names(c, msg->u.news.members, &others) || !hv_members_has(&others, i))
    return 0;
  hv_members_take_out(&others, &own);
  return hv_members_count(&others) > hv_members_count(&own);
}

/* One that was silent says something: it stood still, or its words were lost. If this member has promised anything to another one
 * since, a new line tells it that. 1: it is attended on the line as it was, and heard. */
static int hear_former(hv_council *c, hv_stream *stream, const hv_msg *msg) {
  size_t i = 0;
  while (i < c->round->n_members && c->seats[i].former != stream)
    i++;
  if (i == c->round->n_members || !hv_members_has(&c->given_up, i))
    return 0;
  c->seats[i].spoke_us = c->seats[i].spoke ? c->seats[i].spoke_us : council_now(c);
  c->seats[i].spoke = 1;
  if (c->chair != c->round->me && c->chair != NOBODY && comes_before(c, c->chair, i))
    return 0; /* the one before it was called back meanwhile */
  if (c->chair == c->round->me && !council_was_left(c) && !has_more(c, i, msg)) {
    hv_members with = council_company(c);
    council_tell(c, stream, HV_NEWS_HERE, c->installed, &with, NULL); /* it may come here */
    return 0;
  }
  if (hv_members_has(&c->recalled, i) || msg->kind != HV_MSG_NEWS || (msg->u.news.what == HV_NEWS_FINISHED && !c->done)) {
    c->env->stream_cancel(c->env, stream);
    c->seats[i].former = NULL;
    return 0;
  }
  if (c->promised != c->installed && c->promised % c->round->n_members != i) {
    recall(c, i);
    return 0;
  }
  called_back(c, i);
  leave_line(c);
  c->line = stream;
  c->seats[i].former = NULL;
  c->chair = i;
  council_tell(c, c->line, HV_NEWS_HERE, c->installed, NULL, NULL);
  greet(c);
  return 1;
}

/* The coordinator says something. */
static void hear(hv_stream *stream, const hv_event *event) {
  hv_council *c = stream->owner;
  const hv_msg_news *news = &event->msg->u.news;
  if (c->over || c->finished)
    return;
  council_notice_time(c);
  if (stream != c->line && !hear_former(c, stream, event->msg))
    return;
  if (!c->heard && c->waits)
    wait_for_chair(c, patience_once_heard_us(c));
  c->heard = 1;
  c->sign_us = event->now_us;
  if (event->msg->kind != HV_MSG_NEWS) {
    council_give_up_chair(c);
  } else if (news->what == HV_NEWS_ASK) {
    if (news->view < c->promised || news->view % c->round->n_members != c->chair)
      return;
    if (news->view == c->promised && !c->quiet)
      return;
    if (!council_may_be(c, news->view, council_place(c, c->chair) + 1)) { /* those after it could not follow */
      council_give_up_chair(c);
      return;
    }
    council_cancel_formers(c);
    wait_for_plan(c);
    if (news->view == c->promised) {
      council_send_report(c); /* it may have been lost with the line before */
      return;
    }
    council_say_here_to_all(c); /* who waits for it here is asked there */
    council_promise(c, news->view);
  } else if (news->what == HV_NEWS_PLAN) {
    hear_plan(c, news, event->payload);
  } else if (news->what == HV_NEWS_FINISHED && !c->done) {
    c->told_finished = 1; /* what is missing may come yet; if its owner fails it is asked for elsewhere */
    council_give_up_chair(c);
  } else if (news->what == HV_NEWS_FINISHED) {
    c->finished = 1;
    c->waits = 0;
    c->env->stream_end(c->env, stream);
    council_cancel_formers(c);
  } else if (news->what == HV_NEWS_OUT) {
    is_left_out(c);
  } else if (news->what == HV_NEWS_HERE) {
    hear_who_coordinates(c, news->members);
  }
}
