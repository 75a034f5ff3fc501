#include "core/state/giver.h"

#include "core/peers/spoken.h"
#include "core/state/snapshot.h"

#include <string.h>

/* One prefix. */
typedef struct hv_giver {
  struct hv_giver *next;
  hv_givers *givers;
  hv_gift_wait *wait; /* NULL: the program does not wait */
  hv_timer look;
  hv_dht_op op;
  hv_gift_request request;
  uint64_t found_us;    /* when the request was found last; 0: there is none */
  uint64_t least;       /* oldest epoch that a hub may still want of this peer */
  uint64_t ended_us;    /* when the last attempt to send a state ended */
  uint64_t took_us;     /* how long it took */
  struct hv_giving *of; /* the gift under way; NULL: none */
  size_t key_size, prefix_size;
  uint8_t key[HV_GIFT_KEY_MAX];
} giver;

/* HASHING -> for each hub: OPENING (the hub has not answered) -> SENDING -> SENT (it checks) -> over. */
typedef enum phase { HASHING, PAUSING, OPENING, SENDING, SENT } phase;

/* One state on its way. */
typedef struct hv_giving {
  struct hv_giving *next, **link;
  hv_givers *givers;
  giver *of;          /* NULL: it is over, and its stream closes */
  hv_gift_give *give; /* the caller's; NULL after its done */
  hv_snapshot *snapshot;
  hv_peer_id hubs[HV_GIFT_HUBS];
  size_t n_hubs, at;
  unsigned tries;
  uint64_t every; /* epochs to the next state */
  uint8_t ticket[HV_GIFT_TICKET];
  phase phase;
  hv_stream *stream;
  hv_timer timer;
  hv_payload *ready; /* a piece that the stream has not taken yet */
  size_t next_piece; /* 0: the manifest; then the chunks */
  uint64_t begun_us;
  int hashes; /* 1: give_hashed will be called */
  int received;
  hv_status failed; /* of this hub, or of an earlier one */
  char text[HV_MSG_TEXT_MAX + 1];
} giving;

/* ---- the end of a gift ---- */

static void giving_free(giving *g) {
  hv_snapshot_release(g->snapshot);
  g->givers->env->timer_clear(g->givers->env, &g->timer);
  *g->link = g->next;
  if (g->next)
    g->next->link = g->link;
  hv_payload_release(g->ready);
  hv_mem_free(g);
}

/* Nothing of it is under way any more. */
static void giving_settle(giving *g) {
  if (!g->of && !g->stream && !g->hashes)
    giving_free(g);
}

/* Tells the program, and lets go of its memory. The struct goes when its stream has closed, and the pool has let go of the memory.
 */
static void giving_end(giving *g, hv_status status, const char *text) {
  hv_env *env = g->givers->env;
  hv_gift_give *give = g->give;
  if (g->of)
    g->of->of = NULL;
  g->of = NULL;
  g->give = NULL;
  if (!g->hashes) {
    hv_snapshot_release(g->snapshot);
    g->snapshot = NULL;
  }
  hv_payload_release(g->ready);
  g->ready = NULL;
  env->timer_clear(env, &g->timer);
  if (g->stream)
    env->stream_cancel(env, g->stream);
  if (give)
    give->state.done(&give->state, status, text);
  if (g->hashes)
    hv_snapshot_quit(g->snapshot); /* give_hashed comes, now or later */
  else
    giving_settle(g);
}

static void set_failure(giving *g, hv_status status, hv_span text) {
  size_t size = text.size < HV_MSG_TEXT_MAX ? text.size : HV_MSG_TEXT_MAX;
  g->failed = status;
  if (size)
    memcpy(g->text, text.data, size);
  g->text[size] = 0;
}

static void set_failure_text(giving *g, hv_status status, const char *text) {
  set_failure(g, status, hv_span_of(text, strlen(text)));
}

/* ---- one hub ---- */

static void give_open(giving *g);

/* Nobody wants this state of this peer again. */
static void give_settled(giving *g) {
  g->of->least = g->snapshot->manifest.epoch + g->every;
}

static void give_next(giving *g) {
  g->tries = 0;
  if (++g->at < g->n_hubs)
    give_open(g);
  else
    giving_end(g, g->failed, g->failed == HV_OK ? "" : g->text);
}

/* The hub did not take it: tries again if it may expect it soon, else goes on to the next one. */
static void give_failed(giving *g, hv_status status, const char *text) {
  hv_env *env = g->givers->env;
  char id[HV_PEER_TEXT_MAX];
  set_failure_text(g, status, text);
  if ((status == HV_NOT_FOUND || status == HV_BUSY) && ++g->tries < HV_GIFT_TRIES) {
    g->phase = PAUSING;
    env->timer_set(env, &g->timer, HV_GIFT_AGAIN_MS * UINT64_C(1000));
    return;
  }
  if (status == HV_TOO_LARGE || status == HV_INVALID || status == HV_UNSUPPORTED)
    give_settled(g);
  hv_env_log(env, HV_LOG_INFO, "gift", "not_given", "could not send the state of swarm epoch %llu to the hub %s: %s",
             (unsigned long long)g->snapshot->manifest.epoch, hv_peer_print(&g->hubs[g->at], id), g->text);
  give_next(g);
}

static hv_msg header_of(const giving *g) {
  hv_msg header = {.kind = HV_MSG_GIFT_PIECE};
  if (g->next_piece == 0)
    header.u.gift_piece.manifest = 1;
  else
    header.u.gift_piece.offset = g->snapshot->manifest.chunks[g->next_piece - 1].place;
  return header;
}

static hv_payload *piece_of(giving *g) {
  return g->next_piece == 0 ? hv_payload_keep(g->snapshot->manifest_bytes)
                            : hv_snapshot_plain(g->snapshot, (uint32_t)(g->next_piece - 1));
}

static void give_pieces(giving *g) {
  hv_env *env = g->givers->env;
  while (g->phase == SENDING && g->next_piece <= g->snapshot->manifest.n_chunks) {
    hv_msg header = header_of(g);
    if (!g->ready)
      g->ready = piece_of(g);
    hv_status status = g->ready ? env->stream_send(env, g->stream, &header, g->ready) : HV_NOMEM;
    if (status == HV_BUSY)
      return; /* ready will come */
    hv_payload_release(g->ready);
    g->ready = NULL;
    if (status != HV_OK) {
      set_failure_text(g, status, hv_status_text(status));
      env->stream_cancel(env, g->stream);
      return;
    }
    g->next_piece++;
    env->timer_set(env, &g->timer, HV_GIFT_SILENCE_MS * UINT64_C(1000));
  }
  g->phase = SENT;
  env->timer_set(env, &g->timer, HV_GIFT_CHECK_MS * UINT64_C(1000));
}

static void give_answered(hv_stream *stream, const hv_event *event) {
  giving *g = stream->owner;
  const hv_msg *msg = event->msg;
  if (!g->of)
    return;
  if (msg->kind == HV_MSG_GIFT_TAKEN && !msg->u.gift_taken.whole && g->phase == OPENING) {
    g->phase = SENDING;
    give_pieces(g);
  } else if (msg->kind == HV_MSG_GIFT_TAKEN && msg->u.gift_taken.whole && g->phase == SENT) {
    g->received = 1;
    g->givers->env->stream_end(g->givers->env, stream);
  } else {
    if (msg->kind == HV_MSG_REFUSAL)
      set_failure(g, msg->u.refusal.status, msg->u.refusal.text);
    else
      set_failure_text(g, HV_MALFORMED, "the hub answered something else than was asked");
    g->givers->env->stream_cancel(g->givers->env, stream);
  }
}

static void give_ready(hv_stream *stream, const hv_event *event) {
  giving *g = stream->owner;
  (void)event;
  if (g->of && g->phase == SENDING)
    give_pieces(g);
}

static void give_closed(hv_stream *stream, const hv_event *event) {
  giving *g = stream->owner;
  hv_env *env = g->givers->env;
  g->stream = NULL;
  hv_payload_release(g->ready);
  g->ready = NULL;
  if (!g->of) {
    giving_settle(g);
    return;
  }
  env->timer_clear(env, &g->timer);
  g->of->ended_us = event->now_us;
  g->of->took_us = event->now_us - g->begun_us;
  if (g->received) {
    give_settled(g);
    give_next(g);
  } else if (g->failed != HV_OK && g->text[0])
    give_failed(g, g->failed, g->text);
  else
    give_failed(g, event->status == HV_OK ? HV_CLOSED : event->status, event->text[0] ? event->text : "the hub ended the transfer");
}

/* A hub that is silent, or a pause that is over. */
static void give_late(hv_timer *timer, const hv_event *event) {
  giving *g = timer->owner;
  (void)event;
  if (g->phase == PAUSING) {
    give_open(g);
    return;
  }
  set_failure_text(g, HV_TIMEOUT, "the hub did not answer, or took nothing, for too long");
  g->givers->env->stream_cancel(g->givers->env, g->stream);
}

static void give_open(giving *g) {
  static const hv_stream_events on = {give_answered, give_ready, give_closed, .heavy = 1, .turn = HV_TURN_LOAD};
  hv_env *env = g->givers->env;
  const hv_peer_id *hub = &g->hubs[g->at];
  const hv_manifest *m = &g->snapshot->manifest;
  hv_target to;
  hv_msg first = {.kind = HV_MSG_GIFT,
                  .u.gift = {.prefix = g->give->state.prefix,
                             .epoch = m->epoch,
                             .size = m->image,
                             .manifest_size = (uint32_t)g->snapshot->manifest_bytes->size,
                             .digest = g->snapshot->digest}};
  memcpy(first.u.gift.ticket, g->ticket, sizeof g->ticket);
  memcpy(first.u.gift.lineage, g->give->state.lineage, sizeof first.u.gift.lineage);
  g->begun_us = env->now_us(env);
  g->next_piece = 0;
  g->received = 0;
  g->text[0] = 0;
  g->phase = OPENING;
  hv_status status = hv_peers_target(g->givers->peers, hub, &to);
  if (status == HV_OK && !(hv_spoken_of(env, hub).features & HV_FEATURE_GIFT))
    status = HV_UNSUPPORTED;
  if (status == HV_OK)
    status = env->stream_open(env, &to, &first, &on, g, &g->stream);
  if (status != HV_OK) {
    g->stream = NULL;
    give_failed(g, status,
                status == HV_UNSUPPORTED ? "it runs an older version, which takes no such gifts" : hv_status_text(status));
    return;
  }
  env->timer_set(env, &g->timer, HV_GIFT_ANSWER_MS * UINT64_C(1000));
}

static void give_hashed(void *arg, hv_status status) {
  giving *g = arg;
  g->hashes = 0;
  if (!g->of)
    giving_settle(g);
  else if (status != HV_OK)
    giving_end(g, status, "cannot give the state: its digests could not be computed");
  else
    give_open(g);
}

/* ---- requests ---- */

static giver *giver_of(hv_givers *givers, hv_span prefix) {
  giver *p = givers->first;
  while (p && !(p->prefix_size == prefix.size && memcmp(p->key, prefix.data, prefix.size) == 0))
    p = p->next;
  return p;
}

static int is_asked(giver *p) {
  uint64_t now = p->givers->env->now_us(p->givers->env);
  if (p->found_us && now - p->found_us > HV_GIFT_LEASE_MS * UINT64_C(1000))
    p->found_us = 0;
  return p->found_us != 0;
}

static uint64_t least_of(const giver *p) {
  return p->request.least > p->least ? p->request.least : p->least;
}

static void end_wait(giver *p, hv_status status, const char *text) {
  hv_gift_wait *wait = p->wait;
  if (!wait)
    return;
  p->wait = NULL;
  wait->least = least_of(p);
  wait->done(wait, status, text);
}

static int has_rested(const giver *p, uint64_t now_us) {
  uint64_t times = p->wait->is_urgent ? HV_GIFT_REST_URGENT : HV_GIFT_REST;
  return now_us >= p->ended_us + times * p->took_us;
}

static void look_again(giver *p) {
  if (!p->givers->stopping)
    p->givers->env->timer_set(p->givers->env, &p->look, HV_GIFT_LOOK_MS * UINT64_C(1000));
}

static void looked(hv_dht_op *op, hv_status status, const char *text) {
  giver *p = op->owner;
  (void)text;
  uint64_t now = p->givers->env->now_us(p->givers->env);
  if (status == HV_OK && hv_gift_request_find(op->records, op->n_records, &p->givers->peers->config.me.id, &p->request))
    p->found_us = now ? now : 1;
  else if (status == HV_OK || status == HV_NOT_FOUND)
    p->found_us = 0;
  look_again(p);
  if (!p->of && is_asked(p) && p->wait && has_rested(p, now))
    end_wait(p, HV_OK, "");
}

static void look(hv_timer *timer, const hv_event *event) {
  giver *p = timer->owner;
  (void)event;
  p->op =
      (hv_dht_op){.done = looked, .owner = p, .key = hv_span_of(p->key, p->key_size), .timeout_ms = HV_GIFT_FIND_MS, .latest = 1};
  if (hv_dht_get(p->givers->dht, &p->op, NULL) != HV_OK)
    look_again(p);
}

static giver *giver_new(hv_givers *givers, hv_span prefix) {
  giver *p = givers->n < HV_GIFT_PREFIXES ? hv_mem_zalloc(givers->env->mem, sizeof *p) : NULL;
  if (!p)
    return NULL;
  p->givers = givers;
  p->look = (hv_timer){.fire = look, .owner = p};
  p->prefix_size = prefix.size;
  p->key_size = hv_gift_key(prefix, p->key);
  p->next = givers->first;
  givers->first = p;
  givers->n++;
  return p;
}

static hv_status check_prefix(const hv_givers *givers, hv_span prefix, hv_error *err) {
  if (givers->stopping)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (prefix.size == 0 || prefix.size > HV_STATE_PREFIX_MAX)
    return hv_fail(err, prefix.size ? HV_TOO_LARGE : HV_INVALID, "a prefix must have 1 to %d bytes, not %zu", HV_STATE_PREFIX_MAX,
                   prefix.size);
  return HV_OK;
}

/* The entry of a prefix, made if it is missing. */
static hv_status enter(hv_givers *givers, hv_span prefix, giver **out, hv_error *err) {
  hv_status status = check_prefix(givers, prefix, err);
  if (status != HV_OK)
    return status;
  *out = giver_of(givers, prefix);
  if (!*out && givers->n >= HV_GIFT_PREFIXES)
    return hv_fail(err, HV_TOO_LARGE, "this node already gives states of %d prefixes", HV_GIFT_PREFIXES);
  if (!*out && !(*out = giver_new(givers, prefix)))
    return hv_fail(err, HV_NOMEM, "cannot give a state: no memory; raise the memory limit");
  return HV_OK;
}

hv_status hv_givers_wait(hv_givers *givers, hv_gift_wait *wait, hv_error *err) {
  giver *p;
  hv_status status = enter(givers, wait->prefix, &p, err);
  if (status != HV_OK)
    return status;
  if (p->wait)
    return hv_fail(err, HV_EXISTS, "the program already waits for a hub under this prefix");
  p->wait = wait;
  if (!p->op.work)
    givers->env->timer_set(givers->env, &p->look, p->found_us ? HV_GIFT_LOOK_MS * UINT64_C(1000) : 0);
  return HV_OK;
}

hv_status hv_givers_give(hv_givers *givers, hv_gift_give *give, hv_error *err) {
  giver *p;
  hv_snapshot *snapshot;
  hv_status status = enter(givers, give->state.prefix, &p, err);
  if (status != HV_OK)
    return status;
  if (give->n_hubs > HV_GIFT_HUBS || (give->hubs && !give->n_hubs))
    return hv_fail(err, HV_INVALID, "a state is given to 1 to %d hubs at a time, not %zu", HV_GIFT_HUBS, give->n_hubs);
  if (!give->hubs && (!is_asked(p) || give->state.epoch < least_of(p)))
    return hv_fail(err, HV_NOT_FOUND, "no hub asks this peer for the state of swarm epoch %llu",
                   (unsigned long long)give->state.epoch);
  giving *g = hv_mem_zalloc(givers->env->mem, sizeof *g);
  if (!g)
    return hv_fail(err, HV_NOMEM, "cannot give the state: no memory; raise the memory limit");
  status =
      hv_snapshot_new(givers->env, give->state.bytes, give->state.parts, givers->chunk_bytes, give->state.metadata, &snapshot, err);
  if (status != HV_OK) {
    hv_mem_free(g);
    return status;
  }
  snapshot->manifest.epoch = give->state.epoch;
  snapshot->manifest.state_hash = give->state.state_hash;
  *g = (giving){.next = givers->givings, .link = &givers->givings, .givers = givers, .of = p, .give = give, .snapshot = snapshot};
  g->timer = (hv_timer){.fire = give_late, .owner = g};
  g->n_hubs = give->hubs ? give->n_hubs : 1;
  g->every = !give->hubs && p->request.every ? p->request.every : 1;
  memcpy(g->hubs, give->hubs ? give->hubs : &p->request.hub, g->n_hubs * sizeof *g->hubs);
  memcpy(g->ticket, give->hubs ? give->ticket : p->request.ticket, sizeof g->ticket);
  g->hashes = 1;
  if (hv_snapshot_hash(snapshot, give_hashed, g) != HV_OK) {
    hv_snapshot_release(snapshot);
    hv_mem_free(g);
    return hv_fail(err, HV_NOMEM, "cannot give the state: no memory; raise the memory limit");
  }
  if (g->next)
    g->next->link = &g->next;
  givers->givings = g;
  if (p->of)
    giving_end(p->of, HV_CANCELLED, "a newer state is given in its place");
  p->of = g;
  return HV_OK;
}

/* ---- life ---- */

void hv_givers_init(hv_givers *givers, hv_env *env, hv_dht *dht, hv_peers *peers) {
  *givers = (hv_givers){.env = env, .dht = dht, .peers = peers};
}

void hv_givers_gone(hv_givers *givers, const hv_peer_id *id) {
  for (giving *g = givers->givings; g; g = g->next)
    if (g->of && g->stream && hv_peer_equal(&g->hubs[g->at], id)) {
      set_failure_text(g, HV_CLOSED, "the hub has ended");
      givers->env->stream_cancel(givers->env, g->stream);
    }
}

static void giver_free(giver *p, hv_status status, const char *text) {
  hv_givers *givers = p->givers;
  giver **at = &givers->first;
  if (p->of)
    giving_end(p->of, status, text);
  end_wait(p, status, text);
  while (*at != p)
    at = &(*at)->next;
  *at = p->next;
  givers->n--;
  p->op.done = NULL;
  givers->env->timer_clear(givers->env, &p->look);
  hv_mem_free(p);
}

static void looked_for_nobody(hv_dht_op *op, hv_status status, const char *text) {
  (void)op, (void)status, (void)text;
}

static void giver_end(giver *p, hv_status status, const char *text) {
  if (p->op.work) {
    p->op.done = looked_for_nobody;
    hv_dht_cancel(p->givers->dht, &p->op);
  }
  giver_free(p, status, text);
}

void hv_givers_wait_end(hv_givers *givers, hv_span prefix) {
  giver *p = giver_of(givers, prefix);
  if (p)
    giver_end(p, HV_CANCELLED, "this peer gives no state any more");
}

void hv_givers_stop(hv_givers *givers) {
  givers->stopping = 1;
  while (givers->first)
    giver_end(givers->first, HV_CANCELLED, "the node was shut down");
}

void hv_givers_fini(hv_givers *givers) {
  givers->stopping = 1;
  for (giving *g = givers->givings; g; g = g->next) {
    g->stream = NULL;
    if (g->hashes)
      hv_snapshot_abandon(g->snapshot);
    g->hashes = 0;
  }
  while (givers->first)
    giver_end(givers->first, HV_CLOSED, "the node has ended");
  while (givers->givings)
    giving_free(givers->givings);
}
