/* An announcement of a state, and the vote that chooses one manifest among many announcements.
 *
 * Room: core (uses msg, peer, standing). Pure functions on values that the caller owns.
 * Thread: any.
 * Limits: one announcement for each signer; at most HV_BALLOT_BYTES_MAX bytes.
 * Errors: bytes of a stranger give HV_MALFORMED or HV_VERSION; a vote without a majority gives HV_STATE.
 * Rules: docs/design/state.md, "The vote" and "Bytes of an announcement".
 */
#ifndef HV_CORE_BALLOT_H
#define HV_CORE_BALLOT_H

#include "core/peers/standing.h"

#define HV_BALLOT_LINEAGE 16 /* bytes */
#define HV_BALLOT_BYTES_MAX (1 + 8 + 32 + 8 + 4 + HV_BALLOT_LINEAGE + HV_CONTACT_ADDRS_MAX)

#define HV_BALLOT_VOTE (1u << 20) /* the weight of one vote */

typedef struct hv_ballot {
  hv_peer_id signer; /* the signer of the DHT record; not part of the bytes, nor are the next five */
  hv_standing standing;
  int seen;         /* 1: it answered this node */
  uint64_t network; /* of the address where it answered (core/peers/contact.h); 0: a private one */
  uint64_t bloc;    /* of those that share one vote; 0: its vote is its own. Set by hv_ballot_count, as is weight. */
  uint32_t weight;  /* its part of HV_BALLOT_VOTE */
  uint64_t epoch;
  hv_hash digest;                     /* of the manifest */
  uint64_t size;                      /* bytes of the image */
  float priority;                     /* a joiner asks donors of higher priority first */
  uint8_t lineage[HV_BALLOT_LINEAGE]; /* the averages and steps that made the state; zeros: not known */
  hv_span addrs; /* packed addresses, borrowed from the bytes; empty: the signer votes, but cannot be a donor */
} hv_ballot;

#define HV_BALLOT_SUBKEY_MAX (HV_PEER_TEXT_MAX + 16) /* bytes */
/* Writes the DHT subkey under which `signer` announces; returns its size in bytes. */
size_t hv_ballot_subkey(const hv_peer_id *signer, char out[HV_BALLOT_SUBKEY_MAX]);
/* Writes an announcement's bytes; returns their number. */
size_t hv_ballot_write(const hv_ballot *ballot, uint8_t out[HV_BALLOT_BYTES_MAX]);
/* Reads a stranger's bytes. Does not set `signer`. HV_MALFORMED, HV_VERSION. */
hv_status hv_ballot_read(hv_span bytes, hv_ballot *out);

/* Chooses a manifest by the rules of the vote. May reorder `ballots`, one for each signer. An epoch before `epoch_least` is not
 * chosen, but its announcements are counted. An initial peer, and a peer that answered at a private address, has a vote of its own.
 * The others of one network share one vote, as do all that did not answer, unless no initial peer votes and none has answered.
 * HV_OK: *out is the index of an announcement that names the chosen manifest: the one with the median size, which is honest unless
 * half of their votes lie. HV_NOT_FOUND: no peer announces such an epoch. HV_STATE: there is no majority. */
hv_status hv_ballot_count(hv_ballot *ballots, size_t n, uint64_t epoch_least, size_t *out);

#endif
