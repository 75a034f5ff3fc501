/* The records that a store keeps, for whom, for how long, and those that it refuses. */
#include "lib/fake_env.h"

#include "core/dht/store.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SECOND UINT64_C(1000000)

typedef struct shelf {
  fake_env fake;
  hv_store store;
  char text[8][160];
  size_t next;
} shelf;

static shelf *open_shelf(const hv_store_config *config) {
  static shelf one;
  memset(&one, 0, sizeof one);
  fake_env_init(&one.fake, 7);
  assert_int_equal(hv_store_init(&one.store, &one.fake.env, config ? config : &(hv_store_config){0}), HV_OK);
  return &one;
}

static void close_shelf(shelf *s) {
  hv_store_fini(&s->store);
  assert_int_equal(s->fake.mem.blocks, 0);
}

static hv_span text(const char *from) {
  return from ? hv_span_of(from, strlen(from)) : hv_span_of(NULL, 0);
}

static hv_record record_of(const char *key, const char *subkey, const char *value, uint32_t ttl_ms) {
  return (hv_record){
      .key = text(key), .subkey = text(subkey), .has_subkey = subkey != NULL, .value = text(value), .ttl_ms = ttl_ms};
}

/* "NAME[owner:PEERID]", kept until the shelf closes. */
static const char *owned(shelf *s, const char *name, const hv_peer_id *owner) {
  char who[HV_PEER_TEXT_MAX], *out = s->text[s->next++ % 8];
  snprintf(out, sizeof s->text[0], "%s[owner:%s]", name, hv_peer_print(owner, who));
  return out;
}

static hv_hash place_of(shelf *s, hv_span key) {
  hv_hash place;
  s->fake.env.sha256(&s->fake.env, key, &place);
  return place;
}

static hv_record signed_by(shelf *s, const hv_peer_id *owner, hv_record record, uint64_t version, uint32_t lease_ms) {
  hv_hash place = place_of(s, record.key);
  hv_peer_id me = s->fake.me;
  record.version = version;
  record.lease_ms = lease_ms;
  s->fake.me = *owner;
  assert_int_equal(hv_record_sign(&s->fake.env, owner, &place, &record), HV_OK);
  s->fake.me = me;
  return record;
}

static hv_status put(shelf *s, const hv_record *record, uint64_t bringer) {
  hv_peer_id by = fake_peer(bringer);
  return hv_store_put(&s->store, record, &by, NULL);
}

static hv_status put_from(shelf *s, const hv_record *record, uint64_t bringer, uint64_t network) {
  hv_peer_id by = fake_peer(bringer);
  return hv_store_put_from(&s->store, record, &by, network, NULL);
}

static hv_status put_by(shelf *s, const hv_record *record, const hv_peer_id *by) {
  return hv_store_put(&s->store, record, by, NULL);
}

/* The record under (key, subkey): its value, or "". */
static const char *got(shelf *s, const char *key, const char *subkey) {
  static char out[128];
  hv_hash place = place_of(s, text(key));
  hv_record record;
  out[0] = 0;
  for (const hv_store_item *item = hv_store_first(&s->store, &place); item; item = item->next)
    if (hv_store_show(&s->store, item, &record) && record.has_subkey == (subkey != NULL) &&
        hv_span_equal(record.subkey, text(subkey)))
      snprintf(out, sizeof out, "%.*s", (int)record.value.size, (const char *)record.value.data);
  return out;
}

static void wait(shelf *s, uint64_t ms) {
  s->fake.now_us += ms * 1000;
}

/* ---- time ---- */

static void a_record_lives_as_long_as_it_was_given(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_record a = record_of("k", NULL, "a", 5000);
  assert_int_equal(put(s, &a, 1), HV_OK);
  assert_string_equal(got(s, "k", NULL), "a");
  wait(s, 4999);
  assert_string_equal(got(s, "k", NULL), "a");
  wait(s, 1);
  assert_string_equal(got(s, "k", NULL), "");
  hv_store_expire(&s->store);
  assert_int_equal(s->store.items.n + s->store.keys.n + s->store.accounts.n, 0);
  close_shelf(s);
}

static void no_record_lives_longer_than_the_cap(void **unused) { /* defect 17 */
  (void)unused;
  shelf *s = open_shelf(&(hv_store_config){.ttl_max_ms = 10000});
  hv_record a = record_of("k", NULL, "a", UINT32_MAX);
  assert_int_equal(put(s, &a, 1), HV_OK);
  wait(s, 10000);
  assert_string_equal(got(s, "k", NULL), "");
  a.ttl_ms = 0; /* and one that has ended does not begin */
  assert_int_equal(put(s, &a, 1), HV_INVALID);
  close_shelf(s);
}

static void the_newest_expiry_wins(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_record a = record_of("k", NULL, "a", 60000), b = record_of("k", NULL, "b", 30000), c = record_of("k", NULL, "c", 70000);
  assert_int_equal(put(s, &a, 1), HV_OK);
  assert_int_equal(put(s, &b, 2), HV_EXISTS);
  assert_string_equal(got(s, "k", NULL), "a");
  assert_int_equal(put(s, &c, 3), HV_OK);
  assert_string_equal(got(s, "k", NULL), "c");
  close_shelf(s);
}

static void copies_handed_round_do_not_live_longer_each_time(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_record a = record_of("k", NULL, "a", 60000);
  assert_int_equal(put(s, &a, 1), HV_OK);
  for (int hop = 0; hop < 100; hop++) { /* each hop took 50 ms, and says what it was told when it left */
    wait(s, 50);
    a.ttl_ms = (uint32_t)(60000 - 50 * hop);
    assert_int_equal(put(s, &a, (uint64_t)(2 + hop)), HV_OK);
  }
  wait(s, 60000 - 5000);
  assert_string_equal(got(s, "k", NULL), "");
  close_shelf(s);
}

static void subkeys_are_records_of_their_own(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_record a = record_of("k", "1", "one", 5000), b = record_of("k", "2", "two", 9000), c = record_of("k", "", "empty", 9000),
            d = record_of("k", NULL, "plain", 9000);
  put(s, &a, 1), put(s, &b, 2), put(s, &c, 3), put(s, &d, 4);
  assert_int_equal(s->store.keys.n, 1);
  assert_string_equal(got(s, "k", "1"), "one");
  assert_string_equal(got(s, "k", ""), "empty");
  assert_string_equal(got(s, "k", NULL), "plain");
  wait(s, 6000);
  assert_string_equal(got(s, "k", "1"), "");
  assert_string_equal(got(s, "k", "2"), "two");
  close_shelf(s);
}

/* ---- owners ---- */

static void an_owned_record_needs_its_owners_signature(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50), other = fake_peer(51);
  const char *key = owned(s, "k", &owner);
  hv_record plain = record_of(key, NULL, "v", 5000), right = signed_by(s, &owner, plain, 1, 5000),
            wrong = signed_by(s, &other, plain, 1, 5000);
  assert_int_equal(put(s, &plain, 1), HV_DENIED);
  assert_int_equal(put(s, &wrong, 1), HV_DENIED);
  wrong.signer = owner;
  assert_int_equal(put(s, &wrong, 1), HV_CORRUPT);
  assert_int_equal(s->store.items.n, 0);
  assert_int_equal(put(s, &right, 1), HV_OK); /* whoever brings it */
  assert_string_equal(got(s, key, NULL), "v");
  hv_record sub = record_of("k", owned(s, "sub", &owner), "v", 5000);
  assert_int_equal(put(s, &sub, 1), HV_DENIED);
  sub = signed_by(s, &owner, sub, 1, 5000);
  assert_int_equal(put(s, &sub, 1), HV_OK);
  hv_record needless = signed_by(s, &owner, record_of("k", NULL, "v", 5000), 1, 5000);
  assert_int_equal(put(s, &needless, 1), HV_DENIED); /* a signature where no owner is named says nothing */
  close_shelf(s);
}

static void nothing_of_a_signed_record_can_be_changed(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50);
  const char *key = owned(s, "k", &owner), *other_key = owned(s, "q", &owner);
  hv_record right = signed_by(s, &owner, record_of(key, "s", "v", 5000), 7, 5000), bad[9];
  for (int i = 0; i < 9; i++)
    bad[i] = right;
  bad[0].key = text(other_key), bad[1].subkey = text("t"), bad[2].subkey = text(NULL), bad[2].has_subkey = 0;
  bad[3].value = text("w"), bad[4].version++, bad[5].lease_ms++, bad[6].lease_ms--, bad[6].ttl_ms--;
  bad[7].signature[0] ^= 1, bad[8].signature[63] ^= 128;
  for (int i = 0; i < 9; i++)
    assert_int_equal(put(s, &bad[i], 1), HV_CORRUPT);
  right.ttl_ms = 5001; /* longer than was signed */
  assert_int_equal(put(s, &right, 1), HV_INVALID);
  assert_int_equal(s->store.items.n, 0);
  close_shelf(s);
}

static void highest_version_of_an_owner_stays(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50);
  const hv_store_item *stands;
  const char *key = owned(s, "k", &owner);
  hv_record old = signed_by(s, &owner, record_of(key, NULL, "old", 60000), 5, 60000),
            new = signed_by(s, &owner, record_of(key, NULL, "new", 10000), 6, 10000),
            twin = signed_by(s, &owner, record_of(key, NULL, "twin", 60000), 6, 60000);
  assert_int_equal(put(s, &old, 1), HV_OK);
  assert_int_equal(put(s, &new, 1), HV_OK);
  hv_peer_id by = fake_peer(2);
  assert_int_equal(hv_store_put(&s->store, &old, &by, &stands), HV_EXISTS);
  assert_int_equal(stands->version, 6);          /* so that the owner can count on from there */
  assert_int_equal(put(s, &twin, 1), HV_EXISTS); /* an owner that says two things at once: the first stays */
  assert_string_equal(got(s, key, NULL), "new");
  close_shelf(s);
}

static void relay_does_not_change_the_expiry_of_a_signed_record(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50);
  const char *key = owned(s, "k", &owner);
  hv_record r = signed_by(s, &owner, record_of(key, NULL, "v", 10000), 5, 10000);
  r.ttl_ms = 4000;
  assert_int_equal(put(s, &r, 1), HV_OK);
  r.ttl_ms = 10000; /* a replay, for as long as it can */
  assert_int_equal(put(s, &r, 2), HV_OK);
  r.ttl_ms = 1; /* or to have it die */
  assert_int_equal(put(s, &r, 2), HV_OK);
  wait(s, 3999);
  assert_string_equal(got(s, key, NULL), "v");
  r.ttl_ms = 10000; /* only the owner itself may */
  assert_int_equal(put_by(s, &r, &owner), HV_OK);
  wait(s, 9999);
  assert_string_equal(got(s, key, NULL), "v");
  wait(s, 1);
  assert_string_equal(got(s, key, NULL), "");
  close_shelf(s);
}

static void ended_record_does_not_return(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50);
  const char *key = owned(s, "k", &owner);
  hv_record old = signed_by(s, &owner, record_of(key, NULL, "old", 5000), 4, 5000),
            r = signed_by(s, &owner, record_of(key, NULL, "v", 5000), 5, 5000),
            next = signed_by(s, &owner, record_of(key, NULL, "next", 5000), 6, 5000);
  assert_int_equal(put(s, &r, 1), HV_OK);
  wait(s, 5000);
  for (int minute = 0; minute < 59; minute++) {
    assert_int_equal(put(s, &r, 2), HV_EXISTS);
    assert_int_equal(put(s, &old, 2), HV_EXISTS);
    wait(s, 60000);
  }
  assert_int_equal(hv_store_count(&s->store), 0);
  assert_int_equal(put_by(s, &old, &owner), HV_EXISTS); /* the owner does not go back either */
  assert_int_equal(put_by(s, &r, &owner), HV_OK);       /* but may say it again in person */
  assert_string_equal(got(s, key, NULL), "v");
  assert_int_equal(put(s, &next, 2), HV_OK);
  assert_string_equal(got(s, key, NULL), "next");
  wait(s, 5000 + 3600000);
  hv_store_expire(&s->store);
  assert_int_equal(s->store.items.n, 0); /* a tombstone ends, too */
  close_shelf(s);
}

/* A trainer says how far it is, for a minute at most. When it has ended that is over, and what it stored for longer is not. */
static void records_of_an_ended_owner_are_removed(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id ended = fake_peer(3), other = fake_peer(4);
  const hv_record said[] = {
      signed_by(s, &ended, record_of("run", owned(s, "0", &ended), "epoch 3", 30000), 1, 60000),
      signed_by(s, &ended, record_of("run", owned(s, "1", &ended), "an archive", 30000), 1, 60001),
      signed_by(s, &other, record_of("run", owned(s, "0", &other), "epoch 3", 30000), 1, 60000),
  };
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(hv_store_put(&s->store, &said[i], &other, NULL), HV_OK);
  hv_store_owner_ended(&s->store, &ended);
  hv_hash place = place_of(s, text("run"));
  hv_record shown;
  int archive = 0, others = 0, all = 0;
  for (const hv_store_item *item = hv_store_first(&s->store, &place); item; item = item->next)
    if (hv_store_show(&s->store, item, &shown) && shown.value.size) {
      all++;
      archive += hv_span_equal(shown.subkey, said[1].subkey);
      others += hv_span_equal(shown.subkey, said[2].subkey);
    }
  assert_true(all == 2 && archive == 1 && others == 1);
  const hv_record again = signed_by(s, &ended, record_of("run", owned(s, "0", &ended), "epoch 0", 30000), 2, 60000);
  assert_int_equal(hv_store_put(&s->store, &again, &other, NULL), HV_OK); /* a new life */
  close_shelf(s);
}

static void known_copy_is_accepted_without_a_signature_check(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50);
  hv_record r = signed_by(s, &owner, record_of(owned(s, "k", &owner), NULL, "v", 10000), 5, 10000);
  put(s, &r, 1);
  for (int i = 0; i < 10; i++)
    assert_int_equal(put(s, &r, 2), HV_OK);
  assert_int_equal(s->fake.verified, 1);
  close_shelf(s);
}

/* For any change to records on their way: none comes in that its owner did not say, and none that has ended. */
static void forgeries_replays_and_changes_do_not_come_in(void **unused) {
  (void)unused;
  enum { OWNERS = 4, VERSIONS = 4, TRIES = 20000 };
  shelf *s = open_shelf(NULL);
  check_rng rng = {99};
  static hv_record said[OWNERS][VERSIONS];
  hv_peer_id owners[OWNERS], thief = fake_peer(666);
  const char *keys[OWNERS];
  static const char *const values[VERSIONS] = {"v0", "v1", "v2", "v3"};
  for (int o = 0; o < OWNERS; o++) {
    owners[o] = fake_peer((uint64_t)(70 + o));
    keys[o] = owned(s, "k", &owners[o]);
    for (int v = 0; v < VERSIONS; v++)
      said[o][v] = signed_by(s, &owners[o], record_of(keys[o], NULL, values[v], 4000), (uint64_t)(v + 1), 4000);
    assert_int_equal(put_by(s, &said[o][VERSIONS - 1], &owners[o]), HV_OK); /* they have ended, but for the last */
  }
  for (int i = 0; i < TRIES; i++) {
    size_t o = check_random(&rng) % OWNERS, v = check_random(&rng) % VERSIONS;
    hv_record r = said[o][v];
    char value[16];
    int how = (int)(check_random(&rng) % 6);
    if (how == 0)
      r = signed_by(s, &thief, r, 9, 4000), r.signer = owners[o];
    else if (how == 1)
      r.version += 1 + check_random(&rng) % 10;
    else if (how == 2)
      r.value = hv_span_of(value, (size_t)snprintf(value, sizeof value, "x%d", i));
    else if (how == 3)
      r.key = text(keys[(o + 1) % OWNERS]);
    else if (how == 4)
      r.signature[check_random(&rng) % 64] ^= (uint8_t)(1 + check_random(&rng) % 255);
    hv_status status = put_by(s, &r, &thief); /* how 5: as it is, once more */
    int still = s->fake.now_us < 1000000 + 4000 * 1000;
    assert_true(status != HV_OK || (how == 5 && v == VERSIONS - 1 && still));
    for (int k = 0; k < OWNERS; k++)
      assert_string_equal(got(s, keys[k], NULL), still ? values[VERSIONS - 1] : "");
    wait(s, i == TRIES / 2 ? 4000 : 0);
  }
  close_shelf(s);
}

/* ---- limits ---- */

static void each_limit_is_named(void **unused) {
  (void)unused;
  static uint8_t big[HV_RECORD_VALUE_MAX + 1];
  hv_error err;
  hv_record r = {.key = hv_span_of(big, HV_RECORD_KEY_MAX), .value = hv_span_of(big, HV_RECORD_VALUE_MAX), .ttl_ms = 1};
  assert_int_equal(hv_record_check(&r, &err), HV_OK);
  r.value.size++;
  assert_int_equal(hv_record_check(&r, &err), HV_TOO_LARGE);
  assert_non_null(strstr(err.text, "65536"));
  r.value.size--, r.key.size++;
  assert_int_equal(hv_record_check(&r, &err), HV_TOO_LARGE);
  assert_non_null(strstr(err.text, "1024"));
  r.key.size--, r.has_subkey = 1, r.subkey = hv_span_of(big, HV_RECORD_KEY_MAX + 1);
  assert_int_equal(hv_record_check(&r, &err), HV_TOO_LARGE);
}

static size_t fill(shelf *s, uint64_t bringer, const char *prefix, size_t n) {
  size_t ok = 0;
  for (size_t i = 0; i < n; i++) {
    char key[40];
    snprintf(key, sizeof key, "%s%zu", prefix, i);
    hv_record r = record_of(key, NULL, "v", 60000);
    ok += put(s, &r, bringer) == HV_OK;
  }
  return ok;
}

static void a_peer_has_its_quota(void **unused) { /* defect 17 */
  (void)unused;
  shelf *s = open_shelf(&(hv_store_config){.whole = {1000, 1 << 20}, .per_peer = {10, 1 << 20}});
  assert_int_equal(fill(s, 1, "a", 50), 10);
  assert_int_equal(fill(s, 2, "b", 50), 10);
  hv_record longer = record_of("a3", NULL, "w", 90000); /* within it, it may still change its own */
  assert_int_equal(put(s, &longer, 1), HV_OK);
  hv_record other = record_of("b3", NULL, "w", 90000); /* but not take over another's beyond it */
  assert_int_equal(put(s, &other, 1), HV_BUDGET);
  assert_string_equal(got(s, "b3", NULL), "v");
  close_shelf(s);
}

static void quota_of_a_signer_holds_for_any_sender(void **unused) {
  (void)unused;
  shelf *s = open_shelf(&(hv_store_config){.per_signer = {5, 1 << 20}});
  hv_peer_id owner = fake_peer(50);
  size_t ok = 0;
  for (uint64_t i = 0; i < 20; i++) {
    char name[16];
    snprintf(name, sizeof name, "k%d", (int)i);
    hv_record r = signed_by(s, &owner, record_of(owned(s, name, &owner), NULL, "v", 60000), 1, 60000);
    ok += put(s, &r, 100 + i) == HV_OK;
  }
  assert_int_equal(ok, 5);
  close_shelf(s);
}

static void peer_that_stores_most_loses_records_first(void **unused) {
  (void)unused;
  shelf *s = open_shelf(&(hv_store_config){.whole = {100, 1 << 20}, .per_peer = {90, 1 << 20}});
  assert_int_equal(fill(s, 1, "greedy", 90), 90);
  assert_int_equal(fill(s, 2, "modest", 30), 30); /* all of them find a place */
  for (int i = 0; i < 30; i++) {
    char key[40];
    snprintf(key, sizeof key, "modest%d", i);
    assert_string_equal(got(s, key, NULL), "v");
  }
  assert_true(s->store.items.n <= 100);
  hv_record more = record_of("greedy-more", NULL, "v", 60000);
  fill(s, 3, "third", 10);
  while (s->store.items.n < 100)
    fill(s, 4, "fourth", 100 - s->store.items.n);
  assert_int_equal(put(s, &more, 1), HV_BUDGET); /* and whoever holds most gets no more */
  close_shelf(s);
}

static void two_peers_that_store_as_much_lose_records_by_turns(void **unused) {
  (void)unused;
  static uint8_t big[1500];
  shelf *s = open_shelf(&(hv_store_config){.whole = {1000, 16000}, .per_peer = {1000, 16000}});
  assert_int_equal(fill(s, 1, "a", 30), 30);
  assert_int_equal(fill(s, 2, "b", 30), 30);
  hv_record large = {.key = text("large"), .value = hv_span_of(big, sizeof big), .ttl_ms = 60000};
  assert_int_equal(put(s, &large, 3), HV_OK);
  size_t left[3] = {0};
  for (size_t i = 0; i < s->store.items.room; i++)
    for (hv_table_node *node = s->store.items.chains[i]; node; node = node->next)
      for (uint64_t by = 1; by < 3; by++) {
        hv_peer_id id = fake_peer(by);
        left[by] += hv_peer_equal(&HV_HOLDER(hv_store_item, node, node)->bringer->id, &id);
      }
  assert_true(left[1] < 30 && left[2] < 30 && left[1] + 1 >= left[2] && left[2] + 1 >= left[1]);
  close_shelf(s);
}

static double processor_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The cost of one more record for a full store of so many, that half as many peers have filled: by processor time, the best of
 * some. */
static double cost_in_full_store(size_t records) {
  enum { TIMES = 3, PUTS = 32 }; /* so few that somebody always holds two */
  shelf *s = open_shelf(&(hv_store_config){.whole = {records, (size_t)1 << 30}});
  double best = 1e9;
  for (size_t by = 0; by < records / 2; by++) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%zu/", by);
    assert_int_equal(fill(s, 10 + by, prefix, 2), 2);
  }
  for (int i = 0; i < TIMES; i++) {
    double before = processor_s();
    for (int k = 0; k < PUTS; k++) {
      char prefix[32];
      snprintf(prefix, sizeof prefix, "new%d.%d/", i, k);
      assert_int_equal(fill(s, (uint64_t)(1000000 + 1000 * i + k), prefix, 1), 1);
    }
    double took = processor_s() - before;
    best = took < best ? took : best;
  }
  assert_int_equal(s->store.evicted, TIMES * PUTS);
  close_shelf(s);
  return best;
}

/* 256 times as much is kept; a put that looked through all of it would cost that much more. */
static void a_put_costs_no_more_where_much_is_kept(void **unused) {
  (void)unused;
  assert_true(cost_in_full_store(65536) < 40 * cost_in_full_store(256));
}

static void full_key_refuses_its_largest_peer_and_accepts_others(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  char sub[16];
  for (int i = 0; i < HV_STORE_KEY_RECORDS_MAX; i++) {
    snprintf(sub, sizeof sub, "%d", i);
    hv_record r = record_of("dictionary", sub, "v", 60000);
    assert_int_equal(put(s, &r, 1), HV_OK);
  }
  hv_record more = record_of("dictionary", "more", "v", 60000), mine = record_of("dictionary", "mine", "v", 60000);
  assert_int_equal(put(s, &more, 1), HV_BUDGET);
  assert_int_equal(put(s, &mine, 2), HV_OK);
  assert_string_equal(got(s, "dictionary", "mine"), "v");
  close_shelf(s);
}

/* Puts subkeys of one dictionary, each brought by another key, and returns how many were kept. */
static size_t put_many(shelf *s, const char *name, size_t n, uint64_t network) {
  size_t kept = 0;
  for (uint64_t i = 0; i < n; i++) {
    char sub[32];
    snprintf(sub, sizeof sub, "%s%zu", name, (size_t)i);
    hv_record r = record_of("dictionary", sub, "v", 60000);
    kept += put_from(s, &r, 1000 * network + i, network) == HV_OK;
  }
  return kept;
}

/* A thousand keys of one network are as one: they make way for those of other networks, and do not come back for them. */
static void keys_of_one_network_crowd_nobody_out_of_a_key(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  assert_int_equal(put_many(s, "honest", 50, 5), 50);
  assert_int_equal(put_many(s, "crowd", HV_STORE_KEY_RECORDS_MAX, 7), HV_STORE_KEY_RECORDS_MAX - 50);
  assert_int_equal(put_many(s, "more", 50, 6), 50);
  assert_int_equal(put_many(s, "again", 50, 7), 0);
  for (int i = 0; i < 50; i++) {
    char sub[32];
    snprintf(sub, sizeof sub, "honest%d", i);
    assert_string_equal(got(s, "dictionary", sub), "v");
    snprintf(sub, sizeof sub, "more%d", i);
    assert_string_equal(got(s, "dictionary", sub), "v");
  }
  close_shelf(s);
}

static void full_key_keeps_signed_subkeys_before_unsigned(void **unused) {
  (void)unused;
  shelf *s = open_shelf(NULL);
  hv_peer_id owner = fake_peer(50);
  hv_record mine = signed_by(s, &owner, record_of("dictionary", owned(s, "s", &owner), "mine", 60000), 1, 60000);
  for (uint64_t i = 0; i < HV_STORE_KEY_RECORDS_MAX; i++) { /* each of a network of its own */
    char sub[32];
    snprintf(sub, sizeof sub, "%d", (int)i);
    hv_record r = record_of("dictionary", sub, "", 60000);
    assert_int_equal(put_from(s, &r, 100 + i, 100 + i), HV_OK);
  }
  assert_int_equal(put_from(s, &mine, 100, 100), HV_OK); /* also from a bringer of what is unsigned */
  hv_record more = record_of("dictionary", "more", "", 60000);
  assert_int_equal(put_from(s, &more, 5000, 5000), HV_BUDGET);
  assert_string_equal(got(s, "dictionary", owned(s, "s", &owner)), "mine");
  close_shelf(s);
}

static void a_network_has_its_quota(void **unused) {
  (void)unused;
  shelf *s = open_shelf(&(hv_store_config){.whole = {100, 1 << 20}, .per_network = {40, 1 << 20}});
  size_t kept[2] = {0, 0};
  for (uint64_t i = 0; i < 60; i++) {
    char key[16];
    snprintf(key, sizeof key, "a%d", (int)i);
    hv_record r = record_of(key, NULL, "v", 60000);
    kept[0] += put_from(s, &r, i, 9) == HV_OK;
    key[0] = 'b';
    kept[1] += put_from(s, &r, 100 + i, 0) == HV_OK; /* of private networks each is its own */
  }
  assert_int_equal(kept[0], 40);
  assert_int_equal(kept[1], 60);
  close_shelf(s);
}

static hv_status only_even(void *arg, const hv_hash *place, const hv_record *record) {
  (void)arg, (void)place;
  return record->value.size % 2 ? HV_DENIED : HV_OK;
}

static void validator_accepts_or_refuses_each_record(void **unused) {
  (void)unused;
  shelf *s = open_shelf(&(hv_store_config){.accept = only_even});
  hv_record odd = record_of("k", NULL, "odd", 1000), even = record_of("k", NULL, "even", 1000);
  assert_int_equal(put(s, &odd, 1), HV_DENIED);
  assert_int_equal(put(s, &even, 1), HV_OK);
  close_shelf(s);
}

/* ---- all together ---- */

/* Nobody's first is later than another of its own, nobody holds more than the fullest of its network, and no network more than the
 * fullest. */
static void check_heaps(const hv_store *store, const hv_store_item *item) {
  const hv_store_account *most = HV_HOLDER(const hv_store_account, rank, store->fullest);
  const hv_store_item *first = HV_HOLDER(const hv_store_item, brought, item->bringer->below);
  double records = (double)item->bringer->records / (double)store->config.whole.records;
  double bytes = (double)item->bringer->bytes / (double)store->config.whole.bytes;
  assert_true(HV_HOLDER(const hv_store_item, ending, store->ends)->end_us <= item->end_us);
  assert_true(first->bringer == item->bringer && first->end_us <= item->end_us);
  const hv_store_account *home = item->bringer->home, *top = HV_HOLDER(const hv_store_account, rank, home->below);
  assert_true(item->bringer->share == (records > bytes ? records : bytes) && item->bringer->share <= top->share);
  assert_true(top->home == home && home->share <= most->share && item->bringer->network == home->network);
}

static void check_sums(const hv_store *store) {
  assert_int_equal(store->fullest != NULL, store->items.n > 0);
  assert_int_equal(store->ends != NULL, store->items.n > 0);
  size_t items = 0, bytes = 0, dead = 0, keys = 0, accounts = 0, records = 0, account_bytes = 0;
  for (size_t i = 0; i < store->keys.room; i++)
    for (hv_table_node *node = store->keys.chains[i]; node; node = node->next, keys++) {
      const hv_store_key *key = HV_HOLDER(const hv_store_key, node, node);
      size_t n = 0, of_key = 0;
      for (hv_store_item *item = key->items; item; item = item->next) {
        n++, of_key += item->size, dead += item->dead;
        records += 2 + (item->signer != NULL), account_bytes += item->size * (item->signer ? 3u : 2u);
        check_heaps(store, item);
      }
      assert_true(n > 0);
      assert_int_equal(n, key->n);
      assert_int_equal(of_key, key->bytes);
      items += n, bytes += of_key;
    }
  for (size_t i = 0; i < store->accounts.room; i++)
    for (hv_table_node *node = store->accounts.chains[i]; node; node = node->next, accounts++) {
      const hv_store_account *account = HV_HOLDER(const hv_store_account, node, node);
      records -= account->records, account_bytes -= account->bytes;
    }
  assert_int_equal(records, 0);
  assert_int_equal(account_bytes, 0);
  assert_int_equal(items, store->items.n);
  assert_int_equal(bytes, store->bytes);
  assert_int_equal(dead, store->n_dead);
  assert_int_equal(keys, store->keys.n);
  assert_int_equal(accounts, store->accounts.n);
}

static void sums_stay_right_under_random_operations(void **unused) {
  (void)unused;
  shelf *s =
      open_shelf(&(hv_store_config){.whole = {200, 90000}, .per_peer = {80, 40000}, .per_signer = {40, 20000}, .tomb_ms = 20000});
  check_rng rng = {5};
  static const uint8_t bytes[3000] = {1};
  for (int round = 0; round < 30000; round++) {
    uint64_t r = check_random(&rng);
    char name[16], sub[8];
    hv_peer_id owner = fake_peer(50 + r % 7), by = r & 64 ? owner : fake_peer(r >> 8 & 15);
    snprintf(name, sizeof name, "k%d", (int)(r >> 12 & 63));
    snprintf(sub, sizeof sub, "s%d", (int)(r >> 18 & 3));
    int is_signed = r >> 20 & 1;
    hv_record record =
        record_of(is_signed ? owned(s, name, &owner) : name, r >> 21 & 1 ? sub : NULL, "", (uint32_t)(1000 + (r >> 22 & 16383)));
    record.value = hv_span_of(bytes, (size_t)(r >> 36 & 2047));
    if (is_signed)
      record = signed_by(s, &owner, record, 1 + (r >> 48 & 7), 20000);
    hv_store_put_from(&s->store, &record, &by, r >> 60 & 3, NULL);
    wait(s, r >> 52 & 127);
    assert_true(s->store.items.n <= 200 && s->store.bytes <= 90000);
    if (round % 64 == 0)
      check_sums(&s->store);
  }
  assert_true(s->store.evicted > 100 && s->store.refused > 100);
  wait(s, 3600000);
  hv_store_expire(&s->store);
  check_sums(&s->store);
  assert_int_equal(s->store.items.n, 0);
  close_shelf(s);
}

static hv_status run_without_memory(hv_mem *mem, void *arg) {
  fake_env fake;
  hv_store store;
  (void)arg;
  fake_env_init_on(&fake, 1, mem);
  hv_status status = hv_store_init(&store, &fake.env, &(hv_store_config){0});
  if (status != HV_OK)
    return status;
  hv_peer_id by = fake_peer(1);
  for (int i = 0; i < 70; i++) {
    char key[8];
    snprintf(key, sizeof key, "%d", i % 66);
    hv_record r = record_of(key, i % 2 ? "s" : NULL, i < 66 ? "v" : "w", (uint32_t)(1000 + i * 100));
    hv_status one = hv_store_put(&store, &r, &by, NULL);
    status = one == HV_OK ? status : one;
    check_sums(&store);
  }
  hv_store_fini(&store);
  return status;
}

static void store_without_memory_keeps_its_records(void **unused) {
  (void)unused;
  assert_true(check_out_of_memory(run_without_memory, NULL) > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_record_lives_as_long_as_it_was_given),
      cmocka_unit_test(no_record_lives_longer_than_the_cap),
      cmocka_unit_test(the_newest_expiry_wins),
      cmocka_unit_test(copies_handed_round_do_not_live_longer_each_time),
      cmocka_unit_test(subkeys_are_records_of_their_own),
      cmocka_unit_test(an_owned_record_needs_its_owners_signature),
      cmocka_unit_test(nothing_of_a_signed_record_can_be_changed),
      cmocka_unit_test(highest_version_of_an_owner_stays),
      cmocka_unit_test(relay_does_not_change_the_expiry_of_a_signed_record),
      cmocka_unit_test(ended_record_does_not_return),
      cmocka_unit_test(records_of_an_ended_owner_are_removed),
      cmocka_unit_test(known_copy_is_accepted_without_a_signature_check),
      cmocka_unit_test(forgeries_replays_and_changes_do_not_come_in),
      cmocka_unit_test(each_limit_is_named),
      cmocka_unit_test(a_peer_has_its_quota),
      cmocka_unit_test(quota_of_a_signer_holds_for_any_sender),
      cmocka_unit_test(peer_that_stores_most_loses_records_first),
      cmocka_unit_test(two_peers_that_store_as_much_lose_records_by_turns),
      cmocka_unit_test(a_put_costs_no_more_where_much_is_kept),
      cmocka_unit_test(full_key_refuses_its_largest_peer_and_accepts_others),
      cmocka_unit_test(keys_of_one_network_crowd_nobody_out_of_a_key),
      cmocka_unit_test(full_key_keeps_signed_subkeys_before_unsigned),
      cmocka_unit_test(a_network_has_its_quota),
      cmocka_unit_test(validator_accepts_or_refuses_each_record),
      cmocka_unit_test(sums_stay_right_under_random_operations),
      cmocka_unit_test(store_without_memory_keeps_its_records),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
