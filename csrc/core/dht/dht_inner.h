/* What is a DHT node made of? Shared by the dht*.c files only; core/dht/dht.h is the contract.
 *
 * dht.c: life, serving, whom it knows. dht_work.c: what every op goes through, lookups and regions. dht_get.c, dht_put.c: the two
 * ops. dht_keep.c: what happens by itself: refresh, retries, republishing, replication.
 */
#ifndef HV_CORE_DHT_INNER_H
#define HV_CORE_DHT_INNER_H

#include "core/dht/dht.h"

#define DHT_REGIONS 4                    /* extra lookups when a point is crowded */
#define DHT_TARGETS_MAX HV_DHT_SPOTS_MAX /* nodes that one store is offered to, at most */
#define DHT_PUBLISHED_CHAINS 1024
#define DHT_PUBLISHED_MAX 65536

typedef struct hv_dht_work dht_work;

typedef struct dht_target {
  hv_peer_id id;
  hv_hash distance;
  uint8_t addrs_size, state; /* hv_lookup_state; the node itself has no addresses */
  uint64_t late_us;
  hv_ask *ask;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
} dht_target;

/* A record that this node says again until its end. */
typedef struct dht_published {
  struct dht_published *next; /* in its chain */
  hv_dht_item item;           /* spans into bytes */
  hv_span key;
  uint64_t end_us, due_us, version, nth; /* nth: of the work that stored it */
  dht_work *work;                        /* being said again now */
  uint8_t stale;                         /* replaced meanwhile: goes when work has ended */
  uint8_t bytes[];
} dht_published;

typedef enum dht_phase { DHT_WAITING, DHT_KNOWING, DHT_LOOKING, DHT_REGION, DHT_STORING, DHT_PHASES } dht_phase;

struct hv_dht_work {
  dht_work *next, **where;
  hv_dht *dht;
  hv_dht_op *op;                                                      /* NULL: the node's own wish */
  dht_published *published;                                           /* of a republication */
  void (*finish)(dht_work *work, hv_status status, const char *text); /* ends it; frees it */
  hv_timer timer;
  dht_phase phase;
  hv_hash place;
  hv_span key;
  uint64_t started_us, ends_us, nth; /* nth: in the order of their beginnings */
  int is_get, crowded, in_hand, over;
  int known;     /* whom it asks is taken from the table alone, or was found by an earlier work */
  hv_status why; /* while in hand: what it is to end with */
  const char *why_text;
  double bits;            /* of how far the num_replicas-th node may be expected; 0: not known */
  size_t n_lookups, open; /* open: lookups not done */
  hv_lookup *lookups[1 + DHT_REGIONS];
  unsigned rounds, calls;
  /* get */
  hv_gather gather;
  hv_hash replicas; /* where they may be expected */
  hv_hash near;     /* voices not farther than this may end it early */
  hv_record *found;
  size_t n_found, found_room;
  /* store */
  hv_record *records;
  hv_status *statuses;
  hv_dht_item *items;
  size_t n_records;
  uint64_t *newer; /* the highest version that stood in the way, for each */
  size_t n_targets, wanted, acks, asking, tries;
  dht_target targets[]; /* DHT_TARGETS_MAX for a store, none for a get */
};

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
  hv_lookup *looks[3];             /* the node's own: around itself, and two refreshes */
  size_t look_buckets[3];          /* where they look */
  int looked;                      /* it has looked around itself */
  uint64_t look_us, look_pause_us; /* when it looks around itself next */
  size_t look_n;                   /* contacts, as of the last answer */
  uint64_t wake_us;                /* the timer's */
  size_t pings, checks;            /* under way: questions to those who may be worth knowing, and to those who may be gone */
  size_t replicate_at;
  uint64_t replicate_us;
  uint64_t salt[2];
  dht_published *published[DHT_PUBLISHED_CHAINS];
  size_t n_published, publish_at;
};

/* ---- dht_work.c ---- */
/* A work with room for `targets`; it begins in a step of its own, with begin(work). */
dht_work *dht_work_new(hv_dht *dht, hv_dht_op *op, hv_span key, uint32_t timeout_ms, size_t targets);
/* 1: the nodes nearest to its place are known, of a store into a crowd also those of the region (`crowded` is set then): nobody has
 * to be asked for them. */
int dht_work_knows(dht_work *work);
/* Asks the `width` nearest that are known what they keep; then, unless that was enough, dht_work_look. */
void dht_work_ask_known(dht_work *work, size_t width);
/* Looks for the nearest nodes, and the region if they stand too densely; then looked(work). */
void dht_work_look(dht_work *work);
/* Ends it (at once, or as soon as it is out of hand): finish is called. */
void dht_work_end(dht_work *work, hv_status status, const char *text);
/* For finish: takes it out of the list, drops its lookups and asks, and frees it. */
void dht_work_free(dht_work *work);
/* Sets its timer for due_us or its end, whichever is sooner. */
void dht_work_arm(dht_work *work, uint64_t due_us);
/* The shortest prefix that a region shares with its place. */
int dht_region_bits(const dht_work *work);
/* The distance whose -log2 is bits; <= 0: any. */
void dht_bound(double bits, hv_hash *out);
double dht_bits_of(const hv_hash *distance);

/* ---- dht_get.c, dht_put.c: what a work does next ---- */
void dht_get_heard(void *owner, hv_lookup *lookup, const hv_lookup_node *node, const hv_msg_found *found);
void dht_get_begin(dht_work *work);
void dht_get_looked(dht_work *work);
void dht_put_looked(dht_work *work);
void dht_put_known(dht_work *work);
int dht_put_there(dht_work *work); /* 1: it goes where the last one went */
void dht_put_tick(dht_work *work, uint64_t now_us);
hv_status dht_put_again(hv_dht *dht, dht_published *published); /* starts a republication */
void dht_publish(hv_dht *dht, const dht_work *work);

/* ---- dht_keep.c ---- */
void dht_keep_start(hv_dht *dht);
void dht_keep_stop(hv_dht *dht);
void dht_keep_fini(hv_dht *dht);
/* Looks around soon if few are known, or nobody was ever looked for where this one stands. */
void dht_keep_new_contact(hv_dht *dht, const hv_hash *hash);
/* Finds the publication of (key, subkey); *at is where it hangs. */
dht_published **dht_published_at(hv_dht *dht, hv_span key, const hv_dht_item *item);

/* Asks a node whether it is there. */
void dht_ping(hv_dht *dht, const hv_peer_id *id, hv_span addrs);
void dht_ping_contact(hv_dht *dht, const hv_route_contact *contact);

#endif
