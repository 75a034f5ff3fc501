#include "contract/contract_bench.h"

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

static void call_is_refused_if_nobody_listens(void **state) {
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
    c[i].bytes = hv_span_of("late", 4); /* as it will be answered; before it is asked, for then it is the hive thread's */
    within(b, 0, start_call, &c[i]);
    assert_int_equal(c[i].started, HV_OK);
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

static void client_cannot_be_reached(void **state) {
  bench *b = open_bench(state, 2, 2);
  a_call c = a_call_to(target(b, 1), 3000);
  ask(b, 0, &c);
  assert_true(c.status == HV_REFUSED || c.status == HV_UNREACHABLE);
  close_bench(b);
}

static void largest_message_passes_and_a_larger_one_is_refused_at_once(void **state) {
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

/* ---- the table ---- */

const contract_test contract_calls[] = {
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
    TEST(call_is_refused_if_nobody_listens),
    TEST(a_call_without_an_address_ends),
    TEST(no_answer_in_time_is_a_timeout),
    TEST(an_answer_after_the_time_goes_nowhere),
    TEST(late_answers_in_any_order_find_their_calls),
    TEST(a_cancelled_call_ends_once),
    TEST(a_call_cancelled_in_the_step_that_started_it_ends_once),
    TEST(many_calls_both_ways_each_end_once_with_their_own),
    TEST(client_cannot_be_reached),
    TEST(largest_message_passes_and_a_larger_one_is_refused_at_once),
    TEST(an_answer_that_cannot_be_said_still_ends_the_call),
    {NULL, NULL, ALWAYS},
};
