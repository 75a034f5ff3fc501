/* Clients of a hub that are killed, that move, and of whom others lie, by the simulator's clock. */
#include "lib/check.h"

#include "core/node.h"
#include "net/sim/sim.h"

#include <string.h>

enum { NODES_MAX = 8, HUB = 0, OPEN = 1, CLIENT = 2, OTHER = 3, LIAR = 4 };
#define SECOND 1000000ull

typedef struct seat {
  hv_target me, initial[2];
  size_t n_initial;
  int client_mode;
  hv_env *env;
} seat;

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  seat seats[NODES_MAX];
} scene;

static hv_status make_node(hv_env *env, void *arg, hv_core *out) {
  seat *s = arg;
  hv_node *node;
  hv_node_config config = {.me = s->me.id, .client_mode = s->client_mode, .initial = s->initial, .n_initial = s->n_initial};
  hv_status status = hv_node_new(env, &config, &node);
  s->env = env;
  if (status == HV_OK)
    *out = (hv_core){node, hv_node_step};
  return status;
}

static void free_node(void *self) {
  hv_node_free(self);
}

static void add(scene *s, int client_mode, size_t n_initial) {
  size_t node = hv_sim_nodes(s->sim), got;
  seat *here = &s->seats[node];
  here->me = hv_sim_target(s->sim, node);
  here->client_mode = client_mode;
  for (; here->n_initial < n_initial; here->n_initial++)
    here->initial[here->n_initial] = hv_sim_target(s->sim, here->n_initial);
  hv_sim_node_config config = {.make = make_node, .free = free_node, .arg = here, .client_mode = client_mode};
  assert_int_equal(hv_sim_add(s->sim, &config, &got), HV_OK);
}

static void run(scene *s, double seconds) {
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + (uint64_t)(seconds * SECOND));
}

/* A hub, a peer that can be dialled, two clients, and a peer to which nobody was pointed. */
static void open_scene(scene *s, uint64_t seed) {
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  s->sim = hv_sim_new(&s->mem, &config);
  assert_non_null(s->sim);
  add(s, 0, 0), add(s, 0, 1), add(s, 1, 1), add(s, 1, 1), add(s, 0, 1);
  run(s, 12);
}

static void close_scene(scene *s) {
  assert_int_equal(hv_sim_free(s->sim), 0);
  assert_int_equal(s->mem.blocks, 0);
}

static const hv_peers_entry *seen(scene *s, size_t node, size_t other) {
  return hv_peers_find(hv_node_peers(hv_sim_core(s->sim, node)), &s->seats[other].me.id);
}

static int counts(scene *s, size_t node, size_t other) {
  const hv_peers_entry *entry = seen(s, node, other);
  return entry && entry->state == HV_PEERS_ALIVE;
}

static void killed_client_is_known_to_all_within_1500_ms(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    scene s;
    open_scene(&s, seed);
    assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
    hv_sim_kill(s.sim, CLIENT);
    run(&s, 0.9);
    assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
    run(&s, 0.6);
    assert_true(seen(&s, HUB, CLIENT)->gone && seen(&s, OPEN, CLIENT)->gone);
    assert_true(counts(&s, HUB, OTHER) && counts(&s, OPEN, OTHER));
    assert_int_equal(hv_sim_restart(s.sim, CLIENT), HV_OK);
    run(&s, 3);
    assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
    hv_sim_kill(s.sim, CLIENT);
    run(&s, 1.5);
    assert_true(seen(&s, HUB, CLIENT)->gone && seen(&s, OPEN, CLIENT)->gone);
    close_scene(&s);
  }
}

static void restarted_client_is_not_buried(void **unused) {
  (void)unused;
  for (uint64_t seed = 30; seed < 50; seed++) {
    scene s;
    open_scene(&s, seed);
    hv_sim_kill(s.sim, CLIENT);
    run(&s, 0.05 * (double)(seed - 29)); /* up to a second later */
    assert_int_equal(hv_sim_restart(s.sim, CLIENT), HV_OK);
    run(&s, 2);
    assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
    close_scene(&s);
  }
}

typedef struct order {
  hv_command command;
  scene *s;
  size_t node;
} order;

static void drop_connections(hv_command *command, void *core) {
  order *o = (order *)command;
  hv_env *env = o->s->seats[o->node].env;
  (void)core;
  env->forget(env, &o->s->seats[HUB].me);
}

/* Its connections end, as they do where a machine changes its network. */
static void client_that_changes_its_network_is_not_buried(void **unused) {
  (void)unused;
  for (uint64_t seed = 60; seed < 80; seed++) {
    scene s;
    open_scene(&s, seed);
    uint64_t lost_us = seen(&s, HUB, CLIENT)->lost_us;
    for (int i = 0; i < 3; i++) {
      order o = {{.run = drop_connections}, &s, CLIENT};
      assert_int_equal(hv_sim_command(s.sim, CLIENT, &o.command), HV_OK);
      run(&s, 12);
    }
    assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
    assert_int_equal(seen(&s, HUB, CLIENT)->lost_us, lost_us);
    hv_sim_kill(s.sim, CLIENT); /* the hub has its new stream */
    run(&s, 1.5);
    assert_true(seen(&s, HUB, CLIENT)->gone && seen(&s, OPEN, CLIENT)->gone);
    close_scene(&s);
  }
}

static void hub_that_was_started_anew_gets_the_streams_again(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 90);
  hv_sim_kill(s.sim, HUB);
  run(&s, 20);
  assert_int_equal(hv_sim_restart(s.sim, HUB), HV_OK);
  run(&s, 60);
  assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
  hv_sim_kill(s.sim, CLIENT);
  run(&s, 1.5);
  assert_true(seen(&s, HUB, CLIENT)->gone && seen(&s, OPEN, CLIENT)->gone);
  close_scene(&s);
}

static hv_call lie;
static size_t n_lies;

static void lie_told(hv_call *call, const hv_event *event) {
  (void)call;
  n_lies += event->status == HV_OK;
}

static void tell_a_lie(hv_command *command, void *core) {
  order *o = (order *)command;
  hv_env *env = o->s->seats[LIAR].env;
  hv_ended ended = {o->s->seats[CLIENT].me.id, seen(o->s, HUB, CLIENT)->life, 0};
  hv_msg msg = {.kind = HV_MSG_ENDED, .u.ended = {&ended, 1}};
  (void)core;
  lie = (hv_call){.done = lie_told, .to = o->s->seats[o->node].me, .timeout_ms = 1000};
  assert_int_equal(env->call(env, &lie, &msg), HV_OK);
}

static void report_of_a_stranger_is_ignored(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 91);
  n_lies = 0;
  for (size_t to = HUB; to <= OPEN; to++) {
    order o = {{.run = tell_a_lie}, &s, to};
    assert_int_equal(hv_sim_command(s.sim, LIAR, &o.command), HV_OK);
    run(&s, 1);
  }
  assert_int_equal(n_lies, 2);
  assert_true(counts(&s, HUB, CLIENT) && counts(&s, OPEN, CLIENT));
  close_scene(&s);
}

static void streams_stop_no_node_from_ending(void **unused) {
  (void)unused;
  for (size_t leaver = HUB; leaver <= CLIENT; leaver += CLIENT) {
    scene s;
    open_scene(&s, 92 + leaver);
    hv_sim_stop(s.sim, leaver);
    run(&s, 0.2);
    assert_false(hv_sim_alive(s.sim, leaver)); /* all had heard it: it did not wait for its grace */
    if (leaver == CLIENT) {
      assert_true(seen(&s, HUB, CLIENT)->left && seen(&s, OPEN, CLIENT)->left);
      run(&s, 2);
      assert_true(seen(&s, HUB, CLIENT)->left && seen(&s, OPEN, CLIENT)->left);
    }
    close_scene(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(killed_client_is_known_to_all_within_1500_ms),
      cmocka_unit_test(restarted_client_is_not_buried),
      cmocka_unit_test(client_that_changes_its_network_is_not_buried),
      cmocka_unit_test(hub_that_was_started_anew_gets_the_streams_again),
      cmocka_unit_test(report_of_a_stranger_is_ignored),
      cmocka_unit_test(streams_stop_no_node_from_ending),
  };
  return cmocka_run_group_tests_name("sim: presence", tests, NULL, NULL);
}
