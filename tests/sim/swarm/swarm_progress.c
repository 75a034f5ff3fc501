/* Knowing the swarm's progress: what it costs, how near the sum is and how old. All peers compute in batches at speeds of their
 * own, and pass from epoch to epoch when the true sum says so, each within a second; the truth is the room's own sum over all of
 * them. */
#include "lib/progress_swarm.h"
#include "sim/swarm/swarm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WATCHED_MAX = 64, WARM_S = 25, SEEN_MAX = WATCHED_MAX * 400, NEWS_US = 5000000, SMALL = 256 };

typedef struct room {
  swarm_run *run;
  progress_swarm s;
  size_t n, liars;
  double total; /* true speed of the honest */
  uint64_t epoch, began_us;
  double errors[SEEN_MAX], ages[SEEN_MAX];
  size_t n_errors, n_ages, wrong_epoch, looked; /* errors: from when an epoch is NEWS_US old */
} room;

static double uniform(swarm_run *run) {
  return check_uniform(&run->rng);
}

static int by_number(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void make_peers(room *r, double spread) {
  hv_sim_link link = {.delay_us = 20000, .jitter_us = 20000};
  hv_sim_set_link(r->run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  r->s.dht.hello_every_ms = 3600000; /* membership is not what is looked at here */
  r->s.dht.peers_room = 1;
  r->s.dht.config.refresh_ms = UINT32_MAX;
  r->s.dht.config.replicate_ms = 3600000;
  progress_swarm_init(&r->s, r->run->sim, &r->run->mem, r->n);
  for (size_t i = 0; i < r->n; i++) {
    r->s.dht.seats[i].skew_us = (int64_t)(uniform(r->run) * 7.2e9) - INT64_C(3600000000);
    dht_swarm_add(&r->s.dht, NULL, 0, 0);
  }
  dht_swarm_run(&r->s.dht, 0.001);
  dht_swarm_settle(&r->s.dht);
  for (size_t i = 0; i < r->n; i++) {
    progress_peer *peer = &r->s.peers[i];
    peer->batch = 16;
    peer->lag_us = (uint64_t)(uniform(r->run) * 1e6);
    progress_swarm_work(&r->s, i, 30 * exp(spread * check_normal(&r->run->rng)));
    if (i >= r->liars)
      r->total += peer->speed;
  }
  r->s.terms.target = (uint64_t)(r->total * 20); /* an epoch of 20 s */
  for (size_t i = 0; i < r->n; i++)
    progress_swarm_open(&r->s, i);
}

static hv_progress_own own(room *r, size_t i) {
  return progress_swarm_own(&r->s, i);
}

/* The true sum of an epoch, as of now: whole batches and what is done of those under way. */
static double truth(room *r, uint64_t epoch) {
  double sum = 0;
  for (size_t i = r->liars; i < r->n; i++) {
    hv_progress_own o = own(r, i);
    hv_env *env = r->s.dht.seats[i].env;
    double under_way = o.speed * (double)(env->now_us(env) - o.at_us) * 1e-6;
    sum += o.epoch == epoch ? (double)o.samples + under_way : o.epoch == epoch + 1 ? (double)o.before : 0;
  }
  return sum;
}

/* Of the two epochs that there may be, the one that more than a third have reached. */
static uint64_t true_epoch(room *r) {
  size_t reached = 0;
  for (size_t i = 0; i < r->n; i++)
    reached += own(r, i).epoch >= r->epoch;
  return reached > r->n / 3 ? r->epoch : r->epoch - 1;
}

static void watch(room *r) {
  uint64_t epoch = true_epoch(r);
  double sum = truth(r, epoch);
  size_t honest = r->n - r->liars, watched = honest < WATCHED_MAX ? honest : WATCHED_MAX;
  for (size_t w = 0; w < watched && r->n_ages < SEEN_MAX; w++) {
    size_t i = r->liars + w * honest / watched;
    hv_progress_figures seen = progress_swarm_read(&r->s, i);
    const hv_progress_view *view = hv_progress_look(r->s.peers[i].tracker);
    hv_env *env = r->s.dht.seats[i].env;
    r->looked++;
    if (seen.epoch != epoch) {
      r->wrong_epoch++;
      if (seen.epoch > r->epoch || seen.epoch + 1 < epoch)
        swarm_fail(r->run, "peer %zu is told that the swarm is at epoch %llu, and it is at %llu", i, (unsigned long long)seen.epoch,
                   (unsigned long long)epoch);
      continue;
    }
    if (hv_sim_now(r->run->sim) > r->began_us + NEWS_US)
      r->errors[r->n_errors++] = fabs(seen.samples - sum) / (double)r->s.terms.target;
    r->ages[r->n_ages++] = (double)view->age_ms * 1e-3 + (double)(env->now_us(env) - view->at_us) * 1e-6;
  }
}

/* The world goes on for a tenth of a second; all begin the next epoch when the target is reached. */
static void go_on(room *r) {
  dht_swarm_run(&r->s.dht, 0.1);
  double done = r->total * (double)(hv_sim_now(r->run->sim) - r->began_us) * 1e-6;
  if (done < (double)r->s.terms.target * 1.03)
    return;
  r->began_us = hv_sim_now(r->run->sim);
  r->epoch++;
  for (size_t i = 0; i < r->n; i++)
    progress_swarm_begin(&r->s, i, r->epoch);
}

static double at(double *sorted, size_t n, size_t of_1000) {
  return n ? sorted[(n - 1) * of_1000 / 1000] : 0;
}

static void tell(room *r, double bytes_each, double messages_each) {
  qsort(r->errors, r->n_errors, sizeof *r->errors, by_number);
  qsort(r->ages, r->n_ages, sizeof *r->ages, by_number);
  swarm_figure(r->run, "bytes_per_s_each", bytes_each);
  swarm_figure(r->run, "messages_per_s_each", messages_each);
  swarm_figure(r->run, "error_p50_of_target", at(r->errors, r->n_errors, 500));
  swarm_figure(r->run, "error_p99_of_target", at(r->errors, r->n_errors, 990));
  swarm_figure(r->run, "error_max_of_target", at(r->errors, r->n_errors, 1000));
  swarm_figure(r->run, "age_p50_s", at(r->ages, r->n_ages, 500));
  swarm_figure(r->run, "age_p99_s", at(r->ages, r->n_ages, 990));
  swarm_figure(r->run, "age_max_s", at(r->ages, r->n_ages, 1000));
  swarm_figure(r->run, "behind_the_epoch", (double)r->wrong_epoch / (double)r->looked);
}

/* In larger swarms the cost is what some seed makes of the DHT (notes/progress-runs.md). */
static void hold_to_goals(room *r, double bytes_each) {
  double error = at(r->errors, r->n_errors, 990), age = at(r->ages, r->n_ages, 990);
  if ((r->n <= SMALL && bytes_each > 2048) || error > 0.01 || age > 3)
    swarm_fail(r->run, "%.0f bytes a second each, the sum is wrong by %g of the target and %g s old", bytes_each, error, age);
}

static void play(swarm_run *run, size_t liars, void (*lie)(progress_peer *, hv_progress_own *), double most_error) {
  room *r = calloc(1, sizeof *r);
  if (!r)
    abort();
  r->run = run;
  r->n = run->options->nodes;
  r->liars = liars;
  make_peers(r, 0.5);
  for (size_t i = 0; i < liars; i++)
    r->s.peers[i].lie = lie;
  for (int i = 0; i < WARM_S * 10; i++)
    go_on(r);
  uint64_t bytes = hv_sim_count(run->sim).bytes, messages = hv_sim_count(run->sim).messages, from = hv_sim_now(run->sim);
  while (hv_sim_now(run->sim) < run->end_us || r->n_errors == 0) {
    go_on(r);
    watch(r);
  }
  double seconds = (double)(hv_sim_now(run->sim) - from) * 1e-6;
  tell(r, (double)(hv_sim_count(run->sim).bytes - bytes) / seconds / (double)r->n,
       (double)(hv_sim_count(run->sim).messages - messages) / seconds / (double)r->n);
  if (liars == 0)
    hold_to_goals(r, (double)(hv_sim_count(run->sim).bytes - bytes) / seconds / (double)r->n);
  if (at(r->errors, r->n_errors, 990) > most_error)
    swarm_fail(run, "the sum is wrong by %g of the target", at(r->errors, r->n_errors, 990));
  if (r->wrong_epoch * 4 > r->looked)
    swarm_fail(run, "the epoch is not known %zu times of %zu", r->wrong_epoch, r->looked);
  swarm_over(run);
  progress_swarm_fini(&r->s);
  free(r);
}

void swarm_progress_play(swarm_run *run) {
  play(run, 0, NULL, 0.05);
}

/* They claim a far epoch, or far too much, or an enormous speed. */
static void lie(progress_peer *peer, hv_progress_own *own) {
  size_t kind = (size_t)(peer - peer->swarm->peers) % 3;
  if (kind == 0)
    own->epoch += 1000;
  else if (kind == 1)
    own->samples = own->before = HV_REPORT_SAMPLES_MAX;
  else
    own->speed = HV_REPORT_SPEED_MAX;
}

void swarm_progress_liars_play(swarm_run *run) {
  play(run, run->options->nodes / 20, lie, 0.8);
}
