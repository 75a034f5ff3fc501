#include "core/match/roster.h"

#include "core/peers/contact.h"
#include "core/peers/spoken.h"
#include "core/peers/standing.h"
#include "core/util/fold.h"
#include "core/util/sort.h"

#include <stdio.h>
#include <string.h>

enum {
  DECLARED_MS = 60000,
  MISSED_MOST = 2,      /* a peer that missed so many groups is not waited for, until it has kept step as often */
  CATCH_UP_MS = 1500,   /* a peer that is behind, and has not reported it, may catch up */
  AT_FRESH_MS = 3000,   /* age from which the place of a peer that was behind counts for nothing, */
  AT_CLIENT_MS = 15000, /* of a client, which cannot be asked */
  DECLARE_AGAIN_MS = 20000,
  DECLARE_RETRY_MS = 1000, /* doubles */
  WELL_KEPT = 3,           /* nodes that keep a declaration: then it need not be said again soon */
  GOODBYE_MS = 10000,      /* to say it; it holds as long as what it takes back, which somebody may still keep */
  HEARSAY_MS = 15000,
  LOOK_FIRST_MS = 1500,
  LOOK_FRESH_MS = 3000, /* a search this recent is not repeated */
  LOOK_MOST_MS = 15000,
  CROWD_US = 1000000,    /* for so long a count of networks holds */
  AGAIN_FIRST_MS = 2000, /* doubles */
  AGAIN_DOUBLINGS = 4,
  FORMAT = 1,
  GONE = 1 /* flag */
};

/* ---- the order ---- */

hv_rank hv_rank_for(hv_env *env, hv_span key, hv_span epoch) {
  uint8_t text[HV_MATCH_KEY_MAX + HV_MATCH_EPOCH_MAX + 8], *at = text;
  hv_hash hash;
  hv_rank rank;
  memcpy(at, "hv:rank", 7);
  at += 7;
  if (key.size && key.size <= HV_MATCH_KEY_MAX)
    memcpy(at, key.data, key.size), at += key.size;
  *at++ = 0;
  if (epoch.size && epoch.size <= HV_MATCH_EPOCH_MAX)
    memcpy(at, epoch.data, epoch.size), at += epoch.size;
  env->sha256(env, hv_span_of(text, (size_t)(at - text)), &hash);
  for (int i = 0; i < 2; i++)
    rank.salt[i] = hv_le_get(hash.bytes + 8 * i, 8);
  return rank;
}

static uint64_t place_of(const hv_rank *rank, const hv_peer_id *id) {
  uint64_t hash = rank->salt[0];
  for (int w = 0; w < 4; w++)
    hash = hv_fold(hash ^ hv_le_get(id->key + 8 * w, 8), rank->salt[1] | 1);
  return hv_fold(hash, 0x9e3779b97f4a7c15u);
}

int hv_rank_compare(const hv_rank *rank, const hv_peer_id *a, const hv_peer_id *b) {
  uint64_t x = place_of(rank, a), y = place_of(rank, b);
  return x < y ? -1 : x > y ? 1 : hv_peer_compare(a, b);
}

/* ---- the table ---- */

hv_roster_entry *hv_roster_find(hv_roster *roster, const hv_peer_id *id) {
  for (size_t i = 0; i < roster->n; i++)
    if (hv_peer_equal(&roster->entries[i].id, id))
      return &roster->entries[i];
  return NULL;
}

static int upwards(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static int is_trusted(const hv_roster *roster, const hv_peer_id *id) {
  return hv_standing_tier(roster->peers, id) == HV_TIER_TRUSTED;
}

/* How many of these peers are in the network that has most, which is written too; of equal ones the preferred. */
static size_t crowd_of(uint64_t *networks, size_t n, uint64_t preferred, uint64_t *network) {
  size_t most = 0, run = 0;
  hv_sort(networks, n, sizeof *networks, upwards);
  for (size_t i = 0; i < n; i++) {
    run = i && networks[i] == networks[i - 1] ? run + 1 : 1;
    if (run > most || (run == most && networks[i] == preferred)) {
      most = run;
      *network = networks[i];
    }
  }
  return most;
}

/* The entry that makes way in a full table: one whose time is over, else the youngest untrusted one of the network that has most.
 * NULL: that would be the newcomer. */
static hv_roster_entry *makes_way(hv_roster *roster, const hv_peer_id *id, uint64_t newcomer) {
  uint64_t now = roster->env->now_us(roster->env), networks[HV_ROSTER_MAX + 1], network = 0;
  hv_roster_entry *found = NULL, *untrusted[HV_ROSTER_MAX];
  size_t n = 0, near = 1;
  int counts = !is_trusted(roster, id);
  for (size_t i = 0; i < roster->n; i++) {
    if (roster->entries[i].expires_us <= now)
      return &roster->entries[i];
    near += roster->entries[i].network == newcomer && roster->entries[i].untrusted;
  }
  if (counts && near >= roster->crowd && now < roster->crowd_us + CROWD_US)
    return NULL; /* as for those before it */
  for (size_t i = 0; i < roster->n; i++) {
    hv_roster_entry *entry = &roster->entries[i];
    if ((entry->untrusted = !is_trusted(roster, &entry->id))) {
      untrusted[n] = entry;
      networks[n++] = entry->network;
    }
  }
  networks[n] = newcomer;
  roster->crowd = crowd_of(networks, n + (counts != 0), newcomer, &network);
  roster->crowd_us = now;
  if (!n || (counts && network == newcomer))
    return NULL;
  for (size_t i = 0; i < n; i++)
    if (untrusted[i]->network == network && (!found || untrusted[i]->since_us > found->since_us))
      found = untrusted[i];
  return found;
}

/* A place for a newcomer, or NULL. */
static hv_roster_entry *roster_make_room(hv_roster *roster, const hv_peer_id *id, uint64_t network) {
  if (roster->n < roster->room)
    return &roster->entries[roster->n++];
  if (roster->room < HV_ROSTER_MAX) {
    size_t room = roster->room ? 2 * roster->room : 16;
    hv_roster_entry *entries = roster->entries ? hv_mem_resize(roster->env->mem, roster->entries, room * sizeof *entries)
                                               : hv_mem_array(roster->env->mem, room, sizeof *entries);
    if (!entries)
      return NULL; /* it will be heard of again */
    roster->entries = entries;
    roster->room = room;
    return &roster->entries[roster->n++];
  }
  return makes_way(roster, id, network);
}

/* The entry of a peer, made if need be. NULL: it is this node itself, or there is no room. */
static hv_roster_entry *entry_of(hv_roster *roster, const hv_peer_id *id, int *is_new) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  *is_new = !entry;
  if (entry || hv_peer_equal(id, &roster->config.me) || !hv_peer_is_known(id))
    return entry;
  const hv_peers_entry *peer = hv_peers_find(roster->peers, id);
  uint64_t network = peer ? peer->network : 0;
  entry = roster_make_room(roster, id, network);
  if (entry)
    *entry = (hv_roster_entry){
        .id = *id, .network = network, .since_us = roster->env->now_us(roster->env), .untrusted = !is_trusted(roster, id)};
  return entry;
}

static void set_addrs(hv_roster_entry *entry, hv_span addrs) {
  hv_addr one;
  entry->addrs_size = 0;
  if (addrs.size == 0 || addrs.size > sizeof entry->addrs || hv_contact_unpack(addrs, &one, 1) == 0)
    return;
  memcpy(entry->addrs, addrs.data, addrs.size);
  entry->addrs_size = (uint8_t)addrs.size;
}

static void roster_notify(hv_roster *roster) {
  roster->config.changed(roster->config.arg);
}

static void drop(hv_roster *roster, hv_roster_entry *entry) {
  *entry = roster->entries[--roster->n];
}

static void drop_expired(hv_roster *roster) {
  uint64_t now = roster->env->now_us(roster->env);
  for (size_t i = roster->n; i-- > 0;)
    if (roster->entries[i].expires_us <= now)
      drop(roster, &roster->entries[i]);
}

static void met(hv_roster *roster, const hv_peer_id *id, hv_span addrs, int answers) {
  uint64_t now = roster->env->now_us(roster->env), until = now + DECLARED_MS * 1000ull;
  int is_new;
  hv_roster_entry *entry = hv_peers_has_left(roster->peers, id) ? NULL : entry_of(roster, id, &is_new);
  if (!entry)
    return;
  int news = is_new || entry->failures || entry->gone_us || (answers && entry->retry_us > now);
  set_addrs(entry, addrs);
  entry->expires_us = entry->expires_us > until ? entry->expires_us : until;
  entry->failures = 0;
  entry->gone_us = 0;
  if (answers)
    entry->retry_us = 0;
  entry->heard_us = now;
  entry->met = 1;
  if (news)
    roster_notify(roster);
}

void hv_roster_called(hv_roster *roster, const hv_peer_id *id, hv_span addrs) {
  met(roster, id, addrs, 0);
}

void hv_roster_answered(hv_roster *roster, const hv_peer_id *id, hv_span addrs) {
  met(roster, id, addrs, 1);
}

void hv_roster_heard(hv_roster *roster, const hv_peer_id *id, hv_span addrs) {
  uint64_t until = roster->env->now_us(roster->env) + HEARSAY_MS * 1000ull;
  int is_new;
  hv_roster_entry *entry = entry_of(roster, id, &is_new);
  if (!entry)
    return;
  if (entry->expires_us < until)
    entry->expires_us = until;
  if (!is_new)
    return;
  set_addrs(entry, addrs);
  roster_notify(roster);
}

void hv_roster_redirected(hv_roster *roster, const hv_peer_id *id, hv_span addrs) {
  hv_roster_heard(roster, id, addrs);
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry || !entry->gone_us)
    return;
  set_addrs(entry, addrs); /* of a process that has come back */
  entry->gone_us = 0;
  roster_notify(roster);
}

/* Whether it differs is known anew, since at_us. True: it was known otherwise. */
static int set_stranger(hv_roster *roster, hv_roster_entry *entry, int stranger, uint64_t at_us) {
  char name[HV_PEER_SHORT_MAX];
  entry->schema_us = at_us | 1;
  entry->unsure = 0;
  if (entry->stranger == stranger)
    return 0;
  if (!stranger && entry->asked == 2)
    hv_env_log(roster->env, HV_LOG_INFO, "match", "same_setup",
               "averaging with peer %s again: its setup and tensors are the same now", hv_peer_short(&entry->id, name));
  entry->asked = 0;
  entry->stranger = (uint8_t)stranger;
  return 1;
}

/* The entry of a peer that called, for as long as a declaration lives; NULL: no room. */
static hv_roster_entry *caller(hv_roster *roster, const hv_peer_id *id, uint64_t now) {
  uint64_t until = now + DECLARED_MS * 1000ull;
  int is_new;
  hv_roster_entry *entry = entry_of(roster, id, &is_new);
  if (entry && entry->expires_us < until)
    entry->expires_us = until;
  return entry;
}

void hv_roster_stranger(hv_roster *roster, const hv_peer_id *id) {
  uint64_t now = roster->env->now_us(roster->env);
  hv_roster_entry *entry = caller(roster, id, now);
  if (!entry)
    return;
  entry->schema = (hv_hash){{0}}; /* it did not say which it has */
  set_stranger(roster, entry, 1, now);
  roster_notify(roster);
}

void hv_roster_schema(hv_roster *roster, const hv_peer_id *id, const hv_hash *schema) {
  uint64_t now = roster->env->now_us(roster->env);
  int stranger = memcmp(schema, &roster->config.schema, sizeof *schema) != 0;
  hv_roster_entry *entry = stranger ? caller(roster, id, now) : hv_roster_find(roster, id);
  if (!entry)
    return;
  entry->schema = *schema;
  if (set_stranger(roster, entry, stranger, now))
    roster_notify(roster);
}

/* When that is over, for the n-th time in a row. */
static uint64_t after_pause(const hv_roster *roster, unsigned n) {
  unsigned doublings = n < AGAIN_DOUBLINGS ? n : AGAIN_DOUBLINGS;
  return roster->env->now_us(roster->env) + ((uint64_t)AGAIN_FIRST_MS << doublings) * 1000;
}

void hv_roster_failed(hv_roster *roster, const hv_peer_id *id) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry)
    return;
  entry->retry_us = after_pause(roster, entry->failures++);
  roster_notify(roster);
}

void hv_roster_refused(hv_roster *roster, const hv_peer_id *id) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (entry)
    entry->refused = 1;
  hv_roster_failed(roster, id);
}

void hv_roster_searches(hv_roster *roster) {
  for (size_t i = 0; i < roster->n; i++)
    if (roster->entries[i].refused) {
      roster->entries[i].refused = 0;
      roster->entries[i].retry_us = 0;
    }
}

void hv_roster_gone(hv_roster *roster, const hv_peer_id *id) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry || entry->gone_us)
    return;
  entry->gone_us = roster->env->now_us(roster->env) | 1;
  roster_notify(roster);
}

void hv_roster_add_fault(hv_roster *roster, const hv_peer_id *id) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry)
    return;
  entry->shunned_until_us = after_pause(roster, entry->faults++);
  hv_roster_failed(roster, id);
}

void hv_roster_host_failed(hv_roster *roster, const hv_peer_id *id, uint64_t seek_us) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry)
    return;
  int again = entry->failed_us && entry->failed_us >= seek_us;
  entry->failed_us = roster->env->now_us(roster->env);
  if (again)
    hv_roster_add_fault(roster, id);
  else
    hv_roster_failed(roster, id);
}

void hv_roster_host_served(hv_roster *roster, const hv_peer_id *id) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (entry)
    entry->faults = 0, entry->shunned_until_us = 0;
}

int hv_roster_is_behind(uint64_t at, int seeks, uint64_t there) {
  return at && there && (at + 1 < there || (at < there && seeks));
}

void hv_roster_set_place(hv_roster *roster, const hv_peer_id *id, uint64_t at, int seeks) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry || !at)
    return;
  int news = entry->place != at || entry->is_seeking != seeks || entry->failures;
  entry->had_group &= entry->place == at && !seeks;
  entry->place = at;
  entry->is_seeking = (uint8_t)seeks;
  entry->failures = 0;
  entry->heard_us = entry->place_us = roster->env->now_us(roster->env);
  if (at >= roster->place)
    entry->behind_us = 0;
  else if (!entry->behind_us && hv_roster_is_behind(at, seeks, roster->place))
    entry->behind_us = entry->place_us;
  if (news)
    roster_notify(roster);
}

void hv_roster_set_return(hv_roster *roster, const hv_peer_id *id, uint64_t comes) {
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry || entry->return_place == comes)
    return;
  entry->return_place = comes;
  entry->return_us = comes && roster->place >= comes ? roster->env->now_us(roster->env) : 0;
  roster_notify(roster);
}

/* One that is two behind had no part in the latest group. Strangers are in groups of their own. */
static void counts_missed(hv_roster_entry *entry, uint64_t at) {
  if (entry->stranger) {
    entry->missed = entry->kept = 0;
  } else if (entry->place + 1 < at) {
    entry->missed += entry->missed < MISSED_MOST;
    entry->kept = 0;
  } else if (++entry->kept >= MISSED_MOST) {
    entry->missed = entry->kept = 0;
  }
}

void hv_roster_moved(hv_roster *roster, uint64_t at, int had_group) {
  int is_next = had_group && roster->place && at == roster->place + 1;
  roster->place = at;
  for (size_t i = 0; i < roster->n; i++) {
    hv_roster_entry *entry = &roster->entries[i];
    if (is_next && entry->place)
      counts_missed(entry, at);
    if (entry->return_place && at >= entry->return_place && !entry->return_us)
      entry->return_us = roster->env->now_us(roster->env);
    if (entry->place >= at)
      entry->behind_us = 0;
    else if (!entry->behind_us && entry->addrs_size && hv_roster_is_behind(entry->place, entry->is_seeking, at))
      entry->behind_us = roster->env->now_us(roster->env); /* a client cannot be asked: its own report counts */
  }
}

uint64_t hv_roster_next_given_up(const hv_roster *roster, uint64_t at, uint64_t after_us) {
  uint64_t next = UINT64_MAX;
  for (size_t i = 0; i < roster->n; i++) {
    const hv_roster_entry *entry = &roster->entries[i];
    int is_late = entry->return_place ? entry->return_place == at : hv_roster_is_behind(entry->place, entry->is_seeking, at);
    uint64_t since = entry->return_place ? entry->return_us : entry->behind_us,
             until = since + (entry->return_place ? HV_ROSTER_COMES_MS : CATCH_UP_MS) * 1000ull;
    if (is_late && since && until > after_us && until < next)
      next = until;
  }
  return next;
}

void hv_roster_had(hv_roster *roster, const hv_peer_id *id, uint64_t at) {
  hv_roster_set_place(roster, id, at, 0);
  hv_roster_entry *entry = hv_roster_find(roster, id);
  if (!entry || !at || entry->had_group)
    return;
  entry->had_group = 1;
  roster_notify(roster);
}

void hv_roster_forget_had(hv_roster *roster, uint64_t at) {
  for (size_t i = 0; i < roster->n; i++)
    if (roster->entries[i].place == at)
      roster->entries[i].had_group = 0;
}

/* ---- questions ---- */

static int is_there(const hv_roster *roster, const hv_roster_entry *entry) {
  return !entry->stranger && entry->expires_us > roster->env->now_us(roster->env);
}

/* Its hellos say so, and nothing has been heard of it since. */
static int is_lost(const hv_roster *roster, const hv_roster_entry *entry) {
  const hv_peers_entry *peer = hv_peers_find(roster->peers, &entry->id);
  return peer && peer->state == HV_PEERS_LOST && entry->heard_us <= peer->lost_us;
}

int hv_roster_called_since(hv_roster *roster, const hv_peer_id *id, uint64_t since_us) {
  const hv_roster_entry *entry = hv_roster_find(roster, id);
  return entry && entry->met && entry->heard_us >= since_us;
}

int hv_roster_is_gone(const hv_roster *roster, const hv_roster_entry *entry) {
  return is_there(roster, entry) && !hv_roster_counts(roster, entry);
}

void hv_roster_missed(hv_roster *roster, uint64_t at, uint64_t since_us) {
  for (size_t i = 0; i < roster->n; i++) {
    hv_roster_entry *entry = &roster->entries[i];
    if (entry->addrs_size && entry->heard_us < since_us && hv_roster_may_come(roster, entry, at))
      hv_roster_failed(roster, &entry->id);
  }
}

int hv_roster_counts(const hv_roster *roster, const hv_roster_entry *entry) {
  return is_there(roster, entry) && !entry->failures && !entry->gone_us && !is_lost(roster, entry);
}

int hv_roster_catches_up(const hv_roster *roster, uint64_t behind_us) {
  return !behind_us || roster->env->now_us(roster->env) - behind_us < CATCH_UP_MS * 1000ull;
}

int hv_roster_may_come(const hv_roster *roster, const hv_roster_entry *entry, uint64_t at) {
  uint64_t now = roster->env->now_us(roster->env);
  if (!hv_roster_counts(roster, entry) || entry->unsure)
    return hv_roster_counts(roster, entry);
  if (at && entry->return_place)
    return entry->return_place == at && (!entry->return_us || now - entry->return_us < HV_ROSTER_COMES_MS * 1000ull);
  if (at && (entry->place > at || (entry->missed >= MISSED_MOST && !(entry->place == at && entry->is_seeking))))
    return 0;
  uint64_t fresh_us = (entry->addrs_size ? AT_FRESH_MS : AT_CLIENT_MS) * 1000ull;
  return !hv_roster_is_behind(entry->place, entry->is_seeking, at) || now - entry->place_us >= fresh_us ||
         hv_roster_catches_up(roster, entry->behind_us);
}

int hv_roster_has_passed(const hv_roster *roster, const hv_roster_entry *entry, uint64_t at) {
  return is_there(roster, entry) && !entry->unsure && (entry->place > at || (entry->place == at && entry->had_group));
}

uint64_t hv_roster_furthest(const hv_roster *roster) {
  uint64_t at = 0;
  for (size_t i = 0; i < roster->n; i++)
    if (roster->entries[i].place > at && !roster->entries[i].unsure && hv_roster_counts(roster, &roster->entries[i]))
      at = roster->entries[i].place;
  return at;
}

static int stands_in(hv_span ids, const hv_peer_id *id) {
  for (size_t at = 0; at + sizeof *id <= ids.size; at += sizeof *id)
    if (memcmp(ids.data + at, id->key, sizeof id->key) == 0)
      return 1;
  return 0;
}

static int may_be_asked(const hv_roster *roster, const hv_roster_entry *entry) {
  uint64_t now = roster->env->now_us(roster->env);
  return entry->retry_us <= now && entry->shunned_until_us <= now;
}

/* The version of the protocol that most peers of the roster speak, this node among them. */
static uint32_t version_of_most(const hv_roster *roster) {
  hv_versions all[HV_ROSTER_MAX + 1];
  size_t n = 0;
  all[n++] = hv_spoken_mine(roster->env);
  for (size_t i = 0; i < roster->n && n < HV_ROSTER_MAX; i++)
    if (hv_roster_counts(roster, &roster->entries[i]))
      all[n++] = hv_spoken_of(roster->env, &roster->entries[i].id);
  return hv_versions_of_most(all, n, NULL);
}

/* A host that most could not talk to would part the swarm. */
static int is_understood(const hv_roster *roster, const hv_roster_entry *entry, uint32_t version) {
  hv_versions its = hv_spoken_of(roster->env, &entry->id);
  return hv_versions_has(&its, version);
}

/* Could it host, before that peer? Whether who failed and is lost is there again its hellos find out, which keep nobody waiting. */
static int could_host(const hv_roster *roster, const hv_rank *rank, const hv_roster_entry *entry, const hv_peer_id *before) {
  return entry->addrs_size && !entry->gone_us && is_there(roster, entry) && !(entry->failures && is_lost(roster, entry)) &&
         (!before || hv_rank_compare(rank, &entry->id, before) < 0);
}

hv_roster_entry *hv_roster_first(hv_roster *roster, const hv_rank *rank, const hv_peer_id *before, hv_span avoid) {
  hv_roster_entry *first = NULL;
  uint32_t version = version_of_most(roster);
  for (size_t i = 0; i < roster->n; i++) {
    hv_roster_entry *entry = &roster->entries[i];
    if (is_understood(roster, entry, version) && may_be_asked(roster, entry) &&
        could_host(roster, rank, entry, first ? &first->id : before) && !stands_in(avoid, &entry->id))
      first = entry;
  }
  return first;
}

size_t hv_roster_failing(const hv_roster *roster, const hv_rank *rank, const hv_peer_id *before, hv_peer_id *out, size_t max) {
  size_t n = 0;
  for (size_t i = 0; i < roster->n; i++)
    if (!may_be_asked(roster, &roster->entries[i]) && could_host(roster, rank, &roster->entries[i], before)) {
      if (n < max)
        out[n] = roster->entries[i].id;
      n++;
    }
  return n;
}

hv_status hv_roster_target(const hv_roster *roster, const hv_peer_id *id, hv_span addrs, unsigned try, hv_target *out) {
  hv_addr list[HV_CARD_ADDRS_MAX];
  if (try == 0 && hv_peers_target(roster->peers, id, out) == HV_OK)
    return HV_OK;
  uint8_t kept[HV_CONTACT_ADDRS_MAX];
  size_t size = hv_contact_keep(addrs, hv_standing_source(roster->peers, id), kept);
  size_t n = hv_contact_unpack(hv_span_of(kept, size), list, HV_CARD_ADDRS_MAX);
  if (n == 0)
    return HV_UNREACHABLE;
  *out = (hv_target){*id, list[try % n]};
  return HV_OK;
}

size_t hv_roster_me(const hv_roster *roster, uint8_t out[HV_CONTACT_ADDRS_MAX]) {
  const hv_card *card = roster->config.card;
  return card->client_mode || hv_standing_hidden(roster->peers) ? 0 : hv_contact_pack(card->addrs, card->n_addrs, out);
}

/* ---- declaring: a byte of format, flags, the schema, packed addresses ---- */

static size_t write_value(const hv_roster *roster, uint8_t flags, uint8_t out[HV_ROSTER_VALUE_MAX]) {
  out[0] = FORMAT;
  out[1] = flags;
  memcpy(out + 2, roster->config.schema.bytes, 32);
  return 34 + hv_roster_me(roster, out + 34);
}

static void write_subkey(const hv_peer_id *me, char *out, size_t size) {
  char who[HV_PEER_TEXT_MAX];
  snprintf(out, size, "[owner:%s]", hv_peer_print(me, who));
}

static void declare_later(hv_roster *roster, uint64_t ms) {
  uint32_t r;
  roster->env->random(roster->env, &r, sizeof r);
  roster->env->timer_set(roster->env, &roster->declare_timer, (ms * 3 / 4 + ms / 2 * (r >> 16) / 65536) * 1000);
}

static void declared(hv_dht_op *op, hv_status status, const char *text) {
  hv_roster *roster = op->owner;
  (void)text;
  roster->declared |= status == HV_OK;
  int well = status == HV_OK && op->items->stored >= WELL_KEPT && !roster->config.young;
  if (well)
    roster->declare_ms = DECLARE_AGAIN_MS;
  declare_later(roster, roster->declare_ms);
  roster->declare_ms = 2 * roster->declare_ms < DECLARE_AGAIN_MS ? 2 * roster->declare_ms : DECLARE_AGAIN_MS;
}

static void declare(hv_timer *timer, const hv_event *event) {
  hv_roster *roster = timer->owner;
  (void)event;
  roster->item =
      (hv_dht_item){.subkey = hv_span_of(roster->subkey, strlen(roster->subkey)), .has_subkey = 1, .ttl_ms = DECLARED_MS};
  roster->item.value = hv_span_of(roster->value, write_value(roster, 0, roster->value));
  roster->put = (hv_dht_op){
      .done = declared, .owner = roster, .key = roster->config.key, .items = &roster->item, .n_items = 1, .spots = &roster->spots};
  if (hv_dht_store(roster->dht, &roster->put, NULL) != HV_OK)
    declare_later(roster, DECLARE_RETRY_MS);
}

/* The declaration taken back: it outlives the roster. */
typedef struct farewell {
  hv_dht_op op;
  hv_dht_item item;
  uint8_t value[HV_ROSTER_VALUE_MAX];
  char subkey[HV_PEER_TEXT_MAX + 16];
  uint8_t key[];
} farewell;

static void roster_declared(hv_dht_op *op, hv_status status, const char *text) {
  (void)status, (void)text;
  hv_mem_free(op->owner);
}

static void say_goodbye(const hv_roster *roster) {
  farewell *f = hv_mem_zalloc(roster->env->mem, sizeof *f + roster->config.key.size);
  if (!f)
    return; /* it ends by itself */
  memcpy(f->key, roster->config.key.data, roster->config.key.size);
  write_subkey(&roster->config.me, f->subkey, sizeof f->subkey);
  f->item = (hv_dht_item){.subkey = hv_span_of(f->subkey, strlen(f->subkey)), .has_subkey = 1, .ttl_ms = DECLARED_MS};
  f->item.value = hv_span_of(f->value, write_value(roster, GONE, f->value));
  f->op = (hv_dht_op){.done = roster_declared,
                      .owner = f,
                      .key = hv_span_of(f->key, roster->config.key.size),
                      .items = &f->item,
                      .n_items = 1,
                      .timeout_ms = GOODBYE_MS};
  if (hv_dht_store(roster->dht, &f->op, NULL) != HV_OK)
    hv_mem_free(f);
}

/* ---- looking ---- */

/* How much longer it holds: it may have been written for longer than a declaration lives. */
static uint64_t left_of(const hv_record *record) {
  uint64_t kept_ms = record->lease_ms > record->ttl_ms ? record->lease_ms - record->ttl_ms : 0,
           left_ms = kept_ms < DECLARED_MS ? DECLARED_MS - kept_ms : 0;
  return record->ttl_ms < left_ms ? record->ttl_ms : left_ms;
}

/* Takes a declaration in. True: it changes something. */
static int read_record(hv_roster *roster, const hv_record *record) {
  hv_span value = record->value;
  if (!hv_peer_is_known(&record->signer) || value.size < 34 || value.data[0] != FORMAT)
    return 0;
  uint64_t now = roster->env->now_us(roster->env), until = now + left_of(record) * 1000ull;
  int is_new;
  hv_roster_entry *entry = hv_roster_find(roster, &record->signer);
  if (value.data[1] & GONE) {
    int known = entry && record->version > entry->version && entry->version;
    if (known)
      drop(roster, entry);
    return known;
  }
  uint64_t age_us = until < now + DECLARED_MS * 1000ull ? now + DECLARED_MS * 1000ull - until : 0;
  uint64_t signed_us = now > age_us ? now - age_us : 0;
  if (until <= now || (!entry && hv_peers_ended_since(roster->peers, &record->signer, signed_us)))
    return 0;
  entry = entry_of(roster, &record->signer, &is_new);
  if (!entry)
    return 0;
  int newer = record->version > entry->version;
  if (newer) {
    if (entry->gone_us && signed_us <= entry->gone_us + HV_PEERS_RECORD_MARGIN_US)
      return 0;
    set_addrs(entry, hv_span_of(value.data + 34, value.size - 34));
    entry->version = record->version;
    entry->gone_us = 0;
    entry->failures = 0; /* it lived when it said so; when to ask it again is another question */
    if (signed_us > entry->heard_us)
      entry->heard_us = signed_us;
  }
  if (entry->expires_us < until)
    entry->expires_us = until;
  int news = is_new || newer;
  if (is_new || signed_us > entry->schema_us) {
    memcpy(entry->schema.bytes, value.data + 2, sizeof entry->schema.bytes);
    news |= set_stranger(roster, entry, memcmp(&entry->schema, &roster->config.schema, sizeof entry->schema) != 0, signed_us);
  }
  return news;
}

static void look_later(hv_roster *roster) {
  roster->env->timer_set(roster->env, &roster->look_timer, roster->look_ms * 1000);
  roster->look_ms = 2 * roster->look_ms < LOOK_MOST_MS ? 2 * roster->look_ms : LOOK_MOST_MS;
}

static void roster_looked(hv_dht_op *op, hv_status status, const char *text) {
  hv_roster *roster = op->owner;
  int news = 0;
  (void)text;
  roster->looked_us = roster->env->now_us(roster->env);
  for (size_t i = 0; status == HV_OK && i < op->n_records; i++)
    news |= read_record(roster, &op->records[i]);
  drop_expired(roster);
  look_later(roster);
  if (news)
    roster_notify(roster);
}

static void roster_look(hv_timer *timer, const hv_event *event) {
  hv_roster *roster = timer->owner;
  (void)event;
  roster->get = (hv_dht_op){
      .done = roster_looked, .owner = roster, .key = roster->config.key, .latest = 1, .majority = 1, .timeout_ms = 10000};
  if (hv_dht_get(roster->dht, &roster->get, NULL) != HV_OK)
    look_later(roster);
}

void hv_roster_look_soon(hv_roster *roster) {
  int fresh = roster->looked_us && roster->env->now_us(roster->env) - roster->looked_us < LOOK_FRESH_MS * 1000ull;
  if (roster->get.work || fresh)
    return;
  roster->look_ms = LOOK_FIRST_MS;
  look_later(roster);
}

/* ---- life ---- */

void hv_roster_init(hv_roster *roster, hv_env *env, hv_dht *dht, hv_peers *peers, const hv_roster_config *config) {
  *roster = (hv_roster){
      .env = env, .dht = dht, .peers = peers, .config = *config, .declare_ms = DECLARE_RETRY_MS, .look_ms = LOOK_FIRST_MS};
  write_subkey(&config->me, roster->subkey, sizeof roster->subkey);
  roster->declare_timer = (hv_timer){.fire = declare, .owner = roster};
  roster->look_timer = (hv_timer){.fire = roster_look, .owner = roster};
  if (!config->apart)
    env->timer_set(env, &roster->declare_timer, 0);
  if (config->young)
    env->timer_set(env, &roster->look_timer, 0);
  else
    look_later(roster); /* those who come too say so just now */
}

void hv_roster_enter(hv_roster *roster) {
  if (!roster->config.apart)
    return;
  roster->config.apart = 0;
  roster->env->timer_set(roster->env, &roster->declare_timer, 0);
}

void hv_roster_set_schema(hv_roster *roster, const hv_hash *schema) {
  roster->config.schema = *schema;
  for (size_t i = 0; i < roster->n; i++) {
    hv_roster_entry *entry = &roster->entries[i];
    if (!entry->stranger) {
      entry->schema_us = 0; /* its declaration decides, when it is read next */
      entry->unsure = 1;
    }
    if (entry->stranger && memcmp(&entry->schema, schema, sizeof entry->schema) == 0)
      set_stranger(roster, entry, 0, entry->schema_us);
    entry->asked = 0;
  }
  if (!roster->config.apart) {
    roster->declare_ms = DECLARE_RETRY_MS;
    hv_dht_cancel(roster->dht, &roster->put);
    roster->env->timer_set(roster->env, &roster->declare_timer, 0);
  }
  hv_roster_look_soon(roster);
}

void hv_roster_step_aside(hv_roster *roster) {
  roster->config.apart = 1;
  hv_dht_cancel(roster->dht, &roster->put); /* which sets the timer */
  roster->env->timer_clear(roster->env, &roster->declare_timer);
  roster->declare_ms = DECLARE_RETRY_MS;
}

void hv_roster_fini(hv_roster *roster, int goodbye) {
  roster->config.changed = NULL;
  hv_dht_cancel(roster->dht, &roster->put);
  hv_dht_cancel(roster->dht, &roster->get);
  roster->env->timer_clear(roster->env, &roster->declare_timer);
  roster->env->timer_clear(roster->env, &roster->look_timer);
  if (goodbye && roster->declared)
    say_goodbye(roster);
  hv_mem_free(roster->entries);
  roster->entries = NULL;
  roster->n = roster->room = 0;
}
