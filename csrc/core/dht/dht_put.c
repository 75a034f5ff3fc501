#include "core/dht/dht_inner.h"

#include <math.h>
#include <string.h>

enum { MESSAGE_BYTES_MAX = 1 << 20, REGION_MORE = 30, SPOTS_US = 180000000 };

/* ---- records ---- */

/* The signed text: an owned item of this node's, with its lease and version. */
static hv_status make_record(dht_work *work, size_t i, uint64_t version, hv_error *err) {
  hv_dht *dht = work->dht;
  const hv_dht_item *item = &work->items[i];
  hv_record *record = &work->records[i];
  hv_peer_id owner;
  uint64_t ttl = item->ttl_ms < dht->store.config.ttl_max_ms ? item->ttl_ms : dht->store.config.ttl_max_ms;
  *record = (hv_record){
      .key = work->key, .subkey = item->subkey, .value = item->value, .has_subkey = item->has_subkey, .ttl_ms = (uint32_t)ttl};
  hv_status status = hv_record_owner(work->key, item->subkey, &owner);
  if (status == HV_OK && hv_peer_is_known(&owner)) {
    char who[HV_PEER_TEXT_MAX];
    if (!hv_peer_equal(&owner, &dht->config.me))
      return hv_fail(err, HV_DENIED, "the key or subkey belongs to peer %s: only that peer can store there",
                     hv_peer_print(&owner, who));
    record->lease_ms = record->ttl_ms;
    record->version = version ? version : dht->env->now_us(dht->env) + item->ttl_ms * 1000;
    status = hv_record_sign(dht->env, &dht->config.me, &work->place, record);
    if (status != HV_OK)
      return hv_fail(err, status, "cannot sign the record: libcrypto failed, or memory ran out");
  }
  return hv_record_check(record, err);
}

static hv_status make_records(dht_work *work, const uint64_t *version, hv_error *err) {
  size_t bytes = 0;
  hv_mem *mem = work->dht->env->mem;
  work->records = hv_mem_array(mem, work->n_records, sizeof *work->records);
  work->statuses = hv_mem_array(mem, work->n_records, sizeof *work->statuses);
  work->newer = hv_mem_array(mem, work->n_records, sizeof *work->newer);
  if (!work->records || !work->statuses || !work->newer)
    return hv_fail(err, HV_NOMEM, "out of memory");
  for (size_t i = 0; i < work->n_records; i++) {
    hv_status status = make_record(work, i, version ? *version : work->items[i].version, err);
    if (status != HV_OK)
      return status;
    bytes += hv_record_size(&work->records[i]);
    work->items[i].stored = 0;
    work->items[i].status = HV_UNREACHABLE;
    work->statuses[i] = HV_UNREACHABLE;
  }
  return bytes <= MESSAGE_BYTES_MAX
             ? HV_OK
             : hv_fail(err, HV_TOO_LARGE, "the records have %zu bytes together, and the limit is %d: store them in several calls",
                       bytes, MESSAGE_BYTES_MAX);
}

/* ---- targets ---- */

static void add_target(dht_work *work, const hv_peer_id *id, const hv_hash *distance, hv_span addrs) {
  for (size_t i = 0; i < work->n_targets; i++)
    if (hv_peer_equal(&work->targets[i].id, id))
      return;
  size_t at = work->n_targets;
  if (at == DHT_TARGETS_MAX)
    return;
  work->n_targets++;
  for (; at > 0 && memcmp(&work->targets[at - 1].distance, distance, sizeof *distance) > 0; at--)
    work->targets[at] = work->targets[at - 1];
  dht_target *target = &work->targets[at];
  *target = (dht_target){.id = *id, .distance = *distance, .addrs_size = (uint8_t)addrs.size};
  if (addrs.size)
    memcpy(target->addrs, addrs.data, addrs.size);
}

/* In a region where nodes stand no more densely than chance would have it, those that somebody may have made there without showing
 * are fewer than half of those expected: so many and num_replicas are enough. Else all of the region. */
static void trim(dht_work *work) {
  size_t least = work->dht->config.num_replicas, within = 0;
  double expected = (double)least * exp2(work->bits - dht_region_bits(work));
  hv_hash region;
  dht_bound(dht_region_bits(work), &region);
  while (within < work->n_targets && memcmp(&work->targets[within].distance, &region, sizeof region) <= 0)
    within++;
  size_t most = (double)within > 1.5 * expected ? within : least + (size_t)ceil(expected / 2);
  if (work->n_targets > most)
    work->n_targets = most < least ? least : most;
}

static void want(dht_work *work) {
  if (work->crowded)
    trim(work);
  work->wanted = work->crowded ? work->n_targets : work->dht->config.num_replicas;
}

/* The nearest of each lookup; in a crowd as many as may stand in the region and are within it. */
static void gather_targets(dht_work *work) {
  hv_dht *dht = work->dht;
  size_t most = dht->config.num_replicas + (work->crowded ? REGION_MORE : dht->config.num_replicas);
  hv_hash region, mine = hv_hash_distance(&work->place, &dht->route.me);
  dht_bound(work->crowded ? dht_region_bits(work) : 0, &region);
  for (size_t l = 0; l < work->n_lookups; l++)
    for (size_t i = 0; i < most; i++) {
      const hv_lookup_node *node = hv_lookup_nearest(work->lookups[l], i);
      hv_hash hash, distance;
      if (!node)
        break;
      hv_route_hash(dht->env, &node->id, &hash);
      distance = hv_hash_distance(&work->place, &hash);
      if (l == 0 || memcmp(&distance, &region, sizeof region) <= 0)
        add_target(work, &node->id, &distance, hv_lookup_addrs(node));
    }
  if (!dht->config.client_mode)
    add_target(work, &dht->config.me, &mine, hv_span_of(NULL, 0));
  want(work);
}

/* Likewise from the table. */
static void gather_known(dht_work *work) {
  hv_dht *dht = work->dht;
  const hv_route_contact *nearest[DHT_TARGETS_MAX];
  hv_hash mine = hv_hash_distance(&work->place, &dht->route.me);
  size_t most = work->crowded ? DHT_TARGETS_MAX - 1 : 2 * dht->config.num_replicas;
  size_t n = hv_route_nearest(&dht->route, &work->place, NULL, nearest, most);
  for (size_t i = 0; i < n; i++) {
    hv_hash distance = hv_hash_distance(&work->place, &nearest[i]->hash);
    add_target(work, &nearest[i]->id, &distance, hv_span_of(nearest[i]->addrs, nearest[i]->addrs_size));
  }
  if (!dht->config.client_mode)
    add_target(work, &dht->config.me, &mine, hv_span_of(NULL, 0));
  want(work);
}

static void put_advance(dht_work *work);

/* ---- where the last one went ---- */

static int is_spot(const hv_dht_spots *spots, const hv_peer_id *id) {
  for (size_t i = 0; i < spots->n; i++)
    if (hv_peer_equal(&spots->at[i].id, id))
      return 1;
  return 0;
}

/* They are not too old, and of those that are known none stands among the nearest but they. */
static int may_go_there(const dht_work *work, const hv_dht_spots *spots) {
  const hv_dht *dht = work->dht;
  const hv_route_contact *nearest[HV_STORE_REPLICAS_MAX];
  if (spots->n == 0 || dht->env->now_us(dht->env) - spots->looked_us >= SPOTS_US)
    return 0;
  size_t n = hv_route_nearest(&dht->route, &work->place, NULL, nearest, dht->config.num_replicas);
  for (size_t i = 0; i < n; i++)
    if (!is_spot(spots, &nearest[i]->id)) {
      hv_hash farthest, distance = hv_hash_distance(&work->place, &nearest[i]->hash);
      hv_route_hash(dht->env, &spots->at[spots->n - 1].id, &farthest);
      farthest = hv_hash_distance(&work->place, &farthest);
      if (memcmp(&distance, &farthest, sizeof distance) < 0)
        return 0;
    }
  return 1;
}

/* True if it stores where the last store under this key went. */
static int put_there(dht_work *work) {
  const hv_dht_spots *spots = work->op ? work->op->spots : NULL;
  if (!spots || !may_go_there(work, spots))
    return 0;
  for (size_t i = 0; i < spots->n; i++) {
    hv_hash hash;
    hv_route_hash(work->dht->env, &spots->at[i].id, &hash);
    hash = hv_hash_distance(&work->place, &hash);
    add_target(work, &spots->at[i].id, &hash, hv_span_of(spots->at[i].addrs, spots->at[i].addrs_size));
  }
  work->phase = DHT_STORING;
  work->known = 1;
  work->rounds = 1;
  work->wanted = work->n_targets;
  put_advance(work);
  return 1;
}

/* The nearest first: targets are in this order. */
static void note_spots(const dht_work *work, hv_dht_spots *spots) {
  spots->n = 0;
  spots->looked_us = work->started_us;
  for (size_t i = 0; i < work->n_targets; i++) {
    const dht_target *target = &work->targets[i];
    struct hv_dht_spot *spot = &spots->at[spots->n];
    if (target->state != HV_LOOKUP_ANSWERED)
      continue;
    *spot = (struct hv_dht_spot){.id = target->id, .addrs_size = target->addrs_size};
    memcpy(spot->addrs, target->addrs, target->addrs_size);
    spots->n++;
  }
}

/* ---- offering ---- */

static void count_verdict(dht_work *work, size_t i, hv_status verdict) {
  if (verdict == HV_OK) {
    work->items[i].stored++;
    work->statuses[i] = HV_OK;
  } else if (work->statuses[i] != HV_OK && verdict != HV_NOMEM)
    work->statuses[i] = verdict;
}

static int is_newer(const dht_work *work, size_t i, const hv_record *newer) {
  const hv_record *mine = &work->records[i];
  return newer->has_subkey == mine->has_subkey && hv_span_equal(newer->subkey, mine->subkey) && newer->version > work->newer[i] &&
         hv_peer_is_known(&mine->signer) && hv_peer_equal(&newer->signer, &mine->signer);
}

/* The owner's own newer word (from another place, or an earlier life): to be counted on from. One signature is looked at. */
static void note_newer(dht_work *work, const hv_record *newer) {
  size_t i = 0;
  while (i < work->n_records && !is_newer(work, i, newer))
    i++;
  if (i < work->n_records && hv_record_verify(work->dht->env, &work->place, newer))
    work->newer[i] = newer->version;
}

static void stored(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  dht_work *work = owner;
  dht_target *target = &work->targets[mark];
  int answered = status == HV_OK && msg->kind == HV_MSG_STORED && msg->u.stored.n_verdicts == work->n_records;
  (void)text;
  work->asking -= target->state == HV_LOOKUP_ASKED;
  target->ask = NULL;
  target->state = answered ? HV_LOOKUP_ANSWERED : HV_LOOKUP_FAILED;
  if (answered) {
    work->acks++;
    for (size_t i = 0; i < work->n_records; i++)
      count_verdict(work, i, msg->u.stored.verdicts[i]);
    if (msg->u.stored.n_newer > 0) /* an honest node names one */
      note_newer(work, &msg->u.stored.newer[0]);
  }
  put_advance(work);
}

static void keep_myself(dht_work *work, dht_target *target) {
  target->state = HV_LOOKUP_ANSWERED;
  work->acks++;
  for (size_t i = 0; i < work->n_records; i++) {
    const hv_store_item *stands;
    hv_status verdict = hv_store_put(&work->dht->store, &work->records[i], &work->dht->config.me, &stands);
    count_verdict(work, i, verdict);
    if (stands && stands->signer && stands->version > work->newer[i])
      work->newer[i] = stands->version;
  }
}

static void offer(dht_work *work, size_t i) {
  hv_dht *dht = work->dht;
  dht_target *target = &work->targets[i];
  if (hv_peer_equal(&target->id, &dht->config.me)) {
    keep_myself(work, target);
    return;
  }
  hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {work->records, work->n_records, hv_span_of(dht->me, dht->me_size)}};
  target->state = HV_LOOKUP_FAILED;
  if (hv_asker_ask(&dht->asker, &target->id, hv_span_of(target->addrs, target->addrs_size), &msg, 1, stored, work, i,
                   &target->ask) != HV_OK)
    return;
  target->state = HV_LOOKUP_ASKED;
  target->late_us = dht->env->now_us(dht->env) + 2 * hv_asker_late_us(&dht->asker, &target->id);
  work->asking++;
  work->calls++;
}

/* A get says nothing: it has no records. */
static int stores_item(const dht_work *work, const hv_dht_item *item) {
  for (size_t i = 0; i < work->n_records; i++)
    if (work->items[i].has_subkey == item->has_subkey && hv_span_equal(work->items[i].subkey, item->subkey))
      return 1;
  return 0;
}

/* The record that stands in the way of the i-th, or is about to, is this program's own later word. */
static int is_overtaken(const dht_work *work, size_t i) {
  const hv_dht_item *item = &work->items[i];
  if (work->published && work->published->stale)
    return 1;
  const dht_work *end = work->published ? NULL : work; /* the newest come first; what is said again is older than any of them */
  for (const dht_work *later = work->dht->works; later != end; later = later->next)
    if (!later->published && hv_span_equal(later->key, work->key) && stores_item(later, item))
      return 1;
  const dht_published *published = *dht_published_at(work->dht, work->key, item);
  return published && published->nth > work->nth;
}

/* Signs anew, above what stands in the way: where the program left the version to us, and has not said anything since. */
static int say_it_newer(dht_work *work) {
  int any = 0;
  for (size_t i = 0; i < work->n_records; i++) {
    int mine = work->newer[i] >= work->records[i].version && work->items[i].version == 0 && work->newer[i] < UINT64_MAX &&
               !is_overtaken(work, i);
    if (hv_peer_is_known(&work->records[i].signer) && mine && make_record(work, i, work->newer[i] + 1, NULL) == HV_OK)
      any = 1;
  }
  for (size_t i = 0; any && i < work->n_records; i++)
    work->items[i].stored = 0;
  return any;
}

static void end_store(dht_work *work) {
  enum { TRIES = 3 };
  if (work->known && work->acks < work->wanted && work->acks < work->n_targets) { /* some have gone: who stands there now? */
    work->known = 0;
    dht_work_look(work);
    return;
  }
  if (++work->tries < TRIES && say_it_newer(work)) {
    work->acks = 0;
    for (size_t i = 0; i < work->n_targets; i++)
      if (work->targets[i].state == HV_LOOKUP_ANSWERED)
        work->targets[i].state = HV_LOOKUP_KNOWN;
    put_advance(work);
    return;
  }
  hv_status status = HV_OK;
  for (size_t i = 0; i < work->n_records; i++) {
    work->items[i].status = work->items[i].stored ? HV_OK : work->statuses[i];
    status = status == HV_OK ? work->items[i].status : status;
  }
  dht_work_end(work, status,
               status == HV_OK       ? ""
               : status == HV_EXISTS ? "a newer record is stored there: store with a later expiration"
                                     : hv_status_text(status));
}

static void put_advance(dht_work *work) {
  uint64_t next = UINT64_MAX;
  for (size_t i = 0; i < work->n_targets && work->acks + work->asking < work->wanted; i++)
    if (work->targets[i].state == HV_LOOKUP_KNOWN)
      offer(work, i);
  int late = 0;
  for (size_t i = 0; i < work->n_targets; i++) {
    const dht_target *target = &work->targets[i];
    late += target->state == HV_LOOKUP_LATE;
    next = target->state == HV_LOOKUP_ASKED && target->late_us < next ? target->late_us : next;
  }
  if (work->acks >= work->wanted || (work->asking == 0 && late == 0))
    end_store(work);
  else
    dht_work_arm(work, next);
}

static void put_storing(dht_work *work, uint64_t now_us) {
  for (size_t i = 0; i < work->n_targets; i++)
    if (work->targets[i].state == HV_LOOKUP_ASKED && work->targets[i].late_us <= now_us) {
      work->targets[i].state = HV_LOOKUP_LATE;
      work->asking--;
    }
  put_advance(work);
}

static void put_looked(dht_work *work) {
  work->phase = DHT_STORING;
  gather_targets(work);
  if (work->n_targets == 0)
    dht_work_end(work, HV_UNREACHABLE,
                 work->dht->route.n ? "no known node of the DHT answers: check the network, then try again"
                                    : "no other node of the DHT is known: give initial_peers, or wait until a peer joins");
  else
    put_advance(work);
}

static void put_known(dht_work *work) {
  work->phase = DHT_STORING;
  work->known = 1;
  work->rounds = 1;
  gather_known(work);
  put_advance(work);
}

/* The nodes are known, the last store's nodes are used again, or a lookup comes first. */
static void put_begin(dht_work *work) {
  if (dht_work_knows(work))
    put_known(work);
  else if (!put_there(work))
    dht_work_look(work);
}

/* ---- the doors ---- */

/* Out of time, but everything is kept by somebody: that will do. */
static hv_status put_settle(dht_work *work, hv_status status, const char **text) {
  size_t kept = 0;
  for (size_t i = 0; i < work->n_records; i++) {
    kept += work->items[i].stored > 0;
    if (status != HV_OK)
      work->items[i].status = work->items[i].stored ? HV_OK : status;
  }
  if (status != HV_TIMEOUT || kept < work->n_records)
    return status;
  *text = "";
  return HV_OK;
}

static void put_finish(dht_work *work, hv_status status, const char *text) {
  hv_dht_op *op = work->op;
  status = put_settle(work, status, &text);
  op->work = NULL;
  op->rounds = work->rounds;
  op->calls = work->calls;
  for (size_t i = 0; i < work->n_lookups; i++)
    op->calls += (unsigned)work->lookups[i]->calls;
  if (op->spots && status != HV_OK)
    op->spots->n = 0;
  else if (op->spots && !work->known)
    note_spots(work, op->spots);
  if (status == HV_OK && !op->spots)
    dht_publish(work->dht, work);
  dht_work_free(work);
  op->done(op, status, text);
}

static const dht_work_ops put_ops = {.begin = put_begin, .looked = put_looked, .storing = put_storing, .finish = put_finish};

hv_status hv_dht_store(hv_dht *dht, hv_dht_op *op, hv_error *err) {
  if (dht->stopping || !dht->started)
    return hv_fail(err, HV_CLOSED, "cannot use the DHT: this node has ended, or has not started");
  if (op->n_items == 0 || op->n_items > HV_RECORDS_MAX)
    return hv_fail(err, op->n_items ? HV_TOO_LARGE : HV_INVALID,
                   "cannot store %zu records in one call: it takes 1 to %d; use several calls", op->n_items, HV_RECORDS_MAX);
  dht_work *work = dht_work_new(dht, &put_ops, op, op->key, op->timeout_ms, DHT_TARGETS_MAX);
  if (!work)
    return hv_fail(err, HV_NOMEM, "out of memory");
  work->items = op->items;
  work->n_records = op->n_items;
  hv_status status = make_records(work, NULL, err);
  if (status != HV_OK) {
    op->work = NULL;
    dht_work_free(work);
  }
  return status;
}

/* ---- once more ---- */

static void again_finish(dht_work *work, hv_status status, const char *text) {
  hv_dht *dht = work->dht;
  dht_published *published = work->published;
  put_settle(work, status, &text);
  dht_work_free(work);
  published->work = NULL;
  if (!published->stale && status != HV_EXISTS)
    return;
  if (!published->stale) /* somebody's newer word: ours is not said any more */
    *dht_published_at(dht, published->key, &published->item) = published->next;
  dht->n_published -= !published->stale;
  hv_mem_free(published);
}

static const dht_work_ops again_ops = {.begin = put_begin, .looked = put_looked, .storing = put_storing, .finish = again_finish};

hv_status dht_put_again(hv_dht *dht, dht_published *published) {
  uint64_t now = dht->env->now_us(dht->env);
  dht_work *work = dht_work_new(dht, &again_ops, NULL, published->key, 0, DHT_TARGETS_MAX);
  if (!work)
    return HV_NOMEM;
  published->item.ttl_ms = (published->end_us - now) / 1000;
  published->version++; /* counts in an owned record only */
  work->published = published;
  work->items = &published->item;
  work->n_records = 1;
  hv_status status = make_records(work, &published->version, NULL);
  if (status == HV_OK)
    published->work = work;
  else
    dht_work_free(work);
  return status;
}
