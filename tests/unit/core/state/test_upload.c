/* core/state/upload: when one is dropped, and how fast it is said to be. Bytes and turns are judged in tests/sim. */
#include "lib/fake_env.h"

#include "core/state/upload.h"

typedef struct desk {
  fake_env fake;
  hv_snapshot snapshot;
  hv_stream stream;
  hv_timer *timer;
  int cancelled;
  hv_upload *u;
} desk;

static desk *at;

static void timer_set(hv_env *env, hv_timer *timer, uint64_t us) {
  (void)env;
  (void)us;
  at->timer = timer;
}

static void timer_clear(hv_env *env, hv_timer *timer) {
  (void)env;
  (void)timer;
}

static hv_status stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  (void)env;
  (void)stream;
  (void)header;
  (void)payload;
  return HV_OK;
}

static void stream_cancel(hv_env *env, hv_stream *stream) {
  (void)env;
  (void)stream;
  at->cancelled++;
}

static void over(void *arg, hv_upload *u) {
  (void)arg;
  (void)u;
}

static void sit(desk *d) {
  *d = (desk){.cancelled = 0};
  at = d;
  fake_env_init(&d->fake, 1);
  d->fake.env.timer_set = timer_set;
  d->fake.env.timer_clear = timer_clear;
  d->fake.env.stream_send = stream_send;
  d->fake.env.stream_cancel = stream_cancel;
  d->snapshot = (hv_snapshot){.env = &d->fake.env, .refs = 1};
  d->snapshot.manifest_bytes = hv_payload_copy(&d->fake.mem, (const uint8_t *)"the manifest", 12);
  d->u = hv_upload_new(&d->fake.env, &d->stream, &d->snapshot, HV_OK, over, NULL);
  assert_non_null(d->u);
}

static void rise(desk *d) {
  hv_upload_free(d->u);
  hv_payload_release(d->snapshot.manifest_bytes);
  assert_int_equal(d->fake.mem.blocks, 0);
}

static void goes_by(desk *d, uint64_t us) {
  d->fake.now_us += us;
}

static void looks(desk *d) {
  hv_event event = {.kind = HV_EVENT_TIMER, .now_us = d->fake.now_us};
  d->timer->fire(d->timer, &event);
}

static void asks(desk *d) {
  hv_msg msg = {.kind = HV_MSG_CHUNK, .u.chunk = {.index = UINT32_MAX}};
  hv_event event = {.kind = HV_EVENT_STREAM_DATA, .now_us = d->fake.now_us, .msg = &msg};
  d->stream.on->data(&d->stream, &event);
}

/* The joiner takes 12 bytes each 20 s. */
static void replaced_snapshot_is_taken_from_a_slow_joiner(void **unused) {
  (void)unused;
  desk d;
  sit(&d);
  goes_by(&d, 20000000);
  asks(&d);
  goes_by(&d, 10000000);
  d.snapshot.retired_us = d.fake.now_us + 1; /* as state says it */
  looks(&d);
  assert_int_equal(d.cancelled, 0);
  for (uint64_t s = 0; s < HV_UPLOAD_RETIRED_MS; s += 20000) {
    assert_int_equal(d.cancelled, 0);
    goes_by(&d, 20000000);
    asks(&d);
    looks(&d);
  }
  assert_int_equal(d.cancelled, 1);
  rise(&d);
}

/* A joiner at 20 Mbit/s needs ten minutes, and the swarm's epochs are shorter. One that would stay for ever is not served for ever.
 */
static void replaced_snapshot_is_served_while_bytes_move(void **unused) {
  (void)unused;
  enum { RATE = 2500000, SECONDS = 600 };
  static uint8_t bytes[RATE];
  desk d;
  sit(&d);
  hv_payload_release(d.snapshot.manifest_bytes);
  d.snapshot.manifest_bytes = hv_payload_borrow(&d.fake.mem, bytes, sizeof bytes, NULL, NULL);
  d.snapshot.manifest.image = (uint64_t)RATE * SECONDS;
  d.snapshot.retired_us = d.fake.now_us + 1;
  for (int s = 0; s < SECONDS; s++) {
    goes_by(&d, 1000000);
    asks(&d);
    looks(&d);
  }
  assert_int_equal(d.cancelled, 0);
  uint64_t most_s = d.snapshot.manifest.image / HV_UPLOAD_LEAST + HV_UPLOAD_RETIRED_MS / 1000;
  for (uint64_t s = SECONDS; s < most_s; s++) {
    goes_by(&d, 1000000);
    asks(&d);
  }
  looks(&d);
  assert_int_equal(d.cancelled, 0);
  goes_by(&d, 1000000);
  asks(&d);
  looks(&d);
  assert_int_equal(d.cancelled, 1);
  rise(&d);
}

static void joiner_that_asks_nothing_is_dropped(void **unused) {
  (void)unused;
  desk d;
  sit(&d);
  goes_by(&d, HV_UPLOAD_SILENCE_MS * UINT64_C(1000) - 1);
  looks(&d);
  assert_int_equal(d.cancelled, 0);
  goes_by(&d, 1);
  looks(&d);
  assert_int_equal(d.cancelled, 1);
  rise(&d);
}

/* 12 bytes each. */
static void upload_pace_is_the_recent_one(void **unused) {
  (void)unused;
  desk d;
  sit(&d);
  for (int i = 0; i < 100000; i++) { /* 100 s at 12,000 bytes/s */
    goes_by(&d, 1000);
    asks(&d);
  }
  assert_in_range(hv_upload_pace(d.u), 11000, 12000);
  for (int i = 0; i < 8; i++) { /* four minutes at nearly nothing */
    goes_by(&d, 29000000);
    asks(&d);
  }
  assert_in_range(hv_upload_pace(d.u), 0, 100);
  for (int i = 0; i < 60000; i++) {
    goes_by(&d, 1000);
    asks(&d);
  }
  assert_in_range(hv_upload_pace(d.u), 11000, 12000);
  rise(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replaced_snapshot_is_taken_from_a_slow_joiner),
      cmocka_unit_test(replaced_snapshot_is_served_while_bytes_move),
      cmocka_unit_test(joiner_that_asks_nothing_is_dropped),
      cmocka_unit_test(upload_pace_is_the_recent_one),
  };
  return cmocka_run_group_tests_name("upload", tests, NULL, NULL);
}
