/* The places and bytes of this node that calls and streams of peers hold, with limits by peer, by network and for all.
 *
 * Room: net (uses core/peer, guests, ring). Used by calls, streams and lanes.
 * Owner: hv_loop. hv_callers_sweep frees an account that holds nothing and has not called for a while; a slip is its call's.
 * Thread: the hive thread.
 * Limits: HV_LOOP_CALLS_MAX and those below it in loop.h. Peers that core does not trust count by their network too (/24 of IPv4,
 * /48 of IPv6): strangers, and apart from them peers that were met (hv_tier). All strangers leave a quarter of the whole to others,
 * and together with peers that were met they leave an eighth to trusted ones.
 */
#ifndef HV_NET_CALLERS_H
#define HV_NET_CALLERS_H

#include "base/mem.h"
#include "core/env.h"
#include "net/transport/ring.h"

enum { HV_CALLER_BUCKETS = 256 };

typedef enum hv_caller_kind {
  HV_CALLER_CALLS,   /* unary calls under way */
  HV_CALLER_STREAMS, /* gRPC calls of streams */
  HV_CALLER_BYTES,   /* in gRPC: answers that are not taken yet, and requests and first messages of streams that are late */
  HV_CALLER_KINDS
} hv_caller_kind;

/* The account of a peer, or of all peers of one tier in a network. */
typedef struct hv_caller {
  struct hv_caller *next; /* in the same bucket */
  hv_peer_id peer;        /* unknown: of a network */
  uint64_t network;       /* 0: of a peer */
  hv_tier tier;           /* of a network: of its peers */
  size_t held[HV_CALLER_KINDS];
  size_t yields[HV_CALLER_KINDS]; /* of those, what may be taken away */
  uint64_t called_us;             /* up to then its calls use up what a stranger may call */
  uint64_t from;                  /* of a peer: number of the connection it called on last (guests.h); 0: none yet */
} hv_caller;

/* Whether a call may be ended for another one's sake. */
typedef enum hv_slip_state {
  HV_SLIP_STAYS,   /* no */
  HV_SLIP_GREETS,  /* its first message has not come: yes */
  HV_SLIP_ANSWERS, /* its answer is not taken yet: for a caller of another network */
} hv_slip_state;

/* The holdings of one incoming call. */
typedef struct hv_slip hv_slip;
struct hv_slip {
  hv_ring ring;                    /* in hv_callers.yielding, unless it stays */
  void (*make_way)(hv_slip *slip); /* ends its call for another one's sake; the slip holds nothing any more */
  hv_slip_state state;
  hv_tier tier;
  hv_caller *peer, *network; /* network is NULL if core trusts the peer; both are NULL if it holds nothing */
  size_t held[HV_CALLER_KINDS];
};

typedef struct hv_callers {
  hv_mem *mem;
  size_t held[HV_CALLER_KINDS], of_tier[HV_TIERS][HV_CALLER_KINDS]; /* by all; of those, by peers of a tier */
  hv_ring yielding;                                                 /* slips that may go, the oldest first */
  hv_caller *buckets[HV_CALLER_BUCKETS];
} hv_callers;

void hv_callers_init(hv_callers *callers, hv_mem *mem);
void hv_callers_fini(hv_callers *callers);

void hv_slip_init(hv_slip *slip, void (*make_way)(hv_slip *slip));
/* Opens a slip for a call of this peer from that address. False: no memory. */
int hv_callers_admit(hv_callers *callers, hv_slip *slip, const hv_peer_id *peer, const hv_addr *from, hv_tier tier);
/* Counts a call that begins now, unless core trusts the peer. One that calls too often is cut off; a call of a network with too
 * many is refused, if the network is public, and its peer is cut off if it has made a good part of them. */
typedef enum hv_callers_answer { HV_CALLERS_TAKEN, HV_CALLERS_REFUSED, HV_CALLERS_CUT_OFF } hv_callers_answer;
hv_callers_answer hv_callers_count(hv_slip *slip, int is_public, uint64_t now_us);
/* Takes n of one kind. False: a limit is reached. Then *goes is the slip that has to leave before another try, of no higher tier,
 * of the peer that yields most in the network that yields most, and there the oldest; NULL: there is none, and the caller is
 * refused. */
int hv_callers_take(hv_callers *callers, hv_slip *slip, hv_caller_kind kind, size_t n, hv_slip **goes);
/* The same, and lets others make way. False: the caller is refused. */
int hv_callers_take_place(hv_callers *callers, hv_slip *slip, hv_caller_kind kind, size_t n);
void hv_callers_set(hv_callers *callers, hv_slip *slip, hv_slip_state state);
/* Gives back what it holds of one kind. */
void hv_callers_give(hv_callers *callers, hv_slip *slip, hv_caller_kind kind);
/* Gives back all that it holds. It may hold nothing. */
void hv_callers_leave(hv_callers *callers, hv_slip *slip);

/* Frees the accounts that hold nothing and whose calls are used up no more. */
void hv_callers_sweep(hv_callers *callers, uint64_t now_us);

#endif
