/* The simulated world: fills hv_env for many nodes in one process, under one seed and one virtual clock.
 *
 * Room: net (uses core/env, net/wire, net/identity). Used by tests, the swarm program and benchmarks. One seed replays one run
 * exactly: the same events at the same times with the same bytes, and so the same trace hash. docs/TESTING.md, "What the simulator
 * is strict about", has its rules on loss, streams, payloads and ends. Owner: a sim owns its nodes, their cores (through the make
 * and free of a node's config), and all that is under way. Thread: one. Nothing waits for real time. There is no global state:
 * several may exist side by side.
 */
#ifndef HV_NET_SIM_H
#define HV_NET_SIM_H

#include "core/env.h"

#define HV_SIM_ANY SIZE_MAX /* for a node: each of them */

typedef struct hv_sim hv_sim;

/* One way between two nodes. */
typedef struct hv_sim_link {
  uint64_t delay_us;
  uint64_t jitter_us; /* random extra delay, at most this */
  double loss;        /* how probably a message is lost; on a stream it comes again, later */
  double duplicate;   /* how probably a unary message comes twice */
  double reorder;     /* how probably a unary message is held back for up to ten delays */
  uint64_t rate;      /* bytes per second, with a queue before it; 0: no limit */
} hv_sim_link;

typedef struct hv_sim_config {
  uint64_t seed;
  hv_sim_link link;      /* of all pairs that have no other */
  uint64_t job_us;       /* a job takes between half and one and a half of this */
  uint64_t grace_us;     /* from STOP to the end, if the node is not idle sooner */
  uint64_t keepalive_us; /* a stream without signs of life breaks after this long */
  size_t window;         /* bytes, each way of each stream */
  int real_crypto;       /* 1: Ed25519; 0: a fast double that nobody without the seed can forge */
  int skip_payload_hash; /* 1: the bytes of payloads stay out of the trace (their sizes do not) */
  /* The narrator: one line for every event, "+1.204s n3 CALL_DONE ...", and what the nodes log. NULL: silent. */
  void (*say)(void *arg, const char *line);
  void *say_arg;
  hv_log_level say_least; /* of the nodes' logs */
} hv_sim_config;

/* 10 ms delay, 2 ms jitter, nothing lost; jobs of 1 ms, 500 ms grace, 20 s keepalive, windows of 8 MiB. */
hv_sim_config hv_sim_defaults(uint64_t seed);

/* NULL: no memory. mem is borrowed and pays for everything; each node's core has an account of its own below it. */
hv_sim *hv_sim_new(hv_mem *mem, const hv_sim_config *config);
/* Ends the world with everybody in it (as crashes, commands get no core). Returns the number of blocks that cores leaked; it should
 * be 0.
 */
size_t hv_sim_free(hv_sim *sim); /* NULL is fine */

/* ---- nodes: numbered from 0 as they are added ---- */
typedef struct hv_sim_node_config {
  hv_status (*make)(hv_env *env, void *arg, hv_core *out); /* at the start and at each restart; not within a step */
  void (*free)(void *self);
  void *arg;         /* borrowed as long as the sim lives */
  int client_mode;   /* cannot be dialled */
  int64_t skew_us;   /* its clock is ahead by so much, or behind: up to 100 hours */
  int32_t drift_ppm; /* and runs too fast, or too slow */
  uint64_t up_rate;  /* bytes per second to and from all others together; 0: no limit */
  uint64_t down_rate;
  size_t memory; /* limit of its core's account; 0: none */
} hv_sim_node_config;

/* Adds a node and starts it (START is its first event, now). HV_NOMEM, or what make said. */
hv_status hv_sim_add(hv_sim *sim, const hv_sim_node_config *seat, size_t *node);
/* Id and address of a node, known before it is added: they follow from the seed and the number. */
hv_target hv_sim_target(hv_sim *sim, size_t node);
size_t hv_sim_nodes(const hv_sim *sim);
int hv_sim_alive(const hv_sim *sim, size_t node);
int hv_sim_paused(const hv_sim *sim, size_t node);
void *hv_sim_core(const hv_sim *sim, size_t node); /* hv_core.self; NULL when it has ended. To look at between events. */
hv_mem *hv_sim_mem(hv_sim *sim, size_t node);

/* ---- what happens to nodes; at once, or after the step that asks for it ---- */
void hv_sim_kill(hv_sim *sim, size_t node);         /* kill -9: its system resets all connections */
void hv_sim_unplug(hv_sim *sim, size_t node);       /* the machine is gone: nobody is told */
hv_status hv_sim_restart(hv_sim *sim, size_t node); /* same identity and address, fresh core. HV_STATE while it lives */
void hv_sim_stop(hv_sim *sim, size_t node);         /* STOP, grace, the end */
void hv_sim_pause(hv_sim *sim, size_t node);        /* SIGSTOP: its events wait, its clock goes on */
void hv_sim_continue(hv_sim *sim, size_t node);
/* Kills a node (HV_SIM_ANY: the one whose event it is) right before or after the n-th event of the run (from 1). One at a time. */
void hv_sim_kill_at_event(hv_sim *sim, size_t node, uint64_t n, int after);
/* Hands over a command; run with no core if the node has ended. HV_NOMEM: it was not taken. */
hv_status hv_sim_command(hv_sim *sim, size_t node, hv_command *command);

/* ---- the network ---- */
/* For one way of a pair; with HV_SIM_ANY for all from or to a node; for all pairs. The more special one holds; NULL takes it back.
 */
hv_status hv_sim_set_link(hv_sim *sim, size_t from, size_t to, const hv_sim_link *link);
hv_status hv_sim_cut(hv_sim *sim, size_t from, size_t to, int on); /* one way */
void hv_sim_group(hv_sim *sim, size_t node, unsigned group); /* nodes of different groups cannot reach each other; all begin in 0 */
void hv_sim_heal(hv_sim *sim);                               /* no cuts, one group */
int hv_sim_apart(hv_sim *sim, size_t from, size_t to);       /* 1: nothing gets there now */
uint64_t hv_sim_rewired(const hv_sim *sim);                  /* how often any of that has changed */
/* Sees, and may change, the bytes of every unary message as it arrives: for peers that lie. NULL takes it out. */
typedef void hv_sim_tap(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size);
void hv_sim_set_tap(hv_sim *sim, hv_sim_tap *tap, void *arg);

/* ---- time ---- */
uint64_t hv_sim_now(const hv_sim *sim); /* virtual microseconds since the beginning */
/* Runs fn(sim, arg) at a time, between events. HV_NOMEM. */
hv_status hv_sim_at(hv_sim *sim, uint64_t time_us, void (*fn)(hv_sim *sim, void *arg), void *arg);
int hv_sim_step(hv_sim *sim);                         /* does the next thing; 0: there is none */
void hv_sim_run_until(hv_sim *sim, uint64_t time_us); /* does all up to and at that time; the clock stands there then */
/* Goes on until enough(arg), asked after each thing done, or the time; 1: enough. */
int hv_sim_drive(hv_sim *sim, int (*enough)(void *arg), void *arg, uint64_t time_us);

/* ---- what happened ---- */
typedef struct hv_sim_counts {
  uint64_t events; /* steps of cores */
  uint64_t calls, messages, bytes;
  uint64_t lost, doubled;
} hv_sim_counts;
hv_sim_counts hv_sim_count(const hv_sim *sim);
uint64_t hv_sim_hash(const hv_sim *sim); /* over time, node, kind and bytes of every event so far */
size_t hv_sim_leaks(const hv_sim *sim);  /* blocks on the accounts of nodes that have ended */
/* Says a line through the narrator: a scenario's own words. */
void hv_sim_say(hv_sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
