#include "lib/relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS = 64, CHUNK = 256 << 10, TURN_MS = 2 };

/* One direction: what was read from `from` and is not yet written to the other end. */
typedef struct way {
  uint8_t bytes[CHUNK];
  size_t start, end;
  int over;
} way;

typedef struct pair {
  int fd[2];
  way *ways[2]; /* from fd[0] to fd[1], and back */
} pair;

struct relay {
  int listener;
  uint16_t port, to;
  atomic_int paused, broken, ended;
  atomic_size_t most; /* bytes of a connection in a turn of TURN_MS; 0: all */
  pair pairs[PAIRS];
  size_t n;
  pthread_t thread;
};

static int loopback_socket(uint16_t port, int listening, uint16_t *bound) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  int failed = listening
                   ? bind(fd, (struct sockaddr *)&at, size) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&at, &size)
                   : connect(fd, (struct sockaddr *)&at, size);
  if (failed) {
    close(fd);
    return -1;
  }
  if (bound)
    *bound = ntohs(at.sin_port);
  return fd;
}

static void close_pair(relay *r, size_t i, int reset) {
  pair *p = &r->pairs[i];
  for (int k = 0; k < 2; k++) {
    if (reset)
      setsockopt(p->fd[k], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(p->fd[k]);
    free(p->ways[k]);
  }
  *p = r->pairs[--r->n];
}

static void take_in(relay *r) {
  int in = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
  if (in < 0)
    return;
  int out = r->n < PAIRS ? loopback_socket(r->to, 0, NULL) : -1;
  if (out < 0) {
    close(in);
    return;
  }
  setsockopt(in, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  r->pairs[r->n++] = (pair){{in, out}, {calloc(1, sizeof(way)), calloc(1, sizeof(way))}};
}

/* Moves what can be moved one way, `most` at most; 0: the connection broke. */
static int pass(pair *p, int k, size_t most, short readable, short writable) {
  way *w = p->ways[k];
  if (w->start == w->end && !w->over && readable) {
    ssize_t n = recv(p->fd[k], w->bytes, CHUNK, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN)
      return 0;
    w->start = 0;
    w->end = n > 0 ? (size_t)n : 0;
    if (n == 0) {
      w->over = 1;
      shutdown(p->fd[!k], SHUT_WR);
    }
    writable = 1;
  }
  if (w->start < w->end && writable) {
    size_t size = most && most < w->end - w->start ? most : w->end - w->start;
    ssize_t n = send(p->fd[!k], w->bytes + w->start, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
      return 0;
    w->start += n > 0 ? (size_t)n : 0;
  }
  return !(p->ways[0]->over && p->ways[1]->over);
}

static void turn(relay *r) {
  struct pollfd fds[2 * PAIRS + 1];
  size_t n = r->n, most = atomic_load(&r->most);
  for (size_t i = 0; i < n; i++)
    for (int k = 0; k < 2; k++) {
      way *mine = r->pairs[i].ways[k], *others = r->pairs[i].ways[!k];
      short events = (short)((mine->start == mine->end && !mine->over ? POLLIN : 0) | (others->start < others->end ? POLLOUT : 0));
      fds[2 * i + (size_t)k] = (struct pollfd){events ? r->pairs[i].fd[k] : -1, events, 0};
    }
  fds[2 * n] = (struct pollfd){r->listener, POLLIN, 0};
  poll(fds, 2 * n + 1, 5);
  for (size_t i = n; i-- > 0;) {
    short a = fds[2 * i].revents, b = fds[2 * i + 1].revents;
    if (!pass(&r->pairs[i], 0, most, a & (POLLIN | POLLHUP | POLLERR), b & POLLOUT) ||
        !pass(&r->pairs[i], 1, most, b & (POLLIN | POLLHUP | POLLERR), a & POLLOUT))
      close_pair(r, i, 1);
  }
  if (fds[2 * n].revents)
    take_in(r);
  if (most)
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000}, NULL);
}

static void *live(void *arg) {
  relay *r = arg;
  while (!atomic_load(&r->ended)) {
    if (atomic_load(&r->broken) || atomic_load(&r->paused)) {
      if (atomic_load(&r->broken) == 1) {
        close(r->listener);
        while (r->n)
          close_pair(r, 0, 1);
        atomic_store(&r->broken, 2);
      }
      int asked = 1;
      atomic_compare_exchange_strong(&r->paused, &asked, 2);
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } else {
      turn(r);
    }
  }
  while (r->n)
    close_pair(r, 0, 1);
  if (!atomic_load(&r->broken))
    close(r->listener);
  return NULL;
}

relay *relay_new(uint16_t to) {
  relay *r = calloc(1, sizeof *r);
  r->to = to;
  r->listener = loopback_socket(0, 1, &r->port);
  if (r->listener < 0 || pthread_create(&r->thread, NULL, live, r) != 0) {
    free(r);
    return NULL;
  }
  return r;
}

uint16_t relay_port(const relay *r) {
  return r->port;
}

void relay_pause(relay *r, int on) {
  atomic_store(&r->paused, on);
  while (atomic_load(&r->paused) == 1) /* what it has in hand may still pass */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void relay_limit(relay *r, size_t bytes_per_s) {
  atomic_store(&r->most, bytes_per_s * TURN_MS / 1000);
}

void relay_break(relay *r) {
  atomic_store(&r->broken, 1);
  while (atomic_load(&r->broken) == 1)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void relay_free(relay *r) {
  if (!r)
    return;
  atomic_store(&r->ended, 1);
  pthread_join(r->thread, NULL);
  free(r);
}
