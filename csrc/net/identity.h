/* The identity of a node: an Ed25519 key pair, its self-signed certificate, and signatures.
 *
 * Room: net (uses core/peer). The only file that includes OpenSSL. It draws no random bytes and reads no clock: seeds and times are
 * arguments.
 * Owner: an hv_identity owns the key, and wipes it when freed.
 * Thread: an identity never changes; any thread.
 * Errors: what OpenSSL puts on the thread's error queue is removed again, because Python's ssl reads the same queue.
 */
#ifndef HV_NET_IDENTITY_H
#define HV_NET_IDENTITY_H

#include "core/peer.h"

typedef struct hv_identity hv_identity;

/* The key pair derived from 32 random bytes. NULL: no memory, or libcrypto failed. */
hv_identity *hv_identity_from_seed(hv_mem *mem, const uint8_t seed[32]);

/* True if a process of the user `me` may trust a file of `owner`: its own, or root's. Root may use any. */
int hv_identity_owner_is_right(uint32_t owner, uint32_t me);

/* Loads the key from a file. If there is no file, creates the key from seed and writes it there atomically, with mode 0600. The
 * file is a PEM private key ("BEGIN PRIVATE KEY", Ed25519); the protobuf form of libp2p and hivemind is read, too. HV_PERMISSION:
 * other users may read the file, or another user owns it. HV_MALFORMED: it is not an Ed25519 key. HV_IO. */
hv_status hv_identity_load(hv_mem *mem, const char *path, const uint8_t seed[32], hv_identity **out, hv_error *err);

/* The key from the bytes of such a file, which are not trusted. HV_MALFORMED with a text, HV_NOMEM, HV_CRYPTO. */
hv_status hv_identity_parse(hv_mem *mem, hv_span bytes, hv_identity **out, hv_error *err);

void hv_identity_free(hv_identity *identity); /* NULL is fine */

const hv_peer_id *hv_identity_peer(const hv_identity *identity);

/* Ed25519 over the domain, a zero byte, and the bytes, so that a signature for one domain is not valid in another. */
hv_status hv_identity_sign(const hv_identity *identity, const char *domain, hv_span bytes, uint8_t out[64]);
int hv_identity_verify(const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]);

void hv_identity_sha256(hv_span bytes, hv_hash *out);

/* A self-signed certificate for this key, valid from a day before `now_s` (seconds since 1970) for `days` days, and the
 * key, both in PEM, terminated, in blocks from mem that the caller frees. */
hv_status hv_identity_certificate(const hv_identity *identity, hv_mem *mem, int64_t now_s, int days, char **certificate,
                                  char **key);
/* The same with an extension of these bytes, which peers that do not know it skip; none if the span is empty. */
hv_status hv_identity_certificate_with(const hv_identity *identity, hv_mem *mem, hv_span extension, int64_t now_s, int days,
                                       char **certificate, char **key);

/* The peer to which a certificate belongs. Checks that it is one self-signed Ed25519 certificate with a correct signature, and
 * valid at now_s with a day's tolerance for wrong clocks. HV_MALFORMED; HV_DENIED with the reason: expired, not yet valid, another
 * kind of key, or not self-signed. */
hv_status hv_identity_check_certificate(hv_span pem, int64_t now_s, hv_peer_id *out, hv_error *err);

/* The bytes of that extension of a certificate. */
typedef struct hv_extension {
  size_t size; /* 0: the certificate has none, or more bytes than fit here */
  uint8_t bytes[512];
} hv_extension;
/* The same, and its extension (NULL: not asked for). */
hv_status hv_identity_read_certificate(hv_span pem, int64_t now_s, hv_peer_id *out, hv_extension *extension, hv_error *err);

#endif
