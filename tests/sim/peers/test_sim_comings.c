/* Peers that go, polite or killed, and peers that come: nobody waits for either, by the simulator's clock. */
#include "lib/match_scene.h"
#include "lib/state_scene.h"

#include "core/average/average.h"

enum { VALUES = 600, PEERS_MAX = 8, GOODBYE_US = 300000, DEATH_US = 1500000, PATIENCE_US = 14000000 };

/* ---- averagers on the nodes of a match swarm ---- */

typedef struct peer {
  scene *c;
  size_t node;
  hv_average *average;
  hv_average_tensor tensor;
  int64_t shape;
  float values[VALUES];
  hv_average_step step;
  int done, apart;
  hv_status status;
  size_t n_members;
  uint64_t done_us;
  char text[400];
} peer;

static peer peers[PEERS_MAX];

typedef struct order {
  hv_command command;
  peer *p;
  void (*what)(peer *p);
} order;

static void obey(hv_command *command, void *core) {
  order *o = (order *)command;
  if (core)
    o->what(o->p);
}

static void tell(peer *p, void (*what)(peer *p)) {
  order o = {{.run = obey}, p, what};
  assert_int_equal(hv_sim_command(p->c->s.sim, p->node, &o.command), HV_OK);
  hv_sim_run_until(p->c->s.sim, hv_sim_now(p->c->s.sim));
}

static void step_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  peer *p = step->owner;
  p->done = 1;
  p->status = status;
  p->n_members = outcome->n_members;
  p->done_us = hv_sim_now(p->c->s.sim);
  snprintf(p->text, sizeof p->text, "%s", text);
}

static void open_averager(peer *p) {
  hv_error err = {0};
  hv_average_config config = {.prefix = hv_span_of("comings", 7),
                              .tensors = &p->tensor,
                              .n_tensors = 1,
                              .chunk_values = 256,
                              .alpha = 1,
                              .stall_ms = 10000,
                              .apart = p->apart};
  assert_int_equal(hv_average_new(hv_node_averages(p->c->s.seats[p->node].node), &config, &p->average, &err), HV_OK);
}

static void step(peer *p) {
  hv_error err = {0};
  p->done = 0;
  p->step.done = step_done;
  p->step.owner = p;
  p->step.weight = 1;
  p->step.wait_ms = 15000;
  p->step.timeout_ms = 40000;
  assert_int_equal(hv_average_start(p->average, &p->step, &err), HV_OK);
}

static void trigger(peer *p) {
  hv_average_trigger(p->average, &p->step);
}

static void cancel(peer *p) {
  hv_average_cancel(p->average, &p->step);
}

static void enter_first(peer *p) {
  hv_average_reached(p->average, 1);
}

static void comes_to_second(peer *p) {
  hv_average_comes(p->average, 2);
}

static void nothing_happens(void *arg) {
  (void)arg;
}

static void close_averager(peer *p) {
  hv_average_close(p->average, nothing_happens, NULL);
  p->average = NULL;
}

static void seat(scene *c, size_t i, int apart) {
  peers[i] = (peer){.c = c, .node = i, .shape = VALUES, .apart = apart};
  peers[i].tensor =
      (hv_average_tensor){{peers[i].values, HV_DTYPE_FLOAT32, VALUES, HV_CODEC_NONE, NULL, 0, 0, 0}, &peers[i].shape, 1};
  tell(&peers[i], open_averager);
}

static scene *open_peers(uint64_t seed, size_t n) {
  scene *c = open_scene(seed);
  grow(c, n);
  run(c, 8);
  for (size_t i = 0; i < n; i++)
    seat(c, i, 0);
  run(c, 8);
  return c;
}

static void all_step(size_t n, const char *epoch, int require_trigger) {
  for (size_t i = 0; i < n; i++) {
    peers[i].step = (hv_average_step){.epoch = hv_span_of(epoch, strlen(epoch)), .require_trigger = require_trigger};
    tell(&peers[i], step);
  }
}

/* They have a group for the first epoch, whose round waits for the trigger. */
static scene *open_group(uint64_t seed, size_t n) {
  scene *c = open_peers(seed, n);
  all_step(n, "1", 1);
  run(c, 2);
  return c;
}

/* ---- who goes ---- */

typedef enum going { POLITE, KILLED } going;

static uint64_t go(scene *c, size_t node, going how) {
  if (how == POLITE)
    hv_sim_stop(c->s.sim, node);
  else
    hv_sim_kill(c->s.sim, node);
  return hv_sim_now(c->s.sim);
}

/* The other member of a round is not there any more, and nobody is told: that is waited for once. */
static void round_of_two_ends_with_one_patience(void **unused) {
  (void)unused;
  for (size_t gone = 0; gone < 2; gone++) {
    scene *c = open_group(440 + gone, 2);
    hv_sim_unplug(c->s.sim, gone);
    tell(&peers[1 - gone], trigger);
    uint64_t begun_us = hv_sim_now(c->s.sim);
    run(c, 20);
    assert_true(peers[1 - gone].done);
    assert_true(peers[1 - gone].done_us - begun_us <= PATIENCE_US);
    close_scene(c);
  }
}

/* It is started anew at once, by the same identity, in the middle of a group: nobody was refused, and nobody waits. */
static void new_life_of_a_member_holds_up_no_round(void **unused) {
  (void)unused;
  for (size_t gone = 0; gone < 3; gone++) {
    scene *c = open_group(450 + gone, 3);
    hv_sim_kill(c->s.sim, gone);
    assert_int_equal(hv_sim_restart(c->s.sim, gone), HV_OK);
    run(c, 0.5);
    seat(c, gone, 1);
    run(c, 0.5);
    for (size_t i = 0; i < 3; i++)
      if (i != gone)
        tell(&peers[i], trigger);
    uint64_t begun_us = hv_sim_now(c->s.sim);
    run(c, 5);
    for (size_t i = 0; i < 3; i++)
      if (i != gone) {
        assert_int_equal(peers[i].status, HV_OK);
        assert_true(peers[i].done_us - begun_us <= GOODBYE_US);
      }
    close_scene(c);
  }
}

/* They have a group, and one goes before the round; the others are told to begin when that is known. */
static void round_goes_on_or_ends(size_t n, going how, double known_s) {
  for (size_t leaver = 0; leaver < n; leaver++) {
    scene *c = open_group(300 + 10 * n + leaver, n);
    uint64_t gone_us = go(c, leaver, how);
    run(c, known_s);
    for (size_t i = 0; i < n; i++)
      if (i != leaver)
        tell(&peers[i], trigger);
    uint64_t begun_us = hv_sim_now(c->s.sim);
    run(c, 10);
    for (size_t i = 0; i < n; i++) {
      if (i == leaver)
        continue;
      assert_true(peers[i].done);
      if (n > 2 && peers[i].status != HV_OK)
        fail_msg("%zu of %zu, %zu left: %s", i, n, leaver, peers[i].text);
      assert_true(peers[i].done_us - begun_us <= GOODBYE_US || peers[i].done_us - gone_us <= DEATH_US);
    }
    close_scene(c);
  }
}

static void round_without_polite_leaver_waits_for_nothing(void **unused) {
  (void)unused;
  for (size_t n = 2; n <= 5; n++) {
    round_goes_on_or_ends(n, POLITE, 0.5);
    round_goes_on_or_ends(n, POLITE, 0);
  }
}

static void round_without_killed_member_takes_a_second_at_most(void **unused) {
  (void)unused;
  for (size_t n = 2; n <= 5; n++) {
    round_goes_on_or_ends(n, KILLED, 0.5);
    round_goes_on_or_ends(n, KILLED, 0);
  }
}

/* Nobody can dial it, and the other clients know it by its records alone: the hub tells them. */
static void killed_client_is_waited_for_a_second_and_a_half(void **unused) {
  (void)unused;
  for (uint64_t seed = 460; seed < 470; seed++) {
    scene *c = open_scene(seed);
    for (size_t i = 0; i < 4; i++) {
      match_swarm_next(&c->s)->client = i > 0;
      match_swarm_add(&c->s);
    }
    run(c, 8);
    for (size_t i = 0; i < 4; i++)
      seat(c, i, 0);
    run(c, 8);
    all_step(4, "1", 0);
    run(c, 5);
    for (size_t i = 0; i < 4; i++)
      assert_int_equal(peers[i].n_members, 4);
    uint64_t gone_us = go(c, 3, KILLED);
    all_step(3, "2", 0);
    run(c, 10);
    for (size_t i = 0; i < 3; i++) {
      assert_int_equal(peers[i].status, HV_OK);
      assert_int_equal(peers[i].n_members, 3);
      assert_true(peers[i].done_us - gone_us <= DEATH_US);
    }
    close_scene(c);
  }
}

/* It lives, and takes no part in the round of a group that it is in. */
static void cancelled_step_holds_up_no_member(void **unused) {
  (void)unused;
  for (size_t leaver = 0; leaver < 3; leaver++) {
    scene *c = open_group(360 + leaver, 3);
    for (size_t i = 0; i < 3; i++)
      tell(&peers[i], i == leaver ? cancel : trigger);
    uint64_t begun_us = hv_sim_now(c->s.sim);
    run(c, 5);
    for (size_t i = 0; i < 3; i++) {
      assert_true(peers[i].done);
      assert_int_equal(peers[i].status, i == leaver ? HV_CANCELLED : HV_OK);
      assert_true(peers[i].done_us - begun_us <= DEATH_US);
    }
    close_scene(c);
  }
}

static void seek_ends_when_all_others_have_gone(void **unused) {
  (void)unused;
  for (going how = POLITE; how <= KILLED; how++) {
    scene *c = open_peers(370 + how, 3);
    go(c, 1, how);
    go(c, 2, how);
    run(c, 1);
    all_step(1, "1", 0);
    uint64_t begun_us = hv_sim_now(c->s.sim);
    run(c, 5);
    assert_true(peers[0].done);
    assert_int_equal(peers[0].status, HV_TIMEOUT);
    assert_non_null(strstr(peers[0].text, "have left"));
    assert_true(peers[0].done_us - begun_us <= GOODBYE_US);
    close_scene(c);
  }
}

/* Its node stays, as where a program ends its training and keeps its DHT. */
static void closed_averager_is_not_waited_for(void **unused) {
  (void)unused;
  scene *c = open_peers(380, 3);
  tell(&peers[2], close_averager);
  run(c, 0.2);
  all_step(2, "1", 0);
  uint64_t begun_us = hv_sim_now(c->s.sim);
  run(c, 5);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(peers[i].status, HV_OK);
    assert_int_equal(peers[i].n_members, 2);
    assert_true(peers[i].done_us - begun_us <= GOODBYE_US);
  }
  close_scene(c);
}

/* The same identity, at the same address: it is in the next group. */
static void restarted_peer_is_in_the_next_round(void **unused) {
  (void)unused;
  for (going how = POLITE; how <= KILLED; how++) {
    scene *c = open_peers(390 + how, 3);
    go(c, 2, how);
    run(c, 3);
    assert_int_equal(hv_sim_restart(c->s.sim, 2), HV_OK);
    run(c, 0.5);
    seat(c, 2, 0);
    run(c, 1);
    all_step(3, "1", 0);
    run(c, 5);
    for (size_t i = 0; i < 3; i++) {
      assert_int_equal(peers[i].status, HV_OK);
      assert_int_equal(peers[i].n_members, 3);
    }
    close_scene(c);
  }
}

/* ---- who comes ---- */

static void newcomer_is_not_expected_before_it_enters(void **unused) {
  (void)unused;
  scene *c = open_scene(400);
  grow(c, 3);
  run(c, 8);
  for (size_t i = 0; i < 3; i++)
    seat(c, i, i == 2);
  run(c, 8);
  all_step(2, "1", 0);
  uint64_t begun_us = hv_sim_now(c->s.sim);
  run(c, 2);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(peers[i].status, HV_OK);
    assert_int_equal(peers[i].n_members, 2);
    assert_true(peers[i].done_us - begun_us <= GOODBYE_US);
  }
  tell(&peers[2], enter_first);
  run(c, 1);
  all_step(2, "2", 0);
  run(c, 3);
  assert_false(peers[0].done || peers[1].done); /* it is in the epoch before, and will come */
  peers[2].step = (hv_average_step){.epoch = hv_span_of("2", 1)};
  tell(&peers[2], step);
  run(c, 2);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(peers[i].n_members, 3);
  close_scene(c);
}

static void announced_peer_is_waited_for_a_moment(void **unused) {
  (void)unused;
  for (int in_time = 0; in_time < 2; in_time++) {
    scene *c = open_scene(410 + (uint64_t)in_time);
    grow(c, 3);
    run(c, 8);
    for (size_t i = 0; i < 3; i++)
      seat(c, i, i == 2);
    run(c, 8);
    tell(&peers[2], comes_to_second);
    run(c, 0.2);
    all_step(2, "1", 0); /* the epoch before that one does not wait for it */
    run(c, 0.2);
    assert_true(peers[0].done && peers[1].done);
    all_step(2, "2", 0);
    uint64_t begun_us = hv_sim_now(c->s.sim);
    run(c, 0.2);
    assert_false(peers[0].done || peers[1].done);
    if (in_time) {
      peers[2].step = (hv_average_step){.epoch = hv_span_of("2", 1)};
      tell(&peers[2], step);
    }
    run(c, 2);
    for (size_t i = 0; i < 2; i++) {
      assert_int_equal(peers[i].status, HV_OK);
      assert_int_equal(peers[i].n_members, 2 + in_time);
      assert_true(peers[i].done_us - begun_us <= 500000);
    }
    close_scene(c);
  }
}

/* ---- the state ---- */

/* Two offered; the one with the older state goes, and its announcement lives on. */
static void dead_offer_has_no_vote(void **unused) {
  (void)unused;
  for (int unplug = 0; unplug < 2; unplug++) {
    static state_copy copies[2];
    static state_offering offers[2];
    hv_mem mem;
    state_scene s;
    state_try try;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_sim_config config = hv_sim_defaults(420 + (uint64_t)unplug);
    hv_sim *sim = hv_sim_new(&mem, &config);
    state_scene_init(&s, sim, &mem);
    for (size_t i = 0; i < 3; i++)
      state_scene_add(&s, STATE_HONEST, 0);
    dht_swarm_run(&s.swarm, 5);
    for (size_t i = 0; i < 2; i++) {
      memset(&offers[i], 0, sizeof offers[i]);
      state_copy_make(&copies[i], &mem, 7 + i, 1000, HV_CODEC_NONE);
      state_offer(&s, i, &offers[i], &copies[i], "run", 24 - 2 * i);
    }
    dht_swarm_run(&s.swarm, 5);
    if (unplug)
      hv_sim_unplug(sim, 1);
    else
      hv_sim_kill(sim, 1);
    dht_swarm_run(&s.swarm, unplug ? 0.1 : 0.5);
    state_load(&s, 2, &try, "run", 60000);
    assert_true(state_finish(&s, &try, 1, 30));
    assert_int_equal(try.status, HV_OK);
    assert_true(state_same(&try, &copies[0]));
    assert_true(try.ended_us - try.started_us <= 2500000);
    dht_swarm_run(&s.swarm, 60);
    assert_int_equal(hv_sim_free(sim), 0);
    state_scene_fini(&s);
    state_try_free(&try);
    for (size_t i = 0; i < 2; i++)
      state_copy_free(&copies[i]);
    assert_int_equal(mem.blocks, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_without_polite_leaver_waits_for_nothing),
      cmocka_unit_test(round_without_killed_member_takes_a_second_at_most),
      cmocka_unit_test(cancelled_step_holds_up_no_member),
      cmocka_unit_test(killed_client_is_waited_for_a_second_and_a_half),
      cmocka_unit_test(seek_ends_when_all_others_have_gone),
      cmocka_unit_test(closed_averager_is_not_waited_for),
      cmocka_unit_test(restarted_peer_is_in_the_next_round),
      cmocka_unit_test(newcomer_is_not_expected_before_it_enters),
      cmocka_unit_test(announced_peer_is_waited_for_a_moment),
      cmocka_unit_test(dead_offer_has_no_vote),
      cmocka_unit_test(round_of_two_ends_with_one_patience),
      cmocka_unit_test(new_life_of_a_member_holds_up_no_round),
  };
  return cmocka_run_group_tests_name("sim: comings and goings", tests, NULL, NULL);
}
