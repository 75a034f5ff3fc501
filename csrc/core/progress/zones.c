#include "core/progress/zones.h"

#include "core/peers/contact.h"

#include <math.h>
#include <string.h>

enum {
  LOOK_US = 1000000,
  STALE_US = 10000000, /* without a message, after which a peer does not count */
  ABSENT_FIRST_US = 1000000,
  ABSENT_US = 30000000,
  ZONE_TIMES = 4,
  OWNERS_MORE = 16,
  TICK_LEAST_US = 5000,
  AT_FIRST_US = 5000000,
  ALL = HV_ZONES_MEMBERS + HV_ZONES_LEVELS
};

#define NEAR 0.02
#define NEAR_PASSED 0.005  /* a sum that was passed on is trusted less */
#define NEAR_AT_FIRST 0.05 /* shortly after an epoch began, when nothing is decided */

static uint64_t zones_now(const hv_zones *z) {
  return z->env->now_us(z->env);
}

static uint64_t mark_of(const hv_peer_id *id) {
  uint64_t mark;
  memcpy(&mark, id->key, sizeof mark);
  return mark ? mark : 1;
}

static int is_fresh(uint64_t heard_us, uint64_t now_us) {
  return heard_us && now_us - heard_us <= STALE_US;
}

/* ---- who does not take part ---- */

static int is_absent(const hv_zones *z, const hv_peer_id *id, uint64_t now_us) {
  uint64_t who = mark_of(id);
  for (size_t i = 0; i < HV_ZONES_ABSENT; i++)
    if (z->absent[i].from == who && z->absent[i].until_us > now_us)
      return 1;
  return 0;
}

/* Each time it turns out to be absent still, it is left alone for twice as long: it may only be about to take part. */
static void note_absent(hv_zones *z, uint64_t who) {
  uint64_t now = zones_now(z);
  hv_zones_absent *slot = &z->absent[0];
  for (size_t i = 0; i < HV_ZONES_ABSENT && slot->from != who; i++)
    if (z->absent[i].from == who || z->absent[i].until_us < slot->until_us)
      slot = &z->absent[i];
  int again = slot->from == who && now < slot->until_us + ABSENT_US;
  uint64_t wait = again ? slot->wait_us * 2 : ABSENT_FIRST_US;
  *slot = (hv_zones_absent){.from = who, .wait_us = wait < ABSENT_US ? wait : ABSENT_US};
  slot->until_us = now + slot->wait_us;
}

/* A peer that asks about a run takes part in it. */
static void note_present(hv_zones *z, const hv_peer_id *id) {
  uint64_t who = mark_of(id);
  for (size_t i = 0; i < HV_ZONES_ABSENT; i++)
    if (z->absent[i].from == who)
      z->absent[i] = (hv_zones_absent){0};
}

/* ---- the leaf ---- */

static void free_member(hv_zones_member *m) {
  if (m->ask)
    hv_ask_forget(m->ask);
  *m = (hv_zones_member){0};
}

static hv_zones_member *find_member(hv_zones *z, const hv_peer_id *id) {
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++)
    if (hv_peer_equal(&z->members[i].id, id))
      return &z->members[i];
  return NULL;
}

static hv_zones_member *find_or_add_member(hv_zones *z, const hv_peer_id *id, unsigned bits, int client) {
  static const hv_peer_id nobody;
  hv_zones_member *m = find_member(z, id);
  if (m)
    return m;
  m = find_member(z, &nobody);
  if (m)
    *m = (hv_zones_member){.id = *id, .bits = (uint16_t)bits, .client = (uint8_t)client};
  return m;
}

static int is_usable(const hv_zones *z, const hv_route_contact *contact, uint64_t now_us) {
  return contact->failures == 0 && !is_absent(z, &contact->id, now_us);
}

/* The leaf's depth follows from the routing table, and is alike for all nodes of a zone. One that cannot be asked is in no table,
 * and tells only its own leaf of itself: with another depth, nodes that take it for a member would not hear of it. */
static unsigned leaf_depth(const hv_zones *z, uint64_t now_us) {
  const hv_route *route = hv_dht_route(z->dht);
  size_t n = z->config.client_mode ? 0 : 1;
  for (unsigned b = HV_ROUTE_BUCKETS; b > 0; b--) {
    const hv_route_bucket *bucket = &route->buckets[b - 1];
    for (size_t i = 0; i < bucket->n; i++)
      n += (size_t)is_usable(z, bucket->contacts[i], now_us);
    if (n > HV_ZONES_LEAF)
      return b < HV_ZONES_LEVELS ? b : HV_ZONES_LEVELS;
  }
  return 0;
}

static void zones_look(hv_zones *z, uint64_t now_us) {
  const hv_route *route = hv_dht_route(z->dht);
  z->looked_us = now_us;
  z->leaf_bits = leaf_depth(z, now_us);
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    hv_zones_member *m = &z->members[i];
    const hv_route_contact *contact = m->client ? NULL : hv_route_find(route, &m->id);
    int stays = m->bits >= z->leaf_bits && (m->client ? is_fresh(m->heard_us, now_us) : contact && is_usable(z, contact, now_us));
    if (hv_peer_is_known(&m->id) && !stays && !(m->bits >= z->leaf_bits && is_fresh(m->heard_us, now_us)))
      free_member(m);
  }
  for (unsigned b = z->leaf_bits; b < HV_ROUTE_BUCKETS; b++)
    for (size_t i = 0; i < route->buckets[b].n; i++)
      if (is_usable(z, route->buckets[b].contacts[i], now_us))
        find_or_add_member(z, &route->buckets[b].contacts[i]->id, b, 0);
  z->active = z->leaf_bits;
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++)
    z->active += hv_peer_is_known(&z->members[i].id) && !z->members[i].client;
}

/* ---- halves ---- */

static double total_speed(const hv_sum *sum) {
  double speed = 0;
  for (size_t i = 0; i < sum->n_parts; i++)
    speed += (double)sum->parts[i].speed_milli * 1e-3;
  return speed;
}

typedef struct opinion {
  hv_sum sum;
  double place, speed, owners;
  uint32_t age_ms;
} opinion;

/* Do two say about the same? */
static int agree(const hv_zones *z, const opinion *a, const opinion *b, double near) {
  double reach = z->share * b->owners;
  double some = near < NEAR ? z->share / 4 : z->share; /* of one owner: small halves move by batches */
  near = zones_now(z) < z->begun_us + AT_FIRST_US ? NEAR_AT_FIRST : near;
  return fabs(a->place - b->place) <= near * reach + some && fabs(a->owners - b->owners) <= 1 + b->owners / 8 &&
         fabs(a->speed - b->speed) <= b->speed / 4 + 1e-9;
}

/* Extrapolates a sum to now and into the swarm's epoch, if it is older than that epoch. To be done before a sum is added to others,
 * because the mean of several ages says nothing of each. */
static void bring(const hv_zones *z, hv_sum *sum, uint64_t heard_us, uint64_t now_us) {
  hv_sum_forward(sum, now_us - heard_us);
  if (z->begun_us)
    hv_sum_carry(sum, z->epoch, now_us > z->begun_us ? now_us - z->begun_us : 0);
}

static int add_opinion(const hv_zones *z, const hv_zones_answer *answer, uint64_t now_us, opinion *out) {
  if (!is_fresh(answer->heard_us, now_us))
    return 0;
  out->sum = answer->sum;
  bring(z, &out->sum, answer->heard_us, now_us);
  out->place = hv_sum_place(&out->sum, z->epoch, z->share);
  out->speed = total_speed(&out->sum);
  out->owners = out->sum.owners;
  out->age_ms = hv_sum_age_ms(&out->sum);
  return 1;
}

/* The answers that came from there, by place. */
static size_t direct_of(const hv_zones *z, const hv_zones_half *half, uint64_t now_us, opinion said[3]) {
  size_t n = 0;
  n += (size_t)add_opinion(z, &half->asked[0], now_us, &said[n]);
  n += (size_t)add_opinion(z, &half->asked[1], now_us, &said[n]);
  n += (size_t)add_opinion(z, &half->volunteered, now_us, &said[n]);
  for (size_t i = 1; i < n; i++)
    for (size_t j = i; j > 0 && said[j - 1].place > said[j].place; j--) {
      opinion held = said[j];
      said[j] = said[j - 1];
      said[j - 1] = held;
    }
  return n;
}

/* Picks the sum that counts: the freshest answer if it agrees with the median (of two: the lower), else the median. A sum that was
 * passed on has no vote; it counts if it is fresher still and agrees. */
static void pick(hv_zones *z, hv_zones_half *half, uint64_t now_us) {
  opinion said[3], passed;
  size_t freshest = 0, n = direct_of(z, half, now_us, said);
  half->picked = (hv_sum){0};
  half->picked_us = now_us;
  if (n == 0)
    return;
  for (size_t i = 1; i < n; i++)
    freshest = said[i].age_ms < said[freshest].age_ms ? i : freshest;
  const opinion *middle = &said[(n - 1) / 2], *best = agree(z, &said[freshest], middle, NEAR) ? &said[freshest] : middle;
  if (add_opinion(z, &half->passed, now_us, &passed) && passed.age_ms < best->age_ms && agree(z, &passed, middle, NEAR_PASSED))
    best = &passed;
  half->picked = best->sum;
}

/* Somebody passes on what it counts of a half that is the same for both. */
static void hear_passed(hv_zones *z, unsigned level, uint64_t from, const hv_sum *sum) {
  hv_zones_half *half = &z->halves[level];
  uint64_t now = zones_now(z);
  hv_zones_answer answer = {.from = from, .heard_us = now, .sum = *sum};
  opinion said[3], new, old;
  size_t n = direct_of(z, half, now, said);
  if (n == 0 || !add_opinion(z, &answer, now, &new) || !agree(z, &new, &said[(n - 1) / 2], NEAR_PASSED))
    return;
  if (add_opinion(z, &half->passed, now, &old) && old.age_ms <= new.age_ms)
    return;
  if (new.age_ms < hv_sum_age_ms(&half->picked) + (now - half->picked_us) / 1000)
    half->renewed_us = now;
  half->passed = answer;
  pick(z, half, now);
}

static void hear_half(hv_zones *z, unsigned level, uint64_t from, int asked, const hv_zone_msg *said, const hv_sum *sum) {
  hv_zones_half *half = &z->halves[level];
  hv_zones_answer answer = {from, zones_now(z), said->epoch, said->in_one, *sum};
  if (hv_sum_age_ms(sum) < hv_sum_age_ms(&half->picked) + (zones_now(z) - half->picked_us) / 1000)
    half->renewed_us = zones_now(z);
  if (half->asked[0].from == from)
    half->asked[0] = answer;
  else if (asked) {
    half->asked[1] = half->asked[0];
    half->asked[0] = answer;
  } else if (half->asked[1].from == from)
    half->asked[1] = answer;
  else
    half->volunteered = answer;
  if (half->volunteered.from == from && (half->asked[0].from == from || half->asked[1].from == from))
    half->volunteered = (hv_zones_answer){0}; /* nobody has two answers */
  pick(z, half, zones_now(z));
}

/* A random contact there; NULL: none is known. */
static const hv_route_contact *contact_in(hv_zones *z, unsigned level, uint64_t now_us) {
  const hv_route_bucket *bucket = &hv_dht_route(z->dht)->buckets[level];
  const hv_route_contact *found = NULL;
  uint32_t n = 0, r;
  for (size_t i = 0; i < bucket->n; i++) {
    if (!is_usable(z, bucket->contacts[i], now_us))
      continue;
    z->env->random(z->env, &r, sizeof r);
    if (r % ++n == 0)
      found = bucket->contacts[i];
  }
  return found;
}

/* ---- adding up ---- */

static void own_of(const hv_zones *z, hv_sum *out) {
  z->config.own(z->config.arg, out);
  hv_sum_limit_each(out, z->most_samples, z->most_speed);
}

static hv_sum member_now(const hv_zones *z, const hv_zones_member *m, uint64_t now_us) {
  hv_sum sum = m->sum;
  bring(z, &sum, m->heard_us, now_us);
  hv_sum_limit_each(&sum, z->most_samples, z->most_speed);
  return sum;
}

static void leaf_within(const hv_zones *z, unsigned depth, uint64_t now_us, hv_sum *out) {
  own_of(z, out);
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    const hv_zones_member *m = &z->members[i];
    if (!hv_peer_is_known(&m->id) || m->bits < depth || !is_fresh(m->heard_us, now_us))
      continue;
    hv_sum sum = member_now(z, m, now_us);
    hv_sum_add(out, &sum);
  }
}

/* Adds what a half counts for, beside a zone that is as wide. */
static void add_half(const hv_zones *z, unsigned level, uint64_t now_us, hv_sum *out) {
  const hv_zones_half *half = &z->halves[level];
  if (!half->picked.owners || !is_fresh(half->picked_us, now_us))
    return;
  hv_sum sum = half->picked;
  bring(z, &sum, half->picked_us, now_us);
  hv_sum_limit_owners(&sum, ZONE_TIMES * out->owners + OWNERS_MORE);
  hv_sum_limit_each(&sum, z->most_zone_samples, z->most_zone_speed);
  hv_sum_add(out, &sum);
}

static void zone_within(const hv_zones *z, unsigned depth, uint64_t now_us, hv_sum *out) {
  if (depth >= HV_ZONES_SELF) {
    z->config.own(z->config.arg, out);
    return;
  }
  leaf_within(z, depth, now_us, out);
  if (depth <= z->leaf_bits)
    add_half(z, HV_ZONE_CLIENTS, now_us, out);
  for (unsigned level = z->leaf_bits; level-- > depth;)
    add_half(z, level, now_us, out);
}

/* ---- asking ---- */

static void hear_member(hv_zones *z, const hv_peer_id *id, unsigned bits, const hv_zone_msg *said, const hv_sum *sum) {
  const hv_route_contact *contact = hv_route_find(hv_dht_route(z->dht), id);
  hv_zones_member *m = bits >= z->leaf_bits && (contact || sum->clients) ? find_or_add_member(z, id, bits, !contact) : NULL;
  if (!m)
    return;
  m->client = !contact;
  m->sum = *sum;
  hv_sum_limit_owners(&m->sum, 1);
  for (size_t i = 0; i < m->sum.n_parts; i++)
    m->sum.parts[i].age_ms = 0;
  m->epoch = said->epoch;
  m->in_one = (uint8_t)said->in_one;
  m->heard_us = zones_now(z);
}

/* It is no contributor any more. A question that was on its way may have come after its Depart. */
static void says_none(hv_zones *z, const hv_peer_id *who) {
  hv_zones_member *m = find_member(z, who);
  if (m && !m->ask)
    free_member(m);
}

/* How long a message takes that comes by itself. */
static uint64_t way_us(const hv_zones *z, const hv_peer_id *who) {
  const hv_route_contact *contact = hv_route_find(hv_dht_route(z->dht), who);
  return (contact && contact->rtt_us ? contact->rtt_us : hv_dht_asker(z->dht)->rtt_us) / 2;
}

/* Takes a message in: its sender's own sum, or that of its half, which is the other half for this node; and the sums passed on. */
static void zones_hear(hv_zones *z, const hv_peer_id *who, unsigned depth, int asked, uint64_t way, hv_span bytes) {
  enum { WAY_MOST_US = 500000 };
  hv_hash hash;
  hv_zone_msg said;
  if ((z->config.has_left && z->config.has_left(z->config.arg, who)) || hv_zone_msg_unpack(bytes, &said) != HV_OK)
    return;
  hv_route_hash(z->env, who, &hash);
  unsigned bits = (unsigned)hv_hash_shared_bits(&hash, &z->me);
  const hv_route_contact *contact = hv_route_find(hv_dht_route(z->dht), who);
  for (size_t i = 0; i < said.n; i++) {
    hv_zone_sum *entry = &said.sums[i];
    hv_sum_forward(&entry->sum, way < WAY_MOST_US ? way : WAY_MOST_US);
    if (entry->sum.owners == 0) {
      if (entry->level == HV_ZONE_ASKED && depth >= HV_ZONES_SELF) {
        z->outsider_us = zones_now(z);
        if (!asked)
          says_none(z, who);
      }
      continue;
    }
    if (entry->level == HV_ZONE_CLIENTS) {
      if (z->config.client_mode && asked && contact && bits >= z->leaf_bits)
        hear_half(z, HV_ZONE_CLIENTS, mark_of(who), asked, &said, &entry->sum);
    } else if (entry->level != HV_ZONE_ASKED) {
      if (entry->level < bits && entry->level < z->leaf_bits && (asked || contact))
        hear_passed(z, entry->level, mark_of(who), &entry->sum);
    } else if (depth >= HV_ZONES_SELF)
      hear_member(z, who, bits, &said, &entry->sum);
    else if (depth == bits + 1 && bits < z->leaf_bits && (asked || contact))
      hear_half(z, bits, mark_of(who), asked, &said, &entry->sum);
  }
  if (z->config.moved)
    z->config.moved(z->config.arg);
}

/* ---- saying ---- */

/* The half of those below `bits` about which something new came last, but not since `before_us`; HV_ZONES_LEVELS: none. */
static unsigned newest_half(const hv_zones *z, unsigned bits, uint32_t taken, uint64_t but_of) {
  unsigned found = HV_ZONES_LEVELS;
  for (unsigned level = 0; level < bits && level < z->leaf_bits && level < HV_ZONE_CLIENTS; level++) {
    const hv_zones_half *half = &z->halves[level];
    if (!(taken >> level & 1) && half->picked.owners && half->passed.from != but_of &&
        (found == HV_ZONES_LEVELS || half->renewed_us > z->halves[found].renewed_us))
      found = level;
  }
  return found;
}

/* The others in client mode in the leaf of one, which it cannot ask; of nobody for who can be asked. */
static void clients_beside(const hv_zones *z, const hv_peer_id *id, uint64_t now_us, hv_sum *out) {
  const hv_zones_member *to = find_member((hv_zones *)z, id);
  *out = (hv_sum){0};
  for (size_t i = 0; to && to->client && i < HV_ZONES_MEMBERS; i++) {
    const hv_zones_member *m = &z->members[i];
    if (m == to || !hv_peer_is_known(&m->id) || !m->client || m->bits < z->leaf_bits || !is_fresh(m->heard_us, now_us))
      continue;
    hv_sum sum = member_now(z, m, now_us);
    hv_sum_add(out, &sum);
  }
}

/* This zone around me, and of what is the same for whoever hears it what is newest. */
static size_t zones_write(const hv_zones *z, const hv_peer_id *to, unsigned depth, uint64_t now_us,
                          uint8_t out[HV_ZONE_MSG_BYTES_MAX]) {
  hv_zone_msg msg = {.n = 1, .sums[0].level = HV_ZONE_ASKED};
  hv_hash hash;
  hv_sum own;
  uint32_t taken = 0;
  z->config.own(z->config.arg, &own);
  for (size_t i = 0; i < own.n_parts; i++)
    msg.epoch = own.parts[i].epoch > msg.epoch ? own.parts[i].epoch : msg.epoch;
  msg.in_one = own.owners > 0;
  zone_within(z, depth, now_us, &msg.sums[0].sum);
  hv_route_hash(z->env, to, &hash);
  unsigned bits = (unsigned)hv_hash_shared_bits(&hash, &z->me);
  clients_beside(z, to, now_us, &msg.sums[1].sum);
  if (msg.sums[1].sum.owners)
    msg.sums[msg.n++].level = HV_ZONE_CLIENTS;
  for (unsigned passed = 0; passed < HV_ZONES_PASSED; passed++) {
    unsigned level = newest_half(z, bits, taken, mark_of(to));
    if (level == HV_ZONES_LEVELS)
      break;
    hv_zone_sum *entry = &msg.sums[msg.n++];
    taken |= UINT32_C(1) << level;
    entry->level = level;
    entry->sum = z->halves[level].picked;
    bring(z, &entry->sum, z->halves[level].picked_us, now_us);
  }
  return hv_zone_msg_pack(&msg, out);
}

static void zones_answered(void *owner, size_t slot, hv_status status, const hv_msg *msg, const char *text) {
  hv_zones *z = owner;
  (void)text;
  hv_zones_member *m = slot < HV_ZONES_MEMBERS ? &z->members[slot] : NULL;
  hv_zones_half *half = m ? NULL : &z->halves[slot - HV_ZONES_MEMBERS];
  hv_peer_id who = m ? m->id : half->asked_peer;
  unsigned depth = m ? HV_ZONES_SELF : (unsigned)(slot - HV_ZONES_MEMBERS) + 1;
  uint64_t asked_us = m ? m->tried_us : half->tried_us;
  if (m)
    m->ask = NULL;
  else
    half->ask = NULL;
  if (status != HV_OK || msg->kind != HV_MSG_PROGRESS_TOLD)
    return;
  if (!msg->u.progress_told.absent) {
    zones_hear(z, &who, depth, 1, (zones_now(z) - asked_us) / 2, msg->u.progress_told.words);
    return;
  }
  note_absent(z, mark_of(&who));
  if (m)
    free_member(m);
}

/* Tells what it asks for. */
static void zones_ask(hv_zones *z, const hv_route_contact *contact, size_t slot, unsigned depth, hv_ask **out) {
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  size_t size = zones_write(z, &contact->id, depth, zones_now(z), bytes);
  hv_msg msg = {.kind = HV_MSG_PROGRESS, .u.progress = {.run = z->config.run, .depth = depth, .words = hv_span_of(bytes, size)}};
  hv_asker_ask(hv_dht_asker(z->dht), &contact->id, hv_span_of(contact->addrs, contact->addrs_size), &msg, 0, zones_answered, z,
               slot, out);
}

static uint64_t latest(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* The member or half that was not heard for longest; ALL: there is none. */
static size_t next_slot(const hv_zones *z) {
  size_t found = ALL;
  uint64_t oldest = UINT64_MAX;
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    const hv_zones_member *m = &z->members[i];
    uint64_t since = latest(m->heard_us, m->tried_us);
    if (hv_peer_is_known(&m->id) && !m->client && !m->ask && since < oldest) {
      oldest = since;
      found = i;
    }
  }
  for (unsigned level = 0; level < z->leaf_bits; level++) {
    const hv_zones_half *half = &z->halves[level];
    uint64_t since = latest(latest(half->asked[0].heard_us, half->volunteered.heard_us), half->tried_us);
    since += since ? z->round_us / 2 : 0; /* others pass on what is told of it; of a member nobody does */
    if (!half->ask && since < oldest) {
      oldest = since;
      found = HV_ZONES_MEMBERS + level;
    }
  }
  return found;
}

static void ask_next(hv_zones *z, uint64_t now_us) {
  const hv_route_contact *contact;
  size_t slot = next_slot(z);
  if (slot < HV_ZONES_MEMBERS) {
    hv_zones_member *m = &z->members[slot];
    m->tried_us = now_us;
    if ((contact = hv_route_find(hv_dht_route(z->dht), &m->id)))
      zones_ask(z, contact, slot, HV_ZONES_SELF, &m->ask);
  } else if (slot < ALL) {
    unsigned level = (unsigned)(slot - HV_ZONES_MEMBERS);
    hv_zones_half *half = &z->halves[level];
    half->tried_us = now_us;
    if ((contact = contact_in(z, level, now_us))) {
      half->asked_peer = contact->id;
      zones_ask(z, contact, slot, level + 1, &half->ask);
    }
  }
}

void hv_zones_hurry(hv_zones *z) {
  uint64_t now = zones_now(z);
  memset(z->absent, 0, sizeof z->absent); /* who took no part then may do so now, as this node may */
  zones_look(z, now);
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    hv_zones_member *m = &z->members[i];
    const hv_route_contact *contact = NULL;
    if (hv_peer_is_known(&m->id) && !m->client && !m->ask)
      contact = hv_route_find(hv_dht_route(z->dht), &m->id);
    if (!contact)
      continue;
    m->tried_us = now;
    zones_ask(z, contact, i, HV_ZONES_SELF, &m->ask);
  }
}

static uint64_t pause_us(const hv_zones *z) {
  uint64_t pause = z->round_us / (z->active ? z->active : 1);
  return pause > TICK_LEAST_US ? pause : TICK_LEAST_US;
}

static void ask_in(hv_zones *z, uint64_t us) {
  z->due_us = zones_now(z) + us;
  z->env->timer_set(z->env, &z->timer, us);
}

static void zones_tick(hv_timer *timer, const hv_event *event) {
  hv_zones *z = timer->owner;
  if (event->now_us - z->looked_us >= LOOK_US || z->looked_us == 0)
    zones_look(z, event->now_us);
  ask_next(z, event->now_us);
  ask_in(z, pause_us(z));
}

/* ---- limits ---- */

/* The most that one owner of the leaf counts for, as tally.h has it. */
static void limit_leaf(hv_zones *z, uint64_t now_us) {
  double samples[HV_ZONES_MEMBERS + 1], speeds[HV_ZONES_MEMBERS + 1];
  hv_sum own;
  size_t n = 0;
  z->config.own(z->config.arg, &own);
  if (own.owners) {
    samples[n] = hv_sum_samples(&own, z->epoch);
    speeds[n++] = total_speed(&own);
  }
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    const hv_zones_member *m = &z->members[i];
    if (!hv_peer_is_known(&m->id) || !is_fresh(m->heard_us, now_us))
      continue;
    hv_sum sum = m->sum;
    hv_sum_forward(&sum, now_us - m->heard_us);
    samples[n] = hv_sum_samples(&sum, z->epoch);
    speeds[n++] = total_speed(&sum);
  }
  z->most_samples = fmax(z->config.fast * hv_tally_reference(samples, n, n / 3), z->share);
  z->most_speed = z->config.fast * hv_tally_reference(speeds, n, n / 3);
}

/* The most that one owner counts for in the mean of a zone. */
static void limit_zones(hv_zones *z, uint64_t now_us) {
  double samples[HV_ZONES_LEVELS + 1], speeds[HV_ZONES_LEVELS + 1];
  hv_sum leaf;
  size_t n = 0;
  leaf_within(z, z->leaf_bits, now_us, &leaf);
  if (leaf.owners) {
    samples[n] = hv_sum_samples(&leaf, z->epoch) / leaf.owners;
    speeds[n++] = total_speed(&leaf) / leaf.owners;
  }
  for (unsigned level = 0; level < z->leaf_bits; level++) {
    const hv_sum *sum = &z->halves[level].picked;
    if (!sum->owners || !is_fresh(z->halves[level].picked_us, now_us))
      continue;
    samples[n] = hv_sum_samples(sum, z->epoch) / sum->owners;
    speeds[n++] = total_speed(sum) / sum->owners;
  }
  z->most_zone_samples = fmax(z->config.fast * hv_tally_reference(samples, n, n / 3), z->share);
  z->most_zone_speed = z->config.fast * hv_tally_reference(speeds, n, n / 3);
}

/* The epoch that more than a third of the peers heard directly have reached: this node, its leaf, and the answers about each
 * half, a sample of the swarm of which nobody chose more than one in three. Sums take longer to come than the word of who said
 * them. */
static uint64_t zones_epoch(const hv_zones *z, uint64_t now_us) {
  double epochs[1 + HV_ZONES_MEMBERS + 3 * HV_ZONES_LEVELS];
  hv_sum own;
  size_t n = 0;
  z->config.own(z->config.arg, &own);
  if (own.owners) {
    epochs[n] = 0;
    for (size_t i = 0; i < own.n_parts; i++)
      epochs[n] = fmax(epochs[n], (double)own.parts[i].epoch);
    n++;
  }
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    const hv_zones_member *m = &z->members[i];
    if (hv_peer_is_known(&m->id) && m->in_one && is_fresh(m->heard_us, now_us))
      epochs[n++] = (double)m->epoch; /* 48 bits: exact */
  }
  for (unsigned level = 0; level < z->leaf_bits; level++) {
    const hv_zones_answer *answers[] = {&z->halves[level].asked[0], &z->halves[level].asked[1], &z->halves[level].volunteered};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
      if (answers[i]->in_one && is_fresh(answers[i]->heard_us, now_us))
        epochs[n++] = (double)answers[i]->epoch;
  }
  return (uint64_t)hv_tally_reference(epochs, n, n / 3);
}

void hv_zones_count(hv_zones *z, hv_sum *out) {
  uint64_t now = zones_now(z);
  z->epoch = zones_epoch(z, now);
  pick(z, &z->halves[HV_ZONE_CLIENTS], now);
  for (unsigned level = 0; level < z->leaf_bits; level++)
    pick(z, &z->halves[level], now);
  zone_within(z, 0, now, out);
  uint64_t since_us = hv_sum_since_us(out, z->epoch);
  z->begun_us = now > since_us ? now - since_us : 0;
  z->share = (double)z->config.target / (out->owners ? out->owners : 1);
  limit_leaf(z, now);
  limit_zones(z, now);
  zone_within(z, 0, now, out);
}

int hv_zones_hears_outsider(const hv_zones *z) {
  return is_fresh(z->outsider_us, zones_now(z));
}

size_t hv_zones_heard(const hv_zones *z) {
  uint64_t now = zones_now(z);
  size_t n = 0;
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++)
    n += hv_peer_is_known(&z->members[i].id) && is_fresh(z->members[i].heard_us, now);
  for (unsigned level = 0; level < z->leaf_bits; level++)
    n += z->halves[level].picked.owners && is_fresh(z->halves[level].picked_us, now);
  return n;
}

int hv_zones_is_wide(const hv_zones *z) {
  return z->leaf_bits > 0;
}

int hv_zones_member_of(const hv_zones *z, const hv_peer_id *id, hv_sum *out, uint64_t *heard_us) {
  const hv_zones_member *m = find_member((hv_zones *)z, id);
  if (!m || !is_fresh(m->heard_us, zones_now(z)))
    return 0;
  *out = m->sum;
  *heard_us = m->heard_us;
  return 1;
}

/* ---- who has gone ---- */

size_t hv_zones_heard_from(const hv_zones *z, hv_target *out) {
  size_t n = 0;
  hv_addr addr;
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++) {
    const hv_zones_member *m = &z->members[i];
    const hv_route_contact *contact = is_fresh(m->heard_us, zones_now(z)) ? hv_route_find(hv_dht_route(z->dht), &m->id) : NULL;
    if (contact && hv_contact_unpack(hv_span_of(contact->addrs, contact->addrs_size), &addr, 1) == 1)
      out[n++] = (hv_target){m->id, addr};
  }
  return n;
}

static void forget_voice(hv_zones_answer *answer, uint64_t who) {
  if (answer->from == who)
    *answer = (hv_zones_answer){0};
}

void hv_zones_gone(hv_zones *z, const hv_peer_id *id, int is_there) {
  uint64_t who = mark_of(id);
  hv_zones_member *m = find_member(z, id);
  if (is_there) {
    z->outsider_us = zones_now(z);
    note_absent(z, who);
  }
  if (m)
    free_member(m);
  for (unsigned level = 0; level < HV_ZONES_LEVELS; level++) {
    forget_voice(&z->halves[level].asked[0], who);
    forget_voice(&z->halves[level].asked[1], who);
    forget_voice(&z->halves[level].volunteered, who);
  }
}

/* ---- answering ---- */

void hv_zones_asked(hv_zones *z, const hv_event *event) {
  const hv_msg_progress *asked = &event->msg->u.progress;
  hv_msg answer = {.kind = HV_MSG_PROGRESS_TOLD};
  uint8_t bytes[HV_ZONE_MSG_BYTES_MAX];
  note_present(z, &event->request->peer);
  zones_hear(z, &event->request->peer, asked->depth, 0, way_us(z, &event->request->peer), asked->words);
  size_t size = zones_write(z, &event->request->peer, asked->depth, event->now_us, bytes);
  answer.u.progress_told.words = hv_span_of(bytes, size);
  z->env->reply(z->env, event->request, &answer);
}

/* ---- life ---- */

void hv_zones_init(hv_zones *z, hv_env *env, hv_dht *dht, const hv_zones_config *config) {
  uint32_t r;
  *z = (hv_zones){.env = env, .dht = dht, .config = *config, .round_us = 1000000, .me = hv_dht_route(dht)->me};
  z->most_samples = z->most_speed = z->most_zone_samples = z->most_zone_speed = HV_REPORT_SAMPLES_MAX;
  z->share = (double)config->target;
  z->timer = (hv_timer){.fire = zones_tick, .owner = z};
  zones_look(z, zones_now(z));
  env->random(env, &r, sizeof r);
  ask_in(z, r % 100000);
}

void hv_zones_fini(hv_zones *z) {
  z->env->timer_clear(z->env, &z->timer);
  for (size_t i = 0; i < HV_ZONES_MEMBERS; i++)
    if (z->members[i].ask)
      hv_ask_drop(z->members[i].ask);
  for (unsigned level = 0; level < HV_ZONES_LEVELS; level++)
    if (z->halves[level].ask)
      hv_ask_drop(z->halves[level].ask);
}

void hv_zones_pace(hv_zones *z, uint64_t round_us) {
  z->round_us = round_us;
  if (zones_now(z) + pause_us(z) < z->due_us)
    ask_in(z, pause_us(z));
}
