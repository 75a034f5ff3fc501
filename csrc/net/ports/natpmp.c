/* NAT-PMP by libnatpmp; gateways that speak PCP answer it as well. */
#include "net/ports/gateway.h"

#include <stdio.h>
#include <string.h>

#ifdef HV_HAS_PORTS

#include "net/clock.h"

#include <natpmp.h>
#include <poll.h>
#include <sys/socket.h>

enum { PATIENCE_US = 3000000, GIVING_BACK_US = 500000 };

/* Waits for the answer to the request that was sent. 0, or an error of the library. */
static int wait_for_answer(natpmp_t *natpmp, natpmpresp_t *answer, uint64_t until_us) {
  for (;;) {
    struct timeval left = {0};
    uint64_t now = hv_clock_us();
    if (now >= until_us)
      return NATPMP_ERR_NOGATEWAYSUPPORT;
    getnatpmprequesttimeout(natpmp, &left);
    uint64_t us = (uint64_t)left.tv_sec * 1000000 + (uint64_t)left.tv_usec;
    struct pollfd socket = {.fd = natpmp->s, .events = POLLIN};
    poll(&socket, 1, (int)((us < until_us - now ? us : until_us - now) / 1000) + 1);
    int result = readnatpmpresponseorretry(natpmp, answer);
    if (result != NATPMP_TRYAGAIN)
      return result;
  }
}

static int connect_to(natpmp_t *natpmp, const hv_gateway *gateway) {
  in_addr_t at;
  memcpy(&at, gateway->ip, sizeof at);
  return initnatpmp(natpmp, 1, at) == 0;
}

static int fails(natpmp_t *natpmp, hv_gateway_grant *out, int result) {
  snprintf(out->why, sizeof out->why, "%s",
           result == NATPMP_ERR_NOGATEWAYSUPPORT ? "it does not answer"
           : result == NATPMP_ERR_NOTAUTHORIZED  ? "it refuses"
           : result == NATPMP_ERR_NETWORKFAILURE ? "its own connection is down"
           : result == NATPMP_ERR_OUTOFRESOURCES ? "it has no free port"
           : result == NATPMP_ERR_RECVFROM       ? "it has no such service"
           : result == 0                         ? "its answer makes no sense"
                                                 : "it does not speak it");
  closenatpmp(natpmp);
  return 0;
}

int hv_natpmp_open(const hv_gateway *gateway, uint16_t port, uint16_t wanted, uint32_t lease_s, hv_gateway_grant *out) {
  natpmp_t natpmp;
  natpmpresp_t address, mapping;
  uint64_t until = hv_clock_us() + PATIENCE_US;
  *out = (hv_gateway_grant){0};
  if (!connect_to(&natpmp, gateway)) {
    snprintf(out->why, sizeof out->why, "this machine cannot send to it");
    return 0;
  }
  int result = sendpublicaddressrequest(&natpmp) < 0 ? NATPMP_ERR_RECVFROM : wait_for_answer(&natpmp, &address, until);
  if (result != 0 || address.type != NATPMP_RESPTYPE_PUBLICADDRESS)
    return fails(&natpmp, out, result);
  result = sendnewportmappingrequest(&natpmp, NATPMP_PROTOCOL_TCP, port, wanted, lease_s) < 0
               ? NATPMP_ERR_RECVFROM
               : wait_for_answer(&natpmp, &mapping, until);
  if (result != 0 || mapping.type != NATPMP_RESPTYPE_TCPPORTMAPPING || mapping.pnu.newportmapping.privateport != port ||
      mapping.pnu.newportmapping.lifetime == 0)
    return fails(&natpmp, out, result);
  out->outer = (hv_addr){.kind = HV_ADDR_IP4, .port = mapping.pnu.newportmapping.mappedpublicport};
  memcpy(out->outer.host.ip, &address.pnu.publicaddress.addr, 4);
  out->lease_s = mapping.pnu.newportmapping.lifetime;
  closenatpmp(&natpmp);
  return 1;
}

void hv_natpmp_close(const hv_gateway *gateway, uint16_t port) {
  natpmp_t natpmp;
  natpmpresp_t answer;
  if (!connect_to(&natpmp, gateway))
    return;
  if (sendnewportmappingrequest(&natpmp, NATPMP_PROTOCOL_TCP, port, 0, 0) >= 0)
    wait_for_answer(&natpmp, &answer, hv_clock_us() + GIVING_BACK_US);
  closenatpmp(&natpmp);
}

#else

int hv_natpmp_open(const hv_gateway *gateway, uint16_t port, uint16_t wanted, uint32_t lease_s, hv_gateway_grant *out) {
  (void)gateway, (void)port, (void)wanted, (void)lease_s;
  *out = (hv_gateway_grant){0};
  snprintf(out->why, sizeof out->why, "this build has no libnatpmp");
  return 0;
}

void hv_natpmp_close(const hv_gateway *gateway, uint16_t port) {
  (void)gateway, (void)port;
}

#endif
