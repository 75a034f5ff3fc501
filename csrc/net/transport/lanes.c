#include "net/transport/stream_inner.h"

#include <string.h>

/* On a numbered stream, each message or part of one begins with its number, with HV_STREAM_MORE if the next one continues it. */
enum { NUMBER_BYTES = 4 };

/* The last frame of each side on each call: an empty header. A gRPC server has no other way to half-close. */
static const uint8_t end_frame[4];
/* The first frame of the dialling side on a further lane, after the other side's metadata: from now on the lane carries messages.
 */
static const uint8_t go_frame[4] = {0xff, 0xff, 0xff, 0xff};

static void was_sent(hv_grpc_op *op, int ok);
static void came(hv_grpc_op *op, int ok);
static void said_hello(hv_grpc_op *op, int ok);
static void was_over(hv_grpc_op *op, int ok);

static void makes_way(hv_slip *slip) {
  stream *s = HV_HOLDER(lane, slip, slip)->s;
  if (s->state == GREETING)
    hv_stream_refuse(s, HV_BUSY, "too many streams wait for their first message: try again later");
}

lane *hv_lane_new(stream *s) {
  lane *l = s->n_lanes < HV_LANES_MAX ? hv_mem_zalloc(s->loop->mem, sizeof *l) : NULL;
  if (!l)
    return NULL;
  l->s = s;
  hv_slip_init(&l->slip, makes_way);
  l->sent.done = was_sent;
  l->came.done = came;
  l->said_hello.done = said_hello;
  l->over.done = was_over;
  l->open = s->n_lanes == 0;
  if (s->link && s->n_lanes)
    s->loop->n_lanes++;
  s->lanes[s->n_lanes++] = l;
  return l;
}

void hv_lane_reads(lane *l) {
  l->came.done = came;
}

static void leave(lane *l) {
  stream *s = l->s;
  size_t i = 0;
  while (s->lanes[i] != l)
    i++;
  memmove(&s->lanes[i], &s->lanes[i + 1], (s->n_lanes - i - 1) * sizeof *s->lanes);
  s->n_lanes--;
}

void hv_lane_free(lane *l) {
  stream *s = l->s;
  leave(l);
  if (s->link && s->n_lanes)
    s->loop->n_lanes--;
  hv_callers_leave(&s->loop->callers, &l->slip);
  hv_grpc_call_free(l->rpc);
  hv_mem_free(l);
}

static int is_idle(const lane *l) {
  return l->is_over && !l->sending && !l->receiving && !l->greeting;
}

int hv_lanes_idle(const stream *s) {
  for (size_t i = 0; i < s->n_lanes; i++)
    if (!is_idle(s->lanes[i]))
      return 0;
  return 1;
}

/* After an operation has ended: frees a further lane that failed before it was open, and reports to the stream. */
static void close_if_done(lane *l) {
  stream *s = l->s;
  if (!l->open && l != s->lanes[0] && is_idle(l))
    hv_lane_free(l);
  s->reports->op_ended(s);
}

static void was_over(hv_grpc_op *op, int ok) {
  (void)ok;
  lane *l = HV_HOLDER(lane, over, op);
  stream *s = l->s;
  hv_cause cause;
  char detail[HV_GRPC_TEXT_MAX];
  int well = l->end_sent && l->end_came && (!s->link || hv_grpc_call_result(l->rpc, &cause, detail) == HV_OK);
  l->is_over = 1;
  if (!well && !s->lost && (l->open || l == s->lanes[0])) {
    s->lost = l;
    hv_stream_drop_queue(s);
    for (size_t i = 0; i < s->n_lanes; i++)
      if (s->lanes[i] != l)
        hv_grpc_call_cancel(s->lanes[i]->rpc);
  }
  close_if_done(l);
}

/* ---- sending ---- */

void hv_lanes_set_sockets(stream *s) {
  hv_addr at;
  hv_sockets *sockets = &s->loop->sockets;
  if ((s->n_lanes == 1 && !s->paced) || s->asking)
    return;
  for (size_t i = 0; i < (s->link ? 1 : s->n_lanes); i++) { /* all outgoing lanes have one remote address */
    hv_grpc_call_from(s->lanes[i]->rpc, &at);
    if (s->n_lanes > 1)
      hv_sockets_short(sockets, &at, HV_STREAM_PIECE, s->loop->now_us);
    if (s->paced)
      hv_sockets_pace(sockets, &at, s->pace / s->n_lanes, s->loop->now_us);
  }
}

static hv_grpc_message *short_frame(stream *s, const uint8_t frame[4]) {
  hv_grpc_message *message = hv_grpc_message_new(s->loop->grpc, hv_span_of(frame, 4), NULL);
  if (!message)
    hv_stream_break_off(s, HV_NOMEM, "out of memory");
  return message;
}

static void pump(lane *l) {
  stream *s = l->s;
  hv_grpc_message *message = NULL;
  int last = 0;
  if (l->sending || l->is_over || l->finished || s->state == CLOSING || s->lost)
    return;
  if (l->go) {
    l->go = 0;
    l->open = 1;
    message = short_frame(s, go_frame);
  } else if (!l->open) {
    return;
  } else if (s->n) {
    if (!hv_bulk_may_send(&s->loop->bulk, &s->of_bulk, s->sizes[s->first], hv_clock_us()))
      return;
    message = s->queue[s->first];
    l->under_way = s->sizes[s->first];
    s->first = (s->first + 1) % HV_STREAM_QUEUE;
    s->n--;
  } else if (s->ending && !l->end_sent) {
    message = short_frame(s, end_frame);
    last = l->end_sent = 1;
  } else if (!s->link && l->end_sent && l->end_came) {
    hv_lane_finish(l, HV_OK, "");
    return;
  }
  if (message)
    l->sending = (uint8_t)hv_grpc_call_send(l->rpc, message, last && s->link, &l->sent);
}

void hv_lanes_pump(stream *s) {
  for (size_t i = 0; i < s->n_lanes; i++)
    pump(s->lanes[i]);
}

void hv_lanes_end(stream *s) {
  s->ending = 1;
  for (size_t i = 0; i < s->n_lanes && s->link; i++)
    if (!s->lanes[i]->open && !s->lanes[i]->go)
      hv_grpc_call_cancel(s->lanes[i]->rpc); /* it carried no message yet */
  hv_lanes_pump(s);
}

static void was_sent(hv_grpc_op *op, int ok) {
  lane *l = HV_HOLDER(lane, sent, op);
  stream *s = l->s;
  l->sending = 0;
  s->bytes -= l->under_way;
  hv_bulk_left(&s->loop->bulk, &s->of_bulk, l->under_way, hv_clock_us());
  l->under_way = 0;
  if (ok) {
    hv_lanes_pump(s);
    s->reports->sent(s);
  }
  close_if_done(l);
}

/* ---- receiving ---- */

void hv_lane_read_on(lane *l) {
  stream *s = l->s;
  if (!l->receiving && !l->greeting && !l->no_more && !l->is_over && !l->parked && s->state != CLOSING &&
      (s->n_pieces ||
       hv_window_open(s->window))) /* an incomplete message is read to its end, because core cannot release it before */
    l->receiving = (uint8_t)hv_grpc_call_recv(l->rpc, &l->came);
}

void hv_lanes_read_on(stream *s) {
  for (size_t i = 0; i < s->n_lanes; i++)
    hv_lane_read_on(s->lanes[i]);
}

void hv_lane_greet(lane *l) {
  if (!l->sending)
    l->sending = (uint8_t)hv_grpc_call_send(l->rpc, NULL, 0, &l->sent);
}

static lane *next_in_turn(stream *s) {
  for (size_t i = 0; i < s->n_lanes; i++)
    if (s->lanes[i]->parked && s->lanes[i]->number == s->next_in)
      return s->lanes[i];
  return NULL;
}

/* Parks the message of a lane in gRPC's buffer until its predecessors have come on other lanes; the lane reads nothing meanwhile.
 */
static void take_numbered(lane *l, hv_span number) {
  stream *s = l->s;
  uint32_t said = (uint32_t)hv_le_get(number.data, NUMBER_BYTES);
  l->number = said & ~HV_STREAM_MORE;
  l->more = (said & HV_STREAM_MORE) != 0;
  l->parked = 1;
  for (lane *next; s->state != CLOSING && (next = next_in_turn(s));) {
    next->parked = 0;
    s->next_in = (s->next_in + 1) & ~HV_STREAM_MORE;
    s->reports->came(next, NUMBER_BYTES, next->more);
  }
}

static int is_frame(hv_span bytes, size_t size, const uint8_t frame[4]) {
  return size == 4 && memcmp(bytes.data, frame, 4) == 0;
}

static void take(lane *l, size_t size) {
  stream *s = l->s;
  hv_span bytes;
  hv_status status = l->end_came ? HV_MALFORMED : hv_grpc_call_bytes(l->rpc, NUMBER_BYTES, &s->loop->scratch, &bytes);
  if (status == HV_OK && l->open && s->state == OPEN && is_frame(bytes, size, end_frame)) {
    l->end_came = 1;
  } else if (status == HV_OK && !l->open && !s->link && is_frame(bytes, size, go_frame)) {
    l->open = 1;
    hv_sockets_forget(&s->loop->sockets);
    hv_lanes_set_sockets(s);
  } else if (status == HV_OK && !s->numbered) {
    s->reports->came(l, 0, 0);
  } else if (status == HV_OK && l->open && size > NUMBER_BYTES) {
    take_numbered(l, bytes);
  } else {
    hv_stream_reject(s, status == HV_OK ? HV_MALFORMED : status, "cannot read the message on the stream");
  }
}

static void came(hv_grpc_op *op, int ok) {
  lane *l = HV_HOLDER(lane, came, op);
  stream *s = l->s;
  int64_t size = ok ? hv_grpc_call_size(l->rpc) : -1;
  if (size < 0)
    l->no_more = 1;
  else if (s->state != CLOSING)
    take(l, (size_t)size);
  l->receiving = 0;
  if (l->no_more && !l->end_came && !s->link && l->open)
    hv_stream_break_off(s, HV_CLOSED, "the other side ended the stream early");
  hv_lanes_pump(s);
  hv_lanes_read_on(s);
  close_if_done(l);
}

/* ---- several lanes ---- */

size_t hv_lanes_wanted(const stream *s) {
  size_t n = s->loop->lanes ? s->loop->lanes : s->link->lossy ? HV_LOOP_LANES : 1;
  size_t room = s->loop->n_lanes < HV_LOOP_LANES_MAX ? HV_LOOP_LANES_MAX - s->loop->n_lanes : 0;
  return n <= room + 1 ? n : room + 1;
}

/* Opens one more lane. If that fails, the stream uses the lanes that it has. */
static void open_one(stream *s, size_t place) {
  hv_grpc_lane join = {.joins = 1};
  hv_grpc_channel *channel = hv_link_bulk(s->link, &s->face.peer, place);
  lane *l = channel ? hv_lane_new(s) : NULL;
  if (l)
    l->channel = channel;
  memcpy(join.token, s->token, sizeof join.token);
  if (l && (l->rpc = hv_grpc_call_new(channel, HV_GRPC_BULK, 1)) != NULL)
    hv_grpc_call_say_lane(l->rpc, &join);
  if (l && (!l->rpc || !hv_grpc_call_end(l->rpc, &l->over))) {
    hv_lane_free(l);
    return;
  }
  if (l) {
    l->sending = (uint8_t)hv_grpc_call_send(l->rpc, NULL, 0, &l->sent);
    l->greeting = (uint8_t)hv_grpc_call_hello(l->rpc, &l->said_hello);
  }
}

/* The other side's initial metadata has come, with its identity. If ok is 0, the end of the call has the reason. */
static void said_hello(hv_grpc_op *op, int ok) {
  lane *l = HV_HOLDER(lane, said_hello, op);
  stream *s = l->s;
  hv_peer_id peer;
  hv_status status;
  char text[HV_WORLD_TEXT_MAX];
  l->greeting = 0;
  if (ok && hv_grpc_call_peer(l->rpc, &peer) == HV_OK) {
    if (hv_link_meet(s->link, &peer, text) != HV_OK) {
      hv_stream_break_off(s, HV_DENIED, text);
    } else if ((status = hv_link_judge_called(s->link, l->rpc, &s->apart, text)) != HV_OK) {
      hv_stream_break_off(s, status, text);
    } else if (l == s->lanes[0]) {
      s->face.peer = peer;
      for (size_t i = 1, n = s->numbered && !s->ending ? hv_lanes_wanted(s) : 0; i < n && s->state == OPEN; i++)
        open_one(s, i);
    } else if (!s->ending && s->state == OPEN) {
      l->go = 1;
      hv_sockets_forget(&s->loop->sockets);
    }
  }
  hv_lanes_set_sockets(s); /* the connection is up only now */
  hv_lanes_pump(s);
  hv_lane_read_on(l);
  close_if_done(l);
}

static stream *find_in(hv_ring *streams, const hv_peer_id *peer, const uint8_t *token) {
  for (hv_ring *at = streams->next; at != streams; at = at->next) {
    stream *s = HV_HOLDER(stream, all, at);
    if (s->numbered && !s->link && s->state != CLOSING && !s->lost && hv_peer_equal(&s->face.peer, peer) &&
        memcmp(s->token, token, sizeof s->token) == 0)
      return s;
  }
  return NULL;
}

int hv_lane_join(lane *l, const hv_grpc_lane *said) {
  stream *alone = l->s;
  hv_loop *loop = alone->loop;
  stream *s = find_in(&loop->streams_open, &alone->face.peer, said->token);
  if (!s)
    s = find_in(&loop->streams_greeting, &alone->face.peer, said->token);
  if (!s || s->n_lanes == HV_LANES_MAX)
    return 0;
  leave(l);
  hv_callers_set(&loop->callers, &l->slip, HV_SLIP_STAYS); /* it goes with its stream */
  l->s = s;
  l->open = 0;
  s->lanes[s->n_lanes++] = l;
  hv_lane_greet(l);
  hv_lane_read_on(l);
  return 1;
}
