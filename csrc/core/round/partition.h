/* The division of a round's chunks into one span for each member, by bandwidth.
 *
 * Room: core (uses base). Called by a group's leader, which sends the result to the others.
 * Thread: any; pure.
 * Limits: a span differs from its exact share by less than one chunk.
 * Rules: docs/design/round.md, "The spans".
 */
#ifndef HV_CORE_PARTITION_H
#define HV_CORE_PARTITION_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct hv_partition_member {
  double bandwidth;    /* in one unit for all members; not finite or <= 0: not known, replaced by the others' median */
  uint8_t owns;        /* 0: client mode, owns no span */
  uint8_t contributes; /* 0: auxiliary, has nothing to average */
  uint32_t most;       /* most chunks that it may own, at least half of all where it is limited; 0: all */
  /* out */
  double share;          /* exact part of all chunks, 0 to 1 */
  uint32_t first, count; /* its span in chunks; spans follow each other in the members' order */
} hv_partition_member;

/* Divides n_chunks among n members; the spans cover every chunk exactly once. HV_INVALID: no members; HV_STATE: no member may own
 * a span. */
hv_status hv_partition(hv_partition_member *members, size_t n, uint32_t n_chunks);

/* Numbers of members, by which one member may own everything or not. */
typedef struct hv_partition_crowd {
  size_t owners, contributors, both; /* that can own; that contribute; that do both */
} hv_partition_crowd;
#define HV_PARTITION_MOST 0.75 /* of the chunks that one member may own, if enough others can own some */
/* Most chunks that one member of a group may own: HV_PARTITION_MOST of n_chunks, rounded up, if two others can own and at least
 * half as many can own as contribute; else all. */
uint32_t hv_partition_most(const hv_partition_crowd *crowd, uint32_t n_chunks);

#endif
