/* TLS under gRPC: how it shows and checks our identities; and all that differs between versions of gRPC's C interface.
 *
 * Room: net (uses identity, trust). The other half of gRPC's door, private to grpc.c. Seen are gRPC 1.51 (Debian, Ubuntu) and 1.83.
 */
#ifndef HV_NET_GRPC_TLS_H
#define HV_NET_GRPC_TLS_H

#include "net/identity.h"
#include "net/transport/trust.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#if __has_include(<grpc/credentials.h>)
#include <grpc/credentials.h> /* newer ones keep TLS there */
#endif

/* Silences gRPC on the user's stderr, where it reports even a refused connection, unless GRPC_VERBOSITY is set. Call it before any
 * other function of gRPC. */
void hv_grpc_tls_hush(void);

/* A provider that shows this identity's certificate. The caller releases it. HV_NOMEM, HV_CRYPTO. */
hv_status hv_grpc_tls_provider(hv_mem *mem, const hv_identity *identity, grpc_tls_certificate_provider **out);

/* Options that show the provider's certificate and check the other's by `trust` (kept; charged to mem, which must outlive what gRPC
 * makes of them). NULL: no memory, or no trust. */
grpc_tls_credentials_options *hv_grpc_tls_options(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust *trust);

#endif
