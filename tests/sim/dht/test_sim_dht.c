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

static dht_try *get_again(scene *c, size_t node, const char *key) {
  dht_swarm_get(&c->s, node, &c->tries[1], key, 0);
  assert_true(dht_swarm_finish(&c->s, c->tries + 1, 1, 60));
  return &c->tries[1];
}

static void assert_value(const dht_try *try, const char *value) {
  assert_int_equal(try->status, HV_OK);
  assert_int_equal(try->value_size, strlen(value));
  assert_memory_equal(try->value, value, strlen(value));
}

/* With few contacts a new one is reason to look around; that one which is known answers is none, or each answer calls for a look.
 */
static void idle_small_swarm_is_quiet(void **unused) {
  (void)unused;
  scene *c = open_scene(50);
  c->s.hello_every_ms = 3600000;
  grow(c, 6);
  dht_swarm_run(&c->s, 60);
  for (size_t i = 0; i < 6; i++)
    assert_int_equal(hv_dht_route(dht_swarm_dht(&c->s, i))->n, 5);
  uint64_t before = hv_sim_count(c->s.sim).messages;
  dht_swarm_run(&c->s, 60);
  uint64_t messages = hv_sim_count(c->s.sim).messages - before;
  if (messages > 6 * 60)
    fail_msg("%d messages in a minute", (int)messages);
  close_scene(c);
}

static void value_stored_by_one_node_is_found_by_all(void **unused) {
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

static void a_dictionary_is_put_together_from_its_subkeys(void **unused) {
  (void)unused;
  scene *c = open_scene(2);
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  for (size_t i = 0; i < 10; i++) {
    char subkey[16];
    snprintf(subkey, sizeof subkey, "peer %zu", i);
    assert_int_equal(store(c, i, "progress", subkey, "x", 60000)->status, HV_OK);
  }
  dht_try *got = get(c, 11, "progress");
  assert_int_equal(got->status, HV_OK);
  assert_int_equal(got->n_records, 10);
  assert_int_equal(store(c, 3, "progress", NULL, "plain", 90000)->status, HV_OK); /* lives longer than all of them */
  got = get(c, 11, "progress");
  assert_int_equal(got->n_records, 1);
  assert_value(got, "plain");
  close_scene(c);
}

static void the_newest_expiry_wins(void **unused) {
  (void)unused;
  scene *c = open_scene(3);
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  assert_int_equal(store(c, 1, "key", NULL, "long", 90000)->status, HV_OK);
  assert_int_equal(store(c, 2, "key", NULL, "short", 60000)->status, HV_EXISTS);
  assert_value(get(c, 5, "key"), "long");
  assert_int_equal(store(c, 2, "key", NULL, "longer", 120000)->status, HV_OK);
  assert_value(get(c, 5, "key"), "longer");
  close_scene(c);
}

static const char *owned_key(scene *c, size_t owner) {
  static char key[120];
  char who[HV_PEER_TEXT_MAX];
  hv_peer_id id = hv_sim_target(c->s.sim, owner).id;
  snprintf(key, sizeof key, "key[owner:%s]", hv_peer_print(&id, who));
  return key;
}

static void owned_key_is_writable_by_its_owner_only(void **unused) {
  (void)unused;
  scene *c = open_scene(4);
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  const char *key = owned_key(c, 4);
  dht_try *try = store(c, 5, key, NULL, "theft", 60000);
  assert_int_equal(try->status, HV_DENIED);
  assert_int_equal(store(c, 4, key, NULL, "mine", 60000)->status, HV_OK);
  assert_value(get(c, 9, key), "mine");
  close_scene(c);
}

/* Anybody can store a plain value under the key of signed declarations, and let it live longer than they do. A get returns the
 * dictionary in both orders. It returns the plain value while nothing signed is there. */
static void strangers_value_hides_no_signed_dictionary(void **unused) {
  (void)unused;
  scene *c = open_scene(55);
  char who[HV_PEER_TEXT_MAX], subkey[80];
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  assert_int_equal(store(c, 9, "roster", NULL, "nobody is here", 3000000)->status, HV_OK);
  assert_value(get(c, 11, "roster"), "nobody is here");
  assert_int_equal(store(c, 8, "roster", "whose?", "unsigned", 30000)->status, HV_OK);
  assert_value(get(c, 11, "roster"), "nobody is here");
  for (size_t i = 0; i < 4; i++) {
    hv_peer_id id = hv_sim_target(c->s.sim, i).id;
    snprintf(subkey, sizeof subkey, "[owner:%s]", hv_peer_print(&id, who));
    assert_int_equal(store(c, i, "roster", subkey, "here", 60000)->status, HV_OK);
  }
  assert_int_equal(get(c, 11, "roster")->n_records, 5); /* four of them, and one that is unsigned */
  assert_int_equal(get_again(c, 10, "roster")->n_records, 5);
  dht_try *recalled = get_again(c, 10, "roster");
  assert_int_equal(recalled->op.calls, 0);
  assert_int_equal(recalled->n_records, 5);
  dht_swarm_get(&c->s, 7, &c->tries[1], "roster", 1);
  c->tries[1].op.majority = 1;
  assert_true(dht_swarm_finish(&c->s, c->tries + 1, 1, 60));
  assert_int_equal(c->tries[1].n_records, 5);
  dht_swarm_run(&c->s, 65);
  assert_value(get(c, 11, "roster"), "nobody is here");
  close_scene(c);
}

/* Under an owned key all is signed, by one: there it is its own affair what lives longer. */
static void owners_value_or_dictionary_that_lives_longer_counts(void **unused) {
  (void)unused;
  scene *c = open_scene(56);
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  const char *key = owned_key(c, 4);
  assert_int_equal(store(c, 4, key, "part", "of a dictionary", 60000)->status, HV_OK);
  assert_int_equal(store(c, 4, key, NULL, "whole", 90000)->status, HV_OK);
  assert_value(get(c, 9, key), "whole");
  assert_int_equal(store(c, 4, key, "part", "of a longer one", 120000)->status, HV_OK);
  assert_value(get(c, 9, key), "of a longer one");
  close_scene(c);
}

static void restarted_owner_continues_its_versions(void **unused) {
  (void)unused;
  scene *c = open_scene(5);
  grow(c, 12);
  dht_swarm_run(&c->s, 100);
  const char *key = owned_key(c, 4);
  assert_int_equal(store(c, 4, key, NULL, "before", 600000)->status, HV_OK);
  hv_sim_kill(c->s.sim, 4);
  hv_sim_restart(c->s.sim, 4); /* same identity, and nothing remembered: its version would be lower for a shorter life */
  dht_swarm_run(&c->s, 10);
  assert_int_equal(store(c, 4, key, NULL, "after", 60000)->status, HV_OK);
  assert_value(get(c, 9, key), "after");
  close_scene(c);
}

static void a_client_asks_and_is_never_asked(void **unused) {
  (void)unused;
  scene *c = open_scene(6);
  grow(c, 10);
  size_t knows = 2, client = dht_swarm_add(&c->s, &knows, 1, 1);
  dht_swarm_run(&c->s, 20);
  assert_int_equal(store(c, client, "key", NULL, "value", 60000)->status, HV_OK);
  assert_value(get(c, 7, "key"), "value");
  assert_value(get(c, client, "key"), "value");
  hv_peer_id id = hv_sim_target(c->s.sim, client).id;
  for (size_t i = 0; i < 10; i++)
    assert_null(hv_route_find(hv_dht_route(dht_swarm_dht(&c->s, i)), &id));
  assert_int_equal(hv_store_count(hv_dht_kept(dht_swarm_dht(&c->s, client))), 0);
  close_scene(c);
}

static void a_lone_node_keeps_for_itself(void **unused) {
  (void)unused;
  scene *c = open_scene(7);
  grow(c, 1);
  dht_swarm_add(&c->s, NULL, 0, 1);
  dht_swarm_run(&c->s, 1);
  assert_int_equal(store(c, 0, "key", NULL, "value", 60000)->status, HV_OK);
  assert_value(get(c, 0, "key"), "value");
  assert_int_equal(store(c, 1, "key", NULL, "value", 60000)->status, HV_UNREACHABLE); /* a client keeps nothing */
  close_scene(c);
}

static void too_large_value_is_refused_with_its_size(void **unused) {
  (void)unused;
  scene *c = open_scene(8);
  grow(c, 2);
  dht_swarm_run(&c->s, 5);
  static uint8_t big[HV_RECORD_VALUE_MAX + 1];
  dht_try *try = &c->tries[0];
  dht_swarm_store(&c->s, 0, try, "key", NULL, "", 60000);
  try->item.value = hv_span_of(big, sizeof big);
  assert_true(dht_swarm_finish(&c->s, try, 1, 60));
  assert_int_equal(try->status, HV_TOO_LARGE);
  assert_non_null(strstr(try->text, "65537 bytes"));
  dht_swarm_store(&c->s, 0, try, "key", NULL, "", 0);
  assert_true(dht_swarm_finish(&c->s, try, 1, 60));
  assert_int_equal(try->status, HV_INVALID); /* in the past */
  assert_int_equal(get(c, 1, "key")->status, HV_NOT_FOUND);
  close_scene(c);
}

static void records_outlive_their_keepers(void **unused) {
  (void)unused;
  scene *c = open_scene(9);
  c->s.config.replicate_ms = 10000;
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  assert_int_equal(store(c, 0, "key", NULL, "value", 3000000)->status, HV_OK);
  hv_sim_kill(c->s.sim, 0);
  for (size_t i = 1; i < 11; i++) { /* one goes, one comes, until none is left of those who were there */
    size_t knows = i + 1;
    hv_sim_kill(c->s.sim, i);
    dht_swarm_add(&c->s, &knows, 1, 0);
    dht_swarm_run(&c->s, 60);
  }
  assert_value(get(c, 15, "key"), "value");
  close_scene(c);
}

static void long_lived_record_is_republished_before_each_lease_ends(void **unused) {
  (void)unused;
  scene *c = open_scene(10);
  c->s.config.store.ttl_max_ms = 60000;
  grow(c, 12);
  dht_swarm_run(&c->s, 10);
  const char *key = owned_key(c, 3);
  assert_int_equal(store(c, 3, key, NULL, "value", 600000)->status, HV_OK);
  dht_swarm_run(&c->s, 400);
  assert_value(get(c, 7, key), "value");
  hv_sim_kill(c->s.sim, 3); /* the owner goes, and the record with its lease */
  dht_swarm_run(&c->s, 65);
  assert_int_equal(get(c, 7, key)->status, HV_NOT_FOUND);
  close_scene(c);
}

static const dht_try *store_there(scene *c, size_t node, const char *key, hv_dht_spots *spots) {
  dht_swarm_store(&c->s, node, &c->tries[0], key, NULL, "value", 600000);
  c->tries[0].op.spots = spots;
  assert_true(dht_swarm_finish(&c->s, c->tries, 1, 60));
  assert_int_equal(c->tries[0].status, HV_OK);
  return &c->tries[0];
}

static size_t who_is(scene *c, const hv_peer_id *id) {
  for (size_t i = 0; i < c->s.n; i++)
    if (hv_sim_alive(c->s.sim, i) && hv_peer_equal(hv_node_id(c->s.seats[i].node), id))
      return i;
  fail();
  return 0;
}

/* A node that stores under one key again and again does not search each time for its nearest nodes. */
static void repeated_store_reuses_its_keepers_for_three_minutes(void **unused) {
  (void)unused;
  hv_dht_spots spots;
  char key[32];
  size_t searched = 0;
  scene *c = open_scene(52);
  c->s.hello_every_ms = 3600000; /* nobody learns of others by the way */
  grow(c, NODES_MAX);
  dht_swarm_run(&c->s, 10);
  for (size_t i = 0; i < 40; i++) {
    snprintf(key, sizeof key, "key %zu", i);
    spots = (hv_dht_spots){0};
    unsigned first = store_there(c, i, key, &spots)->op.calls, n = (unsigned)spots.n;
    uint64_t looked_us = spots.looked_us;
    if (n == 0) /* all who stand there are in its table */
      continue;
    searched++;
    assert_true(n >= 5 && first > n);
    dht_swarm_run(&c->s, 20);
    assert_true(store_there(c, i, key, &spots)->op.calls <= n); /* one of them may be itself */
    assert_true(spots.n == n && spots.looked_us == looked_us);
    if (i % 2) { /* one of them goes: it looks again */
      size_t goes = who_is(c, &spots.at[0].id);
      hv_sim_kill(c->s.sim, goes == i ? who_is(c, &spots.at[1].id) : goes);
    } else
      dht_swarm_run(&c->s, 160);
    store_there(c, i, key, &spots);
    assert_true(spots.n >= 5 && spots.looked_us > looked_us);
    assert_value(get(c, i + 1, key), "value");
  }
  assert_true(searched >= 10);
  close_scene(c);
}

static void fetched_record_is_cached_for_some_seconds(void **unused) {
  (void)unused;
  for (int remembers = 0; remembers < 2; remembers++) {
    scene *c = open_scene(20);
    c->s.config.cache_locally = remembers ? 0 : -1;
    grow(c, 20);
    dht_swarm_run(&c->s, 10);
    assert_int_equal(store(c, 3, "key", NULL, "value", 60000)->status, HV_OK);
    assert_true(get_again(c, 15, "key")->op.calls > 0);
    dht_try *again = get_again(c, 15, "key");
    assert_value(again, "value");
    assert_int_equal(again->op.calls == 0, remembers);
    assert_true(get(c, 15, "key")->op.calls > 0); /* the newest: all are asked */
    dht_swarm_run(&c->s, 11);
    assert_true(get_again(c, 15, "key")->op.calls > 0);
    close_scene(c);
  }
}

/* Forty peers store a subkey of their own under one key, and one of them gets all of them. */
static void repeated_get_reaches_most_keepers_and_nobody_else(void **unused) {
  (void)unused;
  scene *c = open_scene(31);
  grow(c, 40);
  dht_swarm_run(&c->s, 30);
  for (size_t i = 0; i < 40; i++) {
    char subkey[16];
    snprintf(subkey, sizeof subkey, "peer %zu", i);
    dht_swarm_store(&c->s, i, &c->tries[10 + i], "roster", subkey, "x", 60000);
  }
  assert_true(dht_swarm_finish(&c->s, c->tries + 10, 40, 60));
  dht_swarm_get(&c->s, 7, &c->tries[1], "roster", 1);
  assert_true(dht_swarm_finish(&c->s, c->tries + 1, 1, 60));
  unsigned all = c->tries[1].op.calls;
  uint64_t before = hv_sim_count(c->s.sim).bytes;
  dht_swarm_get(&c->s, 7, &c->tries[2], "roster", 1);
  assert_true(dht_swarm_finish(&c->s, c->tries + 2, 1, 60));
  uint64_t whole = hv_sim_count(c->s.sim).bytes - before;
  before = hv_sim_count(c->s.sim).bytes;
  dht_swarm_get(&c->s, 7, &c->tries[3], "roster", 1);
  c->tries[3].op.majority = 1;
  assert_true(dht_swarm_finish(&c->s, c->tries + 3, 1, 60));
  uint64_t few = hv_sim_count(c->s.sim).bytes - before;
  assert_int_equal(c->tries[3].n_records, 40);
  if (all < 8 || c->tries[3].op.calls > 4 || few * 3 > whole * 2)
    fail_msg("%u calls and %d bytes, %u and %d otherwise", c->tries[3].op.calls, (int)few, all, (int)whole);
  close_scene(c);
}

/* Three of the five keepers are dead: those that are left are no majority, and it looks further. */
static void get_asks_all_keepers_if_most_are_gone(void **unused) {
  (void)unused;
  scene *c = open_scene(32);
  grow(c, 40);
  dht_swarm_run(&c->s, 30);
  assert_int_equal(store(c, 3, "key", "mine", "value", 60000)->status, HV_OK);
  for (size_t i = 0, killed = 0; i < 40 && killed < 3; i++) {
    hv_hash place;
    c->s.seats[i].env->sha256(c->s.seats[i].env, hv_span_of("key", 3), &place);
    if (i == 7 || !hv_store_first(hv_dht_kept(dht_swarm_dht(&c->s, i)), &place))
      continue;
    hv_sim_unplug(c->s.sim, i);
    killed++;
  }
  dht_swarm_get(&c->s, 7, &c->tries[1], "key", 1);
  c->tries[1].op.majority = 1;
  assert_true(dht_swarm_finish(&c->s, c->tries + 1, 1, 60));
  assert_value(&c->tries[1], "value");
  close_scene(c);
}

/* Twenty of sixty answer about the place where it stands: so it has looked for all who stand nearer than those. */
static void node_that_searched_around_itself_does_not_search_again(void **unused) {
  (void)unused;
  scene *c = open_scene(33);
  c->s.hello_every_ms = 3600000;
  grow(c, 60);
  dht_swarm_run(&c->s, 60);
  for (size_t i = 0; i < 60; i++)
    assert_int_equal(dht_swarm_reach(&c->s, i), 60);
  uint64_t questions = 0;
  for (size_t i = 0; i < 60; i++)
    questions += hv_dht_questions(dht_swarm_dht(&c->s, i));
  if (questions > 60 * 400) /* it was 534 for each of them */
    fail_msg("%d questions of each in the first minute", (int)(questions / 60));
  close_scene(c);
}

static void get_hands_its_record_to_one_near_node_that_lacked_it(void **unused) {
  (void)unused;
  for (int gives = 0; gives < 2; gives++) {
    scene *c = open_scene(21);
    c->s.config.cache_nearest = gives ? 1 : -1;
    c->s.config.replicate_ms = 3600000; /* nothing is handed on otherwise */
    grow(c, 12);
    dht_swarm_run(&c->s, 10);
    assert_int_equal(store(c, 3, "key", NULL, "value", 600000)->status, HV_OK);
    grow(c, 28); /* some stand nearer to it than those who keep it */
    dht_swarm_run(&c->s, 10);
    size_t before = dht_swarm_keepers(&c->s, "key");
    assert_value(get(c, 30, "key"), "value");
    dht_swarm_run(&c->s, 1);
    assert_int_equal(dht_swarm_keepers(&c->s, "key"), before + (size_t)gives);
    close_scene(c);
  }
}

/* The least looks of a bucket that holds somebody. */
static unsigned least_looks(scene *c, size_t node) {
  const hv_route *route = hv_dht_route(dht_swarm_dht(&c->s, node));
  unsigned least = UINT32_MAX;
  for (size_t b = 0; b < HV_ROUTE_BUCKETS; b++)
    if (route->buckets[b].n && route->buckets[b].looks < least)
      least = route->buckets[b].looks;
  return least;
}

static void buckets_that_nobody_was_looked_for_in_are_refreshed(void **unused) {
  (void)unused;
  for (int soon = 0; soon < 2; soon++) {
    scene *c = open_scene(22);
    c->s.config.refresh_ms = soon ? 30000 : 0;
    grow(c, 20);
    dht_swarm_run(&c->s, 100);
    unsigned before = least_looks(c, 7);
    dht_swarm_run(&c->s, 100);
    assert_int_equal(least_looks(c, 7) - before, soon ? 3 : 0); /* by default it is ten minutes */
    close_scene(c);
  }
}

static void two_halves_find_each_other_again(void **unused) {
  (void)unused;
  scene *c = open_scene(11);
  grow(c, 16);
  dht_swarm_run(&c->s, 10);
  for (size_t i = 0; i < 8; i++)
    hv_sim_group(c->s.sim, i, 1);
  dht_swarm_run(&c->s, 120);
  assert_int_equal(store(c, 2, "key", NULL, "value", 600000)->status, HV_OK);
  assert_int_equal(get(c, 12, "key")->status, HV_NOT_FOUND);
  hv_sim_heal(c->s.sim);
  dht_swarm_run(&c->s, 120);
  for (size_t i = 0; i < 16; i++)
    assert_int_equal(dht_swarm_reach(&c->s, i), 16);
  assert_value(get(c, 12, "key"), "value");
  close_scene(c);
}

static void every_operation_ends_once_however_its_node_ends(void **unused) {
  (void)unused;
  for (int how = 0; how < 3; how++) {
    scene *c = open_scene(12);
    grow(c, 10);
    dht_swarm_run(&c->s, 10);
    for (size_t i = 0; i < 40; i++)
      if (i % 2)
        dht_swarm_get(&c->s, 3, &c->tries[i], "key", 1);
      else
        dht_swarm_store(&c->s, 3, &c->tries[i], "key", "sub", "value", 60000 + i);
    dht_swarm_run(&c->s, 0.01); /* in the middle of it */
    if (how == 0)
      hv_sim_stop(c->s.sim, 3);
    else if (how == 1)
      hv_sim_kill(c->s.sim, 3);
    else
      for (size_t i = 0; i < 10; i++)
        if (i != 3)
          hv_sim_unplug(c->s.sim, i);
    assert_true(dht_swarm_finish(&c->s, c->tries, 40, 60));
    for (size_t i = 0; i < 40; i++)
      assert_true(how == 0 ? c->tries[i].status != HV_CLOSED : how == 1 ? c->tries[i].status == HV_CLOSED : 1);
    close_scene(c);
  }
}

static void operation_without_memory_fails_alone(void **unused) {
  (void)unused;
  for (long n = 0; n < 60; n += 3) {
    scene *c = open_scene(13);
    grow(c, 5);
    dht_swarm_run(&c->s, 5);
    store(c, 1, "before", NULL, "value", 600000);
    dht_swarm_store(&c->s, 2, &c->tries[0], "key", NULL, "value", 600000);
    dht_swarm_get(&c->s, 2, &c->tries[1], "before", 1);
    hv_mem_fail_in(hv_sim_mem(c->s.sim, 2), n);
    assert_true(dht_swarm_finish(&c->s, c->tries, 2, 60));
    hv_mem_fail_in(hv_sim_mem(c->s.sim, 2), -1);
    assert_value(get(c, 3, "before"), "value");
    close_scene(c);
  }
}

static void swarms_with_any_initial_list_become_one(void **unused) {
  (void)unused;
  for (uint64_t seed = 100; seed < 108; seed++) {
    scene *c = open_scene(seed);
    grow(c, 32);
    dht_swarm_run(&c->s, 10);
    for (size_t i = 0; i < 32; i++)
      assert_int_equal(dht_swarm_reach(&c->s, i), 32);
    close_scene(c);
  }
}

static void half_a_swarm_dies_and_everything_is_found(void **unused) {
  (void)unused;
  scene *c = open_scene(14);
  c->s.config.num_replicas = 20;
  grow(c, 64);
  dht_swarm_run(&c->s, 15);
  char key[32], value[32];
  for (size_t i = 0; i < 200; i++) {
    snprintf(key, sizeof key, "key %zu", i), snprintf(value, sizeof value, "value %zu", i);
    dht_swarm_store(&c->s, i % 64, &c->tries[i], key, NULL, value, 600000);
  }
  assert_true(dht_swarm_finish(&c->s, c->tries, 200, 60));
  for (size_t i = 0; i < 64; i += 2)
    i % 4 ? hv_sim_kill(c->s.sim, i) : hv_sim_unplug(c->s.sim, i);
  for (size_t i = 0; i < 200; i++) {
    snprintf(key, sizeof key, "key %zu", i);
    dht_swarm_get(&c->s, i % 32 * 2 + 1, &c->tries[i], key, 0);
  }
  assert_true(dht_swarm_finish(&c->s, c->tries, 200, 60));
  for (size_t i = 0; i < 200; i++) {
    snprintf(value, sizeof value, "value %zu", i);
    assert_value(&c->tries[i], value);
  }
  close_scene(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(idle_small_swarm_is_quiet),
      cmocka_unit_test(value_stored_by_one_node_is_found_by_all),
      cmocka_unit_test(a_dictionary_is_put_together_from_its_subkeys),
      cmocka_unit_test(the_newest_expiry_wins),
      cmocka_unit_test(owned_key_is_writable_by_its_owner_only),
      cmocka_unit_test(strangers_value_hides_no_signed_dictionary),
      cmocka_unit_test(owners_value_or_dictionary_that_lives_longer_counts),
      cmocka_unit_test(restarted_owner_continues_its_versions),
      cmocka_unit_test(a_client_asks_and_is_never_asked),
      cmocka_unit_test(a_lone_node_keeps_for_itself),
      cmocka_unit_test(too_large_value_is_refused_with_its_size),
      cmocka_unit_test(records_outlive_their_keepers),
      cmocka_unit_test(long_lived_record_is_republished_before_each_lease_ends),
      cmocka_unit_test(repeated_store_reuses_its_keepers_for_three_minutes),
      cmocka_unit_test(fetched_record_is_cached_for_some_seconds),
      cmocka_unit_test(repeated_get_reaches_most_keepers_and_nobody_else),
      cmocka_unit_test(get_asks_all_keepers_if_most_are_gone),
      cmocka_unit_test(node_that_searched_around_itself_does_not_search_again),
      cmocka_unit_test(get_hands_its_record_to_one_near_node_that_lacked_it),
      cmocka_unit_test(buckets_that_nobody_was_looked_for_in_are_refreshed),
      cmocka_unit_test(two_halves_find_each_other_again),
      cmocka_unit_test(every_operation_ends_once_however_its_node_ends),
      cmocka_unit_test(operation_without_memory_fails_alone),
      cmocka_unit_test(swarms_with_any_initial_list_become_one),
      cmocka_unit_test(half_a_swarm_dies_and_everything_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
