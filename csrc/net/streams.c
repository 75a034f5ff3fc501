#include "net/world.h"

#include "net/window.h"

#include <stdio.h>
#include <string.h>

enum { ACCEPTS = 8, QUEUE = 64, QUEUE_BYTES = 2 << 20, WINDOW_BYTES = 4 << 20, TEXT = 512 };

/* WAITING for somebody to open one -> GREETING: its first message is awaited -> OPEN: core has it -> CLOSING: broken off or
 * refused. */
typedef enum state { WAITING, GREETING, OPEN, CLOSING, STATES } state;

/* Each side ends with a frame whose header is empty; a server cannot half-close otherwise. */
static const uint8_t end_frame[4];

typedef struct stream {
  hv_stream face; /* first: what core sees */
  hv_ring all, of_link;
  hv_loop *loop;
  hv_link *link;   /* of one that was opened here */
  hv_guest *guest; /* of one that came in */
  hv_grpc_call *rpc;
  hv_window *window;
  hv_grpc_op sent, came, said_hello, over;
  state state;
  uint64_t since_us;
  hv_grpc_message *queue[QUEUE];        /* waits to be sent */
  size_t sizes[QUEUE], first, n, bytes; /* bytes: with the one under way */
  size_t under_way;
  uint8_t sending, receiving, greeting; /* is an op under way? */
  uint8_t is_over;
  uint64_t pace;   /* bytes per second of its connection; 0: as it comes */
  uint8_t starved; /* stream_send said HV_BUSY */
  uint8_t ending, end_sent, end_came;
  uint8_t finished; /* incoming: the last word was given to gRPC */
  uint8_t no_more;  /* gRPC has no further message */
  hv_status why;    /* not HV_OK: we broke it off */
  char why_text[TEXT];
} stream;

static void was_sent(hv_grpc_op *op, int ok);
static void came(hv_grpc_op *op, int ok);
static void said_hello(hv_grpc_op *op, int ok);
static void was_over(hv_grpc_op *op, int ok);
static void room_again(hv_note *note);

static void move(stream *s, state to) {
  static const uint8_t allowed[STATES] = {[WAITING] = 1 << GREETING | 1 << CLOSING,
                                          [GREETING] = 1 << OPEN | 1 << CLOSING,
                                          [OPEN] = 1 << CLOSING,
                                          [CLOSING] = 1 << CLOSING};
  if (!(allowed[s->state] & 1 << to))
    hv_log_write(s->loop->log, s->loop->now_us, HV_LOG_ERROR, "net", "bad_move", "a stream went from state %d to %d", s->state, to);
  s->state = to;
}

static stream *make(hv_loop *loop) {
  stream *s = hv_mem_zalloc(loop->mem, sizeof *s);
  if (!s)
    return NULL;
  s->window = hv_window_new(loop->mem, WINDOW_BYTES, &loop->inbox, s, room_again);
  if (!s->window) {
    hv_mem_free(s);
    return NULL;
  }
  s->loop = loop;
  s->sent.done = was_sent;
  s->came.done = came;
  s->said_hello.done = said_hello;
  s->over.done = was_over;
  hv_ring_init(&s->all);
  hv_ring_init(&s->of_link);
  return s;
}

static void drop_queue(stream *s) {
  for (; s->n; s->n--, s->first = (s->first + 1) % QUEUE)
    hv_grpc_message_free(s->queue[s->first]);
}

/* On the connection that is there now. */
static void set_pace(stream *s) {
  hv_addr at;
  hv_grpc_call_from(s->rpc, &at);
  hv_sockets_pace(&s->loop->sockets, &at, s->pace, s->loop->now_us);
}

void hv_streams_pace(hv_env *env, hv_stream *face, uint64_t rate) {
  stream *s = (stream *)face;
  (void)env;
  if (s->pace == rate)
    return;
  s->pace = rate;
  set_pace(s);
}

static void stream_free(stream *s) {
  drop_queue(s);
  hv_ring_remove(&s->all);
  hv_ring_remove(&s->of_link);
  hv_window_leave(s->window);
  hv_guests_stream_left(&s->loop->guests, s->guest);
  hv_grpc_call_free(s->rpc);
  if (s->link)
    hv_link_release(s->link);
  hv_mem_free(s);
}

/* ---- the end ---- */

static hv_status how_it_ended(stream *s, char text[HV_WORLD_TEXT_MAX]) {
  hv_status status = HV_OK;
  char detail[HV_GRPC_TEXT_MAX];
  snprintf(text, HV_WORLD_TEXT_MAX, "%s", s->why_text);
  if (s->why != HV_OK)
    return s->why;
  int by_peer = s->link && hv_grpc_call_result(s->rpc, detail) == HV_CANCELLED; /* it lives, and said so */
  if (s->link && !by_peer)
    status = hv_link_explain(s->link, s->rpc, HV_OK, 0, text);
  if (by_peer || (status == HV_OK && !(s->end_sent && s->end_came))) {
    snprintf(text, HV_WORLD_TEXT_MAX, "the other side broke the stream off");
    status = by_peer ? HV_CANCELLED : HV_CLOSED;
  }
  return status;
}

static void close_if_done(stream *s) {
  if (!s->is_over || s->sending || s->receiving || s->greeting)
    return;
  char text[HV_WORLD_TEXT_MAX];
  if (s->pace)
    hv_streams_pace(&s->loop->env, &s->face, 0);
  hv_status status = how_it_ended(s, text);
  if (s->face.on) {
    hv_event event = {.kind = HV_EVENT_STREAM_CLOSED, .stream = &s->face, .status = status, .text = text, .peer = s->face.peer};
    s->loop->n_streams--;
    hv_loop_deliver(s->loop, &event);
  }
  stream_free(s);
}

static void break_off(stream *s, hv_status why, const char *text) {
  if (s->state == CLOSING)
    return;
  move(s, CLOSING);
  s->why = why;
  snprintf(s->why_text, sizeof s->why_text, "%s", text);
  drop_queue(s);
  hv_grpc_call_cancel(s->rpc);
}

/* Says no (or yes, at the very end) to the peer that opened it. */
static void finish(stream *s, hv_status status, const char *text) {
  s->finished = 1;
  s->sending = (uint8_t)hv_grpc_call_finish(s->rpc, NULL, status, text, 0, &s->sent);
}

static void refuse(stream *s, hv_status status, const char *text) {
  if (s->sending || s->finished) {
    break_off(s, status, text);
    return;
  }
  move(s, CLOSING);
  s->why = status;
  snprintf(s->why_text, sizeof s->why_text, "%s", text);
  drop_queue(s);
  finish(s, status, text);
}

/* What came cannot be read: an incoming stream is told so, an outgoing one can only be broken off. */
static void reject(stream *s, hv_status status, const char *text) {
  if (s->link)
    break_off(s, status, text);
  else
    refuse(s, status, text);
}

static void was_over(hv_grpc_op *op, int ok) {
  (void)ok;
  stream *s = HV_HOLDER(stream, over, op);
  s->is_over = 1;
  drop_queue(s);
  close_if_done(s);
}

/* ---- sending ---- */

static void push(stream *s, hv_grpc_message *message, size_t size) {
  size_t at = (s->first + s->n++) % QUEUE;
  s->queue[at] = message;
  s->sizes[at] = size;
  s->bytes += size;
}

static void pump(stream *s) {
  if (s->sending || s->state == CLOSING || s->is_over || s->finished)
    return;
  hv_grpc_message *message = NULL;
  int last = 0;
  s->under_way = 0;
  if (s->n) {
    message = s->queue[s->first];
    s->under_way = s->sizes[s->first];
    s->first = (s->first + 1) % QUEUE;
    s->n--;
  } else if (s->ending && !s->end_sent) {
    message = hv_grpc_message_new(s->loop->grpc, hv_span_of(end_frame, sizeof end_frame), NULL);
    last = s->end_sent = 1;
    if (!message) {
      break_off(s, HV_NOMEM, "out of memory");
      return;
    }
  } else if (!s->link && s->end_sent && s->end_came) {
    finish(s, HV_OK, "");
    return;
  } else {
    return;
  }
  s->sending = (uint8_t)hv_grpc_call_send(s->rpc, message, last && s->link, &s->sent);
}

static void was_sent(hv_grpc_op *op, int ok) {
  stream *s = HV_HOLDER(stream, sent, op);
  s->sending = 0;
  s->bytes -= s->under_way;
  s->under_way = 0;
  if (!ok)
    drop_queue(s);
  else
    pump(s);
  if (ok && s->starved && s->state == OPEN && !s->is_over && s->n <= QUEUE / 2 && s->bytes <= QUEUE_BYTES / 2) {
    s->starved = 0;
    hv_event event = {.kind = HV_EVENT_STREAM_READY, .stream = &s->face, .peer = s->face.peer};
    hv_loop_deliver(s->loop, &event);
  }
  close_if_done(s);
}

hv_status hv_streams_send(hv_env *env, hv_stream *face, const hv_msg *header, hv_payload *payload) {
  hv_loop *loop = env->world;
  stream *s = (stream *)face;
  size_t size = payload ? payload->size : 0;
  if (loop->phase >= HV_PHASE_ENDING || s->state == CLOSING || s->is_over || s->ending)
    return HV_CLOSED;
  if (size > HV_BULK_PAYLOAD_MAX)
    return HV_TOO_LARGE;
  if (s->n >= QUEUE || s->bytes >= QUEUE_BYTES) {
    s->starved = 1;
    return HV_BUSY;
  }
  loop->outgoing.size = 0;
  hv_status status = hv_wire_write_bulk(header, &loop->outgoing);
  if (status != HV_OK)
    return status;
  hv_grpc_message *message = hv_grpc_message_new(loop->grpc, hv_span_of(loop->outgoing.data, loop->outgoing.size), payload);
  if (!message)
    return HV_NOMEM;
  push(s, message, loop->outgoing.size + size);
  pump(s);
  return HV_OK;
}

void hv_streams_finish(hv_env *env, hv_stream *face) {
  (void)env;
  stream *s = (stream *)face;
  s->ending = 1;
  pump(s);
}

void hv_streams_cancel(hv_env *env, hv_stream *face) {
  (void)env;
  break_off((stream *)face, HV_CANCELLED, "cancelled");
}

/* ---- receiving ---- */

static void read_on(stream *s) {
  if (!s->receiving && !s->greeting && !s->no_more && !s->is_over && s->state != CLOSING && hv_window_open(s->window))
    s->receiving = (uint8_t)hv_grpc_call_recv(s->rpc, &s->came);
}

static void room_again(hv_note *note) {
  hv_window *window = (hv_window *)note;
  if (window->owner)
    read_on(window->owner);
  hv_window_note_done(window);
}

static void deliver_opened(stream *s, hv_event *event) {
  hv_loop *loop = s->loop;
  event->kind = HV_EVENT_STREAM_OPENED;
  move(s, OPEN);
  hv_ring_remove(&s->all);
  hv_ring_add(&loop->streams_open, &s->all);
  hv_loop_deliver(loop, event);
  if (s->face.on)
    loop->n_streams++;
  else
    refuse(s, HV_REFUSED, "the peer takes no such stream");
  if (!s->sending && s->state == OPEN)
    s->sending = (uint8_t)hv_grpc_call_send(s->rpc, NULL, 0, &s->sent);
}

/* A message with its header read; hands it to core. */
static hv_status deliver(stream *s, size_t size, size_t head_size, const hv_wire_msg *header) {
  hv_payload *payload = NULL;
  hv_event event = {.kind = HV_EVENT_STREAM_DATA, .stream = &s->face, .msg = &header->msg, .peer = s->face.peer};
  if (size - head_size > HV_BULK_PAYLOAD_MAX || (s->state == GREETING && size > head_size))
    return HV_MALFORMED;
  if (size > head_size) {
    hv_window_hold(s->window, size);
    payload = hv_grpc_call_payload(s->rpc, head_size, hv_window_release, s->window);
    if (!payload) {
      hv_window_release(s->window, size);
      return HV_NOMEM;
    }
  }
  event.payload = payload;
  if (s->state == GREETING)
    deliver_opened(s, &event);
  else
    hv_loop_deliver(s->loop, &event);
  hv_payload_release(payload);
  return HV_OK;
}

static hv_status take_frame(stream *s, size_t size, char text[TEXT]) {
  hv_span bytes;
  size_t header_size = 0;
  hv_wire_msg header = {0};
  hv_status status = s->end_came ? HV_MALFORMED : hv_grpc_call_bytes(s->rpc, 4, &s->loop->scratch, &bytes);
  if (status == HV_OK && size == sizeof end_frame && memcmp(bytes.data, end_frame, sizeof end_frame) == 0) {
    s->end_came = 1;
    return s->state == OPEN ? HV_OK : HV_MALFORMED;
  }
  if (status == HV_OK)
    status = hv_wire_bulk_header(bytes.data, &header_size);
  if (status == HV_OK)
    status = hv_grpc_call_bytes(s->rpc, 4 + header_size, &s->loop->scratch, &bytes);
  if (status == HV_OK)
    status = hv_wire_read(hv_span_of(bytes.data + 4, header_size), s->loop->mem, HV_WIRE_BUDGET, &header);
  if (status == HV_VERSION)
    snprintf(text, TEXT, "the peer speaks protocol version %u, this one speaks %d: upgrade the older one", header.version,
             HV_PROTOCOL_VERSION);
  if (status != HV_OK)
    return status;
  status = deliver(s, size, 4 + header_size, &header);
  hv_wire_release(&header);
  return status;
}

/* The other side has said hello: who is it? */
static void said_hello(hv_grpc_op *op, int ok) {
  stream *s = HV_HOLDER(stream, said_hello, op);
  hv_peer_id peer;
  char text[HV_WORLD_TEXT_MAX];
  s->greeting = 0;
  if (ok && hv_grpc_call_peer(s->rpc, &peer) == HV_OK) { /* else nobody was there: the end tells why */
    if (hv_link_meet(s->link, &peer, text) == HV_OK)
      s->face.peer = peer;
    else
      break_off(s, HV_DENIED, text);
  }
  if (s->pace)
    set_pace(s); /* there may have been no connection before */
  read_on(s);
  close_if_done(s);
}

static void came(hv_grpc_op *op, int ok) {
  stream *s = HV_HOLDER(stream, came, op);
  int64_t size = ok ? hv_grpc_call_size(s->rpc) : -1;
  char text[HV_WORLD_TEXT_MAX] = "what came over the stream cannot be read";
  if (size < 0)
    s->no_more = 1;
  else if (s->state != CLOSING) {
    hv_status status = take_frame(s, (size_t)size, text);
    if (status != HV_OK)
      reject(s, status, text);
  }
  s->receiving = 0;
  if (s->no_more && !s->end_came && !s->link)
    break_off(s, HV_CLOSED, "the other side broke the stream off");
  pump(s);
  read_on(s);
  close_if_done(s);
}

/* ---- opening ---- */

hv_status hv_streams_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                          hv_stream **out) {
  hv_loop *loop = env->world;
  if (loop->phase >= HV_PHASE_ENDING)
    return HV_CLOSED;
  loop->outgoing.size = 0;
  hv_status status = hv_wire_write_bulk(first, &loop->outgoing);
  if (status != HV_OK)
    return status;
  hv_grpc_message *message = hv_grpc_message_new(loop->grpc, hv_span_of(loop->outgoing.data, loop->outgoing.size), NULL);
  stream *s = make(loop);
  status = s && message ? hv_link_get(loop, to, &s->link) : HV_NOMEM;
  if (status == HV_OK && !(s->rpc = hv_grpc_call_new(s->link->channel, HV_GRPC_BULK, 1)))
    status = HV_NOMEM;
  if (status == HV_OK && !hv_grpc_call_end(s->rpc, &s->over))
    status = HV_INTERNAL;
  if (status != HV_OK) {
    hv_grpc_message_free(message);
    if (s)
      stream_free(s);
    return status;
  }
  s->state = OPEN;
  s->face.on = on;
  s->face.owner = owner;
  s->face.peer = to->id;
  hv_ring_add(&loop->streams_open, &s->all);
  hv_ring_add(&s->link->streams, &s->of_link);
  loop->n_streams++;
  push(s, message, loop->outgoing.size);
  pump(s);
  s->greeting = (uint8_t)hv_grpc_call_hello(s->rpc, &s->said_hello);
  *out = &s->face;
  return HV_OK;
}

static void accepted(hv_grpc_op *op, int ok) {
  stream *s = HV_HOLDER(stream, came, op);
  hv_loop *loop = s->loop;
  loop->streams_waiting--;
  if (!ok || loop->phase >= HV_PHASE_ENDING) {
    stream_free(s);
    return;
  }
  hv_streams_accept(loop);
  s->came.done = came;
  s->since_us = hv_clock_us();
  move(s, GREETING);
  hv_ring_add(&loop->streams_greeting, &s->all);
  s->is_over = !hv_grpc_call_end(s->rpc, &s->over);
  if (hv_grpc_call_peer(s->rpc, &s->face.peer) != HV_OK)
    refuse(s, HV_DENIED, "say who you are: no certificate, or no hv-peer header");
  else if (!(s->guest = hv_guests_stream(&loop->guests, &s->face.peer)))
    refuse(s, HV_BUSY, "too many streams at a time: try again later");
  else
    read_on(s);
  close_if_done(s);
}

void hv_streams_accept(hv_loop *loop) {
  while (loop->listening && loop->phase < HV_PHASE_ENDING && loop->streams_waiting < ACCEPTS) {
    stream *s = make(loop);
    if (!s)
      return; /* the next tick tries again */
    s->came.done = accepted;
    s->rpc = hv_grpc_accept(loop->grpc, HV_GRPC_BULK, &s->came);
    if (!s->rpc) {
      stream_free(s);
      return;
    }
    loop->streams_waiting++;
  }
}

/* ---- what ends many ---- */

void hv_streams_cancel_link(hv_link *link) {
  for (hv_ring *at = link->streams.next; at != &link->streams; at = at->next)
    break_off(HV_HOLDER(stream, of_link, at), HV_CANCELLED, "the peer was forgotten");
}

void hv_streams_cancel_peer(hv_loop *loop, const hv_peer_id *peer) {
  for (hv_ring *at = loop->streams_open.next; at != &loop->streams_open; at = at->next) {
    stream *s = HV_HOLDER(stream, all, at);
    if (hv_peer_equal(&s->face.peer, peer))
      break_off(s, HV_CANCELLED, "the peer was forgotten");
  }
}

void hv_streams_tick(hv_loop *loop) {
  hv_streams_accept(loop);
  for (hv_ring *at = loop->streams_greeting.next; at != &loop->streams_greeting; at = at->next) {
    stream *s = HV_HOLDER(stream, all, at);
    if (s->since_us + loop->greeting_us > loop->now_us)
      break;
    break_off(s, HV_TIMEOUT, "no first message");
  }
}

void hv_streams_end(hv_loop *loop) {
  hv_ring *lists[] = {&loop->streams_open, &loop->streams_greeting};
  for (int i = 0; i < 2; i++)
    for (hv_ring *at = lists[i]->next; at != lists[i]; at = at->next)
      break_off(HV_HOLDER(stream, all, at), HV_CANCELLED, "this node ends");
}
