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
 * pretender.c judges steps by oneself in each event. */
#include "core/progress/zones.h"
#include "lib/check.h"
#include "lib/pretender.h"
#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <string.h>

enum {
  NODES_MAX = 72,
  CYCLES = 4,
  TURN_US = 10000,
  BATCHES = 8, /* of a peer in an epoch that it makes alone */
  SAMPLES = 4, /* of a batch */
  MATCHMAKING_US = 2000000,
  AVERAGING_US = 15000000,
  LOAD_MS = 60000,
  WARM_US = 12000000, /* the first ones meet */
  STAYS_US = 6000000, /* at least, with the others before it goes */
  NORMAL_US = 200000, /* what an epoch's end takes: they do not see it at once, and the round */
  BESIDES_US = NORMAL_US + 500000,
  SUMS_US = 1500000, /* in a swarm wider than a leaf the count is of sums, which come each half second or two */
  DEATH_US = NORMAL_US + 1500000,
  HEARSAY_US = NORMAL_US + 2000000, /* one of whom a record tells does not answer */
  UNFIT_US = 6000000,               /* a round in which nobody has a gradient that is finite fails, at some sooner than at others */
  RECORDS_US = 75000000,
  PATIENCE_US = AVERAGING_US + 1000000, /* a round, of which a member is gone */
  COMING_US = 2000000,
  COMING_EPOCHS = 2,
  WRONG_US =
      3 * HV_EPOCH_MOST_WRONG_US, /* left out by one that waits alone, it is back after 30 s; then the other one may be left out */
  HEARS_US = 10000000,            /* who cannot be dialled hears of a newcomer by its own searches alone */
  CHASES_US = 20000000,           /* where an epoch is hardly longer than a load, it may come late some times */
  DIFFER_US = 6000000,            /* replicas that differ are one again, besides some epochs */
  COUNTS_US = 15000000,           /* a search takes place each 10 s at least */
  LOADS_US = 3000000,             /* a state that is on offer is found and loaded */
  LOST_STEPS = 2,     /* of the newest state: one that goes may have ended an epoch, and stepped late, before all others */
  ENDINGS = 16,       /* epochs that some of the first have ended, and others have not */
  CALM_US = 100000000 /* after the last fault: declarations end, the lost are found */
};

typedef enum play {
  PLAIN,
  LOCAL, /* each batch is a step */
  ODD,   /* gradients that are not finite, and states of which only averages are offered */
  LONE   /* the same, and who is alone waits */
} play;

typedef enum going { POLITE, KILLED, UNPLUGGED, GOINGS } going;
static const char *const going_names[] = {"leaves", "is killed", "is unplugged"};

typedef struct room room;

typedef struct member {
  pretender program;
  room *r;
  hv_command turn;
  int pending;
  hv_epoch_state state; /* when the checker looked last; since then: */
  uint64_t since_us, told_us, entered_us;
  uint64_t told, serial;
  int has_come;
  unsigned lives;
  uint64_t skipped;  /* epochs that it counted without a step */
  uint64_t endings;  /* 1 + the latest epoch whose end was seen */
  int has_averaged;  /* that one */
  uint64_t could_us; /* since when it is aside while a state that it seeks is on offer */
} member;

/* An epoch that the first peers end, and average. */
typedef struct ending {
  uint64_t epochs;      /* 1 + its number */
  size_t n, n_averaged; /* of the first: those who end it, counting all; those who averaged it with all */
  int differ;
  hv_mark mark;
} ending;

struct room {
  swarm_run *run;
  member seats[NODES_MAX];
  size_t clients;  /* that only dial out, of those that began */
  size_t n, first; /* first: trainers that began */
  uint64_t epoch_us, models;
  pretender_program program;
  uint64_t went_us, unplugged_us, apart_us;
  uint64_t again_us; /* in which the slowest of the others makes the samples of the one that went */
  going went;
  size_t gone, goes; /* goes: it says goodbye; SIZE_MAX */
  uint64_t longest_us[GOINGS + 1], coming_us, n_coming, epochs;
  uint64_t loads_us; /* the longest that a state on offer was waited for */
  double newest;     /* most steps behind a state that the swarm ever had */
  uint64_t skipped;  /* epochs that some peer counted without a step */
  uint64_t n_alike;  /* epochs from which all of the first were judged to be alike */
  uint64_t together; /* 1 + the first epoch that all of them averaged together */
  ending endings[ENDINGS];
};

static uint64_t below(room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

static uint64_t world(const room *r) {
  return hv_sim_now(r->run->sim);
}

static int is_faulty(const room *r) {
  return r->run->options->faults != 0 && world(r) < r->run->calm_us + CALM_US;
}

static int lives(const room *r, size_t i) {
  return hv_sim_alive(r->run->sim, i) && r->seats[i].program.driver && !r->seats[i].program.is_leaving;
}

static int helps(const room *r, size_t i) {
  return r->seats[i].program.program.options.auxiliary;
}

/* ---- the checker ---- */

static int is_out(const member *s) {
  hv_epoch_state state = pretender_look(&s->program)->state;
  return state != HV_EPOCH_GATHERING && state != HV_EPOCH_ENDING;
}

/* A machine is gone, and its records still tell of it. */
static int tells_of_dead(const room *r) {
  return r->unplugged_us && world(r) < r->unplugged_us + RECORDS_US;
}

static void checks_machine(room *r, size_t i) {
  const pretender *p = &r->seats[i].program;
  const hv_epoch *e = pretender_look(p);
  if (p->failure[0])
    swarm_fail(r->run, "%s", p->failure);
  if (e->moves_wrong)
    swarm_fail(r->run, "n%zu has made a move that the table does not allow, to %s", i, hv_epoch_state_name(e->state));
  if (e->lost_orders)
    swarm_fail(r->run, "n%zu has lost %zu orders", i, e->lost_orders);
  if (!hv_epoch_ledger_holds(e->ledger) ||
      e->ledger->produced + (e->is_here && e->state == HV_EPOCH_LOOKING ? e->held : 0) != p->produced)
    swarm_fail(r->run, "n%zu has made %llu samples, and %llu are accounted", i, (unsigned long long)p->produced,
               (unsigned long long)e->ledger->produced);
}

/* No wait is longer than the table of epoch.h allows, each with a turn's time more. */
static void checks_wait(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  uint64_t took = now - s->since_us, most = 0;
  switch (e->state) {
  case HV_EPOCH_LOOKING:
    most = e->is_here ? HV_EPOCH_MOST_SWARM_US + HV_EPOCH_MOST_LOOK_US + HV_EPOCH_MOST_GONE_US : 0;
    break;
  case HV_EPOCH_ENDING: /* a late lane, and two rounds */
    most = 4 * (AVERAGING_US + MATCHMAKING_US) + 2000000;
    break;
  case HV_EPOCH_COMING:
    most = MATCHMAKING_US + AVERAGING_US + 2000000;
    break;
  case HV_EPOCH_LOADING:
    most = LOAD_MS * UINT64_C(1000) + 5000000;
    break;
  default:
    break;
  }
  if (most && r->run->options->faults & SWARM_PAUSE)
    most += 63000000; /* it may stand still three times */
  if (most && took > most)
    swarm_fail(r->run, "n%zu has been %s for %.1f s, waiting for %s", i, hv_epoch_state_name(e->state), (double)took * 1e-6,
               hv_epoch_wait_name(hv_epoch_waits(e)));
}

static int is_wide(const room *r) {
  size_t n = 0;
  for (size_t i = 0; i < r->n; i++)
    n += hv_sim_alive(r->run->sim, i) && !r->seats[i].program.program.client;
  return n > HV_ZONES_LEAF;
}

static void checks_end(room *r, size_t i, uint64_t took) {
  uint64_t most = BESIDES_US, now = world(r);
  if (!r->went_us || r->run->options->faults)
    return; /* the first ones meet */
  int after = now - took < r->went_us + PATIENCE_US;
  if (after && r->went == UNPLUGGED)
    most = PATIENCE_US;
  else if (tells_of_dead(r))
    most = HEARSAY_US;
  else if (after && r->went == KILLED)
    most = DEATH_US;
  most += 2 * r->program.batch_us; /* a peer sees the end when its batch ends */
  most += is_wide(r) ? SUMS_US : 0;
  most += r->program.fails > 0 ? UNFIT_US : 0;
  most += r->clients ? HEARS_US : 0;
  if (after)
    most += r->epoch_us / 2;
  if (after && now - took < r->went_us + DEATH_US && r->again_us > r->epoch_us / 2) /* it had ended the epoch with these samples */
    most += r->again_us - r->epoch_us / 2;
  size_t kind = after ? r->went : GOINGS;
  r->longest_us[kind] = took > r->longest_us[kind] ? took : r->longest_us[kind];
  if (took > most)
    swarm_fail(r->run, "n%zu waited %.3f s at an epoch's end, at %.3f s; the last to go %s at %.3f s", i, (double)took * 1e-6,
               (double)now * 1e-6, going_names[r->went], (double)r->went_us * 1e-6);
}

/* The epoch in which it comes, and the one that it makes; with one peer less they take longer. With local updates peers meet where
 * the state is averaged. */
static uint64_t coming_most_us(const room *r) {
  const hv_epoch_options *o = &r->program.options;
  uint64_t most =
      COMING_US + (COMING_EPOCHS + (o->use_local_updates || r->program.differs ? o->average_state_every : 1)) * 2 * r->epoch_us;
  most += r->epoch_us < 1000000 ? CHASES_US : 0;
  most += r->program.company == HV_EPOCH_ALONE_TRAINS ? 0 : WRONG_US;
  most += r->clients ? HEARS_US : 0;
  return most + (tells_of_dead(r) ? 2 * PATIENCE_US : 0); /* a round without it, and a search */
}

static void checks_coming(room *r, size_t i) {
  member *s = &r->seats[i];
  uint64_t took = world(r) - s->program.came_us, most = coming_most_us(r);
  s->has_come = 1;
  if (r->run->options->faults || !r->went_us)
    return;
  r->coming_us += took;
  r->n_coming++;
  if (took > most)
    swarm_fail(r->run, "n%zu made its first step with others after %.3f s", i, (double)took * 1e-6);
}

/* No epoch is taken back but one whose late round left this peer out, and the replica has the steps of all epochs before it. */
static void checks_epoch(room *r, size_t i) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  uint64_t skipped = s->program.tells[HV_EPOCH_SAYS_NO_STEP];
  r->skipped += skipped - s->skipped;
  if (skipped != s->skipped) /* no average: each marks the epoch by its own name, and the next round judges */
    r->together = 0;
  s->skipped = skipped;
  if (e->told + 1 < s->told)
    swarm_fail(r->run, "n%zu was in epoch %llu, and is in %llu", i, (unsigned long long)s->told, (unsigned long long)e->told);
  double steps = pretender_steps(&s->program) + (double)r->skipped;
  if (!helps(r, i) && e->lineage->is_kept && pretender_rests(&s->program) && steps + 0.5 < (double)e->told)
    swarm_fail(r->run, "n%zu is in epoch %llu with a state of %.1f steps", i, (unsigned long long)e->told,
               pretender_steps(&s->program));
}

static void sees_moves(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  if (s->lives != s->program.lives) {
    s->lives = s->program.lives;
    s->has_come = 0;
    s->told_us = s->since_us = s->could_us = now;
    s->skipped = s->endings = 0;
    s->told = e->told;
  }
  checks_epoch(r, i);
  if (e->told != s->told) {
    s->told_us = now;
    r->epochs += e->told == s->told + 1;
    s->told = e->told;
  }
  if (e->state != s->state) {
    hv_sim_say(r->run->sim, "n%zu: %s in epoch %llu, made %lld, mark %02x%02x%s", i, hv_epoch_state_name(e->state),
               (unsigned long long)e->told, (long long)e->made, e->lineage->mark.bytes[0], e->lineage->mark.bytes[1],
               e->lineage->is_wrong ? " (wrong)" : "");
    if (s->state == HV_EPOCH_ENDING && e->state == HV_EPOCH_GATHERING && !helps(r, i))
      checks_end(r, i, now - s->since_us);
    int was_out = s->state != HV_EPOCH_GATHERING && s->state != HV_EPOCH_ENDING;
    s->state = e->state;
    s->since_us = now;
    if (was_out && !is_out(s))
      s->entered_us = now;
  }
  if ((e->has_met || e->end.state_averaged) && !s->has_come)
    checks_coming(r, i);
}

/* Equal marks are equal bits. */
static void checks_bits(room *r) {
  for (size_t i = 0; i < r->n; i++) {
    if (!lives(r, i) || helps(r, i) || !pretender_rests(&r->seats[i].program))
      continue;
    const pretender *a = &r->seats[i].program;
    for (size_t k = i + 1; k < r->n; k++) {
      const pretender *b = &r->seats[k].program;
      if (lives(r, k) && !helps(r, k) && pretender_rests(b) && pretender_look(a)->lineage->is_kept &&
          hv_mark_equal(&pretender_look(a)->lineage->mark, &pretender_look(b)->lineage->mark) &&
          memcmp(a->model, b->model, sizeof a->model) != 0)
        swarm_fail(r->run, "n%zu in epoch %llu and n%zu in %llu have one mark, and other bits", i,
                   (unsigned long long)pretender_look(a)->told, k, (unsigned long long)pretender_look(b)->told);
    }
  }
}

/* Those in the furthest epoch hold one replica, or soon do. */
static void checks_one_replica(room *r, uint64_t now) {
  const hv_epoch *one = NULL;
  int differ = 0;
  uint64_t most = 0;
  for (size_t i = 0; i < r->n; i++)
    if (lives(r, i) && !helps(r, i) && pretender_look(&r->seats[i].program)->told > most)
      most = pretender_look(&r->seats[i].program)->told;
  for (size_t i = 0; i < r->n; i++) {
    const hv_epoch *e = lives(r, i) && !helps(r, i) ? pretender_look(&r->seats[i].program) : NULL;
    if (!e || !e->lineage->is_kept || !e->has_met || e->told != most || !pretender_rests(&r->seats[i].program))
      continue;
    differ += one && !hv_mark_equal(&e->lineage->mark, &one->lineage->mark);
    one = e;
  }
  if (!differ)
    r->apart_us = now;
  if (!is_faulty(r) && now > r->apart_us + DIFFER_US + 4 * r->first * r->epoch_us)
    swarm_fail(r->run, "peers in epoch %llu hold different replicas since %.1f s", (unsigned long long)most,
               (double)r->apart_us * 1e-6);
  if (is_faulty(r))
    r->apart_us = now;
}

/* The newest state of the swarm is never lost: somebody has as many steps as ever, but for those of one that went. */
static void checks_newest(room *r) {
  double newest = 0;
  size_t n = 0;
  for (size_t i = 0; i < r->n; i++)
    if (lives(r, i)) {
      double steps = pretender_steps(&r->seats[i].program);
      newest = steps > newest ? steps : newest;
      n++;
    }
  if (r->program.options.use_local_updates) /* replicas differ on purpose, and their averages have means of steps */
    return;
  if (!is_faulty(r) && n && newest + LOST_STEPS < r->newest)
    swarm_fail(r->run, "the newest state had %.1f steps, and nobody has more than %.1f", r->newest, newest);
  if (is_faulty(r) || newest > r->newest)
    r->newest = newest;
}

/* Peers that began together are alike once all have averaged an epoch together: from the next one on that each ends counting all.
 */
static void checks_ending(room *r, const pretender_ending *p, ending *end) {
  if (p->counted < r->first)
    return;
  end->differ |= !hv_mark_equal(&end->mark, &p->mark);
  if (++end->n < r->first || !r->together || p->epochs <= r->together)
    return;
  r->n_alike++;
  if (end->differ)
    swarm_fail(r->run, "those who began together and averaged epoch %llu end %llu with different replicas",
               (unsigned long long)r->together - 1, (unsigned long long)p->epochs - 1);
}

static void checks_alike(room *r, size_t i) {
  member *s = &r->seats[i];
  const pretender_ending *p = &s->program.ending;
  ending *end = &r->endings[p->epochs % ENDINGS];
  if (r->went_us || r->run->options->faults || !pretender_look(&s->program)->lineage->is_kept)
    return;
  if (p->epochs > s->endings) {
    s->endings = p->epochs;
    s->has_averaged = 0;
    if (end->epochs != p->epochs)
      *end = (ending){.epochs = p->epochs, .mark = p->mark};
    checks_ending(r, p, end);
  }
  if (p->epochs == s->endings && p->averaged == r->first && !s->has_averaged) {
    s->has_averaged = 1;
    if (++end->n_averaged == r->first && !r->together)
      r->together = p->epochs;
  }
}

/* More than half of all offers are of this epoch or a later one, and offers of one epoch are of one state. */
static int is_on_offer(const room *r, size_t to, uint64_t least) {
  hv_mark marks[NODES_MAX];
  uint64_t epochs[NODES_MAX];
  size_t n = 0, n_older = 0;
  for (size_t i = 0; i < r->n; i++) {
    const pretender *p = &r->seats[i].program;
    uint64_t epoch = helps(r, i) ? p->keep.held.epoch : lives(r, i) ? pretender_look(p)->offered : HV_EPOCH_NONE;
    if (i == to || !lives(r, i) || p->program.client || epoch == HV_EPOCH_NONE || (helps(r, i) && !p->keep.holds))
      continue;
    if (epoch < least)
      n_older++;
    else {
      epochs[n] = epoch;
      marks[n++] = p->offered;
    }
  }
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < i; k++)
      if (epochs[i] == epochs[k] && !hv_mark_equal(&marks[i], &marks[k]))
        return 0;
  return n > n_older;
}

/* A peer that counts another can get its state: it is not aside for long while the one that it seeks is on offer. */
static void checks_loads(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  uint64_t least = e->wanted > e->told ? e->wanted : e->told, took = now - s->could_us;
  int is_aside = e->state == HV_EPOCH_COMING || e->state == HV_EPOCH_LOADING || e->state == HV_EPOCH_RESTING;
  if (is_faulty(r) || !is_aside || !hv_epoch_driver_figures(s->program.driver)->n_peers ||
      !is_on_offer(r, i, hv_epoch_state_epoch(&e->config.options, least))) {
    s->could_us = now;
    return;
  }
  r->loads_us = took > r->loads_us ? took : r->loads_us;
  uint64_t most = LOADS_US + (tells_of_dead(r) ? PATIENCE_US : 0) + (r->clients ? HEARS_US : 0);
  if (took > most)
    swarm_fail(r->run, "n%zu is %s for %.1f s while the state of epoch %llu, which it seeks, is on offer", i,
               hv_epoch_state_name(e->state), (double)took * 1e-6, (unsigned long long)least);
}

/* Nobody is left in an epoch that the others have ended long ago. */
static void checks_left(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  uint64_t most = 8 * r->epoch_us * r->first + LOAD_MS * UINT64_C(1000) + PATIENCE_US;
  int waits = s->program.program.company != HV_EPOCH_ALONE_TRAINS && hv_epoch_driver_figures(s->program.driver)->n_peers <= 1;
  if (is_faulty(r) || waits)
    s->told_us = now;
  else if (now > s->told_us + most)
    swarm_fail(r->run, "n%zu is in epoch %llu since %.1f s", i, (unsigned long long)s->told, (double)s->told_us * 1e-6);
}

/* Once nobody has come or gone for a while, each counts all others, but for one in sixteen where the count is of sums of several
 * moments; who has gone may count as long as its record lasts. */
static void checks_counts(room *r, uint64_t now) {
  size_t n = 0;
  if (is_faulty(r) || now < r->went_us + COUNTS_US)
    return;
  for (size_t i = 0; i < r->n; i++) {
    const member *s = &r->seats[i];
    if (!lives(r, i) || helps(r, i))
      continue;
    if (is_out(s) || now < s->entered_us + COUNTS_US)
      return;
    n++;
  }
  for (size_t i = 0; i < r->n; i++) {
    if (!lives(r, i) || helps(r, i))
      continue;
    size_t counts = hv_epoch_driver_figures(r->seats[i].program.driver)->n_peers;
    if (counts < n - n / 16 || (counts > n && now > r->went_us + RECORDS_US))
      swarm_fail(r->run, "n%zu counts %zu peers, and %zu train", i, counts, n);
  }
}

static void checks(room *r) {
  uint64_t now = world(r);
  for (size_t i = 0; i < r->n; i++) {
    if (!lives(r, i) || hv_sim_paused(r->run->sim, i))
      continue;
    sees_moves(r, i, now);
    if (helps(r, i))
      continue;
    checks_machine(r, i);
    checks_wait(r, i, now);
    checks_left(r, i, now);
    checks_alike(r, i);
    checks_loads(r, i, now);
  }
  checks_newest(r);
  checks_bits(r);
  checks_one_replica(r, now);
  checks_counts(r, now);
}

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

static void tick(hv_sim *sim, void *arg) {
  room *r = arg;
  for (size_t i = 0; i < r->n; i++) {
    member *s = &r->seats[i];
    if (s->pending || !hv_sim_alive(sim, i))
      continue;
    s->turn = (hv_command){.run = takes_turn};
    s->pending = hv_sim_command(sim, i, &s->turn) == HV_OK;
  }
  checks(r);
  hv_sim_at(sim, hv_sim_now(sim) + TURN_US, tick, r);
}

/* ---- peers ---- */

/* By the address of any that stays and can be dialled. */
static void sits(room *r, size_t i, const pretender_program *program) {
  member *s = &r->seats[i];
  int pending = s->pending;
  hv_command turn = s->turn;
  *s = (member){.r = r, .pending = pending, .turn = turn, .told_us = world(r), .since_us = world(r)};
  pretender_init(&s->program, r->run->sim, i, program, check_random(&r->run->rng));
  for (size_t k = 0, at = r->n ? below(r, r->n) : 0; k < r->n && !s->program.n_initial; k++, at = (at + 1) % r->n)
    if (at != i && at != r->gone && hv_sim_alive(r->run->sim, at) && !r->seats[at].program.program.client)
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
      out[n++] = (hv_gift_trainer){p->id, p->program.client, pretender_look(p)->told};
    }
  return n;
}

static void adds(room *r, int client, int help) {
  pretender_program program = r->program;
  program.client = client;
  program.options.auxiliary = (uint8_t)help;
  program.batch_us += program.batch_us * below(r, 4) / 4; /* unequal machines */
  program.model = r->models ? check_random(&r->run->rng) : 1;
  sits(r, r->n++, &program);
  if (help) {
    r->seats[r->n - 1].program.trainers = trainers_of;
    r->seats[r->n - 1].program.trainers_arg = r;
  }
  hv_sim_node_config config = pretender_seat(&r->seats[r->n - 1].program);
  if (r->run->options->faults & SWARM_SKEW)
    swarm_seat(r->run, &config);
  if (hv_sim_add(r->run->sim, &config, NULL) != HV_OK)
    swarm_fail(r->run, "no memory for a node");
}

/* The same program again, as a process of its own. */
static void comes_again(room *r, size_t i) {
  pretender_program program = r->seats[i].program.program;
  sits(r, i, &program);
  hv_sim_restart(r->run->sim, i);
}

static void runs_for(room *r, uint64_t us) {
  hv_sim_run_until(r->run->sim, world(r) + us);
}

/* No state could be downloaded any more; a hub keeps the one that clients have. */
static int is_last_open(const room *r, size_t i) {
  for (size_t k = 0; k < r->n; k++)
    if (k != i && hv_sim_alive(r->run->sim, k) && !r->seats[k].program.program.client)
      return 0;
  return 1;
}

/* A single one may be left to make them, because those that have ended the epoch wait. */
static uint64_t making_again_us(const room *r, size_t gone) {
  const hv_epoch *e = pretender_look(&r->seats[gone].program);
  uint64_t slowest_us = 0, samples = e ? e->ledger->sums + e->ledger->in_flight : 0;
  for (size_t i = 0; i < r->n; i++)
    if (i != gone && lives(r, i) && !helps(r, i) && r->seats[i].program.program.batch_us > slowest_us)
      slowest_us = r->seats[i].program.program.batch_us;
  return (samples / SAMPLES + 1) * slowest_us * 9 / 8;
}

static void one_goes_and_comes(room *r) {
  static const uint64_t gaps_us[] = {0, 50000, 1000000, 6000000, 30000000, 120000000};
  hv_sim *sim = r->run->sim;
  size_t i = below(r, r->n);
  while (!hv_sim_alive(sim, i) || helps(r, i) || is_last_open(r, i))
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
  if (r->went == POLITE) {
    r->goes = i;
    runs_for(r, 2 * TURN_US);
    r->goes = SIZE_MAX;
    hv_sim_stop(sim, i);
  } else
    (r->went == KILLED ? hv_sim_kill : hv_sim_unplug)(sim, i);
  runs_for(r, gap_us);
  while (!anew && hv_sim_alive(sim, i)) /* its goodbye is under way */
    runs_for(r, TURN_US);
  if (anew)
    adds(r, client, 0);
  else
    comes_again(r, i);
  runs_for(r, coming_most_us(r) + STAYS_US + below(r, STAYS_US));
}

static void checks_rest(room *r) {
  size_t trainers = 0;
  for (size_t i = 0; i < r->n; i++)
    trainers += lives(r, i) && !helps(r, i);
  for (size_t i = 0; i < r->n && trainers > 1; i++)
    if (lives(r, i) && !helps(r, i) && !r->seats[i].has_come)
      swarm_fail(r->run, "n%zu came %.3f s ago, and has made no step with others", i,
                 (double)(world(r) - r->seats[i].program.came_us) * 1e-6);
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

static void draws(room *r) {
  static const uint64_t epochs_us[] = {300000, 1000000, 3000000, 5000000};
  r->epoch_us = epochs_us[r->run->options->faults ? 1 + below(r, 3) : below(r, 4)]; /* who is far apart has no short epochs */
  r->first = 2 + below(r, r->run->options->nodes - 1);                              /* 2 to `nodes`, of which one goes */
  r->models = below(r, 2);                                                          /* each begins with its own */
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

static void says_plan(const room *r, int help) {
  const hv_epoch_options *o = &r->program.options;
  hv_sim_say(
      r->run->sim,
      "%zu peers, %zu of them dial out only%s, epochs of %.1f s, models %s; late: gradients %d, step %d, state %d; offload %d, "
      "local updates %d, the state each %llu epochs",
      r->first, r->clients, help ? ", and a hub" : "", (double)r->epoch_us * 1e-6, r->models ? "differ" : "are equal",
      o->delay_grad_averaging, o->delay_optimizer_step, o->delay_state_averaging, o->offload, o->use_local_updates,
      (unsigned long long)o->average_state_every);
}

static void plays(swarm_run *run, play which) {
  static room r;
  r = (room){.run = run, .gone = SIZE_MAX, .goes = SIZE_MAX};
  draws(&r);
  if (which == ODD || which == LONE)
    draws_odd(&r, which == LONE);
  if (which == LOCAL)
    r.program.options = (hv_epoch_options){.use_local_updates = 1,
                                           .delay_state_averaging = r.program.options.delay_state_averaging,
                                           .average_state_every = r.program.options.average_state_every};
  if (!run->options->faults) {
    hv_sim_link link = {.delay_us = r.epoch_us / 300, .jitter_us = r.epoch_us / 1500};
    hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  }
  /* the faults may take all that can be dialled, and nobody could download the clients' state */
  int help = !below(&r, 3);
  r.clients = below(&r, 2) && !run->options->faults ? below(&r, r.first + (size_t)help) : 0;
  says_plan(&r, help);
  if (help) /* the others come to it: they may all be such that only dial out */
    adds(&r, 0, 1);
  for (size_t i = 0; i < r.first; i++)
    adds(&r, i >= r.first - r.clients, 0);
  if (run->options->faults)
    swarm_trouble(run);
  hv_sim_at(run->sim, TURN_US, tick, &r);
  if (run->options->faults)
    hv_sim_run_until(run->sim, run->end_us > run->calm_us + CALM_US ? run->end_us : run->calm_us + CALM_US + 60000000);
  else
    runs_for(&r, WARM_US + 4 * r.epoch_us * r.first);
  checks_rest(&r);
  for (int cycle = 0; cycle < CYCLES && !run->failure[0] && !run->options->faults; cycle++) {
    one_goes_and_comes(&r);
    checks_rest(&r);
  }
  swarm_figure(run, "epochs", (double)r.epochs);
  swarm_figure(run, "alike", (double)r.n_alike);
  swarm_figure(run, "skipped", (double)r.skipped);
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

void swarm_run_local_play(swarm_run *run) {
  plays(run, LOCAL);
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
  r = (room){.run = run, .gone = SIZE_MAX, .goes = SIZE_MAX};
  draws(&r);
  r.first = r.clients = 2;
  r.program.terms.target = BATCHES * SAMPLES * r.first;
  hv_sim_link link = {.delay_us = r.epoch_us / 300, .jitter_us = r.epoch_us / 1500};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  says_plan(&r, 1);
  adds(&r, 0, 1);
  adds(&r, 1, 0);
  adds(&r, 1, 0);
  hv_sim_at(run->sim, TURN_US, tick, &r);
  runs_for(&r, WARM_US + 8 * r.epoch_us + below(&r, 2 * r.epoch_us));
  checks_rest(&r);
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
