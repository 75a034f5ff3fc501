/* Peer IDs in libp2p's text form, and distances in the key space. */
#include "lib/check.h"

#include "core/peer.h"

#include <stdio.h>
#include <string.h>

static hv_span text_of(const char *text) {
  return hv_span_of(text, strlen(text));
}

static hv_peer_id key_of(const char *hex) {
  hv_peer_id peer;
  for (int i = 0; i < 32; i++) {
    unsigned byte = 0;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
    peer.key[i] = (uint8_t)byte;
  }
  return peer;
}

static hv_peer_id random_peer(check_rng *rng) {
  hv_peer_id peer;
  for (int i = 0; i < 32; i += 8) {
    uint64_t word = check_random(rng);
    memcpy(peer.key + i, &word, 8);
  }
  return peer;
}

/* The first from the libp2p specification, the second from rust-libp2p's tests, the third RFC 8032's first key, then the ends of
 * the range. */
static void known_ids_read_and_print(void **state) {
  (void)state;
  static const struct {
    const char *key, *text;
  } known[] = {
      {"2ffa35a99d3a3cfbb17bb7c1dc5561b18a8dcca4df38dc613ea859c37eb1336b", "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"},
      {"41275f22797a73b53836ec5726584a711065070f5dd2d8f675f04855fea670f0", "12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvVu"},
      {"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"},
      {"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "12D3KooWT3gYEvLJyx1FyyHqrmvdy1tMjpgxmu9aSeKMEuafQtyC"},
      {"0000000000000000000000000000000000000000000000000000000000000001", "12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwix"},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char text[HV_PEER_TEXT_MAX], end[HV_PEER_SHORT_MAX];
    hv_peer_id key = key_of(known[i].key), read;
    assert_string_equal(hv_peer_print(&key, text), known[i].text);
    assert_int_equal(hv_peer_parse(text_of(known[i].text), &read, NULL), HV_OK);
    assert_memory_equal(read.key, key.key, 32);
    assert_string_equal(hv_peer_short(&key, end), known[i].text + 46);
  }
}

static void any_key_reads_back_as_it_was_printed(void **state) {
  (void)state;
  check_rng rng = {11};
  for (int i = 0; i < 50000; i++) {
    char text[HV_PEER_TEXT_MAX];
    hv_peer_id key = random_peer(&rng), read;
    if (i % 8 == 0)
      memset(key.key, 0, (size_t)(i / 8 % 32)), key.key[31] |= 1;
    hv_peer_print(&key, text);
    assert_int_equal(strlen(text), 52);
    assert_memory_equal(text, "12D3KooW", 8);
    assert_int_equal(hv_peer_parse(text_of(text), &read, NULL), HV_OK);
    assert_true(hv_peer_equal(&key, &read));
  }
}

static void an_unknown_peer_says_so(void **state) {
  (void)state;
  char text[HV_PEER_TEXT_MAX], end[HV_PEER_SHORT_MAX];
  hv_peer_id nobody = {{0}}, somebody = {{[31] = 1}};
  assert_false(hv_peer_is_known(&nobody));
  assert_true(hv_peer_is_known(&somebody));
  assert_string_equal(hv_peer_print(&nobody, text), "(unknown)");
  assert_string_equal(hv_peer_short(&nobody, end), "(unknown)");
}

static void refuse(const char *text, size_t size, const char *why) {
  hv_peer_id out = {{7}}, before = out;
  hv_error err = {0};
  assert_int_equal(hv_peer_parse(hv_span_of(text, size), &out, &err), HV_MALFORMED);
  assert_int_equal(err.status, HV_MALFORMED);
  if (!strstr(err.text, why))
    fail_msg("'%s' does not say '%s'", err.text, why);
  assert_memory_equal(&out, &before, sizeof out);
  assert_int_equal(hv_peer_parse(hv_span_of(text, size), &out, NULL), HV_MALFORMED);
}

static void other_texts_are_refused_with_their_cause(void **state) {
  (void)state;
  const char *good = "12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvVu";
  refuse("", 0, "0 characters");
  refuse(good, 51, "51 characters");
  refuse("112D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvVu", 53, "53 characters");
  refuse("12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvV0", 52, "'0' does not occur in base58");
  refuse("12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvV\n", 52, "'?' does not occur in base58");
  refuse("12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvV\0", 52, "'?' does not occur in base58");
  refuse("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", 46, "RSA");
  refuse("12D3KubARxXbZYNcQ2iogxe5RaZPNAM6hDFafiJZ5DLUqJWZsvwr", 52, "not the ID of an Ed25519 key");
  refuse("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", 52, "not the ID of an Ed25519 key");
  refuse("1111111111111111111111111111111111111111111111111111", 52, "not the ID of an Ed25519 key");
  refuse("12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwiw", 52, "anybody can sign");
  char noise[4096];
  memset(noise, 'x', sizeof noise);
  refuse(noise, sizeof noise, "4096 characters");
  memset(noise, 0xff, sizeof noise);
  refuse(noise, sizeof noise, "base58");
}

static void no_changed_character_goes_unnoticed(void **state) {
  (void)state;
  char text[] = "12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvVu";
  hv_peer_id key, other;
  assert_int_equal(hv_peer_parse(text_of(text), &key, NULL), HV_OK);
  for (int at = 0; at < 52; at++)
    for (int c = 0; c < 256; c++) {
      char before = text[at];
      text[at] = (char)c;
      hv_status status = hv_peer_parse(hv_span_of(text, 52), &other, NULL);
      if (text[at] == before || status != HV_OK) {
        text[at] = before;
        continue;
      }
      char again[HV_PEER_TEXT_MAX];
      assert_false(hv_peer_equal(&key, &other));
      assert_memory_equal(hv_peer_print(&other, again), text, 52);
      text[at] = before;
    }
}

static void order_is_that_of_the_bytes(void **state) {
  (void)state;
  hv_peer_id a = {{1}}, b = {{1, 1}}, c = {{0xff}};
  assert_true(hv_peer_compare(&a, &b) < 0 && hv_peer_compare(&b, &c) < 0 && hv_peer_compare(&c, &a) > 0);
  assert_int_equal(hv_peer_compare(&a, &a), 0);
}

static void distance_is_a_metric(void **state) {
  (void)state;
  check_rng rng = {5};
  for (int i = 0; i < 20000; i++) {
    hv_peer_id x = random_peer(&rng), y = random_peer(&rng), z = random_peer(&rng);
    hv_hash a, b, target;
    memcpy(a.bytes, x.key, 32);
    memcpy(b.bytes, y.key, 32);
    memcpy(target.bytes, z.key, 32);
    hv_hash ab = hv_hash_distance(&a, &b), ba = hv_hash_distance(&b, &a), back = hv_hash_distance(&a, &ab);
    assert_memory_equal(ab.bytes, ba.bytes, 32);
    assert_memory_equal(back.bytes, b.bytes, 32); /* one point at each distance */
    assert_int_equal(hv_hash_nearer(&target, &a, &a), 0);
    assert_true(hv_hash_nearer(&target, &a, &b) == -hv_hash_nearer(&target, &b, &a) ||
                (hv_hash_nearer(&target, &a, &b) < 0) != (hv_hash_nearer(&target, &b, &a) < 0));
    assert_true(hv_hash_nearer(&a, &a, &b) < 0);
    /* whoever shares more leading bits with the target is nearer to it */
    int bits_a = hv_hash_shared_bits(&target, &a), bits_b = hv_hash_shared_bits(&target, &b);
    if (bits_a != bits_b)
      assert_true((bits_a > bits_b) == (hv_hash_nearer(&target, &a, &b) < 0));
  }
}

static void shared_bits_are_counted_from_the_front(void **state) {
  (void)state;
  hv_hash zero = {{0}};
  assert_int_equal(hv_hash_shared_bits(&zero, &zero), 256);
  for (int bit = 0; bit < 256; bit++) {
    hv_hash one = {{0}};
    one.bytes[bit / 8] = (uint8_t)(0x80u >> bit % 8);
    if (bit < 248)
      one.bytes[31] |= 1; /* what comes later does not matter */
    assert_int_equal(hv_hash_shared_bits(&zero, &one), bit);
  }
}

/* The encodings of Ed25519's points of small order, with either sign. */
static void keys_of_small_order_are_weak(void **state) {
  (void)state;
  static const char *const weak[] = {"0000000000000000000000000000000000000000000000000000000000000000",
                                     "0100000000000000000000000000000000000000000000000000000000000000",
                                     "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
                                     "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
                                     "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                                     "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
                                     "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"};
  for (size_t i = 0; i < sizeof weak / sizeof *weak; i++) {
    hv_peer_id peer;
    char text[HV_PEER_TEXT_MAX];
    for (size_t k = 0; k < 32; k++)
      assert_int_equal(sscanf(weak[i] + 2 * k, "%2hhx", &peer.key[k]), 1);
    for (int sign = 0; sign < 2; sign++, peer.key[31] ^= 0x80) {
      assert_true(hv_peer_is_weak(&peer));
      if (hv_peer_is_known(&peer))
        refuse(hv_peer_print(&peer, text), 52, "anybody can sign");
    }
    for (int bit = 0; bit < 255; bit++) { /* none beside them */
      hv_peer_id other = peer;
      other.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
      assert_true(!hv_peer_is_weak(&other) || bit < 2);
    }
  }
}

static void a_quote_is_printable_and_short(void **state) {
  (void)state;
  char out[HV_QUOTE_MAX], bytes[300];
  for (int i = 0; i < 300; i++)
    bytes[i] = (char)i;
  assert_string_equal(hv_span_quote(hv_span_of("plain", 5), out), "plain");
  assert_string_equal(hv_span_quote(hv_span_of(NULL, 0), out), "");
  assert_string_equal(hv_span_quote(hv_span_of("\x1b[2J\n\0\xc3", 7), out), "?[2J???");
  for (size_t n = 0; n < sizeof bytes; n++) {
    hv_span_quote(hv_span_of(bytes, n), out);
    assert_int_equal(strlen(out), n < HV_QUOTE_MAX ? n : HV_QUOTE_MAX - 1);
    for (char *c = out; *c; c++)
      assert_in_range(*c, 0x20, 0x7e);
  }
  assert_string_equal(out + HV_QUOTE_MAX - 4, "...");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_ids_read_and_print),
      cmocka_unit_test(any_key_reads_back_as_it_was_printed),
      cmocka_unit_test(an_unknown_peer_says_so),
      cmocka_unit_test(other_texts_are_refused_with_their_cause),
      cmocka_unit_test(no_changed_character_goes_unnoticed),
      cmocka_unit_test(order_is_that_of_the_bytes),
      cmocka_unit_test(distance_is_a_metric),
      cmocka_unit_test(shared_bits_are_counted_from_the_front),
      cmocka_unit_test(keys_of_small_order_are_weak),
      cmocka_unit_test(a_quote_is_printable_and_short),
  };
  return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
