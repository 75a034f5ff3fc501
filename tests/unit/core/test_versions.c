/* The choice of a version of the protocol: the rule for two peers, its sentences, and the table of what peers
 * speak. */
#include "lib/fake_env.h"

#include "core/peers/peers.h"
#include "core/peers/spoken.h"

#include <string.h>

static void two_peers_speak_the_highest_version_of_both(void **state) {
  (void)state;
  static const struct {
    hv_versions a, b;
    uint32_t common; /* 0: none */
  } cases[] = {
      {{1, 1, 0}, {1, 1, 0}, 1},
      {{1, 1, 0}, {1, 2, 0}, 1},
      {{1, 2, 0}, {1, 2, 0}, 2},
      {{1, 2, 0}, {2, 2, 0}, 2},
      {{1, 5, 0}, {3, 9, 0}, 5},
      {{2, 3, 0}, {1, 9, 0}, 3},
      {{1, 1, 0}, {2, 2, 0}, 0},
      {{1, 2, 0}, {4, 5, 0}, 0},
      {{1, HV_VERSIONS_MAX, 0}, {HV_VERSIONS_MAX, HV_VERSIONS_MAX, 0}, HV_VERSIONS_MAX},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hv_versions_common(&cases[i].a, &cases[i].b), cases[i].common);
    assert_int_equal(hv_versions_common(&cases[i].b, &cases[i].a), cases[i].common); /* both choose alike */
  }
}

static void ranges_outside_of_the_limits_are_invalid(void **state) {
  (void)state;
  static const struct {
    hv_versions versions;
    int valid;
  } cases[] = {
      {{1, 1, 0}, 1},
      {{1, HV_VERSIONS_MAX, UINT64_MAX}, 1},
      {{0, 1, 0}, 0},
      {{0, 0, 0}, 0},
      {{2, 1, 0}, 0},
      {{1, HV_VERSIONS_MAX + 1, 0}, 0},
      {{UINT32_MAX, UINT32_MAX, 0}, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(hv_versions_valid(&cases[i].versions), cases[i].valid);
  hv_versions own = hv_versions_own();
  assert_true(hv_versions_valid(&own));
}

static void version_of_most_is_the_highest_among_equals(void **state) {
  (void)state;
  static const struct {
    hv_versions peers[5];
    size_t n, speak;
    uint32_t version;
  } cases[] = {
      {{{0}}, 0, 0, 0},
      {{{1, 1, 0}}, 1, 1, 1},
      {{{1, 2, 0}, {1, 1, 0}, {2, 2, 0}, {1, 1, 0}}, 4, 3, 1},
      {{{1, 2, 0}, {1, 1, 0}, {2, 2, 0}, {2, 2, 0}}, 4, 3, 2},
      {{{1, 1, 0}, {2, 2, 0}}, 2, 1, 2},
      {{{1, 9, 0}, {2, 5, 0}, {3, 7, 0}, {4, 6, 0}, {8, 9, 0}}, 5, 4, 5},
      {{{1, 3, 0}, {2, 3, 0}, {1, 3, 0}}, 3, 3, 3},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t speak;
    assert_int_equal(hv_versions_of_most(cases[i].peers, cases[i].n, &speak), cases[i].version);
    assert_int_equal(speak, cases[i].speak);
  }
}

static void sentence_says_at_which_peer_to_upgrade(void **state) {
  (void)state;
  char text[HV_VERSIONS_TEXT_MAX];
  hv_versions old = {1, 2, 0}, new = {4, 5, 0}, one = {3, 3, 0};
  hv_versions_explain("peer X", &new, &old, text);
  assert_string_equal(text, "peer X speaks versions 4 to 5 of the protocol, this peer versions 1 to 2: upgrade hivemind_c here");
  hv_versions_explain("peer X", &old, &one, text);
  assert_string_equal(text, "peer X speaks versions 1 to 2 of the protocol, this peer version 3: upgrade hivemind_c there");
  hv_versions_refuse(&one, &old, text);
  assert_string_equal(
      text, "the called peer speaks version 3 of the protocol, the caller versions 1 to 2: upgrade hivemind_c at the caller");
  char name[1000];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  hv_versions_explain(name, &(hv_versions){HV_VERSIONS_MAX - 1, HV_VERSIONS_MAX, 0}, &old, text);
  assert_non_null(strstr(text, "upgrade hivemind_c here"));
}

/* ---- the table ---- */

typedef struct table {
  fake_env fake;
  hv_spoken spoken;
} table;

static void open_table(table *t, hv_versions mine) {
  fake_env_init(&t->fake, 1);
  assert_int_equal(hv_spoken_init(&t->spoken, &t->fake.mem, &mine), HV_OK);
  t->fake.env.spoken = &t->spoken;
  t->fake.now_us = 1000000;
}

static void close_table(table *t) {
  hv_spoken_fini(&t->spoken);
  assert_int_equal(t->fake.mem.blocks, 0);
}

static void unknown_peer_gets_the_lowest_version_until_it_is_learned(void **state) {
  (void)state;
  table t;
  int sure;
  open_table(&t, (hv_versions){1, 3, 6});
  hv_env *env = &t.fake.env;
  hv_peer_id peer = fake_peer(7), nobody = {{0}};
  assert_int_equal(hv_spoken_choose(env, &peer, &sure), 1);
  assert_int_equal(sure, 0);
  hv_spoken_learn(env, &peer, &(hv_versions){2, 9, 12});
  assert_int_equal(hv_spoken_choose(env, &peer, &sure), 3);
  assert_int_equal(sure, 1);
  hv_peers peers = {.env = env};
  uint64_t features;
  assert_int_equal(hv_peers_version_of(&peers, &peer, &features), 3);
  assert_int_equal(features, 4);                        /* bits of both */
  hv_spoken_learn(env, &peer, &(hv_versions){1, 1, 0}); /* it was started anew from an older release */
  assert_int_equal(hv_spoken_choose(env, &peer, NULL), 1);
  hv_spoken_refused(env, &peer, 3); /* of an old belief: it is asked again */
  assert_int_equal(hv_spoken_choose(env, &peer, &sure), 1);
  assert_int_equal(sure, 0);
  assert_int_equal(hv_spoken_choose(env, &nobody, &sure), 1);
  hv_spoken_learn(env, &nobody, &(hv_versions){2, 2, 0}); /* a peer without a name is not remembered */
  assert_int_equal(hv_spoken_choose(env, &nobody, &sure), 1);
  close_table(&t);
}

static void peer_without_a_common_version_is_left_for_minutes(void **state) {
  (void)state;
  table t;
  open_table(&t, (hv_versions){1, 1, 0});
  hv_env *env = &t.fake.env;
  hv_peer_id peer = fake_peer(7), silent = fake_peer(8);
  char text[HV_VERSIONS_TEXT_MAX];
  hv_spoken_learn(env, &peer, &(hv_versions){2, 2, 0});
  assert_int_equal(hv_spoken_choose(env, &peer, NULL), 0);
  hv_spoken_explain(env, &peer, text);
  assert_non_null(strstr(text, "speaks version 2 of the protocol, this peer version 1: upgrade hivemind_c here"));
  hv_spoken_refused(env, &silent, 1);
  assert_int_equal(hv_spoken_choose(env, &silent, NULL), 0);
  hv_spoken_explain(env, &silent, text);
  assert_non_null(strstr(text, "upgrade the older hivemind_c"));
  t.fake.now_us += HV_SPOKEN_APART_US;
  assert_int_equal(hv_spoken_choose(env, &peer, NULL), 1); /* one more try: it may have been upgraded */
  hv_spoken_learn(env, &peer, &(hv_versions){1, 2, 0});
  assert_int_equal(hv_spoken_choose(env, &peer, NULL), 1);
  hv_peers peers = {.env = env};
  assert_int_equal(hv_peers_version_of(&peers, &peer, NULL), 1);
  close_table(&t);
}

/* A flood of identities takes bounded memory and few lines of the log. A peer that speaks as all do takes none. */
static void flood_of_peers_is_bounded(void **state) {
  (void)state;
  table t;
  open_table(&t, (hv_versions){1, 1, 0});
  hv_env *env = &t.fake.env;
  hv_log *log = hv_log_new(&t.fake.mem, 64, HV_LOG_DEBUG);
  env->log = log;
  size_t before = t.fake.mem.used;
  for (uint64_t i = 1; i < 1000; i++) {
    hv_peer_id peer = fake_peer(i);
    hv_spoken_learn(env, &peer, &(hv_versions){1, 1, 0});
  }
  assert_int_equal(t.fake.mem.used, before);
  for (uint64_t i = 1; i < 20000; i++) {
    hv_peer_id peer = fake_peer(i);
    t.fake.now_us++;
    hv_spoken_learn(env, &peer, &(hv_versions){2, 2, i});
  }
  assert_true(t.fake.mem.used - before < HV_SPOKEN_ROOM * (sizeof(hv_spoken_entry) + 64));
  hv_log_record record;
  size_t lines = 0;
  while (hv_log_take(log, &record))
    lines++;
  assert_int_equal(lines, HV_SPOKEN_TOLD_MAX);
  hv_log_free(log);
  close_table(&t);
}

static void node_with_an_invalid_range_is_refused(void **state) {
  (void)state;
  hv_spoken spoken;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_spoken_init(&spoken, &mem, &(hv_versions){3, 2, 0}), HV_INVALID);
  assert_int_equal(hv_spoken_init(&spoken, &mem, &(hv_versions){0, 2, 0}), HV_INVALID);
  assert_int_equal(hv_spoken_init(&spoken, &mem, &(hv_versions){1, HV_VERSIONS_MAX + 1, 0}), HV_INVALID);
  assert_int_equal(hv_spoken_init(&spoken, &mem, NULL), HV_OK);
  hv_spoken_fini(&spoken);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_peers_speak_the_highest_version_of_both),
      cmocka_unit_test(ranges_outside_of_the_limits_are_invalid),
      cmocka_unit_test(version_of_most_is_the_highest_among_equals),
      cmocka_unit_test(sentence_says_at_which_peer_to_upgrade),
      cmocka_unit_test(unknown_peer_gets_the_lowest_version_until_it_is_learned),
      cmocka_unit_test(peer_without_a_common_version_is_left_for_minutes),
      cmocka_unit_test(flood_of_peers_is_bounded),
      cmocka_unit_test(node_with_an_invalid_range_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
