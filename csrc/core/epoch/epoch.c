/* The machine: its moves, its events, and a batch (contract in epoch.h; rules by their numbers in docs/design/epoch.md). */
#include "core/epoch/epoch_follower.h"

#define TO(state) (1u << HV_EPOCH_##state)

static const unsigned allowed[HV_EPOCH_STATES] = {
    [HV_EPOCH_LOOKING] = TO(GATHERING) | TO(COMING) | TO(LEAVING),
    [HV_EPOCH_GATHERING] = TO(ENDING) | TO(COMING) | TO(LEAVING),
    [HV_EPOCH_ENDING] = TO(GATHERING) | TO(COMING) | TO(LEAVING),
    [HV_EPOCH_COMING] = TO(LOADING) | TO(REPEATING) | TO(RESTING) | TO(LEAVING),
    [HV_EPOCH_LOADING] = TO(LOOKING) | TO(GATHERING) | TO(REPEATING) | TO(RESTING) | TO(LEAVING),
    [HV_EPOCH_REPEATING] = TO(GATHERING) | TO(COMING) | TO(RESTING) | TO(LEAVING),
    [HV_EPOCH_RESTING] = TO(COMING) | TO(GATHERING) | TO(LEAVING),
    [HV_EPOCH_LEAVING] = TO(OVER),
};

const char *hv_epoch_state_name(hv_epoch_state state) {
  static const char *const names[] = {"LOOKING",   "GATHERING", "ENDING",  "COMING", "LOADING",
                                      "REPEATING", "RESTING",   "LEAVING", "OVER"};
  return (unsigned)state < HV_EPOCH_STATES ? names[state] : "?";
}

const char *hv_epoch_wait_name(hv_epoch_wait wait) {
  static const char *const names[] = {"NOTHING",
#define NAME(name, us, what) #name,
                                      HV_EPOCH_WAIT_MAP(NAME)
#undef NAME
  };
  return (size_t)wait < sizeof names / sizeof *names ? names[wait] : "?";
}

const char *hv_epoch_work_name(unsigned action) {
  static const char *const names[] = {"PREPARE", "TAKE", "SNAPSHOT", "ADOPT", "DROP", "MEET", "RETURN", "REPEAT"};
  _Static_assert(sizeof names / sizeof *names == HV_EPOCH_WORKS - HV_EPOCH_ACTIONS, "each work has its name");
  if (action < HV_EPOCH_ACTIONS)
    return hv_epoch_action_name((hv_epoch_action)action);
  return action < HV_EPOCH_WORKS ? names[action - HV_EPOCH_ACTIONS] : "?";
}

const char *hv_epoch_notice_name(hv_epoch_notice notice) {
  static const char *const names[] = {"ALONE",   "COMPANY", "STOP",   "OWN_STEP", "STAYS",   "LEFT_OUT",
                                      "NO_STEP", "WRONG",   "DOUBT",  "SILENT",   "ENTERS",  "ASIDE",
                                      "ENDED",   "SETTLED", "LOADED", "RESTS",    "CARRIES", "REPEATS"};
  _Static_assert(sizeof names / sizeof *names == HV_EPOCH_NOTICES, "each notice has its name");
  return (unsigned)notice < HV_EPOCH_NOTICES ? names[notice] : "?";
}

void epoch_moves(hv_epoch *self, hv_epoch_state to) {
  if (!(allowed[self->state] & (1u << to)))
    self->moves_wrong++;
  self->state = to;
  self->own = (hv_epoch_own){0};
  if (to == HV_EPOCH_LOOKING)
    epoch_waits_for_batch(self);
}

/* ---- orders ---- */

hv_epoch_order *epoch_order(hv_epoch *self, hv_epoch_order_kind kind) {
  if (self->n_orders == HV_EPOCH_ORDERS) {
    self->lost_orders++;
    return &self->lost;
  }
  hv_epoch_order *order = &self->orders[(self->first_order + self->n_orders++) % HV_EPOCH_ORDERS];
  *order = (hv_epoch_order){.kind = kind};
  return order;
}

int hv_epoch_next(hv_epoch *self, hv_epoch_order *out) {
  if (!self->n_orders)
    return 0;
  *out = self->orders[self->first_order];
  self->first_order = (self->first_order + 1) % HV_EPOCH_ORDERS;
  self->n_orders--;
  return 1;
}

hv_epoch_order *epoch_tell(hv_epoch *self, hv_epoch_notice notice) {
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_TELL);
  order->action = notice;
  order->epoch = self->told;
  return order;
}

hv_epoch_order *epoch_act(hv_epoch *self, hv_epoch_lane lane, unsigned action, uint64_t n) {
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_ACT);
  order->lane = lane;
  order->action = self->end.action[lane] = action;
  order->number = self->end.acting[lane] = ++self->numbers;
  order->samples = n;
  order->epoch = self->told;
  return order;
}

void epoch_wake(hv_epoch *self, int ask) {
  epoch_order(self, HV_EPOCH_WAKE)->ask = ask;
}

void epoch_reached(hv_epoch *self) {
  hv_epoch_order *order;
  if (self->traits.sums) {
    order = epoch_order(self, HV_EPOCH_REACHED);
    order->epoch = self->told;
  }
  order = epoch_order(self, HV_EPOCH_REACHED);
  order->which = HV_EPOCH_REPLICA_STATE;
  order->epoch = hv_epoch_state_number(&self->traits, self->told) + 1;
}

void epoch_cancel(hv_epoch *self) {
  for (hv_epoch_which which = 0; which < HV_EPOCH_ROUNDS; which++)
    if (self->seeking[which]) {
      epoch_order(self, HV_EPOCH_CANCEL)->which = which;
      self->seeking[which] = 0;
    }
  self->sought = HV_EPOCH_NONE;
}

/* ---- what it is ---- */

int epoch_is_aside(const hv_epoch *self) {
  return self->state != HV_EPOCH_GATHERING && self->state != HV_EPOCH_ENDING;
}

int epoch_is_unusable(const hv_epoch *self) {
  return self->lineage->is_wrong || self->is_unfit;
}

uint64_t epoch_doubled(uint64_t first_us, unsigned times, uint64_t most_us) {
  for (; times && first_us < most_us; times--)
    first_us *= 2;
  return first_us < most_us ? first_us : most_us;
}

hv_status hv_epoch_init(hv_epoch *self, const hv_epoch_config *config, uint64_t now_us, hv_error *err) {
  hv_status status = hv_epoch_options_check(&config->options, err);
  if (status != HV_OK)
    return status;
  *self = (hv_epoch){.config = *config,
                     .traits = hv_epoch_traits_of(&config->options),
                     .ledger = config->ledger,
                     .lineage = config->lineage,
                     .told = config->epoch,
                     .made = config->epoch,
                     .replica = config->epoch ? config->epoch : HV_EPOCH_NONE, /* a new model leads to no step that others keep */
                     .batch_us = now_us,
                     .meter.alpha = config->alpha > 0 ? config->alpha : HV_METER_ALPHA,
                     .sought = HV_EPOCH_NONE,
                     .load_us = HV_EPOCH_NONE,
                     .at_us = now_us,
                     .alone_since_us = HV_EPOCH_NONE,
                     .wrong_since_us = HV_EPOCH_NONE,
                     .ahead_us = HV_EPOCH_NONE,
                     .came_us = HV_EPOCH_NONE,
                     .hub = {.us = HV_EPOCH_NONE},
                     .left_out = HV_EPOCH_NONE,
                     .offers = {.offered = HV_EPOCH_NONE,
                                .copied = HV_EPOCH_NONE,
                                .wanted = HV_EPOCH_NONE,
                                .expected = HV_EPOCH_NONE,
                                .asked = HV_EPOCH_NONE,
                                .settled_us = HV_EPOCH_NONE,
                                .counted_us = HV_EPOCH_NONE},
                     .hold.since_us = HV_EPOCH_NONE,
                     .line.begun_us = HV_EPOCH_NONE,
                     .look = {.begun_us = HV_EPOCH_NONE, .lacked_us = HV_EPOCH_NONE, .found = HV_EPOCH_NONE}};
  epoch_waits_for_batch(self);
  self->lineage->is_kept = self->traits.sums;
  self->lineage->is_reachable = (uint8_t)config->reachable;
  return HV_OK;
}

/* In this epoch: what is taken for its end still counts in it until it is over, or the others would wait for it again (rule 16).
 */
static uint64_t samples_of(const hv_epoch *self) {
  int ends = self->state == HV_EPOCH_ENDING && self->late == HV_EPOCH_LATE_IDLE && self->end.epoch == self->told;
  return ends ? self->end.samples : self->ledger->sums;
}

void hv_epoch_report(const hv_epoch *self, uint64_t samples, hv_progress_own *out) {
  int comes = self->state == HV_EPOCH_COMING || self->state == HV_EPOCH_LOADING || self->state == HV_EPOCH_RESTING ||
              (self->state == HV_EPOCH_LOOKING && self->own.looking.gone_us != HV_EPOCH_NONE);
  uint64_t goal = epoch_repeats_for(self);
  *out = (hv_progress_own){.any = !epoch_is_aside(self) && self->traits.has_replica,
                           .epoch = self->told,
                           .samples = samples_of(self) + (epoch_is_aside(self) ? 0 : samples),
                           .before = self->before,
                           .speed = hv_meter_speed(&self->meter),
                           .at_us = self->batch_us,
                           .serial = self->serial,
                           .step = self->step,
                           .paused = !hv_epoch_is_free(self),
                           .comes = goal != HV_EPOCH_NONE               ? 1 + goal
                                    : comes && self->traits.has_replica ? 1 + self->wanted
                                                                        : 0};
}

/* ---- batches ---- */

/* The speed tells of batches alone (the first batch tells nothing). */
static void measures(hv_epoch *self, const epoch_event *e) {
  self->step = e->samples ? e->samples : self->step;
  hv_meter_took(&self->meter, e->samples, e->took_us);
  self->batch_us = e->now_us;
}

void epoch_counts(hv_epoch *self, uint64_t epoch, uint64_t now_us) {
  self->before = epoch == self->told + 1 ? self->end.samples : 0;
  self->told = epoch;
  self->serial += !epoch_is_aside(self); /* a count of the swarm by which a state was loaded still holds */
  self->batch_us = self->offers.counted_us = now_us;
  self->again_us = self->lasts_us = 0;
  self->hold.since_us = HV_EPOCH_NONE;
  self->hold.is_due = 0;
}

void epoch_keeps_sums(hv_epoch *self) {
  hv_epoch_ledger_taken(self->ledger);
  hv_epoch_ledger_stepped(self->ledger);
}

/* With local updates an epoch between two averagings needs no state: its updates count, and it goes on from the swarm's (rule 10).
 */
static int catches_up_counting(hv_epoch *self, const epoch_event *e) {
  uint64_t epoch = e->figures->epoch;
  if (self->traits.sums || self->late != HV_EPOCH_LATE_IDLE || epoch_lacks_state(self, epoch))
    return 0;
  epoch_keeps_sums(self);
  epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, epoch - self->told);
  epoch_counts(self, epoch, e->now_us);
  epoch_reached(self);
  epoch_wake(self, 0);
  return 1;
}

/* The epoch will end within this peer's next batch: else the others would seek a group of it while it computes. */
static int ends_within_batch(const hv_epoch *self, const hv_progress_figures *f) {
  double speed = hv_meter_speed(&self->meter), left_us = (double)epoch_left_us(self, f);
  return f->standing == HV_PROGRESS_IN_STEP && speed > 0 && left_us * 1e-6 * speed <= (double)self->step;
}

/* Rule 5. Not long before the end, and while somebody loads this epoch's state only just before it: a group would form without. */
int epoch_forms_groups(const hv_epoch *self, const hv_progress_figures *f) {
  int is_half = 2 * f->samples >= (double)self->config.target && self->at_us >= self->lasts_us;
  return epoch_left_us(self, f) <= HV_EPOCH_AHEAD_US || ends_within_batch(self, f) || (!f->n_coming && is_half);
}

/* Rule 4: a peer that begins the run is one of those who may. */
int epoch_may_be_alone(const hv_epoch *self) {
  const hv_epoch_config *c = &self->config;
  return c->company == HV_EPOCH_ALONE_TRAINS || (c->begins_run && self->alone_since_us == HV_EPOCH_NONE);
}

int epoch_is_on_the_way(const hv_epoch *self) {
  return self->came_us != HV_EPOCH_NONE && self->at_us < self->came_us + HV_EPOCH_KEEPS_OWN_US;
}

static int knows_hub(const hv_epoch *self) {
  return self->hub.us != HV_EPOCH_NONE && self->at_us < self->hub.us + HV_EPOCH_KEEPS_OWN_US;
}

/* Rule 3 and docs/design/lone-peers.md: nobody can dial the one that trains, so its steps are in no log but a hub's, which has the
 * averages of its rounds. A hub comes in any case. A newcomer may be counted since the last such round, and not be in the group. */
int epoch_meets_hub_alone(const hv_epoch *self, const hv_progress_figures *f) {
  int was = self->end.averaged && self->end.with_hub, is_by_itself = was || f->n_peers == 1 + f->n_behind;
  if (!f->n_peers || f->n_peers != f->n_clients || !is_by_itself || !self->traits.sums || self->config.differs)
    return 0;
  int wants_to = self->lineage->is_made && knows_hub(self) && epoch_is_on_the_way(self) && epoch_may_be_alone(self);
  return !self->traits.has_replica || wants_to;
}

int epoch_has_met_hub_alone(const epoch_event *e) {
  size_t n = 0, n_by_themselves = 0;
  for (size_t i = 0; i < e->n_members; i++) {
    const hv_lineage_member *m = &e->members[i];
    if (m->is_auxiliary || !m->has_word) /* or it listens */
      continue;
    n++;
    n_by_themselves += m->word.rank >= 0 && (m->word.rank & HV_RANK_BY_ITSELF);
  }
  return n == 1 && n_by_themselves == 1;
}

int epoch_has_partners(const hv_epoch *self, const hv_progress_figures *f) {
  return f->n_peers > 1 || epoch_meets_hub_alone(self, f);
}

/* Rule 4: whether an epoch may end though nobody else is counted. */
int epoch_has_company(hv_epoch *self, const epoch_event *e) {
  const hv_epoch_config *c = &self->config;
  if (e->figures->n_peers > 1) {
    if (self->told_alone)
      epoch_tell(self, HV_EPOCH_SAYS_COMPANY);
    self->told_alone = 0;
    self->alone_since_us = HV_EPOCH_NONE;
    return 1;
  }
  if (epoch_may_be_alone(self))
    return 1;
  if (self->alone_since_us == HV_EPOCH_NONE)
    self->alone_since_us = e->now_us;
  if (!self->told_alone && e->now_us >= self->alone_since_us + c->alone_us) {
    self->told_alone = 1;
    epoch_tell(self, c->company == HV_EPOCH_ALONE_STOPS ? HV_EPOCH_SAYS_STOP : HV_EPOCH_SAYS_ALONE);
  }
  return 0;
}

/* Rule 22: somebody loads the state of this epoch, which would be over before that; or this peer has gone on alone, and all others
 * are behind. In step with others that is not asked, as their records are older than their latest round. */
static int is_awaited(const hv_epoch *self, const hv_progress_figures *f) {
  int is_short = self->offers.epoch_us && self->offers.epoch_us < HV_EPOCH_SHORT_US;
  return (f->n_coming && (is_short || f->n_peers <= 1)) || (self->is_apart && f->n_behind && f->n_peers <= 1 + f->n_behind);
}

static int hold_ends(hv_epoch *self, uint64_t now_us) {
  hv_epoch_hold *h = &self->hold;
  if (h->since_us != HV_EPOCH_NONE)
    h->paid_us = (h->paid_us > now_us ? h->paid_us : now_us) + HV_EPOCH_HOLD_COST * (now_us - h->since_us);
  h->since_us = HV_EPOCH_NONE;
  return 0;
}

/* Until they are here the epoch lasts, and batches are made. Records cost nothing, so that takes a part of the time only. */
static int is_held(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  hv_epoch_hold *h = &self->hold;
  uint64_t whole_us = HV_EPOCH_HOLD_COST * HV_EPOCH_MOST_HELD_US;
  int are_here = !f->n_coming && (!f->n_behind || f->n_peers > 1 + f->n_behind);
  if (!self->traits.sums || f->standing != HV_PROGRESS_IN_STEP || are_here)
    return hold_ends(self, e->now_us);
  if (h->since_us == HV_EPOCH_NONE) {
    if (e->now_us + whole_us < h->paid_us || !is_awaited(self, f))
      return 0;
    h->since_us = e->now_us;
  }
  if (e->now_us >= h->since_us + HV_EPOCH_MOST_HELD_US)
    return hold_ends(self, e->now_us);
  epoch_wake(self, 1);
  return 1;
}

/* Rules 2 to 5, and 10. */
void epoch_looks_around(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  if (epoch_must_come(self, e) || epoch_is_ahead(self, e)) {
    epoch_comes(self, e);
    return;
  }
  if (f->standing == HV_PROGRESS_BEHIND && catches_up_counting(self, e))
    return;
  int ready = f->ready && f->standing != HV_PROGRESS_BEHIND;
  int near = (f->match && f->standing != HV_PROGRESS_BEHIND) || ends_within_batch(self, f);
  if ((ready || near || self->hold.since_us != HV_EPOCH_NONE) && is_held(self, e)) {
    self->hold.is_due |= ready;
    ready = near = 0;
  } else if (self->hold.is_due) /* of many samples of one peer, few count beside newcomers, who wait already */
    ready = f->standing != HV_PROGRESS_BEHIND;
  if (e->now_us < self->again_us)
    ready = near = 0;
  if (e->now_us < self->lasts_us)
    ready = 0;
  if (near && epoch_has_partners(self, f) && epoch_forms_groups(self, f) && self->late != HV_EPOCH_LATE_WORKS)
    epoch_seeks(self, f);
  if (ready && epoch_has_company(self, e))
    epoch_begins_end(self, e);
  else if (self->state == HV_EPOCH_ENDING)
    epoch_moves(self, HV_EPOCH_GATHERING);
}

/* The batch's own step, which the hands may end later, then a look around. */
static void after_batch(hv_epoch *self, const epoch_event *e) {
  int has_to_step = self->has_to_step;
  self->has_to_step = 0;
  if (has_to_step) {
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 0);
    return;
  }
  epoch_looks_around(self, e);
}

void epoch_goes_on(hv_epoch *self, const epoch_event *e) {
  self->goes_on = 0;
  if (self->state == HV_EPOCH_GATHERING)
    after_batch(self, e);
  else
    epoch_looks_around(self, e);
}

static void has_batch(hv_epoch *self, const epoch_event *e) {
  measures(self, e);
  if (self->state == HV_EPOCH_LOOKING) {
    self->own.looking.samples = e->samples;
    self->own.looking.is_here = 1;
    epoch_looks(self, e);
    return;
  }
  if (hv_epoch_trains_aside(self)) {
    epoch_steps_aside(self, e, e->samples);
    return;
  }
  if (self->state == HV_EPOCH_RESTING) {
    hv_epoch_ledger_behind(self->ledger, e->samples);
    epoch_rests(self, e);
    return;
  }
  int is_dropped = self->end.acting[HV_EPOCH_NOW] && self->end.action[HV_EPOCH_NOW] == HV_EPOCH_DROP;
  if (is_dropped || self->state == HV_EPOCH_COMING || self->state == HV_EPOCH_LOADING)
    hv_epoch_ledger_behind(self->ledger, e->samples);
  if (is_dropped || epoch_is_aside(self))
    return;
  epoch_wake(self, 0);
  if (!self->traits.has_replica) {
    if (self->state == HV_EPOCH_GATHERING)
      follower_looks_around(self, e);
    return;
  }
  hv_epoch_ledger_counted(self->ledger, e->samples);
  if (epoch_end_prepares(self))
    epoch_end_takes_sums(self);
  self->has_to_step = e->samples && self->traits.local_steps;
  if (self->state == HV_EPOCH_ENDING) {
    epoch_end_has_batch(self, e);
    return;
  }
  if (self->end.acting[HV_EPOCH_NOW]) { /* this batch waits for the action's answer */
    self->goes_on = 1;
    self->only_takes = 0;
    return;
  }
  if (epoch_takes(self))
    return;
  epoch_offers_overdue(self, e);
  self->goes_on = self->end.acting[HV_EPOCH_NOW] != 0;
  if (!self->goes_on)
    after_batch(self, e);
}

/* ---- events ---- */

static void has_acted(hv_epoch *self, const epoch_event *e) {
  hv_epoch_lane lane = self->end.acting[HV_EPOCH_LATE] == e->number ? HV_EPOCH_LATE : HV_EPOCH_NOW;
  if (!e->number || self->end.acting[lane] != e->number)
    return; /* answered twice */
  unsigned action = self->end.action[lane];
  self->end.acting[lane] = 0;
  if (self->state == HV_EPOCH_LEAVING)
    return;
  if (action == HV_EPOCH_SNAPSHOT) {
    epoch_snapshot_is_made(self, e);
    if (self->goes_on)
      epoch_goes_on(self, e);
    else
      epoch_end_goes_on(self, e);
    return;
  }
  if (action == HV_EPOCH_MEET) {
    epoch_looks(self, e);
    return;
  }
  if (lane == HV_EPOCH_NOW && (action == HV_EPOCH_DROP || action == HV_EPOCH_ADOPT)) {
    epoch_come_acted(self, action, e);
    return;
  }
  if (lane == HV_EPOCH_NOW && action == HV_EPOCH_LOCAL_STEP && epoch_is_aside(self)) {
    epoch_aside_goes_on(self, e);
    return;
  }
  if (self->state == HV_EPOCH_REPEATING && lane == HV_EPOCH_NOW) {
    epoch_repeat_acted(self, action, e);
    return;
  }
  if (!self->traits.has_replica) {
    follower_is_prepared(self, e);
    return;
  }
  int takes = action == HV_EPOCH_APPLY && self->late == HV_EPOCH_LATE_TO_TAKE;
  if (lane == HV_EPOCH_NOW && self->state == HV_EPOCH_GATHERING &&
      !takes) { /* the batch's, or the scheduler of epochs that it counted */
    if (action == HV_EPOCH_LOCAL_STEP || self->goes_on)
      epoch_goes_on(self, e);
    return;
  }
  epoch_end_acted(self, lane, action, e);
}

/* Rule 18. */
static void leaves(hv_epoch *self) {
  if (self->state == HV_EPOCH_LEAVING || self->state == HV_EPOCH_OVER)
    return;
  epoch_cancel(self);
  epoch_offers_withdraw(self);
  epoch_voids(self);
  hv_epoch_ledger_replaced(self->ledger);
  epoch_moves(self, HV_EPOCH_LEAVING);
  epoch_order(self, HV_EPOCH_GOODBYE);
}

/* The batch that waits in LOOKING: nobody steps with it. */
static void loses_first(hv_epoch *self) {
  hv_epoch_ledger_counted(self->ledger, self->own.looking.samples);
  hv_epoch_ledger_taken(self->ledger);
  if (hv_epoch_ledger_broken(self->ledger))
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_DROP, 0);
}

/* An action that the hands could not do has not happened, and the program is told (rule 20). */
static void has_broken(hv_epoch *self, const epoch_event *e) {
  hv_epoch_lane lane = self->end.acting[HV_EPOCH_LATE] == e->number ? HV_EPOCH_LATE : HV_EPOCH_NOW;
  if (!e->number || self->end.acting[lane] != e->number)
    return;
  unsigned action = self->end.action[lane];
  epoch_event none = *e;
  none.ok = 0;
  if (action == HV_EPOCH_MEET) { /* the next batch asks again */
    self->end.acting[lane] = 0;
    loses_first(self);
    epoch_waits_for_batch(self);
  } else if (action == HV_EPOCH_LOCAL_STEP && self->state == HV_EPOCH_ENDING)
    epoch_end_lacks_step(self);
  else if (action == HV_EPOCH_SNAPSHOT || action == HV_EPOCH_DROP || action == HV_EPOCH_ADOPT || self->late == HV_EPOCH_LATE_VOID)
    has_acted(self, &none);
  else if (self->state == HV_EPOCH_REPEATING && lane == HV_EPOCH_NOW && action != HV_EPOCH_LOCAL_STEP) {
    self->end.acting[lane] = 0;
    self->replica = HV_EPOCH_NONE; /* the step may be there in part */
    epoch_repeats_no_more(self, e);
  } else {
    self->end.acting[lane] = 0;
    self->has_to_step = self->goes_on = 0;
    epoch_end_breaks(self, lane, e);
  }
}

/* The state of a checkpoint takes the place of that of the sums (rule 21). */
static void is_restored(hv_epoch *self, const epoch_event *e) {
  epoch_cancel(self);
  epoch_offers_withdraw(self);
  epoch_voids(self);
  hv_epoch_ledger_restored(self->ledger);
  self->is_unfit = self->has_to_apply = self->is_apart = 0;
  self->wanted = 0;
  epoch_counts(self, e->epoch, e->now_us);
  self->before = 0;
  self->made = self->replica = e->epoch;
  self->leads_nowhere = 0;
  self->offers.settled_us = e->now_us;
  epoch_wake(self, 0);
  if (self->state == HV_EPOCH_ENDING) /* its round is void */
    epoch_moves(self, HV_EPOCH_GATHERING);
  if (!epoch_comes_back(self))
    return;
  epoch_wants_no_entries(self); /* what comes is for the state before: the next batch looks again */
  if (self->state != HV_EPOCH_RESTING)
    epoch_moves(self, HV_EPOCH_RESTING);
}

/* Rule 21, for the swarm's state. */
static void is_asked(hv_epoch *self, const epoch_event *e) {
  int aside = hv_epoch_trains_aside(self);
  if (!aside && self->state != HV_EPOCH_LOOKING && self->state != HV_EPOCH_GATHERING && self->state != HV_EPOCH_RESTING)
    return;
  self->wanted = e->epoch > self->wanted ? e->epoch : self->wanted;
  self->is_asked = 1;
  if (self->state == HV_EPOCH_COMING)
    self->own.coming.repeats = 0;
  else if (self->state == HV_EPOCH_LOADING)
    epoch_aside_goes_on(self, e); /* with the state that has come */
  else {
    epoch_wants_no_entries(self);
    epoch_comes(self, e);
  }
}

static void has_overflown(hv_epoch *self, const epoch_event *e) {
  int prepares = epoch_end_prepares(self);
  if (prepares)
    hv_epoch_ledger_returned(self->ledger); /* the sums still hold what is in flight */
  hv_epoch_ledger_overflow(self->ledger, e->samples, e->number);
  if (prepares)
    epoch_end_takes_sums(self);
  epoch_wake(self, 0);
}

static void has_more(hv_epoch *self, const epoch_event *e) {
  hv_epoch_ledger_counted(self->ledger, e->samples);
  hv_epoch_ledger_behind(self->ledger, e->number);
  epoch_wake(self, 0);
}

static void is_behind(hv_epoch *self, const epoch_event *e) {
  epoch_event none = *e;
  none.samples = 0;
  hv_epoch_ledger_behind(self->ledger, e->samples);
  has_batch(self, &none); /* the others may be about to average */
}

void hv_epoch_on(hv_epoch *self, const hv_epoch_event *e) {
  if (self->state == HV_EPOCH_OVER)
    return;
  self->at_us = e->now_us;
  if (e->figures->n_coming)
    self->came_us = e->now_us;
  switch (e->kind) {
  case HV_EPOCH_BATCH:
    has_batch(self, e);
    break;
  case HV_EPOCH_OVERFLOW:
    has_overflown(self, e);
    break;
  case HV_EPOCH_DONE:
    has_acted(self, e);
    break;
  case HV_EPOCH_BROKE:
    has_broken(self, e);
    break;
  case HV_EPOCH_PAUSE:
    self->only_takes = self->state == HV_EPOCH_GATHERING && !self->end.acting[HV_EPOCH_NOW] && epoch_takes(self);
    if (hv_epoch_trains_aside(self))
      epoch_aside_goes_on(self, e);
    if (self->state == HV_EPOCH_ENDING && self->end.is_over)
      epoch_end_goes_on(self, e);
    break;
  case HV_EPOCH_RESTORED:
    is_restored(self, e);
    break;
  case HV_EPOCH_ASKED:
    is_asked(self, e);
    break;
  case HV_EPOCH_ROUND:
    if (e->which == HV_EPOCH_GRADIENTS)
      epoch_line_took(self, e);
    (self->traits.has_replica ? epoch_round_is_over : follower_round_is_over)(self, e);
    break;
  case HV_EPOCH_OFFERED:
    epoch_was_offered(self, e);
    break;
  case HV_EPOCH_LOOKED:
    epoch_has_looked(self, e);
    break;
  case HV_EPOCH_LOADED:
    epoch_has_loaded(self, e);
    break;
  case HV_EPOCH_LOADS:
    epoch_loads_begin(self, e);
    break;
  case HV_EPOCH_ENTRY:
    epoch_has_entry(self, e);
    break;
  case HV_EPOCH_WANTED:
    epoch_is_wanted(self, e);
    break;
  case HV_EPOCH_LEAVE:
    leaves(self);
    break;
  case HV_EPOCH_BEHIND:
    is_behind(self, e);
    break;
  case HV_EPOCH_SUMMED:
    has_more(self, e);
    break;
  case HV_EPOCH_TIME:
  case HV_EPOCH_EVENTS:
    break;
  }
  (self->traits.has_replica ? epoch_end_leaves_rounds : follower_leaves_rounds)(self, e);
  if (self->late == HV_EPOCH_LATE_VOID)
    epoch_void_ends(self);
  if (self->state == HV_EPOCH_LOOKING && e->kind == HV_EPOCH_TIME)
    epoch_looks(self, e);
  if (self->state == HV_EPOCH_REPEATING)
    epoch_repeats_on(self, e);
  if (self->state == HV_EPOCH_COMING)
    epoch_come_goes_on(self, e);
  if (self->state == HV_EPOCH_LOADING)
    epoch_loads_beside(self, e);
  if (self->state == HV_EPOCH_ENDING && e->kind == HV_EPOCH_TIME && !hv_epoch_is_free(self) &&
      (self->end.rounding[HV_EPOCH_NOW] || self->late == HV_EPOCH_LATE_WORKS))
    epoch_offers_overdue(self, e);
  if (self->state == HV_EPOCH_LEAVING && self->late != HV_EPOCH_LATE_VOID && !self->end.acting[HV_EPOCH_NOW])
    epoch_moves(self, HV_EPOCH_OVER);
}

int hv_epoch_awaits_round(const hv_epoch *self, hv_epoch_which which) {
  const int *rounding = self->end.rounding;
  return rounding[HV_EPOCH_NOW] == 1 + (int)which || rounding[HV_EPOCH_LATE] == 1 + (int)which;
}

int hv_epoch_has_word(const hv_epoch *self, hv_epoch_which which) {
  return self->traits.has_replica && self->lineage->is_kept && which == HV_EPOCH_GRADIENTS;
}

int hv_epoch_is_free(const hv_epoch *self) {
  if (self->end.acting[HV_EPOCH_NOW])
    return 0;
  if (self->state == HV_EPOCH_LOOKING)
    return !self->own.looking.is_here;
  if (epoch_is_free_aside(self) || epoch_end_is_free(self))
    return 1;
  return self->state == HV_EPOCH_GATHERING || self->state == HV_EPOCH_RESTING || self->state == HV_EPOCH_OVER;
}

/* The latest event has seen to what was due until then. */
uint64_t epoch_sooner(const hv_epoch *self, uint64_t due_us, uint64_t other_us) {
  return other_us > self->at_us && other_us < due_us ? other_us : due_us;
}

uint64_t hv_epoch_due_us(const hv_epoch *self) {
  uint64_t due_us = epoch_end_due_us(self);
  if (self->state == HV_EPOCH_ENDING)
    due_us = epoch_sooner(self, due_us, epoch_offers_due_us(self));
  return epoch_sooner(self, epoch_sooner(self, due_us, epoch_come_due_us(self)), epoch_aside_due_us(self));
}

hv_epoch_wait hv_epoch_waits(const hv_epoch *self) {
  if (self->end.acting[HV_EPOCH_NOW])
    return HV_EPOCH_WAITS_HANDS;
  switch (self->state) {
  case HV_EPOCH_LOOKING:
    return self->own.looking.gone_us != HV_EPOCH_NONE ? HV_EPOCH_WAITS_GONE
           : self->look.is_under_way                  ? HV_EPOCH_WAITS_LOOK
                                                      : HV_EPOCH_WAITS_SWARM;
  case HV_EPOCH_ENDING:
    return self->end.rounding[HV_EPOCH_NOW] ? HV_EPOCH_WAITS_ROUND : HV_EPOCH_WAITS_LATE;
  case HV_EPOCH_COMING:
    return self->late == HV_EPOCH_LATE_VOID ? HV_EPOCH_WAITS_LATE : HV_EPOCH_WAITS_COMES;
  case HV_EPOCH_LOADING:
    return HV_EPOCH_WAITS_LOAD;
  case HV_EPOCH_REPEATING:
    return HV_EPOCH_WAITS_ENTRY;
  case HV_EPOCH_RESTING:
    return HV_EPOCH_WAITS_REST;
  case HV_EPOCH_GATHERING:
    return self->hold.since_us != HV_EPOCH_NONE ? HV_EPOCH_WAITS_HELD : HV_EPOCH_WAITS_NOTHING;
  case HV_EPOCH_LEAVING:
    return self->late == HV_EPOCH_LATE_VOID ? HV_EPOCH_WAITS_LATE : HV_EPOCH_WAITS_NOTHING;
  default:
    return HV_EPOCH_WAITS_NOTHING;
  }
}
