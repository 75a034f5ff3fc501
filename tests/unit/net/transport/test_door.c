/* The door with real sockets: connections that say nothing, begin and stop, or come by the thousand, do not shut others out, and a
 * process without file descriptors is not deaf afterwards. Networks are told apart by loopback's own: 127.0.1.x, 127.0.2.x ... */
#include "lib/check.h"
#include "lib/real.h"

#include "net/clock.h"
#include "net/transport/door.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef HV_SANITIZED
enum { FRIEND_MS = 3000, CROWD = 1100 };
#else
enum { FRIEND_MS = 1000, CROWD = 1100 };
#endif

static void pass_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void connect_to(int fd, uint16_t port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
}

/* Connects from 127.0.NETWORK.1. */
static int dial_from(unsigned network, uint16_t port) {
  struct sockaddr_in me = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001 | network << 8)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&me, sizeof me), 0);
  connect_to(fd, port);
  return fd;
}

static int has_ended(int fd) {
  char bytes[64];
  ssize_t n;
  while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
    ;
  return n == 0 || (n < 0 && errno != EAGAIN);
}

static void close_all(int *fds, size_t n) {
  for (size_t i = 0; i < n; i++)
    close(fds[i]);
}

static void two_nodes(real_node *node, real_node *friend) {
  real_start(node, &(real_options){.seed = 1});
  real_start(friend, &(real_options){.seed = 2});
}

static void a_friend_is_served(real_node *node, real_node *friend) {
  uint64_t begun = hv_clock_us();
  assert_int_equal(real_echo(friend, &node->target, "are you there?", 5000), HV_OK);
  assert_true(hv_clock_us() - begun < FRIEND_MS * UINT64_C(1000));
}

/* Opens CROWD connections, each of which says `said`, and asks as a friend that comes new meanwhile. */
static void crowd_in(const void *said, size_t size, unsigned networks) {
  real_node node, friend;
  two_nodes(&node, &friend);
  int fds[CROWD];
  for (unsigned i = 0; i < CROWD; i++) {
    fds[i] = dial_from(networks > 1 ? 1 + i % networks : 0, node.target.addr.port);
    assert_true(!size || send(fds[i], said, size, MSG_NOSIGNAL) == (ssize_t)size);
  }
  a_friend_is_served(&node, &friend);
  size_t left = 0;
  for (int i = 0; i < CROWD; i++)
    left += !has_ended(fds[i]);
  assert_true(left <= HV_DOOR_NEW);
  a_friend_is_served(&node, &friend);
  close_all(fds, CROWD);
  real_stop(&friend);
  real_stop(&node);
}

static void a_thousand_silent_connections_deafen_nobody(void **state) {
  (void)state;
  hv_door_raise_files();
  crowd_in(NULL, 0, 1);
  crowd_in(NULL, 0, 7);
}

static void a_thousand_begun_handshakes_deafen_nobody(void **state) {
  (void)state;
  hv_door_raise_files();
  crowd_in("\x16\x03\x01\x01\x00\x01", 6, 1);
  crowd_in("\x16\x03\x01\x01\x00\x01", 6, 7);
  static const char nonsense[105] = {0x16, 3, 1, 0, 100, 1};
  crowd_in(nonsense, sizeof nonsense, 1);
}

static void other_protocols_do_not_get_in(void **state) {
  (void)state;
  real_node node;
  real_start(&node, &(real_options){.seed = 1});
  int fd = dial_from(0, node.target.addr.port);
  assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
  for (int ms = 0; ms < 5000 && !has_ended(fd); ms += 10)
    pass_ms(10);
  assert_true(has_ended(fd));
  close(fd);
  real_stop(&node);
}

static size_t files_open(void) {
  size_t n = 0;
  for (int fd = 0; fd < 4096; fd++)
    n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

enum { FEW = 40, MOST = 512 };

/* Opens sockets until the process has no descriptor left. */
static size_t take_all_files(int fds[MOST]) {
  size_t n = 0;
  while (n < MOST && (fds[n] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0)
    n++;
  assert_true(n > 0 && n < MOST);
  return n;
}

static struct rlimit allow_few_files(void) {
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = files_open() + FEW;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  return before;
}

static void process_without_files_hears_again_when_it_has_some(void **state) {
  (void)state;
  real_node node, friend;
  two_nodes(&node, &friend);
  a_friend_is_served(&node, &friend);
  struct rlimit before = allow_few_files();
  int fds[MOST];
  size_t n = take_all_files(fds);
  for (size_t i = 0; i < n; i++)
    connect_to(fds[i], node.target.addr.port);
  pass_ms(300);
  a_friend_is_served(&node, &friend); /* over the connection that there is */
  close_all(fds, n);
  setrlimit(RLIMIT_NOFILE, &before);
  real_node another;
  real_start(&another, &(real_options){.seed = 3});
  a_friend_is_served(&node, &another);
  int told = 0;
  for (hv_log_record record; hv_log_take(node.log, &record);)
    told += strcmp(record.event, "door_no_file") == 0;
  assert_true(told);
  real_stop(&another);
  real_stop(&friend);
  real_stop(&node);
}

/* Takes each descriptor that comes free, as another library in the process may, until it is told to end. */
typedef struct hoard {
  atomic_int ends;
  int fds[MOST];
  size_t n;
} hoard;

static void *hoard_files(void *arg) {
  hoard *h = arg;
  while (!atomic_load(&h->ends) && h->n < MOST) {
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
      h->fds[h->n++] = fd;
  }
  return NULL;
}

static void door_that_lost_its_spare_file_hears_again(void **state) {
  (void)state;
  real_node node;
  real_start(&node, &(real_options){.seed = 1});
  struct rlimit before = allow_few_files();
  int fds[MOST];
  size_t n = take_all_files(fds);
  hoard h = {0};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, hoard_files, &h), 0);
  for (size_t i = 0; i < n; i++) {
    connect_to(fds[i], node.target.addr.port);
    pass_ms(5);
  }
  atomic_store(&h.ends, 1);
  pthread_join(thread, NULL);
  uint64_t spent = real_spent_ms();
  pass_ms(1000); /* none is free, and those that wait are told all the time */
  assert_in_range(real_spent_ms() - spent, 0, 300);
  close_all(fds, n);
  close_all(h.fds, h.n);
  setrlimit(RLIMIT_NOFILE, &before);
  pass_ms(300);
  real_node friend;
  real_start(&friend, &(real_options){.seed = 2});
  a_friend_is_served(&node, &friend);
  real_stop(&friend);
  real_stop(&node);
}

/* ---- the door alone ---- */

typedef struct taker {
  int fds[64];
  size_t n;
  pthread_mutex_t lock;
} taker;

static void take(void *arg, int fd) {
  taker *t = arg;
  pthread_mutex_lock(&t->lock);
  if (t->n < 64)
    t->fds[t->n++] = fd;
  pthread_mutex_unlock(&t->lock);
}

static hv_door_counts counts_when(hv_door *door, size_t new_ones, size_t known) {
  hv_door_counts counts;
  for (int ms = 0; ms < 5000; ms += 5) {
    hv_door_count(door, &counts);
    if (counts.new_ones == new_ones && counts.known == known)
      break;
    pass_ms(5);
  }
  assert_true(counts.new_ones == new_ones && counts.known == known);
  return counts;
}

static hv_addr local_end(int fd) {
  struct sockaddr_in at = {0};
  socklen_t size = sizeof at;
  assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = ntohs(at.sin_port)};
  memcpy(addr.host.ip, &at.sin_addr, 4);
  return addr;
}

static void places_come_back_when_connections_end(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  taker t = {.lock = PTHREAD_MUTEX_INITIALIZER};
  hv_door *door;
  uint16_t port = 0;
  hv_addr here = real_addr("/ip4/127.0.0.1/tcp/0");
  assert_int_equal(
      hv_door_new(&(hv_door_config){.mem = &mem, .greeting_ms = 300, .known = 4, .take = take, .arg = &t}, &door, NULL), HV_OK);
  assert_int_equal(hv_door_listen(door, &here, &port, NULL), HV_OK);
  assert_int_equal(hv_door_open(door, NULL), HV_OK);
  int fds[4];
  for (int i = 0; i < 4; i++)
    fds[i] = dial_from(i < 3 ? 1 : 2, port);
  counts_when(door, 4, 0);
  static const char hello[105] = {
      0x16, 3, 1, 0, 100, 1, [45] = 2, [46] = 19, [47] = 1, [48] = 1, [51] = 53, [53] = 43, [55] = 3, [56] = 2, [57] = 3, [58] = 4};
  for (int i = 0; i < 3; i++) { /* in two pieces */
    assert_int_equal(send(fds[i], hello, 50, MSG_NOSIGNAL), 50);
    pass_ms(20);
    assert_int_equal(send(fds[i], hello + 50, 55, MSG_NOSIGNAL), 55);
  }
  hv_door_counts counts = counts_when(door, 3, 0); /* the fourth says nothing in time */
  assert_int_equal(counts.silent, 1);
  assert_int_equal(counts.taken, 3);
  for (int i = 0; i < 3; i++) {
    hv_addr from = local_end(fds[i]);
    hv_door_know(door, &from);
  }
  counts = counts_when(door, 0, 2); /* half of four for one network */
  assert_int_equal(counts.refused, 1);
  assert_true(has_ended(fds[2]) && !has_ended(fds[0]));
  for (size_t i = 0; i < t.n; i++) { /* as gRPC ends a connection */
    shutdown(t.fds[i], SHUT_RDWR);
    close(t.fds[i]);
  }
  counts_when(door, 0, 0);
  close_all(fds, 4);
  hv_door_free(door);
  assert_int_equal(atomic_load(&mem.used), 0);
}

static void keep_socket(void *arg, int fd) {
  atomic_store((atomic_int *)arg, fd);
}

/* Epoll tells the hang-up of a socket as long as anybody has it open: the door took it off too late, and never rested again. */
static void connection_that_ended_costs_no_time_while_it_is_open(void **state) {
  (void)state;
  hv_mem mem;
  hv_door *door;
  uint16_t port = 0;
  atomic_int taken = -1;
  hv_addr here = {.kind = HV_ADDR_IP4, .host.ip = {127, 0, 0, 1}};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_door_config config = {.mem = &mem, .greeting_ms = 5000, .insecure = 1, .take = keep_socket, .arg = &taken};
  assert_int_equal(hv_door_new(&config, &door, NULL), HV_OK);
  assert_int_equal(hv_door_listen(door, &here, &port, NULL), HV_OK);
  assert_int_equal(hv_door_open(door, NULL), HV_OK);
  int fd = dial_from(0, port);
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  assert_int_equal(send(fd, preface, sizeof preface - 1, MSG_NOSIGNAL), sizeof preface - 1);
  for (int ms = 0; ms < 5000 && atomic_load(&taken) < 0; ms += 10)
    pass_ms(10);
  assert_true(atomic_load(&taken) >= 0);
  shutdown(atomic_load(&taken), SHUT_WR);
  close(fd); /* both ways are closed now: a hang-up */
  counts_when(door, 0, 0);
  uint64_t before = real_spent_ms();
  pass_ms(1000);
  assert_in_range(real_spent_ms() - before, 0, 250);
  close(atomic_load(&taken));
  hv_door_free(door);
}

/* A child has all descriptors of its parent until it ends: here until the parent closes the pipe. */
static pid_t fork_child_until(int pipe_ends[2]) {
  assert_int_equal(pipe(pipe_ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    char byte;
    close(pipe_ends[1]);
    _exit(read(pipe_ends[0], &byte, 1) != 0);
  }
  close(pipe_ends[0]);
  return child;
}

/* A worker of a DataLoader lives longer than the node. */
static void closed_door_frees_its_port_while_a_child_lives(void **state) {
  (void)state;
  hv_mem mem;
  hv_door *door;
  uint16_t port = 0;
  int pipe_ends[2];
  hv_addr here = real_addr("/ip4/127.0.0.1/tcp/0");
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_door_config config = {.mem = &mem, .greeting_ms = 300, .take = keep_socket};
  assert_int_equal(hv_door_new(&config, &door, NULL), HV_OK);
  assert_int_equal(hv_door_listen(door, &here, &port, NULL), HV_OK);
  assert_int_equal(hv_door_open(door, NULL), HV_OK);
  int fd = dial_from(1, port); /* so that the port has seen a connection */
  counts_when(door, 1, 0);
  pid_t child = fork_child_until(pipe_ends);
  hv_door_free(door);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int refused = connect(late, (struct sockaddr *)&at, sizeof at) != 0 && errno == ECONNREFUSED;
  hv_status status = hv_door_new(&config, &door, NULL);
  here.port = port;
  status = status == HV_OK ? hv_door_listen(door, &here, &port, NULL) : status;
  close(pipe_ends[1]);
  int ended;
  assert_int_equal(waitpid(child, &ended, 0), child);
  assert_true(refused);
  assert_int_equal(status, HV_OK);
  hv_door_free(door);
  close(late);
  close(fd);
}

static void the_file_limit_is_raised_and_never_lowered(void **state) {
  (void)state;
  struct rlimit before, low, after;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  low = before;
  low.rlim_cur = 256;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  hv_door_raise_files();
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
  assert_int_equal(after.rlim_cur, before.rlim_max < HV_DOOR_FILES_MAX ? before.rlim_max : HV_DOOR_FILES_MAX);
  assert_int_equal(after.rlim_max, before.rlim_max);
  if (before.rlim_max > HV_DOOR_FILES_MAX) {
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){before.rlim_max, before.rlim_max});
    hv_door_raise_files();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_int_equal(after.rlim_cur, before.rlim_max);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(places_come_back_when_connections_end),
      cmocka_unit_test(a_thousand_silent_connections_deafen_nobody),
      cmocka_unit_test(a_thousand_begun_handshakes_deafen_nobody),
      cmocka_unit_test(other_protocols_do_not_get_in),
      cmocka_unit_test(process_without_files_hears_again_when_it_has_some),
      cmocka_unit_test(door_that_lost_its_spare_file_hears_again),
      cmocka_unit_test(connection_that_ended_costs_no_time_while_it_is_open),
      cmocka_unit_test(closed_door_frees_its_port_while_a_child_lives),
      cmocka_unit_test(the_file_limit_is_raised_and_never_lowered),
  };
  return cmocka_run_group_tests_name("door", tests, NULL, NULL);
}
