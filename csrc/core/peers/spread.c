#include "core/peers/spread.h"

#include "core/peers/spoken.h"
#include "core/versions.h"

#include <string.h>

enum { TIMEOUT_MS = 5000, FOR_INITIAL = 2, FOR_USEFUL = 2, DOUBLINGS = 5 };
#define PAUSE_US 10000000ull

static hv_span mine(const hv_spread *spread) {
  const hv_admission *admission = spread->env->admission;
  return admission ? admission->denials : hv_span_of(NULL, 0);
}

void hv_spread_init(hv_spread *spread, hv_env *env, hv_peers *peers) {
  *spread = (hv_spread){.env = env, .peers = peers, .mark = hv_admission_mark(env->admission)};
}

void hv_spread_stop(hv_spread *spread) {
  spread->stopping = 1;
}

int hv_spread_speaks(hv_env *env, const hv_peer_id *peer) {
  return !env->admission || !env->spoken || (hv_spoken_of(env, peer).features & HV_FEATURE_DENIALS);
}

/* ---- what is known of peers ---- */

static hv_spread_peer *find(const hv_spread *spread, const hv_peer_id *id) {
  for (size_t i = 0; i < spread->n_known; i++)
    if (hv_peer_equal(&spread->known[i].id, id))
      return (hv_spread_peer *)&spread->known[i];
  return NULL;
}

/* True if the place of `one` is the better one to give to another peer. */
static int gives_way(const hv_spread_peer *one, const hv_spread_peer *than) {
  if (one->under_way || !than || than->under_way)
    return !one->under_way;
  return one->is_useful != than->is_useful ? than->is_useful : one->asked_us < than->asked_us;
}

/* The entry of a peer, if need be in the place of another one. NULL: an exchange is under way with all. */
static hv_spread_peer *know(hv_spread *spread, const hv_peer_id *id) {
  hv_spread_peer *found = find(spread, id);
  if (found)
    return found;
  if (spread->n_known < HV_SPREAD_PEERS)
    found = &spread->known[spread->n_known++];
  else
    for (size_t i = 0; i < HV_SPREAD_PEERS; i++)
      if (gives_way(&spread->known[i], found))
        found = &spread->known[i];
  if (found)
    *found = (hv_spread_peer){.id = *id};
  return found;
}

int hv_spread_has(const hv_spread *spread, const hv_peer_id *peer) {
  const hv_spread_peer *one = find(spread, peer);
  return one && one->returned == spread->mark;
}

/* ---- exchanges ---- */

enum { INITIAL, USEFUL, OTHER };

static int rank_of(const hv_spread *spread, const hv_spread_peer *peer) {
  return hv_peers_is_initial(spread->peers, &peer->id) ? INITIAL : peer->is_useful ? USEFUL : OTHER;
}

/* A free place for an exchange with a peer of this rank, or NULL. */
static hv_spread_call *place_for(hv_spread *spread, int rank) {
  static const size_t most[] = {
      [INITIAL] = HV_SPREAD_CALLS, [USEFUL] = HV_SPREAD_CALLS - FOR_INITIAL, [OTHER] = HV_SPREAD_CALLS - FOR_INITIAL - FOR_USEFUL};
  hv_spread_call *place = NULL;
  size_t n = 0;
  for (hv_spread_call *c = spread->calls; c < spread->calls + HV_SPREAD_CALLS; c++) {
    n += c->under_way && c->rank >= rank;
    place = c->under_way ? place : c;
  }
  return n < most[rank] ? place : NULL;
}

/* Initial peers return the list once, even if they say that theirs is equal. */
static int is_due(const hv_spread *spread, const hv_spread_peer *peer, int rank, uint64_t now_us) {
  const hv_peers_entry *entry = hv_peers_find(spread->peers, &peer->id);
  int differs = peer->told != spread->mark || (rank == INITIAL && spread->mark && peer->returned != spread->mark);
  return differs && !peer->under_way && peer->paused_us <= now_us && entry && entry->state != HV_PEERS_LOST &&
         !entry->card.client_mode;
}

static void pause_for(hv_spread_peer *peer, uint64_t now_us) {
  peer->is_useful = 0;
  peer->paused_us = now_us + (PAUSE_US << (peer->failures < DOUBLINGS ? peer->failures : DOUBLINGS));
  peer->failures++;
}

static void answered(hv_call *call, const hv_event *event);

static void begin(hv_spread *spread, hv_spread_peer *peer, hv_spread_call *c, int rank, uint64_t now_us) {
  hv_msg msg = {.kind = HV_MSG_DENIALS, .u.denials = {mine(spread)}};
  *c = (hv_spread_call){.spread = spread, .peer = peer, .rank = rank, .sent = spread->mark};
  c->call = (hv_call){.done = answered, .owner = c, .timeout_ms = TIMEOUT_MS};
  peer->asked_us = now_us;
  c->under_way =
      hv_peers_target(spread->peers, &peer->id, &c->call.to) == HV_OK && spread->env->call(spread->env, &c->call, &msg) == HV_OK;
  peer->under_way = c->under_way;
  if (!c->under_way)
    pause_for(peer, now_us);
}

/* Begins all exchanges that are due and have a place: with initial peers first, and with each after those that waited longer. */
static void go_on(hv_spread *spread) {
  uint64_t now_us = spread->env->now_us(spread->env);
  for (int rank = INITIAL; rank <= OTHER && !spread->stopping; rank++)
    for (hv_spread_call *place; (place = place_for(spread, rank));) {
      hv_spread_peer *next = NULL;
      for (hv_spread_peer *one = spread->known; one < spread->known + spread->n_known; one++)
        if (rank_of(spread, one) == rank && is_due(spread, one, rank, now_us) && (!next || one->asked_us < next->asked_us))
          next = one;
      if (!next)
        break;
      begin(spread, next, place, rank, now_us);
    }
}

/* An exchange is of use if one of both got something by it. Else the peer keeps its word to itself, or names marks of no list. */
static void answered(hv_call *call, const hv_event *event) {
  hv_spread_call *c = call->owner;
  hv_spread *spread = c->spread;
  hv_spread_peer *peer = c->peer;
  uint64_t before = spread->mark, sent = c->sent, returned = peer->returned;
  c->under_way = peer->under_way = 0;
  if (spread->stopping)
    return;
  int is_list = event->status == HV_OK && event->msg->kind == HV_MSG_DENIALS;
  hv_span theirs = is_list ? event->msg->u.denials.list : hv_span_of(NULL, 0);
  int covers = is_list && hv_spread_take(spread, theirs) == HV_OK && hv_denials_cover(theirs, mine(spread));
  if (covers)
    peer->returned = peer->told = spread->mark;
  if (covers && (spread->mark != before || returned != spread->mark)) {
    peer->failures = 0;
    peer->is_useful = 1;
  } else if (sent == before)
    pause_for(peer, event->now_us);
  go_on(spread);
}

void hv_spread_hello(hv_spread *spread, const hv_peer_id *peer, uint64_t mark) {
  if (!spread->env->admission)
    return;
  hv_spread_peer *one = know(spread, peer);
  if (one)
    one->told = mark;
  go_on(spread);
}

/* To all live peers. Those that the list denies are asked for a hello too, which finds out that they are gone. */
static void pass_on(hv_spread *spread) {
  const hv_peers *peers = spread->peers;
  for (size_t i = 0; i < peers->n_entries; i++) {
    hv_peer_id id = peers->entries[i]->card.id;
    if (peers->entries[i]->state != HV_PEERS_ALIVE)
      continue;
    hv_peers_doubt(spread->peers, &id);
    know(spread, &id);
  }
  go_on(spread);
}

static int is_signed(void *arg, hv_span bytes, const uint8_t signature[64]) {
  hv_env *env = arg;
  return env->verify(env, &env->admission->swarm, HV_DENIALS_DOMAIN, bytes, signature);
}

hv_status hv_spread_take(hv_spread *spread, hv_span list) {
  hv_env *env = spread->env;
  hv_span before = mine(spread);
  size_t size, added;
  if (!env->admission || !env->deny)
    return HV_STATE;
  if (hv_denials_check(list) != HV_OK)
    return HV_MALFORMED;
  if (hv_span_equal(before, list))
    return HV_OK;
  uint8_t *both = hv_mem_alloc(env->mem, HV_DENIALS_BYTES_MAX);
  if (!both)
    return HV_NOMEM;
  hv_status status = hv_denials_merge(before, list, env->unix_s ? env->unix_s(env) : 0, is_signed, env, both, &size, &added),
            kept = HV_OK;
  if (added || size != before.size)
    kept = env->deny(env, hv_span_of(both, size));
  hv_mem_free(both);
  spread->mark = hv_admission_mark(env->admission);
  if (kept != HV_OK)
    return kept;
  if (added) {
    hv_env_log(env, HV_LOG_INFO, "peers", "denials_changed", "the swarm's list of denials has come: %zu new, %zu in all", added,
               hv_denials_count(mine(spread)));
    pass_on(spread);
  }
  return status;
}

void hv_spread_asked(hv_spread *spread, const hv_event *event) {
  hv_env *env = spread->env;
  hv_peer_id peer = event->request->peer; /* the request ends with its answer */
  if (!env->admission) {
    hv_env_refuse(env, event->request, HV_UNSUPPORTED, "this swarm is open, and has no denials");
    return;
  }
  hv_status status = spread->stopping ? HV_STATE : hv_spread_take(spread, event->msg->u.denials.list);
  env->reply(env, event->request, &(hv_msg){.kind = HV_MSG_DENIALS, .u.denials = {mine(spread)}});
  hv_spread_peer *one = status == HV_OK ? know(spread, &peer) : NULL;
  if (one)
    one->told = spread->mark;
}
