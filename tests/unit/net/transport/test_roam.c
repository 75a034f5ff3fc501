/* What has changed between two looks at this machine's addresses? */
#include "lib/check.h"

#include "net/transport/roam.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static hv_roam_ip ip4(uint8_t last, int running) {
  return (hv_roam_ip){.kind = HV_ADDR_IP4, .running = running != 0, .ip = {10, 0, 0, last}};
}

static hv_addr addr4(uint8_t last) {
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 9};
  memcpy(addr.host.ip, (uint8_t[]){10, 0, 0, last}, 4);
  return addr;
}

static void equal_looks_are_no_news(void **unused) {
  (void)unused;
  hv_roam roam;
  hv_roam_news news;
  hv_roam_init(&roam);
  assert_true(roam.n > 0); /* every machine has loopback */
  assert_false(hv_roam_look(&roam, &news));
}

static void address_that_moves_has_gone_and_come(void **unused) {
  (void)unused;
  hv_roam before = {.ips = {ip4(1, 1), ip4(2, 1)}, .n = 2}, now = {.ips = {ip4(1, 1), ip4(3, 1)}, .n = 2};
  hv_roam_news news;
  hv_addr two = addr4(2), one = addr4(1), three = addr4(3);
  assert_true(hv_roam_compare(&before, &now, &news));
  assert_true(news.came && !news.slept);
  assert_int_equal(news.n_gone, 1);
  assert_true(hv_roam_is_gone(&news, &two));
  assert_false(hv_roam_is_gone(&news, &one) || hv_roam_is_gone(&news, &three));
}

static void lost_carrier_ends_no_connection(void **unused) {
  (void)unused;
  hv_roam up = {.ips = {ip4(1, 1)}, .n = 1}, down = {.ips = {ip4(1, 0)}, .n = 1};
  hv_roam_news news;
  assert_false(hv_roam_compare(&up, &down, &news));
  assert_true(hv_roam_compare(&down, &up, &news));
  assert_true(news.came && news.n_gone == 0);
}

static void only_a_long_sleep_counts(void **unused) {
  (void)unused;
  hv_roam before = {.ips = {ip4(1, 1)}, .n = 1, .asleep_us = 50}, now = before;
  hv_roam_news news;
  now.asleep_us += HV_ROAM_SLEPT_US - 1;
  assert_false(hv_roam_compare(&before, &now, &news));
  now.asleep_us++;
  assert_true(hv_roam_compare(&before, &now, &news));
  assert_true(news.slept && !news.came);
}

static void socket_with_a_lost_address_is_found(void **unused) {
  (void)unused;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
  hv_roam_news news = {.gone = {{.kind = HV_ADDR_IP4, .ip = {127, 0, 0, 1}}}, .n_gone = 1};
  assert_true(hv_roam_has_lost(&news, fd));
  news.gone[0] = ip4(1, 1);
  assert_false(hv_roam_has_lost(&news, fd));
  close(fd);
  assert_false(hv_roam_has_lost(&news, fd));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_looks_are_no_news),
      cmocka_unit_test(address_that_moves_has_gone_and_come),
      cmocka_unit_test(lost_carrier_ends_no_connection),
      cmocka_unit_test(only_a_long_sleep_counts),
      cmocka_unit_test(socket_with_a_lost_address_is_found),
  };
  return cmocka_run_group_tests_name("roam", tests, NULL, NULL);
}
