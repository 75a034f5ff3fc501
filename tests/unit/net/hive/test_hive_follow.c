/* A hub's part in the rounds of a run, as a program holds it: it is opened, closed at any moment, and without memory. */
#include "lib/hives.h"

#include "kern/codec.h"
#include "kern/dtype.h"

#include <string.h>
#include <time.h>

typedef struct hub {
  hv_hive *hive;
  hv_hive_averager *gradients, *state;
} hub;

static hv_hive_averager *averager_of(hv_hive *hive, const char *prefix) {
  static const int64_t shape[] = {8};
  hv_hive_tensor tensor = {.dtype = HV_DTYPE_FLOAT32, .shape = shape, .n_dims = 1};
  hv_hive_averager_config config = {.prefix = prefix, .tensors = &tensor, .n_tensors = 1, .part_bytes = 1 << 16, .auxiliary = 1};
  hv_hive_averager *averager;
  hv_error err = {0};
  if (hv_hive_averager_new(hive, &config, &averager, &err) != HV_OK)
    fail_msg("%s", err.text);
  return averager;
}

static hub begins(void) {
  hub h = {.hive = hives_start(NULL, 1)};
  h.gradients = averager_of(h.hive, "run_grads");
  h.state = averager_of(h.hive, "run_state");
  return h;
}

static void ends(hub *h) {
  hv_hive_averager_free(h->gradients);
  hv_hive_averager_free(h->state);
  hv_hive_free(h->hive);
}

static hv_hive_follower *opens(const hub *h, int is_late) {
  hv_hive_follower_config config = {.run_id = "run",
                                    .state_key = "run_state",
                                    .target_batch_size = 64,
                                    .matchmaking_ms = 100,
                                    .averaging_ms = 1000,
                                    .average_state_every = 1,
                                    .is_late = is_late,
                                    .gradients = h->gradients,
                                    .state = h->state};
  hv_hive_follower *follower;
  hv_error err = {0};
  if (hv_hive_follower_open(h->hive, &config, &follower, &err) != HV_OK)
    fail_msg("%s", err.text);
  return follower;
}

static void follower_is_closed_at_any_moment(void **unused) {
  (void)unused;
  hub h = begins();
  for (long ms = 0; ms < 50; ms += 7) {
    uint64_t rounds, failures;
    hv_hive_follower *follower = opens(&h, ms % 2);
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    hv_hive_follower_count(follower, &rounds, &failures);
    assert_int_equal(rounds + failures, 0);
    hv_hive_follower_free(follower);
  }
  hv_hive_follower_free(NULL);
  ends(&h);
}

/* Keeper, requests and record of a hub ask it, also while it averages nothing. */
static void follower_without_averagers_counts_the_trainers(void **unused) {
  (void)unused;
  hub h = {.hive = hives_start(NULL, 1)};
  hv_hive_follower *follower = opens(&h, 0);
  hv_hive_progress_config config = {
      .prefix = "run", .target_batch_size = 64, .expected_drift_peers = -1, .expected_drift_rate = -1};
  hv_hive_progress *trainer;
  hv_hive_count count;
  hv_error err = {0};
  assert_int_equal(hv_hive_follower_trainers(follower, &count, &err), HV_OK);
  assert_int_equal(count.any, 0);
  assert_int_equal(hv_hive_progress_open(h.hive, &config, &trainer, &err), HV_OK);
  assert_int_equal(hv_hive_progress_report(trainer, 7, 3), HV_OK);
  for (int tries = 0; tries < 1000 && !(count.any && count.epoch == 7); tries++) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(hv_hive_follower_trainers(follower, &count, &err), HV_OK);
  }
  assert_true(count.any && count.epoch == 7);
  hv_hive_progress_free(trainer);
  hv_hive_stop(h.hive);
  assert_int_equal(hv_hive_follower_trainers(follower, &count, &err), HV_CLOSED);
  hv_hive_follower_free(follower);
  hv_hive_free(h.hive);
}

static void follower_outlives_the_end_of_its_node(void **unused) {
  (void)unused;
  hub h = begins();
  hv_hive_follower *follower = opens(&h, 0);
  hv_hive_stop(h.hive);
  hv_hive_follower_free(follower);
  ends(&h);
}

static void follower_without_memory_is_not_opened_and_still_closed(void **unused) {
  (void)unused;
  enum { ALLOCATIONS = 8 };
  hub h = begins();
  for (long n = 0; n < ALLOCATIONS; n++) {
    hv_hive_follower *follower;
    hv_error err = {0};
    hv_hive_follower_config config = {.run_id = "run", .state_key = "run_state", .target_batch_size = 64, .average_state_every = 1};
    hv_mem_fail_in(hv_hive_mem(h.hive), n);
    hv_status status = hv_hive_follower_open(h.hive, &config, &follower, &err);
    hv_mem_fail_in(hv_hive_mem(h.hive), -1);
    if (status == HV_OK) {
      hv_mem_fail_in(hv_hive_mem(h.hive), n % 3);
      hv_hive_follower_free(follower);
      hv_mem_fail_in(hv_hive_mem(h.hive), -1);
    } else
      assert_true(status == HV_NOMEM && err.text[0]);
  }
  ends(&h);
}

static void terms_that_contradict_are_refused(void **unused) {
  (void)unused;
  static char longer[1000];
  hub h = begins();
  hv_hive_follower *follower;
  hv_error err = {0};
  hv_hive_follower_config config = {.run_id = "run", .state_key = "run_state", .target_batch_size = 64};
  assert_int_equal(hv_hive_follower_open(h.hive, &config, &follower, &err), HV_INVALID);
  memset(longer, 'x', sizeof longer - 1);
  config.average_state_every = 1;
  config.run_id = longer;
  assert_int_equal(hv_hive_follower_open(h.hive, &config, &follower, &err), HV_INVALID);
  assert_non_null(strstr(err.text, "give another run_id"));
  ends(&h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(follower_is_closed_at_any_moment),
      cmocka_unit_test(follower_without_averagers_counts_the_trainers),
      cmocka_unit_test(follower_outlives_the_end_of_its_node),
      cmocka_unit_test(follower_without_memory_is_not_opened_and_still_closed),
      cmocka_unit_test(terms_that_contradict_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
