/* Random faults, one after another, drawn from the run's own generator. */
#include "sim/swarm/swarm.h"

enum { EVERY_US = 4000000, AWAY_US = 30000000, STOPPED_US = 20000000, APART_US = 40000000 };

static uint64_t draw(swarm_run *run, uint64_t n) {
  return check_random(&run->rng) % n;
}

void swarm_seat(swarm_run *run, hv_sim_node_config *seat) {
  if (!(run->options->faults & SWARM_SKEW))
    return;
  seat->skew_us = (int64_t)draw(run, UINT64_C(7200000000)) - INT64_C(3600000000);
  seat->drift_ppm = (int32_t)draw(run, 401) - 200;
}

/* A fault that ends by itself later. */
typedef struct swarm_passing {
  struct swarm_passing *next, **link;
  swarm_run *run;
  size_t node, other;
} passing;

/* With the room's haste. */
static uint64_t lasts(swarm_run *run, uint64_t most_us) {
  return draw(run, run->haste > 0 ? (uint64_t)((double)most_us / run->haste) : most_us);
}

static void forget(passing *p) {
  *p->link = p->next;
  if (p->next)
    p->next->link = p->link;
  hv_mem_free(p);
}

static void later(swarm_run *run, uint64_t us, void (*fn)(hv_sim *sim, void *arg), size_t node, size_t other) {
  passing *p = hv_mem_alloc(&run->mem, sizeof *p);
  if (!p)
    return;
  *p = (passing){.next = run->passing, .link = &run->passing, .run = run, .node = node, .other = other};
  if (p->next)
    p->next->link = &p->next;
  run->passing = p;
  uint64_t at = hv_sim_now(run->sim) + us;
  if (hv_sim_at(run->sim, at < run->calm_us ? at : run->calm_us, fn, p) != HV_OK)
    forget(p);
}

void swarm_trouble_fini(swarm_run *run) {
  while (run->passing)
    forget(run->passing);
}

static void comes_back(hv_sim *sim, void *arg) {
  passing *p = arg;
  hv_sim_restart(sim, p->node); /* fine if it lives already */
  forget(p);
}

static void goes_on(hv_sim *sim, void *arg) {
  passing *p = arg;
  hv_sim_continue(sim, p->node);
  forget(p);
}

static void mends(hv_sim *sim, void *arg) {
  passing *p = arg;
  hv_sim_cut(sim, p->node, p->other, 0);
  forget(p);
}

static void heals(hv_sim *sim, void *arg) {
  hv_sim_heal(sim);
  forget(arg);
}

static void ends_for(swarm_run *run, size_t node, int unplugged) {
  if (unplugged)
    hv_sim_unplug(run->sim, node);
  else
    hv_sim_kill(run->sim, node);
  if (draw(run, 10) || node == 0) /* one in ten never comes back; the first is where others begin */
    later(run, 1000 + lasts(run, AWAY_US), comes_back, node, 0);
}

static void ends_by(swarm_run *run, uint64_t us) {
  us += hv_sim_now(run->sim);
  run->apart_us = us > run->apart_us ? us : run->apart_us;
}

static void falls_apart(swarm_run *run) {
  size_t n = hv_sim_nodes(run->sim), away = 1 + draw(run, n / 2);
  uint64_t us;
  if (draw(run, 2)) {
    size_t from = draw(run, n), to = draw(run, n);
    hv_sim_cut(run->sim, from, to, 1);
    us = lasts(run, APART_US);
    ends_by(run, us);
    later(run, us, mends, from, to);
    return;
  }
  for (size_t i = 0; i < away; i++)
    hv_sim_group(run->sim, draw(run, n), 1);
  us = lasts(run, APART_US);
  ends_by(run, us);
  later(run, us, heals, 0, 0);
}

static void fault_at(swarm_run *run, size_t node) {
  unsigned fault = 1u << (3 + draw(run, 4));
  if (!(run->options->faults & fault))
    return;
  if (fault == SWARM_PARTITION) {
    falls_apart(run);
  } else if (fault == SWARM_PAUSE) {
    hv_sim_pause(run->sim, node);
    later(run, lasts(run, STOPPED_US), goes_on, node, 0);
  } else {
    ends_for(run, node, fault == SWARM_UNPLUG);
  }
}

void swarm_strike(swarm_run *run) {
  fault_at(run, draw(run, hv_sim_nodes(run->sim)));
}

static void one_more(hv_sim *sim, void *arg) {
  swarm_run *run = arg;
  size_t node = draw(run, hv_sim_nodes(sim));
  uint64_t next = hv_sim_now(sim) + draw(run, 2 * EVERY_US);
  if (next < run->calm_us)
    hv_sim_at(sim, next, one_more, run);
  fault_at(run, node);
}

/* The last word: nothing is apart any more, nobody stands still. */
static void calm(hv_sim *sim, void *arg) {
  (void)arg;
  hv_sim_say(sim, "no more faults");
  hv_sim_heal(sim);
  for (size_t i = 0; i < hv_sim_nodes(sim); i++)
    hv_sim_continue(sim, i);
}

void swarm_trouble(swarm_run *run) {
  uint64_t first = EVERY_US + draw(run, EVERY_US);
  if (first < run->calm_us)
    hv_sim_at(run->sim, first, one_more, run);
  hv_sim_at(run->sim, run->calm_us, calm, run);
}
