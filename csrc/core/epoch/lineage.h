/* Which replica is the swarm's: marks of replicas, how they move, and the rule that the members of a group apply to them.
 *
 * Room: core (uses env, peer). Pure, apart from env's sha256: the same words give every member the same answer.
 * Owner: the caller, of all values. Thread: any.
 * Terms: a mark stands for the history of a replica: equal marks, equal states to the bit, where the arithmetic is the same.
 * A word is what a member gives to its group: its mark and a rank.
 * Errors: a function that moves a mark needs one that is known; a mark of lineage that is not kept never moves.
 * Rules: docs/design/lineage.md.
 */
#ifndef HV_CORE_EPOCH_LINEAGE_H
#define HV_CORE_EPOCH_LINEAGE_H

#include "core/env.h"
#include "core/peer.h"

#define HV_MARK_SIZE 16
#define HV_MARK_DIGITS 11 /* of a mark as numbers, each of HV_MARK_DIGIT_BITS */
#define HV_MARK_DIGIT_BITS 12
#define HV_RANK_WRONG (-1)                   /* of a replica that is known to be another than the swarm's */
#define HV_RANK_REACHABLE (INT64_C(1) << 48) /* added to the rank of a replica that joiners can download from its peer */
#define HV_RANK_MADE (INT64_C(1) << 49)      /* added to that of a replica that was made, and not only loaded */
#define HV_RANK_TELLS (INT64_C(1) << 50)     /* added by each peer that knows of HV_RANK_MADE */
/* Added by one that sought a group when it could meet hubs alone, which are company then (docs/design/lone-peers.md). It is no part
 * of the rank. */
#define HV_RANK_BY_ITSELF (INT64_C(1) << 51)
#define HV_LINEAGE_SAMPLES_MAX (HV_RANK_REACHABLE - 1)
#define HV_LINEAGE_MAKES 8 /* steps after which a replica that was loaded is made */

typedef struct hv_mark {
  uint8_t bytes[HV_MARK_SIZE];
} hv_mark;

typedef struct hv_word {
  hv_mark mark;
  int64_t rank; /* HV_RANK_WRONG, or the samples behind the last step and the bits above */
} hv_word;

/* A member of a group that has averaged. */
typedef struct hv_lineage_member {
  hv_peer_id peer;
  uint8_t is_client;    /* it only dials out */
  uint8_t is_auxiliary; /* it has no replica; one that can be dialled is a hub */
  uint8_t has_word;     /* 0: it gave none, or none that can be read */
  hv_word word;
} hv_lineage_member;

/* ---- the rule ---- */

typedef struct hv_lineage_view {
  uint8_t any;     /* 0: no member has a replica with a word, and the rest is 0 */
  hv_mark swarms;  /* mark of the swarm's replica */
  size_t n_words;  /* members with a replica and a word */
  size_t n_right;  /* those of them with the swarm's replica */
  uint8_t is_made; /* one of these has made it */
  /* The member that sends its state to the hubs, so that the others can load it. NULL: all have one replica, or a member that has
   * it can be dialled. */
  const hv_lineage_member *giver;
} hv_lineage_view;

/* Judges the words of all members, which are different peers, in any order. O(n^2), without memory. */
hv_lineage_view hv_lineage_view_of(const hv_lineage_member *members, size_t n);
/* True if this member has the swarm's replica. */
int hv_lineage_is_right(const hv_lineage_view *view, const hv_lineage_member *member);
/* The ticket of the state that the giver sends without a request. All members know it, and nobody else needs to be kept from it: it
 * tells blocks apart. epoch: the one that the group ended. */
void hv_lineage_ticket(hv_env *env, uint64_t epoch, const hv_lineage_member *members, size_t n, uint8_t out[HV_MARK_SIZE]);

/* ---- the mark of one peer's replica ---- */

typedef struct hv_lineage {
  hv_mark mark;         /* where is_known */
  uint64_t samples;     /* behind the last step */
  uint8_t is_known;     /* 0: the mark is a digest of the state that nobody has made yet; hv_lineage_begin takes it */
  uint8_t is_kept;      /* 0: replicas differ on purpose, and nobody asks */
  uint8_t is_wrong;     /* another replica is the swarm's, until its state is loaded */
  uint8_t is_reachable; /* joiners can download this replica from this peer */
  uint8_t was_loaded;   /* or restored; else it began here */
  uint8_t is_made;      /* this peer has stepped with others that have made it, or often enough by itself */
  uint8_t is_by_itself; /* the word says HV_RANK_BY_ITSELF */
  uint8_t steps;        /* since it began or was loaded, HV_LINEAGE_MAKES at most */
} hv_lineage;

void hv_lineage_init(hv_lineage *lineage);
/* The state as it is now, without a history: `digest` is that of its tensors. */
void hv_lineage_begin(hv_lineage *lineage, const hv_mark *digest);
/* The state was loaded or restored. mark: its own; NULL: it has none. */
void hv_lineage_restart(hv_lineage *lineage, const hv_mark *mark);

/* Another average is in the state. An average of what was alike changes no bit, and is no reason to call this. */
void hv_lineage_averaged(hv_lineage *lineage, hv_env *env, uint64_t stamp);
/* An average that failed, and of which others have other parts, or none, may have left some of its chunks in the state. moment_us:
 * of this peer's clock. */
void hv_lineage_averaged_in_part(hv_lineage *lineage, hv_env *env, const hv_peer_id *me, uint64_t epoch, uint64_t moment_us);
/* The optimizer stepped with the swarm's average. stamps: of its n averages. frozen: the parameters without a step, in rising
 * order. samples: what was averaged over. */
void hv_lineage_stepped(hv_lineage *lineage, hv_env *env, const uint64_t *stamps, size_t n, const uint64_t *frozen, size_t n_frozen,
                        uint64_t samples);
/* The same step again, by a peer that was not in it: the mark moves alike, and the replica is not made by that. */
void hv_lineage_repeated(hv_lineage *lineage, hv_env *env, const uint64_t *stamps, size_t n, const uint64_t *frozen,
                         size_t n_frozen, uint64_t samples);
/* The optimizer stepped with this peer's own gradient. moment_us: as above; a peer that starts again may step twice in one epoch.
 */
void hv_lineage_stepped_alone(hv_lineage *lineage, hv_env *env, const hv_peer_id *me, uint64_t epoch, uint64_t moment_us,
                              uint64_t samples);
/* The peer trains under another setup from here on. */
void hv_lineage_set_up(hv_lineage *lineage, hv_env *env, hv_span setup);

/* Takes the outcome of a round's view. True if this replica is the swarm's; it is made if another one with it has made it. */
int hv_lineage_judge(hv_lineage *lineage, const hv_lineage_view *view);
/* This replica is not the swarm's any more: the others made a step without it, or it is not finite. */
void hv_lineage_is_left(hv_lineage *lineage);
/* For the others, when a group forms. Of lineage that is not kept nobody gets a word. */
hv_word hv_lineage_word(const hv_lineage *lineage);

int hv_mark_equal(const hv_mark *a, const hv_mark *b);
/* A mark as small numbers that travel with a state: their mean is these numbers only if all have that mark. */
void hv_mark_digits(const hv_mark *mark, float out[HV_MARK_DIGITS]);

#endif
