#include "core/epoch/word.h"

#include <string.h>

enum { LIST_OF_TWO = 0x92, BYTES = 0xc4, UNSIGNED = 0xcc, SIGNED = 0xd0, HEAD = 3 + HV_MARK_SIZE };

/* In `size` bytes, the highest first. */
static void put(uint8_t *out, uint64_t number, size_t size) {
  for (size_t i = 0; i < size; i++)
    out[i] = (uint8_t)(number >> 8 * (size - 1 - i));
}

static uint64_t get(const uint8_t *bytes, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; i++)
    number = number << 8 | bytes[i];
  return number;
}

static size_t write_number(int64_t number, uint8_t *out) {
  uint8_t log2 = 0;
  if (number >= -32 && number < 128) {
    out[0] = (uint8_t)number;
    return 1;
  }
  if (number >= 0)
    while (log2 < 3 && (uint64_t)number >> (8 << log2))
      log2++;
  else
    while (log2 < 3 && number < -(INT64_C(1) << ((8 << log2) - 1)))
      log2++;
  out[0] = (uint8_t)((number >= 0 ? UNSIGNED : SIGNED) + log2);
  put(out + 1, (uint64_t)number, (size_t)1 << log2);
  return 1 + ((size_t)1 << log2);
}

static int read_number(const uint8_t *bytes, size_t size, int64_t *out) {
  uint8_t kind = bytes[0];
  if (kind < 0x80 || kind >= 0xe0) {
    *out = (int8_t)kind;
    return size == 1;
  }
  if (kind < UNSIGNED || kind >= SIGNED + 4)
    return 0;
  size_t width = (size_t)1 << (kind & 3);
  if (size != 1 + width)
    return 0;
  uint64_t number = get(bytes + 1, width), sign = UINT64_C(1) << (8 * width - 1);
  if (kind < SIGNED) {
    *out = (int64_t)number;
    return number <= INT64_MAX;
  }
  *out = (int64_t)((number ^ sign) - sign);
  return 1;
}

size_t hv_word_write(const hv_word *word, uint8_t out[HV_WORD_MAX]) {
  out[0] = LIST_OF_TWO;
  out[1] = BYTES;
  out[2] = HV_MARK_SIZE;
  memcpy(out + 3, word->mark.bytes, HV_MARK_SIZE);
  return HEAD + write_number(word->rank, out + HEAD);
}

int hv_word_read(hv_span bytes, hv_word *out) {
  const uint8_t *b = bytes.data;
  if (bytes.size <= HEAD || b[0] != LIST_OF_TWO || b[1] != BYTES || b[2] != HV_MARK_SIZE)
    return 0;
  memcpy(out->mark.bytes, b + 3, HV_MARK_SIZE);
  return read_number(b + HEAD, bytes.size - HEAD, &out->rank);
}
