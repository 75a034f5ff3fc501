/* A simulated network of nodes in one process: the deterministic implementation of hv_env, driven by a seed and a virtual clock.
 *
 * Room: net (uses core/env, net/wire, net/identity). Used by tests, the swarm program and benchmarks.
 * One seed replays one run exactly: the same events at the same times with the same bytes, and so the same trace hash. The rules on
 * loss, streams, payloads and the ends of nodes are in docs/explanation/how-it-is-tested.md, "What the simulator is strict about".
 * Owner: a sim owns its nodes, their cores (which it creates and frees through a node's config), and all messages on their way.
 * Thread: one. No call waits for real time. There is no global state: several sims may exist side by side.
 */
#ifndef HV_NET_SIM_H
#define HV_NET_SIM_H

#include "core/env.h"
#include "core/peers/admission.h"
#include "core/versions.h"

#define HV_SIM_ANY SIZE_MAX /* in place of a node's number: every node */

typedef struct hv_sim hv_sim;

/* One direction between two nodes. */
typedef struct hv_sim_link {
  uint64_t delay_us;
  uint64_t jitter_us; /* random extra delay: 0 to this */
  double loss;        /* probability that a message is lost; a stream sends it again, later */
  double duplicate;   /* probability that a message of a unary call arrives twice */
  double reorder;     /* probability that a message of a unary call is held back for up to ten delays */
  uint64_t rate;      /* bytes per second; messages queue for it; 0: no limit */
} hv_sim_link;

typedef struct hv_sim_config {
  uint64_t seed;
  hv_sim_link link;      /* of all pairs for which hv_sim_set_link sets no other */
  uint64_t job_us;       /* a job takes 0.5 to 1.5 times this */
  uint64_t grace_us;     /* longest time from STOP to the end of a node */
  uint64_t keepalive_us; /* a stream whose other end does not answer breaks after this time */
  size_t window;         /* flow-control window of each direction of a stream, in bytes */
  int real_crypto;       /* 1: Ed25519; 0: a fast replacement, keyed by the seed, which cores cannot forge */
  int skip_payload_hash; /* 1: the trace covers the sizes of payloads, not their bytes */
  /* Gets one line for every event, "+1.204s n3 CALL_DONE ...", and for every log record of a node. NULL: silent. */
  void (*say)(void *arg, const char *line);
  void *say_arg;
  hv_log_level say_least; /* least level of the log records that `say` gets */
} hv_sim_config;

/* 10 ms delay, 2 ms jitter, no loss; jobs of 1 ms, 500 ms grace, 20 s keepalive, windows of 8 MiB. */
hv_sim_config hv_sim_defaults(uint64_t seed);

/* mem is borrowed and charged for everything; each node's core has an account of its own below it. NULL: no memory. */
hv_sim *hv_sim_new(hv_mem *mem, const hv_sim_config *config);
/* Crashes all nodes and frees the sim. Commands that have not run are called with core NULL. Returns the number of blocks that
 * cores have leaked: 0 if all is well. */
size_t hv_sim_free(hv_sim *sim); /* NULL is fine */

/* ---- homes: nodes behind one NAT, by the rules in docs/design/reach.md, "Kinds of NAT in the simulator" ---- */
typedef enum hv_sim_nat {
  HV_SIM_FULL_CONE,       /* one outer port for an inner endpoint, and all may send to it */
  HV_SIM_RESTRICTED,      /* the same, but only hosts to which it has sent may */
  HV_SIM_PORT_RESTRICTED, /* the same, but only endpoints to which it has sent may */
  HV_SIM_SYMMETRIC        /* another outer port for each endpoint to which it sends, and only that one may send to it */
} hv_sim_nat;

typedef struct hv_sim_home {
  hv_sim_nat kind;
  uint64_t idle_us; /* a mapping that is not used for longer expires without notice; 0: never */
  uint8_t no_ports; /* 1: it opens no ports on request */
  uint8_t hairpin;  /* 1: its own nodes can use its outer address, too */
} hv_sim_home;

enum { HV_SIM_HOMES_MAX = 65535 };
#define HV_SIM_UNIX_S 1700000000 /* the seconds since 1970 at the beginning, by a clock without skew */

/* Adds a home; *home is its number, from 1. HV_NOMEM. */
hv_status hv_sim_add_home(hv_sim *sim, const hv_sim_home *rules, size_t *home);
/* A node asks its NAT for the port on which it listens, as by NAT-PMP. *outer: where it can be dialled for lease_us from now; 0
 * ends a lease. The end of a lease also ends the connections through the port, without notice. HV_STATE: no home, or a dead node;
 * HV_REFUSED: the NAT opens none; HV_NOMEM: it has no port left. */
hv_status hv_sim_open_port(hv_sim *sim, size_t node, uint64_t lease_us, hv_addr *outer);
/* The end of a new connection from a node to an address, begun now, if all machines are well. HV_OK: a node that listens;
 * HV_REFUSED: a host where nobody listens; HV_UNREACHABLE: no route; HV_TIMEOUT: a NAT that drops it. *node (may be NULL): who. */
hv_status hv_sim_reaches(hv_sim *sim, size_t from, const hv_addr *addr, size_t *node);

/* ---- nodes: numbered from 0 as they are added ---- */
typedef struct hv_sim_node_config {
  hv_status (*make)(hv_env *env, void *arg, hv_core *out); /* creates the core, at each start; not called in a step */
  void (*free)(void *self);
  void *arg;                     /* of make; borrowed until hv_sim_free */
  int client_mode;               /* other nodes cannot dial it */
  uint32_t network;              /* 0: its address is private; else it is public, in the network of this number */
  size_t home;                   /* number of the home where it is, with `network` 0; 0: none */
  int64_t skew_us;               /* by which its clock is ahead; negative: behind; at most 100 hours */
  int32_t drift_ppm;             /* by which its clock runs too fast, in millionths; negative: too slow */
  uint64_t up_rate;              /* bytes per second to all other nodes together; 0: no limit */
  uint64_t down_rate;            /* the same, from all other nodes */
  size_t memory;                 /* limit of its core's account, in bytes; 0: none */
  hv_versions versions;          /* of the protocol that it speaks; zeros: those of this code */
  const hv_admission *admission; /* of a member of a closed swarm, without denials; copied. NULL: the swarm is open */
} hv_sim_node_config;

/* Adds a node and starts it: START is its first event, at the present time. HV_NOMEM, HV_INVALID (skew, drift, versions or home),
 * or the status of make. */
hv_status hv_sim_add(hv_sim *sim, const hv_sim_node_config *config, size_t *node);
/* Id and address of a node. They follow from the seed and the number, so they are known before the node is added, unless it is to
 * be in a public network. Every node can also be dialled at the address that it would have in a private one; a node in a home only
 * by the nodes of that home. */
hv_target hv_sim_target(hv_sim *sim, size_t node);
size_t hv_sim_nodes(const hv_sim *sim);
int hv_sim_alive(const hv_sim *sim, size_t node);
int hv_sim_paused(const hv_sim *sim, size_t node);
void *hv_sim_core(const hv_sim *sim, size_t node); /* hv_core.self, to inspect between events; NULL if the node is dead */
hv_mem *hv_sim_mem(hv_sim *sim, size_t node);

/* ---- faults and ends of nodes. Each takes effect at once; if a core's step asks for its own node, when that step returns ---- */
void hv_sim_kill(hv_sim *sim, size_t node);         /* like kill -9: its operating system resets all connections */
void hv_sim_unplug(hv_sim *sim, size_t node);       /* the machine loses power: no other node is notified */
hv_status hv_sim_restart(hv_sim *sim, size_t node); /* same identity and address, new core. HV_STATE: it is alive */
void hv_sim_set_versions(hv_sim *sim, size_t node, hv_versions versions); /* what it speaks from its next start on */
void hv_sim_stop(hv_sim *sim, size_t node);                               /* sends STOP, waits for the grace time, ends it */
void hv_sim_pause(hv_sim *sim, size_t node);                              /* like SIGSTOP: its events are delayed, its clock runs */
void hv_sim_sleep(hv_sim *sim, size_t node); /* like a closed laptop: the same, and its clock but for unix_s stands still */
void hv_sim_continue(hv_sim *sim, size_t node);
/* Kills a node right before or after the n-th event of the run, counted from 1. HV_SIM_ANY: the node that this event is for. Only
 * one kill can be planned at a time. */
void hv_sim_kill_at_event(hv_sim *sim, size_t node, uint64_t n, int after);
/* Posts a command to a node. If the node is dead or dies first, the command is run with core NULL. HV_NOMEM: it was not taken. */
hv_status hv_sim_command(hv_sim *sim, size_t node, hv_command *command);

/* ---- the network ---- */
/* Sets the link for one direction of a pair. With HV_SIM_ANY as `to` or `from`: for all links from or to a node; as both: for all.
 * The most specific setting applies. link NULL removes the setting. */
hv_status hv_sim_set_link(hv_sim *sim, size_t from, size_t to, const hv_sim_link *link);
/* The flow-control window of all streams, in bytes: how much a sender may have on a slow line. Before nodes are added. */
void hv_sim_set_window(hv_sim *sim, size_t window);
hv_status hv_sim_cut(hv_sim *sim, size_t from, size_t to, int on); /* one direction */
/* Partitions the network: nodes of different groups cannot reach each other. All nodes begin in group 0. */
void hv_sim_group(hv_sim *sim, size_t node, unsigned group);
void hv_sim_heal(hv_sim *sim);                         /* removes all cuts and partitions */
int hv_sim_apart(hv_sim *sim, size_t from, size_t to); /* true if no message gets from `from` to `to` now */
uint64_t hv_sim_rewired(const hv_sim *sim);            /* number of changes of cuts and groups so far */
/* Gets the bytes of every message of a unary call as it arrives, and may change them, to simulate lying peers. NULL: none. */
typedef void hv_sim_tap(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size);
void hv_sim_set_tap(hv_sim *sim, hv_sim_tap *tap, void *arg);

/* ---- time ---- */
uint64_t hv_sim_now(const hv_sim *sim); /* virtual time since the beginning, in us */
/* Runs fn(sim, arg) at a virtual time, between events. HV_NOMEM. */
hv_status hv_sim_at(hv_sim *sim, uint64_t time_us, void (*fn)(hv_sim *sim, void *arg), void *arg);
int hv_sim_step(hv_sim *sim);                         /* processes the next entry of the event queue; 0: it is empty */
void hv_sim_run_until(hv_sim *sim, uint64_t time_us); /* processes all entries due up to that time, and sets the clock to it */
/* Processes entries until enough(arg) returns true, or up to a time. Returns the last result of enough. */
int hv_sim_drive(hv_sim *sim, int (*enough)(void *arg), void *arg, uint64_t time_us);

/* ---- what happened ---- */
typedef struct hv_sim_counts {
  uint64_t events;                 /* steps of cores */
  uint64_t calls, messages, bytes; /* unary calls; messages of calls and streams, and their bytes */
  uint64_t lost, doubled;          /* messages that were lost; that were duplicated */
} hv_sim_counts;
hv_sim_counts hv_sim_count(const hv_sim *sim);
uint64_t hv_sim_hash(const hv_sim *sim); /* the trace: a hash over time, node, kind and bytes of all events so far */
size_t hv_sim_leaks(const hv_sim *sim);  /* blocks that dead nodes have not freed */
/* Passes a line of the scenario's own to hv_sim_config.say. */
void hv_sim_say(hv_sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
