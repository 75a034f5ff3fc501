/* Which addresses does a node announce, when peers call back, lie, or do not answer? */
#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/peers/reach.h"
#include "core/peers/spoken.h"

#include <string.h>

typedef struct scene {
  fake_env fake;
  hv_peers peers;
  hv_spoken spoken;
  hv_reach reach;
  hv_call *asked;
  hv_msg asks;    /* what was sent */
  hv_msg replied; /* the last answer to a request */
  size_t n_asked, n_replied, n_changed;
} scene;

static hv_status keep_call(hv_env *env, hv_call *call, const hv_msg *request) {
  scene *s = (scene *)env;
  s->asked = call;
  s->asks = *request;
  s->n_asked++;
  return HV_OK;
}

static void no_timer(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)env, (void)timer, (void)delay_us;
}

static void no_clear(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
}

static void keep_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  scene *s = (scene *)env;
  (void)request;
  s->replied = *answer;
  s->n_replied++;
}

static void changed(void *arg) {
  ((scene *)arg)->n_changed++;
}

static hv_addr address(uint8_t first, uint8_t last) {
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000};
  memcpy(addr.host.ip, (uint8_t[]){first, 7, 0, last}, 4);
  return addr;
}

static void tick(scene *s, uint64_t us) {
  s->fake.now_us += us;
  s->reach.timer.fire(&s->reach.timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = s->fake.now_us});
}

/* The node meets a peer at a public address, which has these features. */
static void meet(scene *s, uint64_t number, hv_addr at, uint64_t features) {
  hv_peer_id peer = fake_peer(number);
  hv_versions theirs = {1, 1, features};
  size_t before = hv_peers_alive(&s->peers);
  hv_spoken_learn(&s->fake.env, &peer, &theirs);
  hv_request request = {.peer = peer, .from = at};
  hv_msg hello = {.kind = HV_MSG_HELLO, .u.hello = {.me = {.id = peer, .n_addrs = 1, .addrs = {at}}}};
  hv_peers_hello(&s->peers, &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &hello, .now_us = s->fake.now_us});
  s->peers.timer.fire(&s->peers.timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = s->fake.now_us});
  s->asked->done(s->asked,
                 &(hv_event){.kind = HV_EVENT_CALL_DONE, .msg = &hello, .peer = peer, .now_us = s->fake.now_us, .text = ""});
  assert_int_equal(hv_peers_alive(&s->peers), before + 1);
  s->asked = NULL;
  s->n_asked = s->n_replied = 0;
}

/* A node at 10.7.0.1 that knows one peer at a public address, which has these features. */
static void open_scene(scene *s, uint64_t features) {
  memset(s, 0, sizeof *s);
  fake_env_init(&s->fake, 1);
  s->fake.env.call = keep_call;
  s->fake.env.timer_set = no_timer;
  s->fake.env.timer_clear = no_clear;
  s->fake.env.reply = keep_reply;
  s->fake.env.spoken = &s->spoken;
  assert_int_equal(hv_spoken_init(&s->spoken, s->fake.env.mem, NULL), HV_OK);
  hv_peers_config config = {.me = {.id = s->fake.me}, .room = 4};
  assert_int_equal(hv_peers_init(&s->peers, &s->fake.env, &config), HV_OK);
  hv_reach_init(&s->reach, &s->fake.env, &s->peers, changed, s);
  meet(s, 1, address(80, 1), features);
  hv_addr own = address(10, 1);
  hv_reach_set_own(&s->reach, &own, 1);
}

static void close_scene(scene *s) {
  hv_reach_stop(&s->reach);
  hv_spoken_fini(&s->spoken);
  hv_peers_fini(&s->peers);
  assert_int_equal(s->fake.mem.blocks, 0);
}

static void answer(scene *s, hv_status status, int reached) {
  hv_msg msg = {.kind = HV_MSG_DIAL, .u.dial = {.reached = reached != 0}};
  hv_call *call = s->asked;
  s->asked = NULL;
  call->done(
      call,
      &(hv_event){.kind = HV_EVENT_CALL_DONE, .call = call, .status = status, .msg = &msg, .now_us = s->fake.now_us, .text = ""});
}

/* How many addresses it announces; *first is the first. */
static size_t announced(const scene *s, hv_addr *first) {
  hv_addr out[HV_CARD_ADDRS_MAX];
  size_t n = hv_reach_addrs(&s->reach, out);
  *first = out[0];
  return n;
}

static void address_is_announced_once_it_was_dialled(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1), first;
  open_scene(&s, HV_FEATURE_DIAL);
  hv_reach_offer(&s.reach, &outer);
  tick(&s, 1);
  assert_int_equal(s.n_asked, 1);
  assert_true(s.asks.kind == HV_MSG_DIAL && hv_addr_equal(&s.asks.u.dial.addr, &outer));
  assert_int_equal(announced(&s, &first), 1);
  answer(&s, HV_OK, 1);
  assert_int_equal(s.n_changed, 1);
  assert_int_equal(announced(&s, &first), 2);
  assert_true(hv_addr_equal(&first, &outer));
  hv_reach_offer(&s.reach, NULL);
  assert_int_equal(announced(&s, &first), 1);
  assert_int_equal(s.n_changed, 2);
  close_scene(&s);
}

static void address_is_announced_once_two_networks_dialled_it(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1), first;
  open_scene(&s, HV_FEATURE_DIAL);
  meet(&s, 2, address(80, 2), HV_FEATURE_DIAL); /* the network of the first */
  meet(&s, 3, address(81, 1), HV_FEATURE_DIAL);
  hv_reach_offer(&s.reach, &outer);
  tick(&s, 1);
  hv_peer_id asked = s.asked->to.id, third = fake_peer(3);
  answer(&s, HV_OK, 1);
  assert_int_equal(announced(&s, &first), 1);
  tick(&s, 1); /* at once */
  assert_true(hv_peer_equal(&s.asked->to.id, &third) != hv_peer_equal(&asked, &third));
  answer(&s, HV_OK, 1);
  assert_int_equal(announced(&s, &first), 2);
  assert_true(hv_addr_equal(&first, &outer));
  close_scene(&s);
}

static void liar_does_not_make_a_node_announce_an_address(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1), first;
  hv_peer_id liar = fake_peer(1);
  open_scene(&s, HV_FEATURE_DIAL);
  meet(&s, 2, address(81, 1), HV_FEATURE_DIAL);
  hv_reach_offer(&s.reach, &outer);
  for (int minute = 0; minute < 60; minute++) {
    tick(&s, 60000000);
    for (int i = 0; i < 2 && s.asked; i++) {
      answer(&s, HV_OK, hv_peer_equal(&s.asked->to.id, &liar));
      assert_int_equal(announced(&s, &first), 1);
      tick(&s, 1);
    }
  }
  assert_in_range(s.n_asked, 60, 240);
  close_scene(&s);
}

static void silent_second_network_is_not_waited_for(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1), first;
  open_scene(&s, HV_FEATURE_DIAL);
  meet(&s, 2, address(81, 1), HV_FEATURE_DIAL);
  hv_reach_offer(&s.reach, &outer);
  tick(&s, 1);
  answer(&s, HV_OK, 1);
  for (int i = 0; i < 3; i++) {
    tick(&s, 1000000);
    answer(&s, HV_TIMEOUT, 0);
    assert_int_equal(announced(&s, &first), 1);
  }
  tick(&s, 1000000);
  assert_int_equal(announced(&s, &first), 2);
  close_scene(&s);
}

static void closed_address_is_tried_again_when_a_gateway_opens_it(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1), first;
  open_scene(&s, HV_FEATURE_DIAL);
  s.peers.outer = outer;
  s.peers.outer.port = 9;
  hv_reach_look(&s.reach);
  for (int i = 0; i < 3; i++) {
    tick(&s, 2000000);
    answer(&s, HV_OK, 0);
  }
  tick(&s, 2000000);
  assert_null(s.asked); /* three are enough for now */
  assert_int_equal(announced(&s, &first), 1);
  hv_reach_offer(&s.reach, &outer);
  tick(&s, 1);
  answer(&s, HV_OK, 1);
  assert_int_equal(announced(&s, &first), 2);
  close_scene(&s);
}

static void nonsense_of_a_gateway_is_never_asked_about(void **unused) {
  (void)unused;
  scene s;
  hv_addr bad[] = {address(10, 9), address(192, 1), {.kind = HV_ADDR_IP4, .port = 4000}, address(127, 1), address(90, 1)};
  memcpy(bad[1].host.ip, (uint8_t[]){192, 168, 1, 1}, 4);
  bad[4].port = 0;
  open_scene(&s, HV_FEATURE_DIAL);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hv_reach_offer(&s.reach, &bad[i]);
    tick(&s, 2000000);
  }
  assert_int_equal(s.n_asked, 0);
  close_scene(&s);
}

static void peer_without_the_feature_is_not_asked(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1);
  open_scene(&s, 0);
  hv_reach_offer(&s.reach, &outer);
  tick(&s, 2000000);
  assert_int_equal(s.n_asked, 0);
  close_scene(&s);
}

static void dropped_candidate_ignores_its_late_answer(void **unused) {
  (void)unused;
  scene s;
  hv_addr outer = address(90, 1), first;
  open_scene(&s, HV_FEATURE_DIAL);
  hv_reach_offer(&s.reach, &outer);
  tick(&s, 1);
  hv_reach_offer(&s.reach, NULL);
  answer(&s, HV_OK, 1);
  assert_int_equal(announced(&s, &first), 1);
  assert_int_equal(s.n_changed, 0);
  close_scene(&s);
}

static void asks(scene *s, hv_request *request, hv_addr at) {
  hv_msg msg = {.kind = HV_MSG_DIAL, .u.dial = {.addr = at}};
  s->fake.now_us += HV_REACH_PAUSE_US;
  hv_reach_asked(&s->reach, &(hv_event){.kind = HV_EVENT_REQUEST, .request = request, .msg = &msg, .now_us = s->fake.now_us});
}

static void call_back_tells_whether_the_peer_answered(void **unused) {
  (void)unused;
  scene s;
  hv_request request = {.peer = fake_peer(7), .from = address(90, 1)};
  open_scene(&s, HV_FEATURE_DIAL);
  asks(&s, &request, address(90, 1));
  assert_int_equal(s.asks.kind, HV_MSG_ECHO);
  assert_true(hv_peer_equal(&s.asked->to.id, &request.peer)); /* the handshake proves that it is this one */
  hv_call *call = s.asked;
  asks(&s, &request, address(90, 2)); /* one at a time */
  assert_int_equal(s.replied.kind, HV_MSG_REFUSAL);
  call->done(call, &(hv_event){.kind = HV_EVENT_CALL_DONE, .call = call, .status = HV_REFUSED, .text = "nothing listens"});
  assert_true(s.replied.kind == HV_MSG_DIAL && !s.replied.u.dial.reached);
  assert_true(hv_span_equal(s.replied.u.dial.text, hv_span_of("nothing listens", 15)));
  close_scene(&s);
}

static void stranger_is_not_called_back_at_private_addresses(void **unused) {
  (void)unused;
  scene s;
  hv_request request = {.peer = fake_peer(7), .from = address(90, 1)};
  open_scene(&s, HV_FEATURE_DIAL);
  asks(&s, &request, address(10, 3));
  asks(&s, &request, address(127, 1));
  assert_int_equal(s.n_replied, 2);
  assert_int_equal(s.replied.kind, HV_MSG_REFUSAL);
  assert_int_equal(s.n_asked, 0);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(address_is_announced_once_it_was_dialled),
      cmocka_unit_test(address_is_announced_once_two_networks_dialled_it),
      cmocka_unit_test(liar_does_not_make_a_node_announce_an_address),
      cmocka_unit_test(silent_second_network_is_not_waited_for),
      cmocka_unit_test(closed_address_is_tried_again_when_a_gateway_opens_it),
      cmocka_unit_test(nonsense_of_a_gateway_is_never_asked_about),
      cmocka_unit_test(peer_without_the_feature_is_not_asked),
      cmocka_unit_test(dropped_candidate_ignores_its_late_answer),
      cmocka_unit_test(call_back_tells_whether_the_peer_answered),
      cmocka_unit_test(stranger_is_not_called_back_at_private_addresses),
  };
  return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
