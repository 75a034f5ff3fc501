#include "core/ask.h"

struct hv_ask {
  hv_ask *next, **where;
  hv_asker *asker;
  hv_ask_done *done; /* NULL: nobody listens */
  void *owner;
  size_t mark;
  hv_peer_id id;
  hv_addr addrs[HV_ASK_ADDRS_MAX];
  unsigned n_addrs, tried;
  int keep, dropped;
  hv_msg msg;
  uint64_t asked_us;
  hv_call call;
};

void hv_asker_init(hv_asker *asker, hv_env *env, hv_route *route, uint32_t timeout_ms) {
  *asker = (hv_asker){.env = env, .route = route, .timeout_ms = timeout_ms};
}

static void unlink_ask(hv_ask *ask) {
  *ask->where = ask->next;
  if (ask->next)
    ask->next->where = ask->where;
  ask->asker->n--;
}

void hv_asker_fini(hv_asker *asker) {
  while (asker->first) {
    hv_ask *ask = asker->first;
    unlink_ask(ask);
    hv_mem_free(ask);
  }
}

void hv_asker_close(hv_asker *asker) {
  asker->closing = 1;
  for (hv_ask *ask = asker->first; ask; ask = ask->next)
    asker->env->call_cancel(asker->env, &ask->call);
}

static void call_done(hv_call *call, const hv_event *event);

static hv_status call_next(hv_ask *ask) {
  hv_asker *asker = ask->asker;
  ask->call = (hv_call){.done = call_done, .owner = ask, .timeout_ms = asker->timeout_ms};
  ask->call.to = (hv_target){ask->id, ask->addrs[ask->tried++]};
  ask->asked_us = asker->env->now_us(asker->env);
  asker->asked++;
  return asker->env->call(asker->env, &ask->call, &ask->msg);
}

static void finish(hv_ask *ask, hv_status status, const hv_msg *msg, const char *text) {
  unlink_ask(ask);
  if (ask->done)
    ask->done(ask->owner, ask->mark, status, msg, text);
  hv_mem_free(ask);
}

/* The address that worked goes first. */
static void teach(hv_ask *ask, uint64_t now_us) {
  hv_asker *asker = ask->asker;
  hv_addr worked = ask->addrs[ask->tried - 1];
  hv_hash hash;
  ask->addrs[ask->tried - 1] = ask->addrs[0];
  ask->addrs[0] = worked;
  uint64_t rtt = now_us - ask->asked_us + 1;
  rtt = rtt < UINT32_MAX ? rtt : UINT32_MAX;
  asker->rtt_us = asker->rtt_us ? (uint32_t)(((uint64_t)asker->rtt_us * 15 + rtt) / 16) : (uint32_t)rtt;
  hv_route_answered(asker->route, &ask->id, ask->addrs, ask->n_addrs, (uint32_t)rtt);
  hv_route_hash(asker->env, &ask->id, &hash);
  if (asker->answered)
    asker->answered(asker->arg, &ask->id, &hash);
}

static void call_done(hv_call *call, const hv_event *event) {
  hv_ask *ask = call->owner;
  hv_asker *asker = ask->asker;
  if (event->status == HV_OK) {
    if (!asker->closing)
      teach(ask, event->now_us);
    finish(ask, HV_OK, event->msg, "");
    return;
  }
  if (event->status == HV_CANCELLED || asker->closing || ask->dropped) {
    finish(ask, HV_CANCELLED, NULL, event->text);
    return;
  }
  if (ask->keep && ask->done && ask->tried < ask->n_addrs && call_next(ask) == HV_OK)
    return;
  hv_route_silence(asker->route, &ask->id);
  finish(ask, event->status, NULL, event->text);
}

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
  hv_status status = ask->n_addrs ? call_next(ask) : HV_UNREACHABLE;
  if (status != HV_OK) {
    hv_mem_free(ask);
    return status;
  }
  ask->next = asker->first;
  if (ask->next)
    ask->next->where = &ask->next;
  ask->where = &asker->first;
  asker->first = ask;
  asker->n++;
  if (out)
    *out = ask;
  return HV_OK;
}

void hv_ask_drop(hv_ask *ask) {
  ask->done = NULL;
  ask->dropped = 1;
  ask->asker->env->call_cancel(ask->asker->env, &ask->call);
}

void hv_ask_forget(hv_ask *ask) {
  ask->done = NULL;
}

uint64_t hv_asker_late_us(const hv_asker *asker, const hv_peer_id *id) {
  enum { LEAST_US = 50000, UNKNOWN_US = 400000, TIMES = 3 };
  const hv_route_contact *contact = hv_route_find(asker->route, id);
  uint64_t rtt = contact && contact->rtt_us ? contact->rtt_us : asker->rtt_us;
  if (!rtt)
    return UNKNOWN_US;
  return rtt * TIMES > LEAST_US ? rtt * TIMES : LEAST_US;
}
