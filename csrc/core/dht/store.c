#include "core/dht/store.h"

#include "core/util/fold.h"

#include <stdio.h>
#include <string.h>

/* ---- limits ---- */

static void default_quota(hv_store_quota *quota, size_t records, size_t bytes) {
  if (!quota->records)
    quota->records = records;
  if (!quota->bytes)
    quota->bytes = bytes;
}

hv_status hv_store_init(hv_store *store, hv_env *env, const hv_store_config *config) {
  *store = (hv_store){.env = env, .config = *config};
  hv_store_config *c = &store->config;
  if (!c->ttl_max_ms)
    c->ttl_max_ms = 3600000;
  if (!c->tomb_ms)
    c->tomb_ms = 3600000;
  default_quota(&c->whole, 65536, (size_t)256 << 20);
  default_quota(&c->per_peer, c->whole.records / 4 + 1, c->whole.bytes / 4 + 1);
  default_quota(&c->per_network, c->whole.records / 2 + 1, c->whole.bytes / 2 + 1);
  default_quota(&c->per_signer, c->whole.records / 16 + 1, c->whole.bytes / 16 + 1);
  env->random(env, store->salt, sizeof store->salt);
  if (hv_table_init(&store->keys, env->mem) == HV_OK && hv_table_init(&store->items, env->mem) == HV_OK &&
      hv_table_init(&store->accounts, env->mem) == HV_OK)
    return HV_OK;
  hv_store_fini(store);
  return HV_NOMEM;
}

/* ---- tables ---- */

static uint64_t hash_bytes(const hv_store *store, uint64_t seed, const void *bytes, size_t size) {
  return hv_fold_bytes(store->salt, seed, bytes, size);
}

static uint64_t key_hash(const hv_store *store, const hv_hash *place) {
  return hash_bytes(store, 0, place->bytes, 32);
}

static hv_store_key *find_key(const hv_store *store, const hv_hash *place) {
  for (hv_table_node *at = hv_table_first(&store->keys, key_hash(store, place)); at; at = hv_table_next(at)) {
    hv_store_key *key = HV_HOLDER(hv_store_key, node, at);
    if (memcmp(&key->place, place, sizeof *place) == 0)
      return key;
  }
  return NULL;
}

static uint64_t item_hash(const hv_store *store, const hv_hash *place, const hv_record *record) {
  uint64_t key = hash_bytes(store, record->has_subkey ? 1 : 2, place->bytes, 32);
  return hash_bytes(store, key, record->subkey.data, record->subkey.size);
}

static hv_store_item *find_item(const hv_store *store, const hv_hash *place, const hv_record *record) {
  for (hv_table_node *at = hv_table_first(&store->items, item_hash(store, place, record)); at; at = hv_table_next(at)) {
    hv_store_item *item = HV_HOLDER(hv_store_item, node, at);
    if (item->has_subkey == (record->has_subkey != 0) && memcmp(&item->key->place, place, sizeof *place) == 0 &&
        hv_span_equal(hv_span_of(item->subkey, item->subkey_size), record->subkey))
      return item;
  }
  return NULL;
}

static uint64_t account_hash(const hv_store *store, const hv_peer_id *id, uint64_t network, hv_store_kind kind) {
  return hash_bytes(store, network ^ (uint64_t)kind, id->key, 32);
}

static hv_store_account *find_account(const hv_store *store, const hv_peer_id *id, uint64_t network, hv_store_kind kind) {
  for (hv_table_node *at = hv_table_first(&store->accounts, account_hash(store, id, network, kind)); at; at = hv_table_next(at)) {
    hv_store_account *account = HV_HOLDER(hv_store_account, node, at);
    if (account->kind == kind && account->network == network && hv_peer_equal(&account->id, id))
      return account;
  }
  return NULL;
}

/* ---- orders ---- */

static int brought_ends_sooner(const hv_heap_node *a, const hv_heap_node *b) {
  return HV_HOLDER(hv_store_item, brought, a)->end_us < HV_HOLDER(hv_store_item, brought, b)->end_us;
}

static int ends_sooner(const hv_heap_node *a, const hv_heap_node *b) {
  return HV_HOLDER(hv_store_item, ending, a)->end_us < HV_HOLDER(hv_store_item, ending, b)->end_us;
}

static hv_store_item *first_to_end(const hv_store *store) {
  return store->ends ? HV_HOLDER(hv_store_item, ending, store->ends) : NULL;
}

static int holds_more(const hv_heap_node *a, const hv_heap_node *b) {
  return HV_HOLDER(hv_store_account, rank, a)->share > HV_HOLDER(hv_store_account, rank, b)->share;
}

static void give_to(hv_store_item *item, hv_store_account *bringer) {
  item->bringer = bringer;
  hv_heap_add(&bringer->below, &item->brought, brought_ends_sooner);
}

static void take_from_bringer(hv_store_item *item) {
  hv_heap_remove(&item->bringer->below, &item->brought, brought_ends_sooner);
}

static void set_end(hv_store *store, hv_store_item *item, uint64_t end_us) {
  take_from_bringer(item);
  hv_heap_remove(&store->ends, &item->ending, ends_sooner);
  item->end_us = end_us;
  hv_heap_add(&store->ends, &item->ending, ends_sooner);
  give_to(item, item->bringer);
}

/* ---- accounts ---- */

/* Where an account stands among others; NULL: a signer's, which stands nowhere. */
static hv_heap_node **ranks_of(hv_store *store, hv_store_account *account) {
  return account->kind == HV_STORE_NETWORK ? &store->fullest : account->kind == HV_STORE_BRINGER ? &account->home->below : NULL;
}

/* The holdings of an account have changed. */
static void rank(hv_store *store, hv_store_account *account) {
  hv_heap_node **ranks = ranks_of(store, account);
  if (!ranks)
    return;
  double records = (double)account->records / (double)store->config.whole.records;
  double bytes = (double)account->bytes / (double)store->config.whole.bytes;
  hv_heap_remove(ranks, &account->rank, holds_more);
  account->share = records > bytes ? records : bytes;
  hv_heap_add(ranks, &account->rank, holds_more);
}

static hv_store_account *open_account(hv_store *store, const hv_peer_id *id, uint64_t network, hv_store_kind kind,
                                      hv_store_account *home) {
  hv_store_account *account = find_account(store, id, network, kind);
  if (account)
    return account;
  account = hv_mem_zalloc(store->env->mem, sizeof *account);
  if (!account)
    return NULL;
  account->id = *id;
  account->network = network;
  account->kind = kind;
  account->home = home;
  if (ranks_of(store, account))
    hv_heap_add(ranks_of(store, account), &account->rank, holds_more);
  hv_table_add(&store->accounts, &account->node, account_hash(store, id, network, kind));
  return account;
}

static void close_if_empty(hv_store *store, hv_store_account *account) {
  if (!account || account->records)
    return;
  hv_store_account *home = account->home;
  if (account->kind == HV_STORE_NETWORK && account->below)
    return; /* a bringer's account was just opened */
  if (ranks_of(store, account))
    hv_heap_remove(ranks_of(store, account), &account->rank, holds_more);
  hv_table_remove(&store->accounts, &account->node);
  hv_mem_free(account);
  close_if_empty(store, home);
}

static hv_store_account *open_bringer(hv_store *store, const hv_peer_id *id, uint64_t network) {
  static const hv_peer_id nobody;
  hv_store_account *home = open_account(store, network ? &nobody : id, network, HV_STORE_NETWORK, NULL);
  hv_store_account *bringer = home ? open_account(store, id, network, HV_STORE_BRINGER, home) : NULL;
  if (!bringer)
    close_if_empty(store, home);
  return bringer;
}

/* Adds records and bytes, either of which may be a negative number's, to an account and to its network's. */
static void charge(hv_store *store, hv_store_account *account, size_t records, size_t bytes) {
  for (; account; account = account->home) {
    account->records += records;
    account->bytes += bytes;
    rank(store, account);
  }
}

static void discharge(hv_store *store, hv_store_account *account, size_t size) {
  charge(store, account, 0 - (size_t)1, 0 - size);
  close_if_empty(store, account);
}

/* ---- items ---- */

static void drop_key_if_empty(hv_store *store, hv_store_key *key) {
  if (key->items)
    return;
  hv_table_remove(&store->keys, &key->node);
  hv_mem_free(key);
}

static void remove_item(hv_store *store, hv_store_item *item) {
  hv_store_key *key = item->key;
  hv_table_remove(&store->items, &item->node);
  if (item->before)
    item->before->next = item->next;
  else
    key->items = item->next;
  if (item->next)
    item->next->before = item->before;
  key->n--;
  key->bytes -= item->size;
  store->bytes -= item->size;
  store->n_dead -= item->dead;
  hv_heap_remove(&store->ends, &item->ending, ends_sooner);
  take_from_bringer(item);
  discharge(store, item->bringer, item->size);
  discharge(store, item->signer, item->size);
  hv_mem_free(item->value);
  hv_mem_free(item);
  drop_key_if_empty(store, key);
}

static void set_size(hv_store *store, hv_store_item *item, size_t size) {
  size_t before = item->size;
  item->size = (uint32_t)size;
  item->key->bytes += size - before;
  store->bytes += size - before;
  charge(store, item->bringer, 0, size - before);
  charge(store, item->signer, 0, size - before);
}

/* A signed record leaves its version behind; an unsigned one nothing. */
static void end_item(hv_store *store, hv_store_item *item) {
  if (item->dead || !item->signer) {
    remove_item(store, item);
    return;
  }
  hv_mem_free(item->value);
  item->value = NULL;
  item->dead = 1;
  store->n_dead++;
  set_size(store, item, item->size - item->value_size);
  item->value_size = 0;
  set_end(store, item, item->end_us + (uint64_t)store->config.tomb_ms * 1000);
}

void hv_store_end_of(hv_store *store, const hv_hash *place, const hv_peer_id *signer) {
  hv_store_key *key = find_key(store, place);
  for (hv_store_item *item = key ? key->items : NULL, *next; item; item = next) {
    next = item->next;
    if (!item->dead && item->signer && hv_peer_equal(&item->signer->id, signer))
      end_item(store, item);
  }
}

static int says_of_itself(const hv_store_item *item, hv_span mark) {
  return item->lease_ms <= HV_STORE_OF_ITSELF_MS && item->has_subkey && item->subkey_size >= mark.size &&
         memcmp(item->subkey + item->subkey_size - mark.size, mark.data, mark.size) == 0;
}

void hv_store_owner_ended(hv_store *store, const hv_peer_id *signer) {
  char who[HV_PEER_TEXT_MAX], mark[HV_PEER_TEXT_MAX + 16];
  int size = snprintf(mark, sizeof mark, "[owner:%s]", hv_peer_print(signer, who));
  for (size_t i = 0; i < store->items.room; i++)
    for (hv_table_node *at = store->items.chains[i], *next; at; at = next) {
      hv_store_item *item = HV_HOLDER(hv_store_item, node, at);
      next = at->next;
      if (!item->dead && item->signer && hv_peer_equal(&item->signer->id, signer) &&
          says_of_itself(item, hv_span_of(mark, (size_t)size)))
        end_item(store, item);
    }
}

uint64_t hv_store_expire(hv_store *store) {
  uint64_t now = store->env->now_us(store->env);
  while (store->ends && first_to_end(store)->end_us <= now)
    end_item(store, first_to_end(store));
  return store->ends ? first_to_end(store)->end_us : UINT64_MAX;
}

/* ---- room ---- */

static int key_is_over(const hv_store_key *key) {
  return key->n > HV_STORE_KEY_RECORDS_MAX || key->bytes > HV_STORE_KEY_BYTES_MAX;
}

static int whole_is_over(const hv_store *store) {
  return store->items.n > store->config.whole.records || store->bytes > store->config.whole.bytes;
}

static void evict(hv_store *store, hv_store_item *victim) {
  remove_item(store, victim);
  store->evicted++;
}

/* The item of a full key that has to go: of the network that has most in it, and there of the bringer that has most, the one that
 * ends soonest. Where a subkey is signed, the key is a dictionary of peers' own records: then all unsigned ones go first, and
 * *among_unsigned is true. */
static hv_store_item *victim_here(const hv_store_key *key, int *among_unsigned) {
  int by_number = key->n > HV_STORE_KEY_RECORDS_MAX, owned = 0, any_unsigned = 0;
  hv_store_account *home = NULL, *bringer = NULL;
  hv_store_item *first = NULL;
  for (hv_store_item *item = key->items; item; item = item->next) {
    item->bringer->here = item->bringer->home->here = 0;
    owned |= item->signer && item->has_subkey;
    any_unsigned |= !item->signer;
  }
  *among_unsigned = owned && any_unsigned;
  for (hv_store_item *item = key->items; item; item = item->next) {
    if (*among_unsigned && item->signer)
      continue;
    item->bringer->here += by_number ? 1 : item->size;
    item->bringer->home->here += by_number ? 1 : item->size;
    if (!home || item->bringer->home->here > home->here)
      home = item->bringer->home;
  }
  for (hv_store_item *item = key->items; item; item = item->next)
    if (item->bringer->home == home && item->bringer->here > (bringer ? bringer->here : 0))
      bringer = item->bringer;
  for (hv_store_item *item = key->items; item; item = item->next)
    if (item->bringer == bringer && !(*among_unsigned && item->signer) && (!first || item->end_us < first->end_us))
      first = item;
  return first;
}

/* The newcomer stands already; 0: it must go itself, because its bringer holds most. */
static int store_make_room(hv_store *store, hv_store_item *newcomer) {
  while (key_is_over(newcomer->key)) {
    int among_unsigned;
    hv_store_item *victim = victim_here(newcomer->key, &among_unsigned);
    if (victim->bringer == newcomer->bringer && !(among_unsigned && newcomer->signer))
      return 0;
    evict(store, victim);
  }
  while (whole_is_over(store)) {
    hv_store_account *home = HV_HOLDER(hv_store_account, rank, store->fullest);
    hv_store_account *most = HV_HOLDER(hv_store_account, rank, home->below);
    if (most == newcomer->bringer)
      return 0;
    evict(store, HV_HOLDER(hv_store_item, brought, most->below));
  }
  return 1;
}

/* The account that a bringer shares with others; NULL: it is a network of its own. */
static const hv_store_account *shared_home(const hv_store_account *bringer) {
  return bringer->network ? bringer->home : NULL;
}

static int store_over(const hv_store_account *account, const hv_store_quota *quota) {
  return account && (account->records > quota->records || account->bytes > quota->bytes);
}

/* ---- put ---- */

static hv_store_key *open_key(hv_store *store, const hv_hash *place, hv_span bytes) {
  hv_store_key *key = find_key(store, place);
  if (key)
    return key;
  key = hv_mem_zalloc(store->env->mem, sizeof *key + bytes.size);
  if (!key)
    return NULL;
  key->place = *place;
  key->key_size = (uint16_t)bytes.size;
  if (bytes.size)
    memcpy(key->key, bytes.data, bytes.size);
  hv_table_add(&store->keys, &key->node, key_hash(store, place));
  return key;
}

static hv_store_item *new_item(hv_store *store, const hv_record *record) {
  hv_store_item *item = hv_mem_zalloc(store->env->mem, sizeof *item + record->subkey.size);
  uint8_t *value = hv_mem_alloc(store->env->mem, record->value.size);
  if (!item || !value) {
    hv_mem_free(item);
    hv_mem_free(value);
    return NULL;
  }
  if (record->value.size)
    memcpy(value, record->value.data, record->value.size);
  if (record->subkey.size)
    memcpy(item->subkey, record->subkey.data, record->subkey.size);
  item->value = value;
  item->value_size = (uint32_t)record->value.size;
  item->subkey_size = (uint32_t)record->subkey.size;
  item->has_subkey = record->has_subkey != 0;
  item->version = record->version;
  item->lease_ms = record->lease_ms;
  item->size = (uint32_t)hv_record_size(record);
  memcpy(item->signature, record->signature, sizeof item->signature);
  return item;
}

static void link_item(hv_store *store, const hv_hash *place, const hv_record *record, hv_store_item *item) {
  hv_store_key *key = item->key;
  hv_table_add(&store->items, &item->node, item_hash(store, place, record));
  item->next = key->items;
  if (key->items)
    key->items->before = item;
  key->items = item;
  key->n++;
  key->bytes += item->size;
  store->bytes += item->size;
  give_to(item, item->bringer);
  charge(store, item->bringer, 1, item->size);
  charge(store, item->signer, 1, item->size);
  hv_heap_add(&store->ends, &item->ending, ends_sooner);
}

static hv_status store_add(hv_store *store, const hv_hash *place, const hv_record *record, const hv_peer_id *bringer,
                           uint64_t network, uint64_t end_us) {
  hv_store_item *item = new_item(store, record);
  if (!item)
    return HV_NOMEM;
  int is_signed = hv_peer_is_known(&record->signer);
  item->end_us = end_us;
  item->key = open_key(store, place, record->key);
  item->bringer = open_bringer(store, bringer, network);
  item->signer = is_signed ? open_account(store, &record->signer, 0, HV_STORE_SIGNER, NULL) : NULL;
  if (!item->key || !item->bringer || (is_signed && !item->signer)) {
    if (item->key)
      drop_key_if_empty(store, item->key);
    close_if_empty(store, item->bringer);
    close_if_empty(store, item->signer);
    hv_mem_free(item->value);
    hv_mem_free(item);
    return HV_NOMEM;
  }
  link_item(store, place, record, item);
  if (!store_over(item->bringer, &store->config.per_peer) && !store_over(shared_home(item->bringer), &store->config.per_network) &&
      !store_over(item->signer, &store->config.per_signer) && store_make_room(store, item))
    return HV_OK;
  store->refused++;
  remove_item(store, item);
  return HV_BUDGET;
}

static int may_add(const hv_store_account *account, size_t records, size_t bytes, const hv_store_quota *quota) {
  return !account || (account->records + records <= quota->records && account->bytes + bytes <= quota->bytes);
}

/* In place: the old one stands until the new one is sure. */
static hv_status replace(hv_store *store, hv_store_item *item, const hv_record *record, const hv_peer_id *bringer, uint64_t network,
                         uint64_t end_us) {
  size_t size = hv_record_size(record), grows = size > item->size ? size - item->size : 0;
  uint8_t *value = hv_mem_alloc(store->env->mem, record->value.size);
  hv_store_account *account = value ? open_bringer(store, bringer, network) : NULL;
  int same = account == item->bringer, at_home = account && account->home == item->bringer->home;
  if (!account) {
    hv_mem_free(value);
    return HV_NOMEM;
  }
  if (!may_add(account, same ? 0 : 1, same ? grows : size, &store->config.per_peer) ||
      !may_add(shared_home(account), at_home ? 0 : 1, at_home ? grows : size, &store->config.per_network) ||
      !may_add(item->signer, 0, grows, &store->config.per_signer)) {
    hv_mem_free(value);
    close_if_empty(store, account);
    store->refused++;
    return HV_BUDGET;
  }
  if (record->value.size)
    memcpy(value, record->value.data, record->value.size);
  hv_mem_free(item->value);
  store->n_dead -= item->dead;
  item->dead = 0;
  item->value = value;
  item->value_size = (uint32_t)record->value.size;
  item->version = record->version;
  item->lease_ms = record->lease_ms;
  memcpy(item->signature, record->signature, sizeof item->signature);
  take_from_bringer(item);
  charge(store, account, 1, item->size);
  discharge(store, item->bringer, item->size);
  give_to(item, account);
  set_size(store, item, size);
  set_end(store, item, end_us);
  if (store_make_room(store, item))
    return HV_OK;
  remove_item(store, item);
  store->refused++;
  return HV_BUDGET;
}

static int same_value(const hv_store_item *item, const hv_record *record) {
  return !item->dead && hv_span_equal(hv_span_of(item->value, item->value_size), record->value);
}

static hv_status put_unsigned(hv_store *store, hv_store_item *item, const hv_record *record, const hv_peer_id *bringer,
                              uint64_t network, uint64_t end_us) {
  uint64_t slack = HV_STORE_SLACK_MS * UINT64_C(1000);
  if (same_value(item, record) && end_us <= item->end_us + slack)
    return HV_OK;
  return end_us > item->end_us ? replace(store, item, record, bringer, network, end_us) : HV_EXISTS;
}

/* The very record that is kept, or was: 1, and no signature needs to be looked at again. */
static int is_the_same(const hv_store_item *item, const hv_record *record) {
  return item->version == record->version && item->lease_ms == record->lease_ms && same_value(item, record) &&
         memcmp(item->signature, record->signature, sizeof item->signature) == 0;
}

static hv_status put_signed(hv_store *store, const hv_hash *place, hv_store_item *item, const hv_record *record,
                            const hv_peer_id *bringer, uint64_t network, uint64_t end_us, int checked) {
  int in_person = hv_peer_equal(&record->signer, bringer);
  if (is_the_same(item, record)) {
    if (in_person)
      set_end(store, item, end_us);
    return HV_OK;
  }
  if (record->version < item->version || (record->version == item->version && !(item->dead && in_person)))
    return HV_EXISTS;
  if (!checked && !hv_record_verify(store->env, place, record))
    return HV_CORRUPT;
  return replace(store, item, record, bringer, network, end_us);
}

static hv_status put(hv_store *store, const hv_record *record, const hv_peer_id *bringer, uint64_t network,
                     const hv_store_item **stands, int checked) {
  hv_hash place;
  hv_status status = hv_record_check(record, NULL);
  if (stands)
    *stands = NULL;
  if (status != HV_OK)
    return status;
  hv_store_expire(store);
  store->env->sha256(store->env, record->key, &place);
  if (store->config.accept && (status = store->config.accept(store->config.arg, &place, record)) != HV_OK)
    return status;
  uint32_t ttl_ms = record->ttl_ms < store->config.ttl_max_ms ? record->ttl_ms : store->config.ttl_max_ms;
  uint64_t end_us = store->env->now_us(store->env) + (uint64_t)ttl_ms * 1000;
  hv_store_item *item = find_item(store, &place, record);
  int is_signed = hv_peer_is_known(&record->signer);
  if (!item)
    return is_signed && !checked && !hv_record_verify(store->env, &place, record)
               ? HV_CORRUPT
               : store_add(store, &place, record, bringer, network, end_us);
  status = is_signed ? put_signed(store, &place, item, record, bringer, network, end_us, checked)
                     : put_unsigned(store, item, record, bringer, network, end_us);
  if (status == HV_EXISTS && stands)
    *stands = item;
  return status;
}

hv_status hv_store_put_from(hv_store *store, const hv_record *record, const hv_peer_id *bringer, uint64_t network,
                            const hv_store_item **stands) {
  return put(store, record, bringer, network, stands, 0);
}

hv_status hv_store_put(hv_store *store, const hv_record *record, const hv_peer_id *bringer, const hv_store_item **stands) {
  return put(store, record, bringer, 0, stands, 0);
}

hv_status hv_store_put_checked(hv_store *store, const hv_record *record, const hv_peer_id *bringer) {
  return put(store, record, bringer, 0, NULL, 1);
}

/* ---- reading ---- */

const hv_store_item *hv_store_first(const hv_store *store, const hv_hash *place) {
  const hv_store_key *key = find_key(store, place);
  return key ? key->items : NULL;
}

int hv_store_show(const hv_store *store, const hv_store_item *item, hv_record *out) {
  uint64_t now = store->env->now_us(store->env);
  int lives = !item->dead && item->end_us > now;
  *out = (hv_record){
      .key = hv_span_of(item->key->key, item->key->key_size),
      .subkey = hv_span_of(item->subkey, item->subkey_size),
      .value = hv_span_of(item->value, lives ? item->value_size : 0),
      .has_subkey = item->has_subkey,
      .ttl_ms = lives ? (uint32_t)((item->end_us - now + 999) / 1000) : 0,
      .lease_ms = item->lease_ms,
      .version = item->version,
  };
  if (item->signer) {
    out->signer = item->signer->id;
    memcpy(out->signature, item->signature, sizeof out->signature);
  }
  return lives;
}

void hv_store_walk(hv_store *store, size_t *cursor, size_t most, void (*see)(void *arg, hv_store_key *key), void *arg) {
  size_t room = store->keys.room, at = *cursor < room ? *cursor : 0, end = at + most < room ? at + most : room;
  for (; at < end; at++)
    for (hv_table_node *node = store->keys.chains[at]; node; node = node->next)
      see(arg, HV_HOLDER(hv_store_key, node, node));
  *cursor = end == room ? 0 : end;
}

size_t hv_store_count(const hv_store *store) {
  return store->items.n - store->n_dead;
}

void hv_store_fini(hv_store *store) {
  while (store->ends)
    remove_item(store, first_to_end(store));
  hv_table_fini(&store->keys);
  hv_table_fini(&store->items);
  hv_table_fini(&store->accounts);
}
