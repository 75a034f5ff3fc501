/* One round, and what happens when those are lost on whom it depends: owners, coordinators, a half of all, all but one. */
#include "lib/scene.h"

#include <math.h>
#include <string.h>

static const hv_sim_link slow = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20};

static scene_setup four(uint64_t seed) {
  return (scene_setup){.n = 4, .n_values = 200000, .chunk_values = 2000, .seed = seed, .link = slow, .in_place = (int)(seed & 1)};
}

/* So many that one who coordinates and one who does not can both be missed, and a deadline far beyond what the pace allows. */
static scene_setup eight(uint64_t seed) {
  scene_setup how = four(seed);
  how.n = 8;
  how.stall_ms = 10000;
  return how;
}

/* So many that the group can fall apart. */
static scene_setup six(uint64_t seed, uint32_t stall_ms) {
  scene_setup how = four(seed);
  how.n = 6;
  how.stall_ms = stall_ms;
  return how;
}

/* Everybody of the set is told HV_OK and has the same; what they hold is right. */
static void ends_well_for(scene *s, unsigned set) {
  scene_all_have_the_same(s, set);
  for (size_t i = 0; i < s->n; i++)
    if (set >> i & 1 && s->members[i].out)
      scene_each_chunk_is_right(s, i);
}

/* The same, and nobody was given up on the way: all of the set are in every chunk, in the first view. */
static void ends_as_it_began_for(scene *s, unsigned set) {
  ends_well_for(s, set);
  for (uint32_t c = 0; c < s->members[0].out_run.n_chunks; c++)
    assert_int_equal(scene_set(s, 0, c), set);
  assert_int_equal(hv_allreduce_view(s->members[0].allreduce), 0);
}

static void owner_that_dies_at_any_moment_is_replaced(void **unused) {
  (void)unused;
  int forwarded = 0, anew = 0;
  for (uint64_t seed = 100; seed < 140; seed++) {
    scene s;
    scene_setup how = four(seed);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.01 * (double)(seed - 99));
    hv_sim_kill(s.sim, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 1 | 4 | 8);
    for (uint32_t c = s.plan[1].first; c < s.plan[1].first + s.plan[1].count; c++) {
      forwarded += scene_set(&s, 0, c) >> 1 & 1; /* its values are in a chunk that it owned: it was averaged before */
      anew += !(scene_set(&s, 0, c) >> 1 & 1);
    }
    scene_close(&s);
  }
  assert_in_range(forwarded, 100, 100000);
  assert_in_range(anew, 100, 100000);
}

/* They die together, or the second one dies in the recovery from the first. */
static void two_owners_that_die_in_one_recovery_are_replaced(void **unused) {
  (void)unused;
  for (uint64_t seed = 200; seed < 240; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.n = 5;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3);
    hv_sim_kill(s.sim, 1);
    scene_run(&s, 0.004 * (double)(seed - 200));
    hv_sim_kill(s.sim, 3);
    scene_run(&s, 60);
    ends_well_for(&s, 1 | 4 | 16);
    scene_close(&s);
  }
}

static void the_coordinator_dies_and_the_next_in_order_takes_over(void **unused) {
  (void)unused;
  for (uint64_t seed = 300; seed < 340; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.n = 5;
    how.leader = 2;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3);
    if (seed & 1) { /* while it deals with another death */
      hv_sim_kill(s.sim, 4);
      scene_run(&s, 0.002 * (double)(seed - 300));
    }
    hv_sim_kill(s.sim, 2);
    scene_run(&s, 60);
    ends_well_for(&s, 1 | 2 | 8 | (seed & 1 ? 0 : 16));
    scene_close(&s);
  }
}

static void unplugged_machine_is_replaced_in_time(void **unused) {
  (void)unused;
  for (size_t who = 0; who < 4; who++) {
    scene s;
    scene_setup how = four(400 + who);
    how.stall_ms = 1000;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3);
    hv_sim_unplug(s.sim, who); /* 0 coordinates */
    scene_run(&s, 8);
    ends_well_for(&s, 15 & ~(1u << who));
    scene_close(&s);
  }
}

static void owner_that_stalled_returns_and_harms_nobody(void **unused) {
  (void)unused;
  for (uint64_t seed = 500; seed < 520; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.stall_ms = 1000;
    size_t who = seed % 4;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3);
    hv_sim_pause(s.sim, who);
    scene_run(&s, 0.5 * (double)(seed - 499)); /* shorter and longer than their patience */
    hv_sim_continue(s.sim, who);
    scene_run(&s, 60);
    ends_well_for(&s, 15 & ~(1u << who));
    assert_int_equal(s.members[who].done, 1);
    scene_each_chunk_is_right(&s, who);
    if (s.members[who].status == HV_OK &&
        hv_allreduce_view(s.members[who].allreduce) == hv_allreduce_view(s.members[(who + 1) % 4].allreduce))
      scene_all_have_the_same(&s, 15);
    scene_close(&s);
  }
}

/* How long a round of eight takes when these stop half way for good; 0: nobody. */
static double seconds_when_stopped(unsigned stopped, size_t leader, uint64_t seed, hv_sim_link link, double half) {
  scene s;
  scene_setup how = eight(seed);
  how.link = link;
  how.window = 40000; /* in each of its halves there is something to stop */
  how.leader = leader;
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, half);
  for (size_t i = 0; i < s.n; i++)
    if (stopped >> i & 1)
      hv_sim_pause(s.sim, i);
  scene_run(&s, 60);
  ends_well_for(&s, 255 & ~stopped);
  uint64_t last = 0;
  for (size_t i = 0; i < s.n; i++)
    if (!(stopped >> i & 1) && s.members[i].done_us > last)
      last = s.members[i].done_us;
  for (size_t i = 0; i < s.n; i++)
    if (stopped >> i & 1)
      hv_sim_kill(s.sim, i);
  scene_close(&s);
  return (double)last / 1e6;
}

static void stopped_member_costs_one_deadline_of_the_rounds_pace(void **unused) {
  (void)unused;
  for (uint64_t seed = 520; seed < 540; seed++) {
    double clean = seconds_when_stopped(0, 0, seed, slow, 0.1);
    /* two that own and give; then one of them coordinates */
    double two = seconds_when_stopped(1u << 3 | 1u << 6, 0, seed, slow, clean / 2);
    double first = seconds_when_stopped(1u << 2 | 1u << 5, 2, seed, slow, clean / 2);
    assert_true(two <= clean + 4 + 0.2 && first <= clean + 4 + 0.2); /* not 10 s, and not 20 */
  }
}

/* The coordinator and another one die as soon as they have all averages; the others know soon that nobody will ask them for more.
 */
static void members_finish_if_the_coordinator_dies_at_the_end(void **unused) {
  (void)unused;
  for (uint64_t seed = 560; seed < 580; seed++) {
    scene s;
    scene_setup how = eight(seed);
    scene_open(&s, &how);
    scene_begin_all(&s);
    while (!s.members[0].done || !s.members[5].done)
      scene_run(&s, 0.001);
    hv_sim_kill(s.sim, 0);
    hv_sim_kill(s.sim, 5);
    scene_run(&s, 6); /* four of which a silent member is waited for, not 30 */
    for (size_t i = 1; i < s.n; i++)
      if (i != 5)
        assert_true(s.members[i].done && s.members[i].status == HV_OK && hv_allreduce_finished(s.members[i].allreduce));
    scene_close(&s);
  }
}

/* Nobody waits for anything but the word that all have finished, and who should say it is gone without a word. */
static void done_members_miss_a_silent_coordinator(void **unused) {
  (void)unused;
  for (uint64_t seed = 580; seed < 590; seed++) {
    scene s;
    scene_setup how = eight(seed);
    scene_open(&s, &how);
    scene_begin_all(&s);
    int done = 0;
    while (done < 8) {
      scene_run(&s, 0.001);
      done = 0;
      for (size_t i = 0; i < s.n; i++)
        done += s.members[i].done;
      if (s.members[0].done && done < 8)
        hv_sim_set_link(s.sim, 0, HV_SIM_ANY, &(hv_sim_link){.delay_us = 2000000}); /* its last word is long under way */
    }
    hv_sim_unplug(s.sim, 0);
    scene_run(&s, 12);
    for (size_t i = 1; i < s.n; i++)
      assert_true(s.members[i].status == HV_OK && hv_allreduce_finished(s.members[i].allreduce));
    scene_close(&s);
  }
}

/* 3 dies, so 0 asks all. 1 has not begun yet, and dies, too: it has no line to 0 whose end could tell that, but 0 has a connection
 * to it. */
static void member_that_dies_before_it_came_costs_no_more_than_a_suspect(void **unused) {
  (void)unused;
  for (uint64_t seed = 640; seed < 660; seed++) {
    scene s;
    scene_setup how = eight(seed);
    scene_open(&s, &how);
    for (size_t i = 0; i < s.n; i++)
      if (i != 1)
        scene_begin(&s, i);
    scene_run(&s, 0.1);
    hv_sim_kill(s.sim, 3);
    while (!hv_allreduce_troubled(s.members[0].allreduce))
      scene_run(&s, 0.001);
    scene_run(&s, 0.001 * (double)(seed - 640));
    hv_sim_kill(s.sim, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 255 & ~2u & ~8u);
    for (size_t i = 0; i < s.n; i++)
      if (i != 1 && i != 3)
        assert_true(s.members[i].done_us < 2000000);
    scene_close(&s);
  }
}

/* 0 coordinates and is gone. 1, the next one, stalls for less than the others wait for it. Member 5 alone has never heard of 1,
 * gives it up, too, and goes to 2. Member 2 attends 1, and tells member 5 so. */
static void member_that_gave_up_a_live_coordinator_is_sent_back(void **unused) {
  (void)unused;
  for (uint64_t seed = 590; seed < 600; seed++) {
    scene s;
    scene_setup how = six(seed, 1500);
    scene_open(&s, &how);
    hv_sim_cut(s.sim, 1, 5, 1);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_unplug(s.sim, 0);
    hv_sim_pause(s.sim, 1);
    scene_run(&s, 1.6);
    hv_sim_cut(s.sim, 1, 5, 0);
    hv_sim_continue(s.sim, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 62);
    scene_close(&s);
  }
}

/* 4 dies, and 0 asks all: 5's answer does not come, and what 0 says then comes to 5 alone, which hears that it is out. The others
 * give 0 up for its silence, and 5 finds them with 1. */
static void excluded_member_finds_the_others_at_the_next_coordinator(void **unused) {
  (void)unused;
  for (uint64_t seed = 560; seed < 570; seed++) {
    scene s;
    scene_setup how = six(seed, 1500);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_cut(s.sim, 5, 0, 1);
    hv_sim_kill(s.sim, 4);
    scene_run(&s, 0.2);
    for (size_t i = 1; i < 4; i++)
      hv_sim_cut(s.sim, 0, i, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 2 | 4 | 8 | 32);
    scene_close(&s);
  }
}

/* 4 dies, and 0 before it has told a view without it: the next one knows of 4 alone that its streams broke, as it stopped for that;
 * but its line to 0 has ended, so it does not wait for 0 as for one that may come yet. */
static void coordinator_that_dies_with_a_member_costs_suspect_time(void **unused) {
  (void)unused;
  for (uint64_t seed = 700; seed < 720; seed++) {
    scene s;
    scene_setup how = six(seed, 10000);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_kill(s.sim, 4);
    scene_run(&s, 0.0005 * (double)(seed - 699));
    hv_sim_kill(s.sim, 0);
    scene_run(&s, 60);
    ends_well_for(&s, 2 | 4 | 8 | 32);
    for (size_t i = 1; i < s.n; i++)
      assert_true(i == 4 || s.members[i].done_us < 2500000); /* not 8 s and more, twice what is too long */
    scene_close(&s);
  }
}

/* 4 dies, 0 asks all, and stands still for longer than they have to answer, before the last two answers are there. When it goes on
 * it hears one of them first: it is its own time that it missed, and nobody's fault. */
static void coordinator_that_stalled_while_asking_reads_late_answers(void **unused) {
  (void)unused;
  for (uint64_t seed = 720; seed < 740; seed++) {
    scene s;
    scene_setup how = six(seed, 1500);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    hv_sim_set_link(s.sim, 3, 0, &(hv_sim_link){.delay_us = 200000});
    hv_sim_set_link(s.sim, 5, 0, &(hv_sim_link){.delay_us = 230000});
    hv_sim_kill(s.sim, 4);
    while (!hv_allreduce_troubled(s.members[0].allreduce))
      scene_run(&s, 0.001);
    scene_run(&s, 0.28 + 0.001 * (double)(seed - 720));
    hv_sim_pause(s.sim, 0);
    scene_run(&s, 1.25);
    hv_sim_continue(s.sim, 0);
    scene_run(&s, 60);
    ends_well_for(&s, 1 | 2 | 4 | 8 | 32);
    scene_close(&s);
  }
}

/* 0 dies, and 1 stalls for as long as its first message may take, and a little more. The members that came to 2 meanwhile go back
 * at 1's first message. Only 3 does not, because it has stalled itself since it came. 2 does not stay with 3 alone. */
static void coordinator_left_by_most_goes_with_them(void **unused) {
  (void)unused;
  for (uint64_t seed = 740; seed < 760; seed++) {
    scene s;
    scene_setup how = six(seed, 1500);
    how.link = (hv_sim_link){.delay_us = 50000, .rate = 1 << 20};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3);
    hv_sim_kill(s.sim, 0);
    hv_sim_pause(s.sim, 1);
    scene_run(&s, 0.8 + 0.001 * (double)(seed - 740));
    hv_sim_pause(s.sim, 3);
    scene_run(&s, 0.02);
    hv_sim_continue(s.sim, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 2 | 4 | 16 | 32);
    hv_sim_kill(s.sim, 3);
    scene_close(&s);
  }
}

/* The others have begun; the last one is cut off, and its round begins when that is over. */
static void one_hears_of_its_round_after(double seconds, scene *s, uint64_t seed) {
  scene_setup how = four(seed);
  how.link.rate = 0;
  how.stall_ms = 1500;
  scene_open(s, &how);
  hv_sim_group(s->sim, 3, 1);
  for (size_t i = 0; i < 3; i++)
    scene_begin(s, i);
  scene_run(s, seconds);
  hv_sim_heal(s->sim);
  scene_begin(s, 3);
  scene_run(s, 20);
}

/* The checker of `swarm average` counts a member that is partitioned for so long as lost to the others, whenever it hears of its
 * round. */
static void late_member_joins_within_stall_time_else_keeps_its_values(void **unused) {
  (void)unused;
  for (uint64_t seed = 610; seed < 620; seed++) {
    scene s;
    one_hears_of_its_round_after(1, &s, seed);
    ends_well_for(&s, 15);
    for (uint32_t c = 0; c < s.members[0].out_run.n_chunks; c++)
      assert_int_equal(scene_set(&s, 0, c), 15);
    scene_close(&s);
    one_hears_of_its_round_after(4, &s, seed);
    ends_well_for(&s, 7);
    assert_int_equal(s.members[3].done, 1);
    assert_int_equal(s.members[3].status, HV_CLOSED);
    scene_each_chunk_is_right(&s, 3);
    scene_close(&s);
  }
}

/* A member that gives a few chunks and no more, though it says again and again that it is there. */
typedef struct miser {
  hv_status (*send)(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
  unsigned gives;
} miser;

static hv_status send_a_few(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  miser *m = env->world; /* the simulated world has no use for it */
  int own = header->kind == HV_MSG_CHUNK && header->u.chunk.from.size == 0;
  if (own && m->gives == 0)
    return HV_OK;
  m->gives -= own;
  return m->send(env, stream, header, payload);
}

/* As an owner it waits for 0, which has a slow link to it. It reports all the while that it is alive. */
static void owner_that_reports_but_gives_nothing_gets_only_stall_ms(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = four(620);
  how.stall_ms = 5000;
  scene_open(&s, &how);
  hv_sim_set_link(s.sim, 0, 3, &(hv_sim_link){.delay_us = 5000, .rate = 16000});
  hv_env *env = hv_node_env(hv_sim_core(s.sim, 3));
  miser m = {env->stream_send, 30};
  env->world = &m;
  env->stream_send = send_a_few;
  scene_begin_all(&s);
  scene_run(&s, 60);
  assert_int_equal(m.gives, 0);
  ends_well_for(&s, 7);
  for (size_t i = 0; i < 3; i++)
    assert_true(s.members[i].done_us < 6000000);
  scene_close(&s);
}

/* The coordinator and one other lose sight of each other for good. That one goes to the next in order, and is sent away when that
 * one has a view without it: so it does not wait there, too, until it takes it for silent (10.4 s and more in all). */
static void member_at_a_non_coordinator_is_sent_away_by_its_next_view(void **unused) {
  (void)unused;
  for (uint64_t seed = 630; seed < 640; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.stall_ms = 1500;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.1);
    scene_cut(&s, 0, 3, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 7);
    assert_int_equal(s.members[3].status, HV_CLOSED);
    assert_true(s.members[3].done_us < 9500000);
    scene_each_chunk_is_right(&s, 3);
    scene_close(&s);
  }
}

static void slow_member_that_progresses_is_not_given_up(void **unused) {
  (void)unused;
  for (uint64_t seed = 540; seed < 550; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.link.rate = 24000; /* a chunk has 8,000 bytes */
    how.window = 40000;    /* a few chunks wait before each line, as in the real world */
    how.stall_ms = 30000;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 600);
    ends_as_it_began_for(&s, 15);
    scene_close(&s);
  }
}

static scene_setup eight_of_whom_one_is_slow(uint64_t seed, uint64_t rate) {
  scene_setup how = {.n = 8, .n_values = 400000, .chunk_values = 8000, .seed = seed, .stall_ms = 10000};
  how.link = (hv_sim_link){.delay_us = 10000, .jitter_us = 2000};
  how.line = 12500000;
  how.slow = rate;
  how.quiet = 1;
  return how;
}

/* One link is so slow that seconds pass between two of its chunks at each owner. The others take a few milliseconds. */
static void member_much_slower_than_the_others_is_waited_for(void **unused) {
  (void)unused;
  for (uint64_t seed = 1500; seed < 1502; seed++) {
    scene s;
    scene_setup how = eight_of_whom_one_is_slow(seed, 50000);
    for (size_t i = 0; i < how.n; i++)
      how.told[i] = i == how.n - 1 ? 1 : 20; /* so it owns nothing */
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 120);
    ends_as_it_began_for(&s, 255);
    scene_close(&s);
  }
}

/* The same as an owner: its reports wait behind its values for longer than a silent owner is waited for. */
static void owner_with_reports_queued_behind_values_is_not_given_up(void **unused) {
  (void)unused;
  for (uint64_t seed = 1510; seed < 1512; seed++) {
    scene s;
    scene_setup how = eight_of_whom_one_is_slow(seed, 100000);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 120);
    ends_well_for(&s, 255);
    for (uint32_t c = 0; c < s.members[0].out_run.n_chunks; c++)
      assert_int_equal(scene_set(&s, 0, c), 255);
    scene_close(&s);
  }
}

/* One gives nothing for eight seconds: owners wait for it, and those who wait for owners hear that these are there. */
static void an_owner_that_waits_for_another_is_not_given_up(void **unused) {
  (void)unused;
  for (uint64_t seed = 550; seed < 560; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.client = 3;
    how.stall_ms = 10000;
    scene_open(&s, &how);
    for (size_t i = 0; i < 3; i++)
      scene_begin(&s, i);
    scene_run(&s, 8);
    scene_begin(&s, 3);
    scene_run(&s, 60);
    ends_as_it_began_for(&s, 15);
    scene_close(&s);
  }
}

static void a_group_that_falls_apart_ends_the_same_on_each_side(void **unused) {
  (void)unused;
  for (uint64_t seed = 600; seed < 620; seed++) {
    scene s;
    scene_setup how = six(seed, 1000);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.3);
    for (size_t i = 3; i < 6; i++)
      hv_sim_group(s.sim, i, 1);
    scene_run(&s, 0.4 * (double)(seed - 599));
    hv_sim_heal(s.sim);
    scene_run(&s, 60);
    for (size_t i = 0; i < s.n; i++) {
      assert_int_equal(s.members[i].done, 1);
      scene_each_chunk_is_right(&s, i);
      for (size_t j = 0; j < i; j++)
        if (s.members[i].status == HV_OK && s.members[j].status == HV_OK &&
            hv_allreduce_view(s.members[i].allreduce) == hv_allreduce_view(s.members[j].allreduce))
          scene_all_have_the_same(&s, 1u << i | 1u << j);
    }
    if (seed >= 615) /* apart for long: both sides have gone on, each with those that it has */
      scene_all_have_the_same(&s, 7), scene_all_have_the_same(&s, 56);
    scene_close(&s);
  }
}

static void member_left_alone_keeps_its_own_values(void **unused) {
  (void)unused;
  for (uint64_t seed = 700; seed < 710; seed++) {
    scene s;
    scene_setup how = four(seed);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.02 * (double)(seed - 699));
    for (size_t i = 0; i < 4; i++)
      if (i != seed % 4)
        hv_sim_kill(s.sim, i);
    scene_run(&s, 60);
    assert_int_equal(s.members[seed % 4].done, 1);
    assert_int_equal(s.members[seed % 4].status, HV_CLOSED);
    scene_each_chunk_is_right(&s, seed % 4);
    scene_close(&s);
  }
}

static void values_held_by_a_client_alone_are_forwarded_from_it(void **unused) {
  (void)unused;
  int forwarded = 0;
  for (uint64_t seed = 800; seed < 830; seed++) {
    scene s;
    scene_setup how = four(seed);
    how.client = 2;
    scene_open(&s, &how);
    hv_sim_link fast = {.delay_us = 1000}, far = {.delay_us = 200000};
    hv_sim_set_link(s.sim, 1, 2, &fast);
    hv_sim_set_link(s.sim, 1, 0, &far); /* averages of 1 come late to all but the client */
    hv_sim_set_link(s.sim, 1, 3, &far);
    scene_begin_all(&s);
    scene_run(&s, 0.02 * (double)(seed - 780));
    hv_sim_kill(s.sim, 1);
    scene_run(&s, 60);
    ends_well_for(&s, 1 | 4 | 8);
    for (uint32_t c = s.plan[1].first; c < s.plan[1].first + s.plan[1].count; c++)
      forwarded += scene_set(&s, 0, c) >> 1 & 1;
    scene_close(&s);
  }
  assert_in_range(forwarded, 10, 100000);
}

static void forwarded_averages_have_the_same_bits_under_every_codec(void **unused) {
  (void)unused;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (uint64_t seed = 900; seed < 905; seed++) {
      scene s;
      scene_setup how = four(seed);
      how.codec = (hv_codec)codec;
      how.link.rate = 200000;
      scene_open(&s, &how);
      scene_begin_all(&s);
      scene_run(&s, 0.15 * (double)(seed - 899));
      hv_sim_kill(s.sim, 1);
      scene_run(&s, 60);
      scene_all_have_the_same(&s, 1 | 4 | 8);
      scene_close(&s);
    }
}

static void a_round_is_over_by_its_time_however_slow_it_is(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = four(1100);
  how.link.rate = 10000; /* half a minute for all of it */
  how.window = 20000;
  how.stall_ms = 5000;
  scene_open(&s, &how);
  for (size_t i = 0; i < 4; i++)
    s.members[i].round.timeout_ms = 20000;
  scene_begin_all(&s);
  scene_run(&s, 21);
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(s.members[i].done, 1);
    assert_int_equal(s.members[i].status, HV_TIMEOUT);
    scene_each_chunk_is_right(&s, i);
  }
  scene_close(&s);
}

static void all_know_when_all_have_everything(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = four(1200);
  how.leader = 3;
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 20);
  ends_well_for(&s, 15);
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(hv_allreduce_finished(s.members[i].allreduce), 1);
  scene_close(&s);
}

/* ---- everything else that can end it ---- */

static void nobody_hangs_wherever_two_die(void **unused) {
  (void)unused;
  for (uint64_t n = 1; n < 900; n += 3) {
    scene s;
    scene_setup how = {.n = 4, .n_values = 3000, .chunk_values = 250, .seed = 1300 + n, .stall_ms = 1000, .in_place = 1};
    scene_open(&s, &how);
    hv_sim_kill_at_event(s.sim, HV_SIM_ANY, n, n & 1);
    scene_begin_all(&s);
    scene_run(&s, 0.05);
    if (hv_sim_alive(s.sim, n % 4))
      hv_sim_kill(s.sim, n % 4);
    scene_run(&s, 30);
    unsigned alive = 0;
    for (size_t i = 0; i < s.n; i++)
      if (hv_sim_alive(s.sim, i) && s.members[i].begun) {
        assert_int_equal(s.members[i].done, 1);
        scene_each_chunk_is_right(&s, i);
        alive |= 1u << i;
      }
    if (alive & (alive - 1))
      scene_all_have_the_same(&s, alive);
    scene_close(&s);
  }
}

static void missing_memory_in_a_recovery_ends_without_a_crash(void **unused) {
  (void)unused;
  for (long n = 0;; n++) {
    scene s;
    scene_setup how = {.n = 3, .n_values = 3000, .chunk_values = 500, .seed = 1400, .stall_ms = 500};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.02);
    hv_sim_kill(s.sim, 1);
    hv_mem *mem = hv_sim_mem(s.sim, n & 1 ? 2 : 0); /* 0 coordinates */
    size_t before = mem->refused;
    hv_mem_fail_in(mem, n / 2);
    scene_run(&s, 20);
    int untouched = mem->refused == before;
    for (size_t i = 0; i < s.n; i++)
      if (hv_sim_alive(s.sim, i) && s.members[i].begun) {
        assert_int_equal(s.members[i].done, 1);
        scene_each_chunk_is_right(&s, i);
      }
    scene_close(&s);
    if (untouched && n & 1)
      return;
    assert_true(n < 4000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(owner_that_dies_at_any_moment_is_replaced),
      cmocka_unit_test(two_owners_that_die_in_one_recovery_are_replaced),
      cmocka_unit_test(the_coordinator_dies_and_the_next_in_order_takes_over),
      cmocka_unit_test(unplugged_machine_is_replaced_in_time),
      cmocka_unit_test(owner_that_stalled_returns_and_harms_nobody),
      cmocka_unit_test(stopped_member_costs_one_deadline_of_the_rounds_pace),
      cmocka_unit_test(members_finish_if_the_coordinator_dies_at_the_end),
      cmocka_unit_test(done_members_miss_a_silent_coordinator),
      cmocka_unit_test(member_that_dies_before_it_came_costs_no_more_than_a_suspect),
      cmocka_unit_test(member_that_gave_up_a_live_coordinator_is_sent_back),
      cmocka_unit_test(coordinator_that_dies_with_a_member_costs_suspect_time),
      cmocka_unit_test(coordinator_that_stalled_while_asking_reads_late_answers),
      cmocka_unit_test(coordinator_left_by_most_goes_with_them),
      cmocka_unit_test(excluded_member_finds_the_others_at_the_next_coordinator),
      cmocka_unit_test(late_member_joins_within_stall_time_else_keeps_its_values),
      cmocka_unit_test(owner_that_reports_but_gives_nothing_gets_only_stall_ms),
      cmocka_unit_test(member_at_a_non_coordinator_is_sent_away_by_its_next_view),
      cmocka_unit_test(slow_member_that_progresses_is_not_given_up),
      cmocka_unit_test(member_much_slower_than_the_others_is_waited_for),
      cmocka_unit_test(owner_with_reports_queued_behind_values_is_not_given_up),
      cmocka_unit_test(an_owner_that_waits_for_another_is_not_given_up),
      cmocka_unit_test(a_group_that_falls_apart_ends_the_same_on_each_side),
      cmocka_unit_test(member_left_alone_keeps_its_own_values),
      cmocka_unit_test(values_held_by_a_client_alone_are_forwarded_from_it),
      cmocka_unit_test(forwarded_averages_have_the_same_bits_under_every_codec),
      cmocka_unit_test(a_round_is_over_by_its_time_however_slow_it_is),
      cmocka_unit_test(all_know_when_all_have_everything),
      cmocka_unit_test(nobody_hangs_wherever_two_die),
      cmocka_unit_test(missing_memory_in_a_recovery_ends_without_a_crash),
  };

  return cmocka_run_group_tests_name("round in the sim", tests, NULL, NULL);
}
