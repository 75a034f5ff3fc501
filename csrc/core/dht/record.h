/* Whose is a record, and is it what they said? Owner marks, what a signature covers, limits.
 *
 * Room: core (uses env for the cryptography). Pure but for env->sha256, sign and verify; the hive thread.
 * A key is any bytes; its place in the DHT is SHA-256 of them. Who writes "[owner:PEERID]" anywhere in a key or a subkey makes the
 * record that peer's: it counts only with its signature. All marks in one record name the same peer, and a mark that cannot be read
 * makes a record nobody can write. Without a mark anybody may write, and nothing is signed.
 */
#ifndef HV_CORE_RECORD_H
#define HV_CORE_RECORD_H

#include "core/env.h"

#define HV_RECORD_DOMAIN "hv:record"

/* The owner that the marks in key and subkey name (unknown: there is no mark). HV_DENIED: a mark cannot be read, or they name
 * several. */
hv_status hv_record_owner(hv_span key, hv_span subkey, hv_peer_id *out);

/* Is there a shape in it that could be kept? Sizes, a time to live, a signer where there must be one and nowhere else. `place` is
 * SHA-256 of the key. Not the signature. HV_TOO_LARGE (the sentence names the limit), HV_INVALID, HV_DENIED. */
hv_status hv_record_check(const hv_record *record, hv_error *err);

/* Fills signer and signature with this node's; lease_ms and version are set. The signature covers, behind the domain: the key's
 * hash, whether there is a subkey, its size (4 bytes, little endian) and bytes, SHA-256 of the value, version (8), lease_ms (4). */
hv_status hv_record_sign(hv_env *env, const hv_peer_id *me, const hv_hash *place, hv_record *record);
int hv_record_verify(hv_env *env, const hv_hash *place, const hv_record *record); /* 1: right */

/* What it takes of a limit: its bytes, and what keeping it costs. */
size_t hv_record_size(const hv_record *record);

#endif
