/* How does a member's share get to the owner of a span, and the averages back? One stream, both ways.
 *
 * Room: core (uses env, round, view, kern). Owned by allreduce, for one view; the hive thread, with jobs on the pool.
 * Encodes chunk after chunk, each while the one before is on its way, as fast as the stream takes them; decodes the averages as
 * they come, straight from the received parts, two at a time, and enters them into the hold. Received bytes are held until they
 * are decoded, which holds the owner back. A chunk is overwritten only after what was to be sent of it has been encoded. An average
 * that this member has already and that others lack is sent as it is, encoded within the step: the pool reads nothing of a member
 * that has told its outcome. An owner from whom nothing moves for twice stall_ms is given up (once stall_ms it may be waiting for
 * somebody else), one that says nothing at all, not even that it is there, after three quarters of what core/round/pace has for too
 * long (the last quarter is the coordinator's, who asks it). The time in which this node itself stood still does not count.
 */
#ifndef HV_CORE_SHARE_H
#define HV_CORE_SHARE_H

#include "core/agree/view.h"
#include "core/round/pace.h"

typedef struct hv_share hv_share;

/* (A chunk whose values are not finite is said to be left out: a chunk without payload.)
 *
 * For the row of member `owner`. `changed(arg)` is called from within steps when hv_share_done or _over may have become true.
 * round, view, hold and pace are borrowed until it is over. HV_NOMEM. */
hv_status hv_share_new(hv_env *env, const hv_round *round, const hv_view *view, hv_hold *hold, hv_pace *pace, size_t owner,
                       void (*changed)(void *arg), void *arg, hv_share **out);
/* When it is over, or its world is dead. NULL is fine. */
void hv_share_free(hv_share *share);

void hv_share_start(hv_share *share);
void hv_share_cancel(hv_share *share);
/* The owner has ended: what has not come from it will not come. */
void hv_share_gone(hv_share *share);

/* 1 when all that was to be sent is sent and all that was lacking is settled, or it failed: the round's buffers are not touched any
 * more. */
int hv_share_done(const hv_share *share);
/* 1 when its stream has ended too: it may be freed. */
int hv_share_over(const hv_share *share);
/* HV_OK, or why not all of this row came. */
hv_status hv_share_status(const hv_share *share);
/* 1: that is because what the owner said was false: broken chunks, or chunks of which it said, and no other owner before it, that
 * nobody's values count, though this member gave its own. */
int hv_share_lied(const hv_share *share);
/* 1: that is because the owner, which was there, broke off its stream itself, or refused it: so it lives, and may have stopped for
 * a view of which this member was not told yet. */
int hv_share_stopped(const hv_share *share);
/* How fast this member's first chunks came to the owner, as that says: bytes per second; 0: it has not said so. */
uint64_t hv_share_rate(const hv_share *share);
/* 1 when the owner is there as far as is known, but has been silent for three eighths of what is too long. */
int hv_share_quiet(const hv_share *share);

#endif
