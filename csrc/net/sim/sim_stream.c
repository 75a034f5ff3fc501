#include "core/peers/contact.h"
#include "net/sim/sim_inner.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
  ALARMS = 6,       /* of a sim_end */
  LEAST_COST = 128, /* bytes that even an empty message counts in a window */
  FIRST_RETRY_US = 200000,
  LAST_RETRY_US = 5000000,
};

/* A message on its way. */
struct sim_segment {
  sim_segment *next;
  hv_payload *payload;
  size_t cost; /* bytes that it counts in windows */
  uint64_t due;
  uint64_t content;
  enum { OPENS, DATA, ENDS } what;
  int ahead; /* it is of a round, and counts in the node's line until it arrives */
  size_t header_size;
  uint8_t header[]; /* encoded by hv_wire_write_bulk */
};

static hv_sim *world(const sim_end *end) {
  return end->node->sim;
}

static void set(sim_end *end, sim_alarm *alarm, sim_kind kind, uint64_t due) {
  /* SIM_ARRIVE is an event of the receiving node, which may be paused. */
  sim_alarm_set(world(end), alarm, kind, kind == SIM_ARRIVE ? sim_other(end)->node->index : end->node->index, due);
}

/* ---- making and freeing ---- */

static void leaves_line(sim_node *node, sim_segment *segment) {
  if (segment->ahead)
    hv_turns_left(&node->turns, segment->cost, node->sim->now);
  segment->ahead = 0;
}

static void drop_segments(sim_node *node, sim_segment **first, sim_segment ***last) {
  while (*first) {
    sim_segment *segment = *first;
    *first = segment->next;
    leaves_line(node, segment);
    hv_payload_release(segment->payload);
    hv_mem_free(segment);
  }
  *last = first;
}

static void still(sim_end *end) {
  hv_sim *sim = world(end);
  sim_alarm_clear(sim, &end->arrive);
  sim_alarm_clear(sim, &end->credit);
  sim_alarm_clear(sim, &end->ready);
  sim_alarm_clear(sim, &end->leave);
}

/* Stops both directions and drops all messages. The cores get no event from this. */
static void break_off(sim_stream_ends *both) {
  both->broken = 1;
  for (int i = 0; i < 2; i++) {
    still(&both->ends[i]);
    drop_segments(both->ends[i].node, &both->ends[i].queue, &both->ends[i].queue_end);
    drop_segments(both->ends[i].node, &both->ends[i].flight, &both->ends[i].flight_end);
    drop_segments(both->ends[i].node, &both->ends[i].waiting, &both->ends[i].waiting_end);
  }
}

static void free_if_over(sim_stream_ends *both) {
  hv_sim *sim = world(&both->ends[0]);
  if (both->ends[0].live || both->ends[1].live || both->ends[0].pub || both->ends[1].pub)
    return;
  break_off(both);
  for (int i = 0; i < 2; i++)
    sim_window_detach(&both->ends[i]);
  sim_heap_unhold(&sim->heap, 2 * ALARMS);
  hv_mem_free(both);
}

/* Takes an end from its core and frees its hv_stream. */
static void bury(sim_end *end) {
  sim_stream_ends *both = end->both;
  if (end->pub) {
    *end->where = end->next;
    if (end->next)
      end->next->where = end->where;
  }
  sim_alarm_clear(world(end), &end->close);
  sim_alarm_clear(world(end), &end->pulse);
  sim_call_drop(&end->meets);
  hv_mem_free(end->pub);
  end->pub = NULL;
  end->live = 0;
  free_if_over(both);
}

/* The hv_stream that core sees, and the end to which it belongs. */
typedef struct public_stream {
  hv_stream pub; /* first */
  sim_end *end;
} public_stream;

static sim_end *end_of(hv_stream *stream) {
  return ((public_stream *)stream)->end;
}

static int give_to_core(sim_end *end) {
  public_stream *p = hv_mem_zalloc(world(end)->mem, sizeof *p);
  if (!p)
    return 0;
  p->end = end;
  end->pub = &p->pub;
  end->live = 1;
  end->next = end->node->ends;
  end->where = &end->node->ends;
  if (end->next)
    end->next->where = &end->next;
  end->node->ends = end;
  return 1;
}

static sim_stream_ends *new_stream(sim_node *from, sim_node *to) {
  hv_sim *sim = from->sim;
  if (!sim_heap_hold(&sim->heap, 2 * ALARMS))
    return NULL;
  sim_stream_ends *both = hv_mem_zalloc(sim->mem, sizeof *both);
  if (!both) {
    sim_heap_unhold(&sim->heap, 2 * ALARMS);
    return NULL;
  }
  for (int i = 0; i < 2; i++) {
    sim_end *end = &both->ends[i];
    end->both = both;
    end->node = i ? to : from;
    end->queue_end = &end->queue;
    end->flight_end = &end->flight;
    end->waiting_end = &end->waiting;
    end->retry_us = FIRST_RETRY_US;
    end->close_due = UINT64_MAX;
  }
  return both;
}

/* ---- the end of a stream ---- */

static void close_at(sim_end *end, uint64_t due, hv_status status, const char *text) {
  if (!end->live || due >= end->close_due)
    return;
  end->close_due = due;
  end->status = status;
  end->text = text;
  set(end, &end->close, SIM_CLOSE, due);
}

/* True if what this end sends gets to the other one. */
static int gets_through(sim_end *end) {
  hv_sim *sim = world(end);
  const sim_end *ends = end->both->ends;
  return !sim_blocked(sim, end->node->index, sim_other(end)->node->index) &&
         sim_carries(sim, ends[0].node->index, ends[1].node->index, end->both->way);
}

/* Closes the other end after the delay of the link, unless nothing gets there. */
static void tell_other(sim_end *end, hv_status status, const char *text) {
  hv_sim *sim = world(end);
  uint32_t here = end->node->index, there = sim_other(end)->node->index;
  if (gets_through(end))
    close_at(sim_other(end), sim->now + sim_delay_us(sim, here, there), status, text);
}

void sim_stream_closes(sim_end *end) {
  hv_event event = {
      .kind = HV_EVENT_STREAM_CLOSED, .stream = end->pub, .status = end->status, .text = end->text, .peer = end->pub->peer};
  end->live = 0;
  if (end->status == HV_VERSION && end == &end->both->ends[0])
    hv_spoken_refused(&end->node->env, &end->pub->peer, end->pub->version);
  if (sim_deliver(end->node, &event, 0))
    bury(end);
}

/* Closes both ends if both half-closes have arrived. */
static void close_if_said(sim_end *end) {
  hv_sim *sim = world(end);
  if (!end->got_end || !sim_other(end)->got_end)
    return;
  uint64_t back = sim_delay_us(sim, end->node->index, sim_other(end)->node->index);
  close_at(end, sim->now, HV_OK, "");
  close_at(sim_other(end), sim->now + back, HV_OK, "");
}

void sim_stream_cancel(hv_env *env, hv_stream *stream) {
  if (((sim_node *)env)->life == SIM_DEAD)
    return;
  sim_end *end = end_of(stream);
  close_at(end, world(end)->now, HV_CANCELLED, "cancelled");
  if (!end->both->broken) {
    break_off(end->both);
    tell_other(end, HV_CANCELLED, "the peer cancelled the stream");
  }
}

/* Breaks a stream because of an error at this end, and closes both ends. */
static void fail(sim_end *end, hv_status status, const char *text) {
  break_off(end->both);
  close_at(end, world(end)->now, status, text);
  tell_other(end, HV_CLOSED, "the peer broke off the stream");
}

void sim_streams_forget(sim_node *node, const sim_node *to) {
  for (sim_end *end = node->ends; end; end = end->next)
    if (sim_other(end)->node == to && end->live && !end->both->broken) {
      break_off(end->both);
      close_at(end, node->sim->now, HV_CANCELLED, "the connection was dropped");
      tell_other(end, HV_CLOSED, "the peer dropped the connection");
    }
}

void sim_streams_break(sim_node *node, int tell_others) {
  for (sim_end *end = node->ends; end; end = end->next) {
    end->live = 0;
    sim_alarm_clear(node->sim, &end->close);
    sim_alarm_clear(node->sim, &end->pulse);
    if (!end->both->broken && tell_others)
      tell_other(end, HV_CLOSED, "the peer was lost");
    break_off(end->both);
  }
}

void sim_streams_drop(sim_node *node) {
  while (node->ends)
    bury(node->ends);
}

void sim_streams_end(sim_node *node) {
  while (node->ends) {
    sim_end *end = node->ends;
    if (!end->both->broken) {
      break_off(end->both);
      tell_other(end, HV_CLOSED, "the peer has ended");
    }
    end->status = HV_CANCELLED;
    end->text = "this node is shutting down";
    sim_stream_closes(end);
  }
}

/* ---- sending ---- */

static uint64_t content_of(hv_sim *sim, const hv_span header, const hv_payload *payload) {
  uint64_t content = XXH3_64bits(header.data, header.size);
  if (!payload)
    return content;
  content = sim_hash_mix(content, payload->size);
  for (size_t i = 0; i < payload->n_parts && !sim->config.skip_payload_hash; i++)
    content = XXH3_64bits_withSeed(payload->parts[i].data, payload->parts[i].size, content);
  return content;
}

static sim_segment *new_segment(hv_sim *sim, int what, hv_span header, hv_payload *payload) {
  sim_segment *segment = hv_mem_alloc(sim->mem, sizeof *segment + header.size);
  if (!segment)
    return NULL;
  size_t cost = header.size + (payload ? payload->size : 0);
  *segment = (sim_segment){.what = what, .header_size = header.size, .cost = cost > LEAST_COST ? cost : LEAST_COST};
  if (what == ENDS)
    segment->cost = 0; /* passes even a full window, so that a receiver that holds all payloads learns of the end */
  if (header.size)
    memcpy(segment->header, header.data, header.size);
  segment->content = content_of(sim, header, payload);
  segment->payload = payload ? hv_payload_keep(payload) : NULL;
  return segment;
}

/* True if the pace delays the first message of the queue; then `leave` is set. */
static int takes_time(sim_end *end, uint64_t now) {
  if (!end->pace)
    return 0;
  if (!end->leaves_us)
    end->leaves_us = (end->paced_us > now ? end->paced_us : now) + (uint64_t)end->queue->cost * 1000000 / end->pace;
  if (end->leaves_us > now) {
    set(end, &end->leave, SIM_LEAVE, end->leaves_us);
    return 1;
  }
  end->paced_us = end->leaves_us;
  end->leaves_us = 0;
  return 0;
}

static hv_turn turn_of(const sim_end *end) {
  return end->pub && end->pub->on ? end->pub->on->turn : HV_TURN_ANY;
}

/* True if the rounds go first; then `leave` is set. */
static int gives_way(sim_end *end, uint64_t now) {
  hv_turns *turns = &end->node->turns;
  size_t cost = end->queue->cost;
  if (turn_of(end) != HV_TURN_LOAD || hv_turns_load(turns, cost, now))
    return 0;
  set(end, &end->leave, SIM_LEAVE, hv_turns_due_us(turns, cost, now));
  return 1;
}

static int has_room(const sim_end *end) {
  return end->unread == 0 || end->queue->what == ENDS || end->unread + end->queue->cost <= end->node->sim->config.window;
}

/* Sends the messages of the queue for which the receiver's window has room. */
static void pump(sim_end *end) {
  hv_sim *sim = world(end);
  sim_pair *pair = sim_pair_of(sim, end->node->index, sim_other(end)->node->index);
  while (end->queue && has_room(end) && !takes_time(end, sim->now) && !gives_way(end, sim->now)) {
    sim_segment *segment = end->queue;
    uint64_t leave = segment->what == OPENS && pair ? sim_dial(sim, pair) : sim->now;
    uint64_t due = pair ? sim_transit(sim, pair, leave, segment->cost) : leave;
    if (pair && sim_chance(sim, sim_link_of(sim, pair->from, pair->to)->loss)) {
      sim->counts.lost++;
      due += FIRST_RETRY_US + 2 * sim_delay_us(sim, pair->from, pair->to);
    }
    end->queue = segment->next;
    if (!end->queue)
      end->queue_end = &end->queue;
    segment->due = due > end->last_due ? due : end->last_due;
    end->last_due = segment->due;
    segment->next = NULL;
    end->unread += segment->cost;
    *end->flight_end = segment;
    end->flight_end = &segment->next;
    if (end->flight == segment)
      set(end, &end->arrive, SIM_ARRIVE, segment->due);
  }
}

void sim_stream_leaves(sim_end *end) {
  pump(end);
}

void sim_stream_pace(hv_env *env, hv_stream *stream, uint64_t rate) {
  sim_end *end = end_of(stream);
  if (((sim_node *)env)->life == SIM_DEAD || !end->live || end->both->broken || end->pace == rate)
    return;
  end->pace = rate;
  end->leaves_us = 0;
  sim_alarm_clear(world(end), &end->leave);
  pump(end);
}

static void take_on(sim_end *end, sim_segment *segment) {
  end->taken += segment->cost;
  if (end->asking) {
    *end->waiting_end = segment;
    end->waiting_end = &segment->next;
    return;
  }
  if (segment->what == DATA && turn_of(end) == HV_TURN_ROUND) {
    hv_turns_wait(&end->node->turns, segment->cost, world(end)->now);
    segment->ahead = 1;
  }
  *end->queue_end = segment;
  end->queue_end = &segment->next;
  pump(end);
}

static hv_status write_header(sim_end *end, const hv_msg *header, hv_span *out) {
  hv_sim *sim = world(end);
  sim->scratch.size = 0;
  hv_status status = hv_wire_write_bulk(header, end->pub->version, end->told ? NULL : &end->node->spoken.mine, &sim->scratch);
  *out = hv_span_of(sim->scratch.data, sim->scratch.size);
  return status;
}

/* False if the stream fails before its first message is sent; then its end is set. */
static int may_open(sim_end *end, const hv_target *to, hv_status nobody) {
  hv_sim *sim = world(end);
  sim_node *there = sim_other(end)->node;
  if (nobody == HV_OK) {
    int is_meant = (!hv_peer_is_known(&to->id) || hv_peer_equal(&to->id, &there->id)) && !sim_apart(end->node, there);
    if (there->life == SIM_DEAD || is_meant || sim_blocked(sim, end->node->index, there->index))
      return 1;
    close_at(end, sim->now + sim_delay_us(sim, end->node->index, there->index) + sim_delay_us(sim, there->index, end->node->index),
             HV_DENIED, "another peer answers at that address");
    return 0;
  }
  if (nobody == HV_TIMEOUT)
    close_at(end, sim->now + sim->config.keepalive_us, HV_UNREACHABLE, "the peer does not answer");
  else
    close_at(end, sim->now + 2 * sim->config.link.delay_us, nobody,
             nobody == HV_REFUSED ? "connection refused: nobody listens there" : "no route to that address");
  return 0;
}

/* Sends the first message, unless nobody can get it: then the end of the stream is set. */
static hv_status begin(sim_end *end, const hv_target *to, const hv_msg *first) {
  hv_sim *sim = world(end);
  hv_span header;
  hv_status nobody = HV_OK, status = write_header(end, first, &header);
  if (status != HV_OK)
    return status;
  sim_node *there = sim_node_at(end->node, &to->addr, &nobody);
  if (!may_open(end, to, there ? HV_OK : nobody)) {
    end->both->broken = 1;
    return HV_OK;
  }
  sim_pair *pair = sim_pair_of(sim, end->node->index, there->index);
  if (!pair)
    return HV_NOMEM;
  if (!sim_leads(sim, pair, &to->addr))
    return HV_UNREACHABLE;
  end->both->way = pair->way;
  sim_segment *segment = new_segment(sim, OPENS, header, NULL);
  if (!segment)
    return HV_NOMEM;
  end->told = 1;
  set(end, &end->pulse, SIM_PULSE, sim->now + sim->config.keepalive_us / 2);
  take_on(end, segment);
  return HV_OK;
}

/* Sends a held message in the version of the stream; the first one begins it. */
static hv_status send_held(sim_end *end, const hv_target *to, const sim_segment *held) {
  sim_node *node = end->node;
  hv_wire_msg msg;
  hv_span header = hv_span_of(NULL, 0), bytes = hv_span_of(held->header + 4, held->header_size - 4);
  hv_status status = hv_wire_read(bytes, &node->spoken.mine, node->mem, HV_WIRE_BUDGET, &msg);
  if (status != HV_OK)
    return status;
  status = held->what == OPENS ? begin(end, to, &msg.msg) : write_header(end, &msg.msg, &header);
  sim_segment *segment = status == HV_OK && held->what == DATA ? new_segment(world(end), DATA, header, held->payload) : NULL;
  hv_wire_release(&msg);
  if (segment)
    take_on(end, segment);
  return status == HV_OK && held->what == DATA && !segment ? HV_NOMEM : status;
}

static void send_end(sim_end *end);

/* Begins the stream in the version that is right by what the other side has answered, and sends what core has sent meanwhile. */
static hv_status begin_met(sim_end *end, const hv_event *event) {
  hv_target to = {event->peer, end->meets.to.addr};
  sim_segment *held = end->waiting, **held_end = end->waiting_end;
  end->pub->version = event->status == HV_OK ? hv_spoken_choose(&end->node->env, &event->peer, NULL) : 0;
  if (!end->pub->version)
    return event->status == HV_OK ? HV_VERSION : event->status;
  end->pub->peer = event->peer;
  end->waiting = NULL;
  end->waiting_end = &end->waiting;
  end->taken = 0;
  hv_status status = HV_OK;
  for (const sim_segment *h = held; h && status == HV_OK && !end->both->broken; h = h->next)
    status = send_held(end, &to, h);
  drop_segments(end->node, &held, &held_end);
  if (status == HV_OK && end->said_end && !end->both->broken)
    send_end(end);
  return status;
}

/* The other side was asked for its versions: begins the stream, or ends it. */
static void met(hv_call *call, const hv_event *event) {
  sim_end *end = call->owner;
  hv_sim *sim = world(end);
  end->asking = 0;
  if (end->both->broken || !end->live)
    return;
  hv_status status = begin_met(end, event);
  if (status != HV_OK) {
    snprintf(end->both->why, sizeof end->both->why, "%s", event->text[0] ? event->text : hv_status_text(status));
    break_off(end->both);
    close_at(end, sim->now, status, end->both->why);
    return;
  }
  if (end->wants_ready && !end->ready.slot && !end->said_end)
    set(end, &end->ready, SIM_READY, sim->now);
}

/* This node does not know in which version to write: what core sends waits until the other side was asked. */
static hv_status meet(sim_end *end, const hv_target *to, const hv_msg *first) {
  enum { PATIENCE_MS = 10000 };
  hv_span header;
  hv_status status = write_header(end, first, &header);
  sim_segment *segment = status == HV_OK ? new_segment(world(end), OPENS, header, NULL) : NULL;
  if (!segment)
    return status == HV_OK ? HV_NOMEM : status;
  end->asking = 1;
  take_on(end, segment);
  end->meets = (hv_call){.done = met, .owner = end, .to = *to, .timeout_ms = PATIENCE_MS};
  return sim_call_meet(end->node, &end->meets);
}

hv_status sim_stream_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                          hv_stream **out) {
  sim_node *node = (sim_node *)env;
  hv_status nobody;
  int sure;
  if (node->life == SIM_DEAD || node->life == SIM_ENDING)
    return HV_CLOSED;
  uint32_t version = hv_spoken_choose(env, &to->id, &sure);
  if (!version)
    return HV_VERSION;
  sim_node *there = sim_node_at(node, &to->addr, &nobody);
  sim_stream_ends *both = new_stream(node, there ? there : node);
  if (!both)
    return HV_NOMEM;
  sim_end *end = &both->ends[0];
  if (!give_to_core(end)) {
    free_if_over(both);
    return HV_NOMEM;
  }
  end->pub->on = on;
  end->pub->owner = owner;
  end->pub->peer = to->id;
  end->pub->version = version;
  hv_status status = sure ? begin(end, to, first) : meet(end, to, first);
  if (status == HV_OK)
    *out = end->pub;
  else
    bury(end);
  return status;
}

hv_status sim_stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  if (((sim_node *)env)->life == SIM_DEAD)
    return HV_CLOSED;
  sim_end *end = end_of(stream);
  hv_sim *sim = world(end);
  if (!end->live || end->said_end || (end->close.slot && end->close_due <= sim->now))
    return HV_CLOSED;
  if (payload && payload->size > HV_BULK_PAYLOAD_MAX)
    return HV_TOO_LARGE;
  hv_span bytes;
  hv_status status = write_header(end, header, &bytes);
  if (status != HV_OK)
    return status;
  size_t cost = bytes.size + (payload ? payload->size : 0);
  cost = cost > LEAST_COST ? cost : LEAST_COST;
  if (end->taken > 0 && end->taken + cost > sim->config.window) {
    end->wants_ready = 1;
    return HV_BUSY;
  }
  if (end->both->broken) { /* this end has not learned of it yet: the message reaches no stream */
    end->taken += cost;
    uint32_t here = end->node->index, there = sim_other(end)->node->index;
    if (!sim_other(end)->node->unplugged && gets_through(end) && !sim_blocked(sim, there, here))
      close_at(end, sim->now + sim_delay_us(sim, here, there) + sim_delay_us(sim, there, here), HV_CLOSED,
               "the peer knows no such stream");
    return HV_OK;
  }
  sim_segment *segment = new_segment(sim, DATA, bytes, payload);
  if (!segment)
    return HV_NOMEM;
  end->told |= !end->asking;
  take_on(end, segment);
  return HV_OK;
}

static void send_end(sim_end *end) {
  sim_segment *segment = new_segment(world(end), ENDS, hv_span_of(NULL, 0), NULL);
  if (segment)
    take_on(end, segment);
  else
    fail(end, HV_NOMEM, "no memory left to end the stream");
}

void sim_stream_end(hv_env *env, hv_stream *stream) {
  if (((sim_node *)env)->life == SIM_DEAD)
    return;
  sim_end *end = end_of(stream);
  if (!end->live || end->said_end || end->both->broken)
    return;
  end->said_end = 1;
  if (!end->asking)
    send_end(end);
}

void sim_stream_ready(sim_end *end) {
  end->wants_ready = 0;
  sim_deliver(end->node, &(hv_event){.kind = HV_EVENT_STREAM_READY, .stream = end->pub, .peer = end->pub->peer, .text = ""}, 0);
}

/* ---- receiving ---- */

void sim_stream_credit(sim_end *end) {
  end->unread -= end->credits[0].bytes;
  end->n_credits--;
  memmove(end->credits, end->credits + 1, end->n_credits * sizeof *end->credits);
  if (end->n_credits)
    set(end, &end->credit, SIM_CREDIT, end->credits[0].due);
  pump(end);
}

/* Closes the opener's end with the acceptor's refusal. */
static void turn_away(sim_end *opener, hv_status status, const char *text) {
  break_off(opener->both);
  tell_other(sim_other(opener), status, text);
}

static void opened(sim_end *end, hv_event *event, uint64_t content) {
  event->kind = HV_EVENT_STREAM_OPENED;
  const sim_pair *pair = sim_pair_of(world(end), sim_other(end)->node->index, end->node->index);
  hv_addr from = pair ? sim_seen_at(world(end), pair) : (hv_addr){.kind = HV_ADDR_NONE};
  event->stream->peer = sim_other(end)->node->id;
  event->stream->network = hv_contact_network(&from);
  event->peer = event->stream->peer;
  end->both->opened = 1;
  int apart = sim_apart(end->node, sim_other(end)->node) != HV_CAUSE_OTHER;
  if (!apart && (!sim_deliver(end->node, event, content) || end->pub->on))
    return;
  turn_away(sim_other(end), apart ? HV_NOT_ADMITTED : HV_REFUSED, apart ? "not admitted" : "the peer refused the stream");
  bury(end);
}

static void got_data(sim_end *end, sim_segment *segment, hv_event *event) {
  sim_end *sender = sim_other(end);
  hv_payload *held = NULL;
  if (segment->payload && segment->payload->size && !(held = sim_window_hold(end, segment->payload))) {
    fail(end, HV_NOMEM, "no memory left for what arrived");
    return;
  }
  if (!end->got_any && !hv_peer_is_known(&end->pub->peer))
    end->pub->peer = sender->node->id;
  end->got_any = 1;
  event->kind = HV_EVENT_STREAM_DATA;
  event->payload = held;
  event->peer = end->pub->peer;
  sim_window_grant(sender, segment->cost - (held ? held->size : 0));
  sim_deliver(end->node, event, segment->content);
  hv_payload_release(held);
}

/* Reads a header. All messages of a stream are written in the version of the first one. The first message of each side also tells
 * what that side speaks. */
static hv_status read_header(sim_end *end, const sim_segment *segment, hv_wire_msg *wire) {
  sim_node *node = end->node;
  size_t size = 0;
  int opens = segment->what == OPENS;
  hv_versions of_stream = hv_versions_plain(opens ? 0 : end->pub->version);
  hv_status status = segment->header_size < 4 ? HV_MALFORMED : hv_wire_bulk_header(segment->header, &size);
  if (status == HV_OK && size != segment->header_size - 4)
    status = HV_MALFORMED;
  if (status != HV_OK)
    return status;
  hv_span bytes = hv_span_of(segment->header + 4, size);
  status = hv_wire_read(bytes, opens ? &node->spoken.mine : &of_stream, node->mem, HV_WIRE_BUDGET, wire);
  if ((status == HV_OK || status == HV_VERSION) && !end->heard)
    sim_learn(node, &sim_other(end)->node->id, &wire->speaks);
  end->heard = 1;
  return status;
}

static void refuse_opening(sim_end *end, hv_status status, const hv_versions *opener) {
  if (status == HV_VERSION)
    hv_versions_refuse(&end->node->spoken.mine, opener, end->both->why);
  turn_away(sim_other(end), status == HV_VERSION ? status : HV_CLOSED,
            status == HV_VERSION ? end->both->why : "the peer could not take the stream");
}

static void got_message(sim_end *end, sim_segment *segment) {
  hv_wire_msg wire = {0};
  hv_status status = read_header(end, segment, &wire);
  if (status == HV_OK && segment->what == OPENS && !give_to_core(end)) {
    hv_wire_release(&wire);
    status = HV_NOMEM;
  }
  if (status != HV_OK && segment->what == OPENS) {
    refuse_opening(end, status, &wire.speaks);
  } else if (status != HV_OK) {
    fail(end, status, hv_status_text(status));
  } else {
    hv_event event = {.stream = end->pub, .msg = &wire.msg, .text = ""};
    if (segment->what == OPENS) {
      end->pub->version = wire.version;
      set(end, &end->pulse, SIM_PULSE, world(end)->now + world(end)->config.keepalive_us / 2);
      sim_window_grant(sim_other(end), segment->cost);
      opened(end, &event, segment->content);
    } else {
      got_data(end, segment, &event);
    }
    hv_wire_release(&wire);
  }
}

/* A message has arrived: the sender's buffer has room again, and a load of that node may have its turn. */
static void left(sim_end *end, sim_segment *segment) {
  int was_ahead = segment->ahead;
  leaves_line(end->node, segment);
  for (sim_end *e = was_ahead ? end->node->ends : NULL; e; e = e->next)
    if (e->queue && turn_of(e) == HV_TURN_LOAD)
      pump(e);
  end->taken -= segment->cost;
  if (end->wants_ready && !end->ready.slot && end->taken <= world(end)->config.window / 2 && end->live && !end->said_end)
    set(end, &end->ready, SIM_READY, world(end)->now);
}

static int cannot_arrive(sim_end *end) {
  hv_sim *sim = world(end);
  sim_node *there = sim_other(end)->node;
  if (there->unplugged || !gets_through(end)) {
    set(end, &end->arrive, SIM_ARRIVE, sim->now + end->retry_us);
    end->retry_us = end->retry_us < LAST_RETRY_US ? 2 * end->retry_us : LAST_RETRY_US;
    return 1;
  }
  end->retry_us = FIRST_RETRY_US;
  if (there->life != SIM_DEAD && there->life != SIM_ENDING)
    return 0;
  turn_away(end, HV_REFUSED,
            "connection refused: nobody listens there"); /* a dead node has no streams, so this was an opening message */
  return 1;
}

void sim_stream_arrives(sim_end *end) {
  hv_sim *sim = world(end);
  sim_end *to = sim_other(end);
  if (cannot_arrive(end))
    return;
  sim_segment *segment = end->flight;
  uint64_t later = sim_way_in(to->node, segment->cost, &end->queued);
  if (later > sim->now) {
    set(end, &end->arrive, SIM_ARRIVE, later);
    return;
  }
  end->queued = 0;
  end->flight = segment->next;
  if (!end->flight)
    end->flight_end = &end->flight;
  else
    set(end, &end->arrive, SIM_ARRIVE, end->flight->due > sim->now ? end->flight->due : sim->now);
  left(end, segment);
  if (segment->what == OPENS) {
    sim_pair *pair = sim_pair_of(sim, end->node->index, to->node->index);
    if (pair)
      sim_connected(sim, pair);
  }
  if (segment->what == ENDS) {
    to->got_end = 1;
    close_if_said(to);
  } else {
    got_message(to, segment);
  }
  hv_payload_release(segment->payload);
  hv_mem_free(segment);
}

/* ---- signs of life ---- */

void sim_stream_pulse(sim_end *end) {
  hv_sim *sim = world(end);
  sim_node *there = sim_other(end)->node;
  uint32_t a = end->node->index, b = there->index;
  int well = !end->both->broken && there->life != SIM_DEAD && !there->paused && gets_through(end) && !sim_blocked(sim, b, a);
  end->missed = well ? 0 : end->missed + 1;
  if (end->missed < 2) {
    set(end, &end->pulse, SIM_PULSE, sim->now + sim->config.keepalive_us / 2);
    return;
  }
  break_off(end->both);
  if (end == &end->both->ends[0] && !end->both->opened)
    close_at(end, sim->now, HV_UNREACHABLE, "the peer does not answer");
  else
    close_at(end, sim->now, HV_CLOSED, "the peer gave no sign of life");
}
