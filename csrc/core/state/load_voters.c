/* The announcers of a state, and their answers (contract in load_inner.h). */
#include "core/peers/contact.h"
#include "core/state/load_inner.h"

#include <string.h>

enum {
  SILENT_MS = 60000, /* so long that is remembered: as long as an announcement lives, or so */
  ANSWER_MS = 1000,  /* an announcer that has not answered by then has no vote in this look, if the others can decide */
  ADDRS_TRIED = 3,
  ASKED_MAX = 64,   /* of more voters so many are asked, by lot; the others count unasked */
  NETWORK_FIRST = 4 /* voters of one network that are asked before those of others */
};

static void voter_answered(hv_call *call, const hv_event *event);

/* Asks at the next of its addresses; 0: there is none left. */
static int voter_ask(load_voter *v) {
  hv_loader *l = v->loader;
  hv_addr addrs[ADDRS_TRIED];
  size_t n = hv_contact_unpack(hv_span_of(v->addrs, v->ballot.addrs.size), addrs, ADDRS_TRIED);
  hv_msg echo = {.kind = HV_MSG_ECHO};
  while (v->n_tried < n) {
    v->call = (hv_call){.done = voter_answered, .owner = v, .to = {v->ballot.signer, addrs[v->n_tried++]}, .timeout_ms = ANSWER_MS};
    if (l->env->call(l->env, &v->call, &echo) == HV_OK) {
      l->n_asked_voters++;
      return 1;
    }
  }
  return 0;
}

static int has_ended(hv_status status) {
  return status == HV_REFUSED || status == HV_DENIED;
}

int silence_is_known(const hv_loader *l, const hv_peer_id *id, const hv_hash *of) {
  uint64_t now = l->env->now_us(l->env);
  for (size_t i = 0; i < HV_LOADER_SILENT_MAX; i++) {
    const hv_loader_silent *s = &l->memory->silent[i];
    if (s->at_us && now - s->at_us < SILENT_MS * 1000ull && hv_peer_equal(&s->id, id) && memcmp(&s->digest, of, sizeof *of) == 0)
      return 1;
  }
  return 0;
}

void silence_remember(hv_loader *l, const hv_peer_id *id, const hv_hash *of) {
  hv_loader_memory *memory = l->memory;
  memory->silent[memory->n++ % HV_LOADER_SILENT_MAX] = (hv_loader_silent){*id, *of, l->env->now_us(l->env)};
}

static void voter_answered(hv_call *call, const hv_event *event) {
  load_voter *v = call->owner;
  hv_loader *l = v->loader;
  l->n_asked_voters--;
  int again = l->phase == LOAD_ASKING && event->status != HV_OK && event->status != HV_TIMEOUT && voter_ask(v);
  if (!again && v->state == VOTER_ASKED)
    v->state = event->status == HV_OK ? VOTER_THERE : has_ended(event->status) ? VOTER_GONE : VOTER_SILENT;
  if (event->status == HV_OK) {
    v->ballot.seen = 1;
    v->ballot.network = hv_contact_network(&v->call.to.addr);
  }
  if (v->state == VOTER_SILENT)
    silence_remember(l, &v->ballot.signer, &v->ballot.digest);
  if (l->phase == LOAD_ASKING && l->n_asked_voters == 0)
    l->on->asked_all(l);
  l->on->settle(l);
}

void voters_forget(hv_loader *l) {
  hv_mem_free(l->voters);
  l->voters = NULL;
  l->n_voters = 0;
}

void voters_cancel(hv_loader *l) {
  for (size_t i = 0; i < l->n_voters && l->n_asked_voters; i++)
    if (l->voters[i].call.done)
      l->env->call_cancel(l->env, &l->voters[i].call);
}

/* The network that it names: nothing is proved before it answers there. */
static uint64_t claimed_network(const load_voter *v) {
  hv_addr addr;
  return hv_contact_unpack(hv_span_of(v->addrs, v->ballot.addrs.size), &addr, 1) ? hv_contact_network(&addr) : 0;
}

hv_status voters_take(hv_loader *l, const hv_ballot *ballots, size_t n) {
  load_voter *voters = hv_mem_array(l->env->mem, n, sizeof *voters);
  if (!voters)
    return HV_NOMEM;
  for (size_t i = 0; i < n; i++) {
    load_voter *v = &voters[i];
    *v = (load_voter){.loader = l, .ballot = ballots[i], .state = VOTER_UNASKED};
    if (silence_is_known(l, &ballots[i].signer, &ballots[i].digest)) /* and it has announced nothing since */
      v->state = VOTER_SILENT;
    hv_contact_source source = l->config.source ? l->config.source(l->config.arg, &ballots[i].signer) : (hv_contact_source){0};
    v->ballot.addrs = hv_span_of(v->addrs, hv_contact_keep(ballots[i].addrs, source, v->addrs));
    v->claimed = claimed_network(v);
  }
  voters_forget(l);
  l->voters = voters;
  l->n_voters = n;
  return HV_OK;
}

static int known_ones(const hv_loader *l, const load_voter *v) {
  (void)l;
  return v->ballot.standing != HV_STANDING_STRANGER;
}

/* Those of a public network of which NETWORK_FIRST are asked already come last. */
static int spread_ones(const hv_loader *l, const load_voter *v) {
  size_t n = 0;
  for (size_t i = 0; v->claimed && i < l->n_voters; i++)
    n += l->voters[i].state == VOTER_ASKED && l->voters[i].claimed == v->claimed;
  return n < NETWORK_FIRST;
}

static int all_ones(const hv_loader *l, const load_voter *v) {
  (void)l, (void)v;
  return 1;
}

void voters_ask(hv_loader *l) {
  static int (*const turns[])(const hv_loader *, const load_voter *) = {known_ones, spread_ones, all_ones};
  uint32_t from = 0;
  l->phase = LOAD_ASKING;
  if (l->n_voters > ASKED_MAX)
    l->env->random(l->env, &from, sizeof from);
  for (size_t turn = 0; turn < sizeof turns / sizeof *turns; turn++)
    for (size_t k = 0; k < l->n_voters && l->n_asked_voters < ASKED_MAX; k++) {
      load_voter *v = &l->voters[(from + k) % l->n_voters];
      if (v->state == VOTER_UNASKED && turns[turn](l, v) && voter_ask(v))
        v->state = VOTER_ASKED;
    }
  if (l->n_asked_voters == 0)
    l->on->asked_all(l);
}

size_t voters_in(const hv_loader *l, int (*counts)(voter_state state), hv_standing least, hv_ballot *out) {
  size_t n = 0;
  for (size_t i = 0; i < l->n_voters; i++)
    if (l->voters[i].ballot.standing >= least && counts(l->voters[i].state))
      out[n++] = l->voters[i].ballot;
  return n;
}
