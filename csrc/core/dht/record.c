#include "core/dht/record.h"

#include <string.h>

static const char mark[] = "[owner:";
enum { MARK = sizeof mark - 1, PEER_TEXT = 52, SIGNED_MAX = 32 + 1 + 4 + HV_RECORD_KEY_MAX + 32 + 8 + 4, KEEPING = 256 };

static hv_status read_marks(hv_span text, hv_peer_id *owner) {
  const uint8_t *at = text.data, *end = at + text.size;
  while (at && (at = memmem(at, (size_t)(end - at), mark, MARK)) != NULL) {
    hv_peer_id named;
    at += MARK;
    if (end - at <= PEER_TEXT || at[PEER_TEXT] != ']' || hv_peer_parse(hv_span_of(at, PEER_TEXT), &named, NULL) != HV_OK)
      return HV_DENIED;
    if (hv_peer_is_known(owner) && !hv_peer_equal(owner, &named))
      return HV_DENIED;
    *owner = named;
    at += PEER_TEXT + 1;
  }
  return HV_OK;
}

hv_status hv_record_owner(hv_span key, hv_span subkey, hv_peer_id *out) {
  *out = (hv_peer_id){{0}};
  hv_status status = read_marks(key, out);
  return status == HV_OK ? read_marks(subkey, out) : status;
}

static hv_status check_sizes(const hv_record *record, hv_error *err) {
  if (record->key.size > HV_RECORD_KEY_MAX)
    return hv_fail(err, HV_TOO_LARGE, "the key has %zu bytes, and the limit is %d: choose a shorter key", record->key.size,
                   HV_RECORD_KEY_MAX);
  if (record->subkey.size > HV_RECORD_KEY_MAX)
    return hv_fail(err, HV_TOO_LARGE, "the subkey has %zu bytes, and the limit is %d: choose a shorter subkey", record->subkey.size,
                   HV_RECORD_KEY_MAX);
  if (record->value.size > HV_RECORD_VALUE_MAX)
    return hv_fail(err, HV_TOO_LARGE, "the value has %zu bytes, and the limit of one record is %u: split it into subkeys",
                   record->value.size, HV_RECORD_VALUE_MAX);
  return HV_OK;
}

hv_status hv_record_check(const hv_record *record, hv_error *err) {
  hv_peer_id owner;
  hv_status status = check_sizes(record, err);
  if (status != HV_OK)
    return status;
  if (record->ttl_ms == 0)
    return hv_fail(err, HV_INVALID, "the record has expired already: give an expiration in the future");
  if (!record->has_subkey && record->subkey.size)
    return hv_fail(err, HV_INVALID, "the record is inconsistent: it has a subkey, and its flag denies that");
  if (hv_record_owner(record->key, record->subkey, &owner) != HV_OK)
    return hv_fail(
        err, HV_DENIED,
        "cannot determine the record's owner: the [owner:...] mark in its key or subkey names no peer, or several; name one peer");
  if (!hv_peer_equal(&owner, &record->signer))
    return hv_fail(err, HV_DENIED,
                   hv_peer_is_known(&owner) ? "the record is not signed by the owner that its key or subkey names"
                                            : "the record is signed, and neither its key nor its subkey names an owner");
  if (hv_peer_is_known(&owner) && (record->version == 0 || record->ttl_ms > record->lease_ms))
    return hv_fail(err, HV_INVALID, "the record is inconsistent: it would outlive its owner's signature, or has no version");
  return HV_OK;
}

static hv_span record_signed_bytes(hv_env *env, const hv_hash *place, const hv_record *record, uint8_t out[SIGNED_MAX]) {
  uint8_t *at = out;
  hv_hash value;
  env->sha256(env, record->value, &value);
  memcpy(at, place->bytes, 32);
  at[32] = record->has_subkey != 0;
  hv_le_put(at + 33, record->subkey.size, 4);
  at += 37;
  if (record->subkey.size)
    memcpy(at, record->subkey.data, record->subkey.size);
  at += record->subkey.size;
  memcpy(at, value.bytes, 32);
  hv_le_put(at + 32, record->version, 8);
  hv_le_put(at + 40, record->lease_ms, 4);
  return hv_span_of(out, (size_t)(at + 44 - out));
}

hv_status hv_record_sign(hv_env *env, const hv_peer_id *me, const hv_hash *place, hv_record *record) {
  uint8_t said[SIGNED_MAX];
  if (record->subkey.size > HV_RECORD_KEY_MAX)
    return HV_TOO_LARGE;
  record->signer = *me;
  return env->sign(env, HV_RECORD_DOMAIN, record_signed_bytes(env, place, record, said), record->signature);
}

int hv_record_verify(hv_env *env, const hv_hash *place, const hv_record *record) {
  uint8_t said[SIGNED_MAX];
  return record->subkey.size <= HV_RECORD_KEY_MAX &&
         env->verify(env, &record->signer, HV_RECORD_DOMAIN, record_signed_bytes(env, place, record, said), record->signature);
}

size_t hv_record_size(const hv_record *record) {
  return record->key.size + record->subkey.size + record->value.size + KEEPING;
}
