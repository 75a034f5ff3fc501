/* The version of a group, chosen among peers that speak what they please. */
#include "lib/check.h"

#include "core/match/match_inner.h"
#include "core/peers/spoken.h"
#include "lib/fake_env.h"

#include <string.h>

enum { JOINERS = 3 };

typedef struct hall {
  fake_env world;
  hv_spoken spoken;
  hv_match match;
  match_gathering gathering;
  match_joiner joiners[JOINERS];
} hall;

/* This node joined first and stands last; the others speak these versions. */
static void open_hall(hall *h, const hv_versions others[JOINERS - 1]) {
  memset(h, 0, sizeof *h);
  fake_env_init(&h->world, 1);
  assert_int_equal(hv_spoken_init(&h->spoken, &h->world.mem, &(hv_versions){1, 3, 0}), HV_OK);
  h->world.env.spoken = &h->spoken;
  h->match.env = &h->world.env;
  h->match.roster.config.me = h->world.me;
  h->gathering = (match_gathering){.match = &h->match, .n_joiners = JOINERS, .n_present = JOINERS};
  for (size_t i = JOINERS; i-- > 0;) {
    h->joiners[i] = (match_joiner){.gathering = &h->gathering, .present = 1, .next = h->gathering.joiners};
    h->joiners[i].id = i == JOINERS - 1 ? h->world.me : fake_peer(7 + i);
    h->gathering.joiners = &h->joiners[i];
    if (i < JOINERS - 1)
      hv_spoken_learn(&h->world.env, &h->joiners[i].id, &others[i]);
  }
}

static void close_hall(hall *h) {
  hv_spoken_fini(&h->spoken);
  assert_int_equal(h->world.mem.blocks, 0);
}

static void joiner_without_a_common_version_is_not_counted(void **unused) {
  (void)unused;
  static const struct {
    hv_versions others[JOINERS - 1];
    uint32_t version;
    int all;
  } cases[] = {
      {{{5, 5, 0}, {5, 5, 0}}, 3, 0},                                 /* nobody stands before the first */
      {{{5, 5, 0}, {1, 2, 0}}, 2, 0}, {{{1, 2, 0}, {5, 5, 0}}, 2, 0}, /* the one before keeps its own */
      {{{2, 9, 0}, {1, 9, 0}}, 3, 1},                                 /* cut at what this node speaks */
      {{{1, 2, 0}, {1, 2, 0}}, 2, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hall h;
    int all;
    open_hall(&h, cases[i].others);
    assert_int_equal(match_common_version(&h.gathering, &all), cases[i].version);
    assert_int_equal(all, cases[i].all);
    close_hall(&h);
  }
}

static void absent_joiner_is_not_counted(void **unused) {
  (void)unused;
  hall h;
  int all;
  open_hall(&h, (hv_versions[JOINERS - 1]){{1, 9, 0}, {1, 2, 0}});
  h.joiners[0].present = 0;
  h.gathering.n_present--;
  assert_int_equal(match_common_version(&h.gathering, &all), 2);
  assert_int_equal(all, 1);
  close_hall(&h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joiner_without_a_common_version_is_not_counted),
      cmocka_unit_test(absent_joiner_is_not_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
