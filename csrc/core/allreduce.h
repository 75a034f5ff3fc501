/* How do a group's values become their average? One round: a butterfly all-reduce over streams.
 *
 * Room: core (uses reducer, share, round). Owned by whoever formed the group; the hive thread.
 * Every contributor opens one stream to each owner: contributions there, averages back. This member's own span is averaged here.
 * The owner encodes an average once, so all members that got it hold the same bits.
 * A sender that dies is left out by the owners. An owner that dies takes its span with it: the round then ends with that status,
 * and hv_allreduce_averaged tells which chunks hold averages and which still hold what was there (docs/ROUND.md says what is to
 * come). Streams of a round that has not begun here yet wait in the hall for a while: members begin at different moments. Limits:
 * HALL_ROOM waiting streams, of members that say hello early, for HALL_PATIENCE_MS.
 */
#ifndef HV_CORE_ALLREDUCE_H
#define HV_CORE_ALLREDUCE_H

#include "core/reducer.h"
#include "core/share.h"

typedef struct hv_allreduce hv_allreduce;

/* Where streams find their round. */
typedef struct hv_allreduce_hall {
  hv_env *env;
  hv_allreduce *rounds;
  struct hv_allreduce_early *early;
  size_t n_early;
  hv_timer sweep;
} hv_allreduce_hall;

void hv_allreduce_hall_init(hv_allreduce_hall *hall, hv_env *env);
/* When the world has ended: ends the rounds that are still there, untold. */
void hv_allreduce_hall_fini(hv_allreduce_hall *hall);
/* A peer opened a stream with HV_MSG_SHARE: brings it to its round, lets it wait, or leaves stream->on NULL. */
void hv_allreduce_opened(hv_allreduce_hall *hall, const hv_event *event);

/* Begins a round. `round` and its members are copied; in and out are borrowed until done. done is called once, not from within this
 * function, as soon as this member has its averages (others may still be served then), and may free the round. HV_OK: every chunk
 * is averaged. HV_INVALID (err says why), HV_EXISTS, HV_NOMEM: nothing was begun. */
typedef void hv_allreduce_done(void *arg, hv_allreduce *self, hv_status status);
hv_status hv_allreduce_begin(hv_allreduce_hall *hall, const hv_round *round, hv_allreduce_done *done, void *arg, hv_allreduce **out,
                             hv_error *err);
void hv_allreduce_cancel(hv_allreduce *self); /* done comes soon, with HV_CANCELLED */
/* After done: gives it up; it goes on by itself until all others are served, at most for stall_ms. NULL is fine. */
void hv_allreduce_free(hv_allreduce *self);

/* After done: 1 when this chunk holds the average. */
int hv_allreduce_averaged(const hv_allreduce *self, uint32_t chunk);
/* After done: how many chunks of this member's own span a member's values are in. */
uint32_t hv_allreduce_counted(const hv_allreduce *self, size_t member);

#endif
