/* Where the nodes of room `nat` live: the first two at public addresses, the others there or behind NATs. Included by the rooms
 * that place nodes so. */
#ifndef HV_TESTS_SWARM_NAT_H
#define HV_TESTS_SWARM_NAT_H

#include "lib/homes.h"
#include "sim/swarm/swarm.h"

typedef struct swarm_nat {
  homes *homes;     /* NULL: all nodes are in one private network */
  size_t last_home; /* 0: none yet */
  unsigned kind;    /* of the node that was placed last */
} swarm_nat;

void swarm_nat_open(swarm_nat *nat, swarm_run *run);
/* Before node i is added: draws where it lives, and so whether others can dial it. `node` is the room's own pointer. */
void swarm_nat_place(swarm_nat *nat, swarm_run *run, size_t i, hv_node **node, hv_sim_node_config *chair);
/* After it was added: its NAT opens its port, if it does. */
void swarm_nat_lease(swarm_nat *nat, swarm_run *run, size_t i);
/* At the end: fails if a dial did not agree with the books. */
void swarm_nat_judge(const swarm_nat *nat, swarm_run *run);
void swarm_nat_close(swarm_nat *nat); /* after the sim has been freed */

#endif
