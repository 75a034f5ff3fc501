/* A hive's log of a run (contract in hivemind_c.h): core/state/step_log on the hive thread. */
#include "core/state/step_log.h"
#include "net/hive/hive_inner.h"

#include <string.h>
#include <time.h>

struct hv_hive_step_log {
  hv_hive *hive;
  hv_step_log *log; /* the hive thread's, while it lives */
  hv_hive_op *closing;
  atomic_ullong changes;
};

_Static_assert(HV_HIVE_STEP_LOG_STAMPS == HV_STEP_LOG_STAMPS, "the program's limit is that of the core");
_Static_assert((int)HV_HIVE_STEP_LOG_LOST == (int)HV_STEP_LOG_LOST && (int)HV_HIVE_STEP_LOG_THERE == (int)HV_STEP_LOG_THERE,
               "the program's standings are those of the core");

/* The arguments and results of one call, on the stack of the program, which waits. */
typedef struct request {
  hv_span key;
  uint64_t memory;
  hv_hive_averager *averager;
  hv_step_log_facts facts;
  uint64_t first, until, made, ahead, all;
  hv_step_log_standing standing;
  hv_payload *chunks; /* a reference */
} request;

static request *asked(hv_hive_op *o) {
  return o->u.log.request;
}

static hv_status ask(hv_hive_step_log *log, request *r, void (*start)(hv_hive_op *, hv_node *), hv_error *err) {
  if (hv_hive_usable(log->hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this log: it belongs to another process; use it in the process that made it");
  hv_hive_op *o = hv_hive_new_op(log->hive, start);
  if (o) {
    o->u.log.log = log;
    o->u.log.request = r;
  }
  return hv_hive_ask(o, err);
}

/* ---- life ---- */

static void has_changed(void *arg) {
  atomic_fetch_add_explicit(&((hv_hive_step_log *)arg)->changes, 1, memory_order_relaxed);
}

static void start_open(hv_hive_op *o, hv_node *node) {
  hv_hive_step_log *log = o->u.log.log;
  hv_step_log_config config = {.key = asked(o)->key, .memory = asked(o)->memory, .changed = has_changed, .arg = log};
  hv_error err = {0};
  hv_status status = hv_step_log_new(hv_node_env(node), hv_node_state(node), &config, &log->log, &err);
  hv_hive_end_op(o, status, err.text);
}

hv_status hv_hive_step_log_open(hv_hive *hive, hv_span key, uint64_t memory, hv_hive_step_log **out, hv_error *err) {
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  hv_hive_step_log *log = hv_mem_zalloc(hv_hive_mem(hive), sizeof *log);
  if (!log)
    return hv_fail(err, HV_NOMEM, "cannot keep a log: no memory; raise the memory limit");
  log->hive = hive;
  request r = {.key = key, .memory = memory};
  hv_status status = ask(log, &r, start_open, err);
  if (status == HV_OK)
    *out = log;
  else
    hv_mem_free(log);
  return status;
}

static void is_over(void *arg) {
  hv_hive_step_log *log = arg;
  hv_hive_op *closing = log->closing;
  log->closing = NULL;
  if (closing)
    hv_hive_end_op(closing, HV_OK, "");
}

static void start_close(hv_hive_op *o, hv_node *node) {
  hv_hive_step_log *log = o->u.log.log;
  (void)node;
  log->closing = o;
  hv_step_log_stop(log->log, is_over, log);
}

void hv_hive_step_log_free(hv_hive_step_log *log) {
  hv_status status;
  if (!log || hv_hive_usable(log->hive) != HV_OK)
    return;
  while ((status = ask(log, NULL, start_close, NULL)) == HV_NOMEM) /* there is no way to leave it open: others give memory back */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (status != HV_OK)
    hv_hive_stop(log->hive); /* the node ends, or has ended: nothing runs any more */
  hv_step_log_free(log->log);
  hv_mem_free(log);
}

/* ---- to keep ---- */

static void start_add(hv_hive_op *o, hv_node *node) {
  request *r = asked(o);
  hv_payload *chunks = r->chunks ? hv_payload_keep(r->chunks) : hv_hive_averager_take_kept(r->averager);
  (void)node;
  hv_status status = hv_step_log_add(o->u.log.log->log, &r->facts, chunks);
  hv_payload_release(chunks);
  hv_hive_end_op(o, status,
                 status == HV_NOT_FOUND   ? "cannot keep the average: its round did not keep all of it"
                 : status == HV_STATE     ? "cannot keep the average: another one was made less than 0.1 s before"
                 : status == HV_TOO_LARGE ? "cannot keep the average: it has more bytes than the log's memory; raise log_memory"
                                          : hv_status_text(status));
}

static hv_step_log_facts facts_of(const hv_hive_entry *entry) {
  hv_step_log_facts facts = {.epoch = entry->epoch, .n_stamps = entry->n_stamps};
  memcpy(facts.before, entry->before, sizeof facts.before);
  memcpy(facts.stamps, entry->stamps, sizeof facts.stamps);
  return facts;
}

hv_status hv_hive_step_log_add(hv_hive_step_log *log, hv_hive_averager *averager, const hv_hive_entry *entry, hv_error *err) {
  if (entry->n_stamps < 1 || entry->n_stamps > HV_HIVE_STEP_LOG_STAMPS)
    return hv_fail(err, HV_INVALID, "an average of the log has 1 to %d stamps, not %zu", HV_HIVE_STEP_LOG_STAMPS, entry->n_stamps);
  request r = {.averager = averager, .facts = facts_of(entry)};
  return ask(log, &r, start_add, err);
}

hv_status hv_hive_step_log_add_own(hv_hive_step_log *log, hv_hive_averager *averager, hv_hive_entry *entry, hv_error *err) {
  entry->n_stamps = 1;
  request r = {.averager = averager};
  hv_status status = hv_average_keep(hv_hive_averager_core(averager), &r.chunks, &entry->stamps[0], err);
  if (status != HV_OK)
    return status;
  r.facts = facts_of(entry);
  status = ask(log, &r, start_add, err);
  hv_payload_release(r.chunks);
  return status;
}

static void start_hear(hv_hive_op *o, hv_node *node) {
  request *r = asked(o);
  hv_payload *chunks = hv_hive_averager_take_kept(r->averager);
  (void)node;
  hv_status status = chunks ? hv_step_log_hear(o->u.log.log->log, &r->facts, chunks) : HV_NOT_FOUND;
  hv_payload_release(chunks);
  hv_hive_end_op(o, status,
                 status == HV_NOT_FOUND ? "cannot use the average of others: its round did not keep all of it"
                 : status == HV_STATE   ? "cannot use the average of others: it is not wanted"
                                        : hv_status_text(status));
}

hv_status hv_hive_step_log_hear(hv_hive_step_log *log, hv_hive_averager *averager, const hv_hive_entry *entry, hv_error *err) {
  request r = {.averager = averager, .facts = facts_of(entry)};
  return ask(log, &r, start_hear, err);
}

static void start_end(hv_hive_op *o, hv_node *node) {
  (void)node;
  hv_step_log_end(o->u.log.log->log);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_step_log_end(hv_hive_step_log *log, hv_error *err) {
  return ask(log, NULL, start_end, err);
}

static void start_offered(hv_hive_op *o, hv_node *node) {
  request *r = asked(o);
  (void)node;
  r->all = hv_step_log_offered(o->u.log.log->log, &r->first, &r->memory);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_step_log_offered(hv_hive_step_log *log, size_t *n, uint64_t *first, uint64_t *bytes, hv_error *err) {
  request r = {0};
  hv_status status = ask(log, &r, start_offered, err);
  *n = (size_t)r.all;
  *first = r.first;
  *bytes = r.memory;
  return status;
}

/* ---- to repeat ---- */

static void start_want(hv_hive_op *o, hv_node *node) {
  const request *r = asked(o);
  (void)node;
  hv_step_log_want(o->u.log.log->log, r->first, r->until, r->made, r->ahead);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_step_log_want(hv_hive_step_log *log, uint64_t first, uint64_t until, uint64_t made, uint64_t ahead,
                                hv_error *err) {
  request r = {.first = first, .until = until, .made = made, .ahead = ahead};
  return ask(log, &r, start_want, err);
}

static void start_look(hv_hive_op *o, hv_node *node) {
  request *r = asked(o);
  hv_payload *chunks;
  (void)node;
  r->standing = hv_step_log_look(o->u.log.log->log, r->first, &r->facts, &chunks);
  if (r->standing == HV_STEP_LOG_THERE)
    r->chunks = hv_payload_keep(chunks);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_step_log_look(hv_hive_step_log *log, uint64_t epoch, hv_hive_step_log_standing *standing, hv_hive_entry *entry,
                                hv_error *err) {
  request r = {.first = epoch};
  hv_status status = ask(log, &r, start_look, err);
  *standing = (hv_hive_step_log_standing)r.standing;
  *entry = (hv_hive_entry){.epoch = r.facts.epoch, .n_stamps = r.facts.n_stamps};
  memcpy(entry->before, r.facts.before, sizeof entry->before);
  memcpy(entry->stamps, r.facts.stamps, sizeof entry->stamps);
  hv_payload_release(r.chunks);
  return status;
}

hv_status hv_hive_step_log_repeat(hv_hive_step_log *log, uint64_t epoch, hv_hive_averager *averager, hv_error *err) {
  request r = {.first = epoch};
  hv_status status = ask(log, &r, start_look, err);
  if (status == HV_OK && !r.chunks)
    status = hv_fail(err, HV_NOT_FOUND, "cannot repeat the step of swarm epoch %llu: its average is not there",
                     (unsigned long long)epoch);
  if (status == HV_OK)
    status = hv_average_repeat(hv_hive_averager_core(averager), r.chunks->parts, r.chunks->n_parts, err);
  hv_payload_release(r.chunks);
  return status;
}

static void start_refuse(hv_hive_op *o, hv_node *node) {
  (void)node;
  hv_step_log_refuse(o->u.log.log->log, asked(o)->first);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_step_log_refuse(hv_hive_step_log *log, uint64_t epoch, hv_error *err) {
  request r = {.first = epoch};
  return ask(log, &r, start_refuse, err);
}

static void start_progress(hv_hive_op *o, hv_node *node) {
  request *r = asked(o);
  (void)node;
  hv_step_log_progress(o->u.log.log->log, &r->first, &r->all);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_step_log_progress(hv_hive_step_log *log, uint64_t *come, uint64_t *all, hv_error *err) {
  request r = {0};
  hv_status status = ask(log, &r, start_progress, err);
  *come = r.first;
  *all = r.all;
  return status;
}

uint64_t hv_hive_step_log_changes(hv_hive_step_log *log) {
  return atomic_load_explicit(&log->changes, memory_order_relaxed);
}
