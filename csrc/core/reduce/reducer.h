/* The owner's side of a span: it receives the contributors' chunks and sends all of them the same average.
 *
 * Room: core (uses env, round, view, run, gauge, kern, kept).
 * Owner: allreduce, one for each view.
 * Thread: the hive thread, with jobs on the pool.
 * Limits: 8 chunks are open at a time, each with an accumulator and an encoded chunk; later contributions wait in the stream.
 * Errors: hv_reducer_status.
 * Terms: a view is the set of members that work together; a round begins a new one if an owner is lost. The hold notes which
 * averages this member has. Both are in core/agree/view.h.
 * Rules: docs/design/round.md, "An owner and its span".
 */
#ifndef HV_CORE_REDUCER_H
#define HV_CORE_REDUCER_H

#include "core/agree/view.h"
#include "core/reduce/kept.h"
#include "core/round/pace.h"

typedef struct hv_reducer hv_reducer;

/* A reducer for the span of round->me in this view. `changed(arg)` is called within steps when hv_reducer_done or _over may have
 * become true. round, view, hold, kept (NULL: no average is kept) and pace are borrowed until it is over. HV_NOMEM: nothing
 * to free. */
hv_status hv_reducer_new(hv_env *env, const hv_round *round, const hv_view *view, hv_hold *hold, hv_kept *kept, hv_pace *pace,
                         void (*changed)(void *arg), void *arg, hv_reducer **out);
/* Frees it, when it is over or its world has crashed. NULL is fine. */
void hv_reducer_free(hv_reducer *reducer);

/* Begins the work; call it once. */
void hv_reducer_start(hv_reducer *reducer);
/* A member opened its stream (the caller has checked the member). Accepts it, or leaves stream->on NULL: the member has one already
 * or was left out, or its list of lacking chunks is invalid. */
void hv_reducer_opened(hv_reducer *reducer, const hv_msg_share *share, hv_stream *stream);
/* A member has ended: its further chunks are not waited for; those that have arrived count. */
void hv_reducer_gone(hv_reducer *reducer, size_t member);
/* Breaks the reducer off: it is over soon. */
void hv_reducer_cancel(hv_reducer *reducer);

/* True if every chunk of the span has been averaged or has no average, or the reducer failed. The round's buffers are no longer
 * used. */
int hv_reducer_done(const hv_reducer *reducer);
/* True if it is done and serves no member any more: it may be freed. */
int hv_reducer_over(const hv_reducer *reducer);
/* HV_OK, or the reason of the failure: HV_CANCELLED, HV_NOMEM, HV_CLOSED (the member that was to forward a chunk is lost, or all
 * that were to contribute to one are). */
hv_status hv_reducer_status(const hv_reducer *reducer);
/* After HV_CLOSED: index of the member that was to forward a chunk, or HV_ROUND_MEMBERS_MAX. */
size_t hv_reducer_lost(const hv_reducer *reducer);
/* True if hv_reducer_lost counts as lost because its copy was false. */
int hv_reducer_lied(const hv_reducer *reducer);
/* True if an average that it made travels narrow. */
int hv_reducer_narrow(const hv_reducer *reducer);
/* True if this member's contribution is or was waited for without success, and no message has come from it on any stream for more
 * than a third of the patience (core/round/pace.h). */
int hv_reducer_quiet(const hv_reducer *reducer, size_t member);

#endif
