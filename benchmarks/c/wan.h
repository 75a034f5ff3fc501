/* A wide-area network on one machine: each peer in a network namespace of its own, joined by a relay over TUN devices.
 *
 * Every peer has a line of `rate` bytes per second (the last one of `slow`, if that is not 0), up and down, each with a queue of
 * `queue` bytes before it (what comes when it is full is dropped); between two lines lies half of the round-trip time, where `loss`
 * of all packets is dropped, by a seeded generator. Needs root; nothing of it is left when the processes have ended.
 *
 * As network cards do, the devices give and take several packets of one connection as one, or the relay is slower than lines of
 * 1 Gbit/s and a measurement shows the relay. The line is charged for each of them and its headers; they come and are dropped
 * together. Where `loss` is not 0, each goes alone. */
#ifndef HV_BENCHMARKS_WAN_H
#define HV_BENCHMARKS_WAN_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
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
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WAN_PEERS_MAX = 16, WAN_PACKET_MAX = 1 << 16, WAN_TURNS = 32 };

typedef struct wan_link {
  double rate, slow, rtt_s, loss; /* bytes per second; of a packet */
  size_t queue;                   /* bytes */
  const char *congestion;         /* cubic, bbr ...; NULL: the machine's own */
} wan_link;

/* One, or several of one connection in one. */
typedef struct wan_packet {
  struct wan_packet *next;
  uint64_t due_ns;
  size_t size, on_line, to; /* on_line: each with its headers */
  struct virtio_net_hdr how;
  uint8_t bytes[WAN_PACKET_MAX]; /* only `size` of them are there */
} wan_packet;

/* The bytes on their way out of one line, in order. */
typedef struct wan_line {
  wan_packet *first, *last;
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
  struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP},
               dev = {.ifr_name = "wan", .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
  wan_must(tun >= 0 && s >= 0 && ioctl(s, SIOCSIFFLAGS, &lo) == 0 && ioctl(tun, TUNSETIFF, &dev) == 0, "a TUN device");
  wan_must(ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | (link->loss > 0 ? 0 : TUN_F_TSO4)) == 0, "several packets as one");
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

/* Takes over a packet that came before a line since `came`, at `now` at the latest; it leaves when the line is free, and is due
 * `later` after that. Or the queue is full. A relay that gets its turn late does not make the line slower by that. */
static void wan_put(wan_line *line, const wan_link *link, wan_packet *packet, uint64_t came, uint64_t now, uint64_t later) {
  uint64_t begins = line->free_ns > came ? line->free_ns : came;
  if (((double)begins - (double)now) * line->rate / 1e9 + (double)packet->on_line > (double)link->queue) {
    free(packet);
    return;
  }
  line->free_ns = begins + (uint64_t)((double)packet->on_line * 1e9 / line->rate);
  packet->due_ns = line->free_ns + later;
  packet->next = NULL;
  *(line->first ? &line->last->next : &line->first) = packet;
  line->last = packet;
}

/* The line whose first packet is due before all others; NULL: none is on its way. */
static wan_line *wan_next(wan_line *lines, size_t n) {
  wan_line *next = NULL;
  for (size_t i = 0; i < n; i++)
    if (lines[i].first && (!next || lines[i].first->due_ns < next->first->due_ns))
      next = &lines[i];
  return next;
}

/* Reads what a peer has sent, at most a few dozens. */
static void wan_read(int tun, wan_line *line, const wan_link *link, size_t n) {
  static wan_packet packet;
  struct iovec parts[] = {{&packet.how, sizeof packet.how}, {packet.bytes, WAN_PACKET_MAX}};
  for (int k = 0; k < WAN_TURNS; k++) {
    uint64_t before = wan_ns();
    ssize_t size = readv(tun, parts, 2) - (ssize_t)sizeof packet.how;
    if (size < 0)
      line->seen_ns = before;
    if (size < 20)
      return;
    packet.size = packet.on_line = (size_t)size, packet.to = (size_t)packet.bytes[19] - 1;
    if (packet.how.gso_type != VIRTIO_NET_HDR_GSO_NONE)
      packet.on_line += (packet.size - packet.how.hdr_len - 1) / packet.how.gso_size * packet.how.hdr_len;
    if (packet.bytes[0] >> 4 != 4 || packet.to >= n)
      continue;
    wan_packet *one = malloc(offsetof(wan_packet, bytes) + packet.size);
    wan_must(one != NULL, "memory");
    memcpy(one, &packet, offsetof(wan_packet, bytes) + packet.size);
    wan_put(line, link, one, line->seen_ns, wan_ns(), (uint64_t)(link->rtt_s / 2 * 1e9));
  }
}

/* The relay's process; it ends with its parent. Prints nothing. */
static void wan_relay(size_t n, const wan_link *link, int from, uint64_t seed) {
  static wan_line lines[2 * WAN_PEERS_MAX]; /* all up, then all down */
  int tuns[WAN_PEERS_MAX];
  struct pollfd polls[WAN_PEERS_MAX];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1}) != 0) /* lines do not wait for the machine ... */
    setpriority(PRIO_PROCESS, 0, -15);                                  /* ... where it may; else it does without */
  wan_take_devices(n, from, tuns);
  for (size_t i = 0; i < n; i++) {
    lines[i].rate = lines[n + i].rate = link->slow > 0 && i == n - 1 ? link->slow : link->rate;
    lines[i].seen_ns = wan_ns();
    polls[i] = (struct pollfd){.fd = tuns[i], .events = POLLIN};
  }
  uint64_t chance = (uint64_t)(link->loss * 18446744073709549568.0);
  for (unsigned turn = 1;; turn++) {
    wan_line *line = wan_next(lines, 2 * n);
    uint64_t now = wan_ns(), due = line ? line->first->due_ns : UINT64_MAX;
    if (due <= now && turn % WAN_TURNS) {
      wan_packet *packet = line->first;
      line->first = packet->next;
      if (line < lines + n) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if ((seed ^ seed >> 32) * 0x9e3779b97f4a7c15u >= chance)
          wan_put(&lines[n + packet->to], link, packet, due, due, 0);
        else
          free(packet);
        continue;
      }
      struct iovec parts[] = {{&packet->how, sizeof packet->how}, {packet->bytes, packet->size}};
      (void)!writev(tuns[line - lines - n], parts, 2); /* or the peer has ended */
      free(packet);
      continue;
    }
    int slept = poll(polls, n, 0) == 0 && due > now;
    if (slept) { /* until something is due or comes */
      uint64_t wait = due - now < 999999999 ? due - now : 999999999;
      ppoll(polls, n, &(struct timespec){.tv_nsec = (long)wait}, NULL);
      now = wan_ns();
    }
    for (size_t i = 0; i < n; i++) {
      if (polls[i].revents & (POLLERR | POLLNVAL))
        polls[i].fd = -1; /* the peer has ended */
      if (slept || !(polls[i].revents & POLLIN))
        lines[i].seen_ns = now;
      if (polls[i].revents & POLLIN)
        wan_read(tuns[i], &lines[i], link, n);
    }
  }
}

#endif
