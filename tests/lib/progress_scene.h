/* Contributors of one run in the simulator, and what they count. For the tests of core/progress. */
#ifndef HV_TESTS_PROGRESS_SCENE_H
#define HV_TESTS_PROGRESS_SCENE_H

#include "lib/progress_swarm.h"

#include "core/progress/progress_inner.h"
#include "lib/check.h"

#include <math.h>
#include <string.h>

enum { NODES_MAX = 48, TARGET = 12000 };

typedef struct scene {
  hv_mem mem;
  progress_swarm s;
  check_rng rng;
} scene;

static inline scene *open_scene(uint64_t seed) {
  static scene one;
  memset(&one, 0, sizeof one);
  hv_mem_init(&one.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  hv_sim *sim = hv_sim_new(&one.mem, &config);
  assert_non_null(sim);
  one.rng.state = seed;
  one.s.terms = (hv_progress_terms){.target = TARGET, .drift_peers = -1, .drift_rate = -1, .matchmaking_ms = 5000};
  progress_swarm_init(&one.s, sim, &one.mem, NODES_MAX);
  return &one;
}

static inline void close_scene(scene *c) {
  assert_int_equal(hv_sim_free(c->s.dht.sim), 0);
  progress_swarm_fini(&c->s);
  assert_int_equal(c->mem.blocks, 0);
}

static inline void run(scene *c, double seconds) {
  dht_swarm_run(&c->s.dht, seconds);
}

/* One more contributor, at this speed. */
static inline size_t join(scene *c, double speed, int client_mode) {
  size_t knows = c->s.dht.n ? check_random(&c->rng) % c->s.dht.n : 0, node;
  while (c->s.dht.n && c->s.dht.seats[knows].client_mode)
    knows = (knows + 1) % c->s.dht.n;
  node = dht_swarm_add(&c->s.dht, &knows, c->s.dht.n ? 1 : 0, client_mode);
  run(c, 0.01);
  progress_swarm_open(&c->s, node);
  if (speed > 0)
    progress_swarm_work(&c->s, node, speed);
  return node;
}

static inline void grow(scene *c, size_t n, double speed) {
  for (size_t i = 0; i < n; i++)
    join(c, speed, 0);
}

static inline hv_progress_figures read_of(scene *c, size_t node) {
  return progress_swarm_read(&c->s, node);
}

static inline void assert_near(double value, double expected, double by) {
  if (fabs(value - expected) > by)
    fail_msg("%g is not %g, give or take %g", value, expected, by);
}

/* All of [from, to) see this epoch. */
static inline void assert_epoch(scene *c, size_t from, size_t to, uint64_t epoch) {
  for (size_t i = from; i < to; i++)
    if (hv_sim_alive(c->s.dht.sim, i))
      assert_int_equal(read_of(c, i).epoch, epoch);
}

static inline void all_begin(scene *c, size_t from, size_t to, uint64_t epoch) {
  for (size_t i = from; i < to; i++) {
    progress_swarm_begin(&c->s, i, epoch);
    progress_swarm_wake(&c->s, i);
  }
}

#endif
