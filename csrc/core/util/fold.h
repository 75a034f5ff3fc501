/* A small keyed hash for tables of keys that strangers send.
 *
 * Room: core; depends on no other module. A peer that does not know the salt cannot make keys that fall into one chain.
 * Thread: any; pure. Not for the wire: env.h's SHA-256 is for that.
 */
#ifndef HV_CORE_FOLD_H
#define HV_CORE_FOLD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Mixes two words into one: the two halves of their product, XORed. */
static inline uint64_t hv_fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The hash of `size` bytes under a salt. `seed` tells several hashes under one salt apart. */
static inline uint64_t hv_fold_bytes(const uint64_t salt[2], uint64_t seed, const void *bytes, size_t size) {
  uint64_t hash = salt[0] ^ hv_fold(seed ^ 0x9e3779b97f4a7c15u, size ^ salt[1]), word;
  const uint8_t *at = bytes;
  for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = hv_fold(hash ^ word, salt[1] | 1);
  }
  if (size) {
    word = 0;
    memcpy(&word, at, size);
    hash = hv_fold(hash ^ word, salt[1] | 1);
  }
  return hv_fold(hash, 0x9e3779b97f4a7c15u);
}

#endif
