#include "core/dht/dht_inner.h"

#include <string.h>

enum { ANSWER_CONTACTS = 20, ANSWER_BYTES_MAX = 1536 << 10 };

/* ---- nodes that it knows ---- */

static void check_done(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  hv_dht *dht = owner;
  (void)mark, (void)status, (void)msg, (void)text;
  dht->checks--;
}

/* Whether it still lives. It is not told who asks, and its answer is no reason to ask the next one: else a single question goes
 * through a quiet swarm like a fire. */
static void check_contact(hv_dht *dht, const hv_route_contact *contact) {
  hv_msg msg = {.kind = HV_MSG_FIND, .u.find = {.target = dht->route.me, .key = dht->route.me}};
  hv_span addrs = hv_span_of(contact->addrs, contact->addrs_size);
  if (dht->checks == 0 && hv_asker_ask(&dht->asker, &contact->id, addrs, &msg, 1, check_done, dht, 0, NULL) == HV_OK)
    dht->checks++;
}

/* Somebody answered: if another waits for a place beside its bucket, the oldest there is asked whether it still lives. */
static void somebody_answered(void *arg, const hv_peer_id *id, const hv_hash *hash) {
  hv_dht *dht = arg;
  (void)id;
  const hv_route_contact *doubtful = hv_route_doubtful(&dht->route, hash);
  if (doubtful)
    check_contact(dht, doubtful);
  dht_keep_new_contact(dht, hash);
}

void hv_dht_met(hv_dht *dht, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint64_t rtt_us) {
  hv_hash hash;
  if (dht->stopping || n_addrs == 0)
    return;
  hv_route_answered(&dht->route, id, addrs, n_addrs < HV_ASK_ADDRS_MAX ? n_addrs : HV_ASK_ADDRS_MAX,
                    (uint32_t)(rtt_us < UINT32_MAX ? rtt_us : UINT32_MAX));
  hv_route_hash(dht->env, id, &hash);
  somebody_answered(dht, id, &hash);
}

void hv_dht_lost(hv_dht *dht, const hv_peer_id *id) {
  if (!dht->stopping)
    hv_route_silence(&dht->route, id);
}

void hv_dht_end_of(hv_dht *dht, hv_span key, const hv_peer_id *signer) {
  hv_hash place;
  dht->env->sha256(dht->env, key, &place);
  hv_store_end_of(&dht->store, &place, signer);
  hv_store_end_of(&dht->cache, &place, signer);
}

void hv_dht_owner_ended(hv_dht *dht, const hv_peer_id *id) {
  hv_store_owner_ended(&dht->store, id);
  hv_store_owner_ended(&dht->cache, id);
}

/* ---- serving ---- */

static size_t fill_contacts(hv_dht *dht, const hv_msg_find *find, const hv_peer_id *asker, hv_contact *out) {
  const hv_route_contact *nearest[ANSWER_CONTACTS];
  size_t most = find->n_contacts < ANSWER_CONTACTS ? find->n_contacts : ANSWER_CONTACTS;
  size_t n = hv_route_nearest(&dht->route, &find->target, asker, nearest, most);
  for (size_t i = 0; i < n; i++)
    out[i] = (hv_contact){nearest[i]->id, hv_span_of(nearest[i]->addrs, nearest[i]->addrs_size)};
  return n;
}

/* All that is kept of a key; the limits of one key see to it that it fits into an answer of its own. *bytes grows. */
static hv_record *fill_records(hv_dht *dht, const hv_hash *key, size_t *n, size_t *bytes) {
  const hv_store_item *first = hv_store_first(&dht->store, key);
  hv_record *records = first ? hv_mem_array(dht->env->mem, first->key->n, sizeof *records) : NULL;
  *n = 0;
  if (!records)
    return NULL;
  for (const hv_store_item *item = first; item; item = item->next) {
    hv_record *record = &records[*n];
    int lives = hv_store_show(&dht->store, item, record);
    record->key = hv_span_of(NULL, 0);
    *bytes += hv_record_size(record);
    if ((lives || item->dead) && *bytes < ANSWER_BYTES_MAX && *n < HV_RECORDS_MAX)
      ++*n;
  }
  return records;
}

/* found->records is to be freed. */
static void fill_found(hv_dht *dht, const hv_msg_find *find, const hv_peer_id *asker, hv_contact *contacts, hv_msg_found *found,
                       size_t *bytes) {
  *found = (hv_msg_found){.contacts = contacts};
  if (find->want_records)
    found->records = fill_records(dht, &find->key, &found->n_records, bytes);
  found->n_contacts = fill_contacts(dht, find, asker, contacts);
}

static void asked_find(hv_dht *dht, const hv_event *event) {
  hv_contact contacts[ANSWER_CONTACTS];
  const hv_msg_find *find = &event->msg->u.find;
  hv_msg answer = {.kind = HV_MSG_FOUND};
  size_t bytes = 0;
  hv_request request = *event->request;
  fill_found(dht, find, &request.peer, contacts, &answer.u.found, &bytes);
  dht->env->reply(dht->env, event->request, &answer);
  hv_mem_free((void *)answer.u.found.records);
  dht_consider(dht, &request.peer, &request.from, find->me);
}

/* As many as fit: the asker asks for the others alone. */
static void asked_finds(hv_dht *dht, const hv_event *event) {
  hv_contact contacts[HV_FINDS_MAX][ANSWER_CONTACTS];
  hv_msg_found founds[HV_FINDS_MAX];
  const hv_msg_finds *finds = &event->msg->u.finds;
  hv_request request = *event->request;
  size_t n = 0, filled = 0, bytes = 0;
  for (; filled < finds->n_finds && bytes < ANSWER_BYTES_MAX; filled++) {
    fill_found(dht, &finds->finds[filled], &request.peer, contacts[filled], &founds[filled], &bytes);
    n += bytes < ANSWER_BYTES_MAX;
  }
  hv_msg answer = {.kind = HV_MSG_FOUNDS, .u.founds = {founds, n}};
  dht->env->reply(dht->env, event->request, &answer);
  while (filled-- > 0)
    hv_mem_free((void *)founds[filled].records);
  dht_consider(dht, &request.peer, &request.from, finds->me);
}

void hv_dht_asked(hv_dht *dht, const hv_event *event) {
  if (dht->config.client_mode || dht->stopping || !dht->started)
    hv_env_refuse(dht->env, event->request, HV_UNSUPPORTED,
                  "this peer does not serve the DHT: it is in client mode, or about to end");
  else if (event->msg->kind == HV_MSG_FIND)
    asked_find(dht, event);
  else if (event->msg->kind == HV_MSG_FINDS)
    asked_finds(dht, event);
  else
    dht_asked_store(dht, event);
}

/* ---- life ---- */

static void default_config(hv_dht_config *c) {
  if (!c->bucket_size)
    c->bucket_size = 20;
  if (!c->num_replicas)
    c->num_replicas = 5;
  if (c->num_replicas > HV_STORE_REPLICAS_MAX)
    c->num_replicas = HV_STORE_REPLICAS_MAX;
  if (!c->parallel_rpc)
    c->parallel_rpc = 4;
  if (!c->paths)
    c->paths = 2;
  if (!c->cache_nearest)
    c->cache_nearest = 1;
  if (!c->wait_timeout_ms)
    c->wait_timeout_ms = 3000;
  if (!c->refresh_ms)
    c->refresh_ms = 600000;
  if (!c->replicate_ms)
    c->replicate_ms = 60000;
  if (!c->cache.records)
    c->cache.records = 4096;
  if (!c->cache.bytes)
    c->cache.bytes = 16 << 20;
}

static hv_status init_stores(hv_dht *dht) {
  hv_store_config cache = {
      .whole = dht->config.cache, .per_peer = dht->config.cache, .per_network = dht->config.cache, .per_signer = dht->config.cache};
  cache.tomb_ms = 1; /* what ended here says nothing about what others keep */
  hv_status status = hv_store_init(&dht->store, dht->env, &dht->config.store);
  if (status == HV_OK && (status = hv_store_init(&dht->cache, dht->env, &cache)) != HV_OK)
    hv_store_fini(&dht->store);
  return status;
}

hv_status hv_dht_new(hv_env *env, const hv_dht_config *config, hv_dht **out) {
  hv_dht *dht = hv_mem_zalloc(env->mem, sizeof *dht);
  if (!dht)
    return HV_NOMEM;
  dht->env = env;
  dht->config = *config;
  default_config(&dht->config);
  hv_status status = init_stores(dht);
  if (status != HV_OK) {
    hv_mem_free(dht);
    return status;
  }
  hv_route_config route = {config->me, dht->config.bucket_size, config->blacklist_ms, config->backoff_rate};
  hv_route_init(&dht->route, env, &route);
  hv_asker_init(&dht->asker, env, &dht->route, dht->config.wait_timeout_ms);
  dht->asker.answered = somebody_answered;
  dht->asker.arg = dht;
  env->random(env, dht->salt, sizeof dht->salt);
  *out = dht;
  return HV_OK;
}

void hv_dht_set_addrs(hv_dht *dht, const hv_addr *addrs, size_t n_addrs) {
  if (!dht->config.client_mode)
    dht->me_size = (uint8_t)hv_contact_pack(addrs, n_addrs, dht->me);
}

void hv_dht_start(hv_dht *dht, const hv_addr *addrs, size_t n_addrs) {
  hv_dht_set_addrs(dht, addrs, n_addrs);
  dht->started = 1;
  dht_keep_start(dht);
}

static void end_all(hv_dht *dht, hv_status status, const char *text) {
  while (dht->works)
    dht_work_end(dht->works, status, text);
}

void hv_dht_stop(hv_dht *dht) {
  if (dht->stopping)
    return;
  dht->stopping = 1;
  dht_keep_stop(dht);
  dht_asked_end(dht, "this peer is about to end");
  end_all(dht, HV_CANCELLED, "this node is shutting down");
  hv_asker_close(&dht->asker);
}

void hv_dht_free(hv_dht *dht) {
  if (!dht)
    return;
  dht->stopping = 1;
  dht_keep_stop(dht);
  dht_asked_end(dht, NULL);
  end_all(dht, HV_CLOSED, "the node has ended");
  dht_published_fini(dht);
  hv_asker_fini(&dht->asker);
  hv_store_fini(&dht->store);
  hv_store_fini(&dht->cache);
  hv_route_fini(&dht->route);
  hv_mem_free(dht);
}

const hv_route *hv_dht_route(const hv_dht *dht) {
  return &dht->route;
}

hv_asker *hv_dht_asker(hv_dht *dht) {
  return &dht->asker;
}

const hv_store *hv_dht_kept(const hv_dht *dht) {
  return &dht->store;
}

size_t hv_dht_published(const hv_dht *dht) {
  return dht->n_published;
}

uint64_t hv_dht_calls(const hv_dht *dht) {
  return dht->asker.called;
}

uint64_t hv_dht_questions(const hv_dht *dht) {
  return dht->asker.asked;
}
