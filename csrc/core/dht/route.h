/* The routing table: the k-buckets of Kademlia, with the nodes that this node may ask about a point of the key space.
 *
 * Room: core (uses env for hashes, contact). Sends nothing: dht reports which nodes answered and which did not.
 * Owner: dht.
 * Thread: the hive thread only.
 * Limits: 256 buckets of bucket_size contacts (the first: twice that), and one waiting contact each. HV_ROUTE_PER_NETWORK
 * contacts of a bucket may lie in one public network. The silence of HV_ROUTE_BLACKLIST other nodes is remembered.
 * Rules: docs/design/dht.md, "The routing table".
 * Paper: Maymounkov, Mazieres, "Kademlia" (2002).
 */
#ifndef HV_CORE_ROUTE_H
#define HV_CORE_ROUTE_H

#include "core/env.h"
#include "core/peers/contact.h"

#define HV_ROUTE_BUCKETS 256 /* one for each number of leading bits shared with this node */
#define HV_ROUTE_PER_NETWORK 2
#define HV_ROUTE_BLACKLIST 256
#define HV_ROUTE_REGIONS 5 /* buckets that estimate the number of nodes: 31 of 32 parts of the key space */

/* One node in the table. */
typedef struct hv_route_contact {
  hv_hash hash;
  hv_peer_id id;
  uint64_t network;  /* network of the address that works */
  uint64_t seen_us;  /* time of its last answer */
  uint64_t retry_us; /* if silent: time before which it is not asked */
  uint32_t rtt_us;
  uint16_t failures; /* unanswered calls in a row */
  uint8_t addrs_size;
  uint8_t addrs[]; /* packed; the working address is the first */
} hv_route_contact;

/* All contacts that share a number of leading bits with this node. */
typedef struct hv_route_bucket {
  hv_route_contact **contacts; /* ordered by last answer, the oldest first */
  size_t n;
  hv_route_contact *waiting; /* a node that answered, but for which there is no room */
  uint64_t looked_us;        /* time of the last lookup in this bucket */
  unsigned looks;            /* number of lookups in this bucket */
  uint64_t left_out_us;      /* last time at which a node that answered found no room; 0: never */
} hv_route_bucket;

/* A node outside the table that did not answer. */
typedef struct hv_route_silent {
  uint64_t id; /* the first bytes of its key; 0: none */
  uint64_t retry_us;
  unsigned failures;
} hv_route_silent;

typedef struct hv_route_config {
  hv_peer_id me;
  size_t bucket_size;    /* 0: 20 */
  uint32_t blacklist_ms; /* 0: 5,000 */
  uint32_t backoff_rate; /* 0: 2 */
} hv_route_config;

typedef struct hv_route {
  hv_env *env;
  hv_route_config config;
  hv_hash me;
  hv_route_bucket buckets[HV_ROUTE_BUCKETS]; /* [i]: those that share exactly i leading bits with me */
  size_t end;                                /* no bucket from here on ever had a contact */
  size_t n;                                  /* contacts in buckets */
  uint64_t changes;                          /* number of contacts that came or went */
  hv_route_silent silent[HV_ROUTE_BLACKLIST];
  double samples[HV_ROUTE_REGIONS]; /* log2 of the swarm's size, as sampled in that bucket; 0: no sample */
} hv_route;

/* env is borrowed until fini. */
void hv_route_init(hv_route *route, hv_env *env, const hv_route_config *config);
void hv_route_fini(hv_route *route);

/* *out: a peer's place in the key space, SHA-256 of its key. */
void hv_route_hash(hv_env *env, const hv_peer_id *id, hv_hash *out);

/* A node answered a call of this node at the first of these addresses. True if it is in its bucket now. False: no room or no
 * memory; it then waits beside the bucket if the bucket's oldest contact should be asked (hv_route_doubtful). */
int hv_route_answered(hv_route *route, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint32_t rtt_us);

/* A node did not answer a call of this node. */
void hv_route_silence(hv_route *route, const hv_peer_id *id);

/* True if the node did not answer lately and should not be asked for now. */
int hv_route_is_silent(const hv_route *route, const hv_peer_id *id);

/* The bucket to which a hash belongs. */
const hv_route_bucket *hv_route_bucket_of(const hv_route *route, const hv_hash *hash);

/* The contact of a peer, or NULL. Borrowed until the next hv_route_answered or _silence. */
const hv_route_contact *hv_route_find(const hv_route *route, const hv_peer_id *id);

/* True if a node outside the table would find room, now or after a question to another contact. */
int hv_route_wants(const hv_route *route, const hv_peer_id *id, const hv_hash *hash);

/* The oldest contact in the bucket of `hash`, if a node waits there for its place. NULL: none waits, or the oldest contact answered
 * lately. */
const hv_route_contact *hv_route_doubtful(const hv_route *route, const hv_hash *hash);

/* Fills out with up to max contacts that are not silent, nearest to target first, without `except` (may be NULL). Returns their
 * number. Borrowed until the next hv_route_answered or _silence. */
size_t hv_route_nearest(const hv_route *route, const hv_hash *target, const hv_peer_id *except, const hv_route_contact **out,
                        size_t max);

/* True if the n nodes nearest to target are in this table, as far as this node can know: all buckets in question have been
 * searched, and none has lacked room lately. It is true in swarms of a few dozen nodes, and near this node in any swarm. */
int hv_route_knows(const hv_route *route, const hv_hash *target, size_t n);

/* The silent contact whose retry is due for longest, or NULL. */
const hv_route_contact *hv_route_to_retry(const hv_route *route);

/* Capacity of a bucket. */
size_t hv_route_room(const hv_route *route, size_t bucket);

/* Expected distance of the n-th nearest node of any point, as bits: the distance is 2^(256 - bits), bits = log2(nodes / n). It is
 * the weighted median over HV_ROUTE_REGIONS buckets and the rest (docs/design/dht.md, rule 8). Fractional; 0: too few nodes are
 * known. */
double hv_route_bits(const hv_route *route, size_t n);

/* Adds a sample: the n-th node from a random point that shares `bucket` bits with this node was found at this distance. It counts
 * only if all n nodes are of that bucket. */
void hv_route_sample(hv_route *route, size_t bucket, const hv_hash *distance, size_t n);

/* True if this bucket is full and has no sample, so its number of nodes is not known. */
int hv_route_lacks_sample(const hv_route *route, size_t bucket);

#endif
