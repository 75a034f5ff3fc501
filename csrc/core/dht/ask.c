#include "core/dht/ask.h"

#include "core/dht/record.h"

#include <string.h>

enum { HOLD_US = 2000, TOGETHER_RECORDS = 256, TOGETHER_BYTES = 256 << 10 };

typedef struct hv_ask_queue queue;
typedef struct hv_ask_call together;

struct hv_ask {
  hv_ask *next;
  hv_asker *asker;
  hv_ask_done *done; /* NULL: nobody listens */
  void *owner;
  size_t mark;
  queue *queue; /* where it waits; NULL: it has left */
  together *in;
  hv_peer_id id;
  hv_addr addrs[HV_ASK_ADDRS_MAX];
  unsigned n_addrs, tried;
  int keep, dropped, alone; /* alone: goes with no others */
  hv_msg msg;
};

/* Questions that travel as one call. */
struct hv_ask_call {
  together *next, **where;
  hv_asker *asker;
  queue *queue;
  hv_ask *asks; /* in the order in which they are answered */
  size_t n;
  uint64_t asked_us;
  hv_call call;
};

/* One address of one node: calls under way, and the questions that wait for the next. */
struct hv_ask_queue {
  queue *next, **where;
  hv_asker *asker;
  hv_target to;
  size_t under_way;
  uint64_t sent_us;
  hv_ask *waiting, **last;
  hv_timer timer;
};

void hv_asker_init(hv_asker *asker, hv_env *env, hv_route *route, uint32_t timeout_ms) {
  *asker = (hv_asker){.env = env, .route = route, .timeout_ms = timeout_ms};
}

/* ---- lists ---- */

static void free_all(hv_ask *ask) {
  for (hv_ask *next; ask; ask = next) {
    next = ask->next;
    hv_mem_free(ask);
  }
}

static void end_queue(queue *l) {
  l->asker->env->timer_clear(l->asker->env, &l->timer);
  *l->where = l->next;
  if (l->next)
    l->next->where = l->where;
  hv_mem_free(l);
}

static void end_queue_if_idle(queue *l) {
  if (l->under_way == 0 && !l->waiting)
    end_queue(l);
}

static void end_call(together *t) {
  *t->where = t->next;
  if (t->next)
    t->next->where = t->where;
  hv_mem_free(t);
}

void hv_asker_fini(hv_asker *asker) {
  while (asker->calls) {
    free_all(asker->calls->asks);
    end_call(asker->calls);
  }
  while (asker->queues) {
    free_all(asker->queues->waiting);
    end_queue(asker->queues);
  }
}

static void hold(hv_timer *timer, const hv_event *event);

static queue *queue_to(hv_asker *asker, const hv_peer_id *id, const hv_addr *addr) {
  for (queue *l = asker->queues; l; l = l->next)
    if (hv_peer_equal(&l->to.id, id) && hv_addr_equal(&l->to.addr, addr))
      return l;
  queue *l = hv_mem_zalloc(asker->env->mem, sizeof *l);
  if (!l)
    return NULL;
  l->asker = asker;
  l->to = (hv_target){*id, *addr};
  l->last = &l->waiting;
  l->timer = (hv_timer){.fire = hold, .owner = l};
  l->next = asker->queues;
  if (l->next)
    l->next->where = &l->next;
  l->where = &asker->queues;
  asker->queues = l;
  return l;
}

/* Takes the first that waits. */
static hv_ask *shift(queue *l) {
  hv_ask *ask = l->waiting;
  l->waiting = ask->next;
  if (!l->waiting)
    l->last = &l->waiting;
  ask->next = NULL;
  ask->queue = NULL;
  return ask;
}

static void ask_take_out(hv_ask *ask) {
  queue *l = ask->queue;
  hv_ask **at = &l->waiting;
  while (*at != ask)
    at = &(*at)->next;
  *at = ask->next;
  if (!ask->next)
    l->last = at;
  hv_mem_free(ask);
}

/* ---- sending ---- */

static void call_done(hv_call *call, const hv_event *event);

static together *new_call(queue *l) {
  hv_asker *asker = l->asker;
  together *t = hv_mem_zalloc(asker->env->mem, sizeof *t);
  if (!t)
    return NULL;
  t->asker = asker;
  t->queue = l;
  t->call = (hv_call){.done = call_done, .owner = t, .to = l->to, .timeout_ms = asker->timeout_ms};
  t->asked_us = asker->env->now_us(asker->env);
  t->next = asker->calls;
  if (t->next)
    t->next->where = &t->next;
  t->where = &asker->calls;
  asker->calls = t;
  return t;
}

static hv_status call_finds(together *t) {
  hv_msg_find finds[HV_FINDS_MAX];
  size_t n = 0;
  hv_msg msg = {.kind = HV_MSG_FINDS, .u.finds = {finds, t->n, t->asks->msg.u.find.me}};
  for (const hv_ask *ask = t->asks; ask; ask = ask->next) {
    finds[n] = ask->msg.u.find;
    finds[n++].me = hv_span_of(NULL, 0);
  }
  return t->asker->env->call(t->asker->env, &t->call, &msg);
}

static hv_status call_stores(together *t) {
  hv_record *records = hv_mem_array(t->asker->env->mem, TOGETHER_RECORDS, sizeof *records);
  size_t n = 0;
  if (!records)
    return HV_NOMEM;
  for (const hv_ask *ask = t->asks; ask; ask = ask->next) {
    memcpy(records + n, ask->msg.u.store.records, ask->msg.u.store.n_records * sizeof *records);
    n += ask->msg.u.store.n_records;
  }
  hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {records, n, t->asks->msg.u.store.me}};
  hv_status status = t->asker->env->call(t->asker->env, &t->call, &msg);
  hv_mem_free(records);
  return status;
}

static hv_status ask_start(together *t) {
  hv_asker *asker = t->asker;
  hv_status status = t->n == 1                          ? asker->env->call(asker->env, &t->call, &t->asks->msg)
                     : t->asks->msg.kind == HV_MSG_FIND ? call_finds(t)
                                                        : call_stores(t);
  if (status != HV_OK)
    return status;
  asker->called++;
  t->queue->under_way++;
  t->queue->sent_us = t->asked_us;
  return HV_OK;
}

/* The part that it takes of a call that may hold so much. */
static size_t ask_bytes_of(const hv_ask *ask) {
  size_t bytes = 0;
  for (size_t i = 0; ask->msg.kind == HV_MSG_STORE && i < ask->msg.u.store.n_records; i++)
    bytes += hv_record_size(&ask->msg.u.store.records[i]);
  return bytes;
}

static size_t records_of(const hv_ask *ask) {
  return ask->msg.kind == HV_MSG_STORE ? ask->msg.u.store.n_records : 0;
}

/* The first that waits and those behind it that can go with it. */
static void fill(together *t, queue *l) {
  hv_ask **last = &t->asks;
  hv_msg_kind kind = l->waiting->msg.kind;
  size_t bytes = 0, records = 0;
  do {
    hv_ask *ask = shift(l);
    bytes += ask_bytes_of(ask);
    records += records_of(ask);
    ask->in = t;
    *last = ask;
    last = &ask->next;
    t->n++;
  } while (l->waiting && l->waiting->msg.kind == kind && t->n < HV_FINDS_MAX &&
           bytes + ask_bytes_of(l->waiting) <= TOGETHER_BYTES && records + records_of(l->waiting) <= TOGETHER_RECORDS);
}

static void ask_finish(hv_ask *ask, hv_status status, const hv_msg *msg, const char *text) {
  if (ask->done)
    ask->done(ask->owner, ask->mark, status, msg, text);
  hv_mem_free(ask);
}

static void fail_all(hv_ask **asks, hv_status status, const char *text) {
  for (hv_ask *ask; (ask = *asks) != NULL;) { /* done may forget others */
    *asks = ask->next;
    ask->in = NULL;
    ask_finish(ask, status, NULL, text);
  }
}

/* All that waits leaves. The queue stays. */
static void flush(queue *l) {
  l->asker->env->timer_clear(l->asker->env, &l->timer);
  l->under_way++; /* nobody ends it meanwhile, nor sends past those that wait */
  while (l->waiting) {
    together *t = l->asker->closing ? NULL : new_call(l);
    if (!t) {
      ask_finish(shift(l), l->asker->closing ? HV_CANCELLED : HV_NOMEM, NULL, "out of memory");
      continue;
    }
    fill(t, l);
    hv_status status = ask_start(t);
    if (status != HV_OK) {
      fail_all(&t->asks, status, hv_status_text(status));
      end_call(t);
    }
  }
  l->under_way--;
}

static void hold(hv_timer *timer, const hv_event *event) {
  (void)event;
  queue *l = timer->owner;
  flush(l);
  end_queue_if_idle(l);
}

static void wait_in(queue *l, hv_ask *ask) {
  hv_env *env = l->asker->env;
  uint64_t now = env->now_us(env), due = l->sent_us + HOLD_US;
  if (!l->waiting)
    env->timer_set(env, &l->timer, due > now ? due - now : 0);
  ask->next = NULL;
  ask->queue = l;
  *l->last = ask;
  l->last = &ask->next;
}

/* A FIND or STORE whose spans live until it is answered; a store larger than a call of several may be goes by itself. */
static int may_wait(const hv_ask *ask) {
  return ask->keep && !ask->alone &&
         (ask->msg.kind == HV_MSG_FIND || (ask->msg.kind == HV_MSG_STORE && records_of(ask) <= TOGETHER_RECORDS));
}

/* To its next address: at once, or with others. Not HV_OK: it is still the caller's. */
static hv_status go(hv_ask *ask) {
  queue *l = queue_to(ask->asker, &ask->id, &ask->addrs[ask->tried]);
  if (!l)
    return HV_NOMEM;
  ask->asker->asked++;
  ask->tried++;
  if (l->under_way && may_wait(ask)) {
    wait_in(l, ask);
    return HV_OK;
  }
  together *t = new_call(l);
  hv_status status = HV_NOMEM;
  if (t) {
    t->asks = ask;
    t->n = 1;
    ask->in = t;
    ask->next = NULL;
    status = ask_start(t);
    if (status != HV_OK)
      end_call(t);
  }
  if (status != HV_OK)
    ask->in = NULL;
  end_queue_if_idle(l);
  return status;
}

/* ---- answers ---- */

/* The address that worked goes first. */
static void teach(hv_ask *ask, uint64_t asked_us, uint64_t now_us) {
  hv_asker *asker = ask->asker;
  hv_addr worked = ask->addrs[ask->tried - 1];
  hv_hash hash;
  ask->addrs[ask->tried - 1] = ask->addrs[0];
  ask->addrs[0] = worked;
  ask->tried = 1;
  uint64_t rtt = now_us - asked_us + 1;
  rtt = rtt < UINT32_MAX ? rtt : UINT32_MAX;
  asker->rtt_us = asker->rtt_us ? (uint32_t)(((uint64_t)asker->rtt_us * 15 + rtt) / 16) : (uint32_t)rtt;
  hv_route_answered(asker->route, &ask->id, ask->addrs, ask->n_addrs, (uint32_t)rtt);
  hv_route_hash(asker->env, &ask->id, &hash);
  if (asker->answered && ask->msg.kind != HV_MSG_PROGRESS) /* that goes to whom the table has, and often */
    asker->answered(asker->arg, &ask->id, &hash);
}

/* Once more, by itself: what it got among others was no whole answer. */
static void ask_alone(hv_ask *ask) {
  ask->alone = 1;
  ask->tried--;
  hv_status status = ask->done && !ask->asker->closing ? go(ask) : HV_CANCELLED;
  if (status != HV_OK)
    ask_finish(ask, status, NULL, hv_status_text(status));
}

static void found_one(hv_ask *ask, size_t i, const hv_msg *msg) {
  hv_msg one = {.kind = HV_MSG_FOUND};
  if (msg->kind == HV_MSG_FOUNDS && i >= msg->u.founds.n_founds) {
    ask_alone(ask);
    return;
  }
  if (msg->kind == HV_MSG_FOUNDS)
    one.u.found = msg->u.founds.founds[i];
  ask_finish(ask, HV_OK, msg->kind == HV_MSG_FOUNDS ? &one : msg, "");
}

/* A newer word of the signer stands in the way: only to a question by itself is it told which. */
static int wants_newer(const hv_ask *ask, const hv_status *verdicts) {
  for (size_t i = 0; i < ask->msg.u.store.n_records; i++)
    if (verdicts[i] == HV_EXISTS && hv_peer_is_known(&ask->msg.u.store.records[i].signer))
      return 1;
  return 0;
}

static void stored_one(hv_ask *ask, size_t first, const hv_msg *msg) {
  hv_msg one = {.kind = HV_MSG_STORED};
  size_t n = ask->done ? ask->msg.u.store.n_records : 0; /* if nobody listens its records may have gone */
  one.u.stored = (hv_msg_stored){msg->u.stored.verdicts + first, n, NULL, 0};
  if (n && wants_newer(ask, one.u.stored.verdicts))
    ask_alone(ask);
  else
    ask_finish(ask, HV_OK, &one, "");
}

static void deliver(together *t, const hv_msg *msg) {
  size_t i = 0, first = 0, n = t->n, records = 0;
  hv_msg_kind kind = t->asks->msg.kind;
  for (const hv_ask *ask = t->asks; ask; ask = ask->next)
    records += records_of(ask);
  int whole = n > 1 && (kind == HV_MSG_FIND || (msg->kind == HV_MSG_STORED && msg->u.stored.n_verdicts == records));
  for (hv_ask *ask; (ask = t->asks) != NULL; i++) {
    size_t its = records_of(ask);
    t->asks = ask->next;
    ask->in = NULL;
    if (!whole)
      ask_finish(ask, HV_OK, msg, "");
    else if (kind == HV_MSG_FIND)
      found_one(ask, i, msg);
    else
      stored_one(ask, first, msg);
    first += its;
  }
}

/* Those that have another address try it. */
static void ask_fail(together *t, hv_status status, const char *text) {
  int silent = 0;
  for (hv_ask *ask; (ask = t->asks) != NULL;) {
    hv_asker *asker = t->asker;
    t->asks = ask->next;
    ask->in = NULL;
    if (status == HV_CANCELLED || asker->closing || ask->dropped) {
      ask_finish(ask, HV_CANCELLED, NULL, text);
      continue;
    }
    if (ask->keep && ask->done && ask->tried < ask->n_addrs && go(ask) == HV_OK)
      continue;
    if (!silent++)
      hv_route_silence(asker->route, &ask->id);
    ask_finish(ask, status, NULL, text);
  }
}

static void call_done(hv_call *call, const hv_event *event) {
  together *t = call->owner;
  queue *l = t->queue;
  if (event->status == HV_OK) {
    if (!t->asker->closing)
      teach(t->asks, t->asked_us, event->now_us);
    deliver(t, event->msg);
  } else
    ask_fail(t, event->status, event->text);
  end_call(t);
  l->under_way--; /* now: what was asked meanwhile goes with those that wait */
  flush(l);
  end_queue_if_idle(l);
}

/* ---- the door ---- */

hv_status hv_asker_ask(hv_asker *asker, const hv_peer_id *id, hv_span addrs, const hv_msg *msg, int keep, hv_ask_done *done,
                       void *owner, size_t mark, hv_ask **out) {
  if (asker->closing)
    return HV_CLOSED;
  hv_ask *ask = hv_mem_zalloc(asker->env->mem, sizeof *ask);
  if (!ask)
    return HV_NOMEM;
  ask->asker = asker;
  ask->done = done;
  ask->owner = owner;
  ask->mark = mark;
  ask->id = *id;
  ask->keep = keep;
  ask->msg = *msg;
  ask->n_addrs = (unsigned)hv_contact_unpack(addrs, ask->addrs, HV_ASK_ADDRS_MAX);
  hv_status status = ask->n_addrs ? go(ask) : HV_UNREACHABLE;
  if (status != HV_OK)
    hv_mem_free(ask);
  else if (out)
    *out = ask;
  return status;
}

void hv_asker_close(hv_asker *asker) {
  asker->closing = 1;
  for (together *t = asker->calls; t; t = t->next)
    asker->env->call_cancel(asker->env, &t->call);
  for (queue *l = asker->queues; l; l = l->next)
    flush(l);
}

void hv_ask_drop(hv_ask *ask) {
  together *t = ask->in;
  ask->done = NULL;
  ask->dropped = 1;
  if (ask->queue) {
    ask_take_out(ask);
    return;
  }
  for (const hv_ask *other = t ? t->asks : NULL; other; other = other->next)
    if (other->done)
      return; /* somebody waits for the same call */
  if (t)
    t->asker->env->call_cancel(t->asker->env, &t->call);
}

void hv_ask_forget(hv_ask *ask) {
  ask->done = NULL;
  if (ask->queue)
    ask_take_out(ask);
}

uint64_t hv_asker_late_us(const hv_asker *asker, const hv_peer_id *id) {
  enum { LEAST_US = 50000, UNKNOWN_US = 400000, TIMES = 3 };
  const hv_route_contact *contact = hv_route_find(asker->route, id);
  uint64_t rtt = contact && contact->rtt_us ? contact->rtt_us : asker->rtt_us;
  if (!rtt)
    return UNKNOWN_US;
  return rtt * TIMES > LEAST_US ? rtt * TIMES : LEAST_US;
}
