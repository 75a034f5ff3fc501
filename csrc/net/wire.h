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

/* Appends a message to out, with the protocol version. HV_TOO_LARGE: over a limit of msg.h. HV_INVALID, HV_NOMEM. */
hv_status hv_wire_write(const hv_msg *msg, hv_buf *out);

/* A decoded message and its memory. */
typedef struct hv_wire_msg {
  hv_msg msg;
  uint32_t version; /* protocol version of the sender; set also with HV_VERSION */
  void *block;      /* the memory, freed by hv_wire_release */
} hv_wire_msg;

/* Decodes all of bytes, with at most `budget` bytes from mem. On HV_OK the caller calls hv_wire_release; spans in the message may
 * point into bytes; addresses that cannot be parsed are omitted. HV_VERSION: another protocol version, so the rest was not read.
 * HV_UNSUPPORTED: an unknown kind of message. HV_MALFORMED, HV_BUDGET, HV_NOMEM. */
hv_status hv_wire_read(hv_span bytes, hv_mem *mem, size_t budget, hv_wire_msg *out);
void hv_wire_release(hv_wire_msg *msg);

/* A bulk message on a stream is the size of the header (4 bytes, little endian), the header (encoded by hv_wire_write), and the raw
 * payload. hv_wire_write_bulk appends the first two. hv_wire_bulk_header reads the size of the header; HV_MALFORMED: over the
 * limit.
 */
hv_status hv_wire_write_bulk(const hv_msg *header, hv_buf *out);
hv_status hv_wire_bulk_header(const uint8_t first[4], size_t *header_size);

/* A memory budget in bytes that suffices for any well-formed message. */
#define HV_WIRE_BUDGET (8u << 20)

#endif
