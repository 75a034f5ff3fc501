/* How fast is a member's line? What owners see of a sender's first chunks, and what the sender makes of it.
 *
 * Room: core (knows nothing). reducer has a gauge for each sender and tells it, once, what it saw; allreduce puts together what
 * this member was told; average keeps it from round to round, and match tells it to the host, who divides spans by it. Pure values.
 * Only the first chunks count (but not the very first): they come as fast as the sender's line allows. Later all are held back to
 * the pace of the slowest, and what a whole round shows of a line is nothing but the span that its member was given. All owners are
 * sent to at once, so their rates add up to the line. Limits: what an owner says counts up to HV_GAUGE_TIMES the usual of what
 * owners say, so that one that lies cannot give a member a span beyond its line; a line faster than HV_GAUGE_MOST is not what
 * limits a round, and all such are alike.
 */
#ifndef HV_CORE_GAUGE_H
#define HV_CORE_GAUGE_H

#include <stddef.h>
#include <stdint.h>

#define HV_GAUGE_CHUNKS 16u       /* of each sender to each owner: an owner's window, and what may wait unread behind it */
#define HV_GAUGE_SKIP 4           /* of them: what came while connections were still finding their speed */
#define HV_GAUGE_LEAST (1u << 17) /* bytes; fewer tell of round trips, not of a line */
#define HV_GAUGE_MOST 125000000u  /* bytes per second */
#define HV_GAUGE_TIMES 4

typedef struct hv_gauge {
  uint64_t since_us, last_us, bytes;
  unsigned skipped;
} hv_gauge;

/* A chunk of so many bytes came. What came before the clock moved lay ready, and tells nothing. */
void hv_gauge_saw(hv_gauge *gauge, uint64_t now_us, uint64_t bytes);
/* Bytes per second; 0: too little was seen. */
uint64_t hv_gauge_rate(const hv_gauge *gauge);

/* A member's line, from what owners told it (0: nothing). 0: nobody told it anything. */
uint64_t hv_gauge_line(const uint64_t *rates, size_t n);
/* What it is taken for from now on: `before` (0: not known) was stated or seen earlier. */
uint64_t hv_gauge_blend(uint64_t before, uint64_t seen);

/* The host's: who is nearly as fast as the usual member is taken to be just as fast, and nobody counts for more than HV_GAUGE_TIMES
 * of that. Rates of 0 (not known) stay. */
void hv_gauge_settle(uint64_t *rates, size_t n);

#endif
