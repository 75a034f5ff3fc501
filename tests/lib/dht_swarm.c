#include "lib/dht_swarm.h"

#include "core/dht/dht_inner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int held, const char *what) {
  if (held)
    return;
  fprintf(stderr, "the scenario itself failed: %s\n", what);
  abort();
}

/* ---- nodes ---- */

/* One scenario at a time grinds identities: env has no place for whose it is. */
static dht_swarm *grinding;

static void other_sha256(hv_env *env, hv_span bytes, hv_hash *out) {
  grinding->sha256(grinding, env, bytes, out);
}

static void step(void *self, const hv_event *event) {
  dht_seat *seat = self;
  if (seat->swarm->see)
    seat->swarm->see(seat, event);
  if (seat->is_liar && event->kind == HV_EVENT_REQUEST && seat->swarm->lie && seat->swarm->lie(seat, event))
    return;
  hv_node_step(seat->node, event);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  dht_seat *seat = arg;
  dht_swarm *swarm = seat->swarm;
  hv_node_config config = {.me = hv_sim_target(swarm->sim, seat->number).id,
                           .client_mode = seat->client_mode,
                           .announce = &seat->announce,
                           .n_announce = seat->announce.kind != HV_ADDR_NONE,
                           .initial = seat->initial,
                           .n_initial = seat->n_initial,
                           .hello_every_ms = swarm->hello_every_ms,
                           .peers_room = swarm->peers_room,
                           .dht = swarm->config,
                           .state = swarm->state};
  seat->env = env;
  if (swarm->meet)
    swarm->meet(seat, env);
  if (swarm->sha256) {
    if (env->sha256 != other_sha256)
      swarm->true_sha256 = env->sha256;
    env->sha256 = other_sha256;
    grinding = swarm;
  }
  hv_status status = hv_node_new(env, &config, &seat->node);
  if (status == HV_OK)
    *out = (hv_core){seat, step};
  return status;
}

static void unmake(void *self) {
  dht_seat *seat = self;
  hv_node_free(seat->node);
  seat->node = NULL;
  if (seat->swarm->left)
    seat->swarm->left(seat);
}

void dht_swarm_init(dht_swarm *swarm, hv_sim *sim, hv_mem *mem, size_t room) {
  swarm->mem = mem;
  swarm->sim = sim;
  swarm->seats = hv_mem_array(mem, room, sizeof *swarm->seats);
  swarm->room = room;
  must(swarm->seats != NULL, "no memory");
}

void dht_swarm_fini(dht_swarm *swarm) {
  hv_mem_free(swarm->seats);
}

size_t dht_swarm_add(dht_swarm *swarm, const size_t *initial, size_t n_initial, int client_mode) {
  size_t number = swarm->n, got;
  dht_seat *seat = &swarm->seats[number];
  must(swarm->n < swarm->room && n_initial <= DHT_INITIAL_MAX, "too many nodes");
  swarm->n++;
  seat->swarm = swarm;
  seat->number = number;
  seat->client_mode = client_mode;
  seat->network = swarm->network;
  seat->home = swarm->home;
  seat->announce = swarm->announce;
  seat->n_initial = n_initial;
  for (size_t i = 0; i < n_initial; i++)
    seat->initial[i] = hv_sim_target(swarm->sim, initial[i]);
  hv_sim_node_config sim_seat = {.make = make,
                                 .free = unmake,
                                 .arg = seat,
                                 .client_mode = client_mode,
                                 .network = seat->network,
                                 .home = seat->home,
                                 .skew_us = seat->skew_us};
  must(hv_sim_add(swarm->sim, &sim_seat, &got) == HV_OK && got == number, "a node could not be added");
  return number;
}

void dht_swarm_run(dht_swarm *swarm, double seconds) {
  hv_sim_run_until(swarm->sim, hv_sim_now(swarm->sim) + (uint64_t)(seconds * (double)DHT_SECOND));
}

hv_dht *dht_swarm_dht(dht_swarm *swarm, size_t node) {
  return hv_sim_alive(swarm->sim, node) && swarm->seats[node].node ? hv_node_dht(swarm->seats[node].node) : NULL;
}

/* ---- what a program does ---- */

static void try_done(hv_dht_op *op, hv_status status, const char *text) {
  dht_try *try = op->owner;
  must(!try->done, "done came twice");
  try->done = 1;
  try->status = status;
  try->ended_us = hv_sim_now(try->sim);
  snprintf(try->text, sizeof try->text, "%s", text);
  try->n_records = op->n_records;
  try->found = status == HV_OK && op->n_records > 0;
  if (try->found) {
    hv_span value = op->records[0].value;
    try->value_size = value.size < sizeof try->value ? value.size : sizeof try->value;
    memcpy(try->value, value.data, try->value_size);
    try->ttl_ms = op->records[0].ttl_ms;
  }
}

static void try_run(hv_command *command, void *core) {
  dht_try *try = (dht_try *)((char *)command - offsetof(dht_try, command));
  hv_error err = {0};
  hv_status status = HV_CLOSED;
  if (core)
    status = try->is_get ? hv_dht_get(hv_node_dht(core), &try->op, &err) : hv_dht_store(hv_node_dht(core), &try->op, &err);
  if (status != HV_OK)
    try_done(&try->op, status, err.text);
}

static void start(dht_swarm *swarm, size_t node, dht_try *try) {
  try->sim = swarm->sim;
  try->command.run = try_run;
  try->op.done = try_done;
  try->op.owner = try;
  try->op.key = hv_span_of(try->key, strlen(try->key));
  try->started_us = hv_sim_now(swarm->sim);
  must(hv_sim_command(swarm->sim, node, &try->command) == HV_OK, "no memory for a command");
}

void dht_swarm_store(dht_swarm *swarm, size_t node, dht_try *try, const char *key, const char *subkey, const char *value,
                     uint64_t ttl_ms) {
  *try = (dht_try){0};
  snprintf(try->key, sizeof try->key, "%s", key);
  snprintf(try->subkey, sizeof try->subkey, "%s", subkey ? subkey : "");
  try->value_size = (size_t)snprintf((char *)try->value, sizeof try->value, "%s", value);
  try->item = (hv_dht_item){.subkey = hv_span_of(try->subkey, strlen(try->subkey)),
                            .has_subkey = subkey != NULL,
                            .value = hv_span_of(try->value, try->value_size),
                            .ttl_ms = ttl_ms};
  try->op.items = &try->item;
  try->op.n_items = 1;
  start(swarm, node, try);
}

void dht_swarm_get(dht_swarm *swarm, size_t node, dht_try *try, const char *key, int latest) {
  *try = (dht_try){.is_get = 1};
  snprintf(try->key, sizeof try->key, "%s", key);
  try->op.latest = latest;
  start(swarm, node, try);
}

typedef struct waiting {
  dht_try *tries;
  size_t n, at;
} waiting;

static int all_done(void *arg) {
  waiting *w = arg;
  while (w->at < w->n && w->tries[w->at].done)
    w->at++;
  return w->at == w->n;
}

int dht_swarm_finish(dht_swarm *swarm, dht_try *tries, size_t n, double seconds) {
  waiting w = {tries, n, 0};
  return hv_sim_drive(swarm->sim, all_done, &w, hv_sim_now(swarm->sim) + (uint64_t)(seconds * (double)DHT_SECOND));
}

/* ---- what can be seen from outside ---- */

static int serves(dht_swarm *swarm, size_t node) {
  return hv_sim_alive(swarm->sim, node) && swarm->seats[node].node && !swarm->seats[node].client_mode;
}

size_t dht_swarm_serving(dht_swarm *swarm) {
  size_t n = 0;
  for (size_t i = 0; i < swarm->n; i++)
    n += (size_t)serves(swarm, i);
  return n;
}

/* Node numbers by identity: sorted once for each question. */
typedef struct known {
  hv_peer_id id;
  size_t number;
} known;

static int by_id(const void *a, const void *b) {
  return hv_peer_compare(&((const known *)a)->id, &((const known *)b)->id);
}

static known *all_ids(dht_swarm *swarm) {
  known *ids = malloc(swarm->n * sizeof *ids);
  must(ids != NULL, "no memory");
  for (size_t i = 0; i < swarm->n; i++)
    ids[i] = (known){hv_sim_target(swarm->sim, i).id, i};
  qsort(ids, swarm->n, sizeof *ids, by_id);
  return ids;
}

size_t dht_swarm_reach(dht_swarm *swarm, size_t from) {
  known *ids = all_ids(swarm);
  uint8_t *seen = calloc(swarm->n, 1);
  size_t *queue = malloc(swarm->n * sizeof *queue), head = 0, tail = 0, n = 0;
  must(seen && queue, "no memory");
  queue[tail++] = from;
  seen[from] = 1;
  while (head < tail) {
    size_t at = queue[head++];
    n += (size_t)serves(swarm, at);
    const hv_route *route = hv_dht_route(dht_swarm_dht(swarm, at));
    for (size_t b = 0; b < HV_ROUTE_BUCKETS; b++)
      for (size_t i = 0; i < route->buckets[b].n; i++) {
        known key = {route->buckets[b].contacts[i]->id, 0}, *other = bsearch(&key, ids, swarm->n, sizeof key, by_id);
        if (other && !seen[other->number] && serves(swarm, other->number)) {
          seen[other->number] = 1;
          queue[tail++] = other->number;
        }
      }
  }
  free(ids);
  free(seen);
  free(queue);
  return n;
}

size_t dht_swarm_keepers(dht_swarm *swarm, const char *key) {
  size_t n = 0;
  for (size_t i = 0; i < swarm->n; i++) {
    if (!serves(swarm, i))
      continue;
    hv_hash place;
    hv_env *env = hv_node_env(swarm->seats[i].node);
    env->sha256(env, hv_span_of(key, strlen(key)), &place);
    const hv_store *kept = hv_dht_kept(dht_swarm_dht(swarm, i));
    int has = 0;
    hv_record record;
    for (const hv_store_item *item = hv_store_first(kept, &place); item; item = item->next)
      has |= hv_store_show(kept, item, &record);
    n += (size_t)has;
  }
  return n;
}

/* ---- a swarm that has long been there ---- */

typedef struct stand {
  hv_hash place;
  hv_target target;
  size_t number;
} stand;

static int by_place(const void *a, const void *b) {
  return memcmp(&((const stand *)a)->place, &((const stand *)b)->place, sizeof(hv_hash));
}

/* The first of the sorted that is not before this place. */
static size_t first_from(const stand *stands, size_t n, const hv_hash *place) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (memcmp(&stands[middle].place, place, sizeof *place) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Where those stand that share exactly `bits` bits with me: [*from, *to) of the sorted. */
static void range_of(const stand *stands, size_t n, const hv_hash *me, size_t bits, size_t *from, size_t *to) {
  hv_hash low = *me, high;
  low.bytes[bits / 8] ^= (uint8_t)(0x80 >> bits % 8);
  high = low;
  for (size_t bit = bits + 1; bit < 256; bit++) {
    low.bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
    high.bytes[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
  }
  *from = first_from(stands, n, &low);
  *to = first_from(stands, n, &high); /* nobody stands on it */
}

void dht_swarm_settle(dht_swarm *swarm) {
  enum { DEEPEST = 24 };
  stand *stands = calloc(swarm->n, sizeof *stands);
  uint64_t state = 88172645463325252u + swarm->n;
  size_t n = 0;
  must(stands != NULL, "no memory");
  for (size_t i = 0; i < swarm->n; i++)
    if (serves(swarm, i)) {
      stands[n] = (stand){.target = hv_sim_target(swarm->sim, i), .number = i};
      hv_route_hash(swarm->seats[i].env, &stands[n].target.id, &stands[n].place);
      n++;
    }
  qsort(stands, n, sizeof *stands, by_place);
  for (size_t i = 0; i < swarm->n; i++) {
    hv_dht *dht = dht_swarm_dht(swarm, i);
    hv_route *route = dht ? &dht->route : NULL;
    if (dht)
      dht->look_us = UINT64_MAX / 2; /* it has looked around already */
    for (size_t b = 0; dht && b < HV_ROUTE_BUCKETS; b++)
      route->buckets[b].looked_us = dht->env->now_us(dht->env) + 1;
    for (size_t b = 0; dht && b < HV_ROUTE_REGIONS; b++)
      route->samples[b] = log2((double)n);
    for (size_t bits = 0; route && bits < DEEPEST; bits++) {
      size_t from, to, most = hv_route_room(route, bits);
      range_of(stands, n, &route->me, bits, &from, &to);
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      for (size_t j = 0; j < most && j < to - from; j++) { /* evenly over the bucket, from a random one on */
        size_t at = to - from <= most ? j : (state % (to - from) + j * (to - from) / most) % (to - from);
        hv_route_answered(route, &stands[from + at].target.id, &stands[from + at].target.addr, 1, 20000);
      }
    }
  }
  free(stands);
}
