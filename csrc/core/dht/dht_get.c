#include "core/dht/dht_inner.h"

#include <string.h>

enum { FRESH_US = 10000000, BELIEVED_MORE = 3 };

/* ---- hearing ---- */

/* So many of the replicas that no majority of them can say otherwise. */
static size_t enough(const dht_work *work) {
  return work->dht->config.num_replicas / 2 + 1;
}

/* Enough of the nodes that should keep it say the same, or have spoken at all. */
static int is_agreed(const dht_work *work) {
  const hv_dht_op *op = work->op;
  if (work->crowded || (op->latest && !op->majority))
    return 0;
  return (op->latest ? hv_gather_holders(&work->gather, &work->near) : hv_gather_agreed(&work->gather, &work->near)) >=
         enough(work);
}

/* The answer of the node that stands so far away; n_answers: it has said nothing yet. */
static size_t answer_at(const dht_work *work, const hv_hash *distance) {
  size_t i = 0;
  while (i < work->gather.n_answers && memcmp(&work->gather.distances[i], distance, sizeof *distance) != 0)
    i++;
  return i;
}

static void get_looked(dht_work *work);

static void get_checked(dht_work *work, hv_lookup *lookup, size_t answer, unsigned depth, int waited) {
  if (hv_gather_had(&work->gather, answer)) {
    work->rounds = depth > work->rounds ? depth : work->rounds;
    hv_lookup_hurry(lookup);
  }
  if (!work->in_hand && is_agreed(work))
    get_looked(work);
  else if (waited)
    dht_work_proceed(work);
}

static void get_heard(void *owner, hv_lookup *lookup, const hv_lookup_node *node, const hv_msg_found *found) {
  dht_work *work = owner;
  hv_hash hash, distance;
  if (work->crowded && found->n_records == 0) /* many are asked then, and there are only so many answers */
    return;
  hv_route_hash(work->dht->env, &node->id, &hash);
  distance = hv_hash_distance(&work->place, &hash); /* a region's lookup has another target */
  size_t answer = answer_at(work, &distance);
  if (answer == work->gather.n_answers && hv_gather_open(&work->gather, &distance) == answer)
    dht_asked_answer(work, lookup, answer, node->depth, found);
  else /* of one that was asked twice, or one too many */
    get_checked(work, lookup, answer, node->depth, 0);
}

/* The records that this node keeps itself are one answer more. */
static void hear_myself(dht_work *work) {
  hv_dht *dht = work->dht;
  hv_record records[64];
  size_t n = 0;
  hv_hash distance = hv_hash_distance(&work->place, &dht->route.me);
  for (const hv_store_item *item = hv_store_first(&dht->store, &work->place); item && n < 64; item = item->next) {
    int lives = hv_store_show(&dht->store, item, &records[n]);
    n += lives || item->dead;
  }
  if (n && n < 64) /* a large dictionary is heard from others */
    hv_gather_add(&work->gather, &distance, records, n);
}

/* ---- the result ---- */

static void add_found(void *arg, const hv_record *record) {
  dht_work *work = arg;
  if (work->n_found == work->found_room) {
    size_t room = work->found_room ? work->found_room * 2 : 16;
    hv_record *found = work->found ? hv_mem_resize(work->dht->env->mem, work->found, room * sizeof *found)
                                   : hv_mem_alloc(work->dht->env->mem, room * sizeof *found);
    if (!found)
      return;
    work->found = found;
    work->found_room = room;
  }
  work->found[work->n_found++] = *record;
}

/* A key is a value or a dictionary: whichever lives longer. But anybody may write the value of a key that names no owner: it hides
 * no dictionary in which somebody has signed what is his. */
static void value_or_dictionary(dht_work *work) {
  uint32_t longest[2] = {0}; /* of the value, of the dictionary */
  int is_signed[2] = {0};
  for (size_t i = 0; i < work->n_found; i++) {
    const hv_record *record = &work->found[i];
    int within = record->has_subkey != 0;
    longest[within] = record->ttl_ms > longest[within] ? record->ttl_ms : longest[within];
    is_signed[within] |= hv_peer_is_known(&record->signer);
  }
  int dictionary = is_signed[0] != is_signed[1] ? is_signed[1] : longest[1] > longest[0];
  size_t kept = 0;
  for (size_t i = 0; i < work->n_found; i++)
    if ((work->found[i].has_subkey != 0) == dictionary)
      work->found[kept++] = work->found[i];
  work->n_found = kept;
}

static void remember(dht_work *work) {
  hv_dht *dht = work->dht;
  if (dht->config.cache_locally < 0)
    return;
  for (size_t i = 0; i < work->n_found; i++)
    hv_store_put_checked(&dht->cache, &work->found[i], &dht->config.me);
  const hv_store_item *item = hv_store_first(&dht->cache, &work->place);
  if (item)
    item->key->seen_changes = dht->env->now_us(dht->env);
}

static void given(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  (void)owner, (void)mark, (void)status, (void)msg, (void)text; /* a gift */
}

/* Gives what was found to the nearest that answered and had nothing: the next who asks finds it there. */
static void cache_nearest(dht_work *work) {
  enum { RECORDS_MAX = 64, BYTES_MAX = 65536 };
  hv_dht *dht = work->dht;
  size_t bytes = 0;
  for (size_t i = 0; i < work->n_found; i++)
    bytes += hv_record_size(&work->found[i]);
  if (work->crowded || work->n_found > RECORDS_MAX || bytes > BYTES_MAX || work->n_lookups == 0)
    return;
  hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {work->found, work->n_found, hv_span_of(dht->me, dht->me_size)}};
  int left = dht->config.cache_nearest;
  for (size_t i = 0; i < dht->config.num_replicas && left > 0; i++) {
    const hv_lookup_node *node = hv_lookup_nearest(work->lookups[0], i);
    size_t answer = node ? answer_at(work, &node->distance) : work->gather.n_answers;
    if (answer == work->gather.n_answers || hv_gather_had(&work->gather, answer))
      continue;
    hv_asker_ask(&dht->asker, &node->id, hv_lookup_addrs(node), &msg, 0, given, NULL, 0, NULL);
    left--;
  }
}

static void get_finish(dht_work *work, hv_status status, const char *text) {
  hv_dht_op *op = work->op;
  op->work = NULL;
  op->rounds = work->rounds;
  op->records = status == HV_OK ? work->found : NULL;
  op->n_records = status == HV_OK ? work->n_found : 0;
  /* The program may ask anew within done, so the lookups go first. */
  for (size_t i = 0; i < work->n_lookups; i++) {
    work->calls += (unsigned)work->lookups[i]->calls;
    hv_lookup_end(work->lookups[i]);
    work->lookups[i] = NULL;
  }
  op->calls = work->calls;
  op->done(op, status, text);
  dht_work_free(work);
}

/* In a crowd those that stand where nobody honest should be have no say. */
static void pick(dht_work *work) {
  size_t believed = work->crowded ? HV_GATHER_ANSWERS_MAX : work->dht->config.num_replicas + BELIEVED_MORE;
  hv_hash not_nearer = {{0}};
  if (work->crowded)
    dht_bound(work->bits + 2, &not_nearer);
  if (hv_gather_pick(&work->gather, believed, &not_nearer, add_found, work) == 0) { /* no answer among those speaks of it at all */
    memset(&not_nearer, 0, sizeof not_nearer);
    hv_gather_pick(&work->gather, HV_GATHER_ANSWERS_MAX, &not_nearer, add_found, work);
  }
  value_or_dictionary(work);
}

static void get_looked(dht_work *work) {
  hv_dht *dht = work->dht;
  pick(work);
  if (work->n_found) {
    remember(work);
    cache_nearest(work);
    dht_work_end(work, HV_OK, "");
  } else if (work->gather.n_answers == 0 && dht->route.n == 0)
    dht_work_end(work, HV_UNREACHABLE, "no other node of the DHT is known: give initial_peers, or wait until a peer joins");
  else if (work->gather.n_answers == 0)
    dht_work_end(work, HV_UNREACHABLE, "no known node of the DHT answers: check the network, then try again");
  else
    dht_work_end(work, HV_NOT_FOUND, "no node of the DHT holds such a record");
}

/* ---- the door ---- */

/* Fresh from the last get: it ends in its first step, without a question. */
static int recall(dht_work *work) {
  hv_dht *dht = work->dht;
  const hv_store_item *item = hv_store_first(&dht->cache, &work->place);
  if (work->op->latest || !item || item->key->seen_changes + FRESH_US < dht->env->now_us(dht->env))
    return 0;
  for (; item; item = item->next) {
    hv_record record;
    if (hv_store_show(&dht->cache, item, &record))
      add_found(work, &record);
  }
  value_or_dictionary(work);
  return work->n_found > 0;
}

static void get_begin(dht_work *work) {
  if (recall(work)) {
    dht_work_end(work, HV_OK, "");
    return;
  }
  hear_myself(work);
  if ((!work->op->latest || work->op->majority) && dht_work_knows(work))
    dht_work_ask_known(work, enough(work) + 1 - hv_gather_had(&work->gather, 0)); /* one more than needed: it may be slow */
  else
    dht_work_look(work);
}

static const dht_work_ops get_ops = {
    .begin = get_begin, .heard = get_heard, .checked = get_checked, .looked = get_looked, .finish = get_finish};

hv_status hv_dht_get(hv_dht *dht, hv_dht_op *op, hv_error *err) {
  if (dht->stopping || !dht->started)
    return hv_fail(err, HV_CLOSED, "cannot use the DHT: this node has ended, or has not started");
  if (op->key.size > HV_RECORD_KEY_MAX)
    return hv_fail(err, HV_TOO_LARGE, "the key has %zu bytes, and the limit is %d: choose a shorter key", op->key.size,
                   HV_RECORD_KEY_MAX);
  dht_work *work = dht_work_new(dht, &get_ops, op, op->key, op->timeout_ms, 0);
  if (!work)
    return hv_fail(err, HV_NOMEM, "out of memory");
  work->is_get = 1;
  if (hv_gather_init(&work->gather, dht->env, &work->place, op->key) != HV_OK) {
    op->work = NULL;
    dht_work_free(work);
    return hv_fail(err, HV_NOMEM, "out of memory");
  }
  op->records = NULL;
  op->n_records = 0;
  return HV_OK;
}
