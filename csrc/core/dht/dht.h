/* Where is what the swarm knows? A Kademlia node: it serves the records near it, and stores and gets for the program.
 *
 * Room: core (uses route, store, ask, lookup, gather). Owned by node; the hive thread only; no I/O, no clock but env's.
 * A node's place is SHA-256 of its public key, a record's that of its key; a record is kept by the num_replicas nodes nearest to
 * it.
 *
 * Learning nodes: whoever peers.h has had an answer from (hv_dht_met), whoever answers a lookup, and whoever asks us and then
 * answers a question of ours. A node in client mode asks and never serves: it names no address, so nobody asks it. Isolation:
 * contacts that are silent stay known and are tried again with growing pauses, as peers.h tries the initial peers.
 *
 * Lookups go over `paths` disjoint paths (lookup.h), answers are weighed (gather.h). If the nodes found nearest to a point stand
 * far more densely than around this node, somebody may have made identities for that point: then the region where honest nodes must
 * be is searched too, and stored to (as Sridhar et al., "Content Censorship in the InterPlanetary File System", 2023).
 *
 * While this node lives it says its own records again before their lease ends, as long as the program asked for them (publish).
 * What it keeps for others it hands on to nodes that came nearer, or took the place of others (replicate).
 */
#ifndef HV_CORE_DHT_H
#define HV_CORE_DHT_H

#include "core/dht/gather.h"
#include "core/dht/lookup.h"
#include "core/dht/store.h"

typedef struct hv_dht hv_dht;
typedef struct hv_dht_op hv_dht_op;

#define HV_DHT_SPOTS_MAX 64

/* Where records of one key went: with whoever stores there again and again, well before they end, so that the DHT has no need to
 * (the caller's own; all zeros at first). */
typedef struct hv_dht_spots {
  uint64_t looked_us; /* when they were looked for */
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
  int cache_nearest;        /* how many of the nearest that did not have a record are given it by who got it; 0: 1; < 0: none */
  int cache_locally;        /* < 0: no; else what was got is remembered for some seconds, for gets that are not `latest` */
  uint32_t wait_timeout_ms; /* of one call; 0: 3,000 */
  uint32_t refresh_ms;      /* buckets nobody was looked for in for so long are refreshed; 0: 600,000 */
  uint32_t replicate_ms;    /* all kept keys are looked over once in this time; 0: 60,000 */
  uint32_t blacklist_ms, backoff_rate; /* as in route.h */
  hv_store_config store;
  hv_store_quota cache; /* 0: 4,096 records, 16 MiB */
} hv_dht_config;

/* One of the records of a store. `stored` is how many nodes keep it; `status` is HV_OK if any does, else why not. */
typedef struct hv_dht_item {
  hv_span subkey, value;
  uint8_t has_subkey;
  uint64_t ttl_ms;  /* lives for so long; over the store's ttl_max_ms it is said again for as long as this node lives */
  uint64_t version; /* of an owned record: the newest has the highest. 0: made from this node's clock and ttl_ms. */
  hv_status status;
  size_t stored;
} hv_dht_item;

/* What the program wants: its own struct, alive and unchanged until done, which comes exactly once (also when the node ends:
 * HV_CANCELLED, or HV_CLOSED from hv_dht_fini; then nothing of the dht may be called). */
struct hv_dht_op {
  void (*done)(hv_dht_op *self, hv_status status, const char *text);
  void *owner;
  hv_span key;
  uint32_t timeout_ms; /* 0: 30,000 */
  /* store */
  hv_dht_item *items;
  size_t n_items;
  hv_dht_spots *spots; /* it goes there, if it may; else it looks, and they are noted. NULL: it always looks */
  /* get */
  int latest;   /* 1: hear everybody and take the newest; 0: what is known already, or as soon as enough nodes agree */
  int majority; /* 1, of `latest`: as soon as most of the nodes that should keep it have spoken, whatever each of them says: for who
                   asks again and again for records that many peers sign */
  /* out, for get, within done only: either one record without a subkey, or a dictionary: what somebody signed, else what lives
   * longer */
  const hv_record *records;
  size_t n_records;
  /* out, for both */
  unsigned rounds; /* how many answers in a row led to the last node that mattered */
  unsigned calls;
  struct hv_dht_work *work; /* dht's; NULL while not under way */
};

/* HV_NOMEM: nothing to free. */
hv_status hv_dht_new(hv_env *env, const hv_dht_config *config, hv_dht **out);
/* When its world is dead or has delivered all completions. Ops still under way end with HV_CLOSED. */
void hv_dht_free(hv_dht *dht); /* NULL is fine */

/* Where this node can be dialled (none: nowhere yet); begins to serve and to look around. */
void hv_dht_start(hv_dht *dht, const hv_addr *addrs, size_t n_addrs);
/* Ends all ops with HV_CANCELLED; asks nobody any more. */
void hv_dht_stop(hv_dht *dht);

/* HV_MSG_FIND, HV_MSG_FINDS and HV_MSG_STORE: answers them. Of a STORE what comes after a signature that does not hold is
 * HV_CORRUPT, too, and not looked at. */
void hv_dht_asked(hv_dht *dht, const hv_event *event);

/* A peer answered a call of ours at the first of these addresses; or did not, or said that it goes. */
void hv_dht_met(hv_dht *dht, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint64_t rtt_us);
void hv_dht_lost(hv_dht *dht, const hv_peer_id *id);

/* Stores op->items under op->key. Where nodes stand as densely as a crowd a search costs hundreds of messages: with op->spots it
 * goes for three minutes where the last one went, unless one of them does not answer, or somebody nearer is known. HV_OK at done:
 * each item is kept by somebody; else the status of the first that is not. HV_EXISTS: something newer is there. HV_UNREACHABLE:
 * nobody is known. HV_TIMEOUT. Not HV_OK here: not started (HV_TOO_LARGE and HV_INVALID name the limit in err, may be NULL). */
hv_status hv_dht_store(hv_dht *dht, hv_dht_op *op, hv_error *err);
/* Gets what is under op->key. HV_NOT_FOUND at done: nobody has it. HV_UNREACHABLE, HV_TIMEOUT. */
hv_status hv_dht_get(hv_dht *dht, hv_dht_op *op, hv_error *err);
/* This signer has ended, and what it has under that key says where it is, or what it does: this node does not keep it any more. */
void hv_dht_end_of(hv_dht *dht, hv_span key, const hv_peer_id *signer);
/* A peer has ended: what it says of itself ends with it (hv_store_owner_ended), whoever takes part in that. */
void hv_dht_owner_ended(hv_dht *dht, const hv_peer_id *id);
/* Ends it now: done comes within this call, with HV_CANCELLED. Fine when not under way. */
void hv_dht_cancel(hv_dht *dht, hv_dht_op *op);

/* To look at. */
const hv_route *hv_dht_route(const hv_dht *dht);
hv_asker *hv_dht_asker(hv_dht *dht); /* for questions of other rooms to nodes that are in the table */
const hv_store *hv_dht_kept(const hv_dht *dht);
size_t hv_dht_published(const hv_dht *dht);
uint64_t hv_dht_calls(const hv_dht *dht);     /* that it has made so far */
uint64_t hv_dht_questions(const hv_dht *dht); /* and what it has asked in them */

#endif
