/* What does an owner keep while it averages its span? The reducer's tables, for reducer.c and reducer_make.c alone.
 *
 * Room: core (uses reducer.h). Types, and lists: a slot for each open chunk, a contributor for each member, contributions on their
 * way.
 */
#ifndef HV_CORE_REDUCER_INNER_H
#define HV_CORE_REDUCER_INNER_H

#include "core/reduce/reducer.h"
#include "core/round/gauge.h"

enum { WINDOW = 8 };

typedef struct slot slot;
typedef struct contributor contributor;

/* One chunk of one member, on its way into an accumulator. */
typedef struct contribution {
  struct contribution *next;
  contributor *from; /* NULL: this member's own values */
  uint32_t item;
  hv_members in;       /* of a forwarded average: whose values are in it, */
  uint32_t made;       /* and in which view it was made */
  hv_payload *payload; /* kept */
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
  SLOT_OPEN,    /* contributions come in, one job at a time */
  SLOT_CLOSING, /* the average is being made */
  SLOT_READY,   /* it is on its way to all; or there is none, and they are told so */
} slot_state;

struct slot {
  hv_reducer *reducer;
  uint32_t item; /* of the row, from 0 */
  slot_state state;
  hv_run_sum sum; /* once it has begun */
  double weight;
  int begun;   /* a contribution was added up */
  int busy;    /* its job is under way */
  int lacking; /* what is relayed is not held here yet */
  contribution *current;
  list waiting;
  hv_members heard;   /* whose contribution was looked at */
  hv_members counted; /* whose values are in */
  uint32_t made;      /* in which view */
  uint8_t *codes;     /* the average's, until payload owns them */
  size_t codes_size;
  hv_payload *average;
  hv_status status; /* of the job */
  hv_job job;
};

typedef enum contributor_state {
  CONTRIBUTOR_EXPECTED,
  CONTRIBUTOR_HERE,
  CONTRIBUTOR_LOST, /* its stream broke: it may have stopped for another view, of which this member is told soon */
  CONTRIBUTOR_GONE
} contributor_state;

struct contributor {
  hv_reducer *reducer;
  size_t member;
  contributor_state state;
  int refused; /* what it contributes does not count any more */
  int ignored; /* nothing that it sends is heard any more */
  int late;    /* it was left out because it did not come, or stood still */
  int gone;    /* it has ended */
  hv_stream *stream;
  float weight;        /* as it said, and as it counts */
  uint8_t *lacks;      /* a bit for each item; NULL: all */
  uint32_t next, sent; /* the item it gives next; whose average goes to it next */
  list held;
  uint64_t moved_us; /* when something of it last went on */
  uint64_t told_us;  /* when it was last told anything */
  hv_gauge gauge;    /* of its first chunks */
};

struct hv_reducer {
  hv_env *env;
  const hv_round *round;
  const hv_view *view;
  hv_hold *hold;
  hv_pace *pace;
  void (*changed)(void *arg);
  void *arg;
  uint32_t first, count, low; /* the row in the view's work; the oldest open item in it */
  slot slots[WINDOW];
  contributor *contributors; /* one for each member; this one's own is never expected */
  uint32_t settled;          /* items whose average is made, or that have none */
  int own_refused;
  size_t jobs, streams; /* under way, open */
  size_t lost;          /* who was to forward a chunk, and does not */
  int lied;             /* what it sent instead was false */
  hv_status status;
  uint64_t looked_us;
  hv_timer stall;
};

/* Of `stall`: leaves out members that hold the others up. */
void reducer_look_for_stalls(hv_timer *timer, const hv_event *event);

#endif
