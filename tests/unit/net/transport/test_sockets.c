/* Which sockets lead to an address? Those that do are paced, and no other is touched. */
#include "lib/check.h"

#include "net/transport/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IP4, IP6, MAPPED }; /* MAPPED: a socket of the new family to an address of the old one, as gRPC has them */

typedef struct sockaddr_storage place;

static socklen_t fill(place *at, int kind, uint16_t port) {
  memset(at, 0, sizeof *at);
  if (kind == IP4) {
    struct sockaddr_in *in = (struct sockaddr_in *)at;
    in->sin_family = AF_INET, in->sin_port = htons(port), in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof *in;
  }
  struct sockaddr_in6 *in = (struct sockaddr_in6 *)at;
  in->sin6_family = AF_INET6, in->sin6_port = htons(port);
  assert_int_equal(inet_pton(AF_INET6, kind == IP6 ? "::1" : "::ffff:127.0.0.1", &in->sin6_addr), 1);
  return sizeof *in;
}

static int listen_on(int kind, hv_addr *addr) {
  place at;
  socklen_t size = fill(&at, kind, 0);
  int fd = socket(at.ss_family, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
  assert_int_equal(listen(fd, 8), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
  *addr = (hv_addr){.kind = kind == IP6 ? HV_ADDR_IP6 : HV_ADDR_IP4};
  addr->port = ntohs(kind == IP4 ? ((struct sockaddr_in *)&at)->sin_port : ((struct sockaddr_in6 *)&at)->sin6_port);
  if (kind == IP6)
    addr->host.ip[15] = 1;
  else
    addr->host.ip[0] = 127, addr->host.ip[3] = 1;
  return fd;
}

static int dial(int kind, int type, const hv_addr *addr) {
  place at;
  socklen_t size = fill(&at, kind, addr->port);
  int fd = socket(at.ss_family, type, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&at, size), 0);
  return fd;
}

static unsigned rate_of(int fd) {
  unsigned rate = 0;
  socklen_t size = sizeof rate;
  assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
  return rate;
}

static hv_sockets sockets_of(hv_mem *mem) {
  hv_sockets sockets;
  hv_mem_init(mem, NULL, HV_MEM_UNLIMITED);
  hv_sockets_init(&sockets, mem);
  return sockets;
}

static void sockets_to_an_address_are_found_and_no_other(void **unused) {
  (void)unused;
  for (int kind = IP4; kind <= MAPPED; kind++) {
    hv_mem mem;
    hv_sockets sockets = sockets_of(&mem);
    hv_addr here, elsewhere;
    int door = listen_on(kind == MAPPED ? IP4 : kind, &here), other_door = listen_on(kind == MAPPED ? IP4 : kind, &elsewhere);
    int right = dial(kind, SOCK_STREAM, &here), wrong = dial(kind, SOCK_STREAM, &elsewhere), udp = dial(kind, SOCK_DGRAM, &here);
    int accepted = accept(door, NULL, NULL);
    assert_int_equal(hv_sockets_pace(&sockets, &here, 5000000, 1), 1);
    assert_int_equal(rate_of(right), 5000000);
    assert_int_equal(rate_of(wrong), UINT32_MAX);
    assert_int_equal(rate_of(accepted), UINT32_MAX);
    assert_int_equal(rate_of(udp), UINT32_MAX);
    assert_int_equal(hv_sockets_pace(&sockets, &here, 0, 2), 1);
    assert_int_equal(rate_of(right), UINT32_MAX);
    int fds[] = {door, other_door, right, wrong, udp, accepted};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
      close(fds[i]);
    hv_sockets_forget(&sockets);
    assert_int_equal(atomic_load(&mem.blocks), 0);
  }
}

static void the_side_that_was_dialled_finds_its_socket_too(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_sockets sockets = sockets_of(&mem);
  hv_addr here, from = {.kind = HV_ADDR_IP4, .host.ip = {127, 0, 0, 1}};
  struct sockaddr_in in;
  socklen_t size = sizeof in;
  int door = listen_on(IP4, &here), dialled = dial(IP4, SOCK_STREAM, &here), accepted = accept(door, NULL, NULL);
  assert_int_equal(getsockname(dialled, (struct sockaddr *)&in, &size), 0);
  from.port = ntohs(in.sin_port);
  assert_int_equal(hv_sockets_pace(&sockets, &from, 7000000, 1), 1);
  assert_int_equal(rate_of(accepted), 7000000);
  assert_int_equal(rate_of(dialled), UINT32_MAX);
  close(door), close(dialled), close(accepted);
  hv_sockets_forget(&sockets);
}

static void a_number_that_has_become_another_socket_is_left_alone(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_sockets sockets = sockets_of(&mem);
  hv_addr here, elsewhere;
  int door = listen_on(IP4, &here), other_door = listen_on(IP4, &elsewhere), fd = dial(IP4, SOCK_STREAM, &here);
  assert_int_equal(hv_sockets_pace(&sockets, &here, 5000000, 1), 1);
  close(fd);
  int again = dial(IP4, SOCK_STREAM, &elsewhere);
  assert_int_equal(again, fd);
  assert_int_equal(hv_sockets_pace(&sockets, &here, 5000000, 2), 0);
  assert_int_equal(rate_of(again), UINT32_MAX);
  int late = dial(IP4, SOCK_STREAM, &here); /* not looked for again so soon, but in a while */
  assert_int_equal(hv_sockets_pace(&sockets, &here, 5000000, 3), 0);
  assert_int_equal(hv_sockets_pace(&sockets, &here, 5000000, 3 + HV_SOCKETS_PAUSE_US), 1);
  assert_int_equal(rate_of(late), 5000000);
  close(door), close(other_door), close(again), close(late);
  hv_sockets_forget(&sockets);
}

static void socket_reports_its_link_and_can_limit_its_queue(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_sockets sockets = sockets_of(&mem);
  hv_line line;
  hv_addr here, elsewhere;
  char control[16] = "";
  unsigned waits = 0;
  socklen_t size = sizeof control - 1;
  int door = listen_on(IP4, &here), other_door = listen_on(IP4, &elsewhere), fd = dial(IP4, SOCK_STREAM, &here);
  int accepted = accept(door, NULL, NULL);
  assert_int_equal(hv_sockets_line(&sockets, &elsewhere, 1, &line), 0); /* nobody is connected to it */
  for (int i = 0; i < 10; i++)
    assert_int_equal(send(fd, "hello", 5, 0), 5);
  assert_int_equal(hv_sockets_line(&sockets, &here, 2, &line), 1);
  assert_in_range(line.rtt_us, 0, 9999);
  assert_in_range(line.sent, 3, 12); /* what opened it, too; several may have left as one */
  assert_int_equal(line.lost, 0);
  assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &size), 0);
  assert_int_equal(line.fears_loss, strcmp(control, "bbr") != 0);
  assert_int_equal(hv_sockets_short(&sockets, &here, 65536, 3), 1);
  size = sizeof waits;
  assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &waits, &size), 0);
  assert_int_equal(waits, 65536);
  close(door), close(other_door), close(fd), close(accepted);
  hv_sockets_forget(&sockets);
}

static void an_address_without_a_number_has_no_socket(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_sockets sockets = sockets_of(&mem);
  hv_addr none = {0}, name = {.kind = HV_ADDR_DNS, .port = 80, .host.name = "localhost"};
  assert_int_equal(hv_sockets_pace(&sockets, &none, 1000, 1), 0);
  assert_int_equal(hv_sockets_pace(&sockets, &name, 1000, 1), 0);
  hv_sockets_forget(&sockets);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#ifdef SO_MAX_PACING_RATE
      cmocka_unit_test(sockets_to_an_address_are_found_and_no_other),
      cmocka_unit_test(the_side_that_was_dialled_finds_its_socket_too),
      cmocka_unit_test(a_number_that_has_become_another_socket_is_left_alone),
#endif
      cmocka_unit_test(socket_reports_its_link_and_can_limit_its_queue),
      cmocka_unit_test(an_address_without_a_number_has_no_socket),
  };
  return cmocka_run_group_tests_name("sockets", tests, NULL, NULL);
}
