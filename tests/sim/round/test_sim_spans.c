/* Spans follow what rounds have shown of each member's line: averagers over lines of different rates, step after step. */
#include "lib/check.h"

#include "core/node.h"
#include "net/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEERS_MAX = 8, VALUES = 2000000, MBIT = 125000 };
#define SECOND 1000000ull

typedef struct peer {
  struct scene *scene;
  hv_peer_id id;
  hv_node *node;
  hv_average *average;
  hv_average_config config;
  hv_average_tensor tensor;
  float *values;
  hv_average_step step;
  hv_command command;
  int done, client;
  uint64_t reducing_us, bytes;
} peer;

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  size_t n;
  peer peers[PEERS_MAX];
} scene;

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  peer *p = arg;
  hv_target first = hv_sim_target(p->scene->sim, 0);
  hv_node_config config = {.me = p->id, .initial = &first, .n_initial = 1, .hello_every_ms = 2000, .client_mode = p->client};
  hv_status status = hv_node_new(env, &config, &p->node);
  *out = (hv_core){p->node, hv_node_step};
  return status;
}

static void let_go(void *self) {
  hv_node_free(self);
}

static void open_averager(hv_command *command, void *core) {
  peer *p = (peer *)((char *)command - offsetof(peer, command));
  assert_int_equal(hv_average_new(hv_node_averages(core), &p->config, &p->average, NULL), HV_OK);
}

static void was_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  peer *p = step->owner;
  if (status != HV_OK)
    printf("%s: %s\n", hv_status_name(status), text);
  assert_int_equal(status, HV_OK);
  assert_int_equal(outcome->n_members, p->scene->n);
  p->done = 1;
  p->reducing_us = outcome->reducing_us;
  p->bytes = outcome->bytes;
}

static void start_step(hv_command *command, void *core) {
  peer *p = (peer *)((char *)command - offsetof(peer, command));
  (void)core;
  p->done = 0;
  p->step =
      (hv_average_step){.done = was_done, .owner = p, .weight = 1, .wait_ms = 5000, .timeout_ms = 90000, .expected = p->scene->n};
  assert_int_equal(hv_average_start(p->average, &p->step, NULL), HV_OK);
}

static void all(scene *s, void (*what)(hv_command *, void *)) {
  for (size_t i = 0; i < s->n; i++) {
    s->peers[i].command.run = what;
    assert_int_equal(hv_sim_command(s->sim, i, &s->peers[i].command), HV_OK);
  }
}

static void run(scene *s, double seconds) {
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + (uint64_t)(seconds * SECOND));
}

static void say_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

typedef struct setup {
  const uint64_t *lines; /* of each peer, in bytes per second */
  const uint64_t *up;    /* the same for what leaves; NULL: as lines */
  const double *stated;  /* what a peer says of itself before anything was seen; NULL: nothing */
  size_t clients;        /* the last ones cannot be dialled */
} setup;

static void open_scene(scene *s, size_t n, const setup *of) {
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(5);
  config.link = (hv_sim_link){.delay_us = 25000, .jitter_us = 2000};
  config.window = 1 << 18; /* a line's queue holds a few of these, not seconds of a slow one */
  config.skip_payload_hash = 1;
  config.say = getenv("NARRATE") ? say_line : NULL;
  s->sim = hv_sim_new(&s->mem, &config);
  s->n = n;
  for (size_t i = 0; i < n; i++) {
    peer *p = &s->peers[i];
    *p = (peer){.scene = s, .id = hv_sim_target(s->sim, i).id, .client = i + of->clients >= n};
    p->values = hv_mem_zalloc(&s->mem, VALUES * sizeof(float));
    p->tensor = (hv_average_tensor){.part = {p->values, HV_DTYPE_FLOAT32, VALUES, HV_CODEC_NONE, NULL, 0, 0, 0}};
    p->config = (hv_average_config){.prefix = hv_span_of("run", 3),
                                    .tensors = &p->tensor,
                                    .n_tensors = 1,
                                    .chunk_values = 8192,
                                    .alpha = 1,
                                    .bandwidth = of->stated ? of->stated[i] : 0};
    const uint64_t *up = of->up ? of->up : of->lines;
    hv_sim_node_config seat = {.make = make, .free = let_go, .arg = p, .up_rate = up[i], .down_rate = of->lines[i]};
    assert_int_equal(hv_sim_add(s->sim, &seat, NULL), HV_OK);
  }
  run(s, 3); /* they meet */
  all(s, open_averager);
  run(s, 3);
}

/* How long its all-reduce took, for the slowest. */
static double step_s(scene *s) {
  uint64_t most = 0;
  all(s, start_step);
  run(s, 60);
  for (size_t i = 0; i < s->n; i++) {
    assert_int_equal(s->peers[i].done, 1);
    most = s->peers[i].reducing_us > most ? s->peers[i].reducing_us : most;
  }
  return (double)most / 1e6;
}

static void close_scene(scene *s) {
  assert_int_equal(hv_sim_free(s->sim), 0);
  for (size_t i = 0; i < s->n; i++)
    hv_mem_free(s->peers[i].values);
  assert_int_equal(s->mem.blocks, 0);
}

static void member_with_a_tenth_of_the_bandwidth_owns_nothing(void **unused) {
  (void)unused;
  scene s;
  uint64_t lines[PEERS_MAX];
  double took[4], alone = VALUES * 4.0 / (10 * MBIT);
  for (size_t i = 0; i < PEERS_MAX; i++)
    lines[i] = (i == 5 ? 10 : 100) * MBIT;
  open_scene(&s, PEERS_MAX, &(setup){.lines = lines});
  for (int k = 0; k < 4; k++) {
    took[k] = step_s(&s);
    printf("step %d: %.2f s; the slow one moved %.1f MB, another one %.1f\n", k, took[k], (double)s.peers[5].bytes / 1e6,
           (double)s.peers[0].bytes / 1e6);
  }
  assert_true(took[0] > 1.6 * alone); /* all own as much: its values, and seven eighths of the averages */
  for (int k = 1; k < 4; k++)
    assert_true(took[k] < 1.15 * alone);
  close_scene(&s);
}

static void equal_lines_keep_equal_spans(void **unused) {
  (void)unused;
  scene s;
  const uint64_t lines[] = {100 * MBIT, 100 * MBIT, 100 * MBIT, 100 * MBIT};
  open_scene(&s, 4, &(setup){.lines = lines});
  double first = step_s(&s);
  for (int k = 0; k < 3; k++) {
    double took = step_s(&s);
    printf("%.3f s, the first %.3f\n", took, first);
    assert_true(took < first * 1.1);
  }
  uint64_t even = VALUES * 4ull * 2 * 3 / 4 * 2; /* a span differs by a chunk */
  for (size_t i = 0; i < 4; i++)
    assert_in_range(s.peers[i].bytes, even - even / 25, even + even / 25);
  close_scene(&s);
}

/* An owner receives from three members at once, so it sees a third of the other owner's line, or less if connections divide its own
 * line unevenly, as they do here in the first step. */
static void owners_among_clients_keep_equal_spans(void **unused) {
  (void)unused;
  scene s;
  const uint64_t lines[] = {100 * MBIT, 100 * MBIT, 100 * MBIT, 100 * MBIT};
  double least = VALUES * 4.0 * 2 / (100 * MBIT); /* half of the values to the other owner, and half of the averages to three */
  open_scene(&s, 4, &(setup){.lines = lines, .clients = 2});
  hv_sim_link link = {.delay_us = 25000, .jitter_us = 2000, .rate = 8 * MBIT};
  assert_int_equal(hv_sim_set_link(s.sim, 1, 0, &link), HV_OK);
  all(&s, start_step);
  run(&s, 1);
  link.rate = 0;
  assert_int_equal(hv_sim_set_link(s.sim, 1, 0, &link), HV_OK);
  run(&s, 60);
  printf("%.3f s while a connection has little at first\n", (double)s.peers[0].reducing_us / 1e6);
  for (int k = 0; k < 4; k++) {
    double took = step_s(&s);
    printf("%.3f s, the bytes take %.3f\n", took, least);
    assert_true(took < least * 1.2);
    assert_in_range(s.peers[0].bytes, s.peers[1].bytes - s.peers[1].bytes / 25, s.peers[1].bytes + s.peers[1].bytes / 25);
  }
  close_scene(&s);
}

/* Much arrives at once there, in the chunks of its window; they are no measure of what leaves. */
static void slow_line_out_gives_a_smaller_span(void **unused) {
  (void)unused;
  scene s;
  const uint64_t lines[] = {100 * MBIT, 100 * MBIT, 100 * MBIT, 100 * MBIT}, up[] = {100 * MBIT, 20 * MBIT, 100 * MBIT, 100 * MBIT};
  open_scene(&s, 4, &(setup){.lines = lines, .up = up});
  double first = step_s(&s), took = 0;
  for (int k = 0; k < 4; k++) {
    took = step_s(&s);
    printf("%.3f s, the first %.3f; the slow one moved %.1f MB\n", took, first, (double)s.peers[1].bytes / 1e6);
  }
  assert_true(took < VALUES * 4.0 / (20 * MBIT) * 1.15); /* it sends its own values */
  assert_true(took < first * 0.8);
  close_scene(&s);
}

/* It states ten times as much as its link carries. The others believe up to four times the usual. */
static void stated_bandwidth_is_corrected_by_measured_bandwidth(void **unused) {
  (void)unused;
  scene s;
  uint64_t lines[PEERS_MAX];
  double stated[PEERS_MAX], alone = VALUES * 4.0 / (10 * MBIT), took = 0;
  for (size_t i = 0; i < PEERS_MAX; i++) {
    lines[i] = (i == 5 ? 10 : 100) * MBIT;
    stated[i] = (i == 5 ? 1000 : 100) * MBIT;
  }
  open_scene(&s, PEERS_MAX, &(setup){.lines = lines, .stated = stated});
  double first = step_s(&s);
  for (int k = 0; k < 8; k++)
    took = step_s(&s);
  printf("%.2f s while it was believed, %.2f s in the end\n", first, took);
  assert_true(first > 2.5 * alone);
  assert_true(took < 1.15 * alone);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(member_with_a_tenth_of_the_bandwidth_owns_nothing),
      cmocka_unit_test(equal_lines_keep_equal_spans),
      cmocka_unit_test(owners_among_clients_keep_equal_spans),
      cmocka_unit_test(slow_line_out_gives_a_smaller_span),
      cmocka_unit_test(stated_bandwidth_is_corrected_by_measured_bandwidth),
  };
  return cmocka_run_group_tests_name("spans by what rounds have shown", tests, NULL, NULL);
}
