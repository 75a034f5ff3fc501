/* A core that does a bit of everything: calls, late answers, streams both ways, held payloads, jobs, timers. The simulator's own
 * tests drive it, so that a fault at any moment finds something under way. All it has is on its account, and gone with it. */
#ifndef HV_TESTS_MIXER_H
#define HV_TESTS_MIXER_H

#include "core/env.h"
#include "net/sim/sim.h"

/* Lives longer than the core, across restarts: settings, and what was seen. */
typedef struct mixer_seat {
  const hv_target *peers; /* whom to ask: itself among them is skipped */
  size_t n_peers, me;
  uint32_t every_ms, timeout_ms;
  int calls_only; /* no streams, no jobs, no late answers */
  uint32_t piece; /* bytes of a stream's message */
  struct {
    uint64_t starts, stops, ticks, asked, answered, timeouts, failed, requests, streams, streams_whole, streams_broken, bytes, jobs,
        downs;
  } seen;
  hv_status last_failure;
  uint64_t last_now_us;
  int wrong; /* something came that must not */
} mixer_seat;

hv_status mixer_make(hv_env *env, void *arg, hv_core *out); /* arg: mixer_seat */
void mixer_free(void *self);

/* With HV_NARRATE set in the environment, every event of the run is told on stdout. */
void mixer_narrate(hv_sim_config *config);

/* Adds n mixers that know each other; seats[i] as the test set them, peers and me are filled in. `peers` has room for n. */
hv_status mixer_add_all(hv_sim *sim, mixer_seat *seats, hv_target *peers, size_t n);

#endif
