/* Which addresses of a peer may be dialled, by where the peer was seen. */
#include "lib/check.h"

#include "core/peers/contact.h"

#include <string.h>

static hv_addr read_addr(const char *text) {
  hv_addr addr;
  assert_int_equal(hv_addr_parse(hv_span_of(text, strlen(text)), &addr, NULL, NULL), HV_OK);
  return addr;
}

static int may(const char *named, const char *seen, int is_initial) {
  hv_addr addr = read_addr(named), at = read_addr(seen);
  hv_contact_source source = hv_contact_source_at(&at);
  source.is_initial = (uint8_t)is_initial;
  return hv_contact_may_dial(&addr, source);
}

static void address_is_dialled_by_the_table_of_rules(void **unused) {
  (void)unused;
  static const struct {
    const char *named;
    int by_public, by_private, by_loopback, by_initial;
  } rows[] = {
      {"8.8.8.8:80", 1, 1, 1, 1},
      {"[2001:4860::8]:80", 1, 1, 1, 1},
      {"10.1.2.3:80", 0, 1, 1, 0},
      {"192.168.0.1:80", 0, 1, 1, 0},
      {"172.16.0.1:80", 0, 1, 1, 0},
      {"100.64.0.1:80", 0, 1, 1, 0},
      {"169.254.169.254:80", 0, 1, 1, 0},
      {"[fe80::1]:80", 0, 1, 1, 0},
      {"[fd00::1]:80", 0, 1, 1, 0},
      {"[::ffff:10.1.2.3]:80", 0, 1, 1, 0},
      {"127.0.0.1:80", 0, 0, 1, 0},
      {"127.9.9.9:80", 0, 0, 1, 0},
      {"[::1]:80", 0, 0, 1, 0},
      {"[::ffff:127.0.0.1]:80", 0, 0, 1, 0},
      {"localhost:80", 0, 0, 1, 0},
      {"peer.example.org:80", 0, 0, 0, 1},
      {"/dns4/peer.example.org/tcp/80", 0, 0, 0, 1},
      {"0.0.0.0:80", 0, 0, 0, 0},
      {"[::]:80", 0, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(may(rows[i].named, "9.9.9.9:1", 0), rows[i].by_public);
    assert_int_equal(may(rows[i].named, "10.9.9.9:1", 0), rows[i].by_private);
    assert_int_equal(may(rows[i].named, "127.0.0.1:1", 0), rows[i].by_loopback);
    assert_int_equal(may(rows[i].named, "9.9.9.9:1", 1), rows[i].by_initial);
  }
  hv_addr none = {.kind = HV_ADDR_NONE};
  assert_int_equal(hv_contact_may_dial(&none, (hv_contact_source){1, 1, 1}), 0);
  assert_int_equal(hv_contact_source_at(&none).is_private, 0);
}

/* An initial peer that was reached by its name: it says at which address it sees this node. */
static void name_of_an_initial_peer_leads_where_it_says(void **unused) {
  (void)unused;
  hv_addr name = read_addr("head.swarm:80"), near = read_addr("10.0.0.7:999"), far = read_addr("9.9.9.9:999"), none = {0};
  assert_true(hv_contact_source_initial(&name, &near).is_private);
  assert_false(hv_contact_source_initial(&name, &far).is_private);
  assert_false(hv_contact_source_initial(&name, &none).is_private);
  assert_false(hv_contact_source_initial(&far, &near).is_private); /* an address says by itself where it leads */
  assert_true(hv_contact_source_initial(&far, &near).is_initial);
}

static void other_addresses_are_removed_from_cards_and_bytes(void **unused) {
  (void)unused;
  hv_card card = {.n_addrs = 4};
  uint8_t packed[HV_CONTACT_ADDRS_MAX], kept[HV_CONTACT_ADDRS_MAX];
  hv_addr out[HV_CARD_ADDRS_MAX];
  static const char *const texts[] = {"127.0.0.1:1", "8.8.8.8:2", "10.0.0.1:3", "9.9.9.9:4"};
  for (size_t i = 0; i < 4; i++)
    card.addrs[i] = read_addr(texts[i]);
  hv_span all = hv_span_of(packed, hv_contact_pack(card.addrs, 4, packed));
  assert_true(hv_contact_source_of(all).is_loopback && hv_contact_source_of(all).is_private);
  size_t size = hv_contact_keep(all, (hv_contact_source){0}, kept);
  assert_int_equal(hv_contact_unpack(hv_span_of(kept, size), out, HV_CARD_ADDRS_MAX), 2);
  assert_true(out[0].port == 2 && out[1].port == 4);
  hv_contact_keep_card(&card, (hv_contact_source){.is_private = 1});
  assert_int_equal(card.n_addrs, 3);
  assert_true(card.addrs[0].port == 2 && card.addrs[1].port == 3 && card.addrs[2].port == 4);
  assert_int_equal(hv_contact_keep(hv_span_of(NULL, 0), (hv_contact_source){1, 1, 1}, kept), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(address_is_dialled_by_the_table_of_rules),
      cmocka_unit_test(name_of_an_initial_peer_leads_where_it_says),
      cmocka_unit_test(other_addresses_are_removed_from_cards_and_bytes),
  };
  return cmocka_run_group_tests_name("contact", tests, NULL, NULL);
}
