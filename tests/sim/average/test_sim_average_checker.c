/* The checker of the swarm room `average`, by what it must let pass and what it must not: groups as they may have ended, told to
 * it.
 */
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_average.c"
#include "sim/swarm/swarm_liar.c"
#include "sim/swarm/swarm_nat.c"

#include "sim/swarm/swarm_seed.h"

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
    hv_sim_node_config chair = {.make = make_idle, .free = leave_idle, .arg = &r->seats[i]};
    assert_int_equal(hv_sim_add(run->sim, &chair, NULL), HV_OK);
    r->seats[i] = (seat){.r = r, .index = i};
    r->seats[i].now = (entry){.begun = 1,
                              .done = 1,
                              .in_us = BEGAN_US,
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

/* The first ones, so many. */
static void all_lack_all(room *r, size_t n) {
  for (size_t i = 0; i < n; i++)
    lacks_all(r, i);
}

static void cut_from_to(room *r, size_t i, size_t j, uint64_t from_us, uint64_t to_us) {
  for (size_t k = 0; k < r->n_glances; k++)
    if (r->glances[k].at_us >= from_us && r->glances[k].at_us < to_us) {
      r->glances[k].reached[i] &= ~(UINT64_C(1) << j);
      r->glances[k].reached[j] &= ~(UINT64_C(1) << i);
    }
}

static void cut(room *r, size_t i, size_t j) {
  cut_from_to(r, i, j, CUT_AT_US, UINT64_MAX);
}

/* It stood still, or died, from then on. */
static void goes_away(room *r, size_t i, uint64_t us) {
  r->seats[i].now.disturbed = 1;
  r->seats[i].now.away_us = us;
}

/* 1 when the checker finds fault with the group; frees it. */
static int fails(room *r, size_t first) {
  swarm_run *run = r->run;
  checker_whole(r, &r->seats[first]);
  int failed = run->failure[0] != 0;
  hv_sim_free(run->sim);
  hv_mem_free(r->nat.homes);
  hv_mem_free(r);
  assert_int_equal(atomic_load(&run->mem.blocks), 0);
  return failed;
}

static void checker_finds_a_loss_without_a_cause(void **unused) {
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

/* If the third member ended in another group, two clients had nobody to average with. */
static void checker_excuses_clients_if_the_third_was_elsewhere(void **unused) {
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
  r->seats[2].now.done = r->seats[2].now.in_us = 0; /* it died, and had been in no round */
  goes_away(r, 2, ENDED_US);
  assert_false(fails(r, 0));
  for (uint64_t late = 0; late < 2; late++) {
    r = two_clients(&run, GROUP);
    r->seats[2].now.done = 0; /* it was seen in a round when they had ended, another one then, and died there */
    r->seats[2].now.in_us = ENDED_US + late;
    goes_away(r, 2, ENDED_US + LOOK_US);
    assert_int_equal(fails(r, 0), !late);
  }
  r = two_clients(&run, ELSEWHERE);
  r->seats[1].client = 0; /* one of both could have been dialled */
  assert_true(fails(r, 0));
}

/* Clients that lose the last peer they can dial are alone, even if no link is cut. */
static void checker_excuses_clients_after_their_last_peer_died(void **unused) {
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

/* The third of them stood still in that time, and went on later than they ended, or before; it ended well. */
static room *two_clients_and_one_still(swarm_run *run, uint64_t from_us, uint64_t to_us) {
  room *r = two_clients(run, GROUP);
  goes_away(r, 2, from_us);
  for (uint64_t us = from_us; us <= to_us; us += LOOK_US)
    see_halt(&r->seats[2], us);
  r->seats[2].now.done_us = to_us + CUT_US > ENDED_US ? to_us + CUT_US : ENDED_US;
  return r;
}

/* The stalled peer ends well later. The two clients are alone in the meantime. */
static void checker_excuses_clients_if_their_last_peer_stalls(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(two_clients_and_one_still(&run, CUT_AT_US, ENDED_US + LOOK_US), 0));
  assert_true(fails(two_clients_and_one_still(&run, CUT_AT_US, ENDED_US - LOOK_US), 0));          /* it had gone on */
  assert_true(fails(two_clients_and_one_still(&run, ENDED_US - LOOK_US, ENDED_US + LOOK_US), 0)); /* that is nothing */
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

static void checker_excuses_a_timeout_caused_by_an_absent_member(void **unused) {
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
  for (unsigned lies = SWARM_LIES_VALUES; lies <= SWARM_LIES_WEIGHT; lies *= 2) {
    r = no_time(&run, LOSS_US - 1);
    r->seats[2].now.group = GROUP;
    r->seats[2].liar.tells = lies; /* who says that it is another one was never there */
    assert_int_equal(fails(r, 0), lies != SWARM_LIES_ORDER);
  }
  for (int since = 0; since < 2; since++) /* who can only dial out has lied about views before this round, or since it began */
    for (int late = 0; late < 2; late++) {
      r = no_time(&run, late ? LOSS_US + 1 : LOSS_US - 1);
      r->seats[2].now.group = GROUP;
      r->seats[2].client = 1;
      r->seats[2].liar.tells = SWARM_LIES_NEWS;
      r->seats[2].liar.told_us = BEGAN_US - !since;
      assert_int_equal(fails(r, 0), late || !since);
    }
  for (int late = 0; late < 3; late++) { /* it came into the round in time, too late, or too late long before */
    r = no_time(&run, late == 2 ? LOSS_US + 1 : LOSS_US - 1);
    r->seats[2].now.group = GROUP;
    r->seats[2].now.round_us = BEGAN_US + STALL_MS * 1000 - !late;
    assert_int_equal(fails(r, 0), late != 1);
  }
  for (int dies = 0; dies < 2; dies++) {
    r = no_time(&run, LOSS_US + 1);
    r->seats[2].now.group = GROUP;
    r->seats[2].liar.tells = SWARM_LIES_ORDER; /* it died later, and the others went on without it only then */
    if (dies)
      goes_away(r, 2, CUT_AT_US);
    assert_int_equal(fails(r, 0), !dies);
  }
}

/* A member that misses the first of them comes to the next, and so on. */
static void checker_allows_more_time_for_several_absent_members(void **unused) {
  (void)unused;
  swarm_run run;
  for (size_t never = 1; never <= 3; never++)
    for (int late = 0; late < 2; late++) {
      room *r = a_group(&run, 5);
      lacks_all(r, 0);
      r->seats[0].now.status = HV_TIMEOUT;
      r->seats[0].now.done_us = BEGAN_US + LOSS_US + (never - 1) * STALL_MS * 500 + (uint64_t)late;
      for (size_t i = 0; i < never; i++)
        r->seats[4 - i].now.group = ELSEWHERE;
      assert_int_equal(fails(r, 0), late);
    }
}

/* The member had stalled before, so long ago that the others could have continued without it. */
static void checker_excuses_a_timeout_if_a_member_stalled_again(void **unused) {
  (void)unused;
  swarm_run run;
  for (int k = 0; k < 3; k++) { /* once; once more for a moment; for longer */
    room *r = no_time(&run, LOSS_US + 1);
    entry *o = &r->seats[2].now;
    uint64_t us = r->seats[0].now.done_us - STALL_MS * 1000;
    o->group = GROUP;
    goes_away(r, 2, BEGAN_US / 2);
    o->halts[o->n_halts++] = (halt){BEGAN_US / 2, BEGAN_US};
    if (k)
      o->halts[o->n_halts++] = (halt){us, us + (k == 2 ? CUT_US : CUT_US - 1)};
    assert_int_equal(fails(r, 0), k < 2);
  }
}

/* The last of four stood still before their round began, came back, and ended it well. */
static room *one_comes_back(swarm_run *run) {
  room *r = a_group(run, 4);
  lacks_all(r, 0);
  goes_away(r, 3, BEGAN_US / 2);
  return r;
}

static void checker_counts_a_stalled_member_that_finished_as_present(void **unused) {
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

/* That one came back as well, and from the cut on was there for so long; then it died. */
static room *one_comes_back_and_dies(swarm_run *run, uint64_t us) {
  room *r = one_comes_back(run);
  entry *o = &r->seats[3].now;
  o->halts[o->n_halts++] = (halt){BEGAN_US / 2, BEGAN_US};
  o->done = 0;
  o->died_us = CUT_AT_US + us;
  cut(r, 0, 3);
  return r;
}

static void checker_counts_a_stalled_member_as_present_until_it_died(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(one_comes_back_and_dies(&run, CUT_US), 0));
  assert_true(fails(one_comes_back_and_dies(&run, CUT_US - 1), 0)); /* that costs nobody its place */
  room *r = one_comes_back_and_dies(&run, CUT_US);
  r->seats[3].now.halts[0].to_us = BEGAN_US + CUT_US; /* it came when nobody waited for it any more */
  assert_true(fails(r, 0));
  r = one_comes_back_and_dies(&run, CUT_US);
  r->seats[3].now.in_us = 0; /* it never came */
  assert_true(fails(r, 0));
  r = one_comes_back_and_dies(&run, CUT_US);
  r->n_glances = 0; /* nothing was cut */
  assert_true(fails(r, 0));
}

static void checker_excuses_a_timeout_if_a_returned_member_died(void **unused) {
  (void)unused;
  swarm_run run;
  for (int dies = 0; dies < 2; dies++) {
    room *r = no_time(&run, LOSS_US + 1);
    r->seats[2].now.group = GROUP;
    goes_away(r, 2, BEGAN_US / 2);
    r->seats[2].now.died_us = dies ? CUT_AT_US : 0;
    assert_int_equal(fails(r, 0), !dies);
  }
}

/* A cut was there as the group began, for a moment; the first of three had the word of it later. */
static room *the_word_came_late(swarm_run *run, uint64_t cut_us, uint64_t late_us) {
  room *r = a_group(run, 3);
  lacks_all(r, 0);
  for (size_t j = 1; j < 3; j++)
    cut_from_to(r, 0, j, BEGAN_US + LOOK_US - cut_us, BEGAN_US + LOOK_US);
  r->seats[0].now.round_us = BEGAN_US + late_us;
  return r;
}

/* The message that a round begins came when nobody waited for the member any more. */
static void checker_excuses_a_message_delayed_by_a_partition(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(the_word_came_late(&run, LOOK_US, STALL_MS * 1000), 0));
  assert_true(fails(the_word_came_late(&run, 0, STALL_MS * 1000), 0)); /* nothing was cut */
  assert_true(fails(the_word_came_late(&run, LOOK_US, STALL_MS * 1000 - 1), 0));
}

/* The message was lost, and a partition came before it was sent again, or only after that. */
static void checker_excuses_a_message_lost_just_before_a_partition(void **unused) {
  (void)unused;
  swarm_run run;
  for (uint64_t late_us = 0; late_us <= 2 * RESENT_US; late_us += 2 * RESENT_US) {
    room *r = the_word_came_late(&run, 0, STALL_MS * 1000);
    for (size_t j = 1; j < 3; j++)
      cut_from_to(r, 0, j, BEGAN_US + LOOK_US + late_us, BEGAN_US + LOOK_US + late_us + RESENT_US / 2);
    assert_int_equal(fails(r, 0), late_us > 0);
  }
}

static room *a_halt(swarm_run *run, uint64_t from_us, uint64_t to_us) {
  room *r = a_group(run, 3);
  lacks_all(r, 0);
  for (uint64_t us = from_us; us <= to_us; us += LOOK_US)
    see_halt(&r->seats[0], us);
  return r;
}

/* The limit is the time for which the others wait for a suspected member. */
static void checker_excuses_the_loss_of_a_member_stalled_too_long(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(a_halt(&run, CUT_AT_US, CUT_AT_US + CUT_US), 0));
  assert_true(fails(a_halt(&run, CUT_AT_US, CUT_AT_US + CUT_US - LOOK_US), 0));
  assert_true(fails(a_halt(&run, BEGAN_US - CUT_US, BEGAN_US + CUT_US - LOOK_US), 0)); /* most of it before the round */
  assert_true(fails(a_halt(&run, ENDED_US - LOOK_US, ENDED_US + CUT_US), 0));
  room *r = a_halt(&run, CUT_AT_US, CUT_AT_US + CUT_US - LOOK_US); /* twice, but each time for less */
  see_halt(&r->seats[0], CUT_AT_US + CUT_US + LOOK_US);
  assert_true(fails(r, 0));
  r = a_halt(&run, CUT_AT_US, CUT_AT_US + CUT_US);
  lacks_all(r, 1); /* that is no excuse for another one */
  assert_true(fails(r, 0));
}

/* The second of four is cut off from the third, a liar who coordinates, and the last is gone. */
static room *beside_a_liar(swarm_run *run) {
  room *r = a_group(run, 4);
  all_lack_all(r, 2);
  cut_from_to(r, 1, 2, BEGAN_US, ENDED_US + 1);
  r->seats[2].liar.tells = SWARM_LIES_BYTES;
  r->seats[3].now.done = 0;
  goes_away(r, 3, BEGAN_US);
  return r;
}

static void checker_counts_a_member_beside_a_liar_as_alone(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(beside_a_liar(&run), 0));
  room *r = beside_a_liar(&run);
  r->seats[2].liar.tells = 0; /* it could have averaged with that one */
  assert_true(fails(r, 0));
  r = beside_a_liar(&run);
  cut_from_to(r, 0, 2, BEGAN_US, ENDED_US + 1); /* both without the liar, and with each other */
  assert_true(fails(r, 0));
}

/* Two clients; the third can be dialled, and tells false averages in their round, or before. */
static room *two_clients_and_a_liar(swarm_run *run, uint64_t false_us) {
  room *r = two_clients(run, GROUP);
  r->seats[1].now.averaged = CHUNKS; /* it told this one the truth */
  r->seats[1].now.status = HV_OK;
  r->seats[2].liar.tells = SWARM_LIES_VALUES;
  r->seats[2].liar.false_us = false_us;
  return r;
}

static void checker_counts_clients_as_alone_if_all_servers_lie(void **unused) {
  (void)unused;
  swarm_run run;
  for (int glances = 0; glances < 2; glances++) {
    room *r = two_clients_and_a_liar(&run, BEGAN_US);
    r->n_glances = glances ? r->n_glances : 0;
    assert_false(fails(r, 0));
  }
  room *r = two_clients_and_a_liar(&run, BEGAN_US - 1); /* it only might have */
  r->n_glances = 0;
  assert_true(fails(r, 0));
  r = two_clients_and_a_liar(&run, BEGAN_US);
  r->n_glances = 0;
  r->seats[1].client = 0; /* one of both could have averaged for the other */
  assert_true(fails(r, 0));
}

/* The first lacks a chunk; the last two have told false averages. */
static room *two_lied(swarm_run *run, size_t n, uint64_t false_us) {
  room *r = a_group(run, n);
  r->seats[0].now.averaged = CHUNKS - 1;
  for (size_t i = n - 2; i < n; i++) {
    r->seats[i].liar.tells = SWARM_LIES_VALUES;
    r->seats[i].liar.false_us = BEGAN_US;
  }
  r->seats[n - 1].liar.false_us = false_us;
  return r;
}

/* Its charges are true. The others may doubt it nevertheless, because it charges more than a quarter of the members. */
static void checker_allows_doubt_of_one_that_charges_over_a_quarter(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(two_lied(&run, 4, BEGAN_US), 0));
  assert_true(fails(two_lied(&run, 4, BEGAN_US - 1), 0)); /* one only might have */
  assert_true(fails(two_lied(&run, 5, BEGAN_US), 0));
}

/* The first of three is cut off from the second, and when that is over from the third; none of them ends well. */
static room *one_after_the_other(swarm_run *run, uint64_t cut_us) {
  room *r = a_group(run, 3);
  all_lack_all(r, 3);
  cut_from_to(r, 0, 1, BEGAN_US, BEGAN_US + cut_us);
  cut_from_to(r, 2, 1, BEGAN_US, BEGAN_US + cut_us);
  cut_from_to(r, 0, 2, CUT_AT_US, CUT_AT_US + cut_us);
  cut_from_to(r, 1, 2, CUT_AT_US, CUT_AT_US + cut_us);
  return r;
}

/* It lost the others one after the other. */
static void checker_counts_a_member_that_lost_all_others_as_alone(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(one_after_the_other(&run, CUT_US + LOOK_US), 0));
  assert_true(fails(one_after_the_other(&run, CUT_US), 0)); /* that costs nobody its place */
  room *r = one_after_the_other(&run, CUT_US + LOOK_US);
  r->seats[0].now.done_us = CUT_AT_US; /* the third was there to the end */
  assert_true(fails(r, 0));
}

/* The last of three is cut off from the others, whose time is over then. */
static room *cut_off_at_the_end(swarm_run *run, uint64_t before_us) {
  room *r = a_group(run, 3);
  all_lack_all(r, 3);
  for (size_t i = 0; i < 2; i++) {
    cut_from_to(r, i, 2, CUT_AT_US, ENDED_US + 1);
    r->seats[i].now.status = HV_TIMEOUT;
    r->seats[i].now.done_us = CUT_AT_US + before_us;
  }
  return r;
}

static void checker_excuses_a_timeout_caused_by_a_partition(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(cut_off_at_the_end(&run, CUT_US), 0));
  assert_true(fails(cut_off_at_the_end(&run, CUT_US - LOOK_US), 0)); /* that is nothing */
  room *r = cut_off_at_the_end(&run, CUT_US);
  r->seats[0].now.status = r->seats[1].now.status = HV_CLOSED;
  assert_true(fails(r, 0));
  r = cut_off_at_the_end(&run, CUT_US);
  for (size_t i = 0; i < 2; i++)
    r->seats[i].now.done_us = ENDED_US + LOSS_US + 1; /* by then they could have done without */
  assert_true(fails(r, 0));
}

/* The last one began its step late, came into the round a little after the first, and is in it to this day; a cut parts it from the
 * others until their time is over. */
static room *out_of_time_with_one_that_began_late(swarm_run *run, uint64_t came_us, uint64_t before_us) {
  room *r = cut_off_at_the_end(run, before_us);
  r->seats[2].now.late = 1;
  r->seats[2].now.done = 0;
  r->seats[2].now.group = 0;
  r->seats[2].now.in_us = came_us;
  return r;
}

static void checker_excuses_a_timeout_if_a_late_member_is_partitioned(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(out_of_time_with_one_that_began_late(&run, BEGAN_US, CUT_US), 0));
  assert_false(fails(out_of_time_with_one_that_began_late(&run, BEGAN_US + LOOK_US, CUT_US), 0));
  assert_true(fails(out_of_time_with_one_that_began_late(&run, BEGAN_US, CUT_US - LOOK_US), 0));
}

/* The last of three had stood still long before the round, and came back into it; it is cut off from the first one for a while, and
 * the time of both is over then. */
static room *out_of_time_with_one_that_came_back(swarm_run *run, uint64_t cut_us) {
  room *r = a_group(run, 3);
  lacks_all(r, 0);
  cut_from_to(r, 0, 2, CUT_AT_US, CUT_AT_US + LOOK_US + cut_us);
  goes_away(r, 2, 0);
  for (size_t i = 0; i < 3; i += 2) {
    r->seats[i].now.status = HV_TIMEOUT;
    r->seats[i].now.done_us = LOSS_US + 1;
  }
  return r;
}

static void checker_excuses_a_timeout_if_a_returned_one_is_partitioned(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(out_of_time_with_one_that_came_back(&run, CUT_US), 0));
  assert_true(fails(out_of_time_with_one_that_came_back(&run, CUT_US - LOOK_US), 0)); /* that is nothing */
  room *r = out_of_time_with_one_that_came_back(&run, CUT_US);
  r->seats[0].now.status = HV_CLOSED;
  assert_true(fails(r, 0));
  r = out_of_time_with_one_that_came_back(&run, CUT_US);
  r->seats[2].now.done = 0; /* it never came back */
  assert_true(fails(r, 0));
  r = out_of_time_with_one_that_came_back(&run, CUT_US);
  r->seats[0].now.done_us = CUT_AT_US + 2 * LOSS_US; /* by then it could have done without */
  assert_true(fails(r, 0));
}

/* The second and the third of three were cut off from each other when the first one's time was nearly over. */
static room *two_cut_off_at_the_end(swarm_run *run, uint64_t before_us) {
  room *r = a_group(run, 3);
  r->seats[0].now.averaged = CHUNKS - 1;
  r->seats[0].now.status = HV_TIMEOUT;
  r->seats[0].now.done_us = CUT_AT_US + before_us;
  cut_from_to(r, 1, 2, CUT_AT_US, ENDED_US + 1);
  return r;
}

static void checker_excuses_a_timeout_if_two_others_are_partitioned(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(two_cut_off_at_the_end(&run, CUT_US), 0));
  assert_true(fails(two_cut_off_at_the_end(&run, CUT_US - LOOK_US), 0)); /* that is nothing */
  room *r = two_cut_off_at_the_end(&run, CUT_US);
  r->seats[0].now.status = HV_CLOSED;
  assert_true(fails(r, 0));
  r = two_cut_off_at_the_end(&run, CUT_US);
  r->seats[0].now.done_us = ENDED_US + LOSS_US + 1; /* by then they could have done without */
  assert_true(fails(r, 0));
  r = two_cut_off_at_the_end(&run, CUT_US);
  r->seats[0].now.members = r->seats[1].now.members = 3; /* the other end of the cut was in another group */
  r->seats[2].now.group = ELSEWHERE;
  assert_true(fails(r, 0));
}

/* Three of four miss the last one; the time of two is over, and then the first one ends, too. */
static room *the_others_had_no_time(swarm_run *run, hv_status status) {
  room *r = a_group(run, 4);
  all_lack_all(r, 3);
  for (size_t i = 1; i < 3; i++)
    r->seats[i].now.status = HV_TIMEOUT;
  r->seats[1].now.status = status;
  r->seats[3].now.done = 0;
  goes_away(r, 3, BEGAN_US);
  return r;
}

static void checker_counts_a_member_as_alone_after_others_time_out(void **unused) {
  (void)unused;
  swarm_run run;
  assert_false(fails(the_others_had_no_time(&run, HV_TIMEOUT), 0));
  assert_true(fails(the_others_had_no_time(&run, HV_CLOSED), 0));
  room *r = the_others_had_no_time(&run, HV_TIMEOUT);
  r->seats[1].now.done_us++; /* it was there yet */
  assert_true(fails(r, 0));
  for (int over = 0; over < 2; over++) {
    r = the_others_had_no_time(&run, HV_OK); /* it had everything, and stayed for as long as it could, or not */
    for (size_t i = 0; i < 3; i++)
      r->seats[i].now.done_us = TIMEOUT_MS * 1000;
    r->seats[1].now.averaged = CHUNKS;
    r->seats[1].now.begun_us = over ? 0 : LATE_US;
    goes_away(r, 3, TIMEOUT_MS * 1000 - LATE_US);
    assert_int_equal(fails(r, 0), !over);
  }
}

/* Members of different views may hold the same bits by chance. Members of one view, or with one stamp, may not. */
static void checker_compares_stamps_with_values_in_each_view(void **unused) {
  (void)unused;
  for (int bits = 0; bits < 2; bits++)
    for (int view = 0; view < 2; view++)
      for (int stamp = 0; stamp < 2; stamp++) {
        swarm_run run;
        room *r = a_group(&run, 2);
        r->seats[1].marks[0] = (float)bits;
        r->seats[1].now.view = (uint32_t)view;
        r->seats[1].now.stamp = (uint64_t)stamp;
        checker_pairs(r, GROUP);
        assert_int_equal(run.failure[0] != 0, bits ? !stamp || !view : stamp && !view);
        run.failure[0] = 0;
        assert_false(fails(r, 0));
      }
}

static uint64_t group_of(seat *s, uint8_t round) {
  hv_average_member members[2] = {{.id = s->r->seats[0].id, .me = 1}, {.id = s->r->seats[1].id}};
  hv_average_outcome outcome = {.members = members, .n_members = 2};
  memset(outcome.round, round, sizeof outcome.round);
  s->step.owner = s;
  s->now.done = 0;
  was_done(&s->step, HV_OK, "", &outcome);
  return s->now.group;
}

/* A member of a group that lacks all, in an epoch that began so long after another one's lease had ended. */
static int fails_after_a_lease(uint64_t later_us, size_t lapsed) {
  swarm_run run;
  room *r = a_group(&run, 3);
  lacks_all(r, 1);
  r->nat.homes = hv_mem_zalloc(&run.mem, sizeof *r->nat.homes);
  assert_non_null(r->nat.homes);
  r->nat.homes->sim = run.sim;
  r->nat.homes->nodes[lapsed].opened.kind = HV_ADDR_IP4;
  r->epoch_us = later_us;
  return fails(r, 0);
}

static void checker_excuses_a_lease_until_keepalive_finds_out(void **unused) {
  (void)unused;
  uint64_t keepalive_us = hv_sim_defaults(0).keepalive_us;
  assert_false(fails_after_a_lease(keepalive_us - 1, 2));
  assert_true(fails_after_a_lease(keepalive_us, 2));
  assert_true(fails_after_a_lease(0, 5)); /* it is not in the group */
}

static void two_rounds_of_the_same_members_are_two_groups(void **unused) {
  (void)unused;
  swarm_run run;
  room *r = a_group(&run, 2);
  memset(&r->seats[1].id, 1, sizeof r->seats[1].id);
  assert_true(group_of(&r->seats[0], 1) == group_of(&r->seats[0], 1));
  assert_true(group_of(&r->seats[0], 1) != group_of(&r->seats[0], 2));
  assert_false(fails(r, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checker_finds_a_loss_without_a_cause),
      cmocka_unit_test(checker_excuses_clients_if_the_third_was_elsewhere),
      cmocka_unit_test(checker_excuses_clients_after_their_last_peer_died),
      cmocka_unit_test(checker_excuses_clients_if_their_last_peer_stalls),
      cmocka_unit_test(checker_excuses_a_timeout_caused_by_an_absent_member),
      cmocka_unit_test(checker_allows_more_time_for_several_absent_members),
      cmocka_unit_test(checker_excuses_a_timeout_if_a_member_stalled_again),
      cmocka_unit_test(checker_counts_a_stalled_member_that_finished_as_present),
      cmocka_unit_test(checker_counts_a_stalled_member_as_present_until_it_died),
      cmocka_unit_test(checker_excuses_a_timeout_if_a_returned_member_died),
      cmocka_unit_test(checker_excuses_a_timeout_if_a_late_member_is_partitioned),
      cmocka_unit_test(checker_excuses_a_timeout_if_a_returned_one_is_partitioned),
      cmocka_unit_test(checker_excuses_a_message_delayed_by_a_partition),
      cmocka_unit_test(checker_excuses_a_message_lost_just_before_a_partition),
      cmocka_unit_test(checker_excuses_the_loss_of_a_member_stalled_too_long),
      cmocka_unit_test(checker_counts_a_member_beside_a_liar_as_alone),
      cmocka_unit_test(checker_counts_clients_as_alone_if_all_servers_lie),
      cmocka_unit_test(checker_allows_doubt_of_one_that_charges_over_a_quarter),
      cmocka_unit_test(checker_excuses_a_timeout_caused_by_a_partition),
      cmocka_unit_test(checker_excuses_a_timeout_if_two_others_are_partitioned),
      cmocka_unit_test(checker_counts_a_member_as_alone_after_others_time_out),
      cmocka_unit_test(checker_counts_a_member_that_lost_all_others_as_alone),
      cmocka_unit_test(checker_compares_stamps_with_values_in_each_view),
      cmocka_unit_test(checker_excuses_a_lease_until_keepalive_finds_out),
      cmocka_unit_test(two_rounds_of_the_same_members_are_two_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
