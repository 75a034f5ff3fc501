/* The hive's DHT: what the program stores and gets (contract in hivemind_c.h). */
#include "net/hive/hive_inner.h"

#include <string.h>

static void cancel_dht(hv_hive_op *o, hv_node *node) {
  hv_dht_cancel(hv_node_dht(node), &o->u.dht.op);
}

/* An op with its own copy of the key and of the item's bytes. NULL: no memory. */
static hv_hive_op *new_dht_op(hv_hive *hive, void (*start)(hv_hive_op *, hv_node *), hv_span key, hv_span subkey, hv_span value,
                              uint32_t timeout_ms) {
  hv_hive_op *o = hv_hive_new_op(hive, start);
  if (!o)
    return NULL;
  o->bytes = hv_mem_alloc(hv_hive_mem(hive), key.size + subkey.size + value.size + 1);
  if (!o->bytes) {
    hv_hive_free_op(o);
    return NULL;
  }
  uint8_t *at = o->bytes;
  hv_span *spans[] = {&key, &subkey, &value};
  for (size_t i = 0; i < 3; i++) {
    if (spans[i]->size)
      memcpy(at, spans[i]->data, spans[i]->size);
    spans[i]->data = at;
    at += spans[i]->size;
  }
  o->u.dht.op.key = key;
  o->u.dht.op.timeout_ms = timeout_ms;
  o->u.dht.item.subkey = subkey;
  o->u.dht.item.value = value;
  return o;
}

/* ---- store ---- */

static void store_over(hv_dht_op *op, hv_status status, const char *text) {
  hv_hive_op *o = op->owner;
  if (status == HV_OK) {
    uint32_t stored = (uint32_t)o->u.dht.item.stored;
    hv_future_finish(o->future, hv_span_of(&stored, sizeof stored), NULL);
    hv_hive_free_op(o);
  } else
    hv_hive_fail_op(o, status, text);
}

static void start_store(hv_hive_op *o, hv_node *node) {
  hv_dht_op *op = &o->u.dht.op;
  hv_error why = {0};
  op->done = store_over;
  op->owner = o;
  op->items = &o->u.dht.item;
  op->n_items = 1;
  o->cancel = cancel_dht;
  hv_status status = hv_dht_store(hv_node_dht(node), op, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

hv_status hv_hive_dht_store(hv_hive *hive, hv_span key, const hv_hive_record *record, uint32_t timeout_ms, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  if (key.size > HV_RECORD_KEY_MAX || record->subkey.size > HV_RECORD_KEY_MAX || record->value.size > HV_RECORD_VALUE_MAX)
    return HV_TOO_LARGE;
  hv_hive_op *o = new_dht_op(hive, start_store, key, record->subkey, record->value, timeout_ms);
  if (!o)
    return HV_NOMEM;
  o->u.dht.item.has_subkey = record->has_subkey != 0;
  o->u.dht.item.ttl_ms = record->ttl_ms;
  return hv_hive_submit(o, out);
}

/* ---- get ---- */

/* The records as the program gets them: an array, and behind it the bytes that it points to, in one block. */
static void give_records(hv_hive_op *o, const hv_dht_op *op) {
  size_t bytes = 0, n = op->n_records;
  uint64_t now = o->u.dht.env->now_us(o->u.dht.env);
  for (size_t i = 0; i < n; i++)
    bytes += op->records[i].subkey.size + op->records[i].value.size;
  hv_hive_record *records = hv_mem_alloc(hv_hive_mem(o->hive), n * sizeof *records + bytes);
  if (!records) {
    hv_hive_fail_op(o, HV_NOMEM, "cannot hand over the records: no memory; raise the memory limit");
    return;
  }
  uint8_t *at = (uint8_t *)(records + n);
  for (size_t i = 0; i < n; i++) {
    const hv_record *from = &op->records[i];
    records[i] = (hv_hive_record){.subkey = hv_span_of(at, from->subkey.size),
                                  .value = hv_span_of(at + from->subkey.size, from->value.size),
                                  .has_subkey = from->has_subkey,
                                  .ttl_ms = from->ttl_ms,
                                  .end_us = now + from->ttl_ms * UINT64_C(1000),
                                  .signer = from->signer};
    if (from->subkey.size)
      memcpy(at, from->subkey.data, from->subkey.size);
    if (from->value.size)
      memcpy(at + from->subkey.size, from->value.data, from->value.size);
    at += from->subkey.size + from->value.size;
  }
  hv_future_finish_taken(o->future, records, n * sizeof *records, NULL);
  hv_hive_free_op(o);
}

static void get_over(hv_dht_op *op, hv_status status, const char *text) {
  hv_hive_op *o = op->owner;
  if (status == HV_OK)
    give_records(o, op);
  else
    hv_hive_fail_op(o, status, text);
}

static void start_get(hv_hive_op *o, hv_node *node) {
  hv_dht_op *op = &o->u.dht.op;
  hv_error why = {0};
  op->done = get_over;
  op->owner = o;
  o->u.dht.env = hv_node_env(node);
  o->cancel = cancel_dht;
  hv_status status = hv_dht_get(hv_node_dht(node), op, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

hv_status hv_hive_dht_get(hv_hive *hive, hv_span key, int latest, uint32_t timeout_ms, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  if (key.size > HV_RECORD_KEY_MAX)
    return HV_TOO_LARGE;
  hv_hive_op *o = new_dht_op(hive, start_get, key, hv_span_of(NULL, 0), hv_span_of(NULL, 0), timeout_ms);
  if (!o)
    return HV_NOMEM;
  o->u.dht.op.latest = latest;
  return hv_hive_submit(o, out);
}

/* ---- how it is ---- */

static int names_me(const hv_peers *peers) {
  for (size_t i = 0; i < peers->n_starts; i++)
    if (hv_peer_equal(&peers->starts[i].target.id, &peers->config.me.id))
      return 1;
  return 0;
}

static void start_state(hv_hive_op *o, hv_node *node) {
  const hv_dht *dht = hv_node_dht(node);
  const hv_store *kept = hv_dht_kept(dht);
  hv_hive_dht_state state = {
      .peers = hv_peers_alive(hv_node_peers(node)),
      .contacts = hv_dht_route(dht)->n,
      .records = hv_store_count(kept),
      .bytes = kept->bytes,
      .published = hv_dht_published(dht),
      .calls = hv_dht_calls(dht),
      .questions = hv_dht_questions(dht),
      .memory = atomic_load(&hv_hive_mem(o->hive)->used),
      .is_initial = names_me(hv_node_peers(node)),
      .is_hidden = hv_standing_hidden(hv_node_peers(node)),
  };
  hv_future_finish(o->future, hv_span_of(&state, sizeof state), NULL);
  hv_hive_free_op(o);
}

hv_status hv_hive_dht_look(hv_hive *hive, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = hv_hive_new_op(hive, start_state);
  return o ? hv_hive_submit(o, out) : HV_NOMEM;
}
