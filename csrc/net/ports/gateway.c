#include "net/ports/gateway.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

int hv_gateway_find(const char *routes, hv_gateway *out) {
  enum { RTF_UP_AND_GATEWAY = 3 };
  char line[256], name[32];
  unsigned to, gateway, flags, best = UINT32_MAX;
  FILE *file = fopen(routes ? routes : "/proc/net/route", "re");
  int found = 0;
  while (file && fgets(line, sizeof line, file)) {
    unsigned metric, mask;
    if (sscanf(line, "%31s %x %x %x %*u %*u %u %x", name, &to, &gateway, &flags, &metric, &mask) != 6)
      continue; /* the heading */
    if (to || mask || (flags & RTF_UP_AND_GATEWAY) != RTF_UP_AND_GATEWAY || metric >= best)
      continue;
    best = metric;
    memcpy(out->ip, &gateway, sizeof out->ip); /* printed as a number of this machine, from bytes of the network */
    found = 1;
  }
  if (file)
    fclose(file);
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 1};
  memcpy(addr.host.ip, out->ip, sizeof out->ip);
  return found && hv_addr_is_private(&addr) && !hv_addr_is_loopback(&addr) &&
         inet_ntop(AF_INET, out->ip, out->text, sizeof out->text);
}

int hv_gateway_is_at(const hv_gateway *gateway, const char *url) {
  size_t n = strlen(gateway->text);
  if (!url || strncmp(url, "http://", 7) != 0 || strncmp(url + 7, gateway->text, n) != 0)
    return 0;
  return url[7 + n] == ':' || url[7 + n] == '/';
}
