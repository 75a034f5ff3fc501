/* The real world without memory: each allocation of a whole talk fails in turn, on either side, over TLS and without. Each call
 * ends once, the next one is served, and nothing is left behind. */
#include "lib/real.h"

#include <string.h>

enum { PARTS = 20, MESSAGES = 3, ECHO_BYTES = 3000, PATIENCE_MS = 20000 };

/* A meets b: an echo, then a stream with bytes in many parts, answered by b and ended by both. */
typedef struct talk {
  real_node a, b;
  hv_call call;
  hv_status asked, opened;
  hv_stream *stream;
  hv_stream_events on;
  hv_target to;
} talk;

static void nothing_to_free(hv_payload *payload) {
  (void)payload;
}

/* It outlives every node: gRPC is done with it when they have stopped. */
static hv_payload many_parts;

static void make_parts(void) {
  static uint8_t bytes[PARTS];
  static hv_span parts[PARTS];
  for (size_t i = 0; i < PARTS; i++)
    parts[i] = hv_span_of(&bytes[i], 1);
  hv_payload_init(&many_parts, parts, PARTS, nothing_to_free, NULL);
}

static void ask(real_node *node, void *arg) {
  talk *t = arg;
  static char bytes[ECHO_BYTES];
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(bytes, sizeof bytes)};
  t->call = (hv_call){.done = real_call_done, .owner = node, .to = t->to, .timeout_ms = 5000};
  t->asked = node->env->call(node->env, &t->call, &msg);
}

static void a_closed(hv_stream *stream, const hv_event *event) {
  talk *t = stream->owner;
  pthread_mutex_lock(&t->a.lock);
  t->a.events[HV_EVENT_STREAM_CLOSED]++;
  pthread_mutex_unlock(&t->a.lock);
  t->stream = NULL;
  (void)event;
}

static void a_nothing(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void open_and_send(real_node *node, void *arg) {
  talk *t = arg;
  hv_env *env = node->env;
  hv_msg msg = {.kind = HV_MSG_PARCEL};
  t->on = (hv_stream_events){a_nothing, a_nothing, a_closed, .heavy = 0};
  t->opened = env->stream_open(env, &t->to, &msg, &t->on, t, &t->stream);
  hv_status status = t->opened;
  for (int i = 0; i < MESSAGES && status == HV_OK; i++)
    status = env->stream_send(env, t->stream, &msg, &many_parts);
  if (status == HV_OK)
    env->stream_end(env, t->stream);
  else if (t->opened == HV_OK)
    env->stream_cancel(env, t->stream);
}

static void break_off(real_node *node, void *arg) {
  talk *t = arg;
  if (t->stream)
    node->env->stream_cancel(node->env, t->stream);
}

/* B's side of the stream. */
static void answer(hv_stream *stream, const hv_event *event) {
  real_node *node = stream->owner;
  hv_env *env = node->env;
  real_data(stream, event);
  if (real_count(node, HV_EVENT_STREAM_DATA) < MESSAGES)
    return;
  if (env->stream_send(env, stream, event->msg, &many_parts) == HV_OK)
    env->stream_end(env, stream);
  else
    env->stream_cancel(env, stream);
}

/* Each call has ended, and once. */
static void all_has_ended(talk *t) {
  if (t->asked == HV_OK)
    assert_true(real_wait_for(&t->a, HV_EVENT_CALL_DONE, 1, PATIENCE_MS));
  if (t->opened == HV_OK)
    assert_true(real_wait_for(&t->a, HV_EVENT_STREAM_CLOSED, 1, PATIENCE_MS));
  int opened = real_count(&t->b, HV_EVENT_STREAM_OPENED);
  assert_in_range(opened, 0, 1);
  assert_true(real_wait_for(&t->b, HV_EVENT_STREAM_CLOSED, opened, PATIENCE_MS));
  assert_int_equal(real_count(&t->a, HV_EVENT_CALL_DONE), t->asked == HV_OK);
  assert_int_equal(real_count(&t->a, HV_EVENT_STREAM_CLOSED), t->opened == HV_OK);
  assert_int_equal(real_count(&t->b, HV_EVENT_STREAM_CLOSED), opened);
}

static void start(talk *t, int insecure, hv_versions versions) {
  *t = (talk){0};
  real_start(&t->a, &(real_options){.seed = 1, .insecure = insecure, .versions = versions});
  real_start(&t->b, &(real_options){.seed = 2, .insecure = insecure, .versions = versions, .data = answer});
  assert_true(real_wait_for(&t->a, HV_EVENT_START, 1, PATIENCE_MS)); /* what a start takes is another test's */
  assert_true(real_wait_for(&t->b, HV_EVENT_START, 1, PATIENCE_MS));
  t->to = t->b.target;
}

static void stop(talk *t) {
  assert_int_equal(real_echo(&t->a, &t->b.target, "still here", 5000), HV_OK);
  assert_int_equal(real_echo(&t->b, &t->a.target, "still here", 5000), HV_OK);
  assert_in_range(real_stop(&t->a), 0, 2000);
  assert_in_range(real_stop(&t->b), 0, 2000);
}

static void ask_and_wait(talk *t) {
  real_do(&t->a, ask, t);
  if (t->asked == HV_OK)
    assert_true(real_wait_for(&t->a, HV_EVENT_CALL_DONE, 1, PATIENCE_MS));
}

typedef struct order {
  int at_b, insecure, stream_first, asks_versions; /* asks_versions: the stream begins when b has said what it speaks */
} order;

/* The n-th allocation from the first word on fails on one of the two; 1: there were not so many. */
static int talk_with_failure(const order *how, long n) {
  static talk t;
  start(&t, how->insecure, how->asks_versions ? (hv_versions){1, 2, 0} : (hv_versions){0});
  hv_mem *mem = how->at_b ? &t.b.mem : &t.a.mem;
  hv_mem_fail_in(mem, n);
  if (!how->stream_first) {
    memset(&t.to.id, 0, sizeof t.to.id); /* whoever is there: it is met, and its connection adopted */
    ask_and_wait(&t);
    t.to.id = t.b.target.id;
  }
  real_do(&t.a, open_and_send, &t);
  if (how->stream_first)
    ask_and_wait(&t);
  all_has_ended(&t);
  int all = atomic_load(&mem->refused) == 0;
  hv_mem_fail_in(mem, -1);
  if (all) {
    assert_int_equal(t.asked, HV_OK);
    assert_int_equal(t.opened, HV_OK);
    assert_int_equal(t.b.bytes, MESSAGES * PARTS);
  }
  stop(&t);
  return all;
}

static void until_one_gets_through(int at_b) {
  for (int i = 0; i < 6; i++) {
    long n = 0;
    while (!talk_with_failure(&(order){at_b, i % 2, i / 2 > 0, i / 2 > 1}, n))
      n++;
    assert_in_range(n, 12, 1000);
  }
}

static void caller_without_memory_ends_its_calls_and_streams(void **state) {
  (void)state;
  until_one_gets_through(0);
}

static void a_callee_without_memory_says_no_and_serves_the_next(void **state) {
  (void)state;
  until_one_gets_through(1);
}

static void nothing_more(real_node *node, void *arg) {
  (void)arg;
  node->mem.limit = 0;
}

static void enough(real_node *node, void *arg) {
  (void)arg;
  node->mem.limit = HV_MEM_UNLIMITED;
}

/* More calls and streams than wait for peers: not one of them finds memory. */
static void node_that_had_no_memory_for_a_while_works_again(void **state) {
  (void)state;
  enum { CALLS = 50 };
  for (int at_b = 0; at_b < 2; at_b++) {
    static talk t;
    start(&t, 0, (hv_versions){0});
    assert_int_equal(real_echo(&t.a, &t.to, "x", 5000), HV_OK);
    real_node *poor = at_b ? &t.b : &t.a;
    real_do(poor, nothing_more, NULL);
    for (int i = 0; i < CALLS; i++) {
      assert_int_not_equal(real_echo(&t.a, &t.to, "x", 50), HV_OK);
      int closed = real_count(&t.a, HV_EVENT_STREAM_CLOSED);
      real_do(&t.a, open_and_send, &t);
      if (t.opened != HV_OK)
        continue;
      real_do(&t.a, break_off, &t);
      assert_true(real_wait_for(&t.a, HV_EVENT_STREAM_CLOSED, closed + 1, PATIENCE_MS));
    }
    real_do(poor, enough, NULL);
    stop(&t);
  }
}

int main(int argc, char **argv) {
  if (argc > 1)
    cmocka_set_test_filter(argv[1]);
  make_parts();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(caller_without_memory_ends_its_calls_and_streams),
      cmocka_unit_test(a_callee_without_memory_says_no_and_serves_the_next),
      cmocka_unit_test(node_that_had_no_memory_for_a_while_works_again),
  };
  return cmocka_run_group_tests_name("the real world without memory", tests, NULL, NULL);
}
