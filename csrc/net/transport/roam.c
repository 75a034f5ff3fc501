#include "net/transport/roam.h"

#include "net/clock.h"
#include "net/transport/listen.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static size_t size_of(const hv_roam_ip *one) {
  return one->kind == HV_ADDR_IP4 ? 4 : 16;
}

static int read_ip(const struct ifaddrs *at, hv_roam_ip *out) {
  if (!at->ifa_addr || !(at->ifa_flags & IFF_UP))
    return 0;
  *out = (hv_roam_ip){.running = (at->ifa_flags & IFF_RUNNING) != 0};
  if (at->ifa_addr->sa_family == AF_INET) {
    out->kind = HV_ADDR_IP4;
    memcpy(out->ip, &((const struct sockaddr_in *)at->ifa_addr)->sin_addr, 4);
    return 1;
  }
  if (at->ifa_addr->sa_family != AF_INET6)
    return 0;
  const struct in6_addr *six = &((const struct sockaddr_in6 *)at->ifa_addr)->sin6_addr;
  out->kind = HV_ADDR_IP6;
  memcpy(out->ip, six, 16);
  return !IN6_IS_ADDR_LINKLOCAL(six);
}

/* False: the addresses cannot be read. */
static int read_all(hv_roam *roam) {
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0)
    return 0;
  roam->n = 0;
  for (const struct ifaddrs *at = all; at && roam->n < HV_ROAM_MAX; at = at->ifa_next)
    roam->n += read_ip(at, &roam->ips[roam->n]) != 0;
  freeifaddrs(all);
  roam->asleep_us = hv_clock_asleep_us();
  return 1;
}

static const hv_roam_ip *find(const hv_roam_ip *list, size_t n, uint8_t kind, const uint8_t *ip) {
  for (size_t i = 0; i < n; i++)
    if (list[i].kind == kind && memcmp(list[i].ip, ip, size_of(&list[i])) == 0)
      return &list[i];
  return NULL;
}

int hv_roam_compare(const hv_roam *before, const hv_roam *now, hv_roam_news *news) {
  *news = (hv_roam_news){.slept = now->asleep_us >= before->asleep_us + HV_ROAM_SLEPT_US};
  for (size_t i = 0; i < before->n; i++)
    if (!find(now->ips, now->n, before->ips[i].kind, before->ips[i].ip))
      news->gone[news->n_gone++] = before->ips[i];
  for (size_t i = 0; i < now->n; i++) {
    const hv_roam_ip *one = &now->ips[i], *was = find(before->ips, before->n, one->kind, one->ip);
    news->came |= !was || (one->running && !was->running);
  }
  return news->came || news->slept || news->n_gone;
}

void hv_roam_init(hv_roam *roam) {
  *roam = (hv_roam){0};
  read_all(roam);
}

int hv_roam_look(hv_roam *roam, hv_roam_news *news) {
  hv_roam now = {0};
  if (!read_all(&now))
    return 0;
  int changed = hv_roam_compare(roam, &now, news);
  *roam = now;
  return changed;
}

int hv_roam_is_gone(const hv_roam_news *news, const hv_addr *addr) {
  return find(news->gone, news->n_gone, addr->kind, addr->host.ip) != NULL;
}

int hv_roam_has_lost(const hv_roam_news *news, int fd) {
  struct sockaddr_storage at;
  socklen_t size = sizeof at;
  hv_addr own;
  return getsockname(fd, (struct sockaddr *)&at, &size) == 0 && hv_listen_read_sockaddr((const struct sockaddr *)&at, &own) &&
         hv_roam_is_gone(news, &own);
}
