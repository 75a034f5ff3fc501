/* The accounts of the door: who has to go when there are too many, by network. */
#include "lib/check.h"
#include "lib/real.h"

#include "net/transport/guests.h"

#include <stdio.h>

static const hv_guest_limits FEW = {.new_ones = 6, .new_of_one = 4, .known = 6, .known_of_one = 4};

typedef struct room {
  hv_mem mem;
  hv_guests guests;
  uint64_t now;
} room;

static void room_open(room *r) {
  hv_mem_init(&r->mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_guests_init(&r->guests, &r->mem, &FEW), HV_OK);
  r->now = 0;
}

static void room_close(room *r) {
  hv_guests_fini(&r->guests);
  assert_int_equal(atomic_load(&r->mem.used), 0);
}

static hv_addr from(unsigned network, unsigned host) {
  char text[64];
  snprintf(text, sizeof text, "/ip4/198.18.%u.%u/tcp/%u", network, host % 250 + 1, 1000 + host);
  return real_addr(text);
}

static size_t enter(room *r, unsigned network, unsigned host) {
  hv_addr addr = from(network, host);
  assert_int_equal(hv_guests_make_room(&r->guests, HV_GUEST_NEW, hv_guest_network(&addr)), HV_GUEST_ADMIT);
  return hv_guests_enter(&r->guests, &addr, (int)host, ++r->now);
}

static size_t become_known(room *r, unsigned network, unsigned host) {
  size_t place = enter(r, network, host);
  hv_guests_know(&r->guests, place, ++r->now);
  return place;
}

static long would_go(room *r, hv_guest_state state, unsigned network) {
  hv_addr addr = from(network, 9);
  return hv_guests_make_room(&r->guests, state, hv_guest_network(&addr));
}

static void networks_are_told_apart(void **state) {
  (void)state;
  hv_addr a = real_addr("/ip4/198.18.1.1/tcp/1"), b = real_addr("/ip4/198.18.1.254/tcp/2"), c = real_addr("/ip4/198.18.2.1/tcp/1");
  assert_true(hv_guest_network(&a) == hv_guest_network(&b) && hv_guest_network(&a) != hv_guest_network(&c));
  assert_true(hv_guest_key(&a) != hv_guest_key(&b) && hv_guest_key(&a) != hv_guest_key(&c));
  hv_addr d = real_addr("/ip6/2001:db8:1::1/tcp/1"), e = real_addr("/ip6/2001:db8:1:ffff::1/tcp/1"),
          f = real_addr("/ip6/2001:db8:2::1/tcp/1");
  assert_true(hv_guest_network(&d) == hv_guest_network(&e) && hv_guest_network(&d) != hv_guest_network(&f));
}

static void the_oldest_newcomer_of_a_full_network_goes(void **state) {
  (void)state;
  room r;
  room_open(&r);
  size_t first = enter(&r, 1, 0);
  for (unsigned i = 1; i < 4; i++)
    enter(&r, 1, i);
  assert_int_equal(would_go(&r, HV_GUEST_NEW, 1), (long)first);
  assert_int_equal(would_go(&r, HV_GUEST_NEW, 2), HV_GUEST_ADMIT);
  hv_guests_leave(&r.guests, first);
  assert_int_equal(would_go(&r, HV_GUEST_NEW, 1), HV_GUEST_ADMIT);
  room_close(&r);
}

static void the_largest_network_makes_room_for_a_newcomer(void **state) {
  (void)state;
  room r;
  room_open(&r);
  enter(&r, 1, 0);
  size_t oldest = enter(&r, 2, 1);
  for (unsigned i = 2; i < 5; i++)
    enter(&r, 2, i);
  enter(&r, 3, 5);
  assert_int_equal(would_go(&r, HV_GUEST_NEW, 4), (long)oldest);
  assert_int_equal(would_go(&r, HV_GUEST_NEW, 1), (long)oldest);
  room_close(&r);
}

static void known_peers_give_way_to_smaller_networks_only(void **state) {
  (void)state;
  room r;
  room_open(&r);
  size_t newest = 0;
  for (unsigned i = 0; i < 4; i++)
    newest = become_known(&r, 1, i);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 1), HV_GUEST_REFUSE);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 2), HV_GUEST_ADMIT);
  become_known(&r, 2, 4);
  become_known(&r, 3, 5);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 4), (long)newest);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 2), (long)newest);
  hv_guests_leave(&r.guests, newest);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 4), HV_GUEST_ADMIT);
  room_close(&r);
}

static void guests_in_networks_of_their_own_stay(void **state) {
  (void)state;
  room r;
  room_open(&r);
  for (unsigned i = 0; i < 6; i++)
    become_known(&r, i, i);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 7), HV_GUEST_REFUSE);
  assert_int_equal(would_go(&r, HV_GUEST_KNOWN, 3), HV_GUEST_REFUSE);
  room_close(&r);
}

static void accounts_never_run_out_and_places_come_back(void **state) {
  (void)state;
  room r;
  room_open(&r);
  check_rng rng = {1};
  unsigned host = 0;
  for (int i = 0; i < 20000; i++) {
    unsigned network = (unsigned)(check_random(&rng) % 40);
    hv_addr addr = from(network, host++ % 5000);
    long goes = hv_guests_make_room(&r.guests, HV_GUEST_NEW, hv_guest_network(&addr));
    if (goes == HV_GUEST_REFUSE)
      continue;
    if (goes >= 0)
      hv_guests_leave(&r.guests, (size_t)goes);
    size_t place = hv_guests_enter(&r.guests, &addr, 1, ++r.now);
    assert_int_equal(hv_guests_find(&r.guests, hv_guest_key(&addr)), place);
    if (check_random(&rng) % 2 &&
        (goes = hv_guests_make_room(&r.guests, HV_GUEST_KNOWN, hv_guest_network(&addr))) != HV_GUEST_REFUSE) {
      if (goes >= 0)
        hv_guests_leave(&r.guests, (size_t)goes);
      hv_guests_know(&r.guests, place, ++r.now);
    }
    size_t in[HV_GUEST_STATES] = {0}, on_accounts = 0;
    for (size_t k = 0; k < r.guests.n; k++) {
      in[r.guests.places[k].state]++;
      on_accounts += r.guests.accounts[k].in[HV_GUEST_NEW] + r.guests.accounts[k].in[HV_GUEST_KNOWN];
      assert_true(r.guests.accounts[k].in[HV_GUEST_NEW] <= FEW.new_of_one &&
                  r.guests.accounts[k].in[HV_GUEST_KNOWN] <= FEW.known_of_one);
    }
    assert_true(in[HV_GUEST_NEW] == r.guests.in[HV_GUEST_NEW] && in[HV_GUEST_NEW] <= FEW.new_ones);
    assert_true(in[HV_GUEST_KNOWN] == r.guests.in[HV_GUEST_KNOWN] && in[HV_GUEST_KNOWN] <= FEW.known);
    assert_int_equal(on_accounts, in[HV_GUEST_NEW] + in[HV_GUEST_KNOWN]);
  }
  room_close(&r);
}

static void networks_take_turns_and_their_newest_go_first(void **state) {
  (void)state;
  room r;
  room_open(&r);
  size_t first = enter(&r, 1, 1), second = enter(&r, 1, 2), third = enter(&r, 1, 3), other = enter(&r, 2, 4);
  size_t none = r.guests.n;
  assert_int_equal(hv_guests_next(&r.guests), none); /* nobody has spoken */
  hv_guests_wait(&r.guests, first);
  hv_guests_wait(&r.guests, second);
  hv_guests_wait(&r.guests, third);
  hv_guests_wait(&r.guests, third); /* counts once */
  assert_int_equal(hv_guests_next(&r.guests), third);
  hv_guests_wait(&r.guests, other);
  assert_int_equal(hv_guests_next(&r.guests), other); /* its network has had no turn yet */
  hv_guests_leave(&r.guests, second);
  assert_int_equal(r.guests.waiting, 1);
  assert_int_equal(hv_guests_next(&r.guests), first);
  assert_int_equal(hv_guests_next(&r.guests), none);
  assert_int_equal(r.guests.waiting, 0);
  room_close(&r);
}

/* Writes a ClientHello of `size` bytes after its record's header: these extensions, and one that fills the rest. */
static void hello_with(uint8_t *out, size_t size, const uint8_t *extensions, size_t n) {
  static const uint8_t before[] = {0, 0, 2, 0x13, 1, 1, 0}; /* no session, one cipher, no compression */
  uint8_t *at = out + 5 + 4 + 34;
  size_t left = size - 4 - 34 - sizeof before - 2;
  memset(out + 5, 0, size);
  out[5] = 1;
  memcpy(at, before, sizeof before);
  at += sizeof before;
  at[0] = (uint8_t)(left >> 8), at[1] = (uint8_t)left;
  if (n)
    memcpy(at + 2, extensions, n);
  at += 2 + n;
  at[0] = 0xfa, at[1] = 0xfa, at[3] = (uint8_t)(left - n - 4);
}

static void older_tls_is_refused(void **state) {
  (void)state;
  enum { SIZE = 100 };
  static const struct {
    uint8_t extensions[16];
    size_t n;
    long wants;
  } cases[] = {{{0, 43, 0, 3, 2, 3, 4}, 7, 0},
               {{0, 43, 0, 7, 6, 0x5a, 0x5a, 3, 4, 3, 3}, 11, 0}, /* among others */
               {{0, 0, 0, 1, 9, 0, 43, 0, 3, 2, 3, 4}, 12, 0},
               {{0, 43, 0, 5, 4, 3, 3, 3, 2}, 9, HV_GUEST_OLD_TLS},
               {{0, 43, 0, 1, 0}, 5, HV_GUEST_OLD_TLS},
               {{0, 43, 0, 0}, 4, HV_GUEST_OLD_TLS},
               {{0, 43, 0, 3, 4, 3, 4}, 7, HV_GUEST_OLD_TLS}, /* a list that does not end in its extension */
               {{0, 0, 0, 0}, 4, HV_GUEST_OLD_TLS},
               {{0}, 0, HV_GUEST_OLD_TLS},
               {{0, 43, 0xff, 0xff}, 4, HV_GUEST_STRANGE}};
  uint8_t bytes[5 + SIZE] = {0x16, 3, 1, 0, SIZE};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hello_with(bytes, SIZE, cases[i].extensions, cases[i].n);
    assert_int_equal(hv_guest_reads(bytes, sizeof bytes, 0), cases[i].wants);
  }
  for (size_t i = 5 + 38; i < sizeof bytes; i++) /* lengths that lie end the reading */
    for (int value = 0; value < 256; value++) {
      hello_with(bytes, SIZE, cases[0].extensions, cases[0].n);
      bytes[i] = (uint8_t)value;
      long reads = hv_guest_reads(bytes, sizeof bytes, 0);
      assert_true(reads <= 0 && reads >= HV_GUEST_OLD_TLS);
    }
  hello_with(bytes, SIZE, NULL, 0); /* TLS 1.2 without extensions */
  bytes[4] = 4 + 34 + 7;
  assert_int_equal(hv_guest_reads(bytes, 5 + bytes[4], 0), HV_GUEST_OLD_TLS);
}

static void unserved_protocols_are_refused(void **state) {
  (void)state;
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  uint8_t bytes[HV_GUEST_FIRST_MAX] = {0x16, 3, 1, 0, 100, 1};
  hello_with(bytes, 100, (uint8_t[]){0, 43, 0, 3, 2, 3, 4}, 7);
  for (int byte = 0; byte < 256; byte++) {
    uint8_t first = (uint8_t)byte;
    assert_true((hv_guest_reads(&first, 1, 0) > 0) == (byte == 0x16));
    assert_true((hv_guest_reads(&first, 1, 1) > 0) == (byte == 'P'));
  }
  for (size_t n = 0; n <= 105; n++)
    assert_int_equal(hv_guest_reads(bytes, n, 0), n <= 5 ? 6 : n < 105 ? 105 : 0);
  for (size_t n = 0; n <= 24; n++)
    assert_int_equal(hv_guest_reads((const uint8_t *)preface, n, 1), n < 24 ? 24 : 0);
  static const struct {
    uint8_t high, low, kind;
    long wants;
  } cases[] = {{0, 41, 1, HV_GUEST_STRANGE},      {0, 42, 1, 47},
               {0x10, 0, 1, HV_GUEST_FIRST_MAX},  {0x10, 1, 1, HV_GUEST_STRANGE},
               {0xff, 0xff, 1, HV_GUEST_STRANGE}, {0, 100, 2, HV_GUEST_STRANGE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bytes[3] = cases[i].high;
    bytes[4] = cases[i].low;
    bytes[5] = cases[i].kind;
    assert_int_equal(hv_guest_reads(bytes, 6, 0), cases[i].wants);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(networks_are_told_apart),
      cmocka_unit_test(older_tls_is_refused),
      cmocka_unit_test(the_oldest_newcomer_of_a_full_network_goes),
      cmocka_unit_test(the_largest_network_makes_room_for_a_newcomer),
      cmocka_unit_test(known_peers_give_way_to_smaller_networks_only),
      cmocka_unit_test(guests_in_networks_of_their_own_stay),
      cmocka_unit_test(accounts_never_run_out_and_places_come_back),
      cmocka_unit_test(networks_take_turns_and_their_newest_go_first),
      cmocka_unit_test(unserved_protocols_are_refused),
  };
  return cmocka_run_group_tests_name("guests", tests, NULL, NULL);
}
