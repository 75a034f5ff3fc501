/* The figures of the swarm, counted from the claims of its contributors, of which up to a third may lie.
 *
 * Room: core (uses report, peer, sort). Pure: the same claims at the same time give every peer the same figures.
 * Owner: the caller, of all values.
 * Thread: any.
 * Terms: a contributor is a program that trains; a peer may run several. An owner is the peer that signed a contributor's claim.
 * The reference of a figure is the (f+1)-th highest claim, where f owners may lie; at least one honest owner claims as much.
 * Limits: HV_TALLY_INSTANCES_MAX contributors of one owner count.
 * Errors: HV_NOMEM.
 * Rules: docs/design/progress.md, "The rule".
 */
#ifndef HV_CORE_TALLY_H
#define HV_CORE_TALLY_H

#include "core/peer.h"
#include "core/progress/report.h"

#define HV_TALLY_INSTANCES_MAX 8

/* A report of one contributor, and the peer that signed it, its owner. */
typedef struct hv_claim {
  hv_peer_id owner;
  hv_report report;  /* one with `gone` set does not count */
  uint64_t at_us;    /* when its numbers were true, on this node's clock */
  uint64_t heard_us; /* the owner's last sign of life, to which stale_ms is compared */
  uint8_t mine;      /* 1: the claim of the contributor that does this counting, which is not extrapolated */
} hv_claim;

/* A claim's samples extrapolated to now_us at its speed, for at most most_us. */
double hv_claim_samples(const hv_claim *claim, uint64_t now_us, uint64_t most_us);

typedef struct hv_tally_rule {
  uint64_t target;     /* samples of one epoch */
  double fast;         /* an owner's samples and speed count for at most this many times their references */
  uint32_t horizon_ms; /* longest extrapolation of a claim */
  uint32_t stale_ms;   /* age from which a claim does not count */
} hv_tally_rule;

typedef struct hv_tally {
  uint64_t epoch;
  double samples, speed;               /* of all, as counted; speeds are samples per second */
  double others_samples, others_speed; /* without the `mine` claim */
  double most_samples, most_speed;     /* the most that one owner counts for */
  size_t n, n_clients;                 /* contributors */
  size_t n_behind;                     /* contributors in an earlier epoch than `epoch` */
  size_t n_owners;
  size_t tolerated; /* owners that may lie: a third, rounded down */
  int any;          /* 0: there are no claims, and all figures are 0 */
} hv_tally;

/* Counts claims, which it reorders. HV_NOMEM. */
hv_status hv_tally_count(hv_mem *mem, hv_claim *claims, size_t n, const hv_tally_rule *rule, uint64_t now_us, hv_tally *out);

/* The (tolerated + 1)-th highest of n values, which it reorders; 0 if n is 0. */
double hv_tally_reference(double *values, size_t n, size_t tolerated);

#endif
