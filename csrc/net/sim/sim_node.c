#include "net/sim/sim_inner.h"

#include <string.h>
#include <xxhash.h>

#define SKEW_MAX_US INT64_C(360000000000)

/* ---- the small functions of hv_env ---- */

/* Kills a node for which an entry of the event queue could not be allocated: timers and jobs must not be lost. */
static void doom(sim_node *node) {
  sim_narrate(node->sim, node, "has no memory left and dies");
  node->doomed = SIM_KILLED;
}

static sim_node *node_of(hv_env *env) {
  return (sim_node *)env;
}

static uint64_t env_now(hv_env *env) {
  return sim_local_us(node_of(env), sim_of(env)->now);
}

static void env_random(hv_env *env, void *out, size_t size) {
  sim_fill_random(&node_of(env)->random, out, size);
}

static void env_timer_set(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  sim_node *node = node_of(env);
  sim_heap *heap = &node->sim->heap;
  if (node->life == SIM_DEAD)
    return;
  uint64_t due = sim_after_us(node, delay_us);
  timer->world.due_us = due;
  if (timer->world.slot)
    sim_heap_move(heap, timer->world.slot, due);
  else if (!sim_heap_push(heap, due, node->index, SIM_TIMER, timer))
    doom(node);
}

static void env_timer_clear(hv_env *env, hv_timer *timer) {
  if (node_of(env)->life != SIM_DEAD && timer->world.slot)
    sim_heap_remove(&sim_of(env)->heap, timer->world.slot);
}

static void env_work(hv_env *env, hv_job *job) {
  sim_node *node = node_of(env);
  hv_sim *sim = node->sim;
  if (node->life == SIM_DEAD)
    return;
  uint64_t us = sim->config.job_us;
  us = us / 2 + (us ? sim_random(&sim->random) % (us + 1) : 0);
  if (!sim_heap_push(&sim->heap, sim->now + us, node->index, SIM_JOB, job)) {
    doom(node);
    return;
  }
  job->next = node->jobs;
  node->jobs = job;
}

static void env_stopped(hv_env *env) {
  sim_node *node = node_of(env);
  if (node->life == SIM_STOPPING)
    sim_alarm_set(node->sim, &node->end, SIM_NODE_END, node->index, node->sim->now);
}

static void env_forget(hv_env *env, const hv_target *to) {
  sim_node *node = node_of(env);
  hv_status why;
  sim_node *there = sim_node_at(node, &to->addr, &why);
  if (node->life == SIM_DEAD || !there)
    return;
  sim_calls_forget(node, there);
  sim_streams_forget(node, there);
  sim_pair *pair = sim_pair_of(node->sim, node->index, there->index);
  if (pair)
    sim_disconnect(node->sim, pair);
}

static hv_status env_deny(hv_env *env, hv_span list) {
  sim_node *node = node_of(env);
  uint8_t *copy = node->life == SIM_DEAD ? NULL : hv_mem_alloc(node->sim->mem, list.size);
  if (!copy)
    return node->life == SIM_DEAD ? HV_CLOSED : HV_NOMEM;
  memcpy(copy, list.data, list.size);
  hv_mem_free(node->denials);
  node->denials = copy;
  node->admission.denials = hv_span_of(copy, list.size);
  for (size_t i = 0; i < node->sim->n_nodes; i++) {
    sim_node *other = node->sim->nodes[i];
    if (other != node && sim_apart(node, other) == HV_CAUSE_DENIED) {
      sim_calls_forget(node, other);
      sim_streams_forget(node, other);
    }
  }
  return HV_OK;
}

/* ---- cryptography: real, or a fast replacement keyed by the sim's secret ---- */

static hv_peer_id identity_of(hv_sim *sim, uint32_t node) {
  if (node < sim->n_nodes)
    return sim->nodes[node]->id;
  hv_peer_id id = {{0}};
  uint64_t state = sim_hash_mix(sim->config.seed, UINT64_C(0x1d) + node);
  sim_fill_random(&state, id.key, sizeof id.key);
  if (!sim->config.real_crypto)
    return id;
  hv_identity *identity = hv_identity_from_seed(sim->mem, id.key);
  id = identity ? *hv_identity_peer(identity) : (hv_peer_id){{0}};
  hv_identity_free(identity);
  return id;
}

hv_target hv_sim_target(hv_sim *sim, size_t node) {
  return (hv_target){identity_of(sim, (uint32_t)node), sim_addr_of(sim, (uint32_t)node, 0)};
}

static void double_sign(hv_sim *sim, const hv_peer_id *peer, const char *domain, hv_span bytes, uint8_t out[64]) {
  uint64_t h = XXH64(domain, strlen(domain) + 1, sim->secret ^ XXH3_64bits(peer, sizeof *peer));
  uint64_t state = sim_hash_mix(XXH3_64bits_withSeed(bytes.data, bytes.size, h), sim->secret);
  sim_fill_random(&state, out, 64);
}

static void env_sha256(hv_env *env, hv_span bytes, hv_hash *out) {
  (void)env;
  hv_identity_sha256(bytes, out);
}

static hv_status env_sign(hv_env *env, const char *domain, hv_span bytes, uint8_t out[64]) {
  sim_node *node = node_of(env);
  if (node->life == SIM_DEAD)
    return HV_CLOSED;
  if (node->identity)
    return hv_identity_sign(node->identity, domain, bytes, out);
  double_sign(node->sim, &node->id, domain, bytes, out);
  return HV_OK;
}

static int env_verify(hv_env *env, const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]) {
  hv_sim *sim = sim_of(env);
  if (sim->config.real_crypto)
    return hv_identity_verify(peer, domain, bytes, signature);
  uint8_t right[64];
  double_sign(sim, peer, domain, bytes, right);
  return memcmp(right, signature, sizeof right) == 0;
}

/* ---- nodes begin and end ---- */

static hv_status come_alive(sim_node *node) {
  hv_sim *sim = node->sim;
  node->lives++;
  node->random = sim_hash_mix(sim->config.seed, (uint64_t)node->index << 32 | node->lives);
  node->paused = node->unplugged = node->doomed = 0;
  node->core = (hv_core){NULL, NULL};
  node->env.mem = node->mem;
  hv_spoken_fini(&node->spoken);
  hv_status status = hv_spoken_init(&node->spoken, sim->mem, &node->config.versions);
  if (status != HV_OK)
    return status;
  status = node->config.make(&node->env, node->config.arg, &node->core);
  if (status != HV_OK)
    return status;
  if (!sim_heap_push(&sim->heap, sim->now, node->index, SIM_START, NULL)) {
    node->config.free(node->core.self);
    return HV_NOMEM;
  }
  node->life = SIM_ALIVE;
  return HV_OK;
}

/* Gives the commands of a dead node back to the program. */
static void return_commands(sim_node *node) {
  while (node->commands) {
    hv_command *command = sim_next_command(node);
    command->run(command, NULL);
  }
}

static int of_another(void *arg, sim_entry *entry) {
  const sim_node *node = arg;
  if (entry->node != node->index || entry->kind == SIM_SCRIPT)
    return 1;
  entry->due &= SIM_NEVER - 1; /* messages that were deferred while it was paused arrive at a dead node */
  return entry->kind == SIM_PACKET || entry->kind == SIM_ARRIVE;
}

/* Ends a node: frees its core and all that it has, and notifies its peers. */
static void bury(sim_node *node) {
  hv_sim *sim = node->sim;
  node->life = SIM_DEAD;
  node->paused = node->doomed = 0;
  sim_calls_drop(node);
  sim_streams_break(node, !node->unplugged);
  sim_heap_filter(&sim->heap, of_another, node);
  node->jobs = NULL;
  node->config.free(node->core.self);
  node->core = (hv_core){NULL, NULL};
  sim_streams_drop(node);
  sim_requests_drop(node);
  return_commands(node);
  sim_calls_lost(node);
  sim_connections_lost(node);
}

void sim_node_crash(sim_node *node, int unplugged) {
  if (node->life == SIM_DEAD)
    return;
  if (node->sim->stepping == node) {
    node->doomed = unplugged ? SIM_UNPLUGGED : SIM_KILLED;
    return;
  }
  node->unplugged = unplugged != 0;
  sim_narrate(node->sim, node, unplugged ? "is gone" : "is killed");
  bury(node);
}

static void cancel_jobs(sim_node *node) {
  while (node->jobs) {
    hv_job *job = node->jobs;
    node->jobs = job->next;
    if (!sim_deliver(
            node, &(hv_event){.kind = HV_EVENT_WORK_DONE, .job = job, .status = HV_CANCELLED, .text = "this node is shutting down"},
            0))
      return;
  }
}

static int not_a_job(void *arg, sim_entry *entry) {
  return entry->kind != SIM_JOB || entry->node != ((sim_node *)arg)->index;
}

void sim_node_ends(sim_node *node) {
  hv_sim *sim = node->sim;
  node->life = SIM_ENDING;
  while (node->life == SIM_ENDING && (node->calls || node->ends || node->jobs)) {
    sim_heap_filter(&sim->heap, not_a_job, node);
    cancel_jobs(node);
    while (node->calls) {
      sim_call_end_at(node->calls, 0, HV_CANCELLED, "this node is shutting down");
      sim_call_ends(node->calls);
    }
    sim_streams_end(node);
  }
  if (node->life == SIM_DEAD)
    return; /* killed by one of the events */
  sim_narrate(sim, node, "has ended");
  bury(node);
}

static int is_node(const hv_sim *sim, size_t node) {
  return node < sim->n_nodes;
}

void hv_sim_kill(hv_sim *sim, size_t node) {
  if (is_node(sim, node))
    sim_node_crash(sim->nodes[node], 0);
}

void hv_sim_unplug(hv_sim *sim, size_t node) {
  if (is_node(sim, node))
    sim_node_crash(sim->nodes[node], 1);
}

hv_status hv_sim_restart(hv_sim *sim, size_t node) {
  if (!is_node(sim, node) || sim->nodes[node]->life != SIM_DEAD)
    return HV_STATE;
  sim_narrate(sim, sim->nodes[node], "starts again");
  return come_alive(sim->nodes[node]);
}

void hv_sim_set_versions(hv_sim *sim, size_t node, hv_versions versions) {
  if (is_node(sim, node))
    sim->nodes[node]->config.versions = versions;
}

void hv_sim_stop(hv_sim *sim, size_t node) {
  if (is_node(sim, node) && sim->nodes[node]->life == SIM_ALIVE &&
      !sim_heap_push(&sim->heap, sim->now, (uint32_t)node, SIM_STOP, NULL))
    sim_node_crash(sim->nodes[node], 0);
}

void hv_sim_pause(hv_sim *sim, size_t node) {
  if (!is_node(sim, node) || sim->nodes[node]->life == SIM_DEAD)
    return;
  sim->nodes[node]->paused = 1;
  sim_narrate(sim, sim->nodes[node], "is stopped in its tracks");
}

void hv_sim_sleep(hv_sim *sim, size_t node) {
  hv_sim_pause(sim, node);
  if (hv_sim_paused(sim, node))
    sim->nodes[node]->asleep_us = sim->now;
}

static int goes_on(void *arg, sim_entry *entry) {
  const sim_node *node = arg;
  if (entry->node != node->index || entry->kind == SIM_SCRIPT)
    return 1;
  entry->due &= SIM_NEVER - 1;
  if (node->asleep_us && entry->kind == SIM_TIMER)
    entry->due += node->sim->now - node->asleep_us;
  return 1;
}

void hv_sim_continue(hv_sim *sim, size_t node) {
  if (!is_node(sim, node) || !sim->nodes[node]->paused)
    return;
  sim->nodes[node]->paused = 0;
  sim_heap_filter(&sim->heap, goes_on, sim->nodes[node]);
  if (sim->nodes[node]->asleep_us)
    sim->nodes[node]->slept_us += sim->now - sim->nodes[node]->asleep_us;
  sim->nodes[node]->asleep_us = 0;
  sim_narrate(sim, sim->nodes[node], "goes on");
}

void hv_sim_kill_at_event(hv_sim *sim, size_t node, uint64_t n, int after) {
  sim->kill.n = n;
  sim->kill.node = node;
  sim->kill.after = after != 0;
}

hv_status hv_sim_command(hv_sim *sim, size_t index, hv_command *command) {
  if (!is_node(sim, index))
    return HV_INVALID;
  sim_node *node = sim->nodes[index];
  command->next = NULL;
  if (node->life == SIM_DEAD) {
    command->run(command, NULL);
    return HV_OK;
  }
  if (!sim_heap_push(&sim->heap, sim->now, node->index, SIM_COMMAND, NULL))
    return HV_NOMEM;
  *node->last_command = command;
  node->last_command = &command->next;
  return HV_OK;
}

/* The windows are the same for all streams here. */
static void no_matter(hv_env *env, hv_stream *stream, int waits) {
  (void)env, (void)stream, (void)waits;
}

static void fill_env(sim_node *node) {
  node->env = (hv_env){
      .world = node,
      .mem = node->mem,
      .log = node->sim->log,
      .spoken = &node->spoken,
      .admission = node->config.admission ? &node->admission : NULL,
      .deny = env_deny,
      .now_us = env_now,
      .unix_s = sim_unix_s,
      .random = env_random,
      .timer_set = env_timer_set,
      .timer_clear = env_timer_clear,
      .call = sim_call_start,
      .call_cancel = sim_call_stop,
      .reply = sim_reply,
      .stream_open = sim_stream_open,
      .stream_send = sim_stream_send,
      .stream_end = sim_stream_end,
      .stream_cancel = sim_stream_cancel,
      .stream_pace = sim_stream_pace,
      .stream_wait = no_matter,
      .work = env_work,
      .stopped = env_stopped,
      .forget = env_forget,
      .sha256 = env_sha256,
      .sign = env_sign,
      .verify = env_verify,
  };
}

void sim_node_free(sim_node *node) {
  hv_mem_free(node->out_link);
  hv_mem_free(node->in_link);
  hv_mem_free(node->denials);
  hv_identity_free(node->identity);
  hv_spoken_fini(&node->spoken);
  hv_mem_drop(node->mem);
  hv_mem_free(node);
}

static sim_node *new_node(hv_sim *sim, const hv_sim_node_config *config) {
  sim_node *node = hv_mem_zalloc(sim->mem, sizeof *node);
  if (!node)
    return NULL;
  node->sim = sim;
  node->config = *config;
  if (config->admission)
    node->admission = *config->admission;
  node->index = (uint32_t)sim->n_nodes;
  node->last_command = &node->commands;
  node->id = identity_of(sim, node->index);
  node->mem = hv_mem_new(sim->mem, config->memory ? config->memory : HV_MEM_UNLIMITED);
  if (sim->config.real_crypto) {
    uint8_t key[32];
    uint64_t state = sim_hash_mix(sim->config.seed, UINT64_C(0x1d) + node->index);
    sim_fill_random(&state, key, sizeof key);
    node->identity = hv_identity_from_seed(sim->mem, key);
  }
  if (!node->mem || (sim->config.real_crypto && !node->identity) || !hv_peer_is_known(&node->id)) {
    sim_node_free(node);
    return NULL;
  }
  fill_env(node);
  return node;
}

static int room_for_one_more(hv_sim *sim) {
  if (sim->n_nodes < sim->nodes_room)
    return 1;
  size_t room = sim->nodes_room ? sim->nodes_room * 2 : 16;
  sim_node **nodes = hv_mem_resize(sim->mem, sim->nodes, room * sizeof *nodes);
  if (!nodes)
    return 0;
  sim->nodes = nodes;
  sim->nodes_room = room;
  return 1;
}

hv_status hv_sim_add(hv_sim *sim, const hv_sim_node_config *config, size_t *index) {
  if (config->skew_us > SKEW_MAX_US || config->skew_us < -SKEW_MAX_US || config->drift_ppm > 100000 || config->drift_ppm < -100000)
    return HV_INVALID;
  if (config->home > sim->n_homes || (config->home && config->network))
    return HV_INVALID;
  if (!room_for_one_more(sim) || !sim_heap_hold(&sim->heap, 1))
    return HV_NOMEM;
  sim_node *node = new_node(sim, config);
  if (!node) {
    sim_heap_unhold(&sim->heap, 1);
    return HV_NOMEM;
  }
  sim->nodes[sim->n_nodes++] = node;
  hv_status status = come_alive(node);
  if (status != HV_OK) {
    sim->n_nodes--;
    sim_heap_unhold(&sim->heap, 1);
    sim_node_free(node);
  } else if (index) {
    *index = node->index;
  }
  return status;
}

/* ---- what comes to a node ---- */

void sim_node_starts(sim_node *node) {
  hv_addr addr = sim_addr_of(node->sim, node->index, 0);
  sim_deliver(node, &(hv_event){.kind = HV_EVENT_START, .addrs = &addr, .n_addrs = node->config.client_mode ? 0 : 1, .text = ""},
              0);
}

void sim_node_works(sim_node *node, hv_job *job) {
  hv_job **link = &node->jobs;
  while (*link != job)
    link = &(*link)->next;
  *link = job->next;
  job->run(job);
  sim_deliver(node, &(hv_event){.kind = HV_EVENT_WORK_DONE, .job = job, .text = ""}, 0);
}

void sim_node_stops(sim_node *node) {
  if (node->life != SIM_ALIVE)
    return;
  hv_sim *sim = node->sim;
  node->life = SIM_STOPPING;
  sim_alarm_set(sim, &node->end, SIM_NODE_END, node->index, sim->now + sim->config.grace_us);
  sim_deliver(node, &(hv_event){.kind = HV_EVENT_STOP, .text = ""}, 0);
}

void sim_node_fires(sim_node *node, hv_timer *timer) {
  sim_deliver(node, &(hv_event){.kind = HV_EVENT_TIMER, .timer = timer, .text = ""}, 0);
}

void sim_node_misses(sim_node *node, const sim_node *peer) {
  sim_deliver(node, &(hv_event){.kind = HV_EVENT_PEER_DOWN, .peer = peer->id, .text = "the connection was reset"}, 0);
}

/* ---- looks from outside ---- */

size_t hv_sim_nodes(const hv_sim *sim) {
  return sim->n_nodes;
}

int hv_sim_alive(const hv_sim *sim, size_t node) {
  return is_node(sim, node) && sim->nodes[node]->life != SIM_DEAD;
}

int hv_sim_paused(const hv_sim *sim, size_t node) {
  return is_node(sim, node) && sim->nodes[node]->paused;
}

void *hv_sim_core(const hv_sim *sim, size_t node) {
  return is_node(sim, node) ? sim->nodes[node]->core.self : NULL;
}

hv_mem *hv_sim_mem(hv_sim *sim, size_t node) {
  return is_node(sim, node) ? sim->nodes[node]->mem : NULL;
}
