/* Listening: a socket on an address, why there is none, and the addresses at which others reach it.
 *
 * Room: net (uses core/addr). Used by door and sockets (the system's addresses), and loop (addresses to announce).
 * Thread: any; no state.
 */
#ifndef HV_NET_LISTEN_H
#define HV_NET_LISTEN_H

#include "core/addr.h"

struct sockaddr;

/* A non-blocking socket that listens on addr (an IP address; an unspecified one listens in both families, if the machine has both).
 * Returns 0 and the port (for port 0: a free one), or errno. */
int hv_listen_bind(const hv_addr *addr, uint16_t *port, int *fd);

/* Reads an address of the system, with IPv4 in IPv6 as IPv4. False: it is of another family. */
int hv_listen_read_sockaddr(const struct sockaddr *from, hv_addr *out);

/* The status and error text for an errno of a bind. */
hv_status hv_listen_explain(int error, const char *where, hv_error *err);

/* True if one of the n_before addresses in `asked`, bound to `ports`, already listens on addr; then *port is its port. An
 * unspecified address ([::] or 0.0.0.0) listens on IPv4 and IPv6, so it covers another unspecified one on the same port, or on port
 * 0. */
int hv_listen_covered(const hv_addr *asked, size_t n_before, const hv_addr *addr, const uint16_t *ports, uint16_t *port);

/* Adds addr to the list. An unspecified address is replaced by those of this machine's interfaces, or by loopback if there are no
 * others: [::] by IPv6, then IPv4 addresses; 0.0.0.0 by IPv4 addresses, or IPv6 if there are none. Duplicates, and addresses beyond
 * max, are skipped. */
void hv_listen_expand(const hv_addr *addr, hv_addr *list, size_t *n, size_t max);

/* Parses an address as gRPC prints it: ipv4:1.2.3.4:80, ipv6:[::1]:80, or in newer versions ipv6:%5B::1%5D:80. Kind HV_ADDR_NONE:
 * it is not an address. */
void hv_listen_read_uri(const char *uri, hv_addr *out);

#endif
