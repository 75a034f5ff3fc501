/* The hive's averagers (contract in hivemind_c.h): each is a core/average on the hive thread, and a lock that the program and its
 * rounds share.
 *
 * The lock is the gate of core/average/average.h: the hive thread asks for it without waiting, and is told by a command when the
 * program lets go. */
#include "net/clock.h"
#include "net/hive/hive_inner.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef enum holder { NOBODY, PROGRAM, ROUND } holder;

struct hv_hive_averager {
  hv_hive *hive;
  hv_average *average;  /* the hive thread's; NULL before and after */
  hv_hive_op *stepping; /* the hive thread's: the step under way */
  hv_payload *kept;     /* the hive thread's: of the last step; NULL: nothing */
  pthread_mutex_t lock; /* for what follows */
  pthread_cond_t changed;
  holder holder;
  int wanted;       /* a round waits for the program to let go */
  uint32_t in_part; /* averaged chunks of the last step, if it failed */
  int has_changed;  /* hv_hive_averager_changed */
  int had_group;    /* the last step */
  hv_command knock;
  int knocking; /* it has been posted */
};

/* ---- the gate ---- */

static int enter(void *arg) {
  hv_hive_averager *a = arg;
  pthread_mutex_lock(&a->lock);
  int open = a->holder == NOBODY;
  if (open)
    a->holder = ROUND;
  a->wanted = !open;
  pthread_mutex_unlock(&a->lock);
  return open;
}

static void leave(void *arg) {
  hv_hive_averager *a = arg;
  pthread_mutex_lock(&a->lock);
  if (a->holder == ROUND)
    a->holder = NOBODY;
  a->wanted = 0;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

static void run_knock(hv_command *command, void *core) {
  hv_hive_averager *a = HV_HOLDER(hv_hive_averager, knock, command);
  if (core && a->average)
    hv_average_knock(a->average);
  pthread_mutex_lock(&a->lock);
  a->knocking = 0;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

static struct timespec after(uint32_t timeout_ms) {
  uint64_t until = hv_clock_us() + (uint64_t)timeout_ms * 1000;
  return (struct timespec){.tv_sec = (time_t)(until / 1000000), .tv_nsec = (long)(until % 1000000) * 1000};
}

int hv_hive_averager_lock(hv_hive_averager *a, uint32_t timeout_ms) {
  if (hv_hive_usable(a->hive) != HV_OK)
    return 0;
  struct timespec at = after(timeout_ms == UINT32_MAX ? 0 : timeout_ms);
  int rc = 0;
  pthread_mutex_lock(&a->lock);
  while ((a->holder != NOBODY || a->wanted) && rc == 0)
    rc = timeout_ms == UINT32_MAX ? pthread_cond_wait(&a->changed, &a->lock) : pthread_cond_timedwait(&a->changed, &a->lock, &at);
  int locked = a->holder == NOBODY && !a->wanted;
  if (locked)
    a->holder = PROGRAM;
  pthread_mutex_unlock(&a->lock);
  return locked;
}

void hv_hive_averager_unlock(hv_hive_averager *a) {
  if (hv_hive_usable(a->hive) != HV_OK)
    return;
  pthread_mutex_lock(&a->lock);
  if (a->holder == PROGRAM)
    a->holder = NOBODY;
  if (a->wanted && !a->knocking)
    a->knocking = hv_hive_post(a->hive, &a->knock) == HV_OK;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

/* ---- asking the hive thread, and waiting for its answer ---- */

hv_status hv_hive_ask(hv_hive_op *o, hv_error *err) {
  hv_future *future;
  hv_status status = o ? hv_hive_submit(o, &future) : HV_NOMEM;
  if (status != HV_OK)
    return hv_fail(err, status, status == HV_NOMEM ? "no memory; raise the memory limit" : "the node was shut down");
  hv_future_wait(future, UINT32_MAX);
  status = hv_future_result(future, NULL, NULL, err);
  hv_future_release(future);
  return status;
}

static hv_hive_op *new_op(hv_hive_averager *a, void (*start)(hv_hive_op *, hv_node *)) {
  hv_hive_op *o = hv_hive_new_op(a->hive, start);
  if (o)
    o->u.average.averager = a;
  return o;
}

void hv_hive_end_op(hv_hive_op *o, hv_status status, const char *text) {
  if (status != HV_OK) {
    hv_hive_fail_op(o, status, text);
    return;
  }
  hv_future_finish(o->future, hv_span_of(NULL, 0), NULL);
  hv_hive_free_op(o);
}

hv_average *hv_hive_averager_core(hv_hive_averager *a) {
  return a->average;
}

hv_payload *hv_hive_averager_take_kept(hv_hive_averager *a) {
  hv_payload *kept = a->kept;
  a->kept = NULL;
  return kept;
}

uint64_t hv_hive_averager_kept_size(hv_hive_averager *a) {
  return hv_hive_usable(a->hive) == HV_OK ? hv_average_kept_size(a->average) : 0;
}

/* ---- life ---- */

static void start_new(hv_hive_op *o, hv_node *node) {
  hv_error err = {0};
  hv_status status = hv_average_new(hv_node_averages(node), o->u.average.config, &o->u.average.averager->average, &err);
  hv_hive_end_op(o, status, err.text);
}

static hv_status make_lock(hv_hive_averager *a) {
  pthread_condattr_t steady;
  if (pthread_condattr_init(&steady) != 0)
    return HV_NOMEM;
  int failed = pthread_condattr_setclock(&steady, CLOCK_MONOTONIC) != 0 || pthread_cond_init(&a->changed, &steady) != 0;
  pthread_condattr_destroy(&steady);
  if (!failed && pthread_mutex_init(&a->lock, NULL) != 0) {
    pthread_cond_destroy(&a->changed);
    failed = 1;
  }
  return failed ? HV_NOMEM : HV_OK;
}

static void free_averager(hv_hive_averager *a) {
  hv_payload_release(a->kept);
  pthread_mutex_destroy(&a->lock);
  pthread_cond_destroy(&a->changed);
  hv_mem_free(a);
}

static hv_status tensors_of(hv_hive *hive, const hv_hive_averager_config *config, hv_average_tensor **out, hv_error *err) {
  hv_average_tensor *tensors = hv_mem_array(hv_hive_mem(hive), config->n_tensors, sizeof *tensors);
  if (!tensors)
    return hv_fail(err, HV_NOMEM, "cannot make an averager: no memory for the list of tensors; raise the memory limit");
  for (size_t i = 0; i < config->n_tensors; i++) {
    const hv_hive_tensor *from = &config->tensors[i];
    uint64_t values = 1;
    for (size_t d = 0; d < from->n_dims; d++)
      values *= (uint64_t)from->shape[d];
    tensors[i] = (hv_average_tensor){{from->data, (hv_dtype)from->dtype, values, (hv_codec)from->codec, from->device,
                                      hv_run_row(from->shape, from->n_dims), from->apart, (hv_codec)from->narrow},
                                     from->shape,
                                     from->n_dims};
  }
  *out = tensors;
  return HV_OK;
}

static hv_status start_average(hv_hive_averager *a, const hv_hive_averager_config *config, const hv_average_tensor *tensors,
                               hv_error *err) {
  const char *bits = config->group_bits ? config->group_bits : "";
  size_t values = config->part_bytes / sizeof(float);
  hv_average_config inner = {.prefix = hv_span_of(config->prefix, strlen(config->prefix)),
                             .tensors = tensors,
                             .n_tensors = config->n_tensors,
                             .chunk_values = (uint32_t)(values > HV_RUN_CHUNK_MAX ? HV_RUN_CHUNK_MAX : values),
                             .alpha = config->alpha,
                             .target_group = config->target_group,
                             .min_group = config->min_group,
                             .group_bits = hv_span_of(bits, strlen(bits)),
                             .round_ms = config->round_ms,
                             .stall_ms = config->stall_ms,
                             .request_ms = config->request_ms,
                             .min_vector = config->min_vector,
                             .bandwidth = config->bandwidth,
                             .weight_max = config->weight_max,
                             .norm_ratio = config->norm_ratio,
                             .compared = config->compared,
                             .auxiliary = config->auxiliary,
                             .apart = config->apart,
                             .gate = {enter, leave, a}};
  hv_hive_op *o = new_op(a, start_new);
  if (!o)
    return hv_fail(err, HV_NOMEM, "cannot make an averager: no memory; raise the memory limit");
  o->u.average.config = &inner;
  return hv_hive_ask(o, err);
}

hv_status hv_hive_averager_new(hv_hive *hive, const hv_hive_averager_config *config, hv_hive_averager **out, hv_error *err) {
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  hv_average_tensor *tensors = NULL;
  hv_hive_averager *a = hv_mem_zalloc(hv_hive_mem(hive), sizeof *a);
  hv_status status = a ? make_lock(a) : HV_NOMEM;
  if (status != HV_OK) {
    hv_mem_free(a);
    return hv_fail(err, status, "cannot make an averager: no memory; raise the memory limit");
  }
  a->hive = hive;
  a->knock.run = run_knock;
  status = tensors_of(hive, config, &tensors, err);
  if (status == HV_OK) {
    status = start_average(a, config, tensors, err);
    hv_mem_free(tensors);
  }
  if (status == HV_OK)
    *out = a;
  else
    free_averager(a);
  return status;
}

static void closed(void *arg) {
  hv_hive_end_op(arg, HV_OK, "");
}

static void start_close(hv_hive_op *o, hv_node *node) {
  hv_average *average = o->u.average.averager->average;
  (void)node;
  o->u.average.averager->average = NULL;
  hv_average_close(average, closed, o);
}

static void pause_a_little(hv_hive_averager *a) {
  struct timespec at = after(1);
  pthread_mutex_lock(&a->lock);
  pthread_cond_timedwait(&a->changed, &a->lock, &at);
  pthread_mutex_unlock(&a->lock);
}

/* HV_NOMEM: the hive thread was not asked. */
static hv_status ask_to_close(hv_hive_averager *a) {
  return hv_hive_ask(new_op(a, start_close), NULL);
}

void hv_hive_averager_free(hv_hive_averager *a) {
  if (!a || hv_hive_usable(a->hive) != HV_OK)
    return;
  hv_status status;
  while ((status = ask_to_close(a)) == HV_NOMEM) /* there is no way to leave it open: others give memory back */
    pause_a_little(a);
  if (status != HV_OK)
    hv_hive_stop(a->hive); /* the node ends: its last word is to let go of this one's gate */
  pthread_mutex_lock(&a->lock);
  while (a->knocking)
    pthread_cond_wait(&a->changed, &a->lock);
  pthread_mutex_unlock(&a->lock);
  free_averager(a);
}

/* ---- a step ---- */

/* The outcome, its members and what they gave, in one block. */
static void give_outcome(hv_hive_op *o, const hv_average_outcome *outcome) {
  size_t n = outcome->n_members, bytes = 0, missed = outcome->n_missed * sizeof(hv_hive_range);
  for (size_t i = 0; i < n; i++)
    bytes += outcome->members[i].gather.size;
  hv_hive_average *result = hv_mem_alloc(hv_hive_mem(o->hive), sizeof *result + n * sizeof(hv_hive_member) + missed + bytes);
  if (!result) {
    hv_hive_fail_op(o, HV_NOMEM, "the round succeeded, but its result cannot be handed over: no memory; raise the memory limit");
    return;
  }
  hv_hive_member *members = (hv_hive_member *)(result + 1);
  hv_hive_range *ranges = (hv_hive_range *)(members + n);
  uint8_t *at = (uint8_t *)(ranges + outcome->n_missed);
  *result = (hv_hive_average){.members = members,
                              .n_members = n,
                              .missed = ranges,
                              .n_missed = outcome->n_missed,
                              .n_chunks = outcome->n_chunks,
                              .averaged = outcome->averaged,
                              .stamp = outcome->stamp,
                              .bytes = outcome->bytes,
                              .part = outcome->part,
                              .matching_s = (double)outcome->matching_us / 1e6,
                              .waiting_s = (double)outcome->waiting_us / 1e6,
                              .reducing_s = (double)outcome->reducing_us / 1e6,
                              .tries = outcome->tries,
                              .narrow = outcome->narrow};
  for (size_t i = 0; i < n; i++) {
    const hv_average_member *from = &outcome->members[i];
    members[i] =
        (hv_hive_member){from->id, from->me, from->client, from->auxiliary, from->share, hv_span_of(at, from->gather.size)};
    if (from->gather.size)
      memcpy(at, from->gather.data, from->gather.size);
    at += from->gather.size;
  }
  for (size_t i = 0; i < outcome->n_missed; i++)
    ranges[i] = (hv_hive_range){outcome->missed[i].at, outcome->missed[i].size};
  hv_future_finish_taken(o->future, result, sizeof *result, NULL);
  hv_hive_free_op(o);
}

static void step_over(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  hv_hive_op *o = step->owner;
  hv_hive_averager *a = o->u.average.averager;
  a->stepping = NULL;
  pthread_mutex_lock(&a->lock);
  a->in_part = status == HV_OK ? 0 : outcome->averaged;
  a->has_changed = outcome->changed;
  a->had_group = outcome->n_members > 0;
  pthread_mutex_unlock(&a->lock);
  if (outcome->kept)
    a->kept = hv_payload_keep(outcome->kept);
  if (status == HV_OK)
    give_outcome(o, outcome);
  else
    hv_hive_fail_op(o, status, text);
}

/* Anybody may cancel at any time, also while the averager is being closed, which has asked for the step's end already. All else
 * that is said to an averager comes before its end: the program has let go of it then. */
static void cancel_step(hv_hive_op *o, hv_node *node) {
  hv_average *average = o->u.average.averager->average;
  (void)node;
  if (average)
    hv_average_cancel(average, &o->u.average.step);
}

static void start_step(hv_hive_op *o, hv_node *node) {
  hv_hive_averager *a = o->u.average.averager;
  hv_average_step *step = &o->u.average.step;
  hv_error err = {0};
  (void)node;
  hv_payload_release(hv_hive_averager_take_kept(a));
  step->done = step_over;
  step->owner = o;
  o->cancel = cancel_step;
  hv_status status = hv_average_start(a->average, step, &err);
  if (status == HV_OK)
    a->stepping = o;
  else
    hv_hive_fail_op(o, status, err.text);
}

hv_status hv_hive_averager_step(hv_hive_averager *a, const hv_hive_step *step, hv_future **out) {
  if (hv_hive_usable(a->hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_op(a, start_step);
  if (!o)
    return HV_NOMEM;
  o->bytes = hv_mem_alloc(hv_hive_mem(a->hive), step->gather.size + step->epoch.size);
  if (!o->bytes) {
    hv_hive_free_op(o);
    return HV_NOMEM;
  }
  if (step->gather.size)
    memcpy(o->bytes, step->gather.data, step->gather.size);
  if (step->epoch.size)
    memcpy(o->bytes + step->gather.size, step->epoch.data, step->epoch.size);
  o->u.average.step = (hv_average_step){.epoch = hv_span_of(o->bytes + step->gather.size, step->epoch.size),
                                        .weight = step->weight,
                                        .gather = hv_span_of(o->bytes, step->gather.size),
                                        .wait_ms = step->wait_ms,
                                        .timeout_ms = step->timeout_ms,
                                        .expected = step->expected,
                                        .require_trigger = step->require_trigger,
                                        .allow_retries = step->allow_retries,
                                        .repeats = step->repeats,
                                        .keep = step->keep,
                                        .listens = step->listens};
  return hv_hive_submit(o, out);
}

/* ---- what is said to a step under way ---- */

static hv_average_step *meant(const hv_hive_op *o) {
  hv_hive_op *stepping = o->u.average.averager->stepping;
  return stepping && stepping->future == o->u.average.about ? &stepping->u.average.step : NULL;
}

static void start_trigger(hv_hive_op *o, hv_node *node) {
  hv_average_step *step = meant(o);
  (void)node;
  if (step)
    hv_average_trigger(o->u.average.averager->average, step);
  hv_hive_end_op(o, HV_OK, "");
}

static void start_give_up(hv_hive_op *o, hv_node *node) {
  hv_average_step *step = meant(o);
  hv_average *average = o->u.average.averager->average;
  (void)node;
  if (step)
    hv_average_give_up(average, step);
  hv_hive_end_op(o, HV_OK, "");
}

static void start_weight(hv_hive_op *o, hv_node *node) {
  hv_average_step *step = meant(o);
  (void)node;
  if (step)
    hv_average_set_weight(o->u.average.averager->average, step, o->u.average.weight);
  hv_hive_end_op(o, HV_OK, "");
}

static void start_send_narrow(hv_hive_op *o, hv_node *node) {
  hv_average_step *step = meant(o);
  (void)node;
  if (step)
    hv_average_send_narrow(o->u.average.averager->average, step);
  hv_hive_end_op(o, HV_OK, "");
}

static void start_reached(hv_hive_op *o, hv_node *node) {
  (void)node;
  hv_average_reached(o->u.average.averager->average, o->u.average.reached);
  hv_hive_end_op(o, HV_OK, "");
}

static void start_comes(hv_hive_op *o, hv_node *node) {
  (void)node;
  hv_average_comes(o->u.average.averager->average, o->u.average.reached);
  hv_hive_end_op(o, HV_OK, "");
}

static void start_step_aside(hv_hive_op *o, hv_node *node) {
  (void)node;
  hv_average_step_aside(o->u.average.averager->average);
  hv_hive_end_op(o, HV_OK, "");
}

/* Nobody waits for these. A later step whose future lies where this one's was cannot be meant: its op comes after this one. */
static hv_status say(hv_hive_averager *a, hv_future *step, float weight, uint64_t reached, void (*start)(hv_hive_op *, hv_node *)) {
  hv_future *future;
  if (hv_hive_usable(a->hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_op(a, start);
  if (!o)
    return HV_NOMEM;
  o->u.average.about = step;
  o->u.average.weight = weight;
  o->u.average.reached = reached;
  hv_status status = hv_hive_submit(o, &future);
  if (status == HV_OK)
    hv_future_release(future);
  return status;
}

hv_status hv_hive_averager_trigger(hv_hive_averager *a, hv_future *step) {
  return say(a, step, 0, 0, start_trigger);
}

hv_status hv_hive_averager_give_up(hv_hive_averager *a, hv_future *step) {
  return say(a, step, 0, 0, start_give_up);
}

hv_status hv_hive_averager_send_narrow(hv_hive_averager *a, hv_future *step) {
  return say(a, step, 0, 0, start_send_narrow);
}

uint32_t hv_hive_averager_in_part(hv_hive_averager *a) {
  pthread_mutex_lock(&a->lock);
  uint32_t n = a->in_part;
  pthread_mutex_unlock(&a->lock);
  return n;
}

int hv_hive_averager_changed(hv_hive_averager *a) {
  pthread_mutex_lock(&a->lock);
  int has_changed = a->has_changed;
  pthread_mutex_unlock(&a->lock);
  return has_changed;
}

int hv_hive_averager_had_group(hv_hive_averager *a) {
  pthread_mutex_lock(&a->lock);
  int had = a->had_group;
  pthread_mutex_unlock(&a->lock);
  return had;
}

hv_status hv_hive_averager_reached(hv_hive_averager *a, uint64_t epoch) {
  return say(a, NULL, 0, epoch, start_reached);
}

hv_status hv_hive_averager_comes(hv_hive_averager *a, uint64_t epoch) {
  return say(a, NULL, 0, epoch, start_comes);
}

hv_status hv_hive_averager_step_aside(hv_hive_averager *a) {
  return say(a, NULL, 0, 0, start_step_aside);
}

hv_status hv_hive_averager_weight(hv_hive_averager *a, hv_future *step, float weight) {
  if (!(weight >= 0 && weight <= HV_CODEC_WEIGHT_MAX))
    return HV_INVALID;
  return say(a, step, weight, 0, start_weight);
}

/* ---- who is awaited ---- */

static void start_awaits(hv_hive_op *o, hv_node *node) {
  int awaits = hv_average_awaits(o->u.average.averager->average, o->u.average.reached);
  (void)node;
  hv_future_finish(o->future, hv_span_of("1", (size_t)awaits), NULL);
  hv_hive_free_op(o);
}

int hv_hive_averager_awaits(hv_hive_averager *a, uint64_t epoch) {
  hv_span said = {0};
  hv_future *future;
  hv_hive_op *o = hv_hive_usable(a->hive) == HV_OK ? new_op(a, start_awaits) : NULL;
  if (!o)
    return 0;
  o->u.average.reached = epoch;
  if (hv_hive_submit(o, &future) != HV_OK)
    return 0;
  hv_future_wait(future, UINT32_MAX);
  int awaits = hv_future_result(future, &said, NULL, NULL) == HV_OK && said.size > 0;
  hv_future_release(future);
  return awaits;
}

/* ---- bits ---- */

static void start_bits(hv_hive_op *o, hv_node *node) {
  hv_span bits = hv_average_bits(o->u.average.averager->average);
  (void)node;
  hv_future_finish(o->future, bits, NULL);
  hv_hive_free_op(o);
}

static void start_set_bits(hv_hive_op *o, hv_node *node) {
  hv_error err = {0};
  (void)node;
  hv_status status = hv_average_set_bits(o->u.average.averager->average, o->u.average.text, &err);
  hv_hive_end_op(o, status, err.text);
}

void hv_hive_averager_bits(hv_hive_averager *a, char out[HV_GROUP_BITS_MAX + 1]) {
  hv_span bits;
  hv_future *future;
  hv_hive_op *o = hv_hive_usable(a->hive) == HV_OK ? new_op(a, start_bits) : NULL;
  out[0] = 0;
  if (!o || hv_hive_submit(o, &future) != HV_OK)
    return;
  hv_future_wait(future, UINT32_MAX);
  if (hv_future_result(future, &bits, NULL, NULL) == HV_OK && bits.size <= HV_GROUP_BITS_MAX) {
    if (bits.size)
      memcpy(out, bits.data, bits.size);
    out[bits.size] = 0;
  }
  hv_future_release(future);
}

/* Lets `start` take a text, which the caller keeps until it is answered. */
static hv_status give_text(hv_hive_averager *a, hv_span text, void (*start)(hv_hive_op *, hv_node *), hv_error *err) {
  hv_hive_op *o = hv_hive_usable(a->hive) == HV_OK ? new_op(a, start) : NULL;
  if (!o)
    return hv_fail(
        err, HV_FORKED,
        "cannot use this averager: it belongs to another process, or memory ran out; use it in the process that made it");
  o->u.average.text = text;
  return hv_hive_ask(o, err);
}

hv_status hv_hive_averager_set_bits(hv_hive_averager *a, const char *bits, hv_error *err) {
  return give_text(a, hv_span_of(bits, strlen(bits)), start_set_bits, err);
}

/* ---- the setup ---- */

_Static_assert(HV_SETUP_MAX == HV_MATCH_SETUP_MAX, "the program's limit is that of the core");

static void start_set_setup(hv_hive_op *o, hv_node *node) {
  hv_error err = {0};
  (void)node;
  hv_status status = hv_average_set_setup(o->u.average.averager->average, o->u.average.text, &err);
  hv_hive_end_op(o, status, err.text);
}

hv_status hv_hive_averager_set_setup(hv_hive_averager *a, hv_span setup, hv_error *err) {
  return give_text(a, setup, start_set_setup, err);
}
