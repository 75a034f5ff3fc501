/* The table of one simulated NAT: which outer port stands for which inner endpoint, and whom it lets in.
 *
 * Room: net; private to net/sim. Pure: no simulation, no clock but the times that it is given. Uses core/addr and base/mem.
 * Owner: the caller of sim_nat_new; mem is borrowed and charged.
 * Thread: one.
 * Limits: SIM_NAT_ROWS_MAX mappings; those that have expired make room first.
 * Errors: 0 in place of a mapping's ID.
 * Paper: RFC 4787, RFC 5382, RFC 6886. The rules by kind are in docs/design/reach.md, "Kinds of NAT in the simulator".
 */
#ifndef HV_NET_SIM_NAT_H
#define HV_NET_SIM_NAT_H

#include "core/addr.h"
#include "net/sim/sim.h"

#define SIM_NAT_ROWS_MAX 4096

typedef struct sim_nat sim_nat;

/* An endpoint behind the NAT. */
typedef struct sim_nat_inner {
  uint32_t host; /* any number that tells the hosts of the home apart */
  uint16_t port;
} sim_nat_inner;

/* pings_us: how often a connection sends something even if it is idle. Mappings that may be idle for longer are kept by that.
 * NULL: no memory. */
sim_nat *sim_nat_new(hv_mem *mem, const hv_sim_home *rules, uint64_t pings_us);
void sim_nat_free(sim_nat *nat); /* NULL is fine */
const hv_sim_home *sim_nat_rules(const sim_nat *nat);

/* An inner endpoint sends to `to` first. Returns the mapping's ID, and in *outer its outer port; 0: no port or memory is left. */
uint32_t sim_nat_out(sim_nat *nat, sim_nat_inner inner, const hv_addr *to, uint64_t now_us, uint16_t *outer);
/* Opens a port for an inner endpoint on request, to every sender, until a time. *outer is the wanted port, and becomes the one that
 * was given: another one if that is taken. An endpoint has one such port at most. Returns the mapping's ID, or 0. */
uint32_t sim_nat_open(sim_nat *nat, sim_nat_inner inner, uint64_t until_us, uint64_t now_us, uint16_t *outer);
/* The mapping by which what `from` sends to an outer port gets in, and in *inner where it leads; 0: it is dropped. */
uint32_t sim_nat_in(sim_nat *nat, uint16_t outer, const hv_addr *from, uint64_t now_us, sim_nat_inner *inner);
/* Something passes by a mapping, in either direction. False if the mapping has expired. */
int sim_nat_pass(sim_nat *nat, uint32_t id, uint64_t now_us);
/* The outer port of a mapping; 0: it does not exist. */
uint16_t sim_nat_port(const sim_nat *nat, uint32_t id);
void sim_nat_close(sim_nat *nat, uint32_t id); /* nothing if it does not exist */

#endif
