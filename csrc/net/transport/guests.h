/* The accounts of the door: which connections are new, which are known, and which has to go when there are too many.
 *
 * Room: net (uses core/addr). Used by door. Touches no socket.
 * Owner: the door. Thread: its own.
 * Limits: counted by network (/24 of IPv4, /48 of IPv6), because many addresses of one network cost an attacker nothing. Each
 * question costs a walk over the places.
 */
#ifndef HV_NET_GUESTS_H
#define HV_NET_GUESTS_H

#include "base/mem.h"
#include "core/addr.h"

typedef enum hv_guest_state {
  HV_GUEST_NONE,  /* a free place */
  HV_GUEST_NEW,   /* accepted; nobody has proved an identity on it */
  HV_GUEST_KNOWN, /* a peer with an identity has called on it */
  HV_GUEST_STATES,
} hv_guest_state;

typedef struct hv_guest {
  hv_guest_state state;
  int fd;
  int waits; /* its first message has come, and its turn has not */
  int spoke; /* it was handed over */
  uint32_t account;
  uint32_t serial;   /* no other guest of this door has it */
  uint64_t key;      /* of its address and port */
  uint64_t since_us; /* in this state */
} hv_guest;

typedef struct hv_guest_account {
  uint64_t network; /* 0: free */
  uint64_t turn;    /* number of the last turn that one of its guests had; 0: none yet */
  uint32_t in[HV_GUEST_STATES];
} hv_guest_account;

typedef struct hv_guest_limits {
  size_t new_ones, new_of_one; /* in all, and of one network */
  size_t known, known_of_one;
} hv_guest_limits;

typedef struct hv_guests {
  hv_guest_limits limits;
  size_t n; /* places: of both states together */
  hv_guest *places;
  hv_guest_account *accounts; /* as many */
  size_t in[HV_GUEST_STATES];
  uint32_t serial; /* the last one's */
  size_t waiting;  /* guests whose turn has not come */
  uint64_t turns;  /* so far */
} hv_guests;

hv_status hv_guests_init(hv_guests *guests, hv_mem *mem, const hv_guest_limits *limits); /* HV_NOMEM */
void hv_guests_fini(hv_guests *guests);

/* The network of an IP address, and a number for the address with its port; never 0. */
uint64_t hv_guest_network(const hv_addr *addr);
uint64_t hv_guest_key(const hv_addr *addr);

/* Which guest has to go so that one of `network` may get into `state`: its place, HV_GUEST_ADMIT (nobody has to), or
 * HV_GUEST_REFUSE (the newcomer itself).
 * New: the oldest of the newcomer's network if that has all its places, else the oldest of the network that has most.
 * Known: one is refused whose network has all its places. Where all places are taken, the newest of the network that has
 * most goes; the newcomer itself, if its network would be that one. */
enum { HV_GUEST_ADMIT = -1, HV_GUEST_REFUSE = -2 };
long hv_guests_make_room(const hv_guests *guests, hv_guest_state state, uint64_t network);

/* Takes a place for a new guest. There is one after hv_guests_make_room, and after the guest that it named has left. */
size_t hv_guests_enter(hv_guests *guests, const hv_addr *from, int fd, uint64_t now_us);
void hv_guests_know(hv_guests *guests, size_t place, uint64_t now_us);
/* Its first message has come: it waits for its turn. */
void hv_guests_wait(hv_guests *guests, size_t place);
/* Gives a turn to the network whose last turn is longest ago, and returns the place of its newest guest that waits, because the
 * oldest make way for others; guests->n: none waits. */
size_t hv_guests_next(hv_guests *guests);
/* The place of the guest with that key; guests->n: there is none. */
size_t hv_guests_find(const hv_guests *guests, uint64_t key);
void hv_guests_leave(hv_guests *guests, size_t place);

/* Reads what a connection says first: a whole ClientHello that offers TLS 1.3 or, without TLS, the preface of HTTP/2. Before that
 * nothing is spent on it. Returns 0: it is there; so many bytes are needed to decide; HV_GUEST_OLD_TLS: it offers older versions of
 * TLS only, which gRPC 1.51 would take; or HV_GUEST_STRANGE: it is something else. */
enum { HV_GUEST_STRANGE = -1, HV_GUEST_OLD_TLS = -2, HV_GUEST_FIRST_MAX = 5 + 4096 };
long hv_guest_reads(const uint8_t *first, size_t n, int insecure);

#endif
