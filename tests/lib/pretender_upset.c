#include "lib/pretender_upset.h"

#include <string.h>

static int happens(pretender *p, pretender_upset upset) {
  if (p->program.upsets <= 0 || check_uniform(&p->rng) >= p->program.upsets)
    return 0;
  p->upset[upset]++;
  return 1;
}

static void drops_sums(pretender *p) {
  memset(p->sums, 0, sizeof p->sums);
  p->summed = 0;
}

int pretender_breaks(pretender *p, const hv_epoch_order *order) {
  if (order->action == HV_EPOCH_DROP || !happens(p, PRETENDER_BREAK))
    return 0;
  hv_sim_say(p->sim, "n%zu: %s raises an error", p->index, hv_epoch_work_name(order->action));
  hv_epoch_driver_broke(p->driver, order->number);
  return 1;
}

/* The sums are lost with the batch where both lie in one place. */
static void overflows(pretender *p) {
  uint64_t n = p->program.batch_samples, summed = check_random(&p->rng) % 2 ? p->summed : 0;
  if (summed)
    drops_sums(p);
  p->produced += n;
  hv_epoch_driver_overflow(p->driver, n, summed);
  hv_epoch_driver_batch(p->driver, 0, 0);
}

int pretender_batch_is_upset(pretender *p) {
  const hv_epoch *e = pretender_look(p);
  int was_finding = p->finds;
  p->finds = 0;
  if (was_finding && p->adopted != p->before_finding) {
    p->upset[PRETENDER_BEHIND]++;
    p->produced += p->program.batch_samples;
    hv_epoch_driver_behind(p->driver, p->program.batch_samples);
    return 1;
  }
  if (p->program.upsets > 0 && e->state == HV_EPOCH_LOOKING && !was_finding) {
    p->finds = 1;
    p->before_finding = p->adopted;
    hv_epoch_driver_batch(p->driver, 0, 0);
    return 1;
  }
  int counts = e->state == HV_EPOCH_GATHERING || e->state == HV_EPOCH_ENDING;
  if (!counts || !happens(p, PRETENDER_OVERFLOW))
    return 0;
  overflows(p);
  return 1;
}

static void saves(pretender *p) {
  const hv_epoch *e = pretender_look(p);
  p->saved = (pretender_saved){.is_there = 1,
                               .has_mark = e->lineage->is_known && !e->lineage->is_wrong && !e->is_unfit,
                               .epoch = e->told,
                               .mark = e->lineage->mark,
                               .schedule = p->schedule};
  memcpy(p->saved.model, p->model, sizeof p->model);
  memcpy(p->saved.main, p->main, sizeof p->main);
}

/* That of the checkpoint; of one that was edited, or is of an older version, a digest. */
static hv_mark mark_of_saved(const pretender *p, int is_whole) {
  hv_hash hash;
  hv_mark digest;
  if (is_whole)
    return p->saved.mark;
  p->env->sha256(p->env, hv_span_of(p->saved.model, sizeof p->saved.model), &hash);
  memcpy(digest.bytes, hash.bytes, sizeof digest.bytes);
  return digest;
}

static void restores(pretender *p) {
  hv_mark mark = mark_of_saved(p, p->saved.has_mark && check_random(&p->rng) % 4);
  memcpy(p->model, p->saved.model, sizeof p->model);
  memcpy(p->main, p->saved.main, sizeof p->main);
  p->schedule = p->saved.schedule;
  drops_sums(p);
  hv_sim_say(p->sim, "n%zu restores the state of epoch %llu", p->index, (unsigned long long)p->saved.epoch);
  hv_epoch_driver_restored(p->driver, p->saved.epoch, &mark);
}

static void more(pretender *p) {
  uint64_t n = p->program.batch_samples, behind = check_random(&p->rng) % 2 ? n : 0;
  for (size_t v = 0; v < PRETENDER_VALUES; v++)
    p->sums[v] += (float)n * (v % 2 ? 0.25f : -0.25f);
  p->summed += n;
  p->produced += n + behind;
  hv_epoch_driver_summed(p->driver, n, behind);
}

int pretender_is_upset(pretender *p) {
  const hv_epoch *e = pretender_look(p);
  if (p->program.upsets <= 0 || p->finds)
    return p->finds;
  if (e->late == HV_EPOCH_LATE_TO_TAKE && check_random(&p->rng) % 2) {
    p->upset[PRETENDER_PAUSE]++;
    hv_epoch_driver_pause(p->driver);
    return 1;
  }
  if (pretender_rests(p) && check_random(&p->rng) % 16 == 0)
    saves(p);
  if (p->saved.is_there && e->late != HV_EPOCH_LATE_WORKS && e->late != HV_EPOCH_LATE_VOID && happens(p, PRETENDER_RESTORE)) {
    restores(p);
    return 1;
  }
  if (e->state == HV_EPOCH_GATHERING && happens(p, PRETENDER_MORE)) {
    more(p);
    return 0;
  }
  if (happens(p, PRETENDER_ASK)) {
    hv_sim_say(p->sim, "n%zu asks for the swarm's state", p->index);
    hv_epoch_driver_asked(p->driver, e->told);
    return 1;
  }
  return 0;
}
