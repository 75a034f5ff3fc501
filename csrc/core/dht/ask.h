/* How do I ask a node of the DHT one thing? One question, all its addresses, and what the answer teaches the routing table.
 *
 * Room: core (uses env, contact, route). Owned by dht, used by lookup, dht and keep; the hive thread only.
 * Whoever answers is entered into the routing table with the address that worked; whoever does not is silent there.
 * Questions to one node go together: while a call to it is under way, FINDs and STOREs wait until it is answered, or for HOLD_US,
 * and leave as one call. So whoever asks little never waits, and whoever asks much needs few calls.
 * Owns the questions under way; a question's `done` comes exactly once, unless it was dropped.
 */
#ifndef HV_CORE_ASK_H
#define HV_CORE_ASK_H

#include "core/dht/route.h"

#define HV_ASK_ADDRS_MAX 4 /* of one node that are tried */

typedef struct hv_asker hv_asker;
typedef struct hv_ask hv_ask;

/* msg is the answer, or NULL with a status and a sentence. */
typedef void hv_ask_done(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text);

struct hv_asker {
  hv_env *env;
  hv_route *route;
  uint32_t timeout_ms;                                                    /* for each address */
  uint32_t rtt_us;                                                        /* smoothed, of all */
  struct hv_ask_call *calls;                                              /* under way */
  struct hv_ask_line *lines;                                              /* nodes that calls are under way to */
  uint64_t asked, called;                                                 /* questions and calls so far */
  int closing;                                                            /* no more questions */
  void (*answered)(void *arg, const hv_peer_id *id, const hv_hash *hash); /* after the routing table has heard of it; may be NULL */
  void *arg;
};

void hv_asker_init(hv_asker *asker, hv_env *env, hv_route *route, uint32_t timeout_ms);
/* Frees what is under way: only when its world is dead, or has delivered all completions. */
void hv_asker_fini(hv_asker *asker);
/* Cancels everything and starts nothing any more; completions still come, those of questions that have not left at once. */
void hv_asker_close(hv_asker *asker);

/* Asks. If `keep` is 0 msg's spans are borrowed during this function only and just one address is tried; otherwise until done.
 * owner and mark are handed to done. Not HV_OK: done will not come. *out (may be NULL) is good until done. */
hv_status hv_asker_ask(hv_asker *asker, const hv_peer_id *id, hv_span addrs, const hv_msg *msg, int keep, hv_ask_done *done,
                       void *owner, size_t mark, hv_ask **out);

/* Its owner is not interested any more: done will not come; the call is cancelled. */
void hv_ask_drop(hv_ask *ask);
/* Its owner is not interested any more, but the answer may still teach the routing table. */
void hv_ask_forget(hv_ask *ask);

/* After how long an answer of this node is so late that another one should be asked meanwhile. */
uint64_t hv_asker_late_us(const hv_asker *asker, const hv_peer_id *id);

#endif
