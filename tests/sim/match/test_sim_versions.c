/* Swarms in which not all peers speak the same versions of the protocol: who meets, who forms a group, and what is said of the
 * rest. */
#include "lib/match_scene.h"

#include "core/peers/spoken.h"

enum { OLD = 6, MIDDLE = 6, NEW = 2, ALL = OLD + MIDDLE + NEW };

static const hv_versions old = {1, 1, 0}, middle = {1, 2, 6}, new = {2, 2, 3};

/* Even nodes speak the old version, odd ones both, and the last ones the new one alone. */
static const hv_versions *speech_of(size_t node) {
  return node >= OLD + MIDDLE ? &new : node % 2 ? &middle : &old;
}

static int are_apart(size_t a, size_t b) {
  return hv_versions_common(speech_of(a), speech_of(b)) == 0;
}

/* ---- what goes between whom, and what the logs say ---- */

typedef struct notes {
  size_t calls[ALL][ALL];   /* messages of unary calls */
  size_t told[ALL], others; /* lines about versions, by the node that logged them */
} notes;

static notes seen;

static void count_call(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size) {
  (void)arg, (void)bytes, (void)size;
  seen.calls[from][to]++;
}

static void note_line(void *arg, const char *line) {
  (void)arg;
  const char *node = strstr(line, " n");
  if (getenv("NARRATE"))
    puts(line);
  if (!node || !strstr(line, "of the protocol") || !strstr(line, "protocol_version"))
    return;
  size_t i = strtoul(node + 2, NULL, 10);
  if (i < ALL && strstr(line, "upgrade hivemind_c"))
    seen.told[i]++;
  else
    seen.others++;
}

static scene *open_versions(uint64_t seed) {
  static scene one;
  memset(&one, 0, sizeof one);
  memset(&seen, 0, sizeof seen);
  hv_mem_init(&one.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.say = note_line;
  config.say_least = HV_LOG_WARN;
  hv_sim *sim = hv_sim_new(&one.mem, &config);
  assert_non_null(sim);
  hv_sim_set_tap(sim, count_call, NULL);
  match_swarm_init(&one.s, sim, &one.mem, SCENE_NODES_MAX);
  return &one;
}

static void add(scene *c, size_t knows) {
  match_seat *seat = match_swarm_next(&c->s);
  seat->versions = *speech_of(seat->number);
  if (seat->number) {
    seat->initial = hv_sim_target(c->s.sim, knows);
    seat->has_initial = 1;
  }
  match_swarm_add(&c->s);
}

static void all_seek(scene *c, size_t n, unsigned epoch) {
  char name[16];
  snprintf(name, sizeof name, "%u", epoch);
  for (size_t i = 0; i < n; i++)
    seek(c, i, name, 0, 8000);
}

static uint32_t version_between(scene *c, size_t a, size_t b, uint64_t *features) {
  hv_peer_id id = hv_sim_target(c->s.sim, b).id;
  return hv_peers_version_of(hv_node_peers(c->s.seats[a].node), &id, features);
}

static void old_and_next_version_form_one_group(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    scene *c = open_versions(seed);
    for (size_t i = 0; i < OLD + MIDDLE; i++)
      add(c, 0);
    run(c, 10);
    for (unsigned epoch = 1; epoch <= 4; epoch++) {
      all_seek(c, OLD + MIDDLE, epoch);
      assert_true(match_swarm_finish(&c->s, 10));
      one_group(c, 0, OLD + MIDDLE, SIZE_MAX);
      run(c, 5);
    }
    uint64_t features;
    for (size_t i = 0; i < OLD + MIDDLE; i++)
      for (size_t k = 0; k < OLD + MIDDLE; k++) {
        if (i == k)
          continue;
        assert_int_equal(version_between(c, i, k, &features), i % 2 && k % 2 ? 2 : 1);
        assert_int_equal(features, i % 2 && k % 2 ? 6 : 0);
      }
    for (size_t i = 0; i < ALL; i++)
      assert_int_equal(seen.told[i], 0);
    close_scene(c);
  }
}

/* No member of a group is apart from another one. */
static void check_group(scene *c, const match_try *t) {
  size_t me = t->seat->number;
  for (size_t k = 0; t->group && k < ALL; k++)
    if (match_swarm_place(&c->s, t->group, k) < t->group->n_members && are_apart(me, k))
      fail_msg("n%zu and n%zu are in one group, and speak no common version", me, k);
}

/* The peers that speak only the new version reach the old ones through nobody: they know them by the records and cards of those
 * in the middle. */
static void peers_without_a_common_version_meet_nowhere(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    scene *c = open_versions(seed);
    for (size_t i = 0; i < OLD + MIDDLE; i++)
      add(c, 0);
    add(c, 1); /* one that knows a peer of the middle, */
    add(c, 0); /* and one that knows an old one alone */
    run(c, 10);
    size_t grouped = 0, asked = 0;
    notes before = {0};
    for (unsigned epoch = 1; epoch <= 12; epoch++) {
      all_seek(c, ALL, epoch);
      assert_true(match_swarm_finish(&c->s, 12));
      for (size_t i = 0; i < ALL; i++) {
        check_group(c, newest(c, i));
        grouped += i < OLD + MIDDLE && newest(c, i)->status == HV_OK;
      }
      asked += OLD + MIDDLE;
      run(c, 5);
      if (epoch == 4)
        before = seen;
    }
    assert_true(grouped * 20 >= asked * 19); /* the others are no worse off */
    for (size_t i = 0; i < ALL; i++)
      for (size_t k = 0; k < ALL; k++)
        if (i != k && are_apart(i, k)) {
          assert_true(!seen.calls[i][k] || version_between(c, i, k, NULL) == 0);
          if (seen.calls[i][k] > 8 || seen.calls[i][k] > before.calls[i][k]) /* some were on their way when the first was refused */
            fail_msg("n%zu sent %zu messages to n%zu, with which it has no version in common", i, seen.calls[i][k], k);
        }
    for (size_t i = 0; i < ALL; i++)
      assert_true(seen.told[i] <= (speech_of(i) == &new ? OLD : speech_of(i) == &old ? NEW : 0));
    assert_true(seen.told[0] >= 1 && seen.told[OLD + MIDDLE + 1] >= 1); /* both said it */
    assert_int_equal(seen.others, 0);
    close_scene(c);
  }
}

static void restart_as(scene *c, size_t node, hv_versions versions) {
  hv_sim_kill(c->s.sim, node);
  run(c, 1);
  hv_sim_set_versions(c->s.sim, node, versions);
  assert_int_equal(hv_sim_restart(c->s.sim, node), HV_OK);
  run(c, 15);
}

/* With the same identity, a peer comes back from a newer release, and then from an older one. */
static void restarted_peer_speaks_its_new_versions(void **unused) {
  (void)unused;
  scene *c = open_versions(7);
  for (size_t i = 0; i < 4; i++)
    add(c, 0);
  run(c, 10);
  assert_int_equal(version_between(c, 1, 3, NULL), 2);
  restart_as(c, 3, new);
  assert_int_equal(version_between(c, 1, 3, NULL), 2);
  assert_int_equal(version_between(c, 0, 3, NULL), 0);
  restart_as(c, 3, middle); /* the one that stayed does not dial it, and is called by it */
  assert_int_equal(version_between(c, 0, 3, NULL), 1);
  assert_int_equal(version_between(c, 3, 0, NULL), 1);
  restart_as(c, 3, old); /* the others believe that it speaks the next version, too, until it says otherwise */
  assert_int_equal(version_between(c, 1, 3, NULL), 1);
  all_seek(c, 4, 1);
  assert_true(match_swarm_finish(&c->s, 12));
  one_group(c, 0, 4, SIZE_MAX);
  close_scene(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(old_and_next_version_form_one_group),
      cmocka_unit_test(peers_without_a_common_version_meet_nowhere),
      cmocka_unit_test(restarted_peer_speaks_its_new_versions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
