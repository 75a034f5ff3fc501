/* A member's share of a round, with an owner who lies: what it says of each chunk is so. */
#include "lib/fake_env.h"

#include "core/reduce/share.h"
#include "kern/cpu.h"

#include <math.h>
#include <string.h>

enum { CHUNKS = 3, VALUES = 64 };

typedef struct world {
  fake_env fake; /* first */
  hv_stream stream;
  hv_job *jobs[8];
  size_t n_jobs;
} world;

static hv_status stream_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                             hv_stream **out) {
  world *w = (world *)env;
  (void)to, (void)first;
  w->stream = (hv_stream){.on = on, .owner = owner};
  *out = &w->stream;
  return HV_OK;
}

static hv_status stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  (void)env, (void)stream, (void)header, (void)payload;
  return HV_OK;
}

static void stream_end(hv_env *env, hv_stream *stream) {
  (void)env, (void)stream;
}

static void work(hv_env *env, hv_job *job) {
  world *w = (world *)env;
  assert_in_range(w->n_jobs, 0, 7);
  w->jobs[w->n_jobs++] = job;
}

static void changed(void *arg) {
  (void)arg;
}

/* Runs the i-th of the jobs that wait. */
static void do_job(world *w, size_t i) {
  hv_job *job = w->jobs[i];
  memmove(&w->jobs[i], &w->jobs[i + 1], (--w->n_jobs - i) * sizeof *w->jobs);
  job->run(job);
  job->done(job, &(hv_event){.kind = HV_EVENT_WORK_DONE, .job = job});
}

static void send_average(world *w, const hv_round *round, uint32_t chunk, float value, int damaged) {
  hv_members from = {{3}};
  float values[VALUES];
  uint8_t codes[VALUES * 8];
  uint64_t size = 0;
  for (int i = 0; i < VALUES; i++)
    values[i] = value;
  assert_int_equal(hv_codec_encode(round->kern, HV_CODEC_NONE, HV_DTYPE_FLOAT32, values, VALUES, NULL, codes, sizeof codes, &size),
                   HV_OK);
  if (damaged)
    codes[size - 1] ^= 1;
  hv_payload *payload = hv_payload_copy(&w->fake.mem, codes, size);
  hv_msg msg = {.kind = HV_MSG_CHUNK, .u.chunk = {chunk, hv_span_of(&from, sizeof from)}};
  w->stream.on->data(&w->stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .msg = &msg, .payload = payload});
  hv_payload_release(payload);
}

typedef struct scene {
  world w;
  float in[CHUNKS * VALUES], out[CHUNKS * VALUES];
  hv_round_member members[3];
  hv_run in_run, out_run;
  hv_round round;
  hv_view *view;
  hv_hold hold;
  hv_pace pace;
} scene;

/* Members 1 and 2 own everything, each of them in its own time: this one is 0. */
static void set_scene(scene *s) {
  *s = (scene){0};
  world *w = &s->w;
  fake_env_init(&w->fake, 1);
  w->fake.env.stream_open = stream_open;
  w->fake.env.stream_send = stream_send;
  w->fake.env.stream_end = w->fake.env.stream_cancel = stream_end;
  w->fake.env.work = work;
  for (int i = 0; i < CHUNKS * VALUES; i++)
    s->in[i] = 1, s->out[i] = -1;
  s->members[1].count = CHUNKS;
  hv_run_part from = {s->in, HV_DTYPE_FLOAT32, CHUNKS * VALUES, HV_CODEC_NONE, NULL, 0, 0, 0},
              to = {s->out, HV_DTYPE_FLOAT32, CHUNKS * VALUES, HV_CODEC_NONE, NULL, 0, 0, 0};
  assert_int_equal(hv_run_init(&s->in_run, &w->fake.mem, &from, 1, VALUES, NULL), HV_OK);
  assert_int_equal(hv_run_init(&s->out_run, &w->fake.mem, &to, 1, VALUES, NULL), HV_OK);
  s->round = (hv_round){.members = s->members,
                        .n_members = 3,
                        .weight = 1,
                        .stall_ms = 1000,
                        .kern = hv_cpu_best(),
                        .in = &s->in_run,
                        .out = &s->out_run};
  assert_int_equal(hv_view_first(&w->fake.mem, &s->round, &s->view), HV_OK);
  assert_int_equal(hv_hold_init(&s->hold, &w->fake.mem, CHUNKS), HV_OK);
}

static void strike_scene(scene *s) {
  hv_view_free(s->view);
  hv_hold_fini(&s->hold);
  hv_run_fini(&s->in_run);
  hv_run_fini(&s->out_run);
  assert_int_equal(atomic_load(&s->w.fake.mem.blocks), 0);
}

/* A share of this member at that owner, whose contributions have left. */
static hv_share *begin_share(scene *s, size_t owner) {
  hv_share *share;
  for (size_t i = 0; i < 3; i++)
    s->view->count[i] = i == owner ? CHUNKS : 0;
  assert_int_equal(hv_share_new(&s->w.fake.env, &s->round, s->view, &s->hold, NULL, &s->pace, owner, changed, NULL, &share), HV_OK);
  hv_share_start(share);
  while (s->w.n_jobs)
    do_job(&s->w, 0);
  return share;
}

static void end_share(scene *s, hv_share *share) {
  s->w.stream.on->closed(&s->w.stream, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CANCELLED, .text = ""});
  assert_true(hv_share_over(share));
  hv_share_free(share);
}

static void say_there_is_none(scene *s, uint32_t chunk) {
  hv_msg msg = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = chunk}};
  s->w.stream.on->data(&s->w.stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .msg = &msg});
}

static void damaged_average_is_not_reported_as_held_and_a_good_one_is(void **state) {
  (void)state;
  scene s;
  set_scene(&s);
  hv_share *share = begin_share(&s, 1);
  send_average(&s.w, &s.round, 0, 5, 1); /* damaged */
  send_average(&s.w, &s.round, 1, 6, 0);
  assert_int_equal(s.w.n_jobs, 2);
  do_job(&s.w, 1); /* the good one is decoded first */
  do_job(&s.w, 0);
  assert_int_not_equal(hv_share_status(share), HV_OK);
  assert_true(hv_share_lied(share));
  for (uint32_t c = 0; c < CHUNKS; c++)
    assert_int_equal(hv_hold_has(&s.hold, c), s.out[c * VALUES] != -1);
  assert_int_equal(hv_hold_has(&s.hold, 1), 1);
  end_share(&s, share);
  strike_scene(&s);
}

/* A member that gave no values itself believes the first owner. */
static void claim_that_no_values_count_needs_a_second_owner(void **state) {
  (void)state;
  scene s;
  set_scene(&s);
  s.in[2 * VALUES] = NAN;
  hv_share *share = begin_share(&s, 1);
  say_there_is_none(&s, 0); /* but this member gave its own */
  assert_true(hv_share_lied(share));
  end_share(&s, share);
  share = begin_share(&s, 1);
  say_there_is_none(&s, 0); /* the same one again */
  assert_true(hv_share_lied(share));
  end_share(&s, share);
  share = begin_share(&s, 2);
  say_there_is_none(&s, 0);
  assert_int_equal(hv_share_status(share), HV_OK);
  send_average(&s.w, &s.round, 1, 6, 0);
  do_job(&s.w, 0);
  say_there_is_none(&s, 2); /* this member said the same of its own */
  assert_int_equal(hv_share_status(share), HV_OK);
  assert_true(hv_share_done(share));
  assert_false(hv_share_lied(share));
  assert_int_equal(s.hold.n_held, 1);
  end_share(&s, share);
  strike_scene(&s);
}

static void broken_stream_is_not_counted_as_a_lie(void **state) {
  (void)state;
  scene s;
  set_scene(&s);
  hv_share *share = begin_share(&s, 1);
  s.w.stream.on->closed(&s.w.stream, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CLOSED, .text = ""});
  assert_int_equal(hv_share_status(share), HV_CLOSED);
  assert_false(hv_share_lied(share));
  hv_share_free(share);
  strike_scene(&s);
}

/* An owner closes its stream before it has said anything there, or refuses it. If it gave its own values, it is in the round, and
 * closed the stream itself. If it did not, it may have quit the group before its round began. */
static void member_that_gave_values_was_in_the_round(void **state) {
  (void)state;
  static const hv_status ends[] = {HV_CANCELLED, HV_REFUSED, HV_CLOSED};
  for (int k = 0; k < 6; k++) {
    scene s;
    int gave = k % 2;
    set_scene(&s);
    if (gave)
      hv_pace_heard(&s.pace, 1, 1000000, NULL);
    hv_share *share = begin_share(&s, 1);
    s.w.stream.on->closed(&s.w.stream, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = ends[k / 2], .text = ""});
    assert_int_equal(hv_share_status(share), ends[k / 2]);
    assert_int_equal(hv_share_stopped(share), gave && ends[k / 2] != HV_CLOSED);
    hv_share_free(share);
    strike_scene(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(damaged_average_is_not_reported_as_held_and_a_good_one_is),
      cmocka_unit_test(claim_that_no_values_count_needs_a_second_owner),
      cmocka_unit_test(broken_stream_is_not_counted_as_a_lie),
      cmocka_unit_test(member_that_gave_values_was_in_the_round),
  };
  return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
