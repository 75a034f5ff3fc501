/* The DHT of a swarm that means well, told against the virtual clock. */
#include "lib/check.h"

#include "lib/dht_swarm.h"

#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 80, TRIES_MAX = 400 };

typedef struct scene {
  hv_mem mem;
  dht_swarm s;
  check_rng rng;
  dht_try tries[TRIES_MAX];
} scene;

static scene *open_scene(uint64_t seed) {
  static scene one;
  memset(&one, 0, sizeof one);
  hv_mem_init(&one.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  hv_sim *sim = hv_sim_new(&one.mem, &config);
  assert_non_null(sim);
  one.rng.state = seed;
  dht_swarm_init(&one.s, sim, &one.mem, NODES_MAX);
  return &one;
}

static void close_scene(scene *c) {
  assert_int_equal(hv_sim_free(c->s.sim), 0);
  dht_swarm_fini(&c->s);
  assert_int_equal(c->mem.blocks, 0);
}

/* n nodes, each knowing one of those before it. */
static void grow(scene *c, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t knows = c->s.n ? check_random(&c->rng) % c->s.n : 0;
    dht_swarm_add(&c->s, &knows, c->s.n ? 1 : 0, 0);
  }
}

static dht_try *store(scene *c, size_t node, const char *key, const char *subkey, const char *value, uint64_t ttl_ms) {
  dht_swarm_store(&c->s, node, &c->tries[0], key, subkey, value, ttl_ms);
  assert_true(dht_swarm_finish(&c->s, c->tries, 1, 60));
  return &c->tries[0];
}

static dht_try *get(scene *c, size_t node, const char *key) {
  dht_swarm_get(&c->s, node, &c->tries[1], key, 1);
  assert_true(dht_swarm_finish(&c->s, c->tries + 1, 1, 60));
  return &c->tries[1];
}

static void assert_value(const dht_try *try, const char *value) {
  assert_int_equal(try->status, HV_OK);
  assert_int_equal(try->value_size, strlen(value));
  assert_memory_equal(try->value, value, strlen(value));
}

static void what_one_stores_all_can_get(void **unused) {
  (void)unused;
  scene *c = open_scene(1);
  grow(c, 20);
  dht_swarm_run(&c->s, 10);
  assert_int_equal(store(c, 3, "key", NULL, "value", 60000)->status, HV_OK);
  assert_int_equal(c->tries[0].item.stored, 5);
  assert_int_equal(dht_swarm_keepers(&c->s, "key"), 5);
  for (size_t i = 0; i < 20; i++)
    assert_value(get(c, i, "key"), "value");
  close_scene(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_one_stores_all_can_get),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
