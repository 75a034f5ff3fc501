/* One peer among honest ones wants no group to form, told against the virtual clock: a client that calls, or a host that answers.
 */
#include "lib/match_scene.h"

enum { HONEST = 5, WAIT_MS = 15000 };

/* ---- peers that call ---- */

/* A client that joins hosts under names, and gives its signs of life. */
typedef struct intruder {
  hv_command command;
  match_seat *seat;
  size_t hosts, names; /* at each of the first so many nodes, under so many names that begin with this one */
  const char *name;
  uint32_t wait_ms, expected, gather_size; /* what it has to tell never comes */
  int dialable;                            /* it says so */
} intruder;

static void stays(hv_stream *stream, const hv_event *event) {
  match_seat *seat = stream->owner;
  hv_msg here = {.kind = HV_MSG_ACCEPTED};
  if (event->kind == HV_EVENT_STREAM_DATA && event->msg->kind == HV_MSG_ACCEPTED)
    seat->env->stream_send(seat->env, stream, &here, NULL);
}

static void intrude(hv_command *command, void *core) {
  static const hv_stream_events on = {stays, stays, stays, .heavy = 0};
  intruder *in = (intruder *)command;
  match_seat *seat = in->seat;
  char epoch[HV_MATCH_EPOCH_MAX];
  hv_msg join = {.kind = HV_MSG_JOIN,
                 .u.join = {.key = match_key(seat->match),
                            .schema = seat->config.schema,
                            .n_chunks = seat->config.n_chunks,
                            .wait_ms = in->wait_ms,
                            .expected = in->expected,
                            .gather_size = in->gather_size,
                            .stay = 1}};
  uint8_t packed[HV_CONTACT_ADDRS_MAX];
  if (in->dialable)
    join.u.join.addrs = hv_span_of(packed, hv_roster_me(&seat->match->roster, packed));
  assert_non_null(core);
  for (size_t host = 0; host < in->hosts; host++)
    for (size_t k = 0; k < in->names; k++) {
      hv_target to = hv_sim_target(seat->swarm->sim, host);
      hv_stream *stream;
      int size =
          in->names > 1 ? snprintf(epoch, sizeof epoch, "%s%zu", in->name, k) : snprintf(epoch, sizeof epoch, "%s", in->name);
      join.u.join.epoch = hv_span_of(epoch, (size_t)size);
      seat->env->stream_open(seat->env, &to, &join, &on, seat, &stream);
    }
}

static void send_in(scene *c, intruder *in, size_t node) {
  in->command.run = intrude;
  in->seat = &c->s.seats[node];
  assert_int_equal(hv_sim_command(c->s.sim, node, &in->command), HV_OK);
}

/* So many honest nodes, and then clients. */
static scene *with_clients(uint64_t seed, size_t clients) {
  scene *c = open_scene(seed);
  c->s.peers_room = 3; /* not everybody hears everybody's hellos */
  grow(c, HONEST);
  for (size_t i = 0; i < clients; i++) {
    match_swarm_next(&c->s)->client = 1;
    match_swarm_add(&c->s);
  }
  run(c, 8);
  return c;
}

/* All the honest are in one group, whoever else is. */
static void all_are_together(scene *c) {
  for (size_t i = 0; i < HONEST; i++) {
    match_try *t = newest(c, i), *first = newest(c, 0);
    if (!t->done || t->status != HV_OK)
      fail_msg("node %zu: %s: %s", i, t->done ? hv_status_name(t->status) : "it waits", t->text);
    if (!match_swarm_agree(first->group, t->group))
      fail_msg("node %zu is in another group than node 0", i);
  }
}

static void client_with_many_gatherings_keeps_nobody_from_a_group(void **unused) {
  (void)unused;
  scene *c = with_clients(1, 1);
  intruder in = {.hosts = HONEST, .names = MATCH_GATHERINGS_MAX, .name = "mine", .wait_ms = HV_MATCH_WAIT_MAX_MS};
  send_in(c, &in, HONEST);
  run(c, 1);
  for (size_t i = 0; i < HONEST; i++)
    seek(c, i, "1", HONEST, WAIT_MS);
  assert_true(match_swarm_finish(&c->s, 2));
  all_are_together(c);
  for (size_t i = 0; i < HONEST; i++)
    assert_true(c->s.seats[i].match->n_gatherings <= 1);
  close_scene(c);
}

static void many_clients_with_a_gathering_each_keep_nobody_away(void **unused) {
  (void)unused;
  enum { CLIENTS = 2 * MATCH_GATHERINGS_MAX };
  static const char *const names[4] = {"a", "b", "c", "d"};
  static char own[CLIENTS][16];
  static intruder in[CLIENTS];
  scene *c = with_clients(2, CLIENTS);
  for (size_t k = 0; k < CLIENTS; k++) {
    snprintf(own[k], sizeof own[k], "%s%zu", names[k % 4], k);
    in[k] = (intruder){.hosts = HONEST, .names = 1, .name = own[k], .wait_ms = HV_MATCH_WAIT_MAX_MS};
    send_in(c, &in[k], HONEST + k);
  }
  run(c, 1);
  for (size_t i = 0; i < HONEST; i++)
    assert_int_equal(c->s.seats[i].match->n_gatherings, MATCH_GATHERINGS_MAX);
  for (size_t i = 0; i < HONEST; i++)
    seek(c, i, "1", HONEST, WAIT_MS);
  run(c, 0.005);
  for (size_t k = 0; k < CLIENTS / 2; k++) /* and again, when those are on their way */
    send_in(c, &in[k], HONEST + k);
  assert_true(match_swarm_finish(&c->s, 4));
  all_are_together(c);
  close_scene(c);
}

static void member_with_wait_time_zero_hurries_nobody(void **unused) {
  (void)unused;
  for (size_t before = 0; before < 3; before++) { /* so many are there when it comes */
    scene *c = with_clients(10 + before, 1);
    intruder in = {.hosts = HONEST, .names = 1, .name = "1", .wait_ms = 0};
    for (size_t i = 0; i <= HONEST; i++) {
      if (i == before)
        send_in(c, &in, HONEST);
      else
        seek(c, i - (i > before), "1", 0, WAIT_MS);
      run(c, 0.3);
    }
    assert_true(match_swarm_finish(&c->s, 1));
    all_are_together(c);
    close_scene(c);
  }
}

/* Its time is over just when the first two have come: that begins nothing before most are there, as it would if it were honest. */
static void early_member_with_its_time_over_makes_no_small_group(void **unused) {
  (void)unused;
  scene *c = with_clients(20, 1);
  intruder in = {.hosts = HONEST, .names = 1, .name = "1", .wait_ms = 10100};
  send_in(c, &in, HONEST);
  run(c, 10);
  seek(c, 0, "1", 0, WAIT_MS);
  seek(c, 1, "1", 0, WAIT_MS);
  run(c, 4);
  assert_false(newest(c, 0)->done || newest(c, 1)->done);
  for (size_t i = 2; i < HONEST; i++)
    seek(c, i, "1", 0, WAIT_MS);
  assert_true(match_swarm_finish(&c->s, 1));
  assert_int_equal(newest(c, 0)->status, HV_OK);
  assert_true(newest(c, 0)->group->n_members >= HONEST - 1);
  close_scene(c);
}

/* No member lies. The first member gets those that are there when its time is over. */
static void honest_group_starts_when_its_first_members_time_is_over(void **unused) {
  (void)unused;
  scene *c = open_scene(21);
  grow(c, 3);
  run(c, 8);
  match_try *first = seek(c, 0, "1", 0, 5000);
  run(c, 4);
  match_try *second = seek(c, 1, "1", 0, 5000);
  assert_true(match_swarm_finish(&c->s, 3));
  assert_int_equal(first->status, HV_OK);
  assert_int_equal(second->status, HV_OK);
  assert_in_range(first->ended_us - first->asked_us, 4900000, 5100000);
  close_scene(c);
}

/* ---- who expects more than there are ---- */

/* All but one or two have had their group of an epoch, a minute ago, when those come. One more says that it expects the whole
 * world: they hear all the same that it is over, and are not a second group. */
static void member_that_expects_many_does_not_delay_late_peers(void **unused) {
  (void)unused;
  for (unsigned k = 0; k < 10; k++) {
    size_t others = HONEST - 1 - k % 2;
    char epoch[16];
    snprintf(epoch, sizeof epoch, "%u", k);
    scene *c = with_clients(100 + k, 1);
    for (size_t i = 0; i < others; i++)
      seek(c, i, epoch, (uint32_t)others, WAIT_MS);
    assert_true(match_swarm_finish(&c->s, 2));
    for (size_t i = 0; i < others; i++)
      hv_match_reached(c->s.seats[i].match, k + 1);
    run(c, 61);
    intruder in = {.hosts = HONEST, .names = 1, .name = epoch, .wait_ms = HV_MATCH_WAIT_MAX_MS, .expected = UINT32_MAX};
    send_in(c, &in, HONEST);
    run(c, 0.1);
    for (size_t i = others; i < HONEST; i++)
      seek(c, i, epoch, 0, WAIT_MS);
    assert_true(match_swarm_finish(&c->s, 1));
    for (size_t i = others; i < HONEST; i++) {
      assert_int_equal(newest(c, i)->status, HV_EXISTS);
      assert_true(newest(c, i)->seek.further);
    }
    close_scene(c);
  }
}

/* ---- who begins for others ---- */

/* Two who have no part in the swarm's epoch, at each host, before the others come: they have a group there, which is not the
 * swarm's. */
static void two_strangers_at_each_host_do_not_begin_the_epoch(void **unused) {
  (void)unused;
  for (unsigned k = 0; k < 8; k++) {
    char epoch[16];
    snprintf(epoch, sizeof epoch, "%u", 8 + k);
    scene *c = open_scene(160 + k);
    grow(c, HONEST + 2);
    run(c, 8);
    intruder in[2];
    for (size_t i = 0; i < 2; i++) {
      in[i] = (intruder){.hosts = HONEST, .names = 1, .name = epoch, .expected = 2, .dialable = 1};
      send_in(c, &in[i], HONEST + i);
    }
    run(c, 1);
    for (size_t i = 0; i < HONEST; i++)
      seek(c, i, epoch, HONEST, WAIT_MS);
    assert_true(match_swarm_finish(&c->s, 1));
    all_are_together(c);
    close_scene(c);
  }
}

/* ---- who has much to tell ---- */

enum { WHO_FILL = HV_MATCH_GATHERS_MAX / HV_MATCH_GATHER_MAX, SOME = 20000 /* bytes: for those of all honest two have to go */ };

static void seek_and_tell(scene *c, size_t node, uint32_t expected, size_t size, uint32_t wait_ms) {
  static const uint8_t told[HV_MATCH_GATHER_MAX];
  match_swarm_seek(&c->s, node, "1", expected, wait_ms, hv_span_of(told, size));
}

/* Its gathered bytes are on their way when two strangers begin at its host. It is not told that the epoch is over. It gathers anew,
 * and is in the group of the others. */
static void member_left_behind_by_two_strangers_joins_the_others(void **unused) {
  (void)unused;
  const hv_sim_link slow = {.delay_us = 30000, .rate = 2 * SOME};
  for (unsigned k = 0; k < 8; k++) {
    scene *c = open_scene(180 + k);
    grow(c, HONEST + 2);
    run(c, 8);
    size_t host = match_swarm_first(&c->s, "1", 0), early = host ? 0 : 1;
    intruder in[2];
    for (size_t i = 0; i < 2; i++)
      in[i] = (intruder){.hosts = HONEST, .names = 1, .name = "1", .expected = 2, .dialable = 1};
    assert_int_equal(hv_sim_set_link(c->s.sim, early, host, &slow), HV_OK);
    send_in(c, &in[0], HONEST);
    run(c, 1);
    seek_and_tell(c, early, HONEST, SOME, WAIT_MS);
    run(c, 0.2);
    send_in(c, &in[1], HONEST + 1);
    run(c, 1);
    assert_false(newest(c, early)->done);
    for (size_t i = 0; i < HONEST; i++)
      if (i != early)
        seek_and_tell(c, i, HONEST, SOME, WAIT_MS);
    assert_true(match_swarm_finish(&c->s, 1));
    all_are_together(c);
    close_scene(c);
  }
}

/* One client announces more bytes than are allowed, or as many clients as fill a group announce the most that are allowed. */
static void clients_that_announce_large_gathers_keep_nobody_away(void **unused) {
  (void)unused;
  static intruder in[2 * WHO_FILL];
  for (size_t clients = 1; clients <= WHO_FILL; clients += WHO_FILL - 1) {
    scene *c = with_clients(120 + clients, clients);
    size_t first = match_swarm_first(&c->s, "1", 0);
    for (size_t k = 0; k < 2 * clients; k++)
      in[k] = (intruder){.hosts = HONEST, .names = 1, .name = "1", .wait_ms = HV_MATCH_WAIT_MAX_MS};
    for (size_t k = 0; k < 2 * clients; k++)
      in[k].gather_size = clients == 1 ? UINT32_MAX : HV_MATCH_GATHER_MAX;
    for (size_t k = 0; k < clients; k++)
      send_in(c, &in[k], HONEST + k);
    run(c, 0.1);
    for (size_t i = 0; i < HONEST; i++)
      assert_int_equal(c->s.seats[i].match->n_gatherings, clients > 1);
    seek_and_tell(c, first, HONEST, SOME, WAIT_MS);
    run(c, 0.1);
    hv_match *host = c->s.seats[first].match; /* it gathers them, too, as far as there is room beside its own seek */
    assert_int_equal(host->seek.state, SEEK_HOSTING);
    assert_int_equal(host->gatherings->n_joiners, clients == 1 ? 1 : WHO_FILL);
    for (size_t i = 0; i < HONEST; i++)
      if (i != first)
        seek_and_tell(c, i, HONEST, SOME, WAIT_MS);
    run(c, 0.005);
    for (size_t k = 0; k < clients; k++) /* and again, when those are on their way */
      send_in(c, &in[clients + k], HONEST + k);
    assert_true(match_swarm_finish(&c->s, 1));
    all_are_together(c);
    close_scene(c);
  }
}

/* No member lies. A host that seeks itself has no more right than the others. */
static void first_members_stay_if_all_gather_too_many_bytes(void **unused) {
  (void)unused;
  enum { MANY = WHO_FILL + 4 };
  for (uint64_t seed = 140; seed < 146; seed++) {
    scene *c = open_scene(seed);
    grow(c, MANY);
    run(c, 8);
    for (size_t i = 0; i < WHO_FILL; i++)
      seek_and_tell(c, i, MANY, HV_MATCH_GATHER_MAX, 4000);
    run(c, 1);
    for (size_t i = WHO_FILL; i < MANY; i++)
      seek_and_tell(c, i, MANY, HV_MATCH_GATHER_MAX, 4000);
    assert_true(match_swarm_finish(&c->s, 5));
    one_group(c, 0, WHO_FILL, SIZE_MAX);
    close_scene(c);
  }
}

/* ---- what a declaration says of its own time ---- */

typedef struct declarer {
  hv_command command;
  match_seat *seat;
  hv_dht_op put;
  hv_dht_item item;
  int done;
} declarer;

static void was_put(hv_dht_op *op, hv_status status, const char *text) {
  declarer *self = op->owner;
  (void)text;
  self->done = status == HV_OK;
}

static void declare_for_an_hour(hv_command *command, void *core) {
  declarer *self = (declarer *)command;
  hv_roster *roster = &self->seat->match->roster;
  assert_non_null(core);
  self->item = roster->item; /* what it says of itself every 20 s */
  self->item.ttl_ms = 3600 * 1000;
  self->put = (hv_dht_op){.done = was_put, .owner = self, .key = roster->config.key, .items = &self->item, .n_items = 1};
  assert_int_equal(hv_dht_store(roster->dht, &self->put, NULL), HV_OK);
}

static void peer_declared_for_an_hour_is_not_waited_for_after_it_left(void **unused) {
  (void)unused;
  scene *c = with_clients(80, 1);
  declarer self = {.command.run = declare_for_an_hour, .seat = &c->s.seats[HONEST]};
  assert_int_equal(hv_sim_command(c->s.sim, HONEST, &self.command), HV_OK);
  run(c, 3);
  assert_true(self.done);
  hv_sim_kill(c->s.sim, HONEST);
  run(c, 100);
  for (size_t i = 0; i < HONEST; i++)
    seek(c, i, "1", 0, WAIT_MS);
  assert_true(match_swarm_finish(&c->s, 1));
  all_are_together(c);
  close_scene(c);
}

/* ---- hosts ---- */

typedef enum host_lie { SAYS_BEGUN, SAYS_FURTHER, SAYS_BEHIND, SAYS_NOBODY, SAYS_ALONE, SENDS_ROUND, IS_MUTE } host_lie;

typedef struct bad_host {
  host_lie kind;
  int answers;        /* questions, but not seekers */
  hv_contact nowhere; /* it sends people there */
  size_t asked;       /* by seekers */
} bad_host;

/* It says the same again to each sign of life. */
static void holds(hv_stream *stream, const hv_event *event) {
  match_seat *liar = stream->owner;
  bad_host *bad = liar->swarm->scenario;
  hv_msg yes = {.kind = HV_MSG_ACCEPTED, .u.accepted = {bad->kind == SAYS_ALONE, HONEST + 1}};
  if (event->kind == HV_EVENT_STREAM_DATA && event->msg->kind == HV_MSG_ACCEPTED)
    liar->env->stream_send(liar->env, stream, &yes, NULL);
}

static void take_in(match_seat *liar, const hv_event *event) {
  static const hv_stream_events on = {holds, holds, holds, .heavy = 0};
  bad_host *bad = liar->swarm->scenario;
  hv_stream *stream = event->stream;
  uint64_t at = match_place_of(event->msg->u.join.epoch);
  hv_msg msg = {.kind = HV_MSG_DISBAND, .u.disband.text = hv_span_of("no", 2)};
  stream->on = &on;
  stream->owner = liar;
  bad->asked++;
  msg.u.disband.status = bad->kind == SAYS_BEHIND ? HV_NOT_FOUND : HV_EXISTS;
  msg.u.disband.at = bad->kind == SAYS_FURTHER ? at + 3 : 0;
  if (bad->kind == SAYS_NOBODY || bad->kind == SAYS_ALONE)
    msg = (hv_msg){.kind = HV_MSG_ACCEPTED, .u.accepted = {bad->kind == SAYS_ALONE, HONEST + 1}};
  if (bad->kind == SENDS_ROUND)
    msg = (hv_msg){.kind = HV_MSG_REDIRECT, .u.redirect.to = bad->nowhere};
  if (bad->kind != IS_MUTE)
    liar->env->stream_send(liar->env, stream, &msg, NULL);
}

static int host_badly(match_seat *liar, const hv_event *event) {
  bad_host *bad = liar->swarm->scenario;
  if (event->kind == HV_EVENT_STREAM_OPENED && event->msg->kind == HV_MSG_JOIN) {
    take_in(liar, event);
    return 1;
  }
  if (event->kind == HV_EVENT_REQUEST && event->msg->kind == HV_MSG_SUMMON && !bad->answers) {
    hv_msg no = {.kind = HV_MSG_REFUSAL, .u.refusal.status = HV_BUSY};
    liar->env->reply(liar->env, event->request, &no);
    return 1;
  }
  return 0;
}

static scene *with_bad_host(uint64_t seed, bad_host *bad) {
  scene *c = open_scene(seed);
  c->s.lie = host_badly;
  c->s.scenario = bad;
  for (size_t i = 0; i <= HONEST; i++) {
    match_swarm_next(&c->s)->is_liar = i == HONEST;
    match_swarm_add(&c->s);
  }
  run(c, 8);
  return c;
}

/* The next epoch in which all go to the bad host first. */
static const char *where_it_is_first(scene *c, const char *form, unsigned *n) {
  static char epoch[16];
  do
    snprintf(epoch, sizeof epoch, "%s%u", form, (*n)++);
  while (match_swarm_first(&c->s, epoch, 0) != HONEST);
  return epoch;
}

static void all_seek(scene *c, const char *epoch, uint32_t wait_ms) {
  for (size_t i = 0; i < HONEST; i++)
    seek(c, i, epoch, HONEST, wait_ms);
}

static void host_that_holds_members_without_a_group_loses_them(void **unused) {
  (void)unused;
  for (host_lie kind = SAYS_NOBODY; kind <= SAYS_ALONE; kind++)
    for (int answers = 0; answers < 2; answers++) {
      bad_host bad = {.kind = kind, .answers = answers};
      unsigned n = 0;
      scene *c = with_bad_host(40 + 2 * kind + (unsigned)answers, &bad);
      all_seek(c, where_it_is_first(c, "", &n), WAIT_MS);
      assert_true(match_swarm_finish(
          &c->s, 10)); /* three seconds alone, and what is asked then is heard at the next sign of life but one */
      all_are_together(c);
      close_scene(c);
    }
}

static void host_that_held_members_to_the_end_is_not_asked_next(void **unused) {
  (void)unused;
  bad_host bad = {.kind = SAYS_NOBODY, .answers = 1};
  unsigned n = 0;
  scene *c = with_bad_host(50, &bad);
  all_seek(c, where_it_is_first(c, "a", &n), 4000); /* such a name has no place among others: nobody can say that it is there */
  assert_true(match_swarm_finish(&c->s, 6));
  all_seek(c, where_it_is_first(c, "a", &n), 4000);
  assert_true(match_swarm_finish(&c->s, 1));
  all_are_together(c);
  close_scene(c);
}

static void host_that_redirects_members_in_circles_loses_them(void **unused) {
  (void)unused;
  bad_host bad = {.kind = SENDS_ROUND, .answers = 1};
  unsigned n = 0;
  uint8_t packed[HV_CONTACT_ADDRS_MAX];
  scene *c = with_bad_host(60, &bad);
  const char *epoch = where_it_is_first(c, "", &n);
  hv_match *any = c->s.seats[0].match;
  hv_rank rank = hv_rank_for(any->env, match_key(any), hv_span_of(epoch, strlen(epoch)));
  bad.nowhere.id = any->roster.config.me;
  while (hv_rank_compare(&rank, &bad.nowhere.id, &c->s.seats[HONEST].match->roster.config.me) >= 0)
    bad.nowhere.id.key[5]++;
  bad.nowhere.addrs = hv_span_of(packed, hv_roster_me(&any->roster, packed));
  all_seek(c, epoch, WAIT_MS);
  assert_true(match_swarm_finish(&c->s, 6));
  all_are_together(c);
  assert_true(bad.asked <= 5 * HONEST);
  close_scene(c);
}

/* ---- a host that calls, and serves nobody ---- */

typedef struct caller {
  hv_command command;
  match_seat *seat;
  hv_timer timer;
  hv_call calls[HONEST];
} caller;

static void was_answered(hv_call *call, const hv_event *event) {
  (void)call, (void)event;
}

static void call_all(hv_timer *timer, const hv_event *event) {
  caller *self = timer->owner;
  match_seat *seat = self->seat;
  uint8_t packed[HV_CONTACT_ADDRS_MAX];
  hv_msg msg = {.kind = HV_MSG_SUMMON, .u.summon.key = match_key(seat->match)};
  msg.u.summon.addrs = hv_span_of(packed, hv_roster_me(&seat->match->roster, packed));
  (void)event;
  for (size_t i = 0; i < HONEST; i++) {
    if (self->calls[i].world)
      continue;
    self->calls[i] = (hv_call){.done = was_answered, .to = hv_sim_target(seat->swarm->sim, i), .timeout_ms = 2000};
    seat->env->call(seat->env, &self->calls[i], &msg);
  }
  seat->env->timer_set(seat->env, timer, 200000);
}

static void begin_to_call(hv_command *command, void *core) {
  caller *self = (caller *)command;
  assert_non_null(core);
  self->timer = (hv_timer){.fire = call_all, .owner = self};
  self->seat->env->timer_set(self->seat->env, &self->timer, 0);
}

static void mute_host_that_calls_others_does_not_draw_them_back(void **unused) {
  (void)unused;
  for (int answers = 0; answers < 2; answers++) {
    bad_host bad = {.kind = IS_MUTE, .answers = answers};
    unsigned n = 0;
    scene *c = with_bad_host(70 + (unsigned)answers, &bad);
    caller self = {.command.run = begin_to_call, .seat = &c->s.seats[HONEST]};
    assert_int_equal(hv_sim_command(c->s.sim, HONEST, &self.command), HV_OK);
    run(c, 1);
    const char *epoch = where_it_is_first(c, "", &n);
    for (size_t i = 0; i < HONEST; i++) { /* they do not all come at once */
      seek(c, i, epoch, HONEST, WAIT_MS);
      run(c, 0.7);
    }
    assert_true(match_swarm_finish(&c->s, 9));
    all_are_together(c);
    close_scene(c);
  }
}

/* ---- a host that says that it is over ---- */

static void lone_host_is_not_believed_that_the_epoch_is_over(void **unused) {
  (void)unused;
  for (host_lie kind = SAYS_BEGUN; kind <= SAYS_BEHIND; kind++) {
    bad_host bad = {.kind = kind, .answers = 1};
    unsigned n = 0;
    scene *c = with_bad_host(30 + kind, &bad);
    all_seek(c, where_it_is_first(c, "", &n), WAIT_MS);
    assert_true(match_swarm_finish(&c->s, 1));
    all_are_together(c);
    assert_int_equal(bad.asked, HONEST);
    run(c, 0.5);
    all_seek(c, where_it_is_first(c, "", &n), WAIT_MS); /* it has failed them: they go elsewhere at once */
    assert_true(match_swarm_finish(&c->s, 1));
    all_are_together(c);
    assert_int_equal(bad.asked, HONEST);
    close_scene(c);
  }
}

static void late_member_learns_from_two_hosts_that_the_epoch_is_over(void **unused) {
  (void)unused;
  for (size_t late = 0; late < HONEST; late++)
    for (size_t target = 0; target <= 2; target += 2) { /* in a divided swarm, too */
      scene *c = open_scene(90 + late);
      c->s.config.target_group_size = target;
      grow(c, HONEST);
      run(c, 8);
      for (size_t i = 0; i < HONEST; i++)
        if (i != late)
          seek(c, i, "1", HONEST - 1, WAIT_MS);
      assert_true(match_swarm_finish(&c->s, 2));
      match_try *t = seek(c, late, "1", HONEST - 1, WAIT_MS);
      assert_true(match_swarm_finish(&c->s, 1));
      assert_int_equal(t->status, HV_EXISTS);
      assert_false(t->seek.further);
      assert_true(t->ended_us - t->asked_us <= 4 * RTT_US);
      close_scene(c);
    }
}

/* ---- a host that lies in BEGIN ---- */

typedef enum lie_kind {
  NOT_A_MEMBER,
  TWICE,
  NO_SPANS,
  OWNS_ALL,
  SENDS_BACK,
  SENDS_NOWHERE,
  SAYS_NOTHING,
  SAYS_NONSENSE,
  LIES
} lie_kind;

static void lie_heard(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

/* A host that answers JOIN with a lie. */
static int lie(match_seat *liar, const hv_event *event) {
  static const hv_stream_events on = {lie_heard, lie_heard, lie_heard, .heavy = 0};
  lie_kind kind = *(lie_kind *)liar->swarm->scenario;
  if (event->kind != HV_EVENT_STREAM_OPENED || event->msg->kind != HV_MSG_JOIN)
    return 0;
  hv_env *env = liar->env;
  hv_stream *stream = event->stream;
  hv_match_member members[3] = {{.id = stream->peer, .addrs = event->msg->u.join.addrs, .count = liar->config.n_chunks},
                                {.id = hv_sim_target(liar->swarm->sim, liar->number).id, .addrs = event->msg->u.join.addrs},
                                {.id = stream->peer, .addrs = event->msg->u.join.addrs}};
  hv_msg msg = {.kind = HV_MSG_BEGIN, .u.begin = {.members = members, .n_members = 2}};
  if (kind == NOT_A_MEMBER)
    members[0].id.key[3]++;
  if (kind == TWICE)
    msg.u.begin.n_members = 3;
  if (kind == NO_SPANS || kind == OWNS_ALL)
    members[0].count = 0;
  if (kind == OWNS_ALL) {
    members[1].count = liar->config.n_chunks;
    members[2].id.key[3]++; /* a third that could own some */
    msg.u.begin.n_members = 3;
  }
  if (kind == SENDS_BACK || kind == SENDS_NOWHERE) {
    msg = (hv_msg){.kind = HV_MSG_REDIRECT, .u.redirect.to = {.id = stream->peer, .addrs = event->msg->u.join.addrs}};
    msg.u.redirect.to.id.key[0] ^= kind == SENDS_NOWHERE;
  }
  if (kind == SAYS_NONSENSE)
    msg = (hv_msg){.kind = HV_MSG_JOIN, .u.join = event->msg->u.join};
  stream->on = &on;
  if (kind != SAYS_NOTHING)
    env->stream_send(env, stream, &msg, NULL);
  return 1;
}

static void host_that_lies_is_left_out(void **unused) {
  (void)unused;
  for (lie_kind kind = NOT_A_MEMBER; kind < LIES; kind++) {
    scene *c = open_scene(300 + kind);
    c->s.lie = lie;
    c->s.scenario = &kind;
    for (size_t i = 0; i < 6; i++) {
      match_swarm_next(&c->s)->is_liar = i == 5;
      match_swarm_add(&c->s);
    }
    run(c, 8);
    char epoch[16];
    for (int n = 0; snprintf(epoch, sizeof epoch, "%d", n), match_swarm_first(&c->s, epoch, 0) != 5; n++)
      ; /* an epoch in which all go to the liar first */
    for (size_t i = 0; i < 5; i++)
      seek(c, i, epoch, 5, 15000);
    assert_true(match_swarm_finish(&c->s, 10));
    one_group(c, 0, 5, SIZE_MAX);
    close_scene(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(host_that_lies_is_left_out),
      cmocka_unit_test(client_with_many_gatherings_keeps_nobody_from_a_group),
      cmocka_unit_test(many_clients_with_a_gathering_each_keep_nobody_away),
      cmocka_unit_test(member_with_wait_time_zero_hurries_nobody),
      cmocka_unit_test(early_member_with_its_time_over_makes_no_small_group),
      cmocka_unit_test(honest_group_starts_when_its_first_members_time_is_over),
      cmocka_unit_test(member_that_expects_many_does_not_delay_late_peers),
      cmocka_unit_test(member_left_behind_by_two_strangers_joins_the_others),
      cmocka_unit_test(clients_that_announce_large_gathers_keep_nobody_away),
      cmocka_unit_test(first_members_stay_if_all_gather_too_many_bytes),
      cmocka_unit_test(two_strangers_at_each_host_do_not_begin_the_epoch),
      cmocka_unit_test(peer_declared_for_an_hour_is_not_waited_for_after_it_left),
      cmocka_unit_test(host_that_holds_members_without_a_group_loses_them),
      cmocka_unit_test(host_that_held_members_to_the_end_is_not_asked_next),
      cmocka_unit_test(host_that_redirects_members_in_circles_loses_them),
      cmocka_unit_test(mute_host_that_calls_others_does_not_draw_them_back),
      cmocka_unit_test(lone_host_is_not_believed_that_the_epoch_is_over),
      cmocka_unit_test(late_member_learns_from_two_hosts_that_the_epoch_is_over),
  };
  return cmocka_run_group_tests_name("sim_match_hostile", tests, NULL, NULL);
}
