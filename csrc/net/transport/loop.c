#include "net/transport/loop.h"

#include "net/transport/door.h"
#include "net/transport/listen.h"
#include "net/transport/world.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TICK_US = 1000000 };

/* ---- hv_env ---- */

static uint64_t env_now(hv_env *env) {
  hv_loop *loop = env->world;
  return loop->phase == HV_PHASE_NEW ? hv_clock_us() : loop->now_us;
}

static void env_random(hv_env *env, void *out, size_t size) {
  (void)env;
  hv_random(out, size);
}

static void env_timer_set(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  hv_loop *loop = env->world;
  if (loop->phase >= HV_PHASE_ENDING)
    return;
  uint64_t now = env_now(env);
  hv_timers_set(&loop->timers, timer, delay_us < UINT64_MAX - now ? now + delay_us : UINT64_MAX - 1);
}

static void env_timer_clear(hv_env *env, hv_timer *timer) {
  hv_loop *loop = env->world;
  if (loop->phase < HV_PHASE_ENDING)
    hv_timers_clear(&loop->timers, timer);
}

static void env_work(hv_env *env, hv_job *job) {
  hv_loop *loop = env->world;
  if (loop->phase >= HV_PHASE_ENDED)
    return;
  loop->n_jobs++;
  if (loop->phase < HV_PHASE_ENDING) {
    hv_pool_give(loop->pool, job);
    return;
  }
  job->next = loop->never_ran; /* the end delivers it, cancelled */
  loop->never_ran = job;
}

static void env_stopped(hv_env *env) {
  hv_loop *loop = env->world;
  loop->finished = 1;
}

static void env_forget(hv_env *env, const hv_target *to) {
  hv_loop *loop = env->world;
  hv_links_forget(loop, to);
  if (hv_peer_is_known(&to->id))
    hv_streams_cancel_peer(loop, &to->id);
}

/* Ends the connections, streams and calls of peers that the closed swarm does not admit any more. */
static void judge_again(hv_loop *loop) {
  loop->next_end_s = INT64_MAX;
  hv_links_deny(loop);
  hv_calls_deny(loop);
  hv_streams_deny(loop);
}

static hv_status env_deny(hv_env *env, hv_span list) {
  hv_loop *loop = env->world;
  hv_status status = hv_trust_swarm_deny(hv_grpc_swarm(loop->grpc), list);
  if (status != HV_OK)
    return status;
  judge_again(loop);
  int64_t told_s = hv_clock_unix_s() + HV_TRUST_TELL_MS / 1000; /* then the connections by which denied peers were told end */
  loop->next_end_s = told_s < loop->next_end_s ? told_s : loop->next_end_s;
  return HV_OK;
}

void hv_loop_limit_upload(hv_loop *loop, uint64_t rate) {
  hv_bulk_set_rate(&loop->bulk, rate, hv_clock_us());
}

hv_status hv_loop_renew(hv_loop *loop, const hv_credentials *credentials) {
  hv_status status = hv_grpc_renew(loop->grpc, loop->identity, credentials);
  if (status != HV_OK)
    return status;
  hv_trust_swarm_renew(hv_grpc_swarm(loop->grpc), &credentials->admission.me);
  hv_links_retire(loop);
  return HV_OK;
}

static int64_t env_unix_s(hv_env *env) {
  (void)env;
  return hv_clock_unix_s();
}

static void env_sha256(hv_env *env, hv_span bytes, hv_hash *out) {
  (void)env;
  hv_identity_sha256(bytes, out);
}

static hv_status env_sign(hv_env *env, const char *domain, hv_span bytes, uint8_t out[64]) {
  return hv_identity_sign(((hv_loop *)env->world)->identity, domain, bytes, out);
}

static int env_verify(hv_env *env, const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]) {
  (void)env;
  return hv_identity_verify(peer, domain, bytes, signature);
}

/* ---- making ---- */

static void ring_bell(void *arg) {
  hv_grpc_wake(((hv_loop *)arg)->grpc);
}

static void job_ran(void *arg, hv_job *job) {
  hv_inbox_put_job(&((hv_loop *)arg)->inbox, job);
}

/* The server, and the door that gives it its connections; neither of both for a node that only dials out. */
static hv_status make_door(hv_loop *loop, const hv_loop_config *config, hv_error *err) {
  if (config->n_listen == 0)
    return HV_OK;
  hv_door_config door = {.mem = loop->mem,
                         .log = loop->log,
                         .insecure = loop->insecure,
                         .greeting_ms = config->greeting_ms ? config->greeting_ms : HV_LOOP_GREETING_MS,
                         .known = config->connections,
                         .take = hv_grpc_take,
                         .arg = loop->grpc};
  hv_status status = hv_grpc_make_server(loop->grpc, err);
  return status == HV_OK ? hv_door_new(&door, &loop->door, err) : status;
}

/* Writes the addresses at which the node listens now, and returns their number. */
static size_t here(const hv_loop *loop, hv_addr out[HV_LOOP_ADDRS_MAX]) {
  size_t n = 0;
  for (size_t i = 0; i < loop->n_bound; i++)
    hv_listen_expand(&loop->bound[i], out, &n, HV_LOOP_ADDRS_MAX);
  return n;
}

static hv_status bind_all(hv_loop *loop, const hv_loop_config *config, hv_error *err) {
  if (config->n_listen > HV_LOOP_LISTEN_MAX)
    return hv_fail(err, HV_INVALID, "cannot listen on so many addresses: the limit is %d; give fewer", HV_LOOP_LISTEN_MAX);
  uint16_t ports[HV_LOOP_LISTEN_MAX];
  for (size_t i = 0; i < config->n_listen; i++) {
    hv_addr addr = config->listen[i];
    if (!hv_listen_covered(config->listen, i, &addr, ports, &addr.port)) {
      hv_status status = hv_door_listen(loop->door, &addr, &addr.port, err);
      if (status != HV_OK)
        return status;
    }
    ports[i] = addr.port;
    loop->bound[loop->n_bound++] = addr;
  }
  loop->n_addrs = here(loop, loop->addrs);
  return HV_OK;
}

static void fill_env(hv_loop *loop) {
  loop->env = (hv_env){
      .world = loop,
      .mem = loop->mem,
      .log = loop->log,
      .spoken = &loop->spoken,
      .now_us = env_now,
      .unix_s = env_unix_s,
      .random = env_random,
      .timer_set = env_timer_set,
      .timer_clear = env_timer_clear,
      .call = hv_calls_ask,
      .call_cancel = hv_calls_cancel,
      .reply = hv_calls_reply,
      .stream_open = hv_streams_open,
      .stream_send = hv_streams_send,
      .stream_end = hv_streams_finish,
      .stream_cancel = hv_streams_cancel,
      .stream_pace = hv_streams_pace,
      .stream_wait = hv_streams_wait,
      .work = env_work,
      .stopped = env_stopped,
      .forget = env_forget,
      .deny = env_deny,
      .sha256 = env_sha256,
      .sign = env_sign,
      .verify = env_verify,
  };
}

hv_status hv_loop_new(const hv_loop_config *config, hv_loop **out, hv_error *err) {
  hv_loop *loop = hv_mem_zalloc(config->mem, sizeof *loop);
  if (!loop)
    return hv_fail(err, HV_NOMEM, "cannot start a node: no memory; raise the memory limit");
  loop->mem = config->mem;
  loop->log = config->log;
  loop->identity = config->identity;
  loop->insecure = config->insecure;
  loop->ended = config->ended;
  loop->arg = config->arg;
  loop->greeting_us = (config->greeting_ms ? config->greeting_ms : HV_LOOP_GREETING_MS) * (uint64_t)1000;
  loop->answer_us = (config->answer_ms ? config->answer_ms : HV_LOOP_ANSWER_MS) * (uint64_t)1000;
  loop->lanes = config->lanes < HV_LANES_MAX ? config->lanes : HV_LANES_MAX;
  loop->pid = getpid();
  hv_inbox_init(&loop->inbox, ring_bell, loop);
  hv_callers_init(&loop->callers, loop->mem);
  hv_sockets_init(&loop->sockets, loop->mem);
  hv_bulk_init(&loop->bulk, &loop->deadlines);
  hv_buf_init(&loop->scratch, loop->mem, HV_GRPC_MESSAGE_MAX);
  hv_buf_init(&loop->outgoing, loop->mem, HV_GRPC_MESSAGE_MAX);
  pthread_mutex_init(&loop->stop_lock, NULL);
  atomic_init(&loop->stopping, 0);
  atomic_init(&loop->joined, 0);
  hv_ring *rings[] = {&loop->links,     &loop->greeting,         &loop->asked_of_us,
                      &loop->answering, &loop->streams_greeting, &loop->streams_open};
  for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
    hv_ring_init(rings[i]);
  loop->next_end_s = INT64_MAX;
  fill_env(loop);
  hv_roam_init(&loop->roam);
  hv_status status = hv_spoken_init(&loop->spoken, loop->mem, &config->versions);
  if (status != HV_OK)
    hv_fail(err, status, "cannot start a node: versions %u to %u of the protocol are no range; use 1 or more, the lowest first",
            config->versions.lowest, config->versions.highest);
  if (status == HV_OK)
    status = hv_grpc_new(loop->mem, loop->identity, config->credentials, loop->insecure, &loop->grpc, err);
  if (status == HV_OK)
    loop->env.admission = hv_trust_swarm_admission(hv_grpc_swarm(loop->grpc));
  if (status == HV_OK)
    status = make_door(loop, config, err);
  if (status == HV_OK)
    status = bind_all(loop, config, err);
  if (status == HV_OK)
    status = hv_pool_new(loop->mem, config->pool_threads, job_ran, loop, &loop->pool, err);
  if (status != HV_OK) {
    hv_loop_free(loop);
    return status;
  }
  *out = loop;
  return HV_OK;
}

hv_env *hv_loop_env(hv_loop *loop) {
  return &loop->env;
}

const hv_addr *hv_loop_addrs(const hv_loop *loop, size_t *n) {
  *n = loop->n_addrs;
  return loop->addrs;
}

int hv_loop_forked(const hv_loop *loop) {
  return loop->pid != getpid();
}

int hv_loop_inside(const hv_loop *loop) {
  return loop->threaded && !atomic_load(&loop->joined) && pthread_equal(pthread_self(), loop->thread);
}

/* ---- the hive thread ---- */

static void job_done(hv_loop *loop, hv_job *job, hv_status status) {
  hv_event event = {.kind = HV_EVENT_WORK_DONE, .job = job, .status = status};
  job->next = NULL;
  loop->n_jobs--;
  hv_loop_deliver(loop, &event);
}

static void cancel_jobs(hv_loop *loop, hv_job *list) {
  for (hv_job *next; list; list = next) {
    next = list->next;
    job_done(loop, list, HV_CANCELLED);
  }
}

static void run_inbox(hv_loop *loop) {
  hv_inbox_load load;
  if (!hv_inbox_take(&loop->inbox, 0, &load))
    return;
  for (hv_note *note = load.notes, *next; note; note = next) {
    next = note->next;
    note->run(note);
  }
  for (hv_job *job = load.jobs, *next; job; job = next) {
    next = job->next;
    job_done(loop, job, HV_OK);
  }
  for (hv_command *command = load.commands, *next; command; command = next) {
    next = command->next;
    command->next = NULL;
    hv_event event = {.kind = HV_EVENT_COMMAND, .command = command};
    hv_loop_deliver(loop, &event);
  }
}

static void look_for_moves(hv_loop *loop) {
  hv_roam_news news;
  if (!hv_roam_look(&loop->roam, &news) || loop->phase != HV_PHASE_RUNNING)
    return;
  hv_addr addrs[HV_LOOP_ADDRS_MAX];
  hv_event event = {.kind = HV_EVENT_NETWORK, .addrs = addrs, .n_addrs = here(loop, addrs)};
  hv_log_write(loop->log, loop->now_us, HV_LOG_INFO, "net", "network_changed", "%s: connecting to the peers again",
               news.slept ? "this machine slept" : "this machine's addresses changed");
  if (loop->door)
    hv_door_part(loop->door, &news);
  hv_links_part(loop, &news);
  hv_loop_deliver(loop, &event);
}

static void run_timers(hv_loop *loop) {
  uint64_t now = hv_clock_us();
  for (hv_timer *timer; (timer = hv_timers_take(&loop->timers, now));) {
    hv_event event = {.kind = HV_EVENT_TIMER, .timer = timer};
    hv_loop_deliver(loop, &event);
  }
  for (hv_timer *deadline; (deadline = hv_timers_take(&loop->deadlines, now));)
    deadline->fire(deadline, NULL);
  if (now < loop->tick_us)
    return;
  loop->tick_us = now + TICK_US;
  loop->now_us = now;
  look_for_moves(loop);
  if (loop->next_end_s < hv_clock_unix_s())
    judge_again(loop);
  hv_links_tick(loop);
  hv_calls_tick(loop);
  hv_streams_tick(loop);
  hv_callers_sweep(&loop->callers, now);
}

static void turn(hv_loop *loop, uint64_t until_us) {
  uint64_t next = hv_timers_next(&loop->timers), deadline = hv_timers_next(&loop->deadlines);
  if (deadline < next)
    next = deadline;
  if (loop->tick_us < next)
    next = loop->tick_us;
  hv_grpc_poll(loop->grpc, next < until_us ? next : until_us);
  run_inbox(loop);
  run_timers(loop);
}

/* Calls and jobs end with HV_CANCELLED, streams are closed; whatever is on its way through gRPC comes back first. */
static void end(hv_loop *loop) {
  loop->phase = HV_PHASE_ENDING;
  loop->timers = (hv_timers){0};
  hv_links_forget(loop, NULL);
  hv_streams_end(loop);
  if (loop->door)
    hv_door_close(loop->door);
  hv_grpc_stop_serving(loop->grpc);
  cancel_jobs(loop, hv_pool_stop(loop->pool));
  while (loop->n_asked || loop->n_streams || loop->n_jobs) {
    run_inbox(loop);
    hv_job *late = loop->never_ran;
    loop->never_ran = NULL;
    cancel_jobs(loop, late);
    if (loop->n_asked || loop->n_streams)
      hv_grpc_poll(loop->grpc, hv_clock_us() + 10000);
  }
  loop->phase = HV_PHASE_ENDED;
  hv_calls_end(loop);
  hv_inbox_load left;
  hv_inbox_take(&loop->inbox, 1, &left);
  for (hv_note *note = left.notes, *next; note; note = next) {
    next = note->next;
    note->run(note);
  }
  for (hv_command *command = left.commands, *next; command; command = next) {
    next = command->next;
    command->next = NULL;
    command->run(command, NULL);
  }
}

static void *live(void *arg) {
  hv_loop *loop = arg;
  loop->phase = HV_PHASE_RUNNING;
  loop->tick_us = hv_clock_us() + TICK_US;
  hv_calls_accept(loop);
  hv_streams_accept(loop);
  hv_event start = {.kind = HV_EVENT_START, .addrs = loop->addrs, .n_addrs = loop->n_addrs};
  hv_loop_deliver(loop, &start);
  while (!atomic_load(&loop->stopping))
    turn(loop, UINT64_MAX);
  loop->phase = HV_PHASE_LEAVING;
  hv_event stop = {.kind = HV_EVENT_STOP};
  hv_loop_deliver(loop, &stop);
  uint64_t until = hv_clock_us() + HV_LOOP_GRACE_MS * 1000;
  while (!loop->finished && hv_clock_us() < until)
    turn(loop, until);
  end(loop);
  if (loop->ended)
    loop->ended(loop->arg, "the node was shut down");
  return NULL;
}

hv_status hv_loop_run(hv_loop *loop, const hv_core *core, hv_error *err) {
  loop->core = *core;
  hv_grpc_serve(loop->grpc); /* what comes now waits for the thread */
  if (loop->door && hv_door_open(loop->door, err) != HV_OK)
    return HV_IO;
  int error = pthread_create(&loop->thread, NULL, live, loop);
  if (error)
    return hv_fail(err, HV_IO, "cannot start the hive thread: %s; raise the limit on processes (ulimit -u)", strerror(error));
  loop->threaded = 1;
  return HV_OK;
}

hv_status hv_loop_post(hv_loop *loop, hv_command *command) {
  if (hv_loop_forked(loop))
    return HV_FORKED;
  return hv_inbox_put_command(&loop->inbox, command);
}

void hv_loop_stop(hv_loop *loop) {
  if (hv_loop_forked(loop) || !loop->threaded)
    return;
  atomic_store(&loop->stopping, 1);
  hv_inbox_ring(&loop->inbox);
  if (hv_loop_inside(loop))
    return;
  pthread_mutex_lock(&loop->stop_lock); /* whoever comes second waits here for the first */
  if (!atomic_load(&loop->joined))
    pthread_join(loop->thread, NULL);
  atomic_store(&loop->joined, 1);
  pthread_mutex_unlock(&loop->stop_lock);
}

void hv_loop_free(hv_loop *loop) {
  if (!loop || hv_loop_forked(loop))
    return;
  hv_loop_stop(loop);
  if (loop->pool) {
    if (!loop->threaded)
      hv_pool_stop(loop->pool);
    hv_pool_free(loop->pool);
  }
  hv_inbox_load left;
  hv_inbox_take(&loop->inbox, 1, &left);
  loop->phase = HV_PHASE_ENDED;
  hv_door_free(loop->door);
  size_t lent = loop->grpc ? hv_grpc_free(loop->grpc) : 0;
  if (lent)
    hv_log_write(loop->log, hv_clock_us(), HV_LOG_WARN, "net", "left_behind",
                 "node stopped while gRPC still held %zu payloads: their memory is freed when gRPC releases them", lent);
  hv_callers_fini(&loop->callers);
  hv_spoken_fini(&loop->spoken);
  hv_sockets_forget(&loop->sockets);
  hv_buf_fini(&loop->scratch);
  hv_buf_fini(&loop->outgoing);
  hv_inbox_fini(&loop->inbox);
  pthread_mutex_destroy(&loop->stop_lock);
  hv_mem_free(loop);
}
