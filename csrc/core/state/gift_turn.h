/* The choice of a giver: which trainer a hub asks for its state, when it can dial none, and when it asks another.
 *
 * Room: core (uses gift). A pure state machine: the caller passes the time and a random number.
 * Owner: the caller's struct, all zeros at first. Used by taker.
 * Thread: any, one at a time.
 * Limits: HV_GIFT_FAILED givers that gave nothing are remembered, as many whose state is too large, and HV_GIFT_RIGHT peers of the
 * latest round.
 * Rules: docs/design/hub.md, "States of trainers that nobody can dial", rules 4 and 5.
 */
#ifndef HV_CORE_GIFT_TURN_H
#define HV_CORE_GIFT_TURN_H

#include "core/state/gift.h"

/* A trainer of the run as it reports itself. */
typedef struct hv_gift_trainer {
  hv_peer_id id;
  int is_client; /* 1: it only dials out */
  uint64_t epoch;
} hv_gift_trainer;

/* The figures of a run as a hub knows them. */
typedef struct hv_gift_figures {
  const hv_gift_trainer *trainers;
  size_t n_trainers;
  uint64_t least;   /* oldest epoch of use; 0: any */
  int has_room;     /* 1: one more state fits into memory */
  uint64_t arrived; /* bytes of the state under way */
  uint64_t lot;     /* a random number */
} hv_gift_figures;

typedef struct hv_gift_turn {
  int is_asking;
  hv_peer_id giver; /* while is_asking */
  uint64_t given;   /* epoch of the state before, or of the giver when it was asked */
  uint64_t seen;    /* bytes of the state under way */
  /* When the giver was asked, when bytes came, when the first bytes of this state came (0: none), how long the giver rests, and
   * when no trainer was known to be ahead of it. */
  uint64_t asked_us, since_us, begun_us, rest_us, level_us;
  hv_peer_id failed[HV_GIFT_FAILED]; /* gave nothing, or rest, until no other is left; the oldest is overwritten */
  size_t n_failed;
  hv_peer_id large[HV_GIFT_FAILED]; /* have a state that is too large, until large_until_us; the oldest is overwritten */
  size_t n_large;
  uint64_t large_until_us;
  hv_peer_id right[HV_GIFT_RIGHT]; /* peers of the latest round that have the swarm's replica */
  size_t n_right;
} hv_gift_turn;

/* Looks at the figures: may end the turn of the present giver, as of one that rests for long, and may choose another. 1: another
 * one is asked now. */
int hv_gift_turn_look(hv_gift_turn *turn, uint64_t now_us, const hv_gift_figures *figures);
/* The words of a round: these have the swarm's replica (of more than HV_GIFT_RIGHT the first). giver (NULL: nobody): the one that
 * gives its state without a request, because others of the group lack it. */
void hv_gift_turn_met(hv_gift_turn *turn, uint64_t now_us, uint64_t epoch, const hv_peer_id *right, size_t n,
                      const hv_peer_id *giver);
/* The giver's state of this epoch has come whole. */
void hv_gift_turn_came(hv_gift_turn *turn, uint64_t now_us, uint64_t epoch);
/* The giver gave something of no use: it is not asked again until all others gave nothing. */
void hv_gift_turn_fail(hv_gift_turn *turn);
/* A peer has ended: what it did not give is forgotten, because it may come again with a state. */
void hv_gift_turn_gone(hv_gift_turn *turn, const hv_peer_id *id);
/* The giver's state is too large: it is not asked again for HV_GIFT_LARGE_MS, even if all others gave nothing, because a state of a
 * run does not shrink. True if no other giver is known to have such a state. */
int hv_gift_turn_large(hv_gift_turn *turn, uint64_t now_us);

#endif
