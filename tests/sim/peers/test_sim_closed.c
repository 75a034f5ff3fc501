/* A closed swarm of 64 members and 16 strangers: its tables of peers, ends of invitations, and the spread of a denial. */
#include "lib/check.h"

#include "core/node.h"
#include "core/peers/denials.h"
#include "core/peers/standing.h"
#include "net/invitation.h"
#include "net/sim/sim.h"

#include <string.h>

enum { MEMBERS = 64, STRANGERS = 16, NODES = MEMBERS + STRANGERS, DENIED = 8, HOLDERS = 4 };
#define SECOND 1000000ull

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  hv_identity *key;
  hv_admission admission[NODES]; /* those of strangers are not used */
  hv_target own[NODES], initial;
  hv_span list;
} scene;

typedef struct seat {
  scene *scene;
  size_t number;
} seat;

static hv_status make_node(hv_env *env, void *arg, hv_core *out) {
  const seat *s = arg;
  hv_node *node;
  hv_node_config config = {.me = s->scene->own[s->number].id, .initial = &s->scene->initial, .n_initial = s->number > 0};
  hv_status status = hv_node_new(env, &config, &node);
  if (status == HV_OK)
    *out = (hv_core){node, hv_node_step};
  return status;
}

static void free_node(void *self) {
  hv_node_free(self);
}

/* The first ones are holders; the last DENIED members came by one invitation, the others by another. */
static void membership_of(scene *s, size_t number, int64_t end_s) {
  hv_admission *admission = &s->admission[number];
  admission->swarm = *hv_identity_peer(s->key);
  admission->me.kind = number < HOLDERS ? HV_MEMBERSHIP_HOLDER : HV_MEMBERSHIP_INVITED;
  admission->me.invitation = (hv_invitation){.key = {{number < MEMBERS - DENIED ? 7 : 9}}, .end_s = end_s};
}

static void open_scene(scene *s, uint64_t seed, int64_t end_s, const int64_t *skew_s) {
  static seat seats[NODES];
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.real_crypto = 1;
  s->sim = hv_sim_new(&s->mem, &config);
  s->key = hv_identity_from_seed(&s->mem, (uint8_t[32]){1});
  s->initial = hv_sim_target(s->sim, 0);
  for (size_t i = 0; i < NODES; i++) {
    size_t got;
    seats[i] = (seat){s, i};
    s->own[i] = hv_sim_target(s->sim, i);
    membership_of(s, i, end_s);
    hv_sim_node_config node = {.make = make_node,
                               .free = free_node,
                               .arg = &seats[i],
                               .client_mode = i % 8 == 7,
                               .skew_us = skew_s ? skew_s[i] * (int64_t)SECOND : 0,
                               .admission = i < MEMBERS ? &s->admission[i] : NULL};
    assert_int_equal(hv_sim_add(s->sim, &node, &got), HV_OK);
  }
}

static void close_scene(scene *s) {
  assert_int_equal(hv_sim_free(s->sim), 0);
  hv_mem_free((void *)s->list.data);
  hv_identity_free(s->key);
  assert_int_equal(s->mem.blocks, 0);
}

static hv_node *node_of(scene *s, size_t number) {
  return hv_sim_core(s->sim, number);
}

/* Number of nodes from..to that this node has in its table as alive. */
static size_t alive_of(scene *s, size_t number, size_t from, size_t to) {
  size_t n = 0;
  for (size_t i = from; i < to; i++) {
    const hv_peers_entry *entry = hv_peers_find(hv_node_peers(node_of(s, number)), &s->own[i].id);
    n += entry && entry->state == HV_PEERS_ALIVE;
  }
  return n;
}

static void strangers_meet_no_member(void **unused) {
  scene s;
  const char *why;
  (void)unused;
  open_scene(&s, 5801, INT32_MAX, NULL);
  hv_sim_run_until(s.sim, 60 * SECOND);
  for (size_t i = 0; i < MEMBERS; i++) {
    assert_true(alive_of(&s, i, 0, MEMBERS) >= 8);
    assert_int_equal(alive_of(&s, i, MEMBERS, NODES), 0);
  }
  for (size_t i = MEMBERS; i < NODES; i++) {
    assert_int_equal(alive_of(&s, i, 0, NODES), 0);
    assert_int_equal(hv_standing_refused(hv_node_peers(node_of(&s, i)), &why), HV_CAUSE_NOT_INVITED);
  }
  close_scene(&s);
}

typedef struct taking {
  hv_command command;
  hv_span list;
  hv_status status;
} taking;

static void take(hv_command *command, void *core) {
  taking *t = (taking *)command;
  t->status = hv_denials_take(hv_node_denials(core), t->list);
}

static void deny(scene *s, size_t at) {
  char id[HV_INVITATION_TEXT_MAX];
  static taking t;
  hv_span before = s->list;
  hv_invitation_print(&s->admission[MEMBERS - 1].me.invitation, id);
  assert_int_equal(hv_denials_add(&s->mem, s->key, before, id, 1, &s->list, NULL), HV_OK);
  hv_mem_free((void *)before.data);
  t = (taking){.command = {.run = take}, .list = s->list, .status = HV_INTERNAL};
  assert_int_equal(hv_sim_command(s->sim, at, &t.command), HV_OK);
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + 1000);
  assert_int_equal(t.status, HV_OK);
}

/* Number of members, without the denied ones, that have the list. */
static size_t having(scene *s) {
  size_t n = 0;
  for (size_t i = 0; i < MEMBERS - DENIED; i++)
    n += hv_admission_serial(hv_node_env(node_of(s, i))->admission) == hv_denials_serial(s->list);
  return n;
}

static void assert_denied_are_gone(scene *s) {
  for (size_t i = 0; i < MEMBERS - DENIED; i++)
    assert_int_equal(alive_of(s, i, MEMBERS - DENIED, MEMBERS), 0);
}

static void denial_reaches_all_within_30_s(void **unused) {
  scene s;
  (void)unused;
  open_scene(&s, 5802, INT32_MAX, NULL);
  hv_sim_run_until(s.sim, 60 * SECOND);
  deny(&s, 20);
  hv_sim_run_until(s.sim, hv_sim_now(s.sim) + 30 * SECOND);
  assert_int_equal(having(&s), MEMBERS - DENIED);
  hv_sim_run_until(s.sim, hv_sim_now(s.sim) + 30 * SECOND); /* clients among them fall silent */
  assert_denied_are_gone(&s);
  for (size_t i = 0; i < MEMBERS - DENIED; i++)
    assert_true(alive_of(&s, i, 0, MEMBERS - DENIED) >= 8);
  close_scene(&s);
}

static void denial_crosses_a_partition_when_it_ends(void **unused) {
  scene s;
  (void)unused;
  open_scene(&s, 5803, INT32_MAX, NULL);
  hv_sim_run_until(s.sim, 60 * SECOND);
  for (size_t i = 40; i < MEMBERS; i++)
    hv_sim_group(s.sim, i, 1);
  deny(&s, 3);
  hv_sim_run_until(s.sim, hv_sim_now(s.sim) + 60 * SECOND);
  assert_true(having(&s) >= 35 && having(&s) <= 40);
  hv_sim_heal(s.sim);
  for (int i = 0; i < 300 && having(&s) < MEMBERS - DENIED; i++)
    hv_sim_run_until(s.sim, hv_sim_now(s.sim) + SECOND);
  assert_int_equal(having(&s), MEMBERS - DENIED);
  hv_sim_run_until(s.sim, hv_sim_now(s.sim) + 60 * SECOND);
  assert_denied_are_gone(&s);
  close_scene(&s);
}

static void member_that_restarts_has_its_list(void **unused) {
  scene s;
  (void)unused;
  open_scene(&s, 5804, INT32_MAX, NULL);
  hv_sim_run_until(s.sim, 30 * SECOND);
  deny(&s, 0);
  hv_sim_run_until(s.sim, hv_sim_now(s.sim) + 30 * SECOND);
  hv_sim_kill(s.sim, 10);
  assert_int_equal(hv_sim_restart(s.sim, 10), HV_OK);
  hv_sim_run_until(s.sim, hv_sim_now(s.sim) + 10 * SECOND);
  assert_int_equal(having(&s), MEMBERS - DENIED);
  close_scene(&s);
}

/* The guests' invitations end after a minute, by clocks that are up to 40 minutes apart; an hour of grace hides that. */
static void skewed_clocks_part_nobody_before_the_end(void **unused) {
  scene s;
  int64_t skew_s[NODES];
  (void)unused;
  for (size_t i = 0; i < NODES; i++)
    skew_s[i] = i < HOLDERS ? 0 : (int64_t)(i * 37 % 81 - 40) * 60;
  open_scene(&s, 5805, HV_SIM_UNIX_S + 60, skew_s);
  hv_sim_run_until(s.sim, 300 * SECOND);
  for (size_t i = 0; i < MEMBERS; i++)
    assert_true(alive_of(&s, i, 0, MEMBERS) >= 8);
  hv_sim_run_until(s.sim, (3600 + 2400 + 300) * SECOND);
  for (size_t i = 0; i < HOLDERS; i++)
    assert_int_equal(alive_of(&s, i, HOLDERS, MEMBERS), 0); /* guests are out, by each clock */
  close_scene(&s);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(strangers_meet_no_member),
      cmocka_unit_test(denial_reaches_all_within_30_s),
      cmocka_unit_test(denial_crosses_a_partition_when_it_ends),
      cmocka_unit_test(member_that_restarts_has_its_list),
      cmocka_unit_test(skewed_clocks_part_nobody_before_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
