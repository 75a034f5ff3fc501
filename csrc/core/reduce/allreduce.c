#include "core/reduce/allreduce_inner.h"

#include "core/round/gauge.h"
#include "core/util/fold.h"

#include <string.h>

static void allreduce_release(hv_allreduce *self);

/* ---- the registry ---- */

void hv_allreduce_registry_init(hv_allreduce_registry *registry, hv_env *env) {
  *registry = (hv_allreduce_registry){.env = env};
  registry->sweep = (hv_timer){.fire = allreduce_early_sweep, .owner = registry};
}

void hv_allreduce_registry_fini(hv_allreduce_registry *registry) {
  registry->env->timer_clear(registry->env, &registry->sweep);
  allreduce_early_fini(registry);
  while (registry->rounds)
    allreduce_release(registry->rounds);
}

/* Gives a stream to whom it is for, if it is who it says, a member of that round and view. */
static void admit(hv_allreduce *self, const hv_msg *first, hv_stream *stream) {
  const hv_round *round = &self->round;
  uint32_t member = first->kind == HV_MSG_SHARE ? first->u.share.member : first->u.attend.member;
  if (member >= round->n_members || member == round->me || !hv_peer_equal(&stream->peer, &round->members[member].at.id))
    return;
  if (first->kind == HV_MSG_ATTEND && self->council)
    hv_council_opened(self->council, &first->u.attend, stream);
  if (first->kind == HV_MSG_SHARE && self->council)
    hv_council_seen(self->council, member);
  if (first->kind == HV_MSG_SHARE && first->u.share.view == self->view && self->present && !self->stopping &&
      self->present->reducer)
    hv_reducer_opened(self->present->reducer, &first->u.share, stream);
  if (first->kind == HV_MSG_SHARE && stream->on && self->pace.flow.each)
    self->env->stream_pace(self->env, stream, self->pace.flow.each);
}

void hv_allreduce_opened(hv_allreduce_registry *registry, const hv_event *event) {
  hv_allreduce *self = allreduce_find(registry, allreduce_round_of(event->msg));
  if (self && !allreduce_is_early(self, event->msg))
    admit(self, event->msg, event->stream);
  else
    allreduce_early_opened(registry, event);
}

void hv_allreduce_cut(hv_allreduce_registry *registry, const hv_peer_id *peer) {
  for (hv_allreduce *self = registry->rounds; self; self = self->next)
    for (size_t i = 0; self->council && i < self->round.n_members; i++)
      if (hv_peer_equal(&self->round.members[i].at.id, peer))
        hv_council_cut(self->council, i);
}

/* ---- what a view does ---- */

static int every_part(const hv_allreduce *self, const turn *t, int (*reducer_is)(const hv_reducer *),
                      int (*share_is)(const hv_share *)) {
  if (t->reducer && !reducer_is(t->reducer))
    return 0;
  for (size_t i = 0; i < self->round.n_members; i++)
    if (t->shares[i] && !share_is(t->shares[i]))
      return 0;
  return 1;
}

static int is_done(const hv_allreduce *self, const turn *t) {
  return every_part(self, t, hv_reducer_done, hv_share_done);
}

static int is_over(const hv_allreduce *self, const turn *t) {
  return every_part(self, t, hv_reducer_over, hv_share_over);
}

static void free_turn(const hv_allreduce *self, turn *t) {
  if (!t)
    return;
  for (size_t i = 0; t->shares && i < self->round.n_members; i++)
    hv_share_free(t->shares[i]);
  hv_mem_free(t->shares);
  hv_reducer_free(t->reducer);
  hv_view_free(t->view);
  hv_mem_free(t);
}

static void allreduce_break_off(hv_allreduce *self) {
  turn *t = self->present;
  if (!t)
    return;
  if (t->reducer && !hv_reducer_over(t->reducer))
    hv_reducer_cancel(t->reducer);
  for (size_t i = 0; i < self->round.n_members; i++)
    if (t->shares[i] && !hv_share_over(t->shares[i]))
      hv_share_cancel(t->shares[i]);
}

static void something_changed(void *arg) {
  hv_allreduce *self = arg;
  self->env->timer_set(self->env, &self->look, 0);
}

/* Takes the view in any case. */
static turn *new_turn(hv_allreduce *self, hv_view *view) {
  const hv_round *round = &self->round;
  hv_env *env = self->env;
  turn *t = hv_mem_zalloc(env->mem, sizeof *t);
  if (!t) {
    hv_view_free(view);
    return NULL;
  }
  t->view = view;
  t->shares = hv_mem_array(env->mem, round->n_members, sizeof *t->shares);
  hv_status status = t->shares ? HV_OK : HV_NOMEM;
  if (status == HV_OK && view->count[round->me])
    status = hv_reducer_new(env, round, view, &self->hold, self->kept, &self->pace, something_changed, self, &t->reducer);
  for (size_t i = 0; status == HV_OK && i < round->n_members && !round->members[round->me].auxiliary; i++)
    if (i != round->me && view->count[i])
      status = hv_share_new(env, round, view, &self->hold, self->kept, &self->pace, i, something_changed, self, &t->shares[i]);
  if (status == HV_OK)
    return t;
  free_turn(self, t);
  return NULL;
}

static void start_turn(hv_allreduce *self, turn *t) {
  self->present = t;
  self->view = t->view->number;
  for (uint32_t i = 0; i < t->view->n_work; i++)
    if (t->view->sources[i] == HV_VIEW_REDUCE) /* an auxiliary may have averaged it before, for members that were lost */
      hv_kept_put(self->kept, t->view->chunks[i], NULL);
  if (self->view > 0)
    self->pace.flow.each = 0; /* little is left, and not alike for all */
  self->suspects = self->silent = self->liars = (hv_members){{0}};
  if (t->reducer)
    hv_reducer_start(t->reducer);
  allreduce_early_admit(self, admit);
  for (size_t i = 0; i < self->round.n_members; i++)
    if (t->shares[i])
      hv_share_start(t->shares[i]);
  allreduce_lose_the_gone(self);
  something_changed(self); /* a run without values, an auxiliary without a span */
}

/* ---- the end ---- */

static void allreduce_release(hv_allreduce *self) {
  self->env->timer_clear(self->env, &self->look);
  self->env->timer_clear(self->env, &self->sentry);
  self->env->timer_clear(self->env, &self->deadline);
  if (self->link) {
    *self->link = self->next;
    if (self->next)
      self->next->link = self->link;
  }
  hv_council_free(self->council);
  free_turn(self, self->present);
  for (turn *t; (t = self->past);) {
    self->past = t->next;
    free_turn(self, t);
  }
  hv_hold_fini(&self->hold);
  hv_kept_free(self->kept);
  hv_mem_free(self->members);
  if (self->begun && self->round.released)
    self->round.released(self->round.arg);
  hv_mem_free(self);
}

/* It ends with this, as soon as nothing touches the buffers any more. */
static void allreduce_finish(hv_allreduce *self, hv_status status) {
  if (self->reported || self->status != HV_OK)
    return;
  self->status = status;
  self->stopping = 0;
  allreduce_break_off(self);
  something_changed(self);
}

static void allreduce_report(hv_allreduce *self) {
  self->reported = 1;
  self->env->timer_clear(self->env, &self->deadline);
  if (self->status == HV_OK) {
    if (self->council)
      hv_council_done(self->council);
  } else if (self->council) {
    hv_council_leave(self->council);
  }
  self->done(self->arg, self, self->status);
}

/* ---- what the council says ---- */

static void stop(void *arg) {
  hv_allreduce *self = arg;
  if (self->status != HV_OK && !self->reported)
    return; /* it ends: a member that asks is told so as soon as nothing uses the buffers any more */
  self->stopping = 1;
  allreduce_break_off(self);
  something_changed(self);
}

static void allreduce_enter_view(void *arg, hv_view *view) {
  hv_allreduce *self = arg;
  if (self->status != HV_OK && !self->reported) {
    hv_view_free(view);
    return;
  }
  turn *t = new_turn(self, view);
  if (t)
    start_turn(self, t);
  else
    allreduce_finish(self, HV_NOMEM);
}

static void out(void *arg, hv_status status, const char *text) {
  hv_allreduce *self = arg;
  if (!self->reported)
    hv_env_log(self->env, HV_LOG_WARN, "allreduce", "out", "the round ended early at this member, its step retries or fails: %s",
               text);
  allreduce_finish(self, status);
}

/* ---- how far it is ---- */

static void log_loss(hv_allreduce *self, size_t member, hv_status status) {
  char who[HV_PEER_SHORT_MAX];
  if (!hv_members_has(&self->suspects, member))
    hv_env_log(self->env, HV_LOG_WARN, "allreduce", "lost",
               "no chunks come from member %s in view %u, reporting it to the coordinator: %s",
               hv_peer_short(&self->round.members[member].at.id, who), self->view, hv_status_text(status));
}

/* Tells the council whom this member waits for in vain; 1: somebody. */
static int has_trouble(hv_allreduce *self) {
  const turn *t = self->present;
  hv_members suspects = self->suspects, silent = {{0}}, liars = {{0}}, stopped = {{0}};
  int trouble = 0;
  if (t->reducer && hv_reducer_status(t->reducer) != HV_OK) {
    trouble = 1;
    size_t lost = hv_reducer_lost(t->reducer);
    if (lost < HV_ROUND_MEMBERS_MAX) {
      log_loss(self, lost, HV_CLOSED);
      hv_members_put(&suspects, lost);
      if (hv_reducer_lied(t->reducer))
        hv_members_put(&liars, lost);
    } else {
      allreduce_finish(self, hv_reducer_status(t->reducer));
    }
  }
  for (size_t i = 0; i < self->round.n_members; i++) {
    hv_status status = t->shares[i] ? hv_share_status(t->shares[i]) : HV_OK;
    if (status == HV_OK)
      continue;
    trouble = 1;
    if (status == HV_TIMEOUT)
      hv_members_put(&silent, i);
    if (hv_share_lied(t->shares[i]))
      hv_members_put(&liars, i);
    if (hv_share_stopped(t->shares[i]))
      hv_members_put(&stopped, i);
    if (!hv_members_has(&suspects, i))
      log_loss(self, i, status);
    hv_members_put(&suspects, i);
    if (status == HV_NOMEM || status == HV_IO) /* it is this member that cannot: its memory, or the device that its values lie on */
      allreduce_finish(self, status);
  }
  for (size_t i = 0; i < self->round.n_members && hv_members_count(&silent); i++)
    if ((t->shares[i] && hv_share_quiet(t->shares[i])) ||
        (t->reducer && hv_reducer_quiet(t->reducer, i))) /* members that stopped together are asked together */
      hv_members_put(&suspects, i);
  if (trouble && self->status == HV_OK &&
      (!hv_members_equal(&suspects, &self->suspects) || !hv_members_equal(&silent, &self->silent) ||
       !hv_members_equal(&liars, &self->liars))) {
    self->suspects = suspects;
    self->silent = silent;
    self->liars = liars;
    hv_council_trouble(self->council, &suspects, &silent, &liars, &stopped);
  }
  return trouble;
}

static void drop_past(hv_allreduce *self) {
  for (turn **link = &self->past, *t; (t = *link);) {
    if (!is_over(self, t)) {
      link = &t->next;
      continue;
    }
    *link = t->next;
    free_turn(self, t);
  }
}

/* All that the present view did has ended: what is held here is held for good. */
static void report(hv_allreduce *self) {
  turn *t = self->present;
  self->stopping = 0;
  self->present = NULL;
  if (t) {
    t->next = self->past;
    self->past = t;
  }
  drop_past(self);
  hv_council_report(self->council);
}

static int has_everything(const hv_allreduce *self) {
  return self->round.members[self->round.me].auxiliary || self->hold.n_held == self->hold.n_chunks;
}

/* It has told its outcome and was given up. */
static void linger(hv_allreduce *self) {
  if ((!self->present || is_over(self, self->present)) && !self->past && (!self->council || hv_council_over(self->council)))
    allreduce_release(self);
}

static void allreduce_look(hv_timer *timer, const hv_event *event) {
  hv_allreduce *self = timer->owner;
  (void)event;
  drop_past(self);
  if (self->given_up) {
    linger(self);
    return;
  }
  if (self->stopping && (!self->present || is_done(self, self->present))) {
    report(self);
    return;
  }
  if (self->reported || self->stopping) {
    if (self->reported && self->council && self->present && !self->stopping)
      has_trouble(self);
    return;
  }
  if (self->status == HV_OK && (!self->present || has_trouble(self)))
    return;
  if (self->present && !is_done(self, self->present))
    return;
  if (self->status == HV_OK && !has_everything(self))
    self->status = HV_CLOSED; /* nobody's values counted somewhere */
  allreduce_report(self);
}

static void allreduce_too_late(hv_timer *timer, const hv_event *event) {
  hv_allreduce *self = timer->owner;
  (void)event;
  if (!self->reported) {
    allreduce_finish(self, HV_TIMEOUT);
    return;
  }
  allreduce_break_off(self);
  if (self->council)
    hv_council_leave(self->council);
  if (self->lingers++ == 0)
    something_changed(self);
}

/* ---- the beginning ---- */

static uint64_t span_bytes(const hv_round *round, const hv_round_member *m) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < m->count; i++)
    bytes += hv_run_chunk_as(round->in, m->first + i, round->narrow).bytes;
  return bytes;
}

/* The bytes to come, which are as much as leaves, and how fast each connection sends: to owners this member's values, to
 * contributors the averages of its span. Where spans differ, lines do, and whoever is slow is waited for. */
static void choose_pace(hv_allreduce *self) {
  const hv_round *round = &self->round;
  const hv_round_member *me = &round->members[round->me];
  hv_flow *flow = &self->pace.flow;
  uint64_t least = UINT64_MAX, most = 0, mine = span_bytes(round, me);
  size_t n = 0;
  for (size_t i = 0; i < round->n_members; i++) {
    const hv_round_member *m = &round->members[i];
    uint64_t span = span_bytes(round, m), there = me->auxiliary || round->listens ? 0 : span, back = m->auxiliary ? 0 : mine;
    if (!m->client) {
      least = span < least ? span : least;
      most = span > most ? span : most;
    }
    if (i == round->me)
      continue;
    flow->total += there + back;
    n += (there > 0) + (back > 0);
  }
  flow->each = hv_flow_each(round->speed, flow->total, least, most, n);
}

static hv_status allreduce_make(hv_allreduce *self, turn **first) {
  static const hv_council_acts acts = {stop, allreduce_enter_view, out, something_changed};
  hv_round *round = &self->round;
  hv_view *view;
  self->members = hv_mem_array(self->env->mem, round->n_members, sizeof *self->members);
  if (!self->members)
    return HV_NOMEM;
  memcpy(self->members, round->members, round->n_members * sizeof *self->members);
  round->members = self->members;
  hv_status status = hv_hold_init(&self->hold, self->env->mem, round->in->n_chunks);
  if (status == HV_OK && round->keep && round->n_members > 1 &&
      hv_kept_new(self->env->mem, round->in->n_chunks, &self->kept) != HV_OK)
    hv_env_log(self->env, HV_LOG_WARN, "allreduce", "not_kept", "not keeping this round's averages: no memory");
  if (status == HV_OK)
    status = hv_view_first(self->env->mem, round, &view);
  if (status != HV_OK)
    return status;
  if (round->n_members > 1)
    status = hv_council_new(self->env, round, &self->hold, &self->pace, view, &acts, self, &self->council);
  if (status != HV_OK) {
    hv_view_free(view);
    return status;
  }
  *first = new_turn(self, view);
  return *first ? HV_OK : HV_NOMEM;
}

hv_status hv_allreduce_begin(hv_allreduce_registry *registry, const hv_round *round, hv_allreduce_done *done, void *arg,
                             hv_allreduce **out_, hv_error *err) {
  hv_status status = hv_round_check(round, err);
  if (status != HV_OK)
    return status;
  if (allreduce_find(registry, round->id))
    return hv_fail(err, HV_EXISTS, "cannot start a round: a round with this ID is already running");
  hv_allreduce *self = hv_mem_zalloc(registry->env->mem, sizeof *self);
  if (!self)
    return hv_fail(err, HV_NOMEM, "cannot start a round: no memory; raise the memory limit");
  *self = (hv_allreduce){.registry = registry, .env = registry->env, .round = *round, .done = done, .arg = arg};
  self->look = (hv_timer){.fire = allreduce_look, .owner = self};
  self->sentry = (hv_timer){.fire = allreduce_look_for_the_silent, .owner = self};
  self->deadline = (hv_timer){.fire = allreduce_too_late, .owner = self};
  turn *first;
  status = allreduce_make(self, &first);
  if (status != HV_OK) {
    allreduce_release(self);
    return hv_fail(err, status, "cannot start a round: no memory; make part_size_bytes smaller, or raise the memory limit");
  }
  choose_pace(self);
  self->next = registry->rounds;
  self->link = &registry->rounds;
  if (self->next)
    self->next->link = &self->next;
  registry->rounds = self;
  self->begun = 1;
  self->begun_us = self->env->now_us(self->env);

  uint64_t timeout_ms = round->timeout_ms ? round->timeout_ms : (uint64_t)round->stall_ms * HV_ROUND_STALLS;
  self->env->timer_set(self->env, &self->deadline, timeout_ms * 1000);
  allreduce_look_for_the_silent(&self->sentry, NULL);
  uint64_t waited = allreduce_early_waited_us(self);
  start_turn(self, first);
  if (self->council)
    hv_council_start(self->council, waited);
  allreduce_look_for_the_gone(self);
  *out_ = self;
  return HV_OK;
}

void hv_allreduce_cancel(hv_allreduce *self) {
  allreduce_finish(self, HV_CANCELLED);
}

void hv_allreduce_free(hv_allreduce *self) {
  if (!self)
    return;
  self->given_up = 1;
  hv_allreduce_leave(self->registry, self->round.id); /* it comes to no later view */
  self->stopping = 0;
  if (self->council && !hv_council_finished(self->council))
    hv_council_leave(self->council); /* else it ends by itself, once all have heard so */
  if (self->view > 0 || self->status != HV_OK)
    allreduce_break_off(self); /* what it forwards lies in buffers that are the caller's again */
  self->env->timer_set(self->env, &self->deadline, (uint64_t)self->round.stall_ms * 2000);
  something_changed(self);
}

int hv_allreduce_averaged(const hv_allreduce *self, uint32_t chunk) {
  return hv_hold_has(&self->hold, chunk);
}

int hv_allreduce_counts(const hv_allreduce *self, uint32_t chunk, size_t member) {
  return hv_hold_has(&self->hold, chunk) && hv_members_has(&self->hold.from[chunk], member);
}

uint64_t hv_allreduce_counted(const hv_allreduce *self, size_t member) {
  uint64_t values = 0;
  for (uint32_t chunk = 0; chunk < self->hold.n_chunks; chunk++)
    if (hv_allreduce_counts(self, chunk, member))
      values += hv_run_chunk_of(self->round.in, chunk).size;
  return values;
}

uint32_t hv_allreduce_view(const hv_allreduce *self) {
  return self->view;
}

uint64_t hv_allreduce_stamp(const hv_allreduce *self) {
  static const uint64_t salt[2] = {0x243f6a8885a308d3u, 0x13198a2e03707344u};
  uint64_t stamp = hv_fold_bytes(salt, 0, self->round.id, sizeof self->round.id);
  for (uint32_t chunk = 0; chunk < self->hold.n_chunks; chunk++) {
    stamp = hv_fold_bytes(salt, stamp, &self->hold.from[chunk], sizeof *self->hold.from);
    stamp = hv_fold_bytes(salt, stamp, &self->hold.made[chunk], sizeof *self->hold.made);
  }
  return stamp;
}

hv_payload *hv_allreduce_kept(hv_allreduce *self) {
  return hv_kept_take(self->kept);
}

int hv_allreduce_narrow(const hv_allreduce *self) {
  const turn *t = self->present;
  int narrow = t && t->reducer && hv_reducer_narrow(t->reducer);
  for (size_t i = 0; t && i < self->round.n_members; i++)
    narrow |= t->shares[i] && hv_share_narrow(t->shares[i]);
  return narrow;
}

uint64_t hv_allreduce_link(const hv_allreduce *self) {
  uint64_t rates[HV_ROUND_MEMBERS_MAX] = {0};
  for (size_t i = 0; self->present && i < self->round.n_members; i++)
    rates[i] = self->present->shares[i] ? hv_share_rate(self->present->shares[i]) : 0;
  uint64_t link = hv_gauge_link(rates, self->round.n_members);
  return hv_gauge_seen(link, hv_allreduce_speed(self), self->round.members[self->round.me].count);
}

uint64_t hv_allreduce_speed(const hv_allreduce *self) {
  return self->view == 0 ? hv_flow_rate(&self->pace.flow) : 0;
}

int hv_allreduce_finished(const hv_allreduce *self) {
  return self->round.n_members == 1 || (self->council && hv_council_finished(self->council));
}

int hv_allreduce_troubled(const hv_allreduce *self) {
  return self->council && hv_council_troubled(self->council);
}

size_t hv_allreduce_coordinator(const hv_allreduce *self) {
  return self->council ? hv_council_chair(self->council) : self->round.me;
}
