/* The peers known under one key: their addresses, epochs and failures, and this node's own declaration there.
 *
 * Room: core (uses dht, peers, contact).
 * Owner: a match.
 * Thread: the hive thread.
 * Limits: HV_ROSTER_MAX peers; then the youngest untrusted one, of the network with most, makes room.
 * A declaration counts for 60 s.
 * Errors: without memory a peer is not remembered.
 * Rules: docs/design/matchmaking.md, "Before anybody averages: the roster" and "Epochs have an order".
 * Place: the number of an epoch plus 1; 0 stands for none, or not known.
 */
#ifndef HV_CORE_ROSTER_H
#define HV_CORE_ROSTER_H

#include "core/dht/dht.h"
#include "core/peers/peers.h"

#define HV_ROSTER_MAX 1024
#define HV_ROSTER_COMES_MS 300 /* how long others wait for a peer at the epoch at which it announced to return */
#define HV_ROSTER_VALUE_MAX (2 + 32 + HV_CONTACT_ADDRS_MAX) /* bytes of a declaration */

/* An order of all peers for one key and epoch, the same at every node. */
typedef struct hv_rank {
  uint64_t salt[2];
} hv_rank;
/* The order for a key and an epoch's name. */
hv_rank hv_rank_for(hv_env *env, hv_span key, hv_span epoch);
/* Negative if a comes before b, positive if after, 0 if they are the same peer. */
int hv_rank_compare(const hv_rank *rank, const hv_peer_id *a, const hv_peer_id *b);

typedef struct hv_roster_entry {
  hv_peer_id id;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size;        /* bytes; 0: it cannot be dialled */
  hv_hash schema;            /* its own, as it said last */
  uint64_t schema_us;        /* when it said so; 0: it has not */
  uint8_t stranger;          /* 1: it has another schema */
  uint8_t unsure;            /* 1: it had this node's schema before that changed; what epoch it is in says nothing */
  uint8_t asked;             /* 1: it was asked for a description of its schema; 2: it has answered */
  uint8_t met;               /* 1: it has called or answered; 0: known only from a record or another peer */
  unsigned failures;         /* since its last sign of life */
  uint64_t expires_us;       /* end of its declaration, or of its last contact's validity */
  uint64_t retry_us;         /* after failures: when it may be asked again, unless it answers sooner */
  uint8_t refused;           /* 1: the last failure was a refusal, and this node's next search asks it again */
  unsigned faults;           /* as a host, since it last hosted this node's group */
  uint64_t shunned_until_us; /* after faults: when it may be asked to host again, even if it answers meanwhile */
  uint64_t failed_us;        /* when it last failed as a host; 0: never */
  uint64_t version;          /* of its declaration */
  uint64_t heard_us;         /* its last sign of life */
  uint64_t place;            /* of the epoch that it is in */
  uint64_t place_us;         /* when it reported that place */
  uint64_t return_place;     /* it missed a step and returns at this place; 0: it did not miss one */
  uint64_t return_us;        /* when this node reached that place; 0: not yet */
  uint64_t behind_us;        /* when it was first seen behind this node; 0: it is not behind */
  uint8_t is_seeking;        /* 1: it had no group at its place yet */
  uint8_t had_group;         /* 1: it is known to have had one there */
  uint8_t missed, kept;      /* moves of this node for which it stayed behind; in a row for which it did not, since then */
  uint64_t gone_us;          /* when it ended or left this key; 0: it is here */
  uint64_t network;          /* where it was seen when it came; 0: private, or not seen */
  uint64_t since_us;         /* when it came */
  uint8_t untrusted;         /* 1: it was not trusted when it came, or when the networks were counted last */
} hv_roster_entry;

typedef struct hv_roster_config {
  hv_peer_id me;
  const hv_card *card; /* this node's, borrowed; its current addresses are declared */
  hv_span key;         /* borrowed */
  hv_hash schema;
  int young;                  /* 1: this node has only just started, so the DHT may not have everything yet */
  int apart;                  /* 1: not declared before hv_roster_enter */
  void (*changed)(void *arg); /* a peer came or went; called from events, and from within functions of this header */
  void *arg;
} hv_roster_config;

typedef struct hv_roster {
  hv_env *env;
  hv_dht *dht;
  hv_peers *peers;
  hv_roster_config config;
  hv_roster_entry *entries;
  size_t n, room;    /* entries; entries that the array can hold */
  size_t crowd;      /* untrusted peers of the network that had most, when they were counted last */
  uint64_t crowd_us; /* when that was */
  hv_timer declare_timer, look_timer;
  hv_dht_op put, get;
  hv_dht_spots spots; /* the nodes that keep the last declaration */
  hv_dht_item item;
  uint64_t declare_ms, look_ms; /* between two declarations; between two searches */
  uint64_t looked_us;           /* the last search; 0: none */
  int declared;
  uint64_t place; /* this node's own */
  uint8_t value[HV_ROSTER_VALUE_MAX];
  char subkey[HV_PEER_TEXT_MAX + 16];
} hv_roster;

/* Sets a roster up and starts its timers. Borrows all arguments. */
void hv_roster_init(hv_roster *roster, hv_env *env, hv_dht *dht, hv_peers *peers, const hv_roster_config *config);
/* Stops the roster and frees its entries. With `goodbye` it withdraws its declaration. */
void hv_roster_fini(hv_roster *roster, int goodbye);

/* Starts to declare a roster that was apart. */
void hv_roster_enter(hv_roster *roster);
/* Stops declaring. The last declaration holds until it expires; the owner of the roster notifies the others. */
void hv_roster_step_aside(hv_roster *roster);
/* This node has another schema from now on, and declares it at once. Peers that had the same before count as before, until they say
 * what they have now. */
void hv_roster_set_schema(hv_roster *roster, const hv_hash *schema);
/* Searches the DHT often for a while. */
void hv_roster_look_soon(hv_roster *roster);

/* ---- events of one peer; addrs are packed addresses, empty for a client ---- */

/* It called: it lives, but only an answer shows that it can be dialled. */
void hv_roster_called(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
/* It answered a question. */
void hv_roster_answered(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
/* Another peer named it. */
void hv_roster_heard(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
/* A host redirects to it: it may be asked, even if this node has heard that it ended or left, because it may have come back. */
void hv_roster_redirected(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
/* It asked for a group with this schema, or is in one. */
void hv_roster_schema(hv_roster *roster, const hv_peer_id *id, const hv_hash *schema);
/* It refused this node for its schema. */
void hv_roster_stranger(hv_roster *roster, const hv_peer_id *id);
/* It gave no answer. */
void hv_roster_failed(hv_roster *roster, const hv_peer_id *id);
/* It ended or left this key: it counts again when it calls, or when a declaration signed later is found. */
void hv_roster_gone(hv_roster *roster, const hv_peer_id *id);
/* It failed as a host of a seek that began at seek_us; the second failure in one seek is a fault. */
void hv_roster_host_failed(hv_roster *roster, const hv_peer_id *id, uint64_t seek_us);
/* It refused to host at once, as a peer that is aside does. */
void hv_roster_refused(hv_roster *roster, const hv_peer_id *id);
/* This node begins a search. */
void hv_roster_searches(hv_roster *roster);
/* It made a fault as a host: it is not asked to host for a while. */
void hv_roster_add_fault(hv_roster *roster, const hv_peer_id *id);
/* It hosted this node's group: its faults are forgotten. */
void hv_roster_host_served(hv_roster *roster, const hv_peer_id *id);
/* It, or its host, reported its place; `seeks`: it has no group there yet. */
void hv_roster_set_place(hv_roster *roster, const hv_peer_id *id, uint64_t place, int seeks);
/* It announced the place at which it returns; 0: none. Call it after hv_roster_set_place. */
void hv_roster_set_return(hv_roster *roster, const hv_peer_id *id, uint64_t return_place);
/* It had a group at that place. */
void hv_roster_had(hv_roster *roster, const hv_peer_id *id, uint64_t place);
/* Whether any peer has had one there is not known any more. */
void hv_roster_forget_had(hv_roster *roster, uint64_t place);

/* This node has moved to that place: peers behind it count as behind from now on. had_group: it had one where it was, and peers
 * further behind have missed that. */
void hv_roster_moved(hv_roster *roster, uint64_t place, int had_group);
/* Peers that were expected at that place, and gave no sign of life since since_us, count as failed. */
void hv_roster_missed(hv_roster *roster, uint64_t place, uint64_t since_us);

/* ---- questions ---- */

/* The entry of a peer; NULL: not known. */
hv_roster_entry *hv_roster_find(hv_roster *roster, const hv_peer_id *id);
/* True if a peer has given a sign of life under this key since since_us: an answer to an older question may be out of date. */
int hv_roster_called_since(hv_roster *roster, const hv_peer_id *id, uint64_t since_us);
/* True if a peer is declared, has the same schema, and nothing speaks against its coming. */
int hv_roster_counts(const hv_roster *roster, const hv_roster_entry *entry);
/* True if a peer was here, and has ended, left, or cannot be reached. */
int hv_roster_is_gone(const hv_roster *roster, const hv_roster_entry *entry);
/* True if a peer at `place`, without a group there if `seeks`, is neither at `there` nor on its way. */
int hv_roster_is_behind(uint64_t place, int seeks, uint64_t there);
/* True if a peer that is behind since behind_us may still catch up. */
int hv_roster_catches_up(const hv_roster *roster, uint64_t behind_us);
/* True if a peer counts and may still come to that place: it is there, or one epoch before and had its group, or was first seen
 * behind so recently that it may be catching up. Any peer may come to place 0. */
int hv_roster_may_come(const hv_roster *roster, const hv_roster_entry *entry, uint64_t place);
/* True if a peer was in a later epoch, or had its group of that one; it may have died since. */
int hv_roster_has_passed(const hv_roster *roster, const hv_roster_entry *entry, uint64_t place);
/* The highest place of the peers that count. */
uint64_t hv_roster_furthest(const hv_roster *roster);
/* The next moment after after_us at which some peer stops being waited for at that place, because its time to catch up is over.
 * UINT64_MAX: none. */
uint64_t hv_roster_next_given_up(const hv_roster *roster, uint64_t place, uint64_t after_us);
/* The first peer in the order that can be dialled now, is not in avoid (an array of identities), and comes before the peer `before`
 * (NULL: anywhere). NULL: none. */
hv_roster_entry *hv_roster_first(hv_roster *roster, const hv_rank *rank, const hv_peer_id *before, hv_span avoid);
/* Writes the identities of at most `max` peers before the peer `before` (NULL: anywhere) that cannot be asked now. Returns how many
 * such peers there are. */
size_t hv_roster_failing(const hv_roster *roster, const hv_rank *rank, const hv_peer_id *before, hv_peer_id *out, size_t max);
/* Sets *out to an address of a peer; `try` counts the attempts. HV_UNREACHABLE: it has none that can be read. */
hv_status hv_roster_target(const hv_roster *roster, const hv_peer_id *id, hv_span addrs, unsigned try, hv_target *out);
/* Writes this node's packed addresses, none for a client or a node that nobody can dial; returns their bytes. */
size_t hv_roster_me(const hv_roster *roster, uint8_t out[HV_CONTACT_ADDRS_MAX]);

#endif
