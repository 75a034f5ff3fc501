// clang-format off
/* Many seeds of one room: whole swarms under random faults, with what must hold checked at the end and on the way.
 *
 *   swarm ROOM [--seeds A-B] [--nodes N] [--minutes M | --epochs E] [--faults loss,kill,...|all|none] [--narrate]
 *   swarm dht [...]    every room whose name begins with dht-
 *   swarm check        every room as its own row says, short
 *
 * Prints what failed, how to repeat it, and one JSON line last; exits with 1 if a seed failed.
 * A room is one file and one row in the table of swarm.c: its `play` makes nodes, lets them live for the time given
 * (faults end before the last third, so that all may come to rest) and says swarm_fail when something does not hold.
 */
// clang-format on
#ifndef HV_TESTS_SWARM_H
#define HV_TESTS_SWARM_H

#include <stdarg.h>
#include <stddef.h>

#include "core/progress/report.h"
#include "kern/device.h"
#include "lib/random.h"
#include "net/sim/sim.h"

typedef enum swarm_fault {
  SWARM_LOSS = 1,       /* 2% of messages */
  SWARM_DUPLICATE = 2,  /* 2% come twice */
  SWARM_REORDER = 4,    /* 5% are held back */
  SWARM_KILL = 8,       /* nodes are killed and most come back */
  SWARM_UNPLUG = 16,    /* the same, and nobody is told */
  SWARM_PAUSE = 32,     /* nodes stand still for up to 20 s */
  SWARM_PARTITION = 64, /* the swarm falls apart into two for up to 40 s, or one way between two is cut */
  SWARM_SKEW = 128,     /* clocks an hour apart, running up to 200 ppm too fast or slow */
  SWARM_LIARS = 256     /* of `average` and `run`: peers that mean harm */
} swarm_fault;

/* Memory in another place, for the values of some members of `round`: a GPU's. Each call is done when it returns. */
typedef struct swarm_place {
  void *self;
  void *(*take)(void *self, size_t bytes); /* never NULL */
  void (*give)(void *self, void *memory);  /* NULL is fine */
  void (*put)(void *self, void *there, const void *here, size_t bytes);
  void (*get)(void *self, void *here, const void *there, size_t bytes);
  /* A member's way to that memory, for chunks of so many values. close gives it back, in whatever state its round ended. */
  const hv_device *(*open)(void *self, uint32_t chunk_values, void **way);
  void (*close)(void *self, void *way); /* NULL is fine */
} swarm_place;

typedef struct swarm_options {
  uint64_t first_seed, last_seed;
  size_t nodes;
  double minutes;
  unsigned faults;
  int narrate;
  const swarm_place *place; /* of `round`: NULL is the plain device of lib/away.h */
} swarm_options;

#define SWARM_EPOCH_US UINT64_C(26000000) /* what --epochs counts in */

enum { SWARM_FIGURES_MAX = 24 };

typedef struct swarm_run {
  const swarm_options *options;
  uint64_t seed;
  check_rng rng; /* of the scenario: apart from the sim's own */
  hv_mem mem;
  hv_sim *sim;
  uint64_t end_us, calm_us; /* no more faults from calm_us on */
  double haste;             /* faults last so many times shorter; 0: once */
  uint64_t apart_us;        /* by then every partition has ended */
  struct swarm_passing *passing;
  uint64_t hash; /* of the whole trace, once it is over */
  char failure[400];
  struct {
    const char *name;
    double sum;
  } figures[SWARM_FIGURES_MAX];
} swarm_run;

typedef struct swarm_room {
  const char *name, *about;
  size_t nodes; /* what `check` and a bare call take */
  double minutes;
  unsigned faults;
  uint64_t seeds; /* of `check` */
  void (*play)(
      swarm_run *run); /* makes nodes in run->sim, runs until run->end_us, checks, ends with swarm_over, frees what is its own */
} swarm_room;

/* Plays one seed of a room, and returns the hash of its trace. run->failure holds the first thing that does not hold. */
uint64_t swarm_play(const swarm_room *room, const swarm_options *options, uint64_t seed, swarm_run *run);
/* The skew and drift of a new node, as the faults say. */
void swarm_seat(swarm_run *run, hv_sim_node_config *seat);
/* Starts the faults of the options on all nodes of the sim; at calm_us all is healed and all but a few nodes live. */
void swarm_trouble(swarm_run *run);
/* One of these faults, now. */
void swarm_strike(swarm_run *run);
/* When the sim is gone: what is left of faults that have not ended. Only for a room that ends before calm_us. */
void swarm_trouble_fini(swarm_run *run);
/* Frees the sim (cores and all), and fails if anything is left. */
void swarm_over(swarm_run *run);
/* Something does not hold. The first one is kept. */
void swarm_fail(swarm_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds to a figure of the JSON line, summed over seeds. `name` is a constant. */
void swarm_figure(swarm_run *run, const char *name, double value);

/* A node of the simulator that lies: to the members of its rounds, and of where it is in its run. All else that it says goes
 * through as it is. */
typedef enum swarm_lies {
  SWARM_LIES_VALUES = 1,    /* NaN and infinities, in chunks that are well otherwise */
  SWARM_LIES_BYTES = 2,     /* chunks that are broken, or cut off; of a state that it gives, too */
  SWARM_LIES_ORDER = 4,     /* chunks out of turn, whose values are in them cut off, and itself for somebody else */
  SWARM_LIES_NEWS = 8,      /* views and members that are not so, words that are not its to say */
  SWARM_LIES_WEIGHT = 16,   /* weights that are no weights */
  SWARM_LIES_HUGE = 32,     /* beside VALUES: numbers near the end of float32, which are finite */
  SWARM_LIES_EPOCH = 64,    /* progress of an epoch that is `ahead` of its own */
  SWARM_LIES_SAMPLES = 128, /* progress with as many samples as a message can hold */
  SWARM_LIES_SPEED = 256,   /* the same of its speed */
  SWARM_LIES_PLACE = 512,   /* in matchmaking: that it is in an epoch that is `ahead`, or comes to one */
  SWARM_LIES_KEEPS = 1024,  /* it sends no manifest of what others want to load, so nothing of an average of its log */
  SWARM_LIES_SPOILS = 2048  /* or sends one that is broken, or cut off */
} swarm_lies;

enum { SWARM_LIAR_RECORDS = 16 };

typedef struct swarm_liar {
  unsigned tells; /* which lies; set by the caller, as the next four are */
  check_rng rng;
  hv_sim *sim;
  uint64_t ahead;    /* of EPOCH and PLACE */
  hv_peer_id me;     /* of EPOCH, SAMPLES and SPEED */
  uint64_t told_us;  /* when it last lied about views or members, */
  uint64_t false_us; /* and of an average */
  hv_mem *mem;       /* the env's, as what follows */
  hv_status (*send)(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
  hv_status (*open)(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                    hv_stream **out);
  hv_status (*call)(hv_env *env, hv_call *call, const hv_msg *request);
  void (*reply)(hv_env *env, hv_request *request, const hv_msg *answer);
  uint8_t members[32];
  uint8_t words[HV_ZONE_MSG_BYTES_MAX], report[HV_REPORT_BYTES];
  hv_record records[SWARM_LIAR_RECORDS];
} swarm_liar;

void swarm_liar_take(swarm_liar *liar, hv_env *env); /* before its core is made, each time; it stands as long as the node does */

void swarm_house_play(swarm_run *run);
void swarm_round_play(swarm_run *run);
void swarm_match_play(swarm_run *run);
void swarm_setups_play(swarm_run *run);
void swarm_run_play(swarm_run *run);
void swarm_run_pair_play(swarm_run *run);
void swarm_run_hasty_play(swarm_run *run);
void swarm_home_play(swarm_run *run);
void swarm_run_posted_play(swarm_run *run);
void swarm_run_upset_play(swarm_run *run);
void swarm_run_local_play(swarm_run *run);
void swarm_run_anchor_play(swarm_run *run);
void swarm_run_odd_play(swarm_run *run);
void swarm_run_lone_play(swarm_run *run);
void swarm_home_liars_play(swarm_run *run);
void swarm_home_local_play(swarm_run *run);
void swarm_mix_play(swarm_run *run);
void swarm_average_play(swarm_run *run);
void swarm_versions_play(swarm_run *run);
void swarm_nat_play(swarm_run *run);
void swarm_dht_play(swarm_run *run);
void swarm_dht_day_play(swarm_run *run);
void swarm_dht_join_play(swarm_run *run);
void swarm_dht_half_play(swarm_run *run);
void swarm_dht_three_quarters_play(swarm_run *run);
void swarm_dht_five_play(swarm_run *run);
void swarm_dht_cost_play(swarm_run *run);
void swarm_dht_hops_play(swarm_run *run);
void swarm_dht_skew_play(swarm_run *run);
void swarm_dht_liars_play(swarm_run *run);
void swarm_dht_liars_unowned_play(swarm_run *run);
void swarm_dht_ground_play(swarm_run *run);
void swarm_dht_forged_play(swarm_run *run);
void swarm_state_play(swarm_run *run);
void swarm_state_liars_play(swarm_run *run);
void swarm_state_demand_play(swarm_run *run);
void swarm_state_gifts_play(swarm_run *run);
void swarm_progress_play(swarm_run *run);
void swarm_progress_liars_play(swarm_run *run);

#endif
