/* Slow peers delay nobody, by nature or on purpose: joiners that sit on a donor's places, donors that send just enough not to
 * be given up or are busy for ever, told against the virtual clock. */
#include "lib/state_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = STATE_NODES_MAX };

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  state_scene s;
  state_copy copies[NODES];
  state_offering offers[NODES];
  state_copy others[NODES]; /* what some offer beside, or instead */
  state_offering other_offers[NODES];
  size_t donors; /* the first nodes */
  state_try tries[NODES];
} scene;

static void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

/* rate: bytes per second between any two nodes. The first nodes are liars. */
static scene *open_scene_with(uint64_t seed, uint64_t rate, uint32_t chunk_bytes, size_t nodes, state_lie lie, size_t liars) {
  scene *sc = calloc(1, sizeof *sc);
  assert_non_null(sc);
  hv_mem_init(&sc->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.link.rate = rate;
  config.window = 64 << 10;
  config.say = getenv("HV_NARRATE") ? print_line : NULL;
  sc->sim = hv_sim_new(&sc->mem, &config);
  state_scene_init(&sc->s, sc->sim, &sc->mem);
  sc->s.swarm.state.chunk_bytes = chunk_bytes;
  for (size_t i = 0; i < nodes; i++)
    state_scene_add(&sc->s, i < liars ? lie : STATE_HONEST, 0);
  dht_swarm_run(&sc->s.swarm, 5);
  return sc;
}

static scene *open_scene(uint64_t seed, uint64_t rate, uint32_t chunk_bytes, size_t nodes) {
  return open_scene_with(seed, rate, chunk_bytes, nodes, STATE_HONEST, 0);
}

/* The nodes that do not yet, up to the n-th, offer the same. */
static void offer_all(scene *sc, size_t n, size_t values) {
  for (size_t i = sc->donors; i < n; i++) {
    state_copy_make(&sc->copies[i], &sc->mem, 7, values, HV_CODEC_NONE);
    state_offer(&sc->s, i, &sc->offers[i], &sc->copies[i], "run", 3);
  }
  sc->donors = n;
}

static void all_offered(scene *sc) {
  dht_swarm_run(&sc->s.swarm, 5);
  for (size_t i = 0; i < sc->donors; i++)
    assert_int_equal(sc->offers[i].status, HV_OK);
}

static void got_it(scene *sc, size_t node) {
  if (sc->tries[node].status != HV_OK)
    fail_msg("node %zu: it ended with %s (%s)", node, hv_status_name(sc->tries[node].status), sc->tries[node].text);
  assert_true(state_same(&sc->tries[node], &sc->copies[0]));
}

static size_t uploads(scene *sc, size_t node) {
  return hv_state_uploads(hv_node_state(sc->s.swarm.seats[node].node));
}

static void close_scene(scene *sc) {
  dht_swarm_run(&sc->s.swarm, 60);
  assert_int_equal(hv_sim_free(sc->sim), 0);
  state_scene_fini(&sc->s);
  for (size_t i = 0; i < NODES; i++)
    state_try_free(&sc->tries[i]);
  for (size_t i = 0; i < sc->donors; i++)
    state_copy_free(&sc->copies[i]);
  for (size_t i = 0; i < NODES; i++)
    if (sc->others[i].memory[0])
      state_copy_free(&sc->others[i]);
  assert_int_equal(sc->mem.blocks, 0);
  free(sc);
}

/* ---- joiners that sit on a donor's places ---- */

/* Holds a stream to a donor and asks for one chunk every 29 s, just not to be dropped; dials again when it is. */
typedef struct squatter {
  hv_command command;
  hv_env *env;
  hv_target donor;
  hv_hash digest;
  hv_stream *stream;
  hv_timer timer;
  size_t closed;
} squatter;

static void squat_closed(hv_stream *stream, const hv_event *event) {
  squatter *q = stream->owner;
  (void)event;
  q->stream = NULL;
  q->closed++;
  q->env->timer_set(q->env, &q->timer, DHT_SECOND);
}

static void squat_nothing(hv_stream *stream, const hv_event *event) {
  (void)stream;
  (void)event;
}

static void squat(hv_timer *timer, const hv_event *event) {
  static const hv_stream_events on = {squat_nothing, squat_nothing, squat_closed, .heavy = 0};
  squatter *q = timer->owner;
  hv_msg ask = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = 0}}, first = {.kind = HV_MSG_STATE, .u.state = {q->digest}};
  (void)event;
  if (!q->stream && q->env->stream_open(q->env, &q->donor, &first, &on, q, &q->stream) != HV_OK)
    q->stream = NULL;
  if (q->stream)
    q->env->stream_send(q->env, q->stream, &ask, NULL);
  q->env->timer_set(q->env, timer, 29 * DHT_SECOND);
}

static void run_squat(hv_command *command, void *core) {
  squatter *q = (squatter *)command;
  (void)core;
  squat(&q->timer, NULL);
}

static void sit_on(scene *sc, size_t node, size_t donor, squatter *q) {
  *q = (squatter){.command = {.run = run_squat},
                  .env = sc->s.swarm.seats[node].env,
                  .donor = hv_sim_target(sc->sim, donor),
                  .digest = sc->offers[donor].offer.digest,
                  .timer = {.fire = squat, .owner = q}};
  assert_int_equal(hv_sim_command(sc->sim, node, &q->command), HV_OK);
}

/* Eight identities, two streams each: all places of a donor. Each of ten joiners, one after the other, gets in. */
static void squatter_loses_a_donors_place_to_a_joiner(void **unused) {
  (void)unused;
  enum { SQUATTERS = 16, JOINER = 1 + SQUATTERS / 2, N = JOINER + 10 };
  squatter q[SQUATTERS];
  scene *sc = open_scene(1, 100 << 10, 1024, N);
  offer_all(sc, 1, 50000);
  all_offered(sc);
  for (size_t i = 0; i < SQUATTERS; i++)
    sit_on(sc, 1 + i / 2, 0, &q[i]);
  dht_swarm_run(&sc->s.swarm, 25);
  assert_int_equal(uploads(sc, 0), SQUATTERS);
  for (size_t i = JOINER; i < N; i++) {
    state_load(&sc->s, i, &sc->tries[i], "run", 60000);
    dht_swarm_run(&sc->s.swarm, 1);
    assert_in_range(uploads(sc, 0), 2, SQUATTERS);
  }
  assert_true(state_finish(&sc->s, &sc->tries[JOINER], N - JOINER, 60));
  size_t closed = 0;
  for (size_t i = JOINER; i < N; i++)
    got_it(sc, i);
  for (size_t i = 0; i < SQUATTERS; i++)
    closed += q[i].closed;
  assert_true(closed >= N - JOINER);
  close_scene(sc);
}

/* More of them than a donor has places, and each so slow that it makes way for the next: they take turns, and all of them get it. A
 * chunk takes 0.8 s, all of it alone 20 s. */
static void joiners_over_slow_lines_take_turns(void **unused) {
  (void)unused;
  enum { N = 31 };
  size_t broken = 0;
  scene *sc = open_scene(2, 10 << 10, 8192, N);
  offer_all(sc, 1, 50000);
  all_offered(sc);
  for (size_t i = 1; i < N; i++)
    state_load(&sc->s, i, &sc->tries[i], "run", 300000);
  assert_true(state_finish(&sc->s, &sc->tries[1], N - 1, 300));
  for (size_t i = 1; i < N; i++) {
    got_it(sc, i);
    broken += sc->tries[i].load.seen.broken;
    assert_in_range(state_twice(&sc->tries[i]), 0, sc->tries[i].load.seen.broken);
  }
  assert_true(broken > 0); /* some did make way */
  close_scene(sc);
}

/* 200 kB over a line of 10 KiB/s take 20 s, and the joiner allows 5 s. Bytes come all the time, so it has time. */
static void load_lasts_while_bytes_come(void **unused) {
  (void)unused;
  scene *sc = open_scene(3, 10 << 10, 8192, 2);
  offer_all(sc, 1, 50000);
  all_offered(sc);
  state_load(&sc->s, 1, &sc->tries[1], "run", 5000);
  assert_true(state_finish(&sc->s, &sc->tries[1], 1, 60));
  got_it(sc, 1);
  assert_true(sc->tries[1].ended_us - sc->tries[1].started_us > 15 * DHT_SECOND);
  close_scene(sc);
}

/* The donor's line ends after a part, and comes back in 8 s; the joiner allows 5 s, and says how much had come. */
static void load_ends_some_time_after_its_last_byte(void **unused) {
  (void)unused;
  scene *sc = open_scene(4, 10 << 10, 8192, 2);
  offer_all(sc, 1, 50000);
  all_offered(sc);
  state_load(&sc->s, 1, &sc->tries[1], "run", 5000);
  dht_swarm_run(&sc->s.swarm, 10);
  assert_int_equal(sc->tries[1].done, 0);
  hv_sim_cut(sc->sim, 0, 1, 1);
  dht_swarm_run(&sc->s.swarm, 8);
  assert_int_equal(sc->tries[1].status, HV_TIMEOUT);
  assert_non_null(strstr(sc->tries[1].text, "nothing arrived for 5 s after "));
  hv_sim_cut(sc->sim, 0, 1, 0);
  close_scene(sc);
}

/* ---- donors of several speeds ---- */

/* Lines of 20, 40 and 80 KiB/s to a joiner give it nine tenths of their sum. */
static void load_takes_from_each_source_by_its_speed(void **unused) {
  (void)unused;
  enum { DONORS = 3, JOINER = DONORS, VALUES = 700000 };
  for (uint64_t seed = 5; seed < 10; seed++) {
    scene *sc = open_scene(seed, 0, 8192, JOINER + 1);
    for (size_t i = 0; i < DONORS; i++) {
      hv_sim_link link = {.delay_us = 25000, .jitter_us = 2000, .rate = (uint64_t)(20 << 10) << i};
      hv_sim_set_link(sc->sim, i, JOINER, &link);
    }
    offer_all(sc, DONORS, VALUES);
    all_offered(sc);
    state_load(&sc->s, JOINER, &sc->tries[JOINER], "run", 60000);
    assert_true(state_finish(&sc->s, &sc->tries[JOINER], 1, 60));
    got_it(sc, JOINER);
    double took_s = (double)(sc->tries[JOINER].ended_us - sc->tries[JOINER].started_us) * 1e-6;
    double rate = VALUES * sizeof(float) / took_s / (140 << 10);
    if (rate < 0.9)
      fail_msg("seed %d: the load took %.1f s, %.2f of the lines", (int)seed, took_s, rate);
    close_scene(sc);
  }
}

/* ---- donors that send just enough not to be given up ---- */

/* Four of ten say the highest priority, and send a chunk every 14.9 s. The manifest comes from one of them, at once. */
static void donors_that_are_slow_on_purpose_hold_no_joiner_up(void **unused) {
  (void)unused;
  enum { SLOW = 4, DONORS = 10, JOINER = DONORS };
  for (uint64_t seed = 10; seed < 18; seed++) {
    scene *sc = open_scene_with(seed, 200 << 10, 1024, JOINER + 1, STATE_LIE_SLOW, SLOW);
    offer_all(sc, DONORS, 100000);
    for (size_t i = 0; i < SLOW; i++)
      sc->offers[i].offer.priority = 5;
    all_offered(sc);
    state_load(&sc->s, JOINER, &sc->tries[JOINER], "run", 600000);
    assert_true(state_finish(&sc->s, &sc->tries[JOINER], 1, 601));
    got_it(sc, JOINER);
    assert_in_range(sc->tries[JOINER].ended_us - sc->tries[JOINER].started_us, 0, 30 * DHT_SECOND);
    assert_in_range(state_twice(&sc->tries[JOINER]), 0, SLOW);
    close_scene(sc);
  }
}

/* More than a joiner remembers donors; they name the right state, say the highest priority, and are silent or slow. */
static void a_crowd_that_pushes_to_the_front_leaves_places_to_others(void **unused) {
  (void)unused;
  static const state_lie ways[] = {STATE_LIE_SILENT, STATE_LIE_SLOW};
  enum { LIARS = 70, DONORS = 150, JOINER = DONORS };
  for (size_t way = 0; way < 2; way++) {
    scene *sc = open_scene_with(20 + way, 200 << 10, 1024, JOINER + 1, ways[way], LIARS);
    offer_all(sc, DONORS, 30000);
    for (size_t i = 0; i < LIARS; i++)
      sc->offers[i].offer.priority = 5;
    all_offered(sc);
    state_load(&sc->s, JOINER, &sc->tries[JOINER], "run", 600000);
    assert_true(state_finish(&sc->s, &sc->tries[JOINER], 1, 601));
    got_it(sc, JOINER);
    assert_int_equal(sc->tries[JOINER].load.seen.voters, DONORS);
    assert_in_range(sc->tries[JOINER].ended_us - sc->tries[JOINER].started_us, 0, 40 * DHT_SECOND);
    close_scene(sc);
  }
}

/* Others offer only when a joiner has found all places taken, by liars. */
static void places_of_liars_go_to_others(void **unused) {
  (void)unused;
  enum { LIARS = 66, DONORS = 70, JOINER = DONORS };
  scene *sc = open_scene_with(30, 200 << 10, 1024, JOINER + 1, STATE_LIE_MANIFEST, LIARS);
  offer_all(sc, LIARS, 3000);
  all_offered(sc);
  state_load(&sc->s, JOINER, &sc->tries[JOINER], "run", 60000);
  dht_swarm_run(&sc->s.swarm, 0.5);
  offer_all(sc, DONORS, 3000);
  assert_true(state_finish(&sc->s, &sc->tries[JOINER], 1, 61));
  got_it(sc, JOINER);
  assert_true(sc->tries[JOINER].load.seen.liars >= 64);
  close_scene(sc);
}

/* ---- donors that are busy ---- */

static void offers_another(scene *sc, size_t node, uint64_t epoch) {
  state_copy_make(&sc->others[node], &sc->mem, 8, 40000, HV_CODEC_NONE);
  state_offer(&sc->s, node, &sc->other_offers[node], &sc->others[node], "run", epoch);
}

/* Four donors always answer that they are busy, at once or late. The five others move on to the next epoch. */
static void busy_donors_keep_no_joiner_from_a_newer_state(void **unused) {
  (void)unused;
  enum { BUSY = 4, DONORS = 9, JOINER = DONORS };
  for (int late = 0; late < 2; late++) {
    scene *sc =
        open_scene_with(40 + (uint64_t)late, 100 << 10, 1024, JOINER + 1, late ? STATE_LIE_BUSY_LATE : STATE_LIE_BUSY, BUSY);
    offer_all(sc, DONORS, 50000);
    all_offered(sc);
    state_load(&sc->s, JOINER, &sc->tries[JOINER], "run", 120000);
    dht_swarm_run(&sc->s.swarm, 0.5);
    assert_int_equal(sc->tries[JOINER].done, 0);
    for (size_t i = BUSY; i < DONORS; i++) {
      state_withdraw(&sc->s, i, "run", 1);
      offers_another(sc, i, 4);
    }
    assert_true(state_finish(&sc->s, &sc->tries[JOINER], 1, 121));
    assert_int_equal(sc->tries[JOINER].status, HV_OK);
    assert_int_equal(sc->tries[JOINER].epoch, 4);
    assert_true(state_same(&sc->tries[JOINER], &sc->others[BUSY]));
    assert_in_range(sc->tries[JOINER].ended_us - sc->tries[JOINER].started_us, 0, 85 * DHT_SECOND); /* who has a part looks later */
    close_scene(sc);
  }
}

/* All of its places are taken for minutes, as by many who came first. Meanwhile another state is announced, so that for a while no
 * majority names one. A joiner that waits looks at the announcements the more rarely the longer it takes, and has its turn. */
static void a_donor_that_is_busy_for_minutes_is_waited_for(void **unused) {
  (void)unused;
  scene *sc = open_scene_with(42, 100 << 10, 1024, 3, STATE_LIE_BUSY, 1);
  offer_all(sc, 1, 50000);
  all_offered(sc);
  state_load(&sc->s, 2, &sc->tries[2], "run", 600000);
  dht_swarm_run(&sc->s.swarm, 10);
  offers_another(sc, 1, 3);
  dht_swarm_run(&sc->s.swarm, 50);
  state_withdraw(&sc->s, 1, "run", 1);
  dht_swarm_run(&sc->s.swarm, 340);
  assert_int_equal(sc->tries[2].done, 0);
  sc->s.lies[0] = STATE_HONEST;
  assert_true(state_finish(&sc->s, &sc->tries[2], 1, 10));
  got_it(sc, 2);
  assert_in_range(sc->tries[2].load.seen.looks, 5, 8); /* each 15 s while there is no majority, then ever more rarely */
  close_scene(sc);
}

/* A log is many small loads. A donor that sends nothing could delay each of them by 15 s. */
static void silent_donor_delays_only_the_first_of_many_loads(void **unused) {
  (void)unused;
  enum { DONORS = 4, JOINER = DONORS, LOADS = 6 };
  for (uint64_t seed = 1; seed <= 4; seed++) {
    scene *sc = open_scene_with(seed, 200 << 10, 1 << 20, JOINER + 1, STATE_LIE_SILENT, 1);
    offer_all(sc, DONORS, 100);
    all_offered(sc);
    int silent_first = 0;
    for (int i = 0; i < LOADS; i++) {
      state_try_free(&sc->tries[JOINER]);
      state_load(&sc->s, JOINER, &sc->tries[JOINER], "run", 60000);
      assert_true(state_finish(&sc->s, &sc->tries[JOINER], 1, 60));
      got_it(sc, JOINER);
      uint64_t took_us = sc->tries[JOINER].ended_us - sc->tries[JOINER].started_us;
      silent_first += took_us > DHT_SECOND;
      assert_in_range(took_us, 0, 4 * DHT_SECOND);
    }
    assert_in_range(silent_first, 0, 1);
    close_scene(sc);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(squatter_loses_a_donors_place_to_a_joiner),
      cmocka_unit_test(joiners_over_slow_lines_take_turns),
      cmocka_unit_test(load_lasts_while_bytes_come),
      cmocka_unit_test(load_ends_some_time_after_its_last_byte),
      cmocka_unit_test(load_takes_from_each_source_by_its_speed),
      cmocka_unit_test(donors_that_are_slow_on_purpose_hold_no_joiner_up),
      cmocka_unit_test(a_crowd_that_pushes_to_the_front_leaves_places_to_others),
      cmocka_unit_test(places_of_liars_go_to_others),
      cmocka_unit_test(busy_donors_keep_no_joiner_from_a_newer_state),
      cmocka_unit_test(a_donor_that_is_busy_for_minutes_is_waited_for),
      cmocka_unit_test(silent_donor_delays_only_the_first_of_many_loads),
  };
  return cmocka_run_group_tests_name("sim: slow peers of a state", tests, NULL, NULL);
}
