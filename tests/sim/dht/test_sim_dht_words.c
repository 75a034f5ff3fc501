/* Which record counts? An owner stores, republishes, and stores again meanwhile; and so many receive it. Told against the virtual
 * clock. */
#include "lib/check.h"

#include "core/dht/dht_inner.h"
#include "lib/dht_swarm.h"

#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 40, TRIES_MAX = 4, OWNER = 0, MINUTE = 60000 };

typedef struct scene {
  hv_mem mem;
  dht_swarm s;
  dht_try tries[TRIES_MAX];
  char key[120];
} scene;

static void links(scene *c, size_t to, uint64_t delay_us) {
  hv_sim_link link = {.delay_us = delay_us};
  assert_int_equal(hv_sim_set_link(c->s.sim, to == HV_SIM_ANY ? HV_SIM_ANY : OWNER, to, &link), HV_OK);
}

/* n nodes that know one another, links of 5 ms; words are said again after half of a lease. 0: leases of an hour. */
static scene *open_scene(uint64_t seed, size_t n, uint32_t lease_ms) {
  static scene one;
  memset(&one, 0, sizeof one);
  hv_mem_init(&one.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  hv_sim *sim = hv_sim_new(&one.mem, &config);
  assert_non_null(sim);
  one.s.config = (hv_dht_config){.wait_timeout_ms = 20000, .replicate_ms = 3600000, .store.ttl_max_ms = lease_ms};
  dht_swarm_init(&one.s, sim, &one.mem, NODES_MAX);
  links(&one, HV_SIM_ANY, 5000);
  for (size_t i = 0; i < n; i++) {
    size_t knows = 0;
    dht_swarm_add(&one.s, &knows, i > 0, 0);
  }
  dht_swarm_run(&one.s, 15);
  char who[HV_PEER_TEXT_MAX];
  hv_peer_id id = hv_sim_target(sim, OWNER).id;
  snprintf(one.key, sizeof one.key, "key[owner:%s]", hv_peer_print(&id, who));
  return &one;
}

static void close_scene(scene *c) {
  assert_int_equal(hv_sim_free(c->s.sim), 0);
  dht_swarm_fini(&c->s);
  assert_int_equal(c->mem.blocks, 0);
}

static dht_try *say(scene *c, size_t i, const char *value, uint64_t ttl_ms) {
  dht_swarm_store(&c->s, OWNER, &c->tries[i], c->key, NULL, value, ttl_ms);
  return &c->tries[i];
}

static void finish(scene *c, size_t i, hv_status status) {
  assert_true(dht_swarm_finish(&c->s, &c->tries[i], 1, 60));
  assert_int_equal(c->tries[i].status, status);
}

static void assert_all_hear(scene *c, const char *value) {
  for (size_t i = 0; i < c->s.n; i++) {
    dht_swarm_get(&c->s, i, &c->tries[3], c->key, 1);
    finish(c, 3, HV_OK);
    assert_int_equal(c->tries[3].value_size, strlen(value));
    assert_memory_equal(c->tries[3].value, value, strlen(value));
  }
}

/* Two of six hear nothing of the owner, so what it stores with five replicas is under way until it gives them up. */
static void cut_two(scene *c, size_t a, size_t b) {
  hv_sim_cut(c->s.sim, OWNER, a, 1);
  hv_sim_cut(c->s.sim, OWNER, b, 1);
}

static dht_work *saying_again(scene *c) {
  dht_work *work = dht_swarm_dht(&c->s, OWNER)->works;
  while (work && !work->published)
    work = work->next;
  return work;
}

static void wait_until_it_says_again(scene *c) {
  for (int i = 0; i < 1000 && !saying_again(c); i++)
    dht_swarm_run(&c->s, 0.01);
  assert_non_null(saying_again(c));
}

/* The earlier word is slow on its way to two of its keepers: they have the later one before it. */
static void earlier_record_stored_later_replaces_no_later_one(void **unused) {
  (void)unused;
  scene *c = open_scene(1, 6, MINUTE);
  links(c, 1, 60000);
  links(c, 2, 60000);
  say(c, 0, "earlier", 600000);
  dht_swarm_run(&c->s, 0.001);
  links(c, 1, 5000);
  links(c, 2, 5000);
  say(c, 1, "later", 600000);
  finish(c, 1, HV_OK);
  assert_false(c->tries[0].done);
  finish(c, 0, HV_OK); /* some had it first */
  assert_int_equal(hv_dht_published(dht_swarm_dht(&c->s, OWNER)), 1);
  assert_all_hear(c, "later");
  dht_swarm_run(&c->s, 200); /* said again, a few times */
  assert_all_hear(c, "later");
  close_scene(c);
}

/* The same while the later one is still under way. */
static void earlier_record_replaces_no_later_store_under_way(void **unused) {
  (void)unused;
  scene *c = open_scene(2, 6, MINUTE);
  links(c, 1, 60000);
  links(c, 2, 60000);
  say(c, 0, "earlier", 600000);
  dht_swarm_run(&c->s, 0.015);
  links(c, 1, 5000);
  links(c, 2, 5000);
  cut_two(c, 3, 4);
  say(c, 1, "later", 600000);
  finish(c, 0, HV_OK);
  assert_false(c->tries[1].done);
  finish(c, 1, HV_OK);
  hv_sim_heal(c->s.sim);
  assert_all_hear(c, "later");
  close_scene(c);
}

/* An earlier life's versions delay two stores. Neither of the two counts the other as its own later record. */
static void record_of_another_key_or_subkey_is_another_record(void **unused) {
  (void)unused;
  static const struct {
    const char *more, *subkey;
  } pairs[][2] = {{{"", "a"}, {"", "b"}}, {{"", NULL}, {"", ""}}, {{"", NULL}, {"!", NULL}}, {{"", "a"}, {"!", "a"}}};
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
    scene *c = open_scene(3, 6, MINUTE);
    for (int life = 0; life < 2; life++) {
      for (size_t i = 0; i < 2; i++) {
        char key[122];
        snprintf(key, sizeof key, "%s%s", c->key, pairs[p][i].more);
        dht_swarm_store(&c->s, OWNER, &c->tries[i], key, pairs[p][i].subkey, life ? "after" : "before", life ? 60000 : 600000);
      }
      for (size_t i = 0; i < 2; i++) {
        finish(c, i, HV_OK);
        assert_int_equal(c->tries[i].item.stored, 5); /* by all its keepers */
      }
      if (life == 0) {
        hv_sim_kill(c->s.sim, OWNER);
        hv_sim_restart(c->s.sim, OWNER);
        dht_swarm_run(&c->s, 5);
      }
    }
    assert_all_hear(c, "after");
    close_scene(c);
  }
}

/* It has a version higher by one, also when less than a lease is left. No node has to report that its own version is in the way. */
static void republished_record_is_accepted_at_once(void **unused) {
  (void)unused;
  scene *c = open_scene(11, 6, MINUTE);
  say(c, 0, "value", 120000);
  finish(c, 0, HV_OK);
  size_t said = 0, more = 0;
  for (int ms = 0; ms < 110000; ms++) {
    said += !more && saying_again(c);
    more = saying_again(c) != NULL;
    assert_true(!more || saying_again(c)->tries == 0);
    dht_swarm_run(&c->s, 0.001);
  }
  assert_true(said >= 3);
  assert_int_equal(dht_swarm_keepers(&c->s, c->key), 5);
  dht_swarm_run(&c->s, 15);
  assert_int_equal(dht_swarm_keepers(&c->s, c->key), 0);
  close_scene(c);
}

/* The republished record meets the program's later record, which is under way and began before it. */
static void republished_record_replaces_no_store_under_way(void **unused) {
  (void)unused;
  scene *c = open_scene(4, 6, MINUTE);
  say(c, 0, "earlier", 600000);
  finish(c, 0, HV_OK);
  dht_swarm_run(&c->s, 29);
  cut_two(c, 1, 2);
  say(c, 1, "later", 600000);
  dht_swarm_run(&c->s, 0.05);
  hv_sim_heal(c->s.sim); /* the calls that were lost stay lost */
  wait_until_it_says_again(c);
  assert_false(c->tries[1].done);
  while (saying_again(c))
    dht_swarm_run(&c->s, 0.01);
  assert_false(c->tries[1].done);
  finish(c, 1, HV_OK);
  assert_all_hear(c, "later");
  close_scene(c);
}

/* And one that has been stored meanwhile. */
static void republished_record_replaces_no_record_stored_meanwhile(void **unused) {
  (void)unused;
  scene *c = open_scene(5, 6, MINUTE);
  say(c, 0, "earlier", 600000);
  finish(c, 0, HV_OK);
  dht_swarm_run(&c->s, 29);
  cut_two(c, 1, 2);
  say(c, 1, "later", 600000);
  wait_until_it_says_again(c); /* it lasts as long as the other did */
  finish(c, 1, HV_OK);
  assert_non_null(saying_again(c));
  assert_true(saying_again(c)->published->stale);
  hv_sim_heal(c->s.sim);
  while (saying_again(c) && saying_again(c)->published->stale)
    dht_swarm_run(&c->s, 0.01);
  assert_all_hear(c, "later");
  assert_int_equal(hv_dht_published(dht_swarm_dht(&c->s, OWNER)), 1);
  dht_swarm_run(&c->s, 200);
  assert_all_hear(c, "later");
  close_scene(c);
}

/* A keeper was away while the owner began anew and all others forgot: what it brings back has the higher version. */
static void republished_record_replaces_an_earlier_life(void **unused) {
  (void)unused;
  enum { AWAY = 1 };
  scene *c = open_scene(6, 5, 0); /* all five are keepers */
  say(c, 0, "before", 600000);
  finish(c, 0, HV_OK);
  assert_int_equal(dht_swarm_keepers(&c->s, c->key), 5);
  hv_sim_group(c->s.sim, AWAY, 1);
  for (size_t i = 0; i < c->s.n; i++)
    if (i != AWAY) {
      hv_sim_kill(c->s.sim, i);
      hv_sim_restart(c->s.sim, i);
    }
  dht_swarm_run(&c->s, 10);
  say(c, 0, "after", 100000);
  finish(c, 0, HV_OK);
  hv_sim_heal(c->s.sim);
  dht_swarm_run(&c->s, 70); /* it is said again after fifty */
  assert_all_hear(c, "after");
  close_scene(c);
}

/* A record without an owner is republished by the node that stored it, until another node's record lives longer. */
static void replaced_record_is_not_republished(void **unused) {
  (void)unused;
  scene *c = open_scene(10, 6, 0);
  dht_swarm_store(&c->s, OWNER, &c->tries[0], "key", NULL, "mine", 100000);
  finish(c, 0, HV_OK);
  dht_swarm_store(&c->s, 3, &c->tries[1], "key", NULL, "theirs", 600000);
  finish(c, 1, HV_OK);
  assert_int_equal(hv_dht_published(dht_swarm_dht(&c->s, OWNER)), 1);
  dht_swarm_run(&c->s, 60); /* it was due after fifty */
  assert_int_equal(hv_dht_published(dht_swarm_dht(&c->s, OWNER)), 0);
  assert_int_equal(hv_dht_published(dht_swarm_dht(&c->s, 3)), 1);
  snprintf(c->key, sizeof c->key, "key");
  assert_all_hear(c, "theirs");
  close_scene(c);
}

static void a_store_ends_as_soon_as_its_replicas_have_it(void **unused) {
  (void)unused;
  scene *c = open_scene(7, 8, MINUTE);
  for (size_t i = 0; i < 8; i++) { /* some are replicas themselves */
    char key[16];
    snprintf(key, sizeof key, "key %zu", i);
    dht_swarm_store(&c->s, i, &c->tries[0], key, NULL, "value", 60000);
    finish(c, 0, HV_OK);
    assert_int_equal(c->tries[0].item.stored, 5);
    assert_int_equal(dht_swarm_keepers(&c->s, key), 5);
    assert_true(c->tries[0].op.rounds == 1 && c->tries[0].op.calls >= 4 && c->tries[0].op.calls <= 5);
  }
  close_scene(c);
  c = open_scene(8, 3, MINUTE); /* fewer than there should be replicas: nobody is looked for in vain */
  say(c, 0, "value", 60000);
  finish(c, 0, HV_OK);
  assert_true(c->tries[0].item.stored == 3 && c->tries[0].op.rounds == 1 && c->tries[0].op.calls == 2);
  close_scene(c);
}

/* Of the ten nearest that it knows eight have gone: the others are looked for. */
static void store_searches_new_keepers_if_the_known_ones_are_gone(void **unused) {
  (void)unused;
  scene *c = open_scene(9, 24, MINUTE);
  const hv_route_contact *nearest[10];
  hv_dht *dht = dht_swarm_dht(&c->s, OWNER);
  hv_hash place;
  dht->env->sha256(dht->env, hv_span_of(c->key, strlen(c->key)), &place);
  size_t n = hv_route_nearest(&dht->route, &place, NULL, nearest, 10), gone = 0;
  assert_int_equal(n, 10);
  for (size_t i = 1; i < c->s.n; i++) {
    hv_peer_id id = hv_sim_target(c->s.sim, i).id;
    for (size_t k = 0; k < 8; k++)
      if (hv_peer_equal(&id, &nearest[k]->id)) {
        hv_sim_unplug(c->s.sim, i);
        gone++;
        break;
      }
  }
  assert_int_equal(gone, 8);
  say(c, 0, "value", 60000);
  finish(c, 0, HV_OK);
  assert_true(c->tries[0].item.stored >= 5);
  assert_true(dht_swarm_keepers(&c->s, c->key) >= 5);
  close_scene(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(earlier_record_stored_later_replaces_no_later_one),
      cmocka_unit_test(earlier_record_replaces_no_later_store_under_way),
      cmocka_unit_test(record_of_another_key_or_subkey_is_another_record),
      cmocka_unit_test(republished_record_is_accepted_at_once),
      cmocka_unit_test(republished_record_replaces_no_store_under_way),
      cmocka_unit_test(republished_record_replaces_no_record_stored_meanwhile),
      cmocka_unit_test(republished_record_replaces_an_earlier_life),
      cmocka_unit_test(replaced_record_is_not_republished),
      cmocka_unit_test(a_store_ends_as_soon_as_its_replicas_have_it),
      cmocka_unit_test(store_searches_new_keepers_if_the_known_ones_are_gone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
