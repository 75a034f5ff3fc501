/* Groups form, epoch after epoch, while everything goes wrong.
 * On the way: no seek lasts longer than it may; a group is right in itself, and its members agree on it byte for byte; without
 * faults nobody is named in a group of which it was not told. In calm, and in a room without faults from the start: all who live
 * are one group.
 * In the room `setups` some nodes change their setup every few epochs, also while everything goes wrong: all members of a group
 * have one setup, and in calm, once a change is some epochs ago, all of one setup are one group. */
#include "lib/match_swarm.h"
#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  ROUND_US = 8000000,
  SPREAD_US = 300000, /* they do not all call at once */
  WAIT_MS = 4000,
  FIRST_US = 12000000,
  SETTLE_US = 100000000, /* after the last fault: declarations end, the lost are found */
  KEEP = 6,
  STILL_US = 21000000,
  SLACK_US = 20000
};

typedef struct match_room {
  swarm_run *run;
  match_swarm s;
  unsigned epoch;
  size_t asked, in_time;
  int quiet; /* this epoch had no faults around it */
  int has_setups;
  unsigned changed; /* the epoch in which a setup changed last */
} match_room;

static const char *const setups[] = {"optimizer: SGD\nweight_decay: 0\n", "optimizer: SGD\nweight_decay: 0.1\n"};
enum { CHANGE_EVERY = 8, KNOWN_AFTER = 3 /* epochs */ };

static uint64_t below(match_room *room, uint64_t n) {
  return check_random(&room->run->rng) % n;
}

/* ---- when a seek has ended ---- */

static void in_time(match_room *room, const match_try *t) {
  uint64_t took = t->ended_us - t->asked_us, most = (WAIT_MS + HV_MATCH_GRACE_MS) * 1000ull + SLACK_US;
  if (room->run->options->faults & SWARM_PAUSE)
    most += 3 * STILL_US; /* it may stand still more than once */
  if (took > most)
    swarm_fail(room->run, "n%zu: epoch %s ended after %.3f s", t->seat->number, t->epoch, (double)took * 1e-6);
}

/* Each member began its seek with the setup of this one, or another seek later. */
static void same_setups(match_room *room, const match_try *t) {
  for (size_t i = 0; i < room->s.n; i++)
    for (const match_try *o = room->s.seats[i].tries; o; o = o->next)
      if (strcmp(o->epoch, t->epoch) == 0 && o->setup != t->setup && match_swarm_place(&room->s, t->group, i) < t->group->n_members)
        swarm_fail(room->run, "n%zu and n%zu are in one group of epoch %s, and their setups differ", i, t->seat->number, t->epoch);
}

/* Against all the others of its epoch. */
static void compare(match_room *room, const match_try *t) {
  const char *wrong = match_swarm_wrong(t->group, room->s.config.n_chunks);
  if (wrong || match_swarm_place(&room->s, t->group, t->seat->number) != t->group->me)
    swarm_fail(room->run, "n%zu: epoch %s: %s", t->seat->number, t->epoch, wrong ? wrong : "it is not in its own group");
  for (size_t i = 0; i < room->s.n; i++)
    for (const match_try *o = room->s.seats[i].tries; o; o = o->next) {
      if (o == t || !o->group || strcmp(o->epoch, t->epoch) != 0)
        continue;
      if (memcmp(o->group->id, t->group->id, sizeof t->group->id) == 0) {
        if (!match_swarm_agree(o->group, t->group))
          swarm_fail(room->run, "n%zu and n%zu do not agree on a group of epoch %s", i, t->seat->number, t->epoch);
      } else if (match_swarm_place(&room->s, o->group, t->seat->number) < o->group->n_members ||
                 match_swarm_place(&room->s, t->group, i) < t->group->n_members) {
        swarm_figure(room->run, "named_elsewhere", 1);
        if (room->run->options->faults == 0)
          swarm_fail(room->run, "n%zu and n%zu are named in each other's groups of epoch %s", i, t->seat->number, t->epoch);
      }
    }
}

static void done(match_try *t) {
  match_room *room = t->seat->swarm->scenario;
  in_time(room, t);
  swarm_figure(room->run,
               t->status == HV_OK        ? "seeks_grouped"
               : t->status == HV_TIMEOUT ? "seeks_alone"
               : t->status == HV_EXISTS  ? "seeks_late"
                                         : "seeks_ended",
               1);
  if (t->status == HV_OK) {
    same_setups(room, t);
    compare(room, t);
  } else if (t->status != HV_TIMEOUT && t->status != HV_EXISTS && t->status != HV_CLOSED && t->status != HV_CANCELLED)
    swarm_fail(room->run, "n%zu: epoch %s: %s: %s", t->seat->number, t->epoch, hv_status_name(t->status), t->text);
}

/* ---- epochs ---- */

/* The number of those that asked in this epoch with that setup. */
static size_t with_setup(match_room *room, const char *setup) {
  size_t n = 0;
  for (size_t i = 0; i < room->s.n; i++) {
    const match_try *t = match_swarm_try(&room->s, i);
    n += t && (unsigned)atoi(t->epoch) == room->epoch && t->setup == setup;
  }
  return n;
}

/* The outcome of the epoch that is over. Where nothing was wrong, all who asked with that setup are one group. */
static void look_back_at(match_room *room, const char *setup) {
  const match_try *first = NULL;
  uint64_t last_us = 0, asked_us = 0;
  size_t n = 0;
  for (size_t i = 0; i < room->s.n; i++) {
    match_try *t = match_swarm_try(&room->s, i);
    if (!t || (unsigned)atoi(t->epoch) != room->epoch || t->setup != setup)
      continue;
    if (!t->done && hv_sim_now(room->run->sim) > t->asked_us + (WAIT_MS + HV_MATCH_GRACE_MS) * 1000ull + STILL_US + ROUND_US)
      swarm_fail(room->run, "n%zu hangs in epoch %s", i, t->epoch);
    if (!room->quiet || (room->has_setups && (room->epoch < room->changed + KNOWN_AFTER || with_setup(room, setup) < 2)))
      continue;
    if (!t->done || t->status != HV_OK) {
      swarm_fail(room->run, "n%zu has no group in epoch %u, in calm: %s", i, room->epoch, t->done ? t->text : "it waits");
      return;
    }
    if (first && !match_swarm_agree(first->group, t->group)) {
      swarm_fail(room->run, "n%zu and n%zu are in different groups in epoch %u, in calm", first->seat->number, i, room->epoch);
      return;
    }
    first = t;
    last_us = t->ended_us > last_us ? t->ended_us : last_us;
    asked_us = t->asked_us > asked_us ? t->asked_us : asked_us;
    n++;
  }
  if (first) {
    double ms = (double)(last_us - asked_us) * 1e-3;
    swarm_figure(room->run, "calm_epochs", 1);
    swarm_figure(room->run, "calm_members", (double)n);
    swarm_figure(room->run, "calm_ms_from_last_call", ms);
    if (n != first->group->n_members)
      swarm_fail(room->run, "the group of epoch %u has %zu members, and %zu asked", room->epoch, first->group->n_members, n);
  }
}

static void look_back(match_room *room) {
  if (!room->has_setups)
    look_back_at(room, NULL);
  for (size_t i = 0; room->has_setups && i < 2; i++)
    look_back_at(room, setups[i]);
}

/* Now and then a third of all nodes change. */
static void change_setups(match_room *room) {
  if (!room->has_setups || room->epoch % CHANGE_EVERY != 1)
    return;
  room->changed = room->epoch;
  for (size_t i = 0; i < room->s.n; i++) {
    match_seat *seat = &room->s.seats[i];
    if (!seat->setup || below(room, 3) == 0)
      seat->setup = setups[below(room, 2)];
  }
}

typedef struct call_later {
  match_room *room;
  size_t node;
} call_later;

static void calls(hv_sim *sim, void *arg) {
  call_later *c = arg;
  match_room *room = c->room;
  match_try *before = match_swarm_try(&room->s, c->node);
  char epoch[16];
  uint8_t told[24];
  snprintf(epoch, sizeof epoch, "%u", room->epoch);
  for (size_t i = 0; i < sizeof told; i++)
    told[i] = (uint8_t)(c->node * 7 + i);
  if (hv_sim_alive(sim, c->node) && (!before || before->done)) {
    match_swarm_forget(&room->s.seats[c->node], KEEP);
    match_swarm_seek(&room->s, c->node, epoch, 0, WAIT_MS, hv_span_of(told, 1 + below(room, sizeof told)));
    room->asked++;
  }
  hv_mem_free(c);
}

static void next_epoch(hv_sim *sim, void *arg) {
  match_room *room = arg;
  uint64_t now = hv_sim_now(sim);
  if (room->epoch)
    look_back(room);
  room->epoch++;
  room->quiet = room->run->options->faults == 0 || now > room->run->calm_us + SETTLE_US;
  room->asked = 0;
  change_setups(room);
  for (size_t i = 0; i < room->s.n; i++) {
    call_later *c = hv_mem_alloc(&room->run->mem, sizeof *c);
    *c = (call_later){room, i};
    hv_sim_at(sim, now + below(room, SPREAD_US), calls, c);
  }
  if (now + ROUND_US < room->run->end_us)
    hv_sim_at(sim, now + ROUND_US, next_epoch, room);
}

static void match_play(swarm_run *run, int has_setups) {
  match_room room = {.run = run, .has_setups = has_setups};
  match_swarm_init(&room.s, run->sim, &run->mem, run->options->nodes);
  room.s.scenario = &room;
  room.s.done = done;
  room.s.config.n_chunks = 1 + (uint32_t)below(&room, 300);
  for (size_t i = 0; i < run->options->nodes; i++) {
    match_seat *seat = match_swarm_next(&room.s);
    hv_sim_node_config skew = {0};
    swarm_seat(run, &skew);
    seat->skew_us = skew.skew_us;
    seat->drift_ppm = skew.drift_ppm;
    seat->client = i > 1 && below(&room, 8) == 0;
    seat->config.auxiliary = i > 1 && below(&room, 16) == 0;
    seat->config.bandwidth = below(&room, 2) ? 1 + below(&room, 100000000) : 0;
    match_swarm_add(&room.s);
  }
  swarm_trouble(run);
  hv_sim_at(run->sim, FIRST_US, next_epoch, &room);
  hv_sim_run_until(run->sim, run->end_us + WAIT_MS * 1000ull + STILL_US);
  look_back(&room);
  swarm_figure(run, "epochs", room.epoch);
  swarm_over(run);
  match_swarm_fini(&room.s);
}

void swarm_match_play(swarm_run *run) {
  match_play(run, 0);
}

void swarm_setups_play(swarm_run *run) {
  match_play(run, 1);
}
