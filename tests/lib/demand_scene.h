/* A swarm whose donors give a state on demand, and joiners that want one. Shared by test_sim_state_demand.c and swarm_state.c.
 * Judged from outside: when each donor began to give under which number, and that it never gives twice at the same time. */
#ifndef HV_TESTS_DEMAND_SCENE_H
#define HV_TESTS_DEMAND_SCENE_H

#include "lib/state_scene.h"

enum { DEMAND_DONORS_MAX = 32, DEMAND_GIVEN_MAX = 512 };

typedef struct demand_scene demand_scene;

typedef struct demand_donor {
  demand_scene *scene;
  size_t node;
  hv_command command;
  hv_state_wait wait;
  state_offering offering;
  state_copy copy;
  int giving, over;        /* over: the last wait has ended, without a number */
  size_t n_given, n_twice; /* n_twice: numbers that came while it gave one */
  uint64_t clock_off_ms;   /* added to the program's clock */
  hv_status status;
} demand_donor;

/* One load on demand, as the Python layer does it. */
typedef struct demand_joiner {
  demand_scene *scene;
  size_t node;
  hv_command command;
  hv_state_want want;
  state_try try;
  int64_t clock_off_ms;
  int done, only_asks; /* only_asks: set before: loads nothing */
  unsigned tries;      /* of asking */
  uint64_t number;     /* asked for first; 0: the clock's */
  uint64_t started_us;
  hv_status status; /* of the last question, or of the load */
} demand_joiner;

struct demand_scene {
  state_scene s;
  demand_donor donors[DEMAND_DONORS_MAX];
  size_t n_donors, n_given, n_requests; /* n_requests: HV_MSG_STATE_WANTED that came to any node */
  struct {
    uint64_t number, at_us;
  } given[DEMAND_GIVEN_MAX];
};

void demand_scene_init(demand_scene *scene, hv_sim *sim, hv_mem *mem);
void demand_scene_fini(demand_scene *scene); /* after the sim has been freed */
/* The program's clock, in ms. */
uint64_t demand_clock(const demand_scene *scene);
/* This node gives replica `number`, of so many values, from now on. */
void demand_give(demand_scene *scene, size_t node, uint64_t number, size_t values, int64_t clock_off_ms);
void demand_end(demand_scene *scene, demand_donor *donor);
/* Asks, and loads what is offered then. Fields of the joiner that are set before are kept. */
void demand_want(demand_scene *scene, size_t node, demand_joiner *joiner);
/* Until all are done; 1: all are. */
int demand_finish(demand_scene *scene, demand_joiner *joiners, size_t n, double seconds);
/* How many seconds before its question the first donor made the state that it loaded. 0: none did before. */
double demand_age(const demand_scene *scene, const demand_joiner *joiner);

#endif
