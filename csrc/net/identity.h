/* The key of a node: its Ed25519 pair, self-signed certificate, and signatures.
 *
 * Room: net (uses core/peer). The only file with OpenSSL's EVP and X509. It draws no randomness and reads no clock: seeds and times
 * are arguments.
 * Owner: an hv_identity owns the key, and wipes it when freed.
 * Thread: read-only once made; any thread.
 * Errors: what OpenSSL puts on the thread's error queue is removed again, because Python's ssl reads the same queue.
 */
#ifndef HV_NET_IDENTITY_H
#define HV_NET_IDENTITY_H

#include "core/peer.h"

typedef struct hv_identity hv_identity;

/* The key that a seed of 32 random bytes stands for. NULL: no memory, or libcrypto failed. */
hv_identity *hv_identity_from_seed(hv_mem *mem, const uint8_t seed[32]);

/* Loads the key in a file, or makes it from seed and writes it there (mode 0600, whole or not at all, never over an existing file).
 * The file is a PEM private key ("BEGIN PRIVATE KEY", Ed25519); also read: the protobuf form libp2p and hivemind write.
 * HV_PERMISSION: others may read it (err tells the chmod). HV_MALFORMED: it is no Ed25519 key. HV_IO. */
hv_status hv_identity_load(hv_mem *mem, const char *path, const uint8_t seed[32], hv_identity **out, hv_error *err);

/* The key in the bytes of such a file (hostile, for all we know). HV_MALFORMED with a sentence, HV_NOMEM, HV_CRYPTO. */
hv_status hv_identity_parse(hv_mem *mem, hv_span bytes, hv_identity **out, hv_error *err);

void hv_identity_free(hv_identity *identity); /* NULL is fine */

const hv_peer_id *hv_identity_peer(const hv_identity *identity);

/* Ed25519 over domain, a zero byte, and the bytes: a signature made for one domain is worth nothing in another. */
hv_status hv_identity_sign(const hv_identity *identity, const char *domain, hv_span bytes, uint8_t out[64]);
int hv_identity_verify(const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]);

void hv_identity_sha256(hv_span bytes, hv_hash *out);

/* A self-signed certificate for this key, valid from a day before `now_s` (seconds since 1970) for `days` days, and the
 * key, both in PEM, terminated, in blocks from mem that the caller frees. */
hv_status hv_identity_certificate(const hv_identity *identity, hv_mem *mem, int64_t now_s, int days, char **certificate,
                                  char **key);

/* Whose certificate is this? Checks that it is one self-signed Ed25519 certificate whose signature holds, valid at now_s within a
 * day (clocks may be off), and gives its key. HV_MALFORMED, HV_DENIED (err says: expired, not yet valid, another kind of key,
 * foreign signature). */
hv_status hv_identity_check_certificate(hv_span pem, int64_t now_s, hv_peer_id *out, hv_error *err);

#endif
