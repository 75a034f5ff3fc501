/* A heavy stream over several connections: all arrives in order, whatever connection it took, and what a peer says on them is
 * doubted. */
#include "lib/raw.h"
#include "lib/real.h"
#include "lib/relay.h"

#include "net/transport/grpc.h"
#include "net/transport/world.h"
#include "net/wire.h"

#include <stdlib.h>
#include <string.h>

/* ---- both sides are ours ---- */

enum { MESSAGES = 60 };

/* Sizes around those at which messages go in pieces. */
static size_t size_of(uint64_t number) {
  static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 131072, 131073, 700001, 4u << 20, 5, 262144, 100};
  return sizes[number % (sizeof sizes / sizeof *sizes)];
}

static uint8_t byte_of(uint64_t number, size_t at) {
  return (uint8_t)(number * 131 + at * 7 + at / 1000);
}

typedef struct sender {
  real_node *node;
  hv_target to;
  hv_stream *stream;
  uint64_t sent, came;
  int wrong, closed;
  hv_status status;
} sender;

static hv_payload *payload_of(hv_mem *mem, uint64_t number) {
  size_t size = size_of(number);
  uint8_t *bytes = malloc(size + 1);
  for (size_t i = 0; i < size; i++)
    bytes[i] = byte_of(number, i);
  hv_payload *payload = size ? hv_payload_copy(mem, bytes, size) : NULL;
  free(bytes);
  return payload;
}

static int is_right(const hv_event *event, uint64_t number) {
  size_t size = event->payload ? event->payload->size : 0, i = 0;
  uint8_t *bytes = malloc(size + 1);
  if (size)
    hv_payload_read(event->payload, 0, bytes, size);
  while (i < size && bytes[i] == byte_of(number, i))
    i++;
  free(bytes);
  return event->msg->u.parcel.offset == number && size == size_of(number) && i == size;
}

static void send_on(sender *s) {
  hv_env *env = s->node->env;
  for (; s->sent < MESSAGES; s->sent++) {
    hv_payload *payload = payload_of(&s->node->mem, s->sent);
    hv_msg msg = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = MESSAGES, .offset = s->sent}};
    hv_status status = env->stream_send(env, s->stream, &msg, payload);
    hv_payload_release(payload);
    if (status == HV_BUSY)
      return;
    s->wrong += status != HV_OK;
  }
  env->stream_end(env, s->stream);
}

static void data_came(hv_stream *stream, const hv_event *event) {
  sender *s = stream->owner;
  s->wrong += !is_right(event, s->came++);
}

static void room_came(hv_stream *stream, const hv_event *event) {
  (void)event;
  send_on(stream->owner);
}

static void it_closed(hv_stream *stream, const hv_event *event) {
  sender *s = stream->owner;
  pthread_mutex_lock(&s->node->lock);
  s->closed++;
  s->status = event->status;
  s->node->events[HV_EVENT_STREAM_CLOSED]++;
  pthread_cond_broadcast(&s->node->changed);
  pthread_mutex_unlock(&s->node->lock);
}

static const hv_stream_events on_heavy = {data_came, room_came, it_closed, .heavy = 1};

static void open_heavy(real_node *node, void *arg) {
  sender *s = arg;
  hv_msg first = {.kind = HV_MSG_PARCEL, .u.parcel.size = MESSAGES};
  assert_int_equal(node->env->stream_open(node->env, &s->to, &first, &on_heavy, s, &s->stream), HV_OK);
}

static sender other; /* the side that was dialled */

static void take_heavy(hv_stream *stream, const hv_event *event) {
  if (!other.stream) {
    other.stream = stream;
    stream->on = &on_heavy;
    stream->owner = &other;
  }
  data_came(stream, event);
}

static void count_callers(real_node *node, void *arg) {
  *(size_t *)arg = node->loop->callers.held[HV_CALLER_STREAMS];
}

static void set_other(real_node *node, void *arg) {
  other = (sender){.node = node, .sent = *(uint64_t *)arg};
}

static void see_taken(real_node *node, void *arg) {
  (void)node;
  *(size_t *)arg = other.stream != NULL;
}

static void forget_all(real_node *node, void *arg) {
  node->env->forget(node->env, arg);
}

static size_t calls_at(real_node *node) {
  size_t n = 0;
  real_do(node, count_callers, &n);
  return n;
}

static void reaches_calls(real_node *node, size_t n) {
  for (uint64_t until = hv_clock_us() + 5000000; calls_at(node) != n && hv_clock_us() < until;)
    ;
  assert_int_equal(calls_at(node), n);
}

static void start_sending(real_node *node, void *arg) {
  (void)node;
  send_on(arg);
}

static void all_arrives_in_order_both_ways_over_four_connections(void **state) {
  (void)state;
  for (int insecure = 0; insecure < 2; insecure++) {
    real_node a, b;
    real_start(&a, &(real_options){.seed = 1, .insecure = insecure, .lanes = 4});
    real_start(&b, &(real_options){.seed = 2, .insecure = insecure, .data = take_heavy});
    for (int turn = 0; turn < 2; turn++) { /* over new connections; over those that are there */
      sender s = {.node = &a, .to = b.target};
      uint64_t none = 0;
      real_do(&b, set_other, &none);
      real_do(&a, open_heavy, &s);
      reaches_calls(&b, 4);
      real_do(&a, start_sending, &s);
      for (size_t taken = 0; !taken;)
        real_do(&b, see_taken, &taken);
      real_do(&b, start_sending, &other);
      assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, turn + 1, 20000));
      assert_true(real_wait_for(&b, HV_EVENT_STREAM_CLOSED, turn + 1, 5000));
      assert_int_equal(s.status, HV_OK);
      assert_int_equal(other.status, HV_OK);
      assert_int_equal(s.came, MESSAGES);
      assert_int_equal(other.came, MESSAGES);
      assert_int_equal(s.wrong + other.wrong, 0);
      reaches_calls(&b, 0);
    }
    real_stop(&a);
    real_stop(&b);
  }
}

/* Whichever allocation fails, on either side: the stream ends once, and nothing is left. */
static void stream_over_lanes_without_memory_ends_once(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1, .insecure = 1, .lanes = 4});
  real_start(&b, &(real_options){.seed = 2, .insecure = 1, .data = take_heavy});
  for (int i = 0; i < 120; i++) {
    sender s = {.node = &a, .to = b.target};
    int closed = real_count(&a, HV_EVENT_STREAM_CLOSED);
    uint64_t all = MESSAGES;
    real_do(&b, set_other, &all);
    real_do(&a, open_heavy, &s);
    if (i % 4 < 2)
      reaches_calls(&b, 4);
    hv_mem_fail_in(i % 2 ? &a.mem : &b.mem, i / 4);
    real_do(&a, start_sending, &s);
    real_wait_for(&a, HV_EVENT_STREAM_CLOSED, closed + 1, 20);
    hv_mem_fail_in(&a.mem, -1);
    hv_mem_fail_in(&b.mem, -1);
    real_do(&a, forget_all, &s.to);
    assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, closed + 1, 5000));
    assert_int_equal(s.closed, 1);
    assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK);
    reaches_calls(&b, 0);
  }
  real_stop(&a);
  real_stop(&b);
}

/* ---- beside calls ---- */

typedef struct pourer {
  real_node *node;
  hv_target to;
  hv_stream *stream;
  hv_payload *payload;
} pourer;

static void pour_on(pourer *p) {
  hv_msg msg = {.kind = HV_MSG_PARCEL};
  while (p->node->env->stream_send(p->node->env, p->stream, &msg, p->payload) == HV_OK)
    ;
}

static void pour_ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  pour_on(stream->owner);
}

static void pour_over(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static const hv_stream_events on_pour = {real_data, pour_ready, pour_over, .heavy = 1};

static void pour(real_node *node, void *arg) {
  pourer *p = arg;
  hv_msg first = {.kind = HV_MSG_PARCEL};
  assert_int_equal(node->env->stream_open(node->env, &p->to, &first, &on_pour, p, &p->stream), HV_OK);
  pour_on(p);
}

static int two_megabytes_came(real_node *node) {
  return node->bytes >= 2u << 20;
}

/* Megabytes of bulk wait in buffers of gRPC and TCP, which the line takes a second to carry. */
static void call_does_not_wait_for_bulk_on_a_full_line(void **state) {
  (void)state;
  enum { CALLS = 5, LINE = 4 << 20, LONGEST_US = 300000 };
  static uint8_t bytes[1 << 20];
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  relay *line = relay_new(b.target.addr.port);
  assert_non_null(line);
  relay_limit(line, LINE);
  pourer p = {.node = &a, .to = b.target, .payload = hv_payload_borrow(&a.mem, bytes, sizeof bytes, NULL, NULL)};
  p.to.addr.port = relay_port(line);
  real_do(&a, pour, &p);
  assert_true(real_wait(&b, two_megabytes_came, 20000));
  assert_int_equal(real_echo(&a, &p.to, "a connection", 10000), HV_OK);
  size_t quick = 0;
  for (int i = 0; i < CALLS; i++) {
    uint64_t before = hv_clock_us();
    assert_int_equal(real_echo(&a, &p.to, "a call", 10000), HV_OK);
    quick += hv_clock_us() - before < LONGEST_US;
  }
  assert_true(quick > CALLS / 2);
  hv_payload_release(p.payload);
  real_stop(&a);
  real_stop(&b);
  relay_free(line);
}

/* ---- the other side is not ---- */

/* A call of a stream, as a peer of no good manners makes it. */
typedef struct raw_lane {
  hv_grpc_call *call;
  raw_op sent, said, over;
} raw_lane;

static const uint8_t token[16] = "sixteen letters";

static void raw_open(raw_peer *p, raw_lane *l, int joins, const uint8_t *by, hv_span first) {
  hv_grpc_lane say = {.joins = (uint8_t)joins};
  *l = (raw_lane){hv_grpc_call_new(p->channel, HV_GRPC_BULK, 1), raw_op_new(), raw_op_new(), raw_op_new()};
  memcpy(say.token, by, sizeof say.token);
  hv_grpc_call_say_lane(l->call, &say);
  assert_true(hv_grpc_call_end(l->call, &l->over.op));
  assert_true(hv_grpc_call_hello(l->call, &l->said.op));
  assert_true(hv_grpc_call_send(l->call, first.size ? hv_grpc_message_new(p->grpc, first, NULL) : NULL, 0, &l->sent.op));
}

static void raw_send(raw_peer *p, raw_lane *l, hv_span bytes) {
  assert_true(raw_wait(p, &l->sent, 5000));
  l->sent = raw_op_new();
  if (!hv_grpc_call_send(l->call, hv_grpc_message_new(p->grpc, bytes, NULL), 0, &l->sent.op))
    l->sent.done = 1;
}

static hv_status raw_end(raw_peer *p, raw_lane *l, int cancel) {
  char text[HV_GRPC_TEXT_MAX];
  if (cancel)
    hv_grpc_call_cancel(l->call);
  assert_true(raw_wait(p, &l->over, 10000) && raw_wait(p, &l->said, 5000) && raw_wait(p, &l->sent, 5000));
  hv_cause cause;
  hv_status status = hv_grpc_call_result(l->call, &cause, text);
  hv_grpc_call_free(l->call);
  return status;
}

/* A message with its number before it, and so many bytes after it. */
static hv_span numbered(hv_buf *buf, uint32_t number, size_t more) {
  uint8_t head[4], *at;
  hv_msg msg = {.kind = HV_MSG_PARCEL};
  hv_le_put(head, number, sizeof head);
  buf->size = 0;
  assert_int_equal(hv_buf_append(buf, head, sizeof head), HV_OK);
  assert_int_equal(hv_wire_write_bulk(&msg, HV_PROTOCOL_LOWEST, NULL, buf), HV_OK);
  assert_int_equal(hv_buf_reserve(buf, more, &at), HV_OK);
  memset(at, 1, more);
  buf->size += more;
  return hv_span_of(buf->data, buf->size);
}

static int two_pieces_came(real_node *node) {
  return node->bytes == 2;
}

static void lane_that_joins_no_stream_is_refused_and_pieces_are_bounded(void **state) {
  (void)state;
  real_node node, friend;
  raw_peer p;
  raw_lane first, second;
  hv_buf buf;
  real_start(&node, &(real_options){.seed = 1, .insecure = 1, .greeting_ms = 700});
  real_start(&friend, &(real_options){.seed = 2, .insecure = 1});
  raw_start(&p, 1, &node.target);
  hv_buf_init(&buf, &p.mem, 8 << 20);
  hv_span go = hv_span_of("\xff\xff\xff\xff", 4), none = {0};

  raw_open(&p, &first, 1, token, none); /* no such stream */
  assert_int_equal(raw_end(&p, &first, 0), HV_NOT_FOUND);
  raw_open(&p, &first, 7, token, none); /* no such word */
  assert_int_equal(raw_end(&p, &first, 0), HV_MALFORMED);

  /* A message of another number than the first does not open it, nor do pieces. */
  raw_open(&p, &first, 0, token, numbered(&buf, 3, 0));
  assert_true(raw_end(&p, &first, 0) != HV_OK);
  raw_open(&p, &first, 0, token, numbered(&buf, 0x80000000u, 1 << 17));
  assert_int_equal(raw_end(&p, &first, 0), HV_MALFORMED);
  assert_int_equal(real_count(&node, HV_EVENT_STREAM_OPENED), 0);

  /* Two calls; the second one's message comes before that of the first, which is awaited. Then nonsense on one ends both. */
  for (int kind = 0; kind < 6; kind++) {
    int closed = real_count(&node, HV_EVENT_STREAM_CLOSED);
    node.bytes = 0;
    raw_open(&p, &first, 0, token, numbered(&buf, 0, 0));
    assert_true(raw_wait(&p, &first.said, 5000));
    raw_open(&p, &second, 1, token, none);
    assert_true(raw_wait(&p, &second.said, 5000));
    if (kind < 5) {
      raw_send(&p, &second, go);
      raw_send(&p, &second, numbered(&buf, 2, 1));
      raw_send(&p, &first, numbered(&buf, 1, 1));
      assert_true(real_wait(&node, two_pieces_came, 5000));
    }
    if (kind == 0)
      raw_send(&p, &second, numbered(&buf, 0x80000003u, 100)); /* a piece of a hundred bytes */
    for (uint32_t i = 0; kind == 1 && i < 6; i++)
      raw_send(&p, i % 2 ? &first : &second, numbered(&buf, 0x80000003u + i, 1 << 20)); /* a message without an end */
    if (kind == 2)
      raw_send(&p, &first, go); /* to what goes already */
    if (kind == 3)
      assert_int_equal(raw_end(&p, &second, 1), HV_CANCELLED); /* it was in use */
    if (kind == 4) {
      raw_send(&p, &first, hv_span_of("\0\0\0\0", 4));
      raw_send(&p, &first, numbered(&buf, 3, 1)); /* after the end */
    }
    if (kind == 5)
      raw_send(&p, &second, numbered(&buf, 1, 1)); /* over what has not been told to go */
    assert_true(raw_wait(&p, &first.sent, 5000));  /* nothing leaves while nobody polls */
    assert_true(kind == 3 || raw_wait(&p, &second.sent, 5000));
    assert_true(real_wait_for(&node, HV_EVENT_STREAM_CLOSED, closed + 1, 5000));
    assert_true(raw_end(&p, &first, 0) != HV_OK);
    if (kind != 3)
      assert_true(raw_end(&p, &second, 0) != HV_OK);
    reaches_calls(&node, 0);
  }

  /* More than a stream may have; those that never carried anything end without harm. */
  raw_lane many[HV_LANES_MAX];
  raw_open(&p, &first, 0, token, numbered(&buf, 0, 0));
  assert_true(raw_wait(&p, &first.said, 5000));
  for (int i = 0; i < HV_LANES_MAX; i++)
    raw_open(&p, &many[i], 1, token, none);
  size_t n_over = 0, refused = 0;
  for (uint64_t until = hv_clock_us() + 5000000; n_over == 0 && hv_clock_us() < until;)
    for (int i = 0; i < HV_LANES_MAX; i++)
      n_over += (size_t)raw_wait(&p, &many[i].over, 1);
  reaches_calls(&node, HV_LANES_MAX);
  int closed = real_count(&node, HV_EVENT_STREAM_CLOSED);
  for (int i = 0; i < HV_LANES_MAX; i++)
    refused += raw_end(&p, &many[i], 1) == HV_NOT_FOUND;
  assert_int_equal(refused, 1);
  reaches_calls(&node, 1);
  assert_int_equal(real_count(&node, HV_EVENT_STREAM_CLOSED), closed);
  raw_end(&p, &first, 1);
  reaches_calls(&node, 0);

  hv_buf_fini(&buf);
  raw_stop(&p);
  assert_int_equal(real_echo(&friend, &node.target, "x", 5000), HV_OK);
  real_stop(&friend);
  real_stop(&node);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_arrives_in_order_both_ways_over_four_connections),
      cmocka_unit_test(call_does_not_wait_for_bulk_on_a_full_line),
      cmocka_unit_test(stream_over_lanes_without_memory_ends_once),
      cmocka_unit_test(lane_that_joins_no_stream_is_refused_and_pieces_are_bounded),
  };
  return cmocka_run_group_tests_name("streams over several connections", tests, NULL, NULL);
}
