/* A hive's place in a closed swarm: its credentials, and whether the swarm refuses it.
 *
 * Room: net (uses invitation, clock, core/node, core/peers/standing). Used by hive, which embeds it.
 * Owner: an hv_closed owns its credentials.
 * Thread: hv_closed_keep and hv_closed_take on the hive thread; the others on any.
 * Rules: docs/design/invitations.md.
 */
#ifndef HV_NET_CLOSED_H
#define HV_NET_CLOSED_H

#include "core/node.h"
#include "core/peers/standing.h"
#include "hivemind_c.h"
#include "net/invitation.h"

#include <pthread.h>

typedef struct hv_closed {
  pthread_mutex_t lock;       /* of all below; the hive thread alone changes the credentials */
  hv_credentials credentials; /* zeros: the swarm is open */
  hv_admission_refusal refused;
  uint8_t *denials; /* a copy of the list of denials */
  size_t denials_size;
  hv_hive_denials_told told;
} hv_closed;

void hv_closed_init(hv_closed *closed);
void hv_closed_fini(hv_closed *closed);
/* Reads the credentials of a configuration, if it has any. HV_MALFORMED; HV_INVALID: there is no TLS; HV_NOT_ADMITTED: the
 * invitation has ended; HV_NOMEM, HV_CRYPTO. */
hv_status hv_closed_read(hv_closed *closed, hv_mem *mem, const hv_hive_config *config, hv_error *err);
/* Reads the renewed invitation of this node, a guest: `out` differs from its credentials in the end alone. HV_STATE: it is no
 * guest; HV_MALFORMED, HV_NOT_ADMITTED: it ended; HV_NOMEM, HV_CRYPTO. */
hv_status hv_closed_read_renewed(hv_closed *closed, hv_mem *mem, const char *invite, hv_credentials *out, hv_error *err);
/* Replaces the credentials by these, which it takes. */
void hv_closed_take(hv_closed *closed, hv_credentials *credentials);
/* As hv_hive_membership, hv_hive_proof and hv_hive_proved. */
void hv_closed_membership(hv_closed *closed, char out[HV_MEMBERSHIP_TEXT_MAX]);
size_t hv_closed_proof(hv_closed *closed, const hv_peer_id *me, uint8_t out[HV_PROOF_MAX]);
void hv_closed_proved(hv_closed *closed, hv_span proof, const hv_peer_id *peer, char out[HV_MEMBERSHIP_TEXT_MAX]);
/* Copies for the program's threads whether the peers refuse this node, and the list of denials. */
void hv_closed_keep(hv_closed *closed, hv_mem *mem, hv_node *node);
/* As hv_hive_denials. */
size_t hv_closed_denials(hv_closed *closed, uint8_t *out, size_t max, hv_hive_denials_told *told);
/* As hv_hive_refused. */
int hv_closed_refused(hv_closed *closed, hv_cause *cause, char out[HV_MSG_TEXT_MAX]);

#endif
