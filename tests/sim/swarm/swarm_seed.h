/* One seed of a swarm room as a test: what swarm.c does for the program, without its figures. Included after the room's own files.
 */
#ifndef HV_TESTS_SWARM_SEED_H
#define HV_TESTS_SWARM_SEED_H

#include "lib/check.h"

#include "sim/swarm/swarm.h"

#include <stdio.h>

enum { EVERYTHING = 255, AND_LIARS = EVERYTHING | SWARM_LIARS };

void swarm_fail(swarm_run *run, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!run->failure[0])
    vsnprintf(run->failure, sizeof run->failure, format, args);
  va_end(args);
}

void swarm_figure(swarm_run *run, const char *name, double value) {
  (void)run, (void)name, (void)value;
}

void swarm_over(swarm_run *run) {
  size_t left = hv_sim_free(run->sim);
  run->sim = NULL;
  if (left)
    swarm_fail(run, "%zu blocks were left on the accounts of nodes", left);
}

#include <stdlib.h>
static void home_say(void *arg, const char *line) {
  (void)arg;
  puts(line);
}
/* These faults, as the program has them. */
static void plays_well_under(unsigned faults, void (*play_room)(swarm_run *run), uint64_t seed, size_t nodes, double minutes) {
  swarm_options options = {.first_seed = seed, .last_seed = seed, .nodes = nodes, .minutes = minutes, .faults = faults};
  hv_sim_config config = hv_sim_defaults(seed);
  config.link.delay_us = 25000;
  config.link.jitter_us = 20000;
  config.link.loss = config.link.duplicate = 0.02;
  config.link.reorder = 0.05;
  swarm_run run = {.options = &options, .seed = seed, .rng = {seed ^ 0x5eed}, .end_us = (uint64_t)(minutes * 60e6)};
  run.calm_us = run.end_us / 3 * 2;
  hv_mem_init(&run.mem, NULL, HV_MEM_UNLIMITED);
  config.say = getenv("HV_NARRATE") ? home_say : NULL;
  run.sim = hv_sim_new(&run.mem, &config);
  assert_non_null(run.sim);
  play_room(&run);
  if (run.failure[0])
    fail_msg("seed %llu of %zu nodes: %s", (unsigned long long)seed, nodes, run.failure);
  assert_int_equal(atomic_load(&run.mem.blocks), 0);
}

static inline void plays_well(void (*play_room)(swarm_run *run), uint64_t seed, size_t nodes, double minutes) {
  plays_well_under(EVERYTHING, play_room, seed, nodes, minutes);
}

#endif
