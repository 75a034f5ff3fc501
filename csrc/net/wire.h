/* Messages as bytes: hv_msg to and from protobuf-c, under a memory budget.
 *
 * Room: net (uses core/msg). The only file that includes protobuf-c. proto/hivemind.proto is the format (docs/WIRE.md).
 * Thread: pure functions; any thread.
 * Limits: every byte read is hostile. Counts and sizes are bounded before memory is taken, the unpacker works in one block of a
 * size that is known beforehand, and unknown fields are dropped. A message that was read satisfies the limits of msg.h.
 */
#ifndef HV_NET_WIRE_H
#define HV_NET_WIRE_H

#include "core/msg.h"

/* Encodes a control message with the protocol version into buf (appended). HV_TOO_LARGE when a limit of msg.h is passed,
 * HV_INVALID for a message that cannot be said, HV_NOMEM. */
hv_status hv_wire_write(const hv_msg *msg, hv_buf *out);

/* A decoded message and the memory it stands on. */
typedef struct hv_wire_msg {
  hv_msg msg;
  uint32_t version; /* what the sender speaks (known also when the status is HV_VERSION) */
  void *block;      /* wire's */
} hv_wire_msg;

/* Decodes the whole of bytes; memory comes from mem, at most `budget` bytes of it. HV_MALFORMED, HV_VERSION (another protocol
 * version; nothing else of it is looked at), HV_UNSUPPORTED (this version, but a kind not known here), HV_BUDGET, HV_NOMEM. On
 * HV_OK give it back with hv_wire_release. Spans in the message may point into bytes. Addresses that cannot be read are left out.
 */
hv_status hv_wire_read(hv_span bytes, hv_mem *mem, size_t budget, hv_wire_msg *out);
void hv_wire_release(hv_wire_msg *msg);

/* A bulk message on a stream is: 4 bytes, little endian: size of the header; the header (as by hv_wire_write); the payload, raw.
 * hv_wire_write_bulk appends the first two. hv_wire_bulk_header tells from the first 4 bytes how long the header is (HV_MALFORMED
 * over the limit). */
hv_status hv_wire_write_bulk(const hv_msg *header, hv_buf *out);
hv_status hv_wire_bulk_header(const uint8_t first[4], size_t *header_size);

/* The budget that holds for any well-formed control message. */
#define HV_WIRE_BUDGET (8u << 20)

#endif
