/* How a round ends, told against the virtual clock: what is read of whom it has left, whom it still asks, and when it says so. */
#include "lib/scene.h"

#include "core/agree/view.h"

#include <string.h>

/* ---- what is read after the end ---- */

typedef struct watch {
  scene_member *member;
  int released;
} watch;

/* From here on nobody may read the runs: the sanitizers see who does. */
static void was_released(void *arg) {
  watch *w = arg;
  w->released++;
  hv_run_fini(&w->member->in_run);
  hv_run_fini(&w->member->out_run);
}

/* A member with a refused first chunk sends the rest all the same, on a slow line: the owners have ended without it, and their
 * program has given the round up, when that comes. They read the layout of the run until they say that they do not. */
static void the_runs_are_read_until_the_round_says_that_they_are_not(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 3,
                     .n_values = 60000,
                     .chunk_values = 500,
                     .seed = 1400,
                     .link = {.delay_us = 5000},
                     .line = 8 << 20,
                     .slow = 50000,
                     .client = 2};
  scene_open(&s, &how);
  watch watches[2] = {{&s.members[0], 0}, {&s.members[1], 0}};
  for (size_t i = 0; i < 2; i++) {
    s.members[i].round.released = was_released;
    s.members[i].round.arg = &watches[i];
  }
  s.members[2].in[0] = s.members[2].in[s.plan[1].first * 500ull] = 3e38f;
  scene_begin_all(&s);
  for (int i = 0; i < 200 && !(s.members[0].done && s.members[1].done); i++)
    scene_run(&s, 0.01);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(s.members[i].status, HV_OK);
    assert_int_equal(hv_allreduce_counted(s.members[i].allreduce, 2), 0);
    hv_allreduce_free(s.members[i].allreduce);
    s.members[i].allreduce = NULL;
  }
  scene_run(&s, 0.5);
  assert_int_equal(s.members[2].done, 0); /* its values are still on their way */
  assert_int_equal(watches[0].released + watches[1].released, 0);
  scene_run(&s, 60);
  assert_int_equal(watches[0].released, 1);
  assert_int_equal(watches[1].released, 1);
  scene_close(&s);
}

/* ---- who is asked while it ends ---- */

/* The others call for another view before its own jobs have ended. It has nothing more to report, and gets its end once they have.
 */
static void member_that_cancels_gets_its_end_even_if_others_ask(void **unused) {
  (void)unused;
  for (int turn = 0; turn < 60; turn++) {
    scene s;
    scene_setup how = {.n = 3,
                       .n_values = 60000,
                       .chunk_values = 500,
                       .seed = 1500 + (uint64_t)turn,
                       .job_us = 4000,
                       .link = {.delay_us = 100},
                       .leader = (size_t)turn % 3};
    scene_open(&s, &how);
    for (size_t i = 0; i < 3; i++)
      scene_begin(&s, i);
    scene_run(&s, 0.002 + 0.0007 * turn);
    size_t who = (size_t)(turn / 3) % 3;
    if (s.members[who].begun && !s.members[who].done)
      hv_allreduce_cancel(s.members[who].allreduce);
    scene_run(&s, 0.5);
    assert_int_equal(s.members[who].done, 1);
    scene_run(&s, 30);
    for (size_t i = 0; i < 3; i++)
      assert_int_equal(s.members[i].done, 1);
    scene_close(&s);
  }
}

/* ---- who called for another view before it began ---- */

typedef struct caller {
  hv_command command;
  scene *s;
  uint32_t as, view;
  hv_stream *stream;
} caller;

static void nothing(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

/* It attends member 0, and says that it misses somebody. */
static void call_for_another_view(hv_command *command, void *core) {
  static const hv_stream_events on = {nothing, nothing, nothing, .heavy = 0};
  caller *c = (caller *)command;
  hv_env *env = hv_node_env(core);
  hv_members nobody = {{0}};
  hv_msg attend = {.kind = HV_MSG_ATTEND, .u.attend = {.member = c->as, .view = c->view}};
  hv_msg trouble = {.kind = HV_MSG_NEWS, .u.news = {.what = HV_NEWS_TROUBLE, .members = hv_span_of(&nobody, sizeof nobody)}};
  memcpy(attend.u.attend.round, c->s->members[0].round.id, HV_ROUND_ID_SIZE);
  assert_int_equal(env->stream_open(env, &c->s->plan[0].at, &attend, &on, c, &c->stream), HV_OK);
  assert_int_equal(env->stream_send(env, c->stream, &trouble, NULL), HV_OK);
}

static void call(scene *s, caller *c, uint32_t as, uint32_t view) {
  *c = (caller){.command = {.run = call_for_another_view}, .s = s, .as = as, .view = view};
  assert_int_equal(hv_sim_command(s->sim, as, &c->command), HV_OK);
}

/* The coordinator comes last, and one has called for another view by then: it asks at once, and opens no stream for a view that it
 * has broken off. A member with such a stream open would have delayed the round. */
static void a_view_that_is_broken_off_before_it_began_opens_no_streams(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 3, .n_values = 6000, .chunk_values = 500, .seed = 1600, .link = {.delay_us = 5000}};
  scene_open(&s, &how);
  caller c;
  scene_begin(&s, 1);
  call(&s, &c, 2, 0);
  scene_run(&s, 0.1);
  assert_int_equal(hv_node_registry(hv_sim_core(s.sim, 2))->n_early, 1); /* member 1's */
  scene_begin(&s, 0);
  scene_run(&s, 0.1);
  assert_int_equal(hv_node_registry(hv_sim_core(s.sim, 2))->n_early, 0); /* member 1 has stopped, and 0 never began */
  scene_run(&s, 60);
  scene_all_have_the_same(&s, 1 | 2);
  scene_close(&s);
}

/* ---- who is just leaving ---- */

static hv_status (*true_send)(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
static int has_ended;

/* The stream to which the first average is given has broken: its end is under way. */
static hv_status gives_the_first_too_late(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  if (has_ended || header->kind != HV_MSG_CHUNK || !header->u.chunk.from.size)
    return true_send(env, stream, header, payload);
  has_ended = 1;
  env->stream_cancel(env, stream);
  return HV_CLOSED;
}

/* The peer at the other end has trouble, and is in the next view. No average is made without it meanwhile. */
static void member_with_an_ending_stream_is_in_every_average(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {
      .n = 3, .n_values = 60000, .chunk_values = 500, .seed = 1650, .stall_ms = 2000, .link = {.delay_us = 5000, .rate = 1 << 20}};
  scene_open(&s, &how);
  scene_begin_all(&s);
  hv_env *env = hv_node_env(hv_sim_core(s.sim, 0));
  has_ended = 0;
  true_send = env->stream_send;
  env->stream_send = gives_the_first_too_late;
  scene_run(&s, 60);
  assert_int_equal(has_ended, 1);
  scene_all_have_the_same(&s, 1 | 2 | 4);
  for (size_t i = 0; i < 3; i++)
    for (uint32_t chunk = 0; chunk < 120; chunk++)
      assert_int_equal(scene_set(&s, i, chunk), 1 | 2 | 4);
  scene_close(&s);
}

/* ---- who calls again and again ---- */

/* A client claims each time that it has promised a higher number, so all would have to be asked again. It never answers. After a
 * few times the others ignore it, and have their averages. */
static void member_with_ever_higher_numbers_does_not_delay_the_others(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {
      .n = 4, .n_values = 6000, .chunk_values = 500, .seed = 1700, .stall_ms = 2000, .link = {.delay_us = 5000}, .client = 3};
  scene_open(&s, &how);
  for (size_t i = 0; i < 3; i++)
    scene_begin(&s, i);
  caller callers[400];
  size_t n = 0;
  for (; n < 400 && !(s.members[0].done && s.members[1].done && s.members[2].done); n++) {
    call(&s, &callers[n], 3, 8 * ((uint32_t)n + 1) + 1);
    scene_run(&s, 0.05);
  }
  assert_in_range(n, 5, 200);
  scene_all_have_the_same(&s, 1 | 2 | 4);
  for (size_t i = 0; i < 3; i++)
    scene_each_chunk_is_right(&s, i);
  scene_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_runs_are_read_until_the_round_says_that_they_are_not),
      cmocka_unit_test(member_that_cancels_gets_its_end_even_if_others_ask),
      cmocka_unit_test(a_view_that_is_broken_off_before_it_began_opens_no_streams),
      cmocka_unit_test(member_with_an_ending_stream_is_in_every_average),
      cmocka_unit_test(member_with_ever_higher_numbers_does_not_delay_the_others),
  };
  return cmocka_run_group_tests_name("the end of a round in the sim", tests, NULL, NULL);
}
