#include "core/state/step_log.h"

#include "core/msg.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 1, HEAD = 1 + 8 + HV_BALLOT_LINEAGE + 1, SUFFIX_MAX = 16 };

/* An entry on offer. */
typedef struct kept {
  struct kept *next;
  hv_step_log *log;
  uint64_t epoch;
  hv_payload *chunks;
  hv_state_offer offer;
} kept;

/* An entry that came. */
typedef struct fetched {
  hv_payload payload; /* its owner is this struct */
  hv_payload *source; /* a reference, of an average from a round; NULL: the chunks are in the image */
  hv_step_log_facts facts;
  hv_hash refused[HV_STATE_REFUSED_MAX]; /* manifests of its epoch that were refused, */
  size_t n_refused;
  hv_hash digest; /* and its own */
  uint64_t image_size;
  uint8_t *image;
  hv_span spans[]; /* the chunks */
} fetched;

struct hv_step_log {
  hv_env *env;
  hv_state *state;
  uint64_t memory;
  void (*changed)(void *arg);
  void *arg;

  kept *oldest, **newest; /* newest: where the next one goes */
  size_t n_kept;
  uint64_t kept_bytes;
  uint64_t added_us; /* when the latest average was added, kept or not; 0: none was */

  uint64_t first, until, made, ahead;
  fetched *there[HV_STEP_LOG_ENTRIES]; /* of `first` and the epochs after it */
  size_t n_there;
  uint64_t there_bytes;
  fetched *heard[HV_STEP_LOG_HEARD]; /* from rounds, of epochs after these */
  size_t n_heard;
  /* the entry after these */
  int lost, is_full;   /* is_full: it waits until others are dropped */
  uint64_t looking_us; /* when it was looked for first, having been made */
  hv_hash refused[HV_STATE_REFUSED_MAX];
  size_t n_refused;
  hv_state_load load;
  int is_loading, is_given_up; /* is_given_up: whatever comes of the load is not wanted any more */
  uint64_t load_epoch, come, moved_us;
  uint8_t *image;
  uint64_t image_size;
  hv_timer look, tell, mend;

  int is_stopping;
  void (*over)(void *arg);
  void *over_arg;
  size_t key_size;
  uint8_t key[HV_STATE_PREFIX_MAX];      /* of the run's states */
  uint8_t load_key[HV_STATE_PREFIX_MAX]; /* of the load under way */
};

/* ---- bytes ---- */

size_t hv_step_log_facts_write(const hv_step_log_facts *facts, uint8_t out[HV_STEP_LOG_FACTS_MAX]) {
  out[0] = VERSION;
  hv_le_put(out + 1, facts->epoch, 8);
  memcpy(out + 9, facts->before, HV_BALLOT_LINEAGE);
  out[HEAD - 1] = (uint8_t)facts->n_stamps;
  for (size_t i = 0; i < facts->n_stamps; i++)
    hv_le_put(out + HEAD + 8 * i, facts->stamps[i], 8);
  return HEAD + 8 * facts->n_stamps;
}

hv_status hv_step_log_facts_read(hv_span bytes, hv_step_log_facts *out) {
  const uint8_t *at = bytes.data;
  if (bytes.size < 1)
    return HV_MALFORMED;
  if (at[0] != VERSION)
    return HV_VERSION;
  if (bytes.size < HEAD || at[HEAD - 1] < 1 || at[HEAD - 1] > HV_STEP_LOG_STAMPS || bytes.size != HEAD + 8u * at[HEAD - 1])
    return HV_MALFORMED;
  *out = (hv_step_log_facts){.epoch = hv_le_get(at + 1, 8), .n_stamps = at[HEAD - 1]};
  memcpy(out->before, at + 9, HV_BALLOT_LINEAGE);
  for (size_t i = 0; i < out->n_stamps; i++)
    out->stamps[i] = hv_le_get(at + HEAD + 8 * i, 8);
  return HV_OK;
}

static uint64_t log_now(const hv_step_log *log) {
  return log->env->now_us(log->env);
}

/* ---- to keep ---- */

/* The prefix of an epoch's entry; *room has HV_STATE_PREFIX_MAX bytes. */
static hv_span key_of(const hv_step_log *log, uint64_t epoch, uint8_t *room) {
  char suffix[SUFFIX_MAX];
  int n = snprintf(suffix, sizeof suffix, ".log.%u", (unsigned)(epoch % HV_STEP_LOG_PLACES));
  memcpy(room, log->key, log->key_size);
  memcpy(room + log->key_size, suffix, (size_t)n);
  return hv_span_of(room, log->key_size + (size_t)n);
}

static void drop_oldest(hv_step_log *log) {
  kept *k = log->oldest;
  uint8_t key[HV_STATE_PREFIX_MAX];
  if (!(log->oldest = k->next))
    log->newest = &log->oldest;
  log->n_kept--;
  log->kept_bytes -= k->chunks->size;
  hv_state_withdraw(log->state, key_of(log, k->epoch, key), 0);
  hv_payload_release(k->chunks);
  hv_mem_free(k);
}

void hv_step_log_end(hv_step_log *log) {
  while (log->oldest)
    drop_oldest(log);
}

static void mend(hv_timer *timer, const hv_event *event) {
  (void)event;
  hv_step_log_end(timer->owner);
}

/* The entries after one that cannot be offered follow a gap. */
static void offered(hv_state_offer *offer, hv_status status, const char *text) {
  kept *k = offer->owner;
  hv_step_log *log = k->log;
  if (status == HV_OK || status == HV_CANCELLED || status == HV_CLOSED || log->is_stopping)
    return;
  hv_env_log(log->env, HV_LOG_WARN, "log", "log_not_offered", "dropping the kept averages up to swarm epoch %llu: %s",
             (unsigned long long)k->epoch, text);
  log->env->timer_set(log->env, &log->mend, 0);
}

static hv_status offer(hv_step_log *log, kept *k, const hv_step_log_facts *facts) {
  uint8_t key[HV_STATE_PREFIX_MAX], metadata[HV_STEP_LOG_FACTS_MAX];
  /* No lineage: then only equal bytes are votes for one entry. */
  k->offer = (hv_state_offer){.done = offered,
                              .owner = k,
                              .prefix = key_of(log, facts->epoch, key),
                              .epoch = facts->epoch,
                              .bytes = k->chunks,
                              .metadata = hv_span_of(metadata, hv_step_log_facts_write(facts, metadata)),
                              .declare_ms = HV_STEP_LOG_DECLARE_MS};
  return hv_state_offer_start(log->state, &k->offer, NULL);
}

static uint64_t latest_kept(const hv_step_log *log) {
  return HV_HOLDER(kept, next, log->newest)->epoch;
}

hv_status hv_step_log_add(hv_step_log *log, const hv_step_log_facts *facts, hv_payload *chunks) {
  uint64_t before_us = log->added_us, now_us = log_now(log);
  log->added_us = now_us;
  hv_status status = log->is_stopping                                                        ? HV_CLOSED
                     : !chunks                                                               ? HV_NOT_FOUND
                     : before_us && now_us < before_us + HV_STEP_LOG_SHORT_US                ? HV_STATE
                     : facts->n_stamps < 1 || facts->n_stamps > HV_STEP_LOG_STAMPS           ? HV_INVALID
                     : chunks->n_parts == 0                                                  ? HV_INVALID
                     : chunks->size > log->memory || chunks->n_parts > HV_MANIFEST_PARTS_MAX ? HV_TOO_LARGE
                                                                                             : HV_OK;
  if (status != HV_OK || (log->oldest && facts->epoch != latest_kept(log) + 1))
    hv_step_log_end(log);
  if (status != HV_OK)
    return status;
  while (log->oldest && (log->n_kept == HV_STEP_LOG_ENTRIES || chunks->size > log->memory - log->kept_bytes))
    drop_oldest(log);
  kept *k = hv_mem_zalloc(log->env->mem, sizeof *k);
  if (!k) {
    hv_step_log_end(log);
    return HV_NOMEM;
  }
  k->log = log;
  k->epoch = facts->epoch;
  k->chunks = hv_payload_keep(chunks);
  status = offer(log, k, facts);
  if (status != HV_OK) {
    hv_payload_release(k->chunks);
    hv_mem_free(k);
    hv_step_log_end(log);
    return status;
  }
  *log->newest = k;
  log->newest = &k->next;
  log->n_kept++;
  log->kept_bytes += chunks->size;
  return HV_OK;
}

size_t hv_step_log_offered(const hv_step_log *log, uint64_t *first, uint64_t *bytes) {
  if (first)
    *first = log->oldest ? log->oldest->epoch : 0;
  if (bytes)
    *bytes = log->kept_bytes;
  return log->n_kept;
}

/* ---- to repeat ---- */

static void tell(hv_timer *timer, const hv_event *event) {
  hv_step_log *log = timer->owner;
  (void)event;
  if (log->changed && !log->is_stopping)
    log->changed(log->arg);
}

static void tell_soon(hv_step_log *log) {
  log->env->timer_set(log->env, &log->tell, 0);
}

static void fetched_over(hv_payload *payload) {
  fetched *f = payload->owner;
  hv_payload_release(f->source);
  hv_mem_free(f->image);
  hv_mem_free(f);
}

static uint64_t coming(const hv_step_log *log) {
  return log->first + log->n_there;
}

static void give_up_load(hv_step_log *log) {
  log->is_given_up = log->is_loading;
  if (log->is_loading)
    hv_state_load_cancel(log->state, &log->load); /* may end it at once */
}

static void is_lost(hv_step_log *log) {
  log->lost = 1;
  give_up_load(log);
  tell_soon(log);
}

static void search(hv_step_log *log);

static void search_in(hv_step_log *log, uint64_t us) {
  log->env->timer_set(log->env, &log->look, us);
}

static void drop_heard(hv_step_log *log, size_t at) {
  hv_payload_release(&log->heard[at]->payload);
  log->heard[at] = log->heard[--log->n_heard];
}

/* Those that are not wanted, now or later. */
static void forget_heard(hv_step_log *log) {
  for (size_t i = log->n_heard; i-- > 0;)
    if (log->until == log->first || log->heard[i]->facts.epoch < coming(log))
      drop_heard(log, i);
}

/* 1: the next entry is one from a round. */
static int takes_heard(hv_step_log *log) {
  for (size_t i = 0; i < log->n_heard; i++) {
    fetched *f = log->heard[i];
    if (f->facts.epoch != coming(log) || coming(log) >= log->until || log->n_there == HV_STEP_LOG_ENTRIES)
      continue;
    log->heard[i] = log->heard[--log->n_heard];
    log->there[log->n_there++] = f;
    log->there_bytes += f->image_size;
    tell_soon(log);
    return 1;
  }
  return 0;
}

/* The entry after those that are there is another one than before. */
static void begin_next(hv_step_log *log) {
  while (takes_heard(log)) {
  }
  log->lost = log->is_full = 0;
  log->looking_us = 0;
  log->n_refused = 0;
  if (log->is_loading && log->load_epoch != coming(log))
    give_up_load(log);
  search_in(log, 0);
}

static uint8_t *make_room(hv_state_load *load, const hv_manifest *manifest) {
  hv_step_log *log = load->owner;
  hv_mem_free(log->image);
  log->image_size = manifest->image;
  log->image = hv_mem_aligned(log->env->mem, (size_t)manifest->image + 1);
  return log->image;
}

/* An entry of what was loaded; NULL: it is none, or no memory. */
static fetched *read_entry(hv_step_log *log, hv_status *status) {
  const hv_manifest *m = log->load.manifest;
  hv_step_log_facts facts;
  *status = HV_MALFORMED;
  if (m->n_parts == 0 || hv_step_log_facts_read(m->metadata, &facts) != HV_OK || facts.epoch != log->load_epoch)
    return NULL;
  for (size_t i = 0; i < m->n_parts; i++)
    if (m->parts[i].codec != HV_CODEC_NONE || m->parts[i].own)
      return NULL;
  *status = HV_NOMEM;
  fetched *f = hv_mem_zalloc(log->env->mem, sizeof *f + m->n_parts * sizeof *f->spans);
  if (!f)
    return NULL;
  for (size_t i = 0; i < m->n_parts; i++)
    f->spans[i] = hv_span_of(log->image + m->parts[i].place, (size_t)m->parts[i].size);
  f->facts = facts;
  f->digest = log->load.digest;
  f->n_refused = log->n_refused;
  memcpy(f->refused, log->refused, sizeof f->refused);
  f->image = log->image;
  f->image_size = log->image_size;
  hv_payload_init(&f->payload, f->spans, m->n_parts, fetched_over, f);
  log->image = NULL;
  return f;
}

static void refuse_digest(hv_step_log *log, const hv_hash *digest) {
  if (log->n_refused == HV_STATE_REFUSED_MAX)
    is_lost(log);
  else
    log->refused[log->n_refused++] = *digest;
}

static int is_late(hv_step_log *log) {
  if (coming(log) >= log->made)
    log->looking_us = log_now(log);
  return log_now(log) - log->looking_us >= HV_STEP_LOG_LOOK_US;
}

static void came(hv_step_log *log) {
  hv_status status;
  fetched *f = log->load.epoch == log->load_epoch ? read_entry(log, &status) : NULL;
  if (f) {
    log->there[log->n_there++] = f;
    log->there_bytes += f->image_size;
    tell_soon(log);
    begin_next(log);
  } else if (log->load.epoch != log->load_epoch || status == HV_NOMEM) {
    is_lost(log); /* its key is that of a later entry now, or there is no memory for it */
  } else {
    refuse_digest(log, &log->load.digest);
    search_in(log, 0);
  }
}

/* The caller may free the log within. */
static void end_stop(hv_step_log *log) {
  void (*over)(void *arg) = log->over;
  log->over = NULL;
  if (over)
    over(log->over_arg);
}

static void loaded(hv_state_load *load, hv_status status, const char *text) {
  hv_step_log *log = load->owner;
  (void)text;
  log->is_loading = 0;
  if (log->is_stopping) {
    hv_mem_free(log->image);
    log->image = NULL;
    end_stop(log);
    return;
  }
  if (log->is_given_up)
    search_in(log, 0);
  else if (status == HV_OK)
    came(log);
  else if (status == HV_CANCELLED || status == HV_CLOSED) /* the node ends */
    log->lost = 1;
  else if (status == HV_TOO_LARGE && log->n_there)
    log->is_full = 1;
  else if (status == HV_NOMEM || status == HV_TOO_LARGE || is_late(log))
    is_lost(log);
  else
    search_in(log, HV_STEP_LOG_AGAIN_US);
  hv_mem_free(log->image);
  log->image = NULL;
}

static void start_load(hv_step_log *log) {
  uint64_t now = log_now(log);
  log->looking_us = log->looking_us ? log->looking_us : now;
  log->load_epoch = coming(log);
  log->load = (hv_state_load){.done = loaded,
                              .room = make_room,
                              .owner = log,
                              .prefix = key_of(log, log->load_epoch, log->load_key),
                              .timeout_ms = UINT32_MAX / 1000, /* STALL ends it before */
                              .size_max = log->ahead - log->there_bytes,
                              .n_refused = log->n_refused,
                              .epoch_least = log->load_epoch};
  memcpy(log->load.refused, log->refused, sizeof log->refused);
  log->is_given_up = 0;
  log->come = 0;
  log->moved_us = now;
  if (hv_state_load_start(log->state, &log->load, NULL) == HV_OK)
    log->is_loading = 1;
  else
    is_lost(log);
}

/* A download that finds nothing in time, or stands still, is given up. */
static void look_after_load(hv_step_log *log) {
  uint64_t come, all, now = log_now(log);
  hv_state_load_progress(&log->load, &come, &all);
  if (come != log->come)
    log->moved_us = now;
  log->come = come;
  if (all ? now - log->moved_us >= HV_STEP_LOG_STALL_US : is_late(log))
    is_lost(log);
  else
    search_in(log, HV_STEP_LOG_AGAIN_US);
}

/* True if the next entry, which is likely as large as the last one, may come. */
static int has_room(const hv_step_log *log) {
  uint64_t like = log->n_there ? log->there[log->n_there - 1]->image_size : 1;
  return log->n_there < HV_STEP_LOG_ENTRIES && !log->is_full && log->there_bytes + like <= log->ahead;
}

static void search(hv_step_log *log) {
  if (log->is_stopping || log->lost || coming(log) >= log->until)
    return;
  if (log->is_loading && !log->is_given_up)
    look_after_load(log);
  else if (!log->is_loading && has_room(log))
    start_load(log);
  else if (!log->is_loading && !log->n_there)
    is_lost(log); /* nothing fits into so few bytes */
}

static void look_now(hv_timer *timer, const hv_event *event) {
  (void)event;
  search(timer->owner);
}

static void drop_there(hv_step_log *log, size_t from, size_t n) {
  for (size_t i = from; i < from + n; i++) {
    log->there_bytes -= log->there[i]->image_size;
    hv_payload_release(&log->there[i]->payload);
  }
  log->n_there -= n;
  memmove(&log->there[from], &log->there[from + n], (log->n_there - from) * sizeof log->there[0]);
}

void hv_step_log_want(hv_step_log *log, uint64_t first, uint64_t until, uint64_t made, uint64_t ahead) {
  uint64_t before = coming(log), skipped = first - log->first;
  int was_wanted = log->until > log->first;
  log->ahead = ahead;
  log->made = made;
  if (first >= until || first < log->first || skipped > log->n_there)
    drop_there(log, 0, log->n_there);
  else
    drop_there(log, 0, (size_t)skipped);
  if (skipped)
    log->is_full = 0;
  log->first = first;
  log->until = until > first ? until : first;
  if (log->until - log->first < log->n_there)
    drop_there(log, (size_t)(log->until - log->first), log->n_there - (size_t)(log->until - log->first));
  if (coming(log) != before || !was_wanted || log->until == log->first || takes_heard(log))
    begin_next(log);
  forget_heard(log);
  if (coming(log) >= log->until)
    give_up_load(log);
  search_in(log, 0);
}

hv_status hv_step_log_hear(hv_step_log *log, const hv_step_log_facts *facts, hv_payload *chunks) {
  if (log->is_stopping || log->until == log->first || facts->epoch < coming(log))
    return HV_STATE;
  if (facts->n_stamps < 1 || facts->n_stamps > HV_STEP_LOG_STAMPS || log->n_heard == HV_STEP_LOG_HEARD)
    return HV_TOO_LARGE;
  fetched *f = hv_mem_zalloc(log->env->mem, sizeof *f + chunks->n_parts * sizeof *f->spans);
  if (!f)
    return HV_NOMEM;
  memcpy(f->spans, chunks->parts, chunks->n_parts * sizeof *f->spans);
  f->facts = *facts;
  f->image_size = chunks->size;
  f->source = hv_payload_keep(chunks);
  hv_payload_init(&f->payload, f->spans, chunks->n_parts, fetched_over, f);
  log->heard[log->n_heard++] = f;
  if (takes_heard(log))
    begin_next(log);
  return HV_OK;
}

hv_step_log_standing hv_step_log_look(const hv_step_log *log, uint64_t epoch, hv_step_log_facts *facts, hv_payload **chunks) {
  if (epoch < log->first || epoch >= log->until)
    return HV_STEP_LOG_NOT_WANTED;
  if (epoch - log->first >= log->n_there)
    return log->lost ? HV_STEP_LOG_LOST : HV_STEP_LOG_COMES;
  fetched *f = log->there[epoch - log->first];
  if (facts)
    *facts = f->facts;
  if (chunks)
    *chunks = &f->payload;
  return HV_STEP_LOG_THERE;
}

void hv_step_log_refuse(hv_step_log *log, uint64_t epoch) {
  if (hv_step_log_look(log, epoch, NULL, NULL) != HV_STEP_LOG_THERE)
    return;
  size_t at = (size_t)(epoch - log->first);
  fetched *f = log->there[at];
  hv_payload_keep(&f->payload);
  drop_there(log, at, log->n_there - at); /* those after it follow it */
  begin_next(log);
  memcpy(log->refused, f->refused, sizeof log->refused);
  log->n_refused = f->n_refused;
  refuse_digest(log, &f->digest);
  hv_payload_release(&f->payload);
}

void hv_step_log_progress(const hv_step_log *log, uint64_t *come, uint64_t *all) {
  *come = *all = 0;
  if (log->is_loading && !log->is_given_up)
    hv_state_load_progress(&log->load, come, all);
}

/* ---- life ---- */

hv_status hv_step_log_new(hv_env *env, hv_state *state, const hv_step_log_config *config, hv_step_log **out, hv_error *err) {
  if (config->key.size == 0 || config->key.size > HV_STATE_PREFIX_MAX - SUFFIX_MAX)
    return hv_fail(err, HV_INVALID, "cannot keep a log: the key of the run's states must have 1 to %d bytes, not %zu",
                   HV_STATE_PREFIX_MAX - SUFFIX_MAX, config->key.size);
  hv_step_log *log = hv_mem_zalloc(env->mem, sizeof *log);
  if (!log)
    return hv_fail(err, HV_NOMEM, "cannot keep a log: no memory; raise the memory limit");
  log->env = env;
  log->state = state;
  log->memory = config->memory;
  log->changed = config->changed;
  log->arg = config->arg;
  log->newest = &log->oldest;
  log->key_size = config->key.size;
  memcpy(log->key, config->key.data, config->key.size);
  log->look = (hv_timer){.fire = look_now, .owner = log};
  log->tell = (hv_timer){.fire = tell, .owner = log};
  log->mend = (hv_timer){.fire = mend, .owner = log};
  *out = log;
  return HV_OK;
}

void hv_step_log_stop(hv_step_log *log, void (*over)(void *arg), void *arg) {
  log->is_stopping = 1;
  log->over = over;
  log->over_arg = arg;
  log->env->timer_clear(log->env, &log->look);
  log->env->timer_clear(log->env, &log->tell);
  log->env->timer_clear(log->env, &log->mend);
  hv_step_log_end(log);
  drop_there(log, 0, log->n_there);
  while (log->n_heard)
    drop_heard(log, 0);
  if (log->is_loading)
    hv_state_load_cancel(log->state, &log->load);
  else
    end_stop(log);
}

void hv_step_log_free(hv_step_log *log) {
  if (!log)
    return;
  for (kept *k; (k = log->oldest);) {
    log->oldest = k->next;
    hv_payload_release(k->chunks);
    hv_mem_free(k);
  }
  drop_there(log, 0, log->n_there);
  while (log->n_heard)
    drop_heard(log, 0);
  hv_mem_free(log->image);
  hv_mem_free(log);
}
