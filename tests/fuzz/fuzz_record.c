/* Owner marks in keys and packed addresses, as strangers send them. The first byte says where the key ends and the subkey begins.
 * The oracle reads marks in its own slow way; addresses that unpack must pack again to what unpacks the same. */
#include "core/dht/record.h"
#include "core/peers/contact.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

/* 0: no mark from here on; 1: a whole one, named in *out; -1: one that cannot be read. */
static int mark_at(const uint8_t *at, size_t left, hv_peer_id *out) {
  static const char lead[] = "[owner:";
  for (size_t i = 0; lead[i]; i++)
    if (i >= left || at[i] != (uint8_t)lead[i])
      return 0;
  size_t end = 7;
  while (end < left && at[end] != ']')
    end++;
  return end < left && hv_peer_parse(hv_span_of(at + 7, end - 7), out, NULL) == HV_OK ? 1 : -1;
}

static hv_status slowly(hv_span key, hv_span subkey, hv_peer_id *owner) {
  hv_span both[2] = {key, subkey};
  int any = 0, bad = 0;
  for (int s = 0; s < 2; s++)
    for (size_t i = 0; i < both[s].size; i++) {
      hv_peer_id named;
      int mark = mark_at(both[s].data + i, both[s].size - i, &named);
      bad |= mark < 0 || (mark > 0 && any && !hv_peer_equal(&named, owner));
      if (mark > 0 && !any) {
        *owner = named;
        any = 1;
      }
    }
  if (!any)
    *owner = (hv_peer_id){{0}};
  return bad ? HV_DENIED : HV_OK;
}

static void marks(hv_span key, hv_span subkey) {
  hv_peer_id fast, slow = {{0}};
  hv_status status = hv_record_owner(key, subkey, &fast);
  must(status == slowly(key, subkey, &slow));
  must(status != HV_OK || hv_peer_equal(&fast, &slow));
}

static void addresses(hv_span packed) {
  hv_addr addrs[16], again[16];
  uint8_t out[HV_CONTACT_ADDRS_MAX];
  size_t n = hv_contact_unpack(packed, addrs, 16);
  must(n <= 16);
  for (size_t i = 0; i < n; i++)
    hv_contact_network(&addrs[i]);
  size_t size = hv_contact_pack(addrs, n, out);
  must(size <= sizeof out);
  size_t m = hv_contact_unpack(hv_span_of(out, size), again, 16);
  must(m <= n && (m == n || packed.size > HV_CONTACT_ADDRS_MAX));
  for (size_t i = 0; m == n && i < n; i++)
    must(hv_addr_equal(&addrs[i], &again[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  uint8_t *copy = malloc(size); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  memcpy(copy, data, size);
  size_t left = size - 1, cut = left ? copy[0] % (left + 1) : 0;
  marks(hv_span_of(copy + 1, cut), hv_span_of(copy + 1 + cut, left - cut));
  addresses(hv_span_of(copy + 1, left));
  free(copy);
  return 0;
}
