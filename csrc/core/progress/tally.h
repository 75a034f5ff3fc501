/* How far is the swarm, if some of those who say so lie? The rule by which many claims become one figure.
 *
 * Room: core (uses report, peer, sort). Pure: the same claims at the same time give everybody the same figures.
 */

// clang-format off
/* THE RULE. A contributor's claims count for its owner, the peer that signed them. The several contributors of one owner, at most
 * HV_TALLY_INSTANCES_MAX, are added up; the highest epoch among them is the owner's. Claims older than stale_ms do not count.
 * Of n owners, f = floor(n / 3) may lie. For each figure the reference is the (f+1)-th highest claim, so at least one honest owner
 * claims as much.
 *
 *   epoch    The reference of the owners' epochs. No f liars can put it above the epoch of every honest owner. To hold it back
 *            below all honest ones takes more than f, so a third of the swarm suffices to move it and the rest may lag.
 *   samples  Of an owner in that epoch: its claim, plus its speed times the age of the claim (another peer's, for at most
 *            horizon_ms).
 *            Of an owner that is one epoch ahead: its count when it left that epoch. Of any other: nothing.
 *            At most `fast` times the reference counts, or the owner's fair share, target / n, if that is more.
 *   speed    Of an owner in that epoch: its claim, at most `fast` times the reference. That is the reference of all owners' speeds,
 *            in whatever epoch they are. While fewer than f + 1 owners have a speed, none is counted, and nobody knows when the
 *            target will be reached.
 *
 * The peer that counts applies the rule to its own claims too: else peers of different speed would disagree about the sum.
 *
 * What it defends against: up to f owners that claim any epoch, any number of samples, any speed, in concert. The epoch they cannot
 * move beyond honest ones; samples and speeds they can raise by at most f * max(fast * the fastest honest owner's, a fair share),
 * and lower by no more than not taking part would. One in a hundred thus makes an epoch at most fast % smaller. What not: more than
 * a third (identities cost nothing: who may join is decided elsewhere). With one or two owners f is 0: the highest claim counts,
 * since nobody could tell which of two lies. A lie within the limits is not seen: work is not proven here. A price: an honest peer
 * that is more than `fast` times faster than the fastest third counts for less than it does.
 */
// clang-format on
#ifndef HV_CORE_TALLY_H
#define HV_CORE_TALLY_H

#include "core/peer.h"
#include "core/progress/report.h"

#define HV_TALLY_INSTANCES_MAX 8

typedef struct hv_claim {
  hv_peer_id owner;
  hv_report report;  /* a gone one does not count */
  uint64_t at_us;    /* when the count was true, on the clock of whoever counts */
  uint64_t heard_us; /* when the owner was last heard: what stale_ms goes by */
  uint8_t mine;      /* of the contributor that counts: it is not extrapolated */
} hv_claim;

/* What its report will have come to by then, if its contributor goes on at its speed, for `most_us` at the most. */
double hv_claim_samples(const hv_claim *claim, uint64_t now_us, uint64_t most_us);

typedef struct hv_tally_rule {
  uint64_t target;
  double fast;
  uint32_t horizon_ms, stale_ms;
} hv_tally_rule;

typedef struct hv_tally {
  uint64_t epoch;
  double samples, speed;               /* of all, as counted */
  double others_samples, others_speed; /* without the `mine` claim */
  double most_samples, most_speed;     /* the most that one owner counts for */
  size_t n, n_clients;                 /* contributors */
  size_t n_owners, tolerated;          /* tolerated: f */
  int any;                             /* 0: nobody claims anything, and all is 0 */
} hv_tally;

/* Reorders the claims. HV_NOMEM. */
hv_status hv_tally_count(hv_mem *mem, hv_claim *claims, size_t n, const hv_tally_rule *rule, uint64_t now_us, hv_tally *out);

/* The (f+1)-th highest of n values, which are reordered; 0 of none. */
double hv_tally_reference(double *values, size_t n, size_t tolerated);

#endif
