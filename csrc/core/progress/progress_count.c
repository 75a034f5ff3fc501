/* The records and sums of other contributors, and the count of all (contract in progress.h). */
#include "core/progress/progress_inner.h"

#include <math.h>
#include <stdio.h>

enum { FIRST_ROOM = 16, COVERED_LEAST = 1, TOGETHER_US = 250000 };

static uint64_t ms(uint64_t n) {
  return progress_ms(n);
}

hv_progress_own progress_own(const hv_progress *self, uint64_t now_us) {
  hv_progress_own own = {0};
  self->config.own(self->config.arg, &own);
  return hv_progress_as_of(&own, now_us);
}

hv_report progress_report(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  uint64_t age = now_us > own->at_us ? (now_us - own->at_us) / 1000 : 0;
  return (hv_report){.epoch = own->epoch,
                     .samples = own->samples,
                     .before = own->before,
                     .speed = own->speed,
                     .age_ms = age < UINT32_MAX ? (uint32_t)age : UINT32_MAX,
                     .client_mode = self->config.client_mode != 0};
}

uint64_t progress_refresh_us(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  const hv_progress_terms *t = &self->terms;
  hv_progress_figures figures;
  hv_progress_now(&self->view, own, t, now_us, &figures);
  double n = figures.n_peers ? (double)figures.n_peers : 1;
  double grown = fmax(n + t->drift_peers, n * (1 + t->drift_rate));
  if (figures.eta_us == HV_PROGRESS_NEVER)
    return ms(t->default_refresh_ms);
  double us = (double)figures.eta_us * n / grown, least = (double)ms(t->min_refresh_ms), most = (double)ms(t->max_refresh_ms);
  return (uint64_t)(us < least ? least : us > most ? most : us);
}

/* ---- records ---- */

/* N of "N[owner:PEERID]", or -1. */
static int instance_of(const hv_record *record) {
  char expected[PROGRESS_SUBKEY_MAX], who[HV_PEER_TEXT_MAX];
  if (!record->has_subkey || record->subkey.size < 2 || !hv_peer_is_known(&record->signer))
    return -1;
  int n = record->subkey.data[0] - '0';
  if (n < 0 || n >= HV_TALLY_INSTANCES_MAX)
    return -1;
  int size = snprintf(expected, sizeof expected, "%d[owner:%s]", n, hv_peer_print(&record->signer, who));
  return hv_span_equal(record->subkey, hv_span_of(expected, (size_t)size)) ? n : -1;
}

static progress_heard *heard_of(hv_progress *self, const hv_peer_id *owner, int instance) {
  for (size_t i = 0; i < self->n_heard; i++)
    if (self->heard[i].instance == instance && hv_peer_equal(&self->heard[i].claim.owner, owner))
      return &self->heard[i];
  if (self->n_heard == self->room) {
    size_t room = self->room ? self->room * 2 : FIRST_ROOM;
    progress_heard *grown = NULL;
    if (room <= HV_PROGRESS_CLAIMS_MAX)
      grown = self->heard ? hv_mem_resize(self->registry->env->mem, self->heard, room * sizeof *grown)
                          : hv_mem_alloc(self->registry->env->mem, room * sizeof *grown);
    if (!grown)
      return NULL;
    self->heard = grown;
    self->room = room;
  }
  progress_heard *new = &self->heard[self->n_heard++];
  *new = (progress_heard){.instance = (uint8_t)instance, .claim.owner = *owner};
  return new;
}

static int was_said_before_it_ended(const hv_progress *self, const progress_heard *known, uint64_t said_us) {
  const hv_peers *peers = self->registry->peers;
  return (known->gone_us && said_us <= known->gone_us + HV_PEERS_RECORD_MARGIN_US) ||
         (peers && hv_peers_ended_since(peers, &known->claim.owner, said_us));
}

void progress_forget(hv_progress *self, const hv_peer_id *owner, uint64_t now_us) {
  for (size_t i = 0; i < self->n_heard; i++)
    if (hv_peer_equal(&self->heard[i].claim.owner, owner)) {
      self->heard[i].gone_us = now_us;
      self->heard[i].claim.report.gone = 1;
    }
}

void progress_hear(hv_progress *self, const hv_record *record, uint64_t now_us) {
  hv_report report;
  int instance = instance_of(record);
  if (instance < 0 || hv_peer_equal(&record->signer, &self->registry->me) || hv_report_unpack(record->value, &report) != HV_OK)
    return;
  progress_heard *known = heard_of(self, &record->signer, instance);
  if (!known || (known->ends_us && record->version <= known->version))
    return;
  uint64_t kept = record->lease_ms > record->ttl_ms ? ms(record->lease_ms - record->ttl_ms) : 0;
  uint64_t said = now_us > kept ? now_us - kept : 0;
  known->version = record->version;
  known->ends_us = now_us + ms(record->ttl_ms);
  if (was_said_before_it_ended(self, known, said))
    report.gone = 1;
  else
    known->gone_us = 0;
  known->claim.report = report;
  known->claim.heard_us = said;
  known->claim.at_us = said > ms(report.age_ms) ? said - ms(report.age_ms) : 0;
}

static void forget_ended(hv_progress *self, uint64_t now_us) {
  size_t kept = 0;
  for (size_t i = 0; i < self->n_heard; i++)
    if (self->heard[i].ends_us > now_us)
      self->heard[kept++] = self->heard[i];
  self->n_heard = kept;
}

/* ---- what this node itself has ---- */

/* The samples that the program has done by now if it continued. It reports from a thread of its own, so a report may be newer than
 * now_us: such a report has age 0. */
static double gone_on(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  double age = now_us > own->at_us ? (double)(now_us - own->at_us) * 1e-6 : 0;
  return (double)own->samples + own->speed * fmin(age, 3e-3 * self->terms.max_refresh_ms);
}

void progress_own_sum(void *arg, hv_sum *out) {
  const hv_progress_run *run = arg;
  hv_part *highest = NULL;
  *out = (hv_sum){0};
  for (const hv_progress *at = run->registry->trackers; at; at = at->next) {
    if (at->run != run || at->closing)
      continue;
    uint64_t now = progress_clock(at);
    hv_progress_own own = progress_own(at, now);
    if (!own.any)
      continue;
    double samples = gone_on(at, &own, now);
    hv_part part = {.epoch = own.epoch,
                    .samples = samples < (double)HV_REPORT_SAMPLES_MAX ? (uint64_t)(samples + 0.5) : HV_REPORT_SAMPLES_MAX,
                    .before = own.before,
                    .speed_milli = (uint64_t)(fmin(own.speed, HV_REPORT_SPEED_MAX / 1000) * 1000)};
    hv_sum_add_part(out, &part);
    out->contributors++;
    out->clients += at->config.client_mode != 0;
  }
  for (size_t i = 0; i < out->n_parts; i++)
    if (!highest || out->parts[i].epoch > highest->epoch)
      highest = &out->parts[i];
  if (highest)
    highest->owners = out->owners = 1;
}

/* ---- counting ---- */

typedef struct union_of {
  hv_claim *claims;
  size_t n;
  size_t more, more_clients; /* contributors that stand in one claim with others */
} union_of;

static void add_sum(union_of *all, const hv_peer_id *owner, const hv_sum *sum, uint64_t heard_us) {
  for (size_t i = 0; i < sum->n_parts; i++) {
    const hv_part *p = &sum->parts[i];
    all->claims[all->n++] = (hv_claim){.owner = *owner,
                                       .at_us = heard_us,
                                       .heard_us = heard_us,
                                       .report = {.epoch = p->epoch,
                                                  .samples = p->samples,
                                                  .before = p->before,
                                                  .speed = (double)p->speed_milli * 1e-3,
                                                  .client_mode = sum->clients > 0}};
  }
  if (sum->contributors <= sum->n_parts)
    return;
  size_t more = sum->contributors - sum->n_parts;
  more = more < HV_TALLY_INSTANCES_MAX ? more : HV_TALLY_INSTANCES_MAX;
  all->more += more;
  all->more_clients += sum->clients > 0 ? more : 0;
}

/* The other trackers of this node in the same run. */
static void add_siblings(const hv_progress *self, union_of *all, uint64_t now_us) {
  for (const hv_progress *at = self->registry->trackers; at; at = at->next) {
    if (at == self || at->run != self->run || at->closing)
      continue;
    hv_progress_own own = progress_own(at, now_us);
    if (own.any)
      all->claims[all->n++] = (hv_claim){
          .owner = self->registry->me, .report = progress_report(at, &own, now_us), .at_us = own.at_us, .heard_us = now_us};
  }
}

/* All that are known one by one: heard directly, or else by their records. */
static void unite(hv_progress *self, const hv_progress_own *own, uint64_t now_us, union_of *all) {
  const hv_zones *zones = &self->run->zones;
  hv_sum sum;
  uint64_t heard_us;
  size_t lacking = 0;
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++)
    if (hv_peer_is_known(&zones->members[i].id) && hv_zones_member_of(zones, &zones->members[i].id, &sum, &heard_us))
      add_sum(all, &zones->members[i].id, &sum, heard_us);
  for (size_t i = 0; i < self->n_heard; i++) {
    const hv_claim *claim = &self->heard[i].claim;
    if (hv_zones_member_of(zones, &claim->owner, &sum, &heard_us))
      continue;
    lacking += !claim->report.gone && now_us - claim->heard_us < ms(self->terms.max_refresh_ms) * 3;
    all->claims[all->n++] = *claim;
  }
  /* clients do not ask each other, so each hears of the others by their records alone */
  self->covered = lacking == 0 && hv_zones_heard(zones) > 0 && !self->config.client_mode;
  add_siblings(self, all, now_us);
  if (own->any)
    all->claims[all->n++] =
        (hv_claim){.owner = self->registry->me, .report = progress_report(self, own, now_us), .at_us = own->at_us, .mine = 1};
}

/* A contributor that was heard last in the epoch before, and not since this one began the swarm's epoch, is taken to have begun it
 * together with this one, at its own speed. A newer report says itself in which epoch it is. TOGETHER_US covers messages under way
 * and members that end a round at different moments. True: there is such a contributor. */
static int carry(const hv_progress *self, const hv_progress_own *own, uint64_t epoch, union_of *all) {
  uint64_t begun = self->serial_us, most = 3 * ms(self->terms.max_refresh_ms);
  int any = 0;
  for (size_t i = 0; own->any && own->epoch == epoch && i < all->n; i++) {
    hv_claim *claim = &all->claims[i];
    hv_report *r = &claim->report;
    if (claim->mine || r->gone || r->epoch + 1 != epoch || claim->heard_us >= begun + TOGETHER_US)
      continue;
    double before = hv_claim_samples(claim, begun, most);
    r->before = before < (double)HV_REPORT_SAMPLES_MAX ? (uint64_t)before : HV_REPORT_SAMPLES_MAX;
    r->samples = 0;
    r->epoch = epoch;
    claim->at_us = begun;
    any = 1;
  }
  return any;
}

/* Room for all claims that unite() finds; NULL: no memory. */
static hv_claim *room_for_all(const hv_progress *self) {
  size_t room = self->n_heard + HV_ZONES_MEMBERS * HV_PARTS_MAX + HV_TALLY_INSTANCES_MAX;
  return hv_mem_array(self->registry->env->mem, room, sizeof(hv_claim));
}

/* Removes the claims of ignored owners. */
static void drop_ignored(const hv_progress *self, const hv_progress_own *own, uint64_t now_us, union_of *all) {
  size_t kept = 0;
  for (size_t i = 0; i < all->n; i++)
    if (!hv_ignored_has(&self->ignored, &all->claims[i], own->any ? own->epoch : UINT64_MAX, now_us))
      all->claims[kept++] = all->claims[i];
  all->n = kept;
}

void hv_progress_disbelieve(hv_progress *self, uint64_t epoch, uint32_t for_ms) {
  uint64_t now = progress_clock(self), until = now + ms(for_ms < HV_IGNORED_MS_MAX ? for_ms : HV_IGNORED_MS_MAX);
  hv_progress_own own = progress_own(self, now);
  union_of all = {.claims = room_for_all(self)};
  if (!all.claims)
    return;
  unite(self, &own, now, &all);
  for (size_t i = 0; i < all.n; i++) {
    const hv_claim *claim = &all.claims[i];
    if (!claim->report.gone && claim->report.epoch >= epoch && !hv_peer_equal(&claim->owner, &self->registry->me))
      hv_ignored_add(&self->ignored, &claim->owner, epoch, until);
  }
  hv_mem_free(all.claims);
  progress_count(self, &own, now);
}

static int count_one_by_one(hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  hv_mem *mem = self->registry->env->mem;
  union_of all = {.claims = room_for_all(self)};
  hv_tally tally;
  hv_tally_rule rule = {.target = self->terms.target,
                        .fast = self->terms.fast,
                        .horizon_ms = 3 * self->terms.max_refresh_ms,
                        .stale_ms = 3 * self->terms.max_refresh_ms};
  if (!all.claims)
    return 0;
  unite(self, own, now_us, &all);
  drop_ignored(self, own, now_us, &all);
  hv_status status = hv_tally_count(mem, all.claims, all.n, &rule, now_us, &tally);
  if (status == HV_OK && carry(self, own, tally.epoch, &all))
    status = hv_tally_count(mem, all.claims, all.n, &rule, now_us, &tally);
  hv_mem_free(all.claims);
  if (status != HV_OK)
    return 0;
  tally.n += all.more;
  tally.n_clients += all.more_clients;
  self->view.tally = tally;
  self->view.wide = 0;
  return 1;
}

static double count_least(double a, double b) {
  return a < b ? a : b;
}

/* By their records: those that load the state of this epoch, or of an older one. */
static size_t coming(const hv_progress *self, uint64_t now_us) {
  hv_sum sum;
  uint64_t heard_us;
  size_t n = 0;
  for (size_t i = 0; i < self->n_heard; i++) {
    const hv_claim *claim = &self->heard[i].claim;
    int comes = claim->report.comes && claim->report.comes <= self->view.tally.epoch + 1 && !self->heard[i].gone_us;
    n += comes && now_us < claim->heard_us + ms(self->terms.max_refresh_ms) &&
         !hv_zones_member_of(&self->run->zones, &claim->owner, &sum, &heard_us);
  }
  return n;
}

static size_t behind(const hv_sum *sum, uint64_t epoch) {
  size_t n = 0;
  for (size_t i = 0; i < sum->n_parts; i++)
    n += sum->parts[i].epoch < epoch ? sum->parts[i].owners : 0;
  return n;
}

static void count_by_zones(hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  hv_zones *zones = &self->run->zones;
  hv_sum sum;
  (void)now_us;
  hv_zones_count(zones, &sum);
  hv_tally *t = &self->view.tally;
  *t = (hv_tally){.any = sum.owners > 0,
                  .epoch = zones->epoch,
                  .n = sum.contributors,
                  .n_clients = sum.clients,
                  .n_behind = behind(&sum, zones->epoch),
                  .n_owners = sum.owners,
                  .tolerated = sum.owners / 3,
                  .samples = hv_sum_samples(&sum, zones->epoch),
                  .speed = hv_sum_speed(&sum, zones->epoch),
                  .most_samples = zones->most_samples,
                  .most_speed = zones->most_speed};
  double mine = 0, my_speed = 0;
  if (own->any && own->epoch == t->epoch) {
    mine = gone_on(self, own, now_us);
    my_speed = own->speed;
  } else if (own->any && own->epoch == t->epoch + 1)
    mine = (double)own->before;
  t->others_samples = t->samples - count_least(count_least(mine, t->most_samples), t->samples);
  t->others_speed = t->speed - count_least(count_least(my_speed, t->most_speed), t->speed);
  self->view.age_ms = hv_sum_age_ms(&sum);
  self->view.wide = 1;
  self->covered = 1;
}

static void note_epoch(hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  if (self->serial == own->serial && self->serial_us)
    return;
  self->serial = own->serial;
  self->serial_us = now_us;
}

/* Since this epoch began a whole round of direct questions has been made. */
static void note_round(hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  if (self->covered && now_us - self->serial_us > self->run->zones.round_us) {
    self->view.fetched++;
    self->view.fetched_serial = own->serial;
  }
}

void progress_count(hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  forget_ended(self, now_us);
  note_epoch(self, own, now_us);
  if (hv_zones_is_wide(&self->run->zones) && hv_zones_heard(&self->run->zones) >= COVERED_LEAST)
    count_by_zones(self, own, now_us);
  else if (!count_one_by_one(self, own, now_us))
    return;
  self->view.mine = own->any;
  self->view.n_coming = self->view.wide ? 0 : coming(self, now_us);
  self->view.at_us = now_us;
  note_round(self, own, now_us);
  self->view.next_us = self->ask_us;
  if (self->config.counted)
    self->config.counted(self->config.arg, &self->view);
}
