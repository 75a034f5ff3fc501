/* Setups that differ and change: all members of a group have one setup, and no seek outlasts its time. */
#include "lib/match_scene.h"

#include <string.h>

enum { SETUPS = 6 };
static const char mild[] = "setup: 1\nweight_decay: 0\n", strong[] = "setup: 1\nweight_decay: 0.1\n";

/* The last `n` of six peers have the strong setup in this epoch, and the others the mild one. */
static void seek_with_setups(scene *c, unsigned epoch, size_t n) {
  char name[16];
  snprintf(name, sizeof name, "%u", epoch);
  for (size_t i = 0; i < SETUPS; i++) {
    c->s.seats[i].setup = i + n < SETUPS ? mild : strong;
    seek(c, i, name, 0, 6000);
  }
  assert_true(match_swarm_finish(&c->s, 8));
}

static void groups_have_one_setup_each(scene *c, size_t n) {
  one_group(c, 0, SETUPS - n, SIZE_MAX);
  if (n)
    one_group(c, SETUPS - n, SETUPS, SIZE_MAX);
}

static void changed_setups_part_groups_until_alike_again(void **unused) {
  (void)unused;
  for (uint64_t seed = 0; seed < 8; seed++) {
    scene *c = open_scene(500 + seed);
    for (size_t i = 0; i < SETUPS; i++) {
      match_swarm_next(&c->s)->client = i == 1 && seed % 2;
      match_swarm_add(&c->s);
    }
    run(c, 10);
    seek_with_setups(c, 1, 0);
    groups_have_one_setup_each(c, 0);
    for (unsigned epoch = 2; epoch < 6; epoch++) {
      seek_with_setups(c, epoch, 2); /* they change together */
      groups_have_one_setup_each(c, 2);
    }
    assert_int_equal(hv_match_strangers(c->s.seats[5].match), 4);
    assert_non_null(strstr(hv_match_difference(c->s.seats[5].match), "weight_decay: 0.1"));
    seek_with_setups(c, 6, 0); /* which of them meet depends on the order */
    run(c, 20);                /* declarations are read */
    seek_with_setups(c, 7, 0); /* a peer that was in none of two groups is waited for after this one */
    for (unsigned epoch = 8; epoch < 10; epoch++) {
      seek_with_setups(c, epoch, 0);
      groups_have_one_setup_each(c, 0);
    }
    assert_int_equal(hv_match_strangers(c->s.seats[5].match), 0);
    close_scene(c);
  }
}

static void lone_changed_setup_waits_no_longer_than_it_wants(void **unused) {
  (void)unused;
  scene *c = open_scene(520);
  grow(c, SETUPS);
  run(c, 10);
  for (unsigned epoch = 1; epoch < 6; epoch++) {
    seek_with_setups(c, epoch, 1);
    one_group(c, 0, SETUPS - 1, SIZE_MAX);
    if (epoch > 1) /* known by then */
      assert_true(newest(c, 0)->ended_us - newest(c, 0)->asked_us < 1000000);
    if (newest(c, 5)->status != HV_TIMEOUT)
      fail_msg("epoch %u: %s: %s", epoch, hv_status_name(newest(c, 5)->status), newest(c, 5)->text);
    assert_true(newest(c, 5)->ended_us - newest(c, 5)->asked_us <= (6000 + HV_MATCH_GRACE_MS) * 1000ull);
    assert_non_null(strstr(newest(c, 5)->text, "weight_decay: 0.1"));
  }
  close_scene(c);
}

static void setup_is_refused_if_too_long_or_during_a_seek(void **unused) {
  (void)unused;
  static char much[HV_MATCH_SETUP_MAX + 1];
  hv_error err = {0};
  scene *c = open_scene(521);
  grow(c, 2);
  run(c, 5);
  hv_match *match = c->s.seats[1].match;
  assert_int_equal(hv_match_set_setup(match, hv_span_of(much, sizeof much), &err), HV_INVALID);
  assert_int_equal(hv_match_set_setup(match, hv_span_of(much, sizeof much - 1), &err), HV_OK);
  assert_int_equal(hv_match_set_setup(match, hv_span_of(NULL, 0), &err), HV_OK);
  seek(c, 1, "1", 2, 3000);
  run(c, 0.1);
  assert_int_equal(hv_match_set_setup(match, hv_span_of(mild, sizeof mild - 1), &err), HV_STATE);
  seek(c, 0, "1", 2, 3000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 2, SIZE_MAX);
  close_scene(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(changed_setups_part_groups_until_alike_again),
      cmocka_unit_test(lone_changed_setup_waits_no_longer_than_it_wants),
      cmocka_unit_test(setup_is_refused_if_too_long_or_during_a_seek),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
