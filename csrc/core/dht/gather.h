/* Which of all these answers is right? The voices of several nodes about one key, and what to make of them.
 *
 * Room: core (uses record). Owned by a get of dht; the hive thread only. Owns copies of what it heard, up to its limit.
 * A voice is one node's whole answer; only the voices of the `believed` nearest nodes count, since a record's place is with them.
 * For each (key, subkey):
 *   signed: a version whose signature holds; the highest, unless the nodes that say it has ended are more than twice those that
 * still have it. (No node can forge a record; to bring back an ended one, or to hide a living one, liars need that majority.)
 *   unsigned: the one that lives longest of those that at least half of the nodes with anything say; if there is none, the one with
 * the most voices. The time a record still has is the median of what its nodes say.
 */
#ifndef HV_CORE_GATHER_H
#define HV_CORE_GATHER_H

#include "core/dht/record.h"

#define HV_GATHER_VOICES_MAX 64
#define HV_GATHER_BYTES_MAX (8u << 20)

typedef struct hv_gather_variant hv_gather_variant;

typedef struct hv_gather {
  hv_env *env;
  hv_hash place;
  hv_span key; /* borrowed */
  uint64_t salt[2];
  hv_gather_variant **chains; /* by (subkey): all variants of a slot share a chain */
  size_t room, n, bytes;
  size_t n_voices;
  uint64_t digests[HV_GATHER_VOICES_MAX]; /* of each whole answer; 0: it had nothing that lives */
  hv_hash distances[HV_GATHER_VOICES_MAX];
} hv_gather;

/* A slot's best, as hv_gather_pick shows it. */
struct hv_gather_variant {
  hv_gather_variant *chain;
  uint64_t voices, version; /* voices: a bit for each */
  uint64_t digest;          /* of slot, value and version; never 0 */
  uint32_t ttls_ms[8];
  uint8_t n_ttls, has_subkey, dead;
  uint32_t lease_ms, subkey_size, value_size;
  hv_peer_id signer;
  uint8_t signature[64];
  uint8_t bytes[]; /* subkey, value */
};

hv_status hv_gather_init(hv_gather *gather, hv_env *env, const hv_hash *place, hv_span key);
void hv_gather_fini(hv_gather *gather);

/* One node's answer; what cannot be right (or is over the limits) is left out, and after a signature that does not hold all the
 * rest: checking is dear, and honest nodes have checked what they hand on. */
void hv_gather_hear(hv_gather *gather, const hv_hash *distance, const hv_record *records, size_t n);

/* How many of the nodes not farther than `within` gave the same answer, with something that lives in it. */
size_t hv_gather_agreed(const hv_gather *gather, const hv_hash *within);
/* 1: that voice had something that lives. */
int hv_gather_had(const hv_gather *gather, size_t voice);
/* How many of the nodes not farther than `within` had. */
size_t hv_gather_holders(const hv_gather *gather, const hv_hash *within);

/* Shows the best of each slot to see(); borrowed from the gather. Returns how many. Voices nearer than not_nearer (a crowd) do not
 * count. */
size_t hv_gather_pick(const hv_gather *gather, size_t believed, const hv_hash *not_nearer,
                      void (*see)(void *arg, const hv_record *record), void *arg);

#endif
