#include "contract/contract_bench.h"

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
  a_call met = a_call_to(target(b, 1), 5000); /* a node that speaks several versions has asked before it opens a stream */
  ask(b, 0, &met);
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
  assert_true(reaches(b, &b->nodes[1].requests, 2, SOON_MS));
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

static void grace_time_ends_a_node_without_a_farewell(void **state) {
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

static void partition_is_seen_by_timeouts_only_and_heals(void **state) {
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

static void signature_is_valid_for_its_bytes_domain_and_signer_only(void **state) {
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

/* ---- the table ---- */

const contract_test contract_ends[] = {
    TEST(jobs_run_and_are_done_once),
    TEST(commands_run_in_the_order_they_came),
    TEST(a_stop_ends_all_that_is_under_way),
    TEST(grace_time_ends_a_node_without_a_farewell),
    TEST(nothing_begins_as_the_world_ends),
    TEST(forgetting_ends_calls_and_a_new_one_connects_again),
    {"a_killed_peer_is_missed_at_once", a_killed_peer_is_missed_at_once, WITH_KILL},
    {"partition_is_seen_by_timeouts_only_and_heals", partition_is_seen_by_timeouts_only_and_heals, WITH_CUT},
    TEST(signature_is_valid_for_its_bytes_domain_and_signer_only),
    {NULL, NULL, ALWAYS},
};
