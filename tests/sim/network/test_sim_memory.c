/* What if there is no memory, at any moment? The world and its nodes fail, whole, and leave nothing. */
#include "lib/check.h"

#include "lib/mixer.h"

#include <string.h>

enum { NODES = 3 };

/* The account of the world: everything in it, and the nodes' below it. */
static hv_status small_world(hv_mem *mem, void *arg) {
  mixer_seat seats[NODES];
  hv_target peers[NODES];
  hv_sim_config config = hv_sim_defaults(21);
  const int *real = arg;
  config.real_crypto = *real;
  config.window = 100000;
  mixer_narrate(&config);
  hv_sim *sim = hv_sim_new(mem, &config);
  if (!sim)
    return HV_NOMEM;
  for (int i = 0; i < NODES; i++)
    seats[i] = (mixer_seat){.every_ms = 150, .timeout_ms = 300, .piece = 30000};
  hv_status status = mixer_add_all(sim, seats, peers, NODES);
  if (status == HV_OK) {
    hv_sim_run_until(sim, 700000);
    hv_sim_kill(sim, 1);
    hv_sim_run_until(sim, 800000);
    status = hv_sim_restart(sim, 1);
    hv_sim_run_until(sim, 1200000);
    hv_sim_stop(sim, 0);
    hv_sim_run_until(sim, 2000000);
    for (size_t i = 0; i < NODES; i++)
      if (!hv_sim_alive(sim, i) && i != 0)
        status = HV_NOMEM;
    if (hv_sim_leaks(sim))
      status = HV_INTERNAL;
  }
  if (hv_sim_free(sim))
    status = HV_INTERNAL;
  for (int i = 0; i < NODES && status == HV_OK; i++)
    if (seats[i].wrong)
      status = HV_INTERNAL;
  assert_int_not_equal(status, HV_INTERNAL);
  return status;
}

static void a_world_without_memory_fails_whole_at_every_allocation(void **state) {
  (void)state;
  int real = 0;
  assert_true(check_out_of_memory(small_world, &real) > 300);
}

static void world_with_real_keys_fails_whole_at_every_allocation(void **state) {
  (void)state;
  hv_mem mem;
  int real = 1;
  for (long n = 0; n < 24; n++) { /* making the nodes: the rest is the same */
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_mem_fail_in(&mem, n);
    small_world(&mem, &real);
    assert_int_equal(atomic_load(&mem.blocks), 0);
  }
}

static void a_node_fails_alone_at_every_allocation_of_its_own(void **state) {
  (void)state;
  for (long n = 0;; n++) {
    hv_mem mem;
    mixer_seat seats[NODES];
    hv_target peers[NODES];
    hv_sim_config config = hv_sim_defaults(22);
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_sim *sim = hv_sim_new(&mem, &config);
    for (int i = 0; i < NODES; i++)
      seats[i] = (mixer_seat){.every_ms = 150, .timeout_ms = 300, .piece = 30000};
    assert_int_equal(mixer_add_all(sim, seats, peers, NODES), HV_OK);
    hv_mem_fail_in(hv_sim_mem(sim, 1), n);
    hv_sim_run_until(sim, 2000000);
    size_t refused = atomic_load(&hv_sim_mem(sim, 1)->refused);
    for (size_t i = 0; i < NODES; i++) {
      assert_true(hv_sim_alive(sim, i));
      assert_int_equal(seats[i].wrong, 0);
    }
    assert_int_equal(hv_sim_free(sim), 0);
    assert_int_equal(atomic_load(&mem.blocks), 0);
    if (!refused) {
      assert_true(n > 50);
      return;
    }
  }
}

static void a_node_lives_within_its_limit(void **state) {
  (void)state;
  hv_mem mem;
  mixer_seat seats[NODES];
  hv_target peers[NODES];
  hv_sim_config config = hv_sim_defaults(23);
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim *sim = hv_sim_new(&mem, &config);
  for (size_t i = 0; i < NODES; i++) {
    peers[i] = hv_sim_target(sim, i);
    seats[i] = (mixer_seat){.peers = peers, .n_peers = NODES, .me = i, .every_ms = 50, .timeout_ms = 300, .piece = 100000};
    hv_sim_node_config seat = {.make = mixer_make, .free = mixer_free, .arg = &seats[i], .memory = 250000};
    assert_int_equal(hv_sim_add(sim, &seat, NULL), HV_OK);
  }
  hv_sim_run_until(sim, 20000000);
  for (size_t i = 0; i < NODES; i++) {
    assert_true(hv_sim_alive(sim, i));
    assert_true(atomic_load(&hv_sim_mem(sim, i)->peak) <= 250000);
    assert_true(seats[i].seen.streams_broken > 0);
    assert_true(seats[i].seen.answered > 0);
    assert_int_equal(seats[i].wrong, 0);
  }
  assert_int_equal(hv_sim_free(sim), 0);
}

typedef struct many_timers {
  hv_command command;
  hv_mem *mem;
  hv_timer timers[100];
  int ran;
} many_timers;

static void too_late(hv_timer *timer, const hv_event *event) {
  (void)timer, (void)event;
  fail_msg("a timer of a dead node fired");
}

static void set_many(hv_command *command, void *core) {
  many_timers *m = (many_timers *)command;
  hv_env *env = *(hv_env **)core; /* a mixer begins with its env */
  m->ran = 1;
  hv_mem_fail_in(m->mem, 0); /* the next allocation is the world's own, for its heap */
  for (int i = 0; i < 100; i++) {
    m->timers[i].fire = too_late;
    env->timer_set(env, &m->timers[i], 1000);
  }
}

static void a_timer_the_world_has_no_memory_for_kills_its_node(void **state) {
  (void)state;
  hv_mem mem;
  mixer_seat seats[2];
  hv_target peers[2];
  many_timers m = {.command = {.run = set_many}, .mem = &mem};
  hv_sim_config config = hv_sim_defaults(24);
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim *sim = hv_sim_new(&mem, &config);
  for (int i = 0; i < 2; i++)
    seats[i] = (mixer_seat){.every_ms = 100, .timeout_ms = 50};
  assert_int_equal(mixer_add_all(sim, seats, peers, 2), HV_OK);
  assert_int_equal(hv_sim_command(sim, 1, &m.command), HV_OK);
  hv_sim_run_until(sim, 1000000);
  assert_int_equal(m.ran, 1);
  assert_false(hv_sim_alive(sim, 1));
  assert_true(hv_sim_alive(sim, 0));
  assert_int_equal(hv_sim_leaks(sim), 0);
  assert_int_equal(hv_sim_free(sim), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_world_without_memory_fails_whole_at_every_allocation),
      cmocka_unit_test(world_with_real_keys_fails_whole_at_every_allocation),
      cmocka_unit_test(a_node_fails_alone_at_every_allocation_of_its_own),
      cmocka_unit_test(a_timer_the_world_has_no_memory_for_kills_its_node),
      cmocka_unit_test(a_node_lives_within_its_limit),
  };
  return cmocka_run_group_tests_name("sim: memory", tests, NULL, NULL);
}
