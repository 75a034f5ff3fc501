/* One peer among honest ones wants no group to form, told against the virtual clock: a client that calls, or a host that answers.
 * What a host that lies in BEGIN comes to stands in test_sim_match.c. */
#include "lib/match_scene.h"

enum { HONEST = 5, WAIT_MS = 15000 };

/* ---- peers that call ---- */

/* A client that joins hosts under names, and gives its signs of life. */
typedef struct intruder {
  hv_command command;
  match_seat *seat;
  size_t hosts, names; /* at each of the first so many nodes, under so many names that begin with this one */
  const char *name;
  uint32_t wait_ms;
} intruder;

static void stays(hv_stream *stream, const hv_event *event) {
  match_seat *seat = stream->owner;
  hv_msg here = {.kind = HV_MSG_ACCEPTED};
  if (event->kind == HV_EVENT_STREAM_DATA && event->msg->kind == HV_MSG_ACCEPTED)
    seat->env->stream_send(seat->env, stream, &here, NULL);
}

static void intrude(hv_command *command, void *core) {
  static const hv_stream_events on = {stays, stays, stays, 0};
  intruder *in = (intruder *)command;
  match_seat *seat = in->seat;
  char epoch[HV_MATCH_EPOCH_MAX];
  hv_msg join = {.kind = HV_MSG_JOIN,
                 .u.join = {.key = match_key(seat->match),
                            .schema = seat->config.schema,
                            .n_chunks = seat->config.n_chunks,
                            .wait_ms = in->wait_ms,
                            .stay = 1}};
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

static void a_client_that_opens_many_gatherings_keeps_nobody_from_a_group(void **unused) {
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

static void nor_do_many_clients_with_a_gathering_each(void **unused) {
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

static void who_says_that_it_waits_for_nothing_hurries_nobody(void **unused) {
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
static void nor_does_who_came_long_before_make_a_group_of_a_few(void **unused) {
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

/* Where nobody lies. */
static void but_whose_time_is_over_has_those_who_are_there(void **unused) {
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

static void nobody_waits_for_who_declared_itself_for_an_hour_and_went(void **unused) {
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_client_that_opens_many_gatherings_keeps_nobody_from_a_group),
      cmocka_unit_test(nor_do_many_clients_with_a_gathering_each),
      cmocka_unit_test(who_says_that_it_waits_for_nothing_hurries_nobody),
      cmocka_unit_test(nor_does_who_came_long_before_make_a_group_of_a_few),
      cmocka_unit_test(but_whose_time_is_over_has_those_who_are_there),
      cmocka_unit_test(nobody_waits_for_who_declared_itself_for_an_hour_and_went),
  };
  return cmocka_run_group_tests_name("sim_match_hostile", tests, NULL, NULL);
}
