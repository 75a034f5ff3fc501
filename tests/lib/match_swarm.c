#include "lib/match_swarm.h"

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

static void step(void *self, const hv_event *event) {
  match_seat *seat = self;
  if (seat->is_liar && seat->swarm->lie && seat->swarm->lie(seat, event))
    return;
  hv_node_step(seat->node, event);
  if (event->kind == HV_EVENT_START) /* as a program would, in its first command */
    must(hv_match_new(hv_node_match_registry(seat->node), &seat->config, &seat->match, NULL) == HV_OK, "no memory for a match");
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  match_seat *seat = arg;
  match_swarm *swarm = seat->swarm;
  hv_node_config config = {.me = hv_sim_target(swarm->sim, seat->number).id,
                           .client_mode = seat->client,
                           .initial = &seat->initial,
                           .n_initial = (size_t)seat->has_initial,
                           .hello_every_ms = swarm->hello_every_ms,
                           .peers_room = swarm->peers_room,
                           .dht = swarm->dht};
  seat->env = env;
  hv_status status = hv_node_new(env, &config, &seat->node);
  *out = (hv_core){seat, step};
  return status;
}

static void unmake(void *self) {
  match_seat *seat = self;
  hv_node *node = seat->node;
  seat->match = NULL; /* it goes with its node */
  hv_node_free(node);
  seat->node = NULL;
}

void match_swarm_init(match_swarm *swarm, hv_sim *sim, hv_mem *mem, size_t room) {
  static const char prefix[] = "run_grad_averager";
  swarm->mem = mem;
  swarm->sim = sim;
  swarm->seats = hv_mem_array(mem, room, sizeof *swarm->seats);
  swarm->room = room;
  swarm->config = (hv_match_config){.prefix = hv_span_of(prefix, sizeof prefix - 1), .n_chunks = 64};
  must(swarm->seats != NULL, "no memory");
}

void match_swarm_forget(match_seat *seat, size_t keep) {
  for (match_try *t, **link = &seat->tries; (t = *link);) {
    if (keep || !t->done) {
      keep -= keep > 0;
      link = &t->next;
      continue;
    }
    *link = t->next;
    hv_mem_free(t->group);
    hv_mem_free(t->gather);
    hv_mem_free(t);
  }
}

void match_swarm_fini(match_swarm *swarm) {
  for (size_t i = 0; i < swarm->n; i++)
    match_swarm_forget(&swarm->seats[i], 0);
  hv_mem_free(swarm->seats);
}

match_seat *match_swarm_next(match_swarm *swarm) {
  must(swarm->n < swarm->room, "too many nodes");
  match_seat *seat = &swarm->seats[swarm->n];
  if (!seat->swarm)
    *seat = (match_seat){.swarm = swarm, .number = swarm->n, .config = swarm->config};
  return seat;
}

size_t match_swarm_add(match_swarm *swarm) {
  match_seat *seat = match_swarm_next(swarm);
  size_t got;
  swarm->n++;
  if (!seat->has_initial && seat->number) {
    seat->has_initial = 1;
    seat->initial = hv_sim_target(swarm->sim, 0);
  }
  hv_sim_node_config sim_seat = {.make = make,
                                 .free = unmake,
                                 .arg = seat,
                                 .client_mode = seat->client,
                                 .skew_us = seat->skew_us,
                                 .drift_ppm = seat->drift_ppm,
                                 .versions = seat->versions};
  must(hv_sim_add(swarm->sim, &sim_seat, &got) == HV_OK && got == seat->number, "a node could not be added");
  return got;
}

void match_swarm_run(match_swarm *swarm, double seconds) {
  hv_sim_run_until(swarm->sim, hv_sim_now(swarm->sim) + (uint64_t)(seconds * (double)MATCH_SECOND));
}

/* ---- seeks ---- */

static void over(match_try *t, hv_status status, hv_match_group *group, const char *text) {
  match_swarm *swarm = t->seat->swarm;
  must(!t->done, "done came twice");
  t->done = 1;
  t->status = status;
  t->ended_us = hv_sim_now(swarm->sim);
  snprintf(t->text, sizeof t->text, "%.399s", text);
  if (group) { /* its memory is the node's: what the scenario keeps is its own */
    size_t members = (sizeof *group + 15) / 16 * 16,
           gathers = (members + group->n_members * sizeof(hv_round_member) + 15) / 16 * 16, bytes = 0;
    for (size_t i = 0; i < group->n_members; i++)
      bytes += group->gathers[i].size;
    size_t size = gathers + group->n_members * sizeof(hv_span) + bytes;
    uint8_t *copy = hv_mem_zalloc(swarm->mem, size), *at = copy + size - bytes;
    must(copy != NULL, "no memory");
    hv_match_group *own = (hv_match_group *)copy;
    *own = *group;
    memcpy(copy + members, group->members, group->n_members * sizeof(hv_round_member));
    hv_span *spans = (hv_span *)(copy + gathers);
    for (size_t i = 0; i < group->n_members; i++) {
      if (group->gathers[i].size)
        memcpy(at, group->gathers[i].data, group->gathers[i].size);
      spans[i] = hv_span_of(at, group->gathers[i].size);
      at += group->gathers[i].size;
    }
    own->members = (const hv_round_member *)(copy + members);
    own->gathers = spans;
    t->group = own;
    hv_mem_free(group);
  }
  if (swarm->done)
    swarm->done(t);
}

static void seek_done(hv_match_seek *seek, hv_status status, hv_match_group *group, const char *text) {
  over(seek->owner, status, group, text);
}

static void begin(hv_command *command, void *core) {
  match_try *t = (match_try *)command;
  hv_error err = {0};
  hv_span setup = t->setup ? hv_span_of(t->setup, strlen(t->setup)) : hv_span_of(NULL, 0);
  hv_status status = core && t->seat->match ? hv_match_set_setup(t->seat->match, setup, &err) : HV_CLOSED;
  if (status == HV_OK)
    status = hv_match_seek_start(t->seat->match, &t->seek, &err);
  t->started = status == HV_OK;
  if (status != HV_OK)
    over(t, status, NULL, err.text);
}

match_try *match_swarm_seek(match_swarm *swarm, size_t node, const char *epoch, uint32_t expected, uint32_t wait_ms,
                            hv_span gather) {
  match_seat *seat = &swarm->seats[node];
  match_try *t = hv_mem_zalloc(swarm->mem, sizeof *t);
  must(t != NULL, "no memory");
  t->command.run = begin;
  t->seat = seat;
  t->setup = seat->setup;
  t->asked_us = hv_sim_now(swarm->sim);
  snprintf(t->epoch, sizeof t->epoch, "%s", epoch);
  if (gather.size) {
    t->gather = hv_mem_alloc(swarm->mem, gather.size);
    must(t->gather != NULL, "no memory");
    memcpy(t->gather, gather.data, gather.size);
  }
  t->seek = (hv_match_seek){.done = seek_done,
                            .owner = t,
                            .epoch = hv_span_of(t->epoch, strlen(t->epoch)),
                            .expected = expected,
                            .wait_ms = wait_ms,
                            .gather = hv_span_of(t->gather, gather.size)};
  t->next = seat->tries;
  seat->tries = t;
  must(hv_sim_command(swarm->sim, node, &t->command) == HV_OK, "no memory for a command");
  return t;
}

match_try *match_swarm_try(match_swarm *swarm, size_t node) {
  return swarm->seats[node].tries;
}

static int all_done(void *arg) {
  match_swarm *swarm = arg;
  for (size_t i = 0; i < swarm->n; i++)
    if (swarm->seats[i].tries && !swarm->seats[i].tries->done && hv_sim_alive(swarm->sim, i))
      return 0;
  return 1;
}

int match_swarm_finish(match_swarm *swarm, double seconds) {
  return hv_sim_drive(swarm->sim, all_done, swarm, hv_sim_now(swarm->sim) + (uint64_t)(seconds * (double)MATCH_SECOND));
}

/* ---- what a group must be ---- */

int match_swarm_agree(const hv_match_group *a, const hv_match_group *b) {
  if (memcmp(a->id, b->id, sizeof a->id) != 0 || a->n_members != b->n_members || a->leader != b->leader)
    return 0;
  for (size_t i = 0; i < a->n_members; i++) {
    const hv_round_member *x = &a->members[i], *y = &b->members[i];
    if (!hv_peer_equal(&x->at.id, &y->at.id) || x->client != y->client || x->auxiliary != y->auxiliary || x->first != y->first ||
        x->count != y->count || !hv_span_equal(a->gathers[i], b->gathers[i]))
      return 0;
  }
  return 1;
}

const char *match_swarm_wrong(const hv_match_group *group, uint32_t n_chunks) {
  uint8_t *covered = calloc(n_chunks ? n_chunks : 1, 1);
  const char *wrong = NULL;
  must(covered != NULL, "no memory");
  for (size_t i = 0; i < group->n_members; i++) {
    const hv_round_member *m = &group->members[i];
    if (m->client && m->count)
      wrong = "a client owns a span";
    for (uint32_t c = 0; c < m->count; c++)
      if (m->first + c >= n_chunks || covered[m->first + c]++)
        wrong = "spans overlap";
    for (size_t j = 0; j < i; j++)
      if (hv_peer_equal(&m->at.id, &group->members[j].at.id))
        wrong = "a peer is in it twice";
  }
  for (uint32_t c = 0; c < n_chunks; c++)
    if (!covered[c])
      wrong = "a chunk has no owner";
  if (group->leader >= group->n_members || group->members[group->leader].client)
    wrong = "a client leads";
  free(covered);
  return wrong;
}

size_t match_swarm_place(match_swarm *swarm, const hv_match_group *group, size_t node) {
  hv_peer_id id = hv_sim_target(swarm->sim, node).id;
  size_t i = 0;
  while (i < group->n_members && !hv_peer_equal(&group->members[i].at.id, &id))
    i++;
  return i;
}

size_t match_swarm_first(match_swarm *swarm, const char *epoch, size_t nth) {
  match_seat *any = swarm->seats;
  while (!any->match)
    any++;
  hv_rank rank = hv_rank_for(any->env, match_key(any->match), hv_span_of(epoch, strlen(epoch)));
  for (size_t i = 0; i < swarm->n; i++) {
    size_t sooner = 0;
    hv_peer_id me = hv_sim_target(swarm->sim, i).id;
    for (size_t j = 0; j < swarm->n; j++) {
      hv_peer_id other = hv_sim_target(swarm->sim, j).id;
      sooner += !swarm->seats[j].client && hv_rank_compare(&rank, &other, &me) < 0;
    }
    if (!swarm->seats[i].client && sooner == nth)
      return i;
  }
  return swarm->n;
}
