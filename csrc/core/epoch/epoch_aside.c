/* With local steps, batches go on while a peer is aside (docs/design/local-steps.md). A load, or an average, comes beside them, and
 * waits until the training thread is here, between two batches. At first the thread waits for what is as quick as others wait for.
 */
#include "core/epoch/epoch_inner.h"

int epoch_comes_back(const hv_epoch *self) {
  return self->state == HV_EPOCH_COMING || self->state == HV_EPOCH_LOADING || self->state == HV_EPOCH_REPEATING ||
         self->state == HV_EPOCH_RESTING;
}

int hv_epoch_trains_aside(const hv_epoch *self) {
  return self->traits.carries && !self->is_asked && epoch_comes_back(self);
}

int hv_epoch_counts_batches(const hv_epoch *self) {
  int is_beside = self->state == HV_EPOCH_ENDING && self->traits.overlap;
  return self->state == HV_EPOCH_GATHERING || is_beside || hv_epoch_trains_aside(self);
}

static int chases(const hv_epoch *self) {
  int was_here = self->aside_us != HV_EPOCH_NONE;
  return self->state != HV_EPOCH_RESTING && was_here && self->at_us < self->aside_us + HV_EPOCH_CHASE_US;
}

uint64_t epoch_aside_due_us(const hv_epoch *self) {
  int is_due = hv_epoch_trains_aside(self) && self->aside_us != HV_EPOCH_NONE;
  return is_due ? self->aside_us + HV_EPOCH_CHASE_US : HV_EPOCH_NONE;
}

int epoch_is_free_aside(const hv_epoch *self) {
  return hv_epoch_trains_aside(self) && !chases(self);
}

/* Progress since another anchor than the swarm's goes with that anchor (rule 5 of the page). */
static void adopts(hv_epoch *self) {
  if (self->traits.carries && self->ledger->sums && !epoch_keeps_progress(self)) {
    hv_epoch_ledger_replaced(self->ledger);
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_DROP, 0);
  } else
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_ADOPT, self->own.loading.epoch);
}

void epoch_aside_goes_on(hv_epoch *self, const epoch_event *e) {
  if (self->end.acting[HV_EPOCH_NOW])
    return;
  int has_to_step = self->has_to_step;
  self->has_to_step = 0;
  if (has_to_step)
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 0);
  else if (self->state == HV_EPOCH_LOADING && self->own.loading.is_there)
    adopts(self);
  else if (self->state == HV_EPOCH_REPEATING && self->own.repeating.is_there) {
    self->own.repeating.is_there = 0;
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_REPEAT, 0);
  } else if (self->state == HV_EPOCH_RESTING)
    epoch_rests(self, e);
}

void epoch_has_come(hv_epoch *self, const epoch_event *e) {
  if (!epoch_is_free_aside(self))
    epoch_aside_goes_on(self, e);
}

void epoch_steps_aside(hv_epoch *self, const epoch_event *e, uint64_t samples) {
  epoch_wake(self, 0);
  hv_epoch_ledger_counted(self->ledger, samples);
  self->has_to_step = samples != 0;
  epoch_aside_goes_on(self, e);
}

int hv_epoch_waits_for_thread(const hv_epoch *self) {
  int is_there = (self->state == HV_EPOCH_LOADING && self->own.loading.is_there) ||
                 (self->state == HV_EPOCH_REPEATING && self->own.repeating.is_there);
  int is_over = self->state == HV_EPOCH_ENDING && self->end.is_over;
  return (is_over || (is_there && hv_epoch_trains_aside(self))) && !self->end.acting[HV_EPOCH_NOW];
}
