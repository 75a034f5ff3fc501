/* Small swarms of programs that train: in each seed one peer after another goes (politely, killed, or its machine is gone) and
 * comes again some time later, as itself or as somebody new, by the address of any that lives. Anyone may be the one who goes, the
 * one who began the run, too.
 *
 * A program does the same as python/hivemind_c/optim, without values: it counts batches, seeks a group ahead of an epoch's
 * end, makes the step with the group or alone, offers the state; a newcomer, or one left behind, is apart until it has loaded one.
 *
 * Held by the simulator's clock: from an epoch's end as a peer sees it until its step is made, those that stay wait BESIDES_US at
 * most, more only after somebody went: DEATH_US, or for a machine that is gone PATIENCE_US once, and HEARSAY_US while its records
 * live; a newcomer makes its first step with others COMING_US and COMING_EPOCHS after it began. */
#include "lib/check.h"
#include "lib/state_scene.h"
#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <string.h>

enum {
  NODES_MAX = 10,
  VALUES = 64,
  CYCLES = 4,
  TURN_US = 10000,
  BATCHES = 8, /* of a peer in an epoch that it makes alone */
  MATCHMAKING_MS = 2000,
  TIMEOUT_MS = 15000,
  STALL_MS = 10000,
  AHEAD_US = 500000, /* as in membership.py, as the next one */
  FIRST_LOOK_US = 5000000,
  OFFER_US = 250000,
  RETRY_US = 500000,
  WARM_US = 12000000, /* the first ones meet */
  STAYS_US = 6000000, /* at least, with the others before it goes */
  NORMAL_US = 200000, /* what an epoch's end takes: they do not see it at once, and the round */
  BESIDES_US = NORMAL_US + 300000,
  DEATH_US = NORMAL_US + 1500000,
  HEARSAY_US = NORMAL_US + 2000000, /* one of whom a record tells does not answer */
  RECORDS_US = 75000000,
  PATIENCE_US = 14000000, /* a round's stall, and a search */
  COMING_US = 2000000,
  COMING_EPOCHS = 2,  /* the one in which it comes, and the one that it makes; alone the others may take longer for each */
  CHASES_US = 4000000 /* where an epoch is no longer than a load, it may come late some times */
};

typedef enum phase { LOOKS, AWAITS, LOADS, TRAINS, STEPS } phase;
typedef enum going { POLITE, KILLED, UNPLUGGED, GOINGS } going;
static const char *const going_names[] = {"leaves", "is killed", "is unplugged"};

typedef struct room room;

typedef struct offering {
  hv_state_offer offer;
  state_copy copy;
  uint64_t lineage;
  int used, done;
} offering;

enum { OFFERS = 4 }; /* under way at once, of one node */

typedef struct trainer {
  room *r;
  size_t index;
  hv_peer_id id;
  hv_target initial[1];
  size_t n_initial;
  hv_env *env;
  hv_node *node; /* NULL: it does not live; so the next two */
  hv_average *average;
  hv_progress *progress;
  hv_command turn;
  int pending;
  phase phase;
  int apart, missed, seeks, done; /* seeks: its step is begun; done: and over */
  hv_status status;
  uint64_t epoch, lineage, samples, before, serial;
  uint64_t at_us, epoch_at_us, offered_us, wanted, until_us; /* its own clock */
  char epoch_text[24];
  float values[VALUES];
  hv_average_step step;
  hv_average_tensor tensor;
  int64_t shape;
  size_t n_members;
  int is_mine; /* its lineage is its group's */
  uint64_t became;
  offering offers[OFFERS];
  hv_state_load load;
  int loading, loaded;
  uint8_t *image;
  /* the checker's: the world's clock */
  uint64_t came_us, ready_us,
      since_us; /* ready_us, since_us: its epoch's end and begin; came_us: 0 once it has made a step with others */
} trainer;

struct room {
  swarm_run *run;
  trainer trainers[NODES_MAX];
  size_t n, first;   /* first: how many began */
  uint64_t epoch_us; /* of one that trains alone */
  hv_progress_terms terms;
  uint64_t went_us, unplugged_us; /* the last one; the last machine */
  going went;
  size_t gone; /* the last to go */
  uint64_t longest_us[GOINGS + 1], coming_us, n_coming;
};

static uint64_t below(room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

static uint64_t world(const trainer *t) {
  return hv_sim_now(t->r->run->sim);
}

static uint64_t now_of(const trainer *t) {
  return t->env->now_us(t->env);
}

static uint64_t mixed(uint64_t a, uint64_t b) {
  check_rng rng = {a * 31 + b};
  return check_random(&rng);
}

static uint64_t furthest(const room *r) {
  uint64_t epoch = 0;
  for (size_t i = 0; i < r->n; i++)
    epoch = r->trainers[i].epoch > epoch ? r->trainers[i].epoch : epoch;
  return epoch;
}

/* ---- what it says ---- */

static void say_own(void *arg, hv_progress_own *out) {
  trainer *t = arg;
  *out = (hv_progress_own){.any = !t->apart,
                           .epoch = t->epoch,
                           .samples = t->samples,
                           .before = t->before,
                           .speed = (double)BATCHES * 1e6 / (double)t->r->epoch_us,
                           .at_us = t->at_us,
                           .serial = t->serial,
                           .step = 1,
                           .paused = t->phase != TRAINS};
}

static void progress_ended(void *arg) {
  ((trainer *)arg)->progress = NULL;
}

static hv_progress_figures figures(trainer *t) {
  hv_progress_own own;
  hv_progress_figures out;
  say_own(t, &own);
  hv_progress_now(hv_progress_look(t->progress), &own, &t->r->terms, now_of(t), &out);
  return out;
}

static void begins_epoch(trainer *t, uint64_t epoch) {
  t->before = epoch == t->epoch + 1 ? t->samples : 0;
  t->epoch = epoch;
  t->samples = 0;
  t->serial++;
  t->at_us = t->epoch_at_us = now_of(t);
  t->since_us = world(t);
  t->ready_us = 0;
  t->phase = TRAINS;
}

static void steps_aside(trainer *t) {
  if (t->seeks && !t->done)
    hv_average_cancel(t->average, &t->step);
  hv_average_step_aside(t->average);
  hv_sim_say(t->r->run->sim, "n%zu steps aside in epoch %llu", t->index, (unsigned long long)t->epoch);
  t->apart = 1;
  t->samples = 0;
  hv_progress_wake(t->progress, 0);
  hv_state_withdraw(hv_node_state(t->node), hv_span_of("run", 3), 0);
  t->ready_us = 0;
}

static void enters(trainer *t, uint64_t epoch) {
  t->apart = t->missed = 0;
  hv_sim_say(t->r->run->sim, "n%zu enters epoch %llu", t->index, (unsigned long long)epoch);
  begins_epoch(t, epoch);
  hv_average_reached(t->average, epoch);
  hv_progress_wake(t->progress, 1);
}

/* ---- its state ---- */

static void was_offered(hv_state_offer *offer, hv_status status, const char *text) {
  (void)status;
  (void)text;
  ((offering *)offer->owner)->done = 1;
}

static void lets_go_of_offers(trainer *t) {
  for (size_t i = 0; i < OFFERS; i++) {
    offering *o = &t->offers[i];
    if (o->used && (!t->node || (o->done && o->copy.freed))) {
      state_copy_free(&o->copy);
      *o = (offering){0};
    }
  }
}

static void offers_state(trainer *t) {
  size_t i = 0;
  lets_go_of_offers(t);
  while (i < OFFERS && t->offers[i].used)
    i++;
  if (i == OFFERS)
    return;
  offering *o = &t->offers[i];
  *o = (offering){.used = 1, .lineage = t->lineage};
  state_copy_make(&o->copy, &t->r->run->mem, t->lineage, VALUES, HV_CODEC_NONE);
  o->offer = (hv_state_offer){.done = was_offered,
                              .owner = o,
                              .prefix = hv_span_of("run", 3),
                              .epoch = t->epoch,
                              .bytes = &o->copy.payload,
                              .parts = o->copy.parts,
                              .metadata = hv_span_of(&o->lineage, sizeof o->lineage)};
  if (hv_state_offer_start(hv_node_state(t->node), &o->offer, NULL) != HV_OK)
    o->done = 1;
  hv_payload_release(&o->copy.payload);
  t->offered_us = now_of(t);
}

static uint8_t *make_room(hv_state_load *load, const hv_manifest *manifest) {
  trainer *t = load->owner;
  hv_mem_free(t->image);
  return t->image = hv_mem_aligned(&t->r->run->mem, (size_t)manifest->image + 1);
}

static void was_loaded(hv_state_load *load, hv_status status, const char *text) {
  trainer *t = load->owner;
  t->loading = 0;
  t->loaded = status == HV_OK;
  hv_sim_say(t->r->run->sim, "n%zu: its load of epoch %llu or later: %s %s", t->index, (unsigned long long)t->load.epoch_least,
             hv_status_name(status), text);
  if (status != HV_OK || load->manifest->metadata.size != sizeof t->lineage)
    return;
  memcpy(&t->lineage, load->manifest->metadata.data, sizeof t->lineage);
  t->wanted = load->manifest->epoch;
}

static void begins_load(trainer *t) {
  t->phase = LOADS;
  t->until_us = 0;
  t->loaded = 0;
  t->load = (hv_state_load){.done = was_loaded,
                            .room = make_room,
                            .owner = t,
                            .prefix = hv_span_of("run", 3),
                            .timeout_ms = 60000,
                            .epoch_least = t->wanted};
  t->loading = hv_state_load_start(hv_node_state(t->node), &t->load, NULL) == HV_OK;
}

/* ---- its steps ---- */

static void step_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  trainer *t = step->owner;
  size_t mine = 0;
  uint64_t most = 0, best = 0;
  t->done = 1;
  t->status = status;
  t->n_members = outcome->n_members;
  for (size_t i = 0; i < outcome->n_members; i++) { /* the lineage of most, or the greater one */
    uint64_t word = 0, alike = 0, other;
    if (outcome->members[i].gather.size != sizeof word)
      continue;
    memcpy(&word, outcome->members[i].gather.data, sizeof word);
    for (size_t j = 0; j < outcome->n_members; j++)
      if (outcome->members[j].gather.size == sizeof other) {
        memcpy(&other, outcome->members[j].gather.data, sizeof other);
        alike += other == word;
      }
    if (alike > most || (alike == most && word > best)) {
      most = alike;
      best = word;
    }
    mine += outcome->members[i].me;
  }
  t->is_mine = mine && best == t->lineage;
  t->became = mixed(best, outcome->stamp);
  hv_sim_say(t->r->run->sim, "n%zu: epoch %llu: %s %s (%zu members)", t->index, (unsigned long long)t->epoch,
             hv_status_name(status), text, t->n_members);
}

static void seeks(trainer *t, uint64_t left_us) {
  hv_error err = {0};
  if (t->seeks)
    return;
  int n = snprintf(t->epoch_text, sizeof t->epoch_text, "%llu", (unsigned long long)t->epoch);
  t->done = 0;
  t->step = (hv_average_step){.done = step_done,
                              .owner = t,
                              .epoch = hv_span_of(t->epoch_text, (size_t)n),
                              .weight = (float)t->samples + 1,
                              .gather = hv_span_of(&t->lineage, sizeof t->lineage),
                              .wait_ms = MATCHMAKING_MS + (uint32_t)(left_us / 1000),
                              .timeout_ms = TIMEOUT_MS + (uint32_t)(left_us / 1000),
                              .require_trigger = 1};
  t->seeks = hv_average_start(t->average, &t->step, &err) == HV_OK;
  if (!t->seeks)
    swarm_fail(t->r->run, "n%zu could not begin a step: %s", t->index, err.text);
}

/* A machine is gone, and its records still tell of it. */
static int tells_of_dead(const room *r) {
  return r->unplugged_us && hv_sim_now(r->run->sim) < r->unplugged_us + RECORDS_US;
}

/* How long it waited, and whether it may: longer only after somebody went. Its work in the epoch is done again by the
 * others; and of a machine that is gone newcomers hear as long as its records live. */
static void checker_wait(trainer *t) {
  room *r = t->r;
  uint64_t now = world(t), took = now - t->ready_us, most = BESIDES_US;
  if (!r->went_us)
    return; /* the first ones meet */
  int after = t->ready_us < r->went_us + PATIENCE_US;
  if (after && r->went == UNPLUGGED)
    most = PATIENCE_US;
  else if (tells_of_dead(r))
    most = HEARSAY_US;
  else if (after && r->went == KILLED)
    most = DEATH_US;
  if (after && t->since_us < r->went_us)
    most += r->epoch_us / 2;
  size_t kind = after ? r->went : GOINGS;
  if (took > r->longest_us[kind])
    r->longest_us[kind] = took;
  if (took > most)
    swarm_fail(r->run, "n%zu waited %.3f s at the end of epoch %llu, at %.3f s; the last to go %s at %.3f s", t->index,
               (double)took * 1e-6, (unsigned long long)t->epoch, (double)now * 1e-6, going_names[r->went],
               (double)r->went_us * 1e-6);
}

static void checker_coming(trainer *t) {
  room *r = t->r;
  uint64_t took = world(t) - t->came_us, most = COMING_US + COMING_EPOCHS * r->first * r->epoch_us;
  if (r->epoch_us < 1000000)
    most += CHASES_US;
  if (tells_of_dead(r))
    most += PATIENCE_US;
  r->coming_us += took;
  r->n_coming++;
  if (took > most)
    swarm_fail(r->run, "n%zu made its first step with others after %.3f s", t->index, (double)took * 1e-6);
  t->came_us = 0;
}

static void makes_step(trainer *t) {
  int together = t->seeks && t->status == HV_OK && t->n_members > 1;
  checker_wait(t);
  if (t->seeks && t->status == HV_EXISTS) {
    t->seeks = 0;
    t->missed = 1;
    t->wanted = t->epoch + 1;
    t->phase = TRAINS;
    return;
  }
  if (together && t->came_us)
    checker_coming(t);
  t->missed = together && !t->is_mine;
  t->lineage = together ? t->became : mixed(t->lineage, t->index * 1000 + t->epoch);
  t->seeks = 0;
  uint64_t next = t->epoch + 1, took = now_of(t) - t->epoch_at_us, every = 1;
  while (every * took < OFFER_US)
    every *= 2;
  begins_epoch(t, next);
  hv_average_reached(t->average, next);
  hv_progress_wake(t->progress, 0);
  if (!t->missed && (next % every == 0 || hv_average_awaits(t->average, next)))
    offers_state(t);
  t->wanted = next;
}

/* ---- its turns ---- */

/* Its step has a group, or looks for one. */
static int has_begun(const trainer *t) {
  return t->seeks && (!t->done || t->status == HV_OK);
}

static int forms_groups(const room *r, const hv_progress_figures *now) {
  return now->eta_us <= AHEAD_US || 2 * now->samples >= (double)r->terms.target;
}

/* membership.py's _await_next_epoch. */
static void goes_to_load(trainer *t) {
  hv_progress_figures now = figures(t);
  if (now.epoch > t->wanted)
    t->wanted = now.epoch;
  if (now.n_peers < 1 || !forms_groups(t->r, &now)) {
    begins_load(t);
    return;
  }
  uint64_t eta = now.eta_us == HV_PROGRESS_NEVER ? 0 : now.eta_us;
  t->wanted = now.epoch + 1;
  hv_average_comes(t->average, t->wanted);
  t->phase = AWAITS;
  t->until_us = now_of(t) + (eta < MATCHMAKING_MS * 1000 ? eta : MATCHMAKING_MS * 1000);
}

static void trains(trainer *t) {
  room *r = t->r;
  uint64_t now = now_of(t);
  hv_progress_figures f = figures(t);
  int late = f.standing == HV_PROGRESS_LATE && !has_begun(t);
  if (t->missed || f.standing == HV_PROGRESS_BEHIND || late) {
    steps_aside(t);
    goes_to_load(t);
    return;
  }
  uint64_t batches = (now - t->at_us) * BATCHES / r->epoch_us;
  if (batches) {
    t->samples += batches;
    t->at_us += batches * r->epoch_us / BATCHES;
    hv_progress_wake(t->progress, 0);
    f = figures(t);
  }
  if (f.match && f.n_peers > 1 && forms_groups(r, &f))
    seeks(t, f.eta_us == HV_PROGRESS_NEVER ? 0 : f.eta_us);
  if (!f.ready)
    return;
  t->phase = STEPS;
  t->ready_us = world(t);
  hv_sim_say(r->run->sim, "n%zu: epoch %llu is over, %.0f samples of %zu peers", t->index, (unsigned long long)t->epoch, f.samples,
             f.n_peers);
  if (f.n_peers <= 1) { /* alone */
    if (t->seeks && !t->done)
      hv_average_cancel(t->average, &t->step);
    t->until_us = 1;
    return;
  }
  t->until_us = 0;
  t->seeks = has_begun(t);
  seeks(t, 0);
  if (t->seeks && !t->done)
    hv_average_trigger(t->average, &t->step);
}

static void looks(trainer *t) {
  const hv_progress_view *view = hv_progress_look(t->progress);
  hv_progress_figures f = figures(t);
  if (f.epoch > t->epoch && f.n_peers)
    goes_to_load(t);
  else if (view->fetched || now_of(t) > t->until_us)
    enters(t, t->epoch);
}

static void open_all(trainer *t) {
  hv_error err = {0};
  hv_progress_config progress = {
      .prefix = hv_span_of("run", 3), .terms = t->r->terms, .own = say_own, .ended = progress_ended, .arg = t};
  t->shape = VALUES;
  t->tensor = (hv_average_tensor){{t->values, HV_DTYPE_FLOAT32, VALUES, HV_CODEC_NONE, NULL, 0, 0}, &t->shape, 1};
  hv_average_config average = {
      .prefix = hv_span_of("grads", 5), .tensors = &t->tensor, .n_tensors = 1, .alpha = 1, .stall_ms = STALL_MS, .apart = 1};
  t->apart = 1;
  t->phase = LOOKS;
  t->at_us = now_of(t);
  t->until_us = t->at_us + FIRST_LOOK_US;
  if (hv_progress_open(hv_node_progress(t->node), &progress, &t->progress, &err) != HV_OK ||
      hv_average_new(hv_node_averages(t->node), &average, &t->average, &err) != HV_OK)
    swarm_fail(t->r->run, "n%zu: %s", t->index, err.text);
}

static void takes_turn(hv_command *command, void *core) {
  trainer *t = (trainer *)((char *)command - offsetof(trainer, turn));
  t->pending = 0;
  if (!core || !t->node)
    return;
  if (!t->average && t->n_initial && !hv_peers_alive(hv_node_peers(t->node)))
    return; /* as a program that waits for its DHT */
  if (!t->average)
    open_all(t);
  if (!t->progress)
    return; /* its node ends */
  switch (t->phase) {
  case LOOKS:
    looks(t);
    break;
  case AWAITS:
    if (now_of(t) >= t->until_us || figures(t).epoch >= t->wanted)
      begins_load(t);
    break;
  case LOADS:
    if (t->loaded)
      enters(t, t->wanted);
    else if (!t->loading && !t->until_us)
      t->until_us = now_of(t) + RETRY_US;
    else if (!t->loading && now_of(t) > t->until_us)
      goes_to_load(t);
    break;
  case TRAINS:
    trains(t);
    if (t->phase == TRAINS && !t->apart && now_of(t) - t->offered_us > OFFER_US && t->offered_us < t->epoch_at_us)
      offers_state(t);
    break;
  case STEPS:
    if ((!t->seeks && t->until_us) || t->done)
      makes_step(t);
  }
}

static void tick(hv_sim *sim, void *arg) {
  room *r = arg;
  for (size_t i = 0; i < r->n; i++) {
    trainer *t = &r->trainers[i];
    if (t->pending || !hv_sim_alive(sim, i))
      continue;
    t->turn = (hv_command){.run = takes_turn};
    t->pending = hv_sim_command(sim, i, &t->turn) == HV_OK;
  }
  hv_sim_at(sim, hv_sim_now(sim) + TURN_US, tick, r);
}

/* ---- nodes ---- */

static void step_node(void *self, const hv_event *event) {
  hv_node_step(((trainer *)self)->node, event);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  trainer *t = arg;
  hv_node_config config = {.me = t->id, .initial = t->initial, .n_initial = t->n_initial, .hello_every_ms = 2000};
  *out = (hv_core){t, step_node};
  t->env = env;
  return hv_node_new(env, &config, &t->node);
}

static void let_go(void *self) {
  trainer *t = self;
  hv_node_free(t->node);
  t->node = NULL;
  t->average = NULL;
  t->progress = NULL;
  lets_go_of_offers(t);
  hv_mem_free(t->image);
  t->image = NULL;
}

static int stays(const room *r, size_t i) {
  return i < hv_sim_nodes(r->run->sim) && hv_sim_alive(r->run->sim, i) && i != r->gone;
}

/* By the address of any that stays. */
static void sit(room *r, size_t i) {
  trainer *t = &r->trainers[i];
  *t = (trainer){.r = r, .index = i, .id = hv_sim_target(r->run->sim, i).id, .pending = t->pending, .turn = t->turn};
  for (size_t k = 0, at = r->n ? below(r, r->n) : 0; k < r->n && !t->n_initial; k++, at = (at + 1) % r->n)
    if (stays(r, at))
      t->initial[t->n_initial++] = hv_sim_target(r->run->sim, at);
  t->came_us = hv_sim_now(r->run->sim);
}

static void add(room *r) {
  hv_sim_node_config seat = {.make = make, .free = let_go, .arg = &r->trainers[r->n]};
  sit(r, r->n++);
  if (hv_sim_add(r->run->sim, &seat, NULL) != HV_OK)
    swarm_fail(r->run, "no memory for a node");
}

static void come_again(room *r, size_t i) {
  sit(r, i);
  hv_sim_restart(r->run->sim, i);
}

/* ---- who goes, and comes ---- */

static void run_for(room *r, uint64_t us) {
  hv_sim_run_until(r->run->sim, hv_sim_now(r->run->sim) + us);
}

static void one_goes_and_comes(room *r) {
  static const uint64_t gaps_us[] = {0, 50000, 1000000, 6000000, 30000000, 120000000};
  hv_sim *sim = r->run->sim;
  size_t i = below(r, r->n);
  while (!hv_sim_alive(sim, i))
    i = (i + 1) % r->n;
  r->went = below(r, 8) ? (going)below(r, 2) : UNPLUGGED;
  r->went_us = hv_sim_now(sim);
  r->gone = i;
  if (r->went == UNPLUGGED)
    r->unplugged_us = r->went_us + 1;
  uint64_t gap_us = gaps_us[below(r, below(r, 4) ? 4 : 6)];
  int anew = (r->went == UNPLUGGED || below(r, 2)) && r->n < NODES_MAX;
  hv_sim_say(sim, "n%zu %s, and comes again %.2f s later%s", i, going_names[r->went], (double)gap_us * 1e-6,
             anew ? " as another" : "");
  if (r->went == POLITE)
    hv_sim_stop(sim, i);
  else
    (r->went == KILLED ? hv_sim_kill : hv_sim_unplug)(sim, i);
  run_for(r, gap_us);
  while (!anew && hv_sim_alive(sim, i)) /* its goodbye is under way */
    run_for(r, TURN_US);
  if (anew)
    add(r);
  else
    come_again(r, i);
  run_for(r, 2 * r->epoch_us + STAYS_US + below(r, STAYS_US) + (r->went == UNPLUGGED ? PATIENCE_US : 0));
}

static void checker_rest(room *r) {
  for (size_t i = 0; i < r->n; i++)
    if (r->trainers[i].node && r->trainers[i].came_us)
      swarm_fail(r->run, "n%zu came %.3f s ago, and has made no step with others", i,
                 (double)(hv_sim_now(r->run->sim) - r->trainers[i].came_us) * 1e-6);
}

void swarm_comings_play(swarm_run *run) {
  static const uint64_t epochs_us[] = {300000, 1000000, 3000000, 5000000};
  static room r;
  r = (room){.run = run, .gone = NODES_MAX};
  r.epoch_us = epochs_us[below(&r, 4)];
  r.first = 2 + below(&r, run->options->nodes - 1); /* 2 to `nodes`, of which one goes */
  r.terms = (hv_progress_terms){.target = BATCHES * r.first, .batch_size_lead = 0, .matchmaking_ms = MATCHMAKING_MS};
  if (hv_progress_check(&r.terms, NULL) != HV_OK)
    swarm_fail(run, "the terms are not valid");
  hv_sim_link link = {.delay_us = r.epoch_us / 300, .jitter_us = r.epoch_us / 1500}; /* who is far apart has no short epochs */
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  hv_sim_say(run->sim, "%zu peers, epochs of %.1f s", r.first, (double)r.epoch_us * 1e-6);
  for (size_t i = 0; i < r.first; i++)
    add(&r);
  hv_sim_at(run->sim, TURN_US, tick, &r);
  run_for(&r, WARM_US + 4 * r.epoch_us);
  for (size_t i = 0; i < r.first; i++)
    r.trainers[i].came_us = 0;
  for (int cycle = 0; cycle < CYCLES && !run->failure[0]; cycle++) {
    one_goes_and_comes(&r);
    checker_rest(&r);
  }
  swarm_figure(run, "epochs", (double)furthest(&r));
  swarm_figure(run, "waits_polite_s", (double)r.longest_us[POLITE] * 1e-6);
  swarm_figure(run, "waits_killed_s", (double)r.longest_us[KILLED] * 1e-6);
  swarm_figure(run, "waits_unplugged_s", (double)r.longest_us[UNPLUGGED] * 1e-6);
  swarm_figure(run, "waits_else_s", (double)r.longest_us[GOINGS] * 1e-6);
  swarm_figure(run, "coming_s", r.n_coming ? (double)r.coming_us * 1e-6 / (double)r.n_coming : 0);
  swarm_over(run);
}
