/* The file of a machine's record: what is written is there at once, and a place that cannot be written is said. */
#include "core/epoch/replay.h"
#include "lib/epoch_scene.h"
#include "net/events_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t bytes_of(const char *path, char *out, size_t room) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t n = fread(out, 1, room, file);
  fclose(file);
  return n;
}

static void each_event_is_in_the_file_at_once(void **unused) {
  (void)unused;
  static char text[1 << 16];
  char path[] = "/tmp/events-XXXXXX";
  hv_error err = {0};
  close(mkstemp(path));
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  assert_int_equal(hv_events_file_open(&s->env.mem, path, &s->trace, &err), HV_OK);
  hv_trace_begin(s->trace, &s->e, s->now_us);
  gathers(s);
  hv_replay *r = hv_replay_new(&s->env.mem, &s->env.env);
  assert_int_equal(hv_replay_feed(r, hv_span_of(text, bytes_of(path, text, sizeof text)), &err), HV_OK);
  assert_true(hv_replay_look(r)->events == 2 && !hv_replay_look(r)->differing);
  hv_replay_free(r);
  hv_events_file_close(s->trace);
  assert_int_equal(s->env.mem.blocks, 0);
  unlink(path);
}

static void place_that_cannot_be_written_is_said(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_trace *trace = NULL;
  hv_error err = {0};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_events_file_open(&mem, "/nowhere/at/all", &trace, &err), HV_IO);
  assert_non_null(strstr(err.text, "cannot record events in /nowhere/at/all: No such file or directory; "));
  hv_mem_fail_in(&mem, 0);
  assert_int_equal(hv_events_file_open(&mem, "/dev/null", &trace, &err), HV_NOMEM);
  assert_int_equal(mem.blocks, 0);
  hv_events_file_close(NULL);
}

/* The machine does as before. */
static void full_disk_ends_the_record_alone(void **unused) {
  (void)unused;
  hv_error err = {0};
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 1}, HV_EPOCH_ALONE_TRAINS);
  assert_int_equal(hv_events_file_open(&s->env.mem, "/dev/full", &s->trace, &err), HV_OK);
  hv_trace_begin(s->trace, &s->e, s->now_us);
  gathers(s);
  assert_true(s->trace->is_over);
  hv_events_file_close(s->trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_event_is_in_the_file_at_once),
      cmocka_unit_test(place_that_cannot_be_written_is_said),
      cmocka_unit_test(full_disk_ends_the_record_alone),
  };
  return cmocka_run_group_tests_name("events_file", tests, NULL, NULL);
}
