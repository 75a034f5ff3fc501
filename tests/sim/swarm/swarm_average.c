/* Epoch after epoch of a swarm that averages, under faults, and the ledger of its samples.
 *
 * The checker knows nothing of rounds: it looks at what came out. In each chunk of the first tensor node j has a 1 at place j and 0
 * elsewhere, so the average itself tells who is in it, and with what weight. The second tensor is noise under a codec of the seed:
 * there only bits are compared.
 *
 * An epoch is over when all steps are, and faults strike while rounds run, so most of what is played matters. In every second seed
 * they last a quarter of the time. */
#include "core/node.h"
#include "sim/swarm/swarm_nat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  NODES_MAX = 64,
  MARKED = 4,  /* chunks of marks */
  NOISE = 500, /* values */
  MARKS = MARKED * NODES_MAX,
  WAIT_MS = 8000,
  TIMEOUT_MS = 20000,
  LATE_US = 1000000,             /* what a step may take beyond its time */
  DRIFT_US = 5000,               /* by how much its node's clock may be wrong after that */
  STALL_MS = 1500,               /* for how long a round waits for anybody */
  STILL_US = 900000,             /* who does nothing for so long is not running */
  LOSS_US = 4 * STALL_MS * 1000, /* what it takes to find out that somebody is gone, and to do without */
  CUT_US = 300000,               /* less than a suspect's time: a quarter of stall_ms */
  RESENT_US = 300000,            /* by then a word on a stream that was lost comes, since others had theirs */
  LOOK_US = 50000,               /* how often it is looked who is apart */
  LOOKS = SWARM_EPOCH_US / LOOK_US + 2,
  SPREAD_US = 400000, /* they do not all begin at once */
  REST_US = 1000000,  /* between two epochs, at most */
  HALTS = 8,          /* of one node that are remembered of an epoch */
  STRIKE_US = 500000  /* from when the first round of an epoch is seen to a fault, at most */
};

typedef struct room room;

/* Some time in which a node stood still. */
typedef struct halt {
  uint64_t from_us, to_us;
} halt;

/* One step, as the checker remembers it. */
typedef struct entry {
  int begun, done, poisoned;
  int aside;      /* on the smaller side of a partition */
  int disturbed;  /* its node died or stood still */
  int late;       /* it began when the others may have been done, as it had stood still until then */
  uint64_t in_us; /* when its node was first seen in a round, maybe of another group than the one that had named it; 0: in none */
  hv_status status;
  float weight;
  uint64_t group; /* which round, of whom: a hash; 0: none */
  size_t n_members;
  uint64_t members; /* a bit for each node */
  uint32_t averaged, n_chunks, view;
  uint64_t stamp;
  double share;                                  /* which part of its own values it was told to be counted */
  uint64_t begun_us, round_us, done_us, away_us; /* round_us: its round's begin; away_us: when it was last seen before it was
                                                    first disturbed */
  uint64_t died_us;                              /* when it was last seen before it died in its step, or 0 */
  halt halts[HALTS];
  size_t n_halts;
} entry;

typedef struct seat {
  room *r;
  size_t index;
  hv_peer_id id;
  hv_node *node;
  hv_average *average;
  int client, auxiliary;
  swarm_liar liar; /* tells nothing: it is honest */
  float marks[MARKS], noise[NOISE];
  int64_t shapes[2];
  hv_average_step step;
  hv_command begin;
  char epoch[16];
  int pending, running; /* its command is under way; its step is */
  uint64_t seen_us;     /* when it last did something */
  entry now;
} seat;

/* The links that worked, both ways, at one moment of an epoch; nothing is written down while all reach all. */
typedef struct glance {
  uint64_t at_us;
  uint64_t reached[NODES_MAX];
} glance;

struct room {
  swarm_run *run;
  size_t n, epochs, epoch;
  uint64_t epoch_us, next_us; /* when it began; when the next one does, once all steps are done */
  int struck, over;           /* struck: faults have been meant for this epoch's rounds */
  hv_codec codec;
  swarm_nat nat; /* of room `nat` */
  seat seats[NODES_MAX];
  glance glances[LOOKS];
  size_t n_glances;
  uint64_t rewired;                   /* as of the last glance */
  uint8_t counted[NODES_MAX][MARKED]; /* in how many groups of this epoch a sample is */
};

static uint64_t below(room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

static double figure(room *r, const char *name, double value) {
  swarm_figure(r->run, name, value);
  return value;
}

/* It averages in groups. */
static int is_large(const room *r) {
  return r->n > 16;
}

/* ---- nodes ---- */

/* The first time counts: who comes back does not come back into its round. */
static void is_disturbed(seat *s) {
  if (!s->now.disturbed)
    s->now.away_us = s->seen_us;
  s->now.disturbed = 1;
}

static void notice(seat *s) {
  uint64_t now = hv_sim_now(s->r->run->sim);
  if (s->now.begun && now - s->seen_us > STILL_US)
    is_disturbed(s);
  s->seen_us = now;
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  seat *s = arg;
  hv_target starts[2] = {hv_sim_target(s->r->run->sim, 0), hv_sim_target(s->r->run->sim, 1)};
  size_t known = s->r->nat.homes && s->index == 0 && hv_sim_nodes(s->r->run->sim) == 1 ? 1 : 2; /* a public address is not yet */
  hv_node_config config = {.me = s->id, .client_mode = s->client, .initial = starts, .n_initial = known};
  if (!is_large(s->r)) /* else as programs do: where all greet all, hardly anything else would be played */
    config.hello_every_ms = 2000;
  *out = (hv_core){s, NULL};
  s->seen_us = hv_sim_now(s->r->run->sim);
  if (s->liar.tells)
    swarm_liar_take(&s->liar, env);
  if (s->r->nat.homes)
    homes_meet(s->r->nat.homes, s->index, env);
  return hv_node_new(env, &config, &s->node);
}

static void step_node(void *self, const hv_event *event) {
  seat *s = self;
  notice(s);
  if (s->r->nat.homes)
    homes_see(s->r->nat.homes, s->index, event);
  hv_node_step(s->node, event);
  if (!s->now.in_us && hv_node_registry(s->node)->rounds)
    s->now.in_us = hv_sim_now(s->r->run->sim);
}

static hv_status make_core(hv_env *env, void *arg, hv_core *out) {
  hv_status status = make(env, arg, out);
  out->step = step_node;
  return status;
}

static void let_go(void *self) {
  seat *s = self;
  hv_node_free(s->node);
  s->node = NULL;
  s->average = NULL;
  s->running = 0;
  if (s->now.begun && !s->now.done && !s->now.died_us)
    s->now.died_us = s->seen_us;
  is_disturbed(s);
}

static hv_status open_averager(seat *s) {
  static const hv_dtype dtype = HV_DTYPE_FLOAT32;
  hv_average_tensor tensors[2] = {{{s->marks, dtype, MARKS, HV_CODEC_NONE, NULL, 0, 0, 0}, &s->shapes[0], 1},
                                  {{s->noise, dtype, NOISE, s->r->codec, NULL, 0, 0, 0}, &s->shapes[1], 1}};
  hv_average_config config = {.prefix = hv_span_of("swarm", 5),
                              .tensors = tensors,
                              .n_tensors = 2,
                              .chunk_values = NODES_MAX,
                              .alpha = 1,
                              .stall_ms = STALL_MS,
                              .norm_ratio = 20,
                              .target_group = is_large(s->r) ? 8 : 0,
                              .auxiliary = s->auxiliary};
  return hv_average_new(hv_node_averages(s->node), &config, &s->average, NULL);
}

/* ---- a step ---- */

static uint64_t index_of(room *r, const hv_peer_id *id) {
  size_t i = 0;
  while (i < r->n && !hv_peer_equal(&r->seats[i].id, id))
    i++;
  return i;
}

static void was_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  seat *s = step->owner;
  entry *e = &s->now;
  uint64_t hash = 14695981039346656037u;
  s->running = 0;
  if (!e->begun)
    return; /* of an epoch that has been judged: it stood still too long */
  if (e->done++)
    swarm_fail(s->r->run, "n%zu: a step was done twice", s->index);
  e->status = status;
  e->done_us = hv_sim_now(s->r->run->sim);
  e->round_us = e->done_us - outcome->reducing_us;
  e->averaged = outcome->averaged;
  e->n_chunks = outcome->n_chunks;
  e->view = outcome->view;
  e->stamp = outcome->stamp;
  e->n_members = outcome->n_members;
  for (size_t i = 0; i < outcome->n_members; i++) {
    if (outcome->members[i].me)
      e->share = outcome->members[i].share;
    uint64_t at = index_of(s->r, &outcome->members[i].id);
    hash = (hash ^ at) * 1099511628211u;
    if (at == s->r->n)
      swarm_fail(s->r->run, "n%zu was in a group with a stranger", s->index);
    else
      e->members |= UINT64_C(1) << at;
  }
  for (size_t i = 0; i < sizeof outcome->round; i++) /* two hosts may begin two rounds of the same members */
    hash = (hash ^ outcome->round[i]) * 1099511628211u;
  e->group = outcome->n_members ? hash : 0;
  hv_sim_say(s->r->run->sim, "n%zu: epoch %zu done, %s %s (%zu members, %u of %u chunks)", s->index, s->r->epoch,
             hv_status_name(status), text, e->n_members, e->averaged, e->n_chunks);
}

static void fill(seat *s) {
  memset(s->marks, 0, sizeof s->marks);
  for (size_t c = 0; c < MARKED; c++)
    s->marks[c * NODES_MAX + s->index] = 1;
  for (size_t i = 0; i < NOISE; i++)
    s->noise[i] = (float)check_normal(&s->r->run->rng);
  if (s->now.poisoned)
    s->noise[below(s->r, NOISE)] = below(s->r, 2) ? NAN : INFINITY;
}

static void begin(hv_command *command, void *core) {
  seat *s = (seat *)((char *)command - offsetof(seat, begin));
  hv_error err = {0};
  s->pending = 0;
  if (!core || (!s->average && open_averager(s) != HV_OK))
    return;
  int n = snprintf(s->epoch, sizeof s->epoch, "%zu", s->r->epoch);
  s->step = (hv_average_step){.done = was_done,
                              .owner = s,
                              .epoch = hv_span_of(s->epoch, (size_t)n),
                              .weight = s->now.weight,
                              .wait_ms = WAIT_MS,
                              .timeout_ms = TIMEOUT_MS,
                              .allow_retries = 1};
  s->now.begun_us = hv_sim_now(s->r->run->sim);
  s->now.late = s->now.begun_us - s->r->epoch_us > LATE_US;
  hv_status status = hv_average_start(s->average, &s->step, &err);
  s->now.begun = s->running = status == HV_OK;
  if (status != HV_OK)
    swarm_fail(s->r->run, "n%zu could not begin a step: %s", s->index, err.text);
}

/* ---- the checker ---- */

/* Its values may count, and it does with others' what is to be done. */
static int is_sound(const room *r, size_t i) {
  return !r->seats[i].auxiliary && !r->seats[i].now.poisoned && !r->seats[i].liar.tells;
}

static int was_never_away(const room *r, size_t i) {
  return hv_sim_alive(r->run->sim, i) && !r->seats[i].now.disturbed;
}

static int is_live(const room *r, size_t i) {
  return was_never_away(r, i) && !r->seats[i].now.late;
}

static void checker_time(room *r, seat *s) {
  entry *e = &s->now;
  if (!is_live(r, s->index))
    return;
  if (!e->done || e->done_us - e->begun_us > TIMEOUT_MS * 1000ull + LATE_US) {
    figure(r, "hangs", 1);
    swarm_fail(r->run, "n%zu: its step of epoch %zu %s", s->index, r->epoch, e->done ? "was late" : "hangs");
  }
}

/* The members in a chunk of marks, and that their weights are right. Only a chunk that is a mean of marks counts; else 0. */
static uint64_t who_is_in(room *r, const seat *s, size_t chunk) {
  const float *marks = s->marks + chunk * NODES_MAX;
  uint64_t in = 0;
  double weights = 0;
  for (size_t j = 0; j < r->n; j++)
    if (marks[j] != 0) {
      in |= UINT64_C(1) << j;
      weights += (double)r->seats[j].now.weight;
    }
  for (size_t j = 0; j < r->n; j++)
    if (in >> j & 1 && fabs((double)marks[j] - (double)r->seats[j].now.weight / weights) > 1e-5)
      swarm_fail(r->run, "n%zu holds %g of n%zu in chunk %zu of epoch %zu, not its share", s->index, (double)marks[j], j, chunk,
                 r->epoch);
  return in;
}

static int same_bits(const seat *a, const seat *b) {
  return memcmp(a->marks, b->marks, sizeof a->marks) == 0 && memcmp(a->noise, b->noise, sizeof a->noise) == 0;
}

/* The view in which most members of a group ended well: in a partition each side has its own, and all but one reload. */
static uint32_t main_view(room *r, uint64_t group) {
  size_t most = 0;
  uint32_t view = 0;
  for (size_t i = 0; i < r->n; i++) {
    size_t n = 0;
    for (size_t j = 0; j < r->n; j++)
      n += r->seats[j].now.done && r->seats[j].now.group == group && r->seats[j].now.status == HV_OK &&
           r->seats[j].now.view == r->seats[i].now.view;
    if (n > most) {
      most = n;
      view = r->seats[i].now.view;
    }
  }
  return view;
}

/* All who were told OK in one view of a group hold the same bits and have one stamp; all who have one stamp hold the same bits. A
 * member that ended in another view may hold what was averaged anew from the same values: those are the same bits by chance,
 * whatever the stamps say. */
static void checker_pairs(room *r, uint64_t group) {
  for (size_t i = 0; i < r->n; i++)
    for (size_t j = 0; j < i; j++) {
      const seat *a = &r->seats[i], *b = &r->seats[j];
      int both = a->now.done && b->now.done && a->now.group == group && b->now.group == group && a->now.status == HV_OK &&
                 b->now.status == HV_OK;
      if (!both || a->auxiliary || b->auxiliary)
        continue;
      int same = same_bits(a, b), alike = a->now.stamp == b->now.stamp;
      figure(r, "stamps_apart", same && !alike);
      if (alike ? !same : same && a->now.view == b->now.view) {
        figure(r, "stamps_wrong", 1);
        swarm_fail(r->run, "n%zu and n%zu hold %s bits in epoch %zu, and their stamps say otherwise", j, i,
                   same ? "the same" : "other", r->epoch);
      }
      if (same)
        continue;
      if (a->now.view != b->now.view) {
        figure(r, "pairs_apart", 1);
        continue;
      }
      figure(r, "unequal", 1);
      swarm_fail(r->run, "n%zu and n%zu were in one group in epoch %zu and hold other bits", j, i, r->epoch);
    }
}

#include "sim/swarm/swarm_excuses.h"

/* While a group has two live members, one of them with values that may count, they average every element. There are few excuses,
 * each counted by itself. */
static void checker_whole(room *r, const seat *first) {
  size_t live = 0, sound = 0;
  for (size_t i = 0; i < r->n; i++) {
    live += stayed(r, first, i) && !r->seats[i].liar.tells;
    sound += stayed(r, first, i) && is_sound(r, i);
  }
  for (size_t i = 0; i < r->n && live >= 2 && sound; i++) {
    const entry *e = &r->seats[i].now;
    uint32_t lacks = e->n_chunks - e->averaged;
    if (!stayed(r, first, i) || !e->done || r->seats[i].auxiliary || r->seats[i].liar.tells)
      continue;
    figure(r, "members_judged", 1);
    figure(r, "beside_liars", is_beside_liars(r, first));
    if (lacks && (was_left_alone(r, first, i) || was_wrong(r, first, i, i, alone_then))) {
      figure(r, "unaveraged_alone", lacks);
    } else if (lacks && was_between(r, first, i)) {
      figure(r, "unaveraged_between", lacks);
    } else if (lacks && (was_wrong(r, first, i, i, aside_then) || was_left_behind(r, first, i) || stood_still(r, first, i))) {
      figure(r, "unaveraged_aside", lacks);
    } else if (lacks && (ran_out_of_time(r, first, i) || heard_too_late(r, first, i))) {
      figure(r, "unaveraged_late", lacks);
    } else if (lacks && (was_lied_to(r, first) || too_many_lied(r, first))) {
      figure(r, "unaveraged_lied", lacks);
      figure(r, "members_lied_to", 1);
    } else if (lacks && had_a_lease_end(r, first)) {
      figure(r, "unaveraged_lease", lacks);
    } else if (lacks) {
      figure(r, "unaveraged", lacks);
      swarm_fail(r->run, "n%zu: %u of %u chunks are not averaged in epoch %zu, in a group with %zu live members", i, lacks,
                 e->n_chunks, r->epoch, live);
    }
  }
}

static void checker_group(room *r, const seat *first) {
  checker_pairs(r, first->now.group);
  checker_whole(r, first);
  figure(r, "groups", 1);
}

/* One who holds an average: whose samples are in it is booked, once for the group. */
static void book(room *r, const seat *s, uint64_t booked[MARKED]) {
  for (size_t c = 0; c < MARKED; c++) {
    uint64_t in = s->now.status == HV_OK ? who_is_in(r, s, c) : 0;
    if (in & ~s->now.members)
      swarm_fail(r->run, "n%zu holds values of somebody outside its group in epoch %zu", s->index, r->epoch);
    if (in && booked[c] && in != booked[c])
      swarm_fail(r->run, "two members of a group have others in chunk %zu of epoch %zu", c, r->epoch);
    for (size_t j = 0; j < r->n && !booked[c]; j++)
      r->counted[j][c] = (uint8_t)(r->counted[j][c] + (in >> j & 1));
    booked[c] |= in;
    int mine = in >> s->index & 1;
    if (in && !mine && s->now.share >= 1)
      swarm_fail(r->run, "n%zu was told that all it gave counts in epoch %zu, but is not in chunk %zu of its own average", s->index,
                 r->epoch, c);
  }
}

static void checker_ledger(room *r) {
  for (size_t i = 0; i < r->n; i++) {
    const seat *s = &r->seats[i];
    double samples = s->now.begun && !s->auxiliary ? (double)s->now.weight * MARKED : 0;
    figure(r, "produced", samples);
    for (size_t c = 0; c < MARKED && samples > 0; c++) {
      figure(r, r->counted[i][c] ? "averaged" : "lost", (double)s->now.weight);
      if (r->counted[i][c] > 1)
        swarm_fail(r->run, "a sample of n%zu is in %d averages of epoch %zu", i, r->counted[i][c], r->epoch);
      if (!r->counted[i][c] && s->now.done && s->now.status == HV_OK && s->now.n_members > 1 && s->now.share >= 1 && !s->now.aside)
        swarm_fail(r->run, "n%zu was told OK in epoch %zu, but its samples are lost", i, r->epoch);
    }
  }
}

static void checker(room *r) {
  memset(r->counted, 0, sizeof r->counted);
  for (size_t i = 0; i < r->n; i++)
    notice(&r->seats[i]); /* who stands still to this day has not noticed it itself */
  for (size_t i = 0; i < r->n; i++) {
    seat *s = &r->seats[i];
    if (!s->now.begun)
      continue;
    checker_time(r, s);
    figure(r, s->now.done && s->now.status == HV_OK ? "steps_ok" : "steps_failed", 1);
    if (!s->now.done || !s->now.group)
      continue;
    int is_first = 1;
    for (size_t j = 0; j < i; j++)
      is_first &= !(r->seats[j].now.done && r->seats[j].now.group == s->now.group);
    if (!is_first)
      continue;
    uint64_t booked[MARKED] = {0};
    uint32_t view = main_view(r, s->now.group);
    checker_group(r, s);
    for (size_t j = i; j < r->n; j++)
      r->seats[j].now.aside |= r->seats[j].now.done && r->seats[j].now.group == s->now.group && r->seats[j].now.view != view;
    for (size_t j = i; j < r->n; j++)
      if (r->seats[j].now.done && r->seats[j].now.group == s->now.group && r->seats[j].now.view == view && !r->seats[j].auxiliary)
        book(r, &r->seats[j], booked);
  }
  checker_ledger(r);
}

/* ---- epochs ---- */

static void call(hv_sim *sim, void *arg) {
  seat *s = arg;
  if (s->pending || s->running || !hv_sim_alive(sim, s->index))
    return; /* it stood still, and is at an earlier step yet */
  fill(s);
  s->begin.run = begin;
  s->pending = 1;
  if (hv_sim_command(sim, s->index, &s->begin) != HV_OK)
    swarm_fail(s->r->run, "no memory for a command");
}

/* Somebody dies within an event, and dead ones come back. */
static void kill_some(room *r, hv_sim *sim) {
  if (!(r->run->options->faults & SWARM_KILL))
    return;
  if (below(r, 2))
    hv_sim_kill_at_event(sim, HV_SIM_ANY, hv_sim_count(sim).events + 1 + below(r, 200 * r->n), (int)below(r, 2));
  for (size_t i = 0; i < r->n; i++)
    if (!hv_sim_alive(sim, i) && below(r, 3) == 0)
      hv_sim_restart(sim, i);
}

static void next_epoch(room *r, hv_sim *sim) {
  if (r->epoch)
    checker(r);
  r->epoch_us = hv_sim_now(sim);
  r->next_us = 0;
  r->struck = 0;
  r->n_glances = 0;
  if (r->epoch++ == r->epochs) {
    r->over = 1;
    return;
  }
  kill_some(r, sim);
  for (size_t i = 0; i < r->n; i++) {
    seat *s = &r->seats[i];
    s->now = (entry){.weight = 1 + (float)below(r, 5), .poisoned = below(r, 60) == 0};
    if (hv_sim_at(sim, r->epoch_us + below(r, SPREAD_US), call, s) != HV_OK)
      swarm_fail(r->run, "no memory for a call");
  }
}

static void strike(hv_sim *sim, void *arg) {
  room *r = arg;
  (void)sim;
  if (!r->over)
    swarm_strike(r->run);
}

/* Some faults are meant for rounds under way. */
static void aim(room *r, hv_sim *sim) {
  int rounds = 0;
  for (size_t i = 0; i < r->n && !r->struck; i++)
    rounds |= hv_sim_alive(sim, i) && hv_node_registry(r->seats[i].node)->rounds;
  if (!rounds)
    return;
  r->struck = 1;
  for (size_t k = below(r, 4); k > 0; k--)
    if (hv_sim_at(sim, hv_sim_now(sim) + below(r, STRIKE_US), strike, r) != HV_OK)
      swarm_fail(r->run, "no memory for a fault");
}

static int all_are_done(const room *r) {
  for (size_t i = 0; i < r->n; i++)
    if (r->seats[i].running || r->seats[i].pending)
      return 0;
  return 1;
}

/* Its halt goes on, or a new one begins. */
static void see_halt(seat *s, uint64_t now) {
  entry *e = &s->now;
  if (e->n_halts && e->halts[e->n_halts - 1].to_us + LOOK_US >= now)
    e->halts[e->n_halts - 1].to_us = now;
  else if (e->n_halts < HALTS)
    e->halts[e->n_halts++] = (halt){now, now};
}

/* Most glances see what the one before saw. */
static void take_glance(room *r, hv_sim *sim) {
  glance *g = &r->glances[r->n_glances++];
  uint64_t rewired = hv_sim_rewired(sim);
  if (r->n_glances > 1 && r->rewired == rewired) {
    *g = g[-1];
    g->at_us = hv_sim_now(sim);
    return;
  }
  r->rewired = rewired;
  *g = (glance){.at_us = hv_sim_now(sim)};
  for (size_t i = 0; i < r->n; i++)
    for (size_t j = 0; j < i; j++)
      if (!hv_sim_apart(sim, i, j) && !hv_sim_apart(sim, j, i))
        g->reached[i] |= UINT64_C(1) << j, g->reached[j] |= UINT64_C(1) << i;
}

static void look_around(hv_sim *sim, void *arg) {
  room *r = arg;
  uint64_t now = hv_sim_now(sim);
  for (size_t i = 0; i < r->n; i++)
    if (hv_sim_paused(sim, i))
      see_halt(&r->seats[i], now);
  if (now <= r->run->apart_us + LOOK_US && r->n_glances < LOOKS)
    take_glance(r, sim);
  aim(r, sim);
  if (!r->next_us && now > r->epoch_us + SPREAD_US && all_are_done(r))
    r->next_us = now + below(r, REST_US);
  if ((r->next_us && now >= r->next_us) || now >= r->epoch_us + SWARM_EPOCH_US)
    next_epoch(r, sim);
  if (!r->over)
    hv_sim_at(sim, now + LOOK_US, look_around, r);
}

static void begins(hv_sim *sim, void *arg) {
  next_epoch(arg, sim);
  hv_sim_at(sim, hv_sim_now(sim) + LOOK_US, look_around, arg);
}

static int is_over(void *arg) {
  return ((room *)arg)->over;
}

/* In a third of all seeds, one in eight, each with lies of its own; drawn apart, so that the other seeds stay as they are. */
static void choose_liars(room *r) {
  check_rng rng = {r->run->seed ^ 0x11a5};
  int some = r->run->options->faults & SWARM_LIARS && check_random(&rng) % 3 == 0;
  for (size_t i = 2; some && i < r->n; i++)
    if (check_random(&rng) % 8 == 0)
      r->seats[i].liar = (swarm_liar){
          .tells = (unsigned)(1 + check_random(&rng) % 31) | SWARM_LIES_HUGE, .rng = {check_random(&rng)}, .sim = r->run->sim};
}

static size_t epochs_of(const swarm_run *run) {
  return (size_t)(run->options->minutes * 60e6 / SWARM_EPOCH_US + 0.5);
}

typedef enum setup { ALIKE, VERSIONS, HOMES } setup;

static void play(swarm_run *run, setup as) {
  static const hv_codec codecs[] = {HV_CODEC_NONE, HV_CODEC_FLOAT16, HV_CODEC_UNIFORM8, HV_CODEC_BLOCKWISE8};
  room *r = hv_mem_zalloc(&run->mem, sizeof *r);
  if (!r) {
    swarm_fail(run, "no memory");
    return;
  }
  r->run = run;
  r->n = run->options->nodes < NODES_MAX ? run->options->nodes : NODES_MAX;
  r->epochs = epochs_of(run);
  r->codec = codecs[run->seed % 4];
  for (size_t i = 0; i < r->n; i++)
    r->seats[i] = (seat){.r = r, .index = i, .id = hv_sim_target(run->sim, i).id, .shapes = {MARKS, NOISE}};
  choose_liars(r);
  if (as == HOMES)
    swarm_nat_open(&r->nat, run);
  for (size_t i = 0; i < r->n; i++) {
    seat *s = &r->seats[i];
    s->client = i > 1 && below(r, 8) == 0;
    s->auxiliary = i > 1 && !s->client && below(r, 16) == 0;
    hv_sim_node_config chair = {.make = make_core, .free = let_go, .arg = s, .client_mode = s->client};
    swarm_seat(run, &chair);
    if (r->nat.homes) {
      swarm_nat_place(&r->nat, run, i, &s->node, &chair);
      s->client = chair.client_mode;
      s->auxiliary = 0;
    }
    if (as == VERSIONS && i % 2)
      chair.versions = (hv_versions){HV_PROTOCOL_LOWEST, HV_PROTOCOL_HIGHEST + 1, 1};
    if (hv_sim_add(run->sim, &chair, NULL) != HV_OK)
      swarm_fail(run, "node %zu could not be made", i);
    if (r->nat.homes)
      swarm_nat_lease(&r->nat, run, i);
    char who[HV_PEER_SHORT_MAX];
    hv_sim_say(run->sim, "n%zu is %s:%s%s, lies %#x", i, hv_peer_short(&s->id, who), s->client ? " client" : "",
               s->auxiliary ? " auxiliary" : "", s->liar.tells);
  }
  uint64_t most_us = 5000000 + (r->epochs + 1) * (SWARM_EPOCH_US + REST_US);
  run->calm_us = most_us;
  run->haste = run->seed % 8 < 4 ? 4 : 1;
  swarm_trouble(run);
  hv_sim_at(run->sim, 4000000, begins, r);
  if (!hv_sim_drive(run->sim, is_over, r, most_us))
    swarm_fail(run, "the epochs do not end");
  figure(r, "epochs", (double)r->epochs);
  figure(r, "seconds", (double)hv_sim_now(run->sim) * 1e-6);
  if (r->nat.homes)
    swarm_nat_judge(&r->nat, run);
  swarm_over(run);
  swarm_trouble_fini(run);
  swarm_nat_close(&r->nat);
  hv_mem_free(r);
}

void swarm_average_play(swarm_run *run) {
  play(run, ALIKE);
}

void swarm_versions_play(swarm_run *run) {
  play(run, VERSIONS);
}

void swarm_nat_play(swarm_run *run) {
  play(run, HOMES);
}
