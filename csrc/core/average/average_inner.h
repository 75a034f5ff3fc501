/* What is inside an averager? Shared by the average*.c files only; average.h is the contract.
 *
 * Room: core. The hive thread; `blend` is read by its job on the pool.
 */
#ifndef HV_CORE_AVERAGE_INNER_H
#define HV_CORE_AVERAGE_INNER_H

#include "core/average/average.h"
#include "core/util/flow.h"

typedef enum hv_average_stage {
  HV_AVERAGE_SEEKING,  /* match looks for a group */
  HV_AVERAGE_PAUSING,  /* it found none; soon again */
  HV_AVERAGE_READY,    /* there is a group; the program has not said go */
  HV_AVERAGE_KNOCKING, /* the tensors are the program's just now */
  HV_AVERAGE_REDUCING,
  HV_AVERAGE_SETTLING, /* it has the averages, and stays readable for those who have not */
  HV_AVERAGE_BLENDING,
  HV_AVERAGE_OVER,
  HV_AVERAGE_STAGES
} hv_average_stage;

/* A step under way. */
typedef struct hv_average_work {
  hv_average *average;
  hv_average_step *step;
  hv_average_stage stage;
  uint64_t formed_us;        /* when its group was found */
  uint64_t since_us, end_us; /* in this stage; of its time: UINT64_MAX: none */
  uint64_t pause_ms;
  hv_error why;     /* not HV_OK: it is to end with this, as soon as what runs lets it */
  unsigned attempt; /* of its epoch */
  int triggered, at_gate;
  hv_match_seek seek;
  uint8_t epoch[HV_MATCH_EPOCH_MAX];
  hv_match_group *group;
  hv_allreduce *round;
  hv_average_member *members; /* as the program will be told of them, and */
  double *shares;             /* how much of each was averaged: made before the round, so that it does not fail after it */
  hv_timer timer;             /* of the whole, and of a pause */
  hv_timer settle;
  uint64_t settle_us, settled_us; /* how long until it looks again; when it waits no more */
  uint32_t settled_view;          /* as of which view, */
  size_t settled_chair;           /* and of which coordinator */
  hv_job blend;
  hv_status blended;
  hv_average_outcome outcome;
} hv_average_work;

struct hv_average {
  hv_averages *all;
  hv_average *next, **link;
  hv_average_config config; /* without its texts and shapes */
  const hv_kern *kern;
  hv_run run;        /* the tensors */
  hv_run staging;    /* where averages go when alpha is not 1, while a round lasts: one float32 part, alike to run */
  float *copies;     /* its memory */
  uint64_t usual_us; /* that a round which ends well takes; 0: there was none */
  uint64_t line;     /* bytes per second of this peer's line: stated, then seen (core/round/gauge.h); 0: not known */
  hv_flow_past past; /* at which rate earlier rounds came here */
  hv_match *match;
  hv_average_work *work; /* NULL: idle */
  size_t n_rounds;       /* that read the run: the last ones may linger */
  int closing, gone;     /* gone: only those rounds still know it */
  void (*closed)(void *arg);
  void *closed_arg;
};

/* Its memory, once no round reads its run: one that ended lingers for who is late. The match has been freed, or its world is dead
 * and the registry frees it. */
void average_drop(hv_average *self);

/* What members must agree on, as text, a line for each tensor, and its hash. */
hv_status hv_average_schema(hv_env *env, const hv_average_config *config, uint32_t chunk_values, hv_buf *text, hv_hash *hash);

#endif
