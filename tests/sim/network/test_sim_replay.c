/* One seed is one run: the same events at the same times with the same bytes. */
#include "lib/check.h"

#include "lib/mixer.h"

#include <stdio.h>
#include <string.h>

enum { NODES = 12 };

typedef struct outcome {
  uint64_t hash;
  hv_sim_counts counts;
  uint64_t lines;
} outcome;

static void count_line(void *arg, const char *line) {
  (void)line;
  ++*(uint64_t *)arg;
}

static hv_sim_config rough(uint64_t seed) {
  hv_sim_config config = hv_sim_defaults(seed);
  config.link =
      (hv_sim_link){.delay_us = 15000, .jitter_us = 20000, .loss = 0.05, .duplicate = 0.03, .reorder = 0.05, .rate = 4 << 20};
  return config;
}

typedef struct run {
  hv_mem mem;
  hv_sim *sim;
  mixer_seat seats[NODES];
  hv_target peers[NODES];
} run;

static void begin(run *r, const hv_sim_config *config) {
  memset(r, 0, sizeof *r);
  hv_mem_init(&r->mem, NULL, HV_MEM_UNLIMITED);
  for (int i = 0; i < NODES; i++)
    r->seats[i] = (mixer_seat){.every_ms = 400, .timeout_ms = 700, .piece = 50000};
  r->sim = hv_sim_new(&r->mem, config);
  assert_non_null(r->sim);
  assert_int_equal(mixer_add_all(r->sim, r->seats, r->peers, NODES), HV_OK);
}

static void restart_three(hv_sim *sim, void *arg) {
  (void)arg;
  assert_int_equal(hv_sim_restart(sim, 3), HV_OK);
}

static void kill_three(hv_sim *sim, void *arg) {
  (void)arg;
  hv_sim_kill(sim, 3);
}

static void plan(run *r) {
  assert_int_equal(hv_sim_at(r->sim, 3000000, kill_three, NULL), HV_OK);
  assert_int_equal(hv_sim_at(r->sim, 5000000, restart_three, NULL), HV_OK);
}

static outcome finish(run *r) {
  outcome o = {.hash = hv_sim_hash(r->sim), .counts = hv_sim_count(r->sim)};
  for (int i = 0; i < NODES; i++)
    assert_int_equal(r->seats[i].wrong, 0);
  assert_int_equal(hv_sim_free(r->sim), 0);
  assert_int_equal(atomic_load(&r->mem.blocks), 0);
  return o;
}

static outcome whole_run(hv_sim_config config) {
  run r;
  outcome o;
  uint64_t lines = 0;
  config.say_arg = &lines;
  begin(&r, &config);
  plan(&r);
  hv_sim_run_until(r.sim, 10000000);
  o = finish(&r);
  o.lines = lines;
  return o;
}

static void the_same_seed_gives_the_same_trace(void **state) {
  (void)state;
  outcome a = whole_run(rough(7)), b = whole_run(rough(7));
  assert_true(a.counts.events > 1000);
  assert_memory_equal(&a, &b, sizeof a);
}

static void another_seed_gives_another_trace(void **state) {
  (void)state;
  assert_true(whole_run(rough(7)).hash != whole_run(rough(8)).hash);
}

static void the_narrator_changes_nothing_and_tells_every_event(void **state) {
  (void)state;
  hv_sim_config loud = rough(7);
  loud.say = count_line;
  outcome a = whole_run(rough(7)), b = whole_run(loud);
  assert_true(a.hash == b.hash);
  assert_int_equal(a.lines, 0);
  assert_true(b.lines >= b.counts.events);
}

static void bytes_of_payloads_are_in_the_trace_unless_told_otherwise(void **state) {
  (void)state;
  hv_sim_config without = rough(7);
  without.skip_payload_hash = 1;
  outcome a = whole_run(rough(7)), b = whole_run(without);
  assert_true(a.hash != b.hash);
  assert_memory_equal(&a.counts, &b.counts, sizeof a.counts);
}

static void real_keys_change_identities_not_events(void **state) {
  (void)state;
  hv_sim_config real = rough(7);
  real.real_crypto = 1;
  outcome a = whole_run(rough(7)), b = whole_run(real), c = whole_run(real);
  assert_int_equal(a.counts.events, b.counts.events);
  assert_true(b.hash == c.hash);
}

/* Two worlds in one process, taking turns, are as if each were alone. */
static void worlds_do_not_touch_each_other(void **state) {
  (void)state;
  hv_sim_config one = rough(7), other = rough(8);
  run a, b;
  begin(&a, &one);
  begin(&b, &other);
  plan(&a);
  plan(&b);
  for (uint64_t t = 0; t <= 10000000; t += 100000) {
    hv_sim_run_until(a.sim, t);
    hv_sim_run_until(b.sim, t);
  }
  assert_true(finish(&a).hash == whole_run(one).hash);
  assert_true(finish(&b).hash == whole_run(other).hash);
}

static void steps_and_runs_are_the_same_run(void **state) {
  (void)state;
  hv_sim_config config = rough(7);
  run r;
  begin(&r, &config);
  plan(&r);
  while (hv_sim_now(r.sim) < 9000000)
    assert_int_equal(hv_sim_step(r.sim), 1);
  hv_sim_run_until(r.sim, 10000000);
  assert_true(finish(&r).hash == whole_run(config).hash);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_seed_gives_the_same_trace),
      cmocka_unit_test(another_seed_gives_another_trace),
      cmocka_unit_test(the_narrator_changes_nothing_and_tells_every_event),
      cmocka_unit_test(bytes_of_payloads_are_in_the_trace_unless_told_otherwise),
      cmocka_unit_test(real_keys_change_identities_not_events),
      cmocka_unit_test(worlds_do_not_touch_each_other),
      cmocka_unit_test(steps_and_runs_are_the_same_run),
  };
  return cmocka_run_group_tests_name("sim: replay", tests, NULL, NULL);
}
