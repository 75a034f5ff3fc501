#include "net/transport/door.h"

#include "net/clock.h"
#include "net/transport/guests.h"
#include "net/transport/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 64, ACCEPTS = 64, LOOK_MS = 250, TURN_US = 1000000 / HV_DOOR_HANDSHAKES, BELL = -1 };

struct hv_door {
  hv_mem *mem;
  hv_log *log;
  int insecure;
  uint64_t greeting_us;
  void (*take)(void *arg, int fd);
  void *arg;
  int epoll, bell;
  int spare; /* a descriptor that is given up to accept, and close, a connection when there are no others */
  int listeners[HV_DOOR_LISTEN_MAX];
  size_t n_listeners;
  uint64_t turn_us;        /* up to then the handshakes that have begun use up what is allowed */
  uint64_t rests_until_us; /* until then no listener is watched; 0: all are */
  pthread_t thread;
  int open;
  pthread_mutex_t lock; /* of the guests' numbers and of counts */
  hv_guests guests;
  hv_door_counts counts;
  uint64_t told_us, told; /* when something was logged last, and how many had been turned away by then */
};

/* ---- what is waited for: a listener, the bell, or a guest ---- */

enum { PLACE_BITS = 32 };

static int watch(hv_door *door, int fd, uint32_t events, int64_t what) {
  struct epoll_event event = {.events = events, .data.u64 = (uint64_t)what};
  return epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int64_t tag_of_listener(size_t i) {
  return -2 - (int64_t)i;
}

/* With the serial, because an event may be told when another guest has the place. */
static int64_t tag_of_guest(const hv_door *door, size_t place) {
  return (int64_t)(door->guests.places[place].serial & INT32_MAX) << PLACE_BITS | (int64_t)place;
}

static void listen_for(hv_door *door, size_t place, uint32_t events) {
  struct epoll_event event = {.events = events, .data.u64 = (uint64_t)tag_of_guest(door, place)};
  epoll_ctl(door->epoll, EPOLL_CTL_MOD, door->guests.places[place].fd, &event);
}

/* Its events end by EPOLL_CTL_DEL alone: a close leaves them on while the taker has the socket, and its hang-up would be told
 * without a pause. */
static void send_off(hv_door *door, size_t place, int shut) {
  int fd = door->guests.places[place].fd;
  epoll_ctl(door->epoll, EPOLL_CTL_DEL, fd, NULL);
  if (shut)
    shutdown(fd, SHUT_RDWR);
  close(fd);
  hv_guests_leave(&door->guests, place);
}

static int make_room(hv_door *door, hv_guest_state state, uint64_t network) {
  long goes = hv_guests_make_room(&door->guests, state, network);
  if (goes == HV_GUEST_REFUSE) {
    door->counts.refused++;
    return 0;
  }
  if (goes >= 0) {
    door->counts.ended++;
    send_off(door, (size_t)goes, 1);
  }
  return 1;
}

/* ---- one that waits, and speaks ---- */

static void hand_over(hv_door *door, size_t place) {
  hv_guest *guest = &door->guests.places[place];
  int fd = guest->fd, watched = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  epoll_ctl(door->epoll, EPOLL_CTL_DEL, fd, NULL);
  if (watched < 0 || watch(door, watched, 0, tag_of_guest(door, place)) != 0) { /* 0: its end alone */
    if (watched >= 0)
      close(watched);
    door->counts.no_file++;
    send_off(door, place, 1);
    return;
  }
  guest->fd = watched;
  door->counts.taken++;
  pthread_mutex_unlock(&door->lock);
  door->take(door->arg, fd);
  pthread_mutex_lock(&door->lock);
}

/* Those that wait and whose turn has come. Guests end meanwhile, because `take` is called without the lock. */
static void hand_over_some(hv_door *door, uint64_t now) {
  uint64_t ahead = UINT64_C(1) * HV_DOOR_HANDSHAKES_AHEAD * TURN_US;
  if (door->turn_us + ahead < now)
    door->turn_us = now - ahead;
  while (door->guests.waiting && door->turn_us + TURN_US <= now) {
    door->turn_us += TURN_US;
    hand_over(door, hv_guests_next(&door->guests));
  }
}

/* TLS's alert "protocol_version". */
static const uint8_t refused_version[] = {0x15, 3, 3, 0, 2, 2, 70};

/* Looks what a guest has said that was not handed over yet. */
static void hear(hv_door *door, size_t place) {
  uint8_t first[HV_GUEST_FIRST_MAX];
  int fd = door->guests.places[place].fd;
  ssize_t got = recv(fd, first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  long needs = got > 0 ? hv_guest_reads(first, (size_t)got, door->insecure) : HV_GUEST_STRANGE;
  if (needs == 0) {
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    listen_for(door, place, 0); /* its end alone */
    hv_guests_wait(&door->guests, place);
  } else if (needs > 0) {
    int enough = (int)needs; /* it is not told before */
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &enough, sizeof enough);
  } else {
    if (needs == HV_GUEST_OLD_TLS)
      send(fd, refused_version, sizeof refused_version, MSG_DONTWAIT | MSG_NOSIGNAL);
    door->counts.strange += got > 0;
    send_off(door, place, 0);
  }
}

static void hear_of(hv_door *door, int64_t tag, uint32_t events) {
  size_t place = (size_t)(tag & UINT32_MAX);
  const hv_guest *guest = &door->guests.places[place];
  if (guest->state == HV_GUEST_NONE || tag != tag_of_guest(door, place))
    return;
  if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
    send_off(door, place, 0);
  else if (!guest->spoke && !guest->waits)
    hear(door, place);
}

static void send_silent_ones_off(hv_door *door, uint64_t now) {
  for (size_t i = 0; i < door->guests.n && door->guests.in[HV_GUEST_NEW]; i++) {
    const hv_guest *guest = &door->guests.places[i];
    if (guest->state == HV_GUEST_NEW && !guest->spoke && !guest->waits && now - guest->since_us > door->greeting_us) {
      door->counts.silent++;
      send_off(door, i, 1);
    }
  }
}

/* ---- one that comes ---- */

static void watch_listeners(hv_door *door, uint32_t events) {
  for (size_t i = 0; i < door->n_listeners; i++) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)tag_of_listener(i)};
    epoll_ctl(door->epoll, EPOLL_CTL_MOD, door->listeners[i], &event);
  }
}

/* No descriptor is left: the spare one's place serves to take a connection off the queue, else it would be told again for ever.
 * Another thread may be quicker to take that place; then the door looks again a little later. */
static void close_for_want_of_a_file(hv_door *door, int listener) {
  door->counts.no_file++;
  if (door->spare >= 0)
    close(door->spare);
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd >= 0)
    close(fd);
  door->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || door->spare < 0) {
    door->rests_until_us = hv_clock_us() + LOOK_MS * UINT64_C(1000);
    watch_listeners(door, 0);
  }
}

static void end_rest(hv_door *door, uint64_t now) {
  if (!door->rests_until_us || now < door->rests_until_us)
    return;
  door->rests_until_us = 0;
  if (door->spare < 0)
    door->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  watch_listeners(door, EPOLLIN);
}

static void welcome(hv_door *door, int fd, const struct sockaddr_storage *from) {
  hv_addr addr;
  if (!hv_listen_read_sockaddr((const struct sockaddr *)from, &addr)) {
    close(fd);
    return;
  }
  if (!make_room(door, HV_GUEST_NEW, hv_guest_network(&addr))) {
    close(fd);
    return;
  }
  size_t place = hv_guests_enter(&door->guests, &addr, fd, hv_clock_us());
  if (watch(door, fd, EPOLLIN | EPOLLRDHUP, tag_of_guest(door, place)) != 0) {
    door->counts.no_file++;
    send_off(door, place, 0);
    return;
  }
  hear(door, place); /* it may have spoken already */
}

static void accept_some(hv_door *door, int listener) {
  for (int i = 0; i < ACCEPTS && !door->rests_until_us; i++) {
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
      welcome(door, fd, &from);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      close_for_want_of_a_file(door, listener);
    else if (errno == EAGAIN)
      return;
  }
}

/* ---- the thread ---- */

static uint64_t turned_away(const hv_door *door) {
  const hv_door_counts *c = &door->counts;
  return c->silent + c->refused + c->ended + c->no_file;
}

static void tell(hv_door *door, uint64_t now) {
  const hv_door_counts *c = &door->counts;
  if (turned_away(door) == door->told || now - door->told_us < HV_DOOR_LOG_MS * UINT64_C(1000))
    return;
  if (c->no_file)
    hv_log_write(door->log, now, HV_LOG_WARN, "net", "door_no_file",
                 "this node cannot take all connections: the process has no free file descriptor (%llu times so far); raise the "
                 "limit on open files (ulimit -n)",
                 (unsigned long long)c->no_file);
  if (c->silent + c->refused + c->ended)
    hv_log_write(door->log, now, HV_LOG_WARN, "net", "door_full",
                 "this node turned connections away: %llu that said nothing, %llu beyond the limits, so far; %zu are open",
                 (unsigned long long)c->silent, (unsigned long long)(c->refused + c->ended),
                 door->guests.in[HV_GUEST_NEW] + door->guests.in[HV_GUEST_KNOWN]);
  door->told = turned_away(door);
  door->told_us = now;
}

static int wait_ms(const hv_door *door) {
  if (door->guests.waiting)
    return 1 + TURN_US / 1000;
  return door->guests.in[HV_GUEST_NEW] || door->rests_until_us || turned_away(door) != door->told ? LOOK_MS : -1;
}

static void *keep(void *arg) {
  hv_door *door = arg;
  struct epoll_event events[EVENTS];
  for (int timeout = -1;;) {
    int n = epoll_wait(door->epoll, events, EVENTS, timeout);
    pthread_mutex_lock(&door->lock);
    for (int i = 0; i < n; i++) {
      int64_t what = (int64_t)events[i].data.u64;
      if (what == BELL) {
        pthread_mutex_unlock(&door->lock);
        return NULL;
      }
      if (what >= 0)
        hear_of(door, what, events[i].events);
      else
        accept_some(door, door->listeners[-2 - what]);
    }
    uint64_t now = hv_clock_us();
    hand_over_some(door, now);
    send_silent_ones_off(door, now);
    end_rest(door, now);
    tell(door, now);
    timeout = wait_ms(door);
    pthread_mutex_unlock(&door->lock);
  }
}

/* ---- its life ---- */

hv_status hv_door_new(const hv_door_config *config, hv_door **out, hv_error *err) {
  hv_door *door = hv_mem_zalloc(config->mem, sizeof *door);
  size_t known = config->known ? config->known : HV_DOOR_KNOWN;
  hv_guest_limits limits = {
      .new_ones = HV_DOOR_NEW, .new_of_one = HV_DOOR_NEW_OF_ONE, .known = known, .known_of_one = (known + 1) / 2};
  if (!door || hv_guests_init(&door->guests, config->mem, &limits) != HV_OK) {
    hv_mem_free(door);
    return hv_fail(err, HV_NOMEM, "cannot listen: no memory; raise the memory limit");
  }
  door->mem = config->mem;
  door->log = config->log;
  door->insecure = config->insecure;
  door->greeting_us = config->greeting_ms * UINT64_C(1000);
  door->take = config->take;
  door->arg = config->arg;
  pthread_mutex_init(&door->lock, NULL);
  door->epoll = epoll_create1(EPOLL_CLOEXEC);
  door->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  door->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (door->epoll < 0 || door->bell < 0 || watch(door, door->bell, EPOLLIN, BELL) != 0) {
    hv_status status = hv_fail(err, HV_IO, "cannot listen: %s; raise the limit on open files (ulimit -n)", strerror(errno));
    hv_door_free(door);
    return status;
  }
  *out = door;
  return HV_OK;
}

hv_status hv_door_listen(hv_door *door, const hv_addr *addr, uint16_t *port, hv_error *err) {
  char where[HV_ADDR_TEXT_MAX];
  hv_addr_print_short(addr, where);
  if (addr->kind != HV_ADDR_IP4 && addr->kind != HV_ADDR_IP6)
    return hv_fail(err, HV_INVALID,
                   "cannot listen on %s: it is not an IP address; give one of this machine, or 0.0.0.0 or [::] for all", where);
  if (door->n_listeners == HV_DOOR_LISTEN_MAX)
    return hv_fail(err, HV_INVALID, "cannot listen on so many addresses: the limit is %d; give fewer", HV_DOOR_LISTEN_MAX);
  int fd, error = hv_listen_bind(addr, port, &fd);
  if (error == 0 && watch(door, fd, EPOLLIN, tag_of_listener(door->n_listeners)) != 0) {
    error = errno;
    close(fd);
  }
  if (error)
    return hv_listen_explain(error, where, err);
  door->listeners[door->n_listeners++] = fd;
  return HV_OK;
}

hv_status hv_door_open(hv_door *door, hv_error *err) {
  int error = pthread_create(&door->thread, NULL, keep, door);
  if (error)
    return hv_fail(err, HV_IO, "cannot start the thread that accepts connections: %s; raise the limit on processes (ulimit -u)",
                   strerror(error));
  door->open = 1;
  return HV_OK;
}

void hv_door_close(hv_door *door) {
  if (door->open) {
    uint64_t one = 1;
    while (write(door->bell, &one, sizeof one) < 0 && errno == EINTR)
      ;
    pthread_join(door->thread, NULL);
    door->open = 0;
  }
  for (size_t i = 0; i < door->n_listeners; i++) {
    shutdown(door->listeners[i], SHUT_RDWR); /* a forked child may have it open: a close alone would leave the port taken */
    close(door->listeners[i]);
  }
  door->n_listeners = 0;
  for (size_t i = 0; i < door->guests.n; i++)
    if (door->guests.places[i].state != HV_GUEST_NONE)
      send_off(door, i, 0);
}

void hv_door_free(hv_door *door) {
  if (!door)
    return;
  hv_door_close(door);
  int *own[] = {&door->epoll, &door->bell, &door->spare};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (*own[i] >= 0)
      close(*own[i]);
  hv_guests_fini(&door->guests);
  pthread_mutex_destroy(&door->lock);
  hv_mem_free(door);
}

void hv_door_know(hv_door *door, const hv_addr *from) {
  pthread_mutex_lock(&door->lock);
  size_t place = hv_guests_find(&door->guests, hv_guest_key(from));
  if (place < door->guests.n && door->guests.places[place].state == HV_GUEST_NEW) {
    if (make_room(door, HV_GUEST_KNOWN, hv_guest_network(from)))
      hv_guests_know(&door->guests, place, hv_clock_us());
    else
      send_off(door, place, 1);
  }
  pthread_mutex_unlock(&door->lock);
}

void hv_door_end(hv_door *door, const hv_addr *from) {
  pthread_mutex_lock(&door->lock);
  size_t place = hv_guests_find(&door->guests, hv_guest_key(from));
  if (place < door->guests.n) {
    door->counts.ended++;
    send_off(door, place, 1);
  }
  pthread_mutex_unlock(&door->lock);
}

void hv_door_part(hv_door *door, const hv_roam_news *news) {
  pthread_mutex_lock(&door->lock);
  for (size_t i = 0; i < door->guests.n; i++)
    if (door->guests.places[i].state != HV_GUEST_NONE && hv_roam_has_lost(news, door->guests.places[i].fd))
      send_off(door, i, 1);
  pthread_mutex_unlock(&door->lock);
}

void hv_door_count(hv_door *door, hv_door_counts *out) {
  pthread_mutex_lock(&door->lock);
  *out = door->counts;
  out->new_ones = door->guests.in[HV_GUEST_NEW];
  out->known = door->guests.in[HV_GUEST_KNOWN];
  pthread_mutex_unlock(&door->lock);
}

void hv_door_raise_files(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0)
    return;
  rlim_t most = files.rlim_max < HV_DOOR_FILES_MAX ? files.rlim_max : HV_DOOR_FILES_MAX;
  if (files.rlim_cur >= most)
    return;
  files.rlim_cur = most;
  setrlimit(RLIMIT_NOFILE, &files);
}
