#include "core/peers/contact.h"

#include <string.h>

size_t hv_contact_pack(const hv_addr *addrs, size_t n, uint8_t out[HV_CONTACT_ADDRS_MAX]) {
  size_t size = 0;
  for (size_t i = 0; i < n; i++) {
    uint8_t packed[HV_ADDR_PACKED_MAX];
    size_t length = addrs[i].kind == HV_ADDR_NONE ? 0 : hv_addr_pack(&addrs[i], packed);
    if (length == 0 || length > 255 || size + 1 + length > HV_CONTACT_ADDRS_MAX)
      continue;
    out[size] = (uint8_t)length;
    memcpy(out + size + 1, packed, length);
    size += 1 + length;
  }
  return size;
}

size_t hv_contact_unpack(hv_span packed, hv_addr *out, size_t max) {
  size_t n = 0;
  for (size_t at = 0; at < packed.size;) {
    size_t length = packed.data[at++];
    if (length == 0 || length > packed.size - at)
      return 0;
    if (n < max && hv_addr_unpack(hv_span_of(packed.data + at, length), &out[n]) == HV_OK && out[n].port)
      n++;
    at += length;
  }
  return n;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size) { /* FNV-1a */
  for (size_t i = 0; i < size; i++)
    hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
  return hash;
}

/* The last two labels: the owner of a domain can make any number of names below it. */
static const char *domain_of(const char *name) {
  const char *at = name + strlen(name);
  for (int dots = 0; at > name; at--)
    if (at[-1] == '.' && ++dots == 2)
      break;
  return at;
}

uint64_t hv_contact_network(const hv_addr *addr) {
  uint64_t start = 0xcbf29ce484222325u + addr->kind;
  if (addr->kind == HV_ADDR_NONE || hv_addr_is_private(addr))
    return 0;
  if (addr->kind == HV_ADDR_IP4)
    return mix(start, addr->host.ip, 3) | 1;
  if (addr->kind == HV_ADDR_IP6)
    return mix(start, addr->host.ip, 6) | 1;
  const char *domain = domain_of(addr->host.name);
  return mix(0xcbf29ce484222325u, domain, strlen(domain)) | 1;
}
