#include "core/peers/parcel.h"

#include <string.h>

enum { SILENCE_MS = 30000, PARCEL_COST = 256 /* what one takes beside its bytes */, PARCELS_MAX = 4096 };

/* ---- sending ---- */

static void parcel_release(void *arg) {
  hv_payload_release(arg);
}

/* Of what is left the next piece: whole ones, so that nobody holds memory by single bytes. */
static size_t piece_size(size_t whole, size_t done) {
  return whole - done < HV_PARCEL_PIECE ? whole - done : HV_PARCEL_PIECE;
}

/* The piece at `sent`, as a payload that keeps the whole. NULL: no memory. */
static hv_payload *cut(hv_parcel_send *send) {
  hv_span whole = send->payload->parts[0];
  size_t size = piece_size(whole.size, send->sent);
  hv_payload *piece = hv_payload_borrow(send->env->mem, whole.data + send->sent, size, parcel_release, send->payload);
  if (piece)
    hv_payload_keep(send->payload);
  return piece;
}

static void send_pieces(hv_parcel_send *send) {
  while (send->sent < send->payload->size) {
    hv_msg header = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = send->payload->size, .offset = send->sent}};
    hv_payload *piece = cut(send);
    if (!piece) {
      send->env->stream_cancel(send->env, send->stream);
      return;
    }
    size_t size = piece->size;
    hv_status status = send->env->stream_send(send->env, send->stream, &header, piece);
    hv_payload_release(piece);
    if (status == HV_BUSY)
      return; /* ready will come */
    if (status != HV_OK) {
      send->env->stream_cancel(send->env, send->stream);
      return;
    }
    send->sent += size;
  }
  send->env->stream_end(send->env, send->stream);
}

static void send_ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  send_pieces(stream->owner);
}

static void send_data(hv_stream *stream, const hv_event *event) {
  hv_parcel_send *send = stream->owner;
  const hv_msg_parcel *parcel = &event->msg->u.parcel;
  if (event->msg->kind == HV_MSG_PARCEL && parcel->receipt && parcel->offset == send->payload->size)
    send->received = 1;
  else
    send->env->stream_cancel(send->env, stream);
}

static void send_closed(hv_stream *stream, const hv_event *event) {
  hv_parcel_send *send = stream->owner;
  send->stream = NULL;
  send->env->timer_clear(send->env, &send->timer);
  send->cause = send->timed_out ? HV_CAUSE_OTHER : event->cause;
  if (send->received)
    send->done(send, HV_OK, "");
  else if (send->timed_out)
    send->done(send, HV_TIMEOUT, "the peer did not receive the parcel in time: allow more time, or send less");
  else if (event->status == HV_OK)
    send->done(send, HV_CLOSED, "the peer ended the transfer before it was whole");
  else /* this side's link was dropped, or the peer gave up: the program has not cancelled it */
    send->done(send, event->status == HV_CANCELLED && !send->cancelled ? HV_CLOSED : event->status, event->text);
}

static void send_late(hv_timer *timer, const hv_event *event) {
  hv_parcel_send *send = timer->owner;
  (void)event;
  send->timed_out = 1;
  send->env->stream_cancel(send->env, send->stream);
}

hv_status hv_parcel_send_start(hv_parcel_send *send, hv_env *env, const hv_target *to) {
  static const hv_stream_events on = {send_data, send_ready, send_closed, .heavy = 1};
  send->env = env;
  send->sent = 0;
  send->received = send->timed_out = send->cancelled = 0;
  send->timer = (hv_timer){.fire = send_late, .owner = send};
  hv_msg first = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = send->payload->size}};
  hv_status status = env->stream_open(env, to, &first, &on, send, &send->stream);
  if (status != HV_OK)
    return status;
  env->timer_set(env, &send->timer, (uint64_t)send->timeout_ms * 1000);
  send_pieces(send);
  return HV_OK;
}

void hv_parcel_send_cancel(hv_parcel_send *send) {
  send->cancelled = 1;
  if (send->stream)
    send->env->stream_cancel(send->env, send->stream);
}

/* ---- receiving ---- */

typedef struct hv_parcel_incoming {
  struct hv_parcel_incoming *next, **link;
  hv_parcels *parcels;
  hv_stream *stream;
  hv_parcel *parcel;
  size_t have;
  hv_timer silence;
} incoming;

/* Each costs something beside its bytes, and so much that there are never more than PARCELS_MAX. */
static size_t cost_of(const hv_parcels *parcels, size_t size) {
  size_t each = parcels->held_max / PARCELS_MAX;
  return size + (each > PARCEL_COST ? each : PARCEL_COST);
}

/* The bytes held, of some or of all. */
typedef struct tally {
  size_t peer, strangers, network;
} tally;

static void add_to(tally *held, const hv_parcels *parcels, const hv_parcel *parcel, const hv_stream *from) {
  size_t cost = cost_of(parcels, parcel->size);
  held->peer += hv_peer_equal(&parcel->from, &from->peer) ? cost : 0;
  held->strangers += parcel->stranger ? cost : 0;
  held->network += parcel->stranger && parcel->network == from->network ? cost : 0;
}

/* The bytes held of the peer and the network of a stream, and of all strangers. */
static tally tally_for(const hv_parcels *parcels, const hv_stream *from) {
  tally held = {0};
  for (const hv_parcel *parcel = parcels->first; parcel; parcel = parcel->next)
    add_to(&held, parcels, parcel, from);
  for (const incoming *in = parcels->incoming; in; in = in->next)
    if (in->parcel)
      add_to(&held, parcels, in->parcel, from);
  return held;
}

static int fits(const hv_parcels *parcels, const hv_stream *from, int stranger, uint64_t size) {
  if (size > parcels->size_max)
    return 0;
  size_t cost = cost_of(parcels, (size_t)size), half = parcels->held_max / 2;
  size_t left = parcels->held < parcels->held_max ? parcels->held_max - parcels->held : 0; /* some may have been given back */
  tally held = tally_for(parcels, from);
  if (cost > left || (held.peer && held.peer + cost > half))
    return 0;
  if (stranger && held.strangers + cost > parcels->strange_max)
    return 0;
  return !stranger || !from->network || !held.network || held.network + cost <= parcels->strange_max / 2;
}

static void drop_parcel(hv_parcels *parcels, hv_parcel *parcel) {
  parcels->held -= cost_of(parcels, parcel->size);
  hv_mem_free(parcel->bytes);
  hv_mem_free(parcel);
}

static void drop_incoming(incoming *in) {
  in->parcels->env->timer_clear(in->parcels->env, &in->silence);
  *in->link = in->next;
  if (in->next)
    in->next->link = in->link;
  if (in->parcel)
    drop_parcel(in->parcels, in->parcel);
  hv_mem_free(in);
}

static void fell_silent(hv_timer *timer, const hv_event *event) {
  incoming *in = timer->owner;
  (void)event;
  in->parcels->env->stream_cancel(in->parcels->env, in->stream);
}

/* It is whole: it waits for the program, and the sender is told. */
static void hand_over(incoming *in) {
  hv_parcels *parcels = in->parcels;
  hv_msg receipt = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = in->have, .offset = in->have, .receipt = 1}};
  if (parcels->env->stream_send(parcels->env, in->stream, &receipt, NULL) != HV_OK) {
    parcels->env->stream_cancel(parcels->env, in->stream);
    return;
  }
  parcels->env->stream_end(parcels->env, in->stream);
  *parcels->last = in->parcel;
  parcels->last = &in->parcel->next;
  in->parcel = NULL;
  if (parcels->arrived)
    parcels->arrived(parcels->arg);
}

static void piece_came(hv_stream *stream, const hv_event *event) {
  incoming *in = stream->owner;
  hv_parcels *parcels = in->parcels;
  const hv_msg_parcel *piece = &event->msg->u.parcel;
  size_t size = event->payload ? event->payload->size : 0;
  if (!in->parcel || event->msg->kind != HV_MSG_PARCEL || piece->receipt || size == 0 || piece->size != in->parcel->size ||
      piece->offset != in->have || size != piece_size(in->parcel->size, in->have)) {
    parcels->env->stream_cancel(parcels->env, stream);
    return;
  }
  hv_payload_read(event->payload, 0, in->parcel->bytes + in->have, size);
  in->have += size;
  parcels->env->timer_set(parcels->env, &in->silence, (uint64_t)parcels->silence_ms * 1000);
  if (in->have == in->parcel->size)
    hand_over(in);
}

static void parcel_nothing_to_send(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void incoming_closed(hv_stream *stream, const hv_event *event) {
  incoming *in = stream->owner;
  if (in->parcel)
    hv_env_log(in->parcels->env, HV_LOG_DEBUG, "parcel", "parcel_broken", "a parcel broke off after %zu of %zu bytes: %s", in->have,
               in->parcel->size, event->text);
  drop_incoming(in);
}

void hv_parcels_opened(hv_parcels *parcels, const hv_event *event) {
  static const hv_stream_events on = {piece_came, parcel_nothing_to_send, incoming_closed, .heavy = 0};
  uint64_t size = event->msg->u.parcel.size;
  const hv_stream *from = event->stream;
  int stranger = parcels->tier && parcels->tier(parcels->arg, &from->peer) != HV_TIER_TRUSTED;
  if (event->msg->u.parcel.receipt || !fits(parcels, from, stranger, size))
    return; /* refused: too large, or too many wait already */
  hv_mem *mem = parcels->env->mem;
  incoming *in = hv_mem_zalloc(mem, sizeof *in);
  hv_parcel *parcel = hv_mem_zalloc(mem, sizeof *parcel);
  uint8_t *bytes = hv_mem_aligned(mem, (size_t)size);
  if (!in || !parcel || !bytes) {
    hv_mem_free(in);
    hv_mem_free(parcel);
    hv_mem_free(bytes);
    return;
  }
  *parcel = (hv_parcel){.from = from->peer, .bytes = bytes, .size = (size_t)size, .stranger = stranger, .network = from->network};
  *in = (incoming){
      .next = parcels->incoming, .link = &parcels->incoming, .parcels = parcels, .stream = event->stream, .parcel = parcel};
  in->silence = (hv_timer){.fire = fell_silent, .owner = in};
  if (in->next)
    in->next->link = &in->next;
  parcels->incoming = in;
  parcels->held += cost_of(parcels, parcel->size);
  event->stream->on = &on;
  event->stream->owner = in;
  parcels->env->timer_set(parcels->env, &in->silence, (uint64_t)parcels->silence_ms * 1000);
  if (size == 0)
    hand_over(in);
}

hv_parcel *hv_parcels_take(hv_parcels *parcels) {
  hv_parcel *parcel = parcels->first;
  if (!parcel)
    return NULL;
  parcels->first = parcel->next;
  if (!parcels->first)
    parcels->last = &parcels->first;
  parcels->held -= cost_of(parcels, parcel->size);
  return parcel;
}

void hv_parcels_return(hv_parcels *parcels, hv_parcel *parcel) {
  parcel->next = parcels->first;
  if (!parcels->first)
    parcels->last = &parcel->next;
  parcels->first = parcel;
  parcels->held += cost_of(parcels, parcel->size);
  if (parcels->arrived)
    parcels->arrived(parcels->arg);
}

void hv_parcels_init(hv_parcels *parcels, hv_env *env, size_t size_max, size_t held_max, size_t strange_max,
                     void (*arrived)(void *arg), void *arg) {
  *parcels = (hv_parcels){.env = env,
                          .size_max = size_max,
                          .held_max = held_max,
                          .strange_max = strange_max,
                          .silence_ms = SILENCE_MS,
                          .arrived = arrived,
                          .arg = arg};
  parcels->last = &parcels->first;
}

void hv_parcels_fini(hv_parcels *parcels) {
  while (parcels->incoming)
    drop_incoming(parcels->incoming);
  for (hv_parcel *parcel; (parcel = hv_parcels_take(parcels));) {
    hv_mem_free(parcel->bytes);
    hv_mem_free(parcel);
  }
}
