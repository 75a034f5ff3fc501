/* The versions of the peers with which this node has exchanged messages: a bounded table of their versions and features.
 *
 * Room: core (uses env, versions). The world owns one for each node (hv_env.spoken), fills it with what arrives, and asks it
 * before it sends; core asks through hv_peers_version_of.
 * Thread: the hive thread.
 * Limits: HV_SPOKEN_ROOM peers; a new one replaces the least recently learned of its bucket. A peer without a common version is not
 * dialled for a second, then, as long as it has none, for 16 times as long, to HV_SPOKEN_APART_US. At most HV_SPOKEN_TOLD_MAX such
 * peers are logged in that time. A peer that is not in the table is taken to speak this node's lowest version, without features.
 */
#ifndef HV_CORE_SPOKEN_H
#define HV_CORE_SPOKEN_H

#include "core/env.h"
#include "core/versions.h"

enum { HV_SPOKEN_BUCKETS = 256, HV_SPOKEN_WAYS = 4, HV_SPOKEN_ROOM = HV_SPOKEN_BUCKETS * HV_SPOKEN_WAYS, HV_SPOKEN_TOLD_MAX = 16 };
#define HV_SPOKEN_APART_LEAST_US 1000000ull
#define HV_SPOKEN_APART_US (300 * 1000000ull)

/* One peer. */
typedef struct hv_spoken_entry {
  hv_peer_id id;        /* unknown: the place is free */
  hv_versions versions; /* lowest 0: it refused and named none */
  uint64_t learned_us;
  uint64_t apart_us; /* until then it is not dialled; 0: there is a common version */
  unsigned times;    /* that it was found apart, one after the other */
} hv_spoken_entry;

struct hv_spoken {
  hv_mem *mem;
  hv_versions mine;
  hv_spoken_entry *buckets[HV_SPOKEN_BUCKETS]; /* HV_SPOKEN_WAYS entries each; NULL: none yet */
  uint64_t told_us;                            /* start of the time in which n_told peers were logged */
  unsigned n_told;
};

/* mine: what this node speaks; NULL or zeros: what this code speaks. HV_INVALID: not a range of versions. */
hv_status hv_spoken_init(hv_spoken *spoken, hv_mem *mem, const hv_versions *mine);
void hv_spoken_fini(hv_spoken *spoken);

/* The version in which to write the first message to this peer. 0: it has none in common with this node, so it is not dialled.
 * *sure (may be NULL): 0 if the peer may speak another one, so that it has to be asked. */
uint32_t hv_spoken_choose(hv_env *env, const hv_peer_id *id, int *sure);
/* Until when this peer is not dialled for want of a common version; 0: it may be. */
uint64_t hv_spoken_apart_until(const hv_env *env, const hv_peer_id *id);
/* A message of this peer named its versions, which are valid. Logs a peer without a common version once. */
void hv_spoken_learn(hv_env *env, const hv_peer_id *id, const hv_versions *versions);
/* This peer refused a message of that version and did not say what it speaks. */
void hv_spoken_refused(hv_env *env, const hv_peer_id *id, uint32_t version);
/* The versions that the peer speaks, or is taken to speak. */
hv_versions hv_spoken_of(const hv_env *env, const hv_peer_id *id);
/* Why this peer is not dialled, in one sentence. */
void hv_spoken_explain(const hv_env *env, const hv_peer_id *id, char text[HV_VERSIONS_TEXT_MAX]);
/* The versions that this node speaks. */
hv_versions hv_spoken_mine(const hv_env *env);

#endif
