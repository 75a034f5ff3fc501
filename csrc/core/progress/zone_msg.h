/* The bytes of one progress message: the sender's own epoch, and the sums of several zones.
 *
 * Room: core (uses sum). Pure functions on values that the caller owns.
 * Thread: any.
 * Limits: HV_ZONE_SUMS_MAX sums, HV_ZONE_MSG_BYTES_MAX bytes.
 * Errors: HV_MALFORMED for a stranger's bytes.
 * Terms: the zone of depth d around a node is the contributors whose hash (SHA-256 of the peer ID) begins with the same d bits as
 * the node's. The half of level i is the other part of the zone of depth i: hashes that share exactly i bits with the node's.
 * Rules: docs/design/progress.md, "Zones" and "Bytes of a progress message".
 */
#ifndef HV_CORE_ZONE_MSG_H
#define HV_CORE_ZONE_MSG_H

#include "core/progress/sum.h"

#define HV_ZONE_SUMS_MAX 9 /* in a message */
#define HV_ZONE_ASKED 31   /* the level that marks the sum of the zone that the question is about */
#define HV_ZONE_CLIENTS 30 /* the level that marks, for one in client mode, the sum of the others in client mode in its leaf */

typedef struct hv_zone_sum {
  unsigned level; /* number of leading bits that the hashes of this half share with the sender's; or one of these marks */
  hv_sum sum;
} hv_zone_sum;

typedef struct hv_zone_msg {
  uint64_t epoch; /* the sender's own, if in_one */
  int in_one;     /* 1: the sender is in an epoch */
  size_t n;
  hv_zone_sum sums[HV_ZONE_SUMS_MAX];
} hv_zone_msg;

/* Writes a message and returns its bytes. Sums for which there is no room are dropped, the last ones first. */
size_t hv_zone_msg_pack(const hv_zone_msg *msg, uint8_t out[HV_ZONE_MSG_BYTES_MAX]);
/* Reads a message. HV_MALFORMED: the bytes are no message, a number is beyond its limit, or numbers contradict each other. */
hv_status hv_zone_msg_unpack(hv_span bytes, hv_zone_msg *out);

#endif
