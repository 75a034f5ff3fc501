/* The fate of peers that seek different epochs, told against the virtual clock. */
#include "lib/match_scene.h"

enum { WAIT_MS = 15000, SOON_US = 700000 /* a host asks after 0.3 s, then what it hears travels */ };

static const char *name_of(unsigned epoch) {
  static char names[4][16];
  static unsigned turn;
  char *name = names[turn++ % 4];
  snprintf(name, sizeof names[0], "%u", epoch);
  return name;
}

static match_try *seek_number(scene *c, size_t node, unsigned epoch) {
  return seek(c, node, name_of(epoch), 0, WAIT_MS);
}

static uint64_t took(const match_try *t) {
  return t->ended_us - t->asked_us;
}

/* The others have gone on: it is told so, at once, and that it is in vain. */
static void was_left_behind(const match_try *t) {
  assert_true(t->done);
  if (t->status != HV_EXISTS)
    fail_msg("n%zu: %s: %s", t->seat->number, hv_status_name(t->status), t->text);
  assert_true(t->seek.further);
  assert_non_null(strstr(t->text, "already"));
  assert_true(took(t) <= SOON_US);
}

static void peer_behind_learns_so_at_once_and_one_ahead_stops_waiting(void **unused) {
  (void)unused;
  int hosts[2][2] = {{0}}; /* who hosts the epochs of each: all four ways are seen */
  for (unsigned epoch = 4; epoch < 20; epoch++) {
    scene *c = open_scene(500 + epoch);
    grow(c, 2);
    run(c, 8);
    hosts[match_swarm_first(&c->s, name_of(epoch), 0)][match_swarm_first(&c->s, name_of(epoch + 1), 0)] = 1;
    match_try *ahead = seek_number(c, 0, epoch + 1);
    run(c, epoch % 3 * 0.2);
    match_try *behind = seek_number(c, 1, epoch);
    assert_true(match_swarm_finish(&c->s, 5));
    was_left_behind(behind);
    assert_int_equal(ahead->status, HV_TIMEOUT); /* a while, since the other might have caught up */
    assert_non_null(strstr(ahead->text, "behind"));
    assert_in_range(took(ahead), 1000000, 3500000);
    close_scene(c);
  }
  assert_true(hosts[0][0] && hosts[0][1] && hosts[1][0] && hosts[1][1]);
}

/* As in a run where the second peer joins while the first ends an epoch alone. */
static void peer_that_was_behind_and_catches_up_is_waited_for(void **unused) {
  (void)unused;
  for (unsigned epoch = 4; epoch < 12; epoch++) {
    scene *c = open_scene(520 + epoch);
    grow(c, 2);
    run(c, 8);
    match_try *behind = seek_number(c, 1, epoch), *ahead = seek_number(c, 0, epoch + 1);
    while (!behind->done)
      run(c, 0.05);
    was_left_behind(behind);
    run(c, 0.5); /* it loads the other's state */
    assert_false(ahead->done);
    match_try *again = seek_number(c, 1, epoch + 1);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 2, SIZE_MAX);
    assert_true(took(again) <= 3 * RTT_US);
    close_scene(c);
  }
}

static void joiner_learns_in_its_first_seconds_that_it_is_behind(void **unused) {
  (void)unused;
  for (unsigned epoch = 4; epoch < 12; epoch++) {
    scene *c = open_scene(540 + epoch);
    grow(c, 1);
    run(c, 8);
    hv_match_reached(c->s.seats[0].match, epoch + 1); /* it made its epoch alone: no group was ever sought */
    match_swarm_add(&c->s);
    run(c, 0.2);
    match_try *joiner = seek_number(c, 1, epoch);
    assert_true(match_swarm_finish(&c->s, 2.5));
    assert_int_equal(joiner->status, HV_EXISTS);
    assert_true(joiner->seek.further);
    close_scene(c);
  }
}

static void waiting_peer_learns_at_once_that_the_other_went_on_alone(void **unused) {
  (void)unused;
  for (unsigned epoch = 4; epoch < 12; epoch++) {
    scene *c = open_scene(560 + epoch);
    grow(c, 2);
    run(c, 8);
    hv_match_reached(c->s.seats[0].match, epoch);
    match_try *t = seek_number(c, 1, epoch);
    run(c, 2);
    assert_false(t->done); /* the other may come */
    uint64_t then = hv_sim_now(c->s.sim);
    hv_match_reached(c->s.seats[0].match, epoch + 1);
    assert_true(match_swarm_finish(&c->s, 2));
    assert_int_equal(t->status, HV_EXISTS);
    assert_true(t->ended_us - then <= 2 * RTT_US);
    close_scene(c);
  }
}

static void peer_that_did_the_epoch_before_is_waited_for(void **unused) {
  (void)unused;
  scene *c = open_scene(580);
  grow(c, 3);
  run(c, 8);
  for (unsigned epoch = 1; epoch < 8; epoch++) {
    for (size_t i = 0; i < 3; i++)
      seek_number(c, i, epoch);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 3, SIZE_MAX);
    seek_number(c, 0, epoch + 1); /* the others train longer */
    seek_number(c, 1, epoch + 1);
    run(c, 5);
    assert_false(newest(c, 0)->done || newest(c, 1)->done);
    match_try *last = seek_number(c, 2, epoch + 1);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 3, SIZE_MAX);
    assert_true(took(last) <= 3 * RTT_US);
    epoch++;
  }
  close_scene(c);
}

static void peer_ahead_is_not_waited_for_by_the_others(void **unused) {
  (void)unused;
  for (unsigned epoch = 4; epoch < 10; epoch++) {
    scene *c = open_scene(600 + epoch);
    grow(c, 4);
    run(c, 8);
    seek_number(c, 3, epoch + 1);
    run(c, 1);
    for (size_t i = 0; i < 3; i++)
      seek_number(c, i, epoch);
    run(c, 1);
    for (size_t i = 0; i < 3; i++)
      assert_true(newest(c, i)->done);
    one_group(c, 0, 3, SIZE_MAX);
    assert_false(newest(c, 3)->done); /* they will be in its epoch soon */
    for (size_t i = 0; i < 3; i++)
      seek_number(c, i, epoch + 1);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 4, SIZE_MAX);
    close_scene(c);
  }
}

static void peer_that_stays_behind_delays_each_host_once(void **unused) {
  (void)unused;
  scene *c = open_scene(620);
  grow(c, 4);
  run(c, 8);
  size_t held_up = 0;
  for (unsigned epoch = 10; epoch < 26; epoch++) {
    match_try *slow = seek_number(c, 3, epoch - 2);
    for (size_t i = 0; i < 3; i++)
      seek_number(c, i, epoch);
    assert_true(match_swarm_finish(&c->s, 6));
    one_group(c, 0, 3, SIZE_MAX);
    assert_int_equal(slow->status, HV_EXISTS);
    uint64_t us = took(newest(c, 0));
    assert_true(us <= 3500000);
    held_up += us > 1200000;
    run(c, 1);
  }
  assert_in_range(held_up, 1, 4);
  close_scene(c);
}

static void a_second_attempt_is_the_same_epoch(void **unused) {
  (void)unused;
  scene *c = open_scene(640);
  grow(c, 3);
  run(c, 8);
  seek(c, 0, "5", 2, WAIT_MS);
  seek(c, 1, "5", 2, WAIT_MS);
  assert_true(match_swarm_finish(&c->s, 5));
  seek(c, 2, "5", 0, WAIT_MS);
  assert_true(match_swarm_finish(&c->s, 5));
  assert_int_equal(newest(c, 2)->status, HV_EXISTS);
  assert_false(newest(c, 2)->seek.further); /* others who came late may be there yet */
  match_try *late = seek(c, 2, "5/1", 0, 2000);
  run(c, 1);
  assert_false(late->done);
  assert_true(match_swarm_finish(&c->s, 5));
  assert_int_equal(late->status, HV_TIMEOUT);
  close_scene(c);
}

static void epochs_without_numbers_have_no_order(void **unused) {
  (void)unused;
  scene *c = open_scene(641);
  grow(c, 2);
  run(c, 8);
  match_try *a = seek(c, 0, "apples", 0, 3000), *b = seek(c, 1, "pears", 0, 3000);
  assert_true(match_swarm_finish(&c->s, 6));
  assert_true(a->status == HV_TIMEOUT && b->status == HV_TIMEOUT);
  assert_in_range(took(a), 2900000, 4100000);
  close_scene(c);
}

static void a_program_that_goes_back_is_believed(void **unused) { /* it was restored from a checkpoint */
  (void)unused;
  scene *c = open_scene(642);
  grow(c, 2);
  run(c, 8);
  seek_number(c, 0, 90);
  run(c, 0.5);
  hv_match_seek_cancel(&newest(c, 0)->seek);
  seek_number(c, 0, 7);
  seek_number(c, 1, 7);
  assert_true(match_swarm_finish(&c->s, 3));
  one_group(c, 0, 2, SIZE_MAX);
  close_scene(c);
}

static void expected_number_is_waited_for_if_some_peers_are_unknown(void **unused) {
  (void)unused;
  scene *c = open_scene(643);
  grow(c, 2);
  run(c, 8);
  seek_number(c, 0, 6);
  match_try *t = seek(c, 1, "5", 3, 4000); /* the program knows of a third */
  run(c, 2);
  assert_false(t->done);
  assert_true(match_swarm_finish(&c->s, 4));
  assert_int_equal(t->status, HV_TIMEOUT);
  close_scene(c);
}

static void clients_left_behind_learn_so_at_once(void **unused) { /* they cannot be a group by themselves */
  (void)unused;
  int same_host = 0;
  for (unsigned epoch = 4; epoch < 16; epoch++) {
    scene *c = open_scene(660 + epoch);
    for (size_t i = 0; i < 5; i++) {
      match_swarm_next(&c->s)->client = i > 2;
      match_swarm_add(&c->s);
    }
    run(c, 8);
    for (size_t i = 0; i < 3; i++)
      hv_match_reached(c->s.seats[i].match, epoch + 3);
    seek_number(c, 3, epoch);
    seek_number(c, 4, epoch);
    run(c, 1);
    was_left_behind(newest(c, 3));
    was_left_behind(newest(c, 4));
    if (match_swarm_first(&c->s, name_of(epoch), 0) == match_swarm_first(&c->s, name_of(epoch + 3), 0)) {
      same_host = 1; /* nobody can ask clients how far they are: what they told that host holds for longer */
      run(c, 4);
      for (size_t i = 0; i < 3; i++)
        seek_number(c, i, epoch + 3);
      assert_true(match_swarm_finish(&c->s, 1));
      one_group(c, 0, 3, SIZE_MAX);
    }
    close_scene(c);
  }
  assert_true(same_host);
}

/* Four have had their group of an epoch, and are yet to make their step with it, or die; then three join, and seek. */
static scene *with_late_ones(unsigned epoch, size_t dying) {
  scene *c = open_scene(700 + epoch);
  grow(c, 4);
  run(c, 8);
  for (size_t i = 0; i < 4; i++)
    seek_number(c, i, epoch);
  assert_true(match_swarm_finish(&c->s, 5));
  one_group(c, 0, 4, SIZE_MAX);
  grow(c, 3);
  run(c, 8);
  for (size_t i = 0; i < dying; i++)
    hv_sim_kill(c->s.sim, 3 - i);
  run(c, dying ? 8 : 0);
  for (size_t i = 4; i < 7; i++)
    seek(c, i, name_of(epoch), 0, 3000);
  assert_true(match_swarm_finish(&c->s, 6));
  return c;
}

/* Two groups would be two swarms. If a late one is first in the order, no host that they ask has had the group. */
static void peer_that_joins_after_the_group_makes_no_second_one(void **unused) {
  (void)unused;
  int late_hosts = 0;
  for (unsigned epoch = 4; epoch < 16; epoch++) {
    scene *c = with_late_ones(epoch, 0);
    late_hosts += match_swarm_first(&c->s, name_of(epoch), 0) > 3;
    for (size_t i = 4; i < 7; i++) {
      assert_int_equal(newest(c, i)->status, HV_EXISTS);
      assert_true(took(newest(c, i)) <= SOON_US);
    }
    close_scene(c);
  }
  assert_in_range(late_hosts, 1, 11);
}

static void late_peers_form_a_group_only_if_all_of_the_first_died(void **unused) {
  (void)unused;
  for (unsigned epoch = 4; epoch < 16; epoch++) {
    scene *c = with_late_ones(epoch, 3);
    for (size_t i = 4; i < 7; i++)
      assert_int_equal(newest(c, i)->status, HV_EXISTS);
    close_scene(c);
    c = with_late_ones(epoch, 4); /* nobody has made that step, or could give its state */
    one_group(c, 4, 7, SIZE_MAX);
    close_scene(c);
  }
}

/* Four averagers step one round after the other, from their first second on. The host once counted those who had a group as begun,
 * and after some rounds two were enough for it. */
static void rounds_without_epoch_are_whole_each_time(void **unused) {
  (void)unused;
  scene *c = open_scene(43);
  c->s.config.target_group_size = 4;
  grow(c, 4);
  run(c, 1);
  for (int round = 0; round < 20; round++) {
    for (size_t i = 0; i < 4; i++) {
      seek(c, (i + (size_t)round) % 4, "", 0, 1000);
      run(c, 0.1);
    }
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, 4, SIZE_MAX);
  }
  close_scene(c);
}

/* ---- two that enter at once ---- */

typedef struct entry {
  hv_command command; /* first */
  match_seat *seat;
} entry;

static void enter_run(hv_command *command, void *core) {
  match_seat *seat = ((entry *)command)->seat;
  assert_non_null(core);
  hv_match_config config = seat->swarm->config;
  assert_int_equal(hv_match_new(hv_node_match_registry(seat->node), &config, &seat->match, NULL), HV_OK);
}

/* Nodes that know each other enter a run within milliseconds. The first asks the second, which does not have the key yet, and
 * says so; then the second enters and calls the first. The call may overtake the answer, on a line that jitters, and is the news.
 */
static void answer_that_a_call_overtook_counts_for_nothing(void **unused) {
  (void)unused;
  for (uint64_t seed = 0; seed < 200; seed++) {
    static const char elsewhere[] = "another_run";
    const hv_sim_link line = {.delay_us = 1000, .jitter_us = 20000};
    scene *c = open_scene(7000 + seed);
    for (size_t i = 0; i < 2; i++) {
      match_swarm_next(&c->s)->config.prefix = hv_span_of(elsewhere, sizeof elsewhere - 1);
      match_swarm_add(&c->s);
    }
    run(c, 5);
    hv_sim_set_link(c->s.sim, 0, 1, &line), hv_sim_set_link(c->s.sim, 1, 0, &line);
    entry entries[2];
    for (size_t i = 0; i < 2; i++) {
      entries[i] = (entry){{enter_run, NULL}, &c->s.seats[i]};
      assert_int_equal(hv_sim_command(c->s.sim, i, &entries[i].command), HV_OK);
      run(c, (double)(seed % 32) * 1e-3);
    }
    size_t others = 0;
    for (size_t ms = 0; ms < 300; ms++) { /* once the first counts the second, it goes on to */
      run(c, 1e-3);
      assert_true(hv_match_others(c->s.seats[0].match) >= others);
      others = hv_match_others(c->s.seats[0].match);
    }
    seek(c, 0, "1", 0, 5000), seek(c, 1, "1", 0, 5000);
    assert_true(match_swarm_finish(&c->s, 10));
    one_group(c, 0, 2, SIZE_MAX);
    close_scene(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounds_without_epoch_are_whole_each_time),
      cmocka_unit_test(peer_behind_learns_so_at_once_and_one_ahead_stops_waiting),
      cmocka_unit_test(peer_that_was_behind_and_catches_up_is_waited_for),
      cmocka_unit_test(joiner_learns_in_its_first_seconds_that_it_is_behind),
      cmocka_unit_test(waiting_peer_learns_at_once_that_the_other_went_on_alone),
      cmocka_unit_test(peer_that_did_the_epoch_before_is_waited_for),
      cmocka_unit_test(peer_ahead_is_not_waited_for_by_the_others),
      cmocka_unit_test(peer_that_stays_behind_delays_each_host_once),
      cmocka_unit_test(clients_left_behind_learn_so_at_once),
      cmocka_unit_test(peer_that_joins_after_the_group_makes_no_second_one),
      cmocka_unit_test(late_peers_form_a_group_only_if_all_of_the_first_died),
      cmocka_unit_test(a_second_attempt_is_the_same_epoch),
      cmocka_unit_test(epochs_without_numbers_have_no_order),
      cmocka_unit_test(a_program_that_goes_back_is_believed),
      cmocka_unit_test(expected_number_is_waited_for_if_some_peers_are_unknown),
      cmocka_unit_test(answer_that_a_call_overtook_counts_for_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
