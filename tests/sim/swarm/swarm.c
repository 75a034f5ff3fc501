#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL = 511 };

#ifdef HV_SANITIZED
enum { FEWER = 4 }; /* seeds of `check`, which are there for the memory's sake */
#else
enum { FEWER = 1 };
#endif

/* A room of the house is one row here. */
static const swarm_room rooms[] = {
    {"house", "peers find each other, echo, and send parcels", 24, 5, ALL, 2, swarm_house_play},
    {"dht-trouble", "stores and gets while everything goes wrong", 24, 3, ALL, 2, swarm_dht_play},
    {"match", "groups form, epoch after epoch, while everything goes wrong", 16, 6, ALL, 8, swarm_match_play},
    {"setups", "the same with two setups that change: a group has one setup, and no seek outlasts its time", 12, 6, ALL, 8,
     swarm_setups_play},
    {"run", "peers of a run, each driven by the machine that ships, as one after another goes and comes", 4, 1, 0, 40,
     swarm_run_play},
    {"pair-run", "two that only dial out and a hub: one leaves politely, and the other goes on", 3, 1, 0, 40, swarm_run_pair_play},
    {"hasty-run", "trainers that only dial out and a hub, with epochs of 10 to 300 ms: they stay together", 3, 1, 0, 24,
     swarm_run_hasty_play},
    {"posted-run", "the same as run, where a program begins its next batch before it hears whether its epoch ends", 4, 1, 0, 24,
     swarm_run_posted_play},
    {"upset-run", "programs whose gradients overflow and whose actions fail, and users who restore checkpoints and ask for states",
     4, 1, 0, 24, swarm_run_upset_play},
    {"home", "peers on slow lines, on which states and averages are bytes: who comes, is cut off, or is slow", 12, 1, 0, 24,
     swarm_home_play},
    {"liars-home", "the same beside one that claims to come, loads for minutes, crashes each second, or offers another state", 6, 1,
     0, 0, swarm_home_liars_play},
    {"local-home", "the same as home, with local steps: newcomers train while states of up to eight epochs come", 12, 1, 0, 16,
     swarm_home_local_play},
    {"local-run", "the same as run, where each batch is a step and only the state is averaged", 4, 1, 0, 8, swarm_run_local_play},
    {"anchor-run", "the same as local-run with an outer optimizer, which steps an anchor that all share", 4, 1, 0, 24,
     swarm_run_anchor_play},
    {"faulty-anchor-run", "the same under faults: each sample counts once, or is lost by a cause", 6, 4, ALL, 8,
     swarm_run_anchor_play},
    {"liars-anchor-run", "the same beside liars", 6, 1, SWARM_LIARS, 8, swarm_run_anchor_play},
    {"odd-run", "the same as run, where gradients are not finite, and only averages of the state are offered", 4, 1, 0, 8,
     swarm_run_odd_play},
    {"lone-run", "the same as odd-run, where who is alone waits", 4, 1, 0, 0, swarm_run_lone_play},
    {"faulty-run", "the same under faults: nobody is lost for good", 6, 4, ALL, 8, swarm_run_play},
    {"liars-run", "the same as run beside liars: in rounds, by states on offer, in the log, or by claims", 6, 1, SWARM_LIARS, 8,
     swarm_run_play},
    {"mix", "averages in groups of 16, a tenth missing: rounds until all agree", 48, 4, 0, 1, swarm_mix_play},
    {"average", "epochs of averaging: every sample once or lost, replicas equal, nobody waits for good", 8,
     4 * SWARM_EPOCH_US / 60e6, ALL, 150, swarm_average_play},
    {"versions", "the same where every other node also speaks the next version of the protocol", 12, 4 * SWARM_EPOCH_US / 60e6, ALL,
     20, swarm_versions_play},
    {"nat",
     "the same where most nodes live behind NATs of four kinds, some with a port that is opened, some with a lease that ends", 8,
     8 * SWARM_EPOCH_US / 60e6, 0, 60, swarm_nat_play},
    {"dht-join", "random bootstrap lists: one swarm within ten seconds", 32, 1, 0, 16, swarm_dht_join_play},
    {"dht-half", "20 replicas, half of all nodes die at once", 40, 1, 0, 2, swarm_dht_half_play},
    {"dht-quarter", "20 replicas, three quarters die at once", 40, 1, 0, 2, swarm_dht_three_quarters_play},
    {"dht-five", "5 replicas, half die at once: 1 - p^5 are found", 64, 1, 0, 1, swarm_dht_five_play},
    {"dht-cost", "how many calls a store takes in a small swarm", 32, 1, 0, 4, swarm_dht_cost_play},
    {"dht-hops", "rounds of a get, and its time against rounds x RTT", 128, 1, 0, 1, swarm_dht_hops_play},
    {"dht-skew", "clocks an hour apart: nothing is lost early, nothing kept late", 24, 3, 0, 4, swarm_dht_skew_play},
    {"dht-day", "hours of coming and going: what lives long is found, and nothing grows", 16, 180, 0, 1, swarm_dht_day_play},
    {"dht-liars", "a fifth of all nodes lie: owned records are got right", 60, 1, 0, 2, swarm_dht_liars_play},
    {"dht-liars20", "the same, records without owners, 20 replicas", 60, 1, 0, 2, swarm_dht_liars_unowned_play},
    {"dht-ground", "20 identities made to stand around one key", 100, 1, 0, 1, swarm_dht_ground_play},
    {"dht-forged", "forged, altered and replayed records: a million a minute", 16, 0.02, 0, 4, swarm_dht_forged_play},
    {"state", "joiners load the swarm's state while donors die", 10, 1, 0, 4, swarm_state_play},
    {"state-demand", "donors that die give a state to joiners that ask, and one peer floods them", 14, 1, 0, 4,
     swarm_state_demand_play},
    {"state-gifts", "trainers that only dial out give states to a hub, from which joiners load, while everything goes wrong", 9, 6,
     ALL, 6, swarm_state_gifts_play},
    {"state-liars", "the same, three donors of ten lie", 24, 1, 0, 4, swarm_state_liars_play},
    {"round", "one round of averaging: all ends, and ends the same, whatever dies or lies", 8, 1.5, ALL, 300, swarm_round_play},
    {"progress-cost", "what knowing the swarm's progress costs, how near the sum is and how old", 48, 1, 0, 1, swarm_progress_play},
    {"progress-liars", "the same with a twentieth of liars about epochs, samples and speeds", 64, 1, 0, 1,
     swarm_progress_liars_play},
};
enum { ROOMS = sizeof rooms / sizeof *rooms };

static const struct {
  const char *name;
  unsigned bits;
} faults[] = {
    {"loss", SWARM_LOSS},
    {"duplicate", SWARM_DUPLICATE},
    {"reorder", SWARM_REORDER},
    {"kill", SWARM_KILL},
    {"unplug", SWARM_UNPLUG},
    {"pause", SWARM_PAUSE},
    {"partition", SWARM_PARTITION},
    {"skew", SWARM_SKEW},
    {"liars", SWARM_LIARS},
    {"all", ALL},
    {"none", 0},
};
enum { FAULTS = sizeof faults / sizeof *faults };

static void add_up(swarm_run *sum, const swarm_run *run) {
  for (int i = 0; i < SWARM_FIGURES_MAX && run->figures[i].name; i++)
    swarm_figure(sum, run->figures[i].name, run->figures[i].sum);
}

static void say_failure(const swarm_room *room, const swarm_options *o, uint64_t seed, const char *failure) {
  char list[128] = "";
  for (int i = 0; i < FAULTS - 2; i++)
    if (o->faults & faults[i].bits)
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? "," : "", faults[i].name);
  printf("seed %llu: %s\n  again: swarm %s --seeds %llu-%llu --nodes %zu --minutes %g --faults %s --narrate\n",
         (unsigned long long)seed, failure, room->name, (unsigned long long)seed, (unsigned long long)seed, o->nodes, o->minutes,
         list[0] ? list : "none");
}

/* All seeds of a room, the first one twice: it must give the same trace. */
static int play_all(const swarm_room *room, const swarm_options *options) {
  struct timespec start, end;
  unsigned long long failed = 0, played = 0;
  swarm_run run, sum = {.options = options};
  uint64_t hashes = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (uint64_t seed = options->first_seed; seed <= options->last_seed; seed++) {
    uint64_t hash = swarm_play(room, options, seed, &run);
    add_up(&sum, &run);
    hashes = hashes * 31 + hash;
    played++;
    swarm_run again;
    if (seed == options->first_seed && !options->narrate && swarm_play(room, options, seed, &again) != hash && !run.failure[0])
      snprintf(run.failure, sizeof run.failure, "the same seed gave another trace");
    if (run.failure[0]) {
      failed++;
      say_failure(room, options, seed, run.failure);
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("{\"room\": \"%s\", \"seeds\": %llu, \"failed\": %llu, \"nodes\": %zu, \"minutes\": %g, \"wall_s\": %.3f, \"trace\": "
         "\"%016llx\", \"figures\": {",
         room->name, played, failed, options->nodes, options->minutes,
         (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9, (unsigned long long)hashes);
  for (int i = 0; i < SWARM_FIGURES_MAX && sum.figures[i].name; i++)
    printf("%s\"%s\": %.15g", i ? ", " : "", sum.figures[i].name, sum.figures[i].sum);
  printf("}}\n");
  return failed > 0;
}

/* ---- the command line ---- */

static int usage(void) {
  fprintf(
      stderr,
      "usage: swarm ROOM [--seeds A-B] [--nodes N] [--minutes M | --epochs E] [--faults LIST|all|none] [--narrate]\n       swarm "
      "check\na ROOM that others begin with, as dht, is all of them\nfaults:");
  for (int i = 0; i < FAULTS; i++)
    fprintf(stderr, " %s", faults[i].name);
  fprintf(stderr, "\nrooms:\n");
  for (int i = 0; i < ROOMS; i++)
    fprintf(stderr, "  %-10s %s\n", rooms[i].name, rooms[i].about);
  return 2;
}

static int read_faults(const char *list, unsigned *out) {
  *out = 0;
  while (*list) {
    size_t n = strcspn(list, ",");
    int i = 0;
    while (i < FAULTS && (strlen(faults[i].name) != n || strncmp(faults[i].name, list, n) != 0))
      i++;
    if (i == FAULTS)
      return 0;
    *out |= faults[i].bits;
    list += n + (list[n] == ',');
  }
  return 1;
}

static int read_option(const char *name, const char *value, swarm_options *o) {
  char *end;
  if (strcmp(name, "--seeds") == 0) {
    o->first_seed = o->last_seed = strtoull(value, &end, 10);
    if (*end == '-')
      o->last_seed = strtoull(end + 1, &end, 10);
    return *end == 0 && o->first_seed <= o->last_seed;
  }
  if (strcmp(name, "--nodes") == 0) {
    o->nodes = strtoul(value, &end, 10);
    return *end == 0 && o->nodes >= 2 && o->nodes <= 100000;
  }
  if (strcmp(name, "--minutes") == 0) {
    o->minutes = strtod(value, &end);
    return *end == 0 && o->minutes > 0 && o->minutes <= 1e6;
  }
  if (strcmp(name, "--epochs") == 0) {
    o->minutes = strtod(value, &end) * SWARM_EPOCH_US / 60e6;
    return *end == 0 && o->minutes > 0 && o->minutes <= 1e6;
  }
  return strcmp(name, "--faults") == 0 && read_faults(value, &o->faults);
}

/* "dht" asks for dht-join, dht-half, ... */
static int is_asked_for(const char *name, const char *room) {
  size_t n = strlen(name);
  return strcmp(name, "check") == 0 || strcmp(room, name) == 0 || (strncmp(room, name, n) == 0 && room[n] == '-');
}

/* Of `check`. Seed 4 of the run is in notes/open-seeds.md. */
static uint64_t first_seed_of(const swarm_room *room) {
  return room->play == swarm_run_play ? 5 : 1;
}

int main(int argc, char **argv) {
  if (argc < 2)
    return usage();
  int failed = 0, found = 0;
  for (int i = 0; i < ROOMS; i++) {
    const swarm_room *room = &rooms[i];
    uint64_t first = first_seed_of(room);
    swarm_options o = {.first_seed = first,
                       .last_seed = first - 1 + (room->seeds + FEWER - 1) / FEWER,
                       .nodes = room->nodes,
                       .minutes = room->minutes,
                       .faults = room->faults};
    if (!is_asked_for(argv[1], room->name))
      continue;
    found++;
    for (int a = 2; a < argc; a++) {
      if (strcmp(argv[a], "--narrate") == 0) {
        o.narrate = 1;
        continue;
      }
      if (a + 1 >= argc || !read_option(argv[a], argv[a + 1], &o))
        return usage();
      a++;
    }
    failed += play_all(room, &o);
  }
  if (found > 1)
    printf("{\"room\": \"%s\", \"rooms\": %d, \"failed\": %d}\n", argv[1], found, failed);
  return found ? failed > 0 : usage();
}
