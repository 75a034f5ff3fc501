/* The hub's side of gifts: requests for states of trainers that only dial out, and the states that arrive.
 *
 * Room: core (uses env, dht, snapshot, gift, gift_turn).
 * Owner: node. The program gives the memory of a state, by hv_gift_take.
 * Thread: the hive thread; digests are made on the pool.
 * Limits: HV_GIFT_PREFIXES prefixes; of each, one state at a time, from the one giver that is asked, under its ticket, of at most
 * load.size_max bytes, and only while the program waits for it (hv_gift_take). All else is refused before its bytes come, on at
 * most HV_GIFT_REFUSALS streams. Waits: gift.h. Errors: hv_status from each function; a giver that is refused gets a status and one
 * sentence. Rules: docs/design/hub.md, "States of trainers that nobody can dial".
 */
#ifndef HV_CORE_TAKER_H
#define HV_CORE_TAKER_H

#include "core/dht/dht.h"
#include "core/state/gift_turn.h"
#include "core/state/state.h"

typedef struct hv_takers {
  hv_env *env;
  hv_dht *dht;
  struct hv_taker *first; /* prefixes */
  size_t n;
  struct hv_gift_arrival *arrivals; /* those under way, and streams that close */
  struct hv_gift_refusal *refusals;
  size_t n_refusals;
  char subkey[HV_BALLOT_SUBKEY_MAX];
  size_t subkey_size;
  int stopping;
} hv_takers;

/* Waits for the next state that a trainer gives. The caller owns the struct and keeps it until load.done, which is called once,
 * after the pool has let go of the memory. HV_OK: the state is whole, and its digests are those that the giver announced.
 * HV_CANCELLED: hv_takers_cancel, or the node's end. HV_CLOSED: hv_takers_fini. */
typedef struct hv_gift_take {
  /* As in hv_state_load: done, room, owner, prefix and size_max; set before done: manifest, epoch, digest, and donor, the giver.
   * room with manifest NULL: the memory is not used any more, because the state broke off. */
  hv_state_load load;
  uint8_t lineage[HV_GIFT_LINEAGE]; /* set before done */
  struct hv_taker *taker;           /* taker's own; NULL while not under way */
} hv_gift_take;

/* env and dht are borrowed until fini; me is this node. */
void hv_takers_init(hv_takers *takers, hv_env *env, hv_dht *dht, const hv_peer_id *me);
/* Frees everything; only when the world has ended. */
void hv_takers_fini(hv_takers *takers);
/* Ends all takes with HV_CANCELLED, and asks nobody any more. */
void hv_takers_stop(hv_takers *takers);
/* This peer has ended: it is not asked any more. */
void hv_takers_gone(hv_takers *takers, const hv_peer_id *id);
/* A peer opened a stream with HV_MSG_GIFT: takes or refuses it; or leaves stream->on NULL. */
void hv_takers_opened(hv_takers *takers, const hv_event *event);

/* Waits for a state. done is not called from within. HV_EXISTS: another one waits. Any error: nothing was started. */
hv_status hv_takers_take(hv_takers *takers, hv_gift_take *take, hv_error *err);
/* Ends a wait: done is called within this call, or when the pool has let go of the memory. Does nothing if it is over. */
void hv_takers_cancel(hv_takers *takers, hv_gift_take *take);

/* Takes the figures of a run as the hub knows them now: chooses whom to ask, and stores the request. Called each second. every:
 * epochs from one state to the next. figures.arrived and figures.lot are filled in here. HV_NOMEM, HV_TOO_LARGE, HV_INVALID,
 * HV_CLOSED. */
hv_status hv_takers_follow(hv_takers *takers, hv_span prefix, const hv_gift_figures *figures, uint64_t every, uint64_t size_max,
                           hv_error *err);
/* The words of a round: as hv_gift_turn_met. The giver's state comes under this ticket. Errors: as hv_takers_follow. */
hv_status hv_takers_met(hv_takers *takers, hv_span prefix, uint64_t epoch, const hv_peer_id *right, size_t n,
                        const hv_peer_id *giver, const uint8_t ticket[HV_GIFT_TICKET], hv_error *err);
/* The state that came last is of no use: its giver is not asked again until all others gave nothing. */
void hv_takers_refuse(hv_takers *takers, hv_span prefix);

/* The request for states of this prefix that stands. NULL: nobody is asked. */
const hv_gift_request *hv_takers_request(const hv_takers *takers, hv_span prefix);

#endif
