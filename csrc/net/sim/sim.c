#include "net/sim/sim_inner.h"

enum { LOG_RECORDS = 64 };

/* ---- what is next ---- */

typedef struct script {
  void (*fn)(hv_sim *sim, void *arg);
  void *arg;
} script;

static void do_entry(hv_sim *sim, const sim_entry *entry) {
  sim_node *node = entry->kind == SIM_SCRIPT ? NULL : sim->nodes[entry->node];
  void *item = entry->item;
  switch ((sim_kind)entry->kind) {
  case SIM_TIMER:
    sim_node_fires(node, item);
    break;
  case SIM_CALL_END:
    sim_call_ends(SIM_OWNER(sim_call, end, item));
    break;
  case SIM_ARRIVE:
    sim_stream_arrives(SIM_OWNER(sim_end, arrive, item));
    break;
  case SIM_CREDIT:
    sim_stream_credit(SIM_OWNER(sim_end, credit, item));
    break;
  case SIM_READY:
    sim_stream_ready(SIM_OWNER(sim_end, ready, item));
    break;
  case SIM_CLOSE:
    sim_stream_closes(SIM_OWNER(sim_end, close, item));
    break;
  case SIM_PULSE:
    sim_stream_pulse(SIM_OWNER(sim_end, pulse, item));
    break;
  case SIM_LEAVE:
    sim_stream_leaves(SIM_OWNER(sim_end, leave, item));
    break;
  case SIM_NODE_END:
    sim_node_ends(node);
    break;
  case SIM_PACKET:
    sim_packet_arrives(node, item);
    break;
  case SIM_JOB:
    sim_node_works(node, item);
    break;
  case SIM_COMMAND:
    sim_deliver(node, &(hv_event){.kind = HV_EVENT_COMMAND, .text = ""}, 0);
    break;
  case SIM_START:
    sim_node_starts(node);
    break;
  case SIM_STOP:
    sim_node_stops(node);
    break;
  case SIM_DOWN:
    sim_node_misses(node, item);
    break;
  case SIM_SCRIPT: {
    script s = *(script *)item;
    hv_mem_free(item);
    s.fn(sim, s.arg);
  }
  }
}

/* Processes the next entry that is due by until_us, and defers the entries of paused nodes. 0: there was none. */
static int next(hv_sim *sim, uint64_t until_us) {
  for (;;) {
    if (sim->heap.size == 0 || sim->heap.entries[0].due > until_us)
      return 0;
    sim_entry entry = sim->heap.entries[0];
    if (entry.kind == SIM_SCRIPT || !sim->nodes[entry.node]->paused)
      break;
    sim_heap_defer(&sim->heap);
  }
  sim_entry entry = sim_heap_pop(&sim->heap);
  if (entry.due > sim->now)
    sim->now = entry.due;
  do_entry(sim, &entry);
  return 1;
}

int hv_sim_step(hv_sim *sim) {
  return next(sim, SIM_NEVER - 1);
}

void hv_sim_run_until(hv_sim *sim, uint64_t time_us) {
  while (next(sim, time_us)) {
  }
  if (sim->now < time_us)
    sim->now = time_us;
}

int hv_sim_drive(hv_sim *sim, int (*enough)(void *arg), void *arg, uint64_t time_us) {
  while (!enough(arg))
    if (!next(sim, time_us)) {
      if (sim->now < time_us)
        sim->now = time_us;
      return enough(arg);
    }
  return 1;
}

hv_status hv_sim_at(hv_sim *sim, uint64_t time_us, void (*fn)(hv_sim *sim, void *arg), void *arg) {
  script *s = hv_mem_alloc(sim->mem, sizeof *s);
  if (!s)
    return HV_NOMEM;
  *s = (script){fn, arg};
  if (sim_heap_push(&sim->heap, time_us, 0, SIM_SCRIPT, s))
    return HV_OK;
  hv_mem_free(s);
  return HV_NOMEM;
}

/* ---- the world ---- */

hv_sim_config hv_sim_defaults(uint64_t seed) {
  return (hv_sim_config){
      .seed = seed,
      .link = sim_link_default(),
      .job_us = 1000,
      .grace_us = 500000,
      .keepalive_us = 20000000,
      .window = 8u << 20,
      .say_least = HV_LOG_INFO,
  };
}

hv_sim *hv_sim_new(hv_mem *mem, const hv_sim_config *config) {
  hv_sim *sim = hv_mem_zalloc(mem, sizeof *sim);
  if (!sim)
    return NULL;
  sim->mem = mem;
  sim->config = *config;
  sim->heap.mem = mem;
  sim->calls = (sim_pool){.mem = mem, .size = sizeof(sim_call)};
  sim->packets = (sim_pool){.mem = mem, .size = sizeof(sim_packet)};
  sim->random = sim_hash_mix(config->seed, 1);
  sim->secret = sim_hash_mix(config->seed, 2);
  sim->hash = config->seed;
  sim->cuts = 1;
  sim->crash = sim_node_crash;
  hv_buf_init(&sim->scratch, mem, HV_MSG_BYTES_MAX + HV_BULK_HEADER_MAX);
  if (config->say && !(sim->log = hv_log_new(mem, LOG_RECORDS, config->say_least))) {
    hv_mem_free(sim);
    return NULL;
  }
  return sim;
}

static int drop_entry(void *arg, sim_entry *entry) {
  hv_sim *sim = arg;
  if (entry->kind == SIM_SCRIPT)
    hv_mem_free(entry->item);
  else if (entry->kind == SIM_PACKET)
    sim_packet_drop(sim, entry->item);
  return 0;
}

size_t hv_sim_free(hv_sim *sim) {
  if (!sim)
    return 0;
  sim->config.say = NULL;
  for (size_t i = 0; i < sim->n_nodes; i++)
    sim_node_crash(sim->nodes[i], 1);
  sim_heap_filter(&sim->heap, drop_entry, sim);
  size_t leaks = hv_sim_leaks(sim);
  for (size_t i = 0; i < sim->n_nodes; i++)
    sim_node_free(sim->nodes[i]);
  sim_links_fini(sim);
  sim_homes_fini(sim);
  sim_pool_fini(&sim->calls);
  sim_pool_fini(&sim->packets);
  hv_buf_fini(&sim->scratch);
  hv_log_free(sim->log);
  hv_mem_free(sim->nodes);
  hv_mem_free(sim->heap.entries);
  hv_mem_free(sim);
  return leaks;
}

void hv_sim_set_tap(hv_sim *sim, hv_sim_tap *tap, void *arg) {
  sim->tap = tap;
  sim->tap_arg = arg;
}

uint64_t hv_sim_now(const hv_sim *sim) {
  return sim->now;
}

hv_sim_counts hv_sim_count(const hv_sim *sim) {
  return sim->counts;
}

uint64_t hv_sim_hash(const hv_sim *sim) {
  return sim->hash;
}

size_t hv_sim_leaks(const hv_sim *sim) {
  size_t blocks = 0;
  for (size_t i = 0; i < sim->n_nodes; i++)
    if (sim->nodes[i]->life == SIM_DEAD)
      blocks += atomic_load(&sim->nodes[i]->mem->blocks) - 1; /* one is the account itself */
  return blocks;
}
