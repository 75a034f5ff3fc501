/* The rule by which many claims become one figure: what f liars cannot move, and what honest peers can. */
#include "lib/check.h"

#include "core/progress/progress.h"
#include "core/progress/tally.h"

#include <math.h>
#include <string.h>

enum { MANY = 64, TARGET = 6400 };

typedef struct bench {
  hv_mem mem;
  hv_claim claims[MANY * HV_TALLY_INSTANCES_MAX];
  size_t n;
  hv_tally out;
} bench;

static bench *open_bench(void) {
  static bench one;
  memset(&one, 0, sizeof one);
  hv_mem_init(&one.mem, NULL, HV_MEM_UNLIMITED);
  return &one;
}

static hv_peer_id peer(size_t number) {
  hv_peer_id id = {{0}};
  id.key[0] = 1 + (uint8_t)number;
  return id;
}

static hv_claim *claim(bench *b, size_t owner, uint64_t epoch, uint64_t samples, double speed) {
  hv_claim *c = &b->claims[b->n++];
  *c = (hv_claim){.owner = peer(owner),
                  .report = {.epoch = epoch, .samples = samples, .speed = speed},
                  .at_us = 100000000,
                  .heard_us = 100000000};
  return c;
}

static const hv_tally *count(bench *b) {
  const hv_tally_rule rule = {.target = TARGET, .fast = 8, .horizon_ms = 30000, .stale_ms = 30000};
  assert_int_equal(hv_tally_count(&b->mem, b->claims, b->n, &rule, 100000000, &b->out), HV_OK);
  assert_int_equal(b->mem.blocks, 0);
  b->n = 0;
  return &b->out;
}

static void tally_without_claims_is_empty(void **unused) {
  (void)unused;
  bench *b = open_bench();
  const hv_tally *t = count(b);
  assert_false(t->any);
  assert_int_equal(t->n, 0);
}

static void honest_claims_are_added_up(void **unused) {
  (void)unused;
  bench *b = open_bench();
  for (size_t i = 0; i < 10; i++)
    claim(b, i, 4, 50 + i, 10)->report.client_mode = i % 2;
  const hv_tally *t = count(b);
  assert_int_equal(t->epoch, 4);
  assert_float_equal(t->samples, 545, 1e-9);
  assert_float_equal(t->speed, 100, 1e-9);
  assert_int_equal(t->n, 10);
  assert_int_equal(t->n_clients, 5);
  assert_int_equal(t->tolerated, 3);
}

static void a_third_of_liars_moves_the_epoch_neither_up_nor_down(void **unused) {
  (void)unused;
  for (size_t n = 3; n <= MANY; n++)
    for (int up = 0; up < 2; up++) {
      bench *b = open_bench();
      for (size_t i = 0; i < n; i++)
        claim(b, i, i < n / 3 ? (up ? 1000 : 0) : 7, 10, 1);
      assert_int_equal(count(b)->epoch, 7);
    }
}

static void higher_epoch_of_two_claims_is_believed(void **unused) {
  (void)unused;
  bench *b = open_bench();
  claim(b, 0, 7, 0, 1);
  claim(b, 1, 8, 0, 1);
  assert_int_equal(count(b)->epoch, 8);
}

static void claim_of_over_a_third_moves_the_epoch_despite_newcomers(void **unused) {
  (void)unused;
  bench *b = open_bench();
  for (size_t i = 0; i < 12; i++)
    claim(b, i, i < 5 ? 100 : 0, 0, 1);
  assert_int_equal(count(b)->epoch, 100);
  for (size_t i = 0; i < 12; i++)
    claim(b, i, i < 4 ? 100 : 99, 0, 1);
  assert_int_equal(count(b)->epoch, 99);
}

static void a_liar_about_samples_counts_for_little(void **unused) {
  (void)unused;
  for (size_t n = 3; n <= MANY; n++) {
    bench *b = open_bench();
    size_t liars = n / 3;
    for (size_t i = 0; i < n; i++)
      claim(b, i, 2, i < liars ? HV_REPORT_SAMPLES_MAX : 40, i < liars ? HV_REPORT_SPEED_MAX : 2);
    const hv_tally *t = count(b);
    double most = fmax(8 * 40, (double)TARGET / (double)n);
    assert_float_equal(t->samples, (double)(n - liars) * 40 + (double)liars * most, 1e-6);
    assert_float_equal(t->speed, (double)(n - liars) * 2 + (double)liars * 16, 1e-6);
  }
}

static void fair_share_is_the_most_that_counts_early_in_an_epoch(void **unused) {
  (void)unused;
  bench *b = open_bench();
  for (size_t i = 0; i < 64; i++)
    claim(b, i, 2, i == 0 ? 1000000 : i == 1 ? 90 : 0, 0);
  assert_float_equal(count(b)->samples, 190, 1e-9);
}

static void lone_claim_of_a_speed_adds_no_samples(void **unused) {
  (void)unused;
  bench *b = open_bench();
  for (size_t i = 0; i < 9; i++)
    claim(b, i, 2, 10, i == 0 ? HV_REPORT_SPEED_MAX : 0)->at_us = 90000000;
  const hv_tally *t = count(b);
  assert_float_equal(t->speed, 0, 1e-9);
  assert_true(t->samples <= 8 * 10 + (double)TARGET / 9); /* a fair share, not its speed times its age */
}

static void peer_after_its_step_counts_with_its_contribution(void **unused) {
  (void)unused;
  bench *b = open_bench();
  for (size_t i = 0; i < 9; i++) {
    hv_claim *c = claim(b, i, i < 3 ? 6 : 5, i < 3 ? 4 : 700, 1);
    c->report.before = i < 3 ? 720 : 1;
  }
  const hv_tally *t = count(b);
  assert_int_equal(t->epoch, 5);
  assert_float_equal(t->samples, 3 * 720 + 6 * 700, 1e-9);
}

static void others_are_extrapolated_by_their_speed_and_oneself_is_not(void **unused) {
  (void)unused;
  bench *b = open_bench();
  claim(b, 0, 1, 100, 10)->at_us = 100000000 - 5000000;
  claim(b, 1, 1, 100, 10)->at_us = 100000000 - 90000000;
  hv_claim *mine = claim(b, 2, 1, 100, 10);
  mine->at_us = 0;
  mine->heard_us = 0;
  mine->mine = 1;
  const hv_tally *t = count(b);
  assert_float_equal(t->samples, 150 + 400 + 100, 1e-9);
  assert_float_equal(t->others_samples, 150 + 400, 1e-9);
  assert_float_equal(t->others_speed, 20, 1e-9);
}

static void silent_or_gone_peer_is_not_counted(void **unused) {
  (void)unused;
  bench *b = open_bench();
  claim(b, 0, 1, 100, 1);
  claim(b, 1, 9, 100, 1)->heard_us = 100000000 - 30000001;
  claim(b, 2, 9, 100, 1)->report.gone = 1;
  const hv_tally *t = count(b);
  assert_int_equal(t->n, 1);
  assert_int_equal(t->epoch, 1);
}

static void owner_has_one_vote_with_any_number_of_contributors(void **unused) {
  (void)unused;
  bench *b = open_bench();
  for (size_t i = 0; i < 8; i++)
    claim(b, 0, 50, 100000, 1);
  for (size_t i = 1; i < 4; i++)
    claim(b, i, 3, 100, 1);
  const hv_tally *t = count(b);
  assert_int_equal(t->epoch, 3);
  assert_int_equal(t->n, 11);
  assert_int_equal(t->n_owners, 4);
  assert_float_equal(t->samples, 300, 1e-9);
  for (size_t i = 0; i < 3; i++)
    claim(b, 0, 3, 100, 1);
  claim(b, 1, 3, 100, 1);
  assert_float_equal(count(b)->samples, 400, 1e-9);
}

/* For any claims of f liars in concert, the figures stay within what the header promises. */
static void sums_stay_within_bounds_with_a_third_of_liars(void **unused) {
  (void)unused;
  check_rng rng = {.state = 11};
  for (size_t round = 0; round < 20000; round++) {
    bench *b = open_bench();
    size_t n = 3 + check_random(&rng) % (MANY - 3), liars = check_random(&rng) % (n / 3 + 1), fastest = 0;
    double honest = 0, honest_speed = 0, top_speed = 0;
    for (size_t i = liars; i < n; i++) {
      uint64_t samples = check_random(&rng) % 200;
      double speed = (double)(check_random(&rng) % 100);
      claim(b, i, 9, samples, speed);
      honest += (double)samples;
      honest_speed += speed;
      fastest = samples > fastest ? samples : fastest;
      top_speed = speed > top_speed ? speed : top_speed;
    }
    double most = fmax(8 * (double)fastest, (double)TARGET / (double)n);
    for (size_t i = 0; i < liars; i++)
      claim(b, i, 8 + check_random(&rng) % 3, check_random(&rng) % HV_REPORT_SAMPLES_MAX, (double)check_random(&rng))
          ->report.before = check_random(&rng) % HV_REPORT_SAMPLES_MAX;
    const hv_tally *t = count(b);
    assert_int_equal(t->epoch, 9);
    assert_true(t->samples <= honest + (double)liars * most + 1e-6);
    assert_true(t->speed <= honest_speed + (double)liars * 8 * top_speed + 1e-6);
    assert_true(t->samples >= 0 && t->others_samples <= t->samples + 1e-6);
  }
}

static void a_report_survives_its_bytes(void **unused) {
  (void)unused;
  check_rng rng = {.state = 5};
  for (int i = 0; i < 10000; i++) {
    hv_report in = {.epoch = check_random(&rng) >> 16,
                    .samples = check_random(&rng) >> 16,
                    .before = check_random(&rng) >> 16,
                    .speed = check_uniform(&rng) * 1e6,
                    .age_ms = (uint32_t)check_random(&rng),
                    .client_mode = check_random(&rng) & 1,
                    .gone = check_random(&rng) & 1},
              back;
    uint8_t bytes[HV_REPORT_BYTES], again[HV_REPORT_BYTES];
    in.comes = in.gone ? in.samples : 0;
    in.samples = in.gone ? 0 : in.samples;
    hv_report_pack(&in, bytes);
    assert_int_equal(hv_report_unpack(hv_span_of(bytes, sizeof bytes), &back), HV_OK);
    hv_report_pack(&back, again);
    assert_memory_equal(bytes, again, sizeof bytes);
    assert_true(in.epoch == back.epoch && in.samples == back.samples && in.before == back.before && in.speed == back.speed);
    assert_true(in.age_ms == back.age_ms && in.client_mode == back.client_mode && in.gone == back.gone && in.comes == back.comes);
    for (size_t size = 0; size < sizeof bytes; size++)
      assert_int_equal(hv_report_unpack(hv_span_of(bytes, size), &back), HV_MALFORMED);
  }
}

static void report_beyond_its_limits_is_clamped_when_sent_else_refused(void **unused) {
  (void)unused;
  uint8_t bytes[HV_REPORT_BYTES];
  hv_report report = {.epoch = UINT64_MAX, .samples = UINT64_MAX, .before = UINT64_MAX, .speed = INFINITY}, back;
  hv_report_pack(&report, bytes);
  assert_int_equal(hv_report_unpack(hv_span_of(bytes, sizeof bytes), &back), HV_OK);
  assert_true(back.epoch == HV_REPORT_EPOCH_MAX && back.samples == HV_REPORT_SAMPLES_MAX && back.speed == HV_REPORT_SPEED_MAX);
  report.speed = NAN;
  hv_report_pack(&report, bytes);
  assert_int_equal(hv_report_unpack(hv_span_of(bytes, sizeof bytes), &back), HV_OK);
  assert_true(back.speed == 0);
  for (size_t at = 14; at < HV_REPORT_BYTES; at += 8) { /* the two highest bytes of each number */
    hv_report_pack(&(hv_report){.epoch = 1}, bytes);
    bytes[at] = bytes[at + 1] = 0x7f;
    assert_int_equal(hv_report_unpack(hv_span_of(bytes, sizeof bytes), &back), HV_MALFORMED);
  }
}

static void meter_measures_the_reported_speed(void **unused) {
  (void)unused;
  hv_meter meter = {.alpha = 0.1};
  uint64_t now = 1000000;
  assert_true(hv_meter_speed(&meter) == 0);
  hv_meter_done(&meter, 0, now);
  assert_true(hv_meter_speed(&meter) == 0);
  for (int i = 0; i < 50; i++) {
    hv_meter_done(&meter, 32, now += 500000);
    assert_float_equal(hv_meter_speed(&meter), 64, 1e-6); /* also right after the first */
  }
  hv_meter_pause(&meter, 1, now += 100000);
  hv_meter_pause(&meter, 1, now + 1000);
  now += 60000000;
  hv_meter_pause(&meter, 0, now);
  hv_meter_done(&meter, 32, now += 400000);
  assert_float_equal(hv_meter_speed(&meter), 64, 1e-6);
  for (int i = 0; i < 100; i++)
    hv_meter_done(&meter, 32, now += 1000000);
  assert_float_equal(hv_meter_speed(&meter), 32, 0.01);
}

static void meter_forgets_one_pause_and_learns_a_lasting_change(void **unused) {
  (void)unused;
  hv_meter meter = {.alpha = 0.1};
  uint64_t now = 1000000;
  hv_meter_done(&meter, 0, now);
  for (int i = 0; i < 50; i++)
    hv_meter_done(&meter, 32, now += 500000);
  hv_meter_done(&meter, 32, now += 600000000); /* a validation of ten minutes */
  assert_true(hv_meter_speed(&meter) > 64 / 2.6);
  for (int i = 0; i < 20; i++)
    hv_meter_done(&meter, 32, now += 500000);
  assert_true(hv_meter_speed(&meter) > 64 / 1.25 && hv_meter_speed(&meter) <= 64);
  for (int i = 0; i < 100; i++)
    hv_meter_done(&meter, 32, now += 50000000); /* a hundred times slower from now on */
  assert_float_equal(hv_meter_speed(&meter), 0.64, 0.01);
  for (int i = 0; i < 100; i++)
    hv_meter_done(&meter, 32, now += 5000);
  assert_true(hv_meter_speed(&meter) > 1000);
  hv_meter fast = meter;
  uint64_t over = now;
  hv_meter_done(&fast, 32, over += 600000000); /* between quick batches it counts for a second: as much as none just shorter */
  assert_float_equal(hv_meter_speed(&fast), 1 / (0.9 / hv_meter_speed(&meter) + 0.1 / 32), 1);
  fast = meter, over = now;
  hv_meter_done(&fast, 32, over += 900000); /* and less than a second for what it was */
  assert_float_equal(hv_meter_speed(&fast), 1 / (0.9 / hv_meter_speed(&meter) + 0.1 * 0.9 / 32), 1);
  for (int i = 0; i < 100; i++)
    hv_meter_done(&meter, 32, now += 900000); /* less than a second is no standstill */
  assert_float_equal(hv_meter_speed(&meter), 32 / 0.9, 0.1);
}

/* So long after its report it counts as it said, at the speed that it said: it goes on. */
static void goes_on(const hv_progress_own *own, int64_t us) {
  hv_progress_own now = hv_progress_as_of(own, own->at_us + (uint64_t)us);
  assert_int_equal(now.samples, own->samples);
  assert_int_equal(now.at_us, own->at_us);
  assert_true(now.speed == own->speed);
}

/* Its report is all that there is, and of its speed one batch in all that time is left. */
static void stands_still(const hv_progress_own *own, int64_t us) {
  hv_progress_own now = hv_progress_as_of(own, own->at_us + (uint64_t)us);
  assert_int_equal(now.samples, own->samples);
  assert_int_equal(now.at_us, own->at_us + (uint64_t)us);
  assert_float_equal(now.speed, (double)own->step / ((double)us * 1e-6), 1e-9);
}

static void peer_silent_for_four_batches_and_a_second_is_stalled(void **unused) {
  (void)unused;
  hv_progress_own own = {.any = 1, .epoch = 3, .samples = 500, .speed = 10, .at_us = 1000000, .step = 10};
  goes_on(&own, -500000); /* told a little later than now */
  goes_on(&own, 3990000);
  stands_still(&own, 4000000);
  own.speed = 1000;
  goes_on(&own, 990000);
  stands_still(&own, 1000000);
  own.paused = 1; /* it averages */
  goes_on(&own, 100000000);
  own.paused = 0, own.step = 0; /* who says nothing of its batches */
  goes_on(&own, 100000000);
}

static hv_status one_count(hv_mem *mem, void *arg) {
  bench *b = arg;
  b->n = 0;
  for (size_t i = 0; i < 5; i++)
    claim(b, i, 1, 1, 1);
  return hv_tally_count(mem, b->claims, b->n, &(hv_tally_rule){.target = 10, .fast = 8}, 1, &b->out);
}

static void tally_without_memory_returns_an_error(void **unused) {
  (void)unused;
  assert_int_equal(check_out_of_memory(one_count, open_bench()), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tally_without_claims_is_empty),
      cmocka_unit_test(honest_claims_are_added_up),
      cmocka_unit_test(a_third_of_liars_moves_the_epoch_neither_up_nor_down),
      cmocka_unit_test(higher_epoch_of_two_claims_is_believed),
      cmocka_unit_test(claim_of_over_a_third_moves_the_epoch_despite_newcomers),
      cmocka_unit_test(a_liar_about_samples_counts_for_little),
      cmocka_unit_test(fair_share_is_the_most_that_counts_early_in_an_epoch),
      cmocka_unit_test(lone_claim_of_a_speed_adds_no_samples),
      cmocka_unit_test(peer_after_its_step_counts_with_its_contribution),
      cmocka_unit_test(others_are_extrapolated_by_their_speed_and_oneself_is_not),
      cmocka_unit_test(silent_or_gone_peer_is_not_counted),
      cmocka_unit_test(owner_has_one_vote_with_any_number_of_contributors),
      cmocka_unit_test(sums_stay_within_bounds_with_a_third_of_liars),
      cmocka_unit_test(a_report_survives_its_bytes),
      cmocka_unit_test(report_beyond_its_limits_is_clamped_when_sent_else_refused),
      cmocka_unit_test(meter_measures_the_reported_speed),
      cmocka_unit_test(meter_forgets_one_pause_and_learns_a_lasting_change),
      cmocka_unit_test(peer_silent_for_four_batches_and_a_second_is_stalled),
      cmocka_unit_test(tally_without_memory_returns_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
