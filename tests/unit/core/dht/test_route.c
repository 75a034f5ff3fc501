/* The k-buckets: who is in them, who is not, and who is nearest. */
#include "lib/fake_env.h"

#include "core/dht/route.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000)

typedef struct table {
  fake_env fake;
  hv_route route;
} table;

static void open_table(table *t, size_t bucket_size) {
  fake_env_init(&t->fake, 1);
  hv_route_config config = {.me = t->fake.me, .bucket_size = bucket_size};
  hv_route_init(&t->route, &t->fake.env, &config);
}

static void close_table(table *t) {
  hv_route_fini(&t->route);
  assert_int_equal(t->fake.mem.blocks, 0);
}

static hv_addr address(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return (hv_addr){.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {a, b, c, d}};
}

static size_t bucket_of(table *t, const hv_peer_id *id) {
  hv_hash hash;
  hv_route_hash(&t->fake.env, id, &hash);
  return (size_t)hv_hash_shared_bits(&t->route.me, &hash);
}

/* The next peer (from *number on) whose bucket is the given one. */
static hv_peer_id peer_in(table *t, size_t bucket, uint64_t *number) {
  hv_peer_id id;
  do
    id = fake_peer(++*number);
  while (bucket_of(t, &id) != bucket);
  return id;
}

/* Likewise in one eighth of that bucket. */
static hv_peer_id peer_in_part(table *t, size_t bucket, unsigned part, uint64_t *number) {
  hv_peer_id id;
  hv_hash hash;
  do {
    id = peer_in(t, bucket, number);
    hv_route_hash(&t->fake.env, &id, &hash);
  } while ((unsigned)((hash.bytes[0] << 8 | hash.bytes[1]) >> (12 - bucket) & 7) != part);
  return id;
}

static int answered(table *t, const hv_peer_id *id, hv_addr addr) {
  return hv_route_answered(&t->route, id, &addr, 1, 20000);
}

static hv_hash hash_of(table *t, const hv_peer_id *id) {
  hv_hash hash;
  hv_route_hash(&t->fake.env, id, &hash);
  return hash;
}

static void node_that_answered_is_in_its_bucket(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 20);
  for (uint64_t i = 1; i <= 15; i++) {
    hv_peer_id id = fake_peer(i);
    assert_true(answered(&t, &id, address(10, 0, 0, (uint8_t)i)));
    assert_non_null(hv_route_find(&t.route, &id));
    assert_true(answered(&t, &id, address(10, 0, 0, (uint8_t)i))); /* twice is once */
  }
  assert_int_equal(t.route.n, 15);
  for (size_t b = 0; b < HV_ROUTE_BUCKETS; b++)
    for (size_t i = 0; i < t.route.buckets[b].n; i++)
      assert_int_equal(bucket_of(&t, &t.route.buckets[b].contacts[i]->id), b);
  close_table(&t);
}

static void own_and_empty_ids_are_not_entered(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 20);
  hv_peer_id nobody = {{0}}, other = fake_peer(1);
  assert_false(answered(&t, &t.fake.me, address(10, 0, 0, 1)));
  assert_false(answered(&t, &nobody, address(10, 0, 0, 1)));
  assert_false(hv_route_answered(&t.route, &other, NULL, 0, 1)); /* nobody could dial it */
  assert_int_equal(t.route.n, 0);
  close_table(&t);
}

static void full_bucket_keeps_its_contacts(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 3);
  uint64_t number = 0;
  hv_peer_id old[3], late;
  for (int i = 0; i < 3; i++) {
    old[i] = peer_in_part(&t, 1, 3, &number);
    assert_true(answered(&t, &old[i], address(10, 0, 0, (uint8_t)(i + 1))));
    t.fake.now_us += SECOND;
  }
  late = peer_in_part(&t, 1, 3, &number);
  hv_hash hash = hash_of(&t, &late);
  assert_false(answered(&t, &late, address(10, 0, 0, 9)));
  assert_null(hv_route_doubtful(&t.route, &hash)); /* all were heard of lately */
  t.fake.now_us += 60 * SECOND;
  const hv_route_contact *doubtful = hv_route_doubtful(&t.route, &hash);
  assert_non_null(doubtful);
  assert_true(hv_peer_equal(&doubtful->id, &old[0]));
  assert_true(answered(&t, &old[0], address(10, 0, 0, 1))); /* it lives: now another is the oldest */
  doubtful = hv_route_doubtful(&t.route, &hash);
  assert_true(hv_peer_equal(&doubtful->id, &old[1]));
  hv_route_silence(&t.route, &old[1]); /* it does not: the one that waited takes its place */
  assert_non_null(hv_route_find(&t.route, &late));
  assert_null(hv_route_find(&t.route, &old[1]));
  assert_int_equal(t.route.n, 3);
  close_table(&t);
}

static void a_newcomer_takes_the_place_of_a_silent_one_at_once(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 2);
  uint64_t number = 0;
  hv_peer_id a = peer_in_part(&t, 1, 3, &number), b = peer_in_part(&t, 1, 3, &number), c = peer_in_part(&t, 1, 3, &number);
  hv_hash hash = hash_of(&t, &c);
  answered(&t, &a, address(10, 0, 0, 1)), answered(&t, &b, address(10, 0, 0, 2));
  assert_false(hv_route_wants(&t.route, &c, &hash));
  hv_route_silence(&t.route, &a);
  assert_true(hv_route_wants(&t.route, &c, &hash));
  assert_true(answered(&t, &c, address(10, 0, 0, 3)));
  assert_null(hv_route_find(&t.route, &a));
  close_table(&t);
}

static void nearest_nodes_are_known_only_after_their_buckets_were_asked(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 3);
  uint64_t number = 0;
  hv_peer_id far = peer_in(&t, 0, &number), near = peer_in(&t, 1, &number);
  hv_hash there = hash_of(&t, &far);
  assert_false(hv_route_knows(&t.route, &there, 2)); /* nobody is known at all */
  answered(&t, &far, address(10, 0, 0, 1)), answered(&t, &near, address(10, 0, 0, 2));
  assert_false(hv_route_knows(&t.route, &there, 2)); /* who else stands there has not been asked */
  t.route.buckets[0].looked_us = t.route.buckets[1].looked_us = 1;
  assert_true(hv_route_knows(&t.route, &there, 2));
  assert_true(hv_route_knows(&t.route, &there, 20)); /* all there are */
  for (uint8_t i = 0; i < 3; i++) {
    hv_peer_id more = peer_in(&t, 1, &number);
    answered(&t, &more, address(10, 0, 0, (uint8_t)(3 + i)));
  }
  hv_hash here = hash_of(&t, &near);
  assert_false(hv_route_knows(&t.route, &here, 2)); /* its bucket is full, and one was left out */
  assert_true(hv_route_knows(&t.route, &there, 1));
  assert_false(hv_route_knows(&t.route, &there, 2)); /* the next of it would be in there */
  close_table(&t);
}

static void two_of_a_network_are_enough_for_a_bucket(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 20);
  uint64_t number = 0;
  hv_peer_id ids[4];
  for (int i = 0; i < 4; i++)
    ids[i] = peer_in(&t, 0, &number);
  assert_true(answered(&t, &ids[0], address(203, 0, 113, 1)));
  assert_true(answered(&t, &ids[1], address(203, 0, 113, 2)));
  assert_false(answered(&t, &ids[2], address(203, 0, 113, 3)));
  assert_true(answered(&t, &ids[2], address(203, 0, 114, 3)));
  assert_false(answered(&t, &ids[2], address(203, 0, 113, 3))); /* nor by moving there */
  assert_null(hv_route_find(&t.route, &ids[2]));
  hv_peer_id elsewhere = peer_in(&t, 1, &number); /* another bucket counts for itself */
  assert_true(answered(&t, &elsewhere, address(203, 0, 113, 4)));
  for (int i = 0; i < 12; i++) { /* a private network may be anybody's house */
    hv_peer_id id = peer_in(&t, 0, &number);
    assert_true(answered(&t, &id, address(192, 168, 1, (uint8_t)(i + 1))));
  }
  close_table(&t);
}

static void networks_are_told_apart_by_kind(void **unused) {
  (void)unused;
  hv_addr a = {.kind = HV_ADDR_IP6, .host.ip = {0x20, 1, 0xd, 0xb8, 0, 1, 0, 1}}, b = a, c = a;
  b.host.ip[7] = 9;
  c.host.ip[5] = 2;
  assert_true(hv_contact_network(&a) == hv_contact_network(&b)); /* one /48 */
  assert_true(hv_contact_network(&a) != hv_contact_network(&c));
  hv_addr d = {.kind = HV_ADDR_DNS, .host.name = "a.example.org"}, e = {.kind = HV_ADDR_DNS4, .host.name = "b.c.example.org"},
          f = {.kind = HV_ADDR_DNS, .host.name = "example.net"};
  assert_true(hv_contact_network(&d) == hv_contact_network(&e)); /* one domain, however it is asked for */
  assert_true(hv_contact_network(&d) != hv_contact_network(&f));
  hv_addr home = address(127, 0, 0, 1);
  assert_int_equal(hv_contact_network(&home), 0);
}

static void silent_node_is_not_named_until_it_answers(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 20);
  const hv_route_contact *out[4];
  hv_peer_id a = fake_peer(1), b = fake_peer(2);
  answered(&t, &a, address(10, 0, 0, 1)), answered(&t, &b, address(10, 0, 0, 2));
  hv_hash target = hash_of(&t, &a);
  hv_route_silence(&t.route, &a);
  assert_int_equal(hv_route_nearest(&t.route, &target, NULL, out, 4), 1);
  assert_true(hv_peer_equal(&out[0]->id, &b));
  assert_non_null(hv_route_find(&t.route, &a)); /* but stays known */
  answered(&t, &a, address(10, 0, 0, 1));
  assert_int_equal(hv_route_nearest(&t.route, &target, NULL, out, 4), 2);
  close_table(&t);
}

static void silence_is_respected_for_longer_and_longer(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 20);
  hv_peer_id in = fake_peer(1), beside = fake_peer(2);
  answered(&t, &in, address(10, 0, 0, 1));
  for (uint64_t pause = 5; pause <= 20; pause *= 2) {
    hv_route_silence(&t.route, &in), hv_route_silence(&t.route, &beside);
    assert_null(hv_route_to_retry(&t.route));
    t.fake.now_us += pause * SECOND - 1;
    assert_true(hv_route_is_silent(&t.route, &in) && hv_route_is_silent(&t.route, &beside));
    t.fake.now_us += 1;
    assert_false(hv_route_is_silent(&t.route, &in) || hv_route_is_silent(&t.route, &beside));
    assert_true(hv_peer_equal(&hv_route_to_retry(&t.route)->id, &in));
  }
  close_table(&t);
}

static hv_hash sort_target;
static int by_distance(const void *a, const void *b) {
  return hv_hash_nearer(&sort_target, a, b);
}

static void nearest_nodes_are_found_in_order(void **unused) {
  (void)unused;
  table t;
  open_table(&t, 20);
  for (uint64_t i = 1; i <= 600; i++) {
    hv_peer_id id = fake_peer(i);
    answered(&t, &id, address(10, 0, (uint8_t)(i >> 8), (uint8_t)i));
  }
  for (int round = 0; round < 200; round++) {
    hv_hash all[600];
    const hv_route_contact *out[20];
    size_t n = 0, most = 1 + check_random(&t.fake.rng) % 20;
    for (size_t b = 0; b < HV_ROUTE_BUCKETS; b++)
      for (size_t i = 0; i < t.route.buckets[b].n; i++)
        all[n++] = t.route.buckets[b].contacts[i]->hash;
    t.fake.env.random(&t.fake.env, &sort_target, sizeof sort_target);
    if (round % 3 == 0) { /* near to this node, where buckets are deep */
      hv_hash me = t.route.me;
      memcpy(sort_target.bytes, me.bytes, 1);
      sort_target.bytes[1] = (uint8_t)(me.bytes[1] ^ (uint8_t)(round & 7));
    }
    qsort(all, n, sizeof *all, by_distance);
    assert_int_equal(hv_route_nearest(&t.route, &sort_target, NULL, out, most), most);
    for (size_t i = 0; i < most; i++)
      assert_memory_equal(&out[i]->hash, &all[i], sizeof *all);
    const hv_route_contact *but[20];
    assert_int_equal(hv_route_nearest(&t.route, &sort_target, &out[0]->id, but, most), most);
    assert_memory_equal(&but[0]->hash, &all[1], sizeof *all);
  }
  close_table(&t);
}

static void how_many_nodes_there_are_is_seen_from_the_neighbours(void **unused) {
  (void)unused;
  for (size_t nodes = 100; nodes <= 10000; nodes *= 10) {
    table t;
    open_table(&t, 20);
    assert_true(hv_route_bits(&t.route, 5) == 0); /* nobody is known */
    for (uint64_t i = 1; i <= nodes; i++) {
      hv_peer_id id = fake_peer(i);
      answered(&t, &id, address(10, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i));
    }
    assert_true(fabs(hv_route_bits(&t.route, 5) - log2((double)nodes / 5)) < 1.2);
    close_table(&t);
  }
}

/* Many stand within a 256th of the space around me: whoever looks elsewhere sees that it is a crowd. */
static void a_crowd_around_me_is_not_the_whole_swarm(void **unused) {
  (void)unused;
  table t;
  hv_hash distance = {{0}};
  open_table(&t, 20);
  for (uint64_t i = 1; i <= 20000; i++) {
    hv_peer_id id = fake_peer(i);
    hv_hash hash;
    hv_route_hash(t.route.env, &id, &hash);
    if (hv_hash_shared_bits(&t.route.me, &hash) >= 8)
      answered(&t, &id, address(10, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i));
  }
  assert_true(hv_route_bits(&t.route, 1) > 13); /* nothing else is known */
  uint64_t number = 0;
  for (int i = 0; i < 16; i++) {
    hv_peer_id id = peer_in(&t, 0, &number);
    answered(&t, &id, address(10, 1, 0, (uint8_t)i));
  }
  assert_true(fabs(hv_route_bits(&t.route, 1) - 5) < 0.01); /* half of the space holds 16: there are 32 */
  for (int i = 0; i < 24; i++) {
    hv_peer_id id = peer_in(&t, 0, &number);
    assert_false(hv_route_lacks_sample(&t.route, 0));
    answered(&t, &id, address(10, 2, 0, (uint8_t)i));
  }
  assert_true(hv_route_lacks_sample(&t.route, 0)); /* it is full: how many more there are, it cannot say */
  assert_true(hv_route_bits(&t.route, 1) > 13);
  distance.bytes[0] = 0x90;
  hv_route_sample(&t.route, 0, &distance, 16); /* not all within that bucket: nothing that counts */
  assert_true(hv_route_lacks_sample(&t.route, 0));
  distance.bytes[0] = 0x20; /* an eighth of the space holds 16: there are 128 */
  hv_route_sample(&t.route, 0, &distance, 16);
  assert_false(hv_route_lacks_sample(&t.route, 0));
  assert_true(fabs(hv_route_bits(&t.route, 1) - 7) < 0.01);
  for (int i = 0; i < 4; i++) { /* few say little: four in an eighth, as if there were 32 */
    hv_peer_id id = peer_in(&t, 2, &number);
    answered(&t, &id, address(10, 3, 0, (uint8_t)i));
  }
  assert_true(fabs(hv_route_bits(&t.route, 1) - 7) < 0.01);
  distance.bytes[0] = 0x10; /* 256: the last one counts */
  hv_route_sample(&t.route, 0, &distance, 16);
  assert_true(fabs(hv_route_bits(&t.route, 1) - 8) < 0.01);
  close_table(&t);
}

/* Twenty stand near me: wherever they begin, they are one word, and the others of a swarm of a hundred are the rest. */
static void a_crowd_near_me_counts_once(void **unused) {
  (void)unused;
  for (size_t shared = 3; shared <= 7; shared++) {
    table t;
    open_table(&t, 20);
    for (uint64_t i = 1; i <= 100; i++) {
      hv_peer_id id = fake_peer(i);
      answered(&t, &id, address(10, 0, 0, (uint8_t)i));
    }
    uint64_t number = 1000;
    for (int i = 0; i < 20; i++) {
      hv_peer_id id = peer_in(&t, shared, &number);
      answered(&t, &id, address(10, 1, 0, (uint8_t)i));
    }
    hv_hash distance = {{0x51}};
    hv_route_sample(&t.route, 0, &distance, 16); /* half of the space holds 50 */
    distance.bytes[0] = 0x50;
    hv_route_sample(&t.route, 1, &distance, 16);
    assert_true(fabs(hv_route_bits(&t.route, 1) - log2(100)) < 1);
    close_table(&t);
  }
}

/* The farthest half of a swarm of a few dozen has room, however its nodes fell. */
static void the_first_bucket_has_room_for_two(void **unused) {
  (void)unused;
  table t;
  uint64_t number = 0;
  open_table(&t, 3);
  for (uint8_t i = 0; i < 7; i++) {
    hv_peer_id far = peer_in_part(&t, 0, 5, &number), near = peer_in_part(&t, 1, 5, &number);
    assert_int_equal(answered(&t, &far, address(10, 0, 0, i)), i < 6);
    assert_int_equal(answered(&t, &near, address(10, 0, 1, i)), i < 3);
  }
  assert_int_equal(hv_route_room(&t.route, 0), 6);
  assert_int_equal(hv_route_room(&t.route, 1), 3);
  assert_int_equal(t.route.n, 9);
  close_table(&t);
}

/* Twenty who stand together fill a bucket; whoever stands elsewhere in it finds a place all the same, until the parts
 * are even. */
static void a_crowd_does_not_keep_others_out_of_its_bucket(void **unused) {
  (void)unused;
  table t;
  uint64_t number = 0;
  open_table(&t, 20);
  for (uint8_t i = 0; i < 20; i++) {
    hv_peer_id id = peer_in_part(&t, 2, 6, &number);
    assert_true(answered(&t, &id, address(10, 0, 0, i)));
  }
  hv_peer_id more = peer_in_part(&t, 2, 6, &number);
  hv_hash there = hash_of(&t, &more);
  assert_false(answered(&t, &more, address(10, 0, 1, 0)));
  assert_false(hv_route_wants(&t.route, &more, &there));
  t.route.buckets[2].left_out_us = 0;
  for (uint8_t i = 0; i < 10; i++) {
    hv_peer_id id = peer_in_part(&t, 2, 1, &number);
    hv_hash hash = hash_of(&t, &id);
    assert_true(hv_route_wants(&t.route, &id, &hash));
    assert_true(answered(&t, &id, address(10, 0, 2, i)));
    assert_true(t.route.buckets[2].left_out_us); /* not everybody is in there */
  }
  hv_peer_id eleventh = peer_in_part(&t, 2, 1, &number), third = peer_in_part(&t, 2, 4, &number);
  assert_false(answered(&t, &eleventh, address(10, 0, 3, 0))); /* ten and ten */
  assert_true(answered(&t, &third, address(10, 0, 3, 1)));
  assert_int_equal(t.route.buckets[2].n, 20);
  close_table(&t);
}

static void packed_addresses_come_back(void **unused) {
  (void)unused;
  hv_addr addrs[3] = {address(1, 2, 3, 4), {.kind = HV_ADDR_DNS4, .port = 9, .host.name = "peer.example.org"}, address(5, 6, 7, 8)},
          out[3];
  uint8_t packed[HV_CONTACT_ADDRS_MAX];
  size_t size = hv_contact_pack(addrs, 3, packed);
  assert_int_equal(hv_contact_unpack(hv_span_of(packed, size), out, 3), 3);
  for (int i = 0; i < 3; i++)
    assert_true(hv_addr_equal(&addrs[i], &out[i]));
  for (size_t cut = 1; cut < size; cut++) /* whole, or not at all */
    assert_true(hv_contact_unpack(hv_span_of(packed, cut), out, 3) == 0 || cut == 9 || cut == size - 9);
  assert_int_equal(hv_contact_unpack(hv_span_of("\x03"
                                                "abc",
                                                4),
                                     out, 3),
                   0);
  memset(addrs[1].host.name, 'a', 250), addrs[1].host.name[250] = 0; /* a name that is too long to carry about */
  assert_int_equal(hv_contact_unpack(hv_span_of(packed, hv_contact_pack(addrs, 3, packed)), out, 3), 2);
}

static hv_status run_without_memory(hv_mem *mem, void *arg) {
  fake_env fake;
  hv_route route;
  size_t entered = 0;
  (void)arg;
  fake_env_init_on(&fake, 1, mem);
  hv_route_config config = {.me = fake.me, .bucket_size = 2};
  hv_route_init(&route, &fake.env, &config);
  for (uint64_t i = 1; i <= 12; i++) {
    hv_peer_id id = fake_peer(i);
    hv_addr addr = address(10, 0, 0, (uint8_t)i);
    entered += (size_t)hv_route_answered(&route, &id, &addr, 1, 1);
    hv_route_silence(&route, &id);
  }
  hv_route_fini(&route);
  return entered ? HV_OK : HV_NOMEM;
}

static void contact_without_memory_is_not_entered(void **unused) {
  (void)unused;
  assert_true(check_out_of_memory(run_without_memory, NULL) > 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(node_that_answered_is_in_its_bucket),
      cmocka_unit_test(own_and_empty_ids_are_not_entered),
      cmocka_unit_test(full_bucket_keeps_its_contacts),
      cmocka_unit_test(a_newcomer_takes_the_place_of_a_silent_one_at_once),
      cmocka_unit_test(nearest_nodes_are_known_only_after_their_buckets_were_asked),
      cmocka_unit_test(two_of_a_network_are_enough_for_a_bucket),
      cmocka_unit_test(networks_are_told_apart_by_kind),
      cmocka_unit_test(silent_node_is_not_named_until_it_answers),
      cmocka_unit_test(silence_is_respected_for_longer_and_longer),
      cmocka_unit_test(nearest_nodes_are_found_in_order),
      cmocka_unit_test(how_many_nodes_there_are_is_seen_from_the_neighbours),
      cmocka_unit_test(a_crowd_around_me_is_not_the_whole_swarm),
      cmocka_unit_test(a_crowd_near_me_counts_once),
      cmocka_unit_test(the_first_bucket_has_room_for_two),
      cmocka_unit_test(a_crowd_does_not_keep_others_out_of_its_bucket),
      cmocka_unit_test(packed_addresses_come_back),
      cmocka_unit_test(contact_without_memory_is_not_entered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
