/* How does a member's share get to the owner of a span, and the averages back? One stream, both ways.
 *
 * Room: core (uses env, round, kern). Owned by allreduce; the hive thread, with jobs on the pool.
 * Encodes chunk after chunk, each while the one before is on its way, as fast as the stream takes them; decodes the averages as
 * they come, straight from the received parts, two at a time. Received bytes are held until they are decoded, which holds the owner
 * back. An owner from whom nothing moves for twice stall_ms is given up (once stall_ms it may be waiting for somebody else).
 */
#ifndef HV_CORE_SHARE_H
#define HV_CORE_SHARE_H

#include "core/round.h"

typedef struct hv_share hv_share;

/* For the span of member `owner`. `changed(arg)` is called from within steps when hv_share_done or _over may have become true.
 * HV_NOMEM. */
hv_status hv_share_new(hv_env *env, const hv_round *round, size_t owner, void (*changed)(void *arg), void *arg, hv_share **out);
/* When it is over, or its world is dead. NULL is fine. */
void hv_share_free(hv_share *share);

void hv_share_start(hv_share *share);
void hv_share_cancel(hv_share *share);

/* 1 when all averages are in place, or it failed: the round's buffers are not touched any more. */
int hv_share_done(const hv_share *share);
/* 1 when its stream has ended too: it may be freed. */
int hv_share_over(const hv_share *share);
/* HV_OK, or why not all averages of this span came. */
hv_status hv_share_status(const hv_share *share);
/* Once it is done: 1 when this chunk of the span (from 0) holds its average, else it holds what was there. */
int hv_share_averaged(const hv_share *share, uint32_t chunk);

#endif
