/* Swarm keys and invitations: their text forms, and the proof of membership that a peer's certificate carries.
 *
 * Room: net (uses identity, core/peers/admission).
 * Owner: an hv_credentials owns the secret by which this node proves its membership, and wipes it.
 * Thread: any; nothing here changes after it was made.
 * Limits: HV_SWARM_KEY_TEXT_MAX, HV_INVITE_TEXT_MAX, HV_PROOF_MAX. Text and proofs are read strictly, without allocation.
 * Errors: no sentence quotes a key or an invitation.
 * Rules and layouts: docs/design/invitations.md.
 */
#ifndef HV_NET_INVITATION_H
#define HV_NET_INVITATION_H

#include "core/peers/admission.h"
#include "core/peers/denials.h"
#include "net/identity.h"

/* ---- keys ---- */

/* Writes the text of the swarm key with this seed. */
void hv_swarm_key_print(const uint8_t seed[32], char out[HV_SWARM_KEY_TEXT_MAX]);
/* The swarm key in this text. The caller frees it. HV_MALFORMED (HV_CAUSE_BAD_INVITATION), HV_NOMEM, HV_CRYPTO. */
hv_status hv_swarm_key_parse(hv_mem *mem, hv_span text, hv_identity **out, hv_error *err);

/* ---- invitations ---- */

/* Writes the text of a new invitation whose secret is this seed, signed by the swarm's key. HV_INVALID: the end or the name is
 * none; HV_NOMEM, HV_CRYPTO. */
hv_status hv_invite_make(hv_mem *mem, const hv_identity *swarm_key, const uint8_t seed[32], int64_t end_s, const char *name,
                         char out[HV_INVITE_TEXT_MAX], hv_invitation *invitation, hv_error *err);

/* Copies the secret of an invitation to this swarm, with which hv_invite_make renews it. HV_MALFORMED: it is none. */
hv_status hv_invite_seed(hv_span text, const hv_identity *swarm_key, uint8_t seed[32], hv_error *err);

/* ---- denials ---- */

/* A denial by a holder of the key, or the end of denials. */
typedef struct hv_denials_order {
  const char *id;  /* of an invitation, or of a peer */
  int allow;       /* 1: takes back all denials of it */
  uint64_t number; /* a random number of a new denial */
  int64_t end_s;   /* of the invitation that is denied; HV_DENIALS_NO_END: not known, or a peer */
} hv_denials_order;

/* The functions below write a list of denials (core/peers/denials.h) into a block from mem that the caller frees. now_s: seconds
 * since 1970, by which entries end.
 *
 * The union of two lists; all signatures are checked. swarm: public half of the key. HV_MALFORMED: one of them is no list of this
 * swarm; HV_TOO_LARGE, HV_NOMEM. */
hv_status hv_denials_join(hv_mem *mem, const hv_peer_id *swarm, hv_span one, hv_span other, int64_t now_s, hv_span *out,
                          hv_error *err);
/* A list of hv_denials_join with one denial more, or with denials taken back. HV_MALFORMED: the ID is none; HV_NOT_FOUND: it is not
 * denied; HV_TOO_LARGE, HV_NOMEM, HV_CRYPTO. */
hv_status hv_denials_change(hv_mem *mem, const hv_identity *swarm_key, hv_span before, const hv_denials_order *order, int64_t now_s,
                            hv_span *out, hv_error *err);
/* A list of a release that signed lists as a whole, as a list of entries. HV_MALFORMED: it is none of this swarm; HV_NOMEM,
 * HV_CRYPTO. */
hv_status hv_denials_upgrade(hv_mem *mem, const hv_identity *swarm_key, hv_span old, hv_span *out, hv_error *err);

/* ---- credentials: by which a node proves that it is a member ---- */

typedef struct hv_credentials {
  hv_admission admission;
  hv_identity *signer;   /* the swarm's key, or the secret of the invitation */
  uint8_t signature[64]; /* of the invitation's statement, by the swarm's key */
} hv_credentials;

/* Reads a swarm key, or an invitation, or both (NULL: not given, but not both), which must belong to one swarm. Both signatures are
 * checked. HV_MALFORMED (HV_CAUSE_BAD_INVITATION), HV_NOMEM, HV_CRYPTO: nothing to fini. */
hv_status hv_credentials_read(hv_mem *mem, const char *swarm_key, const char *invite, hv_credentials *out, hv_error *err);
void hv_credentials_fini(hv_credentials *credentials); /* wipes it; zeros are fine */

/* ---- proofs ---- */

/* The fields of a proof, of which nothing is checked. */
typedef struct hv_proof {
  hv_peer_id swarm;
  hv_membership shown;   /* as the proof claims */
  uint8_t signature[64]; /* of the peer's ID, by the signer */
  uint8_t granted[64];   /* of the statement, by the swarm's key; for an invited peer */
} hv_proof;

/* Reads the bytes of a proof. HV_MALFORMED: they are none. */
hv_status hv_proof_parse(hv_span bytes, hv_proof *out);
/* Writes it, and returns its size. */
size_t hv_proof_print(const hv_proof *proof, uint8_t out[HV_PROOF_MAX]);

/* Writes the proof that this peer is a member. HV_NOMEM, HV_CRYPTO. */
hv_status hv_proof_make(const hv_credentials *credentials, const hv_peer_id *peer, uint8_t out[HV_PROOF_MAX], size_t *size);
/* The membership that these bytes prove for this peer in this swarm; HV_MEMBERSHIP_NONE if they prove none. Its end is not judged.
 */
void hv_proof_check(hv_span bytes, const hv_peer_id *peer, const hv_peer_id *swarm, hv_membership *out);

#endif
