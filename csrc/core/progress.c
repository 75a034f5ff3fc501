#include "core/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_ROOM = 16, AGAIN_MS = 500, SUBKEY_MAX = 96, MOVED = 50 };

/* A contributor as it was last heard. */
typedef struct heard {
  hv_claim claim;
  uint64_t version, ends_us;
  uint8_t instance;
} heard;

struct hv_progress {
  hv_progress *next;
  hv_progress_hall *hall;
  hv_progress_config config;
  hv_progress_terms terms;
  uint8_t instance;
  int closing, saying, asking;
  heard *heard;
  size_t n_heard, room;
  hv_progress_view view;
  /* what was said last, and when it is due again */
  hv_progress_own said, being_said;
  uint64_t said_us;
  uint64_t again_us; /* after a failure not before */
  uint64_t ask_us, asked_serial;
  unsigned failures;
  hv_timer timer;
  hv_dht_op store, get;
  hv_dht_item item;
  uint8_t value[HV_REPORT_BYTES];
  char subkey[SUBKEY_MAX];
  size_t key_size;
  char key[];
};

static uint64_t ms(uint64_t n) {
  return n * 1000;
}

static uint64_t now_of(const hv_progress *self) {
  return self->hall->env->now_us(self->hall->env);
}

static void wake_at(hv_progress *self, uint64_t due_us) {
  uint64_t now = now_of(self);
  self->hall->env->timer_set(self->hall->env, &self->timer, due_us > now ? due_us - now : 0);
}

/* ---- counting ---- */

static hv_report report_of(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  uint64_t age = now_us > own->at_us ? (now_us - own->at_us) / 1000 : 0;
  return (hv_report){.epoch = own->epoch,
                     .samples = own->samples,
                     .before = own->before,
                     .speed = own->speed,
                     .age_ms = age < UINT32_MAX ? (uint32_t)age : UINT32_MAX,
                     .client_mode = self->config.client_mode != 0};
}

static void forget_ended(hv_progress *self, uint64_t now_us) {
  size_t kept = 0;
  for (size_t i = 0; i < self->n_heard; i++)
    if (self->heard[i].ends_us > now_us)
      self->heard[kept++] = self->heard[i];
  self->n_heard = kept;
}

/* The time until the target would be reached if the swarm grew as it may. */
static uint64_t refresh_us(const hv_progress *self, const hv_progress_figures *figures) {
  const hv_progress_terms *t = &self->terms;
  double n = figures->n_peers ? (double)figures->n_peers : 1;
  double grown = fmax(n + t->drift_peers, n * (1 + t->drift_rate));
  if (figures->eta_us == HV_PROGRESS_NEVER)
    return ms(t->default_refresh_ms);
  double us = (double)figures->eta_us * n / grown;
  return us < (double)ms(t->min_refresh_ms)   ? ms(t->min_refresh_ms)
         : us > (double)ms(t->max_refresh_ms) ? ms(t->max_refresh_ms)
                                              : (uint64_t)us;
}

/* On failure the last figures stand. */
static void count(hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  forget_ended(self, now_us);
  hv_mem *mem = self->hall->env->mem;
  hv_claim *claims = hv_mem_array(mem, self->n_heard + 1, sizeof *claims);
  hv_tally tally;
  hv_tally_rule rule = {.target = self->terms.target,
                        .fast = self->terms.fast,
                        .horizon_ms = 3 * self->terms.max_refresh_ms,
                        .stale_ms = 3 * self->terms.max_refresh_ms};
  if (!claims)
    return;
  size_t n = 0;
  for (size_t i = 0; i < self->n_heard; i++)
    claims[n++] = self->heard[i].claim;
  if (own->any)
    claims[n++] = (hv_claim){.owner = self->hall->me, .report = report_of(self, own, now_us), .at_us = own->at_us, .mine = 1};
  if (hv_tally_count(mem, claims, n, &rule, now_us, &tally) == HV_OK) {
    self->view.tally = tally;
    self->view.mine = own->any;
    self->view.at_us = now_us;
  }
  hv_mem_free(claims);
}

static void tell(hv_progress *self) {
  self->view.next_us = self->ask_us;
  if (self->config.counted)
    self->config.counted(self->config.arg, &self->view);
}

/* ---- hearing ---- */

/* N of "N[owner:PEERID]", or -1. */
static int instance_of(const hv_record *record) {
  char expected[SUBKEY_MAX], who[HV_PEER_TEXT_MAX];
  if (!record->has_subkey || record->subkey.size < 2 || !hv_peer_is_known(&record->signer))
    return -1;
  int n = record->subkey.data[0] - '0';
  if (n < 0 || n >= HV_TALLY_INSTANCES_MAX)
    return -1;
  int size = snprintf(expected, sizeof expected, "%d[owner:%s]", n, hv_peer_print(&record->signer, who));
  return hv_span_equal(record->subkey, hv_span_of(expected, (size_t)size)) ? n : -1;
}

static heard *heard_of(hv_progress *self, const hv_peer_id *owner, int instance) {
  for (size_t i = 0; i < self->n_heard; i++)
    if (self->heard[i].instance == instance && hv_peer_equal(&self->heard[i].claim.owner, owner))
      return &self->heard[i];
  if (self->n_heard == self->room) {
    size_t room = self->room ? self->room * 2 : FIRST_ROOM;
    heard *grown = NULL;
    if (room <= HV_PROGRESS_CLAIMS_MAX)
      grown = self->heard ? hv_mem_resize(self->hall->env->mem, self->heard, room * sizeof *grown)
                          : hv_mem_alloc(self->hall->env->mem, room * sizeof *grown);
    if (!grown)
      return NULL;
    self->heard = grown;
    self->room = room;
  }
  heard *new = &self->heard[self->n_heard++];
  *new = (heard){.instance = (uint8_t)instance, .claim.owner = *owner};
  return new;
}

static void hear(hv_progress *self, const hv_record *record, uint64_t now_us) {
  hv_report report;
  int instance = instance_of(record);
  if (instance < 0 || hv_report_unpack(record->value, &report) != HV_OK)
    return;
  if (hv_peer_equal(&record->signer, &self->hall->me) && instance == self->instance)
    return; /* I know better */
  heard *known = heard_of(self, &record->signer, instance);
  if (!known || (known->ends_us && record->version <= known->version))
    return;
  uint64_t kept = record->lease_ms > record->ttl_ms ? ms(record->lease_ms - record->ttl_ms) : 0;
  uint64_t said = now_us > kept ? now_us - kept : 0;
  known->version = record->version;
  known->ends_us = now_us + ms(record->ttl_ms);
  known->claim.report = report;
  known->claim.heard_us = said;
  known->claim.at_us = said > ms(report.age_ms) ? said - ms(report.age_ms) : 0;
}

/* ---- asking ---- */

static void plan(hv_progress *self);

static void got(hv_dht_op *op, hv_status status, const char *text) {
  hv_progress *self = op->owner;
  uint64_t now = now_of(self);
  (void)text;
  self->asking = 0;
  if (status == HV_CANCELLED || status == HV_CLOSED || self->closing)
    return;
  for (size_t i = 0; status == HV_OK && i < op->n_records; i++)
    hear(self, &op->records[i], now);
  /* Nobody there is an answer, too. */
  int answered = status == HV_OK || status == HV_NOT_FOUND || status == HV_UNREACHABLE;
  self->failures = status == HV_OK || status == HV_NOT_FOUND ? 0 : self->failures + 1;
  if (answered) {
    self->view.fetched++;
    self->view.fetched_serial = self->asked_serial;
  }
  hv_progress_own own;
  hv_progress_figures figures;
  self->config.own(self->config.arg, &own);
  count(self, &own, now);
  hv_progress_now(&self->view, &own, &self->terms, now, &figures);
  uint64_t wait = refresh_us(self, &figures), soon = ms(AGAIN_MS) << (self->failures < 4 ? self->failures : 4);
  self->ask_us = now + (self->failures && soon < wait ? soon : wait);
  tell(self);
  plan(self);
}

static void ask(hv_progress *self, const hv_progress_own *own) {
  self->get = (hv_dht_op){.done = got,
                          .owner = self,
                          .key = hv_span_of(self->key, self->key_size),
                          .latest = 1,
                          .timeout_ms = self->terms.max_refresh_ms};
  self->asked_serial = own->serial;
  self->asking = hv_dht_get(self->hall->dht, &self->get, NULL) == HV_OK;
  if (!self->asking)
    self->ask_us = now_of(self) + ms(AGAIN_MS);
}

/* ---- saying ---- */

static void free_tracker(hv_progress *self) {
  for (hv_progress **at = &self->hall->trackers; *at; at = &(*at)->next)
    if (*at == self) {
      *at = self->next;
      break;
    }
  self->hall->env->timer_clear(self->hall->env, &self->timer);
  hv_mem_free(self->heard);
  hv_mem_free(self);
}

static void said(hv_dht_op *op, hv_status status, const char *text) {
  hv_progress *self = op->owner;
  (void)text;
  self->saying = 0;
  if (self->closing) {
    free_tracker(self);
    return;
  }
  if (status == HV_CANCELLED || status == HV_CLOSED)
    return;
  if (status == HV_OK) {
    self->said = self->being_said;
  } else {
    self->said.any = 0;
    self->again_us = now_of(self) + ms(AGAIN_MS) * 2;
  }
  plan(self);
}

static int say(hv_progress *self, const hv_report *report) {
  hv_report_pack(report, self->value);
  self->item = (hv_dht_item){.subkey = hv_span_of(self->subkey, strlen(self->subkey)),
                             .value = hv_span_of(self->value, sizeof self->value),
                             .has_subkey = 1,
                             .ttl_ms = self->terms.expiration_ms};
  self->store = (hv_dht_op){.done = said,
                            .owner = self,
                            .key = hv_span_of(self->key, self->key_size),
                            .items = &self->item,
                            .n_items = 1,
                            .timeout_ms = self->terms.max_refresh_ms};
  self->saying = hv_dht_store(self->hall->dht, &self->store, NULL) == HV_OK;
  return self->saying;
}

/* Would others misjudge the count by more than a fiftieth of what one contributor is to give? */
static int has_moved(const hv_progress *self, const hv_progress_own *own) {
  double since = own->at_us > self->said.at_us ? (double)(own->at_us - self->said.at_us) * 1e-6 : 0;
  double expected = (double)self->said.samples + self->said.speed * since;
  size_t n = self->view.tally.n ? self->view.tally.n : 1;
  return fabs(expected - (double)own->samples) * MOVED * (double)n > (double)self->terms.target;
}

/* When something is to be said, with what the program says now; HV_PROGRESS_NEVER: nothing to say. */
static uint64_t say_due(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  uint64_t due;
  if (!own->any)
    return HV_PROGRESS_NEVER;
  if (!self->said.any || self->said.epoch != own->epoch)
    due = now_us;
  else if (has_moved(self, own))
    due = self->said_us + ms(self->terms.min_refresh_ms);
  else
    due = self->said_us + ms(self->terms.max_refresh_ms);
  return due > self->again_us ? due : self->again_us;
}

/* Does what is due, and sets the timer for what will be. */
static void plan(hv_progress *self) {
  hv_progress_own own;
  uint64_t now = now_of(self), due;
  self->config.own(self->config.arg, &own);
  due = say_due(self, &own, now);
  if (due <= now && !self->saying) {
    hv_report report = report_of(self, &own, now);
    self->being_said = own;
    self->said_us = now;
    if (!say(self, &report))
      self->again_us = now + ms(AGAIN_MS);
    due = HV_PROGRESS_NEVER;
  }
  if (self->ask_us <= now && !self->asking)
    ask(self, &own);
  uint64_t next = now + ms(self->terms.min_refresh_ms);
  if (!self->asking && self->ask_us < next)
    next = self->ask_us;
  if (!self->saying && due < next)
    next = due;
  wake_at(self, next > now ? next : now + ms(AGAIN_MS) / 10);
}

static void tick(hv_timer *timer, const hv_event *event) {
  (void)event;
  plan(timer->owner);
}

/* ---- life ---- */

void hv_progress_hall_init(hv_progress_hall *hall, hv_env *env, hv_dht *dht, const hv_peer_id *me) {
  *hall = (hv_progress_hall){.env = env, .dht = dht, .me = *me};
}

void hv_progress_hall_fini(hv_progress_hall *hall) {
  hall->ended = 1;
  while (hall->trackers) {
    hv_progress *self = hall->trackers;
    void (*ended)(void *) = self->closing ? NULL : self->config.ended;
    void *arg = self->config.arg;
    self->closing = 1;
    if (self->asking)
      hv_dht_cancel(hall->dht, &self->get);
    if (self->saying)
      hv_dht_cancel(hall->dht, &self->store); /* whose end frees it */
    else
      free_tracker(self);
    if (ended)
      ended(arg);
  }
}

static int free_instance(const hv_progress_hall *hall, hv_span prefix) {
  for (int n = 0; n < HV_TALLY_INSTANCES_MAX; n++) {
    int used = 0;
    for (const hv_progress *at = hall->trackers; at; at = at->next)
      used |= at->instance == n && hv_span_equal(at->config.prefix, prefix);
    if (!used)
      return n;
  }
  return -1;
}

hv_status hv_progress_open(hv_progress_hall *hall, const hv_progress_config *config, hv_progress **out, hv_error *err) {
  static const char after[] = "_progress";
  char who[HV_PEER_TEXT_MAX];
  hv_progress_terms terms = config->terms;
  hv_status status = hv_progress_check(&terms, err);
  if (status != HV_OK)
    return status;
  if (hall->ended)
    return hv_fail(err, HV_CLOSED, "this node has ended");
  if (config->prefix.size == 0 || config->prefix.size > HV_PROGRESS_PREFIX_MAX)
    return hv_fail(err, HV_INVALID, "the prefix of a run has from 1 to %d bytes, not %zu", HV_PROGRESS_PREFIX_MAX,
                   config->prefix.size);
  int instance = free_instance(hall, config->prefix);
  if (instance < 0)
    return hv_fail(err, HV_BUDGET, "this node has %d trackers of this run already: use another node for more",
                   HV_TALLY_INSTANCES_MAX);
  size_t key_size = config->prefix.size + sizeof after - 1;
  hv_progress *self = hv_mem_zalloc(hall->env->mem, sizeof *self + key_size + 1);
  if (!self)
    return hv_fail(err, HV_NOMEM, "no memory for a tracker: raise the memory limit");
  memcpy(self->key, config->prefix.data, config->prefix.size);
  memcpy(self->key + config->prefix.size, after, sizeof after);
  self->key_size = key_size;
  self->hall = hall;
  self->config = *config;
  self->config.prefix = hv_span_of(self->key, config->prefix.size);
  self->terms = terms;
  self->instance = (uint8_t)instance;
  snprintf(self->subkey, sizeof self->subkey, "%d[owner:%s]", instance, hv_peer_print(&hall->me, who));
  self->timer = (hv_timer){.fire = tick, .owner = self};
  self->next = hall->trackers;
  hall->trackers = self;
  self->view.at_us = now_of(self);
  wake_at(self, 0);
  *out = self;
  return HV_OK;
}

void hv_progress_wake(hv_progress *self, int ask_now) {
  hv_progress_own own;
  uint64_t due = now_of(self) + (ask_now ? 0 : ms(self->terms.min_refresh_ms));
  self->ask_us = due < self->ask_us ? due : self->ask_us;
  self->config.own(self->config.arg, &own);
  count(self, &own, now_of(self));
  tell(self);
  plan(self);
}

void hv_progress_close(hv_progress *self) {
  hv_report gone = {.gone = 1};
  self->closing = 1;
  self->hall->env->timer_clear(self->hall->env, &self->timer);
  if (self->asking)
    hv_dht_cancel(self->hall->dht, &self->get);
  if (self->saying) {
    self->closing = 0; /* so that its end does not free it yet */
    self->config.own = NULL;
    hv_dht_cancel(self->hall->dht, &self->store);
    self->closing = 1;
  }
  if ((!self->said.any && self->said_us == 0) || !say(self, &gone))
    free_tracker(self);
}

const hv_progress_view *hv_progress_look(const hv_progress *self) {
  return &self->view;
}
