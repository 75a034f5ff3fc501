#include "contract/contract_bench.h"

#include "core/util/turns.h"

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

static void largest_payload_passes_and_a_larger_one_is_refused_at_once(void **state) {
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

/* The first node ends its stream, and the bench is cleared. */
static void ends_well(bench *b, a_stream *s) {
  within(b, 0, end_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  all_released(b, s);
  free(s);
  close_bench(b);
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
  ends_well(b, s);
}

typedef struct more {
  a_stream *s;
  uint64_t n, now_us;
} more;

static void send_more(recorder *rec, void *arg) {
  more *m = arg;
  m->now_us = rec->env->now_us(rec->env);
  for (uint64_t i = 0; i < m->n; i++)
    if (send_one(m->s, m->s->sent, m->s->piece, 1) != HV_OK)
      violated(rec, "a piece was not taken");
}

/* A round's messages wait for a member that takes nothing: then a load has a turn each HV_TURNS_STUCK_US. */
static void load_waits_for_its_turn_while_a_round_waits(void **state) {
  enum { N = 16, LEAST_MS = N / 2 * HV_TURNS_STUCK_US / 1000 };
  bench *b = open_bench(state, 2, 0);
  size_t n = b->f->window_max / PIECE + 64;
  SET(b, 1, hold_streams, 1);
  a_stream *round = new_stream(), *load = new_stream();
  round->piece = load->piece = PIECE;
  round->to_send = n;
  round->on = &round_on;
  load->on = &load_on;
  open_to(b, 0, target(b, 1), round);
  a_stream *taker = taken(b, 1, 0);
  assert_true(reaches(b, &round->busy, 1, SOON_MS));
  let_pass(b, 500); /* until nothing of it moves */
  SET(b, 1, hold_streams, 0);
  open_to(b, 0, target(b, 1), load);
  a_stream *loader = taken(b, 1, 1);
  more begins = {load, N, 0}, ends = {load, N, 0};
  within(b, 0, send_more, &begins);
  assert_true(reaches(b, &loader->data, N, SOON_MS));
  more after = {load, 0, 0};
  within(b, 0, send_more, &after);
  if (b->f->still)
    assert_true(after.now_us - begins.now_us >= LEAST_MS * UINT64_C(1000));
  within(b, 1, let_go_of_all, taker);
  assert_true(reaches(b, &taker->data, (int)n, SOON_MS));
  within(b, 0, send_more, &ends);
  assert_true(reaches(b, &loader->data, 2 * N, LEAST_MS)); /* no round waits any more */
  assert_int_equal(loader->wrong + taker->wrong, 0);
  within(b, 0, cancel_side, round);
  within(b, 0, cancel_side, load);
  assert_true(reaches(b, &round->closed, 1, SOON_MS) && reaches(b, &load->closed, 1, SOON_MS));
  all_released(b, round);
  all_released(b, load);
  free(round);
  free(load);
  close_bench(b);
}

typedef struct paced {
  a_stream *s;
  uint64_t rate, more; /* sends so many more */
  uint64_t now_us;
} paced;

static void send_paced(recorder *rec, void *arg) {
  paced *p = arg;
  IN_ENV(rec, rec->env->stream_pace(rec->env, p->s->stream, p->rate));
  p->now_us = rec->env->now_us(rec->env);
  for (uint64_t i = 0; i < p->more; i++)
    if (send_one(p->s, p->s->sent, p->s->piece, 1) != HV_OK)
      violated(rec, "a piece was not taken");
}

static void paced_stream_keeps_its_rate_and_is_free_afterwards(void **state) {
  enum { N = 30 }; /* two megabytes, all but a little; a connection's first two segments may leave at once */
  bench *b = open_bench(state, 2, 0);
  SET(b, 1, end_at, 1 + 2 * N);
  a_stream *s = new_stream();
  s->piece = PIECE;
  s->to_send = 1;
  open_to(b, 0, target(b, 1), s);
  a_stream *t = taken(b, 1, 0);
  assert_true(reaches(b, &t->data, 1, SOON_MS)); /* the connection stands */
  paced slow = {.s = s, .rate = 2 << 20, .more = N}, then = {.s = s, .rate = 2 << 20}, free_again = {.s = s, .more = N};
  within(b, 0, send_paced, &slow);
  assert_true(reaches(b, &t->data, 1 + N, SOON_MS));
  within(b, 0, send_paced, &then);
  if (b->f->paces)
    assert_true(then.now_us - slow.now_us >
                250000); /* 0.94 s; on a busy machine a kernel makes up for late timers, to half of that */
  within(b, 0, send_paced, &free_again);
  assert_true(reaches(b, &t->data, 1 + 2 * N, SOON_MS));
  assert_int_equal(t->wrong, 0);
  ends_well(b, s);
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

static void ended_side_of_a_stream_only_receives(void **state) {
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

static void accepted_messages_leave_before_the_end_of_their_stream(void **state) {
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
  assert_true(there->status == HV_CANCELLED || (there == t && there->status == HV_CLOSED)); /* who opened it knows who ended it */
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

/* Often: where there are several connections, some may come when it has ended. */
static void the_other_side_may_cancel(void **state) {
  for (int i = 0; i < 20; i++)
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

/* ---- the table ---- */

const contract_test contract_streams[] = {
    TEST(a_stream_carries_all_in_order_both_ways),
    TEST(no_bytes_and_zero_bytes_are_messages_too),
    TEST(largest_payload_passes_and_a_larger_one_is_refused_at_once),
    TEST(a_slow_reader_holds_the_sender_back),
    TEST(load_waits_for_its_turn_while_a_round_waits),
    TEST(paced_stream_keeps_its_rate_and_is_free_afterwards),
    TEST(held_payloads_outlive_their_stream),
    TEST(ended_side_of_a_stream_only_receives),
    TEST(accepted_messages_leave_before_the_end_of_their_stream),
    TEST(the_opener_may_cancel),
    TEST(the_other_side_may_cancel),
    TEST(a_stream_cancelled_in_the_step_that_opened_it_closes_once),
    TEST(a_stream_nobody_takes_is_refused),
    TEST(a_stream_to_nobody_closes),
    {"a_stream_to_another_identity_is_denied", a_stream_to_another_identity_is_denied, WITH_IDENTITY},
    TEST(each_side_of_a_stream_knows_the_other),
    TEST(several_streams_do_not_mix),
    {NULL, NULL, ALWAYS},
};
