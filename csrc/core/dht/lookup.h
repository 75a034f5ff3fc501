/* Who are the nodes nearest to a point? Kademlia's iterative lookup, over disjoint paths.
 *
 * Room: core (uses ask, route). Started by dht; the hive thread only. Owned by whoever started it until hv_lookup_end.
 * It begins with the nearest contacts of the table and asks the nearest it was told of, `parallel` at once, until the `width`
 * nearest that answer have all been asked. It never waits for a round: whoever answers late is overtaken by the next, and in the
 * end is waited for only a while (PATIENCE times what was late, a second at least): the call goes on, and its failure is still
 * learned from. Over disjoint paths (S/Kademlia, Baumgart, Mies 2007): the first contacts are dealt out to `paths`, and whoever a
 * node tells of is on its path; each path is brought to its end by itself, so that a liar leads astray only its own. Then the paths
 * are joined. A node whose contacts fail is a bad guide: after BAD_GUIDE failures and not one that answered, the rest of what it
 * said waits until nothing else is left to ask (when half a swarm has died, an honest guide looks like that, too). `depth` is how
 * many answers in a row led to a node (1: from the table): the lookup's rounds. Limits: ROOM nodes are looked at, CALLS calls made.
 */
#ifndef HV_CORE_LOOKUP_H
#define HV_CORE_LOOKUP_H

#include "core/dht/ask.h"

#define HV_LOOKUP_ROOM 224
#define HV_LOOKUP_CALLS 200
#define HV_LOOKUP_PATHS_MAX 4

typedef struct hv_lookup hv_lookup;

typedef enum hv_lookup_state {
  HV_LOOKUP_TOLD, /* somebody spoke of it */
  HV_LOOKUP_ASKED,
  HV_LOOKUP_LATE, /* asked, and others are asked meanwhile */
  HV_LOOKUP_ANSWERED,
  HV_LOOKUP_FAILED
} hv_lookup_state;

typedef struct hv_lookup_node {
  hv_peer_id id;
  hv_hash distance; /* to the target */
  uint8_t state, path, depth, addrs_size;
  uint8_t failed, answered; /* of those it told of */
  int16_t guide;            /* who told of it; -1: the table */
  uint64_t asked_us, late_us, hopeless_us;
  hv_ask *ask;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
} hv_lookup_node;

typedef struct hv_lookup_config {
  hv_hash target, key;
  int want_records;
  size_t width;    /* how many of the nearest must have answered */
  size_t parallel; /* calls at once, all paths together */
  size_t paths;
  hv_hash near; /* whoever is not farther from the target is asked beyond `parallel`: what is looked for should be there */
  hv_span me;   /* my packed addresses; borrowed until the end */
  int own_only; /* asks the `width` nearest of the table for records and for nobody else; whoever is late is not waited for */
  /* A node answered. It may call hv_lookup_end. May be NULL. */
  void (*heard)(void *owner, hv_lookup *lookup, const hv_lookup_node *node, const hv_msg_found *found);
  /* Nothing is left to ask; called once, never after hv_lookup_end. */
  void (*done)(void *owner, hv_lookup *lookup);
  void *owner;
} hv_lookup_config;

struct hv_lookup {
  hv_asker *asker;
  hv_lookup_config config;
  hv_timer timer;
  size_t n, calls, waiting; /* waiting: asked and not late */
  int joined;               /* the paths are one now */
  int desperate;            /* and what bad guides said is tried, too */
  int in_hand;              /* being worked on: hv_lookup_end only marks */
  int ended, finished;
  uint16_t order[HV_LOOKUP_ROOM]; /* nearest first */
  hv_lookup_node nodes[HV_LOOKUP_ROOM];
};

/* Starts; done may come before this returns HV_OK only if nobody can be asked: then *out is set already. HV_NOMEM. */
hv_status hv_lookup_start(hv_asker *asker, const hv_lookup_config *config, hv_lookup **out);
/* Gives it back; what is still under way teaches the table and nobody else. */
void hv_lookup_end(hv_lookup *lookup);

/* What is looked for has been found: the paths join, and all the nearest are asked at once. For heard(); takes effect when it
 * returns. */
void hv_lookup_hurry(hv_lookup *lookup);
/* The i-th nearest that answered, or NULL. */
const hv_lookup_node *hv_lookup_nearest(const hv_lookup *lookup, size_t i);
/* Likewise of all that somebody spoke of and that have not failed, asked or not. */
const hv_lookup_node *hv_lookup_told(const hv_lookup *lookup, size_t i);
hv_span hv_lookup_addrs(const hv_lookup_node *node);

#endif
