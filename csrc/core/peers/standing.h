/* The standing of a peer: what this node knows of it by itself, and not from the words of others.
 *
 * Room: core (uses peers).
 * Thread: the hive thread.
 * Limits: a partner is remembered for as long as its entry stays in the table of peers.
 */
#ifndef HV_CORE_STANDING_H
#define HV_CORE_STANDING_H

#include "core/peers/peers.h"

typedef enum hv_standing {
  HV_STANDING_STRANGER, /* anything else */
  HV_STANDING_PARTNER,  /* this node has averaged with it since its start, and it is alive */
  HV_STANDING_INITIAL   /* the user named it as an initial peer, by its ID or by an address where it answered */
} hv_standing;

hv_standing hv_standing_of(const hv_peers *peers, const hv_peer_id *id);
hv_tier hv_standing_tier(const hv_peers *peers, const hv_peer_id *id);

/* This node has averaged with the peer. */
void hv_standing_averaged(hv_peers *peers, const hv_peer_id *id);

/* Where this peer was seen, for the addresses that it names in records. For a peer that this node has not seen: where any peer was.
 */
hv_contact_source hv_standing_source(const hv_peers *peers, const hv_peer_id *id);

/* True if there are initial peers and the last try at each has failed. */
int hv_standing_none_answers(const hv_peers *peers);
/* Why a closed swarm does not admit this node, with a sentence (*text, borrowed): no peer that can be dialled is alive, each
 * initial peer was tried, and the last answer was a refusal. HV_CAUSE_OTHER: it is not refused. */
hv_cause hv_standing_refused(const hv_peers *peers, const char **text);

/* True if no known peer can dial this node: initial peers see it at a public address, it announces only private ones, and no peer
 * was seen in a private network. */
int hv_standing_hidden(const hv_peers *peers);

#endif
