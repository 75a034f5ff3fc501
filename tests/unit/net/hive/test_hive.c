/* A hive as a program holds it: requests without memory, and threads that ask, cancel and stop at the same time. */
#include "lib/hives.h"
#include "lib/raw.h"

#include "net/hive/hive_inner.h"
#include "net/transport/grpc.h"
#include "net/wire.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void given_back(void *arg) {
  atomic_fetch_add((atomic_int *)arg, 1);
}

static void free_both(hv_hive *a, hv_hive *b) {
  hv_hive_free(b);
  hv_hive_free(a);
}

/* ---- no memory ---- */

/* There is no way to leave an averager open, and its end is no reason to end the node. */
static void averager_freed_without_memory_leaves_the_node_running(void **state) {
  (void)state;
  enum { ALLOCATIONS = 3 };
  static float values[8];
  const int64_t shape[] = {8};
  hv_hive_tensor tensor = {.data = values, .dtype = HV_DTYPE_FLOAT32, .shape = shape, .n_dims = 1};
  hv_hive_averager_config config = {.prefix = "run", .tensors = &tensor, .n_tensors = 1, .part_bytes = 1 << 16};
  hv_hive *hive = hives_start(NULL, 1);
  for (long n = 0; n < ALLOCATIONS; n++) {
    hv_hive_averager *averager;
    hv_error err = {0};
    hv_status status = hv_hive_averager_new(hive, &config, &averager, &err);
    if (status != HV_OK)
      fail_msg("%s", err.text);
    hv_mem_fail_in(hv_hive_mem(hive), n);
    hv_hive_averager_free(averager);
    hv_mem_fail_in(hv_hive_mem(hive), -1);
  }
  hv_future *met;
  assert_int_equal(hv_hive_wait_peers(hive, 0, &met), HV_OK); /* it still takes requests */
  assert_true(hv_future_wait(met, 60000));
  assert_int_equal(hv_future_result(met, NULL, NULL, NULL), HV_OK);
  hv_future_release(met);
  hv_hive_free(hive);
}

enum { PEERS, ECHO, SEND, RECEIVE, REQUESTS };

static hv_status request(hv_hive *hive, const hv_peer_id *to, int what, atomic_int *back, hv_future **out) {
  static const uint8_t bytes[1000];
  switch (what) {
  case PEERS:
    return hv_hive_peers(hive, out);
  case ECHO:
    return hv_hive_echo(hive, to, hv_span_of(bytes, sizeof bytes), 5000, out);
  case SEND:
    return hv_hive_send(hive, to, hv_span_of(bytes, sizeof bytes), given_back, back, 5000, out);
  default:
    return hv_hive_receive(hive, out);
  }
}

static void request_ends_and_returns_its_bytes_if_any_allocation_fails(void **state) {
  (void)state;
  enum { ALLOCATIONS = 24 };
  hv_hive *a, *b;
  hives_start_two(&a, &b, 1);
  for (int what = 0; what < REQUESTS; what++)
    for (int n = 0; n < ALLOCATIONS; n++) {
      hv_future *future = NULL;
      atomic_int back = 0;
      hv_mem_fail_in(hv_hive_mem(b), n);
      hv_status status = request(b, hv_hive_peer(a), what, &back, &future);
      if (status == HV_OK) {
        if (what == RECEIVE)
          hv_future_cancel(future);
        assert_true(hv_future_wait(future, 10000));
        hv_future_result(future, NULL, NULL, NULL);
      } else
        assert_null(future);
      hv_mem_fail_in(hv_hive_mem(b), -1);
      for (int ms = 0; what == SEND && status == HV_OK && ms < 5000 && !atomic_load(&back); ms++)
        usleep(1000);
      assert_int_equal(atomic_load(&back), what == SEND && status == HV_OK);
      hv_future_release(future);
    }
  hv_future *echo;
  assert_int_equal(request(b, hv_hive_peer(a), ECHO, NULL, &echo), HV_OK); /* and it still works */
  assert_true(hv_future_wait(echo, 10000));
  assert_int_equal(hv_future_result(echo, NULL, NULL, NULL), HV_OK);
  hv_future_release(echo);
  free_both(a, b);
}

/* ---- threads ---- */

enum { THREADS = 3 };

typedef struct user {
  hv_hive *hive;
  hv_peer_id to;
  unsigned seed;
  atomic_int sent, back;
  int wrong;
  pthread_t thread;
} user;

/* Asks and cancels until the hive is closed; everything that was accepted must end, with a status that tells the truth. */
static void *use(void *arg) {
  user *u = arg;
  for (hv_status status = HV_OK; status != HV_CLOSED;) {
    hv_future *future = NULL;
    int what = (int)(u->seed++ % REQUESTS);
    status = request(u->hive, &u->to, what, &u->back, &future);
    if (status != HV_OK) {
      u->wrong |= status != HV_CLOSED;
      continue;
    }
    if (what == SEND)
      atomic_fetch_add(&u->sent, 1);
    if (what == RECEIVE || u->seed % 3 == 0)
      hv_future_cancel(future);
    u->wrong |= !hv_future_wait(future, 10000);
    hv_status end = hv_future_result(future, NULL, NULL, NULL);
    u->wrong |= end != HV_OK && end != HV_CANCELLED && end != HV_CLOSED;
    hv_future_release(future);
  }
  return NULL;
}

static void asking_threads_all_get_an_end_when_the_hive_stops(void **state) {
  (void)state;
  hv_hive *a, *b;
  user users[THREADS] = {0};
  hives_start_two(&a, &b, 1);
  for (int i = 0; i < THREADS; i++) {
    users[i].hive = b;
    users[i].to = *hv_hive_peer(a);
    users[i].seed = (unsigned)i * 7;
    assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
  }
  usleep(200000);
  hv_hive_stop(b);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(users[i].thread, NULL);
    assert_int_equal(users[i].wrong, 0);
  }
  free_both(a, b);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(atomic_load(&users[i].back), atomic_load(&users[i].sent)); /* every buffer came back, once */
}

static void a_future_outlives_its_hive(void **state) {
  (void)state;
  hv_error err = {0};
  hv_future *receive, *peers, *late = NULL;
  hv_hive *hive = hives_start(NULL, 1);
  assert_int_equal(hv_hive_receive(hive, &receive), HV_OK);
  assert_int_equal(hv_hive_peers(hive, &peers), HV_OK);
  assert_true(hv_future_wait(peers, 10000));
  hv_hive_stop(hive);
  assert_int_equal(hv_hive_peers(hive, &late), HV_CLOSED);
  assert_null(late);
  hv_hive_free(hive);
  hv_future_cancel(receive); /* nothing to cancel, nobody to ask */
  assert_true(hv_future_done(receive));
  assert_int_equal(hv_future_result(receive, NULL, NULL, &err), HV_CLOSED);
  assert_true(strlen(err.text) > 0);
  assert_int_equal(hv_future_result(peers, NULL, NULL, NULL), HV_OK);
  hv_future_release(receive);
  hv_future_release(peers);
}

/* ---- parcels that nobody looks at ---- */

static void send_to(hv_hive *from, hv_hive *to, const char *text) {
  hv_future *sent;
  assert_int_equal(hv_hive_send(from, hv_hive_peer(to), hv_span_of(text, strlen(text)), NULL, NULL, 10000, &sent), HV_OK);
  assert_true(hv_future_wait(sent, 10000));
  assert_int_equal(hv_future_result(sent, NULL, NULL, NULL), HV_OK);
  hv_future_release(sent);
}

static void expect(hv_hive *hive, const char *text) {
  hv_future *got;
  hv_span bytes;
  assert_int_equal(hv_hive_receive(hive, &got), HV_OK);
  assert_true(hv_future_wait(got, 10000));
  assert_int_equal(hv_future_result(got, &bytes, NULL, NULL), HV_OK);
  assert_true(hv_span_equal(bytes, hv_span_of(text, strlen(text))));
  hv_future_release(got);
}

static void a_parcel_that_nobody_looked_at_is_received_again_first(void **state) {
  (void)state;
  hv_hive *a, *b;
  hv_future *got;
  hives_start_two(&a, &b, 1);
  send_to(b, a, "one");
  send_to(b, a, "two");
  assert_int_equal(hv_hive_receive(a, &got), HV_OK);
  assert_true(hv_future_wait(got, 10000));
  assert_false(hv_future_cancel(got));
  assert_int_equal(hv_hive_unreceive(a, got), HV_OK);
  assert_int_equal(hv_hive_unreceive(a, got), HV_NOT_FOUND);
  hv_future_release(got);
  expect(a, "one");
  expect(a, "two");
  free_both(a, b);
}

/* Parcels come while receives are dropped all the time, each as a program drops it: cancelled, or given back if it was too late. */
static void dropping_receives_loses_no_parcel(void **state) {
  (void)state;
  enum { PARCELS = 60 };
  hv_hive *a, *b;
  hives_start_two(&a, &b, 1);
  for (int i = 0; i < PARCELS; i++) {
    char text[32];
    hv_future *sent, *got;
    snprintf(text, sizeof text, "parcel %d", i);
    assert_int_equal(hv_hive_send(b, hv_hive_peer(a), hv_span_of(text, strlen(text)), NULL, NULL, 10000, &sent), HV_OK);
    while (!hv_future_done(sent)) {
      assert_int_equal(hv_hive_receive(a, &got), HV_OK);
      usleep((unsigned)i * 7);
      if (!hv_future_cancel(got))
        hv_hive_unreceive(a, got);
      hv_future_release(got);
    }
    assert_int_equal(hv_future_result(sent, NULL, NULL, NULL), HV_OK);
    hv_future_release(sent);
    expect(a, text);
  }
  free_both(a, b);
}

/* ---- stopping from where it cannot wait ---- */

typedef struct stopper {
  hv_hive *hive;
  atomic_int stop, freed, called;
} stopper;

static void stop_from_within(void *arg) {
  stopper *s = arg;
  atomic_store(&s->stop, (int)hv_hive_stop(s->hive));
  atomic_store(&s->freed, (int)hv_hive_free(s->hive));
  atomic_store(&s->called, 1);
}

static void stopping_within_a_done_is_refused_and_harms_nothing(void **state) {
  (void)state;
  static const uint8_t bytes[3000000];
  hv_hive *a, *b;
  hives_start_two(&a, &b, 1);
  stopper s = {.hive = b};
  hv_future *sent;
  assert_int_equal(hv_hive_send(b, hv_hive_peer(a), hv_span_of(bytes, sizeof bytes), stop_from_within, &s, 10000, &sent), HV_OK);
  assert_true(hv_future_wait(sent, 10000));
  for (int ms = 0; ms < 10000 && !atomic_load(&s.called); ms++)
    usleep(1000);
  assert_int_equal(atomic_load(&s.called), 1);
  assert_int_equal(atomic_load(&s.stop), HV_STATE);
  assert_int_equal(atomic_load(&s.freed), HV_STATE);
  assert_int_equal(hv_future_result(sent, NULL, NULL, NULL), HV_OK);
  hv_future_release(sent);
  send_to(b, a, "still here");
  assert_int_equal(hv_hive_stop(b), HV_OK);
  assert_int_equal(hv_hive_stop(b), HV_OK);
  free_both(a, b);
}

/* ---- a node that ends by itself ---- */

enum { TIMERS = 2000 };
static hv_timer timers[TIMERS];

static void never(hv_timer *timer, const hv_event *event) {
  (void)timer, (void)event;
}

/* Many timers, and each time it would take memory, there is none. */
static void set_many(hv_hive_op *o, hv_node *node) {
  hv_env *env = hv_node_env(node);
  for (int i = 0; i < TIMERS; i++) {
    timers[i] = (hv_timer){.fire = never};
    hv_mem_fail_in(hv_hive_mem(o->hive), 0);
    env->timer_set(env, &timers[i], 3600000000ull);
  }
  hv_mem_fail_in(hv_hive_mem(o->hive), -1);
  hv_hive_fail_op(o, HV_BUSY, "they are set");
}

static void timers_without_memory_are_set_and_the_node_lives(void **state) {
  (void)state;
  hv_hive *hive = hives_start(NULL, 1);
  hv_future *receive, *set;
  hv_error err = {0};
  assert_int_equal(hv_hive_submit(hv_hive_new_op(hive, set_many), &set), HV_OK);
  assert_true(hv_future_wait(set, 10000));
  assert_string_equal((hv_future_result(set, NULL, NULL, &err), err.text), "they are set");
  assert_int_equal(hv_hive_receive(hive, &receive), HV_OK);
  assert_false(hv_future_wait(receive, 50));
  assert_int_equal(hv_hive_stop(hive), HV_OK);
  assert_int_equal(hv_future_result(receive, NULL, NULL, &err), HV_CLOSED);
  hv_future_release(receive);
  hv_future_release(set);
  assert_int_equal(hv_hive_free(hive), HV_OK);
}

/* ---- a forked child ---- */

static void a_forked_child_starts_no_hive_and_is_told_why(void **state) {
  (void)state;
  hv_hive *hive = hives_start(NULL, 1);
  pid_t child = fork();
  if (child == 0) {
    hv_hive *mine = NULL;
    hv_error err = {0};
    hv_hive_config config = {.insecure = 1};
    int right = hv_hive_start(&config, &mine, &err) == HV_FORKED && !mine && strstr(err.text, "fork") && err.status == HV_FORKED &&
                hv_hive_stop(hive) == HV_FORKED && hv_hive_free(hive) == HV_FORKED;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  hv_hive *another = hives_start(NULL, 1); /* the parent goes on */
  free_both(another, hive);
}

static void hive_cannot_rule_out_a_fork_without_proc(void **state) {
  (void)state;
  hv_hive *hive = hives_start(NULL, 1);
  assert_false(hv_grpc_orphaned(HV_GRPC_TASKS));
  assert_true(hv_grpc_orphaned("/no/such/folder"));
  assert_int_equal(hv_hive_free(hive), HV_OK);
}

static void hive_without_tls_warns_once_at_its_start(void **state) {
  (void)state;
  hv_hive *hive = hives_start(NULL, 1);
  int warned = 0;
  for (hv_log_record record; hv_log_take(hv_hive_log(hive), &record);)
    if (strcmp(record.event, "insecure") == 0) {
      assert_int_equal(record.level, HV_LOG_WARN);
      assert_non_null(strstr(record.text, "without TLS"));
      warned++;
    }
  assert_int_equal(warned, 1);
  assert_int_equal(hv_hive_free(hive), HV_OK);
}

/* ---- initial peers ---- */

/* An initial peer refuses with escape sequences and lines of its own: they must not reach the terminal in an exception. */
static void error_shows_no_control_characters_of_a_stranger(void **state) {
  (void)state;
  static const char text[] = "\x1b]0;owned\x07\x1b[2J\nWARNING: your key was leaked\xc2\x9b"
                             "31m";
  hv_msg msg = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_UNSUPPORTED, hv_span_of(text, sizeof text - 1)}};
  raw_peer p;
  hv_buf buf;
  hv_future *future;
  hv_error err = {0};
  char where[32];
  raw_start(&p, 1, NULL);
  hv_buf_init(&buf, &p.mem, 4096);
  assert_int_equal(hv_wire_write(&msg, HV_PROTOCOL_LOWEST, NULL, &buf), HV_OK);
  snprintf(where, sizeof where, "127.0.0.1:%d", raw_serve(&p));
  hv_hive *hive = hives_start(where, 1);
  assert_int_equal(hv_hive_wait_peers(hive, 1, &future), HV_OK);
  raw_answer(&p, hv_span_of(buf.data, buf.size));
  assert_true(hv_future_wait(future, 60000));
  assert_int_not_equal(hv_future_result(future, NULL, NULL, &err), HV_OK);
  assert_non_null(strstr(err.text, "?]0;owned??[2J?WARNING: your key was leaked??31m"));
  for (const unsigned char *c = (const unsigned char *)err.text; *c; c++)
    assert_true(*c >= 0x20 && *c != 0x7f);
  hv_future_release(future);
  hv_hive_free(hive);
  hv_buf_fini(&buf);
  raw_stop(&p);
}

/* Beside others they are named in a warning. If there are many, the sentence is cut, and nothing else. */
static void addresses_of_other_transports_are_refused_if_they_are_alone(void **state) {
  (void)state;
  enum { MANY = 60 };
  static const char one[] = "/ip4/192.0.2.7/udp/4001/quic,";
  char list[MANY * sizeof one + 32] = "";
  for (int i = 0; i < MANY; i++)
    strcat(list, one);
  const char *initial[] = {"127.0.0.1:1", list}, *few[] = {"127.0.0.1:1", one};
  hv_hive_config config = {.initial_peers = initial + 1, .n_initial_peers = 1, .pool_threads = 1, .log_level = HV_LOG_ERROR};
  hv_hive *hive = NULL;
  hv_error err = {0};
  assert_int_equal(hv_hive_start(&config, &hive, &err), HV_UNSUPPORTED);
  assert_null(hive);
  assert_non_null(strstr(err.text, "/ip4/192.0.2.7/udp/4001/quic (its transport is not TCP)"));
  assert_true(memchr(err.text, 0, sizeof err.text) != NULL);

  for (int many = 0; many < 2; many++) {
    hv_future *future;
    config.initial_peers = many ? initial : few;
    config.n_initial_peers = 2;
    assert_int_equal(hv_hive_start(&config, &hive, &err), HV_OK);
    assert_int_equal(hv_hive_wait_peers(hive, 1, &future), HV_OK);
    assert_true(hv_future_wait(future, 60000));
    assert_int_equal(hv_future_result(future, NULL, NULL, &err), HV_UNREACHABLE);
    hv_future_release(future);
    assert_non_null(strstr(err.text, "127.0.0.1:1 ("));
    assert_non_null(strstr(err.text, "/udp/4001/quic (its transport is not TCP)"));
    hv_hive_free(hive);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(request_ends_and_returns_its_bytes_if_any_allocation_fails),
      cmocka_unit_test(averager_freed_without_memory_leaves_the_node_running),
      cmocka_unit_test(asking_threads_all_get_an_end_when_the_hive_stops),
      cmocka_unit_test(a_future_outlives_its_hive),
      cmocka_unit_test(a_parcel_that_nobody_looked_at_is_received_again_first),
      cmocka_unit_test(dropping_receives_loses_no_parcel),
      cmocka_unit_test(stopping_within_a_done_is_refused_and_harms_nothing),
      cmocka_unit_test(timers_without_memory_are_set_and_the_node_lives),
      cmocka_unit_test(error_shows_no_control_characters_of_a_stranger),
      cmocka_unit_test(addresses_of_other_transports_are_refused_if_they_are_alone),
      cmocka_unit_test(a_forked_child_starts_no_hive_and_is_told_why),
      cmocka_unit_test(hive_cannot_rule_out_a_fork_without_proc),
      cmocka_unit_test(hive_without_tls_warns_once_at_its_start),
  };
  return cmocka_run_group_tests_name("hive", tests, NULL, NULL);
}
