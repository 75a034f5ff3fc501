/* A contributor's side of one span: its chunks go to the span's owner, and the averages come back on the same stream.
 *
 * Room: core (uses env, round, view, kern, kept).
 * Owner: allreduce, one for each owner in each view.
 * Thread: the hive thread, with jobs on the pool.
 * Limits: one chunk is encoded while another is sent; two averages are decoded at a time.
 * Received bytes are kept until they are decoded, so the owner must wait.
 * Errors: hv_share_status.
 * Terms: a view is the set of members that work together; a round begins a new one if an owner is lost. The hold notes which
 * averages this member has. Both are in core/agree/view.h.
 * Rules: docs/design/round.md, "A contributor and an owner".
 */
#ifndef HV_CORE_SHARE_H
#define HV_CORE_SHARE_H

#include "core/agree/view.h"
#include "core/reduce/kept.h"
#include "core/round/pace.h"

typedef struct hv_share hv_share;

/* A share for the span of member `owner` in this view. `changed(arg)` is called within steps when hv_share_done or _over may have
 * become true. round, view, hold, kept (NULL: no average is kept) and pace are borrowed until it is over. HV_NOMEM: nothing to
 * free. */
hv_status hv_share_new(hv_env *env, const hv_round *round, const hv_view *view, hv_hold *hold, hv_kept *kept, hv_pace *pace,
                       size_t owner, void (*changed)(void *arg), void *arg, hv_share **out);
/* Frees it, when it is over or its world has crashed. NULL is fine. */
void hv_share_free(hv_share *share);

/* Begins the work; call it once. */
void hv_share_start(hv_share *share);
/* Breaks the share off: it is over soon. */
void hv_share_cancel(hv_share *share);
/* The owner has ended: no further averages are expected. */
void hv_share_gone(hv_share *share);

/* True if all chunks are sent and all lacking averages are settled, or the share failed. The round's buffers are no longer used. */
int hv_share_done(const hv_share *share);
/* True if its stream has ended, too: it may be freed. */
int hv_share_over(const hv_share *share);
/* HV_OK, or the reason why averages of this span are missing. */
hv_status hv_share_status(const hv_share *share);
/* True if it failed because the owner's messages were false: broken chunks, or a first report that a chunk has no contributions,
 * although this member sent its own. */
int hv_share_lied(const hv_share *share);
/* True if an average of this span came under its narrow codec. */
int hv_share_narrow(const hv_share *share);
/* True if it failed because the owner broke off the stream or refused it. The owner lives, and may have stopped for a new view that
 * this member does not know yet. */
int hv_share_stopped(const hv_share *share);
/* Bytes per second of this member's first chunks, as the owner measured them; 0: not reported. */
uint64_t hv_share_rate(const hv_share *share);
/* True if the stream to the owner is open, but the owner has been silent for three eighths of the patience (core/round/pace.h). */
int hv_share_quiet(const hv_share *share);

#endif
