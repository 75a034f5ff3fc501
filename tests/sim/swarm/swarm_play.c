#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void swarm_fail(swarm_run *run, const char *format, ...) {
  if (run->failure[0])
    return;
  va_list args;
  va_start(args, format);
  vsnprintf(run->failure, sizeof run->failure, format, args);
  va_end(args);
  hv_sim_say(run->sim, "FAILED: %s", run->failure);
}

void swarm_figure(swarm_run *run, const char *name, double value) {
  for (int i = 0; i < SWARM_FIGURES_MAX; i++) {
    if (!run->figures[i].name)
      run->figures[i].name = name;
    if (strcmp(run->figures[i].name, name) == 0) {
      run->figures[i].sum += value;
      return;
    }
  }
}

void swarm_over(swarm_run *run) {
  swarm_figure(run, "events", (double)hv_sim_count(run->sim).events);
  swarm_figure(run, "messages", (double)hv_sim_count(run->sim).messages);
  run->hash = hv_sim_hash(run->sim);
  size_t left = hv_sim_free(run->sim);
  run->sim = NULL;
  if (left)
    snprintf(run->failure, sizeof run->failure, "%zu blocks were left on the accounts of nodes", left);
}

static void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

uint64_t swarm_play(const swarm_room *room, const swarm_options *options, uint64_t seed, swarm_run *run) {
  hv_sim_config config = hv_sim_defaults(seed);
  config.link.delay_us = 25000;
  config.link.jitter_us = 20000;
  config.link.loss = options->faults & SWARM_LOSS ? 0.02 : 0;
  config.link.duplicate = options->faults & SWARM_DUPLICATE ? 0.02 : 0;
  config.link.reorder = options->faults & SWARM_REORDER ? 0.05 : 0;
  config.say = options->narrate ? print_line : NULL;
  *run = (swarm_run){.options = options, .seed = seed, .rng = {seed ^ 0x5eed}};
  run->end_us = (uint64_t)(options->minutes * 60e6);
  run->calm_us = run->end_us / 3 * 2;
  hv_mem_init(&run->mem, NULL, HV_MEM_UNLIMITED);
  run->sim = hv_sim_new(&run->mem, &config);
  if (!run->sim) {
    snprintf(run->failure, sizeof run->failure, "no memory for the world");
    return 0;
  }
  room->play(run);
  if (atomic_load(&run->mem.blocks) && !run->failure[0])
    snprintf(run->failure, sizeof run->failure, "%zu blocks were left when the world had ended",
             (size_t)atomic_load(&run->mem.blocks));
  return run->hash;
}
