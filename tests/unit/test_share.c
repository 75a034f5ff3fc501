/* A member's share of a round, with an owner who lies: what it says of each chunk is so. */
#include "lib/fake_env.h"

#include "core/share.h"
#include "kern/cpu.h"

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

static void timer_set(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)env, (void)timer, (void)delay_us;
}

static void timer_clear(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
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

static void a_damaged_average_is_not_said_to_be_there_and_one_that_came_is(void **state) {
  (void)state;
  world w = {0};
  float in[CHUNKS * VALUES], out[CHUNKS * VALUES];
  fake_env_init(&w.fake, 1);
  w.fake.env.stream_open = stream_open;
  w.fake.env.stream_send = stream_send;
  w.fake.env.stream_end = w.fake.env.stream_cancel = stream_end;
  w.fake.env.work = work;
  w.fake.env.timer_set = timer_set;
  w.fake.env.timer_clear = timer_clear;
  for (int i = 0; i < CHUNKS * VALUES; i++)
    in[i] = 1, out[i] = -1;
  hv_round_member members[2] = {{.first = 0}, {.count = CHUNKS}};
  hv_run_part from = {in, HV_DTYPE_FLOAT32, CHUNKS * VALUES, HV_CODEC_NONE, NULL},
              to = {out, HV_DTYPE_FLOAT32, CHUNKS * VALUES, HV_CODEC_NONE, NULL};
  hv_run in_run, out_run;
  assert_int_equal(hv_run_init(&in_run, &w.fake.mem, &from, 1, VALUES, NULL), HV_OK);
  assert_int_equal(hv_run_init(&out_run, &w.fake.mem, &to, 1, VALUES, NULL), HV_OK);
  hv_round round = {
      .members = members, .n_members = 2, .weight = 1, .stall_ms = 1000, .kern = hv_cpu_best(), .in = &in_run, .out = &out_run};
  hv_share *share;
  hv_view *view;
  hv_hold hold;
  hv_pace pace = {0};
  assert_int_equal(hv_view_first(&w.fake.mem, &round, &view), HV_OK);
  assert_int_equal(hv_hold_init(&hold, &w.fake.mem, CHUNKS), HV_OK);
  assert_int_equal(hv_share_new(&w.fake.env, &round, view, &hold, &pace, 1, changed, NULL, &share), HV_OK);
  hv_share_start(share);
  for (int i = 0; i < CHUNKS; i++) /* each contribution leaves */
    do_job(&w, 0);
  send_average(&w, &round, 0, 5, 1); /* damaged */
  send_average(&w, &round, 1, 6, 0);
  assert_int_equal(w.n_jobs, 2);
  do_job(&w, 1); /* the good one is decoded first */
  do_job(&w, 0);
  w.stream.on->closed(&w.stream, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CANCELLED, .text = ""});
  assert_true(hv_share_over(share));
  assert_int_not_equal(hv_share_status(share), HV_OK);
  for (uint32_t c = 0; c < CHUNKS; c++)
    assert_int_equal(hv_hold_has(&hold, c), out[c * VALUES] != -1);
  assert_int_equal(hv_hold_has(&hold, 1), 1);
  hv_share_free(share);
  hv_view_free(view);
  hv_hold_fini(&hold);
  hv_run_fini(&in_run);
  hv_run_fini(&out_run);
  assert_int_equal(atomic_load(&w.fake.mem.blocks), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_damaged_average_is_not_said_to_be_there_and_one_that_came_is),
  };
  return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
