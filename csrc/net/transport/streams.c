#include "core/peers/contact.h"
#include "net/transport/stream_inner.h"

#include <stdio.h>
#include <string.h>

enum { ACCEPTS = 8, WINDOW_BYTES = 4 << 20, WAITING_BYTES = 256 << 10 /* of a stream that waits, of a peer that is not trusted */ };

static void accepted(hv_grpc_op *op, int ok);
static void room_again(hv_note *note);
static void message_came(lane *l, size_t skip, int more);
static void message_sent(stream *s);
static void close_if_done(stream *s);

static const hv_stream_reports reports = {.came = message_came, .sent = message_sent, .op_ended = close_if_done};

static void link_dropped(hv_link_use *use) {
  stream *s = HV_HOLDER(stream, of_link, use);
  hv_stream_break_off(
      s, HV_CANCELLED,
      s->loop->phase >= HV_PHASE_ENDING
          ? "this node is shutting down"
          : "the connection was closed, because this machine's network or the peer's address has changed: try again");
}

static void has_turn(hv_bulk_place *place) {
  hv_lanes_pump(HV_HOLDER(stream, of_bulk, place));
}

static stream *make(hv_loop *loop) {
  stream *s = hv_mem_zalloc(loop->mem, sizeof *s);
  if (!s)
    return NULL;
  s->loop = loop;
  hv_ring_init(&s->all);
  hv_ring_init(&s->of_link.ring);
  hv_bulk_place_init(&s->of_bulk, has_turn);
  s->of_link.dropped = link_dropped;
  s->reports = &reports;
  s->last_held = &s->held;
  s->window = hv_window_new(loop->mem, WINDOW_BYTES, &loop->inbox, s, room_again);
  if (s->window && hv_lane_new(s))
    return s;
  hv_window_leave(s->window);
  hv_mem_free(s);
  return NULL;
}

static void drop_pieces(stream *s) {
  while (s->n_pieces)
    hv_payload_release(s->pieces[--s->n_pieces]);
  s->pieces_size = 0;
}

/* A message that waits until the peer has said what it speaks. */
typedef struct held {
  struct held *next;
  hv_payload *payload;
  size_t size;
  uint8_t bytes[]; /* by hv_wire_write */
} held;

static void drop_held(stream *s) {
  for (held *h; (h = s->held); hv_mem_free(h)) {
    s->held = h->next;
    hv_payload_release(h->payload);
  }
  s->last_held = &s->held;
}

static hv_status hold(stream *s, const hv_msg *header, hv_payload *payload) {
  hv_buf *out = &s->loop->outgoing;
  out->size = 0;
  hv_status status = hv_wire_write(header, s->face.version, NULL, out);
  held *h = status == HV_OK ? hv_mem_alloc(s->loop->mem, sizeof *h + out->size) : NULL;
  if (!h)
    return status == HV_OK ? HV_NOMEM : status;
  *h = (held){.payload = payload ? hv_payload_keep(payload) : NULL, .size = out->size};
  memcpy(h->bytes, out->data, out->size);
  *s->last_held = h;
  s->last_held = &h->next;
  s->bytes += out->size + (payload ? payload->size : 0);
  return HV_OK;
}

void hv_streams_pace(hv_env *env, hv_stream *face, uint64_t rate) {
  stream *s = (stream *)face;
  (void)env;
  if (s->pace == rate)
    return;
  s->pace = rate;
  s->paced = 1;
  hv_lanes_set_sockets(s);
}

static void stream_free(stream *s) {
  hv_stream_drop_queue(s);
  drop_pieces(s);
  hv_mem_free(s->pieces);
  drop_held(s);
  hv_ring_remove(&s->all);
  hv_ring_remove(&s->of_link.ring);
  hv_bulk_leave(&s->of_bulk);
  hv_window_leave(s->window);
  while (s->n_lanes)
    hv_lane_free(s->lanes[s->n_lanes - 1]);
  if (s->link)
    hv_link_release(s->link);
  hv_mem_free(s);
}

/* ---- the end ---- */

static hv_status how_it_ended(stream *s, hv_cause *cause, char text[HV_WORLD_TEXT_MAX]) {
  hv_status status = HV_OK;
  char detail[HV_GRPC_TEXT_MAX];
  snprintf(text, HV_WORLD_TEXT_MAX, "%s", s->why_text);
  *cause = s->why == HV_DENIED ? HV_CAUSE_OTHER_PEER : HV_CAUSE_OTHER; /* lanes.c uses HV_DENIED for another peer only */
  if (s->apart)
    *cause = s->apart;
  if (s->why != HV_OK || !s->lost)
    return s->why;
  hv_cause seen;
  hv_status told = hv_grpc_call_result(s->lost->rpc, &seen, detail);
  int by_peer = s->link &&
                (told == HV_CANCELLED || told == HV_NOT_FOUND); /* the peer cancelled the stream, or refused a lane that joins it */
  if (s->link && !by_peer)
    status = hv_link_explain(s->link, s->lost->channel, s->lost->rpc, HV_OK, 0, cause, text);
  if (status == HV_VERSION)
    hv_spoken_refused(&s->loop->env, &s->face.peer, s->face.version);
  if (status == HV_OK) {
    snprintf(text, HV_WORLD_TEXT_MAX, "the other side ended the stream early");
    *cause = by_peer ? HV_CAUSE_OTHER : HV_CAUSE_CONNECTION_LOST;
    status = by_peer ? HV_CANCELLED : HV_CLOSED;
  }
  return status;
}

static void close_if_done(stream *s) {
  if (!hv_lanes_idle(s))
    return;
  char text[HV_WORLD_TEXT_MAX];
  int began = s->lanes[0]->rpc != NULL;
  if (s->pace && began)
    hv_streams_pace(&s->loop->env, &s->face, 0);
  if (s->link && began && s->loop->phase < HV_PHASE_ENDING)
    hv_link_measure(s->link, s->lanes[0]->rpc);
  hv_event event = {.kind = HV_EVENT_STREAM_CLOSED, .stream = &s->face, .text = text, .peer = s->face.peer};
  event.status = how_it_ended(s, &event.cause, text);
  if (s->face.on) {
    s->loop->n_streams--;
    hv_loop_deliver(s->loop, &event);
  }
  stream_free(s);
}

/* ---- sending ---- */

/* Limit on the bytes of the queue and of the messages being sent. */
static size_t room_of(const stream *s) {
  return HV_STREAM_QUEUE_BYTES + (s->n_lanes - 1) * HV_STREAM_QUEUE_BYTES / 2;
}

/* Encodes the header into loop->outgoing. */
static hv_status write_head(stream *s, const hv_msg *header) {
  static const uint8_t number[4]; /* set by push_frame */
  s->loop->outgoing.size = 0;
  hv_status status = s->numbered ? hv_buf_append(&s->loop->outgoing, number, sizeof number) : HV_OK;
  const hv_versions *speaks = s->told ? NULL : &s->loop->spoken.mine;
  return status == HV_OK ? hv_wire_write_bulk(header, s->face.version, speaks, &s->loop->outgoing) : status;
}

/* Queues one frame: the bytes in loop->outgoing, then the payload. */
static hv_status push_frame(stream *s, hv_payload *payload, uint32_t more) {
  const hv_buf *head = &s->loop->outgoing;
  if (s->numbered)
    hv_le_put(head->data, s->next_out | more, sizeof s->next_out);
  hv_grpc_message *message = hv_grpc_message_new(s->loop->grpc, hv_span_of(head->data, head->size), payload);
  if (!message)
    return HV_NOMEM;
  size_t at = (s->first + s->n++) % HV_STREAM_QUEUE;
  s->queue[at] = message;
  s->sizes[at] = head->size + (payload ? payload->size : 0);
  s->bytes += s->sizes[at];
  s->of_bulk.of = s->face.on ? s->face.on->turn : HV_TURN_ANY;
  hv_bulk_waits(&s->loop->bulk, &s->of_bulk, s->sizes[at], hv_clock_us());
  s->next_out = (s->next_out + 1) & ~HV_STREAM_MORE;
  return HV_OK;
}

/* Queues a message in parts. If memory is short after the first part, the stream is broken off. */
static hv_status push_pieces(stream *s, hv_payload *payload) {
  hv_status status = HV_OK;
  for (size_t at = 0; at < payload->size && status == HV_OK; at += HV_STREAM_PIECE) {
    size_t size = payload->size - at < HV_STREAM_PIECE ? payload->size - at : HV_STREAM_PIECE;
    hv_payload *piece = hv_payload_cut(s->loop->mem, payload, at, size);
    status = piece ? push_frame(s, piece, at + size < payload->size ? HV_STREAM_MORE : 0) : HV_NOMEM;
    hv_payload_release(piece);
    s->loop->outgoing.size = sizeof s->next_out; /* only the first part has the header */
  }
  if (status != HV_OK)
    hv_stream_break_off(s, status, "out of memory");
  return status;
}

static hv_status push(stream *s, hv_payload *payload) {
  return s->n_lanes > 1 && payload && payload->size > HV_STREAM_PIECE ? push_pieces(s, payload) : push_frame(s, payload, 0);
}

static void message_sent(stream *s) {
  if (s->starved && s->state == OPEN && !s->lost && s->n <= HV_STREAM_QUEUE / 2 &&
      s->bytes <= room_of(s) - HV_STREAM_QUEUE_BYTES / 2) {
    s->starved = 0;
    hv_event event = {.kind = HV_EVENT_STREAM_READY, .stream = &s->face, .peer = s->face.peer};
    hv_loop_deliver(s->loop, &event);
  }
}

hv_status hv_streams_send(hv_env *env, hv_stream *face, const hv_msg *header, hv_payload *payload) {
  hv_loop *loop = env->world;
  stream *s = (stream *)face;
  if (loop->phase >= HV_PHASE_ENDING || s->state == CLOSING || s->lost || s->ending)
    return HV_CLOSED;
  if (payload && payload->size > HV_BULK_PAYLOAD_MAX)
    return HV_TOO_LARGE;
  if (s->n + HV_BULK_PAYLOAD_MAX / HV_STREAM_PIECE >= HV_STREAM_QUEUE || s->bytes >= room_of(s)) {
    s->starved = 1;
    return HV_BUSY;
  }
  if (s->asking)
    return hold(s, header, payload);
  hv_status status = write_head(s, header);
  if (status == HV_OK)
    status = push(s, payload);
  if (status == HV_OK) {
    s->told = 1;
    hv_lanes_pump(s);
  }
  return status;
}

void hv_streams_finish(hv_env *env, hv_stream *face) {
  (void)env;
  hv_lanes_end((stream *)face);
}

void hv_streams_cancel(hv_env *env, hv_stream *face) {
  (void)env;
  hv_stream_break_off((stream *)face, HV_CANCELLED, "cancelled");
}

/* ---- receiving ---- */

static void room_again(hv_note *note) {
  hv_window *window = (hv_window *)note;
  if (window->owner)
    hv_lanes_read_on(window->owner);
  hv_window_note_done(window);
}

void hv_streams_wait(hv_env *env, hv_stream *face, int waits) {
  stream *s = (stream *)face;
  (void)env;
  if (s->link || s->lanes[0]->slip.tier == HV_TIER_TRUSTED)
    return;
  hv_window_resize(s->window, waits ? WAITING_BYTES : WINDOW_BYTES);
  if (!waits && s->state == OPEN)
    hv_lanes_read_on(s);
}

static void deliver_opened(stream *s, hv_event *event) {
  hv_loop *loop = s->loop;
  event->kind = HV_EVENT_STREAM_OPENED;
  hv_stream_move(s, OPEN);
  for (size_t i = 0; i < s->n_lanes; i++)
    hv_callers_give(&loop->callers, &s->lanes[i]->slip, HV_CALLER_BYTES);
  hv_callers_set(&loop->callers, &s->lanes[0]->slip, HV_SLIP_STAYS);
  hv_ring_remove(&s->all);
  hv_ring_add(&loop->streams_open, &s->all);
  hv_loop_deliver(loop, event);
  if (s->face.on)
    loop->n_streams++;
  else
    hv_stream_refuse(s, HV_REFUSED, "the peer takes no such stream");
  if (s->state == OPEN)
    hv_lane_greet(s->lanes[0]);
}

/* Passes a message with a decoded header to core. */
static hv_status deliver(stream *s, const hv_wire_msg *header, hv_payload *payload) {
  hv_event event = {
      .kind = HV_EVENT_STREAM_DATA, .stream = &s->face, .msg = &header->msg, .peer = s->face.peer, .payload = payload};
  if (payload && (payload->size > HV_BULK_PAYLOAD_MAX || s->state == GREETING))
    return HV_MALFORMED;
  if (s->state == GREETING)
    deliver_opened(s, &event);
  else
    hv_loop_deliver(s->loop, &event);
  return HV_OK;
}

/* Reads a header. All messages of a stream are written in the version of the first one. The first message of each side also tells
 * what that side speaks. */
static hv_status read_header(stream *s, hv_span bytes, hv_wire_msg *out, char text[HV_STREAM_TEXT]) {
  const hv_versions *mine = &s->loop->spoken.mine;
  int opens = s->state == GREETING;
  hv_versions of_stream = hv_versions_plain(s->face.version);
  hv_status status = hv_wire_read(bytes, opens ? mine : &of_stream, s->loop->mem, HV_WIRE_BUDGET, out);
  int told = status == HV_OK || status == HV_VERSION;
  if (told && !s->heard)
    hv_spoken_learn(&s->loop->env, &s->face.peer, &out->speaks);
  s->heard = 1;
  if (status == HV_OK && opens)
    s->face.version = out->version;
  if (status == HV_VERSION && opens)
    hv_versions_refuse(mine, &out->speaks, text);
  else if (status == HV_VERSION)
    snprintf(text, HV_STREAM_TEXT, "the peer sent a message in version %u of the protocol on a stream of version %u", out->version,
             s->face.version);
  return status;
}

/* The message that a lane has received as a payload, counted in the window. *out is NULL if it has no payload. */
static hv_status take_bytes(lane *l, size_t skip, hv_payload **out) {
  stream *s = l->s;
  size_t size = (size_t)hv_grpc_call_size(l->rpc);
  *out = NULL;
  if (size == skip)
    return HV_OK;
  hv_window_hold(s->window, size);
  *out = hv_grpc_call_payload(l->rpc, skip, hv_window_release, s->window);
  if (!*out)
    hv_window_release(s->window, size);
  return *out ? HV_OK : HV_NOMEM;
}

static hv_status take_frame(lane *l, size_t skip, char text[HV_STREAM_TEXT]) {
  stream *s = l->s;
  hv_span bytes;
  hv_payload *payload;
  size_t header_size = 0, head = skip + 4;
  hv_wire_msg header = {0};
  hv_status status = hv_grpc_call_bytes(l->rpc, head, &s->loop->scratch, &bytes);
  if (status == HV_OK)
    status = hv_wire_bulk_header(bytes.data + skip, &header_size);
  if (status == HV_OK)
    status = hv_grpc_call_bytes(l->rpc, head + header_size, &s->loop->scratch, &bytes);
  if (status == HV_OK)
    status = read_header(s, hv_span_of(bytes.data + head, header_size), &header, text);
  if (status != HV_OK)
    return status;
  status = take_bytes(l, head + header_size, &payload);
  if (status == HV_OK)
    status = deliver(s, &header, payload);
  hv_payload_release(payload);
  hv_wire_release(&header);
  return status;
}

/* ---- messages in pieces ---- */

static hv_status take_whole(stream *s, hv_payload *whole, char text[HV_STREAM_TEXT]) {
  uint8_t first[4], *at;
  size_t header_size = 0;
  hv_wire_msg header = {0};
  s->loop->scratch.size = 0;
  if (hv_payload_read(whole, 0, first, sizeof first) != sizeof first || hv_wire_bulk_header(first, &header_size) != HV_OK)
    return HV_MALFORMED;
  hv_status status = hv_buf_reserve(&s->loop->scratch, header_size, &at);
  if (status == HV_OK && hv_payload_read(whole, sizeof first, at, header_size) != header_size)
    status = HV_MALFORMED;
  if (status == HV_OK)
    status = read_header(s, hv_span_of(at, header_size), &header, text);
  if (status != HV_OK)
    return status;
  size_t head = sizeof first + header_size;
  hv_payload *payload = whole->size > head ? hv_payload_cut(s->loop->mem, whole, head, whole->size - head) : NULL;
  status = payload || whole->size == head ? deliver(s, &header, payload) : HV_NOMEM;
  hv_payload_release(payload);
  hv_wire_release(&header);
  return status;
}

static hv_status take_piece(lane *l, size_t skip, int more, char text[HV_STREAM_TEXT]) {
  stream *s = l->s;
  size_t size = (size_t)hv_grpc_call_size(l->rpc) - skip;
  if ((more && size < HV_STREAM_PIECE_MIN) || s->pieces_size + size > HV_GRPC_MESSAGE_MAX || s->state != OPEN)
    return HV_MALFORMED;
  if (!s->pieces && !(s->pieces = hv_mem_array(s->loop->mem, HV_STREAM_PIECES_MAX, sizeof *s->pieces)))
    return HV_NOMEM;
  hv_status status = size ? take_bytes(l, skip, &s->pieces[s->n_pieces]) : HV_MALFORMED;
  if (status != HV_OK)
    return status;
  s->n_pieces++;
  s->pieces_size += size;
  if (more)
    return HV_OK;
  hv_payload *whole = hv_payload_join(s->loop->mem, s->pieces, s->n_pieces);
  drop_pieces(s);
  status = whole ? take_whole(s, whole, text) : HV_NOMEM;
  hv_payload_release(whole);
  return status;
}

static void message_came(lane *l, size_t skip, int more) {
  char text[HV_STREAM_TEXT] = "cannot read the message on the stream";
  hv_status status = more || l->s->n_pieces ? take_piece(l, skip, more, text) : take_frame(l, skip, text);
  if (status != HV_OK)
    hv_stream_reject(l->s, status, text);
}

/* ---- opening ---- */

/* Creates the call of an outgoing stream, and queues the first message. If its end is awaited then, the lane is not over. */
static hv_status begin(stream *s, const hv_msg *first) {
  lane *l = s->lanes[0];
  hv_grpc_lane token = {0};
  s->numbered = s->face.on->heavy && hv_lanes_wanted(s) > 1;
  l->channel = s->face.on->heavy ? hv_link_bulk(s->link, &s->face.peer, 0) : s->link->channel;
  hv_status status = write_head(s, first);
  if (status == HV_OK && (!l->channel || !(l->rpc = hv_grpc_call_new(l->channel, HV_GRPC_BULK, 1))))
    status = HV_NOMEM;
  if (status != HV_OK)
    return status;
  if (s->numbered) {
    hv_random(s->token, sizeof s->token);
    memcpy(token.token, s->token, sizeof s->token);
    hv_grpc_call_say_lane(l->rpc, &token);
  }
  status = push(s, NULL);
  s->told = 1;
  if (status != HV_OK)
    return status;
  l->is_over = !hv_grpc_call_end(l->rpc, &l->over);
  return l->is_over ? HV_INTERNAL : HV_OK;
}

static void run(stream *s) {
  lane *l = s->lanes[0];
  hv_lanes_pump(s);
  l->greeting = (uint8_t)hv_grpc_call_hello(l->rpc, &l->said_hello);
}

/* Queues what was held, in the version of the stream; the first message begins it. */
static hv_status send_held(stream *s) {
  hv_loop *loop = s->loop;
  hv_status status = HV_OK;
  s->bytes = 0;
  for (held *h = s->held; h && status == HV_OK; h = h->next) {
    hv_wire_msg msg;
    status = hv_wire_read(hv_span_of(h->bytes, h->size), &loop->spoken.mine, loop->mem, HV_WIRE_BUDGET, &msg);
    if (status != HV_OK)
      break;
    status = h == s->held ? begin(s, &msg.msg) : write_head(s, &msg.msg);
    if (status == HV_OK && h != s->held)
      status = push(s, h->payload);
    hv_wire_release(&msg);
  }
  drop_held(s);
  return status;
}

/* Begins the stream in the version that is right by what the peer has answered. */
static hv_status begin_met(stream *s, const hv_event *event) {
  s->face.version = event->status == HV_OK ? hv_spoken_choose(&s->loop->env, &event->peer, NULL) : 0;
  if (!s->face.version)
    return event->status == HV_OK ? HV_VERSION : event->status;
  s->face.peer = event->peer;
  return send_held(s);
}

/* The peer was asked for its versions: begins the stream, or ends it. */
static void met(hv_call *call, const hv_event *event) {
  stream *s = call->owner;
  s->asking = 0;
  hv_status status = s->state == CLOSING ? HV_CANCELLED : begin_met(s, event);
  if (status == HV_OK) {
    run(s);
    message_sent(s); /* core may send more now */
    return;
  }
  hv_stream_break_off(s, status, event->text[0] ? event->text : hv_status_text(status));
  close_if_done(s);
}

/* This node does not know in which version to write to the peer: the stream has no gRPC call until it has asked. */
static hv_status meet(stream *s, const hv_target *to, const hv_msg *first) {
  enum { PATIENCE_MS = 10000 };
  hv_status status = hold(s, first, NULL);
  s->asking = 1;
  s->lanes[0]->is_over = 1;
  s->meets = (hv_call){.done = met, .owner = s, .to = *to, .timeout_ms = PATIENCE_MS};
  return status == HV_OK ? hv_calls_meet(s->loop, &s->meets) : status;
}

hv_status hv_streams_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                          hv_stream **out) {
  hv_loop *loop = env->world;
  int sure;
  uint32_t version = hv_spoken_choose(env, &to->id, &sure);
  if (loop->phase >= HV_PHASE_ENDING || !version)
    return version ? HV_CLOSED : HV_VERSION;
  stream *s = make(loop);
  if (!s)
    return HV_NOMEM;
  s->state = OPEN;
  s->face = (hv_stream){.on = on, .owner = owner, .peer = to->id, .version = version};
  hv_status status = hv_link_get(loop, to, &s->link);
  if (status == HV_OK)
    status = sure ? begin(s, first) : meet(s, to, first);
  if (status != HV_OK) {
    stream_free(s);
    return status;
  }
  hv_ring_add(&loop->streams_open, &s->all);
  hv_ring_add(&s->link->streams, &s->of_link.ring);
  loop->n_streams++;
  if (sure)
    run(s);
  *out = &s->face;
  return HV_OK;
}

/* An incoming call of a caller that is counted: opens a stream, or joins another one as a lane. True: the lane has left `s`. */
static int take_in(stream *s, lane *l, const hv_addr *from) {
  hv_grpc_lane said;
  hv_calls_know(s->loop, &l->slip, from);
  hv_status status = hv_grpc_call_lane(l->rpc, &said);
  if (status == HV_MALFORMED) {
    hv_stream_refuse(s, status, "the header hv-lane-bin cannot be read");
  } else if (status == HV_OK && said.joins) {
    if (hv_lane_join(l, &said))
      return 1;
    hv_stream_refuse(s, HV_NOT_FOUND, "there is no such stream");
  } else {
    s->numbered = status == HV_OK;
    if (s->numbered)
      memcpy(s->token, said.token, sizeof s->token);
    hv_lane_read_on(l);
  }
  return 0;
}

static int take_place(lane *l) {
  hv_callers *callers = &l->s->loop->callers;
  if (!hv_callers_take_place(callers, &l->slip, HV_CALLER_STREAMS, 1)) {
    hv_callers_leave(callers, &l->slip);
    return 0;
  }
  hv_callers_set(callers, &l->slip, HV_SLIP_GREETS);
  return 1;
}

/* The caller is no member of this closed swarm. */
static void turn_away(stream *s, lane *l, hv_cause cause, const hv_membership *shown) {
  char text[HV_MSG_TEXT_MAX];
  hv_callers_leave(&s->loop->callers, &l->slip);
  hv_admission_refuse(cause, shown, hv_clock_unix_s(), text);
  hv_grpc_call_say_cause(l->rpc, cause);
  hv_stream_refuse(s, HV_NOT_ADMITTED, text);
}

static void greet(stream *s) {
  lane *l = s->lanes[0];
  hv_addr from;
  hv_membership shown;
  hv_cause apart;
  hv_grpc_call_from(l->rpc, &from);
  s->face.network = hv_contact_network(&from);
  if (hv_grpc_call_peer(l->rpc, &s->face.peer) != HV_OK) {
    hv_stream_refuse(s, HV_DENIED, "the caller has no identity: it sent no certificate and no hv-peer header");
  } else if (!hv_calls_admit(s->loop, &l->slip, &s->face.peer, &from) || !take_place(l)) {
    hv_stream_refuse(s, HV_BUSY, "too many streams at a time: try again later");
  } else if ((apart = hv_link_judge(s->loop, l->rpc, &shown))) {
    turn_away(s, l, apart, &shown);
  } else if (take_in(s, l, &from)) {
    stream_free(s);
    return;
  }
  close_if_done(s);
}

static void accepted(hv_grpc_op *op, int ok) {
  lane *l = HV_HOLDER(lane, came, op);
  stream *s = l->s;
  hv_loop *loop = s->loop;
  loop->streams_waiting--;
  if (!ok || loop->phase >= HV_PHASE_ENDING) {
    stream_free(s);
    return;
  }
  hv_streams_accept(loop);
  hv_lane_reads(l);
  s->since_us = hv_clock_us();
  hv_stream_move(s, GREETING);
  hv_ring_add(&loop->streams_greeting, &s->all);
  l->is_over = !hv_grpc_call_end(l->rpc, &l->over);
  greet(s);
}

void hv_streams_accept(hv_loop *loop) {
  while (loop->n_bound && loop->phase < HV_PHASE_ENDING && loop->streams_waiting < ACCEPTS) {
    stream *s = make(loop);
    if (!s)
      return; /* the next tick tries again */
    lane *l = s->lanes[0];
    l->came.done = accepted;
    l->rpc = hv_grpc_accept(loop->grpc, HV_GRPC_BULK, &l->came);
    if (!l->rpc) {
      stream_free(s);
      return;
    }
    loop->streams_waiting++;
  }
}

/* ---- ending several streams ---- */

void hv_streams_cancel_peer(hv_loop *loop, const hv_peer_id *peer) {
  for (hv_ring *at = loop->streams_open.next; at != &loop->streams_open; at = at->next) {
    stream *s = HV_HOLDER(stream, all, at);
    if (hv_peer_equal(&s->face.peer, peer))
      hv_stream_break_off(s, HV_CANCELLED, "the peer was forgotten");
  }
}

void hv_streams_deny(hv_loop *loop) {
  hv_ring *lists[] = {&loop->streams_open, &loop->streams_greeting};
  for (int i = 0; i < 2; i++)
    for (hv_ring *at = lists[i]->next; at != lists[i]; at = at->next) {
      stream *s = HV_HOLDER(stream, all, at);
      hv_membership shown;
      hv_addr from;
      if (s->link || s->state == CLOSING || !hv_link_judge(loop, s->lanes[0]->rpc, &shown))
        continue; /* streams to others end with their links */
      hv_grpc_call_from(s->lanes[0]->rpc, &from);
      hv_door_end(loop->door, &from);
      hv_stream_break_off(s, HV_CLOSED, "the swarm does not admit the peer any more");
    }
}

/* A stream whose first message is late counts as much as gRPC may hold of it. Where there is no room for that, it is refused. */
static void count_late(stream *s) {
  hv_callers *callers = &s->loop->callers;
  for (size_t i = 0; i < s->n_lanes && s->state == GREETING; i++) {
    hv_slip *slip = &s->lanes[i]->slip;
    if (slip->peer && !slip->held[HV_CALLER_BYTES] && !hv_callers_take_place(callers, slip, HV_CALLER_BYTES, HV_GRPC_LOOKAHEAD))
      hv_stream_refuse(s, HV_BUSY, "its first message is late, and too many bytes of such streams are held: try again later");
  }
}

void hv_streams_tick(hv_loop *loop) {
  hv_streams_accept(loop);
  for (hv_ring *at = loop->streams_greeting.next; at != &loop->streams_greeting; at = at->next) {
    stream *s = HV_HOLDER(stream, all, at);
    if (s->since_us + HV_LOOP_LATE_MS * UINT64_C(1000) > loop->now_us)
      break;
    count_late(s);
  }
  for (hv_ring *at = loop->streams_greeting.next; at != &loop->streams_greeting; at = at->next) {
    stream *s = HV_HOLDER(stream, all, at);
    if (s->since_us + loop->greeting_us > loop->now_us)
      break;
    hv_stream_break_off(s, HV_TIMEOUT, "no first message");
  }
}

void hv_streams_end(hv_loop *loop) {
  hv_ring *lists[] = {&loop->streams_open, &loop->streams_greeting};
  for (int i = 0; i < 2; i++)
    for (hv_ring *at = lists[i]->next; at != lists[i]; at = at->next)
      hv_stream_break_off(HV_HOLDER(stream, all, at), HV_CANCELLED, "this node is shutting down");
}
