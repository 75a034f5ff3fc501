/* The port of a node at its gateway: starts net/ports for a node that others could dial through it, and passes the results to core.
 *
 * Room: net (uses ports, loop, core/node). Used by hive, which embeds it.
 * Thread: start, again and stop on any thread; results come on the helper's thread and are posted to the hive thread.
 * Rules: docs/design/reach.md.
 */
#ifndef HV_NET_OPENING_H
#define HV_NET_OPENING_H

#include "net/ports/ports.h"
#include "net/transport/loop.h"

#include <pthread.h>

typedef struct hv_opening {
  hv_log *log;
  hv_loop *loop;
  _Atomic(hv_ports *) ports; /* NULL: no gateway is asked */
  pthread_mutex_t lock;
  hv_command command;
  int posted;
  hv_ports_news news; /* the latest */
  hv_addr seen;       /* where initial peers see this node */
} hv_opening;

void hv_opening_init(hv_opening *opening);
/* Asks the gateway, if one of these addresses, where the node listens, is a private one of IPv4 other than loopback. If the helper
 * cannot be started, the log says so. */
void hv_opening_start(hv_opening *opening, hv_mem *mem, hv_log *log, hv_loop *loop, const hv_addr *addrs, size_t n_addrs);
/* The network has changed. */
void hv_opening_again(hv_opening *opening);
/* Gives the port back; after the loop has stopped. */
void hv_opening_stop(hv_opening *opening);
void hv_opening_fini(hv_opening *opening);
/* Initial peers see this node there. */
void hv_opening_see(hv_opening *opening, const hv_addr *seen);
/* Writes what the gateway said; an empty text: nothing yet, or it is not asked. True if it says that the port is open. `seen` is
 * what hv_opening_see told last, of kind HV_ADDR_NONE before. */
int hv_opening_text(hv_opening *opening, char out[HV_PORTS_TEXT_MAX], hv_addr *seen);

#endif
