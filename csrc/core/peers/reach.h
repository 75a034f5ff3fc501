/* At which public addresses others can dial this node: candidates, and the peers that are asked to call back.
 *
 * Room: core (uses peers, contact). Used by node.
 * Thread: the hive thread.
 * Limits: HV_REACH_MAX candidates; HV_REACH_DIALS_MAX calls back under way for others, one for each peer, and at most one new one
 * in HV_REACH_PAUSE_US.
 * Errors: without a peer that can call back, a candidate stays untested.
 * Rules: docs/design/reach.md.
 */
#ifndef HV_CORE_REACH_H
#define HV_CORE_REACH_H

#include "core/peers/peers.h"

#define HV_REACH_MAX 8
#define HV_REACH_DIALS_MAX 8
#define HV_REACH_PAUSE_US 100000u

typedef enum hv_reach_origin {
  HV_REACH_NONE,    /* a free place */
  HV_REACH_GATEWAY, /* a gateway has opened a port */
  HV_REACH_SEEN,    /* the host at which an initial peer sees this node, with the port on which it listens */
  HV_REACH_OWN      /* an own public address of IPv6 */
} hv_reach_origin;

typedef enum hv_reach_state { HV_REACH_UNTESTED, HV_REACH_DIALLED, HV_REACH_FAILED } hv_reach_state;

typedef struct hv_reach hv_reach;

typedef struct hv_reach_candidate {
  hv_reach *reach;
  hv_reach_origin origin;
  hv_reach_state state;
  int asking, dropped; /* a call is under way; the place is free when it has ended */
  unsigned failures;   /* peers in a row that could not dial it */
  unsigned silent;     /* questions in a row without an answer, since said_by was set */
  uint64_t said_by;    /* network of the peer that dialled it, until a peer of another network has; 0: none */
  uint64_t asks;       /* network of the peer that is asked, or was last */
  unsigned after;      /* where in the table of peers the next one is looked for */
  uint64_t ask_us;
  hv_addr addr;
  hv_call call;
} hv_reach_candidate;

typedef struct hv_reach_dial {
  hv_reach *reach;
  hv_request *request; /* NULL: a free place */
  hv_addr addr;
  hv_call call;
} hv_reach_dial;

struct hv_reach {
  hv_env *env;
  hv_peers *peers;
  void (*changed)(void *arg); /* the addresses that can be dialled have changed */
  void *arg;
  hv_reach_candidate candidates[HV_REACH_MAX];
  hv_reach_dial dials[HV_REACH_DIALS_MAX];
  hv_addr own[HV_CARD_ADDRS_MAX]; /* where this node listens */
  size_t n_own;
  uint64_t dialled_us; /* the last call back for another peer */
  int stopping;
  hv_timer timer;
};

/* All arguments are borrowed. */
void hv_reach_init(hv_reach *reach, hv_env *env, hv_peers *peers, void (*changed)(void *arg), void *arg);
/* Asks no more. */
void hv_reach_stop(hv_reach *reach);

/* Where this node listens now; earlier results are void, except that of a gateway's address. None: it cannot be dialled at all. */
void hv_reach_set_own(hv_reach *reach, const hv_addr *addrs, size_t n_addrs);
/* A gateway has opened this address; NULL: it has none any more. */
void hv_reach_offer(hv_reach *reach, const hv_addr *addr);
/* Whether one of the addresses where this node listens has this host. */
int hv_reach_is_own_host(const hv_reach *reach, const hv_addr *addr);
/* The table of peers has changed: there may be a new view of this node. */
void hv_reach_look(hv_reach *reach);
/* Another peer asks to be called back (HV_MSG_DIAL): answers when that has ended. */
void hv_reach_asked(hv_reach *reach, const hv_event *event);

/* Writes this node's addresses: those that were dialled first, then its own without those that could not be. Returns their number.
 */
size_t hv_reach_addrs(const hv_reach *reach, hv_addr out[HV_CARD_ADDRS_MAX]);

#endif
