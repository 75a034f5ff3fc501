/* Gifts by seeds: trainers that only dial out give their states to a hub, and joiners load them from it, while nodes are killed,
 * stopped and cut off. Judged: what the hub takes and what a joiner loads is the state of its epoch, bit by bit; the hub holds two
 * states at most; once all is calm, the hub has a state of the epoch then, and a joiner gets it; and nothing is left allocated. */
#include "lib/gift_scene.h"
#include "sim/swarm/swarm.h"

#include <string.h>

enum { JOINERS = 4, JOINER_S = 60, HUB_S = 150, TRIES = 4 };

typedef struct room {
  swarm_run *run;
  gift_scene scene;
  size_t joiners[JOINERS]; /* their nodes */
  state_try tries[JOINERS];
  int begun[JOINERS];
  size_t meetings, loads;
} room;

static uint64_t draw(room *r, uint64_t n) {
  return check_random(&r->run->rng) % n;
}

static void checker(room *r, state_try *try, int must_have) {
  if (try->done && try->status == HV_OK && !gift_same(&r->scene, try))
    swarm_fail(r->run, "node %zu loaded other bits than those of epoch %llu", try->node, (unsigned long long)try->epoch);
  if (must_have && !try->done)
    swarm_fail(r->run, "node %zu: its load did not end", try->node);
  else if (must_have && try->status != HV_OK)
    swarm_fail(r->run, "node %zu: %s: %s", try->node, hv_status_name(try->status), try->text);
  r->loads += try->done && try->status == HV_OK;
  state_try_free(try);
}

/* A joiner begins, and ends, at moments of its own: in trouble it may find nothing. */
static void let_join(room *r, size_t i) {
  if (!r->begun[i] && draw(r, 40) == 0 && hv_sim_alive(r->run->sim, r->joiners[i])) {
    r->begun[i] = 1;
    state_load(&r->scene.s, r->joiners[i], &r->tries[i], "run", JOINER_S * 1000);
  } else if (r->begun[i] && r->tries[i].done) {
    checker(r, &r->tries[i], 0);
    r->begun[i] = 0;
  }
}

static void live(room *r) {
  uint64_t epoch_us = hv_sim_now(r->run->sim);
  while (hv_sim_now(r->run->sim) < r->run->calm_us) {
    uint64_t now = hv_sim_now(r->run->sim);
    gift_scene_run(&r->scene, GIFT_TICK_MS / 1000.0);
    for (size_t i = 0; i < JOINERS; i++)
      let_join(r, i);
    if (now < epoch_us)
      continue;
    epoch_us = now + 1000000 + draw(r, 12000000);
    if (draw(r, 4) == 0) {
      r->meetings++;
      gift_scene_meet(&r->scene, draw(r, r->scene.n_clients));
    } else
      gift_scene_next_epoch(&r->scene);
  }
}

/* No more faults: one trainer at least lives, and the hub. */
static void settle(room *r) {
  swarm_run *run = r->run;
  gift_scene_run(&r->scene, 1);
  for (size_t i = 0; i <= 1; i++)
    if (!hv_sim_alive(run->sim, i))
      hv_sim_restart(run->sim, i);
  uint64_t epoch = r->scene.epoch;
  if (!gift_scene_await(&r->scene, epoch, HUB_S))
    swarm_fail(run, "the hub has the state of epoch %llu and not that of %llu, %d s after all was calm",
               (unsigned long long)r->scene.hub.keep.held.epoch, (unsigned long long)epoch, HUB_S);
  for (size_t i = 0; i < JOINERS; i++)
    if (r->begun[i]) {
      state_finish(&r->scene.s, &r->tries[i], 1, JOINER_S + 10);
      checker(r, &r->tries[i], 0);
    }
  state_try *last = &r->tries[0];
  last->done = 0;
  size_t node = state_scene_add(&r->scene.s, STATE_HONEST, 1);
  for (int i = 0; i < TRIES && !(last->done && last->status == HV_OK); i++) { /* as a program does, where messages are lost */
    gift_scene_run(&r->scene, 5);
    state_try_free(last);
    state_load(&r->scene.s, node, last, "run", JOINER_S * 1000);
    state_finish(&r->scene.s, last, 1, JOINER_S + 10);
  }
  if (last->done && last->status == HV_OK && last->epoch < epoch)
    swarm_fail(run, "node %zu loaded epoch %llu, and the hub has %llu", node, (unsigned long long)last->epoch,
               (unsigned long long)epoch);
  checker(r, last, 1);
}

void swarm_state_gifts_play(swarm_run *run) {
  static room r;
  size_t clients = run->options->nodes > JOINERS + 3 ? run->options->nodes - JOINERS - 1 : 3;
  r = (room){.run = run};
  size_t values = 2000 + draw(&r, 60000);
  hv_codec codec = draw(&r, 3) ? HV_CODEC_NONE : HV_CODEC_FLOAT16;
  gift_scene_init(&r.scene, run->sim, &run->mem, clients < GIFT_CLIENTS_MAX ? clients : GIFT_CLIENTS_MAX, values, codec);
  for (size_t i = 0; i < JOINERS; i++)
    r.joiners[i] = state_scene_add(&r.scene.s, STATE_HONEST, 1);
  hv_sim_link line = hv_sim_defaults(run->seed).link;
  line.loss = run->options->faults & SWARM_LOSS ? 0.02 : 0;
  line.rate = 20000 + draw(&r, 200000); /* homes have slow lines */
  for (size_t i = 1; i <= r.scene.n_clients; i++)
    hv_sim_set_link(run->sim, i, HV_SIM_ANY, &line);
  swarm_trouble(run);
  live(&r);
  settle(&r);
  if (r.scene.broken[0])
    swarm_fail(run, "%s", r.scene.broken);
  size_t given = 0, arrived = 0;
  for (size_t i = 0; i < r.scene.n_clients; i++) {
    given += r.scene.clients[i].n_given;
    arrived += r.scene.clients[i].n_arrived;
  }
  swarm_figure(run, "epochs", (double)r.scene.epoch);
  swarm_figure(run, "meetings", (double)r.meetings);
  swarm_figure(run, "given", (double)given);
  swarm_figure(run, "arrived", (double)arrived);
  swarm_figure(run, "taken", (double)r.scene.hub.n_taken);
  swarm_figure(run, "loads", (double)r.loads);
  swarm_figure(run, "bound", (double)r.scene.hub.bytes_peak / (double)(HV_KEEP_STATES * r.scene.size_max));
  while (hv_sim_now(run->sim) < run->end_us)
    gift_scene_run(&r.scene, 1);
  swarm_over(run);
  swarm_trouble_fini(run);
  gift_scene_fini(&r.scene);
}
