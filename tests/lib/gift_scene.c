#include "lib/gift_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int held, const char *what) {
  if (held)
    return;
  fprintf(stderr, "the scenario itself failed: %s\n", what);
  abort();
}

static void broke(gift_scene *scene, const char *what) {
  if (!scene->broken[0])
    snprintf(scene->broken, sizeof scene->broken, "%s", what);
}

static hv_span prefix(void) {
  return hv_span_of("run", 3);
}

static hv_node *node_of(gift_scene *scene, size_t node) {
  return scene->s.swarm.seats[node].node;
}

/* ---- trainers ---- */

static void given(hv_state_offer *offer, hv_status status, const char *text) {
  gift_given *g = offer->owner;
  (void)text;
  must(!g->done, "a gift was done twice");
  g->done = status == HV_OK ? 1 : 2;
  hv_payload_release(&g->copy.payload);
}

/* Frees the gifts that are over. */
static void sweep(gift_client *c) {
  for (gift_given **at = &c->given, *g; (g = *at);) {
    if (!g->done || !g->copy.freed) {
      at = &g->next;
      continue;
    }
    *at = g->next;
    c->n_arrived += g->done == 1;
    state_copy_free(&g->copy);
    hv_mem_free(g);
  }
}

static void give(gift_client *c, hv_node *node) {
  gift_scene *scene = c->scene;
  hv_peer_id hub = hv_sim_target(scene->s.swarm.sim, GIFT_HUB).id;
  gift_given *g = hv_mem_zalloc(scene->s.mem, sizeof *g);
  must(g != NULL, "no memory for a gift");
  state_copy_make(&g->copy, scene->s.mem, scene->epoch, scene->values, scene->codec);
  snprintf(g->metadata, sizeof g->metadata, "metadata of epoch %llu", (unsigned long long)scene->epoch);
  g->give = (hv_gift_give){.state = {.done = given,
                                     .owner = g,
                                     .prefix = prefix(),
                                     .epoch = scene->epoch,
                                     .bytes = &g->copy.payload,
                                     .parts = g->copy.parts,
                                     .metadata = hv_span_of(g->metadata, strlen(g->metadata))},
                           .hubs = c->must_give ? &hub : NULL,
                           .n_hubs = c->must_give != 0};
  memset(g->give.state.lineage, (int)scene->epoch, sizeof g->give.state.lineage);
  memcpy(g->give.ticket, c->ticket, sizeof c->ticket);
  c->must_give = 0;
  g->next = c->given;
  c->given = g;
  c->n_given++;
  hv_status status = hv_givers_give(hv_node_givers(node), &g->give, NULL);
  if (status != HV_OK)
    given(&g->give.state, status, "");
}

static void asked(hv_gift_wait *wait, hv_status status, const char *text) {
  gift_client *c = wait->owner;
  (void)text;
  must(c->waits, "a wait was done twice");
  c->waits = 0;
  c->is_asked = status == HV_OK;
}

static void client_runs(hv_command *command, void *core) {
  gift_client *c = (gift_client *)((char *)command - offsetof(gift_client, command));
  c->posted = 0;
  sweep(c);
  if (!core)
    return;
  c->seen_us = hv_sim_now(c->scene->s.swarm.sim);
  c->epoch = c->scene->epoch;
  if (c->must_give || (c->is_asked && c->epoch >= c->wait.least)) {
    c->is_asked &= c->must_give;
    give(c, core);
  }
  if (c->waits || c->is_asked)
    return;
  c->wait = (hv_gift_wait){.done = asked, .owner = c, .prefix = prefix(), .is_urgent = c->is_urgent};
  c->waits = 1;
  if (hv_givers_wait(hv_node_givers(core), &c->wait, NULL) != HV_OK)
    c->waits = 0;
}

/* ---- the hub ---- */

static void let_go(hv_payload *payload) {
  gift_held *h = (gift_held *)((char *)payload - offsetof(gift_held, payload)), **at = &h->scene->hub.held;
  while (*at != h)
    at = &(*at)->next;
  *at = h->next;
  h->scene->hub.bytes -= h->size;
  hv_mem_free(h->image);
  hv_mem_free(h);
}

static uint8_t *room(hv_state_load *load, const hv_manifest *manifest) {
  gift_scene *scene = load->owner;
  gift_hub *hub = &scene->hub;
  if (hub->arriving) {
    hub->bytes -= hub->arriving->size;
    hv_mem_free(hub->arriving->image);
    hv_mem_free(hub->arriving);
    hub->arriving = NULL;
  }
  if (!manifest)
    return NULL;
  gift_held *h = hub->arriving = hv_mem_zalloc(scene->s.mem, sizeof *h);
  must(h != NULL, "no memory for a state");
  h->scene = scene;
  h->size = (size_t)manifest->image;
  h->image = hv_mem_aligned(scene->s.mem, h->size + 1);
  hub->bytes += h->size;
  hub->bytes_peak = hub->bytes > hub->bytes_peak ? hub->bytes : hub->bytes_peak;
  if (h->size > scene->size_max || hub->bytes > HV_KEEP_STATES * scene->size_max)
    broke(scene, "the hub holds more than its bound");
  return h->image;
}

static void offered(hv_state_offer *offer, hv_status status, const char *text) {
  (void)offer, (void)status, (void)text;
}

/* The trainers that were heard of a moment ago. */
static size_t counted(gift_scene *scene, hv_gift_trainer *out, hv_keep_trainers *now) {
  uint64_t now_us = hv_sim_now(scene->s.swarm.sim);
  size_t n = 0;
  *now = (hv_keep_trainers){0};
  for (const gift_client *c = scene->clients; c < scene->clients + scene->n_clients; c++)
    if (c->seen_us && now_us - c->seen_us < GIFT_COUNTED_MS * UINT64_C(1000)) {
      out[n++] = (hv_gift_trainer){hv_sim_target(scene->s.swarm.sim, c->node).id, 1, c->epoch};
      now->epoch = c->epoch > now->epoch ? c->epoch : now->epoch;
    }
  now->any = hv_keep_are_counted(1, n);
  return n;
}

/* The core asks for no state that a hub does not keep. */
static void hub_judges(gift_scene *scene, uint64_t epoch) {
  hv_gift_trainer trainers[GIFT_CLIENTS_MAX];
  hv_keep_state state = {.epoch = epoch};
  hv_keep_trainers now;
  hv_keep_fault fault;
  counted(scene, trainers, &now);
  if (hv_keep_judge(&scene->hub.keep, &state, &now, &fault) != HV_KEEP_VERDICT_KEEP)
    broke(scene, "the hub took a state that it does not keep");
  hv_keep_hold(&scene->hub.keep, &state);
}

/* The bits of a state that the hub took, as its trainer had them. */
static int as_given(const gift_held *h, uint64_t epoch) {
  gift_scene *scene = h->scene;
  state_copy copy;
  int same = 1;
  state_copy_make(&copy, scene->s.mem, epoch, scene->values, scene->codec);
  for (size_t i = 0; i < STATE_PARTS; i++)
    same &= h->spans[i].size == copy.spans[i].size && h->parts[i].codec == copy.parts[i].codec &&
            hv_span_equal(h->spans[i], copy.spans[i]);
  state_copy_free(&copy);
  return same;
}

static void hub_takes(gift_scene *scene, hv_node *node);

static void taken(hv_state_load *load, hv_status status, const char *text) {
  gift_scene *scene = load->owner;
  gift_hub *hub = &scene->hub;
  gift_held *h = hub->arriving;
  (void)text;
  must(hub->waits, "a take was done twice");
  hub->waits = 0;
  if (status != HV_OK)
    return;
  hub->arriving = NULL;
  hub->n_taken++;
  const hv_manifest *m = load->manifest;
  must(m->n_parts == STATE_PARTS, "another state");
  for (size_t i = 0; i < STATE_PARTS; i++) {
    h->parts[i] = m->parts[i];
    h->spans[i] = hv_span_of(h->image + m->parts[i].place, (size_t)m->parts[i].size);
  }
  snprintf(h->metadata, sizeof h->metadata, "%.*s", (int)m->metadata.size, (const char *)m->metadata.data);
  if (!as_given(h, m->epoch))
    broke(scene, "the hub took other bits than its trainer gave");
  hv_payload_init(&h->payload, h->spans, STATE_PARTS, let_go, NULL);
  h->next = hub->held;
  hub->held = h;
  hub_judges(scene, m->epoch);
  h->offer = (hv_state_offer){.done = offered,
                              .prefix = prefix(),
                              .epoch = m->epoch,
                              .state_hash = m->state_hash,
                              .bytes = &h->payload,
                              .parts = h->parts,
                              .metadata = hv_span_of(h->metadata, strlen(h->metadata)),
                              .priority = HV_KEEP_PRIORITY};
  memcpy(h->offer.lineage, hub->take.lineage, sizeof h->offer.lineage);
  hv_node *node = node_of(scene, GIFT_HUB);
  hv_state_offer_start(hv_node_state(node), &h->offer, NULL);
  hv_payload_release(&h->payload); /* the offer's now */
  hub_takes(scene, node);
}

static void hub_takes(gift_scene *scene, hv_node *node) {
  gift_hub *hub = &scene->hub;
  hub->take =
      (hv_gift_take){.load = {.done = taken, .room = room, .owner = scene, .prefix = prefix(), .size_max = scene->size_max}};
  hub->waits = 1;
  if (hv_takers_take(hv_node_takers(node), &hub->take, NULL) != HV_OK)
    hub->waits = 0;
}

static size_t in_use(const gift_hub *hub) {
  size_t n = 0;
  for (const gift_held *h = hub->held; h; h = h->next)
    n++;
  return n;
}

static void hub_runs(hv_command *command, void *core) {
  gift_scene *scene = (gift_scene *)((char *)command - offsetof(gift_scene, hub.command));
  gift_hub *hub = &scene->hub;
  hv_gift_trainer trainers[GIFT_CLIENTS_MAX];
  hub->posted = 0;
  if (!core)
    return;
  if (!hub->held)
    hv_keep_init(&hub->keep, 1); /* it is another life */
  if (!hub->waits)
    hub_takes(scene, core);
  if (hub->met)
    hv_takers_met(hv_node_takers(core), prefix(), hub->met_epoch, &hub->giver, 1, &hub->giver, hub->ticket, NULL);
  hub->met = 0;
  uint64_t now = hv_sim_now(scene->s.swarm.sim);
  if (hub->followed_us && now - hub->followed_us < 1000000)
    return;
  hub->followed_us = now;
  hv_keep_trainers counts;
  size_t n = counted(scene, trainers, &counts);
  hv_gift_figures figures = {.trainers = trainers,
                             .least = hv_keep_least(&hub->keep, &counts),
                             .has_room = hv_keep_has_room(in_use(hub)),
                             .n_trainers = n};
  must(hv_takers_follow(hv_node_takers(core), prefix(), &figures, hub->keep.every, scene->size_max, NULL) == HV_OK,
       "the hub does not follow");
}

/* ---- the scene ---- */

static void post(gift_scene *scene, size_t node, hv_command *command, int *posted, void (*run)(hv_command *, void *)) {
  if (*posted || !hv_sim_alive(scene->s.swarm.sim, node))
    return;
  *posted = 1;
  *command = (hv_command){.run = run};
  must(hv_sim_command(scene->s.swarm.sim, node, command) == HV_OK, "no memory for a command");
}

static void tick(gift_scene *scene) {
  post(scene, GIFT_HUB, &scene->hub.command, &scene->hub.posted, hub_runs);
  for (size_t i = 0; i < scene->n_clients; i++)
    post(scene, scene->clients[i].node, &scene->clients[i].command, &scene->clients[i].posted, client_runs);
  dht_swarm_run(&scene->s.swarm, GIFT_TICK_MS / 1000.0);
}

void gift_scene_run(gift_scene *scene, double seconds) {
  uint64_t end = hv_sim_now(scene->s.swarm.sim) + (uint64_t)(seconds * (double)DHT_SECOND);
  while (hv_sim_now(scene->s.swarm.sim) < end)
    tick(scene);
}

int gift_scene_await(gift_scene *scene, uint64_t epoch, double seconds) {
  uint64_t end = hv_sim_now(scene->s.swarm.sim) + (uint64_t)(seconds * (double)DHT_SECOND);
  while (hv_sim_now(scene->s.swarm.sim) < end && scene->hub.keep.held.epoch < epoch)
    tick(scene);
  return scene->hub.keep.held.epoch >= epoch;
}

void gift_scene_next_epoch(gift_scene *scene) {
  scene->epoch++;
}

void gift_scene_meet(gift_scene *scene, size_t client) {
  gift_client *c = &scene->clients[client];
  gift_hub *hub = &scene->hub;
  check_rng rng = {scene->epoch};
  hub->met = c->must_give = 1;
  hub->met_epoch = scene->epoch++;
  hub->giver = hv_sim_target(scene->s.swarm.sim, c->node).id;
  for (size_t i = 0; i < sizeof c->ticket; i++)
    hub->ticket[i] = c->ticket[i] = (uint8_t)check_random(&rng);
}

int gift_same(const gift_scene *scene, const state_try *try) {
  state_copy copy;
  state_copy_make(&copy, scene->s.mem, try->epoch, scene->values, scene->codec);
  int same = state_same(try, &copy);
  state_copy_free(&copy);
  return same;
}

void gift_scene_init(gift_scene *scene, hv_sim *sim, hv_mem *mem, size_t n_clients, size_t values, hv_codec codec) {
  memset(scene, 0, sizeof *scene);
  must(n_clients <= GIFT_CLIENTS_MAX, "too many trainers");
  state_scene_init(&scene->s, sim, mem);
  scene->n_clients = n_clients;
  scene->values = values;
  scene->codec = codec;
  scene->size_max = values * sizeof(float) + 8192;
  scene->epoch = 1;
  state_scene_add(&scene->s, STATE_HONEST, 0);
  for (size_t i = 0; i < n_clients; i++)
    scene->clients[i] = (gift_client){.scene = scene, .node = state_scene_add(&scene->s, STATE_HONEST, 1)};
}

void gift_scene_fini(gift_scene *scene) {
  for (size_t i = 0; i < scene->n_clients; i++) {
    sweep(&scene->clients[i]);
    must(!scene->clients[i].given, "a state is still held by somebody");
  }
  must(!scene->hub.held && !scene->hub.arriving, "the hub still holds a state");
  state_scene_fini(&scene->s);
}
