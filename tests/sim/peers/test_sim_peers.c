/* Membership and parcels, told against the virtual clock. */
#include "lib/check.h"

#include "core/node.h"
#include "core/peers/standing.h"
#include "net/sim/sim.h"

#include <string.h>

enum { NODES_MAX = 48, MYSELF = 3 };
#define SECOND 1000000ull

typedef struct seat {
  hv_target initial[4]; /* the last one: who it is itself */
  size_t n_initial;
  size_t parcel_max, held_max, room;
  int client_mode;
} seat;

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  seat seats[NODES_MAX];
} scene;

static hv_status make_node(hv_env *env, void *arg, hv_core *out) {
  const seat *s = arg;
  hv_node *node;
  hv_node_config config = {
      .me = s->initial[MYSELF].id,
      .client_mode = s->client_mode,
      .initial = s->initial,
      .n_initial = s->n_initial,
      .parcel_max = s->parcel_max,
      .parcels_held_max = s->held_max,
      .peers_room = s->room,
  };
  hv_status status = hv_node_new(env, &config, &node);
  if (status == HV_OK)
    *out = (hv_core){node, hv_node_step};
  return status;
}

static void free_node(void *self) {
  hv_node_free(self);
}

static void open_scene(scene *s, uint64_t seed) {
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  s->sim = hv_sim_new(&s->mem, &config);
  assert_non_null(s->sim);
}

/* Adds a node that is given one more initial peer (HV_SIM_ANY: none). */
static void add(scene *s, size_t initial) {
  size_t node = hv_sim_nodes(s->sim), got;
  seat *here = &s->seats[node];
  here->initial[MYSELF] = hv_sim_target(s->sim, node);
  if (initial != HV_SIM_ANY)
    here->initial[here->n_initial++] = hv_sim_target(s->sim, initial);
  hv_sim_node_config sim_seat = {.make = make_node, .free = free_node, .arg = here, .client_mode = here->client_mode};
  assert_int_equal(hv_sim_add(s->sim, &sim_seat, &got), HV_OK);
  assert_int_equal(got, node);
}

static void close_scene(scene *s) {
  assert_int_equal(hv_sim_free(s->sim), 0);
  assert_int_equal(s->mem.blocks, 0);
}

static hv_peers *peers_of(scene *s, size_t node) {
  return hv_node_peers(hv_sim_core(s->sim, node));
}

static size_t alive(scene *s, size_t node) {
  return hv_peers_alive(peers_of(s, node));
}

static hv_peers_state state_of(scene *s, size_t node, size_t other) {
  hv_target target = hv_sim_target(s->sim, other);
  const hv_peers_entry *entry = hv_peers_find(peers_of(s, node), &target.id);
  return entry ? entry->state : HV_PEERS_UNVERIFIED;
}

static void run(scene *s, double seconds) {
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + (uint64_t)(seconds * SECOND));
}

static void three_that_know_one_find_each_other(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 1);
  add(&s, HV_SIM_ANY), add(&s, 0), add(&s, 0);
  run(&s, 2);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(alive(&s, i), 2);
  close_scene(&s);
}

static void a_killed_peer_is_lost_within_a_second(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2);
  add(&s, HV_SIM_ANY), add(&s, 0), add(&s, 0);
  run(&s, 3);
  hv_sim_kill(s.sim, 1);
  run(&s, 1);
  assert_int_equal(state_of(&s, 0, 1), HV_PEERS_LOST);
  assert_int_equal(state_of(&s, 2, 1), HV_PEERS_LOST);
  assert_int_equal(state_of(&s, 0, 2), HV_PEERS_ALIVE);
  hv_sim_restart(s.sim, 1); /* and is met again when it comes back */
  run(&s, 5);
  assert_int_equal(alive(&s, 0), 2);
  assert_int_equal(alive(&s, 2), 2);
  close_scene(&s);
}

static void a_peer_that_leaves_says_so(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 3);
  add(&s, HV_SIM_ANY), add(&s, 0), add(&s, 0);
  run(&s, 3);
  hv_sim_stop(s.sim, 2);
  run(&s, 0.2);
  assert_int_equal(state_of(&s, 0, 2), HV_PEERS_LOST);
  assert_int_equal(state_of(&s, 1, 2), HV_PEERS_LOST);
  assert_false(hv_sim_alive(s.sim, 2)); /* all had heard it: it did not wait for its grace */
  close_scene(&s);
}

static void an_unplugged_peer_is_doubted_then_lost(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 4);
  add(&s, HV_SIM_ANY), add(&s, 0);
  run(&s, 3);
  hv_sim_unplug(s.sim, 1);
  run(&s, 1);
  assert_int_equal(state_of(&s, 0, 1), HV_PEERS_ALIVE); /* nobody was told */
  run(&s, 25);
  assert_int_equal(state_of(&s, 0, 1), HV_PEERS_LOST);
  close_scene(&s);
}

/* ---- hellos that are lost ---- */

typedef struct question {
  const hv_peers_entry *of;
  int asking;
} question;

static int it_is_so(void *arg) {
  const question *q = arg;
  return q->of->asking == q->asking;
}

static void echo_over(hv_node_echo *echo, hv_status status, hv_span bytes, const char *text) {
  (void)bytes, (void)text;
  *(hv_status *)echo->owner = status;
}

/* The next hello from 0 to 1 is lost on the way. */
static void lose_a_hello(scene *s, const hv_peers_entry *entry) {
  hv_sim_cut(s->sim, 0, 1, 1);
  assert_true(hv_sim_drive(s->sim, it_is_so, &(question){entry, 1}, hv_sim_now(s->sim) + 60 * SECOND));
  run(s, 0.5);
  hv_sim_cut(s->sim, 0, 1, 0);
}

/* Likewise; 1 answers an echo while 0 waits. */
static void lose_a_hello_and_echo(scene *s, const hv_peers_entry *entry) {
  hv_status status = HV_BUSY;
  hv_node_echo echo = {
      .done = echo_over, .owner = &status, .to = entry->card.id, .bytes = hv_span_of("here", 4), .timeout_ms = 2000};
  lose_a_hello(s, entry);
  assert_int_equal(hv_node_echo_start(hv_sim_core(s->sim, 0), &echo), HV_OK);
  run(s, 0.5);
  assert_int_equal(status, HV_OK);
  assert_true(hv_sim_drive(s->sim, it_is_so, &(question){entry, 0}, hv_sim_now(s->sim) + 5 * SECOND));
}

/* It is not lost with two lost hellos, and is alive again later. */
static void peer_that_answers_other_calls_is_lost_after_six_hellos(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 8);
  add(&s, HV_SIM_ANY), add(&s, 0);
  run(&s, 10);
  hv_target one = hv_sim_target(s.sim, 1);
  const hv_peers_entry *entry = hv_peers_find(peers_of(&s, 0), &one.id);
  for (int k = 1; k < 6; k++) {
    lose_a_hello_and_echo(&s, entry);
    assert_int_equal(entry->state, HV_PEERS_DOUBTED);
  }
  lose_a_hello_and_echo(&s, entry);
  assert_int_equal(entry->state, HV_PEERS_LOST);
  run(&s, 60);
  assert_int_equal(entry->state, HV_PEERS_ALIVE);
  close_scene(&s);
}

static void peer_doubted_for_a_lost_hello_is_not_new_again(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 9);
  add(&s, HV_SIM_ANY), add(&s, 0);
  run(&s, 120);
  hv_target one = hv_sim_target(s.sim, 1);
  const hv_peers_entry *entry = hv_peers_find(peers_of(&s, 0), &one.id);
  lose_a_hello(&s, entry);
  run(&s, 2.6); /* three seconds are over: it is doubted, and asked at once */
  assert_int_equal(entry->state, HV_PEERS_ALIVE);
  assert_true(entry->ask_us > entry->seen_us + 6 * SECOND);
  close_scene(&s);
}

/* ---- how many hellos there are ---- */

typedef struct hellos {
  size_t said[2];
  size_t last; /* who asked, and has no answer yet; HV_SIM_ANY: nobody */
} hellos;

/* An answer is a hello, too: of each two messages the first one counts. */
static void count_hellos(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size) {
  enum { HELLO = 3 << 3 | 2 }; /* its number in the .proto, a message */
  hellos *h = arg;
  (void)to;
  if (size < 3 || bytes[2] != HELLO)
    return;
  if (h->last != HV_SIM_ANY && h->last != from) {
    h->last = HV_SIM_ANY; /* the answer */
    return;
  }
  h->last = from;
  h->said[from]++;
}

/* Ten minutes: each of both would send some 60 hellos. One of them sends most, and the other one sends some now and then. */
static void well_known_pair_shares_its_hellos(void **unused) {
  (void)unused;
  scene s;
  hellos h = {.last = HV_SIM_ANY};
  open_scene(&s, 10);
  add(&s, HV_SIM_ANY), add(&s, 0);
  run(&s, 120);
  hv_sim_set_tap(s.sim, count_hellos, &h);
  run(&s, 600);
  if (h.said[0] + h.said[1] > 80 || h.said[0] < 12 || h.said[1] < 12)
    fail_msg("%zu and %zu hellos", h.said[0], h.said[1]);
  hv_sim_unplug(s.sim, 1); /* and who falls silent is found as soon as if it asked alone */
  run(&s, 20);
  assert_int_equal(state_of(&s, 0, 1), HV_PEERS_LOST);
  close_scene(&s);
}

static void a_healed_partition_finds_itself(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 5);
  add(&s, HV_SIM_ANY);
  for (int i = 1; i < 6; i++)
    add(&s, 0);
  run(&s, 10);
  for (size_t i = 0; i < 6; i++)
    assert_int_equal(alive(&s, i), 5);
  for (size_t i = 3; i < 6; i++)
    hv_sim_group(s.sim, i, 1);
  run(&s, 60);
  for (size_t i = 0; i < 6; i++)
    assert_int_equal(alive(&s, i), 2);
  hv_sim_heal(s.sim);
  run(&s, 60);
  for (size_t i = 0; i < 6; i++)
    assert_int_equal(alive(&s, i), 5);
  close_scene(&s);
}

/* A lost peer was asked each 30 s, so a peer found the others up to 25 s after its line's return. */
static void peer_cut_off_for_long_is_back_within_nine_seconds(void **unused) {
  (void)unused;
  for (size_t cut = 0; cut < 2; cut++) { /* the first one was given no initial peer */
    scene s;
    open_scene(&s, 12 + cut);
    add(&s, HV_SIM_ANY);
    for (int i = 1; i < 4; i++)
      add(&s, 0);
    run(&s, 10);
    hv_sim_group(s.sim, cut, 1);
    run(&s, 600);
    assert_int_equal(alive(&s, cut), 0);
    hv_sim_heal(s.sim);
    run(&s, 9);
    assert_int_equal(alive(&s, cut), 3);
    close_scene(&s);
  }
}

static void peer_started_before_its_initial_peer_waits_for_it(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 6);
  add(&s, HV_SIM_ANY);
  hv_sim_kill(s.sim, 0);
  add(&s, 0);
  run(&s, 20);
  assert_true(hv_standing_none_answers(peers_of(&s, 1)));
  assert_int_equal(peers_of(&s, 1)->starts[0].status, HV_REFUSED);
  assert_true(peers_of(&s, 1)->starts[0].tries > 2);
  hv_sim_restart(s.sim, 0);
  run(&s, 40);
  assert_int_equal(alive(&s, 1), 1);
  assert_int_equal(alive(&s, 0), 1);
  close_scene(&s);
}

static void initial_list_with_oneself_is_accepted(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 7);
  for (size_t i = 0; i < 3; i++) {
    s.seats[i].initial[s.seats[i].n_initial++] = hv_sim_target(s.sim, 0);
    add(&s, 1);
  }
  run(&s, 5);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(alive(&s, i), 2);
  close_scene(&s);
}

static void a_wrong_identity_is_refused(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 8);
  add(&s, HV_SIM_ANY);
  s.seats[1].initial[0] = hv_sim_target(s.sim, 0);
  s.seats[1].initial[0].id = hv_sim_target(s.sim, 9).id;
  s.seats[1].n_initial = 1;
  add(&s, HV_SIM_ANY);
  run(&s, 5);
  assert_int_equal(peers_of(&s, 1)->starts[0].status, HV_DENIED);
  assert_true(hv_standing_none_answers(peers_of(&s, 1)));
  assert_int_equal(alive(&s, 1), 0);
  close_scene(&s);
}

static void a_client_is_known_while_it_says_hello(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 9);
  add(&s, HV_SIM_ANY), add(&s, 0);
  s.seats[2].client_mode = 1;
  add(&s, 0);
  run(&s, 40);
  assert_int_equal(state_of(&s, 0, 2), HV_PEERS_ALIVE);
  hv_target target, client = hv_sim_target(s.sim, 2);
  assert_int_equal(hv_peers_target(peers_of(&s, 0), &client.id, &target), HV_UNREACHABLE);
  assert_int_equal(alive(&s, 2), 2); /* and meets everybody itself */
  hv_sim_unplug(s.sim, 2);
  run(&s, 60);
  assert_int_equal(state_of(&s, 0, 2), HV_PEERS_LOST);
  close_scene(&s);
}

/* The initial peer was lost long ago; a client kept the node company until it went without a word. */
static void lone_peer_retries_all_known_peers_for_ever(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 11);
  add(&s, HV_SIM_ANY), add(&s, 0);
  s.seats[2].client_mode = 1;
  add(&s, 1);
  run(&s, 5);
  hv_sim_kill(s.sim, 0);
  run(&s, 600);
  assert_int_equal(state_of(&s, 1, 0), HV_PEERS_LOST);
  assert_int_equal(alive(&s, 1), 1);
  hv_sim_unplug(s.sim, 2);
  run(&s, 60);
  assert_int_equal(alive(&s, 1), 0);
  hv_sim_restart(s.sim, 0); /* it knows nobody: it has to be found */
  run(&s, 60);
  assert_int_equal(state_of(&s, 1, 0), HV_PEERS_ALIVE);
  close_scene(&s);
}

static void a_small_table_holds_in_a_large_swarm(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 10);
  for (size_t i = 0; i < NODES_MAX; i++) {
    s.seats[i].room = 8;
    add(&s, i ? i - 1 : HV_SIM_ANY);
  }
  run(&s, 60);
  for (size_t i = 0; i < NODES_MAX; i++) {
    assert_in_range(peers_of(&s, i)->n_entries, 1, 8);
    assert_in_range(alive(&s, i), 1, 8);
  }
  close_scene(&s);
}

/* ---- parcels ---- */

typedef struct transfer {
  hv_command command;
  hv_parcel_send send;
  hv_peer_id to;
  hv_status status;
  int done;
} transfer;

static void transfer_done(hv_parcel_send *send, hv_status status, const char *text) {
  transfer *t = send->owner;
  (void)text;
  t->status = status;
  t->done++;
}

static void start_transfer(hv_command *command, void *core) {
  transfer *t = (transfer *)command;
  t->send.done = transfer_done;
  t->send.owner = t;
  hv_status status = core ? hv_node_send_start(core, &t->send, &t->to) : HV_CLOSED;
  if (status != HV_OK)
    transfer_done(&t->send, status, "");
}

static void give(scene *s, transfer *t, size_t from, size_t to, hv_payload *payload, uint32_t timeout_ms) {
  *t = (transfer){.command = {.run = start_transfer}, .to = hv_sim_target(s->sim, to).id};
  t->send.payload = payload;
  t->send.timeout_ms = timeout_ms;
  assert_int_equal(hv_sim_command(s->sim, from, &t->command), HV_OK);
}

static hv_payload *some_bytes(hv_mem *mem, size_t size) {
  uint8_t *bytes = hv_mem_alloc(mem, size);
  check_rng rng = {size};
  for (size_t i = 0; i < size; i++)
    bytes[i] = (uint8_t)check_random(&rng);
  hv_payload *payload = hv_payload_copy(mem, bytes, size);
  hv_mem_free(bytes);
  return payload;
}

/* Two nodes that know each other, over links of a kind. */
static void open_pair(scene *s, uint64_t seed, hv_sim_link link) {
  open_scene(s, seed);
  hv_sim_set_link(s->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  add(s, HV_SIM_ANY), add(s, 0);
  run(s, 5);
}

/* The node itself drops the connection, because a network changed: the program, which cancelled nothing, may try again. */
static void dropped_connection_ends_echo_and_parcel_as_closed(void **unused) {
  (void)unused;
  scene s;
  transfer t;
  open_pair(&s, 21, (hv_sim_link){.delay_us = 50000});
  hv_target one = hv_sim_target(s.sim, 1);
  hv_node *node = hv_sim_core(s.sim, 0);
  hv_payload *payload = some_bytes(&s.mem, 20 * HV_PARCEL_PIECE);
  for (int cancelled = 0; cancelled < 2; cancelled++) {
    hv_status status = HV_BUSY;
    hv_node_echo echo = {.done = echo_over, .owner = &status, .to = one.id, .bytes = hv_span_of("here", 4), .timeout_ms = 9000};
    give(&s, &t, 0, 1, payload, 9000);
    run(&s, 0.03);
    assert_int_equal(hv_node_echo_start(node, &echo), HV_OK);
    if (cancelled) {
      hv_node_echo_cancel(node, &echo);
      hv_parcel_send_cancel(&t.send);
    } else {
      hv_node_env(node)->forget(hv_node_env(node), &one);
    }
    run(&s, 5);
    assert_int_equal(status, cancelled ? HV_CANCELLED : HV_CLOSED);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.status, cancelled ? HV_CANCELLED : HV_CLOSED);
  }
  hv_payload_release(payload);
  close_scene(&s);
}

static void parcels_arrive_whole_and_in_order(void **unused) {
  (void)unused;
  scene s;
  open_pair(&s, 20, (hv_sim_link){.delay_us = 5000, .jitter_us = 5000, .loss = 0.02});
  static const size_t sizes[] = {0, 1, HV_PARCEL_PIECE, HV_PARCEL_PIECE + 1, 20 * HV_PARCEL_PIECE + 17};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    hv_payload *payload = some_bytes(&s.mem, sizes[i]);
    transfer t;
    give(&s, &t, 1, 0, payload, 60000);
    run(&s, 30);
    assert_int_equal(t.done, 1);
    assert_int_equal(t.status, HV_OK);
    hv_parcel *parcel = hv_node_take_parcel(hv_sim_core(s.sim, 0));
    assert_non_null(parcel);
    assert_true(hv_span_equal(hv_span_of(parcel->bytes, parcel->size), payload->parts[0]));
    hv_mem_free(parcel->bytes);
    hv_mem_free(parcel);
    hv_payload_release(payload);
  }
  close_scene(&s);
}

static void a_parcel_over_the_limit_is_refused_before_memory_is_taken(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 21);
  s.seats[0].parcel_max = 1 << 20;
  add(&s, HV_SIM_ANY), add(&s, 0);
  run(&s, 3);
  hv_payload *payload = some_bytes(&s.mem, (1 << 20) + 1);
  transfer t;
  give(&s, &t, 1, 0, payload, 60000);
  run(&s, 5);
  assert_int_equal(t.done, 1);
  assert_int_not_equal(t.status, HV_OK);
  assert_in_range(hv_sim_mem(s.sim, 0)->peak, 0, 1 << 20);
  assert_null(hv_node_take_parcel(hv_sim_core(s.sim, 0)));
  hv_payload_release(payload);
  close_scene(&s);
}

/* Each is small, but there is no end of them. */
static void untaken_parcels_are_bounded_even_if_they_are_empty(void **unused) {
  (void)unused;
  enum { HELD_MAX = 16 << 10, MANY = 200 };
  scene s;
  open_scene(&s, 25);
  s.seats[0].held_max = HELD_MAX;
  add(&s, HV_SIM_ANY), add(&s, 0);
  run(&s, 3);
  hv_payload *payload = some_bytes(&s.mem, 0);
  size_t before = hv_sim_mem(s.sim, 0)->used, accepted = 0;
  transfer t;
  for (int i = 0; i < MANY; i++) {
    give(&s, &t, 1, 0, payload, 60000);
    run(&s, 0.2);
    assert_int_equal(t.done, 1);
    accepted += t.status == HV_OK;
  }
  assert_in_range(accepted, 1, MANY - 1);
  assert_in_range(hv_sim_mem(s.sim, 0)->used, 0, before + HELD_MAX);
  hv_parcel *parcel = hv_node_take_parcel(hv_sim_core(s.sim, 0)); /* whoever takes one makes room for another */
  hv_mem_free(parcel->bytes);
  hv_mem_free(parcel);
  give(&s, &t, 1, 0, payload, 60000);
  run(&s, 0.2);
  assert_int_equal(t.status, HV_OK);
  hv_payload_release(payload);
  close_scene(&s);
}

static hv_status outcome_of(scene *s, size_t from, hv_payload *payload) {
  transfer t;
  give(s, &t, from, 0, payload, 60000);
  run(s, 1);
  assert_int_equal(t.done, 1);
  return t.status;
}

static void one_peer_gets_half_of_the_room_for_parcels(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 26);
  s.seats[0].held_max = 4 << 20;
  add(&s, HV_SIM_ANY), add(&s, 0), add(&s, 0);
  run(&s, 3);
  hv_payload *payload = some_bytes(&s.mem, (1 << 20) - 4096);
  assert_int_equal(outcome_of(&s, 1, payload), HV_OK);
  assert_int_equal(outcome_of(&s, 1, payload), HV_OK);
  assert_int_not_equal(outcome_of(&s, 1, payload), HV_OK);
  assert_int_equal(outcome_of(&s, 2, payload), HV_OK);
  assert_int_equal(outcome_of(&s, 2, payload), HV_OK);
  hv_payload_release(payload);
  close_scene(&s);
}

static void strangers_leave_room_for_parcels_of_known_peers(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 27);
  s.seats[0].held_max = 4 << 20;
  s.seats[0].room = 1; /* only its own initial peer has a place in its table */
  s.seats[0].initial[s.seats[0].n_initial++] = hv_sim_target(s.sim, 1);
  add(&s, HV_SIM_ANY), add(&s, HV_SIM_ANY);
  run(&s, 3);
  assert_int_equal(state_of(&s, 0, 1), HV_PEERS_ALIVE);
  add(&s, 0), add(&s, 0), add(&s, 0);
  run(&s, 3);
  hv_payload *payload = some_bytes(&s.mem, (1 << 20) - 4096);
  assert_int_equal(outcome_of(&s, 2, payload), HV_OK);
  assert_int_equal(outcome_of(&s, 3, payload), HV_OK);
  assert_int_not_equal(outcome_of(&s, 4, payload), HV_OK);
  assert_int_equal(outcome_of(&s, 1, payload), HV_OK);
  hv_payload_release(payload);
  close_scene(&s);
}

static void parcel_of_a_dead_sender_does_not_arrive(void **unused) {
  (void)unused;
  scene s;
  open_pair(&s, 22, (hv_sim_link){.delay_us = 5000, .rate = 4 << 20});
  hv_payload *payload = some_bytes(&s.mem, 16 * HV_PARCEL_PIECE);
  transfer t;
  give(&s, &t, 1, 0, payload, 60000);
  run(&s, 2); /* about half is across */
  hv_sim_kill(s.sim, 1);
  run(&s, 60);
  assert_int_equal(t.done, 0); /* it died with its node */
  assert_null(hv_node_take_parcel(hv_sim_core(s.sim, 0)));
  hv_payload_release(payload);
  close_scene(&s);
}

static void parcel_to_a_dead_receiver_fails(void **unused) {
  (void)unused;
  scene s;
  open_pair(&s, 23, (hv_sim_link){.delay_us = 5000, .rate = 4 << 20});
  hv_payload *payload = some_bytes(&s.mem, 16 * HV_PARCEL_PIECE);
  transfer t;
  give(&s, &t, 1, 0, payload, 60000);
  run(&s, 2);
  hv_sim_kill(s.sim, 0);
  run(&s, 1);
  assert_int_equal(t.done, 1);
  assert_int_equal(t.status, HV_CLOSED);
  hv_payload_release(payload);
  close_scene(&s);
}

static void parcel_ends_at_its_timeout(void **unused) {
  (void)unused;
  scene s;
  open_pair(&s, 24, (hv_sim_link){.delay_us = 5000, .rate = 1 << 20});
  hv_payload *payload = some_bytes(&s.mem, 16 * HV_PARCEL_PIECE);
  transfer t;
  give(&s, &t, 1, 0, payload, 2000);
  run(&s, 2.1);
  assert_int_equal(t.done, 1);
  assert_int_equal(t.status, HV_TIMEOUT);
  hv_payload_release(payload);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(three_that_know_one_find_each_other),
      cmocka_unit_test(a_killed_peer_is_lost_within_a_second),
      cmocka_unit_test(a_peer_that_leaves_says_so),
      cmocka_unit_test(an_unplugged_peer_is_doubted_then_lost),
      cmocka_unit_test(peer_that_answers_other_calls_is_lost_after_six_hellos),
      cmocka_unit_test(peer_doubted_for_a_lost_hello_is_not_new_again),
      cmocka_unit_test(well_known_pair_shares_its_hellos),
      cmocka_unit_test(a_healed_partition_finds_itself),
      cmocka_unit_test(peer_cut_off_for_long_is_back_within_nine_seconds),
      cmocka_unit_test(peer_started_before_its_initial_peer_waits_for_it),
      cmocka_unit_test(initial_list_with_oneself_is_accepted),
      cmocka_unit_test(a_wrong_identity_is_refused),
      cmocka_unit_test(a_client_is_known_while_it_says_hello),
      cmocka_unit_test(lone_peer_retries_all_known_peers_for_ever),
      cmocka_unit_test(a_small_table_holds_in_a_large_swarm),
      cmocka_unit_test(dropped_connection_ends_echo_and_parcel_as_closed),
      cmocka_unit_test(parcels_arrive_whole_and_in_order),
      cmocka_unit_test(a_parcel_over_the_limit_is_refused_before_memory_is_taken),
      cmocka_unit_test(untaken_parcels_are_bounded_even_if_they_are_empty),
      cmocka_unit_test(one_peer_gets_half_of_the_room_for_parcels),
      cmocka_unit_test(strangers_leave_room_for_parcels_of_known_peers),
      cmocka_unit_test(parcel_of_a_dead_sender_does_not_arrive),
      cmocka_unit_test(parcel_to_a_dead_receiver_fails),
      cmocka_unit_test(parcel_ends_at_its_timeout),
  };
  return cmocka_run_group_tests_name("peers and parcels in the sim", tests, NULL, NULL);
}
