/* The search for the nodes nearest to a point: Kademlia's iterative lookup, over disjoint paths.
 *
 * Room: core (uses ask, route).
 * Owner: the code that started it (dht), until hv_lookup_end.
 * Thread: the hive thread only.
 * Limits: HV_LOOKUP_ROOM nodes are considered, HV_LOOKUP_CALLS calls are made.
 * Rules: docs/design/dht.md, "A lookup".
 * Paper: Kademlia (Maymounkov, Mazieres 2002); S/Kademlia (Baumgart, Mies 2007) for the disjoint paths.
 */
#ifndef HV_CORE_LOOKUP_H
#define HV_CORE_LOOKUP_H

#include "core/dht/ask.h"

#define HV_LOOKUP_ROOM 224
#define HV_LOOKUP_CALLS 200
#define HV_LOOKUP_PATHS_MAX 4

typedef struct hv_lookup hv_lookup;

typedef enum hv_lookup_state {
  HV_LOOKUP_KNOWN, /* named by another node or the routing table, not asked yet */
  HV_LOOKUP_ASKED,
  HV_LOOKUP_LATE, /* asked, and late: others are asked meanwhile */
  HV_LOOKUP_ANSWERED,
  HV_LOOKUP_FAILED
} hv_lookup_state;

/* One node that a lookup knows. */
typedef struct hv_lookup_node {
  hv_peer_id id;
  hv_hash distance;                        /* to the target */
  uint8_t state, path, depth, addrs_size;  /* depth: answers in a row that led to it; 1: from the table */
  uint8_t failed, answered;                /* number of the nodes named by it that failed, answered */
  int16_t guide;                           /* index of the node that named it; -1: the table */
  uint64_t asked_us, late_us, hopeless_us; /* time of the question; times from which it is late, and no longer waited for */
  hv_ask *ask;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
} hv_lookup_node;

typedef struct hv_lookup_config {
  hv_hash target, key; /* point whose nearest nodes are searched; key whose records are asked for */
  int want_records;    /* 1: nodes are also asked for records of key */
  size_t width;        /* number of nearest nodes that must have answered */
  size_t parallel;     /* calls at once, all paths together */
  size_t paths;        /* disjoint paths */
  hv_hash near;        /* nodes within this distance of the target are asked even beyond `parallel`: they should keep the records */
  hv_span me;          /* this node's packed addresses; borrowed until the end */
  int own_only;        /* 1: asks the table's `width` nearest for records only, and does not wait for late ones */
  /* A node answered. It may call hv_lookup_end. May be NULL. */
  void (*heard)(void *owner, hv_lookup *lookup, const hv_lookup_node *node, const hv_msg_found *found);
  /* The lookup is complete; called once, never after hv_lookup_end. */
  void (*done)(void *owner, hv_lookup *lookup);
  void *owner;
} hv_lookup_config;

struct hv_lookup {
  hv_asker *asker;
  hv_lookup_config config;
  hv_timer timer;
  size_t n, calls, waiting; /* nodes; calls made; calls that are under way and not late */
  int joined;               /* 1: the paths have been joined */
  int desperate;            /* 1: nodes named by bad guides are asked, too */
  int in_hand;              /* 1: a callback runs, so hv_lookup_end only marks */
  int ended, finished;
  uint16_t order[HV_LOOKUP_ROOM]; /* nearest first */
  hv_lookup_node nodes[HV_LOOKUP_ROOM];
};

/* Starts a lookup. If no node can be asked, done comes before this returns HV_OK; *out is set before. HV_NOMEM: not started. */
hv_status hv_lookup_start(hv_asker *asker, const hv_lookup_config *config, hv_lookup **out);
/* Frees the lookup. Answers to its open questions still update the routing table. */
void hv_lookup_end(hv_lookup *lookup);

/* The record has been found: joins the paths and asks all nearest nodes at once. For heard(); takes effect when that returns. */
void hv_lookup_hurry(hv_lookup *lookup);
/* The i-th nearest that answered, or NULL. */
const hv_lookup_node *hv_lookup_nearest(const hv_lookup *lookup, size_t i);
/* The i-th nearest of all known nodes that have not failed, asked or not, or NULL. */
const hv_lookup_node *hv_lookup_known(const hv_lookup *lookup, size_t i);
/* A node's packed addresses, borrowed from it. */
hv_span hv_lookup_addrs(const hv_lookup_node *node);

#endif
