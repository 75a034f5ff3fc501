#include "net/sim/sim_inner.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { LOG_RECORDS = 64, LINE_MAX = 512 };
#define CLOCK_START_US UINT64_C(1000000000000) /* so that a clock may be behind */

/* ---- numbers ---- */

uint64_t sim_random(uint64_t *state) { /* splitmix64 (Steele, Lea, Flood 2014) */
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint64_t sim_hash_mix(uint64_t a, uint64_t b) {
  uint64_t state = a * UINT64_C(0xff51afd7ed558ccd) + b;
  return sim_random(&state);
}

void sim_fill_random(uint64_t *state, uint8_t *out, size_t size) {
  while (size) {
    uint64_t r = sim_random(state);
    size_t n = size < sizeof r ? size : sizeof r;
    memcpy(out, &r, n);
    out += n;
    size -= n;
  }
}

/* ---- clocks ---- */

uint64_t sim_local_us(const sim_node *node, uint64_t time_us) {
  int64_t drift =
      (int64_t)(time_us / 1000000) * node->seat.drift_ppm + (int64_t)(time_us % 1000000) * node->seat.drift_ppm / 1000000;
  return CLOCK_START_US + (uint64_t)node->seat.skew_us + time_us + (uint64_t)drift;
}

uint64_t sim_after_us(const sim_node *node, uint64_t delay_us) {
  uint64_t now = node->sim->now;
  if (delay_us > SIM_NEVER / 2)
    delay_us = SIM_NEVER / 2;
  if (node->seat.drift_ppm == 0)
    return now + delay_us;
  uint64_t due = now + (uint64_t)((double)delay_us / (1 + node->seat.drift_ppm * 1e-6));
  uint64_t wanted = sim_local_us(node, now) + delay_us;
  while (sim_local_us(node, due) < wanted)
    due++;
  return due;
}

/* ---- what is told ---- */

static void say_line(hv_sim *sim, const sim_node *node, const char *text) {
  char line[LINE_MAX];
  char who[16] = "--";
  if (node)
    snprintf(who, sizeof who, "n%u", (unsigned)node->index);
  snprintf(line, sizeof line, "+%.3fs %s %s", (double)sim->now * 1e-6, who, text);
  sim->config.say(sim->config.say_arg, line);
}

static void tell(hv_sim *sim, const sim_node *node, const char *format, va_list args) {
  char text[LINE_MAX - 64];
  vsnprintf(text, sizeof text, format, args);
  say_line(sim, node, text);
}

void sim_tell(hv_sim *sim, const sim_node *node, const char *format, ...) {
  if (!sim->config.say)
    return;
  va_list args;
  va_start(args, format);
  tell(sim, node, format, args);
  va_end(args);
}

void hv_sim_say(hv_sim *sim, const char *format, ...) {
  if (!sim->config.say)
    return;
  va_list args;
  va_start(args, format);
  tell(sim, NULL, format, args);
  va_end(args);
}

static void say_log(hv_sim *sim, const sim_node *node) {
  hv_log_record record;
  while (hv_log_take(sim->log, &record))
    sim_tell(sim, node, "%s %s: %s (%s)", hv_log_level_name(record.level), record.room, record.text, record.event);
}

static const char *kind_name(hv_event_kind kind) {
  static const char *const names[HV_EVENT_KINDS] = {"START",         "TIMER",       "CALL_DONE",    "REQUEST",
                                                    "STREAM_OPENED", "STREAM_DATA", "STREAM_READY", "STREAM_CLOSED",
                                                    "WORK_DONE",     "PEER_DOWN",   "COMMAND",      "STOP"};
  return names[kind];
}

static void say_event(hv_sim *sim, const sim_node *node, const hv_event *event) {
  char peer[HV_PEER_SHORT_MAX + 1] = "", size[32] = "";
  int ends = event->kind == HV_EVENT_CALL_DONE || event->kind == HV_EVENT_STREAM_CLOSED || event->kind == HV_EVENT_WORK_DONE;
  if (hv_peer_is_known(&event->peer)) {
    peer[0] = ' ';
    hv_peer_short(&event->peer, peer + 1);
  }
  if (event->kind == HV_EVENT_STREAM_DATA)
    snprintf(size, sizeof size, " %zu bytes", event->payload ? event->payload->size : (size_t)0);
  sim_tell(sim, node, "%s%s%s%s%s%s%s", kind_name(event->kind), peer, size, ends ? " " : "",
           ends ? hv_status_name(event->status) : "", event->text[0] ? ": " : "", event->text);
}

static void trace(hv_sim *sim, const sim_node *node, uint32_t kind, uint32_t status, uint64_t content) {
  struct {
    uint64_t now, content;
    uint32_t node, kind, status, zero;
  } record = {sim->now, content, node->index, kind, status, 0};
  sim->hash = XXH64(&record, sizeof record, sim->hash);
}

/* ---- events into cores ---- */

/* The planned kill, when the count stands right. */
static void planned_kill(hv_sim *sim, sim_node *node, int after) {
  if (sim->kill.n != sim->counts.events || sim->kill.after != after)
    return;
  sim->kill.n = 0;
  size_t victim = sim->kill.node == HV_SIM_ANY ? node->index : sim->kill.node;
  hv_sim_kill(sim, victim);
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
    say_event(sim, node, event);
  sim->stepping = node;
  node->core.step(node->core.self, event);
  sim->stepping = NULL;
  if (sim->config.say)
    say_log(sim, node);
  if (node->doomed)
    sim_node_crash(node, node->doomed == SIM_UNPLUGGED);
  planned_kill(sim, node, 1);
  return node->life != SIM_DEAD && node->lives == lives;
}

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

/* Does the next thing up to a time; what belongs to a paused node is put aside, in its order. */
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
      .link = {.delay_us = 10000, .jitter_us = 2000},
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
  sim_heap_sift(&sim->heap, drop_entry, sim);
  size_t leaks = hv_sim_leaks(sim);
  for (size_t i = 0; i < sim->n_nodes; i++)
    sim_node_free(sim->nodes[i]);
  sim_links_fini(sim);
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
