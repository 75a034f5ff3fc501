/* The machine of a hub, and of those who meet one: scenes, one for each rule that a defect had broken. */
#include "lib/epoch_scene.h"

/* Rule 7: a peer that has just loaded may have come as the others ended this epoch, where a hub came to its group. A group of one
 * says nothing of them. */
static void newcomer_alone_with_a_hub_is_left_out(void **unused) {
  (void)unused;
  for (size_t n = 1; n <= 2; n++) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
    gathers(s);
    epoch_is_over(s);
    batch(s);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    s->e.loads = 1;
    hv_lineage_member met[] = {member(1, s->e.lineage->mark), {.peer = fake_peer(2)}};
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, met, n);
    assert_int_equal(s->e.state, n == 2 ? HV_EPOCH_COMING : HV_EPOCH_ENDING);
  }
}

static scene *hub_ends(hv_epoch_options options) {
  scene *s = new_scene(&options, HV_EPOCH_ALONE_TRAINS);
  s->fetched = 1;
  s->f = (hv_progress_figures){.samples = TARGET, .speed = 100, .n_peers = 2, .match = 1};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(s->e.state, HV_EPOCH_ENDING);
  return s;
}

/* Rule 7: a hub that were ahead would make each trainer of this epoch one that was left out. */
static void hub_stays_in_the_epoch_that_nobody_ended(void **unused) {
  (void)unused;
  for (uint64_t theirs = 0; theirs <= 1; theirs++) {
    scene *s = hub_ends((hv_epoch_options){.average_state_every = 3, .auxiliary = 1});
    assert_non_null(of(s, HV_EPOCH_TRIGGER, HV_EPOCH_GRADIENTS));
    s->f.epoch = theirs;
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    assert_int_equal(s->e.told, theirs);
  }
}

/* Rule 15: the claim of one that was counted alone, which lied, kept a hub in an epoch that nobody reached, and so out of all
 * rounds. */
static void hub_follows_the_others_back_from_an_epoch_that_nobody_has(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1, .auxiliary = 1}, HV_EPOCH_ALONE_TRAINS);
  s->fetched = 1;
  s->f = (hv_progress_figures){.epoch = 1000, .samples = 8, .speed = 100, .n_peers = 1, .eta_us = 9 * SECOND};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  assert_int_equal(s->e.told, 1000);
  s->f.n_peers = 0;
  s->f.epoch = 0;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  assert_int_equal(s->e.told, 1000); /* nobody is counted */
  s->f.n_peers = 3;
  s->f.epoch = 999;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  assert_int_equal(s->e.told, 1000); /* one that has ended an epoch is ahead of the others for a moment */
  s->f.epoch = 7;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  assert_int_equal(s->e.told, 7);
  assert_int_equal(of(s, HV_EPOCH_REACHED, HV_EPOCH_GRADIENTS)->epoch, 7);
}

/* Rule 15: the copy of a peer that nobody can dial went to nobody. */
static void client_makes_its_copy_again_for_a_hub(void **unused) {
  (void)unused;
  for (int reachable = 0; reachable <= 1; reachable++) {
    scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 3}, HV_EPOCH_NOW);
    s->e.config.reachable = reachable;
    averages_gradients(s, HV_EPOCH_NOW);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
    acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
    epoch_begins(s);
    on(s, (hv_epoch_event){.kind = HV_EPOCH_WANTED, .epoch = 2});
    s->now_us += SECOND;
    batch(s);
    assert_int_equal(s->e.end.acting[HV_EPOCH_NOW], 0); /* it has no state of epoch 2 */
    on(s, (hv_epoch_event){.kind = HV_EPOCH_WANTED, .epoch = 1});
    batch(s);
    assert_int_equal(s->e.end.acting[HV_EPOCH_NOW] != 0, !reachable);
  }
}

/* Rule 15: the state goes to the hubs of the group that lacks it, or to the hub that asks, once it is there; each gift is one. */
static void copy_is_given_where_it_is_expected_or_asked_for(void **unused) {
  (void)unused;
  for (int hubs = 0; hubs <= 1; hubs++)
    for (int asks = 0; asks <= 1; asks++) {
      scene *s = waits_for_a_group((hv_epoch_options){.average_state_every = 3}, HV_EPOCH_NOW);
      s->e.config.reachable = 0;
      if (asks)
        on(s, (hv_epoch_event){.kind = HV_EPOCH_WANTED, .epoch = 1, .ok = 1});
      hv_lineage_member group[] = {
          member(1, s->e.lineage->mark), member(3, mark_of('z')), {.peer = fake_peer(2), .is_auxiliary = 1}};
      group[0].is_client = group[1].is_client = 1;
      group[0].word.rank = 9;
      group[1].word.rank = 1;
      group[2].is_client = !hubs;
      round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, group, 3);
      assert_int_equal(has(s, HV_EPOCH_EXPECT) != NULL, hubs);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
      assert_int_equal(has(s, HV_EPOCH_GIVE) != NULL, hubs || asks);
      if (hubs || asks)
        assert_true(has(s, HV_EPOCH_GIVE)->epoch == 1 && has(s, HV_EPOCH_GIVE)->ask == !hubs);
      on(s, (hv_epoch_event){.kind = HV_EPOCH_WANTED, .epoch = 1}); /* a joiner, which no hub speaks for */
      s->now_us += SECOND;
      epoch_begins(s);
      batch(s);
      acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
      assert_null(has(s, HV_EPOCH_GIVE));
    }
}

/* A word is of a replica that has a mark, for those who average gradients. */
static void word_is_given_where_it_is_judged(void **unused) {
  (void)unused;
  const struct {
    hv_epoch_options options;
    int of_gradients;
  } rows[] = {{{.average_state_every = 3}, 1},
              {{.average_state_every = 3, .auxiliary = 1}, 0},
              {{.average_state_every = 3, .use_local_updates = 1}, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scene *s = new_scene(&rows[i].options, HV_EPOCH_ALONE_TRAINS);
    assert_int_equal(hv_epoch_has_word(&s->e, HV_EPOCH_GRADIENTS), rows[i].of_gradients);
    assert_false(hv_epoch_has_word(&s->e, HV_EPOCH_REPLICA_STATE));
  }
}

/* A hub says how long groups form, and who looks for less than a question takes finds nobody. */
static void search_lasts_long_enough_to_ask_others(void **unused) {
  (void)unused;
  for (uint64_t given = 0; given <= 2 * SECOND; given += 2 * SECOND) {
    scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
    s->e.config.matchmaking_us = given;
    gathers(s);
    epoch_is_over(s);
    batch(s);
    assert_int_equal(of(s, HV_EPOCH_SEEK, HV_EPOCH_GRADIENTS)->wait_us, given ? given : HV_EPOCH_LEAST_US);
  }
}

/* Rule 15: trainers that average later have counted the epoch, and are still in its round. */
static void hub_goes_to_the_round_of_an_epoch_that_was_counted(void **unused) {
  (void)unused;
  hv_epoch_options options = {.average_state_every = 3, .auxiliary = 1, .offload = 1, .delay_optimizer_step = 1};
  for (uint8_t late = 0; late <= 1; late++) {
    options.delay_grad_averaging = late;
    scene *s = new_scene(&options, HV_EPOCH_ALONE_TRAINS);
    s->fetched = 1;
    s->f = (hv_progress_figures){.epoch = 1, .samples = 1, .speed = 100, .n_peers = 2, .eta_us = 9 * (uint64_t)SECOND};
    on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
    on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
    assert_int_equal(s->e.state, late ? HV_EPOCH_ENDING : HV_EPOCH_GATHERING);
    assert_int_equal(s->e.told, late ? 0 : 1);
    if (!late)
      continue;
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    assert_non_null(of(s, HV_EPOCH_TRIGGER, HV_EPOCH_GRADIENTS));
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_NOBODY, NULL, 0);
    assert_int_equal(s->e.told, 0); /* they may still seek */
    on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
    acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
    round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_LEFT_OUT, NULL, 0); /* they have ended it */
    assert_int_equal(s->e.told, 1);
  }
}

/* Nobody waits for a hub in a group that a single trainer is left in. */
static void hub_leaves_a_group_of_one_trainer(void **unused) {
  (void)unused;
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3, .auxiliary = 1}, HV_EPOCH_ALONE_TRAINS);
  s->fetched = 1;
  s->f = (hv_progress_figures){.samples = TARGET / 2, .speed = 1, .n_peers = 2, .eta_us = SECOND};
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH});
  s->e.state = HV_EPOCH_GATHERING; /* its group has formed, and its round does not begin yet */
  s->e.end.rounding[HV_EPOCH_NOW] = 0;
  assert_int_equal(s->e.seeking[HV_EPOCH_GRADIENTS], 1);
  time_passes(s, 1000, 1);
  assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_GRADIENTS));
}

/* Rule 19. A hub that waited for a group of an epoch that is over would miss the next ones, and leave their trainers out. */
static void hub_gives_up_a_search_that_the_others_are_past(void **unused) {
  (void)unused;
  scene *s = hub_ends((hv_epoch_options){.average_state_every = 1, .auxiliary = 1});
  time_passes(s, 1000, 2);
  assert_null(of(s, HV_EPOCH_GIVE_UP, HV_EPOCH_GRADIENTS));
  s->f.epoch = 1;
  time_passes(s, 1000, 2);
  assert_non_null(of(s, HV_EPOCH_GIVE_UP, HV_EPOCH_GRADIENTS));

  s = hub_ends((hv_epoch_options){.average_state_every = 1, .auxiliary = 1});
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, NULL, 0);
  assert_int_equal(s->e.end.rounding[HV_EPOCH_NOW], 1 + HV_EPOCH_REPLICA_STATE);
  s->f = (hv_progress_figures){.epoch = 1, .samples = TARGET / 4, .speed = 1, .n_peers = 2, .eta_us = 9 * SECOND};
  time_passes(s, 1000, 2);
  assert_null(of(s, HV_EPOCH_GIVE_UP, HV_EPOCH_REPLICA_STATE));
  s->f.samples = TARGET / 2;
  time_passes(s, 1000, 2);
  assert_non_null(of(s, HV_EPOCH_GIVE_UP, HV_EPOCH_REPLICA_STATE));
}

/* Rule 19. Trainers may train on while the state is averaged: the round is theirs until they have ended that epoch, too. */
static void hub_cancels_a_round_that_the_others_are_past(void **unused) {
  (void)unused;
  scene *s = hub_ends((hv_epoch_options){.average_state_every = 1, .auxiliary = 1});
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, NULL, 0);
  s->f = (hv_progress_figures){.epoch = 1, .samples = TARGET / 2, .speed = 1, .n_peers = 2, .eta_us = 9 * SECOND};
  time_passes(s, 1000, 2);
  time_passes(s, HV_EPOCH_CHASE_US + 1, 2);
  assert_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_REPLICA_STATE));
  s->f.epoch = 2;
  time_passes(s, 1000, 2);
  assert_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_REPLICA_STATE));
  time_passes(s, HV_EPOCH_CHASE_US + 1, 2);
  assert_non_null(of(s, HV_EPOCH_CANCEL, HV_EPOCH_REPLICA_STATE));
}

/* Local updates, or gradients in a form that a hub cannot average. */
static void hub_without_gradients_counts_after_the_round_of_the_state(void **unused) {
  (void)unused;
  for (uint64_t theirs = 0; theirs <= 1; theirs++) {
    scene *s = hub_ends((hv_epoch_options){.average_state_every = 1, .auxiliary = 1, .use_local_updates = 1});
    assert_null(of(s, HV_EPOCH_TRIGGER, HV_EPOCH_GRADIENTS));
    assert_non_null(of(s, HV_EPOCH_TRIGGER, HV_EPOCH_REPLICA_STATE));
    assert_int_equal(s->e.told, 0);
    s->f.epoch = theirs;
    round_over(s, HV_EPOCH_REPLICA_STATE, HV_EPOCH_NOBODY, NULL, 0);
    assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
    assert_int_equal(s->e.told, theirs);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(newcomer_alone_with_a_hub_is_left_out),
      cmocka_unit_test(hub_stays_in_the_epoch_that_nobody_ended),
      cmocka_unit_test(hub_follows_the_others_back_from_an_epoch_that_nobody_has),
      cmocka_unit_test(client_makes_its_copy_again_for_a_hub),
      cmocka_unit_test(copy_is_given_where_it_is_expected_or_asked_for),
      cmocka_unit_test(word_is_given_where_it_is_judged),
      cmocka_unit_test(search_lasts_long_enough_to_ask_others),
      cmocka_unit_test(hub_goes_to_the_round_of_an_epoch_that_was_counted),
      cmocka_unit_test(hub_leaves_a_group_of_one_trainer),
      cmocka_unit_test(hub_gives_up_a_search_that_the_others_are_past),
      cmocka_unit_test(hub_cancels_a_round_that_the_others_are_past),
      cmocka_unit_test(hub_without_gradients_counts_after_the_round_of_the_state),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
