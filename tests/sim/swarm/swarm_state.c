/* States loaded by seeds: donors killed at random moments, and donors that lie. Each seed makes one swarm and lets several joiners
 * load at once; what each of them got is held against the honest donors' own memory, and the chunks that came are counted at the
 * joiner's door. */
#include "lib/state_scene.h"
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
