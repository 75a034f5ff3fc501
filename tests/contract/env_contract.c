#include "contract/env_contract.h"

#include "lib/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NODES_MAX = 4, STREAMS_MAX = 8, SOON_MS = 10000, PIECE = 64 << 10, HELD_MAX = 4096 };

/* ---- recorders ---- */

typedef struct bench bench;
typedef struct recorder recorder;

typedef struct a_stream {
  recorder *rec;
  hv_stream *stream; /* NULL before it is open, and once it is closed */
  int data, wrong, ready, closed;
  size_t bytes;
  uint64_t sent;    /* messages taken by the world */
  uint64_t to_send; /* `pour` goes on up to that many */
  size_t piece;     /* of so many bytes */
  int busy;         /* stream_send said so, and ready has not come yet */
  int end_at;       /* ends its side when so many messages have come; 0: never */
  int echo;         /* sends back what comes, up to the window */
  int hold;         /* keeps every payload */
  hv_payload *held[HELD_MAX];
  size_t n_held;
  hv_status status;
  char text[64];
  hv_peer_id peer_at_first;  /* stream->peer while the first message was handled */
  atomic_int made, released; /* payloads to send */
} a_stream;

typedef struct a_call {
  hv_call call;
  recorder *rec;
  int done;
  hv_status started, status; /* of the start, of the end */
  hv_peer_id peer;
  int right; /* an answer came, and it is an echo of `bytes` */
  hv_span bytes;
  char text[HV_MSG_TEXT_MAX + 1];
  uint64_t started_us, done_us;
} a_call;

typedef enum answer_kind { ANSWER_ECHO, ANSWER_REFUSE, ANSWER_LATE, ANSWER_NEVER, ANSWER_TOO_LARGE } answer_kind;

struct recorder {
  bench *b;
  size_t index;
  hv_env *env;
  int depth, in_env; /* within a step; within a function of hv_env */
  int violations;    /* what must never happen */
  const char *violation;
  uint64_t now_us;
  int events, started, stops, freed, downs;
  size_t n_addrs;
  hv_addr addr;
  hv_peer_id down;
  answer_kind answer;
  int requests;
  hv_peer_id asker;
  hv_request *kept[64];
  hv_span kept_bytes[64];
  size_t n_kept;
  hv_timer later;
  int refuse_streams, hold_streams, echo_streams, end_at;
  a_stream *in[STREAMS_MAX];
  size_t n_in;
  int stop_quietly; /* does not say when it has stopped: the world's grace ends it */
};

struct bench {
  const contract_fixture *f;
  void *world;
  pthread_mutex_t lock;
  recorder nodes[NODES_MAX];
  size_t n;
};

static void violated(recorder *rec, const char *what) {
  rec->violations++;
  rec->violation = what;
}

static void got_data(hv_stream *stream, const hv_event *event);
static const hv_stream_events stream_on;

/* Calls of hv_env, with a mark that one is under way: a completion that comes meanwhile came from inside. */
#define IN_ENV(rec, expression) ((rec)->in_env++, (expression), (rec)->in_env--)

static void reply_echo(recorder *rec, hv_request *request, hv_span bytes) {
  hv_msg answer = {.kind = HV_MSG_ECHO, .u.echo = {bytes}};
  IN_ENV(rec, rec->env->reply(rec->env, request, &answer));
}

static const uint8_t too_much[HV_MSG_BLOB_MAX + 1];

static void asked(recorder *rec, const hv_event *event) {
  hv_msg answer = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_BUSY, hv_span_of("come back later", 15)}};
  rec->requests++;
  rec->asker = event->request->peer;
  switch (rec->answer) {
  case ANSWER_ECHO:
    IN_ENV(rec, rec->env->reply(rec->env, event->request, event->msg));
    return;
  case ANSWER_REFUSE:
    IN_ENV(rec, rec->env->reply(rec->env, event->request, &answer));
    return;
  case ANSWER_TOO_LARGE:
    reply_echo(rec, event->request, hv_span_of(too_much, sizeof too_much));
    return;
  case ANSWER_LATE:
    IN_ENV(rec, rec->env->timer_set(rec->env, &rec->later, 50000));
    break;
  case ANSWER_NEVER:
    break;
  }
  if (rec->n_kept < 64)
    rec->kept[rec->n_kept++] = event->request;
}

/* The last one that asked is answered first. */
static void answer_kept(hv_timer *timer, const hv_event *event) {
  recorder *rec = timer->owner;
  (void)event;
  while (rec->n_kept)
    reply_echo(rec, rec->kept[--rec->n_kept], hv_span_of("late", 4));
}

static void took_stream(recorder *rec, const hv_event *event) {
  if (rec->refuse_streams || rec->n_in == STREAMS_MAX)
    return;
  a_stream *s = calloc(1, sizeof *s);
  *s = (a_stream){.rec = rec, .stream = event->stream, .hold = rec->hold_streams, .echo = rec->echo_streams, .end_at = rec->end_at};
  rec->in[rec->n_in++] = s;
  event->stream->on = &stream_on;
  event->stream->owner = s;
}

static void step(void *self, const hv_event *event) {
  recorder *rec = self;
  pthread_mutex_lock(&rec->b->lock);
  rec->events++;
  if (rec->depth++ || rec->in_env)
    violated(rec, "an event came from within a step");
  if (rec->freed)
    violated(rec, "an event came after the end");
  if (event->now_us < rec->now_us)
    violated(rec, "the clock went back");
  if (rec->env->now_us(rec->env) != event->now_us)
    violated(rec, "the event's time is not the clock's");
  if (!event->text)
    violated(rec, "an event has no text");
  if (!rec->started && event->kind != HV_EVENT_START)
    violated(rec, "START is not the first event");
  rec->now_us = event->now_us;
  if (!hv_event_dispatch(event))
    switch (event->kind) {
    case HV_EVENT_START:
      rec->started++;
      rec->n_addrs = event->n_addrs;
      if (event->n_addrs)
        rec->addr = event->addrs[0];
      break;
    case HV_EVENT_REQUEST:
      asked(rec, event);
      break;
    case HV_EVENT_STREAM_OPENED:
      took_stream(rec, event);
      break;
    case HV_EVENT_PEER_DOWN:
      rec->downs++;
      rec->down = event->peer;
      break;
    case HV_EVENT_COMMAND:
      event->command->run(event->command, rec);
      break;
    case HV_EVENT_STOP:
      rec->stops++;
      if (!rec->stop_quietly)
        IN_ENV(rec, rec->env->stopped(rec->env));
      break;
    default:
      violated(rec, "an event without a kind");
    }
  if (rec->env->now_us(rec->env) != rec->now_us)
    violated(rec, "the clock moved within a step");
  rec->depth--;
  pthread_mutex_unlock(&rec->b->lock);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  recorder *rec = arg;
  rec->env = env;
  *out = (hv_core){rec, step};
  return HV_OK;
}

static void seat_freed(void *self) {
  recorder *rec = self;
  pthread_mutex_lock(&rec->b->lock);
  rec->freed++;
  for (size_t i = 0; i < rec->n_in; i++)
    while (rec->in[i]->n_held)
      hv_payload_release(rec->in[i]->held[--rec->in[i]->n_held]);
  pthread_mutex_unlock(&rec->b->lock);
}

/* ---- the bench ---- */

/* clients: bit i makes node i one that cannot be dialled */
static bench *open_bench(void **state, size_t n, unsigned clients) {
  bench *b = calloc(1, sizeof *b);
  contract_seat seats[NODES_MAX];
  b->f = *state;
  b->n = n;
  pthread_mutex_init(&b->lock, NULL);
  for (size_t i = 0; i < n; i++) {
    b->nodes[i].b = b;
    b->nodes[i].index = i;
    b->nodes[i].later = (hv_timer){.fire = answer_kept, .owner = &b->nodes[i]};
    seats[i] = (contract_seat){make, seat_freed, &b->nodes[i], (int)(clients >> i & 1)};
  }
  b->world = b->f->open(b->f, n, seats);
  assert_non_null(b->world);
  return b;
}

static void close_bench(bench *b) {
  size_t left = b->f->close(b->world);
  for (size_t i = 0; i < b->n; i++) {
    recorder *rec = &b->nodes[i];
    if (rec->violations)
      fail_msg("node %zu: %s", i, rec->violation);
    for (size_t k = 0; k < rec->n_in; k++)
      free(rec->in[k]);
  }
  assert_int_equal(left, 0);
  pthread_mutex_destroy(&b->lock);
  free(b);
}

typedef struct op {
  hv_command command; /* first */
  bench *b;
  void (*fn)(recorder *rec, void *arg);
  void *arg;
  int ran, without;
} op;

static void run_op(hv_command *command, void *core) {
  op *o = (op *)command;
  if (core) {
    o->fn(core, o->arg);
    o->ran++;
  } else {
    pthread_mutex_lock(&o->b->lock);
    o->without++;
    pthread_mutex_unlock(&o->b->lock);
  }
}

static int op_over(void *arg) {
  op *o = arg;
  pthread_mutex_lock(&o->b->lock);
  int over = o->ran + o->without;
  pthread_mutex_unlock(&o->b->lock);
  return over;
}

/* Runs fn in a step of a node and waits for it; 0: the node had ended. */
static int within(bench *b, size_t node, void (*fn)(recorder *rec, void *arg), void *arg) {
  op o = {.command = {.run = run_op}, .b = b, .fn = fn, .arg = arg};
  b->f->command(b->world, node, &o.command);
  assert_true(b->f->drive(b->world, op_over, &o, SOON_MS));
  assert_int_equal(o.ran + o.without, 1);
  return o.ran;
}

/* Waits until an int that steps change (under the lock) is at least so much. */
typedef struct level {
  bench *b;
  const int *value;
  int least;
} level;
static int is_at(void *arg) {
  level *l = arg;
  pthread_mutex_lock(&l->b->lock);
  int there = *l->value >= l->least;
  pthread_mutex_unlock(&l->b->lock);
  return there;
}
static int reaches(bench *b, const int *value, int least, uint32_t timeout_ms) {
  return b->f->drive(b->world, is_at, &(level){b, value, least}, timeout_ms);
}
static int never(void *arg) {
  (void)arg;
  return 0;
}
static void let_pass(bench *b, uint32_t ms) {
  b->f->drive(b->world, never, NULL, ms);
}
static int look(bench *b, const int *value) {
  pthread_mutex_lock(&b->lock);
  int now = *value;
  pthread_mutex_unlock(&b->lock);
  return now;
}

/* How a recorder behaves from now on. */
#define SET(b, node, what, value)                                                                                                  \
  (pthread_mutex_lock(&(b)->lock), (b)->nodes[node].what = (value), pthread_mutex_unlock(&(b)->lock))

/* ---- calls ---- */

static void call_done(hv_call *call, const hv_event *event) {
  a_call *c = call->owner;
  if (c->rec->in_env)
    violated(c->rec, "CALL_DONE came from inside");
  if (call->world)
    violated(c->rec, "a call that is done is still the world's");
  if ((event->status == HV_OK) != (event->msg != NULL))
    violated(c->rec, "an answer without HV_OK, or the other way round");
  if (event->msg && event->msg->kind == HV_MSG_REFUSAL)
    violated(c->rec, "a refusal came as an answer");
  if (event->status != HV_OK && !event->text[0])
    violated(c->rec, "a failed call does not say why");
  c->done++;
  c->status = event->status;
  c->peer = event->peer;
  c->done_us = event->now_us;
  c->right = event->msg && event->msg->kind == HV_MSG_ECHO && hv_span_equal(event->msg->u.echo.bytes, c->bytes);
  strncpy(c->text, event->text, HV_MSG_TEXT_MAX);
}

static void start_call(recorder *rec, void *arg) {
  a_call *c = arg;
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {c->bytes}};
  c->rec = rec;
  c->call.done = call_done;
  c->call.owner = c;
  c->started_us = rec->env->now_us(rec->env);
  IN_ENV(rec, c->started = rec->env->call(rec->env, &c->call, &msg));
}

static void cancel_call(recorder *rec, void *arg) {
  IN_ENV(rec, rec->env->call_cancel(rec->env, &((a_call *)arg)->call));
}

static a_call a_call_to(hv_target to, uint32_t timeout_ms) {
  return (a_call){.call = {.to = to, .timeout_ms = timeout_ms}, .bytes = hv_span_of("hello", 5)};
}

/* Calls and waits until it is done. */
static void ask(bench *b, size_t from, a_call *c) {
  int before = c->done;
  within(b, from, start_call, c);
  assert_int_equal(c->started, HV_OK);
  assert_true(reaches(b, &c->done, before + 1, c->call.timeout_ms + SOON_MS));
}

static hv_target target(bench *b, size_t node) {
  return b->f->target(b->world, node);
}

static void starts_once_and_knows_where_it_listens(void **state) {
  bench *b = open_bench(state, 2, 2);
  assert_true(reaches(b, &b->nodes[0].started, 1, SOON_MS));
  assert_true(reaches(b, &b->nodes[1].started, 1, SOON_MS));
  assert_true(b->nodes[0].n_addrs >= 1);
  assert_true(b->nodes[0].addr.kind != HV_ADDR_NONE);
  assert_true(b->nodes[0].addr.port != 0);
  assert_int_equal(b->nodes[1].n_addrs, 0);
  let_pass(b, 50);
  assert_int_equal(look(b, &b->nodes[0].started), 1);
  assert_int_equal(look(b, &b->nodes[1].started), 1);
  close_bench(b);
}

static void spend_time(recorder *rec, void *arg) {
  (void)rec, (void)arg;
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); /* step itself checks that the clock stood */
}

static void the_clock_stands_within_a_step(void **state) {
  bench *b = open_bench(state, 1, 0);
  assert_true(within(b, 0, spend_time, NULL));
  let_pass(b, 10);
  close_bench(b);
}

static void an_echo_comes_back_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  a_call c = a_call_to(target(b, 1), 5000);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_OK);
  assert_true(c.right);
  assert_true(hv_peer_equal(&c.peer, &c.call.to.id));
  hv_peer_id me = target(b, 0).id;
  pthread_mutex_lock(&b->lock);
  assert_true(hv_peer_equal(&b->nodes[1].asker, &me));
  assert_int_equal(b->nodes[1].requests, 1);
  pthread_mutex_unlock(&b->lock);
  let_pass(b, 100);
  assert_int_equal(look(b, &c.done), 1);
  ask(b, 0, &c); /* the struct may be used anew */
  assert_int_equal(look(b, &c.done), 2);
  assert_true(c.right);
  close_bench(b);
}

static void an_unknown_id_is_learned(void **state) {
  bench *b = open_bench(state, 2, 0);
  hv_peer_id id = target(b, 1).id;
  a_call c = a_call_to(target(b, 1), 5000);
  memset(&c.call.to.id, 0, sizeof c.call.to.id);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_OK);
  assert_true(hv_peer_equal(&c.peer, &id));
  assert_true(hv_peer_equal(&c.call.to.id, &id));
  close_bench(b);
}

static void another_identity_is_denied(void **state) {
  bench *b = open_bench(state, 3, 0);
  a_call c = a_call_to(target(b, 1), 5000);
  c.call.to.id = target(b, 2).id;
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_DENIED);
  assert_int_equal(look(b, &b->nodes[1].requests), 0);
  a_call right = a_call_to(target(b, 1), 5000); /* and the right one is none the worse for it */
  ask(b, 0, &right);
  assert_int_equal(right.status, HV_OK);
  close_bench(b);
}

static void a_refusal_brings_its_status_and_sentence(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_REFUSE);
  a_call c = a_call_to(target(b, 1), 5000);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_BUSY);
  assert_string_equal(c.text, "come back later");
  close_bench(b);
}

static void where_nobody_listens_the_call_is_refused(void **state) {
  bench *b = open_bench(state, 1, 0);
  a_call c = a_call_to(b->f->nobody(b->world), 5000);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_REFUSED);
  close_bench(b);
}

static void a_call_without_an_address_ends(void **state) {
  bench *b = open_bench(state, 1, 0);
  hv_target nowhere;
  memset(&nowhere, 0, sizeof nowhere);
  a_call c = a_call_to(nowhere, 2000);
  within(b, 0, start_call, &c);
  if (c.started == HV_OK) {
    assert_true(reaches(b, &c.done, 1, SOON_MS));
    assert_int_equal(c.status, HV_UNREACHABLE);
  }
  close_bench(b);
}

static void no_answer_in_time_is_a_timeout(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_NEVER);
  a_call c = a_call_to(target(b, 1), 300);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_TIMEOUT);
  assert_true(c.done_us - c.started_us >= 300000);
  assert_true(c.done_us - c.started_us < 2300000);
  close_bench(b); /* with a request that was never answered */
}

static void answer_now(recorder *rec, void *arg) {
  (void)arg;
  answer_kept(&rec->later, NULL);
}

static void an_answer_after_the_time_goes_nowhere(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_NEVER);
  a_call c = a_call_to(target(b, 1), 200);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_TIMEOUT);
  within(b, 1, answer_now, NULL); /* the request was valid until now */
  let_pass(b, 200);
  assert_int_equal(look(b, &c.done), 1);
  close_bench(b);
}

static void late_answers_in_any_order_find_their_calls(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_LATE);
  a_call c[20];
  for (int i = 0; i < 20; i++) {
    c[i] = a_call_to(target(b, 1), 5000);
    within(b, 0, start_call, &c[i]);
    assert_int_equal(c[i].started, HV_OK);
    c[i].bytes = hv_span_of("late", 4);
  }
  for (int i = 0; i < 20; i++) {
    assert_true(reaches(b, &c[i].done, 1, SOON_MS));
    assert_int_equal(c[i].status, HV_OK);
    assert_true(c[i].right);
  }
  close_bench(b);
}

static void a_cancelled_call_ends_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_NEVER);
  a_call c = a_call_to(target(b, 1), 8000);
  within(b, 0, start_call, &c);
  let_pass(b, 100);
  assert_int_equal(look(b, &c.done), 0);
  within(b, 0, cancel_call, &c);
  within(b, 0, cancel_call, &c);
  assert_true(reaches(b, &c.done, 1, 2000));
  assert_int_equal(c.status, HV_CANCELLED);
  within(b, 0, cancel_call, &c); /* not under way: nothing happens */
  let_pass(b, 100);
  assert_int_equal(look(b, &c.done), 1);
  close_bench(b);
}

static void start_and_cancel(recorder *rec, void *arg) {
  start_call(rec, arg);
  cancel_call(rec, arg);
}

static void a_call_cancelled_in_the_step_that_started_it_ends_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  a_call c = a_call_to(target(b, 1), 5000);
  within(b, 0, start_and_cancel, &c);
  assert_true(reaches(b, &c.done, 1, 2000));
  assert_true(c.status == HV_CANCELLED || c.status == HV_OK);
  let_pass(b, 100);
  assert_int_equal(look(b, &c.done), 1);
  close_bench(b);
}

static void many_calls_both_ways_each_end_once_with_their_own(void **state) {
  enum { N = 100 };
  bench *b = open_bench(state, 3, 4);
  a_call *c = calloc(N, sizeof *c);
  uint32_t bytes[N];
  for (uint32_t i = 0; i < N; i++) {
    bytes[i] = i * 2654435761u;
    size_t from = i % 3, to = from == 0 ? 1 : 0; /* node 2 only dials out */
    c[i] = a_call_to(target(b, to), 8000);
    c[i].bytes = hv_span_of(&bytes[i], sizeof bytes[i]);
    within(b, from, start_call, &c[i]);
    assert_int_equal(c[i].started, HV_OK);
  }
  for (int i = 0; i < N; i++) {
    assert_true(reaches(b, &c[i].done, 1, SOON_MS));
    assert_int_equal(c[i].status, HV_OK);
    assert_true(c[i].right);
  }
  let_pass(b, 100);
  for (int i = 0; i < N; i++)
    assert_int_equal(look(b, &c[i].done), 1);
  free(c);
  close_bench(b);
}

static void one_that_only_dials_out_cannot_be_reached(void **state) {
  bench *b = open_bench(state, 2, 2);
  a_call c = a_call_to(target(b, 1), 3000);
  ask(b, 0, &c);
  assert_true(c.status == HV_REFUSED || c.status == HV_UNREACHABLE);
  close_bench(b);
}

static void the_largest_message_passes_and_a_larger_one_is_refused_at_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  a_call c = a_call_to(target(b, 1), 8000);
  c.bytes = hv_span_of(too_much, HV_MSG_BLOB_MAX);
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_OK);
  assert_true(c.right);
  a_call larger = a_call_to(target(b, 1), 8000);
  larger.bytes = hv_span_of(too_much, HV_MSG_BLOB_MAX + 1);
  within(b, 0, start_call, &larger);
  assert_int_equal(larger.started, HV_TOO_LARGE);
  let_pass(b, 100);
  assert_int_equal(look(b, &larger.done), 0);
  close_bench(b);
}

static void an_answer_that_cannot_be_said_still_ends_the_call(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_TOO_LARGE);
  a_call c = a_call_to(target(b, 1), 1000);
  ask(b, 0, &c);
  assert_true(c.status != HV_OK);
  close_bench(b);
}

/* ---- timers ---- */

typedef struct a_timer {
  hv_timer timer;
  recorder *rec;
  uint64_t set_us, delay_us, fired_us;
  int fired, again; /* again: re-arms itself so often */
  int *order, place;
} a_timer;

static void set_timer(recorder *rec, void *arg);

static void fired(hv_timer *timer, const hv_event *event) {
  a_timer *t = timer->owner;
  if (t->rec->in_env)
    violated(t->rec, "a timer fired from inside");
  if (event->now_us < t->set_us + t->delay_us)
    violated(t->rec, "a timer fired before its time");
  if (timer->world.slot)
    violated(t->rec, "a timer that fires is still armed");
  t->fired++;
  t->fired_us = event->now_us;
  if (t->order)
    t->place = (*t->order)++;
  if (t->again-- > 0)
    set_timer(t->rec, t);
}

static void set_timer(recorder *rec, void *arg) {
  a_timer *t = arg;
  t->rec = rec;
  t->timer.fire = fired;
  t->timer.owner = t;
  t->set_us = rec->env->now_us(rec->env);
  IN_ENV(rec, rec->env->timer_set(rec->env, &t->timer, t->delay_us));
}

static void clear_timer(recorder *rec, void *arg) {
  IN_ENV(rec, rec->env->timer_clear(rec->env, &((a_timer *)arg)->timer));
}

static void a_timer_fires_once_at_its_time(void **state) {
  bench *b = open_bench(state, 1, 0);
  a_timer t = {.delay_us = 80000}, at_once = {.delay_us = 0};
  within(b, 0, set_timer, &t);
  within(b, 0, set_timer, &at_once);
  assert_true(reaches(b, &at_once.fired, 1, 2000));
  assert_true(reaches(b, &t.fired, 1, 2000));
  assert_true(t.fired_us - t.set_us < 1080000);
  let_pass(b, 200);
  assert_int_equal(look(b, &t.fired), 1);
  close_bench(b);
}

static void a_timer_set_again_fires_at_the_new_time_only(void **state) {
  bench *b = open_bench(state, 1, 0);
  a_timer later = {.delay_us = 50000}, sooner = {.delay_us = 5000000};
  within(b, 0, set_timer, &later);
  within(b, 0, set_timer, &sooner);
  later.delay_us = 300000;
  sooner.delay_us = 20000;
  within(b, 0, set_timer, &later);
  within(b, 0, set_timer, &sooner);
  assert_true(reaches(b, &sooner.fired, 1, 2000));
  assert_true(reaches(b, &later.fired, 1, 2000));
  let_pass(b, 100);
  assert_int_equal(look(b, &later.fired), 1);
  close_bench(b);
}

static void a_cleared_timer_does_not_fire(void **state) {
  bench *b = open_bench(state, 1, 0);
  a_timer t = {.delay_us = 50000}, idle = {.delay_us = 0};
  within(b, 0, set_timer, &t);
  within(b, 0, clear_timer, &t);
  within(b, 0, clear_timer, &t);
  within(b, 0, clear_timer, &idle);
  assert_int_equal(t.timer.world.slot, 0);
  let_pass(b, 150);
  assert_int_equal(look(b, &t.fired), 0);
  within(b, 0, set_timer, &t);
  assert_true(reaches(b, &t.fired, 1, 2000));
  close_bench(b);
}

static void many_timers_fire_in_the_order_of_their_times(void **state) {
  enum { N = 300 };
  bench *b = open_bench(state, 1, 0);
  a_timer *t = calloc(N, sizeof *t);
  int order = 0;
  check_rng rng = {7};
  for (int i = 0; i < N; i++) {
    t[i] = (a_timer){.delay_us = 100000 + check_random(&rng) % 200000, .order = &order};
    within(b, 0, set_timer, &t[i]);
  }
  for (int i = 0; i < N; i += 3)
    within(b, 0, clear_timer, &t[i]);
  for (int i = 0; i < N; i++)
    assert_true(i % 3 == 0 || reaches(b, &t[i].fired, 1, SOON_MS));
  for (int i = 0; i < N; i++) {
    assert_int_equal(t[i].fired, i % 3 ? 1 : t[i].fired); /* a cleared one may have fired before it was cleared */
    for (int k = 0; k < N; k++)
      if (t[i].fired && t[k].fired && t[i].set_us + t[i].delay_us < t[k].set_us + t[k].delay_us)
        assert_true(t[i].place < t[k].place);
  }
  free(t);
  close_bench(b);
}

static void a_timer_may_arm_itself_as_it_fires(void **state) {
  bench *b = open_bench(state, 1, 0);
  a_timer t = {.delay_us = 2000, .again = 20};
  within(b, 0, set_timer, &t);
  assert_true(reaches(b, &t.fired, 21, SOON_MS));
  let_pass(b, 50);
  assert_int_equal(look(b, &t.fired), 21);
  close_bench(b);
}

/* ---- streams ---- */

static uint8_t byte_of(uint64_t number, size_t i) {
  return (uint8_t)(number * 31 + i + (i >> 8));
}

static int is_right(uint64_t number, const hv_payload *payload) {
  size_t at = 0;
  for (size_t p = 0; payload && p < payload->n_parts; p++)
    for (size_t i = 0; i < payload->parts[p].size; i++, at++)
      if (payload->parts[p].data[i] != byte_of(number, at))
        return 0;
  return at == (payload ? payload->size : 0);
}

typedef struct a_piece {
  hv_payload payload; /* first */
  hv_span parts[3];
  a_stream *stream;
  uint8_t bytes[];
} a_piece;

static void free_piece(hv_payload *payload) {
  a_piece *piece = (a_piece *)payload;
  atomic_fetch_add(&piece->stream->released, 1);
  free(piece);
}

/* In three parts, one of them empty. */
static hv_payload *new_piece(a_stream *s, uint64_t number, size_t size) {
  a_piece *piece = malloc(sizeof *piece + size);
  atomic_fetch_add(&s->made, 1);
  for (size_t i = 0; i < size; i++)
    piece->bytes[i] = byte_of(number, i);
  piece->parts[0] = hv_span_of(piece->bytes, size / 3);
  piece->parts[1] = hv_span_of(piece->bytes + size / 3, 0);
  piece->parts[2] = hv_span_of(piece->bytes + size / 3, size - size / 3);
  piece->stream = s;
  hv_payload_init(&piece->payload, piece->parts, 3, free_piece, NULL);
  return &piece->payload;
}

static hv_status send_one(a_stream *s, uint64_t number, size_t size, int with_payload) {
  recorder *rec = s->rec;
  hv_msg header = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = size, .offset = number}};
  hv_payload *payload = with_payload ? new_piece(s, number, size) : NULL;
  hv_status status;
  IN_ENV(rec, status = rec->env->stream_send(rec->env, s->stream, &header, payload));
  hv_payload_release(payload);
  if (status == HV_OK)
    s->sent++;
  if (status == HV_BUSY)
    s->busy = 1;
  return status;
}

/* Sends numbered pieces until the window is full or all have gone. */
static void pour(a_stream *s) {
  while (s->stream && s->sent < s->to_send && send_one(s, s->sent, s->piece, 1) == HV_OK) {
  }
}

static void end_side(recorder *rec, void *arg) {
  a_stream *s = arg;
  if (s->stream)
    IN_ENV(rec, rec->env->stream_end(rec->env, s->stream));
}

static void cancel_side(recorder *rec, void *arg) {
  a_stream *s = arg;
  if (s->stream)
    IN_ENV(rec, rec->env->stream_cancel(rec->env, s->stream));
}

static void got_data(hv_stream *stream, const hv_event *event) {
  a_stream *s = stream->owner;
  if (s->rec->in_env || s->closed)
    violated(s->rec, "STREAM_DATA came from inside, or after the end");
  if (event->msg->kind != HV_MSG_PARCEL || event->msg->u.parcel.offset != (uint64_t)s->data ||
      event->msg->u.parcel.size != (event->payload ? event->payload->size : 0) || !is_right((uint64_t)s->data, event->payload))
    s->wrong++;
  if (s->data++ == 0)
    s->peer_at_first = stream->peer;
  s->bytes += event->payload ? event->payload->size : 0;
  if (s->hold && event->payload && s->n_held < HELD_MAX)
    s->held[s->n_held++] = hv_payload_keep(event->payload);
  if (s->echo)
    send_one(s, event->msg->u.parcel.offset, event->msg->u.parcel.size, event->payload != NULL);
  if (s->end_at && s->data == s->end_at)
    end_side(s->rec, s);
}

static void got_ready(hv_stream *stream, const hv_event *event) {
  a_stream *s = stream->owner;
  (void)event;
  if (s->rec->in_env || s->closed)
    violated(s->rec, "STREAM_READY came from inside, or after the end");
  if (!s->busy)
    violated(s->rec, "STREAM_READY came though nobody was told to wait");
  s->busy = 0;
  s->ready++;
  pour(s);
}

static void got_closed(hv_stream *stream, const hv_event *event) {
  a_stream *s = stream->owner;
  if (s->rec->in_env || s->closed)
    violated(s->rec, "STREAM_CLOSED came from inside, or twice");
  if (event->status != HV_OK && !event->text[0])
    violated(s->rec, "a broken stream does not say why");
  s->closed++;
  s->status = event->status;
  strncpy(s->text, event->text, sizeof s->text - 1);
  s->stream = NULL;
}

static const hv_stream_events stream_on = {got_data, got_ready, got_closed};

typedef struct opening {
  a_stream *s;
  hv_target to;
  hv_status status;
} opening;

static void open_now(recorder *rec, void *arg) {
  opening *o = arg;
  hv_msg first = {.kind = HV_MSG_PARCEL};
  o->s->rec = rec;
  IN_ENV(rec, o->status = rec->env->stream_open(rec->env, &o->to, &first, &stream_on, o->s, &o->s->stream));
  if (o->status == HV_OK)
    pour(o->s);
}

static void open_to(bench *b, size_t from, hv_target to, a_stream *s) {
  opening o = {s, to, HV_OK};
  assert_true(within(b, from, open_now, &o));
  assert_int_equal(o.status, HV_OK);
}

typedef struct counted {
  bench *b;
  recorder *rec;
  size_t least;
} counted;
static int has_streams(void *arg) {
  counted *c = arg;
  pthread_mutex_lock(&c->b->lock);
  int has = c->rec->n_in >= c->least;
  pthread_mutex_unlock(&c->b->lock);
  return has;
}
/* The k-th stream that was opened to a node. */
static a_stream *taken(bench *b, size_t node, size_t k) {
  assert_true(b->f->drive(b->world, has_streams, &(counted){b, &b->nodes[node], k + 1}, SOON_MS));
  return b->nodes[node].in[k];
}

static int is_released(void *arg) {
  a_stream *s = arg;
  return atomic_load(&s->released) == atomic_load(&s->made);
}
/* The world has let go of every payload it was given, once. */
static void all_released(bench *b, a_stream *s) {
  assert_true(b->f->drive(b->world, is_released, s, SOON_MS));
}

static a_stream *new_stream(void) {
  return calloc(1, sizeof(a_stream));
}

static void a_stream_carries_all_in_order_both_ways(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, echo_streams, 1);
  SET(b, 1, end_at, 50);
  a_stream *s = new_stream();
  s->piece = 1000;
  s->to_send = 50;
  s->end_at = 50;
  open_to(b, 0, target(b, 1), s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &t->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  assert_int_equal(t->status, HV_OK);
  assert_int_equal(s->data, 50);
  assert_int_equal(t->data, 50);
  assert_int_equal(s->wrong + t->wrong, 0);
  all_released(b, s);
  all_released(b, t);
  free(s);
  close_bench(b);
}

static void send_edge_cases(recorder *rec, void *arg) {
  a_stream *s = arg;
  (void)rec;
  if (send_one(s, 0, 0, 0) != HV_OK || send_one(s, 1, 0, 1) != HV_OK || send_one(s, 2, 1, 1) != HV_OK)
    violated(s->rec, "a small message was not taken");
}

static void no_bytes_and_zero_bytes_are_messages_too(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, end_at, 3);
  a_stream *s = new_stream();
  open_to(b, 0, target(b, 1), s);
  within(b, 0, send_edge_cases, s);
  within(b, 0, end_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  a_stream *t = taken(b, 1, 0);
  assert_int_equal(s->status, HV_OK);
  assert_int_equal(t->data, 3);
  assert_int_equal(t->wrong, 0);
  assert_int_equal(t->bytes, 1);
  free(s);
  close_bench(b);
}

typedef struct sending {
  a_stream *s;
  size_t size;
  hv_status status;
} sending;
static void send_sized(recorder *rec, void *arg) {
  sending *x = arg;
  (void)rec;
  x->status = x->s->stream ? send_one(x->s, x->s->sent, x->size, 1) : HV_CLOSED;
}

static void the_largest_payload_passes_and_a_larger_one_is_refused_at_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, end_at, 1);
  a_stream *s = new_stream();
  open_to(b, 0, target(b, 1), s);
  sending larger = {s, HV_BULK_PAYLOAD_MAX + 1, HV_OK}, largest = {s, HV_BULK_PAYLOAD_MAX, HV_OK};
  within(b, 0, send_sized, &larger);
  assert_int_equal(larger.status, HV_TOO_LARGE);
  within(b, 0, send_sized, &largest);
  assert_int_equal(largest.status, HV_OK);
  within(b, 0, end_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  a_stream *t = taken(b, 1, 0);
  assert_int_equal(t->wrong, 0);
  assert_int_equal(t->bytes, HV_BULK_PAYLOAD_MAX);
  all_released(b, s);
  free(s);
  close_bench(b);
}

static void let_go_of_all(recorder *rec, void *arg) {
  a_stream *s = arg;
  (void)rec;
  s->hold = 0;
  while (s->n_held)
    hv_payload_release(s->held[--s->n_held]);
}

static void a_slow_reader_holds_the_sender_back(void **state) {
  bench *b = open_bench(state, 2, 0);
  size_t n = b->f->window_max / PIECE + 64;
  assert_true(n < HELD_MAX);
  SET(b, 1, hold_streams, 1);
  SET(b, 1, end_at, (int)n);
  a_stream *s = new_stream();
  s->piece = PIECE;
  s->to_send = n;
  open_to(b, 0, target(b, 1), s);
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &t->data, 1, SOON_MS));
  assert_true(reaches(b, &s->busy, 1, SOON_MS));
  let_pass(b, 500);
  pthread_mutex_lock(&b->lock);
  assert_true(s->busy); /* no room while nothing is let go */
  assert_true(s->sent < n);
  assert_true(s->sent * PIECE <= b->f->window_max);
  assert_int_equal(t->wrong, 0);
  pthread_mutex_unlock(&b->lock);
  within(b, 1, let_go_of_all, t);
  assert_true(reaches(b, &t->data, (int)n, SOON_MS));
  pthread_mutex_lock(&b->lock);
  assert_true(s->ready >= 1);
  assert_int_equal(t->wrong, 0);
  pthread_mutex_unlock(&b->lock);
  within(b, 0, end_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  all_released(b, s);
  free(s);
  close_bench(b);
}

static void held_payloads_outlive_their_stream(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, hold_streams, 1);
  SET(b, 1, end_at, 10);
  a_stream *s = new_stream();
  s->piece = 5000;
  s->to_send = 10;
  open_to(b, 0, target(b, 1), s);
  within(b, 0, end_side, s);
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_true(reaches(b, &t->closed, 1, SOON_MS));
  all_released(b, s); /* the sender's bytes have left, whatever the receiver holds */
  let_pass(b, 50);
  pthread_mutex_lock(&b->lock);
  assert_int_equal(t->n_held, 10);
  for (uint64_t i = 0; i < t->n_held; i++)
    assert_true(is_right(i, t->held[i]));
  pthread_mutex_unlock(&b->lock);
  within(b, 1, let_go_of_all, t);
  free(s);
  close_bench(b);
}

static void send_after_end(recorder *rec, void *arg) {
  sending *x = arg;
  end_side(rec, x->s);
  x->status = send_one(x->s, x->s->sent, 10, 1);
  end_side(rec, x->s); /* once more changes nothing */
}

static void after_its_end_a_side_only_listens(void **state) {
  bench *b = open_bench(state, 2, 0);
  a_stream *s = new_stream();
  open_to(b, 0, target(b, 1), s);
  sending x = {s, 10, HV_OK};
  within(b, 0, send_after_end, &x);
  assert_int_equal(x.status, HV_CLOSED);
  a_stream *t = taken(b, 1, 0);
  let_pass(b, 100);
  assert_int_equal(look(b, &s->closed), 0); /* one side alone does not end it */
  sending back = {t, 10, HV_OK};
  within(b, 1, send_sized, &back);
  assert_int_equal(back.status, HV_OK);
  assert_true(reaches(b, &s->data, 1, SOON_MS));
  within(b, 1, end_side, t);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_true(reaches(b, &t->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  assert_int_equal(t->status, HV_OK);
  assert_int_equal(s->wrong, 0);
  free(s);
  close_bench(b);
}

static void open_and_end(recorder *rec, void *arg) {
  opening *o = arg;
  open_now(rec, o);
  end_side(rec, o->s);
}

static void what_was_taken_leaves_before_the_end(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, end_at, 20);
  a_stream *s = new_stream();
  s->piece = 1000;
  s->to_send = 20;
  opening o = {s, target(b, 1), HV_OK};
  within(b, 0, open_and_end, &o);
  assert_int_equal(s->sent, 20);
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_true(reaches(b, &t->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  assert_int_equal(t->data, 20);
  assert_int_equal(t->wrong, 0);
  free(s);
  close_bench(b);
}

static void cancelling(void **state, size_t who) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, hold_streams, 1);
  a_stream *s = new_stream();
  s->piece = PIECE;
  s->to_send = 10;
  open_to(b, 0, target(b, 1), s);
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &t->data, 1, SOON_MS));
  within(b, who, cancel_side, who ? t : s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_true(reaches(b, &t->closed, 1, SOON_MS));
  a_stream *here = who ? t : s, *there = who ? s : t;
  assert_int_equal(here->status, HV_CANCELLED);
  assert_true(there->status == HV_CANCELLED || there->status == HV_CLOSED);
  assert_int_equal(t->wrong, 0);
  let_pass(b, 50);
  within(b, 1, let_go_of_all, t);
  all_released(b, s);
  free(s);
  close_bench(b);
}

static void the_opener_may_cancel(void **state) {
  cancelling(state, 0);
}

static void the_other_side_may_cancel(void **state) {
  cancelling(state, 1);
}

static void open_and_cancel(recorder *rec, void *arg) {
  open_now(rec, arg);
  cancel_side(rec, ((opening *)arg)->s);
}

static void a_stream_cancelled_in_the_step_that_opened_it_closes_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  a_stream *s = new_stream();
  opening o = {s, target(b, 1), HV_OK};
  within(b, 0, open_and_cancel, &o);
  assert_int_equal(o.status, HV_OK);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_CANCELLED);
  let_pass(b, 100);
  assert_int_equal(look(b, &s->closed), 1);
  free(s);
  close_bench(b);
}

static void a_stream_nobody_takes_is_refused(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, refuse_streams, 1);
  a_stream *s = new_stream();
  s->piece = 1000;
  s->to_send = 5;
  open_to(b, 0, target(b, 1), s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_true(s->status != HV_OK);
  all_released(b, s);
  a_call c = a_call_to(target(b, 1), 5000); /* calls go on */
  ask(b, 0, &c);
  assert_int_equal(c.status, HV_OK);
  free(s);
  close_bench(b);
}

static void a_stream_to_nobody_closes(void **state) {
  bench *b = open_bench(state, 1, 0);
  a_stream *s = new_stream();
  s->piece = 1000;
  s->to_send = 5;
  open_to(b, 0, b->f->nobody(b->world), s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_REFUSED);
  all_released(b, s);
  free(s);
  close_bench(b);
}

static void a_stream_to_another_identity_is_denied(void **state) {
  bench *b = open_bench(state, 3, 0);
  hv_target to = target(b, 1);
  to.id = target(b, 2).id;
  a_stream *s = new_stream();
  open_to(b, 0, to, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_DENIED);
  assert_int_equal(b->nodes[1].n_in, 0);
  free(s);
  close_bench(b);
}

static void each_side_of_a_stream_knows_the_other(void **state) {
  bench *b = open_bench(state, 2, 1);
  SET(b, 1, echo_streams, 1);
  hv_target to = target(b, 1);
  memset(&to.id, 0, sizeof to.id);
  a_stream *s = new_stream();
  s->to_send = 1;
  open_to(b, 0, to, s);
  assert_true(reaches(b, &s->data, 1, SOON_MS));
  a_stream *t = taken(b, 1, 0);
  hv_peer_id here = target(b, 0).id, there = target(b, 1).id;
  pthread_mutex_lock(&b->lock);
  assert_true(hv_peer_equal(&s->peer_at_first, &there));
  assert_true(hv_peer_equal(&t->peer_at_first, &here));
  pthread_mutex_unlock(&b->lock);
  within(b, 0, cancel_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  free(s);
  close_bench(b);
}

static void several_streams_do_not_mix(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, end_at, 30);
  a_stream *s[6];
  for (int i = 0; i < 6; i++) {
    s[i] = new_stream();
    s[i]->piece = 3000 + 1000 * (size_t)i;
    s[i]->to_send = 30;
    open_to(b, 0, target(b, 1), s[i]);
  }
  for (int i = 0; i < 6; i++)
    within(b, 0, end_side, s[i]);
  size_t bytes = 0, expected = 0;
  for (int i = 0; i < 6; i++) {
    assert_true(reaches(b, &s[i]->closed, 1, SOON_MS));
    assert_int_equal(s[i]->status, HV_OK);
    a_stream *t = taken(b, 1, (size_t)i);
    assert_true(reaches(b, &t->closed, 1, SOON_MS));
    assert_int_equal(t->data, 30);
    assert_int_equal(t->wrong, 0);
    bytes += t->bytes;
    expected += 30 * s[i]->piece;
    free(s[i]);
  }
  assert_int_equal(bytes, expected);
  close_bench(b);
}

/* ---- jobs, commands, the end ---- */

typedef struct a_job {
  hv_job job;
  recorder *rec;
  atomic_int ran;
  int done;
  hv_status status;
  struct a_job *then; /* started when this one is done */
} a_job;

static void run_job(hv_job *job) {
  atomic_fetch_add(&((a_job *)job->owner)->ran, 1);
}

static void start_job(recorder *rec, void *arg);

static void job_done(hv_job *job, const hv_event *event) {
  a_job *j = job->owner;
  if (j->rec->in_env)
    violated(j->rec, "WORK_DONE came from inside");
  if (atomic_load(&j->ran) != (event->status == HV_OK))
    violated(j->rec, "a job that ran was cancelled, or the other way round");
  j->done++;
  j->status = event->status;
  if (j->then)
    start_job(j->rec, j->then);
}

static void start_job(recorder *rec, void *arg) {
  a_job *j = arg;
  j->rec = rec;
  j->job = (hv_job){.run = run_job, .done = job_done, .owner = j};
  IN_ENV(rec, rec->env->work(rec->env, &j->job));
}

static void jobs_run_and_are_done_once(void **state) {
  enum { N = 60 };
  bench *b = open_bench(state, 1, 0);
  a_job *j = calloc(N, sizeof *j);
  for (int i = 0; i < N - 1; i += 2)
    j[i].then = &j[i + 1];
  for (int i = 0; i < N; i += 2)
    within(b, 0, start_job, &j[i]);
  for (int i = 0; i < N; i++) {
    assert_true(reaches(b, &j[i].done, 1, SOON_MS));
    assert_int_equal(j[i].status, HV_OK);
  }
  let_pass(b, 50);
  for (int i = 0; i < N; i++)
    assert_int_equal(look(b, &j[i].done), 1);
  free(j);
  close_bench(b);
}

typedef struct order_of {
  int next, seen[20], in_order;
} order_of;
typedef struct numbered {
  op o;
  order_of *order;
  int number;
} numbered;
static void note_number(recorder *rec, void *arg) {
  numbered *n = arg;
  (void)rec;
  n->order->in_order += n->order->next++ == n->number;
}

static void commands_run_in_the_order_they_came(void **state) {
  bench *b = open_bench(state, 1, 0);
  order_of order = {0};
  numbered n[20];
  for (int i = 0; i < 20; i++) {
    n[i] = (numbered){.o = {.command = {.run = run_op}, .b = b, .fn = note_number, .arg = &n[i]}, .order = &order, .number = i};
    b->f->command(b->world, 0, &n[i].o.command);
  }
  for (int i = 0; i < 20; i++)
    assert_true(b->f->drive(b->world, op_over, &n[i].o, SOON_MS));
  assert_int_equal(order.in_order, 20);
  close_bench(b);
}

static void stopping(void **state, int quietly) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 0, stop_quietly, quietly);
  SET(b, 1, answer, ANSWER_NEVER);
  SET(b, 1, hold_streams, 1);
  a_call c = a_call_to(target(b, 1), 60000), to_it = a_call_to(target(b, 0), 60000);
  SET(b, 0, answer, ANSWER_NEVER);
  a_stream *s = new_stream();
  s->piece = PIECE;
  s->to_send = 10;
  a_timer t = {.delay_us = 60000000}, soon = {.delay_us = 3000000};
  a_job j = {.done = 0};
  within(b, 0, start_call, &c);
  within(b, 1, start_call, &to_it);
  open_to(b, 0, target(b, 1), s);
  a_stream *other = taken(b, 1, 0);
  assert_true(reaches(b, &b->nodes[0].requests, 1, SOON_MS));
  assert_true(reaches(b, &b->nodes[1].requests, 1, SOON_MS));
  within(b, 0, set_timer, &t);
  within(b, 0, set_timer, &soon);
  within(b, 0, start_job, &j);
  b->f->stop(b->world, 0);
  pthread_mutex_lock(&b->lock);
  assert_int_equal(b->nodes[0].stops, 1);
  assert_int_equal(b->nodes[0].freed, 1);
  assert_int_equal(c.done, 1);
  assert_int_equal(c.status, HV_CANCELLED);
  assert_int_equal(s->closed, 1);
  assert_int_equal(s->status, HV_CANCELLED);
  assert_int_equal(j.done, 1);
  pthread_mutex_unlock(&b->lock);
  assert_true(reaches(b, &to_it.done, 1, SOON_MS)); /* whoever asked it knows */
  assert_true(to_it.status != HV_OK && to_it.status != HV_TIMEOUT);
  assert_true(reaches(b, &other->closed, 1, SOON_MS));
  assert_true(other->status != HV_OK);
  assert_int_equal(within(b, 0, spend_time, NULL), 0); /* a command after the end gets no core */
  let_pass(b, 3500);
  assert_int_equal(look(b, &soon.fired), 0);
  all_released(b, s);
  free(s);
  close_bench(b);
}

static void a_stop_ends_all_that_is_under_way(void **state) {
  stopping(state, 0);
}

static void without_a_last_word_the_grace_ends_it(void **state) {
  stopping(state, 1);
}

typedef struct too_late {
  a_call call;
  opening opening;
  hv_status call_status;
  int done;
} too_late;

/* Ends with HV_CANCELLED as the world ends; what is begun then is refused. */
static void begin_anew(hv_call *call, const hv_event *event) {
  too_late *x = call->owner;
  recorder *rec = x->call.rec;
  hv_msg msg = {.kind = HV_MSG_ECHO};
  hv_msg first = {.kind = HV_MSG_PARCEL};
  x->done++;
  x->call.status = event->status;
  IN_ENV(rec, x->call_status = rec->env->call(rec->env, call, &msg));
  IN_ENV(rec, x->opening.status =
                  rec->env->stream_open(rec->env, &x->opening.to, &first, &stream_on, x->opening.s, &x->opening.s->stream));
}

static void start_late(recorder *rec, void *arg) {
  too_late *x = arg;
  start_call(rec, &x->call);
  x->call.call.done = begin_anew;
  x->call.call.owner = x;
}

static void nothing_begins_as_the_world_ends(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_NEVER);
  too_late x = {.call = a_call_to(target(b, 1), 60000), .opening = {new_stream(), target(b, 1), HV_OK}};
  within(b, 0, start_late, &x);
  b->f->stop(b->world, 0);
  assert_int_equal(x.done, 1);
  assert_int_equal(x.call.status, HV_CANCELLED);
  assert_int_equal(x.call_status, HV_CLOSED);
  assert_int_equal(x.opening.status, HV_CLOSED);
  free(x.opening.s);
  close_bench(b);
}

static void forget_target(recorder *rec, void *arg) {
  IN_ENV(rec, rec->env->forget(rec->env, arg));
}

static void forgetting_ends_calls_and_a_new_one_connects_again(void **state) {
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, answer, ANSWER_NEVER);
  hv_target to = target(b, 1), nobody = b->f->nobody(b->world);
  a_call c = a_call_to(to, 60000);
  within(b, 0, start_call, &c);
  assert_true(reaches(b, &b->nodes[1].requests, 1, SOON_MS));
  within(b, 0, forget_target, &to);
  within(b, 0, forget_target, &nobody); /* fine when there is nothing */
  assert_true(reaches(b, &c.done, 1, SOON_MS));
  assert_true(c.status != HV_OK && c.status != HV_TIMEOUT);
  SET(b, 1, answer, ANSWER_ECHO);
  a_call again = a_call_to(to, 8000);
  ask(b, 0, &again);
  assert_int_equal(again.status, HV_OK);
  close_bench(b);
}

/* ---- faults ---- */

static void a_killed_peer_is_missed_at_once(void **state) {
  bench *b = open_bench(state, 2, 0);
  hv_target to = target(b, 1);
  a_call first = a_call_to(to, 5000), c = a_call_to(to, 60000);
  ask(b, 0, &first);
  SET(b, 1, answer, ANSWER_NEVER);
  SET(b, 1, hold_streams, 1);
  a_stream *s = new_stream();
  s->piece = PIECE;
  s->to_send = 200;
  within(b, 0, start_call, &c);
  open_to(b, 0, to, s);
  assert_true(reaches(b, &taken(b, 1, 0)->data, 1, SOON_MS));
  assert_true(reaches(b, &b->nodes[1].requests, 2, SOON_MS));
  b->f->kill(b->world, 1);
  assert_true(reaches(b, &c.done, 1, 5000));
  assert_true(c.status == HV_CLOSED || c.status == HV_UNREACHABLE || c.status == HV_REFUSED);
  assert_true(reaches(b, &s->closed, 1, 5000));
  assert_true(s->status != HV_OK);
  assert_true(reaches(b, &b->nodes[0].downs, 1, 5000));
  pthread_mutex_lock(&b->lock);
  assert_true(hv_peer_equal(&b->nodes[0].down, &to.id));
  pthread_mutex_unlock(&b->lock);
  a_call after = a_call_to(to, 3000);
  ask(b, 0, &after);
  assert_true(after.status == HV_REFUSED || after.status == HV_UNREACHABLE);
  all_released(b, s);
  free(s);
  close_bench(b);
}

static void a_cut_is_only_felt_by_waiting_and_mends(void **state) {
  bench *b = open_bench(state, 2, 0);
  hv_target to = target(b, 1);
  a_call c = a_call_to(to, 1000), after = a_call_to(to, 5000);
  ask(b, 0, &c);
  a_stream *s = new_stream();
  s->piece = 1000;
  s->to_send = 5;
  open_to(b, 0, to, s);
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &t->data, 5, SOON_MS));
  b->f->cut(b->world, 0, 1, 1);
  within(b, 0, start_call, &c);
  sending x = {s, 1000, HV_OK};
  within(b, 0, send_sized, &x);
  assert_true(reaches(b, &c.done, 2, SOON_MS));
  assert_int_equal(c.status, HV_TIMEOUT);
  pthread_mutex_lock(&b->lock);
  assert_int_equal(b->nodes[0].downs, 0);
  assert_int_equal(t->data, 5);
  assert_int_equal(s->closed, 0);
  pthread_mutex_unlock(&b->lock);
  b->f->cut(b->world, 0, 1, 0);
  assert_true(reaches(b, &t->data, 6, SOON_MS)); /* it was on its way all the time */
  assert_int_equal(t->wrong, 0);
  ask(b, 0, &after);
  assert_int_equal(after.status, HV_OK);
  within(b, 0, cancel_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  free(s);
  close_bench(b);
}

/* ---- randomness and cryptography ---- */

typedef struct crypto {
  uint8_t a[32], b[32];
  hv_hash hash;
  uint8_t signature[64];
  hv_peer_id me, other;
  int right, other_domain, other_bytes, other_peer, other_signature;
  hv_status status;
} crypto;

static void try_crypto(recorder *rec, void *arg) {
  crypto *c = arg;
  hv_env *env = rec->env;
  hv_span bytes = hv_span_of("abc", 3);
  env->random(env, c->a, sizeof c->a);
  env->random(env, c->b, sizeof c->b);
  env->sha256(env, bytes, &c->hash);
  c->status = env->sign(env, "hv:test", bytes, c->signature);
  c->right = env->verify(env, &c->me, "hv:test", bytes, c->signature);
  c->other_domain = env->verify(env, &c->me, "hv:other", bytes, c->signature);
  c->other_bytes = env->verify(env, &c->me, "hv:test", hv_span_of("abd", 3), c->signature);
  c->other_peer = env->verify(env, &c->other, "hv:test", bytes, c->signature);
  c->signature[10] ^= 1;
  c->other_signature = env->verify(env, &c->me, "hv:test", bytes, c->signature);
}

static void signatures_hold_for_what_they_were_made_for(void **state) {
  static const uint8_t abc[4] = {0xba, 0x78, 0x16, 0xbf};
  bench *b = open_bench(state, 2, 0);
  crypto c = {.me = target(b, 0).id, .other = target(b, 1).id};
  within(b, 0, try_crypto, &c);
  assert_memory_not_equal(c.a, c.b, sizeof c.a);
  assert_memory_equal(c.hash.bytes, abc, sizeof abc);
  assert_int_equal(c.status, HV_OK);
  assert_int_equal(c.right, 1);
  assert_int_equal(c.other_domain + c.other_bytes + c.other_peer + c.other_signature, 0);
  close_bench(b);
}

/* ---- the suite ---- */

typedef struct entry {
  const char *name;
  void (*run)(void **state);
  enum { ALWAYS, WITH_IDENTITY, WITH_KILL, WITH_CUT } when;
} entry;
#define TEST(name)                                                                                                                 \
  { #name, name, ALWAYS }

static const entry entries[] = {
    TEST(starts_once_and_knows_where_it_listens),
    TEST(the_clock_stands_within_a_step),
    TEST(a_timer_fires_once_at_its_time),
    TEST(a_timer_set_again_fires_at_the_new_time_only),
    TEST(a_cleared_timer_does_not_fire),
    TEST(many_timers_fire_in_the_order_of_their_times),
    TEST(a_timer_may_arm_itself_as_it_fires),
    TEST(an_echo_comes_back_once),
    TEST(an_unknown_id_is_learned),
    {"another_identity_is_denied", another_identity_is_denied, WITH_IDENTITY},
    TEST(a_refusal_brings_its_status_and_sentence),
    TEST(where_nobody_listens_the_call_is_refused),
    TEST(a_call_without_an_address_ends),
    TEST(no_answer_in_time_is_a_timeout),
    TEST(an_answer_after_the_time_goes_nowhere),
    TEST(late_answers_in_any_order_find_their_calls),
    TEST(a_cancelled_call_ends_once),
    TEST(a_call_cancelled_in_the_step_that_started_it_ends_once),
    TEST(many_calls_both_ways_each_end_once_with_their_own),
    TEST(one_that_only_dials_out_cannot_be_reached),
    TEST(the_largest_message_passes_and_a_larger_one_is_refused_at_once),
    TEST(an_answer_that_cannot_be_said_still_ends_the_call),
    TEST(a_stream_carries_all_in_order_both_ways),
    TEST(no_bytes_and_zero_bytes_are_messages_too),
    TEST(the_largest_payload_passes_and_a_larger_one_is_refused_at_once),
    TEST(a_slow_reader_holds_the_sender_back),
    TEST(held_payloads_outlive_their_stream),
    TEST(after_its_end_a_side_only_listens),
    TEST(what_was_taken_leaves_before_the_end),
    TEST(the_opener_may_cancel),
    TEST(the_other_side_may_cancel),
    TEST(a_stream_cancelled_in_the_step_that_opened_it_closes_once),
    TEST(a_stream_nobody_takes_is_refused),
    TEST(a_stream_to_nobody_closes),
    {"a_stream_to_another_identity_is_denied", a_stream_to_another_identity_is_denied, WITH_IDENTITY},
    TEST(each_side_of_a_stream_knows_the_other),
    TEST(several_streams_do_not_mix),
    TEST(jobs_run_and_are_done_once),
    TEST(commands_run_in_the_order_they_came),
    TEST(a_stop_ends_all_that_is_under_way),
    TEST(without_a_last_word_the_grace_ends_it),
    TEST(nothing_begins_as_the_world_ends),
    TEST(forgetting_ends_calls_and_a_new_one_connects_again),
    {"a_killed_peer_is_missed_at_once", a_killed_peer_is_missed_at_once, WITH_KILL},
    {"a_cut_is_only_felt_by_waiting_and_mends", a_cut_is_only_felt_by_waiting_and_mends, WITH_CUT},
    TEST(signatures_hold_for_what_they_were_made_for),
};

int contract_run(const contract_fixture *fixture) {
  enum { N = sizeof entries / sizeof *entries };
  struct CMUnitTest tests[N];
  size_t n = 0;
  for (size_t i = 0; i < N; i++) {
    int left_out = (entries[i].when == WITH_IDENTITY && fixture->claims_only) || (entries[i].when == WITH_KILL && !fixture->kill) ||
                   (entries[i].when == WITH_CUT && !fixture->cut);
    if (!left_out)
      tests[n++] = (struct CMUnitTest){.name = entries[i].name, .test_func = entries[i].run, .initial_state = (void *)fixture};
  }
  return _cmocka_run_group_tests(fixture->name, tests, n, NULL, NULL);
}
