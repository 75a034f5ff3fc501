/* A DHT node's addresses as compact bytes, for the wire and for tables.
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

#endif
