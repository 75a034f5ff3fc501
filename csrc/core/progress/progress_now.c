/* The figures, from what was counted (contract in progress.h). */
#include "core/progress/progress.h"

#include <math.h>

enum { STILL_BATCHES = 4, STILL_LEAST_S = 1 }; /* so many batches' time without a report is a standstill, but no less than that */

hv_status hv_progress_check(hv_progress_terms *t, hv_error *err) {
  if (t->target == 0 || t->target > HV_REPORT_SAMPLES_MAX)
    return hv_fail(err, HV_INVALID, "target_batch_size must be a number of samples from 1 to 2^48");
  t->min_refresh_ms = t->min_refresh_ms ? t->min_refresh_ms : 500;
  t->max_refresh_ms = t->max_refresh_ms ? t->max_refresh_ms : 10000;
  t->default_refresh_ms = t->default_refresh_ms ? t->default_refresh_ms : 3000;
  t->expiration_ms = t->expiration_ms ? t->expiration_ms : 60000;
  t->drift_peers = t->drift_peers >= 0 ? t->drift_peers : 3;
  t->drift_rate = t->drift_rate >= 0 ? t->drift_rate : 0.2;
  t->fast = t->fast > 0 ? t->fast : 8;
  if (t->min_refresh_ms > t->max_refresh_ms)
    return hv_fail(err, HV_INVALID, "min_refresh_period must not be longer than max_refresh_period: exchange them");
  if (t->max_refresh_ms > 3600000)
    return hv_fail(err, HV_INVALID, "max_refresh_period must be at most one hour");
  if (!(t->fast >= 1) || !isfinite(t->fast) || !isfinite(t->drift_peers) || !isfinite(t->drift_rate))
    return hv_fail(err, HV_INVALID, "fast must be 1 or more, and the expected drifts must be finite numbers");
  if (t->default_refresh_ms > t->max_refresh_ms)
    t->default_refresh_ms = t->max_refresh_ms;
  if (t->expiration_ms < 2 * t->max_refresh_ms)
    t->expiration_ms = 2 * t->max_refresh_ms;
  return HV_OK;
}

static double own_samples(const hv_progress_own *own, uint64_t epoch) {
  return !own->any ? 0 : own->epoch == epoch ? (double)own->samples : own->epoch == epoch + 1 ? (double)own->before : 0;
}

hv_progress_own hv_progress_as_of(const hv_progress_own *own, uint64_t now_us) {
  hv_progress_own now = *own;
  double silent_s = now_us > own->at_us ? (double)(now_us - own->at_us) * 1e-6 : 0, step = (double)own->step;
  if (own->paused || !own->step || silent_s < STILL_LEAST_S || own->speed * silent_s < STILL_BATCHES * step)
    return now;
  now.at_us = now_us;
  now.speed = step / silent_s;
  return now;
}

static uint64_t time_to(double samples, double speed) {
  if (samples <= 0)
    return 0;
  double us = speed > 0 ? samples / speed * 1e6 : INFINITY;
  return us < 9e18 ? (uint64_t)us : HV_PROGRESS_NEVER;
}

static hv_progress_standing standing(const hv_progress_own *own, uint64_t epoch) {
  if (own->epoch == epoch)
    return HV_PROGRESS_IN_STEP;
  if (own->epoch > epoch)
    return HV_PROGRESS_AHEAD;
  return own->epoch + 1 == epoch ? HV_PROGRESS_LATE : HV_PROGRESS_BEHIND;
}

static double now_least(double a, double b) {
  return a < b ? a : b;
}

static size_t others(const hv_progress_view *view) {
  return view->tally.n - (view->mine && view->tally.n);
}

void hv_progress_now(const hv_progress_view *view, const hv_progress_own *own, const hv_progress_terms *terms, uint64_t now_us,
                     hv_progress_figures *out) {
  const hv_tally *t = &view->tally;
  uint64_t age_us = now_us > view->at_us ? now_us - view->at_us : 0, most_us = 2000 * (uint64_t)terms->max_refresh_ms;
  double theirs = t->others_samples + t->others_speed * (double)now_least((double)age_us, (double)most_us) * 1e-6;
  /* this contributor may have begun or ended to report since the view was made */
  *out = (hv_progress_figures){.next_us = view->next_us,
                               .n_peers = others(view) + (own->any != 0),
                               .n_clients = t->n_clients,
                               .n_behind = t->n_behind,
                               .n_coming = view->n_coming};
  if (!others(view)) {
    out->epoch = own->epoch;
    out->samples = own_samples(own, own->epoch);
    out->speed = own->speed;
  } else {
    out->epoch = t->epoch;
    out->samples = theirs + now_least(own_samples(own, t->epoch), view->mine ? t->most_samples : HV_REPORT_SAMPLES_MAX);
    out->speed =
        t->others_speed + (own->epoch >= t->epoch ? now_least(own->speed, view->mine ? t->most_speed : HV_REPORT_SPEED_MAX) : 0);
  }
  out->standing = standing(own, out->epoch);
  out->ready = own->any && (out->epoch > own->epoch || (out->epoch == own->epoch && out->samples >= (double)terms->target));
  double lacks = (double)terms->target - (out->standing == HV_PROGRESS_AHEAD ? (double)own->samples : out->samples);
  out->eta_us = time_to(lacks, out->speed);
  out->match = own->any &&
               (out->ready || (out->standing == HV_PROGRESS_IN_STEP &&
                               (out->eta_us <= terms->matchmaking_ms * UINT64_C(1000) || lacks <= (double)terms->batch_size_lead)));
}
