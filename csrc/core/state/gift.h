/* Gifts of a state: the names and numbers that the giver and the hub share, and a hub's request in the DHT.
 *
 * A giver is a trainer that only dials out, so that no joiner can ask it for the state. A hub asks one of them, which sends the
 * state.
 *
 * Room: core (uses ballot, msg). Pure functions on values that the caller owns.
 * Thread: any.
 * Limits: a request has HV_GIFT_REQUEST_SIZE bytes. Waits and limits of all gifts are in the tables below.
 * Errors: bytes of a stranger give HV_MALFORMED or HV_VERSION.
 * Files: giver.h (the giver), taker.h (the hub), gift_turn.h (whom the hub asks).
 * Rules: docs/design/hub.md, "States of trainers that nobody can dial".
 */
#ifndef HV_CORE_GIFT_H
#define HV_CORE_GIFT_H

#include "core/state/ballot.h"

#define HV_GIFT_EPOCH_MAX ((uint64_t)1 << 48) /* of a state: a peer's record has no larger count */

/* Waits. X(name, milliseconds, what is waited for) */
#define HV_GIFT_WAITS(X)                                                                                                           \
  X(LOOK, 1000, "the giver's next look for requests")                                                                              \
  X(FIND, 5000, "the DHT's answer to such a look")                                                                                 \
  X(LEASE, 15000, "the end of a request that is not stored again")                                                                 \
  X(STORE, 5000, "the hub's next store of its request")                                                                            \
  X(ANSWER, 15000, "the hub's answer to the announcement of a gift")                                                               \
  X(AGAIN, 1000, "the next attempt, if the hub does not expect the gift yet")                                                      \
  X(SILENCE, 30000, "the next piece (hub), or room for it (giver)")                                                                \
  X(CHECK, 600000, "the hub's digests, after the last piece")                                                                      \
  X(SOON, 3000, "a giver that is fast, in an epoch that has begun")                                                                \
  X(PATIENCE, 60000, "bytes of the giver that is asked")                                                                           \
  X(TURN, 120000, "the turn of another giver")                                                                                     \
  X(LARGE, 3600000, "the next request to a giver whose state is too large for the hub")

enum {
#define HV_GIFT_WAIT(name, ms, about) HV_GIFT_##name##_MS = ms,
  HV_GIFT_WAITS(HV_GIFT_WAIT)
#undef HV_GIFT_WAIT
      HV_GIFT_REST = 4,    /* times as long as a state took to arrive, until the next one may be sent: homes have slow lines */
  HV_GIFT_REST_URGENT = 1, /* the same while somebody is on the way, who then has fewer steps to repeat */
  HV_GIFT_TRIES = 4,       /* attempts to give one state to one hub */
  HV_GIFT_PREFIXES = 64,   /* of one node */
  HV_GIFT_HUBS = 16,       /* that receive one state */
  HV_GIFT_REFUSALS = 64,   /* streams that are being refused; for one network a quarter, for one peer 2 */
  HV_GIFT_RIGHT = 256,     /* peers of a round that have the swarm's replica */
  HV_GIFT_FAILED = 64      /* givers that gave nothing and are remembered */
};

#define HV_GIFT_SUFFIX ".gifts"
#define HV_GIFT_KEY_MAX (HV_STATE_PREFIX_MAX + sizeof HV_GIFT_SUFFIX)
#define HV_GIFT_REQUEST_SIZE (1 + 32 + HV_GIFT_TICKET + 8 + 8 + 8)

/* A hub's request for a state. */
typedef struct hv_gift_request {
  hv_peer_id hub; /* the signer of the DHT record; not part of the bytes */
  hv_peer_id giver;
  uint8_t ticket[HV_GIFT_TICKET];
  uint64_t least;    /* oldest epoch of use */
  uint64_t every;    /* epochs from one state to the next */
  uint64_t size_max; /* most bytes of the image */
} hv_gift_request;

/* Writes the DHT key of the requests for states of a prefix, which has at most HV_STATE_PREFIX_MAX bytes; returns its size. */
size_t hv_gift_key(hv_span prefix, uint8_t out[HV_GIFT_KEY_MAX]);
void hv_gift_request_write(const hv_gift_request *request, uint8_t out[HV_GIFT_REQUEST_SIZE]);
/* Reads a stranger's bytes. Does not set `hub`. HV_MALFORMED, HV_VERSION. */
hv_status hv_gift_request_read(hv_span bytes, hv_gift_request *out);
/* Finds a request to `giver` among the records of the key, each signed by its own hub: that of the hub which asked before, if it is
 * among them, else the first. 0: there is none. */
int hv_gift_request_find(const hv_record *records, size_t n, const hv_peer_id *giver, hv_gift_request *out);

#endif
