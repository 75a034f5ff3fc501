/* The judge of the room `run` (swarm_run.h). */
#include "sim/swarm/swarm_run.h"

#include "core/peers/standing.h"
#include "core/progress/zones.h"

#include <math.h>
#include <string.h>

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
      e->ledger->produced + (e->state == HV_EPOCH_LOOKING ? e->own.looking.samples : 0) != p->produced)
    swarm_fail(r->run, "n%zu has made %llu samples, and %llu are accounted", i, (unsigned long long)p->produced,
               (unsigned long long)e->ledger->produced);
}

/* No wait is longer than the table of epoch.h allows, each with a turn's time more. */
static void checks_wait(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  uint64_t took = now - s->since_us, most = 0;
  if (s->program.program.company != HV_EPOCH_ALONE_TRAINS && hv_epoch_driver_figures(s->program.driver)->n_peers <= 1)
    return; /* it waits for others */
  switch (e->state) {
  case HV_EPOCH_LOOKING:
    most = e->own.looking.is_here ? HV_EPOCH_MOST_SWARM_US + HV_EPOCH_MOST_LOOK_US + HV_EPOCH_MOST_GONE_US : 0;
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
  if (most && faults_of(r) & SWARM_PAUSE)
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
  if (!r->went_us || faults_of(r) || r->n_false)
    return; /* the first ones meet */
  int after = now - took < r->went_us + PATIENCE_US;
  if (after && r->went == UNPLUGGED)
    most = PATIENCE_US;
  else if (tells_of_dead(r))
    most = HEARSAY_US;
  else if (after && r->went == KILLED)
    most = DEATH_US;
  most += 2 * r->program.batch_us;                                              /* a peer sees the end when its batch ends */
  most += hv_epoch_traits_of(&r->program.options).carries ? MATCHMAKING_US : 0; /* after a failed round it seeks again */
  most += is_wide(r) ? SUMS_US : 0;
  most += r->program.fails > 0 ? UNFIT_US : 0;
  most += r->clients ? HEARS_US : 0;
  if (after)
    most += r->epoch_us / 2;
  if (after && now - took < r->went_us + DEATH_US && r->again_us > r->epoch_us / 2) /* it had ended the epoch with these samples */
    most += r->again_us - r->epoch_us / 2;
  most += beside_liars_us(r);
  size_t kind = after ? r->went : GOINGS;
  r->longest_us[kind] = took > r->longest_us[kind] ? took : r->longest_us[kind];
  if (took > most)
    swarm_fail(r->run, "n%zu waited %.3f s at an epoch's end, at %.3f s; the last to go %s at %.3f s", i, (double)took * 1e-6,
               (double)now * 1e-6, going_names[r->went], (double)r->went_us * 1e-6);
}

/* The epoch in which it comes, and the one that it makes; with one peer less they take longer. With local updates peers meet where
 * the state is averaged. */
uint64_t swarm_run_coming_most_us(const room *r) {
  const hv_epoch_options *o = &r->program.options;
  uint64_t most =
      COMING_US + (COMING_EPOCHS + (o->use_local_updates || r->program.differs ? o->average_state_every : 1)) * 2 * r->epoch_us;
  most += r->epoch_us < 1000000 ? CHASES_US : 0;
  most += r->program.company == HV_EPOCH_ALONE_TRAINS ? 0 : WRONG_US;
  most += r->clients ? HEARS_US : 0;
  most += beside_liars_us(r);
  return most + (tells_of_dead(r) ? 2 * PATIENCE_US : 0); /* a round without it, and a search */
}

static void checks_coming(room *r, size_t i) {
  member *s = &r->seats[i];
  uint64_t took = world(r) - s->program.came_us, most = swarm_run_coming_most_us(r);
  s->has_come = 1;
  if (faults_of(r) || !r->went_us || r->lies_in_rounds || r->n_false)
    return;
  r->coming_us += took;
  r->n_coming++;
  if (took > most)
    swarm_fail(r->run, "n%zu made its first step with others after %.3f s", i, (double)took * 1e-6);
}

/* Epochs that it counted without a step, also a liar, and steps by itself after a failed round. Each marks such an epoch by its own
 * name, and the next round judges. */
static void sees_skipped(room *r, size_t i) {
  member *s = &r->seats[i];
  uint64_t skipped = s->program.tells[HV_EPOCH_SAYS_NO_STEP], own = s->program.tells[HV_EPOCH_SAYS_OWN_STEP];
  r->skipped += skipped > s->skipped ? skipped - s->skipped : 0;
  if (skipped > s->skipped || own > s->own_steps)
    r->together = 0;
  s->skipped = skipped;
  s->own_steps = own;
}

/* No epoch is taken back but one whose late round left this peer out, or those of rule 23, and the replica has the steps of all
 * epochs before it. */
static void checks_epoch(room *r, size_t i) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  if (r->n_false)
    return;
  if (e->told + 1 < s->told && !helps(r, i) && !s->goes_back)
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
    s->told_us = s->since_us = s->could_us = s->true_us = s->counted_us = now;
    s->endings = 0;
    s->told = e->told;
  }
  checks_epoch(r, i);
  s->goes_back = e->goes_back;
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
  if (e->state == HV_EPOCH_ENDING && hv_epoch_is_free(e)) /* its batches wait for nothing */
    s->since_us = now;
  if ((e->has_met || e->end.state_averaged) && !s->has_come)
    checks_coming(r, i);
}

/* A peer that repeats a step may make it before those who averaged, whose model waits for its next batch. */
static void has_mark(room *r, const hv_mark *mark) {
  for (size_t k = 0; k < r->n; k++)
    if (hv_mark_equal(&r->seats[k].mark, mark))
      r->seats[k].ahead_us = 0;
}

static void checks_ahead(room *r, size_t i) {
  member *s = &r->seats[i];
  if (s->ahead_us && world(r) > s->ahead_us + AHEAD_US + 2 * s->program.program.batch_us)
    swarm_fail(r->run, "n%zu in epoch %llu has made a step of others again, and has a mark that nobody has", i,
               (unsigned long long)pretender_look(&s->program)->told);
}

/* Equal marks are equal bits, now and at any time before. */
static void checks_bits(room *r, size_t i) {
  member *s = &r->seats[i];
  const pretender *p = &s->program;
  const hv_lineage *lineage = pretender_look(p)->lineage;
  if (!pretender_rests(p) || !lineage->is_kept || hv_mark_equal(&s->mark, &lineage->mark))
    return;
  s->mark = lineage->mark;
  s->ahead_us = 0;
  int has_repeated = p->repeated > s->repeated;
  s->repeated = p->repeated;
  if (!has_repeated)
    has_mark(r, &s->mark);
  for (size_t k = 0; k < REPLICAS && k < r->n_replicas; k++)
    if (hv_mark_equal(&r->replicas[k].mark, &lineage->mark)) {
      if (memcmp(r->replicas[k].values, pretender_replica(p), sizeof p->model) != 0)
        swarm_fail(r->run, "n%zu in epoch %llu has the mark of another replica, and other bits", i,
                   (unsigned long long)pretender_look(p)->told);
      return;
    }
  /* with other plans members may have no moment of rest; under faults they may die before it */
  if (has_repeated && !r->liars && !faults_of(r) && pretender_look(p)->traits.carries)
    s->ahead_us = world(r);
  replica *new = &r->replicas[r->n_replicas++ % REPLICAS];
  new->mark = lineage->mark;
  memcpy(new->values, pretender_replica(p), sizeof p->model);
}

static const pretender *member_of(const room *r, const hv_peer_id *id) {
  for (size_t i = 0; i < r->n; i++)
    if (hv_peer_equal(&r->seats[i].program.id, id))
      return lives(r, i) && !is_liar(r, i) ? &r->seats[i].program : NULL;
  return NULL;
}

/* Local steps: the average is that of what its members gave, weighted by their samples; so each anchor follows from what counted.
 * Not judged where a value of a member is missing, or a member has gone since, also if it has begun anew and is in the same epoch
 * again. */
static void checks_anchor(room *r, size_t i) {
  member *s = &r->seats[i];
  const pretender *p = &s->program;
  const pretender_difference *got = &p->got;
  double expected[PRETENDER_ANCHOR] = {0}, total = 0;
  if (got->epochs == s->got)
    return;
  s->got = got->epochs;
  if (pretender_look(p)->end.lost_some || r->lies_in_rounds || p->round.n == PRETENDER_MET)
    return;
  for (size_t k = 0; k < p->round.n; k++) {
    const pretender *other = member_of(r, &p->round.members[k]);
    if (!other || other->gave.epochs != got->epochs || other->gave_before == got->epochs)
      return;
    double weight = (double)other->gave.samples; /* averagers here cut none */
    for (size_t v = 0; v < PRETENDER_ANCHOR; v++)
      expected[v] += weight * (double)other->gave.values[v];
    total += weight;
  }
  for (size_t v = 0; v < PRETENDER_ANCHOR && total > 0; v++)
    if (fabs(expected[v] / total - (double)got->values[v]) > 1e-3)
      swarm_fail(r->run, "n%zu stepped its anchor in epoch %llu by %g, and its members' samples make %g", i,
                 (unsigned long long)got->epochs - 1, (double)got->values[v], expected[v] / total);
  r->n_anchors += total > 0;
}

void swarm_run_checks_safety(room *r, size_t i) {
  checks_machine(r, i);
  checks_bits(r, i);
  checks_ahead(r, i);
}

/* Those in the furthest epoch hold one replica, or soon do. */
static void checks_one_replica(room *r, uint64_t now) {
  const hv_epoch *one = NULL;
  int differ = 0;
  uint64_t most = 0;
  for (size_t i = 0; i < r->n; i++)
    if (is_judged(r, i) && pretender_look(&r->seats[i].program)->told > most)
      most = pretender_look(&r->seats[i].program)->told;
  for (size_t i = 0; i < r->n; i++) {
    const hv_epoch *e = is_judged(r, i) ? pretender_look(&r->seats[i].program) : NULL;
    if (!e || !e->lineage->is_kept || !e->has_met || e->told != most || !pretender_rests(&r->seats[i].program))
      continue;
    differ += one && !hv_mark_equal(&e->lineage->mark, &one->lineage->mark);
    one = e;
  }
  if (!differ)
    r->apart_us = now;
  if (!is_faulty(r) && now > r->apart_us + DIFFER_US + 4 * r->first * r->epoch_us + beside_liars_us(r))
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
    if (lives(r, i) && !is_liar(r, i)) {
      double steps = pretender_steps(&r->seats[i].program);
      newest = steps > newest ? steps : newest;
      n++;
    }
  if (!hv_epoch_traits_of(&r->program.options).sums) /* replicas differ on purpose, and their averages have means of steps */
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
  if (r->went_us || r->liars || faults_of(r) || !pretender_look(&s->program)->lineage->is_kept)
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
    uint64_t epoch = helps(r, i) ? p->keep.held.epoch : lives(r, i) ? pretender_look(p)->offers.offered : HV_EPOCH_NONE;
    if (i == to || !lives(r, i) || is_liar(r, i) || p->program.client || epoch == HV_EPOCH_NONE || (helps(r, i) && !p->keep.holds))
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
  return n > n_older + r->liars; /* they have a vote */
}

/* A peer that counts another can get its state: it is not aside for long while the one that it seeks is on offer. */
static void checks_loads(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  uint64_t least = e->wanted > e->told ? e->wanted : e->told, took = now - s->could_us;
  int is_aside = e->state == HV_EPOCH_COMING || e->state == HV_EPOCH_LOADING || e->state == HV_EPOCH_RESTING;
  if (is_faulty(r) || !is_aside || !hv_epoch_driver_figures(s->program.driver)->n_peers ||
      !is_on_offer(r, i, hv_epoch_state_epoch(&e->traits, least))) {
    s->could_us = now;
    return;
  }
  r->loads_us = took > r->loads_us ? took : r->loads_us;
  uint64_t most = LOADS_US + (tells_of_dead(r) ? PATIENCE_US : 0) + (r->lies_in_log ? COMING_US : 0) + (r->clients ? HEARS_US : 0) +
                  beside_liars_us(r);
  if (took > most)
    swarm_fail(r->run, "n%zu is %s for %.1f s while the state of epoch %llu, which it seeks, is on offer", i,
               hv_epoch_state_name(e->state), (double)took * 1e-6, (unsigned long long)least);
}

/* Nobody is left in an epoch that the others have ended long ago. */
static void checks_left(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  uint64_t most = 8 * r->epoch_us * r->first + LOAD_MS * UINT64_C(1000) + PATIENCE_US + beside_liars_us(r);
  int waits = s->program.program.company != HV_EPOCH_ALONE_TRAINS && hv_epoch_driver_figures(s->program.driver)->n_peers <= 1;
  if (is_faulty(r) || waits)
    s->told_us = now;
  else if (now > s->told_us + most)
    swarm_fail(r->run, "n%zu is in epoch %llu since %.1f s", i, (unsigned long long)s->told, (double)s->told_us * 1e-6);
}

/* Once nobody has come or gone for a while, each counts all others. One in sixteen may be missing where the count is of sums of
 * several moments, and a peer that has gone may count as long as its record lasts. */
static void checks_counts(room *r, uint64_t now) {
  size_t n = 0;
  if (is_faulty(r) || now < r->went_us + COUNTS_US)
    return;
  for (size_t i = 0; i < r->n; i++) {
    const member *s = &r->seats[i];
    if (!is_judged(r, i))
      continue;
    if (is_out(s) || now < s->entered_us + COUNTS_US)
      return;
    n++;
  }
  for (size_t i = 0; i < r->n; i++) {
    if (!is_judged(r, i))
      continue;
    size_t counts = hv_epoch_driver_figures(r->seats[i].program.driver)->n_peers;
    if (r->liars && (is_wide(r) || pretender_look(&r->seats[i].program)->doubt_until_us > now))
      continue; /* a sum may be a liar's */
    if (counts < n - n / 16 || (counts > n + r->liars && now > r->went_us + RECORDS_US))
      swarm_fail(r->run, "n%zu counts %zu peers, and %zu train", i, counts, n);
  }
}

/* Peers that have offered states for a while: those in whom this one trusts, or all. */
static size_t offers_of(const room *r, size_t to, int trusted, size_t *liars) {
  const hv_peers *peers = hv_node_peers(r->seats[to].program.node);
  size_t n = 0;
  *liars = 0;
  for (size_t k = 0; k < r->n; k++) {
    const member *s = &r->seats[k];
    if (k == to || !lives(r, k) || helps(r, k) || pretender_look(&s->program)->offers.offered == HV_EPOCH_NONE ||
        (trusted && hv_standing_of(peers, &s->program.id) == HV_STANDING_STRANGER))
      continue;
    *liars += (size_t)is_liar(r, k);
    n += !is_liar(r, k) && world(r) > s->offers_us + LOADS_US;
  }
  return n;
}

/* A liar's state is taken by none while twice as many others offer theirs (docs/design/state.md, "The vote"): of those whom it
 * trusts, if a liar is among them, else of all. */
static void checks_taken(room *r, size_t i) {
  member *s = &r->seats[i];
  const uint64_t *taken = s->program.taken;
  size_t liars;
  int is_lie = 0;
  if (pretender_look(&s->program)->offers.offered == HV_EPOCH_NONE)
    s->offers_us = world(r);
  if (taken[0] == s->taken)
    return;
  s->taken = taken[0];
  for (size_t k = 0; k < r->n; k++)
    is_lie |= is_liar(r, k) && pretender_lied_of(&r->seats[k].program, taken[0]);
  if (!is_lie)
    return;
  size_t offers = offers_of(r, i, 1, &liars);
  if (!liars)
    offers = offers_of(r, i, 0, &liars);
  if (offers >= 2 * r->liars)
    swarm_fail(r->run, "n%zu has taken a state of epoch %llu that is a liar's, while %zu others offer theirs", i,
               (unsigned long long)taken[1], offers);
  r->n_false++;
}

/* Those who train, and are in an epoch. */
static size_t counted(const room *r) {
  size_t n = 0;
  for (size_t i = 0; i < r->n; i++)
    n += is_judged(r, i) && !is_out(&r->seats[i]);
  return n;
}

/* Nobody is in an epoch that no peer has reached by its own work, nor aside for one. Where updates are local, epochs without a
 * state are counted. A hub follows a liar while too few others are counted; and one whose replica is wrong may seek the
 * state of such an epoch once. */
static void checks_believed(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  const hv_epoch *e = pretender_look(&s->program);
  const hv_epoch_options *o = &r->program.options;
  uint64_t most = r->furthest + 1 + (hv_epoch_traits_of(o).sums ? 0 : o->average_state_every);
  int has_to_seek = !e->failures && (e->lineage->is_wrong || e->is_unfit);
  if (e->told <= most || is_faulty(r) || (helps(r, i) && counted(r) < 2 * r->liars))
    s->true_us = now;
  if (now > s->true_us + (helps(r, i) ? COUNTS_US : 0) || (e->told > most && !helps(r, i)))
    swarm_fail(r->run, "n%zu is in epoch %llu, and nobody was further than %llu", i, (unsigned long long)e->told,
               (unsigned long long)r->furthest);
  int seeks = e->state == HV_EPOCH_COMING || e->state == HV_EPOCH_LOADING;
  if (!helps(r, i) && e->has_begun && !has_to_seek && seeks &&
      e->wanted > most + CHOSEN + 2 * HV_EPOCH_BEYOND * o->average_state_every)
    swarm_fail(r->run, "n%zu is aside for the state of epoch %llu, and nobody was further than %llu", i,
               (unsigned long long)e->wanted, (unsigned long long)r->furthest);
}

/* A liar moves nobody aside for good. */
static void checks_aside(room *r, size_t i, uint64_t now) {
  member *s = &r->seats[i];
  if (!is_out(s) || is_faulty(r))
    s->counted_us = now;
  if (r->liars && now > s->counted_us + LOAD_MS * UINT64_C(1000) + LIARS_US)
    swarm_fail(r->run, "n%zu is aside since %.1f s", i, (double)s->counted_us * 1e-6);
}

static void sees_furthest(room *r) {
  for (size_t i = 0; i < r->n; i++)
    if (lives(r, i) && !helps(r, i) && pretender_look(&r->seats[i].program)->told > r->furthest)
      r->furthest = pretender_look(&r->seats[i].program)->told;
}

void swarm_run_checks(room *r) {
  uint64_t now = world(r);
  for (size_t i = 0; i < r->n; i++) {
    if (!lives(r, i) || hv_sim_paused(r->run->sim, i))
      continue;
    sees_skipped(r, i);
    if (is_liar(r, i))
      continue;
    checks_taken(r, i);
    sees_moves(r, i, now);
    if (!helps(r, i)) {
      checks_machine(r, i);
      checks_wait(r, i, now);
    }
    if (r->n_false)
      continue;
    checks_believed(r, i, now);
    if (helps(r, i))
      continue;
    checks_left(r, i, now);
    checks_alike(r, i);
    checks_loads(r, i, now);
    checks_aside(r, i, now);
    checks_bits(r, i);
    checks_ahead(r, i);
    checks_anchor(r, i);
  }
  sees_furthest(r);
  if (r->n_false)
    return;
  checks_newest(r);
  checks_one_replica(r, now);
  checks_counts(r, now);
}

void swarm_run_checks_rest(room *r) {
  size_t trainers = 0;
  for (size_t i = 0; i < r->n; i++)
    trainers += is_judged(r, i);
  for (size_t i = 0; i < r->n && trainers > 1 && !r->lies_in_rounds && !r->n_false; i++)
    if (is_judged(r, i) && !r->seats[i].has_come)
      swarm_fail(r->run, "n%zu came %.3f s ago, and has made no step with others", i,
                 (double)(world(r) - r->seats[i].program.came_us) * 1e-6);
}
