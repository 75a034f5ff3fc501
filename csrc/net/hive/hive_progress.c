/* A contributor's snapshot between the program and the hive thread (contract in hivemind_c.h).
 *
 * The snapshot is what the program said last and what was counted last, under a lock that is held for a few copies and never while
 * anything waits: the program writes and reads it at any time, the hive thread comes by on its own timer. Only a new epoch wakes
 * the hive thread. Counted: the program's reference, the tracker's, and one while a command is on its way.
 */
#include "net/clock.h"
#include "net/hive/hive_inner.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { DOUBT_MS = 2000 }; /* longest wait for the hive thread */

struct hv_hive_progress {
  hv_hive *hive;
  atomic_uint refs;
  hv_progress_terms terms;
  int client_mode;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* under the lock */
  hv_progress_own own;
  hv_meter meter;
  hv_progress_view view;
  hv_status status;
  int waking, ask_now, closed;
  uint64_t news;
  struct {
    uint64_t epoch; /* claims at or above it are doubted */
    uint32_t for_ms;
    uint64_t asked, done; /* the numbers of the latest call, and of the latest one that was carried out */
  } doubt;
  /* the hive thread's */
  hv_progress *tracker;
  hv_command open, wake, close;
  char prefix[HV_PROGRESS_PREFIX_MAX + 1];
};

static hv_hive_progress *of(hv_command *command, size_t offset) {
  return (hv_hive_progress *)((char *)command - offset);
}

static void keep(hv_hive_progress *p) {
  atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

static void release(hv_hive_progress *p) {
  if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
    return;
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->changed);
  hv_mem_free(p);
}

/* ---- the hive thread comes by ---- */

static void take_own(void *arg, hv_progress_own *out) {
  hv_hive_progress *p = arg;
  pthread_mutex_lock(&p->lock);
  *out = p->own;
  out->paused |= p->meter.paused_us != 0;
  pthread_mutex_unlock(&p->lock);
}

static void put_view(void *arg, const hv_progress_view *view) {
  hv_hive_progress *p = arg;
  pthread_mutex_lock(&p->lock);
  p->view = *view;
  p->news++;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

static void over(hv_hive_progress *p, hv_status status) {
  pthread_mutex_lock(&p->lock);
  p->status = p->status == HV_OK ? status : p->status;
  p->news++;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

static void node_ended(void *arg) {
  hv_hive_progress *p = arg;
  p->tracker = NULL;
  over(p, HV_CLOSED);
  release(p);
}

static void run_open(hv_command *command, void *core) {
  hv_hive_progress *p = of(command, offsetof(hv_hive_progress, open));
  hv_progress_config config = {.prefix = hv_span_of(p->prefix, strlen(p->prefix)),
                               .terms = p->terms,
                               .client_mode = p->client_mode,
                               .own = take_own,
                               .counted = put_view,
                               .ended = node_ended,
                               .arg = p};
  hv_error why = {0};
  hv_status status = core ? hv_progress_open(hv_node_progress(core), &config, &p->tracker, &why) : HV_CLOSED;
  if (status == HV_OK)
    return;
  p->tracker = NULL;
  if (core)
    hv_env_log(hv_node_env(core), HV_LOG_ERROR, "progress", "not_opened", "not following the run %s: %s", p->prefix, why.text);
  over(p, status);
  release(p);
}

static void has_doubted(hv_hive_progress *p, uint64_t number) {
  pthread_mutex_lock(&p->lock);
  p->doubt.done = number;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

static void run_wake(hv_command *command, void *core) {
  hv_hive_progress *p = of(command, offsetof(hv_hive_progress, wake));
  pthread_mutex_lock(&p->lock);
  int ask_now = p->ask_now;
  uint64_t doubt = p->doubt.asked != p->doubt.done ? p->doubt.asked : 0, epoch = p->doubt.epoch;
  uint32_t for_ms = p->doubt.for_ms;
  p->waking = p->ask_now = 0;
  pthread_mutex_unlock(&p->lock);
  if (core && p->tracker && doubt)
    hv_progress_disbelieve(p->tracker, epoch, for_ms);
  if (core && p->tracker)
    hv_progress_wake(p->tracker, ask_now);
  if (doubt)
    has_doubted(p, doubt);
  release(p);
}

static void run_close(hv_command *command, void *core) {
  hv_hive_progress *p = of(command, offsetof(hv_hive_progress, close));
  if (core && p->tracker) {
    hv_progress *tracker = p->tracker;
    p->tracker = NULL;
    hv_progress_close(tracker);
    release(p);
  }
  release(p);
}

/* ---- the program ---- */

static hv_status init_locks(hv_hive_progress *p) {
  pthread_condattr_t steady;
  if (pthread_condattr_init(&steady) != 0)
    return HV_NOMEM;
  int failed = pthread_condattr_setclock(&steady, CLOCK_MONOTONIC) != 0 || pthread_cond_init(&p->changed, &steady) != 0;
  pthread_condattr_destroy(&steady);
  if (failed)
    return HV_NOMEM;
  if (pthread_mutex_init(&p->lock, NULL) == 0)
    return HV_OK;
  pthread_cond_destroy(&p->changed);
  return HV_NOMEM;
}

hv_status hv_hive_progress_open(hv_hive *hive, const hv_hive_progress_config *config, hv_hive_progress **out, hv_error *err) {
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  hv_progress_terms terms = {.target = config->target_batch_size,
                             .batch_size_lead = config->batch_size_lead,
                             .matchmaking_ms = config->matchmaking_ms,
                             .min_refresh_ms = config->min_refresh_ms,
                             .max_refresh_ms = config->max_refresh_ms,
                             .default_refresh_ms = config->default_refresh_ms,
                             .drift_peers = config->expected_drift_peers,
                             .drift_rate = config->expected_drift_rate,
                             .expiration_ms = config->expiration_ms,
                             .fast = config->fast};
  hv_status status = hv_progress_check(&terms, err);
  size_t size = strlen(config->prefix);
  double alpha = config->ema_alpha == 0 ? HV_METER_ALPHA : config->ema_alpha;
  if (status != HV_OK)
    return status;
  if (size == 0 || size > HV_PROGRESS_PREFIX_MAX)
    return hv_fail(err, HV_INVALID, "cannot follow the run: its prefix must have 1 to %d bytes, not %zu; give another run_id",
                   HV_PROGRESS_PREFIX_MAX, size);
  if (!(alpha > 0 && alpha <= 1))
    return hv_fail(err, HV_INVALID, "performance_ema_alpha must be above 0 and at most 1");
  hv_hive_progress *p = hv_mem_zalloc(hv_hive_mem(hive), sizeof *p);
  if (!p || init_locks(p) != HV_OK) {
    hv_mem_free(p);
    return hv_fail(err, HV_NOMEM, "cannot make a progress tracker: no memory; raise the memory limit");
  }
  p->hive = hive;
  p->terms = terms;
  p->client_mode = config->client_mode;
  p->meter.alpha = alpha;
  p->view.at_us = hv_clock_us();
  p->open.run = run_open;
  p->wake.run = run_wake;
  p->close.run = run_close;
  memcpy(p->prefix, config->prefix, size + 1);
  atomic_init(&p->refs, 2);
  status = hv_hive_post(hive, &p->open);
  if (status == HV_OK) {
    *out = p;
    return HV_OK;
  }
  release(p);
  release(p);
  return hv_fail(err, status, "the node was shut down");
}

void hv_hive_progress_close(hv_hive_progress *p) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return;
  pthread_mutex_lock(&p->lock);
  int first = !p->closed;
  p->closed = 1;
  p->status = p->status == HV_OK ? HV_CLOSED : p->status;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  if (!first)
    return;
  keep(p);
  if (hv_hive_post(p->hive, &p->close) != HV_OK)
    release(p);
}

void hv_hive_progress_free(hv_hive_progress *p) {
  if (!p || hv_hive_usable(p->hive) != HV_OK)
    return;
  hv_hive_progress_close(p);
  release(p);
}

/* Under the lock: 1 if the caller is to post the command, for which it has a reference then. */
static int wants_wake(hv_hive_progress *p, int ask_now) {
  p->ask_now |= ask_now;
  if (p->waking || p->status != HV_OK)
    return 0;
  p->waking = 1;
  keep(p);
  return 1;
}

static hv_status post_wake(hv_hive_progress *p) {
  hv_status status = hv_hive_post(p->hive, &p->wake);
  if (status == HV_OK)
    return HV_OK;
  pthread_mutex_lock(&p->lock);
  p->waking = 0;
  pthread_mutex_unlock(&p->lock);
  release(p);
  return status;
}

hv_status hv_hive_progress_report(hv_hive_progress *p, uint64_t epoch, uint64_t samples) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return HV_FORKED;
  if (epoch > HV_REPORT_EPOCH_MAX || samples > HV_REPORT_SAMPLES_MAX)
    return HV_INVALID;
  uint64_t now = hv_clock_us();
  pthread_mutex_lock(&p->lock);
  hv_progress_own *own = &p->own;
  int moved = !own->any || own->epoch != epoch;
  if (moved) {
    own->before = own->any && epoch == own->epoch + 1 ? own->samples : 0;
    own->samples = 0;
    own->serial += own->any != 0;
  }
  uint64_t more = samples > own->samples ? samples - own->samples : 0;
  hv_meter_done(&p->meter, more, now);
  own->step = more ? more : own->step;
  own->any = 1;
  own->comes = 0;
  own->paused = 0;
  own->epoch = epoch;
  own->samples = samples;
  own->speed = hv_meter_speed(&p->meter);
  own->at_us = now;
  hv_status status = p->status;
  int post = moved && wants_wake(p, 0);
  pthread_mutex_unlock(&p->lock);
  return post ? post_wake(p) : status;
}

void hv_hive_progress_pause(hv_hive_progress *p, int on) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return;
  pthread_mutex_lock(&p->lock);
  hv_meter_pause(&p->meter, on, hv_clock_us());
  pthread_mutex_unlock(&p->lock);
}

hv_status hv_hive_progress_put(hv_hive_progress *p, const hv_progress_own *own) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return HV_FORKED;
  pthread_mutex_lock(&p->lock);
  int moved = own->any != p->own.any || own->comes != p->own.comes || (own->any && own->epoch != p->own.epoch);
  p->own = *own;
  hv_status status = p->status;
  int post = moved && wants_wake(p, 0);
  pthread_mutex_unlock(&p->lock);
  return post ? post_wake(p) : status;
}

double hv_hive_progress_alpha(const hv_hive_progress *p) {
  return p->meter.alpha;
}

hv_status hv_hive_progress_withdraw(hv_hive_progress *p) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return HV_FORKED;
  pthread_mutex_lock(&p->lock);
  int moved = p->own.any || p->own.comes;
  p->own.any = 0;
  p->own.comes = 0;
  hv_status status = p->status;
  int post = moved && wants_wake(p, 0);
  pthread_mutex_unlock(&p->lock);
  return post ? post_wake(p) : status;
}

hv_status hv_hive_progress_refresh(hv_hive_progress *p) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return HV_FORKED;
  pthread_mutex_lock(&p->lock);
  hv_status status = p->status;
  int post = wants_wake(p, 1);
  pthread_mutex_unlock(&p->lock);
  return post ? post_wake(p) : status;
}

static int is_fetched(const hv_hive_progress *p) {
  return p->view.fetched && p->view.fetched_serial == p->own.serial;
}

void hv_hive_progress_read(hv_hive_progress *p, hv_hive_progress_state *out) {
  hv_progress_figures now;
  *out = (hv_hive_progress_state){.status = HV_FORKED};
  if (hv_hive_usable(p->hive) != HV_OK)
    return;
  pthread_mutex_lock(&p->lock);
  hv_progress_own own = p->own;
  hv_progress_view view = p->view;
  hv_status status = p->status;
  int fetched = is_fetched(p);
  pthread_mutex_unlock(&p->lock);
  uint64_t now_us = hv_clock_us();
  hv_progress_now(&view, &own, &p->terms, now_us, &now);
  *out = (hv_hive_progress_state){
      .any = own.any,
      .client_mode = p->client_mode,
      .local_epoch = own.epoch,
      .local_samples = own.samples,
      .local_speed = own.speed,
      .local_us = own.at_us,
      .now_us = now_us,
      .epoch = now.epoch,
      .target = p->terms.target,
      .samples = now.samples,
      .speed = now.speed,
      .n_peers = now.n_peers,
      .n_clients = now.n_clients,
      .n_behind = now.n_behind,
      .n_coming = now.n_coming,
      .eta_s = now.eta_us == HV_PROGRESS_NEVER ? INFINITY : (double)now.eta_us * 1e-6,
      .next_fetch_us = now.next_us,
      .standing = (int)now.standing,
      .ready = now.ready,
      .match = now.match,
      .fetched = fetched,
      .status = status,
  };
}

static struct timespec moment_in(uint32_t ms) {
  uint64_t due = hv_clock_us() + (uint64_t)ms * 1000;
  return (struct timespec){.tv_sec = (time_t)(due / 1000000), .tv_nsec = (long)(due % 1000000 * 1000)};
}

/* Until the doubt of this number is carried out. */
static hv_status wait_doubt(hv_hive_progress *p, uint64_t number) {
  struct timespec until = moment_in(DOUBT_MS);
  int late = 0;
  pthread_mutex_lock(&p->lock);
  while (p->doubt.done < number && p->status == HV_OK && !late)
    late = pthread_cond_timedwait(&p->changed, &p->lock, &until) != 0;
  hv_status status = p->doubt.done >= number ? HV_OK : p->status != HV_OK ? p->status : HV_TIMEOUT;
  pthread_mutex_unlock(&p->lock);
  return status;
}

hv_status hv_hive_progress_disbelieve(hv_hive_progress *p, uint64_t epoch, uint32_t for_ms) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return HV_FORKED;
  if (epoch == 0 || for_ms == 0)
    return HV_INVALID;
  pthread_mutex_lock(&p->lock);
  int pending = p->doubt.asked != p->doubt.done;
  p->doubt.epoch = pending && p->doubt.epoch < epoch ? p->doubt.epoch : epoch;
  p->doubt.for_ms = pending && p->doubt.for_ms > for_ms ? p->doubt.for_ms : for_ms;
  uint64_t number = ++p->doubt.asked;
  int post = wants_wake(p, 0);
  pthread_mutex_unlock(&p->lock);
  hv_status status = post ? post_wake(p) : HV_OK;
  return status == HV_OK ? wait_doubt(p, number) : status;
}

hv_status hv_hive_progress_wait(hv_hive_progress *p, uint32_t timeout_ms) {
  if (hv_hive_usable(p->hive) != HV_OK)
    return HV_FORKED;
  struct timespec until = moment_in(timeout_ms);
  int late = 0;
  pthread_mutex_lock(&p->lock);
  while (!is_fetched(p) && p->status == HV_OK && !late)
    late = timeout_ms == UINT32_MAX ? pthread_cond_wait(&p->changed, &p->lock) != 0
                                    : pthread_cond_timedwait(&p->changed, &p->lock, &until) != 0;
  hv_status status = is_fetched(p) ? HV_OK : p->status != HV_OK ? p->status : HV_TIMEOUT;
  pthread_mutex_unlock(&p->lock);
  return status;
}

uint64_t hv_hive_progress_news(hv_hive_progress *p) {
  pthread_mutex_lock(&p->lock);
  uint64_t news = p->news;
  pthread_mutex_unlock(&p->lock);
  return news;
}

void hv_hive_progress_ring(hv_hive_progress *p) {
  pthread_mutex_lock(&p->lock);
  p->news++;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

int hv_hive_progress_doze(hv_hive_progress *p, uint64_t known, uint32_t timeout_ms) {
  struct timespec until = moment_in(timeout_ms);
  int late = 0;
  pthread_mutex_lock(&p->lock);
  while (p->news == known && !late)
    late = pthread_cond_timedwait(&p->changed, &p->lock, &until) != 0;
  int is_new = p->news != known;
  pthread_mutex_unlock(&p->lock);
  return is_new;
}
