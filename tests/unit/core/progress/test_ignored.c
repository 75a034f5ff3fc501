/* Owners whose claims do not count for a while: which claims, for how long, and of how many owners. */
#include "lib/check.h"

#include "core/progress/ignored.h"

static hv_claim claim(size_t owner, uint64_t epoch) {
  hv_claim c = {.report = {.epoch = epoch}};
  c.owner.key[0] = (uint8_t)(1 + owner % 256);
  c.owner.key[1] = (uint8_t)(owner / 256);
  return c;
}

static int holds(const hv_ignored *ignored, size_t owner, uint64_t epoch, uint64_t reached, uint64_t now_us) {
  hv_claim c = claim(owner, epoch);
  return hv_ignored_has(ignored, &c, reached, now_us);
}

static void add(hv_ignored *ignored, size_t owner, uint64_t epoch, uint64_t until_us) {
  hv_claim c = claim(owner, epoch);
  hv_ignored_add(ignored, &c.owner, epoch, until_us);
}

static void claims_ahead_of_an_ignored_owner_do_not_count(void **unused) {
  (void)unused;
  hv_ignored ignored = {0};
  assert_false(holds(&ignored, 1, 1000, 3, 10));
  add(&ignored, 1, 5, 20);
  assert_true(holds(&ignored, 1, 1000, 3, 10));
  assert_true(holds(&ignored, 1, 5, 3, 10));
  assert_true(holds(&ignored, 1, 4, 3, 10));           /* another lie: it is still ahead of the one that counts */
  assert_true(holds(&ignored, 1, 8, 7, 10));           /* also after the counting peer has moved on */
  assert_false(holds(&ignored, 1, 3, 3, 10));          /* in its epoch */
  assert_false(holds(&ignored, 1, 4, UINT64_MAX, 10)); /* of one that is in no epoch, only what was ignored */
  assert_true(holds(&ignored, 1, 5, UINT64_MAX, 10));
  assert_false(holds(&ignored, 2, 1000, 3, 10)); /* another owner */
}

static void ignoring_ends_at_its_time(void **unused) {
  (void)unused;
  hv_ignored ignored = {0};
  add(&ignored, 1, 5, 20);
  assert_true(holds(&ignored, 1, 5, 3, 19));
  assert_false(holds(&ignored, 1, 5, 3, 20));
  add(&ignored, 1, 7, 40);
  assert_true(holds(&ignored, 1, 7, 3, 39));
  assert_false(holds(&ignored, 1, 6, UINT64_MAX, 39)); /* the later call counts */
}

static void full_table_drops_the_owner_that_ends_first(void **unused) {
  (void)unused;
  hv_ignored ignored = {0};
  for (size_t i = 0; i < HV_IGNORED_MAX; i++)
    add(&ignored, i, 5, 100 + (i == 3 ? 0 : i + 1));
  add(&ignored, 300, 5, 1000);
  assert_true(holds(&ignored, 300, 5, 3, 10));
  for (size_t i = 0; i < HV_IGNORED_MAX; i++)
    assert_int_equal(holds(&ignored, i, 5, 3, 10), i != 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(claims_ahead_of_an_ignored_owner_do_not_count),
      cmocka_unit_test(ignoring_ends_at_its_time),
      cmocka_unit_test(full_table_drops_the_owner_that_ends_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
