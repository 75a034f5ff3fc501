/* A peer's address: parsed from multiaddrs and printed as such.
 *
 * Room: core (uses base, peer). Opens nothing, resolves nothing.
 * Thread: any; pure functions over small values.
 * The text form is /ip4|ip6|dns4|dns6/HOST/tcp/PORT[/p2p/PEERID]. Other forms that are read, because users write them:
 * HOST:PORT, [IPV6]:PORT, and for listening [::]:* and 0.0.0.0:31337 ('*' is port 0, any free one).
 */
#ifndef HV_CORE_ADDR_H
#define HV_CORE_ADDR_H

#include "core/peer.h"

#define HV_ADDR_HOST_MAX 254 /* a DNS name at its longest, and its end */
#define HV_ADDR_TEXT_MAX 352 /* room for the text form with a peer ID, and its end */

typedef enum hv_addr_kind { HV_ADDR_NONE, HV_ADDR_IP4, HV_ADDR_IP6, HV_ADDR_DNS4, HV_ADDR_DNS6, HV_ADDR_DNS } hv_addr_kind;

typedef struct hv_addr {
  uint8_t kind; /* hv_addr_kind; HV_ADDR_DNS: either family (from HOST:PORT or /dns/) */
  uint16_t port;
  union {
    uint8_t ip[16];              /* network order; the first 4 for ip4 */
    char name[HV_ADDR_HOST_MAX]; /* terminated; letters, digits, '-', '.', '_' only */
  } host;
} hv_addr;

/* Reads one address. *peer (may be NULL) becomes the ID behind /p2p/, or unknown.
 * HV_MALFORMED: err quotes the part that is wrong. HV_UNSUPPORTED: a well-formed address of another transport (/udp/.../quic,
 * /p2p-circuit), which the caller skips with one warning. */
hv_status hv_addr_parse(hv_span text, hv_addr *out, hv_peer_id *peer, hv_error *err);

/* Writes the multiaddr, with /p2p/PEERID when peer is not NULL and known; returns out. */
const char *hv_addr_print(const hv_addr *addr, const hv_peer_id *peer, char out[HV_ADDR_TEXT_MAX]);

/* Writes "1.2.3.4:80", "[::1]:80" or "name:80"; returns out. */
const char *hv_addr_print_short(const hv_addr *addr, char out[HV_ADDR_TEXT_MAX]);

/* True if the addresses are equal, or of that kind. */
int hv_addr_equal(const hv_addr *a, const hv_addr *b);
int hv_addr_is_unspecified(const hv_addr *addr); /* 0.0.0.0 or :: */
int hv_addr_is_loopback(const hv_addr *addr);    /* 127.0.0.0/8, ::1, localhost */
int hv_addr_is_private(const hv_addr *addr);     /* RFC 1918, RFC 4193, link-local, loopback, 100.64/10 */

/* Compact bytes for the wire: the binary multiaddr (without /p2p). Returns the size, at most HV_ADDR_PACKED_MAX. */
#define HV_ADDR_PACKED_MAX 264
size_t hv_addr_pack(const hv_addr *addr, uint8_t out[HV_ADDR_PACKED_MAX]);
/* Reads the whole of bytes as one packed address. HV_MALFORMED, HV_UNSUPPORTED. */
hv_status hv_addr_unpack(hv_span bytes, hv_addr *out);

#endif
