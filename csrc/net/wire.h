/* Encoding and decoding of messages: hv_msg to and from protobuf, within a memory budget.
 *
 * Room: net (uses core/msg). The only file that includes protobuf-c. proto/hivemind.proto is the format (docs/design/wire.md).
 * Thread: pure functions; any thread.
 * Limits: no byte that is read is trusted. Counts and sizes are checked before memory is allocated, the decoder uses one block of a
 * size known in advance, and unknown fields are dropped. A decoded message satisfies the limits of msg.h.
 */
#ifndef HV_NET_WIRE_H
#define HV_NET_WIRE_H

#include "core/msg.h"
#include "core/versions.h"

/* Appends a message to out, written in this version. speaks: what this node speaks, for the first message of each side of a call or
 * stream; NULL: not told. HV_TOO_LARGE: over a limit of msg.h. HV_INVALID, HV_NOMEM. */
hv_status hv_wire_write(const hv_msg *msg, uint32_t version, const hv_versions *speaks, hv_buf *out);

/* A decoded message and its memory. */
typedef struct hv_wire_msg {
  hv_msg msg;
  uint32_t version;   /* in which it is written; this and `speaks` are set also with HV_VERSION */
  hv_versions speaks; /* what the sender says that it speaks: valid, and `version` is one of them */
  void *block;        /* the memory, freed by hv_wire_release */
} hv_wire_msg;

/* Decodes all of bytes, if they are written in one of the versions in `reads`, with at most `budget` bytes from mem. On HV_OK the
 * caller calls hv_wire_release; spans in the message may point into bytes; addresses that cannot be parsed are omitted. HV_VERSION:
 * another protocol version, so the rest was not read. HV_UNSUPPORTED: an unknown kind of message. HV_MALFORMED, HV_BUDGET,
 * HV_NOMEM. */
hv_status hv_wire_read(hv_span bytes, const hv_versions *reads, hv_mem *mem, size_t budget, hv_wire_msg *out);
void hv_wire_release(hv_wire_msg *msg);

/* Appends a message that hv_wire_write has written, written anew in another version. HV_NOMEM. */
hv_status hv_wire_translate(hv_span bytes, uint32_t version, const hv_versions *speaks, hv_mem *mem, hv_buf *out);

/* A bulk message on a stream is the size of the header (4 bytes, little endian), the header (encoded by hv_wire_write), and the raw
 * payload. hv_wire_write_bulk appends the first two. hv_wire_bulk_header reads the size of the header; HV_MALFORMED: over the
 * limit.
 */
hv_status hv_wire_write_bulk(const hv_msg *header, uint32_t version, const hv_versions *speaks, hv_buf *out);
hv_status hv_wire_bulk_header(const uint8_t first[4], size_t *header_size);

/* A memory budget in bytes that suffices for any well-formed message. */
#define HV_WIRE_BUDGET (8u << 20)

#endif
