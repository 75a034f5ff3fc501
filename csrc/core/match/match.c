#include "core/match/match_inner.h"

#include <string.h>

enum { DEPARTURES_MAX = 64 };

/* ---- life ---- */

static void roster_changed(void *arg) {
  hv_match *match = arg;
  match->env->timer_set(match->env, &match->news_timer, 0);
}

static void news(hv_timer *timer, const hv_event *event) {
  hv_match *match = timer->owner;
  (void)event;
  match_ask_strangers(match);
  match_ask_unmet(match);
  match_host_news(match);
  match_seek_news(match);
}

/* A new match is known to the whole of a small swarm at once, long before the DHT tells. */
static void match_greet(hv_timer *timer, const hv_event *event) {
  hv_match *match = timer->owner;
  (void)event;
  match_ask_acquaintances(match);
  if (++match->greetings < MATCH_GREETINGS)
    match->env->timer_set(match->env, timer, MATCH_GREET_MS * 1000ull);
}

static void start_roster(hv_match *match, int young) {
  hv_match_registry *registry = match->registry;
  uint64_t at = match->roster.place;
  match->opened_us = match->env->now_us(match->env);
  match->settled = 0;
  hv_roster_config config = {.me = registry->peers->config.me.id,
                             .card = &registry->peers->config.me,
                             .key = match_key(match),
                             .schema = match->config.schema,
                             .young = young,
                             .apart = match->config.apart,
                             .changed = roster_changed,
                             .arg = match};
  hv_roster_init(&match->roster, match->env, registry->dht, registry->peers, &config);
  match->roster.place = at;
}

static hv_status check_bits(hv_span bits, hv_error *err) {
  if (bits.size > HV_MATCH_BITS_MAX)
    return hv_fail(err, HV_INVALID, "there are %zu group bits, and the limit is %d", bits.size, HV_MATCH_BITS_MAX);
  for (size_t i = 0; i < bits.size; i++)
    if (bits.data[i] != '0' && bits.data[i] != '1')
      return hv_fail(err, HV_INVALID, "group bits must be the characters 0 and 1");
  return HV_OK;
}

static hv_status check_config(const hv_match_config *config, hv_error *err) {
  size_t least = config->min_group_size ? config->min_group_size : 2;
  if (config->prefix.size == 0 || config->prefix.size > HV_MATCH_PREFIX_MAX)
    return hv_fail(err, HV_INVALID, "a prefix must have 1 to %d bytes", HV_MATCH_PREFIX_MAX);
  if (config->target_group_size > HV_ROUND_MEMBERS_MAX || least > HV_ROUND_MEMBERS_MAX)
    return hv_fail(err, HV_INVALID, "a group has at most %d members: use group bits in larger swarms", HV_ROUND_MEMBERS_MAX);
  if (config->target_group_size && config->target_group_size < least)
    return hv_fail(err, HV_INVALID, "min_group_size (%zu) is larger than target_group_size (%zu): make it smaller", least,
                   config->target_group_size);
  return check_bits(config->bits, err);
}

static void set_key(hv_match *match, hv_span bits) {
  match->key[match->prefix_size] = '.';
  if (bits.size)
    memmove(match->key + match->prefix_size + 1, bits.data, bits.size);
  match->key_size = match->prefix_size + 1 + bits.size;
  match->config.prefix = hv_span_of(match->key, match->prefix_size);
  match->config.bits = hv_span_of(match->key + match->prefix_size + 1, bits.size);
}

static hv_match *find_prefix(const hv_match_registry *registry, hv_span prefix) {
  hv_match *match = registry->matches;
  while (match && !hv_span_equal(match->config.prefix, prefix))
    match = match->next;
  return match;
}

static const match_reports reports = {match_seek_begun, match_seek_hopeless};

hv_status hv_match_new(hv_match_registry *registry, const hv_match_config *config, hv_match **out, hv_error *err) {
  hv_status status = check_config(config, err);
  if (status != HV_OK)
    return status;
  if (registry->stopped)
    return hv_fail(err, HV_STATE, "this node is shutting down");
  if (find_prefix(registry, config->prefix))
    return hv_fail(err, HV_EXISTS, "cannot make an averager: this node already averages under that prefix; choose another prefix");
  hv_match *match = hv_mem_zalloc(registry->env->mem, sizeof *match);
  size_t size = config->schema_text.size < HV_MATCH_SCHEMA_TEXT_MAX ? config->schema_text.size : HV_MATCH_SCHEMA_TEXT_MAX;
  uint8_t *text = match ? hv_mem_alloc(registry->env->mem, HV_MATCH_SETUP_MAX + size) : NULL;
  if (!text) {
    hv_mem_free(match);
    return hv_fail(err, HV_NOMEM, "cannot make an averager: no memory for matchmaking; raise the memory limit");
  }
  *match = (hv_match){.registry = registry,
                      .env = registry->env,
                      .on = &reports,
                      .config = *config,
                      .schema_text = text,
                      .tensors_size = size,
                      .tensors = config->schema,
                      .prefix_size = config->prefix.size};
  if (size)
    memcpy(text + HV_MATCH_SETUP_MAX, config->schema_text.data, size);
  memcpy(match->key, config->prefix.data, config->prefix.size);
  match->config.schema_text = hv_span_of(text + HV_MATCH_SETUP_MAX, size);
  match->news_timer = (hv_timer){.fire = news, .owner = match};
  match->greet_timer = (hv_timer){.fire = match_greet, .owner = match};
  set_key(match, config->bits);
  start_roster(match, 1);
  if (!match->config.apart)
    match->env->timer_set(match->env, &match->greet_timer, 0);
  match->next = registry->matches;
  match->link = &registry->matches;
  if (match->next)
    match->next->link = &match->next;
  registry->matches = match;
  *out = match;
  return HV_OK;
}

/* Those who may wait for this peer, or count it. */
static void tell_departure(const hv_match *match) {
  hv_msg msg = {.kind = HV_MSG_DEPART, .u.depart.key = match_key(match)};
  size_t told = 0;
  if (!match->registry->notices || match->registry->stopped || match->config.apart)
    return;
  for (size_t i = 0; i < match->roster.n && told < DEPARTURES_MAX; i++) {
    const hv_roster_entry *entry = &match->roster.entries[i];
    hv_target target;
    if (!hv_roster_counts(&match->roster, entry) ||
        hv_roster_target(&match->roster, &entry->id, hv_span_of(entry->addrs, entry->addrs_size), 0, &target) != HV_OK)
      continue;
    hv_notice_send(match->registry->notices, &target, &msg);
    told++;
  }
}

void hv_match_step_aside(hv_match *match) {
  if (match->config.apart || match->seek.state != SEEK_IDLE)
    return;
  tell_departure(match);
  match->config.apart = 1;
  match->env->timer_clear(match->env, &match->greet_timer);
  hv_roster_step_aside(&match->roster);
  match_host_close(match);
}

static void match_release(hv_match *match, int goodbye) {
  *match->link = match->next;
  if (match->next)
    match->next->link = match->link;
  match_host_close(match);
  match_ask_fini(match);
  if (goodbye)
    tell_departure(match);
  hv_roster_fini(&match->roster, goodbye);
  match->env->timer_clear(match->env, &match->news_timer);
  match->env->timer_clear(match->env, &match->greet_timer);
  match->env->timer_clear(match->env, &match->seek.timer);
  hv_mem_free(match->schema_text);
  hv_mem_free(match);
}

void hv_match_free(hv_match *match) {
  if (!match)
    return;
  match->closing = 1;
  match_seek_end(match, HV_CANCELLED, "the averager was shut down");
  match_release(match, 1);
}

hv_status hv_match_set_bits(hv_match *match, hv_span bits, hv_error *err) {
  hv_status status = check_bits(bits, err);
  if (status != HV_OK)
    return status;
  if (match->seek.state != SEEK_IDLE)
    return hv_fail(err, HV_STATE,
                   "cannot change the group bits: this peer is looking for a group; wait for the step, or cancel it");
  if (hv_span_equal(bits, match->config.bits))
    return HV_OK;
  match_host_close(match);
  match_ask_fini(match);
  tell_departure(match);
  hv_roster_fini(&match->roster, 1);
  set_key(match, bits);
  /* Epochs that began, and peers that are further, belong to the old key. This node's place, and whether it still lacks its group
   * there, stay. */
  memset(match->begun, 0, sizeof match->begun);
  match->behind_us = 0;
  start_roster(match, 0);
  return HV_OK;
}

/* ---- the registry ---- */

void hv_match_registry_init(hv_match_registry *registry, hv_env *env, hv_dht *dht, hv_peers *peers) {
  *registry = (hv_match_registry){.env = env, .dht = dht, .peers = peers};
  hv_parting_init(&registry->parting, env);
}

void hv_match_registry_stop(hv_match_registry *registry) {
  registry->stopped = 1;
  for (hv_match *match = registry->matches; match;) {
    int seeks = match->seek.state != SEEK_IDLE;
    match_seek_end(match, HV_CANCELLED, "this node is shutting down");
    match = seeks ? registry->matches : match->next; /* done may have freed any of them */
  }
  for (hv_match *match = registry->matches; match; match = match->next)
    match_host_close(match);
}

void hv_match_registry_fini(hv_match_registry *registry) {
  registry->stopped = 1;
  for (hv_match *match; (match = registry->matches);) {
    if (match->seek.state != SEEK_IDLE)
      match_seek_end(match, HV_CLOSED, "the node has ended"); /* done may free it */
    else
      match_release(match, 0);
  }
  for (match_summons *s; (s = registry->summons); hv_mem_free(s))
    registry->summons = s->next;
  hv_parting_fini(&registry->parting);
}

static hv_match *find_key(const hv_match_registry *registry, hv_span key) {
  hv_match *match = registry->matches;
  while (match && !hv_span_equal(match_key(match), key))
    match = match->next;
  return match;
}

void hv_match_opened(hv_match_registry *registry, const hv_event *event) {
  hv_match *match = registry->stopped ? NULL : find_key(registry, event->msg->u.join.key);
  if (match && !match->config.apart && !hv_peer_equal(&event->stream->peer, &match->roster.config.me))
    match_host_opened(match, event);
}

void hv_match_gone(hv_match_registry *registry, const hv_peer_id *id) {
  for (hv_match *match = registry->matches; match; match = match->next) {
    hv_roster_gone(&match->roster, id);
    hv_dht_end_of(registry->dht, match_key(match), id);
  }
}

void hv_match_departed(hv_match_registry *registry, const hv_peer_id *id, hv_span key) {
  hv_match *match = key.size ? find_key(registry, key) : NULL;
  if (match)
    hv_roster_gone(&match->roster, id); /* its goodbye is a record of its own */
}

void hv_match_asked(hv_match_registry *registry, const hv_event *event) {
  const hv_msg_summon *summon = &event->msg->u.summon;
  hv_match *match = registry->stopped ? NULL : find_key(registry, summon->key);
  if (match && match->config.apart)
    match = NULL;
  hv_msg answer = {.kind = HV_MSG_SUMMONED, .u.summoned.state = HV_SUMMONED_STRANGER};
  if (match) {
    answer.u.summoned.state = match_had_group(match)  ? HV_SUMMONED_HAD
                              : match_is_stuck(match) ? HV_SUMMONED_SEEKS
                                                      : HV_SUMMONED_IDLE;
    answer.u.summoned.at = match->roster.place;
    answer.u.summoned.comes = match->return_place;
    hv_roster_called(&match->roster, &event->request->peer, summon->addrs);
    hv_roster_set_place(&match->roster, &event->request->peer, summon->at, summon->seeks);
    hv_roster_set_return(&match->roster, &event->request->peer, summon->comes);
    match_ask_back(match, &event->request->peer);
  }
  registry->env->reply(registry->env, event->request, &answer);
}
