#include "net/sim/sim_inner.h"

enum { OVERHEAD = 64 /* bytes of headers with each message */ };

/* ---- addresses: 10.a.b.c is node a.b.c, counted from 1; 2001:N:N::c is the same node, in the public network N ---- */

hv_addr sim_addr_of(const hv_sim *sim, uint32_t node, uint16_t port) {
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = port ? port : SIM_PORT};
  uint32_t n = node + 1, network = node < sim->n_nodes ? sim->nodes[node]->config.network : 0;
  uint8_t *ip = addr.host.ip,
          public[] = {0x20, 0x01, (uint8_t)(network >> 24), (uint8_t)(network >> 16), (uint8_t)(network >> 8), (uint8_t)network};
  if (network) {
    addr.kind = HV_ADDR_IP6;
    memcpy(ip, public, sizeof public);
    ip += 12;
  }
  ip[0] = network ? 0 : 10;
  ip[1] = (uint8_t)(n >> 16);
  ip[2] = (uint8_t)(n >> 8);
  ip[3] = (uint8_t)n;
  return addr;
}

sim_node *sim_host_at(hv_sim *sim, const hv_addr *addr) {
  int is_public = addr->kind == HV_ADDR_IP6;
  const uint8_t *ip = addr->host.ip + (is_public ? 12 : 0);
  uint32_t n = (uint32_t)ip[1] << 16 | (uint32_t)ip[2] << 8 | ip[3];
  if (n == 0 || n > sim->n_nodes || (!is_public && (addr->kind != HV_ADDR_IP4 || ip[0] != 10)))
    return NULL;
  hv_addr there = sim_addr_of(sim, n - 1, addr->port);
  return is_public && !hv_addr_equal(addr, &there) ? NULL : sim->nodes[n - 1];
}

/* ---- pairs: a table by (from, to), open addressing ---- */

static size_t place(sim_pair *const *pairs, size_t room, uint32_t from, uint32_t to) {
  size_t i = sim_hash_mix(from, to) & (room - 1);
  while (pairs[i] && (pairs[i]->from != from || pairs[i]->to != to))
    i = (i + 1) & (room - 1);
  return i;
}

static int grow(hv_sim *sim) {
  size_t room = sim->pairs_room ? sim->pairs_room * 2 : 64;
  sim_pair **pairs = hv_mem_array(sim->mem, room, sizeof *pairs);
  if (!pairs)
    return 0;
  for (size_t i = 0; i < sim->pairs_room; i++)
    if (sim->pairs[i])
      pairs[place(pairs, room, sim->pairs[i]->from, sim->pairs[i]->to)] = sim->pairs[i];
  hv_mem_free(sim->pairs);
  sim->pairs = pairs;
  sim->pairs_room = room;
  return 1;
}

static sim_pair *look(hv_sim *sim, uint32_t from, uint32_t to) {
  return sim->pairs_room ? sim->pairs[place(sim->pairs, sim->pairs_room, from, to)] : NULL;
}

sim_pair *sim_pair_of(hv_sim *sim, uint32_t from, uint32_t to) {
  sim_pair *pair = look(sim, from, to);
  if (pair || (sim->n_pairs * 2 >= sim->pairs_room && !grow(sim)))
    return pair;
  pair = hv_mem_zalloc(sim->mem, sizeof *pair);
  if (!pair)
    return NULL;
  pair->from = from;
  pair->to = to;
  sim->pairs[place(sim->pairs, sim->pairs_room, from, to)] = pair;
  sim->n_pairs++;
  return pair;
}

void sim_links_fini(hv_sim *sim) {
  for (size_t i = 0; i < sim->pairs_room; i++)
    if (sim->pairs[i]) {
      hv_mem_free(sim->pairs[i]->link);
      hv_mem_free(sim->pairs[i]);
    }
  hv_mem_free(sim->pairs);
}

/* ---- settings ---- */

hv_sim_link sim_link_default(void) {
  return (hv_sim_link){.delay_us = 10000, .jitter_us = 2000};
}

static const hv_sim_link *link_of(hv_sim *sim, const sim_pair *pair, uint32_t from, uint32_t to) {
  if (pair && pair->link)
    return pair->link;
  if (sim->nodes[from]->out_link)
    return sim->nodes[from]->out_link;
  return sim->nodes[to]->in_link ? sim->nodes[to]->in_link : &sim->config.link;
}

const hv_sim_link *sim_link_of(hv_sim *sim, uint32_t from, uint32_t to) {
  return link_of(sim, sim->any_link ? look(sim, from, to) : NULL, from, to);
}

static hv_status set(hv_sim *sim, hv_sim_link **where, const hv_sim_link *link) {
  if (!link) {
    hv_mem_free(*where);
    *where = NULL;
    return HV_OK;
  }
  if (!*where && !(*where = hv_mem_alloc(sim->mem, sizeof **where)))
    return HV_NOMEM;
  **where = *link;
  return HV_OK;
}

hv_status hv_sim_set_link(hv_sim *sim, size_t from, size_t to, const hv_sim_link *link) {
  if (from == HV_SIM_ANY && to == HV_SIM_ANY) {
    sim->config.link = link ? *link : sim_link_default();
    return HV_OK;
  }
  if ((from != HV_SIM_ANY && from >= sim->n_nodes) || (to != HV_SIM_ANY && to >= sim->n_nodes))
    return HV_INVALID;
  if (to == HV_SIM_ANY)
    return set(sim, &sim->nodes[from]->out_link, link);
  if (from == HV_SIM_ANY)
    return set(sim, &sim->nodes[to]->in_link, link);
  sim_pair *pair = sim_pair_of(sim, (uint32_t)from, (uint32_t)to);
  sim->any_link = 1;
  return pair ? set(sim, &pair->link, link) : HV_NOMEM;
}

void hv_sim_set_window(hv_sim *sim, size_t window) {
  sim->config.window = window;
}

hv_status hv_sim_cut(hv_sim *sim, size_t from, size_t to, int on) {
  if (from >= sim->n_nodes || to >= sim->n_nodes)
    return HV_INVALID;
  sim_pair *pair = sim_pair_of(sim, (uint32_t)from, (uint32_t)to);
  if (!pair)
    return HV_NOMEM;
  pair->cuts = on ? sim->cuts : 0;
  sim->any_cut = 1;
  sim->rewired++;
  sim_narrate(sim, NULL, "%s n%zu -> n%zu", on ? "cut" : "mended", from, to);
  return HV_OK;
}

void hv_sim_group(hv_sim *sim, size_t node, unsigned group) {
  if (node >= sim->n_nodes || sim->nodes[node]->group == group)
    return;
  sim->nodes[node]->group = group;
  sim->rewired++;
  sim_narrate(sim, NULL, "n%zu is in group %u", node, group);
}

void hv_sim_heal(hv_sim *sim) {
  sim->cuts++;
  sim->any_cut = 0;
  sim->rewired++;
  for (size_t i = 0; i < sim->n_nodes; i++)
    sim->nodes[i]->group = 0;
  sim_narrate(sim, NULL, "all partitions healed");
}

int hv_sim_apart(hv_sim *sim, size_t from, size_t to) {
  return from < sim->n_nodes && to < sim->n_nodes && sim_blocked(sim, (uint32_t)from, (uint32_t)to);
}

uint64_t hv_sim_rewired(const hv_sim *sim) {
  return sim->rewired;
}

int sim_blocked(hv_sim *sim, uint32_t from, uint32_t to) {
  if (sim->nodes[from]->group != sim->nodes[to]->group)
    return 1;
  const sim_pair *pair = sim->any_cut ? look(sim, from, to) : NULL;
  return pair && pair->cuts == sim->cuts;
}

/* ---- the way of bytes ---- */

uint64_t sim_delay_us(hv_sim *sim, uint32_t from, uint32_t to) {
  return sim_link_of(sim, from, to)->delay_us;
}

int sim_chance(hv_sim *sim, double p) {
  return p > 0 && (double)(sim_random(&sim->random) >> 11) * 0x1p-53 < p;
}

int sim_stands(hv_sim *sim, const sim_pair *pair) {
  return pair->up && pair->from_lives == sim->nodes[pair->from]->lives && pair->to_lives == sim->nodes[pair->to]->lives;
}

uint64_t sim_dial(hv_sim *sim, sim_pair *pair) {
  if (sim_stands(sim, pair))
    return sim->now;
  if (pair->ready_at <= sim->now)
    pair->ready_at = sim->now + sim_delay_us(sim, pair->from, pair->to) + sim_delay_us(sim, pair->to, pair->from);
  return pair->ready_at;
}

/* The time at which `size` bytes that arrive at `at` have passed a queue, which is empty at *free_at. Updates *free_at. */
static uint64_t pass(uint64_t at, uint64_t *free_at, size_t size, uint64_t rate) {
  if (rate == 0)
    return at;
  if (*free_at > at)
    at = *free_at;
  return *free_at = at + ((uint64_t)size * 1000000 + rate - 1) / rate;
}

uint64_t sim_transit(hv_sim *sim, sim_pair *pair, uint64_t leave, size_t size) {
  const hv_sim_link *link = link_of(sim, pair, pair->from, pair->to);
  sim_node *from = sim->nodes[pair->from];
  size += OVERHEAD;
  sim->counts.messages++;
  sim->counts.bytes += size;
  uint64_t at = pass(leave, &from->up_free, size, from->config.up_rate);
  at = pass(at, &pair->free_at, size, link->rate) + link->delay_us;
  if (link->jitter_us)
    at += sim_random(&sim->random) % link->jitter_us;
  return at;
}

uint64_t sim_way_in(sim_node *node, size_t size, uint8_t *queued) {
  if (*queued || node->config.down_rate == 0)
    return 0;
  *queued = 1;
  return pass(node->sim->now, &node->down_free, size + OVERHEAD, node->config.down_rate);
}

/* ---- connections: each as its dialler sees it ---- */

void sim_connected(hv_sim *sim, sim_pair *pair) {
  sim_node *to = sim->nodes[pair->to];
  pair->from_lives = sim->nodes[pair->from]->lives;
  pair->to_lives = to->lives;
  if (pair->up)
    return;
  pair->up = 1;
  pair->next = to->diallers;
  pair->where = &to->diallers;
  if (pair->next)
    pair->next->where = &pair->next;
  to->diallers = pair;
}

void sim_disconnect(hv_sim *sim, sim_pair *pair) {
  size_t home = sim->nodes[pair->from]->config.home;
  if (pair->way.out)
    sim_nat_close(sim->homes[home - 1], pair->way.out);
  pair->way = (sim_way){0, 0};
  pair->ready_at = pair->silent_us = 0;
  if (!pair->up)
    return;
  pair->up = 0;
  *pair->where = pair->next;
  if (pair->next)
    pair->next->where = pair->where;
}

void sim_connections_lost(sim_node *gone) {
  hv_sim *sim = gone->sim;
  while (gone->diallers) {
    sim_pair *pair = gone->diallers;
    sim_node *from = sim->nodes[pair->from];
    if (from->life != SIM_DEAD && sim_stands(sim, pair) && !pair->silent_us && !gone->unplugged &&
        !sim_blocked(sim, gone->index, from->index))
      sim_heap_push(&sim->heap, sim->now + sim_delay_us(sim, gone->index, from->index), from->index, SIM_DOWN, gone);
    sim_disconnect(sim, pair);
  }
}
