/* Local steps with an outer optimizer (docs/design/local-steps.md): what becomes of an epoch, and of its samples. */
#include "lib/epoch_scene.h"

static const hv_epoch_options anchored = {.use_local_updates = 1, .outer = 1, .average_state_every = 1};

/* Counted, in epoch 0, beside another, and one batch is made. */
static scene *gathers_steps(void) {
  scene *s = new_scene(&anchored, HV_EPOCH_ALONE_TRAINS);
  s->fetched = 1;
  epoch_begins(s);
  steps_locally(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->ledger.sums, BATCH);
  return s;
}

/* At the end of its epoch, with two batches, the round ahead. */
static scene *averages_differences(void) {
  scene *s = gathers_steps();
  epoch_is_over(s);
  steps_locally(s);
  const hv_epoch_order *prepare = has(s, HV_EPOCH_ACT);
  assert_int_equal(prepare->samples, 2 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(s->e.end.rounding[HV_EPOCH_NOW], 1 + HV_EPOCH_GRADIENTS);
  return s;
}

static void batch_that_waited_for_the_swarm_is_a_step(void **unused) {
  (void)unused;
  scene *s = new_scene(&anchored, HV_EPOCH_ALONE_TRAINS);
  batch(s); /* nobody has answered yet */
  assert_int_equal(s->e.state, HV_EPOCH_LOOKING);
  s->fetched = 1;
  epoch_begins(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1);
  assert_true(hv_epoch_is_free(&s->e));
  assert_int_equal(s->ledger.sums, BATCH);
}

static void average_steps_the_anchor_and_no_state_is_averaged(void **unused) {
  (void)unused;
  scene *s = averages_differences();
  hv_mark mark = s->lineage.mark;
  averages_gradients(s, HV_EPOCH_NOW);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  assert_false(hv_mark_equal(&s->lineage.mark, &mark));
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  assert_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_REPLICA_STATE));
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 1);
  assert_int_equal(s->ledger.averaged, 2 * BATCH);
  assert_int_equal(s->ledger.sums, 0);
}

static void part_without_this_peer_counts_later(void **unused) {
  (void)unused;
  static const struct {
    double share;
    uint64_t averaged;
  } cases[] = {{0, 0}, {0.25, BATCH / 2}, {0.5, BATCH}, {1, 2 * BATCH}, {-1, 0}, {7, 2 * BATCH}, {0.0 / 0.0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    scene *s = averages_differences();
    hv_lineage_member two[] = {member(1, s->lineage.mark), member(2, s->lineage.mark)};
    on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND,
                           .outcome = HV_EPOCH_CONFIRMED,
                           .stamp = 77,
                           .share = cases[i].share,
                           .members = two,
                           .n_members = 2});
    acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
    assert_int_equal(s->ledger.averaged, cases[i].averaged);
    assert_int_equal(s->ledger.sums, 2 * BATCH - cases[i].averaged);
    assert_int_equal(s->ledger.lost + s->ledger.in_flight + s->ledger.kept, 0);
  }
}

/* More samples than target_batch_size are one difference all the same. */
static void nothing_of_a_long_difference_is_lost(void **unused) {
  (void)unused;
  scene *s = gathers_steps();
  for (int i = 0; i < 9; i++)
    steps_locally(s);
  epoch_is_over(s);
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  averages_gradients(s, HV_EPOCH_NOW);
  assert_int_equal(s->ledger.averaged, 11 * BATCH);
}

static void failed_round_makes_no_step_while_another_trains(void **unused) {
  (void)unused;
  static const hv_epoch_outcome outcomes[] = {HV_EPOCH_NOBODY, HV_EPOCH_PARTED, HV_EPOCH_FAILED, HV_EPOCH_LEFT_OUT};
  for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
    scene *s = averages_differences();
    hv_mark mark = s->lineage.mark;
    s->now_us += 2 * SECOND;
    round_over(s, HV_EPOCH_GRADIENTS, outcomes[i], NULL, 0);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    assert_int_equal(s->e.told, 0);
    assert_true(hv_epoch_is_free(&s->e));
    assert_true(hv_mark_equal(&s->lineage.mark, &mark) && !s->lineage.is_wrong);
    assert_int_equal(s->ledger.sums, 2 * BATCH);
    s->now_us += SECOND - 1; /* it makes batches for half as long as it has waited */
    steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    s->now_us++;
    steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_ENDING);
    assert_int_equal(s->e.end.samples, 4 * BATCH);
    assert_non_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS));
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    averages_gradients(s, HV_EPOCH_NOW);
    assert_int_equal(s->ledger.averaged, 4 * BATCH);
  }
}

static void peer_that_is_left_alone_steps_by_itself(void **unused) {
  (void)unused;
  scene *s = averages_differences();
  s->f.n_peers = 1; /* the other one has gone */
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.told, 1);
  assert_int_equal(s->ledger.kept, 2 * BATCH);
}

static void thread_is_here(scene *s) {
  assert_true(hv_epoch_is_free(&s->e) && hv_epoch_waits_for_thread(&s->e));
  on(s, (hv_epoch_event){.kind = HV_EPOCH_PAUSE});
  assert_false(hv_epoch_waits_for_thread(&s->e));
}

static void state_comes(scene *s, uint64_t epoch) {
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = epoch, .mark = mark_of('y'), .has_mark = 1});
}

/* The others had the average after all. This peer's anchor is that of its own model, so what it did until theirs is there is lost
 * and reported. */
static void peer_comes_if_the_others_have_stepped(void **unused) {
  (void)unused;
  scene *s = averages_differences();
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_PARTED, NULL, 0);
  s->f = (hv_progress_figures){.epoch = 1, .n_peers = 2, .ready = 1, .standing = HV_PROGRESS_LATE};
  steps_locally(s);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  assert_int_equal(s->ledger.sums, 3 * BATCH);
  moment_passes(s);
  state_comes(s, 1);
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(s->ledger.lost_by[HV_EPOCH_LOSS_REPLACED], 4 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->ledger.sums, 0);
}

/* In epoch 1, whose anchor is that of both, with one batch. The log has entries of a sixth of the state. */
static scene *in_epoch_one(void) {
  scene *s = averages_differences();
  s->e.config.entry_bytes = 1000;
  s->e.config.state_bytes = 6000;
  averages_gradients(s, HV_EPOCH_NOW);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  if (s->e.end.acting[HV_EPOCH_NOW])
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  epoch_begins(s);
  s->f.speed = 0.5;
  steps_locally(s);
  assert_int_equal(s->e.told, 1);
  assert_int_equal(s->ledger.sums, BATCH);
  return s;
}

/* The others are in epoch 2, and its next batch tells this peer. */
static scene *late_by_one(void) {
  scene *s = in_epoch_one();
  s->f = (hv_progress_figures){
      .epoch = 2, .speed = 0.5, .n_peers = 3, .ready = 1, .eta_us = 60 * (uint64_t)SECOND, .standing = HV_PROGRESS_LATE};
  steps_locally(s);
  return s;
}

static void entry_comes(scene *s) {
  static const uint64_t stamps[] = {5};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY,
                         .epoch = s->e.replica,
                         .ok = 1,
                         .has_mark = 1,
                         .mark = s->lineage.mark,
                         .step = {.stamps = stamps, .n_stamps = 1}});
}

static void makes_the_step(scene *s) {
  acted(s, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
}

static void late_peer_repeats_the_outer_step_and_loses_nothing(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  hv_lineage theirs = s->lineage;
  hv_lineage_stepped(&theirs, &s->env.env, (const uint64_t[]){5}, 1, NULL, 0, TARGET);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING); /* and nothing is dropped before */
  moment_passes(s);
  entry_comes(s);
  thread_is_here(s);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 2);
  assert_true(hv_mark_equal(&s->lineage.mark, &theirs.mark));
  assert_int_equal(s->ledger.sums, 2 * BATCH);
  assert_int_equal(s->ledger.lost, 0);
}

/* The round began without it: the samples of its difference are in the sums again. */
static void left_out_peer_repeats_the_outer_step_and_loses_nothing(void **unused) {
  (void)unused;
  scene *s = in_epoch_one();
  epoch_is_over(s);
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  s->f =
      (hv_progress_figures){.epoch = 2, .speed = 0.5, .n_peers = 3, .eta_us = 60 * (uint64_t)SECOND, .standing = HV_PROGRESS_LATE};
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  entry_comes(s);
  makes_the_step(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->lineage.is_wrong, 0);
  assert_int_equal(s->ledger.sums, 2 * BATCH);
  assert_int_equal(s->ledger.lost, 0);
}

/* The log has a gap: the state is loaded in place of the entry, beside the same progress. */
static void progress_stays_beside_a_loaded_anchor(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY, .epoch = 1});
  steps_locally(s);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  moment_passes(s);
  state_comes(s, 2);
  thread_is_here(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 2);
  assert_int_equal(s->ledger.sums, 3 * BATCH);
  assert_int_equal(s->ledger.lost, 0);
}

/* A group has judged its anchor to be wrong, or it asks for another one: what it did since is of no use. */
static void progress_since_another_anchor_is_lost(void **unused) {
  (void)unused;
  for (int asks = 0; asks <= 1; asks++) {
    scene *s = in_epoch_one();
    s->lineage.is_wrong = !asks;
    if (asks)
      on(s, (hv_epoch_event){.kind = HV_EPOCH_ASKED, .epoch = 1});
    else
      steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_LOADING);
    assert_int_equal(s->ledger.lost, 0);
    if (!asks)
      moment_passes(s);
    state_comes(s, 2); /* the program waits for one that it asks for */
    if (!asks)
      thread_is_here(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
    assert_int_equal(s->ledger.lost_by[HV_EPOCH_LOSS_REPLACED], s->ledger.lost);
    assert_int_equal(s->ledger.sums, 0);
    assert_true(s->ledger.lost >= BATCH);
  }
}

/* The state takes three batches to come, and the average since then two more. Nobody waits for any. */
static void batches_go_on_beside_a_load_and_its_averages(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY, .epoch = 1}); /* it is lost, so the next batch finds that it must load */
  for (int i = 0; i < 3; i++) {
    steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_LOADING);
    if (i == 0)
      moment_passes(s);
    s->now_us += SECOND;
    assert_true(hv_epoch_is_free(&s->e));
  }
  s->f.epoch = 3;
  batch(s); /* the state comes while the hands step, and is not taken over before that is done */
  state_comes(s, 2);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_LOCAL_STEP);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  steps_locally(s);
  entry_comes(s);
  entry_comes(s); /* told twice */
  assert_int_equal(s->e.state, HV_EPOCH_REPEATING);
  hv_progress_own report;
  hv_epoch_report(&s->e, 0, &report);
  assert_false(report.any); /* and nobody counts it */
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 3);
  assert_int_equal(s->ledger.sums, 8 * BATCH);
  assert_int_equal(s->ledger.lost, 0);
}

static void batches_go_on_after_a_load_that_failed(void **unused) {
  (void)unused;
  scene *s = late_by_one();
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY, .epoch = 1});
  steps_locally(s);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED});
  assert_int_equal(s->e.state, HV_EPOCH_RESTING);
  steps_locally(s);
  s->now_us += 5 * SECOND;
  steps_locally(s);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  assert_int_equal(s->ledger.sums, 5 * BATCH);
  assert_int_equal(s->ledger.lost, 0);
}

/* The average, or the state, that is under way is for the state before. */
static void checkpoint_restored_beside_a_load_looks_again(void **unused) {
  (void)unused;
  for (int loads = 0; loads <= 1; loads++) {
    scene *s = late_by_one();
    if (loads) {
      on(s, (hv_epoch_event){.kind = HV_EPOCH_ENTRY, .epoch = 1});
      steps_locally(s);
    }
    assert_int_equal(s->e.state, loads ? HV_EPOCH_LOADING : HV_EPOCH_REPEATING);
    on(s, (hv_epoch_event){.kind = HV_EPOCH_RESTORED, .epoch = 1});
    assert_int_equal(s->e.state, HV_EPOCH_RESTING);
    assert_int_equal(s->ledger.lost_by[HV_EPOCH_LOSS_RESTORED], (2 + loads) * BATCH);
    state_comes(s, 2); /* of no use any more */
    assert_false(hv_epoch_waits_for_thread(&s->e));
    steps_locally(s);
    assert_int_equal(s->e.moves_wrong, 0);
    assert_int_equal(s->ledger.sums, BATCH);
  }
}

static void difference_that_is_not_finite_is_lost(void **unused) {
  (void)unused;
  scene *s = gathers_steps();
  epoch_is_over(s);
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, -1);
  assert_int_equal(s->ledger.lost_by[HV_EPOCH_LOSS_NOT_FINITE], 2 * BATCH);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING); /* and it makes no step of nothing */
  assert_int_equal(s->e.told, 0);
}

/* The trainers end the epoch again, and some may need the hub for it. */
static void hub_stays_where_the_trainers_are(void **unused) {
  (void)unused;
  hv_epoch_options options = anchored;
  options.auxiliary = 1;
  for (int further = 0; further <= 1; further++) {
    scene *s = new_scene(&options, HV_EPOCH_ALONE_TRAINS);
    s->fetched = 1;
    epoch_begins(s);
    on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
    epoch_is_over(s);
    s->f.eta_us = 0;
    on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    s->f.epoch += (uint64_t)further;
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    assert_int_equal(s->e.told, further);
  }
}

/* The peer that made this state is gone, and a newcomer needs it. It was offered after the next step alone, which is made with
 * others, and the other had no state to come with: both trained apart from then on. */
static void loaded_state_is_offered_to_a_peer_without_one(void **unused) {
  (void)unused;
  for (int is_counted = 0; is_counted <= 1; is_counted++) {
    scene *s = new_scene(&anchored, HV_EPOCH_ALONE_TRAINS);
    s->fetched = 1;
    s->f = (hv_progress_figures){.epoch = 5, .samples = 8, .speed = 100, .n_peers = 2, .eta_us = SECOND};
    on(s, (hv_epoch_event){.kind = HV_EPOCH_ASKED, .epoch = 5});
    state_comes(s, 5);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
    steps_locally(s);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    s->now_us += SECOND;
    steps_locally(s);
    assert_false(s->e.end.acting[HV_EPOCH_NOW]); /* nobody lacks it */
    s->f.n_coming = 1;
    steps_locally(s);
    assert_false(s->e.end.acting[HV_EPOCH_NOW]); /* the peer that made it is there */
    s->f.n_peers = 1 + (size_t)is_counted;
    s->f.n_coming = !is_counted;
    s->f.n_behind = (size_t)is_counted;
    batch(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
    assert_int_equal(has(s, HV_EPOCH_OFFER)->epoch, 5);
    assert_int_equal(s->e.told, 5);
  }
}

/* A round that the line does not carry in time, or hardly: the next one has the time that the line needs. */
static uint64_t next_round_has_us(scene *s) {
  epoch_is_over(s);
  s->now_us = s->e.again_us > s->now_us ? s->e.again_us : s->now_us;
  steps_locally(s);
  return has(s, HV_EPOCH_SEEK)->timeout_us - HV_EPOCH_SLACK_US;
}

static void ends_round(scene *s, uint64_t took_us, hv_epoch_outcome outcome, int ran_out) {
  hv_lineage_member two[] = {member(1, s->lineage.mark), member(2, s->lineage.mark)};
  s->now_us += took_us;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND,
                         .outcome = outcome,
                         .stamp = 77,
                         .share = 1,
                         .ran_out = ran_out,
                         .members = two,
                         .n_members = outcome == HV_EPOCH_CONFIRMED ? 2 : 0});
}

static void round_has_the_time_that_the_line_needs(void **unused) {
  (void)unused;
  uint64_t option_us = 15 * SECOND, most_us = HV_EPOCH_LINE_US;
  const struct {
    uint64_t took_us;
    hv_epoch_outcome outcome;
    int ran_out, given;
    uint64_t next_us;
  } cases[] = {{14 * SECOND, HV_EPOCH_FAILED, 1, 0, 3 * option_us}, /* it was sought before, so it had less */
               {20 * SECOND, HV_EPOCH_FAILED, 1, 0, 60 * SECOND},
               {14 * SECOND, HV_EPOCH_FAILED, 1, 1, option_us}, /* the program's stays */
               {14 * SECOND, HV_EPOCH_FAILED, 0, 0, option_us}, /* a member has left */
               {14 * SECOND, HV_EPOCH_NOBODY, 0, 0, option_us},
               {most_us, HV_EPOCH_FAILED, 1, 0, most_us}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    scene *s = averages_differences();
    s->e.config.averaging_given = cases[i].given;
    ends_round(s, cases[i].took_us, cases[i].outcome, cases[i].ran_out);
    assert_int_equal(next_round_has_us(s), cases[i].next_us);
  }
}

static void round_that_ended_well_measures_the_line(void **unused) {
  (void)unused;
  scene *s = averages_differences();
  ends_round(s, 12 * SECOND, HV_EPOCH_CONFIRMED, 0);
  assert_int_equal(hv_epoch_averaging_us(&s->e), 36 * SECOND);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND, .outcome = HV_EPOCH_CONFIRMED}); /* nobody began it */
  assert_int_equal(hv_epoch_averaging_us(&s->e), 36 * SECOND);
}

/* By eight averages of its size, of which a round moves two. So the first round may send fewer bits. */
static void download_measures_the_line(void **unused) {
  (void)unused;
  scene *s = averages_differences();
  s->e.config.entry_bytes = 1000;
  s->e.config.state_bytes = 8000;
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_PARTED, NULL, 0);
  s->f = (hv_progress_figures){.epoch = 1, .n_peers = 2, .ready = 1, .standing = HV_PROGRESS_LATE};
  steps_locally(s);
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  s->now_us += 400 * SECOND;
  state_comes(s, 1);
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(hv_epoch_averaging_us(&s->e), 3 * 100 * SECOND);
  epoch_is_over(s);
  s->f.speed = 0.1; /* training waits for it, and a tenth of 640 s is less than 100 s */
  steps_locally(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_true(has(s, HV_EPOCH_TRIGGER)->ask);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batch_that_waited_for_the_swarm_is_a_step),
      cmocka_unit_test(average_steps_the_anchor_and_no_state_is_averaged),
      cmocka_unit_test(part_without_this_peer_counts_later),
      cmocka_unit_test(nothing_of_a_long_difference_is_lost),
      cmocka_unit_test(failed_round_makes_no_step_while_another_trains),
      cmocka_unit_test(peer_that_is_left_alone_steps_by_itself),
      cmocka_unit_test(peer_comes_if_the_others_have_stepped),
      cmocka_unit_test(late_peer_repeats_the_outer_step_and_loses_nothing),
      cmocka_unit_test(left_out_peer_repeats_the_outer_step_and_loses_nothing),
      cmocka_unit_test(progress_stays_beside_a_loaded_anchor),
      cmocka_unit_test(progress_since_another_anchor_is_lost),
      cmocka_unit_test(batches_go_on_beside_a_load_and_its_averages),
      cmocka_unit_test(batches_go_on_after_a_load_that_failed),
      cmocka_unit_test(checkpoint_restored_beside_a_load_looks_again),
      cmocka_unit_test(difference_that_is_not_finite_is_lost),
      cmocka_unit_test(hub_stays_where_the_trainers_are),
      cmocka_unit_test(loaded_state_is_offered_to_a_peer_without_one),
      cmocka_unit_test(round_has_the_time_that_the_line_needs),
      cmocka_unit_test(round_that_ended_well_measures_the_line),
      cmocka_unit_test(download_measures_the_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
