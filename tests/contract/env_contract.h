/* Does a world keep the contract of core/env.h? One suite over a small fixture, filled by the simulator and by the real loop.
 *
 * A test program fills a contract_fixture and returns contract_run(&fixture) from main. The suite brings its own cores: recorders
 * whose memory is the suite's, so that they can be looked at when their node has gone. In the real world steps run on other
 * threads: a recorder's step takes the suite's lock, so does every look at it, and no assertion is made off the test's own thread.
 *
 * Under TLS the checks of identity are part of the suite; a fixture without TLS sets `claims_only`.
 */
#ifndef HV_TESTS_ENV_CONTRACT_H
#define HV_TESTS_ENV_CONTRACT_H

#include "core/env.h"
#include "core/versions.h"

/* One node to be: its core is made by make(env, arg) before the first event, and given back to free(self) after the last one. */
typedef struct contract_seat {
  hv_status (*make)(hv_env *env, void *arg, hv_core *out);
  void (*free)(void *self);
  void *arg;
  int client_mode;      /* does not listen */
  hv_versions versions; /* of the protocol that it speaks; zeros: those of this code */
} contract_seat;

typedef struct contract_fixture contract_fixture;
struct contract_fixture {
  const char *name;
  void *arg;            /* the fixture's own */
  int claims_only;      /* 1: no TLS, an id is what the peer claims */
  hv_versions versions; /* of nodes for which the test wants no others; zeros: those of this code */
  int paces;            /* 1: stream_pace does what it says; 0: this system cannot */
  int still;            /* 1: what a receiver does not take stands still at once; 0: buffers grow for a while */
  size_t window_max;    /* stream_send must have said HV_BUSY before that many bytes were taken and not read */

  /* A world with n nodes, all started. NULL: it could not be made. */
  void *(*open)(const contract_fixture *fixture, size_t n, const contract_seat *seats);
  /* Ends every node that still runs (as stop does), frees the world; returns how many blocks were still charged to the nodes'
   * accounts. */
  size_t (*close)(void *world);

  /* Lets the world go on until enough(arg) (asked between events, or every millisecond) or until timeout_ms of its time; 1: enough.
   */
  int (*drive)(void *world, int (*enough)(void *arg), void *arg, uint32_t timeout_ms);
  /* Hands a command to a node (whether it still runs or not) and returns at once. */
  void (*command)(void *world, size_t node, hv_command *command);

  /* Id and address of a node (a client-mode node: its id, and an address where it does not listen). */
  hv_target (*target)(void *world, size_t node);
  /* An address at which nobody listens; id unknown. */
  hv_target (*nobody)(void *world);

  /* Asks a node to end: STOP, and all that follows. Returns when its core has been freed. */
  void (*stop)(void *world, size_t node);

  /* From now on the node is, to all others, as after kill -9: connections are reset, nobody listens. Its recorder is not looked at
   * any more. NULL: this world cannot, the suite leaves those tests out (a test program that cannot must say why). */
  void (*kill)(void *world, size_t node);
  /* Cuts (or mends) all between two nodes without telling either. NULL: this world cannot. */
  void (*cut)(void *world, size_t a, size_t b, int on);
};

/* Runs the suite; what main returns. */
int contract_run(const contract_fixture *fixture);

#endif
