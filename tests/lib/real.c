#include "lib/real.h"

#include "net/clock.h"
#include "net/transport/listen.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void note(real_node *node, const hv_event *event) {
  pthread_mutex_lock(&node->lock);
  node->events[event->kind]++;
  if (event->kind == HV_EVENT_PEER_DOWN)
    node->down = event->peer;
  if (event->kind == HV_EVENT_CALL_DONE || event->kind == HV_EVENT_STREAM_CLOSED) {
    node->last_status = event->status;
    node->last_peer = event->peer;
    node->last_cause = event->cause;
    strncpy(node->last_text, event->text, sizeof node->last_text - 1);
  }
  pthread_cond_broadcast(&node->changed);
  pthread_mutex_unlock(&node->lock);
}

void real_call_done(hv_call *call, const hv_event *event) {
  note(call->owner, event);
}

void real_data(hv_stream *stream, const hv_event *event) {
  real_node *node = stream->owner;
  uint64_t sum = 0;
  for (size_t i = 0; event->payload && i < event->payload->n_parts; i++)
    for (size_t k = 0; k < event->payload->parts[i].size; k++)
      sum += event->payload->parts[i].data[k];
  pthread_mutex_lock(&node->lock);
  node->bytes += event->payload ? event->payload->size : 0;
  node->stream_sum += sum;
  if (node->keep && event->payload && node->n_kept < 64)
    node->kept[node->n_kept++] = hv_payload_keep(event->payload);
  pthread_mutex_unlock(&node->lock);
  note(node, event);
}

static void stream_ready(hv_stream *stream, const hv_event *event) {
  note(stream->owner, event);
}

static void stream_closed(hv_stream *stream, const hv_event *event) {
  note(stream->owner, event);
}

static void answer(real_node *node, const hv_event *event) {
  hv_msg large = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(node->answer.data, node->answer.size)};
  node->env->reply(node->env, event->request, node->answer.size ? &large : event->msg);
}

static void step(void *self, const hv_event *event) {
  real_node *node = self;
  if (hv_event_dispatch(event))
    return;
  note(node, event);
  switch (event->kind) {
  case HV_EVENT_REQUEST:
    if (node->asked)
      node->asked(node, event);
    else if (!node->hold)
      answer(node, event);
    break;
  case HV_EVENT_STREAM_OPENED:
    if (!node->refuse) {
      event->stream->on = &node->swallow;
      event->stream->owner = node;
    }
    break;
  case HV_EVENT_COMMAND:
    event->command->run(event->command, node);
    break;
  case HV_EVENT_STOP:
    node->env->stopped(node->env);
    break;
  default:
    break;
  }
}

hv_addr real_addr(const char *text) {
  hv_addr addr;
  assert_int_equal(hv_addr_parse(hv_span_of(text, strlen(text)), &addr, NULL, NULL), HV_OK);
  return addr;
}

int real_has_ip6(void) {
  hv_addr six = real_addr("/ip6/::1/tcp/0");
  uint16_t port;
  int fd, error = hv_listen_bind(&six, &port, &fd);
  if (error == 0)
    close(fd);
  return error == 0;
}

void real_start(real_node *node, const real_options *options) {
  memset(node, 0, sizeof *node);
  hv_mem_init(&node->mem, NULL, HV_MEM_UNLIMITED);
  pthread_mutex_init(&node->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&node->changed, &attr);
  pthread_condattr_destroy(&attr);
  node->swallow = (hv_stream_events){options->data ? options->data : real_data, stream_ready, stream_closed, .heavy = 0};
  node->hold = options->hold;
  node->asked = options->asked;
  node->refuse = options->refuse;
  node->keep = options->keep;
  hv_buf_init(&node->answer, &node->mem, options->answer);
  uint8_t *room;
  if (options->answer)
    assert_int_equal(hv_buf_reserve(&node->answer, options->answer, &room), HV_OK);
  if (options->answer)
    memset(room, 'a', node->answer.size = options->answer);
  uint8_t seed[32] = {options->seed};
  node->identity = hv_identity_from_seed(&node->mem, seed);
  node->log = hv_log_new(&node->mem, 256, HV_LOG_DEBUG);
  assert_non_null(node->identity);
  assert_non_null(node->log);
  hv_addr loopback = real_addr("/ip4/127.0.0.1/tcp/0");
  hv_loop_config config = {.mem = &node->mem,
                           .log = node->log,
                           .identity = node->identity,
                           .insecure = options->insecure,
                           .credentials = options->credentials,
                           .versions = options->versions,
                           .listen = options->listen ? options->listen : &loopback,
                           .n_listen = options->deaf     ? 0
                                       : options->listen ? options->n_listen
                                                         : 1,
                           .greeting_ms = options->greeting_ms,
                           .answer_ms = options->answer_ms,
                           .lanes = options->lanes,
                           .pool_threads = 2};
  hv_error err = {0};
  hv_status status = hv_loop_new(&config, &node->loop, &err);
  if (status != HV_OK)
    print_error("%s\n", err.text);
  assert_int_equal(status, HV_OK);
  node->env = hv_loop_env(node->loop);
  size_t n;
  const hv_addr *addrs = hv_loop_addrs(node->loop, &n);
  node->target.id = *hv_identity_peer(node->identity);
  if (n)
    node->target.addr = addrs[0];
  assert_int_equal(hv_loop_run(node->loop, &(hv_core){node, step}, &err), HV_OK);
}

uint64_t real_spent_ms(void) {
  struct timespec t;
  assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

unsigned real_stop(real_node *node) {
  uint64_t before = hv_clock_us();
  hv_loop_stop(node->loop);
  unsigned ms = (unsigned)((hv_clock_us() - before) / 1000);
  for (int i = 0; i < node->n_kept; i++)
    hv_payload_release(node->kept[i]);
  hv_loop_free(node->loop);
  hv_log_free(node->log);
  hv_buf_fini(&node->answer);
  hv_identity_free(node->identity);
  assert_int_equal(atomic_load(&node->mem.blocks), 0);
  pthread_cond_destroy(&node->changed);
  pthread_mutex_destroy(&node->lock);
  return ms;
}

typedef struct errand {
  hv_command command; /* first */
  void (*f)(real_node *node, void *arg);
  void *arg;
  real_node *node;
  int done;
} errand;

static void run_errand(hv_command *command, void *core) {
  errand *e = (errand *)command;
  if (core)
    e->f(core, e->arg);
  pthread_mutex_lock(&e->node->lock);
  e->done = 1;
  pthread_cond_broadcast(&e->node->changed);
  pthread_mutex_unlock(&e->node->lock);
}

void real_do(real_node *node, void (*f)(real_node *node, void *arg), void *arg) {
  errand e = {.command.run = run_errand, .f = f, .arg = arg, .node = node};
  assert_int_equal(hv_loop_post(node->loop, &e.command), HV_OK);
  pthread_mutex_lock(&node->lock);
  while (!e.done)
    pthread_cond_wait(&node->changed, &node->lock);
  pthread_mutex_unlock(&node->lock);
}

int real_wait(real_node *node, int (*test)(real_node *node), unsigned ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += ms / 1000;
  until.tv_nsec += ms % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&node->lock);
  int good, late = 0;
  while (!(good = test(node)) && !late)
    late = pthread_cond_timedwait(&node->changed, &node->lock, &until) == ETIMEDOUT;
  pthread_mutex_unlock(&node->lock);
  return good;
}

int real_count(real_node *node, hv_event_kind kind) {
  pthread_mutex_lock(&node->lock);
  int count = node->events[kind];
  pthread_mutex_unlock(&node->lock);
  return count;
}

int real_wait_for(real_node *node, hv_event_kind kind, int count, unsigned ms) {
  for (uint64_t until = hv_clock_us() + ms * (uint64_t)1000;;) {
    if (real_count(node, kind) >= count)
      return 1;
    if (hv_clock_us() > until)
      return 0;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

typedef struct echo_call {
  hv_call call;
  real_node *node;
  const char *text;
  hv_status status; /* under the lock of the node; last_status may be that of a stream */
} echo_call;

static void echo_done(hv_call *call, const hv_event *event) {
  echo_call *e = HV_HOLDER(echo_call, call, call);
  pthread_mutex_lock(&e->node->lock);
  e->status = event->status;
  pthread_mutex_unlock(&e->node->lock);
  note(e->node, event);
}

static void ask_echo(real_node *node, void *arg) {
  echo_call *e = arg;
  e->call.done = echo_done;
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(e->text, strlen(e->text))};
  e->status = node->env->call(node->env, &e->call, &msg);
}

hv_status real_echo(real_node *node, const hv_target *to, const char *text, uint32_t timeout_ms) {
  echo_call e = {.call = {.to = *to, .timeout_ms = timeout_ms}, .node = node, .text = text};
  int before = real_count(node, HV_EVENT_CALL_DONE);
  real_do(node, ask_echo, &e);
  if (e.status != HV_OK)
    return e.status;
  assert_true(real_wait_for(node, HV_EVENT_CALL_DONE, before + 1, timeout_ms + 5000));
  pthread_mutex_lock(&node->lock);
  hv_status status = e.status;
  pthread_mutex_unlock(&node->lock);
  return status;
}

void real_ask(real_node *node, void *call) {
  hv_msg msg = {.kind = HV_MSG_ECHO};
  assert_int_equal(node->env->call(node->env, call, &msg), HV_OK);
}
