/* The TCP sockets behind gRPC's connections: found by their remote address, paced, and asked for their losses.
 *
 * Room: net (uses core/addr). gRPC gives no way to a connection's socket, but tells the address at its other end. So a list of the
 * process's connected sockets is kept, and made anew when an address is not in it, at most every HV_SOCKETS_PAUSE_US. Each socket
 * is checked again when it is set, because its number may have been closed and used again since. Owner: loop. Thread: the hive
 * thread. Limits: HV_SOCKETS_MAX open files are looked at: looking at 64 files takes some 90 us, and finding a listed socket 1.5
 * us. Pacing is SO_MAX_PACING_RATE of Linux; elsewhere nothing happens. A socket of the program's own to the same remote port is
 * paced, too.
 */
#ifndef HV_NET_SOCKETS_H
#define HV_NET_SOCKETS_H

#include "base/mem.h"
#include "core/addr.h"

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
  uint64_t looked_us;
} hv_sockets;

void hv_sockets_init(hv_sockets *sockets, hv_mem *mem);
/* Empties the list: the next call that needs it makes it anew. Called for each new connection, and at the end. */
void hv_sockets_forget(hv_sockets *sockets);

/* Bytes to `peer` leave at no more than `rate` bytes per second on each connection to it; 0: as fast as they can. Returns how many
 * connections took it. */
size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us);

/* From now on no more than some `bytes` wait in each socket that leads there for their turn to leave: what else there is to send
 * can still go over another one. Returns how many took it. */
size_t hv_sockets_short(hv_sockets *sockets, const hv_addr *peer, unsigned int bytes, uint64_t now_us);

/* What the system counts of a connection (Linux alone tells). */
typedef struct hv_line {
  uint32_t rtt_us;     /* there and back, at best */
  uint32_t sent, lost; /* packets since the connection was opened: sent; of them sent again */
  uint8_t fears_loss;  /* it slows down with each loss, as all kinds of congestion control but BBR do */
} hv_line;

/* False if no connection to `peer` was found. */
int hv_sockets_line(hv_sockets *sockets, const hv_addr *peer, uint64_t now_us, hv_line *out);

#endif
