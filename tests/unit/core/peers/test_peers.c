/* The places in the table of peers, when identities are free. */
#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/peers/moves.h"

#include <string.h>

enum { ROOM = 16, HOME = 10, ATTACKERS = 200 };

/* A world that only keeps what is asked, until the test answers. */
typedef struct scene {
  fake_env fake;
  hv_peers peers;
  hv_call *asked[64];
  size_t n_asked;
  hv_target forgotten; /* the last one */
  size_t n_forgotten;
  hv_addr you; /* where those that answer see this node */
  size_t n_changed;
} scene;

static hv_status keep_call(hv_env *env, hv_call *call, const hv_msg *request) {
  scene *s = (scene *)env;
  assert_int_equal(request->kind, HV_MSG_HELLO);
  assert_true(s->n_asked < sizeof s->asked / sizeof *s->asked);
  s->asked[s->n_asked++] = call;
  return HV_OK;
}

static void no_timer(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)env, (void)timer, (void)delay_us;
}

static void no_clear(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
}

static void no_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  (void)env;
  assert_true(answer->kind == HV_MSG_HELLO || answer->kind == HV_MSG_LEAVE);
  memset(request, 0xee, sizeof *request); /* nobody may look at it any more */
}

static void note_forget(hv_env *env, const hv_target *to) {
  scene *s = (scene *)env;
  s->forgotten = *to;
  s->n_forgotten++;
}

/* The host in a network of the given number; private ones are 10.network.0.host. */
static hv_addr address(uint8_t network, uint8_t host, int is_private) {
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000};
  uint8_t ip[4] = {is_private ? 10 : 80, network, 0, host};
  memcpy(addr.host.ip, ip, sizeof ip);
  return addr;
}

static hv_card card_of(uint64_t number, hv_addr addr) {
  return (hv_card){.id = fake_peer(number), .n_addrs = 1, .addrs = {addr}};
}

static void open_scene(scene *s, const hv_target *initial) {
  memset(s, 0, sizeof *s);
  fake_env_init(&s->fake, 1);
  s->fake.env.call = keep_call;
  s->fake.env.timer_set = no_timer;
  s->fake.env.timer_clear = no_clear;
  s->fake.env.reply = no_reply;
  s->fake.env.forget = note_forget;
  hv_peers_config config = {.me = {.id = s->fake.me}, .initial = initial, .n_initial = initial != NULL, .room = ROOM};
  assert_int_equal(hv_peers_init(&s->peers, &s->fake.env, &config), HV_OK);
}

static void close_scene(scene *s) {
  hv_peers_fini(&s->peers);
  assert_int_equal(s->fake.mem.blocks, 0);
}

/* Time passes, and whoever is due is asked. */
static void tick(scene *s) {
  s->fake.now_us += 1000;
  s->peers.timer.fire(&s->peers.timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = s->fake.now_us});
}

/* Everyone who was asked answers, with the cards given. */
static void all_answer(scene *s, const hv_card *cards, size_t n) {
  size_t count = s->n_asked;
  hv_call *asked[64];
  memcpy(asked, s->asked, sizeof asked);
  s->n_asked = 0;
  for (size_t i = 0; i < count; i++) {
    hv_msg msg = {.kind = HV_MSG_HELLO, .u.hello = {.me = {.id = asked[i]->to.id, .n_addrs = 1, .addrs = {asked[i]->to.addr}}}};
    msg.u.hello.you = s->you;
    msg.u.hello.cards = cards;
    msg.u.hello.n_cards = n;
    asked[i]->done(asked[i], &(hv_event){.kind = HV_EVENT_CALL_DONE,
                                         .call = asked[i],
                                         .msg = &msg,
                                         .peer = asked[i]->to.id,
                                         .text = "",
                                         .now_us = s->fake.now_us});
  }
}

/* Its time has come to ask, and all answer. */
static void ask_all(scene *s, const hv_card *cards, size_t n) {
  tick(s);
  all_answer(s, cards, n);
}

/* Somebody says hello from an address; as a client it need not be asked back. */
static void comes(scene *s, uint64_t number, hv_addr from, int client) {
  hv_request request = {.peer = fake_peer(number), .from = from};
  hv_msg msg = {.kind = HV_MSG_HELLO, .u.hello = {.me = card_of(number, from)}};
  msg.u.hello.me.client_mode = client != 0;
  s->fake.now_us += 1000;
  hv_peers_hello(&s->peers,
                 &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg, .now_us = s->fake.now_us, .text = ""});
}

static int lives(const scene *s, uint64_t number) {
  hv_peer_id id = fake_peer(number);
  const hv_peers_entry *entry = hv_peers_find(&s->peers, &id);
  return entry && entry->state == HV_PEERS_ALIVE;
}

/* Through one initial peer the node meets `n` more, each in a network of its own. */
static void meet_home(scene *s, size_t n) {
  hv_card cards[ROOM];
  for (size_t i = 0; i < n; i++)
    cards[i] = card_of(2 + i, address((uint8_t)(100 + i), 1, 0));
  ask_all(s, cards, n);
  for (int i = 0; i < 3; i++)
    ask_all(s, NULL, 0);
}

static void peers_met_through_initial_peers_are_never_displaced(void **unused) {
  (void)unused;
  scene s;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_scene(&s, &initial);
  meet_home(&s, HOME);
  assert_int_equal(hv_peers_alive(&s.peers), HOME + 1);
  for (uint64_t i = 0; i < ATTACKERS; i++)
    comes(&s, 1000 + i, address((uint8_t)i, (uint8_t)i, 0), 1);
  assert_int_equal(hv_peers_alive(&s.peers), ROOM);
  for (uint64_t i = 1; i <= HOME + 1; i++)
    assert_true(lives(&s, i));
  close_scene(&s);
}

static void strangers_give_back_half_of_the_room(void **unused) {
  (void)unused;
  scene s;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_scene(&s, &initial);
  for (uint64_t i = 0; i < ATTACKERS; i++)
    comes(&s, 1000 + i, address((uint8_t)i, (uint8_t)i, 0), 1);
  assert_int_equal(hv_peers_alive(&s.peers), ROOM); /* they were here first */
  meet_home(&s, HOME);
  size_t met = 0;
  for (uint64_t i = 1; i <= HOME + 1; i++)
    met += (size_t)lives(&s, i);
  assert_int_equal(met, ROOM / 2);
  close_scene(&s);
}

static void identities_of_one_network_leave_room_for_another(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, NULL);
  for (uint64_t i = 0; i < ATTACKERS; i++)
    comes(&s, 1000 + i, address(7, (uint8_t)i, 0), 1);
  assert_int_equal(hv_peers_alive(&s.peers), ROOM);
  for (uint64_t i = 0; i < 5; i++)
    comes(&s, 50 + i, address((uint8_t)(60 + i), 1, 0), 1);
  for (uint64_t i = 0; i < ATTACKERS; i++)
    comes(&s, 2000 + i, address(7, (uint8_t)i, 0), 1);
  for (uint64_t i = 0; i < 5; i++)
    assert_true(lives(&s, 50 + i));
  assert_int_equal(hv_peers_alive(&s.peers), ROOM);
  close_scene(&s);
}

static void peers_named_by_a_stranger_are_strangers(void **unused) {
  (void)unused;
  scene s;
  hv_card cards[ROOM];
  open_scene(&s, NULL);
  comes(&s, 1000, address(7, 1, 0), 0); /* it can be dialled, and tells of many */
  for (size_t i = 0; i < ROOM; i++)
    cards[i] = card_of(2000 + i, address((uint8_t)(20 + i), 1, 0));
  ask_all(&s, cards, ROOM);
  ask_all(&s, NULL, 0);
  assert_int_equal(hv_peers_alive(&s.peers), ROOM);
  for (size_t i = 0; i < s.peers.n_entries; i++)
    assert_true(s.peers.entries[i]->stranger);
  close_scene(&s);
}

/* A private network has no limit. */
static void unverified_peers_of_one_network_fill_a_quarter_at_most(void **unused) {
  (void)unused;
  for (int is_private = 0; is_private < 2; is_private++) {
    scene s;
    hv_card cards[ROOM];
    hv_target initial = {fake_peer(1), address(99, 1, is_private)};
    open_scene(&s, &initial);
    for (size_t i = 0; i < ROOM; i++)
      cards[i] = card_of(2000 + i, address(20, (uint8_t)(1 + i), is_private));
    ask_all(&s, cards, ROOM);
    ask_all(&s, NULL, 0);
    assert_int_equal(hv_peers_alive(&s.peers), is_private ? ROOM : ROOM / 4 + 1);
    close_scene(&s);
  }
}

/* They would never be asked, and so never found to be gone. Honest peers name only those that answered them at an address. */
static void unverified_clients_take_no_place(void **unused) {
  (void)unused;
  scene s;
  hv_card cards[ROOM];
  open_scene(&s, NULL);
  comes(&s, 1000, address(7, 1, 0), 0); /* it can be dialled, and tells of clients, in many networks and in private ones */
  for (size_t round = 0; round < 4; round++) {
    for (size_t i = 0; i < ROOM; i++) {
      cards[i] = card_of(2000 + round * ROOM + i, address((uint8_t)(20 + i), 1, i % 2));
      cards[i].client_mode = 1;
      cards[i].n_addrs = i % 4 != 3;
    }
    s.fake.now_us += 30000000;
    ask_all(&s, cards, ROOM);
  }
  assert_int_equal(s.peers.n_entries, 1);
  comes(&s, 1001, address(8, 1, 0), 0);
  for (size_t i = 0; i < ROOM - 2; i++)
    cards[i] = card_of(3000 + i, address((uint8_t)(60 + i), 1, 0));
  ask_all(&s, cards, ROOM - 2);
  ask_all(&s, NULL, 0);
  assert_int_equal(hv_peers_alive(&s.peers), ROOM);
  close_scene(&s);
}

static void count_of_alive_peers_matches_the_table(void **unused) {
  (void)unused;
  scene s;
  check_rng rng = {5};
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_scene(&s, &initial);
  meet_home(&s, HOME);
  for (int i = 0; i < 5000; i++) {
    uint64_t who = 1 + check_random(&rng) % 40;
    uint8_t network = (uint8_t)(check_random(&rng) % 6);
    hv_request request = {.peer = fake_peer(who), .from = address(network, 1, 0)};
    hv_event event = {.kind = HV_EVENT_PEER_DOWN, .peer = request.peer, .text = "broke", .now_us = s.fake.now_us};
    switch (check_random(&rng) % 4) {
    case 0:
      comes(&s, who, request.from, check_random(&rng) % 2);
      break;
    case 1:
      hv_peers_down(&s.peers, &event);
      break;
    default:
      ask_all(&s, NULL, 0);
    }
    size_t alive = 0;
    for (size_t k = 0; k < s.peers.n_entries; k++)
      alive += s.peers.entries[k]->state == HV_PEERS_ALIVE;
    assert_int_equal(hv_peers_alive(&s.peers), alive);
    assert_in_range(s.peers.n_entries, 1, ROOM);
  }
  close_scene(&s);
}

/* ---- a machine that moves ---- */

static void peer_that_moves_is_asked_at_its_new_address(void **unused) {
  (void)unused;
  scene s;
  hv_addr before = address(7, 1, 0), after = address(8, 1, 0);
  open_scene(&s, NULL);
  comes(&s, 1000, before, 0);
  ask_all(&s, NULL, 0);
  assert_true(lives(&s, 1000));
  comes(&s, 1000, before, 0); /* the same address again: no news */
  assert_int_equal(s.n_forgotten, 0);
  comes(&s, 1000, after, 0);
  assert_int_equal(s.n_forgotten, 1);
  assert_true(hv_addr_equal(&s.forgotten.addr, &before));
  tick(&s);
  assert_int_equal(s.n_asked, 1);
  assert_true(hv_addr_equal(&s.asked[0]->to.addr, &after));
  all_answer(&s, NULL, 0);
  assert_true(lives(&s, 1000));
  close_scene(&s);
}

static void peer_that_gets_another_address_keeps_its_connections(void **unused) {
  (void)unused;
  scene s;
  hv_addr before = address(7, 1, 0);
  hv_peer_id id = fake_peer(1000);
  open_scene(&s, NULL);
  comes(&s, 1000, before, 0);
  ask_all(&s, NULL, 0);
  hv_request request = {.peer = id, .from = before};
  hv_msg msg = {.kind = HV_MSG_HELLO, .u.hello = {.me = {.id = id, .n_addrs = 2, .addrs = {address(8, 1, 0), before}}}};
  s.fake.now_us += 1000;
  hv_peers_hello(&s.peers,
                 &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg, .now_us = s.fake.now_us, .text = ""});
  hv_target now;
  assert_int_equal(hv_peers_target(&s.peers, &id, &now), HV_OK);
  assert_true(hv_addr_equal(&now.addr, &before));
  assert_int_equal(s.n_forgotten, 0);
  assert_int_equal(hv_peers_find(&s.peers, &id)->card.n_addrs, 2);
  close_scene(&s);
}

static void new_network_asks_all_peers_at_once(void **unused) {
  (void)unused;
  scene s;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_scene(&s, &initial);
  meet_home(&s, 3);
  for (int i = 0; i < 30; i++) { /* until they know each other well, and hellos are rare */
    s.fake.now_us += 20000000;
    ask_all(&s, NULL, 0);
  }
  tick(&s);
  assert_int_equal(s.n_asked, 0);
  hv_addr mine = address(50, 1, 0);
  hv_moves_set_addrs(&s.peers, &mine, 1);
  hv_moves_network(&s.peers);
  tick(&s);
  assert_int_equal(s.n_asked, 4);
  assert_true(hv_addr_equal(&s.peers.config.me.addrs[0], &mine));
  all_answer(&s, NULL, 0);
  close_scene(&s);
}

/* The connections of all hellos that are under way are closed by this node. */
static void all_are_cancelled(scene *s) {
  size_t n = s->n_asked;
  s->n_asked = 0;
  for (size_t i = 0; i < n; i++)
    s->asked[i]->done(s->asked[i], &(hv_event){.kind = HV_EVENT_CALL_DONE,
                                               .call = s->asked[i],
                                               .status = HV_CANCELLED,
                                               .text = "cancelled",
                                               .now_us = s->fake.now_us});
}

/* The network changes while the first hello is under way: the connection is closed, the event comes, then the hello's end. */
static void network_change_during_first_hello_asks_again(void **unused) {
  (void)unused;
  scene s;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_scene(&s, &initial);
  tick(&s);
  assert_int_equal(s.n_asked, 1);
  hv_moves_network(&s.peers);
  all_are_cancelled(&s);
  assert_int_equal(s.peers.starts[0].tries, 0);
  tick(&s);
  assert_int_equal(s.n_asked, 1);
  all_answer(&s, NULL, 0);
  assert_true(lives(&s, 1));
  close_scene(&s);
}

/* It moves while this node asks at its old address. */
static void peer_that_moves_during_a_hello_is_asked_again(void **unused) {
  (void)unused;
  scene s;
  hv_peer_id id = fake_peer(1000);
  hv_addr before = address(7, 1, 0), after = address(8, 1, 0);
  open_scene(&s, NULL);
  comes(&s, 1000, before, 0);
  ask_all(&s, NULL, 0);
  hv_peers_down(&s.peers, &(hv_event){.peer = id, .text = "the connection broke", .now_us = s.fake.now_us});
  tick(&s);
  assert_int_equal(s.n_asked, 1);
  comes(&s, 1000, after, 0);
  assert_int_equal(s.n_forgotten, 1);
  all_are_cancelled(&s);
  assert_int_equal(hv_peers_find(&s.peers, &id)->failures, 0);
  tick(&s);
  assert_int_equal(s.n_asked, 1);
  assert_true(hv_addr_equal(&s.asked[0]->to.addr, &after));
  all_answer(&s, NULL, 0);
  assert_true(lives(&s, 1000));
  close_scene(&s);
}

/* ---- where initial peers see this node ---- */

static void note_changed(void *arg) {
  ((scene *)arg)->n_changed++;
}

static void open_for_outer(scene *s, const hv_target *initial) {
  open_scene(s, initial);
  s->peers.config.changed = note_changed;
  s->peers.config.arg = s;
  s->you = address(1, 1, 0);
  ask_all(s, NULL, 0);
  assert_true(hv_addr_equal(&s->peers.outer, &s->you));
}

static void later_hellos(scene *s, int n) {
  for (int i = 0; i < n; i++) {
    s->fake.now_us += 20000000;
    ask_all(s, NULL, 0);
  }
}

/* A home router gets another address, and all connections stay or come back. */
static void later_answer_of_an_initial_peer_changes_outer(void **unused) {
  (void)unused;
  scene s;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_for_outer(&s, &initial);
  later_hellos(&s, 3);
  s.n_changed = 0;
  s.you.port++; /* another connection */
  later_hellos(&s, 1);
  assert_int_equal(s.n_changed, 0);
  s.you = address(2, 1, 0);
  later_hellos(&s, 1);
  assert_true(hv_addr_equal(&s.peers.outer, &s.you));
  assert_int_equal(s.n_changed, 1);
  s.you.kind = HV_ADDR_NONE;
  later_hellos(&s, 1);
  assert_int_equal(s.peers.outer.host.ip[1], 2);
  close_scene(&s);
}

static void answer_of_a_stranger_leaves_outer_as_it_is(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  open_for_outer(&s, &initial);
  outer = s.you;
  comes(&s, 1000, address(7, 1, 0), 0);
  s.you = address(66, 6, 0);
  tick(&s);
  assert_int_equal(s.n_asked, 1);
  all_answer(&s, NULL, 0);
  assert_true(lives(&s, 1000));
  assert_true(hv_addr_equal(&s.peers.outer, &outer));
  close_scene(&s);
}

/* One sees this node in its own network, and the other one behind a router. */
static void two_initial_peers_do_not_change_outer_in_turn(void **unused) {
  (void)unused;
  scene s;
  hv_target initial = {fake_peer(1), address(99, 1, 0)};
  hv_peer_id second = fake_peer(2);
  open_for_outer(&s, &initial);
  comes(&s, 2, address(7, 1, 0), 0);
  ask_all(&s, NULL, 0);
  hv_peers_start two[2] = {s.peers.starts[0], s.peers.starts[0]}, *one = s.peers.starts;
  two[1].target.id = two[1].answered = second;
  s.peers.starts = two;
  s.peers.n_starts = 2;
  hv_addr first = s.you;
  s.fake.now_us += 20000000;
  tick(&s);
  for (size_t i = 0; i < s.n_asked; i++)
    if (hv_peer_equal(&s.asked[i]->to.id, &second)) {
      s.asked[0] = s.asked[i];
      s.n_asked = 1;
    }
  s.you = address(2, 2, 1);
  all_answer(&s, NULL, 0);
  assert_true(lives(&s, 2));
  assert_true(hv_addr_equal(&s.peers.outer, &first));
  s.peers.starts = one;
  s.peers.n_starts = 1;
  close_scene(&s);
}

/* ---- another life of the same peer ---- */

static uint64_t reborn_us, n_reborn, n_gone;

static void note_reborn(void *arg, const hv_peer_id *id, uint64_t since_us) {
  (void)arg, (void)id;
  n_reborn++;
  reborn_us = since_us;
}

static void note_gone(void *arg, const hv_peer_id *id) {
  (void)arg, (void)id;
  n_gone++;
}

static void says_hello(scene *s, uint64_t life, uint64_t age_ms) {
  hv_request request = {.peer = fake_peer(7), .from = address(7, 1, 0)};
  hv_msg msg = {.kind = HV_MSG_HELLO, .u.hello = {.me = card_of(7, request.from), .life = life, .age_ms = age_ms}};
  msg.u.hello.me.client_mode = 1;
  s->fake.now_us += 1000;
  hv_peers_hello(&s->peers,
                 &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg, .now_us = s->fake.now_us, .text = ""});
}

static void says_goodbye(scene *s) {
  hv_request request = {.peer = fake_peer(7)};
  hv_msg msg = {.kind = HV_MSG_LEAVE};
  hv_peers_left(&s->peers,
                &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg, .now_us = s->fake.now_us, .text = ""});
}

static void open_for_lives(scene *s) {
  open_scene(s, NULL);
  s->peers.config.reborn = note_reborn;
  s->peers.config.gone = note_gone;
  n_reborn = n_gone = 0;
  s->fake.now_us = 60000000;
}

static void new_life_ends_the_one_before(void **unused) {
  (void)unused;
  scene s;
  open_for_lives(&s);
  says_hello(&s, 1, 20000);
  says_hello(&s, 1, 20001);
  assert_int_equal(n_reborn, 0);
  says_hello(&s, 2, 500);
  assert_int_equal(n_reborn, 1);
  assert_int_equal(reborn_us, s.fake.now_us - 500000);
  says_hello(&s, 2, UINT64_MAX); /* older than the world: no harm */
  says_hello(&s, 0, 0);          /* a peer that does not tell */
  says_hello(&s, 2, 501);
  assert_int_equal(n_reborn, 1);
  assert_int_equal(n_gone, 0);
  says_hello(&s, 3, UINT64_MAX);
  assert_int_equal(reborn_us, 0);
  close_scene(&s);
}

static void hello_that_comes_after_its_goodbye_counts_for_nothing(void **unused) {
  (void)unused;
  scene s;
  open_for_lives(&s);
  hv_peer_id id = fake_peer(7);
  says_hello(&s, 1, 20000);
  says_goodbye(&s);
  assert_int_equal(n_gone, 1);
  says_hello(&s, 1, 20001);
  assert_false(lives(&s, 7));
  assert_true(hv_peers_has_left(&s.peers, &id));
  says_hello(&s, 2, 10);
  assert_true(lives(&s, 7));
  assert_false(hv_peers_has_left(&s.peers, &id));
  assert_int_equal(n_reborn, 0); /* the goodbye has told */
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(new_life_ends_the_one_before),
      cmocka_unit_test(hello_that_comes_after_its_goodbye_counts_for_nothing),
      cmocka_unit_test(peers_met_through_initial_peers_are_never_displaced),
      cmocka_unit_test(strangers_give_back_half_of_the_room),
      cmocka_unit_test(identities_of_one_network_leave_room_for_another),
      cmocka_unit_test(peers_named_by_a_stranger_are_strangers),
      cmocka_unit_test(unverified_peers_of_one_network_fill_a_quarter_at_most),
      cmocka_unit_test(unverified_clients_take_no_place),
      cmocka_unit_test(count_of_alive_peers_matches_the_table),
      cmocka_unit_test(peer_that_moves_is_asked_at_its_new_address),
      cmocka_unit_test(peer_that_gets_another_address_keeps_its_connections),
      cmocka_unit_test(new_network_asks_all_peers_at_once),
      cmocka_unit_test(network_change_during_first_hello_asks_again),
      cmocka_unit_test(peer_that_moves_during_a_hello_is_asked_again),
      cmocka_unit_test(later_answer_of_an_initial_peer_changes_outer),
      cmocka_unit_test(answer_of_a_stranger_leaves_outer_as_it_is),
      cmocka_unit_test(two_initial_peers_do_not_change_outer_in_turn),
  };
  return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
