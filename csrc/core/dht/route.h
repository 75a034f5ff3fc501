/* Whom do I ask about a point of the key space? The k-buckets of Kademlia (Maymounkov, Mazieres 2002).
 *
 * Room: core (uses env for hashes, contact). Owned by dht; the hive thread only. Sends nothing: dht tells it who answered and who
 * did not. A node is in a bucket only because it answered a call of ours, so those that cannot be dialled never are. A full bucket
 * keeps whom it has: a newcomer waits beside it while the one that was silent longest is asked (hv_route_doubtful), and comes in
 * when that one is gone. Only if the newcomer stands in an eighth of the bucket where clearly fewer stand than in another, one of
 * those gives way, so that a crowd hides nobody. At most PER_NETWORK nodes of a bucket lie in the same /24, /48 or domain, unless
 * it is a private network. Who does not answer is left alone for blacklist_ms, then backoff_rate times as long and so on; meanwhile
 * nobody hears of it from us, but it stays until somebody takes its place: after a partition the table still knows everyone. The
 * farthest bucket, half of all places, has room for twice bucket_size, so that who is in a swarm of a few dozen nodes knows them
 * all, however they fell. Limits: 256 buckets of bucket_size (the first: twice that) and one waiting; BLACKLIST nodes beside the
 * table whose silence is remembered.
 */
#ifndef HV_CORE_ROUTE_H
#define HV_CORE_ROUTE_H

#include "core/env.h"
#include "core/peers/contact.h"

#define HV_ROUTE_BUCKETS 256
#define HV_ROUTE_PER_NETWORK 2
#define HV_ROUTE_BLACKLIST 256
#define HV_ROUTE_REGIONS 5 /* the buckets that tell how many nodes there are: 31 of 32 parts of the space */

typedef struct hv_route_contact {
  hv_hash hash;
  hv_peer_id id;
  uint64_t network;  /* of the address that works */
  uint64_t seen_us;  /* when it answered last */
  uint64_t retry_us; /* silent ones: not before */
  uint32_t rtt_us;
  uint16_t failures; /* in a row */
  uint8_t addrs_size;
  uint8_t addrs[]; /* packed; the one that works first */
} hv_route_contact;

typedef struct hv_route_bucket {
  hv_route_contact **contacts; /* the one that was silent longest first */
  size_t n;
  hv_route_contact *waiting; /* answered, but there is no room */
  uint64_t looked_us;        /* when somebody was looked for in here */
  unsigned looks;            /* how often */
  uint64_t left_out_us;      /* when somebody who answered found no place; 0: never */
} hv_route_bucket;

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
  uint64_t changes;                          /* counts who came and went */
  hv_route_silent silent[HV_ROUTE_BLACKLIST];
  double samples[HV_ROUTE_REGIONS]; /* log2 of how many nodes there are, as seen in that bucket; 0: not seen */
} hv_route;

void hv_route_init(hv_route *route, hv_env *env, const hv_route_config *config);
void hv_route_fini(hv_route *route);

/* Where a peer stands: SHA-256 of its key. */
void hv_route_hash(hv_env *env, const hv_peer_id *id, hv_hash *out);

/* A node answered a call of ours at the first of these addresses. 1: it is in its bucket now. 0: there is no place, or no memory;
 * the node waits beside the bucket if the one silent longest is worth a question (hv_route_doubtful). */
int hv_route_answered(hv_route *route, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint32_t rtt_us);

/* A node did not answer a call of ours. */
void hv_route_silence(hv_route *route, const hv_peer_id *id);

/* 1: it did not answer lately and should be left alone for now. */
int hv_route_is_silent(const hv_route *route, const hv_peer_id *id);

/* Where a node stands, or would. */
const hv_route_bucket *hv_route_bucket_of(const hv_route *route, const hv_hash *hash);

/* The contact of a peer, or NULL. Borrowed until the next hv_route_answered or _silence. */
const hv_route_contact *hv_route_find(const hv_route *route, const hv_peer_id *id);

/* Would a node that is not in the table find a place there, now or after a question to another? */
int hv_route_wants(const hv_route *route, const hv_peer_id *id, const hv_hash *hash);

/* The contact that stands in the way of one that waits, in the bucket of `hash`; NULL: nobody waits there, or the oldest was heard
 * lately. */
const hv_route_contact *hv_route_doubtful(const hv_route *route, const hv_hash *hash);

/* The up to max contacts nearest to target that are not silent, nearest first, without `except` (may be NULL);
 * returns how many. Borrowed as above. */
size_t hv_route_nearest(const hv_route *route, const hv_hash *target, const hv_peer_id *except, const hv_route_contact **out,
                        size_t max);

/* 1: the n nodes nearest to target are in this table, as far as can be known: nobody has been left out lately of the buckets that
 * they could stand in, all of which have been looked for. So it is in swarms of a few dozen nodes, and near this node in any. */
int hv_route_knows(const hv_route *route, const hv_hash *target, size_t n);

/* The contact that has waited longest to be tried again after its silence, if it is due; NULL: none. */
const hv_route_contact *hv_route_to_retry(const hv_route *route);

/* How many have room in a bucket. */
size_t hv_route_room(const hv_route *route, size_t bucket);

/* How far away the n-th node from any point may be expected: 2^(256 - bits) for `bits` = log2(nodes / n). Each of the first REGIONS
 * buckets says how many nodes there are, by whom it holds or, when it is full, by its sample; all that is nearer to me says it
 * together. The middle one counts, each weighed by how many nodes it rests on (16 at most): a crowd stands in one of them, be it
 * mine. Fractional; 0 when too few are known to tell. */
double hv_route_bits(const hv_route *route, size_t n);

/* The n-th node from a random point, which shares `bucket` bits with me, was found at this distance: a sample, if the n are all of
 * that bucket, which no other sample looks at. */
void hv_route_sample(hv_route *route, size_t bucket, const hv_hash *distance, size_t n);

/* 1: this bucket is full, and lacks the sample that would tell how many nodes it stands for. */
int hv_route_lacks_sample(const hv_route *route, size_t bucket);

#endif
