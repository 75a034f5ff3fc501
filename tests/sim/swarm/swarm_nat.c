/* Where the nodes of a mixed swarm live: at public addresses, behind NATs of all kinds, alone or two in one home. Those for which
 * no NAT opens a port are clients, as docs/howto/open-a-port.md tells their users. */
#include "sim/swarm/swarm_nat.h"

enum { PUBLIC, OPENED, LAPSING, UNREACHABLE, BESIDE, KINDS };

#define LEASE_US UINT64_C(6000000)

static uint64_t below_of(swarm_run *run, uint64_t n) {
  return check_random(&run->rng) % n;
}

void swarm_nat_open(swarm_nat *nat, swarm_run *run) {
  nat->homes = hv_mem_zalloc(&run->mem, sizeof *nat->homes);
  if (!nat->homes) {
    swarm_fail(run, "no memory for homes");
    return;
  }
  homes_init(nat->homes, run->sim);
  nat->homes->calm = run->options->faults == 0;
}

void swarm_nat_place(swarm_nat *nat, swarm_run *run, size_t i, hv_node **node, hv_sim_node_config *chair) {
  nat->kind = i < 2 ? PUBLIC : (unsigned)below_of(run, nat->last_home ? KINDS : BESIDE);
  chair->client_mode = nat->kind == UNREACHABLE || nat->kind == BESIDE;
  chair->network = nat->kind == PUBLIC ? 100 + (uint32_t)i : 0;
  chair->home = nat->kind == BESIDE ? nat->last_home : 0;
  if (nat->kind != PUBLIC && nat->kind != BESIDE)
    chair->home = homes_add(nat->homes, (hv_sim_nat)below_of(run, HV_SIM_SYMMETRIC + 1), (20 + below_of(run, 100)) * 1000000,
                            (int)below_of(run, 2));
  if (chair->home && nat->kind != LAPSING)
    nat->last_home = chair->home;
  homes_place(nat->homes, i, chair->home, chair->client_mode, node);
}

void swarm_nat_lease(swarm_nat *nat, swarm_run *run, size_t i) {
  static const char *const names[KINDS] = {"public", "has an open port", "has a lease that ends", "a client",
                                           "a client beside another"};
  if (nat->kind == OPENED || nat->kind == LAPSING)
    homes_keep(nat->homes, i, LEASE_US, nat->kind == OPENED ? SIZE_MAX : 1 + below_of(run, 4), 1);
  hv_sim_say(run->sim, "n%zu is %s, in home %zu", i, names[nat->kind], nat->homes->nodes[i].home);
}

void swarm_nat_judge(const swarm_nat *nat, swarm_run *run) {
  if (nat->homes->wrong[0])
    swarm_fail(run, "%s", nat->homes->wrong);
  swarm_figure(run, "calls_answered", (double)nat->homes->n_answered);
  swarm_figure(run, "calls_to_nobody", (double)nat->homes->n_in_vain);
}

void swarm_nat_close(swarm_nat *nat) {
  hv_mem_free(nat->homes);
}
