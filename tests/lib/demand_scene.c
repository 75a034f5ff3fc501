#include "lib/demand_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 8 };
static const uint64_t EPOCH_MS = 1700000000000;

/* One scene at a time, as in state_scene.c. */
static demand_scene *current;
static void (*state_see)(dht_seat *seat, const hv_event *event);

static void must(int held, const char *what) {
  if (held)
    return;
  fprintf(stderr, "the scenario itself failed: %s\n", what);
  abort();
}

static void see_requests(dht_seat *seat, const hv_event *event) {
  current->n_requests += event->kind == HV_EVENT_REQUEST && event->msg->kind == HV_MSG_STATE_WANTED;
  state_see(seat, event);
}

void demand_scene_init(demand_scene *scene, hv_sim *sim, hv_mem *mem) {
  memset(scene, 0, sizeof *scene);
  state_scene_init(&scene->s, sim, mem);
  current = scene;
  state_see = scene->s.swarm.see;
  scene->s.swarm.see = see_requests;
}

void demand_scene_fini(demand_scene *scene) {
  state_scene_fini(&scene->s);
  for (size_t i = 0; i < scene->n_donors; i++)
    state_copy_free(&scene->donors[i].copy);
}

uint64_t demand_clock(const demand_scene *scene) {
  return EPOCH_MS + hv_sim_now(scene->s.swarm.sim) / 1000;
}

/* ---- donors ---- */

static void wait_again(demand_donor *d);

static void offered(hv_state_offer *offer, hv_status status, const char *text) {
  demand_donor *d = (demand_donor *)((char *)offer - offsetof(demand_donor, offering) - offsetof(state_offering, offer));
  (void)text;
  d->giving = 0;
  if (status == HV_OK || status == HV_NOMEM)
    wait_again(d);
}

static void wanted(hv_state_wait *wait, hv_status status, const char *text) {
  demand_donor *d = wait->owner;
  demand_scene *scene = d->scene;
  hv_state_offer *offer = &d->offering.offer;
  (void)text;
  d->status = status;
  if (status != HV_OK) {
    d->over = 1;
    return;
  }
  hv_sim_say(scene->s.swarm.sim, "node %zu makes an offer under %llu", d->node, (unsigned long long)wait->number);
  d->n_twice += d->giving != 0;
  d->giving = 1;
  d->n_given++;
  must(scene->n_given < DEMAND_GIVEN_MAX, "too many sharings");
  scene->given[scene->n_given].number = wait->number;
  scene->given[scene->n_given++].at_us = hv_sim_now(scene->s.swarm.sim);
  *offer = (hv_state_offer){.done = offered,
                            .prefix = hv_span_of("run", 3),
                            .epoch = wait->number,
                            .bytes = &d->copy.payload,
                            .parts = d->copy.parts,
                            .metadata = hv_span_of("m", 1)};
  memset(offer->lineage, 7, sizeof offer->lineage);
  hv_status started = hv_state_offer_start(hv_node_state(scene->s.swarm.seats[d->node].node), offer, NULL);
  must(started == HV_OK || started == HV_NOMEM, "an offer did not start");
  if (started != HV_OK)
    offered(offer, started, "");
}

static void wait_again(demand_donor *d) {
  d->wait = (hv_state_wait){
      .done = wanted, .owner = d, .prefix = hv_span_of("run", 3), .clock_ms = demand_clock(d->scene) + d->clock_off_ms};
  d->status = hv_state_wait_start(hv_node_state(d->scene->s.swarm.seats[d->node].node), &d->wait, NULL);
  must(d->status == HV_OK || d->status == HV_NOMEM, "a wait did not start");
  d->over = d->status != HV_OK;
}

static void run_wait(hv_command *command, void *core) {
  demand_donor *d = (demand_donor *)((char *)command - offsetof(demand_donor, command));
  if (core)
    wait_again(d);
}

void demand_give(demand_scene *scene, size_t node, uint64_t number, size_t values, int64_t clock_off_ms) {
  demand_donor *d = &scene->donors[scene->n_donors++];
  must(scene->n_donors <= DEMAND_DONORS_MAX, "too many donors");
  *d = (demand_donor){.scene = scene, .node = node, .command.run = run_wait, .clock_off_ms = (uint64_t)clock_off_ms};
  state_copy_make(&d->copy, scene->s.mem, number, values, HV_CODEC_NONE);
  must(hv_sim_command(scene->s.swarm.sim, node, &d->command) == HV_OK, "no memory for a command");
}

static void run_end(hv_command *command, void *core) {
  (void)command;
  if (core)
    hv_state_wait_end(hv_node_state(core), hv_span_of("run", 3));
}

void demand_end(demand_scene *scene, demand_donor *d) {
  d->command = (hv_command){.run = run_end};
  must(hv_sim_command(scene->s.swarm.sim, d->node, &d->command) == HV_OK, "no memory for a command");
}

/* ---- joiners ---- */

static void ask(demand_joiner *j);

static void agreed(hv_state_want *want, hv_status status, const char *text) {
  demand_joiner *j = want->owner;
  must(status == HV_OK || strlen(text) > 10, "an error without a sentence");
  hv_sim_say(j->scene->s.swarm.sim, "node %zu wants a state: %zu donors agree to %llu, %s", j->node, want->n_donors,
             (unsigned long long)want->number, hv_status_name(status));
  j->status = status;
  j->number = want->number;
  if (status != HV_OK || j->only_asks) {
    j->done = 1;
    return;
  }
  state_load(&j->scene->s, j->node, &j->try, "run", 60000);
  j->try.load.epoch_least = want->number;
}

static void run_ask(hv_command *command, void *core) {
  demand_joiner *j = (demand_joiner *)((char *)command - offsetof(demand_joiner, command));
  hv_error why = {0};
  hv_status status = core ? hv_state_want_start(hv_node_state(core), &j->want, &why) : HV_CLOSED;
  if (status == HV_OK)
    return;
  j->done = 1;
  j->status = status;
}

static void ask(demand_joiner *j) {
  demand_scene *scene = j->scene;
  j->tries++;
  j->command = (hv_command){.run = run_ask};
  j->want = (hv_state_want){.done = agreed, .owner = j, .prefix = hv_span_of("run", 3), .number = j->number};
  must(hv_sim_command(scene->s.swarm.sim, j->node, &j->command) == HV_OK, "no memory for a command");
}

void demand_want(demand_scene *scene, size_t node, demand_joiner *j) {
  *j = (demand_joiner){.scene = scene,
                       .node = node,
                       .only_asks = j->only_asks,
                       .clock_off_ms = j->clock_off_ms,
                       .number = j->number ? j->number : demand_clock(scene) + (uint64_t)j->clock_off_ms,
                       .started_us = hv_sim_now(scene->s.swarm.sim)};
  ask(j);
}

typedef struct waiting {
  demand_joiner *joiners;
  size_t n;
} waiting;

/* A load that found no offer, or several without a majority, asks again: the donors may still be making it. */
static int asks_again(const demand_joiner *j) {
  return !j->done && j->try.done && (j->try.status == HV_NOT_FOUND || j->try.status == HV_STATE) && j->tries < TRIES;
}

static int all_done(void *arg) {
  waiting *w = arg;
  size_t n = 0;
  for (demand_joiner *j = w->joiners; j < w->joiners + w->n; j++) {
    if (asks_again(j)) {
      if (j->try.status == HV_STATE)
        j->number = demand_clock(j->scene) + (uint64_t)j->clock_off_ms;
      state_try_free(&j->try);
      memset(&j->try, 0, sizeof j->try);
      ask(j);
    } else if (!j->done && j->try.done) {
      j->status = j->try.status;
      j->done = 1;
    }
    n += j->done != 0;
  }
  return n == w->n;
}

int demand_finish(demand_scene *scene, demand_joiner *joiners, size_t n, double seconds) {
  waiting w = {joiners, n};
  return hv_sim_drive(scene->s.swarm.sim, all_done, &w, hv_sim_now(scene->s.swarm.sim) + (uint64_t)(seconds * (double)DHT_SECOND));
}

double demand_age(const demand_scene *scene, const demand_joiner *j) {
  uint64_t oldest = UINT64_MAX;
  for (size_t i = 0; i < scene->n_given; i++)
    if (scene->given[i].number == j->try.epoch && scene->given[i].at_us < oldest)
      oldest = scene->given[i].at_us;
  return oldest < j->started_us ? (double)(j->started_us - oldest) / (double)DHT_SECOND : 0;
}
