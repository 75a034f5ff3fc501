/* The giver of a state: a trainer that only dials out looks for requests of hubs, and sends its state to them.
 *
 * Room: core (uses env, dht, peers, snapshot, gift).
 * Owner: node.
 * Thread: the hive thread; digests are made on the pool.
 * Limits: HV_GIFT_PREFIXES prefixes; of each, one state at a time, to HV_GIFT_HUBS hubs one after another. A piece is sent when the
 * stream has room for it, so one piece is held beside the program's own memory. Waits: gift.h.
 * Errors: hv_status from each function; the ends of hv_gift_wait and hv_gift_give.
 * Rules: docs/design/hub.md, "States of trainers that nobody can dial", rules 1 to 3.
 */
#ifndef HV_CORE_GIVER_H
#define HV_CORE_GIVER_H

#include "core/peers/peers.h"
#include "core/state/gift.h"
#include "core/state/state.h"

typedef struct hv_givers {
  hv_env *env;
  hv_dht *dht;
  hv_peers *peers;
  uint32_t chunk_bytes;   /* as in hv_state_config */
  struct hv_giver *first; /* prefixes */
  size_t n;
  struct hv_giving *givings; /* states under way, and streams that close */
  int stopping;
} hv_givers;

/* Waits until a hub asks for a state. The caller owns the struct and keeps it until done, which is called once. */
typedef struct hv_gift_wait hv_gift_wait;
struct hv_gift_wait {
  /* HV_OK: a hub asks, and the rest after the last gift is over. HV_CANCELLED: hv_givers_wait_end, or the node's end. HV_CLOSED:
   * hv_givers_fini. text: one sentence. */
  void (*done)(hv_gift_wait *self, hv_status status, const char *text);
  void *owner;
  hv_span prefix; /* borrowed until done */
  uint64_t least; /* set before done: the oldest epoch that is of use */
  int is_urgent;  /* the owner may set it at any time: somebody is on the way, so the rest is HV_GIFT_REST_URGENT */
};

/* A state to give. The caller owns the struct and keeps it until state.done, which is called once: HV_OK: all hubs have it.
 * HV_CANCELLED: a newer one came, or the end. Else: what kept one hub from it. */
typedef struct hv_gift_give {
  hv_state_offer state;           /* prefix, epoch, state_hash, bytes, parts, metadata, lineage, done and owner are used */
  const hv_peer_id *hubs;         /* NULL: the one whose request stands, as hv_gift_wait has told; copied */
  size_t n_hubs;                  /* at most HV_GIFT_HUBS */
  uint8_t ticket[HV_GIFT_TICKET]; /* for these hubs */
} hv_gift_give;

/* All arguments are borrowed until fini. chunk_bytes may be set afterwards. */
void hv_givers_init(hv_givers *givers, hv_env *env, hv_dht *dht, hv_peers *peers);
/* Frees everything; only when the world has ended. */
void hv_givers_fini(hv_givers *givers);
/* Ends all with HV_CANCELLED, and begins nothing any more. */
void hv_givers_stop(hv_givers *givers);
/* This peer has ended: nothing is sent to it any more. */
void hv_givers_gone(hv_givers *givers, const hv_peer_id *id);

/* Begins to look for requests under a prefix, and waits for one. done is not called from within. HV_EXISTS: another one waits.
 * Any error: nothing was started. */
hv_status hv_givers_wait(hv_givers *givers, hv_gift_wait *wait, hv_error *err);
/* Looks for no requests under a prefix any more: its wait and its gift end with HV_CANCELLED. */
void hv_givers_wait_end(hv_givers *givers, hv_span prefix);
/* Makes the digests and sends the state. done is not called from within. A gift of the prefix that is under way ends first.
 * HV_NOT_FOUND: without hubs, no request stands that this state answers. Any error: nothing was started. */
hv_status hv_givers_give(hv_givers *givers, hv_gift_give *give, hv_error *err);

#endif
