/* The metadata of a log's entries. */
#include "lib/check.h"

#include "core/state/step_log.h"

#include <string.h>

static hv_step_log_facts facts_with(size_t n_stamps) {
  hv_step_log_facts facts = {.epoch = 0x0102030405060708, .n_stamps = n_stamps};
  for (size_t i = 0; i < sizeof facts.before; i++)
    facts.before[i] = (uint8_t)(200 + i);
  for (size_t i = 0; i < n_stamps; i++)
    facts.stamps[i] = 0xf0f1f2f3f4f5f6f7 + i;
  return facts;
}

static void facts_are_read_as_they_were_written(void **unused) {
  (void)unused;
  for (size_t n = 1; n <= HV_STEP_LOG_STAMPS; n++) {
    uint8_t bytes[HV_STEP_LOG_FACTS_MAX];
    hv_step_log_facts facts = facts_with(n), read;
    size_t size = hv_step_log_facts_write(&facts, bytes);
    assert_int_equal(size, 26 + 8 * n);
    assert_int_equal(hv_step_log_facts_read(hv_span_of(bytes, size), &read), HV_OK);
    assert_memory_equal(&read, &facts, sizeof facts);
  }
}

/* The bytes are those of docs/design/log.md. */
static void facts_have_the_documented_bytes(void **unused) {
  (void)unused;
  static const uint8_t head[] = {1, 8, 7, 6, 5, 4, 3, 2, 1, 200}, tail[] = {1, 0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1, 0xf0};
  uint8_t bytes[HV_STEP_LOG_FACTS_MAX];
  hv_step_log_facts facts = facts_with(1);
  assert_int_equal(hv_step_log_facts_write(&facts, bytes), 34);
  assert_memory_equal(bytes, head, sizeof head);
  assert_memory_equal(bytes + 25, tail, sizeof tail);
}

static void other_bytes_are_refused(void **unused) {
  (void)unused;
  uint8_t bytes[HV_STEP_LOG_FACTS_MAX + 8] = {0};
  hv_step_log_facts facts = facts_with(3), read;
  size_t size = hv_step_log_facts_write(&facts, bytes);
  for (size_t n = 0; n < size; n++)
    assert_int_equal(hv_step_log_facts_read(hv_span_of(bytes, n), &read), HV_MALFORMED);
  assert_int_equal(hv_step_log_facts_read(hv_span_of(bytes, size + 1), &read), HV_MALFORMED);
  bytes[0] = 2;
  assert_int_equal(hv_step_log_facts_read(hv_span_of(bytes, size), &read), HV_VERSION);
  bytes[0] = 1;
  bytes[25] = 0; /* an average has a stamp */
  assert_int_equal(hv_step_log_facts_read(hv_span_of(bytes, 26), &read), HV_MALFORMED);
  bytes[25] = HV_STEP_LOG_STAMPS + 1;
  assert_int_equal(hv_step_log_facts_read(hv_span_of(bytes, 26 + 8 * (HV_STEP_LOG_STAMPS + 1)), &read), HV_MALFORMED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(facts_are_read_as_they_were_written),
      cmocka_unit_test(facts_have_the_documented_bytes),
      cmocka_unit_test(other_bytes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
