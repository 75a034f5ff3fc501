#include "net/sim/sim_inner.h"

/* ---- addresses: 5.a.b.1 is the outer address of home a.b, counted from 1, in a network of its own ---- */

static hv_addr outer_of(size_t home, uint16_t port) {
  return (hv_addr){.kind = HV_ADDR_IP4, .port = port, .host.ip = {5, (uint8_t)(home >> 8), (uint8_t)home, 1}};
}

/* The home that has this outer address; 0: none. */
static size_t home_at(const hv_sim *sim, const hv_addr *addr) {
  size_t home = (size_t)addr->host.ip[1] << 8 | addr->host.ip[2];
  hv_addr there = outer_of(home, addr->port);
  return home <= sim->n_homes && home > 0 && hv_addr_equal(&there, addr) ? home : 0;
}

static sim_nat *nat_of(const sim_node *node) {
  return node->config.home ? node->sim->homes[node->config.home - 1] : NULL;
}

hv_status hv_sim_add_home(hv_sim *sim, const hv_sim_home *rules, size_t *home) {
  if (sim->n_homes == HV_SIM_HOMES_MAX)
    return HV_NOMEM;
  if (sim->n_homes == sim->homes_room) {
    size_t room = sim->homes_room ? 2 * sim->homes_room : 8;
    sim_nat **homes = hv_mem_resize(sim->mem, sim->homes, room * sizeof *homes);
    if (!homes)
      return HV_NOMEM;
    sim->homes = homes;
    sim->homes_room = room;
  }
  sim_nat *nat = sim_nat_new(sim->mem, rules, sim->config.keepalive_us / 2);
  if (!nat)
    return HV_NOMEM;
  sim->homes[sim->n_homes++] = nat;
  *home = sim->n_homes;
  return HV_OK;
}

void sim_homes_fini(hv_sim *sim) {
  for (size_t i = 0; i < sim->n_homes; i++)
    sim_nat_free(sim->homes[i]);
  hv_mem_free(sim->homes);
}

hv_status hv_sim_open_port(hv_sim *sim, size_t index, uint64_t lease_us, hv_addr *outer) {
  if (index >= sim->n_nodes || sim->nodes[index]->life == SIM_DEAD || !nat_of(sim->nodes[index]))
    return HV_STATE;
  sim_node *node = sim->nodes[index];
  if (sim_nat_rules(nat_of(node))->no_ports)
    return HV_REFUSED;
  *outer = outer_of(node->config.home, SIM_PORT);
  if (!sim_nat_open(nat_of(node), (sim_nat_inner){node->index, SIM_PORT}, sim->now + lease_us, sim->now, &outer->port))
    return HV_NOMEM;
  sim_narrate(sim, node, "its NAT opens port %u for %.0f s", outer->port, (double)lease_us * 1e-6);
  return HV_OK;
}

/* ---- who gets where ---- */

/* The port from which a node dials another one: a new one for each, as a kernel gives it. */
static sim_nat_inner dials_from(const sim_node *from, uint32_t to) {
  return (sim_nat_inner){from->index, (uint16_t)(32768 + to % 16384)};
}

/* The endpoint from which a connection comes that is not open yet: a NAT gives it a new port, of which nobody knows. */
static hv_addr comes_from(const sim_node *from) {
  return nat_of(from) ? outer_of(from->config.home, 0) : sim_addr_of(from->sim, from->index, 1);
}

/* The host at an address, and in *port and *in where a connection of `from` arrives there. */
static sim_node *arrives_at(sim_node *from, const hv_addr *addr, uint16_t *port, uint32_t *in, hv_status *why) {
  hv_sim *sim = from->sim;
  size_t home = home_at(sim, addr);
  *port = addr->port;
  *in = 0;
  *why = HV_UNREACHABLE;
  if (!home) {
    sim_node *node = sim_host_at(sim, addr);
    return node && (!node->config.home || node->config.home == from->config.home) ? node : NULL;
  }
  sim_nat *nat = sim->homes[home - 1];
  sim_nat_inner inner;
  hv_addr sender = comes_from(from);
  *why = HV_TIMEOUT;
  if (home == from->config.home && !sim_nat_rules(nat)->hairpin)
    return NULL;
  *in = sim_nat_in(nat, addr->port, &sender, sim->now, &inner);
  if (!*in)
    return NULL;
  *port = inner.port;
  return sim->nodes[inner.host];
}

sim_node *sim_node_at(sim_node *from, const hv_addr *addr, hv_status *why) {
  uint16_t port;
  uint32_t in;
  sim_node *node = arrives_at(from, addr, &port, &in, why);
  if (!node || (port == SIM_PORT && !node->config.client_mode))
    return node;
  *why = HV_REFUSED;
  return NULL;
}

hv_status hv_sim_reaches(hv_sim *sim, size_t from, const hv_addr *addr, size_t *node) {
  hv_status why = HV_INVALID;
  const sim_node *there = from < sim->n_nodes ? sim_node_at(sim->nodes[from], addr, &why) : NULL;
  if (there && node)
    *node = there->index;
  return there ? HV_OK : why;
}

/* ---- connections ---- */

static int passes(hv_sim *sim, const sim_node *node, uint32_t id) {
  return !id || sim_nat_pass(nat_of(node), id, sim->now);
}

int sim_leads(hv_sim *sim, sim_pair *pair, const hv_addr *addr) {
  sim_node *from = sim->nodes[pair->from], *to = sim->nodes[pair->to];
  uint16_t port, outer;
  uint32_t in;
  hv_status why;
  if (!from->config.home && !to->config.home)
    return 1;
  arrives_at(from, addr, &port, &in, &why);
  int open = sim_stands(sim, pair) || pair->ready_at > sim->now || (pair->way.out && passes(sim, from, pair->way.out));
  if (open && pair->way.in == in && !(pair->silent_us && pair->silent_us <= sim->now))
    return 1; /* the mapping may have expired: nobody knows yet */
  sim_disconnect(sim, pair);
  pair->way.in = in;
  if (!from->config.home || (from->config.home == to->config.home && !in))
    return 1;
  pair->way.out = sim_nat_out(nat_of(from), dials_from(from, pair->to), addr, sim->now, &outer);
  return pair->way.out != 0;
}

int sim_carries(hv_sim *sim, uint32_t dialler, uint32_t other, sim_way way) {
  sim_node *from = sim->nodes[dialler], *to = sim->nodes[other];
  if (passes(sim, from, way.out) && passes(sim, to, way.in))
    return 1;
  sim_pair *pair = sim_pair_of(sim, dialler, other);
  if (!pair || !pair->up || pair->silent_us || pair->way.out != way.out || pair->way.in != way.in)
    return 0;
  pair->silent_us = sim->now + sim->config.keepalive_us;
  sim_narrate(sim, from, "its connection to n%u is dead: a NAT has dropped it", other);
  sim_heap_push(&sim->heap, pair->silent_us, dialler, SIM_DOWN, to);
  return 0;
}

hv_addr sim_seen_at(hv_sim *sim, const sim_pair *pair) {
  const sim_node *from = sim->nodes[pair->from];
  sim_nat_inner inner = dials_from(from, pair->to);
  uint16_t outer = pair->way.out ? sim_nat_port(nat_of(from), pair->way.out) : 0;
  return outer ? outer_of(from->config.home, outer) : sim_addr_of(sim, from->index, inner.port);
}
