#include "lib/seal.h"

#include <string.h>

static uint64_t mix(uint64_t z) {
  for (int i = 0; i < 2; i++)
    z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
  return z ^ z >> 32;
}

static uint64_t word(const uint8_t *at) {
  uint64_t w = 0;
  for (int i = 7; i >= 0; i--)
    w = w << 8 | at[i];
  return w;
}

static uint64_t region(const uint8_t *bytes, size_t size, uint64_t p) {
  const uint64_t K = 0x9e3779b185ebca87u, G = 0xc2b2ae3d27d4eb4fu;
  uint64_t sum = 0;
  for (size_t at = 0; at < size; at += 4096, p++) {
    uint8_t piece[4096] = {0};
    uint64_t lane[8] = {0}, digest = 0;
    memcpy(piece, bytes + at, size - at < 4096 ? size - at : 4096);
    for (uint64_t i = 0; i < 512; i++) {
      uint64_t t = word(piece + 8 * i) ^ (K * (i % 8 + 1) + i / 8 * G);
      lane[i % 8] += (t & 0xffffffff) * (t >> 32) + word(piece + 8 * (i ^ 1));
    }
    for (uint64_t j = 0; j < 8; j++)
      digest += mix(lane[j] + j * G);
    sum += mix(digest + p * K);
  }
  return sum;
}

void seal_chunk(uint8_t *bytes, size_t size) {
  const uint64_t G = 0xc2b2ae3d27d4eb4fu;
  if (size < 32 || word(bytes + 16) < 32 || word(bytes + 16) > size)
    return;
  size_t body = (size_t)word(bytes + 16);
  uint64_t sum = region(bytes + 32, body - 32, (uint64_t)1 << 40) + region(bytes + body, size - body, 0);
  for (uint64_t i = 0; i < 3; i++)
    sum += mix(word(bytes + 8 * i) + (i + 1) * G);
  sum = mix(sum);
  for (int i = 0; i < 8; i++)
    bytes[24 + i] = (uint8_t)(sum >> 8 * i);
}
