/* What does the world look like to the protocol? One struct of function pointers, and one door for events.
 *
 * Room: core (uses base, msg). Filled by net/transport/loop.c (the real world) and net/sim/sim.c (the simulated one);
 * used by everything in core/. The contract below is tested by one suite on both (tests/contract).
 *
 * One thread: the world calls hv_core.step with one event at a time; core calls hv_env only from within a step.
 * No function here blocks, and none calls back into step before it has returned.
 * A completion (TIMER, CALL_DONE, WORK_DONE, STREAM_CLOSED) is delivered exactly once, as an event, never from
 * inside the call that started it. After it the struct is the core's again and may be freed or used anew.
 * When the world ends (shutdown, or a crash in the sim) it first delivers HV_CANCELLED for all calls and jobs
 * and closes all streams, then calls nobody any more. In a crash it delivers nothing: core is simply freed, and
 * until then every function here does nothing and fails with HV_CLOSED.
 * Times are microseconds of the node's own monotonic clock: they are compared with each other, never with a peer's.
 */
#ifndef HV_CORE_ENV_H
#define HV_CORE_ENV_H

#include "base/buf.h"
#include "base/log.h"
#include "core/msg.h"

typedef struct hv_env hv_env;
typedef struct hv_event hv_event;

/* Whom to reach, and where. An unknown id is learned at first contact (and then stands in hv_call.to); a known id is
 * checked against the identity that answers: another one is HV_DENIED. Without TLS the id is only what the peer claims. */
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
  } world; /* the world's; zero while not armed (slot counts from 1) */
};

/* ---- unary calls: the caller's struct ---- */
typedef struct hv_call hv_call;
struct hv_call {
  /* Event CALL_DONE. HV_OK: event->msg is the answer (never a refusal) and event->peer who gave it. Else msg is NULL and
   * event->text says why. HV_TIMEOUT, HV_CANCELLED, HV_REFUSED (nobody listens), HV_UNREACHABLE, HV_DENIED, HV_VERSION, HV_CLOSED
   * (peer lost while asking), HV_MALFORMED, or the status of the peer's refusal. */
  void (*done)(hv_call *self, const hv_event *event);
  void *owner;         /* the caller's */
  hv_target to;        /* in */
  uint32_t timeout_ms; /* in: 1 or more */
  void *world;         /* the world's; NULL while not under way */
};

/* ---- incoming calls: the world's struct, valid until answered ---- */
typedef struct hv_request hv_request;
struct hv_request {
  hv_peer_id peer; /* who asks (checked under TLS) */
  hv_addr from;    /* where from; kind HV_ADDR_NONE if not known */
};

/* ---- streams: the world's struct, valid until its STREAM_CLOSED has been delivered ----
 * Ordered, bidirectional, opened by one side with a first message. Core sets `on` when it opens one, or while it handles
 * STREAM_OPENED (if it leaves `on` NULL the stream is refused). */
typedef struct hv_stream hv_stream;
typedef struct hv_stream_events {
  /* A message came. event->msg is its header, event->payload its bytes (NULL if none), borrowed: hv_payload_keep to hold on. Bytes
   * that are held count against the stream's window: while it is full no more are read and the sender is held back. */
  void (*data)(hv_stream *self, const hv_event *event);
  /* There is room again after hv_env.stream_send said HV_BUSY. */
  void (*ready)(hv_stream *self, const hv_event *event);
  /* The last event: HV_OK when both sides ended it, else why. `self` is gone afterwards. */
  void (*closed)(hv_stream *self, const hv_event *event);
  int heavy; /* 1: much will go over it; a world may spread a stream that is opened so over several connections */
} hv_stream_events;
struct hv_stream {
  const hv_stream_events *on;
  void *owner;     /* core's */
  hv_peer_id peer; /* the other side; for an outgoing stream unknown until the first message from there, if it was not given */
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
  void *world; /* the world's */
  hv_mem *mem; /* the account that core allocates from (borrowed) */
  hv_log *log; /* may be NULL */

  uint64_t (*now_us)(hv_env *env); /* does not move within one step */
  void (*random)(hv_env *env, void *out, size_t size);

  void (*timer_set)(hv_env *env, hv_timer *timer, uint64_t delay_us); /* arms or re-arms */
  void (*timer_clear)(hv_env *env, hv_timer *timer);                  /* fine when not armed; it will not fire any more */

  /* Starts a call with `request` (borrowed during this function). Not HV_OK: nothing was started, done will not come. */
  hv_status (*call)(hv_env *env, hv_call *call, const hv_msg *request);
  /* Asks for the end of a call: done comes soon, with HV_CANCELLED or what it had anyway. Fine when not under way. */
  void (*call_cancel)(hv_env *env, hv_call *call);
  /* Answers a request (ends its life). To say no: a message of kind HV_MSG_REFUSAL. `answer` is borrowed during this function. */
  void (*reply)(hv_env *env, hv_request *request, const hv_msg *answer);

  /* Opens a stream; `first` may not carry a payload. Events come until STREAM_CLOSED, also when the peer cannot be reached. */
  hv_status (*stream_open)(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                           hv_stream **out);
  /* Sends a header with bytes (payload may be NULL; it is kept by the world until it has left). HV_BUSY: the window is full,
   * nothing was taken, `ready` will come. HV_CLOSED: over. */
  hv_status (*stream_send)(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
  /* No more from this side (what was taken still leaves). When both sides have said so: STREAM_CLOSED with HV_OK. */
  void (*stream_end)(hv_env *env, hv_stream *stream);
  /* Breaks it off: STREAM_CLOSED with HV_CANCELLED here, and there, if that side opened it; else HV_CLOSED or HV_CANCELLED. */
  void (*stream_cancel)(hv_env *env, hv_stream *stream);

  /* From now on, and until the stream closes, what leaves on its connection leaves evenly, at no more than so many bytes per
   * second; 0: as fast as it can. The connection's others are held to that, too. A wish: not every world can. */
  void (*stream_pace)(hv_env *env, hv_stream *stream, uint64_t rate);

  void (*work)(hv_env *env, hv_job *job);

  /* After HV_EVENT_STOP: this node has said its goodbyes, the world may end now (it ends after its grace anyway). */
  void (*stopped)(hv_env *env);

  /* Drops the connections to a peer and what the world keeps for it; calls under way to it end. Fine when there are none. */
  void (*forget)(hv_env *env, const hv_target *to);

  /* Cryptography, by whoever has it. sign uses this node's key; `domain` is a short constant ("hv:record") that keeps uses apart.
   */
  void (*sha256)(hv_env *env, hv_span bytes, hv_hash *out);
  hv_status (*sign)(hv_env *env, const char *domain, hv_span bytes, uint8_t out[64]);
  int (*verify)(hv_env *env, const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]); /* 1: right */
};

typedef enum hv_event_kind {
  HV_EVENT_START,         /* first event: addrs/n_addrs are where this node listens (none: it only dials out) */
  HV_EVENT_TIMER,         /* timer */
  HV_EVENT_CALL_DONE,     /* call, status, msg, peer, text */
  HV_EVENT_REQUEST,       /* request, msg */
  HV_EVENT_STREAM_OPENED, /* stream, msg: a peer opened it */
  HV_EVENT_STREAM_DATA,   /* stream, msg, payload */
  HV_EVENT_STREAM_READY,  /* stream */
  HV_EVENT_STREAM_CLOSED, /* stream, status, text */
  HV_EVENT_WORK_DONE,     /* job, status */
  HV_EVENT_PEER_DOWN,     /* peer, text: a connection that this node opened to it broke (it may still live). See below. */
  HV_EVENT_COMMAND,       /* command: the program that holds this node wants something */
  HV_EVENT_STOP,          /* say goodbye: soon after this the world ends */
  HV_EVENT_KINDS
} hv_event_kind;

/* PEER_DOWN in the real world: at once when the other side's kernel says so (its process ended), within 15 s when nothing is heard
 * any more (keepalive: a ping after 10 s without a sign of life, 5 s to answer it). Of a connection that the other side opened
 * gRPC's C core tells nothing: it has no event for a server's transports, only for the calls and streams on them. So such an end is
 * known from what was under way on it (STREAM_CLOSED, at the same speed), and of a peer that can be dialled from the connection
 * that hellos open to it. What is left is a peer in client mode with no stream to it: core/peers loses it when its hellos stop,
 * after three of them (30 s as a rule). The simulator tells whoever dialled, too, and nobody else. */

/* Something the program asks of the node: run in a step of its own. The struct is the program's until `run`, then core's. */
typedef struct hv_command hv_command;
struct hv_command {
  void (*run)(hv_command *self, void *core); /* core is NULL when the node ended first: finish with HV_CLOSED */
  hv_command *next;                          /* the world's */
};

struct hv_event {
  hv_event_kind kind;
  uint64_t now_us;
  hv_status status;
  hv_cause cause;   /* of a status that is not HV_OK; HV_CAUSE_OTHER: the status' own (hv_cause_of) */
  const char *text; /* a sentence with the cause, or "" */
  hv_peer_id peer;
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

/* What a world drives. */
typedef struct hv_core {
  void *self;
  void (*step)(void *self, const hv_event *event);
} hv_core;

/* Gives an event that belongs to a timer, call, stream or job to its function; 1 if it did. Every core's step begins with it. */
int hv_event_dispatch(const hv_event *event);

/* Writes to the node's log with the node's clock. */
void hv_env_log(hv_env *env, hv_log_level level, const char *room, const char *event, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
