#include "lib/progress_swarm.h"

#include <stdlib.h>
#include <string.h>

void progress_swarm_init(progress_swarm *swarm, hv_sim *sim, hv_mem *mem, size_t room) {
  dht_swarm_init(&swarm->dht, sim, mem, room);
  swarm->peers = calloc(room, sizeof *swarm->peers);
  if (!swarm->peers)
    abort();
  for (size_t i = 0; i < room; i++)
    swarm->peers[i].swarm = swarm;
}

void progress_swarm_fini(progress_swarm *swarm) {
  dht_swarm_fini(&swarm->dht);
  free(swarm->peers);
}

static size_t number_of(const progress_peer *peer) {
  return (size_t)(peer - peer->swarm->peers);
}

/* Whole batches since the epoch began; the clock that counts is the node's own, and stands as far from the world's as the seat
 * says. */
static hv_progress_own own_of(progress_peer *peer, uint64_t world_us, uint64_t node_us) {
  hv_progress_own own = {
      .any = peer->any, .epoch = peer->epoch, .before = peer->before, .speed = peer->speed, .serial = peer->serial};
  uint64_t begun = peer->epoch_us + peer->lag_us, batch = peer->batch ? peer->batch : 1, stood_us = 0;
  if (peer->still_us && peer->still_us < world_us) {
    stood_us = world_us - peer->still_us;
    world_us = peer->still_us;
  }
  own.step = batch;
  double done = peer->carried + (world_us > begun ? peer->speed * (double)(world_us - begun) * 1e-6 : 0);
  own.samples = (uint64_t)(done / (double)batch) * batch;
  double ago_us = (double)stood_us + (peer->speed > 0 ? (done - (double)own.samples) / peer->speed * 1e6 : 0);
  own.at_us = (double)node_us > ago_us ? node_us - (uint64_t)ago_us : 0;
  if (peer->lie)
    peer->lie(peer, &own);
  return own;
}

static void say_own(void *arg, hv_progress_own *out) {
  progress_peer *peer = arg;
  hv_env *env = peer->swarm->dht.seats[number_of(peer)].env;
  *out = own_of(peer, hv_sim_now(peer->swarm->dht.sim), env->now_us(env));
}

static void has_ended(void *arg) {
  ((progress_peer *)arg)->tracker = NULL;
}

static void run_open(hv_command *command, void *core) {
  progress_peer *peer = (progress_peer *)((char *)command - offsetof(progress_peer, command));
  const char *prefix = peer->swarm->prefix ? peer->swarm->prefix : "run";
  hv_progress_config config = {.prefix = hv_span_of(prefix, strlen(prefix)),
                               .terms = peer->swarm->terms,
                               .client_mode = peer->swarm->dht.seats[number_of(peer)].client_mode,
                               .own = say_own,
                               .ended = has_ended,
                               .arg = peer};
  peer->opened = core ? hv_progress_open(hv_node_progress(core), &config, &peer->tracker, NULL) : HV_CLOSED;
  if (peer->opened != HV_OK)
    peer->tracker = NULL;
}

static void run_close(hv_command *command, void *core) {
  progress_peer *peer = (progress_peer *)((char *)command - offsetof(progress_peer, command));
  if (core && peer->tracker)
    hv_progress_close(peer->tracker);
  peer->tracker = NULL;
}

static void run_wake(hv_command *command, void *core) {
  progress_peer *peer = (progress_peer *)((char *)command - offsetof(progress_peer, command));
  if (core && peer->tracker)
    hv_progress_wake(peer->tracker, 0);
}

static void post(progress_swarm *swarm, size_t node, void (*run)(hv_command *, void *)) {
  swarm->peers[node].command = (hv_command){.run = run};
  if (hv_sim_command(swarm->dht.sim, node, &swarm->peers[node].command) != HV_OK)
    abort();
  hv_sim_run_until(swarm->dht.sim, hv_sim_now(swarm->dht.sim));
}

void progress_swarm_open(progress_swarm *swarm, size_t node) {
  post(swarm, node, run_open);
}

void progress_swarm_close(progress_swarm *swarm, size_t node) {
  post(swarm, node, run_close);
}

void progress_swarm_wake(progress_swarm *swarm, size_t node) {
  post(swarm, node, run_wake);
}

void progress_swarm_work(progress_swarm *swarm, size_t node, double speed) {
  progress_peer *peer = &swarm->peers[node];
  hv_progress_own own = progress_swarm_own(swarm, node);
  peer->carried = peer->any ? (double)own.samples : 0;
  peer->any = 1;
  peer->speed = speed;
  peer->still_us = 0;
  peer->epoch_us = hv_sim_now(swarm->dht.sim);
}

void progress_swarm_still(progress_swarm *swarm, size_t node) {
  swarm->peers[node].still_us = hv_sim_now(swarm->dht.sim);
}

void progress_swarm_begin(progress_swarm *swarm, size_t node, uint64_t epoch) {
  progress_peer *peer = &swarm->peers[node];
  hv_progress_own own = progress_swarm_own(swarm, node);
  peer->before = epoch == peer->epoch + 1 ? own.samples : 0;
  peer->serial++;
  peer->epoch = epoch;
  peer->carried = 0;
  peer->any = 1;
  peer->epoch_us = hv_sim_now(swarm->dht.sim);
}

hv_progress_own progress_swarm_own(progress_swarm *swarm, size_t node) {
  hv_env *env = swarm->dht.seats[node].env;
  return own_of(&swarm->peers[node], hv_sim_now(swarm->dht.sim), hv_sim_alive(swarm->dht.sim, node) ? env->now_us(env) : 0);
}

hv_progress_figures progress_swarm_read(progress_swarm *swarm, size_t node) {
  hv_progress_figures figures = {0};
  hv_progress_terms terms = swarm->terms;
  hv_progress_own own = progress_swarm_own(swarm, node);
  hv_env *env = swarm->dht.seats[node].env;
  hv_progress_check(&terms, NULL);
  if (swarm->peers[node].tracker && hv_sim_alive(swarm->dht.sim, node))
    hv_progress_now(hv_progress_look(swarm->peers[node].tracker), &own, &terms, env->now_us(env), &figures);
  return figures;
}
