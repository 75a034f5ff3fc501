/* A program that only pretends to compute, around the machine that decides for a peer of a run (core/epoch): it makes batches, and
 * does the actions of the hands after random times. Its replica has values, so equal marks can be checked as equal bits.
 *
 * Used by tests/sim/swarm/swarm_run.c. All but pretender_turn and pretender_leave is called outside of a node's step.
 */
#ifndef HV_TESTS_PRETENDER_H
#define HV_TESTS_PRETENDER_H

#include "core/epoch/driver.h"
#include "core/epoch/keep.h"
#include "core/epoch/replay.h"
#include "core/node.h"
#include "core/state/taker.h"
#include "lib/random.h"
#include "net/sim/sim.h"

enum { PRETENDER_VALUES = 48, PRETENDER_QUEUE = 8, PRETENDER_OFFERS = 4, PRETENDER_LIES = 32 };
enum { PRETENDER_STEPS = PRETENDER_VALUES - 1 }; /* this value of a replica is the number of steps behind it */
/* With an outer optimizer a replica is an anchor of so many values, then its momentum. */
enum { PRETENDER_ANCHOR = (PRETENDER_VALUES - 1) / 2, PRETENDER_MET = 80, PRETENDER_RANGES = PRETENDER_VALUES };
enum { PRETENDER_BULK_MAX = 1 << 18, PRETENDER_BULK_BYTES = 12 }; /* of AdamW: a parameter and its two statistics */

enum { PRETENDER_VALIDATES = 32 };

enum { PRETENDER_LOG_LEAST = 8192 }; /* a log of a model without bulk */

enum { PRETENDER_PARTS = 2 }; /* of a state: its values, and what is there for its bytes */

/* Harm that a program means. Its own replica stays as it is. */
typedef enum pretender_lies {
  PRETENDER_LIES_AHEAD = 1,     /* it offers a state of an epoch that nobody has */
  PRETENDER_LIES_BYTES = 2,     /* it offers other bytes under the mark of its replica */
  PRETENDER_LIES_GRADIENTS = 4, /* it averages gradients of a usual size that are not its own */
  PRETENDER_LIES_ENTRIES = 8,   /* its log has other values, another mark, or chunks that no average has */
  PRETENDER_LIES_FUTURE = 16,   /* and is of epochs that nobody has ended */
  PRETENDER_LIES_NOTHING = 32,  /* its harm is in what its node or its process does */
  PRETENDER_LIES_STATE = 64     /* it averages another state under the numbers of its mark */
} pretender_lies;

typedef struct pretender_program {
  hv_epoch_options options;
  hv_progress_terms terms;
  uint64_t batch_us, batch_samples;
  uint64_t validates_us; /* each PRETENDER_VALIDATES batches it makes none for so long */
  uint64_t matchmaking_us, averaging_us;
  uint64_t hands_us;                  /* an action takes up to this */
  uint64_t copy_us;                   /* and so much more, if it is a copy of the state */
  size_t bulk;                        /* parameters of 0 beside its values, at most PRETENDER_BULK_MAX: for their bytes only */
  int is_light;                       /* 1: they are in its averages, and not in its states */
  hv_codec codec;                     /* of their averages */
  uint32_t chunk_values, chunk_bytes; /* of averages, 0: 4; and of states, 0: as usual */
  uint64_t up_rate, down_rate;        /* of its line; 0: no limit */
  uint32_t load_ms;
  uint64_t log_memory; /* bytes of the averages that it keeps; 0: those of its model, PRETENDER_LOG_LEAST at least */
  int no_log;          /* 1: it keeps none, and repeats none */
  uint64_t model;      /* the values that it begins with follow from this number */
  int client, begins_run;
  hv_epoch_company company;
  double fails;                           /* probability that a gradient is not finite */
  int differs;                            /* as of the machine: only averages of the state are offered */
  int posts;                              /* it begins its next batch before it hears what its machine decides of the latest one */
  double upsets;                          /* probability that something upsets it, at each opportunity */
  unsigned lies;                          /* pretender_lies; 0: it is honest */
  uint64_t ahead;                         /* epochs, of PRETENDER_LIES_AHEAD and FUTURE */
  void (*seated)(void *arg, hv_env *env); /* its node begins, and has no core yet; NULL: nobody wants to know */
  void *seated_arg;
} pretender_program;

typedef struct pretender_work {
  hv_epoch_order order;
  uint64_t due_us;
} pretender_work;

/* Events that upset a program, of which its machine is to hear. */
typedef enum pretender_upset {
  PRETENDER_OVERFLOW, /* a gradient is not finite: of a batch, or of the sums that it was added to */
  PRETENDER_BREAK,    /* an action raises an error, which the user passes over */
  PRETENDER_PAUSE,    /* the late lane's outcome is taken between two batches */
  PRETENDER_RESTORE,  /* the user restores a checkpoint */
  PRETENDER_ASK,      /* the user asks for the swarm's state */
  PRETENDER_MORE,     /* another process of the same peer has made samples */
  PRETENDER_BEHIND,   /* a state is loaded between a batch's gradient and its step() */
  PRETENDER_UPSETS
} pretender_upset;

/* A checkpoint. */
typedef struct pretender_saved {
  int is_there, has_mark; /* 0: its replica was not the swarm's */
  uint64_t epoch, schedule;
  hv_mark mark;
  float model[PRETENDER_VALUES], main[PRETENDER_VALUES];
} pretender_saved;

/* A copy of the state, on offer to joiners (give.state alone) or on its way to hubs. */
typedef struct pretender_shared {
  struct pretender *of;
  hv_gift_give give;
  int is_under_way;
  uint64_t epoch; /* of the machine's order */
  uint8_t metadata[HV_MARK_SIZE];
  hv_manifest_part parts[PRETENDER_PARTS];
} pretender_shared;

/* A state that a hub keeps. */
typedef struct pretender_held {
  hv_payload payload; /* first */
  struct pretender *of;
  uint8_t *image;
  hv_span spans[PRETENDER_PARTS];
  hv_manifest_part parts[PRETENDER_PARTS];
  uint8_t metadata[HV_MARK_SIZE];
  hv_state_offer offer;
} pretender_held;

/* A peer as its latest epoch began to end. */
typedef struct pretender_ending {
  uint64_t epochs; /* 1 + its epoch; 0: there was none */
  size_t counted;  /* trainers */
  hv_mark mark;
  size_t averaged; /* trainers in its round, whose values all are in the average; 0: there is none yet */
} pretender_ending;

/* A difference that a peer gave to a round, or got from it. */
typedef struct pretender_difference {
  uint64_t epochs; /* 1 + its epoch; 0: there was none */
  uint64_t samples;
  float values[PRETENDER_ANCHOR];
} pretender_difference;

/* The latest round of differences, for this peer. */
typedef struct pretender_met {
  hv_peer_id members[PRETENDER_MET]; /* that train */
  size_t n, n_missed;
  hv_average_range missed[PRETENDER_RANGES];
} pretender_met;

/* Writes the trainers of a run, as a hub knows them by their records. */
typedef size_t pretender_trainers(void *arg, hv_gift_trainer *out, size_t max);

typedef struct pretender {
  pretender_program program;
  size_t index;
  hv_peer_id id;
  hv_sim *sim;
  check_rng rng;
  hv_env *env;
  hv_node *node; /* NULL: it does not live; so the next two */
  hv_epoch_driver *driver;
  hv_average *averages[HV_EPOCH_ROUNDS];
  hv_target initial[1];
  size_t n_initial;
  unsigned lives;                      /* times that its process began */
  int is_computing, is_leaving, finds; /* finds: its batch waits until the swarm is found */
  uint64_t adopted;                    /* states that it took over; before_finding: when it began to find the swarm */
  uint64_t before_finding;
  pretender_saved saved;
  uint64_t batch_due_us, batches;
  pretender_work works[HV_EPOCH_LANES][PRETENDER_QUEUE];
  size_t n_works[HV_EPOCH_LANES];
  /* its memory */
  float model[PRETENDER_VALUES], main[PRETENDER_VALUES]; /* what the model computes with, and what the optimizer steps */
  float sums[PRETENDER_VALUES], gradients[PRETENDER_VALUES], state[PRETENDER_VALUES + HV_MARK_DIGITS];
  float snapshot[PRETENDER_VALUES];
  uint64_t summed, schedule;
  uint8_t *image;
  pretender_shared offers[PRETENDER_OFFERS], gifts[PRETENDER_OFFERS];
  hv_payload *entry;      /* that it is to repeat; NULL: none */
  hv_step_log *false_log; /* of one that lies in it; NULL: it does not */
  /* a hub's */
  pretender_trainers *trainers; /* set by who makes a hub, as the next one */
  void *trainers_arg;
  hv_gift_take take;
  pretender_held *arriving;
  size_t n_held;
  uint64_t followed_us;
  hv_keep keep;
  float kept_steps;
  /* what an observer may ask */
  uint64_t upset[PRETENDER_UPSETS];
  uint64_t produced, came_us, told_us, tells[HV_EPOCH_NOTICES];
  uint64_t taken[2];                           /* hash and epoch of the latest state that it adopted; zeros: none */
  uint64_t lied_of[PRETENDER_LIES], n_lied_of; /* hashes of the states that it offered and that were lies, the latest ones */
  uint64_t posted;                             /* batches that it began after its machine had given it actions */
  uint64_t met, stepped_alone;                 /* averages of gradients with others; steps without one */
  uint64_t repeated;                           /* steps of others that it has made again */
  uint64_t n_false_entries;                    /* of its log */
  pretender_difference gave, got;              /* with an outer optimizer */
  uint64_t gave_before;                        /* `gave.epochs` of an earlier life, which a round may have taken */
  pretender_met round;                         /* that of `got` */
  double own[PRETENDER_ANCHOR];                /* what its batches did to its values, and no average has */
  float batch[PRETENDER_VALUES];               /* the gradient of its batch, where each one is a step */
  float base[PRETENDER_ANCHOR];                /* as its latest end began, as the next two: its values, and what they came from */
  double own_base[PRETENDER_ANCHOR];
  uint64_t summed_base;
  uint64_t stepped_beside; /* batches while a difference travelled */
  uint64_t own_step;       /* 1 + the epoch for which it told of a step by itself */
  pretender_ending ending;
  hv_mark offered; /* of the state on offer */
  char failure[400];
  /* its machine's record, which another machine replays as it is written */
  hv_trace trace;
  hv_replay *replay;
} pretender;

/* A program, which begins anew whenever its node does. */
void pretender_init(pretender *p, hv_sim *sim, size_t index, const pretender_program *program, uint64_t seed);
hv_sim_node_config pretender_seat(pretender *p);
/* In a step of its node: what the program does now. */
void pretender_turn(pretender *p);
/* In a step of its node: the program ends, and says so. */
void pretender_leave(pretender *p);
/* NULL: it has none yet. */
const hv_epoch *pretender_look(const pretender *p);
/* 1: nothing of it is under way, so that its values are those of its mark. */
int pretender_rests(const pretender *p);
/* 1: it offered a state with this hash that was not its own. */
int pretender_lied_of(const pretender *p, uint64_t hash);
/* The values of its replica: those of its model, or with an outer optimizer its anchor. */
const float *pretender_replica(const pretender *p);
/* Steps behind its replica, or that which a hub keeps. */
double pretender_steps(const pretender *p);

#endif
