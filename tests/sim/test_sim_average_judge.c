/* The judge of the swarm room `average`, by what it must let pass and what it must not: groups as they may have ended, told to it.
 */
#include "sim/swarm_trouble.c"

#include "sim/swarm_average.c"
#include "sim/swarm_liar.c"

#include "sim/swarm_seed.h"

enum { GROUP = 7, ELSEWHERE = 8, CHUNKS = 12, BEGAN_US = 1000000, CUT_AT_US = 1500000, ENDED_US = 3000000 };

static void idle(void *self, const hv_event *event) {
  (void)self, (void)event;
}

static hv_status make_idle(hv_env *env, void *arg, hv_core *out) {
  (void)env;
  *out = (hv_core){arg, idle};
  return HV_OK;
}

static void leave_idle(void *self) {
  (void)self;
}

/* n members of one group that have all averaged everything; everybody reached everybody. */
static room *a_group(swarm_run *run, size_t n) {
  *run = (swarm_run){0};
  hv_mem_init(&run->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(1);
  run->sim = hv_sim_new(&run->mem, &config);
  room *r = hv_mem_zalloc(&run->mem, sizeof *r);
  assert_non_null(r);
  r->run = run;
  r->n = n;
  for (size_t i = 0; i < n; i++) {
    hv_sim_seat chair = {.make = make_idle, .free = leave_idle, .arg = &r->seats[i]};
    assert_int_equal(hv_sim_add(run->sim, &chair, NULL), HV_OK);
    r->seats[i] = (seat){.r = r, .index = i};
    r->seats[i].now = (entry){.begun = 1,
                              .done = 1,
                              .in_round = 1,
                              .group = GROUP,
                              .members = (UINT64_C(1) << n) - 1,
                              .averaged = CHUNKS,
                              .n_chunks = CHUNKS,
                              .round_us = BEGAN_US,
                              .done_us = ENDED_US};
  }
  for (uint64_t us = BEGAN_US; us <= ENDED_US; us += LOOK_US) {
    glance *g = &r->glances[r->n_glances++];
    g->at_us = us;
    for (size_t i = 0; i < n; i++)
      g->reached[i] = ((UINT64_C(1) << n) - 1) & ~(UINT64_C(1) << i);
  }
  return r;
}

static void lacks_all(room *r, size_t i) {
  r->seats[i].now.status = HV_CLOSED;
  r->seats[i].now.averaged = 0;
}

static void cut(room *r, size_t i, size_t j) {
  for (size_t k = 0; k < r->n_glances; k++)
    if (r->glances[k].at_us >= CUT_AT_US) {
      r->glances[k].reached[i] &= ~(UINT64_C(1) << j);
      r->glances[k].reached[j] &= ~(UINT64_C(1) << i);
    }
}

/* It stood still, or died, from then on. */
static void goes_away(room *r, size_t i, uint64_t us) {
  r->seats[i].now.disturbed = 1;
  r->seats[i].now.away_us = us;
}

/* 1 when the judge finds fault with the group; frees it. */
static int fails(room *r, size_t first) {
  swarm_run *run = r->run;
  judge_whole(r, &r->seats[first]);
  int failed = run->failure[0] != 0;
  hv_sim_free(run->sim);
  hv_mem_free(r);
  assert_int_equal(atomic_load(&run->mem.blocks), 0);
  return failed;
}

static void who_lacks_something_without_any_reason_is_found(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(a_group(&run, 3), 0));
  room *r = a_group(&run, 3);
  lacks_all(r, 1);
  assert_true(fails(r, 0));
}

/* Two clients were told to begin, the third who can be dialled was not, and ended in another group. */
static room *two_clients(swarm_run *run, uint64_t third) {
  room *r = a_group(run, 3);
  for (size_t i = 0; i < 2; i++) {
    r->seats[i].client = 1;
    lacks_all(r, i);
  }
  r->seats[2].now.group = third;
  return r;
}

static void who_ended_in_another_group_was_not_there_to_average_with(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(two_clients(&run, ELSEWHERE), 0));
  assert_false(fails(two_clients(&run, 0), 0));
  assert_true(fails(two_clients(&run, GROUP), 0));
  room *r = two_clients(&run, GROUP);
  r->seats[2].now.done = 0; /* it hangs in that round, or dies there in the end */
  assert_true(fails(r, 0));
  r = two_clients(&run, GROUP);
  r->seats[2].now.done = 0;
  goes_away(r, 2, ENDED_US);
  assert_true(fails(r, 0));
  r = two_clients(&run, 0);
  r->seats[2].now.done = r->seats[2].now.in_round = 0; /* it died, and had been in no round */
  goes_away(r, 2, ENDED_US);
  assert_false(fails(r, 0));
  r = two_clients(&run, ELSEWHERE);
  r->seats[1].client = 0; /* one of both could have been dialled */
  assert_true(fails(r, 0));
}

static void clients_whose_last_peer_died_are_alone_also_where_nothing_is_cut(void **unused) {
  (void)unused;
  swarm_run run;
  for (int glances = 0; glances < 2; glances++)
    for (int late = 0; late < 2; late++) {
      room *r = two_clients(&run, GROUP);
      r->n_glances = glances ? r->n_glances : 0;
      r->seats[2].now.done = 0;
      goes_away(r, 2, late ? ENDED_US : ENDED_US - LOOK_US);
      assert_int_equal(fails(r, 0), late); /* not before they ended: it was no death that they ended for */
    }
}

/* The last of three was told to begin, and never came; the first one's time was over then. */
static room *no_time(swarm_run *run, uint64_t us) {
  room *r = a_group(run, 3);
  lacks_all(r, 0);
  r->seats[0].now.status = HV_TIMEOUT;
  r->seats[0].now.done_us = BEGAN_US + us;
  r->seats[2].now.group = ELSEWHERE;
  return r;
}

static void who_is_out_of_time_missed_somebody_who_was_not_there(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(no_time(&run, LOSS_US - 1), 0));
  assert_true(fails(no_time(&run, LOSS_US + 1), 0)); /* by then it could have done without */
  room *r = no_time(&run, LOSS_US - 1);
  r->seats[0].now.status = HV_CLOSED;
  assert_true(fails(r, 0));
  r = no_time(&run, LOSS_US - 1);
  r->seats[2].now.group = GROUP; /* all were there */
  assert_true(fails(r, 0));
}

/* The last of four stood still before their round began, came back, and ended it well. */
static room *one_comes_back(swarm_run *run) {
  room *r = a_group(run, 4);
  lacks_all(r, 0);
  goes_away(r, 3, BEGAN_US / 2);
  return r;
}

static void who_stood_still_before_the_round_and_ended_it_well_was_there(void **unused) {
  (void)unused;
  swarm_run run;
  room *r = one_comes_back(&run);
  cut(r, 0, 3);
  assert_false(fails(r, 0)); /* two who do not reach each other: one of both goes */
  assert_true(fails(one_comes_back(&run), 0));
  r = one_comes_back(&run);
  cut(r, 0, 3);
  r->seats[3].now.done = 0; /* it never came back: the others had no need to choose */
  assert_true(fails(r, 0));
  r = one_comes_back(&run);
  cut(r, 0, 3);
  r->seats[3].now.status = HV_TIMEOUT; /* nor if it had no part in their averages */
  assert_true(fails(r, 0));
  r = one_comes_back(&run);
  cut(r, 0, 3);
  r->seats[3].now.done_us = CUT_AT_US + LOOK_US; /* nor if it was gone by then */
  assert_true(fails(r, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_lacks_something_without_any_reason_is_found),
      cmocka_unit_test(who_ended_in_another_group_was_not_there_to_average_with),
      cmocka_unit_test(clients_whose_last_peer_died_are_alone_also_where_nothing_is_cut),
      cmocka_unit_test(who_is_out_of_time_missed_somebody_who_was_not_there),
      cmocka_unit_test(who_stood_still_before_the_round_and_ended_it_well_was_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
