/* The gateway of the default route, and what the two protocols get from it.
 *
 * Room: net; private to net/ports.
 * Thread: the helper of hv_ports; all functions but hv_gateway_find and hv_gateway_is_at wait for the gateway, for seconds at most.
 * Errors: `why` has the cause as the end of a sentence. Nothing that the gateway wrote is in it.
 */
#ifndef HV_NET_GATEWAY_H
#define HV_NET_GATEWAY_H

#include "core/addr.h"

#define HV_GATEWAY_WHY_MAX 128
#define HV_GATEWAY_URL_MAX 256

typedef struct hv_gateway {
  uint8_t ip[4];
  char text[16]; /* the same, printed */
} hv_gateway;

/* A port that the gateway says is open. Its address is as the gateway gave it, and not checked. */
typedef struct hv_gateway_grant {
  hv_addr outer;
  uint32_t lease_s;                               /* 0: without end */
  char control[HV_GATEWAY_URL_MAX], service[128]; /* of UPnP: where it is given back */
  char why[HV_GATEWAY_WHY_MAX];
} hv_gateway_grant;

/* Reads the kernel's table of routes (/proc/net/route). False: no default route, or its gateway has a public address. */
int hv_gateway_find(const char *routes, hv_gateway *out);
/* True if the URL leads to the gateway itself. */
int hv_gateway_is_at(const hv_gateway *gateway, const char *url);

/* Each asks for a port, under the number `wanted` if that is free. True: it was granted. */
int hv_natpmp_open(const hv_gateway *gateway, uint16_t port, uint16_t wanted, uint32_t lease_s, hv_gateway_grant *out);
int hv_upnp_open(const hv_gateway *gateway, uint16_t port, uint16_t wanted, uint32_t lease_s, hv_gateway_grant *out);
/* Each gives it back. */
void hv_natpmp_close(const hv_gateway *gateway, uint16_t port);
void hv_upnp_close(const hv_gateway_grant *grant);

#endif
