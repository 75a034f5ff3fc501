/* Programs that are upset: gradients overflow, actions raise errors that their users pass over, users restore checkpoints or ask
 * for the swarm's state, and take the late lane's outcome between two batches. Every other run begins its next batches before it
 * hears what becomes of the latest ones.
 *
 * Judged at any moment: what swarm_run_checks_safety judges. Once nothing upsets them any more, all train in one epoch, with one
 * replica and with each other, within CALM_MOST_US. */
#include "sim/swarm/swarm_run.h"

enum { UPSET_US = 60000000, CALM_MOST_US = 120000000, CALM_AVERAGES = 3 };

static void judges(room *r) {
  for (size_t i = 0; i < r->n; i++) {
    member *s = &r->seats[i];
    if (!lives(r, i))
      continue;
    const hv_epoch *e = pretender_look(&s->program);
    if (e->state != s->state || e->told != s->told)
      hv_sim_say(r->run->sim, "n%zu: %s in epoch %llu, mark %02x%02x%s", i, hv_epoch_state_name(e->state),
                 (unsigned long long)e->told, e->lineage->mark.bytes[0], e->lineage->mark.bytes[1],
                 e->lineage->is_wrong ? " (wrong)" : "");
    s->state = e->state;
    s->told = e->told;
    swarm_run_checks_safety(r, i);
  }
}

static void draws(room *r) {
  static const uint64_t epochs_us[] = {300000, 1000000, 3000000};
  static const double upsets[] = {0.003, 0.02, 0.1};
  hv_epoch_options o = {.average_state_every = below(r, 3) ? 1 : 3};
  o.delay_state_averaging = (uint8_t)below(r, 2);
  o.offload = (uint8_t)below(r, 2);
  o.delay_optimizer_step = o.offload && !below(r, 3);
  o.delay_grad_averaging = o.delay_optimizer_step && below(r, 2);
  r->epoch_us = epochs_us[below(r, 3)];
  r->first = 2 + below(r, r->run->options->nodes - 1);
  r->models = below(r, 2);
  r->program = (pretender_program){.options = o,
                                   .terms = {.target = BATCHES * SAMPLES * r->first, .matchmaking_ms = MATCHMAKING_US / 1000},
                                   .batch_us = r->epoch_us / BATCHES,
                                   .batch_samples = SAMPLES,
                                   .matchmaking_us = MATCHMAKING_US,
                                   .averaging_us = AVERAGING_US,
                                   .hands_us = 20000,
                                   .load_ms = LOAD_MS,
                                   .posts = (int)below(r, 2),
                                   .upsets = upsets[below(r, 3)]};
}

static int have_one_replica(const room *r) {
  const hv_epoch *first = NULL;
  for (size_t i = 0; i < r->n; i++) {
    const pretender *p = &r->seats[i].program;
    const hv_epoch *e = pretender_look(p);
    if (helps(r, i))
      continue;
    if (!lives(r, i) || !pretender_rests(p))
      return 0;
    first = first ? first : e;
    if (e->told != first->told || !hv_mark_equal(&e->lineage->mark, &first->lineage->mark))
      return 0;
  }
  return 1;
}

static void calms_down(room *r) {
  uint64_t met[NODES_MAX], end = world(r) + CALM_MOST_US;
  size_t behind = 1;
  for (size_t i = 0; i < r->n; i++) {
    r->seats[i].program.program.upsets = 0;
    met[i] = r->seats[i].program.met;
  }
  while (world(r) < end && !r->run->failure[0] && (behind || !have_one_replica(r))) {
    runs_for(r, TURN_US);
    behind = 0;
    for (size_t i = 0; i < r->n; i++)
      behind += !helps(r, i) && r->seats[i].program.met < met[i] + CALM_AVERAGES;
  }
  if (world(r) < end)
    return;
  for (size_t i = 0; i < r->n; i++)
    if (r->seats[i].program.driver)
      hv_sim_say(r->run->sim, "n%zu is %s in epoch %llu, mark %02x%02x, and has averaged %llu times since", i,
                 hv_epoch_state_name(pretender_look(&r->seats[i].program)->state),
                 (unsigned long long)pretender_look(&r->seats[i].program)->told,
                 pretender_look(&r->seats[i].program)->lineage->mark.bytes[0],
                 pretender_look(&r->seats[i].program)->lineage->mark.bytes[1],
                 (unsigned long long)(r->seats[i].program.met - met[i]));
  swarm_fail(r->run, "nothing upsets the programs for %.0f s, and they do not train together with one replica",
             (double)CALM_MOST_US * 1e-6);
}

void swarm_run_upset_play(swarm_run *run) {
  static const char *const names[] = {"overflows", "breaks", "pauses", "restores", "asks", "more", "behind"};
  static room r;
  r = (room){.run = run, .gone = SIZE_MAX, .goes = SIZE_MAX, .turn_us = TURN_US, .judge = judges};
  draws(&r);
  hv_sim_link link = {.delay_us = r.epoch_us / 300, .jitter_us = r.epoch_us / 1500};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  const hv_epoch_options *o = &r.program.options;
  hv_sim_say(run->sim,
             "%zu peers, epochs of %.1f s, models %s; something upsets each with a probability of %g; late: gradients %d, step %d, "
             "state %d; offload %d, the state each %llu epochs; posted: %d",
             r.first, (double)r.epoch_us * 1e-6, r.models ? "differ" : "are equal", r.program.upsets, o->delay_grad_averaging,
             o->delay_optimizer_step, o->delay_state_averaging, o->offload, (unsigned long long)o->average_state_every,
             r.program.posts);
  hv_sim_at(run->sim, TURN_US, swarm_run_tick, &r);
  for (size_t i = 0; i < r.first; i++) {
    pretender_program program = r.program;
    program.model = r.models ? check_random(&run->rng) : 1;
    swarm_run_adds(&r, &program);
    runs_for(&r, below(&r, 3) * r.epoch_us + TURN_US);
  }
  runs_for(&r, UPSET_US);
  for (size_t k = 0; k < PRETENDER_UPSETS; k++) {
    double n = 0;
    for (size_t i = 0; i < r.n; i++)
      n += (double)r.seats[i].program.upset[k];
    swarm_figure(run, names[k], n);
  }
  uint64_t calm_us = world(&r);
  calms_down(&r);
  swarm_figure(run, "calm_s", (double)(world(&r) - calm_us) * 1e-6);
  swarm_over(run);
}
