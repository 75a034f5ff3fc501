/* A member of a large group that leaves before, or as, its round begins: more members than a table of peers has places. */
#include "lib/check.h"

#include "core/node.h"
#include "net/sim/sim.h"

#include <string.h>

enum { PEERS = 64, VALUES = 64, LEAVER = 7, STALL_MS = 10000 };
#define SECOND 1000000ull

typedef struct scene scene;

typedef struct peer {
  scene *scene;
  hv_node *node; /* NULL: dead */
  hv_average *average;
  float values[VALUES];
  hv_average_step step;
  int done;
  hv_status status;
  uint64_t done_us;
} peer;

struct scene {
  hv_mem mem;
  hv_sim *sim;
  peer peers[PEERS];
};

static void step_node(void *self, const hv_event *event) {
  hv_node_step(((peer *)self)->node, event);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  peer *p = arg;
  scene *s = p->scene;
  hv_target first = hv_sim_target(s->sim, 0);
  hv_node_config config = {
      .me = hv_sim_target(s->sim, (size_t)(p - s->peers)).id, .initial = &first, .n_initial = 1, .hello_every_ms = 2000};
  *out = (hv_core){p, step_node};
  return hv_node_new(env, &config, &p->node);
}

static void let_go(void *self) {
  peer *p = self;
  hv_node_free(p->node);
  p->node = NULL;
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

static void tell(scene *s, size_t i, void (*what)(peer *)) {
  order o = {{.run = obey}, &s->peers[i], what};
  assert_int_equal(hv_sim_command(s->sim, i, &o.command), HV_OK);
  hv_sim_run_until(s->sim, hv_sim_now(s->sim));
}

static void run(scene *s, double seconds) {
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + (uint64_t)(seconds * SECOND));
}

static void was_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  peer *p = step->owner;
  (void)text, (void)outcome;
  p->done++;
  p->status = status;
  p->done_us = hv_sim_now(p->scene->sim);
}

static void begin(peer *p) {
  int64_t shape = VALUES;
  hv_average_tensor tensor = {{p->values, HV_DTYPE_FLOAT32, VALUES, HV_CODEC_NONE, NULL, 0, 0, 0}, &shape, 1};
  hv_average_config config = {.prefix = hv_span_of("run", 3),
                              .tensors = &tensor,
                              .n_tensors = 1,
                              .chunk_values = 4, /* so that sixteen members have some to reduce */
                              .alpha = 1,
                              .stall_ms = STALL_MS};
  assert_int_equal(hv_average_new(hv_node_averages(p->node), &config, &p->average, NULL), HV_OK);
}

static void seek(peer *p) {
  p->step = (hv_average_step){.done = was_done,
                              .owner = p,
                              .epoch = hv_span_of("1", 1),
                              .weight = 1,
                              .wait_ms = 5000,
                              .timeout_ms = 60000,
                              .require_trigger = 1};
  assert_int_equal(hv_average_start(p->average, &p->step, NULL), HV_OK);
}

static void trigger(peer *p) {
  hv_average_trigger(p->average, &p->step);
}

static void cancel(peer *p) {
  hv_average_cancel(p->average, &p->step);
}

static void trigger_and_cancel(peer *p) {
  trigger(p);
  cancel(p);
}

static scene *forms_a_group(uint64_t seed) {
  static scene s;
  memset(&s, 0, sizeof s);
  hv_mem_init(&s.mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  s.sim = hv_sim_new(&s.mem, &config);
  for (size_t i = 0; i < PEERS; i++) {
    s.peers[i].scene = &s;
    hv_sim_node_config seat = {.make = make, .free = let_go, .arg = &s.peers[i]};
    assert_int_equal(hv_sim_add(s.sim, &seat, NULL), HV_OK);
  }
  run(&s, 5);
  for (size_t i = 0; i < PEERS; i++)
    tell(&s, i, begin);
  run(&s, 5);
  for (size_t i = 0; i < PEERS; i++)
    tell(&s, i, seek);
  run(&s, 6);
  return &s;
}

/* All others average at once; with one silent member it takes STALL_MS. */
static void others_end_without(scene *s, size_t who) {
  run(s, 0.03); /* its words arrive */
  hv_sim_stop(s->sim, who);
  run(s, 0.5);
  uint64_t begun_us = hv_sim_now(s->sim);
  for (size_t i = 0; i < PEERS; i++)
    if (i != who)
      tell(s, i, trigger);
  run(s, 3 * STALL_MS * 1e-3);
  for (size_t i = 0; i < PEERS; i++)
    if (i != who) {
      assert_int_equal(s->peers[i].done, 1);
      assert_int_equal(s->peers[i].status, HV_OK);
      assert_true(s->peers[i].done_us < begun_us + STALL_MS * 1000 / 4);
    }
  assert_int_equal(hv_sim_free(s->sim), 0);
  assert_int_equal(s->mem.blocks, 0);
}

/* The members that have no place for it in their tables of peers took its word for that of a stranger. */
static void member_that_leaves_a_group_holds_nobody_up(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 2; seed++) {
    scene *s = forms_a_group(seed);
    tell(s, LEAVER, cancel);
    others_end_without(s, LEAVER);
  }
}

/* Its streams had not come to all of them, and it did not tell the others. */
static void member_that_leaves_as_its_round_begins_holds_nobody_up(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 2; seed++) {
    scene *s = forms_a_group(seed);
    tell(s, LEAVER, trigger_and_cancel);
    others_end_without(s, LEAVER);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(member_that_leaves_a_group_holds_nobody_up),
      cmocka_unit_test(member_that_leaves_as_its_round_begins_holds_nobody_up),
  };
  return cmocka_run_group_tests_name("leaving a group", tests, NULL, NULL);
}
