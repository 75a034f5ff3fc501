#include "contract/contract_bench.h"

#include <time.h>

/* ---- recorders ---- */

void violated(recorder *rec, const char *what) {
  rec->violations++;
  rec->violation = what;
}

static void reply_echo(recorder *rec, hv_request *request, hv_span bytes) {
  hv_msg answer = {.kind = HV_MSG_ECHO, .u.echo = {bytes}};
  IN_ENV(rec, rec->env->reply(rec->env, request, &answer));
}

const uint8_t too_much[HV_MSG_BLOB_MAX + 1];

static void asked(recorder *rec, const hv_event *event) {
  hv_msg answer = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_BUSY, hv_span_of("come back later", 15)}};
  rec->requests++;
  rec->asker = event->request->peer;
  rec->version = event->request->version;
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
void answer_kept(hv_timer *timer, const hv_event *event) {
  recorder *rec = timer->owner;
  (void)event;
  while (rec->n_kept)
    reply_echo(rec, rec->kept[--rec->n_kept], hv_span_of("late", 4));
}

static void took_stream(recorder *rec, const hv_event *event) {
  if (rec->refuse_streams || rec->n_in == STREAMS_MAX)
    return;
  a_stream *s = calloc(1, sizeof *s);
  *s = (a_stream){.rec = rec,
                  .stream = event->stream,
                  .version = event->stream->version,
                  .hold = rec->hold_streams,
                  .echo = rec->echo_streams,
                  .end_at = rec->end_at};
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

bench *open_bench(void **state, size_t n, unsigned clients) {
  return open_bench_of(state, n, clients, NULL);
}

bench *open_bench_of(void **state, size_t n, unsigned clients, const hv_versions *versions) {
  bench *b = calloc(1, sizeof *b);
  contract_seat seats[NODES_MAX];
  b->f = *state;
  b->n = n;
  pthread_mutex_init(&b->lock, NULL);
  for (size_t i = 0; i < n; i++) {
    b->nodes[i].b = b;
    b->nodes[i].index = i;
    b->nodes[i].later = (hv_timer){.fire = answer_kept, .owner = &b->nodes[i]};
    seats[i] = (contract_seat){make, seat_freed, &b->nodes[i], (int)(clients >> i & 1), versions ? versions[i] : b->f->versions};
  }
  b->world = b->f->open(b->f, n, seats);
  assert_non_null(b->world);
  return b;
}

void close_bench(bench *b) {
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

void run_op(hv_command *command, void *core) {
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

int op_over(void *arg) {
  op *o = arg;
  pthread_mutex_lock(&o->b->lock);
  int over = o->ran + o->without;
  pthread_mutex_unlock(&o->b->lock);
  return over;
}

int within(bench *b, size_t node, void (*fn)(recorder *rec, void *arg), void *arg) {
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
int reaches(bench *b, const int *value, int least, uint32_t timeout_ms) {
  return b->f->drive(b->world, is_at, &(level){b, value, least}, timeout_ms);
}
static int never(void *arg) {
  (void)arg;
  return 0;
}
void let_pass(bench *b, uint32_t ms) {
  b->f->drive(b->world, never, NULL, ms);
}
int look(bench *b, const int *value) {
  pthread_mutex_lock(&b->lock);
  int now = *value;
  pthread_mutex_unlock(&b->lock);
  return now;
}

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

void start_call(recorder *rec, void *arg) {
  a_call *c = arg;
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {c->bytes}};
  c->rec = rec;
  c->call.done = call_done;
  c->call.owner = c;
  c->started_us = rec->env->now_us(rec->env);
  IN_ENV(rec, c->started = rec->env->call(rec->env, &c->call, &msg));
}

void cancel_call(recorder *rec, void *arg) {
  IN_ENV(rec, rec->env->call_cancel(rec->env, &((a_call *)arg)->call));
}

a_call a_call_to(hv_target to, uint32_t timeout_ms) {
  return (a_call){.call = {.to = to, .timeout_ms = timeout_ms}, .bytes = hv_span_of("hello", 5)};
}

void ask(bench *b, size_t from, a_call *c) {
  int before = c->done;
  within(b, from, start_call, c);
  assert_int_equal(c->started, HV_OK);
  assert_true(reaches(b, &c->done, before + 1, c->call.timeout_ms + SOON_MS));
}

hv_target target(bench *b, size_t node) {
  return b->f->target(b->world, node);
}

void spend_time(recorder *rec, void *arg) {
  (void)rec, (void)arg;
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); /* step itself checks that the clock stood */
}

/* ---- timers ---- */

void fired(hv_timer *timer, const hv_event *event) {
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

void set_timer(recorder *rec, void *arg) {
  a_timer *t = arg;
  t->rec = rec;
  t->timer.fire = fired;
  t->timer.owner = t;
  t->set_us = rec->env->now_us(rec->env);
  IN_ENV(rec, rec->env->timer_set(rec->env, &t->timer, t->delay_us));
}

void clear_timer(recorder *rec, void *arg) {
  IN_ENV(rec, rec->env->timer_clear(rec->env, &((a_timer *)arg)->timer));
}

/* ---- streams ---- */

static uint8_t byte_of(uint64_t number, size_t i) {
  return (uint8_t)(number * 31 + i + (i >> 8));
}

int is_right(uint64_t number, const hv_payload *payload) {
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

hv_status send_one(a_stream *s, uint64_t number, size_t size, int with_payload) {
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

void end_side(recorder *rec, void *arg) {
  a_stream *s = arg;
  if (s->stream)
    IN_ENV(rec, rec->env->stream_end(rec->env, s->stream));
}

void cancel_side(recorder *rec, void *arg) {
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

const hv_stream_events stream_on = {got_data, got_ready, got_closed, .heavy = 1};
const hv_stream_events round_on = {got_data, got_ready, got_closed, .heavy = 1, .turn = HV_TURN_ROUND};
const hv_stream_events load_on = {got_data, got_ready, got_closed, .heavy = 1, .turn = HV_TURN_LOAD};

void open_now(recorder *rec, void *arg) {
  opening *o = arg;
  hv_msg first = {.kind = HV_MSG_PARCEL};
  o->s->rec = rec;
  IN_ENV(rec, o->status = rec->env->stream_open(rec->env, &o->to, &first, o->s->on ? o->s->on : &stream_on, o->s, &o->s->stream));
  if (o->status == HV_OK)
    pour(o->s);
}

void open_to(bench *b, size_t from, hv_target to, a_stream *s) {
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
a_stream *taken(bench *b, size_t node, size_t k) {
  assert_true(b->f->drive(b->world, has_streams, &(counted){b, &b->nodes[node], k + 1}, SOON_MS));
  return b->nodes[node].in[k];
}

static int is_released(void *arg) {
  a_stream *s = arg;
  return atomic_load(&s->released) == atomic_load(&s->made);
}
void all_released(bench *b, a_stream *s) {
  assert_true(b->f->drive(b->world, is_released, s, SOON_MS));
}

a_stream *new_stream(void) {
  return calloc(1, sizeof(a_stream));
}

void send_sized(recorder *rec, void *arg) {
  sending *x = arg;
  (void)rec;
  x->status = x->s->stream ? send_one(x->s, x->s->sent, x->size, 1) : HV_CLOSED;
}
