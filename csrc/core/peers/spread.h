/* The spread of the list of denials to all members of a closed swarm: the peers with which this node exchanges its list.
 *
 * Room: core (uses denials, admission, env, peers). The world keeps the list in hv_env.admission and replaces it by hv_env.deny.
 * Owner: node has the hv_spread.
 * Thread: the hive thread.
 * Limits: HV_SPREAD_CALLS exchanges at a time. Two of them are for initial peers, and two for those that have proved useful. One
 * exchange with a peer at a time; a peer of no use is left in peace for ever longer pauses. HV_SPREAD_PEERS are remembered.
 * Errors: an entry that the swarm's key has not signed ends the reading of a list.
 * Rules: docs/design/denials.md, "How denials spread".
 */
#ifndef HV_CORE_SPREAD_H
#define HV_CORE_SPREAD_H

#include "core/peers/denials.h"
#include "core/peers/peers.h"

enum { HV_SPREAD_CALLS = 8, HV_SPREAD_PEERS = 128 };

typedef struct hv_spread hv_spread;

/* A peer with which this node exchanges its list. */
typedef struct hv_spread_peer {
  hv_peer_id id;
  uint64_t told;      /* mark of its list, by its last hello */
  uint64_t returned;  /* mark of this node's list when the peer last returned all of it; 0: never */
  uint64_t asked_us;  /* time of the last exchange */
  uint64_t paused_us; /* no exchange before that time */
  unsigned failures;  /* exchanges of no use in a row */
  uint8_t is_useful;  /* its last exchange was of use */
  uint8_t under_way;
} hv_spread_peer;

typedef struct hv_spread_call {
  hv_spread *spread;
  hv_call call;
  hv_spread_peer *peer;
  uint64_t sent; /* mark of the list that was sent */
  int rank;      /* which places it may use */
  uint8_t under_way;
} hv_spread_call;

struct hv_spread {
  hv_env *env;
  hv_peers *peers;
  int stopping;
  uint64_t mark; /* of the list of this node */
  size_t n_known;
  hv_spread_peer known[HV_SPREAD_PEERS];
  hv_spread_call calls[HV_SPREAD_CALLS];
};

/* env and peers are borrowed. In an open swarm it does nothing. */
void hv_spread_init(hv_spread *spread, hv_env *env, hv_peers *peers);
void hv_spread_stop(hv_spread *spread); /* calls nobody any more */
/* A hello of this peer, or its answer to one, named the mark of its list. */
void hv_spread_hello(hv_spread *spread, const hv_peer_id *peer, uint64_t mark);
/* A peer sends its list (HV_MSG_DENIALS). */
void hv_spread_asked(hv_spread *spread, const hv_event *event);
/* Adds to the list of this node what another one has, and passes it on. HV_MALFORMED, HV_CORRUPT (an entry is not signed by the
 * swarm's key; those before it count), HV_TOO_LARGE (the list is full), HV_STATE (the swarm is open), HV_NOMEM. */
hv_status hv_spread_take(hv_spread *spread, hv_span list);
/* True if this peer has returned all that the list of this node has now. */
int hv_spread_has(const hv_spread *spread, const hv_peer_id *peer);

/* True if the peer takes part in the spread of denials; one of an older release does not. In an open swarm all do. */
int hv_spread_speaks(hv_env *env, const hv_peer_id *peer);

#endif
