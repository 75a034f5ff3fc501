/* The speed of a member's link, measured by the owners that receive its first chunks, and by the member from all that arrives.
 *
 * Room: core; depends on no other module. reducer measures each sender and sends it the result once; allreduce combines the results
 * that this member received; average keeps them from round to round; match sends them to the host, which divides the spans by them.
 * Owner: each struct is its caller's.
 * Thread: any; plain values.
 * Limits: one owner's measurement counts up to HV_GAUGE_TIMES the usual one, so a false one cannot inflate a span.
 * Links faster than HV_GAUGE_MOST count as equal.
 * Rules: docs/design/round.md, "The speed of a member's link".
 */
#ifndef HV_CORE_GAUGE_H
#define HV_CORE_GAUGE_H

#include <stddef.h>
#include <stdint.h>

#define HV_GAUGE_CHUNKS 16u       /* chunks measured per sender and owner: the owner's window, and those that may wait behind it */
#define HV_GAUGE_SKIP 4           /* chunks ignored at first, while connections are still finding their speed */
#define HV_GAUGE_LEAST (1u << 17) /* bytes; fewer measure round trips, not the link */
#define HV_GAUGE_MOST 125000000u  /* bytes per second */
#define HV_GAUGE_TIMES 4
#define HV_GAUGE_SPAN                                                                                                              \
  24u /* chunks of the smallest span whose owner counts arrivals; those of the owner's window arrive unanswered */

/* One owner's measurement of one sender. */
typedef struct hv_gauge {
  uint64_t since_us, last_us, bytes; /* times of the first and last chunk measured; bytes in between */
  unsigned skipped;                  /* chunks ignored so far */
} hv_gauge;

/* Counts a chunk that has just arrived. Chunks that arrive while now_us does not move had been waiting, and are not measured. */
void hv_gauge_saw(hv_gauge *gauge, uint64_t now_us, uint64_t bytes);
/* Bytes per second; 0: too little was measured. */
uint64_t hv_gauge_rate(const hv_gauge *gauge);

/* Bytes per second of a member's link, from the measurements of n owners (0: none). 0: no owner has measured it. */
uint64_t hv_gauge_link(const uint64_t *rates, size_t n);
/* Bytes per second of a link that the owners measured as `link` (0: not known) and over which `arrived` bytes per second came to a
 * member with a span of `count` chunks. */
uint64_t hv_gauge_seen(uint64_t link, uint64_t arrived, uint32_t count);
/* The new estimate from the new measurement and the one before (0: not known). */
uint64_t hv_gauge_blend(uint64_t before, uint64_t seen);

/* For the host: evens out the rates of a group in place. A member nearly as fast as the usual one gets the usual rate, and no rate
 * exceeds HV_GAUGE_TIMES the usual one. Rates of 0 (not known) stay. */
void hv_gauge_settle(uint64_t *rates, size_t n);

#endif
