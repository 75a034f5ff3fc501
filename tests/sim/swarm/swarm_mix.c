/* A large swarm averages in groups of about 16, by group bits, as in Moshpit SGD (Ryabinin et al., 2021); in each round a tenth of
 * all miss it. Played until all values lie within 1e-3 of the mean of all, where at first they have a standard deviation of 1.
 * Compared with the paper: in T rounds of random groups the mean square of the deviations becomes ((r - 1) / N + r / N^2)^T of what
 * it was, r being the number of groups, and whoever misses a round is a group by itself. Counted are the messages of each peer in
 * each round: those of matchmaking must not grow with the swarm. */
#include "lib/match_swarm.h"
#include "sim/swarm/swarm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  GROUP = 16,
  ROOM = 24 /* keys hold 16 on average: a few more are no reason to split */,
  WAIT_MS = 2500,
  MOVE_US = 5000000,
  ROUNDS_MAX = 40
};

typedef struct mix {
  swarm_run *run;
  match_swarm s;
  double *values, mean;
  char *bits;
  size_t n_bits;
  uint64_t dht, summons, hellos, unary; /* messages that arrived */
} mix;

/* The kind stands in the envelope behind the version: field numbers as in the .proto. */
static void count(void *arg, size_t from, size_t to, uint8_t *bytes, size_t size) {
  mix *m = arg;
  (void)from, (void)to;
  if (size < 3)
    return;
  unsigned kind = bytes[2] >> 3;
  if (bytes[2] & 0x80 && size > 3)
    kind = ((bytes[2] & 0x7f) | (unsigned)bytes[3] << 7) >> 3;
  m->unary++;
  m->hellos += kind == 3 || kind == 5;
  m->dht += kind >= 7 && kind <= 10;
  m->summons += kind == 20 || kind == 21;
}

static double largest_deviation(const mix *m) {
  double most = 0;
  for (size_t i = 0; i < m->s.n; i++)
    most = fmax(most, fabs(m->values[i] - m->mean));
  return most;
}

static double mean_square(const mix *m) {
  double sum = 0;
  for (size_t i = 0; i < m->s.n; i++)
    sum += (m->values[i] - m->mean) * (m->values[i] - m->mean);
  return sum / (double)m->s.n;
}

/* The averages of those who hold the same group; and where they go next. Returns how many groups there were. */
static size_t average(mix *m, const char *epoch) {
  double *next = hv_mem_array(&m->run->mem, m->s.n, sizeof *next);
  size_t groups = 0;
  for (size_t i = 0; i < m->s.n; i++) {
    match_try *t = match_swarm_try(&m->s, i);
    next[i] = m->values[i];
    if (!t || strcmp(t->epoch, epoch) != 0 || !t->group)
      continue;
    double sum = 0;
    size_t n = 0, first = SIZE_MAX;
    for (size_t k = 0; k < t->group->n_members; k++) {
      size_t j = 0; /* the node's number stands in what it told */
      memcpy(&j, t->group->gathers[k].data, t->group->gathers[k].size);
      match_try *o = match_swarm_try(&m->s, j);
      if (!o->group || memcmp(o->group->id, t->group->id, sizeof t->group->id) != 0)
        continue;
      sum += m->values[j];
      first = j < first ? j : first;
      n++;
    }
    next[i] = sum / (double)n;
    groups += first == i;
  }
  memcpy(m->values, next, m->s.n * sizeof *next);
  hv_mem_free(next);
  return groups;
}

static void go_on(mix *m, const char *epoch) {
  for (size_t i = 0; i < m->s.n; i++) {
    match_try *t = match_swarm_try(&m->s, i);
    char out[HV_MATCH_BITS_MAX + 1];
    if (!t || strcmp(t->epoch, epoch) != 0 || !t->group)
      continue;
    hv_match_next_bits(hv_match_bits(m->s.seats[i].match), GROUP, t->group, out);
    if (hv_match_set_bits(m->s.seats[i].match, hv_span_of(out, m->n_bits), NULL) != HV_OK)
      swarm_fail(m->run, "n%zu could not move", i);
    match_swarm_forget(&m->s.seats[i], 0);
  }
}

static void play_round(mix *m, unsigned round) {
  char epoch[16];
  size_t grouped = 0, groups;
  uint64_t now = hv_sim_now(m->run->sim);
  snprintf(epoch, sizeof epoch, "%u", round);
  for (size_t i = 0; i < m->s.n; i++)
    if (check_random(&m->run->rng) % 10)
      match_swarm_seek(&m->s, i, epoch, 0, WAIT_MS, hv_span_of(&i, sizeof i));
  hv_sim_run_until(m->run->sim, now + (WAIT_MS + HV_MATCH_GRACE_MS + 100) * 1000ull);
  for (size_t i = 0; i < m->s.n; i++) {
    match_try *t = match_swarm_try(&m->s, i);
    if (t && strcmp(t->epoch, epoch) == 0 && !t->done)
      swarm_fail(m->run, "n%zu hangs in round %u", i, round);
    grouped += t && strcmp(t->epoch, epoch) == 0 && t->group;
  }
  groups = average(m, epoch);
  swarm_figure(m->run, "members_grouped", (double)grouped);
  swarm_figure(m->run, "groups", (double)groups);
  go_on(m, epoch);
}

static void make_swarm(mix *m) {
  swarm_run *run = m->run;
  size_t n = run->options->nodes;
  while (((size_t)GROUP << m->n_bits) < n)
    m->n_bits++;
  m->s.config.target_group_size = ROOM;
  m->s.hello_every_ms = 60000;
  m->s.peers_room = 8;
  for (size_t i = 0; i < n; i++) {
    match_seat *seat = match_swarm_next(&m->s);
    char *bits = m->bits + i * m->n_bits;
    for (size_t b = 0; b < m->n_bits; b++)
      bits[b] = check_random(&run->rng) & 1 ? '1' : '0';
    seat->config.bits = hv_span_of(bits, m->n_bits);
    if (i) {
      seat->has_initial = 1;
      seat->initial = hv_sim_target(run->sim, check_random(&run->rng) % i);
    }
    match_swarm_add(&m->s);
    m->values[i] = check_normal(&run->rng);
    m->mean += m->values[i] / (double)n;
  }
}

void swarm_mix_play(swarm_run *run) {
  mix m = {.run = run};
  size_t n = run->options->nodes;
  match_swarm_init(&m.s, run->sim, &run->mem, n);
  m.values = hv_mem_array(&run->mem, n, sizeof *m.values);
  m.bits = hv_mem_array(&run->mem, n, HV_MATCH_BITS_MAX);
  make_swarm(&m);
  hv_sim_run_until(run->sim, 20000000);
  hv_sim_set_tap(run->sim, count, &m);
  hv_sim_counts before = hv_sim_count(run->sim);
  double start = mean_square(&m), expected = start;
  unsigned rounds = 0, bound = 0;
  while (rounds < ROUNDS_MAX && largest_deviation(&m) > 1e-3) {
    play_round(&m, ++rounds);
    hv_sim_run_until(run->sim, hv_sim_now(run->sim) + MOVE_US);
    hv_sim_say(run->sim, "round %u: mean square %.3g, largest deviation %.3g", rounds, mean_square(&m), largest_deviation(&m));
  }
  /* The paper's: groups of 16 of nine tenths, the others alone; when the mean square is 1e-6 / n, all are within 1e-3. */
  double groups = 0.9 * (double)n / GROUP + 0.1 * (double)n, factor = (groups - 1) / (double)n + groups / ((double)n * (double)n);
  for (; expected > 1e-6 / (double)n; bound++)
    expected *= factor;
  if (largest_deviation(&m) > 1e-3)
    swarm_fail(run, "after %u rounds somebody is still %.3g from the mean", rounds, largest_deviation(&m));
  hv_sim_counts after = hv_sim_count(run->sim);
  double shares = (double)n * rounds;
  swarm_figure(run, "rounds", rounds);
  swarm_figure(run, "rounds_of_the_bound", bound);
  swarm_figure(run, "match_messages_of_a_peer_and_round",
               (double)(after.messages - before.messages - m.unary + m.summons) / shares);
  swarm_figure(run, "dht_messages_of_a_peer_and_round", (double)m.dht / shares);
  swarm_figure(run, "hellos_of_a_peer_and_round", (double)m.hellos / shares);
  hv_sim_set_tap(run->sim, NULL, NULL);
  swarm_over(run);
  match_swarm_fini(&m.s);
  hv_mem_free(m.values);
  hv_mem_free(m.bits);
}
