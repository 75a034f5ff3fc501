/* The real world: timers, inbox, pool, addresses, calls, streams, and its end. */
#include "lib/real.h"
#include "net/clock.h"
#include "net/transport/listen.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void an_echo_comes_back(void **state) {
  (void)state;
  for (int insecure = 0; insecure < 2; insecure++) {
    real_node a, b;
    real_start(&a, &(real_options){.seed = 1, .insecure = insecure});
    real_start(&b, &(real_options){.seed = 2, .insecure = insecure});
    assert_int_equal(real_echo(&a, &b.target, "hello", 5000), HV_OK);
    assert_true(hv_peer_equal(&a.last_peer, &b.target.id));
    hv_target anyone = {.addr = a.target.addr};
    assert_int_equal(real_echo(&b, &anyone, "hello", 5000), HV_OK);
    assert_true(hv_peer_equal(&b.last_peer, &a.target.id));
    real_stop(&a);
    real_stop(&b);
  }
}

/* ---- streams ---- */

typedef struct flow {
  real_node *from;
  hv_target to;
  hv_stream_events events;
  hv_stream *stream;
  hv_payload *payload;
  size_t left, taken;
  int busy, closed;
  hv_status status;
} flow;

static void flow_on(flow *f) {
  hv_env *env = f->from->env;
  hv_msg header = {.kind = HV_MSG_PARCEL};
  while (f->left) {
    hv_status status = env->stream_send(env, f->stream, &header, f->payload);
    if (status == HV_BUSY)
      f->busy++;
    if (status != HV_OK)
      return;
    f->left--;
    f->taken += f->payload->size;
  }
  env->stream_end(env, f->stream);
}

static void flow_data(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void flow_ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  flow_on(stream->owner);
}

static void flow_closed(hv_stream *stream, const hv_event *event) {
  flow *f = stream->owner;
  pthread_mutex_lock(&f->from->lock);
  f->closed++;
  f->status = event->status;
  strncpy(f->from->last_text, event->text, sizeof f->from->last_text - 1);
  f->from->events[HV_EVENT_STREAM_CLOSED]++;
  pthread_cond_broadcast(&f->from->changed);
  pthread_mutex_unlock(&f->from->lock);
}

static void flow_open(real_node *node, void *arg) {
  flow *f = arg;
  f->events = (hv_stream_events){flow_data, flow_ready, flow_closed, .heavy = 0};
  hv_msg first = {.kind = HV_MSG_PARCEL, .u.parcel.size = f->left};
  assert_int_equal(node->env->stream_open(node->env, &f->to, &first, &f->events, f, &f->stream), HV_OK);
  flow_on(f);
}

static void end_all_that_came(real_node *node, void *arg) {
  hv_stream *stream = *(hv_stream **)arg;
  node->env->stream_end(node->env, stream);
}

static hv_stream *last_opened;
static void data_and_remember(hv_stream *stream, const hv_event *event) {
  last_opened = stream;
  real_data(stream, event);
}

static int all_there(real_node *node) {
  return node->bytes >= (size_t)40 << 20;
}

static void bulk_bytes_arrive_whole_and_in_place(void **state) {
  (void)state;
  for (int insecure = 0; insecure < 2; insecure++) {
    real_node a, b;
    real_start(&a, &(real_options){.seed = 1, .insecure = insecure});
    real_start(&b, &(real_options){.seed = 2, .insecure = insecure, .data = data_and_remember});
    static uint8_t bytes[1 << 20];
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
      sum += bytes[i] = (uint8_t)(i * 7 + i / 1000);
    hv_payload *payload = hv_payload_copy(&a.mem, bytes, sizeof bytes);
    flow f = {.from = &a, .to = b.target, .payload = payload, .left = 40};
    real_do(&a, flow_open, &f);
    assert_true(real_wait(&b, all_there, 20000));
    assert_int_equal(b.stream_sum, sum * 40);
    real_do(&b, end_all_that_came, &last_opened);
    assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, 1, 5000));
    assert_true(real_wait_for(&b, HV_EVENT_STREAM_CLOSED, 1, 5000));
    assert_true(f.busy > 0);
    assert_int_equal(f.status, HV_OK);
    assert_int_equal(b.last_status, HV_OK);
    assert_int_equal(real_count(&b, HV_EVENT_STREAM_CLOSED), 1);
    hv_payload_release(payload);
    assert_true(real_stop(&a) < 2000);
    assert_true(real_stop(&b) < 2000);
  }
}

static int kept_some(real_node *node) {
  return node->n_kept >= 4;
}

static void a_full_window_holds_the_sender_back_until_bytes_are_let_go(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2, .keep = 1});
  static uint8_t bytes[1 << 20];
  hv_payload *payload = hv_payload_copy(&a.mem, bytes, sizeof bytes);
  flow f = {.from = &a, .to = b.target, .payload = payload, .left = 40};
  real_do(&a, flow_open, &f);
  assert_true(real_wait(&b, kept_some, 10000));
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  pthread_mutex_lock(&b.lock);
  assert_true(b.bytes <= 5u << 20); /* no more was read than the window holds, and the message that filled it */
  b.keep = 0;
  int n = b.n_kept;
  b.n_kept = 0;
  pthread_mutex_unlock(&b.lock);
  for (int i = 0; i < n; i++)
    hv_payload_release(b.kept[i]); /* on this thread: any will do */
  assert_true(real_wait(&b, all_there, 20000));
  hv_payload_release(payload);
  real_stop(&a);
  real_stop(&b);
}

static void data_that_waits(hv_stream *stream, const hv_event *event) {
  real_node *node = stream->owner;
  if (node->n_kept == 0)
    node->env->stream_wait(node->env, stream, 1);
  data_and_remember(stream, event);
}

static void wait_no_more(real_node *node, void *arg) {
  (void)arg;
  node->env->stream_wait(node->env, last_opened, 0);
}

static int kept_one(real_node *node) {
  return node->n_kept >= 1;
}

/* A round has not begun: of a peer that is not trusted hardly more than one message is read. Then it begins. */
static void stream_that_waits_is_read_on_once_it_has_begun(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2, .keep = 1, .data = data_that_waits});
  static uint8_t bytes[1 << 20];
  hv_payload *payload = hv_payload_copy(&a.mem, bytes, sizeof bytes);
  flow f = {.from = &a, .to = b.target, .payload = payload, .left = 40};
  real_do(&a, flow_open, &f);
  assert_true(real_wait(&b, kept_one, 10000));
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
  pthread_mutex_lock(&b.lock);
  assert_int_equal(b.n_kept, 1);
  pthread_mutex_unlock(&b.lock);
  real_do(&b, wait_no_more, NULL);
  assert_true(real_wait(&b, kept_some, 10000));
  pthread_mutex_lock(&b.lock);
  b.keep = 0;
  int n = b.n_kept;
  b.n_kept = 0;
  pthread_mutex_unlock(&b.lock);
  for (int i = 0; i < n; i++)
    hv_payload_release(b.kept[i]);
  assert_true(real_wait(&b, all_there, 20000));
  hv_payload_release(payload);
  real_stop(&a);
  real_stop(&b);
}

/* ---- what goes wrong ---- */

static void a_refused_stream_ends_with_its_reason(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2, .refuse = 1});
  flow f = {.from = &a, .to = b.target, .left = 0};
  real_do(&a, flow_open, &f);
  assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, 1, 5000));
  assert_int_equal(f.status, HV_REFUSED);
  real_stop(&a);
  real_stop(&b);
}

static void call_to_a_closed_port_is_refused_with_the_address(void **state) {
  (void)state;
  real_node a;
  real_start(&a, &(real_options){.seed = 1});
  hv_target nobody = {.addr = real_addr("/ip4/127.0.0.1/tcp/1")};
  assert_int_equal(real_echo(&a, &nobody, "x", 5000), HV_REFUSED);
  assert_non_null(strstr(a.last_text, "nothing listens on 127.0.0.1:1"));
  flow f = {.from = &a, .to = nobody};
  real_do(&a, flow_open, &f);
  assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, 1, 5000));
  assert_int_equal(f.status, HV_REFUSED);
  real_stop(&a);
}

static void another_key_than_expected_is_denied_naming_both(void **state) {
  (void)state;
  for (int insecure = 0; insecure < 2; insecure++) {
    real_node a, b;
    real_start(&a, &(real_options){.seed = 1, .insecure = insecure});
    real_start(&b, &(real_options){.seed = 2, .insecure = insecure});
    hv_target wrong = {.id = a.target.id, .addr = b.target.addr};
    char found[HV_PEER_TEXT_MAX], wanted[HV_PEER_TEXT_MAX];
    hv_peer_print(&b.target.id, found);
    hv_peer_print(&a.target.id, wanted);
    assert_int_equal(real_echo(&a, &wrong, "x", 5000), HV_DENIED);
    assert_non_null(strstr(a.last_text, found));
    assert_non_null(strstr(a.last_text, wanted));
    flow f = {.from = &a, .to = wrong};
    real_do(&a, flow_open, &f);
    assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, 1, 5000));
    assert_int_equal(f.status, HV_DENIED);
    assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK); /* the right one is still served */
    real_stop(&a);
    real_stop(&b);
  }
}

static void no_answer_is_a_timeout(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2, .hold = 1});
  assert_int_equal(real_echo(&a, &b.target, "x", 200), HV_TIMEOUT);
  assert_non_null(strstr(a.last_text, "within 200 ms"));
  real_stop(&a);
  real_stop(&b);
}

static void lost_connection_is_reported_at_once(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK);
  hv_peer_id b_id = b.target.id;
  real_stop(&b);
  assert_true(real_wait_for(&a, HV_EVENT_PEER_DOWN, 1, 1000));
  assert_true(hv_peer_equal(&a.down, &b_id));
  real_stop(&a);
}

static void a_peer_that_came_back_is_reached_again(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  hv_target at = b.target;
  assert_int_equal(real_echo(&a, &at, "x", 5000), HV_OK);
  real_stop(&b);
  assert_true(real_wait_for(&a, HV_EVENT_PEER_DOWN, 1, 1000)); /* before that a call may still meet the old connection's end */
  assert_int_equal(real_echo(&a, &at, "x", 5000), HV_REFUSED);
  real_start(&b, &(real_options){.seed = 2, .listen = &at.addr, .n_listen = 1});
  hv_status status = HV_REFUSED;
  for (uint64_t until = hv_clock_us() + 8000000; status != HV_OK && hv_clock_us() < until;)
    status = real_echo(&a, &at, "x", 5000);
  assert_int_equal(status, HV_OK);
  real_stop(&a);
  real_stop(&b);
}

static void cancel_flow(real_node *node, void *arg) {
  flow *f = arg;
  if (!f->closed)
    node->env->stream_cancel(node->env, f->stream);
}

static void open_if_possible(real_node *node, void *arg) {
  flow *f = arg;
  f->events = (hv_stream_events){flow_data, flow_ready, flow_closed, .heavy = 0};
  hv_msg first = {.kind = HV_MSG_PARCEL};
  f->status = node->env->stream_open(node->env, &f->to, &first, &f->events, f, &f->stream);
  if (f->status == HV_OK)
    flow_on(f);
}

/* Whichever allocation fails, on either side: what was started ends once, and the next one is served. */
static void node_without_memory_ends_calls_and_serves_later_ones(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  static uint8_t bytes[1000];
  assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK);
  for (int i = 0; i < 60; i++) {
    hv_payload *payload = hv_payload_copy(&a.mem, bytes, sizeof bytes);
    flow f = {.from = &a, .to = b.target, .payload = payload, .left = 3};
    int closed = real_count(&a, HV_EVENT_STREAM_CLOSED);
    hv_mem_fail_in(i % 2 ? &a.mem : &b.mem, i / 4);
    if (i / 2 % 2) {
      real_echo(&a, &b.target, "x", 3000); /* asserts itself that it ends */
    } else {
      real_do(&a, open_if_possible, &f);
      if (f.status == HV_OK) {
        real_do(&a, cancel_flow, &f);
        assert_true(real_wait_for(&a, HV_EVENT_STREAM_CLOSED, closed + 1, 5000));
        assert_int_equal(f.closed, 1);
      }
    }
    hv_mem_fail_in(&a.mem, -1);
    hv_mem_fail_in(&b.mem, -1);
    hv_payload_release(payload);
    assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK);
  }
  real_stop(&a);
  real_stop(&b);
}

/* ---- the end ---- */

enum { MANY = 50 };

static void ask_many(real_node *node, void *arg) {
  hv_call *calls = arg;
  hv_msg msg = {.kind = HV_MSG_ECHO};
  for (int i = 0; i < MANY; i++)
    assert_int_equal(node->env->call(node->env, &calls[i], &msg), HV_OK);
}

static void a_stop_takes_under_2_s_with_calls_and_streams_in_flight(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2, .hold = 1, .keep = 1});
  static hv_call calls[MANY];
  hv_target dead = {.addr = real_addr("/ip4/192.0.2.1/tcp/4000")}; /* nobody answers there, ever */
  for (int i = 0; i < MANY; i++)
    calls[i] = (hv_call){.done = real_call_done, .owner = &a, .to = i % 2 ? b.target : dead, .timeout_ms = 60000};
  static uint8_t bytes[1 << 20];
  hv_payload *payload = hv_payload_copy(&a.mem, bytes, sizeof bytes);
  flow f = {.from = &a, .to = b.target, .payload = payload, .left = 40};
  real_do(&a, flow_open, &f);
  real_do(&a, ask_many, calls);
  assert_true(real_wait_for(&b, HV_EVENT_REQUEST, MANY / 2, 5000));
  uint64_t before = hv_clock_us();
  hv_loop_stop(a.loop);
  assert_true(hv_clock_us() - before < 2000000);
  assert_int_equal(real_count(&a, HV_EVENT_CALL_DONE), MANY);
  assert_int_equal(a.last_status, HV_CANCELLED);
  assert_int_equal(f.closed, 1);
  assert_int_equal(f.status, HV_CANCELLED);
  assert_true(real_stop(&b) < 2000); /* with requests it has not answered, and bytes it holds */
  hv_payload_release(payload);
  real_stop(&a);
}

static int runs, runs_without_core;
static void count_run(hv_command *command, void *core) {
  (void)command;
  runs++;
  runs_without_core += core == NULL;
}

static void commands_run_once_and_are_refused_after_the_end(void **state) {
  (void)state;
  real_node a;
  real_start(&a, &(real_options){.seed = 1});
  static hv_command commands[1000];
  runs = runs_without_core = 0;
  for (int i = 0; i < 1000; i++) {
    commands[i].run = count_run;
    assert_int_equal(hv_loop_post(a.loop, &commands[i]), HV_OK);
  }
  hv_loop_stop(a.loop);
  hv_loop_stop(a.loop); /* twice is fine */
  assert_int_equal(runs, 1000);
  hv_command late = {.run = count_run};
  assert_int_equal(hv_loop_post(a.loop, &late), HV_CLOSED);
  real_stop(&a);
}

static void forked_child_is_refused_and_does_no_harm(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK);
  for (int i = 0; i < 5; i++) {
    pid_t child = fork();
    if (child == 0) {
      hv_command command = {.run = count_run};
      int right = hv_loop_forked(a.loop) && hv_loop_post(a.loop, &command) == HV_FORKED;
      hv_loop_stop(a.loop);
      hv_loop_free(a.loop);
      _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(real_echo(&a, &b.target, "x", 5000), HV_OK);
  }
  real_stop(&a);
  real_stop(&b);
}

/* ---- jobs ---- */

typedef struct test_job {
  hv_job job;
  atomic_int *ran;
  int ms;
} test_job;

static void job_run(hv_job *job) {
  test_job *t = (test_job *)job;
  nanosleep(&(struct timespec){.tv_nsec = t->ms * 1000000L}, NULL);
  atomic_fetch_add(t->ran, 1);
}

static atomic_int jobs_done, jobs_cancelled;
static void job_done(hv_job *job, const hv_event *event) {
  (void)job;
  atomic_fetch_add(event->status == HV_OK ? &jobs_done : &jobs_cancelled, 1);
}

static void give_jobs(real_node *node, void *arg) {
  test_job *jobs = arg;
  for (int i = 0; i < MANY; i++)
    node->env->work(node->env, &jobs[i].job);
}

static void a_job_is_done_once_or_cancelled_at_the_end(void **state) {
  (void)state;
  static test_job jobs[MANY];
  for (int slow = 0; slow < 2; slow++) {
    real_node a;
    atomic_int ran = 0;
    atomic_store(&jobs_done, 0);
    atomic_store(&jobs_cancelled, 0);
    real_start(&a, &(real_options){.seed = 1});
    for (int i = 0; i < MANY; i++)
      jobs[i] = (test_job){.job = {.run = job_run, .done = job_done, .owner = &a}, .ran = &ran, .ms = slow ? 100 : 0};
    real_do(&a, give_jobs, jobs);
    for (int i = 0; !slow && i < 5000 && atomic_load(&jobs_done) < MANY; i++)
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    unsigned ms = real_stop(&a);
    assert_true(ms < 2000);
    assert_int_equal(atomic_load(&jobs_done), atomic_load(&ran));
    assert_int_equal(atomic_load(&jobs_done) + atomic_load(&jobs_cancelled), MANY);
    assert_true(slow ? jobs_cancelled > 0 : jobs_cancelled == 0);
  }
}

/* ---- timers ---- */

enum { TIMERS = 500 };
typedef struct test_timer {
  hv_timer timer;
  uint64_t due_us;
  int fired;
} test_timer;
static test_timer timers[TIMERS];
static void an_idle_node_takes_almost_no_processor_time(void **state) {
  (void)state;
  real_node node;
  real_start(&node, &(real_options){.seed = 1});
  uint64_t before = real_spent_ms();
  usleep(1000000);
  assert_in_range(real_spent_ms() - before, 0, 100);
  real_stop(&node);
}

static int fired_in_order, n_fired;
static uint64_t last_due_us;

static void fire(hv_timer *timer, const hv_event *event) {
  test_timer *t = (test_timer *)timer;
  t->fired++;
  n_fired++;
  fired_in_order = fired_in_order && t->due_us >= last_due_us && event->now_us >= t->due_us;
  last_due_us = t->due_us;
}

static void set_timers(real_node *node, void *arg) {
  hv_env *env = node->env;
  check_rng *rng = arg;
  for (int i = 0; i < TIMERS; i++) {
    timers[i] = (test_timer){.timer.fire = fire};
    env->timer_set(env, &timers[i].timer, 0);
  }
  for (int i = 0; i < TIMERS; i++) { /* armed anew, some taken out */
    uint64_t delay = check_random(rng) % 200000;
    timers[i].due_us = env->now_us(env) + delay;
    env->timer_set(env, &timers[i].timer, delay);
    if (i % 5 == 0)
      env->timer_clear(env, &timers[i].timer);
  }
  env->timer_clear(env, &timers[0].timer);
}

static void timers_fire_once_in_order_and_not_when_cleared(void **state) {
  (void)state;
  real_node a;
  check_rng rng = {7};
  real_start(&a, &(real_options){.seed = 1});
  fired_in_order = 1;
  last_due_us = 0;
  n_fired = 0;
  real_do(&a, set_timers, &rng);
  nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
  real_stop(&a);
  assert_true(fired_in_order);
  assert_int_equal(n_fired, TIMERS - TIMERS / 5);
  for (int i = 0; i < TIMERS; i++)
    assert_int_equal(timers[i].fired, i % 5 ? 1 : 0);
}

/* ---- addresses ---- */

static void several_addresses_and_both_families_are_served(void **state) {
  (void)state;
  real_node a, b;
  hv_addr addrs[] = {real_addr("/ip4/127.0.0.1/tcp/0"), real_addr("/ip4/127.0.0.2/tcp/0"), real_addr("/ip6/::1/tcp/0")};
  size_t n_listen = real_has_ip6() ? 3 : 2;
  real_start(&a, &(real_options){.seed = 1, .listen = addrs, .n_listen = n_listen});
  real_start(&b, &(real_options){.seed = 2, .deaf = 1});
  size_t n;
  const hv_addr *at = hv_loop_addrs(a.loop, &n);
  assert_int_equal(n, n_listen);
  for (size_t i = 0; i < n; i++) {
    assert_int_not_equal(at[i].port, 0);
    hv_target to = {.id = a.target.id, .addr = at[i]};
    assert_int_equal(real_echo(&b, &to, "x", 5000), HV_OK);
  }
  hv_target by_name = {.addr = real_addr("localhost:1")};
  by_name.addr.port = at[0].port;
  assert_int_equal(real_echo(&b, &by_name, "x", 5000), HV_OK);
  real_stop(&a);
  real_stop(&b);
}

static void unspecified_address_is_announced_as_interface_addresses(void **state) {
  (void)state;
  real_node a, b;
  hv_addr addrs[] = {real_addr("/ip4/0.0.0.0/tcp/0"), real_addr("/ip6/::/tcp/0")};
  real_start(&a, &(real_options){.seed = 1, .listen = addrs, .n_listen = 2});
  real_start(&b, &(real_options){.seed = 2, .deaf = 1});
  size_t n;
  const hv_addr *at = hv_loop_addrs(a.loop, &n);
  int seen[HV_ADDR_DNS + 1] = {0};
  for (size_t i = 0; i < n; i++) {
    seen[at[i].kind] = 1;
    assert_false(hv_addr_is_unspecified(&at[i]));
    assert_int_equal(at[i].port, at[0].port);
    hv_target to = {.id = a.target.id, .addr = at[i]};
    assert_int_equal(real_echo(&b, &to, "x", 5000), HV_OK);
  }
  assert_int_equal(seen[HV_ADDR_IP4], 1);
  assert_int_equal(seen[HV_ADDR_IP6], real_has_ip6());
  real_stop(&a);
  real_stop(&b);
}

static void unspecified_ip6_is_announced_in_both_families(void **state) {
  (void)state;
  if (!real_has_ip6())
    return; /* nothing can listen on [::] here */
  hv_addr four = real_addr("/ip4/0.0.0.0/tcp/7"), six = real_addr("/ip6/::/tcp/7"), fours[8], both[8];
  size_t n_fours = 0, n_both = 0, n_few = 0;
  hv_listen_expand(&four, fours, &n_fours, 8);
  hv_listen_expand(&six, both, &n_both, 8);
  assert_int_equal(both[0].kind, HV_ADDR_IP6);
  for (size_t i = 0; i < n_fours && !hv_addr_is_loopback(&fours[0]); i++) {
    size_t at = 0;
    while (at < n_both && !hv_addr_equal(&both[at], &fours[i]))
      at++;
    assert_true(at < n_both || n_both == 8);
  }
  hv_addr few[2];
  hv_listen_expand(&six, few, &n_few, 2);
  if (!hv_addr_is_loopback(&fours[0])) { /* however few have a place, each family has one */
    assert_int_equal(n_few, 2);
    assert_int_equal(few[0].kind, HV_ADDR_IP6);
    assert_int_equal(few[1].kind, HV_ADDR_IP4);
  }
}

static void each_unspecified_address_alone_is_of_use(void **state) {
  (void)state;
  hv_addr addrs[] = {real_addr("/ip4/0.0.0.0/tcp/0"), real_addr("/ip6/::/tcp/0")};
  for (int i = 0; i < 2; i++) {
    real_node a, b;
    real_start(&a, &(real_options){.seed = 1, .listen = &addrs[i], .n_listen = 1});
    real_start(&b, &(real_options){.seed = 2, .deaf = 1});
    size_t n;
    const hv_addr *at = hv_loop_addrs(a.loop, &n);
    assert_true(n > 0); /* without IPv6, those of IPv4 */
    hv_target to = {.id = a.target.id, .addr = at[0]};
    assert_int_equal(real_echo(&b, &to, "x", 5000), HV_OK);
    real_stop(&a);
    real_stop(&b);
  }
}

static hv_status start_on(const hv_addr *addr, hv_error *err) {
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(&mem, (uint8_t[32]){9});
  hv_loop *loop = NULL;
  hv_status status = hv_loop_new(
      &(hv_loop_config){.mem = &mem, .identity = identity, .listen = addr, .n_listen = 1, .pool_threads = 1}, &loop, err);
  hv_loop_free(loop);
  hv_identity_free(identity);
  assert_int_equal(atomic_load(&mem.blocks), 0);
  return status;
}

static void a_port_in_use_is_named(void **state) {
  (void)state;
  real_node a;
  real_start(&a, &(real_options){.seed = 1});
  hv_error err = {0};
  char where[HV_ADDR_TEXT_MAX];
  assert_int_equal(start_on(&a.target.addr, &err), HV_IN_USE);
  assert_non_null(strstr(err.text, hv_addr_print_short(&a.target.addr, where)));
  real_stop(&a);
  assert_int_equal(start_on(&a.target.addr, &err), HV_OK); /* and free again at once */
}

static void an_address_of_another_machine_is_refused(void **state) {
  (void)state;
  hv_error err = {0};
  hv_addr foreign = real_addr("/ip4/192.0.2.7/tcp/0"), name = real_addr("/dns4/example.org/tcp/0");
  assert_int_equal(start_on(&foreign, &err), HV_INVALID);
  assert_non_null(strstr(err.text, "192.0.2.7"));
  assert_int_equal(start_on(&name, &err), HV_INVALID);
  hv_addr six = real_addr("/ip6/::1/tcp/0");
  assert_int_equal(start_on(&six, &err), real_has_ip6() ? HV_OK : HV_INVALID);
}

static hv_status start_in(hv_mem *mem, void *arg) {
  (void)arg;
  hv_identity *identity = hv_identity_from_seed(mem, (uint8_t[32]){9});
  if (!identity)
    return HV_NOMEM;
  hv_loop *loop = NULL;
  hv_addr addr = real_addr("/ip4/127.0.0.1/tcp/0");
  hv_status status = hv_loop_new(
      &(hv_loop_config){.mem = mem, .identity = identity, .listen = &addr, .n_listen = 1, .pool_threads = 1}, &loop, NULL);
  hv_loop_free(status == HV_OK ? loop : NULL);
  hv_identity_free(identity);
  return status;
}

static void a_start_without_memory_fails_clean(void **state) {
  (void)state;
  assert_true(check_out_of_memory(start_in, NULL) > 5);
}

int main(int argc, char **argv) {
  if (argc > 1)
    cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_echo_comes_back),
      cmocka_unit_test(bulk_bytes_arrive_whole_and_in_place),
      cmocka_unit_test(a_full_window_holds_the_sender_back_until_bytes_are_let_go),
      cmocka_unit_test(stream_that_waits_is_read_on_once_it_has_begun),
      cmocka_unit_test(a_refused_stream_ends_with_its_reason),
      cmocka_unit_test(call_to_a_closed_port_is_refused_with_the_address),
      cmocka_unit_test(another_key_than_expected_is_denied_naming_both),
      cmocka_unit_test(no_answer_is_a_timeout),
      cmocka_unit_test(lost_connection_is_reported_at_once),
      cmocka_unit_test(a_peer_that_came_back_is_reached_again),
      cmocka_unit_test(node_without_memory_ends_calls_and_serves_later_ones),
      cmocka_unit_test(a_stop_takes_under_2_s_with_calls_and_streams_in_flight),
      cmocka_unit_test(commands_run_once_and_are_refused_after_the_end),
      cmocka_unit_test(forked_child_is_refused_and_does_no_harm),
      cmocka_unit_test(a_job_is_done_once_or_cancelled_at_the_end),
      cmocka_unit_test(an_idle_node_takes_almost_no_processor_time),
      cmocka_unit_test(timers_fire_once_in_order_and_not_when_cleared),
      cmocka_unit_test(several_addresses_and_both_families_are_served),
      cmocka_unit_test(unspecified_address_is_announced_as_interface_addresses),
      cmocka_unit_test(unspecified_ip6_is_announced_in_both_families),
      cmocka_unit_test(each_unspecified_address_alone_is_of_use),
      cmocka_unit_test(a_port_in_use_is_named),
      cmocka_unit_test(an_address_of_another_machine_is_refused),
      cmocka_unit_test(a_start_without_memory_fails_clean),
  };
  return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
