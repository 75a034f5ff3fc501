/* A roster that strangers fill keeps its members. */
#include "lib/check.h"

#include "core/match/roster.h"
#include "core/peers/contact.h"
#include "lib/fake_env.h"

#include <string.h>

enum { MEMBERS = 8, KNOWN = 2 * HV_ROSTER_MAX };

typedef struct crowd {
  fake_env world;
  hv_peers peers;
  hv_roster roster;
  hv_peers_entry known[KNOWN], *entries[KNOWN];
  uint64_t tags[KNOWN];
} crowd;

static void changed(void *arg) {
  (void)arg;
}

static crowd *open_crowd(void) {
  crowd *c = test_calloc(1, sizeof *c);
  fake_env_init(&c->world, 1);
  c->world.now_us = 1000000;
  c->peers.env = &c->world.env;
  c->peers.entries = c->entries;
  c->peers.tags = c->tags;
  hv_roster_config config = {
      .me = c->world.me, .card = &c->peers.config.me, .key = hv_span_of("run.", 4), .apart = 1, .changed = changed};
  hv_roster_init(&c->roster, &c->world.env, NULL, &c->peers, &config);
  return c;
}

static void close_crowd(crowd *c) {
  hv_roster_fini(&c->roster, 0);
  assert_int_equal(c->world.mem.blocks, 0);
  test_free(c);
}

/* A peer of this network calls, 10 ms after the one before. */
static hv_peer_id calls(crowd *c, uint64_t number, uint64_t network, int averaged) {
  hv_peer_id id = fake_peer(number);
  size_t at = c->peers.n_entries++;
  c->known[at] = (hv_peers_entry){.card.id = id, .state = HV_PEERS_ALIVE, .network = network, .averaged = averaged != 0};
  c->entries[at] = &c->known[at];
  memcpy(&c->tags[at], id.key, sizeof c->tags[at]);
  c->world.now_us += 10000;
  hv_roster_called(&c->roster, &id, (hv_span){0});
  return id;
}

static size_t here(crowd *c, uint64_t from, size_t n) {
  size_t found = 0;
  for (uint64_t i = from; i < from + n; i++) {
    hv_peer_id id = fake_peer(i);
    found += hv_roster_find(&c->roster, &id) != NULL;
  }
  return found;
}

static void strangers_leave_members_in_a_full_roster(void **unused) {
  (void)unused;
  crowd *c = open_crowd();
  for (uint64_t i = 0; i < MEMBERS; i++)
    calls(c, 1 + i, 7, 1);
  for (uint64_t i = 0; i < HV_ROSTER_MAX + 100; i++)
    calls(c, 1000 + i, 7, 0);
  assert_int_equal(c->roster.n, HV_ROSTER_MAX);
  assert_int_equal(here(c, 1, MEMBERS), MEMBERS);
  close_crowd(c);
}

static void newcomer_of_another_network_replaces_one_of_a_crowd(void **unused) {
  (void)unused;
  crowd *c = open_crowd();
  for (uint64_t i = 0; i < HV_ROSTER_MAX + 50; i++)
    calls(c, 1000 + i, 7, 0);
  assert_int_equal(here(c, 1000, HV_ROSTER_MAX), HV_ROSTER_MAX); /* the first have stayed */
  calls(c, 1, 8, 0);
  calls(c, 2, 7, 1); /* a trusted one, of the crowd's network */
  assert_int_equal(here(c, 1, 2), 2);
  assert_int_equal(here(c, 1000, HV_ROSTER_MAX - 2), HV_ROSTER_MAX - 2);
  close_crowd(c);
}

static void network_of_members_takes_newcomers_in_a_full_roster(void **unused) {
  (void)unused;
  crowd *c = open_crowd();
  for (uint64_t i = 0; i < HV_ROSTER_MAX / 2; i++)
    calls(c, 1 + i, 8, 1);
  for (uint64_t i = 0; i < HV_ROSTER_MAX; i++)
    calls(c, 2000 + i, 7 + i % 2 * 2, 0); /* two networks of strangers, each smaller than that of the members */
  calls(c, 5000, 8, 0);
  assert_int_equal(here(c, 1, HV_ROSTER_MAX / 2), HV_ROSTER_MAX / 2);
  assert_int_equal(here(c, 5000, 1), 1);
  close_crowd(c);
}

static void ended_entry_makes_way_first(void **unused) {
  (void)unused;
  crowd *c = open_crowd();
  hv_peer_id old = calls(c, 1, 7, 1);
  for (uint64_t i = 1; i < HV_ROSTER_MAX; i++)
    calls(c, 1000 + i, 7, 1);
  hv_roster_find(&c->roster, &old)->expires_us = c->world.now_us;
  calls(c, 5, 7, 0);
  assert_int_equal(here(c, 1, 1), 0);
  assert_int_equal(here(c, 5, 1), 1);
  calls(c, 6, 8, 0); /* as alone in its network as the last, which stays */
  assert_int_equal(here(c, 5, 2), 1);
  close_crowd(c);
}

/* A client is not told of one that has come back: it hears so from the host that redirects to it. */
static void ended_peer_is_asked_again_once_a_host_redirects_to_it(void **unused) {
  (void)unused;
  crowd *c = open_crowd();
  hv_peer_id id = calls(c, 1, 7, 1);
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {10, 0, 0, 1}};
  hv_span packed = hv_span_of(addrs, hv_contact_pack(&addr, 1, addrs));
  hv_rank rank = hv_rank_for(&c->world.env, hv_span_of("run.", 4), hv_span_of("5", 1));
  hv_roster_called(&c->roster, &id, packed);
  assert_non_null(hv_roster_first(&c->roster, &rank, NULL, (hv_span){0}));
  hv_roster_gone(&c->roster, &id);
  hv_roster_heard(&c->roster, &id, packed); /* as of a member of a group, which may have ended since */
  assert_null(hv_roster_first(&c->roster, &rank, NULL, (hv_span){0}));
  hv_roster_redirected(&c->roster, &id, packed);
  hv_roster_entry *first = hv_roster_first(&c->roster, &rank, NULL, (hv_span){0});
  assert_non_null(first);
  assert_true(hv_peer_equal(&first->id, &id));
  hv_roster_failed(&c->roster, &id); /* it has not come back */
  assert_null(hv_roster_first(&c->roster, &rank, NULL, (hv_span){0}));
  assert_false(hv_roster_counts(&c->roster, first));
  close_crowd(c);
}

static void group_that_came_to_nothing_leaves_no_peer_behind_it(void **unused) {
  (void)unused;
  crowd *c = open_crowd();
  hv_peer_id id = calls(c, 1, 7, 1);
  hv_roster_had(&c->roster, &id, 6);
  hv_roster_set_place(&c->roster, &id, 6, 0); /* as one that has come back says, which seeks no group yet */
  assert_true(hv_roster_has_passed(&c->roster, hv_roster_find(&c->roster, &id), 6));
  hv_roster_forget_had(&c->roster, 5);
  assert_true(hv_roster_has_passed(&c->roster, hv_roster_find(&c->roster, &id), 6));
  hv_roster_forget_had(&c->roster, 6);
  assert_false(hv_roster_has_passed(&c->roster, hv_roster_find(&c->roster, &id), 6));
  assert_true(hv_roster_may_come(&c->roster, hv_roster_find(&c->roster, &id), 6));
  close_crowd(c);
}

/* A client that trains alone reports to nobody, and a hub that follows it has no groups. */
static void peers_miss_only_groups_that_were_there(void **unused) {
  (void)unused;
  for (int had_group = 0; had_group <= 1; had_group++) {
    crowd *c = open_crowd();
    hv_peer_id id = calls(c, 1, 7, 1);
    hv_roster_moved(&c->roster, 1, 1);
    hv_roster_set_place(&c->roster, &id, 1, 0);
    for (uint64_t at = 2; at < 6; at++)
      hv_roster_moved(&c->roster, at, had_group);
    c->world.now_us += 20000000; /* its place is too old to count */
    assert_int_equal(hv_roster_may_come(&c->roster, hv_roster_find(&c->roster, &id), 5), !had_group);
    close_crowd(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strangers_leave_members_in_a_full_roster),
      cmocka_unit_test(newcomer_of_another_network_replaces_one_of_a_crowd),
      cmocka_unit_test(network_of_members_takes_newcomers_in_a_full_roster),
      cmocka_unit_test(ended_entry_makes_way_first),
      cmocka_unit_test(ended_peer_is_asked_again_once_a_host_redirects_to_it),
      cmocka_unit_test(group_that_came_to_nothing_leaves_no_peer_behind_it),
      cmocka_unit_test(peers_miss_only_groups_that_were_there),
  };
  return cmocka_run_group_tests_name("roster", tests, NULL, NULL);
}
