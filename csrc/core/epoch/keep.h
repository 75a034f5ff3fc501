/* Which states of a run a hub keeps: when it looks for one, which one it downloads, and what becomes of a state that has come.
 *
 * Room: core (uses base, gift). Pure: facts in, answers out; the caller passes the times.
 * Owner: the caller's struct, by hv_keep_init. The caller has the states, and lends their setups.
 * Thread: any, one at a time.
 * Terms: a state is within reach if the trainers may have made it: it is HV_KEEP_AHEAD epochs beyond their count at most.
 * A fault of a state is why it is not of the run that trains now.
 * Limits: HV_KEEP_STATES states in memory. Times are in microseconds.
 * Rules: docs/design/hub.md, "The state": 1 and 4 to 8.
 */
#ifndef HV_CORE_EPOCH_KEEP_H
#define HV_CORE_EPOCH_KEEP_H

#include "core/state/gift.h"

enum {
  HV_KEEP_FIRST_US = 1000000, /* between two looks: at first, and at least after a state has come (rules 1 and 5) */
  HV_KEEP_MOST_US = 5000000,  /* the same while nothing new is there */
  HV_KEEP_PRIORITY = 1,       /* of a hub's offer (rule 4) */
  HV_KEEP_AHEAD = 2,          /* trainers may be ahead of their count, which is of a moment ago (rule 6) */
  HV_KEEP_STATES = 3          /* the one on offer, an earlier one that a slow joiner downloads, and the next one */
};

// clang-format off
#define HV_KEEP_STEP_MAP(X)                                                                                                        \
  X(REST, "nothing until the next look")                                                                                           \
  X(LOOK, "ask which state is on offer, from the epoch `known` on")                                                                \
  X(LOAD, "download it, from the epoch `known` on")

#define HV_KEEP_VERDICT_MAP(X)                                                                                                     \
  X(KEEP, "the state goes on offer")                                                                                               \
  X(REPLACE, "the same, and the one held gives way with the checkpoints of this epoch and later ones")                             \
  X(OLD, "the state is too old by now")                                                                                            \
  X(REFUSE, "the state is not of the run that trains now")

#define HV_KEEP_FAULT_MAP(X)                                                                                                       \
  X(NONE, "it may be of the run that trains now")                                                                                  \
  X(AHEAD, "its epoch is beyond the trainers'")                                                                                    \
  X(UNREACHED, "no run reaches its epoch")                                                                                         \
  X(SETUP, "its setup is not that of the trainers")
// clang-format on

typedef enum hv_keep_step {
#define HV_KEEP_STEP_ENUM(name, text) HV_KEEP_STEP_##name,
  HV_KEEP_STEP_MAP(HV_KEEP_STEP_ENUM)
#undef HV_KEEP_STEP_ENUM
      HV_KEEP_STEPS
} hv_keep_step;

typedef enum hv_keep_verdict {
#define HV_KEEP_VERDICT_ENUM(name, text) HV_KEEP_VERDICT_##name,
  HV_KEEP_VERDICT_MAP(HV_KEEP_VERDICT_ENUM)
#undef HV_KEEP_VERDICT_ENUM
      HV_KEEP_VERDICTS
} hv_keep_verdict;

typedef enum hv_keep_fault {
#define HV_KEEP_FAULT_ENUM(name, text) HV_KEEP_FAULT_##name,
  HV_KEEP_FAULT_MAP(HV_KEEP_FAULT_ENUM)
#undef HV_KEEP_FAULT_ENUM
      HV_KEEP_FAULTS
} hv_keep_fault;

/* "LOOK"; "REPLACE"; "SETUP". */
const char *hv_keep_step_name(hv_keep_step step);
const char *hv_keep_verdict_name(hv_keep_verdict verdict);
const char *hv_keep_fault_name(hv_keep_fault fault);

typedef struct hv_keep_state {
  uint64_t epoch;
  hv_span setup; /* of the trainers that made it; empty: it does not say */
} hv_keep_state;

/* The trainers of a run at one moment. Zeros: nobody is counted. */
typedef struct hv_keep_trainers {
  int any;
  uint64_t epoch; /* that they are counted at */
  hv_span setup;  /* that most of them have; empty: it is not known */
} hv_keep_trainers;

typedef struct hv_keep {
  uint64_t every; /* epochs from one state to the next */
  int holds;      /* 1: a state is on offer */
  hv_keep_state held;
  uint64_t pause_us;           /* until the next look */
  uint64_t known, least, most; /* of the look under way: the epochs of use are least to most, and known as hv_keep_step says */
} hv_keep;

/* It holds no state. */
void hv_keep_init(hv_keep *keep, uint64_t every);
/* A state is on offer, in place of the one before. Its setup is borrowed until another one is. */
void hv_keep_hold(hv_keep *keep, const hv_keep_state *state);

/* True if the figures of a tracker count trainers. fetched: the swarm has been heard. */
int hv_keep_are_counted(int fetched, size_t n_peers);
/* The oldest epoch of use; 0: any. */
uint64_t hv_keep_least(const hv_keep *keep, const hv_keep_trainers *now);
/* True if memory has room for one more state. in_use: states on offer, or still being downloaded. */
int hv_keep_has_room(size_t in_use);

/* A look begins: HV_KEEP_STEP_LOOK or HV_KEEP_STEP_REST. */
hv_keep_step hv_keep_look(hv_keep *keep, const hv_keep_trainers *now, size_t in_use);
/* The answer to LOOK: a state of this epoch is on offer. */
hv_keep_step hv_keep_found(hv_keep *keep, uint64_t epoch);
/* The look is over. has_come: its state is kept. took_us: the whole of it. */
void hv_keep_looked(hv_keep *keep, int has_come, uint64_t took_us);

/* Judges a state that has come whole. *fault: of this state after REFUSE, and of the one held after REPLACE. */
hv_keep_verdict hv_keep_judge(const hv_keep *keep, const hv_keep_state *state, const hv_keep_trainers *now, hv_keep_fault *fault);

#endif
