/* How a joiner gets the state of donors that give one on demand, told against the virtual clock. */
#include "lib/demand_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 12, HOUR_MS = 3600000 };

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  demand_scene d;
} scene;

static void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

static void open_scene(scene *sc, uint64_t seed, size_t nodes) {
  memset(sc, 0, sizeof *sc);
  hv_mem_init(&sc->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.say = getenv("HV_NARRATE") ? print_line : NULL;
  sc->sim = hv_sim_new(&sc->mem, &config);
  demand_scene_init(&sc->d, sc->sim, &sc->mem);
  for (size_t i = 0; i < nodes; i++)
    state_scene_add(&sc->d.s, STATE_HONEST, 0);
  dht_swarm_run(&sc->d.s.swarm, 5);
}

/* The first n nodes give one replica, and have been declared. */
static void donors(scene *sc, size_t n, size_t values) {
  for (size_t i = 0; i < n; i++)
    demand_give(&sc->d, i, 7, values, 0);
  dht_swarm_run(&sc->d.s.swarm, 5);
}

static void close_scene(scene *sc) {
  dht_swarm_run(&sc->d.s.swarm, 60);
  for (size_t i = 0; i < sc->d.n_donors; i++)
    assert_int_equal(sc->d.donors[i].n_twice, 0);
  assert_int_equal(hv_sim_free(sc->sim), 0);
  demand_scene_fini(&sc->d);
  assert_int_equal(sc->mem.blocks, 0);
}

static void gets(scene *sc, demand_joiner *j) {
  if (j->status != HV_OK)
    fail_msg("it ended with %s: %s", hv_status_name(j->status), j->try.text);
  assert_true(state_same(&j->try, &sc->d.donors[0].copy));
  assert_true(demand_age(&sc->d, j) == 0);
  state_try_free(&j->try);
}

static void joiner_wants_and_gets(scene *sc, size_t node, int64_t clock_off_ms) {
  demand_joiner j = {.clock_off_ms = clock_off_ms};
  demand_want(&sc->d, node, &j);
  assert_true(demand_finish(&sc->d, &j, 1, 60));
  gets(sc, &j);
}

static void joiner_gets_a_state_made_after_it_asked(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 1, 6);
  donors(&sc, 4, 3000);
  assert_int_equal(sc.d.n_given, 0); /* nothing is offered before */
  joiner_wants_and_gets(&sc, 5, 0);
  assert_int_equal(sc.d.n_given, 4);
  dht_swarm_run(&sc.d.s.swarm, 3);
  joiner_wants_and_gets(&sc, 4, 0); /* a new one, although the other is still on offer */
  assert_int_equal(sc.d.n_given, 8);
  close_scene(&sc);
}

static void joiner_without_donors_is_told_so_at_once(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 2, 4);
  demand_joiner j = {0};
  uint64_t begin = hv_sim_now(sc.sim);
  demand_want(&sc.d, 3, &j);
  assert_true(demand_finish(&sc.d, &j, 1, 60));
  assert_int_equal(j.status, HV_NOT_FOUND);
  assert_in_range(hv_sim_now(sc.sim) - begin, 0, DHT_SECOND);
  close_scene(&sc);
}

static void joiners_at_the_same_time_share_offers(void **unused) {
  (void)unused;
  enum { JOINERS = 9 };
  static demand_joiner js[JOINERS];
  for (uint64_t seed = 10; seed < 30; seed++) {
    scene sc;
    memset(js, 0, sizeof js);
    open_scene(&sc, seed, 3 + JOINERS);
    donors(&sc, 3, 20000);
    for (size_t i = 0; i < JOINERS; i++) {
      demand_want(&sc.d, 3 + i, &js[i]);
      dht_swarm_run(&sc.d.s.swarm, 0.02);
    }
    assert_true(demand_finish(&sc.d, js, JOINERS, 60));
    for (size_t i = 0; i < JOINERS; i++)
      gets(&sc, &js[i]);
    for (size_t i = 0; i < 3; i++)
      assert_in_range(sc.d.donors[i].n_given, 1, JOINERS);
    close_scene(&sc);
  }
}

static void joiner_with_a_clock_an_hour_off_gets_the_state(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 40, 6);
  donors(&sc, 3, 3000);
  joiner_wants_and_gets(&sc, 3, 0);
  joiner_wants_and_gets(&sc, 4, -HOUR_MS);
  joiner_wants_and_gets(&sc, 5, HOUR_MS);
  joiner_wants_and_gets(&sc, 3, 0);
  close_scene(&sc);
}

static void a_number_far_ahead_begins_no_sharing(void **unused) {
  (void)unused;
  static const uint64_t ahead[] = {UINT64_MAX, 1ull << 47, 6000};
  scene sc;
  open_scene(&sc, 50, 4);
  donors(&sc, 1, 3000);
  for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++) {
    uint64_t number = ahead[i] > 1ull << 40 ? ahead[i] : demand_clock(&sc.d) + ahead[i];
    demand_joiner j = {.number = number, .only_asks = 1};
    demand_want(&sc.d, 2, &j);
    assert_true(demand_finish(&sc.d, &j, 1, 60));
    assert_int_equal(j.status, HV_OK); /* it took the number that the donor named */
    assert_in_range(j.number, demand_clock(&sc.d) - 1000, demand_clock(&sc.d) + 1000);
  }
  dht_swarm_run(&sc.d.s.swarm, 5);
  for (size_t i = 0; i < sc.d.n_given; i++)
    assert_in_range(sc.d.given[i].number, 0, demand_clock(&sc.d));
  joiner_wants_and_gets(&sc, 3, 0);
  close_scene(&sc);
}

static void a_network_that_asks_all_the_time_gets_a_bounded_rate(void **unused) {
  (void)unused;
  enum { SECONDS = 60 };
  scene sc;
  open_scene(&sc, 60, 3);
  donors(&sc, 1, 3000);
  for (size_t i = 0; i < SECONDS * 5; i++) {
    demand_joiner j = {.only_asks = 1};
    demand_want(&sc.d, 2, &j);
    assert_true(demand_finish(&sc.d, &j, 1, 60));
    assert_int_equal(j.status, HV_OK);
    dht_swarm_run(&sc.d.s.swarm, 0.2);
  }
  assert_in_range(sc.d.donors[0].n_given, SECONDS / 2, SECONDS / 2 + 30);
  close_scene(&sc);
}

static int name_absurd_numbers(dht_seat *liar, const hv_event *event) {
  hv_msg msg = {.kind = HV_MSG_STATE_WANTED, .u.state_wanted.number = liar->number % 2 ? UINT64_MAX : 0};
  if (event->msg->kind != HV_MSG_STATE_WANTED)
    return 0;
  liar->env->reply(liar->env, event->request, &msg);
  return 1;
}

static void liars_about_the_number_under_half_change_nothing(void **unused) {
  (void)unused;
  for (int hours = -1; hours <= 1; hours++) {
    scene sc;
    open_scene(&sc, 65, 7);
    sc.d.s.swarm.lie = name_absurd_numbers;
    sc.d.s.swarm.seats[1].is_liar = sc.d.s.swarm.seats[2].is_liar = 1;
    donors(&sc, 5, 3000);
    joiner_wants_and_gets(&sc, 6, hours * HOUR_MS);
    assert_int_equal(sc.d.n_given, 3);
    close_scene(&sc);
  }
}

static void dead_donors_cost_two_seconds(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 70, 7);
  donors(&sc, 5, 3000);
  hv_sim_unplug(sc.sim, 3);
  hv_sim_kill(sc.sim, 4);
  uint64_t begin = hv_sim_now(sc.sim);
  joiner_wants_and_gets(&sc, 6, 0);
  assert_in_range(hv_sim_now(sc.sim) - begin, 0, 5 * DHT_SECOND);
  close_scene(&sc);
}

static void an_ended_donor_is_not_asked(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 80, 4);
  donors(&sc, 2, 3000);
  demand_end(&sc.d, &sc.d.donors[0]);
  dht_swarm_run(&sc.d.s.swarm, 5);
  assert_true(sc.d.donors[0].over && sc.d.donors[0].status == HV_CANCELLED);
  joiner_wants_and_gets(&sc, 3, 0);
  assert_int_equal(sc.d.donors[0].n_given, 0);
  assert_int_equal(sc.d.donors[1].n_given, 1);
  close_scene(&sc);
}

/* A peer that was restarted with an older build may still be declared. It is asked what it speaks, and nothing else. */
static void a_donor_without_the_feature_is_not_asked(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 90, 4);
  donors(&sc, 1, 3000);
  hv_sim_set_versions(sc.sim, 0, (hv_versions){HV_PROTOCOL_LOWEST, HV_PROTOCOL_HIGHEST, 0});
  hv_sim_unplug(sc.sim, 0);
  assert_int_equal(hv_sim_restart(sc.sim, 0), HV_OK);
  dht_swarm_run(&sc.d.s.swarm, 5);
  demand_joiner j = {0};
  demand_want(&sc.d, 3, &j);
  assert_true(demand_finish(&sc.d, &j, 1, 60));
  assert_int_equal(j.status, HV_UNREACHABLE);
  assert_int_equal(sc.d.n_requests, 0);
  close_scene(&sc);
}

static void a_node_that_ends_ends_its_waits_and_searches(void **unused) {
  (void)unused;
  for (int kills = 0; kills < 2; kills++) {
    scene sc;
    open_scene(&sc, 100, 4);
    donors(&sc, 2, 3000);
    demand_joiner j = {0};
    demand_want(&sc.d, 3, &j);
    dht_swarm_run(&sc.d.s.swarm, 0.03);
    if (kills) {
      hv_sim_kill(sc.sim, 3);
      hv_sim_kill(sc.sim, 0);
    } else {
      hv_sim_stop(sc.sim, 3);
      hv_sim_stop(sc.sim, 0);
    }
    dht_swarm_run(&sc.d.s.swarm, 5);
    assert_true(sc.d.donors[0].over);
    assert_int_equal(j.status, kills ? HV_CLOSED : HV_CANCELLED);
    close_scene(&sc);
  }
}

/* The allocation number n of a node fails while it gives, or gets. True: it had none of that number. */
static int without(size_t node, long n) {
  scene sc;
  open_scene(&sc, 110, 4);
  demand_give(&sc.d, 0, 7, 3000, 0);
  hv_mem_fail_in(hv_sim_mem(sc.sim, node), n);
  demand_give(&sc.d, 1, 7, 3000, 0);
  dht_swarm_run(&sc.d.s.swarm, 3);
  demand_joiner j = {0};
  demand_want(&sc.d, 3, &j);
  assert_true(demand_finish(&sc.d, &j, 1, 100));
  int all = hv_sim_mem(sc.sim, node)->refused == 0;
  hv_mem_fail_in(hv_sim_mem(sc.sim, node), -1);
  assert_true(j.status == HV_OK || node == 3);
  state_try_free(&j.try);
  dht_swarm_run(&sc.d.s.swarm, 5);
  joiner_wants_and_gets(&sc, 3, 0);
  close_scene(&sc);
  return all;
}

static void a_node_without_memory_harms_no_other(void **unused) {
  (void)unused;
  for (size_t node = 1; node < 4; node += 2) {
    long n = 0;
    while (!without(node, n))
      n++;
    assert_true(n > 10);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joiner_gets_a_state_made_after_it_asked),
      cmocka_unit_test(joiner_without_donors_is_told_so_at_once),
      cmocka_unit_test(joiners_at_the_same_time_share_offers),
      cmocka_unit_test(joiner_with_a_clock_an_hour_off_gets_the_state),
      cmocka_unit_test(a_number_far_ahead_begins_no_sharing),
      cmocka_unit_test(a_network_that_asks_all_the_time_gets_a_bounded_rate),
      cmocka_unit_test(liars_about_the_number_under_half_change_nothing),
      cmocka_unit_test(dead_donors_cost_two_seconds),
      cmocka_unit_test(an_ended_donor_is_not_asked),
      cmocka_unit_test(a_donor_without_the_feature_is_not_asked),
      cmocka_unit_test(a_node_without_memory_harms_no_other),
      cmocka_unit_test(a_node_that_ends_ends_its_waits_and_searches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
