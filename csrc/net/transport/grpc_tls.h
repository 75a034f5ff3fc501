/* How does gRPC show and check our identities, and keep quiet, be it an older one or a newer one?
 *
 * Room: net (uses identity, trust). The other half of gRPC's one door, private to grpc.c. All that differs between versions of
 * gRPC's C interface stands in grpc_tls.c: seen are 1.51 (Debian's and Ubuntu's) and 1.83.
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

/* gRPC writes to the user's stderr, also of what is our daily bread (a peer refused): silent from here on, unless GRPC_VERBOSITY
 * asks for more. Before any other of its functions. */
void hv_grpc_tls_hush(void);

/* Who shows this identity's certificate, made here; release it. HV_NOMEM, HV_CRYPTO. */
hv_status hv_grpc_tls_provider(hv_mem *mem, const hv_identity *identity, grpc_tls_certificate_provider **out);

/* Options that show the provider's certificate and check the other's by `trust` (kept; charged to mem, which must outlive what gRPC
 * makes of them). NULL: no memory, or no trust. */
grpc_tls_credentials_options *hv_grpc_tls_options(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust *trust);

#endif
