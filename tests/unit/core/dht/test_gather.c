/* Many answers about one key: which of them is believed. */
#include "lib/fake_env.h"

#include "core/dht/gather.h"

#include <stdio.h>
#include <string.h>

typedef struct registry {
  fake_env fake;
  hv_gather gather;
  char key[160];
  hv_peer_id owner;
  hv_hash place;
  char shown[1024]; /* "subkey=value/ttl;" for each that was picked */
  size_t picked;
} registry;

static registry *open_registry(int owned) {
  static registry one;
  char who[HV_PEER_TEXT_MAX];
  memset(&one, 0, sizeof one);
  fake_env_init(&one.fake, 3);
  one.owner = fake_peer(50);
  if (owned)
    snprintf(one.key, sizeof one.key, "k[owner:%s]", hv_peer_print(&one.owner, who));
  else
    snprintf(one.key, sizeof one.key, "k");
  hv_span key = hv_span_of(one.key, strlen(one.key));
  one.fake.env.sha256(&one.fake.env, key, &one.place);
  assert_int_equal(hv_gather_init(&one.gather, &one.fake.env, &one.place, key), HV_OK);
  return &one;
}

static void close_registry(registry *h) {
  hv_gather_fini(&h->gather);
  assert_int_equal(h->fake.mem.blocks, 0);
}

static hv_record plain(const char *value, uint32_t ttl_ms) {
  return (hv_record){.value = hv_span_of(value, strlen(value)), .ttl_ms = ttl_ms};
}

static hv_record by_owner(registry *h, const char *value, uint64_t version, uint32_t ttl_ms) {
  hv_record record = plain(value, ttl_ms);
  record.version = version;
  record.lease_ms = 60000;
  h->fake.me = h->owner;
  assert_int_equal(hv_record_sign(&h->fake.env, &h->owner, &h->place, &record), HV_OK);
  return record;
}

static hv_record tombstone(registry *h, uint64_t version) {
  return (hv_record){.version = version, .signer = h->owner, .lease_ms = 60000};
}

/* One node at this distance says it. */
static void say(registry *h, uint8_t distance, const hv_record *record) {
  hv_hash at = {{distance}};
  hv_gather_add(&h->gather, &at, record, record ? 1 : 0);
}

static void see(void *arg, const hv_record *record) {
  registry *h = arg;
  size_t n = strlen(h->shown);
  snprintf(h->shown + n, sizeof h->shown - n, "%.*s=%.*s/%u;", (int)record->subkey.size, (const char *)record->subkey.data,
           (int)record->value.size, (const char *)record->value.data, record->ttl_ms);
}

static const char *picked(registry *h, size_t believed) {
  hv_hash none = {{0}};
  h->shown[0] = 0;
  h->picked = hv_gather_pick(&h->gather, believed, &none, see, h);
  return h->shown;
}

static void equal_answers_of_all_nodes_agree(void **unused) {
  (void)unused;
  registry *h = open_registry(0);
  hv_hash all, near = {{2}};
  memset(&all, 0xff, sizeof all);
  for (uint8_t i = 0; i < 5; i++) {
    hv_record r = plain("v", 1000u + i);
    say(h, i, &r);
  }
  say(h, 9, NULL);
  assert_string_equal(picked(h, 8), "=v/1002;"); /* the median of their times */
  assert_int_equal(hv_gather_agreed(&h->gather, &all), 5);
  assert_int_equal(hv_gather_agreed(&h->gather, &near), 3); /* those not farther than that */
  assert_int_equal(hv_gather_holders(&h->gather, &all), 5);
  assert_int_equal(hv_gather_holders(&h->gather, &near), 3);
  assert_true(hv_gather_had(&h->gather, 0));
  assert_false(hv_gather_had(&h->gather, 5));
  close_registry(h);
}

static void a_minority_of_liars_is_not_believed(void **unused) {
  (void)unused;
  registry *h = open_registry(0);
  hv_record right = plain("right", 1000), lie = plain("lie", 3600000);
  say(h, 1, &lie), say(h, 2, &right), say(h, 3, &right), say(h, 4, &lie), say(h, 5, &right);
  assert_string_equal(picked(h, 8), "=right/1000;");
  close_registry(h);
}

static void the_newest_wins_among_those_many_say(void **unused) {
  (void)unused;
  registry *h = open_registry(0);
  hv_record old = plain("old", 1000), new = plain("new", 2000);
  say(h, 1, &old), say(h, 2, &new), say(h, 3, &old), say(h, 4, &new); /* half have heard of it already */
  assert_string_equal(picked(h, 8), "=new/2000;");
  close_registry(h);
}

static void far_away_nodes_have_no_vote(void **unused) {
  (void)unused;
  registry *h = open_registry(0);
  hv_record right = plain("right", 1000), lie = plain("lie", 3600000);
  for (uint8_t i = 0; i < 9; i++)
    say(h, (uint8_t)(100 + i), &lie);
  say(h, 1, &right), say(h, 2, &right), say(h, 3, NULL);
  assert_string_equal(picked(h, 3), "=right/1000;");
  close_registry(h);
}

static void forged_owned_record_is_ignored(void **unused) {
  (void)unused;
  registry *h = open_registry(1);
  hv_record right = by_owner(h, "right", 5, 1000), lie = right, bare = plain("bare", 9000);
  lie.value = hv_span_of("lie", 3);
  lie.version = 9;
  for (uint8_t i = 0; i < 9; i++)
    say(h, i, i % 2 ? &lie : &bare);
  say(h, 200, &right); /* one that has it is enough, wherever it stands */
  assert_string_equal(picked(h, 5), "=right/1000;");
  close_registry(h);
}

static void the_highest_version_wins_even_alone(void **unused) {
  (void)unused;
  registry *h = open_registry(1);
  hv_record old = by_owner(h, "old", 5, 9000), new = by_owner(h, "new", 6, 1000);
  say(h, 1, &old), say(h, 2, &old), say(h, 3, &new), say(h, 4, &old);
  assert_string_equal(picked(h, 8), "=new/1000;");
  close_registry(h);
}

static void record_that_most_report_as_ended_has_ended(void **unused) {
  (void)unused;
  registry *h = open_registry(1);
  hv_record replayed = by_owner(h, "v", 5, 60000), ended = tombstone(h, 5), before = tombstone(h, 4);
  say(h, 1, &ended), say(h, 2, &ended), say(h, 3, &ended), say(h, 4, &replayed);
  assert_string_equal(picked(h, 8), "");
  close_registry(h);
  h = open_registry(1);
  say(h, 1, &before), say(h, 2, &before), say(h, 3, &before), say(h, 4, &replayed); /* an earlier one has: that says nothing */
  assert_string_equal(picked(h, 8), "=v/60000;");
  close_registry(h);
}

static void record_that_a_minority_reports_as_ended_stays(void **unused) {
  (void)unused;
  registry *h = open_registry(1);
  hv_record v = by_owner(h, "v", 5, 9000), ended = tombstone(h, UINT64_MAX);
  say(h, 1, &ended), say(h, 2, &v), say(h, 3, &ended), say(h, 4, &v);
  assert_string_equal(picked(h, 8), "=v/9000;");
  close_registry(h);
}

static void a_dictionary_is_put_together_from_all(void **unused) {
  (void)unused;
  registry *h = open_registry(0);
  static const char *const subkeys[] = {"a", "b", "c"};
  for (uint8_t i = 0; i < 3; i++) {
    hv_record two[2] = {plain("1", 1000), plain("2", 2000)};
    for (int j = 0; j < 2; j++)
      two[j].has_subkey = 1, two[j].subkey = hv_span_of(subkeys[(i + j) % 3], 1);
    two[0].value = two[1].value = hv_span_of("x", 1);
    hv_hash at = {{i}};
    hv_gather_add(&h->gather, &at, two, 2);
  }
  assert_non_null(strstr(picked(h, 8), "a=x"));
  assert_non_null(strstr(h->shown, "b=x"));
  assert_non_null(strstr(h->shown, "c=x"));
  assert_int_equal(h->picked, 3);
  close_registry(h);
}

static void node_has_one_vote_about_one_record(void **unused) {
  (void)unused;
  registry *h = open_registry(0);
  static char values[100][12];
  hv_record many[100], right = plain("right", 1000);
  for (int i = 0; i < 100; i++) {
    snprintf(values[i], sizeof values[i], "%d", i);
    many[i] = plain(values[i], 90000);
  }
  hv_hash at = {{0}};
  hv_gather_add(&h->gather, &at, many, 100);
  assert_int_equal(h->gather.variants.n, 1);
  say(h, 1, &right), say(h, 2, &right);
  assert_string_equal(picked(h, 8), "=right/1000;");
  for (int i = 0; i < 100; i++) /* nor are there more answers than can be counted */
    say(h, 3, &right);
  assert_int_equal(h->gather.n_answers, HV_GATHER_ANSWERS_MAX);
  close_registry(h);
}

/* A signature takes a hundred times longer to check than a record to send. */
static void records_after_a_forgery_are_not_checked(void **unused) {
  (void)unused;
  enum { MANY = 100, GOOD = 3 };
  registry *h = open_registry(1);
  static char subkeys[MANY][16];
  hv_record many[MANY];
  hv_hash at = {{1}};
  h->fake.me = h->owner;
  for (int i = 0; i < MANY; i++) {
    snprintf(subkeys[i], sizeof subkeys[i], "s%d", i);
    many[i] = plain("v", 1000);
    many[i].has_subkey = 1;
    many[i].subkey = hv_span_of(subkeys[i], strlen(subkeys[i]));
    many[i].version = 1;
    many[i].lease_ms = 60000;
    assert_int_equal(hv_record_sign(&h->fake.env, &h->owner, &h->place, &many[i]), HV_OK);
    many[i].signature[0] ^= i >= GOOD;
  }
  hv_gather_add(&h->gather, &at, many, MANY);
  assert_int_equal(h->fake.verified, GOOD + 1);
  assert_int_equal(h->gather.variants.n, GOOD);
  at.bytes[0] = 2; /* others are heard as before */
  for (int i = GOOD; i < MANY; i++)
    many[i].signature[0] ^= 1;
  hv_gather_add(&h->gather, &at, many, MANY);
  assert_int_equal(h->gather.variants.n, MANY);
  close_registry(h);
}

static hv_status run_without_memory(hv_mem *mem, void *arg) {
  fake_env fake;
  hv_gather gather;
  hv_hash place, at = {{1}}, none = {{0}};
  registry h = {.picked = 0};
  (void)arg;
  fake_env_init_on(&fake, 1, mem);
  fake.env.sha256(&fake.env, hv_span_of("k", 1), &place);
  hv_status status = hv_gather_init(&gather, &fake.env, &place, hv_span_of("k", 1));
  if (status != HV_OK)
    return status;
  for (int i = 0; i < 80; i++) {
    hv_record r = plain("v", 1000);
    char sub[4] = {(char)('0' + i / 10), (char)('0' + i % 10)};
    r.has_subkey = 1;
    r.subkey = hv_span_of(sub, 2);
    hv_gather_add(&gather, &at, &r, 1);
  }
  size_t n = hv_gather_pick(&gather, 64, &none, see, &h);
  hv_gather_fini(&gather);
  return n == 64 ? HV_OK : HV_NOMEM;
}

static void answer_without_memory_counts_in_part(void **unused) {
  (void)unused;
  assert_true(check_out_of_memory(run_without_memory, NULL) > 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_answers_of_all_nodes_agree),
      cmocka_unit_test(a_minority_of_liars_is_not_believed),
      cmocka_unit_test(the_newest_wins_among_those_many_say),
      cmocka_unit_test(far_away_nodes_have_no_vote),
      cmocka_unit_test(forged_owned_record_is_ignored),
      cmocka_unit_test(the_highest_version_wins_even_alone),
      cmocka_unit_test(record_that_most_report_as_ended_has_ended),
      cmocka_unit_test(record_that_a_minority_reports_as_ended_stays),
      cmocka_unit_test(a_dictionary_is_put_together_from_all),
      cmocka_unit_test(node_has_one_vote_about_one_record),
      cmocka_unit_test(records_after_a_forgery_are_not_checked),
      cmocka_unit_test(answer_without_memory_counts_in_part),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
