/* The peers whose word decides which state a joiner gets, against many keys of one network. Nodes have public addresses, each in a
 * network of its own or in that of a stranger. */
#include "lib/state_scene.h"

#include "core/dht/dht_inner.h"
#include "core/peers/contact.h"
#include "core/peers/standing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 300, FALSE_NETWORK = 666, LOAD_MS = 60000 };

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  state_scene s;
  state_copy honest, other, false_one; /* replicas */
  state_offering offerings[STATE_NODES_MAX];
  state_try try;
  size_t n_told; /* warnings that no vote decides */
} scene;

static void hear(void *arg, const char *line) {
  scene *sc = arg;
  sc->n_told += strstr(line, "do not agree, and no state has a majority: looking again for at most") != NULL;
  if (getenv("HV_NARRATE"))
    puts(line);
}

/* heard: the log is read, which takes time. */
static void open_scene_heard(scene *sc, uint64_t seed, int heard) {
  memset(sc, 0, sizeof *sc);
  hv_mem_init(&sc->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.say = heard || getenv("HV_NARRATE") ? hear : NULL;
  config.say_arg = sc;
  config.say_least = getenv("HV_NARRATE") ? HV_LOG_DEBUG : HV_LOG_WARN;
  sc->sim = hv_sim_new(&sc->mem, &config);
  state_scene_init(&sc->s, sc->sim, &sc->mem);
  state_copy_make(&sc->honest, &sc->mem, 7, 100, HV_CODEC_NONE);
  state_copy_make(&sc->other, &sc->mem, 8, 100, HV_CODEC_NONE);
  state_copy_make(&sc->false_one, &sc->mem, 666, 100, HV_CODEC_NONE);
}

static void open_scene(scene *sc, uint64_t seed) {
  open_scene_heard(sc, seed, 0);
}

static void close_scene(scene *sc) {
  assert_int_equal(hv_sim_free(sc->sim), 0);
  state_scene_fini(&sc->s);
  state_try_free(&sc->try);
  state_copy_free(&sc->honest);
  state_copy_free(&sc->other);
  state_copy_free(&sc->false_one);
  assert_int_equal(sc->mem.blocks, 0);
}

/* A node in that network (0: a private address) that begins with these nodes. */
static size_t node(scene *sc, uint32_t network, const size_t *initial, size_t n_initial, int client_mode) {
  sc->s.swarm.network = network;
  return dht_swarm_add(&sc->s.swarm, initial, n_initial, client_mode);
}

/* A node that knows the first one. */
static size_t newcomer(scene *sc, uint32_t network, int client_mode) {
  static const size_t first[] = {0};
  return node(sc, network, first, sc->s.swarm.n > 0, client_mode);
}

static void offers(scene *sc, size_t at, state_copy *copy, uint64_t epoch) {
  hv_payload_keep(&copy->payload);
  state_offer(&sc->s, at, &sc->offerings[at], copy, "run", epoch);
  sc->offerings[at].offer.priority = copy == &sc->false_one; /* liars push to the front */
}

static void all_offered(scene *sc) {
  dht_swarm_run(&sc->s.swarm, 6);
  for (size_t i = 0; i < sc->s.swarm.n; i++)
    if (sc->offerings[i].command.run) {
      assert_int_equal(sc->offerings[i].status, HV_OK);
      hv_payload_release(sc->offerings[i].offer.bytes);
    }
}

static void load(scene *sc, size_t at, uint64_t epoch_least) {
  state_load(&sc->s, at, &sc->try, "run", LOAD_MS);
  sc->try.load.epoch_least = epoch_least;
}

static void gets(scene *sc, size_t at, const state_copy *copy) {
  load(sc, at, 0);
  assert_true(state_finish(&sc->s, &sc->try, 1, 100));
  if (sc->try.status != HV_OK)
    fail_msg("it ended with %s (%s)", hv_status_name(sc->try.status), sc->try.text);
  assert_true(state_same(&sc->try, copy));
}

/* Puts the announcement of a node that knows no other one where the first two look for it: hundreds of nodes that talk take long.
 */
static void announce_for(scene *sc, size_t at, uint64_t epoch) {
  dht_seat *seat = &sc->s.swarm.seats[at];
  hv_peer_id me = hv_sim_target(sc->sim, at).id;
  hv_addr addr = hv_sim_target(sc->sim, at).addr;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX], value[HV_BALLOT_BYTES_MAX];
  char subkey[HV_BALLOT_SUBKEY_MAX];
  hv_hash place;
  hv_ballot ballot = {.epoch = epoch,
                      .digest = sc->offerings[at].offer.digest,
                      .priority = 1,
                      .addrs = hv_span_of(addrs, seat->client_mode ? 0 : hv_contact_pack(&addr, 1, addrs))};
  hv_record record = {.has_subkey = 1, .ttl_ms = 60000, .lease_ms = 60000, .version = 1, .signer = me};
  record.subkey = hv_span_of(subkey, hv_ballot_subkey(&me, subkey));
  record.value = hv_span_of(value, hv_ballot_write(&ballot, value));
  seat->env->sha256(seat->env, hv_span_of("run.state", 9), &place);
  record.key = hv_span_of("run.state", 9);
  assert_int_equal(hv_record_sign(seat->env, &me, &place, &record), HV_OK);
  for (size_t i = 0; i < 2; i++)
    assert_int_equal(hv_store_put(&dht_swarm_dht(&sc->s.swarm, i)->store, &record, &me, NULL), HV_OK);
}

/* Honest nodes 0 and 1 offer a state of epoch 40, and `keys` keys of one network another one of that epoch or a later one. */
static void besiege(scene *sc, size_t keys, uint64_t epoch, int client_mode) {
  newcomer(sc, 1, 0);
  newcomer(sc, 2, 0);
  for (size_t i = 0; i < keys; i++)
    node(sc, FALSE_NETWORK, NULL, 0, client_mode);
  dht_swarm_run(&sc->s.swarm, 3);
  for (size_t i = 0; i < keys + 2; i++)
    offers(sc, i, i < 2 ? &sc->honest : &sc->false_one, i < 2 ? 40 : epoch);
  all_offered(sc);
  for (size_t i = 2; i < keys + 2; i++)
    announce_for(sc, i, epoch);
}

/* ---- initial peers ---- */

static void initial_donors_decide_against_3_and_300_keys(void **unused) {
  (void)unused;
  static const size_t keys[] = {3, KEYS}, both[] = {0, 1};
  for (size_t i = 0; i < 4; i++) {
    scene sc;
    open_scene(&sc, 10 + i);
    besiege(&sc, keys[i / 2], i % 2 ? 1000 : 40, 0);
    size_t joiner = node(&sc, 3, both, 2, 0);
    dht_swarm_run(&sc.s.swarm, 2);
    gets(&sc, joiner, &sc.honest);
    assert_int_equal(sc.try.load.seen.voters, keys[i / 2] + 2);
    assert_int_equal(sc.try.load.seen.looks, 1);
    close_scene(&sc);
  }
}

/* The only initial peer is behind, and the joiner knows that the swarm is further. */
static void late_initial_peer_leaves_the_choice_to_others(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 20);
  for (uint32_t i = 0; i < 5; i++)
    newcomer(&sc, 1 + i, 0);
  dht_swarm_run(&sc.s.swarm, 6);
  for (size_t i = 0; i < 4; i++)
    offers(&sc, i, i ? &sc.honest : &sc.other, i ? 40 : 39);
  all_offered(&sc);
  load(&sc, 4, 40);
  assert_true(state_finish(&sc.s, &sc.try, 1, 100));
  assert_int_equal(sc.try.status, HV_OK);
  assert_true(state_same(&sc.try, &sc.honest));
  close_scene(&sc);
}

/* An initial peer in client mode offers an older state, which nobody can send. */
static void known_state_without_a_donor_does_not_decide(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 21);
  for (uint32_t i = 0; i < 4; i++)
    newcomer(&sc, 1 + i, i == 3);
  dht_swarm_run(&sc.s.swarm, 6);
  offers(&sc, 1, &sc.honest, 40);
  offers(&sc, 2, &sc.honest, 40);
  offers(&sc, 3, &sc.other, 39);
  all_offered(&sc);
  size_t both[] = {0, 3}, joiner = node(&sc, 5, both, 2, 0);
  dht_swarm_run(&sc.s.swarm, 3);
  gets(&sc, joiner, &sc.honest);
  close_scene(&sc);
}

/* ---- partners ---- */

typedef struct meeting {
  hv_command command;
  hv_peer_id id;
} meeting;

static void run_meeting(hv_command *command, void *core) {
  hv_standing_averaged(hv_node_peers(core), &((meeting *)command)->id);
}

/* The node that loads has averaged with two honest donors, and the initial peers have no state. */
static void partners_decide_against_keys_of_many_networks(void **unused) {
  (void)unused;
  enum { LIARS = 6 };
  scene sc;
  meeting met[2];
  open_scene(&sc, 30);
  for (uint32_t i = 0; i < 4 + LIARS; i++)
    newcomer(&sc, 1 + i, 0);
  dht_swarm_run(&sc.s.swarm, 6);
  for (size_t i = 2; i < 4 + LIARS; i++)
    offers(&sc, i, i < 4 ? &sc.honest : &sc.false_one, 40);
  all_offered(&sc);
  for (size_t i = 0; i < 2; i++) {
    met[i] = (meeting){.command.run = run_meeting, .id = hv_sim_target(sc.sim, 2 + i).id};
    assert_int_equal(hv_sim_command(sc.sim, 1, &met[i].command), HV_OK);
  }
  dht_swarm_run(&sc.s.swarm, 0.1);
  gets(&sc, 1, &sc.honest);
  close_scene(&sc);
}

static void node_remembers_initial_peers_and_partners(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 31);
  for (size_t i = 0; i < 3; i++)
    newcomer(&sc, 0, 0);
  dht_swarm_run(&sc.s.swarm, 6);
  hv_peers *peers = hv_node_peers(sc.s.swarm.seats[1].node);
  hv_peer_id first = hv_sim_target(sc.sim, 0).id, third = hv_sim_target(sc.sim, 2).id;
  assert_int_equal(hv_standing_of(peers, &first), HV_STANDING_INITIAL);
  assert_int_equal(hv_standing_of(peers, &third), HV_STANDING_STRANGER);
  hv_standing_averaged(peers, &third);
  assert_int_equal(hv_standing_of(peers, &third), HV_STANDING_PARTNER);
  hv_sim_kill(sc.sim, 0);
  hv_sim_kill(sc.sim, 2);
  dht_swarm_run(&sc.s.swarm, 30);
  assert_int_equal(hv_standing_of(peers, &first), HV_STANDING_INITIAL);
  assert_int_equal(hv_standing_of(peers, &third), HV_STANDING_STRANGER);
  assert_int_equal(hv_standing_of(peers, &(hv_peer_id){{0}}), HV_STANDING_STRANGER);
  close_scene(&sc);
}

/* The user's peer is trusted, and one in a private network. Of a key in a public one it takes an average. */
static void peer_is_trusted_for_an_average_not_for_living(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 32);
  static const uint32_t networks[] = {1, 2, 3, 0};
  for (size_t i = 0; i < 4; i++)
    newcomer(&sc, networks[i], 0);
  dht_swarm_run(&sc.s.swarm, 6);
  hv_peers *peers = hv_node_peers(sc.s.swarm.seats[1].node);
  hv_peer_id first = hv_sim_target(sc.sim, 0).id, third = hv_sim_target(sc.sim, 2).id, near = hv_sim_target(sc.sim, 3).id;
  assert_int_equal(hv_standing_tier(peers, &first), HV_TIER_TRUSTED);
  assert_int_equal(hv_standing_tier(peers, &third), HV_TIER_MET);
  assert_int_equal(hv_standing_tier(peers, &near), HV_TIER_TRUSTED);
  hv_standing_averaged(peers, &third);
  assert_int_equal(hv_standing_tier(peers, &third), HV_TIER_TRUSTED);
  hv_sim_kill(sc.sim, 2);
  dht_swarm_run(&sc.s.swarm, 30);
  assert_int_equal(hv_standing_tier(peers, &third), HV_TIER_STRANGER);
  assert_int_equal(hv_standing_tier(peers, &(hv_peer_id){{0}}), HV_TIER_STRANGER);
  close_scene(&sc);
}

/* ---- networks ---- */

/* The joiner's initial peer offers nothing. The keys answer, or say that nobody can dial them. */
static void keys_of_one_network_are_one_vote(void **unused) {
  (void)unused;
  static const size_t keys[] = {3, KEYS};
  for (int client_mode = 0; client_mode < 2; client_mode++)
    for (size_t i = 0; i < 2; i++) {
      scene sc;
      open_scene(&sc, 40 + i);
      besiege(&sc, keys[i], 40, client_mode);
      size_t helper = newcomer(&sc, 4, 0);
      dht_swarm_run(&sc.s.swarm, 3);
      size_t joiner = node(&sc, 3, &helper, 1, 0);
      dht_swarm_run(&sc.s.swarm, 3);
      gets(&sc, joiner, &sc.honest);
      assert_in_range(sc.try.load.seen.voters, 5, keys[i] + 2); /* of many, 64 are asked */
      close_scene(&sc);
    }
}

static void swarm_of_one_network_gets_its_state(void **unused) {
  (void)unused;
  for (uint32_t network = 0; network < 2; network++) {
    scene sc;
    open_scene(&sc, 50 + network);
    for (size_t i = 0; i < 8; i++)
      newcomer(&sc, network, 0);
    dht_swarm_run(&sc.s.swarm, 6);
    for (size_t i = 1; i < 7; i++)
      offers(&sc, i, i < 5 ? &sc.honest : &sc.other, 40);
    all_offered(&sc);
    gets(&sc, 7, &sc.honest);
    close_scene(&sc);
  }
}

/* ---- nothing decides ---- */

static void undecided_joiner_says_so_once_and_waits(void **unused) {
  (void)unused;
  scene sc;
  open_scene_heard(&sc, 60, 1);
  for (uint32_t i = 0; i < 4; i++)
    newcomer(&sc, 1 + i, 0);
  dht_swarm_run(&sc.s.swarm, 6);
  offers(&sc, 1, &sc.honest, 40);
  offers(&sc, 2, &sc.other, 40);
  all_offered(&sc);
  load(&sc, 3, 0);
  assert_true(state_finish(&sc.s, &sc.try, 1, 100));
  assert_int_equal(sc.try.status, HV_STATE);
  assert_in_range(sc.try.ended_us - sc.try.started_us, LOAD_MS * 1000ull, LOAD_MS * 1000ull + DHT_SECOND);
  assert_int_equal(sc.n_told, 1);
  assert_in_range(sc.try.load.seen.looks, 20, 60);
  assert_int_equal(sc.try.rooms, 0);
  close_scene(&sc);
}

/* A third peer offers one of the two states after half a minute. */
static void undecided_joiner_takes_a_later_majority(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 61);
  for (uint32_t i = 0; i < 5; i++)
    newcomer(&sc, 1 + i, 0);
  dht_swarm_run(&sc.s.swarm, 6);
  offers(&sc, 1, &sc.honest, 40);
  offers(&sc, 2, &sc.other, 40);
  all_offered(&sc);
  load(&sc, 4, 0);
  dht_swarm_run(&sc.s.swarm, 30);
  assert_int_equal(sc.try.done, 0);
  offers(&sc, 3, &sc.honest, 40);
  assert_true(state_finish(&sc.s, &sc.try, 1, 8));
  hv_payload_release(sc.offerings[3].offer.bytes);
  assert_int_equal(sc.try.status, HV_OK);
  assert_true(state_same(&sc.try, &sc.honest));
  close_scene(&sc);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(initial_donors_decide_against_3_and_300_keys),
      cmocka_unit_test(late_initial_peer_leaves_the_choice_to_others),
      cmocka_unit_test(known_state_without_a_donor_does_not_decide),
      cmocka_unit_test(partners_decide_against_keys_of_many_networks),
      cmocka_unit_test(node_remembers_initial_peers_and_partners),
      cmocka_unit_test(peer_is_trusted_for_an_average_not_for_living),
      cmocka_unit_test(keys_of_one_network_are_one_vote),
      cmocka_unit_test(swarm_of_one_network_gets_its_state),
      cmocka_unit_test(undecided_joiner_says_so_once_and_waits),
      cmocka_unit_test(undecided_joiner_takes_a_later_majority),
  };
  return cmocka_run_group_tests_name("sim: state votes", tests, NULL, NULL);
}
