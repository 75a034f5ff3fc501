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

/* ---- strangers' addresses ---- */

hv_contact_source hv_contact_source_at(const hv_addr *seen) {
  return (hv_contact_source){.is_private = hv_addr_is_private(seen) != 0, .is_loopback = hv_addr_is_loopback(seen) != 0};
}

/* A name does not say which network it leads to; the peer's view of this node does. */
hv_contact_source hv_contact_source_initial(const hv_addr *at, const hv_addr *you) {
  int is_name = at->kind != HV_ADDR_IP4 && at->kind != HV_ADDR_IP6;
  hv_contact_source source = hv_contact_source_at(at);
  if (is_name)
    source = hv_contact_source_join(source, hv_contact_source_at(you));
  source.is_initial = 1;
  return source;
}

hv_contact_source hv_contact_source_join(hv_contact_source a, hv_contact_source b) {
  return (hv_contact_source){a.is_private | b.is_private, a.is_loopback | b.is_loopback, a.is_initial | b.is_initial};
}

hv_contact_source hv_contact_source_of(hv_span packed) {
  hv_addr addrs[HV_CARD_ADDRS_MAX];
  hv_contact_source source = {0};
  size_t n = hv_contact_unpack(packed, addrs, HV_CARD_ADDRS_MAX);
  for (size_t i = 0; i < n; i++)
    source = hv_contact_source_join(source, hv_contact_source_at(&addrs[i]));
  return source;
}

int hv_contact_may_dial(const hv_addr *addr, hv_contact_source source) {
  if (addr->kind == HV_ADDR_NONE || hv_addr_is_unspecified(addr))
    return 0;
  if (hv_addr_is_loopback(addr))
    return source.is_loopback;
  if (hv_addr_is_private(addr))
    return source.is_private;
  return addr->kind == HV_ADDR_IP4 || addr->kind == HV_ADDR_IP6 || source.is_initial;
}

void hv_contact_keep_card(hv_card *card, hv_contact_source source) {
  uint8_t n = 0;
  for (uint8_t i = 0; i < card->n_addrs; i++)
    if (hv_contact_may_dial(&card->addrs[i], source)) {
      if (n < i)
        card->addrs[n] = card->addrs[i];
      n++;
    }
  card->n_addrs = n;
}

size_t hv_contact_keep(hv_span packed, hv_contact_source source, uint8_t out[HV_CONTACT_ADDRS_MAX]) {
  hv_addr addrs[HV_CARD_ADDRS_MAX];
  size_t n = packed.size > HV_CONTACT_ADDRS_MAX ? 0 : hv_contact_unpack(packed, addrs, HV_CARD_ADDRS_MAX), kept = 0;
  for (size_t i = 0; i < n; i++)
    if (hv_contact_may_dial(&addrs[i], source))
      addrs[kept++] = addrs[i];
  return hv_contact_pack(addrs, kept, out);
}
