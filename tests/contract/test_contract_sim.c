/* The contract of hv_env, on the simulated world: plain, and over a network that loses, doubles and turns around. */
#include "contract/env_contract.h"

#include "lib/check.h"
#include "net/sim/sim.h"

#include <stdlib.h>
#include <string.h>

typedef struct world {
  hv_mem mem;
  hv_sim *sim;
} world;

static void *open_world(const contract_fixture *fixture, size_t n, const contract_seat *seats) {
  world *w = calloc(1, sizeof *w);
  hv_mem_init(&w->mem, NULL, HV_MEM_UNLIMITED);
  w->sim = hv_sim_new(&w->mem, fixture->arg);
  for (size_t i = 0; i < n; i++) {
    hv_sim_node_config seat = {.make = seats[i].make,
                               .free = seats[i].free,
                               .arg = seats[i].arg,
                               .client_mode = seats[i].client_mode,
                               .versions = seats[i].versions,
                               .skew_us = i & 1 ? -3600000000 : 3600000000,
                               .drift_ppm = i & 1 ? -200 : 150};
    if (hv_sim_add(w->sim, &seat, NULL) != HV_OK)
      return NULL;
  }
  return w;
}

static int drive(void *arg, int (*enough)(void *arg), void *enough_arg, uint32_t timeout_ms) {
  world *w = arg;
  return hv_sim_drive(w->sim, enough, enough_arg, hv_sim_now(w->sim) + (uint64_t)timeout_ms * 1000);
}

static void command(void *arg, size_t node, hv_command *c) {
  assert_int_equal(hv_sim_command(((world *)arg)->sim, node, c), HV_OK);
}

static hv_target target(void *arg, size_t node) {
  return hv_sim_target(((world *)arg)->sim, node);
}

static hv_target nobody(void *arg) {
  hv_target to = hv_sim_target(((world *)arg)->sim, 0);
  memset(&to.id, 0, sizeof to.id);
  to.addr.port = 1;
  return to;
}

typedef struct life {
  hv_sim *sim;
  size_t node;
} life;
static int is_dead(void *arg) {
  life *l = arg;
  return !hv_sim_alive(l->sim, l->node);
}

static void stop(void *arg, size_t node) {
  world *w = arg;
  hv_sim_stop(w->sim, node);
  assert_true(drive(w, is_dead, &(life){w->sim, node}, 2000));
}

static size_t close_world(void *arg) {
  world *w = arg;
  for (size_t i = 0; i < hv_sim_nodes(w->sim); i++)
    if (hv_sim_alive(w->sim, i))
      stop(w, i);
  size_t left = hv_sim_free(w->sim);
  assert_int_equal(atomic_load(&w->mem.blocks), 0);
  free(w);
  return left;
}

static void kill_node(void *arg, size_t node) {
  hv_sim_kill(((world *)arg)->sim, node);
}

static void cut(void *arg, size_t a, size_t b, int on) {
  world *w = arg;
  assert_int_equal(hv_sim_cut(w->sim, a, b, on), HV_OK);
  assert_int_equal(hv_sim_cut(w->sim, b, a, on), HV_OK);
}

int main(void) {
  hv_sim_config plain = hv_sim_defaults(1), rough = hv_sim_defaults(2), real = hv_sim_defaults(3);
  rough.link = (hv_sim_link){.delay_us = 20000, .jitter_us = 30000, .duplicate = 0, .reorder = 0.3, .rate = 20 << 20};
  real.real_crypto = 1;
  contract_fixture fixture = {
      .name = "hv_env on the sim",
      .arg = &plain,
      .paces = 1,
      .still = 1,
      .window_max = 17 << 20, /* 8 MiB taken and 8 MiB unread, and a piece */
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
  fixture.name = "hv_env on the sim, a rough network";
  fixture.arg = &rough;
  failed += contract_run(&fixture);
  fixture.name = "hv_env on the sim, nodes that speak two versions";
  fixture.arg = &plain;
  fixture.versions = (hv_versions){1, 2, 0};
  failed += contract_run(&fixture);
  fixture.versions = (hv_versions){0};
  fixture.name = "hv_env on the sim, real keys";
  fixture.arg = &real;
  return failed + contract_run(&fixture);
}
