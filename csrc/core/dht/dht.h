/* A Kademlia node: it keeps the records near its place, and stores and gets records for the program.
 *
 * Room: core (uses route, store, ask, lookup, gather).
 * Owner: node. It borrows env; the program's ops stay the program's and are borrowed until done.
 * Thread: the hive thread only. No I/O and no clock but env's.
 * Limits: those of store.h, route.h and lookup.h; HV_DHT_SPOTS_MAX nodes keep one record.
 * Errors: an op ends with its status and a sentence in done.
 * Rules: docs/design/dht.md: "A store", "Which answer is right", and the phases of both.
 */
#ifndef HV_CORE_DHT_H
#define HV_CORE_DHT_H

#include "core/dht/gather.h"
#include "core/dht/lookup.h"
#include "core/dht/store.h"

typedef struct hv_dht hv_dht;
typedef struct hv_dht_op hv_dht_op;

#define HV_DHT_SPOTS_MAX 64

/* The nodes that keep the records of one key, for a caller that stores under it again and again. The struct is the caller's, all
 * zeros at first. */
typedef struct hv_dht_spots {
  uint64_t looked_us; /* time of the lookup that found them */
  size_t n;
  struct hv_dht_spot {
    hv_peer_id id;
    uint8_t addrs_size;
    uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  } at[HV_DHT_SPOTS_MAX];
} hv_dht_spots;

typedef struct hv_dht_config {
  hv_peer_id me;
  int client_mode;
  size_t bucket_size;       /* 0: 20 */
  size_t num_replicas;      /* 0: 5; at most 20 */
  size_t parallel_rpc;      /* 0: 4 */
  size_t paths;             /* 0: 2; at most HV_LOOKUP_PATHS_MAX */
  int cache_nearest;        /* after a get: number of the nearest nodes without the record that are given a copy; 0: 1; < 0: none */
  int cache_locally;        /* < 0: no; else results are cached for some seconds, for gets that are not `latest` */
  uint32_t wait_timeout_ms; /* of one call; 0: 3,000 */
  uint32_t refresh_ms;      /* time without a lookup after which a bucket is refreshed; 0: 600,000 */
  uint32_t replicate_ms;    /* period in which all kept keys are checked for new replicas; 0: 60,000 */
  uint32_t blacklist_ms, backoff_rate; /* as in route.h */
  hv_store_config store;
  hv_store_quota cache; /* 0: 4,096 records, 16 MiB */
} hv_dht_config;

/* One record of a store. `stored`: number of nodes that keep it. `status`: HV_OK if any node does, else the reason. */
typedef struct hv_dht_item {
  hv_span subkey, value;
  uint8_t has_subkey;
  uint64_t ttl_ms;  /* lifetime; beyond the store's ttl_max_ms the record is republished as long as this node lives */
  uint64_t version; /* of an owned record: the newest has the highest. 0: made from this node's clock and ttl_ms. */
  hv_status status;
  size_t stored;
} hv_dht_item;

/* A store or a get: the caller's struct, alive and unchanged until done. done comes exactly once. If the node ends, it comes with
 * HV_CANCELLED, or with HV_CLOSED from hv_dht_free; in that last case no function of the dht may be called. */
struct hv_dht_op {
  void (*done)(hv_dht_op *self, hv_status status, const char *text);
  void *owner;
  hv_span key;
  uint32_t timeout_ms; /* 0: 30,000 */
  /* store */
  hv_dht_item *items;
  size_t n_items;
  hv_dht_spots *spots; /* nodes to store at, if still valid; else a lookup fills them in. NULL: always a lookup */
  /* get */
  int latest;   /* 1: asks all replicas and takes the newest; 0: cached records, or as soon as enough nodes agree */
  int majority; /* 1, only with `latest`: ends when most replicas have answered, even if they differ; for repeated gets of records
                   that many peers sign */
  /* out, for get, valid within done only: one record without a subkey, or a dictionary of records with subkeys. If both exist, the
   * one with a signature wins, else the one that lives longer. */
  const hv_record *records;
  size_t n_records;
  /* out, for both */
  unsigned rounds; /* hops: length of the longest chain of answers to a replica (store), or to a node with the record (get) */
  unsigned calls;  /* number of questions asked */
  struct hv_dht_work *work; /* private to dht; NULL if not under way */
};

/* HV_NOMEM: nothing to free. */
hv_status hv_dht_new(hv_env *env, const hv_dht_config *config, hv_dht **out);
/* Frees it, after the world has crashed or delivered all completions. Ops still under way end with HV_CLOSED. */
void hv_dht_free(hv_dht *dht); /* NULL is fine */

/* Begins to serve and to look for nodes. addrs: this node's addresses; none: not known yet. */
void hv_dht_start(hv_dht *dht, const hv_addr *addrs, size_t n_addrs);
/* This node has other addresses now, which its next calls name. */
void hv_dht_set_addrs(hv_dht *dht, const hv_addr *addrs, size_t n_addrs);
/* Ends all ops with HV_CANCELLED and sends no more questions. */
void hv_dht_stop(hv_dht *dht);

/* Answers HV_MSG_FIND, HV_MSG_FINDS and HV_MSG_STORE. In a STORE all records after an invalid signature get HV_CORRUPT, too,
 * without a check. */
void hv_dht_asked(hv_dht *dht, const hv_event *event);

/* A peer answered a call of this node at the first of these addresses (met), or did not, or said goodbye (lost). */
void hv_dht_met(hv_dht *dht, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint64_t rtt_us);
void hv_dht_lost(hv_dht *dht, const hv_peer_id *id);

/* Stores op->items under op->key. With op->spots the nodes of the last lookup are used for three minutes, unless one of them does
 * not answer or a nearer node is known. At done, HV_OK: each item is kept by some node; else the status of the first that is not:
 * HV_EXISTS (a newer record is there), HV_UNREACHABLE (no node is known), HV_TIMEOUT. Not HV_OK here: not started, done never
 * comes; for HV_TOO_LARGE and HV_INVALID err (may be NULL) names the limit. */
hv_status hv_dht_store(hv_dht *dht, hv_dht_op *op, hv_error *err);
/* Gets the records under op->key. At done: HV_OK, HV_NOT_FOUND (no node has any), HV_UNREACHABLE, HV_TIMEOUT. Errors here as above.
 */
hv_status hv_dht_get(hv_dht *dht, hv_dht_op *op, hv_error *err);
/* This signer has ended: drops its records under that key from this node. For keys that hold addresses or states of their signers.
 */
void hv_dht_end_of(hv_dht *dht, hv_span key, const hv_peer_id *signer);
/* A peer has ended: drops the records that it signed about itself (hv_store_owner_ended), under all keys. */
void hv_dht_owner_ended(hv_dht *dht, const hv_peer_id *id);
/* Ends an op: done comes within this call, with HV_CANCELLED. No effect if the op is not under way. */
void hv_dht_cancel(hv_dht *dht, hv_dht_op *op);

/* Its parts and counts, borrowed, for statistics and tests. */
const hv_route *hv_dht_route(const hv_dht *dht);
hv_asker *hv_dht_asker(hv_dht *dht); /* for questions of other parts of core to nodes in the table */
const hv_store *hv_dht_kept(const hv_dht *dht);
size_t hv_dht_published(const hv_dht *dht);
uint64_t hv_dht_calls(const hv_dht *dht);     /* made so far */
uint64_t hv_dht_questions(const hv_dht *dht); /* asked in those calls */

#endif
