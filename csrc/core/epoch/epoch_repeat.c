/* The steps of others, made again by a peer that was not in them (rules 11 to 23 in docs/design/log.md). */
#include "core/epoch/epoch_inner.h"

/* ---- whether to ---- */

/* Replicas here are alike, and averages make their steps. A peer that loads a state so quickly that the others wait for it needs no
 * entries (rule 13). */
static int has_entries(const hv_epoch *self) {
  const hv_epoch_traits *t = &self->traits;
  int is_quick = self->load_us <= HV_EPOCH_CHASE_US;
  return self->config.entry_bytes && !is_quick && t->has_replica && t->sums && !self->config.differs;
}

/* The others began this epoch's round without it: its replica was theirs until then. */
static int is_left(const hv_epoch *self) {
  return self->left_out != HV_EPOCH_NONE && self->left_out == self->replica;
}

static int has_their_replica(const hv_epoch *self) {
  return self->replica != HV_EPOCH_NONE && self->lineage->is_known && !self->is_unfit && !self->is_apart &&
         (!self->lineage->is_wrong || is_left(self));
}

int epoch_keeps_progress(const hv_epoch *self) {
  return self->traits.carries && !self->is_asked && !self->goes_back && has_their_replica(self);
}

static uint64_t goal_of(const hv_progress_figures *f, uint64_t most) {
  return f->epoch < most ? f->epoch : most;
}

/* Rule 18. */
int epoch_leads_on(const hv_epoch *self, const epoch_event *e, uint64_t found) {
  const hv_progress_figures *f = e->figures;
  int comes_late = f->n_peers == f->n_clients; /* through hubs alone, so it is some epochs old */
  uint64_t least = comes_late ? HV_EPOCH_ENTRIES : self->traits.lead;
  return found != HV_EPOCH_NONE && found > self->told && found < f->epoch && found + least >= f->epoch && has_entries(self);
}

int epoch_may_lead(const hv_epoch *self, const hv_progress_figures *f, uint64_t found) {
  return has_entries(self) && f->n_peers == f->n_clients && f->epoch <= found + HV_EPOCH_ENTRIES;
}

/* Rules 11 and 12. */
int epoch_prefers_entries(const hv_epoch *self, const epoch_event *e, uint64_t most) {
  uint64_t goal = goal_of(e->figures, most), n = goal > self->replica ? goal - self->replica : 1;
  if (self->is_asked || self->goes_back || self->leads_nowhere || !e->figures->n_peers || !has_entries(self) ||
      !has_their_replica(self))
    return 0;
  if (goal <= self->replica && !is_left(self))
    return 0;
  return n <= HV_EPOCH_ENTRIES && n <= self->config.state_bytes / self->config.entry_bytes;
}

int epoch_has_to_repeat(const hv_epoch *self, const epoch_event *e, uint64_t most) {
  return e->figures->n_peers && has_entries(self) && has_their_replica(self) && goal_of(e->figures, most) > self->replica;
}

/* ---- to want entries ---- */

static void wants(hv_epoch *self, uint64_t first, uint64_t until) {
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_WANT);
  order->epoch = first;
  order->number = until;
  order->samples = self->config.state_bytes;
  order->ask = until > first ? self->traits.lead : 0;
}

void epoch_wants_no_entries(hv_epoch *self) {
  int repeats = self->state == HV_EPOCH_REPEATING, loads = self->state == HV_EPOCH_LOADING;
  if (repeats || (loads && self->own.loading.asked))
    wants(self, 0, 0); /* also where all that was wanted is made: the log still has it */
  if (repeats)
    self->own.repeating.asked = 0;
  if (loads)
    self->own.loading.asked = 0;
}

void epoch_loads_begin(hv_epoch *self, const epoch_event *e) {
  if (self->state != HV_EPOCH_LOADING)
    return;
  epoch_wants_no_entries(self); /* another state comes than before */
  self->own.loading.comes = e->epoch;
}

/* Rule 18. */
void epoch_loads_beside(hv_epoch *self, const epoch_event *e) {
  hv_epoch_loading *load = &self->own.loading;
  uint64_t goal = goal_of(e->figures, load->most);
  if (load->comes == HV_EPOCH_NONE || !has_entries(self) || goal <= load->comes || goal <= load->asked)
    return;
  load->asked = goal;
  wants(self, load->comes, goal);
}

/* ---- to repeat ---- */

void epoch_repeats(hv_epoch *self, const epoch_event *e, uint64_t most) {
  epoch_moves(self, HV_EPOCH_REPEATING);
  self->own.repeating.most = most;
  self->own.repeating.until_us = e->now_us + hv_epoch_averaging_us(self);
  if (self->told != self->replica) { /* it has counted an epoch whose gradients are averaged later */
    epoch_counts(self, self->replica, e->now_us);
    self->before = 0;
  }
  self->wanted = 0;
  epoch_wake(self, 1);
  epoch_repeats_on(self, e);
}

/* Rule 19. */
uint64_t epoch_repeats_for(const hv_epoch *self) {
  uint64_t goal = self->state == HV_EPOCH_REPEATING ? self->own.repeating.goal : 0;
  return goal && goal <= self->replica + 1 ? goal : HV_EPOCH_NONE;
}

/* It has made the steps of all epochs that have ended (rule 17). */
static void is_there(hv_epoch *self, const epoch_event *e) {
  epoch_wants_no_entries(self);
  self->doubts = 0;
  self->loads++; /* it comes as one that has loaded */
  epoch_enters(self, e);
  if (e->figures->n_peers && e->figures->epoch == self->told && epoch_forms_groups(self, e->figures))
    epoch_seeks(self, e->figures); /* after its first batch the group would have formed */
}

void epoch_repeats_no_more(hv_epoch *self, const epoch_event *e) {
  uint64_t most = self->own.repeating.most;
  epoch_wants_no_entries(self);
  epoch_cancel(self);
  self->leads_nowhere = 1;
  if (epoch_is_unusable(self))
    epoch_comes_to_load(self, e, most);
  else
    epoch_enters(self, e);
}

/* ---- to listen (rules 21 to 23) ---- */

static int listens(const hv_epoch *self) {
  return self->seeking[HV_EPOCH_GRADIENTS];
}

/* It lacks the latest averages alone, and the others' next group is near: it listens to their round. */
static void listens_if_near(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  hv_epoch_repeating *r = &self->own.repeating;
  r->near_us = 0;
  if (r->goal != f->epoch || r->goal > self->replica + 1 + self->traits.lead || listens(self) || self->sought == f->epoch)
    return;
  if (f->eta_us <= self->config.matchmaking_us)
    epoch_seeks_to_listen(self, f);
  else
    r->near_us = e->now_us + HV_EPOCH_AGAIN_US;
}

/* The members step with this average, so the epoch has ended, though this peer may not have heard so. */
void epoch_has_listened(hv_epoch *self, const epoch_event *e) {
  hv_epoch_repeating *r = &self->own.repeating;
  r->gives_up = 0;
  if (e->outcome == HV_EPOCH_CONFIRMED && self->sought != HV_EPOCH_NONE)
    r->heard = self->sought + 1;
  epoch_order(self, HV_EPOCH_ASIDE); /* it is in no epoch yet */
}

/* 1: it is in no other group while it listens. A search that has found none yet ends. */
static int waits_for_round(hv_epoch *self) {
  hv_epoch_repeating *r = &self->own.repeating;
  if (listens(self) && !r->gives_up) {
    r->gives_up = 1;
    epoch_order(self, HV_EPOCH_GIVE_UP)->which = HV_EPOCH_GRADIENTS;
  }
  return listens(self);
}

/* ---- on ---- */

/* The average that is next is perhaps under way (rule 14). */
static int may_be_made(const hv_epoch *self, uint64_t goal) {
  return goal <= self->replica + self->traits.lead;
}

/* Rules 14 and 17. */
void epoch_repeats_on(hv_epoch *self, const epoch_event *e) {
  hv_epoch_repeating *r = &self->own.repeating;
  uint64_t goal = goal_of(e->figures, r->most);
  goal = goal > r->heard ? goal : r->heard;
  if (self->end.acting[HV_EPOCH_NOW])
    return;
  if (goal <= self->replica && !is_left(self)) {
    if (!waits_for_round(self))
      is_there(self, e);
    return;
  }
  r->goal = goal > self->replica ? goal : self->replica + 1;
  if (r->is_there)
    return;
  if (goal > self->replica && goal > r->asked) {
    r->asked = goal;
    wants(self, self->replica, goal);
    epoch_tell(self, HV_EPOCH_SAYS_REPEATS)->number = goal;
  } else if (may_be_made(self, goal) && e->now_us >= r->until_us) /* its group has made no step, perhaps */
    epoch_repeats_no_more(self, e);
  else if (goal <= self->replica && e->now_us >= r->again_us) {
    r->again_us = e->now_us + HV_EPOCH_AGAIN_US;
    epoch_wake(self, 1); /* the sooner it hears that the epoch has ended, the less it is behind */
  }
  if (self->state == HV_EPOCH_REPEATING)
    listens_if_near(self, e);
}

/* Rule 15. */
void epoch_has_entry(hv_epoch *self, const epoch_event *e) {
  hv_epoch_repeating *r = &self->own.repeating;
  int repeats = self->end.acting[HV_EPOCH_NOW] && self->end.action[HV_EPOCH_NOW] != HV_EPOCH_LOCAL_STEP;
  if (self->state != HV_EPOCH_REPEATING || repeats || r->is_there || e->epoch != self->replica)
    return;
  if (!e->ok) {
    epoch_repeats_no_more(self, e);
    return;
  }
  if (!e->has_mark || !hv_mark_equal(&e->mark, &self->lineage->mark) || e->step.n_stamps > HV_EPOCH_STAMPS) {
    epoch_order(self, HV_EPOCH_REFUSE)->epoch = e->epoch;
    return;
  }
  r->n_stamps = e->step.n_stamps;
  for (size_t i = 0; i < r->n_stamps; i++)
    r->stamps[i] = e->step.stamps[i];
  r->is_there = 1;
  epoch_has_come(self, e);
}

/* The mark moves as that of the members of the round. */
static void has_stepped(hv_epoch *self, const epoch_event *e) {
  const hv_epoch_repeating *r = &self->own.repeating;
  const hv_epoch_step_facts *facts = &e->step;
  if (facts->setup.size)
    hv_lineage_set_up(self->lineage, self->config.env, facts->setup);
  hv_lineage_repeated(self->lineage, self->config.env, r->stamps, r->n_stamps, facts->frozen, facts->n_frozen, self->config.target);
  self->lineage->is_wrong = 0;
  self->left_out = HV_EPOCH_NONE;
  self->wrong_since_us = HV_EPOCH_NONE;
  self->made = HV_EPOCH_NONE; /* as it was settled here */
}

/* The next one, by this event's reading. */
static void has_repeated(hv_epoch *self, const epoch_event *e) {
  hv_epoch_repeating *r = &self->own.repeating;
  self->replica++;
  epoch_counts(self, self->replica, e->now_us);
  self->before = 0;
  r->asked = 0; /* the log lets go of what was repeated, and tells of the next one */
  r->until_us = e->now_us + hv_epoch_averaging_us(self);
  epoch_wake(self, self->replica >= r->goal);
}

void epoch_repeat_acted(hv_epoch *self, unsigned action, const epoch_event *e) {
  if (action == HV_EPOCH_REPEAT && e->ok <= 0)
    epoch_order(self, HV_EPOCH_REFUSE)->epoch = self->replica;
  else if (action == HV_EPOCH_REPEAT)
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_STEP, 0);
  else if (action == HV_EPOCH_STEP) {
    has_stepped(self, e);
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  } else if (action == HV_EPOCH_SCHEDULE && hv_epoch_plan_has(&self->traits.ends[1][0], HV_EPOCH_APPLY))
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_APPLY, 0);
  else
    has_repeated(self, e);
}

uint64_t epoch_repeat_due_us(const hv_epoch *self) {
  const hv_epoch_repeating *r = &self->own.repeating;
  uint64_t due_us = epoch_sooner(self, epoch_sooner(self, HV_EPOCH_NONE, r->until_us), r->again_us);
  return epoch_sooner(self, due_us, r->near_us);
}
