/* States loaded by seeds: donors killed at random moments, and donors that lie. Each seed makes one swarm and lets several joiners
 * load at once; what each of them got is held against the honest donors' own memory, and the chunks that came are counted at the
 * joiner's door. And states on demand: a joiner gets one that was made after it had asked. */
#include "lib/demand_scene.h"
#include "sim/swarm/swarm.h"

#include <string.h>

enum { JOINERS = 4 };

typedef struct room {
  swarm_run *run;
  state_scene scene;
  size_t n, donors, liars; /* the first `donors` nodes offer; of them the last `liars` lie; joiners come behind */
  state_copy copies[STATE_NODES_MAX];
  state_offering offers[STATE_NODES_MAX];
  state_try tries[JOINERS];
  size_t killed, unplugged;
  hv_codec codec;
} room;

static uint64_t below(room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

/* Seven ways, in turn: the first five kinds of crooked donors, a false epoch, a false state under the right epoch. */
enum { FALSE_EPOCH = STATE_LIE_SLOW, FALSE_STATE, WAYS };

/* Which way a donor lies; WAYS: it does not. */
static size_t way_of(const room *r, size_t node) {
  size_t honest = r->donors - r->liars;
  return node >= honest && node < r->donors ? (node - honest + r->run->seed) % WAYS : WAYS;
}

static void add_nodes(room *r) {
  for (size_t i = 0; i < r->donors + JOINERS; i++)
    state_scene_add(&r->scene, way_of(r, i) < FALSE_EPOCH ? (state_lie)(way_of(r, i) + 1) : STATE_HONEST, 0);
  dht_swarm_run(&r->scene.swarm, 6);
}

static void offer_all(room *r, size_t values) {
  for (size_t i = 0; i < r->donors; i++) {
    size_t way = way_of(r, i);
    int is_false = way == FALSE_EPOCH || way == FALSE_STATE;
    state_copy_make(&r->copies[i], &r->run->mem, is_false ? 666 : 7, values, r->codec);
    state_offer(&r->scene, i, &r->offers[i], &r->copies[i], "run", way == FALSE_EPOCH ? 1000000000 : 40);
    r->offers[i].offer.priority = way < WAYS; /* liars push to the front */
  }
  dht_swarm_run(&r->scene.swarm, 4);
}

/* Donors die until an honest one is left, or a few among liars, at moments that fall within the downloads. */
static void kill_some(room *r, double window_s) {
  size_t stay = r->liars ? 3 : 1, most = r->donors - r->liars - stay, n = below(r, most + 1);
  for (size_t i = 0; i < n; i++) {
    size_t node = 1 + below(r, r->donors - r->liars - 1);
    dht_swarm_run(&r->scene.swarm, check_uniform(&r->run->rng) * window_s / (double)n);
    if (!hv_sim_alive(r->run->sim, node))
      continue;
    if (below(r, 4) == 0) {
      hv_sim_unplug(r->run->sim, node);
      r->unplugged++;
    } else {
      hv_sim_kill(r->run->sim, node);
      r->killed++;
    }
  }
}

static void checker(room *r, const state_try *try) {
  const hv_state_seen *seen = &try->load.seen;
  size_t twice = state_twice(try), ended = seen->broken + seen->given_up + seen->overtaken + seen->liars;
  swarm_figure(r->run, "loads", 1);
  swarm_figure(r->run, "chunks", (double)try->n_chunks);
  swarm_figure(r->run, "twice", (double)twice);
  swarm_figure(r->run, "deaths", seen->broken);
  swarm_figure(r->run, "given_up", seen->given_up);
  swarm_figure(r->run, "overtaken", seen->overtaken);
  swarm_figure(r->run, "liars", seen->liars);
  swarm_figure(r->run, "seconds", (double)(try->ended_us - try->started_us) / 1e6);
  if (!try->done)
    swarm_fail(r->run, "node %zu: its load did not end", try->node);
  else if (try->status != HV_OK)
    swarm_fail(r->run, "node %zu: %s: %s", try->node, hv_status_name(try->status), try->text);
  else if (try->epoch != 40 || !state_same(try, &r->copies[0]))
    swarm_fail(r->run, "node %zu: poisoned: it has another state than the honest ones", try->node);
  else if (twice > ended)
    swarm_fail(r->run, "node %zu: %zu chunks came twice, and only %zu streams ended", try->node, twice, ended);
}

static void play(swarm_run *run, size_t donors, size_t liars) {
  static room r;
  hv_sim_link slow = hv_sim_defaults(run->seed).link;
  r = (room){.run = run, .donors = donors, .liars = liars};
  r.codec = below(&r, 3) ? HV_CODEC_NONE : HV_CODEC_FLOAT16;
  state_scene_init(&r.scene, run->sim, &run->mem);
  add_nodes(&r);
  size_t values = 2000 + below(&r, 30000);
  offer_all(&r, values);
  slow.rate = 40000 + below(&r, 400000);
  double alone_s = (double)(values * sizeof(float) * JOINERS) / (double)slow.rate; /* if one served all */
  for (size_t i = 0; i < donors; i++)
    hv_sim_set_link(run->sim, i, HV_SIM_ANY, &slow);
  slow.rate /= 16;
  if (below(&r, 2) && donors > 4) /* one is much slower */
    hv_sim_set_link(run->sim, 1 + below(&r, 3), HV_SIM_ANY, &slow);
  for (size_t i = 0; i < JOINERS; i++)
    state_load(&r.scene, donors + i, &r.tries[i], "run", 300000);
  dht_swarm_run(&r.scene.swarm, 0.1);
  kill_some(&r, alone_s / 3);
  state_finish(&r.scene, r.tries, JOINERS, 400);
  for (size_t i = 0; i < JOINERS; i++)
    checker(&r, &r.tries[i]);
  swarm_figure(run, "killed", (double)r.killed);
  swarm_figure(run, "unplugged", (double)r.unplugged);
  dht_swarm_run(&r.scene.swarm, 60);
  for (size_t i = 0; i < JOINERS; i++)
    if (r.tries[i].load.loader)
      swarm_fail(run, "node %zu has a loader left", donors + i);
  for (size_t i = 0; i < donors; i++)
    if (hv_sim_alive(run->sim, i) && hv_state_uploads(hv_node_state(r.scene.swarm.seats[i].node)))
      swarm_fail(run, "node %zu has uploads left", i);
  swarm_over(run);
  state_scene_fini(&r.scene);
  for (size_t i = 0; i < JOINERS; i++)
    state_try_free(&r.tries[i]);
  for (size_t i = 0; i < donors; i++)
    state_copy_free(&r.copies[i]);
}

void swarm_state_play(swarm_run *run) {
  play(run, run->options->nodes > 6 ? run->options->nodes - JOINERS : 3, 0);
}

/* Three of ten lie: crooked chunks, a crooked manifest, silence, streams that break off, slowness, a false epoch, a false state. */
void swarm_state_liars_play(swarm_run *run) {
  size_t donors = run->options->nodes > 14 ? run->options->nodes - JOINERS : 10;
  play(run, donors, donors * 3 / 10);
}

/* ---- states on demand ---- */

enum { DEMAND_JOINERS = 8, DEMAND_SECONDS = 30, HOUR_MS = 3600000, FLOOD_US = 100000, STALE_S = 6 };

typedef struct demand_room {
  swarm_run *run;
  demand_scene scene;
  size_t donors;
  demand_joiner joiners[DEMAND_JOINERS], flood;
  uint64_t due_us[DEMAND_JOINERS], flood_us;
  int floods;
} demand_room;

static uint64_t draw(demand_room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

/* Most clocks are right within seconds, and some an hour off. */
static int64_t clock_off(demand_room *r) {
  return draw(r, 4) ? (int64_t)draw(r, 4000) - 2000 : draw(r, 2) ? HOUR_MS : -HOUR_MS;
}

/* One node asks all the time, with numbers that it draws. */
static void flood(demand_room *r, size_t node) {
  uint64_t now = hv_sim_now(r->run->sim);
  if (now < r->flood_us || !(r->flood.done || !r->flood.scene))
    return;
  r->flood_us = now + FLOOD_US;
  r->flood = (demand_joiner){.only_asks = 1, .number = draw(r, 2) ? demand_clock(&r->scene) + draw(r, 20000) : draw(r, UINT64_MAX)};
  demand_want(&r->scene, node, &r->flood);
}

static void let_join(demand_room *r) {
  uint64_t begin = hv_sim_now(r->run->sim);
  for (size_t i = 0; i < DEMAND_JOINERS; i++)
    r->due_us[i] = begin + draw(r, DEMAND_SECONDS * DHT_SECOND);
  size_t deaths = draw(r, r->donors - 2);
  uint64_t death_us = begin + draw(r, DEMAND_SECONDS * DHT_SECOND);
  r->floods = draw(r, 2) != 0;
  for (uint64_t now; (now = hv_sim_now(r->run->sim)) < begin + (DEMAND_SECONDS + 60) * DHT_SECOND;) {
    for (size_t i = 0; i < DEMAND_JOINERS; i++)
      if (r->due_us[i] && now >= r->due_us[i]) {
        r->due_us[i] = 0;
        r->joiners[i].clock_off_ms = clock_off(r);
        demand_want(&r->scene, r->donors + i, &r->joiners[i]);
      }
    if (r->floods && now < begin + DEMAND_SECONDS * DHT_SECOND)
      flood(r, r->donors + DEMAND_JOINERS);
    for (; deaths && now >= death_us; deaths--)
      draw(r, 2) ? hv_sim_kill(r->run->sim, deaths) : hv_sim_unplug(r->run->sim, deaths);
    demand_finish(&r->scene, r->joiners, DEMAND_JOINERS, 0.05);
    dht_swarm_run(&r->scene.s.swarm, 0.05);
  }
  swarm_figure(r->run, "floods", r->floods);
}

static void check_joiner(demand_room *r, const demand_joiner *j) {
  swarm_figure(r->run, "loads", 1);
  swarm_figure(r->run, "asks", j->tries);
  swarm_figure(r->run, "seconds", j->try.done ? (double)(j->try.ended_us - j->started_us) / 1e6 : 0);
  if (!j->done || j->status != HV_OK)
    swarm_fail(r->run, "node %zu: its load on demand ended with %s: %s", j->node, hv_status_name(j->status), j->try.text);
  else if (!state_same(&j->try, &r->scene.donors[0].copy))
    swarm_fail(r->run, "node %zu: it has another state than the donors", j->node);
  else if (demand_age(&r->scene, j) > (r->floods ? STALE_S : 0))
    swarm_fail(r->run, "node %zu: its state was made %.1f s before it asked", j->node, demand_age(&r->scene, j));
}

/* Donors die, one node floods them with questions, and clocks differ. */
void swarm_state_demand_play(swarm_run *run) {
  static demand_room r;
  r = (demand_room){.run = run, .donors = run->options->nodes > DEMAND_JOINERS + 4 ? run->options->nodes - DEMAND_JOINERS - 1 : 4};
  demand_scene_init(&r.scene, run->sim, &run->mem);
  for (size_t i = 0; i < r.donors + DEMAND_JOINERS + 1; i++)
    state_scene_add(&r.scene.s, STATE_HONEST, 0);
  dht_swarm_run(&r.scene.s.swarm, 6);
  size_t values = 2000 + draw(&r, 30000);
  for (size_t i = 0; i < r.donors; i++)
    demand_give(&r.scene, i, 7, values, (int64_t)draw(&r, 4000) - 2000);
  dht_swarm_run(&r.scene.s.swarm, 5);
  let_join(&r);
  for (size_t i = 0; i < DEMAND_JOINERS; i++)
    check_joiner(&r, &r.joiners[i]);
  size_t most = (DEMAND_SECONDS + 10) / 2 + 8; /* of one network, as all are here */
  for (size_t i = 0; i < r.donors; i++) {
    swarm_figure(run, "sharings", (double)r.scene.donors[i].n_given);
    if (r.scene.donors[i].n_twice)
      swarm_fail(run, "node %zu made two offers at the same time", i);
    if (r.scene.donors[i].n_given > most)
      swarm_fail(run, "node %zu made %zu offers, and %zu are the most", i, r.scene.donors[i].n_given, most);
  }
  dht_swarm_run(&r.scene.s.swarm, 60);
  swarm_over(run);
  demand_scene_fini(&r.scene);
  for (size_t i = 0; i < DEMAND_JOINERS; i++)
    state_try_free(&r.joiners[i].try);
}
