/* Stands in for core/match.c until that lands, and goes then: a group of whoever is known to be alive, at the dialable peer with
 * the least identity that averages the same. No DHT, no epochs: whoever seeks now. */
#include "core/contact.h"
#include "core/match.h"
#include "core/partition.h"

#include <string.h>

enum { QUIET_MS = 300, ALONE_MS = 500, AGAIN_MS = 200 };

typedef struct guest {
  struct guest *next, **link;
  hv_match *match;
  hv_stream *stream; /* NULL: the host's own seek */
  hv_peer_id id;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  size_t addrs_size;
  uint8_t auxiliary;
  uint64_t bandwidth;
  uint32_t expected, gather_size;
  hv_payload *gather;
} guest;

struct hv_match {
  hv_match *next, **link;
  hv_match_hall *hall;
  hv_match_config config;
  uint8_t prefix[HV_MATCH_PREFIX_MAX];
  uint8_t bits[HV_MATCH_BITS_MAX + 1];
  hv_match_seek *seek;
  uint64_t end_us;
  guest own, *guests;
  uint64_t came_us; /* the newest guest */
  hv_peer_id refused[32];
  size_t n_refused;
  hv_stream *asking; /* another host */
  hv_peer_id asked;
  hv_timer look;
};

static hv_env *env_of(hv_match *m) {
  return m->hall->env;
}

static void later(hv_match *m, uint32_t ms) {
  env_of(m)->timer_set(env_of(m), &m->look, (uint64_t)ms * 1000);
}

static void remove_guest(guest *g) {
  *g->link = g->next;
  if (g->next)
    g->next->link = g->link;
  hv_payload_release(g->gather);
  if (g != &g->match->own)
    hv_mem_free(g);
}

static void add_guest(hv_match *m, guest *g) {
  g->match = m;
  g->next = m->guests;
  g->link = &m->guests;
  if (g->next)
    g->next->link = &g->next;
  m->guests = g;
  m->came_us = env_of(m)->now_us(env_of(m));
}

static void finish(hv_match *m, hv_status status, hv_match_group *group, const char *text) {
  hv_match_seek *seek = m->seek;
  if (m->own.link) {
    remove_guest(&m->own);
    m->own.link = NULL;
  }
  m->seek = NULL;
  if (m->asking) {
    hv_stream *stream = m->asking;
    m->asking = NULL;
    stream->owner = NULL;
    env_of(m)->stream_cancel(env_of(m), stream);
  }
  if (seek) {
    seek->match = NULL;
    seek->done(seek, status, group, text);
  }
}

/* ---- what BEGIN says ---- */

static hv_match_group *group_of(hv_match *m, const hv_msg_begin *begin, const hv_payload *payload) {
  size_t n = begin->n_members, bytes = payload ? payload->size : 0, me = n, at = 0;
  hv_match_group *group =
      hv_mem_zalloc(env_of(m)->mem, sizeof *group + n * (sizeof(hv_round_member) + sizeof(hv_span)) + bytes + 16);
  if (!group)
    return NULL;
  hv_round_member *members = (hv_round_member *)(group + 1);
  hv_span *gathers = (hv_span *)(members + n);
  uint8_t *blob = (uint8_t *)(gathers + n);
  if (payload)
    hv_payload_read(payload, 0, blob, bytes);
  for (size_t i = 0; i < n; i++) {
    const hv_match_member *from = &begin->members[i];
    hv_addr addrs[HV_CARD_ADDRS_MAX];
    size_t n_addrs = hv_contact_unpack(from->addrs, addrs, HV_CARD_ADDRS_MAX);
    members[i] = (hv_round_member){
        .at = {.id = from->id}, .client = n_addrs == 0, .auxiliary = from->auxiliary, .first = from->first, .count = from->count};
    if (n_addrs)
      members[i].at.addr = addrs[0];
    if (from->gather_size > bytes - at) {
      hv_mem_free(group);
      return NULL;
    }
    gathers[i] = hv_span_of(blob + at, from->gather_size);
    at += from->gather_size;
    if (hv_peer_equal(&from->id, &m->hall->peers->config.me.id))
      me = i;
  }
  hv_hash hash;
  env_of(m)->sha256(env_of(m), hv_span_of(begin->nonce, sizeof begin->nonce), &hash);
  memcpy(group->id, hash.bytes, sizeof group->id);
  *group = (hv_match_group){.members = members, .gathers = gathers, .n_members = n, .me = me, .leader = begin->leader};
  memcpy(group->id, hash.bytes, sizeof group->id);
  if (me == n) {
    hv_mem_free(group);
    return NULL;
  }
  return group;
}

static void begin_group(hv_match *m) {
  hv_match_member members[HV_MATCH_MEMBERS_MAX];
  hv_partition_member spans[HV_MATCH_MEMBERS_MAX];
  guest *guests[HV_MATCH_MEMBERS_MAX];
  size_t n = 0, bytes = 0;
  for (guest *g = m->guests; g && n < HV_MATCH_MEMBERS_MAX; g = g->next)
    if (!g->gather_size || g->gather) {
      guests[n] = g;
      spans[n] = (hv_partition_member){.bandwidth = (double)g->bandwidth, .owns = g->addrs_size > 0, .contributes = !g->auxiliary};
      bytes += g->gather_size;
      n++;
    }
  if (hv_partition(spans, n, m->config.n_chunks) != HV_OK)
    return;
  uint8_t *blob = hv_mem_alloc(env_of(m)->mem, bytes);
  if (!blob)
    return;
  size_t at = 0;
  hv_msg msg = {.kind = HV_MSG_BEGIN, .u.begin = {.members = members, .n_members = n}};
  env_of(m)->random(env_of(m), msg.u.begin.nonce, sizeof msg.u.begin.nonce);
  for (size_t i = 0; i < n; i++) {
    guest *g = guests[i];
    members[i] = (hv_match_member){.id = g->id,
                                   .addrs = hv_span_of(g->addrs, g->addrs_size),
                                   .auxiliary = g->auxiliary,
                                   .first = spans[i].first,
                                   .count = spans[i].count,
                                   .gather_size = g->gather_size};
    if (g->gather_size)
      hv_payload_read(g->gather, 0, blob + at, g->gather_size);
    at += g->gather_size;
    if (g->addrs_size && !members[msg.u.begin.leader].addrs.size)
      msg.u.begin.leader = (uint32_t)i;
  }
  hv_payload *payload = bytes ? hv_payload_copy(env_of(m)->mem, blob, bytes) : NULL;
  hv_mem_free(blob);
  for (size_t i = 0; i < n; i++)
    if (guests[i]->stream) {
      env_of(m)->stream_send(env_of(m), guests[i]->stream, &msg, payload);
      env_of(m)->stream_end(env_of(m), guests[i]->stream);
    }
  hv_match_group *group = m->own.link ? group_of(m, &msg.u.begin, payload) : NULL;
  int mine = m->own.link != NULL;
  while (m->guests) {
    guest *g = m->guests;
    if (g->stream)
      g->stream->owner = NULL;
    remove_guest(g);
    if (g == &m->own)
      g->link = NULL;
  }
  hv_payload_release(payload);
  if (mine)
    finish(m, group ? HV_OK : HV_NOMEM, group, "");
}

/* ---- as a seeker ---- */

static int has_refused(const hv_match *m, const hv_peer_id *id) {
  for (size_t i = 0; i < m->n_refused; i++)
    if (hv_peer_equal(&m->refused[i], id))
      return 1;
  return 0;
}

static void asked_over(hv_match *m) {
  m->asking = NULL;
  if (m->n_refused < 32)
    m->refused[m->n_refused++] = m->asked;
  later(m, 10);
}

static void host_says(hv_stream *stream, const hv_event *event) {
  hv_match *m = stream->owner;
  if (!m)
    return;
  if (event->msg->kind == HV_MSG_BEGIN) {
    hv_match_group *group = group_of(m, &event->msg->u.begin, event->payload);
    env_of(m)->stream_end(env_of(m), stream);
    m->asking = NULL;
    stream->owner = NULL;
    finish(m, group ? HV_OK : HV_MALFORMED, group, group ? "" : "the host began wrongly");
  } else if (event->msg->kind == HV_MSG_DISBAND) {
    stream->owner = NULL;
    env_of(m)->stream_cancel(env_of(m), stream);
    asked_over(m);
  }
}

static void ready(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void host_gone(hv_stream *stream, const hv_event *event) {
  (void)event;
  if (stream->owner)
    asked_over(stream->owner);
}

static void ask_host(hv_match *m, const hv_peer_id *id) {
  static const hv_stream_events on = {host_says, ready, host_gone};
  hv_target to;
  m->asked = *id;
  if (hv_peers_target(m->hall->peers, id, &to) != HV_OK) {
    asked_over(m);
    return;
  }
  uint8_t key[HV_MATCH_KEY_MAX];
  size_t n = m->config.prefix.size;
  memcpy(key, m->prefix, n);
  hv_msg msg = {.kind = HV_MSG_JOIN,
                .u.join = {.key = hv_span_of(key, n),
                           .epoch = m->seek->epoch.size ? m->seek->epoch : hv_span_of("-", 1),
                           .schema = m->config.schema,
                           .n_chunks = m->config.n_chunks,
                           .addrs = hv_span_of(m->own.addrs, m->own.addrs_size),
                           .auxiliary = m->config.auxiliary,
                           .bandwidth = m->config.bandwidth,
                           .expected = m->seek->expected,
                           .wait_ms = m->seek->wait_ms,
                           .gather_size = (uint32_t)m->seek->gather.size}};
  if (env_of(m)->stream_open(env_of(m), &to, &msg, &on, m, &m->asking) != HV_OK) {
    asked_over(m);
    return;
  }
  if (m->seek->gather.size) {
    hv_payload *gather = hv_payload_copy(env_of(m)->mem, m->seek->gather.data, m->seek->gather.size);
    hv_msg bytes = {.kind = HV_MSG_GATHER};
    if (gather)
      env_of(m)->stream_send(env_of(m), m->asking, &bytes, gather);
    hv_payload_release(gather);
  }
}

/* The least dialable identity, this one's own included, that has not refused. NULL: none but this one. */
static const hv_peer_id *host_for(hv_match *m) {
  const hv_peers *peers = m->hall->peers;
  const hv_peer_id *best = peers->config.me.client_mode ? NULL : &peers->config.me.id;
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *e = peers->entries[i];
    if (e->state == HV_PEERS_ALIVE && !e->card.client_mode && !has_refused(m, &e->card.id) &&
        (!best || hv_peer_compare(&e->card.id, best) < 0))
      best = &e->card.id;
  }
  return best;
}

static void host_myself(hv_match *m) {
  if (m->own.link)
    return;
  m->own.id = m->hall->peers->config.me.id;
  m->own.auxiliary = m->config.auxiliary;
  m->own.bandwidth = m->config.bandwidth;
  m->own.expected = m->seek->expected;
  m->own.gather_size = (uint32_t)m->seek->gather.size;
  m->own.gather = m->own.gather_size ? hv_payload_copy(env_of(m)->mem, m->seek->gather.data, m->seek->gather.size) : NULL;
  add_guest(m, &m->own);
}

static void look(hv_timer *timer, const hv_event *event) {
  hv_match *m = timer->owner;
  size_t n = 0, expected = 0, least = m->config.min_group_size ? m->config.min_group_size : 2;
  if (m->seek && event->now_us >= m->end_us && !(m->own.link && least == 1)) {
    finish(m, HV_TIMEOUT, NULL, "no group came together in time");
    return;
  }
  if (m->seek && !m->asking && !m->own.link) {
    const hv_peer_id *host = host_for(m);
    if (host && hv_peer_equal(host, &m->hall->peers->config.me.id))
      host_myself(m);
    else if (host)
      ask_host(m, host);
    else
      m->n_refused = 0;
  }
  for (guest *g = m->guests; g; g = g->next) {
    n += !g->gather_size || g->gather;
    expected = g->expected > expected ? g->expected : expected;
  }
  uint64_t quiet = event->now_us - m->came_us;
  size_t enough = m->config.target_group_size ? m->config.target_group_size : HV_ROUND_MEMBERS_MAX;
  if (n >= least && n &&
      (n >= enough || (expected && n >= expected) || (!expected && quiet >= QUIET_MS * 1000ull) ||
       (m->seek && event->now_us >= m->end_us))) {
    begin_group(m);
    return;
  }
  if (m->own.link && n == 1 && quiet > ALONE_MS * 1000ull && m->n_refused) { /* perhaps they seek by now */
    remove_guest(&m->own);
    m->own.link = NULL;
    m->n_refused = 0;
  }
  if (m->seek || m->guests)
    later(m, m->seek && !m->asking && !m->own.link ? AGAIN_MS : 20);
}

/* ---- as a host ---- */

static void guest_says(hv_stream *stream, const hv_event *event) {
  guest *g = stream->owner;
  if (g && event->msg->kind == HV_MSG_GATHER && event->payload && event->payload->size == g->gather_size && !g->gather) {
    g->gather = hv_payload_keep(event->payload);
    g->match->came_us = event->now_us;
  }
}

static void guest_gone(hv_stream *stream, const hv_event *event) {
  (void)event;
  if (stream->owner)
    remove_guest(stream->owner);
}

void hv_match_opened(hv_match_hall *hall, const hv_event *event) {
  static const hv_stream_events on = {guest_says, ready, guest_gone};
  const hv_msg_join *join = &event->msg->u.join;
  hv_match *m = hall->matches;
  while (m && !hv_span_equal(m->config.prefix, join->key))
    m = m->next;
  if (!m || memcmp(&m->config.schema, &join->schema, sizeof join->schema) != 0 || join->addrs.size > HV_CONTACT_ADDRS_MAX)
    return;
  if (!m->own.link && m->asking)
    return; /* it goes elsewhere itself */
  guest *g = hv_mem_zalloc(hall->env->mem, sizeof *g);
  if (!g)
    return;
  *g = (guest){.stream = event->stream,
               .id = event->stream->peer,
               .auxiliary = join->auxiliary,
               .bandwidth = join->bandwidth,
               .expected = join->expected,
               .gather_size = join->gather_size,
               .addrs_size = join->addrs.size};
  if (join->addrs.size)
    memcpy(g->addrs, join->addrs.data, join->addrs.size);
  event->stream->on = &on;
  event->stream->owner = g;
  add_guest(m, g);
  later(m, 20);
}

void hv_match_asked(hv_match_hall *hall, const hv_event *event) {
  hv_msg answer = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_UNSUPPORTED, hv_span_of("not here", 8)}};
  hall->env->reply(hall->env, event->request, &answer);
}

/* ---- the rest ---- */

void hv_match_hall_init(hv_match_hall *hall, hv_env *env, hv_dht *dht, hv_peers *peers) {
  *hall = (hv_match_hall){.env = env, .dht = dht, .peers = peers};
}

static void drop_guests(hv_match *m, int alive) {
  while (m->guests) {
    guest *g = m->guests;
    if (g->stream) {
      g->stream->owner = NULL;
      if (alive)
        env_of(m)->stream_cancel(env_of(m), g->stream);
    }
    remove_guest(g);
    if (g == &m->own)
      g->link = NULL;
  }
}

void hv_match_hall_stop(hv_match_hall *hall) {
  hall->stopped = 1;
  for (hv_match *m = hall->matches; m; m = m->next) {
    drop_guests(m, 1);
    finish(m, HV_CANCELLED, NULL, "the node stops");
  }
}

static void drop(hv_match *m) {
  env_of(m)->timer_clear(env_of(m), &m->look);
  *m->link = m->next;
  if (m->next)
    m->next->link = m->link;
  hv_mem_free(m);
}

void hv_match_hall_fini(hv_match_hall *hall) {
  while (hall->matches) {
    drop_guests(hall->matches, 0);
    drop(hall->matches);
  }
}

hv_status hv_match_new(hv_match_hall *hall, const hv_match_config *config, hv_match **out, hv_error *err) {
  if (config->prefix.size == 0 || config->prefix.size > HV_MATCH_PREFIX_MAX || config->bits.size > HV_MATCH_BITS_MAX)
    return hv_fail(err, HV_INVALID, "a prefix has 1 to %d bytes, and group bits at most %d", HV_MATCH_PREFIX_MAX,
                   HV_MATCH_BITS_MAX);
  for (hv_match *m = hall->matches; m; m = m->next)
    if (hv_span_equal(m->config.prefix, config->prefix))
      return hv_fail(err, HV_EXISTS, "this node averages under that prefix already");
  hv_match *m = hv_mem_zalloc(hall->env->mem, sizeof *m);
  if (!m)
    return hv_fail(err, HV_NOMEM, "no memory");
  m->hall = hall;
  m->config = *config;
  memcpy(m->prefix, config->prefix.data, config->prefix.size);
  m->config.prefix.data = m->prefix;
  if (config->bits.size)
    memcpy(m->bits, config->bits.data, config->bits.size);
  m->config.bits.data = m->bits;
  m->look = (hv_timer){.fire = look, .owner = m};
  m->next = hall->matches;
  m->link = &hall->matches;
  if (m->next)
    m->next->link = &m->next;
  hall->matches = m;
  *out = m;
  return HV_OK;
}

void hv_match_free(hv_match *m) {
  if (!m)
    return;
  drop_guests(m, 1);
  finish(m, HV_CANCELLED, NULL, "the averager is shut down");
  drop(m);
}

void hv_match_set_bandwidth(hv_match *m, uint64_t bandwidth) {
  m->config.bandwidth = bandwidth;
}

hv_status hv_match_set_bits(hv_match *m, hv_span bits, hv_error *err) {
  if (bits.size > HV_MATCH_BITS_MAX)
    return hv_fail(err, HV_INVALID, "too many bits");
  memcpy(m->bits, bits.data, bits.size);
  m->config.bits.size = bits.size;
  return HV_OK;
}

hv_span hv_match_bits(const hv_match *m) {
  return m->config.bits;
}

hv_status hv_match_seek_start(hv_match *m, hv_match_seek *seek, hv_error *err) {
  if (m->seek || m->hall->stopped)
    return hv_fail(err, HV_STATE, "it seeks already, or the node stops");
  const hv_card *me = &m->hall->peers->config.me;
  m->own = (guest){.match = m};
  m->own.addrs_size = me->client_mode ? 0 : hv_contact_pack(me->addrs, me->n_addrs, m->own.addrs);
  m->seek = seek;
  seek->match = m;
  m->end_us = env_of(m)->now_us(env_of(m)) + (uint64_t)seek->wait_ms * 1000;
  m->n_refused = 0;
  later(m, 0);
  return HV_OK;
}

void hv_match_seek_cancel(hv_match_seek *seek) {
  if (seek->match)
    finish(seek->match, HV_CANCELLED, NULL, "cancelled");
}
