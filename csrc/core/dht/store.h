/* What is kept here, for whom, and for how long? Records with an end, subkeys, quotas, and no clock but this node's own.
 *
 * Room: core (uses env, record, heap). Owned by dht; the hive thread only. Owns what it keeps.
 *
 * A record is (key, maybe a subkey) -> value, with a time to live. A key with subkeys is a dictionary: each subkey is a record of
 * its own.
 *
 * Time. Every time is relative: "lives for ttl_ms more", counted from arrival on this node's clock and cut to ttl_max_ms. No two
 * clocks are ever compared, so that it is all the same how far they are apart; a hand-over costs what the message took to arrive,
 * no more.
 *
 * Which of two records of one (key, subkey) stays?
 *   unsigned: the one that lives longer (the newest expiry wins). The same value again, for no more than SLACK longer, changes
 * nothing: copies handed round would otherwise live a little longer each time. signed: the one with the higher version, which is
 * the owner's own count (by custom the expiry on the owner's clock, so that again the newest expiry wins); ttl_ms is at most the
 * lease that was signed. Of two with one version the first stays.
 *
 * Replays. A relay may send on a record it has, and cannot be told from an honest copy; but then
 *   - it never outlives the lease from its arrival, and never replaces a higher version;
 *   - a version that is kept already keeps the end it has, whatever a relay says: neither earlier nor later. Only its owner, in
 * person (the peer at the other end of the connection is the signer), may set another end within the lease;
 *   - when a signed record ends, its version stays behind as a tombstone for tomb_ms: until then the same or an older version
 *     comes in from nobody but its owner in person. An owner who wants its record longer says a higher version (dht does for each
 * lease). What is left: a node that never saw the record, or whose tombstone went, may be told of an ended one; askers count the
 *   voices of several nodes, tombstones among them (lookup.h).
 *
 * Quotas. Each record is on the account of the peer that brought it, and a signed one also on its signer's. An account has a limit
 * of records and bytes (HV_BUDGET over it). Over the limits of the whole store, or of one key, whoever has brought most loses the
 * record that would end soonest; if that is who brings the newcomer, the newcomer is refused (HV_BUDGET).
 *
 * What a put costs does not grow with what is kept, but for logarithms: two heaps say who has brought most and what of it ends
 * soonest. Only within one key, over its limits, are its records looked through.
 */
#ifndef HV_CORE_STORE_H
#define HV_CORE_STORE_H

#include "core/dht/record.h"
#include "core/util/heap.h"

#define HV_STORE_KEY_RECORDS_MAX HV_RECORDS_MAX /* of one key: an answer is always whole */
#define HV_STORE_KEY_BYTES_MAX (1u << 20)
#define HV_STORE_SLACK_MS 2000
#define HV_STORE_OF_ITSELF_MS 60000
#define HV_STORE_TOLD_MAX 20 /* replicas remembered for each key */

typedef struct hv_store hv_store;
typedef struct hv_store_key hv_store_key;
typedef struct hv_store_item hv_store_item;
typedef struct hv_store_account hv_store_account;

typedef struct hv_store_quota {
  size_t records, bytes;
} hv_store_quota;

typedef struct hv_store_config {
  uint32_t ttl_max_ms;       /* 0: an hour; likewise below */
  uint32_t tomb_ms;          /* an hour */
  hv_store_quota whole;      /* 65,536 records, 256 MiB */
  hv_store_quota per_peer;   /* a quarter of whole */
  hv_store_quota per_signer; /* a sixteenth of whole */
  /* One more condition (may be NULL): HV_OK, or why not. Borrows the record. */
  hv_status (*accept)(void *arg, const hv_hash *place, const hv_record *record);
  void *arg;
} hv_store_config;

struct hv_store_account {
  hv_store_account *next; /* in its chain */
  hv_peer_id id;
  uint8_t signer;              /* 1: what it signed, 0: what it brought */
  size_t records, bytes, here; /* here: scratch, within one key */
  double share;                /* of a bringer: how much of the store it holds, the larger of records and bytes */
  hv_heap_node rank;           /* among bringers, by share */
  hv_heap_node *soonest;       /* what it brought, by end */
};

/* A record, or the tombstone of one. */
struct hv_store_item {
  hv_store_item *next, *before; /* of the same key */
  hv_store_item *chain;
  hv_store_key *key;
  hv_store_account *bringer, *signer; /* signer: NULL when unsigned */
  hv_heap_node brought;               /* in its bringer's heap */
  uint64_t end_us;                    /* of the record, then of the tombstone */
  uint64_t version;
  uint32_t lease_ms, subkey_size, value_size, size; /* size: as hv_record_size counts */
  size_t slot;
  uint8_t has_subkey, dead;
  uint8_t signature[64];
  uint8_t *value; /* NULL: a tombstone */
  uint8_t subkey[];
};

struct hv_store_key {
  hv_store_key *chain;
  hv_hash place;
  hv_store_item *items;
  size_t n, bytes;
  uint64_t seen_changes;            /* dht's: the routing table's count when its replicas were last looked at */
  uint32_t told[HV_STORE_TOLD_MAX]; /* dht's: who was given it */
  uint8_t n_told, looked_at;
  uint16_t key_size;
  uint8_t key[];
};

struct hv_store {
  hv_env *env;
  hv_store_config config;
  uint64_t salt[2]; /* nobody can choose keys that share a chain */
  hv_store_key **keys;
  hv_store_item **items;
  hv_store_account **accounts;
  size_t keys_room, items_room, accounts_room;
  size_t n_keys, n_items, n_accounts, n_dead, bytes;
  hv_heap_node *fullest; /* of the bringers */
  hv_store_item **ends;  /* a heap by end_us, from slot 1 */
  size_t ends_room;
  uint64_t evicted, refused;
};

/* HV_NOMEM: nothing to fini. */
hv_status hv_store_init(hv_store *store, hv_env *env, const hv_store_config *config);
void hv_store_fini(hv_store *store);

/* Keeps a copy of a record that `bringer` gave (this node itself for its own). HV_OK: it is kept, or was already. HV_EXISTS:
 * something newer stands there; *stands (may be NULL) is then it, if it is a record of the same signer. HV_CORRUPT: the signature
 * does not hold. HV_TOO_LARGE, HV_INVALID, HV_DENIED as in record.h. HV_BUDGET: a quota. HV_NOMEM. What `accept` said. */
hv_status hv_store_put(hv_store *store, const hv_record *record, const hv_peer_id *bringer, const hv_store_item **stands);

/* What is kept of a key, first item or NULL; the next ones by ->next. Borrowed until the next put or expire. */
const hv_store_item *hv_store_first(const hv_store *store, const hv_hash *place);

/* 1: the item lives and *out shows it (borrowed likewise; ttl_ms is at least 1). 0: it is a tombstone, or has ended just now. A
 * tombstone shows, too: without value, ttl_ms 0. */
int hv_store_show(const hv_store *store, const hv_store_item *item, hv_record *out);

/* Ends what has reached its end; put does so by itself. When the next ends: UINT64_MAX for none. */
uint64_t hv_store_expire(hv_store *store);

/* Ends what this signer has under that place, as if its time were over. */
void hv_store_end_of(hv_store *store, const hv_hash *place, const hv_peer_id *signer);

/* Ends what this signer says of itself: signed records of a lease of HV_STORE_OF_ITSELF_MS at most whose subkey names it as their
 * owner ("...[owner:PEERID]"). It has ended, and they say what it does. */
void hv_store_owner_ended(hv_store *store, const hv_peer_id *signer);

/* Goes through all keys, some at each call: those in chains from *cursor on, at most `most` chains; *cursor moves and wraps to 0.
 */
void hv_store_walk(hv_store *store, size_t *cursor, size_t most, void (*see)(void *arg, hv_store_key *key), void *arg);

/* Records that live. */
size_t hv_store_count(const hv_store *store);

#endif
