/* The event loop of a node: one thread that polls gRPC, runs timers and steps core. The production implementation of hv_env.
 *
 * Room: net (uses core/env, clock, grpc, links, calls, streams, timers, pool, inbox).
 * Owner: an hv_loop owns the hive thread and the thread pool. hv_loop_new binds the ports; core is built on hv_loop_env;
 * hv_loop_run starts the thread, and START is core's first event. hv_loop_stop sends STOP, waits up to HV_LOOP_GRACE_MS for
 * env.stopped, then ends calls, jobs and streams with HV_CANCELLED. When it returns, core is no longer called and may be freed,
 * then the loop.
 * Thread: core's steps and all parts of net/transport run on the hive thread, which polls gRPC itself, so no completion changes
 * threads.
 * Limits: HV_LOOP_*_MAX below; what exceeds them fails with HV_BUSY. An incoming call is dropped without a first message after
 * HV_LOOP_GREETING_MS, or if its answer is not read after HV_LOOP_ANSWER_MS; an unused connection after HV_LOOP_IDLE_MS.
 * Errors: PEER_DOWN is sent for connections that this node opened. When one that a peer opened breaks, its streams end.
 */
#ifndef HV_NET_LOOP_H
#define HV_NET_LOOP_H

#include "core/env.h"
#include "core/versions.h"
#include "net/identity.h"
#include "net/invitation.h"

#define HV_LOOP_GRACE_MS 500
#define HV_LOOP_LISTEN_MAX 16
#define HV_LOOP_ADDRS_MAX 16
#define HV_LOOP_CALLS_MAX 2048
#define HV_LOOP_NETWORK_CALLS_MAX 1024 /* of strangers of one network, and as many of peers that were met */
#define HV_LOOP_PEER_CALLS_MAX 512
#define HV_LOOP_PEER_CALLS_S 128     /* calls and streams that a stranger may begin in a second ... */
#define HV_LOOP_PEER_CALLS_AHEAD 512 /* and of those at once, after a rest */
#define HV_LOOP_NETWORK_CALLS_S 256  /* the same for strangers of one public network */
#define HV_LOOP_NETWORK_CALLS_AHEAD 1024
#define HV_LOOP_MET_TIMES 8 /* a peer that was met may begin so many times as many, and so may those of its network */
#define HV_LOOP_STREAMS_MAX 512
#define HV_LOOP_NETWORK_STREAMS_MAX 256
#define HV_LOOP_PEER_STREAMS_MAX 64
#define HV_LOOP_BYTES_MAX (64u << 20) /* answers that are not taken, requests and first messages that are late */
#define HV_LOOP_NETWORK_BYTES_MAX (16u << 20)
#define HV_LOOP_PEER_BYTES_MAX (8u << 20)
#define HV_LOOP_LINKS_MAX 1024
#define HV_LOOP_LANES 4 /* connections of a heavy stream over a lossy link (net/transport/lanes.c) */
#define HV_LOOP_LANES_MAX 128
#define HV_LOOP_GREETING_MS 10000
#define HV_LOOP_LATE_MS 1000    /* after this a request or a first message counts the bytes that gRPC may hold of it */
#define HV_LOOP_ANSWER_MS 30000 /* enough for 2 MiB at 0.56 Mbit/s */
#define HV_LOOP_IDLE_MS 120000

typedef struct hv_loop hv_loop;

typedef struct hv_loop_config {
  hv_mem *mem;                       /* must outlive the loop and every payload received through it */
  hv_log *log;                       /* may be NULL */
  const hv_identity *identity;       /* must outlive the loop */
  int insecure;                      /* no TLS: identities are not verified */
  const hv_credentials *credentials; /* of a member of a closed swarm, borrowed. NULL: the swarm is open */
  const hv_addr *listen;             /* empty: the node only dials out */
  size_t n_listen;
  size_t connections;                        /* of peers that call, at a time; 0: HV_DOOR_KNOWN (net/transport/door.h) */
  uint32_t greeting_ms;                      /* 0: HV_LOOP_GREETING_MS */
  uint32_t answer_ms;                        /* 0: HV_LOOP_ANSWER_MS */
  unsigned lanes;                            /* connections of each heavy stream; 0: 1, or HV_LOOP_LANES over a lossy link */
  unsigned pool_threads;                     /* 0: number of processors, at most 8 */
  hv_versions versions;                      /* of the protocol that it speaks; zeros: those of this code */
  void (*ended)(void *arg, const char *why); /* called last on the hive thread, also if the node ended by itself; may be NULL */
  void *arg;
} hv_loop_config;

/* Binds every address in config (borrowed) and starts the pool. HV_IN_USE, HV_PERMISSION, HV_INVALID, HV_IO, HV_NOMEM or HV_CRYPTO:
 * not started. */
hv_status hv_loop_new(const hv_loop_config *config, hv_loop **out, hv_error *err);

/* The environment for core; valid as long as the loop. */
hv_env *hv_loop_env(hv_loop *loop);

/* The addresses at which the node listens when it is made, with unspecified ones replaced by those of this machine's interfaces.
 * Borrowed from the loop. If they change, core gets HV_EVENT_NETWORK. */
const hv_addr *hv_loop_addrs(const hv_loop *loop, size_t *n);

/* Starts the hive thread on core (copied; core.self is borrowed until hv_loop_stop has returned). HV_IO. */
hv_status hv_loop_run(hv_loop *loop, const hv_core *core, hv_error *err);

/* The renewed invitation of this node, a guest, counts from now on. Its calls go over new connections, and streams stay on those
 * that they have. As hv_grpc_renew. The hive thread. */
hv_status hv_loop_renew(hv_loop *loop, const hv_credentials *credentials);

/* Limits what all streams send together, in bytes per second; 0: no limit. Unary calls are not counted. The hive thread. */
void hv_loop_limit_upload(hv_loop *loop, uint64_t rate);

/* Posts a command, from any thread. HV_CLOSED, HV_FORKED: it still belongs to the caller. */
hv_status hv_loop_post(hv_loop *loop, hv_command *command);

/* Stops the node and waits for its end, less than 2 s. Any thread, any number of times; the hive thread does not wait. */
void hv_loop_stop(hv_loop *loop);
/* Stops the loop if it runs, and frees it. Not on the hive thread. In a forked child it does nothing. NULL is fine. */
void hv_loop_free(hv_loop *loop);

/* True in a forked child, where the threads of this loop do not exist. */
int hv_loop_forked(const hv_loop *loop);
/* True on the hive thread. */
int hv_loop_inside(const hv_loop *loop);

#endif
