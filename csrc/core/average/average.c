#include "core/average/average_inner.h"

#include "core/peers/standing.h"
#include "core/round/gauge.h"
#include "core/round/norm.h"
#include "kern/reduce.h"

#include <stdio.h>
#include <string.h>

enum {
  PAUSE_MS = 50,
  PAUSE_MAX_MS = 2000,
  SETTLE_US = 500,
  SETTLE_MAX_US = 20000,
  ROUND_LEAST_MS = 1000, /* a round is not begun for less, */
  SEEK_LEAST_MS = 500    /* nor a group looked for */
};

typedef hv_average_work work;

/* A step's stages, and where it may go from each. */
static const uint16_t moves[HV_AVERAGE_STAGES] = {
#define TO(stage) (1u << HV_AVERAGE_##stage)
    [HV_AVERAGE_SEEKING] = TO(PAUSING) | TO(READY) | TO(OVER),
    [HV_AVERAGE_PAUSING] = TO(SEEKING) | TO(OVER),
    [HV_AVERAGE_READY] = TO(KNOCKING) | TO(OVER),
    [HV_AVERAGE_KNOCKING] = TO(MEASURING) | TO(REDUCING) | TO(OVER),
    [HV_AVERAGE_MEASURING] = TO(REDUCING) | TO(OVER),
    [HV_AVERAGE_REDUCING] = TO(SETTLING) | TO(OVER),
    [HV_AVERAGE_SETTLING] = TO(BLENDING) | TO(OVER),
    [HV_AVERAGE_BLENDING] = TO(OVER),
#undef TO
};

static hv_env *env_of(const work *w) {
  return w->average->all->env;
}

static uint64_t average_now(const work *w) {
  return env_of(w)->now_us(env_of(w));
}

/* Where the time of a stage is counted. */
static uint64_t *spent(work *w) {
  switch (w->stage) {
  case HV_AVERAGE_SEEKING:
  case HV_AVERAGE_PAUSING:
    return &w->outcome.matching_us;
  case HV_AVERAGE_READY:
  case HV_AVERAGE_KNOCKING:
    return &w->outcome.waiting_us;
  default:
    return &w->outcome.reducing_us;
  }
}

static void average_move(work *w, hv_average_stage to) {
  uint64_t now = average_now(w);
  if (!(moves[w->stage] >> to & 1))
    hv_env_log(env_of(w), HV_LOG_ERROR, "average", "move", "a step went from stage %d to %d", (int)w->stage, (int)to);
  *spent(w) += now - w->since_us;
  w->since_us = now;
  w->stage = to;
}

/* ---- the end of a step ---- */

static void let_tensors_go(work *w) {
  const hv_average_gate *gate = &w->average->config.gate;
  if (w->at_gate && gate->leave)
    gate->leave(gate->arg);
  w->at_gate = 0;
}

static void average_release(hv_average *self);

static void drop_work(work *w) {
  hv_payload_release(w->outcome.kept);
  hv_mem_free((void *)w->outcome.members);
  hv_mem_free(w->members);
  hv_mem_free(w->shares);
  hv_mem_free(w->missed);
  hv_mem_free(w->group);
  hv_mem_free(w);
}

/* Takes everything of its averager back from a step. */
static void detach(work *w) {
  hv_average *a = w->average;
  env_of(w)->timer_clear(env_of(w), &w->timer);
  env_of(w)->timer_clear(env_of(w), &w->settle);
  let_tensors_go(w);
  hv_run_fini(&a->staging);
  hv_mem_free(a->copies);
  a->copies = NULL;
  a->work = NULL;
}

/* The members as the program is told of them. */
static void tell_members(work *w) {
  const hv_match_group *group = w->group;
  hv_average_member *members = w->members;
  if (!members)
    return;
  for (size_t i = 0; i < group->n_members; i++)
    members[i] = (hv_average_member){.id = group->members[i].at.id,
                                     .me = i == group->me,
                                     .client = group->members[i].client,
                                     .auxiliary = group->members[i].auxiliary,
                                     .share = w->shares ? w->shares[i] : 0,
                                     .gather = group->gathers[i]};
  w->outcome.members = members;
  w->members = NULL;
  w->outcome.n_members = group->n_members;
  memcpy(w->outcome.round, group->id, sizeof w->outcome.round);
}

static void tell_departure(work *w) {
  const hv_match_group *group = w->group;
  hv_allreduce_depart(w->average->all->rounds, group->id, group->members, group->n_members, group->me);
}

/* Within done the program may start the next step or close the averager: neither is touched after it. */
static void average_over(work *w, hv_status status, const char *text) {
  hv_average *a = w->average, *closing = a->closing ? a : NULL;
  hv_averages *all = a->all;
  hv_average_step *step = w->step;
  int is_early = w->group && w->stage < HV_AVERAGE_REDUCING && w->group->n_members > 1;
  if (is_early)
    tell_departure(w);
  if (is_early || (step->repeats && w->group && status != HV_OK))
    hv_match_forget_begun(a->match, w->seek.epoch);
  average_move(w, HV_AVERAGE_OVER);
  w->outcome.n_chunks = a->run.n_chunks;
  tell_members(w);
  detach(w);
  step->work = NULL;
  step->done(step, status, text, &w->outcome);
  drop_work(w);
  if (closing)
    average_release(closing);
  if (all->stopping && all->stopped && !hv_averages_busy(all))
    all->stopped(all->arg);
}

/* It is to end: at once, or as soon as what runs lets it. The first reason counts. */
static void average_end(work *w, hv_status status, const char *text) {
  int is_first = w->why.status == HV_OK && hv_fail(&w->why, status, "%s", text) != HV_OK;
  switch (w->stage) {
  case HV_AVERAGE_SEEKING:
    if (w->seek.match)
      hv_match_seek_cancel(&w->seek); /* its done ends the step */
    else
      average_over(w, w->why.status, w->why.text);
    return;
  case HV_AVERAGE_REDUCING:
    if (is_first)
      tell_departure(w); /* also those to whom it has no stream yet */
    hv_allreduce_cancel(w->round);
    return;
  case HV_AVERAGE_SETTLING: /* it has what it wanted */
    w->settled_us = 0;
    env_of(w)->timer_set(env_of(w), &w->settle, 0);
    return;
  case HV_AVERAGE_MEASURING:
  case HV_AVERAGE_BLENDING:
    return; /* on the pool, and soon over */
  default:
    average_over(w, w->why.status, w->why.text);
  }
}

/* ---- blending ---- */

static void run_blend(hv_job *job) {
  work *w = job->owner;
  hv_average *a = w->average;
  const float *from = a->copies;
  w->ran = HV_OK;
  for (size_t i = 0; i < a->config.n_tensors && w->ran == HV_OK; i++) {
    const hv_run_part *part = &a->config.tensors[i].part;
    w->ran = hv_reduce_blend(a->kern, part->dtype, part->data, from, a->config.alpha, part->n_values);
    from += part->n_values;
  }
}

static void blended(hv_job *job, const hv_event *event) {
  work *w = job->owner;
  hv_status status = event->status != HV_OK ? event->status : w->ran;
  average_over(w, status, status == HV_OK ? "" : "the round failed here: the averages could not be written into the tensors");
}

/* ---- the all-reduce ---- */

static const char *sentence_for(hv_status status) {
  switch (status) {
  case HV_CLOSED:
    return "the round failed: too few members were left, the others continued without this peer, or no member's values could be "
           "counted";
  case HV_TIMEOUT:
    return "the round failed: it took longer than allreduce_timeout or the step's timeout; make them longer, or send fewer bytes";
  case HV_NOMEM:
    return "the round failed: no memory; make part_size_bytes smaller, or raise the memory limit";
  case HV_IO:
    return "the round failed here: the device that holds the tensors reported an error";
  default:
    return "the round failed: some averages did not arrive";
  }
}

/* The averages are here and nobody needs them from here any more. */
static void settled(work *w) {
  hv_average *a = w->average;
  w->outcome.view = hv_allreduce_view(w->round);
  w->outcome.stamp = hv_allreduce_stamp(w->round);
  w->outcome.kept = hv_allreduce_kept(w->round);
  hv_allreduce_free(w->round);
  w->round = NULL;
  if (!a->copies || w->step->listens) {
    average_over(w, HV_OK, "");
    return;
  }
  average_move(w, HV_AVERAGE_BLENDING);
  w->job = (hv_job){.run = run_blend, .done = blended, .owner = w};
  env_of(w)->work(env_of(w), &w->job);
}

/* Sets the end of settling. A member that lacks averages has three stall_ms, counted from the latest view or coordinator, and
 * longer while another view is agreed on, because it may lose another owner or be silent itself. */
static void settle_by(work *w) {
  w->settled_view = hv_allreduce_view(w->round);
  w->settled_chair = hv_allreduce_coordinator(w->round);
  uint64_t stall_us = 1000ull * w->average->config.stall_ms, last_us = w->since_us + HV_ROUND_STALLS * stall_us;
  w->settled_us = average_now(w) + 3 * stall_us;
  if (w->settled_us > last_us)
    w->settled_us = last_us;
  if (w->settled_us > w->end_us)
    w->settled_us = w->end_us;
}

static int goes_on_anew(const work *w) {
  return hv_allreduce_troubled(w->round) || hv_allreduce_view(w->round) != w->settled_view ||
         hv_allreduce_coordinator(w->round) != w->settled_chair;
}

static void look_whether_settled(hv_timer *timer, const hv_event *event) {
  work *w = timer->owner;
  if (w->why.status == HV_OK && goes_on_anew(w))
    settle_by(w);
  if (hv_allreduce_finished(w->round) || event->now_us >= w->settled_us) {
    settled(w);
    return;
  }
  w->settle_us = w->settle_us * 3 / 2 < SETTLE_MAX_US ? w->settle_us * 3 / 2 : SETTLE_MAX_US;
  env_of(w)->timer_set(env_of(w), timer, w->settle_us);
}

/* The members whose values are in this peer's averages are its partners. */
static void learn_partners(const work *w) {
  for (size_t i = 0; i < w->group->n_members; i++)
    if (i != w->group->me && w->shares[i] > 0)
      hv_standing_averaged(w->average->all->matches->peers, &w->group->members[i].at.id);
}

/* Takes over the link rate that the round measured; the host of the next one gets it. */
static void learn_line(hv_average *a, const hv_allreduce *round) {
  a->link_rate = hv_gauge_blend(a->link_rate, hv_allreduce_link(round));
  hv_match_set_bandwidth(a->match, a->link_rate);
  hv_flow_learn(&a->past, hv_allreduce_speed(round));
}

/* The last one's time; one that was slow for once counts for twice the one before. */
static void learn_time(work *w) {
  uint64_t us = average_now(w) - w->since_us, *usual_us = &w->average->usual_us;
  *usual_us = *usual_us && us > 2 * *usual_us ? 2 * *usual_us : us;
}

static void round_done(void *arg, hv_allreduce *round, hv_status status) {
  work *w = arg;
  average_count(w, round);
  learn_line(w->average, round);
  if (status == HV_OK) { /* also when its end was asked for: it has what it wanted */
    learn_time(w);
    learn_partners(w);
    average_move(w, HV_AVERAGE_SETTLING);
    w->settle_us = SETTLE_US;
    settle_by(w);
    if (w->why.status != HV_OK)
      w->settled_us = 0;
    env_of(w)->timer_set(env_of(w), &w->settle, 0);
    return;
  }
  w->round = NULL;
  hv_allreduce_free(round);
  if (w->why.status != HV_OK)
    average_over(w, w->why.status, w->why.text);
  else
    average_over(w, status, sentence_for(status));
}

/* With an alpha other than 1 averages go into a copy first, float32 whatever the tensors are. Those of a step that listens stay
 * there, for members that lack some. */
static hv_status make_staging(const work *w, hv_error *err) {
  hv_average *a = w->average;
  if ((a->config.alpha == 1 && !w->step->listens) || a->config.auxiliary)
    return HV_OK;
  size_t n = a->config.n_tensors;
  a->copies = hv_mem_aligned(a->all->env->mem, a->run.n_values * sizeof *a->copies);
  hv_run_part *parts = hv_mem_array(a->all->env->mem, n, sizeof *parts);
  hv_status status = a->copies && parts ? HV_OK
                                        : hv_fail(err, HV_NOMEM,
                                                  "no memory for averages beside the tensors, which averaging_alpha other than 1 "
                                                  "needs, and a peer that listens to a round; raise the memory limit");
  float *at = a->copies;
  for (size_t i = 0; i < n && status == HV_OK; i++) {
    parts[i] = a->config.tensors[i].part;
    parts[i].dtype = HV_DTYPE_FLOAT32;
    parts[i].device = NULL;
    parts[i].data = at;
    at += parts[i].n_values;
  }
  if (status == HV_OK)
    status = hv_run_init(&a->staging, a->all->env->mem, parts, n, a->run.chunk_values, err);
  hv_mem_free(parts);
  return status;
}

static uint64_t left_ms(const work *w) {
  uint64_t now = average_now(w);
  return w->end_us == UINT64_MAX ? UINT64_MAX : w->end_us > now ? (w->end_us - now) / 1000 : 0;
}

/* 0: as long as it takes, within the all-reduce's own limit. */
static uint32_t round_time(const work *w) {
  uint64_t left = left_ms(w), most = w->average->config.round_ms;
  if (left == UINT64_MAX || (most && most < left))
    return (uint32_t)most;
  return left ? (uint32_t)left : 1;
}

static void round_released(void *arg) {
  hv_average *self = arg;
  self->n_rounds--;
  if (self->gone)
    average_drop(self);
}

/* Names a member once, of the last HV_AVERAGE_NAMED. */
static void weight_overstated(void *arg, const hv_peer_id *member, float stated) {
  hv_average *self = arg;
  char who[HV_PEER_SHORT_MAX];
  for (size_t i = 0; i < HV_AVERAGE_NAMED; i++)
    if (hv_peer_equal(&self->named[i], member))
      return;
  self->named[self->n_named++ % HV_AVERAGE_NAMED] = *member;
  hv_env_log(self->all->env, HV_LOG_WARN, "average", "overstated",
             "member %s states a weight of %g: it counts with %g, the most of this run, and the rest is lost",
             hv_peer_short(member, who), (double)stated, self->config.weight_max);
}

/* Values of the run's first `compared` tensors. */
static uint64_t compared_values(const hv_average *a) {
  uint64_t n = 0;
  for (size_t i = 0; i < a->config.compared && i < a->config.n_tensors; i++)
    n += a->config.tensors[i].part.n_values;
  return n;
}

static void reduce(work *w) {
  hv_average *a = w->average;
  atomic_store(&a->changed, 0);
  const hv_match_group *group = w->group;
  hv_error err = {0};
  hv_status status = make_staging(w, &err);
  hv_round round = {.members = group->members,
                    .n_members = group->n_members,
                    .me = group->me,
                    .leader = group->leader,
                    .in = &a->run,
                    .out = a->config.auxiliary ? NULL
                           : a->copies         ? &a->staging
                                               : &a->run,
                    .weight_max = (float)a->config.weight_max,
                    .norm_ratio = (float)a->config.norm_ratio,
                    .norm = w->norm,
                    .listens = w->step->listens,
                    .keep = w->step->keep,
                    .narrow = w->step->narrow,
                    .stall_ms = a->config.stall_ms,
                    .timeout_ms = round_time(w),
                    .formed_us = w->formed_us,
                    .speed = a->past.speed,
                    .compared = w->step->listens || a->config.auxiliary ? 0 : compared_values(a),
                    .changed = &a->changed,
                    .kern = a->kern,
                    .released = round_released,
                    .overstated = weight_overstated,
                    .arg = a};
  round.weight = hv_round_weight(&round, w->step->weight); /* this member overstates nothing */
  memcpy(round.id, group->id, sizeof round.id);
  if (status == HV_OK)
    status = hv_allreduce_begin(a->all->rounds, &round, round_done, w, &w->round, &err);
  if (status != HV_OK) {
    average_over(w, status, err.text);
    return;
  }
  a->n_rounds++;
  average_move(w, HV_AVERAGE_REDUCING);
}

static void run_measure(hv_job *job) {
  work *w = job->owner;
  w->ran = hv_norm_measure(&w->average->run, w->average->kern, &w->norm);
}

static void measured(hv_job *job, const hv_event *event) {
  work *w = job->owner;
  hv_status status = event->status != HV_OK ? event->status : w->ran;
  if (w->why.status != HV_OK)
    average_over(w, w->why.status, w->why.text);
  else if (status != HV_OK)
    average_over(w, status, sentence_for(status));
  else
    reduce(w);
}

/* The tensors are the round's. Their norm is stated before any of them is sent. */
static void inside(work *w) {
  const hv_average_config *config = &w->average->config;
  if (w->group->n_members == 1) {
    average_over(w, HV_OK, "");
  } else if (config->norm_ratio > 0 && !config->auxiliary && !w->step->listens) {
    average_move(w, HV_AVERAGE_MEASURING);
    w->job = (hv_job){.run = run_measure, .done = measured, .owner = w};
    env_of(w)->work(env_of(w), &w->job);
  } else {
    reduce(w);
  }
}

static void try_gate(work *w) {
  const hv_average_gate *gate = &w->average->config.gate;
  w->at_gate = 1;
  if (!gate->enter || gate->enter(gate->arg))
    inside(w);
}

static void go(work *w) {
  average_move(w, HV_AVERAGE_KNOCKING);
  if (w->step->listens)
    inside(w); /* it touches no tensor */
  else
    try_gate(w);
}

/* ---- the group ---- */

static void average_arm(work *w) {
  uint64_t now = average_now(w), due = w->end_us;
  if (w->stage == HV_AVERAGE_PAUSING && w->since_us + w->pause_ms * 1000 < due)
    due = w->since_us + w->pause_ms * 1000;
  if (due != UINT64_MAX)
    env_of(w)->timer_set(env_of(w), &w->timer, due > now ? due - now : 0);
}

/* Least time for a round: the usual one here, because a group is worth nothing without time for its round. */
static uint64_t round_least_ms(const work *w) {
  uint64_t usual_ms = w->average->usual_us / 1000;
  return usual_ms > ROUND_LEAST_MS ? usual_ms : ROUND_LEAST_MS;
}

/* For how long the next try may look for a group, if `left` is left of the step's time; 0: no try is worth beginning. The first one
 * has what the program said. */
static uint32_t seek_ms(const work *w, uint64_t left) {
  uint64_t needs = HV_MATCH_GRACE_MS + round_least_ms(w), most = left;
  if (w->outcome.tries) {
    most = left < needs + SEEK_LEAST_MS ? 0 : left - needs;
    most = most < left / 2 ? most : left / 2;
  }
  return most < w->step->wait_ms ? (uint32_t)most : w->step->wait_ms;
}

/* None yet: once more after a pause, if the step has time and leave for it. */
static void not_found(work *w, hv_status status, const char *text) {
  int again = w->step->allow_retries && (status == HV_TIMEOUT || (status == HV_EXISTS && !w->seek.further));
  if (again && w->outcome.tries > 1)
    w->pause_ms = w->pause_ms * 2 < PAUSE_MAX_MS ? w->pause_ms * 2 : PAUSE_MAX_MS;
  uint64_t left = left_ms(w);
  if (!again || left <= w->pause_ms || !seek_ms(w, left - w->pause_ms)) {
    average_over(w, status, text);
    return;
  }
  if (status == HV_EXISTS)
    w->attempt++; /* others have begun without this one: it looks for those who were late, too */
  average_move(w, HV_AVERAGE_PAUSING);
  average_arm(w);
}

/* Takes the memory for the outcome's members before the round, so that a lack of it cannot fail later. False: no memory. */
static int average_make_room(work *w) {
  hv_mem *mem = env_of(w)->mem;
  w->members = hv_mem_array(mem, w->group->n_members, sizeof *w->members);
  w->shares = hv_mem_array(mem, w->group->n_members, sizeof *w->shares);
  w->missed = hv_mem_array(mem, w->average->run.n_chunks / 2 + 1, sizeof *w->missed);
  return w->members && w->shares && w->missed;
}

static void found(hv_match_seek *seek, hv_status status, hv_match_group *group, const char *text) {
  work *w = seek->owner;
  w->group = group;
  if (w->why.status != HV_OK) {
    average_over(w, w->why.status, w->why.text);
  } else if (status != HV_OK) {
    not_found(w, status, text);
  } else if (!average_make_room(w)) {
    average_over(w, HV_NOMEM, "the round failed: no memory for the list of members; raise the memory limit");
  } else {
    average_move(w, HV_AVERAGE_READY);
    w->formed_us = average_now(w);
    if (w->triggered)
      go(w);
  }
}

static hv_span average_epoch(work *w) {
  hv_span epoch = w->step->epoch;
  int n = 0;
  if (epoch.size)
    memcpy(w->epoch, epoch.data, epoch.size);
  if (epoch.size && w->attempt)
    n = snprintf((char *)w->epoch + epoch.size, sizeof w->epoch - epoch.size, "/%u", w->attempt % 1000000);
  return hv_span_of(w->epoch, epoch.size + (size_t)n);
}

static void seek(work *w) {
  const hv_average_step *step = w->step;
  hv_error err = {0};
  uint32_t wait = seek_ms(w, left_ms(w));
  w->outcome.tries++;
  w->seek = (hv_match_seek){.done = found,
                            .owner = w,
                            .epoch = average_epoch(w),
                            .expected = (uint32_t)step->expected,
                            .wait_ms = wait ? wait : 1,
                            .gather = step->gather};
  hv_status status = hv_match_seek_start(w->average->match, &w->seek, &err);
  if (status != HV_OK) {
    w->why = err;
    env_of(w)->timer_set(env_of(w), &w->timer, 0);
  }
}

static void time_goes_by(hv_timer *timer, const hv_event *event) {
  work *w = timer->owner;
  if (w->why.status != HV_OK) {
    average_end(w, w->why.status, w->why.text);
  } else if (event->now_us >= w->end_us) {
    static const char *const late[HV_AVERAGE_STAGES] = {
        [HV_AVERAGE_SEEKING] = "no group was found within the step's timeout: make the timeout longer",
        [HV_AVERAGE_PAUSING] = "no group was found within the step's timeout: make the timeout longer",
        [HV_AVERAGE_READY] = "the step found a group, then timed out: the program did not call allow_allreduce(); call it sooner",
        [HV_AVERAGE_KNOCKING] =
            "the step found a group, then timed out: the program held the tensors (get_tensors); release them sooner",
        [HV_AVERAGE_MEASURING] = "the all-reduce took longer than the step's timeout: make the timeout longer, or send fewer bytes",
        [HV_AVERAGE_REDUCING] = "the all-reduce took longer than the step's timeout: make the timeout longer, or send fewer bytes",
        [HV_AVERAGE_SETTLING] = "the all-reduce took longer than the step's timeout: make the timeout longer, or send fewer bytes",
        [HV_AVERAGE_BLENDING] = "the all-reduce took longer than the step's timeout: make the timeout longer, or send fewer bytes",
    };
    average_end(w, HV_TIMEOUT, late[w->stage]);
  } else if (w->stage == HV_AVERAGE_PAUSING) {
    average_move(w, HV_AVERAGE_SEEKING);
    average_arm(w);
    seek(w);
  } else {
    average_arm(w);
  }
}

/* ---- what the program says ---- */

static hv_status check_step(const hv_average *self, const hv_average_step *step, hv_error *err) {
  if (self->all->stopping || self->closing)
    return hv_fail(err, HV_CLOSED, "the averager was shut down");
  if (self->work)
    return hv_fail(err, HV_BUSY,
                   "cannot start a step: another step of this averager is under way; wait for it, or cancel it first");
  if (step->listens && (step->weight != 0 || self->config.auxiliary))
    return hv_fail(err, HV_INVALID, "a step that listens has the weight 0, and an auxiliary averager receives no averages");
  if (!(step->weight >= 0 && step->weight <= HV_CODEC_WEIGHT_MAX))
    return hv_fail(err, HV_INVALID, "the weight must be finite and 0 or more, not %g", (double)step->weight);
  if (step->epoch.size > HV_MATCH_EPOCH_MAX - 8)
    return hv_fail(err, HV_INVALID, "the epoch's name has %zu bytes, and the limit is %d", step->epoch.size,
                   HV_MATCH_EPOCH_MAX - 8);
  if (step->gather.size > HV_MATCH_GATHER_MAX)
    return hv_fail(err, HV_INVALID, "the data to gather has %zu bytes when packed, and the limit is %u: gather less",
                   step->gather.size, HV_MATCH_GATHER_MAX);
  if (step->wait_ms == 0 || step->wait_ms > HV_MATCH_WAIT_MAX_MS || step->timeout_ms == 0)
    return hv_fail(err, HV_INVALID,
                   "the time to find a group must be from 1 ms to one day, and the timeout of the step 1 ms or more");
  if (step->wait_ms > step->timeout_ms)
    return hv_fail(err, HV_INVALID,
                   "cannot start the step: its round is scheduled %u ms from now and its timeout is %u ms; make the timeout longer",
                   (unsigned)step->wait_ms, (unsigned)step->timeout_ms);
  if (step->expected > HV_ROUND_MEMBERS_MAX)
    return hv_fail(err, HV_INVALID, "a group has at most %d members", HV_ROUND_MEMBERS_MAX);
  return HV_OK;
}

hv_status hv_average_start(hv_average *self, hv_average_step *step, hv_error *err) {
  hv_status status = check_step(self, step, err);
  if (status != HV_OK)
    return status;
  work *w = hv_mem_zalloc(self->all->env->mem, sizeof *w);
  if (!w)
    return hv_fail(err, HV_NOMEM, "cannot start a step: no memory; raise the memory limit");
  *w = (work){.average = self, .step = step, .pause_ms = PAUSE_MS, .triggered = !step->require_trigger};
  self->work = step->work = w;
  w->since_us = average_now(w);
  w->end_us = step->timeout_ms == UINT32_MAX ? UINT64_MAX : w->since_us + (uint64_t)step->timeout_ms * 1000;
  w->timer = (hv_timer){.fire = time_goes_by, .owner = w};
  w->settle = (hv_timer){.fire = look_whether_settled, .owner = w};
  average_arm(w);
  seek(w);
  return HV_OK;
}

void hv_average_trigger(hv_average *self, hv_average_step *step) {
  work *w = self->work && self->work->step == step ? self->work : NULL;
  if (!w || w->triggered)
    return;
  w->triggered = 1;
  if (w->stage == HV_AVERAGE_READY)
    go(w);
}

int hv_average_give_up(hv_average *self, hv_average_step *step) {
  work *w = self->work && self->work->step == step ? self->work : NULL;
  if (!w || (w->stage != HV_AVERAGE_SEEKING && w->stage != HV_AVERAGE_PAUSING))
    return 0;
  average_end(w, HV_CANCELLED, "nobody is left who could come, so the search for a group was given up");
  return 1;
}

hv_status hv_average_set_weight(hv_average *self, hv_average_step *step, float weight) {
  work *w = self->work && self->work->step == step ? self->work : NULL;
  if (!(weight >= 0 && weight <= HV_CODEC_WEIGHT_MAX))
    return HV_INVALID;
  if (!w || w->stage >= HV_AVERAGE_REDUCING)
    return HV_STATE;
  step->weight = weight;
  return HV_OK;
}

void hv_average_reached(hv_average *self, uint64_t epoch) {
  hv_match_reached(self->match, epoch);
}

int hv_average_awaits(const hv_average *self, uint64_t epoch) {
  return hv_match_awaits(self->match, epoch);
}

void hv_average_comes(hv_average *self, uint64_t epoch) {
  hv_match_comes(self->match, epoch);
}

void hv_average_step_aside(hv_average *self) {
  hv_match_step_aside(self->match);
}

void hv_average_cancel(hv_average *self, hv_average_step *step) {
  if (self->work && self->work->step == step)
    average_end(self->work, HV_CANCELLED, "cancelled");
}

void hv_average_knock(hv_average *self) {
  if (self->work && self->work->stage == HV_AVERAGE_KNOCKING)
    try_gate(self->work);
}

hv_status hv_average_set_setup(hv_average *self, hv_span setup, hv_error *err) {
  return hv_match_set_setup(self->match, setup, err);
}

hv_span hv_average_bits(const hv_average *self) {
  return hv_match_bits(self->match);
}

hv_status hv_average_set_bits(hv_average *self, hv_span bits, hv_error *err) {
  return hv_match_set_bits(self->match, bits, err);
}

/* ---- life ---- */

/* A step has that group, or looks for one: its host may have begun it. Where no averager was ever made rounds are begun by hand. */
static int expects(void *averages, const uint8_t round[HV_ROUND_ID_SIZE]) {
  const hv_averages *all = averages;
  if (!all->made)
    return 1;
  for (const hv_average *a = all->first; a; a = a->next)
    if (a->work && (!a->work->group || memcmp(a->work->group->id, round, HV_ROUND_ID_SIZE) == 0))
      return 1;
  return 0;
}

static int has_member(void *averages, const uint8_t round[HV_ROUND_ID_SIZE], const hv_peer_id *peer) {
  for (const hv_average *a = ((const hv_averages *)averages)->first; a; a = a->next) {
    const hv_match_group *group = a->work ? a->work->group : NULL;
    int is_it = group && memcmp(group->id, round, HV_ROUND_ID_SIZE) == 0;
    for (size_t i = 0; is_it && i < group->n_members; i++)
      if (hv_peer_equal(&group->members[i].at.id, peer))
        return 1;
  }
  return 0;
}

void hv_averages_init(hv_averages *all, hv_env *env, hv_match_registry *matches, hv_allreduce_registry *rounds) {
  *all = (hv_averages){.env = env, .matches = matches, .rounds = rounds};
  rounds->expects = expects;
  rounds->has_member = has_member;
  rounds->averages = all;
}

void average_drop(hv_average *self) {
  self->gone = 1;
  if (self->n_rounds)
    return;
  if (self->link) {
    *self->link = self->next;
    if (self->next)
      self->next->link = self->link;
  }
  hv_run_fini(&self->staging);
  hv_run_fini(&self->run);
  hv_mem_free(self->copies);
  hv_mem_free((void *)self->config.tensors);
  hv_mem_free(self);
}

static void average_release(hv_average *self) {
  void (*closed)(void *arg) = self->closed;
  void *arg = self->closed_arg;
  hv_match_free(self->match);
  average_drop(self);
  if (closed)
    closed(arg);
}

static void nobody_asks(hv_match_seek *seek, hv_status status, hv_match_group *group, const char *text) {
  (void)seek, (void)status, (void)text;
  hv_mem_free(group);
}

void hv_averages_fini(hv_averages *all) {
  while (all->first) {
    hv_average *a = all->first;
    work *w = a->work;
    if (w) {
      w->seek.done = nobody_asks;
      hv_match_seek_cancel(&w->seek);
      detach(w);
      drop_work(w);
    }
    average_drop(a);
  }
}

void hv_averages_open_gates(hv_averages *all) {
  for (hv_average *a = all->first; a; a = a->next) {
    if (a->work)
      let_tensors_go(a->work);
    a->config.gate = (hv_average_gate){0};
  }
}

int hv_averages_busy(const hv_averages *all) {
  const hv_average *a = all->first;
  while (a && !a->work)
    a = a->next;
  return a != NULL;
}

void hv_averages_stop(hv_averages *all) {
  all->stopping = 1;
  for (hv_average *a = all->first, *next; a; a = next) {
    next = a->next;
    if (a->work)
      average_end(a->work, HV_CANCELLED, "the node was shut down");
  }
}

void hv_average_close(hv_average *self, void (*closed)(void *arg), void *arg) {
  self->closing = 1;
  self->closed = closed;
  self->closed_arg = arg;
  if (self->work)
    average_end(self->work, HV_CANCELLED, "the averager was shut down");
  else
    average_release(self);
}
