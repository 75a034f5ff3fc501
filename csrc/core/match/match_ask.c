#include "core/match/match_inner.h"

#include "core/peers/contact.h"

#include <stdio.h>
#include <string.h>

enum { SUMMONS_MAX = 64, UNMET_MS = 1000, SMALL = 32 };

/* ---- are you coming? ---- */

static hv_status summons_ask(hv_match *match, match_summons *s, hv_span epoch) {
  uint8_t mine[HV_CONTACT_ADDRS_MAX];
  hv_msg msg = {.kind = HV_MSG_SUMMON};
  msg.u.summon = (hv_msg_summon){.key = match_key(match),
                                 .epoch = epoch,
                                 .addrs = hv_span_of(mine, hv_roster_me(&match->roster, mine)),
                                 .at = match->roster.place,
                                 .seeks = (uint8_t)match_is_stuck(match),
                                 .comes = match->return_place};
  s->asked_us = match->env->now_us(match->env);
  return match->env->call(match->env, &s->call, &msg);
}

static void summoned(hv_call *call, const hv_event *event) {
  match_summons *s = call->owner;
  hv_match *match = s->match;
  if (match && event->status == HV_TIMEOUT && !s->again++ && summons_ask(match, s, hv_span_of(NULL, 0)) == HV_OK)
    return;
  *s->link = s->next;
  if (s->next)
    s->next->link = s->link;
  if (match && s->first)
    match->settled |= --match->unanswered == 0;
  int answered = event->status == HV_OK && event->msg->kind == HV_MSG_SUMMONED;
  int known = answered && event->msg->u.summoned.state != HV_SUMMONED_STRANGER;
  if (match && known) {
    hv_roster_answered(&match->roster, &call->to.id, hv_span_of(s->addrs, s->addrs_size));
    if (event->msg->u.summoned.state == HV_SUMMONED_HAD)
      hv_roster_had(&match->roster, &call->to.id, event->msg->u.summoned.at);
    else
      hv_roster_set_place(&match->roster, &call->to.id, event->msg->u.summoned.at,
                          event->msg->u.summoned.state == HV_SUMMONED_SEEKS);
    hv_roster_set_return(&match->roster, &call->to.id, event->msg->u.summoned.comes);
  } else if (match && event->status != HV_CANCELLED &&
             !(answered && hv_roster_called_since(&match->roster, &call->to.id, s->asked_us)))
    (answered ? hv_roster_refused : hv_roster_failed)(&match->roster, &call->to.id);
  hv_mem_free(s);
}

/* A peer that this node has never met may be dead while its record lives: that is found out soon. */
static uint32_t patience_ms(const hv_match *match, const hv_peer_id *id) {
  uint32_t usual = match->config.request_ms ? match->config.request_ms : MATCH_ANSWER_MS;
  const hv_roster_entry *entry = hv_roster_find((hv_roster *)&match->roster, id);
  return !entry || entry->met || usual < UNMET_MS ? usual : UNMET_MS;
}

static match_summons *summon(hv_match *match, hv_span epoch, const hv_target *to, hv_span addrs) {
  match_summons *s = hv_mem_zalloc(match->env->mem, sizeof *s);
  if (!s)
    return NULL;
  *s =
      (match_summons){.match = match, .call = {.done = summoned, .owner = s, .to = *to, .timeout_ms = patience_ms(match, &to->id)}};
  s->addrs_size = (uint8_t)(addrs.size <= sizeof s->addrs ? addrs.size : 0);
  if (s->addrs_size)
    memcpy(s->addrs, addrs.data, s->addrs_size);
  if (summons_ask(match, s, epoch) != HV_OK) {
    hv_mem_free(s);
    return NULL;
  }
  s->next = match->registry->summons;
  s->link = &match->registry->summons;
  if (s->next)
    s->next->link = &s->next;
  match->registry->summons = s;
  return s;
}

/* One that counts, and can be dialled, is asked; else NULL. */
static match_summons *ask_entry(hv_match *match, const hv_roster_entry *entry, hv_span epoch) {
  hv_span addrs = hv_span_of(entry->addrs, entry->addrs_size);
  hv_target target;
  if (!addrs.size || !hv_roster_counts(&match->roster, entry) ||
      hv_roster_target(&match->roster, &entry->id, addrs, 0, &target) != HV_OK)
    return NULL;
  return summon(match, epoch, &target, addrs);
}

void match_ask_missing(match_gathering *gathering) {
  hv_match *match = gathering->match;
  hv_roster *roster = &match->roster;
  hv_span epoch = hv_span_of(gathering->epoch, gathering->epoch_size);
  size_t asked = 0;
  for (size_t i = 0; i < roster->n && asked < SUMMONS_MAX; i++) {
    const hv_roster_entry *entry = &roster->entries[i];
    int here = 0;
    for (const match_joiner *j = gathering->joiners; j && !here; j = j->next)
      here = hv_peer_equal(&j->id, &entry->id);
    if (!here && (!gathering->place || entry->place <= gathering->place))
      asked += NULL != ask_entry(match, entry, epoch);
  }
}

void match_ask_laggards(hv_match *match) {
  hv_roster *roster = &match->roster;
  size_t told = 0;
  for (size_t i = 0; i < roster->n && told < SUMMONS_MAX; i++) {
    const hv_roster_entry *entry = &roster->entries[i];
    if (entry->is_seeking && entry->place && entry->place < roster->place)
      told += NULL != ask_entry(match, entry, hv_span_of(NULL, 0));
  }
}

static int is_summoned(const hv_match *match, const hv_peer_id *id) {
  const match_summons *s = match->registry->summons;
  while (s && !(s->match == match && hv_peer_equal(&s->call.to.id, id)))
    s = s->next;
  return s != NULL;
}

void match_ask_back(hv_match *match, const hv_peer_id *id) {
  const hv_roster_entry *entry = hv_roster_find(&match->roster, id);
  hv_target target;
  if (!entry || entry->retry_us <= match->env->now_us(match->env) || is_summoned(match, id) ||
      hv_roster_target(&match->roster, id, hv_span_of(entry->addrs, entry->addrs_size), 0, &target) != HV_OK)
    return;
  summon(match, hv_span_of(NULL, 0), &target, hv_span_of(entry->addrs, entry->addrs_size));
}

void match_ask_unmet(hv_match *match) {
  const hv_roster *roster = &match->roster;
  for (size_t i = 0; roster->n <= SMALL && !match->config.apart && i < roster->n; i++)
    if (!roster->entries[i].met && !is_summoned(match, &roster->entries[i].id))
      ask_entry(match, &roster->entries[i], hv_span_of(NULL, 0));
}

void match_ask_company(hv_match *match) {
  const hv_roster *roster = &match->roster;
  size_t asked = 0;
  for (size_t i = 0; i < roster->n && asked < SUMMONS_MAX; i++)
    if (!hv_peer_equal(&roster->entries[i].id, &match->seek.host))
      asked += NULL != ask_entry(match, &roster->entries[i], hv_span_of(NULL, 0));
}

/* One whom this node knows otherwise, and who is not in the roster. */
static match_summons *ask_acquaintance(hv_match *match, const hv_peers_entry *entry) {
  uint8_t packed[HV_CONTACT_ADDRS_MAX];
  hv_target target;
  if (entry->state != HV_PEERS_ALIVE || hv_roster_find(&match->roster, &entry->card.id) ||
      hv_peers_target(match->registry->peers, &entry->card.id, &target) != HV_OK)
    return NULL;
  return summon(match, hv_span_of(NULL, 0), &target,
                hv_span_of(packed, hv_contact_pack(entry->card.addrs, entry->card.n_addrs, packed)));
}

void match_ask_acquaintances(hv_match *match) {
  const hv_peers *peers = match->registry->peers;
  for (size_t i = 0; i < peers->n_entries && i < SUMMONS_MAX; i++)
    ask_acquaintance(match, peers->entries[i]);
}

static void note_first(hv_match *match, match_summons *s) {
  if (!s)
    return;
  s->first = 1;
  match->unanswered++;
}

void match_ask_all(hv_match *match) {
  const hv_peers *peers = match->registry->peers;
  match->unanswered = 0;
  for (match_summons *s = match->registry->summons; s; s = s->next)
    s->first &= s->match != match;
  for (size_t i = 0; i < match->roster.n && i < SUMMONS_MAX; i++)
    note_first(match, ask_entry(match, &match->roster.entries[i], hv_span_of(NULL, 0)));
  for (size_t i = 0; i < peers->n_entries && i < SUMMONS_MAX; i++)
    note_first(match, ask_acquaintance(match, peers->entries[i]));
  match->settled = match->roster.looked_us && match->unanswered == 0;
}

/* ---- how do your setup and tensors differ? ---- */

void match_ask_learned(hv_match *match, const hv_peer_id *who, hv_span schema_text) {
  hv_roster_entry *entry = hv_roster_find(&match->roster, who);
  char name[HV_PEER_SHORT_MAX], difference[200];
  if (!entry || entry->asked == 2)
    return;
  entry->asked = 2;
  hv_group_difference(match->config.schema_text, schema_text, difference, sizeof difference);
  snprintf(match->difference, sizeof match->difference, "peer %s: %s", hv_peer_short(who, name), difference);
  if (match->n_told++ < MATCH_STRANGERS_TOLD)
    hv_env_log(
        match->env, HV_LOG_WARN, "match", "other_setup",
        "not averaging with peer %s, whose setup or tensors differ (set both up alike, or give each model its own prefix): %s",
        name, difference);
}

static void stranger_answered(hv_stream *stream, const hv_event *event) {
  hv_match *match = stream->owner;
  hv_peer_id who = stream->peer;
  match->asking = NULL;
  hv_parting_cut(&match->registry->parting, stream);
  if (event->msg->kind == HV_MSG_DISBAND && event->msg->u.disband.status == HV_INVALID)
    match_ask_learned(match, &who, event->msg->u.disband.schema_text);
  match_ask_strangers(match);
}

static void stranger_ready(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void stranger_closed(hv_stream *stream, const hv_event *event) {
  hv_match *match = stream->owner;
  (void)event;
  match->asking = NULL;
  match_ask_strangers(match);
}

void match_ask_strangers(hv_match *match) {
  static const hv_stream_events on = {stranger_answered, stranger_ready, stranger_closed, .heavy = 0};
  hv_roster *roster = &match->roster;
  if (match->config.apart) /* its setup may still come, and nobody is to wait for it */
    return;
  for (size_t i = 0; i < roster->n && !match->asking && match->n_asked < MATCH_STRANGERS_ASKED; i++) {
    hv_roster_entry *entry = &roster->entries[i];
    hv_target target;
    if (!entry->stranger || entry->asked ||
        hv_roster_target(roster, &entry->id, hv_span_of(entry->addrs, entry->addrs_size), 0, &target) != HV_OK)
      continue;
    hv_msg msg = {.kind = HV_MSG_JOIN,
                  .u.join = {.key = match_key(match), .schema = match->config.schema, .n_chunks = match->config.n_chunks}};
    msg.u.join.gather_size = 1; /* which never comes: if it has our tensors after all, we are not in its way */
    entry->asked = 1;
    match->n_asked++;
    if (match->env->stream_open(match->env, &target, &msg, &on, match, &match->asking) != HV_OK)
      match->asking = NULL;
  }
}

void match_ask_fini(hv_match *match) {
  if (match->asking)
    hv_parting_cut(&match->registry->parting, match->asking);
  match->asking = NULL;
  for (match_summons *s = match->registry->summons; s; s = s->next)
    if (s->match == match)
      s->match = NULL;
}
