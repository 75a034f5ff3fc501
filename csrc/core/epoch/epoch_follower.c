/* The machine of a peer without a replica (contract in epoch_follower.h; rules by their numbers in docs/design/epoch.md). */
#include "core/epoch/epoch_follower.h"

/* It follows the epochs of the others, also back: it is one ahead of them at most, unless it believed a claim of one that was
 * counted alone (rule 15). */
static void follows(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  if (f->epoch > self->told || (f->n_peers && f->epoch + 1 < self->told)) {
    epoch_cancel(self);
    epoch_counts(self, f->epoch, e->now_us);
    epoch_reached(self);
  }
}

/* Where gradients are averaged later, trainers count an epoch before its round: it goes there first (rule 7). */
static int misses_round(const hv_epoch *self, const hv_progress_figures *f) {
  return self->traits.lead && f->epoch == self->told + self->traits.lead &&
         (self->sought != self->told || self->seeking[HV_EPOCH_GRADIENTS]);
}

static void begins_rounds(hv_epoch *self, const hv_progress_figures *f) {
  int with_hub = epoch_meets_hub_alone(self, f);
  epoch_moves(self, HV_EPOCH_ENDING);
  self->end =
      (hv_epoch_run){.epoch = self->told, .with_hub = with_hub, .plan = *hv_epoch_plan_end(&self->traits, self->told + 1, 0)};
  epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 0);
}

void follower_looks_around(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  int misses = misses_round(self, f);
  if (!misses)
    follows(self, e);
  int near = misses || (f->epoch == self->told && epoch_has_partners(self, f) && f->eta_us <= self->config.matchmaking_us);
  if (near && epoch_has_partners(self, f) && epoch_forms_groups(self, f))
    epoch_seeks(self, f);
  if (near)
    begins_rounds(self, f);
}

/* ---- rounds ---- */

static void has_ended(hv_epoch *self) {
  hv_epoch_run *r = &self->end;
  epoch_moves(self, HV_EPOCH_GATHERING);
  epoch_tell(self, HV_EPOCH_SAYS_ENDED);
  self->sought = self->sought == r->epoch ? HV_EPOCH_NONE : self->sought;
  epoch_reached(self);
  epoch_tell(self, HV_EPOCH_SAYS_SETTLED);
  self->made = r->epoch + 1;
}

/* Nobody comes to the state's round after a round of gradients to which nobody came. */
static void skips_state(hv_epoch *self) {
  if (self->seeking[HV_EPOCH_REPLICA_STATE])
    epoch_order(self, HV_EPOCH_CANCEL)->which = HV_EPOCH_REPLICA_STATE;
  self->seeking[HV_EPOCH_REPLICA_STATE] = 0;
}

/* The plan's list, up to the next round. */
static void advances(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  while (r->at[HV_EPOCH_NOW] < r->plan.n_now) {
    unsigned action = r->plan.now[r->at[HV_EPOCH_NOW]++];
    if (action == HV_EPOCH_COUNT) {
      epoch_counts(self, r->epoch + 1, e->now_us);
      epoch_wake(self, 0);
    } else if (action == HV_EPOCH_AVERAGE_STATE && (r->nobody || r->with_hub))
      skips_state(self);
    else {
      epoch_begins_round(self, HV_EPOCH_NOW, action == HV_EPOCH_AVERAGE_STATE ? HV_EPOCH_REPLICA_STATE : HV_EPOCH_GRADIENTS);
      return;
    }
  }
  has_ended(self);
}

void follower_is_prepared(hv_epoch *self, const epoch_event *e) {
  if (self->state == HV_EPOCH_ENDING)
    advances(self, e);
}

/* Rule 7: it must not be ahead of those who are still in this epoch, or they would be left out. */
static int are_others_past(const hv_epoch *self, hv_epoch_which which, const hv_progress_figures *f) {
  return f->epoch > self->end.epoch + (which == HV_EPOCH_GRADIENTS ? self->traits.lead : 0);
}

void follower_round_is_over(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  self->seeking[e->which] = 0;
  if (r->rounding[HV_EPOCH_NOW] != 1 + (int)e->which)
    return;
  r->rounding[HV_EPOCH_NOW] = 0;
  if (self->state == HV_EPOCH_LEAVING)
    return;
  int is_gradients = e->which == HV_EPOCH_GRADIENTS, is_last = is_gradients || !self->traits.sums;
  int by_nobody = e->outcome == HV_EPOCH_NOBODY || (is_gradients && e->outcome == HV_EPOCH_LEFT_OUT && e->figures->n_peers <= 1);
  if (is_gradients) {
    r->nobody = by_nobody;
    r->averaged = e->outcome == HV_EPOCH_CONFIRMED;
    r->with_hub = epoch_has_met_hub_alone(e);
    self->has_met |= r->averaged && !r->with_hub;
  } else
    r->state_averaged = e->outcome == HV_EPOCH_CONFIRMED;
  int stays = by_nobody || (self->traits.carries && !r->averaged); /* after a failed round of differences they end it again */
  if (stays && is_last && !are_others_past(self, e->which, e->figures)) {
    epoch_stays(self, HV_EPOCH_SAYS_STAYS);
    return;
  }
  if (!r->acting[HV_EPOCH_NOW])
    advances(self, e);
}

/* ---- rounds of no use (rule 19) ---- */

/* The others have ended this round, whether or not they train while the state is averaged. */
static int are_members_past(const hv_epoch *self, hv_epoch_which which, const hv_progress_figures *f) {
  return which == HV_EPOCH_GRADIENTS ? are_others_past(self, which, f) : f->epoch > self->end.epoch + 1;
}

/* The others need it in the next round, and it still seeks a group of the one before. */
static int is_sought_next(const hv_epoch *self, hv_epoch_which which, const hv_progress_figures *f) {
  return which == HV_EPOCH_REPLICA_STATE && f->epoch == self->end.epoch + 1 && epoch_forms_groups(self, f);
}

/* A search ends at once. A group that has formed decides by its round, until its members are past that. */
static void leaves_missed(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  int round = self->state == HV_EPOCH_ENDING ? r->rounding[HV_EPOCH_NOW] : 0;
  hv_epoch_which which = round ? (hv_epoch_which)(round - 1) : HV_EPOCH_GRADIENTS;
  int is_past = round && are_members_past(self, which, e->figures);
  if (is_past || (round && is_sought_next(self, which, e->figures)))
    epoch_order(self, HV_EPOCH_GIVE_UP)->which = which;
  r->missed_us = !is_past ? 0 : r->missed_us ? r->missed_us : e->now_us | 1;
  if (is_past && self->traits.sums && e->now_us >= r->missed_us + HV_EPOCH_CHASE_US)
    epoch_order(self, HV_EPOCH_CANCEL)->which = which;
}

void follower_leaves_rounds(hv_epoch *self, const epoch_event *e) {
  if (self->state == HV_EPOCH_GATHERING && !epoch_has_partners(self, e->figures))
    epoch_cancel(self); /* those who are in a group would wait for it */
  leaves_missed(self, e);
  epoch_end_is_lonely(self, e);
}
