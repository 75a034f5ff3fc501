/* The state for joiners: when this peer offers its own (rule 15 in docs/design/epoch.md). */
#include "core/epoch/epoch_inner.h"

/* Between two offers: a copy of the state may take a fiftieth of the time. */
static uint64_t period_us(const hv_epoch *self) {
  uint64_t cost_us = self->offers.cost_us * HV_EPOCH_OFFER_COST;
  return cost_us > HV_EPOCH_OFFER_US ? cost_us : HV_EPOCH_OFFER_US;
}

/* Powers of two, so that peers whose epochs take about the same choose the same epochs. */
uint64_t epoch_offers_every(const hv_epoch *self) {
  uint64_t n = 1;
  while (self->offers.epoch_us && n * self->offers.epoch_us < period_us(self) && n < HV_EPOCH_LEAP)
    n *= 2;
  return n;
}

void epoch_snapshot(hv_epoch *self, uint64_t epoch) {
  if (self->end.acting[HV_EPOCH_NOW] || epoch_is_unusable(self) || !self->traits.has_replica)
    return;
  self->offers.copied = epoch;
  epoch_act(self, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 0);
}

/* Somebody waits for the state of this epoch, or of an older one. */
static int is_wanted(const hv_epoch *self, uint64_t epoch) {
  return self->offers.wanted <= epoch; /* HV_EPOCH_NONE is later than any */
}

/* Somebody loads the state of this epoch, or of an older one. Its word costs nothing, so copies are ahead of their part of the time
 * by a few only. */
static int is_come_for(const hv_epoch *self, const epoch_event *e) {
  return e->figures->n_coming && self->offers.paid_us <= e->now_us + HV_EPOCH_OFFER_BURST * period_us(self);
}

/* The state of made's beginning is there, and the same as the others'. changed: another one than was offered for it. */
void epoch_offers_begin(hv_epoch *self, const epoch_event *e, int changed) {
  uint64_t epoch = self->made == HV_EPOCH_NONE ? self->told : self->made;
  if (self->offers.settled_us != HV_EPOCH_NONE) {
    uint64_t took_us = e->now_us - self->offers.settled_us;
    self->offers.epoch_us = self->offers.epoch_us ? (4 * self->offers.epoch_us + took_us) / 5 : took_us;
  }
  self->offers.settled_us = e->now_us;
  int early = self->offers.offered == epoch, own = !self->end.averaged && !self->end.alone;
  int wanted = self->end.meets_another || own || is_wanted(self, epoch) || is_come_for(self, e);
  if ((early && !changed) || (!early && !wanted && epoch % epoch_offers_every(self)))
    return;
  epoch_snapshot(self, epoch);
}

/* Those who made the state that this peer has only loaded are gone: all others lack it. */
static int is_last_with_it(const hv_epoch *self, const hv_progress_figures *f) {
  return f->epoch == self->told && f->n_peers <= 1 + f->n_behind;
}

/* An epoch that lasts longer than was thought is offered after all, and so is a state whose offer has failed. One that was only
 * loaded is offered where nobody else can: without company, this epoch may never end. */
void epoch_offers_overdue(hv_epoch *self, const epoch_event *e) {
  const hv_progress_figures *f = e->figures;
  int is_loaded = self->made == HV_EPOCH_NONE;
  uint64_t epoch = is_loaded ? self->replica : self->made;
  if (epoch != self->told || self->offers.counted_us == HV_EPOCH_NONE || e->now_us < self->offers.again_us)
    return;
  int is_asked_for = is_wanted(self, epoch) || is_come_for(self, e),
      is_due = e->now_us >= self->offers.counted_us + period_us(self);
  if (is_loaded && !is_last_with_it(self, f))
    return;
  if (self->offers.offered != epoch && (is_asked_for || (is_loaded ? f->n_behind > 0 : is_due)))
    epoch_snapshot(self, epoch);
}

uint64_t epoch_offers_due_us(const hv_epoch *self) {
  const hv_epoch_offers *o = &self->offers;
  if (o->offered == self->made || o->counted_us == HV_EPOCH_NONE)
    return HV_EPOCH_NONE;
  return epoch_sooner(self, epoch_sooner(self, HV_EPOCH_NONE, o->again_us), o->counted_us + period_us(self));
}

/* One gift goes under way at a time, and that to a group's hubs comes first: peers of the group wait there. */
static void gives(hv_epoch *self, uint64_t epoch) {
  hv_epoch_offers *o = &self->offers;
  int is_expected = o->expected <= epoch; /* HV_EPOCH_NONE is later than any */
  if (!is_expected && o->asked > epoch)
    return;
  hv_epoch_order *order = epoch_order(self, HV_EPOCH_GIVE);
  order->epoch = epoch;
  order->ask = !is_expected;
  o->expected = o->asked = HV_EPOCH_NONE;
}

void epoch_snapshot_is_made(hv_epoch *self, const epoch_event *e) {
  uint64_t epoch = self->offers.copied;
  self->offers.copied = HV_EPOCH_NONE;
  self->offers.cost_us = e->took_us;
  self->offers.paid_us = (self->offers.paid_us > e->now_us ? self->offers.paid_us : e->now_us) + period_us(self);
  if (e->ok <= 0 || epoch == HV_EPOCH_NONE || epoch_is_unusable(self) || epoch_is_aside(self))
    return;
  self->offers.offered = epoch;
  if (is_wanted(self, epoch))
    self->offers.wanted = HV_EPOCH_NONE;
  epoch_order(self, HV_EPOCH_OFFER)->epoch = epoch;
  gives(self, epoch);
}

void epoch_was_offered(hv_epoch *self, const epoch_event *e) {
  if (!e->ok && self->offers.offered == e->epoch) {
    self->offers.offered = HV_EPOCH_NONE;
    self->offers.again_us = e->now_us + HV_EPOCH_OFFER_US;
  }
}

/* A hub asks for what it lacks: a copy that was made before it asked went to nobody, if nobody can dial this peer. */
void epoch_is_wanted(hv_epoch *self, const epoch_event *e) {
  self->offers.wanted = e->epoch;
  if (e->ok) {
    self->offers.asked = e->epoch;
    if (e->now_us >= self->hub.after_us)
      self->hub.us = e->now_us;
  }
  if (!self->config.reachable && self->offers.offered != HV_EPOCH_NONE && self->offers.offered >= e->epoch)
    self->offers.offered = HV_EPOCH_NONE;
}

void epoch_is_giver(hv_epoch *self, const epoch_event *e, uint64_t epoch) {
  size_t n_hubs = 0;
  for (size_t i = 0; i < e->n_members; i++)
    n_hubs += e->members[i].is_auxiliary && !e->members[i].is_client;
  self->offers.wanted = epoch;
  self->offers.expected = n_hubs ? epoch : HV_EPOCH_NONE;
  if (n_hubs)
    epoch_order(self, HV_EPOCH_EXPECT)->epoch = epoch;
}

/* It must not speak for a state that is out of date, or no majority can be found. */
void epoch_offers_withdraw(hv_epoch *self) {
  if (self->offers.offered != HV_EPOCH_NONE)
    epoch_order(self, HV_EPOCH_WITHDRAW);
  self->offers.offered = self->offers.copied = HV_EPOCH_NONE;
}
