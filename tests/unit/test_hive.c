/* A hive as a program holds it: requests without memory, and threads that ask, cancel and stop at the same time. */
#include "lib/check.h"

#include "hivemind_c.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static hv_hive *start(const char *initial) {
  static const char *const here[] = {"/ip4/127.0.0.1/tcp/0"};
  hv_hive *hive = NULL;
  hv_error err = {0};
  hv_hive_config config = {.listen = here,
                           .n_listen = 1,
                           .initial_peers = &initial,
                           .n_initial_peers = initial ? 1 : 0,
                           .insecure = 1,
                           .pool_threads = 1};
  if (hv_hive_start(&config, &hive, &err) != HV_OK)
    fail_msg("%s", err.text);
  return hive;
}

/* Two that know each other. */
static void start_two(hv_hive **a, hv_hive **b) {
  char where[HV_ADDR_TEXT_MAX];
  hv_addr addr;
  hv_future *met;
  *a = start(NULL);
  assert_int_equal(hv_hive_addrs(*a, &addr, 1), 1);
  *b = start(hv_addr_print(&addr, hv_hive_peer(*a), where));
  assert_int_equal(hv_hive_wait_peers(*b, 1, &met), HV_OK);
  assert_true(hv_future_wait(met, 10000));
  assert_int_equal(hv_future_result(met, NULL, NULL, NULL), HV_OK);
  hv_future_release(met);
}

static void given_back(void *arg) {
  atomic_fetch_add((atomic_int *)arg, 1);
}

static void free_both(hv_hive *a, hv_hive *b) {
  hv_hive_free(b);
  hv_hive_free(a);
}

/* ---- no memory ---- */

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

static void whichever_allocation_fails_a_request_is_refused_or_ends_and_bytes_come_back_once(void **state) {
  (void)state;
  enum { ALLOCATIONS = 24 };
  hv_hive *a, *b;
  start_two(&a, &b);
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

static void threads_that_ask_and_cancel_all_get_an_end_when_others_stop_the_hive(void **state) {
  (void)state;
  hv_hive *a, *b;
  user users[THREADS] = {0};
  start_two(&a, &b);
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
  hv_hive *hive = start(NULL);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whichever_allocation_fails_a_request_is_refused_or_ends_and_bytes_come_back_once),
      cmocka_unit_test(threads_that_ask_and_cancel_all_get_an_end_when_others_stop_the_hive),
      cmocka_unit_test(a_future_outlives_its_hive),
  };
  return cmocka_run_group_tests_name("hive", tests, NULL, NULL);
}
