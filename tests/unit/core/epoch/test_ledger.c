/* Where samples are, after each move; and that each sample is in one place after any moves in any order. */
#include "lib/check.h"

#include "core/epoch/ledger.h"

static void assert_places(const hv_epoch_ledger *l, uint64_t averaged, uint64_t kept, uint64_t sums, uint64_t in_flight,
                          uint64_t lost) {
  assert_true(hv_epoch_ledger_holds(l));
  assert_int_equal(l->averaged, averaged);
  assert_int_equal(l->kept, kept);
  assert_int_equal(l->sums, sums);
  assert_int_equal(l->in_flight, in_flight);
  assert_int_equal(l->lost, lost);
  assert_int_equal(hv_epoch_ledger_held(l), averaged + kept + sums + in_flight);
}

static void samples_of_a_confirmed_round_are_averaged(void **unused) {
  (void)unused;
  hv_epoch_ledger l = {0};
  hv_epoch_ledger_counted(&l, 40);
  hv_epoch_ledger_counted(&l, 24);
  assert_places(&l, 0, 0, 64, 0, 0);
  assert_int_equal(hv_epoch_ledger_taken(&l), 64);
  hv_epoch_ledger_counted(&l, 16); /* of the next epoch, while the round runs */
  assert_places(&l, 0, 0, 16, 64, 0);
  assert_int_equal(hv_epoch_ledger_over(&l, HV_EPOCH_CONFIRMED, 1), 0);
  assert_places(&l, 64, 0, 16, 0, 0);
}

static void late_part_and_samples_above_the_target_are_lost(void **unused) {
  (void)unused;
  hv_epoch_ledger l = {0};
  hv_epoch_ledger_counted(&l, 120);
  hv_epoch_ledger_taken(&l);
  assert_int_equal(hv_epoch_ledger_cut(&l, 100), 20);
  assert_int_equal(hv_epoch_ledger_cut(&l, 100), 0);
  assert_int_equal(hv_epoch_ledger_over(&l, HV_EPOCH_CONFIRMED, 0.75), 25);
  assert_places(&l, 75, 0, 0, 0, 45);
  assert_int_equal(l.lost_by[HV_EPOCH_LOSS_CUT], 20);
  assert_int_equal(l.lost_by[HV_EPOCH_LOSS_LATE], 25);
}

static void share_outside_of_its_range_loses_no_more_than_there_is(void **unused) {
  (void)unused;
  const double shares[] = {-1, 0, 2, 1e300, -1e300, 0.0 / 0.0};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    hv_epoch_ledger l = {0};
    hv_epoch_ledger_counted(&l, 7);
    hv_epoch_ledger_taken(&l);
    assert_int_equal(hv_epoch_ledger_over(&l, HV_EPOCH_CONFIRMED, shares[i]), shares[i] > 1 ? 0 : 7);
    assert_true(hv_epoch_ledger_holds(&l));
  }
}

/* Differences: nothing of them is lost in a round. */
static void part_of_a_difference_is_averaged_and_the_rest_returns(void **unused) {
  (void)unused;
  hv_epoch_ledger l = {0};
  hv_epoch_ledger_counted(&l, 120);
  hv_epoch_ledger_taken(&l);
  hv_epoch_ledger_returned(&l);
  assert_places(&l, 0, 0, 120, 0, 0);
  hv_epoch_ledger_taken(&l);
  hv_epoch_ledger_shared(&l, 0.75);
  assert_places(&l, 90, 0, 30, 0, 0);
  hv_epoch_ledger_taken(&l);
  hv_epoch_ledger_shared(&l, 0);
  assert_places(&l, 90, 0, 30, 0, 0);
  hv_epoch_ledger_taken(&l);
  hv_epoch_ledger_shared(&l, 1);
  assert_places(&l, 120, 0, 0, 0, 0);
}

/* A round fails, this peer steps by itself, and the others' replica turns out to be the swarm's. */
static void own_step_is_kept_then_given_up_or_settled(void **unused) {
  (void)unused;
  for (int outcome = HV_EPOCH_NOBODY; outcome < HV_EPOCH_OUTCOMES; outcome++) {
    hv_epoch_ledger l = {0};
    hv_epoch_ledger_counted(&l, 2048);
    hv_epoch_ledger_taken(&l);
    assert_int_equal(hv_epoch_ledger_over(&l, (hv_epoch_outcome)outcome, 1), 0);
    assert_places(&l, 0, 0, 0, 2048, 0);
    assert_int_equal(hv_epoch_ledger_stepped(&l), 2048);
    assert_places(&l, 0, 2048, 0, 0, 0);
    hv_epoch_ledger settled = l;
    hv_epoch_ledger_kept_settled(&settled);
    assert_places(&settled, 2048, 0, 0, 0, 0);
    assert_int_equal(hv_epoch_ledger_kept_given_up(&settled), 0); /* no more than once */
    assert_int_equal(hv_epoch_ledger_kept_given_up(&l), 2048);
    assert_places(&l, 0, 0, 0, 0, 2048);
    assert_int_equal(l.lost_by[HV_EPOCH_LOSS_GIVEN_UP], 2048);
  }
}

/* A load drops a delayed round, before or after its outcome is known. */
static void dropped_round_loses_its_samples_once(void **unused) {
  (void)unused;
  hv_epoch_ledger l = {0};
  hv_epoch_ledger_counted(&l, 64);
  hv_epoch_ledger_taken(&l);
  hv_epoch_ledger_counted(&l, 16);
  hv_epoch_ledger left_out = l, stepped = l;
  assert_int_equal(hv_epoch_ledger_dropped(&l), 64);
  assert_int_equal(hv_epoch_ledger_replaced(&l), 16);
  assert_places(&l, 0, 0, 0, 0, 80);
  assert_int_equal(hv_epoch_ledger_over(&left_out, HV_EPOCH_LEFT_OUT, 1), 64);
  assert_int_equal(hv_epoch_ledger_dropped(&left_out), 0);
  assert_places(&left_out, 0, 0, 16, 0, 64);
  hv_epoch_ledger_over(&stepped, HV_EPOCH_CONFIRMED, 1); /* the others have stepped with them */
  assert_int_equal(hv_epoch_ledger_dropped(&stepped), 0);
  assert_places(&stepped, 64, 0, 16, 0, 0);
}

static void batch_that_counts_for_nothing_is_produced_and_lost(void **unused) {
  (void)unused;
  hv_epoch_ledger l = {0};
  hv_epoch_ledger_counted(&l, 32);
  assert_int_equal(hv_epoch_ledger_behind(&l, 16), 16);
  assert_int_equal(hv_epoch_ledger_overflow(&l, 16, 0), 16);
  assert_places(&l, 0, 0, 32, 0, 32);
  assert_int_equal(hv_epoch_ledger_overflow(&l, 16, 8), 24); /* of another process, whose sums had 8 */
  assert_places(&l, 0, 0, 24, 0, 56);
  assert_int_equal(hv_epoch_ledger_overflow(&l, 16, 25), 40); /* there are not so many: all */
  assert_places(&l, 0, 0, 0, 0, 96);
  assert_int_equal(l.produced, 96);
}

static void bad_gradient_and_broken_step_lose_samples_in_flight(void **unused) {
  (void)unused;
  hv_epoch_ledger l = {0};
  hv_epoch_ledger_counted(&l, 32);
  hv_epoch_ledger_taken(&l);
  assert_int_equal(hv_epoch_ledger_not_finite(&l), 32);
  assert_int_equal(hv_epoch_ledger_over(&l, HV_EPOCH_CONFIRMED, 0), 0);
  hv_epoch_ledger_counted(&l, 16);
  hv_epoch_ledger_taken(&l);
  hv_epoch_ledger_counted(&l, 8);
  assert_int_equal(hv_epoch_ledger_taken(&l), 24); /* the end before was broken off */
  assert_int_equal(hv_epoch_ledger_broken(&l), 24);
  assert_places(&l, 0, 0, 0, 0, 56);
}

static uint64_t below(check_rng *rng, uint64_t n) {
  return check_random(rng) % n;
}

static void one_move(hv_epoch_ledger *l, check_rng *rng) {
  uint64_t samples = below(rng, 100);
  switch (below(rng, 15)) {
  case 0:
    hv_epoch_ledger_behind(l, samples);
    break;
  case 1:
    hv_epoch_ledger_overflow(l, samples, below(rng, 100));
    break;
  case 2:
    hv_epoch_ledger_replaced(l);
    break;
  case 3:
    hv_epoch_ledger_taken(l);
    break;
  case 4:
    hv_epoch_ledger_not_finite(l);
    break;
  case 5:
    hv_epoch_ledger_cut(l, samples);
    break;
  case 6:
    hv_epoch_ledger_over(l, (hv_epoch_outcome)below(rng, HV_EPOCH_OUTCOMES), (double)samples / 99);
    break;
  case 7:
    hv_epoch_ledger_dropped(l);
    break;
  case 8:
    hv_epoch_ledger_broken(l);
    break;
  case 9:
    hv_epoch_ledger_stepped(l);
    break;
  case 10:
    hv_epoch_ledger_kept_settled(l);
    break;
  case 12:
    hv_epoch_ledger_restored(l);
    break;
  case 11:
    hv_epoch_ledger_kept_given_up(l);
    break;
  default:
    hv_epoch_ledger_counted(l, samples);
    break;
  }
}

static void each_sample_is_in_one_place_after_any_moves(void **unused) {
  (void)unused;
  check_rng rng = {.state = 1};
  hv_epoch_ledger l = {0};
  for (int i = 0; i < 100000; i++) {
    uint64_t lost = l.lost, produced = l.produced;
    one_move(&l, &rng);
    assert_true(hv_epoch_ledger_holds(&l));
    assert_true(l.lost >= lost && l.produced >= produced);
  }
  assert_true(l.averaged && l.produced);
  for (int i = 0; i < HV_EPOCH_LOSSES; i++)
    assert_true(l.lost_by[i] > 0);
  l.kept++;
  assert_false(hv_epoch_ledger_holds(&l));
}

static void each_cause_has_a_name_and_a_text(void **unused) {
  (void)unused;
  for (int i = 0; i < HV_EPOCH_LOSSES; i++)
    assert_true(*hv_epoch_loss_name((hv_epoch_loss)i) != '?' && *hv_epoch_loss_text((hv_epoch_loss)i) != '?');
  assert_string_equal(hv_epoch_outcome_name(HV_EPOCH_LEFT_OUT), "LEFT_OUT");
  assert_string_equal(hv_epoch_loss_text(HV_EPOCH_LOSSES), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_of_a_confirmed_round_are_averaged),
      cmocka_unit_test(late_part_and_samples_above_the_target_are_lost),
      cmocka_unit_test(share_outside_of_its_range_loses_no_more_than_there_is),
      cmocka_unit_test(part_of_a_difference_is_averaged_and_the_rest_returns),
      cmocka_unit_test(own_step_is_kept_then_given_up_or_settled),
      cmocka_unit_test(dropped_round_loses_its_samples_once),
      cmocka_unit_test(batch_that_counts_for_nothing_is_produced_and_lost),
      cmocka_unit_test(bad_gradient_and_broken_step_lose_samples_in_flight),
      cmocka_unit_test(each_sample_is_in_one_place_after_any_moves),
      cmocka_unit_test(each_cause_has_a_name_and_a_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
