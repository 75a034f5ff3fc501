#include "contract/contract_bench.h"

#include "core/peers/spoken.h"

/* Peers with different ranges of versions of the protocol. Nodes that claim to speak the next version play it: its messages have
 * the same fields, and another number in front. */

static const hv_versions one = {1, 1, 0}, both = {1, 2, 5}, two = {2, 2, 9};

typedef struct view {
  hv_peer_id of;
  hv_versions speaks;
  uint32_t version;
} view;

static void look_at(recorder *rec, void *arg) {
  view *v = arg;
  v->speaks = hv_spoken_of(rec->env, &v->of);
  v->version = hv_spoken_choose(rec->env, &v->of, NULL);
}

/* A node's knowledge of another one. */
static view seen(bench *b, size_t node, size_t other) {
  view v = {.of = target(b, other).id};
  assert_true(within(b, node, look_at, &v));
  return v;
}

static uint32_t asked_in(bench *b, size_t node) {
  pthread_mutex_lock(&b->lock);
  uint32_t version = b->nodes[node].version;
  pthread_mutex_unlock(&b->lock);
  return version;
}

static void call_in(bench *b, size_t from, size_t to, uint32_t version) {
  a_call c = a_call_to(target(b, to), 5000);
  ask(b, from, &c);
  assert_int_equal(c.status, HV_OK);
  assert_true(c.right);
  assert_int_equal(asked_in(b, to), version);
}

static void calls_use_the_highest_common_version(void **state) {
  bench *b = open_bench_of(state, 3, 0, (hv_versions[]){one, both, both});
  call_in(b, 0, 1, 1);
  call_in(b, 1, 0, 1);
  call_in(b, 1, 2, 1); /* nothing is known yet: the lowest */
  call_in(b, 1, 2, 2);
  call_in(b, 2, 1, 2);
  view known = seen(b, 2, 1);
  assert_true(hv_versions_equal(&known.speaks, &both));
  assert_int_equal(known.version, 2);
  known = seen(b, 1, 0);
  assert_int_equal(known.version, 1);
  assert_int_equal(known.speaks.features, 0);
  close_bench(b);
}

static void call_in_a_dropped_version_is_sent_again(void **state) {
  bench *b = open_bench_of(state, 2, 0, (hv_versions[]){both, two});
  call_in(b, 0, 1, 2); /* asked in 1, refused, asked in 2 */
  assert_int_equal(look(b, &b->nodes[1].requests), 1);
  view known = seen(b, 0, 1);
  assert_true(hv_versions_equal(&known.speaks, &two));
  call_in(b, 1, 0, 2);
  close_bench(b);
}

static void stream_in(bench *b, size_t from, size_t to, size_t k, uint32_t version) {
  a_stream *s = new_stream();
  s->piece = 10000; /* all of it fits the window: an echo that is told to wait is not sent again */
  s->to_send = 30;
  s->end_at = 30;
  open_to(b, from, target(b, to), s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  a_stream *t = taken(b, to, k);
  assert_true(reaches(b, &t->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_OK);
  assert_int_equal(s->data, 30);
  assert_int_equal(t->data, 30);
  assert_int_equal(s->wrong + t->wrong, 0);
  assert_int_equal(t->version, version);
  all_released(b, s);
  all_released(b, t);
  free(s);
}

/* The very first word between two nodes may be a stream. */
static void streams_use_the_highest_common_version(void **state) {
  bench *b = open_bench_of(state, 4, 0, (hv_versions[]){one, both, both, two});
  for (size_t i = 0; i < 4; i++) {
    SET(b, i, echo_streams, 1);
    SET(b, i, end_at, 30);
  }
  stream_in(b, 1, 2, 0, 2);
  stream_in(b, 1, 0, 0, 1);
  stream_in(b, 2, 3, 0, 2);
  stream_in(b, 0, 2, 1, 1);
  stream_in(b, 3, 1, 0, 2);
  close_bench(b);
}

static void a_stream_that_asks_first_can_be_cancelled(void **state) {
  bench *b = open_bench_of(state, 2, 0, (hv_versions[]){both, both});
  a_stream *s = new_stream();
  s->piece = 1000;
  s->to_send = 5;
  open_to(b, 0, target(b, 1), s);
  within(b, 0, cancel_side, s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_CANCELLED);
  all_released(b, s);
  a_stream *ends = new_stream();
  ends->to_send = 3;
  ends->piece = 10;
  open_to(b, 0, b->f->nobody(b->world), ends);
  assert_true(reaches(b, &ends->closed, 1, SOON_MS));
  assert_int_equal(ends->status, HV_REFUSED);
  all_released(b, ends);
  free(ends);
  free(s);
  close_bench(b);
}

static void refused_call(bench *b, size_t from, size_t to, const char *sentence) {
  a_call c = a_call_to(target(b, to), 5000);
  ask(b, from, &c);
  assert_int_equal(c.status, HV_VERSION);
  if (!strstr(c.text, sentence))
    fail_msg("\"%s\" does not contain \"%s\"", c.text, sentence);
}

/* Both know it after one call, both say so, and neither dials the other again. */
static void peers_without_a_common_version_stay_apart(void **state) {
  bench *b = open_bench_of(state, 2, 0, (hv_versions[]){one, {2, 3, 0}});
  refused_call(b, 1, 0, "speaks version 1 of the protocol, this peer versions 2 to 3: upgrade hivemind_c there");
  refused_call(b, 0, 1, "speaks versions 2 to 3 of the protocol, this peer version 1: upgrade hivemind_c here");
  refused_call(b, 1, 0, "upgrade hivemind_c there");
  assert_int_equal(look(b, &b->nodes[0].requests) + look(b, &b->nodes[1].requests), 0);
  view known = seen(b, 0, 1);
  assert_int_equal(known.version, 0);
  a_stream *s = new_stream();
  opening o = {s, target(b, 1), HV_OK};
  assert_true(within(b, 0, open_now, &o));
  assert_int_equal(o.status, HV_VERSION);
  free(s);
  close_bench(b);
}

static void stream_without_a_common_version_is_refused(void **state) {
  bench *b = open_bench_of(state, 2, 0, (hv_versions[]){one, two});
  a_stream *s = new_stream();
  open_to(b, 1, target(b, 0), s);
  assert_true(reaches(b, &s->closed, 1, SOON_MS));
  assert_int_equal(s->status, HV_VERSION);
  assert_non_null(strstr(s->text, "version 1 of the protocol"));
  pthread_mutex_lock(&b->lock);
  assert_int_equal(b->nodes[0].n_in, 0);
  pthread_mutex_unlock(&b->lock);
  assert_int_equal(seen(b, 0, 1).version, 0);
  assert_int_equal(seen(b, 1, 0).version, 0);
  free(s);
  close_bench(b);
}

const contract_test contract_versions[] = {
    TEST(calls_use_the_highest_common_version),
    TEST(call_in_a_dropped_version_is_sent_again),
    TEST(streams_use_the_highest_common_version),
    TEST(a_stream_that_asks_first_can_be_cancelled),
    TEST(peers_without_a_common_version_stay_apart),
    TEST(stream_without_a_common_version_is_refused),
    {0},
};
