/* Bulk streams: the state of a stream, and of the gRPC calls that carry it (its lanes).
 *
 * Room: net (uses world, window); private to streams.c, lanes.c and stream_end.c.
 * Files, each of which calls only those before it: stream_end.c (states; how a stream is refused or broken off), lanes.c (the gRPC
 * calls: operations under way, order of messages), streams.c (what core sees: opening, sending, receiving). lanes.c reports to
 * streams.c through hv_stream_reports. docs/design/wire.md describes lanes and their frames.
 * Owner: a stream owns its lanes, a lane its gRPC call. An incoming stream is created with the accept that waits for its caller.
 * Thread: the hive thread.
 * Limits: the constants below, and HV_LANES_MAX lanes per stream.
 */
#ifndef HV_NET_STREAM_INNER_H
#define HV_NET_STREAM_INNER_H

#include "net/transport/window.h"
#include "net/transport/world.h"

enum {
  HV_STREAM_QUEUE = 256,                                                /* messages that wait to be sent */
  HV_STREAM_QUEUE_BYTES = 2 << 20,                                      /* bytes that wait or are being sent, with one lane */
  HV_STREAM_PIECE = 64 << 10,                                           /* bytes of the parts of a message on several lanes */
  HV_STREAM_PIECE_MIN = 16 << 10,                                       /* least bytes of a part that a peer may send */
  HV_STREAM_PIECES_MAX = HV_GRPC_MESSAGE_MAX / HV_STREAM_PIECE_MIN + 2, /* parts of a message */
  HV_STREAM_TEXT = 512                                                  /* bytes of the reason for an end */
};

/* WAITING: no caller yet. GREETING: a peer has opened it, its first message has not arrived. OPEN: core has it. CLOSING: cancelled
 * or refused; waits until no operation is under way. A stream opened here begins in OPEN. */
typedef enum hv_stream_state { WAITING, GREETING, OPEN, CLOSING, STATES } hv_stream_state;

#define HV_STREAM_MORE 0x80000000u /* flag in the number of a message: it is a part, and the next number continues it */

typedef struct stream stream;

/* One gRPC call of a stream. The first lane is the call that opened the stream. */
typedef struct lane {
  stream *s;
  hv_grpc_channel *channel; /* of an outgoing call; the link's */
  hv_grpc_call *rpc;
  hv_slip slip;                            /* of an incoming call */
  hv_grpc_op sent, came, said_hello, over; /* the operations: send, receive, wait for the initial metadata, wait for the end */
  uint8_t sending, receiving, greeting;    /* True while the operation `sent`, `came`, `said_hello` is under way */
  uint8_t is_over;                         /* True if the call has ended */
  size_t under_way;                        /* bytes of the message that is being sent */
  uint32_t number;                         /* of the parked message */
  uint8_t parked, more;                    /* a message waits here for its predecessors on other lanes; it has HV_STREAM_MORE */
  uint8_t open;                            /* True if messages may be sent over it */
  uint8_t go;                              /* True if the peer must be sent a frame that says that it is open */
  uint8_t end_sent, end_came;              /* the frame that half-closes was sent; was received */
  uint8_t finished;                        /* incoming: the final status was given to gRPC */
  uint8_t no_more;                         /* gRPC has no further message */
} lane;

/* The events of its lanes, handled by streams.c. */
typedef struct hv_stream_reports {
  /* A message arrived in its turn, on this lane, after `skip` bytes of framing. more: it is a part, and others follow. */
  void (*came)(lane *l, size_t skip, int more);
  /* A message was sent: the queue has room. */
  void (*sent)(stream *s);
  /* An operation has ended. If it was the last one, this frees the stream. */
  void (*op_ended)(stream *s);
} hv_stream_reports;

struct stream {
  hv_stream face; /* first: what core sees */
  hv_ring all;    /* in hv_loop.streams_open or streams_greeting */
  hv_link_use of_link;
  hv_bulk_place of_bulk;
  const hv_stream_reports *reports;
  hv_loop *loop;
  hv_link *link;             /* NULL: a peer opened the stream */
  lane *lanes[HV_LANES_MAX]; /* the first is the one that opened the stream */
  size_t n_lanes;
  uint8_t numbered;                                /* True if it may have several lanes: then messages carry numbers */
  uint8_t token[sizeof((hv_grpc_lane *)0)->token]; /* by which further calls join it */
  uint32_t next_out, next_in;                      /* numbers of the next message to send, to receive */
  hv_payload **pieces;                             /* received parts of an incomplete message */
  size_t n_pieces, pieces_size;                    /* pieces_size in bytes */
  hv_window *window;
  hv_stream_state state;
  uint64_t since_us;                       /* time at which GREETING began */
  hv_cause apart;                          /* why the peer that it was opened to is no member of the closed swarm */
  hv_grpc_message *queue[HV_STREAM_QUEUE]; /* a ring of messages that wait to be sent */
  size_t sizes[HV_STREAM_QUEUE];           /* their bytes */
  size_t first, n;                         /* of the ring */
  size_t bytes;                            /* of the queue and of the messages being sent */
  uint64_t pace;                           /* bytes per second of all its connections; 0: no limit */
  uint8_t paced;                           /* True once core has set a pace */
  uint8_t starved;                         /* True if core got HV_BUSY and expects STREAM_READY */
  uint8_t ending;                          /* True if core has half-closed it */
  uint8_t told, heard;                     /* a message with this node's versions was queued; the first message of the peer came */
  uint8_t asking;                          /* True while the peer is asked for its versions; there is no gRPC call yet */
  hv_call meets;                           /* that call */
  struct held *held, **last_held;          /* the first message and those that core sends meanwhile */
  lane *lost;                              /* the first lane that failed: its call has the reason; NULL: none */
  hv_status why;                           /* reason if this side ended the stream; else HV_OK */
  char why_text[HV_STREAM_TEXT];
};

/* ---- stream_end.c ---- */

/* Changes the state; a change that is not allowed is logged. */
void hv_stream_move(stream *s, hv_stream_state to);
void hv_stream_drop_queue(stream *s);
/* Cancels all calls of a stream, for this reason. Nothing if it is closing already. */
void hv_stream_break_off(stream *s, hv_status why, const char *text);
/* Incoming: ends all its calls with this status, or breaks the stream off if a send is under way. */
void hv_stream_refuse(stream *s, hv_status status, const char *text);
/* Ends a stream whose message cannot be read: refuses an incoming one, breaks off an outgoing one. */
void hv_stream_reject(stream *s, hv_status status, const char *text);
/* Incoming: gives gRPC the final status of a call. */
void hv_lane_finish(lane *l, hv_status status, const char *text);

/* ---- lanes.c ---- */

/* A new lane without a call. NULL: no memory, or HV_LANES_MAX reached. */
lane *hv_lane_new(stream *s);
void hv_lane_free(lane *l);
/* Incoming: its call has come; from now on its receive operations are messages. */
void hv_lane_reads(lane *l);
/* Number of lanes that an outgoing stream over its link should have. */
size_t hv_lanes_wanted(const stream *s);
/* Sends waiting messages on the lanes that are idle. */
void hv_lanes_pump(stream *s);
/* Starts to receive on this lane, or on all, if the window has room. */
void hv_lane_read_on(lane *l);
void hv_lanes_read_on(stream *s);
/* Incoming: sends gRPC's initial metadata before any message. */
void hv_lane_greet(lane *l);
/* Half-closes: this side sends no more. */
void hv_lanes_end(stream *s);
/* True if no operation is under way and all calls have ended. */
int hv_lanes_idle(const stream *s);
/* Incoming: moves a call to the stream of the same peer that it names. Its own stream is empty then, and the caller frees it. False
 * if there is no such stream. */
int hv_lane_join(lane *l, const hv_grpc_lane *said);
/* Sets pace and buffer size of the sockets of all connections that are up. */
void hv_lanes_set_sockets(stream *s);

#endif
