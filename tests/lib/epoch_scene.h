/* A peer's machine by itself, with what it orders, and the events that a test gives it. For the tests of core/epoch. */
#ifndef HV_TESTS_EPOCH_SCENE_H
#define HV_TESTS_EPOCH_SCENE_H

#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/epoch/trace.h"

#include <string.h>

enum { TARGET = 64, BATCH = 16, SECOND = 1000000, ORDERS = 64 };

typedef struct scene {
  fake_env env;
  hv_epoch e;
  hv_lineage lineage;
  hv_epoch_ledger ledger;
  hv_trace *trace; /* NULL: nothing is recorded */
  hv_progress_figures f;
  uint64_t now_us, fetched;
  hv_epoch_order orders[ORDERS]; /* that the last event gave */
  size_t n;
} scene;

static inline hv_mark mark_of(char letter) {
  hv_mark mark;
  memset(mark.bytes, letter, sizeof mark.bytes);
  return mark;
}

static inline scene *new_scene(const hv_epoch_options *options, hv_epoch_company company) {
  static scene s;
  hv_epoch_config config = {.options = *options,
                            .target = TARGET,
                            .matchmaking_us = 2 * SECOND,
                            .averaging_us = 15 * SECOND,
                            .company = company,
                            .alone_us = 5 * SECOND,
                            .reachable = 1,
                            .me = fake_peer(1),
                            .lineage = &s.lineage,
                            .ledger = &s.ledger};
  hv_mark mark = mark_of('m');
  memset(&s, 0, sizeof s);
  hv_lineage_init(&s.lineage);
  hv_lineage_begin(&s.lineage, &mark);
  fake_env_init(&s.env, 1);
  config.env = &s.env.env;
  s.now_us = SECOND;
  s.f = (hv_progress_figures){.n_peers = 1, .eta_us = HV_PROGRESS_NEVER};
  assert_int_equal(hv_epoch_init(&s.e, &config, s.now_us, NULL), HV_OK);
  return &s;
}

static inline void on(scene *s, hv_epoch_event event) {
  event.now_us = s->now_us;
  event.figures = &s->f;
  event.fetched = s->fetched;
  hv_trace_on(s->trace, &s->e, &event);
  s->n = 0;
  while (hv_epoch_next(&s->e, &s->orders[s->n]))
    assert_true(++s->n < ORDERS);
  if (s->e.end.acting[HV_EPOCH_NOW] && s->e.end.action[HV_EPOCH_NOW] == HV_EPOCH_MEET) /* nothing speaks against it */
    on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[HV_EPOCH_NOW], .ok = 1});
  assert_int_equal(s->e.moves_wrong, 0);
  assert_int_equal(s->e.lost_orders, 0);
  assert_true(hv_epoch_ledger_holds(s->e.ledger));
}

static inline const hv_epoch_order *has(const scene *s, hv_epoch_order_kind kind) {
  for (size_t i = 0; i < s->n; i++)
    if (s->orders[i].kind == kind)
      return &s->orders[i];
  return NULL;
}

static inline const hv_epoch_order *of(const scene *s, hv_epoch_order_kind kind, hv_epoch_which which) {
  for (size_t i = 0; i < s->n; i++)
    if (s->orders[i].kind == kind && s->orders[i].which == which)
      return &s->orders[i];
  return NULL;
}

static inline void batch(scene *s) {
  on(s, (hv_epoch_event){.kind = HV_EPOCH_BATCH, .samples = BATCH, .took_us = SECOND / 10});
}

/* The hands do what they are told: this action, and no other. */
static inline void acted(scene *s, hv_epoch_lane lane, unsigned action, int ok) {
  assert_int_not_equal(s->e.end.acting[lane], 0);
  assert_int_equal(s->e.end.action[lane], action);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE, .number = s->e.end.acting[lane], .ok = ok, .took_us = 1000});
}

/* A batch of local steps. */
static inline void steps_locally(scene *s) {
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 1);
}

/* With local steps a round, an average, or a state that comes within this moment is waited for. */
static inline void moment_passes(scene *s) {
  assert_false(hv_epoch_is_free(&s->e));
  s->now_us += HV_EPOCH_CHASE_US;
  assert_int_equal(hv_epoch_due_us(&s->e), s->now_us);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
  assert_true(hv_epoch_is_free(&s->e));
}

static inline void round_over(scene *s, hv_epoch_which which, hv_epoch_outcome outcome, const hv_lineage_member *members,
                              size_t n) {
  on(s, (hv_epoch_event){.kind = HV_EPOCH_ROUND,
                         .which = which,
                         .outcome = outcome,
                         .stamp = 77,
                         .share = 1,
                         .ok = 1,
                         .members = members,
                         .n_members = n});
}

static inline hv_lineage_member member(uint64_t id, hv_mark mark) {
  return (hv_lineage_member){.peer = fake_peer(id), .has_word = 1, .word = {mark, HV_RANK_REACHABLE}};
}

/* Another peer trains too, and both are in this peer's epoch, at its end. */
static inline void epoch_is_over(scene *s) {
  s->f = (hv_progress_figures){.epoch = s->e.told, .samples = TARGET, .speed = 100, .n_peers = 2, .ready = 1, .match = 1};
}

static inline void epoch_begins(scene *s) {
  s->f = (hv_progress_figures){.epoch = s->e.told, .samples = 8, .speed = 100, .n_peers = 2, .eta_us = SECOND};
}

/* Counted, in epoch 0, beside another. */
static inline void gathers(scene *s) {
  s->fetched = 1;
  epoch_begins(s);
  batch(s);
  assert_int_equal(s->e.state, HV_EPOCH_GATHERING);
  assert_int_equal(s->e.ledger->sums, BATCH);
}

/* With the other one's word, which is the same: the swarm's replica. */
static inline void averages_gradients(scene *s, hv_epoch_lane lane) {
  hv_lineage_member two[] = {member(1, s->e.lineage->mark), member(2, s->e.lineage->mark)};
  assert_int_equal(s->e.end.rounding[lane], 1 + HV_EPOCH_GRADIENTS);
  round_over(s, HV_EPOCH_GRADIENTS, HV_EPOCH_CONFIRMED, two, 2);
}

/* The epoch ends, and both step with the average of their gradients. */
static inline void steps_together(scene *s) {
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  averages_gradients(s, HV_EPOCH_NOW);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_STEP, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
}

/* At the end of its epoch, beside another, with the group's round ahead. */
static inline scene *waits_for_a_group(hv_epoch_options options, hv_epoch_lane lane) {
  scene *s = new_scene(&options, HV_EPOCH_ALONE_TRAINS);
  gathers(s);
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  assert_int_equal(s->e.end.rounding[lane], 1 + HV_EPOCH_GRADIENTS);
  return s;
}

static inline void time_passes(scene *s, uint64_t us, size_t n_peers) {
  s->now_us += us;
  s->f.n_peers = n_peers;
  on(s, (hv_epoch_event){.kind = HV_EPOCH_TIME});
}

#endif
