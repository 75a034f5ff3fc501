/* One question to one node of the DHT, over all its addresses; the result updates the routing table.
 *
 * Room: core (uses env, contact, route). Used by the dht*.c files and lookup.
 * Owner: dht. It owns the questions under way. `done` of a question comes exactly once, unless the question was dropped.
 * Thread: the hive thread only.
 * Limits: HV_ASK_ADDRS_MAX addresses of a node are tried.
 * A node that answers enters the routing table with the address that worked; a node that does not is marked silent there.
 * While a call to a node is under way, further FINDs and STOREs for it wait, at most 2 ms, and leave together as one call.
 */
#ifndef HV_CORE_ASK_H
#define HV_CORE_ASK_H

#include "core/dht/route.h"

#define HV_ASK_ADDRS_MAX 4 /* addresses of one node that are tried */

typedef struct hv_asker hv_asker;
typedef struct hv_ask hv_ask; /* one question */

/* Called with the answer in msg, or with msg NULL, a status and a sentence. owner and mark are those of hv_asker_ask. */
typedef void hv_ask_done(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text);

/* All questions of a node. */
struct hv_asker {
  hv_env *env;
  hv_route *route;
  uint32_t timeout_ms;         /* for each address */
  uint32_t rtt_us;             /* smoothed round trip, over all nodes */
  struct hv_ask_call *calls;   /* under way */
  struct hv_ask_queue *queues; /* nodes to which calls are under way */
  uint64_t asked, called;      /* number of questions and calls so far */
  int closing;                 /* 1: no further questions */
  void (*answered)(void *arg, const hv_peer_id *id,
                   const hv_hash *hash); /* called after the routing table was updated; may be NULL */
  void *arg;
};

/* env and route are borrowed until fini. */
void hv_asker_init(hv_asker *asker, hv_env *env, hv_route *route, uint32_t timeout_ms);
/* Frees all questions, after the world has crashed or delivered all completions. */
void hv_asker_fini(hv_asker *asker);
/* Cancels all questions and starts none any more. Completions still come; those of questions that wait come at once. */
void hv_asker_close(hv_asker *asker);

/* Asks a node at its packed addresses. If `keep` is 0, msg's spans are borrowed during this function and one address is tried. Else
 * they are borrowed until done, and all addresses are tried. *out (may be NULL) is valid until done. Not HV_OK: done never comes.
 */
hv_status hv_asker_ask(hv_asker *asker, const hv_peer_id *id, hv_span addrs, const hv_msg *msg, int keep, hv_ask_done *done,
                       void *owner, size_t mark, hv_ask **out);

/* Ends a question: the call is cancelled and done never comes. */
void hv_ask_drop(hv_ask *ask);
/* Detaches a question from its owner: done never comes, but the answer still updates the routing table. */
void hv_ask_forget(hv_ask *ask);

/* Time after which an answer of this node is late, so that another node should be asked meanwhile. */
uint64_t hv_asker_late_us(const hv_asker *asker, const hv_peer_id *id);

#endif
