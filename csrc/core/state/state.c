#include "core/state/state.h"

#include "core/peers/contact.h"
#include "core/state/demand.h"
#include "core/state/load.h"
#include "core/state/upload.h"
#include "core/state/want.h"

#include <math.h>
#include <string.h>

enum {
  UPLOADS_MAX = 16,
  UPLOADS_PEER_MAX = 2,
  REFUSALS_MAX = 64,
  JUDGED_US = 20000000, /* an upload's pace is not looked at before: longer than a loader waits for its first chunk */
  DECLARE_MS = 30000,
  AGAIN_MS = 3000
};
static const char suffix[] = ".state";

/* The offer of one prefix. */
typedef struct hv_state_entry {
  struct hv_state_entry *next;
  hv_state *state;
  hv_snapshot *offered;       /* NULL: nothing */
  hv_snapshot *next_snapshot; /* being hashed, for `offer` */
  hv_state_offer *offer;
  hv_state_offer *announcing; /* the offer whose first announcement is under way */
  float priority, next_priority;
  uint8_t lineage[HV_BALLOT_LINEAGE], next_lineage[HV_BALLOT_LINEAGE];
  uint32_t declare_ms;
  hv_timer declare;
  hv_dht_op op;
  hv_dht_item item;
  int storing, dirty; /* a store is under way; it is outdated already */
  size_t prefix_size;
  uint8_t value[HV_BALLOT_BYTES_MAX];
  uint8_t key[HV_STATE_PREFIX_MAX + sizeof suffix];
} entry;

/* A loader, in the state's list. */
typedef struct loading {
  struct loading *next;
  hv_loader *loader;
} loading;

/* A search for donors, in the state's list. */
typedef struct wanting {
  struct wanting *next;
  hv_wanting *search;
} wanting;

struct hv_state {
  hv_env *env;
  hv_state_config config;
  hv_dht *dht;
  entry *entries;
  size_t n_entries;
  hv_upload *uploads;
  loading *loads;
  hv_loader_memory memory;
  hv_demands demands;
  wanting *wants;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  size_t addrs_size;
  char subkey[HV_BALLOT_SUBKEY_MAX];
  size_t subkey_size;
  int started, stopping;
};

/* ---- announcing ---- */

static void state_announce(entry *e);

static void free_entry(entry *e) {
  hv_state *s = e->state;
  entry **at = &s->entries;
  while (*at != e)
    at = &(*at)->next;
  *at = e->next;
  s->n_entries--;
  s->env->timer_clear(s->env, &e->declare);
  hv_snapshot_release(e->offered);
  hv_mem_free(e);
}

static int is_done_with(const entry *e) {
  return !e->offered && !e->next_snapshot && !e->storing && !e->dirty;
}

static void end_telling(entry *e, hv_status status, const char *text) {
  hv_state_offer *offer = e->announcing;
  if (!offer)
    return;
  e->announcing = NULL;
  offer->entry = NULL;
  offer->done(offer, status, text);
}

static void state_announced(hv_dht_op *op, hv_status status, const char *text) {
  entry *e = op->owner;
  hv_state *s = e->state;
  e->storing = 0;
  if (s->stopping)
    return;
  if (status != HV_OK)
    hv_env_log(s->env, HV_LOG_DEBUG, "state", "state_not_declared", "could not announce the state, will retry: %s", text);
  uint64_t ms = e->dirty ? 0 : status != HV_OK && e->declare_ms > AGAIN_MS ? AGAIN_MS : e->declare_ms;
  if (!e->offered) /* the withdrawal was said, or nobody could hear it: on to what is next, or the end */
    ms = 0;
  s->env->timer_set(s->env, &e->declare, ms * 1000);
  if (!e->dirty)
    end_telling(e, HV_OK, "");
}

static void state_announce(entry *e) {
  hv_state *s = e->state;
  if (e->storing || !s->started || s->stopping) {
    e->dirty = 1;
    return;
  }
  size_t size = 0;
  if (e->offered) {
    hv_ballot ballot = {.epoch = e->offered->manifest.epoch,
                        .digest = e->offered->digest,
                        .size = e->offered->manifest.image,
                        .priority = e->priority,
                        .addrs = hv_span_of(s->addrs, s->addrs_size)};
    memcpy(ballot.lineage, e->lineage, sizeof ballot.lineage);
    size = hv_ballot_write(&ballot, e->value);
  }
  e->dirty = 0;
  e->item = (hv_dht_item){.subkey = hv_span_of(s->subkey, s->subkey_size),
                          .value = hv_span_of(e->value, size),
                          .has_subkey = 1,
                          .ttl_ms = (uint64_t)e->declare_ms * 5 / 2};
  e->op = (hv_dht_op){.done = state_announced,
                      .owner = e,
                      .key = hv_span_of(e->key, e->prefix_size + sizeof suffix - 1),
                      .items = &e->item,
                      .n_items = 1};
  e->storing = 1;
  hv_status status = hv_dht_store(s->dht, &e->op, NULL);
  if (status != HV_OK)
    state_announced(&e->op, status, hv_status_text(status));
}

static void declare(hv_timer *timer, const hv_event *event) {
  entry *e = timer->owner;
  (void)event;
  if (is_done_with(e))
    free_entry(e);
  else if (e->offered || e->dirty)
    state_announce(e);
}

/* ---- offers ---- */

static entry *state_find(hv_state *s, hv_span prefix) {
  entry *e = s->entries;
  while (e && !(e->prefix_size == prefix.size && memcmp(e->key, prefix.data, prefix.size) == 0))
    e = e->next;
  return e;
}

static entry *state_enter(hv_state *s, hv_span prefix) {
  entry *e = s->n_entries < HV_STATE_OFFERS_MAX ? hv_mem_zalloc(s->env->mem, sizeof *e) : NULL;
  if (!e)
    return NULL;
  e->state = s;
  e->declare = (hv_timer){.fire = declare, .owner = e};
  e->prefix_size = prefix.size;
  memcpy(e->key, prefix.data, prefix.size);
  memcpy(e->key + prefix.size, suffix, sizeof suffix - 1);
  e->next = s->entries;
  s->entries = e;
  s->n_entries++;
  return e;
}

/* Withdraws the snapshot on offer; its downloads may finish, within limits. */
static void retire(entry *e) {
  if (e->offered)
    e->offered->retired_us = e->state->env->now_us(e->state->env) + 1;
  hv_snapshot_release(e->offered);
  e->offered = NULL;
}

/* Drops the snapshot that is being hashed. */
static void drop_coming(entry *e, hv_status status, const char *text) {
  hv_state_offer *offer = e->offer;
  if (!e->next_snapshot)
    return;
  hv_snapshot_stop(e->next_snapshot);
  hv_snapshot_release(e->next_snapshot);
  e->next_snapshot = NULL;
  e->offer = NULL;
  offer->entry = NULL;
  offer->done(offer, status, text);
}

static void hashed(void *arg, hv_status status) {
  entry *e = arg;
  hv_state_offer *offer = e->offer;
  hv_snapshot *snapshot = e->next_snapshot;
  e->next_snapshot = NULL;
  e->offer = NULL;
  if (status != HV_OK) {
    hv_snapshot_release(snapshot);
    offer->entry = NULL;
    if (is_done_with(e))
      e->state->env->timer_set(e->state->env, &e->declare, 0); /* to go away, in a step of its own */
    offer->done(offer, status, "cannot offer the state: its digests could not be computed");
    return;
  }
  end_telling(e, HV_CANCELLED, "a newer snapshot replaced it");
  retire(e);
  e->offered = snapshot;
  e->priority = e->next_priority;
  memcpy(e->lineage, e->next_lineage, sizeof e->lineage);
  offer->digest = snapshot->digest;
  e->announcing = offer;
  state_announce(e);
}

static hv_status check_offer(const hv_state *s, const hv_state_offer *offer, hv_error *err) {
  if (s->stopping)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (offer->prefix.size == 0 || offer->prefix.size > HV_STATE_PREFIX_MAX)
    return hv_fail(err, offer->prefix.size ? HV_TOO_LARGE : HV_INVALID, "a prefix must have 1 to %d bytes, not %zu",
                   HV_STATE_PREFIX_MAX, offer->prefix.size);
  if (!isfinite(offer->priority))
    return hv_fail(err, HV_INVALID, "the priority of a state must be a finite number");
  return HV_OK;
}

hv_status hv_state_offer_start(hv_state *s, hv_state_offer *offer, hv_error *err) {
  hv_snapshot *snapshot;
  hv_status status = check_offer(s, offer, err);
  if (status != HV_OK)
    return status;
  status = hv_snapshot_new(s->env, offer->bytes, offer->parts, s->config.chunk_bytes, offer->metadata, &snapshot, err);
  if (status != HV_OK)
    return status;
  entry *e = state_find(s, offer->prefix);
  int full = !e && s->n_entries >= HV_STATE_OFFERS_MAX, is_new = !e;
  if (!e)
    e = state_enter(s, offer->prefix);
  snapshot->manifest.epoch = offer->epoch;
  snapshot->manifest.state_hash = offer->state_hash;
  s->env->sha256(s->env, offer->prefix, &snapshot->prefix_hash);
  if (!e || hv_snapshot_hash(snapshot, hashed, e) != HV_OK) {
    hv_snapshot_release(snapshot);
    if (e && is_new)
      free_entry(e);
    return full ? hv_fail(err, HV_TOO_LARGE, "cannot offer the state: this node already offers states of %d prefixes; withdraw one",
                          HV_STATE_OFFERS_MAX)
                : hv_fail(err, HV_NOMEM, "cannot offer the state: no memory; raise the memory limit");
  }
  drop_coming(e, HV_CANCELLED, "a newer snapshot replaced it");
  e->next_snapshot = snapshot;
  e->next_priority = offer->priority;
  memcpy(e->next_lineage, offer->lineage, sizeof e->next_lineage);
  e->declare_ms = offer->declare_ms ? offer->declare_ms : s->config.declare_ms;
  e->offer = offer;
  offer->entry = e;
  return HV_OK;
}

/* All downloads of this prefix, of whatever snapshot. 1: there were some. */
static int break_uploads(hv_state *s, hv_span prefix) {
  hv_hash place;
  int any = 0;
  s->env->sha256(s->env, prefix, &place);
  for (hv_upload *u = s->uploads; u; u = u->next)
    if (u->snapshot && memcmp(&u->snapshot->prefix_hash, &place, sizeof place) == 0) {
      hv_upload_cancel(u);
      any = 1;
    }
  return any;
}

hv_status hv_state_withdraw(hv_state *s, hv_span prefix, int at_once) {
  entry *e = state_find(s, prefix);
  int broken = at_once && break_uploads(s, prefix);
  if (!e || (!e->offered && !e->next_snapshot))
    return broken ? HV_OK : HV_NOT_FOUND;
  if (e->offered) {
    retire(e);
    state_announce(e);
  } else
    s->env->timer_set(s->env, &e->declare, 0); /* to go away, in a step of its own */
  end_telling(e, HV_CANCELLED, "the offer was withdrawn");
  drop_coming(e, HV_CANCELLED, "the offer was withdrawn");
  return HV_OK;
}

hv_status hv_state_set_priority(hv_state *s, hv_span prefix, float priority) {
  entry *e = state_find(s, prefix);
  if (!e || (!e->offered && !e->next_snapshot))
    return HV_NOT_FOUND;
  if (!isfinite(priority))
    return HV_INVALID;
  int changed = e->offered && priority != e->priority;
  e->priority = e->next_priority = priority;
  if (changed)
    state_announce(e);
  return HV_OK;
}

/* ---- serving ---- */

static void upload_over(void *arg, hv_upload *u) {
  (void)arg;
  *u->link = u->next;
  if (u->next)
    u->next->link = u->link;
  hv_upload_free(u);
}

void hv_state_gone(hv_state *s, const hv_peer_id *id) {
  for (entry *e = s->entries; e; e = e->next)
    hv_dht_end_of(s->dht, hv_span_of(e->key, e->prefix_size + sizeof suffix - 1), id);
}

/* Offered here, or still being downloaded by somebody who is not being broken off. */
static hv_snapshot *snapshot_of(hv_state *s, const hv_hash *digest) {
  for (entry *e = s->entries; e; e = e->next)
    if (e->offered && memcmp(&e->offered->digest, digest, sizeof *digest) == 0)
      return e->offered;
  for (hv_upload *u = s->uploads; u; u = u->next)
    if (u->snapshot && !u->cancelled && memcmp(&u->snapshot->digest, digest, sizeof *digest) == 0)
      return u->snapshot;
  return NULL;
}

/* Breaks off the slowest upload once all places are taken, unless it is new or fast enough. Its joiner may return: honest joiners
 * take turns so, and one that only holds a place loses it. True: there is a place. */
static int make_way(hv_state *s) {
  uint64_t now = s->env->now_us(s->env), least = HV_UPLOAD_LEAST;
  hv_upload *slowest = NULL;
  for (hv_upload *u = s->uploads; u; u = u->next)
    if (u->snapshot && !u->cancelled && now - u->began_us >= JUDGED_US && hv_upload_pace(u) < least) {
      least = hv_upload_pace(u);
      slowest = u;
    }
  if (slowest)
    hv_upload_cancel(slowest);
  return slowest != NULL;
}

void hv_state_opened(hv_state *s, const hv_event *event) {
  size_t n = 0, of_peer = 0, refused = 0;
  if (s->stopping)
    return;
  for (hv_upload *u = s->uploads; u; u = u->next) {
    n += u->snapshot && !u->cancelled;
    refused += u->snapshot == NULL;
    of_peer += hv_peer_equal(&u->peer, &event->stream->peer);
  }
  hv_snapshot *snapshot = snapshot_of(s, &event->msg->u.state.digest);
  hv_status refusal = snapshot ? HV_BUSY : HV_NOT_FOUND;
  if (of_peer >= UPLOADS_PEER_MAX || (snapshot && n >= UPLOADS_MAX && !make_way(s)))
    snapshot = NULL;
  if (!snapshot && (refused >= REFUSALS_MAX || of_peer >= 2 * UPLOADS_PEER_MAX))
    return;
  hv_upload *u = hv_upload_new(s->env, event->stream, snapshot, refusal, upload_over, s);
  if (!u)
    return;
  u->next = s->uploads;
  u->link = &s->uploads;
  if (u->next)
    u->next->link = &u->next;
  s->uploads = u;
}

size_t hv_state_uploads(const hv_state *s) {
  size_t n = 0;
  for (const hv_upload *u = s->uploads; u; u = u->next)
    n += u->snapshot != NULL;
  return n;
}

/* ---- loading ---- */

static void load_over(void *arg, hv_loader *loader) {
  hv_state *s = arg;
  loading **at = &s->loads, *l;
  while ((*at)->loader != loader)
    at = &(*at)->next;
  l = *at;
  *at = l->next;
  hv_mem_free(l);
  hv_loader_free(loader);
}

hv_status hv_state_load_start(hv_state *s, hv_state_load *load, hv_error *err) {
  if (s->stopping)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (load->prefix.size == 0 || load->prefix.size > HV_STATE_PREFIX_MAX)
    return hv_fail(err, load->prefix.size ? HV_TOO_LARGE : HV_INVALID, "a prefix must have 1 to %d bytes, not %zu",
                   HV_STATE_PREFIX_MAX, load->prefix.size);
  loading *l = hv_mem_zalloc(s->env->mem, sizeof *l);
  if (!l)
    return hv_fail(err, HV_NOMEM, "cannot load the state: no memory; raise the memory limit");
  hv_status status = hv_loader_new(s->env, &s->config, s->dht, load, &s->memory, load_over, s, &l->loader, err);
  if (status != HV_OK) {
    hv_mem_free(l);
    return status;
  }
  l->next = s->loads;
  s->loads = l;
  return HV_OK;
}

hv_status hv_state_load_look(const hv_state *s, hv_span prefix, hv_state_loading *out) {
  for (const loading *l = s->loads; l; l = l->next)
    if (hv_loader_is_of(l->loader, prefix)) {
      hv_loader_look(l->loader, out);
      return HV_OK;
    }
  return HV_NOT_FOUND;
}

void hv_state_load_cancel(hv_state *s, hv_state_load *load) {
  (void)s;
  if (load->loader)
    hv_loader_cancel(load->loader);
}

void hv_state_load_progress(const hv_state_load *load, uint64_t *come, uint64_t *all) {
  *come = *all = 0;
  if (load->loader)
    hv_loader_progress(load->loader, come, all);
}

/* ---- states on demand ---- */

hv_status hv_state_wait_start(hv_state *s, hv_state_wait *wait, hv_error *err) {
  return hv_demands_wait(&s->demands, wait, err);
}

void hv_state_wait_end(hv_state *s, hv_span prefix) {
  hv_demands_end(&s->demands, prefix);
}

void hv_state_asked(hv_state *s, const hv_event *event) {
  hv_demands_asked(&s->demands, event);
}

static void want_over(void *arg, hv_wanting *search) {
  hv_state *s = arg;
  wanting **at = &s->wants, *w;
  while ((*at)->search != search)
    at = &(*at)->next;
  w = *at;
  *at = w->next;
  hv_mem_free(w);
  hv_wanting_free(search);
}

hv_status hv_state_want_start(hv_state *s, hv_state_want *want, hv_error *err) {
  if (s->stopping)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (want->prefix.size == 0 || want->prefix.size > HV_STATE_PREFIX_MAX)
    return hv_fail(err, want->prefix.size ? HV_TOO_LARGE : HV_INVALID, "a prefix must have 1 to %d bytes, not %zu",
                   HV_STATE_PREFIX_MAX, want->prefix.size);
  wanting *w = hv_mem_zalloc(s->env->mem, sizeof *w);
  if (!w)
    return hv_fail(err, HV_NOMEM, "cannot ask for a state: no memory; raise the memory limit");
  hv_status status = hv_wanting_new(s->env, &s->config.me, s->dht, want, want_over, s, &w->search, err);
  if (status != HV_OK) {
    hv_mem_free(w);
    return status;
  }
  w->next = s->wants;
  s->wants = w;
  return HV_OK;
}

void hv_state_want_cancel(hv_state *s, hv_state_want *want) {
  (void)s;
  if (want->wanting)
    hv_wanting_cancel(want->wanting);
}

/* ---- life ---- */

static uint32_t or_else(uint32_t given, uint32_t usual) {
  return given ? given : usual;
}

hv_status hv_state_new(hv_env *env, const hv_state_config *config, hv_dht *dht, hv_state **out) {
  hv_state *s = hv_mem_zalloc(env->mem, sizeof *s);
  if (!s)
    return HV_NOMEM;
  s->env = env;
  s->config = *config;
  s->config.declare_ms = or_else(config->declare_ms, DECLARE_MS);
  s->dht = dht;
  s->subkey_size = hv_ballot_subkey(&config->me, s->subkey);
  hv_demands_init(&s->demands, env, dht, &s->config);
  *out = s;
  return HV_OK;
}

void hv_state_start(hv_state *s, const hv_addr *addrs, size_t n_addrs) {
  if (s->stopping)
    return;
  s->addrs_size = s->config.client_mode ? 0 : hv_contact_pack(addrs, n_addrs, s->addrs);
  s->started = 1;
  hv_demands_start(&s->demands, hv_span_of(s->addrs, s->addrs_size));
  for (entry *e = s->entries; e; e = e->next)
    if (e->storing)
      e->dirty |= e->offered != NULL; /* announced again when this announcement is over */
    else if (e->offered || e->dirty)
      s->env->timer_set(s->env, &e->declare, 0);
}

void hv_state_stop(hv_state *s) {
  s->stopping = 1;
  for (entry *e = s->entries; e; e = e->next) {
    s->env->timer_clear(s->env, &e->declare);
    end_telling(e, HV_CANCELLED, "the node was shut down");
    drop_coming(e, HV_CANCELLED, "the node was shut down");
    hv_snapshot_release(e->offered); /* its memory goes back when uploads have ended */
    e->offered = NULL;
  }
  for (hv_upload *u = s->uploads; u; u = u->next)
    hv_upload_cancel(u);
  for (loading *l = s->loads; l; l = l->next)
    hv_loader_cancel(l->loader);
  for (wanting *w = s->wants; w; w = w->next)
    hv_wanting_cancel(w->search);
  hv_demands_stop(&s->demands);
}

void hv_state_free(hv_state *s) {
  if (!s)
    return;
  s->stopping = 1;
  for (entry *e; (e = s->entries);) {
    if (e->next_snapshot)
      hv_snapshot_abandon(e->next_snapshot);
    end_telling(e, HV_CLOSED, "the node has ended");
    drop_coming(e, HV_CLOSED, "the node has ended");
    if (e->storing)
      hv_dht_cancel(s->dht, &e->op);
    free_entry(e);
  }
  while (s->uploads)
    upload_over(s, s->uploads);
  for (loading *l; (l = s->loads); hv_mem_free(l)) {
    s->loads = l->next;
    hv_loader_free(l->loader);
  }
  for (wanting *w; (w = s->wants); hv_mem_free(w)) {
    s->wants = w->next;
    hv_wanting_free(w->search);
  }
  hv_demands_fini(&s->demands);
  hv_mem_free(s);
}
