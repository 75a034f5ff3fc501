/* Who is a peer? Its public key, how that reads, and how far two identifiers are apart.
 *
 * Room: core (uses base). Pure functions over small values; any thread.
 * The text form is libp2p's: base58btc of an identity multihash over the protobuf of an Ed25519 public
 * key (bytes 00 24 08 01 12 20, then the 32 bytes of the key), which always begins with "12D3KooW".
 * Distances are Kademlia's (Maymounkov, Mazieres 2002): XOR over 256-bit node IDs.
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

/* A point of the DHT's key space: SHA-256 of something. */
typedef struct hv_hash {
  uint8_t bytes[32];
} hv_hash;

int hv_peer_is_known(const hv_peer_id *peer);
/* Inline: tables of peers are looked through with it. */
static inline int hv_peer_equal(const hv_peer_id *a, const hv_peer_id *b) {
  return memcmp(a->key, b->key, sizeof a->key) == 0;
}
int hv_peer_compare(const hv_peer_id *a, const hv_peer_id *b); /* like memcmp: one order everybody agrees on */

/* Writes "12D3KooW..." (or "(unknown)") into out and returns out. */
const char *hv_peer_print(const hv_peer_id *peer, char out[HV_PEER_TEXT_MAX]);

/* Reads the text form. HV_MALFORMED for anything that is not exactly an Ed25519 peer ID; err says what was wrong. */
hv_status hv_peer_parse(hv_span text, hv_peer_id *out, hv_error *err);

/* The last few characters of the text form, for logs. */
#define HV_PEER_SHORT_MAX 16
const char *hv_peer_short(const hv_peer_id *peer, char out[HV_PEER_SHORT_MAX]);

/* a XOR b. */
hv_hash hv_hash_distance(const hv_hash *a, const hv_hash *b);
/* Which of a, b is nearer to target: < 0 for a, > 0 for b, 0 when equal. */
int hv_hash_nearer(const hv_hash *target, const hv_hash *a, const hv_hash *b);
/* How many leading bits a and b share: 0...256. */
int hv_hash_shared_bits(const hv_hash *a, const hv_hash *b);

#endif
