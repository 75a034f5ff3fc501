/* Bytes: whose are they, and how many?
 *
 * Room: base (uses mem, status). A span borrows; a buf owns and grows; a payload is counted and travels.
 * Threads: spans and bufs belong to one thread at a time. A payload's count is atomic: it may be kept,
 * read and released on any thread; its bytes never change once it is shared.
 */
#ifndef HV_BASE_BUF_H
#define HV_BASE_BUF_H

#include "base/mem.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes: somebody else keeps them alive. */
typedef struct hv_span {
  const uint8_t *data;
  size_t size;
} hv_span;

static inline hv_span hv_span_of(const void *data, size_t size) {
  return (hv_span){(const uint8_t *)data, size};
}

/* A number as its lowest `bytes` bytes, the lowest first: the same on every machine. */
static inline void hv_le_put(uint8_t *to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    to[i] = (uint8_t)(value >> 8 * i);
}
static inline uint64_t hv_le_get(const uint8_t *from, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++)
    value |= (uint64_t)from[i] << 8 * i;
  return value;
}

/* 1 when both hold the same bytes. */
int hv_span_equal(hv_span a, hv_span b);

/* Writes the bytes into out as a sentence may quote them, and returns out: whatever is not printable ASCII becomes '?',
 * and what is too long ends in "...". */
#define HV_QUOTE_MAX 64
const char *hv_span_quote(hv_span text, char out[HV_QUOTE_MAX]);

/* Owned bytes that grow, up to a limit set at the start. */
typedef struct hv_buf {
  hv_mem *mem;
  uint8_t *data;
  size_t size, room, limit;
} hv_buf;

void hv_buf_init(hv_buf *buf, hv_mem *mem, size_t limit);
void hv_buf_fini(hv_buf *buf);

/* Appends a copy. HV_TOO_LARGE over the limit, HV_NOMEM; the buf is as before then. */
hv_status hv_buf_append(hv_buf *buf, const void *data, size_t size);

/* Makes room for size more bytes; *at (given out, borrowed from buf) is where they go; add them by buf->size += n. */
hv_status hv_buf_reserve(hv_buf *buf, size_t size, uint8_t **at);

/* Bulk bytes in one or several parts, shared by counting: made by whoever has the bytes, released by the last holder.
 * Born with one reference. `free` is called once, on the thread of the last release, and owns the struct itself too. */
typedef struct hv_payload hv_payload;
struct hv_payload {
  atomic_uint refs;
  size_t size; /* of all parts together */
  size_t n_parts;
  const hv_span *parts; /* lives as long as the payload */
  void (*free)(hv_payload *self);
  void *owner; /* the maker's */
};

void hv_payload_init(hv_payload *payload, const hv_span *parts, size_t n_parts, void (*free)(hv_payload *), void *owner);

/* A payload of one part with a copy of the bytes (64-byte aligned). NULL: no memory. */
hv_payload *hv_payload_copy(hv_mem *mem, const void *data, size_t size);

/* A payload of one part that borrows the bytes; `done` (may be NULL) is called once when the last holder lets go. NULL: no memory.
 */
hv_payload *hv_payload_borrow(hv_mem *mem, const void *data, size_t size, void (*done)(void *arg), void *arg);

/* A part of another one, `size` bytes from `offset` on (both within it); several of mem's as one, in their order. They hold on to
 * what they are made of, and copy nothing. NULL: no memory. */
hv_payload *hv_payload_cut(hv_mem *mem, hv_payload *whole, size_t offset, size_t size);
hv_payload *hv_payload_join(hv_mem *mem, hv_payload *const *pieces, size_t n);

hv_payload *hv_payload_keep(hv_payload *payload);
void hv_payload_release(hv_payload *payload); /* NULL is fine */

/* Copies up to size bytes that start at offset into out; returns how many there were. */
size_t hv_payload_read(const hv_payload *payload, size_t offset, void *out, size_t size);

#endif
