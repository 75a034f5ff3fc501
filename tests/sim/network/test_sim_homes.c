/* Nodes behind NATs: who can dial whom, what they announce, and what becomes of connections and leases that end. */
#include "lib/check.h"
#include "lib/dht_swarm.h"
#include "lib/homes.h"

#include <string.h>

enum { NODES_MAX = 12 };

static const uint64_t HOUR_US = 3600 * DHT_SECOND;

/* docs/design/reach.md: an address that was dialled is checked after ten minutes; then three peers in a row may take a second until
 * they are asked, and eight to answer. */
static const uint64_t NOTICED_US = (600 + 3 * (1 + 8)) * DHT_SECOND;

typedef struct town {
  hv_mem mem;
  hv_sim *sim;
  dht_swarm s;
  homes h;
  size_t n_down; /* connections of which a node learned that they broke */
} town;

static town t; /* one at a time */

static void meets(dht_seat *seat, hv_env *env) {
  homes_meet(&t.h, seat->number, env);
}

static void sees(dht_seat *seat, const hv_event *event) {
  homes_see(&t.h, seat->number, event);
  t.n_down += event->kind == HV_EVENT_PEER_DOWN;
}

static void open_town(uint64_t seed, uint64_t keepalive_us) {
  memset(&t, 0, sizeof t);
  hv_mem_init(&t.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  if (keepalive_us)
    config.keepalive_us = keepalive_us;
  t.sim = hv_sim_new(&t.mem, &config);
  assert_non_null(t.sim);
  dht_swarm_init(&t.s, t.sim, &t.mem, NODES_MAX);
  t.s.hello_every_ms = 2000;
  t.s.meet = meets;
  t.s.see = sees;
  homes_init(&t.h, t.sim);
}

static void close_town(void) {
  assert_string_equal(t.h.wrong, "");
  assert_int_equal(hv_sim_free(t.sim), 0);
  dht_swarm_fini(&t.s);
  assert_int_equal(atomic_load(&t.mem.blocks), 0);
}

/* Adds a node in a home, or for home 0 at a public address. All but node 0 know node 0, and `beside` that node, too. */
static size_t moves_in_beside(size_t home, int is_client, size_t beside) {
  size_t number = t.s.n, known[] = {0, beside};
  t.s.home = home;
  t.s.network = home ? 0 : 100 + (uint32_t)number;
  homes_place(&t.h, number, home, is_client, &t.s.seats[number].node);
  return dht_swarm_add(&t.s, known, (number > 0) + (beside > 0), is_client);
}

static size_t moves_in(size_t home, int is_client) {
  return moves_in_beside(home, is_client, 0);
}

static hv_status dials(size_t from, const hv_addr *addr) {
  size_t to, by_books;
  hv_status status = hv_sim_reaches(t.sim, from, addr, &to);
  assert_int_equal(status == HV_OK, homes_can(&t.h, from, addr, &by_books));
  assert_true(status != HV_OK || to == by_books);
  return status;
}

static hv_addr own(size_t node) {
  return hv_sim_target(t.sim, node).addr;
}

/* True if a node has met another one that it could dial. */
static int knows(size_t node, size_t other) {
  hv_target to = hv_sim_target(t.sim, other), at;
  const hv_peers *peers = hv_node_peers(t.s.seats[node].node);
  const hv_peers_entry *entry = hv_peers_find(peers, &to.id);
  return entry && entry->state == HV_PEERS_ALIVE && hv_peers_target(peers, &to.id, &at) == HV_OK;
}

/* ---- who can dial whom ---- */

static void only_nodes_of_one_home_use_private_addresses(void **state) {
  (void)state;
  open_town(1, 0);
  size_t hub = moves_in(0, 0), home = homes_add(&t.h, HV_SIM_PORT_RESTRICTED, 0, 0);
  size_t one = moves_in(home, 0), two = moves_in_beside(home, 0, one);
  size_t far = moves_in(homes_add(&t.h, HV_SIM_FULL_CONE, 0, 0), 0);
  hv_addr at[] = {own(hub), own(one), own(two), own(far)};
  dht_swarm_run(&t.s, 20);
  assert_int_equal(dials(one, &at[2]), HV_OK);
  assert_int_equal(dials(far, &at[2]), HV_UNREACHABLE);
  assert_int_equal(dials(hub, &at[1]), HV_UNREACHABLE);
  for (size_t i = 1; i < 4; i++)
    assert_int_equal(dials(i, &at[0]), HV_OK);
  assert_true(knows(one, two) && knows(two, one));
  assert_false(knows(hub, one) || knows(far, one) || knows(one, far));
  close_town();
}

static void no_kind_lets_a_stranger_in_without_an_open_port(void **state) {
  (void)state;
  for (int kind = HV_SIM_FULL_CONE; kind <= HV_SIM_SYMMETRIC; kind++) {
    open_town(2, 0);
    moves_in(0, 0);
    size_t behind = moves_in(homes_add(&t.h, (hv_sim_nat)kind, 0, 0), 0), stranger = moves_in(0, 0);
    dht_swarm_run(&t.s, 20);
    hv_addr mapped = hv_node_peers(t.s.seats[behind].node)->outer, listens = mapped;
    assert_int_not_equal(mapped.kind, HV_ADDR_NONE);
    listens.port = own(behind).port;
    assert_int_equal(dials(stranger, &listens), HV_TIMEOUT);
    /* the port of its connection to the first node: a full cone leads all to a port where nobody listens */
    assert_int_equal(dials(stranger, &mapped), kind == HV_SIM_FULL_CONE ? HV_REFUSED : HV_TIMEOUT);
    assert_int_equal(dials(0, &mapped), kind == HV_SIM_FULL_CONE || kind == HV_SIM_RESTRICTED ? HV_REFUSED : HV_TIMEOUT);
    close_town();
  }
}

/* ---- opened ports ---- */

static int announces(const hv_card *card, const hv_addr *addr) {
  for (size_t i = 0; i < card->n_addrs; i++)
    if (hv_addr_equal(&card->addrs[i], addr))
      return 1;
  return 0;
}

/* How many nodes hold a card of this one with that address, itself counted. */
static size_t told_of(size_t node, const hv_addr *addr) {
  hv_peer_id id = hv_sim_target(t.sim, node).id;
  size_t n = 0;
  for (size_t i = 0; i < t.s.n; i++) {
    const hv_peers *peers = hv_node_peers(t.s.seats[i].node);
    const hv_peers_entry *entry = hv_peers_find(peers, &id);
    n += i == node ? announces(&peers->config.me, addr) : entry && announces(&entry->card, addr);
  }
  return n;
}

static void opened_port_is_announced_and_dialled_by_all(void **state) {
  (void)state;
  for (int hairpin = 0; hairpin < 2; hairpin++) {
    open_town(3, 0);
    moves_in(0, 0);
    size_t home = homes_add(&t.h, HV_SIM_SYMMETRIC, 0, hairpin);
    size_t opens = moves_in(home, 0), beside = moves_in_beside(home, 0, opens);
    size_t client = moves_in(homes_add(&t.h, HV_SIM_PORT_RESTRICTED, 0, 0), 1), stranger = moves_in(0, 0);
    homes_keep(&t.h, opens, HOUR_US, 1, 0);
    dht_swarm_run(&t.s, 60);
    hv_addr outer = t.h.nodes[opens].opened;
    assert_int_equal(dials(stranger, &outer), HV_OK);
    assert_int_equal(dials(client, &outer), HV_OK);
    assert_int_equal(dials(beside, &outer), hairpin ? HV_OK : HV_TIMEOUT);
    assert_int_equal(told_of(opens, &outer), 5);
    assert_true(knows(stranger, opens) && knows(client, opens) && knows(beside, opens));
    close_town();
  }
}

static void ended_lease_is_no_longer_announced_in_time(void **state) {
  (void)state;
  enum { LEASE_S = 120, HELLO_S = 5 };
  open_town(4, 0);
  moves_in(0, 0);
  size_t opens = moves_in(homes_add(&t.h, HV_SIM_FULL_CONE, 0, 0), 0), stranger = moves_in(0, 0);
  moves_in(0, 0);
  homes_keep(&t.h, opens, LEASE_S * DHT_SECOND, 0, 0);
  dht_swarm_run(&t.s, LEASE_S - 1);
  hv_addr outer = t.h.nodes[opens].opened;
  assert_int_equal(told_of(opens, &outer), 4);
  assert_int_equal(dials(stranger, &outer), HV_OK);
  dht_swarm_run(&t.s, 2);
  assert_int_equal(dials(stranger, &outer), HV_TIMEOUT);
  t.h.calm = 0; /* connections through the port die without notice */
  dht_swarm_run(&t.s, (double)NOTICED_US / (double)DHT_SECOND + HELLO_S);
  assert_int_equal(told_of(opens, &outer), 0);
  close_town();
}

/* ---- idle connections ---- */

static void echo_done(hv_node_echo *echo, hv_status status, hv_span bytes, const char *text) {
  (void)bytes, (void)text;
  *(hv_status *)echo->owner = status;
}

typedef struct asking {
  hv_command command;
  hv_node_echo echo;
  hv_status status;
} asking;

static void asks(hv_command *command, void *core) {
  asking *a = (asking *)command;
  assert_non_null(core);
  assert_int_equal(hv_node_echo_start(core, &a->echo), HV_OK);
}

/* Asks a peer and waits for three seconds. */
static hv_status asks_in_time(size_t from, size_t to) {
  asking a = {.command = {.run = asks}, .status = HV_BUSY};
  a.echo = (hv_node_echo){.done = echo_done, .owner = &a.status, .to = hv_sim_target(t.sim, to).id, .timeout_ms = 2900};
  assert_int_equal(hv_sim_command(t.sim, from, &a.command), HV_OK);
  dht_swarm_run(&t.s, 3);
  assert_int_not_equal(a.status, HV_BUSY);
  return a.status;
}

/* The NAT forgets after five seconds, and keepalive asks every ten. */
static void idle_connection_is_dead_until_keepalive_notices(void **state) {
  (void)state;
  open_town(5, 20 * DHT_SECOND);
  t.s.hello_every_ms = 600000;
  moves_in(0, 0);
  size_t behind = moves_in(homes_add(&t.h, HV_SIM_PORT_RESTRICTED, 5 * DHT_SECOND, 0), 0);
  t.h.calm = 0;
  dht_swarm_run(&t.s, 900); /* hellos are rare now */
  size_t asked = 0;
  while (asks_in_time(behind, 0) != HV_OK) /* until keepalive has noticed the last loss, and a dial came through since */
    assert_true(asked++ < 10);             /* in 30 s */
  assert_int_equal(asks_in_time(behind, 0), HV_OK);
  t.n_down = 0;
  dht_swarm_run(&t.s, 6);
  assert_int_equal(asks_in_time(behind, 0), HV_TIMEOUT);
  assert_int_equal(t.n_down, 0);
  dht_swarm_run(&t.s, 20);
  assert_int_equal(t.n_down, 1);
  assert_int_equal(asks_in_time(behind, 0), HV_OK);
  close_town();
}

static void keepalive_holds_an_idle_connection_open(void **state) {
  (void)state;
  open_town(6, 20 * DHT_SECOND);
  t.s.hello_every_ms = 600000;
  moves_in(0, 0);
  size_t behind = moves_in(homes_add(&t.h, HV_SIM_SYMMETRIC, 30 * DHT_SECOND, 0), 0);
  dht_swarm_run(&t.s, 600);
  assert_int_equal(asks_in_time(behind, 0), HV_OK);
  assert_int_equal(t.n_down, 0);
  close_town();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_nodes_of_one_home_use_private_addresses),
      cmocka_unit_test(no_kind_lets_a_stranger_in_without_an_open_port),
      cmocka_unit_test(opened_port_is_announced_and_dialled_by_all),
      cmocka_unit_test(ended_lease_is_no_longer_announced_in_time),
      cmocka_unit_test(idle_connection_is_dead_until_keepalive_notices),
      cmocka_unit_test(keepalive_holds_an_idle_connection_open),
  };
  return cmocka_run_group_tests_name("sim: homes", tests, NULL, NULL);
}
