/* Bulk streams inside: a stream, and its lanes, the gRPC calls that carry it.
 *
 * Room: net; private to streams.c (what core sees: life, queue, messages) and lanes.c (the calls: operations under way, pieces).
 * Thread: the hive thread.
 */
#ifndef HV_NET_STREAM_INNER_H
#define HV_NET_STREAM_INNER_H

#include "net/transport/window.h"
#include "net/transport/world.h"

/* PIECE: size in bytes of the parts in which a message goes over several lanes. A peer's parts may be as small as PIECE_MIN. */
enum {
  HV_STREAM_QUEUE = 256,
  HV_STREAM_QUEUE_BYTES = 2 << 20,
  HV_STREAM_PIECE = 64 << 10,
  HV_STREAM_PIECE_MIN = 16 << 10,
  HV_STREAM_PIECES_MAX = HV_GRPC_MESSAGE_MAX / HV_STREAM_PIECE_MIN + 2,
  HV_STREAM_TEXT = 512
};

/* WAITING: an accept -> GREETING: opened by a peer, without a first message yet -> OPEN: at core -> CLOSING: cancelled or refused.
 */
typedef enum hv_stream_state { WAITING, GREETING, OPEN, CLOSING, STATES } hv_stream_state;

#define HV_STREAM_MORE 0x80000000u /* in a number: the next part belongs to the same message */

typedef struct stream stream;

/* One gRPC call: a stream has one, or several on connections of their own. */
typedef struct lane {
  stream *s;
  hv_grpc_call *rpc;
  hv_caller *caller; /* of one that came in */
  hv_grpc_op sent, came, said_hello, over;
  size_t under_way;                              /* bytes given to gRPC and not yet sent */
  uint32_t number;                               /* of the parked message */
  uint8_t sending, receiving, greeting, is_over; /* True while an op of that kind is under way */
  uint8_t open;                                  /* True if messages may go over it */
  uint8_t go;                                    /* True if the other side is still to be told so */
  uint8_t parked, more;                          /* a message came before its predecessors; it is a part of one */
  uint8_t end_sent, end_came;
  uint8_t finished; /* incoming: the final status was given to gRPC */
  uint8_t no_more;  /* gRPC has no further message */
} lane;

struct stream {
  hv_stream face; /* first: what core sees */
  hv_ring all, of_link;
  hv_loop *loop;
  hv_link *link;             /* of one that was opened here */
  lane *lanes[HV_LANES_MAX]; /* the first is the one that it was opened with */
  size_t n_lanes;
  uint8_t numbered; /* it may have several: messages have numbers */
  uint8_t token[sizeof((hv_grpc_lane *)0)->token];
  uint32_t next_out, next_in;
  hv_payload **pieces; /* of a message that is not whole yet */
  size_t n_pieces, pieces_size;
  hv_window *window;
  hv_stream_state state;
  uint64_t since_us;
  hv_grpc_message *queue[HV_STREAM_QUEUE];        /* waits to be sent */
  size_t sizes[HV_STREAM_QUEUE], first, n, bytes; /* bytes: with those under way */
  uint64_t pace;                                  /* bytes per second of its connection; 0: as it comes */
  uint8_t paced;                                  /* True once core chose a pace */
  uint8_t starved;                                /* stream_send returned HV_BUSY */
  uint8_t ending;
  lane *lost;    /* the first lane that failed: its call has the reason */
  hv_status why; /* reason if this side cancelled; else HV_OK */
  char why_text[HV_STREAM_TEXT];
};

/* ---- lanes.c ---- */

lane *hv_lane_new(stream *s); /* without a call yet. NULL: no memory, or too many lanes */
void hv_lane_free(lane *l);
void hv_lane_reads(lane *l);             /* incoming: its call has come; reads messages from now on */
size_t hv_lanes_wanted(const stream *s); /* how many connections one over its link should have */
void hv_lanes_pump(stream *s);           /* sends what waits on those that are free */
void hv_lanes_read_on(stream *s);        /* while there is room in the window */
void hv_lane_read_on(lane *l);           /* likewise */
void hv_lane_greet(lane *l);             /* incoming: sends gRPC's initial metadata before any message */
void hv_lane_say_no(lane *l, hv_status status, const char *text);
void hv_lanes_end(stream *s);       /* half-closes: this side sends no more */
int hv_lanes_idle(const stream *s); /* True if no op is under way and all calls have ended */
/* Incoming: a call that joins a stream of its peer's. It leaves its own stream, which is freed. 0: there is none that it could
 * join. */
int hv_lane_join(lane *l, const hv_grpc_lane *said);

/* ---- streams.c ---- */

void hv_stream_free(stream *s);
void hv_stream_drop_queue(stream *s); /* what waits to be sent */
void hv_stream_break_off(stream *s, hv_status why, const char *text);
/* Ends a stream whose message cannot be read: an incoming one with this status, an outgoing one by cancelling. */
void hv_stream_reject(stream *s, hv_status status, const char *text);
void hv_stream_close_if_done(stream *s);
/* Takes the message that came on a lane, without its first `skip` bytes. more: a part, others follow. A message that cannot be read
 * ends the stream. */
void hv_stream_take(lane *l, size_t skip, int more);
/* How fast its connections send, in even parts, and how much waits in them: on those that are there now. */
void hv_stream_set_sockets(stream *s);
void hv_stream_left(stream *s); /* a message was sent: there may be room again */

#endif
