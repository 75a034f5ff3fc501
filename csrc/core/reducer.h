/* Who averages a span? Its owner: takes every contributor's chunks, and gives all of them the same average.
 *
 * Room: core (uses env, round, run, kern). Owned by allreduce; the hive thread, with jobs on the pool.
 * At most WINDOW chunks are open. A contribution is accumulated on arrival, straight from the received parts, whole or not at all;
 * one for a chunk beyond the window is held, and what is held keeps its sender back. When all who are expected are in, the
 * average is encoded once, decoded here from its own bytes, and the same bytes go to everybody. A chunk makes way when all have it.
 * A contributor that breaks off, or holds the others up for stall_ms, is left out from then on; one whose chunk is refused (not
 * finite, corrupt, out of order) too. `counted` tells how many chunks of each member are in the averages. Memory: WINDOW
 * accumulators and encoded chunks, and the windows of the streams.
 */
#ifndef HV_CORE_REDUCER_H
#define HV_CORE_REDUCER_H

#include "core/round.h"

typedef struct hv_reducer hv_reducer;

/* For the span of round->me. `changed(arg)` is called from within steps when hv_reducer_done or _over may have become true.
 * HV_NOMEM. */
hv_status hv_reducer_new(hv_env *env, const hv_round *round, void (*changed)(void *arg), void *arg, hv_reducer **out);
/* When it is over, or its world is dead. NULL is fine. */
void hv_reducer_free(hv_reducer *reducer);

void hv_reducer_start(hv_reducer *reducer);
/* A contributor opened its stream (checked to be that member), and told its weight. Takes it on, or leaves stream->on NULL: it is
 * here or left out already, or its weight is refused. */
void hv_reducer_opened(hv_reducer *reducer, size_t member, float weight, hv_stream *stream);
/* Breaks it off: it is over soon. */
void hv_reducer_cancel(hv_reducer *reducer);

/* 1 when this member has its own: every chunk is averaged here, or it failed; the round's buffers are not touched any more. */
int hv_reducer_done(const hv_reducer *reducer);
/* 1 when also nobody is being served any more: it may be freed. */
int hv_reducer_over(const hv_reducer *reducer);
/* HV_OK, or why it failed: HV_CANCELLED, HV_NOMEM, HV_CLOSED (a chunk to which nobody contributed). */
hv_status hv_reducer_status(const hv_reducer *reducer);
/* How many chunks of this span a member's values are in. */
uint32_t hv_reducer_counted(const hv_reducer *reducer, size_t member);

#endif
