#include "core/dht/dht_inner.h"

#include <math.h>
#include <string.h>

/* How much more densely than expected (in bits) the nearest nodes stand before their region is searched: the num_replicas nearest,
 * and as many as a crowd may have, since a few of a broad one may stand as if by chance, but not all. Chance alone brings five
 * nodes so near in 7 and in 25 of 100 places: a store searches then, and a get that would otherwise end with nothing. */
static const struct {
  size_t n;
  double bits, bits_empty;
} crowds[] = {{0, 1.2, 0.6}, {10, 1.2, 0.8}, {20, 1.0, 0.7}};
enum { CROWDS = sizeof crowds / sizeof *crowds };

enum { TIMEOUT_MS = 30000, REGION_TIMES = 4, MARGIN = 3 /* nodes asked beyond the replicas: those that joined, or have gone */ };

/* ---- distances ---- */

double dht_bits_of(const hv_hash *distance) {
  double share = 0;
  for (int i = 15; i >= 0; i--)
    share = (share + distance->bytes[i]) / 256;
  return share > 0 ? -log2(share) : 128;
}

void dht_bound(double bits, hv_hash *out) {
  memset(out, 0xff, sizeof *out);
  if (bits <= 0)
    return;
  double share = exp2(-bits);
  for (size_t i = 0; i < sizeof out->bytes; i++) {
    share *= 256;
    double whole = floor(share);
    out->bytes[i] = (uint8_t)(whole < 255 ? whole : 255);
    share -= whole;
  }
}

/* ---- life ---- */

static void work_tick(hv_timer *timer, const hv_event *event);

dht_work *dht_work_new(hv_dht *dht, const dht_work_ops *ops, hv_dht_op *op, hv_span key, uint32_t timeout_ms, size_t targets) {
  dht_work *work = hv_mem_zalloc(dht->env->mem, sizeof *work + targets * sizeof *work->targets);
  if (!work)
    return NULL;
  work->dht = dht;
  work->ops = ops;
  work->op = op;
  work->key = key;
  work->started_us = dht->env->now_us(dht->env);
  work->ends_us = work->started_us + (timeout_ms ? timeout_ms : TIMEOUT_MS) * UINT64_C(1000);
  work->timer = (hv_timer){.fire = work_tick, .owner = work};
  dht->env->sha256(dht->env, key, &work->place);
  work->bits = hv_route_bits(&dht->route, dht->config.num_replicas);
  dht_bound(work->bits > 2 ? work->bits - 2 : 0, &work->near);
  dht_bound(work->bits > 0.5 ? work->bits - 0.5 : 0, &work->replicas);
  work->next = dht->works;
  if (work->next)
    work->next->where = &work->next;
  work->where = &dht->works;
  dht->works = work;
  work->nth = ++dht->n_works;
  if (op)
    op->work = work;
  dht->env->timer_set(dht->env, &work->timer, 0);
  return work;
}

void dht_work_free(dht_work *work) {
  *work->where = work->next;
  if (work->next)
    work->next->where = work->where;
  work->dht->env->timer_clear(work->dht->env, &work->timer);
  for (size_t i = 0; i < work->n_lookups; i++)
    if (work->lookups[i])
      hv_lookup_end(work->lookups[i]);
  for (size_t i = 0; i < work->n_targets; i++)
    if (work->targets[i].ask)
      hv_ask_forget(work->targets[i].ask);
  hv_mem_free(work->found);
  hv_mem_free(work->records);
  hv_mem_free(work->statuses);
  hv_mem_free(work->newer);
  if (work->is_get) {
    dht_asked_forget(work);
    hv_gather_fini(&work->gather);
  }
  hv_mem_free(work);
}

void dht_work_end(dht_work *work, hv_status status, const char *text) {
  work->over = 1;
  work->why = status;
  work->why_text = text;
  if (!work->in_hand)
    work->ops->finish(work, status, text);
}

void dht_work_arm(dht_work *work, uint64_t due_us) {
  hv_env *env = work->dht->env;
  uint64_t now = env->now_us(env), due = due_us < work->ends_us ? due_us : work->ends_us;
  env->timer_set(env, &work->timer, due > now ? due - now : 0);
}

/* ---- lookups ---- */

static void one_looked(void *owner, hv_lookup *lookup);

static int work_look(dht_work *work, const hv_hash *target, size_t width, int own_only) {
  hv_dht *dht = work->dht;
  hv_lookup_config config = {
      .target = *target,
      .key = work->place,
      .want_records = work->is_get,
      .width = width,
      .parallel = own_only ? width : dht->config.parallel_rpc,
      .paths = own_only ? 1 : dht->config.paths,
      .near = work->replicas,
      .own_only = own_only,
      .me = hv_span_of(dht->me, dht->me_size),
      .heard = work->ops->heard,
      .done = one_looked,
      .owner = work,
  };
  work->open++;
  if (hv_lookup_start(&dht->asker, &config, &work->lookups[work->n_lookups++]) == HV_OK)
    return 1;
  work->lookups[--work->n_lookups] = NULL;
  work->open--;
  return 0;
}

/* How many of the nearest the c-th test of a crowd looks at; 0: this one is not for so many replicas. */
static size_t crowd_size(const dht_work *work, size_t c) {
  size_t n = work->dht->config.num_replicas;
  return c == 0 ? n : crowds[c].n > n ? crowds[c].n : 0;
}

/* Does the farthest of those that the c-th test looks at stand too near? */
static int is_dense(const dht_work *work, size_t c, const hv_hash *distance, int empty) {
  double expected = work->bits + log2((double)work->dht->config.num_replicas / (double)crowd_size(work, c));
  return work->bits > 1 && dht_bits_of(distance) > expected + (empty ? crowds[c].bits_empty : crowds[c].bits);
}

/* Do the nearest stand more densely than nodes stand elsewhere? */
static int is_crowded(const dht_work *work) {
  int empty = work->is_get, dense = 0;
  for (size_t i = 0; empty && i < work->gather.n_answers; i++)
    empty = !hv_gather_had(&work->gather, i);
  for (size_t c = 0; c < CROWDS && !dense; c++) {
    size_t n = crowd_size(work, c);
    const hv_lookup_node *last = !n  ? NULL
                                 : c ? hv_lookup_known(work->lookups[0], n - 1)
                                     : hv_lookup_nearest(work->lookups[0], n - 1);
    dense = last && is_dense(work, c, &last->distance, empty);
  }
  return dense;
}

/* Likewise of the nearest of the table. */
static int is_crowded_here(const dht_work *work) {
  const hv_route_contact *nearest[HV_STORE_REPLICAS_MAX];
  size_t known = hv_route_nearest(&work->dht->route, &work->place, NULL, nearest, HV_STORE_REPLICAS_MAX);
  for (size_t c = 0; c < CROWDS; c++) {
    size_t n = crowd_size(work, c);
    if (n == 0 || n > known)
      continue;
    hv_hash distance = hv_hash_distance(&work->place, &nearest[n - 1]->hash);
    if (is_dense(work, c, &distance, 0))
      return 1;
  }
  return 0;
}

int dht_work_knows(dht_work *work) {
  hv_dht *dht = work->dht;
  size_t n = dht->config.num_replicas;
  if (!dht->looked || !hv_route_knows(&dht->route, &work->place, n))
    return 0;
  if (!is_crowded_here(work))
    return 1;
  work->crowded = !work->is_get && hv_route_knows(&dht->route, &work->place, n * REGION_TIMES);
  return work->crowded;
}

/* Where two to REGION_TIMES times num_replicas honest nodes may be expected. */
int dht_region_bits(const dht_work *work) {
  return work->bits > 1 ? (int)work->bits - 1 : 0;
}

/* The region is searched in its parts that lie beside the place, halves of halves, and so broadly that a dozen are asked beside a
 * crowd that stands in it. */
static void look_at_region(dht_work *work) {
  enum { BROAD = 20 + 12 };
  int first = dht_region_bits(work);
  work->phase = DHT_REGION;
  work->crowded = 1;
  for (int bit = first; bit < first + DHT_REGIONS && bit < 256; bit++) {
    hv_hash target = work->place;
    target.bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
    work_look(work, &target, BROAD, 0);
  }
}

static void proceed(dht_work *work) {
  if (work->open || work->waiting || work->over)
    return;
  if (work->phase == DHT_KNOWING) { /* those that were asked are not agreed */
    dht_work_look(work);
    return;
  }
  if (work->phase == DHT_LOOKING && is_crowded(work)) {
    look_at_region(work);
    if (work->open || work->over)
      return;
  }
  work->ops->looked(work);
}

/* Everything that may end a work happens between these two. */
static void take_in_hand(dht_work *work) {
  work->in_hand++;
}

static void work_release(dht_work *work) {
  if (--work->in_hand == 0 && work->over)
    work->ops->finish(work, work->why, work->why_text);
}

void dht_work_proceed(dht_work *work) {
  take_in_hand(work);
  proceed(work);
  work_release(work);
}

static void one_looked(void *owner, hv_lookup *lookup) {
  dht_work *work = owner;
  work->open--;
  for (size_t i = 0; !work->is_get && i < work->dht->config.num_replicas; i++) {
    const hv_lookup_node *node = hv_lookup_nearest(lookup, i);
    work->rounds = node && node->depth > work->rounds ? node->depth : work->rounds;
  }
  if (work->in_hand) /* within work_look(): its caller continues */
    return;
  dht_work_proceed(work);
}

static void drop_lookups(dht_work *work) {
  for (size_t i = 0; i < work->n_lookups; i++) {
    work->calls += (unsigned)work->lookups[i]->calls;
    hv_lookup_end(work->lookups[i]);
  }
  work->n_lookups = 0;
}

static void look_and_proceed(dht_work *work, dht_phase phase, size_t width) {
  take_in_hand(work);
  drop_lookups(work);
  work->phase = phase;
  if (!work_look(work, &work->place, width, phase == DHT_KNOWING))
    dht_work_end(work, HV_NOMEM, "out of memory");
  else
    proceed(work);
  work_release(work);
}

void dht_work_ask_known(dht_work *work, size_t width) {
  look_and_proceed(work, DHT_KNOWING, width);
}

void dht_work_look(dht_work *work) {
  look_and_proceed(work, DHT_LOOKING, work->dht->config.num_replicas + (work->is_get ? MARGIN : 0));
}

static void work_tick(hv_timer *timer, const hv_event *event) {
  dht_work *work = timer->owner;
  take_in_hand(work);
  if (event->now_us >= work->ends_us)
    dht_work_end(work, HV_TIMEOUT, "the DHT did not answer in time: allow more time, or check the network");
  else if (work->phase == DHT_WAITING) {
    dht_work_arm(work, UINT64_MAX);
    work->ops->begin(work);
  } else if (work->phase == DHT_STORING)
    work->ops->storing(work, event->now_us);
  work_release(work);
}

void hv_dht_cancel(hv_dht *dht, hv_dht_op *op) {
  (void)dht;
  if (op->work)
    dht_work_end(op->work, HV_CANCELLED, "cancelled");
}
