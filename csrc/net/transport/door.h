/* The door of a node: it listens, accepts, and hands over connections that have begun to speak.
 *
 * Room: net (uses guests, listen, roam, clock). Used by loop; `take` is grpc's.
 * Owner: the door owns its listening sockets and those that wait. A socket that was handed over is the taker's; the door keeps a
 * second descriptor of it, by which it sees the end and can end it.
 * Thread: hv_door_open starts one, on which `take` is called. The other functions belong to the owner, but for those
 * marked "any thread".
 * Limits: HV_DOOR_* below, by network as guests.h says; a connection that says nothing goes after greeting_ms, and one
 * on which no peer has called when others want its place. Where more begin than HV_DOOR_HANDSHAKES, networks take turns. Each
 * connection costs two file descriptors. Where the process has none left, connections are accepted and closed. Errors: what was
 * refused is logged, with the number, at most once in HV_DOOR_LOG_MS.
 */
#ifndef HV_NET_DOOR_H
#define HV_NET_DOOR_H

#include "base/log.h"
#include "core/addr.h"
#include "net/transport/roam.h"

#define HV_DOOR_LISTEN_MAX 16
#define HV_DOOR_NEW 256
#define HV_DOOR_NEW_OF_ONE 128
#define HV_DOOR_KNOWN 2048          /* of one network half as many */
#define HV_DOOR_HANDSHAKES 128      /* handed over in a second, because each costs milliseconds of a processor */
#define HV_DOOR_HANDSHAKES_AHEAD 64 /* of those, at once after a rest */
#define HV_DOOR_LOG_MS 10000
#define HV_DOOR_FILES_MAX 65536

typedef struct hv_door hv_door;

typedef struct hv_door_config {
  hv_mem *mem;
  hv_log *log;          /* may be NULL */
  int insecure;         /* no TLS: the first byte is HTTP/2's */
  uint32_t greeting_ms; /* until the first byte */
  size_t known;         /* connections of peers at a time, of one network half as many; 0: HV_DOOR_KNOWN */
  /* Takes a connected, non-blocking socket. */
  void (*take)(void *arg, int fd);
  void *arg;
} hv_door_config;

typedef struct hv_door_counts {
  size_t new_ones, known;           /* now */
  uint64_t taken, silent, strange;  /* handed over; said nothing in time; said nothing that is served here */
  uint64_t refused, ended, no_file; /* by guests.h's rules: newcomers, and those that had to go; times without a descriptor */
} hv_door_counts;

/* HV_NOMEM, HV_IO. */
hv_status hv_door_new(const hv_door_config *config, hv_door **out, hv_error *err);

/* Listens on an IP address, an unspecified one in both families; before hv_door_open. *port is the port. HV_IN_USE, HV_PERMISSION,
 * HV_INVALID, HV_IO. */
hv_status hv_door_listen(hv_door *door, const hv_addr *addr, uint16_t *port, hv_error *err);

/* Starts to accept. HV_IO: no thread. */
hv_status hv_door_open(hv_door *door, hv_error *err);
/* Accepts no more, and forgets all: `take` is not called after this. Connections that were handed over go on. */
void hv_door_close(hv_door *door);
void hv_door_free(hv_door *door); /* NULL is fine */

/* A peer with an identity has called on the connection from this address; if it cannot be kept, it ends. Any thread. */
void hv_door_know(hv_door *door, const hv_addr *from);

/* Ends the connection from this address, if there is one. Any thread. */
void hv_door_end(hv_door *door, const hv_addr *from);
/* Ends the connections of which this machine has lost its own address. Any thread. */
void hv_door_part(hv_door *door, const hv_roam_news *news);

/* Any thread. */
void hv_door_count(hv_door *door, hv_door_counts *out);

/* Raises this process's limit on open files to what the system allows, HV_DOOR_FILES_MAX at most; never lowers it. */
void hv_door_raise_files(void);

#endif
