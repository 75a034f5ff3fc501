/* Many nodes that look for groups in the simulator, and what a scenario wants of them. Shared by tests/sim/test_sim_match*.c and
 * the swarm program. */
#ifndef HV_TESTS_MATCH_SWARM_H
#define HV_TESTS_MATCH_SWARM_H

#include "core/match/match_inner.h"
#include "core/node.h"
#include "net/sim/sim.h"

#define MATCH_SECOND UINT64_C(1000000)

typedef struct match_swarm match_swarm;
typedef struct match_try match_try;

/* One seek of a program: it is made by match_swarm_seek and lives until it is forgotten. */
struct match_try {
  hv_command command; /* first */
  match_try *next;
  struct match_seat *seat;
  hv_match_seek seek;
  int started, done;
  hv_status status;
  hv_match_group *group; /* of HV_OK */
  uint64_t asked_us, ended_us;
  char epoch[HV_MATCH_EPOCH_MAX], text[400];
  const char *setup; /* of its seat, when it was asked for; NULL: none */
  size_t gather_size;
  uint8_t *gather;
};

typedef struct match_seat {
  match_swarm *swarm;
  size_t number;
  hv_target initial;
  int has_initial, client;
  int64_t skew_us;
  int32_t drift_ppm;
  hv_versions versions;   /* of the protocol */
  int is_liar;            /* answers through match_swarm.lie */
  const char *setup;      /* with which its next seek begins; NULL: none */
  hv_match_config config; /* may be changed before the node is added */
  hv_env *env;
  hv_node *node; /* NULL: none */
  hv_match *match;
  match_try *tries; /* the newest first */
} match_seat;

struct match_swarm {
  hv_mem *mem;
  hv_sim *sim;
  match_seat *seats;
  size_t n, room;
  hv_match_config config; /* of new seats */
  hv_dht_config dht;      /* of all, as the next two */
  uint32_t hello_every_ms;
  size_t peers_room;
  void (*done)(match_try *done); /* may be NULL */
  /* A liar's way with an event: 1 if it was answered there. */
  int (*lie)(match_seat *liar, const hv_event *event);
  void *scenario;
};

void match_swarm_init(match_swarm *swarm, hv_sim *sim, hv_mem *mem, size_t room);
/* After the sim has been freed. */
void match_swarm_fini(match_swarm *swarm);

/* The seat that comes next, to be furnished; then it is added. Without an `initial` it knows node 0. */
match_seat *match_swarm_next(match_swarm *swarm);
size_t match_swarm_add(match_swarm *swarm);
void match_swarm_run(match_swarm *swarm, double seconds);

/* A node's program seeks. A node that is dead: done at once with HV_CLOSED. */
match_try *match_swarm_seek(match_swarm *swarm, size_t node, const char *epoch, uint32_t expected, uint32_t wait_ms,
                            hv_span gather);
/* The newest try of a node, or NULL. */
match_try *match_swarm_try(match_swarm *swarm, size_t node);
/* Until all nodes' newest tries are done, or for so many seconds; 1: all done. */
int match_swarm_finish(match_swarm *swarm, double seconds);
/* Those that are done, but for the newest. */
void match_swarm_forget(match_seat *seat, size_t keep);

/* The parts on which two members' groups must agree, byte for byte; 0: they differ. */
int match_swarm_agree(const hv_match_group *a, const hv_match_group *b);
/* NULL, or what is wrong with a group, in itself. */
const char *match_swarm_wrong(const hv_match_group *group, uint32_t n_chunks);
/* Where a node stands in a group; n_members: nowhere. */
size_t match_swarm_place(match_swarm *swarm, const hv_match_group *group, size_t node);
/* Which node would host this epoch if all lived: the first in order that can be dialled. */
size_t match_swarm_first(match_swarm *swarm, const char *epoch, size_t nth);

#endif
