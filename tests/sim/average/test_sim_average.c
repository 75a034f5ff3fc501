/* An averager's steps, told against the virtual clock: groups, triggers, the lock on the tensors, cancelling, time that runs out.
 */
#include "lib/check.h"

#include "core/node.h"
#include "net/sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS_MAX = 6, VALUES = 3000 };
#define SECOND 1000000ull

typedef struct scene scene;

typedef struct peer {
  scene *scene;
  size_t index;
  hv_peer_id id;
  hv_node *node; /* NULL: dead */
  hv_average *average;
  hv_average_config config;
  hv_average_tensor tensors[2];
  int64_t shapes[2][2];
  float values[VALUES];
  uint16_t halves[16];
  hv_average_step step;
  int done, closed, busy, entered;
  hv_status begun, status;
  char text[1020];
  size_t n_members;
  hv_peer_id first;
  uint32_t averaged, n_chunks;
  unsigned tries;
  uint64_t begun_us, done_us, reducing_us, bytes;
  char gathered[200];
} peer;

struct scene {
  hv_mem mem;
  hv_sim *sim;
  size_t n;
  peer peers[PEERS_MAX];
  int narrate;
};

/* ---- the stage ---- */

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  peer *p = arg;
  hv_target first = hv_sim_target(p->scene->sim, 0);
  hv_node_config config = {.me = p->id, .initial = &first, .n_initial = 1, .hello_every_ms = 2000};
  hv_status status = hv_node_new(env, &config, &p->node);
  *out = (hv_core){p, NULL};
  return status;
}

static void step_node(void *self, const hv_event *event) {
  hv_node_step(((peer *)self)->node, event);
}

static hv_status make_core(hv_env *env, void *arg, hv_core *out) {
  hv_status status = make(env, arg, out);
  out->step = step_node;
  return status;
}

static void let_go(void *self) {
  peer *p = self;
  hv_node_free(p->node);
  p->node = NULL;
  p->average = NULL;
}

static int enter(void *arg) {
  peer *p = arg;
  p->entered = !p->busy;
  return !p->busy;
}

static void leave(void *arg) {
  ((peer *)arg)->entered = 0;
}

static void fill(peer *p) {
  for (int i = 0; i < VALUES; i++)
    p->values[i] = (float)(p->index + 1) * (1 + (float)(i % 7));
  for (int i = 0; i < 16; i++)
    p->halves[i] = (uint16_t)(0x3c00 + 0x100 * p->index); /* float16: 1, 1.25, 1.5, ... */
}

static void seat(scene *s, size_t i) {
  peer *p = &s->peers[i];
  *p = (peer){.scene = s, .index = i, .id = hv_sim_target(s->sim, i).id, .begun = HV_STATE};
  fill(p);
  p->shapes[0][0] = VALUES / 3, p->shapes[0][1] = 3;
  p->shapes[1][0] = 16;
  p->tensors[0] = (hv_average_tensor){{p->values, HV_DTYPE_FLOAT32, VALUES, HV_CODEC_NONE, NULL, 0, 0, 0}, p->shapes[0], 2};
  p->tensors[1] = (hv_average_tensor){{p->halves, HV_DTYPE_FLOAT16, 16, HV_CODEC_FLOAT16, NULL, 0, 0, 0}, p->shapes[1], 1};
  p->config = (hv_average_config){.prefix = hv_span_of("run", 3),
                                  .tensors = p->tensors,
                                  .n_tensors = 2,
                                  .chunk_values = 256,
                                  .alpha = 1,
                                  .stall_ms = 3000,
                                  .gate = {enter, leave, p}};
  hv_sim_node_config chair = {.make = make_core, .free = let_go, .arg = p};
  assert_int_equal(hv_sim_add(s->sim, &chair, NULL), HV_OK);
}

static void say_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

static void run(scene *s, double seconds) {
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + (uint64_t)(seconds * SECOND));
}

static void open_scene(scene *s, size_t n, uint64_t seed) {
  int narrate = getenv("NARRATE") != NULL;
  memset(s, 0, sizeof *s);
  s->narrate = narrate;
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.say = s->narrate ? say_line : NULL;
  s->sim = hv_sim_new(&s->mem, &config);
  s->n = n;
  for (size_t i = 0; i < n; i++)
    seat(s, i);
  run(s, 3); /* they meet */
}

static void close_scene(scene *s) {
  assert_int_equal(hv_sim_free(s->sim), 0);
  assert_int_equal(s->mem.blocks, 0);
}

/* ---- what peers do, each in a step of its node ---- */

typedef struct order {
  hv_command command;
  peer *p;
  void (*what)(peer *p);
} order;

static void obey(hv_command *command, void *core) {
  order *o = (order *)command;
  if (core)
    o->what(o->p);
}

/* Now, and waits until it is done. */
static void tell(scene *s, size_t i, void (*what)(peer *)) {
  order o = {{.run = obey}, &s->peers[i], what};
  assert_int_equal(hv_sim_command(s->sim, i, &o.command), HV_OK);
  hv_sim_run_until(s->sim, hv_sim_now(s->sim));
}

static void open_averager(peer *p) {
  hv_error err = {0};
  p->begun = hv_average_new(hv_node_averages(p->node), &p->config, &p->average, &err);
  snprintf(p->text, sizeof p->text, "%s", err.text);
}

static void was_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  peer *p = step->owner;
  p->done++;
  p->status = status;
  snprintf(p->text, sizeof p->text, "%s", text);
  p->n_members = outcome->n_members;
  p->averaged = outcome->averaged;
  p->n_chunks = outcome->n_chunks;
  p->tries = outcome->tries;
  p->reducing_us = outcome->reducing_us;
  p->bytes = outcome->bytes;
  p->done_us = hv_sim_now(p->scene->sim);
  p->gathered[0] = 0;
  for (size_t i = 0; i < outcome->n_members; i++)
    snprintf(p->gathered + strlen(p->gathered), sizeof p->gathered - strlen(p->gathered), "%.*s%s;",
             (int)outcome->members[i].gather.size, (const char *)outcome->members[i].gather.data,
             outcome->members[i].me ? "*" : "");
  hv_sim_say(p->scene->sim, "n%zu: done, %s %s (%zu members, %u of %u chunks)", p->index, hv_status_name(status), text,
             p->n_members, p->averaged, p->n_chunks);
}

static void step(peer *p) {
  hv_error err = {0};
  p->done = 0;
  p->step.done = was_done;
  p->step.owner = p;
  if (!p->step.wait_ms)
    p->step.wait_ms = 5000;
  if (!p->step.timeout_ms)
    p->step.timeout_ms = 30000;
  if (p->step.weight == 0)
    p->step.weight = 1;
  p->begun_us = hv_sim_now(p->scene->sim);
  p->begun = hv_average_start(p->average, &p->step, &err);
  if (p->begun != HV_OK)
    snprintf(p->text, sizeof p->text, "%s", err.text);
}

static void trigger(peer *p) {
  hv_average_trigger(p->average, &p->step);
}

static void cancel(peer *p) {
  hv_average_cancel(p->average, &p->step);
}

static void was_closed(void *arg) {
  ((peer *)arg)->closed++;
}

static void close_averager(peer *p) {
  hv_average *average = p->average;
  p->average = NULL;
  hv_average_close(average, was_closed, p);
}

static void hold(peer *p) {
  p->busy = 1;
}

static void let_tensors_go(peer *p) {
  p->busy = 0;
  hv_average_knock(p->average);
}

static void all(scene *s, void (*what)(peer *)) {
  for (size_t i = 0; i < s->n; i++)
    tell(s, i, what);
}

/* ---- what must be ---- */

static void everybody_holds_the_mean(scene *s, size_t n) {
  double weights = 0, sum = 0;
  for (size_t i = 0; i < n; i++) {
    weights += (double)s->peers[i].step.weight;
    sum += (double)s->peers[i].step.weight * (double)(i + 1);
  }
  for (size_t i = 0; i < n; i++) {
    peer *p = &s->peers[i];
    assert_int_equal(p->done, 1);
    assert_int_equal(p->status, HV_OK);
    assert_int_equal(p->averaged, p->n_chunks);
    assert_int_equal(p->n_members, n);
    assert_string_equal(p->text, "");
    assert_int_equal(p->entered, 0);
    for (int k = 0; k < VALUES; k++)
      assert_true(fabs(p->values[k] - sum / weights * (1 + k % 7)) < 1e-4);
    assert_memory_equal(p->values, s->peers[0].values, sizeof p->values);
    assert_memory_equal(p->halves, s->peers[0].halves, sizeof p->halves);
  }
}

static void is_untouched(peer *p) {
  static peer as_it_was;
  as_it_was.index = p->index;
  fill(&as_it_was);
  assert_memory_equal(p->values, as_it_was.values, sizeof p->values);
  assert_memory_equal(p->halves, as_it_was.halves, sizeof p->halves);
}

/* ---- scenarios ---- */

static void peers_that_step_together_hold_the_mean(void **unused) {
  (void)unused;
  for (size_t n = 2; n <= PEERS_MAX; n++) {
    scene s;
    open_scene(&s, n, n);
    all(&s, open_averager);
    for (size_t i = 0; i < n; i++) {
      s.peers[i].step.expected = n;
      s.peers[i].step.weight = 1 + (float)i;
      s.peers[i].step.gather = hv_span_of("a\0b\0c\0d\0e\0f" + 2 * i, 1);
    }
    all(&s, step);
    run(&s, 20);
    everybody_holds_the_mean(&s, n);
    for (size_t i = 0; i < n; i++) {
      char mine[3] = {(char)('a' + i), '*', 0};
      assert_non_null(strstr(s.peers[i].gathered, mine));
      assert_true(strlen(s.peers[i].gathered) == 2 * n + 1);
    }
    close_scene(&s);
  }
}

static void repeated_steps_average_each_time(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 3, 20);
  all(&s, open_averager);
  for (int round = 0; round < 10; round++) {
    for (size_t i = 0; i < 3; i++) {
      fill(&s.peers[i]);
      s.peers[i].step.expected = 3;
    }
    all(&s, step);
    run(&s, 20);
    everybody_holds_the_mean(&s, 3);
  }
  close_scene(&s);
}

static void a_group_waits_for_its_triggers_and_takes_the_weights_of_then(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 30);
  all(&s, open_averager);
  for (size_t i = 0; i < 2; i++)
    s.peers[i].step.require_trigger = 1, s.peers[i].step.expected = 2;
  all(&s, step);
  run(&s, 5);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(s.peers[i].done, 0);
    is_untouched(&s.peers[i]);
    assert_int_equal(s.peers[i].entered, 0); /* the tensors are the program's until then */
  }
  assert_int_equal(hv_average_set_weight(s.peers[0].average, &s.peers[0].step, 3), HV_OK);
  assert_int_equal(hv_average_set_weight(s.peers[0].average, &s.peers[0].step, -1), HV_INVALID);
  assert_int_equal(hv_average_set_weight(s.peers[0].average, &s.peers[0].step, NAN), HV_INVALID);
  all(&s, trigger);
  run(&s, 5);
  everybody_holds_the_mean(&s, 2);
  assert_int_equal(hv_average_set_weight(s.peers[0].average, &s.peers[0].step, 3), HV_STATE);
  close_scene(&s);
}

static void a_round_waits_while_the_program_holds_the_tensors(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 40);
  all(&s, open_averager);
  tell(&s, 0, hold);
  s.peers[0].step.expected = s.peers[1].step.expected = 2;
  all(&s, step);
  run(&s, 2);
  assert_int_equal(s.peers[0].done, 0);
  is_untouched(&s.peers[0]);
  tell(&s, 0, let_tensors_go);
  run(&s, 5);
  everybody_holds_the_mean(&s, 2);
  close_scene(&s);
}

/* Cancelled at any moment of its life, a step is done once; the other peer comes to an end too, and both are fit for the next one.
 */
static void a_step_can_be_cancelled_at_any_moment(void **unused) {
  (void)unused;
  for (int ms = 0; ms < 700; ms += 9) {
    scene s;
    open_scene(&s, 2, 50 + (uint64_t)ms);
    all(&s, open_averager);
    s.peers[0].step.expected = s.peers[1].step.expected = 2;
    s.peers[1].step.require_trigger = ms % 2;
    s.peers[1].step.timeout_ms = 12000;
    if (ms % 3 == 0)
      tell(&s, 0, hold);
    all(&s, step);
    run(&s, ms / 1000.0);
    tell(&s, 0, cancel);
    run(&s, 1);
    assert_int_equal(s.peers[0].done, 1);
    assert_true(s.peers[0].status == HV_CANCELLED || s.peers[0].status == HV_OK);
    assert_int_equal(s.peers[0].entered, 0);
    tell(&s, 0, cancel); /* of one that is over: nothing */
    tell(&s, 1, trigger);
    run(&s, 14);
    assert_int_equal(s.peers[0].done, 1);
    assert_int_equal(s.peers[1].done, 1);
    s.peers[0].busy = 0;
    for (size_t i = 0; i < 2; i++) {
      fill(&s.peers[i]);
      s.peers[i].step.require_trigger = 0;
    }
    all(&s, step);
    run(&s, 20);
    everybody_holds_the_mean(&s, 2);
    close_scene(&s);
  }
}

static void member_that_cancels_before_the_round_delays_nobody(void **unused) {
  (void)unused;
  for (int case_ = 0; case_ < 24; case_++) {
    size_t n = 2 + (size_t)case_ % 3, quits = (size_t)case_ / 3 % n;
    int first = case_ % 2; /* it quits before the others go, or after */
    scene s;
    open_scene(&s, n, 60 + (uint64_t)case_);
    all(&s, open_averager);
    for (size_t i = 0; i < n; i++)
      s.peers[i].step.require_trigger = 1, s.peers[i].step.expected = n;
    all(&s, step);
    run(&s, 5);
    if (first)
      tell(&s, quits, cancel);
    run(&s, 1);
    for (size_t i = 0; i < n; i++)
      if (i != quits)
        tell(&s, i, trigger);
    run(&s, 0.2);
    if (!first)
      tell(&s, quits, cancel);
    run(&s, 3); /* a member that is silent is given twice its stall_ms of 3 s */
    assert_int_equal(s.peers[quits].status, HV_CANCELLED);
    is_untouched(&s.peers[quits]);
    for (size_t i = 0; i < n; i++) {
      peer *p = &s.peers[i];
      if (i == quits)
        continue;
      assert_int_equal(p->done, 1);
      assert_int_equal(p->status, n == 2 ? HV_CLOSED : HV_OK); /* alone it has nobody to average with */
      if (n == 2)
        is_untouched(p);
      else
        assert_memory_equal(p->values, s.peers[quits ? 0 : 1].values, sizeof p->values);
    }
    close_scene(&s);
  }
}

static void peer_behind_the_epoch_is_refused_without_retry(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 90);
  all(&s, open_averager);
  run(&s, 4);
  hv_average_reached(s.peers[0].average, 8);
  s.peers[1].step.epoch = hv_span_of("7", 1);
  s.peers[1].step.allow_retries = 1;
  s.peers[1].step.wait_ms = 20000;
  tell(&s, 1, step);
  run(&s, 1);
  assert_int_equal(s.peers[1].done, 1);
  assert_int_equal(s.peers[1].status, HV_EXISTS);
  assert_int_equal(s.peers[1].tries, 1);
  assert_non_null(strstr(s.peers[1].text, "in swarm epoch 8 already"));
  is_untouched(&s.peers[1]);
  s.peers[0].step.epoch = s.peers[1].step.epoch = hv_span_of("8", 1); /* it has loaded the state */
  all(&s, step);
  run(&s, 3);
  everybody_holds_the_mean(&s, 2);
  close_scene(&s);
}

static void timeout_names_the_phase_it_ended_in(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 800);
  all(&s, open_averager);
  s.peers[0].step.timeout_ms = s.peers[0].step.wait_ms = 2000;
  tell(&s, 0, step);
  run(&s, 2.2);
  assert_int_equal(s.peers[0].done, 1);
  assert_int_equal(s.peers[0].status, HV_TIMEOUT);
  is_untouched(&s.peers[0]);

  for (size_t i = 0; i < 2; i++)
    s.peers[i].step = (hv_average_step){.require_trigger = 1, .expected = 2, .wait_ms = 3000, .timeout_ms = 4000};
  all(&s, step);
  run(&s, 4.2);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(s.peers[i].status, HV_TIMEOUT);
    assert_non_null(strstr(s.peers[i].text, "allow_allreduce"));
    assert_true(s.peers[i].done_us - s.peers[i].begun_us <= 4100000);
    is_untouched(&s.peers[i]);
  }

  tell(&s, 0, hold);
  for (size_t i = 0; i < 2; i++)
    s.peers[i].step.require_trigger = 0;
  all(&s, step);
  run(&s, 4.2);
  assert_int_equal(s.peers[0].status, HV_TIMEOUT);
  assert_non_null(strstr(s.peers[0].text, "get_tensors"));
  is_untouched(&s.peers[0]);
  run(&s, 10);
  assert_int_equal(s.peers[1].done, 1);
  close_scene(&s);
}

static void lonely_peer_retries_until_another_peer_joins(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 900);
  all(&s, open_averager);
  for (size_t i = 0; i < 2; i++)
    s.peers[i].step.wait_ms = 1000, s.peers[i].step.timeout_ms = 60000, s.peers[i].step.allow_retries = 1,
    s.peers[i].step.expected = 2;
  tell(&s, 0, step);
  run(&s, 10);
  assert_int_equal(s.peers[0].done, 0);
  s.peers[1].step.wait_ms = 5000;
  tell(&s, 1, step);
  run(&s, 20);
  everybody_holds_the_mean(&s, 2);
  assert_true(s.peers[0].tries > 1);
  close_scene(&s);
}

/* Both average over lines of this rate; gives how long that took peer 0. */
static double average_at(scene *s, uint64_t rate) {
  hv_sim_set_link(s->sim, HV_SIM_ANY, HV_SIM_ANY, &(hv_sim_link){.delay_us = 5000, .rate = rate});
  for (size_t i = 0; i < 2; i++)
    s->peers[i].step = (hv_average_step){.expected = 2, .timeout_ms = 60000};
  all(s, step);
  run(s, 60);
  for (size_t i = 0; i < 2; i++)
    assert_int_equal(s->peers[i].status, HV_OK);
  return (double)s->peers[0].reducing_us / 1e6;
}

/* Peer 0 alone looks for others for so long; gives when it ended, in seconds. */
static double gave_up_after(scene *s, uint32_t wait_ms, uint32_t timeout_ms) {
  s->peers[0].step = (hv_average_step){.wait_ms = wait_ms, .timeout_ms = timeout_ms, .allow_retries = 1};
  tell(s, 0, step);
  run(s, timeout_ms / 1000.0 + 1);
  assert_int_equal(s->peers[0].done, 1);
  assert_int_equal(s->peers[0].status, HV_TIMEOUT);
  return (double)(s->peers[0].done_us - s->peers[0].begun_us) / 1e6;
}

/* How long its rounds take includes a little that comes after them: a fifth at most. */
static void no_try_starts_that_leaves_less_time_than_rounds_take(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 970);
  for (size_t i = 0; i < 2; i++)
    s.peers[i].config.stall_ms = 20000;
  all(&s, open_averager);
  double usual = average_at(&s, 6000), ended = gave_up_after(&s, 2000, 16000);
  assert_true(usual > 2);
  assert_true(ended <= 16 - 0.8 * usual);
  assert_true(ended > 16 - usual - 4); /* a pause, what forms a group, and half a second less */
  double slow = average_at(&s, 1500);
  assert_true(slow > 3 * usual);
  ended = gave_up_after(&s, 2000, 30000);
  assert_true(ended <= 30 - 1.6 * usual);
  assert_true(ended > 30 - 2 * usual - 4); /* once is no habit */
  close_scene(&s);
}

static void each_further_try_takes_half_of_the_time_that_is_left_at_most(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 2, 980);
  all(&s, open_averager);
  gave_up_after(&s, 20000, 40000);
  assert_in_range(s.peers[0].tries, 3, 5); /* 20, 9, 4, ... seconds */
  close_scene(&s);
}

/* Two give and take all of it each, whoever owns what. With a third, and one who only helps: each owner of a span takes it from
 * those who contribute, and gives it to them. */
static void moved_bytes_count_contributors_and_not_auxiliaries(void **unused) {
  (void)unused;
  scene s;
  uint64_t whole = 0, contributors = 0;
  for (size_t n = 2; n <= 4; n += 2) {
    open_scene(&s, n, 990);
    s.peers[3].config.auxiliary = 1;
    all(&s, open_averager);
    for (size_t i = 0; i < n; i++)
      s.peers[i].step.expected = n;
    all(&s, step);
    run(&s, 10);
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(s.peers[i].status, HV_OK);
      assert_int_equal(s.peers[i].n_members, n);
    }
    whole = n == 2 ? s.peers[0].bytes / 2 : whole;
    close_scene(&s);
  }
  assert_in_range(whole, VALUES * 4 + 32, VALUES * 4 + 32 + 20 * 64);
  for (size_t i = 0; i < 3; i++)
    contributors += s.peers[i].bytes;
  assert_true(s.peers[3].bytes > 0);
  assert_int_equal(3 * contributors + s.peers[3].bytes, 3 * 8 * whole); /* who helps would have sent a span to two, not to three */
}

static void lone_peer_averages_alone_if_allowed(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 1, 950);
  s.peers[0].config.min_group = 1;
  all(&s, open_averager);
  s.peers[0].step.wait_ms = 1000;
  s.peers[0].step.gather = hv_span_of("me", 2);
  all(&s, step);
  run(&s, 5);
  assert_int_equal(s.peers[0].status, HV_OK);
  assert_string_equal(s.peers[0].gathered, "me*;");
  is_untouched(&s.peers[0]);
  close_scene(&s);
}

static void failed_round_with_an_alpha_changes_nothing(void **unused) {
  (void)unused;
  for (int ms = 0; ms < 500; ms += 10) {
    scene s;
    open_scene(&s, 3, 1000 + (uint64_t)ms);
    for (size_t i = 0; i < 3; i++)
      s.peers[i].config.alpha = 0.5, s.peers[i].step.expected = 3;
    all(&s, open_averager);
    all(&s, step);
    run(&s, 0.3 + ms / 1000.0);
    hv_sim_kill(s.sim, 2);
    run(&s, 40);
    for (size_t i = 0; i < 2; i++) {
      assert_int_equal(s.peers[i].done, 1);
      if (s.peers[i].status != HV_OK)
        is_untouched(&s.peers[i]);
      else
        for (int k = 0; k < VALUES; k++) { /* half of the way to a mean of two or of three */
          double times = (double)s.peers[i].values[k] / (1 + k % 7), own = (double)(i + 1);
          assert_true(fabs(times - (own + 1.5) / 2) < 1e-5 || fabs(times - (own + 2) / 2) < 1e-5);
        }
    }
    close_scene(&s);
  }
}

static void any_death_leaves_the_others_done_within_their_timeout(void **unused) {
  (void)unused;
  for (int ms = 0; ms < 600; ms += 7) {
    scene s;
    open_scene(&s, 4, 2000 + (uint64_t)ms);
    all(&s, open_averager);
    for (size_t i = 0; i < 4; i++)
      s.peers[i].step.expected = 4, s.peers[i].step.timeout_ms = 15000;
    all(&s, step);
    run(&s, ms / 1000.0);
    if (ms % 2)
      hv_sim_kill(s.sim, (size_t)ms % 4);
    else
      hv_sim_unplug(s.sim, (size_t)ms % 4);
    run(&s, 17);
    for (size_t i = 0; i < 4; i++)
      if (i != (size_t)ms % 4) {
        assert_int_equal(s.peers[i].done, 1);
        assert_true(s.peers[i].done_us - s.peers[i].begun_us <= 16 * SECOND);
      }
    close_scene(&s);
  }
}

/* 3 lacks what 1 owns when all the others are done, and stands still; 1 dies. 3 goes on just before 0 has waited in vain. */
static void goes_on_at(scene *s, uint64_t at_us) {
  open_scene(s, 4, 71);
  for (size_t i = 0; i < 4; i++)
    s->peers[i].config.bandwidth = i == 3 ? 1 : 1000000000; /* it owns nothing */
  all(s, open_averager), run(s, 3), all(s, step);
  hv_sim_set_link(s->sim, 1, 3, &(hv_sim_link){.delay_us = 2000000});
  run(s, 1), hv_sim_pause(s->sim, 3), hv_sim_kill(s->sim, 1);
  hv_sim_run_until(s->sim, at_us), hv_sim_continue(s->sim, 3), run(s, 20);
}

static void done_member_stays_if_asked_for_a_view_as_it_leaves(void **unused) {
  (void)unused;
  scene s;
  goes_on_at(&s, 30 * SECOND);
  uint64_t left_us = s.peers[0].done_us;
  for (uint64_t before_us = 200000; before_us <= 260000; before_us += 4000) {
    close_scene(&s);
    goes_on_at(&s, left_us - before_us);
    assert_true(s.peers[3].done == 1 && s.peers[3].status == HV_OK && s.peers[3].averaged == s.peers[3].n_chunks);
  }
  close_scene(&s);
}

static void step_ends_if_closed_or_stopped_under_way(void **unused) {
  (void)unused;
  for (int ms = 0; ms < 600; ms += 19) {
    scene s;
    open_scene(&s, 2, 3000 + (uint64_t)ms);
    all(&s, open_averager);
    s.peers[0].step.expected = s.peers[1].step.expected = 2;
    s.peers[1].step.timeout_ms = 12000;
    all(&s, step);
    run(&s, ms / 1000.0);
    if (ms % 2) {
      tell(&s, 0, close_averager);
      run(&s, 1);
      assert_int_equal(s.peers[0].closed, 1);
    } else {
      hv_sim_stop(s.sim, 0);
      run(&s, 1);
    }
    assert_int_equal(s.peers[0].done, 1);
    run(&s, 14);
    assert_int_equal(s.peers[1].done, 1);
    close_scene(&s);
  }
}

/* From the averager's making to the end of its step each allocation of one peer fails in turn: it says so or does without; the
 * others are done in time. */
static void missing_memory_ends_the_round_without_a_crash(void **unused) {
  (void)unused;
  for (long n = 0;; n += 5) {
    scene s;
    open_scene(&s, 3, 5000);
    for (size_t i = 0; i < 3; i++)
      s.peers[i].config.alpha = 0.5, s.peers[i].step.expected = 3, s.peers[i].step.timeout_ms = 15000;
    hv_mem *mem = hv_sim_mem(s.sim, 1);
    size_t refused = mem->refused;
    hv_mem_fail_in(mem, n);
    all(&s, open_averager);
    for (size_t i = 0; i < 3; i++)
      if (s.peers[i].average)
        tell(&s, i, step);
    run(&s, 17);
    int failed = mem->refused > refused;
    hv_mem_fail_in(mem, -1);
    for (size_t i = 0; i < 3; i++) {
      peer *p = &s.peers[i];
      if (!hv_sim_alive(s.sim, i)) /* a node whose world has no memory for a timer or a job is killed */
        assert_int_equal(i, 1);
      else if (p->average && p->begun == HV_OK)
        assert_int_equal(p->done, 1);
      else
        assert_int_equal(p->begun, HV_NOMEM);
    }
    close_scene(&s);
    if (!failed)
      break;
  }
}

static void invalid_config_is_refused_with_a_reason(void **unused) {
  (void)unused;
  scene s;
  open_scene(&s, 1, 4000);
  peer *p = &s.peers[0];
  hv_average_config good = p->config;
  p->config.n_tensors = 0;
  all(&s, open_averager);
  assert_int_equal(p->begun, HV_INVALID);
  assert_non_null(strstr(p->text, "there are no tensors"));
  p->config = good, p->config.alpha = NAN;
  all(&s, open_averager);
  assert_int_equal(p->begun, HV_INVALID);
  p->config = good, p->config.alpha = 0.5, p->tensors[1].part.device = &(hv_device){0};
  all(&s, open_averager);
  assert_int_equal(p->begun, HV_INVALID);
  assert_non_null(strstr(p->text, "host's memory"));
  p->tensors[1].part.device = NULL;
  p->config = good, p->config.bandwidth = -1;
  all(&s, open_averager);
  assert_int_equal(p->begun, HV_INVALID);
  p->config = good;
  all(&s, open_averager);
  assert_int_equal(p->begun, HV_OK);

  p->step.weight = -1;
  tell(&s, 0, step);
  assert_int_equal(p->begun, HV_INVALID);
  p->step.weight = 1, p->step.wait_ms = 5000, p->step.timeout_ms = 1000;
  tell(&s, 0, step);
  assert_int_equal(p->begun, HV_INVALID);
  assert_non_null(strstr(p->text, "make the timeout longer"));
  p->step.timeout_ms = 60000;
  tell(&s, 0, step);
  assert_int_equal(p->begun, HV_OK);
  hv_average_step second = p->step;
  hv_error err = {0};
  assert_int_equal(hv_average_start(p->average, &second, &err), HV_BUSY);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peers_that_step_together_hold_the_mean),
      cmocka_unit_test(repeated_steps_average_each_time),
      cmocka_unit_test(a_group_waits_for_its_triggers_and_takes_the_weights_of_then),
      cmocka_unit_test(a_round_waits_while_the_program_holds_the_tensors),
      cmocka_unit_test(a_step_can_be_cancelled_at_any_moment),
      cmocka_unit_test(member_that_cancels_before_the_round_delays_nobody),
      cmocka_unit_test(peer_behind_the_epoch_is_refused_without_retry),
      cmocka_unit_test(timeout_names_the_phase_it_ended_in),
      cmocka_unit_test(lonely_peer_retries_until_another_peer_joins),
      cmocka_unit_test(no_try_starts_that_leaves_less_time_than_rounds_take),
      cmocka_unit_test(each_further_try_takes_half_of_the_time_that_is_left_at_most),
      cmocka_unit_test(moved_bytes_count_contributors_and_not_auxiliaries),
      cmocka_unit_test(lone_peer_averages_alone_if_allowed),
      cmocka_unit_test(failed_round_with_an_alpha_changes_nothing),
      cmocka_unit_test(any_death_leaves_the_others_done_within_their_timeout),
      cmocka_unit_test(done_member_stays_if_asked_for_a_view_as_it_leaves),
      cmocka_unit_test(step_ends_if_closed_or_stopped_under_way),
      cmocka_unit_test(missing_memory_ends_the_round_without_a_crash),
      cmocka_unit_test(invalid_config_is_refused_with_a_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
