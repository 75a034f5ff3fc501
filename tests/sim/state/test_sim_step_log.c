/* A log's entries, from those that keep them to one that was absent, told against the virtual clock. */
#include "lib/state_scene.h"

#include "core/state/step_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  NODES = 10,
  CHUNKS = 5,
  CHUNK = 3000,
  ENTRY = CHUNKS * CHUNK,
  IMAGE = 4 * (CHUNK + 8) + CHUNK /* parts are aligned to 64 */
};

typedef struct scene scene;

typedef struct keeper {
  scene *scene;
  size_t index;
  hv_step_log *log;
  uint64_t added_us;
  int changes, over;
} keeper;

struct scene {
  hv_mem mem;
  hv_sim *sim;
  state_scene s;
  keeper keepers[NODES];
};

/* ---- the stage ---- */

typedef struct order {
  hv_command command;
  keeper *k;
  void (*what)(keeper *k, hv_node *node, void *arg);
  void *arg;
} order;

static void obey(hv_command *command, void *core) {
  order *o = (order *)command;
  if (core)
    o->what(o->k, core, o->arg);
}

/* Now, and waits until it is done. */
static void tell(scene *sc, size_t node, void (*what)(keeper *, hv_node *, void *), void *arg) {
  order o = {{.run = obey}, &sc->keepers[node], what, arg};
  assert_int_equal(hv_sim_command(sc->sim, node, &o.command), HV_OK);
  hv_sim_run_until(sc->sim, hv_sim_now(sc->sim));
}

static void has_changed(void *arg) {
  ((keeper *)arg)->changes++;
}

static void make_log(keeper *k, hv_node *node, void *memory) {
  hv_step_log_config config = {.key = hv_span_of("run", 3), .memory = *(uint64_t *)memory, .changed = has_changed, .arg = k};
  assert_int_equal(hv_step_log_new(hv_node_env(node), hv_node_state(node), &config, &k->log, NULL), HV_OK);
}

static void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

static scene *current; /* one at a time */

static void has_left(dht_seat *seat) {
  hv_step_log_free(current->keepers[seat->number].log);
  current->keepers[seat->number].log = NULL;
}

/* n nodes with a log; the last `clients` of them only dial out. */
static void open_scene(scene *sc, uint64_t seed, size_t n, size_t clients, uint64_t rate) {
  uint64_t memory = 100 * ENTRY;
  memset(sc, 0, sizeof *sc);
  hv_mem_init(&sc->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.link.rate = rate;
  config.window = 4 << 10;
  config.say = getenv("HV_NARRATE") ? print_line : NULL;
  sc->sim = hv_sim_new(&sc->mem, &config);
  state_scene_init(&sc->s, sc->sim, &sc->mem);
  sc->s.swarm.left = has_left;
  current = sc;
  for (size_t i = 0; i < n; i++) {
    sc->keepers[i] = (keeper){.scene = sc, .index = i};
    state_scene_add(&sc->s, STATE_HONEST, i >= n - clients);
  }
  dht_swarm_run(&sc->s.swarm, 5);
  for (size_t i = 0; i < n; i++)
    tell(sc, i, make_log, &memory);
}

static void run(scene *sc, double seconds) {
  dht_swarm_run(&sc->s.swarm, seconds);
}

static void close_scene(scene *sc) {
  run(sc, 60);
  assert_int_equal(hv_sim_free(sc->sim), 0);
  state_scene_fini(&sc->s);
  assert_int_equal(sc->mem.blocks, 0);
}

/* ---- entries ---- */

/* The bytes of an entry follow from its epoch and `history`. */
static void fill(uint8_t *out, uint64_t epoch, uint64_t history) {
  check_rng rng = {epoch * 1000 + history};
  for (size_t i = 0; i < ENTRY; i++)
    out[i] = (uint8_t)check_random(&rng);
}

static hv_step_log_facts facts_of(uint64_t epoch, uint64_t history) {
  hv_step_log_facts facts = {.epoch = epoch, .stamps = {epoch + 7, history}, .n_stamps = 2};
  memset(facts.before, (int)(1 + history), sizeof facts.before);
  return facts;
}

typedef struct block {
  hv_payload payload;
  hv_span spans[CHUNKS];
  uint8_t bytes[ENTRY];
} block;

static void free_block(hv_payload *payload) {
  hv_mem_free(payload->owner);
}

typedef struct adding {
  uint64_t epoch, history, lie; /* lie: other bytes under the same facts */
  size_t chunks;
  hv_status status;
} adding;

static block *block_of(keeper *k, const adding *a) {
  block *b = hv_mem_alloc(&k->scene->mem, sizeof *b);
  fill(b->bytes, a->epoch, a->history + 100 * a->lie);
  for (size_t i = 0; i < a->chunks; i++)
    b->spans[i] = hv_span_of(b->bytes + i * CHUNK, CHUNK);
  hv_payload_init(&b->payload, b->spans, a->chunks, free_block, b);
  return b;
}

static void hear(keeper *k, hv_node *node, void *arg) {
  adding *a = arg;
  block *b = block_of(k, a);
  hv_step_log_facts facts = facts_of(a->epoch, a->history);
  (void)node;
  a->status = hv_step_log_hear(k->log, &facts, &b->payload);
  hv_payload_release(&b->payload);
}

static void add(keeper *k, hv_node *node, void *arg) {
  adding *a = arg;
  block *b = block_of(k, a);
  hv_step_log_facts facts = facts_of(a->epoch, a->history);
  (void)node;
  k->added_us = hv_sim_now(k->scene->sim);
  a->status = hv_step_log_add(k->log, &facts, &b->payload);
  hv_payload_release(&b->payload);
}

/* At the end of an epoch that is just long enough. */
static hv_status add_in_time(scene *sc, size_t node, adding *a) {
  keeper *k = &sc->keepers[node];
  uint64_t due_us = k->added_us ? k->added_us + HV_STEP_LOG_SHORT_US : 0;
  if (hv_sim_now(sc->sim) < due_us)
    hv_sim_run_until(sc->sim, due_us);
  tell(sc, node, add, a);
  return a->status;
}

static void adds(scene *sc, size_t node, uint64_t epoch, uint64_t history) {
  assert_int_equal(add_in_time(sc, node, &(adding){.epoch = epoch, .history = history, .chunks = CHUNKS}), HV_OK);
}

static void lies(scene *sc, size_t node, uint64_t epoch) {
  assert_int_equal(add_in_time(sc, node, &(adding){.epoch = epoch, .lie = 1, .chunks = CHUNKS}), HV_OK);
}

static void end(keeper *k, hv_node *node, void *arg) {
  (void)node, (void)arg;
  hv_step_log_end(k->log);
}

typedef struct wanting {
  uint64_t first, until, made, ahead;
} wanting;

static void want(keeper *k, hv_node *node, void *arg) {
  const wanting *w = arg;
  (void)node;
  hv_step_log_want(k->log, w->first, w->until, w->made, w->ahead);
}

static void wants_from(scene *sc, size_t node, uint64_t first, uint64_t until, uint64_t made, uint64_t ahead) {
  wanting w = {first, until, made, ahead};
  tell(sc, node, want, &w);
}

static void wants(scene *sc, size_t node, uint64_t first, uint64_t until, uint64_t ahead) {
  wants_from(sc, node, first, until, until, ahead);
}

static void refuse(keeper *k, hv_node *node, void *arg) {
  (void)node;
  hv_step_log_refuse(k->log, *(uint64_t *)arg);
}

static hv_step_log_standing look(scene *sc, size_t node, uint64_t epoch) {
  return hv_step_log_look(sc->keepers[node].log, epoch, NULL, NULL);
}

static size_t offered(scene *sc, size_t node, uint64_t *first) {
  return hv_step_log_offered(sc->keepers[node].log, first, NULL);
}

/* It is there, and is that of this history. */
static void has(scene *sc, size_t node, uint64_t epoch, uint64_t history) {
  static uint8_t bytes[ENTRY];
  hv_step_log_facts facts, expected = facts_of(epoch, history);
  hv_payload *chunks;
  assert_int_equal(hv_step_log_look(sc->keepers[node].log, epoch, &facts, &chunks), HV_STEP_LOG_THERE);
  assert_memory_equal(&facts, &expected, sizeof facts);
  assert_int_equal(chunks->n_parts, CHUNKS);
  fill(bytes, epoch, history);
  for (size_t i = 0; i < CHUNKS; i++) {
    assert_int_equal(chunks->parts[i].size, CHUNK);
    assert_memory_equal(chunks->parts[i].data, bytes + i * CHUNK, CHUNK);
  }
}

/* Seconds until the entry of this epoch stands so, 0.1 s exact; -1: it does not within `most`. */
static double stands(scene *sc, size_t node, uint64_t epoch, hv_step_log_standing standing, double most) {
  for (double s = 0; s < most; s += 0.1, run(sc, 0.1))
    if (look(sc, node, epoch) == standing)
      return s;
  return -1;
}

/* ---- what is kept ---- */

static void entries_come_from_their_keepers(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 1, 6, 0, 0);
  for (uint64_t epoch = 0; epoch < 4; epoch++)
    for (size_t i = 0; i < 5; i++)
      adds(&sc, i, epoch, 0);
  run(&sc, 3);
  assert_int_equal(look(&sc, 5, 0), HV_STEP_LOG_NOT_WANTED);
  wants(&sc, 5, 0, 4, 100 * ENTRY);
  assert_int_equal(look(&sc, 5, 0), HV_STEP_LOG_COMES);
  assert_true(stands(&sc, 5, 3, HV_STEP_LOG_THERE, 10) >= 0);
  for (uint64_t epoch = 0; epoch < 4; epoch++)
    has(&sc, 5, epoch, 0);
  assert_int_equal(look(&sc, 5, 4), HV_STEP_LOG_NOT_WANTED);
  assert_int_equal(sc.keepers[5].changes, 4);
  wants(&sc, 5, 4, 4, 0);
  assert_int_equal(look(&sc, 5, 3), HV_STEP_LOG_NOT_WANTED);
  close_scene(&sc);
}

/* An entry that is announced only after it was wanted comes, too. */
static void entry_is_looked_for_until_it_is_announced(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 2, 4, 0, 0);
  wants(&sc, 3, 9, 10, 100 * ENTRY);
  run(&sc, 3.5);
  assert_int_equal(look(&sc, 3, 9), HV_STEP_LOG_COMES);
  for (size_t i = 0; i < 3; i++)
    adds(&sc, i, 9, 0);
  assert_true(stands(&sc, 3, 9, HV_STEP_LOG_THERE, 4) >= 0);
  has(&sc, 3, 9, 0);
  close_scene(&sc);
}

/* The others count the next epoch while they average the gradients of this epoch. */
static void entry_that_may_still_be_averaged_is_waited_for(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 7, 4, 0, 0);
  for (size_t i = 0; i < 3; i++)
    adds(&sc, i, 8, 0);
  wants_from(&sc, 3, 8, 10, 9, 100 * ENTRY);
  run(&sc, 20);
  has(&sc, 3, 8, 0);
  assert_int_equal(look(&sc, 3, 9), HV_STEP_LOG_COMES);
  for (size_t i = 0; i < 3; i++)
    adds(&sc, i, 9, 0);
  assert_true(stands(&sc, 3, 9, HV_STEP_LOG_THERE, 4) >= 0);
  wants_from(&sc, 3, 9, 11, 10, 100 * ENTRY);
  run(&sc, 20);
  assert_int_equal(look(&sc, 3, 10), HV_STEP_LOG_COMES);
  wants_from(&sc, 3, 9, 12, 11, 100 * ENTRY); /* it must have been averaged by now */
  assert_in_range((uint64_t)(10 * stands(&sc, 3, 10, HV_STEP_LOG_LOST, 10)), 45, 70);
  close_scene(&sc);
}

static void log_keeps_the_latest_entries_within_its_bounds(void **unused) {
  (void)unused;
  scene sc;
  uint64_t first, bytes, memory = 3 * ENTRY + 10;
  open_scene(&sc, 3, 2, 0, 0);
  size_t used = sc.mem.used;
  for (uint64_t epoch = 100; epoch < 100 + 3 * HV_STEP_LOG_PLACES; epoch++) {
    adds(&sc, 0, epoch, 0);
    assert_int_equal(offered(&sc, 0, &first), epoch < 132 ? epoch - 99 : HV_STEP_LOG_ENTRIES);
    assert_int_equal(first, epoch < 132 ? 100 : epoch - 31);
    run(&sc, 0.5);
  }
  assert_in_range(sc.mem.used - used, 0, (HV_STEP_LOG_ENTRIES + 20) * (ENTRY + 4096)); /* of old ones nothing is left */
  tell(&sc, 0, end, NULL);
  assert_int_equal(offered(&sc, 0, NULL), 0);
  hv_step_log_free(sc.keepers[1].log);
  tell(&sc, 1, make_log, &memory);
  for (uint64_t epoch = 5; epoch < 15; epoch++)
    adds(&sc, 1, epoch, 0);
  assert_int_equal(hv_step_log_offered(sc.keepers[1].log, &first, &bytes), 3);
  assert_int_equal(first, 12);
  assert_int_equal(bytes, 3 * ENTRY);
  close_scene(&sc);
}

static void gap_begins_a_new_log(void **unused) {
  (void)unused;
  scene sc;
  uint64_t first;
  open_scene(&sc, 4, 2, 0, 0);
  for (uint64_t epoch = 5; epoch < 9; epoch++)
    adds(&sc, 0, epoch, 0);
  adds(&sc, 0, 10, 0);
  assert_int_equal(offered(&sc, 0, &first), 1);
  assert_int_equal(first, 10);
  assert_int_equal(add_in_time(&sc, 0, &(adding){.epoch = 11, .chunks = 0}), HV_INVALID);
  assert_int_equal(offered(&sc, 0, NULL), 0); /* one lacks: the next one would follow a gap */
  close_scene(&sc);
}

static void average_of_a_short_epoch_ends_the_log(void **unused) {
  (void)unused;
  scene sc;
  uint64_t first;
  adding at_once = {.epoch = 6, .chunks = CHUNKS};
  open_scene(&sc, 6, 2, 0, 0);
  adds(&sc, 0, 5, 0);
  run(&sc, 0.08);
  tell(&sc, 0, add, &at_once);
  assert_int_equal(at_once.status, HV_STATE);
  assert_int_equal(offered(&sc, 0, NULL), 0);
  run(&sc, 0.08); /* since an average that is not kept */
  at_once.epoch = 7;
  tell(&sc, 0, add, &at_once);
  assert_int_equal(at_once.status, HV_STATE);
  adds(&sc, 0, 8, 0);
  assert_int_equal(offered(&sc, 0, &first), 1);
  assert_int_equal(first, 8);
  close_scene(&sc);
}

static void entry_beyond_the_memory_ends_the_log(void **unused) {
  (void)unused;
  scene sc;
  uint64_t memory = 2 * CHUNK;
  open_scene(&sc, 5, 2, 0, 0);
  hv_step_log_free(sc.keepers[0].log);
  tell(&sc, 0, make_log, &memory);
  adding small = {.epoch = 1, .chunks = 2}, large = {.epoch = 2, .chunks = 3};
  assert_int_equal(add_in_time(&sc, 0, &small), HV_OK);
  assert_int_equal(add_in_time(&sc, 0, &large), HV_TOO_LARGE);
  assert_int_equal(offered(&sc, 0, NULL), 0);
  close_scene(&sc);
}

/* ---- votes ---- */

static void false_entry_of_a_liar_is_not_taken(void **unused) {
  (void)unused;
  for (uint64_t seed = 10; seed < 16; seed++) {
    scene sc;
    open_scene(&sc, seed, 6, 0, 0);
    lies(&sc, 1 + seed % 4, 20);
    run(&sc, 1);                   /* it is the first to announce */
    for (size_t i = 1; i < 5; i++) /* 0 is the initial peer, which would decide by itself */
      if (i != 1 + seed % 4)
        adds(&sc, i, 20, 0);
    run(&sc, 2);
    wants(&sc, 5, 20, 21, 100 * ENTRY);
    assert_true(stands(&sc, 5, 20, HV_STEP_LOG_THERE, 10) >= 0);
    has(&sc, 5, 20, 0);
    close_scene(&sc);
  }
}

/* Three have another history than the replica of the one that looks, two have its own. */
static void refused_entry_has_no_part_in_the_next_vote(void **unused) {
  (void)unused;
  scene sc;
  uint64_t epoch = 20;
  open_scene(&sc, 20, 7, 0, 0);
  for (size_t i = 1; i < 6; i++)
    adds(&sc, i, epoch, i < 4 ? 1 : 0);
  run(&sc, 2);
  wants(&sc, 6, epoch, epoch + 1, 100 * ENTRY);
  assert_true(stands(&sc, 6, epoch, HV_STEP_LOG_THERE, 10) >= 0);
  has(&sc, 6, epoch, 1);
  tell(&sc, 6, refuse, &epoch);
  assert_int_equal(look(&sc, 6, epoch), HV_STEP_LOG_COMES);
  assert_true(stands(&sc, 6, epoch, HV_STEP_LOG_THERE, 10) >= 0);
  has(&sc, 6, epoch, 0);
  tell(&sc, 6, refuse, &epoch);
  assert_in_range((uint64_t)(10 * stands(&sc, 6, epoch, HV_STEP_LOG_LOST, 10)), 40, 80);
  close_scene(&sc);
}

static void client_votes_and_is_asked_for_nothing(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 21, 6, 2, 0);
  lies(&sc, 1, 7);
  for (size_t i = 3; i < 6; i++)
    adds(&sc, i, 7, 0); /* 4 and 5 are clients */
  run(&sc, 2);
  wants(&sc, 2, 7, 8, 100 * ENTRY);
  assert_true(stands(&sc, 2, 7, HV_STEP_LOG_THERE, 10) >= 0);
  has(&sc, 2, 7, 0);
  close_scene(&sc);
}

/* ---- as the swarm goes on ---- */

static void entries_wait_within_the_bytes_ahead(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 30, 4, 0, 0);
  for (uint64_t epoch = 50; epoch < 58; epoch++)
    for (size_t i = 0; i < 3; i++)
      adds(&sc, i, epoch, 0);
  run(&sc, 3);
  for (uint64_t first = 50; first < 58; first++) {
    wants(&sc, 3, first, 58, 2 * IMAGE + 100);
    assert_true(stands(&sc, 3, first + 1 < 58 ? first + 1 : first, HV_STEP_LOG_THERE, 10) >= 0);
    run(&sc, 2);
    has(&sc, 3, first, 0);
    if (first + 2 < 58)
      assert_int_equal(look(&sc, 3, first + 2), HV_STEP_LOG_COMES);
  }
  wants(&sc, 3, 50, 51, ENTRY / 2); /* an entry that never fits */
  assert_true(stands(&sc, 3, 50, HV_STEP_LOG_LOST, 10) >= 0);
  close_scene(&sc);
}

static void keeper_that_ends_is_replaced_by_others(void **unused) {
  (void)unused;
  for (uint64_t seed = 40; seed < 48; seed++) {
    scene sc;
    open_scene(&sc, seed, 5, 0, 20000);
    for (uint64_t epoch = 5; epoch < 8; epoch++)
      for (size_t i = 0; i < 4; i++)
        adds(&sc, i, epoch, 0);
    run(&sc, 3);
    wants(&sc, 4, 5, 8, 100 * ENTRY);
    run(&sc, 0.2 * (double)(seed - 39));
    hv_sim_kill(sc.sim, 1);
    run(&sc, 0.3);
    hv_sim_kill(sc.sim, 2);
    assert_true(stands(&sc, 4, 7, HV_STEP_LOG_THERE, 60) >= 0);
    for (uint64_t epoch = 5; epoch < 8; epoch++)
      has(&sc, 4, epoch, 0);
    close_scene(&sc);
  }
}

static void entries_of_an_ended_log_are_lost(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 50, 4, 0, 0);
  for (size_t i = 0; i < 3; i++)
    adds(&sc, i, 5, 0);
  run(&sc, 3);
  for (size_t i = 0; i < 3; i++)
    tell(&sc, i, end, NULL);
  run(&sc, 2);
  wants(&sc, 3, 5, 7, 100 * ENTRY);
  double after = stands(&sc, 3, 5, HV_STEP_LOG_LOST, 20);
  assert_in_range((uint64_t)(10 * after), 45, 70);
  assert_int_equal(look(&sc, 3, 6), HV_STEP_LOG_LOST); /* it follows that one */
  assert_int_equal(sc.keepers[3].changes, 1);
  wants(&sc, 3, 5, 9, 100 * ENTRY);
  assert_int_equal(look(&sc, 3, 5), HV_STEP_LOG_LOST);
  wants(&sc, 3, 6, 9, 100 * ENTRY); /* a state of epoch 6 was loaded: that is another entry */
  assert_int_equal(look(&sc, 3, 6), HV_STEP_LOG_COMES);
  close_scene(&sc);
}

static void entry_is_lost_once_all_its_keepers_end(void **unused) {
  (void)unused;
  for (uint64_t seed = 60; seed < 64; seed++) {
    scene sc;
    open_scene(&sc, seed, 4, 0, 4000);
    for (size_t i = 1; i < 3; i++)
      adds(&sc, i, 5, 0);
    run(&sc, 5);
    wants(&sc, 3, 5, 6, 100 * ENTRY);
    run(&sc, 0.5 * (double)(seed - 58));
    assert_int_equal(look(&sc, 3, 5), HV_STEP_LOG_COMES);
    for (size_t i = 1; i < 3; i++)
      hv_sim_kill(sc.sim, i);
    double after = stands(&sc, 3, 5, HV_STEP_LOG_LOST, 60);
    assert_in_range((uint64_t)(10 * after), 1, 400);
    close_scene(&sc);
  }
}

static void progress_says_how_much_has_come(void **unused) {
  (void)unused;
  scene sc;
  uint64_t come, all, most = 0;
  open_scene(&sc, 70, 4, 0, 4000);
  for (size_t i = 0; i < 3; i++)
    adds(&sc, i, 5, 0);
  run(&sc, 5);
  hv_step_log_progress(sc.keepers[3].log, &come, &all);
  assert_true(come == 0 && all == 0);
  wants(&sc, 3, 5, 6, 100 * ENTRY);
  while (look(&sc, 3, 5) == HV_STEP_LOG_COMES) {
    run(&sc, 0.1);
    hv_step_log_progress(sc.keepers[3].log, &come, &all);
    assert_true(all == 0 || (all == IMAGE && come <= all));
    most = come > most ? come : most;
  }
  assert_in_range(most, IMAGE / 2, IMAGE - 1);
  hv_step_log_progress(sc.keepers[3].log, &come, &all);
  assert_true(come == 0 && all == 0);
  has(&sc, 3, 5, 0);
  close_scene(&sc);
}

/* Messages in a second in a swarm in which one log has so many entries. */
static double messages_with(uint64_t entries) {
  enum { SECONDS = 4 * HV_STEP_LOG_DECLARE_MS / 1000 };
  scene sc;
  open_scene(&sc, 75, NODES, 0, 0);
  for (uint64_t epoch = 0; epoch < entries; epoch++)
    adds(&sc, 3, epoch, 0);
  run(&sc, 60);
  uint64_t before = hv_sim_count(sc.sim).messages;
  run(&sc, SECONDS);
  double messages = (double)(hv_sim_count(sc.sim).messages - before) / SECONDS;
  close_scene(&sc);
  return messages;
}

static void announcements_of_a_full_log_cost_few_messages(void **unused) {
  (void)unused;
  double none = messages_with(0), cost = messages_with(HV_STEP_LOG_ENTRIES) - none;
  print_message("%.1f messages in a second beside %.1f of the swarm, for %d entries\n", cost, none, HV_STEP_LOG_ENTRIES);
  assert_true(cost > 0.3 && cost < 4);
}

/* ---- the end ---- */

static void is_over(void *arg) {
  keeper *k = arg;
  k->over++;
  hv_step_log_free(k->log);
  k->log = NULL;
}

static void stop(keeper *k, hv_node *node, void *arg) {
  (void)node, (void)arg;
  hv_step_log_stop(k->log, is_over, k);
}

static void log_that_stops_leaves_nothing(void **unused) {
  (void)unused;
  for (uint64_t seed = 80; seed < 90; seed++) {
    scene sc;
    open_scene(&sc, seed, 4, 0, 20000);
    for (size_t i = 0; i < 3; i++)
      adds(&sc, i, 5, 0);
    run(&sc, 3);
    wants(&sc, 3, 5, 6, 100 * ENTRY);
    run(&sc, 0.1 * (double)(seed - 79));
    for (size_t i = 0; i < 4; i++)
      tell(&sc, i, stop, NULL);
    run(&sc, 5);
    for (size_t i = 0; i < 4; i++)
      assert_int_equal(sc.keepers[i].over, 1);
    close_scene(&sc);
  }
}

static hv_status hears(scene *sc, size_t node, uint64_t epoch) {
  adding a = {.epoch = epoch, .chunks = CHUNKS};
  tell(sc, node, hear, &a);
  return a.status;
}

static void average_from_a_round_follows_the_entry_before_it(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 26, 3, 0, 0);
  assert_int_equal(hears(&sc, 2, 4), HV_STATE); /* nothing is wanted */
  wants(&sc, 2, 3, 4, 100 * ENTRY);
  assert_int_equal(hears(&sc, 2, 2), HV_STATE);
  assert_int_equal(hears(&sc, 2, 4), HV_OK); /* which nobody offers */
  assert_int_equal(look(&sc, 2, 4), HV_STEP_LOG_NOT_WANTED);
  adds(&sc, 0, 3, 0);
  run(&sc, 3);
  wants(&sc, 2, 3, 5, 100 * ENTRY);
  has(&sc, 2, 3, 0);
  has(&sc, 2, 4, 0);
  for (uint64_t epoch = 6; epoch < 6 + HV_STEP_LOG_HEARD; epoch++)
    assert_int_equal(hears(&sc, 2, epoch), HV_OK);
  assert_int_equal(hears(&sc, 2, 6 + HV_STEP_LOG_HEARD), HV_TOO_LARGE);
  wants(&sc, 2, 0, 0, 0);
  assert_int_equal(hears(&sc, 2, 6), HV_STATE); /* they are forgotten, and close_scene counts their blocks */
  close_scene(&sc);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(entries_come_from_their_keepers),
      cmocka_unit_test(entry_is_looked_for_until_it_is_announced),
      cmocka_unit_test(entry_that_may_still_be_averaged_is_waited_for),
      cmocka_unit_test(log_keeps_the_latest_entries_within_its_bounds),
      cmocka_unit_test(gap_begins_a_new_log),
      cmocka_unit_test(average_of_a_short_epoch_ends_the_log),
      cmocka_unit_test(entry_beyond_the_memory_ends_the_log),
      cmocka_unit_test(false_entry_of_a_liar_is_not_taken),
      cmocka_unit_test(refused_entry_has_no_part_in_the_next_vote),
      cmocka_unit_test(client_votes_and_is_asked_for_nothing),
      cmocka_unit_test(entries_wait_within_the_bytes_ahead),
      cmocka_unit_test(keeper_that_ends_is_replaced_by_others),
      cmocka_unit_test(entries_of_an_ended_log_are_lost),
      cmocka_unit_test(entry_is_lost_once_all_its_keepers_end),
      cmocka_unit_test(progress_says_how_much_has_come),
      cmocka_unit_test(announcements_of_a_full_log_cost_few_messages),
      cmocka_unit_test(log_that_stops_leaves_nothing),
      cmocka_unit_test(average_from_a_round_follows_the_entry_before_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
