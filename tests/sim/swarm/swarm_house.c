/* The house without rooms for training: nodes find each other through a few, echo to whom they know, and send parcels.
 * On the way: an echo is right or fails; a parcel arrives whole, once, if the sender was told so.
 * At the end, in calm: all who live are one swarm, nobody believes in the dead, and everyone can echo and send. */
#include "core/node.h"
#include "sim/swarm/swarm.h"

#include <string.h>

enum {
  STARTS = 3,
  EVERY_US = 500000,
  HELLO_EVERY_MS = 4000,
  LAST_TRIES = 5,
  PARCEL_MAX = 1500000,
  PARCELS_LAST = 24 * PARCEL_MAX, /* of all together in the end, when everyone sends at once */
  ENOUGH = 8,
  LAST_MS = 30000,
  MANY = 100
};

typedef struct house house;

typedef struct house_node {
  house *h;
  size_t index;
  hv_peer_id id;
  hv_node *node; /* NULL: dead */
  int client;
} house_node;

typedef struct errand errand; /* an echo or a parcel, from the order to its end */
struct errand {
  hv_command command; /* first */
  errand *next;
  house *h;
  size_t from;
  int is_parcel, last; /* last: of the calm at the end, must succeed */
  int begun, done, arrived;
  hv_status status;
  uint64_t number;
  size_t size;
  hv_payload *payload;
  hv_node_echo echo;
  hv_parcel_send send;
  uint8_t bytes[64];
};

struct house {
  swarm_run *run;
  house_node *nodes;
  size_t n;
  errand *errands, **by_number;
  size_t numbers, numbers_room;
};

/* The content of a parcel: its number, then words that follow from it. */
static uint64_t word_at(uint64_t number, size_t i) {
  return i ? (number + i) * UINT64_C(0x9e3779b97f4a7c15) : number;
}

static void fill(uint8_t *bytes, size_t size, uint64_t number) {
  for (size_t i = 0; i * 8 < size; i++) {
    uint64_t word = word_at(number, i);
    memcpy(bytes + i * 8, &word, size - i * 8 < 8 ? size - i * 8 : 8);
  }
}

static int is_filled(const uint8_t *bytes, size_t size, uint64_t number) {
  for (size_t i = 0; i * 8 < size; i++) {
    uint64_t word = word_at(number, i);
    if (memcmp(bytes + i * 8, &word, size - i * 8 < 8 ? size - i * 8 : 8) != 0)
      return 0;
  }
  return 1;
}

static uint64_t below(house *h, uint64_t n) {
  return check_random(&h->run->rng) % n;
}

/* ---- parcels that arrive ---- */

static errand *find(house *h, uint64_t number) {
  return number && number <= h->numbers ? h->by_number[number - 1] : NULL;
}

static void unpack(house_node *to, const hv_parcel *parcel) {
  house *h = to->h;
  uint64_t number = 0;
  if (parcel->size >= sizeof number)
    memcpy(&number, parcel->bytes, sizeof number);
  errand *e = find(h, number);
  if (!e || !e->is_parcel || e->size != parcel->size) {
    swarm_fail(h->run, "n%zu got a parcel that nobody sent", to->index);
    return;
  }
  if (!is_filled(parcel->bytes, parcel->size, number))
    swarm_fail(h->run, "parcel %llu is spoiled", (unsigned long long)number);
  if (e->arrived++)
    swarm_fail(h->run, "parcel %llu arrived twice", (unsigned long long)number);
  swarm_figure(h->run, "parcels", 1);
  swarm_figure(h->run, "parcel_bytes", (double)parcel->size);
}

static void something_changed(void *arg) {
  house_node *to = arg;
  for (hv_parcel *parcel; to->node && (parcel = hv_node_take_parcel(to->node));) {
    unpack(to, parcel);
    hv_mem_free(parcel->bytes);
    hv_mem_free(parcel);
  }
}

/* ---- nodes ---- */

static hv_status make_node(hv_env *env, void *arg, hv_core *out) {
  house_node *n = arg;
  hv_sim *sim = n->h->run->sim;
  hv_target starts[STARTS];
  for (size_t i = 0; i < STARTS; i++)
    starts[i] = hv_sim_target(sim, i % n->h->n);
  memset(&starts[1].id, 0, sizeof starts[1].id); /* one of them is known by its address only */
  hv_node_config config = {.me = hv_sim_target(sim, n->index).id,
                           .client_mode = n->client,
                           .initial = starts,
                           .n_initial = STARTS,
                           .hello_every_ms = n->h->n <= MANY ? HELLO_EVERY_MS : 0,
                           .changed = something_changed,
                           .arg = n};
  hv_status status = hv_node_new(env, &config, &n->node);
  *out = (hv_core){n, NULL};
  return status;
}

static void step_node(void *self, const hv_event *event) {
  hv_node_step(((house_node *)self)->node, event);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  hv_status status = make_node(env, arg, out);
  out->step = step_node;
  return status;
}

static void let_go(void *self) {
  house_node *n = self;
  hv_node_free(n->node);
  n->node = NULL;
}

/* ---- errands ---- */

static void errand_over(errand *e, hv_status status, const char *text) {
  house *h = e->h;
  if (e->done++)
    swarm_fail(h->run, "n%zu: an errand was done twice", e->from);
  e->status = status;
  if (status == HV_CORRUPT || status == HV_MALFORMED || status == HV_INTERNAL)
    swarm_fail(h->run, "n%zu: an errand ended with %s: %s", e->from, hv_status_name(status), text);
  if (e->is_parcel && status == HV_OK && !e->arrived)
    swarm_fail(h->run, "n%zu was told that parcel %llu arrived, and it did not", e->from, (unsigned long long)e->number);
  if (!e->last || status == HV_OK) { /* nobody sends it again */
    hv_payload_release(e->payload);
    e->payload = NULL;
  }
  swarm_figure(h->run, status == HV_OK ? "errands_done" : "errands_failed", 1);
}

static void echo_over(hv_node_echo *echo, hv_status status, hv_span bytes, const char *text) {
  (void)bytes; /* node has compared them */
  errand_over(echo->owner, status, text);
}

static void send_over(hv_parcel_send *send, hv_status status, const char *text) {
  errand_over(send->owner, status, text);
}

/* Somebody the node believes alive and could dial. */
static const hv_peer_id *somebody(house *h, house_node *n) {
  hv_peers *peers = hv_node_peers(n->node);
  size_t start = peers->n_entries ? below(h, peers->n_entries) : 0;
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *entry = peers->entries[(start + i) % peers->n_entries];
    if (entry->state == HV_PEERS_ALIVE && !entry->card.client_mode && entry->card.n_addrs)
      return &entry->card.id;
  }
  return NULL;
}

static void begin(hv_command *command, void *core) {
  errand *e = (errand *)command;
  house *h = e->h;
  house_node *n = core ? &h->nodes[e->from] : NULL;
  const hv_peer_id *to = n ? somebody(h, n) : NULL;
  if (!to)
    return;
  hv_status status;
  if (e->is_parcel) {
    e->send = (hv_parcel_send){.done = send_over, .owner = e, .payload = e->payload, .timeout_ms = LAST_MS};
    status = hv_node_send_start(n->node, &e->send, to);
  } else {
    e->echo = (hv_node_echo){
        .done = echo_over, .owner = e, .to = *to, .bytes = hv_span_of(e->bytes, sizeof e->bytes), .timeout_ms = 3000};
    status = hv_node_echo_start(n->node, &e->echo);
  }
  e->begun = status == HV_OK;
  if (status != HV_OK)
    swarm_fail(h->run, "n%zu could not begin an errand to a peer it knows: %s", e->from, hv_status_name(status));
}

static int room_for_one_more(house *h) {
  if (h->numbers < h->numbers_room)
    return 1;
  size_t room = h->numbers_room ? 2 * h->numbers_room : 1024;
  errand **more = hv_mem_array(&h->run->mem, room, sizeof *more);
  if (!more)
    return 0;
  if (h->numbers)
    memcpy(more, h->by_number, h->numbers * sizeof *more);
  hv_mem_free(h->by_number);
  h->by_number = more;
  h->numbers_room = room;
  return 1;
}

static errand *new_errand(house *h, size_t from, int is_parcel, size_t size_max) {
  errand *e = room_for_one_more(h) ? hv_mem_zalloc(&h->run->mem, sizeof *e) : NULL;
  if (!e)
    return NULL;
  e->command.run = begin;
  e->h = h;
  e->from = from;
  e->is_parcel = is_parcel;
  e->number = h->numbers + 1;
  h->by_number[h->numbers++] = e;
  fill(e->bytes, sizeof e->bytes, e->number);
  if (is_parcel) {
    e->size = sizeof e->number + below(h, size_max);
    uint8_t *bytes = hv_mem_alloc(&h->run->mem, e->size);
    if (bytes)
      fill(bytes, e->size, e->number);
    e->payload = bytes ? hv_payload_borrow(&h->run->mem, bytes, e->size, hv_mem_free, bytes) : NULL;
  }
  e->next = h->errands;
  h->errands = e;
  return e;
}

/* Every half second a few nodes have something to do; it ends early enough to be over in time. */
static void bustle(hv_sim *sim, void *arg) {
  house *h = arg;
  for (size_t i = 0; i < 1 + h->n / 16; i++) {
    size_t from = below(h, h->n);
    errand *e = hv_sim_alive(sim, from) ? new_errand(h, from, below(h, 8) == 0, PARCEL_MAX) : NULL;
    if (e && hv_sim_command(sim, from, &e->command) != HV_OK)
      swarm_fail(h->run, "no memory for a command");
  }
  if (hv_sim_now(sim) + EVERY_US < h->run->calm_us)
    hv_sim_at(sim, hv_sim_now(sim) + EVERY_US, bustle, h);
}

/* ---- what must hold in the end ---- */

static size_t index_of(house *h, const hv_peer_id *id) {
  for (size_t i = 0; i < h->n; i++)
    if (hv_peer_equal(&h->nodes[i].id, id))
      return i;
  return h->n;
}

/* Sets of nodes that know each other, directly or not, whoever of two knows the other: union by halving paths. */
static size_t root_of(size_t *up, size_t i) {
  while (up[i] != i)
    i = up[i] = up[up[i]];
  return i;
}

static void join_acquaintances(house *h, size_t from, size_t *up) {
  hv_peers *peers = hv_node_peers(h->nodes[from].node);
  for (size_t i = 0; i < peers->n_entries; i++) {
    size_t to = peers->entries[i]->state == HV_PEERS_ALIVE ? index_of(h, &peers->entries[i]->card.id) : h->n;
    if (to < h->n)
      up[root_of(up, to)] = root_of(up, from);
  }
}

static void check_beliefs(house *h) {
  size_t listeners = 0;
  for (size_t i = 0; i < h->n; i++)
    listeners += hv_sim_alive(h->run->sim, i) && !h->nodes[i].client;
  for (size_t i = 0; i < h->n; i++) {
    if (!hv_sim_alive(h->run->sim, i))
      continue;
    hv_peers *peers = hv_node_peers(h->nodes[i].node);
    size_t alive = hv_peers_alive(peers), others = listeners - (h->nodes[i].client ? 0 : 1);
    if (alive < (others < ENOUGH ? others : ENOUGH))
      swarm_fail(h->run, "n%zu knows only %zu of %zu others at the end", i, alive, others);
    for (size_t k = 0; k < peers->n_entries; k++)
      if (peers->entries[k]->state == HV_PEERS_ALIVE && !hv_sim_alive(h->run->sim, index_of(h, &peers->entries[k]->card.id)))
        swarm_fail(h->run, "n%zu still believes that n%zu lives", i, index_of(h, &peers->entries[k]->card.id));
    swarm_figure(h->run, "peers_known", (double)alive);
  }
}

static void check_one_swarm(house *h) {
  size_t *up = hv_mem_array(&h->run->mem, h->n, sizeof *up), first = h->n;
  for (size_t i = 0; up && i < h->n; i++)
    up[i] = i;
  for (size_t i = 0; up && i < h->n; i++)
    if (hv_sim_alive(h->run->sim, i))
      join_acquaintances(h, i, up);
  for (size_t i = 0; up && i < h->n; i++) {
    if (!hv_sim_alive(h->run->sim, i))
      continue;
    if (first == h->n)
      first = i;
    if (root_of(up, i) != root_of(up, first))
      swarm_fail(h->run, "n%zu and n%zu are on different islands", first, i);
  }
  if (first == h->n)
    swarm_fail(h->run, "nobody is alive at the end");
  hv_mem_free(up);
}

/* Orders what is not done yet; how many there are. */
static size_t order_again(house *h) {
  size_t open = 0;
  for (errand *e = h->errands; e; e = e->next)
    if (e->last && (!e->done || e->status != HV_OK) && !e->arrived) {
      e->begun = e->done = 0;
      open += hv_sim_command(h->run->sim, e->from, &e->command) == HV_OK;
    }
  return open;
}

/* In calm everyone can echo and send; with losses it may take several tries. */
static void check_errands(house *h) {
  hv_sim *sim = h->run->sim;
  for (size_t i = 0; i < h->n; i++)
    for (int parcel = 0; parcel < 2 && hv_sim_alive(sim, i); parcel++) {
      errand *e = new_errand(h, i, parcel, PARCELS_LAST / h->n < PARCEL_MAX ? PARCELS_LAST / h->n : PARCEL_MAX);
      if (e)
        e->last = 1;
    }
  for (int tries = 0; tries < LAST_TRIES && order_again(h); tries++)
    hv_sim_run_until(sim, hv_sim_now(sim) + (LAST_MS + 2000) * UINT64_C(1000));
  for (errand *e = h->errands; e; e = e->next)
    if (e->last && !(e->done && e->status == HV_OK))
      swarm_fail(h->run, "n%zu could not %s in calm: %s", e->from, e->is_parcel ? "send a parcel" : "echo",
                 e->begun ? hv_status_name(e->status) : "it knows nobody");
}

void swarm_house_play(swarm_run *run) {
  house h = {.run = run, .n = run->options->nodes};
  h.nodes = hv_mem_array(&run->mem, h.n, sizeof *h.nodes);
  for (size_t i = 0; h.nodes && i < h.n; i++) {
    h.nodes[i] = (house_node){.h = &h, .index = i, .client = i >= STARTS && below(&h, 8) == 0};
    hv_sim_node_config seat = {.make = make, .free = let_go, .arg = &h.nodes[i], .client_mode = h.nodes[i].client};
    swarm_seat(run, &seat);
    if (hv_sim_add(run->sim, &seat, NULL) != HV_OK)
      swarm_fail(run, "node %zu could not be made", i);
    h.nodes[i].id = hv_sim_target(run->sim, i).id;
  }
  swarm_trouble(run);
  hv_sim_at(run->sim, EVERY_US, bustle, &h);
  hv_sim_run_until(run->sim, run->end_us);
  check_beliefs(&h);
  check_one_swarm(&h);
  check_errands(&h);
  swarm_over(run);
  while (h.errands) {
    errand *e = h.errands;
    h.errands = e->next;
    hv_payload_release(e->payload);
    hv_mem_free(e);
  }
  hv_mem_free(h.by_number);
  hv_mem_free(h.nodes);
}
