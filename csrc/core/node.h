/* What is a node? All rooms of the protocol under one roof, and one door for events: hv_node_step.
 *
 * Room: core (uses everything in core). Driven by a world through hv_core; asked by the program through commands, which run
 * in steps of their own (net/hive/hive.c), or by a scenario in the simulator.
 * Owns its rooms; borrows env. The hive thread only.
 */
#ifndef HV_CORE_NODE_H
#define HV_CORE_NODE_H

#include "core/average/average.h"
#include "core/dht/dht.h"
#include "core/match/match.h"
#include "core/peers/parcel.h"
#include "core/peers/peers.h"
#include "core/progress/progress.h"
#include "core/reduce/allreduce.h"
#include "core/state/state.h"

typedef struct hv_node hv_node;

typedef struct hv_node_config {
  hv_peer_id me;
  int client_mode;
  const hv_addr *announce; /* told to others instead of the addresses of HV_EVENT_START; copied */
  size_t n_announce;
  const hv_target *initial; /* copied */
  size_t n_initial;
  uint32_t hello_every_ms; /* 0: the room's own default; likewise below */
  uint32_t hello_timeout_ms;
  size_t peers_room;
  size_t parcel_max;          /* bytes of one parcel; 0: 1 GiB */
  size_t parcels_held_max;    /* bytes of all parcels waiting or under way; 0: 2 GiB */
  hv_dht_config dht;          /* me and client_mode are filled in */
  hv_state_config state;      /* likewise */
  void (*changed)(void *arg); /* peers came or went, or a parcel arrived; called within a step; may be NULL */
  void *arg;
} hv_node_config;

hv_status hv_node_new(hv_env *env, const hv_node_config *config, hv_node **out);
/* After the world has ended for this node (all completions delivered, or crashed). */
void hv_node_free(hv_node *node); /* NULL is fine */

/* The door. `node` is a hv_node: the signature is hv_core's. */
void hv_node_step(void *node, const hv_event *event);

hv_env *hv_node_env(hv_node *node);
hv_peers *hv_node_peers(hv_node *node);
hv_dht *hv_node_dht(hv_node *node);
hv_allreduce_registry *hv_node_registry(hv_node *node); /* where rounds of averaging begin */
hv_progress_registry *hv_node_progress(hv_node *node);  /* where the trackers of runs are opened */
hv_state *hv_node_state(hv_node *node);
hv_averages *hv_node_averages(hv_node *node);
hv_match_registry *hv_node_match_registry(hv_node *node); /* where groups form */
const hv_peer_id *hv_node_id(const hv_node *node);

/* The same bytes back from a peer that is known. call->done as in env.h: HV_OK with an echo, whose bytes are the right ones.
 * Not HV_OK: not started. */
typedef struct hv_node_echo {
  void (*done)(struct hv_node_echo *self, hv_status status, hv_span bytes, const char *text);
  void *owner;
  hv_peer_id to;
  hv_span bytes; /* borrowed until done */
  uint32_t timeout_ms;
  hv_cause cause; /* out, with done: of a failure; HV_CAUSE_OTHER: the status' own */
  hv_call call;   /* node's */
} hv_node_echo;
hv_status hv_node_echo_start(hv_node *node, hv_node_echo *echo);
void hv_node_echo_cancel(hv_node *node, hv_node_echo *echo);

/* Sends a parcel to a peer that is known (see parcel.h). */
hv_status hv_node_send_start(hv_node *node, hv_parcel_send *send, const hv_peer_id *to);
/* The oldest parcel that arrived, or NULL. */
hv_parcel *hv_node_take_parcel(hv_node *node);
void hv_node_return_parcel(hv_node *node, hv_parcel *parcel); /* not wanted after all: given back, as the oldest */

#endif
