/* The state of an event loop (hv_loop), shared by the files of net/transport that implement it.
 *
 * Room: net; private to loop.c, links.c, calls.c, streams.c, lanes.c, stream_end.c.
 * Files, each of which calls only those before it: links.c (connections), then calls.c (unary calls) and the three files of
 * streams (stream_inner.h), then loop.c. A connection that is dropped cancels its calls and streams through hv_link_use.
 * Owner: hv_loop owns everything here.
 * Thread: the hive thread, except the inbox, and windows, which have locks of their own.
 */
#ifndef HV_NET_WORLD_H
#define HV_NET_WORLD_H

#include "core/peers/spoken.h"
#include "net/clock.h"
#include "net/transport/bulk.h"
#include "net/transport/callers.h"
#include "net/transport/door.h"
#include "net/transport/grpc.h"
#include "net/transport/inbox.h"
#include "net/transport/loop.h"
#include "net/transport/pool.h"
#include "net/transport/ring.h"
#include "net/transport/roam.h"
#include "net/transport/sockets.h"
#include "net/transport/timers.h"
#include "net/wire.h"

#define HV_WORLD_TEXT_MAX 1280

/* NEW: before hv_loop_run. LEAVING: core got STOP and its grace time runs. ENDING: nothing new starts; all is being cancelled.
 * ENDED: core is not called any more. */
typedef enum hv_phase { HV_PHASE_NEW, HV_PHASE_RUNNING, HV_PHASE_LEAVING, HV_PHASE_ENDING, HV_PHASE_ENDED } hv_phase;

/* ---- links.c: the connections to peers ---- */
enum { HV_LINK_BUCKETS = 256, HV_LANES_MAX = 16 };

/* A call or a stream that uses a link. */
typedef struct hv_link_use {
  hv_ring ring; /* in hv_link.calls or hv_link.streams */
  /* The link is dropped: cancels this call or stream, which ends in a later step. */
  void (*dropped)(struct hv_link_use *use);
} hv_link_use;

typedef struct hv_link {
  hv_ring all;          /* in hv_loop.links; the least recently used is first */
  struct hv_link *next; /* in the same bucket of hv_loop.buckets */
  size_t bucket;
  hv_loop *loop;
  hv_grpc_channel *channel;            /* of calls and light streams, which so never wait for bulk in a buffer of TCP */
  hv_grpc_channel *bulk[HV_LANES_MAX]; /* of the lanes of heavy streams; NULL: not opened yet */
  int lossy;                           /* True if it is long and loses packets, so that one connection cannot fill it */
  hv_grpc_op watch;                    /* completes when the connection goes up or down */
  hv_target to;                        /* its id is unknown if any peer at the address will do */
  hv_peer_id met;                      /* the peer that answered last */
  hv_membership shown;                 /* its membership in this node's closed swarm */
  int sure;                            /* True if `met` has answered a call on the present connection */
  int up, dropped, watched;            /* connected; to be freed; `watch` is under way */
  int retired;                         /* True if nothing new uses it; it is dropped after its last use */
  int64_t made_s;                      /* seconds since 1970 */
  size_t uses;                         /* calls and streams on it */
  uint64_t used_us;                    /* time of the last use */
  hv_ring calls, streams;              /* of hv_link_use */
} hv_link;

/* Finds or opens the link to a target. It is in use until hv_link_release. HV_NOMEM, HV_INVALID, HV_BUSY: too many links. */
hv_status hv_link_get(hv_loop *loop, const hv_target *to, hv_link **out);
void hv_link_release(hv_link *link);
/* Records that this peer proved its identity on the link. HV_DENIED with a text: another peer was expected (HV_CAUSE_OTHER_PEER).
 */
hv_status hv_link_meet(hv_link *link, const hv_peer_id *peer, char text[HV_WORLD_TEXT_MAX]);
/* Why the other side of a call is not admitted to this node's closed swarm, and its membership. HV_CAUSE_OTHER: it is, or the swarm
 * is open. */
hv_cause hv_link_judge(hv_loop *loop, hv_grpc_call *rpc, hv_membership *shown);
/* The same for the peer that this node called, with a text. HV_DENIED with a cause; HV_CLOSED: its membership has ended since the
 * handshake, and the next connection shows whether it was renewed. */
hv_status hv_link_judge_called(hv_link *link, hv_grpc_call *rpc, hv_cause *cause, char text[HV_WORLD_TEXT_MAX]);
/* The connection of this lane of heavy streams, to this peer (unknown: to any). NULL: no memory. */
hv_grpc_channel *hv_link_bulk(hv_link *link, const hv_peer_id *peer, size_t lane);
/* Status, cause and text of the end of a call over this connection of the link. own: the reason if this side cancelled it, else
 * HV_OK. */
hv_status hv_link_explain(hv_link *link, hv_grpc_channel *channel, hv_grpc_call *call, hv_status own, uint32_t timeout_ms,
                          hv_cause *cause, char text[HV_WORLD_TEXT_MAX]);
/* Sets `lossy` from the TCP statistics of the connection of `call`; called when a stream ends. */
void hv_link_measure(hv_link *link, hv_grpc_call *call);
/* Drops the links to a target and cancels what uses them. to NULL: all links. */
void hv_links_forget(hv_loop *loop, const hv_target *to);
/* After a change of the list of denials, and when a membership has ended: drops the links to peers that are not admitted any more.
 * In the hour of grace it retires those that were made before. */
void hv_links_deny(hv_loop *loop);
void hv_links_retire(hv_loop *loop); /* all, because this node shows another certificate from now on */
/* After a change of the network: drops the links that have lost this machine's address, and those that are not connected, because
 * gRPC would wait before it tries again. After a sleep it drops all. */
void hv_links_part(hv_loop *loop, const hv_roam_news *news);
void hv_links_tick(hv_loop *loop); /* drops unused links; called every second */

/* ---- calls.c: unary calls; the functions with hv_env fill it ---- */
hv_status hv_calls_ask(hv_env *env, hv_call *call, const hv_msg *request);
void hv_calls_cancel(hv_env *env, hv_call *call);
/* Asks a peer for its versions, which go to hv_env.spoken. `done` is called outside of steps of core. */
hv_status hv_calls_meet(hv_loop *loop, hv_call *call);
void hv_calls_reply(hv_env *env, hv_request *request, const hv_msg *answer);
/* A peer called on the connection from that address: the door keeps it before those on which nobody has called. */
void hv_calls_know(hv_loop *loop, const hv_slip *slip, const hv_addr *from);
/* Gives an incoming call or stream its slip. False: no memory, or the peer calls too often; the slip holds nothing then. */
int hv_calls_admit(hv_loop *loop, hv_slip *slip, const hv_peer_id *peer, const hv_addr *from);
void hv_calls_accept(hv_loop *loop); /* keeps a number of accepts waiting for callers */
void hv_calls_tick(hv_loop *loop);   /* cancels incoming calls of slow peers; called every second */
/* As hv_links_deny: cancels the incoming calls of peers that are not admitted, and ends their connections. */
void hv_calls_deny(hv_loop *loop);
void hv_calls_end(hv_loop *loop); /* frees the incoming calls that core has not answered */

/* ---- streams.c: bulk streams; the functions with hv_env fill it ---- */
hv_status hv_streams_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                          hv_stream **out);
hv_status hv_streams_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
void hv_streams_finish(hv_env *env, hv_stream *stream);
void hv_streams_cancel(hv_env *env, hv_stream *stream);
void hv_streams_pace(hv_env *env, hv_stream *stream, uint64_t rate);
void hv_streams_wait(hv_env *env, hv_stream *stream, int waits);
void hv_streams_cancel_peer(hv_loop *loop, const hv_peer_id *peer);
void hv_streams_deny(hv_loop *loop); /* as hv_calls_deny */
void hv_streams_accept(hv_loop *loop);
void hv_streams_tick(hv_loop *loop); /* cancels streams without a first message; called every second */
void hv_streams_end(hv_loop *loop);  /* cancels all streams */

/* ---- the loop ---- */
struct hv_loop {
  hv_env env;
  hv_spoken spoken;
  hv_mem *mem;
  hv_log *log;
  const hv_identity *identity;
  int insecure;
  int64_t next_end_s;              /* when memberships are judged again: the next one of a peer here ends; INT64_MAX: never */
  uint64_t greeting_us, answer_us; /* longest wait for the first message of a call; for an answer to be read */
  hv_grpc *grpc;
  hv_door *door; /* NULL: the node only dials out */
  hv_pool *pool;
  hv_timers timers;    /* of core */
  hv_timers deadlines; /* of outgoing calls */
  hv_inbox inbox;
  hv_core core;
  uint64_t now_us;  /* time of this step */
  uint64_t tick_us; /* time of the next sweep over links, calls and streams */
  hv_phase phase;
  int finished;   /* core has called env.stopped */
  hv_buf scratch; /* a message being read or written */
  hv_buf outgoing;

  hv_addr bound[HV_LOOP_LISTEN_MAX]; /* as the program gave them, with their ports */
  size_t n_bound;
  hv_addr addrs[HV_LOOP_ADDRS_MAX]; /* where it listened when it was made */
  size_t n_addrs;
  hv_roam roam;

  hv_ring links; /* all of them */
  hv_link *buckets[HV_LINK_BUCKETS];
  size_t n_links;

  size_t n_asked;                /* number of outgoing calls */
  size_t calls_waiting;          /* number of accepts that wait for a caller */
  size_t others_waiting;         /* the same for calls of methods that this node does not have */
  hv_ring greeting, asked_of_us; /* incoming calls: without a first message yet; not answered by core yet */
  hv_ring answering;             /* incoming calls whose answer is being sent */
  size_t n_answering;

  size_t streams_waiting;                 /* number of accepts that wait for a caller */
  hv_ring streams_greeting, streams_open; /* incoming without a first message yet; all others */
  size_t n_streams;
  unsigned lanes; /* as in hv_loop_config */
  size_t n_lanes; /* of outgoing streams, without the first of each */

  hv_callers callers;
  hv_sockets sockets;
  hv_bulk bulk;
  size_t n_jobs;     /* given by core and not done yet */
  hv_job *never_ran; /* given after the pool was stopped */

  pthread_t thread;
  int threaded;
  atomic_int joined;
  pthread_mutex_t stop_lock;
  atomic_int stopping;
  void (*ended)(void *arg, const char *why);
  void *arg;
  long pid; /* of the process that created it */
};

/* Runs one step of core on an event. Fills in its time, and an empty text if it has none. */
static inline void hv_loop_deliver(hv_loop *loop, hv_event *event) {
  event->now_us = loop->now_us = hv_clock_us();
  if (!event->text)
    event->text = "";
  loop->core.step(loop->core.self, event);
}

#endif
