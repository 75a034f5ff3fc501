/* Who reduces which span? Shares of one flat run of chunks, by bandwidth.
 *
 * Room: core (uses base). Pure; asked by a group's leader, who tells the others the outcome: nobody computes it twice.
 *
 * In a butterfly all-reduce a member that contributes sends everything but its own span once, and the owner of a span sends its
 * average to every other contributor. With C contributors, a volume V and a share f, a member's link carries V (1 - f) + V f (C -
 * 1) each way (an auxiliary peer: V f C; a client: V). The slowest link ends the round, so shares are such that all links that own
 * something end together, and a member too slow for that owns nothing: the least time T with sum of f(T) >= 1, found by bisection.
 * With one or two contributors an own span costs nothing, so they own everything, by speed.
 */
#ifndef HV_CORE_PARTITION_H
#define HV_CORE_PARTITION_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct hv_partition_member {
  double bandwidth;    /* bytes per second, in any unit all share; not finite or <= 0: not known, taken as the others' median */
  uint8_t owns;        /* 0: client mode, owns no span */
  uint8_t contributes; /* 0: auxiliary, has nothing to average */
  /* out */
  double share;
  uint32_t first, count; /* chunks; spans follow each other in the members' order */
} hv_partition_member;

/* Divides n_chunks among n members. HV_INVALID: no members; HV_STATE: nobody may own anything. Spans cover every chunk exactly
 * once; a span differs from its exact share by less than one chunk. */
hv_status hv_partition(hv_partition_member *members, size_t n, uint32_t n_chunks);

#endif
