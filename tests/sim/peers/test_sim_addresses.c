/* A stranger names addresses that are not its own: in hellos, in questions to the DHT, and with its state. */
#include "lib/state_scene.h"

#include <string.h>

enum { NODES = 6, STRANGER = NODES };

static hv_status (*true_call)(hv_env *env, hv_call *call, const hv_msg *request);
static size_t n_calls; /* to the address that the stranger names */

static hv_status count_call(hv_env *env, hv_call *call, const hv_msg *request) {
  n_calls += call->to.addr.port == 9;
  return true_call(env, call, request);
}

static void meet_and_count(dht_seat *seat, hv_env *env) {
  (void)seat;
  if (env->call != count_call)
    true_call = env->call;
  env->call = count_call;
}

/* Nodes in that network, and a stranger in network 666 (0: a private one) that names 10.0.0.77:9. */
static void play(uint32_t network, uint32_t strangers_network) {
  static const size_t first[] = {0};
  hv_mem mem;
  state_copy copy;
  state_offering offering;
  state_try try;
  state_scene s;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(7 + network + strangers_network);
  hv_sim *sim = hv_sim_new(&mem, &config);
  state_scene_init(&s, sim, &mem);
  s.swarm.meet = meet_and_count;
  n_calls = 0;
  for (size_t i = 0; i < NODES; i++) {
    s.swarm.network = network ? network + (uint32_t)i : 0;
    dht_swarm_add(&s.swarm, first, i > 0, 0);
  }
  s.swarm.network = strangers_network;
  s.swarm.announce = (hv_addr){.kind = HV_ADDR_IP4, .port = 9, .host.ip = {10, 0, 0, 77}};
  dht_swarm_add(&s.swarm, first, 1, 0);
  dht_swarm_run(&s.swarm, 20);
  state_copy_make(&copy, &mem, 7, 100, HV_CODEC_NONE);
  state_offer(&s, STRANGER, &offering, &copy, "run", 3);
  dht_swarm_run(&s.swarm, 5);
  assert_int_equal(offering.status, HV_OK);
  state_load(&s, 3, &try, "run", 20000);
  assert_true(state_finish(&s, &try, 1, 60));
  assert_int_not_equal(try.status, HV_OK); /* nobody is at that address */
  assert_int_equal(try.load.seen.voters, 1);
  assert_int_equal(hv_sim_free(sim), 0);
  state_scene_fini(&s);
  state_try_free(&try);
  state_copy_free(&copy);
  assert_int_equal(mem.blocks, 0);
}

static void private_address_of_a_public_stranger_is_never_dialled(void **unused) {
  (void)unused;
  play(1, 666);
  assert_int_equal(n_calls, 0);
}

static void private_address_of_a_private_peer_is_dialled(void **unused) {
  (void)unused;
  play(0, 0);
  assert_true(n_calls > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(private_address_of_a_public_stranger_is_never_dialled),
      cmocka_unit_test(private_address_of_a_private_peer_is_dialled),
  };
  return cmocka_run_group_tests_name("sim: addresses of strangers", tests, NULL, NULL);
}
