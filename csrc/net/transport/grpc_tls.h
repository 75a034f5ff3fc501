/* TLS for gRPC: this node's certificate, the check of the peer's, and the differences between versions of gRPC.
 *
 * Room: net (uses identity, trust); private to grpc.c and grpc_tls.c. Tested with gRPC 1.51 (Debian, Ubuntu) and 1.83.
 * Thread: that of hv_grpc; gRPC checks certificates on threads of its own.
 */
#ifndef HV_NET_GRPC_TLS_H
#define HV_NET_GRPC_TLS_H

#include "net/identity.h"
#include "net/invitation.h"
#include "net/transport/trust.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#if __has_include(<grpc/credentials.h>)
#include <grpc/credentials.h> /* newer versions declare TLS there */
#endif

/* Turns off gRPC's messages on stderr, which report even refused connections, unless GRPC_VERBOSITY is set. Call it before any
 * other function of gRPC. It reaches versions that have a function for it; newer ones read the environment alone, when they are
 * loaded. */
void hv_grpc_tls_hush(void);

/* The certificate of this node, as the other side of a handshake sees it. Zeros: none yet. */
typedef struct hv_grpc_tls_shown {
  grpc_tls_certificate_provider *dials;  /* of channels; a renewal replaces it for those that are made later */
  grpc_tls_certificate_provider *serves; /* of the server, whose certificate a renewal replaces for connections that begin later */
  int key, certificate;                  /* without a file: the texts that gRPC 1.51 reads for `serves` every second; -1: none */
} hv_grpc_tls_shown;

/* Shows a certificate for this identity, with the proof that it is a member of a closed swarm (credentials NULL: of none). Again,
 * with the renewed invitation of a guest: replaces it. HV_NOMEM, HV_CRYPTO; HV_UNSUPPORTED: the server cannot replace it. After an
 * error all is as before. */
hv_status hv_grpc_tls_show(hv_mem *mem, const hv_identity *identity, const hv_credentials *credentials, hv_grpc_tls_shown *shown);
void hv_grpc_tls_hide(hv_grpc_tls_shown *shown); /* zeros are fine */

/* The server's credentials: callers must show a certificate, and are checked for the closed swarm (NULL: it is open). The caller
 * releases them. NULL: no memory. */
grpc_server_credentials *hv_grpc_tls_server(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust_swarm *swarm);
/* A channel's credentials from these options, which it takes. The caller releases them. */
grpc_channel_credentials *hv_grpc_tls_channel(grpc_tls_credentials_options *options);

/* gRPC's TLS options: send the provider's certificate and check the peer's with trust, to which they hold a reference. mem must
 * outlive all channels and servers with these options. NULL: no memory, or trust is NULL. */
grpc_tls_credentials_options *hv_grpc_tls_options(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust *trust);

#endif
