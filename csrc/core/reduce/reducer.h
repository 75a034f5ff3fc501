/* Who averages a span? Its owner: takes every contributor's chunks, and gives all of them the same average.
 *
 * Room: core (uses env, round, view, run, gauge, kern). Owned by allreduce, for one view; the hive thread, with jobs on the pool.
 * At most WINDOW items are open. A contribution is accumulated on arrival, straight from the received parts, whole or not at all;
 * one for a chunk beyond the window is held, and what is held keeps its sender back. When all who are expected are in, the
 * average is encoded once, decoded here from its own bytes, entered into the hold, and the same bytes go to everybody who lacks
 * it. A chunk makes way when all have it. A chunk that somebody holds already is not averaged: the holder's copy goes to those who
 * lack it. What this member would average with itself alone, as all others are gone that were to give, is not averaged: it fails. A
 * contributor that breaks off (and for an eighth of stall_ms no other view is told of), or holds the others up for
 * too long (core/round/pace; stall_ms at most, in which this node did not stand still itself), is left out from then on. Who was
 * sent everything holds nobody up: over a slow line that takes its time, and its stream stays until it ends. While an owner has
 * nothing to send it says that it is there, so that its silence tells. One whose weight, values or order are refused is listened to
 * no more, but still gets the averages. A chunk to which nobody contributed has no average, and all are told so. In the first view
 * each sender is told how fast its first chunks came (core/round/gauge). Memory: WINDOW accumulators and encoded chunks, and the
 * windows of the streams.
 */
#ifndef HV_CORE_REDUCER_H
#define HV_CORE_REDUCER_H

#include "core/agree/view.h"
#include "core/round/pace.h"

typedef struct hv_reducer hv_reducer;

/* For the row of round->me. `changed(arg)` is called from within steps when hv_reducer_done or _over may have become true.
 * round, view, hold and pace are borrowed until it is over. HV_NOMEM. */
hv_status hv_reducer_new(hv_env *env, const hv_round *round, const hv_view *view, hv_hold *hold, hv_pace *pace,
                         void (*changed)(void *arg), void *arg, hv_reducer **out);
/* When it is over, or its world is dead. NULL is fine. */
void hv_reducer_free(hv_reducer *reducer);

void hv_reducer_start(hv_reducer *reducer);
/* A member opened its stream (checked to be that member). Takes it on, or leaves stream->on NULL: it is here or left out already,
 * or what it says it lacks makes no sense. */
void hv_reducer_opened(hv_reducer *reducer, const hv_msg_share *share, hv_stream *stream);
/* A member has ended: it is not waited for. What it gave before counts. */
void hv_reducer_gone(hv_reducer *reducer, size_t member);
/* Breaks it off: it is over soon. */
void hv_reducer_cancel(hv_reducer *reducer);

/* 1 when this member has its own: every chunk of the row is settled here, or it failed; the round's buffers are not touched any
 * more. */
int hv_reducer_done(const hv_reducer *reducer);
/* 1 when also nobody is being served any more: it may be freed. */
int hv_reducer_over(const hv_reducer *reducer);
/* HV_OK, or why it failed: HV_CANCELLED, HV_NOMEM, HV_CLOSED (who was to forward a chunk is lost, or all who were to give one:
 * hv_reducer_lost). */
hv_status hv_reducer_status(const hv_reducer *reducer);
/* Who that is, or HV_ROUND_MEMBERS_MAX. */
size_t hv_reducer_lost(const hv_reducer *reducer);
/* 1: because what that one sent was false. */
int hv_reducer_lied(const hv_reducer *reducer);
/* 1 when this member's contribution is waited for, or was in vain, and nothing has come from it, on this or any other stream, for
 * more than a third of what is too long. */
int hv_reducer_quiet(const hv_reducer *reducer, size_t member);

#endif
