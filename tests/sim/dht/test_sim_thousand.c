/* A thousand nodes in one process, with a tenth of them killed, unplugged and paused on the way. */
#include "lib/check.h"

#include "lib/mixer.h"

#include <string.h>

enum { NODES = 1000 };

static void trouble(hv_sim *sim, void *arg) {
  check_rng *rng = arg;
  for (int i = 0; i < 10; i++) {
    size_t node = check_random(rng) % NODES;
    switch (check_random(rng) % 4) {
    case 0:
      hv_sim_kill(sim, node);
      break;
    case 1:
      hv_sim_unplug(sim, node);
      break;
    case 2:
      hv_sim_pause(sim, node);
      break;
    default:
      hv_sim_continue(sim, node);
      hv_sim_restart(sim, node);
    }
  }
  hv_sim_at(sim, hv_sim_now(sim) + 1000000, trouble, arg);
}

static void a_thousand_nodes_live_in_one_process(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(1000);
  config.link.loss = 0.01;
  mixer_seat *seats = test_calloc(NODES, sizeof *seats);
  hv_target *peers = test_calloc(NODES, sizeof *peers);
  check_rng rng = {1000};
  for (int i = 0; i < NODES; i++)
    seats[i] = (mixer_seat){.every_ms = 2000, .timeout_ms = 1000, .piece = 2000};
  hv_sim *sim = hv_sim_new(&mem, &config);
  assert_int_equal(mixer_add_all(sim, seats, peers, NODES), HV_OK);
  assert_int_equal(hv_sim_at(sim, 5000000, trouble, &rng), HV_OK);
  hv_sim_run_until(sim, 30000000);
  uint64_t answered = 0, whole = 0, wrong = 0;
  for (int i = 0; i < NODES; i++) {
    answered += seats[i].seen.answered;
    whole += seats[i].seen.streams_whole;
    wrong += (uint64_t)seats[i].wrong;
  }
  assert_int_equal(wrong, 0);
  assert_true(answered > 10000);
  assert_true(whole > 2500);
  assert_true(atomic_load(&mem.peak) < (size_t)NODES * 100000);
  assert_int_equal(hv_sim_leaks(sim), 0);
  assert_int_equal(hv_sim_free(sim), 0);
  assert_int_equal(atomic_load(&mem.blocks), 0);
  test_free(seats);
  test_free(peers);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_thousand_nodes_live_in_one_process)};
  return cmocka_run_group_tests_name("sim: a thousand nodes", tests, NULL, NULL);
}
