/* Who else averages under this key, and who of them comes first? What is known of the others, ahead of time.
 *
 * Room: core (uses dht, peers, contact). Owned by a match; the hive thread.
 * Declares this node in the DHT under the key: a signed record of its own for DECLARED_MS, said again in time, taken back at the
 * end. Gets all the others' again and again, often when something is going on and seldom when not. Whoever is met in person is
 * known, too. A peer that failed is not asked again for a while, or until it answers, and not counted until it is heard of anew;
 * one that hosts badly is not asked to host for a while, whatever it answers. Limits: HV_ROSTER_MAX peers; who would go soonest
 * makes room.
 */
#ifndef HV_CORE_ROSTER_H
#define HV_CORE_ROSTER_H

#include "core/dht/dht.h"
#include "core/peers/peers.h"

#define HV_ROSTER_MAX 1024
#define HV_ROSTER_COMES_MS 300 /* who says that it comes to an epoch is waited for there for so long */
#define HV_ROSTER_VALUE_MAX (2 + 32 + HV_CONTACT_ADDRS_MAX)

/* An order of all peers that everybody agrees on, another one for each key and epoch. */
typedef struct hv_rank {
  uint64_t salt[2];
} hv_rank;
hv_rank hv_rank_for(hv_env *env, hv_span key, hv_span epoch);
int hv_rank_compare(const hv_rank *rank, const hv_peer_id *a, const hv_peer_id *b); /* < 0: a comes first */

typedef struct hv_roster_entry {
  hv_peer_id id;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size; /* 0: it cannot be dialled */
  uint8_t stranger;   /* 1: it averages other tensors */
  uint8_t asked;      /* 1: it has been asked which */
  uint8_t met;        /* 1: it has called or answered; else only a record, or another peer, tells of it */
  unsigned failures;  /* since it was last heard of */
  uint64_t until_us;  /* declared, or met, until then */
  uint64_t again_us;  /* after failures: when it may be asked again, if it gives no answer sooner */
  unsigned wrongs;    /* since it last served this node as a host */
  uint64_t shun_us;   /* after wrongs: when it may be asked to host again, whatever it answers meanwhile */
  uint64_t failed_us; /* when it last failed as a host; 0: never */
  uint64_t version;   /* of its declaration */
  uint64_t heard_us;  /* when it last gave word of itself */
  uint64_t at;        /* where it is: 1 + the number of its epoch; 0: not known */
  uint64_t at_us;     /* when it said so */
  uint64_t comes;     /* it missed a step, and comes to this epoch, not sooner: 1 + the number; 0: nothing of the kind */
  uint64_t comes_us;  /* since when this node has been there; 0: not yet */
  uint64_t behind_us; /* since when it has been behind this node; 0: it is not */
  uint8_t seeks;      /* 1: it had no group there yet */
  uint8_t had;        /* 1: it is known to have had one there */
  uint64_t gone_us;   /* when it ended or left this key; 0: it did not, or came back since */
} hv_roster_entry;

typedef struct hv_roster_config {
  hv_peer_id me;
  const hv_card *card; /* this node's, borrowed: its addresses as they are when they are told */
  hv_span key;         /* borrowed */
  hv_hash schema;
  int young;                  /* 1: this node has only just begun: what it finds in the DHT may not be all yet */
  int apart;                  /* 1: it is declared only when hv_roster_enter is called */
  void (*changed)(void *arg); /* somebody came or went; from within steps and from within the functions that tell of peers */
  void *arg;
} hv_roster_config;

typedef struct hv_roster {
  hv_env *env;
  hv_dht *dht;
  hv_peers *peers;
  hv_roster_config config;
  hv_roster_entry *entries;
  size_t n, room;
  hv_timer declare_timer, look_timer;
  hv_dht_op put, get;
  hv_dht_spots spots; /* where the last declaration went */
  hv_dht_item item;
  uint64_t declare_ms, look_ms, looked_us;
  int declared;
  uint64_t at; /* where this node is, likewise */
  uint8_t value[HV_ROSTER_VALUE_MAX];
  char subkey[HV_PEER_TEXT_MAX + 16];
} hv_roster;

/* Nothing can fail yet. */
void hv_roster_init(hv_roster *roster, hv_env *env, hv_dht *dht, hv_peers *peers, const hv_roster_config *config);
/* Stops; takes the declaration back, as far as it can, if `goodbye`. Then the roster may be freed. */
void hv_roster_fini(hv_roster *roster, int goodbye);

/* Declares it, if it was apart. */
void hv_roster_enter(hv_roster *roster);
/* It is apart from now on: not declared again. What was declared holds until it ends; others are told by whoever owns the roster.
 */
void hv_roster_step_aside(hv_roster *roster);
/* Something is going on: look often for a while. */
void hv_roster_look_soon(hv_roster *roster);

/* In person. No addresses: it is a client. Who calls lives; that it can be reached only an answer shows. */
void hv_roster_called(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
void hv_roster_answered(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
/* Somebody said so. */
void hv_roster_heard(hv_roster *roster, const hv_peer_id *id, hv_span addrs);
void hv_roster_stranger(hv_roster *roster, const hv_peer_id *id);
void hv_roster_failed(hv_roster *roster, const hv_peer_id *id);
/* It has ended, or left this key: it is not counted or asked until it comes in person, or a declaration signed later is found. */
void hv_roster_gone(hv_roster *roster, const hv_peer_id *id);
/* It failed as a host, of a seek that began then; for the second time in one seek it counts as a wrong. */
void hv_roster_let_down(hv_roster *roster, const hv_peer_id *id, uint64_t seek_us);
/* It hosts badly. */
void hv_roster_wronged(hv_roster *roster, const hv_peer_id *id);
/* It hosted this node's group. */
void hv_roster_served(hv_roster *roster, const hv_peer_id *id);

/* Where a peer is, from itself or from its host. */
void hv_roster_stands(hv_roster *roster, const hv_peer_id *id, uint64_t at, int seeks);
/* It comes to that epoch, with its state (0: it said nothing of the kind); after hv_roster_stands. */
void hv_roster_comes(hv_roster *roster, const hv_peer_id *id, uint64_t comes);
/* This node has moved on: who is behind it now has been so from now on. */
void hv_roster_moved(hv_roster *roster, uint64_t at);
/* When the next one who may be catching up to that epoch is not waited for any more, after that moment; UINT64_MAX: nobody is. */
uint64_t hv_roster_next_given_up(const hv_roster *roster, uint64_t at, uint64_t after_us);
/* It has had a group in that epoch. */
void hv_roster_had(hv_roster *roster, const hv_peer_id *id, uint64_t at);

hv_roster_entry *hv_roster_find(hv_roster *roster, const hv_peer_id *id); /* NULL: not known */
/* 1: it is declared, of our kind, and nothing speaks against its coming. */
int hv_roster_counts(const hv_roster *roster, const hv_roster_entry *entry);
/* Peers that were to come to that epoch, and were not heard since then, count as failed. */
void hv_roster_missed(hv_roster *roster, uint64_t at, uint64_t since_us);
/* 1: it was here, and has ended or left, or cannot be reached. */
int hv_roster_is_gone(const hv_roster *roster, const hv_roster_entry *entry);
/* 1: who is at this epoch, and had no group there if `seeks`, is neither there nor on the way. */
int hv_roster_is_behind(uint64_t at, int seeks, uint64_t there);
/* 1: who has been behind since then may yet come. */
int hv_roster_catches_up(const hv_roster *roster, uint64_t behind_us);
/* 1: it counts, and may yet come to that epoch (1 + its number; 0: it has none). Who is further does not; nor who is behind,
 * unless it may be on its way: it has just done the epoch before, or was found to be behind so short a time ago that it may be
 * catching up. */
int hv_roster_may_come(const hv_roster *roster, const hv_roster_entry *entry, uint64_t at);
/* 1: it has been in a later epoch, or had its group of that one, and may have died since. */
int hv_roster_has_passed(const hv_roster *roster, const hv_roster_entry *entry, uint64_t at);
/* Where those are who count and are furthest. */
uint64_t hv_roster_furthest(const hv_roster *roster);
/* The first in order that can be dialled now and does not stand in avoid (identities, one after another), before that peer (NULL:
 * anywhere). */
hv_roster_entry *hv_roster_first(hv_roster *roster, const hv_rank *rank, const hv_peer_id *before, hv_span avoid);
/* Identities of those before that peer (NULL: anywhere) that cannot be asked now; at most `max`; how many there are. */
size_t hv_roster_failing(const hv_roster *roster, const hv_rank *rank, const hv_peer_id *before, hv_peer_id *out, size_t max);
/* An address to try. HV_UNREACHABLE: it has none that can be read. */
hv_status hv_roster_target(const hv_roster *roster, const hv_peer_id *id, hv_span addrs, unsigned try, hv_target *out);
/* This node's packed addresses (none: a client); returns the size. */
size_t hv_roster_me(const hv_roster *roster, uint8_t out[HV_CONTACT_ADDRS_MAX]);

#endif
