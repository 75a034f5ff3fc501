/* Ahead of the swarm: a peer that went on alone, and has others again, loads their state (rule 23 in docs/design/epoch.md). */
#include "core/epoch/epoch_inner.h"

/* The state of their epoch is on offer, or of one since then. */
static int has_theirs(const hv_epoch *self, const hv_progress_figures *f) {
  const hv_epoch_look *look = &self->look;
  return !look->is_under_way && look->begun_us != HV_EPOCH_NONE && look->begun_us >= self->ahead_us &&
         look->found != HV_EPOCH_NONE && look->found >= f->epoch && look->found < self->told;
}

int epoch_is_ahead(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  int are_most = f->n_peers > 1; /* of two peers, the one that has more goes on, and the other one loads */
  if (!self->traits.sums || !self->has_met || !are_most || f->standing != HV_PROGRESS_AHEAD ||
      self->told < f->epoch + HV_EPOCH_FAR_AHEAD) {
    self->ahead_us = HV_EPOCH_NONE;
    return 0;
  }
  if (self->ahead_us == HV_EPOCH_NONE)
    self->ahead_us = e->now_us;
  if (!has_theirs(self, f)) {
    epoch_begins_look(self, f->epoch, e->now_us);
    return 0;
  }
  if (e->now_us < self->ahead_us + HV_EPOCH_MOST_LOOK_US)
    return 0;
  self->ahead_us = HV_EPOCH_NONE;
  self->goes_back = 1;
  self->lineage->is_wrong = 1;
  return 1;
}
