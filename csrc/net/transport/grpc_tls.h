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

/* gRPC's provider of a certificate for this identity, with the proof that it is a member of a closed swarm (credentials NULL: of
 * none). The caller releases it. HV_NOMEM, HV_CRYPTO. */
hv_status hv_grpc_tls_provider(hv_mem *mem, const hv_identity *identity, const hv_credentials *credentials,
                               grpc_tls_certificate_provider **out);

/* The server's credentials: callers must show a certificate, and are checked for the closed swarm (NULL: it is open). The caller
 * releases them. NULL: no memory. */
grpc_server_credentials *hv_grpc_tls_server(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust_swarm *swarm);
/* A channel's credentials from these options, which it takes. The caller releases them. */
grpc_channel_credentials *hv_grpc_tls_channel(grpc_tls_credentials_options *options);

/* gRPC's TLS options: send the provider's certificate and check the peer's with trust, to which they hold a reference. mem must
 * outlive all channels and servers with these options. NULL: no memory, or trust is NULL. */
grpc_tls_credentials_options *hv_grpc_tls_options(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust *trust);

#endif
