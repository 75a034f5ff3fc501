#include "lib/homes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static homes *here; /* env has no place for whose it is */

static void wrong(homes *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wrong(homes *h, const char *format, ...) {
  va_list args;
  if (h->wrong[0])
    return;
  va_start(args, format);
  vsnprintf(h->wrong, sizeof h->wrong, format, args);
  va_end(args);
  hv_sim_say(h->sim, "WRONG: %s", h->wrong);
}

void homes_init(homes *h, hv_sim *sim) {
  *h = (homes){.sim = sim, .calm = 1};
  here = h;
}

size_t homes_add(homes *h, hv_sim_nat kind, uint64_t idle_us, int hairpin) {
  size_t home = 0;
  hv_sim_home rules = {.kind = kind, .idle_us = idle_us, .hairpin = hairpin != 0};
  if (hv_sim_add_home(h->sim, &rules, &home) != HV_OK || home > HOMES_MAX)
    wrong(h, "the scenario itself failed: too many homes");
  else
    h->hairpins[home] = hairpin;
  return home;
}

void homes_place(homes *h, size_t number, size_t home, int is_client, hv_node **node) {
  h->nodes[number] = (homes_node){.h = h, .node = node, .home = home, .is_client = is_client};
}

/* ---- the rule ---- */

/* A NAT's kind does not matter here. Nodes dial from other ports than the one on which they listen, so no connection that a node
 * opens makes a mapping to where it listens: only a port that was opened on request lets anybody in. */
int homes_can(const homes *h, size_t from, const hv_addr *addr, size_t *to) {
  const homes_node *a = &h->nodes[from];
  for (size_t i = 0; i < hv_sim_nodes(h->sim); i++) {
    const homes_node *b = &h->nodes[i];
    hv_target at = hv_sim_target(h->sim, i);
    int leased = b->opened.kind != HV_ADDR_NONE && hv_sim_now(h->sim) < b->until_us;
    int by_own = hv_addr_equal(addr, &at.addr) && (!b->home || b->home == a->home);
    int by_outer = leased && hv_addr_equal(addr, &b->opened) && (b->home != a->home || h->hairpins[b->home]);
    if (!by_own && !by_outer)
      continue;
    *to = i;
    return !b->is_client;
  }
  return 0;
}

/* ---- dials ---- */

static size_t number_of(const homes *h, const hv_env *env) {
  size_t i = 0;
  while (i < HOMES_NODES_MAX && h->nodes[i].env != env)
    i++;
  return i;
}

static homes_call *place_of(homes *h, size_t from, const hv_call *call) {
  homes_call *free = NULL;
  for (size_t i = 0; i < HOMES_CALLS_MAX; i++) {
    homes_call *c = &h->calls[i];
    if (c->call == call && c->from == from)
      return c;
    if (!c->call && !free)
      free = c;
  }
  return free;
}

static hv_status watch_call(hv_env *env, hv_call *call, const hv_msg *request) {
  homes *h = here;
  hv_status status = h->call(env, call, request);
  size_t from = number_of(h, env);
  homes_call *c = place_of(h, from, call);
  if (status != HV_OK)
    return status;
  if (!c || from == HOMES_NODES_MAX) {
    wrong(h, "the scenario itself failed: too many calls");
    return status;
  }
  *c = (homes_call){.call = call, .from = from, .to = SIZE_MAX, .kind = request->kind};
  c->could = homes_can(h, from, &call->to.addr, &c->to);
  size_t there = SIZE_MAX;
  if ((hv_sim_reaches(h->sim, from, &call->to.addr, &there) == HV_OK) != c->could || (c->could && there != c->to))
    wrong(h, "n%zu: the simulator and the books disagree on whom it can dial", from);
  return status;
}

void homes_meet(homes *h, size_t number, hv_env *env) {
  h->nodes[number].env = env;
  for (size_t i = 0; i < HOMES_CALLS_MAX; i++)
    if (h->calls[i].call && h->calls[i].from == number)
      h->calls[i].call = NULL; /* of the life before */
  if (env->call != watch_call)
    h->call = env->call;
  env->call = watch_call;
}

static void call_ended(homes *h, size_t number, const hv_event *event) {
  homes_call *c = place_of(h, number, event->call);
  size_t to = SIZE_MAX;
  if (!c || c->call != event->call)
    return;
  int can = homes_can(h, number, &event->call->to.addr, &to);
  h->n_answered += event->status == HV_OK;
  h->n_in_vain += !can;
  if (event->status == HV_OK && !can && !c->could)
    wrong(h, "n%zu got an answer from an address that it cannot dial", number);
  int failed = event->status == HV_TIMEOUT || event->status == HV_UNREACHABLE || event->status == HV_REFUSED;
  if (h->calm && failed && can && c->could)
    wrong(h, "n%zu could dial n%zu, and its call of kind %d ended with %s", number, to, c->kind, hv_status_name(event->status));
  c->call = NULL;
}

/* A peer asks this node, so some address of this node leads that peer here. */
static void was_asked(homes *h, size_t number, const hv_peer_id *peer) {
  for (size_t i = 0; i < hv_sim_nodes(h->sim); i++) {
    hv_target from = hv_sim_target(h->sim, i), own = hv_sim_target(h->sim, number);
    size_t to = SIZE_MAX;
    if (!hv_peer_equal(&from.id, peer))
      continue;
    int by_own = homes_can(h, i, &own.addr, &to) && to == number;
    int by_outer = homes_can(h, i, &h->nodes[number].opened, &to) && to == number;
    if (!by_own && !by_outer)
      wrong(h, "n%zu got something from n%zu, which cannot dial it", number, i);
  }
}

void homes_see(homes *h, size_t number, const hv_event *event) {
  if (event->kind == HV_EVENT_CALL_DONE)
    call_ended(h, number, event);
  if (event->kind == HV_EVENT_REQUEST || event->kind == HV_EVENT_STREAM_OPENED)
    was_asked(h, number, &event->peer);
}

/* ---- leases ---- */

int homes_lapsed(const homes *h, size_t number) {
  const homes_node *n = &h->nodes[number];
  return n->opened.kind != HV_ADDR_NONE && hv_sim_now(h->sim) >= n->until_us;
}

static void told(hv_command *command, void *core) {
  homes_node *n = (homes_node *)((char *)command - offsetof(homes_node, tell));
  n->telling = 0;
  if (core && *n->node)
    hv_node_opened(*n->node, homes_lapsed(n->h, (size_t)(n - n->h->nodes)) ? NULL : &n->opened);
}

static void lapses(hv_sim *sim, void *arg) {
  homes_node *n = arg;
  size_t number = (size_t)(n - n->h->nodes);
  if (!n->telling)
    n->telling = hv_sim_command(sim, number, &n->tell) == HV_OK;
}

static void renews(hv_sim *sim, void *arg) {
  homes_node *n = arg;
  size_t number = (size_t)(n - n->h->nodes);
  if (hv_sim_alive(sim, number)) {
    if (hv_sim_open_port(sim, number, n->lease_us, &n->opened) != HV_OK)
      wrong(n->h, "the NAT of n%zu opens no port", number);
    n->until_us = hv_sim_now(sim) + n->lease_us;
    n->tell.run = told;
    if (!n->telling)
      n->telling = hv_sim_command(sim, number, &n->tell) == HV_OK;
  }
  if (!n->renewals && n->is_told)
    hv_sim_at(sim, n->until_us, lapses, n);
  if (n->renewals && n->renewals--)
    hv_sim_at(sim, hv_sim_now(sim) + n->lease_us / 2, renews, n);
}

void homes_keep(homes *h, size_t number, uint64_t lease_us, size_t renewals, int is_told) {
  h->nodes[number].is_told = is_told;
  h->nodes[number].lease_us = lease_us;
  h->nodes[number].renewals = renewals;
  hv_sim_at(h->sim, hv_sim_now(h->sim) + 1, renews, &h->nodes[number]);
}
