/* The facts of a round that is over: its members, what of their values is in its averages, and which of the five outcomes it has.
 * No other place reads a status of `average` for core/epoch, and no program judges members.
 *
 * Room: core (uses average, epoch, gift, word). Pure, apart from env's sha256.
 * Owner: the caller, of all values. Thread: any.
 */
#ifndef HV_CORE_EPOCH_FACTS_H
#define HV_CORE_EPOCH_FACTS_H

#include "core/average/average.h"
#include "core/epoch/epoch.h"
#include "core/state/gift.h"

/* A round as averagers tell of it. */
typedef struct hv_epoch_round {
  hv_epoch_which which;
  hv_status status;
  /* Its averagings, one after another in one group; most rounds have one. None: they say no more than the status and has_group. */
  const hv_average_outcome *parts;
  size_t n_parts;
  int has_group;     /* 1: there was a group, though the round may have failed */
  int is_given_up;   /* its search was to end, as nobody was left who could come */
  int has_replica;   /* this peer; one without a replica has no averages, so it does not know what others have lost */
  int counts_others; /* a hub: it counts several trainers, so the word of one that says it is by itself may be false */
  /* Of the state: 1: all that was averaged was this replica, to the bit. After a failure: as hv_epoch_event.ok. */
  int alike;
} hv_epoch_round;

typedef struct hv_epoch_facts {
  hv_epoch_outcome outcome;
  size_t n_members;
  size_t n_trainers; /* of these: with a replica */
  size_t n_lost;     /* of these: not with all of their values in the averages */
  int is_whole;      /* 1: of each trainer all values or none are in them */
  double share;      /* the part of this peer's values that is in them: of several averages the least */
  uint64_t stamp;    /* 0: this peer's averages are nobody else's */
} hv_epoch_facts;

/* members: memory for HV_EPOCH_MEMBERS, which are set with their words. */
hv_epoch_facts hv_epoch_facts_of(const hv_epoch_round *round, hv_lineage_member *members);
/* The machine's event of that round; it borrows the members. */
hv_epoch_event hv_epoch_round_event(const hv_epoch_round *round, const hv_epoch_facts *facts, const hv_lineage_member *members);

/* To whom the giver of a group sends its state: the hubs of the group, which wait for it under a ticket that all members know. */
typedef struct hv_epoch_gift {
  hv_peer_id hubs[HV_GIFT_HUBS];
  size_t n;
  uint8_t ticket[HV_GIFT_TICKET];
} hv_epoch_gift;

/* epoch: the one that the group ended. */
hv_epoch_gift hv_epoch_gift_of(hv_env *env, uint64_t epoch, const hv_lineage_member *members, size_t n);

#endif
