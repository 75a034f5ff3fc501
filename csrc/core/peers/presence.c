#include "core/peers/presence.h"

#include "core/peers/pauses.h"
#include "core/peers/standing.h"
#include "core/versions.h"

enum { STEADY_US = 5000000 /* a stream that lasted so long was no failure */ };

typedef struct hv_presence_guest {
  struct hv_presence_guest *next, **link;
  hv_presence *presence;
  hv_peer_id id;
  uint64_t life;
  uint64_t network;
  int stranger;      /* 1: it was not trusted when it came */
  hv_stream *stream; /* NULL: it ended at ended_us */
  uint64_t ended_us;
} guest;

static void sooner_or_later(hv_presence *p, uint64_t *next_us, uint64_t at_us) {
  uint64_t now = p->env->now_us(p->env);
  at_us = at_us > now ? at_us : now;
  *next_us = at_us < *next_us ? at_us : *next_us;
}

/* ---- this node's own streams ---- */

static int has_feature(const hv_peers *peers, const hv_peer_id *id) {
  uint64_t features;
  return hv_peers_version_of(peers, id, &features) && (features & HV_FEATURE_PRESENT);
}

static int is_hub(const hv_peers *peers, const hv_peers_entry *entry) {
  int there = entry->state == HV_PEERS_ALIVE || entry->state == HV_PEERS_DOUBTED;
  return there && !entry->card.client_mode && entry->card.n_addrs && hv_peers_is_initial(peers, &entry->card.id) &&
         has_feature(peers, &entry->card.id);
}

/* The place of this hub, or one without a stream; NULL: none is free. */
static hv_presence_hub *place_of(hv_presence *p, const hv_peer_id *id) {
  hv_presence_hub *free = NULL;
  for (size_t i = 0; i < HV_PRESENCE_HUBS; i++) {
    hv_presence_hub *hub = &p->hubs[i];
    if (hv_peer_equal(&hub->id, id))
      return hub;
    if (!hub->stream && (!free || hv_peer_is_known(&free->id)))
      free = hub;
  }
  if (free)
    *free = (hv_presence_hub){.presence = p, .id = *id};
  return free;
}

static void believe(hv_presence *p, const hv_msg_ended *ended);
static void arm(hv_presence *p);

static void hub_said(hv_stream *stream, const hv_event *event) {
  hv_presence_hub *hub = stream->owner;
  if (event->msg->kind == HV_MSG_ENDED)
    believe(hub->presence, &event->msg->u.ended);
}

static void nothing(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void hub_closed(hv_stream *stream, const hv_event *event) {
  hv_presence_hub *hub = stream->owner;
  hv_presence *p = hub->presence;
  hub->stream = NULL;
  hub->failures = event->now_us - hub->opened_us < STEADY_US ? hub->failures + 1 : 0;
  hub->open_us = event->now_us + (hub->failures ? hv_pauses_after_failures(p->peers, hub->failures) : 0);
  arm(p);
}

static void open_stream(hv_presence_hub *hub) {
  static const hv_stream_events on = {hub_said, nothing, hub_closed, .heavy = 0};
  hv_presence *p = hub->presence;
  hv_msg msg = {.kind = HV_MSG_PRESENT, .u.present = {.life = p->peers->life}};
  hv_target to;
  hub->opened_us = p->env->now_us(p->env);
  if (hv_peers_target(p->peers, &hub->id, &to) == HV_OK && p->env->stream_open(p->env, &to, &msg, &on, hub, &hub->stream) == HV_OK)
    return;
  hub->stream = NULL;
  hub->open_us = hub->opened_us + hv_pauses_after_failures(p->peers, ++hub->failures);
}

/* Opens the streams that are missing; returns when the next one is due. */
static uint64_t open_streams(hv_presence *p) {
  uint64_t next = UINT64_MAX, now = p->env->now_us(p->env);
  for (size_t i = 0; p->peers->config.me.client_mode && i < p->peers->n_entries; i++) {
    const hv_peers_entry *entry = p->peers->entries[i];
    hv_presence_hub *hub = is_hub(p->peers, entry) ? place_of(p, &entry->card.id) : NULL;
    if (hub && !hub->stream && hub->open_us <= now)
      open_stream(hub);
    if (hub && !hub->stream)
      sooner_or_later(p, &next, hub->open_us);
  }
  return next;
}

/* ---- the streams of others ---- */

static guest *guest_of(const hv_presence *p, const hv_peer_id *id) {
  guest *g = p->guests;
  while (g && !hv_peer_equal(&g->id, id))
    g = g->next;
  return g;
}

static void guest_free(guest *g) {
  hv_presence *p = g->presence;
  *g->link = g->next;
  if (g->next)
    g->next->link = g->link;
  p->n_guests--;
  p->n_strangers -= (size_t)g->stranger;
  hv_mem_free(g);
}

static void guest_closed(hv_stream *stream, const hv_event *event) {
  guest *g = stream->owner;
  hv_presence *p = g->presence;
  g->stream = NULL;
  g->ended_us = event->now_us;
  if (p->stopping || (p->moved_us && event->now_us < p->moved_us + HV_PRESENCE_PATIENCE_US))
    guest_free(g);
  else
    arm(p);
}

/* There is nothing to say on such a stream. */
static void guest_said(hv_stream *stream, const hv_event *event) {
  guest *g = stream->owner;
  hv_presence *p = g->presence;
  (void)event;
  guest_free(g);
  hv_parting_cut(&p->parting, stream);
}

static int has_room(const hv_presence *p, int stranger, uint64_t network) {
  size_t neighbours = 0;
  for (const guest *g = p->guests; stranger && network && g; g = g->next)
    neighbours += g->stranger && g->network == network;
  return p->n_guests < HV_PRESENCE_GUESTS &&
         (!stranger || (p->n_strangers < HV_PRESENCE_STRANGERS && neighbours < HV_PRESENCE_NEIGHBOURS));
}

static guest *guest_new(hv_presence *p, const hv_stream *stream) {
  int stranger = hv_standing_tier(p->peers, &stream->peer) != HV_TIER_TRUSTED;
  guest *g = has_room(p, stranger, stream->network) ? hv_mem_zalloc(p->env->mem, sizeof *g) : NULL;
  if (!g)
    return NULL;
  *g = (guest){.next = p->guests, .link = &p->guests, .presence = p, .id = stream->peer};
  g->network = stream->network;
  g->stranger = stranger;
  if (g->next)
    g->next->link = &g->next;
  p->guests = g;
  p->n_guests++;
  p->n_strangers += (size_t)stranger;
  return g;
}

void hv_presence_opened(hv_presence *p, const hv_event *event) {
  static const hv_stream_events on = {guest_said, nothing, guest_closed, .heavy = 0};
  hv_stream *stream = event->stream;
  const hv_peers_entry *entry = hv_peers_find(p->peers, &stream->peer);
  if (p->stopping || (entry && !entry->card.client_mode) || hv_peer_equal(&stream->peer, &p->peers->config.me.id))
    return;
  guest *g = guest_of(p, &stream->peer);
  if (g && g->stream)
    hv_parting_cut(&p->parting, g->stream);
  if (!g && !(g = guest_new(p, stream)))
    return;
  g->life = event->msg->u.present.life;
  g->stream = stream;
  stream->on = &on;
  stream->owner = g;
}

void hv_presence_left(hv_presence *p, const hv_peer_id *id) {
  guest *g = guest_of(p, id);
  if (!g)
    return;
  if (g->stream)
    hv_parting_cut(&p->parting, g->stream);
  g->stream = NULL;
  g->ended_us = p->env->now_us(p->env);
  arm(p);
}

/* ---- reports ---- */

/* Something was heard of the peer since then, or it lives anew. */
static int has_come_back(const hv_peers_entry *entry, uint64_t life, uint64_t since_us) {
  return entry && (entry->seen_us > since_us || (entry->life && life && entry->life != life));
}

static void send_report(hv_presence *p, const hv_ended *ended, size_t n) {
  hv_msg msg = {.kind = HV_MSG_ENDED, .u.ended = {ended, n}};
  hv_target to;
  p->reported_us = p->env->now_us(p->env);
  for (size_t i = 0; i < p->peers->n_entries; i++) {
    const hv_peers_entry *entry = p->peers->entries[i];
    if (entry->state == HV_PEERS_ALIVE && has_feature(p->peers, &entry->card.id) &&
        hv_peers_target(p->peers, &entry->card.id, &to) == HV_OK)
      hv_notice_send(p->notices, &to, &msg);
  }
  for (const guest *g = p->guests; g; g = g->next)
    if (g->stream)
      p->env->stream_send(p->env, g->stream, &msg, NULL); /* a peer whose window is full learns it from silence */
}

/* Those whose patience is over: this node takes them for ended, and says so. Returns when the next one is due. */
static uint64_t report_ended(hv_presence *p) {
  hv_ended ended[HV_ENDED_MAX];
  size_t n = 0;
  uint64_t next = UINT64_MAX, now = p->env->now_us(p->env);
  int may = !p->reported_us || now >= p->reported_us + HV_PRESENCE_REPORT_US;
  for (guest *g = p->guests, *after; g; g = after) {
    after = g->next;
    uint64_t due_us = g->ended_us + HV_PRESENCE_PATIENCE_US;
    if (g->stream)
      continue;
    if (due_us > now || !may || n == HV_ENDED_MAX) {
      sooner_or_later(p, &next, due_us > now || may ? due_us : p->reported_us + HV_PRESENCE_REPORT_US);
      continue;
    }
    if (!has_come_back(hv_peers_find(p->peers, &g->id), g->life, g->ended_us))
      ended[n++] = (hv_ended){g->id, g->life, (now - g->ended_us) / 1000};
    guest_free(g);
  }
  for (size_t i = 0; i < n; i++)
    hv_peers_ended(p->peers, &ended[i].id, "its process has ended");
  if (n)
    send_report(p, ended, n);
  return next;
}

static void believe(hv_presence *p, const hv_msg_ended *ended) {
  uint64_t now = p->env->now_us(p->env);
  for (size_t i = 0; i < ended->n_peers && !p->stopping; i++) {
    const hv_ended *e = &ended->peers[i];
    const hv_peers_entry *entry = hv_peers_find(p->peers, &e->id);
    const guest *g = guest_of(p, &e->id);
    uint64_t since_us = e->ago_ms < now / 1000 ? now - e->ago_ms * 1000 : 0;
    int is_client = entry ? entry->card.client_mode : !p->is_dialled || !p->is_dialled(p->arg, &e->id);
    if (!is_client || (g && g->stream) || (entry && entry->gone) || has_come_back(entry, e->life, since_us) ||
        hv_peer_equal(&e->id, &p->peers->config.me.id))
      continue;
    hv_peers_ended(p->peers, &e->id, "an initial peer says that its process has ended");
  }
}

void hv_presence_told(hv_presence *p, const hv_event *event) {
  if (hv_peers_is_initial(p->peers, &event->request->peer))
    believe(p, &event->msg->u.ended);
  p->env->reply(p->env, event->request, &(hv_msg){.kind = HV_MSG_ENDED});
}

/* ---- life ---- */

static void presence_tick(hv_timer *timer, const hv_event *event) {
  hv_presence *p = timer->owner;
  (void)event;
  arm(p);
}

/* Does what is due, and sets the timer for the rest. */
static void arm(hv_presence *p) {
  if (p->stopping)
    return;
  uint64_t reports = report_ended(p), opens = open_streams(p), next = reports < opens ? reports : opens;
  if (next == UINT64_MAX)
    p->env->timer_clear(p->env, &p->timer);
  else
    p->env->timer_set(p->env, &p->timer, next - p->env->now_us(p->env));
}

void hv_presence_look(hv_presence *p) {
  if (p->peers->config.me.client_mode && !p->stopping)
    p->env->timer_set(p->env, &p->timer, 0); /* the table may be in the middle of a change */
}

void hv_presence_moved(hv_presence *p) {
  p->moved_us = p->env->now_us(p->env);
  for (guest *g = p->guests, *after; g; g = after) {
    after = g->next;
    if (!g->stream)
      guest_free(g);
  }
  for (size_t i = 0; i < HV_PRESENCE_HUBS; i++) {
    p->hubs[i].failures = 0;
    p->hubs[i].open_us = 0;
  }
  hv_presence_look(p);
}

void hv_presence_init(hv_presence *p, hv_env *env, hv_peers *peers, hv_notices *notices) {
  *p = (hv_presence){.env = env, .peers = peers, .notices = notices};
  p->timer = (hv_timer){.fire = presence_tick, .owner = p};
  hv_parting_init(&p->parting, env);
}

void hv_presence_stop(hv_presence *p) {
  p->stopping = 1;
  p->env->timer_clear(p->env, &p->timer);
}

void hv_presence_fini(hv_presence *p) {
  while (p->guests)
    guest_free(p->guests);
  hv_parting_fini(&p->parting);
}
