/* Aside, and back: who has lost the swarm's state, or never had it, loads it (rules 10 to 13 and 17 in docs/design/epoch.md). */
#include "core/epoch/epoch_inner.h"

int epoch_lacks_state(const hv_epoch *self, uint64_t epoch) {
  return hv_epoch_state_epoch(&self->traits, epoch) > self->told || epoch > self->told + HV_EPOCH_LEAP;
}

/* ---- whether to ---- */

/* Those who claim have given it a state lately, and their next offer may take a while (rule 13). Not if it has loaded again since
 * its latest step: then their claims have cost it an epoch, and may be of one that nobody has. */
static int has_given(const hv_epoch *self, uint64_t now_us) {
  return self->loads == 1 && now_us < self->loaded_us + HV_EPOCH_GIVEN_US;
}

static void doubts(hv_epoch *self, uint64_t epoch, uint64_t now_us) {
  if (has_given(self, now_us))
    return;
  if (now_us >= self->doubt_until_us) {
    self->doubt_until_us = now_us + epoch_doubled(HV_EPOCH_DOUBT_US, self->doubts++, HV_EPOCH_MOST_DOUBT_US);
    epoch_tell(self, HV_EPOCH_SAYS_DOUBT)->wait_us = self->doubt_until_us - now_us;
  }
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_DISBELIEVE);
  order->epoch = epoch;
  order->wait_us = self->doubt_until_us > now_us ? self->doubt_until_us - now_us : 1000;
}

void epoch_begins_look(hv_epoch *self, uint64_t least, uint64_t now_us) {
  hv_epoch_look *look = &self->look;
  if (look->is_under_way || (look->begun_us != HV_EPOCH_NONE && now_us < look->begun_us + HV_EPOCH_AGAIN_US))
    return;
  look->is_under_way = 1;
  look->begun_us = now_us;
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_LOOK);
  order->epoch = least;
  order->wait_us = HV_EPOCH_MOST_LOOK_US;
}

/* Late by one, the others being in the next epoch: no group is left with which this peer could have ended its own. Where gradients
 * are averaged later, the others count an epoch before that. */
static int has_missed_it(const hv_epoch *self) {
  return self->traits.sums && !self->traits.lead && !(self->sought == self->told && self->seeking[HV_EPOCH_GRADIENTS]);
}

/* Two epochs behind, and a state so much newer is on offer. Before it believes a claim, it looks whether there is one. */
int epoch_is_passed(hv_epoch *self, const epoch_event *e, uint64_t ahead) {
  if (e->figures->standing != HV_PROGRESS_BEHIND || !epoch_lacks_state(self, e->figures->epoch)) {
    self->look.lacked_us = HV_EPOCH_NONE;
    return 0;
  }
  if (self->look.found != HV_EPOCH_NONE && self->look.found >= self->told + ahead)
    return 1;
  epoch_begins_look(self, self->told + ahead, e->now_us);
  return 0;
}

/* Rule 10. */
int epoch_must_come(hv_epoch *self, const epoch_event *e) {
  if (epoch_is_unusable(self))
    return 1;
  return e->figures->standing == HV_PROGRESS_LATE ? has_missed_it(self) : epoch_is_passed(self, e, 1);
}

/* A state may come late, as that of a peer that nobody can dial, through a hub: it is looked for some times (rule 10). A newcomer
 * looks for averages before. */
static void lacks(hv_epoch *self, const epoch_event *e) {
  if (self->loads && self->state == HV_EPOCH_GATHERING && !self->end.acting[HV_EPOCH_NOW] &&
      epoch_prefers_entries(self, e, HV_EPOCH_NONE)) {
    epoch_comes(self, e);
    return;
  }
  if (self->look.lacked_us == HV_EPOCH_NONE)
    self->look.lacked_us = e->now_us;
  if (e->now_us < self->look.lacked_us + HV_EPOCH_MOST_LOOK_US)
    return;
  self->look.lacked_us = HV_EPOCH_NONE;
  doubts(self, self->told + 2, e->now_us);
}

void epoch_has_looked(hv_epoch *self, const epoch_event *e) {
  if (!self->look.is_under_way)
    return;
  self->look.is_under_way = 0;
  int is_second =
      self->state == HV_EPOCH_LOOKING && self->own.looking.gone_us != HV_EPOCH_NONE; /* an older state was found before */
  if (e->ok || !is_second)
    self->look.found = e->ok ? e->epoch : HV_EPOCH_NONE;
  if (self->state == HV_EPOCH_LOOKING) {
    self->own.looking.has_looked = 1;
    epoch_looks(self, e);
  } else if (!e->ok && (self->state == HV_EPOCH_GATHERING || self->state == HV_EPOCH_ENDING) &&
             e->figures->standing == HV_PROGRESS_BEHIND)
    lacks(self, e);
}

/* ---- aside ---- */

/* Of a wrong replica: the oldest state that may replace it. */
static uint64_t least_needed(const hv_epoch *self) {
  return self->told + (self->left_out == self->told);
}

/* The claims are so far beyond the newest state on offer that the one that counts can be a liar's (rule 12). */
static int is_far_beyond(const hv_epoch *self, uint64_t claimed, uint64_t found) {
  uint64_t offers = HV_EPOCH_BEYOND * epoch_offers_every(self);
  int is_new = found != HV_EPOCH_NONE && found > self->told; /* else it is of an earlier look */
  return is_new && claimed > found && hv_epoch_state_number(&self->traits, claimed - found) > offers;
}

/* Rule 12: where the group of the swarm's epoch may have formed without this peer, it loads the state of the next one. found: the
 * newest state on offer, where it has looked. */
static void chooses_epoch(hv_epoch *self, const epoch_event *e, uint64_t found) {
  const hv_progress_figures *f = e->figures;
  uint64_t eta_us = f->eta_us, epoch_us = HV_EPOCH_NOTICE_US, ahead = 1;
  double whole_us = f->speed > 0 ? (double)self->config.target / f->speed * 1e6 : 0;
  uint64_t *until_us = &self->own.coming.until_us;
  *until_us = e->now_us;
  self->own.coming.most = HV_EPOCH_NONE;
  if (epoch_is_unusable(self) && self->failures && !self->goes_back) { /* rule 13: the claim may be of an epoch that nobody has */
    uint64_t least = least_needed(self);
    self->wanted = self->is_asked && self->wanted > least ? self->wanted : least;
    return;
  }
  if (is_far_beyond(self, f->epoch, found)) {
    self->wanted = self->wanted > found ? self->wanted : found;
    self->own.coming.most = epoch_may_lead(self, f, found) ? HV_EPOCH_NONE : found;
    return;
  }
  if (!self->is_asked && epoch_leads_on(self, e, found)) {
    self->wanted = self->wanted > found ? self->wanted : found;
    return;
  }
  self->wanted = self->wanted > f->epoch ? self->wanted : f->epoch;
  if (self->is_asked || !self->traits.sums || self->load_us > HV_EPOCH_CHASE_US || f->n_peers < 1 || !epoch_forms_groups(self, f))
    return;
  eta_us = eta_us == HV_PROGRESS_NEVER ? 0 : eta_us;
  if (whole_us > HV_EPOCH_NOTICE_US)
    epoch_us = whole_us < 9e15 ? (uint64_t)whole_us : (uint64_t)9e15;
  if (eta_us < HV_EPOCH_NOTICE_US && epoch_us < 4 * HV_EPOCH_CHASE_US) /* else it is loaded long before half of the next one */
    ahead += (HV_EPOCH_NOTICE_US - eta_us + epoch_us - 1) / epoch_us;
  uint64_t wait_us = eta_us + (ahead - 1) * (epoch_us < 1000000 ? epoch_us : 1000000);
  self->wanted = f->epoch + ahead;
  *until_us += wait_us < self->config.matchmaking_us ? wait_us : self->config.matchmaking_us;
  epoch_order(self, HV_EPOCH_COMES)->epoch = self->wanted;
  epoch_wake(self, 1);
}

/* Rule 11: in this order, within one event. */
void epoch_comes(hv_epoch *self, const epoch_event *e) {
  int is_first = self->state == HV_EPOCH_LOOKING && !self->own.looking.is_here, drops = !self->traits.carries;
  int has_sums = drops && (self->state != HV_EPOCH_RESTING || self->ledger->sums);
  epoch_offers_withdraw(self);
  epoch_cancel(self);
  epoch_voids(self);
  epoch_order(self, HV_EPOCH_ASIDE);
  if (!epoch_comes_back(self))
    self->aside_us = self->state == HV_EPOCH_ENDING && self->end.is_over ? HV_EPOCH_NONE : e->now_us;
  epoch_tell(self, HV_EPOCH_SAYS_ASIDE);
  if (drops) /* else once another state is there */
    hv_epoch_ledger_replaced(self->ledger);
  epoch_moves(self, HV_EPOCH_COMING);
  self->own.coming.is_first = is_first;
  epoch_wake(self, 0);
  self->goes_on = 0;
  uint64_t found = self->look.found;
  self->look.found = HV_EPOCH_NONE;
  uint64_t most = is_far_beyond(self, e->figures->epoch, found) ? found : HV_EPOCH_NONE;
  if (epoch_prefers_entries(self, e, most)) {
    self->own.coming.repeats = 1;
    self->own.coming.most = most;
  } else
    chooses_epoch(self, e, found);
  if (has_sums)
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_DROP, 0);
}

void epoch_comes_to_load(hv_epoch *self, const epoch_event *e, uint64_t most) {
  epoch_moves(self, HV_EPOCH_COMING);
  chooses_epoch(self, e, most);
}

void epoch_come_goes_on(hv_epoch *self, const epoch_event *e) {
  if (self->late != HV_EPOCH_LATE_IDLE || self->end.acting[HV_EPOCH_NOW])
    return;
  if (self->own.coming.repeats) {
    epoch_repeats(self, e, self->own.coming.most);
    return;
  }
  if (e->now_us < self->own.coming.until_us && e->figures->epoch < self->wanted) {
    if (e->kind == HV_EPOCH_TIME && e->now_us >= self->own.coming.ask_us) {
      self->own.coming.ask_us = e->now_us + HV_EPOCH_ASK_US; /* a peer that reaches nobody has its answer at once */
      epoch_wake(self, 1); /* the sooner it hears that the epoch has begun, the less it is behind */
    }
    return;
  }
  uint64_t least = self->wanted > self->told || self->goes_back ? self->wanted : self->told;
  int is_first = self->own.coming.is_first;
  uint64_t most = self->own.coming.most;
  epoch_moves(self, HV_EPOCH_LOADING);
  self->own.loading.begun_us = e->now_us;
  self->own.loading.comes = HV_EPOCH_NONE;
  self->own.loading.most = most;
  self->own.loading.is_first = is_first;
  epoch_order(self, HV_EPOCH_LOAD)->epoch = hv_epoch_state_epoch(&self->traits, least);
}

/* ---- back ---- */

/* Rule 14. */
void epoch_enters(hv_epoch *self, const epoch_event *e) {
  epoch_moves(self, HV_EPOCH_GATHERING);
  self->left_out = HV_EPOCH_NONE;
  self->goes_back = 0;
  self->failures = 0;
  epoch_tell(self, HV_EPOCH_SAYS_ENTERS);
  if (self->has_to_apply)
    self->late = HV_EPOCH_LATE_TO_TAKE;
  self->has_to_apply = 0;
  self->has_begun = 1;
  self->batch_us = e->now_us;
  epoch_reached(self);
  epoch_wake(self, 1);
}

static void has_state(hv_epoch *self, const epoch_event *e) {
  const hv_epoch_loading *load = &self->own.loading;
  uint64_t took_us = e->now_us - load->begun_us;
  self->load_us = took_us < self->load_us ? took_us : self->load_us;
  epoch_line_loaded(self);
  if (load->gives_up)
    hv_epoch_ledger_kept_given_up(self->ledger);
  hv_lineage_restart(self->lineage, load->has_mark ? &load->mark : NULL);
  self->is_unfit = self->has_to_apply = 0;
  self->doubts = self->failures = 0;
  self->wrong_since_us = HV_EPOCH_NONE;
  self->loads++;
  self->loaded_us = e->now_us;
  self->is_apart = 0;
  uint64_t most = load->most;
  epoch_counts(self, load->epoch, e->now_us);
  self->made = HV_EPOCH_NONE; /* as it was settled here */
  self->replica = load->has_mark ? load->epoch : HV_EPOCH_NONE;
  self->leads_nowhere = 0;
  self->left_out = HV_EPOCH_NONE;
  self->wanted = 0;
  self->is_asked = 0;
  epoch_tell(self, HV_EPOCH_SAYS_LOADED);
  if (load->is_first)
    epoch_moves(self, HV_EPOCH_LOOKING);
  else if (epoch_has_to_repeat(self, e, most))
    epoch_repeats(self, e, most);
  else
    epoch_enters(self, e);
}

/* Rule 13. */
static void has_failed(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  int is_asked = self->is_asked;
  self->is_asked = 0;
  self->wanted = 0; /* the next attempt is for what is claimed then */
  epoch_wants_no_entries(self);
  epoch_tell(self, HV_EPOCH_SAYS_RESTS);
  if (self->own.loading.is_first) {
    epoch_moves(self, HV_EPOCH_LOOKING);
    return;
  }
  if (is_asked && !epoch_is_unusable(self) && !epoch_lacks_state(self, f->epoch)) {
    epoch_enters(self, e); /* nobody has another one, and the program wants to train on */
    return;
  }
  epoch_moves(self, HV_EPOCH_RESTING);
  self->own.resting_until_us = e->now_us + epoch_doubled(HV_EPOCH_REST_US, self->failures++, HV_EPOCH_MOST_REST_US);
  if (!epoch_is_unusable(self)) {
    if (epoch_lacks_state(self, f->epoch) && f->n_peers)
      doubts(self, f->epoch, e->now_us);
    return;
  }
  if (!f->n_peers)
    self->wrong_since_us = HV_EPOCH_NONE;
  else if (self->wrong_since_us == HV_EPOCH_NONE)
    self->wrong_since_us = e->now_us;
  else if (e->now_us >= self->wrong_since_us + HV_EPOCH_MOST_WRONG_US) {
    self->wrong_since_us = HV_EPOCH_NONE;
    if (self->left_out == self->told && f->epoch <= self->told)
      self->lineage->is_wrong = 0; /* the step that it was left out of has not been made */
    else
      doubts(self, f->epoch, e->now_us);
  }
}

void epoch_has_loaded(hv_epoch *self, const epoch_event *e) {
  if (self->state != HV_EPOCH_LOADING)
    return;
  if (!e->ok) {
    has_failed(self, e);
    return;
  }
  int gives_up = self->ledger->kept && !(e->has_mark && hv_mark_equal(&self->lineage->mark, &e->mark));
  self->own.loading.epoch = e->epoch;
  self->own.loading.mark = e->mark;
  self->own.loading.has_mark = e->has_mark;
  self->own.loading.gives_up = gives_up;
  self->own.loading.is_there = 1;
  epoch_has_come(self, e);
}

void epoch_come_acted(hv_epoch *self, unsigned action, const epoch_event *e) {
  if (action == HV_EPOCH_ADOPT && self->state == HV_EPOCH_LOADING)
    (e->ok > 0 ? has_state : has_failed)(self, e);
  else
    epoch_aside_goes_on(self, e);
}

/* The training thread is here with a batch, which is lost. */
void epoch_rests(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  if (e->now_us < self->own.resting_until_us)
    return;
  if (epoch_is_unusable(self) && !f->n_peers) { /* nobody else has another one */
    self->lineage->is_wrong = 0;
    self->is_unfit = 0;
  }
  if (epoch_is_unusable(self) || (f->n_peers && f->epoch > self->told && epoch_lacks_state(self, f->epoch)))
    epoch_comes(self, e);
  else {
    self->wanted = 0;
    self->made = self->told; /* nobody has another one */
    epoch_enters(self, e);
    if (self->late == HV_EPOCH_LATE_IDLE) /* else once the model has its latest step */
      epoch_offers_begin(self, e, 1);     /* those who had a newer one have gone */
  }
}

/* ---- the first look ---- */

static void begins(hv_epoch *self, const epoch_event *e) {
  uint64_t samples = self->own.looking.samples;
  epoch_enters(self, e);
  hv_epoch_ledger_counted(self->ledger, samples);
  if (self->traits.local_steps && samples)
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_LOCAL_STEP, 0);
}

static void comes_first(hv_epoch *self, const epoch_event *e, uint64_t least) {
  uint64_t samples = self->own.looking.samples;
  self->wanted = least;
  if (!self->traits.carries)
    hv_epoch_ledger_behind(self->ledger, samples);
  epoch_comes(self, e);
  if (self->traits.carries)
    epoch_steps_aside(self, e, samples);
}

uint64_t epoch_come_due_us(const hv_epoch *self) {
  const hv_epoch_looking *l = &self->own.looking;
  if (self->state == HV_EPOCH_COMING)
    return epoch_sooner(self, epoch_sooner(self, HV_EPOCH_NONE, self->own.coming.until_us), self->own.coming.ask_us);
  if (self->state == HV_EPOCH_REPEATING)
    return epoch_repeat_due_us(self);
  if (self->state != HV_EPOCH_LOOKING || !l->is_here)
    return HV_EPOCH_NONE;
  uint64_t due_us = epoch_sooner(self, HV_EPOCH_NONE, l->until_us);
  if (l->gone_us != HV_EPOCH_NONE)
    due_us = epoch_sooner(self, epoch_sooner(self, due_us, l->again_us), l->gone_us + HV_EPOCH_MOST_GONE_US);
  if (self->look.begun_us != HV_EPOCH_NONE)
    due_us = epoch_sooner(self, due_us, self->look.begun_us + HV_EPOCH_AGAIN_US);
  return due_us;
}

void epoch_waits_for_batch(hv_epoch *self) {
  self->own.looking = (hv_epoch_looking){.until_us = HV_EPOCH_NONE, .gone_us = HV_EPOCH_NONE};
}

/* Rule 17: the swarm's epoch; and if those who trained have gone, the state that a hub still offers. */
void epoch_looks(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  hv_epoch_looking *l = &self->own.looking;
  if (!l->is_here)
    return; /* the program is not here yet */
  if (l->until_us == HV_EPOCH_NONE)
    l->until_us = e->now_us + HV_EPOCH_MOST_SWARM_US;
  int answered = e->fetched > 0;
  if (!answered && e->now_us < l->until_us)
    return;
  if (!l->has_heard) {
    l->has_heard = 1;
    if (!answered)
      epoch_tell(self, HV_EPOCH_SAYS_SILENT);
    epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_MEET, 0);
  }
  if (self->end.acting[HV_EPOCH_NOW])
    return;
  if (!self->traits.has_replica || !answered || self->config.begins_run) {
    begins(self, e);
    return;
  }
  if (f->n_peers && f->epoch <= self->told) {
    begins(self, e); /* the others begin, too */
    return;
  }
  if (!l->has_looked) {
    epoch_begins_look(self, self->told + 1, e->now_us);
    return;
  }
  if (self->look.found == HV_EPOCH_NONE && !f->n_peers) {
    begins(self, e);
    return;
  }
  uint64_t there = hv_epoch_state_epoch(&self->traits, f->epoch);
  int is_there = self->look.found >= there || epoch_leads_on(self, e, self->look.found);
  if (!f->n_peers || self->look.found == HV_EPOCH_NONE || is_there) {
    comes_first(self, e, 0);
    return;
  }
  /* a hub has an older state than those who are counted: they may be dead, and their records last a while */
  if (l->gone_us == HV_EPOCH_NONE)
    l->gone_us = e->now_us;
  if (e->now_us >= l->gone_us + HV_EPOCH_MOST_GONE_US) {
    doubts(self, self->look.found + 1, e->now_us);
    comes_first(self, e, self->look.found);
    return;
  }
  if (e->now_us < l->again_us) /* the look before may have been answered at once */
    return;
  l->again_us = e->now_us + HV_EPOCH_AGAIN_US;
  epoch_begins_look(self, there, e->now_us); /* a newcomer may trust the hub, whose state is older, more than those who train */
  epoch_wake(self, 1);
}
