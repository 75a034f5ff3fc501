#include "net/transport/listen.h"

#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_SILENCE_MS = 5000 }; /* unanswered data for so long ends a connection, as a keepalive's ping does */

static int bind_to(int family, const struct sockaddr *to, socklen_t size, int both, int *out) {
  int one = 1, none = 0, silence = TCP_SILENCE_MS;
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return errno;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* what is accepted inherits it */
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
  if (family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, both ? &none : &one, sizeof one);
  if (bind(fd, to, size) == 0 && listen(fd, SOMAXCONN) == 0) {
    *out = fd;
    return 0;
  }
  int error = errno;
  close(fd);
  return error;
}

int hv_listen_bind(const hv_addr *addr, uint16_t *port, int *out) {
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(addr->port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(addr->port)};
  int everywhere = hv_addr_is_unspecified(addr), error = EAFNOSUPPORT;
  if (addr->kind == HV_ADDR_IP4)
    memcpy(&four.sin_addr, addr->host.ip, 4);
  else
    memcpy(&six.sin6_addr, addr->host.ip, 16);
  if (everywhere || addr->kind == HV_ADDR_IP6)
    error = bind_to(AF_INET6, (const struct sockaddr *)&six, sizeof six, everywhere, out);
  if (addr->kind == HV_ADDR_IP4 ? !everywhere || error == EAFNOSUPPORT || error == EADDRNOTAVAIL : 0)
    error = bind_to(AF_INET, (const struct sockaddr *)&four, sizeof four, 0, out);
  if (error)
    return error;
  struct sockaddr_storage bound = {0};
  socklen_t size = sizeof bound;
  hv_addr at;
  if (getsockname(*out, (struct sockaddr *)&bound, &size) != 0 || !hv_listen_read_sockaddr((const struct sockaddr *)&bound, &at)) {
    close(*out);
    return EIO;
  }
  *port = at.port;
  return 0;
}

int hv_listen_read_sockaddr(const struct sockaddr *from, hv_addr *out) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  *out = (hv_addr){.kind = HV_ADDR_NONE};
  if (from->sa_family == AF_INET) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;
    out->kind = HV_ADDR_IP4;
    out->port = ntohs(four->sin_port);
    memcpy(out->host.ip, &four->sin_addr, 4);
  } else if (from->sa_family == AF_INET6) {
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    const uint8_t *ip = six->sin6_addr.s6_addr;
    int is_four = memcmp(ip, mapped, sizeof mapped) == 0;
    out->kind = is_four ? HV_ADDR_IP4 : HV_ADDR_IP6;
    out->port = ntohs(six->sin6_port);
    memcpy(out->host.ip, is_four ? ip + 12 : ip, is_four ? 4 : 16);
  }
  return out->kind != HV_ADDR_NONE;
}

hv_status hv_listen_explain(int error, const char *where, hv_error *err) {
  switch (error) {
  case EADDRINUSE:
    return hv_fail(err, HV_IN_USE,
                   "cannot listen on %s: another program (or node) already does; choose another port, or 0 for any free one",
                   where);
  case EACCES:
  case EPERM:
    return hv_fail_by(err, HV_PERMISSION, HV_CAUSE_PORT_NOT_ALLOWED,
                      "cannot listen on %s: the system does not allow it; choose a port from 1024 on", where);
  case EADDRNOTAVAIL:
    return hv_fail_by(err, HV_INVALID, HV_CAUSE_NOT_OWN_ADDRESS,
                      "cannot listen on %s: this machine has no such address; listen on one of its own, or on 0.0.0.0", where);
  case EAFNOSUPPORT:
    return hv_fail_by(err, HV_INVALID, HV_CAUSE_NO_IPV6,
                      "cannot listen on %s: this machine has no IPv6; listen on 0.0.0.0 or another of its addresses", where);
  default:
    return hv_fail(err, HV_IO, "cannot listen on %s: %s", where, strerror(error));
  }
}

int hv_listen_covered(const hv_addr *asked, size_t n_before, const hv_addr *addr, const uint16_t *ports, uint16_t *port) {
  if (!hv_addr_is_unspecified(addr))
    return 0;
  for (size_t i = 0; i < n_before; i++)
    if (hv_addr_is_unspecified(&asked[i]) && (addr->port == 0 || addr->port == ports[i])) {
      *port = ports[i];
      return 1;
    }
  return 0;
}

static void add(const hv_addr *addr, hv_addr *list, size_t *n, size_t max) {
  for (size_t i = 0; i < *n; i++)
    if (hv_addr_equal(&list[i], addr))
      return;
  if (*n < max)
    list[(*n)++] = *addr;
}

static int read_interface(const struct ifaddrs *at, int family, uint16_t port, hv_addr *out) {
  if (!at->ifa_addr || at->ifa_addr->sa_family != family || !(at->ifa_flags & IFF_UP))
    return 0;
  *out = (hv_addr){.kind = family == AF_INET6 ? HV_ADDR_IP6 : HV_ADDR_IP4, .port = port};
  if (family == AF_INET) {
    memcpy(out->host.ip, &((const struct sockaddr_in *)at->ifa_addr)->sin_addr, 4);
    return 1;
  }
  const struct in6_addr *six = &((const struct sockaddr_in6 *)at->ifa_addr)->sin6_addr;
  memcpy(out->host.ip, six, 16);
  return !IN6_IS_ADDR_LINKLOCAL(six); /* of no use without naming the interface */
}

/* The addresses of one family, of loopback interfaces or of the others, until the list has `most`; whether there are any.
 */
static int add_all(const struct ifaddrs *all, int family, int loopback, uint16_t port, hv_addr *list, size_t *n, size_t most) {
  hv_addr one;
  int found = 0;
  for (const struct ifaddrs *at = all; at; at = at->ifa_next)
    if (read_interface(at, family, port, &one) && hv_addr_is_loopback(&one) == loopback) {
      found = 1;
      add(&one, list, n, most);
    }
  return found;
}

void hv_listen_expand(const hv_addr *addr, hv_addr *list, size_t *n, size_t max) {
  struct ifaddrs *all = NULL;
  if (!hv_addr_is_unspecified(addr) || getifaddrs(&all) != 0) {
    add(addr, list, n, max);
    return;
  }
  int is_six = addr->kind == HV_ADDR_IP6, family = is_six ? AF_INET6 : AF_INET, other = is_six ? AF_INET : AF_INET6;
  size_t half = is_six ? *n + (max - *n + 1) / 2 : max; /* of [::] both families have a place */
  int found = add_all(all, family, 0, addr->port, list, n, half) || add_all(all, family, 1, addr->port, list, n, half);
  /* A machine may have addresses of the other family only: it is listened on both. */
  if (is_six || !found)
    if (!add_all(all, other, 0, addr->port, list, n, max) && !found)
      add_all(all, other, 1, addr->port, list, n, max);
  if (half < max)
    add_all(all, family, 0, addr->port, list, n, max);
  freeifaddrs(all);
}

void hv_listen_read_uri(const char *uri, hv_addr *out) {
  char host[64];
  size_t n = 0;
  const char *text = strchr(uri, ':');
  for (text = text ? text + 1 : ""; *text && n < sizeof host; text++)
    if (strncasecmp(text, "%5B", 3) == 0 || strncasecmp(text, "%5D", 3) == 0) {
      host[n++] = tolower((unsigned char)text[2]) == 'b' ? '[' : ']';
      text += 2;
    } else {
      host[n++] = *text;
    }
  if (hv_addr_parse(hv_span_of(host, n), out, NULL, NULL) != HV_OK)
    *out = (hv_addr){.kind = HV_ADDR_NONE};
}
