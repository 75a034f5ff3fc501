/* A port that this machine's gateway opens for a node: asked for at the start, renewed, and given back at the end.
 *
 * Room: net (uses core/addr, clock). Used by hive. natpmp.c and upnp.c alone include libnatpmp and miniupnpc; a build without
 * these libraries reports that it has none.
 * Owner: the program's code that opened it. A helper thread does the work, because both libraries block.
 * Thread: any; `told` runs on the helper thread, with the lock of the ports held: it must not call them.
 * Limits: only the gateway of the default route is asked, if its address is private. hv_ports_close waits HV_PORTS_CLOSE_MS at
 * most. Errors: one sentence in hv_ports_news; the helper tries again later. Rules: docs/design/reach.md.
 */
#ifndef HV_NET_PORTS_H
#define HV_NET_PORTS_H

#include "base/mem.h"
#include "core/addr.h"

#define HV_PORTS_LEASE_S 3600u
#define HV_PORTS_CLOSE_MS 800
#define HV_PORTS_TEXT_MAX 512 /* HV_PORT_TEXT_MAX of hivemind_c.h */

typedef struct hv_ports hv_ports;

typedef struct hv_ports_news {
  int open;                     /* 1: addr is open */
  hv_addr addr;                 /* at the gateway */
  char text[HV_PORTS_TEXT_MAX]; /* one sentence for a person */
} hv_ports_news;

typedef struct hv_ports_config {
  uint16_t port;                                      /* on which this machine listens */
  unsigned lease_s;                                   /* 0: HV_PORTS_LEASE_S */
  const char *routes;                                 /* the kernel's table of routes; NULL: /proc/net/route */
  unsigned first_retry_s;                             /* pause after the first failure, which doubles; 0: 60 */
  void (*told)(void *arg, const hv_ports_news *news); /* something has changed */
  void *arg;
} hv_ports_config;

/* True if this build has the two libraries. */
int hv_ports_are_built(void);
/* Starts the helper. HV_NOMEM, HV_IO: no thread. */
hv_status hv_ports_open(hv_mem *mem, const hv_ports_config *config, hv_ports **out);
/* The network has changed: asks again now. */
void hv_ports_again(hv_ports *ports);
/* Gives the port back. Afterwards `told` is not called. If the helper still waits for a gateway, it ends by itself. NULL is fine.
 */
void hv_ports_close(hv_ports *ports);

#endif
