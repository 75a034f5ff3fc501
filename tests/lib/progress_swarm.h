/* Many contributors to a run in the simulator: each computes at its own speed, in batches, as an oracle says; what their trackers
 * make of it is looked at from outside. Shared by tests/sim/progress/test_sim_progress.c and the swarm program. */
#ifndef HV_TESTS_PROGRESS_SWARM_H
#define HV_TESTS_PROGRESS_SWARM_H

#include "lib/dht_swarm.h"

typedef struct progress_swarm progress_swarm;

typedef struct progress_peer {
  progress_swarm *swarm;
  hv_command command;
  hv_progress *tracker; /* NULL: none, or ended */
  int any;              /* it contributes */
  double speed;         /* samples per second */
  uint64_t batch;
  uint64_t lag_us;                  /* begins each epoch so much later than the swarm */
  uint64_t epoch, epoch_us, serial; /* by hand: the epoch and when it began, by the world's clock */
  double carried;                   /* samples it began with */
  uint64_t still_us;                /* since when it does nothing more, by the world's clock, and has not said so; 0: it works */
  uint64_t before;
  /* A liar's words instead; NULL: the truth. */
  void (*lie)(struct progress_peer *self, hv_progress_own *own);
  hv_status opened;
} progress_peer;

struct progress_swarm {
  dht_swarm dht;
  progress_peer *peers; /* by number of their node */
  hv_progress_terms terms;
  const char *prefix;
};

void progress_swarm_init(progress_swarm *swarm, hv_sim *sim, hv_mem *mem, size_t room);
void progress_swarm_fini(progress_swarm *swarm); /* after the sim has been freed */
/* Opens a tracker on a node. */
void progress_swarm_open(progress_swarm *swarm, size_t node);
/* It contributes from now on, at this speed. */
void progress_swarm_work(progress_swarm *swarm, size_t node, double speed);
/* It stands still from now on, as somebody whose program does other things, until it works again. */
void progress_swarm_still(progress_swarm *swarm, size_t node);
/* It begins an epoch now. */
void progress_swarm_begin(progress_swarm *swarm, size_t node, uint64_t epoch);
/* Its tracker is told that the epoch changed, in a step of its own. */
void progress_swarm_wake(progress_swarm *swarm, size_t node);
/* It goes. */
void progress_swarm_close(progress_swarm *swarm, size_t node);
/* Its report of itself at this moment of the world. */
hv_progress_own progress_swarm_own(progress_swarm *swarm, size_t node);
/* The figures that its program reads now. */
hv_progress_figures progress_swarm_read(progress_swarm *swarm, size_t node);

#endif
