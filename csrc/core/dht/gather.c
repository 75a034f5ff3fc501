#include "core/dht/gather.h"

#include "core/util/fold.h"

hv_status hv_gather_init(hv_gather *gather, hv_env *env, const hv_hash *place, hv_span key) {
  *gather = (hv_gather){.env = env, .place = *place, .key = key};
  env->random(env, gather->salt, sizeof gather->salt);
  return hv_table_init(&gather->variants, env->mem);
}

void hv_gather_fini(hv_gather *gather) {
  for (size_t i = 0; i < gather->variants.room; i++)
    for (hv_table_node *at = gather->variants.chains[i], *next; at; at = next) {
      next = at->next;
      hv_mem_free(HV_HOLDER(hv_gather_variant, node, at));
    }
  hv_table_fini(&gather->variants);
}

static uint64_t hash_of(const hv_gather *gather, const hv_record *record) {
  return hv_fold_bytes(gather->salt, record->has_subkey ? 1 : 2, record->subkey.data, record->subkey.size);
}

/* The variant of a node of the table; NULL for NULL. */
static hv_gather_variant *variant_of(hv_table_node *node) {
  return node ? HV_HOLDER(hv_gather_variant, node, node) : NULL;
}

static hv_gather_variant *next_of(const hv_gather_variant *variant) {
  return variant_of(hv_table_next(&variant->node));
}

static int same_slot(const hv_gather_variant *a, int has_subkey, const uint8_t *subkey, size_t size) {
  return a->has_subkey == has_subkey && a->subkey_size == size && memcmp(a->bytes, subkey ? subkey : a->bytes, size) == 0;
}

static int same_record(const hv_gather_variant *a, const hv_record *b) {
  int dead = b->ttl_ms == 0;
  if (a->dead != dead || a->version != b->version || !hv_peer_equal(&a->signer, &b->signer))
    return 0;
  if (dead)
    return 1;
  return a->lease_ms == b->lease_ms && hv_span_equal(hv_span_of(a->bytes + a->subkey_size, a->value_size), b->value) &&
         memcmp(a->signature, b->signature, sizeof a->signature) == 0;
}

/* Could it be so? A record that lives must be as hv_record_check wants it; a tombstone needs an owner. Not the signature. */
static int is_possible(const hv_gather *gather, const hv_record *record) {
  hv_record whole = *record;
  whole.key = gather->key;
  if (record->ttl_ms)
    return hv_record_check(&whole, NULL) == HV_OK;
  hv_peer_id owner;
  return record->value.size == 0 && record->subkey.size <= HV_RECORD_KEY_MAX && hv_peer_is_known(&record->signer) &&
         hv_record_owner(gather->key, record->subkey, &owner) == HV_OK && hv_peer_equal(&owner, &record->signer);
}

static int is_forged(const hv_gather *gather, const hv_record *record) {
  return record->ttl_ms && hv_peer_is_known(&record->signer) && !hv_record_verify(gather->env, &gather->place, record);
}

static uint64_t digest_of(const hv_gather *gather, const hv_record *record) {
  uint64_t digest = hv_fold_bytes(gather->salt, record->has_subkey, record->subkey.data, record->subkey.size);
  digest = hv_fold_bytes(gather->salt, digest, record->value.data, record->value.size);
  return hv_fold_bytes(gather->salt, digest, &record->version, sizeof record->version) | 1;
}

/* NULL: not possible, no room, or this answer has said something of this slot already (so that a slot has no more variants than
 * answers). Or forged: then *forged is set. */
static hv_gather_variant *find_or_add(hv_gather *gather, const hv_record *record, uint64_t answer, int *forged) {
  uint64_t hash = hash_of(gather, record);
  hv_gather_variant *same = NULL;
  for (hv_gather_variant *at = variant_of(hv_table_first(&gather->variants, hash)); at; at = next_of(at)) {
    if (!same_slot(at, record->has_subkey, record->subkey.data, record->subkey.size))
      continue;
    if (at->answers & answer)
      return NULL;
    same = same_record(at, record) ? at : same;
  }
  if (same)
    return same;
  size_t size = sizeof(hv_gather_variant) + record->subkey.size + record->value.size;
  if (gather->bytes + size > HV_GATHER_BYTES_MAX || !is_possible(gather, record) || (*forged = is_forged(gather, record)))
    return NULL;
  hv_gather_variant *variant = hv_mem_zalloc(gather->env->mem, size);
  if (!variant)
    return NULL;
  *variant = (hv_gather_variant){.version = record->version, .has_subkey = record->has_subkey};
  variant->dead = record->ttl_ms == 0;
  variant->digest = digest_of(gather, record);
  variant->lease_ms = record->lease_ms;
  variant->signer = record->signer;
  variant->subkey_size = (uint32_t)record->subkey.size;
  variant->value_size = (uint32_t)record->value.size;
  memcpy(variant->signature, record->signature, sizeof variant->signature);
  if (record->subkey.size)
    memcpy(variant->bytes, record->subkey.data, record->subkey.size);
  if (record->value.size)
    memcpy(variant->bytes + record->subkey.size, record->value.data, record->value.size);
  gather->bytes += size;
  hv_table_add(&gather->variants, &variant->node, hash);
  return variant;
}

size_t hv_gather_open(hv_gather *gather, const hv_hash *distance) {
  if (gather->n_answers == HV_GATHER_ANSWERS_MAX)
    return HV_GATHER_ANSWERS_MAX;
  size_t answer = gather->n_answers++;
  gather->sums[answer] = gather->digests[answer] = 0;
  gather->distances[answer] = *distance;
  return answer;
}

hv_status hv_gather_take(hv_gather *gather, size_t answer, const hv_record *record, int *checked) {
  int forged = 0;
  size_t before = gather->variants.n;
  hv_gather_variant *variant = find_or_add(gather, record, UINT64_C(1) << answer, &forged);
  *checked = forged || (gather->variants.n > before && record->ttl_ms && hv_peer_is_known(&record->signer));
  if (!variant)
    return forged ? HV_CORRUPT : HV_OK;
  variant->answers |= UINT64_C(1) << answer;
  if (variant->dead)
    return HV_OK;
  gather->sums[answer] += variant->digest;
  if (variant->n_ttls < sizeof variant->ttls_ms / sizeof *variant->ttls_ms)
    variant->ttls_ms[variant->n_ttls++] = record->ttl_ms;
  return HV_OK;
}

void hv_gather_close(hv_gather *gather, size_t answer) {
  gather->digests[answer] = gather->sums[answer];
}

void hv_gather_add(hv_gather *gather, const hv_hash *distance, const hv_record *records, size_t n) {
  size_t answer = hv_gather_open(gather, distance);
  int checked;
  if (answer == HV_GATHER_ANSWERS_MAX)
    return;
  for (size_t i = 0; i < n && hv_gather_take(gather, answer, &records[i], &checked) == HV_OK; i++)
    ; /* nobody honest hands on a forgery: what follows is not looked at */
  hv_gather_close(gather, answer);
}

int hv_gather_had(const hv_gather *gather, size_t answer) {
  return answer < gather->n_answers && gather->digests[answer] != 0;
}

size_t hv_gather_holders(const hv_gather *gather, const hv_hash *within) {
  size_t n = 0;
  for (size_t i = 0; i < gather->n_answers; i++)
    n += gather->digests[i] && memcmp(&gather->distances[i], within, sizeof *within) <= 0;
  return n;
}

size_t hv_gather_agreed(const hv_gather *gather, const hv_hash *within) {
  size_t most = 0;
  for (size_t i = 0; i < gather->n_answers; i++) {
    size_t n = 0;
    for (size_t j = 0; gather->digests[i] && j < gather->n_answers; j++)
      n += gather->digests[j] == gather->digests[i] && memcmp(&gather->distances[j], within, sizeof *within) <= 0;
    most = n > most ? n : most;
  }
  return most;
}

/* The nearest answers, as bits. */
static uint64_t nearest_answers(const hv_gather *gather, size_t believed, const hv_hash *not_nearer) {
  uint64_t mask = 0;
  for (size_t i = 0; i < gather->n_answers; i++) {
    size_t nearer = 0;
    for (size_t j = 0; j < gather->n_answers; j++)
      nearer += memcmp(&gather->distances[j], &gather->distances[i], sizeof(hv_hash)) < 0;
    if (nearer < believed && memcmp(&gather->distances[i], not_nearer, sizeof *not_nearer) >= 0)
      mask |= UINT64_C(1) << i;
  }
  return mask;
}

static int gather_count(uint64_t answers) {
  return __builtin_popcountll(answers);
}

static uint32_t median_ttl(const hv_gather_variant *variant) {
  uint32_t sorted[8];
  for (size_t i = 0; i < variant->n_ttls; i++) {
    size_t at = i;
    for (; at > 0 && sorted[at - 1] > variant->ttls_ms[i]; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = variant->ttls_ms[i];
  }
  return variant->n_ttls ? sorted[variant->n_ttls / 2] : 0;
}

/* The view that the believed have of the slot of `of`. */
typedef struct slot {
  const hv_gather *gather;
  const hv_gather_variant *of, *first;
  uint64_t mask, holders;
} slot;

static const hv_gather_variant *next_in_slot(const slot *s, const hv_gather_variant *at) {
  while (at && !same_slot(at, s->of->has_subkey, s->of->bytes, s->of->subkey_size))
    at = next_of(at);
  return at;
}

static int is_vetoed(const slot *s, const hv_gather_variant *variant) {
  uint64_t against = 0;
  for (const hv_gather_variant *at = next_in_slot(s, s->first); at; at = next_in_slot(s, next_of(at)))
    if (at->dead && at->version >= variant->version)
      against |= at->answers & s->mask;
  return gather_count(against) > 2 * gather_count(variant->answers & s->mask);
}

/* A signed value may come from anywhere, as long as those that count do not say that it has ended. */
static int is_candidate(const slot *s, const hv_gather_variant *variant) {
  return hv_peer_is_known(&variant->signer) ? !is_vetoed(s, variant) : (variant->answers & s->mask) != 0;
}

static int is_better(const slot *s, const hv_gather_variant *a, const hv_gather_variant *b) {
  if (!b)
    return 1;
  if (hv_peer_is_known(&a->signer))
    return a->version > b->version;
  int answers_a = gather_count(a->answers & s->mask), answers_b = gather_count(b->answers & s->mask),
      half = (gather_count(s->holders) + 1) / 2;
  if ((answers_a >= half) != (answers_b >= half))
    return answers_a > answers_b;
  if (answers_a < half && answers_a != answers_b)
    return answers_a > answers_b;
  return median_ttl(a) > median_ttl(b);
}

static const hv_gather_variant *best_of(slot *s) {
  const hv_gather_variant *best = NULL;
  s->holders = 0;
  for (const hv_gather_variant *at = next_in_slot(s, s->first); at; at = next_in_slot(s, next_of(at)))
    s->holders |= at->dead ? 0 : at->answers & s->mask;
  for (const hv_gather_variant *at = next_in_slot(s, s->first); at; at = next_in_slot(s, next_of(at)))
    if (!at->dead && is_candidate(s, at) && is_better(s, at, best))
      best = at;
  return best;
}

static void show(const hv_gather *gather, const hv_gather_variant *variant, void (*see)(void *, const hv_record *), void *arg) {
  hv_record record = {
      .key = gather->key,
      .subkey = hv_span_of(variant->bytes, variant->subkey_size),
      .value = hv_span_of(variant->bytes + variant->subkey_size, variant->value_size),
      .has_subkey = variant->has_subkey,
      .ttl_ms = median_ttl(variant),
      .lease_ms = variant->lease_ms,
      .version = variant->version,
      .signer = variant->signer,
  };
  memcpy(record.signature, variant->signature, sizeof record.signature);
  see(arg, &record);
}

size_t hv_gather_pick(const hv_gather *gather, size_t believed, const hv_hash *not_nearer,
                      void (*see)(void *arg, const hv_record *record), void *arg) {
  size_t n = 0;
  slot s = {.gather = gather, .mask = nearest_answers(gather, believed, not_nearer)};
  for (size_t i = 0; i < gather->variants.room; i++)
    for (hv_table_node *node = gather->variants.chains[i]; node; node = node->next) {
      const hv_gather_variant *at = variant_of(node);
      s.of = at;
      s.first = variant_of(hv_table_first(&gather->variants, node->hash));
      if (next_in_slot(&s, s.first) != at) /* each slot once: at its first variant */
        continue;
      const hv_gather_variant *best = best_of(&s);
      if (!best)
        continue;
      show(gather, best, see, arg);
      n++;
    }
  return n;
}
