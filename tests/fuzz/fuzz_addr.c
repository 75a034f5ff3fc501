/* Any bytes that read as an address, from text or from packed bytes, prints and packs and comes back equal. */
#include "core/addr.h"

#include <stdlib.h>
#include <string.h>

static void must(int right) {
  if (!right)
    abort();
}

static void comes_back(const hv_addr *addr, const hv_peer_id *peer) {
  char text[HV_ADDR_TEXT_MAX], brief[HV_ADDR_TEXT_MAX];
  uint8_t packed[HV_ADDR_PACKED_MAX];
  hv_addr again;
  hv_peer_id peer_again;
  hv_addr_print(addr, peer, text);
  must(hv_addr_parse(hv_span_of(text, strlen(text)), &again, &peer_again, NULL) == HV_OK);
  must(memcmp(addr, &again, sizeof again) == 0 && hv_addr_equal(addr, &again) && hv_peer_equal(peer, &peer_again));
  size_t size = hv_addr_pack(addr, packed);
  must(size > 0 && size <= HV_ADDR_PACKED_MAX && hv_addr_unpack(hv_span_of(packed, size), &again) == HV_OK);
  must(memcmp(addr, &again, sizeof again) == 0);
  hv_addr_print_short(addr, brief);
  must(hv_addr_parse(hv_span_of(brief, strlen(brief)), &again, NULL, NULL) == HV_OK && again.port == addr->port);
  must(!hv_addr_is_loopback(addr) || hv_addr_is_private(addr));
  must(!hv_addr_is_unspecified(addr) || !hv_addr_is_private(addr));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_addr addr;
  hv_peer_id peer, nobody = {{0}};
  hv_error err = {0};
  hv_status status = hv_addr_parse(hv_span_of(data, size), &addr, &peer, &err);
  must(status == HV_OK || ((status == HV_MALFORMED || status == HV_UNSUPPORTED) && err.status == status && err.text[0]));
  for (const char *c = err.text; *c; c++)
    must(*c >= 0x20 && *c < 0x7f);
  if (status == HV_OK)
    comes_back(&addr, &peer);
  status = hv_addr_unpack(hv_span_of(data, size), &addr);
  must(status == HV_OK || status == HV_MALFORMED || status == HV_UNSUPPORTED);
  if (status == HV_OK)
    comes_back(&addr, &nobody);
  return 0;
}
