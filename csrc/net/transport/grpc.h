/* The door to gRPC: completion queue, credentials, channels, calls, and slices as spans and payloads without a copy.
 *
 * Room: net (uses base, core/env's small types, identity, trust, listen). Only this file and grpc_tls include gRPC. All policy
 * (deadlines, windows, limits, what a failure means) is in loop, links, calls and streams. docs/WIRE.md, "Over gRPC", has the
 * service's names and how the sides prove who they are. Thread: one thread owns an hv_grpc and all below it. Any thread:
 * hv_grpc_wake, and release of payloads, sent or received. Limits: a message has HV_GRPC_MESSAGE_MAX bytes at most, and is not
 * compressed; a connection carries HV_GRPC_STREAMS_MAX calls at once; a handshake may take 5 s; a connection that is silent for 15
 * s is dropped; the receive buffers of all incoming connections together stay under HV_GRPC_QUOTA.
 */
#ifndef HV_NET_GRPC_H
#define HV_NET_GRPC_H

#include "core/env.h"
#include "net/identity.h"
#include "net/transport/trust.h"

#define HV_GRPC_MESSAGE_MAX (4 + HV_BULK_HEADER_MAX + HV_BULK_PAYLOAD_MAX)
#define HV_GRPC_STREAMS_MAX 1024
#define HV_GRPC_QUOTA ((size_t)1 << 30)
#define HV_GRPC_TEXT_MAX HV_TRUST_TEXT_MAX

typedef struct hv_grpc hv_grpc;
typedef struct hv_grpc_channel hv_grpc_channel;
typedef struct hv_grpc_call hv_grpc_call;
typedef struct hv_grpc_message hv_grpc_message;

/* Something under way: embedded by whoever starts it, `done` is called once, from within hv_grpc_poll. ok 0: it did not succeed. */
typedef struct hv_grpc_op hv_grpc_op;
struct hv_grpc_op {
  void (*done)(hv_grpc_op *op, int ok);
};

typedef enum hv_grpc_method { HV_GRPC_CALL, HV_GRPC_BULK, HV_GRPC_METHODS } hv_grpc_method;

/* ---- the queue ---- */

/* 1 in the child of a process that used gRPC: it counts as started, and its threads are not here. (Known while this thread is the
 * only one.) */
int hv_grpc_orphaned(void);

/* mem (must outlive every payload received here) and identity are borrowed. HV_NOMEM, HV_CRYPTO. */
hv_status hv_grpc_new(hv_mem *mem, const hv_identity *identity, int insecure, hv_grpc **out, hv_error *err);

/* Binds an address before hv_grpc_serve; *port is the one that was taken. A text for people in err with every failure. */
hv_status hv_grpc_listen(hv_grpc *grpc, const hv_addr *addr, uint16_t *port, hv_error *err);
void hv_grpc_serve(hv_grpc *grpc); /* nothing if nothing was bound */

/* Waits until until_us (monotonic) for one operation to complete and calls its `done`; 0: none did. */
int hv_grpc_poll(hv_grpc *grpc, uint64_t until_us);

/* Makes the poll return soon. Any thread, but not during or after hv_grpc_free. */
void hv_grpc_wake(hv_grpc *grpc);

/* Stops to listen and cancels what peers have under way here; waiting accepts come back with ok 0. */
void hv_grpc_stop_serving(hv_grpc *grpc);

/* Polls until nothing is under way any more (all calls and channels must be freed, serving stopped), waits a moment for payloads
 * that gRPC still holds, and frees. Returns how many payloads it had to leave behind: 0 is right. */
size_t hv_grpc_free(hv_grpc *grpc);

/* ---- channels: a connection to a peer that comes and goes ---- */

/* Connects with the first call, fails calls at once while it waits between attempts (1 to 5 s). HV_NOMEM, HV_INVALID. */
hv_status hv_grpc_channel_new(hv_grpc *grpc, const hv_target *to, hv_grpc_channel **out);
void hv_grpc_channel_free(hv_grpc_channel *channel); /* NULL is fine; a watch comes back */

/* Completes when the connection's state is another than now. 1: now it is up (connected, the peer's identity checked). */
int hv_grpc_channel_watch(hv_grpc_channel *channel, hv_grpc_op *op);

/* What it expects and found of the other side's identity (borrowed from the channel); NULL without TLS. */
hv_trust *hv_grpc_channel_trust(hv_grpc_channel *channel);

/* ---- messages out ---- */
/* head (copied) and then the payload's bytes (kept until they have left; may be NULL). NULL: no memory. */
hv_grpc_message *hv_grpc_message_new(hv_grpc *grpc, hv_span head, hv_payload *payload);
void hv_grpc_message_free(hv_grpc_message *message); /* if it was not sent; NULL is fine */

/* ---- calls, either side. Functions with an op return 1 when it is under way, 0 when the call is past that (op will not come) ----
 */

/* Without a deadline. who: without TLS, asks the other side to say who it is. NULL: no memory. */
hv_grpc_call *hv_grpc_call_new(hv_grpc_channel *channel, hv_grpc_method method, int who);
/* A stream that goes over several connections is several calls (net/transport/lanes.c). Each says whose it is before it says
 * anything else: the first one its token, the others that they join it. */
typedef struct hv_grpc_lane {
  uint8_t joins;
  uint8_t token[16];
} hv_grpc_lane;
void hv_grpc_call_say_lane(hv_grpc_call *call, const hv_grpc_lane *lane);
/* Server: what the other side said. HV_NOT_FOUND: nothing, it is a stream by itself. HV_MALFORMED. */
hv_status hv_grpc_call_lane(const hv_grpc_call *call, hv_grpc_lane *out);
/* The next incoming call, when op says so; else free it. NULL: no memory, or serving has stopped. */
hv_grpc_call *hv_grpc_accept(hv_grpc *grpc, hv_grpc_method method, hv_grpc_op *op);
void hv_grpc_call_free(hv_grpc_call *call); /* when no op of it is under way; NULL is fine. Breaks it off if it has not ended */
void hv_grpc_call_cancel(hv_grpc_call *call);

/* Client: the whole of a unary call; takes request. */
int hv_grpc_call_ask(hv_grpc_call *call, hv_grpc_message *request, hv_grpc_op *op);
/* Server: the answer (taken; NULL: none) and the end, with HV_OK or a refusal and its sentence; with_close: also waits for the
 * other side's end (when nobody else does). */
int hv_grpc_call_finish(hv_grpc_call *call, hv_grpc_message *answer, hv_status status, const char *text, int with_close,
                        hv_grpc_op *op);

/* One send and one receive may be under way at a time. Takes message, which may be NULL: then it only says hello (headers). */
int hv_grpc_call_send(hv_grpc_call *call, hv_grpc_message *message, int last, hv_grpc_op *op); /* last (client only): and no more */
int hv_grpc_call_recv(hv_grpc_call *call, hv_grpc_op *op);
/* Client: completes when the other side has said hello (or never will). Once for each stream. */
int hv_grpc_call_hello(hv_grpc_call *call, hv_grpc_op *op);
/* Completes when the call has ended, for whatever reason. Once for each stream. */
int hv_grpc_call_end(hv_grpc_call *call, hv_grpc_op *op);

/* After a receive: the message's size; -1 when there was none (the other side has ended). */
int64_t hv_grpc_call_size(const hv_grpc_call *call);
/* The first `size` bytes of the message as one span: in place if they came in one piece, else copied into scratch. Borrowed until
 * the next receive or the call's (or payload's) end. HV_MALFORMED: it is shorter, or compressed. HV_TOO_LARGE, HV_NOMEM: scratch.
 */
hv_status hv_grpc_call_bytes(hv_grpc_call *call, size_t size, hv_buf *scratch, hv_span *out);
/* Takes the message as a payload in place, `skip` bytes left out at its front. When the last holder lets go, on whatever thread,
 * released(arg, size of the whole message) is called. NULL: no memory, the message stays. */
hv_payload *hv_grpc_call_payload(hv_grpc_call *call, size_t skip, void (*released)(void *arg, size_t size), void *arg);

/* Who is the other side? Client: after its hello or the end of a unary call. Server: at once. HV_DENIED, HV_NOT_FOUND: it has not
 * said. */
hv_status hv_grpc_call_peer(hv_grpc_call *call, hv_peer_id *out);
void hv_grpc_call_from(hv_grpc_call *call, hv_addr *out); /* where from; kind HV_ADDR_NONE if not known */

/* How the call ended, for calls one has made: HV_OK, or why not with a few words (borrowed from text). A refusal by the other world
 * comes with its status and text; cause is finer than the status, or HV_CAUSE_OTHER. HV_CANCELLED, HV_TIMEOUT, HV_REFUSED,
 * HV_UNREACHABLE, HV_CLOSED, HV_TOO_LARGE, HV_MALFORMED... */
hv_status hv_grpc_call_result(hv_grpc_call *call, hv_cause *cause, char text[HV_GRPC_TEXT_MAX]);

#endif
