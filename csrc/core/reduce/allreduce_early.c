#include "core/reduce/allreduce_inner.h"

#include <string.h>

enum { REGISTRY_PATIENCE_MS = 15000, SWEEP_MS = 500, BARE_PIECES = 64 };

/* A message that arrived on a stream before its round or view began. Small: a window has room for many. */
typedef struct piece {
  struct piece *next;
  hv_msg_kind kind;
  union {
    hv_msg_chunk chunk;
    hv_msg_news news;
  } u;
  uint8_t members[HV_CHUNK_FROM_MAX]; /* its own */
  hv_payload *payload;
} piece;

/* A stream whose round or view has not begun here. Its messages are kept, which closes its window. */
typedef struct hv_allreduce_early {
  struct hv_allreduce_early *next, **link;
  hv_allreduce_registry *registry;
  hv_stream *stream;
  hv_msg first;
  uint8_t *lacks; /* first's */
  int stranger;   /* its peer was not trusted when it came */
  size_t bytes;   /* of a stranger: of the payloads of its pieces */
  uint64_t since_us;
  piece *pieces, **last;
  size_t n_bare; /* pieces without a payload: no window counts them */
} early;

int allreduce_is_early(const hv_allreduce *self, const hv_msg *first) {
  return first->kind == HV_MSG_SHARE && first->u.share.view > self->view;
}

static void drop_pieces(early *e) {
  for (piece *p; (p = e->pieces); hv_mem_free(p)) {
    e->pieces = p->next;
    hv_payload_release(p->payload);
  }
  e->last = &e->pieces;
  e->registry->strange_bytes -= e->bytes;
  e->bytes = 0;
}

static void early_free(early *e) {
  drop_pieces(e);
  *e->link = e->next;
  if (e->next)
    e->next->link = e->link;
  e->registry->n_early--;
  hv_mem_free(e->lacks);
  hv_mem_free(e);
}

/* A copy of a message that may come on a stream of a round, with its bytes; 0: it may not. */
static int copy_piece(const hv_msg *msg, piece *p) {
  p->kind = msg->kind;
  if (msg->kind == HV_MSG_CHUNK)
    p->u.chunk = msg->u.chunk;
  else if (msg->kind == HV_MSG_NEWS)
    p->u.news = msg->u.news;
  else
    return 0;
  hv_span *bytes = msg->kind == HV_MSG_CHUNK ? &p->u.chunk.from : &p->u.news.members;
  if (bytes->size > sizeof p->members)
    return 0;
  if (bytes->size)
    memcpy(p->members, bytes->data, bytes->size);
  bytes->data = p->members;
  return 1;
}

/* Keys cost nothing: those of one public network count as one. */
static int same_origin(const early *a, const early *b) {
  const hv_stream *s = a->stream, *t = b->stream;
  return s->network == t->network && (s->network || hv_peer_equal(&s->peer, &t->peer));
}

static size_t bytes_of_origin(const early *of) {
  size_t bytes = 0;
  for (const early *e = of->registry->early; e; e = e->next)
    bytes += same_origin(e, of) ? e->bytes : 0;
  return bytes;
}

/* The latest stream with bytes, of the origin that has most, if that is more than `least`. */
static early *crowd_of(const hv_allreduce_registry *registry, size_t least) {
  early *found = NULL;
  for (early *e = registry->early; e; e = e->next) {
    size_t bytes = e->bytes ? bytes_of_origin(e) : 0;
    if (bytes > least) {
      least = bytes;
      found = e;
    }
  }
  return found;
}

/* May a stream keep so many bytes more? Where all is full, streams of the origin with most end, unless that is its own. */
static int takes(early *e, size_t size) {
  hv_allreduce_registry *registry = e->registry;
  size_t own = bytes_of_origin(e) + size;
  if (own > HV_ALLREDUCE_REGISTRY_ORIGIN_BYTES)
    return 0;
  while (registry->strange_bytes + size > HV_ALLREDUCE_REGISTRY_BYTES) {
    early *goes = crowd_of(registry, own);
    if (!goes)
      return 0;
    drop_pieces(goes);
    registry->env->stream_cancel(registry->env, goes->stream);
  }
  e->bytes += size;
  registry->strange_bytes += size;
  return 1;
}

static void early_data(hv_stream *stream, const hv_event *event) {
  early *e = stream->owner;
  hv_env *env = e->registry->env;
  e->n_bare += event->payload == NULL;
  int is_kept = e->n_bare <= BARE_PIECES && (!e->stranger || !event->payload || takes(e, event->payload->size));
  piece *p = is_kept ? hv_mem_zalloc(env->mem, sizeof *p) : NULL;
  if (!p || !copy_piece(event->msg, p)) {
    hv_mem_free(p);
    env->stream_cancel(env, stream);
    return;
  }
  p->payload = event->payload ? hv_payload_keep(event->payload) : NULL;
  *e->last = p;
  e->last = &p->next;
}

static void early_ready(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void early_closed(hv_stream *stream, const hv_event *event) {
  (void)event;
  early_free(stream->owner);
}

const uint8_t *allreduce_round_of(const hv_msg *first) {
  return first->kind == HV_MSG_SHARE ? first->u.share.round : first->u.attend.round;
}

hv_allreduce *allreduce_find(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]) {
  hv_allreduce *self = registry->rounds;
  while (self && memcmp(self->round.id, id, HV_ROUND_ID_SIZE) != 0)
    self = self->next;
  return self;
}

/* True if this node never begins that round; the peer has then been told so. */
static int turns_away(hv_allreduce_registry *registry, const hv_peer_id *peer, const uint8_t *round) {
  if (!registry->expects || allreduce_find(registry, round) || registry->expects(registry->averages, round))
    return 0;
  if (registry->turned_away)
    registry->turned_away(registry->arg, peer, round);
  return 1;
}

void allreduce_early_sweep(hv_timer *timer, const hv_event *event) {
  hv_allreduce_registry *registry = timer->owner;
  for (early *e = registry->early; e; e = e->next)
    if (event->now_us - e->since_us >= REGISTRY_PATIENCE_MS * 1000ull ||
        turns_away(registry, &e->stream->peer, allreduce_round_of(&e->first)))
      registry->env->stream_cancel(registry->env, e->stream);
  if (registry->early)
    registry->env->timer_set(registry->env, &registry->sweep, SWEEP_MS * 1000ull);
}

/* Is there a place for one more of this peer? */
static int has_place(const hv_allreduce_registry *registry, const hv_peer_id *peer, int stranger) {
  size_t of_peer = 0, of_strangers = 0;
  for (const early *e = registry->early; e; e = e->next) {
    of_peer += (size_t)hv_peer_equal(&e->stream->peer, peer);
    of_strangers += (size_t)e->stranger;
  }
  return registry->n_early < HV_ALLREDUCE_REGISTRY_ROOM && of_peer < HV_ALLREDUCE_REGISTRY_OF_PEER &&
         (!stranger || of_strangers < HV_ALLREDUCE_REGISTRY_OF_STRANGERS);
}

static void early_wait(hv_allreduce_registry *registry, const hv_event *event) {
  static const hv_stream_events on = {early_data, early_ready, early_closed, .heavy = 0};
  const hv_peer_id *peer = &event->stream->peer;
  int stranger = registry->tier && registry->tier(registry->arg, peer) != HV_TIER_TRUSTED;
  early *e = has_place(registry, peer, stranger) ? hv_mem_zalloc(registry->env->mem, sizeof *e) : NULL;
  if (!e)
    return;
  *e = (early){.next = registry->early,
               .link = &registry->early,
               .registry = registry,
               .stream = event->stream,
               .first = *event->msg,
               .stranger = stranger,
               .since_us = event->now_us};
  hv_span *lacks = &e->first.u.share.lacks;
  if (e->first.kind == HV_MSG_SHARE && lacks->size) {
    e->lacks = hv_mem_alloc(registry->env->mem, lacks->size);
    if (!e->lacks) {
      hv_mem_free(e);
      return;
    }
    memcpy(e->lacks, lacks->data, lacks->size);
    lacks->data = e->lacks;
  }
  e->last = &e->pieces;
  if (e->next)
    e->next->link = &e->next;
  registry->early = e;
  registry->n_early++;
  event->stream->on = &on;
  event->stream->owner = e;
  registry->env->stream_wait(registry->env, event->stream, 1);
  if (registry->n_early == 1)
    registry->env->timer_set(registry->env, &registry->sweep, SWEEP_MS * 1000ull);
}

static int was_left(const hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]) {
  size_t n = registry->n_left < HV_ALLREDUCE_LEFT ? registry->n_left : HV_ALLREDUCE_LEFT;
  for (size_t i = 0; i < n; i++)
    if (memcmp(registry->left[i], id, HV_ROUND_ID_SIZE) == 0)
      return 1;
  return 0;
}

void hv_allreduce_leave(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]) {
  memcpy(registry->left[registry->n_left++ % HV_ALLREDUCE_LEFT], id, HV_ROUND_ID_SIZE);
  for (early *e = registry->early; e; e = e->next)
    if (memcmp(allreduce_round_of(&e->first), id, HV_ROUND_ID_SIZE) == 0)
      registry->env->stream_cancel(registry->env, e->stream);
}

/* Brings a waiting stream to its round, and then what it has brought. */
static void admit_one(hv_allreduce *self, allreduce_admit *admit, early *e) {
  hv_stream *stream = e->stream;
  const hv_stream_events *before = stream->on;
  stream->on = NULL;
  self->env->stream_wait(self->env, stream, 0);
  admit(self, &e->first, stream);
  if (!stream->on) {
    stream->on = before;
    self->env->stream_cancel(self->env, stream);
    return;
  }
  for (piece *p = e->pieces; p; p = p->next) {
    hv_msg msg = {.kind = p->kind};
    if (p->kind == HV_MSG_CHUNK)
      msg.u.chunk = p->u.chunk;
    else
      msg.u.news = p->u.news;
    hv_event event = {.kind = HV_EVENT_STREAM_DATA,
                      .now_us = self->env->now_us(self->env),
                      .stream = stream,
                      .msg = &msg,
                      .payload = p->payload,
                      .text = ""};
    stream->on->data(stream, &event);
  }
  early_free(e);
}

uint64_t allreduce_early_waited_us(const hv_allreduce *self) {
  uint64_t now = self->env->now_us(self->env), since = now;
  for (const early *e = self->registry->early; e; e = e->next)
    if (memcmp(allreduce_round_of(&e->first), self->round.id, HV_ROUND_ID_SIZE) == 0 && e->since_us < since)
      since = e->since_us;
  return now - since;
}

/* One at a time: what one brings may change what the next one finds. */
void allreduce_early_admit(hv_allreduce *self, allreduce_admit *admit) {
  for (early *e = self->registry->early, *following; e; e = following) {
    following = e->next;
    if (memcmp(allreduce_round_of(&e->first), self->round.id, HV_ROUND_ID_SIZE) == 0 && !allreduce_is_early(self, &e->first))
      admit_one(self, admit, e);
  }
}

void allreduce_early_opened(hv_allreduce_registry *registry, const hv_event *event) {
  const uint8_t *round = allreduce_round_of(event->msg);
  if (!was_left(registry, round) && !turns_away(registry, &event->stream->peer, round))
    early_wait(registry, event);
}

void allreduce_early_fini(hv_allreduce_registry *registry) {
  while (registry->early)
    early_free(registry->early);
}
