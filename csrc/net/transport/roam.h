/* The addresses of this machine over time: which came, which went, and whether the machine slept.
 *
 * Room: net (uses core/addr, clock, listen). Used by loop, which looks once a second, and by door and sockets.
 * Owner: hv_loop.
 * Thread: the hive thread.
 * Limits: HV_ROAM_MAX addresses, in the kernel's order; link-local ones of IPv6 do not count.
 * Errors: if the addresses cannot be read, nothing has changed.
 * Rules: docs/explanation/coming-and-going.md, "A machine that moves".
 */
#ifndef HV_NET_ROAM_H
#define HV_NET_ROAM_H

#include "core/addr.h"

#define HV_ROAM_MAX 64
#define HV_ROAM_SLEPT_US 3000000u /* a shorter sleep leaves connections as they are */

/* An IP address of an interface that is up. */
typedef struct hv_roam_ip {
  uint8_t kind;    /* HV_ADDR_IP4 or HV_ADDR_IP6 */
  uint8_t running; /* 1: its interface has a carrier */
  uint8_t ip[16];  /* as in hv_addr */
} hv_roam_ip;

typedef struct hv_roam {
  hv_roam_ip ips[HV_ROAM_MAX];
  size_t n;
  uint64_t asleep_us; /* time that the machine has slept since its start */
} hv_roam;

/* Changes since the look before. */
typedef struct hv_roam_news {
  int came;  /* 1: an address is new, or its interface has a carrier again */
  int slept; /* 1: the machine slept */
  hv_roam_ip gone[HV_ROAM_MAX];
  size_t n_gone;
} hv_roam_news;

/* The first look. */
void hv_roam_init(hv_roam *roam);
/* True if something has changed. */
int hv_roam_look(hv_roam *roam, hv_roam_news *news);
/* Compares two looks; `before` and `now` may be the same struct. True if something has changed. */
int hv_roam_compare(const hv_roam *before, const hv_roam *now, hv_roam_news *news);
/* True if the address has gone, whatever its port. */
int hv_roam_is_gone(const hv_roam_news *news, const hv_addr *addr);
/* True if the socket's own address has gone. */
int hv_roam_has_lost(const hv_roam_news *news, int fd);

#endif
