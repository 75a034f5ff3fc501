/* The answers of several nodes about one key, and the choice of the right records among them.
 *
 * Room: core (uses record).
 * Owner: a get of dht. It owns copies of all records it was given.
 * Thread: the hive thread only.
 * Limits: HV_GATHER_ANSWERS_MAX answers, HV_GATHER_BYTES_MAX bytes; more is ignored.
 * A slot is one (key, subkey); a variant is one value (and version) of a slot. An answer supports each variant that it contains.
 * Only the answers of the `believed` nearest nodes count, because those are the nodes that should keep the record.
 * Rules: docs/design/dht.md, "Which answer is right".
 */
#ifndef HV_CORE_GATHER_H
#define HV_CORE_GATHER_H

#include "core/dht/record.h"
#include "core/util/table.h"

#define HV_GATHER_ANSWERS_MAX 64
#define HV_GATHER_BYTES_MAX (8u << 20)

typedef struct hv_gather_variant hv_gather_variant;

/* The answers to one get. */
typedef struct hv_gather {
  hv_env *env;
  hv_hash place;     /* the key's */
  hv_span key;       /* borrowed */
  uint64_t salt[2];  /* of the hash table */
  hv_table variants; /* by subkey: all variants of a slot have one hash */
  size_t bytes;      /* of the variants */
  size_t n_answers;
  uint64_t sums[HV_GATHER_ANSWERS_MAX];     /* digest of what an open answer has so far */
  uint64_t digests[HV_GATHER_ANSWERS_MAX];  /* digest of each whole answer; 0: it held no live record */
  hv_hash distances[HV_GATHER_ANSWERS_MAX]; /* distance of each answer's node to the key */
} hv_gather;

/* One value of a slot, and its support. */
struct hv_gather_variant {
  hv_table_node node;
  uint64_t answers, version;        /* answers: a bit for each answer that contains it */
  uint64_t digest;                  /* of slot, value and version; never 0 */
  uint32_t ttls_ms[8];              /* remaining lifetimes, as up to 8 answers report them */
  uint8_t n_ttls, has_subkey, dead; /* dead: 1 for a tombstone, the version of a record that has ended */
  uint32_t lease_ms, subkey_size, value_size;
  hv_peer_id signer;
  uint8_t signature[64];
  uint8_t bytes[]; /* subkey, value */
};

/* key is borrowed until fini. HV_NOMEM: nothing to fini. */
hv_status hv_gather_init(hv_gather *gather, hv_env *env, const hv_hash *place, hv_span key);
void hv_gather_fini(hv_gather *gather);

/* Opens one node's answer, which counts once it is closed, and returns its number, or HV_GATHER_ANSWERS_MAX if there are too many.
 * `distance` is the node's distance to the key. */
size_t hv_gather_open(hv_gather *gather, const hv_hash *distance);
/* Adds a record of an open answer; an invalid one is skipped. *checked: 1 if its signature was checked. HV_CORRUPT: the signature
 * is invalid, and no further record of this answer should be added. */
hv_status hv_gather_take(hv_gather *gather, size_t answer, const hv_record *record, int *checked);
void hv_gather_close(hv_gather *gather, size_t answer);

/* Adds one node's answer; `distance` is the node's distance to the key. Invalid records are skipped. After an invalid signature the
 * rest is skipped, too: checks are expensive, and honest nodes check all records that they pass on. */
void hv_gather_add(hv_gather *gather, const hv_hash *distance, const hv_record *records, size_t n);

/* Size of the largest set of nodes, none farther than `within`, that gave the same answer with a live record in it. */
size_t hv_gather_agreed(const hv_gather *gather, const hv_hash *within);
/* True if answer number `answer` contained a live record. */
int hv_gather_had(const hv_gather *gather, size_t answer);
/* Number of nodes, none farther than `within`, with such an answer. */
size_t hv_gather_holders(const hv_gather *gather, const hv_hash *within);

/* Calls see() with the best record of each slot (borrowed from the gather) and returns their number. Answers of nodes nearer than
 * not_nearer do not count: they may be a crowd of made-up identities. */
size_t hv_gather_pick(const hv_gather *gather, size_t believed, const hv_hash *not_nearer,
                      void (*see)(void *arg, const hv_record *record), void *arg);

#endif
