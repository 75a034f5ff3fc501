/* How do this node's tensors become averages, time after time? One averager: its tensors, its steps, what it learned of its own
 * speed.
 *
 * Room: core (uses match, run, allreduce). Owned by the node's averages (below), which brings a group's news to it; the hive
 * thread.
 */

// clang-format off
/* A step is one wish: "average what I have with whoever is there now". Its life, one after the other:
 *   SEEKING   match looks for a group (at most wait_ms; as soon as all `expected` are there)
 *   READY     there is a group; the program has not said go yet (require_trigger)
 *   KNOCKING  the tensors are the program's just now (the gate): the round waits until they are let go
 *   REDUCING  the all-reduce runs
 *   SETTLING  this member has all averages; others may still need its copies, should an owner die now (usually a round trip)
 *   BLENDING  alpha other than 1: the averages are blended into the tensors, on the pool
 * and it is done exactly once. One step at a time: a second one while the first is under way is HV_BUSY.
 *
 * The gate: while the program holds it, nothing here reads or writes the tensors; while a round holds it (KNOCKING ends, until
 * done), they are the round's: read while chunks are encoded, written as averages come. A round in place leaves, whatever happens,
 * in every element either what was there or the average, chunk by chunk; with HV_OK the average in all of them. With an alpha other
 * than 1 the round works on a copy, and the tensors change only in BLENDING, so that a failed round leaves them as they were.
 *
 * Epochs: those of a swarm are numbers, and go up. Who steps for one that all the others have done, or all the others have yet to
 * come to, is told so at once (HV_EXISTS, HV_TIMEOUT), and not when its time is over: docs/MATCH.md.
 *
 * Retries: what has been sent may be in somebody's average, so it is never sent again: a step that finds no group, or whose group
 * falls apart before its all-reduce has begun here, is tried again as long as its time lasts; once it has begun, its end is the
 * step's. A try that leaves less time for its round than rounds take here is not begun.
 *
 * Alone: with min_group of 1 a step that finds nobody is done with HV_OK, itself as the only member and the tensors untouched.
 */
// clang-format on
#ifndef HV_CORE_AVERAGE_H
#define HV_CORE_AVERAGE_H

#include "core/match/match.h"
#include "core/reduce/allreduce.h"

#define HV_AVERAGE_TENSORS_MAX (1u << 16)
#define HV_AVERAGE_DIMS_MAX 64

typedef struct hv_average hv_average;
typedef struct hv_average_step hv_average_step;

typedef struct hv_average_tensor {
  hv_run_part part;     /* data is borrowed until the averager is closed */
  const int64_t *shape; /* what members must agree on, with the dtype; copied */
  size_t n_dims;
} hv_average_tensor;

/* The program's lock on its tensors, seen from here. NULL functions: nobody but rounds touches them. */
typedef struct hv_average_gate {
  int (*enter)(
      void *arg); /* 1: the tensors are the round's now. 0: they are the program's; hv_average_knock comes when they are let go */
  void (*leave)(void *arg); /* after enter, whatever it said: they are not, or not any more, wanted */
  void *arg;
} hv_average_gate;

/* 0 is the default everywhere. */
typedef struct hv_average_config {
  hv_span prefix;                   /* who has the same averages together with others; copied */
  const hv_average_tensor *tensors; /* the array is copied, the data borrowed */
  size_t n_tensors;
  uint32_t chunk_values;          /* at most: a smaller run has smaller ones (hv_run_fit); 2^17: 512 KiB of float32 */
  double alpha;                   /* 1: tensor + alpha * (average - tensor) */
  size_t target_group, min_group; /* 0: any; 2 */
  hv_span group_bits;             /* '0' and '1'; copied */
  uint32_t round_ms;              /* of the all-reduce at most; 0: as long as the step has */
  uint32_t stall_ms;              /* 10,000: who holds the others up for longer is left out */
  uint32_t request_ms;            /* 2,000: how long one question of match may take, but half of a seek's time at most */
  uint64_t min_vector;            /* values: when this node hosts, who would own fewer owns none */
  double bandwidth;               /* bytes per second, as stated; rounds measure it from then on; 0: not known */
  int apart;                      /* match's: nobody waits for it before its first step, or hv_average_reached */
  int auxiliary;                  /* owns a span, contributes nothing; its tensors tell the layout alone */
  hv_average_gate gate;
} hv_average_config;

typedef struct hv_average_member {
  hv_peer_id id;
  uint8_t me, client, auxiliary;
  double share; /* which part of its values is in the averages that this peer holds; less than 1: the rest is lost (it died, or was
                   refused) */
  hv_span gather;
} hv_average_member;

typedef struct hv_average_outcome {
  const hv_average_member *members; /* in the group's order; none when there was no group */
  size_t n_members;
  uint8_t round[HV_ROUND_ID_SIZE]; /* the group's; zeros when there was none */
  uint32_t n_chunks, averaged;     /* chunks, and those that hold the average */
  uint32_t view;  /* members of one view hold the same bits; other views are other sides of a partition (docs/ROUND.md) */
  uint64_t stamp; /* where it is alike the averages are the same bits (hv_allreduce_stamp); 0 when alone */
  uint64_t bytes; /* encoded, that this member sends and receives in a round without losses */
  uint64_t matching_us, waiting_us, reducing_us;
  unsigned tries; /* groups that were tried */
} hv_average_outcome;

/* The program's own struct, alive and unchanged until done; done comes exactly once, not from within hv_average_start. */
struct hv_average_step {
  void (*done)(hv_average_step *self, hv_status status, const char *text, const hv_average_outcome *outcome);
  void *owner;
  hv_span epoch;       /* members must agree on it; none: whoever steps now. HV_MATCH_EPOCH_MAX - 8 bytes at most; borrowed */
  float weight;        /* samples behind the values; finite, 0 or more */
  hv_span gather;      /* what all members will be told of this one; borrowed */
  uint32_t wait_ms;    /* for a group to form */
  uint32_t timeout_ms; /* for all of it; UINT32_MAX: for good */
  size_t expected;     /* a group of so many begins at once; 0: not known */
  int require_trigger; /* the all-reduce begins only after hv_average_trigger */
  int allow_retries;
  struct hv_average_work *work; /* average's */
};

/* All averagers of a node. */
typedef struct hv_averages {
  hv_env *env;
  hv_match_registry *matches;
  hv_allreduce_registry *rounds;
  hv_average *first;
  int made; /* one, at least */
  int stopping;
  void (*stopped)(void *arg); /* after hv_averages_stop: the last step under way has ended; may be NULL */
  void *arg;
} hv_averages;

void hv_averages_init(hv_averages *all, hv_env *env, hv_match_registry *matches, hv_allreduce_registry *rounds);
/* When the world has ended: frees the averagers that are still there; steps under way end untold.
 * After the rounds' registry, whose last rounds still know them, and before the matches'. */
void hv_averages_fini(hv_averages *all);
/* When the world has ended, before the program hears of it: gates are let go of, for good. A step may be under way still, if its
 * jobs took longer than the world waited. */
void hv_averages_open_gates(hv_averages *all);
/* Ends all steps with HV_CANCELLED, those whose rounds have jobs under way when these are done; none begins any more. */
void hv_averages_stop(hv_averages *all);
/* A step is under way. */
int hv_averages_busy(const hv_averages *all);

/* HV_INVALID (err says why), HV_EXISTS: this node averages under that prefix already. HV_NOMEM. */
hv_status hv_average_new(hv_averages *all, const hv_average_config *config, hv_average **out, hv_error *err);
/* Ends its step (HV_CANCELLED); `closed` is called as soon as the tensors are the program's again, perhaps within this function,
 * and the averager is gone. */
void hv_average_close(hv_average *self, void (*closed)(void *arg), void *arg);

/* HV_BUSY: one is under way. HV_INVALID (err says why). Not HV_OK: done will not come. */
hv_status hv_average_start(hv_average *self, hv_average_step *step, hv_error *err);
/* Fine also when it is not under way. */
void hv_average_trigger(hv_average *self, hv_average_step *step);
hv_status hv_average_set_weight(hv_average *self, hv_average_step *step, float weight); /* HV_STATE: its all-reduce has begun */
/* The program is in this epoch and will not step for an earlier one: who looks for a group there need not wait for it. A step whose
 * epoch is a number says the same. */
void hv_average_reached(hv_average *self, uint64_t epoch);
int hv_average_awaits(const hv_average *self, uint64_t epoch); /* match's */
/* It missed a step, and comes to this epoch with the swarm's state, not sooner: there others wait for it, for a moment. */
void hv_average_comes(hv_average *self, uint64_t epoch);
/* Until its next step, or hv_average_reached, nobody waits for this peer. Not while a step seeks. */
void hv_average_step_aside(hv_average *self);
void hv_average_cancel(hv_average *self, hv_average_step *step); /* done comes soon, with HV_CANCELLED or what it had anyway */
/* Which group of a large swarm it looks for. HV_STATE while a step seeks; HV_INVALID (err says why). */
hv_span hv_average_bits(const hv_average *self); /* borrowed until the next set */
hv_status hv_average_set_bits(hv_average *self, hv_span bits, hv_error *err);
/* The program has let go of its tensors. */
void hv_average_knock(hv_average *self);

#endif
