#include "core/peers/reach.h"

#include "core/versions.h"

#include <string.h>

enum {
  LOOK_US = 1000000,   /* until a peer that can call back is looked for again */
  ANSWER_MS = 8000,    /* a peer's time to call back and answer */
  CONNECT_MS = 5000,   /* its time to call back */
  ENOUGH = 3,          /* peers that cannot dial an address, and then it counts as closed */
  AGAIN_US = 60000000, /* after that */
  CHECK_US = 600000000 /* an address that was dialled is dialled again */
};

static int in_use(const hv_reach_candidate *c) {
  return c->origin != HV_REACH_NONE && !c->dropped;
}

static hv_reach_candidate *find(hv_reach *reach, const hv_addr *addr) {
  for (size_t i = 0; i < HV_REACH_MAX; i++)
    if (in_use(&reach->candidates[i]) && hv_addr_equal(&reach->candidates[i].addr, addr))
      return &reach->candidates[i];
  return NULL;
}

static void arm(hv_reach *reach) {
  uint64_t now = reach->env->now_us(reach->env), next = UINT64_MAX;
  for (size_t i = 0; i < HV_REACH_MAX; i++)
    if (in_use(&reach->candidates[i]) && !reach->candidates[i].asking && reach->candidates[i].ask_us < next)
      next = reach->candidates[i].ask_us;
  if (next == UINT64_MAX || reach->stopping)
    reach->env->timer_clear(reach->env, &reach->timer);
  else
    reach->env->timer_set(reach->env, &reach->timer, next > now ? next - now : 0);
}

/* ---- asking others ---- */

/* The next peer that can call back: it lives, is elsewhere, knows how, and is not in the network that has answered. */
static const hv_peers_entry *pick(const hv_reach_candidate *c, unsigned *after) {
  const hv_peers *peers = c->reach->peers;
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *entry = peers->entries[(c->after + i) % peers->n_entries];
    uint64_t features;
    if (entry->state != HV_PEERS_ALIVE || entry->card.client_mode || entry->card.n_addrs == 0 || !entry->network ||
        entry->network == c->said_by)
      continue;
    if (!hv_peers_version_of(peers, &entry->card.id, &features) || !(features & HV_FEATURE_DIAL))
      continue;
    *after = (unsigned)((c->after + i + 1) % peers->n_entries);
    return entry;
  }
  return NULL;
}

static void tell(hv_reach_candidate *c, hv_reach_state state, hv_span why) {
  hv_reach *reach = c->reach;
  char where[HV_ADDR_TEXT_MAX], quote[HV_QUOTE_MAX];
  int news = c->state != state;
  c->state = state;
  hv_addr_print_short(&c->addr, where);
  if (news && state == HV_REACH_DIALLED)
    hv_env_log(reach->env, HV_LOG_INFO, "peers", "reachable", "others can dial this peer at %s", where);
  if (news && state == HV_REACH_FAILED)
    hv_env_log(reach->env, HV_LOG_INFO, "peers", "not_reachable", "nobody can dial this peer at %s: %s", where,
               hv_span_quote(why, quote));
  if (news)
    reach->changed(reach->arg);
}

static void confirm(hv_reach_candidate *c, uint64_t now_us) {
  c->said_by = 0;
  c->failures = 0;
  c->ask_us = now_us + CHECK_US;
  tell(c, HV_REACH_DIALLED, hv_span_of(NULL, 0));
}

/* A peer has dialled it. One peer may lie, so one of another network is asked too, if there is one that answers. */
static void was_dialled(hv_reach_candidate *c, uint64_t now_us) {
  unsigned after;
  int is_second = c->said_by != 0; /* of another network, because pick skips that one */
  if (!is_second) {
    c->said_by = c->asks;
    c->silent = 0;
  }
  if (is_second || !pick(c, &after)) {
    confirm(c, now_us);
    return;
  }
  c->failures = 0;
  c->ask_us = now_us;
}

static void was_not_dialled(hv_reach_candidate *c, uint64_t now_us, hv_span why) {
  int is_contradicted = c->said_by != 0;
  c->said_by = 0;
  if (++c->failures >= ENOUGH) {
    c->ask_us = now_us + AGAIN_US;
    tell(c, HV_REACH_FAILED, why);
  } else
    c->ask_us = now_us + (is_contradicted ? AGAIN_US : LOOK_US);
}

static void answered(hv_call *call, const hv_event *event) {
  hv_reach_candidate *c = call->owner;
  hv_reach *reach = c->reach;
  c->asking = 0;
  if (c->dropped)
    c->origin = HV_REACH_NONE, c->dropped = 0;
  if (c->origin == HV_REACH_NONE || reach->stopping)
    return;
  int is_answer = event->status == HV_OK && event->msg->kind == HV_MSG_DIAL;
  if (is_answer && event->msg->u.dial.reached)
    was_dialled(c, event->now_us);
  else if (is_answer)
    was_not_dialled(c, event->now_us, event->msg->u.dial.text);
  else
    c->ask_us = event->now_us + LOOK_US;
  arm(reach);
}

static void ask(hv_reach_candidate *c, uint64_t now_us) {
  hv_reach *reach = c->reach;
  unsigned after = c->after;
  const hv_peers_entry *entry = pick(c, &after);
  if (c->said_by && (!entry || c->silent++ >= ENOUGH)) { /* the peers of other networks have gone, or do not answer */
    confirm(c, now_us);
    return;
  }
  if (entry) {
    c->after = after;
    c->asks = entry->network;
  }
  hv_msg msg = {.kind = HV_MSG_DIAL, .u.dial = {.addr = c->addr}};
  c->ask_us = now_us + LOOK_US;
  c->call = (hv_call){.done = answered, .owner = c, .timeout_ms = ANSWER_MS};
  if (entry && hv_peers_target(reach->peers, &entry->card.id, &c->call.to) == HV_OK)
    c->asking = reach->env->call(reach->env, &c->call, &msg) == HV_OK;
}

static void tick(hv_timer *timer, const hv_event *event) {
  hv_reach *reach = timer->owner;
  for (size_t i = 0; i < HV_REACH_MAX; i++) {
    hv_reach_candidate *c = &reach->candidates[i];
    if (in_use(c) && !c->asking && c->ask_us <= event->now_us)
      ask(c, event->now_us);
  }
  arm(reach);
}

/* ---- candidates ---- */

static void drop(hv_reach_candidate *c) {
  int was_dialled = c->state == HV_REACH_DIALLED;
  c->state = HV_REACH_UNTESTED;
  if (c->asking)
    c->dropped = 1;
  else
    c->origin = HV_REACH_NONE;
  if (was_dialled)
    c->reach->changed(c->reach->arg);
}

static void drop_all_of(hv_reach *reach, hv_reach_origin origin, const hv_addr *but) {
  for (size_t i = 0; i < HV_REACH_MAX; i++) {
    hv_reach_candidate *c = &reach->candidates[i];
    if (in_use(c) && c->origin == origin && !(but && hv_addr_equal(but, &c->addr)))
      drop(c);
  }
}

static int is_worth_a_call(const hv_addr *addr) {
  return (addr->kind == HV_ADDR_IP4 || addr->kind == HV_ADDR_IP6) && addr->port && !hv_addr_is_private(addr) &&
         !hv_addr_is_unspecified(addr);
}

static void add(hv_reach *reach, hv_reach_origin origin, const hv_addr *addr) {
  if (reach->stopping || !is_worth_a_call(addr) || find(reach, addr))
    return;
  for (size_t i = 0; i < HV_REACH_MAX; i++) {
    hv_reach_candidate *c = &reach->candidates[i];
    if (c->origin != HV_REACH_NONE)
      continue;
    *c = (hv_reach_candidate){.reach = reach, .origin = origin, .addr = *addr, .ask_us = reach->env->now_us(reach->env)};
    arm(reach);
    return;
  }
}

void hv_reach_set_own(hv_reach *reach, const hv_addr *addrs, size_t n_addrs) {
  drop_all_of(reach, HV_REACH_OWN, NULL);
  drop_all_of(reach, HV_REACH_SEEN, NULL);
  reach->n_own = n_addrs < HV_CARD_ADDRS_MAX ? n_addrs : HV_CARD_ADDRS_MAX;
  if (reach->n_own)
    memcpy(reach->own, addrs, reach->n_own * sizeof *addrs);
  for (size_t i = 0; i < reach->n_own; i++)
    if (addrs[i].kind == HV_ADDR_IP6)
      add(reach, HV_REACH_OWN, &addrs[i]);
}

void hv_reach_offer(hv_reach *reach, const hv_addr *addr) {
  hv_reach_candidate *known = addr ? find(reach, addr) : NULL;
  drop_all_of(reach, HV_REACH_GATEWAY, addr);
  if (addr && !known)
    add(reach, HV_REACH_GATEWAY, addr);
  if (!known || known->origin == HV_REACH_GATEWAY)
    return;
  known->origin = HV_REACH_GATEWAY; /* it was closed before; now it is worth another call */
  known->failures = 0;
  known->said_by = 0;
  known->ask_us = reach->env->now_us(reach->env);
  arm(reach);
}

int hv_reach_is_own_host(const hv_reach *reach, const hv_addr *addr) {
  for (size_t i = 0; i < reach->n_own; i++) {
    hv_addr own = reach->own[i];
    own.port = addr->port;
    if (hv_addr_equal(&own, addr))
      return 1;
  }
  return 0;
}

void hv_reach_look(hv_reach *reach) {
  if (reach->n_own == 0)
    return;
  hv_addr seen = reach->peers->outer;
  if (hv_reach_is_own_host(reach, &seen))
    return; /* no NAT */
  seen.port = reach->own[0].port;
  if (!is_worth_a_call(&seen) || find(reach, &seen))
    return;
  drop_all_of(reach, HV_REACH_SEEN, NULL);
  add(reach, HV_REACH_SEEN, &seen);
}

size_t hv_reach_addrs(const hv_reach *reach, hv_addr out[HV_CARD_ADDRS_MAX]) {
  size_t n = 0;
  for (size_t i = 0; i < HV_REACH_MAX && n < HV_CARD_ADDRS_MAX; i++)
    if (in_use(&reach->candidates[i]) && reach->candidates[i].state == HV_REACH_DIALLED)
      out[n++] = reach->candidates[i].addr;
  for (size_t i = 0; i < reach->n_own && n < HV_CARD_ADDRS_MAX; i++) {
    const hv_reach_candidate *c = find((hv_reach *)reach, &reach->own[i]);
    if (!c || c->state == HV_REACH_UNTESTED)
      out[n++] = reach->own[i];
  }
  return n;
}

/* ---- for others ---- */

static void dialled(hv_call *call, const hv_event *event) {
  hv_reach_dial *d = call->owner;
  hv_span text = hv_span_of(event->text, strlen(event->text));
  text.size = text.size < HV_MSG_TEXT_MAX ? text.size : HV_MSG_TEXT_MAX;
  hv_msg answer = {.kind = HV_MSG_DIAL, .u.dial = {.addr = d->addr, .reached = event->status == HV_OK, .text = text}};
  d->reach->env->reply(d->reach->env, d->request, &answer);
  d->request = NULL;
}

/* A free place for a call back to this peer; NULL: it has one under way, or all are taken. */
static hv_reach_dial *place_for(hv_reach *reach, const hv_peer_id *peer) {
  hv_reach_dial *free = NULL;
  for (size_t i = 0; i < HV_REACH_DIALS_MAX; i++) {
    hv_reach_dial *d = &reach->dials[i];
    if (d->request && hv_peer_equal(&d->call.to.id, peer))
      return NULL;
    if (!d->request)
      free = d;
  }
  return free;
}

void hv_reach_asked(hv_reach *reach, const hv_event *event) {
  hv_request *request = event->request;
  const hv_addr *addr = &event->msg->u.dial.addr;
  hv_reach_dial *d = place_for(reach, &request->peer);
  if (!d || event->now_us < reach->dialled_us + HV_REACH_PAUSE_US) {
    hv_env_refuse(reach->env, request, HV_BUSY, "this peer calls others back just now; ask another one, or again later");
    return;
  }
  if (!hv_contact_may_dial(addr, hv_contact_source_at(&request->from)) || addr->port == 0) {
    hv_env_refuse(reach->env, request, HV_INVALID, "this peer does not call back to such an address");
    return;
  }
  static const uint8_t word[] = "call back";
  hv_msg echo = {.kind = HV_MSG_ECHO, .u.echo = {hv_span_of(word, sizeof word - 1)}};
  *d = (hv_reach_dial){.reach = reach, .request = request, .addr = *addr};
  d->call = (hv_call){.done = dialled, .owner = d, .to = {request->peer, *addr}, .timeout_ms = CONNECT_MS};
  reach->dialled_us = event->now_us;
  if (reach->env->call(reach->env, &d->call, &echo) == HV_OK)
    return;
  d->request = NULL;
  hv_env_refuse(reach->env, request, HV_BUSY, "this peer cannot call back now; ask another one, or again later");
}

/* ---- life ---- */

void hv_reach_init(hv_reach *reach, hv_env *env, hv_peers *peers, void (*changed)(void *arg), void *arg) {
  *reach = (hv_reach){.env = env, .peers = peers, .changed = changed, .arg = arg};
  reach->timer.fire = tick;
  reach->timer.owner = reach;
}

void hv_reach_stop(hv_reach *reach) {
  reach->stopping = 1;
  reach->env->timer_clear(reach->env, &reach->timer);
}
