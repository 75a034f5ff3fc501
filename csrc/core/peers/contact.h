/* A DHT node's addresses as compact bytes, for the wire and for tables; and which of a stranger's addresses may be dialled.
 *
 * Room: core (uses addr, msg).
 * Thread: any; pure functions.
 * Limits: HV_CONTACT_ADDRS_MAX bytes in all. Each address is a byte of length and the bytes of hv_addr_pack.
 * Errors: none. The bytes come from strangers, so malformed ones are read as no addresses.
 */
#ifndef HV_CORE_CONTACT_H
#define HV_CORE_CONTACT_H

#include "core/msg.h"

/* Packs as many addresses as fit, in order, and returns the size. An address too long for its byte of length is skipped. */
size_t hv_contact_pack(const hv_addr *addrs, size_t n, uint8_t out[HV_CONTACT_ADDRS_MAX]);

/* Reads up to max addresses and returns their number. Unknown kinds are skipped; malformed bytes give 0. */
size_t hv_contact_unpack(hv_span packed, hv_addr *out, size_t max);

/* A number for the network of an address: equal for the same /24 (IPv4), /48 (IPv6) or domain; 0 for private addresses. */
uint64_t hv_contact_network(const hv_addr *addr);

// clang-format off
/* The kinds of addresses that a peer may name besides public ones, by where it was seen itself. It is seen at the address where it
 * answered, or from which it asked.
 *
 * | address that it names | dialled if the peer that names it |
 * | --------------------- | --------------------------------- |
 * | public                | is any peer                       |
 * | private, link-local   | was seen at a private address, on this machine, or at this node's own outer address |
 * | loopback, "localhost" | was seen at a loopback address    |
 * | another DNS name      | is an initial peer                |
 * | unspecified           | never                             | */
// clang-format on
typedef struct hv_contact_source {
  uint8_t is_private, is_loopback, is_initial; /* is_private: also on this machine, or behind the same outer address */
} hv_contact_source;

/* The source of a peer that was seen at this address. */
hv_contact_source hv_contact_source_at(const hv_addr *seen);
/* The source of an initial peer that answered at this address and sees this node at `you` (kind HV_ADDR_NONE: it does not say). */
hv_contact_source hv_contact_source_initial(const hv_addr *at, const hv_addr *you);
/* The source of a peer that may be dialled at all these addresses. */
hv_contact_source hv_contact_source_of(hv_span packed);
hv_contact_source hv_contact_source_join(hv_contact_source a, hv_contact_source b);
/* True if this node may dial an address that such a peer names, by the table above. */
int hv_contact_may_dial(const hv_addr *addr, hv_contact_source source);
/* Removes the addresses from a card that may not be dialled. */
void hv_contact_keep_card(hv_card *card, hv_contact_source source);
/* Writes the addresses that may be dialled; returns their size, 0 for more than HV_CONTACT_ADDRS_MAX bytes. */
size_t hv_contact_keep(hv_span packed, hv_contact_source source, uint8_t out[HV_CONTACT_ADDRS_MAX]);

#endif
