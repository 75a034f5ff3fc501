#include "net/sim/sim_inner.h"

#include <string.h>
#include <xxhash.h>

enum { BACK_MAX = 10 /* longest time for which a message is held back, in delays of the link */ };

/* ---- messages as bytes ---- */

static hv_status encode(hv_sim *sim, const hv_msg *msg, sim_blob **out) {
  sim->scratch.size = 0;
  hv_status status = hv_wire_write(msg, &sim->scratch);
  if (status != HV_OK)
    return status;
  sim_blob *blob = hv_mem_alloc(sim->mem, sizeof *blob + sim->scratch.size);
  if (!blob)
    return HV_NOMEM;
  blob->refs = 1;
  blob->size = sim->scratch.size;
  memcpy(blob->bytes, sim->scratch.data, blob->size);
  blob->hash = XXH3_64bits(blob->bytes, blob->size);
  *out = blob;
  return HV_OK;
}

static void let_go(sim_blob *blob) {
  if (--blob->refs == 0)
    hv_mem_free(blob);
}

void sim_packet_drop(hv_sim *sim, sim_packet *packet) {
  let_go(packet->blob);
  sim_pool_give(&sim->packets, packet);
}

/* Sends one copy of a message. Without memory for it, the message is lost. */
static void post(hv_sim *sim, sim_pair *pair, sim_packet packet, uint64_t leave) {
  const hv_sim_link *link = sim_link_of(sim, pair->from, pair->to);
  uint64_t at = sim_transit(sim, pair, leave, packet.blob->size);
  if (sim_chance(sim, link->loss)) {
    sim->counts.lost++;
    return;
  }
  if (sim_chance(sim, link->reorder))
    at += sim_random(&sim->random) % (BACK_MAX * (link->delay_us + link->jitter_us) + 1);
  sim_packet *copy = sim_pool_take(&sim->packets);
  if (!copy)
    return;
  *copy = packet;
  if (sim_heap_push(&sim->heap, at, pair->to, SIM_PACKET, copy))
    copy->blob->refs++;
  else
    sim_pool_give(&sim->packets, copy);
}

static void send(hv_sim *sim, sim_pair *pair, sim_packet packet, uint64_t leave) {
  post(sim, pair, packet, leave);
  if (sim_chance(sim, sim_link_of(sim, pair->from, pair->to)->duplicate)) {
    sim->counts.doubled++;
    post(sim, pair, packet, leave);
  }
}

/* ---- the caller ---- */

static void unlink_call(sim_call *call) {
  *call->where = call->next;
  if (call->next)
    call->next->where = call->where;
  if (call->to) {
    *call->where_asked = call->next_asked;
    if (call->next_asked)
      call->next_asked->where_asked = call->where_asked;
  }
  hv_sim *sim = call->from->sim;
  sim_alarm_clear(sim, &call->end);
  sim_heap_unhold(&sim->heap, 1);
  call->call->world = NULL;
  call->serial = 0;
  sim_pool_give(&sim->calls, call);
}

static void link_call(sim_call *call, sim_node *from, sim_node *to) {
  call->next = from->calls;
  call->where = &from->calls;
  if (call->next)
    call->next->where = &call->next;
  from->calls = call;
  if (!to)
    return;
  call->next_asked = to->asked;
  call->where_asked = &to->asked;
  if (call->next_asked)
    call->next_asked->where_asked = &call->next_asked;
  to->asked = call;
}

void sim_call_end_at(sim_call *call, uint64_t due, hv_status status, const char *text) {
  if (due >= call->end_due)
    return;
  call->end_due = due;
  call->status = status;
  call->text = text;
  sim_alarm_set(call->from->sim, &call->end, SIM_CALL_END, call->from->index, due);
}

static sim_call *new_call(sim_node *from, sim_node *to, hv_call *call) {
  hv_sim *sim = from->sim;
  if (!sim_heap_hold(&sim->heap, 1))
    return NULL;
  sim_call *c = sim_pool_take(&sim->calls);
  if (!c) {
    sim_heap_unhold(&sim->heap, 1);
    return NULL;
  }
  *c = (sim_call){.call = call, .from = from, .to = to, .serial = ++sim->serial, .end_due = UINT64_MAX};
  link_call(c, from, to);
  call->world = c;
  return c;
}

/* False if the call fails before its request is sent; then its end is set. */
static int may_go(sim_call *c, hv_status nobody) {
  hv_sim *sim = c->from->sim;
  const hv_peer_id *id = &c->call->to.id;
  if (!c->to) {
    sim_call_end_at(c, sim->now + 2 * sim->config.link.delay_us, nobody,
                    nobody == HV_REFUSED ? "connection refused: nobody listens there" : "no route to that address");
    return 0;
  }
  uint64_t back = sim->now + sim_delay_us(sim, c->from->index, c->to->index) + sim_delay_us(sim, c->to->index, c->from->index);
  if (sim_blocked(sim, c->from->index, c->to->index))
    return 0;
  if (c->to->life == SIM_DEAD || !hv_peer_is_known(id) || hv_peer_equal(id, &c->to->id))
    return 1;
  if (!c->to->paused && !sim_blocked(sim, c->to->index, c->from->index))
    sim_call_end_at(c, back, HV_DENIED, "another peer answers at that address");
  return 0;
}

hv_status sim_call_start(hv_env *env, hv_call *call, const hv_msg *request) {
  sim_node *from = (sim_node *)env;
  hv_sim *sim = from->sim;
  if (from->life == SIM_DEAD || from->life == SIM_ENDING)
    return HV_CLOSED;
  if (call->timeout_ms == 0 || call->world)
    return HV_INVALID;
  sim_packet packet = {.from = from->index};
  hv_status nobody, status = encode(sim, request, &packet.blob);
  if (status != HV_OK)
    return status;
  sim_node *to = sim_node_at(sim, &call->to.addr, &nobody);
  sim_pair *pair = to ? sim_pair_of(sim, from->index, to->index) : NULL;
  sim_call *c = to && !pair ? NULL : new_call(from, to, call);
  if (!c) {
    let_go(packet.blob);
    return HV_NOMEM;
  }
  sim->counts.calls++;
  sim_call_end_at(c, sim_after_us(from, (uint64_t)call->timeout_ms * 1000), HV_TIMEOUT, "no answer in time");
  packet.call = c;
  packet.serial = c->serial;
  if (may_go(c, nobody))
    send(sim, pair, packet, to->life == SIM_DEAD ? sim->now : sim_dial(sim, pair));
  let_go(packet.blob);
  return HV_OK;
}

void sim_call_stop(hv_env *env, hv_call *call) {
  if (((sim_node *)env)->life != SIM_DEAD && call->world)
    sim_call_end_at(call->world, sim_of(env)->now, HV_CANCELLED, "cancelled");
}

static void finish(sim_call *c, hv_event *event, uint64_t content) {
  sim_node *node = c->from;
  event->kind = HV_EVENT_CALL_DONE;
  event->call = c->call;
  unlink_call(c);
  sim_deliver(node, event, content);
}

void sim_call_ends(sim_call *c) {
  finish(c, &(hv_event){.status = c->status, .text = c->text, .peer = c->call->to.id}, 0);
}

static void answer_arrives(sim_packet *packet) {
  sim_call *c = packet->call;
  if (c->serial != packet->serial)
    return;
  sim_node *node = c->from;
  hv_wire_msg wire;
  char text[HV_MSG_TEXT_MAX + 1] = "";
  hv_event event = {.text = text, .peer = c->to->id};
  event.status = hv_wire_read(hv_span_of(packet->blob->bytes, packet->blob->size), node->mem, HV_WIRE_BUDGET, &wire);
  c->call->to.id = event.peer;
  if (event.status != HV_OK) {
    event.text = hv_status_text(event.status);
    finish(c, &event, packet->blob->hash);
    return;
  }
  if (wire.msg.kind == HV_MSG_REFUSAL) {
    hv_span why = wire.msg.u.refusal.text;
    event.status = wire.msg.u.refusal.status == HV_OK ? HV_MALFORMED : wire.msg.u.refusal.status;
    if (why.size)
      memcpy(text, why.data, why.size < HV_MSG_TEXT_MAX ? why.size : HV_MSG_TEXT_MAX);
  } else {
    event.msg = &wire.msg;
  }
  finish(c, &event, packet->blob->hash);
  hv_wire_release(&wire);
}

void sim_calls_forget(sim_node *node, const sim_node *to) {
  for (sim_call *c = node->calls; c; c = c->next)
    if (c->to == to)
      sim_call_end_at(c, node->sim->now, HV_CANCELLED, "the connection was dropped");
}

void sim_calls_lost(sim_node *gone) {
  hv_sim *sim = gone->sim;
  for (sim_call *c = gone->asked; c; c = c->next_asked)
    if (!gone->unplugged && !sim_blocked(sim, gone->index, c->from->index))
      sim_call_end_at(c, sim->now + sim_delay_us(sim, gone->index, c->from->index), HV_CLOSED,
                      "the peer was lost while it was asked");
}

void sim_calls_drop(sim_node *node) {
  while (node->calls)
    unlink_call(node->calls);
}

/* ---- the one who is asked ---- */

static void free_request(sim_request *request) {
  *request->where = request->next;
  if (request->next)
    request->next->where = request->where;
  hv_mem_free(request);
}

void sim_requests_drop(sim_node *node) {
  while (node->requests)
    free_request(node->requests);
}

static void send_answer(sim_node *node, uint32_t to, sim_call *call, uint64_t serial, const hv_msg *answer) {
  hv_sim *sim = node->sim;
  sim_packet packet = {.from = node->index, .call = call, .serial = serial, .is_answer = 1};
  hv_status status = encode(sim, answer, &packet.blob);
  if (status != HV_OK && answer->kind != HV_MSG_REFUSAL) {
    const char *why = hv_status_text(status);
    hv_msg refusal = {.kind = HV_MSG_REFUSAL, .u.refusal = {status, hv_span_of(why, strlen(why))}};
    status = encode(sim, &refusal, &packet.blob);
  }
  if (status != HV_OK)
    return; /* the caller gets a timeout */
  sim_pair *pair = sim_pair_of(sim, node->index, to);
  if (pair && !sim_blocked(sim, node->index, to))
    send(sim, pair, packet, sim->now);
  let_go(packet.blob);
}

void sim_reply(hv_env *env, hv_request *pub, const hv_msg *answer) {
  sim_node *node = (sim_node *)env;
  if (node->life == SIM_DEAD)
    return;
  sim_request *request = (sim_request *)pub;
  send_answer(node, request->from, request->call, request->serial, answer);
  free_request(request);
}

static void refuse(sim_node *node, sim_packet *packet, hv_status status) {
  const char *why = hv_status_text(status);
  hv_msg refusal = {.kind = HV_MSG_REFUSAL, .u.refusal = {status, hv_span_of(why, strlen(why))}};
  send_answer(node, packet->from, packet->call, packet->serial, &refusal);
}

static sim_request *new_request(sim_node *node, sim_packet *packet) {
  hv_sim *sim = node->sim;
  sim_request *r = hv_mem_zalloc(sim->mem, sizeof *r);
  if (!r)
    return NULL;
  r->pub.peer = sim->nodes[packet->from]->id;
  r->pub.from = sim_addr_of(packet->from, (uint16_t)(32768 + node->index % 16384)); /* an ephemeral port of the caller */
  r->node = node;
  r->from = packet->from;
  r->call = packet->call;
  r->serial = packet->serial;
  r->next = node->requests;
  r->where = &node->requests;
  if (r->next)
    r->next->where = &r->next;
  node->requests = r;
  return r;
}

static void nobody_home(sim_node *node, sim_packet *packet) {
  sim_call *c = packet->call;
  hv_sim *sim = node->sim;
  if (c->serial == packet->serial && !node->unplugged && !sim_blocked(sim, node->index, packet->from))
    sim_call_end_at(c, sim->now + sim_delay_us(sim, node->index, packet->from), HV_REFUSED,
                    "connection refused: nobody listens there");
}

static void request_arrives(sim_node *node, sim_packet *packet) {
  hv_sim *sim = node->sim;
  if (node->life == SIM_DEAD || node->life == SIM_ENDING) {
    nobody_home(node, packet);
    return;
  }
  sim_pair *pair = sim_pair_of(sim, packet->from, node->index);
  if (pair && sim->nodes[packet->from]->life != SIM_DEAD)
    sim_connected(sim, pair);
  hv_wire_msg wire;
  hv_status status = hv_wire_read(hv_span_of(packet->blob->bytes, packet->blob->size), node->mem, HV_WIRE_BUDGET, &wire);
  if (status != HV_OK) {
    refuse(node, packet, status);
    return;
  }
  sim_request *request = new_request(node, packet);
  if (request) {
    hv_event event = {.kind = HV_EVENT_REQUEST, .request = &request->pub, .msg = &wire.msg, .peer = request->pub.peer, .text = ""};
    sim_deliver(node, &event, packet->blob->hash);
  } else {
    refuse(node, packet, HV_NOMEM);
  }
  hv_wire_release(&wire);
}

/* Lets the tap see and change a copy of the bytes, because a duplicate shares the original. */
static void tapped(hv_sim *sim, sim_packet *packet, uint32_t to) {
  sim_blob *blob = packet->blob;
  sim_blob *own = hv_mem_alloc(sim->mem, sizeof *own + blob->size);
  if (!own)
    return;
  memcpy(own, blob, sizeof *own + blob->size);
  own->refs = 1;
  sim->tap(sim->tap_arg, packet->from, to, own->bytes, own->size);
  own->hash = XXH3_64bits(own->bytes, own->size);
  let_go(blob);
  packet->blob = own;
}

void sim_packet_arrives(sim_node *node, sim_packet *packet) {
  hv_sim *sim = node->sim;
  uint64_t later = sim_way_in(node, packet->blob->size, &packet->queued);
  if (later > sim->now && sim_heap_push(&sim->heap, later, node->index, SIM_PACKET, packet))
    return;
  if (sim_blocked(sim, packet->from, node->index)) {
    sim->counts.lost++;
  } else {
    if (sim->tap)
      tapped(sim, packet, node->index);
    if (packet->is_answer)
      answer_arrives(packet);
    else
      request_arrives(node, packet);
  }
  sim_packet_drop(sim, packet);
}
