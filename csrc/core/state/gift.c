#include "core/state/gift.h"

#include <string.h>

enum { VERSION = 1, GIVER_AT = 1, TICKET_AT = GIVER_AT + 32, NUMBERS_AT = TICKET_AT + HV_GIFT_TICKET };

size_t hv_gift_key(hv_span prefix, uint8_t out[HV_GIFT_KEY_MAX]) {
  memcpy(out, prefix.data, prefix.size);
  memcpy(out + prefix.size, HV_GIFT_SUFFIX, sizeof HV_GIFT_SUFFIX - 1);
  return prefix.size + sizeof HV_GIFT_SUFFIX - 1;
}

void hv_gift_request_write(const hv_gift_request *request, uint8_t out[HV_GIFT_REQUEST_SIZE]) {
  out[0] = VERSION;
  memcpy(out + GIVER_AT, request->giver.key, sizeof request->giver.key);
  memcpy(out + TICKET_AT, request->ticket, HV_GIFT_TICKET);
  hv_le_put(out + NUMBERS_AT, request->least, 8);
  hv_le_put(out + NUMBERS_AT + 8, request->every, 8);
  hv_le_put(out + NUMBERS_AT + 16, request->size_max, 8);
}

hv_status hv_gift_request_read(hv_span bytes, hv_gift_request *out) {
  if (bytes.size && bytes.data[0] != VERSION)
    return HV_VERSION;
  if (bytes.size != HV_GIFT_REQUEST_SIZE)
    return HV_MALFORMED;
  memcpy(out->giver.key, bytes.data + GIVER_AT, sizeof out->giver.key);
  memcpy(out->ticket, bytes.data + TICKET_AT, HV_GIFT_TICKET);
  out->least = hv_le_get(bytes.data + NUMBERS_AT, 8);
  out->every = hv_le_get(bytes.data + NUMBERS_AT + 8, 8);
  out->size_max = hv_le_get(bytes.data + NUMBERS_AT + 16, 8);
  return HV_OK;
}

int hv_gift_request_find(const hv_record *records, size_t n, const hv_peer_id *giver, hv_gift_request *out) {
  hv_peer_id before = out->hub;
  int found = 0;
  for (size_t i = 0; i < n; i++) {
    char subkey[HV_BALLOT_SUBKEY_MAX];
    const hv_record *record = &records[i];
    hv_gift_request request = {.hub = record->signer};
    size_t size = hv_ballot_subkey(&record->signer, subkey);
    if (!record->has_subkey || !hv_peer_is_known(&record->signer) || !hv_span_equal(record->subkey, hv_span_of(subkey, size)) ||
        hv_gift_request_read(record->value, &request) != HV_OK || !hv_peer_equal(&request.giver, giver))
      continue;
    if (!found || hv_peer_equal(&request.hub, &before))
      *out = request;
    found = 1;
  }
  return found;
}
