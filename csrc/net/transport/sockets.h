/* The TCP sockets of gRPC's connections, found by their remote address, to set their pace and read their statistics.
 *
 * Room: net (uses core/addr, roam). gRPC gives no access to a connection's socket, only its remote address. So this lists the
 * connected sockets of the process, again when an address is not in the list, at most every HV_SOCKETS_PAUSE_US. Each listed
 * socket is checked before use, because its number may have been reused.
 * Owner: hv_loop.
 * Thread: the hive thread.
 * Limits: HV_SOCKETS_MAX file descriptors are examined; 64 take 90 us, and finding a listed socket 1.5 us. Pacing needs Linux
 * (SO_MAX_PACING_RATE). A socket of the program itself to the same address and port is paced, too.
 */
#ifndef HV_NET_SOCKETS_H
#define HV_NET_SOCKETS_H

#include "base/mem.h"
#include "core/addr.h"
#include "net/transport/roam.h"

#define HV_SOCKETS_MAX 4096
#define HV_SOCKETS_PAUSE_US 200000u

typedef struct hv_socket {
  int fd;
  uint8_t v6;
  uint16_t port;
  uint8_t ip[16]; /* as in hv_addr */
} hv_socket;

typedef struct hv_sockets {
  hv_mem *mem;
  hv_socket *list;
  size_t n;
  uint64_t looked_us; /* time at which the list was made */
} hv_sockets;

void hv_sockets_init(hv_sockets *sockets, hv_mem *mem);
/* Empties the list, so that the next call makes a new one. Called after each new connection, and at the end. */
void hv_sockets_forget(hv_sockets *sockets);

/* Limits each connection to `peer` to `rate` bytes per second; 0: no limit. Returns the number of sockets that were set. */
size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us);

/* Limits the unsent bytes in the buffer of each connection to `peer`, so that later messages can use another connection. Returns
 * the number of sockets that were set. */
size_t hv_sockets_short(hv_sockets *sockets, const hv_addr *peer, unsigned int bytes, uint64_t now_us);

/* True if this machine has lost its own address of a connection to `peer`. For a DNS name: if it has lost any address. */
int hv_sockets_lost(hv_sockets *sockets, const hv_addr *peer, const hv_roam_news *news, uint64_t now_us);

/* Statistics of a connection, from Linux's TCP_INFO. */
typedef struct hv_line {
  uint32_t rtt_us;     /* shortest round-trip time */
  uint32_t sent, lost; /* packets since the connection was opened: sent; retransmitted */
  uint8_t fears_loss;  /* True if its congestion control slows down after each loss, as all but BBR do */
} hv_line;

/* Of the connection to `peer` that has sent most. False: there is none. */
int hv_sockets_line(hv_sockets *sockets, const hv_addr *peer, uint64_t now_us, hv_line *out);

#endif
