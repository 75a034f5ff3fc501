/* A scene of the room `home`, for its own play (swarm_home.c) and for tests that narrate one. The story is in swarm_home.c. */
#ifndef HV_TESTS_SWARM_HOME_H
#define HV_TESTS_SWARM_HOME_H

#include "sim/swarm/swarm_run.h"

/* A scene is judged by these, beside safety and waits. */
typedef enum home_goal {
  HOME_MEETS = 1,         /* newcomers average with the others within 1.5 loads and 3 epochs of their start */
  HOME_LOSES_NOTHING = 2, /* no sample of those who trained before is lost */
  HOME_BACK = 4,          /* one that was cut off averages with the others within 30 s of its line's return */
  HOME_NOBODY_DOUBTS = 8, /* no claim of an epoch is doubted */
  HOME_KEEPS_PACE = 16,   /* the others make 0.95 of the epochs that they made before the newcomers came */
  HOME_NEVER_ALONE = 32,  /* nobody makes a step to which nobody came */
  HOME_TOGETHER = 64,     /* in the second part all average with others */
  HOME_REPEATS = 128,     /* one that was cut off, or stood still, has repeated steps, and loaded no state */
  HOME_KEEPS_OWN = 256,   /* that peer loses no sample */
  HOME_TRAINS = 512,      /* those who trained before wait in ends of epochs for half of the time at most */
  HOME_COMPUTES = 1024    /* newcomers compute for HOME_COMPUTED of their time, whether they load or not */
} home_goal;

/* A stranger that means harm, beside newcomers. */
typedef enum home_liar {
  HOME_NO_LIAR,
  HOME_COMES,              /* in matchmaking it says for ever that it comes, or that it is further */
  HOME_LOADS,              /* its line carries hardly what peers say, and it loads the state for minutes */
  HOME_CRASHES,            /* its process ends each second, and begins anew */
  HOME_VOTES,              /* it offers another state, as one who began the run */
  HOME_LIARS = HOME_VOTES, /* the room liars-home draws one of those above, by which nobody is to lose an epoch */
  HOME_AVERAGES            /* it averages another state under the mark of the others' */
} home_liar;

typedef struct home_scene {
  size_t trainers, clients, hubs; /* clients: of the trainers */
  uint64_t epoch_us;              /* that the trainers make together */
  uint64_t load_us;               /* of a state, over a line with nothing else on it; 0: lines have no limit */
  double up;                      /* a line's rate out, in rates in; 0: 1 */
  hv_codec codec;                 /* of averages */
  hv_epoch_options options;
  uint64_t matchmaking_us, averaging_us; /* 0: MATCHMAKING_US, AVERAGING_US */
  hv_epoch_company company;
  double first_speed, last_speed;         /* of the first trainer, and of the last one, in speeds of the others; 0: 1 */
  uint64_t first_batch_us, last_batch_us; /* of the last trainer, with as many samples as fit in; 0: as of the others */
  uint64_t validates_us;                  /* of the last trainer, each PRETENDER_VALIDATES batches */
  uint64_t log_memory;                    /* of each; 0: the bytes of the model */
  uint64_t copy_us;                       /* a copy of the state takes so long */
  size_t joiners, client_joiners;
  uint64_t gap_us; /* between two joiners */
  home_liar liar;
  double joiner_speed;      /* in speeds of the others; 0: 1 */
  uint64_t apart_us;        /* the first trainer is cut off for so long; 0: it is not */
  size_t parted;            /* so many others are cut off with it, and train on together */
  uint64_t stands_us;       /* the same: it stands still */
  int sleeps;               /* meanwhile its clock stands still, too */
  int cut;                  /* the first and the last trainer do not reach each other, in the second part */
  uint64_t warm_us, for_us; /* before newcomers come or lines are cut; and from then on. 0: so long as the goals need */
  unsigned goals;           /* of home_goal; the others are figures */
} home_scene;

void swarm_home_plays(swarm_run *run, const home_scene *scene);

#endif
