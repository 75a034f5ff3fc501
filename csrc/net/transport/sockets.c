#include "net/transport/sockets.h"

#include "net/transport/listen.h"

#include <dirent.h>
#ifdef __linux__
#include <linux/tcp.h> /* libc's knows no tcpi_min_rtt */
#endif
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void hv_sockets_init(hv_sockets *sockets, hv_mem *mem) {
  *sockets = (hv_sockets){.mem = mem};
}

void hv_sockets_forget(hv_sockets *sockets) {
  hv_mem_free(sockets->list);
  *sockets = (hv_sockets){.mem = sockets->mem};
}

#ifdef SO_MAX_PACING_RATE

static int is_tcp(int fd) {
  int type = 0, protocol = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return 0;
  size = sizeof protocol;
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

/* To whom it is connected; 0: it is no such socket. */
static int look_at(int fd, hv_socket *out) {
  struct sockaddr_storage at;
  socklen_t size = sizeof at;
  if (getpeername(fd, (struct sockaddr *)&at, &size) != 0)
    return 0;
  hv_addr addr;
  if (!hv_listen_read_sockaddr((const struct sockaddr *)&at, &addr))
    return 0;
  *out = (hv_socket){.fd = fd, .v6 = addr.kind == HV_ADDR_IP6, .port = addr.port};
  memcpy(out->ip, addr.host.ip, out->v6 ? 16 : 4);
  return is_tcp(fd);
}

static int leads_to(const hv_socket *s, const hv_addr *peer) {
  return s->port == peer->port && s->v6 == (peer->kind == HV_ADDR_IP6) && memcmp(s->ip, peer->host.ip, s->v6 ? 16 : 4) == 0;
}

static void look_around(hv_sockets *sockets, uint64_t now_us) {
  enum { ROOM = 64 };
  size_t room = 0;
  hv_sockets_forget(sockets);
  sockets->looked_us = now_us;
  DIR *folder = opendir("/proc/self/fd");
  struct dirent *entry;
  for (int seen = 0; folder && seen < HV_SOCKETS_MAX && (entry = readdir(folder)); seen++) {
    hv_socket one;
    if (entry->d_name[0] == '.' || !look_at(atoi(entry->d_name), &one))
      continue;
    if (sockets->n == room) {
      room += room ? room : ROOM;
      hv_socket *more = hv_mem_array(sockets->mem, room, sizeof *more);
      if (!more)
        break;
      if (sockets->n)
        memcpy(more, sockets->list, sockets->n * sizeof *more);
      hv_mem_free(sockets->list);
      sockets->list = more;
    }
    sockets->list[sockets->n++] = one;
  }
  if (folder)
    closedir(folder);
}

static size_t set_those(const hv_sockets *sockets, const hv_addr *peer, int level, int option, unsigned int value) {
  size_t n = 0;
  for (size_t i = 0; i < sockets->n; i++) {
    hv_socket now;
    if (leads_to(&sockets->list[i], peer) && look_at(sockets->list[i].fd, &now) && leads_to(&now, peer))
      n += setsockopt(now.fd, level, option, &value, sizeof value) == 0;
  }
  return n;
}

/* Goes on with the list of sockets, made anew if nobody in it leads there. */
static int worth_looking(hv_sockets *sockets, uint64_t now_us) {
  if (sockets->looked_us && now_us - sockets->looked_us < HV_SOCKETS_PAUSE_US)
    return 0;
  look_around(sockets, now_us);
  return 1;
}

static size_t set_all(hv_sockets *sockets, const hv_addr *peer, uint64_t now_us, int level, int option, unsigned int value) {
  if (peer->kind != HV_ADDR_IP4 && peer->kind != HV_ADDR_IP6)
    return 0;
  size_t n = set_those(sockets, peer, level, option, value);
  if (n == 0 && worth_looking(sockets, now_us))
    n = set_those(sockets, peer, level, option, value);
  return n;
}

size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us) {
  unsigned int most = rate && rate < UINT32_MAX ? (unsigned int)rate : UINT32_MAX; /* UINT32_MAX: any */
  return set_all(sockets, peer, now_us, SOL_SOCKET, SO_MAX_PACING_RATE, most);
}

size_t hv_sockets_short(hv_sockets *sockets, const hv_addr *peer, unsigned int bytes, uint64_t now_us) {
  return set_all(sockets, peer, now_us, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
}

static int read_line(int fd, hv_line *out) {
  struct tcp_info info = {0};
  char control[16] = "";
  socklen_t size = sizeof info, control_size = sizeof control - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < offsetof(struct tcp_info, tcpi_data_segs_in) ||
      getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &control_size) != 0)
    return 0;
  *out = (hv_line){.rtt_us = info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt,
                   .sent = info.tcpi_segs_out,
                   .lost = info.tcpi_total_retrans,
                   .fears_loss = strncmp(control, "bbr", 3) != 0};
  return 1;
}

/* Of the connection that has sent most. */
static int look_for_line(const hv_sockets *sockets, const hv_addr *peer, hv_line *out) {
  int found = 0;
  for (size_t i = 0; i < sockets->n; i++) {
    hv_socket now;
    hv_line line;
    if (leads_to(&sockets->list[i], peer) && look_at(sockets->list[i].fd, &now) && leads_to(&now, peer) &&
        read_line(now.fd, &line) && (!found || line.sent > out->sent)) {
      *out = line;
      found = 1;
    }
  }
  return found;
}

int hv_sockets_line(hv_sockets *sockets, const hv_addr *peer, uint64_t now_us, hv_line *out) {
  if (peer->kind != HV_ADDR_IP4 && peer->kind != HV_ADDR_IP6)
    return 0;
  return look_for_line(sockets, peer, out) || (worth_looking(sockets, now_us) && look_for_line(sockets, peer, out));
}

int hv_sockets_lost(hv_sockets *sockets, const hv_addr *peer, const hv_roam_news *news, uint64_t now_us) {
  if (peer->kind != HV_ADDR_IP4 && peer->kind != HV_ADDR_IP6)
    return news->n_gone > 0;
  if (!sockets->list)
    worth_looking(sockets, now_us);
  for (size_t i = 0; i < sockets->n; i++)
    if (leads_to(&sockets->list[i], peer) && hv_roam_has_lost(news, sockets->list[i].fd))
      return 1;
  return 0;
}

#else

int hv_sockets_lost(hv_sockets *sockets, const hv_addr *peer, const hv_roam_news *news, uint64_t now_us) {
  (void)sockets, (void)peer, (void)now_us;
  return news->n_gone > 0;
}

size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us) {
  (void)sockets, (void)peer, (void)rate, (void)now_us;
  return 0;
}

size_t hv_sockets_short(hv_sockets *sockets, const hv_addr *peer, unsigned int bytes, uint64_t now_us) {
  (void)sockets, (void)peer, (void)bytes, (void)now_us;
  return 0;
}

int hv_sockets_line(hv_sockets *sockets, const hv_addr *peer, uint64_t now_us, hv_line *out) {
  (void)sockets, (void)peer, (void)now_us, (void)out;
  return 0;
}

#endif
