/* Questions to a node: at once when it is idle, together when it is busy. The test holds the calls in its hands. */
#include "lib/fake_env.h"

#include "core/dht/ask.h"

#include <string.h>

enum { CALLS = 16, ANSWERS = 16 };

typedef struct sent {
  hv_call *call;
  hv_msg_kind kind;
  size_t n; /* finds, or records */
  int cancelled;
} sent;

typedef struct answered {
  size_t times;
  hv_status status;
  hv_msg_kind kind;
  size_t n; /* contacts, or verdicts */
} answered;

typedef struct desk {
  fake_env fake;
  hv_route route;
  hv_asker asker;
  sent sent[CALLS];
  size_t n_sent;
  hv_timer *timer;
  uint64_t delay_us;
  answered answers[ANSWERS];
  hv_peer_id other;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  size_t addrs_size;
  int refuses; /* calls cannot be started */
} desk;

static hv_status take_call(hv_env *env, hv_call *call, const hv_msg *msg) {
  desk *d = env->world;
  if (d->refuses)
    return HV_NOMEM;
  assert_true(d->n_sent < CALLS);
  size_t n = msg->kind == HV_MSG_FINDS ? msg->u.finds.n_finds : msg->kind == HV_MSG_STORE ? msg->u.store.n_records : 1;
  d->sent[d->n_sent++] = (sent){call, msg->kind, n, 0};
  return HV_OK;
}

static void take_cancel(hv_env *env, hv_call *call) {
  desk *d = env->world;
  for (size_t i = 0; i < d->n_sent; i++)
    if (d->sent[i].call == call)
      d->sent[i].cancelled = 1;
}

static void take_timer(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  desk *d = env->world;
  d->timer = timer;
  d->delay_us = delay_us;
}

static void clear_timer(hv_env *env, hv_timer *timer) {
  desk *d = env->world;
  if (d->timer == timer)
    d->timer = NULL;
}

static void open_desk(desk *d) {
  memset(d, 0, sizeof *d);
  fake_env_init(&d->fake, 1);
  hv_env *env = &d->fake.env;
  env->world = d;
  env->call = take_call;
  env->call_cancel = take_cancel;
  env->timer_set = take_timer;
  env->timer_clear = clear_timer;
  hv_route_init(&d->route, env, &(hv_route_config){.me = d->fake.me});
  hv_asker_init(&d->asker, env, &d->route, 3000);
  d->other = fake_peer(7);
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {10, 0, 0, 1}};
  d->addrs_size = hv_contact_pack(&addr, 1, d->addrs);
}

static void close_desk(desk *d) {
  hv_asker_fini(&d->asker);
  hv_route_fini(&d->route);
  assert_int_equal(d->fake.mem.blocks, 0);
}

static void done(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  answered *a = &((desk *)owner)->answers[mark];
  (void)text;
  a->times++;
  a->status = status;
  a->kind = msg ? msg->kind : HV_MSG_NONE;
  a->n = !msg ? 0 : msg->kind == HV_MSG_FOUND ? msg->u.found.n_contacts : msg->u.stored.n_verdicts;
}

static hv_ask *find(desk *d, size_t mark) {
  hv_msg msg = {.kind = HV_MSG_FIND};
  hv_ask *ask = NULL;
  assert_int_equal(hv_asker_ask(&d->asker, &d->other, hv_span_of(d->addrs, d->addrs_size), &msg, 1, done, d, mark, &ask), HV_OK);
  return ask;
}

static void store(desk *d, size_t mark, const hv_record *records, size_t n) {
  hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {records, n, hv_span_of(NULL, 0)}};
  assert_int_equal(hv_asker_ask(&d->asker, &d->other, hv_span_of(d->addrs, d->addrs_size), &msg, 1, done, d, mark, NULL), HV_OK);
}

static void answer(desk *d, size_t i, hv_status status, const hv_msg *msg) {
  hv_event event = {.kind = HV_EVENT_CALL_DONE, .now_us = d->fake.now_us, .status = status, .msg = msg, .text = ""};
  hv_call *call = d->sent[i].call;
  d->sent[i].call = NULL;
  call->done(call, &event);
}

static void answer_found(desk *d, size_t i) {
  hv_msg msg = {.kind = HV_MSG_FOUND};
  answer(d, i, HV_OK, &msg);
}

static void an_idle_node_is_asked_at_once_and_a_busy_one_all_together(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  for (size_t i = 0; i < 4; i++)
    find(&d, i);
  assert_int_equal(d.n_sent, 1);
  assert_int_equal(d.sent[0].kind, HV_MSG_FIND);
  answer_found(&d, 0);
  assert_int_equal(d.answers[0].times, 1);
  assert_int_equal(d.n_sent, 2);
  assert_true(d.sent[1].kind == HV_MSG_FINDS && d.sent[1].n == 3);
  hv_contact contacts[3] = {{.id = fake_peer(1)}, {.id = fake_peer(2)}, {.id = fake_peer(3)}};
  hv_msg_found founds[3] = {
      {.contacts = contacts, .n_contacts = 1}, {.contacts = contacts, .n_contacts = 2}, {.contacts = contacts, .n_contacts = 3}};
  hv_msg msg = {.kind = HV_MSG_FOUNDS, .u.founds = {founds, 3}};
  answer(&d, 1, HV_OK, &msg);
  for (size_t i = 1; i < 4; i++)
    assert_true(d.answers[i].times == 1 && d.answers[i].kind == HV_MSG_FOUND && d.answers[i].n == i); /* each its own */
  assert_int_equal(d.asker.asked, 4);
  assert_int_equal(d.asker.called, 2);
  find(&d, 4); /* idle again */
  assert_int_equal(d.n_sent, 3);
  answer_found(&d, 2);
  close_desk(&d);
}

static void waiting_question_is_sent_alone_after_a_short_delay(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  find(&d, 0);
  d.fake.now_us += 500;
  find(&d, 1);
  assert_non_null(d.timer);
  assert_int_equal(d.delay_us, 1500);
  d.fake.now_us += 1500;
  d.timer->fire(d.timer, NULL);
  assert_int_equal(d.n_sent, 2);
  answer_found(&d, 1);
  answer_found(&d, 0);
  assert_true(d.answers[0].times == 1 && d.answers[1].times == 1);
  close_desk(&d);
}

static void question_without_room_in_an_answer_is_asked_alone(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  for (size_t i = 0; i < 3; i++)
    find(&d, i);
  answer_found(&d, 0);
  hv_msg_found one = {0};
  hv_msg msg = {.kind = HV_MSG_FOUNDS, .u.founds = {&one, 1}};
  answer(&d, 1, HV_OK, &msg);
  assert_true(d.answers[1].times == 1 && d.answers[2].times == 0);
  assert_int_equal(d.n_sent, 3);
  assert_int_equal(d.sent[2].kind, HV_MSG_FIND);
  answer_found(&d, 2);
  assert_true(d.answers[2].times == 1 && d.answers[2].status == HV_OK);
  close_desk(&d);
}

static void verdicts_reach_the_stores_of_their_records(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  hv_record records[4] = {{.ttl_ms = 1}, {.ttl_ms = 1}, {.ttl_ms = 1}, {.ttl_ms = 1, .signer = fake_peer(3)}};
  find(&d, 0);
  store(&d, 1, records, 2);
  store(&d, 2, records + 2, 1);
  store(&d, 3, records + 3, 1);
  find(&d, 4);
  answer_found(&d, 0);
  assert_int_equal(d.n_sent, 3); /* stores, and what is of another kind */
  assert_true(d.sent[1].kind == HV_MSG_STORE && d.sent[1].n == 4 && d.sent[2].kind == HV_MSG_FIND);
  hv_status verdicts[4] = {HV_OK, HV_OK, HV_EXISTS, HV_EXISTS};
  hv_msg msg = {.kind = HV_MSG_STORED, .u.stored = {verdicts, 4, NULL, 0}};
  answer(&d, 1, HV_OK, &msg);
  assert_true(d.answers[1].n == 2 && d.answers[2].n == 1);
  assert_int_equal(d.answers[3].times, 0); /* what stands in the way of an owner's word is told to a question by itself */
  assert_true(d.n_sent == 4 && d.sent[3].kind == HV_MSG_STORE && d.sent[3].n == 1);
  msg.u.stored.n_verdicts = 1;
  answer(&d, 3, HV_OK, &msg);
  assert_int_equal(d.answers[3].times, 1);
  answer_found(&d, 2);
  close_desk(&d);
}

static void answer_of_another_length_counts_as_none(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  hv_record record = {.ttl_ms = 1};
  find(&d, 0);
  store(&d, 1, &record, 1);
  store(&d, 2, &record, 1);
  answer_found(&d, 0);
  hv_status verdicts[3] = {HV_OK, HV_OK, HV_OK};
  hv_msg msg = {.kind = HV_MSG_STORED, .u.stored = {verdicts, 3, NULL, 0}};
  answer(&d, 1, HV_OK, &msg);
  assert_true(d.answers[1].n == 3 && d.answers[2].n == 3); /* as it came: whoever asked sees that it is wrong */
  close_desk(&d);
}

static void a_call_that_fails_is_one_silence_of_its_node(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  find(&d, 0);
  answer_found(&d, 0); /* now it is in the table */
  for (size_t i = 1; i < 5; i++)
    find(&d, i);
  answer_found(&d, 1);
  answer(&d, 2, HV_TIMEOUT, NULL);
  for (size_t i = 2; i < 5; i++)
    assert_true(d.answers[i].times == 1 && d.answers[i].status == HV_TIMEOUT);
  assert_int_equal(hv_route_find(&d.route, &d.other)->failures, 1);
  close_desk(&d);
}

/* A call is cancelled once nobody waits for any of its answers. */
static void forgotten_question_is_not_sent_and_call_ends_with_the_last(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  hv_ask *asks[5];
  for (size_t i = 0; i < 5; i++)
    asks[i] = find(&d, i);
  hv_ask_forget(asks[1]);
  hv_ask_drop(asks[4]);
  answer_found(&d, 0);
  assert_true(d.sent[1].kind == HV_MSG_FINDS && d.sent[1].n == 2);
  hv_ask_drop(asks[2]);
  assert_false(d.sent[1].cancelled);
  hv_ask_drop(asks[3]);
  assert_true(d.sent[1].cancelled);
  answer(&d, 1, HV_CANCELLED, NULL);
  for (size_t i = 1; i < 5; i++)
    assert_int_equal(d.answers[i].times, 0);
  close_desk(&d);
}

/* Questions under way end when their calls come back. */
static void closed_asker_ends_waiting_questions_at_once(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  find(&d, 0);
  find(&d, 1);
  hv_asker_close(&d.asker);
  assert_true(d.answers[1].times == 1 && d.answers[1].status == HV_CANCELLED && d.answers[0].times == 0);
  assert_true(d.sent[0].cancelled);
  answer(&d, 0, HV_CANCELLED, NULL);
  assert_int_equal(d.answers[0].times, 1);
  close_desk(&d);
}

static void question_that_cannot_be_sent_fails_and_none_is_lost(void **unused) {
  (void)unused;
  desk d;
  open_desk(&d);
  find(&d, 0);
  find(&d, 1);
  find(&d, 2);
  d.refuses = 1;
  answer_found(&d, 0);
  assert_true(d.answers[1].times == 1 && d.answers[1].status == HV_NOMEM);
  assert_true(d.answers[2].times == 1 && d.answers[2].status == HV_NOMEM);
  d.refuses = 0;
  find(&d, 3);
  answer_found(&d, 1);
  assert_int_equal(d.answers[3].times, 1);
  close_desk(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_idle_node_is_asked_at_once_and_a_busy_one_all_together),
      cmocka_unit_test(waiting_question_is_sent_alone_after_a_short_delay),
      cmocka_unit_test(question_without_room_in_an_answer_is_asked_alone),
      cmocka_unit_test(verdicts_reach_the_stores_of_their_records),
      cmocka_unit_test(answer_of_another_length_counts_as_none),
      cmocka_unit_test(a_call_that_fails_is_one_silence_of_its_node),
      cmocka_unit_test(forgotten_question_is_not_sent_and_call_ends_with_the_last),
      cmocka_unit_test(closed_asker_ends_waiting_questions_at_once),
      cmocka_unit_test(question_that_cannot_be_sent_fails_and_none_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
