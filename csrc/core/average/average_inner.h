/* The inner parts of an averager, shared by the average*.c files only.
 *
 * Room: core. The contract of the whole is core/average/average.h.
 * Owner: hv_averages owns averagers; an averager owns the work of its step.
 * Thread: the hive thread; `job` and the memory that it names are the pool's while that runs.
 * Files: average.c (the life of a step), average_count.c (what a round has averaged), average_make.c
 * (opening), average_schema.c (the text on which members agree), average_repeat.c (averages that others kept).
 */
#ifndef HV_CORE_AVERAGE_INNER_H
#define HV_CORE_AVERAGE_INNER_H

#include "core/average/average.h"
#include "core/util/flow.h"

/* The stages of a step; the table of allowed moves is in average.c. */
typedef enum hv_average_stage {
  HV_AVERAGE_SEEKING,   /* match looks for a group */
  HV_AVERAGE_PAUSING,   /* no group was found; it will look again soon */
  HV_AVERAGE_READY,     /* there is a group; the program has not triggered the step yet */
  HV_AVERAGE_KNOCKING,  /* the program has the tensors */
  HV_AVERAGE_MEASURING, /* the norms of its chunks are measured, on the pool */
  HV_AVERAGE_REDUCING,  /* the all-reduce runs */
  HV_AVERAGE_SETTLING,  /* it has the averages, and stays readable for members that lack some */
  HV_AVERAGE_BLENDING,  /* the averages are blended into the tensors, on the pool */
  HV_AVERAGE_OVER,
  HV_AVERAGE_STAGES
} hv_average_stage;

/* A step under way. */
typedef struct hv_average_work {
  hv_average *average;
  hv_average_step *step;
  hv_average_stage stage;
  uint64_t formed_us; /* when its group was found */
  uint64_t since_us;  /* when this stage began */
  uint64_t end_us;    /* end of the step's time; UINT64_MAX: none */
  uint64_t pause_ms;
  hv_error why;     /* the error with which the step will end, as soon as its jobs allow that; HV_OK: none */
  unsigned attempt; /* of its epoch */
  int triggered, at_gate;
  hv_match_seek seek;
  uint8_t epoch[HV_MATCH_EPOCH_MAX];
  hv_match_group *group;
  hv_allreduce *round;
  hv_average_member *members; /* for the outcome; taken before the round, so that a lack of memory cannot fail it later */
  double *shares;             /* the part of each member's values that was averaged */
  hv_average_range *missed;   /* room for as many ranges as its chunks can make */
  hv_timer timer;             /* of the step's time, or of a pause */
  hv_timer settle;
  uint64_t settle_us, settled_us; /* time until the next check; when settling ends */
  uint32_t settled_view;          /* the view of that check */
  size_t settled_chair;           /* the coordinator of that check */
  float norm;                     /* largest norm of a chunk; 0: not measured */
  hv_job job;                     /* measures or blends, on the pool */
  hv_status ran;                  /* result of that job */
  hv_average_outcome outcome;
} hv_average_work;

#define HV_AVERAGE_NAMED 16 /* members whose overstatements are logged once */

struct hv_average {
  hv_averages *all;
  hv_average *next, **link;
  hv_average_config config; /* without its texts and shapes */
  const hv_kern *kern;
  hv_run run;         /* the tensors */
  hv_run staging;     /* the averages during a round, if alpha is not 1: one float32 part with the layout of run */
  float *copies;      /* the memory of staging */
  atomic_int changed; /* as of the outcome, in the latest round */
  uint64_t usual_us;  /* usual duration of a round that ends well; 0: there was none */
  uint64_t link_rate; /* bytes per second of this peer's link: stated, then measured (core/round/gauge.h); 0: not known */
  hv_flow_past past;  /* rates of the last rounds */
  hv_match *match;
  hv_average_work *work;              /* NULL: idle */
  hv_peer_id named[HV_AVERAGE_NAMED]; /* members that stated too large a weight, the latest ones */
  size_t n_named;
  size_t n_rounds;   /* rounds that use the run; the last ones may linger */
  int closing, gone; /* gone: only those rounds still use it */
  void (*closed)(void *arg);
  void *closed_arg;
};

/* Frees an averager, once no round uses its run; until then it marks it as gone. The match was freed before, or is the registry's
 * to free after its world has ended. */
void average_drop(hv_average *self);

/* Sets the outcome: the averaged chunks, each member's share, and the values without this peer's. */
void average_count(hv_average_work *work, const hv_allreduce *round);

/* Writes the text on which members must agree, a line for each tensor, and its hash. */
hv_status hv_average_schema(hv_env *env, const hv_average_config *config, uint32_t chunk_values, hv_buf *text, hv_hash *hash);

#endif
