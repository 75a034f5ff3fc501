/* A hive's DHT as a program holds it: what is stored is found, without memory too, and cancelled or stopped in the middle. */
#include "lib/hives.h"

#include <string.h>
#include <unistd.h>

static hv_status end_of(hv_future *future, hv_span *bytes) {
  hv_error err = {0};
  assert_true(hv_future_wait(future, 60000));
  return hv_future_result(future, bytes, NULL, &err);
}

static hv_hive_dht_state state_of(hv_hive *hive) {
  hv_future *future;
  hv_span bytes;
  hv_hive_dht_state out;
  assert_int_equal(hv_hive_dht_look(hive, &future), HV_OK);
  assert_int_equal(end_of(future, &bytes), HV_OK);
  assert_int_equal(bytes.size, sizeof out);
  memcpy(&out, bytes.data, sizeof out);
  hv_future_release(future);
  return out;
}

/* Two that know each other, in the DHT too. */
static void start_two(hv_hive **a, hv_hive **b) {
  hives_start_two(a, b, 1);
  for (int ms = 0; ms < 10000 && state_of(*a).contacts == 0; ms++)
    usleep(1000);
  assert_int_equal(state_of(*a).contacts, 1);
}

static hv_span text(const char *chars) {
  return hv_span_of(chars, strlen(chars));
}

static hv_status store(hv_hive *hive, const char *key, const char *subkey, const char *value, uint64_t ttl_ms, hv_future **out) {
  hv_hive_record record = {
      .subkey = text(subkey ? subkey : ""), .has_subkey = subkey != NULL, .value = text(value), .ttl_ms = ttl_ms};
  return hv_hive_dht_store(hive, text(key), &record, 0, out);
}

static hv_status store_and_wait(hv_hive *hive, const char *key, const char *subkey, const char *value, uint64_t ttl_ms) {
  hv_future *future;
  assert_int_equal(store(hive, key, subkey, value, ttl_ms, &future), HV_OK);
  hv_status status = end_of(future, NULL);
  hv_future_release(future);
  return status;
}

static void record_stored_by_one_hive_is_read_whole_by_the_other(void **state) {
  (void)state;
  hv_hive *a, *b;
  hv_future *future;
  hv_span bytes;
  hv_hive_record records[2];
  start_two(&a, &b);
  assert_int_equal(store_and_wait(a, "key", "one", "first", 60000), HV_OK);
  assert_int_equal(store_and_wait(b, "key", "", "", 30000), HV_OK); /* an empty subkey and an empty value are some */
  assert_int_equal(hv_hive_dht_get(b, text("key"), 1, 0, &future), HV_OK);
  assert_int_equal(end_of(future, &bytes), HV_OK);
  assert_int_equal(bytes.size, sizeof records);
  memcpy(records, bytes.data, sizeof records);
  int one = records[0].subkey.size ? 0 : 1;
  assert_true(records[0].has_subkey && records[1].has_subkey);
  assert_int_equal(records[one].value.size, 5);
  assert_memory_equal(records[one].value.data, "first", 5);
  assert_memory_equal(records[one].subkey.data, "one", 3);
  assert_int_equal(records[!one].value.size + records[!one].subkey.size, 0);
  assert_true(records[one].ttl_ms > 30000 && records[one].ttl_ms <= 60000 && records[one].end_us > records[!one].end_us);
  assert_false(hv_peer_is_known(&records[one].signer));
  hv_future_release(future);
  assert_int_equal(store_and_wait(b, "key", "one", "shorter", 40000), HV_EXISTS);
  assert_int_equal(state_of(a).records, 2);
  assert_int_equal(state_of(a).peers, 1);
  assert_true(state_of(a).memory > state_of(a).bytes);
  assert_int_equal(hv_hive_dht_get(a, text("nothing"), 0, 0, &future), HV_OK);
  assert_int_equal(end_of(future, NULL), HV_NOT_FOUND);
  hv_future_release(future);
  hv_hive_free(b);
  hv_hive_free(a);
}

static void too_large_or_invalid_record_is_refused_and_nothing_is_lost(void **state) {
  (void)state;
  static const uint8_t much[HV_RECORD_VALUE_MAX + 1];
  hv_hive *a = hives_start(NULL, 1);
  hv_future *future = NULL;
  hv_hive_record record = {.value = hv_span_of(much, sizeof much), .ttl_ms = 1000};
  assert_int_equal(hv_hive_dht_store(a, text("key"), &record, 0, &future), HV_TOO_LARGE);
  record.value.size = 1;
  assert_int_equal(hv_hive_dht_store(a, hv_span_of(much, HV_RECORD_KEY_MAX + 1), &record, 0, &future), HV_TOO_LARGE);
  assert_int_equal(hv_hive_dht_get(a, hv_span_of(much, HV_RECORD_KEY_MAX + 1), 0, 0, &future), HV_TOO_LARGE);
  assert_null(future);
  assert_int_equal(store_and_wait(a, "key", NULL, "value", 0), HV_INVALID);
  assert_int_equal(store_and_wait(a, "[owner:nobody]", NULL, "value", 1000), HV_DENIED);
  assert_int_equal(store_and_wait(a, "key", NULL, "value", 60000), HV_OK);
  assert_int_equal(state_of(a).records, 1);
  hv_hive_free(a);
}

static hv_status request(hv_hive *hive, int what, hv_future **out) {
  return what == 0   ? store(hive, "key", "subkey", "value", 60000, out)
         : what == 1 ? hv_hive_dht_get(hive, text("stored before"), 1, 0, out)
                     : hv_hive_dht_look(hive, out);
}

static void dht_request_is_refused_or_ends_if_any_allocation_fails(void **state) {
  (void)state;
  enum { ALLOCATIONS = 40 };
  hv_hive *a, *b;
  start_two(&a, &b);
  assert_int_equal(store_and_wait(a, "stored before", NULL, "value", 600000), HV_OK);
  for (int what = 0; what < 3; what++)
    for (int n = 0; n < ALLOCATIONS; n++) {
      hv_future *future = NULL;
      hv_mem_fail_in(hv_hive_mem(b), n);
      if (request(b, what, &future) == HV_OK)
        end_of(future, NULL);
      else
        assert_null(future);
      hv_mem_fail_in(hv_hive_mem(b), -1);
      hv_future_release(future);
    }
  assert_int_equal(store_and_wait(b, "afterwards", NULL, "value", 60000), HV_OK);
  hv_hive_free(b);
  hv_hive_free(a);
}

static void request_cancelled_or_stopped_under_way_ends_once(void **state) {
  (void)state;
  enum { MANY = 60 };
  hv_future *futures[MANY];
  hv_hive *a, *b;
  start_two(&a, &b);
  for (int i = 0; i < MANY; i++)
    assert_int_equal(request(b, i % 2, &futures[i]), HV_OK);
  for (int i = 0; i < MANY; i += 3)
    hv_future_cancel(futures[i]);
  hv_hive_stop(b);
  for (int i = 0; i < MANY; i++) {
    hv_status status = end_of(futures[i], NULL);
    assert_true(status == HV_OK || status == HV_NOT_FOUND || status == HV_CANCELLED || status == HV_CLOSED);
    hv_future_release(futures[i]);
  }
  assert_int_equal(request(b, 0, &futures[0]), HV_CLOSED);
  hv_hive_free(b);
  hv_hive_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(record_stored_by_one_hive_is_read_whole_by_the_other),
      cmocka_unit_test(too_large_or_invalid_record_is_refused_and_nothing_is_lost),
      cmocka_unit_test(dht_request_is_refused_or_ends_if_any_allocation_fails),
      cmocka_unit_test(request_cancelled_or_stopped_under_way_ends_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
