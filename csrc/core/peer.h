/* A peer's identity: its Ed25519 public key, the text form, and the distance between two points of the DHT.
 *
 * Room: core (uses base).
 * Thread: any; pure functions over small values.
 * The text form is libp2p's: base58btc of an identity multihash over the protobuf of an Ed25519 public key (bytes 00 24 08 01 12
 * 20,
 * then the 32 bytes of the key). It always begins with "12D3KooW".
 * Paper: distances are Kademlia's (Maymounkov, Mazieres 2002): XOR over 256-bit node IDs.
 */
#ifndef HV_CORE_PEER_H
#define HV_CORE_PEER_H

#include "base/buf.h"
#include "base/status.h"

#include <string.h>

#define HV_PEER_TEXT_MAX 64 /* room for the text form and its end */

/* An Ed25519 public key. All zero: not known (yet). */
typedef struct hv_peer_id {
  uint8_t key[32];
} hv_peer_id;

/* A point of the DHT's key space: a SHA-256. */
typedef struct hv_hash {
  uint8_t bytes[32];
} hv_hash;

/* True if the ID is not all zero. */
int hv_peer_is_known(const hv_peer_id *peer);
/* True for the keys of small order, the zero key among them: anybody can sign for such a key, so no peer may have one. */
int hv_peer_is_weak(const hv_peer_id *peer);
/* True if both are the same peer. Inline, because scans of tables use it. */
static inline int hv_peer_equal(const hv_peer_id *a, const hv_peer_id *b) {
  return memcmp(a->key, b->key, sizeof a->key) == 0;
}
int hv_peer_compare(const hv_peer_id *a, const hv_peer_id *b); /* like memcmp: one order that all peers share */

/* Writes "12D3KooW..." (or "(unknown)") into out and returns out. */
const char *hv_peer_print(const hv_peer_id *peer, char out[HV_PEER_TEXT_MAX]);

/* Reads the text form. HV_MALFORMED for all that is not exactly an Ed25519 peer ID; err says why. */
hv_status hv_peer_parse(hv_span text, hv_peer_id *out, hv_error *err);

/* The last few characters of the text form, for logs. */
#define HV_PEER_SHORT_MAX 16
const char *hv_peer_short(const hv_peer_id *peer, char out[HV_PEER_SHORT_MAX]);

/* a XOR b. */
hv_hash hv_hash_distance(const hv_hash *a, const hv_hash *b);
/* < 0: a is nearer to target than b; > 0: b is nearer; 0: equal. */
int hv_hash_nearer(const hv_hash *target, const hv_hash *a, const hv_hash *b);
/* Number of leading bits that a and b share, 0 to 256. */
int hv_hash_shared_bits(const hv_hash *a, const hv_hash *b);

#endif
