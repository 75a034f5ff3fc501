#include "core/peers/contact.h"
#include "core/state/load_inner.h"

#include <string.h>

enum {
  FAILURES_MAX = 3,
  ADDRS_MAX = 4,
  FIRST_AHEAD = 2,   /* chunks requested from a donor that was not measured yet; */
  AHEAD_US = 500000, /* from another: those that it sends in this time */
  AGAIN_US = 500000, /* after a failure; twice as long after the next */
  BUSY_US = 1000000,
  HEDGE_US = 1000000, /* a manifest that has not come by then is asked of one more */
  WIDEN_US = 3000000, /* while those who are asked have not shown that they are good, one more is asked so often */
  PATIENCE_LEAST_US = 4000000,
  PATIENCE_PACES = 8,
  SLOW_PACES = 4, /* so much slower than the fastest is slow */
  MEASURED = 32,  /* chunks before we call it so: answers come in bursts */
  FORGET = 64,
  GOOD_PACE_US = 2000000,  /* for a chunk, of a donor that is good */
  SLOWEST_BYTES = 32 << 10 /* per second, of a manifest */
};

static void donor_ask(load_donor *d);

/* ---- one donor ---- */

static void give_back_asked(load_donor *d) {
  for (uint32_t i = 0; i < d->n_asked; i++)
    if (d->asked[i] != HV_STATE_MANIFEST)
      check_give_back(d->loader, d->asked[i]);
  d->n_asked = 0;
}

void donor_cut(load_donor *d) {
  give_back_asked(d);
  if (!d->stream || d->closing)
    return;
  d->closing = 1;
  d->loader->env->stream_cancel(d->loader->env, d->stream);
}

void donor_liar(load_donor *d, const char *what) {
  hv_loader *l = d->loader;
  char who[HV_PEER_TEXT_MAX];
  if (!d->liar)
    hv_env_log(l->env, HV_LOG_WARN, "state", "state_liar", "peer %s sent %s: this peer does not ask it again",
               hv_peer_print(&d->id, who), what);
  l->seen.liars += !d->liar;
  d->liar = 1;
  d->state = DONOR_OUT;
  donor_cut(d);
}

/* It failed to answer, or broke off: later again, a few times. */
static void donor_failed(load_donor *d) {
  d->state = ++d->failures >= FAILURES_MAX ? DONOR_OUT : DONOR_WAITING;
  d->retry_us = d->loader->env->now_us(d->loader->env) + ((uint64_t)AGAIN_US << d->failures);
}

/* ---- what it says ---- */

static void donor_refused(load_donor *d, const hv_msg_refusal *refusal) {
  if (refusal->status == HV_BUSY) {
    d->busy = 1;
    d->state = DONOR_WAITING;
    d->retry_us = d->loader->env->now_us(d->loader->env) + BUSY_US;
  } else if (refusal->status == HV_NOT_FOUND)
    d->state = DONOR_OUT;
  else
    donor_failed(d);
  donor_cut(d);
}

static void donor_measure(load_donor *d, uint64_t now_us, int is_chunk) {
  uint64_t from = d->asked_us[0] > d->last_us ? d->asked_us[0] : d->last_us, took = now_us - from + 1;
  d->last_us = now_us;
  if (is_chunk) {
    d->busy_us += took;
    d->n_timed++;
    d->pace_us = d->busy_us / d->n_timed + 1;
    if (d->n_timed == FORGET) { /* older chunks count less and less */
      d->busy_us /= 2;
      d->n_timed /= 2;
    }
  }
  d->n_asked--;
  memmove(d->asked, d->asked + 1, d->n_asked * sizeof *d->asked);
  memmove(d->asked_us, d->asked_us + 1, d->n_asked * sizeof *d->asked_us);
}

static void donor_said(hv_stream *stream, const hv_event *event) {
  load_donor *d = stream->owner;
  hv_loader *l = d->loader;
  const hv_msg *msg = event->msg;
  size_t size = event->payload ? event->payload->size : 0;
  if (d->closing || l->phase != LOAD_FETCHING)
    return;
  d->n_came++;
  if (msg->kind == HV_MSG_REFUSAL) {
    donor_refused(d, &msg->u.refusal);
    return;
  }
  uint32_t index = msg->u.chunk.index;
  if (msg->kind != HV_MSG_CHUNK || d->n_asked == 0 || index != d->asked[0] || size == 0) {
    donor_liar(d, "something that it was not asked for");
    return;
  }
  donor_measure(d, event->now_us, index != HV_STATE_MANIFEST);
  if (index == HV_STATE_MANIFEST)
    check_manifest(d, event->payload);
  else if (size != l->manifest.chunks[index].travel) {
    check_give_back(l, index);
    donor_liar(d, "a chunk of another size than the manifest says");
  } else {
    l->seen.arrived++;
    check_chunk(d, index, event->payload);
  }
  donor_ask(d);
}

static void donor_ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  donor_ask(stream->owner);
}

/* It ended by itself: before its first message the address may have been wrong, else it is a failure. */
static void broke_off(load_donor *d, hv_status status) {
  hv_addr addrs[ADDRS_MAX];
  size_t n = hv_contact_unpack(hv_span_of(d->addrs, d->addrs_size), addrs, ADDRS_MAX);
  int unreached = status == HV_REFUSED || status == HV_UNREACHABLE || status == HV_TIMEOUT || status == HV_DENIED;
  d->loader->seen.broken += d->n_asked > 0 && d->n_came > 0;
  give_back_asked(d);
  if (!d->n_came && unreached && d->addr + 1 < n) {
    d->addr++;
    d->state = DONOR_FRESH;
    return;
  }
  if (!d->n_came && (status == HV_REFUSED || status == HV_DENIED)) { /* it has ended since it said that it was there */
    d->state = DONOR_OUT;
    return;
  }
  d->addr = 0;
  if (d->draining)
    d->state = DONOR_TIRED;
  else
    donor_failed(d);
}

static void donor_stream_over(hv_stream *stream, const hv_event *event) {
  load_donor *d = stream->owner;
  hv_loader *l = d->loader;
  d->stream = NULL;
  if (!d->closing)
    broke_off(d, event->status);
  d->closing = d->draining = 0;
  l->on->changed(l);
  l->on->settle(l);
}

/* ---- asking ---- */

static uint32_t ahead(const load_donor *d) {
  const hv_loader *l = d->loader;
  uint64_t most = HV_LOADER_AHEAD_BYTES / l->manifest.chunk_bytes, by_pace = d->pace_us ? AHEAD_US / d->pace_us + 1 : FIRST_AHEAD;
  if (most > LOAD_AHEAD_MAX)
    most = LOAD_AHEAD_MAX;
  by_pace = by_pace < FIRST_AHEAD ? FIRST_AHEAD : by_pace;
  return (uint32_t)(by_pace < most ? by_pace : most < FIRST_AHEAD ? FIRST_AHEAD : most);
}

/* Sets *out to the next chunk for this donor, or to HV_STATE_MANIFEST while there is no manifest. False: nothing to request; one
 * that has not sent the manifest yet is not asked for the last chunks. */
static int next_for(const load_donor *d, uint32_t *out) {
  hv_loader *l = d->loader;
  if (!l->has_manifest) {
    *out = HV_STATE_MANIFEST;
    return !l->checking && d->n_asked == 0;
  }
  int owes_manifest = d->n_asked && d->asked[0] == HV_STATE_MANIFEST;
  if (l->n_todo == 0 || (owes_manifest && l->n_todo <= FIRST_AHEAD) || d->n_asked >= ahead(d))
    return 0;
  while (l->states[l->low] != CHUNK_TODO)
    l->low++;
  *out = l->low;
  return 1;
}

static void donor_ask(load_donor *d) {
  hv_loader *l = d->loader;
  uint32_t index;
  while (l->phase == LOAD_FETCHING && d->state == DONOR_OPEN && d->stream && !d->closing && !d->draining && next_for(d, &index)) {
    hv_msg msg = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = index}};
    if (l->env->stream_send(l->env, d->stream, &msg, NULL) != HV_OK)
      return; /* ready or closed will come */
    uint64_t now = l->env->now_us(l->env);
    if (d->n_asked == 0)
      d->last_us = now;
    d->asked[d->n_asked] = index;
    d->asked_us[d->n_asked++] = now;
    if (index == HV_STATE_MANIFEST)
      continue;
    l->states[index] = CHUNK_ASKED;
    l->n_todo--;
    l->seen.asked++;
  }
}

static void open_stream(load_donor *d) {
  static const hv_stream_events on = {donor_said, donor_ready, donor_stream_over, .heavy = 1};
  hv_loader *l = d->loader;
  hv_addr addrs[ADDRS_MAX];
  size_t n = hv_contact_unpack(hv_span_of(d->addrs, d->addrs_size), addrs, ADDRS_MAX);
  hv_msg first = {.kind = HV_MSG_STATE, .u.state = {l->digest}};
  d->n_came = d->n_asked = 0;
  if (d->addr >= n) {
    d->state = DONOR_OUT;
    return;
  }
  hv_target to = {.id = d->id, .addr = addrs[d->addr]};
  if (l->env->stream_open(l->env, &to, &first, &on, d, &d->stream) != HV_OK) {
    d->stream = NULL;
    donor_failed(d);
    return;
  }
  d->state = DONOR_OPEN;
  donor_ask(d);
}

/* ---- looking after all of them ---- */

int donor_any_stream(const hv_loader *l) {
  for (size_t i = 0; i < l->n_donors; i++)
    if (l->donors[i]->stream)
      return 1;
  return 0;
}

int donor_any_hope(const hv_loader *l) {
  for (size_t i = 0; i < l->n_donors; i++)
    if (l->donors[i]->state != DONOR_OUT)
      return 1;
  return 0;
}

void donor_rest(hv_loader *l) {
  for (size_t i = 0; i < l->n_donors; i++) {
    load_donor *d = l->donors[i];
    if (d->state != DONOR_OPEN)
      continue;
    d->state = DONOR_WAITING;
    d->retry_us = 0;
    donor_cut(d);
  }
}

static uint64_t best_pace(const hv_loader *l) {
  uint64_t best = 0;
  for (size_t i = 0; i < l->n_donors; i++) {
    const load_donor *d = l->donors[i];
    if (d->n_good >= MEASURED && d->pace_us && (!best || d->pace_us < best))
      best = d->pace_us;
  }
  return best;
}

/* A random one of the donors that were never asked: a donor can announce the highest priority, but not choose its rank. NULL: none.
 */
static load_donor *by_lot(const hv_loader *l) {
  load_donor *best = NULL;
  for (size_t i = 0; i < l->n_donors; i++) {
    load_donor *d = l->donors[i];
    if (d->state == DONOR_FRESH && !d->stream && (!best || d->rank > best->rank))
      best = d;
  }
  return best;
}

/* For how long nothing may come from it: by its own speed, else the slowest of the others, else what was configured; no longer than
 * that while others were never asked. */
static uint64_t patience(const load_donor *d) {
  const hv_loader *l = d->loader;
  uint64_t pace = d->pace_us, silence = l->config.silence_ms * UINT64_C(1000);
  if (!l->has_manifest)
    return silence + l->claimed / HV_MANIFEST_CHUNK_MOST * (sizeof(hv_hash) * 8) * 1000000 / SLOWEST_BYTES;
  for (size_t i = 0; !d->pace_us && i < l->n_donors; i++)
    pace = l->donors[i]->pace_us > pace ? l->donors[i]->pace_us : pace;
  if (!pace || (pace * PATIENCE_PACES > silence && by_lot(l)))
    return silence;
  return pace * PATIENCE_PACES > PATIENCE_LEAST_US ? pace * PATIENCE_PACES : PATIENCE_LEAST_US;
}

int donor_all_busy(const hv_loader *l, uint64_t wait_us) {
  uint64_t opening_us = 0;
  size_t busy = 0;
  for (size_t i = 0; i < l->n_donors; i++) {
    const load_donor *d = l->donors[i];
    if (d->state == DONOR_OUT)
      continue;
    if (!d->busy)
      return 0;
    busy++;
    if (d->state == DONOR_OPEN && patience(d) > opening_us)
      opening_us = patience(d);
  }
  return busy && l->env->now_us(l->env) - l->moved_us >= wait_us + opening_us;
}

static const hv_hash whole; /* of all that a donor sends */

int donor_was_silent(const hv_loader *l, const hv_peer_id *id) {
  return silence_is_known(l, id, &whole);
}

/* It is given up, or the load ends. */
static void remember_if_silent(const load_donor *d) {
  hv_loader *l = d->loader;
  if (d->state == DONOR_OPEN && !d->closing && d->n_asked && l->env->now_us(l->env) - d->last_us >= HEDGE_US)
    silence_remember(l, &d->id, &whole);
}

void donor_remember_silent(hv_loader *l) {
  for (size_t i = 0; i < l->n_donors; i++)
    remember_if_silent(l->donors[i]);
}

static void lose_patience(hv_loader *l, uint64_t now) {
  for (size_t i = 0; i < l->n_donors; i++) {
    load_donor *d = l->donors[i];
    if (d->state != DONOR_OPEN || d->closing || d->n_asked == 0 || now - d->last_us < patience(d))
      continue;
    l->seen.given_up++;
    remember_if_silent(d);
    donor_failed(d);
    donor_cut(d);
  }
}

static load_donor *best_to_open(hv_loader *l, uint64_t now, int also_tired) {
  for (int state = DONOR_FRESH; state <= DONOR_TIRED; state++) {
    if (state == DONOR_OPEN || (state == DONOR_TIRED && !also_tired))
      continue;
    for (size_t i = 0; i < l->n_donors; i++) {
      load_donor *d = l->donors[i];
      if (d->state == (donor_state)state && !d->stream && (state != DONOR_WAITING || d->retry_us <= now))
        return d;
    }
  }
  return NULL;
}

/* Time that a donor has spent on requests, the present one included. */
static uint64_t busy_of(const load_donor *d, uint64_t now) {
  uint64_t since = d->n_asked && d->asked_us[0] > d->last_us ? d->asked_us[0] : d->last_us;
  return d->busy_us + (d->n_asked ? now - since : 0);
}

/* Much slower than the best: over as many chunks as it takes to say so, or for as long as they should have taken. */
static int is_slow(const load_donor *d, uint64_t best, uint64_t now) {
  return busy_of(d, now) > SLOW_PACES * best * (d->n_timed > MEASURED ? d->n_timed : MEASURED);
}

/* One that is much slower than the best makes way, if there is somebody to take its place. */
static void demote(hv_loader *l, uint64_t now) {
  uint64_t best = best_pace(l);
  if (!l->has_manifest || !best || !best_to_open(l, now, 0))
    return;
  for (size_t i = 0; i < l->n_donors; i++) {
    load_donor *d = l->donors[i];
    if (d->state == DONOR_OPEN && is_slow(d, best, now))
      d->draining = 1;
    if (d->state == DONOR_OPEN && d->draining && d->n_asked == 0) {
      d->state = DONOR_TIRED;
      donor_cut(d);
    }
  }
}

/* Once all chunks are requested and a fast donor is idle, takes the requests of a slow one away. */
static void overtake(hv_loader *l, uint64_t now) {
  load_donor *idle = NULL, *slow = NULL;
  for (size_t i = 0; i < l->n_donors; i++) {
    load_donor *d = l->donors[i];
    if (d->state != DONOR_OPEN || d->closing)
      continue;
    if (d->n_asked == 0 && d->pace_us && !d->draining && (!idle || d->pace_us < idle->pace_us))
      idle = d;
    if (d->n_asked && (!slow || d->asked_us[0] < slow->asked_us[0]))
      slow = d;
  }
  if (!l->has_manifest || l->n_todo || !idle || !slow || (slow->pace_us && slow->pace_us < 2 * idle->pace_us) ||
      now - slow->asked_us[0] < 3 * idle->pace_us + LOAD_TICK_US)
    return;
  l->seen.overtaken++;
  remember_if_silent(slow);
  slow->state = DONOR_TIRED;
  donor_cut(slow);
  donor_ask(idle);
}

static size_t wanted(const hv_loader *l, uint64_t now) {
  size_t by_time = 1 + (size_t)((now - l->fetching_us) / HEDGE_US);
  if (l->has_manifest)
    return l->n_todo ? l->config.donors : 0;
  return by_time < l->config.donors ? by_time : l->config.donors;
}

/* While those who are asked have not shown that they are good, one more is asked now and then: some may be slow on purpose, and
 * send just enough not to be given up. */
static void widen(hv_loader *l, uint64_t now, size_t open) {
  load_donor *next = by_lot(l);
  size_t good = 0;
  for (size_t i = 0; i < l->n_donors; i++)
    good += l->donors[i]->state == DONOR_OPEN && l->donors[i]->n_good >= MEASURED && l->donors[i]->pace_us <= GOOD_PACE_US;
  if (!l->has_manifest || !l->n_todo || !next || good >= l->config.donors || open >= HV_LOADER_DONORS_MAX)
    l->widened_us = now;
  else if (now - l->widened_us >= WIDEN_US) {
    l->widened_us = now;
    open_stream(next);
  }
}

/* The next donor to open; those asked for the manifest, apart from the first, are random. */
static load_donor *next_to_open(hv_loader *l, uint64_t now, size_t open) {
  load_donor *d = open && !l->has_manifest ? by_lot(l) : NULL;
  return d ? d : best_to_open(l, now, open == 0);
}

void donor_mind(hv_loader *l) {
  uint64_t now = l->env->now_us(l->env);
  size_t open = 0;
  lose_patience(l, now);
  demote(l, now);
  overtake(l, now);
  for (size_t i = 0; i < l->n_donors; i++) {
    open += l->donors[i]->state == DONOR_OPEN;
    donor_ask(l->donors[i]);
  }
  for (load_donor *d; open < wanted(l, now) && (d = next_to_open(l, now, open)); open += d->state == DONOR_OPEN)
    open_stream(d);
  widen(l, now, open);
}
