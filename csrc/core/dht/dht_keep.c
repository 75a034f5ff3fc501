#include "core/dht/dht_inner.h"

#include <string.h>

enum {
  TICK_US = 5000000,
  FIRST_LOOK_US = 200000,
  LOOK_AGAIN_US = 10000000, /* after the first look: those who began together know more by then */
  FEW = 8,                  /* with no more contacts than this, a new one is reason to look around at once */
  RETRIES = 4,              /* silent contacts asked again in one tick */
  AGAIN_AT_ONCE = 8,        /* republications under way */
  PUSH_RECORDS = 64,
  PUSH_BYTES = 256 << 10,
  PUSH_PEERS = 16,
  SAMPLE = 16, /* nodes around a random point that tell how densely they stand */
};

/* ---- looking around ---- */

static void refresh_buckets(hv_dht *dht, uint64_t now_us);

/* A refresh has looked at a random point: how densely do nodes stand there? */
static void sample_density(hv_dht *dht, const hv_lookup *lookup, size_t bucket) {
  const hv_lookup_node *last = hv_lookup_nearest(lookup, SAMPLE - 1);
  if (last)
    hv_route_sample(&dht->route, bucket, &last->distance, SAMPLE);
}

/* As many nodes as a bucket holds have answered around this node: the buckets of all nearer nodes have been searched, too. */
static void has_looked_around(hv_dht *dht, const hv_lookup *lookup) {
  const hv_lookup_node *last = hv_lookup_nearest(lookup, dht->config.bucket_size - 1);
  hv_hash mine = {{0}};
  for (int b = last ? hv_hash_shared_bits(&mine, &last->distance) + 1 : HV_ROUTE_BUCKETS; b < HV_ROUTE_BUCKETS; b++) {
    hv_route_bucket *bucket = &dht->route.buckets[b];
    bucket->looked_us = dht->env->now_us(dht->env);
    bucket->looks = bucket->looks > 2 ? bucket->looks : 2; /* it is done again soon anyway */
  }
}

static void keep_looked(void *owner, hv_lookup *lookup) {
  hv_dht *dht = owner;
  for (size_t i = 0; i < sizeof dht->looks / sizeof *dht->looks; i++)
    if (dht->looks[i] == lookup) {
      dht->looks[i] = NULL;
      if (i)
        sample_density(dht, lookup, dht->look_buckets[i]);
      else
        has_looked_around(dht, lookup);
    }
  dht->looked |= !dht->looks[0];
  hv_lookup_end(lookup);
  if (dht->looked && !dht->looks[0])
    refresh_buckets(dht, dht->env->now_us(dht->env)); /* one after the other */
}

static void look_for(hv_dht *dht, hv_lookup **slot, const hv_hash *target, size_t width) {
  hv_lookup_config config = {.target = *target,
                             .key = *target,
                             .width = width,
                             .parallel = dht->config.parallel_rpc,
                             .paths = 1,
                             .me = hv_span_of(dht->me, dht->me_size),
                             .done = keep_looked,
                             .owner = dht};
  if (hv_lookup_start(&dht->asker, &config, slot) != HV_OK)
    *slot = NULL;
}

static uint64_t spread(hv_dht *dht, uint64_t us) {
  uint32_t r;
  dht->env->random(dht->env, &r, sizeof r);
  return us - us / 4 + us / 2 * (r >> 16) / 65536;
}

static void wake_at(hv_dht *dht, uint64_t due_us) {
  uint64_t now = dht->env->now_us(dht->env);
  if (dht->stopping || !dht->started || due_us >= dht->wake_us)
    return;
  dht->wake_us = due_us;
  dht->env->timer_set(dht->env, &dht->timer, due_us > now ? due_us - now : 0);
}

void dht_keep_new_contact(hv_dht *dht, const hv_hash *hash) {
  uint64_t soon = dht->env->now_us(dht->env) + spread(dht, FIRST_LOOK_US);
  const hv_route_bucket *bucket = hv_route_bucket_of(&dht->route, hash);
  if (bucket->n && !bucket->looked_us)
    wake_at(dht, soon);
  size_t before = dht->look_n;
  dht->look_n = dht->route.n;
  if (dht->route.n <= before || dht->route.n > FEW || dht->look_us <= soon) /* else each answer to a look would call for the next */
    return;
  dht->look_us = soon;
  dht->look_pause_us = 1000000;
  wake_at(dht, soon);
}

/* Around itself: soon and often at first, then as rarely as buckets are refreshed. */
static void look_around(hv_dht *dht, uint64_t now_us) {
  if (now_us < dht->look_us || dht->looks[0])
    return;
  uint64_t refresh = (uint64_t)dht->config.refresh_ms * 1000;
  look_for(dht, &dht->looks[0], &dht->route.me, dht->config.bucket_size);
  dht->look_us = now_us + spread(dht, dht->look_pause_us);
  dht->look_pause_us = dht->look_pause_us * 2 < refresh ? dht->look_pause_us * 2 : refresh;
}

static size_t deepest(const hv_route *route) {
  size_t b = HV_ROUTE_BUCKETS - 1;
  while (b > 0 && route->buckets[b].n == 0)
    b--;
  return b;
}

/* A point in a bucket: shares exactly that many bits with this node, random beyond. */
static void point_in(hv_dht *dht, size_t bucket, hv_hash *out) {
  dht->env->random(dht->env, out, sizeof *out);
  for (size_t bit = 0; bit <= bucket; bit++) {
    uint8_t mask = (uint8_t)(0x80 >> bit % 8), mine = dht->route.me.bytes[bit / 8] & mask;
    out->bytes[bit / 8] = (uint8_t)((out->bytes[bit / 8] & ~mask) | (bit == bucket ? mine ^ mask : mine));
  }
}

static void refresh_buckets(hv_dht *dht, uint64_t now_us) {
  size_t last = deepest(&dht->route);
  for (size_t b = 0; b <= last && dht->route.n; b++) {
    hv_route_bucket *bucket = &dht->route.buckets[b];
    hv_lookup **slot = !dht->looks[1] ? &dht->looks[1] : !dht->looks[2] ? &dht->looks[2] : NULL;
    hv_hash target;
    if (!slot)
      return;
    int soon = bucket->looks == 1 || hv_route_lacks_sample(&dht->route, b);
    uint64_t refresh_us = (uint64_t)dht->config.refresh_ms * 1000,
             rest_us = soon && LOOK_AGAIN_US < refresh_us ? LOOK_AGAIN_US : refresh_us;
    if (bucket->looked_us && now_us - bucket->looked_us < rest_us)
      continue;
    bucket->looked_us = now_us;
    bucket->looks++;
    dht->look_buckets[slot - dht->looks] = b;
    point_in(dht, b, &target);
    look_for(dht, slot, &target, hv_route_room(&dht->route, b));
  }
}

static void retry_silent(hv_dht *dht) {
  for (int i = 0; i < RETRIES; i++) {
    const hv_route_contact *contact = hv_route_to_retry(&dht->route);
    if (!contact)
      return;
    ((hv_route_contact *)contact)->retry_us = UINT64_MAX; /* until it has answered or not */
    dht_ping_contact(dht, contact);
  }
}

/* ---- saying again ---- */

static size_t under_way(const hv_dht *dht) {
  size_t n = 0;
  for (const dht_work *work = dht->works; work; work = work->next)
    n += work->published != NULL;
  return n;
}

static void say_again(hv_dht *dht, uint64_t now_us) {
  size_t busy = under_way(dht);
  for (size_t c = 0; c < DHT_PUBLISHED_CHAINS && dht->n_published; c++) {
    for (dht_published **at = &dht->published[c]; *at;) {
      dht_published *published = *at;
      if (!published->work && published->end_us <= now_us + 1000) {
        dht_withdraw(dht, at);
        continue;
      }
      if (!published->work && published->due_us <= now_us && busy < AGAIN_AT_ONCE && dht_put_again(dht, published) == HV_OK) {
        uint64_t lease =
            published->item.ttl_ms < dht->store.config.ttl_max_ms ? published->item.ttl_ms : dht->store.config.ttl_max_ms;
        published->due_us = dht_published_due_us(now_us, lease, published->end_us);
        busy++;
      }
      at = &published->next;
    }
  }
}

/* ---- handing on ---- */

typedef struct push {
  const hv_route_contact *to;
  hv_record records[PUSH_RECORDS];
  size_t n, bytes;
} push;

typedef struct pushes {
  hv_dht *dht;
  size_t n;
  push to[PUSH_PEERS];
} pushes;

static void pushed(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  (void)owner, (void)mark, (void)status, (void)msg, (void)text; /* if it has gone, the next look gives it to another */
}

static void send_push(hv_dht *dht, push *p) {
  hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {p->records, p->n, hv_span_of(dht->me, dht->me_size)}};
  if (p->n)
    hv_asker_ask(&dht->asker, &p->to->id, hv_span_of(p->to->addrs, p->to->addrs_size), &msg, 0, pushed, NULL, 0, NULL);
  p->n = p->bytes = 0;
}

static push *push_to(pushes *all, const hv_route_contact *to) {
  for (size_t i = 0; i < all->n; i++)
    if (all->to[i].to == to)
      return &all->to[i];
  if (all->n == PUSH_PEERS)
    send_push(all->dht, &all->to[--all->n]);
  all->to[all->n] = (push){.to = to};
  return &all->to[all->n++];
}

static void push_key(pushes *all, const hv_store_key *key, const hv_route_contact *to) {
  push *p = push_to(all, to);
  for (const hv_store_item *item = key->items; item; item = item->next) {
    hv_record record;
    if (!hv_store_show(&all->dht->store, item, &record))
      continue;
    if (p->n == PUSH_RECORDS || (p->n && p->bytes + hv_record_size(&record) > PUSH_BYTES))
      send_push(all->dht, p);
    p->bytes += hv_record_size(&record);
    p->records[p->n++] = record;
  }
}

static uint32_t fingerprint(const hv_route_contact *contact) {
  uint32_t bytes;
  memcpy(&bytes, contact->hash.bytes + 28, sizeof bytes);
  return bytes;
}

static int was_replica(const hv_store_key *key, uint32_t print) {
  for (size_t i = 0; i < key->n_replicas; i++)
    if (key->replicas[i] == print)
      return 1;
  return 0;
}

/* If this node is a replica of the key, it gives the key to replicas that are new. At the first check it only notes them: the node
 * that stored the key has given it to all of them. */
static void look_over(void *arg, hv_store_key *key) {
  pushes *all = arg;
  hv_dht *dht = all->dht;
  const hv_route_contact *nearest[HV_STORE_REPLICAS_MAX];
  uint32_t now[HV_STORE_REPLICAS_MAX];
  if (key->looked_at && key->seen_changes == dht->route.changes)
    return;
  key->seen_changes = dht->route.changes;
  size_t n = hv_route_nearest(&dht->route, &key->place, NULL, nearest, dht->config.num_replicas);
  size_t nearer = 0; /* than this node */
  while (nearer < n && hv_hash_nearer(&key->place, &nearest[nearer]->hash, &dht->route.me) < 0)
    nearer++;
  if (nearer >= dht->config.num_replicas)
    n = 0; /* not one of them, or not any more: they see to it */
  else if (n == dht->config.num_replicas)
    n--;
  for (size_t i = 0; i < n; i++) {
    now[i] = fingerprint(nearest[i]);
    if (key->looked_at && !was_replica(key, now[i]))
      push_key(all, key, nearest[i]);
  }
  if (n || !key->looked_at) {
    memcpy(key->replicas, now, n * sizeof *now);
    key->n_replicas = (uint8_t)n;
  }
  key->looked_at = 1;
}

static void replicate(hv_dht *dht, uint64_t now_us) {
  if (now_us < dht->replicate_us || dht->route.n == 0 || dht->store.items.n == 0)
    return;
  dht->replicate_us = now_us + TICK_US / 2;
  pushes *all = hv_mem_alloc(dht->env->mem, sizeof *all);
  if (!all)
    return;
  all->dht = dht;
  all->n = 0;
  size_t rounds = (size_t)dht->config.replicate_ms * 1000 / TICK_US + 1;
  hv_store_walk(&dht->store, &dht->replicate_at, dht->store.keys.room / rounds + 1, look_over, all);
  for (size_t i = 0; i < all->n; i++)
    send_push(dht, &all->to[i]);
  hv_mem_free(all);
}

/* ---- the timer ---- */

static void keep_tick(hv_timer *timer, const hv_event *event) {
  hv_dht *dht = timer->owner;
  uint64_t now = event->now_us;
  dht->wake_us = UINT64_MAX;
  hv_store_expire(&dht->store);
  hv_store_expire(&dht->cache);
  look_around(dht, now);
  refresh_buckets(dht, now);
  retry_silent(dht);
  say_again(dht, now);
  replicate(dht, now);
  uint64_t next = now + spread(dht, TICK_US);
  wake_at(dht, dht->look_us < next ? (dht->look_us > now ? dht->look_us : now + FIRST_LOOK_US) : next);
}

void dht_keep_start(hv_dht *dht) {
  uint64_t now = dht->env->now_us(dht->env);
  dht->timer = (hv_timer){.fire = keep_tick, .owner = dht};
  dht->look_pause_us = 1000000;
  dht->look_us = now + spread(dht, FIRST_LOOK_US);
  dht->wake_us = UINT64_MAX;
  wake_at(dht, dht->look_us);
}

void dht_keep_stop(hv_dht *dht) {
  if (!dht->started)
    return;
  dht->env->timer_clear(dht->env, &dht->timer);
  for (size_t i = 0; i < sizeof dht->looks / sizeof *dht->looks; i++)
    if (dht->looks[i]) {
      hv_lookup_end(dht->looks[i]);
      dht->looks[i] = NULL;
    }
}
