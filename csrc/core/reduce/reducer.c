#include "core/reduce/reducer_inner.h"

#include "core/round/norm.h"
#include "kern/reduce.h"

#include <string.h>

/* ---- small things ---- */

static slot *slot_of(hv_reducer *r, uint32_t item) {
  return &r->slots[item % WINDOW];
}

static uint32_t index_of(const hv_reducer *r, uint32_t item) {
  return r->view->chunks[r->first + item];
}

static uint32_t source_of(const hv_reducer *r, uint32_t item) {
  return r->view->sources[r->first + item];
}

static hv_run_chunk chunk_of(const hv_reducer *r, uint32_t item) {
  return hv_run_chunk_of(r->round->in, index_of(r, item));
}

static size_t reducer_bytes_of(const hv_reducer *r, uint32_t item) {
  hv_run_chunk chunk = chunk_of(r, item);
  return source_of(r, item) == HV_VIEW_REDUCE ? chunk.bytes : (size_t)hv_codec_bound(HV_CODEC_NONE, HV_DTYPE_FLOAT32, chunk.size);
}

/* Of what comes for this item: a forwarded average, or values under one of its two codecs. */
static int is_size(const hv_reducer *r, uint32_t item, size_t size) {
  return size == reducer_bytes_of(r, item) || (source_of(r, item) == HV_VIEW_REDUCE && size == chunk_of(r, item).narrow_bytes);
}

static int gives(const hv_reducer *r, size_t member, uint32_t item) {
  return hv_view_gives(r->view, r->round, member, r->first + item);
}

static int lacks(const contributor *g, uint32_t item) {
  return !g->lacks || g->lacks[item / 8] >> item % 8 & 1;
}

static uint64_t stall_us(const hv_reducer *r) {
  return (uint64_t)r->round->stall_ms * 1000;
}

static void reducer_advance(slot *s);
static void go_on_all(hv_reducer *r);
static void advance(hv_reducer *r);

static void reducer_fail(hv_reducer *r, hv_status status) {
  if (r->status == HV_OK)
    r->status = status;
  for (size_t i = 0; i < r->round->n_members; i++) {
    contributor *g = &r->contributors[i];
    list_drop(&g->held);
    if (g->stream)
      r->env->stream_cancel(r->env, g->stream);
    g->state = CONTRIBUTOR_GONE;
  }
  for (size_t i = 0; i < WINDOW; i++) {
    list_drop(&r->slots[i].waiting);
    if (!r->slots[i].busy) /* else its job is still in it */
      hv_run_sum_end(&r->slots[i].sum);
  }
}

/* Nobody else can give what this member was to forward. */
static int is_needed(const hv_reducer *r, const contributor *g) {
  for (uint32_t item = r->low; item < r->count; item++)
    if (source_of(r, item) == g->member && (item >= r->low + WINDOW || r->slots[item % WINDOW].state == SLOT_OPEN))
      return 1;
  return 0;
}

static void lose(hv_reducer *r, const contributor *g, int lied) {
  if (r->status == HV_OK && is_needed(r, g)) {
    r->lost = g->member;
    r->lied = lied;
    reducer_fail(r, HV_CLOSED);
  }
}

/* From now on this member is not waited for, and is sent nothing any more. */
static void leave_out(contributor *g, hv_status status, const char *why) {
  hv_reducer *r = g->reducer;
  if (g->state == CONTRIBUTOR_GONE)
    return;
  g->state = CONTRIBUTOR_GONE;
  list_drop(&g->held);
  if (g->stream)
    r->env->stream_cancel(r->env, g->stream);
  char who[HV_PEER_SHORT_MAX];
  hv_env_log(r->env, HV_LOG_WARN, "reducer", "left_out", "excluding member %s after %u of %u chunks: %s (%s)",
             hv_peer_short(&r->round->members[g->member].at.id, who), g->next, r->count, why, hv_status_text(status));
  lose(r, g, 0);
}

/* From now on what this member contributes does not count; it is given the averages, and what it holds is forwarded. */
static void reducer_refuse(contributor *g, hv_status status, const char *why) {
  hv_reducer *r = g->reducer;
  char who[HV_PEER_SHORT_MAX];
  if (g->refused)
    return;
  g->refused = 1;
  hv_env_log(r->env, HV_LOG_WARN, "reducer", "refused", "refusing the chunks of member %s from %u of %u on: %s (%s)",
             hv_peer_short(&r->round->members[g->member].at.id, who), g->next, r->count, why, hv_status_text(status));
}

/* It does not even say what it was to say: nothing is heard of it any more. */
static void ignore(contributor *g, hv_status status, const char *why) {
  reducer_refuse(g, status, why);
  g->ignored = 1;
  list_drop(&g->held);
  lose(g->reducer, g, status != HV_NOMEM && status != HV_IO);
}

/* This member's own values are held to the rules of all. */
static void refuse_own(hv_reducer *r, hv_status status) {
  if (r->own_refused)
    return;
  r->own_refused = 1;
  hv_env_log(r->env, HV_LOG_WARN, "reducer", "own_refused", "skipping this member's own values from chunk %u of %u on: %s", r->low,
             r->count, hv_status_text(status));
}

/* ---- jobs on the pool ---- */

static void run_accumulate(hv_job *job) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  const hv_round *round = r->round;
  const contribution *c = s->current;
  s->status = s->begun ? HV_OK : hv_run_sum_begin(round->in, index_of(r, s->item), &s->sum);
  s->begun = 1;
  if (s->status != HV_OK)
    return;
  if (!c->from) {
    s->status = hv_run_sum_add_own(round->in, round->kern, index_of(r, s->item), &s->sum, hv_round_weight(round, round->weight),
                                   r->norm_most);
    return;
  }
  int narrow;
  s->status = hv_run_width(round->in, index_of(r, s->item), c->payload->parts, c->payload->n_parts, &narrow);
  if (s->status == HV_OK)
    s->status = hv_run_sum_add(round->kern, &s->sum, chunk_of(r, s->item).size, c->payload->parts, c->payload->n_parts,
                               c->from->weight, r->norm_most);
  s->sum.narrow |= s->status == HV_OK && narrow;
}

static void run_average(hv_job *job) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  const hv_round *round = r->round;
  s->sum.narrow |= round->narrow;
  s->status = hv_run_sum_encode(round->in, round->kern, index_of(r, s->item), &s->sum, (float)(1 / s->weight), s->codes,
                                s->codes_size, &s->codes_size);
  hv_run_sum_end(&s->sum);
  hv_span codes = hv_span_of(s->codes, s->codes_size);
  if (s->status == HV_OK && round->out)
    s->status = hv_round_take(round, index_of(r, s->item), &codes, 1);
}

/* Takes a forwarded average into memory of our own, and to its place if it is lacking here. */
static void run_relay(hv_job *job) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  const hv_payload *payload = s->current->payload;
  hv_codec_info info;
  int finite;
  s->status = hv_codec_check(r->round->kern, payload->parts, payload->n_parts, &info, &finite);
  if (s->status == HV_OK && (info.codec != HV_CODEC_NONE || info.count != chunk_of(r, s->item).size || !finite))
    s->status = HV_MALFORMED;
  hv_payload_read(payload, 0, s->codes, s->codes_size);
  if (s->status == HV_OK && s->lacking)
    s->status = hv_round_take(r->round, index_of(r, s->item), payload->parts, payload->n_parts);
}

static void start_job(slot *s, void (*run)(hv_job *), void (*done)(hv_job *, const hv_event *)) {
  s->busy = 1;
  s->reducer->jobs++;
  s->job = (hv_job){.run = run, .done = done, .owner = s};
  s->reducer->env->work(s->reducer->env, &s->job);
}

/* ---- the average goes out ---- */

static void free_codes(void *codes) {
  hv_mem_free(codes);
}

static void send_averages(contributor *g) {
  hv_reducer *r = g->reducer;
  while (g->state == CONTRIBUTOR_HERE && g->sent < r->count) {
    slot *s = slot_of(r, g->sent);
    if (!lacks(g, g->sent)) {
      g->sent++;
      continue;
    }
    if (s->item != g->sent || s->state != SLOT_READY)
      return;
    hv_msg header = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = index_of(r, s->item), .view = s->made}};
    if (s->average)
      header.u.chunk.from = hv_span_of(&s->counted, sizeof s->counted);
    hv_status status = r->env->stream_send(r->env, g->stream, &header, s->average);
    if (status == HV_BUSY || status == HV_CLOSED) /* its end is under way: it may have stopped for a view */
      return;
    if (status != HV_OK) {
      leave_out(g, status, "the average could not be sent");
      return;
    }
    g->sent++;
    g->moved_us = g->message_us = r->env->now_us(r->env);
  }
  if (g->state == CONTRIBUTOR_HERE)
    r->env->stream_end(r->env, g->stream);
}

/* The item has its average, or none: `average` NULL. */
static void reducer_settle(slot *s) {
  hv_reducer *r = s->reducer;
  s->state = SLOT_READY;
  r->settled++;
  for (size_t i = 0; i < r->round->n_members; i++)
    send_averages(&r->contributors[i]);
}

/* The encoded average becomes the one that all are given. */
static void publish(slot *s) {
  hv_reducer *r = s->reducer;
  if (r->round->out) /* it is in its place, whatever comes now */
    hv_hold_put(r->hold, index_of(r, s->item), &s->counted, s->made);
  else
    hv_hold_note(r->hold, index_of(r, s->item), &s->counted, s->made);
  s->average = hv_payload_borrow(r->env->mem, s->codes, s->codes_size, free_codes, s->codes);
  if (!s->average) {
    reducer_fail(r, HV_NOMEM);
    return;
  }
  s->codes = NULL;
  if (source_of(r, s->item) == HV_VIEW_REDUCE) {
    r->narrow |= s->codes_size < reducer_bytes_of(r, s->item);
    hv_kept_put(r->kept, index_of(r, s->item), s->average);
  }
  reducer_settle(s);
}

/* A job's end, for all kinds: 1 when the round goes on. */
static int job_over(slot *s, const hv_event *event) {
  hv_reducer *r = s->reducer;
  s->busy = 0;
  r->jobs--;
  if (event->status != HV_OK && r->status == HV_OK)
    reducer_fail(r, event->status);
  if (r->status == HV_OK)
    return 1;
  hv_run_sum_end(&s->sum);
  drop_contribution(s->current);
  s->current = NULL;
  return 0;
}

static void averaged(hv_job *job, const hv_event *event) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  int goes_on = job_over(s, event);
  if (event->status == HV_OK && s->status == HV_OK && !goes_on && r->round->out)
    hv_hold_put(r->hold, index_of(r, s->item), &s->counted, s->made); /* it is in its place, whatever else happened */
  if (goes_on && s->status == HV_NOT_FINITE) {                        /* the codec cannot hold it */
    hv_mem_free(s->codes);
    s->codes = NULL;
    reducer_settle(s);
  } else if (goes_on && s->status == HV_OK) {
    publish(s);
  } else if (goes_on) {
    reducer_fail(r, s->status);
  }
  advance(r);
}

/* This member's device or memory failed: nobody who contributes is to blame. */
static int is_lacking_here(hv_status status) {
  return status == HV_IO || status == HV_NOMEM;
}

static void relayed(hv_job *job, const hv_event *event) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  hv_members in = s->current->in;
  uint32_t made = s->current->made;
  contributor *from = s->current->from;
  int goes_on = job_over(s, event);
  if (event->status == HV_OK && s->status == HV_OK && !goes_on && r->round->out)
    hv_hold_put(r->hold, index_of(r, s->item), &in, made);
  if (goes_on) {
    drop_contribution(s->current);
    s->current = NULL;
    s->counted = in;
    s->made = made;
    if (s->status == HV_OK) {
      publish(s);
    } else if (is_lacking_here(s->status)) {
      reducer_fail(r, s->status);
    } else {
      s->state = SLOT_OPEN;
      ignore(from, s->status, "it forwarded invalid bytes instead of the average");
    }
  }
  advance(r);
}

static void accumulated(hv_job *job, const hv_event *event) {
  slot *s = job->owner;
  hv_reducer *r = s->reducer;
  if (job_over(s, event)) {
    contributor *from = s->current->from;
    size_t member = from ? from->member : r->round->me;
    drop_contribution(s->current);
    s->current = NULL;
    hv_members_put(&s->heard, member);
    if (is_lacking_here(s->status)) {
      reducer_fail(r, s->status);
    } else if (s->status == HV_OK) {
      hv_members_put(&s->counted, member);
      s->weight += from ? (double)from->weight : (double)hv_round_weight(r->round, r->round->weight);
    } else if (from) {
      reducer_refuse(from, s->status, s->status == HV_TOO_LARGE ? "its values are too large" : "its values");
    } else {
      refuse_own(r, s->status);
    }
    go_on_all(r);
  }
  advance(r);
}

/* ---- an item goes on ---- */

static int make_codes(slot *s) {
  s->codes_size = reducer_bytes_of(s->reducer, s->item);
  s->codes = hv_mem_aligned(s->reducer->env->mem, s->codes_size);
  if (!s->codes)
    reducer_fail(s->reducer, HV_NOMEM);
  return s->codes != NULL;
}

/* Memory for the first chunk, which stays for the slot's next items. */
static int make_kept(slot *s) {
  size_t room = reducer_bytes_of(s->reducer, s->item);
  if (s->sum.room >= room)
    return 1;
  hv_mem_free(s->sum.kept);
  s->sum.kept = hv_mem_alloc(s->reducer->env->mem, room);
  s->sum.room = s->sum.kept ? room : 0;
  if (!s->sum.kept)
    reducer_fail(s->reducer, HV_NOMEM);
  return s->sum.kept != NULL;
}

/* True if this member's own values count for nothing, so they cannot be the mean of equal ones. */
static int keeps_first(const hv_reducer *r) {
  return r->round->members[r->round->me].auxiliary || !(hv_round_weight(r->round, r->round->weight) > 0);
}

static void close_slot(slot *s) {
  s->state = SLOT_CLOSING;
  if (!(s->weight > 0)) {
    hv_run_sum_end(&s->sum);
    reducer_settle(s); /* nobody's values count: all keep their own */
  } else if (make_codes(s)) {
    start_job(s, run_average, averaged);
  }
}

/* An average that is here already, encoded within the step: the pool reads nothing of a member that has told its outcome. */
static void give_own(slot *s) {
  hv_reducer *r = s->reducer;
  size_t size;
  s->state = SLOT_CLOSING;
  if (!make_codes(s))
    return;
  s->status = hv_run_encode(r->round->out, r->round->kern, index_of(r, s->item), HV_CODEC_NONE, s->codes, s->codes_size, &size);
  s->counted = r->hold->from[index_of(r, s->item)];
  s->made = r->hold->made[index_of(r, s->item)];
  if (s->status == HV_OK)
    publish(s);
  else
    reducer_fail(r, s->status);
}

static int is_complete(const slot *s) {
  const hv_reducer *r = s->reducer;
  for (size_t i = 0; i < r->round->n_members; i++) {
    const contributor *g = &r->contributors[i];
    if (g->state != CONTRIBUTOR_GONE && !g->refused && gives(r, i, s->item) && !hv_members_has(&s->heard, i))
      return 0;
  }
  return 1;
}

/* The next contribution to this item. A member without values for it counts as heard. */
static contribution *take_waiting(slot *s) {
  contribution *c;
  while ((c = list_take(&s->waiting)) && c->from &&
         (!c->payload || (c->from->refused && source_of(s->reducer, s->item) == HV_VIEW_REDUCE))) {
    hv_members_put(&s->heard, c->from->member);
    drop_contribution(c);
  }
  return c;
}

/* One of those who were to give this chunk, when all of them are gone and none has; HV_ROUND_MEMBERS_MAX: there is somebody. A
 * value that this member would average with itself alone is no average, and would part it from the others, who go on without that.
 */
static size_t who_is_missing(const slot *s) {
  const hv_reducer *r = s->reducer;
  size_t missing = HV_ROUND_MEMBERS_MAX;
  for (size_t i = r->round->n_members; i-- > 0;)
    if (i != r->round->me && hv_members_has(&r->view->members, i) && gives(r, i, s->item)) {
      if (r->contributors[i].state != CONTRIBUTOR_GONE || hv_members_has(&s->counted, i))
        return HV_ROUND_MEMBERS_MAX;
      missing = i;
    }
  return missing;
}

/* All that can be in it is. */
static void complete(slot *s) {
  hv_reducer *r = s->reducer;
  size_t missing = who_is_missing(s);
  if (missing == HV_ROUND_MEMBERS_MAX) {
    close_slot(s);
  } else {
    r->lost = missing;
    reducer_fail(r, HV_CLOSED);
  }
}

/* True if contributions can be judged: each contributor has stated its norm, or is no longer expected. A chunk needs all of them
 * anyway, so this delays no average. */
static int judges(hv_reducer *r) {
  if (r->judges || !(r->round->norm_ratio > 0))
    return 1;
  for (size_t i = 0; i < r->round->n_members; i++)
    if (r->contributors[i].state == CONTRIBUTOR_EXPECTED)
      return 0;
  reducer_set_norm_most(r);
  return r->judges = 1;
}

/* Starts whatever a slot can do next. */
static void reducer_advance(slot *s) {
  hv_reducer *r = s->reducer;
  if (r->status != HV_OK || s->busy || s->state != SLOT_OPEN)
    return;
  uint32_t source = source_of(r, s->item);
  if (source == r->round->me) {
    give_own(s);
    return;
  }
  if (source == HV_VIEW_REDUCE && !judges(r))
    return;
  s->current = take_waiting(s);
  if (s->current && source == HV_VIEW_REDUCE) {
    if (keeps_first(r) && !make_kept(s))
      return;
    start_job(s, run_accumulate, accumulated);
  } else if (s->current) {
    s->state = SLOT_CLOSING;
    s->lacking = r->round->out && !hv_hold_has(r->hold, index_of(r, s->item));
    if (make_codes(s))
      start_job(s, run_relay, relayed);
  } else if (source == HV_VIEW_REDUCE && is_complete(s)) {
    complete(s);
  }
}

static uint32_t open_end(const hv_reducer *r) {
  return r->count - r->low < WINDOW ? r->count : r->low + WINDOW;
}

static void go_on_all(hv_reducer *r) {
  for (uint32_t i = r->low; r->status == HV_OK && i < open_end(r); i++)
    reducer_advance(slot_of(r, i));
}

/* Moves what is held for items that are open now into their slots. */
static void reducer_place(contributor *g) {
  hv_reducer *r = g->reducer;
  while (r->status == HV_OK && g->held.first && g->held.first->item < open_end(r)) {
    contribution *c = list_take(&g->held);
    slot *s = slot_of(r, c->item);
    if (c->item < r->low || s->state != SLOT_OPEN) {
      drop_contribution(c); /* too late: it went on without */
      continue;
    }
    list_put(&s->waiting, c);
    reducer_advance(s);
  }
}

static hv_status open_slot(hv_reducer *r, uint32_t item) {
  slot *s = slot_of(r, item);
  s->item = item;
  s->state = SLOT_OPEN;
  s->weight = s->begun = 0;
  s->heard = s->counted = (hv_members){{0}};
  s->made = r->view->number;
  if (source_of(r, item) != HV_VIEW_REDUCE || r->own_refused || r->round->listens || r->round->members[r->round->me].auxiliary)
    return HV_OK;
  contribution *own = hv_mem_zalloc(r->env->mem, sizeof *own);
  if (!own)
    return HV_NOMEM;
  list_put(&s->waiting, own);
  return HV_OK;
}

static int everybody_has(const hv_reducer *r, uint32_t item) {
  for (size_t i = 0; i < r->round->n_members; i++)
    if (r->contributors[i].state != CONTRIBUTOR_GONE && r->contributors[i].sent <= item)
      return 0;
  return 1;
}

/* Lets finished items make way for the next ones. */
static void advance(hv_reducer *r) {
  while (r->status == HV_OK && r->low < r->count && slot_of(r, r->low)->state == SLOT_READY && everybody_has(r, r->low)) {
    slot *s = slot_of(r, r->low);
    hv_payload_release(s->average);
    s->average = NULL;
    uint32_t item = r->low++ + WINDOW;
    if (item >= r->count)
      continue;
    hv_status status = open_slot(r, item);
    if (status != HV_OK) {
      reducer_fail(r, status);
      break;
    }
    reducer_advance(s);
    for (size_t i = 0; i < r->round->n_members; i++)
      reducer_place(&r->contributors[i]);
  }
  if (hv_reducer_over(r))
    r->env->timer_clear(r->env, &r->stall);
  r->changed(r->arg);
}

/* ---- streams ---- */

static uint32_t next_given(const contributor *g) {
  uint32_t item = g->next;
  while (item < g->reducer->count && !gives(g->reducer, g->member, item))
    item++;
  return item;
}

static hv_status take_contribution(contributor *g, const hv_event *event) {
  hv_reducer *r = g->reducer;
  const hv_msg_chunk *header = &event->msg->u.chunk;
  uint32_t item = next_given(g);
  if (event->msg->kind != HV_MSG_CHUNK || item >= r->count || header->index != index_of(r, item))
    return HV_MALFORMED;
  int forwarded = source_of(r, item) != HV_VIEW_REDUCE;
  if (event->payload ? !is_size(r, item, event->payload->size) : forwarded)
    return HV_MALFORMED;
  if (header->from.size != (forwarded ? sizeof(hv_members) : 0))
    return HV_MALFORMED;
  contribution *c = hv_mem_zalloc(r->env->mem, sizeof *c);
  if (!c)
    return HV_NOMEM;
  c->from = g;
  c->item = item;
  if (forwarded)
    memcpy(&c->in, header->from.data, sizeof c->in);
  c->made = header->view;
  c->payload = event->payload && (forwarded || !g->refused) ? hv_payload_keep(event->payload) : NULL;
  list_put(&g->held, c);
  g->next = item + 1;
  return HV_OK;
}

/* The first chunks of a round come as fast as the sender's line lets them: it is told how fast that was. */
static void gauge(contributor *g, uint64_t now_us, const hv_payload *payload) {
  hv_reducer *r = g->reducer;
  uint32_t enough = r->count < HV_GAUGE_CHUNKS ? r->count : HV_GAUGE_CHUNKS;
  if (r->view->number > 0 || g->next > enough || !payload)
    return;
  hv_gauge_saw(&g->gauge, now_us, payload->size);
  uint64_t rate = g->next == enough ? hv_gauge_rate(&g->gauge) : 0;
  hv_msg here = {.kind = HV_MSG_NEWS, .u.news = {.what = HV_NEWS_HERE, .rate = rate}};
  if (rate)
    r->env->stream_send(r->env, g->stream, &here, NULL); /* if there is no room, the next round will tell */
}

static void chunk_came(hv_stream *stream, const hv_event *event) {
  contributor *g = stream->owner;
  hv_reducer *r = g->reducer;
  if (g->state != CONTRIBUTOR_HERE || r->status != HV_OK)
    return;
  if (g->next && event->now_us > g->moved_us)
    hv_pace_saw(r->pace, event->now_us - g->moved_us);
  g->moved_us = event->now_us;
  hv_pace_heard(r->pace, g->member, event->now_us, event->payload);
  if (g->ignored)
    return;
  hv_status status = take_contribution(g, event);
  if (status == HV_OK) {
    gauge(g, event->now_us, event->payload);
    reducer_place(g);
  } else {
    ignore(g, status, "it sent a chunk out of order, or there is no memory for it");
  }
  go_on_all(r);
  advance(r);
}

static void reducer_room_again(hv_stream *stream, const hv_event *event) {
  contributor *g = stream->owner;
  (void)event;
  send_averages(g);
  advance(g->reducer);
}

/* Chunks still on their way from one that is here are heard first: its stream ends, too. */
static void leave_out_if_gone(contributor *g) {
  if (g->gone && (g->state == CONTRIBUTOR_EXPECTED || g->state == CONTRIBUTOR_LOST))
    leave_out(g, HV_CLOSED, "its process has ended");
}

void hv_reducer_gone(hv_reducer *r, size_t member) {
  contributor *g = &r->contributors[member];
  g->gone = 1;
  if (r->status != HV_OK)
    return;
  leave_out_if_gone(g);
  go_on_all(r);
  advance(r);
}

static void reducer_stream_over(hv_stream *stream, const hv_event *event) {
  contributor *g = stream->owner;
  hv_reducer *r = g->reducer;
  g->stream = NULL;
  r->streams--;
  if (event->status == HV_OK && g->sent == r->count && next_given(g) == r->count)
    g->state = CONTRIBUTOR_GONE; /* it has given everything, and has everything */
  else if (g->state == CONTRIBUTOR_HERE)
    g->state = CONTRIBUTOR_LOST;
  g->moved_us = event->now_us;
  leave_out_if_gone(g);
  go_on_all(r);
  advance(r);
}

/* Tells who waits for its next average, and has been told nothing for a while, that this owner is there. */
static void say_here(contributor *g, uint64_t now_us) {
  hv_reducer *r = g->reducer;
  uint64_t pause = (HV_PACE_FLOOR_US < stall_us(r) ? HV_PACE_FLOOR_US : stall_us(r)) / (HV_PACE_TIMES + 1);
  hv_msg here = {.kind = HV_MSG_NEWS, .u.news = {.what = HV_NEWS_HERE, .view = r->view->number, .installed = r->view->number}};
  if (g->state != CONTRIBUTOR_HERE || g->sent >= r->count || (g->message_us && now_us - g->message_us < pause))
    return;
  g->message_us = now_us;
  r->env->stream_send(r->env, g->stream, &here, NULL); /* if there is no room, something else is on its way */
}

static int lacks_well(const hv_reducer *r, const hv_msg_share *share) {
  return share->lacks.size == 0 || share->lacks.size == hv_hold_bytes(r->count);
}

void hv_reducer_opened(hv_reducer *r, const hv_msg_share *share, hv_stream *stream) {
  static const hv_stream_events on = {chunk_came, reducer_room_again, reducer_stream_over, .turn = HV_TURN_ROUND};
  contributor *g = &r->contributors[share->member];
  if (g->state != CONTRIBUTOR_EXPECTED || r->status != HV_OK || !lacks_well(r, share))
    return;
  if (share->lacks.size) {
    g->lacks = hv_mem_alloc(r->env->mem, share->lacks.size);
    if (!g->lacks)
      return;
    memcpy(g->lacks, share->lacks.data, share->lacks.size);
  }
  g->state = CONTRIBUTOR_HERE;
  g->stream = stream;
  g->weight = hv_round_weight(r->round, share->weight);
  g->moved_us = r->env->now_us(r->env);
  r->streams++;
  stream->on = &on;
  stream->owner = g;
  g->norm = share->norm;
  if (!hv_round_takes_weight(share->weight))
    reducer_refuse(g, HV_INVALID, "its weight");
  else if (!hv_norm_is_valid(share->norm))
    reducer_refuse(g, HV_INVALID, "its norm");
  else if (g->weight < share->weight && r->round->overstated)
    r->round->overstated(r->round->arg, &r->round->members[g->member].at.id, share->weight);
  say_here(g, g->moved_us);
  send_averages(g);
  go_on_all(r);
  advance(r);
}

/* ---- those who hold the others up ---- */

static int holds_up(const contributor *g) {
  hv_reducer *r = g->reducer;
  if (g->state != CONTRIBUTOR_HERE)
    return g->state != CONTRIBUTOR_GONE; /* it does not come, or is lost */
  if (r->low >= r->count)
    return 0; /* nobody waits for it; what it lacks is on its way, and breaking that off would take it away */
  const slot *s = slot_of(r, r->low);
  if (s->state == SLOT_OPEN)
    return !g->refused && gives(r, g->member, r->low) && g->next <= r->low;
  return s->state == SLOT_READY && g->sent <= r->low;
}

/* For how long a contributor may hold the others up. Until it has given twice its own pace is not known; what is on its way to it
 * says nothing of that. */
static int is_giving(const contributor *g) {
  hv_reducer *r = g->reducer;
  return g->state == CONTRIBUTOR_HERE && g->next > 1 && r->low < r->count && slot_of(r, r->low)->state == SLOT_OPEN;
}

static uint64_t patience_for(const contributor *g) {
  uint64_t limit = stall_us(g->reducer);
  return g->state == CONTRIBUTOR_LOST ? limit / 8 : is_giving(g) ? hv_pace_patience_us(g->reducer->pace, limit) : limit;
}

/* True if it has held the others up for too long. A member with signs of life elsewhere has all of stall_ms. */
static int is_late(const contributor *g, uint64_t now_us) {
  const hv_reducer *r = g->reducer;
  uint64_t since = is_giving(g) ? hv_pace_sign_us(r->pace, g->member, g->moved_us) : g->moved_us;
  return now_us - g->moved_us >= stall_us(r) || (now_us >= since && now_us - since >= patience_for(g));
}

/* Members that were just left out for their silence count, too: they may have stopped together with others. */
int hv_reducer_quiet(const hv_reducer *r, size_t member) {
  const contributor *g = &r->contributors[member];
  uint64_t now_us = r->env->now_us(r->env), since = hv_pace_sign_us(r->pace, member, g->moved_us);
  int waited_for = r->status == HV_OK && is_giving(g) && holds_up(g);
  return (waited_for || g->late) && now_us >= since && now_us - since >= hv_pace_patience_us(r->pace, stall_us(r)) / 8 * 3;
}

/* If this timer is late it was this node that stood still. */
void reducer_look_for_stalls(hv_timer *timer, const hv_event *event) {
  hv_reducer *r = timer->owner;
  uint64_t every = hv_pace_tick_us(stall_us(r)), since = event->now_us - r->looked_us;
  int anybody = 0;
  r->looked_us = event->now_us;
  for (size_t i = 0; i < r->round->n_members && r->status == HV_OK; i++) {
    contributor *g = &r->contributors[i];
    uint64_t late = since > 2 * every ? since : 0;
    if (!holds_up(g) || g->moved_us + late > event->now_us)
      g->moved_us = event->now_us > g->moved_us ? event->now_us : g->moved_us;
    else
      g->moved_us += late;
    say_here(g, event->now_us);
    if (is_late(g, event->now_us) && holds_up(g)) {
      g->late = g->state != CONTRIBUTOR_LOST;
      leave_out(g, g->state == CONTRIBUTOR_LOST ? HV_CLOSED : HV_TIMEOUT,
                g->state == CONTRIBUTOR_LOST ? "it ended its stream early"
                : g->stream                  ? "it is silent"
                                             : "it did not connect");
      anybody = 1;
    }
  }
  r->env->timer_set(r->env, &r->stall, every);
  if (!anybody)
    return;
  go_on_all(r);
  advance(r);
}

/* ---- life ---- */

void hv_reducer_start(hv_reducer *r) {
  r->looked_us = r->env->now_us(r->env);
  for (size_t i = 0; i < r->round->n_members; i++)
    r->contributors[i].moved_us = r->looked_us;
  for (uint32_t i = 0; i < r->count && i < WINDOW && r->status == HV_OK; i++) {
    hv_status status = open_slot(r, i);
    if (status != HV_OK)
      reducer_fail(r, status);
  }
  go_on_all(r);
  if (r->count)
    r->env->timer_set(r->env, &r->stall, hv_pace_tick_us(stall_us(r)));
  advance(r);
}

void hv_reducer_cancel(hv_reducer *r) {
  r->env->timer_clear(r->env, &r->stall);
  reducer_fail(r, HV_CANCELLED);
}

int hv_reducer_done(const hv_reducer *r) {
  return r->jobs == 0 && (r->status != HV_OK || r->settled == r->count);
}

int hv_reducer_over(const hv_reducer *r) {
  return hv_reducer_done(r) && r->streams == 0 && (r->status != HV_OK || r->low == r->count);
}
