/* The matchmaking of one averager: its declaration under a key, its roster of the others there, and its search for a group.
 *
 * Room: core (uses dht, peers, roster, round).
 * Owner: the averager owns a match; the node owns the registry, which brings streams and requests to it.
 * Thread: the hive thread.
 * Limits: HV_MATCH_* below; HV_ROUND_MEMBERS_MAX members; 16 epochs hosted at a time, of which the smallest makes room.
 * Errors: hv_status; done of a seek gets the result and one sentence.
 * Paper: Ryabinin et al., Moshpit SGD, 2021 (hv_match_next_bits).
 * Terms: the host of an epoch is the peer at which the members of a group gather. A span is the part of the run that a member
 * averages for the group. Gather data are bytes that each member sends to all others along with its request.
 * Rules: docs/design/matchmaking.md: roster, host, group, epochs, hostile peers; docs/explanation/coming-and-going.md: peers that
 * come and go.
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
#define HV_MATCH_SETUP_MAX 2048         /* bytes of a setup */
#define HV_MATCH_GATHER_MAX (1u << 16)  /* bytes of one member's gather data */
#define HV_MATCH_GATHERS_MAX (1u << 20) /* bytes of a group's gather data; beyond it the member with the most is sent away */
#define HV_MATCH_WAIT_MAX_MS (24u * 3600 * 1000)
#define HV_MATCH_GRACE_MS 1000 /* a seek is done at the latest this long after its wait_ms */

typedef struct hv_match hv_match;

/* All matches of a node. */
typedef struct hv_match_registry {
  hv_env *env;
  hv_dht *dht;
  hv_peers *peers; /* its config.me is this node's card */
  hv_match *matches;
  struct hv_match_summons *summons; /* questions under way */
  hv_parting parting;               /* streams on which the last message was sent */
  hv_notices *notices;              /* for departures; NULL: none are sent */
  int stopped;
} hv_match_registry;

/* Sets an empty registry up; borrows all arguments. */
void hv_match_registry_init(hv_match_registry *registry, hv_env *env, hv_dht *dht, hv_peers *peers);
/* Ends all seeks with HV_CANCELLED and redirects every peer that waits here. The node calls it when it shuts down. */
void hv_match_registry_stop(hv_match_registry *registry);
/* Frees all matches after their world has ended, and before the dht is freed. Seeks under way end with HV_CLOSED. */
void hv_match_registry_fini(hv_match_registry *registry);
/* A peer opened a stream with HV_MSG_JOIN. If no match has its key, stream->on stays NULL. */
void hv_match_opened(hv_match_registry *registry, const hv_event *event);
/* A peer sent the request HV_MSG_SUMMON: answers it. */
void hv_match_asked(hv_match_registry *registry, const hv_event *event);
/* A peer has ended: no match expects it any more. */
void hv_match_gone(hv_match_registry *registry, const hv_peer_id *id);
/* A peer has left a key: the match of that key does not expect it any more. */
void hv_match_departed(hv_match_registry *registry, const hv_peer_id *id, hv_span key);

typedef struct hv_match_config {
  hv_span prefix; /* "run_grad_averager"; copied */
  hv_span bits;   /* group bits, '0' and '1', may be empty; copied */
  hv_hash schema; /* of tensors, codecs and all else that members must have in common; other peers are refused */
  /* The text behind that hash, one line for each tensor; a refusal names the first line that differs. Copied, cut to
   * HV_MATCH_SCHEMA_TEXT_MAX bytes, may be empty. */
  hv_span schema_text;
  uint32_t n_chunks;        /* of the run */
  size_t target_group_size; /* most members of a group; 0: HV_ROUND_MEMBERS_MAX */
  size_t min_group_size;    /* 0: 2. With 1 a seek that finds no peer ends with a group of one */
  uint64_t bandwidth;       /* bytes per second; 0: not known */
  uint32_t least_chunks;    /* when this node hosts, a member that would own fewer chunks owns none; 0: no limit */
  uint32_t request_ms;      /* timeout of one question, at most half of a seek's time; 0: 2,000 */
  uint8_t auxiliary;        /* 1: owns a span, contributes nothing */
  uint8_t apart;            /* 1: not declared, so no peer waits for it, before hv_match_reached or its first seek */
} hv_match_config;

/* Opens a match and starts to declare it. HV_INVALID (err says why), HV_EXISTS: this node has a match of this prefix, HV_STATE: the
 * node is shutting down, HV_NOMEM. */
hv_status hv_match_new(hv_match_registry *registry, const hv_match_config *config, hv_match **out, hv_error *err);
/* Frees a match: withdraws its declaration, redirects the peers that wait here, and ends a seek with HV_CANCELLED within this call.
 * NULL is fine. */
void hv_match_free(hv_match *match);

/* Sets this node's bandwidth in bytes per second; 0: not known. */
void hv_match_set_bandwidth(hv_match *match, uint64_t bandwidth);
/* Moves the match to the key of other group bits, where no epoch has begun yet. HV_STATE during a seek, HV_INVALID, HV_NOMEM:
 * nothing has changed. */
hv_status hv_match_set_bits(hv_match *match, hv_span bits, hv_error *err);
/* The group bits, borrowed until the next set. */
hv_span hv_match_bits(const hv_match *match);
/* Sets the setup: lines of text on which members must agree besides the schema; empty: nothing. Copied. Peers that agreed before
 * are asked again before they count as different, because programs change their setups together. HV_STATE during a seek,
 * HV_INVALID, HV_NOMEM: nothing has changed. */
hv_status hv_match_set_setup(hv_match *match, hv_span setup, hv_error *err);
/* The number of other peers that are declared under the key and not known to be gone. */
size_t hv_match_others(const hv_match *match);
/* The program is in this epoch and will seek no earlier one: seekers of an earlier epoch need not wait for this peer. A seek for a
 * numbered epoch has the same effect. The limit is 2^63. */
void hv_match_reached(hv_match *match, uint64_t epoch);
/* The program missed a step and will return at this epoch, with the swarm's state: only there others wait for it, for 0.3 s. */
void hv_match_comes(hv_match *match, uint64_t epoch);
/* True if another peer missed a step and will return at this epoch. */
int hv_match_awaits(const hv_match *match, uint64_t epoch);
/* Takes this peer out until hv_match_reached or the next seek: no peer waits for it or uses it as host. The peers in its roster are
 * notified. Does nothing during a seek. */
void hv_match_step_aside(hv_match *match);
/* The number of other peers known to have another setup or other tensors. */
size_t hv_match_strangers(const hv_match *match);
/* The last difference found between this peer's setup and tensors and another's, in one sentence; "" for none. */
const char *hv_match_difference(const hv_match *match);

/* ---- seeks ---- */

/* A group: one block, freed with hv_mem_free. It is the same for all members, apart from `me` and the addresses in members[].at. */
typedef struct hv_match_group {
  uint8_t id[HV_ROUND_ID_SIZE];   /* of the round */
  const hv_round_member *members; /* spans are set; at.id is the identity, at.addr an address to try */
  const hv_span *gathers;         /* each member's gather data */
  size_t n_members;
  size_t me;     /* this peer's index */
  size_t leader; /* the coordinator's index: the first in the epoch's order that can be dialled */
} hv_match_group;

/* A search for a group. The caller owns the struct and keeps it unchanged until done, which is called exactly once, not from within
 * hv_match_seek_start. done may start the next seek. */
typedef struct hv_match_seek hv_match_seek;
struct hv_match_seek {
  /* HV_OK: `group` is given to the caller. Else group is NULL, and text says why in one sentence.
   * HV_TIMEOUT: fewer than min_group_size came within wait_ms, or all others average other tensors, or all are behind and not on
   * their way.
   * HV_EXISTS: others began this epoch without this peer; or (`further`) they are in later epochs, or more than a third of them
   * already had their group of this one, so there will be no other group (docs/design/matchmaking.md, "Epochs have an order").
   * HV_CANCELLED, HV_CLOSED, HV_NOMEM. */
  void (*done)(hv_match_seek *self, hv_status status, hv_match_group *group, const char *text);
  void *owner;
  hv_span epoch;     /* the epoch's name, on which members must agree: "5", or "5/1" for a second attempt; at most
                      * HV_MATCH_EPOCH_MAX bytes; empty: any peer that seeks now */
  uint32_t expected; /* members with which the group begins at once, this peer among them; 0: all that are declared and not gone */
  uint32_t wait_ms;  /* then it begins with those that are there, if they are min_group_size; 1 to HV_MATCH_WAIT_MAX_MS */
  hv_span gather;    /* sent to the other members; at most HV_MATCH_GATHER_MAX bytes, HV_MATCH_GATHERS_MAX for all together */
  int further;       /* set before done. 1: the others are in later epochs, or about to be */
  hv_match *match;   /* match's own; NULL while not under way */
};

/* The group that this node had of that epoch has come to nothing: another one may form. */
void hv_match_forget_begun(hv_match *match, hv_span epoch);

/* Starts a seek; a match has one at a time. A group may be sought ahead of time, because match knows nothing of data. Any error
 * (HV_STATE: another seek is under way, HV_INVALID: err says why): not started. */
hv_status hv_match_seek_start(hv_match *match, hv_match_seek *seek, hv_error *err);
/* Ends a seek with HV_CANCELLED within this call, and notifies its host. Does nothing if it is not under way. */
void hv_match_seek_cancel(hv_match_seek *seek);

/* ---- group bits ---- */

/* Writes a member's bits for its next round, as in Moshpit SGD: its place in the group becomes the last digit of a number with base
 * target_group_size, and the first digit goes. Members of one group get different digits if it has at most target_group_size
 * members. `out` gets as many characters as `bits` has, and a terminator. */
void hv_match_next_bits(hv_span bits, size_t target_group_size, const hv_match_group *group, char out[HV_MATCH_BITS_MAX + 1]);

#endif
