#include "lib/hives.h"

hv_hive *hives_start_as(hv_hive_config config, const char *initial) {
  static const char *const here[] = {"/ip4/127.0.0.1/tcp/0"};
  hv_hive *hive = NULL;
  hv_error err = {0};
  config.listen = here;
  config.n_listen = 1;
  config.initial_peers = &initial;
  config.n_initial_peers = initial ? 1 : 0;
  if (hv_hive_start(&config, &hive, &err) != HV_OK)
    fail_msg("%s", err.text);
  return hive;
}

hv_hive *hives_start(const char *initial, unsigned pool_threads) {
  return hives_start_as((hv_hive_config){.insecure = 1, .pool_threads = pool_threads}, initial);
}

void hives_start_two(hv_hive **a, hv_hive **b, unsigned pool_threads) {
  char where[HV_ADDR_TEXT_MAX];
  hv_addr addr;
  hv_future *met;
  *a = hives_start(NULL, pool_threads);
  assert_int_equal(hv_hive_addrs(*a, &addr, 1), 1);
  *b = hives_start(hv_addr_print(&addr, hv_hive_peer(*a), where), pool_threads);
  assert_int_equal(hv_hive_wait_peers(*b, 1, &met), HV_OK);
  assert_true(hv_future_wait(met, 10000));
  assert_int_equal(hv_future_result(met, NULL, NULL, NULL), HV_OK);
  hv_future_release(met);
}
