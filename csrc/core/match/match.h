/* With whom do I average now? Finds, under a key, all who want to average, and forms one group of them.
 *
 * Room: core (uses dht, peers, roster, round). The averager owns it; the hive thread. docs/MATCH.md describes the protocol.
 *
 * From its start a match declares its node in the DHT under the key (prefix "." bits) and keeps a roster of the others there, so
 * that at the moment of averaging nobody waits for the DHT. For each epoch all who know the key agree on one order of the roster,
 * by SHA-256 of key, epoch and identity; the first in it who can be reached is the host. Every node with a match hosts, whether it
 * seeks itself or not, clients aside (nobody can dial them). A seeker opens one stream to the host, which answers at once:
 * accepted; redirected to a host that comes sooner in the order; or no, and why. The host begins as soon as everyone expected is
 * there, or sends all away when it is certain that nobody else comes. A host that dies or falls silent is replaced by the next in
 * order; nobody joins a host behind itself in the order, so no two can wait for each other. BEGIN fixes the group. Its id is a hash
 * over all that it says: members who were told different things are in different rounds.
 *
 * Bad hosts: one that begins wrongly (not its member, spans that do not cover the run, ...), lets seekers wait in vain or sends
 * them round is not asked again for a while; none is believed alone that it is over, where others are known. Limits: HV_MATCH_*
 * below; HV_ROUND_MEMBERS_MAX members; GATHERINGS epochs hosted at a time, where a peer waits in one: the smallest makes room.
 */
#ifndef HV_CORE_MATCH_H
#define HV_CORE_MATCH_H

#include "core/dht/dht.h"
#include "core/notice.h"
#include "core/peers/parting.h"
#include "core/peers/peers.h"
#include "core/round/round.h"

#define HV_MATCH_PREFIX_MAX 256         /* bytes */
#define HV_MATCH_BITS_MAX 64            /* characters */
#define HV_MATCH_GATHER_MAX (1u << 16)  /* bytes of one member */
#define HV_MATCH_GATHERS_MAX (1u << 20) /* bytes of a group: where it would be more, who has the most to tell goes elsewhere */
#define HV_MATCH_WAIT_MAX_MS (24u * 3600 * 1000)
#define HV_MATCH_GRACE_MS 1000 /* a seek is done at the latest so long after its wait_ms */

typedef struct hv_match hv_match;

/* Where requests and streams find their match. One in each node. */
typedef struct hv_match_registry {
  hv_env *env;
  hv_dht *dht;
  hv_peers *peers; /* whose config.me is this node's card */
  hv_match *matches;
  struct hv_match_summons *summons; /* questions under way */
  hv_parting parting;               /* streams on which all has been said */
  hv_notices *notices;              /* for those who need not wait; NULL: nobody is told */
  int stopped;
} hv_match_registry;

void hv_match_registry_init(hv_match_registry *registry, hv_env *env, hv_dht *dht, hv_peers *peers);
/* This node goes: everybody who waits here is sent on, seeks end with HV_CANCELLED. */
void hv_match_registry_stop(hv_match_registry *registry);
/* When the world has ended: frees all matches; seeks still under way end with HV_CLOSED. Before the dht is freed. */
void hv_match_registry_fini(hv_match_registry *registry);
/* A peer opened a stream with HV_MSG_JOIN (left without `on` when there is no such match); asked with HV_MSG_SUMMON (answers). */
void hv_match_opened(hv_match_registry *registry, const hv_event *event);
void hv_match_asked(hv_match_registry *registry, const hv_event *event);
/* A peer has ended: no match waits for it any more. */
void hv_match_gone(hv_match_registry *registry, const hv_peer_id *id);
/* A peer takes no part under that key any more: the same for that match. */
void hv_match_departed(hv_match_registry *registry, const hv_peer_id *id, hv_span key);

typedef struct hv_match_config {
  hv_span prefix; /* copied; "run_grad_averager" */
  hv_span bits;   /* '0' and '1', may be empty; copied */
  hv_hash schema; /* of the tensors, codecs and whatever else must be equal: others are refused */
  /* The text behind that hash, one line for each tensor: a refusal names the first line that differs. Copied, cut to
   * HV_MATCH_SCHEMA_TEXT_MAX bytes, may be empty. */
  hv_span schema_text;
  uint32_t n_chunks;        /* of the run, for the spans */
  size_t target_group_size; /* 0: everybody, HV_ROUND_MEMBERS_MAX at most */
  size_t min_group_size;    /* 0: 2; with 1 a seek that finds nobody ends with a group of one */
  uint64_t bandwidth;       /* bytes per second; 0: not known */
  uint32_t least_chunks;    /* when this node hosts: who would own fewer owns none; 0: any span will do */
  uint32_t request_ms;      /* how long one question may take, but half of a seek's time at most; 0: 2,000 */
  uint8_t auxiliary;        /* 1: owns a span, contributes nothing */
  uint8_t apart;            /* 1: it is declared, and known to others, only once the program says where it is: by hv_match_reached,
                               or by a seek. Until then nobody waits for it */
} hv_match_config;

/* Opens a match and begins to declare it. HV_INVALID (err says why), HV_EXISTS: there is one of this prefix here, HV_STATE: the
 * node stops, HV_NOMEM. */
hv_status hv_match_new(hv_match_registry *registry, const hv_match_config *config, hv_match **out, hv_error *err);
/* Closes it: takes the declaration back, sends on who waits here, ends a seek with HV_CANCELLED (within this call). It goes away by
 * itself. NULL is fine. */
void hv_match_free(hv_match *match);

void hv_match_set_bandwidth(hv_match *match, uint64_t bandwidth);
/* Moves to another key, not while seeking (HV_STATE), where no epoch has begun yet. HV_INVALID, HV_NOMEM: nothing has changed. */
hv_status hv_match_set_bits(hv_match *match, hv_span bits, hv_error *err);
hv_span hv_match_bits(const hv_match *match); /* borrowed until the next set */
/* How many others are declared under the key and not known to be gone. */
size_t hv_match_others(const hv_match *match);
/* The program is in this epoch, and will not seek one before it: who seeks one need not wait for this peer. A seek of an epoch
 * whose name begins with a number says the same of that number; 2^63 is the limit. */
void hv_match_reached(hv_match *match, uint64_t epoch);
/* The program missed a step, and comes to this epoch with the swarm's state, not sooner: there it is waited for a moment. */
void hv_match_comes(hv_match *match, uint64_t epoch);
/* True if another peer missed a step, and comes to this epoch with a state that it has yet to load. */
int hv_match_awaits(const hv_match *match, uint64_t epoch);
/* Until it is reached again, or a seek: nobody waits for this peer, or finds a host in it. Those who know it are told. Not while
 * seeking. */
void hv_match_step_aside(hv_match *match);
/* How many of the others are expected to average other tensors, and the last difference found, in one sentence ("" for none). */
size_t hv_match_strangers(const hv_match *match);
const char *hv_match_difference(const hv_match *match);

/* ---- to seek ---- */

/* The group: one block, freed with hv_mem_free. The same for all its members, but for `me`, and the addresses in members[].at. */
typedef struct hv_match_group {
  uint8_t id[HV_ROUND_ID_SIZE];   /* of the round */
  const hv_round_member *members; /* spans are set; at.id is the identity, at.addr an address to try */
  const hv_span *gathers;         /* of each member */
  size_t n_members;
  size_t me;
  size_t leader; /* who coordinates the round: the first in the epoch's order that can be dialled */
} hv_match_group;

/* The caller's struct, alive and unchanged until done, which comes exactly once, not from within hv_match_seek_start; it may start
 * the next. */
typedef struct hv_match_seek hv_match_seek;
struct hv_match_seek {
  /* HV_OK: `group` is the caller's now. Else text says why in a sentence, and group is NULL:
   * HV_TIMEOUT: fewer than min_group_size came together in wait_ms (it says so if all others here average other tensors), or all
   * the others are behind and not on their way. HV_EXISTS: others have begun this epoch without this peer: next time (never for an
   * empty epoch); or are `further`, all of them, or more than a third have been in its group (but of "5/1", or where groups have a
   * target size), so that it will have no other one. HV_CANCELLED, HV_CLOSED, HV_NOMEM. */
  void (*done)(hv_match_seek *self, hv_status status, hv_match_group *group, const char *text);
  void *owner;
  hv_span epoch; /* HV_MATCH_EPOCH_MAX bytes at most that must agree: "5", or "5/1" for a second attempt; none: whoever seeks now */
  uint32_t
      expected; /* begin as soon as so many are together, this peer among them; 0: all who are declared and not known to be gone */
  uint32_t wait_ms; /* then with whoever is there, if they are min_group_size; 1 to HV_MATCH_WAIT_MAX_MS */
  hv_span gather;   /* told to the others in gathers[]; HV_MATCH_GATHER_MAX bytes at most, HV_MATCH_GATHERS_MAX for all members
                       together */
  int further;      /* match's, when done: 1: the others are in later epochs, or about to be */
  hv_match *match;  /* match's; NULL while not under way */
};

/* One at a time for a match: HV_STATE. HV_INVALID (err says why). Not HV_OK: not started. Begin it ahead of time: match knows
 * nothing of data. */
hv_status hv_match_seek_start(hv_match *match, hv_match_seek *seek, hv_error *err);
/* Ends it within this call, with HV_CANCELLED; who hosts it is told. Fine when not under way. */
void hv_match_seek_cancel(hv_match_seek *seek);

/* ---- group bits ---- */

/* A member's bits for its next round, as in Moshpit SGD (Ryabinin et al., 2021): its place in the group becomes the last digit of a
 * number with base target_group_size, and the first digit goes. Members of a group that has at most target_group_size members get
 * different digits. `bits` and `out` have the same length (out is terminated). */
void hv_match_next_bits(hv_span bits, size_t target_group_size, const hv_match_group *group, char out[HV_MATCH_BITS_MAX + 1]);

#endif
