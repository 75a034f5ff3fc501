/* One round as allreduce.c and allreduce_gone.c see it: for them alone.
 *
 * Room: core (uses allreduce, council, reducer, share). A turn is what one view does; a round has at most one that goes on.
 */
#ifndef HV_CORE_ALLREDUCE_INNER_H
#define HV_CORE_ALLREDUCE_INNER_H

#include "core/agree/council.h"
#include "core/reduce/allreduce.h"
#include "core/reduce/reducer.h"
#include "core/reduce/share.h"

/* What one view does. */
typedef struct turn {
  struct turn *next;
  hv_view *view;
  hv_reducer *reducer;
  hv_share **shares; /* one for each member; NULL for those that own nothing, and this one */
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
  turn *past;          /* broken off, not over yet */
  uint32_t view;
  hv_members suspects, silent, liars; /* whom the council was told of, in this view */
  hv_members gone;                    /* those who have ended */
  hv_status status;                   /* not HV_OK: it ends with this */
  int begun, stopping, told, given_up, lingers;
  uint64_t begun_us;
  hv_timer look;     /* looks, in a step of its own, how far it is */
  hv_timer sentry;   /* looks for who is silent */
  hv_timer deadline; /* until done; then: of the lingering */
};

/* The round of this id, or NULL. */
hv_allreduce *allreduce_find(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]);

/* ---- allreduce_gone.c ---- */
/* What the present view waits for from members that are known to have ended does not come. */
void allreduce_lose_the_gone(hv_allreduce *self);
/* The sentry: the round waits once for a member that is silent here and does not answer hellos either. */
void allreduce_look_for_the_silent(hv_timer *sentry, const hv_event *event);
/* Once, when the round has begun: who had ended by then, or said that it does not come? */
void allreduce_look_for_the_gone(hv_allreduce *self);

#endif
