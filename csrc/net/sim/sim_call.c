#include "net/sim/sim_inner.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { BACK_MAX = 10 /* longest time for which a message is held back, in delays of the link */ };

/* ---- messages as bytes ---- */

/* The bytes in the sim's scratch as a blob. */
static hv_status blob_of(hv_sim *sim, sim_blob **out) {
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

static hv_status encode(sim_node *node, const hv_msg *msg, uint32_t version, sim_blob **out) {
  hv_sim *sim = node->sim;
  sim->scratch.size = 0;
  hv_status status = hv_wire_write(msg, version, &node->spoken.mine, &sim->scratch);
  return status == HV_OK ? blob_of(sim, out) : status;
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

void sim_learn(sim_node *node, const hv_peer_id *peer, const hv_versions *speaks) {
  hv_spoken_learn(&node->env, peer, speaks);
  if (node->sim->config.say)
    sim_narrate_log(node->sim, node);
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
  if (call->held)
    let_go(call->held);
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
  if (!c->to && nobody == HV_TIMEOUT)
    return 0;
  if (!c->to) {
    sim_call_end_at(c, sim->now + 2 * sim->config.link.delay_us, nobody,
                    nobody == HV_REFUSED ? "connection refused: nobody listens there" : "no route to that address");
    return 0;
  }
  uint64_t back = sim->now + sim_delay_us(sim, c->from->index, c->to->index) + sim_delay_us(sim, c->to->index, c->from->index);
  if (sim_blocked(sim, c->from->index, c->to->index))
    return 0;
  int is_meant = (!hv_peer_is_known(id) || hv_peer_equal(id, &c->to->id)) && !sim_apart(c->from, c->to);
  if (c->to->life == SIM_DEAD || is_meant)
    return 1;
  if (!c->to->paused && !sim_blocked(sim, c->to->index, c->from->index))
    sim_call_end_at(c, back, HV_DENIED, "another peer answers at that address");
  return 0;
}

/* The peer has no version in common with this node: the call ends without a connection. */
static hv_status turned_away(sim_node *from, hv_call *call) {
  sim_call *c = new_call(from, NULL, call);
  if (!c)
    return HV_NOMEM;
  hv_spoken_explain(&from->env, &call->to.id, c->why);
  sim_call_end_at(c, from->sim->now, HV_VERSION, c->why);
  return HV_OK;
}

/* Sends the request of a call. */
static void send_request(sim_call *c, sim_pair *pair, sim_blob *blob) {
  hv_sim *sim = c->from->sim;
  c->tries++;
  if (!sim_leads(sim, pair, &c->call->to.addr)) {
    sim_call_end_at(c, sim->now, HV_UNREACHABLE, "the NAT has no port left");
    return;
  }
  sim_packet packet = {.from = c->from->index, .way = c->way = pair->way, .blob = blob, .call = c, .serial = c->serial};
  send(sim, pair, packet, c->to->life == SIM_DEAD ? sim->now : sim_dial(sim, pair));
}

static hv_status call_start(sim_node *from, hv_call *call, const hv_msg *request, int meets) {
  hv_sim *sim = from->sim;
  if (from->life == SIM_DEAD || from->life == SIM_ENDING)
    return HV_CLOSED;
  if (call->timeout_ms == 0 || call->world)
    return HV_INVALID;
  uint32_t version = hv_spoken_choose(&from->env, &call->to.id, NULL);
  if (!version)
    return turned_away(from, call);
  sim_blob *blob;
  hv_status nobody, status = encode(from, request, version, &blob);
  if (status != HV_OK)
    return status;
  sim_node *to = sim_node_at(from, &call->to.addr, &nobody);
  sim_pair *pair = to ? sim_pair_of(sim, from->index, to->index) : NULL;
  sim_call *c = to && !pair ? NULL : new_call(from, to, call);
  if (!c) {
    let_go(blob);
    return HV_NOMEM;
  }
  c->version = version;
  c->meets = (uint8_t)meets;
  sim->counts.calls++;
  sim_call_end_at(c, sim_after_us(from, (uint64_t)call->timeout_ms * 1000), HV_TIMEOUT, "no answer in time");
  if (may_go(c, nobody))
    send_request(c, pair, blob);
  if (from->spoken.mine.lowest != from->spoken.mine.highest)
    c->held = blob;
  else
    let_go(blob);
  return HV_OK;
}

hv_status sim_call_start(hv_env *env, hv_call *call, const hv_msg *request) {
  return call_start((sim_node *)env, call, request, 0);
}

hv_status sim_call_meet(sim_node *node, hv_call *call) {
  hv_msg echo = {.kind = HV_MSG_ECHO};
  return call_start(node, call, &echo, 1);
}

void sim_call_drop(hv_call *call) {
  if (call->world)
    unlink_call(call->world);
}

void sim_call_stop(hv_env *env, hv_call *call) {
  if (((sim_node *)env)->life != SIM_DEAD && call->world)
    sim_call_end_at(call->world, sim_of(env)->now, HV_CANCELLED, "cancelled");
}

static void finish(sim_call *c, hv_event *event, uint64_t content) {
  sim_node *node = c->from;
  event->kind = HV_EVENT_CALL_DONE;
  event->call = c->call;
  if (event->status == HV_OK)
    event->member = sim_member(node, c->to);
  int meets = c->meets;
  unlink_call(c);
  if (meets)
    event->call->done(event->call, event);
  else
    sim_deliver(node, event, content);
}

void sim_call_ends(sim_call *c) {
  char text[HV_VERSIONS_TEXT_MAX]; /* finish gives the call's block back */
  snprintf(text, sizeof text, "%s", c->text);
  finish(c, &(hv_event){.status = c->status, .text = text, .peer = c->call->to.id}, 0);
}

/* A refusal for the version alone: sends the request once more, in the version that is right by what is known now. */
static int ask_again(sim_call *c) {
  enum { TRIES = 2 };
  sim_node *from = c->from;
  hv_sim *sim = from->sim;
  sim_pair *pair = sim_pair_of(sim, from->index, c->to->index);
  sim_blob *blob;
  uint32_t version = hv_spoken_choose(&from->env, &c->to->id, NULL);
  if (!c->held || c->tries == TRIES || !version || version == c->version || !pair)
    return 0;
  sim->scratch.size = 0;
  hv_status status =
      hv_wire_translate(hv_span_of(c->held->bytes, c->held->size), version, &from->spoken.mine, sim->mem, &sim->scratch);
  if (status != HV_OK || blob_of(sim, &blob) != HV_OK)
    return 0;
  c->serial = ++sim->serial; /* a second copy of the refusal does not end it */
  c->version = version;
  send_request(c, pair, blob);
  let_go(blob);
  return 1;
}

/* Reads an answer into the event. text: room for the sentence of one without an answer. */
static void read_answer(sim_call *c, sim_packet *packet, hv_wire_msg *wire, hv_event *event, char text[HV_MSG_TEXT_MAX + 1]) {
  sim_node *node = c->from;
  const hv_versions *mine = &node->spoken.mine;
  event->status = hv_wire_read(hv_span_of(packet->blob->bytes, packet->blob->size), mine, node->mem, HV_WIRE_BUDGET, wire);
  int told = event->status == HV_OK || event->status == HV_VERSION, apart = 0;
  if (told) {
    sim_learn(node, &c->to->id, &wire->speaks);
    apart = !hv_versions_common(mine, &wire->speaks);
  }
  if (event->status != HV_OK) {
    snprintf(text, HV_MSG_TEXT_MAX + 1, "%s", hv_status_text(event->status));
  } else if (wire->msg.kind == HV_MSG_REFUSAL) {
    hv_span why = wire->msg.u.refusal.text;
    event->status = wire->msg.u.refusal.status == HV_OK ? HV_MALFORMED : wire->msg.u.refusal.status;
    event->status = event->status == HV_CANCELLED ? HV_CLOSED : event->status; /* this node has not cancelled it */
    snprintf(text, HV_MSG_TEXT_MAX + 1, "%.*s", (int)why.size, (const char *)why.data);
    hv_wire_release(wire);
  } else {
    event->msg = &wire->msg;
  }
  if (apart)
    hv_spoken_explain(&node->env, &c->to->id, text);
}

static void answer_arrives(sim_packet *packet) {
  sim_call *c = packet->call;
  if (c->serial != packet->serial)
    return;
  hv_wire_msg wire = {0};
  char text[HV_MSG_TEXT_MAX + 1] = "";
  hv_event event = {.text = text, .peer = c->to->id};
  read_answer(c, packet, &wire, &event, text);
  c->call->to.id = event.peer;
  if (event.status == HV_VERSION && ask_again(c))
    return;
  finish(c, &event, packet->blob->hash);
  if (event.msg)
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
    if (!gone->unplugged && !sim_blocked(sim, gone->index, c->from->index) && sim_carries(sim, c->from->index, gone->index, c->way))
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

static void send_answer(sim_node *node, uint32_t to, sim_packet packet, const hv_msg *answer, uint32_t version) {
  hv_sim *sim = node->sim;
  hv_status status = encode(node, answer, version, &packet.blob);
  if (status != HV_OK && answer->kind != HV_MSG_REFUSAL) {
    const char *why = hv_status_text(status);
    hv_msg refusal = {.kind = HV_MSG_REFUSAL, .u.refusal = {status, hv_span_of(why, strlen(why))}};
    status = encode(node, &refusal, version, &packet.blob);
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
  sim_packet packet = {.from = node->index, .way = request->way, .call = request->call, .serial = request->serial, .is_answer = 1};
  send_answer(node, request->from, packet, answer, request->pub.version);
  free_request(request);
}

static void refuse(sim_node *node, const sim_packet *asked, hv_status status, const hv_versions *caller) {
  const hv_versions *mine = &node->spoken.mine;
  char text[HV_VERSIONS_TEXT_MAX];
  uint32_t common = caller->lowest ? hv_versions_common(mine, caller) : 0;
  snprintf(text, sizeof text, "%s", hv_status_text(status));
  if (status == HV_VERSION)
    hv_versions_refuse(mine, caller, text);
  hv_msg refusal = {.kind = HV_MSG_REFUSAL, .u.refusal = {status, hv_span_of(text, strlen(text))}};
  sim_packet packet = {.from = node->index, .way = asked->way, .call = asked->call, .serial = asked->serial, .is_answer = 1};
  send_answer(node, asked->from, packet, &refusal, common ? common : mine->lowest);
}

/* pair: of the caller and this node. */
static sim_request *new_request(sim_node *node, const sim_pair *pair, sim_packet *packet) {
  hv_sim *sim = node->sim;
  sim_request *r = hv_mem_zalloc(sim->mem, sizeof *r);
  if (!r)
    return NULL;
  r->pub.peer = sim->nodes[packet->from]->id;
  r->pub.from = sim_seen_at(sim, pair);
  r->node = node;
  r->from = packet->from;
  r->call = packet->call;
  r->serial = packet->serial;
  r->way = packet->way;
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
  if (!pair)
    return; /* the caller gets a timeout */
  if (sim->nodes[packet->from]->life != SIM_DEAD)
    sim_connected(sim, pair);
  if (sim_apart(node, sim->nodes[packet->from])) {
    refuse(node, packet, HV_NOT_ADMITTED, &(hv_versions){0});
    return;
  }
  hv_wire_msg wire;
  hv_status status =
      hv_wire_read(hv_span_of(packet->blob->bytes, packet->blob->size), &node->spoken.mine, node->mem, HV_WIRE_BUDGET, &wire);
  if (status == HV_OK || status == HV_VERSION)
    sim_learn(node, &sim->nodes[packet->from]->id, &wire.speaks);
  if (status != HV_OK) {
    refuse(node, packet, status, &wire.speaks);
    return;
  }
  sim_request *request = new_request(node, pair, packet);
  if (request) {
    request->pub.version = wire.version;
    hv_event event = {.kind = HV_EVENT_REQUEST,
                      .request = &request->pub,
                      .msg = &wire.msg,
                      .peer = request->pub.peer,
                      .member = sim_member(node, sim->nodes[packet->from]),
                      .text = ""};
    sim_deliver(node, &event, packet->blob->hash);
  } else {
    refuse(node, packet, HV_NOMEM, &wire.speaks);
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
  uint32_t dialler = packet->is_answer ? node->index : packet->from, other = packet->is_answer ? packet->from : node->index;
  if (sim_blocked(sim, packet->from, node->index) || !sim_carries(sim, dialler, other, packet->way)) {
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
