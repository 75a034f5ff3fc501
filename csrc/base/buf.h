/* Three kinds of bytes: a span (borrowed), a buf (owned, grows), and a payload (shared, counted).
 *
 * Room: base (uses mem, status).
 * Owner: the code that made a span's bytes keeps them alive; a buf belongs to one caller; a payload belongs to all its holders.
 * Thread: spans and bufs, one thread at a time. A payload may be kept, read and released on any thread: its count is atomic.
 * A payload's bytes never change once it is shared.
 */
#ifndef HV_BASE_BUF_H
#define HV_BASE_BUF_H

#include "base/mem.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes, which other code keeps alive. */
typedef struct hv_span {
  const uint8_t *data;
  size_t size;
} hv_span;

static inline hv_span hv_span_of(const void *data, size_t size) {
  return (hv_span){(const uint8_t *)data, size};
}

/* The lowest `bytes` bytes of a number in little-endian order. */
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

/* True if both hold the same bytes. */
int hv_span_equal(hv_span a, hv_span b);

/* Writes the bytes into out so that a sentence may quote them, and returns out. A byte that is not printable ASCII becomes '?';
 * text that is too long ends in "...". */
#define HV_QUOTE_MAX 64
const char *hv_span_quote(hv_span text, char out[HV_QUOTE_MAX]);

/* A growing array of bytes, with a limit. */
typedef struct hv_buf {
  hv_mem *mem;
  uint8_t *data;
  size_t size, room, limit;
} hv_buf;

void hv_buf_init(hv_buf *buf, hv_mem *mem, size_t limit);
void hv_buf_fini(hv_buf *buf);

/* Appends a copy of the bytes. HV_TOO_LARGE (over the limit) or HV_NOMEM: the buf is as before. */
hv_status hv_buf_append(hv_buf *buf, const void *data, size_t size);

/* Allocates room for size more bytes at *at. The caller writes n of them and then adds n to buf->size. Errors as for
 * hv_buf_append. */
hv_status hv_buf_reserve(hv_buf *buf, size_t size, uint8_t **at);

/* Reference-counted bytes in one or several parts. A new payload has one reference. The last release calls `free` on its thread,
 * which frees the struct, too. */
typedef struct hv_payload hv_payload;
struct hv_payload {
  atomic_uint refs;
  size_t size; /* of all parts together */
  size_t n_parts;
  const hv_span *parts; /* lives as long as the payload */
  void (*free)(hv_payload *self);
  void *owner; /* for `free` */
};

/* Fills in a payload with one reference. The parts and their bytes are borrowed until `free`. */
void hv_payload_init(hv_payload *payload, const hv_span *parts, size_t n_parts, void (*free)(hv_payload *), void *owner);

/* A payload of one part with a copy of the bytes (64-byte aligned). NULL: no memory. */
hv_payload *hv_payload_copy(hv_mem *mem, const void *data, size_t size);

/* A payload of one part that borrows the bytes. `done` (may be NULL) is called once, at the last release. NULL: no memory. */
hv_payload *hv_payload_borrow(hv_mem *mem, const void *data, size_t size, void (*done)(void *arg), void *arg);

/* A payload of `size` bytes of `whole` from `offset` on; both must lie within it. It keeps `whole` and copies nothing.
 * NULL: no memory. */
hv_payload *hv_payload_cut(hv_mem *mem, hv_payload *whole, size_t offset, size_t size);
/* A payload of all n pieces, in their order. It keeps them and copies nothing. NULL: no memory. */
hv_payload *hv_payload_join(hv_mem *mem, hv_payload *const *pieces, size_t n);

/* Adds a reference, and returns the payload. */
hv_payload *hv_payload_keep(hv_payload *payload);
/* Gives one reference back. NULL is fine. */
void hv_payload_release(hv_payload *payload);

/* Copies up to size bytes from offset to out, and returns their number. */
size_t hv_payload_read(const hv_payload *payload, size_t offset, void *out, size_t size);

#endif
