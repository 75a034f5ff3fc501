/* The DHT in trouble: joins, crashes, partitions, loss, skew; and what must be found afterwards.
 * The checker keeps its own book of what was stored when, in the world's true time, and never asks the protocol's own tables what
 * is right. */
#include "lib/dht_swarm.h"
#include "sim/swarm/swarm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t below(swarm_run *run, uint64_t n) {
  return check_random(&run->rng) % n;
}

static void quiet_links(swarm_run *run, uint64_t delay_us, uint64_t jitter_us) {
  hv_sim_link link = {.delay_us = delay_us, .jitter_us = jitter_us};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
}

static void over(swarm_run *run, dht_swarm *s) {
  swarm_over(run);
  dht_swarm_fini(s);
}

/* The fewest nodes that anyone alive can reach. */
static size_t least_reach(dht_swarm *s) {
  size_t least = s->n;
  for (size_t i = 0; i < s->n; i++)
    if (hv_sim_alive(s->sim, i)) {
      size_t reach = dht_swarm_reach(s, i);
      least = reach < least ? reach : least;
    }
  return least;
}

/* ---- join: random bootstrap lists, each reaching someone: one swarm within ten seconds ---- */

void swarm_dht_join_play(swarm_run *run) {
  enum { LISTED = 3, CLIENT_IN = 10 };
  dht_swarm s = {.config.num_replicas = 5};
  size_t n = run->options->nodes;
  dht_swarm_init(&s, run->sim, &run->mem, n);
  for (size_t i = 0; i < n; i++) {
    size_t lists[LISTED], listed = 0, serving = 0;
    for (size_t tries = 0; i && tries < LISTED; tries++) {
      size_t other = tries && below(run, 3) == 0 ? n + 5 : below(run, i); /* some of a list are nobody */
      serving += other < i && !s.seats[other].client_mode;
      lists[listed++] = other;
      if (serving && below(run, 2))
        break;
    }
    if (i && !serving)
      lists[0] = 0; /* each list reaches someone */
    dht_swarm_add(&s, lists, listed, i > 2 && below(run, CLIENT_IN) == 0);
    if (below(run, 3) == 0)
      dht_swarm_run(&s, (double)below(run, 1000) / 10000);
  }
  dht_swarm_run(&s, 10);
  size_t serving = dht_swarm_serving(&s), least = least_reach(&s);
  if (least < serving)
    swarm_fail(run, "after ten seconds somebody reaches only %zu of %zu nodes", least, serving);
  swarm_figure(run, "one_component", least == serving);
  over(run, &s);
}

/* ---- death: most nodes die at once ---- */

typedef struct death {
  swarm_run *run;
  dht_swarm s;
  dht_try *tries;
  size_t keys;
} death;

static void open_settled(swarm_run *run, dht_swarm *s, size_t n, size_t room) {
  s->hello_every_ms = 3600000; /* membership is not what is looked at here */
  s->peers_room = 2;
  dht_swarm_init(s, run->sim, &run->mem, room);
  for (size_t i = 0; i < n; i++) {
    size_t knows = i ? below(run, i) : 0;
    dht_swarm_add(s, &knows, i > 0, 0);
  }
  dht_swarm_run(s, 20);
}

static void name_of(size_t i, char key[64], char value[64]) {
  snprintf(key, 64, "key %zu", i);
  snprintf(value, 64, "value %zu", i);
}

static void store_all(death *d) {
  char key[64], value[64];
  for (size_t i = 0; i < d->keys; i++) {
    name_of(i, key, value);
    dht_swarm_store(&d->s, below(d->run, d->s.n), &d->tries[i], key, NULL, value, 3600000);
    if (i % 50 == 49)
      dht_swarm_run(&d->s, 0.2);
  }
  if (!dht_swarm_finish(&d->s, d->tries, d->keys, 60))
    swarm_fail(d->run, "a store does not end");
  for (size_t i = 0; i < d->keys; i++)
    if (d->tries[i].status != HV_OK)
      swarm_fail(d->run, "%s was not stored: %s", d->tries[i].key, d->tries[i].text);
}

static size_t random_alive(swarm_run *run, dht_swarm *s) {
  size_t node;
  do
    node = below(run, s->n);
  while (!hv_sim_alive(s->sim, node));
  return node;
}

static size_t get_all(death *d) {
  char key[64], value[64];
  size_t right = 0;
  for (size_t i = 0; i < d->keys; i++) {
    name_of(i, key, value);
    dht_swarm_get(&d->s, random_alive(d->run, &d->s), &d->tries[i], key, 0);
    if (i % 50 == 49)
      dht_swarm_run(&d->s, 0.2);
  }
  if (!dht_swarm_finish(&d->s, d->tries, d->keys, 60))
    swarm_fail(d->run, "a get does not end");
  for (size_t i = 0; i < d->keys; i++) {
    name_of(i, key, value);
    right += d->tries[i].found && d->tries[i].value_size == strlen(value) && memcmp(d->tries[i].value, value, strlen(value)) == 0;
  }
  return right;
}

/* Kills until so many of a thousand are dead; half of them without a word. */
static void die(death *d, size_t dead_of_1000) {
  size_t dead = 0, want = d->s.n * dead_of_1000 / 1000;
  for (size_t i = 0; i < d->s.n; i++)
    dead += !hv_sim_alive(d->s.sim, i);
  while (dead < want) {
    size_t node = random_alive(d->run, &d->s);
    if (below(d->run, 2))
      hv_sim_kill(d->s.sim, node);
    else
      hv_sim_unplug(d->s.sim, node);
    dead++;
  }
}

/* The chance that all of so many keepers are among the dead, whoever they are. */
static double all_die(double keepers, double dead, double nodes) {
  double chance = 1;
  for (double i = 0; i < keepers; i++)
    chance *= dead > i ? (dead - i) / (nodes - i) : 0;
  return chance;
}

/* Which keys are lost in one seed scatters: keys of one neighbourhood share their keepers and go together. The worth of the copies
 * is the mean over all choices of the dead, which can be counted; and since all that somebody still keeps is found (death_play sees
 * to it), that is the mean of what is found. In a small swarm `replicas` copies are worth more than 1 - p^replicas, since nobody
 * dies twice: there the aim is counted likewise. */
static void weigh_copies(death *d, size_t replicas, size_t dead_of_1000) {
  double copies = 0, more = 0, live = 0, nodes = (double)d->s.n, dead = floor(nodes * (double)dead_of_1000 / 1000);
  for (size_t i = 0; i < d->keys; i++) {
    size_t keepers = dht_swarm_keepers(&d->s, d->tries[i].key);
    copies += (double)keepers;
    more += keepers > replicas;
    live += 1 - all_die((double)keepers, dead, nodes);
  }
  enum { LARGE = 500 };
  double n = (double)d->keys,
         aim = 1 - (d->s.n < LARGE ? all_die((double)replicas, dead, nodes) : pow(dead / nodes, (double)replicas));
  swarm_figure(d->run, "copies_of_each", copies / n);
  swarm_figure(d->run, "share_with_more_copies", more / n);
  swarm_figure(d->run, "expected_to_live", live / n);
  swarm_figure(d->run, "aim", aim);
  if (fabs(live / n - aim) > 0.005)
    swarm_fail(d->run, "%.2f%% of the keys may be expected to live; with %zu copies it should be %.2f%%", 100 * live / n, replicas,
               100 * aim);
}

static void death_play(swarm_run *run, size_t replicas, size_t dead_of_1000, double least) {
  death d = {.run = run, .keys = run->options->nodes * 10, .s.config = {.num_replicas = replicas, .replicate_ms = 3600000}};
  if (d.keys > 10000)
    d.keys = 10000;
  d.tries = hv_mem_array(&run->mem, d.keys, sizeof *d.tries);
  quiet_links(run, 10000, 5000);
  open_settled(run, &d.s, run->options->nodes, run->options->nodes);
  store_all(&d);
  weigh_copies(&d, replicas, dead_of_1000);
  die(&d, dead_of_1000);
  size_t right = get_all(&d), kept = 0;
  for (size_t i = 0; i < d.keys; i++)
    kept += dht_swarm_keepers(&d.s, d.tries[i].key) > 0;
  swarm_figure(run, "keys", (double)d.keys);
  swarm_figure(run, "found", (double)right);
  swarm_figure(run, "still_kept_somewhere", (double)kept);
  if ((double)right < least * (double)d.keys)
    swarm_fail(run, "only %zu of %zu keys are found", right, d.keys);
  if ((double)right < 0.999 * (double)kept)
    swarm_fail(run, "only %zu of %zu keys that somebody still keeps are found", right, kept);
  swarm_over(run);
  hv_mem_free(d.tries);
  dht_swarm_fini(&d.s);
}

void swarm_dht_half_play(swarm_run *run) {
  death_play(run, 20, 500, 0.999);
}

void swarm_dht_three_quarters_play(swarm_run *run) {
  death_play(run, 20, 750, 0.99);
}

void swarm_dht_five_play(swarm_run *run) {
  death_play(run, 5, 500, 0.9);
}

/* ---- cost: a store in a small swarm asks those that keep it, and hardly anybody else ---- */

void swarm_dht_cost_play(swarm_run *run) {
  enum { REPLICAS = 5, EACH = 20, MANY = 10, FEW = 48 /* so many know one another */ };
  death d = {.run = run, .keys = run->options->nodes * EACH, .s.config = {.num_replicas = REPLICAS}};
  d.tries = hv_mem_array(&run->mem, d.keys, sizeof *d.tries);
  quiet_links(run, 10000, 5000);
  open_settled(run, &d.s, run->options->nodes, run->options->nodes);
  store_all(&d);
  double calls = 0, many = 0, most = 0;
  for (size_t i = 0; i < d.keys; i++) {
    double c = d.tries[i].op.calls;
    calls += c;
    many += c > MANY;
    most = c > most ? c : most;
  }
  swarm_figure(run, "stores", (double)d.keys);
  swarm_figure(run, "calls_of_stores", calls);
  swarm_figure(run, "stores_of_more_than_10_calls", many);
  swarm_figure(run, "most_calls_of_each_seed", most);
  if (d.s.n <= FEW && (calls > 1.5 * REPLICAS * (double)d.keys || most > (double)d.s.n))
    swarm_fail(run, "a store takes %.1f calls, and one took %.0f", calls / (double)d.keys, most);
  swarm_over(run);
  hv_mem_free(d.tries);
  dht_swarm_fini(&d.s);
}

/* ---- measures: in a swarm that has long been there ---- */

static int by_number(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void measure(death *d, uint64_t rtt_us, int warm) {
  double *ratios = hv_mem_array(&d->run->mem, d->keys, sizeof *ratios), rounds = 0, calls = 0;
  size_t n = 0;
  for (size_t i = 0; i < d->keys; i++) {
    const dht_try *try = &d->tries[i];
    rounds += try->op.rounds;
    calls += try->op.calls;
    if (try->op.rounds) /* else the asker kept it itself, and heard the others */
      ratios[n++] = (double)(try->ended_us - try->started_us) / ((double)try->op.rounds * (double)rtt_us);
  }
  qsort(ratios, n, sizeof *ratios, by_number);
  if (warm) {
    swarm_figure(d->run, "gets", (double)d->keys);
    swarm_figure(d->run, "rounds_sum", rounds);
    swarm_figure(d->run, "calls_sum", calls);
  }
  swarm_figure(d->run, warm ? "p50_latency_over_rounds_x_rtt" : "p50_with_first_contacts", ratios[n / 2]);
  swarm_figure(d->run, warm ? "p99_latency_over_rounds_x_rtt" : "p99_with_first_contacts", ratios[n * 99 / 100]);
  hv_mem_free(ratios);
}

/* Each key by the same node each time; returns how many are found. */
static size_t get_from_same(death *d) {
  size_t found = 0;
  for (size_t i = 0; i < d->keys; i++) {
    char key[64], value[64];
    name_of(i, key, value);
    dht_swarm_get(&d->s, i * 7919 % d->s.n, &d->tries[i], key, 0);
    dht_swarm_run(&d->s, 0.05);
  }
  dht_swarm_finish(&d->s, d->tries, d->keys, 60);
  for (size_t i = 0; i < d->keys; i++)
    found += (size_t)d->tries[i].found;
  return found;
}

/* Links of 20 ms: an answer takes 40, and a first contact as much again. Each get is made twice, the second time over connections
 * that stand. */
void swarm_dht_hops_play(swarm_run *run) {
  enum { LINK_US = 20000 };
  death d = {.run = run, .keys = 1000, .s.config = {.num_replicas = 5, .refresh_ms = UINT32_MAX, .replicate_ms = 3600000}};
  d.tries = hv_mem_array(&run->mem, d.keys, sizeof *d.tries);
  d.s.config.cache_nearest = d.s.config.cache_locally = -1;
  quiet_links(run, LINK_US, 0);
  d.s.hello_every_ms = 3600000;
  d.s.peers_room = 1;
  dht_swarm_init(&d.s, run->sim, &run->mem, run->options->nodes);
  for (size_t i = 0; i < run->options->nodes; i++)
    dht_swarm_add(&d.s, NULL, 0, 0);
  dht_swarm_run(&d.s, 0.001);
  dht_swarm_settle(&d.s);
  swarm_figure(run, "bytes_per_node", (double)atomic_load(&run->mem.used) / (double)d.s.n);
  store_all(&d);
  size_t right = get_from_same(&d);
  measure(&d, 2 * LINK_US, 0);
  right = get_from_same(&d) < right ? 0 : right;
  measure(&d, 2 * LINK_US, 1);
  if (right < d.keys)
    swarm_fail(run, "only %zu of %zu keys are found", right, d.keys);
  swarm_over(run);
  hv_mem_free(d.tries);
  dht_swarm_fini(&d.s);
}

/* ---- skew: clocks an hour apart; every record ends when it should (defect 17) ---- */

void swarm_dht_skew_play(swarm_run *run) {
  enum { KEYS = 60, TTL_S = 90, LATE_MS = 3000 };
  dht_swarm s = {.config = {.num_replicas = 5, .replicate_ms = 10000, .cache_locally = -1}};
  size_t n = run->options->nodes;
  dht_try *tries = hv_mem_array(&run->mem, KEYS, sizeof *tries);
  quiet_links(run, 10000, 5000);
  dht_swarm_init(&s, run->sim, &run->mem, n * 2);
  for (size_t i = 0; i < n; i++) {
    size_t knows = i ? below(run, i) : 0;
    s.seats[i].skew_us = (int64_t)below(run, UINT64_C(7200000000)) - INT64_C(3600000000);
    dht_swarm_add(&s, &knows, i > 0, 0);
  }
  dht_swarm_run(&s, 10);
  char key[160], value[64], who[HV_PEER_TEXT_MAX];
  for (size_t i = 0; i < KEYS; i++) {
    size_t writer = below(run, n);
    hv_peer_id id = hv_sim_target(run->sim, writer).id;
    snprintf(value, sizeof value, "value %zu", i);
    snprintf(key, sizeof key, i % 2 ? "k%zu" : "k%zu[owner:%s]", i, hv_peer_print(&id, who));
    dht_swarm_store(&s, writer, &tries[i], key, NULL, value, TTL_S * 1000);
  }
  dht_swarm_finish(&s, tries, KEYS, 10);
  uint64_t stored = hv_sim_now(run->sim);
  size_t lost = 0, late = 0;
  for (size_t i = 0; i < n / 2; i++) { /* replicas come and go meanwhile: records are handed on, again and again */
    size_t knows = random_alive(run, &s);
    if (i % 2)
      hv_sim_kill(run->sim, random_alive(run, &s));
    s.seats[s.n].skew_us = (int64_t)below(run, UINT64_C(7200000000)) - INT64_C(3600000000);
    dht_swarm_add(&s, &knows, 1, 0);
    dht_swarm_run(&s, (double)TTL_S * 0.8 / (double)(n / 2));
  }
  for (size_t i = 0; i < KEYS; i++)
    lost += dht_swarm_keepers(&s, tries[i].key) == 0;
  hv_sim_run_until(run->sim, stored + (TTL_S * UINT64_C(1000) + LATE_MS) * 1000);
  for (size_t i = 0; i < KEYS; i++)
    late += dht_swarm_keepers(&s, tries[i].key);
  swarm_figure(run, "keys", KEYS);
  swarm_figure(run, "lost_early", (double)lost);
  swarm_figure(run, "kept_late", (double)late);
  if (lost || late)
    swarm_fail(run, "%zu records were lost before their time, %zu copies are kept beyond it", lost, late);
  swarm_over(run);
  hv_mem_free(tries);
  dht_swarm_fini(&s);
}

/* ---- trouble: everything at once ---- */

enum { KEYS = 24, VALUES_MAX = 512, ERRAND_US = 400000, CLIENTS_IN = 8, LATE_US = 60000000 };

typedef struct written {
  size_t key;
  uint64_t begun_us, ends_us; /* by the world's clock, at the latest */
} written;

typedef struct errand {
  struct errand *next;
  dht_try try;
  size_t key, value;
  int checked;
} errand;

typedef struct trouble {
  swarm_run *run;
  dht_swarm s;
  size_t writers[KEYS];
  char keys[KEYS][100];
  written values[VALUES_MAX];
  size_t n_values;
  errand *errands;
} trouble;

static void check_errand(trouble *t, errand *e) {
  char text[65] = "";
  unsigned value;
  e->checked = 1;
  swarm_figure(t->run, e->try.is_get ? "gets" : "stores", 1);
  swarm_figure(t->run, e->try.is_get ? "gets_found" : "stores_ok", e->try.is_get ? e->try.found : e->try.status == HV_OK);
  if (!e->try.is_get || !e->try.found)
    return;
  memcpy(text, e->try.value, e->try.value_size);
  if (sscanf(text, "value %u", &value) != 1 || value >= t->n_values || t->values[value].key != e->key)
    swarm_fail(t->run, "%s gave '%s', which nobody stored there", t->keys[e->key], text);
  else if (t->values[value].ends_us < e->try.started_us)
    swarm_fail(t->run, "%s gave '%s', which ended long ago", t->keys[e->key], text);
}

static void check_errands(trouble *t) {
  for (errand *e = t->errands; e; e = e->next)
    if (e->try.done && !e->checked)
      check_errand(t, e);
}

static errand *new_errand(trouble *t, size_t key) {
  errand *e = hv_mem_zalloc(&t->run->mem, sizeof *e);
  if (!e)
    abort();
  e->next = t->errands;
  e->key = key;
  t->errands = e;
  return e;
}

static errand *write_one(trouble *t, size_t key, uint64_t ttl_ms) {
  char value[64];
  errand *e = new_errand(t, key);
  size_t number = t->n_values++;
  snprintf(value, sizeof value, "value %zu", number);
  uint64_t now = hv_sim_now(t->run->sim);
  t->values[number] = (written){key, now, now + ttl_ms * 1000 + LATE_US};
  e->value = number;
  dht_swarm_store(&t->s, t->writers[key], &e->try, t->keys[key], NULL, value, ttl_ms);
  return e;
}

static void one_more_errand(hv_sim *sim, void *arg) {
  trouble *t = arg;
  uint64_t next = hv_sim_now(sim) + below(t->run, 2 * ERRAND_US);
  size_t key = below(t->run, KEYS);
  check_errands(t);
  if (next < t->run->calm_us)
    hv_sim_at(sim, next, one_more_errand, t);
  if (below(t->run, 3) == 0 && t->n_values < VALUES_MAX - KEYS)
    write_one(t, key, 2000 + below(t->run, 60000));
  else
    dht_swarm_get(&t->s, below(t->run, t->s.n), &new_errand(t, key)->try, t->keys[key], (int)below(t->run, 2));
}

/* In the calm: what is stored anew, everybody gets. */
static void last_word(trouble *t) {
  errand *stored[KEYS], *got[KEYS];
  for (size_t i = 0; i < KEYS; i++) {
    while (!hv_sim_alive(t->run->sim, t->writers[i]))
      hv_sim_restart(t->run->sim, t->writers[i]);
  }
  dht_swarm_run(&t->s, 45);
  size_t serving = dht_swarm_serving(&t->s), least = least_reach(&t->s);
  if (least < serving)
    swarm_fail(t->run, "long after the last fault somebody reaches only %zu of %zu nodes", least, serving);
  for (size_t i = 0; i < KEYS; i++)
    stored[i] = write_one(t, i, 600000 + (uint64_t)i);
  dht_swarm_run(&t->s, 15);
  for (size_t i = 0; i < KEYS; i++) {
    size_t node = random_alive(t->run, &t->s);
    if (!stored[i]->try.done || stored[i]->try.status != HV_OK)
      swarm_fail(t->run, "%s could not be stored in the calm: %s", t->keys[i], stored[i]->try.text);
    got[i] = new_errand(t, i);
    dht_swarm_get(&t->s, node, &got[i]->try, t->keys[i], 1);
  }
  dht_swarm_run(&t->s, 15);
  for (size_t i = 0; i < KEYS; i++) {
    char value[64];
    snprintf(value, sizeof value, "value %zu", stored[i]->value);
    if (!got[i]->try.found || got[i]->try.value_size != strlen(value) || memcmp(got[i]->try.value, value, strlen(value)) != 0)
      swarm_fail(t->run, "%s is not '%s' for everybody in the calm, but '%.*s' (%s)", t->keys[i], value,
                 (int)got[i]->try.value_size, (const char *)got[i]->try.value, hv_status_name(got[i]->try.status));
  }
  check_errands(t);
}

void swarm_dht_play(swarm_run *run) {
  trouble *t = hv_mem_zalloc(&run->mem, sizeof *t);
  if (!t)
    abort();
  t->run = run;
  t->s.hello_every_ms = 4000;
  t->s.config.replicate_ms = 15000;
  dht_swarm_init(&t->s, run->sim, &run->mem, run->options->nodes);
  for (size_t i = 0; i < run->options->nodes; i++) {
    size_t knows[2] = {0, i ? below(run, i) : 0};
    hv_sim_node_config seat = {.skew_us = 0};
    swarm_seat(run, &seat);
    t->s.seats[i].skew_us = seat.skew_us;
    dht_swarm_add(&t->s, knows, i ? 2 : 0, i && below(run, CLIENTS_IN) == 0);
  }
  for (size_t i = 0; i < KEYS; i++) {
    char who[HV_PEER_TEXT_MAX];
    t->writers[i] = below(run, t->s.n);
    hv_peer_id id = hv_sim_target(run->sim, t->writers[i]).id;
    snprintf(t->keys[i], sizeof t->keys[i], i % 2 ? "key %zu" : "key %zu[owner:%s]", i, hv_peer_print(&id, who));
  }
  swarm_trouble(run);
  hv_sim_at(run->sim, 2000000, one_more_errand, t);
  hv_sim_run_until(run->sim, run->calm_us);
  last_word(t);
  for (errand *e = t->errands; e; e = e->next)
    if (!e->try.done)
      swarm_fail(run, "an op on %s never ended", t->keys[e->key]);
  swarm_over(run);
  while (t->errands) {
    errand *e = t->errands;
    t->errands = e->next;
    hv_mem_free(e);
  }
  dht_swarm_fini(&t->s);
  hv_mem_free(t);
}
