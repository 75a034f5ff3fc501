/* What do bulk streams and the calls that carry them share?
 *
 * Room: net; private to streams.c and lanes.c. The hive thread only.
 */
#ifndef HV_NET_STREAM_INNER_H
#define HV_NET_STREAM_INNER_H

#include "net/transport/window.h"
#include "net/transport/world.h"

/* PIECE: over several lanes a message goes in pieces of so many bytes, so that it has not to wait for one of them alone; a peer's
 * may be as small as PIECE_MIN. */
enum {
  HV_STREAM_QUEUE = 256,
  HV_STREAM_QUEUE_BYTES = 2 << 20,
  HV_STREAM_PIECE = 64 << 10,
  HV_STREAM_PIECE_MIN = 16 << 10,
  HV_STREAM_PIECES_MAX = HV_GRPC_MESSAGE_MAX / HV_STREAM_PIECE_MIN + 2,
  HV_STREAM_TEXT = 512
};

/* WAITING for somebody to open one -> GREETING: its first message is awaited -> OPEN: core has it -> CLOSING: broken off or
 * refused. */
typedef enum hv_stream_state { WAITING, GREETING, OPEN, CLOSING, STATES } hv_stream_state;

#define HV_STREAM_MORE 0x80000000u /* in a number: the message goes on with the next */

typedef struct stream stream;

/* One gRPC call: all that a stream has, or one of its lanes. */
typedef struct lane {
  stream *s;
  hv_grpc_call *rpc;
  hv_caller *caller; /* of one that came in */
  hv_grpc_op sent, came, said_hello, over;
  size_t under_way;                              /* bytes */
  uint32_t number;                               /* of the message that is parked */
  uint8_t sending, receiving, greeting, is_over; /* is an op under way? */
  uint8_t open;                                  /* messages may go over it */
  uint8_t go;                                    /* that is to be told to the other side */
  uint8_t parked, more;                          /* a message has come, and those before it have not; it is a piece */
  uint8_t end_sent, end_came;
  uint8_t finished; /* incoming: the last word was given to gRPC */
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
  uint8_t paced;                                  /* it was chosen */
  uint8_t starved;                                /* stream_send said HV_BUSY */
  uint8_t ending;
  lane *lost;    /* the first that ended badly: it tells why */
  hv_status why; /* not HV_OK: we broke it off */
  char why_text[HV_STREAM_TEXT];
};

/* ---- lanes.c ---- */

lane *hv_lane_new(stream *s); /* its call is yet to be made. NULL: no memory, or too many */
void hv_lane_free(lane *l);
void hv_lane_reads(lane *l);             /* incoming: its call has come; from now on messages do */
size_t hv_lanes_wanted(const stream *s); /* how many connections one over its link should have */
void hv_lanes_pump(stream *s);           /* sends what waits on those that are free */
void hv_lanes_read_on(stream *s);        /* while there is room in the window */
void hv_lane_read_on(lane *l);           /* likewise */
void hv_lane_greet(lane *l);             /* incoming: says hello, before there is anything else to say */
void hv_lane_say_no(lane *l, hv_status status, const char *text);
void hv_lanes_end(stream *s);       /* no more from this side */
int hv_lanes_idle(const stream *s); /* 1: no op is under way, and all have ended */
/* Incoming: a call that joins a stream of its peer's. It leaves its own stream, which is freed. 0: there is none that it could
 * join. */
int hv_lane_join(lane *l, const hv_grpc_lane *said);

/* ---- streams.c ---- */

void hv_stream_free(stream *s);
void hv_stream_drop_queue(stream *s); /* what waits to be sent */
void hv_stream_break_off(stream *s, hv_status why, const char *text);
/* What came cannot be read: an incoming stream is told so, an outgoing one can only be broken off. */
void hv_stream_reject(stream *s, hv_status status, const char *text);
void hv_stream_close_if_done(stream *s);
/* The message that came on it, `skip` bytes left out; more: it is a piece, others follow. What cannot be read ends the stream. */
void hv_stream_take(lane *l, size_t skip, int more);
/* How fast its connections send, in even parts, and how much waits in them: on those that are there now. */
void hv_stream_set_sockets(stream *s);
void hv_stream_left(stream *s); /* a message has left: there may be room again */

#endif
