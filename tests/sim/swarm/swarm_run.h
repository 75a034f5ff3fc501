/* The peers of the rooms `run` and `home`, shared by their plays (swarm_run.c, swarm_home.c) and the judge of the first
 * (swarm_run_checks.c) only. Their stories are in the plays. */
#ifndef HV_TESTS_SWARM_RUN_H
#define HV_TESTS_SWARM_RUN_H

#include "lib/check.h"
#include "lib/pretender.h"
#include "sim/swarm/swarm.h"

enum {
  NODES_MAX = 72,
  CYCLES = 4,
  TURN_US = 10000,
  BATCHES = 8, /* of a peer in an epoch that it makes alone */
  SAMPLES = 4, /* of a batch */
  MATCHMAKING_US = 2000000,
  AVERAGING_US = 15000000,
  LOAD_MS = 60000,
  WARM_US = 12000000, /* the first ones meet */
  STAYS_US = 6000000, /* at least, with the others before it goes */
  NORMAL_US = 200000, /* what an epoch's end takes: they do not see it at once, and the round */
  BESIDES_US = NORMAL_US + 500000,
  SUMS_US = 1500000, /* in a swarm wider than a leaf the count is of sums, which come each half second or two */
  DEATH_US = NORMAL_US + 1500000,
  HEARSAY_US = NORMAL_US + 2000000, /* one of whom a record tells does not answer */
  UNFIT_US = 6000000,               /* a round in which nobody has a gradient that is finite fails, at some sooner than at others */
  RECORDS_US = 75000000,
  PATIENCE_US = AVERAGING_US + 1000000, /* a round, of which a member is gone */
  COMING_US = 2000000,
  COMING_EPOCHS = 2,
  WRONG_US =
      3 * HV_EPOCH_MOST_WRONG_US, /* left out by one that waits alone, it is back after 30 s; then the other one may be left out */
  HEARS_US = 10000000,            /* a client hears of a newcomer by its own searches only */
  CHASES_US = 20000000,           /* where an epoch is hardly longer than a load, it may come late some times */
  DIFFER_US = 6000000,            /* replicas that differ are one again, besides some epochs */
  COUNTS_US = 15000000,           /* a search takes place each 10 s at least */
  LOADS_US = 3000000,             /* a state that is on offer is found and loaded */
  LOST_STEPS = 2,      /* of the newest state: one that goes may have ended an epoch, and stepped late, before all others */
  REPLICAS = 256,      /* that are remembered */
  ENDINGS = 16,        /* epochs that some of the first have ended, and others have not */
  HONEST = 4,          /* trainers beside a liar that offers states, of whom one goes */
  CHOSEN = 2,          /* epochs by which one that loads lets the others pass */
  LIARS_US = 60000000, /* beside liars each wait may take so much longer */
  LOGGED_US = 3000000, /* an epoch beside liars of the log, at least */
  AHEAD_US = 10000000, /* and a batch: members of a round step with what it made */
  AWAY_EPOCHS = 5,     /* at most, that one stands still or is cut off beside liars of the log */
  BACK_US = 30000000,  /* from then on, and its next epoch */
  CALM_US = 100000000  /* after the last fault: declarations end, the lost are found */
};

typedef enum going { POLITE, KILLED, UNPLUGGED, GOINGS } going;
static const char *const going_names[] = {"leaves", "is killed", "is unplugged"};

typedef struct room room;

typedef struct member {
  pretender program;
  room *r;
  hv_command turn;
  int pending;
  hv_epoch_state state; /* when the checker looked last; since then: */
  uint64_t since_us, told_us, entered_us;
  uint64_t told, serial;
  int has_come;
  int goes_back; /* it loads the state of the others, who are in an epoch before its own (rule 23) */
  unsigned lives;
  uint64_t skipped;    /* epochs that it counted without a step */
  uint64_t own_steps;  /* that it told of */
  uint64_t got;        /* 1 + the latest epoch whose average of differences was judged */
  uint64_t endings;    /* 1 + the latest epoch whose end was seen */
  int has_averaged;    /* that one */
  uint64_t could_us;   /* since when it is aside while a state that it seeks is on offer */
  uint64_t true_us;    /* when it was in an epoch that some peer had reached */
  uint64_t counted_us; /* when it was not aside */
  uint64_t offers_us;  /* since when it offers states */
  uint64_t taken;      /* hash of the latest state that it adopted */
  hv_mark mark;        /* that was judged last */
  uint64_t repeated;   /* steps of others behind that */
  uint64_t ahead_us;   /* since when it has a mark by these that nobody else has had yet; 0: it has none */
  swarm_liar liar;     /* tells nothing: it is honest, if its program is */
} member;

/* An epoch that the first peers end, and average. */
typedef struct ending {
  uint64_t epochs;      /* 1 + its number */
  size_t n, n_averaged; /* of the first: those who end it, counting all; those who averaged it with all */
  int differ;
  hv_mark mark;
} ending;

/* A replica that some of them had, by its mark. */
typedef struct replica {
  hv_mark mark;
  float values[PRETENDER_VALUES];
} replica;

struct room {
  swarm_run *run;
  void (*judge)(room *r); /* after each turn; NULL: swarm_run_checks */
  member seats[NODES_MAX];
  size_t clients;  /* that only dial out, of those that began */
  size_t n, first; /* first: trainers that began, without liars */
  size_t liars;
  check_rng lies;          /* from which they are drawn */
  swarm_liar seat_of_liar; /* of the one that is being added */
  int lies_in_rounds;      /* one of them does: each round may last long, or fail */
  int lies_in_log;         /* in place of that: honest peers are away for some epochs, and repeat beside them */
  int few;                 /* there are so few others that each believes the one that claims most, until it has looked */
  uint64_t furthest;       /* the latest epoch that any of them was in by its own work */
  uint64_t epoch_us, models, turn_us;
  pretender_program program;
  uint64_t went_us, unplugged_us, apart_us;
  uint64_t again_us; /* in which the slowest of the others makes the samples of the one that went */
  going went;
  size_t gone, goes; /* goes: it says goodbye; SIZE_MAX */
  uint64_t longest_us[GOINGS + 1], coming_us, n_coming, epochs;
  uint64_t loads_us;  /* the longest that a state on offer was waited for */
  double newest;      /* most steps behind a state that the swarm ever had */
  uint64_t skipped;   /* epochs that some peer counted without a step */
  uint64_t n_anchors; /* averages of differences that were made again of what their members gave */
  uint64_t n_alike;   /* epochs from which all of the first were judged to be alike */
  uint64_t together;  /* 1 + the first epoch that all of them averaged together */
  ending endings[ENDINGS];
  replica replicas[REPLICAS];
  uint64_t n_replicas;
  uint64_t away_us; /* until one that was away had averaged with the others again: the longest */
  uint64_t n_false; /* states of liars that were taken, as each had to be: from then on the swarm is the liar's */
};

static inline uint64_t below(room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

static inline uint64_t world(const room *r) {
  return hv_sim_now(r->run->sim);
}

/* Beside liars. */
static inline unsigned faults_of(const room *r) {
  return r->run->options->faults & ~(unsigned)SWARM_LIARS;
}

static inline int is_faulty(const room *r) {
  return faults_of(r) != 0 && world(r) < r->run->calm_us + CALM_US;
}

/* By which each time may be longer. Those of the log take nobody's. */
static inline uint64_t beside_liars_us(const room *r) {
  return r->liars && !r->lies_in_log ? LIARS_US : 0;
}

static inline int lives(const room *r, size_t i) {
  return hv_sim_alive(r->run->sim, i) && r->seats[i].program.driver && !r->seats[i].program.is_leaving;
}

static inline int helps(const room *r, size_t i) {
  return r->seats[i].program.program.options.auxiliary;
}

static inline int is_liar(const room *r, size_t i) {
  return r->seats[i].liar.tells || r->seats[i].program.program.lies;
}

/* It trains, and is one of those of whom this room speaks. */
static inline int is_judged(const room *r, size_t i) {
  return lives(r, i) && !helps(r, i) && !is_liar(r, i);
}

static inline void runs_for(room *r, uint64_t us) {
  hv_sim_run_until(r->run->sim, world(r) + us);
}

/* ---- swarm_run.c ---- */
/* Adds a peer, which enters by any that stays and can be dialled; the first begins the run. */
void swarm_run_adds(room *r, const pretender_program *program);
/* The same program again, as a process of its own. */
void swarm_run_again(room *r, size_t i);
/* The turns of all programs, and the judge; once begun with hv_sim_at, each turn_us. */
void swarm_run_tick(hv_sim *sim, void *arg);

/* ---- swarm_run_checks.c ---- */
/* Moves, samples, and equal bits under equal marks, of one peer that trains. */
void swarm_run_checks_safety(room *r, size_t i);
/* Judges all peers as they are now. */
void swarm_run_checks(room *r);
/* All have made a step with others, if there are others. */
void swarm_run_checks_rest(room *r);
/* Until one that comes has made its first step with others. */
uint64_t swarm_run_coming_most_us(const room *r);

#endif
