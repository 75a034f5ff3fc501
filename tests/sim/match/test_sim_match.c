/* How groups form, told against the virtual clock. */
#include "lib/match_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- no faults ---- */

static void eight_ready_peers_form_one_group_at_once(void **unused) {
  (void)unused;
  for (size_t last = 0; last < 8; last++) { /* whoever comes last: the host, or another */
    scene *c = open_scene(1 + last);
    grow(c, 8);
    run(c, 8);
    for (size_t i = 0; i < 8; i++)
      assert_int_equal(hv_match_others(c->s.seats[i].match), 7);
    for (size_t i = 0; i < 8; i++)
      if (i != last)
        seek(c, i, "1", last % 2 ? 8 : 0, 15000);
    run(c, 0.5);
    for (size_t i = 0; i < 8; i++)
      assert_true(i == last || !newest(c, i)->done); /* they wait for the last */
    match_try *t = seek(c, last, "1", 8, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 8, SIZE_MAX);
    for (size_t i = 0; i < 8;
         i++) /* 3 RTT + 50 ms from the last call to the first byte of data; the data's own way is half an RTT */
      assert_true(newest(c, i)->ended_us - t->asked_us <= 3 * RTT_US + 50000 - RTT_US / 2);
    close_scene(c);
  }
}

static void peer_that_seeks_ahead_of_time_is_found_later(void **unused) {
  (void)unused;
  scene *c = open_scene(20);
  grow(c, 5);
  run(c, 5);
  seek(c, 3, "7", 0, 60000);
  run(c, 20);
  for (size_t i = 0; i < 5; i++)
    if (i != 3)
      seek(c, i, "7", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 5, SIZE_MAX);
  close_scene(c);
}

static void peers_without_contacts_form_one_group(void **unused) {
  (void)unused;
  scene *c = open_scene(21);
  grow(c, 6);
  for (size_t i = 0; i < 6; i++) /* in the very first moment: nothing is declared yet */
    seek(c, i, "1", 6, 15000);
  assert_true(match_swarm_finish(&c->s, 15));
  one_group(c, 0, 6, SIZE_MAX);
  close_scene(c);
}

static void no_peer_takes_a_part_for_the_whole_in_the_first_moments(void **unused) {
  (void)unused;
  for (uint64_t when = 0; when < 6; when++) {
    scene *c = open_scene(400 + when);
    for (size_t i = 0; i < 6; i++) { /* one after the other */
      match_swarm_next(&c->s)->client = i == 4;
      match_swarm_add(&c->s);
      run(c, 0.3 * (double)(when % 3));
    }
    run(c, 0.5 * (double)when);
    for (size_t i = 0; i < 6; i++) {
      seek(c, i, "1", 0, 15000);
      run(c, 0.1);
    }
    assert_true(match_swarm_finish(&c->s, 10));
    one_group(c, 0, 6, SIZE_MAX);
    close_scene(c);
  }
}

static void a_number_that_is_enough_need_not_wait_for_the_rest(void **unused) {
  (void)unused;
  scene *c = open_scene(22);
  grow(c, 8);
  run(c, 8);
  for (size_t i = 2; i < 8; i++)
    seek(c, i, "1", 6, 30000);
  assert_true(match_swarm_finish(&c->s, 2)); /* the host may be one of the two who do not seek: then it is none of the group */
  one_group(c, 2, 8, SIZE_MAX);
  close_scene(c);
}

static void the_wait_is_an_upper_bound(void **unused) {
  (void)unused;
  scene *c = open_scene(23);
  grow(c, 6);
  run(c, 8);
  uint64_t start = hv_sim_now(c->s.sim);
  for (size_t i = 0; i < 5; i++)
    seek(c, i, "1", 0, 4000);
  assert_true(match_swarm_finish(&c->s, 10));
  one_group(c, 0, 5, SIZE_MAX);
  for (size_t i = 0; i < 5; i++)
    assert_in_range(newest(c, i)->ended_us - start, 3900000, 4000000 + 4 * RTT_US);
  close_scene(c);
}

static void lone_peer_times_out_in_time(void **unused) {
  (void)unused;
  scene *c = open_scene(24);
  grow(c, 3);
  run(c, 8);
  match_try *t = seek(c, 1, "1", 0, 3000);
  assert_true(match_swarm_finish(&c->s, 5));
  assert_int_equal(t->status, HV_TIMEOUT);
  assert_null(t->group);
  assert_true(t->ended_us - t->asked_us <= (3000 + HV_MATCH_GRACE_MS) * 1000ull);
  close_scene(c);
}

static void peer_is_a_group_by_itself_if_the_minimum_is_one(void **unused) {
  (void)unused;
  scene *c = open_scene(25);
  c->s.config.min_group_size = 1;
  grow(c, 2);
  run(c, 8);
  match_try *t = seek(c, 1, "1", 0, 3000), *u = seek(c, 0, "other", 1, 3000);
  run(c, 0.2);
  assert_true(u->done && u->status == HV_OK && u->group->n_members == 1); /* one was enough */
  assert_true(match_swarm_finish(&c->s, 5));
  assert_int_equal(t->status, HV_OK);
  assert_int_equal(t->group->n_members, 1);
  close_scene(c);
}

static void late_peer_is_refused_at_once(void **unused) {
  (void)unused;
  for (size_t late = 0; late < 4; late++) {
    scene *c = open_scene(30 + late);
    grow(c, 4);
    run(c, 8);
    for (size_t i = 0; i < 4; i++)
      if (i != late)
        seek(c, i, "1", 3, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 4, late);
    match_try *t = seek(c, late, "1", 3, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    assert_int_equal(t->status, HV_EXISTS);
    assert_true(t->ended_us - t->asked_us <= 3 * RTT_US);
    for (size_t i = 0; i < 4; i++)
      seek(c, i, "2", 4, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 4, SIZE_MAX);
    close_scene(c);
  }
}

static void epochs_do_not_mix(void **unused) {
  (void)unused;
  scene *c = open_scene(40);
  grow(c, 6);
  run(c, 8);
  for (size_t i = 0; i < 6; i++)
    seek(c, i, i < 3 ? "4" : "5", 3, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 3, SIZE_MAX);
  one_group(c, 3, 6, SIZE_MAX);
  close_scene(c);
}

static void empty_epoch_groups_all_peers_that_seek_now(void **unused) {
  (void)unused;
  scene *c = open_scene(41);
  grow(c, 4);
  run(c, 8);
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < 4; i++)
      seek(c, i, "", 0, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 4, SIZE_MAX);
  }
  close_scene(c);
}

static void members_receive_the_gathered_bytes_of_all(void **unused) {
  (void)unused;
  static uint8_t told[6][HV_MATCH_GATHER_MAX];
  static const size_t sizes[6] = {0, 1, 100, HV_MATCH_GATHER_MAX, 5000, HV_MATCH_GATHER_MAX};
  scene *c = open_scene(42);
  check_rng rng = {42};
  grow(c, 6);
  run(c, 8);
  for (size_t i = 0; i < 6; i++) {
    for (size_t b = 0; b < sizes[i]; b++)
      told[i][b] = (uint8_t)check_random(&rng);
    match_swarm_seek(&c->s, i, "1", 6, 15000, hv_span_of(told[i], sizes[i]));
  }
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 6, SIZE_MAX);
  const hv_match_group *group = newest(c, 0)->group;
  for (size_t i = 0; i < 6; i++)
    assert_true(hv_span_equal(group->gathers[match_swarm_place(&c->s, group, i)], hv_span_of(told[i], sizes[i])));
  close_scene(c);
}

static void clients_join_and_own_nothing_and_auxiliaries_are_said_to_be(void **unused) {
  (void)unused;
  scene *c = open_scene(43);
  for (size_t i = 0; i < 6; i++) {
    match_seat *seat = match_swarm_next(&c->s);
    seat->client = i == 2 || i == 4;
    seat->config.auxiliary = i == 5;
    match_swarm_add(&c->s);
  }
  run(c, 8);
  for (int round = 0; round < 6; round++) {
    char epoch[16];
    snprintf(epoch, sizeof epoch, "%d", round);
    for (size_t i = 0; i < 6; i++)
      seek(c, i, epoch, 0, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 6, SIZE_MAX);
    const hv_match_group *group = newest(c, 0)->group;
    for (size_t i = 0; i < 6; i++) {
      const hv_round_member *m = &group->members[match_swarm_place(&c->s, group, i)];
      assert_int_equal(m->client, i == 2 || i == 4);
      assert_int_equal(m->auxiliary, i == 5);
    }
  }
  close_scene(c);
}

static void clients_alone_cannot_be_a_group(void **unused) {
  (void)unused;
  scene *c = open_scene(44);
  for (size_t i = 0; i < 4; i++) {
    match_swarm_next(&c->s)->client = i > 0;
    match_swarm_add(&c->s);
  }
  run(c, 8);
  for (size_t i = 1; i < 4; i++) /* the one that can be dialled does not seek: it hosts, but nobody could own anything */
    seek(c, i, "1", 3, 3000);
  assert_true(match_swarm_finish(&c->s, 5));
  for (size_t i = 1; i < 4; i++)
    assert_int_equal(newest(c, i)->status, HV_TIMEOUT);
  for (size_t i = 0; i < 4; i++)
    seek(c, i, "2", 4, 3000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 4, SIZE_MAX);
  close_scene(c);
}

/* Its search began long before theirs. A group of it and the first of two trainers would leave the second one out. */
static void group_of_a_helper_waits_for_each_trainer(void **unused) {
  (void)unused;
  scene *c = open_scene(45);
  for (size_t i = 0; i < 3; i++) {
    match_seat *seat = match_swarm_next(&c->s);
    seat->config.auxiliary = i == 0;
    seat->client = i > 0;
    match_swarm_add(&c->s);
  }
  run(c, 8);
  for (size_t i = 0; i < 3; i++)
    seek(c, i, "1", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  seek(c, 0, "2", 0, 3000);
  run(c, 2.8);
  seek(c, 1, "2", 0, 15000);
  run(c, 0.5);
  seek(c, 2, "2", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 3, SIZE_MAX);
  close_scene(c);
}

/* n nodes seek with a target: groups of how many come out? */
static void split(size_t n, size_t target, uint32_t expected, size_t smallest, size_t largest) {
  scene *c = open_scene(100 + n * 10 + target);
  c->s.config.target_group_size = target;
  grow(c, n);
  run(c, 12);
  for (size_t i = 0; i < n; i++)
    seek(c, i, "1", expected, 6000);
  assert_true(match_swarm_finish(&c->s, 10));
  for (size_t i = 0; i < n; i++) {
    match_try *t = newest(c, i);
    if (t->status != HV_OK)
      fail_msg("%zu nodes, target %zu: node %zu: %s", n, target, i, t->text);
    assert_in_range(t->group->n_members, smallest, largest);
    assert_null(match_swarm_wrong(t->group, c->s.config.n_chunks));
    for (size_t j = 0; j < n; j++) /* groups are disjoint */
      if (match_swarm_place(&c->s, t->group, j) < t->group->n_members)
        assert_true(match_swarm_agree(t->group, newest(c, j)->group));
  }
  close_scene(c);
}

static void too_many_members_are_split_evenly_and_none_is_left_alone(void **unused) {
  (void)unused;
  split(5, 4, 5, 2, 3);
  split(9, 4, 9, 2, 4);
  split(16, 4, 16, 4, 4);
  split(17, 4, 0, 2, 4);
  split(17, 16, 17, 8, 9);
  split(33, 8, 33, 4, 8);
}

/* ---- other tensors ---- */

static void other_tensors_are_refused_and_the_difference_has_a_name(void **unused) {
  (void)unused;
  static const char ours[] = "w1 float32 [4, 8]\nb1 float32 [8]\nw2 float32 [8, 2]",
                    theirs[] = "w1 float32 [4, 8]\nb1 float32 [9]\nw2 float32 [9, 2]";
  scene *c = open_scene(50);
  for (size_t i = 0; i < 5; i++) {
    match_seat *seat = match_swarm_next(&c->s);
    seat->config.schema.bytes[0] = i == 2;
    seat->config.schema_text = i == 2 ? hv_span_of(theirs, sizeof theirs - 1) : hv_span_of(ours, sizeof ours - 1);
    match_swarm_add(&c->s);
  }
  run(c, 10);
  for (int round = 0; round < 5; round++) { /* whoever comes first in the order */
    char epoch[16];
    snprintf(epoch, sizeof epoch, "%d", round);
    for (size_t i = 0; i < 5; i++)
      seek(c, i, epoch, 0, 3000);
    assert_true(match_swarm_finish(&c->s, 6));
    one_group(c, 0, 5, 2);
    assert_true(newest(c, 0)->ended_us - newest(c, 0)->asked_us < 1000000); /* the stranger is not waited for */
    assert_int_equal(newest(c, 2)->status, HV_TIMEOUT);
    assert_non_null(strstr(newest(c, 2)->text, "b1 float32 [8]"));
    assert_non_null(strstr(newest(c, 2)->text, "b1 float32 [9]"));
  }
  assert_int_equal(hv_match_strangers(c->s.seats[0].match), 1);
  assert_non_null(strstr(hv_match_difference(c->s.seats[0].match), "b1 float32 [9]"));
  close_scene(c);
}

/* ---- faults ---- */

static void a_host_that_dies_is_replaced_at_once(void **unused) {
  (void)unused;
  for (size_t gone = 1; gone <= 3; gone++) { /* the first, and then the next ones, too */
    scene *c = open_scene(60 + gone);
    grow(c, 8);
    run(c, 8);
    size_t dead[3], last = 0;
    for (size_t k = 0; k < gone; k++)
      dead[k] = match_swarm_first(&c->s, "1", k);
    while (last == dead[0] || (gone > 1 && last == dead[1]) || (gone > 2 && last == dead[2]))
      last++;
    for (size_t i = 0; i < 8; i++)
      if (i != last)
        seek(c, i, "1", 0, 15000);
    run(c, 0.5);
    for (size_t k = 0; k < gone; k++) {
      hv_sim_kill(c->s.sim, dead[k]);
      run(c, 0.05);
    }
    match_try *t = seek(c, last, "1", 0, 15000);
    assert_true(match_swarm_finish(&c->s, 10));
    assert_int_equal(t->status, HV_OK);
    assert_int_equal(t->group->n_members, 8 - gone);
    for (size_t i = 0; i < 8; i++)
      if (hv_sim_alive(c->s.sim, i))
        assert_true(match_swarm_agree(t->group, newest(c, i)->group));
    assert_true(t->ended_us - t->asked_us < 1000000);
    close_scene(c);
  }
}

static void stalled_host_is_replaced(void **unused) {
  (void)unused;
  scene *c = open_scene(64);
  grow(c, 6);
  run(c, 8);
  size_t host = match_swarm_first(&c->s, "1", 0);
  for (size_t i = 0; i < 6; i++)
    if (i != (host + 1) % 6)
      seek(c, i, "1", 0, 15000);
  run(c, 0.5);
  hv_sim_pause(c->s.sim, host);
  run(c, 1);
  seek(c, (host + 1) % 6, "1", 0, 15000);
  run(c, 14);
  one_group(c, 0, 6, host);
  for (size_t i = 0; i < 6; i++)
    assert_true(i == host || newest(c, i)->ended_us - newest(c, (host + 1) % 6)->asked_us < 8000000);
  hv_sim_continue(c->s.sim, host);
  run(c, 20);
  assert_true(newest(c, host)->done);
  close_scene(c);
}

static void request_waits_its_timeout_but_half_of_the_seek_at_most(void **unused) {
  (void)unused;
  static const struct {
    uint32_t request_ms, wait_ms, least_us, most_us;
  } cases[] = {
      {0, 15000, 2000000, 2600000}, {500, 15000, 500000, 1100000}, {5000, 15000, 5000000, 5600000}, {5000, 3000, 1500000, 2100000}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    scene *c = open_scene(700 + k);
    c->s.config.request_ms = cases[k].request_ms;
    grow(c, 3);
    run(c, 8);
    size_t host = match_swarm_first(&c->s, "1", 0);
    hv_sim_pause(c->s.sim, host);
    for (size_t i = 0; i < 3; i++)
      if (i != host)
        seek(c, i, "1", 2, cases[k].wait_ms);
    run(c, 7);
    one_group(c, 0, 3, host);
    for (size_t i = 0; i < 3; i++)
      if (i != host)
        assert_in_range(newest(c, i)->ended_us - newest(c, i)->asked_us, cases[k].least_us, cases[k].most_us);
    hv_sim_continue(c->s.sim, host);
    run(c, 5);
    close_scene(c);
  }
}

static void unplugged_machine_does_not_delay_the_next_epochs(void **unused) {
  (void)unused;
  scene *c = open_scene(65);
  grow(c, 6);
  run(c, 8);
  hv_sim_unplug(c->s.sim, 3);
  for (int round = 0; round < 8; round++) {
    char epoch[16];
    snprintf(epoch, sizeof epoch, "%d", round);
    for (size_t i = 0; i < 6; i++)
      if (i != 3)
        seek(c, i, epoch, 0, 15000);
    assert_true(match_swarm_finish(&c->s, 8));
    one_group(c, 0, 6, 3);
    run(c, 0.5);
  }
  close_scene(c);
}

static void a_member_that_vanishes_is_left_out(void **unused) {
  (void)unused;
  scene *c = open_scene(66);
  grow(c, 5);
  run(c, 8);
  size_t host = match_swarm_first(&c->s, "1", 0), gone = (host + 1) % 5, last = (host + 2) % 5;
  for (size_t i = 0; i < 5; i++)
    if (i != last)
      seek(c, i, "1", 0, 15000);
  run(c, 0.5);
  hv_sim_kill(c->s.sim, gone);
  run(c, 1);
  match_try *t = seek(c, last, "1", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 5, gone);
  assert_true(t->ended_us - t->asked_us < 1000000);
  close_scene(c);
}

static void peer_that_was_lost_and_reports_again_is_expected(void **unused) {
  (void)unused;
  scene *c = open_scene(66);
  grow(c, 4);
  run(c, 8);
  hv_sim_cut(c->s.sim, 0, 1, 1); /* they hear of each other through the DHT alone */
  hv_sim_cut(c->s.sim, 1, 0, 1);
  run(c, 90);
  hv_sim_cut(c->s.sim, 0, 1, 0);
  hv_sim_cut(c->s.sim, 1, 0, 0);
  const hv_peers_entry *lost = hv_peers_find(c->s.seats[0].match->registry->peers, &c->s.seats[1].match->roster.config.me);
  assert_true(lost && lost->state == HV_PEERS_LOST);
  char epoch[8] = "0";
  for (unsigned e = 1; match_swarm_first(&c->s, epoch, 0) != 0; e++)
    snprintf(epoch, sizeof epoch, "%u", e);
  for (size_t i = 0; i < 4; i++)
    if (i != 1)
      seek(c, i, epoch, 0, 15000);
  run(c, 0.1);
  seek(c, 1, epoch, 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 4, SIZE_MAX);
  close_scene(c);
}

static void peer_that_cancels_its_seek_is_not_in_the_group(void **unused) {
  (void)unused;
  for (size_t quits = 0; quits < 4; quits++) { /* the host, too: it hosts on */
    scene *c = open_scene(70 + quits);
    grow(c, 4);
    run(c, 8);
    match_try *t = seek(c, quits, "1", 3, 15000);
    run(c, 0.3);
    hv_match_seek_cancel(&t->seek);
    assert_true(t->done && t->status == HV_CANCELLED);
    run(c, 0.3);
    for (size_t i = 0; i < 4; i++)
      if (i != quits)
        seek(c, i, "1", 3, 15000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 4, quits);
    close_scene(c);
  }
}

static void a_node_that_leaves_sends_its_callers_on(void **unused) {
  (void)unused;
  scene *c = open_scene(75);
  grow(c, 6);
  run(c, 8);
  size_t host = match_swarm_first(&c->s, "1", 0), last = (host + 1) % 6;
  for (size_t i = 0; i < 6; i++)
    if (i != last)
      seek(c, i, "1", 0, 15000);
  run(c, 0.5);
  hv_sim_stop(c->s.sim, host);
  run(c, 1);
  assert_int_equal(newest(c, host)->status, HV_CANCELLED);
  match_try *t = seek(c, last, "1", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 6, host);
  assert_true(t->ended_us - t->asked_us < 1000000);
  close_scene(c);
}

static void two_halves_are_two_groups_and_one_again_when_healed(void **unused) {
  (void)unused;
  scene *c = open_scene(76);
  grow(c, 8);
  run(c, 10);
  for (size_t i = 4; i < 8; i++)
    hv_sim_group(c->s.sim, i, 1);
  for (size_t i = 0; i < 8; i++)
    seek(c, i, "1", 0, 20000);
  assert_true(match_swarm_finish(&c->s, 25));
  one_group(c, 0, 4, SIZE_MAX);
  one_group(c, 4, 8, SIZE_MAX);
  hv_sim_heal(c->s.sim);
  run(c, 60);
  for (size_t i = 0; i < 8; i++)
    seek(c, i, "2", 8, 20000);
  assert_true(match_swarm_finish(&c->s, 25));
  one_group(c, 0, 8, SIZE_MAX);
  close_scene(c);
}

static void halves_that_are_healed_while_they_wait_become_one(void **unused) {
  (void)unused;
  scene *c = open_scene(77);
  grow(c, 8);
  run(c, 10);
  for (size_t i = 4; i < 8; i++)
    hv_sim_group(c->s.sim, i, 1);
  for (size_t i = 0; i < 8; i++)
    seek(c, i, "1", 8, 60000);
  run(c, 6);
  hv_sim_heal(c->s.sim);
  assert_true(match_swarm_finish(&c->s, 50));
  one_group(c, 0, 8, SIZE_MAX);
  close_scene(c);
}

/* ---- memory ---- */

static void peer_without_memory_harms_its_own_seek_at_most(void **unused) {
  (void)unused;
  for (long n = 0; n < 60; n++) {
    scene *c = open_scene(200 + (uint64_t)n);
    static const uint8_t told[100];
    grow(c, 3);
    run(c, 6);
    size_t host = match_swarm_first(&c->s, "1", 0);
    for (size_t i = 0; i < 3; i++)
      match_swarm_seek(&c->s, i, "1", 3, 3000, hv_span_of(told, sizeof told));
    hv_mem_fail_in(hv_sim_mem(c->s.sim, n % 2 ? host : (host + 1) % 3), n / 2);
    run(c, 3.0 + HV_MATCH_GRACE_MS * 1e-3 + 0.1);
    for (size_t i = 0; i < 3; i++) /* in time, whatever came out */
      assert_true(newest(c, i)->done);
    uint32_t alive = 0;
    for (size_t i = 0; i < 3; i++)
      alive += (uint32_t)hv_sim_alive(c->s.sim, i);
    for (size_t i = 0; i < 3; i++)
      if (hv_sim_alive(c->s.sim, i))
        match_swarm_seek(&c->s, i, "2", alive, 3000, hv_span_of(told, sizeof told));
    assert_true(match_swarm_finish(&c->s, 5));
    for (size_t i = 0; i < 3; i++)
      if (hv_sim_alive(c->s.sim, i))
        assert_int_equal(newest(c, i)->status, HV_OK);
    close_scene(c);
  }
}

/* ---- group bits ---- */

static void other_bits_are_other_groups(void **unused) {
  (void)unused;
  scene *c = open_scene(80);
  static const char *const bits[2] = {"01", "10"};
  for (size_t i = 0; i < 8; i++) {
    match_swarm_next(&c->s)->config.bits = hv_span_of(bits[i / 4], 2);
    match_swarm_add(&c->s);
  }
  run(c, 8);
  for (size_t i = 0; i < 8; i++)
    seek(c, i, "1", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 4, SIZE_MAX);
  one_group(c, 4, 8, SIZE_MAX);
  for (size_t i = 0; i < 8; i++) /* they all move to one key */
    assert_int_equal(hv_match_set_bits(c->s.seats[i].match, hv_span_of("11", 2), NULL), HV_OK);
  run(c, 5);
  for (size_t i = 0; i < 8; i++)
    assert_int_equal(hv_match_others(c->s.seats[i].match), 7);
  for (size_t i = 0; i < 8; i++)
    seek(c, i, "2", 0, 15000);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 8, SIZE_MAX);
  close_scene(c);
}

/* The same epoch again, where they have moved. Those who have met in it elsewhere host it for the others, and may be in it, too. */
static void epoch_begun_under_one_key_has_not_begun_under_another(void **unused) {
  (void)unused;
  static const char *const bits[2] = {"0", "1"};
  for (unsigned epoch = 1; epoch < 9; epoch++) {
    scene *c = open_scene(82 + epoch);
    char name[16];
    snprintf(name, sizeof name, "%u", epoch);
    for (size_t i = 0; i < 8; i++) {
      match_swarm_next(&c->s)->config.bits = hv_span_of(bits[i / 4], 1);
      match_swarm_add(&c->s);
    }
    run(c, 8);
    for (size_t i = 0; i < 4; i++)
      seek(c, i, name, 4, 15000);
    assert_true(match_swarm_finish(&c->s, 2));
    one_group(c, 0, 4, SIZE_MAX);
    for (size_t i = 0; i < 4; i++)
      assert_int_equal(hv_match_set_bits(c->s.seats[i].match, hv_span_of("1", 1), NULL), HV_OK);
    run(c, 5);
    for (size_t i = epoch % 2 ? 4 : 0; i < 8; i++)
      seek(c, i, name, epoch % 2 ? 4 : 8, 15000);
    assert_true(match_swarm_finish(&c->s, 2));
    one_group(c, epoch % 2 ? 4 : 0, 8, SIZE_MAX);
    close_scene(c);
  }
}

/* It was behind the peers under the other key for a long time. They give it the time that they give any peer. It gets this time
 * even if it hosts the epoch itself. */
static void peer_that_moves_to_another_key_may_catch_up(void **unused) {
  (void)unused;
  unsigned epoch = 10;
  char name[16];
  scene *c = open_scene(98);
  for (size_t i = 0; i < 3; i++) {
    match_swarm_next(&c->s)->config.bits = hv_span_of(i == 2 ? "1" : "0", 1);
    match_swarm_add(&c->s);
  }
  run(c, 8);
  hv_match_reached(c->s.seats[1].match, 7);
  seek(c, 0, "4", 0, 15000);
  run(c, 5);
  assert_true(newest(c, 0)->seek.further);
  assert_int_equal(hv_match_set_bits(c->s.seats[0].match, hv_span_of("1", 1), NULL), HV_OK);
  run(c, 5);
  do
    snprintf(name, sizeof name, "%u", epoch++);
  while (match_swarm_first(&c->s, name, 0) != 0);
  seek(c, 2, name, 0, 15000);
  run(c, 1);
  seek(c, 0, name, 0, 15000);
  assert_true(match_swarm_finish(&c->s, 1));
  assert_int_equal(newest(c, 0)->status, HV_OK);
  assert_true(match_swarm_agree(newest(c, 0)->group, newest(c, 2)->group));
  close_scene(c);
}

static void peer_that_moves_to_another_key_is_not_waited_for(void **unused) {
  (void)unused;
  scene *c = open_scene(81);
  grow(c, 5);
  run(c, 8);
  assert_int_equal(hv_match_set_bits(c->s.seats[2].match, hv_span_of("1", 1), NULL), HV_OK);
  hv_match_free(c->s.seats[4].match);
  c->s.seats[4].match = NULL;
  run(c, 20);
  for (size_t i = 0; i < 4; i++)
    if (i != 2)
      seek(c, i, "1", 0, 15000);
  run(c, 0.5);
  assert_int_equal(newest(c, 0)->status, HV_OK);
  assert_int_equal(newest(c, 0)->group->n_members, 3);
  close_scene(c);
}

/* One keeper of its declaration does not hear that it goes. The others remember its departure for as long as that declaration may
 * live. */
static void newcomer_does_not_wait_for_a_peer_that_moved_away(void **unused) {
  (void)unused;
  for (uint64_t seed = 200; seed < 208; seed++) {
    scene *c = open_scene(seed);
    grow(c, 8);
    run(c, 8);
    hv_sim_group(c->s.sim, 7, 1);
    assert_int_equal(hv_match_set_bits(c->s.seats[0].match, hv_span_of("1", 1), NULL), HV_OK);
    run(c, 2);
    hv_sim_heal(c->s.sim);
    run(c, 12);
    match_swarm_add(&c->s);
    run(c, 5);
    hv_roster *roster = &c->s.seats[8].match->roster;
    for (size_t i = 0; i < 8; i++) {
      hv_peer_id id = hv_sim_target(c->s.sim, i).id;
      assert_int_equal(hv_roster_find(roster, &id) != NULL, i > 0);
    }
    close_scene(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eight_ready_peers_form_one_group_at_once),
      cmocka_unit_test(peer_that_seeks_ahead_of_time_is_found_later),
      cmocka_unit_test(peers_without_contacts_form_one_group),
      cmocka_unit_test(no_peer_takes_a_part_for_the_whole_in_the_first_moments),
      cmocka_unit_test(a_number_that_is_enough_need_not_wait_for_the_rest),
      cmocka_unit_test(the_wait_is_an_upper_bound),
      cmocka_unit_test(lone_peer_times_out_in_time),
      cmocka_unit_test(peer_is_a_group_by_itself_if_the_minimum_is_one),
      cmocka_unit_test(late_peer_is_refused_at_once),
      cmocka_unit_test(epochs_do_not_mix),
      cmocka_unit_test(empty_epoch_groups_all_peers_that_seek_now),
      cmocka_unit_test(members_receive_the_gathered_bytes_of_all),
      cmocka_unit_test(clients_join_and_own_nothing_and_auxiliaries_are_said_to_be),
      cmocka_unit_test(clients_alone_cannot_be_a_group),
      cmocka_unit_test(group_of_a_helper_waits_for_each_trainer),
      cmocka_unit_test(too_many_members_are_split_evenly_and_none_is_left_alone),
      cmocka_unit_test(other_tensors_are_refused_and_the_difference_has_a_name),
      cmocka_unit_test(a_host_that_dies_is_replaced_at_once),
      cmocka_unit_test(stalled_host_is_replaced),
      cmocka_unit_test(request_waits_its_timeout_but_half_of_the_seek_at_most),
      cmocka_unit_test(unplugged_machine_does_not_delay_the_next_epochs),
      cmocka_unit_test(a_member_that_vanishes_is_left_out),
      cmocka_unit_test(peer_that_was_lost_and_reports_again_is_expected),
      cmocka_unit_test(peer_that_cancels_its_seek_is_not_in_the_group),
      cmocka_unit_test(a_node_that_leaves_sends_its_callers_on),
      cmocka_unit_test(two_halves_are_two_groups_and_one_again_when_healed),
      cmocka_unit_test(halves_that_are_healed_while_they_wait_become_one),
      cmocka_unit_test(peer_without_memory_harms_its_own_seek_at_most),
      cmocka_unit_test(other_bits_are_other_groups),
      cmocka_unit_test(epoch_begun_under_one_key_has_not_begun_under_another),
      cmocka_unit_test(peer_that_moves_to_another_key_may_catch_up),
      cmocka_unit_test(peer_that_moves_to_another_key_is_not_waited_for),
      cmocka_unit_test(newcomer_does_not_wait_for_a_peer_that_moved_away),
  };
  return cmocka_run_group_tests_name("sim_match", tests, NULL, NULL);
}
