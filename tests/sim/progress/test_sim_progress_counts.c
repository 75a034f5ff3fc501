/* Counts of clients, and of peers that go and come again. */
#include "lib/progress_scene.h"

static void assert_all_count(scene *c, uint64_t seed, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (read_of(c, i).n_peers != n)
      fail_msg("seed %u: n%zu of %zu counts %u", (unsigned)seed, i, n, (unsigned)read_of(c, i).n_peers);
}

static void clients_count_and_are_counted(void **unused) {
  (void)unused;
  scene *c = open_scene(12);
  grow(c, 4, 40);
  run(c, 10);
  size_t client = join(c, 40, 1);
  run(c, 20);
  for (size_t i = 0; i <= client; i++) {
    assert_int_equal(read_of(c, i).n_peers, 5);
    assert_int_equal(read_of(c, i).n_clients, 1);
    assert_near(read_of(c, i).samples, 4 * 40 * 30 + 40 * 20, 240);
  }
  close_scene(c);
}

/* Their tables have one node more than those of the others, and they cannot ask each other. */
static void clients_are_counted_beside_a_full_leaf(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    size_t open = HV_ZONES_LEAF + seed % 4, n = open + 3;
    scene *c = open_scene(seed);
    grow(c, open, 40);
    run(c, 60); /* they hear each other, and hardly search for records */
    for (size_t i = open; i < n; i++)
      join(c, 40, 1);
    run(c, 30);
    for (size_t i = 0; i < n; i++) {
      hv_progress_figures f = read_of(c, i);
      if (f.n_peers != n || f.n_clients != n - open)
        fail_msg("n%zu of %zu and %zu clients counts %u and %u", i, open, n - open, (unsigned)f.n_peers, (unsigned)f.n_clients);
    }
    close_scene(c);
  }
}

static void peer_that_starts_again_is_counted_soon(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    scene *c = open_scene(seed);
    size_t n = HV_ZONES_LEAF + 1;
    grow(c, n, 40);
    run(c, 60);
    hv_sim_kill(c->s.dht.sim, 5);
    run(c, 1);
    assert_int_equal(hv_sim_restart(c->s.dht.sim, 5), HV_OK);
    run(c, 0.01);
    progress_swarm_open(&c->s, 5);
    run(c, 15);
    assert_all_count(c, seed, n);
    close_scene(c);
  }
}

/* Each node is in its neighbours' tables before it takes part, and some are asked about the run until then. */
static void peers_that_begin_together_are_counted_soon(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    scene *c = open_scene(seed);
    size_t n = HV_ZONES_LEAF + 3;
    for (size_t i = 0; i < n; i++) {
      size_t knows = i ? check_random(&c->rng) % i : 0;
      dht_swarm_add(&c->s.dht, &knows, i ? 1 : 0, 0);
    }
    run(c, 30);
    for (size_t i = 0; i < n; i++) {
      progress_swarm_open(&c->s, i);
      progress_swarm_work(&c->s, i, 40);
      run(c, 0.2);
    }
    run(c, 10);
    assert_all_count(c, seed, n);
    close_scene(c);
  }
}

/* A notebook makes a new optimizer, and its node goes on. Without this peer the leaf of the others is wider than its own. */
static void peer_that_leaves_and_joins_again_is_counted_soon(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    scene *c = open_scene(seed);
    size_t n = HV_ZONES_LEAF + 1;
    grow(c, n, 40);
    run(c, 60);
    progress_swarm_close(&c->s, 3);
    run(c, 3);
    progress_swarm_open(&c->s, 3);
    progress_swarm_work(&c->s, 3, 40);
    run(c, 10);
    assert_all_count(c, seed, n);
    close_scene(c);
  }
}

/* Two of three answers about a half are older than the epoch before. */
static void samples_of_short_epochs_are_known_in_a_wide_swarm(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    scene *c = open_scene(seed);
    size_t n = HV_ZONES_LEAF + 3;
    grow(c, n, 40);
    run(c, 60);
    for (uint64_t epoch = 1; epoch <= 12; epoch++) {
      all_begin(c, 0, n, epoch);
      run(c, 1.4);
      for (size_t i = 0; i < n && epoch > 4; i++) {
        hv_progress_figures f = read_of(c, i);
        if (f.epoch == epoch && f.samples < 0.7 * 1.4 * 40 * (double)n)
          fail_msg("seed %u, epoch %u: n%zu counts %g samples", (unsigned)seed, (unsigned)epoch, i, f.samples);
      }
    }
    close_scene(c);
  }
}

static void peer_that_dies_or_leaves_is_not_counted_for_long(void **unused) {
  (void)unused;
  scene *c = open_scene(13);
  grow(c, 6, 40);
  run(c, 20);
  hv_sim_unplug(c->s.dht.sim, 5);
  progress_swarm_close(&c->s, 4);
  run(c, 40);
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(read_of(c, i).n_peers, 4);
  close_scene(c);
}

static void loads_the_state_of_this_epoch(progress_peer *peer, hv_progress_own *own) {
  (void)peer;
  *own = (hv_progress_own){.epoch = own->epoch, .at_us = own->at_us, .comes = 1 + own->epoch};
}

static void loads_a_later_state(progress_peer *peer, hv_progress_own *own) {
  loads_the_state_of_this_epoch(peer, own);
  own->comes++;
}

/* Clients know each other by their records alone. */
static void client_that_loads_is_known_to_come_until_it_is_there(void **unused) {
  (void)unused;
  scene *c = open_scene(14);
  grow(c, 1, 40);
  join(c, 40, 1);
  size_t comes = join(c, 40, 1);
  run(c, 10);
  assert_all_count(c, 14, 3);
  c->s.peers[comes].lie = loads_a_later_state;
  progress_swarm_wake(&c->s, comes);
  run(c, 12);
  assert_int_equal(read_of(c, 1).n_peers, 2);
  assert_int_equal(read_of(c, 1).n_coming, 0);
  c->s.peers[comes].lie = loads_the_state_of_this_epoch;
  progress_swarm_wake(&c->s, comes);
  run(c, 30); /* longer than one record counts */
  assert_int_equal(read_of(c, 1).n_peers, 2);
  assert_int_equal(read_of(c, 1).n_coming, 1);
  c->s.peers[comes].lie = NULL;
  progress_swarm_wake(&c->s, comes);
  run(c, 12);
  assert_all_count(c, 14, 3);
  assert_int_equal(read_of(c, 1).n_coming, 0);
  close_scene(c);
}

/* They hear each other directly, and read records each three leases only. One that loads is in its record alone. */
static void open_peers_know_of_one_that_loads(void **unused) {
  (void)unused;
  scene *c = open_scene(16);
  grow(c, 4, 40);
  run(c, 70);
  c->s.peers[3].lie = loads_the_state_of_this_epoch;
  progress_swarm_wake(&c->s, 3);
  run(c, 12);
  for (int i = 0; i < 40; i++, run(c, 1))
    for (size_t at = 0; at < 3; at++)
      assert_int_equal(read_of(c, at).n_coming, 1);
  c->s.peers[3].lie = NULL;
  progress_swarm_wake(&c->s, 3);
  run(c, 12);
  assert_all_count(c, 16, 4);
  for (size_t at = 0; at < 3; at++)
    assert_int_equal(read_of(c, at).n_coming, 0);
  close_scene(c);
}

/* Near the target it asks each 50 ms: a question of its time as a contributor may come after its Depart. */
static void contributor_that_steps_aside_is_not_counted_any_more(void **unused) {
  (void)unused;
  scene *c = open_scene(15);
  c->s.terms.target = 100000;
  grow(c, 1, 4000);
  size_t client = join(c, 4000, 1);
  run(c, 11.5);
  for (int i = 0; i < 60; i++) {
    c->s.peers[client].lie = loads_the_state_of_this_epoch;
    progress_swarm_wake(&c->s, client);
    run(c, 2.6);
    assert_int_equal(read_of(c, 0).n_peers, 1);
    c->s.peers[client].lie = NULL;
    all_begin(c, 0, 2, (uint64_t)i + 1);
    run(c, 11.5 + check_uniform(&c->rng));
    assert_int_equal(read_of(c, 0).n_peers, 2);
  }
  close_scene(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clients_count_and_are_counted),
      cmocka_unit_test(clients_are_counted_beside_a_full_leaf),
      cmocka_unit_test(peer_that_starts_again_is_counted_soon),
      cmocka_unit_test(peers_that_begin_together_are_counted_soon),
      cmocka_unit_test(peer_that_leaves_and_joins_again_is_counted_soon),
      cmocka_unit_test(samples_of_short_epochs_are_known_in_a_wide_swarm),
      cmocka_unit_test(peer_that_dies_or_leaves_is_not_counted_for_long),
      cmocka_unit_test(client_that_loads_is_known_to_come_until_it_is_there),
      cmocka_unit_test(open_peers_know_of_one_that_loads),
      cmocka_unit_test(contributor_that_steps_aside_is_not_counted_any_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
