/* The interface between the protocol and its world: a struct of functions that core calls, and one function that takes events.
 *
 * Room: core (uses base, msg). Filled by net/transport/loop.c (the real world) and net/sim/sim.c (the simulator); used by all of
 * core.
 * Owner: the world owns hv_env. A struct that core passes in (timer, call, job) is the world's until its completion, then core's
 * again.
 * Thread: one. The world calls hv_core.step with one event at a time; core calls hv_env only within a step.
 * No function here blocks, and none calls step. A world is an event loop with a network, clock, pool and cryptography.
 * Completions: TIMER, CALL_DONE, WORK_DONE and STREAM_CLOSED come exactly once, as events, never from within the starting call.
 * At a shutdown the world delivers HV_CANCELLED for all calls and jobs, closes all streams, then sends no more events.
 * After a crash (simulator only) it delivers nothing: every function does nothing and fails with HV_CLOSED, and core is freed.
 * Times are microseconds of this node's monotonic clock. They are never compared with a peer's.
 */
#ifndef HV_CORE_ENV_H
#define HV_CORE_ENV_H

#include "base/buf.h"
#include "base/log.h"
#include "core/msg.h"
#include "core/util/heap.h"

typedef struct hv_env hv_env;
typedef struct hv_event hv_event;
typedef struct hv_spoken hv_spoken;         /* core/peers/spoken.h */
typedef struct hv_admission hv_admission;   /* core/peers/admission.h */
typedef struct hv_membership hv_membership; /* the same */

/* How much this node keeps for a peer. Keys and listening sockets cost nothing, so a peer that only lives is not trusted. */
typedef enum hv_tier {
  HV_TIER_STRANGER, /* anything else */
  HV_TIER_MET,      /* it is alive in the table of peers, in a public network */
  HV_TIER_TRUSTED,  /* it is an initial peer, or this node has averaged with it, or it is alive in a private network */
  HV_TIERS
} hv_tier;

/* A peer and its address. An unknown id is learned at first contact and then written into hv_call.to. A known id is compared with
 * the identity that answers: if they differ, the call ends with HV_DENIED. Without TLS an id is only the peer's claim. */
typedef struct hv_target {
  hv_peer_id id;
  hv_addr addr;
} hv_target;

/* ---- timers: the caller's struct, armed at most once at a time ---- */
typedef struct hv_timer hv_timer;
struct hv_timer {
  void (*fire)(hv_timer *self, const hv_event *event);
  void *owner; /* the caller's */
  struct {
    uint64_t due_us, order;
    size_t slot;
    hv_heap_node node;
  } world; /* the world's; slot is zero if it is not armed */
};

/* ---- unary calls: the caller's struct ---- */
typedef struct hv_call hv_call;
struct hv_call {
  /* Event CALL_DONE. HV_OK: event->msg is the answer (never a refusal), event->peer the peer that gave it. Else msg is NULL and
   * event->text is the reason: HV_TIMEOUT, HV_CANCELLED (by this node: by core, by `forget`, or because its network changed; it
   * says nothing about the peer), HV_REFUSED (nothing listens there), HV_UNREACHABLE, HV_DENIED, HV_VERSION (no version of the
   * protocol in common; such a peer is not dialled again for a while), HV_CLOSED (peer lost during the call), HV_MALFORMED, or the
   * status of the peer's refusal. */
  void (*done)(hv_call *self, const hv_event *event);
  void *owner;         /* the caller's */
  hv_target to;        /* in */
  uint32_t timeout_ms; /* in: 1 or more */
  void *world;         /* the world's; NULL while not under way */
};

/* ---- incoming calls: the world's struct, valid until answered ---- */
typedef struct hv_request hv_request;
struct hv_request {
  hv_peer_id peer;  /* the caller (verified under TLS) */
  hv_addr from;     /* the caller's address; kind HV_ADDR_NONE if not known */
  uint32_t version; /* of the protocol, in which it asked and is answered */
};

/* ---- streams: the world's struct, valid until its STREAM_CLOSED has been delivered ----
 * Ordered, bidirectional, opened by one side with a first message. Core sets `on` when it opens a stream, or while it handles
 * STREAM_OPENED. If `on` stays NULL, the world refuses the stream. */
typedef struct hv_stream hv_stream;
/* How the messages of a stream share the line with others (core/util/turns.h). */
typedef enum hv_turn { HV_TURN_ANY, HV_TURN_ROUND, HV_TURN_LOAD } hv_turn;
typedef struct hv_stream_events {
  /* A message arrived. event->msg is its header, event->payload its bytes (NULL if none), both borrowed; hv_payload_keep keeps
   * the bytes. Kept bytes count against the stream's window: while it is full, nothing is read and the sender must wait. */
  void (*data)(hv_stream *self, const hv_event *event);
  /* The window has room again after stream_send returned HV_BUSY. */
  void (*ready)(hv_stream *self, const hv_event *event);
  /* The last event: HV_OK if both sides ended the stream, else the reason. `self` is freed afterwards. */
  void (*closed)(hv_stream *self, const hv_event *event);
  int heavy; /* 1: a bulk stream; the world may spread it over several connections */
  hv_turn turn;
} hv_stream_events;
struct hv_stream {
  const hv_stream_events *on;
  void *owner;      /* core's */
  hv_peer_id peer;  /* the other side; unknown until its first message if this side opened the stream without an id */
  uint32_t version; /* of the protocol, of all its messages; a guess until an unknown peer was asked */
  uint64_t network; /* from which the other side opened it (core/peers/contact.h); 0: a private one, not known, or opened here */
};

/* ---- work for the pool: the caller's struct ---- */
typedef struct hv_job hv_job;
struct hv_job {
  void (*run)(hv_job *self);                         /* on a pool thread: touches what the job holds, nothing else */
  void (*done)(hv_job *self, const hv_event *event); /* WORK_DONE: HV_OK after run, HV_CANCELLED if it never ran */
  void *owner;
  hv_job *next; /* the world's */
};

struct hv_env {
  void *world;                   /* the world's */
  hv_mem *mem;                   /* the account that core allocates from (borrowed) */
  hv_log *log;                   /* may be NULL */
  hv_spoken *spoken;             /* what the peers speak; the world's, which fills it. NULL: all speak what this code speaks */
  const hv_admission *admission; /* the closed swarm; the world's. NULL: the swarm is open */

  uint64_t (*now_us)(hv_env *env); /* constant within one step */
  int64_t (*unix_s)(hv_env *env);  /* seconds since 1970, by the clock of this machine, which may be wrong; NULL: not known */
  void (*random)(hv_env *env, void *out, size_t size);

  void (*timer_set)(hv_env *env, hv_timer *timer, uint64_t delay_us); /* arms or re-arms */
  void (*timer_clear)(hv_env *env, hv_timer *timer);                  /* disarms; no effect if not armed */

  /* Starts a call with `request` (borrowed during this function). Not HV_OK: nothing was started, and `done` never comes. */
  hv_status (*call)(hv_env *env, hv_call *call, const hv_msg *request);
  /* Ends a call early: `done` comes soon, with HV_CANCELLED or the call's own result. No effect if it is not under way. */
  void (*call_cancel)(hv_env *env, hv_call *call);
  /* Answers a request, which frees it. A message of kind HV_MSG_REFUSAL refuses. `answer` is borrowed during this function. */
  void (*reply)(hv_env *env, hv_request *request, const hv_msg *answer);

  /* Opens a stream; `first` may not carry a payload. Events come until STREAM_CLOSED, even if the peer cannot be reached. Not
   * HV_OK: nothing was opened; HV_VERSION: the peer is known to speak no version that this node speaks. */
  hv_status (*stream_open)(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                           hv_stream **out);
  /* Sends a header with bytes. The world keeps the payload (may be NULL) until it has left. HV_BUSY: the window is full, nothing
   * was taken, and `ready` will come. HV_CLOSED: the stream has ended. */
  hv_status (*stream_send)(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
  /* Ends this side of the stream; what was taken still leaves. When both sides have ended: STREAM_CLOSED with HV_OK. */
  void (*stream_end)(hv_env *env, hv_stream *stream);
  /* Breaks the stream off: STREAM_CLOSED with HV_CANCELLED here. The other side gets HV_CANCELLED if it opened the stream, else
   * HV_CLOSED or HV_CANCELLED. */
  void (*stream_cancel)(hv_env *env, hv_stream *stream);

  /* Limits the stream's connection to `rate` bytes per second, sent evenly, until the stream closes; 0: no limit. All streams of
   * the connection are limited. A world that cannot do it ignores the call. */
  void (*stream_pace)(hv_env *env, hv_stream *stream, uint64_t rate);

  /* waits 1: core keeps the messages of an incoming stream for something that has not begun. The world then reads hardly more than
   * one message ahead if the peer is not trusted. 0: it has begun. A world that cannot do it ignores the call. */
  void (*stream_wait)(hv_env *env, hv_stream *stream, int waits);

  /* Runs a job on the pool. */
  void (*work)(hv_env *env, hv_job *job);

  /* After HV_EVENT_STOP: all goodbyes are sent, so the world may end now. Without this call it ends after its grace period. */
  void (*stopped)(hv_env *env);

  /* Replaces the list of denials in `admission` by a copy of this checked list, and closes the connections, streams and
   * calls of peers that it denies. HV_NOMEM: it stays as it was. NULL in a world without closed swarms. */
  hv_status (*deny)(hv_env *env, hv_span list);

  /* Closes the connections to a peer and frees what the world keeps for it; calls under way to it end. */
  void (*forget)(hv_env *env, const hv_target *to);

  /* Cryptography of the world. sign uses this node's key; `domain` is a short constant ("hv:record") that separates its uses. */
  void (*sha256)(hv_env *env, hv_span bytes, hv_hash *out);
  hv_status (*sign)(hv_env *env, const char *domain, hv_span bytes, uint8_t out[64]);
  int (*verify)(hv_env *env, const hv_peer_id *peer, const char *domain, hv_span bytes,
                const uint8_t signature[64]); /* true if valid */

  /* Set by core, and asked by the world between steps: places are kept for calls of peers of a higher tier. NULL: all peers are
   * strangers, and none is slowed down. */
  hv_tier (*tier)(void *tier_arg, const hv_peer_id *peer);
  void *tier_arg;
};

typedef enum hv_event_kind {
  HV_EVENT_START,         /* the first event; addrs/n_addrs: where this node listens (none: it only dials out) */
  HV_EVENT_TIMER,         /* timer */
  HV_EVENT_CALL_DONE,     /* call, status, msg, peer, text */
  HV_EVENT_REQUEST,       /* request, msg */
  HV_EVENT_STREAM_OPENED, /* stream, msg: a peer opened it */
  HV_EVENT_STREAM_DATA,   /* stream, msg, payload */
  HV_EVENT_STREAM_READY,  /* stream */
  HV_EVENT_STREAM_CLOSED, /* stream, status, text */
  HV_EVENT_WORK_DONE,     /* job, status */
  HV_EVENT_PEER_DOWN,     /* peer, text: a connection that this node opened to the peer broke; the peer may still live */
  HV_EVENT_COMMAND,       /* command: a request of the program that owns this node */
  HV_EVENT_STOP,          /* time for goodbyes: soon after this the world ends */
  HV_EVENT_NETWORK,       /* this machine's network has changed, or it slept; addrs/n_addrs: where this node listens now */
  HV_EVENT_KINDS
} hv_event_kind;

/* When PEER_DOWN comes: at once if the peer's kernel closes the connection, within 15 s if the peer falls silent (keepalive).
 * Only the side that dialled gets it. Rules: docs/explanation/coming-and-going.md, "How the end of a peer is known". */

/* A request of the program to the node, run in a step of its own. The struct is the program's until `run`, then core's. */
typedef struct hv_command hv_command;
struct hv_command {
  void (*run)(hv_command *self, void *core); /* core is NULL if the node ended first: finish with HV_CLOSED */
  hv_command *next;                          /* the world's */
};

struct hv_event {
  hv_event_kind kind;
  uint64_t now_us;
  hv_status status;
  hv_cause cause;   /* cause of a status that is not HV_OK; HV_CAUSE_OTHER: hv_cause_of the status */
  const char *text; /* a sentence with the cause, or "" */
  hv_peer_id peer;
  const hv_membership *member; /* REQUEST, CALL_DONE: that in this closed swarm which its certificate proves; NULL: none is known */
  const hv_msg *msg;
  hv_payload *payload;
  const hv_addr *addrs;
  size_t n_addrs;
  hv_timer *timer;
  hv_call *call;
  hv_request *request;
  hv_stream *stream;
  hv_job *job;
  hv_command *command;
};

/* The protocol as the world drives it. */
typedef struct hv_core {
  void *self;
  void (*step)(void *self, const hv_event *event);
} hv_core;

/* Passes an event of a timer, call, stream or job to its function. True if the event was one. Every step begins with this call. */
int hv_event_dispatch(const hv_event *event);

/* Answers a request with a refusal: a status and one sentence. */
void hv_env_refuse(hv_env *env, hv_request *request, hv_status status, const char *text);

/* Writes to the node's log with the node's clock. */
void hv_env_log(hv_env *env, hv_log_level level, const char *room, const char *event, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
