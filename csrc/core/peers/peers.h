/* The peers around this node: a bounded table, kept current by hello messages.
 *
 * Room: core (uses env, msg, peer, addr, contact).
 * Owner: node.
 * Thread: the hive thread only.
 * Limits: `room` entries. If the table is full, lost peers are removed first, then unverified ones. How many of the live peers may
 * be strangers, or in one network, is in "The places of a full table" on the page below.
 * A card is a peer's ID and addresses. A hello sends this node's card to a peer and brings back the peer's card and some others.
 * Rules: docs/explanation/coming-and-going.md, "The table of peers".
 */
#ifndef HV_CORE_PEERS_H
#define HV_CORE_PEERS_H

#include "core/env.h"
#include "core/peers/admission.h"
#include "core/peers/contact.h"

/* Longest delay between the signing of a record and its arrival at a keeper, from which the keeper counts its age. */
#define HV_PEERS_RECORD_MARGIN_US 1000000ull

typedef enum hv_peers_state {
  HV_PEERS_UNVERIFIED, /* unverified: another peer sent its card */
  HV_PEERS_ALIVE,      /* it answered a hello, or sent one */
  HV_PEERS_DOUBTED,    /* it was alive and is being asked again */
  HV_PEERS_LOST,       /* it did not answer, or left */
  HV_PEERS_STATES
} hv_peers_state;

typedef struct hv_peers hv_peers;

/* One known peer. */
typedef struct hv_peers_entry {
  hv_peers_state state;      /* these fields stand first because scans of the table read them, and cards and calls are long */
  unsigned addr;             /* index in card.addrs of the address in use */
  unsigned failures;         /* failed hellos in a row */
  unsigned answers;          /* answered hellos in a row */
  unsigned spared;           /* hellos in a row that were not sent because the peer sent its own */
  uint64_t seen_us;          /* time of its last answer or hello */
  uint64_t lost_us;          /* time at which it was last declared lost; if it was silent: time of the last hello before that */
  uint64_t rtt_us;           /* round trip of the last hello */
  uint64_t ask_us;           /* time of the next hello; UINT64_MAX: never */
  uint64_t asked_us;         /* time of the last hello to it */
  uint64_t call_answered_us; /* time of its last answer to a call of another part of core */
  int asking;                /* 1: a hello is under way; the entry stays until it ends */
  unsigned refused;          /* latest failures in a row that prove that nothing listens there */
  int gone;                  /* 1: lost, and certainly ended; until it is alive again */
  int left;                  /* 1: gone, by its own goodbye */
  uint64_t life;             /* hv_msg_hello.life of its last hello; 0: not known */
  uint64_t ended_us;         /* time at which its end was last noticed */
  uint64_t again_us;         /* start of its life after that; 0: none */
  int stranger;              /* 1: it contacted this node first, or such a peer sent its card */
  uint64_t network;          /* network of its address (core/peers/contact.h); 0: a private one */
  hv_contact_source source;  /* where it was seen (core/peers/contact.h) */
  int averaged;              /* 1: this node has averaged with it */
  uint64_t since_us;         /* time at which the entry was made */
  hv_membership member;      /* that its certificate proves in this closed swarm */
  hv_card card;
  hv_call call, farewell;
  hv_peers *peers;
} hv_peers_entry;

/* An initial peer: an address that the user gave. It is asked until a peer answers there, and whenever no peer is alive. */
typedef struct hv_peers_start {
  hv_target target;          /* gets this node's own ID if the address turns out to be its own */
  hv_peer_id answered;       /* the peer that answered there last; unknown: none has */
  hv_status status;          /* result of the last try; HV_BUSY before the first has ended */
  hv_cause cause;            /* cause of its failure */
  char text[320];            /* sentence of its failure */
  unsigned tries;            /* failed tries in a row */
  uint64_t ask_us, asked_us; /* times of the next and the last try */
  int asking;                /* 1: a hello is under way */
  hv_call call;
  hv_peers *peers;
} hv_peers_start;

typedef struct hv_peers_config {
  hv_card me;               /* this node; without addresses: those of HV_EVENT_START are announced */
  const hv_target *initial; /* copied */
  size_t n_initial;
  uint32_t hello_every_ms;    /* 0: 10,000 */
  uint32_t hello_timeout_ms;  /* 0: 3,000 */
  size_t room;                /* most entries; 0: 32 */
  void (*left)(void *arg);    /* after hv_peers_leave: all goodbyes have ended; NULL: env->stopped is called instead */
  void (*changed)(void *arg); /* a peer came or went, or an initial peer answered or failed; may be NULL */
  /* A peer that can be dialled answered a hello (addrs[0] is the address that worked), or is lost. May be NULL. */
  void (*answered)(void *arg, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint64_t rtt_us);
  void (*lost)(void *arg, const hv_peer_id *id);
  /* This peer has certainly ended: it said goodbye, or each of its addresses refuses or belongs to another peer. The peer need not
   * be in the table; the call may come more than once. A silent peer only becomes lost. May be NULL. */
  void (*gone)(void *arg, const hv_peer_id *id);
  /* A peer restarted at since_us, and `gone` was not called for its life before. May be NULL. */
  void (*reborn)(void *arg, const hv_peer_id *id, uint64_t since_us);
  void *arg;
} hv_peers_config;

struct hv_peers {
  hv_env *env;
  hv_peers_config config;
  hv_peers_entry **entries;
  uint64_t *tags; /* first bytes of each entry's ID, for a fast search */
  size_t n_entries, n_alive;
  hv_peers_start *starts;
  size_t n_starts;
  hv_admission_refusal not_admitted; /* the last refusal of this node by a closed swarm since a peer answered */
  size_t pending;                    /* calls under way, goodbyes included */
  int leaving;                       /* 1: hv_peers_leave was called */
  hv_contact_source seen;            /* where any peer was seen, or is to be by the user's word */
  hv_addr outer;                     /* this node's address as an initial peer sees it; kind HV_ADDR_NONE: not known */
  hv_peer_id outer_by;               /* the peer that told this */
  uint64_t life, since_us;           /* this node's own life number, and its start */
  uint64_t armed_us;                 /* time for which the timer is set */
  hv_timer timer;
};

/* env and config's callbacks are borrowed until fini. Not HV_OK: nothing to fini. */
hv_status hv_peers_init(hv_peers *peers, hv_env *env, const hv_peers_config *config);
/* Frees everything. No call may be under way, unless the world has crashed. */
void hv_peers_fini(hv_peers *peers);

/* The events of this part: START, a hello, a goodbye, PEER_DOWN. hv_peers_hello and hv_peers_left answer the request. */
void hv_peers_start_asking(hv_peers *peers, const hv_event *event);
void hv_peers_hello(hv_peers *peers, const hv_event *event);
void hv_peers_left(hv_peers *peers, const hv_event *event);
void hv_peers_down(hv_peers *peers, const hv_event *event);
/* A peer has certainly ended, and config.gone is called. why: the reason for the log; NULL: it said goodbye. */
void hv_peers_ended(hv_peers *peers, const hv_peer_id *id, const char *why);
/* A call of another part of core has ended (event is borrowed). A peer that answers other calls survives more lost hellos. */
void hv_peers_called(hv_peers *peers, const hv_event *event);

/* Sends a goodbye to all live peers and sends no more hellos. config.left is called when all goodbyes have ended. */
void hv_peers_leave(hv_peers *peers);

/* The entry of a peer, or NULL. */
const hv_peers_entry *hv_peers_find(const hv_peers *peers, const hv_peer_id *id);
/* Another part waits for this peer without success: a hello is sent now. */
void hv_peers_doubt(hv_peers *peers, const hv_peer_id *id);
/* True if the peer has said goodbye and sent no hello since: messages of it that still arrive are old. */
int hv_peers_has_left(const hv_peers *peers, const hv_peer_id *id);
/* True if this peer has certainly ended after signed_us: a record that it signed at that time is void. */
int hv_peers_ended_since(const hv_peers *peers, const hv_peer_id *id, uint64_t signed_us);
/* True if the user named it as an initial peer, by its ID or by an address where it answered. */
int hv_peers_is_initial(const hv_peers *peers, const hv_peer_id *id);
/* Number of live peers. */
static inline size_t hv_peers_alive(const hv_peers *peers) {
  return peers->n_alive;
}
/* The membership that the peer of an event proves. */
static inline hv_membership hv_peers_member(const hv_event *event) {
  return event->member ? *event->member : (hv_membership){0};
}
/* Writes the ID and address of a known peer. HV_NOT_FOUND; HV_UNREACHABLE: it is in client mode. */
hv_status hv_peers_target(const hv_peers *peers, const hv_peer_id *id, hv_target *out);
/* The version of the protocol that this node and the peer use between them; 0: they have none in common. *features (may be NULL):
 * the feature bits that both have. A peer of which nothing is known is taken to speak this node's lowest version, without features.
 */
uint32_t hv_peers_version_of(const hv_peers *peers, const hv_peer_id *id, uint64_t *features);
/* "heard", "alive", "doubted" or "lost". */
const char *hv_peers_state_name(hv_peers_state state);

#endif
