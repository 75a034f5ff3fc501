/* A wide-area network on one machine: each peer in a network namespace of its own, joined by a relay over TUN devices.
 *
 * Every peer has a line of `rate` bytes per second (the last one of `slow`, if that is not 0), up and down, each with a queue of
 * `queue` bytes before it (what comes when it is full is dropped); between two lines lies half of the round-trip time, where `loss`
 * of all packets is dropped, by a seeded generator. Needs root; nothing of it is left when the processes have ended. */
#ifndef HV_BENCHMARKS_WAN_H
#define HV_BENCHMARKS_WAN_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WAN_PEERS_MAX = 16, WAN_MTU = 1500, WAN_RING = 1 << 14 };

typedef struct wan_link {
  double rate, slow, rtt_s, loss; /* bytes per second; of a packet */
  size_t queue;                   /* bytes */
  const char *congestion;         /* cubic, bbr ...; NULL: the machine's own */
} wan_link;

typedef struct wan_packet {
  uint64_t due_ns;
  uint16_t size, to;
  uint8_t bytes[WAN_MTU];
} wan_packet;

/* What is on its way out of one line, in order. */
typedef struct wan_line {
  wan_packet *ring;
  unsigned first, n;
  double rate;
  uint64_t free_ns;
  uint64_t seen_ns; /* nothing was waiting before it then: what comes now may have come at any time since */
} wan_line;

static uint64_t wan_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wan_must(int right, const char *what) {
  if (!right) {
    fprintf(stderr, "the network for this measurement could not be made: %s: %s (it needs root)\n", what, strerror(errno));
    exit(1);
  }
}

static void wan_address(size_t peer, char out[32]) {
  snprintf(out, 32, "10.77.0.%zu", peer + 1);
}

/* In a peer's process: moves it into a namespace of its own and gives its end of the network to the relay. */
static void wan_enter(size_t peer, const wan_link *link, int to_relay) {
  char address[32];
  wan_must(unshare(CLONE_NEWNET) == 0, "a namespace");
  int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK), s = socket(AF_INET, SOCK_DGRAM, 0);
  struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP}, dev = {.ifr_name = "wan", .ifr_flags = IFF_TUN | IFF_NO_PI};
  wan_must(tun >= 0 && s >= 0 && ioctl(s, SIOCSIFFLAGS, &lo) == 0 && ioctl(tun, TUNSETIFF, &dev) == 0, "a TUN device");
  struct sockaddr_in *in = (struct sockaddr_in *)&dev.ifr_addr;
  wan_address(peer, address);
  *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
  wan_must(ioctl(s, SIOCSIFADDR, &dev) == 0, "its address");
  in->sin_addr.s_addr = inet_addr("255.255.255.0");
  wan_must(ioctl(s, SIOCSIFNETMASK, &dev) == 0, "its mask");
  dev.ifr_qlen = 10000; /* the queue that counts is the relay's */
  wan_must(ioctl(s, SIOCSIFTXQLEN, &dev) == 0, "its queue");
  dev.ifr_flags = IFF_UP | IFF_RUNNING;
  wan_must(ioctl(s, SIOCSIFFLAGS, &dev) == 0, "bringing it up");
  close(s);
  if (link->congestion) {
    int f = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY);
    wan_must(f >= 0 && write(f, link->congestion, strlen(link->congestion)) > 0,
             "the congestion control (is it in net.ipv4.tcp_allowed_congestion_control?)");
    close(f);
  }
  char control[CMSG_SPACE(sizeof tun)] = {0};
  uint8_t index = (uint8_t)peer;
  struct iovec one = {&index, 1};
  struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof tun);
  memcpy(CMSG_DATA(c), &tun, sizeof tun);
  wan_must(sendmsg(to_relay, &msg, 0) == 1, "handing it over");
  close(tun);
}

static void wan_take_devices(size_t n, int from, int *tuns) {
  for (size_t i = 0; i < n; i++) {
    uint8_t index;
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec one = {&index, 1};
    struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    wan_must(recvmsg(from, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg) && index < n, "taking a device over");
    memcpy(&tuns[index], CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
  }
}

/* Puts a packet behind those of a line that came at `now` at the latest; it leaves when the line is free, and is due `later` after
 * that. Or the queue is full. A relay that gets its turn late does not make the line slower by that. */
static void wan_put(wan_line *line, const wan_link *link, const wan_packet *packet, uint64_t now, uint64_t later) {
  uint64_t came = line->seen_ns && line->seen_ns < now ? line->seen_ns : now;
  uint64_t begins = line->free_ns > came ? line->free_ns : came;
  if (((double)begins - (double)now) * line->rate / 1e9 + packet->size > (double)link->queue || line->n == WAN_RING)
    return;
  wan_packet *slot = &line->ring[(line->first + line->n++) % WAN_RING];
  memcpy(slot, packet, offsetof(wan_packet, bytes) + packet->size);
  line->free_ns = begins + (uint64_t)(packet->size * 1e9 / line->rate);
  slot->due_ns = line->free_ns + later;
}

static const wan_packet *wan_due(wan_line *line, uint64_t now, uint64_t *next) {
  if (!line->n)
    return NULL;
  const wan_packet *packet = &line->ring[line->first];
  if (packet->due_ns > now) {
    *next = packet->due_ns < *next ? packet->due_ns : *next;
    return NULL;
  }
  line->first = (line->first + 1) % WAN_RING;
  line->n--;
  return packet;
}

/* The relay's process; it ends with its parent. Prints nothing. */
static void wan_relay(size_t n, const wan_link *link, int from, uint64_t seed) {
  static wan_line up[WAN_PEERS_MAX], down[WAN_PEERS_MAX];
  static wan_packet packet;
  int tuns[WAN_PEERS_MAX];
  struct pollfd polls[WAN_PEERS_MAX];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpriority(PRIO_PROCESS, 0, -15); /* lines do not wait for the machine; where it may not, it does without */
  wan_take_devices(n, from, tuns);
  for (size_t i = 0; i < n; i++) {
    up[i].ring = malloc(WAN_RING * sizeof(wan_packet)), down[i].ring = malloc(WAN_RING * sizeof(wan_packet));
    wan_must(up[i].ring && down[i].ring, "memory");
    up[i].rate = down[i].rate = link->slow > 0 && i == n - 1 ? link->slow : link->rate;
    polls[i] = (struct pollfd){.fd = tuns[i], .events = POLLIN};
  }
  uint64_t chance = (uint64_t)(link->loss * 18446744073709549568.0), half = (uint64_t)(link->rtt_s / 2 * 1e9);
  for (uint64_t next = 0;;) {
    uint64_t now = wan_ns();
    struct timespec wait = {.tv_nsec = next > now ? (long)(next - now < 999999999 ? next - now : 999999999) : 0};
    ppoll(polls, n, next == UINT64_MAX ? NULL : &wait, NULL);
    next = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
      if (polls[i].revents & (POLLERR | POLLNVAL))
        polls[i].fd = -1; /* the peer has ended */
      uint64_t before = wan_ns();
      for (int k = 0; k < 64 && polls[i].fd >= 0; k++) {
        ssize_t size = read(tuns[i], packet.bytes, WAN_MTU);
        if (size < 0)
          up[i].seen_ns = before;
        if (size < 20 || packet.bytes[0] >> 4 != 4)
          break;
        packet.size = (uint16_t)size, packet.to = (uint16_t)(packet.bytes[19] - 1);
        if (packet.to < n)
          wan_put(&up[i], link, &packet, wan_ns(), half);
      }
    }
    now = wan_ns();
    const wan_packet *p;
    for (size_t i = 0; i < n; i++)
      while ((p = wan_due(&up[i], now, &next))) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if ((seed ^ seed >> 32) * 0x9e3779b97f4a7c15u >= chance)
          wan_put(&down[p->to], link, p, p->due_ns, 0);
      }
    for (size_t i = 0; i < n; i++)
      while ((p = wan_due(&down[i], now, &next)))
        if (write(tuns[i], p->bytes, p->size) < 0)
          break; /* the peer has ended, or its kernel is full */
  }
}

#endif
