/* Lines at home: peers of a run whose states and averages share slow lines with all that they say.
 *
 * A state is bytes on the lines of those who give and take it, twelve for each parameter, and an average as many as its codec
 * makes of it. Lines queue for 200 ms, as a home's router does. Pretended programs around the machine that ships (core/epoch) train
 * together; then newcomers come, one is cut off or stands still, or all goes on with one that is much slower. T is an epoch's
 * length, and L what a state takes on a line with nothing else on it.
 *
 * Judged in each scene: what swarm_run_checks_safety judges, and that no wait is longer than its options say. By their goals
 * (home_goal) are judged scenes in which they hold today: of a seed, one or two newcomers with L of at most HOME_REACHES T, among
 * two trainers or more that can be dialled, whose rounds leave HOME_LEFT of the lines. The others are figures: newcomers with a
 * longer L, or through a hub; how soon one is back after a cut; the pace beside one that is slow.
 */
#include "sim/swarm/swarm_home.h"

#include <string.h>

enum {
  HOME_STATE = 192 * 1024, /* bytes of a state, at least */
  HOME_RATE = 40000,       /* bytes per second of a line, at least: what peers say beside takes one or two thousand */
  HOME_QUEUE = 5,          /* lines queue for a fifth of a second */
  HOME_WINDOW = 16384,     /* bytes, at least */
  HOME_BACK_US = 30000000,
  HOME_CRASH_US = 1000000,
  HOME_TRICKLE = 3000, /* bytes per second: hardly what peers say beside */
  HOME_JOINERS_MAX = 4
};

#define HOME_FITS 0.2       /* L in T, up to which the others lose nothing, as a load shares the lines with their rounds */
#define HOME_VALUES 3       /* bytes of a state, in bytes of an average of 32 bits */
#define HOME_LEFT 0.3       /* of the lines, that rounds and averages of the log leave at least, where newcomers are judged */
#define HOME_COMPUTED 0.8   /* the rest is what the hands take between batches */
#define HOME_LOADS_LONG 8.0 /* L in T, at most, of newcomers that make local steps */
#define HOME_REACHES 2.0    /* and up to which each newcomer meets them in time */

/* The second part of a scene, as seen of one peer. */
typedef struct seen {
  uint64_t came_us, met_us;          /* met_us: its first common epoch since; 0: none yet */
  uint64_t met, lost, alone, doubts; /* as the scene's second part began */
  uint64_t loads, repeated;          /* the same */
  uint64_t ended_us;                 /* since then, in ends of epochs */
} seen;

typedef struct home {
  const home_scene *scene;
  seen seats[NODES_MAX];
  size_t first_trainer, n_first; /* of the seats: those that began; n_first: with hubs */
  size_t n_honest;               /* with newcomers */
  uint64_t line_back_us;
  size_t apart; /* the one that is cut off or stands still; SIZE_MAX */
  size_t cut_a, cut_b;
  double paced; /* epochs per second before the second part */
} home;

static home homes; /* of the scene that is played: one at a time */

/* ---- the judge ---- */

/* While an epoch is held for those who come, a peer makes more samples than it may count with: these are a figure. */
static uint64_t lost_of_trained(const pretender *p) {
  const hv_epoch_ledger *l = pretender_look(p)->ledger;
  return l->lost - l->lost_by[HV_EPOCH_LOSS_CUT];
}

/* Each state's wait, as docs/design/epoch.md names it, a turn and a batch besides. */
static void judges_wait(room *r, size_t i) {
  member *s = &r->seats[i];
  const pretender_program *g = &s->program.program;
  const hv_epoch *e = pretender_look(&s->program);
  uint64_t now = world(r), most = 0;
  int waits = g->company != HV_EPOCH_ALONE_TRAINS && hv_epoch_driver_figures(s->program.driver)->n_peers <= 1;
  if (e->state != s->state)
    hv_sim_say(r->run->sim, "n%zu: %s in epoch %llu of %llu, mark %02x%02x%s", i, hv_epoch_state_name(e->state),
               (unsigned long long)e->told, (unsigned long long)hv_epoch_driver_figures(s->program.driver)->epoch,
               e->lineage->mark.bytes[0], e->lineage->mark.bytes[1], e->lineage->is_wrong ? " (wrong)" : "");
  if (e->state != s->state || hv_sim_paused(r->run->sim, i) || waits) {
    s->state = e->state;
    s->since_us = now;
  }
  if (e->state == HV_EPOCH_ENDING) /* a late lane, and two rounds */
    most = 4 * (hv_epoch_averaging_us(e) + g->matchmaking_us) + 2000000;
  else if (e->state == HV_EPOCH_COMING)
    most = g->matchmaking_us + hv_epoch_averaging_us(e) + 2000000;
  else if (e->state == HV_EPOCH_LOADING || e->state == HV_EPOCH_REPEATING)
    most = g->load_ms * UINT64_C(1000) + 5000000 + 8 * homes.scene->load_us; /* from its first byte on it may last */
  if (most && now > s->since_us + most + 2 * g->copy_us)
    swarm_fail(r->run, "n%zu is %s for %.1f s, waiting for %s", i, hv_epoch_state_name(e->state),
               (double)(now - s->since_us) * 1e-6, hv_epoch_wait_name(hv_epoch_waits(e)));
}

static void judges(room *r) {
  for (size_t i = 0; i < r->n; i++) {
    const pretender *p = &r->seats[i].program;
    seen *s = &homes.seats[i];
    if (!lives(r, i) || helps(r, i) || is_liar(r, i))
      continue;
    swarm_run_checks_safety(r, i);
    judges_wait(r, i);
    if (!s->met_us && p->met > s->met)
      s->met_us = world(r);
    s->ended_us += pretender_look(p)->state == HV_EPOCH_ENDING ? r->turn_us : 0;
  }
}

static void says_peers(const room *r) {
  for (size_t i = 0; i < r->n; i++) {
    const pretender *p = &r->seats[i].program;
    const hv_epoch *e = pretender_look(p);
    if (!lives(r, i) || !e)
      continue;
    const hv_epoch_ledger *l = e->ledger;
    hv_sim_say(
        r->run->sim,
        "n%zu: %s in epoch %llu, counts %zu and %zu that come, waits for %s; averages %llu, steps alone %llu, left out %llu, "
        "loads %llu, doubts %llu; samples made %llu, averaged %llu, kept %llu, lost %llu",
        i, hv_epoch_state_name(e->state), (unsigned long long)e->told, hv_epoch_driver_figures(p->driver)->n_peers,
        hv_epoch_driver_figures(p->driver)->n_coming, hv_epoch_wait_name(hv_epoch_waits(e)), (unsigned long long)p->met,
        (unsigned long long)p->stepped_alone, (unsigned long long)p->tells[HV_EPOCH_SAYS_LEFT_OUT],
        (unsigned long long)p->tells[HV_EPOCH_SAYS_LOADED], (unsigned long long)p->tells[HV_EPOCH_SAYS_DOUBT],
        (unsigned long long)l->produced, (unsigned long long)l->averaged, (unsigned long long)l->kept, (unsigned long long)l->lost);
  }
}

static int is_goal(home_goal goal) {
  return (homes.scene->goals & goal) != 0;
}

/* From here on the scene's second part is seen. */
static void begins_part(room *r, size_t i) {
  const pretender *p = &r->seats[i].program;
  homes.seats[i] = (seen){.came_us = world(r),
                          .met = p->met,
                          .alone = p->stepped_alone,
                          .doubts = p->tells[HV_EPOCH_SAYS_DOUBT],
                          .loads = p->tells[HV_EPOCH_SAYS_LOADED],
                          .repeated = p->repeated};
  if (pretender_look(p))
    homes.seats[i].lost = lost_of_trained(p);
}

/* Seconds of line in an epoch, in epochs, that one average takes: as encoded once. */
static double average_of(const home_scene *s) {
  double bits = s->codec == HV_CODEC_NONE ? 32 : s->codec == HV_CODEC_FLOAT16 ? 16 : 8;
  return bits / 32 * (double)s->load_us / HOME_VALUES / (double)s->epoch_us;
}

/* The part of a line that a newcomer has, and the part that it gets of the others' lines; below 0: it never comes in. */
static double left_of(const home_scene *s) {
  double rounds = 2 * average_of(s), in = 1 - rounds - average_of(s), up = s->up > 0 ? s->up : 1;
  double out = (double)s->trainers * (up - rounds) / (double)(s->joiners ? s->joiners : 1);
  return in < out ? in : out;
}

/* 1.5 loads, each over what rounds and averages of the log leave of the lines, and 3 T, after its node has found the others. */
static uint64_t meets_within_us(void) {
  const home_scene *s = homes.scene;
  double paced_us = homes.paced > 0 ? 1e6 / homes.paced : 0; /* as long as an epoch took before they came, with its round */
  uint64_t epoch_us = paced_us > (double)s->epoch_us ? (uint64_t)paced_us : s->epoch_us;
  double left = left_of(s) > HOME_LEFT ? left_of(s) : HOME_LEFT;
  return (uint64_t)((double)s->load_us * 1.5 / left) + 3 * epoch_us + COMING_US;
}

/* From its first batch on. A batch takes up to an eighth longer than its program says. */
static void judges_computing(room *r) {
  double least = 1;
  for (size_t i = homes.n_first; i < homes.n_honest; i++) {
    const pretender *p = &r->seats[i].program;
    double lives_us = (double)(world(r) - homes.seats[i].came_us) - COMING_US;
    double part = (double)(p->batches * p->program.batch_us) * 17 / 16 / lives_us;
    least = part < least ? part : least;
    if (is_goal(HOME_COMPUTES) && part < HOME_COMPUTED)
      swarm_fail(r->run, "n%zu computes %.2f of the time since it came", i, part);
  }
  swarm_figure(r->run, "computes_least", least);
}

static void judges_newcomers(room *r) {
  uint64_t most = meets_within_us(), longest = 0;
  size_t late = 0, n = 0;
  for (size_t i = homes.n_first; i < homes.n_honest; i++, n++) {
    const seen *s = &homes.seats[i];
    uint64_t took = (s->met_us ? s->met_us : world(r)) - s->came_us;
    longest = took > longest ? took : longest;
    if (s->met_us && took <= most)
      continue;
    late++;
    if (is_goal(HOME_MEETS))
      swarm_fail(r->run, "n%zu %s %.1f s after it came; L is %.1f s, T %.1f s", i,
                 s->met_us ? "averages first with the others" : "has averaged nothing with the others", (double)took * 1e-6,
                 (double)homes.scene->load_us * 1e-6, (double)homes.scene->epoch_us * 1e-6);
  }
  swarm_figure(r->run, "newcomers", (double)n);
  swarm_figure(r->run, "newcomers_late", (double)late);
  swarm_figure(r->run, "newcomers_longest_s", (double)longest * 1e-6);
}

/* It begins the run, and who is alone waits: rule 4 in docs/design/epoch.md. */
static int may_be_alone(const pretender *p) {
  return p->program.begins_run && p->program.company != HV_EPOCH_ALONE_TRAINS;
}

static void judges_first(room *r) {
  uint64_t lost = 0, alone = 0, doubts = 0, idle = 0;
  for (size_t i = homes.first_trainer; i < r->n; i++) {
    const pretender *p = &r->seats[i].program;
    const seen *s = &homes.seats[i];
    if (!lives(r, i) || is_liar(r, i))
      continue;
    uint64_t steps = p->stepped_alone - s->alone, here = i < homes.n_first ? lost_of_trained(p) - s->lost : 0;
    lost += i == homes.apart ? 0 : here;
    alone += i == homes.apart ? 0 : steps;
    doubts += p->tells[HV_EPOCH_SAYS_DOUBT] - s->doubts;
    idle += p->met == s->met;
    if (here && i != homes.apart && is_goal(HOME_LOSES_NOTHING))
      swarm_fail(r->run, "n%zu, which trained before, has lost %llu samples", i, (unsigned long long)here);
    if (steps && i != homes.apart && is_goal(HOME_NEVER_ALONE) && !may_be_alone(p))
      swarm_fail(r->run, "n%zu has made %llu steps by itself", i, (unsigned long long)steps);
    if (p->tells[HV_EPOCH_SAYS_DOUBT] > s->doubts && is_goal(HOME_NOBODY_DOUBTS))
      swarm_fail(r->run, "n%zu doubts peers that are honest", i);
    if (p->met == s->met && is_goal(HOME_TOGETHER))
      swarm_fail(r->run, "n%zu has averaged nothing with the others", i);
  }
  swarm_figure(r->run, "samples_lost", (double)lost);
  swarm_figure(r->run, "steps_alone", (double)alone);
  swarm_figure(r->run, "doubts", (double)doubts);
  swarm_figure(r->run, "never_with_others", (double)idle);
}

static void judges_ends(room *r, uint64_t since_us) {
  uint64_t longest = 0, us = world(r) - since_us;
  for (size_t i = homes.first_trainer; i < homes.n_first; i++) {
    uint64_t ended = homes.seats[i].ended_us;
    longest = ended > longest ? ended : longest;
    if (is_goal(HOME_TRAINS) && 2 * ended > us)
      swarm_fail(r->run, "n%zu waits for %.0f of %.0f s in ends of epochs", i, (double)ended * 1e-6, (double)us * 1e-6);
  }
  swarm_figure(r->run, "in_ends", (double)longest / (double)us);
}

static uint64_t told_of_first(const room *r) {
  uint64_t most = 0;
  for (size_t i = homes.first_trainer; i < homes.n_first; i++)
    if (i != homes.apart && lives(r, i) && pretender_look(&r->seats[i].program)->told > most)
      most = pretender_look(&r->seats[i].program)->told;
  return most;
}

static void judges_pace(room *r, uint64_t told, uint64_t since_us) {
  double pace = (double)(told_of_first(r) - told) / ((double)(world(r) - since_us) * 1e-6);
  double part = homes.paced > 0 ? pace / homes.paced : 0;
  swarm_figure(r->run, "pace", part);
  if (is_goal(HOME_KEEPS_PACE) && part < 0.95)
    swarm_fail(r->run, "those who trained before make %.2f of the epochs that they made", part);
}

static void judges_back(room *r) {
  const seen *s = &homes.seats[homes.apart];
  uint64_t took = (s->met_us ? s->met_us : world(r)) - homes.line_back_us;
  swarm_figure(r->run, "back", s->met_us && took <= HOME_BACK_US);
  swarm_figure(r->run, "back_s", (double)took * 1e-6);
  if (is_goal(HOME_BACK) && (!s->met_us || took > HOME_BACK_US))
    swarm_fail(r->run, "n%zu %s %.1f s after its line has come back", homes.apart,
               s->met_us ? "averages with the others" : "has averaged nothing with the others", (double)took * 1e-6);
  const pretender *p = &r->seats[homes.apart].program;
  uint64_t loads = p->tells[HV_EPOCH_SAYS_LOADED] - s->loads, repeated = p->repeated - s->repeated;
  swarm_figure(r->run, "back_repeated", (double)repeated);
  if (is_goal(HOME_REPEATS) && (loads || !repeated))
    swarm_fail(r->run, "n%zu has loaded %llu states and repeated %llu steps since it was away", homes.apart,
               (unsigned long long)loads, (unsigned long long)repeated);
  if (is_goal(HOME_KEEPS_OWN) && lost_of_trained(p) > s->lost)
    swarm_fail(r->run, "n%zu has lost %llu samples since it was away", homes.apart,
               (unsigned long long)(lost_of_trained(p) - s->lost));
}

/* ---- the play ---- */

static double times(double wanted) {
  return wanted > 0 ? wanted : 1;
}

static void draws_lines(room *r, const home_scene *s) {
  pretender_program *p = &r->program;
  uint64_t bytes = HOME_STATE, rate, window;
  if (!s->load_us)
    return; /* a line without a limit */
  if (bytes < HOME_RATE * s->load_us / 1000000)
    bytes = HOME_RATE * s->load_us / 1000000;
  p->bulk = (size_t)(bytes / PRETENDER_BULK_BYTES);
  p->bulk = p->bulk < PRETENDER_BULK_MAX ? p->bulk : PRETENDER_BULK_MAX;
  rate = p->bulk * (uint64_t)PRETENDER_BULK_BYTES * 1000000 / s->load_us;
  p->codec = s->codec;
  p->chunk_values = 1024;
  p->chunk_bytes = 4096;
  p->down_rate = rate;
  p->up_rate = (uint64_t)((double)rate * times(s->up));
  window = rate / HOME_QUEUE;
  hv_sim_set_window(r->run->sim, window > HOME_WINDOW ? (size_t)window : HOME_WINDOW);
}

static void adds_trainer(room *r, int client, double speed, uint64_t batch_us, uint64_t validates_us) {
  pretender_program p = r->program;
  p.validates_us = validates_us;
  p.client = client;
  p.batch_us = (uint64_t)((double)p.batch_us / times(speed));
  if (batch_us)
    p.batch_us = batch_us;
  swarm_run_adds(r, &p);
  begins_part(r, r->n - 1);
}

static void adds_first(room *r, const home_scene *s) {
  for (size_t i = 0; i < s->hubs; i++) {
    pretender_program p = r->program;
    p.options = hv_epoch_options_of_follower(&p.options);
    swarm_run_adds(r, &p);
  }
  homes.first_trainer = r->n;
  for (size_t i = 0; i < s->trainers; i++) {
    int is_last = i + 1 == s->trainers;
    adds_trainer(r, i >= s->trainers - s->clients,
                 !i        ? s->first_speed
                 : is_last ? s->last_speed
                           : 1,
                 is_last ? s->last_batch_us
                 : !i    ? s->first_batch_us
                         : 0,
                 is_last ? s->validates_us : 0);
  }
  homes.n_first = r->n;
  homes.cut_a = homes.first_trainer;
  homes.cut_b = r->n - 1;
}

static void cuts(room *r, int on) {
  hv_sim_cut(r->run->sim, homes.cut_a, homes.cut_b, on);
  hv_sim_cut(r->run->sim, homes.cut_b, homes.cut_a, on);
}

static void newcomers_come(room *r, const home_scene *s) {
  for (size_t i = 0; i < s->joiners; i++) {
    adds_trainer(r, i < s->client_joiners, s->joiner_speed, 0, 0);
    if (s->gap_us && i + 1 < s->joiners)
      runs_for(r, s->gap_us);
  }
}

static void seats_liar(void *arg, hv_env *env) {
  swarm_liar_take(arg, env);
}

static void liar_comes(room *r, const home_scene *s) {
  pretender_program p = r->program;
  if (s->liar == HOME_NO_LIAR)
    return;
  p.lies = s->liar == HOME_VOTES ? PRETENDER_LIES_BYTES : s->liar == HOME_AVERAGES ? PRETENDER_LIES_STATE : PRETENDER_LIES_NOTHING;
  if (s->liar == HOME_LOADS)
    p.down_rate = HOME_TRICKLE;
  r->seat_of_liar = (swarm_liar){.sim = r->run->sim, .ahead = 1, .tells = s->liar == HOME_COMES ? SWARM_LIES_PLACE : 0};
  r->seat_of_liar.rng = (check_rng){r->run->seed};
  p.seated = seats_liar;
  p.seated_arg = &r->seats[r->n].liar;
  hv_sim_say(r->run->sim, "n%zu is a liar of kind %d", r->n, (int)s->liar);
  swarm_run_adds(r, &p);
}

/* For so long; with a liar that crashes, which is the last one, it does each second. */
static void goes_on_for(room *r, const home_scene *s, uint64_t us) {
  for (uint64_t end = world(r) + us; s->liar == HOME_CRASHES && world(r) + HOME_CRASH_US < end && !r->run->failure[0];) {
    runs_for(r, HOME_CRASH_US);
    hv_sim_kill(r->run->sim, r->n - 1);
    us -= HOME_CRASH_US;
    swarm_run_again(r, r->n - 1);
  }
  runs_for(r, us);
}

static void one_is_away(room *r, const home_scene *s) {
  homes.apart = homes.first_trainer;
  hv_sim_say(r->run->sim, "n%zu is %s for %.0f s", homes.apart, s->apart_us ? "cut off" : "stopped",
             (double)(s->apart_us + s->stands_us) * 1e-6);
  if (s->apart_us)
    for (size_t i = 0; i <= s->parted; i++)
      hv_sim_group(r->run->sim, homes.apart + i, 1);
  else
    (s->sleeps ? hv_sim_sleep : hv_sim_pause)(r->run->sim, homes.apart);
  runs_for(r, s->apart_us + s->stands_us);
  if (s->apart_us)
    hv_sim_heal(r->run->sim);
  else
    hv_sim_continue(r->run->sim, homes.apart);
  homes.line_back_us = world(r);
  homes.seats[homes.apart].met_us = 0;
  homes.seats[homes.apart].met = r->seats[homes.apart].program.met;
}

static void says_scene(const room *r, const home_scene *s) {
  hv_sim_say(
      r->run->sim,
      "%zu trainers, %zu of them dial out only, %zu hubs; T %.1f s, L %.1f s, %s; %zu newcomers, %.1f s apart; lines of %.0f "
      "kB/s, a state of %.0f kB",
      s->trainers, s->clients, s->hubs, (double)s->epoch_us * 1e-6, (double)s->load_us * 1e-6, hv_codec_name(s->codec), s->joiners,
      (double)s->gap_us * 1e-6, (double)r->program.down_rate * 1e-3, (double)r->program.bulk * PRETENDER_BULK_BYTES * 1e-3);
}

static pretender_program program_of(const home_scene *s) {
  uint64_t matchmaking_us = s->matchmaking_us ? s->matchmaking_us : MATCHMAKING_US;
  pretender_program p = {.options = s->options,
                         .terms = {.target = BATCHES * SAMPLES * s->trainers, .matchmaking_ms = (uint32_t)(matchmaking_us / 1000)},
                         .batch_us = s->epoch_us / BATCHES,
                         .batch_samples = SAMPLES,
                         .matchmaking_us = matchmaking_us,
                         .averaging_us = s->averaging_us ? s->averaging_us : AVERAGING_US,
                         .hands_us = 20000,
                         .copy_us = s->copy_us,
                         .model = 1,
                         .company = s->company,
                         .log_memory = s->log_memory,
                         .load_ms = 600000};
  return p;
}

void swarm_home_plays(swarm_run *run, const home_scene *s) {
  static room r;
  r = (room){.run = run, .judge = judges, .gone = SIZE_MAX, .goes = SIZE_MAX, .turn_us = TURN_US, .epoch_us = s->epoch_us};
  homes = (home){.scene = s, .apart = SIZE_MAX};
  hv_sim_link link = {.delay_us = 12500, .jitter_us = 2000};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  r.program = program_of(s);
  r.first = s->trainers;
  draws_lines(&r, s);
  says_scene(&r, s);
  adds_first(&r, s);
  hv_sim_at(run->sim, TURN_US, swarm_run_tick, &r);
  runs_for(&r, WARM_US + 2 * s->epoch_us);
  uint64_t told = told_of_first(&r), since_us = world(&r);
  runs_for(&r, s->warm_us ? s->warm_us : 6 * s->epoch_us);
  homes.paced = (double)(told_of_first(&r) - told) / ((double)(world(&r) - since_us) * 1e-6);
  for (size_t i = homes.first_trainer; i < r.n; i++)
    begins_part(&r, i);
  hv_sim_say(run->sim, "the second part begins");
  says_peers(&r);
  told = told_of_first(&r);
  since_us = world(&r);
  if (s->cut)
    cuts(&r, 1);
  newcomers_come(&r, s);
  homes.n_honest = r.n;
  liar_comes(&r, s);
  if (s->apart_us || s->stands_us)
    one_is_away(&r, s);
  goes_on_for(&r, s, s->for_us ? s->for_us : 2 * meets_within_us() + 6 * s->epoch_us);
  says_peers(&r);
  judges_newcomers(&r);
  judges_computing(&r);
  judges_first(&r);
  judges_pace(&r, told, since_us);
  judges_ends(&r, since_us);
  if (homes.apart != SIZE_MAX)
    judges_back(&r);
  swarm_over(run);
}

/* ---- what a seed draws ---- */

static uint64_t home_below(swarm_run *run, uint64_t n) {
  return check_random(&run->rng) % n;
}

static double home_between(swarm_run *run, double least, double most) {
  return least + (most - least) * check_uniform(&run->rng);
}

/* A swarm whose lines carry its rounds. most: L, in T; 0: T, 2 T or 4 T, with averages of 32, 16 or 8 bits. */
static home_scene draws_swarm(swarm_run *run, double most) {
  static const hv_codec codecs[] = {HV_CODEC_NONE, HV_CODEC_FLOAT16, HV_CODEC_UNIFORM8};
  static const uint64_t epochs_us[] = {2000000, 6000000, 15000000, 500000};
  size_t bits = home_below(run, 3), others = HOME_JOINERS_MAX + 1, nodes = run->options->nodes;
  home_scene s = {.codec = codecs[bits], .epoch_us = epochs_us[home_below(run, most > 0 ? 3 : 4)]};
  s.trainers = 1 + home_below(run, nodes > others ? nodes - others : 1);
  s.load_us = (uint64_t)((double)s.epoch_us * home_between(run, 0.05, most > 0 ? most : (double)(1u << bits)));
  s.up = home_between(run, 0.5, 1);
  s.options = (hv_epoch_options){.average_state_every = home_below(run, 2) ? 5 : 1, .delay_state_averaging = 1};
  s.matchmaking_us = s.epoch_us < 4000000 ? MATCHMAKING_US : s.epoch_us / 2;
  s.averaging_us = 2 * s.load_us + AVERAGING_US;
  return s;
}

/* Beyond what today's rules promise: clients and a hub, and a state that takes longer than an epoch. */
static home_scene draws_newcomers(swarm_run *run) {
  home_scene s = draws_swarm(run, 0);
  s.joiners = 1 + home_below(run, HOME_JOINERS_MAX);
  s.gap_us = home_below(run, 2) ? 0 : s.epoch_us * home_below(run, 4);
  if (home_below(run, 2)) {
    s.hubs = 1;
    s.clients = home_below(run, s.trainers + 1);
    s.client_joiners = home_below(run, s.joiners + 1);
  }
  return s;
}

static home_scene draws_one_away(swarm_run *run) {
  static const uint64_t away_us[] = {5000000, 60000000, 600000000};
  home_scene s = draws_swarm(run, HOME_FITS);
  uint64_t us = away_us[home_below(run, 3)];
  s.trainers = 3 + home_below(run, 2);
  s.first_speed = home_below(run, 2) ? 8 : 1;
  if (home_below(run, 2))
    s.apart_us = us;
  else
    s.stands_us = us;
  s.for_us = HOME_BACK_US + 6 * s.epoch_us;
  return s;
}

static home_scene draws_slow(swarm_run *run) {
  home_scene s = draws_swarm(run, HOME_FITS);
  s.trainers = 3;
  s.joiners = 1;
  s.joiner_speed = home_between(run, 0.05, 1);
  s.warm_us = s.for_us = 20 * s.epoch_us;
  return s;
}

static home_scene draws_fitting(swarm_run *run) {
  home_scene s = draws_swarm(run, HOME_REACHES);
  s.trainers += s.trainers == 1; /* the steps of one alone are its own, and no log has them */
  s.joiners = 1 + home_below(run, 2);
  s.gap_us = home_below(run, 2) ? 0 : s.epoch_us * home_below(run, 4);
  s.goals = left_of(&s) > HOME_LEFT ? HOME_MEETS | HOME_NOBODY_DOUBTS : 0;
  if ((double)s.load_us <= HOME_FITS * (double)s.epoch_us)
    s.goals |= HOME_LOSES_NOTHING;
  return s;
}

/* One of each kind, by the seed: it costs nobody an epoch. */
static home_scene draws_liar(swarm_run *run) {
  home_scene s = draws_swarm(run, HOME_FITS);
  s.trainers += 2 * (s.trainers < 3);
  s.liar = (home_liar)(1 + home_below(run, HOME_LIARS));
  s.warm_us = s.for_us = 40 * s.epoch_us;
  s.goals = HOME_LOSES_NOTHING | HOME_NEVER_ALONE | HOME_TOGETHER | HOME_KEEPS_PACE;
  return s;
}

void swarm_home_liars_play(swarm_run *run) {
  home_scene s = draws_liar(run);
  swarm_home_plays(run, &s);
}

/* Local steps of trainers whose rounds leave the lines a half; newcomers have states of up to 8 epochs. */
void swarm_home_local_play(swarm_run *run) {
  home_scene s = draws_swarm(run, HOME_LOADS_LONG);
  s.options = (hv_epoch_options){.use_local_updates = 1, .outer = 1, .overlap = 50, .average_state_every = 1};
  s.codec = HV_CODEC_UNIFORM8;
  s.trainers += s.trainers == 1; /* the steps of one alone are its own, and no log has them */
  s.joiners = 1 + home_below(run, 2);
  s.gap_us = home_below(run, 2) ? 0 : s.epoch_us * home_below(run, 4);
  s.goals = HOME_COMPUTES;
  swarm_home_plays(run, &s);
}

void swarm_home_play(swarm_run *run) {
  static home_scene (*const draws[])(swarm_run *) = {draws_fitting, draws_newcomers, draws_one_away, draws_slow};
  home_scene s = draws[home_below(run, 4)](run);
  swarm_home_plays(run, &s);
}
