/* Averages that the members of a round kept, written into the tensors of a peer that was not in it. */
#include "lib/check.h"

#include "core/node.h"
#include "net/sim/sim.h"

#include <math.h>
#include <string.h>

enum { PEERS = 4, MEMBERS = 3, VALUES = 3000, HALVES = 16, CHUNKS_MAX = 64 };

typedef struct peer {
  hv_sim *sim;
  hv_peer_id id;
  hv_node *node;
  hv_average *average;
  hv_average_tensor tensors[2];
  int64_t shapes[2];
  float values[VALUES];
  uint16_t halves[HALVES];
  hv_average_step step;
  hv_status status;
  hv_payload *kept; /* a reference */
  int narrow;       /* as of the outcome */
  hv_command command;
} peer;

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  peer peers[PEERS];
} scene;

/* ---- the stage ---- */

static void step_node(void *self, const hv_event *event) {
  hv_node_step(((peer *)self)->node, event);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  peer *p = arg;
  hv_target first = hv_sim_target(p->sim, 0);
  hv_node_config config = {.me = p->id, .initial = &first, .n_initial = 1, .hello_every_ms = 2000};
  hv_status status = hv_node_new(env, &config, &p->node);
  *out = (hv_core){p, step_node};
  return status;
}

static void let_go(void *self) {
  hv_node_free(((peer *)self)->node);
}

static void was_done(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  peer *p = step->owner;
  (void)text;
  p->status = status;
  p->narrow = outcome->narrow;
  p->kept = outcome->kept ? hv_payload_keep(outcome->kept) : NULL;
}

static void open_averager(hv_command *command, void *core) {
  peer *p = HV_HOLDER(peer, command, command);
  hv_average_config config = {
      .prefix = hv_span_of("run", 3), .tensors = p->tensors, .n_tensors = 2, .chunk_values = 256, .alpha = 1};
  assert_int_equal(hv_average_new(hv_node_averages(core), &config, &p->average, NULL), HV_OK);
}

static void begin_step(hv_command *command, void *core) {
  peer *p = HV_HOLDER(peer, command, command);
  (void)core;
  assert_int_equal(hv_average_start(p->average, &p->step, NULL), HV_OK);
}

static void send_narrow(hv_command *command, void *core) {
  peer *p = HV_HOLDER(peer, command, command);
  (void)core;
  hv_average_send_narrow(p->average, &p->step);
}

static void tell(scene *s, size_t i, void (*what)(hv_command *, void *)) {
  s->peers[i].command = (hv_command){.run = what};
  assert_int_equal(hv_sim_command(s->sim, i, &s->peers[i].command), HV_OK);
  hv_sim_run_until(s->sim, hv_sim_now(s->sim));
}

/* One round of all but the last one, whose large tensor has the codec `absent`. listens: it is a member all the same. LINEAR8 may
 * travel as LINEAR4, as one member's values do if it sends `narrow`. */
static void plays(scene *s, uint64_t seed, hv_codec codec, hv_codec absent, int keep, int listens, int narrow) {
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  s->sim = hv_sim_new(&s->mem, &config);
  for (size_t i = 0; i < PEERS; i++) {
    peer *p = &s->peers[i];
    *p = (peer){.sim = s->sim, .id = hv_sim_target(s->sim, i).id, .status = HV_STATE, .shapes = {VALUES, HALVES}};
    for (int k = 0; k < VALUES; k++)
      p->values[k] = (float)(i + 1) * sinf((float)k);
    for (int k = 0; k < HALVES; k++)
      p->halves[k] = (uint16_t)(0x3c00 + 0x100 * i);
    hv_codec of_values = i < MEMBERS ? codec : absent;
    p->tensors[0] = (hv_average_tensor){{p->values, HV_DTYPE_FLOAT32, VALUES, of_values, NULL, VALUES / 3, 0,
                                         of_values == HV_CODEC_LINEAR8 ? HV_CODEC_LINEAR4 : HV_CODEC_NONE},
                                        &p->shapes[0],
                                        1};
    p->tensors[1] = (hv_average_tensor){{p->halves, HV_DTYPE_FLOAT16, HALVES, HV_CODEC_FLOAT16, NULL, 0, 0, 0}, &p->shapes[1], 1};
    p->step = (hv_average_step){
        .done = was_done, .owner = p, .wait_ms = 5000, .timeout_ms = 30000, .weight = 1, .expected = MEMBERS, .keep = keep};
    hv_sim_node_config seat = {.make = make, .free = let_go, .arg = p};
    assert_int_equal(hv_sim_add(s->sim, &seat, NULL), HV_OK);
  }
  hv_sim_run_until(s->sim, 3000000);
  for (size_t i = 0; i < PEERS; i++)
    tell(s, i, open_averager);
  peer *last = &s->peers[PEERS - 1];
  last->step.listens = last->step.keep = 1;
  last->step.weight = 0;
  for (size_t i = 0; i < PEERS; i++)
    s->peers[i].step.expected += (size_t)listens;
  for (size_t i = 0; i < MEMBERS + (size_t)listens; i++)
    tell(s, i, begin_step);
  if (narrow)
    tell(s, 1, send_narrow);
  hv_sim_run_until(s->sim, 20000000);
  for (size_t i = 0; i < MEMBERS; i++)
    assert_int_equal(s->peers[i].status, HV_OK);
}

static void play(scene *s, uint64_t seed, hv_codec codec, hv_codec absent, int keep) {
  plays(s, seed, codec, absent, keep, 0, 0);
}

static void close_scene(scene *s) {
  for (size_t i = 0; i < PEERS; i++)
    hv_payload_release(s->peers[i].kept);
  assert_int_equal(hv_sim_free(s->sim), 0);
  assert_int_equal(s->mem.blocks, 0);
}

/* ---- scenarios ---- */

static void kept_averages_are_repeated_to_the_bit(void **unused) {
  (void)unused;
  static const hv_codec codecs[] = {HV_CODEC_NONE, HV_CODEC_FLOAT16, HV_CODEC_UNIFORM8, HV_CODEC_LINEAR4, HV_CODEC_SCALED_ROWS};
  for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
    scene s;
    play(&s, 70 + c, codecs[c], codecs[c], 1);
    peer *first = &s.peers[0], *absent = &s.peers[PEERS - 1];
    for (size_t i = 0; i < MEMBERS; i++) {
      hv_payload *kept = s.peers[i].kept;
      assert_non_null(kept);
      assert_int_equal(kept->size, hv_average_kept_size(first->average));
      for (size_t k = 0; k < kept->n_parts; k++)
        assert_memory_equal(kept->parts[k].data, first->kept->parts[k].data, kept->parts[k].size);
    }
    assert_int_equal(hv_average_repeat(absent->average, first->kept->parts, first->kept->n_parts, NULL), HV_OK);
    assert_memory_equal(absent->values, first->values, sizeof first->values);
    assert_memory_equal(absent->halves, first->halves, sizeof first->halves);
    close_scene(&s);
  }
}

/* Its tensors stay as they are, with values that would show in the average. */
static void member_that_listens_has_the_average_and_gives_nothing(void **unused) {
  (void)unused;
  static const hv_codec codecs[] = {HV_CODEC_NONE, HV_CODEC_UNIFORM8, HV_CODEC_SCALED_ROWS};
  for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
    scene s;
    plays(&s, 80 + c, codecs[c], codecs[c], 1, 1, 0);
    peer *first = &s.peers[0], *last = &s.peers[PEERS - 1];
    assert_int_equal(last->status, HV_OK);
    for (int k = 0; k < VALUES; k++)
      assert_true(last->values[k] == (float)PEERS * sinf((float)k));
    for (int k = 0; k < VALUES && codecs[c] == HV_CODEC_NONE; k++)
      assert_true(fabsf(first->values[k] - 2 * sinf((float)k)) < 1e-5f);
    assert_non_null(last->kept);
    assert_int_equal(hv_average_repeat(last->average, last->kept->parts, last->kept->n_parts, NULL), HV_OK);
    assert_memory_equal(last->values, first->values, sizeof first->values);
    assert_memory_equal(last->halves, first->halves, sizeof first->halves);
    close_scene(&s);
  }
}

/* A peer that was in neither round repeats both: one whose averages are wide, and one that a member made narrow. */
static void averages_of_both_widths_are_repeated(void **unused) {
  (void)unused;
  for (int narrow = 0; narrow <= 1; narrow++) {
    scene s;
    plays(&s, 85, HV_CODEC_LINEAR8, HV_CODEC_LINEAR8, 1, 0, narrow);
    peer *first = &s.peers[0], *absent = &s.peers[PEERS - 1];
    size_t most = hv_average_kept_size(first->average);
    for (size_t i = 0; i < MEMBERS; i++) {
      assert_int_equal(s.peers[i].narrow, narrow);
      assert_true(narrow ? s.peers[i].kept->size < most : s.peers[i].kept->size == most);
      assert_memory_equal(s.peers[i].values, first->values, sizeof first->values);
    }
    assert_int_equal(hv_average_repeat(absent->average, first->kept->parts, first->kept->n_parts, NULL), HV_OK);
    assert_memory_equal(absent->values, first->values, sizeof first->values);
    assert_memory_equal(absent->halves, first->halves, sizeof first->halves);
    close_scene(&s);
  }
}

static void step_that_does_not_ask_keeps_nothing(void **unused) {
  (void)unused;
  scene s;
  play(&s, 90, HV_CODEC_NONE, HV_CODEC_NONE, 0);
  for (size_t i = 0; i < MEMBERS; i++)
    assert_null(s.peers[i].kept);
  close_scene(&s);
}

static void refuses(peer *p, const hv_span *chunks, size_t n, const char *why) {
  hv_error err = {0};
  float before[VALUES];
  memcpy(before, p->values, sizeof before);
  assert_int_equal(hv_average_repeat(p->average, chunks, n, &err), HV_MALFORMED);
  if (!strstr(err.text, why))
    fail_msg("'%s' is not about '%s'", err.text, why);
  assert_memory_equal(p->values, before, sizeof before); /* nothing was written */
}

static void averages_that_do_not_fit_are_not_repeated(void **unused) {
  (void)unused;
  scene s;
  play(&s, 80, HV_CODEC_NONE, HV_CODEC_UNIFORM8, 1);
  peer *first = &s.peers[0];
  size_t n = first->kept->n_parts;
  hv_span chunks[CHUNKS_MAX];
  uint8_t bytes[4096];
  assert_in_range(n, 2, CHUNKS_MAX);
  memcpy(chunks, first->kept->parts, n * sizeof *chunks);
  refuses(&s.peers[PEERS - 1], chunks, n, "compression");
  refuses(first, chunks, n - 1, "chunks");
  refuses(first, chunks, 0, "chunks");
  hv_span last = chunks[n - 2];
  assert_in_range(last.size, 1, sizeof bytes);
  memcpy(bytes, last.data, last.size);
  bytes[last.size - 1] ^= 1;
  chunks[n - 2].data = bytes; /* all before it are right */
  refuses(first, chunks, n, "damaged");
  chunks[n - 2] = hv_span_of(last.data, last.size - 1);
  refuses(first, chunks, n, "damaged");
  chunks[n - 2] = first->kept->parts[n - 1];
  refuses(first, chunks, n, "values");
  chunks[n - 2] = hv_span_of(NULL, 0);
  refuses(first, chunks, n, "damaged");
  close_scene(&s);
}

/* A peer that repeats it has the same bits then. Another step has another stamp. */
static void step_of_its_own_is_repeated_to_the_bit(void **unused) {
  (void)unused;
  static const hv_codec codecs[] = {HV_CODEC_NONE, HV_CODEC_FLOAT16, HV_CODEC_UNIFORM8, HV_CODEC_LINEAR4, HV_CODEC_SCALED_ROWS};
  for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
    scene s;
    play(&s, 100 + c, codecs[c], codecs[c], 0);
    peer *one = &s.peers[0], *other = &s.peers[PEERS - 1];
    uint64_t stamp = 0, again = 0;
    float before[VALUES];
    for (int k = 0; k < VALUES; k++)
      one->values[k] = before[k] = cosf((float)k);
    assert_int_equal(hv_average_keep(one->average, &one->kept, &stamp, NULL), HV_OK);
    assert_int_not_equal(stamp, 0);
    assert_int_equal(one->kept->size, hv_average_kept_size(one->average));
    assert_int_equal(memcmp(before, one->values, sizeof before) == 0, codecs[c] == HV_CODEC_NONE);
    assert_int_equal(hv_average_repeat(other->average, one->kept->parts, one->kept->n_parts, NULL), HV_OK);
    assert_memory_equal(other->values, one->values, sizeof one->values);
    assert_memory_equal(other->halves, one->halves, sizeof one->halves);
    other->values[0] += 1;
    assert_int_equal(hv_average_keep(other->average, &other->kept, &again, NULL), HV_OK);
    assert_int_not_equal(again, stamp);
    close_scene(&s);
  }
}

static void step_that_is_not_finite_is_not_kept(void **unused) {
  (void)unused;
  scene s;
  play(&s, 110, HV_CODEC_UNIFORM8, HV_CODEC_UNIFORM8, 0);
  peer *p = &s.peers[0];
  float before[VALUES];
  hv_error err = {0};
  uint64_t stamp;
  p->values[VALUES - 1] = NAN; /* in the last chunk of its tensor */
  memcpy(before, p->values, sizeof before);
  assert_int_equal(hv_average_keep(p->average, &p->kept, &stamp, &err), HV_NOT_FINITE);
  assert_memory_equal(before, p->values, sizeof before);
  assert_non_null(strstr(err.text, "cannot keep a step"));
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kept_averages_are_repeated_to_the_bit),
      cmocka_unit_test(member_that_listens_has_the_average_and_gives_nothing),
      cmocka_unit_test(averages_of_both_widths_are_repeated),
      cmocka_unit_test(step_that_does_not_ask_keeps_nothing),
      cmocka_unit_test(averages_that_do_not_fit_are_not_repeated),
      cmocka_unit_test(step_of_its_own_is_repeated_to_the_bit),
      cmocka_unit_test(step_that_is_not_finite_is_not_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
