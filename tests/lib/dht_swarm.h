/* Many nodes with a DHT in the simulator, and what a scenario wants of them. Shared by tests/sim/test_sim_dht*.c and the swarm
 * program. The checker stands apart from the protocol: it looks at routing tables from outside and counts with its own idea of what
 * is right. */
#ifndef HV_TESTS_DHT_SWARM_H
#define HV_TESTS_DHT_SWARM_H

#include "core/node.h"
#include "net/sim/sim.h"

#define DHT_SECOND UINT64_C(1000000)
#define DHT_INITIAL_MAX 4

typedef struct dht_swarm dht_swarm;

typedef struct dht_seat {
  dht_swarm *swarm;
  size_t number;
  hv_target initial[DHT_INITIAL_MAX];
  size_t n_initial;
  int client_mode;
  int is_liar; /* answers through dht_swarm.lie */
  int64_t skew_us;
  uint32_t network;
  size_t home;
  hv_addr announce;
  hv_env *env;   /* while it lives */
  hv_node *node; /* NULL: none */
} dht_seat;

struct dht_swarm {
  hv_mem *mem;
  hv_sim *sim;
  dht_seat *seats;
  size_t n, room;
  hv_dht_config config; /* of all nodes */
  uint32_t hello_every_ms;
  size_t peers_room;
  hv_addr announce; /* by the nodes that are added from now on, in place of their own address; kind NONE: their own */
  uint32_t network; /* of the nodes that are added from now on (net/sim/sim.h); so the next one */
  size_t home;
  hv_state_config state;
  void (*meet)(dht_seat *seat, hv_env *env);          /* may change a new node's env; may be NULL */
  void (*left)(dht_seat *seat);                       /* the node of this seat was freed; may be NULL */
  void (*see)(dht_seat *seat, const hv_event *event); /* sees each event before the node does; may be NULL */
  /* A liar's way with a request: 1 if it has answered it. */
  int (*lie)(dht_seat *liar, const hv_event *event);
  /* Stands for SHA-256 where a scenario grinds identities; NULL: the true one. */
  void (*sha256)(dht_swarm *swarm, hv_env *env, hv_span bytes, hv_hash *out);
  void (*true_sha256)(hv_env *env, hv_span bytes, hv_hash *out);
  void *scenario;
};

/* One store or get, as a program would do it; the struct is the scenario's. */
typedef struct dht_try {
  hv_command command;
  hv_dht_op op;
  hv_dht_item item;
  int is_get, done, found;
  hv_status status;
  size_t n_records;
  uint8_t value[64]; /* of a get: what the (first) record holds */
  size_t value_size;
  uint32_t ttl_ms;
  uint64_t started_us, ended_us;
  hv_sim *sim;
  char key[120], subkey[120], text[64];
} dht_try;

/* For up to `room` nodes in a sim, which with its memory is the caller's and lives until dht_swarm_fini. Fields above may be set
 * before. */
void dht_swarm_init(dht_swarm *swarm, hv_sim *sim, hv_mem *mem, size_t room);
/* After the sim has been freed. */
void dht_swarm_fini(dht_swarm *swarm);

/* Adds one node that knows these others at its start. */
size_t dht_swarm_add(dht_swarm *swarm, const size_t *initial, size_t n_initial, int client_mode);
/* Lets the world go on. */
void dht_swarm_run(dht_swarm *swarm, double seconds);
hv_dht *dht_swarm_dht(dht_swarm *swarm, size_t node);

/* Starts it; `try` is cleared but for what is asked. Not started (the node is dead): done at once with HV_CLOSED. */
void dht_swarm_store(dht_swarm *swarm, size_t node, dht_try *try, const char *key, const char *subkey, const char *value,
                     uint64_t ttl_ms);
void dht_swarm_get(dht_swarm *swarm, size_t node, dht_try *try, const char *key, int latest);
/* Until all are done, or for so many seconds; 1: all done. */
int dht_swarm_finish(dht_swarm *swarm, dht_try *tries, size_t n, double seconds);

/* How many live, dialable nodes can be reached from a node over contacts of live nodes' tables (itself counted, if it lives and
 * serves). */
size_t dht_swarm_reach(dht_swarm *swarm, size_t from);
/* Live nodes that serve. */
size_t dht_swarm_serving(dht_swarm *swarm);
/* How many live nodes keep a living record under this key. */
size_t dht_swarm_keepers(dht_swarm *swarm, const char *key);
/* Fills every table with what it would have learned in time: for scenarios that begin with a swarm that has long been there. */
void dht_swarm_settle(dht_swarm *swarm);

#endif
