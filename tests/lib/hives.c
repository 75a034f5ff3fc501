#include "lib/hives.h"

hv_hive *hives_start(const char *initial, unsigned pool_threads) {
  static const char *const here[] = {"/ip4/127.0.0.1/tcp/0"};
  hv_hive *hive = NULL;
  hv_error err = {0};
  hv_hive_config config = {.listen = here,
                           .n_listen = 1,
                           .initial_peers = &initial,
                           .n_initial_peers = initial ? 1 : 0,
                           .insecure = 1,
                           .pool_threads = pool_threads};
  if (hv_hive_start(&config, &hive, &err) != HV_OK)
    fail_msg("%s", err.text);
  return hive;
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
