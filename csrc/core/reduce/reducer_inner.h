/* The reducer's tables and lists: a slot for each open chunk, a contributor for each member, and contributions under way.
 *
 * Room: core (uses reducer.h). Private to reducer.c (the behaviour) and reducer_make.c (making and freeing).
 * Owner and thread: those of reducer.h.
 */
#ifndef HV_CORE_REDUCER_INNER_H
#define HV_CORE_REDUCER_INNER_H

#include "core/reduce/reducer.h"
#include "core/round/gauge.h"

enum { WINDOW = 8 }; /* open chunks */

typedef struct slot slot;
typedef struct contributor contributor;

/* One chunk of one member, on its way into an accumulator. */
typedef struct contribution {
  struct contribution *next;
  contributor *from; /* NULL: this member's own values */
  uint32_t item;
  hv_members in;       /* of a forwarded average: the members whose values it contains */
  uint32_t made;       /* of a forwarded average: the view in which it was made */
  hv_payload *payload; /* a reference of its own */
} contribution;

typedef struct list {
  contribution *first, **last;
} list;

static inline void list_init(list *l) {
  l->first = NULL;
  l->last = &l->first;
}

static inline void list_put(list *l, contribution *c) {
  c->next = NULL;
  *l->last = c;
  l->last = &c->next;
}

static inline contribution *list_take(list *l) {
  contribution *c = l->first;
  if (c && !(l->first = c->next))
    l->last = &l->first;
  return c;
}

static inline void drop_contribution(contribution *c) {
  if (c)
    hv_payload_release(c->payload);
  hv_mem_free(c);
}

static inline void list_drop(list *l) {
  for (contribution *c; (c = list_take(l));)
    drop_contribution(c);
}

typedef enum slot_state {
  SLOT_OPEN,    /* contributions arrive, one job at a time */
  SLOT_CLOSING, /* the average is being made */
  SLOT_READY,   /* the average is being sent to all, or the message that there is none */
} slot_state;

struct slot {
  hv_reducer *reducer;
  uint32_t item; /* chunk of the span, from 0 */
  slot_state state;
  hv_run_sum sum; /* valid if begun */
  double weight;  /* sum of the weights */
  int begun;      /* 1: a contribution was added */
  int busy;       /* 1: its job is under way */
  int lacking;    /* 1: a forwarded average that this member lacks, too */
  contribution *current;
  list waiting;
  hv_members heard;   /* members whose contribution was examined */
  hv_members counted; /* members whose values are in the sum */
  uint32_t made;      /* view in which the average was made */
  uint8_t *codes;     /* the encoded average, until `average` owns it */
  size_t codes_size;
  hv_payload *average;
  hv_status status; /* of the job */
  hv_job job;
};

typedef enum contributor_state {
  CONTRIBUTOR_EXPECTED,
  CONTRIBUTOR_HERE,
  CONTRIBUTOR_LOST, /* its stream broke; it may have stopped for a new view that this member does not know yet */
  CONTRIBUTOR_GONE
} contributor_state;

struct contributor {
  hv_reducer *reducer;
  size_t member;
  contributor_state state;
  int refused; /* 1: its further contributions do not count */
  int ignored; /* 1: its messages are ignored */
  int late;    /* 1: left out because it did not come or stalled */
  int gone;    /* 1: it has ended */
  hv_stream *stream;
  float weight;        /* with which it counts */
  float norm;          /* as it states it */
  uint8_t *lacks;      /* a bit for each item; NULL: all */
  uint32_t next, sent; /* the next item that it contributes; the next item whose average is sent to it */
  list held;
  uint64_t moved_us;   /* time of its last progress */
  uint64_t message_us; /* time of the last message to it */
  hv_gauge gauge;      /* of its first chunks */
};

struct hv_reducer {
  hv_env *env;
  const hv_round *round;
  const hv_view *view;
  hv_hold *hold;
  hv_kept *kept; /* NULL: no average is kept */
  hv_pace *pace;
  void (*changed)(void *arg);
  void *arg;
  uint32_t first, count, low; /* the span in the view's work; the oldest open item in it */
  slot slots[WINDOW];
  contributor *contributors; /* one for each member; this member's own is never expected */
  uint32_t settled;          /* number of items that have their average, or certainly none */
  int own_refused;           /* 1: this member's own values do not count */
  int judges;                /* 1: norm_most is known, so contributions are added */
  float norm_most;           /* largest norm of a chunk of a contribution; 0: any */
  size_t jobs, streams;      /* jobs under way, open streams */
  size_t lost;               /* hv_reducer_lost */
  int lied;                  /* hv_reducer_lied */
  int narrow;                /* hv_reducer_narrow */
  hv_status status;
  uint64_t looked_us;
  hv_timer stall;
};

/* Fires for `stall`: leaves out members that hold the others up. */
void reducer_look_for_stalls(hv_timer *timer, const hv_event *event);

/* Sets norm_most by the norms that the contributors state. Those that are refused, or weigh nothing, have no say. */
void reducer_set_norm_most(hv_reducer *r);

#endif
