#include "net/transport/guests.h"
#include "net/transport/world.h"

#include <stdio.h>
#include <string.h>

enum { ACCEPTS = 32 };

/* ---- outgoing calls ---- */

typedef struct asked {
  hv_grpc_op op;
  hv_link_use use;
  hv_loop *loop;
  hv_link *link;
  hv_call *call;
  hv_grpc_call *rpc;
  hv_timer deadline; /* replaces gRPC's own deadline, which may fire early and costs more */
  int who;           /* True if the other side was asked for its identity */
  hv_status broken_off;
} asked;

/* The peer that answered: from this call, or from an earlier one on the same connection. */
static hv_status who_answered(asked *a, hv_peer_id *peer, hv_cause *cause, char text[HV_WORLD_TEXT_MAX]) {
  if (!a->who) {
    *peer = a->link->met;
    return HV_OK;
  }
  if (hv_grpc_call_peer(a->rpc, peer) != HV_OK) {
    char where[HV_ADDR_TEXT_MAX];
    snprintf(text, HV_WORLD_TEXT_MAX, "%s did not send its identity: check that the address is a peer's",
             hv_addr_print_short(&a->link->to.addr, where));
    *cause = HV_CAUSE_BAD_CERTIFICATE;
    return HV_DENIED;
  }
  *cause = HV_CAUSE_OTHER_PEER; /* applies if it is denied */
  return hv_link_meet(a->link, peer, text);
}

static hv_status read_answer(asked *a, hv_wire_msg *answer, char text[HV_WORLD_TEXT_MAX]) {
  char where[HV_ADDR_TEXT_MAX];
  hv_span bytes;
  int64_t size = hv_grpc_call_size(a->rpc);
  hv_status status = size > HV_MSG_BYTES_MAX ? HV_TOO_LARGE : HV_OK;
  if (status == HV_OK)
    status = hv_grpc_call_bytes(a->rpc, size < 0 ? 0 : (size_t)size, &a->loop->scratch, &bytes);
  if (status == HV_OK)
    status = hv_wire_read(bytes, a->loop->mem, HV_WIRE_BUDGET, answer);
  if (status == HV_OK)
    return status;
  hv_addr_print_short(&a->link->to.addr, where);
  if (status == HV_VERSION)
    snprintf(text, HV_WORLD_TEXT_MAX, "%s speaks protocol version %u and this node %d: upgrade the older one", where,
             answer->version, HV_PROTOCOL_VERSION);
  else
    snprintf(text, HV_WORLD_TEXT_MAX, "the answer of %s cannot be read: %s", where, hv_status_text(status));
  return status == HV_TOO_LARGE ? HV_MALFORMED : status;
}

/* Turns a refusal into the status and text of the call. */
static hv_status refused(const hv_msg_refusal *refusal, char text[HV_WORLD_TEXT_MAX]) {
  snprintf(text, HV_WORLD_TEXT_MAX, "%.*s", (int)refusal->text.size, (const char *)refusal->text.data);
  return refusal->status > HV_OK && refusal->status < HV_STATUS_COUNT ? refusal->status : HV_INTERNAL;
}

static void ask_done(hv_grpc_op *op, int ok) {
  (void)ok; /* hv_link_explain gives the status */
  asked *a = HV_HOLDER(asked, op, op);
  hv_loop *loop = a->loop;
  char text[HV_WORLD_TEXT_MAX];
  hv_event event = {.kind = HV_EVENT_CALL_DONE, .call = a->call, .text = text};
  hv_wire_msg answer = {0};
  int have_answer = 0;
  event.status = hv_link_explain(a->link, a->rpc, a->broken_off, a->call->timeout_ms, &event.cause, text);
  if (event.status == HV_OK)
    event.status = who_answered(a, &event.peer, &event.cause, text);
  if (event.status == HV_OK) {
    event.cause = HV_CAUSE_OTHER;
    event.status = read_answer(a, &answer, text);
    have_answer = event.status == HV_OK;
  }
  if (have_answer && answer.msg.kind == HV_MSG_REFUSAL)
    event.status = refused(&answer.msg.u.refusal, text);
  if (event.status == HV_OK) {
    event.msg = &answer.msg;
    a->call->to.id = event.peer;
  }
  a->call->world = NULL;
  hv_ring_remove(&a->use.ring);
  hv_timers_clear(&loop->deadlines, &a->deadline);
  loop->n_asked--;
  hv_loop_deliver(loop, &event);
  if (have_answer)
    hv_wire_release(&answer);
  hv_grpc_call_free(a->rpc);
  hv_link_release(a->link);
  hv_mem_free(a);
}

static void break_off(asked *a, hv_status why) {
  if (a->broken_off)
    return;
  a->broken_off = why;
  hv_grpc_call_cancel(a->rpc);
}

static void too_late(hv_timer *timer, const hv_event *event) {
  (void)event;
  break_off(timer->owner, HV_TIMEOUT);
}

static void link_dropped(hv_link_use *use) {
  break_off(HV_HOLDER(asked, use, use), HV_CANCELLED);
}

hv_status hv_calls_ask(hv_env *env, hv_call *call, const hv_msg *request) {
  hv_loop *loop = env->world;
  if (loop->phase >= HV_PHASE_ENDING)
    return HV_CLOSED;
  loop->outgoing.size = 0;
  hv_status status = hv_wire_write(request, &loop->outgoing);
  if (status != HV_OK)
    return status;
  hv_link *link = NULL;
  asked *a = hv_mem_zalloc(loop->mem, sizeof *a);
  hv_grpc_message *message = hv_grpc_message_new(loop->grpc, hv_span_of(loop->outgoing.data, loop->outgoing.size), NULL);
  status = a && message ? hv_link_get(loop, &call->to, &link) : HV_NOMEM;
  if (status != HV_OK)
    goto out;
  a->who = !link->sure;
  a->rpc = hv_grpc_call_new(link->channel, HV_GRPC_CALL, a->who);
  a->deadline = (hv_timer){.fire = too_late, .owner = a};
  if (!a->rpc || hv_timers_set(&loop->deadlines, &a->deadline, hv_clock_us() + call->timeout_ms * (uint64_t)1000) != HV_OK) {
    status = HV_NOMEM;
    goto out;
  }
  a->op.done = ask_done;
  a->loop = loop;
  a->link = link;
  a->call = call;
  hv_ring_init(&a->use.ring);
  a->use.dropped = link_dropped;
  if (!hv_grpc_call_ask(a->rpc, message, &a->op)) {
    message = NULL;
    status = HV_INTERNAL;
    goto out;
  }
  hv_ring_add(&link->calls, &a->use.ring);
  loop->n_asked++;
  call->world = a;
  return HV_OK;

out:
  hv_grpc_message_free(message);
  if (a) {
    hv_timers_clear(&loop->deadlines, &a->deadline);
    hv_grpc_call_free(a->rpc);
  }
  if (link)
    hv_link_release(link);
  hv_mem_free(a);
  return status;
}

void hv_calls_cancel(hv_env *env, hv_call *call) {
  (void)env;
  if (call->world)
    break_off(call->world, HV_CANCELLED);
}

/* ---- incoming calls ----
 * WAITING: an accept without a caller. GREETING: the caller's identity is known, its message has not come. ASKED: core has the
 * message. ANSWERING: the answer is being sent. GREETING and ANSWERING have a time limit, because they depend on the peer. */

typedef enum visit_state { WAITING, GREETING, ASKED, ANSWERING, VISIT_STATES } visit_state;

typedef struct visit {
  hv_request request; /* first: what core sees */
  hv_grpc_op op;
  hv_ring ring;
  hv_loop *loop;
  hv_grpc_call *rpc;
  hv_caller *caller;
  visit_state state;
  uint64_t since_us; /* GREETING, ANSWERING */
} visit;

static void accepted(hv_grpc_op *op, int ok);
static void greeted(hv_grpc_op *op, int ok);

static void wait_for_one(hv_loop *loop) {
  visit *v = hv_mem_zalloc(loop->mem, sizeof *v);
  if (!v)
    return; /* the next tick tries again */
  v->op.done = accepted;
  v->loop = loop;
  hv_ring_init(&v->ring);
  v->rpc = hv_grpc_accept(loop->grpc, HV_GRPC_CALL, &v->op);
  if (v->rpc)
    loop->calls_waiting++;
  else
    hv_mem_free(v);
}

void hv_calls_know(hv_loop *loop, hv_caller *caller, const hv_addr *from) {
  uint64_t connection = hv_guest_key(from);
  if (caller->from == connection || (from->kind != HV_ADDR_IP4 && from->kind != HV_ADDR_IP6))
    return;
  caller->from = connection;
  hv_door_know(loop->door, from);
}

void hv_calls_accept(hv_loop *loop) {
  while (loop->listening && loop->phase < HV_PHASE_ENDING && loop->calls_waiting < ACCEPTS) {
    size_t before = loop->calls_waiting;
    wait_for_one(loop);
    if (loop->calls_waiting == before)
      return;
  }
}

static void visit_free(visit *v) {
  hv_ring_remove(&v->ring);
  hv_callers_call_left(&v->loop->callers, v->caller);
  hv_grpc_call_free(v->rpc);
  hv_mem_free(v);
}

static void move(visit *v, visit_state to, hv_ring *ring) {
  static const uint8_t allowed[VISIT_STATES] = {
      [WAITING] = 1 << GREETING | 1 << ANSWERING, [GREETING] = 1 << ASKED | 1 << ANSWERING, [ASKED] = 1 << ANSWERING};
  if (!(allowed[v->state] & 1 << to))
    hv_log_write(v->loop->log, v->loop->now_us, HV_LOG_ERROR, "net", "bad_move", "an incoming call went from state %d to %d",
                 v->state, to);
  v->state = to;
  hv_ring_remove(&v->ring);
  if (ring)
    hv_ring_add(ring, &v->ring);
}

static void answered(hv_grpc_op *op, int ok) {
  (void)ok; /* 0: the caller has gone; nothing to do */
  visit *v = HV_HOLDER(visit, op, op);
  v->loop->n_answering--;
  visit_free(v);
}

/* Sends the answer (taken; NULL: none) and the final status. */
static void leave(visit *v, hv_grpc_message *answer, hv_status status, const char *text) {
  move(v, ANSWERING, &v->loop->answering);
  v->since_us = hv_clock_us();
  v->op.done = answered;
  v->loop->n_answering++;
  if (!hv_grpc_call_finish(v->rpc, answer, status, text, 1, &v->op))
    answered(&v->op, 0);
}

static void refuse(visit *v, hv_status status, const char *text) {
  leave(v, NULL, status, text);
}

static void accepted(hv_grpc_op *op, int ok) {
  visit *v = HV_HOLDER(visit, op, op);
  hv_loop *loop = v->loop;
  loop->calls_waiting--;
  if (!ok || loop->phase >= HV_PHASE_ENDING) {
    visit_free(v);
    return;
  }
  hv_calls_accept(loop);
  if (hv_grpc_call_peer(v->rpc, &v->request.peer) != HV_OK) {
    refuse(v, HV_DENIED, "the caller has no identity: it sent no certificate and no hv-peer header");
    return;
  }
  v->caller = hv_callers_call(&loop->callers, &v->request.peer);
  if (!v->caller) {
    refuse(v, HV_BUSY, "too many calls are under way: try again later");
    return;
  }
  v->since_us = hv_clock_us();
  v->op.done = greeted;
  move(v, GREETING, &loop->greeting);
  if (!hv_grpc_call_recv(v->rpc, &v->op))
    visit_free(v);
}

static void greeted(hv_grpc_op *op, int ok) {
  visit *v = HV_HOLDER(visit, op, op);
  hv_loop *loop = v->loop;
  int64_t size = ok ? hv_grpc_call_size(v->rpc) : -1;
  if (size < 0 || loop->phase >= HV_PHASE_ENDING) { /* the caller has gone, or sent nothing in time */
    visit_free(v);
    return;
  }
  if (size > HV_MSG_BYTES_MAX) {
    refuse(v, HV_TOO_LARGE, "the request is too large: the limit is 2 MiB");
    return;
  }
  hv_span bytes;
  hv_wire_msg msg = {0};
  hv_status status = hv_grpc_call_bytes(v->rpc, (size_t)size, &loop->scratch, &bytes);
  if (status == HV_OK)
    status = hv_wire_read(bytes, loop->mem, HV_WIRE_BUDGET, &msg);
  if (status != HV_OK) {
    char text[HV_MSG_TEXT_MAX];
    if (status == HV_VERSION)
      snprintf(text, sizeof text, "this peer speaks protocol version %d and the caller %u: upgrade the older one",
               HV_PROTOCOL_VERSION, msg.version);
    else
      snprintf(text, sizeof text, "the request cannot be read: %s", hv_status_text(status));
    refuse(v, status, text);
    return;
  }
  hv_grpc_call_from(v->rpc, &v->request.from);
  hv_calls_know(loop, v->caller, &v->request.from);
  move(v, ASKED, &loop->asked_of_us);
  hv_event event = {.kind = HV_EVENT_REQUEST, .request = &v->request, .msg = &msg.msg, .peer = v->request.peer};
  hv_loop_deliver(loop, &event);
  hv_wire_release(&msg);
}

void hv_calls_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  hv_loop *loop = env->world;
  visit *v = (visit *)request;
  if (loop->phase >= HV_PHASE_ENDED)
    return;
  loop->outgoing.size = 0;
  hv_status status = hv_wire_write(answer, &loop->outgoing);
  hv_grpc_message *message =
      status == HV_OK ? hv_grpc_message_new(loop->grpc, hv_span_of(loop->outgoing.data, loop->outgoing.size), NULL) : NULL;
  if (!message) {
    refuse(v, status == HV_OK ? HV_NOMEM : status, "the answer could not be written");
    return;
  }
  leave(v, message, HV_OK, "");
}

/* Cancels the calls that are older than the limit; the oldest are first. Their operations complete later. */
static void cancel_older(const hv_loop *loop, const hv_ring *ring, uint64_t patience_us) {
  for (hv_ring *at = ring->next; at != ring; at = at->next) {
    visit *v = HV_HOLDER(visit, ring, at);
    if (v->since_us + patience_us > loop->now_us)
      break;
    hv_grpc_call_cancel(v->rpc);
  }
}

void hv_calls_tick(hv_loop *loop) {
  hv_calls_accept(loop);
  cancel_older(loop, &loop->greeting, loop->greeting_us);
  cancel_older(loop, &loop->answering, loop->answer_us);
}

void hv_calls_end(hv_loop *loop) {
  while (!hv_ring_empty(&loop->asked_of_us))
    visit_free(HV_HOLDER(visit, ring, loop->asked_of_us.next));
}
