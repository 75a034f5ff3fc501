/* A record's owner, signature and limits.
 *
 * Room: core (uses env for the cryptography).
 * Thread: the hive thread. Pure but for env->sha256, sign and verify.
 * A key is any bytes; its place in the DHT is SHA-256 of them.
 * Owner marks: "[owner:PEERID]" anywhere in a key or subkey makes the record that peer's, so it counts only with its signature.
 * All marks of a record must name the same peer. A mark that cannot be read makes a record that no peer can write.
 * Without a mark every peer may write, and nothing is signed.
 */
#ifndef HV_CORE_RECORD_H
#define HV_CORE_RECORD_H

#include "core/env.h"

#define HV_RECORD_DOMAIN "hv:record"

/* *out: the owner that the marks in key and subkey name; unknown if there is no mark. HV_DENIED: a mark cannot be read, or the
 * marks name several peers. */
hv_status hv_record_owner(hv_span key, hv_span subkey, hv_peer_id *out);

/* Checks all but the signature: sizes, a time to live, a signer exactly if there is a mark. `place` is SHA-256 of the key.
 * HV_TOO_LARGE (err names the limit), HV_INVALID, HV_DENIED. */
hv_status hv_record_check(const hv_record *record, hv_error *err);

/* Signs a record as this node; the caller has set lease_ms and version. The signature covers, after the domain: the key's hash,
 * has_subkey (1 byte), the subkey's size (4 bytes, little endian) and bytes, SHA-256 of the value, version (8), lease_ms (4). */
hv_status hv_record_sign(hv_env *env, const hv_peer_id *me, const hv_hash *place, hv_record *record);
/* True if the signature is valid. */
int hv_record_verify(hv_env *env, const hv_hash *place, const hv_record *record);

/* Bytes that the record counts against a limit: its own, and the overhead of keeping it. */
size_t hv_record_size(const hv_record *record);

#endif
