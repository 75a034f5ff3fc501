#include "core/peer.h"

#include <stdio.h>
#include <string.h>

/* An identity multihash (00) of 36 bytes (24): a protobuf with key type Ed25519 (08 01) and 32 bytes of key (12 20). */
static const uint8_t prefix[] = {0x00, 0x24, 0x08, 0x01, 0x12, 0x20};
static const char alphabet[] = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

enum { BYTES = sizeof prefix + 32, DIGITS = 52, BASE = 58 }; /* the prefix fixes the number of digits */

int hv_peer_is_known(const hv_peer_id *peer) {
  uint8_t any = 0;
  for (size_t i = 0; i < sizeof peer->key; i++)
    any |= peer->key[i];
  return any != 0;
}

int hv_peer_compare(const hv_peer_id *a, const hv_peer_id *b) {
  return memcmp(a->key, b->key, sizeof a->key);
}

/* The value of a character in base 58; BASE: it has none. */
static unsigned digit_of(uint8_t c) {
  static const uint8_t digits[128] = {
      /* one more than that; 0: nothing */
      0, 0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 0,
      0, 0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  0,  0, 0, 0, 0, 0,
      0, 10, 11, 12, 13, 14, 15, 16, 17, 0,  18, 19, 20, 21, 22, 0,  23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 0, 0, 0, 0, 0,
      0, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 0,  45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 0, 0, 0, 0, 0,
  };
  return c < sizeof digits && digits[c] ? digits[c] - 1u : BASE;
}

/* Five digits of base 58 at a time, over words of 32 bits: records name their owners, so this is done for each of them. */
enum { WORDS = (BYTES + 3) / 4, AT_A_TIME = 5, FIVE = BASE * BASE * BASE * BASE * BASE };

const char *hv_peer_print(const hv_peer_id *peer, char out[HV_PEER_TEXT_MAX]) {
  if (!hv_peer_is_known(peer))
    return strcpy(out, "(unknown)");
  uint8_t bytes[WORDS * 4] = {0}, *at = bytes + sizeof bytes - BYTES;
  uint32_t words[WORDS];
  memcpy(at, prefix, sizeof prefix);
  memcpy(at + sizeof prefix, peer->key, sizeof peer->key);
  for (size_t i = 0; i < WORDS; i++)
    words[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 | (uint32_t)bytes[4 * i + 2] << 8 | bytes[4 * i + 3];
  for (int digit = DIGITS; digit > 0;) { /* long division; the leading zero byte leaves the leading '1' */
    uint64_t rest = 0;
    for (size_t i = 0; i < WORDS; i++) {
      rest = rest << 32 | words[i];
      words[i] = (uint32_t)(rest / FIVE);
      rest %= FIVE;
    }
    for (int k = 0; k < AT_A_TIME && digit > 0; k++) {
      out[--digit] = alphabet[rest % BASE];
      rest /= BASE;
    }
  }
  out[DIGITS] = 0;
  return out;
}

/* 1: the digits fit into the bytes. */
static int from_base58(hv_span text, uint8_t bytes[BYTES]) {
  uint32_t words[WORDS] = {0};
  for (size_t digit = 0; digit < text.size;) {
    uint64_t scale = 1, carry = 0;
    for (int k = 0; k < AT_A_TIME && digit < text.size; k++) {
      carry = carry * BASE + digit_of(text.data[digit++]);
      scale *= BASE;
    }
    for (size_t i = WORDS; i-- > 0;) {
      carry += words[i] * scale;
      words[i] = (uint32_t)carry;
      carry >>= 32;
    }
    if (carry)
      return 0;
  }
  for (size_t i = 0; i < BYTES; i++) {
    size_t at = i + WORDS * 4 - BYTES;
    bytes[i] = (uint8_t)(words[at / 4] >> (24 - 8 * (at % 4)));
  }
  return words[0] >> (32 - 8 * (WORDS * 4 - BYTES)) == 0;
}

int hv_peer_is_weak(const hv_peer_id *peer) {
  static const uint8_t weak[][32] = {
      {0},
      {1},
      {0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
       0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05},
      {0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
       0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
  };
  uint8_t y[32], near_p = peer->key[0]; /* without the sign of x, which does not change the order */
  memcpy(y, peer->key, sizeof y);
  y[31] &= 0x7f;
  for (size_t i = 0; i < sizeof weak / sizeof *weak; i++)
    if (memcmp(y, weak[i], sizeof y) == 0)
      return 1;
  for (size_t i = 1; i < sizeof y; i++)
    if (y[i] != (i < 31 ? 0xff : 0x7f))
      return 0;
  return near_p >= 0xec && near_p <= 0xee; /* p - 1, and p and p + 1, which stand for 0 and 1 */
}

hv_status hv_peer_parse(hv_span text, hv_peer_id *out, hv_error *err) {
  char quote[HV_QUOTE_MAX];
  for (size_t i = 0; i < text.size; i++)
    if (digit_of(text.data[i]) == BASE) {
      char c[HV_QUOTE_MAX];
      return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                        "'%s' is not a peer ID: '%s' does not occur in base58; expected 12D3KooW and 44 more characters",
                        hv_span_quote(text, quote), hv_span_quote(hv_span_of(text.data + i, 1), c));
    }
  if (text.size >= 2 && memcmp(text.data, "Qm", 2) == 0)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' is the ID of an RSA key, and only Ed25519 is supported: expected an ID that begins with 12D3KooW",
                      hv_span_quote(text, quote));
  if (text.size != DIGITS)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' is not a peer ID: it has %zu characters; expected 52 that begin with 12D3KooW",
                      hv_span_quote(text, quote), text.size);
  uint8_t bytes[BYTES];
  if (!from_base58(text, bytes) || memcmp(bytes, prefix, sizeof prefix) != 0)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' is not the ID of an Ed25519 key: expected an ID that begins with 12D3KooW", hv_span_quote(text, quote));
  hv_peer_id peer;
  memcpy(peer.key, bytes + sizeof prefix, sizeof peer.key);
  if (hv_peer_is_weak(&peer))
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' is the ID of a key for which anybody can sign, so no peer can have it: check the ID",
                      hv_span_quote(text, quote));
  *out = peer;
  return HV_OK;
}

const char *hv_peer_short(const hv_peer_id *peer, char out[HV_PEER_SHORT_MAX]) {
  char text[HV_PEER_TEXT_MAX];
  hv_peer_print(peer, text);
  return strcpy(out, hv_peer_is_known(peer) ? text + DIGITS - 6 : text);
}

hv_hash hv_hash_distance(const hv_hash *a, const hv_hash *b) {
  hv_hash distance;
  for (size_t i = 0; i < sizeof distance.bytes; i++)
    distance.bytes[i] = a->bytes[i] ^ b->bytes[i];
  return distance;
}

int hv_hash_nearer(const hv_hash *target, const hv_hash *a, const hv_hash *b) {
  for (size_t i = 0; i < sizeof a->bytes; i++)
    if (a->bytes[i] != b->bytes[i]) /* the first byte in which they differ decides: no whole distances are needed */
      return (a->bytes[i] ^ target->bytes[i]) < (b->bytes[i] ^ target->bytes[i]) ? -1 : 1;
  return 0;
}

int hv_hash_shared_bits(const hv_hash *a, const hv_hash *b) {
  for (int i = 0; i < 32; i++) {
    unsigned differ = a->bytes[i] ^ b->bytes[i];
    if (differ)
      return i * 8 + __builtin_clz(differ) - 24;
  }
  return 256;
}
