#include "net/sim/sim_inner.h"

int64_t sim_unix_s(hv_env *env) {
  const sim_node *node = env->world;
  return HV_SIM_UNIX_S + ((int64_t)(sim_local_us(node, node->sim->now) + node->slept_us) - (int64_t)SIM_CLOCK_START_US) / 1000000;
}

const hv_membership *sim_member(const sim_node *node, const sim_node *other) {
  const hv_admission *mine = node->env.admission, *its = other->env.admission;
  return mine && its && hv_peer_equal(&its->swarm, &mine->swarm) ? &its->me : NULL;
}

hv_cause sim_apart(const sim_node *node, const sim_node *other) {
  const hv_admission *mine = node->env.admission;
  const hv_membership *shown = sim_member(node, other), none = {0};
  if (!mine)
    return HV_CAUSE_OTHER;
  return hv_admission_judge(mine, &other->id, shown ? shown : &none, sim_unix_s((hv_env *)&node->env));
}
