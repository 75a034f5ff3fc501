#include "core/match/match_inner.h"

#include <stdio.h>
#include <string.h>

enum { REDIRECTS_MAX = 3 };

static const uint8_t may_become[SEEK_STATES][SEEK_STATES] = {
    [SEEK_IDLE] = {[SEEK_CHOOSING] = 1},
    [SEEK_CHOOSING] = {[SEEK_JOINING] = 1, [SEEK_HOSTING] = 1, [SEEK_OVER] = 1},
    [SEEK_JOINING] = {[SEEK_WAITING] = 1, [SEEK_CHOOSING] = 1, [SEEK_OVER] = 1},
    [SEEK_WAITING] = {[SEEK_LEAVING] = 1, [SEEK_CHOOSING] = 1, [SEEK_OVER] = 1},
    [SEEK_LEAVING] = {[SEEK_CHOOSING] = 1, [SEEK_OVER] = 1},
    [SEEK_HOSTING] = {[SEEK_CHOOSING] = 1, [SEEK_OVER] = 1},
    [SEEK_OVER] = {[SEEK_IDLE] = 1},
};

static int seek_move(hv_match *match, seek_state next) {
  if (!may_become[match->seek.state][next])
    return 0;
  match->seek.state = next;
  return 1;
}

static uint64_t seek_now(const hv_match *match) {
  return match->env->now_us(match->env);
}

/* Sets the timer for the end of patience, or of the seek. */
static void seek_arm(hv_match *match, uint64_t patience_ms) {
  match_seek *s = &match->seek;
  uint64_t now = seek_now(match), late = now + patience_ms * 1000, bound = s->ends_us + HV_MATCH_GRACE_MS * 1000ull;
  uint64_t next = late < bound ? late : bound;
  s->due_us = next > now ? next : now;
  match->env->timer_set(match->env, &s->timer, s->due_us - now);
}

/* One silent host is not to use up the whole time. */
static uint64_t answer_ms(const hv_match *match) {
  uint64_t ms = match->config.request_ms ? match->config.request_ms : MATCH_ANSWER_MS, half = match->seek.request->wait_ms / 2;
  if (half < MATCH_ANSWER_LEAST_MS)
    half = MATCH_ANSWER_LEAST_MS;
  return ms < half ? ms : half;
}

/* ---- the end ---- */

/* Lets go of the host, whatever it is. */
static void seek_let_go(hv_match *match) {
  match_seek *s = &match->seek;
  if (s->stream)
    hv_parting_cut(&match->registry->parting, s->stream);
  s->stream = NULL;
  if (s->state == SEEK_HOSTING)
    match_host_leave(match);
}

/* done comes in a step of its own. */
static void is_over(hv_match *match, hv_status status, hv_match_group *group) {
  match_seek *s = &match->seek;
  seek_let_go(match);
  if (!seek_move(match, SEEK_OVER)) {
    hv_mem_free(group);
    return;
  }
  s->status = status;
  s->group = group;
  match->env->timer_set(match->env, &s->timer, 0);
}

static void seek_report(hv_match *match) {
  match_seek over = match->seek;
  match->seek = (match_seek){.timer = over.timer};
  match->stuck_us = over.status == HV_OK ? 0 : seek_now(match) | 1;
  over.request->match = NULL;
  over.request->further = over.further;
  over.request->done(over.request, over.status, over.group, over.text); /* match may be gone now */
}

void match_seek_begun(hv_match *match, hv_match_group *group) {
  match_seek *s = &match->seek;
  hv_env_log(match->env, HV_LOG_DEBUG, "match", "group_found", "a group of %zu in %.3f s", group->n_members,
             (double)(seek_now(match) - s->started_us) * 1e-6);
  size_t contribute = 0;
  for (size_t i = 0; i < group->n_members; i++)
    contribute += !group->members[i].auxiliary;
  if (match_is_of_epoch(match, contribute))
    match_note_begun(match, s->request->epoch);
  for (size_t i = 0; i < s->n_doubted; i++) /* it was not over */
    hv_roster_add_fault(&match->roster, &s->doubted[i].host);
  s->text[0] = 0;
  is_over(match, HV_OK, group);
  match->env->timer_set(match->env, &match->news_timer, 0); /* others may wait here for the same epoch */
}

void match_seek_end(hv_match *match, hv_status status, const char *text) {
  match_seek *s = &match->seek;
  if (s->state == SEEK_IDLE)
    return;
  seek_let_go(match);
  match->env->timer_clear(match->env, &s->timer);
  hv_mem_free(s->group);
  s->group = NULL;
  s->state = SEEK_OVER; /* from anywhere: the program said so */
  s->status = status;
  snprintf(s->text, sizeof s->text, "%s", text);
  seek_report(match);
}

static void has_begun_without(hv_match *match) {
  snprintf(match->seek.text, sizeof match->seek.text, "the others started without this peer; they expect it in the next round");
  is_over(match, HV_EXISTS, NULL);
}

static int is_doubted(const match_seek *s, const hv_peer_id *id) {
  for (size_t i = 0; i < s->n_doubted; i++)
    if (hv_peer_equal(&s->doubted[i].host, id))
      return 1;
  return 0;
}

/* 1: a host said that the others have begun, and somebody else says that it has had its group of that epoch. */
static int is_confirmed(const hv_match *match) {
  const match_seek *s = &match->seek;
  hv_span epoch = s->request->epoch;
  uint64_t at = match_place_of(epoch);
  int said = 0, had = 0;
  for (size_t i = 0; i < s->n_doubted; i++)
    said |= s->doubted[i].verdict == MATCH_HAS_BEGUN;
  if (!said || !at || memchr(epoch.data, '/', epoch.size)) /* of a second attempt that says nothing */
    return 0;
  for (size_t i = 0; i < match->roster.n && !had; i++) {
    const hv_roster_entry *entry = &match->roster.entries[i];
    had = entry->had_group && entry->place == at && !entry->unsure && hv_roster_counts(&match->roster, entry) &&
          !is_doubted(s, &entry->id);
  }
  return had;
}

void match_seek_hopeless(hv_match *match, uint64_t at) {
  match_seek *s = &match->seek;
  if (at && is_confirmed(match)) {
    has_begun_without(match);
    return;
  }
  if (at)
    snprintf(
        s->text, sizeof s->text,
        "the others are in swarm epoch %llu already, or about to enter it, and no peer joins this one any more: load their state",
        (unsigned long long)(at - 1));
  else if (hv_match_others(match))
    snprintf(s->text, sizeof s->text,
             "no other peer is in this epoch: the %zu known peers are behind and are not about to reach it",
             hv_match_others(match));
  else
    snprintf(s->text, sizeof s->text, "no other peer is left: all known peers have left or do not answer");
  s->further = at != 0;
  if (at && !match->behind_us)
    match->behind_us = seek_now(match);
  is_over(match, at ? HV_EXISTS : HV_TIMEOUT, NULL);
}

static void believe(hv_match *match, match_verdict said, uint64_t at) {
  if (said == MATCH_HAS_BEGUN)
    has_begun_without(match);
  else
    match_seek_hopeless(match, said == MATCH_IS_FURTHER ? at : 0);
}

static void nobody_came(hv_match *match) {
  match_seek *s = &match->seek;
  double seconds = (double)(seek_now(match) - s->started_us) * 1e-6;
  size_t strangers = hv_match_strangers(match), others = hv_match_others(match);
  if (strangers && others == 0)
    snprintf(s->text, sizeof s->text,
             "all %zu other peers under this prefix differ in setup or tensors (%.250s): set all up alike, or give each model its "
             "own prefix",
             strangers, match->difference[0] ? match->difference : "the difference is not known yet");
  else
    snprintf(s->text, sizeof s->text,
             "no group of %zu formed within %.1f s (%zu other peers are known): wait longer, or check that they are reachable",
             match_least(match), seconds, others);
  if (match_place_of(s->request->epoch)) /* the next epoch does not wait for them again */
    hv_roster_missed(&match->roster, match_place_of(s->request->epoch), s->started_us);
  is_over(match, HV_TIMEOUT, NULL); /* nothing shows which tensors are right, and a peer with this one's may still come */
}

/* ---- asking a host ---- */

static void choose(hv_match *match);

static void host_failed(hv_match *match) {
  match_seek *s = &match->seek;
  seek_let_go(match);
  hv_roster_host_failed(&match->roster, &s->host, s->started_us);
  choose(match);
}

/* The host sent something that no honest host sends. */
static void host_lied(hv_match *match) {
  seek_let_go(match);
  hv_roster_add_fault(&match->roster, &match->seek.host);
  choose(match);
}

/* Those whose word was not enough, as a list of whom not to ask. */
static hv_span doubted(const match_seek *s, hv_peer_id out[MATCH_DOUBTED_MAX]) {
  for (size_t i = 0; i < s->n_doubted; i++)
    out[i] = s->doubted[i].host;
  return hv_span_of(out, s->n_doubted * sizeof *out);
}

/* The first in order that can be asked now, before that one (NULL: anywhere). */
static hv_roster_entry *first_host(hv_match *match, const hv_peer_id *before) {
  hv_peer_id out[MATCH_DOUBTED_MAX];
  return hv_roster_first(&match->roster, &match->seek.rank, before, doubted(&match->seek, out));
}

/* 1: too few would be left who may come, as far as this node knows, if its host and those doubted do not. */
static int is_left_alone(const hv_match *match) {
  const match_seek *s = &match->seek;
  size_t n = 0;
  for (size_t i = 0; i < match->roster.n; i++) {
    const hv_roster_entry *entry = &match->roster.entries[i];
    n += !hv_peer_equal(&entry->id, &s->host) && !is_doubted(s, &entry->id) &&
         hv_roster_may_come(&match->roster, entry, match_place_of(s->request->epoch));
  }
  return n == 0 || n + 1 < match_least(match);
}

/* The host says that it is over. No host is believed alone, unless nobody else is known who may come: the next is asked, and who is
 * the next itself asks all the others. */
static void hear_verdict(hv_match *match, match_verdict said, uint64_t at) {
  match_seek *s = &match->seek;
  int sure = s->n_doubted == MATCH_DOUBTED_MAX || is_left_alone(match);
  for (size_t i = 0; i < s->n_doubted; i++)
    if (s->doubted[i].verdict == said) {
      at = s->doubted[i].place < at ? s->doubted[i].place : at;
      sure = 1;
    }
  if (sure) {
    believe(match, said, at);
    return;
  }
  seek_let_go(match);
  s->doubted[s->n_doubted].host = s->host;
  s->doubted[s->n_doubted].verdict = said;
  s->doubted[s->n_doubted++].place = at;
  choose(match);
}

/* ---- a host that says that nobody else is there ---- */

/* How long it is believed. */
static uint64_t alone_ms(const hv_match *match) {
  uint64_t quarter = match->seek.request->wait_ms / 4;
  return quarter < MATCH_SILENCE_MS ? quarter : MATCH_SILENCE_MS;
}

/* 1: others (more than one, or all there are) have said that they seek this very epoch, and so long ago that they must be here. */
static int is_deceived(const hv_match *match) {
  const match_seek *s = &match->seek;
  uint64_t long_ago_us = seek_now(match) - answer_ms(match) * 1000, at = match_place_of(s->request->epoch);
  size_t others = 0, seek = 0;
  for (size_t i = 0; i < match->roster.n; i++) {
    const hv_roster_entry *entry = &match->roster.entries[i];
    if (hv_peer_equal(&entry->id, &s->host) || !hv_roster_counts(&match->roster, entry))
      continue;
    others++;
    seek += at && entry->place == at && entry->is_seeking && entry->place_us >= s->asked_us && entry->place_us < long_ago_us;
  }
  return seek > 1 || (seek && seek == others);
}

/* Checks whether the host holds this peer back. The others' answers arrive by its next sign of life. True: that host is given up.
 */
static int suspects(hv_match *match) {
  match_seek *s = &match->seek;
  uint64_t now = seek_now(match);
  if (s->present > 1 || !s->alone_us)
    s->alone_us = now, s->asked_us = 0;
  if (now - s->alone_us < alone_ms(match) * 1000)
    return 0;
  if (s->asked_us && is_deceived(match)) {
    host_lied(match);
    return 1;
  }
  if (!s->asked_us || now - s->asked_us >= 2 * MATCH_SILENCE_MS * 1000ull) {
    s->asked_us = now;
    match_ask_company(match);
  }
  return 0;
}

/* ---- what a host says ---- */

static void seek_accepted(hv_match *match, uint32_t present) {
  match->seek.present = present;
  hv_msg here = {.kind = HV_MSG_ACCEPTED};
  match->env->stream_send(match->env, match->seek.stream, &here, NULL); /* a sign of life, too: for want of it a host lets go */
  if (match->seek.state == SEEK_JOINING) {
    hv_roster_schema(&match->roster, &match->seek.host, &match->config.schema);
    seek_move(match, SEEK_WAITING);
  }
  if (match->seek.state != SEEK_WAITING || suspects(match))
    return;
  seek_arm(match, MATCH_SILENCE_MS);
  match_seek_news(match); /* a peer that failed some time ago may be asked again */
}

static void redirected(hv_match *match, const hv_contact *to) {
  match_seek *s = &match->seek;
  int knows_better = s->stay; /* it was told where this node cannot go */
  for (size_t i = 0; i < s->n_avoid; i++)
    knows_better |= hv_peer_equal(&s->avoid[i], &to->id);
  if (knows_better || hv_rank_compare(&s->rank, &to->id, &s->host) >= 0) { /* only ever to somebody who comes sooner: it ends */
    host_lied(match);
    return;
  }
  seek_let_go(match);
  s->redirects++;
  hv_roster_redirected(&match->roster, &to->id, to->addrs);
  choose(match);
}

/* A peer that is aside hosts nobody, and may be back by the next search. */
static void host_refused(hv_match *match) {
  seek_let_go(match);
  hv_roster_refused(&match->roster, &match->seek.host);
  choose(match);
}

static void sent_away(hv_match *match, const hv_msg_disband *why) {
  match_seek *s = &match->seek;
  if (why->status == HV_CLOSED) {
    host_refused(match);
  } else if (why->status == HV_EXISTS && s->request->epoch.size && why->at > match_place_of(s->request->epoch)) {
    hear_verdict(match, MATCH_IS_FURTHER, why->at);
  } else if (why->status == HV_NOT_FOUND && s->request->epoch.size) {
    hear_verdict(match, MATCH_IS_BEHIND, 0);
  } else if (why->status == HV_EXISTS && s->request->epoch.size) {
    hear_verdict(match, MATCH_HAS_BEGUN, 0);
  } else if (why->status == HV_INVALID) {
    hv_peer_id host = s->host;
    seek_let_go(match);
    hv_roster_stranger(&match->roster, &host);
    match_ask_learned(match, &host, why->schema_text);
    choose(match);
  } else if ((why->status == HV_CANCELLED && s->state == SEEK_LEAVING) ||
             (why->status == HV_TIMEOUT && s->redirects++ < REDIRECTS_MAX)) {
    seek_let_go(match);
    choose(match);
  } else {
    host_failed(match);
  }
}

static void begins(hv_match *match, const hv_event *event) {
  hv_group_facts facts = match_facts(match, match->seek.request->epoch);
  hv_match_group *group;
  hv_error err = {0};
  char who[HV_PEER_SHORT_MAX];
  if (hv_group_read(match->env, &facts, &event->msg->u.begin, event->payload, &group, &err) == HV_OK) {
    match_note_members(match, match->seek.request->epoch, event->msg->u.begin.members, group->n_members);
    hv_roster_host_served(&match->roster, &match->seek.host);
    match_seek_begun(match, group);
    return;
  }
  hv_env_log(match->env, HV_LOG_WARN, "match", "group_refused", "refused the group of peer %s, looking for another: %s",
             hv_peer_short(&match->seek.host, who), err.text);
  host_lied(match);
}

static void seek_heard(hv_stream *stream, const hv_event *event) {
  hv_match *match = stream->owner;
  const hv_msg *msg = event->msg;
  if (msg->kind == HV_MSG_ACCEPTED)
    seek_accepted(match, msg->u.accepted.present);
  else if (msg->kind == HV_MSG_REDIRECT)
    redirected(match, &msg->u.redirect.to);
  else if (msg->kind == HV_MSG_DISBAND)
    sent_away(match, &msg->u.disband);
  else if (msg->kind == HV_MSG_BEGIN)
    begins(match, event);
  else
    host_lied(match);
}

static void seek_ready(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void seek_host_closed(hv_stream *stream, const hv_event *event) {
  hv_match *match = stream->owner;
  match->seek.stream = NULL;
  if (event->status == HV_REFUSED && match->seek.state == SEEK_JOINING)
    host_refused(match);
  else
    host_failed(match);
}

/* Describes this node's seek to a host. `addrs` has room for HV_CONTACT_ADDRS_MAX. */
static void describe(hv_match *match, const hv_peer_id *host, uint8_t *addrs, hv_msg_join *out) {
  match_seek *s = &match->seek;
  const hv_match_seek *wish = s->request;
  uint64_t now = seek_now(match), left_us = s->ends_us > now ? s->ends_us - now : 0;
  size_t doubts = doubted(s, s->avoid).size / sizeof *s->avoid, room = HV_MATCH_AVOID_MAX - doubts,
         failing = hv_roster_failing(&match->roster, &s->rank, host, s->avoid + doubts, room);
  s->n_avoid = doubts + (failing < room ? failing : room);
  s->stay = failing > room || s->redirects > REDIRECTS_MAX;
  size_t addrs_size = s->client ? 0 : hv_roster_me(&match->roster, addrs);
  s->client = addrs_size == 0; /* its last port may have been closed meanwhile */
  *out = (hv_msg_join){.key = match_key(match),
                       .epoch = wish->epoch,
                       .schema = match->config.schema,
                       .n_chunks = match->config.n_chunks,
                       .addrs = hv_span_of(addrs, addrs_size),
                       .auxiliary = match->config.auxiliary,
                       .bandwidth = match->config.bandwidth,
                       .expected = wish->expected,
                       .wait_ms = (uint32_t)(left_us / 1000),
                       .gather_size = (uint32_t)wish->gather.size,
                       .avoid = hv_span_of(s->avoid, s->n_avoid * sizeof *s->avoid),
                       .stay = (uint8_t)s->stay,
                       .known = (uint32_t)match_knows_of(match, match_place_of(wish->epoch), host)};
}

/* Sends the gather data right after JOIN. */
static hv_status send_gather(hv_match *match, hv_stream *stream) {
  hv_span gather = match->seek.request->gather;
  hv_msg msg = {.kind = HV_MSG_GATHER};
  if (gather.size == 0)
    return HV_OK;
  hv_payload *payload = hv_payload_copy(match->env->mem, gather.data, gather.size);
  if (!payload)
    return HV_NOMEM;
  hv_status status = match->env->stream_send(match->env, stream, &msg, payload);
  hv_payload_release(payload);
  return status;
}

/* 0: it cannot even be asked. */
static int join(hv_match *match, const hv_roster_entry *entry) {
  static const hv_stream_events on = {seek_heard, seek_ready, seek_host_closed, .heavy = 0};
  match_seek *s = &match->seek;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  hv_target target;
  hv_stream *stream;
  hv_msg msg = {.kind = HV_MSG_JOIN};
  s->host = entry->id;
  s->alone_us = s->asked_us = 0;
  describe(match, &s->host, addrs, &msg.u.join);
  if (hv_roster_target(&match->roster, &entry->id, hv_span_of(entry->addrs, entry->addrs_size), entry->failures, &target) !=
          HV_OK ||
      match->env->stream_open(match->env, &target, &msg, &on, match, &stream) != HV_OK)
    return 0;
  s->stream = stream;
  seek_move(match, SEEK_JOINING);
  if (send_gather(match, stream) != HV_OK) {
    seek_let_go(match);
    seek_move(match, SEEK_CHOOSING);
    return 0;
  }
  seek_arm(match, answer_ms(match));
  return 1;
}

/* This node is the host. 0: there is no room for one more. */
static int host(hv_match *match) {
  match_seek *s = &match->seek;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  hv_msg_join mine;
  s->host = match->roster.config.me;
  seek_move(match, SEEK_HOSTING);
  seek_arm(match, MATCH_PULSE_MS);
  describe(match, &s->host, addrs, &mine);
  if (match_host_join(match, &mine) == HV_OK)
    return 1; /* it may be over already */
  seek_move(match, SEEK_CHOOSING);
  return 0;
}

/* The first in order that can be asked; if that is this node itself, it hosts. */
static void choose(hv_match *match) {
  match_seek *s = &match->seek;
  if (s->state != SEEK_CHOOSING && !seek_move(match, SEEK_CHOOSING))
    return;
  const hv_peer_id *me = s->client ? NULL : &match->roster.config.me;
  hv_roster_entry *entry;
  if (match_has_begun(match, s->request->epoch) && !match_host_is_open(match, s->request->epoch)) { /* under these very eyes */
    has_begun_without(match);
    return;
  }
  while ((entry = first_host(match, me))) {
    if (join(match, entry))
      return;
    hv_roster_failed(&match->roster, &s->host);
  }
  if (s->client && s->n_doubted) /* nobody else can be asked */
    believe(match, s->doubted[s->n_doubted - 1].verdict, s->doubted[s->n_doubted - 1].place);
  else if (s->client || !host(match))
    seek_arm(match, MATCH_RETRY_MS);
}

/* ---- news, and the end of patience ---- */

void match_seek_news(hv_match *match) {
  match_seek *s = &match->seek;
  if (s->state == SEEK_CHOOSING) {
    choose(match);
    return;
  }
  if (s->state != SEEK_WAITING && s->state != SEEK_HOSTING)
    return;
  if (is_confirmed(match)) {
    has_begun_without(match);
    return;
  }
  if (!first_host(match, &s->host))
    return;
  if (s->state == SEEK_HOSTING) {
    seek_let_go(match);
    choose(match);
    return;
  }
  hv_msg msg = {.kind = HV_MSG_DISBAND, .u.disband.status = HV_CANCELLED};
  if (match->env->stream_send(match->env, s->stream, &msg, NULL) != HV_OK) {
    host_failed(match);
    return;
  }
  seek_move(match, SEEK_LEAVING); /* BEGIN may be on its way: it holds then */
  seek_arm(match, answer_ms(match));
}

/* It waited in vain; with a least group of one it is a group by itself. */
static void time_is_over(hv_match *match) {
  match_seek *s = &match->seek;
  int held = s->state == SEEK_WAITING || s->state == SEEK_LEAVING;
  if (held && (s->present >= match_least(match) || s->present == 0))
    hv_roster_add_fault(&match->roster, &s->host); /* it could have begun; or it does not even count this node */
  seek_let_go(match);
  if (s->state != SEEK_CHOOSING)
    seek_move(match, SEEK_CHOOSING);
  if (match_least(match) == 1 && !s->client)
    host(match);
  if (s->state != SEEK_OVER)
    nobody_came(match);
}

static void seek_tick(hv_timer *timer, const hv_event *event) {
  hv_match *match = timer->owner;
  match_seek *s = &match->seek;
  if (s->state == SEEK_OVER) {
    seek_report(match);
  } else if (event->now_us > s->due_us + MATCH_STALLED_MS * 1000ull) {
    s->due_us = event->now_us + MATCH_HEAR_MS * 1000ull; /* a BEGIN may have arrived meanwhile */
    match->env->timer_set(match->env, &s->timer, MATCH_HEAR_MS * 1000ull);
  } else if (event->now_us >= s->ends_us + HV_MATCH_GRACE_MS * 1000ull)
    time_is_over(match);
  else if (s->state == SEEK_CHOOSING)
    choose(match);
  else if (s->state != SEEK_HOSTING)
    host_failed(match);
  else {
    seek_arm(match, MATCH_PULSE_MS);
    match_seek_news(match);
  }
}

/* ---- the program's side ---- */

hv_status hv_match_seek_start(hv_match *match, hv_match_seek *seek, hv_error *err) {
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  if (match->registry->stopped || match->closing)
    return hv_fail(err, HV_STATE, "cannot look for a group: this node or its averager is shutting down");
  if (match->seek.state != SEEK_IDLE)
    return hv_fail(err, HV_STATE, "cannot look for a group: this peer is already looking for one; cancel that step first");
  if (seek->epoch.size > HV_MATCH_EPOCH_MAX)
    return hv_fail(err, HV_INVALID, "the epoch's name has %zu bytes, and the limit is %d", seek->epoch.size, HV_MATCH_EPOCH_MAX);
  if (seek->gather.size > HV_MATCH_GATHER_MAX)
    return hv_fail(err, HV_INVALID, "the data to gather has %zu bytes, and the limit is %u: gather less", seek->gather.size,
                   HV_MATCH_GATHER_MAX);
  if (seek->wait_ms == 0 || seek->wait_ms > HV_MATCH_WAIT_MAX_MS)
    return hv_fail(err, HV_INVALID, "the time to wait for a group must be from 1 ms to one day, not %u ms", seek->wait_ms);
  match_seek *s = &match->seek;
  uint64_t now = seek_now(match);
  *s = (match_seek){.request = seek, .started_us = now, .ends_us = now + seek->wait_ms * 1000ull};
  s->timer = (hv_timer){.fire = seek_tick, .owner = match};
  s->rank = hv_rank_for(match->env, match_key(match), seek->epoch);
  s->client = hv_roster_me(&match->roster, addrs) == 0;
  match_moves_to(match, match_place_of(seek->epoch));
  seek->match = match;
  hv_roster_look_soon(&match->roster);
  hv_roster_searches(&match->roster);
  if (hv_match_others(match) == 0)
    match_ask_acquaintances(match);
  seek_move(match, SEEK_CHOOSING);
  s->due_us = now;
  match->env->timer_set(match->env, &s->timer, 0);
  return HV_OK;
}

void hv_match_seek_cancel(hv_match_seek *seek) {
  if (seek->match && seek->match->seek.request == seek)
    match_seek_end(seek->match, HV_CANCELLED, "cancelled");
}
