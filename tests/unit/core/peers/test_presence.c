/* Presence streams: which are kept, when the end of one is the end of its peer, and which reports of that are believed. */
#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/peers/presence.h"
#include "core/peers/spoken.h"
#include "core/versions.h"

#include <string.h>

enum { STREAMS = 400, CALLS = 64, SECOND = 1000000, HUB = 1, OPEN = 2, CLIENT = 10, OTHER = 11, STRANGER = 99 };

typedef struct scene {
  fake_env fake;
  hv_peers peers;
  hv_spoken spoken;
  hv_notices notices;
  hv_presence presence;
  hv_stream streams[STREAMS];
  size_t n_streams, n_opened, n_cancelled, n_said;
  hv_call *calls[CALLS];
  size_t n_calls, n_notices;
  hv_peer_id notified; /* the last peer that got a report as a call */
  hv_ended ended;      /* the first one of the last report */
  hv_peer_id gone;     /* the last peer that has ended */
  size_t n_gone;
} scene;

static hv_status keep_call(hv_env *env, hv_call *call, const hv_msg *request) {
  scene *s = (scene *)env;
  assert_true(s->n_calls < CALLS);
  s->calls[s->n_calls++] = call;
  if (request->kind == HV_MSG_ENDED) {
    s->n_notices++;
    s->notified = call->to.id;
    s->ended = request->u.ended.peers[0];
  }
  return HV_OK;
}

static void no_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  (void)env, (void)answer;
  memset(request, 0xee, sizeof *request); /* nobody may look at it any more */
}

static hv_status keep_stream(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                             hv_stream **out) {
  scene *s = (scene *)env;
  assert_int_equal(first->kind, HV_MSG_PRESENT);
  assert_int_equal(first->u.present.life, s->peers.life);
  assert_true(s->n_streams < STREAMS);
  *out = &s->streams[s->n_streams++];
  **out = (hv_stream){.on = on, .owner = owner, .peer = to->id};
  s->n_opened++;
  return HV_OK;
}

static hv_status say(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  scene *s = (scene *)env;
  (void)stream;
  assert_true(header->kind == HV_MSG_ENDED && !payload);
  s->ended = header->u.ended.peers[0];
  s->n_said++;
  return HV_OK;
}

static void count_cancel(hv_env *env, hv_stream *stream) {
  (void)stream;
  ((scene *)env)->n_cancelled++;
}

static void is_gone(void *arg, const hv_peer_id *id) {
  scene *s = arg;
  s->gone = *id;
  s->n_gone++;
}

static hv_addr address(uint8_t network, int is_private) {
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000};
  memcpy(addr.host.ip, (uint8_t[]){is_private ? 10 : 80, network, 0, 1}, 4);
  return addr;
}

/* Somebody says hello, as a client or at an address. */
static void hello(scene *s, uint64_t number, int client, uint64_t life) {
  hv_addr at = address((uint8_t)number, 0);
  hv_request request = {.peer = fake_peer(number), .from = at};
  hv_msg msg = {.kind = HV_MSG_HELLO, .u.hello = {.me = {.id = request.peer, .client_mode = client != 0}, .life = life}};
  if (!client) {
    msg.u.hello.me.n_addrs = 1;
    msg.u.hello.me.addrs[0] = at;
  }
  hv_peers_hello(&s->peers, &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg, .now_us = s->fake.now_us});
}

/* All hellos of this node are answered. */
static void answer_all(scene *s) {
  hv_call *calls[CALLS];
  size_t n = s->n_calls;
  memcpy(calls, s->calls, sizeof calls);
  s->n_calls = 0;
  for (size_t i = 0; i < n; i++) {
    hv_msg msg = {.kind = HV_MSG_HELLO, .u.hello = {.me = {calls[i]->to.id, 0, 1, {calls[i]->to.addr}}, .life = 1}};
    calls[i]->done(calls[i], &(hv_event){.kind = HV_EVENT_CALL_DONE,
                                         .call = calls[i],
                                         .msg = &msg,
                                         .peer = calls[i]->to.id,
                                         .text = "",
                                         .now_us = s->fake.now_us});
  }
}

/* Time passes, and what is due is done. */
static void pass(scene *s, uint64_t us) {
  s->fake.now_us += us;
  s->presence.timer.fire(&s->presence.timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = s->fake.now_us});
}

/* A node that knows its initial peer HUB and a peer OPEN, of which all have these features. */
static void open_scene(scene *s, int client_mode, uint64_t features) {
  hv_target hub = {fake_peer(HUB), address(HUB, 0)};
  hv_versions theirs = {1, 1, features};
  memset(s, 0, sizeof *s);
  fake_env_init(&s->fake, 1);
  s->fake.env.call = keep_call;
  s->fake.env.reply = no_reply;
  s->fake.env.stream_open = keep_stream;
  s->fake.env.stream_send = say;
  s->fake.env.stream_cancel = count_cancel;
  s->fake.env.spoken = &s->spoken;
  assert_int_equal(hv_spoken_init(&s->spoken, s->fake.env.mem, NULL), HV_OK);
  hv_peers_config config = {
      .me = {.id = s->fake.me, .client_mode = client_mode != 0}, .initial = &hub, .n_initial = 1, .gone = is_gone, .arg = s};
  assert_int_equal(hv_peers_init(&s->peers, &s->fake.env, &config), HV_OK);
  hv_notices_init(&s->notices, &s->fake.env);
  hv_presence_init(&s->presence, &s->fake.env, &s->peers, &s->notices);
  for (uint64_t i = HUB; i <= OPEN; i++) {
    hv_peer_id id = fake_peer(i);
    hv_spoken_learn(&s->fake.env, &id, &theirs);
    hello(s, i, 0, 1);
  }
  s->peers.timer.fire(&s->peers.timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = s->fake.now_us});
  answer_all(s);
  assert_int_equal(hv_peers_alive(&s->peers), 2);
}

static void close_scene(scene *s) {
  hv_presence_stop(&s->presence);
  hv_presence_fini(&s->presence);
  hv_notices_fini(&s->notices);
  hv_spoken_fini(&s->spoken);
  hv_peers_fini(&s->peers);
  assert_int_equal(s->fake.mem.blocks, 0);
}

/* A peer opens a stream; NULL: it was not taken. */
static hv_stream *comes_from(scene *s, uint64_t number, uint64_t network, uint64_t life) {
  hv_stream *stream = &s->streams[s->n_streams++];
  hv_msg msg = {.kind = HV_MSG_PRESENT, .u.present = {life}};
  assert_true(s->n_streams <= STREAMS);
  *stream = (hv_stream){.peer = fake_peer(number), .network = network};
  hv_presence_opened(&s->presence,
                     &(hv_event){.kind = HV_EVENT_STREAM_OPENED, .stream = stream, .msg = &msg, .now_us = s->fake.now_us});
  return stream->on ? stream : NULL;
}

static hv_stream *comes(scene *s, uint64_t number, uint64_t life) {
  hello(s, number, 1, life);
  return comes_from(s, number, 0, life);
}

static void closes(scene *s, hv_stream *stream) {
  stream->on->closed(
      stream,
      &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .stream = stream, .status = HV_CLOSED, .text = "", .now_us = s->fake.now_us});
}

/* ---- the hub ---- */

static void end_of_a_stream_is_reported_after_a_second(void **unused) {
  (void)unused;
  for (int knows = 0; knows < 2; knows++) {
    scene s;
    open_scene(&s, 0, knows ? HV_FEATURE_PRESENT : 0);
    hv_stream *stream = comes(&s, CLIENT, 77);
    assert_non_null(stream);
    assert_non_null(comes(&s, OTHER, 78));
    pass(&s, SECOND);
    closes(&s, stream);
    pass(&s, SECOND - 1);
    assert_int_equal(s.n_gone, 0);
    pass(&s, 1);
    hv_peer_id id = fake_peer(CLIENT);
    assert_int_equal(s.n_gone, 1);
    assert_true(hv_peer_equal(&s.gone, &id) && hv_peer_equal(&s.ended.id, &id));
    assert_true(s.ended.life == 77 && s.ended.ago_ms == 1000);
    assert_int_equal(s.n_said, 1);                /* the other client, on its own stream */
    assert_int_equal(s.n_notices, knows ? 2 : 0); /* those that can be called, if they know such a message */
    assert_int_equal(hv_peers_find(&s.peers, &id)->state, HV_PEERS_LOST);
    pass(&s, 5 * SECOND);
    assert_int_equal(s.n_gone, 1);
    hello(&s, CLIENT, 1, 77); /* it lives, and was cut off for a while */
    assert_int_equal(hv_peers_find(&s.peers, &id)->state, HV_PEERS_ALIVE);
    assert_false(hv_peers_find(&s.peers, &id)->gone);
    close_scene(&s);
  }
}

static void peer_that_comes_back_in_time_is_not_reported(void **unused) {
  (void)unused;
  enum { STREAM_AGAIN, HELLO_AGAIN, NEW_LIFE, WAYS };
  for (int way = 0; way < WAYS; way++) {
    scene s;
    open_scene(&s, 0, HV_FEATURE_PRESENT);
    hv_stream *stream = comes(&s, CLIENT, 77);
    pass(&s, SECOND);
    closes(&s, stream);
    pass(&s, SECOND / 2);
    if (way == STREAM_AGAIN)
      assert_non_null(comes_from(&s, CLIENT, 0, 77));
    else
      hello(&s, CLIENT, 1, way == NEW_LIFE ? 78 : 77);
    for (int i = 0; i < 8; i++)
      pass(&s, SECOND / 2);
    assert_int_equal(s.n_gone + s.n_notices + s.n_said, 0);
    close_scene(&s);
  }
}

/* Other clients do not hear a goodbye, which goes to those that can be called. */
static void goodbye_is_reported_as_an_end(void **unused) {
  (void)unused;
  scene s;
  hv_peer_id id = fake_peer(CLIENT);
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  comes(&s, CLIENT, 77);
  comes(&s, CLIENT + 1, 78);
  pass(&s, SECOND);
  hv_presence_left(&s.presence, &id);
  for (int i = 0; i < 8; i++)
    pass(&s, SECOND / 2);
  assert_int_equal(s.n_said, 1);
  assert_true(hv_peer_equal(&s.ended.id, &id));
  close_scene(&s);
}

static void newest_stream_of_a_peer_counts(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  hv_stream *old = comes(&s, CLIENT, 77), *new = comes(&s, CLIENT, 77);
  assert_int_equal(s.n_cancelled, 1);
  assert_int_equal(s.presence.n_guests, 1);
  closes(&s, old);
  pass(&s, 2 * SECOND);
  assert_int_equal(s.n_gone, 0);
  closes(&s, new);
  pass(&s, SECOND);
  assert_int_equal(s.n_gone, 1);
  close_scene(&s);
}

static void hub_that_moved_reports_nobody(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  hv_stream *before = comes(&s, CLIENT, 77), *after = comes(&s, OTHER, 78);
  closes(&s, before);
  hv_presence_moved(&s.presence);
  pass(&s, SECOND / 2);
  closes(&s, after);
  pass(&s, 2 * SECOND);
  assert_int_equal(s.n_gone, 0);
  assert_int_equal(s.presence.n_guests, 0);
  close_scene(&s);
}

static void many_ends_are_reported_in_turns(void **unused) {
  (void)unused;
  enum { MANY = HV_ENDED_MAX + 5 };
  scene s;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  hv_stream *streams[MANY];
  for (uint64_t i = 0; i < MANY; i++)
    streams[i] = comes_from(&s, 100 + i, 0, 1);
  for (size_t i = 0; i < MANY; i++)
    closes(&s, streams[i]);
  pass(&s, SECOND);
  assert_int_equal(s.n_gone, HV_ENDED_MAX);
  assert_int_equal(s.n_notices, 2);
  pass(&s, HV_PRESENCE_REPORT_US - 1);
  assert_int_equal(s.n_gone, HV_ENDED_MAX);
  pass(&s, 1);
  assert_int_equal(s.n_gone, MANY);
  assert_int_equal(s.n_notices, 4);
  close_scene(&s);
}

/* Keys are free, and so are the streams that they open. */
static void strangers_leave_places_to_others(void **unused) {
  (void)unused;
  scene s;
  uint64_t key = 1000;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  while (comes_from(&s, key, 7, 1))
    key++;
  assert_int_equal(s.presence.n_guests, HV_PRESENCE_NEIGHBOURS);
  for (uint64_t network = 8; comes_from(&s, key, network, 1); network++)
    key++;
  assert_int_equal(s.presence.n_guests, HV_PRESENCE_STRANGERS);
  hello(&s, CLIENT, 1, 77);
  assert_null(comes_from(&s, CLIENT, 200, 77));
  hv_peer_id id = fake_peer(CLIENT);
  for (size_t i = 0; i < s.peers.n_entries; i++)
    s.peers.entries[i]->averaged |= hv_peer_equal(&s.peers.entries[i]->card.id, &id);
  assert_non_null(comes_from(&s, CLIENT, 200, 77));
  closes(&s, &s.streams[0]);
  pass(&s, SECOND);
  assert_non_null(comes_from(&s, key, 7, 1));
  close_scene(&s);
}

static void stream_of_no_use_is_not_kept(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  assert_null(comes_from(&s, OPEN, 0, 1)); /* it can be dialled */
  assert_null(comes_from(&s, 0, 0, 1));    /* oneself */
  hv_mem_fail_in(&s.fake.mem, 0);
  assert_null(comes_from(&s, CLIENT, 0, 1));
  hv_mem_fail_in(&s.fake.mem, -1);
  hv_stream *stream = comes_from(&s, CLIENT, 0, 1);
  hv_msg more = {.kind = HV_MSG_PRESENT};
  stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .stream = stream, .msg = &more});
  assert_int_equal(s.n_cancelled, 1);
  assert_int_equal(s.presence.n_guests, 0);
  closes(&s, stream);
  pass(&s, 2 * SECOND);
  assert_int_equal(s.n_gone, 0);
  close_scene(&s);
}

static void stopped_node_reports_nothing(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  hv_stream *stream = comes(&s, CLIENT, 77);
  hv_presence_stop(&s.presence);
  closes(&s, stream);
  pass(&s, 2 * SECOND);
  assert_int_equal(s.n_gone, 0);
  assert_null(comes_from(&s, OTHER, 0, 1));
  close_scene(&s);
}

/* ---- the client ---- */

static void client_keeps_a_stream_to_each_initial_peer(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 1, HV_FEATURE_PRESENT);
  pass(&s, 0);
  assert_int_equal(s.n_opened, 1);
  hv_peer_id hub = fake_peer(HUB);
  assert_true(hv_peer_equal(&s.streams[0].peer, &hub));
  pass(&s, 60 * SECOND);
  assert_int_equal(s.n_opened, 1);
  closes(&s, &s.streams[0]); /* it was open for long: at once */
  assert_int_equal(s.n_opened, 2);
  closes(&s, &s.streams[1]); /* and now there is a pause */
  assert_int_equal(s.n_opened, 2);
  pass(&s, 2 * SECOND);
  assert_int_equal(s.n_opened, 3);
  closes(&s, &s.streams[2]);
  pass(&s, SECOND / 2);
  assert_int_equal(s.n_opened, 3); /* which grows */
  hv_presence_moved(&s.presence);
  pass(&s, 0);
  assert_int_equal(s.n_opened, 4);
  close_scene(&s);
}

static void peers_without_the_feature_get_no_stream(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 1, HV_FEATURE_DIAL);
  pass(&s, SECOND);
  assert_int_equal(s.n_opened, 0);
  close_scene(&s);
  open_scene(&s, 0, HV_FEATURE_PRESENT); /* and a node that can be dialled needs none */
  hv_presence_look(&s.presence);
  pass(&s, SECOND);
  assert_int_equal(s.n_opened, 0);
  close_scene(&s);
}

static void report_on_the_stream_is_believed(void **unused) {
  (void)unused;
  scene s;
  hv_peer_id id = fake_peer(CLIENT);
  open_scene(&s, 1, HV_FEATURE_PRESENT);
  pass(&s, 0);
  const hv_ended ended[] = {{s.fake.me, 1, 1000}, {id, 77, 1000}};
  hv_msg msg = {.kind = HV_MSG_ENDED, .u.ended = {ended, 2}};
  hv_stream *stream = &s.streams[0];
  stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .stream = stream, .msg = &msg});
  assert_int_equal(s.n_gone, 1); /* not of this node itself */
  assert_true(hv_peer_equal(&s.gone, &id));
  close_scene(&s);
}

/* ---- reports from others ---- */

static size_t told(scene *s, uint64_t by, hv_ended ended) {
  hv_request request = {.peer = fake_peer(by)};
  hv_msg msg = {.kind = HV_MSG_ENDED, .u.ended = {&ended, 1}};
  size_t before = s->n_gone;
  hv_presence_told(&s->presence, &(hv_event){.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg, .now_us = s->fake.now_us});
  return s->n_gone - before;
}

static int all_are_dialled(void *arg, const hv_peer_id *id) {
  (void)arg, (void)id;
  return 1;
}

static void report_is_believed_from_initial_peers_alone(void **unused) {
  (void)unused;
  scene s;
  hv_ended ended = {fake_peer(CLIENT), 77, 1000};
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  hello(&s, CLIENT, 1, 77);
  pass(&s, 3 * SECOND);
  assert_int_equal(told(&s, STRANGER, ended), 0);
  assert_int_equal(told(&s, OPEN, ended), 0);
  assert_int_equal(told(&s, CLIENT, ended), 0);
  assert_int_equal(told(&s, HUB, ended), 1);
  assert_int_equal(told(&s, HUB, ended), 0); /* it is known */
  hello(&s, CLIENT, 1, 77);
  assert_int_equal(told(&s, HUB, ended), 0); /* it has called since */
  assert_int_equal(hv_peers_find(&s.peers, &ended.id)->state, HV_PEERS_ALIVE);
  close_scene(&s);
}

static void report_against_own_knowledge_is_ignored(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 0, HV_FEATURE_PRESENT);
  assert_non_null(comes(&s, CLIENT, 77));
  hello(&s, OTHER, 1, 78);
  pass(&s, 3 * SECOND);
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(CLIENT), 77, 1000}), 0); /* its stream is open here */
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(OPEN), 1, 1000}), 0);    /* it can be dialled */
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(OTHER), 79, 1000}), 0);  /* another life */
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(OTHER), 78, 4000}), 0);  /* heard since */
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(OTHER), 78, UINT64_MAX}), 0);
  s.presence.is_dialled = all_are_dialled;
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(STRANGER), 0, 1000}), 0);
  s.presence.is_dialled = NULL;
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(STRANGER), 0, 1000}), 1);
  assert_int_equal(told(&s, HUB, (hv_ended){fake_peer(OTHER), 0, 1000}), 1); /* of a life that was not told */
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(end_of_a_stream_is_reported_after_a_second),
      cmocka_unit_test(peer_that_comes_back_in_time_is_not_reported),
      cmocka_unit_test(goodbye_is_reported_as_an_end),
      cmocka_unit_test(newest_stream_of_a_peer_counts),
      cmocka_unit_test(hub_that_moved_reports_nobody),
      cmocka_unit_test(many_ends_are_reported_in_turns),
      cmocka_unit_test(strangers_leave_places_to_others),
      cmocka_unit_test(stream_of_no_use_is_not_kept),
      cmocka_unit_test(stopped_node_reports_nothing),
      cmocka_unit_test(client_keeps_a_stream_to_each_initial_peer),
      cmocka_unit_test(peers_without_the_feature_get_no_stream),
      cmocka_unit_test(report_on_the_stream_is_believed),
      cmocka_unit_test(report_is_believed_from_initial_peers_alone),
      cmocka_unit_test(report_against_own_knowledge_is_ignored),
  };
  return cmocka_run_group_tests_name("presence", tests, NULL, NULL);
}
