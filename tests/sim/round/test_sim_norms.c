/* Members whose values are far larger than those of the others: refused in groups of four and more, and in no other case. */
#include "lib/scene.h"

#include "core/round/norm.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LIAR = 3, ALL = -1 };

/* Makes a member's values `times` as large. */
static void grow(scene *s, size_t i, float times) {
  scene_member *m = &s->members[i];
  if (m->is_away)
    away_turn(m->in, s->n_values * sizeof(float));
  for (uint64_t at = 0; at < s->n_values; at++)
    m->saved[at] = m->in[at] = m->in[at] * times;
  if (m->is_away)
    away_turn(m->in, s->n_values * sizeof(float));
}

/* Measures as an averager does; member i alone, or ALL. */
static void limit(scene *s, float ratio, int i) {
  for (size_t k = 0; k < s->n; k++) {
    hv_round *round = &s->members[k].round;
    if (i != ALL && (size_t)i != k)
      continue;
    round->norm_ratio = ratio;
    assert_int_equal(hv_norm_measure(&s->members[k].in_run, hv_cpu_best(), &round->norm), HV_OK);
  }
}

/* All hold the same bits, the mean of these members, and know whose values count. scale: the size of the values. */
static void all_hold_the_mean_of(scene *s, unsigned set, double scale) {
  scene_begin_all(s);
  scene_run(s, 20);
  scene_bring(s);
  for (size_t i = 0; i < s->n; i++) {
    const scene_member *m = &s->members[i];
    assert_int_equal(m->status, HV_OK);
    if (!m->out)
      continue;
    for (size_t k = 0; k < s->n; k++)
      assert_int_equal(hv_allreduce_counted(m->allreduce, k), set >> k & 1 ? s->n_values : 0);
    for (uint64_t at = 0; at < s->n_values; at++)
      assert_true(fabs((double)m->out[at] - scene_mean(s, set, at)) <= 1e-5 * scale);
    assert_memory_equal(m->out, s->members[0].out, s->n_values * sizeof(float));
  }
  scene_close(s);
}

static scene_setup group(size_t n) {
  return (scene_setup){.n = n, .n_values = 8000, .chunk_values = 1000, .seed = 461, .client = LIAR};
}

/* In client mode it owns no span, so no average is its own work. It may state any norm. Values lie here or on devices. */
static void million_fold_values_are_refused_by_all_owners(void **unused) {
  (void)unused;
  const float stated[] = {1, 0, 30, FLT_MAX};
  for (size_t n = 4; n <= 6; n++)
    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++) {
      scene s;
      scene_setup how = group(n);
      how.away = i % 2 ? 0 : 0x3f;
      scene_open(&s, &how);
      grow(&s, LIAR, 1e6f);
      limit(&s, 10, ALL);
      if (i > 0)
        s.members[LIAR].round.norm = stated[i];
      all_hold_the_mean_of(&s, ((1u << n) - 1) & ~(1u << LIAR), 1);
    }
}

static void members_just_below_the_limit_all_count(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = group(5);
  scene_open(&s, &how);
  grow(&s, LIAR, 8);
  grow(&s, 0, 0.01f);
  limit(&s, 10, ALL);
  all_hold_the_mean_of(&s, 31, 8);
}

/* The median is that of this round, so values may grow from one round to the next as they like. */
static void values_that_grow_at_all_members_all_count(void **unused) {
  (void)unused;
  for (float times = 1e-6f; times < 1e7f; times *= 1000) {
    scene s;
    scene_setup how = group(4);
    scene_open(&s, &how);
    for (size_t i = 0; i < s.n; i++)
      grow(&s, i, times * (1 + (float)i));
    limit(&s, 4, ALL);
    all_hold_the_mean_of(&s, 15, (double)times * 4);
  }
}

static void groups_below_four_have_no_limit(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = group(3);
  how.client = 2;
  scene_open(&s, &how);
  grow(&s, 2, 1e6f);
  limit(&s, 10, ALL);
  all_hold_the_mean_of(&s, 7, 1e6);
}

/* Of five, the auxiliary one contributes nothing: it judges, and four contributors are enough. */
static void auxiliary_owner_judges_as_all_others_do(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = group(5);
  how.auxiliary = 4;
  scene_open(&s, &how);
  grow(&s, LIAR, 1e6f);
  limit(&s, 10, ALL);
  all_hold_the_mean_of(&s, 7, 1);
}

/* It owns a span, and measures nothing: a release without this option. The others refuse its values in theirs alone. */
static void owner_without_the_option_keeps_its_own_span(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = group(4);
  how.client = 0;
  scene_open(&s, &how);
  grow(&s, LIAR, 1e6f);
  limit(&s, 10, ALL);
  s.members[LIAR].round.norm_ratio = s.members[LIAR].round.norm = 0;
  scene_begin_all(&s);
  scene_run(&s, 20);
  scene_all_have_the_same(&s, 15);
  for (uint32_t chunk = 0; chunk < 8; chunk++) {
    int own = chunk >= s.plan[LIAR].first && chunk - s.plan[LIAR].first < s.plan[LIAR].count;
    assert_int_equal(scene_set(&s, 0, chunk), own ? 15 : 7);
  }
  scene_close(&s);
}

/* A majority without the option states nothing, so no median is known. */
static void option_at_one_member_alone_refuses_nobody(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = group(4);
  scene_open(&s, &how);
  grow(&s, LIAR, 1e6f);
  limit(&s, 10, 0);
  all_hold_the_mean_of(&s, 15, 1e6);
}

/* One of four does not come: three norms are left, and the liar's is not their median. */
static void lost_member_does_not_lift_the_limit(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = group(4);
  scene_open(&s, &how);
  grow(&s, LIAR, 1e6f);
  limit(&s, 10, ALL);
  for (size_t i = 0; i < 4; i++)
    if (i != 1)
      scene_begin(&s, i);
  scene_run(&s, 40);
  scene_all_have_the_same(&s, 13);
  for (uint32_t chunk = 0; chunk < 8; chunk++)
    assert_int_equal(scene_set(&s, 0, chunk), 5);
  scene_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(million_fold_values_are_refused_by_all_owners),
      cmocka_unit_test(members_just_below_the_limit_all_count),
      cmocka_unit_test(values_that_grow_at_all_members_all_count),
      cmocka_unit_test(groups_below_four_have_no_limit),
      cmocka_unit_test(auxiliary_owner_judges_as_all_others_do),
      cmocka_unit_test(owner_without_the_option_keeps_its_own_span),
      cmocka_unit_test(option_at_one_member_alone_refuses_nobody),
      cmocka_unit_test(lost_member_does_not_lift_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
