/* Which of this process's sockets lead to an address, and how fast may they send?
 *
 * Room: net (uses core/addr). Owned by loop; the hive thread. gRPC gives no way to a connection's socket, but tells the address at
 * its other end: the socket is the process's TCP socket that is connected to that address. A list of them is kept, made anew when
 * it has nobody at that address, at most every HV_SOCKETS_PAUSE_US; each is looked at again in the moment in which it is set, so
 * that a number that has been closed, and taken by something else since, is left alone. A socket of the program's own that is
 * connected to the very port at which a peer listens would be paced, too, for a round. Only where the system can pace
 * (SO_MAX_PACING_RATE: Linux; TCP does it itself since 4.13); elsewhere nothing happens. Limits: HV_SOCKETS_MAX open files are
 * looked at; 64 of them take some 90 us, and one that is in the list 1.5.
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
void hv_sockets_fini(hv_sockets *sockets);

/* Bytes to `peer` leave at no more than `rate` bytes per second on each connection to it; 0: as fast as they can. Returns how many
 * connections took it. */
size_t hv_sockets_pace(hv_sockets *sockets, const hv_addr *peer, uint64_t rate, uint64_t now_us);

#endif
