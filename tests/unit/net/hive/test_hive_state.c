/* A hive's states as a program holds them: borrowed until let go of, whole when loaded, without memory too, and cancelled or
 * stopped. */
#include "lib/hives.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { VALUES = 300000, PARTS = 3 };

static float values[VALUES];
static atomic_int back; /* how often the program's bytes were given back */

static hv_status end_of(hv_future *future, hv_span *bytes, hv_peer_id *peer) {
  hv_error err = {0};
  assert_true(hv_future_wait(future, 60000));
  hv_status status = hv_future_result(future, bytes, peer, &err);
  assert_true(status == HV_OK || strlen(err.text) > 5);
  return status;
}

static void given_back(void *arg) {
  (void)arg;
  atomic_fetch_add(&back, 1);
}

static hv_status offer(hv_hive *hive, uint64_t epoch, uint8_t codec, hv_future **out) {
  hv_hive_state_part parts[PARTS] = {
      {hv_span_of(values, sizeof values), codec, 1, 0}, {hv_span_of("plain", 5), 0, 0, 1}, {hv_span_of(NULL, 0), 0, 0, 0}};
  hv_hive_snapshot snapshot = {
      .prefix = hv_span_of("run", 3), .epoch = epoch, .metadata = hv_span_of("lr", 2), .parts = parts, .n_parts = PARTS};
  return hv_hive_state_offer(hive, &snapshot, given_back, NULL, out);
}

static void offer_and_wait(hv_hive *hive, uint64_t epoch, uint8_t codec) {
  hv_future *future;
  hv_span digest;
  assert_int_equal(offer(hive, epoch, codec, &future), HV_OK);
  assert_int_equal(end_of(future, &digest, NULL), HV_OK);
  assert_int_equal(digest.size, 32);
  hv_future_release(future);
}

static void is_whole(hv_span bytes, uint64_t epoch) {
  hv_hive_state got;
  assert_int_equal(bytes.size, sizeof got);
  memcpy(&got, bytes.data, sizeof got);
  assert_int_equal(got.epoch, epoch);
  assert_int_equal(got.metadata.size, 2);
  assert_memory_equal(got.metadata.data, "lr", 2);
  assert_int_equal(got.n_parts, PARTS);
  assert_int_equal(got.parts[0].bytes.size, sizeof values);
  assert_int_equal((uintptr_t)got.parts[0].bytes.data % 64, 0);
  if (got.parts[0].codec == 0)
    assert_memory_equal(got.parts[0].bytes.data, values, sizeof values);
  assert_memory_equal(got.parts[1].bytes.data, "plain", 5);
  assert_int_equal(got.parts[2].bytes.size, 0);
}

static void fill(void) {
  check_rng rng = {9};
  for (int i = 0; i < VALUES; i++)
    values[i] = (float)check_normal(&rng);
  atomic_store(&back, 0);
}

static int wait_back(int n) {
  for (int ms = 0; ms < 10000 && atomic_load(&back) < n; ms++)
    usleep(1000);
  return atomic_load(&back);
}

static void state_offered_by_one_hive_is_loaded_whole_by_the_other(void **state) {
  (void)state;
  hv_hive *a, *b;
  hv_future *future;
  hv_span bytes;
  hv_peer_id donor;
  fill();
  hives_start_two(&a, &b, 2);
  for (uint8_t codec = 0; codec < 2; codec++) {
    offer_and_wait(a, 5 + codec, codec);
    assert_int_equal(hv_hive_state_load(b, hv_span_of("run", 3), 30000, 0, 0, hv_span_of(NULL, 0), &future), HV_OK);
    assert_int_equal(end_of(future, &bytes, &donor), HV_OK);
    is_whole(bytes, 5 + codec);
    assert_true(hv_peer_equal(&donor, hv_hive_peer(a)));
    hv_future_release(future);
  }
  assert_int_equal(wait_back(1), 1); /* the first, as the second took its place */
  assert_int_equal(hv_hive_state_set_priority(a, hv_span_of("run", 3), 3, &future), HV_OK);
  assert_int_equal(end_of(future, NULL, NULL), HV_OK);
  hv_future_release(future);
  assert_int_equal(hv_hive_state_withdraw(a, hv_span_of("run", 3), 0, &future), HV_OK);
  assert_int_equal(end_of(future, NULL, NULL), HV_OK);
  hv_future_release(future);
  assert_int_equal(wait_back(2), 2);
  assert_int_equal(hv_hive_state_withdraw(a, hv_span_of("run", 3), 0, &future), HV_OK);
  assert_int_equal(end_of(future, NULL, NULL), HV_NOT_FOUND);
  hv_future_release(future);
  hv_hive_free(b);
  hv_hive_free(a);
  assert_int_equal(atomic_load(&back), 2);
}

static void state_load_ends_without_a_leak_if_any_allocation_fails(void **state) {
  (void)state;
  enum { ALLOCATIONS = 40 };
  hv_hive *a, *b;
  hv_span bytes;
  fill();
  hives_start_two(&a, &b, 2);
  offer_and_wait(a, 1, 0);
  int lent = 1;
  for (int n = 0; n < ALLOCATIONS; n++) {
    hv_future *future = NULL;
    hv_mem_fail_in(hv_hive_mem(b), n);
    if (hv_hive_state_load(b, hv_span_of("run", 3), 5000, 0, 0, hv_span_of(NULL, 0), &future) == HV_OK) {
      if (end_of(future, &bytes, NULL) == HV_OK)
        is_whole(bytes, 1);
    } else
      assert_null(future);
    hv_mem_fail_in(hv_hive_mem(b), -1);
    hv_future_release(future);
    future = NULL;
    hv_mem_fail_in(hv_hive_mem(b), n);
    hv_status status = offer(b, 2, 0, &future);
    if (status == HV_OK) {
      lent++;
      end_of(future, NULL, NULL);
    }
    hv_mem_fail_in(hv_hive_mem(b), -1);
    hv_future_release(future);
    if (hv_hive_state_withdraw(b, hv_span_of("run", 3), 1, &future) == HV_OK) {
      end_of(future, NULL, NULL);
      hv_future_release(future);
    }
  }
  hv_hive_free(b);
  hv_hive_free(a);
  assert_int_equal(atomic_load(&back), lent);
}

static void request_cancelled_or_stopped_under_way_ends_once(void **state) {
  (void)state;
  enum { MANY = 24 };
  hv_future *futures[MANY];
  hv_hive *a, *b;
  fill();
  hives_start_two(&a, &b, 2);
  offer_and_wait(a, 1, 0);
  for (int i = 0; i < MANY; i++)
    assert_int_equal(i % 2 ? hv_hive_state_load(b, hv_span_of("run", 3), 30000, 0, 0, hv_span_of(NULL, 0), &futures[i])
                           : offer(b, (uint64_t)i, 1, &futures[i]),
                     HV_OK);
  for (int i = 0; i < MANY; i += 3)
    hv_future_cancel(futures[i]);
  usleep(20000);
  hv_hive_stop(b);
  assert_int_equal(atomic_load(&back), MANY / 2);
  for (int i = 0; i < MANY; i++) {
    hv_status status = end_of(futures[i], NULL, NULL);
    assert_true(status == HV_OK || status == HV_CANCELLED || status == HV_CLOSED || status == HV_UNREACHABLE);
    hv_future_release(futures[i]);
  }
  hv_future *late;
  assert_int_equal(offer(b, 1, 0, &late), HV_CLOSED);
  assert_int_equal(hv_hive_state_load(b, hv_span_of("run", 3), 0, 0, 0, hv_span_of(NULL, 0), &late), HV_CLOSED);
  hv_hive_free(b);
  hv_hive_stop(a);
  assert_int_equal(atomic_load(&back), MANY / 2 + 1);
  hv_hive_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(state_offered_by_one_hive_is_loaded_whole_by_the_other),
      cmocka_unit_test(state_load_ends_without_a_leak_if_any_allocation_fails),
      cmocka_unit_test(request_cancelled_or_stopped_under_way_ends_once),
  };
  return cmocka_run_group_tests_name("hive: state", tests, NULL, NULL);
}
