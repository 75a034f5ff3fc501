/* The plan of a peer: which actions of a batch, and of an epoch's end, happen before step() returns, and which later.
 *
 * Room: core (uses base). Pure: options in, a list of actions out.
 * Thread: any.
 * Terms: an action of `now` is done before step() returns. An action of `late` is done after it, in the order of the list, while
 * the program trains on; the last one of `late` is APPLY, which the thread that trains does in a later step().
 * Rules: docs/reference/optimizer.md, "What happens when".
 */
#ifndef HV_CORE_EPOCH_PLAN_H
#define HV_CORE_EPOCH_PLAN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// clang-format off
#define HV_EPOCH_ACTION_MAP(X)                                                                                                     \
  X(SUM, "add the batch's gradient to the epoch's")                                                                                \
  X(LOCAL_STEP, "step the optimizer with the batch's own gradient")                                                                \
  X(AVERAGE_GRADIENTS, "average gradients with the swarm")                                                                         \
  X(STEP, "step the optimizer with the epoch's gradient")                                                                          \
  X(SCHEDULE, "step the scheduler")                                                                                                \
  X(COUNT, "count the epoch")                                                                                                      \
  X(AVERAGE_STATE, "average parameters and statistics with the swarm")                                                             \
  X(APPLY, "write the outcome into the model")
// clang-format on

typedef enum hv_epoch_action {
#define HV_EPOCH_ACTION_ENUM(name, text) HV_EPOCH_##name,
  HV_EPOCH_ACTION_MAP(HV_EPOCH_ACTION_ENUM)
#undef HV_EPOCH_ACTION_ENUM
      HV_EPOCH_ACTIONS
} hv_epoch_action;

/* The name of an action: "SUM". */
const char *hv_epoch_action_name(hv_epoch_action action);

/* The options of a peer that its plan depends on. */
typedef struct hv_epoch_options {
  uint8_t use_local_updates;     /* step with each batch, and average parameters instead of gradients; auxiliary: no gradients */
  uint8_t delay_grad_averaging;  /* average gradients later */
  uint8_t delay_optimizer_step;  /* step later */
  uint8_t delay_state_averaging; /* average the state later */
  uint8_t offload;               /* the optimizer works on copies of the parameters */
  uint8_t auxiliary;             /* it averages and trains nothing */
  uint8_t outer;                 /* with use_local_updates: average differences to an anchor, which an outer optimizer steps */
  uint8_t overlap;               /* percent of an epoch's samples made while its difference travels, at most; 0: none */
  uint64_t average_state_every;  /* epochs from one averaging of the state to the next; 1 or more */
} hv_epoch_options;

/* HV_INVALID for options that contradict each other; err says which, and what to do. */
hv_status hv_epoch_options_check(const hv_epoch_options *options, hv_error *err);

/* The options of a peer without a replica that follows trainers with `these`: nothing else of theirs is known to it. */
hv_epoch_options hv_epoch_options_of_follower(const hv_epoch_options *these);

#define HV_EPOCH_PLAN_MAX 8

typedef struct hv_epoch_plan {
  uint8_t now[HV_EPOCH_PLAN_MAX], late[HV_EPOCH_PLAN_MAX]; /* hv_epoch_action */
  uint8_t n_now, n_late;
} hv_epoch_plan;

/* A peer as its options make it, once: what the machine asks for, and not for an option or a role. */
typedef struct hv_epoch_traits {
  uint8_t has_replica; /* it trains: is counted, steps, offers, and is judged by its mark; one without follows the others */
  uint8_t sums;        /* what the batches of an epoch made is averaged at its end: gradients, or a difference */
  uint8_t local_steps; /* each batch is a step */
  uint8_t carries;     /* what no average has stays: after a round that failed, and beside others' steps (local-steps.md) */
  uint8_t lead;        /* epochs that trainers count before the round of their gradients */
  uint8_t overlap;     /* percent of an epoch's samples that are made while its difference travels, at most */
  uint8_t copies;      /* the optimizer's outcome reaches the model with APPLY */
  uint64_t every;      /* epochs from one averaging of the state to the next */
  hv_epoch_plan batch;
  hv_epoch_plan ends[2][2]; /* of an epoch's end, after its last batch: alone or not, with an average of the state or not */
} hv_epoch_traits;

/* Of options that were checked. */
hv_epoch_traits hv_epoch_traits_of(const hv_epoch_options *options);

/* The plan of an epoch's end. alone: no other peer takes part. */
const hv_epoch_plan *hv_epoch_plan_end(const hv_epoch_traits *traits, uint64_t next_epoch, int alone);
/* True if an action is in the plan, now or late. */
int hv_epoch_plan_has(const hv_epoch_plan *plan, hv_epoch_action action);

/* True if the state is averaged when `epoch` begins. */
int hv_epoch_averages_state_at(const hv_epoch_traits *traits, uint64_t epoch);
/* The number of the averaging of the state at or before the beginning of `epoch`: they are counted one by one, so that a peer that
 * comes next is known to be about to come. */
uint64_t hv_epoch_state_number(const hv_epoch_traits *traits, uint64_t epoch);
/* The latest epoch, up to the given one, at whose beginning the peers have equal states. */
uint64_t hv_epoch_state_epoch(const hv_epoch_traits *traits, uint64_t epoch);

#endif
