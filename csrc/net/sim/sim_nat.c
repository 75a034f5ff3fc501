#include "net/sim/sim_nat.h"

#include <string.h>

enum { FIRST_PORT = 40000, PORTS = 25000 /* that are given to mappings which may have any */, FIRST_ROWS = 8 };

/* An endpoint outside, without the room that an hv_addr has for a name. */
typedef struct remote {
  uint8_t kind, ip[16];
  uint16_t port;
} remote;

/* One inner endpoint and one remote to which it has sent; kind HV_ADDR_NONE: a port that was opened on request, to all. */
typedef struct row {
  uint32_t id;
  sim_nat_inner inner;
  remote to;
  uint16_t outer;
  uint64_t used_us, until_us; /* until_us: of a port that was opened on request */
} row;

struct sim_nat {
  hv_mem *mem;
  hv_sim_home rules;
  uint64_t pings_us;
  row *rows;
  size_t n, room;
  uint32_t last_id;
  uint32_t ports; /* that were given so far */
};

sim_nat *sim_nat_new(hv_mem *mem, const hv_sim_home *rules, uint64_t pings_us) {
  sim_nat *nat = hv_mem_zalloc(mem, sizeof *nat);
  if (nat) {
    nat->mem = mem;
    nat->rules = *rules;
    nat->pings_us = pings_us;
  }
  return nat;
}

const hv_sim_home *sim_nat_rules(const sim_nat *nat) {
  return &nat->rules;
}

void sim_nat_free(sim_nat *nat) {
  if (!nat)
    return;
  hv_mem_free(nat->rows);
  hv_mem_free(nat);
}

static remote remote_of(const hv_addr *addr) {
  remote out = {.kind = addr->kind, .port = addr->port};
  if (addr->kind == HV_ADDR_IP4 || addr->kind == HV_ADDR_IP6)
    memcpy(out.ip, addr->host.ip, addr->kind == HV_ADDR_IP4 ? 4 : 16);
  return out;
}

static int same_host(const remote *a, const remote *b) {
  return a->kind == b->kind && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

static int same_remote(const remote *a, const remote *b) {
  return same_host(a, b) && a->port == b->port;
}

static int same_inner(sim_nat_inner a, sim_nat_inner b) {
  return a.host == b.host && a.port == b.port;
}

static int was_opened(const row *r) {
  return r->to.kind == HV_ADDR_NONE;
}

static int has_expired(const sim_nat *nat, const row *r, uint64_t now_us) {
  uint64_t idle_us = nat->rules.idle_us;
  return was_opened(r) ? now_us >= r->until_us : idle_us && idle_us < nat->pings_us && now_us > r->used_us + idle_us;
}

/* ---- the table ---- */

static void drop_expired(sim_nat *nat, uint64_t now_us) {
  size_t kept = 0;
  for (size_t i = 0; i < nat->n; i++)
    if (!has_expired(nat, &nat->rows[i], now_us))
      nat->rows[kept++] = nat->rows[i];
  nat->n = kept;
}

static row *add(sim_nat *nat, uint64_t now_us) {
  if (nat->n == nat->room)
    drop_expired(nat, now_us);
  if (nat->n == SIM_NAT_ROWS_MAX)
    return NULL;
  if (nat->n == nat->room) {
    size_t room = nat->room ? 2 * nat->room : FIRST_ROWS;
    row *rows = hv_mem_resize(nat->mem, nat->rows, room * sizeof *rows);
    if (!rows)
      return NULL;
    nat->rows = rows;
    nat->room = room;
  }
  row *r = &nat->rows[nat->n++];
  *r = (row){.id = ++nat->last_id, .used_us = now_us};
  return r;
}

static row *find(const sim_nat *nat, uint32_t id) {
  for (size_t i = 0; id && i < nat->n; i++)
    if (nat->rows[i].id == id)
      return &nat->rows[i];
  return NULL;
}

static int is_taken(const sim_nat *nat, uint16_t outer, uint64_t now_us) {
  for (size_t i = 0; i < nat->n; i++)
    if (nat->rows[i].outer == outer && !has_expired(nat, &nat->rows[i], now_us))
      return 1;
  return 0;
}

static uint16_t new_port(sim_nat *nat, uint64_t now_us) { /* a table has fewer rows than there are ports */
  uint16_t outer;
  do
    outer = (uint16_t)(FIRST_PORT + nat->ports++ % PORTS);
  while (is_taken(nat, outer, now_us));
  return outer;
}

/* ---- out ---- */

/* RFC 4787, 4.1: all kinds but the symmetric one map an inner endpoint to one outer port, whomever it sends to. */
static uint16_t port_for(sim_nat *nat, sim_nat_inner inner, uint64_t now_us) {
  for (size_t i = 0; nat->rules.kind != HV_SIM_SYMMETRIC && i < nat->n; i++)
    if (same_inner(nat->rows[i].inner, inner) && !has_expired(nat, &nat->rows[i], now_us))
      return nat->rows[i].outer;
  return new_port(nat, now_us);
}

uint32_t sim_nat_out(sim_nat *nat, sim_nat_inner inner, const hv_addr *to, uint64_t now_us, uint16_t *outer) {
  remote there = remote_of(to);
  row *r = NULL;
  for (size_t i = 0; i < nat->n && !r; i++)
    if (same_inner(nat->rows[i].inner, inner) && same_remote(&nat->rows[i].to, &there) && !has_expired(nat, &nat->rows[i], now_us))
      r = &nat->rows[i];
  if (!r) {
    uint16_t port = port_for(nat, inner, now_us);
    if (!(r = add(nat, now_us)))
      return 0;
    r->inner = inner;
    r->to = there;
    r->outer = port;
  }
  r->used_us = now_us;
  *outer = r->outer;
  return r->id;
}

uint32_t sim_nat_open(sim_nat *nat, sim_nat_inner inner, uint64_t until_us, uint64_t now_us, uint16_t *outer) {
  row *r = NULL;
  drop_expired(nat, now_us);
  for (size_t i = 0; i < nat->n && !r; i++)
    if (was_opened(&nat->rows[i]) && same_inner(nat->rows[i].inner, inner))
      r = &nat->rows[i];
  if (!r) {
    uint16_t port = is_taken(nat, *outer, now_us) ? new_port(nat, now_us) : *outer;
    if (!(r = add(nat, now_us)))
      return 0;
    r->inner = inner;
    r->outer = port;
  }
  r->until_us = until_us;
  *outer = r->outer;
  return r->id;
}

/* ---- in ---- */

/* RFC 4787, 5. */
static int lets_in(const sim_nat *nat, const row *r, const remote *from) {
  if (was_opened(r))
    return 1;
  switch (nat->rules.kind) {
  case HV_SIM_FULL_CONE:
    return 1;
  case HV_SIM_RESTRICTED:
    return same_host(&r->to, from);
  default:
    return same_remote(&r->to, from);
  }
}

uint32_t sim_nat_in(sim_nat *nat, uint16_t outer, const hv_addr *from, uint64_t now_us, sim_nat_inner *inner) {
  remote sender = remote_of(from);
  for (size_t i = 0; i < nat->n; i++) {
    const row *r = &nat->rows[i];
    if (r->outer != outer || has_expired(nat, r, now_us) || !lets_in(nat, r, &sender))
      continue;
    *inner = r->inner;
    return r->id;
  }
  return 0;
}

int sim_nat_pass(sim_nat *nat, uint32_t id, uint64_t now_us) {
  row *r = find(nat, id);
  if (!r || has_expired(nat, r, now_us))
    return 0;
  r->used_us = now_us;
  return 1;
}

uint16_t sim_nat_port(const sim_nat *nat, uint32_t id) {
  const row *r = find(nat, id);
  return r ? r->outer : 0;
}

void sim_nat_close(sim_nat *nat, uint32_t id) {
  row *r = find(nat, id);
  if (r)
    *r = nat->rows[--nat->n];
}
