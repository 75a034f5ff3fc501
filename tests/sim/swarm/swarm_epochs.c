/* Programs that train: each makes an epoch, seeks a group for its end, and goes on. A peer that the others have left behind loads
 * their state; who finds nobody steps alone; who is late does not train.
 *
 * Room `epochs`: a load takes some time, and gives the newest state that anybody has. Room `chase`: a state is to be had only from
 * who offers it, as the Optimizer does: some time after a step with others (their states are
 * averaged first), at once after a step alone, never while it loads one itself. A load looks for one of the epoch in which the
 * furthest is, or later, and has it some time after it was found. So who loads might chase the others: its state is old when it
 * comes.
 *
 * On the way no seek lasts longer than it may. In calm all who live are soon in one epoch again and stay so: nobody waits in vain,
 * nobody is left behind, every group is all of them; nobody looks longer than LOOK_US for a state, or loads more than CHASES_MAX of
 * them without an epoch made with others. */
#include "lib/match_swarm.h"
#include "sim/swarm/swarm.h"

#include <stdio.h>
#include <string.h>

enum {
  TICK_US = 50000,
  FIRST_US = 12000000,
  TRAIN_US = 1000000,
  LOAD_US = 300000,   /* at least; as much more at most */
  STATE_US = 1000000, /* until states are averaged, at most */
  RETRY_US = 250000,
  LOOK_US = 8000000,
  CHASES_MAX = 3,
  WAIT_MS = 4000,
  STOOD_US = 63000000,  /* it may stand still three times */
  SETTLE_US = 100000000 /* after the last fault: declarations end, the lost are found */
};

typedef struct trainer {
  unsigned epoch, offered; /* offered: from offers_us on; 0: nothing */
  unsigned wanted, coming; /* by who loads; coming: it was found, 0: not yet */
  unsigned chases;         /* loads since an epoch was made with others */
  int out, seeking, loading;
  uint64_t next_us; /* it seeks, or has loaded, then */
  uint64_t offers_us;
  uint64_t looks_us; /* who loads: since then */
} trainer;

typedef struct epochs_room {
  swarm_run *run;
  match_swarm s;
  trainer *trainers;
  int chase; /* only what is offered can be loaded */
} epochs_room;

static uint64_t below(epochs_room *room, uint64_t n) {
  return check_random(&room->run->rng) % n;
}

static int is_calm(const epochs_room *room, uint64_t since_us) {
  return since_us > room->run->calm_us + SETTLE_US || room->run->options->faults == 0;
}

static unsigned furthest(const epochs_room *room) {
  unsigned epoch = 0;
  for (size_t i = 0; i < room->s.n; i++)
    if (hv_sim_alive(room->run->sim, i) && room->trainers[i].epoch > epoch)
      epoch = room->trainers[i].epoch;
  return epoch;
}

/* The newest epoch whose state can be had; 0: none. */
static unsigned on_offer(const epochs_room *room, uint64_t now) {
  unsigned epoch = 0;
  for (size_t i = 0; i < room->s.n; i++) {
    const trainer *p = &room->trainers[i];
    if (hv_sim_alive(room->run->sim, i) && !p->out && !p->loading && now >= p->offers_us && p->offered > epoch)
      epoch = p->offered;
  }
  return epoch;
}

static size_t alive(const epochs_room *room) {
  size_t n = 0;
  for (size_t i = 0; i < room->s.n; i++)
    n += (size_t)hv_sim_alive(room->run->sim, i);
  return n;
}

static void checker(epochs_room *room, const match_try *t) {
  uint64_t took = t->ended_us - t->asked_us, most = (WAIT_MS + HV_MATCH_GRACE_MS) * 1000ull + 20000;
  if (room->run->options->faults & SWARM_PAUSE)
    most += STOOD_US;
  if (took > most)
    swarm_fail(room->run, "n%zu: epoch %s ended after %.3f s", t->seat->number, t->epoch, (double)took * 1e-6);
  if (!is_calm(room, t->asked_us) || alive(room) < 2)
    return;
  swarm_figure(room->run, "calm_seeks", 1);
  swarm_figure(room->run, "calm_wait_ms", (double)took * 1e-3);
  if (t->status != HV_OK)
    swarm_fail(room->run, "n%zu has no group in epoch %s, in calm: %s: %s", t->seat->number, t->epoch, hv_status_name(t->status),
               t->text);
  else if (t->group->n_members != alive(room))
    swarm_fail(room->run, "n%zu is in a group of %zu in epoch %s, in calm, and %zu live", t->seat->number, t->group->n_members,
               t->epoch, alive(room));
}

/* The program's reaction to the end of its seek. */
static void acts_on(epochs_room *room, size_t i, const match_try *t) {
  trainer *p = &room->trainers[i];
  p->seeking = 0;
  hv_sim_say(room->run->sim, "n%zu: epoch %s, %s %s", i, t->epoch, hv_status_name(t->status), t->text);
  checker(room, t);
  swarm_figure(room->run,
               t->status == HV_OK                          ? "together"
               : t->status == HV_EXISTS && t->seek.further ? "left_behind"
               : t->status == HV_EXISTS                    ? "late"
               : t->status == HV_TIMEOUT                   ? "alone"
                                                           : "ended",
               1);
  if (t->status == HV_TIMEOUT)
    swarm_figure(room->run, t->ended_us - t->asked_us < WAIT_MS * 1000ull ? "alone_early" : "alone_by_timeout", 1);
  p->loading = t->status == HV_EXISTS;
  p->wanted = furthest(room);
  p->looks_us = t->ended_us;
  if (t->status == HV_OK || t->status == HV_TIMEOUT) {
    p->offered = ++p->epoch;
    p->offers_us = t->ended_us + (room->chase && t->status == HV_OK ? below(room, STATE_US) : 0);
  }
  p->chases = t->status == HV_OK ? 0 : p->chases;
  if (p->loading)
    p->next_us = t->ended_us + (room->chase ? 0 : LOAD_US + below(room, LOAD_US));
  else
    p->next_us = t->ended_us + TRAIN_US + below(room, TRAIN_US / 5);
}

/* It takes what there is; if that is too old, it looks again. */
static void looks(epochs_room *room, size_t i, uint64_t now) {
  trainer *p = &room->trainers[i];
  unsigned found = on_offer(room, now), most = furthest(room);
  p->wanted = p->wanted > most ? most : p->wanted; /* who was further has died */
  if (found >= p->wanted && found > p->epoch) {
    p->coming = found;
    p->next_us = now + LOAD_US + below(room, LOAD_US);
    return;
  }
  p->next_us = now + RETRY_US;
  if (p->epoch >= most && p->wanted <= p->epoch && now > p->looks_us + LOOK_US) /* nobody is further any more: it goes on */
    p->loading = 0;
  else if (is_calm(room, p->looks_us) && now > p->looks_us + LOOK_US)
    swarm_fail(room->run, "n%zu finds no state of epoch %u or later, and the furthest is in %u", i, p->wanted, most);
}

static void has_loaded(epochs_room *room, size_t i, uint64_t now) {
  trainer *p = &room->trainers[i];
  unsigned most = furthest(room);
  hv_sim_say(room->run->sim, "n%zu has the state of %u, the furthest is in %u", i, p->coming, most);
  swarm_figure(room->run, "loads", 1);
  swarm_figure(room->run, "load_ms", (double)(now - p->looks_us) * 1e-3);
  swarm_figure(room->run, "loads_that_came_late", p->coming < most);
  if (++p->chases > CHASES_MAX && is_calm(room, p->looks_us))
    swarm_fail(room->run, "n%zu has loaded %u states and made no epoch with the others", i, p->chases);
  p->epoch = p->coming;
  p->loading = 0;
  p->offered = p->coming = 0;
  p->next_us = now + TRAIN_US;
}

static void takes_its_turn(epochs_room *room, size_t i, uint64_t now) {
  trainer *p = &room->trainers[i];
  if (!hv_sim_alive(room->run->sim, i)) {
    *p = (trainer){.out = 1};
    return;
  }
  if (p->out)
    *p = (trainer){.next_us = now + 1000000 + below(room, 1000000)}; /* it begins anew, and knows nothing */
  const match_try *t = match_swarm_try(&room->s, i);
  if (p->seeking && t->done)
    acts_on(room, i, t);
  if (p->seeking || (now < p->next_us && (p->loading || p->epoch >= furthest(room))))
    return;
  if (p->loading && !room->chase)
    p->coming = furthest(room);
  if (p->loading) {
    (p->coming ? has_loaded : looks)(room, i, now);
    return;
  }
  char epoch[16];
  snprintf(epoch, sizeof epoch, "%u", p->epoch);
  match_swarm_forget(&room->s.seats[i], 0);
  p->seeking = 1;
  hv_sim_say(room->run->sim, "n%zu seeks %s", i, epoch);
  match_swarm_seek(&room->s, i, epoch, 0, WAIT_MS, hv_span_of(NULL, 0));
}

static void tick(hv_sim *sim, void *arg) {
  epochs_room *room = arg;
  uint64_t now = hv_sim_now(sim);
  for (size_t i = 0; i < room->s.n; i++)
    takes_its_turn(room, i, now);
  if (now + TICK_US < room->run->end_us)
    hv_sim_at(sim, now + TICK_US, tick, room);
}

static void play_epochs(swarm_run *run, int chase) {
  epochs_room room = {.run = run, .chase = chase};
  match_swarm_init(&room.s, run->sim, &run->mem, run->options->nodes);
  room.s.scenario = &room;
  room.trainers = hv_mem_array(&run->mem, run->options->nodes, sizeof *room.trainers);
  if (!room.trainers)
    swarm_fail(run, "no memory");
  for (size_t i = 0; i < run->options->nodes && room.trainers; i++) {
    match_seat *seat = match_swarm_next(&room.s);
    hv_sim_node_config skew = {0};
    swarm_seat(run, &skew);
    seat->skew_us = skew.skew_us;
    seat->drift_ppm = skew.drift_ppm;
    seat->client = i > 1 && below(&room, 8) == 0;
    room.trainers[i] = (trainer){.next_us = FIRST_US + below(&room, TRAIN_US)};
    match_swarm_add(&room.s);
  }
  swarm_trouble(run);
  hv_sim_at(run->sim, FIRST_US, tick, &room);
  hv_sim_run_until(run->sim, run->end_us);
  swarm_figure(run, "epochs", furthest(&room));
  swarm_over(run);
  hv_mem_free(room.trainers);
  match_swarm_fini(&room.s);
}

void swarm_epochs_play(swarm_run *run) {
  play_epochs(run, 0);
}

void swarm_chase_play(swarm_run *run) {
  play_epochs(run, 1);
}
