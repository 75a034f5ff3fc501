#include "net/transport/guests.h"
#include "net/transport/world.h"

#include <stdio.h>
#include <string.h>

enum { ACCEPTS = 32, OTHER_ACCEPTS = 8 };

/* ---- outgoing calls ---- */

typedef struct asked {
  hv_grpc_op op;
  hv_link_use use;
  hv_loop *loop;
  hv_link *link;
  hv_call *call;
  hv_grpc_call *rpc;
  hv_timer deadline; /* replaces gRPC's own deadline, which may fire early and costs more */
  int who;           /* True if the other side was asked for its identity, which it sends without TLS only then */
  hv_status broken_off;
  uint32_t version; /* of the request */
  int meets;        /* True: of hv_calls_meet */
  int tries;        /* requests sent */
  hv_note away;     /* instead of a request: the peer is not dialled */
  hv_buf held;      /* the request, for a try in another version; empty if this node speaks one alone */
} asked;

/* The peer that answered: by the certificate of this very call. Without TLS by its claim, or by an earlier one on the same
 * connection. */
static hv_status who_answered(asked *a, hv_peer_id *peer, hv_cause *cause, char text[HV_WORLD_TEXT_MAX]) {
  if (a->loop->insecure && !a->who) {
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
  hv_status status = hv_link_meet(a->link, peer, text);
  a->link->sure = status == HV_OK;
  return status == HV_OK ? hv_link_judge_called(a->link, a->rpc, cause, text) : status;
}

/* The peer answered, or refused, with the versions that it speaks. They may have none in common with this node's. */
static void learn(asked *a, const hv_peer_id *peer, const hv_wire_msg *answer, char text[HV_WORLD_TEXT_MAX]) {
  hv_loop *loop = a->loop;
  char where[HV_ADDR_TEXT_MAX];
  hv_spoken_learn(&loop->env, peer, &answer->speaks);
  if (!hv_versions_common(&loop->spoken.mine, &answer->speaks))
    hv_versions_explain(hv_addr_print_short(&a->link->to.addr, where), &answer->speaks, &loop->spoken.mine, text);
}

static hv_status read_answer(asked *a, const hv_peer_id *peer, hv_wire_msg *answer, char text[HV_WORLD_TEXT_MAX]) {
  char where[HV_ADDR_TEXT_MAX];
  hv_span bytes;
  int64_t size = hv_grpc_call_size(a->rpc);
  hv_status status = size > HV_MSG_BYTES_MAX ? HV_TOO_LARGE : HV_OK;
  if (status == HV_OK)
    status = hv_grpc_call_bytes(a->rpc, size < 0 ? 0 : (size_t)size, &a->loop->scratch, &bytes);
  if (status == HV_OK)
    status = hv_wire_read(bytes, &a->loop->spoken.mine, a->loop->mem, HV_WIRE_BUDGET, answer);
  if (status == HV_OK || status == HV_VERSION)
    learn(a, peer, answer, text);
  if (status == HV_OK || text[0])
    return status;
  hv_addr_print_short(&a->link->to.addr, where);
  snprintf(text, HV_WORLD_TEXT_MAX, "the answer of %s cannot be read: %s", where, hv_status_text(status));
  return status == HV_TOO_LARGE ? HV_MALFORMED : status;
}

/* Turns a refusal into the status and text of the call. */
static hv_status refused(const hv_msg_refusal *refusal, char text[HV_WORLD_TEXT_MAX]) {
  if (refusal->status == HV_VERSION && text[0])
    return HV_VERSION; /* there is a sentence from this node's side */
  snprintf(text, HV_WORLD_TEXT_MAX, "%.*s", (int)refusal->text.size, (const char *)refusal->text.data);
  hv_text_clean(text);
  if (refusal->status == HV_CANCELLED) /* which is this node's own word */
    return HV_CLOSED;
  return refusal->status > HV_OK && refusal->status < HV_STATUS_COUNT ? refusal->status : HV_INTERNAL;
}

/* Sends the request. HV_NOMEM, HV_INTERNAL: no operation is under way. */
static hv_status send_request(asked *a, hv_span bytes) {
  hv_grpc_message *message = hv_grpc_message_new(a->loop->grpc, bytes, NULL);
  a->who = !a->link->sure;
  a->rpc = hv_grpc_call_new(a->link->channel, HV_GRPC_CALL, a->who);
  if (!message || !a->rpc) {
    hv_grpc_message_free(message);
    return HV_NOMEM;
  }
  a->tries++;
  return hv_grpc_call_ask(a->rpc, message, &a->op) ? HV_OK : HV_INTERNAL;
}

/* A refusal for the version alone: sends the request once more, in the version that is right by what is known now. */
static int ask_again(asked *a, const hv_event *event) {
  enum { TRIES = 2 };
  hv_loop *loop = a->loop;
  hv_peer_id peer = event->peer;
  if (!hv_peer_is_known(&peer) && hv_grpc_call_peer(a->rpc, &peer) != HV_OK)
    peer = a->call->to.id;
  if (!hv_peer_is_known(&event->peer)) /* an older program refuses without saying what it speaks */
    hv_spoken_refused(&loop->env, &peer, a->version);
  uint32_t version = hv_spoken_choose(&loop->env, &peer, NULL);
  if (!a->held.size || a->tries == TRIES || a->broken_off || !version || version == a->version)
    return 0;
  hv_grpc_call *before = a->rpc;
  a->rpc = NULL;
  loop->outgoing.size = 0;
  hv_status status =
      hv_wire_translate(hv_span_of(a->held.data, a->held.size), version, &loop->spoken.mine, loop->mem, &loop->outgoing);
  if (status == HV_OK)
    status = send_request(a, hv_span_of(loop->outgoing.data, loop->outgoing.size));
  if (status != HV_OK) {
    hv_grpc_call_free(a->rpc);
    a->rpc = before;
    return 0;
  }
  hv_grpc_call_free(before);
  a->version = version;
  return 1;
}

static void ask_free(asked *a) {
  hv_grpc_call_free(a->rpc);
  if (a->link)
    hv_link_release(a->link);
  hv_buf_fini(&a->held);
  hv_mem_free(a);
}

/* Gives the call back with its result. */
static void ask_ends(asked *a, hv_event *event) {
  hv_loop *loop = a->loop;
  a->call->world = NULL;
  hv_ring_remove(&a->use.ring);
  hv_timers_clear(&loop->deadlines, &a->deadline);
  loop->n_asked--;
  if (a->meets)
    a->call->done(a->call, event);
  else
    hv_loop_deliver(loop, event);
}

static void ask_done(hv_grpc_op *op, int ok) {
  (void)ok; /* hv_link_explain gives the status */
  asked *a = HV_HOLDER(asked, op, op);
  char text[HV_WORLD_TEXT_MAX];
  hv_event event = {.kind = HV_EVENT_CALL_DONE, .call = a->call, .text = text};
  hv_wire_msg answer = {0};
  int have_answer = 0;
  event.status = hv_link_explain(a->link, a->link->channel, a->rpc, a->broken_off, a->call->timeout_ms, &event.cause, text);
  if (event.status == HV_OK)
    event.status = who_answered(a, &event.peer, &event.cause, text);
  if (event.status == HV_OK) {
    event.cause = HV_CAUSE_OTHER;
    event.status = read_answer(a, &event.peer, &answer, text);
    have_answer = event.status == HV_OK;
  }
  if (have_answer && answer.msg.kind == HV_MSG_REFUSAL)
    event.status = refused(&answer.msg.u.refusal, text);
  int again = event.status == HV_VERSION && ask_again(a, &event);
  if (event.status == HV_OK) {
    event.msg = &answer.msg;
    event.member = &a->link->shown;
    a->call->to.id = event.peer;
  }
  if (!again)
    ask_ends(a, &event);
  if (have_answer)
    hv_wire_release(&answer);
  if (!again)
    ask_free(a);
}

static void break_off(asked *a, hv_status why) {
  if (a->broken_off)
    return;
  a->broken_off = why;
  if (a->rpc)
    hv_grpc_call_cancel(a->rpc);
}

/* The peer has no version in common with this node: the call ends without a connection. */
static void turned_away(hv_note *note) {
  asked *a = HV_HOLDER(asked, away, note);
  char text[HV_VERSIONS_TEXT_MAX];
  hv_spoken_explain(&a->loop->env, &a->call->to.id, text);
  hv_event event = {.kind = HV_EVENT_CALL_DONE, .call = a->call, .text = text, .status = HV_VERSION, .peer = a->call->to.id};
  if (a->broken_off) {
    event.status = a->broken_off;
    text[0] = 0;
  }
  ask_ends(a, &event);
  ask_free(a);
}

static void too_late(hv_timer *timer, const hv_event *event) {
  (void)event;
  break_off(timer->owner, HV_TIMEOUT);
}

static void link_dropped(hv_link_use *use) {
  break_off(HV_HOLDER(asked, use, use), HV_CANCELLED);
}

/* Encodes a request into loop->outgoing, and keeps a copy if it may be needed in another version. */
static hv_status write_request(asked *a, const hv_msg *request) {
  hv_loop *loop = a->loop;
  const hv_versions *mine = &loop->spoken.mine;
  loop->outgoing.size = 0;
  hv_status status = hv_wire_write(request, a->version, mine, &loop->outgoing);
  if (status == HV_OK && mine->lowest != mine->highest)
    status = hv_buf_append(&a->held, loop->outgoing.data, loop->outgoing.size);
  return status;
}

/* Starts a call in a version of the protocol; 0: ends it soon, with HV_VERSION. */
static hv_status ask_begin(asked *a, const hv_msg *request) {
  hv_loop *loop = a->loop;
  if (!a->version)
    return hv_inbox_put_note(&loop->inbox, &a->away);
  hv_status status = write_request(a, request);
  if (status == HV_OK)
    status = hv_link_get(loop, &a->call->to, &a->link);
  if (status != HV_OK)
    return status;
  hv_timers_set(&loop->deadlines, &a->deadline, hv_clock_us() + a->call->timeout_ms * (uint64_t)1000);
  return send_request(a, hv_span_of(loop->outgoing.data, loop->outgoing.size));
}

static hv_status ask(hv_loop *loop, hv_call *call, const hv_msg *request, int meets) {
  if (loop->phase >= HV_PHASE_ENDING)
    return HV_CLOSED;
  asked *a = hv_mem_zalloc(loop->mem, sizeof *a);
  if (!a)
    return HV_NOMEM;
  a->op.done = ask_done;
  a->loop = loop;
  a->call = call;
  a->meets = meets;
  a->version = hv_spoken_choose(&loop->env, &call->to.id, NULL);
  a->use.dropped = link_dropped;
  a->deadline = (hv_timer){.fire = too_late, .owner = a};
  a->away.run = turned_away;
  hv_ring_init(&a->use.ring);
  hv_buf_init(&a->held, loop->mem, HV_GRPC_MESSAGE_MAX);
  hv_status status = ask_begin(a, request);
  if (status != HV_OK) {
    hv_timers_clear(&loop->deadlines, &a->deadline);
    ask_free(a);
    return status;
  }
  if (a->link)
    hv_ring_add(&a->link->calls, &a->use.ring);
  loop->n_asked++;
  call->world = a;
  return HV_OK;
}

hv_status hv_calls_ask(hv_env *env, hv_call *call, const hv_msg *request) {
  return ask(env->world, call, request, 0);
}

hv_status hv_calls_meet(hv_loop *loop, hv_call *call) {
  hv_msg echo = {.kind = HV_MSG_ECHO};
  return ask(loop, call, &echo, 1);
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
  hv_slip slip;
  hv_membership shown;
  hv_grpc_method method; /* HV_GRPC_CALL or HV_GRPC_OTHER */
  visit_state state;
  uint64_t since_us; /* GREETING, ANSWERING */
} visit;

static void accepted(hv_grpc_op *op, int ok);
static void greeted(hv_grpc_op *op, int ok);

static void visit_makes_way(hv_slip *slip) {
  hv_grpc_call_cancel(HV_HOLDER(visit, slip, slip)->rpc);
}

static size_t *waiting_for(hv_loop *loop, hv_grpc_method method) {
  return method == HV_GRPC_OTHER ? &loop->others_waiting : &loop->calls_waiting;
}

/* False: no memory; the next tick tries again. */
static int wait_for_one(hv_loop *loop, hv_grpc_method method) {
  visit *v = hv_mem_zalloc(loop->mem, sizeof *v);
  if (!v)
    return 0;
  v->op.done = accepted;
  v->loop = loop;
  v->method = method;
  hv_ring_init(&v->ring);
  hv_slip_init(&v->slip, visit_makes_way);
  v->rpc = hv_grpc_accept(loop->grpc, method, &v->op);
  int waits = v->rpc != NULL;
  *waiting_for(loop, method) += (size_t)waits;
  if (!waits)
    hv_mem_free(v);
  return waits;
}

int hv_calls_admit(hv_loop *loop, hv_slip *slip, const hv_peer_id *peer, const hv_addr *from) {
  hv_tier tier = loop->env.tier ? loop->env.tier(loop->env.tier_arg, peer) : HV_TIER_STRANGER;
  if (!hv_callers_admit(&loop->callers, slip, peer, from, tier))
    return 0;
  hv_callers_answer answer = loop->env.tier ? hv_callers_count(slip, !hv_addr_is_private(from), hv_clock_us()) : HV_CALLERS_TAKEN;
  if (answer == HV_CALLERS_CUT_OFF)
    hv_door_end(loop->door, from); /* with all calls on it, which gRPC would keep in a queue without a limit */
  if (answer != HV_CALLERS_TAKEN)
    hv_callers_leave(&loop->callers, slip); /* nothing is counted, so the next sweep may free its accounts */
  return answer == HV_CALLERS_TAKEN;
}

void hv_calls_know(hv_loop *loop, const hv_slip *slip, const hv_addr *from) {
  uint64_t connection = hv_guest_key(from);
  hv_caller *caller = slip->peer;
  if (caller->from == connection || (from->kind != HV_ADDR_IP4 && from->kind != HV_ADDR_IP6))
    return;
  caller->from = connection;
  hv_door_know(loop->door, from);
}

void hv_calls_accept(hv_loop *loop) {
  if (!loop->n_bound || loop->phase >= HV_PHASE_ENDING)
    return;
  while (loop->calls_waiting < ACCEPTS && wait_for_one(loop, HV_GRPC_CALL))
    ;
  while (loop->others_waiting < OTHER_ACCEPTS && wait_for_one(loop, HV_GRPC_OTHER))
    ;
}

static void visit_free(visit *v) {
  hv_ring_remove(&v->ring);
  hv_callers_leave(&v->loop->callers, &v->slip);
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

static int take(visit *v, hv_caller_kind kind, size_t n) {
  return hv_callers_take_place(&v->loop->callers, &v->slip, kind, n);
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
  hv_callers_set(&v->loop->callers, &v->slip, HV_SLIP_ANSWERS);
  v->since_us = hv_clock_us();
  v->op.done = answered;
  v->loop->n_answering++;
  if (!hv_grpc_call_finish(v->rpc, answer, status, text, 1, &v->op))
    answered(&v->op, 0);
}

/* The caller is no member of this closed swarm. */
static void turn_away(visit *v, hv_cause cause) {
  char text[HV_MSG_TEXT_MAX];
  hv_callers_leave(&v->loop->callers, &v->slip);
  hv_admission_refuse(cause, &v->shown, hv_clock_unix_s(), text);
  hv_grpc_call_say_cause(v->rpc, cause);
  leave(v, NULL, HV_NOT_ADMITTED, text);
}

static void refuse(visit *v, hv_status status, const char *text) {
  leave(v, NULL, status, text);
}

/* Encodes the answer, and counts its bytes until the caller has taken them. NULL: *status says why. */
static hv_grpc_message *write_answer(visit *v, const hv_msg *answer, uint32_t version, hv_status *status) {
  hv_loop *loop = v->loop;
  loop->outgoing.size = 0;
  *status = hv_wire_write(answer, version, &loop->spoken.mine, &loop->outgoing);
  if (*status == HV_OK && v->slip.peer && !take(v, HV_CALLER_BYTES, loop->outgoing.size))
    *status = HV_BUSY;
  if (*status != HV_OK)
    return NULL;
  hv_grpc_message *message = hv_grpc_message_new(loop->grpc, hv_span_of(loop->outgoing.data, loop->outgoing.size), NULL);
  *status = message ? HV_OK : HV_NOMEM;
  return message;
}

/* The request is written in a version that this node does not speak. The refusal is a message, so that it names those that it
 * does; the caller then asks again in one of them, or both know that there is none. */
static void refuse_version(visit *v, const hv_versions *caller) {
  hv_loop *loop = v->loop;
  const hv_versions *mine = &loop->spoken.mine;
  char text[HV_VERSIONS_TEXT_MAX];
  hv_versions_refuse(mine, caller, text);
  hv_msg refusal = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_VERSION, hv_span_of(text, strlen(text))}};
  uint32_t common = hv_versions_common(mine, caller);
  hv_status status;
  hv_grpc_message *message = write_answer(v, &refusal, common ? common : mine->lowest, &status);
  if (message)
    leave(v, message, HV_OK, "");
  else
    refuse(v, HV_VERSION, text);
}

static void accepted(hv_grpc_op *op, int ok) {
  visit *v = HV_HOLDER(visit, op, op);
  hv_loop *loop = v->loop;
  --*waiting_for(loop, v->method);
  if (!ok || loop->phase >= HV_PHASE_ENDING) {
    visit_free(v);
    return;
  }
  hv_calls_accept(loop);
  if (hv_grpc_call_peer(v->rpc, &v->request.peer) != HV_OK) {
    refuse(v, HV_DENIED, "the caller has no identity: it sent no certificate and no hv-peer header");
    return;
  }
  hv_grpc_call_from(v->rpc, &v->request.from);
  if (!hv_calls_admit(loop, &v->slip, &v->request.peer, &v->request.from) || !take(v, HV_CALLER_CALLS, 1)) {
    hv_callers_leave(&loop->callers, &v->slip);
    refuse(v, HV_BUSY, "too many calls are under way: try again later");
    return;
  }
  hv_cause apart = hv_link_judge(loop, v->rpc, &v->shown);
  if (apart) {
    turn_away(v, apart);
    return;
  }
  if (v->method == HV_GRPC_OTHER) {
    refuse(v, HV_UNSUPPORTED, "this node has no such method: its version may be older; upgrade it");
    return;
  }
  v->since_us = hv_clock_us();
  v->op.done = greeted;
  move(v, GREETING, &loop->greeting);
  hv_callers_set(&loop->callers, &v->slip, HV_SLIP_GREETS);
  if (!hv_grpc_call_recv(v->rpc, &v->op))
    visit_free(v);
}

static void greeted(hv_grpc_op *op, int ok) {
  visit *v = HV_HOLDER(visit, op, op);
  hv_loop *loop = v->loop;
  int64_t size = ok ? hv_grpc_call_size(v->rpc) : -1;
  if (size < 0 || !v->slip.peer || loop->phase >= HV_PHASE_ENDING) { /* it has gone, sent nothing in time, or made way */
    visit_free(v);
    return;
  }
  hv_callers_give(&loop->callers, &v->slip, HV_CALLER_BYTES);
  hv_callers_set(&loop->callers, &v->slip, HV_SLIP_STAYS);
  if (size > HV_MSG_BYTES_MAX) {
    refuse(v, HV_TOO_LARGE, "the request is too large: the limit is 2 MiB");
    return;
  }
  hv_span bytes;
  hv_wire_msg msg = {0};
  hv_status status = hv_grpc_call_bytes(v->rpc, (size_t)size, &loop->scratch, &bytes);
  if (status == HV_OK)
    status = hv_wire_read(bytes, &loop->spoken.mine, loop->mem, HV_WIRE_BUDGET, &msg);
  if (status == HV_OK || status == HV_VERSION)
    hv_spoken_learn(&loop->env, &v->request.peer, &msg.speaks);
  if (status == HV_VERSION) {
    refuse_version(v, &msg.speaks);
    return;
  }
  if (status != HV_OK) {
    char text[HV_MSG_TEXT_MAX];
    snprintf(text, sizeof text, "the request cannot be read: %s", hv_status_text(status));
    refuse(v, status, text);
    return;
  }
  v->request.version = msg.version;
  hv_calls_know(loop, &v->slip, &v->request.from);
  move(v, ASKED, &loop->asked_of_us);
  hv_event event = {
      .kind = HV_EVENT_REQUEST, .request = &v->request, .msg = &msg.msg, .peer = v->request.peer, .member = &v->shown};
  hv_loop_deliver(loop, &event);
  hv_wire_release(&msg);
}

void hv_calls_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  hv_loop *loop = env->world;
  visit *v = (visit *)request;
  if (loop->phase >= HV_PHASE_ENDED)
    return;
  hv_status status;
  hv_grpc_message *message = write_answer(v, answer, request->version, &status);
  if (!message) {
    refuse(v, status,
           status == HV_BUSY ? "too many answers wait to be taken: take them, or try again later"
                             : "the answer could not be written");
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

/* A request that is late counts as much as gRPC may hold of it. Where there is no room for that, it is cancelled. */
static void count_late(hv_loop *loop) {
  for (hv_ring *at = loop->greeting.next; at != &loop->greeting; at = at->next) {
    visit *v = HV_HOLDER(visit, ring, at);
    if (v->since_us + HV_LOOP_LATE_MS * UINT64_C(1000) > loop->now_us)
      break;
    if (!v->slip.peer || v->slip.held[HV_CALLER_BYTES] || take(v, HV_CALLER_BYTES, HV_GRPC_LOOKAHEAD))
      continue;
    hv_callers_leave(&loop->callers, &v->slip);
    hv_grpc_call_cancel(v->rpc);
  }
}

void hv_calls_tick(hv_loop *loop) {
  hv_calls_accept(loop);
  count_late(loop);
  cancel_older(loop, &loop->greeting, loop->greeting_us);
  cancel_older(loop, &loop->answering, loop->answer_us);
}

static void deny(hv_loop *loop, const hv_ring *ring) {
  hv_membership shown;
  for (hv_ring *at = ring->next; at != ring; at = at->next) {
    visit *v = HV_HOLDER(visit, ring, at);
    if (!hv_link_judge(loop, v->rpc, &shown))
      continue;
    hv_door_end(loop->door, &v->request.from);
    hv_grpc_call_cancel(v->rpc);
  }
}

void hv_calls_deny(hv_loop *loop) {
  deny(loop, &loop->greeting);
  deny(loop, &loop->answering);
}

void hv_calls_end(hv_loop *loop) {
  while (!hv_ring_empty(&loop->asked_of_us))
    visit_free(HV_HOLDER(visit, ring, loop->asked_of_us.next));
}
