#include "core/reducer.h"

#include "kern/reduce.h"

#include <math.h>
#include <string.h>

enum { WINDOW = 8 };

typedef struct slot slot;
typedef struct guest guest;

/* One chunk of one member, on its way into an accumulator. */
typedef struct contribution {
  struct contribution *next;
  guest *from;         /* NULL: this member's own values */
  hv_payload *payload; /* kept */
} contribution;

typedef struct list {
  contribution *first, **last;
} list;

typedef enum slot_state {
  SLOT_OPEN,    /* contributions come in, one job at a time */
  SLOT_CLOSING, /* the average is being made */
  SLOT_READY,   /* it is on its way to all */
} slot_state;

struct slot {
  hv_reducer *reducer;
  uint32_t chunk; /* in the span */
  slot_state state;
  float *acc;
  double weight;
  int busy; /* its job is under way */
  size_t inputs;
  contribution *current;
  list waiting;
  uint8_t has[HV_ROUND_MEMBERS_MAX / 8];
  uint8_t *codes; /* the average's, until payload owns them */
  size_t codes_size;
  hv_payload *average;
  hv_status status; /* of the job */
  hv_job job;
};

typedef enum guest_state { GUEST_EXPECTED, GUEST_HERE, GUEST_GONE } guest_state;

struct guest {
  hv_reducer *reducer;
  size_t member;
  guest_state state;
  hv_stream *stream;
  float weight;                /* as it said, and as it counts */
  uint32_t next, placed, sent; /* the contribution that comes next, that is placed next; the average that goes next */
  list held;
  uint64_t moved_us; /* when something of it last went on */
};

struct hv_reducer {
  hv_env *env;
  const hv_round *round;
  void (*changed)(void *arg);
  void *arg;
  uint32_t first, count, low; /* the span; the oldest open chunk in it */
  slot slots[WINDOW];
  guest *guests; /* one for each member; this one's own is never expected */
  uint32_t *counted;
  uint32_t averaged;    /* chunks whose average is made */
  int own_left_out;     /* this member's own values were refused: they count no more */
  size_t jobs, streams; /* under way, open */
  hv_status status;
  hv_timer stall;
};

/* ---- small things ---- */

static void list_init(list *l) {
  l->first = NULL;
  l->last = &l->first;
}

static void list_put(list *l, contribution *c) {
  c->next = NULL;
  *l->last = c;
  l->last = &c->next;
}

static contribution *list_take(list *l) {
  contribution *c = l->first;
  if (c && !(l->first = c->next))
    l->last = &l->first;
  return c;
}

static void drop_contribution(contribution *c) {
  hv_payload_release(c->payload);
  hv_mem_free(c);
}

static void list_drop(list *l) {
  for (contribution *c; (c = list_take(l));)
    drop_contribution(c);
}

static slot *slot_of(hv_reducer *r, uint32_t chunk) {
  return &r->slots[chunk % WINDOW];
}

static hv_run_chunk chunk_of(const slot *s) {
  return hv_run_chunk_of(s->reducer->round->in, s->reducer->first + s->chunk);
}

static int has(const slot *s, size_t member) {
  return s->has[member / 8] >> member % 8 & 1;
}

static void put_has(slot *s, size_t member) {
  s->has[member / 8] |= (uint8_t)(1u << member % 8);
}

static void go_on(slot *s);
static void go_on_all(hv_reducer *r);
static void advance(hv_reducer *r);

static void fail(hv_reducer *r, hv_status status) {
  if (r->status == HV_OK)
    r->status = status;
  for (size_t i = 0; i < r->round->n_members; i++) {
    guest *g = &r->guests[i];
    list_drop(&g->held);
    if (g->stream)
      r->env->stream_cancel(r->env, g->stream);
    g->state = GUEST_GONE;
  }
  for (size_t i = 0; i < WINDOW; i++)
    list_drop(&r->slots[i].waiting);
}

/* From now on this member is not waited for, and is sent nothing any more. */
static void leave_out(guest *g, hv_status status, const char *why) {
  hv_reducer *r = g->reducer;
  if (g->state == GUEST_GONE)
    return;
  g->state = GUEST_GONE;
  list_drop(&g->held);
  if (g->stream)
    r->env->stream_cancel(r->env, g->stream);
  char who[HV_PEER_SHORT_MAX];
  hv_env_log(r->env, HV_LOG_WARN, "reducer", "left_out", "member %s is left out after %u of %u chunks: %s (%s)",
             hv_peer_short(&r->round->members[g->member].at.id, who), r->counted[g->member], r->count, why, hv_status_text(status));
}

/* This member's own values are held to the rules of all. */
static void own_refused(hv_reducer *r, hv_status status) {
  if (r->own_left_out)
    return;
  r->own_left_out = 1;
  hv_env_log(r->env, HV_LOG_WARN, "reducer", "own_left_out", "this member's own values are left out after %u of %u chunks: %s",
             r->counted[r->round->me], r->count, hv_status_text(status));
}

/* ---- jobs on the pool ---- */

static void run_accumulate(hv_job *job) {
  slot *s = job->owner;
  const hv_round *round = s->reducer->round;
  const contribution *c = s->current;
  if (!c->from) {
    s->status = hv_run_accumulate(round->in, round->kern, s->reducer->first + s->chunk, round->weight, round->norm_max, s->acc);
    return;
  }
  s->status = hv_codec_accumulate_within(round->kern, c->payload->parts, c->payload->n_parts, c->from->weight, round->norm_max,
                                         s->acc, chunk_of(s).size);
}

static void run_average(hv_job *job) {
  slot *s = job->owner;
  const hv_round *round = s->reducer->round;
  hv_run_chunk chunk = chunk_of(s);
  uint64_t size;
  hv_reduce_scale(round->kern, s->acc, (float)(1 / s->weight), chunk.size);
  s->status = hv_codec_encode(round->kern, chunk.codec, HV_DTYPE_FLOAT32, s->acc, chunk.size, NULL, s->codes, s->codes_size, &size);
  hv_span codes = hv_span_of(s->codes, s->codes_size);
  if (s->status == HV_OK && round->out)
    s->status = hv_run_decode(round->out, round->kern, s->reducer->first + s->chunk, &codes, 1);
}

static void start_job(slot *s, void (*run)(hv_job *), void (*done)(hv_job *, const hv_event *)) {
  s->busy = 1;
  s->reducer->jobs++;
  s->job = (hv_job){.run = run, .done = done, .owner = s};
  s->reducer->env->work(s->reducer->env, &s->job);
}

/* The job's end, for both kinds: 1 when the round goes on. */
static int job_over(slot *s, const hv_event *event) {
  hv_reducer *r = s->reducer;
  s->busy = 0;
  r->jobs--;
  if (event->status != HV_OK && r->status == HV_OK)
    fail(r, event->status);
  if (r->status == HV_OK)
    return 1;
  if (s->current)
    drop_contribution(s->current);
  s->current = NULL;
  r->changed(r->arg);
  return 0;
}

static void accumulated(hv_job *job, const hv_event *event) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  if (!job_over(s, event))
    return;
  contribution *c = s->current;
  size_t member = c->from ? c->from->member : r->round->me;
  guest *from = c->from;
  drop_contribution(c);
  s->current = NULL;
  if (s->status == HV_OK) {
    put_has(s, member);
    s->inputs++;
    s->weight += from ? (double)from->weight : (double)r->round->weight;
    r->counted[member]++;
  } else if (from) {
    leave_out(from, s->status, "its values were refused");
    go_on_all(r);
  } else {
    own_refused(r, s->status);
  }
  go_on(s);
  advance(r);
}

/* ---- the average goes out ---- */

static void free_codes(void *codes) {
  hv_mem_free(codes);
}

static void send_averages(guest *g) {
  hv_reducer *r = g->reducer;
  while (g->state == GUEST_HERE && g->sent < r->count) {
    slot *s = slot_of(r, g->sent);
    if (s->chunk != g->sent || s->state != SLOT_READY)
      return;
    hv_msg header = {.kind = HV_MSG_CHUNK, .u.chunk = {r->first + s->chunk}};
    hv_status status = r->env->stream_send(r->env, g->stream, &header, s->average);
    if (status == HV_BUSY)
      return;
    if (status != HV_OK) {
      leave_out(g, status, "the average could not be sent");
      return;
    }
    g->sent++;
    g->moved_us = r->env->now_us(r->env);
  }
  if (g->state == GUEST_HERE)
    r->env->stream_end(r->env, g->stream);
}

static void averaged(hv_job *job, const hv_event *event) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  if (!job_over(s, event))
    return;
  if (s->status == HV_OK)
    s->average = hv_payload_borrow(r->env->mem, s->codes, s->codes_size, free_codes, s->codes);
  if (!s->average) {
    fail(r, s->status == HV_OK ? HV_NOMEM : s->status);
    r->changed(r->arg);
    return;
  }
  s->codes = NULL;
  s->state = SLOT_READY;
  r->averaged++;
  for (size_t i = 0; i < r->round->n_members; i++)
    send_averages(&r->guests[i]);
  advance(r);
}

static void close_slot(slot *s) {
  hv_reducer *r = s->reducer;
  s->state = SLOT_CLOSING;
  if (s->inputs == 0 || !(s->weight > 0)) {
    fail(r, HV_CLOSED);
    r->changed(r->arg);
    return;
  }
  s->codes_size = chunk_of(s).bytes;
  s->codes = hv_mem_aligned(r->env->mem, s->codes_size);
  if (!s->codes) {
    fail(r, HV_NOMEM);
    r->changed(r->arg);
    return;
  }
  start_job(s, run_average, averaged);
}

/* ---- contributions come in ---- */

static int is_complete(const slot *s) {
  const hv_reducer *r = s->reducer;
  for (size_t i = 0; i < r->round->n_members; i++)
    if (r->guests[i].state != GUEST_GONE && !has(s, i))
      return 0;
  return r->own_left_out || r->round->members[r->round->me].auxiliary || has(s, r->round->me);
}

/* Starts whatever a slot can do next. */
static void go_on(slot *s) {
  if (s->reducer->status != HV_OK || s->busy || s->state != SLOT_OPEN)
    return;
  s->current = list_take(&s->waiting);
  if (s->current)
    start_job(s, run_accumulate, accumulated);
  else if (is_complete(s))
    close_slot(s);
}

static void go_on_all(hv_reducer *r) {
  for (uint32_t i = r->low; i < r->count && i < r->low + WINDOW; i++)
    go_on(slot_of(r, i));
}

/* Moves what is held for chunks that are open now into their slots. */
static void place(guest *g) {
  hv_reducer *r = g->reducer;
  while (g->held.first && g->placed < r->low + WINDOW) {
    slot *s = slot_of(r, g->placed++);
    list_put(&s->waiting, list_take(&g->held));
    go_on(s);
  }
}

static hv_status open_slot(hv_reducer *r, uint32_t chunk) {
  slot *s = slot_of(r, chunk);
  s->chunk = chunk;
  s->state = SLOT_OPEN;
  s->weight = 0;
  s->inputs = 0;
  memset(s->has, 0, sizeof s->has);
  memset(s->acc, 0, chunk_of(s).size * sizeof *s->acc);
  if (r->own_left_out || r->round->members[r->round->me].auxiliary)
    return HV_OK;
  contribution *own = hv_mem_zalloc(r->env->mem, sizeof *own);
  if (!own)
    return HV_NOMEM;
  list_put(&s->waiting, own);
  return HV_OK;
}

static int everybody_has(const hv_reducer *r, uint32_t chunk) {
  for (size_t i = 0; i < r->round->n_members; i++)
    if (r->guests[i].state != GUEST_GONE && r->guests[i].sent <= chunk)
      return 0;
  return 1;
}

/* Lets finished chunks make way for the next ones. */
static void advance(hv_reducer *r) {
  while (r->status == HV_OK && r->low < r->count && slot_of(r, r->low)->state == SLOT_READY && everybody_has(r, r->low)) {
    slot *s = slot_of(r, r->low);
    hv_payload_release(s->average);
    s->average = NULL;
    uint32_t chunk = r->low++ + WINDOW;
    if (chunk >= r->count)
      continue;
    hv_status status = open_slot(r, chunk);
    if (status != HV_OK) {
      fail(r, status);
      break;
    }
    go_on(s);
    for (size_t i = 0; i < r->round->n_members; i++)
      place(&r->guests[i]);
  }
  if (hv_reducer_over(r))
    r->env->timer_clear(r->env, &r->stall);
  r->changed(r->arg);
}

static void chunk_came(hv_stream *stream, const hv_event *event) {
  guest *g = stream->owner;
  hv_reducer *r = g->reducer;
  if (g->state != GUEST_HERE || r->status != HV_OK)
    return;
  if (event->msg->kind != HV_MSG_CHUNK || g->next >= r->count || event->msg->u.chunk.index != r->first + g->next ||
      !event->payload || event->payload->size != hv_run_chunk_of(r->round->in, r->first + g->next).bytes) {
    leave_out(g, HV_MALFORMED, "it sent another chunk than was its turn");
  } else {
    contribution *c = hv_mem_zalloc(r->env->mem, sizeof *c);
    if (c) {
      c->from = g;
      c->payload = hv_payload_keep(event->payload);
      list_put(&g->held, c);
      g->next++;
      g->moved_us = event->now_us;
      place(g);
      return;
    }
    leave_out(g, HV_NOMEM, "there is no memory for its chunk");
  }
  go_on_all(r);
  advance(r);
}

static void room_again(hv_stream *stream, const hv_event *event) {
  guest *g = stream->owner;
  (void)event;
  send_averages(g);
  advance(g->reducer);
}

static void stream_over(hv_stream *stream, const hv_event *event) {
  guest *g = stream->owner;
  hv_reducer *r = g->reducer;
  g->stream = NULL;
  r->streams--;
  if (g->sent < r->count || event->status != HV_OK)
    leave_out(g, event->status, event->text);
  else
    g->state = GUEST_GONE; /* it has everything */
  go_on_all(r);
  advance(r);
}

void hv_reducer_opened(hv_reducer *r, size_t member, float weight, hv_stream *stream) {
  static const hv_stream_events on = {chunk_came, room_again, stream_over};
  guest *g = &r->guests[member];
  if (g->state != GUEST_EXPECTED || r->status != HV_OK)
    return;
  if (!hv_round_takes_weight(r->round, weight)) {
    leave_out(g, HV_INVALID, "its weight was refused");
    go_on_all(r);
    advance(r);
    return;
  }
  g->state = GUEST_HERE;
  g->weight = weight;
  g->stream = stream;
  g->moved_us = r->env->now_us(r->env);
  r->streams++;
  stream->on = &on;
  stream->owner = g;
}

/* ---- those who hold the others up ---- */

static int holds_up(const guest *g) {
  hv_reducer *r = g->reducer;
  const slot *s = slot_of(r, r->low);
  if (g->state == GUEST_GONE)
    return 0;
  if (r->low >= r->count)
    return 1; /* it has everything, and does not end */
  if (s->state == SLOT_OPEN)
    return g->next <= r->low;
  return s->state == SLOT_READY && g->sent <= r->low;
}

static void look_for_stalls(hv_timer *timer, const hv_event *event) {
  hv_reducer *r = timer->owner;
  uint64_t patience = (uint64_t)r->round->stall_ms * 1000;
  int anybody = 0;
  for (size_t i = 0; i < r->round->n_members; i++) {
    guest *g = &r->guests[i];
    if (!holds_up(g))
      g->moved_us = event->now_us > g->moved_us ? event->now_us : g->moved_us;
    else if (event->now_us - g->moved_us >= patience) {
      leave_out(g, HV_TIMEOUT, g->stream ? "it stands still" : "it did not come");
      anybody = 1;
    }
  }
  r->env->timer_set(r->env, &r->stall, patience / 8 + 1);
  if (!anybody)
    return;
  go_on_all(r);
  advance(r);
}

/* ---- life ---- */

hv_status hv_reducer_new(hv_env *env, const hv_round *round, void (*changed)(void *arg), void *arg, hv_reducer **out) {
  hv_reducer *r = hv_mem_zalloc(env->mem, sizeof *r);
  if (!r)
    return HV_NOMEM;
  const hv_round_member *me = &round->members[round->me];
  *r = (hv_reducer){.env = env, .round = round, .changed = changed, .arg = arg, .first = me->first, .count = me->count};
  r->stall = (hv_timer){.fire = look_for_stalls, .owner = r};
  r->guests = hv_mem_array(env->mem, round->n_members, sizeof *r->guests);
  r->counted = hv_mem_array(env->mem, round->n_members, sizeof *r->counted);
  int whole = r->guests && r->counted;
  size_t most = hv_run_chunk_most(round->in);
  for (size_t i = 0; i < WINDOW; i++) {
    r->slots[i].reducer = r;
    list_init(&r->slots[i].waiting);
    if (i < me->count)
      whole = (r->slots[i].acc = hv_mem_aligned(env->mem, most * sizeof(float))) && whole;
  }
  for (size_t i = 0; r->guests && i < round->n_members; i++) {
    guest_state state = i == round->me || round->members[i].auxiliary ? GUEST_GONE : GUEST_EXPECTED;
    r->guests[i] = (guest){.reducer = r, .member = i, .state = state};
    list_init(&r->guests[i].held);
  }
  if (!whole) {
    hv_reducer_free(r);
    return HV_NOMEM;
  }
  *out = r;
  return HV_OK;
}

void hv_reducer_start(hv_reducer *r) {
  uint64_t now = r->env->now_us(r->env);
  for (size_t i = 0; i < r->round->n_members; i++)
    r->guests[i].moved_us = now;
  for (uint32_t i = 0; i < r->count && i < WINDOW && r->status == HV_OK; i++) {
    hv_status status = open_slot(r, i);
    if (status != HV_OK)
      fail(r, status);
    else
      go_on(slot_of(r, i));
  }
  if (r->count)
    r->env->timer_set(r->env, &r->stall, (uint64_t)r->round->stall_ms * 1000 / 8 + 1);
}

void hv_reducer_cancel(hv_reducer *r) {
  r->env->timer_clear(r->env, &r->stall);
  fail(r, HV_CANCELLED);
}

int hv_reducer_done(const hv_reducer *r) {
  return r->jobs == 0 && (r->status != HV_OK || r->averaged == r->count);
}

int hv_reducer_over(const hv_reducer *r) {
  return hv_reducer_done(r) && r->streams == 0;
}

hv_status hv_reducer_status(const hv_reducer *r) {
  return r->status;
}

uint32_t hv_reducer_counted(const hv_reducer *r, size_t member) {
  return r->counted[member];
}

void hv_reducer_free(hv_reducer *r) {
  if (!r)
    return;
  r->env->timer_clear(r->env, &r->stall);
  for (size_t i = 0; r->guests && i < r->round->n_members; i++)
    list_drop(&r->guests[i].held);
  for (size_t i = 0; i < WINDOW; i++) {
    slot *s = &r->slots[i];
    list_drop(&s->waiting);
    if (s->current)
      drop_contribution(s->current);
    hv_payload_release(s->average);
    hv_mem_free(s->codes);
    hv_mem_free(s->acc);
  }
  hv_mem_free(r->guests);
  hv_mem_free(r->counted);
  hv_mem_free(r);
}
