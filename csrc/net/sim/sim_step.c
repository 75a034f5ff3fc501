#include "net/sim/sim_inner.h"

#include <xxhash.h>

static void trace(hv_sim *sim, const sim_node *node, uint32_t kind, uint32_t status, uint64_t content) {
  struct {
    uint64_t now, content;
    uint32_t node, kind, status, zero;
  } record = {sim->now, content, node->index, kind, status, 0};
  sim->hash = XXH64(&record, sizeof record, sim->hash);
}

/* Kills a node if hv_sim_kill_at_event asked for it at this event. */
static void planned_kill(hv_sim *sim, sim_node *node, int after) {
  if (sim->kill.n != sim->counts.events || sim->kill.after != after)
    return;
  sim->kill.n = 0;
  size_t victim = sim->kill.node == HV_SIM_ANY ? node->index : sim->kill.node;
  if (victim < sim->n_nodes)
    sim->crash(sim->nodes[victim], 0);
}

hv_command *sim_next_command(sim_node *node) {
  hv_command *command = node->commands;
  node->commands = command->next;
  if (!node->commands)
    node->last_command = &node->commands;
  return command;
}

int sim_deliver(sim_node *node, hv_event *event, uint64_t content) {
  hv_sim *sim = node->sim;
  uint32_t lives = node->lives;
  sim->counts.events++;
  planned_kill(sim, node, 0);
  if (node->life == SIM_DEAD)
    return 0;
  if (event->kind == HV_EVENT_COMMAND)
    event->command = sim_next_command(node);
  event->now_us = sim_local_us(node, sim->now);
  trace(sim, node, event->kind, event->status, content);
  if (sim->config.say)
    sim_narrate_event(sim, node, event);
  sim->stepping = node;
  node->core.step(node->core.self, event);
  sim->stepping = NULL;
  if (sim->config.say)
    sim_narrate_log(sim, node);
  if (node->doomed)
    sim->crash(node, node->doomed == SIM_UNPLUGGED);
  planned_kill(sim, node, 1);
  return node->life != SIM_DEAD && node->lives == lives;
}
