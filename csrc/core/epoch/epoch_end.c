/* An epoch's end: the plan's lists, its rounds, and the late lane (rules 5 to 9 in docs/design/epoch.md). */
#include "core/epoch/epoch_inner.h"

enum { TAKEN = 1, NOTHING = 2 }; /* of hv_epoch_run.taken */
enum { ROUND_AHEAD = 2 };        /* members that are done with a round offer the next epoch's state, while others are still in it */

static void advances(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e);

/* While the model trains on: what is averaged is taken before. */
static int takes_ahead(const hv_epoch_run *r) {
  return r->plan.n_late && r->plan.late[0] == HV_EPOCH_AVERAGE_STATE;
}

/* ---- groups ---- */

static uint64_t number_of(const hv_epoch *self, hv_epoch_which which, uint64_t epoch) {
  return which == HV_EPOCH_GRADIENTS ? epoch : hv_epoch_state_number(&self->traits, epoch + 1);
}

/* left_us: until the group is needed (rule 6). */
static hv_epoch_order *begins_seek(hv_epoch *self, hv_epoch_lane lane, hv_epoch_which which, uint64_t epoch, uint64_t left_us) {
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_SEEK);
  order->which = which;
  order->lane = lane;
  order->epoch = number_of(self, which, epoch);
  order->wait_us = left_us + self->config.matchmaking_us;
  order->wait_us = order->wait_us > HV_EPOCH_LEAST_US ? order->wait_us : HV_EPOCH_LEAST_US;
  order->timeout_us = left_us + hv_epoch_averaging_us(self) + HV_EPOCH_SLACK_US;
  self->seeking[which] = 1;
  return order;
}

uint64_t epoch_left_us(const hv_epoch *self, const hv_progress_figures *f) {
  uint64_t lasts_us = self->lasts_us > self->at_us ? self->lasts_us - self->at_us : 0;
  return f->eta_us > lasts_us ? f->eta_us : lasts_us;
}

static uint64_t left_of(const hv_epoch *self, const hv_progress_figures *f) {
  uint64_t left_us = epoch_left_us(self, f);
  uint64_t most_us = hv_epoch_averaging_us(self);
  return left_us < most_us ? left_us : most_us;
}

void epoch_seeks_to_listen(hv_epoch *self, const hv_progress_figures *f) {
  self->sought = f->epoch;
  begins_seek(self, HV_EPOCH_NOW, HV_EPOCH_GRADIENTS, f->epoch, left_of(self, f))->ask = 1;
}

/* Its word in the group tells the hub, so that both have one outcome. */
static void says_whether_by_itself(hv_epoch *self, const hv_progress_figures *f) {
  self->lineage->is_by_itself = self->traits.has_replica && epoch_meets_hub_alone(self, f);
}

/* Once in an epoch (rule 5). */
void epoch_seeks(hv_epoch *self, const hv_progress_figures *f) {
  uint64_t left_us = left_of(self, f);
  if (self->sought == self->told)
    return;
  epoch_cancel(self);
  self->sought = self->told;
  says_whether_by_itself(self, f);
  if (self->traits.sums)
    begins_seek(self, HV_EPOCH_NOW, HV_EPOCH_GRADIENTS, self->told, left_us);
  if (hv_epoch_averages_state_at(&self->traits, self->told + 1) && !epoch_meets_hub_alone(self, f)) /* nobody has another one */
    begins_seek(self, HV_EPOCH_NOW, HV_EPOCH_REPLICA_STATE, self->told, left_us);
}

void epoch_begins_round(hv_epoch *self, hv_epoch_lane lane, hv_epoch_which which) {
  if (!self->seeking[which])
    begins_seek(self, lane, which, self->end.epoch, 0);
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_TRIGGER);
  order->which = which;
  order->lane = lane;
  order->samples = self->end.samples;
  if (which == HV_EPOCH_GRADIENTS) {
    order->ask = self->line.narrow;
    epoch_line_begins(self, self->at_us);
  }
  self->end.rounding[lane] = 1 + (int)which;
}

/* ---- the end ---- */

void epoch_end_takes_sums(hv_epoch *self) {
  self->end.samples = self->traits.sums ? hv_epoch_ledger_taken(self->ledger) : self->ledger->sums;
}

void epoch_begins_end(hv_epoch *self, const epoch_event *e) {
  if (self->state != HV_EPOCH_ENDING)
    epoch_moves(self, HV_EPOCH_ENDING);
  if (self->late != HV_EPOCH_LATE_IDLE) {
    epoch_takes(self); /* rule 2: its outcome first, then another look; it may have come while the batch stepped */
    return;
  }
  hv_epoch_run *r = &self->end;
  if (!self->seeking[HV_EPOCH_GRADIENTS])
    says_whether_by_itself(self, e->figures);
  *r = (hv_epoch_run){.epoch = self->told, .with_hub = self->lineage->is_by_itself};
  r->alone = e->figures->n_peers <= 1 && !r->with_hub;
  r->plan = *hv_epoch_plan_end(&self->traits, self->told + 1, r->alone);
  r->begun_us = r->sought_us = e->now_us;
  if (r->alone)
    epoch_cancel(self);
  epoch_end_takes_sums(self);
  epoch_line_chooses(self, e->figures);
  epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_PREPARE, r->samples);
}

int epoch_end_prepares(const hv_epoch *self) {
  return self->state == HV_EPOCH_ENDING && self->end.acting[HV_EPOCH_NOW] && self->end.action[HV_EPOCH_NOW] == HV_EPOCH_PREPARE;
}

/* ---- batches beside a round of differences (docs/design/local-steps.md, "Overlap") ---- */

/* A short round is waited for. */
int epoch_end_is_free(const hv_epoch *self) {
  const hv_epoch_run *r = &self->end;
  if (self->state != HV_EPOCH_ENDING || !self->traits.overlap)
    return 0;
  int is_long = epoch_line_round_us(self) > HV_EPOCH_CHASE_US || self->at_us >= r->begun_us + HV_EPOCH_CHASE_US;
  return r->is_over || (r->rounding[HV_EPOCH_NOW] && is_long && 100 * self->ledger->sums < self->traits.overlap * r->samples);
}

/* Where rounds take R, an epoch lasts so long that R is the part of it in which its difference may travel. */
static void lasts(hv_epoch *self, uint64_t now_us) {
  uint64_t round_us = epoch_line_round_us(self), most_us = hv_epoch_averaging_us(self), part = self->traits.overlap;
  round_us = round_us < most_us ? round_us : most_us;
  if (part && self->end.averaged && round_us > HV_EPOCH_CHASE_US)
    self->lasts_us = now_us + round_us * (100 - part) / part;
}

static void meets_thread(hv_epoch *self, const epoch_event *e) {
  int has_to_step = self->has_to_step;
  if (self->end.acting[HV_EPOCH_NOW])
    return;
  self->has_to_step = 0;
  if (has_to_step)
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 0);
  else if (!self->end.rounding[HV_EPOCH_NOW])
    advances(self, HV_EPOCH_NOW, e);
}

void epoch_end_has_batch(hv_epoch *self, const epoch_event *e) {
  if (!self->traits.overlap) {
    self->has_to_step = 0;
    return;
  }
  if (!self->end.acting[HV_EPOCH_NOW])
    epoch_offers_overdue(self, e);
  meets_thread(self, e);
}

static void counts(hv_epoch *self, const epoch_event *e) {
  if (!self->traits.sums)
    epoch_keeps_sums(self);
  epoch_counts(self, self->end.epoch + 1, e->now_us);
  lasts(self, e->now_us);
  epoch_wake(self, 0);
}

/* The mark moves with the step: by the stamp of the average, or of what the log keeps of a step of its own, or by this peer's name
 * (lineage, rules 2 and 3). */
static void has_stepped(hv_epoch *self, const hv_epoch_step_facts *facts, uint64_t now_us) {
  hv_epoch_run *r = &self->end;
  r->stepped = 1;
  self->is_apart = !r->averaged;
  self->loads = 0;
  if (!r->averaged)
    hv_epoch_ledger_stepped(self->ledger);
  if (!self->lineage->is_kept)
    return;
  if (facts->setup.size)
    hv_lineage_set_up(self->lineage, self->config.env, facts->setup);
  if (r->averaged || facts->n_stamps)
    hv_lineage_stepped(self->lineage, self->config.env, facts->n_stamps ? facts->stamps : &r->stamp,
                       facts->n_stamps ? facts->n_stamps : 1, facts->frozen, facts->n_frozen, self->config.target);
  else
    hv_lineage_stepped_alone(self->lineage, self->config.env, &self->config.me, r->epoch, now_us, r->samples);
}

/* Others will want to repeat it (docs/design/lone-peers.md). */
static int keeps_own(const hv_epoch *self) {
  return self->config.entry_bytes && (epoch_is_on_the_way(self) || self->traits.lead);
}

static int steps(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  self->replica = HV_EPOCH_NONE;
  if (!self->end.averaged && !self->end.samples) { /* it has counted the epoch, and has nothing for it */
    epoch_tell(self, HV_EPOCH_SAYS_NO_STEP);
    has_stepped(self, &(hv_epoch_step_facts){0}, e->now_us);
    return 0;
  }
  epoch_act(self, lane, HV_EPOCH_STEP, self->end.samples)->ask = self->end.alone && keeps_own(self);
  return 1;
}

/* Rule 9: an epoch waits once for those who have gone; and what is wrong is in no average. */
static int averages_state(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  int gone = e->figures->n_peers <= 1 || r->with_hub;
  if (r->nobody || gone || r->lost_some || epoch_is_unusable(self) || r->taken == NOTHING) {
    if (self->seeking[HV_EPOCH_REPLICA_STATE])
      epoch_order(self, HV_EPOCH_CANCEL)->which = HV_EPOCH_REPLICA_STATE;
    self->seeking[HV_EPOCH_REPLICA_STATE] = 0;
    return 0;
  }
  if (!r->taken) {
    epoch_act(self, lane, HV_EPOCH_TAKE, 0);
    return 1;
  }
  int is_in_model = takes_ahead(r) || (lane == HV_EPOCH_NOW && !self->traits.copies);
  if (is_in_model && r->averaged && !r->meets_another && !self->config.differs)
    self->made = r->epoch + 1; /* the average changes nothing any more, so joiners need not wait for it */
  epoch_begins_round(self, lane, HV_EPOCH_REPLICA_STATE);
  return 1;
}

/* 1: it is waited for. */
static int does(hv_epoch *self, hv_epoch_lane lane, unsigned action, const epoch_event *e) {
  switch (action) {
  case HV_EPOCH_AVERAGE_GRADIENTS:
    epoch_begins_round(self, lane, HV_EPOCH_GRADIENTS);
    return 1;
  case HV_EPOCH_STEP:
    return steps(self, lane, e);
  case HV_EPOCH_COUNT:
    counts(self, e);
    return 0;
  case HV_EPOCH_AVERAGE_STATE:
    return averages_state(self, lane, e);
  default:
    epoch_act(self, lane, action, action == HV_EPOCH_APPLY ? (uint64_t)self->end.state_averaged : 1);
    return 1;
  }
}

/* The state as the epoch left it: where it is the swarm's, joiners may have it (rules 8 and 15). */
static void settles(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  int divided = !r->alone && !r->state_averaged && (self->config.differs || !self->traits.sums);
  self->sought = self->sought == r->epoch ? HV_EPOCH_NONE : self->sought;
  epoch_reached(self);
  epoch_tell(self, HV_EPOCH_SAYS_SETTLED);
  if (epoch_is_unusable(self)) {
    epoch_comes(self, e);
    return;
  }
  self->made = self->replica = r->epoch + 1;
  self->leads_nowhere = 0;
  if (!divided)
    epoch_offers_begin(self, e, r->state_averaged);
}

static void now_is_over(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  if (takes_ahead(r) && !r->taken) {
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_TAKE, 0);
    return;
  }
  epoch_moves(self, HV_EPOCH_GATHERING);
  epoch_tell(self, HV_EPOCH_SAYS_ENDED);
  if (r->plan.n_late) {
    self->late = HV_EPOCH_LATE_WORKS;
    advances(self, HV_EPOCH_LATE, e);
  } else
    settles(self, e);
}

/* Nobody made this step: the epoch goes on (rule 7). */
void epoch_stays(hv_epoch *self, hv_epoch_notice notice) {
  epoch_tell(self, notice);
  epoch_cancel(self);
  epoch_moves(self, HV_EPOCH_GATHERING);
  epoch_wake(self, 1);
}

static void advances(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  r->is_over = 0;
  if (r->returns) {
    epoch_act(self, lane, HV_EPOCH_RETURN, r->samples);
    return;
  }
  const uint8_t *list = lane == HV_EPOCH_NOW ? r->plan.now : r->plan.late;
  size_t n = lane == HV_EPOCH_NOW ? r->plan.n_now : r->plan.n_late;
  while (r->at[lane] < n) {
    unsigned action = list[r->at[lane]];
    if (lane == HV_EPOCH_LATE && action == HV_EPOCH_APPLY) {
      self->late = HV_EPOCH_LATE_TO_TAKE;
      if (self->state == HV_EPOCH_ENDING)
        epoch_takes(self);
      return;
    }
    r->at[lane]++;
    if (does(self, lane, action, e))
      return;
  }
  if (lane == HV_EPOCH_NOW)
    now_is_over(self, e);
}

int epoch_takes(hv_epoch *self) {
  if (self->late != HV_EPOCH_LATE_TO_TAKE)
    return 0;
  epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_APPLY, (uint64_t)self->end.state_averaged);
  return 1;
}

void epoch_end_acted(hv_epoch *self, hv_epoch_lane lane, unsigned action, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  if (lane == HV_EPOCH_LATE && self->late == HV_EPOCH_LATE_VOID) {
    if (action == HV_EPOCH_STEP) { /* which was under way */
      has_stepped(self, &e->step, e->now_us);
      self->has_to_apply = self->traits.copies;
    }
    return;
  }
  if (action == HV_EPOCH_APPLY && lane == HV_EPOCH_NOW && self->late == HV_EPOCH_LATE_TO_TAKE) {
    int only_takes = self->only_takes;
    self->only_takes = 0;
    self->late = HV_EPOCH_LATE_IDLE;
    settles(self, e);
    self->goes_on = !only_takes && self->end.acting[HV_EPOCH_NOW] != 0; /* a copy of the state comes first */
    if (!self->goes_on && !only_takes && !epoch_is_aside(self))
      epoch_goes_on(self, e); /* rule 2: by this event's reading */
    return;
  }
  if (action == HV_EPOCH_RETURN) {
    hv_epoch_ledger_returned(self->ledger);
    epoch_stays(self, HV_EPOCH_SAYS_CARRIES);
    return;
  }
  if (action == HV_EPOCH_STEP)
    has_stepped(self, &e->step, e->now_us);
  if (action == HV_EPOCH_PREPARE && e->ok <= 0 && r->samples) { /* not finite: it takes the others' average */
    hv_epoch_ledger_not_finite(self->ledger);
    r->samples = 0;
  }
  if (action == HV_EPOCH_TAKE) {
    r->taken = e->ok > 0 ? TAKEN : NOTHING;
    if (e->ok < 0) {
      self->is_unfit = 1;
      hv_lineage_is_left(self->lineage);
    }
    if (!takes_ahead(r))
      r->at[lane]--; /* to AVERAGE_STATE again */
  }
  if (!r->rounding[lane])
    advances(self, lane, e);
}

void epoch_end_lacks_step(hv_epoch *self) {
  self->end.acting[HV_EPOCH_NOW] = 0;
  self->end.is_over = !self->end.rounding[HV_EPOCH_NOW];
}

void epoch_end_goes_on(hv_epoch *self, const epoch_event *e) {
  if (self->state == HV_EPOCH_ENDING && self->late == HV_EPOCH_LATE_IDLE)
    meets_thread(self, e);
}

/* ---- rounds ---- */

void epoch_end_breaks(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  int takes = self->late == HV_EPOCH_LATE_TO_TAKE, has_sums = lane == HV_EPOCH_NOW && self->state == HV_EPOCH_ENDING && !takes;
  if (lane == HV_EPOCH_NOW && self->state != HV_EPOCH_ENDING && !takes)
    return;
  epoch_cancel(self);
  hv_epoch_ledger_broken(self->ledger);
  if (!r->stepped)
    self->told = r->epoch;
  else if (self->told == r->epoch) {
    counts(self, e);
    epoch_reached(self);
  }
  /* a step has to reach the model */
  self->late = r->stepped && self->traits.copies ? HV_EPOCH_LATE_TO_TAKE : HV_EPOCH_LATE_IDLE;
  r->state_averaged &= !has_sums; /* DROP forgets the average */
  self->goes_on = self->only_takes = 0;
  if (self->state == HV_EPOCH_ENDING)
    epoch_moves(self, HV_EPOCH_GATHERING);
  epoch_wake(self, 0);
  if (has_sums) /* the program may have them still */
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_DROP, 0);
}

static void is_left_out(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  epoch_tell(self, HV_EPOCH_SAYS_LEFT_OUT);
  if (self->traits.carries)
    hv_epoch_ledger_returned(self->ledger);
  else
    hv_epoch_ledger_over(self->ledger, HV_EPOCH_LEFT_OUT, 0);
  hv_lineage_is_left(self->lineage);
  self->wanted = r->epoch + 1;
  self->told = self->left_out = r->epoch;
  epoch_cancel(self);
  if (lane == HV_EPOCH_LATE)
    self->late = HV_EPOCH_LATE_IDLE; /* the training thread comes when it has its batch */
  if (self->state == HV_EPOCH_ENDING)
    epoch_comes(self, e);
}

static void judges(hv_epoch *self, const epoch_event *e) {
  hv_lineage_view view = hv_lineage_view_of(e->members, e->n_members);
  self->end.meets_another = view.any && view.n_right < view.n_words;
  if (!self->lineage->is_kept)
    return;
  if (view.giver && hv_peer_equal(&view.giver->peer, &self->config.me))
    epoch_is_giver(self, e, self->end.epoch + 1);
  if (hv_lineage_judge(self->lineage, &view))
    hv_epoch_ledger_kept_settled(self->ledger);
  else
    epoch_tell(self, HV_EPOCH_SAYS_WRONG);
}

/* A step by itself would be of a replica that nobody can load, while another that can be dialled is in this epoch: it will come.
 * Not after a search that ended at once, as the next one would. */
static int waits_for_the_open(const hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  return e->now_us >= self->end.sought_us + HV_EPOCH_AGAIN_US && !self->config.reachable && self->told == self->end.epoch &&
         f->epoch == self->end.epoch && f->n_peers > f->n_clients && e->now_us < self->end.begun_us + self->config.averaging_us;
}

/* Rule 7: no step by itself yet. */
static int has_to_seek_again(const hv_epoch *self, const epoch_event *e) {
  return self->traits.sums && !self->traits.carries && (!epoch_may_be_alone(self) || waits_for_the_open(self, e));
}

/* Rule 7: the others who were counted at its end have gone, or count fewer samples, so the epoch lasts. One that was held ends all
 * the same. */
static int has_to_gather_on(const hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  return lane == HV_EPOCH_NOW && self->end.samples && !self->traits.carries && f->n_peers > 1 && f->epoch == self->end.epoch &&
         !f->ready && !self->hold.is_due;
}

static void seeks_again(hv_epoch *self, const epoch_event *e);

/* Rule 7, for differences: the epoch ends again, after a while in which batches are made. It is half as long as a search that found
 * nobody, so searches of two peers cannot miss each other for good. A search that ended at once would do so after each batch. */
static void carries(hv_epoch *self, const epoch_event *e) {
  uint64_t took_us = e->now_us - self->end.begun_us;
  hv_epoch_ledger_returned(self->ledger);
  self->again_us = e->now_us + (took_us > HV_EPOCH_AGAIN_US ? took_us / 2 : HV_EPOCH_AGAIN_US / 2);
  epoch_stays(self, HV_EPOCH_SAYS_CARRIES);
}

/* One that does not come may be too old for it, or have no place for the run's rounds: the next wait for it is later. */
static void meets_hub(hv_epoch *self, const epoch_event *e, int was_to_come) {
  hv_epoch_hub *hub = &self->hub;
  if (e->outcome == HV_EPOCH_CONFIRMED && epoch_has_met_hub_alone(e))
    *hub = (hv_epoch_hub){.us = e->now_us};
  else if (e->outcome == HV_EPOCH_NOBODY && was_to_come) {
    hub->us = HV_EPOCH_NONE;
    hub->after_us = e->now_us + epoch_doubled(HV_EPOCH_NO_HUB_US, hub->misses++, HV_EPOCH_KEEPS_OWN_US);
  }
}

/* Rule 7, a table on the page. */
static void gradients_are_over(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  int counted = self->told != r->epoch, has_samples = r->samples || counted;
  hv_epoch_outcome outcome = e->outcome;
  int met_hub = e->n_members > 1, are_past = e->figures->n_peers > 1 && e->figures->epoch > r->epoch;
  if (outcome == HV_EPOCH_NOBODY && (met_hub || are_past) && self->loads && self->lineage->is_kept)
    outcome = HV_EPOCH_LEFT_OUT; /* it came as the others ended this epoch, who had not heard of it */
  else if (outcome == HV_EPOCH_LEFT_OUT && e->figures->n_peers <= 1)
    outcome = HV_EPOCH_NOBODY; /* by a hub alone, which makes no step */
  else if (outcome == HV_EPOCH_FAILED && lane == HV_EPOCH_NOW && epoch_is_passed(self, e, ROUND_AHEAD))
    outcome = HV_EPOCH_LEFT_OUT; /* they have made this step and the next one */
  if (outcome == HV_EPOCH_LEFT_OUT && self->traits.carries && e->figures->epoch <= r->epoch)
    outcome = HV_EPOCH_FAILED; /* if the others make a step, they count it, and this peer comes */
  if (outcome == HV_EPOCH_LEFT_OUT) {
    is_left_out(self, lane, e);
    return;
  }
  r->returns = outcome == HV_EPOCH_NOBODY && has_to_gather_on(self, lane, e);
  if (!r->returns && outcome == HV_EPOCH_NOBODY && has_to_seek_again(self, e)) {
    r->rounding[lane] = 1 + HV_EPOCH_GRADIENTS;
    r->again_us = r->sought_us + HV_EPOCH_AGAIN_US; /* this search may have ended at once */
    r->again_lane = lane;
    seeks_again(self, e);
    return;
  }
  r->nobody = outcome == HV_EPOCH_NOBODY;
  meets_hub(self, e, r->with_hub);
  r->with_hub = epoch_has_met_hub_alone(e);
  if (outcome == HV_EPOCH_CONFIRMED) {
    r->averaged = 1;
    r->stamp = e->stamp;
    r->lost_some = e->n_lost > 0;
    if (self->traits.carries)
      hv_epoch_ledger_shared(self->ledger, e->share);
    else {
      hv_epoch_ledger_cut(self->ledger, self->config.target);
      hv_epoch_ledger_over(self->ledger, outcome, e->share);
    }
    judges(self, e);
    self->has_met |= !r->with_hub;
  } else if ((r->nobody || self->traits.carries) && !has_samples) {
    epoch_stays(self, HV_EPOCH_SAYS_STAYS);
    return;
  } else if (self->traits.carries && (e->figures->n_peers > 1 || !epoch_may_be_alone(self))) {
    carries(self, e);
    return;
  } else if (!r->returns) {
    hv_epoch_ledger_over(self->ledger, outcome, 0);
    epoch_tell(self, HV_EPOCH_SAYS_OWN_STEP);
  }
  if (!r->acting[lane] && !r->is_over)
    advances(self, lane, e);
}

static void state_is_over(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  r->state_averaged = e->outcome == HV_EPOCH_CONFIRMED;
  if (r->state_averaged && !self->traits.sums)
    hv_epoch_ledger_kept_settled(self->ledger);
  if (r->state_averaged && !e->ok) /* not all that was averaged was this replica (lineage, rule 5) */
    hv_lineage_averaged(self->lineage, self->config.env, e->stamp);
  if (!r->state_averaged && (e->ok < 0 || (!e->ok && r->meets_another)))
    hv_lineage_averaged_in_part(self->lineage, self->config.env, &self->config.me, r->epoch, e->now_us);
  if (!r->acting[lane])
    advances(self, lane, e);
}

void epoch_round_is_over(hv_epoch *self, const epoch_event *e) {
  self->seeking[e->which] = 0;
  if (self->state == HV_EPOCH_REPEATING)
    epoch_has_listened(self, e);
  for (hv_epoch_lane lane = 0; lane < HV_EPOCH_LANES; lane++) {
    if (self->end.rounding[lane] != 1 + (int)e->which)
      continue;
    self->end.is_over = epoch_end_is_free(self);
    self->end.rounding[lane] = 0;
    if (lane == HV_EPOCH_LATE && self->late == HV_EPOCH_LATE_VOID)
      return;
    if (self->state == HV_EPOCH_LEAVING)
      return;
    (e->which == HV_EPOCH_GRADIENTS ? gradients_are_over : state_is_over)(self, lane, e);
    return;
  }
}

static void seeks_again(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  hv_epoch_lane lane = r->again_lane;
  if (!r->again_us || e->now_us < r->again_us)
    return;
  r->again_us = 0;
  r->rounding[lane] = 0;
  if (e->figures->n_peers <= 1 && !epoch_has_company(self, e)) { /* which it waits for */
    r->rounding[lane] = 1 + HV_EPOCH_GRADIENTS;
    r->again_us = e->now_us + HV_EPOCH_AGAIN_US;
  } else if (e->figures->epoch > r->epoch + self->traits.lead) {
    is_left_out(self, lane, e);
  } else if (epoch_has_partners(self, e->figures)) {
    r->sought_us = e->now_us;
    says_whether_by_itself(self, e->figures);
    epoch_begins_round(self, lane, HV_EPOCH_GRADIENTS);
  } else {
    epoch_event nobody = *e;
    nobody.outcome = HV_EPOCH_NOBODY;
    nobody.n_members = 0;
    gradients_are_over(self, lane, &nobody);
  }
}

/* Rule 19: a peer that stood still in a round would wait long for others that have ended it. */
static void leaves_passed(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  if (self->state == HV_EPOCH_ENDING && r->rounding[HV_EPOCH_NOW] && epoch_is_passed(self, e, ROUND_AHEAD))
    epoch_order(self, HV_EPOCH_CANCEL)->which = (hv_epoch_which)(r->rounding[HV_EPOCH_NOW] - 1);
}

uint64_t epoch_end_due_us(const hv_epoch *self) {
  const hv_epoch_run *r = &self->end;
  uint64_t due_us = HV_EPOCH_NONE;
  if (r->again_us)
    due_us = epoch_sooner(self, due_us, r->again_us);
  if (r->lonely_us)
    due_us = epoch_sooner(self, due_us, r->lonely_us + HV_EPOCH_CHASE_US);
  if (self->traits.overlap && self->state == HV_EPOCH_ENDING)
    due_us = epoch_sooner(self, due_us, r->begun_us + HV_EPOCH_CHASE_US);
  if (r->missed_us)
    due_us = epoch_sooner(self, due_us, r->missed_us + HV_EPOCH_CHASE_US);
  if (self->state == HV_EPOCH_ENDING && self->look.begun_us != HV_EPOCH_NONE)
    due_us = epoch_sooner(self, due_us, self->look.begun_us + HV_EPOCH_AGAIN_US);
  return due_us;
}

/* Rule 19: for a moment it waits for one that loads a state. A group that has formed is left to its round. */
void epoch_end_is_lonely(hv_epoch *self, const epoch_event *e) {
  hv_epoch_run *r = &self->end;
  int waits = (self->state == HV_EPOCH_ENDING && r->rounding[HV_EPOCH_NOW]) ||
              (self->late == HV_EPOCH_LATE_WORKS && r->rounding[HV_EPOCH_LATE] && !epoch_is_aside(self));
  if (!waits || e->figures->n_peers > 1 || r->with_hub) {
    r->lonely_us = 0;
    return;
  }
  if (!r->lonely_us)
    r->lonely_us = e->now_us | 1;
  if (e->now_us < r->lonely_us + HV_EPOCH_CHASE_US)
    return;
  for (hv_epoch_lane lane = 0; lane < HV_EPOCH_LANES; lane++)
    if (r->rounding[lane])
      epoch_order(self, HV_EPOCH_GIVE_UP)->which = (hv_epoch_which)(r->rounding[lane] - 1);
}

void epoch_end_leaves_rounds(hv_epoch *self, const epoch_event *e) {
  if (self->config.company != HV_EPOCH_ALONE_TRAINS && self->state == HV_EPOCH_GATHERING && e->figures->n_peers <= 1)
    epoch_cancel(self); /* whoever comes is in none of these groups */
  epoch_end_is_lonely(self, e);
  leaves_passed(self, e);
  seeks_again(self, e);
}

/* ---- void ---- */

/* The work under way is of no use any more: it begins nothing, and its samples are lost (rule 11), or are in the sums again. */
void epoch_voids(hv_epoch *self) {
  if (self->traits.carries)
    hv_epoch_ledger_returned(self->ledger);
  else
    hv_epoch_ledger_dropped(self->ledger);
  if (self->end.again_us)
    self->end.rounding[self->end.again_lane] = 0;
  self->end.again_us = 0;
  for (hv_epoch_lane lane = 0; lane < HV_EPOCH_LANES; lane++)
    if (self->end.rounding[lane]) {
      epoch_order(self, HV_EPOCH_CANCEL)->which = (hv_epoch_which)(self->end.rounding[lane] - 1);
      self->seeking[self->end.rounding[lane] - 1] = 0;
      if (lane == HV_EPOCH_NOW)
        self->end.rounding[lane] = 0;
    }
  if (self->late != HV_EPOCH_LATE_IDLE && self->end.stepped && self->traits.copies) {
    self->has_to_apply = 1;
    self->end.state_averaged = 0; /* DROP forgets the average */
  }
  self->late = self->late == HV_EPOCH_LATE_WORKS ? HV_EPOCH_LATE_VOID : HV_EPOCH_LATE_IDLE;
}

void epoch_void_ends(hv_epoch *self) {
  if (!self->end.acting[HV_EPOCH_LATE] && !self->end.rounding[HV_EPOCH_LATE])
    self->late = HV_EPOCH_LATE_IDLE;
}
