/* Which outer ports does a simulated NAT give, and whom does it let in? RFC 4787, kind by kind. */
#include "lib/check.h"

#include "net/sim/sim_nat.h"

#include <string.h>

#define SECOND UINT64_C(1000000)

enum { DIALS = 50001, LISTENS = 31337, OUTSIDE = 7777 };

static const uint64_t PINGS_US = 10 * SECOND;

static hv_addr outside(uint8_t host, uint16_t port) {
  return (hv_addr){.kind = HV_ADDR_IP4, .port = port, .host.ip = {203, 0, 113, host}};
}

static sim_nat *open_nat(hv_mem *mem, hv_sim_nat kind, uint64_t idle_us) {
  hv_mem_init(mem, NULL, HV_MEM_UNLIMITED);
  sim_nat *nat = sim_nat_new(mem, &(hv_sim_home){.kind = kind, .idle_us = idle_us}, PINGS_US);
  assert_non_null(nat);
  return nat;
}

static void close_nat(hv_mem *mem, sim_nat *nat) {
  sim_nat_free(nat);
  assert_int_equal(atomic_load(&mem->blocks), 0);
}

/* The outer port that host 1 gets for what it sends from `port` to an endpoint. */
static uint16_t sends(sim_nat *nat, uint16_t port, hv_addr to, uint64_t now) {
  uint16_t outer = 0;
  assert_true(sim_nat_out(nat, (sim_nat_inner){1, port}, &to, now, &outer) != 0);
  return outer;
}

/* The host to which an outer port leads a sender; 0: nowhere. */
static uint32_t leads(sim_nat *nat, uint16_t outer, hv_addr from, uint64_t now) {
  sim_nat_inner inner = {0, 0};
  return sim_nat_in(nat, outer, &from, now, &inner) ? inner.host : 0;
}

/* ---- mapping ---- */

static void cones_map_an_endpoint_to_one_port_for_all(void **state) {
  (void)state;
  for (int kind = HV_SIM_FULL_CONE; kind < HV_SIM_SYMMETRIC; kind++) {
    hv_mem mem;
    sim_nat *nat = open_nat(&mem, (hv_sim_nat)kind, 0);
    uint16_t first = sends(nat, DIALS, outside(1, OUTSIDE), 0);
    assert_int_equal(sends(nat, DIALS, outside(2, OUTSIDE), 0), first);
    assert_int_equal(sends(nat, DIALS, outside(1, OUTSIDE + 1), 0), first);
    assert_int_not_equal(sends(nat, DIALS + 1, outside(1, OUTSIDE), 0), first);
    close_nat(&mem, nat);
  }
}

static void symmetric_nat_maps_each_destination_to_a_port(void **state) {
  (void)state;
  hv_mem mem;
  sim_nat *nat = open_nat(&mem, HV_SIM_SYMMETRIC, 0);
  uint16_t first = sends(nat, DIALS, outside(1, OUTSIDE), 0);
  assert_int_not_equal(sends(nat, DIALS, outside(2, OUTSIDE), 0), first);
  assert_int_not_equal(sends(nat, DIALS, outside(1, OUTSIDE + 1), 0), first);
  assert_int_equal(sends(nat, DIALS, outside(1, OUTSIDE), 0), first);
  close_nat(&mem, nat);
}

/* ---- filtering ---- */

static void each_kind_lets_in_the_senders_of_its_rule(void **state) {
  (void)state;
  /* the endpoint that was sent to, another port of that host, another host */
  static const int lets_in[][3] = {[HV_SIM_FULL_CONE] = {1, 1, 1},
                                   [HV_SIM_RESTRICTED] = {1, 1, 0},
                                   [HV_SIM_PORT_RESTRICTED] = {1, 0, 0},
                                   [HV_SIM_SYMMETRIC] = {1, 0, 0}};
  for (int kind = HV_SIM_FULL_CONE; kind <= HV_SIM_SYMMETRIC; kind++) {
    hv_mem mem;
    sim_nat *nat = open_nat(&mem, (hv_sim_nat)kind, 0);
    uint16_t outer = sends(nat, DIALS, outside(1, OUTSIDE), 0);
    assert_int_equal(leads(nat, outer, outside(1, OUTSIDE), 0), lets_in[kind][0]);
    assert_int_equal(leads(nat, outer, outside(1, OUTSIDE + 1), 0), lets_in[kind][1]);
    assert_int_equal(leads(nat, outer, outside(2, OUTSIDE), 0), lets_in[kind][2]);
    assert_int_equal(leads(nat, (uint16_t)(outer + 1), outside(1, OUTSIDE), 0), 0);
    close_nat(&mem, nat);
  }
}

static void opened_port_lets_all_in_until_its_lease_ends(void **state) {
  (void)state;
  for (int kind = HV_SIM_FULL_CONE; kind <= HV_SIM_SYMMETRIC; kind++) {
    hv_mem mem;
    sim_nat *nat = open_nat(&mem, (hv_sim_nat)kind, SECOND);
    uint16_t outer = LISTENS, other = LISTENS;
    uint32_t id = sim_nat_open(nat, (sim_nat_inner){1, LISTENS}, 60 * SECOND, 0, &outer);
    assert_true(id != 0);
    assert_int_equal(outer, LISTENS);
    assert_true(sim_nat_open(nat, (sim_nat_inner){2, LISTENS}, 60 * SECOND, 0, &other) != 0);
    assert_int_not_equal(other, LISTENS); /* taken */
    assert_int_equal(leads(nat, outer, outside(9, 9), 60 * SECOND - 1), 1);
    assert_int_equal(leads(nat, other, outside(9, 9), 60 * SECOND - 1), 2);
    assert_int_equal(leads(nat, outer, outside(9, 9), 60 * SECOND), 0);
    assert_false(sim_nat_pass(nat, id, 60 * SECOND));
    close_nat(&mem, nat);
  }
}

static void lease_is_renewed_at_the_same_port_and_given_back(void **state) {
  (void)state;
  hv_mem mem;
  sim_nat *nat = open_nat(&mem, HV_SIM_PORT_RESTRICTED, 0);
  sim_nat_inner inner = {1, LISTENS};
  uint16_t outer = LISTENS;
  uint32_t id = sim_nat_open(nat, inner, 60 * SECOND, 0, &outer);
  assert_int_equal(sim_nat_open(nat, inner, 90 * SECOND, 30 * SECOND, &outer), id);
  assert_int_equal(leads(nat, outer, outside(9, 9), 89 * SECOND), 1);
  sim_nat_open(nat, inner, 40 * SECOND, 40 * SECOND, &outer);
  assert_int_equal(leads(nat, outer, outside(9, 9), 40 * SECOND), 0);
  close_nat(&mem, nat);
}

/* ---- time ---- */

static void idle_mapping_expires_and_a_used_one_stays(void **state) {
  (void)state;
  hv_mem mem;
  sim_nat *nat = open_nat(&mem, HV_SIM_FULL_CONE, 5 * SECOND);
  uint16_t outer;
  hv_addr there = outside(1, OUTSIDE);
  uint32_t id = sim_nat_out(nat, (sim_nat_inner){1, DIALS}, &there, 0, &outer);
  assert_true(sim_nat_pass(nat, id, 4 * SECOND));
  assert_true(sim_nat_pass(nat, id, 9 * SECOND));
  assert_int_equal(leads(nat, outer, there, 14 * SECOND), 1);
  assert_int_equal(leads(nat, outer, there, 14 * SECOND + 1), 0);
  assert_false(sim_nat_pass(nat, id, 14 * SECOND + 1));
  assert_int_not_equal(sends(nat, DIALS, there, 15 * SECOND), outer);
  close_nat(&mem, nat);
}

static void pings_keep_a_mapping_that_may_be_idle_for_longer(void **state) {
  (void)state;
  hv_mem mem;
  sim_nat *nat = open_nat(&mem, HV_SIM_SYMMETRIC, PINGS_US);
  uint16_t outer;
  hv_addr there = outside(1, OUTSIDE);
  uint32_t id = sim_nat_out(nat, (sim_nat_inner){1, DIALS}, &there, 0, &outer);
  assert_true(sim_nat_pass(nat, id, 3600 * SECOND));
  assert_int_equal(sim_nat_port(nat, id), outer);
  sim_nat_close(nat, id);
  assert_int_equal(sim_nat_port(nat, id), 0);
  assert_false(sim_nat_pass(nat, id, 3600 * SECOND));
  close_nat(&mem, nat);
}

/* ---- limits ---- */

static void full_table_takes_a_mapping_when_another_has_expired(void **state) {
  (void)state;
  hv_mem mem;
  sim_nat *nat = open_nat(&mem, HV_SIM_SYMMETRIC, SECOND);
  uint16_t outer;
  for (unsigned i = 0; i < SIM_NAT_ROWS_MAX; i++)
    sends(nat, (uint16_t)(1 + i), outside(1, OUTSIDE), i ? SECOND : 0);
  hv_addr there = outside(2, OUTSIDE);
  assert_int_equal(sim_nat_out(nat, (sim_nat_inner){1, DIALS}, &there, SECOND, &outer), 0);
  assert_true(sim_nat_out(nat, (sim_nat_inner){1, DIALS}, &there, SECOND + 1, &outer) != 0);
  assert_int_equal(sim_nat_out(nat, (sim_nat_inner){2, DIALS}, &there, SECOND + 1, &outer), 0);
  close_nat(&mem, nat);
}

static hv_status fill_nat(hv_mem *mem, void *arg) {
  (void)arg;
  sim_nat *nat = sim_nat_new(mem, &(hv_sim_home){.kind = HV_SIM_FULL_CONE}, PINGS_US);
  hv_status status = nat ? HV_OK : HV_NOMEM;
  for (uint16_t i = 1; i < 40 && status == HV_OK; i++) {
    uint16_t outer;
    hv_addr there = outside(1, i);
    status = sim_nat_out(nat, (sim_nat_inner){1, i}, &there, 0, &outer) ? HV_OK : HV_NOMEM;
  }
  sim_nat_free(nat);
  return status;
}

static void table_without_memory_gives_no_mapping(void **state) {
  (void)state;
  assert_true(check_out_of_memory(fill_nat, NULL) > 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cones_map_an_endpoint_to_one_port_for_all),
      cmocka_unit_test(symmetric_nat_maps_each_destination_to_a_port),
      cmocka_unit_test(each_kind_lets_in_the_senders_of_its_rule),
      cmocka_unit_test(opened_port_lets_all_in_until_its_lease_ends),
      cmocka_unit_test(lease_is_renewed_at_the_same_port_and_given_back),
      cmocka_unit_test(idle_mapping_expires_and_a_used_one_stays),
      cmocka_unit_test(pings_keep_a_mapping_that_may_be_idle_for_longer),
      cmocka_unit_test(full_table_takes_a_mapping_when_another_has_expired),
      cmocka_unit_test(table_without_memory_gives_no_mapping),
  };
  return cmocka_run_group_tests_name("nat", tests, NULL, NULL);
}
