#include "net/sockets.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void hv_sockets_init(hv_sockets *sockets, hv_mem *mem) {
  *sockets = (hv_sockets){.mem = mem};
}

void hv_sockets_fini(hv_sockets *sockets) {
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
  *out = (hv_socket){.fd = fd};
  if (at.ss_family == AF_INET) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
    memcpy(out->ip, &in->sin_addr, 4);
    out->port = ntohs(in->sin_port);
  } else if (at.ss_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&at;
    out->v6 = !IN6_IS_ADDR_V4MAPPED(&in->sin6_addr);
    memcpy(out->ip, in->sin6_addr.s6_addr + (out->v6 ? 0 : 12), out->v6 ? 16 : 4);
    out->port = ntohs(in->sin6_port);
  } else {
    return 0;
  }
  return is_tcp(fd);
}

static int leads_to(const hv_socket *s, const hv_addr *peer) {
  return s->port == peer->port && s->v6 == (peer->kind == HV_ADDR_IP6) && memcmp(s->ip, peer->host.ip, s->v6 ? 16 : 4) == 0;
}

static void look_around(hv_sockets *sockets, uint64_t now_us) {
  enum { ROOM = 64 };
  size_t room = 0;
  hv_sockets_fini(sockets);
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

static size_t set_all(const hv_sockets *sockets, const hv_addr *peer, uint64_t rate) {
  unsigned int most = rate && rate < UINT32_MAX ? (unsigned int)rate : UINT32_MAX; /* UINT32_MAX: any */
  size_t n = 0;
  for (size_t i = 0; i < sockets->n; i++) {
    hv_socket now;
    if (leads_to(&sockets->list[i], peer) && look_at(sockets->list[i].fd, &now) && leads_to(&now, peer))
      n += setsockopt(now.fd, SOL_SOCKET, SO_MAX_PACING_RATE, &most, sizeof most) == 0;
  }
  return n;
}

size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us) {
  if (peer->kind != HV_ADDR_IP4 && peer->kind != HV_ADDR_IP6)
    return 0;
  size_t n = set_all(sockets, peer, rate);
  if (n == 0 && (!sockets->looked_us || now_us - sockets->looked_us >= HV_SOCKETS_PAUSE_US)) {
    look_around(sockets, now_us);
    n = set_all(sockets, peer, rate);
  }
  return n;
}

#else

size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us) {
  (void)sockets, (void)peer, (void)rate, (void)now_us;
  return 0;
}

#endif
