/* An averager: the tensors of this node under one prefix, averaged with other peers in one step after another.
 *
 * Room: core (uses match, run, allreduce).
 * Owner: the program, which opens and closes averagers; hv_averages, one for each node, lists them.
 * Thread: the hive thread; blending runs on the pool.
 * Limits: HV_AVERAGE_* below; one step at a time.
 * Errors: hv_status; done of a step gets the result and one sentence.
 * Terms: a step is one request to average. A group is the members that average together. The gate is the program's lock on its
 * tensors.
 * Rules: docs/design/averaging.md; docs/design/matchmaking.md for epochs.
 */
#ifndef HV_CORE_AVERAGE_H
#define HV_CORE_AVERAGE_H

#include "core/match/match.h"
#include "core/reduce/allreduce.h"

#define HV_AVERAGE_TENSORS_MAX (1u << 16)
#define HV_AVERAGE_DIMS_MAX 64
#define HV_AVERAGE_NORM_RATIO_MAX 1e9

typedef struct hv_average hv_average;
typedef struct hv_average_step hv_average_step;

typedef struct hv_average_tensor {
  hv_run_part part;     /* its data is borrowed until the averager is closed */
  const int64_t *shape; /* on which members must agree, as on the dtype; copied */
  size_t n_dims;
} hv_average_tensor;

/* The program's lock on its tensors. NULL functions: only rounds touch the tensors. */
typedef struct hv_average_gate {
  /* True if the tensors are the round's from now on. Else the program has them, and calls hv_average_knock when it lets go. */
  int (*enter)(void *arg);
  /* The round does not need the tensors any more. Called once after each enter, whatever that returned. */
  void (*leave)(void *arg);
  void *arg;
} hv_average_gate;

/* 0 is the default of each number. */
typedef struct hv_average_config {
  hv_span prefix;                   /* the name that all members of the run share; copied */
  const hv_average_tensor *tensors; /* the array is copied, its data borrowed */
  size_t n_tensors;
  uint32_t chunk_values; /* most values of a chunk; hv_run_fit makes smaller ones for a small run; 0: 2^17, 512 KiB of float32 */
  double alpha;          /* tensor + alpha * (average - tensor) is the new value; 0: 1 */
  size_t target_group;   /* most members of a group; 0: no limit */
  size_t min_group;      /* fewest members of a group; 0: 2 */
  hv_span group_bits;    /* '0' and '1'; copied */
  uint32_t round_ms;     /* most time of an all-reduce; 0: that of the step */
  uint32_t stall_ms;     /* longest time that one member may stall a round; 0: 10,000 */
  uint32_t request_ms;   /* timeout of one question in matchmaking, at most half of a seek's time; 0: 2,000 */
  uint64_t min_vector;   /* values: when this node hosts, a member that would own fewer owns none */
  double bandwidth;      /* bytes per second, as stated; rounds measure it later; 0: not known */
  double weight_max;     /* a member counts with at most this weight; the same at all members; 0: no limit */
  double norm_ratio;     /* largest norm of a member's chunk, as a multiple of the median (core/round/norm.h); 0: no limit */
  size_t compared;       /* tensors, from the first on, of which the outcome says whether averages changed them; 0: none */
  int apart;             /* 1: no peer waits for it before its first step or hv_average_reached */
  int auxiliary;         /* 1: owns a span and contributes nothing; its tensors only give the layout */
  hv_average_gate gate;
} hv_average_config;

typedef struct hv_average_member {
  hv_peer_id id;
  uint8_t me, client, auxiliary;
  double share; /* the part of its values that is in this peer's averages, 0 to 1; the rest is lost (it died, or was refused) */
  hv_span gather;
} hv_average_member;

/* Values of the tensors, counted through all of them in their order. */
typedef struct hv_average_range {
  uint64_t at, size;
} hv_average_range;

typedef struct hv_average_outcome {
  const hv_average_member *members; /* in the group's order; none if there was no group */
  size_t n_members;
  uint8_t round[HV_ROUND_ID_SIZE]; /* the group's id; zeros if there was none */
  uint32_t n_chunks, averaged;     /* chunks of the run; chunks that hold the average */
  const hv_average_range *missed;  /* values whose average lacks this peer's, in rising order; after HV_OK */
  size_t n_missed;
  int changed;    /* 1: averages changed values of the compared tensors by more than roundings (core/round/run.h) */
  uint32_t view;  /* members of one view hold the same bits; each side of a partition has its own */
  uint64_t stamp; /* members with the same stamp hold the same bits (hv_allreduce_stamp); 0 if alone */
  uint64_t bytes; /* encoded, that this member sends and receives in a round without losses; values as the averages */
  int narrow;     /* 1: averages came under narrow codecs (core/round/run.h), because a member sent its values so */
  double part;    /* of all chunks, those that this member reduces, 0 to 1; the plan gives a slow link fewer */
  uint64_t matching_us, waiting_us, reducing_us; /* time in each stage */
  unsigned tries;                                /* groups that were tried */
  /* All averages as their owners encoded them, one span for each chunk of the run; members with the same stamp have the same bytes.
   * NULL: not asked for (hv_average_step.keep), some average did not come from its owner, or no memory. Borrowed; the receiver may
   * keep a reference. */
  hv_payload *kept;
} hv_average_outcome;

/* A request to average the tensors once. The caller owns the struct and keeps it unchanged until done, which is called exactly
 * once, not from within hv_average_start. */
struct hv_average_step {
  void (*done)(hv_average_step *self, hv_status status, const char *text, const hv_average_outcome *outcome);
  void *owner;
  hv_span epoch;  /* on which members must agree; at most HV_MATCH_EPOCH_MAX - 8 bytes, borrowed; empty: any peer that steps now */
  float weight;   /* samples behind the values; finite, 0 or more */
  hv_span gather; /* sent to the other members; borrowed */
  uint32_t wait_ms;    /* most time for a group to form */
  uint32_t timeout_ms; /* most time for all of the step; UINT32_MAX: no limit */
  size_t expected;     /* members with which a group begins at once; 0: not known */
  int require_trigger; /* 1: the all-reduce begins only after hv_average_trigger */
  int allow_retries;
  int repeats; /* 1: if the round fails, the program seeks another group of this epoch */
  /* 1: a member without values, of weight 0: it receives the averages, which go into no tensor, so the program may use them. With
   * `keep` the outcome has the averages. */
  int listens;
  int keep;                     /* 1: after HV_OK the outcome has the encoded averages */
  int narrow;                   /* 1: it sends under narrow codecs, where there are any */
  struct hv_average_work *work; /* average's own; NULL while not under way */
};

/* All averagers of a node. */
typedef struct hv_averages {
  hv_env *env;
  hv_match_registry *matches;
  hv_allreduce_registry *rounds;
  hv_average *first;
  int made; /* 1: at least one averager was opened */
  int stopping;
  void (*stopped)(void *arg); /* after hv_averages_stop: the last step under way has ended; may be NULL */
  void *arg;
} hv_averages;

/* Sets an empty list up; borrows all arguments. */
void hv_averages_init(hv_averages *all, hv_env *env, hv_match_registry *matches, hv_allreduce_registry *rounds);
/* Frees the averagers that are left, after their world has ended; done of a step under way is not called. Call it after the fini of
 * the rounds, whose last ones still use them, and before that of the matches. */
void hv_averages_fini(hv_averages *all);
/* Leaves all gates, after the world has ended and before the program is notified. A step may still be under way if its jobs took
 * longer than the world waited. */
void hv_averages_open_gates(hv_averages *all);
/* Ends all steps with HV_CANCELLED, those with jobs under way once the jobs are done. No step begins any more. */
void hv_averages_stop(hv_averages *all);
/* True if a step is under way. */
int hv_averages_busy(const hv_averages *all);

/* Opens an averager. HV_INVALID (err says why), HV_EXISTS: this node already averages under that prefix, HV_NOMEM. */
hv_status hv_average_new(hv_averages *all, const hv_average_config *config, hv_average **out, hv_error *err);
/* Closes an averager: ends its step with HV_CANCELLED, then frees it. `closed` is called as soon as the tensors are the program's
 * again, perhaps from within. */
void hv_average_close(hv_average *self, void (*closed)(void *arg), void *arg);

/* Starts a step. HV_BUSY: one is under way. HV_INVALID: err says why. On any error done is not called. */
hv_status hv_average_start(hv_average *self, hv_average_step *step, hv_error *err);
/* Lets a step with require_trigger begin its all-reduce. Does nothing if the step is not under way. */
void hv_average_trigger(hv_average *self, hv_average_step *step);
/* Ends a step that has no group yet, because nobody is left who could come: HV_CANCELLED. 0: it has a group, or is not under way.
 */
int hv_average_give_up(hv_average *self, hv_average_step *step);
/* Most bytes of hv_average_outcome.kept: if no average is narrow. */
uint64_t hv_average_kept_size(const hv_average *self);
/* Writes averages that another peer kept into the tensors, as their round did there. chunks: one span for each chunk of the run, a
 * stranger's bytes. All are checked before the first is written. HV_MALFORMED: their number, or a chunk's codec, values or
 * checksum differ; HV_UNSUPPORTED: the averager is auxiliary, or its alpha is not 1; HV_IO or HV_NOMEM: the tensors may be written
 * in part. err (may be NULL) says why.
 * Any thread that holds the tensors, as between gate.leave and gate.enter; the averager is not closed meanwhile. */
hv_status hv_average_repeat(const hv_average *self, const hv_span *chunks, size_t n, hv_error *err);
/* The values of the tensors as a step by this peer itself, which others can repeat: encoded as an average is, and written back as
 * that decodes. *chunks: as hv_average_outcome.kept; the caller releases it. *stamp: of these bytes, not 0. HV_NOT_FINITE,
 * HV_UNSUPPORTED: nothing was written; HV_IO, HV_NOMEM: the tensors may be written in part. err (may be NULL) says why. Thread: as
 * hv_average_repeat. */
hv_status hv_average_keep(const hv_average *self, hv_payload **chunks, uint64_t *stamp, hv_error *err);
/* Changes a step's weight. HV_STATE: its all-reduce has begun. */
hv_status hv_average_set_weight(hv_average *self, hv_average_step *step, float weight);
/* Lets a step send under narrow codecs. Does nothing once its all-reduce has begun. */
void hv_average_send_narrow(hv_average *self, hv_average_step *step);
/* Cancels a step: done is called soon, with HV_CANCELLED or the result that it already had. */
void hv_average_cancel(hv_average *self, hv_average_step *step);
/* The program has let go of its tensors: a round that waits for the gate begins. */
void hv_average_knock(hv_average *self);

/* The program is in this epoch and will not step for an earlier one: seekers of an earlier epoch need not wait for this peer. A
 * step for a numbered epoch has the same effect. */
void hv_average_reached(hv_average *self, uint64_t epoch);
/* True if another peer missed a step and will return at this epoch. */
int hv_average_awaits(const hv_average *self, uint64_t epoch);
/* The program missed a step and will return at this epoch, with the swarm's state: only there others wait for it, for 0.3 s. */
void hv_average_comes(hv_average *self, uint64_t epoch);
/* No peer waits for this one until its next step or hv_average_reached. Does nothing while a step seeks. */
void hv_average_step_aside(hv_average *self);
/* Sets the setup: lines of text on which members must agree besides the tensors, at most HV_MATCH_SETUP_MAX bytes; copied. HV_STATE
 * while a step seeks; HV_INVALID: err says why. */
hv_status hv_average_set_setup(hv_average *self, hv_span setup, hv_error *err);
/* The group bits, borrowed until the next set. */
hv_span hv_average_bits(const hv_average *self);
/* Moves the averager to the groups of other bits. HV_STATE while a step seeks; HV_INVALID: err says why. */
hv_status hv_average_set_bits(hv_average *self, hv_span bits, hv_error *err);

#endif
