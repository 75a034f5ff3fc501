/* How far is the swarm? Told against the virtual clock: who comes, who is slow, who runs ahead, who lies, and what the others make
 * of it. */
#include "lib/progress_scene.h"

static void lone_peer_counts_its_own_samples_only(void **unused) {
  (void)unused;
  scene *c = open_scene(1);
  join(c, 100, 0);
  run(c, 60);
  hv_progress_figures now = read_of(c, 0);
  assert_int_equal(now.n_peers, 1);
  assert_near(now.samples, 6000, 2);
  assert_near((double)now.eta_us * 1e-6, 60, 0.1);
  assert_false(now.ready || now.match);
  run(c, 56);
  assert_true(read_of(c, 0).match && !read_of(c, 0).ready);
  run(c, 5);
  assert_true(read_of(c, 0).ready);
  close_scene(c);
}

static void all_see_the_same_sum_and_are_ready_together(void **unused) {
  (void)unused;
  scene *c = open_scene(2);
  grow(c, 6, 40);
  run(c, 20);
  for (size_t i = 0; i < 6; i++) {
    hv_progress_figures now = read_of(c, i);
    assert_int_equal(now.n_peers, 6);
    assert_near(now.samples, 6 * 40 * 20, 120);
    assert_near(now.speed, 240, 1);
    assert_false(now.ready);
  }
  run(c, 26);
  for (size_t i = 0; i < 6; i++)
    assert_true(read_of(c, i).match && !read_of(c, i).ready);
  run(c, 5);
  for (size_t i = 0; i < 6; i++)
    assert_true(read_of(c, i).ready);
  all_begin(c, 0, 6, 1);
  run(c, 5);
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(read_of(c, i).epoch, 1);
    assert_false(read_of(c, i).ready);
    assert_near(read_of(c, i).samples, 6 * 40 * 5, 120);
  }
  close_scene(c);
}

static void a_newcomer_learns_where_the_swarm_is_before_it_says_anything(void **unused) {
  (void)unused;
  scene *c = open_scene(3);
  grow(c, 5, 40);
  all_begin(c, 0, 5, 70);
  run(c, 10);
  size_t node = join(c, 0, 0);
  run(c, 5);
  hv_progress_figures now = read_of(c, node);
  assert_int_equal(now.epoch, 70);
  assert_int_equal(now.n_peers, 5);
  assert_int_equal(now.standing, HV_PROGRESS_BEHIND);
  assert_false(now.ready || now.match);
  progress_swarm_begin(&c->s, node, 70);
  progress_swarm_work(&c->s, node, 40);
  progress_swarm_wake(&c->s, node);
  run(c, 5);
  assert_int_equal(read_of(c, 0).n_peers, 6);
  assert_int_equal(read_of(c, node).standing, HV_PROGRESS_IN_STEP);
  close_scene(c);
}

static void newcomers_that_report_at_once_do_not_drag_the_swarm_back(void **unused) {
  (void)unused;
  scene *c = open_scene(4);
  grow(c, 4, 40);
  all_begin(c, 0, 4, 70);
  grow(c, 4, 40); /* at epoch 0 */
  run(c, 10);
  assert_epoch(c, 0, 8, 70);
  assert_int_equal(read_of(c, 7).standing, HV_PROGRESS_BEHIND);
  assert_true(read_of(c, 7).ready); /* to take the swarm's state, that is */
  close_scene(c);
}

static void a_straggler_is_late_then_behind_and_holds_nobody(void **unused) {
  (void)unused;
  scene *c = open_scene(5);
  grow(c, 6, 40);
  run(c, 10);
  all_begin(c, 0, 5, 1);
  run(c, 5);
  assert_epoch(c, 0, 6, 1);
  assert_int_equal(read_of(c, 5).standing, HV_PROGRESS_LATE);
  assert_true(read_of(c, 5).ready);
  all_begin(c, 0, 5, 2);
  run(c, 5);
  assert_int_equal(read_of(c, 5).standing, HV_PROGRESS_BEHIND);
  assert_near(read_of(c, 0).samples, 5 * 40 * 5, 100); /* what the straggler does is not counted */
  close_scene(c);
}

static void a_leader_waits_and_the_target_stays_reached_for_the_rest(void **unused) {
  (void)unused;
  scene *c = open_scene(6);
  grow(c, 6, 40);
  run(c, 52);
  progress_swarm_begin(&c->s, 0, 1);
  progress_swarm_wake(&c->s, 0);
  run(c, 5);
  assert_int_equal(read_of(c, 0).standing, HV_PROGRESS_AHEAD);
  assert_false(read_of(c, 0).ready || read_of(c, 0).match);
  assert_epoch(c, 0, 6, 0);
  for (size_t i = 1; i < 6; i++)
    assert_true(read_of(c, i).ready);
  all_begin(c, 1, 3, 1); /* three of six: more than a third */
  run(c, 5);
  assert_epoch(c, 0, 6, 1);
  assert_int_equal(read_of(c, 0).standing, HV_PROGRESS_IN_STEP);
  close_scene(c);
}

/* Its program validates, or waits for a person. Its last report stays, and its samples do not grow. */
static void stalled_peer_is_not_extrapolated(void **unused) {
  (void)unused;
  for (int client = 0; client < 2; client++) {
    scene *c = open_scene(18);
    join(c, 10, 0);
    join(c, 1000, client);
    run(c, 5);
    progress_swarm_still(&c->s, 1);
    assert_near(read_of(c, 0).samples, 5000, 700);
    for (int i = 0; i < 8; i++) {
      run(c, 5);
      hv_progress_figures now = read_of(c, 0);
      assert_false(now.ready || now.match);
      assert_near(now.samples, 5000 + 50 * (i + 1), 300);
      assert_int_equal(now.n_peers, 2);
    }
    assert_true(read_of(c, 0).eta_us > 200000000); /* 6,600 samples, at 10 a second and no more */
    progress_swarm_work(&c->s, 1, 1000);
    run(c, 5);
    assert_near(read_of(c, 0).samples, 10450, 700);
    assert_near((double)read_of(c, 0).eta_us * 1e-6, 1.5, 0.8);
    close_scene(c);
  }
}

/* One batch that takes twice as long as others is no standstill. */
static void peer_that_is_slow_for_a_moment_is_extrapolated(void **unused) {
  (void)unused;
  scene *c = open_scene(19);
  join(c, 10, 0);
  join(c, 100, 0);
  c->s.peers[1].batch = 200;
  run(c, 20.5);
  assert_near(read_of(c, 0).samples, 2050 + 205, 60);
  run(c, 1.4);
  progress_swarm_still(&c->s, 1);
  run(c, 2);
  assert_near(read_of(c, 0).samples, 2390 + 239, 60);
  close_scene(c);
}

static void far_epoch(progress_peer *peer, hv_progress_own *own) {
  (void)peer;
  own->epoch = 1000000;
}

static void far_too_much(progress_peer *peer, hv_progress_own *own) {
  (void)peer;
  own->samples = own->before = HV_REPORT_SAMPLES_MAX;
}

static void too_fast(progress_peer *peer, hv_progress_own *own) {
  (void)peer;
  own->speed = HV_REPORT_SPEED_MAX;
}

static void far_back(progress_peer *peer, hv_progress_own *own) {
  (void)peer;
  own->epoch = 0;
}

static void false_claim_of_the_highest_epoch_desynchronises_nobody(void **unused) { /* defect 16 */
  (void)unused;
  scene *c = open_scene(7);
  grow(c, 4, 40);
  c->s.peers[3].lie = far_epoch;
  run(c, 20);
  assert_epoch(c, 0, 3, 0);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(read_of(c, i).standing, HV_PROGRESS_IN_STEP);
    assert_false(read_of(c, i).ready);
  }
  all_begin(c, 0, 3, 1);
  c->s.peers[3].lie = far_back;
  run(c, 20);
  assert_epoch(c, 0, 3, 1);
  close_scene(c);
}

/* One trainer and one liar: nothing but the lack of a state shows which of them lies. */
static void doubted_liar_does_not_count_until_the_doubt_ends(void **unused) {
  (void)unused;
  scene *c = open_scene(81);
  grow(c, 2, 40);
  c->s.peers[1].lie = far_epoch;
  run(c, 20);
  assert_int_equal(read_of(c, 0).standing, HV_PROGRESS_BEHIND);
  uint64_t claimed = read_of(c, 0).epoch;
  hv_progress_disbelieve(c->s.peers[0].tracker, claimed, 30000);
  for (int i = 0; i < 2; i++) { /* the liar says it again and again, and the trainer begins an epoch meanwhile */
    hv_progress_figures now = read_of(c, 0);
    assert_int_equal(now.epoch, i);
    assert_int_equal(now.standing, HV_PROGRESS_IN_STEP);
    assert_int_equal(now.n_peers, 1);
    assert_false(now.ready);
    all_begin(c, 0, 1, 1);
    run(c, 14);
  }
  size_t joiner = join(c, 40, 0); /* with two honest ones a third may lie */
  progress_swarm_begin(&c->s, joiner, 1);
  run(c, 20);
  assert_epoch(c, 0, 1, 1);
  assert_int_equal(read_of(c, 0).n_peers, 3);
  progress_swarm_close(&c->s, joiner);
  run(c, 60);
  assert_int_equal(read_of(c, 0).standing, HV_PROGRESS_BEHIND);
  close_scene(c);
}

static void a_liar_about_samples_counts_for_little(void **unused) {
  (void)unused;
  scene *c = open_scene(8);
  grow(c, 20, 10);
  c->s.peers[19].lie = far_too_much;
  run(c, 20);
  for (size_t i = 0; i < 19; i++) {
    hv_progress_figures now = read_of(c, i);
    assert_true(now.samples >= 19 * 10 * 20 * 0.9);
    assert_true(now.samples <= 19 * 10 * 21 + fmax(8 * 10 * 21, TARGET / 20.0));
    assert_false(now.ready);
  }
  close_scene(c);
}

static void a_liar_about_its_speed_hurries_nobody(void **unused) {
  (void)unused;
  scene *c = open_scene(9);
  grow(c, 6, 10);
  c->s.peers[5].lie = too_fast;
  run(c, 20);
  for (size_t i = 0; i < 5; i++) {
    hv_progress_figures now = read_of(c, i);
    assert_true(now.speed <= 5 * 10 + 8 * 10 + 1);
    assert_false(now.ready || now.match);
  }
  close_scene(c);
}

static void halves_of_a_partitioned_swarm_count_alone_and_merge_later(void **unused) {
  (void)unused;
  scene *c = open_scene(10);
  grow(c, 8, 10);
  run(c, 20);
  for (size_t i = 0; i < 4; i++)
    hv_sim_group(c->s.dht.sim, i, 1);
  run(c, 60);
  for (size_t i = 0; i < 8; i++)
    assert_int_equal(read_of(c, i).n_peers, 4);
  all_begin(c, 0, 4, 1);
  hv_sim_heal(c->s.dht.sim);
  run(c, 90);
  for (size_t i = 0; i < 8; i++)
    assert_int_equal(read_of(c, i).n_peers, 8);
  assert_epoch(c, 0, 8, 1); /* four of eight have reached it */
  close_scene(c);
}

static void clocks_an_hour_apart_make_no_difference(void **unused) {
  (void)unused;
  scene *c = open_scene(11);
  for (size_t i = 0; i < 6; i++) {
    c->s.dht.seats[i].skew_us = (i % 3 ? -1 : 1) * INT64_C(3600000000) * (int64_t)(i % 2);
    join(c, 40, 0);
  }
  run(c, 30);
  for (size_t i = 0; i < 6; i++)
    assert_near(read_of(c, i).samples, 6 * 40 * 30, 240);
  close_scene(c);
}

static void a_node_has_eight_contributors_at_most_and_ends_with_them(void **unused) {
  (void)unused;
  scene *c = open_scene(14);
  grow(c, 2, 40);
  for (int i = 0; i < 8; i++) {
    progress_swarm_open(&c->s, 0);
    assert_int_equal(c->s.peers[0].opened, i < 7 ? HV_OK : HV_BUDGET);
  }
  run(c, 20);
  assert_int_equal(read_of(c, 1).n_peers, 9);
  hv_sim_stop(c->s.dht.sim, 0);
  run(c, 40); /* what was heard last counts for 30 s */
  assert_int_equal(read_of(c, 1).n_peers, 1);
  close_scene(c);
}

static void a_swarm_wider_than_a_leaf_is_counted_by_zones(void **unused) {
  (void)unused;
  scene *c = open_scene(15);
  grow(c, 40, 5);
  run(c, 40);
  for (size_t i = 0; i < 40; i++) {
    assert_true(hv_progress_look(c->s.peers[i].tracker)->wide);
    assert_int_equal(read_of(c, i).n_peers, 40);
    assert_near(read_of(c, i).samples, 40 * 5 * 40, 200);
  }
  all_begin(c, 0, 40, 1);
  run(c, 10);
  assert_epoch(c, 0, 40, 1);
  close_scene(c);
}

/* ---- wide swarms ---- */

/* So many nodes that know each other, of which the first have trackers, opened at once. */
static void stand_together(scene *c, size_t nodes, size_t trackers, double speed) {
  for (size_t i = 0; i < nodes; i++)
    dht_swarm_add(&c->s.dht, NULL, 0, 0);
  run(c, 0.001);
  dht_swarm_settle(&c->s.dht);
  for (size_t i = 0; i < trackers; i++) {
    progress_swarm_work(&c->s, i, speed);
    progress_swarm_open(&c->s, i);
  }
}

static size_t have_said(scene *c, size_t n) {
  size_t said = 0;
  for (size_t i = 0; i < n; i++)
    said += c->s.peers[i].tracker->published_us > 0;
  return said;
}

/* By then it knows how many there are, and so who has a record. */
static void first_record_in_a_wide_swarm_is_stored_after_ten_seconds(void **unused) {
  (void)unused;
  scene *c = open_scene(20);
  stand_together(c, 40, 40, 5);
  run(c, 9.8);
  assert_int_equal(have_said(c, 40), 0);
  run(c, 1);
  assert_int_equal(have_said(c, 40), 40);
  close_scene(c);
}

/* Of a large DHT's nodes only this one takes part. Its record is how others find it. */
static void lone_participant_stores_its_record_after_three_seconds(void **unused) {
  (void)unused;
  scene *c = open_scene(21);
  stand_together(c, 40, 1, 5);
  run(c, 2.8);
  assert_int_equal(have_said(c, 1), 0);
  run(c, 1);
  assert_int_equal(have_said(c, 1), 1);
  close_scene(c);
}

/* Peers that were found there report directly since. */
static void records_are_not_asked_for_again_if_zone_sums_arrive(void **unused) {
  (void)unused;
  scene *c = open_scene(22);
  stand_together(c, 40, 40, 5);
  run(c, 1);
  uint64_t first[40];
  for (size_t i = 0; i < 40; i++)
    first[i] = c->s.peers[i].tracker->asked_us;
  run(c, 60);
  for (size_t i = 0; i < 40; i++)
    assert_true(first[i] && c->s.peers[i].tracker->asked_us == first[i]);
  close_scene(c);
}

static void averaging(progress_peer *peer, hv_progress_own *own) {
  own->paused = peer->still_us > 0;
}

/* A peer that averages is not stalled: its samples are extrapolated, but for three refreshes at most. */
static void long_averaging_is_extrapolated_for_three_refreshes(void **unused) {
  (void)unused;
  scene *c = open_scene(23);
  join(c, 1, 0);
  join(c, 100, 0);
  c->s.peers[1].lie = averaging;
  run(c, 5);
  progress_swarm_still(&c->s, 1);
  run(c, 60);
  assert_near(read_of(c, 0).samples, 65 + 500 + 3000, 300);
  close_scene(c);
}

static void averaging_peer_is_extrapolated_by_others_in_a_wide_swarm(void **unused) {
  (void)unused;
  scene *c = open_scene(24);
  stand_together(c, 40, 40, 4);
  c->s.peers[0].lie = averaging;
  progress_swarm_work(&c->s, 0, 20);
  run(c, 5);
  progress_swarm_still(&c->s, 0);
  run(c, 55);
  assert_true(hv_progress_look(c->s.peers[0].tracker)->wide);
  assert_near(read_of(c, 0).samples, 39 * 4 * 60 + 100, 100);
  assert_near(read_of(c, 1).samples, 39 * 4 * 60 + 100 + 600, 200);
  close_scene(c);
}

/* The program's thread reports between a node's look at its clock and its look at the report. */
static void newer_than_now(struct progress_peer *peer, hv_progress_own *own) {
  (void)peer;
  own->at_us += 500000; /* a batch takes 250 ms */
}

static void report_from_the_future_counts_as_one_from_now(void **unused) {
  (void)unused;
  static const size_t sizes[] = {2, 40}; /* counted one by one, and by zones */
  for (size_t s = 0; s < 2; s++) {
    size_t n = sizes[s];
    scene *c = open_scene(41);
    stand_together(c, n, n, 4);
    for (size_t i = 0; i < n; i++)
      c->s.peers[i].lie = newer_than_now;
    run(c, 60);
    assert_int_equal(hv_progress_look(c->s.peers[0].tracker)->wide, s);
    for (size_t i = 0; i < n; i++)
      assert_near(read_of(c, i).samples, (double)n * 4 * 60, (double)n * 4);
    close_scene(c);
  }
}

/* Peers last heard in the old epoch are assumed to have begun the new one. So the sum is right as soon as the epoch is known. */
static void epochs_end_and_its_sum_are_known_within_two_seconds(void **unused) {
  (void)unused;
  scene *c = open_scene(27);
  stand_together(c, 48, 48, 5);
  for (uint64_t epoch = 1; epoch < 5; epoch++) {
    run(c, 20);
    for (size_t i = 0; i < 48; i++)
      progress_swarm_begin(&c->s, i, epoch);
    run(c, 2);
    assert_epoch(c, 0, 48, epoch);
    for (size_t i = 0; i < 48; i++)
      assert_near(read_of(c, i).samples, 48 * 5 * 2, 48);
    run(c, 2);
    for (size_t i = 0; i < 48; i++)
      assert_near(read_of(c, i).samples, 48 * 5 * 4, 48);
  }
  close_scene(c);
}

/* A later report says that the peer is still in the old epoch. */
static void peer_that_stays_in_the_old_epoch_is_not_counted_in_the_new(void **unused) {
  (void)unused;
  scene *c = open_scene(26);
  stand_together(c, 48, 48, 5);
  run(c, 20);
  for (size_t i = 0; i < 36; i++)
    progress_swarm_begin(&c->s, i, 1);
  run(c, 16);
  for (size_t i = 0; i < 48; i++) {
    assert_int_equal(read_of(c, i).epoch, 1);
    assert_near(read_of(c, i).samples, 36 * 5 * 16, 60);
  }
  close_scene(c);
}

/* Reports from before the epoch began and since are not added up before it is known of whom it was: nobody reads
 * much too low meanwhile, nor higher than those who stay would have made it. */
static void sum_stays_high_while_only_a_part_enters_the_next_epoch(void **unused) {
  (void)unused;
  for (uint64_t seed = 61; seed <= 66; seed++)
    for (size_t go = 36; go <= 44; go += 8) {
      scene *c = open_scene(seed);
      stand_together(c, 48, 48, 5);
      run(c, 20);
      for (size_t i = 0; i < go; i++)
        progress_swarm_begin(&c->s, i, 1);
      for (size_t t = 1; t <= 16; t++) {
        run(c, 1);
        for (size_t i = 0; i < 48; i++) {
          hv_progress_figures now = read_of(c, i);
          double low = now.samples - (double)(go * 5 * t), high = now.samples - (double)(48 * 5 * t);
          if (now.epoch == 1 && (low < -0.5 * 5 * (double)go || high > 48 || (t > 13 && low > 48)))
            fail_msg("seed %d, %d go: after %d s %d reads %g", (int)seed, (int)go, (int)t, (int)i, now.samples);
        }
      }
      close_scene(c);
    }
}

/* All are asked one by one, and the sum is right before all have been asked again. A peer that stays in the old epoch is soon out
 * of it. */
static void small_swarm_knows_the_sum_with_the_epoch(void **unused) {
  (void)unused;
  static const size_t sizes[] = {2, 6};
  static const double known_s[] = {0.1, 1.5};
  for (size_t s = 0; s < 2; s++) {
    size_t n = sizes[s], stays = n / 3; /* of two nobody can */
    double known = known_s[s];
    scene *c = open_scene(27);
    grow(c, n, 100);
    run(c, 20);
    all_begin(c, 0, n, 1);
    run(c, known);
    for (size_t i = 0; i < n; i++) {
      assert_near(read_of(c, i).samples, (double)n * 100 * known, (double)n * 4);
      assert_near(read_of(c, i).speed, (double)n * 100, (double)n);
    }
    run(c, 20);
    all_begin(c, 0, n - stays, 2);
    run(c, 5);
    for (size_t i = 0; i < n - stays; i++)
      assert_near(read_of(c, i).samples, (double)(n - stays) * 100 * 5, (double)n * 4);
    close_scene(c);
  }
}

/* One becomes slow as the target is near. The other asks sooner and sooner, and so makes the step hardly before its time. */
static void the_nearer_the_target_the_sooner_others_are_asked_again(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    scene *c = open_scene(100 + seed);
    grow(c, 2, 200);
    while (progress_swarm_own(&c->s, 0).samples + progress_swarm_own(&c->s, 1).samples < TARGET - 4000)
      run(c, 0.01);
    uint64_t messages = hv_sim_count(c->s.dht.sim).messages;
    while (progress_swarm_own(&c->s, 0).samples + progress_swarm_own(&c->s, 1).samples < TARGET - 100 - seed * 5)
      run(c, 0.01);
    progress_swarm_work(&c->s, 1, 20);
    while (!read_of(c, 0).ready)
      run(c, 0.01);
    uint64_t done = progress_swarm_own(&c->s, 0).samples + progress_swarm_own(&c->s, 1).samples;
    if (done < TARGET - 10)
      fail_msg("seed %d: the step is made at %d", (int)seed, (int)done);
    messages = hv_sim_count(c->s.dht.sim).messages - messages;
    if (messages > 300) /* some 260 where nobody asks sooner */
      fail_msg("seed %d: the last ten seconds cost %d messages", (int)seed, (int)messages);
    close_scene(c);
  }
}

/* ---- what is passed on ---- */

typedef struct forger {
  hv_command command;
  scene *c;
  size_t me, victim;
  uint64_t epoch;
  double times;
} forger;

static void nothing(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  (void)owner, (void)mark, (void)status, (void)msg, (void)text;
}

/* Of all halves that are the same for both it says what is not true, and that it is quite new. */
static void forge(hv_command *command, void *core) {
  forger *f = (forger *)command;
  hv_progress_run *mine = f->c->s.peers[f->me].tracker->run, *theirs = f->c->s.peers[f->victim].tracker->run;
  unsigned bits = (unsigned)hv_hash_shared_bits(&mine->zones.me, &theirs->zones.me);
  const hv_route_contact *contact = hv_route_find(hv_dht_route(mine->registry->dht), &theirs->registry->me);
  hv_zone_msg words = {.in_one = 1, .epoch = mine->zones.epoch};
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  for (unsigned level = 0; level < bits && level < theirs->zones.leaf_bits && words.n < HV_ZONE_SUMS_MAX; level++) {
    hv_sum sum = theirs->zones.halves[level].picked;
    for (size_t i = 0; i < sum.n_parts; i++) {
      sum.parts[i].samples = (uint64_t)((double)sum.parts[i].samples * f->times);
      sum.parts[i].epoch += f->epoch;
      sum.parts[i].age_ms = 0;
    }
    words.sums[words.n++] = (hv_zone_sum){.level = level, .sum = sum};
  }
  assert_non_null(core);
  assert_non_null(contact);
  assert_true(words.n > 0);
  hv_msg msg = {.kind = HV_MSG_PROGRESS,
                .u.progress = {mine->id, HV_ZONES_SELF, hv_span_of(bytes, hv_zone_msg_pack(&words, bytes))}};
  assert_int_equal(hv_asker_ask(hv_dht_asker(mine->registry->dht), &contact->id, hv_span_of(contact->addrs, contact->addrs_size),
                                &msg, 0, nothing, NULL, 0, NULL),
                   HV_OK);
}

/* Two that share bits, so that there are halves that are the same for both. */
static forger find_forger(scene *c, size_t n) {
  forger f = {.command.run = forge, .c = c};
  unsigned most = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < n; j++) {
      const hv_zones *a = &c->s.peers[i].tracker->run->zones, *b = &c->s.peers[j].tracker->run->zones;
      unsigned bits = i == j ? 0 : (unsigned)hv_hash_shared_bits(&a->me, &b->me);
      if (bits > most && hv_route_find(hv_dht_route(a->dht), &c->s.peers[j].tracker->registry->me)) {
        most = bits;
        f.me = i;
        f.victim = j;
      }
    }
  assert_true(most > 0);
  return f;
}

static void peer_that_forwards_forged_records_is_not_believed(void **unused) {
  (void)unused;
  static const struct {
    uint64_t epoch;
    double times;
  } lies[] = {{0, 1.3}, {0, 0.7}, {1, 0}, {1000, 1}};
  for (size_t lie = 0; lie < sizeof lies / sizeof *lies; lie++) {
    scene *c = open_scene(27);
    stand_together(c, 48, 48, 5);
    run(c, 20);
    forger f = find_forger(c, 48);
    f.epoch = lies[lie].epoch;
    f.times = lies[lie].times;
    for (int i = 0; i < 60; i++) {
      if (hv_sim_command(c->s.dht.sim, f.me, &f.command) != HV_OK)
        fail();
      run(c, 0.1);
      hv_progress_figures now = read_of(c, f.victim);
      assert_int_equal(now.epoch, 0);
      assert_near(now.samples, 48 * 5 * (20 + 0.1 * (i + 1)), TARGET / 48.0); /* by what one contributor is to give, at most */
    }
    close_scene(c);
  }
}

/* Each allocation of a node that follows a run fails in turn: it goes on, or is killed by its world, and nothing is left behind. */
static void tracker_without_memory_breaks_nothing(void **unused) {
  (void)unused;
  for (long n = 0; n < 400; n += 7) {
    scene *c = open_scene(16);
    grow(c, 3, 40);
    hv_mem_fail_in(hv_sim_mem(c->s.dht.sim, 1), n);
    run(c, 12);
    assert_int_equal(read_of(c, 0).epoch, 0);
    close_scene(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lone_peer_counts_its_own_samples_only),
      cmocka_unit_test(all_see_the_same_sum_and_are_ready_together),
      cmocka_unit_test(a_newcomer_learns_where_the_swarm_is_before_it_says_anything),
      cmocka_unit_test(newcomers_that_report_at_once_do_not_drag_the_swarm_back),
      cmocka_unit_test(a_straggler_is_late_then_behind_and_holds_nobody),
      cmocka_unit_test(a_leader_waits_and_the_target_stays_reached_for_the_rest),
      cmocka_unit_test(stalled_peer_is_not_extrapolated),
      cmocka_unit_test(peer_that_is_slow_for_a_moment_is_extrapolated),
      cmocka_unit_test(false_claim_of_the_highest_epoch_desynchronises_nobody),
      cmocka_unit_test(doubted_liar_does_not_count_until_the_doubt_ends),
      cmocka_unit_test(a_liar_about_samples_counts_for_little),
      cmocka_unit_test(a_liar_about_its_speed_hurries_nobody),
      cmocka_unit_test(halves_of_a_partitioned_swarm_count_alone_and_merge_later),
      cmocka_unit_test(clocks_an_hour_apart_make_no_difference),
      cmocka_unit_test(a_node_has_eight_contributors_at_most_and_ends_with_them),
      cmocka_unit_test(a_swarm_wider_than_a_leaf_is_counted_by_zones),
      cmocka_unit_test(first_record_in_a_wide_swarm_is_stored_after_ten_seconds),
      cmocka_unit_test(lone_participant_stores_its_record_after_three_seconds),
      cmocka_unit_test(records_are_not_asked_for_again_if_zone_sums_arrive),
      cmocka_unit_test(long_averaging_is_extrapolated_for_three_refreshes),
      cmocka_unit_test(averaging_peer_is_extrapolated_by_others_in_a_wide_swarm),
      cmocka_unit_test(report_from_the_future_counts_as_one_from_now),
      cmocka_unit_test(epochs_end_and_its_sum_are_known_within_two_seconds),
      cmocka_unit_test(peer_that_stays_in_the_old_epoch_is_not_counted_in_the_new),
      cmocka_unit_test(sum_stays_high_while_only_a_part_enters_the_next_epoch),
      cmocka_unit_test(small_swarm_knows_the_sum_with_the_epoch),
      cmocka_unit_test(the_nearer_the_target_the_sooner_others_are_asked_again),
      cmocka_unit_test(peer_that_forwards_forged_records_is_not_believed),
      cmocka_unit_test(tracker_without_memory_breaks_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
