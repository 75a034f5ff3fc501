/* The list of peers and invitations that a closed swarm denies: its bytes, and how it spreads.
 *
 * Room: core (uses admission, env, peers). The world keeps the list of a node in hv_env.admission and replaces it by hv_env.deny.
 * Owner: node has the hv_denials; a list is a span that its caller keeps.
 * Thread: the functions of lists are pure; the others: the hive thread.
 * Limits: HV_DENIALS_MAX entries; a new list is passed on to HV_DENIALS_CALLS peers at once, and to all others by hellos.
 * Errors: a list that is forged, older, malformed or too long is ignored.
 * Rules and layout: docs/design/invitations.md, "Denials".
 */
#ifndef HV_CORE_DENIALS_H
#define HV_CORE_DENIALS_H

#include "core/peers/peers.h"

enum { HV_DENIALS_CALLS = 8 };
#define HV_DENIALS_DOMAIN "hv:denials"

/* ---- a list: a serial number, entries in ascending order, a signature ---- */

/* HV_MALFORMED: these bytes are no list. Its signature is not checked. */
hv_status hv_denials_check(hv_span list);
/* 0: the list is empty. */
uint64_t hv_denials_serial(hv_span list);
size_t hv_denials_count(hv_span list);
/* The bytes that are signed, and the signature. The list must have passed hv_denials_check. */
hv_span hv_denials_signed(hv_span list);
const uint8_t *hv_denials_signature(hv_span list);

/* ---- a node's part in spreading it ---- */

typedef struct hv_denials hv_denials;

typedef struct hv_denials_call {
  hv_denials *denials;
  hv_call call;
  int under_way;
} hv_denials_call;

struct hv_denials {
  hv_env *env;
  hv_peers *peers;
  int stopping;
  size_t told; /* peers that have taken the present list from this node, or had it */
  uint64_t told_serial;
  hv_denials_call calls[HV_DENIALS_CALLS];
};

/* env and peers are borrowed. In an open swarm it does nothing. */
void hv_denials_init(hv_denials *denials, hv_env *env, hv_peers *peers);
void hv_denials_stop(hv_denials *denials); /* calls nobody any more */
/* A hello of this peer, or its answer to one, named the serial number of its list. */
void hv_denials_hello(hv_denials *denials, const hv_peer_id *peer, uint64_t serial);
/* A peer sends its list (HV_MSG_DENIALS). */
void hv_denials_asked(hv_denials *denials, const hv_event *event);
/* Takes a list that the program has read, or made. HV_MALFORMED, HV_CORRUPT (another key signed it), HV_EXISTS (it is not newer),
 * HV_STATE (the swarm is open), HV_NOMEM. */
hv_status hv_denials_take(hv_denials *denials, hv_span list);

#endif
