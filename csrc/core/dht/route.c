#include "core/dht/route.h"

#include <math.h>
#include <string.h>

enum {
  HEARD_LATELY_MS = 15000, /* a contact this fresh is not asked for the sake of a newcomer */
  LONGEST_BACKOFF_MS = 600000,
  DENSITY_SAMPLE = 16, /* neighbours that tell how many nodes there are */
  LEFT_OUT_MS = 1200000,
  BRANCH_BITS = 3, /* the parts of a bucket, of which none may crowd out the others */
};

void hv_route_hash(hv_env *env, const hv_peer_id *id, hv_hash *out) {
  env->sha256(env, hv_span_of(id->key, sizeof id->key), out);
}

void hv_route_init(hv_route *route, hv_env *env, const hv_route_config *config) {
  *route = (hv_route){.env = env, .config = *config};
  if (!route->config.bucket_size)
    route->config.bucket_size = 20;
  if (!route->config.blacklist_ms)
    route->config.blacklist_ms = 5000;
  if (!route->config.backoff_rate)
    route->config.backoff_rate = 2;
  hv_route_hash(env, &config->me, &route->me);
}

void hv_route_fini(hv_route *route) {
  for (size_t b = 0; b < HV_ROUTE_BUCKETS; b++) {
    hv_route_bucket *bucket = &route->buckets[b];
    for (size_t i = 0; i < bucket->n; i++)
      hv_mem_free(bucket->contacts[i]);
    hv_mem_free(bucket->contacts);
    hv_mem_free(bucket->waiting);
  }
  memset(route->buckets, 0, sizeof route->buckets);
}

/* ---- silence ---- */

static uint64_t backoff_us(const hv_route *route, unsigned failures) {
  uint64_t ms = route->config.blacklist_ms;
  while (--failures && ms < LONGEST_BACKOFF_MS)
    ms *= route->config.backoff_rate;
  return (ms < LONGEST_BACKOFF_MS ? ms : LONGEST_BACKOFF_MS) * 1000;
}

static uint64_t short_id(const hv_peer_id *id) {
  uint64_t bytes;
  memcpy(&bytes, id->key, sizeof bytes);
  return bytes ? bytes : 1;
}

static void remember_silence(hv_route *route, const hv_peer_id *id, uint64_t now_us) {
  hv_route_silent *slot = &route->silent[short_id(id) % HV_ROUTE_BLACKLIST];
  if (slot->id != short_id(id))
    *slot = (hv_route_silent){.id = short_id(id)};
  slot->retry_us = now_us + backoff_us(route, ++slot->failures);
}

int hv_route_is_silent(const hv_route *route, const hv_peer_id *id) {
  const hv_route_silent *slot = &route->silent[short_id(id) % HV_ROUTE_BLACKLIST];
  uint64_t now = route->env->now_us(route->env);
  if (slot->id == short_id(id) && slot->retry_us > now)
    return 1;
  const hv_route_contact *contact = hv_route_find(route, id);
  return contact && contact->failures && contact->retry_us > now;
}

/* ---- buckets ---- */

static size_t bucket_of(const hv_route *route, const hv_hash *hash) {
  size_t shared = (size_t)hv_hash_shared_bits(&route->me, hash);
  return shared < HV_ROUTE_BUCKETS ? shared : HV_ROUTE_BUCKETS - 1;
}

static size_t position(const hv_route_bucket *bucket, const hv_peer_id *id) {
  size_t i = 0;
  while (i < bucket->n && !hv_peer_equal(&bucket->contacts[i]->id, id))
    i++;
  return i;
}

size_t hv_route_room(const hv_route *route, size_t bucket) {
  return route->config.bucket_size << (bucket == 0);
}

static int is_full(const hv_route *route, const hv_route_bucket *bucket) {
  return bucket->n >= hv_route_room(route, (size_t)(bucket - route->buckets));
}

const hv_route_bucket *hv_route_bucket_of(const hv_route *route, const hv_hash *hash) {
  return &route->buckets[bucket_of(route, hash)];
}

const hv_route_contact *hv_route_find(const hv_route *route, const hv_peer_id *id) {
  hv_hash hash;
  hv_route_hash(route->env, id, &hash);
  const hv_route_bucket *bucket = &route->buckets[bucket_of(route, &hash)];
  size_t i = position(bucket, id);
  return i < bucket->n ? bucket->contacts[i] : NULL;
}

static size_t neighbours(const hv_route_bucket *bucket, uint64_t network, const hv_peer_id *but) {
  size_t n = 0;
  for (size_t i = 0; network && i < bucket->n; i++)
    n += bucket->contacts[i]->network == network && !hv_peer_equal(&bucket->contacts[i]->id, but);
  return n;
}

static hv_route_contact *new_contact(hv_route *route, const hv_peer_id *id, const hv_hash *hash, const hv_addr *addrs, size_t n) {
  uint8_t packed[HV_CONTACT_ADDRS_MAX];
  size_t size = hv_contact_pack(addrs, n, packed);
  hv_route_contact *contact = size ? hv_mem_alloc(route->env->mem, sizeof *contact + size) : NULL;
  if (!contact)
    return NULL;
  *contact = (hv_route_contact){.hash = *hash, .id = *id, .network = hv_contact_network(&addrs[0]), .addrs_size = (uint8_t)size};
  memcpy(contact->addrs, packed, size);
  return contact;
}

static hv_route_contact *route_take_out(hv_route *route, hv_route_bucket *bucket, size_t i) {
  hv_route_contact *contact = bucket->contacts[i];
  memmove(bucket->contacts + i, bucket->contacts + i + 1, (--bucket->n - i) * sizeof *bucket->contacts);
  route->n--;
  route->changes++;
  return contact;
}

/* Puts it last: it was heard most lately. */
static int put_in(hv_route *route, hv_route_bucket *bucket, hv_route_contact *contact) {
  size_t at = (size_t)(bucket - route->buckets);
  if (!bucket->contacts)
    bucket->contacts = hv_mem_array(route->env->mem, hv_route_room(route, at), sizeof *bucket->contacts);
  if (!bucket->contacts || is_full(route, bucket))
    return 0;
  bucket->contacts[bucket->n++] = contact;
  if (route->end <= at)
    route->end = at + 1;
  route->n++;
  route->changes++;
  return 1;
}

/* The contact that gives way to a newcomer without a question: the one whose silence has lasted longest. */
static size_t worst_silent(const hv_route_bucket *bucket) {
  size_t worst = bucket->n;
  for (size_t i = 0; i < bucket->n; i++)
    if (bucket->contacts[i]->failures && (worst == bucket->n || bucket->contacts[i]->failures > bucket->contacts[worst]->failures))
      worst = i;
  return worst;
}

/* The next bits of a hash after those that its bucket's contacts share: in which of its parts it stands. */
static size_t branch_of(const hv_route *route, const hv_route_bucket *bucket, const hv_hash *hash) {
  size_t branch = 0, first = (size_t)(bucket - route->buckets) + 1;
  for (size_t bit = first; bit < first + BRANCH_BITS && bit < HV_ROUTE_BUCKETS; bit++)
    branch = branch * 2 + (size_t)(hash->bytes[bit / 8] >> (7 - bit % 8) & 1);
  return branch;
}

/* The contact of a full bucket that gives way to one that stands elsewhere in it: the one silent longest of the part that most
 * stand in, if clearly fewer stand where the newcomer does. A crowd would hide all others of its bucket. */
static size_t one_too_many(const hv_route *route, const hv_route_bucket *bucket, const hv_hash *newcomer) {
  size_t held[1 << BRANCH_BITS] = {0}, thickest = 0, mine = branch_of(route, bucket, newcomer);
  for (size_t i = 0; i < bucket->n; i++) {
    size_t branch = branch_of(route, bucket, &bucket->contacts[i]->hash);
    thickest = ++held[branch] > held[thickest] ? branch : thickest;
  }
  if (held[mine] + 2 > held[thickest])
    return bucket->n;
  size_t i = 0;
  while (branch_of(route, bucket, &bucket->contacts[i]->hash) != thickest)
    i++;
  return i;
}

static void wait_beside(hv_route_bucket *bucket, hv_route_contact *contact) {
  hv_mem_free(bucket->waiting);
  bucket->waiting = contact;
}

static void route_heard(hv_route *route, hv_route_bucket *bucket, size_t i, const hv_route_contact *news) {
  hv_route_contact *contact = bucket->contacts[i];
  contact->seen_us = news->seen_us;
  contact->rtt_us = contact->rtt_us ? (contact->rtt_us * 7 + news->rtt_us) / 8 : news->rtt_us;
  if (contact->failures)
    route->changes++;
  contact->failures = 0;
  memmove(bucket->contacts + i, bucket->contacts + i + 1, (bucket->n - 1 - i) * sizeof *bucket->contacts);
  bucket->contacts[bucket->n - 1] = contact;
}

static int same_addrs(const hv_route_contact *a, const hv_route_contact *b) {
  return hv_span_equal(hv_span_of(a->addrs, a->addrs_size), hv_span_of(b->addrs, b->addrs_size));
}

/* Takes contact over: into the bucket, beside it, or away. */
static int route_place(hv_route *route, hv_route_bucket *bucket, hv_route_contact *contact) {
  size_t i = position(bucket, &contact->id);
  int known = i < bucket->n;
  if (neighbours(bucket, contact->network, &contact->id) >= HV_ROUTE_PER_NETWORK) {
    if (known && bucket->contacts[i]->network != contact->network) /* it moved to where there are too many already */
      hv_mem_free(route_take_out(route, bucket, i));
    bucket->left_out_us = contact->seen_us;
    hv_mem_free(contact);
    return 0;
  }
  if (known && same_addrs(bucket->contacts[i], contact)) {
    route_heard(route, bucket, i, contact);
    hv_mem_free(contact);
    return 1;
  }
  if (!known && is_full(route, bucket)) {
    i = worst_silent(bucket);
    if (i == bucket->n && (i = one_too_many(route, bucket, &contact->hash)) < bucket->n)
      bucket->left_out_us = contact->seen_us;
  }
  if (i < bucket->n)
    hv_mem_free(route_take_out(route, bucket, i));
  if (put_in(route, bucket, contact))
    return 1;
  bucket->left_out_us = contact->seen_us;
  wait_beside(bucket, contact);
  return 0;
}

int hv_route_answered(hv_route *route, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint32_t rtt_us) {
  hv_hash hash;
  hv_route_silent *slot = &route->silent[short_id(id) % HV_ROUTE_BLACKLIST];
  if (slot->id == short_id(id))
    *slot = (hv_route_silent){0};
  if (hv_peer_equal(id, &route->config.me) || !hv_peer_is_known(id) || n_addrs == 0)
    return 0;
  hv_route_hash(route->env, id, &hash);
  hv_route_contact *contact = new_contact(route, id, &hash, addrs, n_addrs);
  if (!contact)
    return 0;
  contact->seen_us = route->env->now_us(route->env);
  contact->rtt_us = rtt_us;
  return route_place(route, &route->buckets[bucket_of(route, &hash)], contact);
}

void hv_route_silence(hv_route *route, const hv_peer_id *id) {
  hv_hash hash;
  uint64_t now = route->env->now_us(route->env);
  hv_route_hash(route->env, id, &hash);
  hv_route_bucket *bucket = &route->buckets[bucket_of(route, &hash)];
  if (bucket->waiting && hv_peer_equal(&bucket->waiting->id, id))
    wait_beside(bucket, NULL);
  size_t i = position(bucket, id);
  if (i == bucket->n) {
    remember_silence(route, id, now);
    return;
  }
  hv_route_contact *contact = bucket->contacts[i];
  if (contact->failures < UINT16_MAX)
    contact->failures++;
  contact->retry_us = now + backoff_us(route, contact->failures);
  route->changes++;
  hv_route_contact *waiting = bucket->waiting;
  if (!waiting)
    return;
  bucket->waiting = NULL;
  route_place(route, bucket, waiting);
}

int hv_route_wants(const hv_route *route, const hv_peer_id *id, const hv_hash *hash) {
  const hv_route_bucket *bucket = &route->buckets[bucket_of(route, hash)];
  if (hv_peer_equal(id, &route->config.me) || position(bucket, id) < bucket->n || hv_route_is_silent(route, id))
    return 0;
  if (!is_full(route, bucket) || worst_silent(bucket) < bucket->n || one_too_many(route, bucket, hash) < bucket->n)
    return 1;
  return !bucket->waiting && bucket->contacts[0]->seen_us + HEARD_LATELY_MS * UINT64_C(1000) < route->env->now_us(route->env);
}

const hv_route_contact *hv_route_doubtful(const hv_route *route, const hv_hash *hash) {
  const hv_route_bucket *bucket = &route->buckets[bucket_of(route, hash)];
  if (!bucket->waiting || bucket->n == 0)
    return NULL;
  const hv_route_contact *oldest = bucket->contacts[0];
  return oldest->seen_us + HEARD_LATELY_MS * UINT64_C(1000) < route->env->now_us(route->env) ? oldest : NULL;
}

/* ---- questions ---- */

typedef struct nearest {
  const hv_hash *target;
  const hv_peer_id *except;
  const hv_route_contact **out;
  size_t n, max;
} nearest;

static void offer(nearest *list, const hv_route_bucket *bucket) {
  for (size_t b = 0; b < bucket->n; b++) {
    const hv_route_contact *contact = bucket->contacts[b];
    if (contact->failures || (list->except && hv_peer_equal(list->except, &contact->id)))
      continue;
    size_t i = list->n < list->max ? list->n++ : list->max - 1;
    if (i == list->max - 1 && list->out[i] && hv_hash_nearer(list->target, &contact->hash, &list->out[i]->hash) >= 0)
      continue;
    for (; i > 0 && hv_hash_nearer(list->target, &contact->hash, &list->out[i - 1]->hash) < 0; i--)
      list->out[i] = list->out[i - 1];
    list->out[i] = contact;
  }
}

size_t hv_route_nearest(const hv_route *route, const hv_hash *target, const hv_peer_id *except, const hv_route_contact **out,
                        size_t max) {
  nearest list = {target, except, out, 0, max};
  if (list.max == 0)
    return 0;
  memset(out, 0, list.max * sizeof *out);
  size_t at = bucket_of(route, target);
  /* The target's own bucket is nearest; then all beyond it, which only together are in order; then outwards, each farther than all
   * before. */
  offer(&list, &route->buckets[at]);
  if (list.n < list.max)
    for (size_t b = at + 1; b < route->end; b++)
      offer(&list, &route->buckets[b]);
  for (size_t b = at; list.n < list.max && b-- > 0;)
    offer(&list, &route->buckets[b]);
  return list.n;
}

static size_t alive_in(const hv_route_bucket *bucket) {
  size_t n = 0;
  for (size_t i = 0; i < bucket->n; i++)
    n += bucket->contacts[i]->failures == 0;
  return n;
}

static int is_whole(const hv_route *route, const hv_route_bucket *bucket) {
  uint64_t lately = LEFT_OUT_MS * UINT64_C(1000), now = route->env->now_us(route->env);
  return bucket->n == 0 ||
         (bucket->looked_us && !is_full(route, bucket) && (!bucket->left_out_us || bucket->left_out_us + lately < now));
}

/* In the order of hv_route_nearest: the target's own bucket; all beyond it together; then outwards one by one. */
int hv_route_knows(const hv_route *route, const hv_hash *target, size_t n) {
  size_t at = bucket_of(route, target), found = alive_in(&route->buckets[at]);
  int whole = is_whole(route, &route->buckets[at]);
  for (size_t b = at + 1; found < n && whole && b < HV_ROUTE_BUCKETS; b++)
    whole = is_whole(route, &route->buckets[b]);
  for (size_t b = at + 1; found < n && whole && b < HV_ROUTE_BUCKETS; b++)
    found += alive_in(&route->buckets[b]);
  for (size_t b = at; found < n && whole && b-- > 0;) {
    whole = is_whole(route, &route->buckets[b]);
    found += alive_in(&route->buckets[b]);
  }
  return whole && route->n > 0;
}

const hv_route_contact *hv_route_to_retry(const hv_route *route) {
  const hv_route_contact *first = NULL;
  uint64_t now = route->env->now_us(route->env);
  for (size_t b = 0; b < route->end; b++)
    for (size_t i = 0; i < route->buckets[b].n; i++) {
      const hv_route_contact *contact = route->buckets[b].contacts[i];
      if (contact->failures && contact->retry_us <= now && (!first || contact->retry_us < first->retry_us))
        first = contact;
    }
  return first;
}

/* -log2 of a distance's share of the whole space. */
static double bits_of(const hv_hash *distance) {
  double share = 0;
  for (int i = 15; i >= 0; i--)
    share = (share + distance->bytes[i]) / 256;
  return share > 0 ? -log2(share) : 128;
}

void hv_route_sample(hv_route *route, size_t bucket, const hv_hash *distance, size_t n) {
  double bits = bits_of(distance);
  if (n && bucket < HV_ROUTE_REGIONS)
    route->samples[bucket] = bits < (double)bucket + 1 ? 0 : bits + log2((double)n);
}

int hv_route_lacks_sample(const hv_route *route, size_t bucket) {
  return bucket < HV_ROUTE_REGIONS && route->samples[bucket] == 0 && is_full(route, &route->buckets[bucket]);
}

/* The words of parts of the space about log2 of how many nodes there are, the least first. */
typedef struct estimates {
  double log2_nodes[HV_ROUTE_REGIONS + 1], weights[HV_ROUTE_REGIONS + 1], weight;
  size_t n;
} estimates;

static void route_add_estimate(estimates *w, double log2_nodes, size_t nodes) {
  double weight = nodes < DENSITY_SAMPLE ? (double)nodes : DENSITY_SAMPLE;
  size_t at = w->n++;
  for (; at > 0 && w->log2_nodes[at - 1] > log2_nodes; at--) {
    w->log2_nodes[at] = w->log2_nodes[at - 1];
    w->weights[at] = w->weights[at - 1];
  }
  w->log2_nodes[at] = log2_nodes;
  w->weights[at] = weight;
  w->weight += weight;
}

/* By the buckets, and by how densely nodes stand around me, if that is beyond those: else it would count some twice. */
static double median_estimate(const hv_route *route, const hv_hash *around) {
  estimates w = {.n = 0};
  for (size_t b = 0; b < HV_ROUTE_REGIONS; b++) {
    size_t alive = alive_in(&route->buckets[b]);
    if (!is_full(route, &route->buckets[b]) && alive)
      route_add_estimate(&w, log2((double)alive) + (double)b + 1, alive);
    else if (is_full(route, &route->buckets[b]) && route->samples[b] > 0)
      route_add_estimate(&w, route->samples[b], DENSITY_SAMPLE);
  }
  hv_hash distance = hv_hash_distance(&route->me, around);
  double bits = bits_of(&distance), below = 0;
  if (bits >= HV_ROUTE_REGIONS || w.n == 0)
    route_add_estimate(&w, bits + log2(DENSITY_SAMPLE), DENSITY_SAMPLE);
  size_t i = 0;
  while ((below += w.weights[i]) < w.weight / 2)
    i++;
  return w.log2_nodes[i];
}

double hv_route_bits(const hv_route *route, size_t n) {
  const hv_route_contact *around[DENSITY_SAMPLE];
  size_t sample = hv_route_nearest(route, &route->me, NULL, around, DENSITY_SAMPLE);
  if (sample < 4 || n == 0)
    return 0;
  double nodes = log2((double)(route->n + 1)); /* fewer than a sample: that is everybody, all over the space */
  if (sample == DENSITY_SAMPLE)
    nodes = median_estimate(route, &around[DENSITY_SAMPLE - 1]->hash);
  return nodes > log2((double)n) ? nodes - log2((double)n) : 0;
}
