#include "core/progress/progress_inner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  AGAIN_MS = 500,
  MOVED = 50,
  SAID_IN_A_LIFE = 3,
  SAID_WHILE_COMING = 4,
  ASKED = 3,
  ASKED_WIDE = 20,
  COUNT_LEAST_US = 200000,
  FIRST_WIDE_US = 10000000, /* by then it knows how many there are, and so who has a record */
  FIRST_ALONE_US = 3000000,
  ROUND_LEAST_US = 500000,
  ROUND_MOST_US = 2500000,
  ROUND_WIDE_US = 1750000,
  HASTE_LEAST_US = 50000
};

static uint64_t ms(uint64_t n) {
  return progress_ms(n);
}

static void wake_at(hv_progress *self, uint64_t due_us) {
  uint64_t now = progress_clock(self);
  self->registry->env->timer_set(self->registry->env, &self->timer, due_us > now ? due_us - now : 0);
}

/* ---- asking for records ---- */

static void plan(hv_progress *self);

/* All contributors are heard, and nobody beside them, who may be on the way, as a record would say. */
static int needs_no_record(const hv_progress *self) {
  return self->covered && (self->view.wide || !hv_zones_hears_outsider(&self->run->zones));
}

/* When records are to be asked for again. */
static uint64_t next_ask(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  uint64_t wait = progress_refresh_us(self, own, now_us), soon = ms(AGAIN_MS) << (self->failures < 4 ? self->failures : 4);
  if (needs_no_record(self))
    return self->asked_us + ms(self->terms.expiration_ms) * (self->view.wide ? ASKED_WIDE : ASKED);
  uint64_t said = ms(self->terms.max_refresh_ms) / SAID_WHILE_COMING;
  wait = self->covered && wait > said ? said : wait;
  return self->asked_us + (self->failures && soon < wait ? soon : wait);
}

static void got(hv_dht_op *op, hv_status status, const char *text) {
  hv_progress *self = op->owner;
  uint64_t now = progress_clock(self);
  (void)text;
  self->asking = 0;
  if (status == HV_CANCELLED || status == HV_CLOSED || self->closing)
    return;
  for (size_t i = 0; status == HV_OK && i < op->n_records; i++)
    progress_hear(self, &op->records[i], now);
  self->failures = status == HV_OK || status == HV_NOT_FOUND ? 0 : self->failures + 1;
  if (self->failures == 0 || status == HV_UNREACHABLE) { /* nobody there is an answer, too */
    self->view.fetched++;
    self->view.fetched_serial = self->asked_serial;
  }
  hv_progress_own own = progress_own(self, now);
  self->ask_us = next_ask(self, &own, now);
  progress_count(self, &own, now);
  plan(self);
}

static void progress_search(hv_progress *self, const hv_progress_own *own) {
  self->get = (hv_dht_op){.done = got,
                          .owner = self,
                          .key = hv_span_of(self->key, self->key_size),
                          .latest = 1,
                          .timeout_ms = self->terms.max_refresh_ms};
  self->asked_serial = own->serial;
  self->asked_us = progress_clock(self);
  self->asking = hv_dht_get(self->registry->dht, &self->get, NULL) == HV_OK;
  self->ask_us = self->asked_us + ms(AGAIN_MS);
}

/* ---- saying by records ---- */

static void leave_run(hv_progress *self) {
  hv_progress_run *run = self->run;
  if (--run->n)
    return;
  for (hv_progress_run **at = &self->registry->runs; *at; at = &(*at)->next)
    if (*at == run) {
      *at = run->next;
      break;
    }
  hv_zones_fini(&run->zones);
  hv_mem_free(run);
}

static void free_tracker(hv_progress *self) {
  for (hv_progress **at = &self->registry->trackers; *at; at = &(*at)->next)
    if (*at == self) {
      *at = self->next;
      break;
    }
  leave_run(self);
  self->registry->env->timer_clear(self->registry->env, &self->timer);
  hv_mem_free(self->heard);
  hv_mem_free(self);
}

static void progress_published(hv_dht_op *op, hv_status status, const char *text) {
  hv_progress *self = op->owner;
  (void)text;
  self->publishing = 0;
  if (self->closing) {
    free_tracker(self);
    return;
  }
  if (status == HV_CANCELLED || status == HV_CLOSED)
    return;
  if (status == HV_OK) {
    self->published = self->to_publish;
  } else {
    self->published.any = self->published.comes = 0;
    self->again_us = progress_clock(self) + ms(AGAIN_MS) * 2;
  }
  plan(self);
}

static int progress_publish(hv_progress *self, const hv_report *report) {
  hv_report_pack(report, self->value);
  self->item = (hv_dht_item){.subkey = hv_span_of(self->subkey, strlen(self->subkey)),
                             .value = hv_span_of(self->value, sizeof self->value),
                             .has_subkey = 1,
                             .ttl_ms = self->terms.expiration_ms};
  self->store = (hv_dht_op){.done = progress_published,
                            .owner = self,
                            .key = hv_span_of(self->key, self->key_size),
                            .items = &self->item,
                            .n_items = 1,
                            .spots = &self->spots,
                            .timeout_ms = self->terms.max_refresh_ms};
  self->publishing = hv_dht_store(self->registry->dht, &self->store, NULL) == HV_OK;
  return self->publishing;
}

/* Would others misjudge the count by more than a fiftieth of what one contributor is to give? */
static int has_moved(const hv_progress *self, const hv_progress_own *own) {
  double since = own->at_us > self->published.at_us ? (double)(own->at_us - self->published.at_us) * 1e-6 : 0;
  double expected = (double)self->published.samples + self->published.speed * since;
  size_t n = self->view.tally.n ? self->view.tally.n : 1;
  return fabs(expected - (double)own->samples) * MOVED * (double)n > (double)self->terms.target;
}

/* In a wide swarm only some have records. */
static int has_record(const hv_progress *self) {
  size_t n = self->view.tally.n_owners, in = self->view.wide ? n / HV_PROGRESS_KNOWN + 1 : 1;
  const uint8_t *last = self->run->zones.me.bytes + 28;
  return ((size_t)last[0] << 16 | (size_t)last[1] << 8 | last[2]) % in == 0;
}

/* In a wide swarm nobody reads it. */
static uint64_t comes(const hv_progress *self, const hv_progress_own *own) {
  return hv_zones_is_wide(&self->run->zones) ? 0 : own->comes;
}

/* When something is to be said, with what the program says now; HV_PROGRESS_NEVER: nothing to say. */
static uint64_t say_due(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  uint64_t due;
  if (!own->any && (self->published.any || self->published.comes != comes(self, own))) /* who cannot be told of it reads it */
    return now_us > self->again_us ? now_us : self->again_us;
  if (!own->any && comes(self, own)) {
    due = self->published_us + ms(self->terms.max_refresh_ms) / SAID_WHILE_COMING;
    return due > self->again_us ? due : self->again_us;
  }
  if (!own->any || !has_record(self))
    return HV_PROGRESS_NEVER;
  if (!self->published.any && hv_zones_is_wide(&self->run->zones))
    due = self->opened_us + (hv_zones_heard(&self->run->zones) ? FIRST_WIDE_US : FIRST_ALONE_US);
  else if (!self->published.any || (!self->covered && self->published.epoch != own->epoch))
    due = now_us;
  else if (self->covered)
    due = self->published_us + ms(self->terms.expiration_ms) / SAID_IN_A_LIFE;
  else if (has_moved(self, own))
    due = self->published_us + ms(self->terms.min_refresh_ms);
  else
    due = self->published_us + ms(self->terms.max_refresh_ms);
  return due > self->again_us ? due : self->again_us;
}

/* Where all are asked one by one: within what time again. The nearer the target, the sooner, so that nobody makes the step by words
 * that are as old as what is left, and waits for the others then. HV_PROGRESS_NEVER: there is no haste. */
static uint64_t haste_us(const hv_progress *self, const hv_progress_own *own, uint64_t now_us) {
  hv_progress_figures figures;
  hv_progress_now(&self->view, own, &self->terms, now_us, &figures);
  if (self->view.wide || !own->any || own->paused || figures.ready || figures.eta_us == HV_PROGRESS_NEVER)
    return HV_PROGRESS_NEVER;
  return figures.eta_us / 2 > HASTE_LEAST_US ? figures.eta_us / 2 : HASTE_LEAST_US;
}

/* Does what is due, and sets the timer for what will be. */
static void plan(hv_progress *self) {
  uint64_t now = progress_clock(self);
  hv_progress_own own = progress_own(self, now);
  uint64_t due = say_due(self, &own, now), round = progress_refresh_us(self, &own, now) / 4;
  if (self->view.wide || round > ROUND_MOST_US) /* in a wide swarm a word has several rounds to go */
    round = self->view.wide ? ROUND_WIDE_US : ROUND_MOST_US;
  uint64_t haste = haste_us(self, &own, now);
  round = round > ROUND_LEAST_US ? round : ROUND_LEAST_US;
  hv_zones_pace(&self->run->zones, haste < round ? haste : round);
  if (due <= now && !self->publishing) {
    hv_report report = own.any ? progress_report(self, &own, now) : (hv_report){.gone = 1, .comes = comes(self, &own)};
    self->to_publish = own;
    self->to_publish.comes = report.comes;
    self->published_us = now;
    if (!progress_publish(self, &report))
      self->again_us = now + ms(AGAIN_MS);
    due = HV_PROGRESS_NEVER;
  }
  if (!self->asking && !needs_no_record(self) && self->ask_us > next_ask(self, &own, now) && self->asked_us)
    self->ask_us = next_ask(self, &own, now);
  if (self->covered && self->view.wide && self->asked_us && self->ask_us < next_ask(self, &own, now))
    self->ask_us = next_ask(self, &own, now); /* zones have taken over meanwhile */
  if (self->ask_us <= now && !self->asking)
    progress_search(self, &own);
  uint64_t next = now + ms(self->terms.min_refresh_ms);
  if (!self->asking && self->ask_us < next)
    next = self->ask_us;
  if (!self->publishing && due < next)
    next = due;
  if (next > now && haste < next - now)
    next = now + haste;
  wake_at(self, next > now ? next : now + ms(AGAIN_MS) / 10);
}

static void progress_tick(hv_timer *timer, const hv_event *event) {
  hv_progress *self = timer->owner;
  hv_progress_own own = progress_own(self, event->now_us);
  progress_count(self, &own, event->now_us);
  plan(self);
}

/* ---- zones ---- */

static int has_left(void *arg, const hv_peer_id *id) {
  const hv_peers *peers = ((const hv_progress_run *)arg)->registry->peers;
  return peers && hv_peers_has_left(peers, id);
}

static void something_heard(void *arg) {
  hv_progress_run *run = arg;
  for (hv_progress *at = run->registry->trackers; at; at = at->next) {
    uint64_t now = progress_clock(at);
    if (at->run != run || at->closing || now - at->view.at_us < COUNT_LEAST_US)
      continue;
    hv_progress_own own = progress_own(at, now);
    progress_count(at, &own, now);
  }
}

static hv_progress_run *run_of(hv_progress_registry *registry, uint32_t id) {
  hv_progress_run *run = registry->runs;
  while (run && run->id != id)
    run = run->next;
  return run;
}

void hv_progress_asked(hv_progress_registry *registry, const hv_event *event) {
  hv_progress_run *run = run_of(registry, event->msg->u.progress.run);
  hv_msg absent = {.kind = HV_MSG_PROGRESS_TOLD, .u.progress_told.absent = 1};
  if (run && run->open)
    hv_zones_asked(&run->zones, event);
  else
    registry->env->reply(registry->env, event->request, &absent);
}

static void run_without(hv_progress_run *run, const hv_peer_id *id, int is_there) {
  hv_zones_gone(&run->zones, id, is_there);
  for (hv_progress *at = run->registry->trackers; at; at = at->next) {
    uint64_t now = progress_clock(at);
    if (at->run != run || at->closing)
      continue;
    progress_forget(at, id, now);
    hv_progress_own own = progress_own(at, now);
    progress_count(at, &own, now);
    plan(at);
  }
}

void hv_progress_gone(hv_progress_registry *registry, const hv_peer_id *id) {
  for (hv_progress_run *run = registry->runs; run; run = run->next)
    run_without(run, id, 0);
  for (hv_progress *at = registry->trackers; at; at = at->next)
    hv_dht_end_of(registry->dht, hv_span_of(at->key, at->key_size), id);
}

void hv_progress_departed(hv_progress_registry *registry, const hv_peer_id *id, uint32_t run_id) {
  hv_progress_run *run = run_of(registry, run_id);
  if (run)
    run_without(run, id, 1);
}

/* The last tracker of this run here ends. */
static void tell_departure(const hv_progress_run *run) {
  hv_msg msg = {.kind = HV_MSG_DEPART, .u.depart.run = run->id};
  hv_target to[HV_ZONES_MEMBERS];
  if (!run->registry->notices)
    return;
  for (size_t i = hv_zones_heard_from(&run->zones, to); i-- > 0;)
    hv_notice_send(run->registry->notices, &to[i], &msg);
}

static hv_progress_run *join_run(hv_progress_registry *registry, hv_span key, const hv_progress_terms *terms, int client_mode) {
  hv_hash hash;
  registry->env->sha256(registry->env, key, &hash);
  uint32_t id = (uint32_t)hv_le_get(hash.bytes, 4);
  hv_progress_run *run = run_of(registry, id);
  if (!run) {
    run = hv_mem_zalloc(registry->env->mem, sizeof *run);
    if (!run)
      return NULL;
    *run = (hv_progress_run){.next = registry->runs, .registry = registry, .id = id};
    registry->runs = run;
    hv_zones_config zones = {.run = id,
                             .target = terms->target,
                             .fast = terms->fast,
                             .client_mode = client_mode,
                             .own = progress_own_sum,
                             .moved = something_heard,
                             .has_left = has_left,
                             .arg = run};
    hv_zones_init(&run->zones, registry->env, registry->dht, &zones);
  }
  run->n++;
  run->open++;
  return run;
}

/* ---- life ---- */

void hv_progress_registry_init(hv_progress_registry *registry, hv_env *env, hv_dht *dht, const hv_peer_id *me) {
  *registry = (hv_progress_registry){.env = env, .dht = dht, .me = *me};
}

void hv_progress_registry_fini(hv_progress_registry *registry) {
  registry->ended = 1;
  while (registry->trackers) {
    hv_progress *self = registry->trackers;
    void (*ended)(void *) = self->closing ? NULL : self->config.ended;
    void *arg = self->config.arg;
    self->closing = 1;
    if (self->asking)
      hv_dht_cancel(registry->dht, &self->get);
    if (self->publishing)
      hv_dht_cancel(registry->dht, &self->store); /* its end frees the tracker */
    else
      free_tracker(self);
    if (ended)
      ended(arg);
  }
}

static int free_instance(const hv_progress_registry *registry, hv_span prefix) {
  for (int n = 0; n < HV_TALLY_INSTANCES_MAX; n++) {
    int used = 0;
    for (const hv_progress *at = registry->trackers; at; at = at->next)
      used |= at->instance == n && hv_span_equal(at->config.prefix, prefix);
    if (!used)
      return n;
  }
  return -1;
}

static hv_status progress_check_term(const hv_progress_registry *registry, const hv_progress_config *config,
                                     hv_progress_terms *terms, int *instance, hv_error *err) {
  hv_status status = hv_progress_check(terms, err);
  if (status != HV_OK)
    return status;
  if (registry->ended)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (config->prefix.size == 0 || config->prefix.size > HV_PROGRESS_PREFIX_MAX)
    return hv_fail(err, HV_INVALID, "cannot follow the run: its prefix must have 1 to %d bytes, not %zu; give another run_id",
                   HV_PROGRESS_PREFIX_MAX, config->prefix.size);
  *instance = free_instance(registry, config->prefix);
  return *instance >= 0 ? HV_OK
                        : hv_fail(err, HV_BUDGET,
                                  "cannot make a progress tracker: this node has %d of this run already; use another node for more",
                                  HV_TALLY_INSTANCES_MAX);
}

hv_status hv_progress_open(hv_progress_registry *registry, const hv_progress_config *config, hv_progress **out, hv_error *err) {
  static const char after[] = "_progress";
  char who[HV_PEER_TEXT_MAX];
  hv_progress_terms terms = config->terms;
  int instance = 0;
  hv_status status = progress_check_term(registry, config, &terms, &instance, err);
  if (status != HV_OK)
    return status;
  size_t key_size = config->prefix.size + sizeof after - 1;
  hv_progress *self = hv_mem_zalloc(registry->env->mem, sizeof *self + key_size + 1);
  if (!self)
    return hv_fail(err, HV_NOMEM, "cannot make a progress tracker: no memory; raise the memory limit");
  memcpy(self->key, config->prefix.data, config->prefix.size);
  memcpy(self->key + config->prefix.size, after, sizeof after);
  self->run = join_run(registry, hv_span_of(self->key, key_size), &terms, config->client_mode);
  if (!self->run) {
    hv_mem_free(self);
    return hv_fail(err, HV_NOMEM, "cannot make a progress tracker: no memory; raise the memory limit");
  }
  self->key_size = key_size;
  self->registry = registry;
  self->config = *config;
  self->config.prefix = hv_span_of(self->key, config->prefix.size);
  self->terms = terms;
  self->instance = (uint8_t)instance;
  snprintf(self->subkey, sizeof self->subkey, "%d[owner:%s]", instance, hv_peer_print(&registry->me, who));
  self->timer = (hv_timer){.fire = progress_tick, .owner = self};
  self->next = registry->trackers;
  registry->trackers = self;
  self->view.at_us = self->opened_us = progress_clock(self);
  wake_at(self, 0);
  *out = self;
  return HV_OK;
}

void hv_progress_wake(hv_progress *self, int ask_now) {
  uint64_t now = progress_clock(self), due = now + (ask_now ? 0 : ms(self->terms.min_refresh_ms));
  if (ask_now || !self->covered)
    self->ask_us = due < self->ask_us ? due : self->ask_us;
  hv_progress_own own = progress_own(self, now);
  if (self->was_any && !own.any && self->run->open == 1)
    tell_departure(self->run);
  self->was_any = own.any;
  if (ask_now)
    hv_zones_hurry(&self->run->zones);
  progress_count(self, &own, now);
  plan(self);
}

void hv_progress_close(hv_progress *self) {
  hv_report gone = {.gone = 1};
  self->closing = 1;
  if (--self->run->open == 0)
    tell_departure(self->run);
  self->registry->env->timer_clear(self->registry->env, &self->timer);
  if (self->asking)
    hv_dht_cancel(self->registry->dht, &self->get);
  if (self->publishing) {
    self->closing = 0; /* so that its end does not free it yet */
    hv_dht_cancel(self->registry->dht, &self->store);
    self->closing = 1;
  }
  if (self->published_us == 0 || !progress_publish(self, &gone))
    free_tracker(self);
}

const hv_progress_view *hv_progress_look(const hv_progress *self) {
  return &self->view;
}
