/* The records that this node keeps for others: with an end, subkeys, and quotas.
 *
 * Room: core (uses env, record, heap).
 * Owner: dht; it owns all bytes that it keeps.
 * Thread: the hive thread only. Its only clock is this node's own.
 * Limits: of the whole store, of each key (HV_STORE_KEY_*), and of each peer, network and signer (hv_store_config), in records and
 * bytes.
 * A put costs log n, except in a key that is full, whose records are scanned.
 * Rules: docs/design/dht.md, "Records that a node keeps": times, the winner of two records, replays, quotas.
 */
#ifndef HV_CORE_STORE_H
#define HV_CORE_STORE_H

#include "core/dht/record.h"
#include "core/util/heap.h"
#include "core/util/table.h"

#define HV_STORE_KEY_RECORDS_MAX HV_RECORDS_MAX /* of one key: all fit into one answer */
#define HV_STORE_KEY_BYTES_MAX (1u << 20)       /* of one key */
#define HV_STORE_SLACK_MS 2000                  /* extension of an unsigned value's end that is ignored */
#define HV_STORE_OF_ITSELF_MS 60000             /* longest lease of a record that ends with its owner */
#define HV_STORE_REPLICAS_MAX 20                /* replicas remembered for each key */

typedef struct hv_store hv_store;
typedef struct hv_store_key hv_store_key;
typedef struct hv_store_item hv_store_item;
typedef struct hv_store_account hv_store_account;

/* A limit; 0 selects the default. */
typedef struct hv_store_quota {
  size_t records, bytes;
} hv_store_quota;

typedef struct hv_store_config {
  /* 0 selects the default in parentheses. */
  uint32_t ttl_max_ms;        /* longest lifetime (an hour) */
  uint32_t tomb_ms;           /* lifetime of a tombstone (an hour) */
  hv_store_quota whole;       /* of the store (65,536 records, 256 MiB) */
  hv_store_quota per_peer;    /* of one bringer (a quarter of whole) */
  hv_store_quota per_network; /* of all bringers of a network (half of whole) */
  hv_store_quota per_signer;  /* of one signer (a sixteenth of whole) */
  /* An additional check (may be NULL): HV_OK, or the reason for a refusal. Borrows the record. */
  hv_status (*accept)(void *arg, const hv_hash *place, const hv_record *record);
  void *arg;
} hv_store_config;

/* A bringer is the peer that sent a record, from one network. A bringer without a network is a network of its own. */
typedef enum hv_store_kind { HV_STORE_BRINGER, HV_STORE_NETWORK, HV_STORE_SIGNER } hv_store_kind;

/* The use that a bringer, a network or a signer makes of the store. */
struct hv_store_account {
  hv_table_node node;
  hv_peer_id id; /* unknown: of a network */
  uint64_t network;
  hv_store_kind kind;
  size_t records, bytes, here; /* here: scratch, records or bytes within one key */
  double share;                /* of a bringer or network: its part of the store, the larger of records and bytes */
  hv_heap_node rank;           /* place among the bringers of its network, or among networks, by share */
  hv_heap_node *below;         /* of a bringer: heap of its records, by end; of a network: heap of its bringers, by share */
  hv_store_account *home;      /* of a bringer: its network */
};

/* A record, or its tombstone: the version of a signed record that has ended. */
struct hv_store_item {
  hv_store_item *next, *before; /* of the same key */
  hv_table_node node;
  hv_store_key *key;
  hv_store_account *bringer, *signer; /* signer: NULL when unsigned */
  hv_heap_node brought, ending;       /* in its bringer's heap, in the store's */
  uint64_t end_us;                    /* of the record, then of the tombstone */
  uint64_t version;
  uint32_t lease_ms, subkey_size, value_size, size; /* size: as hv_record_size counts */
  uint8_t has_subkey, dead;
  uint8_t signature[64];
  uint8_t *value; /* NULL: a tombstone */
  uint8_t subkey[];
};

/* All records of one key. */
struct hv_store_key {
  hv_table_node node;
  hv_hash place;
  hv_store_item *items;
  size_t n, bytes;
  uint64_t seen_changes;                    /* for dht: hv_route.changes when its replicas were last checked */
  uint32_t replicas[HV_STORE_REPLICAS_MAX]; /* for dht: hashes of the nodes that were given it */
  uint8_t n_replicas, looked_at;
  uint16_t key_size;
  uint8_t key[];
};

struct hv_store {
  hv_env *env;
  hv_store_config config;
  uint64_t salt[2]; /* of the hash tables: strangers cannot choose keys that share a chain */
  hv_table keys, items, accounts;
  size_t n_dead, bytes;
  hv_heap_node *fullest; /* heap of the networks, the largest share first */
  hv_heap_node *ends;    /* heap of all items, by end */
  uint64_t evicted, refused;
};

/* HV_NOMEM: nothing to fini. */
hv_status hv_store_init(hv_store *store, hv_env *env, const hv_store_config *config);
void hv_store_fini(hv_store *store);

/* Keeps a copy of a record that `bringer` sent (this node itself for its own records). HV_OK: it is kept, or was already.
 * HV_EXISTS: a newer record is there; *stands (may be NULL) is that record if the signer is the same. HV_CORRUPT: invalid
 * signature. HV_TOO_LARGE, HV_INVALID, HV_DENIED as in record.h. HV_BUDGET: a quota. HV_NOMEM. The status of `accept`.
 * hv_store_put_from names the network from which it came (core/peers/contact.h); hv_store_put, and network 0, none. */
hv_status hv_store_put_from(hv_store *store, const hv_record *record, const hv_peer_id *bringer, uint64_t network,
                            const hv_store_item **stands);
hv_status hv_store_put(hv_store *store, const hv_record *record, const hv_peer_id *bringer, const hv_store_item **stands);
/* The same for a record whose signature this node has checked. */
hv_status hv_store_put_checked(hv_store *store, const hv_record *record, const hv_peer_id *bringer);

/* The first item of a key, or NULL; ->next leads to the others. Borrowed until the next put or expire. */
const hv_store_item *hv_store_first(const hv_store *store, const hv_hash *place);

/* True if the item is a live record. *out shows it (borrowed until the next put or expire; ttl_ms is at least 1). A tombstone, or a
 * record that has just ended, shows without value and with ttl_ms 0. */
int hv_store_show(const hv_store *store, const hv_store_item *item, hv_record *out);

/* Removes all items that have reached their end (put does so, too). Returns the time of the next end; UINT64_MAX: none. */
uint64_t hv_store_expire(hv_store *store);

/* Ends this signer's records at that place, as if their time were over. */
void hv_store_end_of(hv_store *store, const hv_hash *place, const hv_peer_id *signer);

/* Ends the records that this signer wrote about itself, because it has ended. These are its signed records with a lease of at most
 * HV_STORE_OF_ITSELF_MS and a subkey that names it as owner ("...[owner:PEERID]"). */
void hv_store_owner_ended(hv_store *store, const hv_peer_id *signer);

/* Calls see() for the keys of at most `most` hash chains from *cursor on. *cursor moves on and wraps to 0. */
void hv_store_walk(hv_store *store, size_t *cursor, size_t most, void (*see)(void *arg, hv_store_key *key), void *arg);

/* Number of live records. */
size_t hv_store_count(const hv_store *store);

#endif
