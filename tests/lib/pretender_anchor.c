#include "lib/pretender_anchor.h"

#include "core/outer/outer.h"

#include <math.h>
#include <string.h>

/* The model is ahead of the anchor by what its batches did and no average has, and as many samples are in the sums. */
static void checks_progress(pretender *p, uint64_t samples) {
  if (p->summed != samples)
    pretender_fails(p, "n%zu has %llu samples that no average has, and the machine says %llu", p->index,
                    (unsigned long long)p->summed, (unsigned long long)samples);
  for (size_t v = 0; v < PRETENDER_ANCHOR; v++)
    if (fabs((double)p->model[v] - (double)p->main[v] - p->own[v]) > 1e-3)
      pretender_fails(p, "n%zu: value %zu is %g ahead of its anchor, and its batches moved it by %g", p->index, v,
                      (double)p->model[v] - (double)p->main[v], p->own[v]);
}

static void steps_locally(pretender *p) {
  p->stepped_beside += pretender_look(p)->state == HV_EPOCH_ENDING;
  for (size_t v = 0; v < PRETENDER_ANCHOR; v++) {
    p->model[v] -= 0.125f * p->batch[v];
    p->own[v] -= 0.125 * (double)p->batch[v];
  }
}

static void drops(pretender *p) {
  memcpy(p->model, p->main, sizeof p->model);
  memset(p->own, 0, sizeof p->own);
  p->summed = 0;
}

/* The difference has this; the rest comes from batches while it travels. */
static void remembers(pretender *p) {
  memcpy(p->base, p->model, sizeof p->base);
  memcpy(p->own_base, p->own, sizeof p->own_base);
  p->summed_base = p->summed;
}

static int prepares(pretender *p, const hv_epoch_order *order) {
  checks_progress(p, order->samples);
  memset(p->gradients, 0, sizeof p->gradients);
  for (size_t v = 0; v < PRETENDER_ANCHOR; v++)
    p->gradients[v] = p->main[v] - p->model[v];
  if (p->program.lies & PRETENDER_LIES_GRADIENTS)
    pretender_makes_up(p, p->gradients, PRETENDER_ANCHOR);
  p->round = (pretender_met){0};
  p->gave = (pretender_difference){.epochs = pretender_look(p)->end.epoch + 1, .samples = order->samples};
  memcpy(p->gave.values, p->gradients, sizeof p->gave.values);
  int fails = check_uniform(&p->rng) < p->program.fails;
  if (fails) {
    memset(p->gradients, 0, sizeof p->gradients);
    p->gave.samples = 0;
    drops(p);
  }
  remembers(p);
  return fails ? -1 : 1;
}

static int misses(const pretender *p, size_t v) {
  for (size_t i = 0; i < p->round.n_missed; i++)
    if (v >= p->round.missed[i].at && v < p->round.missed[i].at + p->round.missed[i].size)
      return 1;
  return 0;
}

static void steps_anchor(pretender *p, float *difference) {
  static const hv_outer_rule rule = {0.7f, 0.5f, 1};
  hv_outer_tensor tensor = {p->main, p->main + PRETENDER_ANCHOR, difference, PRETENDER_ANCHOR, 0};
  if (hv_outer_step(&rule, &tensor, 1, NULL) != HV_OK)
    pretender_fails(p, "n%zu cannot step its anchor after epoch %llu", p->index, (unsigned long long)pretender_look(p)->told);
  p->main[PRETENDER_STEPS]++;
}

/* The model becomes the anchor and what it is ahead of it. */
static void rebases(pretender *p, const float *ahead) {
  memcpy(p->model, p->main, sizeof p->model);
  for (size_t v = 0; v < PRETENDER_ANCHOR; v++)
    p->model[v] += ahead[v];
}

/* The anchor steps; then the model is ahead of it by what its batches have done since, where the average has this peer's values,
 * and as far as before, where it has not. */
static void steps(pretender *p) {
  const hv_epoch *e = pretender_look(p);
  float ahead[PRETENDER_ANCHOR];
  for (size_t v = 0; v < PRETENDER_ANCHOR; v++) {
    int missed = e->end.averaged && p->gave.samples && misses(p, v);
    ahead[v] = p->model[v] - (missed ? p->main[v] : p->base[v]);
    p->own[v] -= missed ? 0 : p->own_base[v];
  }
  if (e->end.averaged) {
    p->got = (pretender_difference){.epochs = e->end.epoch + 1};
    memcpy(p->got.values, p->gradients, sizeof p->got.values);
  }
  steps_anchor(p, p->gradients);
  rebases(p, ahead);
  /* a part of the values is a part of the samples, as the ledger rounds it */
  p->summed = e->end.averaged && p->round.n_missed && p->gave.samples ? e->ledger->sums : p->summed - p->summed_base;
}

static void gets_ahead(const pretender *p, float *ahead) {
  for (size_t v = 0; v < PRETENDER_ANCHOR; v++)
    ahead[v] = p->model[v] - p->main[v];
}

/* The step of others: all that this peer is ahead stays. */
static void repeats_step(pretender *p) {
  float ahead[PRETENDER_ANCHOR];
  gets_ahead(p, ahead);
  steps_anchor(p, p->gradients);
  rebases(p, ahead);
}

/* The same with another anchor. */
void pretender_anchor_adopts(pretender *p, const void *anchor) {
  float ahead[PRETENDER_ANCHOR];
  gets_ahead(p, ahead);
  memcpy(p->main, anchor, sizeof p->main);
  rebases(p, ahead);
}

int pretender_anchor_does(pretender *p, const hv_epoch_order *order, int *ok) {
  *ok = 1;
  switch (order->action) {
  case HV_EPOCH_LOCAL_STEP:
    steps_locally(p);
    return 1;
  case HV_EPOCH_PREPARE:
    *ok = prepares(p, order);
    return 1;
  case HV_EPOCH_STEP:
    (pretender_look(p)->state == HV_EPOCH_REPEATING ? repeats_step : steps)(p);
    return 1;
  case HV_EPOCH_APPLY:
    return 1;
  case HV_EPOCH_SNAPSHOT:
    memcpy(p->snapshot, p->main, sizeof p->snapshot);
    return 1;
  case HV_EPOCH_DROP:
    drops(p);
    return 1;
  default:
    return 0;
  }
}

void pretender_anchor_met(pretender *p, const hv_epoch_met *round) {
  p->round = (pretender_met){0};
  for (size_t i = 0; i < round->n_members && p->round.n < PRETENDER_MET; i++)
    if (!round->members[i].is_auxiliary && round->members[i].has_word) /* one without a word listens */
      p->round.members[p->round.n++] = round->members[i].peer;
  for (size_t i = 0; round->status == HV_OK && i < round->n_missed && i < PRETENDER_RANGES; i++)
    p->round.missed[p->round.n_missed++] = round->missed[i];
}
