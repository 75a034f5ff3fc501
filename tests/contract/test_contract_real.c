/* The contract of hv_env on the real world: gRPC over loopback, under TLS and without.
 *
 * Others dial a node through a relay of this program's own. So a node can be killed (as others see it: its connections are reset
 * and nobody listens any more), and two nodes can be cut off from each other in silence. */
#include "contract/env_contract.h"

#include "lib/check.h"
#include "lib/relay.h"
#include "net/clock.h"
#include "net/transport/loop.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { NODES_MAX = 4 };

typedef struct seat {
  hv_mem mem;
  hv_identity *identity;
  hv_log *log;
  hv_loop *loop;
  hv_core core;
  void (*free)(void *self);
  int running;
  hv_target target;
  relay *relay; /* NULL: it does not listen */
} seat;

typedef struct world {
  size_t n;
  seat nodes[NODES_MAX];
} world;

static hv_addr loopback(uint16_t port) {
  return (hv_addr){.kind = HV_ADDR_IP4, .port = port, .host.ip = {127, 0, 0, 1}};
}

static int start(seat *node, const contract_seat *asked, const contract_fixture *fixture, uint8_t number) {
  uint8_t seed[32] = {number + 1u};
  hv_error err = {0};
  hv_addr listen = loopback(0);
  hv_mem_init(&node->mem, NULL, HV_MEM_UNLIMITED);
  node->identity = hv_identity_from_seed(&node->mem, seed);
  node->log = hv_log_new(&node->mem, 64, HV_LOG_DEBUG);
  hv_loop_config config = {.mem = &node->mem,
                           .log = node->log,
                           .identity = node->identity,
                           .insecure = fixture->claims_only,
                           .lanes = *(const unsigned *)fixture->arg,
                           .versions = asked->versions,
                           .listen = &listen,
                           .n_listen = asked->client_mode ? 0 : 1,
                           .pool_threads = 2};
  if (hv_loop_new(&config, &node->loop, &err) != HV_OK || asked->make(hv_loop_env(node->loop), asked->arg, &node->core) != HV_OK ||
      hv_loop_run(node->loop, &node->core, &err) != HV_OK) {
    print_error("%s\n", err.text);
    return 0;
  }
  node->running = 1;
  node->free = asked->free;
  node->target = (hv_target){*hv_identity_peer(node->identity), loopback(1)};
  size_t n;
  const hv_addr *addrs = hv_loop_addrs(node->loop, &n);
  if (n) {
    node->relay = relay_new(addrs[0].port);
    node->target.addr.port = relay_port(node->relay);
  }
  return 1;
}

static void *open_world(const contract_fixture *fixture, size_t n, const contract_seat *seats) {
  world *w = calloc(1, sizeof *w);
  w->n = n;
  for (size_t i = 0; i < n; i++)
    if (!start(&w->nodes[i], &seats[i], fixture, (uint8_t)i))
      return NULL;
  return w;
}

static int drive(void *arg, int (*enough)(void *arg), void *enough_arg, uint32_t timeout_ms) {
  (void)arg;
  for (uint64_t until = hv_clock_us() + timeout_ms * (uint64_t)1000;;) {
    if (enough(enough_arg))
      return 1;
    if (hv_clock_us() >= until)
      return 0;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

static void command(void *arg, size_t i, hv_command *c) {
  if (hv_loop_post(((world *)arg)->nodes[i].loop, c) != HV_OK)
    c->run(c, NULL);
}

static hv_target target(void *arg, size_t i) {
  return ((world *)arg)->nodes[i].target;
}

static hv_target nobody(void *arg) {
  (void)arg;
  return (hv_target){.addr = loopback(1)};
}

static void stop(void *arg, size_t i) {
  seat *node = &((world *)arg)->nodes[i];
  uint64_t before = hv_clock_us();
  hv_loop_stop(node->loop);
  assert_true(hv_clock_us() - before < 2000000);
  if (node->running)
    node->free(node->core.self);
  node->running = 0;
}

static size_t close_world(void *arg) {
  world *w = arg;
  size_t left = 0;
  for (size_t i = 0; i < w->n; i++)
    stop(w, i);
  for (size_t i = 0; i < w->n; i++) {
    seat *node = &w->nodes[i];
    hv_loop_free(node->loop);
    hv_log_free(node->log);
    hv_identity_free(node->identity);
    relay_free(node->relay);
    left += atomic_load(&node->mem.blocks);
  }
  free(w);
  return left;
}

static void kill_node(void *arg, size_t i) {
  relay_break(((world *)arg)->nodes[i].relay); /* what others see first, and what counts */
  stop(arg, i);
}

static void cut(void *arg, size_t a, size_t b, int on) {
  world *w = arg;
  assert_int_equal(w->n, 2); /* a relay does not know who dials */
  relay_pause(w->nodes[a].relay, on);
  relay_pause(w->nodes[b].relay, on);
}

int main(void) {
  unsigned lanes = 1;
  contract_fixture fixture = {
      .name = "hv_env on gRPC, TLS",
      .arg = &lanes,
#ifdef SO_MAX_PACING_RATE
      .paces = 1,
#endif
      .window_max = 48 << 20, /* 3 MiB taken, 4 MiB unread, and what gRPC, two kernels' sockets and the relay hold */
      .open = open_world,
      .close = close_world,
      .drive = drive,
      .command = command,
      .target = target,
      .nobody = nobody,
      .stop = stop,
      .kill = kill_node,
      .cut = cut,
  };
  int failed = contract_run(&fixture);
  fixture.name = "hv_env on gRPC, without TLS";
  fixture.claims_only = 1;
  failed += contract_run(&fixture);
  lanes = 4;
  fixture.name = "hv_env on gRPC, each stream over four connections, without TLS";
  failed += contract_run(&fixture);
  fixture.name = "hv_env on gRPC, each stream over four connections, TLS";
  fixture.claims_only = 0;
  failed += contract_run(&fixture);
  fixture.name = "hv_env on gRPC, nodes that speak two versions, TLS";
  fixture.versions = (hv_versions){1, 2, 0};
  return failed + contract_run(&fixture);
}
