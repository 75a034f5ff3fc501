/* A few nodes of a match swarm, and the short words in which its scenarios are told. */
#ifndef HV_TESTS_MATCH_SCENE_H
#define HV_TESTS_MATCH_SCENE_H

#include "lib/check.h"

#include "lib/match_swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCENE_NODES_MAX = 48, RTT_US = 24000 /* of the sim's own link, at most */ };

typedef struct scene {
  hv_mem mem;
  match_swarm s;
} scene;

static inline void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

static inline scene *open_scene(uint64_t seed) {
  static scene one;
  memset(&one, 0, sizeof one);
  hv_mem_init(&one.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.say = getenv("NARRATE") ? print_line : NULL;
  hv_sim *sim = hv_sim_new(&one.mem, &config);
  assert_non_null(sim);
  match_swarm_init(&one.s, sim, &one.mem, SCENE_NODES_MAX);
  return &one;
}

static inline void close_scene(scene *c) {
  assert_int_equal(hv_sim_free(c->s.sim), 0);
  match_swarm_fini(&c->s);
  assert_int_equal(c->mem.blocks, 0);
}

static inline void grow(scene *c, size_t n) {
  for (size_t i = 0; i < n; i++)
    match_swarm_add(&c->s);
}

static inline match_try *seek(scene *c, size_t node, const char *epoch, uint32_t expected, uint32_t wait_ms) {
  return match_swarm_seek(&c->s, node, epoch, expected, wait_ms, hv_span_of(NULL, 0));
}

static inline match_try *newest(scene *c, size_t node) {
  return match_swarm_try(&c->s, node);
}

/* These nodes, from..to-1 without one (or none: SIZE_MAX), are one group of so many and agree on it. */
static inline void one_group(scene *c, size_t from, size_t to, size_t without) {
  const hv_match_group *first = NULL;
  size_t n = to - from - (without >= from && without < to);
  for (size_t i = from; i < to; i++) {
    if (i == without)
      continue;
    match_try *t = newest(c, i);
    assert_true(t->done);
    if (t->status != HV_OK)
      fail_msg("node %zu: %s: %s", i, hv_status_name(t->status), t->text);
    if (!first)
      first = t->group;
    assert_true(match_swarm_agree(first, t->group));
    assert_null(match_swarm_wrong(t->group, c->s.config.n_chunks));
    assert_int_equal(match_swarm_place(&c->s, t->group, i), t->group->me);
  }
  assert_int_equal(first->n_members, n);
}

static inline void run(scene *c, double seconds) {
  match_swarm_run(&c->s, seconds);
}

#endif
