/* The real world of one node: one hive thread, a pool, sockets and clocks; the real filler of hv_env.
 *
 * Room: net (uses core/env, grpc, links, calls, streams, timers, pool, inbox). The only file that reads clocks and draws
 * randomness. Owner: an hv_loop owns the hive thread, which polls gRPC's queue itself, so that a completion becomes a step of core
 * without a change of thread. Life: hv_loop_new binds the ports; the core is built on hv_loop_env; hv_loop_run starts the thread
 * with the event START. hv_loop_stop sends STOP, grants HV_LOOP_GRACE_MS (less if core calls env.stopped), then ends calls and jobs
 * with HV_CANCELLED and closes streams. When it returns, core is not called any more and may be freed, then hv_loop_free. Limits,
 * refused with HV_BUSY and a sentence: the HV_LOOP_*_MAX below. An incoming call without a first message is dropped after
 * HV_LOOP_GREETING_MS, one whose answer is not taken after HV_LOOP_ANSWER_MS, an unused connection after HV_LOOP_IDLE_MS.
 * PEER_DOWN tells of connections that this node opened; for one that a peer opened, the end of its streams tells.
 */
#ifndef HV_NET_LOOP_H
#define HV_NET_LOOP_H

#include "core/env.h"
#include "net/identity.h"

#define HV_LOOP_GRACE_MS 500
#define HV_LOOP_LISTEN_MAX 16
#define HV_LOOP_ADDRS_MAX 16
#define HV_LOOP_CALLS_MAX 2048
#define HV_LOOP_PEER_CALLS_MAX 512
#define HV_LOOP_STREAMS_MAX 512
#define HV_LOOP_PEER_STREAMS_MAX 64
#define HV_LOOP_LINKS_MAX 1024
#define HV_LOOP_LANES 4 /* connections that a heavy stream goes over, where one would not fill the line (net/transport/lanes.c) */
#define HV_LOOP_LANES_MAX 128
#define HV_LOOP_GREETING_MS 10000
#define HV_LOOP_ANSWER_MS 30000 /* an answer of 2 MiB over half a Mbit/s is there by then */
#define HV_LOOP_IDLE_MS 120000

typedef struct hv_loop hv_loop;

typedef struct hv_loop_config {
  hv_mem *mem;                 /* must outlive the loop and every payload received through it */
  hv_log *log;                 /* may be NULL */
  const hv_identity *identity; /* must outlive the loop */
  int insecure;                /* no TLS: identities are only claimed */
  const hv_addr *listen;       /* none: it only dials out */
  size_t n_listen;
  uint32_t greeting_ms;                      /* 0: HV_LOOP_GREETING_MS */
  uint32_t answer_ms;                        /* 0: HV_LOOP_ANSWER_MS */
  unsigned lanes;                            /* connections of each heavy stream; 0: as many as the link needs */
  unsigned pool_threads;                     /* 0: as many as there are processors, at most 8 */
  void (*ended)(void *arg, const char *why); /* the hive thread's last word, also when the node ended by itself; may be NULL */
  void *arg;
} hv_loop_config;

/* Binds every address in config (borrowed) and starts the pool. HV_IN_USE, HV_PERMISSION, HV_INVALID, HV_IO, HV_NOMEM, HV_CRYPTO.
 */
hv_status hv_loop_new(const hv_loop_config *config, hv_loop **out, hv_error *err);

/* What core is built on; lives as long as the loop. */
hv_env *hv_loop_env(hv_loop *loop);

/* Where it can be reached: bound addresses, with unspecified ones replaced by those of this machine's interfaces. Borrowed from the
 * loop. */
const hv_addr *hv_loop_addrs(const hv_loop *loop, size_t *n);

/* Starts the hive thread on core (copied; core.self is borrowed until hv_loop_stop has returned). HV_IO. */
hv_status hv_loop_run(hv_loop *loop, const hv_core *core, hv_error *err);

/* Hands a command over, from any thread. HV_CLOSED, HV_FORKED: it is still the caller's. */
hv_status hv_loop_post(hv_loop *loop, hv_command *command);

/* Ends the node and waits for it: under 2 s. From any thread, several times; on the hive thread it does not wait. */
void hv_loop_stop(hv_loop *loop);
/* Stops if need be and frees. Not on the hive thread. In a forked child it does nothing. NULL is fine. */
void hv_loop_free(hv_loop *loop);

/* 1 in a forked child, where the threads of this loop are not. */
int hv_loop_forked(const hv_loop *loop);
/* 1 on the hive thread. */
int hv_loop_inside(const hv_loop *loop);

#endif
