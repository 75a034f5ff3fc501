/* Facts about listening that gRPC does not give: why a bind failed, and where a listener can be reached.
 *
 * Room: net (uses core/addr). Used by grpc (why a bind failed) and loop (what to announce).
 * Thread: any; nothing is kept.
 */
#ifndef HV_NET_LISTEN_H
#define HV_NET_LISTEN_H

#include "core/addr.h"

/* Binds addr (an IP) for a moment. Returns 0 and the port that was taken (port 0: some free one), or errno. */
int hv_listen_try(const hv_addr *addr, uint16_t *port);

/* The status and sentence for an errno of a bind; 0: hv_listen_try could bind it, but gRPC could not. */
hv_status hv_listen_explain(int error, const char *where, hv_error *err);

/* An unspecified address listens on both families, so a second one on the same port (or on port 0) is already served: 1, and *port
 * is its port. asked, ports: those before it, as asked for and as bound. */
int hv_listen_covered(const hv_addr *asked, size_t n_before, const hv_addr *addr, const uint16_t *ports, uint16_t *port);

/* Adds addr to the list; an unspecified one as the addresses of this machine's interfaces, loopback only if there is nothing else:
 * [::] those of both families, IPv6 first, 0.0.0.0 those of IPv4, and of IPv6 only if there are none. What does not fit or is there
 * already is skipped. */
void hv_listen_expand(const hv_addr *addr, hv_addr *list, size_t *n, size_t max);

/* Reads a peer's address as gRPC writes it: ipv4:1.2.3.4:80, ipv6:[::1]:80, or (newer ones) ipv6:%5B::1%5D:80. Kind NONE: it is
 * no address. */
void hv_listen_read_uri(const char *uri, hv_addr *out);

#endif
