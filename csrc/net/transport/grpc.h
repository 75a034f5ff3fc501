/* A wrapper of gRPC's C core: completion queue, credentials, channels, calls, and messages without copies.
 *
 * Room: net (uses base, core/env, identity, trust, acceptor). Only grpc.c and grpc_tls.c include gRPC. Deadlines, limits and the
 * meaning of errors are decided by loop, links, calls and streams. docs/design/wire.md, "Over gRPC", names the service and methods.
 * Owner: the caller frees channels and calls; an operation (hv_grpc_op) is embedded in the caller's struct.
 * Thread: one thread uses an hv_grpc and all that belongs to it. Any thread: hv_grpc_wake, and the release of payloads.
 * Limits: HV_GRPC_MESSAGE_MAX bytes per message, uncompressed; HV_GRPC_STREAMS_MAX calls per connection; HV_GRPC_QUOTA bytes in the
 * receive buffers of all incoming connections; a handshake fails after 5 s, a silent connection after 15 s.
 */
#ifndef HV_NET_GRPC_H
#define HV_NET_GRPC_H

#include "core/env.h"
#include "net/identity.h"
#include "net/invitation.h"
#include "net/transport/trust.h"

#define HV_GRPC_MESSAGE_MAX (4 + HV_BULK_HEADER_MAX + HV_BULK_PAYLOAD_MAX)
#define HV_GRPC_STREAMS_MAX 1024
#define HV_GRPC_LOOKAHEAD (4u << 20) /* bytes of a call that gRPC takes in before it is read */
#define HV_GRPC_QUOTA ((size_t)1 << 30)
#define HV_GRPC_TEXT_MAX HV_TRUST_TEXT_MAX

typedef struct hv_grpc hv_grpc;
typedef struct hv_grpc_channel hv_grpc_channel;
typedef struct hv_grpc_call hv_grpc_call;
typedef struct hv_grpc_message hv_grpc_message;

/* An asynchronous operation. hv_grpc_poll calls `done` once when it completes; ok 0: it failed. */
typedef struct hv_grpc_op hv_grpc_op;
struct hv_grpc_op {
  void (*done)(hv_grpc_op *op, int ok);
};

/* HV_GRPC_OTHER: any method that this node does not have; for hv_grpc_accept alone. */
typedef enum hv_grpc_method { HV_GRPC_CALL, HV_GRPC_BULK, HV_GRPC_METHODS, HV_GRPC_OTHER = HV_GRPC_METHODS } hv_grpc_method;

/* ---- the queue ---- */

#define HV_GRPC_TASKS "/proc/self/task" /* the folder of this process's threads */
/* True in a forked child of a process that used gRPC: gRPC counts as started, but its threads do not exist. Call it while the
 * process has one thread. `folder` is HV_GRPC_TASKS; where it does not exist nobody can know, and it is true once gRPC is in use.
 */
int hv_grpc_orphaned(const char *folder);

/* credentials: of a member of a closed swarm; NULL: the swarm is open. insecure: without TLS, so only in an open swarm. mem,
 * identity and credentials are borrowed; mem must outlive every received payload. HV_NOMEM, HV_CRYPTO. */
hv_status hv_grpc_new(hv_mem *mem, const hv_identity *identity, const hv_credentials *credentials, int insecure, hv_grpc **out,
                      hv_error *err);

/* The closed swarm that handshakes ask for, borrowed; NULL: the swarm is open. */
hv_trust_swarm *hv_grpc_swarm(const hv_grpc *grpc);
/* Shows the proof of a guest's renewed invitation in all connections that begin later: at once in those of new channels, within
 * 2 s in those of the server. HV_UNSUPPORTED, HV_CRYPTO, HV_NOMEM: all is as before. */
hv_status hv_grpc_renew(hv_grpc *grpc, const hv_identity *identity, const hv_credentials *credentials);

/* Makes the server, which listens on nothing: connections are given to it. HV_NOMEM; HV_UNSUPPORTED: by this gRPC none can be. */
hv_status hv_grpc_make_server(hv_grpc *grpc, hv_error *err);
const char *hv_grpc_loaded(void);  /* the version of the gRPC core that is loaded; any thread */
void hv_grpc_serve(hv_grpc *grpc); /* starts to serve calls, if there is a server */
/* Takes a connected, non-blocking socket; between hv_grpc_serve and hv_grpc_stop_serving. One thread at a time, which may be
 * another than the owner's. `grpc` is an hv_grpc. */
void hv_grpc_take(void *grpc, int fd);

/* Waits until until_us (monotonic) for one operation to complete and calls its `done`; 0: none did. */
int hv_grpc_poll(hv_grpc *grpc, uint64_t until_us);

/* Makes the poll return soon. Any thread, but not during or after hv_grpc_free. */
void hv_grpc_wake(hv_grpc *grpc);

/* Ends all connections and cancels all incoming calls. Each hv_grpc_accept that still waits for a call completes with ok 0. */
void hv_grpc_stop_serving(hv_grpc *grpc);

/* Polls until no operation is under way, waits briefly for payloads that gRPC still holds, and frees. All calls and channels must
 * be freed and serving stopped before. Returns the number of payloads that gRPC still holds: normally 0. */
size_t hv_grpc_free(hv_grpc *grpc);

/* ---- channels: a client connection that gRPC reopens when it breaks ---- */

/* Connects at the first call. While it waits between attempts (1 to 5 s), calls fail at once. HV_NOMEM, HV_INVALID. */
hv_status hv_grpc_channel_new(hv_grpc *grpc, const hv_target *to, hv_grpc_channel **out);
void hv_grpc_channel_free(hv_grpc_channel *channel); /* NULL is fine; a watch under way completes */

/* Completes when the connection's state changes. Returns true if it is up now: connected, and the peer's identity checked. op NULL:
 * does no more than that. */
int hv_grpc_channel_watch(hv_grpc_channel *channel, hv_grpc_op *op);

/* The check of the peer's identity, borrowed from the channel; NULL without TLS. */
hv_trust *hv_grpc_channel_trust(hv_grpc_channel *channel);

/* ---- messages to send ---- */
/* A message of head (copied), then the bytes of payload (kept until they are sent; may be NULL). NULL: no memory. */
hv_grpc_message *hv_grpc_message_new(hv_grpc *grpc, hv_span head, hv_payload *payload);
void hv_grpc_message_free(hv_grpc_message *message); /* for a message that was not sent; NULL is fine */

/* ---- calls, outgoing and incoming ----
 * A function with an op returns true if the operation is under way. If not, `done` is not called. */

/* An outgoing call without a deadline. If `who` is set and there is no TLS, it asks the other side for its identity. NULL: no
 * memory. */
hv_grpc_call *hv_grpc_call_new(hv_grpc_channel *channel, hv_grpc_method method, int who);
/* The metadata of a call that belongs to a stream over several connections (net/transport/lanes.c). The first call of the stream
 * has a new token; each further one has the same token and `joins`. */
typedef struct hv_grpc_lane {
  uint8_t joins;
  uint8_t token[16];
} hv_grpc_lane;
void hv_grpc_call_say_lane(hv_grpc_call *call, const hv_grpc_lane *lane);
/* Incoming: that metadata. HV_NOT_FOUND: none, so the stream has one call. HV_MALFORMED. */
hv_status hv_grpc_call_lane(const hv_grpc_call *call, hv_grpc_lane *out);
/* Waits for the next incoming call; op completes when it has come, with ok 0 if the call must be freed. NULL: no memory, or serving
 * has stopped. gRPC keeps calls that nobody waits for in a queue without a limit, those of other methods too. */
hv_grpc_call *hv_grpc_accept(hv_grpc *grpc, hv_grpc_method method, hv_grpc_op *op);
void hv_grpc_call_free(hv_grpc_call *call); /* no operation may be under way; NULL is fine. Cancels a call that has not ended */
void hv_grpc_call_cancel(hv_grpc_call *call);

/* Outgoing: sends request (taken) and completes with the answer and the status of a unary call. */
int hv_grpc_call_ask(hv_grpc_call *call, hv_grpc_message *request, hv_grpc_op *op);
/* Incoming: sends the answer (taken; NULL: none) and the final status with its text. with_close: completes after the other side has
 * closed, for calls without hv_grpc_call_end. HV_UNSUPPORTED becomes gRPC's UNIMPLEMENTED. */
int hv_grpc_call_finish(hv_grpc_call *call, hv_grpc_message *answer, hv_status status, const char *text, int with_close,
                        hv_grpc_op *op);

/* Incoming: the cause of a refusal, which hv_grpc_call_finish sends beside the status. */
void hv_grpc_call_say_cause(hv_grpc_call *call, hv_cause cause);

/* hv_grpc_call_send sends a message, which it takes; if `message` is NULL, it sends the initial metadata only. If `last` is true,
 * it also half-closes the call, which only an outgoing call may do. hv_grpc_call_recv receives the next message. One send and one
 * receive may be under way at a time. */
int hv_grpc_call_send(hv_grpc_call *call, hv_grpc_message *message, int last, hv_grpc_op *op);
int hv_grpc_call_recv(hv_grpc_call *call, hv_grpc_op *op);
/* Outgoing: completes when the initial metadata of the other side has come, or cannot come. Once per stream. */
int hv_grpc_call_hello(hv_grpc_call *call, hv_grpc_op *op);
/* Completes when the call has ended, for any reason. Once per stream. */
int hv_grpc_call_end(hv_grpc_call *call, hv_grpc_op *op);

/* After a receive: the size of the message; -1: there is none, because the other side has half-closed. */
int64_t hv_grpc_call_size(const hv_grpc_call *call);
/* The first `size` bytes of the message as one span: in place if they are contiguous, else copied to scratch. Valid until the next
 * receive or the end of the call or payload. HV_MALFORMED: shorter, or compressed. HV_TOO_LARGE, HV_NOMEM: of scratch. */
hv_status hv_grpc_call_bytes(hv_grpc_call *call, size_t size, hv_buf *scratch, hv_span *out);
/* Takes the message, without its first `skip` bytes, as a payload in place. The last release of the payload, on any thread, calls
 * released(arg, size of the whole message). NULL: no memory; the message stays. */
hv_payload *hv_grpc_call_payload(hv_grpc_call *call, size_t skip, void (*released)(void *arg, size_t size), void *arg);

/* The identity of the other side. Outgoing: known after its initial metadata or the end of a unary call. Incoming: at once.
 * HV_DENIED: not valid; HV_NOT_FOUND: it sent none. */
hv_status hv_grpc_call_peer(hv_grpc_call *call, hv_peer_id *out);
/* The same, and the membership in this node's closed swarm that it proves. */
hv_status hv_grpc_call_membership(hv_grpc_call *call, hv_peer_id *out, hv_membership *shown);
void hv_grpc_call_from(hv_grpc_call *call, hv_addr *out); /* the other side's address; HV_ADDR_NONE: not known */

/* The result of an outgoing call: HV_OK, or a status with its cause (or HV_CAUSE_OTHER) and a text. The status and text of a
 * refusal are those of the peer. Else HV_CANCELLED, HV_TIMEOUT, HV_REFUSED, HV_UNREACHABLE, HV_CLOSED, HV_TOO_LARGE or
 * HV_MALFORMED. */
hv_status hv_grpc_call_result(hv_grpc_call *call, hv_cause *cause, char text[HV_GRPC_TEXT_MAX]);

#endif
