#include "core/state/taker.h"

#include "core/state/snapshot.h"

#include <string.h>

/* One prefix. */
typedef struct hv_taker {
  struct hv_taker *next;
  hv_takers *takers;
  hv_gift_turn turn;
  hv_gift_request request;    /* while turn.is_asking */
  hv_gift_take *take;         /* NULL: the program does not wait */
  int cancelled;              /* the take ends when the pool has let go of its memory */
  struct hv_gift_arrival *in; /* uses the memory of the take; NULL: none */
  int has_room;
  uint64_t least, every, size_max; /* as the program said last */
  hv_timer store;
  hv_dht_op op;
  hv_dht_item item;
  int storing;
  uint8_t value[HV_GIFT_REQUEST_SIZE];
  size_t key_size, prefix_size;
  uint8_t key[HV_GIFT_KEY_MAX];
} taker;

/* A state that arrives: its manifest, its chunks, and then their digests. */
typedef struct hv_gift_arrival {
  struct hv_gift_arrival *next, **link;
  hv_takers *takers;
  taker *of; /* NULL: it is over, and its stream closes */
  hv_stream *stream;
  hv_peer_id giver;
  hv_timer timer;
  hv_msg_gift gift; /* without the prefix */
  hv_manifest manifest;
  uint8_t *image;      /* the program's; NULL before the manifest has come */
  uint32_t next_chunk; /* that is to come */
  hv_span *spans;      /* of the parts in the image */
  hv_payload bytes;    /* of the image, while the digests are made */
  int has_bytes;
  hv_snapshot *snapshot; /* of the bytes */
  int hashes;            /* 1: `checked` will be called */
  int over;              /* `status` says how it ended; the memory may still be in use */
  hv_status status;
} arrival;

/* A stream that is being refused. */
typedef struct hv_gift_refusal {
  struct hv_gift_refusal *next, **link;
  hv_takers *takers;
  hv_stream *stream;
  hv_timer timer;
} refusal;

static uint64_t us(uint64_t ms) {
  return ms * 1000;
}

static void say_no(hv_env *env, hv_stream *stream, hv_status status, const char *text) {
  hv_msg no = {.kind = HV_MSG_REFUSAL, .u.refusal = {status, hv_span_of(text, strlen(text))}};
  if (env->stream_send(env, stream, &no, NULL) == HV_OK)
    env->stream_end(env, stream);
  else
    env->stream_cancel(env, stream);
}

static void nothing_to_send(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

/* ---- the end of a take and of an arrival ---- */

static void end_take(taker *t, hv_status status, const char *text) {
  hv_gift_take *take = t->take;
  if (!take)
    return;
  t->take = NULL;
  t->cancelled = 0;
  take->taker = NULL;
  take->load.done(&take->load, status, text);
}

static void arrival_free(arrival *a) {
  a->takers->env->timer_clear(a->takers->env, &a->timer);
  *a->link = a->next;
  if (a->next)
    a->next->link = a->link;
  hv_manifest_fini(&a->manifest);
  hv_mem_free(a->spans);
  hv_mem_free(a);
}

/* Nobody uses the memory any more. */
static void arrival_let_go(arrival *a) {
  taker *t = a->of;
  a->of = NULL;
  if (t) {
    t->in = NULL;
    hv_gift_take *take = t->take;
    if (take && a->status == HV_OK && !t->cancelled) {
      take->load.manifest = &a->manifest;
      take->load.epoch = a->manifest.epoch;
      take->load.digest = a->gift.digest;
      memcpy(take->lineage, a->gift.lineage, sizeof take->lineage);
      t->has_room = 0; /* until the program says otherwise, as the next */
      t->least = a->manifest.epoch + (t->every ? t->every : 1);
      hv_gift_turn_came(&t->turn, t->takers->env->now_us(t->takers->env), a->manifest.epoch);
      end_take(t, HV_OK, "");
    } else if (take && a->image)
      take->load.room(&take->load, NULL);
    if (t->cancelled)
      end_take(t, HV_CANCELLED, "the hub waits for no state any more");
  }
  if (!a->stream)
    arrival_free(a);
}

static void bytes_let_go(hv_payload *payload) {
  arrival *a = payload->owner;
  a->has_bytes = 0;
  arrival_let_go(a);
}

/* The last reference gives the bytes back, now or after the callback that we are in. */
static void arrival_drop_snapshot(arrival *a) {
  hv_snapshot *snapshot = a->snapshot;
  a->snapshot = NULL;
  if (snapshot)
    hv_snapshot_release(snapshot);
  else
    arrival_let_go(a);
}

/* Ends an arrival. Its memory may be in use by the pool for a moment. */
static void arrival_end(arrival *a, hv_status status, const char *text) {
  hv_env *env = a->takers->env;
  if (a->over)
    return;
  a->over = 1;
  a->status = status;
  if (a->stream && status == HV_OK) {
    hv_msg taken = {.kind = HV_MSG_GIFT_TAKEN, .u.gift_taken = {1, a->manifest.image}};
    if (env->stream_send(env, a->stream, &taken, NULL) == HV_OK)
      env->stream_end(env, a->stream);
    else
      env->stream_cancel(env, a->stream);
  } else if (a->stream)
    say_no(env, a->stream, status, text);
  if (a->stream)
    env->timer_set(env, &a->timer, us(HV_GIFT_SILENCE_MS));
  if (a->hashes)
    hv_snapshot_quit(a->snapshot); /* `checked` comes, now or later */
  else
    arrival_drop_snapshot(a);
}

static void arrival_fail(arrival *a, hv_status status, const char *text) {
  char id[HV_PEER_TEXT_MAX];
  hv_env_log(a->takers->env, HV_LOG_INFO, "gift", "not_taken",
             "the state of swarm epoch %llu that peer %s gives did not come whole: %s", (unsigned long long)a->gift.epoch,
             hv_peer_print(&a->giver, id), text);
  arrival_end(a, status, text);
}

/* ---- digests ---- */

static void checked(void *arg, hv_status status) {
  arrival *a = arg;
  a->hashes = 0;
  if (a->over)
    arrival_drop_snapshot(a);
  else if (status != HV_OK)
    arrival_fail(a, status, "its digests could not be computed");
  else if (memcmp(&a->snapshot->digest, &a->gift.digest, sizeof a->gift.digest) != 0)
    arrival_fail(a, HV_CORRUPT, "its bytes are not those that were announced");
  else
    arrival_end(a, HV_OK, "");
}

/* All is here: makes the manifest of what came, which must be the one that was announced. */
static void arrival_check(arrival *a) {
  hv_env *env = a->takers->env;
  const hv_manifest *m = &a->manifest;
  a->spans = hv_mem_array(env->mem, m->n_parts ? m->n_parts : 1, sizeof *a->spans);
  if (!a->spans) {
    arrival_fail(a, HV_NOMEM, "the hub has no memory to check it");
    return;
  }
  for (size_t i = 0; i < m->n_parts; i++)
    a->spans[i] = hv_span_of(a->image + m->parts[i].place, (size_t)m->parts[i].size);
  hv_payload_init(&a->bytes, a->spans, m->n_parts, bytes_let_go, a);
  a->has_bytes = 1;
  hv_status status = hv_snapshot_new(env, &a->bytes, m->parts, m->chunk_bytes, m->metadata, &a->snapshot, NULL);
  if (status != HV_OK) {
    a->has_bytes = 0;
    arrival_fail(a, status, "the hub has no memory to check it");
    return;
  }
  hv_payload_release(&a->bytes); /* the snapshot keeps it */
  a->snapshot->manifest.epoch = m->epoch;
  a->snapshot->manifest.state_hash = m->state_hash;
  env->timer_clear(env, &a->timer);
  a->hashes = hv_snapshot_hash(a->snapshot, checked, a) == HV_OK;
  if (!a->hashes)
    arrival_fail(a, HV_NOMEM, "the hub has no memory to check it");
}

/* ---- what comes ---- */

static void manifest_came(arrival *a, hv_payload *payload) {
  hv_env *env = a->takers->env;
  hv_hash digest;
  hv_span bytes = payload->parts[0];
  uint8_t *copy = NULL;
  if (payload->size != a->gift.manifest_size) {
    arrival_fail(a, HV_MALFORMED, "its manifest has another size than announced");
    return;
  }
  if (payload->n_parts != 1) {
    copy = hv_mem_alloc(env->mem, payload->size);
    bytes = hv_span_of(copy, copy ? hv_payload_read(payload, 0, copy, payload->size) : 0);
  }
  env->sha256(env, bytes, &digest);
  hv_status status = memcmp(&digest, &a->gift.digest, sizeof digest) == 0 ? hv_manifest_read(env->mem, bytes, &a->manifest)
                     : payload->n_parts != 1 && !copy                     ? HV_NOMEM
                                                                          : HV_CORRUPT;
  hv_mem_free(copy);
  if (status == HV_OK && (a->manifest.image != a->gift.size || a->manifest.epoch != a->gift.epoch))
    status = HV_MALFORMED;
  if (status != HV_OK) {
    arrival_fail(a, status, "its manifest is not the one that was announced");
    return;
  }
  hv_state_load *load = &a->of->take->load;
  a->image = load->room(load, &a->manifest);
  if (!a->image)
    arrival_fail(a, HV_NOMEM, "the hub has no memory for it");
  else if (a->manifest.n_chunks == 0)
    arrival_check(a);
}

static void chunk_came(arrival *a, uint64_t offset, hv_payload *payload) {
  const hv_manifest_chunk *chunk = &a->manifest.chunks[a->next_chunk];
  if (offset != chunk->place || payload->size != chunk->size) {
    arrival_fail(a, HV_MALFORMED, "its chunks are not in order");
    return;
  }
  hv_payload_read(payload, 0, a->image + chunk->place, chunk->size);
  if (++a->next_chunk == a->manifest.n_chunks)
    arrival_check(a);
}

static void piece_came(hv_stream *stream, const hv_event *event) {
  arrival *a = stream->owner;
  const hv_msg_gift_piece *piece = &event->msg->u.gift_piece;
  int is_piece = event->msg->kind == HV_MSG_GIFT_PIECE && event->payload;
  if (a->over)
    return;
  a->takers->env->timer_set(a->takers->env, &a->timer, us(HV_GIFT_SILENCE_MS));
  if (is_piece && piece->manifest && !a->image)
    manifest_came(a, event->payload);
  else if (is_piece && !piece->manifest && a->image && !a->snapshot)
    chunk_came(a, piece->offset, event->payload);
  else
    arrival_fail(a, HV_MALFORMED, "its giver sent something else than was due");
}

static void arrival_closed(hv_stream *stream, const hv_event *event) {
  arrival *a = stream->owner;
  a->stream = NULL;
  if (!a->over)
    arrival_fail(a, HV_CLOSED, event->text[0] ? event->text : "its giver ended the transfer"); /* may free it */
  else if (!a->of && !a->has_bytes)
    arrival_free(a);
}

static void fell_silent(hv_timer *timer, const hv_event *event) {
  arrival *a = timer->owner;
  (void)event;
  if (a->over)
    a->takers->env->stream_cancel(a->takers->env, a->stream);
  else
    arrival_fail(a, HV_TIMEOUT, "its giver was silent for too long");
}

/* ---- who may give ---- */

static taker *taker_of(const hv_takers *takers, hv_span prefix) {
  taker *t = takers->first;
  while (t && !(t->prefix_size == prefix.size && memcmp(t->key, prefix.data, prefix.size) == 0))
    t = t->next;
  return t;
}

/* HV_OK, or why this gift is refused. */
static hv_status judge(const taker *t, const hv_stream *stream, const hv_msg_gift *gift, const char **text) {
  *text = "this hub does not expect such a gift";
  if (!t || !t->turn.is_asking || !hv_peer_equal(&t->turn.giver, &stream->peer) ||
      memcmp(t->request.ticket, gift->ticket, sizeof gift->ticket) != 0)
    return HV_NOT_FOUND;
  *text = "this hub has no room for a state now";
  if (!t->take || t->cancelled || t->in || !t->has_room)
    return HV_BUSY;
  *text = "this hub has a newer state, or no run reaches that epoch";
  if (gift->epoch < t->request.least || gift->epoch < t->least || gift->epoch > HV_GIFT_EPOCH_MAX)
    return HV_INVALID;
  *text = "the state is larger than the hub's --memory allows";
  if (gift->size > t->take->load.size_max || gift->size > HV_MANIFEST_IMAGE_MAX || gift->manifest_size > HV_MANIFEST_BYTES_MAX)
    return HV_TOO_LARGE;
  return HV_OK;
}

/* The giver that is asked has a state that does not fit: asks others. */
static void leave_large(taker *t, const hv_msg_gift *gift) {
  hv_env *env = t->takers->env;
  char id[HV_PEER_TEXT_MAX];
  const hv_peer_id giver = t->turn.giver;
  if (hv_gift_turn_large(&t->turn, env->now_us(env)))
    hv_env_log(env, HV_LOG_WARN, "gift", "too_large",
               "not keeping the state of peer %s: it has %llu bytes, and the limit is %llu; give the hub more --memory; asking "
               "this peer again in an hour",
               hv_peer_print(&giver, id), (unsigned long long)gift->size, (unsigned long long)t->take->load.size_max);
}

static void refusal_free(refusal *r) {
  r->takers->env->timer_clear(r->takers->env, &r->timer);
  *r->link = r->next;
  if (r->next)
    r->next->link = r->link;
  r->takers->n_refusals--;
  hv_mem_free(r);
}

static void refusal_said(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void refusal_closed(hv_stream *stream, const hv_event *event) {
  (void)event;
  refusal_free(stream->owner);
}

static void refusal_late(hv_timer *timer, const hv_event *event) {
  refusal *r = timer->owner;
  (void)event;
  r->takers->env->stream_cancel(r->takers->env, r->stream);
}

/* Refuses a stream with the cause, if not too many are being refused: else the world does it without one. */
static void gift_refuse(hv_takers *takers, hv_stream *stream, hv_status status, const char *text) {
  static const hv_stream_events on = {refusal_said, nothing_to_send, refusal_closed, .heavy = 0};
  size_t of_peer = 0, of_network = 0;
  for (const refusal *r = takers->refusals; r; r = r->next) {
    of_peer += hv_peer_equal(&r->stream->peer, &stream->peer);
    of_network += stream->network && r->stream->network == stream->network;
  }
  if (takers->n_refusals >= HV_GIFT_REFUSALS || of_peer >= 2 || of_network >= HV_GIFT_REFUSALS / 4)
    return;
  refusal *r = hv_mem_zalloc(takers->env->mem, sizeof *r);
  if (!r)
    return;
  *r = (refusal){.next = takers->refusals, .link = &takers->refusals, .takers = takers, .stream = stream};
  r->timer = (hv_timer){.fire = refusal_late, .owner = r};
  if (r->next)
    r->next->link = &r->next;
  takers->refusals = r;
  takers->n_refusals++;
  stream->on = &on;
  stream->owner = r;
  takers->env->timer_set(takers->env, &r->timer, us(HV_GIFT_ANSWER_MS));
  say_no(takers->env, stream, status, text);
}

void hv_takers_opened(hv_takers *takers, const hv_event *event) {
  static const hv_stream_events on = {piece_came, nothing_to_send, arrival_closed, .heavy = 0};
  const hv_msg_gift *gift = &event->msg->u.gift;
  const char *text;
  if (takers->stopping)
    return;
  taker *t = taker_of(takers, gift->prefix);
  hv_status status = judge(t, event->stream, gift, &text);
  if (status == HV_TOO_LARGE)
    leave_large(t, gift);
  if (status != HV_OK) {
    gift_refuse(takers, event->stream, status, text);
    return;
  }
  arrival *a = hv_mem_zalloc(takers->env->mem, sizeof *a);
  if (!a)
    return;
  hv_msg go = {.kind = HV_MSG_GIFT_TAKEN};
  *a = (arrival){.next = takers->arrivals, .link = &takers->arrivals, .takers = takers, .of = t};
  a->stream = event->stream;
  a->giver = event->stream->peer;
  a->gift = *gift;
  a->gift.prefix = hv_span_of(NULL, 0);
  a->timer = (hv_timer){.fire = fell_silent, .owner = a};
  if (a->next)
    a->next->link = &a->next;
  takers->arrivals = a;
  t->in = a;
  t->take->load.donor = event->stream->peer;
  event->stream->on = &on;
  event->stream->owner = a;
  takers->env->timer_set(takers->env, &a->timer, us(HV_GIFT_SILENCE_MS));
  if (takers->env->stream_send(takers->env, event->stream, &go, NULL) != HV_OK)
    takers->env->stream_cancel(takers->env, event->stream);
}

/* ---- requests ---- */

static void stored(hv_dht_op *op, hv_status status, const char *text) {
  taker *t = op->owner;
  t->storing = 0;
  if (status != HV_OK)
    hv_env_log(t->takers->env, HV_LOG_DEBUG, "gift", "not_asked", "could not store the request for a state, will retry: %s", text);
}

static void store(hv_timer *timer, const hv_event *event) {
  taker *t = timer->owner;
  hv_takers *takers = t->takers;
  (void)event;
  if (takers->stopping || !t->turn.is_asking)
    return;
  takers->env->timer_set(takers->env, &t->store, us(t->storing ? HV_GIFT_LOOK_MS : HV_GIFT_STORE_MS));
  if (t->storing)
    return;
  t->request.least = t->least > 1 ? t->least : 1;
  t->request.every = t->every;
  t->request.size_max = t->size_max;
  hv_gift_request_write(&t->request, t->value);
  t->item = (hv_dht_item){.subkey = hv_span_of(takers->subkey, takers->subkey_size),
                          .value = hv_span_of(t->value, sizeof t->value),
                          .has_subkey = 1,
                          .ttl_ms = HV_GIFT_LEASE_MS};
  t->op = (hv_dht_op){.done = stored, .owner = t, .key = hv_span_of(t->key, t->key_size), .items = &t->item, .n_items = 1};
  t->storing = hv_dht_store(takers->dht, &t->op, NULL) == HV_OK;
}

/* The turn has changed: what comes under another ticket is not wanted any more. */
static void turned(taker *t) {
  if (t->in && !t->in->over)
    arrival_end(t->in, HV_CANCELLED, "the hub asks another peer, or for another state");
}

static void begin_request(taker *t, const uint8_t ticket[HV_GIFT_TICKET], uint64_t least) {
  turned(t);
  t->request = (hv_gift_request){.giver = t->turn.giver, .least = least};
  memcpy(t->request.ticket, ticket, HV_GIFT_TICKET);
  t->takers->env->timer_set(t->takers->env, &t->store, 0);
}

static hv_status enter(hv_takers *takers, hv_span prefix, taker **out, hv_error *err) {
  if (takers->stopping)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (prefix.size == 0 || prefix.size > HV_STATE_PREFIX_MAX)
    return hv_fail(err, prefix.size ? HV_TOO_LARGE : HV_INVALID, "a prefix must have 1 to %d bytes, not %zu", HV_STATE_PREFIX_MAX,
                   prefix.size);
  *out = taker_of(takers, prefix);
  if (*out)
    return HV_OK;
  if (takers->n >= HV_GIFT_PREFIXES)
    return hv_fail(err, HV_TOO_LARGE, "this node already takes states of %d prefixes", HV_GIFT_PREFIXES);
  taker *t = hv_mem_zalloc(takers->env->mem, sizeof *t);
  if (!t)
    return hv_fail(err, HV_NOMEM, "cannot take states: no memory; raise the memory limit");
  t->takers = takers;
  t->store = (hv_timer){.fire = store, .owner = t};
  t->prefix_size = prefix.size;
  t->key_size = hv_gift_key(prefix, t->key);
  t->next = takers->first;
  takers->first = t;
  takers->n++;
  *out = t;
  return HV_OK;
}

hv_status hv_takers_follow(hv_takers *takers, hv_span prefix, const hv_gift_figures *figures, uint64_t every, uint64_t size_max,
                           hv_error *err) {
  taker *t;
  hv_status status = enter(takers, prefix, &t, err);
  if (status != HV_OK)
    return status;
  uint8_t ticket[HV_GIFT_TICKET];
  hv_gift_figures now = *figures;
  now.arrived = t->in && !t->in->over && t->in->next_chunk ? t->in->manifest.chunks[t->in->next_chunk - 1].place + 1 : 0;
  takers->env->random(takers->env, &now.lot, sizeof now.lot);
  t->has_room = figures->has_room;
  t->least = figures->least;
  t->every = every;
  t->size_max = size_max;
  if (hv_gift_turn_look(&t->turn, takers->env->now_us(takers->env), &now)) {
    takers->env->random(takers->env, ticket, sizeof ticket);
    begin_request(t, ticket, figures->least > 1 ? figures->least : 1);
  } else if (!t->turn.is_asking)
    turned(t);
  return HV_OK;
}

hv_status hv_takers_met(hv_takers *takers, hv_span prefix, uint64_t epoch, const hv_peer_id *right, size_t n,
                        const hv_peer_id *giver, const uint8_t ticket[HV_GIFT_TICKET], hv_error *err) {
  taker *t;
  hv_status status = enter(takers, prefix, &t, err);
  if (status != HV_OK)
    return status;
  hv_gift_turn_met(&t->turn, takers->env->now_us(takers->env), epoch, right, n, giver);
  if (giver)
    begin_request(t, ticket, epoch + 1);
  return HV_OK;
}

void hv_takers_refuse(hv_takers *takers, hv_span prefix) {
  taker *t = taker_of(takers, prefix);
  if (!t)
    return;
  hv_gift_turn_fail(&t->turn);
  turned(t);
}

const hv_gift_request *hv_takers_request(const hv_takers *takers, hv_span prefix) {
  const taker *t = taker_of(takers, prefix);
  return t && t->turn.is_asking ? &t->request : NULL;
}

/* ---- takes ---- */

hv_status hv_takers_take(hv_takers *takers, hv_gift_take *take, hv_error *err) {
  taker *t;
  hv_status status = enter(takers, take->load.prefix, &t, err);
  if (status != HV_OK)
    return status;
  if (t->take)
    return hv_fail(err, HV_EXISTS, "the program already waits for a state of this prefix");
  t->take = take;
  take->taker = t;
  return HV_OK;
}

void hv_takers_cancel(hv_takers *takers, hv_gift_take *take) {
  taker *t = take->taker;
  (void)takers;
  if (!t || t->take != take)
    return;
  t->cancelled = 1;
  if (t->in)
    arrival_end(t->in, HV_CANCELLED, "the hub waits for no state any more");
  else
    end_take(t, HV_CANCELLED, "the hub waits for no state any more");
}

/* ---- life ---- */

void hv_takers_init(hv_takers *takers, hv_env *env, hv_dht *dht, const hv_peer_id *me) {
  *takers = (hv_takers){.env = env, .dht = dht};
  takers->subkey_size = hv_ballot_subkey(me, takers->subkey);
}

void hv_takers_gone(hv_takers *takers, const hv_peer_id *id) {
  for (taker *t = takers->first; t; t = t->next) {
    int was_asked = t->turn.is_asking && hv_peer_equal(&t->turn.giver, id);
    hv_gift_turn_gone(&t->turn, id);
    if (was_asked)
      turned(t);
  }
}

void hv_takers_stop(hv_takers *takers) {
  takers->stopping = 1;
  for (taker *t = takers->first; t; t = t->next) {
    takers->env->timer_clear(takers->env, &t->store);
    t->turn.is_asking = 0;
    if (t->take)
      hv_takers_cancel(takers, t->take);
  }
}

static void forget_stored(hv_dht_op *op, hv_status status, const char *text) {
  (void)op, (void)status, (void)text;
}

void hv_takers_fini(hv_takers *takers) {
  takers->stopping = 1;
  for (arrival *a = takers->arrivals; a; a = a->next)
    a->stream = NULL;
  for (arrival *a = takers->arrivals, *after; a; a = after) {
    after = a->next;
    if (a->hashes)
      hv_snapshot_abandon(a->snapshot);
    a->hashes = 0;
    if (a->over)
      arrival_drop_snapshot(a);
    else
      arrival_end(a, HV_CLOSED, "the node has ended");
  }
  while (takers->arrivals)
    arrival_free(takers->arrivals);
  while (takers->refusals)
    refusal_free(takers->refusals);
  for (taker *t; (t = takers->first); hv_mem_free(t)) {
    takers->first = t->next;
    end_take(t, HV_CLOSED, "the node has ended");
    takers->env->timer_clear(takers->env, &t->store);
    if (t->storing) {
      t->op.done = forget_stored;
      hv_dht_cancel(takers->dht, &t->op);
    }
  }
}
