/* Two coordinate one round at the same time: each has some of the others, and yet all end in one view. */
#include "lib/scene.h"

static const hv_sim_link slow = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20};

static void some(scene *s, size_t n, uint64_t seed) {
  scene_setup how = {.n = n, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .stall_ms = 1500};
  scene_open(s, &how);
}

static void six(scene *s, uint64_t seed) {
  some(s, 6, seed);
}

static void has_trouble(scene *s, size_t member) {
  while (!hv_allreduce_troubled(s->members[member].allreduce))
    scene_run(s, 0.001);
}

/* 0 asks all, since one of them gives nothing, and stands still. They miss it, and come to 1, which asks, too. */
static void stands_still_as_it_asks(scene *s, double asked_before) {
  has_trouble(s, 0);
  scene_run(s, asked_before);
  hv_sim_pause(s->sim, 0);
}

/* Until it does, as far as it knows itself. */
static void coordinates(scene *s, size_t member) {
  while (hv_allreduce_coordinator(s->members[member].allreduce) != member)
    scene_run(s, 0.001);
}

static void is_missed_for_1(scene *s) {
  coordinates(s, 1);
  scene_run(s, 0.05);
}

static void all_end_in_one_view(scene *s, unsigned set, double within) {
  size_t first = 0;
  while (!(set >> first & 1))
    first++;
  scene_run(s, 60);
  scene_all_have_the_same(s, set);
  for (size_t i = first; i < s->n; i++) {
    if (!(set >> i & 1))
      continue;
    scene_each_chunk_is_right(s, i);
    assert_int_equal(hv_allreduce_view(s->members[i].allreduce), hv_allreduce_view(s->members[first].allreduce));
    assert_true((double)s->members[i].done_us < within * 1e6);
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

/* When 0 resumes, the members that 1 has asked have closed their streams to it, also those that had answered. 0 goes to 1. */
static void coordinator_left_by_half_joins_the_one_they_attend(void **unused) {
  (void)unused;
  for (uint64_t seed = 760; seed < 780; seed++) {
    scene s;
    half_are_with_1(&s, seed, 0);
    goes_on(&s);
    all_end_in_one_view(&s, 63, 6);
  }
}

/* 0 hears late that 1 coordinates; its own first word has brought 5 back. It sends 5 to 1, and 1, to which 0 comes first, waits for
 * that one. */
static void coordinator_sends_returned_members_to_the_next_one(void **unused) {
  (void)unused;
  for (uint64_t seed = 780; seed < 800; seed++) {
    scene s;
    half_are_with_1(&s, seed, 1);
    goes_on(&s);
    all_end_in_one_view(&s, 63, 6);
  }
}

/* 5 hears of its round when 0 has gone to 1, and comes to 0 first. */
static void coordinator_that_has_left_accepts_nobody(void **unused) {
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
    all_end_in_one_view(&s, 63, 6);
  }
}

/* All have answered 0 but 4, whose machine is gone, when 0 stands still. They go to 1, and that 3 has ended its line is all that 0
 * has heard of that when it goes on, and the time to answer is over: a view without 3 would be one that 1 cannot do without. */
static void stalled_asker_waits_for_members_that_may_have_left(void **unused) {
  (void)unused;
  for (uint64_t seed = 860; seed < 880; seed++) {
    scene s;
    six(&s, seed);
    for (size_t i = 0; i < 5; i++)
      scene_begin(&s, i);
    scene_run(&s, 0.1);
    hv_sim_unplug(s.sim, 4);
    has_trouble(&s, 0);
    scene_run(&s, 1.45);
    scene_begin(&s, 5);
    scene_run(&s, 0.04);
    hv_sim_pause(s.sim, 0);
    hv_sim_set_link(s.sim, 1, 0, &(hv_sim_link){.delay_us = 60000});
    hv_sim_set_link(s.sim, 2, 0, &(hv_sim_link){.delay_us = 60000});
    coordinates(&s, 1);
    scene_run(&s, 0.001 * (double)(seed - 840));
    hv_sim_continue(s.sim, 0);
    all_end_in_one_view(&s, 47, 10);
  }
}

/* All have answered 0 but 4, whose machine is gone, when 0 stands still; they go to 1. When 0 goes on, 5 comes back to it, and the
 * time of 4 is soon over; what the others answered is no plan for two. 0 hears a little later that they are with 1. */
static void answers_of_departed_members_are_not_enough(void **unused) {
  (void)unused;
  for (uint64_t seed = 820; seed < 840; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_unplug(s.sim, 4);
    stands_still_as_it_asks(&s, 0.2 + 0.008 * (double)(seed % 20));
    scene_run(&s, 1.4);
    hv_sim_cut(s.sim, 1, 5, 1);
    hv_sim_cut(s.sim, 1, 0, 1);
    is_missed_for_1(&s);
    hv_sim_continue(s.sim, 0);
    scene_run(&s, 0.15);
    hv_sim_cut(s.sim, 1, 0, 0);
    hv_sim_cut(s.sim, 1, 5, 0);
    all_end_in_one_view(&s, 0x2f, 12);
  }
}

/* 0 stands still for so long that all go to 1, though nothing has broken. It owns most, and was nearly done: when it goes on it has
 * everything at once, while they lack what it owns: not all have finished, though they said that they attend 1. */
static void coordinator_done_at_its_resume_waits_for_departed_members(void **unused) {
  (void)unused;
  for (uint64_t seed = 840; seed < 880; seed++) {
    scene s;
    scene_setup how = {
        .n = 4, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .stall_ms = 1500, .told = {4, 1, 1, 1}};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3 + 0.01 * (double)(seed % 40));
    hv_sim_pause(s.sim, 0);
    for (int i = 0; i < 3000 && hv_allreduce_coordinator(s.members[1].allreduce) != 1; i++)
      scene_run(&s, 0.001);
    hv_sim_continue(s.sim, 0);
    for (int i = 0; i < 3000; i++) {
      scene_run(&s, 0.001);
      assert_true(!hv_allreduce_finished(s.members[0].allreduce) || (s.members[1].done && s.members[2].done && s.members[3].done));
    }
    scene_run(&s, 60);
    scene_all_have_the_same(&s, 15);
    scene_close(&s);
  }
}

/* 4 dies. 1 does not hear 0, gives it up and asks all; 0 makes a view without it, is gone after that, and only 5 has its plan. The
 * others come to 1, and 5, which may be a client, to 2, which is not in that view, either. */
static void member_alone_in_a_view_joins_the_excluded_coordinator(void **unused) {
  (void)unused;
  for (uint64_t seed = 820; seed < 840; seed++) {
    scene s;
    scene_setup how = {
        .n = 6, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .stall_ms = 1500, .client = seed % 2 ? 5 : 0};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_cut(s.sim, 0, 1, 1);
    hv_sim_kill(s.sim, 4);
    coordinates(&s, 1);
    hv_sim_cut(s.sim, 0, 2, 1);
    hv_sim_cut(s.sim, 0, 3, 1);
    while (hv_allreduce_view(s.members[5].allreduce) == 0)
      scene_run(&s, 0.001);
    hv_sim_unplug(s.sim, 0);
    all_end_in_one_view(&s, 2 | 4 | 8 | 32, 8);
  }
}

/* 5 dies, and 3 does not hear 0, whose view is without it; but nobody gets its plan, and then it stands still. All go to 1. When 0
 * goes on it hears so, and comes there, too: that view never was, neither does it leave out 3. */
static void lone_coordinator_returns_to_the_one_before(void **unused) {
  (void)unused;
  for (uint64_t seed = 1240; seed < 1260; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.24 + 0.005 * (double)(seed % 8));
    scene_cut(&s, 0, 3, 1);
    hv_sim_kill(s.sim, 5);
    while (hv_allreduce_view(s.members[0].allreduce) == 0)
      scene_run(&s, 0.001);
    hv_sim_pause(s.sim, 0);
    for (size_t i = 1; i < 5; i++)
      hv_sim_cut(s.sim, 0, i, 1);
    coordinates(&s, 1);
    for (size_t i = 1; i < 5; i++)
      hv_sim_cut(s.sim, 0, i, 0);
    hv_sim_cut(s.sim, 3, 0, 0);
    scene_run(&s, 0.05);
    hv_sim_continue(s.sim, 0);
    all_end_in_one_view(&s, 31, 12);
  }
}

/* 0 owns everything, and the only other one, a client, vanishes: what has not come from it is not averaged by 0 alone, which would
 * part it from the others if there were any. */
static void lone_member_averages_nothing_alone(void **unused) {
  (void)unused;
  for (uint64_t seed = 1260; seed < 1280; seed++) {
    scene s;
    scene_setup how = {.n = 2, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .stall_ms = 1500, .client = 1};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.03 + 0.01 * (double)(seed % 20));
    hv_sim_unplug(s.sim, 1);
    scene_run(&s, 30);
    assert_int_equal(s.members[0].status, HV_CLOSED);
    scene_each_chunk_is_right(&s, 0);
    for (uint32_t chunk = 0; chunk < s.members[0].in_run.n_chunks; chunk++)
      assert_true(!hv_allreduce_averaged(s.members[0].allreduce, chunk) || scene_set(&s, 0, chunk) == 3);
    scene_close(&s);
  }
}

/* Of three 1 and 2 see each other no more, and 0 stands still for longer than both try to reach it once more. 2, which misses both,
 * comes to 0 at its first word all the same. */
static void member_joins_a_failed_coordinator_at_its_first_message(void **unused) {
  (void)unused;
  for (uint64_t seed = 1340; seed < 1360; seed++) {
    scene s;
    some(&s, 3, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1 + 0.01 * (double)(seed % 10));
    hv_sim_pause(s.sim, 0);
    scene_cut(&s, 1, 2, 1);
    scene_run(&s, 6.5 + 0.02 * (double)(seed % 20));
    hv_sim_continue(s.sim, 0);
    scene_run(&s, 60);
    assert_int_equal(s.members[2].status, HV_OK);
    scene_each_chunk_is_right(&s, 2);
    scene_close(&s);
  }
}

/* 3 hears 0 no more, and so misses it later than the others do when it dies, and its way to 1 is long. They have everything, and go
 * to 1, which waits for who may come yet: 3 lacks what 0 owned. */
static void member_that_misses_a_dead_coordinator_late_finds_others(void **unused) {
  (void)unused;
  for (uint64_t seed = 1360; seed < 1400; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.25 + 0.001 * (double)(seed % 20));
    hv_sim_cut(s.sim, 0, 3, 1);
    hv_sim_set_link(s.sim, 3, 1, &(hv_sim_link){.delay_us = 120000 + 5000 * (seed % 40)});
    for (int i = 0; i < 1000 && !(s.members[1].done && s.members[2].done && s.members[4].done && s.members[5].done); i++)
      scene_run(&s, 0.001);
    hv_sim_kill(s.sim, 0);
    scene_run(&s, 60);
    scene_all_have_the_same(&s, 62);
    scene_close(&s);
  }
}

/* 0 vanishes, 1 and 2 stand still, and all have gone to 3 when 1 goes on, and then 2: who is back with 1 does not leave it for 2.
 */
static void recalled_member_does_not_move_to_a_later_coordinator(void **unused) {
  (void)unused;
  for (uint64_t seed = 1360; seed < 1380; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1 + 0.01 * (double)(seed % 10));
    hv_sim_unplug(s.sim, 0);
    hv_sim_pause(s.sim, 1);
    hv_sim_pause(s.sim, 2);
    for (int i = 0; i < 8000 && hv_allreduce_coordinator(s.members[5].allreduce) != 3; i++)
      scene_run(&s, 0.001);
    hv_sim_continue(s.sim, 1);
    scene_run(&s, 0.005 * (double)(seed % 20));
    hv_sim_continue(s.sim, 2);
    scene_run(&s, 60);
    for (size_t i = 1; i < 6; i++) {
      assert_int_equal(s.members[i].status, HV_OK);
      scene_each_chunk_is_right(&s, i);
    }
    scene_close(&s);
  }
}

/* Three machines of eight vanish, that of 1 only when 0 stands still; 2, who comes next, has 3 and 4. When 0 goes on, 7, which
 * stood still, too, is with it: the three are not half of all, but more than half of those who are still there. */
static void coordinator_left_by_most_of_the_living_joins_them(void **unused) {
  (void)unused;
  for (uint64_t seed = 880; seed < 900; seed++) {
    scene s;
    some(&s, 8, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_unplug(s.sim, 5);
    hv_sim_unplug(s.sim, 6);
    stands_still_as_it_asks(&s, 0.05 + 0.005 * (double)(seed % 20));
    hv_sim_unplug(s.sim, 1);
    hv_sim_pause(s.sim, 7);
    coordinates(&s, 2);
    scene_run(&s, 0.05 + 0.01 * (double)(seed % 20));
    hv_sim_continue(s.sim, 7);
    hv_sim_continue(s.sim, 0);
    all_end_in_one_view(&s, 1 | 4 | 8 | 16 | 128, 12);
  }
}

/* Likewise, but 1 has 4 alone, and 6 and 7 stood still with 0: those who left are two of the five who are there. They go back. */
static void smaller_coordinator_returns_with_its_members(void **unused) {
  (void)unused;
  for (uint64_t seed = 1120; seed < 1160; seed++) {
    scene s;
    some(&s, 8, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_unplug(s.sim, 3);
    hv_sim_unplug(s.sim, 5);
    stands_still_as_it_asks(&s, 0.05 + 0.005 * (double)(seed % 20));
    hv_sim_unplug(s.sim, 2);
    hv_sim_pause(s.sim, 6);
    hv_sim_pause(s.sim, 7);
    coordinates(&s, 1);
    scene_run(&s, 0.05 + 0.01 * (double)(seed % 40));
    hv_sim_continue(s.sim, 6);
    hv_sim_continue(s.sim, 7);
    hv_sim_continue(s.sim, 0);
    all_end_in_one_view(&s, 1 | 2 | 16 | 64 | 128, 12);
  }
}

/* 0 stands still as the round begins, so it never sees the lines of those who come to it, and go to 1. */
static void never_sees_who_came(scene *s, uint64_t seed) {
  six(s, seed);
  scene_begin(s, 0);
  scene_run(s, 0.001);
  hv_sim_pause(s->sim, 0);
  for (size_t i = 1; i < 6; i++)
    scene_begin(s, i);
  scene_run(s, 0.1);
}

/* 5 does not hear 1, and comes back when 0 goes on. 1 tells 0 whom it has: they left it, too, so it goes there with 5. */
static void members_named_by_the_other_coordinator_have_left_too(void **unused) {
  (void)unused;
  for (uint64_t seed = 880; seed < 900; seed++) {
    scene s;
    never_sees_who_came(&s, seed);
    hv_sim_cut(s.sim, 1, 5, 1);
    is_missed_for_1(&s);
    goes_on(&s);
    all_end_in_one_view(&s, 63, 6);
  }
}

/* All are with 1, and only 0 is awaited, as a suspect. 0 resumes when its time is nearly over. 1 tells it that it may come, and
 * waits until it does. */
static void member_that_is_called_in_is_awaited(void **unused) {
  (void)unused;
  for (uint64_t seed = 900; seed < 920; seed++) {
    scene s;
    never_sees_who_came(&s, seed);
    is_missed_for_1(&s);
    scene_run(&s, 0.1 + 0.01 * (double)(seed % 20));
    hv_sim_continue(s.sim, 0);
    all_end_in_one_view(&s, 63, 6);
  }
}

/* 0 stands still; 1 asks all, and its machine vanishes. 2 has missed both for as long as is too long: it does not wait for 1 as for
 * one that has yet to miss somebody. */
static void second_lost_coordinator_is_not_waited_for_twice_as_long(void **unused) {
  (void)unused;
  for (uint64_t seed = 900; seed < 920; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_pause(s.sim, 0);
    coordinates(&s, 1);
    scene_run(&s, 0.003 * (double)(seed % 20));
    hv_sim_unplug(s.sim, 1);
    scene_run(&s, 6);
    hv_sim_continue(s.sim, 0);
    all_end_in_one_view(&s, 4 | 8 | 16 | 32, 5.5);
  }
}

/* 0 vanishes, and 1 stands still; all miss both, and 2 asks. 1 goes on before that has reached 4 and 5, which would come back to it
 * at its first word. Each would have three of seven, so that neither goes to the other one: 1 hears first what has come. */
static void resumed_coordinator_listens_before_it_recalls_members(void **unused) {
  (void)unused;
  for (uint64_t seed = 920; seed < 960; seed++) {
    scene s;
    some(&s, 7, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_unplug(s.sim, 0);
    hv_sim_pause(s.sim, 1);
    hv_sim_set_link(s.sim, 2, 4, &(hv_sim_link){.delay_us = 60000});
    hv_sim_set_link(s.sim, 2, 5, &(hv_sim_link){.delay_us = 60000});
    coordinates(&s, 2);
    scene_run(&s, 0.002 * (double)(seed - 920));
    hv_sim_continue(s.sim, 1);
    all_end_in_one_view(&s, 127 - 1, 10);
  }
}

/* Whether 0 and 4 on one side, and 1 and 3 on the other one, hear each other. */
static void sees(scene *s, int each_other) {
  for (size_t i = 0; i <= 4; i += 4)
    for (size_t j = 1; j <= 3; j += 2)
      scene_cut(s, i, j, !each_other);
}

static int holds_any(const scene *s, size_t member) {
  for (uint32_t chunk = 0; chunk < s->members[member].in_run.n_chunks; chunk++)
    if (hv_allreduce_averaged(s->members[member].allreduce, chunk))
      return 1;
  return 0;
}

/* 2 dies, and 0 makes a view without it and 5, a client, which has not come to it. Then it loses sight of all but 4, and averages
 * some with that one. The others come to 1; when 0 and 4 do, too, 5 is in their next view: it holds nothing that differs. */
static void member_without_values_stays_in_the_view_of_the_others(void **unused) {
  (void)unused;
  for (uint64_t seed = 940; seed < 960; seed++) {
    scene s;
    scene_setup how = {.n = 6, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .stall_ms = 1500, .client = 5};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.005);
    hv_sim_cut(s.sim, 5, 0, 1);
    hv_sim_kill(s.sim, 2);
    scene_run(&s, 0.1);
    hv_sim_cut(s.sim, 0, 5, 1);
    while (hv_allreduce_view(s.members[0].allreduce) == 0)
      scene_run(&s, 0.001);
    sees(&s, 0);
    scene_run(&s, 1);
    scene_cut(&s, 0, 5, 0);
    sees(&s, 1);
    while (!holds_any(&s, 0))
      scene_run(&s, 0.001);
    all_end_in_one_view(&s, 63 & ~4, 12);
  }
}

/* A member that gives itself once for another one to the owner 4, which refuses its stream for that. */
typedef struct other {
  hv_status (*open)(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                    hv_stream **out);
  hv_peer_id refuses;
  int times;
} other;

static hv_status open_as_another(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                                 hv_stream **out) {
  other *o = env->world; /* the simulated world has no use for it */
  hv_msg msg = *first;
  if (msg.kind == HV_MSG_SHARE && hv_peer_equal(&to->id, &o->refuses) && o->times++ == 0)
    msg.u.share.member = 3;
  return o->open(env, to, &msg, on, owner, out);
}

/* 5 says that it cannot reach 4, which has refused its stream, and is well, as 0 has just heard. 0 asks, and the answer of 4 is
 * lost in a cut of 0.28 s: when it comes a suspect's time is over. */
static void member_just_heard_by_the_coordinator_is_no_suspect(void **unused) {
  (void)unused;
  for (uint64_t seed = 1600; seed < 1620; seed++) {
    scene s;
    six(&s, seed);
    hv_env *env = hv_node_env(hv_sim_core(s.sim, 5));
    other o = {.open = env->stream_open, .refuses = s.plan[4].at.id};
    env->world = &o;
    env->stream_open = open_as_another;
    hv_sim_set_link(s.sim, 4, 0, &(hv_sim_link){.delay_us = 30000});
    scene_begin_all(&s);
    has_trouble(&s, 4);
    scene_cut(&s, 0, 4, 1);
    scene_run(&s, 0.28);
    scene_cut(&s, 0, 4, 0);
    all_end_in_one_view(&s, 63, 3);
  }
}

/* 2 dies, and all answer 0, but the answer of 5 is lost; then 0 loses sight of all but 4, and both go on without the others. Those
 * come to 1; when 0 and 4 do, too, 5 is in their next view: what it holds 1 and 3 have from the same view, or nobody else has. */
static void member_with_only_shared_values_is_in_its_views_successor(void **unused) {
  (void)unused;
  for (uint64_t seed = 1400; seed < 1420; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    while (!holds_any(&s, 5))
      scene_run(&s, 0.001);
    hv_sim_cut(s.sim, 5, 0, 1);
    hv_sim_kill(s.sim, 2);
    while (hv_allreduce_view(s.members[0].allreduce) == 0)
      scene_run(&s, 0.001);
    hv_sim_cut(s.sim, 0, 5, 1);
    scene_cut(&s, 4, 5, 1);
    sees(&s, 0);
    scene_run(&s, 1);
    scene_cut(&s, 0, 5, 0);
    scene_cut(&s, 4, 5, 0);
    sees(&s, 1);
    all_end_in_one_view(&s, 63 & ~4, 12);
  }
}

/* 0 hears of its round so late that the others have missed it, left, and come to 1. Nobody but that one tells it anything: it has
 * not stood still, but knows as little as if it had, and goes there. */
static void late_member_joins_the_coordinator_of_the_others(void **unused) {
  (void)unused;
  for (uint64_t seed = 960; seed < 1000; seed++) {
    scene s;
    six(&s, seed);
    for (size_t i = 1; i < 6; i++)
      scene_begin(&s, i);
    scene_run(&s, 0.1);
    coordinates(&s, 1);
    scene_run(&s, 0.004 * (double)(seed - 960));
    scene_begin(&s, 0);
    all_end_in_one_view(&s, 63, 5);
  }
}

/* 0 hears nobody any more when half of all is averaged, and nobody hears it: all miss it, and 1 asks just when they hear each other
 * again. Their messages to 0 meanwhile stay under way, but that they have ended their lines it sees at once. 5 hears 1 late, and
 * has come back to 0 at what that one said before: 0 sends it to 1, and goes there, too. */
static void coordinator_partitioned_until_half_have_left_joins_the_next(void **unused) {
  (void)unused;
  for (uint64_t seed = 960; seed < 980; seed++) {
    scene s;
    six(&s, seed);
    scene_begin_all(&s);
    scene_run(&s, 0.16 + 0.005 * (double)(seed % 20));
    for (size_t i = 1; i < 6; i++)
      scene_cut(&s, 0, i, 1);
    coordinates(&s, 1);
    has_trouble(&s, 1);
    hv_sim_heal(s.sim);
    hv_sim_set_link(s.sim, 1, 5, &(hv_sim_link){.delay_us = 200000});
    all_end_in_one_view(&s, 63, 5);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(coordinator_left_by_half_joins_the_one_they_attend),
      cmocka_unit_test(coordinator_sends_returned_members_to_the_next_one),
      cmocka_unit_test(coordinator_that_has_left_accepts_nobody),
      cmocka_unit_test(stalled_asker_waits_for_members_that_may_have_left),
      cmocka_unit_test(answers_of_departed_members_are_not_enough),
      cmocka_unit_test(coordinator_done_at_its_resume_waits_for_departed_members),
      cmocka_unit_test(member_alone_in_a_view_joins_the_excluded_coordinator),
      cmocka_unit_test(lone_coordinator_returns_to_the_one_before),
      cmocka_unit_test(lone_member_averages_nothing_alone),
      cmocka_unit_test(member_joins_a_failed_coordinator_at_its_first_message),
      cmocka_unit_test(member_that_misses_a_dead_coordinator_late_finds_others),
      cmocka_unit_test(recalled_member_does_not_move_to_a_later_coordinator),
      cmocka_unit_test(coordinator_left_by_most_of_the_living_joins_them),
      cmocka_unit_test(smaller_coordinator_returns_with_its_members),
      cmocka_unit_test(members_named_by_the_other_coordinator_have_left_too),
      cmocka_unit_test(member_that_is_called_in_is_awaited),
      cmocka_unit_test(second_lost_coordinator_is_not_waited_for_twice_as_long),
      cmocka_unit_test(resumed_coordinator_listens_before_it_recalls_members),
      cmocka_unit_test(member_without_values_stays_in_the_view_of_the_others),
      cmocka_unit_test(member_just_heard_by_the_coordinator_is_no_suspect),
      cmocka_unit_test(member_with_only_shared_values_is_in_its_views_successor),
      cmocka_unit_test(late_member_joins_the_coordinator_of_the_others),
      cmocka_unit_test(coordinator_partitioned_until_half_have_left_joins_the_next),
  };
  return cmocka_run_group_tests_name("coordinators in the sim", tests, NULL, NULL);
}
