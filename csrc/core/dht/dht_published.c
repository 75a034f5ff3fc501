#include "core/dht/dht_inner.h"

#include "core/util/fold.h"

#include <string.h>

enum {
  AGAIN_US = 600000000, /* longest time between two republications */
  SHORT_US = 30000000,  /* a record that ends sooner is not republished */
};

dht_published **dht_published_at(hv_dht *dht, hv_span key, const hv_dht_item *item) {
  uint64_t hash = hv_fold_bytes(dht->salt, item->has_subkey, key.data, key.size);
  hash = hv_fold_bytes(dht->salt, hash, item->subkey.data, item->subkey.size);
  dht_published **at = &dht->published[hash % DHT_PUBLISHED_CHAINS];
  while (*at && !(hv_span_equal((*at)->key, key) && (*at)->item.has_subkey == item->has_subkey &&
                  hv_span_equal((*at)->item.subkey, item->subkey)))
    at = &(*at)->next;
  return at;
}

void dht_withdraw(hv_dht *dht, dht_published **at) {
  dht_published *published = *at;
  *at = published->next;
  dht->n_published--;
  if (published->work)
    published->stale = 1;
  else
    hv_mem_free(published);
}

static hv_span copy_to(uint8_t **at, hv_span from) {
  hv_span copy = hv_span_of(*at, from.size);
  if (from.size)
    memcpy(*at, from.data, from.size);
  *at += from.size;
  return copy;
}

uint64_t dht_published_due_us(uint64_t now_us, uint64_t ttl_ms, uint64_t end_us) {
  uint64_t wait = ttl_ms * 1000 / 2 < AGAIN_US ? ttl_ms * 1000 / 2 : AGAIN_US;
  return now_us + wait + SHORT_US / 4 < end_us ? now_us + wait : UINT64_MAX;
}

static void publish_one(hv_dht *dht, const dht_work *work, const hv_dht_item *item, const hv_record *record) {
  dht_published **at = dht_published_at(dht, work->key, item);
  if (*at && (*at)->nth > work->nth) /* a later word was stored sooner */
    return;
  if (*at)
    dht_withdraw(dht, at);
  if (item->ttl_ms * 1000 < SHORT_US || dht->n_published == DHT_PUBLISHED_MAX)
    return;
  size_t size = work->key.size + item->subkey.size + item->value.size;
  dht_published *published = hv_mem_zalloc(dht->env->mem, sizeof *published + size);
  if (!published)
    return; /* it lives as long as its first lease */
  uint8_t *bytes = published->bytes;
  published->item = *item;
  published->key = copy_to(&bytes, work->key);
  published->item.subkey = copy_to(&bytes, item->subkey);
  published->item.value = copy_to(&bytes, item->value);
  published->version = record->version;
  published->nth = work->nth;
  published->end_us = work->started_us + item->ttl_ms * 1000;
  published->due_us = dht_published_due_us(work->started_us, record->ttl_ms, published->end_us);
  at = dht_published_at(dht, work->key, item);
  published->next = *at;
  *at = published;
  dht->n_published++;
}

void dht_publish(hv_dht *dht, const dht_work *work) {
  for (size_t i = 0; i < work->n_records; i++)
    publish_one(dht, work, &work->items[i], &work->records[i]);
}

void dht_published_fini(hv_dht *dht) {
  for (size_t c = 0; c < DHT_PUBLISHED_CHAINS; c++)
    while (dht->published[c])
      dht_withdraw(dht, &dht->published[c]);
}
