/* The machine of a peer of a run by itself: scenes, one for each rule that a defect had broken; and events in random
 * order, after which the table of moves, the accounts and the numbers of actions still hold. */
#include "lib/epoch_scene.h"

static void an_epoch_is_made_together(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  assert_non_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS));
  assert_non_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_REPLICA_STATE));
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(of(s, HV_EPOCH_TRIGGER, HV_EPOCH_GRADIENTS)->samples, 2 * BATCH);
  averages_gradients(s, HV_EPOCH_NOW);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  assert_int_equal(s->e.told, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_TAKE, 1);
  round_over(s, HV_EPOCH_REPLICA_STATE, HV_EPOCH_CONFIRMED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(has(s, HV_EPOCH_OFFER)->epoch, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.ledger->averaged, 2 * BATCH);
}

/* Rule 2: what was over is over no more when the late lane has ended, because the other peer was killed meanwhile. */
static void an_epoch_ends_by_a_reading_after_the_late_lane(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1, .delay_state_averaging = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  steps_together(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_TAKE, 1);
  assert_int_equal(s->e.late, HV_EPOCH_LATE_WORKS);
  assert_int_equal(hv_epoch_is_free(&s->e), 1);
  epoch_is_over(s);
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  assert_int_equal(hv_epoch_waits(&s->e), HV_EPOCH_WAITS_LATE);
  s->f = (hv_progress_figures){.epoch = 1, .samples = BATCH, .n_peers = 1, .eta_us = SECOND}; /* the other one has gone */
  round_over(s, HV_EPOCH_REPLICA_STATE, HV_EPOCH_FAILED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  while (s->e.end.acting[HV_EPOCH_NOW])
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.told, 1);
  assert_int_equal(s->e.ledger->sums, BATCH);
}

/* A state whose average failed half way is not written into the model. */
static void a_failed_average_is_not_applied(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1, .offload = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  steps_together(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_TAKE, 1);
  round_over(s, HV_EPOCH_REPLICA_STATE, HV_EPOCH_FAILED, NULL, 0);
  assert_int_equal(has(s, HV_EPOCH_ACT)->action, HV_EPOCH_APPLY);
  assert_int_equal(has(s, HV_EPOCH_ACT)->samples, 0);
}

/* The state is averaged in place, and some of its chunks hold the average of a round that failed. Others have other parts of it. */
static void a_replica_averaged_in_part_gets_a_mark_of_its_own(void **unused) {
  (void)unused;
  static const struct { int kept, another, moves; } rows[] = {{1, 1, 0}, {0, 0, 0}, {0, 1, 1}, {-1, 0, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1, .offload = 1}, HV_EPOCH_ALONE_TRAINS);
    gathers(s);
    epoch_is_over(s);
    batch(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    hv_lineage_member three[] = {member(1, s->e.lineage->mark), member(2, s->e.lineage->mark),
                                 member(3, rows[i].another ? mark_of('x') : s->e.lineage->mark)};
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, three, 3);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_TAKE, 1);
    hv_mark before = s->e.lineage->mark;
    on(s,
       (hv_epoch_event){.kind = HV_EPOCH_ROUND, .which = HV_EPOCH_REPLICA_STATE, .outcome = HV_EPOCH_FAILED, .ok = rows[i].kept});
    assert_int_equal(!hv_mark_equal(&before, &s->e.lineage->mark), rows[i].moves);
    assert_int_equal(s->e.lineage->is_wrong, 0);
  }
}

/* Rule 8: what is known to be wrong is in no average of the state, is not offered, and is loaded. */
static void a_wrong_replica_is_not_averaged_in(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  hv_lineage_member three[] = {member(1, s->e.lineage->mark), member(2, mark_of('x')), member(3, mark_of('x'))};
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, three, 3);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  assert_null(of(s, HV_EPOCH_TRIGGER, HV_EPOCH_REPLICA_STATE));
  assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_REPLICA_STATE));
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
  assert_int_equal(s->e.offers.offered, HV_EPOCH_NONE);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 1, .mark = mark_of('y')});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.lineage->is_wrong, 0);
}

/* Rule 12: this peer was not counted for a moment before its round ended. Where it waits for the next epoch, that wait has an end
 * of its own. */
static void coming_keeps_its_end_after_a_lonely_wait(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 1}, HV_EPOCH_NOW);
  s->e.load_us = SECOND / 10; /* loads are quick, so the next epoch's state is worth a wait */
  time_passes(s, SECOND / 10, 1);
  s->f = (hv_progress_figures){.samples = TARGET, .speed = 100, .n_peers = 2, .eta_us = SECOND};
  s->now_us += SECOND / 10;
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
  assert_int_equal(has(s, HV_EPOCH_COMES)->epoch, 1);
  assert_int_equal(hv_epoch_due_us(&s->e), s->now_us + SECOND);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  time_passes(s, 1, 2);
  assert_int_equal(has(s, HV_EPOCH_WAKE)->ask, 1);
  time_passes(s, 0, 2); /* it reaches nobody, so it had its answer at once, and asks later */
  assert_null(has(s, HV_EPOCH_WAKE));
  assert_int_equal(hv_epoch_due_us(&s->e), s->now_us + HV_EPOCH_ASK_US);
  time_passes(s, SECOND - 2, 2);
  assert_null(has(s, HV_EPOCH_LOAD));
  time_passes(s, 1, 2);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 1);
}

/* Rule 11: what works in the late lane begins nothing once the peer is coming, and its samples are lost, with their cause. */
static void coming_voids_the_late_lane(void **unused) {
  (void)unused;
  hv_epoch_options options = {
      .average_state_every = 1, .delay_grad_averaging = 1, .delay_optimizer_step = 1, .delay_state_averaging = 1, .offload = 1};
  scene *s = new_scene(&options, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(s->e.told, 1); /* counted, before its gradients are averaged */
  assert_int_equal(s->e.ledger->in_flight, 2 * BATCH);
  s->e.look.found = 9;
  s->f = (hv_progress_figures){.epoch = 9, .n_peers = 2, .speed = 100, .standing = HV_PROGRESS_BEHIND, .eta_us = 9 * SECOND};
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
  assert_int_equal(s->e.late, HV_EPOCH_LATE_VOID);
  assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS));
  assert_int_equal(s->e.ledger->in_flight, 0);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_DROPPED], 2 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_null(has(s, HV_EPOCH_LOAD)); /* its round has not ended yet */
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  assert_null(has(s, HV_EPOCH_SEEK));
  assert_int_equal(s->e.end.acting[HV_EPOCH_LATE], 0);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 9);
}

static void left_out_samples_are_lost_and_the_state_loaded(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_LEFT_OUT], 2 * BATCH);
  assert_int_equal(s->e.told, 0);
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
  s->f.epoch = 1;
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 1); /* no later one: there is time to be in its group */
}

/* Rule 13: of a group with one that has gone. The other one waits for company, and makes no epoch alone. */
static void peer_left_out_of_a_step_that_nobody_makes_is_back(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 1}, HV_EPOCH_NOW);
  hv_mark before = s->e.lineage->mark;
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  s->f = (hv_progress_figures){.samples = 8, .speed = 100, .n_peers = 1, .eta_us = SECOND}; /* that one, in the same epoch */
  uint64_t began_us = s->now_us;
  while (s->e.state != HV_EPOCH_GATHERING) {
    assert_true(s->now_us < began_us + HV_EPOCH_MOST_WRONG_US + 30 * SECOND);
    if (s->e.state == HV_EPOCH_LOADING)
      on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED});
    s->now_us += SECOND;
    on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
    if (s->e.state == HV_EPOCH_RESTING)
      batch(s);
  }
  assert_true(s->now_us >= began_us + HV_EPOCH_MOST_WRONG_US);
  assert_true(hv_mark_equal(&before, &s->e.lineage->mark) && !s->e.lineage->is_wrong);
  assert_int_equal(s->e.told, 0);
}

/* Rule 19: its group is of one that has gone, and a newcomer would be left out of it. */
static void peer_that_waits_for_company_leaves_its_group(void **unused) {
  (void)unused;
  for (hv_epoch_company company = HV_EPOCH_ALONE_TRAINS; company <= HV_EPOCH_ALONE_STOPS; company++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, company);
    gathers(s);
    epoch_begins(s);
    s->f.match = 1;
    s->f.eta_us = SECOND / 10;
    batch(s);
    assert_non_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS));
    time_passes(s, SECOND, 1);
    assert_int_equal(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS) != NULL, company != HV_EPOCH_ALONE_TRAINS);
    s->f.n_peers = 2;
    batch(s);
    assert_int_equal(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS) != NULL, company != HV_EPOCH_ALONE_TRAINS);
  }
}

/* Rule 19: it stood still in a round that the others have ended. A claim alone ends no round. */
/* Rule 10: a state may come late, so a peer looks for it some times before it doubts the claim. A look is under way. */
static void looks_in_vain(scene *s) {
  uint64_t since_us = s->now_us;
  for (;;) {
    on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 0});
    if (has(s, HV_EPOCH_DISBELIEVE))
      break;
    s->now_us += HV_EPOCH_AGAIN_US;
    if (s->e.state == HV_EPOCH_GATHERING)
      batch(s);
    else
      on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
    assert_non_null(has(s, HV_EPOCH_LOOK));
    assert_true(s->now_us <= since_us + HV_EPOCH_MOST_LOOK_US);
  }
  assert_int_equal(s->now_us, since_us + HV_EPOCH_MOST_LOOK_US);
}

static void round_that_the_others_have_ended_is_left(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  s->f = (hv_progress_figures){.epoch = 3, .n_peers = 3, .speed = 100, .standing = HV_PROGRESS_BEHIND, .eta_us = 9 * SECOND};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS));
  assert_int_equal(has(s, HV_EPOCH_LOOK)->epoch, 2);
  looks_in_vain(s);
  assert_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS));
  s->now_us += 2 * HV_EPOCH_AGAIN_US;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 3});
  assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS));
  assert_int_equal(s->e.state, HV_EPOCH_ENDING); /* the tensors are the round's until it has ended */
  assert_true(hv_epoch_awaits_round(&s->e, HV_EPOCH_GRADIENTS));
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_LEFT_OUT], 2 * BATCH);
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
}

/* Rules 7 and 16: a step of its own is kept, and lost when the next group has another replica. */
static void own_steps_are_kept_until_a_group_judges_them(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_FAILED, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  assert_int_equal(s->e.ledger->kept, 2 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1); /* joiners need one, and the others may have gone */
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  hv_lineage_member three[] = {member(1, s->e.lineage->mark), member(2, mark_of('x')), member(3, mark_of('x'))};
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, three, 3);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 2, .mark = mark_of('y')});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.ledger->kept, 0);
  assert_int_equal(s->e.ledger->lost_by[HV_EPOCH_LOSS_GIVEN_UP], 2 * BATCH);
}

/* An offer that failed is made again with the next batch after a pause. */
static void a_failed_offer_is_made_again(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  steps_together(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(s->e.offers.offered, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_OFFERED, .epoch = 1, .ok = 0});
  epoch_begins(s);
  batch(s);
  assert_int_equal(s->e.end.acting[HV_EPOCH_NOW], 0); /* not at once */
  s->now_us += SECOND;
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  assert_int_equal(has(s, HV_EPOCH_OFFER)->epoch, 1);
}

/* Makes an epoch of 0.3 s, and copies the state if the machine asks for it. True: it is offered. */
static int offers_after_epoch(scene *s, uint64_t copy_us) {
  s->now_us += 3 * SECOND / 10;
  steps_together(s);
  if (!s->e.end.acting[HV_EPOCH_NOW])
    return 0;
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_SNAPSHOT);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[HV_EPOCH_NOW], .ok = 1, .took_us = copy_us});
  return has(s, HV_EPOCH_OFFER) != NULL;
}

/* Rule 15: a copy takes 4 ms here and 40 ms there. A joiner needs offers of one epoch: those of the slow one are also the quick
 * one's. */
static void peers_with_unequal_copies_offer_the_same_epochs(void **unused) {
  (void)unused;
  static const uint64_t copies_us[] = {4000, 40000};
  uint64_t offered[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1000}, HV_EPOCH_ALONE_TRAINS);
    gathers(s);
    for (uint64_t epoch = 1; epoch < 64; epoch++)
      offered[i] |= (uint64_t)offers_after_epoch(s, copies_us[i]) << epoch;
  }
  for (int i = 0; i < 2; i++)
    offered[i] &= ~UINT64_C(0xff); /* they have not measured their copies before */
  assert_int_equal(offered[1] & ~offered[0], 0);
  assert_int_equal(offered[0], ~UINT64_C(0xff));
  assert_int_equal(offered[1], UINT64_C(0x0101010101010100)); /* 2 s between two of 40 ms: each eighth */
}

/* Samples that are taken for an epoch's end still count in the report, or the others would wait for it again. */
static void samples_count_until_their_epoch_is_over(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  hv_progress_own own;
  gathers(s);
  epoch_is_over(s);
  batch(s);
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.samples, 2 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  averages_gradients(s, HV_EPOCH_NOW);
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.samples, 2 * BATCH);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  hv_epoch_report(&s->e, 0, &own);
  assert_int_equal(own.epoch, 1);
  assert_int_equal(own.samples, 0);
  assert_int_equal(own.before, 2 * BATCH);
}

/* Rule 10: a claim without a state behind it moves nobody. */
static void a_claim_without_a_state_is_doubted(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  s->f = (hv_progress_figures){.epoch = 1000, .n_peers = 2, .standing = HV_PROGRESS_BEHIND, .eta_us = SECOND};
  batch(s);
  assert_int_equal(has(s, HV_EPOCH_LOOK)->epoch, 1);
  looks_in_vain(s);
  assert_int_equal(has(s, HV_EPOCH_DISBELIEVE)->epoch, 2);
  assert_int_equal(has(s, HV_EPOCH_DISBELIEVE)->wait_us, SECOND);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

static void lone_peer_does_as_when_alone_says(void **unused) {
  (void)unused;
  for (hv_epoch_company company = HV_EPOCH_ALONE_TRAINS; company <= HV_EPOCH_ALONE_STOPS; company++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, company);
    gathers(s);
    epoch_is_over(s);
    s->f.n_peers = 1;
    batch(s);
    assert_int_equal(s->e.state, company == HV_EPOCH_ALONE_TRAINS ? HV_EPOCH_ENDING : HV_EPOCH_GATHERING);
    if (company == HV_EPOCH_ALONE_TRAINS)
      continue;
    s->now_us += 6 * SECOND;
    batch(s);
    assert_int_equal(has(s, HV_EPOCH_TELL)->action, company == HV_EPOCH_ALONE_WAITS ? HV_EPOCH_SAYS_ALONE : HV_EPOCH_SAYS_STOP);
    s->f.n_peers = 2;
    batch(s);
    assert_int_equal(s->e.state, HV_EPOCH_ENDING); /* with all samples that it kept */
    assert_int_equal(s->e.end.samples, 4 * BATCH);
  }
}

/* Rule 13: a wrong replica tries again for 30 s, and is the swarm's once nobody else is there. */
static void a_wrong_replica_stays_aside_while_others_are_there(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  s->f.epoch = 1;
  s->f.n_peers = 1; /* the other one: this peer is not counted */
  uint64_t begun_us = s->now_us;
  int doubts = 0;
  while (!doubts && s->now_us < begun_us + 60 * (uint64_t)SECOND) {
    if (s->e.state == HV_EPOCH_LOADING)
      on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 0});
    else if (s->e.state == HV_EPOCH_RESTING)
      batch(s);
    else
      on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
    doubts += has(s, HV_EPOCH_DISBELIEVE) != NULL;
    s->now_us += SECOND / 4;
    assert_true(s->e.state != HV_EPOCH_GATHERING);
  }
  assert_true(doubts && s->now_us >= begun_us + 30 * (uint64_t)SECOND);
  s->f = (hv_progress_figures){.eta_us = HV_PROGRESS_NEVER}; /* it counts nobody any more */
  s->now_us += 10 * (uint64_t)SECOND;
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

/* Rules 4 and 7: it seeks again, as long as it takes. */
static void peer_that_waits_for_others_makes_no_step_alone(void **unused) {
  (void)unused;
  for (uint64_t theirs = 0; theirs <= 1; theirs++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_WAITS);
    gathers(s);
    epoch_is_over(s);
    batch(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    for (size_t counted = 1; counted <= 2; counted++) {
      s->f.n_peers = counted;
      s->now_us += s->e.config.averaging_us;
      round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
      assert_int_equal(s->e.state, HV_EPOCH_ENDING);
      assert_int_equal(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS) != NULL, counted == 2);
      s->f.n_peers = 2; /* one comes */
      s->now_us += HV_EPOCH_AGAIN_US;
      on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
      assert_int_equal(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS) != NULL, counted == 1);
    }
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0); /* this search ended at once */
    assert_null(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS));
    s->f.epoch = theirs;
    s->now_us += HV_EPOCH_AGAIN_US;
    on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
    assert_int_equal(s->e.state != HV_EPOCH_ENDING, theirs); /* they have made the step without it */
    assert_int_equal(s->e.ledger->kept, 0);
  }
}

/* Rule 7: nobody could load its own step, and the other would be left behind for good. */
static void client_seeks_again_while_an_open_peer_is_in_its_epoch(void **unused) {
  (void)unused;
  for (int seen = 0; seen < 8; seen++) {
    size_t clients = 1 + (seen & 1);
    uint64_t theirs = seen >> 1 & 1;
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
    s->e.config.reachable = 0;
    gathers(s);
    epoch_is_over(s);
    s->f.n_clients = clients;
    batch(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    s->f.epoch = theirs;
    s->now_us += SECOND;
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    int again = clients == 1 && theirs == 0;
    assert_int_equal(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS) != NULL, again);
    assert_int_equal(s->e.end.rounding[HV_EPOCH_NOW] != 0, again);
    assert_int_equal(s->e.ledger->in_flight != 0, again || s->e.end.acting[HV_EPOCH_NOW]);
    if (!again)
      continue;
    if (seen & 4) /* the next one ends at once, or the time of a round is over */
      s->now_us = s->e.end.begun_us + s->e.config.averaging_us;
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_STEP);
  }
}

/* Rule 19: the node ends the search, if it has no group yet; the machine waits for its word. */
static void lone_peer_gives_up_its_search(void **unused) {
  (void)unused;
  for (hv_epoch_lane lane = 0; lane < HV_EPOCH_LANES; lane++) {
    uint8_t late = lane == HV_EPOCH_LATE;
    scene *s = waits_for_a_group(
        (hv_epoch_options){.average_state_every = 3, .offload = late, .delay_optimizer_step = late, .delay_grad_averaging = late},
        lane);
    time_passes(s, SECOND, 1);
    assert_null(has(s, HV_EPOCH_GIVE_UP));
    assert_int_equal(hv_epoch_due_us(&s->e), (s->now_us | 1) + HV_EPOCH_CHASE_US);
    time_passes(s, SECOND / 10, 2); /* not counted for a moment */
    assert_int_equal(hv_epoch_due_us(&s->e), HV_EPOCH_NONE);
    time_passes(s, SECOND, 1);
    assert_null(has(s, HV_EPOCH_GIVE_UP));
    time_passes(s, HV_EPOCH_CHASE_US + 1, 1);
    assert_non_null(of(s, HV_EPOCH_GIVE_UP, HV_EPOCH_GRADIENTS));
    assert_int_equal(s->e.end.rounding[lane], 1 + HV_EPOCH_GRADIENTS); /* a group may have formed */
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    acted(s, lane, HV_EPOCH_STEP, 1);
    assert_int_equal(s->e.ledger->kept, 2 * BATCH);
  }
}

/* Those who help make no step. */
static void lone_peer_is_not_left_out(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 3}, HV_EPOCH_NOW);
  s->f.n_peers = 1;
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  assert_false(s->e.lineage->is_wrong);
}

/* Rule 9: the state's group may have formed with the one that went. */
static void lost_member_is_waited_for_once(void **unused) {
  (void)unused;
  for (size_t lost = 0; lost <= 1; lost++) {
    scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 1}, HV_EPOCH_NOW);
    hv_lineage_member three[] = {member(1, s->e.lineage->mark), member(2, s->e.lineage->mark), member(3, s->e.lineage->mark)};
    on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND,
                           .outcome = HV_EPOCH_CONFIRMED,
                           .stamp = 77,
                           .share = 1,
                           .members = three,
                           .n_members = 3,
                           .n_lost = lost});
    acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
    assert_int_equal(of(s, HV_EPOCH_CANCEL, HV_EPOCH_REPLICA_STATE) != NULL, lost != 0);
    assert_int_equal(s->e.end.acting[HV_EPOCH_NOW] && s->e.end.action[HV_EPOCH_NOW] == HV_EPOCH_TAKE, lost == 0);
  }
}

/* Rule 17: a hub, whose word counts more for a newcomer, has an older state than those who train. */
static void newcomer_looks_for_the_trainers_state(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
  s->fetched = 1;
  s->f = (hv_progress_figures){.epoch = 5, .samples = 8, .speed = 100, .n_peers = 2, .eta_us = SECOND};
  batch(s);
  assert_int_equal(has(s, HV_EPOCH_LOOK)->epoch, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 3});
  time_passes(s, HV_EPOCH_AGAIN_US, 2);
  assert_int_equal(has(s, HV_EPOCH_LOOK)->epoch, 5);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 0}); /* not yet */
  assert_int_equal(s->e.state, HV_EPOCH_LOOKING);
  time_passes(s, HV_EPOCH_AGAIN_US, 2);
  assert_int_equal(has(s, HV_EPOCH_LOOK)->epoch, 5);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 5});
  assert_int_equal(s->e.state, HV_EPOCH_COMING);
}

/* Rule 13: one whose replica was wrong sought the state of an epoch that a liar claimed for 30 s, while the swarm's was on offer.
 */
static void wrong_replica_seeks_a_claimed_state_only_once(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 1}, HV_EPOCH_NOW);
  s->f = (hv_progress_figures){.epoch = 9, .n_peers = 2, .speed = 100, .standing = HV_PROGRESS_BEHIND, .eta_us = 9 * SECOND};
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 9);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED});
  assert_int_equal(s->e.state, HV_EPOCH_RESTING);
  s->now_us += SECOND;
  batch(s);
  assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, 1); /* it was left out of 0 */
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 2, .mark = mark_of('y')});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.told, 2);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
}

/* Rule 12: with a state on offer, a liar's claim made a peer go aside for the state of an epoch that nobody had. */
static void passed_peer_seeks_no_state_far_beyond_the_found_one(void **unused) {
  (void)unused;
  for (uint64_t claimed = 4; claimed <= 5; claimed++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
    gathers(s);
    s->f =
        (hv_progress_figures){.epoch = claimed, .n_peers = 2, .speed = 100, .standing = HV_PROGRESS_BEHIND, .eta_us = 9 * SECOND};
    batch(s);
    assert_int_equal(has(s, HV_EPOCH_LOOK)->epoch, 1);
    on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = 1, .epoch = 2});
    batch(s);
    assert_int_equal(s->e.state, HV_EPOCH_COMING);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
    assert_int_equal(has(s, HV_EPOCH_LOAD)->epoch, claimed == 4 ? 4 : 2);
  }
}

/* Rule 2: the late lane's outcome comes while the batch that ends the next epoch still steps; nobody else would take it over. */
static void late_outcome_that_came_during_a_local_step_is_taken(void **unused) {
  (void)unused;
  hv_epoch_options options = {.average_state_every = 1, .use_local_updates = 1, .delay_state_averaging = 1};
  scene *s = new_scene(&options, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1); /* of the batch that waited for the swarm */
  s->e.late = HV_EPOCH_LATE_WORKS;
  s->e.end.plan = *hv_epoch_plan_end(&s->e.traits, 1, 0);
  epoch_is_over(s);
  batch(s);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_LOCAL_STEP);
  s->e.late = HV_EPOCH_LATE_TO_TAKE;
  acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_APPLY);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_APPLY, 1);
  assert_int_equal(s->e.late, HV_EPOCH_LATE_IDLE);
}

/* Rule 7: since it loaded, it has stepped by itself, so it does not come as the others end this epoch. */
static void step_by_itself_ends_the_time_of_a_newcomer(void **unused) {
  (void)unused;
  scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 3}, HV_EPOCH_NOW);
  hv_lineage_member with_hub[] = {member(1, s->e.lineage->mark), {.peer = fake_peer(2), .is_auxiliary = 1}};
  s->e.loads = 1;
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, with_hub, 2);
  assert_int_equal(s->e.end.action[HV_EPOCH_NOW], HV_EPOCH_STEP);
}

/* ---- whatever happens ---- */

static hv_progress_figures some_figures(check_rng *rng, const scene *s) {
  hv_progress_figures f = {.epoch = s->e.told + check_random(rng) % 4 - (s->e.told ? 1 : 0),
                           .samples = (double)(check_random(rng) % (2 * TARGET)),
                           .speed = (double)(check_random(rng) % 100),
                           .n_peers = check_random(rng) % 4,
                           .n_behind = check_random(rng) % 2,
                           .n_coming = check_random(rng) % 8 == 0,
                           .eta_us = check_random(rng) % (3 * SECOND)};
  f.standing = f.epoch == s->e.told       ? HV_PROGRESS_IN_STEP
               : f.epoch < s->e.told      ? HV_PROGRESS_AHEAD
               : f.epoch == s->e.told + 1 ? HV_PROGRESS_LATE
                                          : HV_PROGRESS_BEHIND;
  f.ready = f.epoch > s->e.told || f.samples >= TARGET;
  f.match = f.ready || f.eta_us < 2 * SECOND;
  return f;
}

static void some_event(scene *s, check_rng *rng) {
  hv_lineage_member two[] = {member(1, s->e.lineage->mark), member(2, check_random(rng) % 3 ? s->e.lineage->mark : mark_of('q'))};
  hv_epoch_lane lane = (hv_epoch_lane)(check_random(rng) % 2);
  s->f = some_figures(rng, s);
  s->now_us += check_random(rng) % SECOND;
  switch (check_random(rng) % 10) {
  case 0:
  case 1:
  case 2:
    if (hv_epoch_is_free(&s->e)) {
      batch(s);
      break;
    } /* fall through */
  case 3:
  case 4:
    if (s->e.end.acting[lane])
      on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[lane], .ok = (int)(check_random(rng) % 12) - 1});
    break;
  case 5: {
    hv_epoch_which which = (hv_epoch_which)(check_random(rng) % HV_EPOCH_ROUNDS);
    if (s->e.seeking[which] || s->e.end.rounding[0] || s->e.end.rounding[1])
      round_over(s, which, (hv_epoch_outcome)(check_random(rng) % HV_EPOCH_OUTCOMES), two, check_random(rng) % 3);
    break;
  }
  case 6:
    on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED,
                           .ok = check_random(rng) % 2 != 0,
                           .epoch = s->e.wanted > s->f.epoch ? s->e.wanted : s->f.epoch,
                           .mark = mark_of('l')});
    break;
  case 7:
    on(s, (hv_epoch_event){.kind = HV_EPOCH_LOOKED, .ok = check_random(rng) % 2 != 0, .epoch = s->f.epoch});
    break;
  case 8:
    on(s, (hv_epoch_event){.kind = check_random(rng) % 2 ? HV_EPOCH_OFFERED : HV_EPOCH_WANTED, .epoch = s->e.told});
    break;
  default:
    on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  }
}

/* Events come in any order: `on` checks the table of moves, the accounts and the orders. */
static void no_order_of_events_breaks_the_tables(void **unused) {
  (void)unused;
  uint64_t made = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    check_rng rng = {seed};
    hv_epoch_options options = {.average_state_every = 1 + check_random(&rng) % 3};
    options.use_local_updates = check_random(&rng) % 4 == 0;
    options.offload = check_random(&rng) % 2;
    options.delay_state_averaging = check_random(&rng) % 2;
    options.delay_optimizer_step = options.offload && check_random(&rng) % 2;
    options.delay_grad_averaging = options.delay_optimizer_step && !options.use_local_updates && check_random(&rng) % 2;
    scene *s = new_scene(&options, (hv_epoch_company)(check_random(&rng) % 3));
    s->fetched = 1;
    for (int i = 0; i < 400; i++)
      some_event(s, &rng);
    made += s->e.told;
    on(s, (hv_epoch_event){.kind = HV_EPOCH_LEAVE});
    for (int i = 0; i < 8 && s->e.state != HV_EPOCH_OVER; i++)
      for (hv_epoch_lane lane = 0; lane < HV_EPOCH_LANES; lane++) {
        if (s->e.end.acting[lane])
          on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[lane], .ok = 1});
        else if (s->e.end.rounding[lane])
          round_over(s, (hv_epoch_which)(s->e.end.rounding[lane] - 1), HV_EPOCH_FAILED, NULL, 0);
      }
    assert_int_equal(s->e.state, HV_EPOCH_OVER);
  }
  assert_true(made > 1000); /* they get on */
}

/* Rule 21: the program names the oldest state that it accepts; a wrong replica whose load has failed needs none that is so new. */
static void state_that_the_program_asks_for_is_no_older(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  s->e.lineage->is_wrong = 1;
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 0});
  assert_int_equal(s->e.state, HV_EPOCH_RESTING);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ASKED, .epoch = 20});
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_int_equal(s->e.state, HV_EPOCH_LOADING);
  assert_int_equal(s->e.wanted, 20);
}

/* Rule 17: a count of the swarm is new enough for the first batch if it came before the state that the program asked for. */
static void a_load_needs_no_new_count(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  hv_progress_own before, after;
  hv_epoch_report(&s->e, 0, &before);
  s->fetched = 1;
  s->f = (hv_progress_figures){.epoch = 5, .samples = 8, .speed = 100, .n_peers = 2, .eta_us = SECOND};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ASKED, .epoch = 5});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_DROP, 1);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_LOADED, .ok = 1, .epoch = 5, .mark = mark_of('y')});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_ADOPT, 1);
  assert_int_equal(s->e.state, HV_EPOCH_LOOKING);
  hv_epoch_report(&s->e, 0, &after);
  assert_int_equal(after.epoch, 5);
  assert_int_equal(after.serial, before.serial);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_epoch_is_made_together),
      cmocka_unit_test(an_epoch_ends_by_a_reading_after_the_late_lane),
      cmocka_unit_test(a_failed_average_is_not_applied),
      cmocka_unit_test(a_replica_averaged_in_part_gets_a_mark_of_its_own),
      cmocka_unit_test(a_wrong_replica_is_not_averaged_in),
      cmocka_unit_test(coming_keeps_its_end_after_a_lonely_wait),
      cmocka_unit_test(coming_voids_the_late_lane),
      cmocka_unit_test(left_out_samples_are_lost_and_the_state_loaded),
      cmocka_unit_test(peer_left_out_of_a_step_that_nobody_makes_is_back),
      cmocka_unit_test(peer_that_waits_for_company_leaves_its_group),
      cmocka_unit_test(round_that_the_others_have_ended_is_left),
      cmocka_unit_test(own_steps_are_kept_until_a_group_judges_them),
      cmocka_unit_test(a_failed_offer_is_made_again),
      cmocka_unit_test(peers_with_unequal_copies_offer_the_same_epochs),
      cmocka_unit_test(samples_count_until_their_epoch_is_over),
      cmocka_unit_test(a_claim_without_a_state_is_doubted),
      cmocka_unit_test(lone_peer_does_as_when_alone_says),
      cmocka_unit_test(a_wrong_replica_stays_aside_while_others_are_there),
      cmocka_unit_test(lone_peer_gives_up_its_search),
      cmocka_unit_test(lone_peer_is_not_left_out),
      cmocka_unit_test(lost_member_is_waited_for_once),
      cmocka_unit_test(newcomer_looks_for_the_trainers_state),
      cmocka_unit_test(late_outcome_that_came_during_a_local_step_is_taken),
      cmocka_unit_test(wrong_replica_seeks_a_claimed_state_only_once),
      cmocka_unit_test(passed_peer_seeks_no_state_far_beyond_the_found_one),
      cmocka_unit_test(peer_that_waits_for_others_makes_no_step_alone),
      cmocka_unit_test(client_seeks_again_while_an_open_peer_is_in_its_epoch),
      cmocka_unit_test(state_that_the_program_asks_for_is_no_older),
      cmocka_unit_test(step_by_itself_ends_the_time_of_a_newcomer),
      cmocka_unit_test(a_load_needs_no_new_count),
      cmocka_unit_test(no_order_of_events_breaks_the_tables),
  };
  return cmocka_run_group_tests_name("epoch: the machine", tests, NULL, NULL);
}
