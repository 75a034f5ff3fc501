/* UPnP's Internet Gateway Device by miniupnpc: found by SSDP, asked by SOAP. */
#include "net/ports/gateway.h"

#include <stdio.h>
#include <string.h>

#ifdef HV_HAS_PORTS

#include <arpa/inet.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <miniupnpc/upnperrors.h>

enum { SEARCH_MS = 1500, TTL = 2, TRIES = 4, IN_USE = 718, WITHOUT_END_ONLY = 725 };

typedef struct igd {
  struct UPNPUrls urls;
  struct IGDdatas data;
  char own[64]; /* this machine's address towards it */
} igd;

/* The description of a device on the gateway's address; others that answer the search are no gateway of ours. The caller frees the
 * URLs. */
static int find_igd(const hv_gateway *gateway, igd *out) {
  int error = 0, found = 0;
  *out = (igd){0};
  struct UPNPDev *all = upnpDiscover(SEARCH_MS, NULL, NULL, UPNP_LOCAL_PORT_ANY, 0, TTL, &error);
  for (struct UPNPDev *device = all; device && !found; device = device->pNext) {
    if (!hv_gateway_is_at(gateway, device->descURL) ||
        UPNP_GetIGDFromUrl(device->descURL, &out->urls, &out->data, out->own, sizeof out->own) != 1)
      continue;
    found = hv_gateway_is_at(gateway, out->urls.controlURL) && strlen(out->urls.controlURL) < HV_GATEWAY_URL_MAX;
    if (!found)
      FreeUPNPUrls(&out->urls);
  }
  freeUPNPDevlist(all);
  return found;
}

static int add(const igd *at, uint16_t port, uint16_t outer, uint32_t lease_s) {
  char in[8], out[8], lease[16];
  snprintf(in, sizeof in, "%u", port);
  snprintf(out, sizeof out, "%u", outer);
  snprintf(lease, sizeof lease, "%u", lease_s);
  return UPNP_AddPortMapping(at->urls.controlURL, at->data.first.servicetype, out, in, at->own, "hivemind_c", "TCP", NULL, lease);
}

int hv_upnp_open(const hv_gateway *gateway, uint16_t port, uint16_t wanted, uint32_t lease_s, hv_gateway_grant *out) {
  igd at;
  char ip[64] = "";
  *out = (hv_gateway_grant){.lease_s = lease_s};
  if (!find_igd(gateway, &at)) {
    snprintf(out->why, sizeof out->why, "it does not answer");
    return 0;
  }
  uint16_t outer = wanted;
  int result = add(&at, port, outer, lease_s);
  for (int i = 0; result == IN_USE && i < TRIES; i++) {
    outer = (uint16_t)(outer < 60000 ? outer + 1009 : outer - 30011);
    result = add(&at, port, outer, lease_s);
  }
  if (result == WITHOUT_END_ONLY)
    result = add(&at, port, outer, out->lease_s = 0);
  int has_address = result == UPNPCOMMAND_SUCCESS &&
                    UPNP_GetExternalIPAddress(at.urls.controlURL, at.data.first.servicetype, ip) == UPNPCOMMAND_SUCCESS;
  out->outer = (hv_addr){.kind = HV_ADDR_IP4, .port = outer};
  has_address = has_address && inet_pton(AF_INET, ip, out->outer.host.ip) == 1;
  snprintf(out->control, sizeof out->control, "%s", at.urls.controlURL);
  snprintf(out->service, sizeof out->service, "%s", at.data.first.servicetype);
  FreeUPNPUrls(&at.urls);
  if (result > 0)
    snprintf(out->why, sizeof out->why, "it refuses with error %d", result);
  else if (result < 0)
    snprintf(out->why, sizeof out->why, "its answer makes no sense");
  else if (!has_address)
    snprintf(out->why, sizeof out->why, "it names no address of its own");
  return has_address;
}

void hv_upnp_close(const hv_gateway_grant *grant) {
  char port[8];
  snprintf(port, sizeof port, "%u", grant->outer.port);
  UPNP_DeletePortMapping(grant->control, grant->service, port, "TCP", NULL);
}

#else

int hv_upnp_open(const hv_gateway *gateway, uint16_t port, uint16_t wanted, uint32_t lease_s, hv_gateway_grant *out) {
  (void)gateway, (void)port, (void)wanted, (void)lease_s;
  *out = (hv_gateway_grant){0};
  snprintf(out->why, sizeof out->why, "this build has no miniupnpc");
  return 0;
}

void hv_upnp_close(const hv_gateway_grant *grant) {
  (void)grant;
}

#endif
