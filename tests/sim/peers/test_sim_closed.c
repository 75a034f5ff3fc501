/* A closed swarm of 64 members and 16 strangers: its tables of peers, and ends of invitations. */
#include "lib/check.h"

#include "core/node.h"
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
      cmocka_unit_test(skewed_clocks_part_nobody_before_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
