/* The types and functions that the dht*.c files share.
 *
 * Room: core. Private to the dht*.c files; core/dht/dht.h is the contract.
 * Owner and thread: those of dht.h.
 * dht.c: the node's life, and its answers to questions. dht_asked.c: the check of records that others send. dht_work.c: what stores
 * and gets share (lookups, regions). dht_get.c, dht_put.c: the two kinds of op, which dht_work.c calls through dht_work_ops.
 * dht_ping.c: questions to new nodes. dht_published.c: the records that this node republishes. dht_keep.c: refresh, retries,
 * republishing, replication.
 */
#ifndef HV_CORE_DHT_INNER_H
#define HV_CORE_DHT_INNER_H

#include "core/dht/dht.h"

#define DHT_REGIONS 4                    /* additional lookups when a point is crowded */
#define DHT_TARGETS_MAX HV_DHT_SPOTS_MAX /* most nodes to which one store is offered */
#define DHT_PINGS_MAX 16                 /* pings to new nodes under way */
#define DHT_PUBLISHED_CHAINS 1024
#define DHT_PUBLISHED_MAX 65536

typedef struct hv_dht_work dht_work;
typedef struct dht_asked dht_asked; /* dht_asked.c */

/* A node to which a store is offered. */
typedef struct dht_target {
  hv_peer_id id;
  hv_hash distance;
  uint8_t addrs_size, state; /* hv_lookup_state; the node itself has no addresses */
  uint64_t late_us;
  hv_ask *ask;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
} dht_target;

/* A record that this node republishes until its end. */
typedef struct dht_published {
  struct dht_published *next; /* in its chain */
  hv_dht_item item;           /* spans into bytes */
  hv_span key;
  uint64_t end_us, due_us, version, nth; /* nth: that of the work that stored it */
  dht_work *work;                        /* the republication under way, or NULL */
  uint8_t stale;                         /* 1: replaced meanwhile; freed when work has ended */
  uint8_t bytes[];
} dht_published;

typedef enum dht_phase { DHT_WAITING, DHT_KNOWING, DHT_LOOKING, DHT_REGION, DHT_STORING, DHT_PHASES } dht_phase;

/* The steps of one kind of work, called by dht_work.c. Each may end the work. */
typedef struct dht_work_ops {
  /* The first step. */
  void (*begin)(dht_work *work);
  /* A node answered a lookup of this work (hv_lookup_config.heard). May be NULL. */
  void (*heard)(void *work, hv_lookup *lookup, const hv_lookup_node *node, const hv_msg_found *found);
  /* An answer of the gather has been closed, after some steps if it waited. NULL: it has no gather. */
  void (*checked)(dht_work *work, hv_lookup *lookup, size_t answer, unsigned depth, int waited);
  /* All lookups have ended. */
  void (*looked)(dht_work *work);
  /* The timer fired in the phase DHT_STORING. NULL: never in that phase. */
  void (*storing)(dht_work *work, uint64_t now_us);
  /* The work has ended with this status: reports it to its op, and frees the work. */
  void (*finish)(dht_work *work, hv_status status, const char *text);
} dht_work_ops;

/* A store, a get or a republication under way. */
struct hv_dht_work {
  dht_work *next, **where;
  hv_dht *dht;
  const dht_work_ops *ops;
  hv_dht_op *op;            /* NULL: started by the node itself */
  dht_published *published; /* of a republication */
  hv_timer timer;
  dht_phase phase;
  hv_hash place;
  hv_span key;
  uint64_t started_us, ends_us, nth; /* nth: serial number */
  int is_get, crowded;               /* crowded: nodes stand too densely around its place */
  int in_hand, over;                 /* in_hand: a callback runs, so its end waits; over: it has ended */
  int known;                         /* 1: the nodes it asks come from the table, or from an earlier work, without a lookup */
  hv_status why;                     /* while in hand: the status with which it ends afterwards */
  const char *why_text;
  double bits;            /* expected distance of the num_replicas-th node (hv_route_bits); 0: not known */
  size_t n_lookups, open; /* open: lookups not done */
  hv_lookup *lookups[1 + DHT_REGIONS];
  unsigned rounds, calls;
  /* get */
  hv_gather gather;
  hv_hash replicas; /* distance within which replicas are expected */
  hv_hash near;     /* answers of nodes within this distance may end it early */
  hv_record *found;
  size_t n_found, found_room;
  size_t waiting, waiting_bytes; /* answers whose records wait for their check (dht_asked.c) */
  /* store */
  hv_record *records;
  hv_status *statuses;
  hv_dht_item *items;
  size_t n_records;
  uint64_t *newer; /* for each record: the highest version that stood in the way */
  size_t n_targets, wanted, acks, asking, tries;
  dht_target targets[]; /* DHT_TARGETS_MAX for a store, none for a get */
};

/* Records that are checked: those that other peers bring, answers to this node's gets, and those that trusted peers bring. */
enum { DHT_STRANGERS, DHT_ANSWERS, DHT_TRUSTED, DHT_CLASSES };

struct hv_dht {
  hv_env *env;
  hv_dht_config config;
  hv_route route;
  hv_store store, cache;
  hv_asker asker;
  uint8_t me[HV_CONTACT_ADDRS_MAX];
  uint8_t me_size;
  int started, stopping;
  dht_work *works; /* the newest first */
  uint64_t n_works;
  hv_timer timer;
  hv_lookup *looks[3];             /* the node's own lookups: one for its own place, and two refreshes */
  size_t look_buckets[3];          /* their buckets */
  int looked;                      /* 1: a lookup of its own place has ended */
  uint64_t look_us, look_pause_us; /* time of the next lookup of its own place, and the pause after it */
  size_t look_n;                   /* number of contacts at the last answer */
  uint64_t wake_us;                /* time for which the timer is set */
  size_t pings, checks;            /* pings under way to new nodes, and to contacts that may have ended */
  size_t replicate_at;
  uint64_t replicate_us;
  uint64_t salt[2];
  dht_published *published[DHT_PUBLISHED_CHAINS];
  size_t n_published, publish_at;
  dht_asked *asked[DHT_CLASSES]; /* messages that wait for their check, the next one first */
  hv_timer asked_timer;
  uint64_t spent_us; /* start of the time in which `spent` was spent */
  size_t spent[DHT_CLASSES];
};

/* ---- dht_work.c ---- */
/* A new work of a kind, with room for `targets` targets. It begins in a later step. NULL: no memory. */
dht_work *dht_work_new(hv_dht *dht, const dht_work_ops *ops, hv_dht_op *op, hv_span key, uint32_t timeout_ms, size_t targets);
/* True if the table knows the nodes nearest to its place; for a store into a crowd also those of the region (sets `crowded`). */
int dht_work_knows(dht_work *work);
/* Asks the `width` nearest known nodes for records; if that is not enough, dht_work_look follows. */
void dht_work_ask_known(dht_work *work, size_t width);
/* Searches the nearest nodes, and the region if they stand too densely; then the op's `looked` follows. */
void dht_work_look(dht_work *work);
/* Continues it after its lookups, if no answer waits for its check any more. */
void dht_work_proceed(dht_work *work);
/* Ends it, at once or after the callback that runs: finish is called. */
void dht_work_end(dht_work *work, hv_status status, const char *text);
/* For finish: removes it from the list, drops its lookups and questions, and frees it. */
void dht_work_free(dht_work *work);
/* Sets its timer for due_us or its end, the earlier of the two. */
void dht_work_arm(dht_work *work, uint64_t due_us);
/* Number of leading bits that all points of the region share with its place. */
int dht_region_bits(const dht_work *work);
/* *out: the distance whose -log2 is bits; bits <= 0: the largest. dht_bits_of is the inverse. */
void dht_bound(double bits, hv_hash *out);
double dht_bits_of(const hv_hash *distance);

/* ---- dht_asked.c ---- */
/* No step checks more than 32 signatures. Other peers and answers to this node's gets leave a quarter of the checks to trusted
 * peers. */
/* Answers a STORE, at once or after some steps. */
void dht_asked_store(hv_dht *dht, const hv_event *event);
/* Adds the records of an open answer to the gather of a get. At once or after some steps it closes the answer and calls
 * its op `checked`; records beyond HV_GATHER_BYTES_MAX are ignored. depth: that of the answering node. */
void dht_asked_answer(dht_work *work, hv_lookup *lookup, size_t answer, unsigned depth, const hv_msg_found *found);
/* Drops the answers of a get that ends. */
void dht_asked_forget(dht_work *work);
/* Drops all messages that wait. STOREs are refused with this reason; NULL: the world has ended. */
void dht_asked_end(hv_dht *dht, const char *why);

/* ---- dht_put.c ---- */
/* Starts a republication. HV_NOMEM, or the status of the signature: not started. */
hv_status dht_put_again(hv_dht *dht, dht_published *published);

/* ---- dht_published.c ---- */
/* Notes the records of a finished store, to republish them until their end. */
void dht_publish(hv_dht *dht, const dht_work *work);
/* Removes a publication from its chain, and frees it, or has its republication free it. */
void dht_withdraw(hv_dht *dht, dht_published **at);
/* Time of the next republication of a record that ends at end_us; UINT64_MAX: none. */
uint64_t dht_published_due_us(uint64_t now_us, uint64_t ttl_ms, uint64_t end_us);
/* The link to the publication of (key, subkey); *link is NULL if there is none. */
dht_published **dht_published_at(hv_dht *dht, hv_span key, const hv_dht_item *item);
void dht_published_fini(hv_dht *dht);

/* ---- dht_keep.c ---- */
void dht_keep_start(hv_dht *dht);
void dht_keep_stop(hv_dht *dht);
/* A new contact: plans a lookup if few nodes are known, or if its bucket was never searched. */
void dht_keep_new_contact(hv_dht *dht, const hv_hash *hash);

/* ---- dht_ping.c ---- */
/* Asks a node whether it lives. */
void dht_ping(hv_dht *dht, const hv_peer_id *id, hv_span addrs);
void dht_ping_contact(hv_dht *dht, const hv_route_contact *contact);
/* A node that asks may be worth knowing: it is, if it answers. */
void dht_consider(hv_dht *dht, const hv_peer_id *peer, const hv_addr *seen, hv_span addrs);

#endif
