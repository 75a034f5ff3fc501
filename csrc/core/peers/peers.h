/* Who is alive around me? A bounded table of peers, kept fresh by hellos.
 *
 * Room: core (uses env, msg, peer, addr, contact). Owned by node; the hive thread only.
 * A hello tells my card and brings the other's, with a few more cards it knows: so peers that reach one common peer find
 * each other. Whoever is known is asked again every hello_every_ms (sooner while it is new: that is when there is news), or says
 * hello itself meanwhile: then it is asked every fourth time, since nobody else tells whether it can be dialled; one whose
 * connection breaks, or who does not answer, is doubted and asked at once, then lost, and for some minutes asked again with growing
 * pauses, so that a healed partition finds itself. A silence while it answers other calls is a lost packet: then it takes more. A
 * peer in client mode cannot be asked: it lives as long as it says hello. While nobody is alive, the initial peers and everyone
 * ever known are tried again, with growing pauses, for good. Cards heard from others are hearsay: they only tell whom to ask, and
 * the world checks who answers, and of whom nobody can ask nothing is believed. Limits: `room` entries; hearsay makes way for the
 * living, the lost for anyone. Identities are free, so those who live and were met through the initial peers make way for nobody;
 * strangers (who came by themselves, and whom such ones tell of) may fill what is free, but give back half of the room when it is
 * wanted, and among them no public network (/24, /48, domain) keeps more places than another that wants one. Of hearsay, a quarter
 * of the room at most lies in one public network.
 */
#ifndef HV_CORE_PEERS_H
#define HV_CORE_PEERS_H

#include "core/env.h"

/* How much younger a record may seem than it is: keepers count its age from when it reached them. */
#define HV_PEERS_RECORD_MARGIN_US 1000000ull

typedef enum hv_peers_state {
  HV_PEERS_HEARD,   /* somebody spoke of it */
  HV_PEERS_ALIVE,   /* it answered, or said hello itself */
  HV_PEERS_DOUBTED, /* it was alive; now it is being asked again */
  HV_PEERS_LOST,    /* it did not answer, or left */
  HV_PEERS_STATES
} hv_peers_state;

typedef struct hv_peers hv_peers;

typedef struct hv_peers_entry {
  hv_peers_state state; /* what the table is looked through for comes first: cards and calls are long */
  unsigned addr;        /* which of card.addrs is tried */
  unsigned failures;    /* in a row */
  unsigned answers;     /* in a row */
  unsigned spared;      /* hellos since then that its own made needless */
  uint64_t seen_us;     /* when it last answered or said hello */
  uint64_t lost_us;     /* when it was last found to be lost; of a silent one: when it was asked last */
  uint64_t rtt_us;      /* of the last hello */
  uint64_t ask_us;      /* when it is to be asked next; UINT64_MAX: not at all */
  uint64_t asked_us;
  uint64_t word_us;  /* when it last answered a call of another room */
  int asking;        /* a hello is under way; the entry stays until it ends */
  unsigned refused;  /* latest failures in a row that said that the peer is not there */
  int gone;          /* lost, and certainly ended; until it is alive again */
  int left;          /* gone, as it said itself */
  uint64_t life;     /* as it last told; 0: not known */
  uint64_t ended_us; /* when it was last found to have ended, */
  uint64_t again_us; /* and when the life after that began; 0: never */
  int stranger;      /* it came by itself, or a stranger told of it */
  uint64_t network;  /* where it came from, or where it is said to be (core/peers/contact.h); 0: a private one */
  uint64_t since_us; /* when it was taken in */
  hv_card card;
  hv_call call, farewell;
  hv_peers *peers;
} hv_peers_entry;

/* An address the user gave: asked until somebody answers there, and whenever nobody is alive. */
typedef struct hv_peers_start {
  hv_target target; /* with this node's own ID once it turned out to be it */
  hv_status status; /* of the last try; HV_BUSY before the first has ended */
  hv_cause cause;   /* of its failure */
  char text[320];   /* and its sentence */
  unsigned tries;
  uint64_t ask_us, asked_us;
  int asking;
  hv_call call;
  hv_peers *peers;
} hv_peers_start;

typedef struct hv_peers_config {
  hv_card me;               /* without addrs: those of HV_EVENT_START are told */
  const hv_target *initial; /* copied */
  size_t n_initial;
  uint32_t hello_every_ms;    /* 0: 10,000 */
  uint32_t hello_timeout_ms;  /* 0: 3,000 */
  size_t room;                /* 0: 32 */
  void (*left)(void *arg);    /* after hv_peers_leave: all farewells are over; NULL: the world is told that this node has stopped */
  void (*changed)(void *arg); /* somebody came or went, or an initial peer answered or failed; may be NULL */
  /* A peer that can be dialled answered a hello of ours (the address that worked first), or is lost. May be NULL. */
  void (*answered)(void *arg, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint64_t rtt_us);
  void (*lost)(void *arg, const hv_peer_id *id);
  /* This peer has ended, for certain: it said goodbye, or nobody (or another peer) answers any more at every address that it had.
   * Known or not before; may come more than once. A silent peer only becomes lost. May be NULL. */
  void (*gone)(void *arg, const hv_peer_id *id);
  /* A peer has been started anew at that time, and nobody was told of the end of its life before. May be NULL. */
  void (*reborn)(void *arg, const hv_peer_id *id, uint64_t since_us);
  void *arg;
} hv_peers_config;

struct hv_peers {
  hv_env *env;
  hv_peers_config config;
  hv_peers_entry **entries;
  uint64_t *tags; /* of each entry the first bytes of its ID: most are told apart without looking there */
  size_t n_entries, n_alive;
  hv_peers_start *starts;
  size_t n_starts;
  size_t pending; /* calls under way, LEAVEs among them */
  int leaving;
  uint64_t life, since_us; /* this node's: what it tells of itself */
  uint64_t armed_us;       /* what the timer is set for */
  hv_timer timer;
};

/* On failure nothing is left to fini. */
hv_status hv_peers_init(hv_peers *peers, hv_env *env, const hv_peers_config *config);
/* Frees everything. No call of it may be under way any more, unless its world is dead. */
void hv_peers_fini(hv_peers *peers);

/* The events that concern this room. hv_peers_hello answers the request. */
void hv_peers_start_asking(hv_peers *peers, const hv_event *event);
void hv_peers_hello(hv_peers *peers, const hv_event *event);
void hv_peers_left(hv_peers *peers, const hv_event *event); /* answers too */
void hv_peers_down(hv_peers *peers, const hv_event *event);
/* A call of any room has ended; the event is only looked at. Whoever answers one is not lost for want of an answer to a hello. */
void hv_peers_called(hv_peers *peers, const hv_event *event);

/* Tells everyone alive that this peer goes, and asks nobody any more; env->stopped is called when all have heard it or failed to.
 */
void hv_peers_leave(hv_peers *peers);

/* The entry of a peer, or NULL. */
const hv_peers_entry *hv_peers_find(const hv_peers *peers, const hv_peer_id *id);
/* Somebody waits for it in vain: it is asked now. */
void hv_peers_doubt(hv_peers *peers, const hv_peer_id *id);
/* True if it has said goodbye, and no hello since: a word of it that still comes was on its way. */
int hv_peers_has_left(const hv_peers *peers, const hv_peer_id *id);
/* True if this peer, as a signer, has certainly ended since it said something at that time: its word is void. */
int hv_peers_ended_since(const hv_peers *peers, const hv_peer_id *id, uint64_t said_us);
/* How many are alive. */
size_t hv_peers_alive(const hv_peers *peers);
/* Where to reach a peer that is known. HV_NOT_FOUND; HV_UNREACHABLE when it is in client mode. */
hv_status hv_peers_target(const hv_peers *peers, const hv_peer_id *id, hv_target *out);
/* 1 when there are initial peers and each has failed at its last try. */
int hv_peers_none_answers(const hv_peers *peers);

const char *hv_peers_state_name(hv_peers_state state);

#endif
