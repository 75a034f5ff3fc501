#include "core/allreduce.h"

#include <string.h>

enum { HALL_ROOM = 256, HALL_PATIENCE_MS = 15000 };

struct hv_allreduce {
  hv_allreduce *next, **link;
  hv_allreduce_hall *hall;
  hv_env *env;
  hv_round round;
  hv_round_member *members; /* the round's */
  hv_allreduce_done *done;
  void *arg;
  hv_reducer *reducer;
  hv_share **shares; /* one for each member; NULL for those that own nothing, and this one */
  hv_status status;  /* HV_CANCELLED once asked for */
  int told, given_up, lingers;
  hv_timer look; /* looks, in a step of its own, how far it is */
};

/* What came on a stream before its round began. */
typedef struct piece {
  struct piece *next;
  uint32_t chunk;
  hv_payload *payload;
} piece;

/* A stream whose round has not begun here. What it brings is held, which closes its window. */
typedef struct hv_allreduce_early {
  struct hv_allreduce_early *next, **link;
  hv_allreduce_hall *hall;
  hv_stream *stream;
  hv_msg_share share;
  uint64_t since_us;
  piece *pieces, **last;
} early;

static void release(hv_allreduce *self);

/* ---- the hall ---- */

static void leave_hall(early *e) {
  for (piece *p; (p = e->pieces); hv_mem_free(p)) {
    e->pieces = p->next;
    hv_payload_release(p->payload);
  }
  *e->link = e->next;
  if (e->next)
    e->next->link = e->link;
  e->hall->n_early--;
  hv_mem_free(e);
}

static void held_in_hall(hv_stream *stream, const hv_event *event) {
  early *e = stream->owner;
  hv_env *env = e->hall->env;
  piece *p = event->msg->kind == HV_MSG_CHUNK && event->payload ? hv_mem_zalloc(env->mem, sizeof *p) : NULL;
  if (!p) {
    env->stream_cancel(env, stream);
    return;
  }
  p->chunk = event->msg->u.chunk.index;
  p->payload = hv_payload_keep(event->payload);
  *e->last = p;
  e->last = &p->next;
}

static void nothing_to_send(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void left_early(hv_stream *stream, const hv_event *event) {
  (void)event;
  leave_hall(stream->owner);
}

static void sweep(hv_timer *timer, const hv_event *event) {
  hv_allreduce_hall *hall = timer->owner;
  for (early *e = hall->early; e; e = e->next)
    if (event->now_us - e->since_us >= HALL_PATIENCE_MS * 1000ull)
      hall->env->stream_cancel(hall->env, e->stream);
  if (hall->early)
    hall->env->timer_set(hall->env, &hall->sweep, HALL_PATIENCE_MS * 1000ull / 4);
}

void hv_allreduce_hall_init(hv_allreduce_hall *hall, hv_env *env) {
  *hall = (hv_allreduce_hall){.env = env};
  hall->sweep = (hv_timer){.fire = sweep, .owner = hall};
}

void hv_allreduce_hall_fini(hv_allreduce_hall *hall) {
  hall->env->timer_clear(hall->env, &hall->sweep);
  while (hall->early)
    leave_hall(hall->early);
  while (hall->rounds)
    release(hall->rounds);
}

static hv_allreduce *find_round(hv_allreduce_hall *hall, const uint8_t id[HV_ROUND_ID_SIZE]) {
  hv_allreduce *self = hall->rounds;
  while (self && memcmp(self->round.id, id, HV_ROUND_ID_SIZE) != 0)
    self = self->next;
  return self;
}

/* Gives a stream to the reducer if it is who it says, a contributor of that round. */
static void admit(hv_allreduce *self, const hv_msg_share *share, hv_stream *stream) {
  const hv_round *round = &self->round;
  if (!self->told && self->reducer && share->member < round->n_members && share->member != round->me &&
      hv_peer_equal(&stream->peer, &round->members[share->member].at.id))
    hv_reducer_opened(self->reducer, share->member, share->weight, stream);
}

void hv_allreduce_opened(hv_allreduce_hall *hall, const hv_event *event) {
  static const hv_stream_events on = {held_in_hall, nothing_to_send, left_early};
  const hv_msg_share *share = &event->msg->u.share;
  hv_allreduce *self = find_round(hall, share->round);
  if (self) {
    admit(self, share, event->stream);
    return;
  }
  early *e = hall->n_early < HALL_ROOM ? hv_mem_zalloc(hall->env->mem, sizeof *e) : NULL;
  if (!e)
    return;
  *e = (early){
      .next = hall->early, .link = &hall->early, .hall = hall, .stream = event->stream, .share = *share, .since_us = event->now_us};
  e->last = &e->pieces;
  if (e->next)
    e->next->link = &e->next;
  hall->early = e;
  hall->n_early++;
  event->stream->on = &on;
  event->stream->owner = e;
  if (hall->n_early == 1)
    hall->env->timer_set(hall->env, &hall->sweep, HALL_PATIENCE_MS * 1000ull / 4);
}

/* ---- the end ---- */

static int every_part(const hv_allreduce *self, int (*reducer_is)(const hv_reducer *), int (*share_is)(const hv_share *)) {
  if (self->reducer && !reducer_is(self->reducer))
    return 0;
  for (size_t i = 0; i < self->round.n_members; i++)
    if (self->shares[i] && !share_is(self->shares[i]))
      return 0;
  return 1;
}

static int all_done(const hv_allreduce *self) {
  return every_part(self, hv_reducer_done, hv_share_done);
}

static int all_over(const hv_allreduce *self) {
  return every_part(self, hv_reducer_over, hv_share_over);
}

static hv_status outcome(const hv_allreduce *self) {
  if (self->status != HV_OK)
    return self->status;
  hv_status status = self->reducer ? hv_reducer_status(self->reducer) : HV_OK;
  for (size_t i = 0; i < self->round.n_members && status == HV_OK; i++)
    status = self->shares[i] ? hv_share_status(self->shares[i]) : HV_OK;
  return status;
}

static void release(hv_allreduce *self) {
  self->env->timer_clear(self->env, &self->look);
  if (self->link) {
    *self->link = self->next;
    if (self->next)
      self->next->link = self->link;
  }
  for (size_t i = 0; self->shares && i < self->round.n_members; i++)
    hv_share_free(self->shares[i]);
  hv_mem_free(self->shares);
  hv_reducer_free(self->reducer);
  hv_mem_free(self->members);
  hv_mem_free(self);
}

static void break_off(hv_allreduce *self) {
  if (self->reducer && !hv_reducer_over(self->reducer))
    hv_reducer_cancel(self->reducer);
  for (size_t i = 0; i < self->round.n_members; i++)
    if (self->shares[i] && !hv_share_over(self->shares[i]))
      hv_share_cancel(self->shares[i]);
}

/* It has told its outcome; those who still read from here get stall_ms to come to an end. */
static void linger(hv_allreduce *self) {
  if (all_over(self)) {
    if (self->given_up)
      release(self);
    return;
  }
  if (self->lingers++)
    break_off(self);
  self->env->timer_set(self->env, &self->look, (uint64_t)self->round.stall_ms * 1000);
}

static void look(hv_timer *timer, const hv_event *event) {
  hv_allreduce *self = timer->owner;
  (void)event;
  if (!self->told) {
    if (!all_done(self))
      return;
    self->told = 1;
    self->env->timer_set(self->env, &self->look, 0); /* to linger, if it is still there after done */
    self->done(self->arg, self, outcome(self));
    return;
  }
  linger(self);
}

static void something_changed(void *arg) {
  hv_allreduce *self = arg;
  if (self->told ? self->given_up && all_over(self) : all_done(self))
    self->env->timer_set(self->env, &self->look, 0);
}

/* ---- the beginning ---- */

static hv_status make_parts(hv_allreduce *self) {
  hv_round *round = &self->round;
  self->members = hv_mem_array(self->env->mem, round->n_members, sizeof *self->members);
  if (!self->members)
    return HV_NOMEM;
  memcpy(self->members, round->members, round->n_members * sizeof *self->members);
  round->members = self->members;
  self->shares = hv_mem_array(self->env->mem, round->n_members, sizeof *self->shares);
  if (!self->shares)
    return HV_NOMEM;
  hv_status status = HV_OK;
  if (round->members[round->me].count)
    status = hv_reducer_new(self->env, round, something_changed, self, &self->reducer);
  for (size_t i = 0; status == HV_OK && i < round->n_members && !round->members[round->me].auxiliary; i++)
    if (i != round->me && round->members[i].count)
      status = hv_share_new(self->env, round, i, something_changed, self, &self->shares[i]);
  return status;
}

/* Brings a waiting stream to its round, and then what it has brought. */
static void admit_early(hv_allreduce *self, early *e) {
  hv_stream *stream = e->stream;
  const hv_stream_events *before = stream->on;
  stream->on = NULL;
  admit(self, &e->share, stream);
  if (!stream->on) {
    stream->on = before;
    self->env->stream_cancel(self->env, stream);
    return;
  }
  for (piece *p = e->pieces; p; p = p->next) {
    hv_msg msg = {.kind = HV_MSG_CHUNK, .u.chunk = {p->chunk}};
    hv_event event = {.kind = HV_EVENT_STREAM_DATA,
                      .now_us = self->env->now_us(self->env),
                      .stream = stream,
                      .msg = &msg,
                      .payload = p->payload,
                      .text = ""};
    stream->on->data(stream, &event);
  }
  leave_hall(e);
}

hv_status hv_allreduce_begin(hv_allreduce_hall *hall, const hv_round *round, hv_allreduce_done *done, void *arg, hv_allreduce **out,
                             hv_error *err) {
  hv_status status = hv_round_check(round, err);
  if (status != HV_OK)
    return status;
  if (find_round(hall, round->id))
    return hv_fail(err, HV_EXISTS, "a round of this id is under way");
  hv_allreduce *self = hv_mem_zalloc(hall->env->mem, sizeof *self);
  if (!self)
    return hv_fail(err, HV_NOMEM, "there is no memory for a round");
  *self = (hv_allreduce){.hall = hall, .env = hall->env, .round = *round, .done = done, .arg = arg};
  self->look = (hv_timer){.fire = look, .owner = self};
  status = make_parts(self);
  if (status != HV_OK) {
    release(self);
    return hv_fail(err, status, "there is no memory for a round: make chunks smaller");
  }
  self->next = hall->rounds;
  self->link = &hall->rounds;
  if (self->next)
    self->next->link = &self->next;
  hall->rounds = self;

  if (self->reducer) {
    hv_reducer_start(self->reducer);
    for (early *e = hall->early, *following; e; e = following) {
      following = e->next;
      if (memcmp(e->share.round, round->id, HV_ROUND_ID_SIZE) == 0)
        admit_early(self, e);
    }
  }
  for (size_t i = 0; i < round->n_members; i++)
    if (self->shares[i])
      hv_share_start(self->shares[i]);
  something_changed(self); /* a run without values, an auxiliary without a span */
  *out = self;
  return HV_OK;
}

void hv_allreduce_cancel(hv_allreduce *self) {
  if (self->told)
    return;
  self->status = HV_CANCELLED;
  break_off(self);
  something_changed(self);
}

void hv_allreduce_free(hv_allreduce *self) {
  if (!self)
    return;
  self->given_up = 1;
  something_changed(self);
}

int hv_allreduce_averaged(const hv_allreduce *self, uint32_t chunk) {
  const hv_round *round = &self->round;
  for (size_t i = 0; i < round->n_members; i++) {
    const hv_round_member *m = &round->members[i];
    if (chunk < m->first || chunk - m->first >= m->count)
      continue;
    if (i == round->me)
      return hv_reducer_status(self->reducer) == HV_OK;
    return self->shares[i] && hv_share_averaged(self->shares[i], chunk - m->first);
  }
  return 0;
}

uint32_t hv_allreduce_counted(const hv_allreduce *self, size_t member) {
  return self->reducer ? hv_reducer_counted(self->reducer, member) : 0;
}
