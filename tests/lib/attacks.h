/* Attacks on a node, each by its name: what a stranger with a key, an address and a rate can send.
 *
 * The tests play each of them against a node of their own (tests/unit/net/hive/test_hive_attacks.c), and the program
 * tests/siege/attacker.c plays them with many keys from many networks.
 * Thread: an attacker is one thread's.
 */
#ifndef HV_TESTS_ATTACKS_H
#define HV_TESTS_ATTACKS_H

#include "lib/h2.h"
#include "lib/random.h"

typedef struct attacker {
  hv_addr at;        /* the node's; IPv4 */
  uint32_t from;     /* the address that it connects from, in host order; 0: any */
  uint8_t seed[32];  /* of its key */
  int insecure;      /* no TLS */
  uint64_t rate;     /* bytes per second; 0: as fast as it can */
  uint64_t until_us; /* when it ends (hv_clock_us) */
  double cores;      /* processor time of the whole process for each second since the attack began, above which it waits; 0: any */

  /* Its results and its tools; zeros at first. */
  uint64_t sent, connected, refused; /* bytes; connections; connections that it did not get */
  h2_key key;
  check_rng rng;
  uint64_t begun_us, first_us; /* this attack; the first */
  hv_buf message;              /* a message that it sends again and again */
} attacker;

typedef struct attack {
  const char *name;
  void (*play)(attacker *a); /* returns at until_us, or before */
} attack;

extern const attack attacks_of_sockets[], attacks_of_frames[], attacks_of_calls[]; /* each ends with a NULL name */

size_t attacks_count(void);
const attack *attacks_at(size_t i);            /* by number */
const attack *attacks_named(const char *name); /* NULL: there is none */

/* Plays one until until_us: again when it ends before. */
void attacks_play(const attack *which, attacker *a);

/* ---- for those who write attacks ---- */

/* Waits until its rate allows `bytes` more, and counts them. False: its time is over. */
int attacks_spend(attacker *a, size_t bytes);
int attacks_pause(attacker *a, unsigned ms); /* the same for a while in which it sends nothing */
/* A TCP connection (-1: none); with a handshake and the preface, unless it fails. The client is closed by the caller either way. */
int attacks_dial(attacker *a);
int attacks_open(attacker *a, h2_client *client);
uint64_t attacks_random(attacker *a, uint64_t below);

#endif
