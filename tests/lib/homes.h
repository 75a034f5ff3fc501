/* Nodes of the simulator that live behind NATs, and a checker that judges each of their dials.
 *
 * Shared by tests/sim and the swarm program. The checker stands apart from the simulator: it knows who lives where and which leases
 * it has asked for, and says by that alone who can dial whom. Each call of a node, and each that comes to it, must agree.
 * Rules: docs/design/reach.md, "Kinds of NAT in the simulator". */
#ifndef HV_TESTS_HOMES_H
#define HV_TESTS_HOMES_H

#include "core/node.h"
#include "net/sim/sim.h"

enum { HOMES_NODES_MAX = 64, HOMES_CALLS_MAX = 8192, HOMES_MAX = 64 };

typedef struct homes homes;

typedef struct homes_node {
  homes *h;
  hv_node **node; /* the scenario's; NULL there: it does not live */
  hv_env *env;
  size_t home; /* 0: none */
  int is_client;
  hv_addr opened; /* kind HV_ADDR_NONE: its NAT never opened a port for it */
  uint64_t until_us, lease_us;
  size_t renewals; /* that are left */
  int is_told;     /* 1: the node learns at once that its lease has ended */
  hv_command tell;
  int telling;
} homes_node;

/* A call under way. */
typedef struct homes_call {
  hv_call *call; /* NULL: a free place */
  size_t from, to;
  int could; /* 1: it could be dialled when it began */
  hv_msg_kind kind;
} homes_call;

struct homes {
  hv_sim *sim;
  homes_node nodes[HOMES_NODES_MAX];
  int hairpins[HOMES_MAX + 1]; /* by home */
  hv_status (*call)(hv_env *env, hv_call *call, const hv_msg *request);
  homes_call calls[HOMES_CALLS_MAX];
  int calm; /* 1: nothing else is wrong, so who can be dialled answers */
  size_t n_answered, n_in_vain;
  char wrong[200]; /* the first dial that disagreed; "": none */
};

/* One at a time. */
void homes_init(homes *h, hv_sim *sim);
/* Adds a home; its number. */
size_t homes_add(homes *h, hv_sim_nat kind, uint64_t idle_us, int hairpin);
/* Before the node is added: where it lives. `node` points to the scenario's own pointer, and stays valid. */
void homes_place(homes *h, size_t number, size_t home, int is_client, hv_node **node);
/* In a node's make, and with each event of it before the node has it. */
void homes_meet(homes *h, size_t number, hv_env *env);
void homes_see(homes *h, size_t number, const hv_event *event);
/* A node's NAT opens its port, which is renewed so many times at half of the lease. Then the lease ends; is_told: the node learns
 * of that at once, else not at all. */
void homes_keep(homes *h, size_t number, uint64_t lease_us, size_t renewals, int is_told);
/* Whether a node's lease has ended. */
int homes_lapsed(const homes *h, size_t number);

/* Whether a new connection from a node to an address finds a node that listens, by the scenario's own books; *to: which. */
int homes_can(const homes *h, size_t from, const hv_addr *addr, size_t *to);

#endif
