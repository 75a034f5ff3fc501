/* Where can a DHT node be dialled? Its addresses as compact bytes, as they travel and as tables keep them.
 *
 * Room: core (uses addr, msg). Pure functions; any thread. Packed addresses stand one after another, each a byte of length and
 * then what hv_addr_pack wrote; HV_CONTACT_ADDRS_MAX bytes in all. They come from strangers: nothing about them is taken for
 * granted.
 */
#ifndef HV_CORE_CONTACT_H
#define HV_CORE_CONTACT_H

#include "core/msg.h"

/* Packs as many addresses as fit, in order, and returns the size. One that is too long for its byte of length is left out. */
size_t hv_contact_pack(const hv_addr *addrs, size_t n, uint8_t out[HV_CONTACT_ADDRS_MAX]);

/* Reads up to max addresses and returns how many there were. Those of unknown kinds are skipped; malformed bytes give 0. */
size_t hv_contact_unpack(hv_span packed, hv_addr *out, size_t max);

/* Which network an address lies in: the same number for the same /24 (IPv4), /48 (IPv6) or domain; 0 for private ones, of which
 * there may be any number. */
uint64_t hv_contact_network(const hv_addr *addr);

#endif
