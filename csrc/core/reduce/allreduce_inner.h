/* One round as allreduce.c and allreduce_gone.c see it.
 *
 * Room: core (uses allreduce, council, reducer, share). Private to those two files: allreduce.c is the round,
 * allreduce_gone.c finds members that have ended.
 * Owner and thread: those of allreduce.h.
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
  hv_pace pace;
  hv_council *council; /* NULL when alone */
  turn *present;       /* NULL between two views */
  turn *past;          /* turns that were broken off and are not over yet */
  uint32_t view;
  hv_members suspects, silent, liars; /* members reported to the council in this view */
  hv_members gone;                    /* members that have ended */
  hv_status status;                   /* not HV_OK: the round ends with this status */
  int begun, stopping, told, given_up, lingers;
  uint64_t begun_us;
  hv_timer look;     /* checks the progress, in a step of its own */
  hv_timer sentry;   /* looks for silent members */
  hv_timer deadline; /* until done: of the round; then: of the lingering */
};

/* The round of this id, or NULL. */
hv_allreduce *allreduce_find(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]);

/* ---- allreduce_gone.c ---- */
/* The present view stops waiting for members that have ended. */
void allreduce_lose_the_gone(hv_allreduce *self);
/* Of `sentry`: a member that is silent and answers no hello is waited for only once in a round. */
void allreduce_look_for_the_silent(hv_timer *sentry, const hv_event *event);
/* When the round begins: marks members that have ended before, or announced that they do not come. */
void allreduce_look_for_the_gone(hv_allreduce *self);

#endif
