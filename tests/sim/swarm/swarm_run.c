/* Peers of one run, each a pretended program around the machine that ships (core/epoch), with its plan, its reach and its pace.
 *
 * A seed draws the plan of all, how many begin together, who only dials out, and whether a peer helps that trains nothing. Then one
 * after another goes (politely, killed, or its machine is gone) and comes again some time later, as itself or as somebody new;
 * with faults there are also those of the options until calm.
 *
 * Judged at any moment: no move that the table does not allow; each sample in one place, and as many as the program made; equal
 * marks are equal bits; no wait is longer than its name allows. Without faults also: who begins together holds one replica soon;
 * those that stay wait BESIDES_US at an epoch's end, more only after somebody went: DEATH_US, or PATIENCE_US for a machine that is
 * gone, and until the samples that went with it are made again; who comes makes its first step with others within COMING_US and
 * COMING_EPOCHS. In calm all of this holds again.
 *
 * Also: somebody alive has the newest state, and a peer in an epoch has the steps of all epochs before it. Peers that began
 * together are alike once all have averaged an epoch together. A peer that is aside has a state soon after it is on offer.
 * pretender.c judges steps by oneself in each event.
 *
 * Beside liars (of one kind each: in rounds, by states on offer, in the log, or, with two others, by claims alone) safety holds as
 * ever, and each time may be LIARS_US longer. Beside those of the log nobody goes: one after another is cut off or stands still for
 * some epochs and repeats them; it and the others average again as soon as without liars. Nobody is in an epoch that
 * no peer has reached by its own work, nor aside for long. Not judged, because nobody can know: values of a usual size in an
 * average, and the times of steps where a liar lies in rounds. A peer may have to take a liar's state: where its mark is the
 * swarm's after a round that failed, or where less than twice as many others, of those that count in the vote, offer theirs. From
 * then on only moves, samples and waits are judged. */
#include "sim/swarm/swarm_run.h"

#include <stdio.h>
#include <string.h>

typedef enum play {
  PLAIN,
  LOCAL,  /* each batch is a step */
  ANCHOR, /* the same, and an outer optimizer steps an anchor */
  POSTED, /* no training thread waits for its machine before it begins its next batch */
  ODD,    /* gradients that are not finite, and states of which only averages are offered */
  LONE    /* the same, and who is alone waits */
} play;

/* ---- turns ---- */

static void takes_turn(hv_command *command, void *core) {
  member *s = (member *)((char *)command - offsetof(member, turn));
  s->pending = 0;
  if (!core || !s->program.node)
    return;
  if (s->r->goes == s->program.index && !s->program.is_leaving)
    pretender_leave(&s->program);
  pretender_turn(&s->program);
}

void swarm_run_tick(hv_sim *sim, void *arg) {
  room *r = arg;
  for (size_t i = 0; i < r->n; i++) {
    member *s = &r->seats[i];
    if (s->pending || !hv_sim_alive(sim, i))
      continue;
    s->turn = (hv_command){.run = takes_turn};
    s->pending = hv_sim_command(sim, i, &s->turn) == HV_OK;
  }
  (r->judge ? r->judge : swarm_run_checks)(r);
  hv_sim_at(sim, hv_sim_now(sim) + r->turn_us, swarm_run_tick, r);
}

/* ---- peers ---- */

/* By the address of any that stays and can be dialled. */
static void sits(room *r, size_t i, const pretender_program *program) {
  member *s = &r->seats[i];
  int pending = s->pending;
  hv_command turn = s->turn;
  swarm_liar liar = s->liar; /* its node's env has it also after it has begun anew */
  *s = (member){.r = r,
                .pending = pending,
                .turn = turn,
                .liar = liar,
                .told_us = world(r),
                .since_us = world(r),
                .true_us = world(r),
                .offers_us = world(r),
                .counted_us = world(r)};
  pretender_init(&s->program, r->run->sim, i, program, check_random(&r->run->rng));
  for (size_t k = 0, at = r->n ? below(r, r->n) : 0; k < r->n && !s->program.n_initial; k++, at = (at + 1) % r->n)
    if (at != i && at != r->gone && hv_sim_alive(r->run->sim, at) && !is_liar(r, at) && !r->seats[at].program.program.client)
      s->program.initial[s->program.n_initial++] = hv_sim_target(r->run->sim, at);
  s->program.program.begins_run = !s->program.n_initial;
}

/* As their records in the DHT tell a hub. */
static size_t trainers_of(void *arg, hv_gift_trainer *out, size_t max) {
  const room *r = arg;
  size_t n = 0;
  for (size_t i = 0; i < r->n && n < max; i++)
    if (lives(r, i) && !helps(r, i)) {
      const pretender *p = &r->seats[i].program;
      hv_progress_own own;
      hv_epoch_report(pretender_look(p), 0, &own);
      if (own.any)
        out[n++] = (hv_gift_trainer){p->id, p->program.client, own.epoch};
    }
  return n;
}

void swarm_run_adds(room *r, const pretender_program *program) {
  sits(r, r->n++, program);
  if (program->seated) {
    r->seats[r->n - 1].liar = r->seat_of_liar;
    r->seats[r->n - 1].liar.me = r->seats[r->n - 1].program.id;
  }
  if (program->options.auxiliary) {
    r->seats[r->n - 1].program.trainers = trainers_of;
    r->seats[r->n - 1].program.trainers_arg = r;
  }
  hv_sim_node_config config = pretender_seat(&r->seats[r->n - 1].program);
  if (faults_of(r) & SWARM_SKEW)
    swarm_seat(r->run, &config);
  if (hv_sim_add(r->run->sim, &config, NULL) != HV_OK)
    swarm_fail(r->run, "no memory for a node");
}

static void adds(room *r, int client, int help) {
  pretender_program program = r->program;
  program.client = client;
  if (help)
    program.options = hv_epoch_options_of_follower(&program.options);
  program.batch_us += program.batch_us * below(r, 4) / 4; /* unequal machines */
  program.model = r->models ? check_random(&r->run->rng) : 1;
  swarm_run_adds(r, &program);
}

static void is_seated(void *arg, hv_env *env) {
  swarm_liar_take(arg, env);
}

/* False entries; or true ones that never come, or are broken. */
static void draws_lies_in_log(room *r, pretender_program *program, swarm_liar *liar) {
  static const struct {
    unsigned program, node;
  } lies[] = {{PRETENDER_LIES_ENTRIES, 0},
              {PRETENDER_LIES_FUTURE, 0},
              {PRETENDER_LIES_ENTRIES | PRETENDER_LIES_FUTURE, 0},
              {0, SWARM_LIES_KEEPS},
              {0, SWARM_LIES_SPOILS}};
  check_rng *rng = &r->lies;
  size_t kind = check_random(rng) % (sizeof lies / sizeof *lies);
  *liar = (swarm_liar){.sim = r->run->sim, .tells = lies[kind].node, .ahead = 1 + check_random(rng) % HV_STEP_LOG_PLACES};
  liar->rng = (check_rng){check_random(rng)};
  program->lies = lies[kind].program;
  program->ahead = liar->ahead;
}

/* One kind of lies each: in rounds, by offers, or (where there are few) by claims alone; each with claims. */
static void draws_lies(room *r, pretender_program *program, swarm_liar *liar) {
  static const uint64_t aheads[] = {1, 2, 5, 1000};
  enum { ROUNDS = 31, CLAIMS = SWARM_LIES_EPOCH | SWARM_LIES_SAMPLES | SWARM_LIES_SPEED | SWARM_LIES_PLACE };
  check_rng *rng = &r->lies;
  int offers = !r->few && !faults_of(r) && check_random(rng) % 2;
  *liar = (swarm_liar){.sim = r->run->sim, .ahead = aheads[check_random(rng) % 4]};
  liar->tells = check_random(rng) & CLAIMS;
  if (r->few)
    liar->tells |= SWARM_LIES_EPOCH;
  else if (offers)
    program->lies = 1 + (unsigned)check_random(rng) % 3;
  else {
    liar->tells |= 1 + (unsigned)check_random(rng) % ROUNDS;
    r->lies_in_rounds = 1;
  }
  uint64_t averages = check_random(rng) % 4;
  program->lies |= (averages & 1 ? PRETENDER_LIES_GRADIENTS : 0) | (averages & 2 ? PRETENDER_LIES_STATE : 0);
  program->ahead = liar->ahead;
  liar->rng = (check_rng){check_random(rng)};
}

static void adds_liar(room *r) {
  pretender_program honest = r->program;
  r->program.seated = is_seated;
  r->program.seated_arg = &r->seats[r->n].liar;
  (r->lies_in_log ? draws_lies_in_log : draws_lies)(r, &r->program, &r->seat_of_liar);
  hv_sim_say(r->run->sim, "n%zu lies: %#x, its program: %#x; %llu epochs ahead", r->n, r->seat_of_liar.tells, r->program.lies,
             (unsigned long long)r->program.ahead);
  adds(r, 0, 0);
  r->program = honest;
}

/* The same program again, as a process of its own. */
void swarm_run_again(room *r, size_t i) {
  pretender_program program = r->seats[i].program.program;
  sits(r, i, &program);
  hv_sim_restart(r->run->sim, i);
}

/* No state could be downloaded any more; a hub keeps the one that clients have. */
static int is_last_open(const room *r, size_t i) {
  for (size_t k = 0; k < r->n; k++)
    if (k != i && hv_sim_alive(r->run->sim, k) && !is_liar(r, k) && !r->seats[k].program.program.client)
      return 0;
  return 1;
}

/* A single one may be left to make them, because those that have ended the epoch wait. */
static uint64_t making_again_us(const room *r, size_t gone) {
  const hv_epoch *e = pretender_look(&r->seats[gone].program);
  uint64_t slowest_us = 0, samples = e ? e->ledger->sums + e->ledger->in_flight : 0;
  for (size_t i = 0; i < r->n; i++)
    if (i != gone && is_judged(r, i) && r->seats[i].program.program.batch_us > slowest_us)
      slowest_us = r->seats[i].program.program.batch_us;
  return (samples / SAMPLES + 1) * slowest_us * 9 / 8;
}

/* As r->went says. */
static void goes(room *r, size_t i) {
  if (r->went != POLITE) {
    (r->went == KILLED ? hv_sim_kill : hv_sim_unplug)(r->run->sim, i);
    return;
  }
  r->goes = i;
  runs_for(r, 2 * TURN_US);
  r->goes = SIZE_MAX;
  hv_sim_stop(r->run->sim, i);
}

static void one_goes_and_comes(room *r) {
  static const uint64_t gaps_us[] = {0, 50000, 1000000, 6000000, 30000000, 120000000};
  hv_sim *sim = r->run->sim;
  size_t i = below(r, r->n);
  while (!hv_sim_alive(sim, i) || helps(r, i) || is_liar(r, i) || is_last_open(r, i))
    i = (i + 1) % r->n;
  r->went = below(r, 8) ? (going)below(r, 2) : UNPLUGGED;
  r->went_us = world(r);
  r->again_us = making_again_us(r, i);
  r->gone = i;
  if (r->went == UNPLUGGED)
    r->unplugged_us = r->went_us + 1;
  uint64_t gap_us = gaps_us[below(r, below(r, 4) ? 4 : 6)];
  int anew = (r->went == UNPLUGGED || below(r, 2)) && r->n < NODES_MAX, client = r->seats[i].program.program.client;
  hv_sim_say(sim, "n%zu %s, and comes again %.2f s later%s", i, going_names[r->went], (double)gap_us * 1e-6,
             anew ? " as another" : "");
  goes(r, i);
  runs_for(r, gap_us);
  while (!anew && hv_sim_alive(sim, i)) /* its goodbye is under way */
    runs_for(r, TURN_US);
  if (anew)
    adds(r, client, 0);
  else
    swarm_run_again(r, i);
  runs_for(r, swarm_run_coming_most_us(r) + STAYS_US + below(r, STAYS_US));
}

/* ---- beside liars of the log ---- */

/* Its machine stands still, or its line is cut while it waits for others. */
static void goes_away(room *r, size_t i) {
  int cut = r->program.company == HV_EPOCH_ALONE_WAITS && below(r, 2);
  member *s = &r->seats[i];
  uint64_t us = r->epoch_us * (1 + below(r, AWAY_EPOCHS)) + below(r, r->epoch_us), end = world(r) + us;
  hv_sim_say(r->run->sim, "n%zu %s for %.1f s", i, cut ? "is cut off" : "stands still", (double)us * 1e-6);
  r->went = UNPLUGGED;
  if (cut)
    hv_sim_group(r->run->sim, i, 1);
  else
    hv_sim_pause(r->run->sim, i);
  while (world(r) < end && !r->run->failure[0]) {
    r->went_us = world(r); /* the others wait for it once, and count it until then */
    runs_for(r, TURN_US);
    s->since_us = s->told_us = s->could_us = s->counted_us = world(r); /* what it reaches is judged from its return on */
  }
  if (cut)
    hv_sim_heal(r->run->sim);
  else
    hv_sim_continue(r->run->sim, i);
}

/* All average again. */
static void checks_back(room *r, size_t away, const uint64_t *met) {
  uint64_t back_us = world(r), most_us = BACK_US + r->epoch_us, took = 0;
  for (size_t i = 0; i < r->n; i++)
    while (is_judged(r, i) && r->seats[i].program.met == met[i] && took < most_us && !r->run->failure[0]) {
      runs_for(r, TURN_US);
      took = world(r) - back_us;
    }
  r->away_us = took > r->away_us ? took : r->away_us;
  if (took >= most_us)
    swarm_fail(r->run, "n%zu was away, and not all have averaged with others for %.1f s", away, (double)took * 1e-6);
}

static void one_misses_epochs(room *r) {
  uint64_t met[NODES_MAX];
  size_t i = below(r, r->n);
  while (!is_judged(r, i))
    i = (i + 1) % r->n;
  goes_away(r, i);
  for (size_t k = 0; k < r->n; k++)
    met[k] = r->seats[k].program.met;
  checks_back(r, i, met);
  runs_for(r, STAYS_US + below(r, STAYS_US));
}

/* ---- the play ---- */

static hv_epoch_options draws_plan(room *r) {
  hv_epoch_options o = {.average_state_every = below(r, 3) ? 1 : 3};
  o.delay_state_averaging = (uint8_t)below(r, 2);
  o.offload = (uint8_t)below(r, 2);
  o.delay_optimizer_step = o.offload && !below(r, 3);
  o.delay_grad_averaging = o.delay_optimizer_step && below(r, 2);
  return o;
}

/* Drawn apart, so that seeds without liars stay as they are. Beside faults, in one seed of three. */
static void draws_liars(room *r) {
  check_rng of_log = {r->run->seed ^ 0x106};
  r->lies = (check_rng){r->run->seed ^ 0x11a5};
  if (!(r->run->options->faults & SWARM_LIARS) || (faults_of(r) && check_random(&r->lies) % 3))
    return;
  r->liars = 1;
  r->few = check_random(&r->lies) % 4 == 0;
  if (r->few) {
    r->first = 2;
    return;
  }
  r->first = r->first < HONEST ? HONEST : r->first;
  r->liars += r->first >= 2 * HONEST && check_random(&r->lies) % 2;
  r->lies_in_log = !faults_of(r) && check_random(&of_log) % 3 == 0;
  if (r->lies_in_log && r->epoch_us < LOGGED_US)
    r->epoch_us = LOGGED_US; /* of shorter ones there are no entries */
}

static void draws(room *r) {
  static const uint64_t epochs_us[] = {300000, 1000000, 3000000, 5000000};
  r->epoch_us = epochs_us[faults_of(r) ? 1 + below(r, 3) : below(r, 4)]; /* peers that are far apart have no short epochs */
  r->first = 2 + below(r, r->run->options->nodes - 1);                   /* 2 to `nodes`, of which one goes */
  draws_liars(r);
  r->models = below(r, 2); /* each begins with its own */
  r->program = (pretender_program){.options = draws_plan(r),
                                   .terms = {.target = BATCHES * SAMPLES * r->first, .matchmaking_ms = MATCHMAKING_US / 1000},
                                   .batch_us = r->epoch_us / BATCHES,
                                   .batch_samples = SAMPLES,
                                   .matchmaking_us = MATCHMAKING_US,
                                   .averaging_us = AVERAGING_US,
                                   .hands_us = 20000,
                                   .load_ms = LOAD_MS};
}

static void draws_odd(room *r, int waits) {
  static const double fails[] = {0, 0.02, 0.2};
  r->program.company = waits ? HV_EPOCH_ALONE_WAITS : HV_EPOCH_ALONE_TRAINS;
  r->program.fails = fails[below(r, 3)];
  r->program.differs = !below(r, 3);
  hv_sim_say(r->run->sim, "%g of the gradients are not finite; alone: %s; %s", r->program.fails,
             r->program.company == HV_EPOCH_ALONE_WAITS ? "waits" : "trains",
             r->program.differs ? "only averages of the state are offered" : "each state is offered");
}

/* So that they have the replicas of others to step from: those who load a state quickly repeat nothing. */
static void draws_away(room *r) {
  r->models = 0;
  r->program.company = below(r, 2) ? HV_EPOCH_ALONE_WAITS : HV_EPOCH_ALONE_TRAINS;
}

static void says_plan(const room *r, int help) {
  const hv_epoch_options *o = &r->program.options;
  hv_sim_say(
      r->run->sim,
      "%zu peers, %zu of them dial out only%s, epochs of %.1f s, models %s; late: gradients %d, step %d, state %d; offload %d, "
      "local updates %d, an anchor %d, the state each %llu epochs",
      r->first, r->clients, help ? ", and a hub" : "", (double)r->epoch_us * 1e-6, r->models ? "differ" : "are equal",
      o->delay_grad_averaging, o->delay_optimizer_step, o->delay_state_averaging, o->offload, o->use_local_updates, o->outer,
      (unsigned long long)o->average_state_every);
}

/* In half of the seeds a round takes up to half an epoch, so that batches go on beside it. */
static void draws_overlap(room *r) {
  check_rng rng = {r->run->seed};
  double rounds_s = 0.3 + 0.5e-6 * (double)r->epoch_us * check_uniform(&rng);
  r->program.options.overlap = check_random(&rng) % 4 ? 50 : 0;
  if (check_random(&rng) % 2)
    return;
  r->program.bulk = 65536;
  r->program.is_light = 1;
  r->program.codec = HV_CODEC_UNIFORM8;
  r->program.chunk_values = 8192;
  r->program.up_rate = r->program.down_rate = (uint64_t)(2 * (double)r->program.bulk / rounds_s);
}

static void plays(swarm_run *run, play which) {
  static room r;
  uint64_t repeated = 0, false_entries = 0, beside = 0;
  r = (room){.run = run, .gone = SIZE_MAX, .goes = SIZE_MAX, .turn_us = TURN_US};
  draws(&r);
  if (which == ODD || which == LONE)
    draws_odd(&r, which == LONE);
  r.program.posts = which == POSTED;
  if (r.lies_in_log)
    draws_away(&r);
  if (which == LOCAL)
    r.program.options = (hv_epoch_options){.use_local_updates = 1,
                                           .delay_state_averaging = r.program.options.delay_state_averaging,
                                           .average_state_every = r.program.options.average_state_every};
  if (which == ANCHOR) {
    r.program.options = (hv_epoch_options){.use_local_updates = 1, .outer = 1, .average_state_every = 1};
    r.program.fails = below(&r, 3) ? 0 : 0.02;
    draws_overlap(&r);
  }
  if (!faults_of(&r)) {
    hv_sim_link link = {.delay_us = r.epoch_us / 300, .jitter_us = r.epoch_us / 1500};
    hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  }
  /* the faults may take all that can be dialled, and nobody could download the clients' state */
  int help = !below(&r, 3);
  r.clients = below(&r, 2) && !run->options->faults ? below(&r, r.first + (size_t)help) : 0; /* beside liars none */
  says_plan(&r, help);
  if (help) /* the others come to it: they may all be such that only dial out */
    adds(&r, 0, 1);
  for (size_t i = 0; i < r.first; i++)
    adds(&r, i >= r.first - r.clients, 0);
  for (size_t i = 0; i < r.liars; i++)
    adds_liar(&r);
  if (faults_of(&r))
    swarm_trouble(run);
  hv_sim_at(run->sim, TURN_US, swarm_run_tick, &r);
  if (faults_of(&r))
    hv_sim_run_until(run->sim, run->end_us > run->calm_us + CALM_US ? run->end_us : run->calm_us + CALM_US + 60000000);
  else
    runs_for(&r, WARM_US + 4 * r.epoch_us * r.first + beside_liars_us(&r));
  swarm_run_checks_rest(&r);
  for (int cycle = 0; cycle < CYCLES && !run->failure[0] && !faults_of(&r); cycle++) {
    (r.lies_in_log ? one_misses_epochs : one_goes_and_comes)(&r);
    swarm_run_checks_rest(&r);
  }
  swarm_figure(run, "epochs", (double)r.epochs);
  swarm_figure(run, "alike", (double)r.n_alike);
  if (which == ANCHOR)
    swarm_figure(run, "anchors", (double)r.n_anchors);
  for (size_t i = 0; i < r.n; i++) {
    repeated += r.seats[i].program.repeated;
    false_entries += r.seats[i].program.n_false_entries;
    beside += r.seats[i].program.stepped_beside;
  }
  if (which == ANCHOR)
    swarm_figure(run, "beside", (double)beside);
  if (which == ANCHOR || run->options->faults & SWARM_LIARS)
    swarm_figure(run, "repeated", (double)repeated);
  if (run->options->faults & SWARM_LIARS)
    swarm_figure(run, "false_entries", (double)false_entries);
  if (r.lies_in_log)
    swarm_figure(run, "away_s", (double)r.away_us * 1e-6);
  for (size_t i = 0; which == POSTED && i < r.n; i++)
    swarm_figure(run, "posted", (double)r.seats[i].program.posted);
  swarm_figure(run, "skipped", (double)r.skipped);
  swarm_figure(run, "false_states", (double)r.n_false);
  swarm_figure(run, "loads_s", (double)r.loads_us * 1e-6);
  swarm_figure(run, "waits_polite_s", (double)r.longest_us[POLITE] * 1e-6);
  swarm_figure(run, "waits_killed_s", (double)r.longest_us[KILLED] * 1e-6);
  swarm_figure(run, "waits_unplugged_s", (double)r.longest_us[UNPLUGGED] * 1e-6);
  swarm_figure(run, "waits_else_s", (double)r.longest_us[GOINGS] * 1e-6);
  swarm_figure(run, "coming_s", r.n_coming ? (double)r.coming_us * 1e-6 / (double)r.n_coming : 0);
  swarm_over(run);
}

void swarm_run_play(swarm_run *run) {
  plays(run, PLAIN);
}

void swarm_run_posted_play(swarm_run *run) {
  plays(run, POSTED);
}

void swarm_run_local_play(swarm_run *run) {
  plays(run, LOCAL);
}

void swarm_run_anchor_play(swarm_run *run) {
  plays(run, ANCHOR);
}

void swarm_run_odd_play(swarm_run *run) {
  plays(run, ODD);
}

void swarm_run_lone_play(swarm_run *run) {
  plays(run, LONE);
}

/* ---- two clients and a hub ---- */

/* One of two that only dial out leaves politely, at any moment of an epoch. The other is alone: neither its epoch's end nor its
 * late lane lasts longer than PAIR_US from then on. */
enum { PAIR_US = 2000000 };

static void checks_pair(room *r, size_t stays, uint64_t *idle_us) {
  const pretender *p = &r->seats[stays].program;
  const hv_epoch *e = pretender_look(p);
  if (e->state != HV_EPOCH_ENDING && e->late != HV_EPOCH_LATE_WORKS)
    *idle_us = world(r);
  uint64_t took = world(r) - *idle_us;
  r->longest_us[POLITE] = took > r->longest_us[POLITE] ? took : r->longest_us[POLITE];
  if (took > PAIR_US)
    swarm_fail(r->run, "n%zu has waited %.1f s for %s since the other one left", stays, (double)took * 1e-6,
               hv_epoch_wait_name(hv_epoch_waits(e)));
}

void swarm_run_pair_play(swarm_run *run) {
  static room r;
  r = (room){.run = run, .gone = SIZE_MAX, .goes = SIZE_MAX, .turn_us = TURN_US};
  draws(&r);
  r.first = r.clients = 2;
  r.program.terms.target = BATCHES * SAMPLES * r.first;
  hv_sim_link link = {.delay_us = r.epoch_us / 300, .jitter_us = r.epoch_us / 1500};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  says_plan(&r, 1);
  adds(&r, 0, 1);
  adds(&r, 1, 0);
  adds(&r, 1, 0);
  hv_sim_at(run->sim, TURN_US, swarm_run_tick, &r);
  runs_for(&r, WARM_US + 8 * r.epoch_us + below(&r, 2 * r.epoch_us));
  swarm_run_checks_rest(&r);
  hv_sim_say(run->sim, "n2 leaves");
  r.went_us = world(&r);
  r.goes = 2;
  uint64_t idle_us = r.went_us, told = pretender_look(&r.seats[1].program)->told;
  for (uint64_t end = r.went_us + 10 * r.epoch_us + 2 * PAIR_US; world(&r) < end && !run->failure[0];) {
    runs_for(&r, TURN_US);
    if (world(&r) == r.went_us + 2 * TURN_US)
      hv_sim_stop(run->sim, 2);
    checks_pair(&r, 1, &idle_us);
  }
  if (pretender_look(&r.seats[1].program)->told < told + 2)
    swarm_fail(run, "n1 is in epoch %llu, and was in %llu when the other one left",
               (unsigned long long)pretender_look(&r.seats[1].program)->told, (unsigned long long)told);
  swarm_figure(run, "waits_polite_s", (double)r.longest_us[POLITE] * 1e-6);
  swarm_over(run);
}

/* ---- clients in a hurry ---- */

/* Epochs that are shorter than a load: the state of one that only dials out reaches another one through the hub. Trainers begin
 * together, or one after another, and one of them goes and comes. HASTY_US after each of these they are in one epoch, and nobody is
 * out of it longer than HASTY_APART_US. */
enum { HASTY_TURN_US = 1000, HASTY_US = 5000000, HASTY_FOR_US = 20000000, HASTY_APART_US = 10000000, HASTY_MOST = 4 };

static int are_together(const room *r) {
  uint64_t least = UINT64_MAX, most = 0;
  size_t n = 0;
  for (size_t i = 1; i < r->n; i++)
    n += lives(r, i);
  for (size_t i = 1; i < r->n; i++) {
    if (!lives(r, i))
      continue;
    const pretender *p = &r->seats[i].program;
    const hv_epoch *e = pretender_look(p);
    least = e->told < least ? e->told : least;
    most = e->told > most ? e->told : most;
    if (hv_epoch_driver_figures(p->driver)->n_peers < n)
      return 0;
  }
  return most - least <= 1;
}

static void checks_together(room *r) {
  uint64_t apart_us = 0, end = world(r) + HASTY_FOR_US;
  while (world(r) < end && !r->run->failure[0]) {
    runs_for(r, HASTY_TURN_US);
    apart_us = are_together(r) ? 0 : apart_us + HASTY_TURN_US;
    r->longest_us[GOINGS] = apart_us > r->longest_us[GOINGS] ? apart_us : r->longest_us[GOINGS];
    if (apart_us > HASTY_APART_US)
      swarm_fail(r->run, "the trainers have been apart for %.1f s", (double)apart_us * 1e-6);
  }
}

static void draws_haste(room *r) {
  static const uint64_t epochs_us[] = {10000, 30000, 100000, 300000};
  draws(r);
  r->epoch_us = epochs_us[below(r, 4)];
  r->first = r->clients = 2 + below(r, HASTY_MOST - 1);
  r->program.terms.target = BATCHES * SAMPLES * r->first;
  r->program.batch_us = r->epoch_us / BATCHES;
  r->program.hands_us = r->program.batch_us / 4;
}

void swarm_run_hasty_play(swarm_run *run) {
  static const uint64_t gaps_us[] = {0, 100000, 1000000, 6000000};
  static room r;
  r = (room){.run = run, .gone = SIZE_MAX, .goes = SIZE_MAX, .turn_us = HASTY_TURN_US};
  draws_haste(&r);
  hv_sim_link link = {.delay_us = 500, .jitter_us = 100};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  says_plan(&r, 1);
  adds(&r, 0, 1);
  hv_sim_at(run->sim, HASTY_TURN_US, swarm_run_tick, &r);
  for (size_t i = 0; i < r.first; i++) {
    adds(&r, 1, 0);
    runs_for(&r, gaps_us[below(&r, 4)] + HASTY_TURN_US);
  }
  runs_for(&r, HASTY_US);
  checks_together(&r);
  r.went = (going)below(&r, 2);
  hv_sim_say(run->sim, "n1 %s, and comes again", going_names[r.went]);
  r.gone = 1;
  r.went_us = world(&r);
  r.again_us = making_again_us(&r, 1);
  goes(&r, 1);
  runs_for(&r, gaps_us[1 + below(&r, 3)]);
  while (hv_sim_alive(run->sim, 1))
    runs_for(&r, TURN_US);
  swarm_run_again(&r, 1);
  runs_for(&r, HASTY_US);
  checks_together(&r);
  swarm_figure(run, "epochs", (double)pretender_look(&r.seats[1].program)->told);
  swarm_figure(run, "apart_longest_s", (double)r.longest_us[GOINGS] * 1e-6);
  swarm_over(run);
}
