/* A node: all parts of the protocol in one object, driven by hv_node_step.
 *
 * Room: core (uses everything in core). A world drives it through hv_core. The program asks through commands, which run in steps
 * of their own (net/hive/hive.c); in the simulator a scenario asks.
 * Owner: the code that made it; it owns its parts and borrows env.
 * Thread: the hive thread only.
 */
#ifndef HV_CORE_NODE_H
#define HV_CORE_NODE_H

#include "core/average/average.h"
#include "core/dht/dht.h"
#include "core/match/match.h"
#include "core/peers/parcel.h"
#include "core/peers/peers.h"
#include "core/peers/spread.h"
#include "core/progress/progress.h"
#include "core/reduce/allreduce.h"
#include "core/state/giver.h"
#include "core/state/state.h"
#include "core/state/taker.h"

typedef struct hv_node hv_node;

#define HV_NODE_STRANGE_PARCELS ((size_t)256 << 20)

/* Settings of a node; 0 selects a default where one is named. */
typedef struct hv_node_config {
  hv_peer_id me;
  int client_mode;
  const hv_addr *announce; /* addresses to announce instead of those of HV_EVENT_START; copied */
  size_t n_announce;
  const hv_target *initial; /* copied */
  size_t n_initial;
  uint32_t hello_every_ms; /* 0: the default of core/peers; the same for the two below */
  uint32_t hello_timeout_ms;
  size_t peers_room;
  size_t parcel_max;       /* bytes of one parcel; 0: 1 GiB */
  size_t parcels_held_max; /* bytes of all parcels that wait or are under way; 0: 2 GiB */
  size_t
      parcels_strange_max; /* of those, bytes from peers that are not trusted; 0: HV_NODE_STRANGE_PARCELS, or half of all if less */
  hv_dht_config dht;       /* me and client_mode are filled in */
  hv_state_config state;   /* the same */
  void (*changed)(void *arg); /* called within a step when peers came or went, or a parcel arrived; may be NULL */
  /* Within a step: this node's addresses now, and where initial peers see it (kind HV_ADDR_NONE: not known). May be NULL. */
  void (*announces)(void *arg, const hv_addr *addrs, size_t n_addrs, const hv_addr *seen);
  void (*moved)(void *arg); /* within a step: this machine's network has changed; may be NULL */
  void *arg;
} hv_node_config;

/* HV_NOMEM: nothing to free. */
hv_status hv_node_new(hv_env *env, const hv_node_config *config, hv_node **out);
/* Frees it, after its world has delivered all completions or has crashed. */
void hv_node_free(hv_node *node); /* NULL is fine */

/* Handles one event. `node` is a hv_node; the signature is that of hv_core.step. */
void hv_node_step(void *node, const hv_event *event);

/* The node's parts, borrowed. */
hv_env *hv_node_env(hv_node *node);
hv_peers *hv_node_peers(hv_node *node);
hv_spread *hv_node_spread(hv_node *node);
hv_dht *hv_node_dht(hv_node *node);
hv_allreduce_registry *hv_node_registry(hv_node *node); /* where rounds of averaging begin */
hv_progress_registry *hv_node_progress(hv_node *node);  /* where the trackers of runs are opened */
hv_state *hv_node_state(hv_node *node);
hv_givers *hv_node_givers(hv_node *node); /* states given to hubs */
hv_takers *hv_node_takers(hv_node *node); /* states that this node takes as a hub */
hv_averages *hv_node_averages(hv_node *node);
hv_match_registry *hv_node_match_registry(hv_node *node); /* where groups form */
const hv_peer_id *hv_node_id(const hv_node *node);

/* A gateway has opened this address for the node, which announces it as soon as a peer has dialled it. NULL: it has none any more.
 */
void hv_node_opened(hv_node *node, const hv_addr *addr);

/* One echo call to a known peer: the caller's struct, alive until done. */
typedef struct hv_node_echo {
  void (*done)(struct hv_node_echo *self, hv_status status, hv_span bytes, const char *text);
  void *owner;
  hv_peer_id to;
  hv_span bytes; /* borrowed until done */
  uint32_t timeout_ms;
  hv_cause cause; /* out, at done: the cause of a failure; HV_CAUSE_OTHER: hv_cause_of the status */
  hv_call call;   /* node's, as the next one */
  int cancelled;
} hv_node_echo;
/* Starts the call. HV_OK at done: the same bytes came back. HV_CANCELLED: by hv_node_echo_cancel. HV_CLOSED: the connection ended.
 * Not HV_OK here: not started, done never comes. */
hv_status hv_node_echo_start(hv_node *node, hv_node_echo *echo);
void hv_node_echo_cancel(hv_node *node, hv_node_echo *echo);

/* Sends a parcel to a peer that is known (see parcel.h). */
hv_status hv_node_send_start(hv_node *node, hv_parcel_send *send, const hv_peer_id *to);
/* The oldest parcel that arrived, or NULL. */
hv_parcel *hv_node_take_parcel(hv_node *node);
/* Gives a parcel back unread; it is the oldest again. */
void hv_node_return_parcel(hv_node *node, hv_parcel *parcel);

#endif
