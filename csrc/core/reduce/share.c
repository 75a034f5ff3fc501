#include "core/reduce/share.h"

#include <string.h>

enum { LANES = 2 };

_Static_assert(HV_CODEC_HEADER + 4 * HV_RUN_CHUNK_MAX <= HV_BULK_PAYLOAD_MAX, "a chunk as it is goes in one message");

/* One average being decoded. */
typedef struct lane {
  hv_share *share;
  hv_payload *payload; /* NULL: free */
  uint32_t chunk;
  hv_members from;
  uint32_t made;
  int forwarded, narrow;
  uint8_t *copy; /* of its bytes, for `kept`; NULL: none is kept */
  hv_status status;
  hv_job job;
} lane;

/* An average that waits for a lane. */
typedef struct waiting {
  struct waiting *next;
  uint32_t item;
  hv_members from;
  uint32_t made; /* in which view */
  hv_payload *payload;
} waiting;

struct hv_share {
  hv_env *env;
  const hv_round *round;
  const hv_view *view;
  hv_hold *hold;
  hv_kept *kept;
  hv_pace *pace;
  size_t owner;
  void (*changed)(void *arg);
  void *arg;
  uint32_t end;           /* items of the view: the row ends here */
  uint32_t sending, next; /* the item that is sent next; the item whose average comes next */
  uint32_t lacking;       /* averages that are not settled */
  uint8_t *lacks;         /* a bit for each item of the row, */
  uint8_t *left_out;      /* and of those of which it gives no values: they are not finite, or it listens */
  hv_stream *stream;
  uint8_t *codes; /* being encoded */
  size_t codes_size;
  hv_payload *ready; /* encoded, not taken by the stream yet */
  hv_status encode_status;
  hv_job job;
  lane lanes[LANES];
  waiting *first_waiting, **last_waiting;
  size_t jobs;
  hv_status status;
  int lied;                    /* the status is that because what it said was false, */
  int narrow;                  /* an average came under its narrow codec */
  int stopped;                 /* or because it broke off after it had said that it is there */
  int encoding, all_sent;      /* a job is; nothing more is sent */
  int nothing;                 /* of the chunk that is sent next it gives no values */
  int heard;                   /* the owner has said something */
  uint64_t rate;               /* at which it saw this member's first chunks come, as it says; 0: not known */
  uint64_t moved_us, heard_us; /* when something of it last went on; when the owner last said anything */
  uint64_t looked_us;          /* when it was last looked at */
  hv_timer patience;
};

/* ---- small things ---- */

static uint32_t first_of(const hv_share *s) {
  return s->view->first[s->owner];
}

static int lacks(const hv_share *s, uint32_t item) {
  uint32_t at = item - first_of(s);
  return s->lacks[at / 8] >> at % 8 & 1;
}

static hv_run_chunk chunk_of(const hv_share *s, uint32_t item) {
  return hv_run_chunk_of(s->round->in, s->view->chunks[item]);
}

static size_t share_bytes_of(const hv_share *s, uint32_t item) {
  hv_run_chunk chunk = chunk_of(s, item);
  return s->view->sources[item] == HV_VIEW_REDUCE ? chunk.bytes
                                                  : (size_t)hv_codec_bound(HV_CODEC_NONE, HV_DTYPE_FLOAT32, chunk.size);
}

/* Of an average: forwarded, or under one of the chunk's two codecs. */
static int is_size(const hv_share *s, uint32_t item, size_t size) {
  return size == share_bytes_of(s, item) || (s->view->sources[item] == HV_VIEW_REDUCE && size == chunk_of(s, item).narrow_bytes);
}

static void drop_waiting(hv_share *s) {
  for (waiting *w; (w = s->first_waiting); hv_mem_free(w)) {
    s->first_waiting = w->next;
    hv_payload_release(w->payload);
  }
  s->last_waiting = &s->first_waiting;
}

static void share_fail(hv_share *s, hv_status status) {
  if (s->status == HV_OK)
    s->status = status;
  drop_waiting(s);
  if (s->stream)
    s->env->stream_cancel(s->env, s->stream);
  s->changed(s->arg);
}

/* The owner's words are none; unless it is this member that has no memory for them, or a device of its own that fails. */
static void share_refuse(hv_share *s, hv_status status) {
  s->lied |= s->status == HV_OK && status != HV_NOMEM && status != HV_IO;
  share_fail(s, status);
}

/* ---- out: this member's values, or averages that it has ---- */

static void send_on(hv_share *s);
static void decode_some(hv_share *s);

static void free_codes(void *codes) {
  hv_mem_free(codes);
}

/* Of the chunk that is sent next it gives no values. */
static void gives_nothing(hv_share *s) {
  uint32_t at = s->sending - first_of(s);
  s->nothing = 1;
  s->left_out[at / 8] |= (uint8_t)(1u << at % 8);
}

/* Gives what is encoded to the stream; 0 when it takes nothing now. */
static int hand_over(hv_share *s) {
  uint32_t chunk = s->view->chunks[s->sending];
  hv_msg header = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = chunk}};
  if (s->view->sources[s->sending] != HV_VIEW_REDUCE) {
    header.u.chunk.from = hv_span_of(&s->hold->from[chunk], sizeof *s->hold->from);
    header.u.chunk.view = s->hold->made[chunk];
  }
  hv_status status = s->env->stream_send(s->env, s->stream, &header, s->ready);
  if (status == HV_BUSY)
    return 0;
  hv_payload_release(s->ready);
  s->ready = NULL;
  s->nothing = 0;
  s->moved_us = s->env->now_us(s->env);
  if (status == HV_OK)
    s->sending++;
  else
    share_fail(s, status);
  return 1;
}

static void run_encode(hv_job *job) {
  hv_share *s = job->owner;
  uint32_t chunk = s->view->chunks[s->sending];
  int forwarded = s->view->sources[s->sending] != HV_VIEW_REDUCE;
  hv_run_chunk as = hv_run_chunk_as(s->round->in, chunk, s->round->narrow);
  s->encode_status = hv_run_encode(forwarded ? s->round->out : s->round->in, s->round->kern, chunk,
                                   forwarded ? HV_CODEC_NONE : as.codec, s->codes, s->codes_size, &s->codes_size);
}

/* The encoded average is ready to go, if there is still somebody to whom. */
static void encoded(hv_share *s, hv_status status) {
  if (status == HV_NOT_FINITE && s->view->sources[s->sending] == HV_VIEW_REDUCE) {
    hv_env_log(s->env, HV_LOG_WARN, "share", "not_finite", "skipping this member's values of chunk %u: they are not finite",
               s->view->chunks[s->sending]);
    gives_nothing(s);
    hv_mem_free(s->codes);
    s->codes = NULL;
    return;
  }
  if (s->status == HV_OK && s->stream && status == HV_OK) {
    s->ready = hv_payload_borrow(s->env->mem, s->codes, s->codes_size, free_codes, s->codes);
    if (s->ready)
      s->codes = NULL;
    else
      status = HV_NOMEM;
  }
  hv_mem_free(s->codes);
  s->codes = NULL;
  if (s->status == HV_OK && s->stream && status != HV_OK)
    share_fail(s, status);
}

static void encode_done(hv_job *job, const hv_event *event) {
  hv_share *s = job->owner;
  s->jobs--;
  s->encoding = 0;
  encoded(s, event->status != HV_OK ? event->status : s->encode_status);
  send_on(s);
  decode_some(s);
  s->changed(s->arg);
}

static void encode_next(hv_share *s) {
  int forwarded = s->view->sources[s->sending] != HV_VIEW_REDUCE;
  if (s->round->listens && !forwarded) {
    gives_nothing(s);
    return;
  }
  s->codes_size = share_bytes_of(s, s->sending);
  s->codes = hv_mem_aligned(s->env->mem, s->codes_size);
  if (!s->codes) {
    share_fail(s, HV_NOMEM);
    return;
  }
  s->job = (hv_job){.run = run_encode, .done = encode_done, .owner = s};
  if (forwarded) {
    run_encode(&s->job);
    encoded(s, s->encode_status);
    return;
  }
  s->jobs++;
  s->encoding = 1;
  s->env->work(s->env, &s->job);
}

static void send_on(hv_share *s) {
  while (s->status == HV_OK && s->stream && !s->encoding && !s->all_sent) {
    if (s->ready || s->nothing) {
      if (!hand_over(s))
        return;
      continue;
    }
    while (s->sending < s->end && !hv_view_gives(s->view, s->round, s->round->me, s->sending))
      s->sending++;
    if (s->sending < s->end) {
      encode_next(s);
      continue;
    }
    s->all_sent = 1;
    s->env->stream_end(s->env, s->stream);
  }
}

/* ---- in: averages ---- */

static void run_decode(hv_job *job) {
  lane *l = job->owner;
  const hv_round *round = l->share->round;
  l->status = l->forwarded ? HV_OK : hv_run_width(round->in, l->chunk, l->payload->parts, l->payload->n_parts, &l->narrow);
  if (l->status == HV_OK)
    l->status = hv_round_take(round, l->chunk, l->payload->parts, l->payload->n_parts);
  if (l->status == HV_OK && l->copy)
    hv_payload_read(l->payload, 0, l->copy, l->payload->size);
}

/* Takes the lane's copy. Without memory there is no average to keep. */
static void keep(lane *l) {
  hv_share *s = l->share;
  hv_payload *copy = hv_payload_borrow(s->env->mem, l->copy, l->payload->size, free_codes, l->copy);
  if (!copy)
    return;
  l->copy = NULL;
  hv_kept_put(s->kept, l->chunk, copy);
  hv_payload_release(copy);
}

static void decode_done(hv_job *job, const hv_event *event) {
  lane *l = job->owner;
  hv_share *s = l->share;
  s->jobs--;
  if (event->status == HV_OK && l->status == HV_OK && l->copy)
    keep(l);
  hv_mem_free(l->copy);
  l->copy = NULL;
  hv_payload_release(l->payload);
  l->payload = NULL;
  if (event->status != HV_OK || l->status != HV_OK) {
    if (event->status != HV_OK)
      share_fail(s, event->status);
    else
      share_refuse(s, l->status);
    return;
  }
  hv_hold_put(s->hold, l->chunk, &l->from, l->made);
  s->narrow |= l->narrow;
  s->lacking--;
  decode_some(s);
  s->changed(s->arg);
}

static void decode_some(hv_share *s) {
  for (int i = 0; i < LANES && s->first_waiting && s->status == HV_OK; i++) {
    lane *l = &s->lanes[i];
    waiting *w = s->first_waiting;
    if (w->item >= s->sending)
      return; /* what is still to be sent of it is not overwritten */
    if (l->payload)
      continue;
    if (!(s->first_waiting = w->next))
      s->last_waiting = &s->first_waiting;
    *l = (lane){.share = s, .payload = w->payload, .chunk = s->view->chunks[w->item], .from = w->from, .made = w->made};
    l->forwarded = s->view->sources[w->item] != HV_VIEW_REDUCE;
    if (!l->forwarded && hv_kept_is_open(s->kept))
      l->copy = hv_mem_aligned(s->env->mem, w->payload->size);
    hv_mem_free(w);
    s->jobs++;
    l->job = (hv_job){.run = run_decode, .done = decode_done, .owner = l};
    s->env->work(s->env, &l->job);
  }
}

/* ---- the stream ---- */

/* The item whose average comes next; the end when none does. */
static uint32_t next_lacked(const hv_share *s) {
  uint32_t item = s->next;
  while (item < s->end && !lacks(s, item))
    item++;
  return item;
}

/* There is no average of this one, it says: nobody's values counted. Where this member gave its own that is one owner's word
 * against another's: it is true when the next one says so, too. */
static hv_status take_none(hv_share *s, uint32_t item) {
  uint32_t at = item - first_of(s);
  uint16_t *denied = &s->hold->denied[s->view->chunks[item]];
  if (s->view->sources[item] != HV_VIEW_REDUCE)
    return HV_MALFORMED;
  if (!(s->left_out[at / 8] >> at % 8 & 1) && (!*denied || *denied == s->owner + 1)) {
    *denied = (uint16_t)(s->owner + 1);
    return HV_REFUSED;
  }
  s->lacking--;
  return HV_OK;
}

static hv_status take_average(hv_share *s, uint32_t item, const hv_event *event) {
  const hv_msg_chunk *header = &event->msg->u.chunk;
  if (event->msg->kind != HV_MSG_CHUNK || item >= s->end || header->index != s->view->chunks[item])
    return HV_MALFORMED;
  if (!event->payload)
    return take_none(s, item);
  if (!is_size(s, item, event->payload->size) || header->from.size != sizeof(hv_members))
    return HV_MALFORMED;
  waiting *w = hv_mem_zalloc(s->env->mem, sizeof *w);
  if (!w)
    return HV_NOMEM;
  w->item = item;
  memcpy(&w->from, header->from.data, sizeof w->from);
  w->made = s->view->sources[item] == HV_VIEW_REDUCE ? s->view->number : header->view;
  w->payload = hv_payload_keep(event->payload);
  *s->last_waiting = w;
  s->last_waiting = &w->next;
  return HV_OK;
}

static void average_came(hv_stream *stream, const hv_event *event) {
  hv_share *s = stream->owner;
  if (s->status != HV_OK)
    return;
  if (s->heard)
    hv_pace_saw(s->pace, event->now_us - s->heard_us);
  s->heard = 1;
  s->heard_us = event->now_us;
  hv_pace_heard(s->pace, s->owner, event->now_us, event->payload);
  if (event->msg->kind == HV_MSG_NEWS && event->msg->u.news.what == HV_NEWS_HERE) { /* it waits for somebody else */
    s->rate = event->msg->u.news.rate ? event->msg->u.news.rate : s->rate;
    return;
  }
  uint32_t item = next_lacked(s);
  hv_status status = take_average(s, item, event);
  if (status != HV_OK) {
    share_refuse(s, status);
    return;
  }
  s->next = item + 1;
  s->moved_us = event->now_us;
  decode_some(s);
  s->changed(s->arg);
}

static void share_room_again(hv_stream *stream, const hv_event *event) {
  hv_share *s = stream->owner;
  (void)event;
  send_on(s);
  decode_some(s);
  s->changed(s->arg);
}

static void share_stream_over(hv_stream *stream, const hv_event *event) {
  hv_share *s = stream->owner;
  s->stream = NULL;
  hv_payload_release(s->ready);
  s->ready = NULL;
  if (s->status == HV_OK && (next_lacked(s) < s->end || !s->all_sent)) {
    int was_there = s->heard || s->pace->heard_us[s->owner]; /* its own values may have come before any word on this stream */
    s->stopped = was_there && (event->status == HV_CANCELLED || event->status == HV_REFUSED);
    share_fail(s, event->status == HV_OK ? HV_CLOSED : event->status);
  } else {
    s->changed(s->arg);
  }
}

static uint64_t patience_us(const hv_share *s) {
  return (uint64_t)s->round->stall_ms * 2000;
}

/* Time at which the owner will have been silent for too long. While averages wait here, its messages may lie unread: then it is not
 * silent. An owner that has sent everything need not send more. An owner that has never sent HERE may not know of this round, which
 * shows sooner. */
static uint64_t due_us(hv_share *s, uint64_t now_us) {
  uint64_t patience = patience_us(s), silence = hv_pace_patience_us(s->pace, patience), due = s->moved_us + patience;
  if (!s->heard && s->lacking)
    return hv_pace_sign_us(s->pace, s->owner, s->moved_us) + patience / 2;
  if (s->first_waiting)
    s->heard_us = now_us;
  uint64_t sign_us = hv_pace_sign_us(s->pace, s->owner, s->heard_us);
  if (s->lacking && silence < patience && sign_us + silence / 4 * 3 < due)
    due = sign_us + silence / 4 * 3;
  return due;
}

static void look_again(hv_share *s, uint64_t now_us, uint64_t due) {
  uint64_t every = hv_pace_tick_us(patience_us(s));
  s->env->timer_set(s->env, &s->patience, due - now_us < every ? due - now_us : every);
}

/* An owner may wait for somebody else for stall_ms; one that is silent for twice that stands still itself. If this timer is late it
 * was this node that stood still. */
static void look_for_stall(hv_timer *timer, const hv_event *event) {
  hv_share *s = timer->owner;
  uint64_t every = hv_pace_tick_us(patience_us(s)), since = event->now_us - s->looked_us;
  (void)timer;
  if (hv_share_over(s) || s->status != HV_OK)
    return;
  if (since > 2 * every) {
    s->moved_us = s->moved_us + since < event->now_us ? s->moved_us + since : event->now_us;
    s->heard_us = s->heard_us + since < event->now_us ? s->heard_us + since : event->now_us;
  }
  s->looked_us = event->now_us;
  uint64_t due = due_us(s, event->now_us);
  if (event->now_us < due)
    look_again(s, event->now_us, due);
  else if (hv_share_done(s))
    s->env->stream_cancel(s->env, s->stream); /* it has nothing more to say, and does not end */
  else
    share_fail(s, HV_TIMEOUT);
}

/* ---- life ---- */

hv_status hv_share_new(hv_env *env, const hv_round *round, const hv_view *view, hv_hold *hold, hv_kept *kept, hv_pace *pace,
                       size_t owner, void (*changed)(void *arg), void *arg, hv_share **out) {
  hv_share *s = hv_mem_zalloc(env->mem, sizeof *s);
  if (!s)
    return HV_NOMEM;
  *s = (hv_share){.env = env,
                  .round = round,
                  .view = view,
                  .hold = hold,
                  .kept = kept,
                  .pace = pace,
                  .owner = owner,
                  .changed = changed,
                  .arg = arg};
  s->sending = s->next = first_of(s);
  s->end = first_of(s) + view->count[owner];
  s->last_waiting = &s->first_waiting;
  s->patience = (hv_timer){.fire = look_for_stall, .owner = s};
  s->lacks = hv_mem_array(env->mem, hv_hold_bytes(view->count[owner]), 1);
  s->left_out = hv_mem_array(env->mem, hv_hold_bytes(view->count[owner]), 1);
  if (!s->lacks || !s->left_out) {
    hv_mem_free(s->lacks);
    hv_mem_free(s->left_out);
    hv_mem_free(s);
    return HV_NOMEM;
  }
  for (uint32_t i = 0; i < view->count[owner]; i++)
    if (!hv_hold_has(hold, view->chunks[first_of(s) + i])) {
      s->lacks[i / 8] |= (uint8_t)(1u << i % 8);
      s->lacking++;
    }
  *out = s;
  return HV_OK;
}

void hv_share_start(hv_share *s) {
  static const hv_stream_events on = {average_came, share_room_again, share_stream_over, .heavy = 1, .turn = HV_TURN_ROUND};
  if (s->status != HV_OK)
    return;
  s->moved_us = s->looked_us = s->env->now_us(s->env);
  s->env->timer_set(s->env, &s->patience, hv_pace_tick_us(patience_us(s)));
  hv_msg hello = {
      .kind = HV_MSG_SHARE,
      .u.share = {.member = (uint32_t)s->round->me, .weight = s->round->weight, .norm = s->round->norm, .view = s->view->number}};
  memcpy(hello.u.share.round, s->round->id, HV_ROUND_ID_SIZE);
  if (s->lacking < s->view->count[s->owner])
    hello.u.share.lacks = hv_span_of(s->lacks, hv_hold_bytes(s->view->count[s->owner]));
  hv_status status = s->env->stream_open(s->env, &s->round->members[s->owner].at, &hello, &on, s, &s->stream);
  if (status == HV_OK && s->pace->flow.each)
    s->env->stream_pace(s->env, s->stream, s->pace->flow.each);
  if (status != HV_OK)
    share_fail(s, status);
  else
    send_on(s);
  s->changed(s->arg);
}

void hv_share_cancel(hv_share *s) {
  share_fail(s, HV_CANCELLED);
}

void hv_share_gone(hv_share *s) {
  if (s->status == HV_OK && (next_lacked(s) < s->end || !s->all_sent))
    share_fail(s, HV_CLOSED);
}

int hv_share_done(const hv_share *s) {
  return s->jobs == 0 && (s->status != HV_OK || (s->lacking == 0 && s->all_sent));
}

int hv_share_over(const hv_share *s) {
  return hv_share_done(s) && !s->stream;
}

hv_status hv_share_status(const hv_share *s) {
  return s->status;
}

int hv_share_lied(const hv_share *s) {
  return s->lied;
}

int hv_share_narrow(const hv_share *s) {
  return s->narrow;
}

int hv_share_stopped(const hv_share *s) {
  return s->stopped;
}

uint64_t hv_share_rate(const hv_share *s) {
  return s->rate;
}

int hv_share_quiet(const hv_share *s) {
  uint64_t patience = patience_us(s), silence = hv_pace_patience_us(s->pace, patience);
  return s->status == HV_OK && s->heard && s->lacking && !s->first_waiting && silence < patience &&
         s->env->now_us(s->env) - hv_pace_sign_us(s->pace, s->owner, s->heard_us) >= silence / 8 * 3;
}

void hv_share_free(hv_share *s) {
  if (!s)
    return;
  s->env->timer_clear(s->env, &s->patience);
  drop_waiting(s);
  hv_payload_release(s->ready);
  hv_mem_free(s->codes);
  hv_mem_free(s->lacks);
  hv_mem_free(s->left_out);
  for (int i = 0; i < LANES; i++) {
    hv_payload_release(s->lanes[i].payload);
    hv_mem_free(s->lanes[i].copy);
  }
  hv_mem_free(s);
}
