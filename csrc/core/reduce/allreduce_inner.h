/* One round as the allreduce*.c files see it.
 *
 * Room: core (uses allreduce, council, reducer, share, kept). Private to the allreduce*.c files: allreduce.c is the round and calls
 * the other two; allreduce_early.c keeps streams that are early; allreduce_gone.c finds members that have ended. Owner and thread:
 * those of allreduce.h.
 */
#ifndef HV_CORE_ALLREDUCE_INNER_H
#define HV_CORE_ALLREDUCE_INNER_H

#include "core/agree/council.h"
#include "core/reduce/allreduce.h"
#include "core/reduce/reducer.h"
#include "core/reduce/share.h"

/* The work of one view. A round has at most one that is not broken off. */
typedef struct turn {
  struct turn *next;
  hv_view *view;
  hv_reducer *reducer;
  hv_share **shares; /* one for each member; NULL for this member and for those that own no span */
} turn;

struct hv_allreduce {
  hv_allreduce *next, **link;
  hv_allreduce_registry *registry;
  hv_env *env;
  hv_round round;
  hv_round_member *members; /* the round's */
  hv_allreduce_done *done;
  void *arg;
  hv_hold hold;
  hv_kept *kept; /* NULL: no average is kept */
  hv_pace pace;
  hv_council *council; /* NULL when alone */
  turn *present;       /* NULL between two views */
  turn *past;          /* turns that were broken off and are not over yet */
  uint32_t view;
  hv_members suspects, silent, liars; /* members reported to the council in this view */
  hv_members gone;                    /* members that have ended */
  hv_status status;                   /* not HV_OK: the round ends with this status */
  int begun, stopping, reported, given_up, lingers;
  uint64_t begun_us;
  hv_timer look;     /* checks the progress, in a step of its own */
  hv_timer sentry;   /* looks for silent members */
  hv_timer deadline; /* until done: of the round; then: of the lingering */
};

/* ---- allreduce_early.c ---- */
/* The round of this id, or NULL. */
hv_allreduce *allreduce_find(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]);
/* The round id in a stream's first message (HV_MSG_SHARE or HV_MSG_ATTEND), borrowed from it. */
const uint8_t *allreduce_round_of(const hv_msg *first);
/* True if the stream is for a later view than the round's present one. */
int allreduce_is_early(const hv_allreduce *self, const hv_msg *first);
/* Lets the stream of an OPENED event wait for its round or view, or leaves stream->on NULL. */
void allreduce_early_opened(hv_allreduce_registry *registry, const hv_event *event);
/* Passes all waiting streams of this round that are no longer early to `admit`, then their messages to the streams' new owners. */
typedef void allreduce_admit(hv_allreduce *self, const hv_msg *first, hv_stream *stream);
void allreduce_early_admit(hv_allreduce *self, allreduce_admit *admit);
/* Longest time that a stream has waited here for this round; 0: none waits. */
uint64_t allreduce_early_waited_us(const hv_allreduce *self);
/* Fires for registry->sweep: refuses streams that have waited for too long, or whose round never begins here. */
void allreduce_early_sweep(hv_timer *timer, const hv_event *event);
void allreduce_early_fini(hv_allreduce_registry *registry);

/* ---- allreduce_gone.c ---- */
/* The present view stops waiting for members that have ended. */
void allreduce_lose_the_gone(hv_allreduce *self);
/* Of `sentry`: a member that is silent and answers no hello is waited for only once in a round. */
void allreduce_look_for_the_silent(hv_timer *sentry, const hv_event *event);
/* When the round begins: marks members that have ended before, or announced that they do not come. */
void allreduce_look_for_the_gone(hv_allreduce *self);

#endif
