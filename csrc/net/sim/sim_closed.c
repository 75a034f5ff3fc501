#include "net/sim/sim_inner.h"

const hv_membership *sim_member(const sim_node *node, const sim_node *other) {
  const hv_admission *mine = node->env.admission, *its = other->env.admission;
  return mine && its && hv_peer_equal(&its->swarm, &mine->swarm) ? &its->me : NULL;
}

hv_cause sim_apart(const sim_node *node, const sim_node *other) {
  const hv_admission *mine = node->env.admission;
  const hv_membership *shown = sim_member(node, other), none = {0};
  if (!mine)
    return HV_CAUSE_OTHER;
  int64_t now_s = HV_SIM_UNIX_S + ((int64_t)sim_local_us(node, node->sim->now) - (int64_t)SIM_CLOCK_START_US) / 1000000;
  return hv_admission_judge(mine, &other->id, shown ? shown : &none, now_s);
}
