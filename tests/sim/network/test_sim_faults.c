/* What happens when a node dies, stops, comes back, or its clock is wrong? At every moment there is. */
#include "lib/check.h"

#include "lib/mixer.h"

#include <string.h>

enum { NODES = 4 };

typedef struct run {
  hv_mem mem;
  hv_sim *sim;
  mixer_seat seats[NODES];
  hv_target peers[NODES];
} run;

static void begin(run *r, uint32_t every_ms) {
  memset(r, 0, sizeof *r);
  hv_sim_config config = hv_sim_defaults(11);
  config.link.rate = 1 << 20; /* so that streams take their time */
  config.window = 200000;
  mixer_narrate(&config);
  hv_mem_init(&r->mem, NULL, HV_MEM_UNLIMITED);
  for (int i = 0; i < NODES; i++)
    r->seats[i] = (mixer_seat){.every_ms = every_ms, .timeout_ms = 800, .piece = 30000};
  r->sim = hv_sim_new(&r->mem, &config);
  assert_int_equal(mixer_add_all(r->sim, r->seats, r->peers, NODES), HV_OK);
}

static void until(run *r, double seconds) {
  hv_sim_run_until(r->sim, (uint64_t)(seconds * 1e6));
}

static void finish(run *r) {
  assert_int_equal(hv_sim_leaks(r->sim), 0);
  for (int i = 0; i < NODES; i++)
    assert_int_equal(r->seats[i].wrong, 0);
  assert_int_equal(hv_sim_free(r->sim), 0);
  assert_int_equal(atomic_load(&r->mem.blocks), 0);
}

/* Nobody is left hanging: once all have been told to stop, all end, in their grace. */
static void stop_all(run *r) {
  for (size_t i = 0; i < NODES; i++)
    hv_sim_stop(r->sim, i);
  hv_sim_run_until(r->sim, hv_sim_now(r->sim) + 600000);
  for (size_t i = 0; i < NODES; i++)
    assert_false(hv_sim_alive(r->sim, i));
}

/* Kills node 1 (or whoever's event it is) at the n-th event; later it comes back. */
static void killed_at_every_event(size_t victim, int after) {
  run r;
  begin(&r, 300);
  until(&r, 2);
  uint64_t events = hv_sim_count(r.sim).events;
  finish(&r);
  assert_true(events > 150);
  for (uint64_t n = 1; n <= events; n++) {
    begin(&r, 300);
    hv_sim_kill_at_event(r.sim, victim, n, after);
    until(&r, 2);
    assert_int_equal(hv_sim_leaks(r.sim), 0);
    size_t dead = 0;
    for (size_t i = 0; i < NODES; i++)
      if (!hv_sim_alive(r.sim, i)) {
        dead++;
        assert_true(victim == HV_SIM_ANY || i == victim);
        assert_int_equal(hv_sim_restart(r.sim, i), HV_OK);
      }
    assert_int_equal(dead, 1);
    until(&r, 3);
    stop_all(&r);
    finish(&r);
  }
}

static void a_node_killed_before_any_event_leaves_nothing(void **state) {
  (void)state;
  killed_at_every_event(1, 0);
}

static void a_node_killed_after_any_event_leaves_nothing(void **state) {
  (void)state;
  killed_at_every_event(1, 1);
}

static void a_node_killed_by_its_own_event_leaves_nothing(void **state) {
  (void)state;
  killed_at_every_event(HV_SIM_ANY, 0);
  killed_at_every_event(HV_SIM_ANY, 1);
}

/* The same over the end of a node: STOP, grace, the last completions. */
static void a_node_killed_at_any_event_of_its_end_leaves_nothing(void **state) {
  (void)state;
  for (uint64_t n = 0; n < 120; n++) {
    run r;
    begin(&r, 300);
    until(&r, 1.5);
    uint64_t now = hv_sim_count(r.sim).events;
    hv_sim_stop(r.sim, 1);
    hv_sim_kill_at_event(r.sim, 1, now + n / 2, n & 1);
    until(&r, 2.5);
    assert_false(hv_sim_alive(r.sim, 1));
    finish(&r);
  }
}

/* A core that tries everything while it is freed: its world is dead by then. */
typedef struct stubborn {
  hv_env *env;
  hv_target to;
  hv_timer timer;
  hv_call call, other;
  hv_job job;
  hv_stream *stream, *one_more;
  hv_request *request;
  hv_sim *sim;
  int kills_itself, events, freed;
  hv_status call_status, open_status, send_status, sign_status;
} stubborn;

static void no_call(hv_call *call, const hv_event *event) {
  (void)call, (void)event;
  fail_msg("a dead node was called back");
}
static void no_timer(hv_timer *timer, const hv_event *event) {
  (void)timer, (void)event;
  fail_msg("a timer of a dead node fired");
}
static void no_stream(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
  fail_msg("a stream of a dead node had an event");
}
static void no_run(hv_job *job) {
  (void)job;
  fail_msg("a job of a dead node ran");
}
static void no_job(hv_job *job, const hv_event *event) {
  (void)job, (void)event;
  fail_msg("a job of a dead node was done");
}
static const hv_stream_events no_events = {no_stream, no_stream, no_stream, .heavy = 0};

static void step_stubborn(void *self, const hv_event *event) {
  stubborn *s = self;
  hv_msg msg = {.kind = HV_MSG_ECHO}, first = {.kind = HV_MSG_PARCEL};
  s->events++;
  if (event->kind == HV_EVENT_START) {
    s->env->call(s->env, &s->call, &msg);
    s->env->timer_set(s->env, &s->timer, 5000000);
    s->env->stream_open(s->env, &s->to, &first, &no_events, s, &s->stream);
  } else if (event->kind == HV_EVENT_REQUEST) {
    s->request = event->request;
    s->env->work(s->env, &s->job);
    if (s->kills_itself == 1)
      hv_sim_kill(s->sim, 1);
    if (s->kills_itself == 2)
      hv_sim_unplug(s->sim, 1);
  } else {
    fail_msg("an event that should not come: %d", (int)event->kind);
  }
}

static hv_status make_stubborn(hv_env *env, void *arg, hv_core *out) {
  stubborn *s = arg;
  s->env = env;
  *out = (hv_core){s, step_stubborn};
  return HV_OK;
}

static void free_stubborn(void *self) {
  stubborn *s = self;
  hv_env *env = s->env;
  hv_msg msg = {.kind = HV_MSG_ECHO}, first = {.kind = HV_MSG_PARCEL};
  uint8_t signature[64];
  s->freed++;
  s->call_status = env->call(env, &s->other, &msg);
  s->open_status = env->stream_open(env, &s->to, &first, &no_events, s, &s->one_more);
  s->send_status = env->stream_send(env, s->stream, &first, NULL);
  s->sign_status = env->sign(env, "hv:test", hv_span_of("x", 1), signature);
  env->call_cancel(env, &s->call);
  env->stream_end(env, s->stream);
  env->stream_cancel(env, s->stream);
  env->timer_set(env, &s->timer, 1);
  env->timer_clear(env, &s->timer);
  env->work(env, &s->job);
  env->forget(env, &s->to);
  env->stopped(env);
  if (s->request)
    env->reply(env, s->request, &msg);
}

static hv_status add(hv_sim *sim, hv_status (*make)(hv_env *, void *, hv_core *), void (*let_go)(void *), void *arg) {
  return hv_sim_add(sim, &(hv_sim_node_config){.make = make, .free = let_go, .arg = arg}, NULL);
}

static void the_world_of_a_dead_node_does_nothing(void **state) {
  (void)state;
  for (int how = 0; how < 3; how++) { /* killed from outside; by itself; unplugged by itself */
    hv_mem mem;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_sim_config config = hv_sim_defaults(4);
    config.job_us = 100000000;
    hv_sim *sim = hv_sim_new(&mem, &config);
    hv_target peers[3] = {hv_sim_target(sim, 0), hv_sim_target(sim, 1), hv_sim_target(sim, 2)};
    mixer_seat quiet = {.every_ms = 3600000, .timeout_ms = 1000, .calls_only = 1, .peers = peers, .n_peers = 2};
    mixer_seat asker = {.every_ms = 20, .timeout_ms = 1000, .calls_only = 1, .peers = &peers[1], .n_peers = 1, .me = 2};
    stubborn s = {
        .sim = sim, .to = peers[0], .timer = {.fire = no_timer}, .job = {.run = no_run, .done = no_job}, .kills_itself = how};
    s.call = s.other = (hv_call){.done = no_call, .to = {.addr = peers[0].addr}, .timeout_ms = 60000};
    assert_int_equal(add(sim, mixer_make, mixer_free, &quiet), HV_OK);
    assert_int_equal(add(sim, make_stubborn, free_stubborn, &s), HV_OK);
    assert_int_equal(add(sim, mixer_make, mixer_free, &asker), HV_OK);
    hv_sim_set_link(sim, 0, 1, &(hv_sim_link){.delay_us = 30000000}); /* so that all it began is still under way */
    hv_sim_run_until(sim, 100000);
    if (how == 0)
      hv_sim_kill(sim, 1);
    hv_sim_run_until(sim, 100000000);
    assert_false(hv_sim_alive(sim, 1));
    assert_int_equal(s.freed, 1);
    assert_true(s.events >= 2);
    assert_int_equal(s.call_status, HV_CLOSED);
    assert_int_equal(s.open_status, HV_CLOSED);
    assert_int_equal(s.send_status, HV_CLOSED);
    assert_int_equal(s.sign_status, HV_CLOSED);
    assert_int_equal(asker.seen.downs, how == 2 ? 0 : 1); /* of one that is unplugged nobody is told */
    assert_int_equal(hv_sim_free(sim), 0);
    assert_int_equal(atomic_load(&mem.blocks), 0);
  }
}

static void dialled_peers_know_of_a_kill_at_once_and_others_by_asking(void **state) {
  (void)state;
  run r;
  begin(&r, 300);
  until(&r, 5);
  hv_sim_kill(r.sim, 1);
  until(&r, 5.05);
  for (int i = 0; i < NODES; i++)
    assert_int_equal(r.seats[i].seen.downs, i != 1);
  until(&r, 8);
  assert_int_equal(r.seats[0].last_failure, HV_REFUSED);
  assert_int_equal(r.seats[0].seen.timeouts, 0);
  stop_all(&r);
  finish(&r);
}

static void an_unplugged_node_is_only_missed(void **state) {
  (void)state;
  run r;
  begin(&r, 300);
  until(&r, 5);
  hv_sim_unplug(r.sim, 1);
  until(&r, 10);
  assert_int_equal(r.seats[0].seen.downs + r.seats[0].seen.failed + r.seats[0].seen.streams_broken, 0);
  assert_int_equal(r.seats[0].last_failure, HV_TIMEOUT);
  until(&r, 60);
  assert_true(r.seats[0].seen.streams_broken > 0); /* no sign of life for too long */
  stop_all(&r);
  finish(&r);
}

static void a_restarted_node_is_the_same_peer_with_a_fresh_core(void **state) {
  (void)state;
  run r;
  begin(&r, 300);
  until(&r, 5);
  hv_peer_id before = hv_sim_target(r.sim, 1).id;
  assert_int_equal(hv_sim_restart(r.sim, 1), HV_STATE); /* it lives */
  hv_sim_kill(r.sim, 1);
  assert_null(hv_sim_core(r.sim, 1));
  until(&r, 6);
  uint64_t answered = r.seats[1].seen.answered;
  assert_int_equal(hv_sim_restart(r.sim, 1), HV_OK);
  until(&r, 12);
  assert_int_equal(r.seats[1].seen.starts, 2);
  assert_true(r.seats[1].seen.answered > answered + 5);
  hv_peer_id after = hv_sim_target(r.sim, 1).id;
  assert_true(hv_peer_equal(&before, &after));
  uint64_t failed = r.seats[0].seen.failed;
  until(&r, 20);
  assert_int_equal(r.seats[0].seen.failed, failed); /* it is reached again */
  stop_all(&r);
  finish(&r);
}

static void resumed_node_continues_with_its_state(void **state) {
  (void)state;
  run r;
  begin(&r, 300);
  until(&r, 5);
  hv_sim_pause(r.sim, 1);
  uint64_t ticks = r.seats[1].seen.ticks, requests = r.seats[1].seen.requests;
  uint64_t clock = r.seats[1].last_now_us;
  until(&r, 10);
  assert_int_equal(r.seats[1].seen.ticks, ticks);
  assert_int_equal(r.seats[1].seen.requests, requests);
  assert_true(r.seats[0].seen.timeouts > 0);
  assert_int_equal(r.seats[0].seen.downs, 0);
  hv_sim_continue(r.sim, 1);
  until(&r, 10.01);
  assert_true(r.seats[1].seen.requests > requests + 5); /* what had come meanwhile */
  assert_int_equal(r.seats[1].seen.ticks, ticks + 1);   /* one late timer */
  assert_true(r.seats[1].last_now_us >= clock + 4900000);
  uint64_t timeouts = r.seats[0].seen.timeouts;
  until(&r, 12);
  timeouts = r.seats[0].seen.timeouts;
  until(&r, 20);
  assert_int_equal(r.seats[0].seen.timeouts, timeouts);
  stop_all(&r);
  finish(&r);
}

static void sleeping_node_has_a_clock_that_stands_still(void **state) {
  (void)state;
  run r;
  begin(&r, 300);
  until(&r, 5);
  hv_sim_sleep(r.sim, 1);
  uint64_t ticks = r.seats[1].seen.ticks, clock = r.seats[1].last_now_us;
  until(&r, 65);
  hv_sim_continue(r.sim, 1);
  until(&r, 65.01);
  assert_true(r.seats[1].last_now_us < clock + 100000);
  until(&r, 70);
  assert_true(r.seats[1].seen.ticks > ticks); /* its timers go on where they were */
  assert_in_range(r.seats[1].last_now_us, clock + 4500000, clock + 5500000);
  stop_all(&r);
  finish(&r);
}

static void a_stopped_node_may_be_killed(void **state) {
  (void)state;
  for (int i = 0; i < 40; i++) {
    run r;
    begin(&r, 300);
    until(&r, 1 + i * 0.025);
    hv_sim_pause(r.sim, 1);
    until(&r, 2.5);
    hv_sim_kill(r.sim, 1);
    assert_int_equal(hv_sim_leaks(r.sim), 0);
    until(&r, 3);
    assert_int_equal(hv_sim_restart(r.sim, 1), HV_OK);
    until(&r, 4);
    assert_int_equal(r.seats[1].seen.starts, 2);
    finish(&r);
  }
}

static void wrong_clocks_change_nothing_between_peers(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(11);
  hv_sim *sim = hv_sim_new(&mem, &config);
  mixer_seat seats[3];
  hv_target peers[3];
  static const int64_t skew_us[3] = {-7200000000, 0, 7200000000};
  static const int32_t drift_ppm[3] = {-50000, 0, 50000};
  for (size_t i = 0; i < 3; i++) {
    peers[i] = hv_sim_target(sim, i);
    seats[i] = (mixer_seat){.peers = peers, .n_peers = 3, .me = i, .every_ms = 100, .timeout_ms = 1000, .calls_only = 1};
    hv_sim_node_config seat = {
        .make = mixer_make, .free = mixer_free, .arg = &seats[i], .skew_us = skew_us[i], .drift_ppm = drift_ppm[i]};
    assert_int_equal(hv_sim_add(sim, &seat, NULL), HV_OK);
  }
  hv_sim_run_until(sim, 100000000);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(seats[i].seen.timeouts + seats[i].seen.failed, 0);
  assert_in_range(seats[0].seen.ticks, 945, 951); /* a slow clock ticks less often */
  assert_in_range(seats[1].seen.ticks, 999, 1001);
  assert_in_range(seats[2].seen.ticks, 1048, 1051);
  assert_in_range(seats[2].last_now_us - seats[1].last_now_us, 7200000000 + 4800000, 7200000000 + 5200000);
  assert_int_equal(hv_sim_free(sim), 0);
}

static void absurd_clocks_are_refused(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(1);
  hv_sim *sim = hv_sim_new(&mem, &config);
  mixer_seat seat = {.every_ms = 1};
  hv_sim_node_config wrong = {.make = mixer_make, .free = mixer_free, .arg = &seat, .skew_us = -400LL * 3600 * 1000000};
  assert_int_equal(hv_sim_add(sim, &wrong, NULL), HV_INVALID);
  wrong = (hv_sim_node_config){.make = mixer_make, .free = mixer_free, .arg = &seat, .drift_ppm = -1000000};
  assert_int_equal(hv_sim_add(sim, &wrong, NULL), HV_INVALID);
  assert_int_equal(hv_sim_free(sim), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_node_killed_before_any_event_leaves_nothing),
      cmocka_unit_test(a_node_killed_after_any_event_leaves_nothing),
      cmocka_unit_test(a_node_killed_by_its_own_event_leaves_nothing),
      cmocka_unit_test(a_node_killed_at_any_event_of_its_end_leaves_nothing),
      cmocka_unit_test(the_world_of_a_dead_node_does_nothing),
      cmocka_unit_test(dialled_peers_know_of_a_kill_at_once_and_others_by_asking),
      cmocka_unit_test(an_unplugged_node_is_only_missed),
      cmocka_unit_test(a_restarted_node_is_the_same_peer_with_a_fresh_core),
      cmocka_unit_test(resumed_node_continues_with_its_state),
      cmocka_unit_test(sleeping_node_has_a_clock_that_stands_still),
      cmocka_unit_test(a_stopped_node_may_be_killed),
      cmocka_unit_test(wrong_clocks_change_nothing_between_peers),
      cmocka_unit_test(absurd_clocks_are_refused),
  };
  return cmocka_run_group_tests_name("sim: faults of nodes", tests, NULL, NULL);
}
