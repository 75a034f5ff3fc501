/* A hub's part in the rounds of a run (contract in hivemind_c.h): the machine of core/epoch on the hive thread, driven by
 * core/epoch/driver.c, as in the simulator. */
#include "core/epoch/driver.h"
#include "net/events_file.h"
#include "net/hive/hive_inner.h"

#include <string.h>
#include <time.h>

enum { ENTRIES = 4 }; /* averages that it keeps for trainers that were absent */

struct hv_hive_follower {
  hv_hive *hive;
  hv_epoch_driver *driver; /* the hive thread's, while it lives */
  hv_hive_op *closing;     /* the hive thread's */
  hv_env *env;
  hv_trace *trace; /* NULL: nothing is recorded */
  atomic_ullong rounds, failures;
  char *run_id, *state_key; /* in the same block */
};

static void has_met(void *arg, const hv_epoch_met *met) {
  hv_hive_follower *f = arg;
  const char *of = met->which == HV_EPOCH_GRADIENTS ? "gradients" : "state";
  unsigned long long number = met->number;
  if (met->status == HV_OK) {
    atomic_fetch_add_explicit(&f->rounds, 1, memory_order_relaxed);
    hv_env_log(f->env, HV_LOG_INFO, "hub", "averaged", "%s: averaged %s %llu for %zu peers", f->run_id, of, number, met->trainers);
  } else if (met->status == HV_CANCELLED || met->status == HV_TIMEOUT || met->status == HV_EXISTS) /* nobody came */
    hv_env_log(f->env, HV_LOG_DEBUG, "hub", "no_round", "%s: round %llu of %s: %s", f->run_id, number, of, met->text);
  else {
    atomic_fetch_add_explicit(&f->failures, 1, memory_order_relaxed);
    hv_env_log(f->env, HV_LOG_WARN, "hub", "round_failed", "%s: round %llu of %s failed: %s", f->run_id, number, of, met->text);
  }
}

static void is_over(void *arg) {
  hv_hive_follower *f = arg;
  hv_hive_op *closing = f->closing;
  f->closing = NULL;
  if (closing)
    hv_hive_end_op(closing, HV_OK, "");
}

static void start_open(hv_hive_op *o, hv_node *node) {
  hv_hive_follower *f = o->u.follow.follower;
  const hv_hive_follower_config *c = o->u.follow.config;
  hv_error err = {0};
  hv_epoch_node parts = {hv_node_env(node), hv_node_progress(node), hv_node_state(node), hv_node_givers(node),
                         hv_node_takers(node)};
  hv_epoch_options theirs = {.use_local_updates = !c->gradients || c->has_anchor,
                             .outer = c->gradients && c->has_anchor,
                             .delay_grad_averaging = c->is_late && c->gradients && !c->has_anchor,
                             .average_state_every = c->average_state_every};
  hv_epoch_driver_config config = {
      .epoch = {.options = hv_epoch_options_of_follower(&theirs),
                .target = c->target_batch_size,
                .matchmaking_us = c->matchmaking_ms * 1000,
                .averaging_us = c->averaging_ms * 1000,
                .company = HV_EPOCH_ALONE_TRAINS,
                .me = *hv_node_id(node)},
      .run_id = hv_span_of(f->run_id, strlen(f->run_id)),
      .state_key = hv_span_of(f->state_key, strlen(f->state_key)),
      .terms = {.target = c->target_batch_size, .drift_peers = -1, .drift_rate = -1},
      .averages = {c->gradients ? hv_hive_averager_core(c->gradients) : NULL, c->state ? hv_hive_averager_core(c->state) : NULL},
      .hands = {.met = has_met, .over = is_over, .arg = f},
      .trace = f->trace};
  if (config.averages[HV_EPOCH_GRADIENTS])
    config.log_memory = ENTRIES * hv_average_kept_size(config.averages[HV_EPOCH_GRADIENTS]);
  f->env = parts.env;
  hv_status status = hv_epoch_driver_new(&parts, &config, &f->driver, &err);
  hv_hive_end_op(o, status, err.text);
}

static hv_status ask(hv_hive_follower *f, const hv_hive_follower_config *config, hv_hive_count *count,
                     void (*start)(hv_hive_op *, hv_node *), hv_error *err) {
  hv_hive_op *o = hv_hive_new_op(f->hive, start);
  if (o) {
    o->u.follow.follower = f;
    o->u.follow.config = config;
    o->u.follow.count = count;
  }
  return hv_hive_ask(o, err);
}

static void frees(hv_hive_follower *f) {
  hv_events_file_close(f->trace);
  hv_mem_free(f);
}

hv_status hv_hive_follower_open(hv_hive *hive, const hv_hive_follower_config *config, hv_hive_follower **out, hv_error *err) {
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  size_t run = strlen(config->run_id) + 1, state = strlen(config->state_key) + 1;
  if (run > HV_PROGRESS_PREFIX_MAX + 1 || state > HV_STATE_PREFIX_MAX + 1)
    return hv_fail(err, HV_INVALID, "cannot follow the run: its name has %zu bytes, which are too many; give another run_id",
                   run - 1);
  hv_hive_follower *f = hv_mem_zalloc(hv_hive_mem(hive), sizeof *f + run + state);
  if (!f)
    return hv_fail(err, HV_NOMEM, "cannot follow the run: no memory; raise the memory limit");
  f->hive = hive;
  f->run_id = memcpy(f + 1, config->run_id, run);
  f->state_key = memcpy(f->run_id + run, config->state_key, state);
  hv_status status = HV_OK;
  if (config->record && *config->record)
    status = hv_events_file_open(hv_hive_mem(hive), config->record, &f->trace, err);
  if (status == HV_OK)
    status = ask(f, config, NULL, start_open, err);
  if (status == HV_OK)
    *out = f;
  else
    frees(f);
  return status;
}

static void start_count(hv_hive_op *o, hv_node *node) {
  hv_hive_count *count = o->u.follow.count;
  (void)node;
  count->any = hv_epoch_driver_counts(o->u.follow.follower->driver, &count->epoch);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_follower_trainers(hv_hive_follower *f, hv_hive_count *out, hv_error *err) {
  *out = (hv_hive_count){0};
  if (hv_hive_usable(f->hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  return ask(f, NULL, out, start_count, err);
}

void hv_hive_follower_count(hv_hive_follower *f, uint64_t *rounds, uint64_t *failures) {
  *rounds = atomic_load_explicit(&f->rounds, memory_order_relaxed);
  *failures = atomic_load_explicit(&f->failures, memory_order_relaxed);
}

static void start_close(hv_hive_op *o, hv_node *node) {
  hv_hive_follower *f = o->u.follow.follower;
  (void)node;
  f->closing = o;
  hv_epoch_driver_leave(f->driver);
}

void hv_hive_follower_free(hv_hive_follower *f) {
  if (!f || hv_hive_usable(f->hive) != HV_OK)
    return;
  hv_status status;
  while ((status = ask(f, NULL, NULL, start_close, NULL)) ==
         HV_NOMEM) /* there is no way to leave it open: others give memory back */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (status != HV_OK)
    hv_hive_stop(f->hive); /* the node ends, or has ended: nothing runs any more */
  hv_epoch_driver_free(f->driver);
  frees(f);
}
