/* The check of a peer's identity in a TLS handshake: the expected identity, and the reason if another was found.
 *
 * Room: net (uses clock, identity, listen, core/addr). Used by grpc, whose verifier calls hv_trust_check during each handshake.
 * Owner: an hv_trust is reference-counted: by its channel or server, and by gRPC. An hv_trust_swarm is, by its owner and by them.
 * Thread: an hv_trust has a lock: any thread. The hive thread alone changes an hv_trust_swarm, and reads it without its lock. The
 * cache of certificates belongs to the hive thread.
 * Rules: docs/design/invitations.md, "When a peer is judged".
 */
#ifndef HV_NET_TRUST_H
#define HV_NET_TRUST_H

#include "core/env.h"
#include "core/peers/admission.h"

#define HV_TRUST_TEXT_MAX 768
#define HV_CLAIM_MAX (2 * sizeof(hv_peer_id) + 1)

typedef struct hv_trust hv_trust;
typedef struct hv_trust_swarm hv_trust_swarm;

/* The closed swarm that handshakes ask for: a copy of admission, without a list of denials. It has one reference. NULL: no memory.
 */
hv_trust_swarm *hv_trust_swarm_new(hv_mem *mem, const hv_admission *admission);
void hv_trust_swarm_release(hv_trust_swarm *swarm); /* NULL is fine */
/* Replaces the list of denials by a copy of this one. HV_NOMEM. The hive thread. For HV_TRUST_TELL_MS a handshake still succeeds
 * with a peer that it denies, so that the peer can be sent the list and learns why it is alone. */
#define HV_TRUST_TELL_MS 2000
hv_status hv_trust_swarm_deny(hv_trust_swarm *swarm, hv_span denials);
void hv_trust_swarm_renew(hv_trust_swarm *swarm, const hv_membership *me); /* of this node; the hive thread */
const hv_admission *hv_trust_swarm_admission(const hv_trust_swarm *swarm); /* for the hive thread; NULL if swarm is */

/* Expects the identity in `to`, or any if that is unknown or `to` is NULL (for callers). Of a closed swarm it accepts members only:
 * a peer that is called must be admitted, and a caller must prove a membership, which is judged at its calls, so that an ended or
 * denied one is told why. swarm NULL: the swarm is open. It has one reference. NULL: no memory. */
hv_trust *hv_trust_new(hv_mem *mem, const hv_target *to, hv_trust_swarm *swarm);
hv_trust *hv_trust_keep(hv_trust *trust);
void hv_trust_release(hv_trust *trust); /* NULL is fine */

/* Writes the error text for another peer than expected. */
void hv_trust_print_other(const char *where, const char *found, const char *wanted, char why[HV_TRUST_TEXT_MAX]);

/* Accepts only this identity from now on. */
void hv_trust_expect(hv_trust *trust, const hv_peer_id *peer);

/* True if this certificate (PEM; NULL: the peer sent none) is valid and the expected peer's; else why has the reason. */
int hv_trust_check(hv_trust *trust, const char *pem, char why[HV_TRUST_TEXT_MAX]);

/* The cause and text if the last check failed; HV_CAUSE_OTHER: it did not. */
hv_cause hv_trust_denied(hv_trust *trust, char why[HV_TRUST_TEXT_MAX]);

/* True if this node is in no closed swarm, and the last peer that passed the check is in one. Such a peer ends the connection
 * without a word, because it takes callers of its swarm only. */
int hv_trust_saw_closed(hv_trust *trust);

/* The connection failed later for another reason: there is no check to report. */
void hv_trust_forget(hv_trust *trust);

/* A cache of parsed certificates and addresses, so that they are not parsed with every call. */
enum { HV_TRUST_KNOWN = 128, HV_TRUST_URI_MAX = 64 };
typedef struct hv_trust_entry {
  char *pem; /* NULL: free */
  size_t size;
  hv_peer_id peer;
  hv_membership *shown; /* what it proves; NULL in an open swarm */
} hv_trust_entry;
typedef struct hv_trust_known {
  hv_trust_entry entries[HV_TRUST_KNOWN];
  struct {
    char uri[HV_TRUST_URI_MAX];
    hv_addr addr;
  } addrs[HV_TRUST_KNOWN];
} hv_trust_known;
/* The peer of a certificate. shown (may be NULL): the membership that it proves in the swarm of admission; none if that is NULL. */
hv_status hv_trust_known_peer(hv_trust_known *known, hv_mem *mem, hv_span pem, const hv_admission *admission, hv_peer_id *out,
                              hv_membership *shown);
/* As hv_listen_read_uri. */
void hv_trust_known_addr(hv_trust_known *known, const char *uri, hv_addr *out);
void hv_trust_known_fini(hv_trust_known *known);

/* Without TLS a peer sends its identity in hexadecimal, unverified. HV_DENIED: the text is not an identity. */
void hv_trust_claim(const hv_peer_id *me, char out[HV_CLAIM_MAX]);
hv_status hv_trust_claimed(hv_span text, hv_peer_id *out);

#endif
