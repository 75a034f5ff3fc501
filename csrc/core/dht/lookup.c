#include "core/dht/lookup.h"

#include <string.h>

enum {
  BAD_GUIDE = 4,
  CONTACTS_ASKED = 20,
  PATIENCE = 4,
  LEAST_PATIENCE_US = 1000000,
  OWN_MAX = 100 /* where most of the table is dead */
};

hv_span hv_lookup_addrs(const hv_lookup_node *node) {
  return hv_span_of(node->addrs, node->addrs_size);
}

const hv_lookup_node *hv_lookup_nearest(const hv_lookup *lookup, size_t i) {
  for (size_t at = 0; at < lookup->n; at++) {
    const hv_lookup_node *node = &lookup->nodes[lookup->order[at]];
    if (node->state == HV_LOOKUP_ANSWERED && i-- == 0)
      return node;
  }
  return NULL;
}

const hv_lookup_node *hv_lookup_known(const hv_lookup *lookup, size_t i) {
  for (size_t at = 0; at < lookup->n; at++) {
    const hv_lookup_node *node = &lookup->nodes[lookup->order[at]];
    if (node->state != HV_LOOKUP_FAILED && i-- == 0)
      return node;
  }
  return NULL;
}

/* ---- nodes that others name ---- */

static int lookup_known(const hv_lookup *lookup, const hv_peer_id *id) {
  for (size_t i = 0; i < lookup->n; i++)
    if (hv_peer_equal(&lookup->nodes[i].id, id))
      return 1;
  return hv_peer_equal(id, &lookup->asker->route->config.me);
}

/* The slot for one more: a new one, or that of the farthest nobody has asked, if the newcomer is nearer. */
static size_t slot_for(hv_lookup *lookup, const hv_hash *distance) {
  if (lookup->n < HV_LOOKUP_ROOM)
    return lookup->n;
  for (size_t at = lookup->n; at-- > 0;) {
    size_t i = lookup->order[at];
    if (memcmp(&lookup->nodes[i].distance, distance, sizeof *distance) <= 0)
      break;
    if (lookup->nodes[i].state != HV_LOOKUP_KNOWN)
      continue;
    memmove(lookup->order + at, lookup->order + at + 1, (lookup->n - at - 1) * sizeof *lookup->order);
    lookup->n--;
    return i;
  }
  return HV_LOOKUP_ROOM;
}

static void learn(hv_lookup *lookup, const hv_peer_id *id, const hv_hash *hash, hv_span addrs, int guide, unsigned path) {
  hv_hash distance = hv_hash_distance(&lookup->config.target, hash);
  if (addrs.size == 0 || addrs.size > HV_CONTACT_ADDRS_MAX)
    return;
  size_t slot = slot_for(lookup, &distance); /* may have taken another's: from here on it must be filled */
  if (slot == HV_LOOKUP_ROOM)
    return;
  hv_lookup_node *node = &lookup->nodes[slot];
  *node = (hv_lookup_node){.id = *id, .distance = distance, .path = (uint8_t)path, .guide = (int16_t)guide, .depth = 1};
  if (guide >= 0 && lookup->nodes[guide].depth < UINT8_MAX)
    node->depth = (uint8_t)(lookup->nodes[guide].depth + 1);
  node->addrs_size = (uint8_t)addrs.size;
  memcpy(node->addrs, addrs.data, addrs.size);
  size_t at = lookup->n++;
  for (; at > 0 && memcmp(&lookup->nodes[lookup->order[at - 1]].distance, &distance, sizeof distance) > 0; at--)
    lookup->order[at] = lookup->order[at - 1];
  lookup->order[at] = (uint16_t)slot;
}

static void learn_contacts(hv_lookup *lookup, size_t guide, const hv_msg_found *found) {
  hv_contact_source source = hv_contact_source_of(hv_lookup_addrs(&lookup->nodes[guide]));
  for (size_t i = 0; i < found->n_contacts && i < CONTACTS_ASKED; i++) {
    const hv_contact *contact = &found->contacts[i];
    uint8_t kept[HV_CONTACT_ADDRS_MAX];
    hv_hash hash;
    if (lookup_known(lookup, &contact->id) || !hv_peer_is_known(&contact->id) ||
        hv_route_is_silent(lookup->asker->route, &contact->id))
      continue;
    hv_span addrs = hv_span_of(kept, hv_contact_keep(contact->addrs, source, kept));
    hv_route_hash(lookup->asker->env, &contact->id, &hash);
    learn(lookup, &contact->id, &hash, addrs, (int)guide, lookup->nodes[guide].path);
  }
}

/* ---- the next node to ask ---- */

static void answer(void *owner, size_t i, hv_status status, const hv_msg *msg, const char *text);

static int ask_node(hv_lookup *lookup, size_t i) {
  hv_lookup_node *node = &lookup->nodes[i];
  const hv_lookup_config *config = &lookup->config;
  hv_msg msg; /* not cleared: asked often, and a hello makes hv_msg ten times as long as this */
  msg.kind = HV_MSG_FIND;
  msg.u.find =
      (hv_msg_find){config->target, config->key, (uint8_t)config->want_records, config->own_only ? 0 : CONTACTS_ASKED, config->me};
  node->state = HV_LOOKUP_FAILED;
  if (hv_asker_ask(lookup->asker, &node->id, hv_lookup_addrs(node), &msg, 1, answer, lookup, i, &node->ask) != HV_OK)
    return 0;
  node->state = HV_LOOKUP_ASKED;
  node->asked_us = lookup->asker->env->now_us(lookup->asker->env);
  uint64_t late = hv_asker_late_us(lookup->asker, &node->id);
  node->late_us = node->asked_us + late;
  node->hopeless_us = node->asked_us + (late * PATIENCE > LEAST_PATIENCE_US ? late * PATIENCE : LEAST_PATIENCE_US);
  lookup->calls++;
  lookup->waiting++;
  return 1;
}

static int is_misled(const hv_lookup *lookup, const hv_lookup_node *node) {
  const hv_lookup_node *guide = node->guide >= 0 ? &lookup->nodes[node->guide] : NULL;
  return !lookup->desperate && guide && guide->failed >= BAD_GUIDE && guide->answered == 0;
}

static int on_path(const hv_lookup *lookup, const hv_lookup_node *node, unsigned path) {
  return lookup->joined || node->path == path;
}

/* Asks along one path (or, once they are joined, along all); returns how many of the nearest have still to answer. A single path
 * does not wait for those that are late: they may come while others go on. */
static size_t lookup_advance(hv_lookup *lookup, unsigned path, size_t width, size_t parallel) {
  size_t seen = 0, busy = 0, pending = 0;
  uint64_t now = lookup->asker->env->now_us(lookup->asker->env);
  for (size_t i = 0; i < lookup->n; i++)
    busy += lookup->nodes[i].state == HV_LOOKUP_ASKED && on_path(lookup, &lookup->nodes[i], path);
  for (size_t at = 0; at < lookup->n && seen < width; at++) {
    hv_lookup_node *node = &lookup->nodes[lookup->order[at]];
    if (!on_path(lookup, node, path))
      continue;
    if (node->state == HV_LOOKUP_KNOWN && !is_misled(lookup, node) && lookup->calls < HV_LOOKUP_CALLS) {
      if (busy < parallel || memcmp(&node->distance, &lookup->config.near, sizeof node->distance) <= 0)
        busy += (size_t)ask_node(lookup, lookup->order[at]);
      else
        pending++, seen++; /* its turn will come */
    }
    pending += node->state == HV_LOOKUP_ASKED || (lookup->joined && node->state == HV_LOOKUP_LATE && now < node->hopeless_us);
    seen += node->state == HV_LOOKUP_ANSWERED || node->state == HV_LOOKUP_ASKED;
  }
  return pending;
}

static void lookup_arm(hv_lookup *lookup) {
  hv_env *env = lookup->asker->env;
  uint64_t next = UINT64_MAX, now = env->now_us(env);
  for (size_t i = 0; i < lookup->n; i++)
    if (lookup->nodes[i].state == HV_LOOKUP_ASKED && lookup->nodes[i].late_us < next)
      next = lookup->nodes[i].late_us;
    else if (lookup->nodes[i].state == HV_LOOKUP_LATE && lookup->nodes[i].hopeless_us > now && lookup->nodes[i].hopeless_us < next)
      next = lookup->nodes[i].hopeless_us;
  if (next == UINT64_MAX)
    env->timer_clear(env, &lookup->timer);
  else
    env->timer_set(env, &lookup->timer, next > now ? next - now : 0);
}

static void free_now(hv_lookup *lookup) {
  hv_env *env = lookup->asker->env;
  env->timer_clear(env, &lookup->timer);
  for (size_t i = 0; i < lookup->n; i++)
    if (lookup->nodes[i].state == HV_LOOKUP_ASKED || lookup->nodes[i].state == HV_LOOKUP_LATE)
      hv_ask_forget(lookup->nodes[i].ask);
  hv_mem_free(lookup);
}

void hv_lookup_hurry(hv_lookup *lookup) {
  if (lookup->config.own_only) /* all are asked */
    return;
  lookup->joined = 1;
  if (lookup->config.parallel < lookup->config.width)
    lookup->config.parallel = lookup->config.width;
}

void hv_lookup_end(hv_lookup *lookup) {
  lookup->ended = 1;
  if (!lookup->in_hand)
    free_now(lookup);
}

/* From the table, the nearest that are not known to be silent; returns how many were new. */
static size_t learn_own(hv_lookup *lookup, size_t most) {
  const hv_route_contact *nearest[OWN_MAX];
  size_t n = hv_route_nearest(lookup->asker->route, &lookup->config.target, NULL, nearest, most), before = lookup->n;
  for (size_t i = 0; i < n; i++)
    if (!lookup_known(lookup, &nearest[i]->id))
      learn(lookup, &nearest[i]->id, &nearest[i]->hash, hv_span_of(nearest[i]->addrs, nearest[i]->addrs_size), -1,
            (unsigned)(i % lookup->config.paths));
  return lookup->n - before;
}

/* Nothing is left of what the first contacts led to: what bad guides said, and then others from the table, if few answered. */
static size_t try_the_rest(hv_lookup *lookup) {
  const hv_lookup_config *config = &lookup->config;
  lookup->desperate = 1;
  size_t pending = lookup_advance(lookup, 0, config->width, config->parallel);
  if (pending == 0 && lookup->n < HV_LOOKUP_ROOM && !hv_lookup_nearest(lookup, config->width - 1) && learn_own(lookup, OWN_MAX))
    pending = lookup_advance(lookup, 0, config->width, config->parallel);
  return pending;
}

/* Does what there is to do; the lookup may be gone afterwards. */
static void work(hv_lookup *lookup) {
  const hv_lookup_config *config = &lookup->config;
  size_t pending = 0, paths = config->paths;
  lookup->in_hand++;
  if (!lookup->joined) {
    size_t each = (config->parallel + paths - 1) / paths;
    for (unsigned path = 0; path < paths; path++)
      pending += lookup_advance(lookup, path, (config->width + paths - 1) / paths, each);
    lookup->joined = pending == 0;
  }
  if (lookup->joined && !config->own_only)
    pending = lookup_advance(lookup, 0, config->width, config->parallel);
  if (pending == 0 && !config->own_only)
    pending = try_the_rest(lookup);
  if (pending == 0 && !lookup->ended && !lookup->finished) {
    lookup->finished = 1;
    config->done(config->owner, lookup);
  }
  lookup->in_hand--;
  if (lookup->ended)
    free_now(lookup);
  else
    lookup_arm(lookup);
}

static void late(hv_timer *timer, const hv_event *event) {
  hv_lookup *lookup = timer->owner;
  for (size_t i = 0; i < lookup->n; i++)
    if (lookup->nodes[i].state == HV_LOOKUP_ASKED && lookup->nodes[i].late_us <= event->now_us) {
      lookup->nodes[i].state = HV_LOOKUP_LATE;
      lookup->waiting--;
    }
  work(lookup);
}

static void credit(hv_lookup *lookup, const hv_lookup_node *node, int answered) {
  hv_lookup_node *guide = node->guide >= 0 ? &lookup->nodes[node->guide] : NULL;
  if (guide && answered && guide->answered < UINT8_MAX)
    guide->answered++;
  if (guide && !answered && guide->failed < UINT8_MAX)
    guide->failed++;
}

static void answer(void *owner, size_t i, hv_status status, const hv_msg *msg, const char *text) {
  hv_lookup *lookup = owner;
  hv_lookup_node *node = &lookup->nodes[i];
  int found = status == HV_OK && msg->kind == HV_MSG_FOUND;
  (void)text; /* the routing table knows it as silent */
  lookup->waiting -= node->state == HV_LOOKUP_ASKED;
  node->state = found ? HV_LOOKUP_ANSWERED : HV_LOOKUP_FAILED;
  node->ask = NULL;
  credit(lookup, node, found);
  lookup->in_hand++;
  if (found) {
    if (!lookup->config.own_only)
      learn_contacts(lookup, i, &msg->u.found);
    if (lookup->config.heard && !lookup->finished)
      lookup->config.heard(lookup->config.owner, lookup, node, &msg->u.found);
  }
  lookup->in_hand--;
  if (lookup->ended)
    free_now(lookup);
  else if (!lookup->finished)
    work(lookup);
}

hv_status hv_lookup_start(hv_asker *asker, const hv_lookup_config *config, hv_lookup **out) {
  hv_lookup *lookup = hv_mem_alloc(asker->env->mem, sizeof *lookup);
  if (!lookup)
    return HV_NOMEM;
  memset(lookup, 0, offsetof(hv_lookup, order)); /* what stands in order and nodes is told by n */
  lookup->asker = asker;
  lookup->config = *config;
  lookup->config.paths = config->paths < 1 ? 1 : config->paths > HV_LOOKUP_PATHS_MAX ? HV_LOOKUP_PATHS_MAX : config->paths;
  lookup->timer = (hv_timer){.fire = late, .owner = lookup};
  *out = lookup;
  learn_own(lookup, config->own_only ? config->width : CONTACTS_ASKED);
  work(lookup);
  return HV_OK;
}
