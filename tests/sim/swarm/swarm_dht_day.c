/* A DHT through a day: nodes come and go, short and long lives are stored, and nothing grows. */
#include "lib/dht_swarm.h"
#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <string.h>

enum { KEYS = 40, SHORT = 20, PIECE_S = 1800, EARLY = 2, VALUE = 32 };

typedef struct day {
  swarm_run *run;
  dht_swarm s;
  dht_try stored[KEYS], got[KEYS], briefly[SHORT];
  size_t piece, found, asked;
} day;

static uint64_t below(day *d, uint64_t n) {
  return check_random(&d->run->rng) % n;
}

static void key_of(size_t i, char out[VALUE]) {
  snprintf(out, VALUE, "key %zu", i);
}

/* By nodes that stay: for longer than the day, so that they are said again all the time. */
static void store_for_long(day *d) {
  char key[VALUE];
  for (size_t i = 0; i < KEYS; i++) {
    key_of(i, key);
    dht_swarm_store(&d->s, i % (d->s.n / 2), &d->stored[i], key, NULL, key, (uint64_t)(d->run->options->minutes * 60000) + 7200000);
  }
  dht_swarm_finish(&d->s, d->stored, KEYS, 60);
}

/* A node of the second half goes, and comes back a piece later; some values live for minutes only. */
static void one_piece(day *d) {
  size_t half = d->s.n / 2, caller = half + d->piece % (d->s.n - half);
  char key[VALUE];
  hv_sim_kill(d->s.sim, caller);
  for (size_t i = 0; i < SHORT; i++) {
    snprintf(key, sizeof key, "brief %zu %zu", d->piece, i);
    dht_swarm_store(&d->s, below(d, half), &d->briefly[i], key, NULL, key, 60000 + below(d, 600000));
  }
  dht_swarm_finish(&d->s, d->briefly, SHORT, 60);
  dht_swarm_run(&d->s, PIECE_S / 2.0);
  hv_sim_restart(d->s.sim, caller);
  dht_swarm_run(&d->s, PIECE_S / 2.0);
  for (size_t i = 0; i < KEYS; i++) {
    key_of(i, key);
    dht_swarm_get(&d->s, below(d, half), &d->got[i], key, 1);
  }
  dht_swarm_finish(&d->s, d->got, KEYS, 60);
  for (size_t i = 0; i < KEYS; i++) {
    key_of(i, key);
    d->asked++;
    d->found += d->got[i].found && d->got[i].value_size == strlen(key) && memcmp(d->got[i].value, key, strlen(key)) == 0;
  }
}

void swarm_dht_day_play(swarm_run *run) {
  day *d = hv_mem_zalloc(&run->mem, sizeof *d);
  d->run = run;
  d->s.config = (hv_dht_config){.num_replicas = 5};
  dht_swarm_init(&d->s, run->sim, &run->mem, run->options->nodes);
  for (size_t i = 0; i < run->options->nodes; i++) {
    size_t knows = i ? below(d, i < run->options->nodes / 2 ? i : run->options->nodes / 2) : 0;
    dht_swarm_add(&d->s, &knows, i > 0, 0);
  }
  dht_swarm_run(&d->s, 20);
  store_for_long(d);
  size_t pieces = (size_t)(run->options->minutes * 60 / PIECE_S), early = 0, blocks = 0;
  for (d->piece = 0; d->piece < pieces; d->piece++) {
    one_piece(d);
    if (d->piece == EARLY) {
      early = atomic_load(&run->mem.used);
      blocks = run->mem.blocks;
    }
  }
  size_t late = atomic_load(&run->mem.used);
  swarm_figure(run, "hours", (double)pieces * PIECE_S / 3600);
  swarm_figure(run, "gets", (double)d->asked);
  swarm_figure(run, "found", (double)d->found);
  swarm_figure(run, "bytes_early", (double)early);
  swarm_figure(run, "bytes_late", (double)late);
  swarm_figure(run, "blocks_early", (double)blocks);
  swarm_figure(run, "blocks_late", (double)run->mem.blocks);
  if (d->found < d->asked)
    swarm_fail(run, "%zu of %zu gets of what was to live found nothing", d->asked - d->found, d->asked);
  if (pieces > 2 * EARLY && late > early + early / 5)
    swarm_fail(run, "the swarm had %zu bytes early in the day and %zu at its end", early, late);
  swarm_over(run);
  dht_swarm_fini(&d->s);
  hv_mem_free(d);
}
