/* Two coordinate one round at the same time: each has some of the others, and yet all end in one view. */
#include "lib/scene.h"

static const hv_sim_link slow = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20};

static void six(scene *s, uint64_t seed) {
  scene_setup how = {.n = 6, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .stall_ms = 1500};
  scene_open(s, &how);
}

/* 0 asks all, since one of them gives nothing, and stands still. They miss it, and come to 1, which asks, too. */
static void stands_still_as_it_asks(scene *s, double asked_before) {
  while (!hv_allreduce_troubled(s->members[0].allreduce))
    scene_run(s, 0.001);
  scene_run(s, asked_before);
  hv_sim_pause(s->sim, 0);
}

static void is_missed_for_1(scene *s) {
  while (hv_allreduce_coordinator(s->members[1].allreduce) != 1)
    scene_run(s, 0.001);
  scene_run(s, 0.05);
}

static void all_end_in_one_view(scene *s) {
  scene_run(s, 60);
  scene_all_have_the_same(s, 63);
  for (size_t i = 0; i < s->n; i++) {
    scene_each_chunk_is_right(s, i);
    assert_int_equal(hv_allreduce_view(s->members[i].allreduce), hv_allreduce_view(s->members[0].allreduce));
    assert_true(s->members[i].done_us < 6000000);
  }
  scene_close(s);
}

/* 4 stood still until it is asked, and 5 does not hear 1. */
static void half_are_with_1(scene *s, uint64_t seed, int is_1_heard_late) {
  six(s, seed);
  scene_begin_all(s);
  scene_run(s, 0.1);
  hv_sim_pause(s->sim, 4);
  stands_still_as_it_asks(s, 0.001 * (double)(seed % 20)); /* none, some or all have answered */
  hv_sim_continue(s->sim, 4);
  scene_run(s, 1.4);
  hv_sim_cut(s->sim, 1, 5, 1);
  hv_sim_cut(s->sim, 1, 0, is_1_heard_late);
  if (is_1_heard_late)
    hv_sim_set_link(s->sim, 0, 5, &(hv_sim_link){.delay_us = 60000});
  is_missed_for_1(s);
}

static void goes_on(scene *s) {
  hv_sim_continue(s->sim, 0);
  scene_run(s, 0.05);
  hv_sim_cut(s->sim, 1, 0, 0);
  hv_sim_cut(s->sim, 1, 5, 0);
}

/* When 0 goes on, those whom 1 has asked have ended their lines to it, also who had answered: it goes to 1. */
static void a_coordinator_whom_half_have_left_goes_to_the_one_that_they_attend(void **unused) {
  (void)unused;
  for (uint64_t seed = 760; seed < 780; seed++) {
    scene s;
    half_are_with_1(&s, seed, 0);
    goes_on(&s);
    all_end_in_one_view(&s);
  }
}

/* 0 hears late that 1 coordinates; its own first word has brought 5 back. It sends 5 to 1, and 1, to which 0 comes first, waits for
 * that one. */
static void it_sends_there_who_has_come_back_to_it(void **unused) {
  (void)unused;
  for (uint64_t seed = 780; seed < 800; seed++) {
    scene s;
    half_are_with_1(&s, seed, 1);
    goes_on(&s);
    all_end_in_one_view(&s);
  }
}

/* 5 hears of its round when 0 has gone to 1, and comes to 0 first. */
static void it_takes_nobody_on_any_more(void **unused) {
  (void)unused;
  for (uint64_t seed = 800; seed < 818; seed++) {
    scene s;
    six(&s, seed);
    for (size_t i = 0; i < 5; i++)
      scene_begin(&s, i);
    scene_run(&s, 0.1);
    stands_still_as_it_asks(&s, 0.001 * (double)(seed % 20));
    is_missed_for_1(&s);
    hv_sim_continue(s.sim, 0);
    scene_run(&s, 0.02 + 0.01 * (double)(seed % 20)); /* 1 waits for it */
    scene_begin(&s, 5);
    all_end_in_one_view(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_coordinator_whom_half_have_left_goes_to_the_one_that_they_attend),
      cmocka_unit_test(it_sends_there_who_has_come_back_to_it),
      cmocka_unit_test(it_takes_nobody_on_any_more),
  };
  return cmocka_run_group_tests_name("coordinators in the sim", tests, NULL, NULL);
}
