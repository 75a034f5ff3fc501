/* Can any peer that this node knows dial it? */
#include "lib/check.h"

#include "core/peers/standing.h"

#include <string.h>

static hv_addr address(uint8_t first) {
  return (hv_addr){.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {first, 7, 0, 1}};
}

/* A node that announces this address and is seen at that one; kind HV_ADDR_NONE: it announces, or is seen, nowhere. */
static hv_peers seen_at(hv_addr own, hv_addr outer) {
  hv_peers peers;
  memset(&peers, 0, sizeof peers);
  peers.outer = outer;
  peers.config.me.n_addrs = own.kind != HV_ADDR_NONE;
  peers.config.me.addrs[0] = own;
  return peers;
}

static const hv_addr nowhere;

static void node_with_private_addresses_behind_a_nat_is_hidden(void **state) {
  (void)state;
  hv_peers peers = seen_at(address(10), address(80));
  assert_true(hv_standing_hidden(&peers));
  peers.config.me.addrs[peers.config.me.n_addrs++] = address(81); /* a port was opened */
  assert_false(hv_standing_hidden(&peers));
}

static void node_that_announces_nothing_behind_a_nat_is_hidden(void **state) {
  (void)state;
  hv_peers peers = seen_at(nowhere, address(80));
  assert_true(hv_standing_hidden(&peers));
}

static void node_is_not_hidden_from_a_private_network(void **state) {
  (void)state;
  hv_peers peers = seen_at(address(10), address(80));
  peers.seen.is_private = 1;
  assert_false(hv_standing_hidden(&peers));
  peers = seen_at(address(10), address(10));
  assert_false(hv_standing_hidden(&peers));
  peers = seen_at(address(10), nowhere);
  assert_false(hv_standing_hidden(&peers));
}

static void node_with_a_name_is_not_hidden(void **state) {
  (void)state;
  hv_peers peers = seen_at((hv_addr){.kind = HV_ADDR_DNS, .port = 4000, .host.name = "peer.example.org"}, address(80));
  assert_false(hv_standing_hidden(&peers));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(node_with_private_addresses_behind_a_nat_is_hidden),
      cmocka_unit_test(node_that_announces_nothing_behind_a_nat_is_hidden),
      cmocka_unit_test(node_is_not_hidden_from_a_private_network),
      cmocka_unit_test(node_with_a_name_is_not_hidden),
  };
  return cmocka_run_group_tests_name("standing", tests, NULL, NULL);
}
